"""Interventional Robustness Score (Suter et al., 2019)."""

from typing import Any

import numpy as np

from unknot.arguments import is_number
from unknot.labels import MISSING
from unknot.metrics.functional.checks import as_classes, as_codes, by_missing, varying
from unknot.metrics.functional.information import discretize


def irs(codes: Any, factors: Any, bins: int | None = 20, quantile: float = 0.99) -> float:
    r"""Interventional robustness: degree to which a latent stays constant while its factor is fixed and others change.

    .. math::
        \mathrm{IRS} = \sum_d w_d\, \max_k \left(1 - \frac{\mathbb{E}_{v_k} Q_{0.99}\left(|z_d - \mathbb{E}[z_d \mid
        v_k]|\right)}{\max |z_d - \mathbb{E} z_d|}\right)

    Thesis: section "Measuring Disentanglement".

    with weights w_d proportional to max|z_d - E z_d|. The interventions on v_k are the samples with the same value, so
    i.i.d. samples suffice if the factors are independent.

    Args:
        codes: representation ``[N, D]``; constant latents are left out.
        factors: integer classes ``[N, F]``; factors that do not vary are left out.
        bins: intervals for the values of each factor, 20 in the reference; ``None`` uses its classes.
        quantile: quantile of the deviations in each group, instead of their maximum.

    Returns:
        A score of at most 1; 0 if no latent or no factor varies. A latent that deviates more from the means of its
        groups than from its overall mean, as skewed ones may, counts below 0, as in the reference.

    >>> factors = np.random.default_rng(0).integers(0, 10, size=(10_000, 2))
    >>> irs(factors * 1.0, factors)
    1.0
    """
    codes = as_codes(codes)
    factors = as_classes(factors, len(codes))
    labelled = (factors != MISSING).any(1)
    codes, factors = codes[labelled], factors[labelled]
    if not (is_number(quantile) and 0 <= quantile <= 1):
        raise ValueError(f"quantile must lie in [0, 1], got {quantile!r}.")
    codes = codes[:, codes.min(0) < codes.max(0)]
    factors = factors[:, varying(factors)]
    if not codes.size or not factors.size:
        return 0.0
    if bins is not None:
        factors = discretize(np.where(factors == MISSING, np.nan, factors), bins)
    largest = np.abs(codes - codes.mean(0)).max(0)
    robust = [
        1 - _deviation(codes[rows], factors[rows, f], quantile) / largest
        for columns, rows in by_missing(factors)
        for f in columns
    ]
    return float(np.average(np.max(robust, axis=0), weights=largest))


def _deviation(codes: Any, classes: Any, quantile: float) -> Any:
    """Mean over classes of a quantile of the distances between codes and the mean of their class: ``[D]``."""
    order = np.argsort(classes, kind="stable")
    groups = np.split(codes[order], np.flatnonzero(np.diff(classes[order])) + 1)
    return np.mean([np.quantile(np.abs(group - group.mean(0)), quantile, axis=0) for group in groups], axis=0)
