"""Pairs of rendered scenes that differ in few object properties, and scenes of one object with factors."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unknot.arguments import height_and_width
from unknot.clevr_objects import COLORS, MATERIALS, SHAPES, SIZES
from unknot.datamodules.factors import FactorSpace
from unknot.datamodules.grid import Bytes, GridDataset
from unknot.datamodules.pairs import check_k, num_changes
from unknot.datamodules.scenes.clevr_scenes import (
    DIRECTIONS,
    MARGIN,
    MIN_GAP,
    MIN_VISIBLE,
    ClevrScenes,
    draw_scenes,
    sample_scenes,
    visible_pixels,
)
from unknot.datamodules.scenes.layout import RADII, Scenes
from unknot.datamodules.stream import StreamDataModule
from unknot.files import cache_dir

PROPERTIES = ("size", "material", "shape", "color", "place")
"""Properties of an object that may be resampled."""
CLASSES = {"size": len(SIZES), "material": len(MATERIALS), "shape": len(SHAPES), "color": len(COLORS)}
MOST_TRIES = 200  # attempts to resample a scene by CLEVR's rules
GRID = 8  # positions along each axis
VERSION = 1  # version of the rendering


class ClevrObject(GridDataset):
    """One CLEVR-like object with six factors: size, material, shape, colour and its position on a grid.

    The 6,144 images of all combinations are rendered once into the cache, so that every metric applies. The camera and
    the lamps have CLEVR's positions without jitter, and the object is not rotated.

    Args:
        image_size: (height, width), or one number for both.

    >>> ClevrObject(32)
    ClevrObject(6,144 images of 3 x 32 x 32; size 2, material 2, shape 3, color 8, x 8, y 8)
    """

    name = "clevr_object"
    title = "scenes of one object"
    license = "drawn here"
    doing = "drawing"
    stochastic = False
    grey_levels = 255
    factor_space = FactorSpace(
        (*CLASSES, "x", "y"),
        (*CLASSES.values(), GRID, GRID),
        kinds=("ordered", "categorical", "categorical", "categorical", "ordered", "ordered"),
        levels={name: tuple(torch.linspace(-3, 3, GRID).tolist()) for name in "xy"},
    )

    def __init__(self, image_size: int | tuple[int, int] = 64) -> None:
        super().__init__()
        self.image_size = height_and_width(image_size)
        self.image_shape = (3, *self.image_size)

    def read(self, paths: Any) -> Iterator[Bytes]:
        """Yield images in grid order."""
        for numbers in torch.arange(self.factor_space.size).split(512):
            images, _ = draw_scenes(self.scenes(self.factor_space.factors(numbers)), self.image_size)
            yield images.numpy()

    def scenes(self, factors: Tensor) -> Scenes:
        """Return the layouts of factors ``[N, 6]``."""
        size, material, shape, color, x, y = self.factor_space.factors(self.factor_space.index(factors)).T[..., None]
        across = torch.linspace(-3, 3, GRID)
        coords = torch.stack([across[x], across[y], torch.tensor(RADII)[size]], dim=-1)
        real = torch.ones_like(size, dtype=torch.bool)
        return Scenes(coords, size, material, shape, color, torch.zeros_like(size, dtype=torch.float32), real)

    def _cache_path(self) -> Any:
        return cache_dir() / f"clevr-object-{self.image_size[0]}x{self.image_size[1]}-{VERSION}.npy"


class ScenePairDataModule(StreamDataModule):
    """Pairs of scenes whose second scene has one or k object properties resampled.

    All else is the same. A property is the size, material, shape, colour or position of one object. As for
    :class:`PairDataModule`, half of the pairs resample one property and the others k, and a resampled property may keep
    its old value. CLEVR's rules hold for the second scene too: a property whose new value would make objects collide or
    hide one is drawn again, and keeps its old value if no attempt succeeds.

    A batch is ``(first, second)``, each ``[N, 3, H, W]``, or ``(first, second, changed)``, or with targets
    ``(first, second, changed, first_targets, second_targets)``, the sets of :meth:`Scenes.targets`.

    Args:
        dataset: endless scenes.
        k: number of properties that may change, from 1 to one less than those of the smallest scene, or ``"rnd"``: for
            every pair uniformly one of these numbers.
        exactly_k: always resample k properties.
        group_label: add ``changed`` ``[N]``, one resampled property: 5 times the index of the object, plus 0 for its
            size, 1 for material, 2 for shape, 3 for colour, 4 for position.
        with_targets: add ``changed`` and the objects of both scenes.
        stream: arguments of :class:`StreamDataModule`.

    >>> data = ScenePairDataModule(ClevrScenes(32, max_objects=3, min_objects=1), k=1, batch_size=4, seed=0)
    >>> first, second = next(iter(data.train_dataloader()))
    >>> first.shape, second.shape
    (torch.Size([4, 3, 32, 32]), torch.Size([4, 3, 32, 32]))
    """

    def __init__(
        self,
        dataset: ClevrScenes,
        k: int | Literal["rnd"] = "rnd",
        exactly_k: bool = False,
        group_label: bool = False,
        with_targets: bool = False,
        **stream: Any,
    ) -> None:
        super().__init__(**stream)
        if not isinstance(dataset, ClevrScenes) or not dataset.endless:
            raise ValueError(f"dataset must be endless ClevrScenes, without num_scenes, got {dataset!r}.")
        most = len(PROPERTIES) * dataset.min_objects - 1
        self.dataset, self.exactly_k = dataset, exactly_k
        self.k = check_k(k, most, f"the properties of {dataset.min_objects} objects")
        self.group_label, self.with_targets = group_label, with_targets

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the images, for the model."""
        return (3, *self.dataset.image_size)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw one batch of pairs."""
        data = self.dataset
        first = sample_scenes(self.batch_size, generator, data.min_objects, data.max_objects, data.image_size)
        chosen, changed = choose_properties(first.real, self.k, self.exactly_k, data.min_objects, generator)
        second, drawn = resample_scenes(first, chosen, data.image_size, data.samples, generator)
        images = [data._floats(part) for part in (draw_scenes(first, data.image_size, data.samples)[0], drawn)]
        if self.with_targets:
            return (*images, changed, first.targets(data.max_objects), second.targets(data.max_objects))
        return (*images, changed) if self.group_label else tuple(images)


def choose_properties(
    real: Tensor, k: int | Literal["rnd"], exactly_k: bool, min_objects: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Choose properties of objects ``[B, M]`` to resample, bool ``[B, M, 5]``, and the index of one of them ``[B]``."""
    count = num_changes(len(real), len(PROPERTIES) * min_objects, k, exactly_k, generator)
    there = real.repeat_interleave(len(PROPERTIES), dim=1)
    order = (torch.rand(there.shape, generator=generator) + ~there).argsort(1)  # of those that are there first
    chosen = torch.zeros_like(there).scatter_(1, order, torch.arange(there.shape[1]) < count[:, None])
    return chosen.unflatten(1, (-1, len(PROPERTIES))), order[:, 0]


