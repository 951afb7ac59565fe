"""ClevrScenes: CLEVR-like scenes, sampled by the rules of CLEVR and ray-cast instead of downloaded."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from unknot.arguments import height_and_width, whole
from unknot.clevr_objects import COLORS, MATERIALS, OBJECT_SIZE, SHAPES, SIZES
from unknot.datamodules.scenes.drawn import DrawnScenes
from unknot.datamodules.scenes.layout import CAMERA, CLEVR_PROPERTIES, FRAME, LAMPS, RADII, Scenes
from unknot.datamodules.scenes.raycast import Hits, Kind, Solids, cast, cast_outlines
from unknot.datamodules.scenes.shading import ground, shade

# Sampling: the rules of CLEVR's generator.

MIN_GAP = 0.25  # gap between the discs on which two objects stand
MARGIN = 0.4  # minimum distance of two objects to the right and to the front
DIRECTIONS = ((0.6563112735748291, 0.7544902563095093), (0.754490315914154, -0.6563112735748291))  # right, front
TRIES = 50  # attempts to place an object before the scene is restarted
MAX_ROUNDS = 1000  # attempts to restart scenes
CAMERA_JITTER, LAMP_JITTER = 0.5, 1.0
MIN_VISIBLE = 200 / (320 * 480)  # share of the frame: 200 pixels in an original image


def sample_scenes(
    n: int,
    generator: torch.Generator | None = None,
    min_objects: int = 3,
    max_objects: int = 10,
    image_size: int | tuple[int, int] = 128,
    min_visible: float = MIN_VISIBLE,
) -> Scenes:
    """Sample ``n`` layouts as CLEVR's generator does.

    The number of objects is uniform, as are the attributes of each and its place on the square (-3, 3)². Objects keep a
    gap of 0.25 and differ by 0.4 to the right and to the front. If 50 attempts find no room for an object, or if less
    of an object than ``min_visible`` would be visible, the scene is restarted with the same number of objects.

    Args:
        n: number of scenes.
        generator: random generator.
        min_objects: minimum number of objects.
        max_objects: maximum number of objects, and number of rows.
        image_size: (height, width), or one number for both, at which visible pixels are counted.
        min_visible: share of all pixels in which every object must be visible; at least one pixel.

    >>> scenes = sample_scenes(4, torch.Generator().manual_seed(0))
    >>> scenes.coords.shape, scenes.real.sum(1)
    (torch.Size([4, 10, 3]), tensor([ 7, 10,  8,  3]))
    """

    def uniform(*shape: int) -> Tensor:
        return 2 * torch.rand(*shape, generator=generator) - 1

    whole("n", n)
    whole("max_objects", max_objects, least=whole("min_objects", min_objects))
    pixels = math.prod(height_and_width(image_size))
    count = torch.randint(min_objects, max_objects + 1, (n,), generator=generator)
    camera = torch.tensor(CAMERA) + CAMERA_JITTER * uniform(n, 3)
    lamps = torch.tensor(LAMPS) + LAMP_JITTER * uniform(n, 3, 3)
    fewest = max(1, math.ceil(min_visible * pixels))

    done = torch.zeros(n, dtype=torch.bool)
    parts: list[Scenes] = []
    numbers: list[Tensor] = []
    for rounds in itertools.count():
        left = torch.nonzero(~done)[:, 0]
        if not len(left):
            break
        if rounds == MAX_ROUNDS:
            raise ValueError(
                f"{len(left)} of {n} scenes found no room for {min_objects} to {max_objects} objects of which every "
                f"one shows {fewest} pixels of {pixels}; lower max_objects or min_visible."
            )
        # Ten objects rarely fit, so the fewer scenes are left, the more attempts run for each at once.
        attempts = left.repeat_interleave(math.ceil(n / len(left)))
        size = torch.randint(len(SIZES), (len(attempts), max_objects), generator=generator)
        coords, fits = _place(torch.tensor(RADII)[size], count[attempts], generator)
        fitting = torch.nonzero(fits)[:, 0]
        number = attempts[fitting]
        first = torch.diff(number, prepend=torch.tensor([-1])) > 0
        fitting, number = fitting[first], number[first]
        shape = (len(number), max_objects)
        scenes = Scenes(
            coords[fitting],
            size[fitting],
            material=torch.randint(len(MATERIALS), shape, generator=generator),
            shape=torch.randint(len(SHAPES), shape, generator=generator),
            color=torch.randint(len(COLORS), shape, generator=generator),
            rotation=180 + 180 * uniform(*shape),
            real=torch.arange(max_objects) < count[number, None],
            camera=camera[number],
            lamps=lamps[number],
        )
        visible = visible_pixels(draw_masks(scenes, image_size), max_objects)
        good = ((visible >= fewest) | ~scenes.real).all(1)
        done[number[good]] = True
        parts.append(scenes[good])
        numbers.append(number[good])
    return Scenes.cat(parts)[torch.cat(numbers).argsort()]


def _place(radius: Tensor, count: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Return centres ``[K, M, 3]`` of objects of ``radius`` ``[K, M]``, and whether the first ``count`` ``[K]`` fit."""
    k, m = radius.shape
    (right_x, right_y), (front_x, front_y) = DIRECTIONS
    places = torch.zeros(2, k, m)
    fits = torch.ones(k, dtype=torch.bool)
    for i in range(m):
        rows = torch.nonzero(fits & (count > i))[:, 0]
        tries = 6 * torch.rand(2, len(rows), TRIES, generator=generator) - 3
        x, y = tries[..., None] - places[:, rows, None, :i]  # each [rows, tries, earlier objects]
        reach = MIN_GAP + radius[rows, i, None] + radius[rows, :i]
        good = (x * x + y * y >= reach.square()[:, None]) & ((right_x * x + right_y * y).abs() >= MARGIN)
        good = (good & ((front_x * x + front_y * y).abs() >= MARGIN)).all(-1)
        first = good.int().argmax(1)
        places[:, rows, i] = tries[:, torch.arange(len(rows)), first]
        fits[rows] = good.any(1)
    return torch.stack([*places, radius], dim=-1), fits


