"""Convex cones: non-negative matching pursuit and its corrective variants (chapter "Convex Cones")."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from unknot.solvers import dense
from unknot.solvers.corrections import CONE, Correction, NormCorrection, full_correction
from unknot.solvers.lines import Direction, Step, StepSize, along
from unknot.solvers.objectives import Objective, SquaredDistance
from unknot.solvers.result import ConeCertificate, Limits, Problem, Result, Run, Status, check_gradient, read_problem
from unknot.solvers.structured import ActiveSet, Atom, choose, dot

VARIANTS = ("plain", "affine-invariant", "away", "pairwise", "norm-corrective", "fully-corrective", "fnnomp")
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
"""Iterations after which θ is recomputed from its weights, which stops their rounding errors from growing apart."""


def nonnegative_matching_pursuit(
    objective: Any,
    atoms: Any,
    x0: Any = None,
    *,
    variant: str = "fully-corrective",
    step: Step = "auto",
    smoothness: float | None = None,
    radius: float | None = None,
    **limits: Unpack[Limits],
) -> Result:
    """Minimise a smooth convex f over cone(𝒜) (Algorithms "Non-Negative MP", "ANNMP and PWNNMP", "FCNNMP").

    Thesis: Algorithms "NNMP", "ANNMP and PWNNMP", "FCNNMP", chapter "Convex Cones".

        z_k = lmo_{𝒜 ∪ 0}(∇f(θ_k)),   v_k = argmax_{v ∈ 𝒮 ∪ 0} ⟨∇f(θ_k), v⟩,   γ = -⟨∇f(θ_k), d⟩ / (L ‖d‖²)

        plain              d is the better of z_k and -θ_k/‖θ_k‖_𝒜
        affine-invariant   the same with L_cone(𝒜) in place of L ‖d‖²: the iterates follow any linear map of the space
        away               d is the better of z_k and -v_k, the latter with γ ≤ α_v
        pairwise           d = z_k - v_k with γ ≤ α_v
        norm-corrective    (FCNNMP Variant 0)  θ_{k+1} = argmin_{θ ∈ cone(𝒮 ∪ z_k)} ‖θ - (θ_k - ∇f(θ_k)/L)‖²
        fully-corrective   (FCNNMP Variant 1)  θ_{k+1} = argmin_{θ ∈ cone(𝒮 ∪ z_k)} f(θ)
        fnnomp             the baseline of Yaghoobi et al. for ½‖θ - y‖² and a dictionary; it stops short of the optimum

    The origin is always an atom, with unlimited weight. ‖θ_k‖_𝒜, which only decides which direction wins, is bounded by
    the sum of the weights; the step along -θ is clipped at the origin. Rates: 1/k for the plain variant; linear for
    strongly convex f and the corrective ones. docs/solvers/cones.md says how slips of the boxes are read.

    Args:
        objective, atoms, x0: as for :func:`frank_wolfe`; 0 is the default start, as in the thesis.
        variant: one of the seven above.
        step: "short" (the formula above), "line-search" or "backtracking"; "auto" is "short" where L is known.
        smoothness: L, if it should not be the objective's own; for "affine-invariant" L_cone(𝒜).
        radius: a bound on ‖θ*‖_𝒜, which makes a certificate where f is not strongly convex.
        limits: as for :func:`frank_wolfe`, with ``tol=1e-8``. Without any certificate a run stops once no direction
            descends faster than tol times the steepest so far.

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
    run = Run.of("nonnegative_matching_pursuit", problem.numpy, limits, tol=1e-8)
    certificate = ConeCertificate(problem, radius)
    if variant == "fnnomp":
        return _fnnomp(problem, certificate, run)
    if variant == "fully-corrective" and step == "auto" and smoothness is None and dense.applies_to_signal(problem):
        return dense.nonnegative_pursuit(problem, certificate, run)
    if affine := variant == "affine-invariant":
        # L_cone(𝒜) = max_z ⟨z, ∇²f z⟩ over the atoms: -θ/‖θ‖_𝒜 is in -conv(𝒜), where no curvature is larger.
        if step not in ("auto", "affine"):
            raise ValueError(f"step {step!r} is not for the affine-invariant variant: leave it out.")
        largest_curvature = atom_set.largest_curvature(f) if smoothness is None else smoothness
        rule = StepSize("affine", f, None, default="affine", atomic_smoothness=largest_curvature)
    else:
        rule = _step_size(f, step, smoothness, variant)
    correction: Correction | None = None
    if variant == "norm-corrective":
        correction = NormCorrection(f, zero, smoothness, CONE)
    elif variant == "fully-corrective":
        correction = full_correction(f, CONE, run.tol)
    start = problem.warm or (
        [] if problem.x0 is None or not bool(problem.x0.any()) else atom_set.conic_weights(problem.x0)
    )
    active = ActiveSet(zero, start)
    point = f.at(active.combine())

    while True:
        gradient, value = point.gradient(), point.value()
        check_gradient(gradient, run.iteration)
        answer = atom_set.ask(gradient, exact=run.still > 0)
        shrink, size = dot(gradient, point.x), float(active.weights.sum())
        shrinking = shrink / size if size > 0 else 0.0
        slope = max(-answer.atom.inner(gradient), shrinking)
        flat = run.flat(slope, point.error() * (atom_set.radius or 0.0))
        if answer.lower == -math.inf and slope <= flat:
            answer = atom_set.ask(gradient, exact=True)
        z, descent = answer.atom, -answer.atom.inner(gradient)
        gap = certificate(point, gradient, answer.lower, shrink)
        stationary = math.isinf(gap) and max(-answer.lower, shrinking) <= flat
        if (gap <= run.tolerance(value) or stationary) and point.refresh():
            continue  # a certificate must not rest on accumulated rounding
        if run.finished(point.x, value, gap, stationary):
            break

        if correction is not None:
            moved = correction.apply(active, point, z if descent > 0 else None, run.expired)
            if run.stalled(moved):
                break
            continue

        if variant == "plain" or affine:
            direction, largest, dropped = along(z), math.inf, None
            if size > 0 and shrink / size > descent:
                largest = size if affine else 1.0  # along -θ/‖θ‖_𝒜, or -θ: other steps do not depend on its length
                direction = Direction(-1 / largest, ())
        else:
            direction, largest, dropped = _corrective_direction(variant, z, descent, active, gradient)
        line = point.along(direction)
        gamma = rule(run.iteration - 1, line, largest)
        point.move(line, gamma)
        active.move(direction, gamma, dropped if gamma >= largest else None)
        if run.iteration % REBUILD_EVERY == 0:
            point.jump(active.combine())
        if run.stalled(gamma > 0):
            break

    if math.isinf(gap) and run.status != Status.CONVERGED and descent > 0:
        point.along(along(z)).check_bounded()
    used = correction.smoothness if isinstance(correction, NormCorrection) else rule.smoothness
    return run.result(point.x, **active.export(problem.numpy, atom_set.count(zero)), smoothness=used)


