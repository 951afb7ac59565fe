"""A few labelled images beside the unlabelled stream: chapter "Semi-Supervised Disentanglement"."""

import math
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from unknot._seeding import Stream, derive_seed
from unknot.datamodules.factors import GroundTruthDataset
from unknot.datamodules.stream import FactorDataModule

Labelling = Literal["perfect", "binned", "noisy", "partial", "permuted"]
MOST_HELD_OUT = 1000
"""Most held-out labels that one validation batch brings."""


def corrupt_labels(
    factors: Tensor,
    sizes: tuple[int, ...],
    labelling: Labelling,
    generator: torch.Generator,
    num_bins: int = 5,
    noise: float = 0.1,
    num_observed: int = 2,
) -> tuple[Tensor, tuple[int, ...]]:
    """What an annotator writes down for factors ``[N, F]``: labels ``[N, d]`` and the number of values of each.

    >>> generator = torch.Generator().manual_seed(0)
    >>> labels, sizes = corrupt_labels(torch.tensor([[0, 0], [2, 31]]), (3, 32), "binned", generator)
    >>> labels.tolist(), sizes
    ([[0, 0], [2, 4]], (3, 5))
    """
    n, num_factors = factors.shape
    if labelling == "binned":  # at most num_bins values each
        bins = torch.tensor([min(size, num_bins) for size in sizes])
        return factors * bins // torch.tensor(sizes), tuple(bins.tolist())
    if labelling == "noisy":  # each label has this chance of being random
        random = torch.stack([torch.randint(size, (n,), generator=generator) for size in sizes], dim=1)
        return torch.where(torch.rand(n, num_factors, generator=generator) < noise, random, factors), sizes
    if labelling == "permuted":  # a code book per factor: the order of the values is lost
        books = [torch.randperm(size, generator=generator) for size in sizes]
        return torch.stack([book[column] for book, column in zip(books, factors.T, strict=True)], dim=1), sizes
    if labelling == "partial":  # only a few factors, drawn at random
        observed = torch.randperm(num_factors, generator=generator)[:num_observed].tolist()
        return factors[:, observed], tuple(sizes[factor] for factor in observed)
    return factors, sizes


class LabelledImages(NamedTuple):
    """Images ``[n, C, H, W]`` and their labels in [0, 1) ``[n, d]``."""

    images: Tensor
    labels: Tensor


class LabelledDataModule(FactorDataModule):
    """Unlabelled images, and with every batch as many images from a small labelled set.

    A batch is ``(images, labelled_images, labels)``. The labelled set is drawn once, by a seed of its own; 90 % of it
    train, 10 % validate. Labelled images are drawn i.i.d. from it (the reference goes through it in order). Labels are
    divided by the number of values of their factor, as in the reference: 0, 1/n, ..., (n-1)/n. Validation batches bring
    the held-out labels (at most 1,000 of them, drawn anew for each), so that ``val/supervised`` is R_s on them.

    Args:
        dataset: where factors and images come from.
        num_labels: size of the labelled set, in the study 100 or 1000.
        labelling: ``"perfect"``; ``"binned"``: at most ``num_bins`` values per factor; ``"noisy"``: each label is
            random with probability ``noise``; ``"partial"``: only ``num_observed`` randomly drawn factors are labelled;
            ``"permuted"``: the values of each factor are renamed at random.
        num_bins: for binned labels.
        noise: for noisy labels.
        num_observed: for partial labels.
        train_fraction: part of the labelled set to train on.
        label_seed: of the labelled set and its corruption; the study uses five.
        batch_size: unlabelled images, and labelled images, per batch and rank.
        num_val_batches: batches for validation, test and prediction; the same images every time.
        num_workers: processes that prepare batches.
        seed: of the stream; ``None`` takes, in a Trainer, the one of ``seed_everything``.

    >>> from unknot.datamodules import DSprites, LabelledDataModule
    >>> data = LabelledDataModule(DSprites(), num_labels=100, labelling="partial", batch_size=8, seed=0)
    >>> images, labelled_images, labels = next(iter(data.train_dataloader()))
    >>> labelled_images.shape, labels.shape
    (torch.Size([8, 1, 64, 64]), torch.Size([8, 2]))
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        num_labels: int = 1000,
        labelling: Labelling = "perfect",
        num_bins: int = 5,
        noise: float = 0.1,
        num_observed: int = 2,
        train_fraction: float = 0.9,
        label_seed: int = 0,
        batch_size: int = 64,
        num_val_batches: int = 16,
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, num_val_batches, num_workers, seed)
        if labelling not in get_args(Labelling):
            raise ValueError(f"labelling must be one of {', '.join(get_args(Labelling))}, got {labelling!r}.")
        for name, value in (
            ("num_labels", num_labels),
            ("num_bins", num_bins),
            ("num_observed", num_observed),
            ("label_seed", label_seed),
        ):
            if not isinstance(value, int):
                raise ValueError(f"{name} must be a whole number, got {value!r}.")
        if num_labels < 2:
            raise ValueError(f"num_labels must be at least 2, one to train on and one held out, got {num_labels}.")
        if num_bins < 1:
            raise ValueError(f"num_bins must be at least 1, got {num_bins}.")
        if not 0 <= noise <= 1:
            raise ValueError(f"noise must lie between 0 and 1, got {noise}.")
        if not 0 < train_fraction < 1:
            raise ValueError(f"train_fraction must lie between 0 and 1, got {train_fraction}.")
        num_factors = dataset.factor_space.num_factors
        if labelling == "partial" and not 1 <= num_observed <= num_factors:
            raise ValueError(
                f"num_observed must be at least 1 and at most {num_factors}, the number of factors of {dataset.name}, "
                f"got {num_observed}."
            )
        self.num_labels = num_labels
        self.labelling = labelling
        self.num_bins, self.noise, self.num_observed = num_bins, noise, num_observed
        self.train_fraction = train_fraction
        self.label_seed = label_seed

    def setup(self, stage: str) -> None:
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
        labels, sizes = corrupt_labels(
            factors, space.sizes, self.labelling, generator, self.num_bins, self.noise, self.num_observed
        )
        return LabelledImages(images, labels / torch.tensor(sizes))

    @property
    def num_train_labels(self) -> int:
        """How many of the labels train; at least one is held out."""
        return min(math.ceil(self.num_labels * self.train_fraction), self.num_labels - 1)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """One training batch."""
        images = super().draw(generator)
        picked = torch.randint(self.num_train_labels, (self.batch_size,), generator=generator)
        return images, self.labelled.images[picked], self.labelled.labels[picked]

    def draw_held_out(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """One validation batch, with the held-out labels."""
        images = super().draw(generator)
        held_out = self.num_labels - self.num_train_labels
        picked = self.num_train_labels + torch.randperm(held_out, generator=generator)[:MOST_HELD_OUT]
        return images, self.labelled.images[picked], self.labelled.labels[picked]
