"""Small ray-caster: pinhole cameras, and upright spheres, cubes, cylinders and capsules.

Whole batches of scenes are cast at once. All solids of all scenes form one flat list; each is tested only against the
rays through the pixels of its own bounding rectangle, and a depth buffer keeps the nearest hit of every ray. Only
visible surfaces are shaded.
"""

from enum import IntEnum
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class Kind(IntEnum):
    """Kinds of solids. At scale 1 and without rotation, each fits the cube [-1, 1]³ and touches its top and bottom."""

    CUBE = 0
    SPHERE = 1
    CYLINDER = 2
    CAPSULE = 3


class Camera(NamedTuple):
    """Pinhole cameras, one per scene.

    Args:
        position: ``[B, 3]``.
        axes: rows are the unit vectors to the right, up and forward: ``[B, 3, 3]``.
        focal: focal length in widths and in heights of the frame. If their ratio is not that of the sides of an image,
            the image is the resized frame.
    """

    position: Tensor
    axes: Tensor
    focal: tuple[float, float]


class Solids(NamedTuple):
    """Flat list of the K solids of all scenes.

    Args:
        scene: index of the scene: int64 ``[K]``.
        kind: :class:`Kind` of the solid: int64 ``[K]``.
        centre: position of the centre: ``[K, 3]``.
        scale: radius, or half the side of a cube: ``[K]``.
        angle: rotation about the vertical, in radians: ``[K]``.
    """

    scene: Tensor
    kind: Tensor
    centre: Tensor
    scale: Tensor
    angle: Tensor


class Hits(NamedTuple):
    """Surface points hit by the rays that meet a solid, sorted by the kind of the solid.

    Coordinates are the first axis, because sums over a last axis of size three are slow.

    Args:
        pixel: index of the pixel in the flattened ``[B, H, W]``: int64 ``[V]``.
        solid: index of the solid: int64 ``[V]``.
        depth: distance from the camera along its forward axis: ``[V]``.
        local: the point on the surface of the unrotated solid of scale 1: ``[3, V]``.
    """

    pixel: Tensor
    solid: Tensor
    depth: Tensor
    local: Tensor


def look_at(position: Tensor, target: Tensor | None = None, focal: tuple[float, float] = (1.0, 1.0)) -> Camera:
    """Return upright cameras (z is up) at ``position`` ``[B, 3]`` that look at ``target``, by default the origin.

    >>> camera = look_at(torch.tensor([[0.0, -5.0, 0.0]]))
    >>> camera.axes[0].round().abs().int()
    tensor([[1, 0, 0],
            [0, 0, 1],
            [0, 1, 0]], dtype=torch.int32)
    """
    forward = torch.nn.functional.normalize(-position if target is None else target - position, dim=-1)
    vertical = torch.zeros_like(forward)
    vertical[:, 2] = 1
    right = torch.nn.functional.normalize(torch.linalg.cross(forward, vertical), dim=-1)
    up = torch.linalg.cross(right, forward)
    return Camera(position, torch.stack([right, up, forward], dim=1), focal)


def project(camera: Camera, points: Tensor, size: tuple[int, int]) -> Tensor:
    """Project points ``[B, N, 3]`` to (column, row, depth) ``[B, N, 3]`` in an image of ``size`` (height, width).

    The upper left corner of the image is (0, 0); the centre of its first pixel is (0.5, 0.5).

    >>> project(look_at(torch.tensor([[0.0, -5.0, 0.0]])), torch.tensor([[[0.0, 0.0, 1.0]]]), (100, 100)).round()
    tensor([[[50., 30.,  5.]]])
    """
    height, width = size
    right, up, depth = ((points - camera.position[:, None]) @ camera.axes.mT).unbind(-1)
    column = width * (0.5 + camera.focal[0] * right / depth)
    row = height * (0.5 - camera.focal[1] * up / depth)
    return torch.stack([column, row, depth], dim=-1)


def rays(camera: Camera, size: tuple[int, int]) -> Tensor:
    """Return directions through the centres of all pixels, of length 1 along the forward axis: ``[B, H, W, 3]``.

    The parameter t of a point ``position + t * direction`` is then its depth.
    """
    height, width = size
    step = _ray_steps(camera, size)
    column, row = torch.arange(width) + 0.5 - width / 2, torch.arange(height) + 0.5 - height / 2
    forward, right, down = (step[:, None, None, :, axis] for axis in range(3))
    return forward + column[:, None] * right + row[:, None, None] * down


def _ray_steps(camera: Camera, size: tuple[int, int]) -> Tensor:
    """Return as columns the forward direction and the changes by one pixel to the right and one down: ``[B, 3, 3]``."""
    height, width = size
    right, up, forward = camera.axes.unbind(1)
    return torch.stack([forward, right / (camera.focal[0] * width), -up / (camera.focal[1] * height)], dim=-1)


