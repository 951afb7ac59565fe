"""DataModules that draw batches as in the thesis: i.i.d., so that an epoch is no more than a number of steps."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from unknot.arguments import whole
from unknot.datamodules.base import BatchDataModule, Share
from unknot.datamodules.factors import GroundTruthDataset, check_dataset
from unknot.datamodules.views import Resized
from unknot.randomness import Stream


class StreamDataModule(BatchDataModule):
    """An endless stream of batches; what is in a batch is up to :meth:`draw`.

    Args:
        batch_size: examples per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same every time.
        num_workers: processes that prepare batches.
        seed: of the stream; ``None`` takes the one of ``seed_everything``.
        steps_per_epoch: how many batches Lightning calls an epoch: after each of them it validates, by default. The
            stream continues across epochs; no batch is drawn twice.
    """

    def __init__(
        self,
        batch_size: int = 64,
        num_val_batches: int = 16,
        num_workers: int = 0,
        seed: int | None = None,
        steps_per_epoch: int = 1000,
    ) -> None:
        super().__init__(batch_size, num_workers, seed)
        self.steps_per_epoch = whole("steps_per_epoch", steps_per_epoch)
        self.num_val_batches = whole("num_val_batches", num_val_batches)

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Any:
        """One training batch, all of its randomness from ``generator``."""

    def draw_held_out(self, generator: torch.Generator) -> Any:
        """One batch for validation, test or prediction."""
        return self.draw(generator)

    def train_length(self, share: Share) -> int:
        """``steps_per_epoch``."""
        return self.steps_per_epoch

    def train_batch(self, number: int, share: Share) -> Any:
        """Batch ``number`` of the stream."""
        return self.draw(share.generator(Stream.TRAIN_DATA, number))

    def held_out_length(self, share: Share) -> int:
        """``num_val_batches``."""
        return self.num_val_batches

    def held_out_batch(self, number: int, share: Share) -> Any:
        """Batch ``number`` of the stream that is for validation."""
        return self.draw_held_out(share.generator(Stream.HELD_OUT_DATA, number))


class FactorDataModule(StreamDataModule):
    """I.i.d. batches of images from a ground-truth data set: no split.

    Args:
        dataset: where factors and images come from.
        batch_size: images per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same images every time.
        num_workers: processes that prepare batches. dSprites needs none: a batch takes about a millisecond.
        seed: of the stream; ``None`` takes the one of ``seed_everything``.
        steps_per_epoch: how many batches Lightning calls an epoch; the stream continues across epochs.
        image_size: side, or (height, width), to show the images at; by default as they are. See :class:`Resized`.
        with_factors: batches are ``(images, factors)``, with int64 ``[batch_size, F]``, for metrics in a validation
            loop. Models of the zoo train on the images alone.

    >>> from unknot.datamodules import DSprites, FactorDataModule
    >>> data = FactorDataModule(DSprites(), batch_size=16, seed=0)
    >>> next(iter(data.train_dataloader())).shape
    torch.Size([16, 1, 64, 64])
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        batch_size: int = 64,
        num_val_batches: int = 16,
        num_workers: int = 0,
        seed: int | None = None,
        steps_per_epoch: int = 1000,
        image_size: int | tuple[int, int] | None = None,
        with_factors: bool = False,
    ) -> None:
        super().__init__(batch_size, num_val_batches, num_workers, seed, steps_per_epoch)
        check_dataset(dataset)
        self.dataset = dataset if image_size is None else Resized(dataset, image_size)
        self.with_factors = with_factors

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the images, for the model."""
        return self.dataset.image_shape

    def prepare_data(self) -> None:
        """Draw, download or convert the data, once per machine."""
        self.dataset.prepare()

    def draw(self, generator: torch.Generator) -> Any:
        """One batch: images ``[batch_size, C, H, W]``. What other DataModules of this family override."""
        factors = self._factors(generator)
        images = self.dataset.observe(factors, generator)
        return (images, factors) if self.with_factors else images

    def _factors(self, generator: torch.Generator) -> Tensor:
        return self.dataset.factor_space.sample(self.batch_size, generator)
