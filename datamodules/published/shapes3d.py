"""Shapes3D: a room with one object, from the public HDF5 file."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from unknot.datamodules.download import RemoteFile
from unknot.datamodules.factors import FactorSpace
from unknot.datamodules.grid import CHUNK, Bytes, GridDataset, reading

FILE = RemoteFile(
    name="3dshapes.h5",
    urls=(
        "https://storage.googleapis.com/3d-shapes/3dshapes.h5",
        "https://huggingface.co/HHousen/object-discovery-pytorch/resolve/main/Datasets/3dshapes.h5",
    ),
    size=267_573_662,
    sha256="0a0f6ed98baff276a50f3a081a7434d788da63cb135a98189b2a5b5769be1785",
)


class Shapes3D(GridDataset):
    """Shapes3D: floor, wall and object hue, scale, shape and orientation; 480,000 images ``[3, 64, 64]``.

    The download is 268 MB, the converted file 5.9 GB.

    Args:
        source: ``None`` to download the file unless it is cached; or the path of ``3dshapes.h5`` or its folder.

    >>> Shapes3D().factor_space.sizes
    (10, 10, 10, 8, 4, 15)
    """

    name = "shapes3d"
    title = "Shapes3D"
    license = "Apache-2.0"
    factor_space = FactorSpace(
        names=("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"),
        sizes=(10, 10, 10, 8, 4, 15),
        kinds=("circular", "circular", "circular", "ordered", "categorical", "ordered"),
    )
    image_shape = (3, 64, 64)
    files = (FILE,)

    def read(self, paths: list[Path]) -> Iterator[Bytes]:
        """Yield rows of the HDF5 file, whose ``labels`` must be the grid in order."""
        import h5py  # slow to import

        space, (path,) = self.factor_space, paths
        with reading(path, self.files[0]), h5py.File(path, "r") as file:
            images, labels = file["images"], file["labels"]
            expected = (space.size, 64, 64, 3)
            if images.shape != expected or images.dtype != np.uint8:
                raise ValueError(f"images are {images.dtype} {images.shape}, expected uint8 {expected}")
            classes = [np.unique(column, return_inverse=True)[1] for column in labels[()].T]
            if not np.array_equal(np.stack(classes, axis=1), space.factors(torch.arange(space.size)).numpy()):
                raise ValueError("its labels are not the grid in order")
            # A chunk of the file spans many images: read each chunk once.
            step = images.chunks[0] * max(1, CHUNK // images.chunks[0]) if images.chunks else CHUNK
            for start in range(0, space.size, step):
                yield images[start : start + step].transpose(0, 3, 1, 2)
