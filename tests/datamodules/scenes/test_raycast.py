import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unknot.datamodules.scenes.raycast import (
    _ENTER,
    Camera,
    Kind,
    Solids,
    cast,
    cast_outlines,
    look_at,
    normals,
    points,
    project,
    rays,
)

FOCAL = (1.1, 1.6)


def inside(kind: int, p: np.ndarray) -> np.ndarray:
    """Return whether points ``[..., 3]`` lie in the unturned solid of scale 1, from its definition."""
    x, y, z = np.moveaxis(p, -1, 0)
    if kind == Kind.CUBE:
        return np.abs(p).max(-1) < 1
    if kind == Kind.SPHERE:
        return (p**2).sum(-1) < 1
    if kind == Kind.CYLINDER:
        return (x**2 + y**2 < 1) & (np.abs(z) < 1)
    return x**2 + y**2 + (z - np.clip(z, -0.5, 0.5)) ** 2 < 0.25


def crowd(scenes: int = 3, per_scene: int = 8, seed: int = 0, spread: float = 3.0) -> tuple[Camera, Solids]:
    rng = torch.Generator().manual_seed(seed)
    n = scenes * per_scene
    position = torch.tensor([7.5, -6.5, 5.3]) + torch.rand(scenes, 3, generator=rng) - 0.5
    scale = 0.3 + 0.5 * torch.rand(n, generator=rng)
    places = spread * (2 * torch.rand(n, 2, generator=rng) - 1)
    solids = Solids(
        torch.arange(scenes).repeat_interleave(per_scene),
        torch.randint(len(Kind), (n,), generator=rng),
        torch.cat([places, scale[:, None]], dim=1),
        scale,
        7 * torch.rand(n, generator=rng),
    )
    return look_at(position, focal=FOCAL), solids


