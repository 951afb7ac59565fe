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

from unknot.solvers import atoms, geometry, objectives
from unknot.solvers.cone import nonnegative_matching_pursuit
from unknot.solvers.frank_wolfe import frank_wolfe
from unknot.solvers.objectives import Differentiable, LeastSquares, Logistic, Objective, Quadratic, SquaredDistance
from unknot.solvers.pursuit import coordinate_descent, matching_pursuit
from unknot.solvers.result import Result, State, Status, Trace

__all__ = [
    "Differentiable",
    "LeastSquares",
    "Logistic",
    "Objective",
    "Quadratic",
    "Result",
    "SquaredDistance",
    "State",
    "Status",
    "Trace",
    "atoms",
    "coordinate_descent",
    "frank_wolfe",
    "geometry",
    "matching_pursuit",
    "nonnegative_matching_pursuit",
    "objectives",
]
