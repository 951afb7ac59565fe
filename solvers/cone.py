"""Convex cones: non-negative matching pursuit and its corrective variants (chapter "Convex Cones")."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers.active import ActiveSet
from unknot.solvers.atoms import Dictionary, PSDTrace, Simplex
from unknot.solvers.corrections import CONE, Correction, NormCorrection, full_correction
from unknot.solvers.objectives import Direction, Objective, SquaredDistance, along
from unknot.solvers.problem import Problem, check_gradient, choose, numbered, read_problem
from unknot.solvers.result import Result, Run, State, Status
from unknot.solvers.steps import Step, StepSize
from unknot.solvers.structured import Atom, Decomposition

VARIANTS = ("plain", "away", "pairwise", "norm-corrective", "fully-corrective", "fnnomp")
_ALIASES = {
    "nnmp": "plain",
    "annmp": "away",
    "pwnnmp": "pairwise",
    "fcnnmp": "fully-corrective",
    "fully-corrective-0": "norm-corrective",
    "fully-corrective-1": "fully-corrective",
    "fc0": "norm-corrective",
    "fc1": "fully-corrective",
}

REBUILD_EVERY = 500
"""Iterations after which θ is computed from its weights anew, so that the two never part."""


def nonnegative_matching_pursuit(
    objective: Any,
    atoms: Any,
    x0: Any = None,
    *,
    variant: str = "fully-corrective",
    step: Step = "auto",
    smoothness: float | None = None,
    radius: float | None = None,
    max_iterations: int = 1000,
    tol: float = 1e-8,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Minimise a smooth convex f over cone(𝒜) (Algorithms "Non-Negative MP", "ANNMP and PWNNMP", "FCNNMP").

        z_k = lmo_{𝒜 ∪ 0}(∇f(θ_k)),   v_k = argmax_{v ∈ 𝒮 ∪ 0} ⟨∇f(θ_k), v⟩,   γ = -⟨∇f(θ_k), d⟩ / (L ‖d‖²)

        plain              d is the better of z_k and -θ_k/‖θ_k‖_𝒜
        away               d is the better of z_k and -v_k, the latter with γ ≤ α_v
        pairwise           d = z_k - v_k with γ ≤ α_v
        norm-corrective    (FCNNMP Variant 0)  θ_{k+1} = argmin_{θ ∈ cone(𝒮 ∪ z_k)} ‖θ - (θ_k - ∇f(θ_k)/L)‖²
        fully-corrective   (FCNNMP Variant 1)  θ_{k+1} = argmin_{θ ∈ cone(𝒮 ∪ z_k)} f(θ)
        fnnomp             the baseline of Yaghoobi et al. for ½‖θ - y‖² and a dictionary; it stops short of the optimum

    The origin is always an atom, with unlimited weight: with v_k = 0 a pairwise step is a plain one without a limit,
    with z_k = 0 it takes weight away from v_k. ‖θ_k‖_𝒜, which only decides which direction wins, is bounded by the sum
    of the weights; the step along -θ is clipped at the origin. Rates: 1/k for the plain variant; linear for strongly
    convex f and the corrective ones. How the boxes' slips are read is in docs/solvers/cones.md.

    Args:
        objective: one of :mod:`unknot.solvers.objectives`, a differentiable torch function of x, or an array y for
            ½‖x - y‖².
        atoms: a set of :mod:`unknot.solvers.atoms`, a matrix with one atom in each column, or a function of a
            direction.
        x0: start in cone(𝒜); 0 if left out, as in the thesis.
        variant: one of the six above.
        step: "short" (the formula above), "line-search" or "backtracking"; "auto" is "short" where L is known.
        smoothness: L, if it should not be the objective's own.
        radius: a bound on ‖θ*‖_𝒜, if one is known: it makes a certificate where f is not strongly convex.
        max_iterations: updates at most.
        tol: stop once the gap is at most this; without any certificate, once no direction descends faster than this.
        time_limit: seconds.
        callback: gets a :class:`State` for every iterate; returning True stops the run.
        progress: show a progress bar.

    Returns:
        A :class:`Result` with the active atoms and their non-negative weights. Its gap is a certificate for strongly
        convex f over a pointed cone of known atoms, or with ``radius``; else inf.

    >>> import numpy as np
    >>> from unknot.solvers import nonnegative_matching_pursuit
    >>> cone = np.array([[1.0, 0.6], [0.0, 0.8]])
    >>> result = nonnegative_matching_pursuit(np.array([2.0, -1.0]), cone)
    >>> result.x, result.coefficients, result.converged
    (array([2., 0.]), array([2., 0.]), True)
    """
    key = str(variant).replace("_", "-").replace(" ", "-").lower()
    variant = choose(_ALIASES.get(key, variant), VARIANTS, "variant")
    problem = read_problem(objective, atoms, x0, smoothness)
    f, atom_set, zero = problem.objective, problem.atoms, problem.zero
    run = Run(max_iterations, tol, time_limit, callback, progress, problem.numpy, "nonnegative_matching_pursuit")
    certificate = ConeCertificate(problem, radius)
    if variant == "fnnomp":
        return _fnnomp(problem, certificate, run)
    rule = _step_size(f, step, smoothness, variant)
    correction: Correction | None = None
    if variant == "norm-corrective":
        correction = NormCorrection(f, zero, smoothness, CONE)
    elif variant == "fully-corrective":
        correction = full_correction(f, CONE, tol)
    active = ActiveSet(zero, _start(problem))
    point = f.at(active.combine())

    while True:
        gradient, value = point.gradient(), point.value()
        check_gradient(gradient, run.iteration)
        z = atom_set.atom(gradient)
        descent = -z.inner(gradient)
        shrink = float(torch.dot(gradient.reshape(-1), point.x.reshape(-1)))
        size = float(active.weights.sum())
        gap = certificate(gradient, z, point.x, shrink)
        steepest = max(atom_set.bound(gradient, None, z), shrink / size if size > 0 else 0.0)
        stationary = math.isinf(gap) and steepest <= tol
        if (gap <= tol or stationary) and point.refresh():
            continue  # a certificate must not rest on accumulated rounding
        if run.finished(point.x, value, max(gap, 0.0), stationary):
            break

        if correction is not None:
            if descent > 0:
                active.add(z, 0.0)
            if len(active):
                active.set_weights(correction.solve(active, point))
            point.jump(active.combine())
            continue

        direction, largest, dropped = along(z), math.inf, None
        if variant == "plain":
            if size > 0 and shrink / size > descent:
                direction, largest = Direction(-1.0, ()), 1.0
        elif len(active):
            v, weight = active.worst(gradient)
            ascent = v.inner(gradient)
            if ascent <= 0:  # the origin is the worst active atom: v = 0
                pass
            elif descent <= 0 or (variant == "away" and ascent > descent):  # z = 0, or v gains more
                direction, largest, dropped = along(v, -1.0), weight, v
            elif variant == "pairwise":
                direction, largest, dropped = Direction(0.0, ((1.0, z), (-1.0, v))), weight, v
        line = point.along(direction)
        gamma = rule(run.iteration - 1, line, largest)
        point.move(line, gamma)
        active.move(direction, gamma, dropped if gamma >= largest else None)
        if run.iteration % REBUILD_EVERY == 0:
            point.jump(active.combine())

    used = correction.smoothness if isinstance(correction, NormCorrection) else rule.smoothness
    return run.result(point.x, **active.export(problem.numpy, numbered(atom_set, zero)), smoothness=used)


