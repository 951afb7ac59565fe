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


def as_split(
    codes_train: Any, factors_train: Any, codes_test: Any, factors_test: Any
) -> tuple[Floats, Ints, Floats, Ints]:
    """Codes and factors to learn from and to test on, of the same widths."""
    train, test = as_codes(codes_train), as_codes(codes_test)
    known, asked = as_factors(factors_train, len(train)), as_factors(factors_test, len(test))
    for what, left, right in (("codes", train, test), ("factors", known, asked)):
        if left.shape[1] != right.shape[1]:
            raise ValueError(
                f"{what} to train and to test on must be as wide, got {left.shape[1]} and {right.shape[1]} columns."
            )
    return train, known, test, asked


def as_labels(labels: Any, n: int | None = None, what: str = "labels") -> Ints:
    """Integer classes ``[N]``, with as many entries as there are rows of what they label."""
    array = _as_numpy(labels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{what} must have shape [N] with N >= 1, got {list(array.shape)}.")
    if array.dtype.kind not in "iub":
        raise ValueError(f"{what} must be integers, got {array.dtype}.")
    if n is not None and len(array) != n:
        raise ValueError(f"{what} must have an entry for each of {n} rows, got {len(array)}.")
    return array.astype(np.int64)


def as_matrix(matrix: Any) -> Floats:
    """A factor-code matrix ``[D, F]``: finite and nowhere negative."""
    array = as_codes(matrix)
    if (array < 0).any():
        raise ValueError(f"A factor-code matrix has no negative entries, got a smallest one of {array.min():g}.")
    return array


def varying(factors: Ints) -> npt.NDArray[np.bool_]:
    """Which columns of ``[N, F]`` hold more than one class."""
    return (factors != factors[0]).any(0)


def _as_numpy(values: Any) -> npt.NDArray[Any]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()
    return np.asarray(values)
