"""Discrete entropy and mutual information, in nats, of binned codes and factors."""

import numpy as np

from unknot._numbers import counts
from unknot.metrics.functional.checks import Floats, Ints


def discretize(codes: Floats, bins: int = 20) -> Ints:
    """Bin each code into ``bins`` equal intervals between its extremes: codes ``[N, D]`` to classes 0..bins-1.

    >>> discretize(np.array([[0.0], [0.49], [0.5], [1.0]]), bins=2).ravel().tolist()
    [0, 0, 1, 1]
    """
    counts(bins=bins)
    return np.stack([_bin(column, bins) for column in codes.T], axis=1)


def _bin(column: Floats, bins: int) -> Ints:
    # Edges as np.histogram places them, but it refuses columns whose range is too small for that many floats; the
    # last edge is dropped so that the maximum falls into the last bin.
    edges = np.linspace(column.min(), column.max(), bins + 1)
    return np.searchsorted(edges[:-1], column, side="right") - 1


def entropy(classes: Ints) -> Floats:
    """Entropy of each column of ``[N, F]`` integer classes: ``[F]``."""
    return np.array([_entropy_of_counts(np.unique(column, return_counts=True)[1]) for column in classes.T])


def mutual_information(classes: Ints, factors: Ints) -> Floats:
    """Mutual information of every column of ``[N, D]`` with every column of ``[N, F]``: ``[D, F]``.

    I(a; b) = H(a) + H(b) - H(a, b), each from counts.

    >>> coin = np.array([[0], [1], [0], [1]])
    >>> mutual_information(coin, np.hstack([coin, coin // 2])).round(4).tolist()
    [[0.6931, 0.0]]
    """
    ranked, sizes = zip(*(_rank(column) for column in factors.T), strict=True)
    joint = np.empty((classes.shape[1], factors.shape[1]))
    for d, column in enumerate(classes.T):
        code, _ = _rank(column)
        for f, (factor, size) in enumerate(zip(ranked, sizes, strict=True)):
            joint[d, f] = _entropy_of_counts(np.bincount(code * size + factor))
    information = entropy(classes)[:, None] + entropy(factors)[None, :] - joint
    return np.maximum(information, 0)  # rounding may leave -1e-16


def _rank(column: Ints) -> tuple[Ints, int]:
    """Renumber classes 0..K-1, so that any labels, however far apart, count as cheaply as small ones."""
    values, ranks = np.unique(column, return_inverse=True)
    return ranks.astype(np.int64), len(values)


def _entropy_of_counts(counts: Ints) -> float:
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
