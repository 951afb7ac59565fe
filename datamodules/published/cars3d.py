"""Cars3D: 183 cars seen from all directions."""

import gzip
import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from unknot.datamodules.download import RemoteFile
from unknot.datamodules.factors import FactorSpace
from unknot.datamodules.grid import CHUNK, Bytes, GridDataset, reading, shrink

FILE = RemoteFile(
    name="nips2015-analogy-data.tar.gz",
    urls=(
        "http://www.scottreed.info/files/nips2015-analogy-data.tar.gz",
        "http://www-personal.umich.edu/~reedscot/files/nips2015-analogy-data.tar.gz",
    ),
    size=300_000_000,
    md5="4e866a7919c1beedf53964e6f7a23686",
)
SIDE = 64


class Cars3D(GridDataset):
    """Cars3D: elevation, azimuth and object type; 17,568 images ``[3, 64, 64]``, shrunk from 128 x 128.

    Object types are numbered by the sorted names of the ``.mat`` files. (The reference uses the order in which the file
    system lists them, which differs between machines.) The converted file has 216 MB.

    Args:
        source: ``None`` to download the archive unless it is cached; or the path of ``nips2015-analogy-data.tar.gz`` or
            its folder; or the unpacked folder ``cars``.

    >>> Cars3D().factor_space.sizes
    (4, 24, 183)
    """

    name = "cars3d"
    title = "Cars3D"
    license = "not stated"
    factor_space = FactorSpace(
        names=("elevation", "azimuth", "object_type"), sizes=(4, 24, 183), kinds=("ordered", "circular", "categorical")
    )
    image_shape = (3, SIDE, SIDE)
    files = (FILE,)

    def read(self, paths: list[Path]) -> Iterator[Bytes]:
        """Yield rows of the ``.mat`` files in the archive; ``im`` in each is ``[H, W, C, azimuth, elevation]``."""
        elevations, azimuths, cars = self.factor_space.sizes
        meshes: dict[str, Bytes] = {}
        with tqdm(desc="reading cars", total=cars, unit="car", disable=None, leave=False) as bar:
            for path in paths:
                with reading(path, self.files[0]):
                    for name, content in _members(path):
                        meshes[name] = _read_car(name, content, azimuths, elevations)
                        bar.update()
        with reading(paths[0] if len(paths) == 1 else paths[0].parent, self.files[0]):
            if len(meshes) != cars:
                raise ValueError(f"{len(meshes)} cars in it instead of {cars}")
        images = np.stack([meshes[name] for name in sorted(meshes)], axis=2)  # [elevation, azimuth, car, C, H, W]
        images = images.reshape(-1, *self.image_shape)
        for start in range(0, len(images), CHUNK):
            yield images[start : start + CHUNK]

    def _given(self) -> list[Path]:
        for folder in ("", "cars", "data/cars"):
            if unpacked := sorted(Path(str(self.source), folder).glob("*.mat")):
                return unpacked
        return super()._given()


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the ``.mat`` files in the archive, or of the file at ``path``."""
    if path.suffix == ".mat":
        yield path.name, path.read_bytes()
        return
    with gzip.open(path) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if re.search(r"cars/[^/]*\.mat$", member.name) and (file := archive.extractfile(member)):
                    yield member.name, file.read()
        while stream.read(1 << 20):  # gzip compares the checksum only at the end
            pass


def _read_car(name: str, content: bytes, azimuths: int, elevations: int) -> Bytes:
    """Read one car: ``[elevation, azimuth, C, H, W]``."""
    from scipy.io import loadmat  # slow to import

    try:
        images = loadmat(io.BytesIO(content), variable_names=["im"])["im"]
    except Exception as error:  # scipy's readers raise many kinds of errors
        raise ValueError(f"{name}: {error!r}") from error
    expected = (128, 128, 3, azimuths, elevations)
    if images.shape != expected or images.dtype != np.uint8:
        raise ValueError(f"{name}: im is {images.dtype} {images.shape}, expected uint8 {expected}")
    rows = images.transpose(4, 3, 0, 1, 2).reshape(-1, 128, 128, 3)
    return shrink(rows, SIDE).transpose(0, 3, 1, 2).reshape(elevations, azimuths, 3, SIDE, SIDE)
