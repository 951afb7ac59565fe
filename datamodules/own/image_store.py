"""Users' images of equal shape: a decoded copy in the cache, an array, or a data set."""

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import get_worker_info
from tqdm.auto import tqdm

from unknot.datamodules.download import human_size
from unknot.datamodules.grid import Bytes, Grid, made_once
from unknot.datamodules.own.decode import Crop, as_frames, convert, fit_image, fit_tensor, read_image, to_gray
from unknot.datamodules.own.sources import Columns, Files, Source, find_key
from unknot.files import cache_dir

CHUNK = 256  # images decoded at a time
MOST_NAMED = 20  # files listed in one message
DECODED_SIZE = (64, 64)  # default size of image files
Bad = list[tuple[int, str]]
"""Indices of images that cannot be read, with the reason."""


@dataclass(frozen=True)
class Reading:
    """Settings for reading images: their size, in channels and pixels, and the treatment of unreadable files.

    Args:
        size: (height, width); ``None`` is 64 x 64 for image files, and the original size for all others.
        crop: part of the image to resize.
        grayscale: one channel instead of three.
        background: colour behind transparent parts.
        skip: leave out images that cannot be read.
        advice: advice about them in error messages.
        most_bytes: maximum size of the decoded copy; otherwise images are decoded each time.
    """

    size: tuple[int, int] | None = None
    crop: Crop = "fit"
    grayscale: bool = False
    background: str = "white"
    skip: bool = False
    advice: str = "Repair or remove them."
    most_bytes: float = float("inf")

    @property
    def decoded_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of decoded image files."""
        return (1 if self.grayscale else 3, *(self.size or DECODED_SIZE))

    def decode(self, image: Any) -> Bytes:
        """Decode a path, the bytes of a file or a Pillow image to uint8 ``[C, H, W]``."""
        return read_image(image, self.size or DECODED_SIZE, self.crop, self.grayscale, self.background)


class Items:
    """Images of a data set with single items: an image, a tuple that begins with one, or a dictionary."""

    def __init__(self, dataset: Any, reading: Reading, image_key: str | None = None) -> None:
        self.dataset, self.reading, self.title = dataset, reading, "The data set"
        if not len(dataset):
            raise ValueError("The data set is empty; give at least two images.")
        first = dataset[0]
        self.image_key: Any = None
        if isinstance(first, dict):
            likely = [name for name, value in first.items() if _is_image(value)]
            self.image_key = find_key(list(first), image_key, self.title, "keys", likely)
        elif isinstance(first, tuple | list):
            self.image_key = 0
        self._fields = _fields(first, self.image_key)
        self.shape = (len(dataset), *self._image(first, 0).shape)

    def take(self, index: Tensor) -> Tensor:
        """Return copies of the images ``index``."""
        images = [self._image(self.dataset[number], number) for number in index.tolist()]
        if other := [list(image.shape) for image in images if image.shape != self.shape[1:]]:
            raise ValueError(
                f"The data set has images of shape {list(self.shape[1:])} and of {other[0]}; give image_size, to which "
                "all are resized."
            )
        return torch.stack(images)

    @property
    def label_keys(self) -> tuple[str, ...]:
        """Names of the fields other than the image that contain numbers or booleans."""
        return tuple(name for name, value in self._fields.items() if _is_label(value))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all fields other than the image."""
        return tuple(self._fields)

    def read_columns(self, names: Sequence[str]) -> Columns:
        """Read the cells of all items, accessing each one."""
        count = len(self.dataset)
        cells: dict[str, list[Any]] = {}
        for number in tqdm(range(count), desc="reading labels", unit="image", disable=None, leave=False):
            fields = _fields(self.dataset[number], self.image_key)
            for name in names:
                values = _plain(fields.get(name))
                several = isinstance(values, list)
                for place, value in enumerate(values if several else [values]):
                    cells.setdefault(f"{name}_{place}" if several else name, []).append(value)
        if ragged := [name for name, column in cells.items() if len(column) != count]:
            raise ValueError(f"The data set does not have {ragged[0]!r} in every item; labels need the same length.")
        return cells

    def _image(self, item: Any, number: int) -> Tensor:
        image = item if self.image_key is None else item[self.image_key]
        reading = self.reading
        if isinstance(image, Image.Image):
            picture = convert(image, "L" if reading.grayscale else "RGB", reading.background)
            size = reading.size or (reading.crop if not isinstance(reading.crop, str) else (image.height, image.width))
            return torch.from_numpy(np.ascontiguousarray(fit_image(picture, size, reading.crop)))
        if not isinstance(image, Tensor | np.ndarray):
            raise ValueError(
                f"Item {number} of the data set is of type {type(image).__name__}; expected an image, as a tensor, an "
                "array or a Pillow image, or a tuple or a dictionary that holds one."
            )
        whole = torch.as_tensor(image)
        whole = whole[None] if whole.ndim == 2 else whole
        return _fit(as_frames(whole[None], f"Item {number} of the data set"), reading)[0]


