"""Numbers among the arguments, Python's and NumPy's alike; what is none is refused in the same words everywhere."""

import math
import operator
from typing import Any


def is_number(value: Any) -> bool:
    """Whether a value is a real number.

    >>> is_number(1e-3), is_number("1e-3"), is_number(True)
    (True, False, False)
    """
    return not isinstance(value, bool | str | bytes) and hasattr(value, "__float__") and not hasattr(value, "__len__")


def whole(name: str, value: Any, least: int | None = 1) -> int:
    """A whole number that is not too small, as Python's ``int``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name} must be a whole number{bound}, got {value!r}.")
    return number


def counts(**numbers: Any) -> None:
    """Refuse what is not a whole number of at least one."""
    for name, value in numbers.items():
        whole(name, value)


def positive(**numbers: Any) -> None:
    """Refuse what is not positive and finite."""
    for name, value in numbers.items():
        if not (is_number(value) and 0 < value < math.inf):
            raise ValueError(f"{name} must be positive and finite, got {value!r}.")


def not_negative(**numbers: Any) -> None:
    """Refuse what is negative or not finite."""
    for name, value in numbers.items():
        if not (is_number(value) and 0 <= value < math.inf):
            raise ValueError(f"{name} must be finite and not negative, got {value!r}.")


def fraction(**numbers: Any) -> None:
    """Refuse what is not a part: more than nothing, and less than all."""
    for name, value in numbers.items():
        if not (is_number(value) and 0 < value < 1):
            raise ValueError(f"{name} must lie between 0 and 1, got {value!r}.")
