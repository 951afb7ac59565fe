"""Factor-code matrices: information about each factor in each latent, by three estimators.

Chapter "Evaluating Disentangled Representations" splits the observational scores into two steps: a matrix ``[D, F]`` is
estimated, then aggregated (:mod:`unknot.metrics.functional.aggregation`). Any matrix can be combined with any
aggregation.
"""

from typing import Any, NamedTuple

import numpy as np

from unknot.labels import MISSING
from unknot.metrics.functional.checks import Floats, as_classes, as_codes, as_numbers, as_split, by_missing, varying
from unknot.metrics.functional.information import discretize, entropy, mutual_information
from unknot.metrics.functional.trees import Backend, fit_trees


class FactorCodeMatrix(NamedTuple):
    """Matrix of the information about each factor in each latent.

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    ``values`` is ``[D, F]``; ``ceiling`` ``[F]`` is the entry of a latent that determines the factor.
    """

    values: Floats
    ceiling: Floats


def information_matrix(codes: Any, factors: Any, bins: int = 20) -> FactorCodeMatrix:
    r"""Mutual information, in nats, of binned codes and factors (MIG, modularity); the ceiling is H(v_k).

    .. math::
        R_{ik} = I(z_i; v_k) = \sum_{a,v} p(z_i = a, v_k = v) \log\frac{p(z_i = a, v_k = v)}{p(z_i = a)\, p(v_k = v)}

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    >>> factors = np.arange(12).reshape(-1, 1) % 3
    >>> information_matrix(np.hstack([factors, 0 * factors]), factors).values.round(3).tolist()
    [[1.099], [0.0]]
    """
    codes = as_codes(codes)
    factors = as_classes(factors, len(codes))
    values, ceiling = np.zeros((codes.shape[1], factors.shape[1])), np.zeros(factors.shape[1])
    for columns, rows in by_missing(factors):
        if len(known := factors[rows][:, columns]):
            values[:, columns] = mutual_information(discretize(codes[rows], bins), known)
            ceiling[columns] = entropy(known)
    return FactorCodeMatrix(values, ceiling)


def importance_matrix(codes: Any, factors: Any, backend: Backend = "unknot", seed: int = 0) -> FactorCodeMatrix:
    r"""Importance of each latent for boosted trees that predict a factor (DCI); columns sum to one, the ceiling is 1.

    .. math:: R_{ik} = \text{importance of } z_i \text{ for boosted trees that predict } v_k

    .. math:: \sum_i R_{ik} = 1

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    >>> factors = np.arange(12).reshape(-1, 1) % 3
    >>> importance_matrix(np.hstack([factors, 0 * factors]), factors).values.tolist()
    [[1.0], [0.0]]
    """
    codes = as_codes(codes)
    factors = as_classes(factors, len(codes))
    return FactorCodeMatrix(fit_trees(codes, factors, backend, seed).importance, np.ones(factors.shape[1]))


def predictability_matrix(
    codes_train: Any, factors_train: Any, codes_test: Any, factors_test: Any, continuous_factors: bool = False
) -> FactorCodeMatrix:
    r"""Test accuracy of a linear SVM that predicts a factor from a single latent (SAP); the ceiling is 1.

    .. math:: R_{ik} = P\left(\mathrm{SVM}_{ik}(z_i) = v_k\right)

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    The SVM is scikit-learn's ``LinearSVC(C=0.01, class_weight="balanced")``, as in the reference. With
    ``continuous_factors`` an entry is the squared correlation on the training samples instead, 0 if a latent or a
    factor is constant. Entries of factors that do not vary in the training samples are 0.

    Args:
        codes_train: representation ``[N, D]``.
        factors_train: integer classes ``[N, F]``.
        codes_test: further codes ``[M, D]``.
        factors_test: their factors ``[M, F]``.
        continuous_factors: whether factors are numbers instead of classes.

    >>> factors = np.arange(12).reshape(-1, 1) % 2
    >>> codes = np.hstack([2 * factors - 1.0, 0.0 * factors])
    >>> predictability_matrix(codes, factors, codes, factors).values.tolist()
    [[1.0], [0.5]]
    """
    given = factors_train
    codes_train, factors_train, codes_test, factors_test = as_split(
        codes_train, factors_train, codes_test, factors_test, partial=True
    )
    ones = np.ones(factors_train.shape[1])
    if continuous_factors:
        return FactorCodeMatrix(_squared_correlation(codes_train, as_numbers(given)), ones)
    from sklearn.svm import LinearSVC

    values = np.zeros((codes_train.shape[1], factors_train.shape[1]))
    for d, (train, test) in enumerate(zip(codes_train.T[:, :, None], codes_test.T[:, :, None], strict=True)):
        for f in np.flatnonzero(varying(factors_train)):
            known, asked = factors_train[:, f] != MISSING, factors_test[:, f] != MISSING
            svm = LinearSVC(C=0.01, class_weight="balanced", dual="auto", random_state=0).fit(
                train[known], factors_train[known, f]
            )
            if asked.any():
                values[d, f] = np.mean(svm.predict(test[asked]) == factors_test[asked, f])
    return FactorCodeMatrix(values, ones)


def _squared_correlation(codes: Floats, factors: Floats) -> Floats:
    """Squared correlations ``[D, F]`` over the rows in which a factor is not NaN (missing)."""
    known = ~np.isnan(factors)
    if not known.all():
        each = [_squared_correlation(codes[rows], factors[rows, f : f + 1]) for f, rows in enumerate(known.T)]
        return np.hstack(each)
    if not len(codes):
        return np.zeros((codes.shape[1], factors.shape[1]))
    code, factor = codes - codes.mean(0), factors - factors.mean(0)
    variance = np.outer((code**2).mean(0), (factor**2).mean(0))
    covariance = code.T @ factor / len(codes)
    return np.divide(covariance**2, variance, out=np.zeros_like(variance), where=variance > 1e-24)
