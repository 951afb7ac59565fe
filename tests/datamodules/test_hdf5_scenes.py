"""Multi-object data sets in HDF5 files, in the two forms that are published."""

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from unknot.datamodules import HDF5Scenes, SetDataModule, Tetrominoes


@pytest.fixture(scope="module")
def scenes() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    images, targets, masks = Tetrominoes().draw(12, torch.Generator().manual_seed(0))
    assert masks is not None
    return images, targets, masks


@pytest.fixture(params=["numbers", "one for each object"])
def path(request: pytest.FixtureRequest, tmp_path: Path, scenes: tuple[torch.Tensor, ...]) -> Path:
    images, targets, masks = scenes
    each = torch.stack([masks == i for i in range(4)], dim=1)[..., None]
    with h5py.File(tmp_path / "tetrominoes.hdf5", "w") as file:
        file["image"] = (255 * images).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        file["mask"] = (masks[..., None] if request.param == "numbers" else 255 * each).numpy().astype(np.uint8)
        file["visibility"] = np.concatenate([np.ones((12, 1)), np.ones((12, 3))], axis=1).astype(np.float32)
        file["num_actual_objects"] = np.full((12, 1), 3)
        pad = np.zeros((12, 1), dtype=np.int64)
        file["shape"] = np.concatenate([pad, targets[..., :19].argmax(-1).numpy()], axis=1)
        file["position"] = np.concatenate([np.zeros((12, 1, 2)), targets[..., 19:21].numpy()], axis=1)
    return tmp_path / "tetrominoes.hdf5"


def test_what_was_written_is_read(path: Path, scenes: tuple[torch.Tensor, ...]) -> None:
    images, targets, masks = scenes
    data = HDF5Scenes(path, properties={"shape": 19, "position": None})
    assert len(data) == 12
    assert (data.max_objects, data.image_size) == (3, (35, 35))
    batch = data.batch([5, 2, 2])
    assert torch.allclose(batch.images, images[[5, 2, 2]], atol=1 / 255)
    assert batch.masks is not None
    assert torch.equal(batch.masks, masks[[5, 2, 2]])
    assert torch.equal(batch.targets, torch.cat([targets[..., :21], targets[..., -1:]], dim=2)[[5, 2, 2]])
    assert [(prop.name, prop.stop, prop.kind) for prop in data.properties] == [
        ("shape", 19, "class"),
        ("position", 21, "number"),
    ]
    again = pickle.loads(pickle.dumps(data))  # as for a worker process
    assert torch.equal(again.batch([5]).images, batch.images[:1])


def test_sizes_crops_and_batches(path: Path) -> None:
    data = HDF5Scenes(path, image_size=16, crop=(0, 30, 5, 35), value_range=(-1, 1))
    images, _, masks = next(iter(SetDataModule(data, batch_size=4, seed=0).train_dataloader()))
    assert images.shape == (4, 3, 16, 16)
    assert masks.shape == (4, 16, 16)
    assert images.min() == -1
    assert {prop.name for prop in data.properties} == {"shape", "position"}
    room = HDF5Scenes(path, background=2)
    batch = room.batch([0])
    assert room.max_objects == 2
    assert batch.masks is not None
    assert int(batch.masks.max()) == 2


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        HDF5Scenes(tmp_path / "absent.hdf5")
    (tmp_path / "broken.hdf5").write_bytes(b"no HDF5")
    with pytest.raises(ValueError, match="not a whole HDF5 file"):
        HDF5Scenes(tmp_path / "broken.hdf5")
    with h5py.File(tmp_path / "empty.hdf5", "w") as file:
        file["pixels"] = np.zeros((2, 8, 8, 3))
    with pytest.raises(ValueError, match="no array `image`"):
        HDF5Scenes(tmp_path / "empty.hdf5")
    with h5py.File(tmp_path / "grey.hdf5", "w") as file:
        file["image"] = np.zeros((2, 8, 8))
    with pytest.raises(ValueError, match=r"expected \[N, H, W, 3\]"):
        HDF5Scenes(tmp_path / "grey.hdf5")
