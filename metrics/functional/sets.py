"""Scores of predicted sets of objects, and the adjusted Rand index of masks.

Chapter "Learning About Multiple Objects". An object is 19 numbers: coordinates 3 | size 2 | material 2 | shape 3 |
color 8 | 1 for a real object.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unknot.clevr_objects import COORDINATES, OBJECT_SIZE, PARTS, REACH, REAL
from unknot.metrics.functional.checks import Floats, Ints, _as_numpy

UNIT = 2 * REACH  # scene units of a coordinate in [0, 1]
THRESHOLDS = (math.inf, 1.0, 0.5, 0.25, 0.125)
"""Distances at which the chapter reports average precision."""


def set_average_precision(predictions: Any, targets: Any, threshold: float = math.inf) -> float:
    r"""Average precision of predicted sets of objects.

    All predictions of all images are ranked by their last number, the confidence that there is an object. A prediction
    is correct if, of the objects in its image with the predicted four attributes, the nearest is closer than
    ``threshold`` and was not matched by a more confident prediction. The score is the area under the precision-recall
    curve, with precision made non-increasing (all-point interpolation, PASCAL VOC).

    .. math:: \mathrm{AP} = \sum_n (r_n - r_{n-1}) \max_{m \geq n} p_m

    Thesis: section "Example Application: Set Prediction".

    p_n and r_n are precision and recall of the n most confident predictions.

    Args:
        predictions: ``[B, K, 19]``; attributes are the argmax of their parts. All K count.
        targets: ``[B, M, 19]``; rows whose last number is 0 are padding.
        threshold: distance, in the units of the scene, where coordinates go from -3 to 3; infinity (or -1, as the
            reference writes it) compares attributes only.

    Returns:
        A score in [0, 1]; 0 if there are no objects.

    Of predictions with equal confidence, the later one is ranked first, as in the reference.

    >>> targets = np.zeros((1, 2, 19))
    >>> targets[0, 0, [3, 5, 7, 10, 18]] = 1  # one small gray rubber cube at (-3, -3, -3)
    >>> set_average_precision(targets, targets, threshold=0.125)
    1.0
    >>> moved = targets + np.eye(19)[0] / 12  # by half a unit
    >>> set_average_precision(moved, targets, threshold=1.0), set_average_precision(moved, targets, threshold=0.5)
    (1.0, 0.0)
    """
    return average_precisions(predictions, targets, [threshold])[0]


def average_precisions(predictions: Any, targets: Any, thresholds: Sequence[float] = THRESHOLDS) -> list[float]:
    """:func:`set_average_precision` at several thresholds, sharing the search for the nearest object."""
    predicted, actual = _as_sets(predictions, "predictions"), _as_sets(targets, "targets")
    if len(predicted) != len(actual):
        raise ValueError(f"predictions and targets must be of as many images, got {len(predicted)} and {len(actual)}.")
    real = actual[..., REAL] == 1
    if not (real | (actual[..., REAL] == 0)).all():
        raise ValueError("The last number of a target must be 1 for an object or 0 for padding.")
    for threshold in thresholds:
        if math.isnan(threshold) or (threshold <= 0 and threshold != -1):
            raise ValueError(f"threshold must be positive, or infinity, got {threshold}.")
    if not predicted.shape[1] or not real.any():
        return [0.0] * len(thresholds)
    distance, nearest = _nearest_alike(predicted, actual, real)
    ranking = np.argsort(predicted[..., REAL].ravel(), kind="stable")[::-1]
    image = np.arange(len(predicted))[:, None]
    claim = (image * actual.shape[1] + nearest).ravel()[ranking]  # index of object and image
    distance = distance.ravel()[ranking]
    return [
        _area(_first_claims(claim, distance < (math.inf if threshold == -1 else threshold)), int(real.sum()))
        for threshold in thresholds
    ]


def _nearest_alike(predicted: Floats, actual: Floats, real: npt.NDArray[np.bool_]) -> tuple[Floats, Ints]:
    """Return the distance to the nearest object with equal attributes, or infinity, and its row: ``[B, K]``."""
    alike = np.broadcast_to(real[:, None], (len(real), predicted.shape[1], real.shape[1])).copy()  # [B, K, M]
    for part in PARTS.values():
        alike &= predicted[..., part].argmax(-1)[:, :, None] == actual[..., part].argmax(-1)[:, None]
    gaps = UNIT * (predicted[:, :, None, COORDINATES] - actual[:, None, :, COORDINATES])
    distances = np.where(alike, np.sqrt((gaps**2).sum(-1)), math.inf)
    nearest = distances.argmin(-1)
    return np.take_along_axis(distances, nearest[..., None], -1)[..., 0], nearest


def _first_claims(claim: Ints, close: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which predictions, in order of confidence, are the first to match their object."""
    hits = np.flatnonzero(close)
    correct = np.zeros(len(close), dtype=bool)
    correct[hits[np.unique(claim[hits], return_index=True)[1]]] = True
    return correct


