"""Packages whose names are imported when they are first used, so that one light name does not wait for heavy ones."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package: ``homes`` says in which of its modules each name lives, "" for a module itself.

    >>> find = lazily("unknot.metrics", {"Scores": "scores"})
    >>> find("Scores").__name__
    'Scores'
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f"{package}.{homes[name] or name}")
        value = getattr(home, name) if homes[name] else home
        setattr(sys.modules[package], name, value)  # found at once from now on
        return value

    return __getattr__
