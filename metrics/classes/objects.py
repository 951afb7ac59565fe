"""Scores of predicted sets and of masks as ``torchmetrics.Metric``."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torchmetrics.utilities.data import dim_zero_cat

from unknot.metrics.classes.base import RowMetric, ScoreMetric
from unknot.metrics.functional.masks import Average, mask_scores
from unknot.metrics.functional.sets import THRESHOLDS, adjusted_rand_indices, average_precisions


class SetAveragePrecision(RowMetric, score="ap"):
    """Average precision of predicted sets; see :func:`unknot.metrics.functional.set_average_precision`.

    Images are sorted by their values, so that ties in confidence do not depend on the order of updates.

    Args:
        thresholds: distance thresholds; by default the chapter's ∞, 1, 0.5, 0.25 and 0.125.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = SetAveragePrecision()
    >>> targets = torch.zeros(4, 10, 19)
    >>> targets[:, :3, [3, 5, 7, 10, 18]] = 1
    >>> metric.update(targets, targets)
    >>> list(metric.compute())
    ['ap_inf', 'ap_1', 'ap_0.5', 'ap_0.25', 'ap_0.125']
    """

    def __init__(self, thresholds: Sequence[float] = THRESHOLDS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.thresholds = tuple(thresholds)
        self.names = tuple(ap_names(self.thresholds))

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Add predictions ``[B, K, 19]`` and targets ``[B, M, 19]``; K and M must stay the same: pad with zeros."""
        self._append(predictions, targets, ("predictions of sets", "[B, K, 19]"), ("targets", "[B, M, 19]"))

    def compute(self) -> dict[str, Tensor]:
        """Return the score of all images so far at each threshold."""
        scores = average_precisions(*self.rows(), self.thresholds)
        return {name: self._score(score) for name, score in zip(self.names, scores, strict=True)}


def ap_names(thresholds: Sequence[float]) -> list[str]:
    """Names of the scores: ``ap_inf``, ``ap_1``, ``ap_0.5``, ..."""
    return [f"ap_{threshold:g}" for threshold in thresholds]


class AdjustedRandIndex(ScoreMetric, score="ari"):
    """Mean adjusted Rand index over images; see :func:`unknot.metrics.functional.adjusted_rand_index`.

    Args:
        foreground: whether to leave out the background.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = AdjustedRandIndex()
    >>> masks = torch.tensor([[[0, 1], [1, 2]]])
    >>> metric.update(masks, masks)
    >>> metric.compute()
    tensor(1.)
    """

    scores: list[Tensor]

    def __init__(self, foreground: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.foreground = foreground
        self.add_state("scores", default=[], dist_reduce_fx="cat")

    def update(self, predicted_masks: Tensor, true_masks: Tensor) -> None:
        """Add segments as integers ``[B, ...]`` or masks ``[B, K, ...]``, and the true ones."""
        scores = adjusted_rand_indices(predicted_masks, true_masks, self.foreground)
        self.scores.append(torch.from_numpy(scores).to(self.device))

    def compute(self) -> Tensor:
        """Return the mean over all images that have pixels to count."""
        scores = dim_zero_cat(self.need(self.scores))
        return scores.sort().values.mean().float()  # sorted, so that the order of images does not affect the last digit


class MeanIoU(ScoreMetric, score="miou"):
    """Mean intersection over union of matched masks; see :func:`unknot.metrics.functional.mean_iou`.

    Args:
        average: ``"image"`` or ``"object"``.
        resolution: resolution at which masks are compared.
        ignore_overlaps: leave out pixels that lie in several true masks.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = MeanIoU()
    >>> masks = torch.eye(4).reshape(1, 4, 2, 2)
    >>> metric.update(masks, masks)
    >>> metric.compute()
    tensor(1.)
    """

    kind: ClassVar[Literal["iou", "best_overlap", "recovery"]] = "iou"

    scores: list[Tensor]

    def __init__(
        self,
        average: Average = "image",
        resolution: int | tuple[int, int] | None = None,
        ignore_overlaps: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.average, self.resolution, self.ignore_overlaps = average, resolution, ignore_overlaps
        self.add_state("scores", default=[], dist_reduce_fx="cat")

    def update(self, predicted: Tensor, true: Tensor) -> None:
        """Add predicted masks ``[B, K, H, W]`` and those of the objects to count ``[B, O, H, W]``."""
        scores = mask_scores(self.kind, predicted, true, self.average, self.resolution, self.ignore_overlaps)
        self.scores.append(torch.from_numpy(scores).to(self.device))

    def compute(self) -> Tensor:
        """Return the mean over all images with objects, or over all objects."""
        scores = dim_zero_cat(self.need(self.scores))
        return scores.sort().values.mean().float()  # sorted, so that the order of images does not affect the last digit


class MeanBestOverlap(MeanIoU):
    """Mean overlap with the best mask (mBO); see :func:`unknot.metrics.functional.mean_best_overlap`.

    Arguments as for :class:`MeanIoU`.

    >>> metric = MeanBestOverlap()
    >>> masks = torch.eye(4).reshape(1, 4, 2, 2)
    >>> metric.update(masks, masks)
    >>> metric.compute()
    tensor(1.)
    """

    kind: ClassVar[Literal["iou", "best_overlap", "recovery"]] = "best_overlap"
