"""Pairs of neighbouring frames from users' videos."""

import math
import operator
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unknot.arguments import fraction, height_and_width
from unknot.datamodules.base import FiniteDataModule
from unknot.datamodules.grid import fingerprint
from unknot.datamodules.own.decode import (
    EXTENSIONS,
    Crop,
    check_background,
    check_crop,
    image_files,
    natural_order,
)
from unknot.datamodules.own.image_store import Pictures, Reading, from_array, from_files, from_source
from unknot.datamodules.own.sources import Source
from unknot.datamodules.transforms import Transform, transformed, transformed_shape

VIDEOS = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".gif")


class VideoFile(Source):
    """Frames of a video file, decoded once into the cache for random access."""

    random_access = False
    unit = "frames"

    def __init__(self, path: Path) -> None:
        self.path, self.title = path, str(path)
        try:
            import av
        except ImportError:
            raise ImportError(
                f"{path}: reading video files needs PyAV: pip install 'unknot[video]'. Or extract the frames into a "
                f"folder: ffmpeg -i {path.name} frames/%06d.png"
            ) from None
        self._open, self._error = av.open, av.FFmpegError
        self._count = sum(1 for _ in self._frames())
        if not self._count:
            raise ValueError(f"{path}: this video has no frames.")

    def __len__(self) -> int:
        return self._count

    def key(self, *more: object) -> str:
        """Return a key from size and modification time of the file."""
        return fingerprint([self.path], *more)

    def get(self, numbers: Sequence[int]) -> list[Any]:
        """Return the frames with these indices, which must be sorted."""
        requested = set(numbers)
        return [frame.to_image() for number, frame in enumerate(self._frames()) if number in requested]

    def chunks(self, size: int) -> Iterator[list[Any]]:
        """Yield all frames in order."""
        frames = self._frames()
        while part := [frame.to_image() for frame in islice(frames, size)]:
            yield part

    def _frames(self) -> Iterator[Any]:
        try:
            with self._open(str(self.path)) as container:
                if not container.streams.video:
                    raise ValueError(f"{self.path}: this file has no video.")
                yield from container.decode(video=0)
        except self._error as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
            raise ValueError(
                f"{self.path}: not a video that can be read ({reason}). Copy or convert it again."
            ) from None


class Videos(NamedTuple):
    """Frames of all videos, concatenated, and the indices at which a pair can start."""

    videos: list[Pictures]
    train_starts: Tensor
    held_out_starts: Tensor


