"""DataModules that draw i.i.d. batches, as in the thesis, so that an epoch is only a number of steps."""

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
    """Endless stream of batches; subclasses implement :meth:`draw`.

    Args:
        batch_size: examples per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same every time.
        num_workers: processes that prepare batches.
        seed: seed of the stream; ``None`` uses that of ``seed_everything``.
        steps_per_epoch: batches per epoch, after which Lightning validates by default. The stream continues across
            epochs; no batch is drawn twice.
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
        """Draw one training batch, with all randomness from ``generator``."""

    def draw_held_out(self, generator: torch.Generator) -> Any:
        """Draw one batch for validation, test or prediction."""
        return self.draw(generator)

    def train_length(self, share: Share) -> int:
        """Return ``steps_per_epoch``."""
        return self.steps_per_epoch

    def train_batch(self, number: int, share: Share) -> Any:
        """Return batch ``number`` of the stream."""
        return self.draw(share.generator(Stream.TRAIN_DATA, number))

    def held_out_length(self, share: Share) -> int:
        """Return ``num_val_batches``."""
        return self.num_val_batches

    def held_out_batch(self, number: int, share: Share) -> Any:
        """Return batch ``number`` of the validation stream."""
        return self.draw_held_out(share.generator(Stream.HELD_OUT_DATA, number))


class FactorDataModule(StreamDataModule):
    """I.i.d. batches of images from a ground-truth data set, without a split.

    Args:
        dataset: data set to draw factors and images from.
        batch_size: images per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same images every time.
        num_workers: processes that prepare batches; 0 is enough for dSprites, where a batch takes about a millisecond.
        seed: seed of the stream; ``None`` uses that of ``seed_everything``.
        steps_per_epoch: batches per epoch; the stream continues across epochs.
        image_size: side, or (height, width), to resize images to; by default unchanged. See :class:`Resized`.
        with_factors: batches are ``(images, factors)``, with int64 ``[batch_size, F]``, for metrics in a validation
            loop. Models of the zoo train on the images only.

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
        """Draw one batch of images ``[batch_size, C, H, W]``. Other DataModules of this family override this."""
        factors = self._factors(generator)
        images = self.dataset.observe(factors, generator)
        return (images, factors) if self.with_factors else images

    def _factors(self, generator: torch.Generator) -> Tensor:
        return self.dataset.factor_space.sample(self.batch_size, generator)
