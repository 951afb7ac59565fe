"""Finite collections of images are never tested on the images that scores were fitted on."""

import pytest
import torch
from torch import Tensor

from unknot.datamodules import FactorSpace, GroundTruthDataset, ImageDataModule, NoisyDSprites
from unknot.datamodules.views import Coarse, Resized
from unknot.metrics import evaluate
from unknot.metrics.draws import check_repetition
from unknot.metrics.few_labels import validation_scores

N = 240
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.rand(N, 1, 16, 16, generator=GENERATOR)  # pure noise
LABELS = torch.stack([torch.randint(0, size, (N,), generator=GENERATOR) for size in (4, 3)], dim=1)  # unrelated
CHANCE = (1 / 4 + 1 / 3) / 2


def codes(images: Tensor) -> Tensor:
    return images.flatten(1)[:, :8]


def own() -> ImageDataModule:
    return ImageDataModule(IMAGES, labels=LABELS, val_fraction=0.3)


class Wrapper(GroundTruthDataset):
    """Images of a collection, whose factors say that they were seen."""

    name = "wrapper"

    def __init__(self) -> None:
        self.inner = own().ground_truth()
        self.factor_space, self.image_shape = self.inner.factor_space, self.inner.image_shape

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.inner.observe(factors, generator)


class PlainSpace(Wrapper):
    """The same, with the whole grid as its factors."""

    def __init__(self) -> None:
        super().__init__()
        self.factor_space = FactorSpace(self.inner.factor_space.names, self.inner.factor_space.sizes)


class Splits(PlainSpace):
    """The same, which says that it is finite, and how it splits."""

    finite = True

    def split(self, test_fraction: float = 1 / 3, seed: int = 0) -> tuple[GroundTruthDataset, GroundTruthDataset]:
        return self.inner.split(test_fraction, seed)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(own, id="ImageDataModule"),
        pytest.param(lambda: own().ground_truth(), id="ground_truth"),
        pytest.param(lambda: Resized(own().ground_truth(), 8), id="Resized"),
        pytest.param(Splits, id="split"),
    ],
)
def test_noise_stays_at_chance(data) -> None:
    scores = evaluate(codes, data(), metrics=["dci", "downstream_gbt"], num_train=1000, num_test=500)
    assert scores.protocol["num_train"] + scores.protocol["num_test"] == N
    assert "drawn once at most" in scores.protocol["split"]
    for name in ("dci_informativeness_test", "downstream_gbt"):
        assert abs(scores[name] - CHANCE) < 0.1


@pytest.mark.parametrize("wrapper", [Wrapper, PlainSpace])
@pytest.mark.parametrize("view", [lambda data: data, lambda data: Resized(data, 8, cached=False)], ids=["", "resized"])
def test_a_collection_that_does_not_split_is_refused(wrapper, view) -> None:
    with pytest.raises(ValueError, match=r"split\(test_fraction, seed\)"):
        evaluate(codes, view(wrapper()), metrics=["dci"], num_train=1000, num_test=500)


def test_labels_of_a_collection_are_not_drawn_with_replacement() -> None:
    with pytest.raises(ValueError, match="finite collection"):
        validation_scores(codes, Wrapper(), ["mig"], {"num_labels": 100})


def test_what_is_random_or_a_full_grid_is_let_through() -> None:
    check_repetition(NoisyDSprites())

    class Flipped(PlainSpace):
        finite = False

    check_repetition(Flipped())


def test_a_collection_is_not_made_coarser() -> None:
    with pytest.raises(ValueError, match="every combination"):
        Coarse(own().ground_truth(), (2, 2))