class FramePairDataModule(FiniteDataModule):
    """Pairs of neighbouring frames of your own videos, between which few factors change.

    A batch is ``(first, second)``, each ``[N, C, H, W]`` in [0, 1]. The last part of every video is held out. Every
    epoch passes through all pairs of the rest in a new order. Files are decoded once and cached.

    Args:
        frames: a video file, read by PyAV (``pip install 'unknot[video]'``); a folder of images, which form one video
            in natural order of their names (``frame2`` before ``frame10``); a folder of videos or of such folders, each
            a separate video; an array or tensor ``[T, C, H, W]`` or ``[T, H, W, C]``, uint8 or floats in [0, 1]; or a
            list of these. Pairs never cross videos.
        gap: distance of the two images in frames; ``(low, high)`` draws it for every pair.
        image_size: side, or (height, width), to resize to. By default 64 for files; arrays keep their size.
        grayscale: one channel instead of three.
        val_fraction: share of every video, at its end, that is held out.
        crop: part of the image to resize, as for :class:`ImageDataModule`; by default all of it, stretched.
        background: colour behind transparent parts of files.
        transform: transform of every training pair ``[2, C, H, W]``, applied to both images alike.
        val_transform: transform of every held-out pair.
        batches: arguments of :class:`FiniteDataModule`: ``batch_size``, ``num_val_batches``, ``num_workers``, ``seed``
            and ``drop_last``.

    >>> video = torch.rand(100, 3, 64, 64)
    >>> data = FramePairDataModule(video, gap=2, batch_size=8, seed=0)
    >>> first, second = next(iter(data.train_dataloader()))
    >>> first.shape, data.image_shape
    (torch.Size([8, 3, 64, 64]), (3, 64, 64))
    """

    def __init__(
        self,
        frames: str | Path | np.ndarray | Tensor | Sequence[str | Path | np.ndarray | Tensor],
        gap: int | tuple[int, int] = 1,
        image_size: int | tuple[int, int] | None = None,
        grayscale: bool = False,
        val_fraction: float = 0.1,
        crop: Crop = "none",
        background: str = "white",
        transform: Transform | None = None,
        val_transform: Transform | None = None,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        try:
            low, high = map(operator.index, gap if isinstance(gap, tuple | list) else (gap, gap))
            if not 1 <= low <= high:
                raise ValueError
        except (TypeError, ValueError):
            raise ValueError(
                f"gap must be a positive whole number of frames or a range (low, high) of them, got {gap!r}."
            ) from None
        fraction(val_fraction=val_fraction)
        self.frames = frames
        self.gap = (low, high)
        self.image_size = None if image_size is None else height_and_width(image_size)
        self.crop = check_crop(crop)
        self.grayscale = grayscale
        self.background = check_background(background)
        self.val_fraction = val_fraction
        self.transform, self.val_transform = transform, val_transform

    def prepare_data(self) -> None:
        """Decode the files, once per machine."""
        _ = self.videos

    def setup(self, stage: str = "fit") -> None:
        """Open the frames before worker processes start, so that they need not."""
        super().setup(stage)
        _ = self.videos

    @cached_property
    def videos(self) -> Videos:
        """All frames, and the indices at which training and held-out pairs can start."""
        videos = _open(self.frames, Reading(self.image_size, self.crop, self.grayscale, self.background))
        longest = self.gap[1]
        train, held_out, offset = [], [], 0
        for name, video in videos:
            split = len(video) - max(math.ceil(len(video) * self.val_fraction), longest + 1)
            if split <= longest:
                raise ValueError(
                    f"{name} has {len(video)} frames, which leaves {max(split, 0)} to train on; a gap of up to "
                    f"{longest} takes {longest + 1}, and as many held out. Lower gap or val_fraction, or leave it out."
                )
            train.append(torch.arange(offset, offset + split - longest))
            held_out.append(torch.arange(offset + split, offset + len(video) - longest))
            offset += len(video)
        return Videos([video for _, video in videos], torch.cat(train), torch.cat(held_out))

    @cached_property
    def image_shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        """(channels, height, width) of the images, for the model."""
        first, _ = self.take(torch.tensor([0]), "val" if self.val_transform else "train", torch.Generator())
        return transformed_shape(first, None)

    def indices(self, split: Literal["train", "val"]) -> Tensor:
        """Return the indices of the first frames of the pairs of a split."""
        return self.videos.train_starts if split == "train" else self.videos.held_out_starts

    def take(
        self, indices: Tensor, split: Literal["train", "val"], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the pairs that start at these frames."""
        low, high = self.gap
        second = indices + torch.randint(low, high + 1, (len(indices),), generator=generator)
        pairs = self._frames(torch.stack([indices, second], dim=1).flatten()).unflatten(0, (-1, 2))
        pairs = transformed(pairs, self.transform if split == "train" else self.val_transform, generator)
        first, second = pairs.unbind(1)
        return first, second

    def _frames(self, numbers: Tensor) -> Tensor:
        """Return frames by their index among those of all videos: ``[n, C, H, W]``."""
        videos = self.videos.videos
        ends = torch.tensor([len(video) for video in videos]).cumsum(0)
        which = torch.searchsorted(ends, numbers, right=True)
        frames = torch.empty(len(numbers), *videos[0].shape)
        for video in which.unique().tolist():
            here = which == video
            frames[here] = videos[video].take(numbers[here] - (ends[video] - len(videos[video])))
        return frames


def _open(frames: object, reading: Reading) -> list[tuple[str, Pictures]]:
    """Return name and frames of every video."""
    if isinstance(frames, str | Path):
        folder = Path(frames)
        if folder.suffix.lower() in VIDEOS and folder.is_file():
            return _open([folder], reading)
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder}: no such file or folder. Give a video file, a folder of images, or of folders of images."
            )
        parts = [
            part
            for part in folder.iterdir()
            if (part.is_dir() or part.suffix.lower() in VIDEOS) and not part.name.startswith(".")
        ]
        parts.sort(key=lambda part: natural_order(part.name))
        sources: list[object] = [folder] if image_files(folder) or not parts else [*parts]
    else:
        sources = list(frames) if isinstance(frames, list | tuple) else [frames]
    if not sources:
        raise ValueError("frames is an empty list; give at least one video.")
    videos = [
        (str(source), _folder(Path(source), reading))
        if isinstance(source, str | Path)
        else (f"Video {number}", from_array(source, reading, f"Video {number}"))
        for number, source in enumerate(sources)
    ]
    name, first = videos[0]
    for other, video in videos[1:]:
        if video.shape != first.shape:
            raise ValueError(
                f"{other} has images of {list(video.shape)}, {name} of {list(first.shape)}; they must be alike to "
                "share a batch."
            )
    return videos


def _folder(folder: Path, reading: Reading) -> Pictures:
    if folder.suffix.lower() in VIDEOS and folder.is_file():
        return from_source(VideoFile(folder), reading)
    paths = image_files(folder) if folder.is_dir() else []
    if not paths:
        raise FileNotFoundError(f"{folder}: no images here; looked for {', '.join(EXTENSIONS)}.")
    return from_files(paths, tuple(path.name for path in paths), reading)
