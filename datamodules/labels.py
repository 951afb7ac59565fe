"""A few labelled images beside the unlabelled stream: chapter "Semi-Supervised Disentanglement"."""

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
"""Labels as written down, ``[N, d]``, and the number of values of each."""


class Labelling(ABC):
    """Way in which an annotator labels images; your own is a subclass with :meth:`label`."""

    def check(self, space: FactorSpace) -> None:  # noqa: B027  (most have nothing to refuse)
        """Refuse a factor space that cannot be labelled like this."""

    @abstractmethod
    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Return what is written down for factors ``[N, F]`` with so many values each."""


class Perfect(Labelling):
    """The factors themselves."""

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """All of them."""
        return factors, sizes


@dataclass(frozen=True)
class Binned(Labelling):
    """At most ``num_bins`` values per factor.

    >>> Binned(num_bins=5).label(torch.tensor([[0, 0], [2, 31]]), (3, 32), torch.Generator())
    (tensor([[0, 0],
            [2, 4]]), (3, 5))
    """

    num_bins: int = 5

    def __post_init__(self) -> None:
        whole("num_bins", self.num_bins)

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Bins of equal width."""
        bins = tuple(min(size, self.num_bins) for size in sizes)
        return factors * torch.tensor(bins) // torch.tensor(sizes), bins


@dataclass(frozen=True)
class Noisy(Labelling):
    """Each label is random with probability ``noise``."""

    noise: float = 0.1

    def __post_init__(self) -> None:
        if not (is_number(self.noise) and 0 <= self.noise <= 1):
            raise ValueError(f"noise must lie between 0 and 1, got {self.noise!r}.")

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """Random ones are uniform, and may be right."""
        random = torch.stack([torch.randint(size, (len(factors),), generator=generator) for size in sizes], dim=1)
        return torch.where(torch.rand(factors.shape, generator=generator) < self.noise, random, factors), sizes


@dataclass(frozen=True)
class Partial(Labelling):
    """Only ``num_observed`` factors, drawn at random, are labelled."""

    num_observed: int = 2

    def __post_init__(self) -> None:
        whole("num_observed", self.num_observed)

    def check(self, space: FactorSpace) -> None:
        """There must be as many factors."""
        if self.num_observed > space.num_factors:
            raise ValueError(
                f"num_observed must be at least 1 and at most {space.num_factors}, the number of factors, "
                f"got {self.num_observed}."
            )

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """The same factors for all images."""
        observed = torch.randperm(len(sizes), generator=generator)[: self.num_observed].tolist()
        return factors[:, observed], tuple(sizes[factor] for factor in observed)


class Permuted(Labelling):
    """The values of each factor are renamed at random: their order is lost."""

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        """By a code book for each factor."""
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
    """Unlabelled images, and with every batch as many images from a small labelled set.

    Thesis: section "Unsupervised training with supervised model selection", kinds of labels.

    A batch is ``(images, labelled_images, labels)``. The labelled set is drawn once, by a seed of its own; 90 % of it
    train, 10 % validate. Labelled images are drawn i.i.d. from it (the reference goes through it in order). Labels are
    divided by the number of values of their factor, as in the reference: 0, 1/n, ..., (n-1)/n. Validation batches bring
    as many of the held-out labels as training batches do of the others, each as often as the others, so that
    ``val/supervised`` is R_s on them whether a model sums or averages, and however many there are.

    Args:
        dataset: where factors and images come from.
        num_labels: size of the labelled set, in the study 100 or 1000.
        labelling: how images are labelled, ``Perfect()``, ``Binned(num_bins)``, ``Noisy(noise)``,
            ``Partial(num_observed)``, ``Permuted()``, or your own; or the name of one of these, in lower case, as the
            study has it: 5 bins, noise 0.1, 2 observed factors.
        train_fraction: part of the labelled set to train on.
        label_seed: of the labelled set and its corruption; the study uses five.
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
        self.num_labels = whole("num_labels", num_labels, least=2)  # one to train on and one held out
        fraction(train_fraction=train_fraction)
        self.labelling = labelling
        self._annotator = labelling if isinstance(labelling, Labelling) else NAMED[labelling]()
        self._annotator.check(dataset.factor_space)
        self.train_fraction = train_fraction
        self.label_seed = whole("label_seed", label_seed, least=None)

    def setup(self, stage: str = "fit") -> None:
        """Draw the labelled set, which every worker process would otherwise do for itself."""
        super().setup(stage)
        _ = self.labelled

    @cached_property
    def labelled(self) -> LabelledImages:
        """The whole labelled set: what trains first, then what is held out."""
        generator = torch.Generator().manual_seed(derive_seed(self.label_seed, Stream.LABELS))
        space = self.dataset.factor_space
        factors = space.sample(self.num_labels, generator)
        images = self.dataset.observe(factors, generator)
        labels, sizes = self._annotator.label(factors, space.sizes, generator)
        return LabelledImages(images, labels / torch.tensor(sizes))

    @property
    def num_train_labels(self) -> int:
        """Return the number of labels that train; at least one is held out."""
        return min(math.ceil(self.num_labels * self.train_fraction), self.num_labels - 1)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """One training batch."""
        drawn = super().draw(generator)
        picked = torch.randint(self.num_train_labels, (self.batch_size,), generator=generator)
        return self._with_labels(drawn, picked)

    def draw_held_out(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """One validation batch, with held-out labels."""
        drawn = super().draw(generator)
        order = torch.randperm(self.num_labels - self.num_train_labels, generator=generator)
        picked = self.num_train_labels + order.repeat(math.ceil(self.batch_size / len(order)))[: self.batch_size]
        return self._with_labels(drawn, picked)

    def _with_labels(self, drawn: Tensor | tuple[Tensor, Tensor], picked: Tensor) -> tuple[Tensor, ...]:
        images, *factors = drawn if isinstance(drawn, tuple) else (drawn,)
        return (images, self.labelled.images[picked], self.labelled.labels[picked], *factors)
