import gzip
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from unknot.datamodules import FactorSpace, GridDataset, SmallNORB
from unknot.datamodules.published.smallnorb import FILES

Refused = Callable[[GridDataset, Path, str], None]
Array = npt.NDArray[Any]

SPACE = FactorSpace(SmallNORB.factor_space.names, (2, 3, 4, 2))
INSTANCES = 4
MAGIC = {"uint8": 0x1E3D4C55, "int32": 0x1E3D4C54, "float32": 0x1E3D4C51}


class TinySmallNORB(SmallNORB):
    factor_space = SPACE
    num_instances = INSTANCES


def matrix(array: Array, byte_order: str = "<") -> bytes:
    """The binary format of the data set: magic, number of axes, at least three sizes, values; little-endian."""
    sizes = [*array.shape, *[1] * (3 - array.ndim)]
    header = struct.pack(f"{byte_order}{2 + len(sizes)}i", MAGIC[array.dtype.name], array.ndim, *sizes)
    return header + array.astype(array.dtype.newbyteorder(byte_order)).tobytes()


def published() -> dict[str, Array]:
    """Six arrays, for a small grid, in random order: the left camera's picture tells what it shows."""
    rng = np.random.default_rng(0)
    axes = [np.arange(n) for n in (SPACE.sizes[0], INSTANCES, *SPACE.sizes[1:])]
    rows = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    parts = {}
    for name, instances in (("training", (0, 3)), ("testing", (1, 2))):
        some = rng.permutation(rows[np.isin(rows[:, 1], instances)]).astype(np.int32)
        images = np.full((len(some), 2, 96, 96), 7, dtype=np.uint8)  # what the right camera sees
        category, instance, elevation, azimuth, lighting = some.T
        quarters = (10 * instance + 100 * category, 40 * elevation, 50 * azimuth, 90 * lighting)
        for quarter, value in enumerate(quarters):
            top, side = 48 * (quarter // 2), 48 * (quarter % 2)
            images[:, 0, top : top + 48, side : side + 48] = value[:, None, None]
        info = np.stack([instance, elevation, 2 * azimuth, lighting], axis=1)
        parts |= {f"{name}-dat": images, f"{name}-cat": category, f"{name}-info": info}
    return parts


def write(folder: Path, arrays: dict[str, Array], **raw: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for file in FILES:
        key = file.name.rpartition("96-")[2].removesuffix(".mat.gz")
        content = raw.get(key.replace("-", "_"), matrix(arrays[key]))
        (folder / file.name).write_bytes(gzip.compress(content, 1))
    return folder


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quarters(images: torch.Tensor) -> torch.Tensor:
    """The values in the quarters of images, away from where the filter mixes: int64 ``[N, 4]``."""
    values = (255 * images).round().long()
    parts = [values[:, 0, top : top + 24, side : side + 24].flatten(1) for top in (0, 40) for side in (0, 40)]
    assert all((part == part[:, :1]).all() for part in parts)
    return torch.stack([part[:, 0] for part in parts], dim=1)


def test_every_image_is_where_its_factors_say(tmp_path: Path, empty_cache: Path) -> None:
    dataset = TinySmallNORB(write(tmp_path / "norb", published()))
    factors = SPACE.factors(torch.arange(SPACE.size)).repeat(60, 1)
    images = dataset.observe(factors, seeded(0))
    assert images.shape == (len(factors), 1, 64, 64)
    category, elevation, azimuth, lighting = factors.T
    seen = quarters(images)
    instance = (seen[:, 0] - 100 * category) // 10
    expected = torch.stack([10 * instance + 100 * category, 40 * elevation, 50 * azimuth, 90 * lighting], dim=1)
    assert torch.equal(seen, expected)

    counts = instance.bincount(minlength=INSTANCES)
    assert len(counts) == INSTANCES
    assert (counts.float() / len(instance) - 1 / INSTANCES).abs().max() < 0.03  # uniform, from both parts
    assert all(len(instance[(factors == point).all(1)].unique()) == INSTANCES for point in factors[: SPACE.size])


def test_unpacked_files_will_do(tmp_path: Path, empty_cache: Path) -> None:
    packed = write(tmp_path / "packed", published())
    (tmp_path / "unpacked").mkdir()
    for path in packed.iterdir():
        (tmp_path / "unpacked" / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    factors = SPACE.sample(50, seeded(0))
    images = TinySmallNORB(packed).observe(factors, seeded(1))
    assert torch.equal(TinySmallNORB(tmp_path / "unpacked").observe(factors, seeded(1)), images)


def test_the_instance_is_drawn_by_the_generator(tmp_path: Path, empty_cache: Path) -> None:
    dataset = TinySmallNORB(write(tmp_path / "norb", published()))
    factors = SPACE.sample(50, seeded(0))
    images = dataset.observe(factors, seeded(1))
    assert torch.equal(dataset.observe(factors, seeded(1)), images)
    assert not torch.equal(dataset.observe(factors, seeded(2)), images)
    state = torch.get_rng_state()
    dataset.observe(factors, seeded(1))
    assert torch.equal(torch.get_rng_state(), state)
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 10_000
    assert torch.equal(pickle.loads(pickled).observe(factors, seeded(1)), images)


def test_images_are_shrunk_as_in_the_reference(tmp_path: Path, empty_cache: Path) -> None:
    arrays = published()
    noise = np.random.default_rng(1).integers(256, size=(96, 96), dtype=np.uint8)
    arrays["testing-dat"][:, 0] = noise
    dataset = TinySmallNORB(write(tmp_path / "norb", arrays))
    images = (255 * dataset.observe(SPACE.sample(40, seeded(0)), seeded(0))).round()
    small = torch.from_numpy(np.array(Image.fromarray(noise).resize((64, 64), Image.Resampling.LANCZOS)))
    assert (images == small).all(dim=(1, 2, 3)).float().mean() == pytest.approx(0.5, abs=0.3)


def test_the_grid_is_the_published_one() -> None:
    assert SmallNORB.factor_space == FactorSpace(("category", "elevation", "azimuth", "lighting"), (5, 9, 18, 6))
    assert SmallNORB().shape == (48_600, 1, 64, 64)
    assert SmallNORB.image_shape == (1, 64, 64)


def changed(key: str, change: Callable[[Array], Array]) -> dict[str, Array]:
    arrays = published()
    return arrays | {key: change(arrays[key])}


def replaced(array: Array, where: Any, value: int) -> Array:
    array = array.copy()
    array[where] = value
    return array


TRAIN_DAT, TRAIN_CAT, TRAIN_INFO, TEST_DAT, TEST_CAT, TEST_INFO = range(6)
BROKEN: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "short values": (
        lambda folder: write(folder, published(), testing_cat=matrix(published()["testing-cat"])[:-3]),
        TEST_CAT,
        "ends early",
    ),
    "short pixels": (
        lambda folder: write(folder, published(), training_dat=matrix(published()["training-dat"])[:-9216]),
        TRAIN_DAT,
        "ends early",
    ),
    "more values": (
        lambda folder: write(folder, published(), training_info=matrix(published()["training-info"]) + b"more"),
        TRAIN_INFO,
        "longer",
    ),
    "big-endian": (
        lambda folder: write(folder, published(), training_cat=matrix(published()["training-cat"], ">")),
        TRAIN_CAT,
        "magic number 0x544c3d1e",
    ),
    "floats": (
        lambda folder: write(folder, changed("testing-cat", lambda cat: cat.astype(np.float32))),
        TEST_CAT,
        "magic number 0x1e3d4c51",
    ),
    "one camera": (
        lambda folder: write(folder, changed("training-dat", lambda dat: dat[:, :1])),
        TRAIN_DAT,
        r"\(1, 96, 96\), expected uint8 \(2, 96, 96\)",
    ),
    "fewer images": (lambda folder: write(folder, changed("testing-dat", lambda dat: dat[:-5])), TEST_DAT, "91 pairs"),
    "fewer categories": (
        lambda folder: write(folder, changed("testing-cat", lambda cat: cat[:-5])),
        TEST_INFO,
        r"labels of shape \(96, 4\) for 91 categories",
    ),
    "odd azimuth": (
        lambda folder: write(folder, changed("testing-info", lambda info: replaced(info, (3, 2), 1))),
        TEST_INFO,
        "azimuths are even",
    ),
    "instance out of range": (
        lambda folder: write(folder, changed("training-info", lambda info: replaced(info, (3, 0), INSTANCES))),
        TRAIN_INFO,
        "instances below",
    ),
    "category out of range": (
        lambda folder: write(folder, changed("training-cat", lambda cat: replaced(cat, 3, 2))),
        TRAIN_INFO,
        "out of range",
    ),
    "twice the same": (
        lambda folder: write(folder, changed("training-info", lambda info: replaced(info, 3, info[4]))),
        TRAIN_INFO,
        "same toy",
    ),
    "not gzipped": (
        lambda folder: (write(folder, published()) / FILES[TRAIN_CAT].name).write_bytes(b"no gzip file"),
        TRAIN_CAT,
        "Not a gzipped file",
    ),
}


@pytest.mark.parametrize(("damage", "culprit", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_damaged_files_are_refused_by_name(
    tmp_path: Path, refused: Refused, damage: Callable[[Path], object], culprit: int, reason: str
) -> None:
    folder = tmp_path / "norb"
    damage(folder)
    refused(TinySmallNORB(folder), folder / FILES[culprit].name, reason)


@pytest.mark.parametrize("culprit", range(6))
def test_truncated_files_are_refused_by_name(tmp_path: Path, refused: Refused, culprit: int) -> None:
    path = write(tmp_path / "norb", published()) / FILES[culprit].name
    os.truncate(path, path.stat().st_size - 5)
    refused(TinySmallNORB(tmp_path / "norb"), path, "end-of-stream|ends early")


def test_missing_parts_are_explained(tmp_path: Path, empty_cache: Path) -> None:
    folder = write(tmp_path / "norb", published())
    with pytest.raises(ValueError, match="SmallNORB is 6 files; give the folder that holds them"):
        TinySmallNORB(folder / FILES[0].name).prepare()
    (folder / FILES[2].name).unlink()
    assert not TinySmallNORB(folder).is_prepared()
    with pytest.raises(FileNotFoundError, match=r"training-info\.mat\.gz: no such file"):
        TinySmallNORB(folder).prepare()
