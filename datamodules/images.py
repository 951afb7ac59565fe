"""One's own images: a folder tree, a list of files, an array or a tensor, and what is known about them."""

import csv
import math
import operator
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.transforms.v2 import functional as transforms
from tqdm.auto import tqdm

from unknot._files import cache_dir
from unknot._modes import evaluation_mode
from unknot._seeding import Stream, derive_seed
from unknot.datamodules.download import one_at_a_time
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.grid import Bytes, Grid, fingerprint, open_grid, write_grid
from unknot.datamodules.pairs import as_frames, natural_order
from unknot.datamodules.stream import StreamDataModule

Split = Literal["train", "val", "all"]
CHUNK = 256  # images that are decoded, or represented, at a time
MOST_NAMED = 20  # files in one message


class ImageDataModule(StreamDataModule):
    """I.i.d. batches of one's own images ``[N, C, H, W]`` in [0, 1], exactly resumable and different on every rank.

    Files are decoded and resized once, with a progress bar, and kept in the cache as a memory-mapped file; a changed
    file, or another size, makes it anew. Arrays and tensors stay where they are.

    Args:
        images: a folder, searched with all its sub-folders; a list of files; a ``.npy`` file; or an array or tensor
            ``[N, C, H, W]`` or ``[N, H, W, C]``, uint8 or floats in [0, 1].
        image_size: side, or (height, width), to resize to. By default 64 for files; arrays keep their size.
        crop: what of an image is resized: ``"fit"``, the largest centred part of the right aspect ratio; ``"none"``,
            all of it, stretched; or (height, width) in pixels around the centre.
        grayscale: one channel instead of three.
        labels: factors of variation, for the metrics: the path of a CSV table with a header, whose first column is the
            file, as a path from the folder or as in the list, and whose other columns are factors; for arrays all
            columns are factors and row n is of image n. Or an integer array ``[N, F]``.
        factors: names of the columns to use; by default all.
        num_bins: a column of fractions with more values than this is cut into as many bins of equal width; in every
            other column each value is a class of its own.
        val_fraction: part of the images that is held out, the same whatever the seed.
        unreadable: what to do about files that cannot be read: ``"error"``, or ``"skip"`` with a warning that names
            them.
        batch_size: images per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same images every time.
        num_workers: processes that prepare batches.
        seed: of the stream; ``None`` takes, in a Trainer, the one of ``seed_everything``.

    >>> data = ImageDataModule(torch.rand(100, 3, 64, 64), batch_size=16, seed=0)
    >>> next(iter(data.train_dataloader())).shape, data.image_shape
    (torch.Size([16, 3, 64, 64]), (3, 64, 64))
    """

    def __init__(
        self,
        images: str | Path | np.ndarray | Tensor | Sequence[str | Path],
        image_size: int | tuple[int, int] | None = None,
        crop: Literal["fit", "none"] | tuple[int, int] = "fit",
        grayscale: bool = False,
        labels: str | Path | np.ndarray | Tensor | None = None,
        factors: Sequence[str] | None = None,
        num_bins: int = 20,
        val_fraction: float = 0.1,
        unreadable: Literal["error", "skip"] = "error",
        batch_size: int = 64,
        num_val_batches: int = 16,
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, num_val_batches, num_workers, seed)
        if not 0 < val_fraction < 1:
            raise ValueError(f"val_fraction must lie between 0 and 1, got {val_fraction}.")
        if unreadable not in ("error", "skip"):
            raise ValueError(f"unreadable must be 'error' or 'skip', got {unreadable!r}.")
        if num_bins < 2:
            raise ValueError(f"num_bins must be at least 2, got {num_bins}.")
        self.images = images
        self.image_size = None if image_size is None else _two("image_size", image_size)
        self.crop = crop if crop == "fit" or crop == "none" else _two("crop", crop)
        self.grayscale = grayscale
        self.labels = labels
        self.factors = factors
        self.num_bins = num_bins
        self.val_fraction = val_fraction
        self.unreadable = unreadable

    def prepare_data(self) -> None:
        """Decode the files, once per machine."""
        _ = self.pictures

    def setup(self, stage: str) -> None:
        """Open the images, and read the labels where mistakes in them should show before training."""
        super().setup(stage)
        _ = self.pictures
        if self.labels is not None:
            _ = self.table

    @cached_property
    def pictures(self) -> "Pictures":
        """All readable images."""
        pictures = _from_array(self) if (paths := _paths(self.images)) is None else _from_paths(self, *paths)
        if len(pictures) < 2:
            raise ValueError(f"{len(pictures)} readable images; at least two are needed, to train and to hold out.")
        return pictures

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the images, for the model."""
        return self.pictures.shape

    @cached_property
    def table(self) -> "Table":
        """The labels of all readable images."""
        if self.labels is None:
            raise ValueError("These images have no labels; give ImageDataModule a table of them: labels='factors.csv'.")
        if not isinstance(self.labels, str | Path):
            return _array_table(self.labels, self.pictures, self.factors)
        return _csv_table(Path(self.labels), self.pictures, self.factors, self.num_bins, self.unreadable == "skip")

    def indices(self, split: Split = "all") -> Tensor:
        """Numbers of the images that train, are held out, or both."""
        if split not in get_args(Split):
            raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}.")
        n = len(self.pictures)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(0, Stream.HELD_OUT_DATA)))
        held_out = min(max(1, round(n * self.val_fraction)), n - 1)
        return {"train": order[held_out:], "val": order[:held_out], "all": torch.arange(n)}[split].sort().values

    @cached_property
    def _splits(self) -> tuple[Tensor, Tensor]:
        return self.indices("train"), self.indices("val")

    def draw(self, generator: torch.Generator) -> Tensor:
        """One training batch: images ``[batch_size, C, H, W]``."""
        return self._draw(self._splits[0], generator)

    def draw_held_out(self, generator: torch.Generator) -> Tensor:
        """One validation batch, of images that never train."""
        return self._draw(self._splits[1], generator)

    def _draw(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        return self.pictures.take(indices[torch.randint(len(indices), (self.batch_size,), generator=generator)])

    @torch.no_grad()
    def codes(self, model: Any, split: Split = "all") -> tuple[Tensor, Tensor]:
        """Codes ``[N, D]`` of the images of a split and their factors ``[N, F]``: what every metric takes.

        Args:
            model: a model with ``represent(images) -> codes``, or such a function.
            split: which images.

        >>> images = torch.rand(50, 1, 8, 8)
        >>> brightness = (images.mean((1, 2, 3)) * 10).long()
        >>> data = ImageDataModule(images, labels=torch.stack([brightness, torch.arange(50) % 3], dim=1))
        >>> codes, factors = data.codes(lambda x: x.mean((2, 3)))
        >>> codes.shape, factors.shape
        (torch.Size([50, 1]), torch.Size([50, 2]))
        """
        indices = self.indices(split)
        factors = self.table.factors[indices]
        represent: Callable[[Tensor], Any] = getattr(model, "represent", model)
        if isinstance(model, torch.nn.Module):
            device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
            with evaluation_mode(model):
                return self._represent(lambda images: represent(images.to(device)), indices), factors
        return self._represent(represent, indices), factors

    def _represent(self, represent: Callable[[Tensor], Any], indices: Tensor) -> Tensor:
        chunks = tqdm(indices.split(CHUNK), desc="representing", unit="batch", disable=None, leave=False)
        return torch.cat([torch.as_tensor(represent(self.pictures.take(chunk))).cpu() for chunk in chunks])

    def ground_truth(self, split: Split = "all") -> "LabelledImageDataset":
        """The labelled images of a split as a data set that ``evaluate`` and the other DataModules take.

        Scores that predict from held-out draws see the same images twice, as there are no others; for those rather
        compute ``dci(*data.codes(model, "train"), *data.codes(model, "val"))`` and the like.
        """
        return LabelledImageDataset(self.pictures, self.table, self.indices(split))


# Images.


@dataclass(frozen=True)
class Pictures:
    """Images of equal shape, uint8 or float, and the files they came from."""

    rows: Grid | Tensor
    numbers: Tensor | None = None  # rows that could be read; all where None
    names: tuple[str, ...] = ()  # of the files, in the order of the rows
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers) if self.numbers is not None else self.num_rows

    @property
    def num_rows(self) -> int:
        """Images with the unreadable ones."""
        return len(self._array)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        channels, height, width = self._array.shape[1:]
        return channels, height, width

    def take(self, index: Tensor) -> Tensor:
        """Images number ``index``: float32 ``[n, C, H, W]`` in [0, 1]."""
        index = index if self.numbers is None else self.numbers[index]
        rows = torch.from_numpy(self.rows.take(index.numpy())) if isinstance(self.rows, Grid) else self.rows[index]
        return rows if rows.is_floating_point() else rows / 255

    @property
    def _array(self) -> Any:
        return self.rows.rows if isinstance(self.rows, Grid) else self.rows


def _paths(images: object) -> tuple[list[Path], tuple[str, ...]] | None:
    """Image files and the names that a table gives them, or ``None`` for arrays."""
    if isinstance(images, str | Path) and Path(images).suffix.lower() != ".npy":
        folder = Path(images)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder. Give a folder of images, a list of files or an array.")
        below = (path.relative_to(folder) for path in folder.rglob("*") if path.suffix.lower() in IMG_EXTENSIONS)
        found = [path for path in below if not any(part.startswith(".") for part in path.parts)]
        if not found:
            raise FileNotFoundError(f"{folder}: no images here or below; looked for {', '.join(IMG_EXTENSIONS)}.")
        found.sort(key=lambda path: [natural_order(Path(part)) for part in path.parts])
        return [folder / path for path in found], tuple(path.as_posix() for path in found)
    if isinstance(images, list | tuple) and all(isinstance(image, str | Path) for image in images):
        if not images:
            raise ValueError("images is an empty list; give at least two files.")
        return [Path(image) for image in images], tuple(str(image) for image in images)
    return None


def _from_paths(module: ImageDataModule, paths: list[Path], names: tuple[str, ...]) -> Pictures:
    size = module.image_size or (64, 64)
    read = partial(read_image, image_size=size, crop=module.crop, grayscale=module.grayscale)
    shape = (len(paths), 1 if module.grayscale else 3, *size)
    there = [path for path in paths if path.exists()]
    cached = cache_dir() / f"images-{fingerprint(there, names, shape, module.crop)}.npy"
    grid = open_grid(cached, shape)
    if grid is None:
        with one_at_a_time(cached):
            grid = open_grid(cached, shape)
            if grid is None:
                bad: list[tuple[int, str]] = []
                chunks = _decode(paths, read, shape, bad, fatal=module.unreadable == "error")
                write_grid(cached, shape, chunks, note=bad)
                grid = open_grid(cached, shape)
    if grid is None:
        raise OSError(f"{cached} cannot be read back after writing it; is the disk full or failing?")
    if not grid.note:
        return Pictures(grid, names=names)
    if module.unreadable == "error":
        raise _unreadable(paths, grid.note)
    warnings.warn(f"Left out {_list(paths, grid.note)}.", stacklevel=2)
    lost = {number for number, _ in grid.note}
    kept = [number for number in range(len(paths)) if number not in lost]
    return Pictures(
        grid, torch.tensor(kept), tuple(names[number] for number in kept), tuple(names[number] for number in lost)
    )


def _decode(
    paths: list[Path], read: Callable[[Path], Bytes], shape: tuple[int, ...], bad: list[tuple[int, str]], fatal: bool
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
    if bad and fatal:
        raise _unreadable(paths, bad)


def read_image(
    path: Path, image_size: tuple[int, int], crop: Literal["fit", "none"] | tuple[int, int], grayscale: bool
) -> Bytes:
    """One file as uint8 ``[C, H, W]``, upright, cropped and resized."""
    height, width = image_size
    with Image.open(path) as image:
        if isinstance(crop, str):
            image.draft(None, (2 * max(image_size),) * 2)  # large JPEGs decode faster at a fraction of their size
        upright = ImageOps.exif_transpose(image)
        # Pillow would clip 16-bit images instead of scaling them.
        whole = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8)) if upright.mode[0] == "I" else upright
        picture = whole.convert("L" if grayscale else "RGB")
        across, down = picture.size
        if crop == "fit":
            scale = min(across / width, down / height)
            part = (height * scale, width * scale)
        else:
            part = (down, across) if crop == "none" else crop
        left, top = (across - part[1]) / 2, (down - part[0]) / 2
        if min(left, top) < 0:
            raise ValueError(f"{across} x {down} pixels, too small to crop {part[1]} x {part[0]}")
        box = (left, top, left + part[1], top + part[0])
        pixels = np.asarray(picture.resize((width, height), box=box))
    return pixels[None] if grayscale else pixels.transpose(2, 0, 1)


def _from_array(module: ImageDataModule) -> Pictures:
    """Images of an array, a tensor or a ``.npy`` file."""
    images: Any = module.images
    if isinstance(images, str | Path):
        try:
            images = np.load(images, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{images}: not a readable .npy file ({error}).") from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it is read-only: nobody writes to it
            rows = as_frames(images, str(module.images))
    else:
        rows = as_frames(images, "images")
    if module.grayscale and rows.shape[1] != 1:
        rows = transforms.rgb_to_grayscale(rows[:, :3])
    height, width = rows.shape[2:]
    size = module.image_size or ((height, width) if isinstance(module.crop, str) else module.crop)
    if (height, width) != size or not isinstance(module.crop, str):
        rows = torch.cat([_resize(chunk, size, module.crop) for chunk in rows.split(CHUNK)])
    return Pictures(rows)


def _resize(images: Tensor, size: tuple[int, int], crop: Literal["fit", "none"] | tuple[int, int]) -> Tensor:
    height, width = images.shape[2:]
    if crop == "fit":
        scale = min(height / size[0], width / size[1])
        part = [round(size[0] * scale), round(size[1] * scale)]
    else:
        part = [height, width] if crop == "none" else list(crop)
    if part[0] > height or part[1] > width:
        raise ValueError(f"Images of {height} x {width} are too small to crop {part[0]} x {part[1]}.")
    resized = transforms.resize(transforms.center_crop(images, part), list(size), antialias=True)
    return resized if resized.dtype == torch.uint8 else resized.clamp(0, 1)


def _two(name: str, value: Any) -> tuple[int, int]:
    """(height, width) from one or two positive whole numbers."""
    try:
        height, width = map(operator.index, value if isinstance(value, tuple | list) else (value, value))
        if min(height, width) < 1:
            raise ValueError
    except (TypeError, ValueError):
        also = "" if name == "image_size" else "'fit', 'none' or "
        raise ValueError(f"{name} must be {also}positive whole numbers (height, width), got {value!r}.") from None
    return height, width


def _unreadable(paths: list[Path], bad: list[tuple[int, str]]) -> ValueError:
    return ValueError(f"Cannot read {_list(paths, bad)}. Repair or remove them, or give unreadable='skip'.")


def _list(paths: list[Path], bad: list[tuple[int, str]]) -> str:
    named = ", ".join(f"{paths[number]} ({reason})" for number, reason in bad[:MOST_NAMED])
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    return f"{len(bad)} of {len(paths)} files: {named}{more}"


# Labels.


@dataclass(frozen=True)
class Table:
    """Classes ``[N, F]`` of every image, and what they stand for."""

    factors: Tensor
    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]  # of every factor, in the order of its classes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes of every factor."""
        return tuple(map(len, self.values))


