import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from unknot.datamodules import FactorDataModule, FactorSpace, GridDataset, LabelledDataModule, PairDataModule, grid
from unknot.datamodules.download import RemoteFile
from unknot.datamodules.grid import Bytes, Grid, open_grid, write_grid
from unknot.metrics import evaluate

SHAPE = (100, 3, 4, 5)


def rows() -> Bytes:
    return np.random.default_rng(0).integers(256, size=SHAPE, dtype=np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "grid.npy"
    write_grid(path, SHAPE, np.split(rows(), [7, 50]), note=["a note", 3])
    return path


def test_rows_come_back(path: Path) -> None:
    opened = open_grid(path, SHAPE, check_pixels=True)
    assert opened is not None
    assert np.array_equal(opened.rows, rows())
    index = np.array([5, 5, 99, 0])
    assert np.array_equal(opened.take(index), rows()[index])
    assert opened.note == ["a note", 3]
    assert not opened.rows.flags.writeable


def test_any_numpy_opens_the_file(path: Path) -> None:
    assert np.array_equal(np.load(path, mmap_mode="r"), rows())


def test_an_open_grid_travels_light(path: Path) -> None:
    opened = open_grid(path, SHAPE)
    pickled = pickle.dumps(opened)
    assert len(pickled) < 1000
    assert np.array_equal(pickle.loads(pickled).rows, rows())


def test_a_view_that_is_not_contiguous_is_written_as_it_looks(tmp_path: Path) -> None:
    turned = np.ascontiguousarray(rows().transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    write_grid(tmp_path / "grid.npy", SHAPE, [turned])
    assert np.array_equal(np.load(tmp_path / "grid.npy"), rows())


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "first byte": lambda path: flip(path, 0),
    "header": lambda path: flip(path, 100),
    "note": lambda path: flip(path, -20),
    "length of the note": lambda path: flip(path, -9),
    "checksum of the pixels": lambda path: flip(path, -5),
    "last byte": lambda path: flip(path, -1),
    "one byte short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"0"),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_shows_at_once(path: Path, damage: Callable[[Path], object]) -> None:
    damage(path)
    assert open_grid(path, SHAPE) is None


def test_another_shape_is_another_file(path: Path) -> None:
    assert open_grid(path, (100, 3, 5, 4)) is None
    assert open_grid(path, (50, 3, 4, 5)) is None


@pytest.mark.parametrize("position", [128, 128 + 3000, 128 + 5999])
def test_damaged_pixels_show_when_asked_for(path: Path, position: int) -> None:
    flip(path, position)
    assert open_grid(path, SHAPE) is not None
    assert open_grid(path, SHAPE, check_pixels=True) is None


@pytest.mark.parametrize("count", [99, 101])
def test_too_few_or_too_many_rows_are_not_written(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} images instead of 100"):
        write_grid(tmp_path / "grid.npy", SHAPE, [np.zeros((count, 3, 4, 5), dtype=np.uint8)])
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(OSError, match=r"6 kB needed for grid.npy, 1 kB free.*UNKNOT_CACHE"):
        write_grid(tmp_path / "grid.npy", SHAPE, iter(()))
    assert list(tmp_path.iterdir()) == []


def resident() -> int:
    """Bytes of this process that are in memory."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to look at its own memory")


def growth(opened: Grid, batches: int) -> float:
    """By how many bytes the process grows, at most, while it takes random batches of 64."""
    rng = np.random.default_rng(0)
    opened.take(rng.integers(len(opened.rows), size=64))
    before, most = resident(), 0
    for _ in range(batches):
        opened.take(rng.integers(len(opened.rows), size=64))
        most = max(most, resident() - before)
    return most


@linux
def test_random_batches_of_ten_gigabytes_do_not_grow_the_process(tmp_path: Path) -> None:
    path, shape = tmp_path / "sparse.npy", (820_000, 3, 64, 64)
    header = grid._header(shape)
    with path.open("wb") as file:
        file.write(header)
        file.seek(820_000 * 3 * 64 * 64, os.SEEK_CUR)
        file.write(grid._ending(header, b"null", 0))
    opened = open_grid(path, shape)
    assert opened is not None
    assert path.stat().st_size > 10e9
    assert growth(opened, batches=200) < 64e6  # these are 157 MB of images, and the kernel maps more around them


@linux
def test_pages_that_the_kernel_maps_in_large_pieces_do_not_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "SMALL", 0)
    path, shape = tmp_path / "grid.npy", (16_000, 3, 64, 64)  # 197 MB that, unlike those above, lie in the cache
    write_grid(path, shape, (np.full((1000, 3, 64, 64), number, dtype=np.uint8) for number in range(16)))
    opened = open_grid(path, shape)
    assert opened is not None
    assert growth(opened, batches=50) < 64e6
    index = np.arange(0, 16_000, 999)
    assert opened.take(index)[:, 0, 0, 0].tolist() == (index // 1000).tolist()


# A data set made of it.

SPACE = FactorSpace(("x", "y", "hue"), (4, 4, 3))


class Squares(GridDataset):
    """A square at one of 4 x 4 places, in one of three colours."""

    name = "squares"
    title = "Squares"
    factor_space = SPACE
    image_shape = (3, 64, 64)
    files = (RemoteFile("squares.bin", ("http://127.0.0.1:9/squares.bin",), size=100),)

    def read(self, paths: list[Path]) -> Iterator[Bytes]:
        assert paths[0].read_bytes() == b"squares"
        for x, y, hue in SPACE.factors(torch.arange(SPACE.size)).tolist():
            image = np.zeros((1, 3, 64, 64), dtype=np.uint8)
            image[0, hue, 16 * y : 16 * y + 16, 16 * x : 16 * x + 16] = 255
            yield image


@pytest.fixture
def squares(tmp_path: Path, empty_cache: Path) -> Squares:
    path = tmp_path / "squares.bin"
    path.write_bytes(b"squares")
    return Squares(path)


def test_other_modules_take_it(squares: Squares) -> None:
    images = next(iter(FactorDataModule(squares, batch_size=8, num_workers=1, seed=0).train_dataloader()))
    assert images.shape == (8, 3, 64, 64)
    assert (images.sum((1, 2, 3)) == 256).all()
    first, second = next(iter(PairDataModule(squares, k=1, batch_size=8, seed=0).train_dataloader()))
    assert first.shape == second.shape == (8, 3, 64, 64)
    _, labelled, labels = next(
        iter(LabelledDataModule(squares, num_labels=20, batch_size=8, seed=0).train_dataloader())
    )
    hue = labelled.sum((2, 3)).argmax(1)
    assert torch.allclose(labels[:, 2], hue / 3)


def test_evaluate_takes_it(squares: Squares) -> None:
    place = torch.arange(64.0)

    def represent(images: torch.Tensor) -> torch.Tensor:
        columns = [images.sum((1, 2)) @ place / 256, images.sum((1, 3)) @ place / 256, images.sum((2, 3)).argmax(1)]
        return torch.stack([column.float() for column in columns], dim=1)

    assert evaluate(represent, squares, metrics=["mig"], num_train=2000)["mig"] == pytest.approx(1, abs=0.01)


def test_damaged_pixels_are_repaired_on_request(squares: Squares, empty_cache: Path) -> None:
    good = squares[30][0]
    assert squares.repair()
    (file,) = empty_cache.glob("*.npy")
    flip(file, -100)
    fresh = Squares(squares.source)
    assert fresh.is_prepared()
    assert not fresh.repair()
    assert torch.equal(fresh[30][0], good)
    assert fresh.repair()


def test_a_download_that_fails_says_how_to_do_it_by_hand(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unknot.datamodules.download.PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(OSError, match=r"Could not download squares.bin \(about 100 B\)") as caught:
        Squares().prepare()
    target = empty_cache / "downloads" / "squares.bin"
    assert f"put it at {target} and run again" in str(caught.value)
    assert list(empty_cache.glob("*.npy")) == []
    target.write_bytes(b"squares")
    assert Squares()[0][0].sum() == 256


def test_a_conversion_that_fails_leaves_nothing(squares: Squares, empty_cache: Path) -> None:
    Path(str(squares.source)).write_bytes(b"circles")
    with pytest.raises(AssertionError):
        squares.prepare()
    assert [path for path in empty_cache.iterdir() if path.is_file()] == []
