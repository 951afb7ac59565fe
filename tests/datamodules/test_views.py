import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.datamodules import (
    DATASETS,
    AbstractDSprites,
    Coarse,
    ColorDSprites,
    DSprites,
    FactorDataModule,
    FactorSpace,
    GroundTruthDataset,
    Resized,
    Rooms3D,
)
from unknot.datamodules.views import area_average
from unknot.files import cache_dir


class Small(GroundTruthDataset):
    """Random 8-bit images, drawn from their number."""

    name = "small"
    stochastic = False
    factor_space = FactorSpace(("a", "b"), (7, 300))
    image_shape = (3, 12, 18)
    draws = 0

    def __init__(self, levels: int | None = 255, keyed: bool = True) -> None:
        self.grey_levels, self.keyed = levels, keyed

    def cache_key(self) -> str | None:
        return f"small-{self.grey_levels}" if self.keyed else None

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self.draws += 1
        every = torch.Generator().manual_seed(0)
        if self.grey_levels is None:
            images = torch.rand(self.factor_space.size, *self.image_shape, generator=every)
        else:
            shape = (self.factor_space.size, *self.image_shape)
            images = torch.randint(self.grey_levels + 1, shape, generator=every) / self.grey_levels
        return images[self.factor_space.index(factors)]


def test_dsprites_are_averaged_exactly_and_kept_in_one_byte_per_pixel(sprites: DSprites, empty_cache: Path) -> None:
    class Few(DSprites):
        factor_space = FactorSpace(("pos_y",), (32,))

        def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
            return sprites.observe(F.pad(factors, (4, 0), value=2))

        def prepare(self) -> None:
            pass

    small = Resized(Few(), 32)
    factors = small.factor_space.factors(torch.arange(32))
    assert torch.equal(small.observe(factors), F.avg_pool2d(Few().observe(factors), 2))
    assert small.disk_size == 32 * 32 * 32
    assert small.image_shape == (1, 32, 32)


@pytest.mark.parametrize(("levels", "size"), [(1, 6), (255, (6, 9)), (255, (3, 9)), (255, (6, 3))])
def test_whole_ratios_are_exact(empty_cache: Path, levels: int, size: int | tuple[int, int]) -> None:
    data = Small(levels)
    small = Resized(data, size)
    factors = data.factor_space.sample(200, torch.Generator().manual_seed(0))
    expected = area_average(data.observe(factors), small.size)
    torch.testing.assert_close(small.observe(factors), expected, rtol=0, atol=3e-7)
    assert small.observe(factors).shape == (200, *small.image_shape)


