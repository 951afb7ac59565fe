import itertools
import pickle

import pytest
import torch
from torch import Tensor

from unknot.datamodules import FactorDataModule
from unknot.datamodules.scenes.rooms3d import SPACE, Rooms3D, arrangements

DATASET = Rooms3D()


def images(*factors: tuple[int, ...]) -> Tensor:
    return DATASET.observe(torch.tensor(factors))


def test_factors_are_those_of_shapes3d() -> None:
    assert SPACE.names == ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
    assert SPACE.sizes == (10, 10, 10, 8, 4, 15)
    assert len(DATASET) == 480_000
    assert DATASET.image_shape == (3, 64, 64)
    assert DATASET.name == "rooms3d"


def test_images_are_floats_between_0_and_1() -> None:
    batch = DATASET.observe(SPACE.sample(200, torch.Generator().manual_seed(0)))
    assert batch.shape == (200, 3, 64, 64)
    assert batch.dtype == torch.float32
    assert batch.is_contiguous()
    assert 0 <= batch.min() < 0.05
    assert 0.9 < batch.max() <= 1
    # Whatever the colours: no sum of lights is brighter than white.
    assert arrangements().min() >= 0
    assert arrangements().sum(1).max() <= 1


def test_images_are_the_same_every_time_and_in_any_batch() -> None:
    factors = SPACE.sample(50, torch.Generator().manual_seed(1))
    batch = DATASET.observe(factors)
    assert torch.equal(DATASET.observe(factors), batch)
    assert torch.allclose(Rooms3D().observe(factors[7:8]), batch[7:8], atol=1e-6)
    image, found = DATASET[int(SPACE.index(factors[3]))]
    assert torch.equal(found, factors[3])
    assert torch.allclose(image, batch[3], atol=1e-6)


@pytest.mark.parametrize("factor", range(6))
def test_every_value_of_a_factor_is_seen(factor: int) -> None:
    for base in ((0, 3, 6, 0, 1, 7), (9, 9, 9, 7, 2, 0)):
        rows = torch.tensor(base).repeat(SPACE.sizes[factor], 1)
        rows[:, factor] = torch.arange(SPACE.sizes[factor])
        flat = DATASET.observe(rows).flatten(1)
        apart = torch.cdist(flat, flat, p=1) / flat.shape[1] + torch.eye(len(flat))
        assert apart.min() > 1e-3


def test_no_two_arrangements_are_alike() -> None:
    maps = (255 * arrangements()).round().flatten(1)
    assert len(maps.unique(dim=0)) == 480


def test_a_hue_colors_its_surface_only() -> None:
    """Where floor, walls and object are is seen from which pixels each hue changes."""
    base = (0, 0, 0, 4, 2, 7)
    here = []
    for factor in range(3):
        other = list(base)
        other[factor] = 5
        here.append(images(base, tuple(other)).diff(dim=0)[0].abs().amax(0) > 0.02)
    floor, wall, thing = here
    assert floor[-1].all()
    assert wall[0].all()
    assert thing[32, 32]
    assert not floor[0].any()
    assert not wall[-1].any()
    assert not thing[[0, -1]].any()
    assert (floor | wall | thing).all()
    for one, two in itertools.combinations(here, 2):
        assert (one & two).float().mean() < 0.06  # pixels on an outline show both
    red, cyan = images((0, 5, 2, 4, 2, 7))[0][:, -1, 32], images((5, 0, 2, 4, 2, 7))[0][:, -1, 32]
    assert red[0] > 0.5 > red[1] == red[2] == 0
    assert cyan[1] == cyan[2] > 0.5 > cyan[0] == 0


def area(scale: int, shape: int) -> float:
    index = (scale * 4 + shape) * 15 + 7
    return float((arrangements()[index, 2] > 0).sum())


def test_objects_grow_with_scale() -> None:
    for shape in range(4):
        areas = [area(scale, shape) for scale in range(8)]
        assert all(b > a for a, b in itertools.pairwise(areas))
        assert areas[-1] / areas[0] == pytest.approx((1.25 / 0.75) ** 2, rel=0.35)  # and the larger come nearer


def test_shapes_are_cube_cylinder_sphere_and_capsule() -> None:
    cube, cylinder, sphere, capsule = (area(4, shape) for shape in range(4))
    assert cube > cylinder > sphere > 1.5 * capsule


def test_orientation_turns_the_room_to_both_sides() -> None:
    ball = [images((0, 5, 2, 4, 2, orientation))[0] for orientation in range(15)]
    # The corner of two walls moves; mirror images have their corners mirrored.
    steps = [(a - b).abs().mean() for a, b in itertools.pairwise(ball)]
    assert min(steps) > 1e-3
    floor = arrangements().view(8, 4, 15, 4, 64, 64)[4, 2, :, 0] > 0
    assert (floor[0] != floor[14].flip(1)).float().mean() < 0.003
    assert (floor[0] != floor[14]).float().mean() > 0.005


def test_bad_factors_are_refused() -> None:
    with pytest.raises(ValueError, match="Factor out of range"):
        images((10, 0, 0, 0, 0, 0))
    with pytest.raises(ValueError, match="Factors must have shape"):
        images((0, 0, 0, 0, 0))
    assert DATASET.observe(torch.zeros(0, 6, dtype=torch.int64)).shape == (0, 3, 64, 64)


def test_it_feeds_a_data_module_and_travels_light() -> None:
    DATASET.prepare()
    assert DATASET.is_prepared()
    batch = next(iter(FactorDataModule(Rooms3D(), batch_size=8, seed=0).train_dataloader()))
    assert batch.shape == (8, 3, 64, 64)
    assert len(pickle.dumps(DATASET)) < 500


@pytest.mark.slow
def test_all_images_can_be_drawn_and_differ() -> None:
    """Of quantised images: hashed, as all of them would take 6 GB."""
    weight = torch.randint(1, 2**62, (3 * 64 * 64,), generator=torch.Generator().manual_seed(0))
    hashes = [
        ((255 * DATASET.observe(SPACE.factors(index))).round().long().flatten(1) * weight).sum(1)
        for index in torch.arange(len(DATASET)).split(500)
    ]
    assert len(torch.cat(hashes).unique()) == 480_000
