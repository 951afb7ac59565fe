"""Views that hold out combinations of factors: by ranges, or by a split of Schott et al. (2021)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from unknot.arguments import fraction
from unknot.datamodules.factors import GroundTruthDataset
from unknot.datamodules.weighted import Weighted

Kind = Literal["random", "composition", "interpolation", "extrapolation"]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class HeldOut(Weighted):
    """View of a data set without the combinations of factors that lie in a block.

    A combination is held out if all named factors lie in their ranges. Montero et al. (2021) and Roth et al. (2023)
    hold out the last shape in the right half: ``{"shape": (1, 1), "pos_x": (0.5, 1)}``.

    Args:
        dataset: data set of the images.
        ranges: smallest and largest value that is held out, by name of a factor; values are scaled to [0, 1].

    >>> from unknot.datamodules import DSprites
    >>> data = HeldOut(DSprites(), {"shape": (1, 1), "pos_x": (0.5, 1)})
    >>> drawn = data.factor_space.sample(1000)
    >>> bool(((drawn[:, 0] == 2) & (drawn[:, 3] >= 16)).any())
    False
    """

    def __init__(self, dataset: GroundTruthDataset, ranges: Mapping[str, Sequence[float]]) -> None:
        sizes = dict(zip(dataset.factor_space.names, dataset.factor_space.sizes, strict=True))
        for name, ends in ranges.items():
            if name not in sizes:
                raise ValueError(f"{dataset.name} has no factor {name!r}; there are {', '.join(sizes)}.")
            if len(ends) != 2 or not 0 <= ends[0] <= ends[1] <= 1:
                raise ValueError(
                    f"ranges[{name!r}] must be the smallest and the largest value that is held out, from 0 to 1, got "
                    f"{ends!r}."
                )
        inside = _all_of([_between(sizes[name], *ends) for name, ends in ranges.items()])
        if not ranges or inside.all() or not inside.any():
            count = "all" if ranges and inside.all() else "no"
            raise ValueError(
                f"ranges hold out {count} combinations; at least one must be held out and one kept, got {ranges}."
            )
        words = " and ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high) in ranges.items())
        super().__init__(dataset, tuple(ranges), (~inside).astype(float), f"held out: {words}")
        self.ranges = {name: tuple(ends) for name, ends in ranges.items()}
        self.name = "_".join(
            [dataset.name, "without", *(f"{name}_{low:g}-{high:g}" for name, (low, high) in ranges.items())]
        )


class Split(Weighted):
    """Part of the combinations of factors to train on, or the rest to test on.

    The four kinds are those of Schott et al. (2021), "Visual Representation Learning Does Not Generalize Strongly
    Within the Same Domain". Their published splits are not used: the share that is held out is an argument.

    * ``"random"``: combinations are held out at random; every value is seen.
    * ``"composition"``: a block in which every factor has large values is held out; every value is seen.
    * ``"interpolation"``: values between others are held out; the test set has all combinations with one of them.
    * ``"extrapolation"``: the largest values are held out; the test set has all combinations with one of them.

    Args:
        dataset: data set of the images.
        kind: kind of the split.
        factors: names of the factors to split; by default the ordered and continuous ones, since circular factors have
            no end and categorical ones no order.
        share: approximate share of combinations that is held out.
        part: ``"train"`` or ``"test"``.
        seed: seed of ``"random"``.

    >>> from unknot.datamodules import DSprites
    >>> train = Split(DSprites(), "extrapolation")
    >>> train.factor_space.sample(10_000)[:, 1:].max(0).values  # scale, orientation, pos_x and pos_y
    tensor([ 4, 39, 27, 27])
    >>> test = Split(DSprites(), "extrapolation", part="test")
    >>> train.factor_space.distribution, test.factor_space.distribution
    ('extrapolation of scale, pos_x, pos_y, 36 % held out', 'extrapolation of scale, pos_x, pos_y, the 36 % held out')
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        kind: Kind,
        factors: Sequence[str] | None = None,
        share: float = 0.3,
        part: Literal["train", "test"] = "train",
        seed: int = 0,
    ) -> None:
        if kind not in get_args(Kind) or part not in ("train", "test"):
            raise ValueError(
                f"kind must be one of {', '.join(get_args(Kind))}, and part 'train' or 'test', "
                f"got {kind!r} and {part!r}."
            )
        fraction(share=share)
        space = dataset.factor_space
        sizes = dict(zip(space.names, space.sizes, strict=True))
        split = [name for name, of in zip(space.names, space.kinds, strict=True) if of in ("ordered", "continuous")]
        names = tuple(split if factors is None else factors)
        if missing := [name for name in names if name not in sizes]:
            raise ValueError(f"{dataset.name} has no factor {missing[0]!r}; there are {', '.join(sizes)}.")
        if not names:
            raise ValueError(f"No factor of {dataset.name} has an order. Name the factors to split.")
        test = _mask(kind, [sizes[name] for name in names], share, seed)
        if test.all() or not test.any():
            raise ValueError(
                f"A share of {share:g} holds {'all' if test.any() else 'no'} combinations of {', '.join(names)} out. "
                "Choose another share, or factors with more values."
            )
        words = f"{kind} of {', '.join(names)}, {'the ' * (part == 'test')}{100 * test.mean():.0f} % held out"
        super().__init__(dataset, names, (test if part == "test" else ~test).astype(float), words)
        self.kind, self.split_factors, self.share, self.part, self.seed = kind, names, share, part, seed
        self.name = f"{dataset.name}_{kind}" + "_test" * (part == "test")


def _mask(kind: Kind, sizes: Sequence[int], share: float, seed: int) -> Mask:
    """Return the held-out combinations of factors with these sizes: approximately the given share."""
    if kind == "random":
        return np.random.default_rng(seed).random(sizes) < share
    if kind == "composition":
        each = share ** (1 / len(sizes))
        return _all_of([np.arange(size) >= size - round(each * size) for size in sizes])
    each = 1 - (1 - share) ** (1 / len(sizes))
    counts = [round(each * size) for size in sizes]
    if kind == "extrapolation":
        return ~_all_of([np.arange(size) < size - count for size, count in zip(sizes, counts, strict=True)])
    kept = []
    for size, count in zip(sizes, counts, strict=True):
        inner = np.ones(size, dtype=bool)
        # Neither the ends nor two neighbours are held out: `count` values evenly between.
        places = np.linspace(0, size - 1, min(count, math.ceil(size / 2) - 1) + 2).round().astype(int)[1:-1]
        inner[places] = False
        kept.append(inner)
    return ~_all_of(kept)


def _between(size: int, low: float, high: float) -> Mask:
    """Select the values in [0, 1] that lie in a range, with a margin for rounding errors."""
    values = np.linspace(0, 1, size)
    return (values >= low - 1e-9) & (values <= high + 1e-9)


def _all_of(axes: Sequence[Mask]) -> Mask:
    """Return the table of combinations whose every value is selected on its axis."""
    table = np.ones([1] * len(axes), dtype=bool)
    for place, axis in enumerate(axes):
        table = table & np.expand_dims(axis, [other for other in range(len(axes)) if other != place])
    return table
