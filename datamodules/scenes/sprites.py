"""Flat rendered scenes of several sprites with masks: Multi-dSprites and Tetrominoes."""

import colorsys
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.datamodules.published.dsprites import DSprites
from unknot.datamodules.scenes.drawn import DrawnScenes, target_rows
from unknot.datamodules.scenes.layout import Property

Variant = Literal["binarized", "colored_on_grayscale", "colored_on_colored"]
COUNTS: dict[str, tuple[int, int]] = {
    "binarized": (2, 3),
    "colored_on_grayscale": (2, 5),
    "colored_on_colored": (1, 4),
}
"""Fewest and most sprites of each variant, as published."""
SIDE = 64  # side of an image of Multi-dSprites


class MultiDSprites(DrawnScenes):
    """Several dSprites in one image ``[3, 64, 64]``, which may occlude each other, with masks of visible pixels.

    The variants are those of the published Multi-dSprites: ``"binarized"``, white on black; ``"colored_on_grayscale"``,
    with colours uniform in hue, saturation and value on a uniform grey; ``"colored_on_colored"``, colours and
    background uniform in red, green and blue. Shape, scale, orientation and position of every sprite are uniform on the
    grid of dSprites, and later sprites cover earlier ones; one may hide another completely. The images are not the
    published ones.

    A row of targets is shape (3, one-hot), scale, orientation (cosine and sine, multiplied by the symmetry of the
    shape), x, y, red, green, blue, and 1 for a real object.

    Args:
        variant: variant of the colours.
        min_objects: minimum number of sprites; by default that of the variant.
        max_objects: maximum number of sprites.
        num_scenes: number of scenes in a file, see :class:`~unknot.datamodules.ClevrScenes`.
        seed: seed of the scenes in the file.
        value_range: values of black and white.

    >>> images, targets, masks = MultiDSprites().draw(8, torch.Generator().manual_seed(0))
    >>> images.shape, targets.shape, masks.shape
    (torch.Size([8, 3, 64, 64]), torch.Size([8, 5, 12]), torch.Size([8, 64, 64]))
    """

    name = "multi_dsprites"
    file_name = "multi-dsprites"
    object_size = 12
    properties = (
        Property("shape", 0, 3, "class"),
        Property("scale", 3, 4, "number"),
        Property("orientation", 4, 6, "number"),
        Property("position", 6, 8, "number"),
        Property("color", 8, 11, "number"),
    )

    def __init__(
        self,
        variant: Variant = "colored_on_grayscale",
        min_objects: int | None = None,
        max_objects: int | None = None,
        num_scenes: int | None = None,
        seed: int = 0,
        value_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        if variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {', '.join(get_args(Variant))}, got {variant!r}.")
        fewest, most = COUNTS[variant]
        fewest = fewest if min_objects is None else min_objects
        super().__init__(
            SIDE, max(most, fewest) if max_objects is None else max_objects, fewest, num_scenes, seed, value_range
        )
        self.variant = variant
        self.sprites = DSprites()

    def drawing_options(self) -> list[Any]:
        """Return the options that the rendering depends on: version, variant, sprites and seed."""
        return [1, self.variant, self.min_objects, self.max_objects, self.seed]

    def sample(self, n: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Sample ``n`` scenes: images uint8 ``[n, 3, 64, 64]``, targets ``[n, M, 12]``, masks uint8 ``[n, 64, 64]``."""
        space, most = self.sprites.factor_space, self.max_objects
        real = real_rows(n, self.min_objects, most, generator)
        factors = space.sample(n * most, generator)
        sprites = (self.sprites.observe(factors) > 0).view(n, most, SIDE, SIDE) & real[..., None, None]
        masks = in_front(sprites)
        colors, background = self._colors(n, generator)
        values = space.values(factors).float().view(n, most, -1)
        shape, angle = factors.view(n, most, -1)[..., 0], values[..., 2]
        turned = angle * torch.tensor([4.0, 2.0, 1.0])[shape]
        orientation = torch.stack([turned.cos(), turned.sin()], dim=-1)
        targets = target_rows([F.one_hot(shape, 3), values[..., 1:2], orientation, values[..., 3:], colors], real)
        return painted(masks, colors, background), targets, masks

    def _colors(self, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Draw colours of sprites ``[n, M, 3]`` and of the background ``[n, 3]``."""
        shape = (n, self.max_objects, 3)
        if self.variant == "binarized":
            return torch.ones(shape), torch.zeros(n, 3)
        random = torch.rand(shape, generator=generator)
        if self.variant == "colored_on_colored":
            return random, torch.rand(n, 3, generator=generator)
        return hsv_to_rgb(random), torch.rand(n, 1, generator=generator).expand(-1, 3)


CELL, CELLS = 5, 7  # pixels per cell, and cells along a side
PIECES = {
    "I": ["1111"],
    "O": ["11", "11"],
    "T": ["111", "010"],
    "S": ["011", "110"],
    "Z": ["110", "011"],
    "J": ["100", "111"],
    "L": ["001", "111"],
}
HUES = tuple(tuple(map(float, colorsys.hsv_to_rgb(i / 6, 1, 1))) for i in range(6))
"""Red, yellow, green, cyan, blue and magenta."""
ROUNDS = 1000  # attempts to draw scenes without overlap


def _turned_pieces() -> Tensor:
    """Return all different orientations of the seven pieces in the upper left of 4 x 4 cells: bool ``[19, 4, 4]``."""
    orientations: list[Tensor] = []
    for rows in PIECES.values():
        piece = torch.tensor([[cell == "1" for cell in row] for row in rows])
        for turns in range(4):
            turned = torch.rot90(piece, turns)
            padded = F.pad(turned, (0, 4 - turned.shape[1], 0, 4 - turned.shape[0]))
            if not any(torch.equal(padded, other) for other in orientations):
                orientations.append(padded)
    return torch.stack(orientations)


class Tetrominoes(DrawnScenes):
    """Three tetrominoes without overlap, each in one of six colours, on black: images ``[3, 35, 35]`` with masks.

    Pieces lie on a grid of 7 x 7 cells of 5 pixels. All 19 orientations of the seven pieces occur (of the published
    data set, 17 do), each combination of shape, position and colour equally often among those without an overlap.

    A row of targets is shape (19, one-hot), x, y of the upper left cell from 0 to 1, colour (6, one-hot), and 1 for a
    real object.

    Args:
        num_scenes: number of scenes in a file, see :class:`~unknot.datamodules.ClevrScenes`.
        seed: seed of the scenes in the file.
        value_range: values of black and white.

    >>> images, targets, masks = Tetrominoes().draw(8, torch.Generator().manual_seed(0))
    >>> images.shape, targets.shape, masks.shape
    (torch.Size([8, 3, 35, 35]), torch.Size([8, 3, 28]), torch.Size([8, 35, 35]))
    """

    name = "tetrominoes"
    file_name = "tetrominoes"
    object_size = 28
    properties = (
        Property("shape", 0, 19, "class"),
        Property("position", 19, 21, "number"),
        Property("color", 21, 27, "class"),
    )

    def __init__(
        self, num_scenes: int | None = None, seed: int = 0, value_range: tuple[float, float] = (0.0, 1.0)
    ) -> None:
        super().__init__(CELL * CELLS, 3, 3, num_scenes, seed, value_range)
        self.pieces = _turned_pieces()
        extent = torch.stack([self.pieces.any(1).sum(1), self.pieces.any(2).sum(1)], dim=1)  # columns and rows
        self._room = CELLS - extent + 1  # positions along x and y, [19, 2]

    def drawing_options(self) -> list[Any]:
        """Return the options that the rendering depends on: version and seed."""
        return [1, self.seed]

    def sample(self, n: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Sample ``n`` scenes: images uint8 ``[n, 3, 35, 35]``, targets ``[n, 3, 28]``, masks uint8 ``[n, 35, 35]``."""
        many = self.max_objects
        shape, place = torch.zeros(n, many, dtype=torch.int64), torch.zeros(n, many, 2, dtype=torch.int64)
        cells = torch.zeros(n, many, CELLS, CELLS, dtype=torch.bool)
        left = torch.arange(n)
        for _ in range(ROUNDS):
            drawn = torch.randint(len(self.pieces), (len(left), many), generator=generator)
            at = (torch.rand(len(left), many, 2, generator=generator) * self._room[drawn]).long()
            covered = self._cells(drawn, at)
            good = covered.sum(1).amax((1, 2)) <= 1
            shape[left[good]], place[left[good]], cells[left[good]] = drawn[good], at[good], covered[good]
            left = left[~good]
            if not len(left):
                break
        color = torch.randint(len(HUES), (n, many), generator=generator)
        masks = in_front(cells).repeat_interleave(CELL, 1).repeat_interleave(CELL, 2)
        columns = [F.one_hot(shape, 19), place / (CELLS - 1), F.one_hot(color, len(HUES))]
        targets = target_rows(columns, torch.ones(n, many, dtype=torch.bool))
        return painted(masks, torch.tensor(HUES)[color], torch.zeros(n, 3)), targets, masks

    def _cells(self, shape: Tensor, place: Tensor) -> Tensor:
        """Return the cells covered by pieces ``[n, M]`` at positions (x, y) ``[n, M, 2]``: bool ``[n, M, 7, 7]``."""
        x, y = place[..., 0, None, None], place[..., 1, None, None]
        row = torch.arange(CELLS)[:, None] - y
        column = torch.arange(CELLS) - x
        inside = (row >= 0) & (row < 4) & (column >= 0) & (column < 4)
        return self.pieces[shape[..., None, None], row.clamp(0, 3), column.clamp(0, 3)] & inside


# Common to flat scenes.


def real_rows(n: int, fewest: int, most: int, generator: torch.Generator | None) -> Tensor:
    """Return which rows are objects, in scenes with uniformly distributed numbers of objects: bool ``[n, most]``."""
    count = torch.randint(fewest, most + 1, (n, 1), generator=generator)
    return torch.arange(most) < count


def in_front(covered: Tensor) -> Tensor:
    """Return masks ``[n, H, W]`` of objects that cover pixels ``[n, M, H, W]``, later ones in front: uint8."""
    numbers = torch.arange(1, covered.shape[1] + 1, dtype=torch.uint8)[:, None, None]
    return (covered * numbers).amax(1)


def painted(masks: Tensor, colors: Tensor, background: Tensor) -> Tensor:
    """Return images uint8 ``[n, 3, H, W]`` of masks in colours ``[n, M, 3]`` on a background ``[n, 3]``."""
    palette = (255 * torch.cat([background[:, None], colors], dim=1) + 0.5).to(torch.uint8)
    flat = palette.gather(1, masks.flatten(1).long()[..., None].expand(-1, -1, 3))
    return flat.unflatten(1, masks.shape[1:]).permute(0, 3, 1, 2).contiguous()


def hsv_to_rgb(hsv: Tensor) -> Tensor:
    """Convert hue, saturation and value to red, green and blue, all in [0, 1]: ``[..., 3]``.

    >>> hsv_to_rgb(torch.tensor([[0.5, 1.0, 1.0], [0.0, 0.5, 0.8]]))
    tensor([[0.0000, 1.0000, 1.0000],
            [0.8000, 0.4000, 0.4000]])
    """
    hue, saturation, value = hsv.unbind(-1)
    offset = torch.tensor([5.0, 3.0, 1.0])
    k = torch.remainder(offset + 6 * hue[..., None], 6)
    return value[..., None] * (1 - saturation[..., None] * torch.minimum(k, 4 - k).clamp(0, 1))
