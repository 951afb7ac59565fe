"""Batches of images with sets of objects, for set prediction and object discovery."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from unknot._lightning import batches_done
from unknot._seeding import Stream, derive_seed
from unknot.datamodules.clevr import SceneDataset, SetBatch
from unknot.datamodules.stream import StreamDataModule


class SetDataModule(StreamDataModule):
    """Batches :class:`SetBatch` of images, padded sets of objects and, where there are some, masks.

    Endless data (:class:`ClevrScenes` without ``num_scenes``) are a stream without epochs, as in all other DataModules
    here. Data of which there is a fixed number (:class:`CLEVR`, or :class:`ClevrScenes` with ``num_scenes``) are
    passed through in a new order in every epoch; what does not fill a last batch waits for a later one. Either way
    batch n of a rank is a function of (seed, rank, n) alone, so that ranks share no example, the number of workers
    changes nothing and a resumed run goes on with the batch that the interrupted one would have seen next.

    Args:
        dataset: to train on.
        val_dataset: for validation, test and prediction: all of it in order, or ``num_val_batches`` batches where it
            is endless. ``None`` draws from the same endless data set, or holds out the first 512 examples of one that
            is not, or the first tenth if that is less. (The reference holds out the first 512.)
        batch_size: images per batch, on every rank.
        num_val_batches: batches for validation where that is endless; the same every time.
        num_workers: processes that prepare batches. Each draws on one core.
        seed: of the stream; ``None`` takes, in a Trainer, the one of ``seed_everything``.

    >>> from unknot.datamodules.clevr_scenes import ClevrScenes
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
    ) -> None:
        super().__init__(batch_size, num_val_batches, num_workers, seed)
        self.dataset = dataset
        self.val_dataset = dataset if val_dataset is None else val_dataset
        self.num_held_out = 0
        if val_dataset is None and not dataset.endless:
            self.num_held_out = min(512, math.ceil(len(dataset) / 10))

    def prepare_data(self) -> None:
        """Draw or convert the data, once per machine."""
        self.dataset.prepare()
        self.val_dataset.prepare()

    def draw(self, generator: torch.Generator) -> SetBatch:
        """One training batch of endless data."""
        return self.dataset.draw(self.batch_size, generator)

    def draw_held_out(self, generator: torch.Generator) -> SetBatch:
        """One validation batch of endless data."""
        return self.val_dataset.draw(self.batch_size, generator)

    def train_dataloader(self) -> DataLoader[Any]:
        """The endless training stream of this rank, or this rank's part of one pass through the data."""
        if self.dataset.endless:
            return super().train_dataloader()
        return self._finite_loader(_PassLoader, self.dataset, _Pass(self))

    def val_dataloader(self) -> DataLoader[Any]:
        """The validation batches of this rank."""
        if self.val_dataset.endless:
            return super().val_dataloader()
        return self._finite_loader(DataLoader, self.val_dataset, _InOrder(self))

    test_dataloader = val_dataloader
    predict_dataloader = val_dataloader

    def _finite_loader(
        self, kind: type[DataLoader[Any]], dataset: SceneDataset, order: "DistributedSampler[Any]"
    ) -> DataLoader[Any]:
        return kind(
            _Examples(dataset),
            batch_size=None,
            sampler=order,
            num_workers=self.num_workers,
            generator=torch.Generator(),  # without one the loader would take from the global one
        )

    def _rank(self) -> tuple[int, int]:
        """Number of this process and of all."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)


class _Examples(Dataset[SetBatch]):
    """Batches by the list of their examples' numbers."""

    def __init__(self, dataset: SceneDataset) -> None:
        self.dataset = dataset

    def __getitem__(self, numbers: list[int]) -> SetBatch:  # type: ignore[override]
        return self.dataset.batch(numbers)


# Both are DistributedSamplers only so that Lightning sees that ranks are looked after and leaves them alone.


class _Pass(DistributedSampler[Any]):
    """Numbers of the examples of the next batches, as many as make one pass through the training data."""

    def __init__(self, module: SetDataModule) -> None:
        self.module = module
        self.rank, self.ranks = module._rank()
        self.examples = len(module.dataset) - module.num_held_out
        if len(self) == 0:
            raise ValueError(
                f"A batch takes {self.ranks * module.batch_size} examples (batch_size {module.batch_size}, "
                f"{self.ranks} ranks), and there are {self.examples} to train on: lower batch_size, or give more data."
            )

    def __len__(self) -> int:
        return self.examples // (self.ranks * self.module.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        start, size = batches_done(self.module.trainer), self.module.batch_size
        order: list[int] = []
        for number in range(start, start + len(self)):
            run, batch = divmod(number, len(self))
            if not order or batch == 0:
                key = derive_seed(self.module._stream_seed or 0, Stream.TRAIN_DATA, run)
                shuffled = torch.randperm(self.examples, generator=torch.Generator().manual_seed(key))
                order = (shuffled + self.module.num_held_out).tolist()
            first = (batch * self.ranks + self.rank) * size
            yield order[first : first + size]


class _InOrder(DistributedSampler[Any]):
    """Numbers of the validation examples, batch by batch; the last batch may be smaller."""

    def __init__(self, module: SetDataModule) -> None:
        self.module = module
        self.rank, self.ranks = module._rank()
        examples = module.num_held_out or len(module.val_dataset)
        numbers = list(range(examples))
        batches = [numbers[i : i + module.batch_size] for i in range(0, examples, module.batch_size)]
        self.batches = batches[self.rank :: self.ranks]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


class _PassLoader(DataLoader[Any]):
    """A loader of which Lightning knows that it can be resumed: its sampler asks the Trainer where training is."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the Trainer counts batches, and the DataModule keeps the seed."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to do."""
