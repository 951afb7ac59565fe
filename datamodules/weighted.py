"""Views of a data set whose factors are correlated, or with some combinations held out."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from unknot.arguments import positive
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.views import View
from unknot.labels import Law

ROUNDS = 10_000  # rounds of proposals, each of which may be accepted


@dataclass(frozen=True)
class WeightedSpace(FactorSpace):
    """Factor space in which P(z) is proportional to a weight of some factors, and uniform in the others."""

    columns: tuple[int, ...] = field(default=(), kw_only=True)
    weights: Tensor = field(default_factory=lambda: torch.ones(1), compare=False, repr=False, kw_only=True)
    distribution: str = field(default="weighted", kw_only=True)

    @cached_property
    def _edges(self) -> tuple[Tensor, int]:
        """Cumulative weights of the combinations, and the index of the last one with positive weight."""
        flat = self.weights.flatten()
        return flat.cumsum(0), int(flat.nonzero()[-1])

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``n`` factor vectors i.i.d.: int64 ``[n, F]``."""
        factors = super().sample(n, generator)
        edges, last = self._edges
        drawn = torch.searchsorted(
            edges, torch.rand(n, generator=generator, dtype=torch.float64) * edges[-1], right=True
        )
        drawn = drawn.clamp(max=last)
        for column, place in zip(self.columns, torch.unravel_index(drawn, self.weights.shape), strict=True):
            factors[:, column] = place
        return factors

    def resample(self, factors: Tensor, chosen: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Resample chosen factors given the others: uniform proposals, accepted in proportion to their weight."""
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
    """View of a data set with combinations of some factors drawn in proportion to weights; 0 holds a combination out.

    Streams, pairs, ``evaluate`` and studies draw from it; scores state it in ``protocol["distribution"]``. To train on
    correlated factors and score on independent ones, pass ``evaluate`` the data set itself, or the result of
    :func:`with_law`.

    Args:
        dataset: data set of the images; the weights of a weighted one are multiplied.
        factors: names of the weighted factors.
        weights: non-negative ``[n1, n2, ...]``, with the sizes of these factors.
        distribution: description of the distribution.

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
        if self.finite:
            raise ValueError(
                f"{dataset.name} is a finite collection of images, whose combinations cannot be weighted. Give a data "
                "set with an image of every combination, such as DSprites()."
            )
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
        if isinstance(space, WeightedSpace):
            columns, table = _product(space, columns, table)
            words = f"{space.distribution}; {words}"
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
        """Return the key of the data set: the images are the same."""
        return self.dataset.cache_key()

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, F]``: float32 ``[N, C, H, W]`` in [0, 1]."""
        return self.dataset.observe(factors, generator)


class Correlated(Weighted):
    """View of a data set with correlated factors: P(z) ∝ exp(-(u - v)² / 2 w²), with u and v their values in [0, 1].

    The formula of Träuble et al. (2021), "On Disentangled Representations Learned from Correlated Data", with which
    Roth et al. (2023), "Disentanglement of Correlated Factors via Hausdorff Factorized Support", correlate one pair,
    two or three pairs, or one factor with all others. For several pairs, correlate a correlated data set again.

    Args:
        dataset: data set of the images.
        first: name of a factor.
        second: name of another; several names, each correlated with the first; or ``"all"`` others, of which the first
            is then a confounder.
        width: width w; smaller values give stronger correlation.

    >>> from unknot.datamodules import DSprites
    >>> drawn = Correlated(DSprites(), "pos_x", "pos_y", width=0.2).factor_space.sample(10_000).double()
    >>> bool(torch.corrcoef(drawn[:, 3:].T)[0, 1] > 0.7)
    True
    >>> twice = Correlated(Correlated(DSprites(), "shape", "scale"), "pos_x", "pos_y")
    >>> twice.factor_space.distribution
    'shape and scale correlated, width 0.2; pos_x and pos_y correlated, width 0.2'
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        first: str,
        second: str | Sequence[str],
        width: float = 0.2,
    ) -> None:
        positive(width=width)
        sizes = dict(zip(dataset.factor_space.names, dataset.factor_space.sizes, strict=True))
        others = [name for name in sizes if name != first] if second == "all" else second
        others = [others] if isinstance(others, str) else list(others)
        if missing := [name for name in (first, *others) if name not in sizes]:
            raise ValueError(f"{dataset.name} has no factor {missing[0]!r}; there are {', '.join(sizes)}.")
        weights = np.ones([sizes[name] for name in (first, *others)])
        for place, name in enumerate(others, 1):
            table = gaussian_law(sizes[first], sizes[name], width)
            weights = weights * np.expand_dims(table, [axis for axis in range(1, len(others) + 1) if axis != place])
        shown = second if second == "all" else ", ".join(others)
        words = f"{first} and {shown} correlated, width {width:g}"
        super().__init__(dataset, (first, *others), weights, words)
        self.first, self.second, self.width = first, second, width
        self.name = "_".join([dataset.name, first, *(["all"] if second == "all" else others), f"{width:g}"])


