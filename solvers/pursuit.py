"""Linear spans: matching pursuit and coordinate descent (chapter "Linear Span")."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import to_user
from unknot.solvers.active import ActiveSet
from unknot.solvers.atoms import AtomSet, Dictionary, L1Ball, as_atoms
from unknot.solvers.corrections import SPAN, full_correction
from unknot.solvers.geometry import acceleration_constant, atomic_smoothness
from unknot.solvers.objectives import Line, Point, SquaredDistance, along, as_objective
from unknot.solvers.problem import Problem, check_gradient, choose, numbered, read_problem
from unknot.solvers.result import Result, Run, State, Status
from unknot.solvers.steps import Step, StepSize
from unknot.solvers.structured import Atom, Decomposition

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
    max_iterations: int = 1000,
    tol: float = 1e-8,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Minimise a smooth convex f over lin(𝒜) (the algorithms of chapter "Linear Span").

        generalised         z_k = lmo_𝒜(∇f(θ_k)),   θ_{k+1} = θ_k - ⟨∇f(θ_k), z_k⟩ / (L ‖z_k‖²) · z_k
        affine-invariant    the same with L_𝒜 in place of L ‖z_k‖²: the iterates follow any linear map of the space
        orthogonal          θ_{k+1} = argmin f over the span of all atoms chosen so far
        random              generalised, with z_k drawn at random: only ⟨∇f, z_k⟩ is computed
        accelerated         y_k = (1 - τ_k) θ_k + τ_k v_k; a greedy step from y_k gives θ_{k+1}, a random atom z̃ gives
                            v_{k+1} = v_k - α_{k+1} ⟨∇f(y_k), z̃⟩ z̃, with α_{k+1}² L ν = β_k + α_{k+1} = β_{k+1} and
                            τ_k = α_{k+1} / β_{k+1}
        accelerated-random  the same, with one random atom for both

    Sets that are not symmetric are used with their negatives, which have the same span. Rates: 1/k (for the
    affine-invariant one 2 L_𝒜 R² / (δ² (k + 2))), linear for strongly convex f, 1/k² for the accelerated ones. For
    ½‖θ - y‖² the generalised variant is the classical matching pursuit and the orthogonal one OMP. How the boxes' slips
    are read is in docs/solvers/matching_pursuit.md.

    Args:
        objective: one of :mod:`unknot.solvers.objectives`, a differentiable torch function of x, or an array y for
            ½‖x - y‖²; for y ``[B, d]`` and a dictionary ``[d, n]`` "generalised" and "orthogonal" solve the batch.
        atoms: a set of :mod:`unknot.solvers.atoms`, a matrix with one atom in each column, or a function of a
            direction.
        x0: start in lin(𝒜); 0 if left out. The orthogonal and batched variants start at 0.
        variant: one of the six above.
        step: "short" (the formulas above), "line-search", "backtracking" or "affine"; "auto" is "short" where L is
            known. Accelerated and orthogonal variants ignore it.
        smoothness: L, if it should not be the objective's own.
        atomic_smoothness: L_𝒜, if it should not be computed.
        nu: ν of the accelerated variants; a safe value is computed for dictionaries and balls. Smaller can be faster,
            and diverge: the run then stops with status "diverged" and gives its best iterate.
        radius: a bound on ‖θ*‖_𝒜, if one is known: it makes a certificate where f is not strongly convex.
        seed: of the random variants.
        max_iterations: updates at most; for the orthogonal variant, the number of atoms.
        tol: stop once the gap is at most this; without any certificate, once ‖∇f‖_𝒜* is.
        time_limit: seconds.
        callback: gets a :class:`State` for every iterate; returning True stops the run.
        progress: show a progress bar.

    Returns:
        A :class:`Result`; its gap is ‖∇f‖²/(2μ) (within the span) for μ-strongly convex f, or what ``radius`` gives,
        else inf. The random variants look at the full gradient only once for every round of the atoms; in between the
        gap is NaN.

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
    if isinstance(f, SquaredDistance) and len(f.shape or ()) == 2 and isinstance(atom_set, Dictionary):
        kind = f.numpy and atom_set.numpy
        run = Run(max_iterations, tol, time_limit, callback, progress, kind, "matching_pursuit")
        return _batched_pursuit(f, atom_set, x0, variant, run)
    problem = read_problem(f, atom_set, x0, smoothness)
    run = Run(max_iterations, tol, time_limit, callback, progress, problem.numpy, "matching_pursuit")
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
    max_iterations: int = 1000,
    tol: float = 1e-8,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Minimise a smooth convex f one coordinate at a time: matching pursuit over 𝒜 = {±e_i}.

        steepest            i_k = argmax_i |∇_i f(θ_k)|,   θ_{k+1} = θ_k - ∇_{i_k} f(θ_k) / L · e_{i_k}
        random              the same with a uniform i_k: only one partial derivative is computed
        accelerated-random  accelerated random pursuit over coordinates, ν' = n
        accelerated-greedy  accelerated matching pursuit over coordinates, ν = n

    By default L is L_1 = max_i ∇²_ii f, the smoothness in the atomic norm, where it is known: the thesis' rate
    2 L_1 R_1² / (k + 2) is the tightest for a global constant. ``step="short"`` uses the Euclidean L. In the thesis'
    display of the step, θ_{k+1} on the right is θ_k.

    Args:
        objective: one of :mod:`unknot.solvers.objectives`, or a differentiable torch function of x.
        x0: start; 0 if left out (a torch function needs it for its shape).
        variant: one of the four above.
        step: "affine" (divide by L_1), "short", "line-search" or "backtracking"; "auto" is the first that is possible.
        smoothness: the Euclidean L, if it should not be the objective's own.
        nu: ν of the accelerated variants, n if left out.
        radius: a bound on ‖θ*‖₁, if one is known.
        seed: of the random variants.
        max_iterations: updates at most.
        tol: stop once the gap is at most this; without any certificate, once max_i |∇_i f| is.
        time_limit: seconds.
        callback: gets a :class:`State` for every iterate; returning True stops the run.
        progress: show a progress bar.

    Returns:
        A :class:`Result`.

    >>> import numpy as np
    >>> from unknot.solvers import Quadratic, coordinate_descent
    >>> result = coordinate_descent(Quadratic(np.diag([1.0, 4.0]), np.array([1.0, 2.0])), variant="steepest", tol=1e-12)
    >>> result.x.round(5)
    array([1. , 0.5])
    """
    variant = choose(variant, COORDINATE_VARIANTS, "variant")
    problem = read_problem(objective, L1Ball(1.0), x0, smoothness)
    run = Run(max_iterations, tol, time_limit, callback, progress, problem.numpy, "coordinate_descent")
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
    start = _start(problem)
    generator = torch.Generator().manual_seed(seed)
    certificate = SpanCertificate(problem, radius, run.tol)
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
        if run.iteration % every == 0 or run.iteration == run.max_iterations:
            gradient = point.gradient()
            check_gradient(gradient, run.iteration)
            z = atoms.atom(gradient)
            gap, stationary = certificate(gradient, value, point.x, z)
            if correction is not None and active.knows(z):
                stationary = True  # f is minimal over the chosen atoms, and no other is better
            if (gap <= certificate.tol or stationary) and point.refresh():
                continue  # a certificate must not rest on accumulated rounding
        if run.finished(point.x, value, gap, stationary):
            break
        if correction is not None:
            assert z is not None
            active.add(z, 0.0)
            active.set_weights(correction.solve(active, point))
            point.jump(active.combine())
            continue
        if variant == "random":
            z = atoms.sample(zero, generator)
        assert z is not None
        line = _downhill(point, z)
        gamma = rule(run.iteration - 1, line, math.inf)
        point.move(line, gamma)
        active.move(line.direction, gamma)

    fields = active.export(problem.numpy, numbered(atoms, zero))
    return run.result(point.x, **fields, smoothness=rule.smoothness)


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
        affine = atomic_smoothness(f, problem.atoms)
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
        nu = acceleration_constant(atoms, greedy=greedy, dim=zero.numel())
    elif not (nu > 0 and math.isfinite(nu)):
        raise ValueError(f"nu is {nu}: expected a positive number, or None for a safe one.")
    L = smoothness if smoothness is not None else f.smoothness
    guessed = L is None
    v = f.at(point.x.clone())
    base = atoms.base
    count = base.count if isinstance(base, Dictionary) else None
    weights_x = np.zeros(count or 0)
    for weight, atom in start if count else ():
        assert isinstance(atom.key, int)
        weights_x[atom.key] += weight * atom.scale
    weights_v = weights_x.copy()
    every = 1 if greedy else _round(atoms, zero)
    beta, rule = 0.0, None
    first = best = value = point.value()
    best_x, best_weights = point.x.clone(), weights_x.copy()
    gradient = point.gradient()
    check_gradient(gradient, 0)
    gap, stationary = certificate(gradient, value, point.x, atoms.atom(gradient))

    while True:
        if run.finished(point.x, value, gap, stationary):
            break
        if value - best > DIVERGENCE * max(first - best, 1e-12 * abs(first)):
            run.status = Status.DIVERGED
            break
        if rule is None:
            if guessed:
                probe = _downhill(point, atoms.atom(point.gradient()))
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
            steepest = atoms.atom(gradient)
            gap, stationary = certificate(gradient, point.value(), point.x, steepest)
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
                weights[atom.key] += amount * sign * atom.scale
        value = point.value()
        if not math.isnan(gap):
            gap = certificate.against(value)
        if value < best:
            best, best_x, best_weights = value, point.x.clone(), weights_x.copy()

    fields: dict[str, Any] = {"smoothness": rule.smoothness if rule is not None else L}
    x, weights = point.x, weights_x
    if run.status == Status.DIVERGED:
        x, weights = best_x, best_weights
        fields.update(value=best, gap=certificate.against(best))
    elif math.isnan(gap):
        fields.update(gap=certificate.against(value))
    if isinstance(base, L1Ball):
        weights = x.cpu().double().numpy().reshape(-1) / base.radius
    if isinstance(base, Dictionary | L1Ball):
        active = ActiveSet(zero, signed=True)
        for index in np.flatnonzero(weights).tolist():
            atom = base.column(index) if isinstance(base, Dictionary) else base.coordinate(index, base.radius, zero)
            active.add(atom, float(weights[index]))
        fields.update(active.export(problem.numpy, len(weights)))
    return run.result(x, **fields)


