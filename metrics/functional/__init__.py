"""Pure functions that compute scores from codes ``[N, D]`` and integer factors ``[N, F]``."""

from unknot.metrics.functional.aggregation import (
    AGGREGATIONS,
    dci_completeness,
    dci_disentanglement,
    gap,
    modularity_of,
)
from unknot.metrics.functional.baseline import permuted_baseline
from unknot.metrics.functional.dci import dci, dci_regression
from unknot.metrics.functional.dci_es import capacity_explicitness, dci_es
from unknot.metrics.functional.dependence import pairwise_information, total_correlation, wasserstein_dependence
from unknot.metrics.functional.downstream import downstream_accuracy
from unknot.metrics.functional.fairness import adjusted, unfairness
from unknot.metrics.functional.gaps import dcimig, jemmig, med, mig_sup
from unknot.metrics.functional.groups import IndependentGroups, independent_groups, merge_factors
from unknot.metrics.functional.identifiability import matched_correlations, mcc, regression_r2
from unknot.metrics.functional.infomec import (
    active_codes,
    infomec,
    neighbour_information,
    normalised_information,
    probe_explicitness,
)
from unknot.metrics.functional.information import discretize
from unknot.metrics.functional.interventional import (
    beta_vae_score,
    difference_features,
    factor_vae_score,
    least_varying,
)
from unknot.metrics.functional.irs import irs
from unknot.metrics.functional.masks import correct_localization, mean_best_overlap, mean_iou, object_recovery
from unknot.metrics.functional.matrices import (
    FactorCodeMatrix,
    importance_matrix,
    information_matrix,
    predictability_matrix,
)
from unknot.metrics.functional.mig import mig
from unknot.metrics.functional.modularity import explicitness, modularity
from unknot.metrics.functional.sap import sap
from unknot.metrics.functional.sets import adjusted_rand_index, set_average_precision
from unknot.metrics.functional.slot_identifiability import compositional_contrast, slot_identifiability
from unknot.metrics.functional.udr import udr

__all__ = [
    "AGGREGATIONS",
    "FactorCodeMatrix",
    "IndependentGroups",
    "active_codes",
    "adjusted",
    "adjusted_rand_index",
    "beta_vae_score",
    "capacity_explicitness",
    "compositional_contrast",
    "correct_localization",
    "dci",
    "dci_completeness",
    "dci_disentanglement",
    "dci_es",
    "dci_regression",
    "dcimig",
    "difference_features",
    "discretize",
    "downstream_accuracy",
    "explicitness",
    "factor_vae_score",
    "gap",
    "importance_matrix",
    "independent_groups",
    "infomec",
    "information_matrix",
    "irs",
    "jemmig",
    "least_varying",
    "matched_correlations",
    "mcc",
    "mean_best_overlap",
    "mean_iou",
    "med",
    "merge_factors",
    "mig",
    "mig_sup",
    "modularity",
    "modularity_of",
    "neighbour_information",
    "normalised_information",
    "object_recovery",
    "pairwise_information",
    "permuted_baseline",
    "predictability_matrix",
    "probe_explicitness",
    "regression_r2",
    "sap",
    "set_average_precision",
    "slot_identifiability",
    "total_correlation",
    "udr",
    "unfairness",
    "wasserstein_dependence",
]