def _array_table(labels: Any, pictures: Pictures, names: Sequence[str] | None) -> Table:
    factors, n = torch.as_tensor(labels), pictures.num_rows
    if factors.is_floating_point() or factors.ndim != 2 or len(factors) != n or 0 in factors.shape:
        raise ValueError(
            f"labels must be integers [{n}, F], a row for every image, got {factors.dtype} {list(factors.shape)}."
        )
    factors = factors if pictures.numbers is None else factors[pictures.numbers]
    names = tuple(names or (f"factor_{column}" for column in range(factors.shape[1])))
    if len(names) != factors.shape[1]:
        raise ValueError(f"{len(names)} names in `factors` for {factors.shape[1]} columns of labels.")
    distinct = [column.unique(return_inverse=True) for column in factors.T]
    values = tuple(tuple(map(str, values.tolist())) for values, _ in distinct)
    return Table(torch.stack([classes for _, classes in distinct], dim=1), names, values)


def _csv_table(path: Path, pictures: Pictures, wanted: Sequence[str] | None, num_bins: int, lenient: bool) -> Table:
    header, rows = _read_csv(path)
    keyed = bool(pictures.names)
    columns = header[keyed:]
    for name in wanted or columns[:1]:
        if name not in columns:
            raise ValueError(f"{path}: no column {name!r}; there are {', '.join(columns)}.")
    if not columns:
        raise ValueError(f"{path}: no columns of factors in its header.")
    if keyed:
        rows = _match(path, rows, pictures, lenient)
    elif len(rows) != len(pictures):
        raise ValueError(f"{path}: {len(rows)} rows for {len(pictures)} images; row n is of image n.")
    names = tuple(wanted or columns)
    classes, values = zip(
        *(_classes(path, name, [row[header.index(name)] for row in rows], num_bins) for name in names), strict=True
    )
    return Table(torch.stack(classes, dim=1), names, values)


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


