"""The scores that ``evaluate`` knows by name, and how to add one's own."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from unknot._numbers import is_number

if TYPE_CHECKING:
    from unknot.metrics.draws import Draws

Score = Callable[["Draws"], Any]


class Entry(NamedTuple):
    """A score that ``evaluate`` knows: its function, and what it needs besides codes."""

    name: str
    function: Score
    needs: str | None = None
    intervenes: bool = False
    on_request: bool = False

    def lacks(self, model: Any) -> str | None:
        """What of its needs a model does not offer."""
        offered = {*getattr(model, "capabilities", ()), getattr(model, "batch", None)}
        return self.needs if self.needs and self.needs not in offered else None

    def of(self, draws: "Draws") -> dict[str, float]:
        """Its numbers, each under a name."""
        found = self.function(draws)
        numbers = found if isinstance(found, Mapping) else {self.name: found}
        if self.name not in numbers or not all(_is_scalar(value) for value in numbers.values()):
            raise ValueError(
                f"The score {self.name!r} must give a number, or a dictionary of numbers with {self.name!r} among its "
                f"names, got {found!r:.100}."
            )
        return {name: float(value) for name, value in numbers.items()}


def _is_scalar(value: Any) -> bool:
    return is_number(value) or getattr(value, "shape", None) == ()  # of NumPy or torch


METRICS: dict[str, Entry] = {}
"""Scores that ``evaluate`` knows by name."""


def register(
    name: str, needs: str | None = None, intervenes: bool = False, on_request: bool = False
) -> Callable[[Score], Score]:
    """Make a function of :class:`Draws` available to :func:`evaluate` as ``name``.

    Args:
        name: the score's name. The function gives its value, or a dictionary with the value under this key, further
            ones under ``name_...``, and details such as those of each factor under ``name/...``.
        needs: one of the model's ``capabilities``, such as ``"elbo"``, or its kind of ``batch``, such as ``"pairs"``;
            ``"all"`` leaves the score out for others.
        intervenes: whether it chooses factors of its own, and so needs images of all combinations; ``"all"`` leaves it
            out for one's own images.
        on_request: computed only where it is named, as it takes long; ``"all"`` leaves it out.

    >>> @register("num_codes")
    ... def num_codes(draws):
    ...     return draws.train[0].shape[1]
    >>> "num_codes" in METRICS
    True
    >>> del METRICS["num_codes"]
    """

    def add(function: Score) -> Score:
        METRICS[name] = Entry(name, function, needs, intervenes, on_request)
        return function

    return add
