"""Former place of :mod:`unknot.machine`, for one release."""

import warnings

from unknot.machine import sensible_threads, wait_passively

__all__ = ["sensible_threads", "wait_passively"]
warnings.warn("unknot.threads is now unknot.machine.", FutureWarning, stacklevel=2)