def _match(path: Path, rows: list[list[str]], pictures: Pictures, lenient: bool) -> list[list[str]]:
    """The rows in the order of the images."""
    by_name: dict[str, list[str]] = {}
    for row in rows:
        if by_name.setdefault(row[0].strip(), row) is not row:
            raise ValueError(f"{path}: two rows for {row[0]}.")
    bare = [name for name in pictures.names if name not in by_name]
    if bare:
        raise ValueError(
            f"{path}: no row for {len(bare)} of {len(pictures.names)} images, such as {bare[0]}; its first column "
            f"holds names like {rows[0][0] if rows else 'this'}."
        )
    absent = sorted(by_name.keys() - {*pictures.names, *pictures.skipped})
    if absent:
        message = f"{path}: {len(absent)} of its rows name images that are not there: {', '.join(absent[:MOST_NAMED])}"
        if not lenient:
            raise ValueError(f"{message}. Correct it, or give unreadable='skip'.")
        warnings.warn(f"{message}; left out.", stacklevel=2)
    return [by_name[name] for name in pictures.names]


def _classes(path: Path, name: str, cells: list[str], num_bins: int) -> tuple[Tensor, tuple[str, ...]]:
    """Classes of the cells of a column, and what they stand for."""
    cells = [cell.strip() for cell in cells]
    if "" in cells:
        raise ValueError(f"{path}: an empty cell in column {name!r}; every image needs a value.")
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


