"""RoomScenes: several objects in the room of Rooms3D, rendered with masks."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.datamodules.scenes.drawn import DrawnScenes, target_rows
from unknot.datamodules.scenes.layout import Property
from unknot.datamodules.scenes.raycast import Camera, Kind, Solids, cast, rays
from unknot.datamodules.scenes.rooms3d import HALF_ROOM, LAMP, object_light, view_from
from unknot.datamodules.scenes.sprites import hsv_to_rgb, real_rows

SHAPES = (Kind.CUBE, Kind.CYLINDER, Kind.SPHERE, Kind.CAPSULE)
HUES = 10
SCALES = (0.35, 0.6)  # scale of the smallest and the largest object
REACH = 1.7  # maximum distance of objects from the middle of the room
WALL_HEIGHT = 3.0  # height above which the sky is visible
SWING = 30.0  # maximum angle of the camera from the middle, in degrees
SAMPLES = 2  # rays per pixel along each side
TRIES = 40  # attempts to place an object before its scene is resampled
CHUNK = 32  # scenes cast at once
SURFACES = ("floor", "back wall", "side wall", "sky")


class RoomScenes(DrawnScenes):
    """Up to three objects in a coloured room, seen from a random angle: images ``[3, H, W]`` with masks.

    Similar to Objects Room (Kabra et al., 2019), with the camera, the lamp and the solids of
    :class:`~unknot.datamodules.Rooms3D`. Shape, size, hue and position of objects, hues of floor, walls and sky, and
    the camera angle are uniform; objects do not overlap on the floor. The images are not the published ones. The test
    sets of Objects Room are available as arguments: empty rooms (``max_objects=1, min_objects=0`` in every second
    scene), ``min_objects=6, max_objects=6``, and ``same_color=True``.

    A row of targets is shape (4, one-hot), scale, x and y on the floor, each from 0 to 1, hue (10, one-hot), and 1 for
    a real object. Masks are 0 for the room and i + 1 for the object of row i; with ``surfaces`` floor, back wall, side
    wall and sky follow as ``max_objects`` + 1 to + 4, so that every pixel belongs to something.

    Args:
        image_size: (height, width), or one number for both.
        max_objects: maximum number of objects.
        min_objects: minimum number of objects; 0 to include empty rooms.
        same_color: give all objects of a scene the same hue.
        surfaces: distinguish the surfaces of the room in masks.
        num_scenes: number of scenes in a file, see :class:`~unknot.datamodules.ClevrScenes`.
        seed: seed of the scenes in the file.
        value_range: values of black and white.

    >>> images, targets, masks = RoomScenes(32).draw(4, torch.Generator().manual_seed(0))
    >>> images.shape, targets.shape, masks.shape
    (torch.Size([4, 3, 32, 32]), torch.Size([4, 3, 18]), torch.Size([4, 32, 32]))
    """

    name = "room_scenes"
    file_name = "room-scenes"
    object_size = 18
    fewest_objects = 0
    properties = (
        Property("shape", 0, 4, "class"),
        Property("scale", 4, 5, "number"),
        Property("position", 5, 7, "number"),
        Property("color", 7, 17, "class"),
    )

    def __init__(
        self,
        image_size: int | tuple[int, int] = 64,
        max_objects: int = 3,
        min_objects: int = 1,
        same_color: bool = False,
        surfaces: bool = False,
        num_scenes: int | None = None,
        seed: int = 0,
        value_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        super().__init__(image_size, max_objects, min_objects, num_scenes, seed, value_range)
        if self.max_objects > 8:
            raise ValueError(f"max_objects must be at most 8, got {max_objects}: more do not fit.")
        self.same_color, self.surfaces = same_color, surfaces

    def drawing_options(self) -> list[Any]:
        """Return the options that the rendering depends on: version, objects, colours, surfaces and seed."""
        return [1, self.min_objects, self.max_objects, self.same_color, self.surfaces, self.seed]

    def sample(self, n: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Sample ``n`` scenes: images uint8 ``[n, 3, H, W]``, targets ``[n, M, 18]`` and masks uint8 ``[n, H, W]``."""

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator)

        most = self.max_objects
        real = real_rows(n, self.min_objects, most, generator)
        shape = torch.randint(len(SHAPES), (n, most), generator=generator)
        scale, place = _place(n, most, generator)
        hue = torch.randint(HUES, (n, most), generator=generator)
        if self.same_color:
            hue = hue[:, :1].expand(-1, most)
        room = torch.randint(HUES, (n, 3), generator=generator)  # floor, walls and sky
        azimuth = torch.deg2rad(SWING * (2 * uniform(n) - 1))
        size_share = (scale - SCALES[0]) / (SCALES[1] - SCALES[0])
        on_floor = (place + REACH) / (2 * REACH)
        columns = [F.one_hot(shape, len(SHAPES)), size_share[..., None], on_floor, F.one_hot(hue, HUES)]
        targets = target_rows(columns, real)
        images = torch.empty(n, 3, *self.image_size, dtype=torch.uint8)
        masks = torch.empty(n, *self.image_size, dtype=torch.uint8)
        for part in torch.arange(n).split(CHUNK):
            scene = (shape[part], scale[part], place[part], real[part], azimuth[part])
            fine = (SAMPLES * self.image_size[0], SAMPLES * self.image_size[1])
            colors = _hues(torch.cat([room[part], hue[part]], dim=1))
            light = _draw(*scene, colors, fine)
            images[part] = (255 * F.avg_pool2d(light, SAMPLES) + 0.5).clamp(0, 255).to(torch.uint8)
            masks[part] = self._masks(*scene, self.image_size)
        return images, targets, masks

    def _masks(
        self, shape: Tensor, scale: Tensor, place: Tensor, real: Tensor, azimuth: Tensor, size: tuple[int, int]
    ) -> Tensor:
        camera = view_from(azimuth)
        solids, row = _solids(shape, scale, place, real)
        masks = (_surface(camera, size)[0] + self.max_objects + 1) if self.surfaces else None
        flat = torch.zeros(len(shape) * size[0] * size[1], dtype=torch.int64) if masks is None else masks.flatten()
        if len(row):
            hits = cast(camera, solids, size)
            flat[hits.pixel] = row[hits.solid] + 1
        return flat.view(-1, *size).to(torch.uint8)


