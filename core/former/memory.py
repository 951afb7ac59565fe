"""Former place of :mod:`unknot.machine`, for one release."""

import warnings

from unknot.machine import keep_freed_memory

__all__ = ["keep_freed_memory"]
warnings.warn("unknot.memory is now unknot.machine.", FutureWarning, stacklevel=2)
