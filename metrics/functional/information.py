"""Discrete entropy and mutual information, in nats, of binned codes and factors."""

import numpy as np

from unknot.labels import discretize as discretize
from unknot.metrics.functional.checks import Floats, Ints


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
    return np.maximum(information, 0)  # rounding can leave -1e-16


def _rank(column: Ints) -> tuple[Ints, int]:
    """Renumber classes as 0..K-1, so that counting does not depend on the size of the labels."""
    values, ranks = np.unique(column, return_inverse=True)
    return ranks.astype(np.int64), len(values)


def _entropy_of_counts(counts: Ints) -> float:
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