def marched(camera: Camera, solids: Solids, size: tuple[int, int], steps: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """First solid and depth along the ray of every pixel, by small steps in double precision: each ``[B, H, W]``."""
    double = Camera(camera.position.double(), camera.axes.double(), camera.focal)
    direction = rays(double, size).numpy()
    best = np.full(direction.shape[:-1], np.inf)
    which = np.full(direction.shape[:-1], -1)
    for k in range(len(solids.scene)):
        scene, centre, scale = int(solids.scene[k]), solids.centre[k].double().numpy(), float(solids.scale[k])
        angle = float(solids.angle[k])
        turn = np.array([[math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0], [0, 0, 1]])
        o = turn @ (double.position[scene].numpy() - centre) / scale
        d = direction[scene] @ turn.T / scale
        about = -(o * d).sum(-1) / (d**2).sum(-1)  # nearest to the centre
        reach = math.sqrt(3.1) / np.sqrt((d**2).sum(-1))
        found = np.full(about.shape, np.inf)
        for step in np.linspace(-1, 1, steps):
            t = about + step * reach
            new = np.isinf(found) & inside(int(solids.kind[k]), o + t[..., None] * d)
            found[new] = t[new]
        nearer = found < best[scene]
        best[scene][nearer], which[scene][nearer] = found[nearer], k
    return which, best


def picture(hits_pixel: Tensor, values: Tensor, shape: tuple[int, ...], empty: float) -> np.ndarray:
    canvas = torch.full((math.prod(shape),), empty, dtype=values.dtype)
    canvas[hits_pixel] = values
    return canvas.view(shape).numpy()


@given(
    position=st.tuples(*3 * [st.floats(-9, 9)]).filter(lambda p: math.hypot(p[0], p[1]) > 1),
    target=st.tuples(*3 * [st.floats(-0.3, 0.3)]),
)
@settings(max_examples=40, deadline=None)
def test_axes_are_a_right_handed_frame_that_is_upright(position: tuple[float, ...], target: tuple[float, ...]) -> None:
    where, to = torch.tensor([position], dtype=torch.float64), torch.tensor(target, dtype=torch.float64)
    camera = look_at(where, to)
    right, up, forward = camera.axes[0]
    assert torch.allclose(camera.axes[0] @ camera.axes[0].T, torch.eye(3, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(torch.linalg.cross(right, up), -forward, atol=1e-9)
    assert right[2].abs() < 1e-9
    assert up[2] > 0
    assert torch.linalg.cross(forward, to - where[0]).norm() < 1e-8
    assert forward @ (to - where[0]) > 0


@given(depth=st.floats(0.5, 30), seed=st.integers(0, 10))
@settings(max_examples=25, deadline=None)
def test_projection_undoes_rays(depth: float, seed: int) -> None:
    camera, _ = crowd(scenes=2, seed=seed)
    size = (6, 9)
    seen = camera.position[:, None, None] + depth * rays(camera, size)
    column, row, found = project(camera, seen.flatten(1, 2), size).view(2, *size, 3).unbind(-1)
    assert torch.allclose(found, torch.full_like(found, depth), rtol=1e-4)
    assert torch.allclose(column, (torch.arange(9) + 0.5).expand_as(column), atol=1e-3)
    assert torch.allclose(row, (torch.arange(6) + 0.5)[:, None].expand_as(row), atol=1e-3)


def test_the_picture_is_not_mirrored() -> None:
    camera = look_at(torch.tensor([[0.0, -10.0, 0.0]]), focal=(1.0, 1.0))
    (right, up) = project(camera, torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]), (100, 100))[0]
    assert right[0] > 50
    assert right[1] == pytest.approx(50)
    assert up[1] < 50
    assert up[0] == pytest.approx(50)


@pytest.mark.parametrize("kind", list(Kind))
def test_entries_agree_with_the_definition_of_the_solid(kind: Kind) -> None:
    rng = np.random.default_rng(int(kind))
    o = rng.normal(size=(800, 3))
    o *= (rng.uniform(2, 30, size=(800, 1))) / np.linalg.norm(o, axis=1, keepdims=True)
    aim = rng.uniform(-1.2, 1.2, size=(800, 3))
    d = (aim - o) / rng.uniform(1, 30, size=(800, 1))
    t = _ENTER[kind]([*torch.tensor(o.T, dtype=torch.float32)], [*torch.tensor(d.T, dtype=torch.float32)]).numpy()

    hit = np.isfinite(t)
    assert 0.3 < hit.mean() < 0.98
    length = np.linalg.norm(d, axis=1)
    steps = np.linspace(0, 1, 2001)[1:]
    far = (np.linalg.norm(o, axis=1) + 2) / length
    along = o[:, None] + (steps * far[:, None])[..., None] * d[:, None]
    ever = inside(kind, along).any(1)
    # Grazing rays may pass between two steps, or be decided by rounding.
    assert (hit != ever).mean() < 0.01
    before, after = (t - 1e-3 / length)[hit], (t + 1e-3 / length)[hit]
    assert not inside(kind, o[hit] + before[:, None] * d[hit]).any()
    assert inside(kind, o[hit] + after[:, None] * d[hit]).mean() > 0.98
    first = steps[inside(kind, along).argmax(1)] * far
    both = hit & ever
    assert (np.abs(t - first)[both] < 1.01 * far[both] / 2000 + 1e-4).mean() > 0.98


@pytest.mark.parametrize("kind", list(Kind))
def test_rays_along_an_axis_meet_solids(kind: Kind) -> None:
    down = [[torch.tensor([0.1]), torch.tensor([0.2]), torch.tensor([5.0])], [*torch.tensor([[0.0], [0.0], [-1.0]])]]
    top = {Kind.SPHERE: math.sqrt(0.95), Kind.CAPSULE: 0.5 + math.sqrt(0.2)}.get(kind, 1.0)
    assert float(_ENTER[kind](*down)) == pytest.approx(5 - top, abs=1e-5)
    miss = [[torch.tensor([1.5]), torch.tensor([0.0]), torch.tensor([5.0])], down[1]]
    assert torch.isinf(_ENTER[kind](*miss))
    behind = [down[0], [-x for x in down[1]]]
    assert torch.isinf(_ENTER[kind](*behind))


def test_every_pixel_shows_the_nearest_solid() -> None:
    camera, solids = crowd(scenes=2)
    size = (32, 44)
    hits = cast(camera, solids, size)
    which, depth = marched(camera, solids, size)
    assert len(hits.pixel.unique()) == len(hits.pixel)
    found = picture(hits.pixel, hits.solid, (2, *size), -1)
    assert (found >= 0).mean() > 0.1
    # Marching misses what a ray only grazes.
    assert (found != which).sum() <= 3
    same = (found == which) & (found >= 0)
    near = picture(hits.pixel, hits.depth.double(), (2, *size), np.inf)
    assert np.abs(near[same] - depth[same]).max() < 6e-3


def test_hits_are_where_the_ray_says() -> None:
    camera, solids = crowd(seed=1)
    size = (40, 40)
    hits = cast(camera, solids, size)
    scene = hits.pixel.div(1600, rounding_mode="floor")
    direction = rays(camera, size).view(-1, 3)[hits.pixel]
    along = camera.position[scene] + hits.depth[:, None] * direction
    assert torch.allclose(points(hits, solids).T, along, atol=2e-5)
    assert torch.equal(scene, solids.scene[hits.solid])
    assert (solids.kind[hits.solid].diff() >= 0).all()


def test_the_order_of_solids_does_not_matter() -> None:
    camera, solids = crowd(seed=2)
    order = torch.randperm(len(solids.scene), generator=torch.Generator().manual_seed(0))
    first, second = cast(camera, solids, (30, 30)), cast(camera, Solids(*(x[order] for x in solids)), (30, 30))
    assert np.array_equal(
        picture(first.pixel, first.solid, (2700,), -1), picture(second.pixel, order[second.solid], (2700,), -1)
    )


def test_no_solids_and_solids_out_of_sight() -> None:
    camera, solids = crowd(scenes=2)
    nothing = Solids(*(x[:0] for x in solids))
    assert len(cast(camera, nothing, (8, 8)).pixel) == 0
    assert normals(cast(camera, nothing, (8, 8)), nothing).shape == (3, 0)
    aside = solids._replace(centre=solids.centre + 4 * camera.axes[0, 0])
    hits = cast(camera, aside, (8, 8))
    assert ((hits.pixel % 8) >= 4).all()
    gone = solids._replace(centre=solids.centre + 40 * camera.axes[0, 0])
    hits = cast(camera, gone, (8, 8))
    assert len(hits.pixel) == 0
    assert len(cast_outlines(camera, gone, (8, 8), hits, 2)[0]) == 0


@pytest.mark.parametrize("bevel", [0.0, 0.2])
def test_normals_are_unit_vectors_that_look_at_the_camera(bevel: float) -> None:
    camera, solids = crowd(seed=3)
    hits = cast(camera, solids, (50, 50))
    normal = normals(hits, solids, bevel)
    assert torch.allclose(normal.norm(dim=0), torch.ones(len(hits.pixel)), atol=1e-5)
    view = points(hits, solids) - camera.position[solids.scene[hits.solid]].T
    away = (torch.nn.functional.normalize(view, dim=0) * normal).sum(0)
    assert (away < 0).float().mean() > (0.999 if bevel == 0 else 0.95)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_step_along_the_normal_leaves_the_solid(kind: Kind) -> None:
    camera, solids = crowd(scenes=1, seed=4)
    solids = solids._replace(kind=torch.full_like(solids.kind, kind), angle=0 * solids.angle)
    hits = cast(camera, solids, (60, 60))
    local, normal = hits.local.T.double().numpy(), normals(hits, solids).T.double().numpy()
    assert not inside(kind, local + 1e-3 * normal).any()
    assert inside(kind, local - 1e-3 * normal).mean() > 0.97  # elsewhere an edge is nearer than that
    if kind == Kind.CUBE:
        assert (np.abs(normal).max(1) > 0.999).mean() > 0.97


def test_a_turned_solid_has_turned_normals() -> None:
    camera = look_at(torch.tensor([[0.0, -5.0, 0.0]]), focal=(1.0, 1.0))
    for angle in (0.0, 0.3, -0.5):
        solids = Solids(
            torch.tensor([0]), torch.tensor([Kind.CUBE]), torch.zeros(1, 3), torch.ones(1), torch.tensor([angle])
        )
        normal = normals(cast(camera, solids, (1, 1)), solids)[:, 0]
        assert torch.allclose(normal, torch.tensor([math.sin(angle), -math.cos(angle), 0.0]), atol=1e-6)


def test_outlines_are_where_neighbours_differ() -> None:
    camera, solids = crowd(seed=5)
    size = (30, 44)
    hits = cast(camera, solids, size)
    edges, closer = cast_outlines(camera, solids, size, hits, 2)
    # Flat faces have one normal each; round ones count as one.
    kind = solids.kind[hits.solid]
    upright = normals(hits, solids)[2].abs() > 0.999
    sideways = (normals(hits, solids)[0] * 1000).round()
    flat = torch.where(kind == Kind.CUBE, torch.where(upright, 9999, sideways), 0)
    flat = torch.where((kind == Kind.CYLINDER) & upright, 9999, flat)
    seen = picture(hits.pixel, hits.solid * 100_000 + flat, (3, *size), -99_999)
    wanted = np.zeros_like(seen, dtype=bool)
    vertical, horizontal = seen[:, 1:] != seen[:, :-1], seen[:, :, 1:] != seen[:, :, :-1]
    wanted[:, 1:] |= vertical
    wanted[:, :-1] |= vertical
    wanted[:, :, 1:] |= horizontal
    wanted[:, :, :-1] |= horizontal
    assert np.array_equal(edges.numpy(), np.flatnonzero(wanted))
    assert torch.isin(closer.pixel, edges).all()
    assert closer.pixel.bincount().max() <= 4


@pytest.mark.parametrize("samples", [2, 3])
def test_outlines_see_what_a_finer_image_sees(samples: int) -> None:
    camera, solids = crowd(seed=6)
    size = (30, 44)
    edges, closer = cast_outlines(camera, solids, size, cast(camera, solids, size), samples)
    count = closer.pixel.bincount(minlength=3 * 30 * 44).view(3, *size)
    fine = cast(camera, solids, (samples * 30, samples * 44))
    covered = torch.zeros(3 * samples * 30 * samples * 44)
    covered[fine.pixel] = 1
    blocks = covered.view(3, 30, samples, 44, samples).sum((2, 4))
    assert (count.flatten()[edges] != blocks.flatten()[edges]).float().mean() < 0.02
    assert (count.flatten()[edges] - blocks.flatten()[edges]).abs().max() <= samples


def test_smooth_outlines_measure_area_better() -> None:
    camera = look_at(torch.tensor([[0.0, -50.0, 0.0]]), focal=(1.0, 1.0))
    ball = Solids(
        torch.tensor([0]), torch.tensor([Kind.SPHERE]), torch.zeros(1, 3), torch.tensor([10.0]), torch.zeros(1)
    )
    radius = 20 * math.tan(math.asin(10 / 50))
    size = (20, 20)
    hits = cast(camera, ball, size)
    edges, closer = cast_outlines(camera, ball, size, hits, 4)
    smooth = (~torch.isin(hits.pixel, edges)).sum() + len(closer.pixel) / 16
    assert smooth == pytest.approx(math.pi * radius**2, rel=0.01)
