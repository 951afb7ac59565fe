"""``unknot data list | prepare | show``."""

import argparse
from pathlib import Path

from unknot._files import cache_dir
from unknot.cli.evaluate import find_dataset
from unknot.datamodules import DATASETS, GridDataset, GroundTruthDataset
from unknot.datamodules.clevr import SceneDataset
from unknot.datamodules.clevr_scenes import ClevrScenes
from unknot.datamodules.download import human_size
from unknot.datamodules.gallery import draw_gallery

SCENES = {ClevrScenes.name: ClevrScenes}
"""Sets of objects instead of factors, by name."""


def data_command(arguments: argparse.Namespace) -> int:
    """List data sets, prepare one, or draw one."""
    if arguments.action == "prepare":
        _prepare(arguments.name, arguments.check)
    elif arguments.action == "show":
        picture = draw_gallery(_find(arguments.name), arguments.out or f"{arguments.name}.png", arguments.seed)
        print(f"Samples and traversals of {arguments.name} are in {picture}.")
    else:
        _list()
    return 0


def _find(name: str) -> GroundTruthDataset | SceneDataset:
    return SCENES[name]() if name in SCENES else find_dataset(name)


def _prepare(name: str, check: bool) -> None:
    dataset = _find(name)
    dataset.prepare()
    if check and isinstance(dataset, GridDataset):
        print("Every pixel is as it was written." if dataset.repair() else "It was damaged and has been made anew.")
    print(f"{name} is ready in {cache_dir()}.")


def _list() -> None:
    row = "{:<29} {:>9}  {:<8} {:>8} {:>8}  {:<11} {:<14} {}".format
    print(row("name", "images", "shape", "download", "on disk", "state", "licence", "factors"))
    for name, make in DATASETS.items():
        dataset = make()
        space = dataset.factor_space
        factors = ", ".join(f"{factor} {size}" for factor, size in zip(space.names, space.sizes, strict=True))
        shape = "x".join(map(str, dataset.image_shape))
        images = dataset.shape[0] if isinstance(dataset, GridDataset) else space.size
        sizes = (human_size(size) if size else "-" for size in (dataset.download_size, dataset.disk_size))
        print(row(name, f"{images:,}", shape, *sizes, _state(dataset), dataset.licence, factors))
    for name, kind in SCENES.items():
        scenes = kind()
        shape = "x".join(map(str, (3, *scenes.image_size)))
        print(
            row(name, "endless", shape, "-", "-", "ready", kind.licence, f"sets of up to {scenes.max_objects} objects")
        )
    print(f"Prepared data lives in {cache_dir()} (set UNKNOT_CACHE to move it).")
    print(f"Files downloaded by hand belong in {cache_dir() / 'downloads'}.")


def _state(dataset: GroundTruthDataset) -> str:
    if dataset.is_prepared():
        return "ready"
    if not dataset.download_size:
        return "to draw"
    files = getattr(dataset, "files", ())
    return "to convert" if files and all(Path(file.path).exists() for file in files) else "to download"
