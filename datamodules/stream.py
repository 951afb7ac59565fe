"""DataModules that draw batches as in the thesis: i.i.d., no epochs."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from unknot._lightning import batches_done, pl
from unknot._seeding import Stream, derive_seed
from unknot.datamodules.factors import GroundTruthDataset


class _Batches(IterableDataset[Any]):
    """Batches number ``start``, ``start + 1``, ... of a DataModule's stream.

    Worker w of W makes every W-th batch from the w-th on, which the loader puts back in order: the stream does not
    depend on the number of workers.
    """

    def __init__(self, module: "StreamDataModule", stream: Stream, seed: int, rank: int, count: int | None) -> None:
        self.module, self.stream, self.seed, self.rank, self.count = module, stream, seed, rank, count
        self.start = 0

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        offset, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        numbers = itertools.count(self.start) if self.count is None else range(self.start, self.count)
        for number in itertools.islice(numbers, offset, None, stride):
            key = derive_seed(self.seed, self.stream, self.rank, number)
            draw = self.module.draw_held_out if self.stream == Stream.HELD_OUT_DATA else self.module.draw
            yield draw(torch.Generator().manual_seed(key))


class _TrainLoader(DataLoader[Any]):
    """A loader that goes on after the last batch that was trained on, in a new epoch as in a resumed run."""

    def __iter__(self) -> Any:
        assert isinstance(self.dataset, _Batches)
        self.dataset.start = batches_done(self.dataset.module.trainer)
        return super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the Trainer counts batches, and the DataModule keeps the seed."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to do; that both methods exist tells Lightning that the loader can be resumed."""


class StreamDataModule(pl.LightningDataModule, ABC):
    """An endless stream of batches; what is in a batch is up to :meth:`draw`.

    Batch n of a rank is a function of (seed, rank, n) alone. So ranks differ, the number of workers changes nothing,
    and a resumed run continues with exactly the batch that the interrupted one would have seen next.

    Args:
        batch_size: examples per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same every time.
        num_workers: processes that prepare batches.
        seed: of the stream; ``None`` takes, in a Trainer, the one of ``seed_everything``.
    """

    def __init__(
        self, batch_size: int = 64, num_val_batches: int = 16, num_workers: int = 0, seed: int | None = None
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("num_val_batches", num_val_batches, 1),
            ("num_workers", num_workers, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")
        self.batch_size = batch_size
        self.num_val_batches = num_val_batches
        self.num_workers = num_workers
        self.seed = seed
        self._stream_seed = seed

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Any:
        """One training batch, all of its randomness from ``generator``."""

    def draw_held_out(self, generator: torch.Generator) -> Any:
        """One batch for validation, test or prediction."""
        return self.draw(generator)

    def setup(self, stage: str) -> None:
        """Settle the seed of the stream, the same on all ranks."""
        if stage == "fit":
            assert self.trainer is not None
            fresh = torch.initial_seed() if self.seed is None else self.seed
            self._stream_seed = self.trainer.strategy.broadcast(fresh)

    def train_dataloader(self) -> DataLoader[Any]:
        """The endless training stream of this rank."""
        return self._loader(_TrainLoader, Stream.TRAIN_DATA, None)

    def val_dataloader(self) -> DataLoader[Any]:
        """The fixed validation batches of this rank."""
        return self._loader(DataLoader, Stream.HELD_OUT_DATA, self.num_val_batches)

    test_dataloader = val_dataloader
    predict_dataloader = val_dataloader

    def _loader(self, kind: type[DataLoader[Any]], stream: Stream, count: int | None) -> DataLoader[Any]:
        # Held-out images do not depend on the seed, so that validation losses compare across runs.
        seed = 0 if stream == Stream.HELD_OUT_DATA or self._stream_seed is None else self._stream_seed
        rank = self.trainer.global_rank if self.trainer else 0
        batches = _Batches(self, stream, seed, rank, count)
        # A generator of its own: without one the loader would take from the global one.
        return kind(batches, batch_size=None, num_workers=self.num_workers, generator=torch.Generator())

    def state_dict(self) -> dict[str, Any]:
        """The seed of the stream; the position in it is the Trainer's own batch counter."""
        return {"seed": self._stream_seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the stream of the saved run."""
        self._stream_seed = state_dict["seed"]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"trainer": None}  # worker processes only draw


class FactorDataModule(StreamDataModule):
    """I.i.d. batches of images from a ground-truth data set: no epochs, no split.

    Args:
        dataset: where factors and images come from.
        batch_size: images per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same images every time.
        num_workers: processes that prepare batches. dSprites needs none: a batch takes about a millisecond.
        seed: of the stream; ``None`` takes, in a Trainer, the one of ``seed_everything``.

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
    ) -> None:
        super().__init__(batch_size, num_val_batches, num_workers, seed)
        self.dataset = dataset

    def prepare_data(self) -> None:
        """Draw, download or convert the data, once per machine."""
        self.dataset.prepare()

    def draw(self, generator: torch.Generator) -> Any:
        """One batch: images ``[batch_size, C, H, W]``. What other DataModules of this family override."""
        return self.dataset.observe(self._factors(generator), generator)

    def _factors(self, generator: torch.Generator) -> Tensor:
        return self.dataset.factor_space.sample(self.batch_size, generator)
