"""Correlated and held-out combinations, honoured by streams, pairs and scores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from unknot.datamodules import DSprites, PairDataModule
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
