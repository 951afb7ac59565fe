"""Modularity and explicitness (Ridgeway & Mozer, 2018)."""

from typing import Any

import numpy as np
from scipy.stats import rankdata

from unknot.metrics.functional.aggregation import modularity_of
from unknot.metrics.functional.checks import Floats, Ints, as_split, by_missing, varying
from unknot.metrics.functional.logistic import scikit_regression
from unknot.metrics.functional.matrices import information_matrix


def modularity(codes: Any, factors: Any, bins: int = 20) -> float:
    r"""Modularity: degree to which each latent has mutual information with only one factor.

    .. math:: m = \frac{1}{D}\sum_d \left(1 - \frac{\sum_{k\neq k^*} I(z_d; v_k)^2}{(F-1)\, I(z_d; v_{k^*})^2}\right)

    .. math:: k^* = \mathrm{argmax}_k\, I(z_d; v_k)

    Thesis: section "Measuring Disentanglement".

    A latent without mutual information counts 0, as in the reference; factors that do not vary are left out.

    Args:
        codes: representation ``[N, D]``, binned into ``bins`` intervals each.
        factors: integer classes ``[N, F]``.
        bins: intervals per latent.

    >>> factors = np.random.default_rng(0).integers(0, 10, size=(10_000, 2))
    >>> round(modularity(factors * 1.0, factors), 2)
    1.0
    """
    values, entropies = information_matrix(codes, factors, bins)
    varies = entropies > 0
    return modularity_of(values[:, varies]) if varies.any() else 0.0


def explicitness(codes_train: Any, factors_train: Any, codes_test: Any, factors_test: Any) -> float:
    r"""Explicitness: mean area under the ROC curve of linear classifiers, one against the rest for each class.

    .. math::
        \frac{1}{F}\sum_{k=1}^{F} \frac{1}{|V_k|}\sum_{c\in V_k}
        P\left(p_c(z) > p_c(z^\prime) \mid v_k = c,\ v^\prime_k \neq c\right)

    A logistic regression with scikit-learn's defaults predicts each factor from standardised codes. 0.5 is chance, 1 is
    perfect; Ridgeway & Mozer's own scale is 2 (score - 0.5).

    Args:
        codes_train: representation ``[N, D]``.
        factors_train: integer classes ``[N, F]``. Factors that do not vary here are left out.
        codes_test: further codes ``[M, D]``, on which the curve is computed.
        factors_test: their factors ``[M, F]``. A class without both positive and negative samples here has no curve and
            is left out; if no class has one, the score is 0.5.

    >>> factors = np.random.default_rng(0).integers(0, 3, size=(300, 2))
    >>> round(explicitness(factors[:200] * 1.0, factors[:200], factors[200:] * 1.0, factors[200:]), 2)
    1.0
    """
    codes_train, factors_train, codes_test, factors_test = as_split(
        codes_train, factors_train, codes_test, factors_test, partial=True
    )
    varies, areas = varying(factors_train), []
    for columns, rows, asked in by_missing(factors_train, factors_test):
        if not (len(codes_train[rows]) and len(codes_test[asked])):
            continue
        mean, scale = codes_train[rows].mean(0), codes_train[rows].std(0)
        scale = np.where(scale > 0, scale, 1)  # a constant latent stays constant
        train, test = (codes_train[rows] - mean) / scale, (codes_test[asked] - mean) / scale
        for f in columns[varies[columns]]:
            model = scikit_regression(train, factors_train[rows, f])
            areas.append(_mean_area(model.predict_proba(test), factors_test[asked, f], model.classes_))
    return float(np.mean(areas)) if areas else 0.5


def _mean_area(probabilities: Floats, truth: Ints, classes: Ints) -> float:
    """Mean over classes of P(a positive scores higher than a negative), ties counting half."""
    positive = truth[:, None] == classes
    number = positive.sum(0)
    drawn = (number > 0) & (number < len(truth))
    if not drawn.any():
        return 0.5
    ranks, positive, number = rankdata(probabilities[:, drawn], axis=0), positive[:, drawn], number[drawn]
    wins = (ranks * positive).sum(0) - number * (number + 1) / 2
    return float(np.mean(wins / (number * (len(truth) - number))))
