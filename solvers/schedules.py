"""Schedules of homotopy conditional gradients by name: η_k of the step, β_k of the smoothing, ρ_k of the averaging."""

import math
from collections.abc import Callable
from dataclasses import dataclass

Rule = Callable[[int], float]


@dataclass(frozen=True)
class Schedule:
    """η_k, β_k and ρ_k as functions of k = 1, 2, …

    Attributes:
        step: η_k ∈ [0, 1].
        smoothing: β_k > 0.
        averaging: ρ_k ∈ [0, 1]; 1 where gradients are exact.
        dual: λ_0 of the dual variables of the constraints, None for none.
        mean: p of the mean of the iterates with weights ∝ k^p, which is what a run with constraints then returns; None
            for the last iterate.
    """

    step: Rule
    smoothing: Rule
    averaging: Rule = lambda k: 1.0
    dual: float | None = None
    mean: float | None = None

    def at(self, k: int) -> tuple[float, float, float]:
        """η_k, β_k and ρ_k, checked."""
        eta, beta, rho = self.step(k), self.smoothing(k), self.averaging(k)
        if not (0 <= eta <= 1 and beta > 0 and 0 <= rho <= 1):
            raise ValueError(
                f"the schedules give η = {eta}, β = {beta}, ρ = {rho} at k = {k}: expected η and ρ in [0, 1] and β > 0."
            )
        return eta, beta, rho


def _positive(beta0: float) -> float:
    if not (beta0 > 0 and math.isfinite(beta0)):
        raise ValueError(f"beta0 is {beta0}: expected a positive number.")
    return float(beta0)


def hcgm(beta0: float = 1.0, step: Rule | None = None, smoothing: Rule | None = None) -> Schedule:
    """Homotopy CGM: η_k = 2/(k+1), β_k = β_0/√(k+1).

    >>> hcgm().at(1)[0], hcgm(3.0).at(8)[1]
    (1.0, 1.0)
    """
    size = _positive(beta0)
    return Schedule(step or (lambda k: 2.0 / (k + 1.0)), smoothing or (lambda k: size / math.sqrt(k + 1)))


def cgal(
    beta0: float = 1.0, step: Rule | None = None, smoothing: Rule | None = None, mean: float | None = 3.0
) -> Schedule:
    """The augmented Lagrangian CGAL: η_k and β_k = 1/λ_k of :func:`hcgm`, and dual variables with λ_0 = 1/β_0.

    >>> cgal(0.5).dual
    2.0
    """
    plain = hcgm(beta0, step, smoothing)
    if mean is not None and not (mean >= 0 and math.isfinite(mean)):
        raise ValueError(f"mean is {mean}: expected a power p >= 0 of the weights k^p, or None for the last iterate.")
    return Schedule(plain.step, plain.smoothing, plain.averaging, 1.0 / float(beta0), mean)


def shcgm(
    beta0: float = 1.0, step: Rule | None = None, smoothing: Rule | None = None, averaging: Rule | None = None
) -> Schedule:
    """Stochastic homotopy CGM: η_k = 9/(k+8), β_k = β_0/√(k+8), ρ_k = 4/(k+7)^(2/3).

    >>> shcgm().at(1)[0], shcgm().at(1)[2]
    (1.0, 1.0)
    """
    size = _positive(beta0)
    return Schedule(
        step or (lambda k: 9.0 / (k + 8.0)),
        smoothing or (lambda k: size / math.sqrt(k + 8)),
        averaging or (lambda k: min(1.0, 4.0 / (k + 7.0) ** (2 / 3))),
    )
