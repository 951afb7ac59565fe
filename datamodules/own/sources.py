"""Sources of encoded images: files, tables of files, webdataset shards and Hugging Face data sets, with random access.

A source returns stored image files, as paths or bytes, and the other columns. Decoding is done by
:mod:`unknot.datamodules.own.decode`.
"""

import csv
import hashlib
import json
import re
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.arguments import did_you_mean
from unknot.datamodules.grid import fingerprint
from unknot.datamodules.own.decode import EXTENSIONS, image_files, natural_order

Columns = Mapping[str, Any]
"""Cells by the name of their column: a list, an array, or :class:`Classes`."""

IMAGE_KEYS = (
    *("image", "img", "images", "picture", "photo", "pixel_values", "pixels"),
    *(suffix[1:] for suffix in EXTENSIONS),
    *("file", "filename", "file_name", "path", "image_path", "file_path", "filepath"),
)
"""Names of image columns that are recognised without ``image_key``."""
TRAIN_SPLITS = ("train", "training")
HELD_OUT_SPLITS = ("validation", "valid", "val", "test", "testing", "eval")
MEMBER = re.compile(r"((?:.*/)?(?!__)[^./][^.]*)\.([^/]*)", re.DOTALL)
"""Name of an example in a tar archive, up to the first dot of the last part, and of one of its fields."""
INSTALL = "pip install 'unknot[data]'"


class Classes:
    """Column of named classes: an index for each row, -1 if it is missing."""

    def __init__(self, numbers: Any, names: Sequence[str]) -> None:
        self.numbers, self.names = np.asarray(numbers), tuple(names)


class Source(ABC):
    """Encoded images by index.

    Attributes:
        title: name of the source in error messages.
        names: name of every image, used by tables of labels; empty if images have only indices.
        held_out: indices of the images that the source itself holds out, or ``None``.
        label_keys: names of the default label columns.
        unit: name of the container of an image.
    """

    title: str
    names: Sequence[str] = ()
    held_out: Tensor | None = None
    label_keys: tuple[str, ...] = ()
    unit = "images"

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of images."""

    @abstractmethod
    def key(self, *more: object) -> str:
        """Return a fingerprint of the images and of ``more``, which changes with them."""

    @abstractmethod
    def get(self, numbers: Sequence[int]) -> list[Any]:
        """Return the images with these indices, each a path, bytes or a Pillow image."""

    def chunks(self, size: int) -> Iterator[list[Any]]:
        """Yield all images in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield self.get(range(start, min(start + size, len(self))))

    def describe(self, number: int) -> str:
        """Name an image for an error message."""
        return self.names[number] if self.names else f"image {number}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns other than the image."""
        return ()

    def read_columns(self, names: Sequence[str]) -> Columns:
        """Return the cells of these columns."""
        raise NotImplementedError

    random_access = True
    """True if random access is about as fast as reading in order."""


