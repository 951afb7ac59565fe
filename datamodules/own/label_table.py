"""Labels of users' images: factors of variation from a table or an array, for all images or some."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.datamodules.own.image_store import MOST_NAMED
from unknot.datamodules.own.sources import INSTALL, Classes, Columns, read_csv
from unknot.labels import MISSING, Column, Kind, read_column


@dataclass(frozen=True)
class Table:
    """Classes ``[N, F]`` of every image, -1 where a label is missing, and their meaning."""

    factors: Tensor
    columns: Mapping[str, Column]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the factors."""
        return tuple(self.columns)

    @property
    def values(self) -> tuple[tuple[str, ...], ...]:
        """Values of the classes of every factor."""
        return tuple(tuple(map(_name, column.values.values())) for column in self.columns.values())

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes of every factor."""
        return tuple(len(column.values) for column in self.columns.values())

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of the factors, as in :class:`FactorSpace`."""
        return tuple(column.kind for column in self.columns.values())

    @property
    def levels(self) -> dict[str, tuple[Any, ...]]:
        """Values of the factors, the centres of bins."""
        return {name: tuple(map(_level, column.values.values())) for name, column in self.columns.items()}

    @property
    def partly_labelled(self) -> Tensor:
        """Images with a label of some factor: bool ``[N]``."""
        return (self.factors != MISSING).any(1)

    @property
    def labelled(self) -> Tensor:
        """Images with a label of every factor: bool ``[N]``."""
        return (self.factors != MISSING).all(1)

    def rows(self, numbers: Tensor) -> "Table":
        """Return the labels of some of the images, with the classes that occur among them."""
        return number_classes(self.factors[numbers], self.columns)


def number_classes(factors: Tensor, columns: Mapping[str, Column]) -> Table:
    """Table whose classes are numbered from 0 on, without those that do not occur."""
    numbered, levels = torch.full_like(factors, MISSING), {}
    for place, (name, column) in enumerate(columns.items()):
        known = factors[:, place] != MISSING
        used, numbered[known, place] = factors[known, place].unique(return_inverse=True)
        levels[name] = tuple(column.values[number] for number in used.tolist())
    kept = {
        name: column._replace(values=dict(enumerate(levels[name])), classes=numbered[:, place].numpy())
        for place, (name, column) in enumerate(columns.items())
    }
    return Table(numbered, kept)


def read_table(
    labels: Any, images: Sequence[str], count: int, requested: Sequence[str] | None, num_bins: int, lenient: bool
) -> Table:
    """Read the labels of images from a table, by name or by row.

    Args:
        labels: path of a CSV or parquet table, DataFrame, dictionary of columns or array ``[N, F]``.
        images: names of the images; empty if they have only indices.
        count: number of images.
        requested: names of the columns to use.
        num_bins: bins of a column of fractions.
        lenient: only warn about rows for missing images.
    """
    title = str(labels) if isinstance(labels, str | Path) else "labels"
    columns = read_cells(labels)
    if columns is None:
        return from_columns(_array_columns(labels, requested, count), num_bins, count, title)
    if not columns or (images and len(columns) == 1 and _is_keyed(columns, images, title)):
        raise ValueError(f"{title}: no columns of factors in its header.")
    if _is_keyed(columns, images, title):
        columns = _by_name(columns, images, title, lenient)
    for name, cells in columns.items():
        if len(cells) != count:
            raise ValueError(f"{title}: {len(cells)} rows for {count} images in column {name!r}; row n is for image n.")
    for name in requested or ():
        if name not in columns:
            raise ValueError(f"{title}: no column {name!r}; there are {', '.join(columns)}.")
    return from_columns({name: columns[name] for name in requested or columns}, num_bins, count, title)


def read_cells(labels: Any) -> dict[str, Any] | None:
    """Return the columns of a table by name; ``None`` for an array without names."""
    if isinstance(labels, str | Path):
        path = Path(labels)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file. Give the path of a CSV or parquet table of labels.")
        if path.suffix.lower() == ".parquet":
            return _from_parquet(path)
        return dict(read_csv(path))
    if isinstance(labels, Mapping):
        return _from_mapping(labels)
    if hasattr(labels, "columns") and hasattr(labels, "index"):  # a pandas DataFrame, detected without importing pandas
        columns = {str(name): labels[name].tolist() for name in labels.columns}
        named = str(labels.index.dtype) in ("object", "string", "str")
        return {"": labels.index.tolist(), **columns} if named else columns
    return None


def from_columns(columns: Columns, num_bins: int, count: int, title: str) -> Table:
    """Read labels of images from columns of cells, with :func:`unknot.labels.read_column`."""
    if not columns:
        raise ValueError(f"{title}: no columns of labels.")
    for cells in columns.values():
        if (rows := len(cells.numbers if isinstance(cells, Classes) else cells)) != count:
            raise ValueError(f"{title}: {rows} rows for {count} images; row n is for image n.")
    read = {name: _column(title, name, cells, num_bins) for name, cells in columns.items()}
    factors = torch.from_numpy(np.stack([column.classes for column in read.values()], axis=1))
    if not (factors >= 0).any():
        raise ValueError(f"{title}: every row is empty; at least one image needs labels.")
    if empty := [name for name, column in zip(columns, factors.T, strict=True) if not (column >= 0).any()]:
        raise ValueError(f"{title}: column {empty[0]!r} is empty; leave it out with label_keys.")
    return number_classes(factors, read)


