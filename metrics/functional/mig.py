"""Mutual Information Gap (Chen et al., 2018)."""

from typing import Any, Literal

import numpy as np

from unknot.metrics.functional.aggregation import gap
from unknot.metrics.functional.checks import as_rows
from unknot.metrics.functional.information import discretize, entropy
from unknot.metrics.functional.matrices import information_matrix


def mig(codes: Any, factors: Any, bins: int = 20, divide_by: Literal["factor", "code"] = "factor") -> float:
    r"""Mean over factors of the gap between the two latents with the most mutual information.

    .. math::
        \mathrm{MIG} = \frac{1}{F}\sum_{k=1}^{F} \frac{1}{H(v_k)}\left(I(z_{j_k}; v_k) - \max_{j\neq j_k} I(z_j;
        v_k)\right)

    .. math:: j_k = \mathrm{argmax}_j\, I(z_j; v_k)

    Thesis: section "Measuring Disentanglement".

    with the discrete mutual information of the codes binned into 20 intervals, as in the thesis. A factor that does not
    vary in the sample has no entropy and is left out; with a single latent the runner-up is 0.

    Args:
        codes: representation ``[N, D]``, NumPy or torch.
        factors: integer classes ``[N, F]``; any integers, any subset of a grid.
        bins: intervals per latent.
        divide_by: entropy that normalises information. ``"factor"`` is H(v_k), as in the thesis; ``"code"`` divides
            each I(z_j; v_k) by H(z_j) before the gap is taken, as the code of Carbonneau et al. (2022) does with 10
            bins. The two differ by almost a factor of two on the same arrays.

    Returns:
        A score in [0, 1]; 0 if no factor varies.

    >>> factors = np.random.default_rng(0).integers(0, 10, size=(10_000, 2))
    >>> round(mig(factors.astype(float), factors), 2)
    1.0
    >>> mig(np.zeros((10_000, 3)), factors)
    0.0
    """
    if divide_by not in ("factor", "code"):
        raise ValueError(f"divide_by must be 'factor' or 'code', got {divide_by!r}.")
    if divide_by == "code":
        codes, factors = as_rows(codes, factors)
    information, entropies = information_matrix(codes, factors, bins)
    if divide_by == "factor":
        return gap(information, entropies)
    own = entropy(discretize(codes, bins))[:, None]
    return gap(np.divide(information, own, out=np.zeros_like(information), where=own > 0), entropies > 0)
