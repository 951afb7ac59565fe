"""Scenes of several objects that are drawn: images, masks and targets tell the same story."""

from collections.abc import Callable

import pytest
import torch

from unknot.datamodules import (
    ClevrScenes,
    DrawnScenes,
    DSprites,
    MultiDSprites,
    RoomScenes,
    SetDataModule,
    Tetrominoes,
)
from unknot.datamodules.scenes.sprites import HUES, hsv_to_rgb

MAKERS: list[Callable[..., DrawnScenes]] = [
    lambda **options: MultiDSprites("binarized", **options),
    lambda **options: MultiDSprites("colored_on_grayscale", **options),
    lambda **options: MultiDSprites("colored_on_colored", **options),
    Tetrominoes,
    lambda **options: RoomScenes(32, **options),
    lambda **options: RoomScenes(32, max_objects=6, min_objects=6, same_color=True, **options),
    lambda **options: ClevrScenes(32, max_objects=4, **options),
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("make", MAKERS)
def test_images_masks_and_targets_fit_together(make: Callable[..., DrawnScenes]) -> None:
    data = make()
    images, targets, masks = data.draw(16, generator())
    assert images.dtype == torch.float32
    assert 0 <= images.min() < images.max() <= 1
    assert targets.shape == (16, data.max_objects, data.object_size)
    real = targets[..., -1] == 1
    assert bool(((real.sum(1) >= data.min_objects) & (real.sum(1) <= data.max_objects)).all())
    assert bool((targets[~real] == 0).all())
    for i in range(16):
        shown = masks[i].unique()
        assert bool(real[i][shown[shown > 0].long() - 1].all())  # a mask never shows padding
    for prop in data.properties:
        columns = targets[real][:, prop.start : prop.stop]
        if prop.kind == "class":
            assert bool((columns.sum(1) == 1).all())
    assert data.properties[-1].stop == data.object_size - 1
    again = make().draw(16, generator())
    assert torch.equal(images, again.images)
    assert not torch.equal(images, make().draw(16, generator(1)).images)


@pytest.mark.parametrize("make", MAKERS[1:5])
def test_a_fixed_number_of_scenes_is_kept_in_a_file(
    make: Callable[..., DrawnScenes],
) -> None:
    few, more = make(num_scenes=3), make(num_scenes=5)
    assert not few.endless
    assert torch.equal(few.batch([0, 1, 2]).images, more.batch([0, 1, 2]).images)
    assert not torch.equal(few.batch([0]).images, make(num_scenes=3, seed=1).batch([0]).images)
    batch = next(iter(SetDataModule(more, batch_size=2, seed=0).train_dataloader()))
    assert batch.masks is not None
    assert batch.masks.shape == (2, *more.image_size)


def test_sprites_are_those_of_dsprites_and_the_later_cover_the_earlier() -> None:
    data = MultiDSprites("binarized", min_objects=1, max_objects=1)
    images, targets, masks = data.draw(32, generator())
    assert torch.equal(images[:, 0] > 0, masks > 0)
    space = DSprites().factor_space
    shape = targets[:, 0, :3].argmax(1)
    x, y = (31 * targets[:, 0, 6:8]).round().long().unbind(1)
    scale = (10 * (targets[:, 0, 3] - 0.5)).round().long()
    grid = torch.arange(space.size).view(space.sizes)
    every = space.factors(grid[shape, scale, :, x, y])  # [32, 40, 5]
    for image, factors in zip(images, every, strict=True):  # one of the forty orientations is the sprite
        assert bool((DSprites().observe(factors) == image[:1]).flatten(1).all(1).any())

    _, targets, masks = MultiDSprites(min_objects=5).draw(200, generator())
    seen = torch.stack([(masks == number).flatten(1).sum(1) for number in range(1, 6)], dim=1).double().mean(0)
    assert bool((seen[1:] > seen[:-1]).all())
    assert targets.shape[1] == 5


def test_tetrominoes_have_four_cells_and_do_not_overlap() -> None:
    data = Tetrominoes()
    assert len(data.pieces) == 19
    assert bool((data.pieces.flatten(1).sum(1) == 4).all())
    images, targets, masks = data.draw(100, generator())
    for number in (1, 2, 3):
        assert bool(((masks == number).flatten(1).sum(1) == 4 * 25).all())
        hue = targets[:, number - 1, 21:27].argmax(1)
        color = torch.tensor(HUES)[hue]
        inside = (masks == number)[:, None]
        mean = (images * inside).sum((2, 3)) / 100
        assert torch.allclose(mean, color, atol=1e-5)
    assert bool(targets[..., :19].sum((0, 1)).gt(0).all())


def test_rooms_number_their_surfaces_and_may_be_empty() -> None:
    options = {"image_size": 48, "max_objects": 2, "min_objects": 0}
    plain, numbered = (RoomScenes(surfaces=on, **options).draw(24, generator()) for on in (False, True))
    assert torch.equal(plain.images, numbered.images)
    assert plain.masks is not None
    assert numbered.masks is not None
    assert torch.equal(torch.where(numbered.masks > 2, 0, numbered.masks), plain.masks)
    assert numbered.masks.unique().tolist() == [1, 2, 3, 4, 5, 6]
    empty = plain.targets[..., -1].sum(1) == 0
    assert bool(empty.any())
    assert int(plain.masks[empty].max()) == 0
    alike = RoomScenes(32, max_objects=4, min_objects=4, same_color=True).draw(8, generator()).targets[..., 7:17]
    assert bool((alike == alike[:, :1]).all())


def test_colours_of_hues() -> None:
    import colorsys

    hsv = torch.rand(50, 3, generator=generator())
    expected = torch.tensor([colorsys.hsv_to_rgb(*row) for row in hsv.tolist()])
    assert torch.allclose(hsv_to_rgb(hsv), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiDSprites("gray"), "variant must be one of"),  # type: ignore[arg-type]
        (lambda: MultiDSprites(max_objects=1), "max_objects"),
        (lambda: RoomScenes(max_objects=9), "at most 8"),
        (lambda: len(Tetrominoes()), "Endless Tetrominoes"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()
