"""The score ``aggregation``: every aggregation of every matrix, and what merges when."""

import numpy as np
import pytest
import torch
from torch import Tensor

from unknot.datamodules import FactorSpace, GroundTruthDataset
from unknot.metrics import evaluate, functional
from unknot.metrics.draws import Draws


class Shown(GroundTruthDataset):
    """Three factors as three pixels."""

    name = "shown"
    factor_space = FactorSpace(("a", "b", "c"), (4, 5, 6))
    image_shape = (1, 1, 3)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return (factors / torch.tensor([4.0, 5.0, 6.0]))[:, None, None, :]


def codes(images: Tensor) -> Tensor:
    a, b, c = images.flatten(1).T
    return torch.stack([a, b + c, a], dim=1)  # one factor twice, two in one code


def test_scores_are_the_aggregations_of_the_matrices_of_the_same_draw() -> None:
    scores = evaluate(codes, Shown(), ["aggregation"], num_train=400, num_test=200)
    draws = Draws(codes, Shown(), 400, 200)
    matrix = draws.matrices["mutual information"]
    for name, aggregate in functional.AGGREGATIONS.items():
        assert scores[f"aggregation_information_{name}"] == pytest.approx(aggregate(matrix), abs=1e-12)
    assert scores["aggregation_information_mig"] == pytest.approx(functional.mig(*draws.train), abs=1e-12)
    both = [scores[f"aggregation_{name}_dci_disentanglement"] for name in ("importance", "information")]
    assert scores["aggregation"] == pytest.approx(np.mean(both))


def test_thresholds_retell_the_curve_of_independent_groups() -> None:
    scores = evaluate(codes, Shown(), ["aggregation"], num_train=400, num_test=200)
    values = Draws(codes, Shown(), 400, 200).matrices["mutual information"].values
    curve = functional.independent_groups(values)
    edges, merges = (
        np.array([value for name, value in scores.items() if name.startswith(f"aggregation_information_{kind}_")])
        for kind in ("edge", "merge")
    )
    assert (len(edges), len(merges)) == (3, 2)
    for threshold, factors, groups in zip(curve.threshold / values.max(), curve.factors, curve.groups, strict=True):
        connected = (edges >= threshold - 1e-9).sum()
        assert connected == factors
        assert connected - (merges >= threshold - 1e-9).sum() == groups


def test_codes_that_know_nothing_have_no_thresholds() -> None:
    scores = evaluate(lambda images: torch.zeros(len(images), 2), Shown(), ["aggregation"], num_train=100, num_test=50)
    assert scores["aggregation"] == 0
    assert not [name for name in scores if "information_edge" in name]
