"""Mask scores besides the adjusted Rand index: mIoU, mBO, CorLoc and recovery.

Every pixel is assigned to the predicted mask that is largest there, and intersection over union (IoU) compares the
segments with the true masks. The true masks are the objects to count: omit the background to exclude it from the score.
"""

import math
from typing import Any, Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch.nn import functional as F

from unknot.metrics.functional.checks import Floats, _as_numpy

Average = Literal["image", "object"]
HALF = 0.5  # IoU above which an object counts as recovered


def mean_iou(
    predicted: Any,
    true: Any,
    average: Average = "image",
    resolution: int | tuple[int, int] | None = None,
    ignore_overlaps: bool = False,
) -> float:
    r"""Mean intersection over union of objects and the segments matched to them by the Hungarian algorithm (mIoU).

    .. math::
        \mathrm{mIoU} = \max_{\pi}\; \frac{1}{O}\sum_{o=1}^{O} \frac{|p_{\pi(o)} \cap t_o|}{|p_{\pi(o)} \cup t_o|}

    Each segment is matched to at most one object. Objects without a segment count 0.

    Args:
        predicted: masks ``[B, K, H, W]``, soft or hard. A pixel where all are 0 belongs to no segment.
        true: masks of the objects to count ``[B, O, H, W]``, booleans, or numbers above 0.5. Empty masks are padding.
        average: ``"image"``, the mean over objects and then over images, as OCLF and SPOT report it; ``"object"``, the
            mean over all objects, as LSD does, in which crowded images have more weight. Images without objects are
            left out.
        resolution: side, or (height, width), at which masks are compared. Soft masks are resized bilinearly before
            pixels are assigned, true masks to the nearest pixel. ``None`` uses both as they are.
        ignore_overlaps: leave out pixels that lie in several true masks.

    Returns:
        A score in [0, 1]; NaN if there is no object.

    >>> true = np.array([[[[1, 1, 0, 0]], [[0, 0, 1, 0]]]])  # two objects and a pixel of background
    >>> predicted = np.array([[[[0.9, 0.9, 0.2, 0.2]], [[0.1, 0.1, 0.8, 0.8]]]])
    >>> mean_iou(predicted, true)  # (1 + 1/2) / 2
    0.75
    """
    return _mean(mask_scores("iou", predicted, true, average, resolution, ignore_overlaps))


def mean_best_overlap(
    predicted: Any,
    true: Any,
    average: Average = "image",
    resolution: int | tuple[int, int] | None = None,
    ignore_overlaps: bool = False,
) -> float:
    r"""Mean over objects of the IoU with their best segment (mBO; Pont-Tuset et al., 2017).

    .. math:: \mathrm{mBO} = \frac{1}{O}\sum_{o=1}^{O} \max_k \frac{|p_k \cap t_o|}{|p_k \cup t_o|}

    A segment may match several objects. With instance masks this is mBO^i, with masks of semantic classes mBO^c.

    Args:
        predicted: masks ``[B, K, H, W]``, soft or hard.
        true: masks of the objects to count ``[B, O, H, W]``; empty ones are padding.
        average: ``"image"`` or ``"object"``, as in :func:`mean_iou`.
        resolution: resolution at which masks are compared, as in :func:`mean_iou`.
        ignore_overlaps: leave out pixels that lie in several true masks.

    Returns:
        A score in [0, 1]; NaN if there is no object.

    >>> true = np.array([[[[1, 1, 0, 0]], [[0, 0, 1, 0]]]])
    >>> mean_best_overlap(np.ones((1, 1, 1, 4)), true)  # one segment for all: (2/4 + 1/4) / 2
    0.375
    """
    return _mean(mask_scores("best_overlap", predicted, true, average, resolution, ignore_overlaps))


def object_recovery(
    predicted: Any,
    true: Any,
    average: Average = "image",
    resolution: int | tuple[int, int] | None = None,
    ignore_overlaps: bool = False,
) -> float:
    r"""Share of objects whose best segment has an IoU above 1/2 (Seitzer et al., 2023).

    .. math:: \frac{1}{O}\,\left|\left\{o : \max_k \frac{|p_k \cap t_o|}{|p_k \cup t_o|} > \frac{1}{2}\right\}\right|

    Args:
        predicted: masks ``[B, K, H, W]``, soft or hard.
        true: masks of the objects to count ``[B, O, H, W]``; empty ones are padding.
        average: ``"image"`` or ``"object"``, as in :func:`mean_iou`.
        resolution: resolution at which masks are compared, as in :func:`mean_iou`.
        ignore_overlaps: leave out pixels that lie in several true masks.

    Returns:
        A score in [0, 1]; NaN if there is no object.

    >>> true = np.array([[[[1, 1, 0, 0]], [[0, 0, 1, 0]]]])
    >>> object_recovery(true, true), object_recovery(np.ones((1, 1, 1, 4)), true)
    (1.0, 0.0)
    """
    return _mean(mask_scores("recovery", predicted, true, average, resolution, ignore_overlaps))