@dataclass(frozen=True)
class ObservedSpace(FactorSpace):
    """A factor space of which only some points were seen, some more often than others: P(z) is what was seen."""

    rows: Tensor = field(default_factory=lambda: torch.empty(0, 0), compare=False, repr=False)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``n`` of the factor vectors seen: int64 ``[n, F]``."""
        return self.rows[torch.randint(len(self.rows), (n,), generator=generator)]


class LabelledImageDataset(GroundTruthDataset):
    """One's own labelled images as a ground-truth data set.

    Factors are drawn as often as they occur. For a combination of which there are several images, one is drawn; for
    one of which there is none, :meth:`observe` is an error: metrics that intervene need them all, others do not.
    """

    name = "own images"
    licence = "one's own"

    def __init__(self, pictures: Pictures, table: Table, indices: Tensor) -> None:
        rows = table.factors[indices]
        self.factor_space = ObservedSpace(table.names, table.sizes, rows)
        self.image_shape = pictures.shape
        self.values = table.values
        self._pictures = pictures
        self._sorted, order = self.factor_space.index(rows).sort(stable=True)
        self._indices = indices[order]
        self._points, self._counts = self._sorted.unique_consecutive(return_counts=True)
        self._starts = self._counts.cumsum(0) - self._counts

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """An image for each of the factors ``[N, F]``: float32 ``[N, C, H, W]`` in [0, 1]."""
        points = self.factor_space.index(factors)
        slots = torch.searchsorted(self._points, points).clamp(max=len(self._points) - 1)
        if (unseen := self._points[slots] != points).any():
            first = torch.as_tensor(factors)[unseen][0].tolist()
            named = zip(self.factor_space.names, self.values, first, strict=True)
            raise ValueError(
                "There is no image with " + ", ".join(f"{name} = {values[each]}" for name, values, each in named) + ". "
                "Scores that choose their own factors need images of all combinations; use observational ones."
            )
        counts = self._counts[slots]
        drawn = (torch.rand(points.shape, generator=generator) * counts).long().minimum(counts - 1)
        return self._pictures.take(self._indices[self._starts[slots] + drawn])

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        number = range(len(self))[index]
        image = self._pictures.take(self._indices[number : number + 1])[0]
        return image, self.factor_space.factors(self._sorted[number])
