"""What somebody meant who misspelt a class or an option of LightningCLI."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from unknot import datamodules, zoo
from unknot._lightning import pl
from unknot._words import did_you_mean
from unknot.datamodules import DATASETS, GroundTruthDataset, SceneDataset

KINDS: dict[str, tuple[type, ...]] = {
    "model": (zoo.Model,),
    "data": (pl.LightningDataModule,),
    "data.dataset": (GroundTruthDataset, SceneDataset),
}
OPTION = re.compile(r"--(model|data|data\.dataset)(?:\.class_path)?")


def misspelt(words: Sequence[str]) -> str | None:
    """The first option whose value should name a class, and does not, with the class that it may mean."""
    for option, value in _options(words):
        found = OPTION.fullmatch(option)
        if not found or not value.isidentifier():
            continue
        known = class_names(*KINDS[found[1]])
        if value not in known:
            class_of = {name: made for name, made in DATASETS.items() if isinstance(made, type)}
            hint = f"Did you mean {class_of[value].__name__!r}?" if value in class_of else did_you_mean(value, known)
            return f"--{found[1]} {value}: no such class. {hint}"
    return None


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        yield option, value if equals else following


def class_names(*bases: type) -> list[str]:
    """Names of the classes of ours, and of those that were imported, which can be used for one of ``bases``."""
    names: set[str] = set()
    for package in (zoo, datamodules):
        names |= {name for name in package.__all__ if _is_one(getattr(package, name), bases)}
    below: list[Any] = list(bases)
    while below:
        subclasses = below.pop().__subclasses__()
        below += subclasses
        names |= {cls.__name__ for cls in subclasses if not cls.__name__.startswith("_") and not _is_abstract(cls)}
    return sorted(names)


def _is_one(value: Any, bases: tuple[type, ...]) -> bool:
    return isinstance(value, type) and issubclass(value, bases) and not _is_abstract(value)


def _is_abstract(cls: type) -> bool:
    return bool(getattr(cls, "__abstractmethods__", None))
