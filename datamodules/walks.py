"""Walks through a ground-truth data set: drawn video, whose neighbouring frames differ by small steps."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unknot.arguments import positive, whole
from unknot.datamodules.factors import GroundTruthDataset
from unknot.datamodules.stream import FactorDataModule

Steps = Literal["laplace", "uniform"]
MOST_TRIES = 100  # to draw a step that changes something


class WalkDataModule(FactorDataModule):
    """Short walks through a ground-truth data set, for models of time.

    A walk starts at factors drawn i.i.d. In every step each factor that is not categorical moves to a value near its
    own, and at least one changes. Circular factors continue at their other end.

    A batch is ``(first, second)``, each ``[N, C, H, W]``, for walks of two frames, and ``[N, T, C, H, W]`` for longer
    ones; with factors ``(first, second, first_factors, second_factors)``, or ``(frames, factors)`` with
    ``[N, T, F]``.

    Args:
        dataset: where factors and images come from. Its factor space says which factors are ``"ordered"``,
            ``"circular"`` or ``"continuous"``.
        steps: ``"laplace"``, by which value j follows value i of n with a probability proportional to
            exp(-rate |j - i| / log n), as in the study of SlowVAE; or ``"uniform"``, by which all values at most
            ``reach`` away are equally likely.
        rate: of the Laplace law; larger steps are rarer.
        reach: of the uniform law.
        length: frames of a walk.
        stream: arguments of :class:`FactorDataModule`.

    >>> from unknot.datamodules import Rooms3D, WalkDataModule
    >>> data = WalkDataModule(Rooms3D(), steps="uniform", batch_size=4, seed=0, with_factors=True)
    >>> first, second, before, after = next(iter(data.train_dataloader()))
    >>> int((after - before).abs()[:, 3].max()) <= 1  # the scale, which is ordered
    True
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        steps: Steps = "laplace",
        rate: float = 1.0,
        reach: int = 1,
        length: int = 2,
        **stream: Any,
    ) -> None:
        super().__init__(dataset, **stream)
        if steps not in ("laplace", "uniform"):
            raise ValueError(f"steps must be 'laplace' or 'uniform', got {steps!r}.")
        positive(rate=rate)
        self.steps, self.rate, self.reach = steps, rate, whole("reach", reach)
        self.length = whole("length", length, least=2)
        space = self.dataset.factor_space
        self._laws = {
            factor: transition_law(size, kind == "circular", steps, rate, self.reach)
            for factor, (size, kind) in enumerate(zip(space.sizes, space.kinds, strict=True))
            if kind != "categorical" and size > 1
        }
        if not self._laws:
            raise ValueError(
                f"All factors of {self.dataset.name} are categorical, so none has values near another. Say which are "
                "'ordered', 'circular' or 'continuous': FactorSpace(names, sizes, kinds=(...))."
            )

    def draw(self, generator: torch.Generator) -> Any:
        """One batch of walks."""
        factors = [self._factors(generator)]
        while len(factors) < self.length:
            factors.append(next_factors(factors[-1], self._laws, generator))
        images = self.dataset.observe(torch.cat(factors), generator)
        if self.length == 2:
            pair = images.chunk(2)
            return (*pair, *factors) if self.with_factors else pair
        frames = images.unflatten(0, (self.length, -1)).transpose(0, 1)
        return (frames, torch.stack(factors, dim=1)) if self.with_factors else frames


def transition_law(size: int, circular: bool, steps: Steps, rate: float, reach: int) -> Tensor:
    """Probability of every value after every other: float64 ``[size, size]``, whose rows sum to one.

    >>> transition_law(4, False, "uniform", 1.0, 1)[0]
    tensor([0.5000, 0.5000, 0.0000, 0.0000], dtype=torch.float64)
    """
    values = torch.arange(size)
    distance = (values[:, None] - values).abs()
    if circular:
        distance = torch.minimum(distance, size - distance)
    law = (distance <= reach).double() if steps == "uniform" else torch.exp(-rate * distance.double() / np.log(size))
    return law / law.sum(1, keepdim=True)


def next_factors(factors: Tensor, laws: dict[int, Tensor], generator: torch.Generator) -> Tensor:
    """Factors ``[N, F]`` one step later; at least one of each row differs."""
    after = factors.clone()
    left = torch.arange(len(factors))
    for _ in range(MOST_TRIES):
        for factor, law in laws.items():
            after[left, factor] = torch.multinomial(law[factors[left, factor]], 1, generator=generator)[:, 0]
        left = left[(after[left] == factors[left]).all(1)]
        if not len(left):
            break
    return after
