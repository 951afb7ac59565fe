"""A few labelled images alongside the unlabelled stream: chapter "Semi-Supervised Disentanglement"."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from unknot.arguments import fraction, is_number, whole
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.stream import FactorDataModule
from unknot.randomness import Stream, derive_seed

Labels = tuple[Tensor, tuple[int, ...]]
"""Labels ``[N, d]`` of an annotator, and the number of values of each."""


class Labelling(ABC):
    """Model of an annotator; your own is a subclass with :meth:`label`."""

    def check(self, space: FactorSpace) -> None:  # noqa: B027  (most accept every space)
        """Raise an error if a factor space cannot be labelled like this."""

    @abstractmethod
    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Return the labels for factors ``[N, F]`` with these numbers of values."""


class Perfect(Labelling):
    """Complete labels: the factors themselves."""

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Return the factors unchanged."""
        return factors, sizes


@dataclass(frozen=True)
class Binned(Labelling):
    """Labels with at most ``num_bins`` values per factor.

    >>> Binned(num_bins=5).label(torch.tensor([[0, 0], [2, 31]]), (3, 32), torch.Generator())
    (tensor([[0, 0],
            [2, 4]]), (3, 5))
    """

    num_bins: int = 5

    def __post_init__(self) -> None:
        whole("num_bins", self.num_bins)

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Return bins of equal width."""
        bins = tuple(min(size, self.num_bins) for size in sizes)
        return factors * torch.tensor(bins) // torch.tensor(sizes), bins


@dataclass(frozen=True)
class Noisy(Labelling):
    """Labels that are random with probability ``noise``."""

    noise: float = 0.1

    def __post_init__(self) -> None:
        if not (is_number(self.noise) and 0 <= self.noise <= 1):
            raise ValueError(f"noise must lie between 0 and 1, got {self.noise!r}.")

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Replace labels by uniform ones, which may be right by chance."""
        random = torch.stack([torch.randint(size, (len(factors),), generator=generator) for size in sizes], dim=1)
        return torch.where(torch.rand(factors.shape, generator=generator) < self.noise, random, factors), sizes


@dataclass(frozen=True)
class Partial(Labelling):
    """Labels of ``num_observed`` random factors only."""

    num_observed: int = 2

    def __post_init__(self) -> None:
        whole("num_observed", self.num_observed)

    def check(self, space: FactorSpace) -> None:
        """Check that there are as many factors."""
        if self.num_observed > space.num_factors:
            raise ValueError(
                f"num_observed must be at least 1 and at most {space.num_factors}, the number of factors, "
                f"got {self.num_observed}."
            )

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Return the labels of the same factors for all images."""
        observed = torch.randperm(len(sizes), generator=generator)[: self.num_observed].tolist()
        return factors[:, observed], tuple(sizes[factor] for factor in observed)