def _place(n: int, most: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Draw scales ``[n, M]`` and positions (x, y) ``[n, M, 2]`` of objects that do not overlap."""
    scale, place = torch.zeros(n, most), torch.zeros(n, most, 2)
    left = torch.arange(n)
    while len(left):
        scale[left] = SCALES[0] + (SCALES[1] - SCALES[0]) * torch.rand(len(left), most, generator=generator)
        fits = torch.ones(len(left), dtype=torch.bool)
        for i in range(most):
            tries = REACH * (2 * torch.rand(len(left), TRIES, 2, generator=generator) - 1)
            gap = (tries[:, :, None] - place[left][:, None, :i]).norm(dim=-1)  # [left, tries, earlier]
            # The corner of a cube is at √2 of its scale, about 1.42.
            good = (gap > 1.42 * (scale[left][:, i, None] + scale[left][:, :i])[:, None]).all(-1)
            first = good.int().argmax(1)
            place[left, i] = tries[torch.arange(len(left)), first]
            fits &= good.any(1)
        left = left[~fits]
    return scale, place


def _solids(shape: Tensor, scale: Tensor, place: Tensor, real: Tensor) -> tuple[Solids, Tensor]:
    """Return the real objects of all scenes as solids, and the row of each."""
    scene, row = real.nonzero().unbind(1)
    centre = torch.cat([place[real], scale[real][:, None]], dim=1)
    kind = torch.tensor(SHAPES)[shape[real]]
    return Solids(scene, kind, centre, scale[real], torch.zeros(len(row))), row


def _surface(camera: Camera, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the index of the surface that each ray meets, ``[B, H, W]``, and the position, ``[B, H, W, 3]``."""
    direction = rays(camera, size)
    position = camera.position[:, None, None]
    to_sides = (HALF_ROOM * direction[..., :2].sign() - position[..., :2]) / direction[..., :2]
    to_floor = torch.where(direction[..., 2] < 0, -position[..., 2] / direction[..., 2], torch.inf)
    t = torch.minimum(to_sides.amin(-1), to_floor)
    point = position + t[..., None] * direction
    wall = 1 + (to_sides[..., 0] <= to_sides[..., 1]).long()  # 2 for the side walls
    surface = torch.where(to_floor <= t, 0, torch.where(point[..., 2] > WALL_HEIGHT, 3, wall))
    return surface, point


def _hues(classes: Tensor) -> Tensor:
    """Return saturated colours ``[..., 3]`` of hue classes."""
    hue = classes / HUES
    return hsv_to_rgb(torch.stack([hue, torch.ones_like(hue), torch.ones_like(hue)], dim=-1))


def _draw(
    shape: Tensor,
    scale: Tensor,
    place: Tensor,
    real: Tensor,
    azimuth: Tensor,
    colors: Tensor,
    size: tuple[int, int],
) -> Tensor:
    """Render images ``[B, 3, H, W]`` of scenes with ``colors`` ``[B, 3 + M, 3]`` of floor, walls, sky and objects."""
    camera = view_from(azimuth)
    surface, point = _surface(camera, size)
    way = torch.tensor(LAMP) - point
    distance = way.norm(dim=-1)
    across = torch.where(surface == 0, way[..., 2], torch.where(surface == 2, way[..., 0].abs(), way[..., 1].abs()))
    lit = 0.45 + 0.45 * (across / distance).clamp(0, 1) * (5.0 / distance).clamp(max=1.5)
    # Objects darken the floor around them.
    apart = (point[:, None, ..., :2] - place[:, :, None, None]).square().sum(-1)  # [B, M, H, W]
    shade = 1 - 0.5 * torch.exp(-apart / scale[..., None, None].square()) * real[..., None, None]
    lit = torch.where(surface == 0, lit * shade.prod(1), torch.where(surface == 3, 0.9, lit))
    which = torch.tensor([0, 1, 1, 2])[surface]
    rows = torch.arange(len(colors))[:, None, None]
    image = (lit[..., None] * colors[rows, which]).view(-1, 3)
    solids, row = _solids(shape, scale, place, real)
    if len(row):
        hits = cast(camera, solids, size)
        matte, gloss = object_light(camera, solids, hits)
        object_colors = colors[solids.scene, 3 + row]
        image[hits.pixel] = matte[:, None] * object_colors[hits.solid] + gloss[:, None]
    return image.view(-1, *size, 3).permute(0, 3, 1, 2).contiguous()
