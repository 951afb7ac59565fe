"""What every metric asks of its inputs."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def as_codes(codes: Any) -> Floats:
    """Codes as a finite float64 array ``[N, D]``, from NumPy, torch (any device) or nested lists."""
    array = _as_numpy(codes)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"codes must have shape [N, D] with N, D >= 1, got {list(array.shape)}.")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"codes must be real numbers, got {array.dtype}.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).any(axis=1).sum())
        raise ValueError(f"codes must be finite: {bad} of {len(array)} rows hold NaN or infinity.")
    return array


def as_factors(factors: Any, n: int) -> Ints:
    """Factors as an int64 array ``[N, F]`` of classes, with as many rows as there are codes."""
    array = _as_numpy(factors)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"factors must have shape [N, F] with N, F >= 1, got {list(array.shape)}.")
    if array.dtype.kind not in "iub":
        raise ValueError(f"factors must be integer classes, got {array.dtype}; bin continuous factors first.")
    if len(array) != n:
        raise ValueError(f"codes and factors must have as many rows, got {n} and {len(array)}.")
    return array.astype(np.int64)


def _as_numpy(values: Any) -> npt.NDArray[Any]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()
    return np.asarray(values)