def _downhill(point: Point, z: Atom) -> Line:
    """The line along z or -z, whichever goes down."""
    line = point.along(along(z))
    return line if line.slope <= 0 else point.along(along(z, -1.0))


def _round(atoms: AtomSet, zero: Tensor) -> int:
    """Draws in which every atom comes up about once."""
    return max(1, numbered(atoms, zero) or zero.numel())


def _start(problem: Problem) -> Decomposition:
    """Weights and atoms of x0 over the span."""
    x0, atoms = problem.x0, problem.atoms.base
    if x0 is None or not bool(x0.any()):
        return []
    if isinstance(atoms, Dictionary):
        rows = atoms.dense_rows()
        weights = torch.linalg.lstsq(rows.t().cpu().double(), x0.cpu().double()[:, None], driver="gelsd").solution[:, 0]
        residual = float(torch.linalg.vector_norm(rows.t() @ weights.to(rows) - x0))
        if residual > 1e-6 * float(torch.linalg.vector_norm(x0)):
            raise ValueError(
                f"x0 is outside the span of the atoms, {residual:.3g} away: expected a combination of them."
            )
        return [(float(weight), atoms.column(i)) for i, weight in enumerate(weights.tolist()) if weight]
    if isinstance(atoms, L1Ball):
        flat = x0.reshape(-1)
        return [
            (float(flat[i]) / atoms.radius, atoms.coordinate(i, atoms.radius, x0))
            for i in torch.nonzero(flat).reshape(-1).tolist()
        ]
    scale = float(torch.linalg.vector_norm(x0)) / (atoms.radius or 1.0)
    try:
        return [(scale * weight, atom) for weight, atom in atoms.decompose(x0 / scale)]
    except ValueError as error:
        raise ValueError(f"x0 cannot be written in atoms of {atoms}: start from 0 by leaving it out.") from error