def _area(correct: npt.NDArray[np.bool_], objects: int) -> float:
    """Area under the precision-recall curve of ranked predictions."""
    hits_so_far = correct.cumsum()
    recall = np.concatenate([[0.0], hits_so_far / objects, [1.0]])
    precision = np.concatenate([[0.0], hits_so_far / np.arange(1, len(correct) + 1), [0.0]])
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(recall) * precision[1:]).sum())


def _as_sets(sets: Any, name: str) -> Floats:
    array = _as_numpy(sets)
    if array.ndim != 3 or array.shape[2] != OBJECT_SIZE:
        raise ValueError(f"{name} must have shape [images, objects, {OBJECT_SIZE}], got {list(array.shape)}.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, and hold NaN or infinity.")
    return array


def adjusted_rand_index(predicted_masks: Any, true_masks: Any, foreground: bool = True) -> float:
    r"""Mean over images of the adjusted Rand index of two segmentations: 1 for equal ones, 0 for chance.

    .. math:: \mathrm{ARI} = \frac{\sum_{ij} n_{ij}(n_{ij}-1) - E}{\frac{1}{2}(A + B) - E}

    .. math:: E = \frac{A B}{n(n-1)}

    Thesis: section "Example Application: Set Prediction".

    with n_ij pixels in segment i of one and j of the other, A = Σ a_i (a_i - 1), B = Σ b_j (b_j - 1) and segment sizes
    a, b.

    Args:
        predicted_masks: integers ``[B, ...]``, the segment of each pixel; or floats or booleans ``[B, K, ...]``, one
            mask for each of K segments; a pixel belongs to the largest.
        true_masks: integers ``[B, ...]`` with 0 for the background; or booleans or floats ``[B, M, ...]``, one mask for
            each object, where a pixel in none is background.
        foreground: leave out the pixels of the background, as is usual; ``False`` counts it as one more segment.

    Returns:
        The mean over all images with pixels to count; NaN if there are none.

    >>> true = np.array([[0, 1, 1, 2, 2]])
    >>> adjusted_rand_index(np.array([[3, 7, 7, 5, 5]]), true)
    1.0
    >>> round(adjusted_rand_index(np.array([[0, 0, 0, 0, 1]]), true), 4)
    0.0
    """
    scores = adjusted_rand_indices(predicted_masks, true_masks, foreground)
    return float(scores.mean()) if len(scores) else math.nan


def adjusted_rand_indices(predicted_masks: Any, true_masks: Any, foreground: bool = True) -> Floats:
    """Adjusted Rand index of every image that has pixels to count."""
    predicted, true = _as_segments(predicted_masks, "predicted_masks"), _as_segments(true_masks, "true_masks", True)
    if predicted.shape != true.shape:
        raise ValueError(
            f"predicted_masks and true_masks must be of the same images and pixels, got {list(predicted.shape)} and "
            f"{list(true.shape)}: resize one of them."
        )
    images = len(true)
    rows, ours = np.unique(predicted, return_inverse=True)
    columns, theirs = np.unique(true, return_inverse=True)
    counted = (true != 0).ravel() if foreground else np.ones(true.size, dtype=bool)
    cell = np.repeat(np.arange(images), true[0].size if images else 0) * len(rows) * len(columns)
    cell += ours.ravel() * len(columns) + theirs.ravel()
    table = np.bincount(cell[counted], minlength=images * len(rows) * len(columns))
    table = table.reshape(images, len(rows), len(columns)).astype(np.float64)

    def pairs(count: Floats) -> Floats:
        return count * (count - 1)

    n = table.sum((1, 2))
    table, n = table[n > 0], n[n > 0]
    a, b = pairs(table.sum(2)).sum(1), pairs(table.sum(1)).sum(1)
    expected = a * b / np.maximum(pairs(n), 1)
    room = (a + b) / 2 - expected
    # The denominator is 0 only if both are one segment, or both have one segment per pixel: equal either way.
    return np.where(room > 0, (pairs(table).sum((1, 2)) - expected) / np.where(room > 0, room, 1), 1.0)


def _as_segments(masks: Any, name: str, background: bool = False) -> Ints:
    array = _as_numpy(masks)
    if array.dtype.kind not in "iubf" or array.ndim < (3 if array.dtype.kind in "bf" else 2):
        raise ValueError(
            f"{name} must be integers [B, ...] or masks [B, segments, ...], got {array.dtype} of shape "
            f"{list(array.shape)}."
        )
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, and hold NaN or infinity.")
    segment = array.argmax(1).astype(np.int64)
    return np.where((array > 0).any(1), segment + 1, 0) if background else segment
