"""Settings of a run, with the classes and folders that they may name.

A configuration may come from an untrusted source. It names classes, which are imported and called: a file may name
those of :data:`ALLOWED`, and others only if the command line names their module, as an option or with ``--import
MODULE``. It may not name folders for the Trainer to write to, because they could belong to another run.
"""

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from unknot.arguments import did_you_mean

if TYPE_CHECKING:
    from unknot.datamodules import GroundTruthDataset

ALLOWED = (
    *("unknot.zoo", "unknot.datamodules", "unknot.metrics"),
    *("torch.nn", "torch.optim", "torchvision.models", "torchvision.transforms"),
    *("pytorch_lightning.callbacks", "pytorch_lightning.cli.ReduceLROnPlateau"),
    *("pytorch_lightning.loggers.CSVLogger", "pytorch_lightning.loggers.csv_logs"),
    *("pytorch_lightning.loggers.TensorBoardLogger", "pytorch_lightning.loggers.tensorboard"),
)
DENIED = (  # "*" matches everything that is not allowed
    *("*", "pytorch_lightning.callbacks.LambdaCallback", "pytorch_lightning.callbacks.lambda_function"),
)
FILES = ("-c", "--config", "--resume", "--ckpt_path")
DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
REFUSED = re.compile(r"Importing '([\w.]+)' is not allowed")
NOT_ACCEPTED = re.compile(r"class_path '([\w.]+)': Option '(\w+)' is not accepted")
MISTYPED = re.compile(r"class_path '[\w.]+': Parser key \"(\w+)\": Expected a <class '(\w+)'>\. Got value: (.+)")
REQUIRED = re.compile(r"(?:class_path '[\w.]*?(\w+)': )?the following arguments are required: ([\w., ]+)")
WRITTEN = ("dirpath", "save_dir", "root_dir", "log_dir", "weights_save_path")
"""Options of loggers and callbacks that name a folder to write to."""
PRIVATE = ("parsing_settings",)
"""Private parts of ``jsonargparse._common`` that unknot uses, in this module only. A test checks them."""
ALIASES = {"mpi3d": "mpi3d_real"}  # the thesis does not specify which of the three it uses


@contextmanager
def only_known_classes(modules: Iterable[str]) -> Iterator[None]:
    """During parsing, allow a configuration to import only allowed modules and ``modules``, including submodules."""
    from jsonargparse import _common, set_parsing_settings

    before = dict(_common.parsing_settings)
    set_parsing_settings(
        import_path_denylist=list(DENIED),
        import_path_allowlist=[*ALLOWED, *modules],
        instantiate_subclass_spec_in_any=False,
        config_read_mode_fsspec_enabled=False,  # a file must not load another file
    )
    try:
        yield
    finally:
        _common.parsing_settings.update(before)
        set_parsing_settings(config_read_mode_fsspec_enabled=True)  # Lightning's default


def import_modules(names: Iterable[str]) -> None:
    """Import the modules that the user named with ``--import``."""
    for name in names:
        importlib.import_module(name)


def refuse_foreign_folders(content: Any, path: Path) -> None:
    """Raise an error for a configuration whose Trainer would write outside the new run folder.

    Args:
        content: content of the configuration.
        path: path of its file, for the message.
    """
    trainer = content.get("trainer") if isinstance(content, Mapping) else None
    for key, value in _strings("trainer", trainer):
        parts = {*PurePosixPath(value).parts, *PureWindowsPath(value).parts}
        outside = PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute() or {"..", "~"} & parts
        if outside or key.rpartition(".")[2] in WRITTEN:
            raise ValueError(
                f"{path}: {key} names {value!r}, but a configuration may not choose a folder to write to, as it could "
                "overwrite another run. If it is yours, remove it there and give it on the command line, for example "
                f"--trainer.default_root_dir {value}."
            )


