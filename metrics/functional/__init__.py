"""Pure functions: codes ``[N, D]`` and integer factors ``[N, F]`` in, numbers out."""

from unknot.metrics.functional.aggregation import (
    AGGREGATIONS,
    dci_completeness,
    dci_disentanglement,
    gap,
    modularity_of,
)
from unknot.metrics.functional.dci import dci
from unknot.metrics.functional.dependence import pairwise_information, total_correlation, wasserstein_dependence
from unknot.metrics.functional.downstream import downstream_accuracy
from unknot.metrics.functional.fairness import adjusted, unfairness
from unknot.metrics.functional.groups import IndependentGroups, independent_groups, merge_factors
from unknot.metrics.functional.interventional import (
    beta_vae_score,
    difference_features,
    factor_vae_score,
    least_varying,
)
from unknot.metrics.functional.irs import irs
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
from unknot.metrics.functional.udr import udr

__all__ = [
    "AGGREGATIONS",
    "FactorCodeMatrix",
    "IndependentGroups",
    "adjusted",
    "adjusted_rand_index",
    "beta_vae_score",
    "dci",
    "dci_completeness",
    "dci_disentanglement",
    "difference_features",
    "downstream_accuracy",
    "explicitness",
    "factor_vae_score",
    "gap",
    "importance_matrix",
    "independent_groups",
    "information_matrix",
    "irs",
    "least_varying",
    "merge_factors",
    "mig",
    "modularity",
    "modularity_of",
    "pairwise_information",
    "predictability_matrix",
    "sap",
    "set_average_precision",
    "total_correlation",
    "udr",
    "unfairness",
    "wasserstein_dependence",
]
