"""Validation and conversion of the inputs of metrics."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unknot.labels import MISSING, columns_of, read_column

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def as_codes(codes: Any) -> Floats:
    """Convert codes to a finite float64 array ``[N, D]``, from NumPy, torch (any device) or nested lists."""
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


def as_classes(factors: Any, n: int) -> Ints:
    """Convert factors to an int64 array ``[N, F]`` of classes, -1 where a label is missing.

    Labels may be integers, integral floats, booleans, strings or categories; see :mod:`unknot.labels`. Continuous
    factors are cut into 20 bins of equal width.
    """
    array = None if hasattr(factors, "iloc") else _as_numpy(factors)
    if array is not None and array.dtype.kind in "iub":
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"factors must have shape [N, F] with N, F >= 1, got {list(array.shape)}.")
        classes = array.astype(np.int64)
    else:
        columns, names = columns_of(factors if array is None or array.dtype.kind in "OUS" else array)
        names = names or [f"factor {place}" for place in range(len(columns))]
        classes = np.stack(
            [read_column(column, name=name).classes for column, name in zip(columns, names, strict=True)], axis=1
        )
    if len(classes) != n:
        raise ValueError(f"codes and factors must have as many rows, got {n} and {len(classes)}.")
    missing = classes == MISSING
    if missing.any():
        if missing.all():
            raise ValueError("factors hold no label: all are -1, NaN or None, which stand for missing ones.")
        check_signs(classes, missing)
    return classes


def check_signs(classes: Ints, missing: npt.NDArray[np.bool_]) -> None:
    """Warn about a factor whose values seem to be -1 and 1: -1 means a missing label."""
    for place in np.flatnonzero(missing.any(0)):
        known = classes[~missing[:, place], place]
        if known.size and (known == 1).all():
            warnings.warn(
                f"Factor {place} has the values -1 and 1, and -1 stands for a missing label. Use 0 and 1.", stacklevel=4
            )


def as_numbers(factors: Any) -> Floats:
    """Convert factors to numbers ``[N, F]``, NaN where a label is missing; strings and categories are numbered."""
    array = None if hasattr(factors, "iloc") else _as_numpy(factors)
    columns, _ = columns_of(factors if array is None or array.dtype.kind in "OUS" else array)
    read = [read_column(column) for column in columns]
    numbers = [np.where(c.known, c.classes, np.nan) if c.numbers is None else c.numbers for c in read]
    return np.stack(numbers, axis=1).astype(np.float64)


def as_factors(factors: Any, n: int) -> Ints:
    """Convert factors to an int64 array ``[N, F]`` of classes without missing labels, one row for each row of codes."""
    classes = as_classes(factors, n)
    if (classes == MISSING).any():
        rows = int((classes == MISSING).any(1).sum())
        raise ValueError(f"factors must be complete here: {rows} of {n} rows lack a label. Leave these rows out.")
    return classes


def as_rows(codes: Any, factors: Any) -> tuple[Floats, Ints]:
    """Return codes ``[N, D]`` and classes ``[N, F]`` of the rows that are labelled for all factors."""
    codes = as_codes(codes)
    classes = as_classes(factors, len(codes))
    return _complete(codes, classes)


def _complete(codes: Floats, classes: Ints) -> tuple[Floats, Ints]:
    known = (classes != MISSING).all(1)
    if known.all():
        return codes, classes
    if not known.any():
        raise ValueError("No row is labelled for all factors. Give fewer factors, or leave out those with few labels.")
    return codes[known], classes[known]


def by_missing(*factors: Ints) -> Iterator[tuple[Any, ...]]:
    """Group columns by missing labels: yield the columns of a group and, for each array ``[N, F]``, their labelled
    rows.

    If no label is missing, there is one group of all columns and rows.

    >>> [(columns.tolist(), rows.tolist()) for columns, rows in by_missing(np.array([[0, 1], [0, -1], [1, 1]]))]
    [([0], [0, 1, 2]), ([1], [0, 2])]
    """
    known = [array != MISSING for array in factors]
    if all(mask.all() for mask in known):
        yield (np.arange(factors[0].shape[1]), *(slice(None) for _ in factors))
        return
    groups: dict[bytes, list[int]] = {}
    for column in range(factors[0].shape[1]):
        groups.setdefault(b"".join(mask[:, column].tobytes() for mask in known), []).append(column)
    for columns in groups.values():
        yield (np.array(columns), *(np.flatnonzero(mask[:, columns[0]]) for mask in known))


def accuracies(predicted: Ints, factors: Ints) -> Floats:
    """Return the share of correct predictions among labelled rows, ``[F]``; NaN for a factor without labels."""
    known = factors != MISSING
    count = known.sum(0)
    right = ((predicted == factors) & known).sum(0)
    return np.divide(right, count, out=np.full(len(count), np.nan), where=count > 0)


def as_split(
    codes_train: Any, factors_train: Any, codes_test: Any, factors_test: Any, partial: bool = False
) -> tuple[Floats, Ints, Floats, Ints]:
    """Check codes and factors to fit on and to test on, which must have the same widths.

    Rows with a missing label are left out, unless ``partial``: then the class -1 marks it.
    """
    train, test = as_codes(codes_train), as_codes(codes_test)
    known, asked = _classes_of_both(factors_train, len(train), factors_test, len(test))
    if not partial:
        train, known = _complete(train, known)
        test, asked = _complete(test, asked)
    for what, left, right in (("codes", train, test), ("factors", known, asked)):
        if left.shape[1] != right.shape[1]:
            raise ValueError(
                f"{what} to train and to test on must be as wide, got {left.shape[1]} and {right.shape[1]} columns."
            )
    return train, known, test, asked


def _classes_of_both(train: Any, n: int, test: Any, m: int) -> tuple[Ints, Ints]:
    """Return the classes of both parts, numbered jointly, so that strings and fractions have the same class in both."""
    if all(not hasattr(part, "iloc") and _as_numpy(part).dtype.kind in "iub" for part in (train, test)):
        return as_classes(train, n), as_classes(test, m)
    (left, names), (right, _) = columns_of(train), columns_of(test)
    if len(left) != len(right):
        raise ValueError(f"factors to train and to test on must be as wide, got {len(left)} and {len(right)} columns.")
    names = names or [f"factor {place}" for place in range(len(left))]
    both = [read_column(_joined(a, b), name=name).classes for a, b, name in zip(left, right, names, strict=True)]
    classes = np.stack(both, axis=1)
    size = len(left[0])
    return as_classes(classes[:size], n), as_classes(classes[size:], m)


def _joined(left: Any, right: Any) -> Any:
    """Concatenate two columns; pandas categories keep their numbers."""
    if hasattr(left, "iloc"):
        import pandas as pd

        return pd.concat([left, pd.Series(right)], ignore_index=True)
    return np.concatenate([np.asarray(left), np.asarray(right)])


def as_labels(labels: Any, n: int | None = None, what: str = "labels", missing: bool = False) -> Ints:
    """Convert labels to integer classes ``[N]``, after checking their number.

    With ``missing``, the class -1 means an unknown label; otherwise it is a class like any other.
    """
    array = _as_numpy(labels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{what} must have shape [N] with N >= 1, got {list(array.shape)}.")
    if array.dtype.kind not in "iub":
        column = read_column(array, name=what)
        if column.numbers is not None and (column.numbers[column.known] % 1 != 0).any():
            raise ValueError(f"{what} must be classes, got fractions of {array.dtype}. Use discretize first.")
        if not missing and not column.known.all():
            raise ValueError(f"{what} must be complete: {int((~column.known).sum())} of {len(array)} are missing.")
        array = column.classes
    if n is not None and len(array) != n:
        raise ValueError(f"{what} must have an entry for each of {n} rows, got {len(array)}.")
    return array.astype(np.int64)


def as_matrix(matrix: Any) -> Floats:
    """Check a factor-code matrix ``[D, F]``: finite, without negative entries."""
    array = as_codes(matrix)
    if (array < 0).any():
        raise ValueError(f"A factor-code matrix has no negative entries, got a smallest one of {array.min():g}.")
    return array


def varying(factors: Ints) -> npt.NDArray[np.bool_]:
    """Return which columns of ``[N, F]`` contain more than one class, apart from the -1 of missing labels."""
    known = factors != MISSING
    first = factors[known.argmax(0), np.arange(factors.shape[1])]
    varies: npt.NDArray[np.bool_] = ((factors != first) & known).any(0)
    return varies


def _as_numpy(values: Any) -> npt.NDArray[Any]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()
    return np.asarray(values)
