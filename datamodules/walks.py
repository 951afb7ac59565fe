"""Random walks through a ground-truth data set: rendered videos whose neighbouring frames differ by small steps."""

import warnings
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unknot.arguments import positive, whole
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.stream import FactorDataModule
from unknot.datamodules.weighted import WeightedSpace

Steps = Literal["laplace", "uniform"]
MOST_TRIES = 1000  # attempts to draw a step that changes a factor


class WalkDataModule(FactorDataModule):
    """Short random walks through a ground-truth data set, for temporal models.

    A walk starts at factors drawn i.i.d. In every step, each factor that is not categorical moves to a value near its
    current one, and at least one changes. Circular factors wrap around. Steps to combinations that a weighted data set
    holds out are drawn again. With ``wraps=False`` the Laplace steps are the transitions "LAP" of Klindt et al. (2021),
    on which SlowVAE is trained.

    A batch is ``(first, second)``, each ``[N, C, H, W]``, for walks of two frames, and ``[N, T, C, H, W]`` for longer
    ones; with factors ``(first, second, first_factors, second_factors)``, or ``(frames, factors)`` with
    ``[N, T, F]``.

    Args:
        dataset: data set to draw factors and images from. Its factor space states which factors are ``"ordered"``,
            ``"circular"`` or ``"continuous"``.
        steps: ``"laplace"``, where value j follows value i of n with a probability proportional to exp(-rate |j - i| /
            log n); or ``"uniform"``, by which all values at most ``reach`` away are equally likely.
        rate: of the Laplace law; the larger, the rarer are large steps.
        reach: of the uniform law.
        length: frames of a walk.
        wraps: circular factors continue at their other end.
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
        wraps: bool = True,
        **stream: Any,
    ) -> None:
        super().__init__(dataset, **stream)
        if steps not in ("laplace", "uniform"):
            raise ValueError(f"steps must be 'laplace' or 'uniform', got {steps!r}.")
        positive(rate=rate)
        self.steps, self.rate, self.reach = steps, rate, whole("reach", reach)
        self.length, self.wraps = whole("length", length, least=2), wraps
        space = self.dataset.factor_space
        self._laws = {
            factor: transition_law(size, wraps and kind == "circular", steps, rate, self.reach)
            for factor, (size, kind) in enumerate(zip(space.sizes, space.kinds, strict=True))
            if kind != "categorical" and size > 1
        }
        if not self._laws:
            raise ValueError(
                f"All factors of {self.dataset.name} are categorical, so none has values near another. Say which are "
                "'ordered', 'circular' or 'continuous': FactorSpace(names, sizes, kinds=(...))."
            )

    def draw(self, generator: torch.Generator) -> Any:
        """Draw one batch of walks."""
        factors = [self._factors(generator)]
        while len(factors) < self.length:
            factors.append(next_factors(self.dataset.factor_space, factors[-1], self._laws, generator))
        images = self.dataset.observe(torch.cat(factors), generator)
        if self.length == 2:
            pair = images.chunk(2)
            return (*pair, *factors) if self.with_factors else pair
        frames = images.unflatten(0, (self.length, -1)).transpose(0, 1)
        return (frames, torch.stack(factors, dim=1)) if self.with_factors else frames


def transition_law(size: int, circular: bool, steps: Steps, rate: float, reach: int) -> Tensor:
    """Return the probability of every value after every other: float64 ``[size, size]``, with rows that sum to one.

    >>> transition_law(4, False, "uniform", 1.0, 1)[0]
    tensor([0.5000, 0.5000, 0.0000, 0.0000], dtype=torch.float64)
    """
    values = torch.arange(size)
    distance = (values[:, None] - values).abs()
    if circular:
        distance = torch.minimum(distance, size - distance)
    law = (distance <= reach).double() if steps == "uniform" else torch.exp(-rate * distance.double() / np.log(size))
    return law / law.sum(1, keepdim=True)


def next_factors(
    space: FactorSpace, factors: Tensor, laws: dict[int, Tensor], generator: torch.Generator | None = None
) -> Tensor:
    """Return factors ``[N, F]`` one step later; at least one of each row differs.

    >>> space = FactorSpace(("shape", "x"), (3, 32), kinds=("categorical", "ordered"))
    >>> laws = {1: transition_law(32, False, "laplace", 1.0, 1)}
    >>> next_factors(space, torch.tensor([[1, 10], [2, 31]]), laws, torch.Generator().manual_seed(0))[:, 0]
    tensor([1, 2])
    """
    after, left = factors.clone(), torch.arange(len(factors))
    for _ in range(MOST_TRIES):
        for factor, law in laws.items():
            after[left, factor] = torch.multinomial(law[factors[left, factor]], 1, generator=generator)[:, 0]
        bad = (after[left] == factors[left]).all(1)
        if isinstance(space, WeightedSpace):
            bad |= space.weights[tuple(after[left, column] for column in space.columns)] == 0
        left = left[bad]
        if not len(left):
            return after
    raise ValueError(
        f"{len(left)} of {len(factors)} examples found no step in {MOST_TRIES} tries. Lower `rate`, or hold fewer "
        "combinations of factors out."
    )


class LaplacePairDataModule(WalkDataModule):
    """Former name of ``WalkDataModule(dataset, rate=rate, length=num_frames, wraps=False)``."""

    def __init__(
        self, dataset: GroundTruthDataset, rate: float = 1.0, num_frames: int | None = None, **stream: Any
    ) -> None:
        warnings.warn("LaplacePairDataModule is now WalkDataModule(..., wraps=False).", FutureWarning, stacklevel=2)
        super().__init__(dataset, rate=rate, length=num_frames or 2, wraps=False, **stream)