class Undecoded:
    """Image files that are decoded on each access."""

    def __init__(self, source: Source, reading: Reading) -> None:
        self.source, self.reading = source, reading
        self.shape = (len(source), *reading.decoded_shape)

    def take(self, index: Tensor) -> Tensor:
        """Decode the images ``index``."""
        numbers, bad = index.tolist(), Bad()
        images = decode_all(self.source.get(numbers), self.reading, bad)
        if bad:
            named = [(numbers[place], reason) for place, reason in sorted(bad)]
            raise _unreadable(self.source, named, self.reading)
        return torch.from_numpy(np.stack(images))


@dataclass(frozen=True)
class Pictures:
    """Images of equal shape, uint8 or float, and their files."""

    rows: Grid | Tensor | Items | Undecoded
    numbers: Tensor | None = None  # rows that could be read; None for all
    names: tuple[str, ...] = ()  # names of the files, in the order of the images

    def __len__(self) -> int:
        return len(self.numbers) if self.numbers is not None else self.num_rows

    @property
    def num_rows(self) -> int:
        """Number of images, including unreadable ones."""
        return int(self._shape[0])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        channels, height, width = self._shape[1:]
        return channels, height, width

    @property
    def disk_size(self) -> int:
        """Bytes of the decoded copy in the cache."""
        return int(self.rows.rows.nbytes) if isinstance(self.rows, Grid) else 0

    def take(self, index: Tensor) -> Tensor:
        """Return images ``index``: float32 ``[n, C, H, W]`` in [0, 1]."""
        index = index if self.numbers is None else self.numbers[index]
        if isinstance(self.rows, Grid):
            rows = torch.from_numpy(self.rows.take(index.numpy()))
        else:
            rows = self.rows[index] if isinstance(self.rows, Tensor) else self.rows.take(index)
        return rows if rows.is_floating_point() else rows / 255

    @property
    def _shape(self) -> Any:
        return self.rows.rows.shape if isinstance(self.rows, Grid) else self.rows.shape


def from_data(images: Any, reading: Reading, image_key: str | None) -> Pictures:
    """Open images of an array or of a data set with length and indices."""
    if isinstance(images, str | Path | np.ndarray | Tensor):
        return from_array(images, reading)
    if isinstance(images, dict) or not (hasattr(images, "__len__") and hasattr(images, "__getitem__")):
        return from_array(images, reading)  # which raises the error
    return Pictures(Items(images, reading, image_key))


def from_files(paths: list[Path], names: tuple[str, ...], reading: Reading) -> Pictures:
    """Open image files, decoded once into the cache."""
    return from_source(Files(paths, names, str(paths[0].parent)), reading)


def decodes_each_time(source: Source, reading: Reading) -> bool:
    """Return whether the decoded copy of a source would be larger than allowed."""
    size = len(source) * int(np.prod(reading.decoded_shape))
    if size <= reading.most_bytes:
        return False
    if not source.random_access:
        raise ValueError(
            f"{source.title}: decoded, its {len(source):,} images take {human_size(size)}, more than max_cache_gb "
            "allows, and parquet cannot be read in random order. Raise max_cache_gb, lower image_size, or give a "
            "stream: datasets.load_dataset('parquet', data_files=..., split='train', streaming=True)."
        )
    if reading.skip:
        raise ValueError(
            f"{source.title}: decoded, its {len(source):,} images take {human_size(size)}, more than max_cache_gb "
            "allows; unreadable='skip' needs the decoded copy. Raise max_cache_gb or lower image_size."
        )
    return True


