import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from unknot.datamodules import DATASETS, MPI3D, FactorSpace, GridDataset
from unknot.datamodules.published.mpi3d import FILES, NAMES

Refused = Callable[[GridDataset, Path, str], None]
Images = npt.NDArray[Any]

SIZES = (3, 2, 2, 3, 2, 2, 4)
COUNT = 576


class TinyMPI3D(MPI3D):
    sizes = dict.fromkeys(MPI3D.sizes, SIZES)


def published() -> Images:
    """Image n has red and green n, and blue by row and column, as uint8 ``[N, 64, 64, 3]``."""
    images = np.zeros((COUNT, 64, 64, 3), dtype=np.uint8)
    images[..., 0] = (np.arange(COUNT) // 256)[:, None, None]
    images[..., 1] = (np.arange(COUNT) % 256)[:, None, None]
    images[..., 2] = 3 * np.arange(64)[:, None] + np.arange(64)
    return images


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("shape", [(COUNT,), SIZES], ids=["flat", "grid"])
def test_every_image_is_where_its_factors_say(
    tmp_path: Path, empty_cache: Path, save: Callable[..., None], shape: tuple[int, ...]
) -> None:
    path = tmp_path / "mpi3d_real.npz"
    save(path, images=published().reshape(*shape, 64, 64, 3))
    dataset = TinyMPI3D("real", source=path)
    for color, horizontal, vertical in [(0, 0, 1), (0, 1, 0), (2, 1, 3)]:
        image = (255 * dataset.observe(torch.tensor([[color, 1, 0, 2, 1, horizontal, vertical]]))[0]).round()
        number = ((((color * 2 + 1) * 2 + 0) * 3 + 2) * 2 + 1) * 8 + horizontal * 4 + vertical
        assert (image[0] == number // 256).all()
        assert (image[1] == number % 256).all()
        assert image[2, 10, 20] == 3 * 10 + 20


@pytest.mark.parametrize(
    ("variant", "sizes", "count"),
    [
        ("toy", (6, 6, 2, 3, 3, 40, 40), 1_036_800),
        ("realistic", (6, 6, 2, 3, 3, 40, 40), 1_036_800),
        ("real", (6, 6, 2, 3, 3, 40, 40), 1_036_800),
        ("real_complex", (4, 4, 2, 3, 3, 40, 40), 460_800),
    ],
)
def test_sizes_are_those_of_the_files_offered_today(variant: Any, sizes: tuple[int, ...], count: int) -> None:
    dataset = DATASETS[f"mpi3d_{variant}"]()
    assert isinstance(dataset, MPI3D)
    assert dataset.name == f"mpi3d_{variant}"
    assert dataset.factor_space == FactorSpace(NAMES, sizes)
    assert len(dataset) == count
    assert dataset.files == (FILES[variant],)


def test_variants_have_files_of_their_own(mirror: Path, empty_cache: Path) -> None:
    for variant, file in FILES.items():
        images = published()
        images[..., 0] = len(variant)
        np.savez(mirror / file.name, images=images)
    for variant in FILES:
        assert round(255 * TinyMPI3D(variant)[0][0][0, 0, 0].item()) == len(variant)
    assert all(TinyMPI3D(variant).is_prepared() for variant in FILES)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="variant must be one of toy, realistic, real, real_complex, got 'complex'"):
        MPI3D("complex")  # type: ignore[arg-type]


class LargerMPI3D(MPI3D):
    sizes = dict.fromkeys(MPI3D.sizes, (2, 2, 2, 2, 2, 16, 16))


def test_the_images_are_never_in_memory(tmp_path: Path, empty_cache: Path) -> None:
    path = tmp_path / "mpi3d_toy.npz"
    np.savez_compressed(path, images=np.zeros((8192, 64, 64, 3), dtype=np.uint8))  # 101 MB
    dataset = LargerMPI3D("toy", source=path)
    tracemalloc.start()
    dataset.prepare()
    dataset.observe(dataset.factor_space.sample(64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    assert dataset.disk_size > 100e6


def save(**changes: Any) -> Callable[[Path], object]:
    return lambda path: np.savez_compressed(path, **{"images": published()} | changes)


def truncated(path: Path) -> None:
    np.savez(path, images=published())
    os.truncate(path, path.stat().st_size * 2 // 3)


def flipped(path: Path) -> None:
    np.savez(path, images=published())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def without_images(path: Path) -> None:
    np.savez(path, pictures=published())


def shortened(path: Path) -> None:
    """A whole archive whose array ends before its header says."""
    np.save(path.with_suffix(".npy"), published())
    content = path.with_suffix(".npy").read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", content[:-100])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (truncated, "not a zip file"),
    "one bit": (flipped, "Bad CRC-32"),
    "garbage": (lambda path: path.write_bytes(b"Google Drive - Quota exceeded" * 99), "not a zip file"),
    "no images": (without_images, "no item named 'images.npy'"),
    "short array": (shortened, "end early"),
    "pickled": (save(images=np.array([{}], dtype=object)), "expected uint8"),
    "floats": (
        save(images=np.zeros((COUNT, 64, 64, 3), dtype=np.float32)),
        r"float32 \(576, 64, 64, 3\), expected uint8",
    ),
    "earlier release": (
        save(images=np.zeros((256, 64, 64, 3), dtype=np.uint8)),
        r"uint8 \(256, 64, 64, 3\), expected uint8 \(576, 64, 64, 3\)",
    ),
    "Fortran order": (save(images=np.asfortranarray(published())), "expected uint8"),
}


@pytest.mark.parametrize(("damage", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_damaged_files_are_refused(
    tmp_path: Path, refused: Refused, damage: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "mpi3d_toy.npz"
    damage(path)
    refused(TinyMPI3D("toy", source=path), path, reason)


def test_a_damaged_download_can_be_deleted(mirror: Path, empty_cache: Path) -> None:
    flipped(mirror / "mpi3d_toy.npz")
    with pytest.raises(ValueError, match=r"not a whole mpi3d_toy.npz .* Delete it and run again") as caught:
        TinyMPI3D("toy").prepare()
    assert str(caught.value).startswith(str(empty_cache / "downloads" / "mpi3d_toy.npz"))
    assert not TinyMPI3D("toy").is_prepared()
