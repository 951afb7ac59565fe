"""Downstream tasks: predict every factor from the representation."""

from typing import Any, Literal, overload

import numpy as np

from unknot.metrics.functional.checks import Floats, as_split, by_missing
from unknot.metrics.functional.logistic import cross_validated, scikit_cross_validated
from unknot.metrics.functional.trees import Backend, fit_trees


@overload
def downstream_accuracy(
    codes_train: Any,
    factors_train: Any,
    codes_test: Any,
    factors_test: Any,
    classifier: str = ...,
    backend: Backend = ...,
    per_factor: Literal[False] = ...,
) -> float: ...
@overload
def downstream_accuracy(
    codes_train: Any,
    factors_train: Any,
    codes_test: Any,
    factors_test: Any,
    classifier: str = ...,
    backend: Backend = ...,
    *,
    per_factor: Literal[True],
) -> Floats: ...
def downstream_accuracy(
    codes_train: Any,
    factors_train: Any,
    codes_test: Any,
    factors_test: Any,
    classifier: str = "gbt",
    backend: Backend = "unknot",
    per_factor: bool = False,
) -> float | Floats:
    r"""Accuracy of predicting the factors from the codes.

    .. math:: \frac{1}{F}\sum_{k=1}^{F} P\left(\hat v_k = v_k\right) \text{ on further samples}

    Thesis: section "Downstream Accuracy and Sample Complexity".

    Args:
        codes_train: representation ``[N, D]``; 10, 100, 1,000 and 10,000 samples in the thesis.
        factors_train: integer classes ``[N, F]``.
        codes_test: further codes ``[M, D]``; 10,000 in the thesis.
        factors_test: their factors ``[M, F]``. A class that was never seen in training is never predicted.
        classifier: ``"gbt"``, gradient-boosted trees, or ``"lr"``, logistic regression with 5-fold cross-validation.
        backend: ``"unknot"``, or ``"sklearn"`` for scikit-learn's classifiers with their defaults, as the study used
            them: far slower, and ``LogisticRegressionCV`` stops after 100 steps, which for codes that need weak
            penalties is short of the minimum and scores up to a few hundredths lower.
        per_factor: return the accuracy of each factor, ``[F]``, instead of their mean.

    >>> factors = np.random.default_rng(0).integers(0, 3, size=(300, 2))
    >>> downstream_accuracy(factors[:200] * 1.0, factors[:200], factors[200:] * 1.0, factors[200:], classifier="gbt")
    1.0
    """
    codes_train, factors_train, codes_test, factors_test = as_split(
        codes_train, factors_train, codes_test, factors_test, partial=True
    )
    if classifier not in ("lr", "gbt"):
        raise ValueError(f"classifier must be 'lr' or 'gbt', got {classifier!r}.")
    accuracy = np.full(factors_train.shape[1], np.nan)
    for columns, rows, asked in by_missing(factors_train, factors_test):
        codes, known, tested = codes_train[rows], factors_train[rows][:, columns], codes_test[asked]
        if not (len(codes) and len(tested)):
            continue
        if classifier == "gbt":
            predicted = fit_trees(codes, known, backend).predict(tested)
        elif backend == "sklearn":
            predicted = scikit_cross_validated(codes, known, tested)
        else:
            predicted = cross_validated(codes, known).predict(tested)
        accuracy[columns] = (predicted == factors_test[asked][:, columns]).mean(0)
    if per_factor:
        return accuracy
    return float(np.mean(accuracy[~np.isnan(accuracy)])) if not np.isnan(accuracy).all() else 0.0
