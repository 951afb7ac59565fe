"""Mutual Information Gap (Chen et al., 2018)."""

from typing import Any

from unknot.metrics.functional.aggregation import gap
from unknot.metrics.functional.matrices import information_matrix


def mig(codes: Any, factors: Any, bins: int = 20) -> float:
    """Mean over factors of the gap between the two codes that know most about it (section "Measuring Disentanglement").

        MIG = 1/F Σ_k (I(z_{j1}; v_k) - I(z_{j2}; v_k)) / H(v_k)

    with the discrete mutual information of the codes binned into 20 intervals, as in the thesis. A factor that does
    not vary in the sample has no entropy and is left out; with a single code the runner-up knows nothing.

    Args:
        codes: representation ``[N, D]``, NumPy or torch.
        factors: integer classes ``[N, F]``; any integers, any subset of a grid.
        bins: intervals per code.

    Returns:
        A score in [0, 1]; 0 if no factor varies.

    >>> import numpy as np
    >>> factors = np.random.default_rng(0).integers(0, 10, size=(10_000, 2))
    >>> round(mig(factors.astype(float), factors), 2)
    1.0
    >>> mig(np.zeros((10_000, 3)), factors)
    0.0
    """
    return gap(*information_matrix(codes, factors, bins))
