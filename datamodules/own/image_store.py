"""One's own images, of equal shape, wherever they come from: files, an array, or a data set of torch."""

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset
from tqdm.auto import tqdm

from unknot._files import cache_dir
from unknot.datamodules.grid import Bytes, Grid, fingerprint, made_once
from unknot.datamodules.own.decode import (
    EXTENSIONS,
    Crop,
    as_frames,
    convert,
    fit_image,
    fit_tensor,
    image_files,
    read_image,
    to_gray,
)

CHUNK = 256  # images that are decoded at a time
MOST_NAMED = 20  # files in one message
Bad = list[tuple[int, str]]
"""Numbers of files that cannot be read, and why."""


@dataclass(frozen=True)
class Reading:
    """What becomes of the images: their size, in channels and pixels, and what to do about bad files.

    Args:
        size: (height, width); ``None`` is 64 x 64 for files, and the size that they have for all others.
        crop: what of an image is resized.
        grayscale: one channel instead of three.
        background: what shows through transparent parts.
        skip: leave out files that cannot be read.
        advice: what to do about them otherwise.
    """

    size: tuple[int, int] | None = None
    crop: Crop = "fit"
    grayscale: bool = False
    background: str = "white"
    skip: bool = False
    advice: str = "Repair or remove them."


class Items:
    """Images that a data set of torch gives one by one, alone or as the first of several things."""

    def __init__(self, dataset: Any, reading: Reading) -> None:
        self.dataset, self.reading = dataset, reading
        self.shape = (len(dataset), *self._get(0).shape)

    def take(self, index: Tensor) -> Tensor:
        """Copies of the images ``index``."""
        images = [self._get(number) for number in index.tolist()]
        if other := [list(image.shape) for image in images if image.shape != self.shape[1:]]:
            raise ValueError(
                f"The data set has images of shape {list(self.shape[1:])} and of {other[0]}; give image_size, to which "
                "all are resized."
            )
        return torch.stack(images)

    def _get(self, number: int) -> Tensor:
        item = self.dataset[number]
        image = item[0] if isinstance(item, tuple | list) else item
        reading = self.reading
        if isinstance(image, Image.Image):
            picture = convert(image, "L" if reading.grayscale else "RGB", reading.background)
            size = reading.size or (reading.crop if not isinstance(reading.crop, str) else (image.height, image.width))
            return torch.from_numpy(np.ascontiguousarray(fit_image(picture, size, reading.crop)))
        if not isinstance(image, Tensor | np.ndarray):
            raise ValueError(
                f"Item {number} of the data set is of type {type(image).__name__}; expected an image, as a tensor, an "
                "array or a Pillow image, or a tuple that begins with one."
            )
        whole = as_frames(torch.as_tensor(image)[None], f"Item {number} of the data set")
        return _fit(whole, reading)[0]


@dataclass(frozen=True)
class Pictures:
    """Images of equal shape, uint8 or float, and the files they came from."""

    rows: Grid | Tensor | Items
    numbers: Tensor | None = None  # rows that could be read; all where None
    names: tuple[str, ...] = ()  # of the files, in the order of the rows
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers) if self.numbers is not None else self.num_rows

    @property
    def num_rows(self) -> int:
        """Images with the unreadable ones."""
        return int(self._shape[0])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        channels, height, width = self._shape[1:]
        return channels, height, width

    def take(self, index: Tensor) -> Tensor:
        """Images number ``index``: float32 ``[n, C, H, W]`` in [0, 1]."""
        index = index if self.numbers is None else self.numbers[index]
        if isinstance(self.rows, Grid):
            rows = torch.from_numpy(self.rows.take(index.numpy()))
        else:
            rows = self.rows[index] if isinstance(self.rows, Tensor) else self.rows.take(index)
        return rows if rows.is_floating_point() else rows / 255

    @property
    def _shape(self) -> Any:
        return self.rows.rows.shape if isinstance(self.rows, Grid) else self.rows.shape


