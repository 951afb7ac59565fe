"""Former place of :mod:`unknot.machine`, for one release."""

import warnings

from unknot.machine import avoid_broken_amx

__all__ = ["avoid_broken_amx"]
warnings.warn("unknot.processor is now unknot.machine.", FutureWarning, stacklevel=2)
