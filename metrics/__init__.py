"""Scores of representations: pure functions, ``torchmetrics`` classes, and ``evaluate``."""

from typing import TYPE_CHECKING

from unknot.lazy import lazily

if TYPE_CHECKING:
    from unknot.metrics import computations as computations
    from unknot.metrics import functional
    from unknot.metrics.callback import ScoreCallback
    from unknot.metrics.draws import Draws
    from unknot.metrics.evaluation import evaluate
    from unknot.metrics.interventional import BetaVAEScore, FactorVAEScore, Unfairness
    from unknot.metrics.observational import (
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
    from unknot.metrics.pictures import draw_matrices, plot_matrix
    from unknot.metrics.registry import METRICS, about, default_scores, describe, list_scores, register
    from unknot.metrics.scores import Scores
    from unknot.metrics.scoring import score
    from unknot.metrics.sets import AdjustedRandIndex, MeanBestOverlap, MeanIoU, SetAveragePrecision, SetScores
    from unknot.metrics.slots import attention_score, held_out_scenes, set_scores

# The functions need no Lightning, and reading scores not even torch.
_HOMES = {
    "callback": ["ScoreCallback"],
    "draws": ["Draws"],
    "evaluation": ["evaluate"],
    "interventional": ["BetaVAEScore", "FactorVAEScore", "Unfairness"],
    "observational": [
        *("DCI", "IRS", "MIG", "SAP"),
        *("DownstreamAccuracy", "Explicitness", "FactorCodes", "InfoMEC", "MCC", "Modularity", "TotalCorrelation"),
    ],
    "pictures": ["draw_matrices", "plot_matrix"],
    "registry": ["METRICS", "about", "default_scores", "describe", "list_scores", "register"],
    "scores": ["Scores"],
    "scoring": ["score"],
    "slots": ["attention_score", "held_out_scenes", "set_scores"],
    "sets": ["AdjustedRandIndex", "MeanBestOverlap", "MeanIoU", "SetAveragePrecision", "SetScores"],
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