def _step_size(f: Objective, step: Step, smoothness: float | None, variant: str) -> StepSize:
    """The rule of the step; corrective variants take none, and need not have L computed."""
    corrective = variant.endswith("corrective")
    known = corrective or smoothness is not None or f.smoothness is not None
    if corrective and step == "auto":
        step = "line-search"
    rule = StepSize(step, f, smoothness, default="short" if known else "backtracking")
    if rule.schedule is not None or rule.name in ("diameter", "affine"):
        raise ValueError(f"step {step!r} is not for cones: expected 'short', 'line-search' or 'backtracking'.")
    return rule


def _start(problem: Problem) -> Decomposition:
    """Weights and atoms of x0 over the cone."""
    x0, atoms = problem.x0, problem.atoms.base
    if x0 is None or not bool(x0.any()):
        return []
    if isinstance(atoms, Dictionary):
        weights, residual = atoms.conic(x0, total=None)
        if residual > 1e-7 * float(torch.linalg.vector_norm(x0)):
            raise ValueError(f"x0 is outside the cone of the atoms, {residual:.3g} away: expected 0 or a point inside.")
        count = atoms.count
        return [
            (float(weights[i]), atoms.column(int(i % count), 1.0 if i < count else -1.0))
            for i in np.flatnonzero(weights)
        ]
    if isinstance(atoms, Simplex | PSDTrace):
        scale = float(x0.sum() if isinstance(atoms, Simplex) else x0.trace()) / float(atoms.radius or 1.0)
    else:
        scale = float(torch.linalg.vector_norm(x0)) / (atoms.radius or 1.0)
    try:
        return [(scale * weight, atom) for weight, atom in atoms.decompose(x0 / scale)]
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(
            f"x0 is outside the cone of {atoms} or cannot be written in its atoms: leave it out."
        ) from error


