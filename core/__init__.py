"""unknot: representations with structure.

Import what you need from the sub-packages::

    from unknot.datamodules import DSprites, FactorDataModule
    from unknot.metrics import evaluate
    from unknot.zoo import BetaVAE
"""

from importlib.metadata import version

__version__ = version("unknot")
