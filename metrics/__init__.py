"""Scores of representations: pure functions, ``torchmetrics`` classes, and ``evaluate``."""

from typing import TYPE_CHECKING

from unknot.lazy import lazily

if TYPE_CHECKING:
    from unknot.metrics import computations as computations
    from unknot.metrics import functional
    from unknot.metrics.callbacks import ScoreCallback, SetScores
    from unknot.metrics.classes.base import ScoreCollection
    from unknot.metrics.classes.interventional import BetaVAEScore, FactorVAEScore, Unfairness
    from unknot.metrics.classes.latents import (
        DCI,
        IRS,
        MCC,
        MIG,
        SAP,
        DownstreamAccuracy,
        Explicitness,
        FactorCodes,
        InfoMEC,
        Modularity,
        TotalCorrelation,
    )
    from unknot.metrics.classes.objects import AdjustedRandIndex, MeanBestOverlap, MeanIoU, SetAveragePrecision
    from unknot.metrics.draws import Draws
    from unknot.metrics.evaluation import evaluate
    from unknot.metrics.object_scores import attention_score, held_out_scenes, set_scores
    from unknot.metrics.plots import draw_matrices, plot_matrix
    from unknot.metrics.registry import METRICS, about, default_scores, describe, list_scores, register
    from unknot.metrics.scores import Scores
    from unknot.metrics.scoring import score

# The functions do not need Lightning, and reading scores does not need torch.
_HOMES = {
    "callbacks": ["ScoreCallback", "SetScores"],
    "draws": ["Draws"],
    "evaluation": ["evaluate"],
    "classes.base": ["ScoreCollection"],
    "classes.interventional": ["BetaVAEScore", "FactorVAEScore", "Unfairness"],
    "classes.latents": [
        *("DCI", "IRS", "MIG", "SAP"),
        *("DownstreamAccuracy", "Explicitness", "FactorCodes", "InfoMEC", "MCC", "Modularity", "TotalCorrelation"),
    ],
    "plots": ["draw_matrices", "plot_matrix"],
    "registry": ["METRICS", "about", "default_scores", "describe", "list_scores", "register"],
    "scores": ["Scores"],
    "scoring": ["score"],
    "object_scores": ["attention_score", "held_out_scenes", "set_scores"],
    "classes.objects": ["AdjustedRandIndex", "MeanBestOverlap", "MeanIoU", "SetAveragePrecision"],
}
__getattr__ = lazily(
    __name__, {name: home for home, names in _HOMES.items() for name in names} | {"computations": "", "functional": ""}
)

__all__ = [
    "DCI",
    "IRS",
    "MCC",
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
    "InfoMEC",
    "MeanBestOverlap",
    "MeanIoU",
    "Modularity",
    "ScoreCallback",
    "ScoreCollection",
    "Scores",
    "SetAveragePrecision",
    "SetScores",
    "TotalCorrelation",
    "Unfairness",
    "about",
    "attention_score",
    "default_scores",
    "describe",
    "draw_matrices",
    "evaluate",
    "functional",
    "held_out_scenes",
    "list_scores",
    "plot_matrix",
    "register",
    "score",
    "set_scores",
]
