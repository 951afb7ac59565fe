"""``unknot data list | prepare | show``."""

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from unknot.cli.parsing import Commands, command
from unknot.files import cache_dir

if TYPE_CHECKING:
    from unknot.datamodules import GroundTruthDataset, SceneDataset

WIDTH = 100


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot data``."""
    parser = command(
        commands,
        "data",
        "list data sets, prepare one, draw one",
        "unknot data list",
        "unknot data prepare shapes3d",
        "unknot data show dsprites --out dsprites.png",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    command(actions, "list", "size, factors, license and state of every data set", "unknot data list")
    prepare = command(
        actions, "prepare", "draw, download or convert a data set now", "unknot data prepare color_dsprites"
    )
    prepare.add_argument("name", help="a name from `unknot data list`")
    prepare.add_argument("--check", action="store_true", help="verify every pixel of a prepared file")
    show = command(
        actions,
        "show",
        "draw samples and one traversal per factor",
        "unknot data show dsprites",
        "unknot data show shapes3d --out pictures/shapes3d.png --seed 1",
    )
    show.add_argument("name", help="a name from `unknot data list`")
    show.add_argument("--out", metavar="PNG", help="file to write (default: NAME.png)")
    show.add_argument("--seed", type=int, default=0, help="seed of the samples (default: 0)")
    parser.set_defaults(run=data_command)


def data_command(arguments: argparse.Namespace) -> int:
    """List data sets, prepare one, or draw one."""
    if arguments.action == "prepare":
        _prepare(arguments.name, arguments.check)
    elif arguments.action == "show":
        from unknot.datamodules.preview import draw_gallery

        picture = draw_gallery(_find(arguments.name), arguments.out or f"{arguments.name}.png", arguments.seed)
        print(f"Samples and traversals of {arguments.name} are in {picture}.")
    else:
        _list()
    return 0


def _find(name: str) -> "GroundTruthDataset | SceneDataset":
    from unknot.datamodules import ClevrScenes, find_dataset

    return ClevrScenes() if name == ClevrScenes.name else find_dataset(name)


def _prepare(name: str, check: bool) -> None:
    from unknot.datamodules import GridDataset

    dataset = _find(name)
    dataset.prepare()
    if check and isinstance(dataset, GridDataset):
        print("All pixels are intact." if dataset.repair() else "The file was damaged and has been rebuilt.")
    print(f"{name} is ready in {cache_dir()}.")


def _list() -> None:
    from unknot.datamodules import DATASETS, ClevrScenes, GridDataset
    from unknot.datamodules.download import human_size

    row = "{:<30} {:>9}  {:<9} {:>8} {:>8}  {:<11} {}".format
    print(row("name", "images", "shape", "download", "on disk", "state", "license"))
    for name, make in DATASETS.items():
        if name.endswith("_32") and name.removesuffix("_32") in DATASETS:
            continue
        dataset = make()
        space = dataset.factor_space
        factors = ", ".join(f"{factor} {size}" for factor, size in zip(space.names, space.sizes, strict=True))
        shape = "x".join(map(str, dataset.image_shape))
        images = dataset.shape[0] if isinstance(dataset, GridDataset) else space.size
        sizes = (human_size(size) if size else "-" for size in (dataset.download_size, dataset.disk_size))
        print(row(name, f"{images:,}", shape, *sizes, _state(dataset), dataset.license))
        print(textwrap.fill(factors, WIDTH, initial_indent="    ", subsequent_indent="    "))
    scenes = ClevrScenes()
    shape = "x".join(map(str, (3, *scenes.image_size)))
    print(row(scenes.name, "endless", shape, "-", "-", "ready", scenes.license))
    print(f"    sets of up to {scenes.max_objects} objects")
    print("Add _32 to a name for images of 32 x 32 pixels, as in dsprites_32.")
    print(f"Prepared data is stored in {cache_dir()} (set UNKNOT_CACHE to move it).")
    print(f"Files that you download manually belong in {cache_dir() / 'downloads'}.")


def _state(dataset: "GroundTruthDataset") -> str:
    if dataset.is_prepared():
        return "ready"
    if not dataset.download_size:
        return "to draw"
    files = getattr(dataset, "files", ())
    return "to convert" if files and all(Path(file.path).exists() for file in files) else "to download"