class Files(Source):
    """Image files, as paths or as bytes in memory, and perhaps the other columns of the table that lists them."""

    def __init__(
        self, files: Sequence[Path] | Sequence[bytes], names: Sequence[str], title: str, columns: Columns | None = None
    ) -> None:
        self.files: list[Any] = list(files)
        self.names, self.title = tuple(names), title
        self.unit = "files" if isinstance(self.files[0], Path) else "images"
        self._columns = columns or {}
        self.label_keys = tuple(self._columns)

    def __len__(self) -> int:
        return len(self.files)

    def key(self, *more: object) -> str:
        """Paths, sizes and times of the files, or all bytes."""
        if self.unit == "files":
            return fingerprint((path for path in self.files if path.exists()), self.names, *more)
        hash = hashlib.sha256(repr(more).encode())
        for image in self.files:
            hash.update(len(image).to_bytes(8, "big") + image)
        return hash.hexdigest()[:16]

    def get(self, numbers: Sequence[int]) -> list[Any]:
        """Return their paths or bytes."""
        return [self.files[number] for number in numbers]

    def describe(self, number: int) -> str:
        """Return the path of a file, or the number of an image in memory."""
        return str(self.files[number]) if self.unit == "files" else super().describe(number)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the other columns of the table."""
        return tuple(self._columns)

    def read_columns(self, names: Sequence[str]) -> Columns:
        """Return the cells of these columns."""
        return {name: self._columns[name] for name in names}


class Tar(Source):
    """Shards in webdataset format: members that share a name up to the first dot form one example."""

    def __init__(self, paths: Sequence[Path], image_key: str | None) -> None:
        self.paths, self.title = list(paths), str(paths[0])
        entries: list[tuple[int, int, int]] = []  # shard, offset, size of every image
        fields: list[dict[str, tuple[int, int, int]]] = []
        names: list[str] = []
        for shard, path in enumerate(self.paths):
            previous = None
            for member in self._members(path):
                parts = MEMBER.match(member.name) if member.isfile() else None
                if parts is None:
                    continue
                prefix, field = parts.groups()
                if prefix != previous:
                    names.append(prefix)
                    fields.append({})
                    previous = prefix
                fields[-1][field.lower()] = (shard, member.offset_data, member.size)
        if not fields:
            raise ValueError(f"{self.title}: no examples in this archive; expected members such as 0001.jpg, 0001.cls.")
        self.image_key = find_key(list(fields[0]), image_key, self.title, "fields")
        for name, field in zip(names, fields, strict=True):
            if self.image_key not in field:
                raise ValueError(
                    f"{self.title}: example {name!r} has no {self.image_key!r}, only {', '.join(field)}. Leave it out."
                )
            entries.append(field[self.image_key])
        self.names = tuple(names) if len(set(names)) == len(names) else ()
        self._entries, self._fields = np.array(entries), fields
        self.label_keys = tuple(name for name in ("cls", "json") if name in fields[0])

    @staticmethod
    def _members(path: Path) -> Iterator[tarfile.TarInfo]:
        try:
            with tarfile.open(path, "r:") as archive:
                yield from archive
        except (tarfile.TarError, EOFError) as error:
            raise ValueError(
                f"{path}: not a whole uncompressed tar archive ({error}). Unpack a .tar.gz with gunzip, or copy it "
                "again."
            ) from None

    def __len__(self) -> int:
        return len(self._entries)

    def key(self, *more: object) -> str:
        """Return a fingerprint of sizes and modification times of the shards."""
        return fingerprint(self.paths, self.image_key, *more)

    def get(self, numbers: Sequence[int]) -> list[Any]:
        """Return the bytes."""
        return self._read([tuple(self._entries[number]) for number in numbers])

    def _read(self, places: Sequence[tuple[int, int, int] | None]) -> list[Any]:
        contents: list[Any] = [None] * len(places)
        order = sorted((place, at) for at, place in enumerate(places) if place is not None)
        file, opened = None, -1
        try:
            for (shard, offset, size), at in order:
                if shard != opened:
                    if file is not None:
                        file.close()
                    file, opened = self.paths[shard].open("rb"), shard
                assert file is not None
                file.seek(offset)
                contents[at] = file.read(size)
        finally:
            if file is not None:
                file.close()
        return contents

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all fields of the first example except the image."""
        return tuple(name for name in self._fields[0] if name != self.image_key)

    def read_columns(self, names: Sequence[str]) -> Columns:
        """Return the fields as strings; every number, boolean and string of a JSON object is a column."""
        columns: dict[str, list[Any]] = {}
        for name in names:
            cells = self._read([field.get(name) for field in self._fields])
            try:
                texts = [None if cell is None else cell.decode("utf-8").strip() for cell in cells]
                if name.rpartition(".")[2] != "json":
                    columns[name] = texts
                    continue
                rows = [{} if text is None else json.loads(text) for text in texts]
            except ValueError as error:
                raise ValueError(f"{self.title}: the field {name!r} is neither text nor JSON ({error}).") from None
            rows = [row if isinstance(row, dict) else {name: row} for row in rows]
            keys = dict.fromkeys(key for row in rows for key in row)
            columns |= {key: [row.get(key) for row in rows] for key in keys}
        return {name: cells for name, cells in columns.items() if _are_labels(cells)}


