"""Arguments: checked numbers, suggestions for misspelt names, and signatures of classes."""

import difflib
import inspect
import math
import operator
import re
from collections.abc import Iterable
from typing import Any

from typing_extensions import Self


def is_number(value: Any) -> bool:
    """Return whether a value is a real number.

    >>> is_number(1e-3), is_number("1e-3"), is_number(True)
    (True, False, False)
    """
    return not isinstance(value, bool | str | bytes) and hasattr(value, "__float__") and not hasattr(value, "__len__")


def whole(name: str, value: Any, least: int | None = 1) -> int:
    """Return a whole number that is not too small, as Python's ``int``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name} must be a whole number{bound}, got {value!r}.")
    return number


def counts(**numbers: Any) -> None:
    """Raise a ``ValueError`` for values that are not whole numbers of at least one."""
    for name, value in numbers.items():
        whole(name, value)


def positive(**numbers: Any) -> None:
    """Raise a ``ValueError`` for values that are not positive and finite."""
    for name, value in numbers.items():
        if not (is_number(value) and 0 < value < math.inf):
            raise ValueError(f"{name} must be positive and finite, got {value!r}.")


def not_negative(**numbers: Any) -> None:
    """Raise a ``ValueError`` for values that are negative or not finite."""
    for name, value in numbers.items():
        if not (is_number(value) and 0 <= value < math.inf):
            raise ValueError(f"{name} must be finite and not negative, got {value!r}.")


def fraction(**numbers: Any) -> None:
    """Raise a ``ValueError`` for values that do not lie between 0 and 1."""
    for name, value in numbers.items():
        if not (is_number(value) and 0 < value < 1):
            raise ValueError(f"{name} must lie between 0 and 1, got {value!r}.")


def height_and_width(size: Any, name: str = "image_size", also: str = "") -> tuple[int, int]:
    """Return one positive whole number, or two, as (height, width)."""
    try:
        height, width = map(operator.index, size if isinstance(size, tuple | list) else (size, size))
        if min(height, width) < 1:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {also}a positive whole number or (height, width), got {size!r}.") from None
    return height, width


def two_numbers(value_range: tuple[float, float]) -> tuple[float, float]:
    """Return a range as (low, high)."""
    try:
        low, high = map(float, value_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not low < high:
        raise ValueError(f"value_range must be two numbers (low, high), got {value_range!r}.")
    return low, high


# Words


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence for a misspelt name: the nearest known name, or all of them.

    >>> did_you_mean("Dsprites", ["dsprites", "cars3d"])
    "Did you mean 'dsprites'?"
    >>> did_you_mean("x", ["dsprites", "cars3d"])
    'There are cars3d, dsprites.'
    """
    names = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"Did you mean {names[close[0]]!r}?" if close else f"There are {', '.join(sorted(names.values()))}."


def with_article(name: str) -> str:
    """Return the name of a class with its article.

    >>> [with_article(name) for name in ("AdaGVAE", "BetaVAE", "MLVAE", "S2BetaVAE", "SlotSetPredictor")]
    ['an AdaGVAE', 'a BetaVAE', 'an MLVAE', 'an S2BetaVAE', 'a SlotSetPredictor']
    """
    return f"{'an' if re.match(r'[AEIO]|[FHLMNRSX][A-Z0-9]', name) else 'a'} {name}"


# Signatures


def signature_of(cls: type[Any]) -> inspect.Signature:
    """Return the arguments of a class, with those that it passes to its bases as ``**keywords``."""
    collected: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]  # without self
            own = [parameter for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD]
            # Arguments of further bases are keyword-only.
            more = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own] if collected else own
            collected |= {parameter.name: parameter for parameter in more if parameter.name not in collected}
            if len(own) == len(parameters):
                break
    return inspect.Signature(sorted(collected.values(), key=lambda parameter: parameter.kind))


class ShowsArguments:
    """Base of classes whose signature lists all arguments, those of their bases included.

    An unknown argument is reported for the class that was called; Python would name the base that received it.
    """

    __signature__: inspect.Signature

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        """Raise an error for unknown arguments of our classes; users' classes may accept other names."""
        known = cls.__signature__.parameters
        if (unknown := next((name for name in keywords if name not in known), None)) and _is_ours(cls):
            raise TypeError(f"{cls.__name__} has no argument {unknown!r}. {did_you_mean(unknown, known)}")
        return super().__new__(cls)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__signature__ = signature_of(cls)


def _is_ours(cls: type[Any]) -> bool:
    return cls.__module__.partition(".")[0] == "unknot"
