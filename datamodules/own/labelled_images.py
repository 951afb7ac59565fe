"""Users' own labelled images as a ground-truth data set."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.own.image_store import Pictures
from unknot.datamodules.own.label_table import Table
from unknot.datamodules.transforms import Transform, transformed, transformed_shape
from unknot.randomness import Stream, derive_seed


@dataclass(frozen=True)
class ObservedSpace(FactorSpace):
    """Factor space with the empirical distribution P(z) of observed points."""

    rows: Tensor = field(default_factory=lambda: torch.empty(0, 0), compare=False, repr=False)

    @property
    def observed(self) -> bool:
        """True: only observed combinations are drawn."""
        return True

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``n`` of the observed factor vectors: int64 ``[n, F]``."""
        return self.rows[torch.randint(len(self.rows), (n,), generator=generator)]


class LabelledImageDataset(GroundTruthDataset):
    """Users' own labelled images as a ground-truth data set.

    Factors are drawn as often as they occur. Of several images of a combination, one is drawn. For a combination
    without an image, :meth:`observe` raises an error: interventional metrics need all combinations, others do not.

    Args:
        pictures: all images.
        table: labels of the images.
        indices: indices of the images to use; those without labels are left out.
        transform: transform of every image.
    """

    name = "own images"
    license = "your own"

    def __init__(self, pictures: Pictures, table: Table, indices: Tensor, transform: Transform | None = None) -> None:
        indices = indices[table.labelled[indices]]
        if not len(indices):
            raise ValueError("None of these images has a label of every factor; label more, or choose label_keys.")
        rows = table.factors[indices]
        self.factor_space = ObservedSpace(table.names, table.sizes, rows, kinds=table.kinds, levels=table.levels)
        self.transform = transform
        self.image_shape = transformed_shape(pictures.take(indices[:1]), transform)
        self.values = table.values
        self._pictures, self._table = pictures, table
        self._sorted, order = self.factor_space.index(rows).sort(stable=True)
        self._indices = indices[order]
        self._points, self._counts = self._sorted.unique_consecutive(return_counts=True)
        self._starts = self._counts.cumsum(0) - self._counts

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return an image for each of the factors ``[N, F]``: float32 ``[N, C, H, W]`` in [0, 1]."""
        points = self.factor_space.index(factors)
        slots = torch.searchsorted(self._points, points).clamp(max=len(self._points) - 1)
        if (unseen := self._points[slots] != points).any():
            first = torch.as_tensor(factors)[unseen][0].tolist()
            named = zip(self.factor_space.names, self.values, first, strict=True)
            raise ValueError(
                "There is no image with " + ", ".join(f"{name} = {values[each]}" for name, values, each in named) + ". "
                "Scores that choose their own factors need images of all combinations; use observational ones."
            )
        counts = self._counts[slots]
        drawn = (torch.rand(points.shape, generator=generator) * counts).long().minimum(counts - 1)
        images = self._pictures.take(self._indices[self._starts[slots] + drawn])
        return transformed(images, self.transform, generator or torch.Generator())

    def split(
        self, test_fraction: float = 1 / 3, seed: int = 0
    ) -> tuple["LabelledImageDataset", "LabelledImageDataset"]:
        """Return two data sets without common images, to fit on and to test on."""
        n = len(self)
        if n < 2:
            raise ValueError("One labelled image cannot be split into training and test images.")
        test = min(max(1, round(n * test_fraction)), n - 1)
        generator = torch.Generator().manual_seed(derive_seed(seed, Stream.HELD_OUT_DATA))
        order = self._indices[torch.randperm(n, generator=generator)]
        return (
            LabelledImageDataset(self._pictures, self._table, order[test:].sort().values, self.transform),
            LabelledImageDataset(self._pictures, self._table, order[:test].sort().values, self.transform),
        )

    def __len__(self) -> int:
        return len(self._indices)

    def _examples(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        images = transformed(self._pictures.take(self._indices[numbers]), self.transform, torch.Generator())
        return images, self.factor_space.factors(self._sorted[numbers])
