"""``unknot data list | prepare``."""

import argparse

from unknot._files import cache_dir
from unknot.cli.evaluate import find_dataset
from unknot.datamodules import DATASETS


def data_command(arguments: argparse.Namespace) -> int:
    """List data sets, or prepare one."""
    if arguments.action == "prepare":
        find_dataset(arguments.name).prepare()
        print(f"{arguments.name} is ready in {cache_dir()}.")
        return 0
    print(f"{'name':<16} {'images':>9}  {'shape':<13} {'state':<9} factors; licence")
    for name, kind in DATASETS.items():
        dataset = kind()
        space = dataset.factor_space
        factors = ", ".join(f"{factor} {size}" for factor, size in zip(space.names, space.sizes, strict=True))
        shape = "x".join(map(str, dataset.image_shape))
        state = "ready" if dataset.is_prepared() else "on demand"
        print(f"{name:<16} {space.size:>9,}  {shape:<13} {state:<9} {factors}; {dataset.licence}")
    print(f"Prepared data lives in {cache_dir()} (set UNKNOT_CACHE to move it).")
    return 0
