import dataclasses
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unknot.clevr_objects import CLASSES, COLORS, MATERIALS, RGB, SHAPES, SIZES
from unknot.datamodules.published.clevr import CLEVR
from unknot.datamodules.scenes import clevr_scenes
from unknot.datamodules.scenes.clevr_scenes import (
    MIN_VISIBLE,
    ClevrScenes,
    draw_masks,
    draw_scenes,
    sample_scenes,
    visible_pixels,
)
from unknot.datamodules.scenes.layout import RADII, Scenes


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def many() -> Scenes:
    return sample_scenes(600, seeded(), image_size=(64, 64))


def layout(
    coords: list[tuple[float, float, float]],
    size: str = "large",
    material: str = "rubber",
    shape: str = "sphere",
    color: str = "red",
    rotation: float = 0.0,
) -> Scenes:
    """One scene of objects that differ in their place only."""
    each = (1, len(coords))
    return Scenes(
        torch.tensor([coords]),
        size=torch.full(each, SIZES.index(size)),
        material=torch.full(each, MATERIALS.index(material)),
        shape=torch.full(each, SHAPES.index(shape)),
        color=torch.full(each, COLORS.index(color)),
        rotation=torch.full(each, rotation),
        real=torch.ones(each, dtype=torch.bool),
    )


def same(one: Scenes, other: Scenes) -> bool:
    return all(torch.equal(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(Scenes))


# Sampling


def test_objects_keep_their_distances(many: Scenes) -> None:
    centre, radius = many.coords[..., :2].double(), torch.tensor(RADII)[many.size]
    right, front = (torch.tensor(d, dtype=torch.float64) for d in ((0.65631127, 0.75449026), (0.75449032, -0.65631127)))
    apart = centre[:, :, None] - centre[:, None]
    pair = many.real[:, :, None] & many.real[:, None] & ~torch.eye(10, dtype=torch.bool)
    gap = apart.norm(dim=-1) - radius[:, :, None] - radius[:, None]
    assert gap[pair].min() > 0.25 - 1e-5
    assert gap[pair].min() < 0.26
    for direction in (right, front):
        along = (apart @ direction).abs()
        assert along[pair].min() > 0.4 - 1e-5
        assert along[pair].min() < 0.41
    assert centre[many.real].abs().max() < 3
    assert torch.equal(many.coords[..., 2][many.real], radius[many.real])


def test_scenes_are_as_varied_as_clevrs(many: Scenes) -> None:
    count = many.real.sum(1)
    assert (count.bincount(minlength=11)[3:] - 75).abs().max() < 4 * math.sqrt(75)
    total = int(many.real.sum())
    for name, classes in CLASSES.items():
        share = getattr(many, name)[many.real].bincount(minlength=len(classes)) / total
        if name == "size":
            assert 0.5 < share[SIZES.index("small")] < 0.57  # small objects find room more often: 0.53 in CLEVR
        else:
            assert (share - 1 / len(classes)).abs().max() < 4 * math.sqrt(0.25 / total)
    turned = many.rotation[many.real]
    assert 0 <= turned.min() < 5
    assert 355 < turned.max() <= 360
    jitter = many.camera - torch.tensor([7.4811, -6.5076, 5.3437])
    assert 0.49 < jitter.abs().max() <= 0.5
    assert jitter.mean(0).abs().max() < 0.06
    assert 0.98 < (many.lamps - torch.tensor(clevr_scenes.LAMPS)).abs().max() <= 1


def test_every_object_can_be_seen(many: Scenes) -> None:
    visible = visible_pixels(draw_masks(many, 64), 10)
    assert visible[many.real].min() >= math.ceil(MIN_VISIBLE * 64 * 64) == 6
    assert (visible[~many.real] == 0).all()


def test_objects_show_as_much_as_asked() -> None:
    scenes = sample_scenes(100, seeded(), 3, 5, image_size=(64, 64), min_visible=0.008)
    assert visible_pixels(draw_masks(scenes, 64), 5)[scenes.real].min() >= 33
    free = sample_scenes(300, seeded(), 8, 9, image_size=(64, 64), min_visible=0.0)
    assert 1 <= visible_pixels(draw_masks(free, 64), 9)[free.real].min() < 6


def test_what_cannot_be_sampled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clevr_scenes, "MAX_ROUNDS", 3)
    with pytest.raises(ValueError, match=r"2 of 2 scenes found no room for 8 to 9 objects .* lower max_objects"):
        sample_scenes(2, seeded(), 8, 9, image_size=(16, 16), min_visible=0.5)


