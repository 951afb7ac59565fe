"""What is known about one's own images: factors of variation, from a table or an array, for all of them or for some."""

import csv
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.datamodules.own.image_store import MOST_NAMED, Pictures


@dataclass(frozen=True)
class Table:
    """Classes ``[N, F]`` of every image, -1 in all columns where there are none, and what they stand for."""

    factors: Tensor
    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]  # of every factor, in the order of its classes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes of every factor."""
        return tuple(map(len, self.values))

    @property
    def labelled(self) -> Tensor:
        """Which images have labels: bool ``[N]``."""
        return self.factors[:, 0] >= 0


def read_table(labels: Any, pictures: Pictures, wanted: Sequence[str] | None, num_bins: int, lenient: bool) -> Table:
    """The labels of images, from the path of a CSV table or from an integer array."""
    if isinstance(labels, str | Path):
        return _from_csv(Path(labels), pictures, wanted, num_bins, lenient)
    return _from_array(labels, pictures, wanted)


def _from_array(labels: Any, pictures: Pictures, names: Sequence[str] | None) -> Table:
    factors, n = torch.as_tensor(labels), pictures.num_rows
    if factors.is_floating_point() or factors.ndim != 2 or len(factors) != n or 0 in factors.shape:
        raise ValueError(
            f"labels must be integers [{n}, F], a row for every image, got {factors.dtype} {list(factors.shape)}."
        )
    factors = (factors if pictures.numbers is None else factors[pictures.numbers]).long()
    names = tuple(names or (f"factor_{column}" for column in range(factors.shape[1])))
    if len(names) != factors.shape[1]:
        raise ValueError(f"{len(names)} names in `factors` for {factors.shape[1]} columns of labels.")
    without = (factors == -1).all(1)
    known = factors[~without]
    if not len(known):
        raise ValueError("labels name no image: all rows are -1, which stands for none.")
    distinct = [column.unique(return_inverse=True) for column in known.T]
    classes = torch.full_like(factors, -1)
    classes[~without] = torch.stack([each for _, each in distinct], dim=1)
    return Table(classes, names, tuple(tuple(map(str, values.tolist())) for values, _ in distinct))


def _from_csv(path: Path, pictures: Pictures, wanted: Sequence[str] | None, num_bins: int, lenient: bool) -> Table:
    header, rows = _read_csv(path)
    keyed = bool(pictures.names)
    columns = header[keyed:]
    for name in wanted or columns[:1]:
        if name not in columns:
            raise ValueError(f"{path}: no column {name!r}; there are {', '.join(columns)}.")
    if not columns:
        raise ValueError(f"{path}: no columns of factors in its header.")
    names = tuple(wanted or columns)
    if keyed:
        matched = _match(path, rows, pictures, lenient)
    elif len(rows) == len(pictures):
        matched = list(rows)
    else:
        raise ValueError(f"{path}: {len(rows)} rows for {len(pictures)} images; row n is of image n.")
    places = [header.index(name) for name in names]
    cells = [None if row is None else [row[place].strip() for place in places] for row in matched]
    known = [number for number, row in enumerate(cells) if row is not None and any(row)]
    if not known:
        raise ValueError(f"{path}: every row is empty; at least one image needs labels.")
    found = [_classes(path, name, [cells[i][j] for i in known], num_bins) for j, name in enumerate(names)]  # type: ignore[index]
    factors = torch.full((len(pictures), len(names)), -1)
    factors[known] = torch.stack([classes for classes, _ in found], dim=1)
    return Table(factors, names, tuple(values for _, values in found))


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [row for row in csv.reader(file) if row]
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file. Give the path of a CSV table of labels.") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}: not a CSV table with a header ({error}).") from None
    header = [name.strip() for name in header]
    if len(set(header)) != len(header):
        raise ValueError(f"{path}: two columns of the same name in its header: {', '.join(header)}.")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}: row {number} has {len(row)} cells, the header {len(header)}.")
    return header, rows


def _match(path: Path, rows: list[list[str]], pictures: Pictures, lenient: bool) -> list[list[str] | None]:
    """The rows in the order of the images; none for those that have none."""
    by_name: dict[str, list[str]] = {}
    for row in rows:
        if by_name.setdefault(row[0].strip(), row) is not row:
            raise ValueError(f"{path}: two rows for {row[0]}.")
    if by_name.keys().isdisjoint(pictures.names):
        raise ValueError(
            f"{path}: no row for any of {len(pictures.names)} images, such as {pictures.names[0]}; its first column "
            f"holds names like {rows[0][0] if rows else 'this'}."
        )
    absent = sorted(by_name.keys() - {*pictures.names, *pictures.skipped})
    if absent:
        message = f"{path}: {len(absent)} of its rows name images that are not there: {', '.join(absent[:MOST_NAMED])}"
        if not lenient:
            raise ValueError(f"{message}. Correct it, or give unreadable='skip'.")
        warnings.warn(f"{message}; left out.", stacklevel=2)
    return [by_name.get(name) for name in pictures.names]


def _classes(path: Path, name: str, cells: list[str], num_bins: int) -> tuple[Tensor, tuple[str, ...]]:
    """Classes of the cells of a column, and what they stand for."""
    if "" in cells:
        raise ValueError(
            f"{path}: an empty cell in column {name!r}; an image has a value in every column, or in none if it is not "
            "labelled."
        )
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        values, classes = np.unique(cells, return_inverse=True)
        return torch.from_numpy(classes), tuple(values.tolist())
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{path}: column {name!r} holds NaN or infinity.")
    distinct, classes = np.unique(numbers, return_inverse=True)
    if len(distinct) > num_bins and not (distinct == np.round(distinct)).all():
        edges = np.linspace(distinct[0], distinct[-1], num_bins + 1)
        bins = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, num_bins - 1)
        used, classes = np.unique(bins, return_inverse=True)  # without the empty ones
        return torch.from_numpy(classes), tuple(f"{edges[bin]:.4g} to {edges[bin + 1]:.4g}" for bin in used)
    return torch.from_numpy(classes), tuple(f"{value:.6g}" for value in distinct)
