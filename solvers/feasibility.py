"""Whether constraints can be met at all: a certificate that they cannot, where a run comes no closer to them."""

import warnings

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import dot
from unknot.solvers.atoms import AtomSet
from unknot.solvers.result import Run, Status
from unknot.solvers.stochastic import DenseIterate
from unknot.solvers.terms import Term

TREND = -0.05
"""A distance from the constraints that falls more slowly than k to this power does not fall."""

NEAR = 1e-3
"""Share of the largest distance of a run below which it is no news that the distance does not fall any further."""

MARGIN = 1e-6
"""Share of h(θ) by which its lower bound must be above 0, and the relative distance that rounding may hide."""


def feasible_or_warn(run: Run, atom_set: AtomSet, x: Tensor, terms: list[Term], norms: list[float]) -> Status:
    """Warn if feasibility does not improve; "infeasible" if no point of the hull meets the constraints for certain.

    The certificate is that of Frank-Wolfe on h(θ) = Σ ‖A_i‖⁻² dist²(A_i θ, 𝒦_i) / 2, from where the run ended:
    h(θ) - ⟨∇h(θ), θ⟩ + min_z ⟨∇h(θ), z⟩ ≤ min h, so if it is positive, no point has h = 0.
    """
    distances = np.array(run.feasibilities)
    k = np.arange(1, len(distances) + 1)
    known = np.isfinite(distances) & (k >= len(k) / 4)
    if len(distances) < 100 or known.sum() < 10 or not distances[known].min() > 1e-6 * max(1.0, np.nanmax(distances)):
        return run.status
    trend = float(np.polyfit(np.log(k[known]), np.log(distances[known]), 1)[0])
    if trend < TREND:
        return run.status
    said = (
        f"the distance from the constraints is {distances[-1]:.4g} after {len(distances) - 1} iterations and does not "
        f"fall (like k^{trend:.2f}; expected k^-0.4 or faster)"
    )
    if certainly_infeasible(run, atom_set, x, terms, norms):
        warnings.warn(
            f"{said}: the constraints are infeasible, no point of {atom_set} meets {', '.join(map(str, terms))}. "
            "Enlarge the set or loosen the constraints.",
            UserWarning,
            stacklevel=4,
        )
        return Status.INFEASIBLE
    if distances[-1] > NEAR * np.nanmax(distances):
        warnings.warn(
            f"{said}: the constraints may be infeasible, or beta0 is too large; try a tenth of it.",
            UserWarning,
            stacklevel=4,
        )
    return run.status


def certainly_infeasible(run: Run, atom_set: AtomSet, x: Tensor, terms: list[Term], norms: list[float]) -> bool:
    """Up to 200 steps of Frank-Wolfe on h, as long as there is time, until its minimum is certainly above 0."""
    pairs = [(term, norm) for term, norm in zip(terms, norms, strict=True) if term.indicator]
    theta = DenseIterate(x.clone())
    for step in range(200):
        if step and run.expired():
            break
        gradient, value, size = torch.zeros_like(x), 0.0, 0.0
        for term, norm in pairs:
            residual = term.residual(theta.x, 1.0)
            gradient += term.adjoint(residual, x) * norm**-2
            value += dot(residual, residual) / (2 * norm**2)
            image = term.apply(theta.x)
            size += dot(image, image) / (2 * norm**2)
        answer = atom_set.ask(gradient, theta.x, exact=True)
        lowest = value - dot(gradient, theta.x) + answer.lower
        if lowest > MARGIN * value and lowest > MARGIN**2 * size:
            return True
        theta.step(answer.atom, 2 / (step + 3))
    return False
