"""unknot: representations with structure.

Import what you need from the sub-packages::

    from unknot.datamodules import DSprites, FactorDataModule
    from unknot.metrics import evaluate
    from unknot.zoo import BetaVAE
"""

__version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # takes longer than the rest of the help

    return version("unknot")
