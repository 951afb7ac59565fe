"""Factor spaces, ground-truth data sets and LightningDataModules."""

from collections.abc import Callable
from functools import partial

from unknot.datamodules.cars3d import Cars3D
from unknot.datamodules.clevr import CLEVR, SceneDataset, Scenes, SetBatch
from unknot.datamodules.clevr_scenes import ClevrScenes, draw_masks, draw_scenes, sample_scenes
from unknot.datamodules.dsprites import ColorDSprites, DSprites, NoisyDSprites, ScreamDSprites
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.grid import GridDataset
from unknot.datamodules.images import ImageDataModule
from unknot.datamodules.labels import LabelledDataModule
from unknot.datamodules.mpi3d import MPI3D
from unknot.datamodules.pairs import FramePairDataModule, PairDataModule
from unknot.datamodules.rooms3d import Rooms3D
from unknot.datamodules.sets import SetDataModule
from unknot.datamodules.shapes3d import Shapes3D
from unknot.datamodules.smallnorb import SmallNORB
from unknot.datamodules.stream import FactorDataModule, StreamDataModule

DATASETS: dict[str, Callable[[], GroundTruthDataset]] = {
    **{dataset.name: dataset for dataset in (DSprites, ColorDSprites, NoisyDSprites, ScreamDSprites)},
    **{dataset.name: dataset for dataset in (Rooms3D, Shapes3D, Cars3D, SmallNORB)},
    **{f"mpi3d_{variant}": partial(MPI3D, variant) for variant in MPI3D.sizes},
}
"""Data sets by the name that commands and checkpoints use."""

__all__ = [
    "CLEVR",
    "DATASETS",
    "MPI3D",
    "Cars3D",
    "ClevrScenes",
    "ColorDSprites",
    "DSprites",
    "FactorDataModule",
    "FactorSpace",
    "FramePairDataModule",
    "GridDataset",
    "GroundTruthDataset",
    "ImageDataModule",
    "LabelledDataModule",
    "NoisyDSprites",
    "PairDataModule",
    "Rooms3D",
    "SceneDataset",
    "Scenes",
    "ScreamDSprites",
    "SetBatch",
    "SetDataModule",
    "Shapes3D",
    "SmallNORB",
    "StreamDataModule",
    "draw_masks",
    "draw_scenes",
    "sample_scenes",
]