def test_sampling_takes_all_randomness_from_its_generator() -> None:
    state = torch.get_rng_state()
    first = sample_scenes(12, seeded(1))
    assert same(sample_scenes(12, seeded(1)), first)
    assert not same(sample_scenes(12, seeded(2)), first)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (6, 6), (3, 6)])
def test_the_number_of_objects_can_be_set(low: int, high: int) -> None:
    count = sample_scenes(30, seeded(), low, high, image_size=(32, 32)).real.sum(1)
    assert count.unique().tolist() == list(range(low, high + 1))


# Drawing


def analytic_masks(scenes: Scenes, size: tuple[int, int]) -> np.ndarray:
    """Return what the centre of every pixel shows, from textbook formulas in double precision: ``[B, H, W]``."""
    height, width = size
    masks = np.zeros((len(scenes), height, width), dtype=np.uint8)
    for b in range(len(scenes)):
        camera = scenes.camera[b].double().numpy()
        forward = -camera / np.linalg.norm(camera)
        right = np.cross(forward, [0, 0, 1])
        right /= np.linalg.norm(right)
        up = np.cross(right, forward)
        x = (np.arange(width) + 0.5 - width / 2) / (525 / 480 * width)
        y = (np.arange(height) + 0.5 - height / 2) / (525 / 320 * height)
        ray = forward + x[None, :, None] * right - y[:, None, None] * up
        nearest = np.full((height, width), np.inf)
        for m in np.flatnonzero(scenes.real[b].numpy()):
            r, angle = RADII[int(scenes.size[b, m])], float(scenes.rotation[b, m])
            o = camera - scenes.coords[b, m].double().numpy()
            cos, sin = math.cos(angle), math.sin(angle)
            turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])  # rows times this are turned back
            o, d = o @ turn, ray @ turn
            shape = SHAPES[int(scenes.shape[b, m])]
            axes = 3 if shape == "sphere" else 2
            with np.errstate(invalid="ignore", divide="ignore"):
                if shape == "cube":
                    one, two = (-r - o) / d, (r - o) / d
                    enter, leave = np.minimum(one, two).max(-1), np.maximum(one, two).min(-1)
                    t = np.where(enter < leave, enter, np.inf)
                else:
                    a, h, c = (d**2)[..., :axes].sum(-1), (d * o)[..., :axes].sum(-1), (o**2)[:axes].sum() - r * r
                    t = (-h - np.sqrt(h * h - a * c)) / a
                    t = np.where(np.isnan(t), np.inf, t)
                if shape == "cylinder":
                    t = np.where(np.abs(o[2] + t * d[..., 2]) <= r, t, np.inf)
                    top = (r - o[2]) / d[..., 2]
                    lid = ((o + top[..., None] * d)[..., :2] ** 2).sum(-1) < r * r
                    t = np.minimum(t, np.where(lid & (top > 0), top, np.inf))
            t = np.where(np.isnan(t), np.inf, t)
            masks[b][t < nearest] = m + 1
            nearest = np.minimum(nearest, t)
    return masks


@pytest.mark.parametrize("size", [(64, 64), (50, 90)])
def test_masks_are_exact(many: Scenes, size: tuple[int, int]) -> None:
    scenes = many[:60]
    masks = draw_masks(scenes, size)
    assert masks.dtype == torch.uint8
    assert np.array_equal(masks.numpy(), analytic_masks(scenes, size))
    assert torch.equal(draw_scenes(scenes[:5], size)[1], masks[:5])


