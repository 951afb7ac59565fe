"""A view of a data set is scored as it is, not what is behind it."""

import torch
from torch import Tensor

from unknot.datamodules import Coarse, FactorDataModule, FactorSpace, GroundTruthDataset, Resized
from unknot.metrics import evaluate


class Grey(GroundTruthDataset):
    name = "grey"
    factor_space = FactorSpace(("left", "right"), (8, 6))
    image_shape = (1, 32, 32)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return (factors / 8).repeat_interleave(16, dim=1)[:, None, None].expand(-1, 1, 32, 32).contiguous()


def test_images_and_factors_are_those_of_the_view() -> None:
    seen = []

    def codes(images: Tensor) -> Tensor:
        seen.append(tuple(images.shape[1:]))
        return images[:, 0, 0, [0, -1]]

    view = Coarse(Resized(Grey(), 16), (4, 3))
    for dataset in (view, FactorDataModule(view)):
        scores = evaluate(codes, dataset, ["mig"], num_train=640)
        assert scores.protocol["dataset"] == view.name
    assert set(seen) == {(1, 16, 16)}
