"""Labels as integer classes, read from numbers, booleans, strings and categories, some of them missing.

Metrics and tables of labels read columns with :func:`read_column`, so that the same label means the same everywhere. A
class of -1 stands for a missing label.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from unknot.arguments import whole

Kind = Literal["categorical", "ordered", "circular", "continuous"]

Law = Literal["training", "independent", "held_out"]
"""Distributions of the factors of a weighted data set: its own, independent factors, or combinations of weight 0."""
Binning = Literal["uniform", "quantile"]
BINS = 20
MISSING = -1


class Column(NamedTuple):
    """One factor: its classes ``[N]``, -1 where missing, their meaning, and the kind of the factor.

    ``values`` maps each class that occurs to its value: a number, a string, or ``(low, high)`` of a bin. ``numbers``
    holds the labels themselves, NaN where missing; it is None for strings.
    """

    classes: npt.NDArray[np.int64]
    values: dict[int, Any]
    kind: Kind
    numbers: npt.NDArray[np.float64] | None

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Mask of the labelled rows."""
        return self.classes != MISSING


def read_column(
    labels: Any, kind: Kind | None = None, bins: int = BINS, binning: Binning = "uniform", name: str = "factor"
) -> Column:
    """Read the labels of one factor as integer classes.

    Integers, integral floats and booleans keep their value as their class. Strings and categories are numbered in
    sorted order or in their own order. NaN, None, empty strings and -1 are missing. Fractions of at most ``bins``
    different values are numbered in order; with more values, they are continuous and cut into bins.

    Args:
        labels: labels ``[N]`` as a NumPy array, a pandas column, or a list.
        kind: ``"categorical"``, ``"ordered"``, ``"circular"`` or ``"continuous"``; by default inferred from the labels.
            A ``"continuous"`` factor is always cut into bins.
        bins: number of bins of a continuous factor.
        binning: ``"uniform"`` for bins of equal width, ``"quantile"`` for bins of about equally many labels.
        name: name of the factor, for messages.

    >>> read_column([0.0, 1.0, float("nan"), -1.0]).classes.tolist()
    [0, 1, -1, -1]
    >>> column = read_column(["red", None, "blue"])
    >>> column.classes.tolist(), column.values, column.kind
    ([1, -1, 0], {0: 'blue', 1: 'red'}, 'categorical')
    >>> read_column(np.linspace(0, 1, 50), bins=2).kind
    'continuous'
    """
    if kind is not None and kind not in get_args(Kind):
        raise ValueError(f"The kind of {name} must be one of {', '.join(get_args(Kind))}, got {kind!r}.")
    categories = getattr(getattr(labels, "dtype", None), "categories", None)
    if categories is not None:  # of pandas
        categorical = getattr(labels, "cat", labels)
        codes = np.asarray(categorical.codes, dtype=np.int64)
        found: Kind = "ordered" if categorical.ordered else "categorical"
        return Column(codes, dict(enumerate(categories.tolist())), kind or found, None)
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"The labels of {name} must have shape [N], got {list(array.shape)}.")
    if array.dtype.kind in "OUST":
        texts = _texts(array)
        truths = [value for value in texts if value is not None]
        if truths and all(isinstance(value, bool | np.bool_) for value in truths):
            integers = np.array([MISSING if value is None else int(value) for value in texts])
            return _of_integers(integers, kind or "categorical")
        if (parsed := _parsed(texts)) is None:
            return _of_texts(texts, kind or "categorical")
        array = parsed
    if array.dtype.kind == "b":
        return _of_integers(array.astype(np.int64), kind or "categorical")
    if array.dtype.kind not in "fiu":
        raise ValueError(f"The labels of {name} must be numbers, booleans or strings, got {array.dtype}.")
    if array.dtype.kind in "iu" and kind != "continuous":
        return _of_integers(array.astype(np.int64), kind or "ordered")
    return _of_floats(array.astype(np.float64), kind, bins, binning, name)


def discretize(values: Any, bins: int = BINS, method: Binning = "uniform") -> npt.NDArray[np.int64]:
    r"""Cut each column of numbers into bins: ``[N]`` or ``[N, F]`` to classes 0..bins-1, -1 where a number is NaN.

    .. math::
        z_i = \min\left(B - 1,\ \left\lfloor B\, \frac{x_i - \min_j x_j}{\max_j x_j - \min_j x_j} \right\rfloor\right)

    Thesis: section "Disentanglement_lib", paragraph "Hyperparameters and Differences with Previous Implementations".

    Args:
        values: continuous factors or codes.
        bins: number of bins.
        method: ``"uniform"`` for bins of equal width between the extremes, as disentanglement_lib bins codes;
            ``"quantile"`` for bins of about equally many values; ties can reduce their number.

    >>> discretize(np.array([0.0, 0.49, 0.5, 1.0]), bins=2).tolist()
    [0, 0, 1, 1]
    >>> discretize([0.0, 1.0, 2.0, float("nan"), 1000.0], bins=2, method="quantile").tolist()
    [0, 0, 1, -1, 1]
    """
    bins = whole("bins", bins)
    if method not in get_args(Binning):
        raise ValueError(f"method must be 'uniform' or 'quantile', got {method!r}.")
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.ndim not in (1, 2):
        raise ValueError(f"discretize takes numbers [N] or [N, F], got {array.dtype} {list(array.shape)}.")
    array = array.astype(np.float64)
    columns = array[:, None] if array.ndim == 1 else array
    classes = np.stack([_bin(column, bins, method)[0] for column in columns.T], axis=1)
    return classes[:, 0] if array.ndim == 1 else classes