def _corrective_direction(
    variant: str, z: Atom, descent: float, active: ActiveSet, gradient: Tensor
) -> tuple[Direction, float, Atom | None]:
    """The direction of ANNMP or PWNNMP, the largest step along it, and the atom that such a step drops."""
    if len(active):
        v, weight = active.worst(gradient)
        ascent = v.inner(gradient)  # if it is not positive, the origin is the worst active atom: v = 0
        if ascent > 0 and (descent <= 0 or (variant == "away" and ascent > descent)):  # z = 0, or v gains more
            return along(v, -1.0), weight, v
        if ascent > 0 and variant == "pairwise":
            return Direction(0.0, ((1.0, z), (-1.0, v))), weight, v
    return along(z), math.inf, None


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
        or atoms.batch_rows() is None
        or atoms.symmetric
        or problem.x0 is not None
    ):
        raise ValueError(
            "variant 'fnnomp' projects a target on the cone of a dictionary from 0: use 'fully-corrective'."
        )
    whole = atoms.batch_rows()
    assert whole is not None
    rows = whole.cpu().double().numpy()
    residual = f.target.cpu().double().numpy().copy()
    basis, inverse = np.zeros((0, len(residual))), np.zeros((0, 0))
    chosen: list[int] = []
    weights = np.zeros(0)
    while True:
        x = (f.target.cpu().double() - torch.from_numpy(residual)).to(problem.zero)
        gradient = torch.from_numpy(-residual).to(problem.zero)
        gap = certificate(f.at(x.clone()), gradient, atoms.ask(gradient).lower, dot(gradient, x))
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
        problem.zero, [(float(w), atoms.numbered(i, x)) for i, w in zip(chosen, weights, strict=True) if w > 0]
    )
    return run.result(x, **active.export(problem.numpy, atoms.count(x)))


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
