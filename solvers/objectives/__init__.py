"""Smooth objectives, and points that move over them cheaply."""

from typing import Any

from unknot.solvers._arrays import is_array
from unknot.solvers.lines import ConvexLine, Direction, Line, Point, QuadraticLine, along
from unknot.solvers.maps import LinearMap
from unknot.solvers.objectives.base import CACHE_BYTES, REFRESH_EVERY, Objective, QuadraticObjective
from unknot.solvers.objectives.quadratic import LeastSquares, Quadratic, SquaredDistance
from unknot.solvers.objectives.smooth import Differentiable, Logistic

__all__ = [
    "CACHE_BYTES",
    "REFRESH_EVERY",
    "ConvexLine",
    "Differentiable",
    "Direction",
    "LeastSquares",
    "Line",
    "LinearMap",
    "Logistic",
    "Objective",
    "Point",
    "Quadratic",
    "QuadraticLine",
    "QuadraticObjective",
    "SquaredDistance",
    "along",
    "as_objective",
]


def as_objective(objective: Any) -> Objective:
    """An objective; a function is differentiated by autograd, an array y is read as ½‖θ - y‖²."""
    if isinstance(objective, Objective):
        return objective
    if is_array(objective):
        return SquaredDistance(objective)
    if callable(objective):
        return Differentiable(objective)
    raise ValueError(
        f"objective is a {type(objective).__name__}: expected one of unknot.solvers.objectives, a differentiable torch "
        "function of x, or an array y for ½‖x - y‖²."
    )
