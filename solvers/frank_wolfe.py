"""Convex hulls: Frank-Wolfe and its corrective variants (section "Frank-Wolfe"), and its form for sums over rows."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from unknot.solvers import dense
from unknot.solvers.corrections import HULL, Correction, NormCorrection, full_correction
from unknot.solvers.lines import Direction, Point, Step, StepSize
from unknot.solvers.result import HullCertificate, Limits, Problem, Result, Run, check_gradient, read_problem
from unknot.solvers.structured import ActiveSet, Atom, choose, dot

CLASSICAL = ("plain", "away", "pairwise", "norm-corrective", "fully-corrective")
NEWER = ("blended-pairwise", "blended-corrective", "block-coordinate")
VARIANTS = (*CLASSICAL, *NEWER)

REBUILD_EVERY = 500
"""Iterations after which away and pairwise steps recompute θ from its weights, which limits rounding errors."""


@dataclass
class Descent:
    """State of every loop over a hull: the problem, the rule of the step, the iterate, its atoms, the watch."""

    problem: Problem
    rule: StepSize
    run: Run
    point: Point
    active: ActiveSet
    certificate: HullCertificate

    def look(self) -> tuple[Tensor, float, Atom, float]:
        """∇f(θ_k), f(θ_k), z_k = lmo(∇f(θ_k)) and the gap.

        An oracle that did not certify its answer is asked again, exactly, before its gap ends the run; and a
        certificate must not rest on accumulated rounding.
        """
        atoms, point, run = self.problem.atoms, self.point, self.run
        while True:
            gradient, value = point.gradient(), point.value()
            check_gradient(gradient, run.iteration)
            answer = atoms.ask(gradient, point.x, exact=run.still > 0)
            tol = run.tolerance(value)
            if answer.lower == -float("inf"):
                promised = dot(gradient, point.x) - answer.atom.inner(gradient)
                if promised <= tol or run.iteration >= run.max_iterations:
                    answer = atoms.ask(gradient, point.x, exact=True)
            gap = self.certificate(point, gradient, value, answer.lower)
            if gap > tol or not point.refresh():
                return gradient, value, answer.atom, gap

    def step(self, direction: Direction, largest: float, dropped: Atom | None = None, track: bool = True) -> bool:
        """θ ← θ + γ d with γ ∈ [0, largest]; False if nothing moved."""
        line = self.point.along(direction)
        gamma = self.rule(self.run.iteration - 1, line, largest)
        if gamma == 0:
            return False
        self.point.move(line, gamma)
        if track:
            self.active.move(direction, gamma, dropped if gamma >= largest else None)
        return True

    def rebuild(self) -> None:
        """Recompute θ from its weights, now and then."""
        if self.run.iteration % REBUILD_EVERY == 0:
            self.active.normalise()
            self.point.jump(self.active.combine())

    def result(self, **more: Any) -> Result:
        """Return the result with its active atoms."""
        fields = self.active.export(self.problem.numpy, self.problem.atoms.count(self.problem.zero))
        return self.run.result(self.point.x, **{**fields, "smoothness": self.rule.smoothness, **more})


def frank_wolfe(
    objective: Any,
    atoms: Any,
    x0: Any = None,
    *,
    variant: str = "plain",
    step: Step = "auto",
    smoothness: float | None = None,
    track: bool = True,
    seed: int = 0,
    **limits: Unpack[Limits],
) -> Result:
    """Minimise a smooth convex f over conv(𝒜) (Algorithms "Frank-Wolfe", "Away-steps", "Pairwise", "Fully-Corrective").

    Thesis: Algorithms "Frank-Wolfe", "Away-steps", "Pairwise", "Fully-Corrective", section "Frank-Wolfe".

        z_k = lmo_𝒜(∇f(θ_k)),   v_k = argmax_{v ∈ 𝒮} ⟨∇f(θ_k), v⟩

        plain              θ_{k+1} = θ_k + γ (z_k - θ_k),   γ ∈ [0, 1]
        away               the better of z_k - θ_k and θ_k - v_k,   the latter with γ ≤ α_v / (1 - α_v)
        pairwise           θ_{k+1} = θ_k + γ (z_k - v_k),   γ ∈ [0, α_v]
        norm-corrective    θ_{k+1} = argmin_{θ ∈ conv(𝒮 ∪ z_k)} ‖θ - (θ_k - ∇f(θ_k) / L)‖²
        fully-corrective   θ_{k+1} = argmin_{θ ∈ conv(𝒮 ∪ z_k)} f(θ)

    and "blended-pairwise", "blended-corrective" and "block-coordinate" of :mod:`unknot.solvers.variants`.

    The gap ⟨∇f(θ_k), θ_k - z_k⟩, with the oracle's lower bound in the place of ⟨∇f(θ_k), z_k⟩, is at least
    f(θ_k) - f(θ*) at every iteration. Rates: 1/k for all variants, linear over polytopes for strongly convex f and all
    but the plain one. Where the boxes have slips (t for k, s_k for z_k, the dropped gap test, the weights "see text")
    the reading is that of docs/solvers/frank_wolfe.md.

    Args:
        objective: one of :mod:`unknot.solvers.objectives`, a differentiable torch function of x, or an array y for
            ½‖x - y‖².
        atoms: a set of :mod:`unknot.solvers.atoms`, a matrix with one atom in each column, or a function of a
            direction.
        x0: start in conv(𝒜), or an earlier :class:`Result`, whose atoms and weights are taken over; an atom if left
            out.
        variant: one of the above.
        step: "open-loop" or 0: 2/(k+2); "line-search" or 1; "diameter" or 2; "short" or 3; "backtracking"; a
            constant; a function of k. "auto" is exact for quadratics and backtracking otherwise. Corrective variants
            ignore it.
        smoothness: L, if it should not be the objective's own.
        track: keep the active set in the plain variant too; without it memory does not grow with iterations.
        seed: of the order of blocks in "block-coordinate".
        limits: ``max_iterations=1000``, updates at most; ``tol=1e-6`` and ``rtol=0``: stop once the gap is at most tol,
            or rtol |f(x)|; ``time_limit=None`` in seconds; ``callback=None``: gets a :class:`State` for every iterate,
            returning True stops the run; ``progress=False``: show a progress bar.

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
    if variant not in ("plain", "norm-corrective", "fully-corrective") and not rule.looks:
        raise ValueError(
            f"variant {variant!r} needs a step that looks at f: expected 'line-search', 'short', 'diameter' or "
            "'backtracking', as a fixed schedule belongs to the plain variant."
        )
    start = problem.warm
    if start is None:
        start = [(1.0, atom_set.atom(torch.ones_like(zero)))] if problem.x0 is None else atom_set.decompose(problem.x0)
    run = Run.of("frank_wolfe", problem.numpy, limits, tol=1e-6)
    if variant in ("plain", "away", "pairwise") and dense.applies(problem):
        return dense.solve(problem, variant, rule, run, start, track)
    active = ActiveSet(zero, start)
    point = f.at(active.combine() if problem.x0 is None else problem.x0)
    descent = Descent(problem, rule, run, point, active, HullCertificate(problem))
    if variant in NEWER:
        from unknot.solvers import variants

        if variant == "block-coordinate":
            return variants.block_coordinate(descent, seed)
        return variants.blended(descent, corrective=variant == "blended-corrective")
    correction: Correction | None = None
    if variant == "norm-corrective":
        correction = NormCorrection(f, zero, smoothness, HULL)
    elif variant == "fully-corrective":
        correction = full_correction(f, HULL, run.tol)
    track = track or variant != "plain"

    while True:
        gradient, value, z, gap = descent.look()
        if run.finished(point.x, value, gap):
            break
        if correction is not None:
            moved = correction.apply(active, point, z, run.expired)
        else:
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
            moved = descent.step(direction, largest, dropped, track)
            if variant != "plain":
                descent.rebuild()
        if run.stalled(moved):
            break

    if not track:
        return run.result(point.x, smoothness=rule.smoothness)
    used = correction.smoothness if isinstance(correction, NormCorrection) else rule.smoothness
    return descent.result(smoothness=used)