def cast(camera: Camera, solids: Solids, size: tuple[int, int]) -> Hits:
    """Return the first surface that the rays through the centres of all pixels of ``size`` (height, width) meet.

    Solids must lie in front of the camera.

    >>> camera = look_at(torch.tensor([[0.0, -5.0, 0.0]]))
    >>> one = torch.ones(1)
    >>> ball = Solids(torch.tensor([0]), torch.tensor([Kind.SPHERE]), torch.zeros(1, 3), one, 0 * one)
    >>> hits = cast(camera, ball, (3, 3))
    >>> hits.pixel, hits.depth, hits.local.T
    (tensor([4]), tensor([4.]), tensor([[ 0., -1.,  0.]]))
    """
    height, width = size
    order = torch.argsort(solids.kind, stable=True)
    first, count = _rectangles(camera, solids, size)
    wide, pixels = count[:, 0], count[:, 0] * count[:, 1]
    start = pixels[order].cumsum(0) - pixels[order]
    place = torch.stack([order, wide[order], start, first[order, 0], first[order, 1], solids.scene[order]])
    # index_select, here and below, because indexing with brackets takes several times as long.
    solid, wide, start, left, top, scene = place.index_select(1, torch.repeat_interleave(pixels[order]))
    number = torch.arange(len(solid)) - start
    down = number.div(wide, rounding_mode="floor")
    column, row = number - down * wide + left, down + top
    pixel = scene * (height * width) + row * width + column
    return _nearest(camera, solids, size, solid, pixel, column + 0.5, row + 0.5, len(camera.position) * height * width)


def cast_outlines(
    camera: Camera, solids: Solids, size: tuple[int, int], hits: Hits, samples: int
) -> tuple[Tensor, Hits]:
    """Cast ``samples`` x ``samples`` rays through each pixel along outlines and edges of solids.

    These are the pixels that differ from one of their four neighbours in the solid or its face, according to ``hits``
    of :func:`cast`; only the solids in these five pixels are tested.

    Returns:
        Indices of these pixels, int64 ``[E]``, and the hits of their rays, with each pixel up to ``samples``² times.
    """
    height, width = size
    seen = torch.full((len(camera.position) * height * width,), -1, dtype=torch.int32)
    seen.scatter_(0, hits.pixel, (3 * hits.solid + _faces(hits, solids)).int())
    own = seen.view(-1, height, width)
    around = [
        own,
        torch.cat([own[:, :1], own[:, :-1]], dim=1),
        torch.cat([own[:, 1:], own[:, -1:]], dim=1),
        torch.cat([own[:, :, :1], own[:, :, :-1]], dim=2),
        torch.cat([own[:, :, 1:], own[:, :, -1:]], dim=2),
    ]
    outline = (around[1] != own) | (around[2] != own) | (around[3] != own) | (around[4] != own)
    edges = torch.nonzero(outline.flatten())[:, 0]
    candidates = torch.stack([other.flatten().index_select(0, edges) for other in around])
    candidates = candidates.div(3, rounding_mode="floor")
    new = candidates >= 0
    for i in range(1, len(around)):
        new[i] &= (candidates[:i] != candidates[i]).all(0)
    which, edge = torch.nonzero(new).unbind(1)
    solid = candidates[which, edge].long()
    kinds = solids.kind.index_select(0, solid)
    order = torch.cat([torch.nonzero(kinds == kind)[:, 0] for kind in Kind])  # faster than sorting
    solid, edge = solid.index_select(0, order), edge.index_select(0, order)

    middle = (torch.arange(samples) + 0.5) / samples
    offsets = torch.cartesian_prod(middle, middle).view(-1, 2)  # offsets of row and column
    many = len(offsets)
    pixel = edges.index_select(0, edge) % (height * width)
    row, column = pixel.div(width, rounding_mode="floor"), pixel % width
    closer = _nearest(
        camera,
        solids,
        size,
        solid[:, None].expand(-1, many).flatten(),
        (edge[:, None] * many + torch.arange(many)).flatten(),
        (column[:, None] + offsets[:, 1]).flatten(),
        (row[:, None] + offsets[:, 0]).flatten(),
        len(edges) * many,
    )
    return edges, closer._replace(pixel=edges.index_select(0, closer.pixel.div(many, rounding_mode="floor")))


