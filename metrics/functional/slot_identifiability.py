"""Slot identifiability and compositional contrast (Brady et al., 2023): one-to-one recovery of objects by slots."""

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from unknot.arguments import fraction
from unknot.metrics.functional.checks import Floats, _as_numpy


def slot_identifiability(slots: Any, objects: Any, train_fraction: float = 0.8) -> dict[str, Any]:
    r"""Slot identifiability score (SIS; Brady et al., 2023): each object is predicted by exactly one slot.

    .. math:: \mathrm{SIS} = \frac{1}{K}\sum_{i=1}^{K}\left(R^2_{i\pi(i)} - \max_{j\neq\pi(i)} R^2_{ij}\right)

    R²[i, j] is that of a kernel ridge regression (Gaussian kernel, α 1, γ 1/dimensions) from inferred slot j to true
    slot i, on values standardised over all samples; R² below 0 is set to 0. π is the best one-to-one match. Slots and
    objects must be in the same order in every sample: match the slots of image models to the objects first, for example
    by their masks.

    Args:
        slots: inferred slots ``[N, K, D]``.
        objects: true slots ``[N, O, M]``, numeric, with O ≤ K.
        train_fraction: share of the samples, from the first, to fit on; the rest is for testing.

    Returns:
        ``sis`` in [-1, 1]; ``matched`` and ``other``, the means of its two terms; ``r2``, the matrix ``[O, K]`` before
        values below 0 are set to 0. A property that does not vary in the test samples counts 0.

    >>> objects = np.random.default_rng(0).normal(size=(200, 2, 1))
    >>> round(slot_identifiability(objects[:, ::-1], objects)["matched"], 1)
    1.0
    """
    inferred, true = _as_slots(slots, "slots"), _as_slots(objects, "objects")
    fraction(train_fraction=train_fraction)
    if len(inferred) != len(true) or true.shape[1] > inferred.shape[1]:
        raise ValueError(
            "Expected slots [N, K, D] and objects [N, O, M] of the same samples with O <= K, got "
            f"{list(inferred.shape)} and {list(true.shape)}."
        )
    split = int(train_fraction * len(true))
    if split < 1 or len(true) - split < 2:
        raise ValueError(f"Too few samples to fit and to test on: {split} and {len(true) - split}.")
    r2 = np.stack([_kernel_r2(inferred[:, j], true, split) for j in range(inferred.shape[1])], axis=1)
    values = np.maximum(r2, 0)
    rows, columns = linear_sum_assignment(-values)
    matched = values[rows, columns]
    rest = values.copy()
    rest[rows, columns] = 0
    other = rest.max(1)
    return {
        "sis": float((matched - other).mean()),
        "matched": float(matched.mean()),
        "other": float(other.mean()),
        "r2": r2,
    }


def compositional_contrast(jacobian: Any, num_slots: int, weighted: bool = False) -> float:
    r"""Compositional contrast of a decoder's Jacobian (Brady et al., 2023): 0 if every pixel depends on at most one
    slot.

    .. math::
        C = \sum_{p}\sum_{i < j} \left\|\frac{\partial x_p}{\partial s_i}\right\| \left\|\frac{\partial x_p}{\partial
        s_j}\right\|

    Args:
        jacobian: derivatives of P outputs by the entries of K slots, slot after slot, ``[B, P, K·D]``; for example
            ``torch.func.vmap(torch.func.jacrev(decode))(slots)``.
        num_slots: K.
        weighted: the version for images: norms are divided by their mean over slots, and pixels count by that mean as a
            share of the image's largest. It does not grow with the contrast of the image.

    Returns:
        A number from 0 up; lower is better.

    >>> jacobian = np.array([[[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]])  # the third pixel depends on both slots
    >>> compositional_contrast(jacobian, num_slots=2)
    3.0
    """
    array = _as_numpy(jacobian).astype(np.float64)
    if array.ndim != 3 or array.shape[2] % num_slots or not np.isfinite(array).all():
        raise ValueError(
            f"jacobian must be finite, of shape [B, P, {num_slots} * D], got shape {list(array.shape)}. Flatten the "
            "pixels."
        )
    norms = np.linalg.norm(array.reshape(*array.shape[:2], num_slots, -1), axis=3)  # [B, P, K]
    mean = norms.mean(2)
    if weighted:
        norms = np.divide(norms, mean[..., None], out=np.zeros_like(norms), where=mean[..., None] > 0)
    pairs = (norms.sum(2) ** 2 - (norms**2).sum(2)) / 2
    if weighted:
        largest = mean.max(1, keepdims=True)
        pairs = pairs * np.divide(mean, largest, out=np.zeros_like(mean), where=largest > 0)
    return float(pairs.sum(1).mean())


def _kernel_r2(slot: Floats, objects: Floats, split: int) -> Floats:
    """R² of the prediction of every object from one slot, averaged over the object's properties: ``[O]``."""
    from sklearn.kernel_ridge import KernelRidge

    targets = objects.reshape(len(objects), -1)
    inputs, outputs = _standardised(slot), _standardised(targets)
    model = KernelRidge(kernel="rbf", alpha=1.0, gamma=1 / slot.shape[1]).fit(inputs[:split], outputs[:split])
    truth, predicted = outputs[split:], model.predict(inputs[split:])
    spread = ((truth - truth.mean(0)) ** 2).sum(0)
    error = ((truth - predicted) ** 2).sum(0)
    r2: Floats = 1 - np.divide(error, spread, out=np.ones_like(error), where=spread > 0)
    return r2.reshape(objects.shape[1:]).mean(1)


def _standardised(values: Floats) -> Floats:
    scale = values.std(0)
    return (values - values.mean(0)) / np.where(scale > 0, scale, 1)


def _as_slots(values: Any, name: str) -> Floats:
    array = _as_numpy(values)
    if array.ndim != 3 or 0 in array.shape or array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers of shape [N, slots, dimensions], got shape {list(array.shape)}.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity.")
    return array
