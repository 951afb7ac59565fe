"""3DIdent: a teapot under a coloured spotlight, with ten continuous factors."""

import io
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unknot.arguments import height_and_width, whole
from unknot.datamodules.download import RemoteFile
from unknot.datamodules.own.image_store import Pictures, Reading, Undecoded, from_source
from unknot.datamodules.own.label_table import Table, number_classes
from unknot.datamodules.own.labelled_images import LabelledImageDataset
from unknot.datamodules.own.sources import Files, Source, Tar
from unknot.labels import read_column

Split = Literal["train", "test"]
ANGLES = ("alpha", "beta", "gamma", "spotlight_angle", "object_hue", "spotlight_hue", "background_hue")
NAMES = ("x", "y", "z", *ANGLES)
IMAGE = re.compile(r"(?:.*/)?images/(\d+)\.png")


def _file(split: Split, md5: str) -> RemoteFile:
    name, record = f"3dident_{split}.tar", "records/4502485/files"
    urls = (f"https://zenodo.org/{record}/{name}", f"https://zenodo.org/api/{record}/{name}/content")
    return RemoteFile(name, urls, 0, md5=md5)


FILES = {
    "train": _file("train", "df132b4dacf04fa28e1c8ca9d2168634"),
    "test": _file("test", "35020bca16c9faa80cf0c926d265d678"),
}


class ThreeDIdent(LabelledImageDataset):
    """3DIdent (Zimmermann et al., 2021): position, rotation and hue of a teapot, hues of spotlight and background.

    250,000 images to train on and 25,000 to test on, each of factors of its own, drawn from a continuous law. They are
    a finite collection: factors are drawn as often as they occur, cut into bins of equal width; :attr:`latents` has the
    numbers themselves. Scores that choose factors and :class:`~unknot.datamodules.PairDataModule` need an image of
    every combination, of which this data set has next to none. Images are decoded once into the cache, from the
    archive or from the folder that it was unpacked to.

    Args:
        source: ``None`` downloads the archive, unless it is in the cache; or the path of ``3dident_train.tar`` or
            ``3dident_test.tar``, of a folder with ``images/`` and ``latents.npy``, or of a folder above one of these.
        split: ``"train"`` or ``"test"``.
        image_size: (height, width), or one number for both; 224 x 224 as published.
        num_bins: number of classes of each factor.

    >>> data = ThreeDIdent("3dident", split="test")  # doctest: +SKIP
    >>> data.latents.shape  # doctest: +SKIP
    (25000, 10)
    """

    name = "3dident"
    license = "stated at zenodo.org/records/4502485"

    def __init__(
        self,
        source: str | Path | None = None,
        split: Split = "train",
        image_size: int | tuple[int, int] = 64,
        num_bins: int = 20,
    ) -> None:
        if split not in get_args(Split):
            raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}.")
        path = FILES[split].fetch() if source is None else _find(Path(source), split)
        self._source, self.latents = _from_folder(path) if path.is_dir() else _from_archive(path)
        self._reading = Reading(height_and_width(image_size), advice="Download the data set again.")
        columns = {}
        for name, values in zip(NAMES, self.latents.T, strict=True):
            column = read_column(values, "continuous", whole("num_bins", num_bins, least=2), name=name)
            whole_turn = name in ANGLES and np.ptp(values) > 1.5 * np.pi
            columns[name] = column._replace(kind="circular") if whole_turn else column
        classes = torch.from_numpy(np.stack([column.classes for column in columns.values()], axis=1))
        table: Table = number_classes(classes, columns)
        super().__init__(Pictures(Undecoded(self._source, self._reading)), table, torch.arange(len(classes)))

    def prepare(self) -> None:
        """Decode all images, unless the cache holds them."""
        if not self.is_prepared():
            self._pictures = from_source(self._source, self._reading)

    def is_prepared(self) -> bool:
        """Return whether this object has opened the decoded images."""
        return not isinstance(self._pictures.rows, Undecoded)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """An image for each of the factors ``[N, 10]``: float32 ``[N, 3, H, W]`` in [0, 1]."""
        self.prepare()
        return super().observe(factors, generator)

    def split(self, test_fraction: float = 1 / 3, seed: int = 0) -> tuple[LabelledImageDataset, LabelledImageDataset]:
        """Two data sets that share no image: to fit on, and to test on."""
        self.prepare()
        return super().split(test_fraction, seed)


class _Archive(Tar):
    """Numbered images inside an uncompressed archive, read where they are."""

    def __init__(self, path: Path, entries: Sequence[tuple[int, int, int]]) -> None:
        self.paths, self.title, self.image_key = [path], str(path), "images"
        self._entries = np.array(entries)


def _find(source: Path, split: str) -> Path:
    """The archive or the folder of a split."""
    if source.is_file():
        return source
    for path in (source, source / split, source / "3dident" / split, source / FILES[split].name):
        if path.is_file() or (path / "images").is_dir():
            return path
    raise FileNotFoundError(
        f"{source}: no images/ and no {FILES[split].name} here. Give the folder of the split or its archive, or leave "
        "out `source` to download it."
    )


def _from_folder(folder: Path) -> tuple[Source, npt.NDArray[np.float64]]:
    files = {f"images/{entry.name}": Path(entry.path) for entry in os.scandir(folder / "images")}
    paths = _numbered(files, folder)
    arrays = {path.name: path.read_bytes() for path in folder.glob("*latents.npy")}
    latents = _latents(arrays, len(paths), folder)
    return Files(paths, [path.name for path in paths], str(folder)), latents


def _from_archive(path: Path) -> tuple[Source, npt.NDArray[np.float64]]:
    members = {member.name: (0, member.offset_data, member.size) for member in Tar._members(path) if member.isfile()}
    entries = _numbered(members, path)
    archive = _Archive(path, entries)
    tables = [name for name in members if name.endswith("latents.npy")]
    arrays = {Path(name).name: archive._read([members[name]])[0] for name in tables}
    return archive, _latents(arrays, len(entries), path)


def _numbered(files: dict[str, Any], path: Path) -> list[Any]:
    """Return the values of names ``images/N.png`` in the order of N, which must count from 0 without a gap."""
    numbered = {int(match[1]): value for name, value in files.items() if (match := IMAGE.fullmatch(name))}
    if not numbered:
        raise ValueError(f"{path}: no images called images/00000.png and so on.")
    missing = next((number for number in range(max(numbered)) if number not in numbered), None)
    if missing is not None:
        raise ValueError(f"{path}: image {missing} is missing of {max(numbered) + 1}. Unpack or copy it again.")
    return [numbered[number] for number in range(len(numbered))]


def _latents(arrays: dict[str, bytes], count: int, path: Path) -> npt.NDArray[np.float64]:
    """The ten factors of every image, as they were given to the renderer."""
    name = next((name for name in ("latents.npy", "raw_latents.npy") if name in arrays), None)
    if name is None:
        raise ValueError(f"{path}: neither latents.npy nor raw_latents.npy is in it. Unpack or download it again.")
    try:
        latents = np.load(io.BytesIO(arrays[name]), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: {name} is not a whole .npy file ({error}). Copy it again.") from None
    if latents.shape != (count, len(NAMES)) or latents.dtype.kind != "f" or not np.isfinite(latents).all():
        raise ValueError(
            f"{path}: {name} is {latents.dtype} {list(latents.shape)}; expected finite numbers "
            f"[{count}, {len(NAMES)}], a row for every image."
        )
    return np.asarray(latents, dtype=np.float64)
