"""Scores of a matrix of mutual information published after MIG: DCIMIG, JEMMIG, MIG-sup and MED.

All bin latents into equal intervals between their extremes. MIG itself is in ``mig.py``.
"""

from typing import Any

import numpy as np

from unknot.arguments import counts
from unknot.metrics.functional.aggregation import dci_completeness, dci_disentanglement
from unknot.metrics.functional.checks import Floats, Ints, as_rows
from unknot.metrics.functional.information import discretize, entropy, mutual_information


def dcimig(codes: Any, factors: Any, bins: int = 10) -> float:
    r"""DCIMIG (Sepliarskaia et al., 2019): gap of each latent between the two factors with which it shares most
    information.

    .. math::
        \frac{\sum_k \max_{d:\, k^*(d) = k}\left(I(z_d; v_{k^*(d)}) - I(z_d; v_{k^\prime(d)})\right)}{\sum_k H(v_k)}

    where k*(d) is the factor with the most information in latent d and k'(d) the runner-up. A factor that is first for
    no latent counts 0. With a single factor the runner-up is 0.

    Args:
        codes: representation ``[N, D]``.
        factors: integer classes ``[N, F]``. Factors that do not vary are left out.
        bins: intervals of each latent; 10 in Carbonneau et al. (2022).

    Returns:
        A score in [0, 1]; 0 if no factor varies.

    >>> factors = np.random.default_rng(0).integers(0, 5, size=(5000, 2))
    >>> round(dcimig(factors * 1.0, factors), 2), dcimig(np.zeros((5000, 3)), factors)
    (1.0, 0.0)
    """
    _, information, entropies = _information(codes, factors, bins)
    if not len(entropies):
        return 0.0
    first, second = _two_largest(information)
    owner, gaps = information.argmax(1), np.zeros(len(entropies))
    np.maximum.at(gaps, owner, first - second)
    return float(gaps.sum() / entropies.sum())


def jemmig(codes: Any, factors: Any, bins: int = 10) -> float:
    r"""JEMMIG (Do & Tran, 2020), as a score that is 1 at best: MIG with a penalty for other information in the best
    latent.

    .. math::
        \frac{1}{F}\sum_{k=1}^{F}\left(1 - \frac{H(v_k, z_{k^*}) - I(v_k; z_{k^*}) + I(v_k; z_{k^\prime})}{H(v_k) +
        \log B}\right)

    where z_k* is the latent with the most information about factor k and z_k' the runner-up. Normalisation and
    direction are those of Carbonneau et al. (2022).

    Args:
        codes: representation ``[N, D]``.
        factors: integer classes ``[N, F]``. Factors that do not vary are left out.
        bins: intervals of each latent.

    Returns:
        A score in [0, 1]; 0 if no factor varies. Constant latents do not score 0 but 1 - H / (H + log bins) on average,
        because they add no entropy.

    >>> factors = np.random.default_rng(0).integers(0, 10, size=(5000, 2))
    >>> round(jemmig(factors * 1.0, factors), 2)
    1.0
    """
    classes, information, entropies = _information(codes, factors, bins)
    if not len(entropies):
        return 0.0
    first, second = _two_largest(information.T)
    best = information.argmax(0)
    joint = entropies + entropy(classes)[best] - first  # H(v, z) = H(v) + H(z) - I
    return float(np.mean(1 - (joint - first + second) / (entropies + np.log(bins))))


def mig_sup(codes: Any, factors: Any, bins: int = 10) -> float:
    r"""MIG-sup (Li et al., 2020): gap of each latent between two factors, as a share of the latent's entropy.

    .. math:: \frac{1}{D}\sum_{d=1}^{D} \frac{I(z_d; v_{k^*(d)}) - I(z_d; v_{k^\prime(d)})}{H(z_d)}

    It measures modularity, whereas MIG measures compactness. With a single factor the runner-up is 0.

    Args:
        codes: representation ``[N, D]``.
        factors: integer classes ``[N, F]``. Factors that do not vary are left out.
        bins: intervals of each latent.

    Returns:
        A score in [0, 1]; constant latents count 0, and the score is 0 if no factor varies.

    >>> factors = np.random.default_rng(0).integers(0, 10, size=(5000, 2))
    >>> round(mig_sup(factors * 1.0, factors), 2)
    1.0
    """
    classes, information, entropies = _information(codes, factors, bins)
    if not len(entropies):
        return 0.0
    first, second = _two_largest(information)
    own = entropy(classes)
    return float(np.mean(np.divide(first - second, own, out=np.zeros_like(own), where=own > 0)))


def med(codes: Any, factors: Any, bins: int = 20, top_k: int | None = None) -> dict[str, float]:
    r"""MED (Cao et al., 2022): DCI's entropies on mutual information, normalised so that each factor has the same
    share.

    .. math:: D = \sum_d \rho_d\,\left(1 - H_F(R_d)\right)

    .. math:: R_{dk} = \frac{I(z_d; v_k)}{\sum_e I(z_e; v_k)}

    The ``information`` aggregation of :data:`~unknot.metrics.functional.AGGREGATIONS` uses I itself, so that factors
    are weighted by their information.

    Args:
        codes: representation ``[N, D]``.
        factors: integer classes ``[N, F]``. Factors that do not vary, or that no latent encodes, are left out.
        bins: intervals of each latent.
        top_k: score only the k most disentangled latents of each factor, among those with the most information about
            it, to compare models with many latents.

    Returns:
        ``disentanglement`` and ``completeness``, each in [0, 1]; 0 if no latent has any information.

    >>> factors = np.random.default_rng(0).integers(0, 5, size=(5000, 2))
    >>> {name: round(value, 1) for name, value in med(factors * 1.0, factors).items()}
    {'disentanglement': 1.0, 'completeness': 1.0}
    """
    _, information, _ = _information(codes, factors, bins)
    total = information.sum(0)
    shares = information[:, total > 0] / total[total > 0]
    if not shares.shape[1]:
        return {"disentanglement": 0.0, "completeness": 0.0}
    if top_k is not None:
        counts(top_k=top_k)
        shares = shares[_most_disentangled(shares, top_k)]
    return {"disentanglement": dci_disentanglement(shares), "completeness": dci_completeness(shares)}


def _most_disentangled(shares: Floats, top_k: int) -> Any:
    certainty = np.array([dci_disentanglement(row[None]) for row in shares])
    owner = shares.argmax(1)
    order = np.argsort(-certainty, kind="stable")
    kept = [order[owner[order] == k][:top_k] for k in range(shares.shape[1])]
    return np.sort(np.concatenate(kept))


def _information(codes: Any, factors: Any, bins: int) -> tuple[Ints, Floats, Floats]:
    """Return binned latents, and the information ``[D, F]`` and entropies ``[F]`` of the factors that vary."""
    codes, factors = as_rows(codes, factors)
    classes, entropies = discretize(codes, bins), entropy(factors)
    return classes, mutual_information(classes, factors)[:, entropies > 0], entropies[entropies > 0]


def _two_largest(rows: Floats) -> tuple[Floats, Floats]:
    """Return the largest and the second largest entry of each row; the second is 0 if there is only one column."""
    ranked = np.sort(np.column_stack([rows, np.zeros(len(rows))]) if rows.shape[1] == 1 else rows, axis=1)
    return ranked[:, -1], ranked[:, -2]