class Parquet(Source):
    """A parquet file with a column of image bytes or of paths."""

    random_access = False

    def __init__(self, path: Path, image_key: str | None) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError:
            raise ImportError(f"{path}: reading parquet needs pyarrow: {INSTALL}") from None
        self.path, self.title = path, str(path)
        try:
            with parquet.ParquetFile(path) as file:
                self._schema, self._count = file.schema_arrow, file.metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}: not a whole parquet file ({_one_line(error)}). Copy or save it again.") from None
        types = {field.name: field.type for field in self._schema}
        likely = [name for name, type in types.items() if pa.types.is_struct(type) or _is_binary(type)]
        self.image_key = find_key(list(types), image_key, self.title, "columns", likely)
        type = types[self.image_key]
        if not (pa.types.is_struct(type) or _is_binary(type) or _is_text(type)):
            raise ValueError(
                f"{path}: column {self.image_key!r} holds {type}; expected image files as bytes, or their paths."
            )
        self.label_keys = tuple(name for name, type in types.items() if name != self.image_key and _is_label_type(type))

    def __len__(self) -> int:
        return int(self._count)

    def key(self, *more: object) -> str:
        """Return a fingerprint of size and modification time of the file."""
        return fingerprint([self.path], self.image_key, *more)

    def get(self, numbers: Sequence[int]) -> list[Any]:
        """Return a few images from the start, to inspect the first."""
        return list(islice((image for chunk in self.chunks(16) for image in chunk), max(numbers) + 1))[min(numbers) :]

    def chunks(self, size: int) -> Iterator[list[Any]]:
        """Yield all images in order."""
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(size, columns=[self.image_key]):
                yield [bytes_or_path(cell, self.path.parent) for cell in batch.column(0).to_pylist()]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns except the image."""
        return tuple(name for name in self._schema.names if name != self.image_key)

    def read_columns(self, names: Sequence[str]) -> Columns:
        """Return the cells of these columns; classes of a Hugging Face data set keep their names."""
        from pyarrow import parquet

        table = parquet.read_table(self.path, columns=list(names))
        classes = _huggingface_classes(self._schema)
        columns: dict[str, Any] = {}
        for name in names:
            cells = table[name].to_pylist()
            if name in classes:
                columns[name] = Classes([-1 if cell is None else cell for cell in cells], classes[name])
            else:
                columns |= _spread(name, cells)
        return columns


class HuggingFace(Source):
    """A ``datasets.Dataset`` with a column of image files."""

    def __init__(self, dataset: Any, image_key: str) -> None:
        import datasets

        self.title, self.image_key = "the data set", image_key
        plain = dataset.with_format(None)
        if isinstance(dataset.features[image_key], datasets.Image):
            plain = plain.cast_column(image_key, datasets.Image(decode=False))
        self.dataset = plain
        self._images = plain.select_columns([image_key])
        self.label_keys = tuple(
            name for name, feature in plain.features.items() if name != image_key and _is_label_feature(feature)
        )

    def __len__(self) -> int:
        return len(self.dataset)

    def key(self, *more: object) -> str:
        """Return the fingerprint computed by ``datasets``."""
        return hashlib.sha256(repr((self._images._fingerprint, self.image_key, more)).encode()).hexdigest()[:16]

    def get(self, numbers: Sequence[int]) -> list[Any]:
        """Return the bytes, or the paths if the data set refers to files."""
        return [bytes_or_path(cell) for cell in self._images[list(numbers)][self.image_key]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns except the image."""
        return tuple(name for name in self.dataset.column_names if name != self.image_key)

    def read_columns(self, names: Sequence[str]) -> Columns:
        """Return the cells of these columns; a ``ClassLabel`` keeps its names."""
        import datasets

        cells = self.dataset.select_columns(list(names))[:]
        columns: dict[str, Any] = {}
        for name in names:
            feature = self.dataset.features[name]
            if isinstance(feature, datasets.ClassLabel):
                columns[name] = Classes([-1 if cell is None else cell for cell in cells[name]], feature.names)
            else:
                columns |= _spread(name, cells[name])
        return columns


