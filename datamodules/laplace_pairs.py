"""Neighbouring frames: pairs whose factors take small steps, mostly none, as things in a video do."""

import math
from typing import Any

import torch
from torch import Tensor

from unknot.arguments import positive, whole
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.stream import FactorDataModule
from unknot.datamodules.weighted import WeightedSpace

ROUNDS = 1000  # of drawing steps again


class LaplacePairDataModule(FactorDataModule):
    """Pairs of neighbouring frames: every factor that is not categorical takes a step by a discrete Laplace law.

    The transitions of Klindt et al. (2021), whose data "LAP" SlowVAE is trained on. From value i of n a factor goes to
    value j with a probability proportional to exp(-|j - i| rate / log n); shape and other categorical factors stay. At
    least one factor changes. Steps to combinations that a weighted data set holds out are drawn again.

    A batch is ``(first, second)``, each ``[N, C, H, W]``, or with factors ``(first, second, first_factors,
    second_factors)``. With ``num_frames`` it is a video ``[N, T, C, H, W]``, or with its factors ``[N, T, F]``.

    Args:
        dataset: where factors and images come from.
        rate: of the law; larger for smaller steps.
        num_frames: T, for videos instead of pairs.
        stream: arguments of :class:`~unknot.datamodules.FactorDataModule`; ``with_factors`` adds the factors.

    >>> from unknot.datamodules import DSprites, LaplacePairDataModule
    >>> data = LaplacePairDataModule(DSprites(), batch_size=8, seed=0)
    >>> first, second = next(iter(data.train_dataloader()))
    >>> first.shape, second.shape
    (torch.Size([8, 1, 64, 64]), torch.Size([8, 1, 64, 64]))
    """

    def __init__(
        self, dataset: GroundTruthDataset, rate: float = 1.0, num_frames: int | None = None, **stream: Any
    ) -> None:
        super().__init__(dataset, **stream)
        positive(rate=rate)
        self.rate = rate
        self.num_frames = None if num_frames is None else whole("num_frames", num_frames, least=2)
        space = dataset.factor_space
        if not any(kind != "categorical" and n > 1 for kind, n in zip(space.kinds, space.sizes, strict=True)):
            raise ValueError(
                f"All factors of {dataset.name} are categorical, and none can take a step. Use PairDataModule, which "
                "re-samples factors."
            )

    def draw(self, generator: torch.Generator) -> tuple[Tensor, ...] | Tensor:
        """One batch of pairs or videos."""
        frames = [self._factors(generator)]
        for _ in range((self.num_frames or 2) - 1):
            frames.append(laplace_step(self.dataset.factor_space, frames[-1], self.rate, generator))
        images = self.dataset.observe(torch.cat(frames), generator).unflatten(0, (len(frames), -1))
        if self.num_frames:
            video, factors = images.transpose(0, 1).contiguous(), torch.stack(frames, dim=1)
            return (video, factors) if self.with_factors else video
        return (*images, *frames) if self.with_factors else tuple(images)


def laplace_step(
    space: FactorSpace, factors: Tensor, rate: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    """Factors ``[N, F]`` one step later, of which at least one has changed.

    >>> space = FactorSpace(("shape", "x"), (3, 32), kinds=("categorical", "ordered"))
    >>> laplace_step(space, torch.tensor([[1, 10], [2, 31]]), generator=torch.Generator().manual_seed(0))
    tensor([[ 1, 11],
            [ 2, 26]])
    """
    result, left = factors.clone(), torch.arange(len(factors))
    tables = [_transitions(n, rate) for n in space.sizes]
    for _ in range(ROUNDS):
        before = factors[left]
        after = before.clone()
        for column, (kind, table) in enumerate(zip(space.kinds, tables, strict=True)):
            if kind != "categorical":
                after[:, column] = torch.multinomial(table[before[:, column]], 1, generator=generator)[:, 0]
        good = (after != before).any(1)
        if isinstance(space, WeightedSpace):
            good &= space.weights[tuple(after[:, column] for column in space.columns)] > 0
        result[left[good]] = after[good]
        left = left[~good]
        if not len(left):
            return result
    raise ValueError(
        f"{len(left)} of {len(factors)} examples found no step in {ROUNDS} tries. Lower `rate`, or hold fewer "
        "combinations of factors out."
    )


def _transitions(n: int, rate: float) -> Tensor:
    """Probabilities ``[n, n]`` of a step from each of n values to each other."""
    if n == 1:
        return torch.ones(1, 1)
    values = torch.arange(n)
    weights = torch.exp(-(values[:, None] - values).abs() * rate / math.log(n))
    return weights / weights.sum(1, keepdim=True)