def correct_localization(
    predicted: Any,
    true: Any,
    resolution: int | tuple[int, int] | None = None,
    ignore_overlaps: bool = False,
) -> float:
    r"""Share of images with at least one object whose best segment has an IoU above 1/2 (CorLoc; Vo et al., 2020).

    .. math:: P\left(\max_{o, k} \frac{|p_k \cap t_o|}{|p_k \cup t_o|} > \frac{1}{2}\right)

    Args:
        predicted: masks ``[B, K, H, W]``, soft or hard.
        true: masks of the objects to count ``[B, O, H, W]``; empty ones are padding.
        resolution: resolution at which masks are compared, as in :func:`mean_iou`.
        ignore_overlaps: leave out pixels that lie in several true masks.

    Returns:
        A score in [0, 1]; NaN if there is no object.

    >>> true = np.array([[[[1, 1, 0, 0]], [[0, 0, 1, 0]]]])
    >>> correct_localization(true[:, :1], true)
    1.0
    """
    recovered = mask_scores("recovery", predicted, true, "image", resolution, ignore_overlaps)
    return _mean((recovered > 0).astype(np.float64))


def mask_scores(
    kind: Literal["iou", "best_overlap", "recovery"],
    predicted: Any,
    true: Any,
    average: Average = "image",
    resolution: int | tuple[int, int] | None = None,
    ignore_overlaps: bool = False,
) -> Floats:
    """Return the numbers whose mean is a mask score: one for each image with objects, or for each object."""
    if average not in ("image", "object"):
        raise ValueError(f"average must be 'image' or 'object', got {average!r}.")
    overlaps, objects = _overlaps(predicted, true, resolution, ignore_overlaps)
    scores: Floats = overlaps.max(2)
    if kind == "recovery":
        scores = (scores > HALF).astype(np.float64)
    elif kind == "iou":
        scores = np.zeros(objects.shape)
        for image, overlap in enumerate(overlaps):  # SciPy's compiled solver takes one matrix at a time
            rows, columns = linear_sum_assignment(-overlap)
            scores[image, rows] = overlap[rows, columns]
    if average == "object":
        return scores[objects]
    number = objects.sum(1)
    return np.where(objects, scores, 0).sum(1)[number > 0] / number[number > 0]


def _mean(scores: Floats) -> float:
    return float(scores.mean()) if len(scores) else math.nan


def _overlaps(
    predicted: Any, true: Any, resolution: int | tuple[int, int] | None, ignore_overlaps: bool
) -> tuple[Floats, Any]:
    """Return the IoU of every object with every segment ``[B, O, K]``, and which objects exist ``[B, O]``."""
    ours, theirs = _as_masks(predicted, "predicted", "K"), _as_masks(true, "true", "O")
    if len(ours) != len(theirs):
        raise ValueError(f"Expected masks of the same images, got {len(ours)} predicted and {len(theirs)} true.")
    if resolution is not None:
        size = (resolution, resolution) if isinstance(resolution, int) else tuple(resolution)
        ours = F.interpolate(ours, size, mode="bilinear", align_corners=False)
        theirs = F.interpolate(theirs, size, mode="nearest-exact")
    if ours.shape[2:] != theirs.shape[2:]:
        raise ValueError(
            f"Expected masks of the same size, got predicted {list(ours.shape[2:])} and true {list(theirs.shape[2:])}. "
            "Give the resolution at which to compare them, for example resolution=128."
        )
    objects = theirs > HALF
    if ignore_overlaps:
        objects &= objects.sum(1, keepdim=True) < 2
    covered = (ours > 0).any(1, keepdim=True)
    if ignore_overlaps:
        covered &= (theirs > HALF).sum(1, keepdim=True) < 2
    segments = torch.zeros_like(ours).scatter_(1, ours.argmax(1, keepdim=True), 1.0) * covered
    flat, true_flat = segments.flatten(2).double(), objects.flatten(2).double()
    shared = true_flat @ flat.transpose(1, 2)
    union = true_flat.sum(2)[:, :, None] + flat.sum(2)[:, None] - shared
    return (shared / union.clamp(min=1)).numpy(), objects.flatten(2).any(2).numpy()


def _as_masks(masks: Any, name: str, letter: str) -> torch.Tensor:
    array = _as_numpy(masks)
    if array.ndim != 4 or 0 in array.shape[1:] or array.dtype.kind not in "fiub":
        raise ValueError(
            f"Expected {name} masks of shape [B, {letter}, H, W], got {array.dtype} of shape {list(array.shape)}. "
            "Integer segments become masks by one-hot encoding, with the background left out."
        )
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity.")
    return tensor
