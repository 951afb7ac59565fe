"""Rooms3D: a rendered object in a coloured room, similar to Shapes3D and with the same factors."""

import colorsys
import functools

import torch
from torch import Tensor

from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.scenes.raycast import Camera, Hits, Kind, Solids, cast, look_at, normals, points, rays

SPACE = FactorSpace(
    names=("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"),
    sizes=(10, 10, 10, 8, 4, 15),
    kinds=("circular", "circular", "circular", "ordered", "categorical", "ordered"),
)
ARRANGEMENTS = FactorSpace(SPACE.names[3:], SPACE.sizes[3:])  # factors other than colour
SIDE = 64
SAMPLES = 3  # rays per pixel along each side

SCALES = torch.linspace(0.75, 1.25, SPACE.sizes[3])
KINDS = (Kind.CUBE, Kind.CYLINDER, Kind.SPHERE, Kind.CAPSULE)  # in the order of Shapes3D
AZIMUTHS = torch.linspace(-30.0, 30.0, SPACE.sizes[5]).deg2rad()

HALF_ROOM = 5.0  # distance from the centre to each of the four walls
CAMERA_DISTANCE, CAMERA_HEIGHT, TARGET_HEIGHT = 4.8, 2.6, 1.0
FOCAL = 0.95
LAMP = (1.5, -2.5, 5.0)  # fixed to the room
LAMP_REACH = 5.5  # distance at which a facing surface has light 1