def gaussian_law(rows: int, columns: int, width: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return weights exp(-(u - v)² / 2 w²) of two factors with ``rows`` and ``columns`` values in [0, 1].

    >>> gaussian_law(2, 3, width=1.0).round(2)
    array([[1.  , 0.88, 0.61],
           [0.61, 0.88, 1.  ]])
    """
    u, v = np.linspace(0, 1, rows), np.linspace(0, 1, columns)
    return np.exp(-((u[:, None] - v) ** 2) / (2 * width**2))


def with_law(dataset: GroundTruthDataset, law: Law) -> GroundTruthDataset:
    """Return the same images with another distribution of factors.

    Args:
        dataset: a weighted data set, or a view of one, such as ``Resized(Correlated(...), 32)``.
        law: ``"training"`` returns the data set; ``"independent"`` removes all weights; ``"held_out"`` draws the
            combinations of weight 0 uniformly.

    >>> from unknot.datamodules import DSprites
    >>> weights = torch.ones(3, 6)
    >>> weights[2, 3:] = 0
    >>> held_out = with_law(Weighted(DSprites(), ("shape", "scale"), weights), "held_out")
    >>> held_out.factor_space.sample(1000)[:, :2].unique(dim=0)
    tensor([[2, 3],
            [2, 4],
            [2, 5]])
    """
    if law not in get_args(Law):
        raise ValueError(f"law must be one of {', '.join(get_args(Law))}, got {law!r}.")
    if law == "training":
        return dataset
    space = dataset.factor_space
    if law == "independent" and not isinstance(space, WeightedSpace):
        return dataset
    if not isinstance(space, WeightedSpace) or (law == "held_out" and bool((space.weights > 0).all())):
        raise ValueError(
            f"{dataset.name} holds out no combination of factors. Score it with law='independent', or use "
            "HeldOut(dataset, {'shape': (1, 1), 'pos_x': (0.5, 1)}) for example."
        )
    return _replaced(dataset, law)


def _replaced(dataset: GroundTruthDataset, law: Law) -> GroundTruthDataset:
    """Replace the weights of the outermost weighted data set by those of a law, and remove all others."""
    space = dataset.factor_space
    if not isinstance(dataset, View) or not isinstance(space, WeightedSpace):
        return dataset
    if isinstance(dataset, Weighted):
        if law == "independent":
            return _replaced(dataset.dataset, law)
        rest = (space.weights == 0).double()
        other = copy(dataset)
        words = f"not in: {space.distribution}"
        other.factor_space = replace(space, weights=rest / rest.sum(), distribution=words)
        other.name = f"{dataset.name}_held_out"
        return other
    view, inner = copy(dataset), _replaced(dataset.dataset, law)
    view.dataset, view.factor_space = inner, inner.factor_space
    view.name = dataset.name.replace(dataset.dataset.name, inner.name, 1)
    return view


def _product(space: WeightedSpace, columns: tuple[int, ...], table: Tensor) -> tuple[tuple[int, ...], Tensor]:
    """Return columns and weights of a weighted space multiplied by the weights of further columns."""
    both = tuple(sorted({*space.columns, *columns}))
    product = torch.ones([space.sizes[column] for column in both], dtype=torch.float64)
    for part, weights in ((space.columns, space.weights), (columns, table)):
        order = sorted(range(len(part)), key=part.__getitem__)
        shape = [space.sizes[column] if column in part else 1 for column in both]
        product = product * weights.permute(order).reshape(shape)
    if not bool((product > 0).any()):
        raise ValueError("The weights leave no combination of factors: each has weight 0 in one of the two.")
    return both, product
