"""Bundled configurations and the sweeps of the studies, found by name.

A configuration is a LightningCLI configuration that may begin with ``base: NAME``: it then changes another one, a
bundled name or a file in the same folder; a null removes a key. The folder ``base`` holds the parts that the
configurations of a study have in common.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from unknot.arguments import did_you_mean
from unknot.files import read_limited

FOLDER = Path(str(files("unknot.configs")))
MAX_BYTES = 1 << 20


def names() -> list[str]:
    """Return the names of the bundled configurations."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(name_or_path: str | Path) -> Path:
    """Return the file of a configuration: a path if it exists, or else the bundled one of that name."""
    if Path(name_or_path).is_file():
        return Path(name_or_path)
    name = str(name_or_path).removesuffix(".yaml")
    if name in [*names(), *(f"base/{path.stem}" for path in FOLDER.glob("base/*.yaml"))]:
        return FOLDER / f"{name}.yaml"
    raise FileNotFoundError(f"{name_or_path}: no such file and no bundled configuration. {did_you_mean(name, names())}")


def load(name_or_path: str | Path) -> dict[str, Any]:
    """Read a configuration, merged into its base.

    >>> load("beta_vae_dsprites")["model"]
    {'class_path': 'unknot.zoo.BetaVAE', 'init_args': {'beta': 4.0}}
    >>> load("beta_vae_dsprites")["trainer"]["max_steps"]
    300000
    """
    return _load(find(name_or_path), ())


def _load(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in above:
        raise ValueError(f"{path}: `base` leads back to {path.name}.")
    content = read(path)
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected settings such as model, data and trainer, got {content!r:.80}.")
    base = content.pop("base", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise ValueError(f"{path}: `base` must be the name of a configuration or a file beside this one, got {base!r}.")
    beside = path.parent / base
    whole = merged(_load(beside if beside.is_file() else find(base), (*above, path.resolve())), content)
    return {key: value for key, value in whole.items() if value is not None}


def merged(base: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``difference``; a different ``class_path`` drops the arguments of the former.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    >>> merged({"class_path": "A", "init_args": {"b": 1}}, {"class_path": "B"})
    {'class_path': 'B'}
    """
    if "class_path" in base and difference.get("class_path", base["class_path"]) != base["class_path"]:
        return dict(difference)
    result = dict(base)
    for key, value in difference.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def read(path: Path) -> Any:
    """Read a YAML file as plain values."""
    try:
        return yaml.load(read_limited(path, MAX_BYTES).decode("utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not a YAML file ({' '.join(str(error).split())}).") from None


class _Loader(yaml.SafeLoader):
    """YAML loader that reads 5e-4 as a number, as LightningCLI does."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def sweep_names() -> list[str]:
    """Return the names of the studies with bundled sweeps."""
    return sorted(path.stem for path in (FOLDER / "sweeps").glob("*.yaml"))


def sweep(name: str) -> dict[str, Any]:
    """Return the sweep of a study: its configurations, and the values of their options.

    >>> sweep("unsupervised")["sweeps"][0]
    {'config': 'beta_vae_dsprites', 'options': {'model.beta': [1, 2, 4, 6, 8, 16]}}
    """
    if name not in sweep_names():
        raise FileNotFoundError(f"{name}: no bundled sweep of that name. Bundled are: {', '.join(sweep_names())}.")
    content: dict[str, Any] = read(FOLDER / "sweeps" / f"{name}.yaml")
    return content
