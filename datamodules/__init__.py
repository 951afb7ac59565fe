"""Factor spaces, ground-truth data sets and LightningDataModules."""

from unknot.datamodules.dsprites import ColorDSprites, DSprites, NoisyDSprites, ScreamDSprites
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.labels import LabelledDataModule
from unknot.datamodules.pairs import FramePairDataModule, PairDataModule
from unknot.datamodules.stream import FactorDataModule, StreamDataModule

DATASETS: dict[str, type[GroundTruthDataset]] = {
    dataset.name: dataset for dataset in (DSprites, ColorDSprites, NoisyDSprites, ScreamDSprites)
}
"""Data sets by the name that commands and checkpoints use."""

__all__ = [
    "DATASETS",
    "ColorDSprites",
    "DSprites",
    "FactorDataModule",
    "FactorSpace",
    "FramePairDataModule",
    "GroundTruthDataset",
    "LabelledDataModule",
    "NoisyDSprites",
    "PairDataModule",
    "ScreamDSprites",
    "StreamDataModule",
]
