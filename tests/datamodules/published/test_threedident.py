"""3DIdent in its published layout: ``images/00000.png``, ``latents.npy`` and ``raw_latents.npy`` for each split."""

import tarfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from unknot.datamodules import FactorDataModule, Resized, ThreeDIdent
from unknot.datamodules.published import threedident
from unknot.metrics import evaluate

COUNT = 120
Latents = npt.NDArray[np.float32]


def published(folder: Path, split: str = "test", periodic: bool = False) -> Latents:
    """Write a split as the authors' scripts do: image n has red 2 n, and green by its x."""
    root = folder / "3dident" / split
    (root / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    raw = rng.uniform(-1, 1, (COUNT, 10)).astype(np.float32)
    scales = np.array([3] * 3 + [np.pi / 2] * 7, dtype=np.float32)
    latents = raw * scales
    if periodic:  # angles of a point on a sphere, in [0, 2 pi], which raw_latents.npy has in Cartesian coordinates
        latents[:, 3:] = np.pi * (1 + raw[:, 3:])
        raw = np.concatenate([raw, raw[:, :1]], axis=1)
    np.save(root / "raw_latents.npy", raw)
    np.save(root / "latents.npy", latents)
    for number, row in enumerate(latents):
        pixels = np.zeros((224, 224, 3), dtype=np.uint8)
        pixels[..., 0], pixels[..., 1] = 2 * number, round(255 * (row[0] + 3) / 6)
        Image.fromarray(pixels).save(root / "images" / f"{number:03}.png")  # as many digits as the last number needs
    return latents


def packed(folder: Path, split: str = "test") -> Path:
    path = folder / f"3dident_{split}.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(folder / "3dident", "3dident")
    return path


@pytest.mark.parametrize("kind", ["folder", "folder above", "archive", "folder with the archive"])
def test_every_image_has_its_factors(tmp_path: Path, empty_cache: Path, kind: str) -> None:
    latents = published(tmp_path / "data")
    source = {
        "folder": lambda: tmp_path / "data" / "3dident" / "test",
        "folder above": lambda: tmp_path / "data",
        "archive": lambda: packed(tmp_path / "data"),
        "folder with the archive": lambda: packed(tmp_path / "data").rename(tmp_path / "3dident_test.tar").parent,
    }[kind]()
    data = ThreeDIdent(source, "test", image_size=16)
    assert data.image_shape == (3, 16, 16)
    assert len(data) == COUNT
    assert not data.is_prepared()
    np.testing.assert_array_equal(data.latents, latents.astype(np.float64))
    images, factors = data[:]
    numbers = (images[:, 0, 0, 0] * 255 / 2).round().long()
    assert sorted(numbers.tolist()) == list(range(COUNT))
    # a bin of width 1/20 holds the number
    values = data.factor_space.values(factors).numpy()
    width = np.ptp(latents, axis=0) / 20
    assert (np.abs(values - latents[numbers]) <= width / 2 + 1e-6).all()
    drawn = data.factor_space.sample(50)
    seen = data.observe(drawn, torch.Generator().manual_seed(0))
    assert data.is_prepared()
    found = (seen[:, 0, 0, 0] * 255 / 2).round().long()
    assert torch.equal(drawn, factors[[numbers.tolist().index(number) for number in found.tolist()]])


def test_angles_that_span_the_circle_are_circular(tmp_path: Path, empty_cache: Path) -> None:
    published(tmp_path / "half")
    published(tmp_path / "whole", periodic=True)
    assert {*ThreeDIdent(tmp_path / "half", "test").factor_space.kinds} == {"continuous"}
    space = ThreeDIdent(tmp_path / "whole", "test").factor_space
    assert space.kinds == ("continuous",) * 3 + ("circular",) * 7
    assert space.names[:4] == ("x", "y", "z", "alpha")
    assert space.names[-1] == "background_hue"


def test_it_trains_is_viewed_and_scored(tmp_path: Path, empty_cache: Path) -> None:
    published(tmp_path)
    data = ThreeDIdent(tmp_path, "test", image_size=16, num_bins=4)
    module = FactorDataModule(data, batch_size=8, seed=0, with_factors=True)
    module.prepare_data()
    images, factors = next(iter(module.train_dataloader()))
    assert images.shape == (8, 3, 16, 16)
    assert factors.shape == (8, 10)
    assert Resized(data, 8)[:2][0].shape == (2, 3, 8, 8)
    fitted, tested = data.split()
    assert len(fitted) + len(tested) == COUNT
    scores = evaluate(lambda x: x.mean((2, 3)), data, metrics=["mcc"], num_train=80, num_test=40)
    assert np.isfinite(scores["mcc"])


def test_the_archive_is_downloaded_and_checked(mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(tmp_path)
    content = packed(tmp_path).read_bytes()
    (mirror / "3dident_test.tar").write_bytes(content)
    with pytest.raises(OSError, match="35020bca16c9faa80cf0c926d265d678"):
        ThreeDIdent(split="test")
    known = replace(threedident.FILES["test"], md5=md5(content).hexdigest())
    monkeypatch.setitem(threedident.FILES, "test", known)
    assert len(ThreeDIdent(split="test")) == COUNT


def spoilt(root: Path, name: str, array: Latents) -> None:
    np.save(root / name, array)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "an image is gone": (lambda root: (root / "images" / "007.png").unlink(), "image 7 is missing of 120"),
    "no numbers": (
        lambda root: [(root / name).unlink() for name in ("latents.npy", "raw_latents.npy")],
        "neither latents.npy nor raw_latents.npy",
    ),
    "cut off": (lambda root: (root / "latents.npy").write_bytes(b"\x93NUMPY"), "not a whole .npy file"),
    "too few rows": (lambda root: spoilt(root, "latents.npy", np.zeros((7, 10), np.float32)), r"\[7, 10\]; expected"),
    "too few columns": (lambda root: spoilt(root, "latents.npy", np.zeros((120, 9), np.float32)), r"\[120, 9\]"),
    "not finite": (lambda root: spoilt(root, "latents.npy", np.full((120, 10), np.nan)), "expected finite numbers"),
    "objects": (lambda root: np.save(root / "latents.npy", np.array([{}] * 120)), "not a whole .npy file"),
    "no images": (lambda root: [path.unlink() for path in (root / "images").iterdir()], "no images called"),
    "not an image": (lambda root: (root / "images" / "000.png").write_bytes(b"<html>"), "cannot identify"),
}


@pytest.mark.parametrize(("damage", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_damage_is_told_in_one_line(
    tmp_path: Path, empty_cache: Path, damage: Callable[[Path], object], reason: str
) -> None:
    published(tmp_path)
    damage(tmp_path / "3dident" / "test")
    with pytest.raises(ValueError, match=reason) as caught:
        ThreeDIdent(tmp_path, "test")
    assert "\n" not in str(caught.value)


def test_what_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no images/ and no 3dident_train\.tar here"):
        ThreeDIdent(tmp_path)
    with pytest.raises(ValueError, match="split must be one of train, test, got 'val'"):
        ThreeDIdent(tmp_path, "val")  # type: ignore[arg-type]
    (tmp_path / "x.tar").write_bytes(b"no archive" * 99)
    with pytest.raises(ValueError, match="not a whole uncompressed tar archive"):
        ThreeDIdent(tmp_path / "x.tar")
