"""Pairs of images that differ in few factors: drawn from a ground-truth data set, or neighbours in one's own videos."""

import math
import operator
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS
from tqdm import tqdm

from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.stream import FactorDataModule, StreamDataModule


class PairDataModule(FactorDataModule):
    """Pairs whose second image has one or k factors of the first re-sampled.

    Section "Experimental Results" of the chapter "Weakly-Supervised Disentanglement": the first image is drawn i.i.d.;
    "then, we sample either one factor (corresponding to sparse changes) or k factors of variation (to allow potentially
    denser changes) that may not be shared by the two images and re-sample those coordinates". Each re-sampled factor
    may fall on its old value, so that a pair differs in at most k factors and some pairs are identical.

    A batch is ``(first, second)``, each ``[N, C, H, W]``, or ``(first, second, changed)``.

    Args:
        dataset: where factors and images come from.
        k: how many factors may change, from 1 to one less than there are, or ``"rnd"``: for every pair uniformly one
            of these numbers.
        exactly_k: always re-sample k factors. By default half of the pairs re-sample only one, as the sentence above
            says and the reference does.
        group_label: add ``changed`` ``[N]``, the index of one re-sampled factor, for GVAE and ML-VAE. With k > 1 it is
            one of them at random: the chapter's incomplete group knowledge.
        batch_size: pairs per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same pairs every time.
        num_workers: processes that prepare batches.
        seed: of the stream; ``None`` takes, in a Trainer, the one of ``seed_everything``.

    >>> from unknot.datamodules import DSprites, PairDataModule
    >>> data = PairDataModule(DSprites(), k=1, group_label=True, batch_size=8, seed=0)
    >>> first, second, changed = next(iter(data.train_dataloader()))
    >>> first.shape, second.shape, changed.shape
    (torch.Size([8, 1, 64, 64]), torch.Size([8, 1, 64, 64]), torch.Size([8]))
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        k: int | Literal["rnd"] = "rnd",
        exactly_k: bool = False,
        group_label: bool = False,
        batch_size: int = 64,
        num_val_batches: int = 16,
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, num_val_batches, num_workers, seed)
        most = dataset.factor_space.num_factors - 1
        if most < 1:
            raise ValueError(
                f"{dataset.name} has one factor; a pair needs at least two, one to change and one to share."
            )
        if k != "rnd" and not (isinstance(k, int | np.integer) and 1 <= k <= most):
            raise ValueError(
                f"k must be 'rnd' or an integer from 1 to {most}, one less than the factors of {dataset.name}, "
                f"got {k!r}."
            )
        self.k = k
        self.exactly_k = exactly_k
        self.group_label = group_label

    def draw(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """One batch of pairs."""
        first = self._factors(generator)
        second, changed = resample_factors(self.dataset.factor_space, first, self.k, self.exactly_k, generator)
        images = self.dataset.observe(torch.cat([first, second]), generator).chunk(2)
        return (*images, changed) if self.group_label else images


def resample_factors(
    space: FactorSpace,
    first: Tensor,
    k: int | Literal["rnd"],
    exactly_k: bool,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Factors ``[N, F]`` of the second images, and the index of one re-sampled factor of each pair ``[N]``."""
    n, num_factors = first.shape
    count = torch.randint(1, num_factors, (n,), generator=generator) if k == "rnd" else torch.full((n,), k)
    if not exactly_k:
        sparse = torch.rand(n, generator=generator) < 0.5
        count = torch.where(sparse, 1, count)
    order = torch.rand(n, num_factors, generator=generator).argsort(1)  # every row a random permutation
    chosen = torch.zeros(n, num_factors, dtype=torch.bool)
    chosen.scatter_(1, order, torch.arange(num_factors) < count[:, None])
    return torch.where(chosen, space.sample(n, generator), first), order[:, 0]


class Videos(NamedTuple):
    """Frames of all videos ``[T, C, H, W]``, and the numbers of those from which a pair can start."""

    images: Tensor
    train_starts: Tensor
    held_out_starts: Tensor