def open_pictures(images: object, reading: Reading) -> Pictures:
    """Images from whatever an ``ImageDataModule`` takes."""
    if isinstance(images, str | Path) and Path(images).suffix.lower() != ".npy":
        folder = Path(images)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder. Give a folder of images, a list of files or an array.")
        found = image_files(folder, below=True)
        if not found:
            raise FileNotFoundError(f"{folder}: no images here or below; looked for {', '.join(EXTENSIONS)}.")
        return from_files(found, tuple(path.relative_to(folder).as_posix() for path in found), reading)
    if isinstance(images, list | tuple):
        if not images:
            raise ValueError("images is an empty list; give at least two files.")
        if all(isinstance(image, str | Path) for image in images):
            return from_files([Path(image) for image in images], tuple(map(str, images)), reading)
        if all(isinstance(image, Image.Image) for image in images):
            return Pictures(Items(images, reading))
    if isinstance(images, IterableDataset) or (isinstance(images, Dataset) and not hasattr(images, "__len__")):
        raise ValueError("A data set of images must have a length and numbers; give a DataLoader of it to the Trainer.")
    if isinstance(images, Dataset):
        return Pictures(Items(images, reading))
    return from_array(images, reading)


def from_files(paths: list[Path], names: tuple[str, ...], reading: Reading) -> Pictures:
    """Images of files, decoded once into the cache."""
    size = reading.size or (64, 64)
    shape = (len(paths), 1 if reading.grayscale else 3, *size)
    there = [path for path in paths if path.exists()]
    key = fingerprint(there, names, shape, reading.crop, reading.background)
    read = partial(read_image, size=size, crop=reading.crop, grayscale=reading.grayscale, background=reading.background)
    bad: Bad = []
    grid = made_once(
        cache_dir() / f"images-{key}.npy",
        shape,
        lambda: _decode(paths, read, shape, bad, reading),
        note=bad,  # filled while they are decoded
    )
    if not grid.note:
        return Pictures(grid, names=names)
    if not reading.skip:
        raise _unreadable(paths, grid.note, reading)
    warnings.warn(f"Left out {_list(paths, grid.note)}.", stacklevel=2)
    lost = {number for number, _ in grid.note}
    kept = [number for number in range(len(paths)) if number not in lost]
    return Pictures(
        grid, torch.tensor(kept), tuple(names[number] for number in kept), tuple(names[number] for number in lost)
    )


def _decode(
    paths: list[Path],
    read: Callable[[Path], Bytes],
    shape: tuple[int, ...],
    bad: Bad,
    reading: Reading,
) -> Iterator[Bytes]:
    """The images of files in chunks; black, and an entry in ``bad``, for those that cannot be read."""

    def attempt(number: int) -> Bytes:
        try:
            return read(paths[number])
        except Exception as error:  # Pillow's decoders raise all kinds
            bad.append((number, " ".join(str(error).split()) or type(error).__name__))
            return np.zeros(shape[1:], dtype=np.uint8)

    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,  # Pillow decodes without the interpreter's lock
        tqdm(desc="reading images", total=len(paths), unit="image", disable=None, leave=False) as bar,
    ):
        for start in range(0, len(paths), CHUNK):
            chunk = list(pool.map(attempt, range(start, min(start + CHUNK, len(paths)))))
            yield np.stack(chunk)
            bar.update(len(chunk))
    bad.sort()
    if bad and not reading.skip:
        raise _unreadable(paths, bad, reading)


def from_array(images: Any, reading: Reading, name: str = "images") -> Pictures:
    """Images of an array, a tensor or a ``.npy`` file."""
    if isinstance(images, str | Path):
        name = str(images)
        try:
            images = np.load(images, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{name}: not a readable .npy file ({error}).") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is read-only: nobody writes to it
        rows = as_frames(images, name)
    return Pictures(_fit(rows, reading))


def _fit(rows: Tensor, reading: Reading) -> Tensor:
    rows = to_gray(rows) if reading.grayscale and rows.shape[1] != 1 else rows
    height, width = rows.shape[2:]
    size = reading.size or ((height, width) if isinstance(reading.crop, str) else reading.crop)
    if (height, width) == size and isinstance(reading.crop, str):
        return rows
    return torch.cat([fit_tensor(chunk, size, reading.crop) for chunk in rows.split(CHUNK)])


def _unreadable(paths: list[Path], bad: Bad, reading: Reading) -> ValueError:
    return ValueError(f"Cannot read {_list(paths, bad)}. {reading.advice}")


def _list(paths: list[Path], bad: Bad) -> str:
    named = ", ".join(f"{paths[number]} ({reason})" for number, reason in bad[:MOST_NAMED])
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    return f"{len(bad)} of {len(paths)} files: {named}{more}"
