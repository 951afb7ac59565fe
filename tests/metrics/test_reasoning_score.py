"""The score ``reasoning``: its protocol, and what it refuses."""

import pytest
import torch
from torch import Tensor

from unknot.datamodules import FactorSpace, GroundTruthDataset
from unknot.metrics import METRICS, evaluate, reasoning
from unknot.metrics.selection import possible, select


class Shown(GroundTruthDataset):
    """Factors as pixels."""

    name = "shown"
    factor_space = FactorSpace(("a", "b", "c", "d"), (4, 20, 3, 5))
    image_shape = (1, 1, 4)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return (factors / torch.tensor(self.factor_space.sizes))[:, None, None, :]


class Pairs(Shown):
    factor_space = FactorSpace(("a", "b"), (2, 4))


def codes(images: Tensor) -> Tensor:
    return images.flatten(1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning, "STEPS", (2, 4))
    monkeypatch.setattr(reasoning, "TEST", 600)


def test_accuracies_are_given_at_every_number_of_steps_and_repeat(quick: None) -> None:
    state = torch.random.get_rng_state()
    scores = evaluate(codes, Shown(), ["reasoning"], num_train=10, num_test=10)
    assert scores.keys() == {"reasoning", "reasoning_2", "reasoning_4", "reasoning_row_match", "reasoning_relative"}
    assert scores["reasoning"] == scores["reasoning_4"]
    assert 0.5 < scores["reasoning_row_match"] < 1
    chance = 1 / 6
    expected = (scores["reasoning"] - chance) / (scores["reasoning_row_match"] - chance)
    assert scores["reasoning_relative"] == pytest.approx(expected)
    assert evaluate(codes, Shown(), ["reasoning"], num_train=10, num_test=10) == scores
    assert torch.equal(torch.random.get_rng_state(), state)


def test_many_values_are_shown_coarsely_and_all_leaves_it_out() -> None:
    assert reasoning.grid_of(Shown()).factor_space.sizes == (4, 4, 3, 5)
    assert METRICS["reasoning"].on_request
    names, _ = possible(select("all"), codes)
    assert "mig" in names
    assert "reasoning" not in names


def test_factors_with_two_values_are_refused(quick: None) -> None:
    with pytest.raises(ValueError, match="at least three values"):
        evaluate(codes, Pairs(), ["reasoning"], num_train=10, num_test=10)
