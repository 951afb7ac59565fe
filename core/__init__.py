"""unknot: representations with structure.

Import what you need from the sub-packages::

    from unknot.datamodules import DSprites, FactorDataModule
    from unknot.metrics import evaluate
    from unknot.zoo import BetaVAE
"""

from pathlib import Path

__version__: str
__path__.append(str(Path(__file__).with_name("former")))  # old names of modules warn for one release


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # takes longer than the rest of the help

    return version("unknot")
