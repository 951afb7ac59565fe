"""Choices by name: a leaf that every module may import."""

import difflib
from collections.abc import Sequence
from typing import Any


def choose(name: Any, choices: Sequence[str], what: str) -> str:
    """A choice by name, whatever its hyphens; a clear error for anything else.

    >>> choose("Away_Steps", ["plain", "away-steps"], "variant")
    'away-steps'
    """
    key = str(name).replace("_", "-").replace(" ", "-").lower()
    if key in choices:
        return key
    close = difflib.get_close_matches(key, choices, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"{what} {name!r} is unknown: expected one of {', '.join(choices)}{hint}")
