"""Linear spans: matching pursuit and coordinate descent (chapter "Linear Span"), of one signal or of a batch."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from unknot.solvers import dense
from unknot.solvers.atoms import AtomSet, L1Ball, as_atoms
from unknot.solvers.corrections import SPAN, full_correction
from unknot.solvers.lines import Line, Point, Step, StepSize, along
from unknot.solvers.objectives import SquaredDistance, as_objective
from unknot.solvers.result import (
    Limits,
    Problem,
    Result,
    Run,
    SpanCertificate,
    Status,
    Trace,
    check_gradient,
    read_problem,
)
from unknot.solvers.structured import ActiveSet, Atom, Decomposition, choose, to_user

VARIANTS = ("generalised", "affine-invariant", "orthogonal", "random", "accelerated", "accelerated-random")
_ALIASES = {
    "generalized": "generalised",
    "plain": "generalised",
    "mp": "generalised",
    "omp": "orthogonal",
    "affine": "affine-invariant",
    "random-pursuit": "random",
    "accelerated-greedy": "accelerated",
}
COORDINATE_VARIANTS = ("steepest", "random", "accelerated-random", "accelerated-greedy")
_AS_PURSUIT = {"steepest": "generalised", "accelerated-greedy": "accelerated"}

DIVERGENCE = 10.0
"""An accelerated run has diverged once f exceeds the best value by this many times what the start did."""


def matching_pursuit(
    objective: Any,
    atoms: Any,
    x0: Any = None,
    *,
    variant: str = "generalised",
    step: Step = "auto",
    smoothness: float | None = None,
    atomic_smoothness: float | None = None,
    nu: float | None = None,
    radius: float | None = None,
    seed: int = 0,
    **limits: Unpack[Limits],
) -> Result:
    """Minimise a smooth convex f over lin(𝒜) (the algorithms of chapter "Linear Span").

    Thesis: Algorithms "Generalized", "Affine Invariant" and "Accelerated Matching Pursuit", chapter "Linear Span".

        generalised         z_k = lmo_𝒜(∇f(θ_k)),   θ_{k+1} = θ_k - ⟨∇f(θ_k), z_k⟩ / (L ‖z_k‖²) · z_k
        affine-invariant    the same with L_𝒜 in place of L ‖z_k‖²: the iterates follow any linear map of the space
        orthogonal          θ_{k+1} = argmin f over the span of all atoms chosen so far
        random              generalised, with z_k drawn at random: only ⟨∇f, z_k⟩ is computed
        accelerated         y_k = (1 - τ_k) θ_k + τ_k v_k; a greedy step from y_k gives θ_{k+1}, a random atom z̃ gives
                            v_{k+1} = v_k - α_{k+1} ⟨∇f(y_k), z̃⟩ z̃, with α_{k+1}² L ν = β_k + α_{k+1} = β_{k+1} and
                            τ_k = α_{k+1} / β_{k+1}
        accelerated-random  the same, with one random atom for both

    Sets that are not symmetric are used with their negatives, which have the same span. Rates: 1/k, linear for strongly
    convex f, 1/k² for the accelerated variants. docs/solvers/matching_pursuit.md says how slips of the boxes are read.

    Args:
        objective, atoms, x0: as for :func:`frank_wolfe`; 0 is the default start. For y ``[B, d]`` and a dictionary
            ``[d, n]`` "generalised" and "orthogonal" solve the batch.
        variant: one of the six above.
        step: "short" (the formulas above), "line-search", "backtracking" or "affine"; "auto" is "short" where L is
            known. Accelerated and orthogonal variants ignore it.
        smoothness, atomic_smoothness: L and L_𝒜, if not those of the objective.
        nu: ν of the accelerated variants; a safe value is computed for dictionaries and balls. Smaller can be faster,
            and diverge: the run then stops with status "diverged" and gives its best iterate.
        radius: a bound on ‖θ*‖_𝒜, which makes a certificate where f is not strongly convex.
        seed: of the random variants.
        limits: as for :func:`frank_wolfe`, with ``tol=1e-8``. Without any certificate a run stops once ‖∇f‖_𝒜* is at
            most tol times its largest so far; for the orthogonal variant ``max_iterations`` is the number of atoms.

    Returns:
        A :class:`Result`; its gap is ‖∇f‖²/(2μ) (within the span) for μ-strongly convex f, or what ``radius`` gives,
        else inf. The random variants know it once for every round of the atoms; in between it is NaN.

    >>> import numpy as np
    >>> from unknot.solvers import matching_pursuit
    >>> dictionary = np.array([[1.0, 0.0, 0.6], [0.0, 1.0, 0.8]])
    >>> result = matching_pursuit(np.array([1.2, 1.6]), dictionary, variant="orthogonal")
    >>> result.coefficients.round(6), result.iterations
    (array([0., 0., 2.]), 1)
    """
    key = str(variant).replace("_", "-").lower()
    variant = choose(_ALIASES.get(key, variant), VARIANTS, "variant")
    f, atom_set = as_objective(objective), as_atoms(atoms).symmetrised()
    if isinstance(f, SquaredDistance) and f.target.ndim == 2 and atom_set.batch_rows() is not None:
        kind = f.numpy and atom_set.kind().numpy
        run = Run.of("matching_pursuit", kind, limits, tol=1e-8)
        return batched_pursuit(f, atom_set, x0, variant, run)
    problem = read_problem(f, atom_set, x0, smoothness)
    run = Run.of("matching_pursuit", problem.numpy, limits, tol=1e-8)
    given = (smoothness, atomic_smoothness, nu, radius)
    if variant == "orthogonal" and step == "auto" and given == (None,) * 4 and dense.applies_to_signal(problem):
        return dense.orthogonal_pursuit(problem, run)
    return _pursue(problem, variant, step, "short", smoothness, atomic_smoothness, nu, radius, seed, run)


def coordinate_descent(
    objective: Any,
    x0: Any = None,
    *,
    variant: str = "steepest",
    step: Step = "auto",
    smoothness: float | None = None,
    nu: float | None = None,
    radius: float | None = None,
    seed: int = 0,
    **limits: Unpack[Limits],
) -> Result:
    """Minimise a smooth convex f one coordinate at a time: matching pursuit over 𝒜 = {±e_i}.

    Thesis: section "Matching Pursuit and Coordinate Descent".

        steepest            i_k = argmax_i |∇_i f(θ_k)|,   θ_{k+1} = θ_k - ∇_{i_k} f(θ_k) / L · e_{i_k}
        random              the same with a uniform i_k: only one partial derivative is computed
        accelerated-random  accelerated random pursuit over coordinates, ν' = n
        accelerated-greedy  accelerated matching pursuit over coordinates, ν = n

    By default L is L_1 = max_i ∇²_ii f, the smoothness in the atomic norm, where it is known; ``step="short"`` uses the
    Euclidean L. Arguments and result are those of :func:`matching_pursuit`.

    >>> import numpy as np
    >>> from unknot.solvers import Quadratic, coordinate_descent
    >>> result = coordinate_descent(Quadratic(np.diag([1.0, 4.0]), np.array([1.0, 2.0])), variant="steepest", tol=1e-12)
    >>> result.x.round(5)
    array([1. , 0.5])
    """
    variant = choose(variant, COORDINATE_VARIANTS, "variant")
    problem = read_problem(objective, L1Ball(1.0), x0, smoothness)
    run = Run.of("coordinate_descent", problem.numpy, limits, tol=1e-8)
    default = "short" if smoothness is not None else "affine"
    pursuit = _AS_PURSUIT.get(variant, variant)
    return _pursue(problem, pursuit, step, default, smoothness, None, nu, radius, seed, run)


def _pursue(
    problem: Problem,
    variant: str,
    step: Step,
    default: str,
    smoothness: float | None,
    affine: float | None,
    nu: float | None,
    radius: float | None,
    seed: int,
    run: Run,
) -> Result:
    f, atoms, zero = problem.objective, problem.atoms, problem.zero
    start = problem.warm or ([] if problem.x0 is None or not bool(problem.x0.any()) else atoms.span_weights(problem.x0))
    generator = torch.Generator().manual_seed(seed)
    certificate = SpanCertificate(problem, radius, run)
    point = f.at(zero.clone() if problem.x0 is None else problem.x0)
    if variant in ("accelerated", "accelerated-random"):
        return _accelerated(
            problem, variant == "accelerated", start, point, smoothness, nu, generator, certificate, run
        )
    rule = _step_size(problem, variant, step, default, smoothness, affine)
    active = ActiveSet(zero, start, signed=True)
    correction = full_correction(f, SPAN, run.tol) if variant == "orthogonal" else None
    every = _round(atoms, zero) if variant == "random" else 1

    while True:
        value, gap, stationary, z = point.value(), math.nan, False, None
        if run.iteration % every == 0 or run.iteration == run.max_iterations or run.expired():
            gradient = point.gradient()
            check_gradient(gradient, run.iteration)
            z, lower = _ask(atoms, gradient, run)
            gap, stationary = certificate(point, gradient, value, lower)
            if correction is not None and run.iteration > 0 and active.knows(z):
                stationary = True  # f is minimal over the chosen atoms, and no other is better
            if (gap <= run.tolerance(value) or stationary) and point.refresh():
                continue  # a certificate must not rest on accumulated rounding
        if run.finished(point.x, value, gap, stationary):
            break
        if correction is not None:
            correction.apply(active, point, z, run.expired)
            continue
        if variant == "random":
            z = atoms.sample(zero, generator)
        assert z is not None
        line = _downhill(point, z)
        gamma = rule(run.iteration - 1, line, math.inf)
        point.move(line, gamma)
        active.move(line.direction, gamma)
        if variant != "random" and run.stalled(gamma > 0):
            break

    if math.isinf(gap) and run.status != Status.CONVERGED:
        _downhill(point, atoms.atom(point.gradient())).check_bounded()
    fields = active.export(problem.numpy, atoms.count(zero))
    if math.isnan(run.gaps[-1]):  # stopped between two looks at the gradient
        fields["gap"] = certificate.against(run.values[-1])
    return run.result(point.x, **fields, smoothness=rule.smoothness)


def _ask(atoms: AtomSet, gradient: Tensor, run: Run) -> tuple[Atom, float]:
    """The steepest atom and a lower bound; exactly where an answer without a bound would end the run."""
    answer = atoms.ask(gradient)
    slope = -answer.atom.inner(gradient)
    if answer.lower == -math.inf and slope <= run.flat(slope, 0.0):
        answer = atoms.ask(gradient, exact=True)
    return answer.atom, answer.lower


def _step_size(
    problem: Problem, variant: str, step: Step, default: str, smoothness: float | None, affine: float | None
) -> StepSize:
    """The rule of the step: what was asked for, else the variant's own if its constant is known, else backtracking."""
    f = problem.objective
    if step == "auto":
        step = {"affine-invariant": "affine", "orthogonal": "line-search"}.get(variant, default)
        if step == "short" and smoothness is None and f.smoothness is None:
            step = "backtracking"
    if affine is None and step == "affine":
        affine = problem.atoms.largest_curvature(f)
    rule = StepSize(step, f, smoothness, default=default, atomic_smoothness=affine)
    if rule.schedule is not None or rule.name == "diameter":
        raise ValueError(f"step {step!r} is for hulls: expected 'short', 'line-search', 'backtracking' or 'affine'.")
    return rule