def visible_pixels(masks: Tensor, max_objects: int) -> Tensor:
    """Count the pixels of masks ``[B, H, W]`` that show each object: int64 ``[B, max_objects]``."""
    flat = masks.flatten(1).long() + (max_objects + 1) * torch.arange(len(masks))[:, None]
    return flat.flatten().bincount(minlength=len(masks) * (max_objects + 1)).view(-1, max_objects + 1)[:, 1:]


CHUNK_PIXELS = 1 << 18  # per call, so that intermediate results stay in the CPU cache


def draw_scenes(
    scenes: Scenes, image_size: int | tuple[int, int] = 128, samples: int = 2, frame: tuple[int, int] = FRAME
) -> tuple[Tensor, Tensor]:
    """Render layouts: images uint8 ``[B, 3, H, W]``, and masks uint8 ``[B, H, W]``.

    A mask is 0 where the ray through the centre of a pixel meets the ground, and i + 1 where it meets the object of row
    i. Rendering is deterministic.

    Args:
        scenes: layouts to render.
        image_size: (height, width), or one number for both.
        samples: rays per pixel along each side, for smooth outlines; 1 is fastest.
        frame: height and width of the camera's frame, which is resized to ``image_size`` as CLEVR's images are.

    >>> scenes = sample_scenes(2, torch.Generator().manual_seed(0))
    >>> images, masks = draw_scenes(scenes, image_size=64)
    >>> images.shape, masks.shape
    (torch.Size([2, 3, 64, 64]), torch.Size([2, 64, 64]))
    """
    size = height_and_width(image_size)
    whole("samples", samples)
    images = torch.empty(len(scenes), 3, *size, dtype=torch.uint8)
    masks = torch.empty(len(scenes), *size, dtype=torch.uint8)
    for part, out_images, out_masks in _chunks(scenes, size, images, masks):
        camera, solids = part.view(frame), _solids(part)
        hits = cast(camera, solids, size)
        out_masks[:] = _masks(part, hits, size)
        canvas = torch.zeros(len(part) * size[0] * size[1], 4)  # colour, and its share of the pixel
        canvas.index_copy_(0, hits.pixel, shade(part, solids, hits))
        if samples > 1:
            edges, closer = cast_outlines(camera, solids, size, hits, samples)
            canvas.index_fill_(0, edges, 0.0)
            canvas.index_add_(0, closer.pixel, shade(part, solids, closer), alpha=1 / samples**2)
        canvas = canvas.view(-1, *size, 4).permute(0, 3, 1, 2)
        drawn = canvas[:, :3] + (1 - canvas[:, 3:]) * ground(part, size, frame)
        out_images[:] = (255 * drawn + 0.5).clamp(0, 255).to(torch.uint8)
    return images, masks


