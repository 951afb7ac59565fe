"""The classifiers of the protocol: scikit-learn's, with its defaults."""

import warnings
from typing import Any

import numpy as np

from unknot.metrics.functional.boosting import Backend, fit_trees
from unknot.metrics.functional.checks import Floats, Ints

CLASSIFIERS = ("lr", "gbt")


class QuietRegression:
    """A logistic regression that keeps to its 100 iterations without remarks: they are part of the protocol."""

    def __init__(self, cross_validated_over: int = 0) -> None:
        """Defaults of scikit-learn, or a strength chosen by 5-fold cross-validation over that many samples."""
        from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
        from sklearn.model_selection import KFold

        if cross_validated_over:
            folds = KFold(min(5, cross_validated_over))
            self.model: Any = LogisticRegressionCV(Cs=10, cv=folds, scoring="accuracy")
        else:
            self.model = LogisticRegression()

    def fit(self, codes: Floats, classes: Ints) -> Any:
        """The fitted scikit-learn model."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.model.fit(codes, classes)


def predict(
    codes: Floats, factors: Ints, others: list[Floats], classifier: str, backend: Backend = "unknot", seed: int = 0
) -> list[Ints]:
    """Learn to predict every factor ``[N, F]`` from the codes; predictions ``[M, F]`` for each array of other codes.

    ``classifier`` is ``"lr"``, logistic regression whose strength is chosen by 5-fold cross-validation, or ``"gbt"``,
    gradient-boosted trees.
    """
    if classifier not in CLASSIFIERS:
        raise ValueError(f"classifier must be 'lr' or 'gbt', got {classifier!r}.")
    if classifier == "gbt":
        trees = fit_trees(codes, factors, backend, seed)
        return [trees.predict(other) for other in others]
    predictions = [np.tile(factors[0], (len(other), 1)) for other in others]
    for column, factor in enumerate(factors.T):
        if (factor == factor[0]).all():
            continue
        model = QuietRegression(cross_validated_over=len(codes)).fit(codes, factor)
        for predicted, other in zip(predictions, others, strict=True):
            predicted[:, column] = model.predict(other)
    return predictions
