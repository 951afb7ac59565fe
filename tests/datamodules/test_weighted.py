"""Correlated and held-out combinations, honoured by streams, pairs and scores."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from unknot.datamodules import DSprites, GroundTruthDataset, HeldOut, PairDataModule, Resized, Shapes3D, Split, with_law
from unknot.datamodules.pairs import resample_factors
from unknot.datamodules.weighted import Correlated, Weighted
from unknot.metrics import evaluate


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def joint(data: Weighted, n: int = 200_000) -> np.ndarray:
    drawn = data.factor_space.sample(n, generator())
    columns = [drawn[:, column].numpy() for column in data.factor_space.columns]
    table, *_ = np.histogram2d(*columns, bins=[np.arange(size + 1) - 0.5 for size in data.factor_space.weights.shape])
    return table / n


def pearson(table: np.ndarray) -> float:
    u, v = (np.arange(size) for size in table.shape)
    mean_u, mean_v = table.sum(1) @ u, table.sum(0) @ v
    covariance = (u - mean_u) @ table @ (v - mean_v)
    return float(covariance / np.sqrt((table.sum(1) @ (u - mean_u) ** 2) * (table.sum(0) @ (v - mean_v) ** 2)))


@pytest.mark.parametrize("width", [0.2, 0.4, 0.7])
def test_correlations_are_those_of_the_formula(width: float, oracles: Path) -> None:
    data = Correlated(DSprites(), "pos_x", "pos_y", width)
    exact = data.factor_space.weights.numpy()
    assert np.abs(joint(data) - exact).max() < 1e-3
    expected = json.loads((oracles / "correlated.json").read_text())[f"dsprites x,y, width {width}"][
        "gaussian formula: pearson"
    ]
    assert pearson(exact) == pytest.approx(expected, abs=1e-4)


def test_a_table_of_weights_is_the_law(oracles: Path) -> None:
    """The table that the program of Träuble et al. draws, which is not their formula."""
    table = np.load(oracles / "traeuble_joint_8x15_w02.npy")
    data = Weighted(Shapes3D(), ("scale", "orientation"), table)
    assert pearson(data.factor_space.weights.numpy()) == pytest.approx(0.8571, abs=1e-4)
    assert np.abs(joint(data) - table).max() < 1e-3


def test_pairs_stay_where_the_weights_are() -> None:
    weights = np.ones((3, 6))
    weights[2, 3:] = 0
    space = Weighted(DSprites(), ("shape", "scale"), weights).factor_space
    first = space.sample(20_000, generator())
    second, _ = resample_factors(space, first, "rnd", False, generator())
    for drawn in (first, second):
        assert not ((drawn[:, 0] == 2) & (drawn[:, 1] > 2)).any()
    both = np.histogram2d(second[:, 0].numpy(), second[:, 1].numpy(), bins=[range(4), range(7)])[0]
    assert np.abs(both / len(second) - weights / weights.sum()).max() < 0.01
    images = next(
        iter(PairDataModule(Correlated(DSprites(), "scale", "pos_x"), batch_size=4, seed=0).train_dataloader())
    )
    assert images[0].shape == (4, 1, 64, 64)


def test_scores_say_which_distribution_they_are_of() -> None:
    def codes(images: torch.Tensor) -> torch.Tensor:
        return images.mean(3).flatten(1)[:, ::8]

    data = Correlated(DSprites(), "pos_x", "pos_y", 0.2)
    scores = evaluate(codes, data, ["mig", "factor_vae"], num_train=300)
    assert scores.protocol["distribution"] == "pos_x and pos_y correlated, width 0.2"
    assert "drawn by weights" in scores.reasons["factor_vae"]
    assert "distribution" not in evaluate(codes, DSprites(), ["mig"], num_train=300).protocol


@pytest.mark.parametrize(
    ("factors", "weights", "message"),
    [
        (("shape",), [1, 1], "shape"),
        (("size",), [1, 1], "no factor 'size'"),
        (("shape",), [1, -1, 1], "not negative"),
        (("shape",), [0, 0, 0], "not all 0"),
    ],
)
def test_weights_that_make_no_sense_are_refused(factors: tuple[str, ...], weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Weighted(DSprites(), factors, weights)


def test_one_factor_with_all_others_and_several_pairs() -> None:
    confounded = Correlated(DSprites(), "shape", "all", 0.2)
    table = confounded.factor_space.weights
    assert table.shape == (3, 6, 40, 32, 32)
    assert torch.allclose(table.sum(), torch.tensor(1.0, dtype=torch.float64))
    values = [np.linspace(0, 1, size) for size in (3, 6, 40, 32, 32)]
    grid = np.meshgrid(*values, indexing="ij")
    expected = np.exp(-sum((grid[0] - other) ** 2 for other in grid[1:]) / (2 * 0.2**2))
    assert np.allclose(table.numpy(), expected / expected.sum())

    twice = Correlated(Correlated(DSprites(), "pos_x", "shape", 0.1), "scale", "pos_y", 0.4).factor_space
    assert twice.columns == (0, 1, 3, 4)
    shape, scale, x, y = (np.linspace(0, 1, size) for size in (3, 6, 32, 32))
    pairs = np.exp(-((shape[:, None] - x) ** 2) / 0.02)[:, None, :, None]
    pairs = pairs * np.exp(-((scale[:, None] - y) ** 2) / 0.32)[None, :, None, :]
    assert np.allclose(twice.weights.numpy(), pairs / pairs.sum())


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: Resized(data, 32, cached=False)])
def test_the_law_of_a_view_can_be_changed(wrap: Callable[[GroundTruthDataset], GroundTruthDataset]) -> None:
    data = wrap(HeldOut(DSprites(), {"shape": (1, 1), "pos_x": (0.5, 1)}))

    def outside(dataset: GroundTruthDataset) -> float:
        drawn = dataset.factor_space.sample(20_000, generator())
        assert dataset.observe(drawn[:2]).shape == (2, *data.image_shape)
        return float(((drawn[:, 0] == 2) & (drawn[:, 3] >= 16)).double().mean())

    assert with_law(data, "training") is data
    assert outside(data) == 0
    assert outside(with_law(data, "held_out")) == 1
    independent = with_law(data, "independent")
    assert abs(outside(independent) - 1 / 6) < 0.01
    assert independent.name == wrap(DSprites()).name
    assert not hasattr(independent.factor_space, "distribution")
    with pytest.raises(ValueError, match="holds out no combination"):
        with_law(wrap(DSprites()), "held_out")


@pytest.mark.parametrize("kind", ["random", "composition", "interpolation", "extrapolation"])
def test_splits_are_complementary_and_are_what_they_are_called(kind: str) -> None:
    train, test = (Split(DSprites(), kind, part=part) for part in ("train", "test"))
    seen, unseen = train.factor_space.weights > 0, test.factor_space.weights > 0
    assert bool((seen ^ unseen).all())
    assert 0.2 < unseen.double().mean() < 0.45
    for axis in range(3):
        values = seen.movedim(axis, 0).flatten(1).any(1)  # of the factor, those that some combination has
        if kind in ("random", "composition"):
            assert bool(values.all())
        elif kind == "interpolation":
            assert bool(values[[0, -1]].all())
            assert not bool(values.all())
            assert not bool((~values[1:] & ~values[:-1]).any())
        else:
            assert not bool(values[-1])
            assert bool((values[:-1] >= values[1:]).all())
    if kind == "composition":  # a block of large values
        assert bool(unseen[-1, -1, -1])
        assert not bool(unseen[0].any() | unseen[:, 0].any() | unseen[:, :, 0].any())


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"size": (0, 1)}, "no factor 'size'"),
        ({"shape": (0.5, 2)}, "from 0 to 1"),
        ({"shape": (0, 1)}, "out all combinations"),
        ({"shape": (0.1, 0.2)}, "out no combinations"),
        ({}, "out no combinations"),
    ],
)
def test_ranges_that_hold_all_or_nothing_out_are_refused(ranges: dict[str, tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeldOut(DSprites(), ranges)
