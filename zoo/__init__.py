"""LightningModules, one file per family."""

from unknot.zoo.base import Model
from unknot.zoo.dip import DIPVAEI, DIPVAEII
from unknot.zoo.object_discovery import SlotAutoEncoder
from unknot.zoo.semi_supervised import S2DIPVAEI, S2BetaTCVAE, S2BetaVAE, S2FactorVAE, SupervisedVAE
from unknot.zoo.set_prediction import DSPNSetPredictor, SetPredictor, SlotMLPSetPredictor, SlotSetPredictor
from unknot.zoo.slots import SlotAttention
from unknot.zoo.total_correlation import BetaTCVAE, FactorVAE
from unknot.zoo.vae import VAE, AnnealedVAE, BetaVAE, Posterior
from unknot.zoo.weak import GVAE, MLVAE, AdaGVAE, AdaMLVAE

MODELS: dict[str, type[Model]] = {
    model.__name__: model
    for model in (
        *(BetaVAE, AnnealedVAE, FactorVAE, BetaTCVAE, DIPVAEI, DIPVAEII),
        *(S2BetaVAE, S2BetaTCVAE, S2FactorVAE, S2DIPVAEI, SupervisedVAE),
        *(GVAE, MLVAE, AdaGVAE, AdaMLVAE),
        *(SlotSetPredictor, SlotMLPSetPredictor, DSPNSetPredictor, SlotAutoEncoder),
    )
}
"""Models by the name that checkpoints and commands use."""


def list_models() -> list[str]:
    """Names of all models of the zoo.

    >>> "AdaGVAE" in list_models()
    True
    """
    return sorted(MODELS)


__all__ = [
    "DIPVAEI",
    "DIPVAEII",
    "GVAE",
    "MLVAE",
    "MODELS",
    "S2DIPVAEI",
    "VAE",
    "AdaGVAE",
    "AdaMLVAE",
    "AnnealedVAE",
    "BetaTCVAE",
    "BetaVAE",
    "DSPNSetPredictor",
    "FactorVAE",
    "Model",
    "Posterior",
    "S2BetaTCVAE",
    "S2BetaVAE",
    "S2FactorVAE",
    "SetPredictor",
    "SlotAttention",
    "SlotAutoEncoder",
    "SlotMLPSetPredictor",
    "SlotSetPredictor",
    "SupervisedVAE",
    "list_models",
]
