"""Streams of images: data sets that can only be read in order, such as ``datasets.IterableDataset``.

A stream has no random access, so a batch is found by reading on, and after a restart by skipping what was read before
without decoding it. Examples are shuffled within blocks. Batch n is then a function of (seed, rank, n) here too, if the
stream yields the same examples in the same order every time.
"""

import copy
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.datamodules.own.image_store import Bad, Items, Reading, decode_all
from unknot.datamodules.own.sources import bytes_or_path, find_key, split_names
from unknot.randomness import Stream, derive_seed

BLOCK = 1024  # examples per shuffled block


def is_stream(data: Any) -> bool:
    """Return whether a data set can only be read in order.

    >>> is_stream([1, 2]), is_stream(torch.utils.data.ChainDataset([]))
    (False, True)
    """
    if type(data).__name__ == "IterableDatasetDict":
        return True
    numbered = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    stream = isinstance(data, torch.utils.data.IterableDataset | torch.utils.data.Dataset) and not numbered
    return stream or isinstance(data, torch.utils.data.IterableDataset)


def _own(data: Any) -> Any:
    """A Hugging Face stream that shares no position with the one it was made from.

    Iterators of one stream, and of others that ``select_columns`` and the like made of it, write to one position. If
    two threads read at once, as one does that decodes the next batch, examples are lost.
    """
    return copy.deepcopy(data) if type(data).__module__.partition(".")[0] == "datasets" else data


class ImageStream:
    """Images of a stream, shuffled within blocks.

    Args:
        data: an iterable data set of images, tuples or dictionaries, or a Hugging Face ``IterableDatasetDict``.
        reading: settings for reading images.
        image_key: name of the image in an example.
        val_fraction: share of the stream that is held out, at regular intervals, unless the data has its own split.
    """

    def __init__(self, data: Any, reading: Reading, image_key: str | None, val_fraction: float) -> None:
        self.reading = reading
        self.held_out_data = None
        self.every = max(2, round(1 / val_fraction))  # one in this many is held out
        if isinstance(data, dict):
            train, held_out = split_names(data)
            data, self.held_out_data = data[train], _own(data[held_out]) if held_out else None
        data = _own(data)
        first = next(iter(data), None)
        if first is None:
            raise ValueError("The stream is empty; expected images, or tuples or dictionaries that hold one.")
        self.image_key: Any = None
        if isinstance(first, dict):
            likely = [name for name, value in first.items() if not isinstance(value, str | int | float | bool)]
            self.image_key = find_key(list(first), image_key, "The stream", "keys", likely)
        elif isinstance(first, tuple | list):
            self.image_key = 0
        self.data = self._encoded(data)
        self.held_out_data = None if self.held_out_data is None else self._encoded(self.held_out_data)
        self.shape = tuple(self.decode([first if self.image_key is None else first[self.image_key]])[0].shape)
        self.length: int | None = None  # training examples in a pass, known after the first
        self._forget()

    def _encoded(self, data: Any) -> Any:
        """Return the stream without decoding, with only the image column."""
        features = getattr(data, "features", None)
        if not features or self.image_key not in features:
            return data
        import datasets

        data = data.select_columns([self.image_key])
        if isinstance(features[self.image_key], datasets.Image):
            data = data.cast_column(self.image_key, datasets.Image(decode=False))
        return data

    def _forget(self) -> None:
        self._examples: Iterator[Any] | None = None
        self._next = -1  # index of the next example
        self._blocks: dict[int, list[Any]] = {}
        self._ahead: tuple[Any, Future[Tensor]] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._held_out: list[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        open_parts = ("_examples", "_ahead", "_pool", "_blocks", "_held_out")
        return {name: value for name, value in self.__dict__.items() if name not in open_parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget()

    def batch(self, start: int, size: int, step: int, seed: int) -> Tensor:
        """Return ``size`` training images from index ``start``; the next batch, ``step`` later, is decoded in the
        background.
        """
        request = (start, size, step, seed)
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            images = ahead[1].result()  # even if not needed: two threads must not read one stream
        if ahead is None or ahead[0] != request:
            images = self._batch(start, size, seed)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        following = (start + step, size, step, seed)
        self._ahead = following, self._pool.submit(self._batch, start + step, size, seed)
        return images

    def _batch(self, start: int, size: int, seed: int) -> Tensor:
        examples = []
        for number in range(start, start + size):
            block, place = divmod(number, BLOCK)
            if block not in self._blocks:
                self._blocks = {block: self._block(block, seed)}
            examples.append(self._blocks[block][place])
        return self.decode(examples)

    def _block(self, block: int, seed: int) -> list[Any]:
        first = block * BLOCK
        if self._examples is None or self._next != first:
            self._examples = self._from(first)
        examples = list(islice(self._examples, BLOCK))
        self._next = first + BLOCK
        generator = torch.Generator().manual_seed(derive_seed(seed, Stream.TRAIN_DATA, block))
        return [examples[place] for place in torch.randperm(BLOCK, generator=generator).tolist()]

    def _from(self, number: int) -> Iterator[Any]:
        """Yield training examples from ``number``, pass after pass."""
        while True:
            if self.length is not None:
                number %= self.length
            count = 0
            start = number if self.held_out_data is not None else number + number // (self.every - 1) + 1
            for position, example in self._read(self.data, start):
                if self.held_out_data is not None or position % self.every:
                    count += 1
                    yield self._image(example)
            if number == 0:
                if count == 0:
                    raise ValueError("The stream has too few examples to train on after some are held out.")
                self.length = count
            elif self.length is None:
                # The stream may end before ``number``: its pass is only known after counting all examples.
                self.length = sum(1 for position, _ in self._read(self.data, 0) if self._trains(position))
                if not self.length:
                    raise ValueError("The stream yields no more examples; every pass must yield the same examples.")
                if count == 0:
                    continue
            number = 0

    def _trains(self, position: int) -> bool:
        return self.held_out_data is not None or position % self.every != 0

    def _read(self, data: Any, start: int) -> Iterator[tuple[int, Any]]:
        """Yield examples and their positions from ``start``."""
        if start and hasattr(data, "skip"):
            return enumerate(data.skip(start), start)
        return islice(enumerate(data), start, None)

    def held_out(self, most: int) -> list[Any]:
        """Return at most this many encoded held-out examples, the same every time."""
        if self._ahead is not None:
            self._ahead[1].exception()  # two threads must not read one stream
        if self._held_out is None or len(self._held_out) < most:
            if self.held_out_data is not None:
                examples: Any = iter(self.held_out_data)
            else:
                examples = (example for position, example in enumerate(self.data) if position % self.every == 0)
            self._held_out = [self._image(example) for example in islice(examples, most)]
            if not self._held_out:
                raise ValueError("The held-out split of the stream is empty.")
        return self._held_out[:most]

    def _image(self, example: Any) -> Any:
        return bytes_or_path(example if self.image_key is None else example[self.image_key])

    def decode(self, images: list[Any]) -> Tensor:
        """Decode images to ``[n, C, H, W]``, float32 in [0, 1]."""
        images = [bytes_or_path(image) for image in images]
        if isinstance(images[0], Tensor | np.ndarray):
            batch = Items(images, self.reading).take(torch.arange(len(images)))
            return batch if batch.is_floating_point() else batch / 255
        bad: Bad = []
        decoded = decode_all(images, self.reading, bad)
        if bad:
            raise ValueError(f"Cannot read an image of the stream ({bad[0][1]}). Leave it out of the stream.")
        return torch.from_numpy(np.stack(decoded)) / 255
