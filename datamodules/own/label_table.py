"""Labels of users' images: factors of variation, from a table or an array, for all of them or for some."""

import csv
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.datamodules.own.image_store import MOST_NAMED
from unknot.datamodules.own.sources import INSTALL, Classes, Columns


@dataclass(frozen=True)
class Table:
    """Classes ``[N, F]`` of every image, -1 where a label is missing, and what they stand for."""

    factors: Tensor
    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]  # of every factor, in the order of its classes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes of every factor."""
        return tuple(map(len, self.values))

    @property
    def labelled(self) -> Tensor:
        """Images that have a label of every factor: bool ``[N]``."""
        return (self.factors >= 0).all(1)

    def rows(self, numbers: Tensor) -> "Table":
        """The labels of some of the images, with the classes that occur among them."""
        factors, values = self.factors[numbers], []
        for column, names in zip(factors.T, self.values, strict=True):  # views, which are written to
            used, classes = column[column >= 0].unique(return_inverse=True)
            column[column >= 0] = classes
            values.append(tuple(names[number] for number in used.tolist()))
        return Table(factors, self.names, tuple(values))


def read_table(
    labels: Any, images: Sequence[str], count: int, wanted: Sequence[str] | None, num_bins: int, lenient: bool
) -> Table:
    """The labels of images, from a table by their names or by row.

    Args:
        labels: path of a CSV or parquet table, DataFrame, dictionary of columns or array ``[N, F]``.
        images: names of the images; empty where they have numbers alone.
        count: number of images.
        wanted: names of the columns to use.
        num_bins: of fractions.
        lenient: only warn of rows that name images that are not there.
    """
    title = str(labels) if isinstance(labels, str | Path) else "labels"
    columns = read_cells(labels)
    if columns is None:
        return from_columns(_array_columns(labels, wanted, count), num_bins, count, title)
    if not columns or (images and len(columns) == 1 and _is_keyed(columns, images, title)):
        raise ValueError(f"{title}: no columns of factors in its header.")
    if _is_keyed(columns, images, title):
        columns = _by_name(columns, images, title, lenient)
    for name, cells in columns.items():
        if len(cells) != count:
            raise ValueError(f"{title}: {len(cells)} rows for {count} images in column {name!r}; row n is of image n.")
    for name in wanted or ():
        if name not in columns:
            raise ValueError(f"{title}: no column {name!r}; there are {', '.join(columns)}.")
    return from_columns({name: columns[name] for name in wanted or columns}, num_bins, count, title)


def read_cells(labels: Any) -> dict[str, Any] | None:
    """The columns of a table by name; ``None`` where it is an array without names."""
    if isinstance(labels, str | Path):
        path = Path(labels)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file. Give the path of a CSV or parquet table of labels.")
        if path.suffix.lower() == ".parquet":
            return _from_parquet(path)
        header, rows = _read_csv(path)
        return {name: [row[place] for row in rows] for place, name in enumerate(header)}
    if isinstance(labels, Mapping):
        return _from_mapping(labels)
    if hasattr(labels, "columns") and hasattr(labels, "index"):  # a DataFrame of pandas, which need not be installed
        columns = {str(name): labels[name].tolist() for name in labels.columns}
        named = str(labels.index.dtype) in ("object", "string", "str")
        return {"": labels.index.tolist(), **columns} if named else columns
    return None


def from_columns(columns: Columns, num_bins: int, count: int, title: str) -> Table:
    """The labels of images, from the cells of columns; empty cells, ``None`` and NaN are missing."""
    if not columns:
        raise ValueError(f"{title}: no columns of labels.")
    found = [_classes(title, name, cells, num_bins) for name, cells in columns.items()]
    factors = torch.stack([classes for classes, _ in found], dim=1)
    if len(factors) != count:
        raise ValueError(f"{title}: {len(factors)} rows for {count} images; row n is of image n.")
    if not (factors >= 0).any():
        raise ValueError(f"{title}: every row is empty; at least one image needs labels.")
    if empty := [name for name, column in zip(columns, factors.T, strict=True) if not (column >= 0).any()]:
        raise ValueError(f"{title}: column {empty[0]!r} is empty; leave it out with label_keys.")
    table = Table(factors, tuple(columns), tuple(values for _, values in found))
    return table.rows(torch.arange(count))  # without classes that have a name and no image


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
            raise ValueError("labels name no image: all rows are -1, which stands for none.")
        array = np.where(without[:, None], np.nan, array.astype(np.float64))
    return dict(zip(names, array.T, strict=True))