class FramePairDataModule(StreamDataModule):
    """Pairs of neighbouring frames of one's own videos: between two of them, few factors change.

    A batch is ``(first, second)``, each ``[N, C, H, W]`` in [0, 1]. The last part of every video is held out.

    Args:
        frames: a folder of images, which are one video in the order of their names (``frame2`` before ``frame10``), or
            a folder of such folders, each a video of its own; or an array or tensor ``[T, C, H, W]`` or
            ``[T, H, W, C]``, uint8 or floats in [0, 1]; or a list of these. Pairs never cross videos.
        gap: how many frames later the second image is; ``(low, high)`` draws it for every pair.
        image_size: (height, width) that the images of a folder are resized to; arrays are taken as they are.
        grayscale: read the images of a folder with one channel instead of three.
        val_fraction: part of every video, at its end, that is held out.
        batch_size: pairs per batch, on every rank.
        num_val_batches: batches for validation, test and prediction; the same pairs every time.
        num_workers: processes that prepare batches.
        seed: of the stream; ``None`` takes, in a Trainer, the one of ``seed_everything``.

    >>> video = torch.rand(100, 3, 64, 64)
    >>> data = FramePairDataModule(video, gap=2, batch_size=8, seed=0)
    >>> first, second = next(iter(data.train_dataloader()))
    >>> first.shape
    torch.Size([8, 3, 64, 64])
    """

    def __init__(
        self,
        frames: str | Path | np.ndarray | Tensor | Sequence[str | Path | np.ndarray | Tensor],
        gap: int | tuple[int, int] = 1,
        image_size: tuple[int, int] = (64, 64),
        grayscale: bool = False,
        val_fraction: float = 0.1,
        batch_size: int = 64,
        num_val_batches: int = 16,
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, num_val_batches, num_workers, seed)
        try:
            low, high = map(operator.index, gap if isinstance(gap, tuple | list) else (gap, gap))
            if not 1 <= low <= high:
                raise ValueError
        except (TypeError, ValueError):
            raise ValueError(
                f"gap must be a positive whole number of frames or a range (low, high) of them, got {gap!r}."
            ) from None
        try:
            height, width = map(operator.index, image_size)
            if min(height, width) < 1:
                raise ValueError
        except (TypeError, ValueError):
            raise ValueError(
                f"image_size must be two positive whole numbers (height, width), got {image_size!r}."
            ) from None
        if not 0 < val_fraction < 1:
            raise ValueError(f"val_fraction must lie between 0 and 1, got {val_fraction}.")
        self.frames = frames
        self.gap = (low, high)
        self.image_size = (height, width)
        self.grayscale = grayscale
        self.val_fraction = val_fraction

    def setup(self, stage: str) -> None:
        """Read the frames, which every worker process would otherwise do for itself."""
        super().setup(stage)
        _ = self.videos

    @cached_property
    def videos(self) -> Videos:
        """All frames, and where a pair of the training and of the held-out part can start."""
        videos = _videos(self.frames, self.image_size, self.grayscale)
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
        images = torch.cat([video for _, video in videos]) if len(videos) > 1 else videos[0][1]
        return Videos(images, torch.cat(train), torch.cat(held_out))

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """One training batch."""
        return self._pairs(self.videos.train_starts, generator)

    def draw_held_out(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """One validation batch, from the ends of the videos."""
        return self._pairs(self.videos.held_out_starts, generator)

    def _pairs(self, starts: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        first = starts[torch.randint(len(starts), (self.batch_size,), generator=generator)]
        low, high = self.gap
        second = first + torch.randint(low, high + 1, (self.batch_size,), generator=generator)
        one, other = self.videos.images[torch.cat([first, second])].chunk(2)
        return (one, other) if one.is_floating_point() else (one / 255, other / 255)


def _videos(frames: object, image_size: tuple[int, int], grayscale: bool) -> list[tuple[str, Tensor]]:
    """Name and frames of every video."""
    if isinstance(frames, str | Path):
        folder = Path(frames)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder. Give a folder of images, or of folders of images.")
        parts = [part for part in folder.iterdir() if part.is_dir() and not part.name.startswith(".")]
        sources: list[object] = [folder] if _images_in(folder) or not parts else [*sorted(parts, key=natural_order)]
    else:
        sources = list(frames) if isinstance(frames, list | tuple) else [frames]
    if not sources:
        raise ValueError("frames is an empty list; give at least one video.")
    videos = [
        (str(source), _read_folder(Path(source), image_size, grayscale))
        if isinstance(source, str | Path)
        else (f"Video {number}", as_frames(source, f"Video {number}"))
        for number, source in enumerate(sources)
    ]
    name, first = videos[0]
    for other, video in videos[1:]:
        if video.shape[1:] != first.shape[1:] or video.dtype != first.dtype:
            raise ValueError(
                f"{other} has {video.dtype} images of {list(video.shape[1:])}, {name} {first.dtype} of "
                f"{list(first.shape[1:])}; they must be alike to share a batch."
            )
    return videos


def as_frames(video: object, name: str) -> Tensor:
    """Frames as ``[T, C, H, W]``, uint8 or float32 in [0, 1]."""
    wanted = "expected [T, C, H, W] or [T, H, W, C] with 1 to 4 channels, uint8 or floats in [0, 1]"
    try:
        tensor = torch.as_tensor(np.ascontiguousarray(video) if isinstance(video, np.ndarray) else video)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} is a {type(video).__name__}; {wanted}, or a folder.") from None
    shape = list(tensor.shape)
    if tensor.ndim == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3, 4):
        tensor = tensor.permute(0, 3, 1, 2).contiguous()
    fits = tensor.ndim == 4 and 1 <= tensor.shape[1] <= 4 and tensor.numel()
    if not fits or not (tensor.dtype == torch.uint8 or tensor.is_floating_point()):
        raise ValueError(f"{name} is {tensor.dtype} of shape {shape}; {wanted}.")
    if tensor.dtype == torch.uint8:
        return tensor
    low, high = torch.aminmax(tensor)
    if not (low >= 0 and high <= 1):
        raise ValueError(f"{name} has values from {low:.4g} to {high:.4g}; {wanted}: divide by 255?")
    return tensor.float()


