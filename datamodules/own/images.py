"""One's own images: a folder tree, a list of files, an array, a tensor or a data set of torch, and their labels."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from unknot._modes import evaluation_mode, representation
from unknot._numbers import fraction, whole
from unknot._seeding import Stream, derive_seed
from unknot.datamodules.arguments import height_and_width
from unknot.datamodules.batches import FiniteDataModule
from unknot.datamodules.own.decode import Crop, check_background, check_crop
from unknot.datamodules.own.image_store import CHUNK, Pictures, Reading, open_pictures
from unknot.datamodules.own.label_table import Table, read_table
from unknot.datamodules.own.labelled_images import LabelledImageDataset
from unknot.datamodules.transforms import Transform, transformed, transformed_shape

Split = Literal["train", "val", "all"]


class ImageDataModule(FiniteDataModule):
    """One's own images ``[N, C, H, W]`` in [0, 1]: every epoch passes through them in a new order.

    Files are decoded and resized once, with a progress bar, and kept in the cache as a memory-mapped file; a changed
    file, or another size, makes it anew. Arrays and tensors stay where they are; a data set of torch is asked for every
    image when it is its turn. Batch n of a rank is a function of (seed, rank, n) alone, augmentations included, so that
    ranks share no image, the number of workers changes nothing, and a run resumes exactly.

    Args:
        images: a folder, searched with all its sub-folders; a list of files; a ``.npy`` file; an array or tensor
            ``[N, C, H, W]`` or ``[N, H, W, C]``, uint8 or floats in [0, 1]; a list of Pillow images; or a data set of
            torch whose items are images, or tuples that begin with one.
        image_size: side, or (height, width), to resize to. By default 64 for files; all others keep their size.
        crop: what of an image is resized: ``"fit"``, the largest centred part of the right aspect ratio; ``"none"``,
            all of it, stretched; or (height, width) in pixels around the centre.
        grayscale: one channel instead of three.
        labels: factors of variation, for the metrics: the path of a CSV table with a header, whose first column is the
            file, as a path from the folder or as in the list, and whose other columns are factors; for arrays all
            columns are factors and row n is of image n. Or an integer array ``[N, F]``. Images without a row, with
            empty cells only, or with -1 in all columns are not labelled.
        factors: names of the columns to use; by default all.
        num_bins: a column of fractions with more values than this is cut into as many bins of equal width; in every
            other column each value is a class of its own.
        val_fraction: part of the images that is held out, the same whatever the seed.
        unreadable: what to do about files that cannot be read: ``"error"``, or ``"skip"`` with a warning that names
            them.
        background: what shows through transparent parts of files, a colour by name or as ``#rrggbb``.
        transform: for every training image ``[C, H, W]``, floats in [0, 1], anew each time: one of
            ``torchvision.transforms.v2``, or any function.
        val_transform: for every held-out image; what also belongs there, such as a crop, but not augmentations.
        with_factors: batches are ``(images, factors)``, int64 ``[n, F]`` with -1 where there are no labels.
        with_labels: batches are ``(images, labelled_images, labels)``, as semi-supervised models take them: as many
            labelled images of the same split, drawn i.i.d., and their labels in [0, 1), which are the classes divided
            by their number.
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
        images: str | Path | np.ndarray | Tensor | Sequence[str | Path] | Dataset[Any],
        image_size: int | tuple[int, int] | None = None,
        crop: Crop = "fit",
        grayscale: bool = False,
        labels: str | Path | np.ndarray | Tensor | None = None,
        factors: Sequence[str] | None = None,
        num_bins: int = 20,
        val_fraction: float = 0.1,
        unreadable: Literal["error", "skip"] = "error",
        background: str = "white",
        transform: Transform | None = None,
        val_transform: Transform | None = None,
        with_factors: bool = False,
        with_labels: bool = False,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        fraction(val_fraction=val_fraction)
        if unreadable not in ("error", "skip"):
            raise ValueError(f"unreadable must be 'error' or 'skip', got {unreadable!r}.")
        if (with_factors or with_labels) and labels is None:
            raise ValueError("Batches with factors or labels need `labels`, a table or an array of them.")
        if with_factors and with_labels:
            raise ValueError("Give with_factors, for metrics, or with_labels, for semi-supervised models, not both.")
        self.images = images
        self.image_size = None if image_size is None else height_and_width(image_size)
        self.crop = check_crop(crop)
        self.grayscale = grayscale
        self.labels = labels
        self.factors = factors
        self.num_bins = whole("num_bins", num_bins, least=2)
        self.val_fraction = val_fraction
        self.unreadable = unreadable
        self.background = check_background(background)
        self.transform, self.val_transform = transform, val_transform
        self.with_factors, self.with_labels = with_factors, with_labels

    def prepare_data(self) -> None:
        """Decode the files, once per machine."""
        _ = self.pictures

    def setup(self, stage: str = "fit") -> None:
        """Open the images, and read the labels where mistakes in them should show before training."""
        super().setup(stage)
        _ = self.pictures
        if self.labels is not None:
            _ = self.table

    @cached_property
    def pictures(self) -> Pictures:
        """All readable images."""
        advice = "Repair or remove them, or give unreadable='skip'."
        skip = self.unreadable == "skip"
        reading = Reading(self.image_size, self.crop, self.grayscale, self.background, skip, advice)
        pictures = open_pictures(self.images, reading)
        if len(pictures) < 2:
            raise ValueError(f"{len(pictures)} readable images; at least two are needed, to train and to hold out.")
        return pictures

    @cached_property
    def image_shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        """(channels, height, width) of the images, for the model."""
        return transformed_shape(self.pictures.take(torch.tensor([0])), self.val_transform or self.transform)

    @cached_property
    def table(self) -> Table:
        """The labels of all readable images."""
        if self.labels is None:
            raise ValueError("These images have no labels; give ImageDataModule a table of them: labels='factors.csv'.")
        return read_table(self.labels, self.pictures, self.factors, self.num_bins, self.unreadable == "skip")

    def indices(self, split: Split = "all") -> Tensor:
        """Numbers of the images that train, are held out, or both."""
        if split not in get_args(Split):
            raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}.")
        return self._splits[split]

    @cached_property
    def _splits(self) -> dict[str, Tensor]:
        n = len(self.pictures)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(0, Stream.HELD_OUT_DATA)))
        held_out = min(max(1, round(n * self.val_fraction)), n - 1)
        return {"train": order[held_out:].sort()[0], "val": order[:held_out].sort()[0], "all": torch.arange(n)}

    @cached_property
    def _labelled(self) -> dict[str, Tensor]:
        """Numbers of the labelled images of each split."""
        found = {split: indices[self.table.labelled[indices]] for split, indices in self._splits.items()}
        for split in ("train", "val"):
            if not len(found[split]):
                raise ValueError(
                    f"None of the {len(self._splits[split])} images of the split {split!r} has labels; label more, or "
                    "change val_fraction."
                )
        return found

    def take(self, indices: Tensor, split: Literal["train", "val"], generator: torch.Generator) -> Any:
        """The batch of these images."""
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
        """Codes ``[N, D]`` of the labelled images of a split and their factors ``[N, F]``: what every metric takes.

        Args:
            model: a model with ``represent(images) -> codes``, or such a function.
            split: which images.

        >>> images = torch.rand(50, 1, 8, 8)
        >>> brightness = (images.mean((1, 2, 3)) * 10).long()
        >>> data = ImageDataModule(images, labels=torch.stack([brightness, torch.arange(50) % 3], dim=1))
        >>> codes, factors = data.codes(lambda x: x.mean((2, 3)))
        >>> codes.shape, factors.shape
        (torch.Size([50, 1]), torch.Size([50, 2]))
        """
        dataset = self.ground_truth(split)
        represent, codes, factors = representation(model), [], []
        with evaluation_mode(model):
            for start in range(0, len(dataset), CHUNK):
                images, rows = dataset[start : start + CHUNK]
                codes.append(torch.as_tensor(represent(images)).cpu())
                factors.append(rows)
        return torch.cat(codes), torch.cat(factors)

    def ground_truth(self, split: Split = "all") -> LabelledImageDataset:
        """The labelled images of a split as a data set that ``evaluate`` and the other DataModules take.

        ``evaluate`` fits on some of them and tests on others, see :meth:`LabelledImageDataset.split`.
        """
        return LabelledImageDataset(self.pictures, self.table, self.indices(split), self.val_transform)
