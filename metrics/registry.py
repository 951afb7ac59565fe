"""The scores that ``evaluate`` knows by name, and how to add one's own."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from unknot.metrics.draws import Draws

Score = Callable[["Draws"], dict[str, float]]


class Entry(NamedTuple):
    """A score that ``evaluate`` knows: its function, and what a model must offer for it besides ``represent``."""

    function: Score
    needs: str | None = None


METRICS: dict[str, Entry] = {}
"""Scores that ``evaluate`` knows by name."""


def register(name: str, needs: str | None = None) -> Callable[[Score], Score]:
    """Make a function of :class:`Draws` available to :func:`evaluate` as ``name``.

    Args:
        name: the score's name; the function gives its value under this key, further ones under ``name_...``, and
            details such as those of each factor under ``name/...``.
        needs: a method that the model must have; ``"all"`` leaves the score out for others.

    >>> @register("num_codes")
    ... def num_codes(draws):
    ...     return {"num_codes": float(draws.train[0].shape[1])}
    >>> "num_codes" in METRICS
    True
    >>> del METRICS["num_codes"]
    """

    def add(function: Score) -> Score:
        METRICS[name] = Entry(function, needs)
        return function

    return add
