"""Separated Attribute Predictability (Kumar et al., 2017)."""

from typing import Any

import numpy as np

from unknot.metrics.functional.aggregation import gap
from unknot.metrics.functional.checks import as_numbers, as_split, varying
from unknot.metrics.functional.matrices import predictability_matrix


def sap(
    codes_train: Any, factors_train: Any, codes_test: Any, factors_test: Any, continuous_factors: bool = False
) -> float:
    r"""Mean over factors of the difference in accuracy between the two latents that predict the factor best.

    .. math:: \mathrm{SAP} = \frac{1}{F}\sum_{k=1}^{F}\left(S_{d^* k} - S_{d^\prime k}\right)

    Thesis: section "Measuring Disentanglement".

    S_dk is the test accuracy of a linear support vector machine that predicts factor k from latent d; d* and d' are the
    latents with the two largest entries for factor k.

    Args:
        codes_train: representation ``[N, D]``. A single latent is compared with a constant one.
        factors_train: integer classes ``[N, F]``. Factors that do not vary here are left out.
        codes_test: further codes ``[M, D]``.
        factors_test: their factors ``[M, F]``.
        continuous_factors: use squared correlations instead of a classifier's accuracies, as Kumar et al. do for
            continuous factors; the thesis treats all factors as classes.

    >>> factors = np.random.default_rng(0).integers(0, 2, size=(300, 2))
    >>> round(sap(factors[:200] * 1.0, factors[:200], factors[200:] * 1.0, factors[200:]), 2)
    0.53
    """
    given = factors_train, factors_test
    codes_train, factors_train, codes_test, factors_test = as_split(
        codes_train, factors_train, codes_test, factors_test, partial=True
    )
    varies = varying(factors_train)
    if not varies.any():
        return 0.0
    if codes_train.shape[1] == 1:
        codes_train, codes_test = (np.hstack([codes, np.zeros_like(codes)]) for codes in (codes_train, codes_test))
    known, asked = map(as_numbers, given) if continuous_factors else (factors_train, factors_test)
    matrix = predictability_matrix(codes_train, known[:, varies], codes_test, asked[:, varies], continuous_factors)
    return gap(matrix.values)
