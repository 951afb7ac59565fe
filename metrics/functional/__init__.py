"""Pure functions: codes ``[N, D]`` and integer factors ``[N, F]`` in, numbers out."""

from unknot.metrics.functional.mig import mig

__all__ = ["mig"]
