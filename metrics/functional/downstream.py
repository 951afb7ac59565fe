"""Downstream tasks: predict every factor from the representation."""

from typing import Any, Literal, overload

from unknot.metrics.functional.boosting import Backend
from unknot.metrics.functional.checks import Floats, as_split
from unknot.metrics.functional.classifiers import predict


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
    """Accuracy of predicting the factors from the codes (section "Downstream Accuracy and Sample Complexity").

    Args:
        codes_train: representation ``[N, D]``; 10, 100, 1,000 and 10,000 samples in the thesis.
        factors_train: integer classes ``[N, F]``.
        codes_test: further codes ``[M, D]``; 10,000 in the thesis.
        factors_test: their factors ``[M, F]``. A class that was never seen in training is never predicted.
        classifier: ``"gbt"``, gradient-boosted trees, or ``"lr"``, logistic regression with 5-fold cross-validation.
        backend: of the trees, see :func:`unknot.metrics.functional.dci`.
        per_factor: give the accuracy of each factor, ``[F]``, instead of their mean.

    >>> import numpy as np
    >>> factors = np.random.default_rng(0).integers(0, 3, size=(300, 2))
    >>> downstream_accuracy(factors[:200] * 1.0, factors[:200], factors[200:] * 1.0, factors[200:], classifier="gbt")
    1.0
    """
    codes_train, factors_train, codes_test, factors_test = as_split(
        codes_train, factors_train, codes_test, factors_test
    )
    (predicted,) = predict(codes_train, factors_train, [codes_test], classifier, backend)
    accuracy = (predicted == factors_test).mean(0)
    return accuracy if per_factor else float(accuracy.mean())