def from_source(source: Source, reading: Reading) -> Pictures:
    """Open encoded images, decoded once into the cache, or on each access if the decoded copy would be too large."""
    if decodes_each_time(source, reading):
        return Pictures(Undecoded(source, reading), names=tuple(source.names))
    shape = (len(source), *reading.decoded_shape)
    bad: Bad = []
    grid = made_once(
        cache_dir() / f"images-{source.key(shape, reading.crop, reading.background)}.npy",
        shape,
        lambda: _decode(source, reading, bad),
        note=bad,  # filled during decoding
    )
    names = tuple(source.names)
    if not grid.note:
        return Pictures(grid, names=names)
    if not reading.skip:
        raise _unreadable(source, grid.note, reading)
    warnings.warn(f"Left out {_list(source, grid.note)}.", stacklevel=2)
    lost = {number for number, _ in grid.note}
    kept = [number for number in range(len(source)) if number not in lost]
    return Pictures(grid, torch.tensor(kept), tuple(names[number] for number in kept) if names else ())


def decode_all(images: Sequence[Any], reading: Reading, bad: Bad, pool: Any = None) -> list[Bytes]:
    """Decode images in threads; unreadable ones become black, with an entry in ``bad``."""

    def attempt(number: int) -> Bytes:
        try:
            return reading.decode(images[number])
        except Exception as error:  # Pillow's decoders raise many kinds of errors
            bad.append((number, " ".join(str(error).split()) or type(error).__name__))
            return np.zeros(reading.decoded_shape, dtype=np.uint8)

    numbers = range(len(images))
    if pool is not None:
        return list(pool.map(attempt, numbers))
    if get_worker_info() is not None or len(numbers) < 8:  # worker processes already run in parallel
        return [attempt(number) for number in numbers]
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # Pillow releases the interpreter lock while decoding
        return list(threads.map(attempt, numbers))


def _decode(source: Source, reading: Reading, bad: Bad) -> Iterator[Bytes]:
    """Yield the images of a source in chunks; unreadable ones become black, with an entry in ``bad``."""
    size = human_size(len(source) * int(np.prod(reading.decoded_shape)))
    title = f"decoding into {size} of the cache"
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        tqdm(desc=title, total=len(source), unit="image", disable=None, leave=False) as bar,
    ):
        done = 0
        for images in source.chunks(CHUNK):
            unreadable: Bad = []
            yield np.stack(decode_all(images, reading, unreadable, pool))
            bad += [(done + number, reason) for number, reason in unreadable]
            done += len(images)
            bar.update(len(images))
    bad.sort()
    if bad and not reading.skip:
        raise _unreadable(source, bad, reading)


def from_array(images: Any, reading: Reading, name: str = "images") -> Pictures:
    """Open images of an array, a tensor or a ``.npy`` file."""
    if isinstance(images, str | Path):
        name = str(images)
        try:
            images = np.load(images, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{name}: not a readable .npy file ({error}).") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only is fine: nothing writes to it
        rows = as_frames(images, name)
    return Pictures(_fit(rows, reading))


def _fit(rows: Tensor, reading: Reading) -> Tensor:
    rows = to_gray(rows) if reading.grayscale and rows.shape[1] != 1 else rows
    height, width = rows.shape[2:]
    size = reading.size or ((height, width) if isinstance(reading.crop, str) else reading.crop)
    if (height, width) == size and isinstance(reading.crop, str):
        return rows
    return torch.cat([fit_tensor(chunk, size, reading.crop) for chunk in rows.split(CHUNK)])


def _fields(item: Any, image_key: Any) -> dict[str, Any]:
    """Return the rest of an item by name; the parts of a tuple after the image are ``label``, ``label_2``, ..."""
    if isinstance(item, dict):
        return {str(name): value for name, value in item.items() if name != image_key}
    if isinstance(item, tuple | list):
        return {"label" if place == 1 else f"label_{place}": item[place] for place in range(1, len(item))}
    return {}


def _plain(value: Any) -> Any:
    """Convert numbers of torch and NumPy to Python's, and vectors to lists."""
    return value.tolist() if hasattr(value, "tolist") else list(value) if isinstance(value, tuple) else value


def _is_label(value: Any) -> bool:
    value = _plain(value)
    cells = value if isinstance(value, list) else [value]
    return bool(cells) and all(isinstance(cell, bool | int | float) for cell in cells)


def _is_image(value: Any) -> bool:
    return isinstance(value, Image.Image) or (isinstance(value, Tensor | np.ndarray) and value.ndim >= 2)


def _unreadable(source: Source, bad: Bad, reading: Reading) -> ValueError:
    return ValueError(f"Cannot read {_list(source, bad)}. {reading.advice}")


def _list(source: Source, bad: Bad) -> str:
    named = ", ".join(f"{source.describe(number)} ({reason})" for number, reason in bad[:MOST_NAMED])
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    return f"{len(bad)} of {len(source)} {source.unit}: {named}{more}"