class Joined(Source):
    """Concatenation of several sources."""

    def __init__(self, parts: Sequence[Source], held_out_part: int | None = None) -> None:
        self.parts = list(parts)
        self.title, self.unit, self.label_keys = parts[0].title, parts[0].unit, parts[0].label_keys
        self.random_access = all(part.random_access for part in parts)
        self._starts = np.cumsum([0, *map(len, parts)])
        names = [name for part in parts for name in part.names]
        self.names = tuple(names) if len(names) == len(set(names)) == len(self) else ()
        if held_out_part is not None:
            self.held_out = torch.arange(self._starts[held_out_part], self._starts[held_out_part + 1])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def key(self, *more: object) -> str:
        """Return a fingerprint of all parts."""
        return hashlib.sha256(repr([part.key(*more) for part in self.parts]).encode()).hexdigest()[:16]

    def get(self, numbers: Sequence[int]) -> list[Any]:
        """Return the images with these indices, reading each part once."""
        requested = np.asarray(numbers, dtype=np.int64)
        which = np.searchsorted(self._starts, requested, side="right") - 1
        result: list[Any] = [None] * len(requested)
        for number in np.unique(which):
            places = np.nonzero(which == number)[0]
            images = self.parts[number].get((requested[places] - self._starts[number]).tolist())
            for place, image in zip(places, images, strict=True):
                result[place] = image
        return result

    def chunks(self, size: int) -> Iterator[list[Any]]:
        """Yield all images in order; a chunk never spans parts."""
        for part in self.parts:
            yield from part.chunks(size)

    def describe(self, number: int) -> str:
        """Name an image as its part does."""
        part = int(np.searchsorted(self._starts, number, side="right")) - 1
        within = self.parts[part].describe(number - int(self._starts[part]))
        return within if self.parts[part].unit == "files" else f"{within} of {self.parts[part].title}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that all parts have."""
        return tuple(name for name in self.parts[0].columns if all(name in part.columns for part in self.parts))

    def read_columns(self, names: Sequence[str]) -> Columns:
        """Return the cells of all parts."""
        tables = [part.read_columns(names) for part in self.parts]
        for part, table in zip(self.parts, tables, strict=True):
            if list(table) != list(tables[0]):
                raise ValueError(
                    f"{part.title} has the labels {', '.join(table)}, {self.title} {', '.join(tables[0])}; all parts "
                    "must have the same."
                )
        return {name: _concatenated([table[name] for table in tables]) for name in tables[0]}


def _concatenated(parts: Sequence[Any]) -> Any:
    if all(isinstance(part, Classes) and part.names == parts[0].names for part in parts):
        return Classes(np.concatenate([part.numbers for part in parts]), parts[0].names)
    return [cell for part in parts for cell in (_texts(part) if isinstance(part, Classes) else part)]


def _texts(classes: Classes) -> list[str | None]:
    return [None if number < 0 else classes.names[number] for number in classes.numbers.tolist()]


# Detection of the kind of source


def from_path(path: Path, image_key: str | None) -> Source:
    """Open a folder, a parquet file, a webdataset shard, or a table of paths."""
    if path.is_dir():
        files = image_files(path, below=True)
        if files:
            return Files(files, [each.relative_to(path).as_posix() for each in files], str(path))
        tables = [*_below(path, ".parquet"), *_below(path, ".tar")]
        if not tables:
            raise FileNotFoundError(
                f"{path}: no images here or below; looked for {', '.join((*EXTENSIONS, '.parquet', '.tar'))}."
            )
        return from_paths([each for each in tables if each.suffix == tables[0].suffix], image_key)
    if path.suffix.lower() in (".parquet", ".tar"):
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file.")
        return Tar([path], image_key) if path.suffix.lower() == ".tar" else Parquet(path, image_key)
    if path.is_file() and path.suffix.lower() == ".csv":
        return from_frame_columns(read_csv(path), image_key, str(path), path.parent)
    if path.is_file():
        raise ValueError(
            f"{path}: not a kind of file that holds images; expected a folder, .parquet, .tar, .csv or .npy."
        )
    raise FileNotFoundError(f"{path}: no such folder. Give a folder of images, a list of files or an array.")