def test_a_layout_gives_the_same_pixels_alone_and_among_others(many: Scenes) -> None:
    images, masks = draw_scenes(many[:70], 64)
    assert images.shape == (70, 3, 64, 64)
    assert images.dtype == torch.uint8
    alone = [draw_scenes(many[i : i + 1], 64) for i in (0, 40, 69)]
    assert torch.equal(torch.cat([mask for _, mask in alone]), masks[[0, 40, 69]])
    # Matrix products round differently for other numbers of rows.
    assert (torch.cat([image for image, _ in alone]).int() - images[[0, 40, 69]].int()).abs().max() <= 1


def test_only_outlines_and_edges_depend_on_samples() -> None:
    balls = layout([(0, 0, 0.7), (2, 1, 0.7), (-2, 0, 0.7)], material="metal")
    (rough, mask), (smooth, same_mask) = draw_scenes(balls, 64, samples=1), draw_scenes(balls, 64, samples=3)
    assert torch.equal(mask, same_mask)
    around = torch.nn.functional.max_pool2d(torch.stack([mask, 255 - mask], dim=1).float(), 3, 1, 1)
    outline = around[:, 0] != 255 - around[:, 1]
    differs = (rough != smooth).any(1)
    assert (differs & outline).sum() > 50
    assert not (differs & ~outline).any()
    cube = layout([(0, 0, 0.7)], shape="cube", rotation=0.5)
    differs = (draw_scenes(cube, 64, samples=1)[0] != draw_scenes(cube, 64, samples=3)[0]).any(1)[0]
    assert differs[26:40, 26:38].any()  # the edges where its faces meet


def test_an_empty_scene_is_clevrs_ground() -> None:
    nothing = dataclasses.replace(layout([(0, 0, 0.7)]), real=torch.zeros(1, 1, dtype=torch.bool))
    images, masks = draw_scenes(nothing, (320, 480))
    gray = images[0].float().mean(0)
    # Medians of original images.
    for (row, column), value in {
        (4, 240): 106,
        (80, 240): 115,
        (160, 240): 130,
        (310, 460): 150,
        (310, 20): 121,
    }.items():
        assert gray[row, column] == pytest.approx(value, abs=8)
    assert not masks.any()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_metal_can_be_told_from_rubber(shape: str, size: str) -> None:
    z = RADII[SIZES.index(size)]
    for color in COLORS:
        drawn = [draw_scenes(layout([(0, 0, z)], size, material, shape, color), 64) for material in MATERIALS]
        (rubber, mask), (metal, _) = drawn
        difference = (rubber.float() - metal.float()).abs().mean(1)[mask > 0]
        assert difference.mean() > 7  # of 255: brown and gray cubes differ least
        # Metal has more contrast: dark where it mirrors the sky, bright where a lamp.
        contrast = [image.float().mean(1)[mask > 0].std() for image, _ in drawn]
        assert contrast[1] > 1.2 * contrast[0]


def test_colors_can_be_told_apart(many: Scenes) -> None:
    images, masks = draw_scenes(many[:100], 64)
    light = (images / 255).pow(2.2)
    albedo = torch.nn.functional.normalize(torch.tensor([RGB[c] for c in COLORS]).float(), dim=1)
    right = total = 0
    for m in range(10):
        here = (masks == m + 1)[:, None]
        mean = (light * here).sum((2, 3)) / here.sum((2, 3)).clamp(min=1)
        guess = (torch.nn.functional.normalize(mean, dim=1) @ albedo.T).argmax(1)
        seen = many.real[:100, m]
        right += int((guess == many.color[:100, m])[seen].sum())
        total += int(seen.sum())
    assert right / total > 0.97