def _faces(hits: Hits, solids: Solids) -> Tensor:
    """Return the axis normal to the hit face of a cube, 2 for a cylinder's lid, 0 for round surfaces: int64 ``[V]``."""
    bounds = _kind_bounds(solids.kind.index_select(0, hits.solid))
    parts = [hits.local[:, start:end] for start, end in pairwise(bounds)]
    face = [torch.zeros_like(part[0], dtype=torch.int64) for part in parts]
    face[Kind.CUBE] = parts[Kind.CUBE].abs().max(0).indices
    face[Kind.CYLINDER] = 2 * (parts[Kind.CYLINDER][2].abs() > 1 - 1e-4).long()
    return torch.cat(face)


def _nearest(
    camera: Camera,
    solids: Solids,
    size: tuple[int, int],
    solid: Tensor,
    ray: Tensor,
    column: Tensor,
    row: Tensor,
    num_rays: int,
) -> Hits:
    """Return the solid that each of ``num_rays`` rays meets first.

    The P pairs to test, sorted by the kind of the solid, are given by the indices of solid and ray and by where the ray
    crosses the image: each ``[P]``. The ``pixel`` of the hits is the index of the ray.
    """
    height, width = size
    turn = _unturn(solids)
    origin = (turn @ (camera.position[solids.scene] - solids.centre)[..., None])[..., 0]
    direction = turn @ _ray_steps(camera, size)[solids.scene]  # columns as in _ray_steps
    table = torch.cat([direction.flatten(1), origin], dim=1).T.contiguous().index_select(1, solid)
    u, v = column - width / 2, row - height / 2
    d = [table[3 * axis] + u * table[3 * axis + 1] + v * table[3 * axis + 2] for axis in range(3)]
    o = list(table[9:])

    bounds = _kind_bounds(solids.kind.index_select(0, solid))
    depth = torch.cat(
        [
            enter([x[start:end] for x in o], [x[start:end] for x in d])
            for enter, (start, end) in zip(_ENTER, pairwise(bounds), strict=True)
        ]
    )
    hit = torch.nonzero(depth < torch.inf)[:, 0]
    ray, solid, t = (values.index_select(0, hit) for values in (ray, solid, depth))
    # Bits of positive floats sort as the floats do; the index of the solid in the low bits breaks ties.
    key = (t.view(torch.int32).long() << 32) | solid
    buffer = torch.full((num_rays,), torch.iinfo(torch.int64).max)
    buffer.scatter_reduce_(0, ray, key, "amin")
    seen = torch.nonzero(buffer.index_select(0, ray) == key)[:, 0]
    ray, solid, t, hit = (values.index_select(0, seen) for values in (ray, solid, t, hit))
    local = torch.stack([o[axis].index_select(0, hit) + t * d[axis].index_select(0, hit) for axis in range(3)])
    return Hits(ray, solid, t, local)


def _kind_bounds(kind: Tensor) -> list[int]:
    """Return the start of each kind in a sorted list of kinds, and the end of the last."""
    return torch.searchsorted(kind, torch.arange(len(Kind) + 1)).tolist()


def _unturn(solids: Solids) -> Tensor:
    """Return matrices that map world directions to those of the unrotated solid of scale 1: ``[K, 3, 3]``."""
    cos, sin = solids.angle.cos(), solids.angle.sin()
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    rows = torch.stack([cos, sin, zero, -sin, cos, zero, zero, zero, one], dim=-1).view(-1, 3, 3)
    return rows / solids.scale[:, None, None]


