"""MPI3D: a robot arm that moves an object, simulated and real."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal, get_args

from unknot.datamodules.download import RemoteFile
from unknot.datamodules.factors import FactorSpace
from unknot.datamodules.grid import Bytes, GridDataset, read_npy, reading
from unknot.labels import Kind

Variant = Literal["toy", "realistic", "real", "real_complex"]

NAMES = (
    "object_color",
    "object_shape",
    "object_size",
    "camera_height",
    "background_color",
    "horizontal_axis",
    "vertical_axis",
)
KINDS: tuple[Kind, ...] = ("categorical", "categorical", "ordered", "ordered", "categorical", "ordered", "ordered")


BUCKET = "https://storage.googleapis.com/mpi3d_disentanglement_dataset/data/"


def _file(name: str, *elsewhere: str) -> RemoteFile:
    # No checksums: the known ones are those of the files of 2019, and today's files may differ. Conversion verifies a
    # file by the CRC-32 of the images in the archive.
    return RemoteFile(
        name=name,
        urls=(f"https://huggingface.co/datasets/waleedgondal/mpi3d/resolve/main/{name}", *elsewhere),
        size=12_740_000_000,
    )


FILES: dict[Variant, RemoteFile] = {
    "toy": _file("mpi3d_toy.npz", f"{BUCKET}mpi3d_toy.npz"),
    "realistic": _file("mpi3d_realistic.npz", f"{BUCKET}mpi3d_realistic.npz"),
    # The bucket's real.npz is the corrupted file that the owner of the data set replaced in 2025.
    "real": _file("mpi3d_real.npz"),
    "real_complex": RemoteFile(
        name="real3d_complicated_shapes_ordered.npz",
        urls=tuple(
            f"https://{host}?id=1Tp8eTdHxgUMtsZv5uAoYAbJR1BOa_OQm&export=download&confirm=t"
            for host in ("drive.usercontent.google.com/download", "drive.google.com/uc")
        ),
        size=5_660_000_000,
    ),
}


class MPI3D(GridDataset):
    """MPI3D: colour, shape and size of the object, camera height, background colour and two joints of the arm.

    The factor sizes are those of the current files: (6, 6, 2, 3, 3, 40, 40), 1,036,800 images, for toy, realistic and
    real; (4, 4, 2, 3, 3, 40, 40), 460,800 images, for real_complex. The reference reads (4, 4, ...) for toy and
    realistic, which matches an earlier release. Images are ``[3, 64, 64]``.

    The download is about 12 GB and the converted file 12.7 GB (real_complex: 5.7 GB); neither is loaded into memory.

    Args:
        variant: ``"toy"`` (simple rendering), ``"realistic"`` (realistic rendering), ``"real"`` (photographs) or
            ``"real_complex"`` (photographs of everyday objects).
        source: ``None`` to download the file unless it is cached; or the path of the ``.npz`` or its folder.

    >>> MPI3D("real").factor_space.size
    1036800
    """

    name = "mpi3d"  # of an instance, with its variant
    title = "MPI3D"
    license = "CC-BY-4.0"
    image_shape = (3, 64, 64)
    sizes: ClassVar[dict[Variant, tuple[int, ...]]] = {
        "toy": (6, 6, 2, 3, 3, 40, 40),
        "realistic": (6, 6, 2, 3, 3, 40, 40),
        "real": (6, 6, 2, 3, 3, 40, 40),
        "real_complex": (4, 4, 2, 3, 3, 40, 40),
    }

    def __init__(self, variant: Variant = "toy", source: str | Path | None = None) -> None:
        if variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {', '.join(get_args(Variant))}, got {variant!r}.")
        super().__init__(source)
        self.variant = variant
        self.name = f"mpi3d_{variant}"
        self.factor_space = FactorSpace(NAMES, self.sizes[variant], kinds=KINDS)
        self.files = (FILES[variant],)

    def read(self, paths: list[Path]) -> Iterator[Bytes]:
        """Yield rows of ``images`` in the archive."""
        (path,) = paths
        with reading(path, self.files[0]), zipfile.ZipFile(path) as archive, archive.open("images.npy") as file:
            for chunk in read_npy(file, self.factor_space.size, (64, 64, 3)):
                yield chunk.transpose(0, 3, 1, 2)
