"""Optimisation over combinations of atoms: convex hulls, linear spans and cones (thesis Part I).

>>> import numpy as np
>>> from unknot.solvers import LeastSquares, atoms, frank_wolfe
>>> rng = np.random.default_rng(0)
>>> A, w = rng.standard_normal((50, 100)), np.zeros(100)
>>> w[:3] = 1.0
>>> result = frank_wolfe(LeastSquares(A, A @ w), atoms.L1Ball(3.0), variant="pairwise", tol=1e-9)
>>> result.converged, bool(np.allclose(result.x, w, atol=1e-4))
(True, True)
"""

import warnings
from typing import TYPE_CHECKING, Any

from unknot.lazy import lazily
from unknot.solvers import atoms, geometry, objectives, terms
from unknot.solvers.cone import nonnegative_matching_pursuit
from unknot.solvers.frank_wolfe import frank_wolfe, variance_reduced_frank_wolfe
from unknot.solvers.homotopy import (
    Homotopy,
    Sampled,
    SampledEntries,
    Schedule,
    StochasticObjective,
    augmented_lagrangian_cgm,
    homotopy_cgm,
    minimise_over_intersection,
    s3ccm,
    stochastic_frank_wolfe,
    stochastic_homotopy_cgm,
)
from unknot.solvers.objectives import Differentiable, LeastSquares, Logistic, Objective, Quadratic, SquaredDistance
from unknot.solvers.pursuit import coordinate_descent, matching_pursuit
from unknot.solvers.result import Result, State, Status, Trace

if TYPE_CHECKING:
    from unknot.solvers.boosting import boost_variational_inference
    from unknot.solvers.estimators import (
        ConstrainedLogisticRegression,
        MatrixCompletion,
        NonNegativePursuitRegressor,
        OrthogonalPursuitRegressor,
        SDPKMeans,
    )

__all__ = [
    "ConstrainedLogisticRegression",
    "Differentiable",
    "Homotopy",
    "LeastSquares",
    "Logistic",
    "MatrixCompletion",
    "NonNegativePursuitRegressor",
    "Objective",
    "OrthogonalPursuitRegressor",
    "Quadratic",
    "Result",
    "SDPKMeans",
    "Sampled",
    "SampledEntries",
    "Schedule",
    "SquaredDistance",
    "State",
    "Status",
    "StochasticObjective",
    "Trace",
    "atoms",
    "augmented_lagrangian_cgm",
    "boost_variational_inference",
    "coordinate_descent",
    "frank_wolfe",
    "geometry",
    "homotopy_cgm",
    "matching_pursuit",
    "minimise_over_intersection",
    "nonnegative_matching_pursuit",
    "objectives",
    "s3ccm",
    "stochastic_frank_wolfe",
    "stochastic_homotopy_cgm",
    "terms",
    "variance_reduced_frank_wolfe",
]

_LAZY = {
    "ConstrainedLogisticRegression": "estimators",
    "MatrixCompletion": "estimators",
    "NonNegativePursuitRegressor": "estimators",
    "OrthogonalPursuitRegressor": "estimators",
    "SDPKMeans": "estimators",
    "boost_variational_inference": "boosting",
}
"""Names that need scikit-learn or torch.distributions, which take a second to import: loaded when first used."""


_load = lazily(__name__, _LAZY)


def __getattr__(name: str) -> Any:
    if name == "schedules":
        warnings.warn(
            "unknot.solvers.schedules is deprecated: use Schedule.hcgm, Schedule.cgal or Schedule.shcgm.",
            DeprecationWarning,
            stacklevel=2,
        )
        return Schedule
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