class ConeCertificate:
    """Upper bounds on f(θ) - f(θ*) over cone(𝒜).

    With ε = max(0, -min_z ⟨∇f, z⟩), convexity gives f(θ) - f(θ*) ≤ ⟨∇f, θ⟩ + ε ‖θ*‖_𝒜 - (μ/2) ‖θ - θ*‖². A ``radius``
    bounds ‖θ*‖_𝒜 directly. Otherwise ‖θ*‖_𝒜 ≤ ‖θ*‖ / w for the distance w of the origin from the hull of the atoms
    (positive for pointed cones), and ‖θ*‖ ≤ ‖θ‖ + ‖θ - θ*‖, whose worst case is

        ⟨∇f, θ⟩ + (ε/w) ‖θ‖ + (ε/w)² / (2μ).

    A symmetric set has a cone that is its span, with the certificate ‖∇f‖² / (2μ).
    """

    def __init__(self, problem: Problem, radius: float | None) -> None:
        if radius is not None and not radius >= 0:
            raise ValueError(f"radius is {radius}: expected a bound on the atomic norm of the optimum, 0 or more.")
        self._atoms, self._radius = problem.atoms, radius
        self._mu = problem.objective.strong_convexity
        base = problem.atoms.base
        if isinstance(base, Simplex):
            self._margin = base.radius / math.sqrt(problem.zero.numel())
        elif isinstance(base, PSDTrace):
            self._margin = base.trace / math.sqrt(len(problem.zero))
        else:
            self._margin = base.margin if self._mu > 0 and radius is None else 0.0

    def __call__(self, gradient: Tensor, z: Atom, x: Tensor, shrink: float) -> float:
        """The gap at x; ``shrink`` is ⟨∇f, x⟩."""
        violation = max(0.0, self._atoms.bound(gradient, None, z))
        if violation == 0:
            return shrink
        gap, known = math.inf, math.isfinite(violation)
        if self._radius is not None and known:
            gap = shrink + violation * self._radius
        if self._mu > 0 and self._margin > 0 and known:
            steep = violation / self._margin
            gap = min(gap, shrink + steep * float(torch.linalg.vector_norm(x)) + steep**2 / (2 * self._mu))
        if self._mu > 0:
            gap = min(gap, float(self._atoms.span_part(gradient.reshape(-1)).square().sum()) / (2 * self._mu))
        return gap


