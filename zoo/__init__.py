"""LightningModules, one file per family."""

from unknot.zoo.vae import VAE, BetaVAE, Posterior

MODELS: dict[str, type[VAE]] = {model.__name__: model for model in (BetaVAE,)}
"""Models by the name that checkpoints and commands use."""


def list_models() -> list[str]:
    """Names of all models of the zoo.

    >>> list_models()
    ['BetaVAE']
    """
    return sorted(MODELS)


__all__ = ["MODELS", "VAE", "BetaVAE", "Posterior", "list_models"]