def _array_columns(labels: Any, names: Sequence[str] | None, count: int) -> dict[str, Any]:
    try:
        array = np.asarray(labels)
    except (TypeError, ValueError, RuntimeError):
        array = np.empty(0, dtype=object)
    if array.ndim == 1 and len(array) == count:
        array = array[:, None]
    if array.ndim != 2 or len(array) != count or 0 in array.shape or array.dtype.kind not in "biufUO":
        raise ValueError(
            f"labels must be a table or an array [{count}, F], a row for every image, got "
            f"{type(labels).__name__} of shape {list(array.shape)}."
        )
    names = tuple(names or (f"factor_{column}" for column in range(array.shape[1])))
    if len(names) != array.shape[1]:
        raise ValueError(f"{len(names)} names in label_keys for {array.shape[1]} columns of labels.")
    if array.dtype.kind in "iu":
        without = (array == -1).all(1)
        if without.all():
            raise ValueError("labels are all -1, which means missing. Give at least one label.")
        array = np.where(without[:, None], np.nan, array.astype(np.float64))
    return dict(zip(names, array.T, strict=True))


def _from_mapping(labels: Mapping[Any, Any]) -> dict[str, Any]:
    """Read a dictionary of columns, or of labels by image name."""
    rows = {str(name): value for name, value in labels.items()}
    values = list(rows.values())
    if values and all(isinstance(value, Mapping) for value in values):
        keys = dict.fromkeys(str(key) for value in values for key in value)
        return {"": list(rows), **{key: [value.get(key) for value in values] for key in keys}}
    if values and all(value is None or isinstance(value, str | int | float | bool) for value in values):
        return {"": list(rows), "label": values}
    columns = {}
    for name, cells in rows.items():
        cells = cells.tolist() if hasattr(cells, "tolist") else cells
        if not isinstance(cells, list | tuple | Classes):
            raise ValueError(f"labels: {name!r} holds {type(cells).__name__}; expected a list with a cell per image.")
        columns[name] = cells
    return columns


def _from_parquet(path: Path) -> dict[str, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ImportError(f"{path}: reading parquet needs pyarrow: {INSTALL}") from None
    try:
        table = parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path}: not a whole parquet file ({reason}). Copy or save it again.") from None
    names = [name for name in table.column_names if not name.startswith("__")]  # added by pandas for its index
    return {name: table[name].to_pylist() for name in names}


def _is_keyed(columns: Mapping[str, Any], images: Sequence[str], title: str) -> bool:
    """Return whether the first column contains image names."""
    first = next(iter(columns))
    if first == "":
        if not images:
            raise ValueError(f"{title} are by name, but the images have only indices; give a row for every image.")
        return True
    cells = columns[first]
    if not images or isinstance(cells, Classes):
        return False
    if title != "labels":  # a file, with names if the images have them
        return True
    return not {str(cell) for cell in cells}.isdisjoint(images) or (
        all(isinstance(cell, str) for cell in cells)
        and (len(set(cells)) == len(cells) > 2 and any("." in cell for cell in cells))
    )


def _by_name(columns: Mapping[str, Any], images: Sequence[str], title: str, lenient: bool) -> dict[str, Any]:
    """Return the columns in the order of the images, which the first column names; cells without a row are empty."""
    first, *others = columns
    rows: dict[str, int] = {}
    for number, cell in enumerate(columns[first]):
        if rows.setdefault(str(cell).strip(), number) != number:
            raise ValueError(f"{title}: two rows for {cell}. Keep one of them.")
    if rows.keys().isdisjoint(images):
        raise ValueError(
            f"{title}: no row for any of {len(images)} images, such as {images[0]}; its first column "
            f"holds names like {next(iter(rows), 'this')}."
        )
    if absent := sorted(rows.keys() - {*images}):
        message = f"{title}: {len(absent)} of its rows name images that are not there: {', '.join(absent[:MOST_NAMED])}"
        if not lenient:
            raise ValueError(f"{message}. Correct it, or give unreadable='skip'.")
        warnings.warn(f"{message}; left out.", stacklevel=2)
    places = [rows.get(name) for name in images]
    return {name: [None if place is None else columns[name][place] for place in places] for name in others}


def _column(title: str, name: str, cells: Any, num_bins: int) -> Column:
    """Convert the cells of a column to classes, -1 if missing."""
    if isinstance(cells, Classes):
        return Column(cells.numbers.astype(np.int64), dict(enumerate(cells.names)), "categorical", None)
    known = [cell for cell in cells if cell is not None]
    if odd := [cell for cell in known[:1] if isinstance(cell, list | tuple | dict)]:
        raise ValueError(f"{title}: column {name!r} holds a {type(odd[0]).__name__}; expected numbers or text.")
    column: Any = np.empty(len(cells), dtype=object)
    column[:] = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
    try:
        return read_column(column, bins=num_bins, name=f"column {name!r}")
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from None


def _name(value: Any) -> str:
    """Format a value of a factor for display."""
    if isinstance(value, tuple):
        return f"{value[0]:.4g} to {value[1]:.4g}"
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _level(value: Any) -> Any:
    """Return a value of a factor as a number: the centre of a bin."""
    return sum(value) / 2 if isinstance(value, tuple) else value
