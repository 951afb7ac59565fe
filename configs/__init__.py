"""Shipped configurations and the sweeps of the studies, found by name."""

from pathlib import Path
from typing import Any

import yaml

from unknot._words import did_you_mean

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Names of the shipped configurations."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(name_or_path: str) -> Path:
    """A configuration file: a path if there is such a file, else a shipped one of that name."""
    if Path(name_or_path).is_file():
        return Path(name_or_path)
    name = name_or_path.removesuffix(".yaml")
    if name in names():
        return FOLDER / f"{name}.yaml"
    raise FileNotFoundError(f"{name_or_path}: no such file and no shipped configuration. {did_you_mean(name, names())}")


def sweep_names() -> list[str]:
    """Names of the studies whose sweeps are shipped."""
    return sorted(path.stem for path in (FOLDER / "sweeps").glob("*.yaml"))


def sweep(name: str) -> dict[str, Any]:
    """The sweep of a study: which configurations with which values of which options.

    >>> sweep("unsupervised")["sweeps"][0]
    {'config': 'beta_vae_dsprites', 'options': {'model.beta': [1, 2, 4, 6, 8, 16]}}
    """
    if name not in sweep_names():
        raise FileNotFoundError(f"{name}: no shipped sweep of that name. Shipped are: {', '.join(sweep_names())}.")
    content: dict[str, Any] = yaml.safe_load((FOLDER / "sweeps" / f"{name}.yaml").read_text(encoding="utf-8"))
    return content