def _accelerated(
    problem: Problem,
    greedy: bool,
    start: Decomposition,
    point: Point,
    smoothness: float | None,
    nu: float | None,
    generator: torch.Generator,
    certificate: "SpanCertificate",
    run: Run,
) -> Result:
    """Algorithms "Accelerated Matching Pursuit" (greedy) and "Accelerated Random Pursuit".

    α_{k+1} is the positive root of α² L ν = β_k + α, so α_1 = 1/(L ν) and τ_0 = 1. ``point`` is θ_k at the top of the
    loop and y_k in its middle: θ_k is not needed once y_k is formed, and y_k not once θ_{k+1} is.
    """
    f, atoms, zero = problem.objective, problem.atoms, problem.zero
    if nu is None:
        nu = atoms.acceleration(greedy, zero.numel())
    elif not (nu > 0 and math.isfinite(nu)):
        raise ValueError(f"nu is {nu}: expected a positive number, or None for a safe one.")
    L = smoothness if smoothness is not None else f.smoothness
    guessed = L is None
    v = f.at(point.x.clone())
    count = atoms.count(zero)
    weights_x = np.zeros(count or 0)
    for weight, atom in start if count else ():
        assert isinstance(atom.key, int)
        weights_x[atom.key] += weight * math.copysign(1.0, atom.scale)
    weights_v = weights_x.copy()
    every = 1 if greedy else _round(atoms, zero)
    beta, rule = 0.0, None
    first = best = value = point.value()
    best_x, best_weights = point.x.clone(), weights_x.copy()
    gradient = point.gradient()
    check_gradient(gradient, 0)
    gap, stationary = certificate(point, gradient, value, _ask(atoms, gradient, run)[1])

    while True:
        if (gap <= run.tolerance(value) or stationary) and point.refresh():
            v.refresh()
            value = point.value()  # a certificate must not rest on accumulated rounding
            gradient = point.gradient()
            gap, stationary = certificate(point, gradient, value, _ask(atoms, gradient, run)[1])
        if run.finished(point.x, value, gap, stationary):
            break
        if value - best > DIVERGENCE * max(first - best, 1e-12 * abs(first)):
            run.status = Status.DIVERGED
            break
        if rule is None:
            if guessed:
                probe = _downhill(point, atoms.atom(point.gradient()))
                probe.check_bounded()
                L = StepSize.guess(probe, probe.squared_norm)
            rule = StepSize("short", f, L, default="short", quiet=guessed)
        assert rule.smoothness is not None
        l_nu = rule.smoothness * nu
        alpha = (1 + math.sqrt(1 + 4 * l_nu * beta)) / (2 * l_nu)
        beta += alpha
        tau = alpha / beta
        point.blend(v, tau)
        weights_x += tau * (weights_v - weights_x)

        z = z_random = atoms.sample(zero, generator)
        stationary, gap = False, math.nan
        if (run.iteration - 1) % every == 0:
            gradient = point.gradient()
            check_gradient(gradient, run.iteration - 1)
            steepest, lower = _ask(atoms, gradient, run)
            gap, stationary = certificate(point, gradient, point.value(), lower)
            if greedy:
                z = steepest
        drift = _downhill(point, z_random)
        line = _downhill(point, z) if greedy else drift
        gamma = rule(run.iteration - 1, line, math.inf)
        v.move(drift, -alpha * drift.slope)
        point.move(line, gamma)
        for weights, moved, amount in ((weights_v, drift, -alpha * drift.slope), (weights_x, line, gamma)):
            if count:
                sign, atom = moved.direction.terms[0]
                assert isinstance(atom.key, int)
                weights[atom.key] += amount * sign * math.copysign(1.0, atom.scale)
        value = point.value()
        if not math.isnan(gap):
            gap = certificate.against(value)
        if value < best:
            best, best_x, best_weights = value, point.x.clone(), weights_x.copy()

    if math.isinf(certificate.against(value)) and run.status != Status.CONVERGED:
        _downhill(point, atoms.atom(point.gradient())).check_bounded()
    fields: dict[str, Any] = {"smoothness": rule.smoothness if rule is not None else L}
    x, weights = point.x, weights_x
    if run.status == Status.DIVERGED:
        x, weights = best_x, best_weights
        fields.update(value=best, gap=certificate.against(best))
    elif math.isnan(gap):
        fields.update(gap=certificate.against(value))
    if count:
        active = ActiveSet(zero, signed=True)
        for index in np.flatnonzero(weights).tolist():
            active.add(atoms.numbered(index, zero), float(weights[index]))
        fields.update(active.export(problem.numpy, count))
    return run.result(x, **fields)