class Rooms3D(GroundTruthDataset):
    """Cube, cylinder, ball or capsule in the middle of a room: six factors, images ``[3, 64, 64]``.

    Factors, their sizes and their order are those of Shapes3D: hue of the floor (10), of the walls (10) and of the
    object (10), scale (8), shape (4) and orientation (15), 480,000 images. The pixels differ: scores on it are not
    comparable with scores on Shapes3D.

    Geometry and lighting depend on the last three factors only, and a colour scales the light. The 480 arrangements are
    therefore cast once, in a few seconds, and an image is the sum of three lit surfaces times their colours.

    >>> from unknot.datamodules import Rooms3D
    >>> dataset = Rooms3D()
    >>> dataset.observe(dataset.factor_space.sample(8)).shape
    torch.Size([8, 3, 64, 64])
    """

    name = "rooms3d"
    stochastic = False
    license = "drawn here"
    factor_space = SPACE
    image_shape = (3, SIDE, SIDE)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, 6]``: float32 ``[N, 3, 64, 64]`` in [0, 1]."""
        factors = self.factor_space.factors(self.factor_space.index(factors))  # checked, and int64
        light = arrangements().index_select(0, ARRANGEMENTS.index(factors[:, 3:]))
        colors = torch.stack([_hues(size)[factors[:, i]] for i, size in enumerate(SPACE.sizes[:3])], dim=2)
        white = torch.ones(len(factors), 3, 1)
        return (torch.cat([colors, white], dim=2) @ light.flatten(2)).view(-1, *self.image_shape)

    def prepare(self) -> None:
        """Cast the arrangements before worker processes start."""
        arrangements()

    def cache_key(self) -> str:
        """Cache key; its number must increase when the pixels change."""
        return f"{self.name}-1"

    def is_prepared(self) -> bool:
        """Return whether the arrangements have been cast."""
        return arrangements.cache_info().currsize > 0


@functools.cache
def _hues(count: int) -> Tensor:
    """Return fully saturated colours ``[count, 3]``, evenly spaced on the hue circle."""
    return torch.tensor([colorsys.hsv_to_rgb(i / count, 1.0, 1.0) for i in range(count)])


@functools.cache
def arrangements() -> Tensor:
    """Light that reaches the camera from white floor, walls and object, and gloss: ``[480, 4, 64, 64]``.

    The order is scale, shape and orientation, the last fastest.
    """
    views = torch.stack([_cast_view(azimuth) for azimuth in AZIMUTHS], dim=1)
    return views.flatten(0, 1)


def _cast_view(azimuth: Tensor) -> Tensor:
    """Cast all objects from one direction: ``[32, 4, 64, 64]``."""
    size = (SAMPLES * SIDE, SAMPLES * SIDE)
    scale, kind = SCALES.repeat_interleave(len(KINDS)), torch.tensor(KINDS).repeat(len(SCALES))
    n, nothing = len(scale), torch.zeros(len(scale))
    solids = Solids(torch.arange(n), kind, torch.stack([nothing, nothing, scale], dim=1), scale, nothing)
    camera = view_from(azimuth[None])
    light = torch.zeros(4, n, *size)
    light[:2] = _room(camera, solids, size)
    camera = Camera(camera.position.expand(n, 3), camera.axes.expand(n, 3, 3), camera.focal)
    hits = cast(camera, solids, size)
    light.view(4, -1)[:, hits.pixel] = _object(camera, solids, hits)
    return torch.nn.functional.avg_pool2d(light.transpose(0, 1), SAMPLES)


def view_from(azimuth: Tensor) -> Camera:
    """Cameras at angles ``[B]`` to the middle of the room."""
    height = torch.full_like(azimuth, CAMERA_HEIGHT)
    position = torch.stack([CAMERA_DISTANCE * azimuth.sin(), -CAMERA_DISTANCE * azimuth.cos(), height], dim=1)
    return look_at(position, torch.tensor([0.0, 0.0, TARGET_HEIGHT]), focal=(FOCAL, FOCAL))


def _room(camera: Camera, solids: Solids, size: tuple[int, int]) -> Tensor:
    """Return light from the floor and walls of rooms with one solid each: ``[2, N, H, W]``."""
    direction = rays(camera, size)[0].permute(2, 0, 1)  # coordinates first
    x, y, z = camera.position[0]
    to_x = (HALF_ROOM * direction[0].sign() - x) / direction[0]
    to_y = (HALF_ROOM * direction[1].sign() - y) / direction[1]
    to_floor = torch.where(direction[2] < 0, -z / direction[2], torch.inf)
    t = torch.minimum(torch.minimum(to_x, to_y), to_floor)
    on_floor, on_side = to_floor <= t, to_x <= t
    px, py, pz = x + t * direction[0], y + t * direction[1], z + t * direction[2]

    way = [lamp - part for lamp, part in zip(LAMP, (px, py, pz), strict=True)]
    distance = (way[0] ** 2 + way[1] ** 2 + way[2] ** 2).sqrt()
    # Light decreases with the angle of incidence and with distance.
    across = torch.where(on_floor, way[2], torch.where(on_side, way[0].abs(), way[1].abs()))
    lit = across / distance * (LAMP_REACH / distance) ** 2

    # The object casts the shadow of a blurred ball, and darkens the floor close to it.
    radius = solids.scale * torch.where(solids.kind == Kind.CAPSULE, 0.6, 1.0)
    radius, height = radius[:, None, None], solids.centre[:, 2, None, None]
    along = (height * way[2] - (px * way[0] + py * way[1])) / distance
    passing = (
        px**2 + py**2 + height**2 - along.clamp(min=0) ** 2
    )  # squared distance of the ray to the lamp from the centre
    shadow = 1 - 0.75 * torch.exp(-((passing / radius**2).clamp(max=4) ** 2))
    near = 1 - 0.4 * torch.exp(-((px**2 + py**2) / radius**2).clamp(max=16))
    floor = torch.where(on_floor, 0.4 * near + 0.45 * lit * shadow, 0.0)
    walls = torch.where(on_floor, 0.0, 0.4 + 0.35 * lit)
    return torch.stack([floor, walls.expand_as(floor)])


def _object(camera: Camera, solids: Solids, hits: Hits) -> Tensor:
    """Return light from floor and walls, which is zero, from the object where it is hit, and its gloss: ``[4, V]``."""
    matte, gloss = object_light(camera, solids, hits)
    nothing = torch.zeros_like(matte)
    return torch.stack([nothing, nothing, matte, gloss])


def object_light(camera: Camera, solids: Solids, hits: Hits) -> tuple[Tensor, Tensor]:
    """Matte light, which takes the colour of the object, and gloss, which does not, of every hit: each ``[V]``."""
    point, normal = points(hits, solids), normals(hits, solids, bevel=0.06)
    toward = torch.nn.functional.normalize(torch.tensor(LAMP)[:, None] - point, dim=0)
    view = torch.nn.functional.normalize(camera.position[solids.scene[hits.solid]].T - point, dim=0)
    halfway = torch.nn.functional.normalize(toward + view, dim=0)
    facing = (toward * normal).sum(0).clamp(min=0)
    return 0.4 + 0.08 * normal[2] + 0.4 * facing, 0.12 * (halfway * normal).sum(0).clamp(min=0) ** 40
