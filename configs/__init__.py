"""Bundled configurations, as data; :mod:`unknot.training.configs` finds and reads them."""

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    from unknot.training import configs

    if name.startswith("_") or not hasattr(configs, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"unknot.configs.{name} is now unknot.training.configs.{name}.", FutureWarning, stacklevel=2)
    return getattr(configs, name)