def test_an_object_throws_a_shadow_and_a_nearer_one_hides_it() -> None:
    alone, mask = draw_scenes(layout([(0, 0, 0.7)]), 128)
    assert mask.unique().tolist() == [0, 1]
    ground = draw_scenes(dataclasses.replace(layout([(0, 0, 0.7)]), real=torch.zeros(1, 1, dtype=torch.bool)), 128)[0]
    darker = (ground.float() - alone.float()).mean(1)[mask == 0]
    assert darker.min() > -2
    assert darker.max() > 15
    pair = layout([(0, 0, 0.7), (1.5, -1.3, 0.7)])  # the second towards the camera
    both = draw_masks(pair, 128)
    single = draw_masks(pair, 128) == 2
    assert (both == 1).sum() < (mask == 1).sum()
    assert torch.equal(single, draw_masks(layout([(1.5, -1.3, 0.7)]), 128) == 1)


def test_rotation_is_in_radians_and_turns_cubes() -> None:
    cube = [draw_masks(layout([(0, 0, 0.7)], shape="cube", rotation=angle), 64) for angle in (0.0, math.pi / 2, 0.7)]
    assert (cube[0] != cube[1]).sum() <= 2
    assert (cube[0] != cube[2]).sum() > 20


def test_redrawn_originals_look_like_them(shared_data: Path) -> None:
    real = CLEVR(shared_data / "clevr_sample", image_size=(160, 240))
    images = 255 * real.batch(range(len(real))).images
    drawn, masks = draw_scenes(real.scenes, (160, 240))
    error = (images - drawn.float()).abs().mean(1)
    assert error.mean() < 8
    assert error[masks > 0].mean() < 16
    # Objects are where they were: no shift by a pixel or two fits better.
    for shift in [(0, 2), (0, -2), (2, 0), (-2, 0)]:
        moved = (images - drawn.float().roll(shift, (2, 3))).abs().mean(1)
        assert moved[:, 4:-4, 4:-4].mean() > error[:, 4:-4, 4:-4].mean() + 0.2
    # The colour of an object as a whole: median over its pixels, so that highlights do not count.
    for number in range(0, len(real), 10):
        for m in range(int(real.scenes.real[number].sum())):
            here = masks[number] == m + 1
            if here.sum() > 60:
                off = images[number][:, here].median(1).values - drawn[number][:, here].float().median(1).values
                assert off.abs().max() < 45


# The data set


def test_endless_scenes(many: Scenes) -> None:
    dataset = ClevrScenes(image_size=(32, 48), max_objects=6, value_range=(-1, 1))
    images, targets, masks = dataset.draw(9, seeded(3))
    assert (images.shape, targets.shape) == ((9, 3, 32, 48), (9, 6, 19))
    assert masks is not None
    assert masks.shape == (9, 32, 48)
    assert (images.dtype, targets.dtype, masks.dtype) == (torch.float32, torch.float32, torch.uint8)
    assert -1 <= images.min() < -0.3
    assert 0 < images.max() <= 1
    again = dataset.draw(9, seeded(3))
    assert all(torch.equal(a, b) for a, b in zip((images, targets, masks), again, strict=True))
    visible = visible_pixels(masks, 6)
    assert torch.equal(visible > 0, targets[..., 18] == 1)
    assert set(targets[..., 18].sum(1).tolist()) <= {3.0, 4.0, 5.0, 6.0}
    unit = ClevrScenes(image_size=(32, 48), max_objects=6).draw(9, seeded(3)).images
    assert torch.allclose(2 * unit - 1, images, atol=1e-6)
    with pytest.raises(TypeError, match="set num_scenes"):
        len(dataset)


