"""Factor spaces, ground-truth data sets and LightningDataModules."""

from collections.abc import Callable
from functools import lru_cache, partial

from unknot.arguments import did_you_mean
from unknot.datamodules.base import BatchDataModule, FiniteDataModule
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.features import EfficientNetLite0, FeatureScenes
from unknot.datamodules.grid import GridDataset
from unknot.datamodules.labels import Binned, LabelledDataModule, Labelling, Noisy, Partial, Perfect, Permuted
from unknot.datamodules.matrices import Matrices, MatrixDataModule, sample_matrices
from unknot.datamodules.own.frames import FramePairDataModule
from unknot.datamodules.own.hdf5_scenes import HDF5Scenes
from unknot.datamodules.own.images import ImageDataModule
from unknot.datamodules.own.labelled_images import LabelledImageDataset
from unknot.datamodules.pairs import PairDataModule
from unknot.datamodules.published.abstract_dsprites import AbstractDSprites
from unknot.datamodules.published.cars3d import Cars3D
from unknot.datamodules.published.clevr import CLEVR
from unknot.datamodules.published.dsprites import ColorDSprites, DSprites, NoisyDSprites, ScreamDSprites
from unknot.datamodules.published.mpi3d import MPI3D
from unknot.datamodules.published.shapes3d import Shapes3D
from unknot.datamodules.published.smallnorb import SmallNORB
from unknot.datamodules.published.threedident import ThreeDIdent
from unknot.datamodules.scenes.clevr_scenes import ClevrScenes, draw_masks, draw_scenes, sample_scenes
from unknot.datamodules.scenes.drawn import DrawnScenes
from unknot.datamodules.scenes.layout import Property, SceneDataset, Scenes, SetBatch
from unknot.datamodules.scenes.pong import InterventionalPong
from unknot.datamodules.scenes.room_scenes import RoomScenes
from unknot.datamodules.scenes.rooms3d import Rooms3D
from unknot.datamodules.scenes.scene_pairs import ClevrObject, ScenePairDataModule
from unknot.datamodules.scenes.sprites import MultiDSprites, Tetrominoes
from unknot.datamodules.sets import SetDataModule
from unknot.datamodules.splits import HeldOut, Split
from unknot.datamodules.stream import FactorDataModule, StreamDataModule
from unknot.datamodules.views import Coarse, Resized
from unknot.datamodules.walks import LaplacePairDataModule, WalkDataModule
from unknot.datamodules.weighted import Correlated, Weighted, with_law
from unknot.lazy import keep_former_names

keep_former_names(
    "unknot.datamodules",
    {
        **{name: f"published.{name}" for name in ("abstract_dsprites", "cars3d", "clevr", "dsprites")},
        **{name: f"published.{name}" for name in ("mpi3d", "shapes3d", "smallnorb")},
        **{name: f"scenes.{name}" for name in ("clevr_scenes", "raycast", "rooms3d", "scene_pairs", "shading")},
        "batches": "base",
        "gallery": "preview",
    },
)


def _at_32(make: Callable[[], GroundTruthDataset]) -> Callable[[], GroundTruthDataset]:
    return lambda: Resized(make(), 32)


_WHOLE: dict[str, Callable[[], GroundTruthDataset]] = {
    **{dataset.name: dataset for dataset in (DSprites, ColorDSprites, NoisyDSprites, ScreamDSprites)},
    **{dataset.name: dataset for dataset in (AbstractDSprites, ClevrObject, Rooms3D, Shapes3D, Cars3D, SmallNORB)},
    **{f"mpi3d_{variant}": partial(MPI3D, variant) for variant in MPI3D.sizes},
}
DATASETS: dict[str, Callable[[], GroundTruthDataset]] = {
    **_WHOLE,
    **{f"{name}_32": _at_32(make) for name, make in _WHOLE.items()},
    # Coarse grids for abstract visual reasoning.
    "abstract_dsprites_5x6x3x3x4x4": lambda: Coarse(AbstractDSprites(), (5, 6, 3, 3, 4, 4)),
    "rooms3d_10x10x10x4x4x4": lambda: Coarse(Rooms3D(), (10, 10, 10, 4, 4, 4)),
    "shapes3d_10x10x10x4x4x4": lambda: Coarse(Shapes3D(), (10, 10, 10, 4, 4, 4)),
}
"""Data sets by the name that commands and checkpoints use; those that end in ``_32`` at 32 x 32 pixels."""


def find_dataset(name: str) -> GroundTruthDataset:
    """Return the data set with this name."""
    if name not in DATASETS:
        raise ValueError(f"Unknown data set {name!r}. {did_you_mean(name, DATASETS)}")
    return DATASETS[name]()


_made = lru_cache(maxsize=16)(find_dataset)


def available_dataset(name: str | None, image_shape: tuple[int, int, int] | None = None) -> GroundTruthDataset | None:
    """Return the data set of this name if it needs no download, or has been downloaded, and its images fit.

    Args:
        name: name in ``DATASETS``.
        image_shape: (channels, height, width) that its images must have.
    """
    if name is None or name not in DATASETS:
        return None
    dataset = _made(name)
    is_available = dataset.is_prepared() or not getattr(dataset, "download_size", 0)  # drawn data sets take seconds
    fits = image_shape is None or tuple(dataset.image_shape) == tuple(image_shape)
    return dataset if is_available and fits else None


__all__ = [
    "CLEVR",
    "DATASETS",
    "MPI3D",
    "AbstractDSprites",
    "BatchDataModule",
    "Binned",
    "Cars3D",
    "ClevrObject",
    "ClevrScenes",
    "Coarse",
    "ColorDSprites",
    "Correlated",
    "DSprites",
    "DrawnScenes",
    "EfficientNetLite0",
    "FactorDataModule",
    "FactorSpace",
    "FeatureScenes",
    "FiniteDataModule",
    "FramePairDataModule",
    "GridDataset",
    "GroundTruthDataset",
    "HDF5Scenes",
    "HeldOut",
    "ImageDataModule",
    "InterventionalPong",
    "LabelledDataModule",
    "LabelledImageDataset",
    "Labelling",
    "LaplacePairDataModule",
    "Matrices",
    "MatrixDataModule",
    "MultiDSprites",
    "Noisy",
    "NoisyDSprites",
    "PairDataModule",
    "Partial",
    "Perfect",
    "Permuted",
    "Property",
    "Resized",
    "RoomScenes",
    "Rooms3D",
    "SceneDataset",
    "ScenePairDataModule",
    "Scenes",
    "ScreamDSprites",
    "SetBatch",
    "SetDataModule",
    "Shapes3D",
    "SmallNORB",
    "Split",
    "StreamDataModule",
    "Tetrominoes",
    "ThreeDIdent",
    "WalkDataModule",
    "Weighted",
    "draw_masks",
    "draw_scenes",
    "sample_matrices",
    "sample_scenes",
    "with_law",
]
