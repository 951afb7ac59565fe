"""Users' own images, from files, arrays, data sets and streams, and their labels."""

import math
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from unknot.arguments import did_you_mean, fraction, height_and_width, not_negative, whole
from unknot.datamodules.base import FiniteDataModule, Share
from unknot.datamodules.own.decode import Crop, check_background, check_crop
from unknot.datamodules.own.image_store import CHUNK, Pictures, Reading, decodes_each_time, from_data, from_source
from unknot.datamodules.own.label_table import Table, from_columns, read_table
from unknot.datamodules.own.labelled_images import LabelledImageDataset
from unknot.datamodules.own.sources import INSTALL, Source, open_source
from unknot.datamodules.own.streams import ImageStream, is_stream
from unknot.datamodules.transforms import Transform, transformed, transformed_shape
from unknot.inference import evaluation_mode, representation
from unknot.randomness import Stream, derive_seed

Split = Literal["train", "val", "all"]
MAX_CACHE_GB = 32.0
STREAMED_VAL_BATCHES = 16


class ImageDataModule(FiniteDataModule):
    """Your own images ``[N, C, H, W]`` in [0, 1], in a new order in every epoch.

    Image files are decoded and resized once, with a progress bar, and cached in a memory-mapped file with one byte per
    value; a changed file, or another size, is decoded again. Arrays and tensors stay in memory; images of a torch data
    set are read when needed. Batch n of a rank is a function of (seed, rank, n) alone, including augmentations: ranks
    share no images, the number of workers has no effect, and a run resumes exactly.

    A stream (``datasets.IterableDataset``, ``webdataset.WebDataset``, any iterable torch data set) is read in its order
    and shuffled in blocks of 1,024 examples. An epoch is ``steps_per_epoch`` batches. It resumes exactly if it yields
    the same examples in the same order every time; earlier examples are skipped without decoding.

    Args:
        source: a folder, including its subfolders; a list of image files; a pandas DataFrame or a CSV file with a
            column of paths; parquet files with a column of image bytes or paths; webdataset shards (``.tar``); a
            Hugging Face ``Dataset``, ``DatasetDict`` or ``IterableDataset``; a ``.npy`` file; an array or tensor ``[N,
            C, H, W]`` or ``[N, H, W, C]``, uint8 or floats in [0, 1]; a list of Pillow images; or a data set of torch
            whose items are images, tuples that begin with one, or dictionaries.
        image_size: side, or (height, width), to resize to. By default 64 for image files; others keep their size.
        crop: part of the image to resize: ``"fit"``, the largest centred part of the right aspect ratio; ``"none"``,
            all of it, stretched; or (height, width) in pixels around the centre.
        grayscale: one channel instead of three.
        labels: factors of variation, for the metrics: the path of a CSV or parquet table, a DataFrame, a dictionary of
            columns, or an array ``[N, F]``. For images with names, the first column of a table is the file, as a path
            from the folder or as in the list; otherwise row n belongs to image n. Empty cells, NaN and -1 are missing.
            By default the columns of the source.
        label_keys: names of the columns to use. By default all of a table, or those columns of the source that contain
            numbers, booleans or classes.
        num_bins: a column of fractions with more values than this is cut into this many bins of equal width; in every
            other column, each value is a class.
        val_fraction: share of the images that is held out, independent of the seed; not used if the source has a split
            called validation or test.
        unreadable: treatment of unreadable files: ``"error"``, or ``"skip"`` with a warning that names them.
        background: colour behind transparent parts of files, by name or as ``#rrggbb``.
        transform: transform of every training image ``[C, H, W]``, floats in [0, 1], with new randomness each time: one
            of ``torchvision.transforms.v2``, or any function.
        val_transform: transform of every held-out image, such as a crop, without augmentations.
        with_factors: batches are ``(images, factors)``, int64 ``[n, F]`` with -1 for missing labels.
        with_labels: batches are ``(images, labelled_images, labels)`` for semi-supervised models: as many labelled
            images of the same split, drawn i.i.d., and their labels in [0, 1), the classes divided by their number.
        image_key: column, field or key of the images. By default one of the usual names: ``image``, ``img``, ``jpg``,
            ``png``, ``path`` and similar.
        max_cache_gb: maximum size of the decoded copy; beyond it, images are decoded in every epoch.
        steps_per_epoch: batches of an epoch of a stream.
        images: former name of ``source``.
        factors: former name of ``label_keys``.
        batches: arguments of :class:`FiniteDataModule`: ``batch_size``, ``num_val_batches``, ``num_workers``, ``seed``
            and ``drop_last``.

    >>> data = ImageDataModule(torch.rand(100, 3, 64, 64), batch_size=16, seed=0)
    >>> next(iter(data.train_dataloader())).shape, data.image_shape
    (torch.Size([16, 3, 64, 64]), (3, 64, 64))
    >>> len(data.train_dataloader()), len(data.val_dataloader())
    (6, 1)
    """

    def __init__(
        self,
        source: str | Path | np.ndarray | Tensor | Sequence[str | Path] | Dataset[Any] | Any | None = None,
        image_size: int | tuple[int, int] | None = None,
        crop: Crop = "fit",
        grayscale: bool = False,
        labels: str | Path | np.ndarray | Tensor | Any | None = None,
        label_keys: Sequence[str] | None = None,
        num_bins: int = 20,
        val_fraction: float = 0.1,
        unreadable: Literal["error", "skip"] = "error",
        background: str = "white",
        transform: Transform | None = None,
        val_transform: Transform | None = None,
        with_factors: bool = False,
        with_labels: bool = False,
        image_key: str | None = None,
        max_cache_gb: float = MAX_CACHE_GB,
        steps_per_epoch: int = 1000,
        images: str | Path | np.ndarray | Tensor | Sequence[str | Path] | Dataset[Any] | Any | None = None,
        factors: Sequence[str] | None = None,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        source = _renamed("images", images, "source", source)
        if source is None:
            raise ValueError("ImageDataModule needs images: give source, such as a folder, an array or a data set.")
        label_keys = _renamed("factors", factors, "label_keys", label_keys)
        fraction(val_fraction=val_fraction)
        not_negative(max_cache_gb=max_cache_gb)
        if unreadable not in ("error", "skip"):
            raise ValueError(f"unreadable must be 'error' or 'skip', got {unreadable!r}.")
        if with_factors and with_labels:
            raise ValueError("Give with_factors, for metrics, or with_labels, for semi-supervised models, not both.")
        self.source = source
        self.image_size = None if image_size is None else height_and_width(image_size)
        self.crop = check_crop(crop)
        self.grayscale = grayscale
        self.labels = labels
        self.label_keys = None if label_keys is None else [label_keys] if isinstance(label_keys, str) else [*label_keys]
        self.num_bins = whole("num_bins", num_bins, least=2)
        self.val_fraction = val_fraction
        self.unreadable = unreadable
        self.background = check_background(background)
        self.transform, self.val_transform = transform, val_transform
        self.with_factors, self.with_labels = with_factors, with_labels
        self.image_key = image_key
        self.max_cache_gb = max_cache_gb
        self.steps_per_epoch = whole("steps_per_epoch", steps_per_epoch)
        self._reading = Reading(
            self.image_size,
            self.crop,
            grayscale,
            background,
            unreadable == "skip",
            "Repair or remove them, or give unreadable='skip'.",
            max_cache_gb * 1e9,
        )
        self._opened = self._open()

    @classmethod
    def from_hub(
        cls,
        repo: str,
        subset: str | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        streaming: bool = False,
        **options: Any,
    ) -> "ImageDataModule":
        """Images of a Hugging Face Hub data set, or of a folder with the same layout.

        Args:
            repo: ``USER/NAME``, as for ``datasets.load_dataset``.
            subset: name of the configuration, if there are several.
            revision: branch, tag or commit.
            token: token for private data sets; by default the one stored by ``hf auth login``.
            streaming: read from the hub during training instead of downloading first.
            options: arguments of :class:`ImageDataModule`.
        """
        try:
            import datasets
        except ImportError:
            raise ImportError(f"from_hub needs the library datasets: {INSTALL}") from None
        try:
            loaded = datasets.load_dataset(repo, subset, revision=revision, token=token, streaming=streaming)
        except Exception as error:  # datasets raises many kinds of errors
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"Cannot load the data set {repo!r}: {reason[:300]}") from None
        return cls(loaded, **options)

    def _open(self) -> Any:
        """Identify the source, and check all that can be checked without decoding every image."""
        opened = open_source(self.source, self.image_key)
        labelled = self.labels is not None or self.with_factors or self.with_labels
        if not isinstance(opened, Source) and is_stream(opened):
            if labelled:
                raise ValueError(
                    "The labels of a stream are not known in advance. Load the data set without streaming, or "
                    "leave out labels, with_factors and with_labels."
                )
            if self.num_workers:
                raise ValueError("A stream is decoded by threads of this process; leave out num_workers.")
            return ImageStream(opened, self._reading, self.image_key, self.val_fraction)
        if not isinstance(opened, Source):
            opened = from_data(opened, self._reading, self.image_key)
        if len(opened) < 2:
            raise ValueError(f"{len(opened)} readable images; at least two are needed, to train and to hold out.")
        if isinstance(opened, Source):
            decodes_each_time(opened, self._reading)  # raises if images can be neither cached nor read in random order
        self._opened = opened
        if labelled:
            _ = self._all_labels
        elif self.label_keys is not None:
            self._check_label_keys()
        return opened

    @property
    def is_stream(self) -> bool:
        """True if the images can only be read in order, without indices."""
        return isinstance(self._opened, ImageStream)

    def prepare_data(self) -> None:
        """Decode the files, once per machine."""
        if not self.is_stream:
            _ = self.pictures

    def setup(self, stage: str = "fit") -> None:
        """Open the images."""
        super().setup(stage)
        self.prepare_data()

    @cached_property
    def pictures(self) -> Pictures:
        """Images that can be read."""
        if isinstance(self._opened, ImageStream):
            raise ValueError("The images of a stream have no indices; load the data set without streaming.")
        pictures = self._opened if isinstance(self._opened, Pictures) else from_source(self._opened, self._reading)
        if len(pictures) < 2:
            raise ValueError(f"{len(pictures)} readable images; at least two are needed, to train and to hold out.")
        return pictures

    @cached_property
    def image_shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        """(channels, height, width) of the images, for the model."""
        shape = self._untransformed_shape
        transform = self.val_transform or self.transform
        return shape if transform is None else transformed_shape(torch.zeros(1, *shape), transform)

    @property
    def _untransformed_shape(self) -> tuple[int, int, int]:
        if isinstance(self._opened, Source):
            return self._reading.decoded_shape
        channels, height, width = self._opened.shape
        return channels, height, width

    @cached_property
    def table(self) -> Table:
        """Labels of all readable images."""
        table, numbers = self._all_labels, self.pictures.numbers
        return table if numbers is None else table.rows(numbers)

    @cached_property
    def _all_labels(self) -> Table:
        """Return the labels of all images of the source."""
        opened = self._opened
        if self.labels is None:
            own: Any = opened.rows if isinstance(opened, Pictures) else opened
            keys = self._check_label_keys()
            return from_columns(own.read_columns(keys), self.num_bins, len(opened), own.title)
        names = () if isinstance(opened, Pictures) else tuple(opened.names)
        lenient = self.unreadable == "skip"
        return read_table(self.labels, names, len(opened), self.label_keys, self.num_bins, lenient)

    def _check_label_keys(self) -> tuple[str, ...]:
        """Check the names of the source's own label columns."""
        own: Any = self._opened.rows if isinstance(self._opened, Pictures) else self._opened
        columns = getattr(own, "columns", ())
        for name in self.label_keys or ():
            if name not in columns:
                hint = did_you_mean(name, columns) if columns else "The source has none; give labels."
                raise ValueError(f"No column {name!r} of labels. {hint}")
        keys = tuple(self.label_keys) if self.label_keys else tuple(getattr(own, "label_keys", ()))
        if not keys:
            raise ValueError(
                "These images have no labels. Give ImageDataModule a table of them, such as labels='factors.csv', or "
                "name columns of the source with label_keys."
            )
        return keys

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the factors, as far as they are known without reading every image."""
        if self.labels is not None or "_all_labels" in vars(self):
            return self._all_labels.names
        own: Any = self._opened.rows if isinstance(self._opened, Pictures) else self._opened
        return tuple(self.label_keys) if self.label_keys else tuple(getattr(own, "label_keys", ()))

    @property
    def has_all_combinations(self) -> bool:
        """True if every combination of factors has an image, which interventional scores require."""
        table = self._all_labels
        return len(table.factors[table.labelled].unique(dim=0)) == math.prod(table.sizes)

    def __repr__(self) -> str:
        channels, height, width = self.image_shape
        count = "stream of images" if isinstance(self._opened, ImageStream) else f"{len(self._opened):,} images"
        parts = [f"{count} of {channels} x {height} x {width}"]
        if not self.is_stream and ("pictures" in vars(self) or self.unreadable == "error"):
            train, val = (f"{len(self._splits[split]):,}" for split in ("train", "val"))
            parts.append(f"{train} to train on, {val} held out")
        if not self.is_stream:
            parts.append(f"labels: {', '.join(self.label_names)}" if self.label_names else "no labels")
        return f"{type(self).__name__}({'; '.join(parts)}; batch_size={self.batch_size})"

    # Batches of a stream

    def train_length(self, share: Share) -> int:
        """Return the number of batches in a pass through the data; ``steps_per_epoch`` for a stream."""
        return self.steps_per_epoch if self.is_stream else super().train_length(share)

    def train_batch(self, number: int, share: Share) -> Any:
        """Return batch ``number``: this rank's part of the next examples."""
        if not isinstance(self._opened, ImageStream):
            return super().train_batch(number, share)
        step = share.ranks * self.batch_size
        start = number * step + share.rank * self.batch_size
        images = self._opened.batch(start, self.batch_size, step, share.seed)
        return transformed(images, self.transform, share.generator(Stream.TRAIN_EXAMPLES, number))

    def held_out_length(self, share: Share) -> int:
        """Return the number of held-out batches; 16 for a stream unless ``num_val_batches`` is given."""
        if not isinstance(self._opened, ImageStream):
            return super().held_out_length(share)
        examples = len(self._streamed_held_out(share))
        return -(-examples // (share.ranks * self.batch_size))

    def held_out_batch(self, number: int, share: Share) -> Any:
        """Return batch ``number`` of a pass through the held-out images, in order."""
        if not isinstance(self._opened, ImageStream):
            return super().held_out_batch(number, share)
        step = share.ranks * self.batch_size
        together = self._streamed_held_out(share)[number * step : (number + 1) * step]
        mine = together[share.rank :: share.ranks] or together[:1]
        images = self._opened.decode(mine)
        return transformed(images, self.val_transform, share.generator(Stream.HELD_OUT_DATA, number))

    def _streamed_held_out(self, share: Share) -> list[Any]:
        batches = self.num_val_batches or STREAMED_VAL_BATCHES
        held_out: list[Any] = self._opened.held_out(batches * share.ranks * self.batch_size)
        return held_out

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, and the length of a stream if it is known."""
        length = {"stream_length": self._opened.length} if isinstance(self._opened, ImageStream) else {}
        return super().state_dict() | length

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume with the batches of the saved run."""
        super().load_state_dict(state_dict)
        if isinstance(self._opened, ImageStream):
            self._opened.length = state_dict.get("stream_length")

    def indices(self, split: Split = "all") -> Tensor:
        """Return the indices of the training images, the held-out images, or both."""
        if split not in get_args(Split):
            raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}.")
        return self._splits[split]

    @cached_property
    def _splits(self) -> dict[str, Tensor]:
        lost = "pictures" in vars(self) or self.unreadable == "skip"  # indices count readable images
        n = len(self.pictures) if lost else len(self._opened)
        if (preset := getattr(self._opened, "held_out", None)) is not None:
            chosen = torch.zeros(len(self._opened), dtype=torch.bool)
            chosen[preset] = True
            if lost and self.pictures.numbers is not None:
                chosen = chosen[self.pictures.numbers]
            if chosen.all() or not chosen.any():
                raise ValueError("Both the training split and the held-out split need at least one image.")
            return {"train": (~chosen).nonzero()[:, 0], "val": chosen.nonzero()[:, 0], "all": torch.arange(n)}
        order = torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(0, Stream.HELD_OUT_DATA)))
        held_out = min(max(1, round(n * self.val_fraction)), n - 1)
        return {"train": order[held_out:].sort()[0], "val": order[:held_out].sort()[0], "all": torch.arange(n)}

    @cached_property
    def _labelled(self) -> dict[str, Tensor]:
        """Return the indices of the labelled images of each split."""
        labelled = {split: indices[self.table.labelled[indices]] for split, indices in self._splits.items()}
        for split in ("train", "val"):
            if not len(labelled[split]):
                raise ValueError(
                    f"None of the {len(self._splits[split])} images of the split {split!r} has labels; label more, or "
                    "change val_fraction."
                )
        return labelled

    def take(self, indices: Tensor, split: Literal["train", "val"], generator: torch.Generator) -> Any:
        """Return the batch of these images."""
        images = self._take(indices, split, generator)
        if self.with_factors:
            return images, self.table.factors[indices]
        if not self.with_labels:
            return images
        known = self._labelled[split]
        picked = known[torch.randint(len(known), (len(indices),), generator=generator)]
        labels = self.table.factors[picked] / torch.tensor(self.table.sizes)
        return images, self._take(picked, split, generator), labels

    def _take(self, indices: Tensor, split: str, generator: torch.Generator) -> Tensor:
        transform = self.transform if split == "train" else self.val_transform
        return transformed(self.pictures.take(indices), transform, generator)

    @torch.no_grad()
    def codes(self, model: Any, split: Split = "all") -> tuple[Tensor, Tensor]:
        """Return codes ``[N, D]`` of the labelled images of a split and their factors ``[N, F]``, -1 where missing.

        Args:
            model: a model with ``represent(images) -> codes``, or a function.
            split: split of the images.

        >>> images = torch.rand(50, 1, 8, 8)
        >>> brightness = (images.mean((1, 2, 3)) * 10).long()
        >>> data = ImageDataModule(images, labels=torch.stack([brightness, torch.arange(50) % 3], dim=1))
        >>> codes, factors = data.codes(lambda x: x.mean((2, 3)))
        >>> codes.shape, factors.shape
        (torch.Size([50, 1]), torch.Size([50, 2]))
        """
        indices = self.indices(split)
        indices = indices[self.table.partly_labelled[indices]]
        represent, codes = representation(model), []
        with evaluation_mode(model):
            for part in indices.split(CHUNK):
                images = transformed(self.pictures.take(part), self.val_transform, torch.Generator())
                codes.append(torch.as_tensor(represent(images)).cpu())
        return torch.cat(codes), self.table.factors[indices]

    def ground_truth(self, split: Split = "all") -> LabelledImageDataset:
        """Return the labelled images of a split as a data set for ``evaluate`` and the other DataModules.

        ``evaluate`` fits on some of them and tests on others, see :meth:`LabelledImageDataset.split`.
        """
        return LabelledImageDataset(self.pictures, self.table, self.indices(split), self.val_transform)


def _renamed(old: str, former: Any, new: str, value: Any) -> Any:
    """Return the value of an argument that was renamed."""
    if former is None:
        return value
    if value is not None:
        raise ValueError(f"Give {new}; {old} is its former name.")
    warnings.warn(f"ImageDataModule({old}=...) is now called {new}; the former name will be removed.", FutureWarning, 3)
    return former