def test_scenes_in_a_file(empty_cache: Path) -> None:
    dataset = ClevrScenes(image_size=16, num_scenes=300, seed=4)
    images, targets, masks = dataset.batch([0, 299, 5])
    (file,) = empty_cache.glob("[!.]*")
    assert (images.shape, targets.shape) == ((3, 3, 16, 16), (3, 10, 19))
    assert masks is not None
    assert torch.equal(visible_pixels(masks, 10) > 0, targets[..., 18] == 1)
    assert len(dataset) == 300
    one = dataset[-1]
    assert torch.equal(one.images, images[1])
    assert torch.equal(one.targets, targets[1])
    with pytest.raises(IndexError):
        dataset[300]

    drawn = file.stat().st_mtime_ns
    again = ClevrScenes(image_size=16, num_scenes=300, seed=4, value_range=(0, 255))
    assert torch.equal(again.batch([0, 299, 5]).images.round(), (255 * images).round())
    assert file.stat().st_mtime_ns == drawn
    fewer = ClevrScenes(image_size=16, num_scenes=10, seed=4)
    assert torch.equal(fewer.batch([0, 5]).targets, targets[[0, 2]])
    other = ClevrScenes(image_size=16, num_scenes=10, seed=5)
    assert not torch.equal(other.batch([0, 5]).targets, targets[[0, 2]])
    assert len(list(empty_cache.glob("[!.]*"))) == 3
    assert len(pickle.dumps(dataset)) < 2000
    assert torch.equal(pickle.loads(pickle.dumps(dataset)).batch([5]).images, images[2:])


def test_a_damaged_file_is_drawn_again(empty_cache: Path) -> None:
    first = ClevrScenes(image_size=16, num_scenes=20).batch(range(20))
    (file,) = empty_cache.glob("[!.]*")
    for content in (file.read_bytes()[:-1], b"", b"something else"):
        file.write_bytes(content)
        again = ClevrScenes(image_size=16, num_scenes=20).batch(range(20))
        assert torch.equal(again.images, first.images)
        assert torch.equal(again.targets, first.targets)


def test_an_interruption_leaves_nothing_behind(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: ClevrScenes, dtype: Any) -> Iterator[np.ndarray]:
        yield np.zeros(5, dtype)
        raise KeyboardInterrupt

    monkeypatch.setattr(ClevrScenes, "_chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ClevrScenes(image_size=16, num_scenes=20).prepare()
    assert list(empty_cache.glob("[!.]*")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "image_size must be a positive whole number"),
        ({"image_size": (64, 64, 3)}, "image_size must be"),
        ({"image_size": 64.5}, "image_size must be"),
        ({"max_objects": 2}, "max_objects must be a whole number of at least 3"),
        ({"max_objects": 40}, "max_objects must be at most 11, got 40: more do not fit"),
        ({"min_objects": 0}, "min_objects must be a whole number of at least 1"),
        ({"num_scenes": 0}, "num_scenes must be a whole number of at least 1"),
        ({"samples": 0}, "samples must be a whole number of at least 1"),
        ({"value_range": (1, 0)}, "value_range must be two numbers"),
        ({"value_range": 1}, "value_range must be two numbers"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClevrScenes(**options)


def test_numbers_of_any_type_make_a_layout() -> None:
    plain = layout([(0.5, 0, 0.7)])
    other = Scenes(
        plain.coords.double(),
        *(getattr(plain, name).int() for name in CLASSES),
        plain.rotation.double(),
        plain.real.int(),
    )
    assert same(other, plain)
    with pytest.raises(ValueError, match="n must be a whole number of at least 1, got 0"):
        sample_scenes(0)
    with pytest.raises(ValueError, match="max_objects must be a whole number of at least 4, got 3"):
        sample_scenes(1, min_objects=4, max_objects=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coords": torch.zeros(1, 2)}, r"coords must have shape \[B, M, 3\], got \[1, 2\]"),
        ({"color": torch.tensor([[8]])}, "color must be a class from 0 to 7"),
        ({"shape": torch.tensor([[-1]])}, "shape must be a class from 0 to 2"),
        ({"size": torch.zeros(1, 2, dtype=torch.int64)}, r"size must have shape \[1, 1\], got \[1, 2\]"),
        ({"camera": torch.zeros(2, 3)}, r"camera must have shape \[1, 3\]"),
        ({"coords": torch.full((1, 1, 3), math.nan)}, "coords of objects must be finite"),
    ],
)
def test_bad_layouts_are_refused(change: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(layout([(0, 0, 0.7)]), **change)