def from_paths(paths: Sequence[Path], image_key: str | None, names: Sequence[str] | None = None) -> Source:
    """Open a list of image files, of parquet files, or of webdataset shards."""
    suffixes = {path.suffix.lower() for path in paths}
    if suffixes in ({".parquet"}, {".tar"}):
        for path in paths:
            if not path.is_file():
                raise FileNotFoundError(f"{path}: no such file.")
        if suffixes == {".tar"}:
            return Tar(paths, image_key)
        parts = [Parquet(path, image_key) for path in paths]
        return parts[0] if len(parts) == 1 else Joined(parts)
    return Files(paths, names or [str(path) for path in paths], str(paths[0].parent))


def from_frame(frame: Any, image_key: str | None) -> Source:
    """Open a pandas DataFrame with a column of paths or of bytes."""
    columns = {str(name): frame[name].tolist() for name in frame.columns}
    return from_frame_columns(columns, image_key, "the DataFrame", Path())


def from_frame_columns(columns: Mapping[str, list[Any]], image_key: str | None, title: str, folder: Path) -> Source:
    """Open a table with a column of paths or of bytes."""
    if not columns or not next(iter(columns.values())):
        raise ValueError(f"{title} has no rows; expected one for every image.")
    first = next(iter(columns))
    likely = [name for name, cells in columns.items() if _looks_like_image(cells[0])]
    key = find_key(list(columns), image_key, title, "columns", likely or [first])
    images = [bytes_or_path(cell, folder) for cell in columns[key]]
    others = {name: cells for name, cells in columns.items() if name != key}
    if all(isinstance(image, bytes) for image in images):
        return Files(images, (), title, others)
    if not all(isinstance(image, Path) for image in images):
        bad = next(cell for cell, image in zip(columns[key], images, strict=True) if not isinstance(image, Path))
        raise ValueError(f"{title}: column {key!r} holds {str(bad)[:60]!r}; expected paths of images, or their bytes.")
    return Files(images, [str(cell) for cell in columns[key]], title, others)


def open_source(images: Any, image_key: str | None) -> Any:
    """Return a :class:`Source` for encoded images; return streams, arrays and data sets unchanged."""
    if isinstance(images, str | Path):
        return images if Path(images).suffix.lower() == ".npy" else from_path(Path(images), image_key)
    library = type(images).__module__.partition(".")[0]
    if library == "datasets":
        return from_huggingface(images, image_key)
    if library == "pandas" and hasattr(images, "columns"):
        return from_frame(images, image_key)
    if isinstance(images, list | tuple):
        if not images:
            raise ValueError("images is an empty list; give at least two files.")
        if all(isinstance(image, str | Path) for image in images):
            return from_paths([Path(image) for image in images], image_key, [str(image) for image in images])
        if all(isinstance(image, bytes) for image in images):
            return Files(images, (), "the list")
    return images


def from_huggingface(data: Any, image_key: str | None) -> Any:
    """Open a ``Dataset``, a column of one, or a ``DatasetDict``; return streams and data sets of arrays unchanged."""
    import datasets

    if isinstance(data, datasets.DatasetDict):
        train, held_out = split_names(data)
        parts = [from_huggingface(data[name], image_key) for name in (train, held_out) if name]
        if not all(isinstance(part, Source) for part in parts):
            raise ValueError(f"The splits hold arrays and not image files; give one of them, such as data[{train!r}].")
        return Joined(parts, held_out_part=1) if len(parts) == 2 else parts[0]
    if type(data).__name__ == "Column":
        data, image_key = data.source, data.column_name
    if not isinstance(data, datasets.Dataset) or data.format["type"] == "custom":
        return data
    types = {name: getattr(feature, "dtype", "") for name, feature in data.features.items()}
    likely = [name for name, feature in data.features.items() if isinstance(feature, datasets.Image)]
    key = find_key(list(types), image_key, "The data set", "columns", likely)
    if isinstance(data.features[key], datasets.Image) or types[key] in ("binary", "large_binary", "string"):
        return HuggingFace(data, key)
    return data.with_format("numpy")