def draw_masks(scenes: Scenes, image_size: int | tuple[int, int] = 128, frame: tuple[int, int] = FRAME) -> Tensor:
    """Render only the masks of :func:`draw_scenes`: uint8 ``[B, H, W]``."""
    size = height_and_width(image_size)
    masks = torch.empty(len(scenes), *size, dtype=torch.uint8)
    for part, out in _chunks(scenes, size, masks):
        out[:] = _masks(part, cast(part.view(frame), _solids(part), size), size)
    return masks


def _chunks(scenes: Scenes, size: tuple[int, int], *results: Tensor) -> Iterator[tuple[Any, ...]]:
    """Yield the scenes and the rows of their results in parts that fit into the CPU cache."""
    step = max(1, CHUNK_PIXELS // (size[0] * size[1]))
    for start in range(0, len(scenes), step):
        part = slice(start, start + step)
        yield scenes[part], *(result[part] for result in results)


_KINDS = tuple({"cube": Kind.CUBE, "sphere": Kind.SPHERE, "cylinder": Kind.CYLINDER}[shape] for shape in SHAPES)


def _solids(scenes: Scenes) -> Solids:
    real = scenes.real
    return Solids(
        scene=real.nonzero()[:, 0],
        kind=torch.tensor(_KINDS)[scenes.shape[real]],
        centre=scenes.coords[real],
        scale=torch.tensor(RADII)[scenes.size[real]],
        angle=scenes.rotation[real],
    )


def _masks(scenes: Scenes, hits: Hits, size: tuple[int, int]) -> Tensor:
    row = scenes.real.nonzero()[:, 1]
    masks = torch.zeros(len(scenes) * size[0] * size[1], dtype=torch.uint8)
    masks.scatter_(0, hits.pixel, (row + 1).to(torch.uint8).index_select(0, hits.solid))
    return masks.view(-1, *size)


class ClevrScenes(DrawnScenes):
    """CLEVR-like scenes with masks, rendered instead of downloaded: endless, or a fixed number in a file.

    Layouts follow the rules of CLEVR's generator (:func:`sample_scenes`). Camera, colours and targets are CLEVR's; the
    appearance is similar, within the limits of a ray-caster without reflections (:func:`draw_scenes`).

    Args:
        image_size: (height, width), or one number for both. As in the reference, the 3:2 frame is resized to it.
        max_objects: maximum number of objects, and rows of a target.
        min_objects: minimum number of objects.
        num_scenes: render this many scenes once, into a cached file; ``None`` renders new ones for every batch.
        seed: seed of the scenes in the file. (Endless scenes use the generator passed to :meth:`draw`.)
        value_range: values of black and white; (-1, 1) in the reference.
        samples: rays per pixel along each side at outlines; 1 is fastest.

    >>> dataset = ClevrScenes(image_size=64, max_objects=6)
    >>> images, targets, masks = dataset.draw(8, torch.Generator().manual_seed(0))
    >>> images.shape, targets.shape, masks.shape
    (torch.Size([8, 3, 64, 64]), torch.Size([8, 6, 19]), torch.Size([8, 64, 64]))
    """

    name = "clevr_scenes"
    file_name = "clevr-scenes"
    object_size = OBJECT_SIZE
    properties = CLEVR_PROPERTIES

    def __init__(
        self,
        image_size: int | tuple[int, int] = 128,
        max_objects: int = 10,
        min_objects: int = 3,
        num_scenes: int | None = None,
        seed: int = 0,
        value_range: tuple[float, float] = (0.0, 1.0),
        samples: int = 2,
    ) -> None:
        super().__init__(image_size, max_objects, min_objects, num_scenes, seed, value_range)
        if self.max_objects > MOST_OBJECTS:
            raise ValueError(f"max_objects must be at most {MOST_OBJECTS}, got {max_objects}: more do not fit.")
        self.samples = whole("samples", samples)

    def sample(self, n: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Sample ``n`` scenes: images uint8 ``[n, 3, H, W]``, targets ``[n, M, 19]`` and masks uint8 ``[n, H, W]``."""
        scenes = sample_scenes(n, generator, self.min_objects, self.max_objects, self.image_size)
        images, masks = draw_scenes(scenes, self.image_size, self.samples)
        return images, scenes.targets(self.max_objects), masks

    def drawing_options(self) -> list[Any]:
        """Return the options that the rendering depends on: objects, rays and seed."""
        return [VERSION, self.min_objects, self.max_objects, self.samples, self.seed]


VERSION = 1  # version of the rendering; files of other versions are rendered again
MOST_OBJECTS = 11
