"""Lazy packages: names are imported on first use, so that a light name does not load heavy modules."""

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package: ``homes`` maps each name to its module, or to "" for a module itself.

    >>> find = lazily("unknot.metrics", {"Scores": "scores"})
    >>> find("Scores").__name__
    'Scores'
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f"{package}.{homes[name] or name}")
        value = getattr(home, name) if homes[name] else home
        setattr(sys.modules[package], name, value)  # found directly from now on
        return value

    return __getattr__


class _Moved(ModuleType):
    """Former name of a module, which warns when it is used."""

    def __init__(self, former: str, present: str) -> None:
        super().__init__(former)
        self.__dict__["_present"] = present

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        present = self.__dict__["_present"]
        warnings.warn(f"{self.__name__} is now {present}.", DeprecationWarning, stacklevel=2)
        return getattr(import_module(present), name)


def keep_former_names(package: str, moved: Mapping[str, str]) -> None:
    """Keep modules importable by their former names for one release; ``moved`` maps former to present names.

    >>> keep_former_names("unknot", {"idle": "lazy"})
    >>> from unknot.idle import lazily
    >>> lazily.__module__
    'unknot.lazy'
    """
    for former, present in moved.items():
        sys.modules[f"{package}.{former}"] = _Moved(f"{package}.{former}", f"{package}.{present}")
