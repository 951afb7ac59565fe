"""The former name of :mod:`unknot.files`."""

from unknot.files import cache_dir, replacing

__all__ = ["cache_dir", "replacing"]
