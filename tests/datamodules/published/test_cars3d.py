import io
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from unknot.datamodules import Cars3D, FactorSpace, GridDataset

Refused = Callable[[GridDataset, Path, str], None]
Meshes = dict[str, npt.NDArray[Any]]

ELEVATIONS, AZIMUTHS, CARS = 2, 3, 12
SPACE = FactorSpace(Cars3D.factor_space.names, (ELEVATIONS, AZIMUTHS, CARS))


class TinyCars3D(Cars3D):
    factor_space = SPACE


def published() -> Meshes:
    """``im`` of every car, ``[H, W, C, azimuth, elevation]``: the top left quarter tells which one it is."""
    meshes = {}
    for car in range(CARS):
        images = np.full((128, 128, 3, AZIMUTHS, ELEVATIONS), 255, dtype=np.uint8)
        images[64:] = 100  # the lower half
        images[:64, :64, 0] = 10 * car
        images[:64, :64, 1] = 40 * np.arange(AZIMUTHS)[:, None]
        images[:64, :64, 2] = 60 * np.arange(ELEVATIONS)
        meshes[f"car_{car + 1:03d}_mesh"] = images
    return meshes


def mat(images: npt.NDArray[Any], **more: Any) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, {"im": images, "mask": np.zeros((128, 128, *images.shape[3:]), dtype=np.uint8)} | more)
    return buffer.getvalue()


def write(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def files(meshes: Meshes) -> dict[str, bytes]:
    """The published archive has more than cars, in any order."""
    members = [(f"data/cars/{name}.mat", mat(images)) for name, images in meshes.items()]
    random.Random(0).shuffle(members)
    return {
        "data/shapes48.mat": b"shapes",
        "data/cars/list.txt": "\n".join(meshes).encode(),
        **dict(members),
        "data/sprites/sprites_split.mat": b"sprites",
    }


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("cars") / "nips2015-analogy-data.tar.gz", files(published()))


def test_every_image_is_where_its_factors_say(archive: Path, empty_cache: Path) -> None:
    dataset = TinyCars3D(archive)
    factors = SPACE.factors(torch.arange(SPACE.size))
    images = (255 * dataset.observe(factors)).round()
    assert images.shape == (SPACE.size, 3, 64, 64)
    elevation, azimuth, car = factors.T
    corner = images[:, :, :28, :28]  # away from where the filter mixes
    expected = torch.stack([10 * car, 40 * azimuth, 60 * elevation], dim=1).float()
    assert torch.equal(corner, expected[:, :, None, None].expand_as(corner))
    assert (images[:, :, :28, 36:] == 255).all()
    assert (images[:, :, 36:] == 100).all()


@pytest.mark.parametrize("folder", [".", "cars", "data/cars"])
def test_an_unpacked_archive_will_do(tmp_path: Path, archive: Path, empty_cache: Path, folder: str) -> None:
    (tmp_path / "unpacked" / folder).mkdir(parents=True)
    for name, images in published().items():
        (tmp_path / "unpacked" / folder / f"{name}.mat").write_bytes(mat(images))
    unpacked, packed = TinyCars3D(tmp_path / "unpacked"), TinyCars3D(archive)
    factors = SPACE.factors(torch.arange(SPACE.size))
    assert torch.equal(unpacked.observe(factors), packed.observe(factors))


def test_a_damaged_file_of_an_unpacked_archive_is_named(tmp_path: Path, refused: Refused) -> None:
    folder = tmp_path / "cars"
    folder.mkdir()
    for name, images in published().items():
        (folder / f"{name}.mat").write_bytes(mat(images))
    os.truncate(folder / "car_007_mesh.mat", 1000)
    refused(TinyCars3D(tmp_path), folder / "car_007_mesh.mat", "car_007_mesh.mat")
    (folder / "car_007_mesh.mat").unlink()
    refused(TinyCars3D(tmp_path), folder, "11 cars in it instead of 12")


def test_images_are_shrunk_as_in_the_reference(tmp_path: Path, empty_cache: Path) -> None:
    meshes = published()
    noise = np.random.default_rng(0).integers(256, size=(128, 128, 3, AZIMUTHS, ELEVATIONS), dtype=np.uint8)
    meshes["car_005_mesh"] = noise
    dataset = TinyCars3D(write(tmp_path / "cars.tar.gz", files(meshes)))
    picture = Image.fromarray(noise[:, :, :, 2, 1])
    picture.thumbnail((64, 64), Image.Resampling.LANCZOS)
    image = (255 * dataset.observe(torch.tensor([[1, 2, 4]]))[0]).round().permute(1, 2, 0).numpy()
    assert np.array_equal(image, np.asarray(picture))


def test_the_grid_is_the_published_one() -> None:
    assert Cars3D.factor_space == FactorSpace(("elevation", "azimuth", "object_type"), (4, 24, 183))
    assert len(Cars3D()) == 17_568


def without(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda members: {key: content for key, content in members.items() if name not in key}


def with_car(content: Callable[[bytes], bytes]) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    key = "data/cars/car_003_mesh.mat"
    return lambda members: members | {key: content(members[key])}


ONE = (128, 128, 3, AZIMUTHS, ELEVATIONS)
BROKEN: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "a car missing": (without("car_003"), "11 cars in it instead of 12"),
    "truncated mat": (with_car(lambda content: content[: len(content) // 2]), "cars/car_003_mesh.mat: "),
    "empty mat": (with_car(lambda _: b""), "cars/car_003_mesh.mat: "),
    "no images": (with_car(lambda _: mat(np.zeros(ONE, np.uint8), im=1)[:128]), "cars/car_003_mesh.mat: "),
    "another shape": (
        with_car(lambda _: mat(np.zeros((128, 128, 3, ELEVATIONS, AZIMUTHS), np.uint8))),
        r"im is uint8 \(128, 128, 3, 2, 3\), expected uint8 \(128, 128, 3, 3, 2\)",
    ),
    "floats": (with_car(lambda _: mat(np.zeros(ONE))), "im is float64"),
}


@pytest.mark.parametrize(("damage", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_damaged_cars_are_refused(
    tmp_path: Path, refused: Refused, damage: Callable[[dict[str, bytes]], dict[str, bytes]], reason: str
) -> None:
    path = write(tmp_path / "nips2015-analogy-data.tar.gz", damage(files(published())))
    refused(TinyCars3D(path), path, reason)


@pytest.mark.parametrize("keep", [0, 100, 0.5, 0.999])
def test_truncated_archives_are_refused(tmp_path: Path, archive: Path, refused: Refused, keep: float) -> None:
    path = tmp_path / archive.name
    path.write_bytes(archive.read_bytes())
    os.truncate(path, int(keep if keep > 1 else keep * path.stat().st_size))
    refused(TinyCars3D(path), path, "empty file|end-of-stream|unexpected end|stream")


def test_a_wrong_checksum_is_refused(tmp_path: Path, archive: Path, refused: Refused) -> None:
    path = tmp_path / archive.name
    content = bytearray(archive.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    refused(TinyCars3D(path), path, "CRC check failed")
