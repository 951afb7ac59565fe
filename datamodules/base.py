"""Base of all DataModules: numbered batches, so that a run can be resumed at any of them, and epochs."""

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
    """Whose batches: the seed of the run, and the number of this process among all."""

    seed: int
    rank: int
    ranks: int

    def generator(self, stream: Stream, number: int) -> torch.Generator:
        """The randomness of batch ``number``: no two batches or ranks share a bit."""
        return torch.Generator().manual_seed(derive_seed(self.seed, stream, self.rank, number))


class BatchDataModule(ShowsArguments, pl.LightningDataModule, ABC):
    """A DataModule whose batch n is a function of (seed, rank, n) alone.

    So ranks differ, the number of workers changes nothing, and a resumed run continues with exactly the batch that the
    interrupted one would have seen next. Batches are counted over all epochs.

    Args:
        batch_size: examples per batch, on every rank.
        num_workers: processes that prepare batches.
        seed: of the order and of all that is drawn; ``None`` takes the one of ``seed_everything``.
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
        raise NotImplementedError(f"{type(self).__name__} does not say what shape its images have.")

    @abstractmethod
    def train_length(self, share: Share) -> int:
        """Return the number of training batches of each rank in an epoch."""

    @abstractmethod
    def train_batch(self, number: int, share: Share) -> Any:
        """Training batch ``number``, counted over all epochs."""

    @abstractmethod
    def held_out_length(self, share: Share) -> int:
        """Return the number of batches of each rank for validation, test and prediction."""

    @abstractmethod
    def held_out_batch(self, number: int, share: Share) -> Any:
        """One of these; the same every time."""

    def setup(self, stage: str = "fit") -> None:
        """Settle the seed, the same on all ranks."""
        if stage == "fit":
            fresh = torch.initial_seed() if self.seed is None else self.seed
            self._stream_seed = self.trainer.strategy.broadcast(fresh) if self.trainer else fresh

    def train_dataloader(self) -> DataLoader[Any]:
        """The training batches of this rank."""
        batches = _Batches(self, "train", self._share(self._stream_seed))
        return self._loader(_Resumable, batches, _Onward(self, len(batches)))

    def val_dataloader(self) -> DataLoader[Any]:
        """The fixed held-out batches of this rank."""
        # They do not depend on the seed, so that validation losses compare across runs.
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
            batch_size=None,  # an item is a batch already
            sampler=order,
            num_workers=self.num_workers,
            persistent_workers=kind is _Resumable and self.num_workers > 0,
            generator=torch.Generator(),  # without one the loader would take from the global one
        )

    def state_dict(self) -> dict[str, Any]:
        """The seed; the position is the Trainer's own batch counter."""
        return {"seed": self._stream_seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the batches of the saved run."""
        self._stream_seed = state_dict["seed"]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"trainer": None}  # worker processes only make batches

    def __repr__(self) -> str:
        dataset = getattr(self, "dataset", None)
        images = [] if dataset is None else [repr(dataset)]
        return f"{type(self).__name__}({', '.join([*images, f'batch_size={self.batch_size}'])})"

    def __str__(self) -> str:  # Lightning's makes the loaders, to say how many batches they have
        return repr(self)


class _Batches(Dataset[Any]):
    """The batches of a DataModule by their number. ``len`` is that of an epoch, but there is no last number."""

    def __init__(self, module: BatchDataModule, kind: Literal["train", "held_out"], share: Share) -> None:
        self.module, self.kind, self.share = module, kind, share

    def __len__(self) -> int:
        train = self.kind == "train"
        return self.module.train_length(self.share) if train else self.module.held_out_length(self.share)

    def __getitem__(self, number: int) -> Any:
        train = self.kind == "train"
        return (self.module.train_batch if train else self.module.held_out_batch)(number, self.share)


# These are DistributedSamplers only so that Lightning sees that ranks are looked after and leaves them alone.


class _InOrder(DistributedSampler[Any]):
    """Numbers from 0 on."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


class _Onward(_InOrder):
    """The numbers after the last batch that was trained on, in a new epoch as in a resumed run."""

    def __init__(self, module: BatchDataModule, length: int) -> None:
        super().__init__(length)
        self.module, self.passes = module, 0

    def __iter__(self) -> Iterator[int]:
        trainer = self.module.trainer
        if trainer is not None and trainer.state.fn == "fit" and trainer.state.status == "running":
            start = batches_done(trainer)
        else:  # somebody else's loop
            start = self.passes * self.length
            self.passes += 1
        yield from range(start, start + self.length)


class _Resumable(DataLoader[Any]):
    """A loader of which Lightning knows that it can be resumed: its sampler asks the Trainer where training is."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the Trainer counts batches, and the DataModule keeps the seed."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to do."""


class FiniteDataModule(BatchDataModule):
    """Examples of which there is a fixed number, in a new order in every epoch; some are held out.

    Subclasses implement :meth:`indices` and :meth:`take`. Ranks share no example, except where the last ones of an
    epoch do not go round.

    Args:
        batch_size: examples per batch, on every rank.
        num_val_batches: at most so many batches for validation, test and prediction; ``None`` takes all that is held
            out.
        num_workers: processes that prepare batches.
        seed: of the order and of all that is drawn; ``None`` takes the one of ``seed_everything``.
        drop_last: leave out the last batch of an epoch if it is smaller than the others; other examples are left out
            in every epoch.
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
        """Numbers of the examples to train on, or held out: int64 ``[n]``."""

    @abstractmethod
    def take(self, indices: Tensor, split: Literal["train", "val"], generator: torch.Generator) -> Any:
        """The batch of these examples, all of its randomness from ``generator``."""

    def train_length(self, share: Share) -> int:
        """Batches of a pass through the data."""
        examples, together = len(self.indices("train")), share.ranks * self.batch_size
        length = examples // together if self.drop_last else -(-examples // together)
        if length == 0:
            raise ValueError(
                f"A batch takes {together} examples (batch_size {self.batch_size}, {share.ranks} ranks), and there are "
                f"{examples} to train on: lower batch_size, give more data, or drop_last=False."
            )
        return length

    def train_batch(self, number: int, share: Share) -> Any:
        """Batch ``number``: this rank's part of the examples that come next."""
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
        """Batches of a pass through what is held out."""
        return len(self._held_out(share))

    def held_out_batch(self, number: int, share: Share) -> Any:
        """Batch ``number`` of a pass through what is held out, in order."""
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
