"""Analyses of the disentanglement chapters, each a pure function of a table of results.

>>> import pandas as pd
>>> from unknot.studies.analyses import metric_agreement
>>> table = pd.DataFrame({"dataset": "dsprites", "method": "BetaVAE", "strength": [1, 2, 4, 8], "seed": 0})
>>> table["mig"], table["dci"] = [0.1, 0.2, 0.3, 0.4], [0.2, 0.1, 0.4, 0.5]
>>> print(metric_agreement(table).numbers[0].value.__round__(2))
0.8
"""

from unknot.studies.analyses.fairness import adjusted_metrics, fairness_selection, unfairness
from unknot.studies.analyses.labels import imprecise_labels, semi_supervised, validation_ranking
from unknot.studies.analyses.metric_study import aggregation, estimation, merge_curves, metric_agreement, reliability
from unknot.studies.analyses.result import ANALYSES, Analysis, Number, Result, Sign, analysis
from unknot.studies.analyses.transfer import selectors, transfer_between_datasets, transfer_experiment
from unknot.studies.analyses.unsupervised import (
    downstream,
    explained_variance,
    scores_by_method,
    scores_by_strength,
    total_correlation,
    unsupervised_scores,
)
from unknot.studies.analyses.weak import (
    adaptive_k,
    covariate_shift,
    group_labels,
    reasoning,
    weak_against_unsupervised,
    weak_downstream,
    weak_fairness,
    weak_loss,
)

__all__ = [
    "ANALYSES",
    "Analysis",
    "Number",
    "Result",
    "Sign",
    "adaptive_k",
    "adjusted_metrics",
    "aggregation",
    "analysis",
    "covariate_shift",
    "downstream",
    "estimation",
    "explained_variance",
    "fairness_selection",
    "group_labels",
    "imprecise_labels",
    "merge_curves",
    "metric_agreement",
    "reasoning",
    "reliability",
    "scores_by_method",
    "scores_by_strength",
    "selectors",
    "semi_supervised",
    "total_correlation",
    "transfer_between_datasets",
    "transfer_experiment",
    "unfairness",
    "unsupervised_scores",
    "validation_ranking",
    "weak_against_unsupervised",
    "weak_downstream",
    "weak_fairness",
    "weak_loss",
]