def resample_scenes(
    first: Scenes, chosen: Tensor, image_size: tuple[int, int], samples: int, generator: torch.Generator
) -> tuple[Scenes, Tensor]:
    """Return scenes with the chosen properties ``[B, M, 5]`` resampled by CLEVR's rules, and their images, uint8."""
    second = first
    images = torch.empty(len(first), 3, *image_size, dtype=torch.uint8)
    fewest = max(1, int(np.ceil(MIN_VISIBLE * image_size[0] * image_size[1])))
    left = torch.arange(len(first))
    for attempt in range(MOST_TRIES + 1):
        proposed = first[left] if attempt == MOST_TRIES else _proposed(first[left], chosen[left], generator)
        fits = _has_room(proposed).nonzero()[:, 0]
        drawn, masks = draw_scenes(proposed[fits], image_size, samples)
        visible = visible_pixels(masks, first.real.shape[1])
        good = ((visible >= fewest) | ~proposed.real[fits]).all(1)
        good = torch.ones_like(good) if attempt == MOST_TRIES else good
        done = left[fits[good]]
        images[done] = drawn[good]
        second = _replaced(second, done, proposed[fits[good]])
        remaining = torch.ones(len(left), dtype=torch.bool)
        remaining[fits[good]] = False
        left = left[remaining]
        if not len(left):
            break
    return second, images


def _proposed(scenes: Scenes, chosen: Tensor, generator: torch.Generator) -> Scenes:
    parts: dict[str, Tensor] = {}
    shape = scenes.real.shape
    for place, (name, count) in enumerate(CLASSES.items()):
        new = torch.randint(count, shape, generator=generator)
        parts[name] = torch.where(chosen[..., place], new, getattr(scenes, name))
    somewhere = 6 * torch.rand(*shape, 2, generator=generator) - 3
    ground = torch.where(chosen[..., 4:], somewhere, scenes.coords[..., :2])
    height = torch.tensor(RADII)[parts["size"]]
    parts["coords"] = torch.cat([ground, torch.where(scenes.real, height, scenes.coords[..., 2])[..., None]], dim=-1)
    return dataclasses.replace(scenes, **parts)


def _has_room(scenes: Scenes) -> Tensor:
    """Return whether objects keep CLEVR's gap and margins: bool ``[B]``."""
    radius = torch.tensor(RADII)[scenes.size]
    x, y = (scenes.coords[:, :, None, :2] - scenes.coords[:, None, :, :2]).unbind(-1)
    fits = x * x + y * y >= (MIN_GAP + radius[:, :, None] + radius[:, None]).square()
    for right, front in DIRECTIONS:
        fits &= (right * x + front * y).abs() >= MARGIN
    both = scenes.real[:, :, None] & scenes.real[:, None] & ~torch.eye(radius.shape[1], dtype=torch.bool)
    return (fits | ~both).all(2).all(1)


def _replaced(scenes: Scenes, numbers: Tensor, others: Scenes) -> Scenes:
    fields = {field.name: getattr(scenes, field.name).clone() for field in dataclasses.fields(Scenes)}
    for name, values in fields.items():
        values[numbers] = getattr(others, name)
    return Scenes(**fields)
