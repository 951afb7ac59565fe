"""Unfairness of predictions, and scores adjusted for downstream performance."""

from typing import Any, Literal

import numpy as np

from unknot.labels import MISSING
from unknot.metrics.functional.checks import Floats, as_codes, as_labels


def unfairness(predictions: Any, sensitive: Any, reduction: Literal["mean", "max", "uniform"] = "mean") -> float:
    r"""Mean total variation between the predictions and those of a sensitive group.

    .. math:: \mathrm{unfairness}(\hat y) = \frac{1}{|S|}\sum_s \mathrm{TV}\left(p(\hat y),\; p(\hat y \mid s)\right)

    Thesis: section "General Purpose Representations and Fairness".

    0 is demographic parity. After an intervention that sets s to each of its values equally often, as
    :func:`unknot.metrics.evaluate` does, all groups have equal weight and this is the formula of the thesis.

    Args:
        predictions: predicted classes ŷ ``[N]``.
        sensitive: sensitive factor s of each, classes ``[N]``. Rows in which either is missing (-1, NaN or None) are
            left out.
        reduction: ``"mean"`` weights groups by their size, as the reference does; ``"uniform"`` weights them equally
            whatever their size; ``"max"`` takes the worst group.

    >>> round(unfairness([1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]), 4)  # 1/3 · 1/3 + 2/3 · 1/6
    0.2222
    >>> round(unfairness([1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1], reduction="max"), 4)
    0.3333
    """
    predicted = as_labels(predictions, what="predictions", missing=True)
    groups = as_labels(sensitive, len(predicted), what="sensitive", missing=True)
    known = (predicted != MISSING) & (groups != MISSING)
    if not known.any():
        raise ValueError("No row has both a prediction and a sensitive factor; -1, NaN and None are missing.")
    predicted, groups = predicted[known], groups[known]
    if reduction not in ("mean", "max", "uniform"):
        raise ValueError(f"reduction must be 'mean', 'max' or 'uniform', got {reduction!r}.")
    classes, columns = np.unique(predicted, return_inverse=True)
    values, rows = np.unique(groups, return_inverse=True)
    table = np.bincount(rows * len(classes) + columns, minlength=len(values) * len(classes)).reshape(len(values), -1)
    size = table.sum(1)
    variation = np.abs(table / size[:, None] - table.sum(0) / len(predicted)).sum(1) / 2
    if reduction == "max":
        return float(variation.max())
    return float(np.average(variation, weights=size if reduction == "mean" else None))


def adjusted(metric: Any, performance: Any, neighbours: int = 5, leave_one_out: bool = True) -> Floats:
    """Return a score minus the mean score of models with similar downstream performance.

        Adj. Metric = Metric - 1/5 Σ_{i ∈ N(GBT10000)} Metric_i      (section "Adjusting for Downstream Performance")

    Args:
        metric: a score of each of M models, ``[M]``.
        performance: their downstream accuracy, ``[M]``; GBT on 10,000 samples in the thesis.
        neighbours: number of models with the closest performance to average.
        leave_one_out: exclude a model from its own neighbours. The thesis does not specify this; scikit-learn's
            ``KNeighborsRegressor.predict`` on the models it was fitted on corresponds to ``False``.

    >>> adjusted([1.0, 2.0, 6.0], [0.5, 0.6, 0.7], neighbours=2).tolist()
    [-3.0, -1.5, 4.5]
    """
    from sklearn.neighbors import NearestNeighbors

    scores, accuracy = (
        as_codes(np.reshape(np.asarray(values, dtype=float), (-1, 1))) for values in (metric, performance)
    )
    if len(scores) != len(accuracy):
        raise ValueError(f"metric and performance must be of the same models, got {len(scores)} and {len(accuracy)}.")
    most = len(scores) - leave_one_out
    if not 1 <= neighbours <= most:
        raise ValueError(f"neighbours must lie in 1..{most} for {len(scores)} models, got {neighbours}.")
    search = NearestNeighbors(n_neighbors=neighbours).fit(accuracy)
    nearest = search.kneighbors(None if leave_one_out else accuracy, return_distance=False)
    return (scores - scores[nearest, 0].mean(1, keepdims=True))[:, 0]
