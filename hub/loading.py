"""Load a checkpoint without knowing its class."""

from pathlib import Path

from unknot.zoo import MODELS, VAE
from unknot.zoo.pretrained import CONFIG, locate, read_config


def load(ref: str | Path) -> VAE:
    """Load a saved model; its class comes from the registry by the name in ``config.json``.

    >>> import tempfile
    >>> from unknot.zoo import BetaVAE
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = BetaVAE(beta=2.0).save_pretrained(folder)
    ...     type(load(folder)).__name__
    'BetaVAE'
    """
    folder = locate(ref)
    name = read_config(folder)["model"]
    if name not in MODELS:
        raise ValueError(f"{folder / CONFIG}: unknown model {name!r}; this version knows {sorted(MODELS)}.")
    return MODELS[name].from_pretrained(folder)