def _from_mapping(labels: Mapping[Any, Any]) -> dict[str, Any]:
    """A dictionary of columns, or of labels by the name of the image."""
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
    names = [name for name in table.column_names if not name.startswith("__")]  # what pandas adds for its index
    return {name: table[name].to_pylist() for name in names}


def _is_keyed(columns: Mapping[str, Any], images: Sequence[str], title: str) -> bool:
    """Return whether the first column names the images."""
    first = next(iter(columns))
    if first == "":
        if not images:
            raise ValueError(f"{title} are by name, and the images have numbers alone; give a row for every image.")
        return True
    cells = columns[first]
    if not images or isinstance(cells, Classes):
        return False
    if title != "labels":  # a file; it has names where the images do
        return True
    return not {str(cell) for cell in cells}.isdisjoint(images) or (
        all(isinstance(cell, str) for cell in cells)
        and (len(set(cells)) == len(cells) > 2 and any("." in cell for cell in cells))
    )


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [row for row in csv.reader(file) if row]
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}: not a CSV table with a header ({error}).") from None
    header = [name.strip() for name in header]
    if len(set(header)) != len(header):
        raise ValueError(f"{path}: two columns of the same name in its header: {', '.join(header)}.")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}: row {number} has {len(row)} cells, the header {len(header)}.")
    return header, rows


def _by_name(columns: Mapping[str, Any], images: Sequence[str], title: str, lenient: bool) -> dict[str, Any]:
    """The columns in the order of the images, which the first column names; empty for those without a row."""
    first, *others = columns
    rows: dict[str, int] = {}
    for number, cell in enumerate(columns[first]):
        if rows.setdefault(str(cell).strip(), number) != number:
            raise ValueError(f"{title}: two rows for {cell}.")
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


def _classes(title: str, name: str, cells: Any, num_bins: int) -> tuple[Tensor, tuple[str, ...]]:
    """Classes of the cells of a column, -1 where they are missing, and what they stand for."""
    if isinstance(cells, Classes):
        return torch.from_numpy(cells.numbers.astype(np.int64)), cells.names
    cells = [_cell(cell) for cell in (cells.tolist() if hasattr(cells, "tolist") else cells)]
    known = [number for number, cell in enumerate(cells) if cell is not None]
    classes = torch.full((len(cells),), -1)
    if not known:
        return classes, ()
    present = [cells[number] for number in known]
    try:
        numbers = [float(cell) for cell in present]
    except (TypeError, ValueError):
        if odd := [cell for cell in present if not isinstance(cell, str | int | float)]:
            raise ValueError(
                f"{title}: column {name!r} holds a {type(odd[0]).__name__}; expected numbers or text."
            ) from None
        texts, found = np.unique([str(cell) for cell in present], return_inverse=True)
        classes[known] = torch.from_numpy(found)
        return classes, tuple(texts.tolist())
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{title}: column {name!r} holds infinity; expected finite numbers, or empty cells.")
    distinct, found = np.unique(numbers, return_inverse=True)
    if len(distinct) > num_bins and not (distinct == np.round(distinct)).all():
        edges = np.linspace(distinct[0], distinct[-1], num_bins + 1)
        bins = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, num_bins - 1)
        used, found = np.unique(bins, return_inverse=True)  # without the empty ones
        classes[known] = torch.from_numpy(found)
        return classes, tuple(f"{edges[bin]:.4g} to {edges[bin + 1]:.4g}" for bin in used)
    classes[known] = torch.from_numpy(found)
    return classes, tuple(f"{value:.6g}" for value in distinct)


def _cell(cell: Any) -> Any:
    """A cell, ``None`` where it is missing: an empty text, NaN, or a missing value of pandas."""
    if isinstance(cell, str):
        return cell.strip() or None
    if cell is None or type(cell).__name__ in ("NAType", "NaTType") or cell != cell:
        return None
    return cell
