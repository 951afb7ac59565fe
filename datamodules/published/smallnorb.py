"""SmallNORB: photographs of 50 toys under changing light."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm.auto import tqdm

from unknot.datamodules.download import RemoteFile
from unknot.datamodules.factors import FactorSpace
from unknot.datamodules.grid import CHUNK, Bytes, GridDataset, reading, shrink

SIDE = 64
TYPES: dict[int, np.dtype[Any]] = {
    0x1E3D4C55: np.dtype("u1"),
    0x1E3D4C54: np.dtype("<i4"),
}  # magic numbers of the files


def _file(part: str, size: int, sha256: str) -> RemoteFile:
    name = f"smallnorb-{part}.mat.gz"
    folder = "cs.nyu.edu/~ylclab/data/norb-v1.0-small"
    return RemoteFile(name, (f"https://{folder}/{name}", f"http://www.{folder}/{name}"), size, sha256=sha256)


TRAINING, TESTING = "5x46789x9x18x6x2x96x96-training", "5x01235x9x18x6x2x96x96-testing"
FILES = (
    _file(f"{TRAINING}-dat", 131_896_188, "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873"),
    _file(f"{TRAINING}-cat", 348, "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa"),
    _file(f"{TRAINING}-info", 71_052, "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32"),
    _file(f"{TESTING}-dat", 130_799_817, "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474"),
    _file(f"{TESTING}-cat", 347, "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff"),
    _file(f"{TESTING}-info", 10_428, "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2"),
)


class SmallNORB(GridDataset):
    """SmallNORB: category, elevation, azimuth and lighting; 48,600 images ``[1, 64, 64]``, shrunk from 96 x 96.

    The toy among the ten of its category is not a factor: it is random for every image. Training and test files are
    combined, left camera only, as in the reference. The download is 263 MB, the converted file 199 MB.

    Args:
        source: ``None`` to download the six files unless they are cached; or the folder with these files, as published
            or unpacked.

    >>> SmallNORB().factor_space.sizes
    (5, 9, 18, 6)
    """

    name = "smallnorb"
    stochastic = True
    finite = False  # a full grid of ten instances: scored as in the study, on images drawn with replacement
    title = "SmallNORB"
    license = "research only"
    factor_space = FactorSpace(
        names=("category", "elevation", "azimuth", "lighting"),
        sizes=(5, 9, 18, 6),
        kinds=("categorical", "ordered", "circular", "categorical"),
    )
    num_instances: ClassVar[int] = 10
    image_shape = (1, SIDE, SIDE)
    files = FILES

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the converted file, where instances of a grid point are adjacent."""
        return (self.factor_space.size * self.num_instances, *self.image_shape)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, 4]``, each of a random instance: float32 ``[N, 1, 64, 64]`` in [0, 1]."""
        points = self.factor_space.index(factors)
        instances = torch.randint(self.num_instances, points.shape, generator=generator)
        return self._images(points * self.num_instances + instances)

    def read(self, paths: list[Path]) -> Iterator[Bytes]:
        """Yield rows of both parts: category from the ``cat`` files, the rest from the ``info`` files."""
        images = np.empty(self.shape, dtype=np.uint8)
        seen = np.zeros(len(images), dtype=bool)
        for part in (0, 3):
            dat, cat, info = paths[part : part + 3]
            with reading(cat, self.files[part + 1]):
                (category,) = _read_matrix(cat, ndim=1, chunk=None)
            with reading(info, self.files[part + 2]):
                (columns,) = _read_matrix(info, ndim=2, chunk=None)
                rows = self._rows_of(category, columns)
                if np.bincount(rows).max(initial=0) > 1 or seen[rows].any():
                    raise ValueError("two images of the same toy, view and lighting")
                seen[rows] = True
            with (
                reading(dat, self.files[part]),
                tqdm(desc="reading toys", total=len(rows), unit="image", disable=None, leave=False) as bar,
            ):
                start = 0
                for pairs in _read_matrix(dat, ndim=4, chunk=CHUNK):
                    if pairs.dtype != np.uint8 or pairs.shape[1:] != (2, 96, 96):
                        raise ValueError(f"pairs are {pairs.dtype} {pairs.shape[1:]}, expected uint8 (2, 96, 96)")
                    left = shrink(pairs[:, 0], SIDE)[:, None]
                    images[rows[start : start + len(left)]] = left[: len(rows) - start]
                    start += len(left)
                    bar.update(len(left))
                if start != len(rows):
                    raise ValueError(f"{start} pairs of images for {len(rows)} labels")
        with reading(paths[5], self.files[5]):
            if not seen.all():
                raise ValueError(f"{seen.sum()} images in training and test files instead of {len(seen)}")
        for start in range(0, len(images), CHUNK):
            yield images[start : start + CHUNK]

    def _given(self) -> list[Path]:
        unpacked = [Path(str(self.source), file.name.removesuffix(".gz")) for file in self.files]
        return unpacked if all(path.exists() for path in unpacked) else super()._given()

    def _rows_of(self, category: npt.NDArray[Any], columns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        if columns.shape != (len(category), 4):
            raise ValueError(f"labels of shape {columns.shape} for {len(category)} categories")
        instance, elevation, azimuth, lighting = torch.from_numpy(columns.astype(np.int64)).T
        if (azimuth % 2).any() or ((instance < 0) | (instance >= self.num_instances)).any():
            raise ValueError("azimuths are even and instances below 10 in the published file")
        factors = torch.stack([torch.from_numpy(category.astype(np.int64)), elevation, azimuth // 2, lighting], dim=1)
        return (self.factor_space.index(factors) * self.num_instances + instance).numpy()


def _read_matrix(path: Path, ndim: int, chunk: int | None) -> Iterator[npt.NDArray[Any]]:
    """Read the binary matrix format of the data set, little-endian: magic, number of axes, at least three sizes,
    values.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        magic, axes = np.frombuffer(_exactly(file, 8), "<i4").tolist()
        if magic not in TYPES or axes != ndim:
            raise ValueError(f"magic number {magic:#x} with {axes} axes is not a matrix of this data set")
        shape = np.frombuffer(_exactly(file, 4 * max(3, ndim)), "<i4")[:ndim].tolist()
        row = TYPES[magic].itemsize * int(np.prod(shape[1:]))
        for start in range(0, shape[0], chunk or shape[0]):
            count = min(chunk or shape[0], shape[0] - start)
            yield np.frombuffer(_exactly(file, count * row), TYPES[magic]).reshape(count, *shape[1:])
        if file.read(1):  # only reading up to the end makes gzip compare the checksum
            raise ValueError("it is longer than its header states")


def _exactly(file: gzip.GzipFile | BinaryIO, length: int) -> bytes:
    content = file.read(length)
    if len(content) != length:
        raise ValueError("it ends early")
    return content