def _fnnomp(problem: Problem, certificate: ConeCertificate, run: Run) -> Result:
    """Fast Non-Negative OMP (Yaghoobi, Wu and Davies, 2015): positivity is enforced while the atom is chosen.

    A new atom's part q orthogonal to the chosen ones takes the coefficient ⟨q, r⟩, or as much of it as keeps all
    coefficients non-negative; the candidate that keeps most wins. Atoms never leave, so it terminates without having to
    reach the optimum.
    """
    f, atoms = problem.objective, problem.atoms
    if (
        not isinstance(f, SquaredDistance)
        or f.mask is not None
        or not isinstance(atoms, Dictionary)
        or problem.x0 is not None
    ):
        raise ValueError(
            "variant 'fnnomp' projects a target on the cone of a dictionary from 0: use 'fully-corrective'."
        )
    rows = atoms.dense_rows().cpu().double().numpy()
    residual = f.target.cpu().double().numpy().copy()
    basis, inverse = np.zeros((0, len(residual))), np.zeros((0, 0))
    chosen: list[int] = []
    weights = np.zeros(0)
    while True:
        x = (f.target.cpu().double() - torch.from_numpy(residual)).to(problem.zero)
        gradient = torch.from_numpy(-residual).to(problem.zero)
        z, shrink = atoms.atom(gradient), float(torch.dot(gradient, x))
        gap = max(0.0, certificate(gradient, z, x, shrink))
        scores = rows @ residual
        scores[chosen] = -math.inf
        best = None if len(chosen) == len(rows) else _fnnomp_candidate(rows, scores, residual, basis, inverse, weights)
        if run.finished(x, float(residual @ residual) / 2, gap):
            break
        if best is None:
            run.status = Status.STALLED
            break
        index, amount, part, norm, shift = best
        basis = np.vstack([basis, part / norm])
        grown = np.zeros((len(chosen) + 1, len(chosen) + 1))
        grown[:-1, :-1], grown[:-1, -1], grown[-1, -1] = inverse, -shift / norm, 1.0 / norm
        inverse = grown
        weights = np.append(weights - amount / norm * shift, amount / norm)
        weights[weights < 1e-15 * weights.max()] = 0.0
        chosen.append(index)
        residual = residual - amount * part / norm
    active = ActiveSet(
        problem.zero, [(float(w), atoms.column(i)) for i, w in zip(chosen, weights, strict=True) if w > 0]
    )
    return run.result(x, **active.export(problem.numpy, atoms.count))


def _fnnomp_candidate(
    rows: np.ndarray,
    scores: np.ndarray,
    residual: np.ndarray,
    basis: np.ndarray,
    inverse: np.ndarray,
    weights: np.ndarray,
) -> tuple[int, float, np.ndarray, float, np.ndarray] | None:
    """The atom of the largest admissible coefficient: index, coefficient, orthogonal part, its norm, shift of weights.

    Candidates come by decreasing correlation; the search ends with the first that keeps its whole coefficient.
    """
    best: tuple[int, float, np.ndarray, float, np.ndarray] | None = None
    for index in np.argsort(-scores):
        if scores[index] <= 1e-13:
            break
        inner = basis @ rows[index]
        part = rows[index] - basis.T @ inner
        norm = float(np.linalg.norm(part))
        if norm <= 1e-12 * float(np.linalg.norm(rows[index])):
            continue
        shift = inverse @ inner
        amount = float(part @ residual) / norm
        falling = shift > 0
        limit = float((weights[falling] / shift[falling]).min()) * norm if falling.any() else math.inf
        admissible = min(amount, limit)
        if admissible > (best[1] if best is not None else 0.0):
            best = (int(index), admissible, part, norm, shift)
        if amount <= limit:
            break
    return best