class SpanCertificate:
    """Upper bounds on f(θ) - f(θ*) over lin(𝒜), and the test that stands in where there is none.

    ‖∇f(θ)‖² / (2μ), with the gradient's part in the span, for μ-strongly convex f; ⟨∇f(θ), θ⟩ + radius · ‖∇f(θ)‖_𝒜* for
    a bound on ‖θ*‖_𝒜. The best lower bound on f(θ*) so far certifies later iterates too.
    """

    def __init__(self, problem: Problem, radius: float | None, tol: float) -> None:
        if radius is not None and not radius >= 0:
            raise ValueError(f"radius is {radius}: expected a bound on the atomic norm of the optimum, 0 or more.")
        self._problem, self._radius, self.tol = problem, radius, tol
        self._mu = problem.objective.strong_convexity
        self._lower = -math.inf

    def __call__(self, gradient: Tensor, value: float, x: Tensor, z: Atom) -> tuple[float, bool]:
        """The gap at x, and whether x is stationary though nothing certifies it."""
        atoms = self._problem.atoms
        steepness = atoms.bound(gradient, None, z)  # ‖∇f‖_𝒜*
        gap = math.inf
        if self._mu > 0:
            gap = float(atoms.span_part(gradient.reshape(-1)).square().sum()) / (2 * self._mu)
        if self._radius is not None and math.isfinite(steepness):
            linear = float(torch.dot(gradient.reshape(-1), x.reshape(-1)))
            gap = min(gap, max(0.0, linear + self._radius * max(0.0, steepness)))
        self._lower = max(self._lower, value - gap)
        return gap, math.isinf(gap) and steepness <= self.tol

    def against(self, value: float) -> float:
        """The gap of another iterate, by the best lower bound so far."""
        return value - self._lower