def _images_in(folder: Path) -> list[Path]:
    """The images of a folder in the order of their names."""
    paths = (path for path in folder.iterdir() if path.suffix.lower() in IMG_EXTENSIONS)
    return sorted((path for path in paths if not path.name.startswith(".")), key=natural_order)


def _read_folder(folder: Path, image_size: tuple[int, int], grayscale: bool) -> Tensor:
    """The images of a folder: uint8 ``[T, C, H, W]``."""
    if not folder.is_dir() or not (paths := _images_in(folder)):
        raise FileNotFoundError(f"{folder}: no images here; looked for {', '.join(IMG_EXTENSIONS)}.")
    height, width = image_size
    frames = np.empty((len(paths), 1 if grayscale else 3, height, width), dtype=np.uint8)
    for frame, path in zip(frames, tqdm(paths, desc=f"Reading {folder.name}", unit="frame", disable=None), strict=True):
        try:
            with Image.open(path) as image:
                # Pillow would clip 16-bit images instead of scaling them.
                whole = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)) if image.mode[0] == "I" else image
                pixels = np.asarray(whole.convert("L" if grayscale else "RGB").resize((width, height)))
        except Exception as error:  # Pillow's decoders raise all kinds
            raise ValueError(f"{path}: not a readable image ({error}). Repair or remove it.") from None
        frame[:] = pixels[None] if grayscale else pixels.transpose(2, 0, 1)
    return torch.from_numpy(frames)


def natural_order(path: Path) -> list[tuple[int, str]]:
    """A sort key by which frame2 comes before frame10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]
