"""Arguments that several data sets and DataModules share."""

import math
import operator
from typing import Any


def height_and_width(size: Any, name: str = "image_size", also: str = "") -> tuple[int, int]:
    """One positive whole number, or two, as (height, width)."""
    try:
        height, width = map(operator.index, size if isinstance(size, tuple | list) else (size, size))
        if min(height, width) < 1:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {also}a positive whole number or (height, width), got {size!r}.") from None
    return height, width


def two_numbers(value_range: tuple[float, float]) -> tuple[float, float]:
    """(low, high), low first."""
    try:
        low, high = map(float, value_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not low < high:
        raise ValueError(f"value_range must be two numbers (low, high), got {value_range!r}.")
    return low, high
