import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch

from unknot.datamodules import FactorSpace, GridDataset, Shapes3D
from unknot.datamodules.published.shapes3d import FILE

Arrays = dict[str, npt.NDArray[Any]]
Refused = Callable[[GridDataset, Path, str], None]

SPACE = FactorSpace(Shapes3D.factor_space.names, (2, 3, 2, 2, 4, 3))


class TinyShapes3D(Shapes3D):
    factor_space = SPACE


def published() -> Arrays:
    """As in the published file, for a small grid: image n has red n, green by row and blue by column."""
    values = [np.linspace(low, high, n) for (low, high), n in zip(RANGES, SPACE.sizes, strict=True)]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*values, indexing="ij")], axis=1)
    images = np.zeros((SPACE.size, 64, 64, 3), dtype=np.uint8)
    images[..., 0] = (np.arange(SPACE.size) % 256)[:, None, None]
    images[..., 1] = 2 * np.arange(64)[:, None]
    images[..., 2] = 3 * np.arange(64)
    return {"images": images, "labels": grid}


RANGES = ((0, 0.9), (0, 0.9), (0, 0.9), (0.75, 1.25), (0, 3), (-30, 30))


def write(path: Path, arrays: Arrays, **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)
    return path


@pytest.mark.parametrize("options", [{}, {"chunks": True, "compression": "gzip"}], ids=["plain", "compressed"])
def test_every_image_is_where_its_factors_say(tmp_path: Path, empty_cache: Path, options: dict[str, Any]) -> None:
    dataset = TinyShapes3D(write(tmp_path / "3dshapes.h5", published(), **options))
    assert not dataset.is_prepared()
    factors = SPACE.factors(torch.arange(SPACE.size))
    images = (255 * dataset.observe(factors)).round()
    assert images.shape == (SPACE.size, 3, 64, 64)
    numbers = torch.from_numpy(np.ravel_multi_index(tuple(factors.T.numpy()), SPACE.sizes)) % 256
    assert torch.equal(images[:, 0], numbers[:, None, None].expand(-1, 64, 64).float())
    assert torch.equal(images[:, 1], (2.0 * torch.arange(64))[:, None].expand(SPACE.size, 64, 64))
    assert torch.equal(images[:, 2], (3.0 * torch.arange(64)).expand(SPACE.size, 64, 64))
    assert dataset.is_prepared()
    assert TinyShapes3D(tmp_path).is_prepared()  # the folder will do


def test_the_grid_is_the_published_one() -> None:
    space = Shapes3D.factor_space
    assert space.names == ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
    assert space.sizes == (10, 10, 10, 8, 4, 15)
    assert len(Shapes3D()) == 480_000
    assert Shapes3D.image_shape == (3, 64, 64)


def test_it_is_downloaded_converted_once_and_then_needs_no_source(mirror: Path, empty_cache: Path) -> None:
    path = write(mirror / FILE.name, published())

    class Downloaded(TinyShapes3D):
        files = (replace(FILE, sha256=hashlib.sha256(path.read_bytes()).hexdigest()),)

    dataset = Downloaded()
    assert not dataset.is_prepared()
    first = dataset[7][0]
    path.unlink()
    (empty_cache / "downloads" / FILE.name).unlink()
    assert Downloaded().is_prepared()
    assert torch.equal(Downloaded()[7][0], first)


def test_only_the_published_file_is_accepted(mirror: Path, empty_cache: Path) -> None:
    write(mirror / FILE.name, published())
    with pytest.raises(OSError, match="0a0f6ed98baff276a50f3a081a7434d788da63cb135a98189b2a5b5769be1785") as caught:
        TinyShapes3D().prepare()
    assert str(empty_cache / "downloads" / "3dshapes.h5") in str(caught.value)
    assert "about 268 MB" in str(caught.value)
    assert not TinyShapes3D().is_prepared()


def shuffled(arrays: Arrays) -> Arrays:
    order = np.random.default_rng(0).permutation(SPACE.size)
    return {name: array[order] for name, array in arrays.items()}


def truncated(path: Path, arrays: Arrays, fraction: float) -> None:
    write(path, arrays)
    os.truncate(path, int(path.stat().st_size * fraction))


BROKEN: dict[str, tuple[Callable[[Path, Arrays], object], str]] = {
    "truncated": (lambda path, arrays: truncated(path, arrays, 0.6), "truncated file"),
    "almost whole": (lambda path, arrays: truncated(path, arrays, 0.999), "truncated file"),
    "empty": (lambda path, _: path.write_bytes(b""), "signature not found|end of file"),
    "garbage": (lambda path, _: path.write_bytes(b"<html>404</html>" * 99), "signature not found"),
    "no images": (lambda path, arrays: write(path, {"labels": arrays["labels"]}), "images"),
    "no labels": (lambda path, arrays: write(path, {"images": arrays["images"]}), "labels"),
    "float images": (
        lambda path, arrays: write(path, arrays | {"images": arrays["images"] / 255.0}),
        "float64 .* expected uint8",
    ),
    "too few": (
        lambda path, arrays: write(path, {name: array[:100] for name, array in arrays.items()}),
        r"\(100, 64, 64, 3\), expected uint8 \(288, 64, 64, 3\)",
    ),
    "channels first": (
        lambda path, arrays: write(path, arrays | {"images": arrays["images"].transpose(0, 3, 1, 2)}),
        r"\(288, 3, 64, 64\)",
    ),
    "another order": (lambda path, arrays: write(path, shuffled(arrays)), "labels are not the grid in order"),
    "factors swapped": (
        lambda path, arrays: write(path, arrays | {"labels": arrays["labels"][:, [1, 0, 2, 3, 4, 5]]}),
        "labels are not the grid in order",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_damaged_files_are_refused(
    tmp_path: Path, refused: Refused, damage: Callable[[Path, Arrays], object], reason: str
) -> None:
    path = tmp_path / "3dshapes.h5"
    damage(path, published())
    refused(TinyShapes3D(path), path, reason)


def test_a_missing_file_is_explained(tmp_path: Path, empty_cache: Path) -> None:
    dataset = Shapes3D(tmp_path / "nowhere.h5")
    assert not dataset.is_prepared()
    with pytest.raises(
        FileNotFoundError, match=r"no such file\. Give the path of 3dshapes\.h5 or its folder, or leave"
    ):
        dataset.prepare()
