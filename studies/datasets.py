"""Data sets by name or class, in the form in which LightningCLI takes them."""

import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from unknot._words import did_you_mean
from unknot.datamodules import DATASETS, GroundTruthDataset, Resized

ALIASES = {"mpi3d": "mpi3d_real"}  # the thesis does not say which of the three it means


def describe(
    dataset: str | Mapping[str, Any], image_size: int | None = None, imported: Iterable[str] = ()
) -> tuple[dict[str, Any], list[int]]:
    """A data set as ``class_path`` and ``init_args``, and the shape of its images.

    Args:
        dataset: a name from ``unknot data list``, or ``{class_path: ..., init_args: ...}``.
        image_size: shrink its images to this side.
        imported: modules whose classes may be named.

    >>> describe("dsprites", 32)[0]["init_args"]
    {'dataset': {'class_path': 'unknot.datamodules.DSprites', 'init_args': {}}, 'size': 32}
    """
    built = build(dataset, imported)
    part = as_config(built) if isinstance(dataset, str) else dict(dataset)
    if image_size is not None:
        built = Resized(built, image_size)
        part = {"class_path": "unknot.datamodules.Resized", "init_args": {"dataset": part, "size": image_size}}
    return part, list(built.image_shape)


def build(dataset: str | Mapping[str, Any], imported: Iterable[str] = ()) -> GroundTruthDataset:
    """The data set itself; nothing is drawn or downloaded yet."""
    if isinstance(dataset, str):
        name = ALIASES.get(dataset, dataset)
        if name not in DATASETS:
            raise ValueError(f"Unknown data set {dataset!r}. {did_you_mean(dataset, DATASETS)}")
        return DATASETS[name]()
    built: GroundTruthDataset = find_class(dataset["class_path"], imported)(
        **{
            name: build(value, imported) if isinstance(value, dict) and "class_path" in value else value
            for name, value in dataset.get("init_args", {}).items()
        }
    )
    return built


def as_config(dataset: GroundTruthDataset) -> dict[str, Any]:
    """The class of a data set, and the arguments that are not its defaults."""
    cls = type(dataset)
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        value = getattr(dataset, name, parameter.default)
        if isinstance(value, GroundTruthDataset):
            arguments[name] = as_config(value)
        elif value != parameter.default:
            arguments[name] = list(value) if isinstance(value, tuple) else value
    package = "unknot.datamodules" if cls.__module__.startswith("unknot.datamodules.") else cls.__module__
    return {"class_path": f"{package}.{cls.__name__}", "init_args": arguments}


def find_class(path: str, imported: Iterable[str] = ()) -> type[Any]:
    """The class of a ``class_path``: one of unknot's, or of a module that was imported by name.

    A study is data: a file that names a module does not make us import it.
    """
    module, _, name = path.rpartition(".")
    if module not in ("unknot.zoo", "unknot.datamodules") and module not in {*imported}:
        raise ValueError(
            f"{path}: a study may only name classes of unknot.zoo and unknot.datamodules, as others could run code. "
            f"If you know what it is, add --import {module or 'MODULE'}."
        )
    found = getattr(importlib.import_module(module), name, None)
    if not inspect.isclass(found):
        raise ValueError(f"{path}: no such class; a class_path is a module and the name of a class.")
    return found
