"""Convex hulls: Frank-Wolfe and its corrective variants (section "Frank-Wolfe")."""

import math
from collections.abc import Callable
from typing import Any

import torch

from unknot.solvers.active import ActiveSet
from unknot.solvers.corrections import HULL, Correction, NormCorrection, full_correction
from unknot.solvers.objectives import Direction
from unknot.solvers.problem import check_gradient, choose, numbered, read_problem
from unknot.solvers.result import Result, Run, State
from unknot.solvers.steps import Step, StepSize

VARIANTS = ("plain", "away", "pairwise", "norm-corrective", "fully-corrective")

REBUILD_EVERY = 500
"""Iterations after which away and pairwise steps compute θ from its weights anew, so that the two never part."""


def frank_wolfe(
    objective: Any,
    atoms: Any,
    x0: Any = None,
    *,
    variant: str = "plain",
    step: Step = "auto",
    smoothness: float | None = None,
    max_iterations: int = 1000,
    tol: float = 1e-6,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
    track: bool = True,
) -> Result:
    """Minimise a smooth convex f over conv(𝒜) (Algorithms "Frank-Wolfe", "Away-steps", "Pairwise", "Fully-Corrective").

        z_k = lmo_𝒜(∇f(θ_k)),   v_k = argmax_{v ∈ 𝒮} ⟨∇f(θ_k), v⟩

        plain              θ_{k+1} = θ_k + γ (z_k - θ_k),   γ ∈ [0, 1]
        away               the better of z_k - θ_k and θ_k - v_k,   the latter with γ ≤ α_v / (1 - α_v)
        pairwise           θ_{k+1} = θ_k + γ (z_k - v_k),   γ ∈ [0, α_v]
        norm-corrective    θ_{k+1} = argmin_{θ ∈ conv(𝒮 ∪ z_k)} ‖θ - (θ_k - ∇f(θ_k) / L)‖²
        fully-corrective   θ_{k+1} = argmin_{θ ∈ conv(𝒮 ∪ z_k)} f(θ)

    The gap ⟨∇f(θ_k), θ_k - z_k⟩ is at least f(θ_k) - f(θ*) at every iteration. Rates: 1/k for all variants, linear over
    polytopes for strongly convex f and all but the plain one. Where the boxes have slips (t for k, s_k for z_k, the
    dropped gap test, the weights "see text") the reading is that of docs/solvers/frank_wolfe.md.

    Args:
        objective: one of :mod:`unknot.solvers.objectives`, a differentiable torch function of x, or an array y for
            ½‖x - y‖².
        atoms: a set of :mod:`unknot.solvers.atoms`, a matrix with one atom in each column, or a function of a
            direction.
        x0: start in conv(𝒜); an atom if left out.
        variant: one of the five above.
        step: "open-loop" or 0: 2/(k+2); "line-search" or 1; "diameter" or 2; "short" or 3; "backtracking"; a constant;
            a function of k. "auto" is exact for quadratics and backtracking otherwise. Corrective variants ignore it.
        smoothness: L, if it should not be the objective's own.
        max_iterations: updates at most.
        tol: stop once the gap is at most this.
        time_limit: seconds.
        callback: gets a :class:`State` for every iterate; returning True stops the run.
        progress: show a progress bar.
        track: keep the active set in the plain variant too; without it memory does not grow with iterations.

    Returns:
        A :class:`Result` with the active atoms and their convex weights.

    >>> import numpy as np
    >>> from unknot.solvers import frank_wolfe
    >>> from unknot.solvers.atoms import Simplex
    >>> result = frank_wolfe(np.array([0.8, 0.6, -1.0]), Simplex(), variant="pairwise", tol=1e-10)
    >>> result.x.round(6), result.status.value
    (array([0.6, 0.4, 0. ]), 'converged')
    """
    variant = choose(variant, VARIANTS, "variant")
    problem = read_problem(objective, atoms, x0, smoothness)
    f, atom_set, zero = problem.objective, problem.atoms, problem.zero
    rule = StepSize(step, f, smoothness, default=StepSize.best_for(f), diameter=lambda: atom_set.diameter)
    if rule.name == "affine":
        raise ValueError("step 'affine' is for spans: expected a step for hulls, such as 'line-search'.")
    if variant in ("away", "pairwise") and rule.schedule is not None:
        raise ValueError(
            f"variant {variant!r} needs a step that looks at f: expected 'line-search', 'short', 'diameter' or "
            "'backtracking', as a fixed schedule belongs to the plain variant."
        )
    correction: Correction | None = None
    if variant == "norm-corrective":
        correction = NormCorrection(f, zero, smoothness, HULL)
    elif variant == "fully-corrective":
        correction = full_correction(f, HULL, tol)

    start = atom_set.decompose(problem.x0) if problem.x0 is not None else [(1.0, atom_set.atom(torch.ones_like(zero)))]
    track = track or variant != "plain"
    active = ActiveSet(zero, start)
    point = f.at(active.combine() if problem.x0 is None else problem.x0)
    lower_bound = -math.inf
    run = Run(max_iterations, tol, time_limit, callback, progress, problem.numpy, "frank_wolfe")

    while True:
        gradient, value = point.gradient(), point.value()
        check_gradient(gradient, run.iteration)
        z = atom_set.atom(gradient, point.x)
        gap = atom_set.bound(gradient, point.x, z)
        if math.isinf(gap):  # a cached answer: fall back on the best certificate so far
            gap = value - lower_bound
        else:
            lower_bound = max(lower_bound, value - gap)
        if gap <= tol and point.refresh():
            continue  # a certificate must not rest on accumulated rounding
        if run.finished(point.x, value, max(gap, 0.0)):
            break

        if correction is not None:
            active.add(z, 0.0)
            active.set_weights(correction.solve(active, point))
            point.jump(active.combine())
            continue

        direction, largest, dropped = Direction(-1.0, ((1.0, z),)), 1.0, None
        if variant == "pairwise":
            v, weight = active.worst(gradient)
            direction, largest, dropped = Direction(0.0, ((1.0, z), (-1.0, v))), weight, v
        elif variant == "away":
            v, weight = active.worst(gradient)
            away = Direction(1.0, ((-1.0, v),))
            # An atom with all the weight has θ - v = 0: there is no away step.
            if weight < 1.0 and away.inner(gradient, point.x) < direction.inner(gradient, point.x):
                direction, largest, dropped = away, weight / (1.0 - weight), v
        line = point.along(direction)
        gamma = rule(run.iteration - 1, line, largest)
        point.move(line, gamma)
        if track:
            active.move(direction, gamma, dropped if gamma >= largest else None)
        if variant != "plain" and run.iteration % REBUILD_EVERY == 0:
            active.normalise()
            point.jump(active.combine())

    fields = active.export(problem.numpy, numbered(atom_set, zero)) if track else {}
    used = correction.smoothness if isinstance(correction, NormCorrection) else rule.smoothness
    return run.result(point.x, **fields, smoothness=used)
