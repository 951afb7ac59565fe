"""Factor spaces, and data sets that have an image for every point of one."""

import math
import operator
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getattr_static
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from unknot.labels import Kind


@dataclass(frozen=True)
class FactorSpace:
    """Grid of discrete ground-truth factors, with a uniform distribution P(z).

    Grid points are numbered in C order: the last factor changes fastest.

    Args:
        names: names of the factors.
        sizes: number of values of each factor.
        kinds: kind of each factor, ``"categorical"`` (the default), ``"ordered"``, ``"circular"`` or ``"continuous"``
            (the classes are bins of a number).
        levels: values of a factor, by its name: numbers, angles in radians of a circular factor, or strings.
        symmetries: by name of a circular factor, the factor that its symmetry depends on, and the order of the symmetry
            for each value of that factor: ``{"orientation": ("shape", (4, 2, 1))}`` for squares, ellipses and hearts.

    >>> space = FactorSpace(names=("shape", "scale"), sizes=(3, 6))
    >>> space.size, space.num_factors
    (18, 2)
    >>> space.index(torch.tensor([[1, 0], [2, 5]]))
    tensor([ 6, 17])
    >>> space.factors(torch.tensor([6, 17]))
    tensor([[1, 0],
            [2, 5]])
    >>> kinds, symmetries = ("categorical", "circular"), {"angle": ("shape", (2, 1))}
    >>> space = FactorSpace(("shape", "angle"), (2, 4), kinds=kinds, symmetries=symmetries)
    >>> space.values(torch.tensor([[0, 3], [1, 3]])).round(decimals=2)  # half a turn does not change the first shape
    tensor([[0.0000, 1.5700],
            [1.0000, 4.7100]], dtype=torch.float64)
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    kinds: tuple[Kind, ...] = field(default=(), compare=False, repr=False, kw_only=True)
    levels: Mapping[str, Sequence[Any]] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False, kw_only=True
    )
    symmetries: Mapping[str, tuple[str, Sequence[int]]] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False, kw_only=True
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "sizes", tuple(operator.index(size) for size in self.sizes))
        if not self.names or len(self.names) != len(self.sizes):
            raise ValueError(
                f"A factor space needs one size per name: got {len(self.names)} names, {len(self.sizes)} sizes."
            )
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"Factor names must differ, got {self.names}.")
        if min(self.sizes) < 1 or self.size >= 2**63:
            raise ValueError(f"Factor sizes must be at least 1 and multiply to less than 2**63, got {self.sizes}.")
        object.__setattr__(self, "kinds", self._read_kinds(self.kinds))
        object.__setattr__(self, "levels", {name: tuple(values) for name, values in self.levels.items()})
        object.__setattr__(self, "symmetries", dict(self.symmetries))
        size = dict(zip(self.names, self.sizes, strict=True))
        for name, values in self.levels.items():
            if size.get(name) != len(values):
                raise ValueError(f"levels: {name!r} has {len(values)} values; the factor space has {size}.")
        for name, (other, folds) in self.symmetries.items():
            if name not in size or other not in size or size[other] != len(folds) or min(folds) < 1:
                raise ValueError(f"symmetries: {name!r} needs another factor, and an order for each of its values.")

    def _read_kinds(self, kinds: Any) -> tuple[Kind, ...]:
        kinds = tuple(kinds) or ("categorical",) * len(self.names)
        if len(kinds) != len(self.names) or not {*kinds} <= {*get_args(Kind)}:
            raise ValueError(f"kinds must be one of {', '.join(get_args(Kind))} for each factor, got {kinds}.")
        return kinds

    @property
    def observed(self) -> bool:
        """True if only observed combinations are drawn, instead of the whole grid."""
        return False

    @property
    def num_factors(self) -> int:
        """Number of factors."""
        return len(self.sizes)

    @property
    def size(self) -> int:
        """Number of grid points."""
        return math.prod(self.sizes)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``n`` factor vectors i.i.d. and uniformly: int64 ``[n, F]``."""
        return self.factors(torch.randint(self.size, (n,), generator=generator))

    def resample(self, factors: Tensor, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Resample chosen factors ``[n, F]`` and leave the others unchanged."""
        return torch.where(chosen, self.sample(len(factors), generator), factors)

    def index(self, factors: Tensor) -> Tensor:
        """Return the index of each grid point: factors ``[..., F]`` to int64 ``[...]``."""
        factors = self._check(factors)
        index = torch.zeros(factors.shape[:-1], dtype=torch.int64)
        for column, size in enumerate(self.sizes):
            index = index * size + factors[..., column]
        return index

    def factors(self, index: Tensor) -> Tensor:
        """Return the factors of grid points by index: int64 ``[...]`` to ``[..., F]``."""
        index = torch.as_tensor(index)
        if index.is_floating_point() or index.is_complex():
            raise ValueError(f"Grid indices must be integers, got {index.dtype}.")
        index = index.long()
        if index.numel() and not (int(index.min()) >= 0 and int(index.max()) < self.size):
            raise ValueError(f"Grid indices must lie in 0..{self.size - 1}, got {index.min()}..{index.max()}.")
        columns = []
        for size in reversed(self.sizes):
            columns.append(index % size)
            index = index // size
        return torch.stack(columns[::-1], dim=-1)

    def values(self, factors: Tensor) -> Tensor:
        """Return the numeric values of classes ``[..., F]``: float64 ``[..., F]``.

        For categorical factors, and others without known levels, this is the class itself. For circular factors it is
        an angle in radians, reduced by the symmetry of the object, so that equal images have equal values.
        """
        factors = self._check(factors)
        columns = [self._numbers(place, factors[..., place]) for place in range(self.num_factors)]
        for name, (other, folds) in self.symmetries.items():
            period = 2 * math.pi / torch.tensor(folds, dtype=torch.float64)[factors[..., self.names.index(other)]]
            angle = columns[self.names.index(name)]
            turned = torch.remainder(angle, period)
            columns[self.names.index(name)] = torch.where(turned > period - 1e-9, 0, turned)
        return torch.stack(columns, dim=-1)

    def _numbers(self, place: int, classes: Tensor) -> Tensor:
        name, kind = self.names[place], self.kinds[place]
        levels = self.levels.get(name)
        if kind == "circular":
            size = self.sizes[place]
            angles = torch.tensor(levels or [2 * math.pi * i / size for i in range(size)], dtype=torch.float64)
            return torch.remainder(angles, 2 * math.pi)[classes]
        if kind == "categorical" or levels is None or not all(isinstance(value, int | float) for value in levels):
            return classes.double()
        return torch.tensor(levels, dtype=torch.float64)[classes]

    def _check(self, factors: Tensor) -> Tensor:
        factors = torch.as_tensor(factors).cpu()
        if factors.is_floating_point() or factors.is_complex():
            raise ValueError(f"Factors must be integer classes, got {factors.dtype}.")
        if factors.ndim == 0 or factors.shape[-1] != self.num_factors:
            raise ValueError(
                f"Factors must have shape [..., {self.num_factors}] ({', '.join(self.names)}), "
                f"got {list(factors.shape)}."
            )
        if ((factors < 0) | (factors >= torch.tensor(self.sizes))).any():
            raise ValueError(f"Factor out of range: classes start at 0 and sizes are {self.sizes}.")
        return factors.long()


class Licensed:
    """A data set with a license. The former spelling ``licence`` still works and warns."""  # wording: keep

    license: str = "unknown"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        former = vars(cls).get("licence")  # wording: keep
        if isinstance(former, str):
            warnings.warn(f"{cls.__name__}.licence is now called license.", FutureWarning, 2)  # wording: keep
            cls.license = former
            del cls.licence  # wording: keep

    @property
    def licence(self) -> str:  # wording: keep
        """Return the license, by its former name."""
        warnings.warn("licence is now called license.", FutureWarning, 2)  # wording: keep
        return self.license


class GroundTruthDataset(Licensed, Dataset[tuple[Tensor, Tensor]], ABC):
    """Factor space with images p(x | z) for its points.

    Subclasses set ``name``, ``factor_space`` and ``image_shape`` and implement :meth:`observe`; those that draw,
    download or convert something first do so in :meth:`prepare`. If an image is a function of its factors,
    ``stochastic`` is False, and no image needs to be drawn or encoded twice.

    A data set is ``finite`` if its images are a collection and not a full grid: a combination of factors may have no
    image, or several. Scores are then fitted on some images and tested on others, as given by :meth:`split`.
    """

    name: str
    stochastic: bool = True
    grey_levels: int | None = None  # images are multiples of 1 / grey_levels, if known
    factor_space: FactorSpace
    image_shape: tuple[int, int, int]

    @abstractmethod
    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, F]``: float32 ``[N, C, H, W]`` in [0, 1], in one vectorised call.

        ``generator`` provides the randomness of data sets where x is stochastic given z.
        """

    @property
    def finite(self) -> bool:
        """True if some images of a collection have to be held out; by default inferred from the factors."""
        return self.factor_space.observed

    def split(self, test_fraction: float = 1 / 3, seed: int = 0) -> tuple["GroundTruthDataset", "GroundTruthDataset"]:
        """Return two data sets without common images, to fit on and to test on."""
        raise ValueError(
            f"{type(self).__name__} is a finite collection of images without a split method: "
            "scores would be tested on images they were fitted on. Give the ImageDataModule or its ground_truth(), "
            "or implement split(test_fraction, seed), which returns two data sets without common images."
        )

    def prepare(self) -> None:
        """Do slow preparation once, on disk, so that later starts are fast."""

    def is_prepared(self) -> bool:
        """Return whether :meth:`prepare` has nothing left to do."""
        return True

    @property
    def download_size(self) -> int:
        """Approximate number of bytes to download."""
        return 0

    @property
    def disk_size(self) -> int:
        """Bytes of the cached file."""
        return 0

    def cache_key(self) -> str | None:
        """Key for files derived from these images, which changes with them; ``None`` disables such files."""
        return None

    def __len__(self) -> int:
        return self.factor_space.size

    def __repr__(self) -> str:
        """Return shape, number of images and factors, without preparing the data set."""
        try:
            shape, space, count = self.image_shape, self.factor_space, len(self)
        except (AttributeError, OSError, ValueError):  # for a data set that is not fully defined
            return object.__repr__(self)
        factors = ", ".join(f"{name} {size}" for name, size in zip(space.names, space.sizes, strict=True))
        return f"{type(self).__name__}({count:,} images of {' x '.join(map(str, shape))}; {factors})"

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        """Return image and factors of an index; for a slice, a list of indices or a mask, all of them."""
        if isinstance(index, int | np.integer):
            images, factors = self._examples(torch.tensor([range(len(self))[index]]))
            return images[0], factors[0]
        if isinstance(index, slice):
            return self._examples(torch.arange(len(self))[index])
        numbers = torch.as_tensor(index)
        if numbers.dtype == torch.bool:
            if numbers.shape != (len(self),):
                raise IndexError(f"A mask must have {len(self)} entries, got shape {list(numbers.shape)}.")
            numbers = numbers.nonzero()[:, 0]
        if numbers.is_floating_point() or numbers.ndim > 1:
            raise IndexError(f"Images are numbered by whole numbers; got {numbers.dtype} {list(numbers.shape)}.")
        if numbers.ndim == 0:
            return self[int(numbers)]
        numbers = numbers.long()
        if numbers.numel() and not (int(numbers.min()) >= -len(self) and int(numbers.max()) < len(self)):
            raise IndexError(f"Numbers must lie in {-len(self)}..{len(self) - 1}.")
        return self._examples(numbers % len(self))

    def _examples(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return images and factors of grid points ``[n]``."""
        factors = self.factor_space.factors(numbers)
        return self.observe(factors), factors


def check_dataset(dataset: Any) -> None:
    """Check that a data set is an instance with all required attributes."""
    if not isinstance(dataset, GroundTruthDataset):
        raise ValueError(f"dataset must be a ground-truth data set such as DSprites(), got {dataset!r}.")
    required = ("name", "factor_space", "image_shape")  # properties are not evaluated here: they may be slow
    missing = [name for name in required if getattr_static(dataset, name, None) is None and not hasattr(dataset, name)]
    if missing:
        raise ValueError(
            f"{type(dataset).__name__} has no {' and no '.join(missing)}: your own data set must define "
            f"{', '.join(required)}, as attributes of its class for instance."
        )