class Permuted(Labelling):
    """Labels whose values are permuted for each factor, so that their order is lost."""

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Apply a permutation to each factor."""
        books = [torch.randperm(size, generator=generator) for size in sizes]
        return torch.stack([book[column] for book, column in zip(books, factors.T, strict=True)], dim=1), sizes


Name = Literal["perfect", "binned", "noisy", "partial", "permuted"]
NAMED: dict[str, Callable[[], Labelling]] = {
    "perfect": Perfect,
    "binned": Binned,
    "noisy": Noisy,
    "partial": Partial,
    "permuted": Permuted,
}
"""The labellings of the study by name."""


class LabelledImages(NamedTuple):
    """Images ``[n, C, H, W]`` and their labels in [0, 1) ``[n, d]``."""

    images: Tensor
    labels: Tensor


class LabelledDataModule(FactorDataModule):
    """Batches of unlabelled images, each with as many images from a small labelled set.

    Thesis: section "Unsupervised training with supervised model selection", kinds of labels.

    A batch is ``(images, labelled_images, labels)``. The labelled set is drawn once, with its own seed; 90 % of it is
    for training, 10 % for validation. Labelled images are drawn i.i.d. from it (the reference uses them in order).
    Labels are divided by the number of values of their factor, as in the reference: 0, 1/n, ..., (n-1)/n. Validation
    batches contain as many held-out labels as training batches contain others, each equally often, so that
    ``val/supervised`` is R_s whether a model sums or averages, and for any number of labels.

    Args:
        dataset: data set to draw factors and images from.
        num_labels: size of the labelled set, 100 or 1000 in the study.
        labelling: annotator model: ``Perfect()``, ``Binned(num_bins)``, ``Noisy(noise)``, ``Partial(num_observed)``,
            ``Permuted()``, or your own; or the name of one of these, in lower case, as the study has them: 5 bins,
            noise 0.1, 2 observed factors.
        train_fraction: share of the labelled set to train on.
        label_seed: seed of the labelled set and its corruption; the study uses five.
        stream: arguments of :class:`FactorDataModule`; ``batch_size`` counts unlabelled images, and there are as many
            labelled ones, and ``with_factors`` adds the factors of the unlabelled ones.

    >>> from unknot.datamodules import DSprites, LabelledDataModule, Partial
    >>> data = LabelledDataModule(DSprites(), num_labels=100, labelling=Partial(2), batch_size=8, seed=0)
    >>> images, labelled_images, labels = next(iter(data.train_dataloader()))
    >>> labelled_images.shape, labels.shape
    (torch.Size([8, 1, 64, 64]), torch.Size([8, 2]))
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        num_labels: int = 1000,
        labelling: Name | Labelling = "perfect",
        train_fraction: float = 0.9,
        label_seed: int = 0,
        **stream: Any,
    ) -> None:
        super().__init__(dataset, **stream)
        if not isinstance(labelling, Labelling) and labelling not in get_args(Name):
            raise ValueError(
                f"labelling must be one of {', '.join(get_args(Name))}, or an object such as Binned(5), "
                f"got {labelling!r}."
            )
        self.num_labels = whole("num_labels", num_labels, least=2)  # one for training and one held out
        fraction(train_fraction=train_fraction)
        self.labelling = labelling
        self._annotator = labelling if isinstance(labelling, Labelling) else NAMED[labelling]()
        self._annotator.check(dataset.factor_space)
        self.train_fraction = train_fraction
        self.label_seed = whole("label_seed", label_seed, least=None)

    def setup(self, stage: str = "fit") -> None:
        """Draw the labelled set before worker processes start, so that they need not."""
        super().setup(stage)
        _ = self.labelled

    @cached_property
    def labelled(self) -> LabelledImages:
        """Labelled set: the training part, then the held-out part."""
        generator = torch.Generator().manual_seed(derive_seed(self.label_seed, Stream.LABELS))
        space = self.dataset.factor_space
        factors = space.sample(self.num_labels, generator)
        images = self.dataset.observe(factors, generator)
        labels, sizes = self._annotator.label(factors, space.sizes, generator)
        return LabelledImages(images, labels / torch.tensor(sizes))

    @property
    def num_train_labels(self) -> int:
        """Number of labels for training; at least one is held out."""
        return min(math.ceil(self.num_labels * self.train_fraction), self.num_labels - 1)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw one training batch."""
        drawn = super().draw(generator)
        picked = torch.randint(self.num_train_labels, (self.batch_size,), generator=generator)
        return self._with_labels(drawn, picked)

    def draw_held_out(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw one validation batch, with held-out labels."""
        drawn = super().draw(generator)
        order = torch.randperm(self.num_labels - self.num_train_labels, generator=generator)
        picked = self.num_train_labels + order.repeat(math.ceil(self.batch_size / len(order)))[: self.batch_size]
        return self._with_labels(drawn, picked)

    def _with_labels(self, drawn: Tensor | tuple[Tensor, Tensor], picked: Tensor) -> tuple[Tensor, ...]:
        images, *factors = drawn if isinstance(drawn, tuple) else (drawn,)
        return (images, self.labelled.images[picked], self.labelled.labels[picked], *factors)