def variance_reduced_frank_wolfe(
    objective: Any,
    atoms: Any,
    x0: Any = None,
    *,
    batch_size: int | None = None,
    seed: int = 0,
    **limits: Unpack[Limits],
) -> Result:
    """Minimise Σ_i φ_i(⟨a_i, θ⟩) over conv(𝒜), looking at a few rows in each iteration (Négiar et al., 2020).

        draw a batch B;   α_i ← φ_i'(⟨a_i, θ_k⟩) for i ∈ B;   r ← Σ_i α_i a_i, from what changed
        z_k = lmo_𝒜(r),   θ_{k+1} = θ_k + 2/(k+2) (z_k - θ_k)

    Once in every pass over the rows the full gradient is computed, which gives the certificate and renews r; in between
    the gap rests on the best lower bound so far.

    Args:
        objective: :class:`LeastSquares` or :class:`Logistic`.
        batch_size: rows in each iteration; a hundredth of them if left out.
        seed: of the batches.
        limits: as for :func:`frank_wolfe`, with ``max_iterations=10_000``.

    Other arguments and the result are those of :func:`frank_wolfe`.

    >>> import numpy as np
    >>> from unknot.solvers import LeastSquares, atoms
    >>> rng = np.random.default_rng(0)
    >>> f = LeastSquares(rng.standard_normal((300, 10)), rng.standard_normal(300), reduction="mean")
    >>> variance_reduced_frank_wolfe(f, atoms.L1Ball(0.1), tol=1e-3).converged
    True
    """
    problem = read_problem(objective, atoms, x0, None)
    f, atom_set, zero = problem.objective, problem.atoms, problem.zero
    derivatives = getattr(f, "row_derivatives", None)
    if derivatives is None:
        raise ValueError(
            f"objective is a {type(f).__name__}: expected a sum over rows, LeastSquares or Logistic; "
            "use stochastic_frank_wolfe for other stochastic gradients."
        )
    rows = f.map.rows  # type: ignore[attr-defined]
    size = max(1, rows // 100) if batch_size is None else batch_size
    if not 1 <= size <= rows:
        raise ValueError(f"batch_size is {size}: expected from 1 to the {rows} rows.")
    start = problem.warm
    if start is None:
        start = [(1.0, atom_set.atom(torch.ones_like(zero)))] if problem.x0 is None else atom_set.decompose(problem.x0)
    point = f.at(ActiveSet(zero, start).combine())
    certificate = HullCertificate(problem)
    run = Run.of("variance_reduced_frank_wolfe", problem.numpy, limits, tol=1e-6, max_iterations=10_000)
    random = np.random.default_rng(seed)
    every = max(1, math.ceil(rows / size))
    alphas = total = zero  # φ_i'(⟨a_i, θ⟩) as last seen, and Σ_i α_i a_i
    ridge = getattr(f, "ridge", 0.0)

    while True:
        if run.iteration % every == 0 or run.iteration >= run.max_iterations or run.expired():
            point.jump(point.x)
            gradient, value = point.gradient(), point.value()
            check_gradient(gradient, run.iteration)
            alphas = derivatives(f.map.apply(point.x))  # type: ignore[attr-defined]
            total = gradient - ridge * point.x
            lower = atom_set.ask(gradient, point.x, exact=True).lower
            gap = certificate(point, gradient, value, lower)
        else:
            batch = torch.from_numpy(random.choice(rows, size, replace=False)).to(f.device)
            block = f.map.take(batch)  # type: ignore[attr-defined]
            fresh = derivatives(block @ point.x, batch)
            total = total + block.t() @ (fresh - alphas[batch])
            gradient = total + ridge * point.x
            alphas[batch] = fresh
            value = gap = math.nan
        if run.finished(point.x, value, gap, evaluated=not math.isnan(value)):
            break
        z = atom_set.atom(gradient, point.x)
        Direction(-1.0, ((1.0, z),)).move(point.x, 2.0 / (run.iteration - 1 + 2.0))
    if math.isnan(value):  # stopped by a callback between two full gradients
        run.values[-1] = f.at(point.x.clone()).value()
        run.gaps[-1] = max(0.0, run.values[-1] - certificate.lower)
    return run.result(point.x)