def split_names(splits: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the names of the training split and of the held-out split."""
    train = next((name for name in TRAIN_SPLITS if name in splits), None)
    if train is not None:
        return train, next((name for name in HELD_OUT_SPLITS if name in splits), None)
    if len(splits) == 1:
        return next(iter(splits)), None
    raise ValueError(
        f"The data set has the splits {', '.join(splits)}, and none is called 'train'. Give one of them, such as "
        f"data[{next(iter(splits), 'train')!r}]."
    )


def find_key(names: Sequence[str], requested: str | None, title: str, kind: str, likely: Sequence[str] = ()) -> str:
    """Return the name of the image column: the requested one, or one of the usual names.

    >>> find_key(["label", "img"], None, "data", "columns")
    'img'
    """
    if requested is not None:
        if requested not in names:
            raise ValueError(f"{title}: no {requested!r} among its {kind}. {did_you_mean(requested, names)}")
        return requested
    lower = {name.lower(): name for name in names}
    usual = [lower[name] for name in IMAGE_KEYS if name in lower]
    for among in ([name for name in usual if name in likely], usual[:1], likely if len(likely) == 1 else []):
        if among:
            return among[0]
    raise ValueError(
        f"{title}: which of its {kind} holds the images? Give image_key, one of {', '.join(names) or 'none'}."
    )


def _below(folder: Path, suffix: str) -> list[Path]:
    paths = [path for path in folder.rglob(f"*{suffix}") if path.is_file() and not path.name.startswith(".")]
    return sorted(paths, key=lambda path: [natural_order(part) for part in path.parts])


def read_csv(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV table with a header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}: not a CSV table with a header ({error}).") from None
    if not header:
        raise ValueError(f"{path}: not a CSV table with a header (it is empty).")
    header = [name.strip() for name in header]
    if len(set(header)) != len(header):
        raise ValueError(f"{path}: two columns of the same name in its header: {', '.join(header)}.")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}: row {number} has {len(row)} cells, the header {len(header)}.")
    return {name: [row[place] for row in rows] for place, name in enumerate(header)}


def bytes_or_path(cell: Any, folder: Path = Path()) -> Any:
    """Convert image files of parquet or ``datasets``: bytes, a path, or both in one dictionary."""
    if isinstance(cell, Mapping):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str):
        path = Path(cell)
        return path if path.is_absolute() or path.exists() else folder / path
    return cell


def _looks_like_image(cell: Any) -> bool:
    if isinstance(cell, Mapping):
        return "bytes" in cell or "path" in cell
    return isinstance(cell, bytes | Path) or (isinstance(cell, str) and Path(cell).suffix.lower() in EXTENSIONS)


def _spread(name: str, cells: list[Any]) -> dict[str, Any]:
    """Split a column of lists of equal length, such as all factors in one, into a column for each entry."""
    first = next((cell for cell in cells if cell is not None), None)
    if not isinstance(first, list | tuple):
        return {name: cells}
    if any(cell is not None and len(cell) != len(first) for cell in cells):
        raise ValueError(f"Column {name!r} has lists of different lengths, which cannot be labels.")
    return {f"{name}_{place}": [None if cell is None else cell[place] for cell in cells] for place in range(len(first))}


def _are_labels(cells: Sequence[Any]) -> bool:
    return all(cell is None or isinstance(cell, bool | int | float | str) for cell in cells)


def _is_binary(type: Any) -> bool:
    return str(type) in ("binary", "large_binary", "binary_view")


def _is_text(type: Any) -> bool:
    return str(type) in ("string", "large_string", "string_view")


def _is_label_type(type: Any) -> bool:
    """Return whether a type is numeric or boolean; strings are labels only if requested by name."""
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_integer(type) or types.is_floating(type) or types.is_boolean(type) or types.is_dictionary(type)
    )


def _is_label_feature(feature: Any) -> bool:
    import datasets

    if isinstance(feature, datasets.ClassLabel):
        return True
    return isinstance(feature, datasets.Value) and feature.dtype.startswith(("int", "uint", "float", "bool"))


def _huggingface_classes(schema: Any) -> dict[str, list[str]]:
    """Return the class names that ``datasets`` stores in parquet files."""
    try:
        noted = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature["names"] for name, feature in noted.items() if feature.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
