"""Views of a ground-truth data set: its images at another resolution, or a coarser grid of its factors."""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.arguments import height_and_width
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset, check_dataset
from unknot.datamodules.grid import CHUNK, Bytes, Grid, made_once, open_grid, with_progress
from unknot.files import cache_dir

STEPS = 65535  # levels of a 16-bit value


class View(GroundTruthDataset):
    """View of another data set; a subclass changes its factors or its images."""

    def __init__(self, dataset: GroundTruthDataset) -> None:
        check_dataset(dataset)
        self.dataset = dataset
        self.license = dataset.license
        self.stochastic = dataset.stochastic
        self.grey_levels = dataset.grey_levels
        self.factor_space = dataset.factor_space
        self.image_shape = dataset.image_shape

    @property
    def finite(self) -> bool:
        """True if the images behind the view are a collection of which some have to be held out."""
        return self.dataset.finite

    def split(self, test_fraction: float = 1 / 3, seed: int = 0) -> tuple["View", "View"]:
        """Return two views, of the two parts of the data set behind this one."""
        views = copy(self), copy(self)
        for view, part in zip(views, self.dataset.split(test_fraction, seed), strict=True):
            view.dataset, view.factor_space = part, part.factor_space
        return views

    def __len__(self) -> int:
        return len(self.dataset) if self.finite else super().__len__()

    def _examples(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        if not self.finite:
            return super()._examples(numbers)
        images, factors = self.dataset[numbers]
        return self.changed(images), factors

    def changed(self, images: Tensor) -> Tensor:
        """Return images of the data set as the view shows them."""
        return images

    def prepare(self) -> None:
        """Prepare the data set behind the view."""
        self.dataset.prepare()

    def is_prepared(self) -> bool:
        """Return whether the data set behind the view is prepared."""
        return self.dataset.is_prepared()

    @property
    def download_size(self) -> int:
        """Approximate number of bytes to download."""
        return self.dataset.download_size


class Resized(View):
    """Data set at another resolution: every pixel is the mean of the area that it covers.

    If an image is a function of its factors, all images are resized once and cached in a memory-mapped file, with one
    byte per value if that is exact (dSprites at half its side: 755 MB), else with two (Rooms3D and Shapes3D at 32 x 32:
    2.9 GB). Published images whose side is shrunk by an integer factor up to 16 are exact; all others are within
    1/131,070. If images are random given their factors, each is averaged when it is drawn.

    Args:
        dataset: data set of the images.
        size: side, or (height, width).
        cached: keep the images on disk; ``False`` averages them at every draw. Your own data set needs a
            ``cache_key()`` to be cached, which distinguishes old files from new ones.

    >>> from unknot.datamodules import DSprites
    >>> dataset = Resized(DSprites(), 32, cached=False)
    >>> dataset.image_shape, dataset.name
    ((1, 32, 32), 'dsprites_32')
    >>> factors = dataset.factor_space.sample(4)
    >>> small, large = dataset.observe(factors), dataset.dataset.observe(factors)
    >>> torch.equal(small, torch.nn.functional.avg_pool2d(large, 2))
    True
    """

    def __init__(self, dataset: GroundTruthDataset, size: int | tuple[int, int], cached: bool = True) -> None:
        super().__init__(dataset)
        self.size = height, width = height_and_width(size, "size")
        channels, *full = dataset.image_shape
        self.image_shape = (channels, height, width)
        self.name = f"{dataset.name}_{height}" if height == width else f"{dataset.name}_{height}x{width}"
        exact = dataset.grey_levels is not None and full[0] % height == full[1] % width == 0
        levels = (dataset.grey_levels or 0) * math.prod(full) // (height * width)
        self.grey_levels = levels if exact else None
        self._steps = levels if exact and levels <= STEPS else STEPS
        self.cached = cached and not dataset.stochastic and not dataset.finite
        self._grid: Grid | None = None

    def cache_key(self) -> str | None:
        """Return the key of the data set, with the size."""
        key = self.dataset.cache_key()
        return None if key is None else f"{key}-{self.size[0]}x{self.size[1]}"

    @property
    def disk_size(self) -> int:
        """Bytes of the cached file, in addition to those of the data set."""
        return math.prod(self._stored) if self._path else 0

    @property
    def _path(self) -> Path | None:
        key = self.cache_key() if self.cached else None
        return None if key is None else cache_dir() / f"{key}.npy"

    @property
    def _stored(self) -> tuple[int, ...]:
        channels, height, width = self.image_shape
        return (self.factor_space.size, channels, height, width * (1 if self._steps <= 255 else 2))

    def prepare(self) -> None:
        """Average all images, unless they are cached."""
        if self._grid is None:
            if path := self._path:
                self._grid = made_once(path, self._stored, self._make)
            else:
                self.dataset.prepare()

    def is_prepared(self) -> bool:
        """Return whether the images are cached."""
        if self._grid is not None:
            return True
        try:
            path = self._path
        except (OSError, ValueError):  # the source does not exist
            return False
        return self.dataset.is_prepared() if path is None else open_grid(path, self._stored) is not None

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, F]``: float32 ``[N, C, H, W]`` in [0, 1], with the new height and width."""
        self.prepare()
        if self._grid is None:
            return self.changed(self.dataset.observe(factors, generator))
        rows = self._grid.take(self.factor_space.index(factors).numpy())
        pixels = rows if self._steps <= 255 else rows.view("<u2")
        # NumPy runs in this thread; waking torch's threads would cost more than it saves here.
        return torch.from_numpy(np.divide(pixels, np.float32(self._steps), dtype=np.float32))

    def changed(self, images: Tensor) -> Tensor:
        """Average images to the size."""
        return area_average(images, self.size)

    def _make(self) -> Iterator[Bytes]:
        self.dataset.prepare()
        return with_progress(self._chunks(), len(self), f"resizing {self.dataset.name} to {self.size[0]} pixels")

    def _chunks(self) -> Iterator[Bytes]:
        space = self.factor_space
        for start in range(0, space.size, CHUNK):
            factors = space.factors(torch.arange(start, min(start + CHUNK, space.size)))
            steps = area_average(self.dataset.observe(factors), self.size).mul_(self._steps).round_()
            pixels = steps.clamp_(0, self._steps).numpy()
            yield pixels.astype(np.uint8) if self._steps <= 255 else pixels.astype("<u2").view(np.uint8)


def area_average(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize images ``[N, C, H, W]``: every pixel is the mean of the area that it covers.

    >>> area_average(torch.tensor([[[[0.0, 3.0, 6.0]]]]), (1, 2))
    tensor([[[[1., 5.]]]])
    """
    height, width = images.shape[2:]
    if height % size[0] == width % size[1] == 0:
        return F.avg_pool2d(images, (height // size[0], width // size[1]))
    return _shares(height, size[0]) @ images @ _shares(width, size[1]).T


def _shares(old: int, new: int) -> Tensor:
    """Return the share of each new pixel along an axis that each old pixel covers: ``[new, old]``."""
    starts = torch.arange(new, dtype=torch.float64)[:, None] * (old / new)
    pixels = torch.arange(old, dtype=torch.float64)
    covered = torch.minimum(starts + old / new, pixels + 1) - torch.maximum(starts, pixels)
    return (covered.clamp(min=0) * (new / old)).float()


class Coarse(View):
    """View of a data set with only some values of each factor, at equal steps.

    Value i of n is value ⌊i m / n⌋ of the original m, as in the study of abstract visual reasoning, so that 15
    orientations reduced to 4 are the orientations 0, 3, 7, 11.

    Args:
        dataset: data set of the images.
        sizes: number of values of every factor, in order, or of some by name.

    >>> from unknot.datamodules import Rooms3D
    >>> dataset = Coarse(Rooms3D(), {"scale": 4, "orientation": 4})
    >>> dataset.factor_space.sizes, len(dataset)
    ((10, 10, 10, 4, 4, 4), 64000)
    >>> dataset.fine(torch.tensor([[9, 9, 9, 1, 3, 2]]))
    tensor([[9, 9, 9, 2, 3, 7]])
    """

    def __init__(self, dataset: GroundTruthDataset, sizes: Sequence[int] | Mapping[str, int]) -> None:
        super().__init__(dataset)
        if self.finite:
            raise ValueError(f"{dataset.name} does not have an image of every combination: it cannot be made coarser.")
        space = dataset.factor_space
        if isinstance(sizes, Mapping):
            if unknown := sorted(sizes.keys() - {*space.names}):
                raise ValueError(f"{dataset.name} has no factor {unknown[0]!r}; there are {', '.join(space.names)}.")
            sizes = [sizes.get(name, size) for name, size in zip(space.names, space.sizes, strict=True)]
        self.sizes = tuple(operator.index(size) for size in sizes)
        if len(self.sizes) != space.num_factors:
            raise ValueError(
                f"sizes must be {space.num_factors} whole numbers, one for each of {', '.join(space.names)}, "
                f"got {self.sizes}."
            )
        for name, size, most in zip(space.names, self.sizes, space.sizes, strict=True):
            if not 1 <= size <= most:
                raise ValueError(
                    f"{name} of {dataset.name} has {most} values; from 1 to {most} can be shown, not {size}."
                )
        self.name = f"{dataset.name}_{'x'.join(map(str, self.sizes))}"
        angles = {
            name: [2 * math.pi * i / size for i in range(size)]
            for name, size, kind in zip(space.names, space.sizes, space.kinds, strict=True)
            if kind == "circular"
        }
        picked = {  # original value of each new one
            name: [i * most // size for i in range(size)]
            for name, size, most in zip(space.names, self.sizes, space.sizes, strict=True)
        }
        self.factor_space = FactorSpace(
            space.names,
            self.sizes,
            kinds=space.kinds,
            levels={name: [values[i] for i in picked[name]] for name, values in (angles | dict(space.levels)).items()},
            symmetries={
                name: (other, [folds[i] for i in picked[other]]) for name, (other, folds) in space.symmetries.items()
            },
        )

    def cache_key(self) -> str | None:
        """Return the key of the data set, with the sizes."""
        key = self.dataset.cache_key()
        return None if key is None else f"{key}-{'x'.join(map(str, self.sizes))}"

    def fine(self, factors: Tensor) -> Tensor:
        """Return the original factors ``[..., F]`` of factors of this view."""
        factors = self.factor_space.factors(self.factor_space.index(factors))  # checked, and int64
        return factors * torch.tensor(self.dataset.factor_space.sizes) // torch.tensor(self.sizes)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, F]``: float32 ``[N, C, H, W]`` in [0, 1]."""
        return self.dataset.observe(self.fine(factors), generator)
