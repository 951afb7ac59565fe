"""Aggregations of a factor-code matrix ``[D, F]`` into a number, which decide what a score means by "disentangled".

Disentanglement and modularity measure whether each latent encodes one factor; completeness and the gaps of MIG and SAP,
whether each factor is encoded by one latent. Factors and latents without information have little weight: by their share
of the matrix (DCI), or as 0 (the others).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from unknot.metrics.functional.checks import Floats, as_matrix
from unknot.metrics.functional.matrices import FactorCodeMatrix

NOTHING = 1e-12  # rounding error of mutual information


def dci_disentanglement(matrix: Any) -> float:
    r"""One minus the entropy of each code's row, weighted by the row's share of the matrix.

    .. math:: D = \sum_d \rho_d\,\left(1 - H_F(R_d)\right)

    .. math:: \rho_d = \frac{\sum_k R_{dk}}{\sum_{dk} R_{dk}}

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    A row is normalised to a distribution over the F factors, and its entropy has base F. With a single factor every
    latent is disentangled. Returns 0 for a matrix of zeros.

    >>> dci_disentanglement([[1.0, 0.0], [0.0, 1.0]]), dci_disentanglement([[0.5, 0.5], [0.5, 0.5]])
    (1.0, 0.0)
    """
    return _weighted_certainty(as_matrix(matrix))


def dci_completeness(matrix: Any) -> float:
    r"""One minus the entropy of each factor's column, in base D, weighted by the column's share of the matrix.

    .. math:: C = \sum_k \rho_k\,\left(1 - H_D(R_k)\right)

    .. math:: \rho_k = \frac{\sum_d R_{dk}}{\sum_{dk} R_{dk}}

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    >>> dci_completeness([[1.0, 1.0], [0.0, 0.0]])
    1.0
    """
    return _weighted_certainty(as_matrix(matrix).T)


def gap(matrix: Any, ceiling: Any = 1.0) -> float:
    r"""Mean over factors of the difference between the two largest entries of a column, as a share of ``ceiling``
    ``[F]``.

    .. math:: \frac{1}{F}\sum_{k=1}^{F} \frac{1}{H_k}\left(R_{j_k k} - \max_{j\neq j_k} R_{jk}\right)

    .. math:: j_k = \mathrm{argmax}_j\, R_{jk}

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    With mutual information and the ceiling H(v_k) this is the MIG, with SVM accuracies the SAP score. With a single
    latent the second largest entry is 0. Factors whose ceiling is 0 do not vary and are left out; 0 if none is left.

    >>> round(gap([[0.9, 0.2], [0.1, 0.6]]), 6)
    0.6
    """
    values = as_matrix(matrix)
    ranked = np.sort(np.vstack([values, np.zeros(values.shape[1])]) if len(values) == 1 else values, axis=0)
    ceiling = np.broadcast_to(ceiling, values.shape[1:])
    varies = ceiling > 0
    return float(np.mean((ranked[-1] - ranked[-2])[varies] / ceiling[varies])) if varies.any() else 0.0


def modularity_of(matrix: Any) -> float:
    r"""Mean over latents of the degree to which a latent encodes only one factor, its best factor k*.

    .. math:: \frac{1}{D}\sum_d \left(1 - \frac{\sum_{k\neq k^*} R_{dk}^2}{(F-1)\, R_{d k^*}^2}\right)

    .. math:: k^* = \mathrm{argmax}_k\, R_{dk}

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    A latent without information counts 0. With a single factor every other latent is modular.

    >>> round(modularity_of([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), 4)
    0.6667
    """
    values = as_matrix(matrix)
    best = values.max(1)
    informed = best > NOTHING
    others = (values[informed] / best[informed, None]) ** 2  # the best itself is 1
    return float((1 - (others.sum(1) - 1) / max(values.shape[1] - 1, 1)).sum() / len(values))


AGGREGATIONS: dict[str, Callable[[FactorCodeMatrix], float]] = {
    "dci_disentanglement": lambda matrix: dci_disentanglement(matrix.values),
    "dci_completeness": lambda matrix: dci_completeness(matrix.values),
    "mig": lambda matrix: gap(matrix.values, matrix.ceiling),
    "sap": lambda matrix: gap(matrix.values),
    "modularity": lambda matrix: modularity_of(matrix.values),
}
"""Aggregations by name. MIG's gap is relative to the ceiling, SAP's is not: they differ on mutual information only."""


def _weighted_certainty(rows: Floats) -> float:
    mass = rows.sum(1)
    if mass.sum() <= 0:
        return 0.0
    rows, mass = rows[mass > 0], mass[mass > 0]
    p = rows / mass[:, None]
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    entropies = -(p * logs).sum(1) / np.log(max(rows.shape[1], 2))
    return float(np.average(np.clip(1 - entropies, 0, 1), weights=mass))