@pytest.mark.parametrize("size", [(5, 7), (1, 1), (20, 30), (7, 18)])
def test_any_other_ratio_is_the_mean_of_the_area(empty_cache: Path, size: tuple[int, int]) -> None:
    data = Small(levels=None)
    factors = data.factor_space.sample(9, torch.Generator().manual_seed(0))
    images = data.observe(factors).double()
    # Every pixel repeated so often that each new one is a whole number of them.
    fine = images.repeat_interleave(size[0], 2).repeat_interleave(size[1], 3)
    expected = F.avg_pool2d(fine, (12, 18)).float()
    torch.testing.assert_close(area_average(images.float(), size), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(Resized(data, size).observe(factors), expected, rtol=0, atol=1e-5)


def test_images_are_made_once(empty_cache: Path) -> None:
    data = Small()
    assert not Resized(data, 6).is_prepared()
    small = Resized(data, 6)
    small.prepare()
    made = data.draws
    again = Resized(data, 6)
    assert again.is_prepared()
    factors = data.factor_space.sample(5)
    assert torch.equal(again.observe(factors), small.observe(factors))
    assert torch.equal(pickle.loads(pickle.dumps(small)).observe(factors), small.observe(factors))
    assert data.draws == made
    path = cache_dir() / f"{small.cache_key()}.npy"
    path.write_bytes(path.read_bytes()[:-9])
    assert not Resized(data, 6).is_prepared()
    assert torch.equal(Resized(data, 6).observe(factors), small.observe(factors))
    assert data.draws > made


@pytest.mark.parametrize("cached", [True, False])
def test_without_a_key_nothing_is_kept(empty_cache: Path, cached: bool) -> None:
    data = Small(keyed=not cached)
    small = Resized(data, 6, cached)
    factors = data.factor_space.sample(5)
    assert torch.equal(small.observe(factors), F.interpolate(data.observe(factors), (6, 6), mode="area"))
    assert not empty_cache.exists()
    assert small.disk_size == 0
    assert small.is_prepared()


def test_random_images_stay_random(drawn: Path) -> None:
    small, large = Resized(ColorDSprites(), 32), ColorDSprites()
    factors = large.factor_space.sample(4, torch.Generator().manual_seed(0))
    one, other = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    drawn_images = small.observe(factors, one)
    assert not torch.equal(drawn_images, small.observe(factors, other))
    assert torch.equal(drawn_images, F.avg_pool2d(large.observe(factors, torch.Generator().manual_seed(1)), 2))
    assert small.stochastic


def test_a_resized_data_set_feeds_a_datamodule(drawn: Path) -> None:
    batch = next(iter(FactorDataModule(Resized(Rooms3D(), 32, cached=False), batch_size=4, seed=0).train_dataloader()))
    whole = next(iter(FactorDataModule(Rooms3D(), batch_size=4, seed=0).train_dataloader()))
    assert torch.equal(batch, F.avg_pool2d(whole, 2))


@pytest.mark.parametrize("size", [0, -2, 1.5, (3,), "32", None])
def test_bad_sizes_are_refused(size: object) -> None:
    with pytest.raises(ValueError, match="size must be a positive whole number"):
        Resized(Small(), size)  # type: ignore[arg-type]


def test_a_class_is_no_data_set() -> None:
    with pytest.raises(ValueError, match=r"dataset must be a ground-truth data set such as DSprites\(\)"):
        Resized(DSprites, 32)  # type: ignore[arg-type]


def test_coarse_values_show_fine_ones_at_equal_steps() -> None:
    rooms = Coarse(Rooms3D(), (10, 10, 10, 4, 4, 4))
    fine = rooms.fine(torch.tensor([[i, i, i, i, i, i] for i in range(4)]))
    assert fine[:, 3].tolist() == [0, 2, 4, 6]
    assert fine[:, 5].tolist() == [0, 3, 7, 11]
    assert fine[:, 0].tolist() == [0, 1, 2, 3]
    sprites = Coarse(AbstractDSprites(), {"scale": 3, "pos_x": 4, "pos_y": 4})
    assert len(sprites) == 4320
    fine = sprites.fine(torch.tensor([[4, 5, 2, i, i, i] for i in range(3)]))
    assert fine[:, 3].tolist() == [0, 2, 4]
    assert fine[:, 4].tolist() == [0, 8, 16]


def test_a_coarse_view_shows_the_images_of_the_data_set() -> None:
    rooms = Coarse(Rooms3D(), {"scale": 4, "orientation": 4})
    factors = torch.tensor([[1, 2, 3, 3, 2, 1]])
    assert torch.equal(rooms.observe(factors), Rooms3D().observe(torch.tensor([[1, 2, 3, 6, 2, 3]])))
    both = Resized(rooms, 16, cached=False)
    assert both.factor_space == rooms.factor_space
    assert both.observe(factors).shape == (1, 3, 16, 16)
    with pytest.raises(ValueError, match="out of range"):
        rooms.observe(torch.tensor([[0, 0, 0, 4, 0, 0]]))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((3, 4), "sizes must be 6 whole numbers"),
        ({"hue": 3}, "has no factor 'hue'; there are floor_hue"),
        ({"scale": 9}, "scale of rooms3d has 8 values; from 1 to 8 can be shown, not 9"),
        ({"scale": 0}, "not 0"),
    ],
)
def test_bad_coarse_sizes_are_refused(sizes: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Coarse(Rooms3D(), sizes)  # type: ignore[arg-type]


def test_abstract_dsprites_colour_sprites_and_background(drawn: Path) -> None:
    data = AbstractDSprites()
    factors = torch.tensor([[1, 2, 0, 5, 16, 16], [4, 5, 2, 0, 0, 31]]).repeat(50, 1)
    images = data.observe(factors, torch.Generator().manual_seed(0))
    assert images.shape == (100, 3, 64, 64)
    assert images[0, :, 0, 0].tolist() == [0.25] * 3
    assert torch.allclose(images[0, :, 32, 32], torch.tensor([0.376, 0.728, 0.596]))
    assert images[1, :, 63, 63].tolist() == [1.0] * 3
    assert torch.allclose(images[1, :, 47, 16], torch.tensor([0.908, 0.551, 0.749]))
    assert len(images[::2].flatten(1).unique(dim=0)) > 10  # orientations
    again = data.observe(factors, torch.Generator().manual_seed(0))
    assert torch.equal(again, images)


def test_registered_names_are_the_names_of_the_data_sets() -> None:
    for name, make in DATASETS.items():
        if not name.startswith("mpi3d"):
            assert make().name == name
    assert DATASETS["rooms3d_32"]().image_shape == (3, 32, 32)
    assert len(DATASETS["shapes3d_10x10x10x4x4x4"]()) == 64_000
