"""Scores of representations: pure functions, ``torchmetrics`` classes, and ``evaluate``."""

from unknot.metrics import functional, scores  # the import registers the scores
from unknot.metrics.callback import ScoreCallback
from unknot.metrics.evaluation import METRICS, Draws, evaluate, register
from unknot.metrics.interventional import BetaVAEScore, FactorVAEScore, Unfairness
from unknot.metrics.observational import (
    DCI,
    IRS,
    MIG,
    SAP,
    DownstreamAccuracy,
    Explicitness,
    FactorCodes,
    Modularity,
    TotalCorrelation,
)
from unknot.metrics.pictures import draw_matrices, plot_matrix
from unknot.metrics.sets import AdjustedRandIndex, SetAveragePrecision, SetScores

__all__ = [
    "DCI",
    "IRS",
    "METRICS",
    "MIG",
    "SAP",
    "AdjustedRandIndex",
    "BetaVAEScore",
    "DownstreamAccuracy",
    "Draws",
    "Explicitness",
    "FactorCodes",
    "FactorVAEScore",
    "Modularity",
    "ScoreCallback",
    "SetAveragePrecision",
    "SetScores",
    "TotalCorrelation",
    "Unfairness",
    "draw_matrices",
    "evaluate",
    "functional",
    "plot_matrix",
    "register",
    "scores",
]
