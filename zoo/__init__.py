"""Models as LightningModules, one file per family."""

from unknot.zoo.base import Model
from unknot.zoo.conversion import (
    DisentConvEncoder,
    PythaeMNISTDecoder,
    PythaeMNISTEncoder,
    TanhMLPDecoder,
    convert,
)
from unknot.zoo.dip import DIPVAEI, DIPVAEII
from unknot.zoo.dspn import DSPNSetPredictor
from unknot.zoo.factorised_support import HFSVAE
from unknot.zoo.feature_slots import DINOSAUR
from unknot.zoo.likelihoods import Bernoulli, ContinuousBernoulli, Gaussian, Likelihood
from unknot.zoo.networks import ConvDecoder, ConvEncoder, MLPDecoder, MLPEncoder, ResidualDecoder, ResidualEncoder
from unknot.zoo.object_discovery import SlotAutoEncoder
from unknot.zoo.quantised import QLAE, StyleDecoder, StyleEncoder
from unknot.zoo.reasoning import MeanEncoder, PanelCNN, WReN
from unknot.zoo.registry import MODELS, list_models, list_networks, register_model, register_network
from unknot.zoo.schedules import Anneal, WarmupCosine
from unknot.zoo.semi_supervised import S2DIPVAEI, S2BetaTCVAE, S2BetaVAE, S2FactorVAE, SupervisedVAE
from unknot.zoo.set_prediction import SetPredictor, SlotMLPSetPredictor, SlotSetPredictor
from unknot.zoo.slot_attention import SlotAttention
from unknot.zoo.slow import SlowVAE
from unknot.zoo.total_correlation import BetaTCVAE, FactorVAE
from unknot.zoo.tripod import Tripod
from unknot.zoo.vae import VAE, AnnealedVAE, BetaVAE, Posterior
from unknot.zoo.weak import GVAE, MLVAE, AdaGVAE, AdaMLVAE

for _model in (
    *(BetaVAE, AnnealedVAE, FactorVAE, BetaTCVAE, DIPVAEI, DIPVAEII),
    *(S2BetaVAE, S2BetaTCVAE, S2FactorVAE, S2DIPVAEI, SupervisedVAE),
    *(GVAE, MLVAE, AdaGVAE, AdaMLVAE),
    *(HFSVAE, SlowVAE, QLAE, Tripod),
    *(SlotSetPredictor, SlotMLPSetPredictor, DSPNSetPredictor, SlotAutoEncoder, DINOSAUR, WReN),
):
    register_model(_model)
for _network in (
    ConvEncoder,
    ConvDecoder,
    ResidualEncoder,
    ResidualDecoder,
    MLPEncoder,
    MLPDecoder,
    PanelCNN,
    MeanEncoder,
    StyleEncoder,
    StyleDecoder,
    *(DisentConvEncoder, TanhMLPDecoder, PythaeMNISTEncoder, PythaeMNISTDecoder),
):
    register_network(_network)
register_network(Bernoulli, name="bernoulli")
register_network(ContinuousBernoulli, name="continuous_bernoulli")
register_network(Gaussian, name="gaussian")

__all__ = [
    "DINOSAUR",
    "DIPVAEI",
    "DIPVAEII",
    "GVAE",
    "HFSVAE",
    "MLVAE",
    "MODELS",
    "QLAE",
    "S2DIPVAEI",
    "VAE",
    "AdaGVAE",
    "AdaMLVAE",
    "Anneal",
    "AnnealedVAE",
    "Bernoulli",
    "BetaTCVAE",
    "BetaVAE",
    "ContinuousBernoulli",
    "ConvDecoder",
    "ConvEncoder",
    "DSPNSetPredictor",
    "FactorVAE",
    "Gaussian",
    "Likelihood",
    "MLPDecoder",
    "MLPEncoder",
    "MeanEncoder",
    "Model",
    "PanelCNN",
    "Posterior",
    "ResidualDecoder",
    "ResidualEncoder",
    "S2BetaTCVAE",
    "S2BetaVAE",
    "S2FactorVAE",
    "SetPredictor",
    "SlotAttention",
    "SlotAutoEncoder",
    "SlotMLPSetPredictor",
    "SlotSetPredictor",
    "SlowVAE",
    "StyleDecoder",
    "StyleEncoder",
    "SupervisedVAE",
    "Tripod",
    "WReN",
    "WarmupCosine",
    "convert",
    "list_models",
    "list_networks",
    "register_model",
    "register_network",
]
