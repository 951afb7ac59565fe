"""Views of a data set whose factors are correlated, or some of whose combinations are held out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.arguments import positive
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.views import View

ROUNDS = 10_000  # of proposals: what is drawn again has a chance in each


@dataclass(frozen=True)
class WeightedSpace(FactorSpace):
    """A factor space in which P(z) is proportional to a weight of some factors, and uniform in the others."""

    columns: tuple[int, ...] = field(default=(), kw_only=True)
    weights: Tensor = field(default_factory=lambda: torch.ones(1), compare=False, repr=False, kw_only=True)
    distribution: str = field(default="weighted", kw_only=True)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``n`` factor vectors i.i.d.: int64 ``[n, F]``."""
        factors = super().sample(n, generator)
        flat = self.weights.flatten()
        edges = flat.cumsum(0)
        drawn = torch.searchsorted(
            edges, torch.rand(n, generator=generator, dtype=torch.float64) * edges[-1], right=True
        )
        drawn = drawn.clamp(max=int(flat.nonzero()[-1]))
        for column, place in zip(self.columns, torch.unravel_index(drawn, self.weights.shape), strict=True):
            factors[:, column] = place
        return factors

    def resample(self, factors: Tensor, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw chosen factors again, given the others: uniform proposals, accepted in proportion to their weight."""
        drawn, left = factors.clone(), torch.arange(len(factors))
        most = float(self.weights.max())
        for _ in range(ROUNDS):
            proposal = torch.where(chosen[left], super().sample(len(left), generator), factors[left])
            weight = self.weights[tuple(proposal[:, column] for column in self.columns)]
            accepted = torch.rand(len(left), generator=generator, dtype=torch.float64) * most < weight
            drawn[left[accepted]] = proposal[accepted]
            left = left[~accepted]
            if not len(left):
                break
        return drawn


class Weighted(View):
    """A data set whose combinations of some factors are drawn in proportion to weights; 0 holds a combination out.

    Streams, pairs, ``evaluate`` and studies draw from it; scores say so in ``protocol["distribution"]``. To train on
    correlated factors and score on independent ones, give ``evaluate`` the data set itself.

    Args:
        dataset: whose images.
        factors: names of the factors that the weights are about.
        weights: ``[n1, n2, ...]``, as many as these factors have values; not negative.
        distribution: words for it.

    >>> from unknot.datamodules import DSprites
    >>> weights = torch.ones(3, 6)
    >>> weights[2, 3:] = 0  # no large hearts
    >>> data = Weighted(DSprites(), ("shape", "scale"), weights)
    >>> drawn = data.factor_space.sample(1000)
    >>> bool(((drawn[:, 0] == 2) & (drawn[:, 1] > 2)).any())
    False
    """

    def __init__(
        self, dataset: GroundTruthDataset, factors: Sequence[str], weights: Any, distribution: str | None = None
    ) -> None:
        super().__init__(dataset)
        space = dataset.factor_space
        if self.finite or isinstance(space, WeightedSpace):
            raise ValueError(f"{dataset.name} is drawn as its images are seen or weighted: give the full data set.")
        if unknown := [name for name in factors if name not in space.names]:
            raise ValueError(f"{dataset.name} has no factor {unknown[0]!r}; there are {', '.join(space.names)}.")
        columns = tuple(space.names.index(name) for name in factors)
        table = torch.as_tensor(np.asarray(weights, dtype=np.float64))
        expected = tuple(space.sizes[column] for column in columns)
        if tuple(table.shape) != expected or len({*columns}) != len(columns):
            raise ValueError(
                f"weights must have shape {list(expected)} for {', '.join(factors)}, got {list(table.shape)}."
            )
        if not bool(torch.isfinite(table).all()) or bool((table < 0).any()) or not bool((table > 0).any()):
            raise ValueError("weights must be finite, not negative, and not all 0.")
        held_out = int((table == 0).sum())
        words = distribution or f"weighted by {', '.join(factors)}" + f", {held_out} combinations held out" * bool(
            held_out
        )
        self.factors, self.weights = tuple(factors), weights
        self.name = f"{dataset.name}_weighted"
        self.factor_space = WeightedSpace(
            space.names,
            space.sizes,
            kinds=space.kinds,
            levels=space.levels,
            symmetries=space.symmetries,
            columns=columns,
            weights=table / table.sum(),
            distribution=words,
        )

    def cache_key(self) -> str | None:
        """That of the data set: the images are the same."""
        return self.dataset.cache_key()

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images for factors ``[N, F]``: float32 ``[N, C, H, W]`` in [0, 1]."""
        return self.dataset.observe(factors, generator)


class Correlated(Weighted):
    """Two factors that go together: P(z) is proportional to exp(-(u - v)² / 2 w²), u and v their values in [0, 1].

    The formula of Träuble et al. (2021), "On Disentangled Representations Learned from Correlated Data".

    Args:
        dataset: whose images.
        first: name of a factor.
        second: name of another.
        width: w; smaller is more strongly correlated.

    >>> from unknot.datamodules import DSprites
    >>> drawn = Correlated(DSprites(), "pos_x", "pos_y", width=0.2).factor_space.sample(10_000).double()
    >>> bool(torch.corrcoef(drawn[:, 3:].T)[0, 1] > 0.7)
    True
    """

    def __init__(self, dataset: GroundTruthDataset, first: str, second: str, width: float = 0.2) -> None:
        positive(width=width)
        sizes = dict(zip(dataset.factor_space.names, dataset.factor_space.sizes, strict=True))
        if missing := [name for name in (first, second) if name not in sizes]:
            raise ValueError(f"{dataset.name} has no factor {missing[0]!r}; there are {', '.join(sizes)}.")
        u, v = (np.linspace(0, 1, sizes[name]) for name in (first, second))
        weights = np.exp(-((u[:, None] - v) ** 2) / (2 * width**2))
        super().__init__(dataset, (first, second), weights, f"{first} and {second} correlated, width {width:g}")
        self.first, self.second, self.width = first, second, width
        self.name = f"{dataset.name}_{first}_{second}_{width:g}"