def _batched_pursuit(f: SquaredDistance, atoms: Dictionary, x0: Any, variant: str, run: Run) -> Result:
    """Matching pursuit or OMP of every row of a target ``[B, d]``, all signals in step.

    OMP keeps an orthonormal basis of each signal's atoms (Gram-Schmidt, twice where needed), so a step is one product
    of the residuals with the dictionary and a few of the size of the basis; coefficients come from one triangular solve
    at the end. A signal whose gap is within the tolerance waits for the others.
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
    rows = bound.dense_rows()
    steepest = Steepest(rows)
    squares = rows.square().sum(1)
    residual = f.target.clone()
    coefficients = torch.zeros((batch, atoms.count), dtype=f.dtype, device=f.device)
    steps = min(run.max_iterations, size) if variant == "orthogonal" else 0
    basis = residual.new_zeros((batch, steps, size))
    triangle = torch.eye(steps, dtype=f.dtype, device=f.device).repeat(batch, 1, 1)
    right, chosen = residual.new_zeros((batch, steps)), torch.zeros((batch, steps), dtype=torch.long, device=f.device)
    depleted = torch.zeros(batch, dtype=torch.bool, device=f.device)
    k = 0
    while True:
        values = residual.square().sum(1) / 2
        gaps = bound.span_part(residual.t()).square().sum(0) / 2 if bound.count < size else values
        working = (gaps > run.tol) & ~depleted
        done = not bool(working.any())
        stop = run.finished(f.target - residual, float(values.sum()), float(gaps.max()), done)
        run.values[-1], run.gaps[-1] = values.cpu().numpy(), gaps.cpu().numpy()
        if stop:
            break
        index = steepest(residual)
        if variant == "generalised":
            gamma = working * (rows[index] * residual).sum(1) / squares[index]
            residual = residual - gamma[:, None] * rows[index]
            coefficients.scatter_add_(1, index[:, None], gamma[:, None])
            continue
        if k == steps:
            depleted[:] = True
            continue
        new = rows[index]
        for _ in range(2):
            inner = torch.bmm(basis[:, :k], new[:, :, None])
            new = new - torch.bmm(inner.transpose(1, 2), basis[:, :k])[:, 0]
            triangle[:, :k, k] += inner[:, :, 0]
            norm = torch.linalg.vector_norm(new, dim=1)
            if bool((norm > 0.7 * squares[index].sqrt()).all()):
                break  # little was taken away, so little accuracy was lost
        depleted |= working & (norm <= 1e3 * torch.finfo(f.dtype).eps * squares[index].sqrt())
        working &= ~depleted
        new = new * (working / norm.clamp_min(torch.finfo(f.dtype).tiny))[:, None]
        triangle[:, :k, k] *= working[:, None]
        triangle[:, k, k] = torch.where(working, norm, 1.0)
        basis[:, k], chosen[:, k] = new, index
        right[:, k] = (new * residual).sum(1)
        residual = residual - right[:, k, None] * new
        k += 1
    if k:
        solved = torch.linalg.solve_triangular(triangle[:, :k, :k], right[:, :k, None], upper=True)[:, :, 0]
        coefficients.scatter_add_(1, chosen[:, :k], solved)
    return run.result(f.target - residual, coefficients=to_user(coefficients, run.numpy), smoothness=1.0)


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