def _rectangles(camera: Camera, solids: Solids, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the first pixel (column, row) and size in (columns, rows) of a rectangle around each solid: each ``[K,
    2]``.
    """
    height, width = size
    corners = torch.cartesian_prod(*3 * [torch.tensor([-1.0, 1.0])])
    turned = solids.scale[:, None, None] ** 2 * (corners @ _unturn(solids))  # the inverse is the transpose times scale²
    world = solids.centre[:, None] + turned
    own = Camera(camera.position[solids.scene], camera.axes[solids.scene], camera.focal)
    where = project(own, world, size)[..., :2]
    limit = torch.tensor([width, height])
    first = (where.amin(1) - 0.5).ceil().long().clamp(min=0).minimum(limit)
    last = (where.amax(1) - 0.5).floor().long().minimum(limit - 1)
    count = (last - first + 1).clamp(min=0)
    return first, count * (count > 0).all(1, keepdim=True)


# Where rays o + t d enter the unrotated solid of scale 1: t ``[P]``, infinite if they miss. o and d are lists of the
# three coordinates, each ``[P]``.


def _dot(a: list[Tensor], b: list[Tensor]) -> Tensor:
    return reduce(torch.add, [x * y for x, y in zip(a, b, strict=True)])


def _enter_ball(o: list[Tensor], d: list[Tensor], squared_radius: float = 1.0) -> Tensor:
    """Enter a ball about the origin; with two coordinates, an infinite upright cylinder."""
    square = _dot(d, d)
    nearest = -_dot(o, d) / square
    # Uses the point of the ray that is nearest to the centre: exact in single precision, where the textbook's
    # discriminant is the small difference of large numbers.
    closest = [x + nearest * y for x, y in zip(o, d, strict=True)]
    inside = squared_radius - _dot(closest, closest)
    t = nearest - (inside.clamp(min=0) / square).sqrt()
    return torch.where((inside > 0) & (t > 0), t, torch.inf)


def _enter_cube(o: list[Tensor], d: list[Tensor]) -> Tensor:
    near, far = torch.full_like(o[0], -torch.inf), torch.full_like(o[0], torch.inf)
    for x, y in zip(o, d, strict=True):
        # A ray along a face would divide by zero; a tiny number instead puts the slab far away or all around.
        inverse = 1 / torch.where(y.abs() < 1e-20, 1e-20, y)
        middle, half = -x * inverse, inverse.abs()
        near, far = torch.maximum(near, middle - half), torch.minimum(far, middle + half)
    return torch.where((near < far) & (near > 0), near, torch.inf)


def _enter_cylinder(o: list[Tensor], d: list[Tensor]) -> Tensor:
    side = _enter_ball(o[:2], d[:2])
    side = torch.where((o[2] + side * d[2]).abs() <= 1, side, torch.inf)
    # The lid that faces the ray: the top seen from above.
    up = torch.where(d[2].abs() < 1e-20, 1e-20, d[2])
    lid = (-up.sign() - o[2]) / up
    x, y = o[0] + lid * d[0], o[1] + lid * d[1]
    return torch.minimum(side, torch.where((x * x + y * y < 1) & (lid > 0), lid, torch.inf))


def _enter_capsule(o: list[Tensor], d: list[Tensor]) -> Tensor:
    """Enter a capsule of radius 1/2, with the centres of its round ends at half its height: 2 high and 1 wide."""
    side = _enter_ball(o[:2], d[:2], squared_radius=0.25)
    side = torch.where((o[2] + side * d[2]).abs() <= 0.5, side, torch.inf)
    ends = [_enter_ball([*o[:2], o[2] + shift], d, squared_radius=0.25) for shift in (-0.5, 0.5)]
    return torch.minimum(side, torch.minimum(*ends))


_ENTER = (_enter_cube, _enter_ball, _enter_cylinder, _enter_capsule)  # in the order of Kind


def points(hits: Hits, solids: Solids) -> Tensor:
    """Return the world coordinates of the hits: ``[3, V]``."""
    x, y, z = hits.local
    table = torch.cat(
        [solids.centre.T, solids.scale * torch.stack([solids.angle.cos(), solids.angle.sin()]), solids.scale[None]]
    )
    cx, cy, cz, cos, sin, scale = table.index_select(1, hits.solid)
    return torch.stack([cx + cos * x - sin * y, cy + sin * x + cos * y, cz + scale * z])


def normals(hits: Hits, solids: Solids, bevel: float = 0.0) -> Tensor:
    """Return outward unit normals at the hits, in world coordinates: ``[3, V]``.

    Args:
        hits: result of :func:`cast` or :func:`cast_outlines`.
        solids: solids that were cast.
        bevel: width, at scale 1, of the band along the edges of cubes and cylinders in which normals bend as if the
            edge were rounded; outlines stay sharp.

    >>> solids = Solids(*torch.zeros(2, 1, dtype=torch.int64), torch.zeros(1, 3), torch.ones(1), torch.zeros(1))
    >>> normals(cast(look_at(torch.tensor([[0.0, -5.0, 0.0]])), solids, (1, 1)), solids).T
    tensor([[ 0., -1.,  0.]])
    """
    width = max(bevel, 1e-4)  # a hit lies on its face up to rounding

    def beyond(coordinate: Tensor) -> Tensor:
        return coordinate - coordinate.clamp(width - 1, 1 - width)

    bounds = _kind_bounds(solids.kind.index_select(0, hits.solid))
    cube, ball, can, pill = (hits.local[:, start:end] for start, end in pairwise(bounds))
    outward = 1 - (1 - width) / (can[0].square() + can[1].square()).sqrt().clamp(min=1 - width)
    x, y, z = torch.cat(
        [
            beyond(cube),
            ball,
            torch.stack([outward * can[0], outward * can[1], beyond(can[2])]),
            torch.stack([pill[0], pill[1], pill[2] - pill[2].clamp(-0.5, 0.5)]),
        ],
        dim=1,
    )
    length = (x * x + y * y + z * z).rsqrt()
    cos, sin = torch.stack([solids.angle.cos(), solids.angle.sin()]).index_select(1, hits.solid)
    return torch.stack([cos * x - sin * y, sin * x + cos * y, z]) * length
