"""Base classes of DataModules: numbered batches, so that a run can resume at any batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from unknot.arguments import ShowsArguments, whole
from unknot.lightning import batches_done, pl
from unknot.randomness import Stream, derive_seed


class Share(NamedTuple):
    """Seed of the run, and number of this process among all processes."""

    seed: int
    rank: int
    ranks: int

    def generator(self, stream: Stream, number: int) -> torch.Generator:
        """Return the random generator of batch ``number``; no two batches or ranks share random numbers."""
        return torch.Generator().manual_seed(derive_seed(self.seed, stream, self.rank, number))


class BatchDataModule(ShowsArguments, pl.LightningDataModule, ABC):
    """DataModule whose batch n is a function of (seed, rank, n) alone.

    Ranks therefore differ, the number of workers has no effect, and a resumed run continues with exactly the batch that
    the interrupted one would have seen next. Batches are counted over all epochs.

    Args:
        batch_size: examples per batch, on every rank.
        num_workers: processes that prepare batches.
        seed: seed of the order and of all random draws; ``None`` uses that of ``seed_everything``.
    """

    def __init__(self, batch_size: int = 64, num_workers: int = 0, seed: int | None = None) -> None:
        super().__init__()
        self.batch_size = whole("batch_size", batch_size)
        self.num_workers = whole("num_workers", num_workers, least=0)
        self.seed = None if seed is None else whole("seed", seed, least=None)
        self._stream_seed = self.seed

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the images, for the model."""
        raise NotImplementedError(f"{type(self).__name__} does not define image_shape.")

    @abstractmethod
    def train_length(self, share: Share) -> int:
        """Return the number of training batches of each rank in an epoch."""

    @abstractmethod
    def train_batch(self, number: int, share: Share) -> Any:
        """Return training batch ``number``, counted over all epochs."""

    @abstractmethod
    def held_out_length(self, share: Share) -> int:
        """Return the number of batches of each rank for validation, test and prediction."""

    @abstractmethod
    def held_out_batch(self, number: int, share: Share) -> Any:
        """Return held-out batch ``number``, the same every time."""

    def setup(self, stage: str = "fit") -> None:
        """Choose the seed, the same on all ranks."""
        if stage == "fit":
            fresh = torch.initial_seed() if self.seed is None else self.seed
            self._stream_seed = self.trainer.strategy.broadcast(fresh) if self.trainer else fresh

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training batches of this rank."""
        batches = _Batches(self, "train", self._share(self._stream_seed))
        return self._loader(_Resumable, batches, _Onward(self, len(batches)))

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the fixed held-out batches of this rank."""
        # They do not depend on the seed, so that validation losses are comparable across runs.
        batches = _Batches(self, "held_out", self._share(0))
        return self._loader(DataLoader, batches, _InOrder(len(batches)))

    test_dataloader = val_dataloader
    predict_dataloader = val_dataloader

    def _share(self, seed: int | None) -> Share:
        rank, ranks = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        return Share(torch.initial_seed() if seed is None else seed, rank, ranks)

    def _loader(
        self, kind: type[DataLoader[Any]], batches: "_Batches", order: "DistributedSampler[Any]"
    ) -> DataLoader[Any]:
        return kind(
            batches,
            batch_size=None,  # an item is already a batch
            sampler=order,
            num_workers=self.num_workers,
            persistent_workers=kind is _Resumable and self.num_workers > 0,
            generator=torch.Generator(),  # without a generator, the loader would use the global one
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the seed; the position is the Trainer's batch counter."""
        return {"seed": self._stream_seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the batches of the saved run."""
        self._stream_seed = state_dict["seed"]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"trainer": None}  # worker processes only prepare batches

    def __repr__(self) -> str:
        dataset = getattr(self, "dataset", None)
        images = [] if dataset is None else [repr(dataset)]
        return f"{type(self).__name__}({', '.join([*images, f'batch_size={self.batch_size}'])})"

    def __str__(self) -> str:  # Lightning's own property builds the loaders to count their batches
        return repr(self)


class _Batches(Dataset[Any]):
    """Batches of a DataModule by number. ``len`` is the length of an epoch, but numbers continue beyond it."""

    def __init__(self, module: BatchDataModule, kind: Literal["train", "held_out"], share: Share) -> None:
        self.module, self.kind, self.share = module, kind, share

    def __len__(self) -> int:
        train = self.kind == "train"
        return self.module.train_length(self.share) if train else self.module.held_out_length(self.share)

    def __getitem__(self, number: int) -> Any:
        train = self.kind == "train"
        return (self.module.train_batch if train else self.module.held_out_batch)(number, self.share)


# These are DistributedSamplers only so that Lightning does not replace them: ranks already differ.


class _InOrder(DistributedSampler[Any]):
    """Sampler of the numbers from 0."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


class _Onward(_InOrder):
    """Sampler of the numbers after the last trained batch, in a new epoch and in a resumed run."""

    def __init__(self, module: BatchDataModule, length: int) -> None:
        super().__init__(length)
        self.module, self.passes = module, 0

    def __iter__(self) -> Iterator[int]:
        trainer = self.module.trainer
        if trainer is not None and trainer.state.fn == "fit" and trainer.state.status == "running":
            start = batches_done(trainer)
        else:  # a loop without Trainer
            start = self.passes * self.length
            self.passes += 1
        yield from range(start, start + self.length)


class _Resumable(DataLoader[Any]):
    """Loader that Lightning recognises as resumable: its sampler asks the Trainer for the position."""

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: the Trainer counts batches, and the DataModule stores the seed."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing."""


class FiniteDataModule(BatchDataModule):
    """DataModule of a fixed number of examples, in a new order in every epoch; some are held out.

    Subclasses implement :meth:`indices` and :meth:`take`. Ranks share no examples, except if the last examples of an
    epoch cannot be divided evenly.

    Args:
        batch_size: examples per batch, on every rank.
        num_val_batches: maximum number of batches for validation, test and prediction; ``None`` uses all held-out
            examples.
        num_workers: processes that prepare batches.
        seed: seed of the order and of all random draws; ``None`` uses that of ``seed_everything``.
        drop_last: leave out the last batch of an epoch if it is smaller than the others; different examples are left
            out in every epoch.
    """

    def __init__(
        self,
        batch_size: int = 64,
        num_val_batches: int | None = None,
        num_workers: int = 0,
        seed: int | None = None,
        drop_last: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, seed)
        self.drop_last = drop_last
        self.num_val_batches = None if num_val_batches is None else whole("num_val_batches", num_val_batches)
        self._order: tuple[tuple[int, int], Tensor] | None = None

    @abstractmethod
    def indices(self, split: Literal["train", "val"]) -> Tensor:
        """Return the indices of the examples to train on, or held out: int64 ``[n]``."""

    @abstractmethod
    def take(self, indices: Tensor, split: Literal["train", "val"], generator: torch.Generator) -> Any:
        """Return the batch of these examples, with all randomness from ``generator``."""

    def train_length(self, share: Share) -> int:
        """Return the number of batches in a pass through the data."""
        examples, together = len(self.indices("train")), share.ranks * self.batch_size
        length = examples // together if self.drop_last else -(-examples // together)
        if length == 0:
            raise ValueError(
                f"A batch takes {together} examples (batch_size {self.batch_size}, {share.ranks} ranks), and there are "
                f"{examples} to train on: lower batch_size, give more data, or drop_last=False."
            )
        return length

    def train_batch(self, number: int, share: Share) -> Any:
        """Return batch ``number``: this rank's part of the next examples."""
        epoch, batch = divmod(number, self.train_length(share))
        order, together = self._shuffled(epoch, share.seed), share.ranks * self.batch_size
        now = order[batch * together : (batch + 1) * together]
        size = -(-len(now) // share.ranks)
        if len(now) % share.ranks:
            now = torch.cat([now, order[: size * share.ranks - len(now)]])
        mine = now[share.rank * size : (share.rank + 1) * size]
        return self.take(mine, "train", share.generator(Stream.TRAIN_EXAMPLES, number))

    def _shuffled(self, epoch: int, seed: int) -> Tensor:
        if self._order is None or self._order[0] != (epoch, seed):
            key = derive_seed(seed, Stream.TRAIN_DATA, epoch)
            indices = self.indices("train")
            order = torch.randperm(len(indices), generator=torch.Generator().manual_seed(key))
            self._order = (epoch, seed), indices[order]
        return self._order[1]

    def held_out_length(self, share: Share) -> int:
        """Return the number of batches in a pass through the held-out examples."""
        return len(self._held_out(share))

    def held_out_batch(self, number: int, share: Share) -> Any:
        """Return batch ``number`` of a pass through the held-out examples, in order."""
        return self.take(self._held_out(share)[number], "val", share.generator(Stream.HELD_OUT_DATA, number))

    def _held_out(self, share: Share) -> tuple[Tensor, ...]:
        indices = self.indices("val")
        length = -(-len(indices) // (share.ranks * self.batch_size))  # the same on every rank
        mine = indices[share.rank :: share.ranks]
        if len(mine) < length:
            mine = torch.cat([mine, indices[: length - len(mine)]])
        batches = mine.split(self.batch_size)
        batches = batches if len(batches) == length else mine.tensor_split(length)
        return batches[: self.num_val_batches]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_order": None}
