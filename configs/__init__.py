"""Shipped configurations, found by name."""

import difflib
from pathlib import Path

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
    close = difflib.get_close_matches(name, names(), n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Shipped are: {', '.join(names())}."
    raise FileNotFoundError(f"{name_or_path}: no such file and no shipped configuration. {hint}")