def columns_of(factors: Any) -> tuple[list[Any], list[str] | None]:
    """Return the columns of a table ``[N, F]`` from pandas, NumPy, torch, JAX or lists, and their names if it has any.

    >>> [list(map(str, column)) for column in columns_of([["a", 1], ["b", 2]])[0]]
    [['a', 'b'], ['1', '2']]
    """
    if hasattr(factors, "columns") and hasattr(factors, "iloc"):  # a data frame
        return [factors.iloc[:, place] for place in range(len(factors.columns))], [str(c) for c in factors.columns]
    if hasattr(getattr(factors, "dtype", None), "categories"):
        raise ValueError("factors must have shape [N, F]: give a data frame, or a list of columns, not one column.")
    array = factors if isinstance(factors, np.ndarray) else _as_array(factors)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"factors must have shape [N, F] with N, F >= 1, got {list(array.shape)}.")
    if array.dtype.names:
        raise ValueError("factors must be a plain array [N, F], not one with named fields.")
    return list(array.T), None


def _as_array(values: Any) -> npt.NDArray[Any]:
    if hasattr(values, "detach"):  # torch, without importing it
        values = values.detach().cpu()
        return np.asarray(values.float() if "bfloat16" in str(values.dtype) else values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError("factors must have shape [N, F], got rows of different lengths.") from None
    if array.dtype.kind in "US" and isinstance(values, Sequence):  # keep None and numbers unchanged
        array = np.array([list(row) for row in values], dtype=object) if array.ndim == 2 else array
    return array


def _texts(array: npt.NDArray[Any]) -> list[Any]:
    """Return labels unchanged, with None for missing ones."""
    return [None if _is_missing(value) else value for value in array.tolist()]


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and value != value):
        return True
    if isinstance(value, str):
        return not value.strip()
    return type(value).__name__ in ("NAType", "NaTType")  # of pandas


def _parsed(values: list[Any]) -> npt.NDArray[Any] | None:
    """Convert values to numbers, if all that are not missing are numbers or strings of numbers."""
    try:
        return np.array([np.nan if value is None else float(value) for value in values])
    except (TypeError, ValueError):
        return None


def _of_texts(values: list[Any], kind: Kind) -> Column:
    names = sorted({str(value) for value in values if value is not None})
    place = {name: number for number, name in enumerate(names)}
    classes = np.array([MISSING if value is None else place[str(value)] for value in values], dtype=np.int64)
    return Column(classes, dict(enumerate(names)), kind, None)


def _of_integers(array: npt.NDArray[np.int64], kind: Kind) -> Column:
    values = {int(value): int(value) for value in np.unique(array[array != MISSING])}
    return Column(array, values, kind, np.where(array == MISSING, np.nan, array.astype(np.float64)))


def _of_floats(array: npt.NDArray[np.float64], kind: Kind | None, bins: int, binning: Binning, name: str) -> Column:
    if np.isinf(array).any():
        raise ValueError(f"The labels of {name} must be finite, or NaN where they are missing; got infinity.")
    known = array[~np.isnan(array)]
    distinct = np.unique(known)
    is_integral = bool((distinct == np.round(distinct)).all()) and bool((np.abs(distinct) < 2**53).all())
    if is_integral and kind != "continuous":
        return _of_integers(np.where(np.isnan(array), MISSING, array).astype(np.int64), kind or "ordered")
    if kind == "continuous" or (kind is None and len(distinct) > bins):
        classes, edges = _bin(array, bins, binning)
        values = {
            number: (float(edges[number]), float(edges[number + 1])) for number in np.unique(classes[classes >= 0])
        }
        return Column(classes, {int(number): value for number, value in values.items()}, "continuous", array)
    classes = np.where(np.isnan(array), MISSING, np.searchsorted(distinct, array)).astype(np.int64)
    return Column(classes, dict(enumerate(distinct.tolist())), kind or "ordered", array)


def _bin(
    column: npt.NDArray[np.float64], bins: int, method: Binning
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the bin of each number, -1 for NaN, and the edges of the bins."""
    missing = np.isnan(column)
    known = column[~missing] if missing.any() else column
    if not known.size:
        return np.full(len(column), MISSING), np.zeros(bins + 1)
    # Edges as in np.histogram, which does not accept columns whose range is too small for that many floats; the last
    # edge is dropped so that the maximum falls into the last bin.
    if method == "uniform":
        edges = np.linspace(known.min(), known.max(), bins + 1)
    else:
        edges = np.unique(np.quantile(known, np.linspace(0, 1, bins + 1)))
        edges = edges if len(edges) > 1 else np.repeat(edges, 2)
    classes = np.searchsorted(edges[:-1], column, side="right") - 1
    return np.where(missing, MISSING, classes).astype(np.int64), edges