def _downhill(point: Point, z: Atom) -> Line:
    """The line along z or -z, whichever goes down."""
    line = point.along(along(z))
    return line if line.slope <= 0 else point.along(along(z, -1.0))


def _round(atoms: AtomSet, zero: Tensor) -> int:
    """Draws in which every atom comes up about once."""
    return max(1, atoms.count(zero) or zero.numel())


BYTES = 2**28
"""Memory that the bases of signals may take; a batch that would need more is solved in parts, one after the other."""


def batched_pursuit(f: SquaredDistance, atoms: AtomSet, x0: Any, variant: str, run: Run) -> Result:
    """Matching pursuit or OMP of every row of a target ``[B, d]``, all signals in step.

    A signal whose gap is within the tolerance waits for the others. Of a batch that is solved in parts, callbacks see
    the iterates of one part after those of another.
    """
    if variant not in ("generalised", "orthogonal"):
        raise ValueError(
            f"variant {variant!r} solves one problem at a time: expected 'generalised' or 'orthogonal' for a batch of "
            f"targets {list(f.shape or ())}, or one target [d]."
        )
    if f.mask is not None or x0 is not None:
        raise ValueError("batched matching pursuit starts from 0 and takes no mask: leave x0 and mask out.")
    batch, size = f.target.shape
    if atoms.shape != (size,):
        hint = "; signals are rows, so pass its transpose" if atoms.shape == (batch,) else ""
        raise ValueError(
            f"the target has shape {[batch, size]} but the atoms have dimension {list(atoms.shape or ())}: "
            f"expected [B, d] with d as in the dictionary [d, n]{hint}."
        )
    bound = atoms.bind(f.dtype, f.device, run.numpy)
    limit = int(min(run.max_iterations, size)) if variant == "orthogonal" else 0
    together = max(1, BYTES // (max(1, limit) * size * f.target.element_size()))
    rtol, run.rtol = run.rtol, 0.0  # the run sees the sum of all values, which is no measure for one of them
    solved, histories, ends = [], [], []
    times: list[float] = []
    for part in f.target.split(together):
        run.values, run.gaps, run.times = [], [], []
        solved.append(_pursue_batch(bound, part, limit, rtol, run))
        histories.append((run.values, run.gaps))
        ends.append(run.status)
        times = max(times, run.times, key=len)
        if run.status == Status.STOPPED:
            run.max_iterations = 0  # the other parts stay where they begin
    run.close()
    table = [
        np.hstack([np.stack([*column, *[column[-1]] * (len(times) - len(column))]) for column in columns])
        for columns in zip(*histories, strict=True)
    ]
    residual, coefficients = (torch.cat(parts) for parts in zip(*solved, strict=True))
    return Result(
        x=to_user(f.target - residual, run.numpy),
        value=table[0][-1],
        gap=table[1][-1],
        iterations=len(times) - 1,
        status=next((end for end in ends if end != Status.CONVERGED), Status.CONVERGED),
        trace=Trace(table[0], table[1], np.array(times)),
        coefficients=to_user(coefficients, run.numpy),
        smoothness=1.0,
    )


def _pursue_batch(atoms: AtomSet, targets: Tensor, limit: int, rtol: float, run: Run) -> tuple[Tensor, Tensor]:
    """Residuals ``[B, d]`` and coefficients ``[B, n]``; by OMP with at most ``limit`` atoms, or by MP if that is 0.

    OMP keeps an orthonormal basis of each signal's atoms (Gram-Schmidt, twice where needed): a step is one product of
    the residuals with the dictionary and a few of the size of the basis. Coefficients come from one triangular solve.
    """
    rows = atoms.batch_rows()
    assert rows is not None
    (batch, size), count = targets.shape, len(rows)
    residual, coefficients = targets.clone(), targets.new_zeros((batch, count))
    basis, triangle = targets.new_zeros((batch, limit, size)), targets.new_zeros((batch, limit, limit))
    right, chosen = targets.new_zeros((batch, limit)), torch.zeros((batch, limit), dtype=torch.long)
    chosen, depleted = chosen.to(targets.device), torch.zeros(batch, dtype=torch.bool, device=targets.device)
    steepest, squares = Steepest(rows), rows.square().sum(1)
    eps, tiny = torch.finfo(rows.dtype).eps, torch.finfo(rows.dtype).tiny  # a signal of 0 may be given a column of 0
    k = 0
    while True:
        values = gaps = residual.square().sum(1) / 2
        if count < size:
            gaps = atoms.span_part(residual.t()).square().sum(0) / 2
        working = (gaps > (rtol * values).clamp_min(run.tol)) & ~depleted
        x = targets - residual if run.callback is not None else residual
        stop = run.finished(x, float(values.sum()), float(gaps.max()), not bool(working.any()))
        run.values[-1], run.gaps[-1] = values.cpu().numpy(), gaps.cpu().numpy()
        if stop:
            break
        index = steepest(residual)
        if not limit:
            gamma = working * (rows[index] * residual).sum(1) / squares[index].clamp_min(tiny)
            residual -= gamma[:, None] * rows[index]
            coefficients.scatter_add_(1, index[:, None], gamma[:, None])
            continue
        if k == limit:
            depleted[:] = True
            continue
        new, norms = rows[index], squares[index].sqrt()
        for _ in range(2):
            inner = torch.bmm(basis[:, :k], new[:, :, None])
            new = new - torch.bmm(inner.transpose(1, 2), basis[:, :k])[:, 0]
            triangle[:, :k, k] += inner[:, :, 0]
            norm = torch.linalg.vector_norm(new, dim=1)
            if bool((norm > 0.7 * norms).all()):
                break  # little was taken away, so little accuracy was lost
        depleted |= working & (norm <= 1e3 * eps * norms)
        working = working & ~depleted
        new = new * (working / norm.clamp_min(tiny))[:, None]
        triangle[:, :k, k] *= working[:, None]
        triangle[:, k, k] = torch.where(working, norm, 1.0)
        basis[:, k], chosen[:, k] = new, index
        right[:, k] = (new * residual).sum(1)
        residual = residual - right[:, k, None] * new
        k += 1
    if k:
        solution = torch.linalg.solve_triangular(triangle[:, :k, :k], right[:, :k, None], upper=True)[:, :, 0]
        coefficients.scatter_add_(1, chosen[:, :k], solution)
    return residual, coefficients


class Steepest:
    """argmax_i |⟨r, z_i⟩| for every row r of a batch.

    In double precision on a CPU the products are screened in single precision, at half the cost; rows in which another
    atom comes within the rounding error of the best are settled in double, so that the answer is that of double.
    """

    def __init__(self, rows: Tensor) -> None:
        self._columns = rows.t().contiguous()
        screened = rows.dtype == torch.float64 and rows.device.type == "cpu"
        self._single = self._columns.float() if screened else None
        # A dot product of d terms, of inputs rounded first, is off by (d + 2) u ‖r‖ ‖z‖ at most; two are compared.
        unit = torch.finfo(torch.float32).eps / 2
        self._slack = 2 * (rows.shape[1] + 2) * unit * float(torch.linalg.vector_norm(rows, dim=1).max())

    def __call__(self, residual: Tensor) -> Tensor:
        """Indices ``[B]``."""
        if self._single is None:
            return (residual @ self._columns).abs_().max(1).indices
        norms = torch.linalg.vector_norm(residual, dim=1, keepdim=True).clamp_min(torch.finfo(residual.dtype).tiny)
        scores = ((residual / norms).float() @ self._single).abs_()
        best, index = scores.max(1)
        unsettled = (scores >= (best - self._slack)[:, None]).sum(1) > 1
        if bool(unsettled.any()):
            index[unsettled] = (residual[unsettled] @ self._columns).abs_().max(1).indices
        return index