def _strings(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the strings of a part of a configuration with their dotted keys."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _strings(f"{key}.{name}", part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(key, part)


def named_modules(words: Iterable[str]) -> list[str]:
    """Return the modules of the classes named on a command line, except in file names.

    >>> named_modules(["fit", "--config", "training.yaml", "--model", "mine.models.MyVAE", "--data=data.Frames"])
    ['mine.models', 'data']
    """
    modules = []
    flag = ""
    for word in words:
        if word.startswith("-"):
            flag, _, word = word.partition("=")
        if flag not in FILES:
            modules += [path.rpartition(".")[0] for path in DOTTED.findall(word)]
    return modules


def refusal(message: str) -> str | None:
    """Return a message for the user if a parser's message says that an import is not allowed."""
    match = REFUSED.search(message)
    if not match:
        return None
    return (
        f"it names {match[1]}, and a configuration may only name classes of unknot, torch.nn, torch.optim, "
        "torchvision's models and transforms, and Lightning's callbacks, as it could run code. If you trust it, "
        f"add --import {match[1].rpartition('.')[0]}"
    )


def reason_of(message: str) -> str:
    """Return the reason that a parser's message gives, in one line for users."""
    cause = first_cause(message)
    return refusal(message) or _explained(cause) or cause


def first_cause(message: str) -> str:
    """Return the first cause in the parser's report of every type it tried."""
    _, _, tried = message.partition("Errors:")
    first = re.split(r"\n\s*- ", tried)[1] if "\n" in tried else message
    return " ".join(first.split())


def _explained(message: str) -> str | None:
    """Explain an unknown or missing argument of a class in plain words."""
    from unknot import datamodules, zoo

    if found := NOT_ACCEPTED.search(message):
        module, _, name = found[1].rpartition(".")
        cls = getattr({"unknot.zoo": zoo, "unknot.datamodules": datamodules}.get(module), name, None)
        hint = f" {did_you_mean(found[2], inspect.signature(cls).parameters)}" if cls else ""
        return f"{name} has no argument {found[2]!r}.{hint}"
    if found := MISTYPED.search(message):
        return f"{found[1]} must be of type {found[2]}, got {found[3]!r}."
    if found := REQUIRED.search(message):
        names = re.split(r"[,\s]+", found[2].rstrip(". "))
        parts = ", ".join(names if found[1] else (f"--{name} NAME" for name in names))
        return f"{found[1]} needs {parts}." if found[1] else f"Give {parts}, or a --config that has them."
    return None


# Content of settings


def put(config: dict[str, Any], option: str, value: Any) -> None:
    """Set an option by its name on the command line: ``model.beta`` is an argument of the model's class.

    >>> config = {"model": {"class_path": "unknot.zoo.BetaVAE"}}
    >>> put(config, "model.beta", 2)
    >>> config
    {'model': {'class_path': 'unknot.zoo.BetaVAE', 'init_args': {'beta': 2}}}
    """
    at, keys = config, option.split(".")
    for key in keys[:-1]:
        at = at.setdefault(key, {})
        if "class_path" in at:
            at = at.setdefault("init_args", {})
    at[keys[-1]] = value


def summarised(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return model, arguments, data set, seed and steps of resolved settings; None for missing values.

    >>> summarised({"model": {"class_path": "unknot.zoo.BetaVAE"}, "seed_everything": 3})["model"]
    'BetaVAE'
    """
    model, data, trainer = (_mapping(settings.get(part)) for part in ("model", "data", "trainer"))
    seed, steps, path = settings.get("seed_everything"), trainer.get("max_steps"), model.get("class_path")
    return {
        "model": path.rpartition(".")[2] if isinstance(path, str) else None,
        "arguments": _mapping(model.get("init_args")),
        "dataset": _dataset_name(_mapping(data.get("init_args")).get("dataset")),
        "seed": seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        "steps": steps if isinstance(steps, int) else None,
    }


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _dataset_name(part: Any) -> str | None:
    """Return the name of the data set in the settings, or else that of its class."""
    part = {"class_path": part} if isinstance(part, str) else part
    if not isinstance(part, Mapping) or not isinstance(path := part.get("class_path"), str):
        return None
    try:
        return str(build(_by_package(part)).name)
    except Exception:  # a user's class, or one with missing requirements
        return path.rpartition(".")[2]


def _by_package(part: Any) -> Any:
    """Return a description of a data set, with unknot's classes under the names that their package exports."""
    if not isinstance(part, Mapping):
        return part
    if isinstance(path := part.get("class_path"), str) and (path.startswith("unknot.datamodules.") or "." not in path):
        part = {**part, "class_path": f"unknot.datamodules.{path.rpartition('.')[2]}"}
    return {key: _by_package(value) for key, value in part.items()}


def describe(
    dataset: str | Mapping[str, Any], image_size: int | None = None, imported: Iterable[str] = ()
) -> tuple[dict[str, Any], list[int]]:
    """Return a data set as ``class_path`` and ``init_args``, and the shape of its images.

    Args:
        dataset: a name from ``unknot data list``, or ``{class_path: ..., init_args: ...}``.
        image_size: shrink its images to this side.
        imported: modules whose classes may be named.

    >>> describe("dsprites", 32)[0]["init_args"]
    {'dataset': {'class_path': 'unknot.datamodules.DSprites', 'init_args': {}}, 'size': 32}
    """
    from unknot.datamodules import Resized

    built = build(dataset, imported)
    part = as_config(built) if isinstance(dataset, str) else dict(dataset)
    if image_size is not None:
        built = Resized(built, image_size)
        part = {"class_path": "unknot.datamodules.Resized", "init_args": {"dataset": part, "size": image_size}}
    return part, list(built.image_shape)


def build(dataset: str | Mapping[str, Any], imported: Iterable[str] = ()) -> "GroundTruthDataset":
    """Build the data set; nothing is drawn or downloaded yet."""
    from unknot.datamodules import find_dataset

    if isinstance(dataset, str):
        return find_dataset(ALIASES.get(dataset, dataset))
    built: GroundTruthDataset = find_class(dataset["class_path"], imported)(
        **{
            name: build(value, imported) if isinstance(value, dict) and "class_path" in value else value
            for name, value in dataset.get("init_args", {}).items()
        }
    )
    return built


def as_config(dataset: "GroundTruthDataset") -> dict[str, Any]:
    """Return the class of a data set, and the arguments that differ from its defaults."""
    from unknot.datamodules import GroundTruthDataset

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
    """Return the class of a ``class_path``, either from unknot or from a module that was imported by name.

    A study may be untrusted: a module named in a file is never imported for that reason.
    """
    module, _, name = path.rpartition(".")
    if module not in ("unknot.zoo", "unknot.datamodules") and module not in {*imported}:
        raise ValueError(
            f"{path}: a study may only name classes of unknot.zoo and unknot.datamodules, as others could run code. "
            f"If you trust it, add --import {module or 'MODULE'}."
        )
    cls = getattr(importlib.import_module(module), name, None)
    if not inspect.isclass(cls):
        raise ValueError(f"{path}: no such class; a class_path is a module and the name of a class.")
    return cls
