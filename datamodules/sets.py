"""DataModule of images with sets of objects, for set prediction and object discovery."""

import math
from typing import Literal

import torch
from torch import Tensor

from unknot.arguments import is_number, whole
from unknot.datamodules.base import FiniteDataModule, Share
from unknot.datamodules.scenes.layout import SceneDataset, SetBatch
from unknot.datamodules.transforms import jittered
from unknot.randomness import Stream


class SetDataModule(FiniteDataModule):
    """Batches :class:`SetBatch` of images, padded sets of objects and, if available, masks.

    Endless data (:class:`ClevrScenes` without ``num_scenes``) are a stream whose epochs are a number of steps. Data
    with a fixed number of examples (:class:`CLEVR`, or :class:`ClevrScenes` with ``num_scenes``) are passed through in
    a new order in every epoch. Either way batch n of a rank is a function of (seed, rank, n) alone, so that ranks share
    no examples, the number of workers has no effect, and a resumed run continues with the batch that would have come
    next.

    Args:
        dataset: data set to train on.
        val_dataset: data set for validation, test and prediction: all of it in order, or ``num_val_batches`` batches if
            it is endless. ``None`` draws from the same endless data set, or holds out the first 512 examples of a
            finite one, or the first tenth if that is less. (The reference holds out the first 512.)
        batch_size: images per batch, on every rank.
        num_val_batches: validation batches of endless data; the same every time.
        num_workers: processes that prepare batches. Each draws on one core.
        seed: seed of the stream; ``None`` uses that of ``seed_everything``.
        steps_per_epoch: batches per epoch of endless data; the stream continues across epochs.
        drop_last: leave out an incomplete last batch; different examples are left out in every epoch.
        color_jitter: strength of colour augmentation of training images, in [0, 1]: saturation and contrast by a factor
            within 1 ± strength, brightness within half and each channel within a quarter of it; drawn per image. Models
            trained on rendered scenes then depend less on their colours.

    >>> from unknot.datamodules.scenes.clevr_scenes import ClevrScenes
    >>> data = SetDataModule(ClevrScenes(image_size=64), batch_size=4, seed=0)
    >>> images, targets, masks = next(iter(data.train_dataloader()))
    >>> images.shape, targets.shape, masks.shape
    (torch.Size([4, 3, 64, 64]), torch.Size([4, 10, 19]), torch.Size([4, 64, 64]))
    """

    def __init__(
        self,
        dataset: SceneDataset,
        val_dataset: SceneDataset | None = None,
        batch_size: int = 64,
        num_val_batches: int = 16,
        num_workers: int = 0,
        seed: int | None = None,
        steps_per_epoch: int = 1000,
        drop_last: bool = True,
        color_jitter: float = 0.0,
    ) -> None:
        for name, given in (("dataset", dataset), ("val_dataset", dataset if val_dataset is None else val_dataset)):
            if not isinstance(given, SceneDataset):
                raise ValueError(f"{name} must be a data set of scenes such as ClevrScenes(), got {given!r}.")
        held_out = dataset if val_dataset is None else val_dataset
        whole("num_val_batches", num_val_batches)
        super().__init__(batch_size, num_val_batches if held_out.endless else None, num_workers, seed, drop_last)
        self.steps_per_epoch = whole("steps_per_epoch", steps_per_epoch)
        if not (is_number(color_jitter) and 0 <= color_jitter <= 1):
            raise ValueError(f"color_jitter must lie in [0, 1], where 0 varies nothing, got {color_jitter!r}.")
        self.color_jitter = color_jitter
        self.dataset, self.val_dataset = dataset, held_out
        self.num_held_out = 0
        if val_dataset is None and not dataset.endless:
            self.num_held_out = min(512, math.ceil(len(dataset) / 10))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the images, for the model."""
        return self.dataset.image_shape

    def prepare_data(self) -> None:
        """Draw or convert the data, once per machine."""
        self.dataset.prepare()
        self.val_dataset.prepare()

    def train_length(self, share: Share) -> int:
        """Return ``steps_per_epoch``, or the number of batches in a pass through the data."""
        return self.steps_per_epoch if self.dataset.endless else super().train_length(share)

    def train_batch(self, number: int, share: Share) -> SetBatch:
        """Return batch ``number``, drawn or from the pass that it belongs to."""
        batch: SetBatch
        if self.dataset.endless:
            batch = self.dataset.draw(self.batch_size, share.generator(Stream.TRAIN_DATA, number))
        else:
            batch = super().train_batch(number, share)
        if not self.color_jitter:
            return batch
        low, high = self.dataset.value_range
        generator = share.generator(Stream.TRAIN_EXAMPLES, number)
        images = jittered((batch.images - low) / (high - low), self.color_jitter, generator)
        return batch._replace(images=low + (high - low) * images)

    def held_out_length(self, share: Share) -> int:
        """Return ``num_val_batches``, or the number of batches in a pass through the held-out data."""
        if self.val_dataset.endless:
            assert self.num_val_batches is not None
            return self.num_val_batches
        return super().held_out_length(share)

    def held_out_batch(self, number: int, share: Share) -> SetBatch:
        """Return held-out batch ``number``."""
        if self.val_dataset.endless:
            return self.val_dataset.draw(self.batch_size, share.generator(Stream.HELD_OUT_DATA, number))
        batch: SetBatch = super().held_out_batch(number, share)
        return batch

    def indices(self, split: Literal["train", "val"]) -> Tensor:
        """Return the indices of the examples to train on, or held out."""
        if split == "train":
            return torch.arange(self.num_held_out, len(self.dataset))
        return torch.arange(self.num_held_out or len(self.val_dataset))

    def take(self, indices: Tensor, split: Literal["train", "val"], generator: torch.Generator) -> SetBatch:
        """Return the examples with these indices."""
        return (self.dataset if split == "train" else self.val_dataset).batch(indices.tolist())
