"""Convex hulls with affine constraints: homotopy conditional gradients and what they are compared with.

    minimise  E_ω f(θ, ω) + Σ_i g_i(A_i θ)   over θ ∈ conv(𝒜)

(chapter "Convex Hulls with Affine Constraints: Stochastic Frank-Wolfe"). Every g_i is smoothed with a β_k → 0,

    ∇g_β(Aθ) = β⁻¹ Aᵀ(Aθ - prox_{βg}(Aθ)),

so that one question to the oracle of 𝒜 in each iteration is all that is ever solved.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, is_finite, to_user, wants_numpy
from unknot.solvers.atoms import AtomSet, Inexact, Product, as_atoms
from unknot.solvers.objectives import Differentiable, Objective, as_objective
from unknot.solvers.problem import check_gradient, choose
from unknot.solvers.result import Result, Run, State, Status
from unknot.solvers.stochastic import DenseIterate, Exact, Iterate, LowRankIterate, StochasticObjective, as_stochastic
from unknot.solvers.structured import RankOne
from unknot.solvers.terms import Agreement, Term

Schedule = Callable[[int], float]


def homotopy_cgm(
    objective: Any,
    atoms: Any,
    constraints: Term | Sequence[Term] = (),
    x0: Any = None,
    *,
    beta0: float = 1.0,
    normalise: bool = True,
    step: Schedule | None = None,
    smoothing: Schedule | None = None,
    oracle_error: float = 0.0,
    max_iterations: int = 1000,
    tol: float = 0.0,
    feasibility_tol: float = 1e-3,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
    evaluate_every: int = 1,
) -> Result:
    """Minimise f(θ) + Σ g_i(A_i θ) over conv(𝒜): Homotopy CGM of Yurtsever et al., the deterministic baseline.

        η_k = 2/(k+1),   β_k = β_0/√(k+1),   k = 1, 2, …
        v_k = ∇f(θ_k) + Σ_i β_k⁻¹ A_iᵀ(A_i θ_k - prox_{β_k g_i}(A_i θ_k))
        s_k = argmin_{θ ∈ conv(𝒜)} ⟨v_k, θ⟩,   θ_{k+1} = θ_k + η_k (s_k - θ_k)

    Both the objective and the distance from the constraints fall like 1/√k. ``gap`` is a certificate of ours: the
    smoothed problem lies below the true one, so F_β(θ) - ⟨∇F_β(θ), θ - s⟩ is a lower bound on its optimum, and ``gap``
    is the value minus the best such bound. A value below the optimum while infeasible is normal: look at
    ``feasibility`` as well.

    Args:
        objective: one of :mod:`unknot.solvers.objectives`, a differentiable torch function of x, or an array y for
            ½‖x - y‖².
        atoms: a set of :mod:`unknot.solvers.atoms`, a matrix with one atom in each column, or a function of a
            direction.
        constraints: terms of :mod:`unknot.solvers.terms`, constraints and Lipschitz functions alike.
        x0: start; forgotten after the first step, as η_1 = 1.
        beta0: β_0; too large and constraints are met late, too small and the objective falls late.
        normalise: smooth term i with β_k‖A_i‖², which is to divide every A_i by its norm; False takes the A_i as they
            are.
        step, smoothing: η_k and β_k as functions of k = 1, 2, …, if not those above.
        oracle_error: δ ≥ 0: let the oracle's answers be wrong by as much as the additive error of the analysis,
            δ η_k/2 · diam(𝒜)² (L_f + ‖A‖²/β_k), allows. For studies; needs L_f and the diameter.
        max_iterations: updates at most.
        tol: stop once the gap is at most this and the feasibility at most ``feasibility_tol``; 0 does not stop.
        feasibility_tol: see ``tol``.
        time_limit: seconds.
        callback: gets a :class:`State` for every iterate; returning True stops the run.
        progress: show a progress bar.
        evaluate_every: iterations between evaluations of value and feasibility, for the trace.

    Returns:
        A :class:`Result` with ``feasibility`` = dist(Aθ, 𝒦), ``violations`` of every constraint, and both traces. Its
        status is "infeasible", with a warning, if the constraints certainly cannot be met.

    >>> import numpy as np
    >>> from unknot.solvers import homotopy_cgm
    >>> from unknot.solvers.atoms import L2Ball
    >>> from unknot.solvers.terms import Box
    >>> result = homotopy_cgm(np.array([2.0, -1.0]), L2Ball(3.0), Box(0.0, 1.0), max_iterations=20_000)
    >>> result.x.round(1) + 0.0, result.feasibility < 0.02
    (array([1., 0.]), True)
    """
    smooth = Exact(as_objective(objective))
    return _solve(
        "homotopy_cgm",
        smooth,
        atoms,
        constraints,
        x0,
        step or (lambda k: 2.0 / (k + 1.0)),
        smoothing or _decaying(beta0, 1),
        lambda k: 1.0,
        normalise=normalise,
        oracle_error=oracle_error,
        seed=0,
        max_iterations=max_iterations,
        tol=tol,
        feasibility_tol=feasibility_tol,
        time_limit=time_limit,
        callback=callback,
        progress=progress,
        evaluate_every=evaluate_every,
    )[0]


def stochastic_homotopy_cgm(
    objective: Any,
    atoms: Any,
    constraints: Term | Sequence[Term] = (),
    x0: Any = None,
    *,
    beta0: float = 1.0,
    normalise: bool = True,
    step: Schedule | None = None,
    smoothing: Schedule | None = None,
    averaging: Schedule | None = None,
    oracle_error: float = 0.0,
    seed: int = 0,
    max_iterations: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
    evaluate_every: int = 1,
) -> Result:
    """Minimise E f(θ, ω) + Σ g_i(A_i θ) over conv(𝒜) (Algorithm "Stochastic Homotopy CGM").

        η_k = 9/(k+8),   β_k = β_0/√(k+8),   ρ_k = 4/(k+7)^(2/3),   k = 1, 2, …
        d_k = (1 - ρ_k) d_{k-1} + ρ_k ∇f(θ_k, ω_k)
        v_k = d_k + Σ_i β_k⁻¹ A_iᵀ(A_i θ_k - prox_{β_k g_i}(A_i θ_k))
        s_k = argmin_{θ ∈ conv(𝒜)} ⟨v_k, θ⟩,   θ_{k+1} = θ_k + η_k (s_k - θ_k)

    In expectation the objective falls like k^(-1/3) and the distance from the constraints like k^(-5/12). As k starts
    at 1, the first η and ρ are 1 and the start is forgotten. The oracle gets β_k v_k, which has the same answer and no
    large numbers in it. There is no certificate: ``gap`` is infinite.

    Args:
        objective: a function (x, generator) → ∇f(x, ω), or a :class:`StochasticObjective` such as :class:`Sampled`
            (with E f for the trace) or :class:`SampledEntries`, or a deterministic one.
        averaging: ρ_k as a function of k = 1, 2, …, if not the above.
        seed: of the draws ω_k.

    Other arguments and the result are those of :func:`homotopy_cgm`.

    >>> import numpy as np
    >>> from unknot.solvers import stochastic_homotopy_cgm
    >>> from unknot.solvers.atoms import L2Ball
    >>> from unknot.solvers.terms import Box
    >>> noisy = lambda x, rng: x - rng.normal([2.0, -1.0], 0.5)
    >>> result = stochastic_homotopy_cgm(noisy, L2Ball(3.0), Box(0.0, 1.0), np.zeros(2), max_iterations=20_000)
    >>> bool(np.allclose(result.x, [1.0, 0.0], atol=0.1))
    True
    """
    return _solve(
        "stochastic_homotopy_cgm",
        as_stochastic(objective),
        atoms,
        constraints,
        x0,
        step or (lambda k: 9.0 / (k + 8.0)),
        smoothing or _decaying(beta0, 8),
        averaging or (lambda k: min(1.0, 4.0 / (k + 7.0) ** (2 / 3))),
        normalise=normalise,
        oracle_error=oracle_error,
        seed=seed,
        max_iterations=max_iterations,
        tol=0.0,
        feasibility_tol=0.0,
        time_limit=time_limit,
        callback=callback,
        progress=progress,
        evaluate_every=evaluate_every,
    )[0]


def stochastic_frank_wolfe(objective: Any, atoms: Any, x0: Any = None, **options: Any) -> Result:
    """Minimise E f(θ, ω) over conv(𝒜): the stochastic Frank-Wolfe of Mokhtari et al., without any constraint.

    It is :func:`stochastic_homotopy_cgm` without terms: the same η_k and ρ_k, and no β_k. Where gradients live on a
    support and atoms have rank one, the oracle sees a sparse matrix and the iterate is kept as its factors.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import Simplex
    >>> noisy = lambda x, rng: x - rng.normal([0.8, 0.6, -1.0], 0.1)
    >>> stochastic_frank_wolfe(noisy, Simplex(), np.eye(3)[0], max_iterations=5000).x.round(1) + 0.0
    array([0.6, 0.4, 0. ])
    """
    return stochastic_homotopy_cgm(objective, atoms, (), x0, **options)


def _decaying(beta0: float, offset: int) -> Schedule:
    if not (beta0 > 0 and math.isfinite(beta0)):
        raise ValueError(f"beta0 is {beta0}: expected a positive number.")
    return lambda k: beta0 / math.sqrt(k + offset)


def _solve(
    name: str,
    smooth: StochasticObjective,
    atoms: Any,
    constraints: Term | Sequence[Term],
    x0: Any,
    step: Schedule,
    smoothing: Schedule,
    averaging: Schedule,
    *,
    normalise: bool,
    oracle_error: float,
    seed: int,
    max_iterations: int,
    tol: float,
    feasibility_tol: float,
    time_limit: float | None,
    callback: Callable[[State], Any] | None,
    progress: bool,
    evaluate_every: int,
    first: int = 1,
    averaged: Tensor | None = None,
) -> tuple[Result, Tensor]:
    """The loop of both methods, and of a stream that goes on from k = ``first`` with an averaged gradient."""
    if evaluate_every < 1:
        raise ValueError(f"evaluate_every is {evaluate_every}: expected at least 1.")
    atom_set, start, numpy = _read(smooth, as_atoms(atoms), x0)
    terms = [term.bind(start, numpy) for term in _as_terms(constraints)]
    norms = [term.norm(start) if normalise else 1.0 for term in terms]
    low_rank = not terms and smooth.support is not None and x0 is None and start.device.type == "cpu"
    x: Iterate = DenseIterate(start)
    if low_rank:
        assert smooth.support is not None
        x = LowRankIterate((start.shape[0], start.shape[1]), smooth.support, start.dtype)
    d = averaged
    if d is None:
        d = torch.zeros_like(start) if smooth.support is None else torch.zeros(len(smooth.support)).to(start)
    exact = isinstance(smooth, Exact) and averaging(2) == 1
    generator = smooth.generator(seed)
    if oracle_error:
        atom_set = _inexact(atom_set, oracle_error, smooth, step, smoothing, terms, norms, start)
    lower_bound = -math.inf
    run = Run(max_iterations, 0.0, time_limit, callback, progress, numpy, name)

    while True:
        k = first + run.iteration
        eta, beta, rho = step(k), smoothing(k), averaging(k)
        _check_schedule(k, eta, beta, rho)
        d = smooth.average(d, x, rho, generator)
        v, residuals = _direction(d, x, smooth, terms, norms, beta)
        if not low_rank:
            check_gradient(v, run.iteration)
        z = atom_set.atom(v, x.dense() if oracle_error else None)

        value, feasibility, gap = math.nan, math.nan, math.inf
        if run.iteration % evaluate_every == 0 or run.iteration >= max_iterations:
            value, feasibility, smoothed = _evaluate(x, smooth, terms, norms, residuals, beta)
            if exact:
                bound = smoothed - atom_set.bound(v, x.dense(), z) / (beta if terms else 1.0)
                lower_bound = max(lower_bound, bound)
                gap = value - lower_bound
        done = 0 < tol >= gap and feasibility <= feasibility_tol
        if run.finished(x.dense() if callback is not None else start, value, gap, done, feasibility=feasibility):
            break
        x.step(z, eta)

    if math.isnan(value):
        value, feasibility, _ = _evaluate(x, smooth, terms, norms, residuals, beta)
        run.values[-1], run.feasibilities[-1] = value, feasibility
    if run.status != Status.CONVERGED:
        run.status = _feasible_or_warn(run, atom_set, x, terms, norms, start)
    more: dict[str, Any] = {}
    factors = x.factors() if isinstance(x, LowRankIterate) else None
    if factors is not None:
        left, right = factors
        sizes = torch.linalg.vector_norm(left, dim=1)
        more["weights"] = to_user(sizes, numpy)
        more["active"] = tuple(
            RankOne(1.0, None, u / size, w) for u, w, size in zip(left, right, sizes.tolist(), strict=True)
        )
    violations = tuple(float(torch.linalg.vector_norm(r)) for t, r in zip(terms, residuals, strict=True) if t.indicator)
    result = run.result(x.dense(), feasibility=feasibility, violations=violations, **more)
    return result, d


def _read(smooth: StochasticObjective, atom_set: AtomSet, x0: Any) -> tuple[AtomSet, Tensor, bool]:
    """Agree on shape, dtype, device and kind of array; the start is x0 or an atom."""
    start = None if x0 is None else as_tensor(x0, "x0")
    shape = smooth.shape or atom_set.shape or (None if start is None else tuple(start.shape))
    if shape is None:
        raise ValueError("the shape of x is unknown: give x0, or the set's dimension, for example L1Ball(1.0, dim=10).")
    atom_set.check_shape(shape, "the objective's argument")
    if start is not None and tuple(start.shape) != tuple(shape):
        raise ValueError(f"x0 has shape {list(start.shape)} but the problem is over {list(shape)}: make them agree.")
    dtype, device, numpy = smooth.dtype, smooth.device, smooth.numpy
    if smooth.adopts:
        if start is not None:
            dtype, device = start.dtype, start.device
        numpy = smooth.numpy = wants_numpy(x0)
    bound = atom_set.bind(dtype, device, numpy)
    if start is None:
        start = torch.zeros(tuple(shape), dtype=dtype, device=device)
        if smooth.support is None:
            start = bound.atom(torch.ones_like(start)).dense().reshape(start.shape)
    return bound, start.to(dtype=dtype, device=device).clone(), numpy


def _as_terms(constraints: Term | Sequence[Term]) -> list[Term]:
    terms = [constraints] if isinstance(constraints, Term) else list(constraints)
    for term in terms:
        if not isinstance(term, Term):
            raise ValueError(
                f"a constraint is a {type(term).__name__}: expected a term of unknot.solvers.terms, such as Box(0, 1)."
            )
    return terms


def _check_schedule(k: int, eta: float, beta: float, rho: float) -> None:
    if not (0 <= eta <= 1 and beta > 0 and 0 <= rho <= 1):
        raise ValueError(
            f"the schedules give η = {eta}, β = {beta}, ρ = {rho} at k = {k}: expected η and ρ in [0, 1] and β > 0."
        )


def _direction(
    d: Tensor, x: Iterate, smooth: StochasticObjective, terms: list[Term], norms: list[float], beta: float
) -> tuple[Any, list[Tensor]]:
    """β v = β d + Σ_i ‖A_i‖⁻² A_iᵀ(A_i θ - prox(A_i θ)), and the residuals; without terms v = d, maybe sparse."""
    if isinstance(x, LowRankIterate):
        return x.sparse(d), []
    residuals = [term.residual(x.x, beta * norm**2) for term, norm in zip(terms, norms, strict=True)]
    if not terms and smooth.support is None:
        return d, residuals
    v = torch.zeros_like(x.x) if not terms else None
    for term, residual, norm in zip(terms, residuals, norms, strict=True):
        back = term.adjoint(residual, x.x)
        if v is not None:
            v.add_(back, alpha=norm**-2)
        else:
            v = back * norm**-2
    assert v is not None
    if smooth.support is None:
        v.add_(d, alpha=beta)
    else:
        v.view(-1).index_add_(0, smooth.support, d, alpha=beta if terms else 1.0)
    return v, residuals


def _evaluate(
    x: Iterate,
    smooth: StochasticObjective,
    terms: list[Term],
    norms: list[float],
    residuals: list[Tensor],
    beta: float,
) -> tuple[float, float, float]:
    """f + Σ Lipschitz g, the distance from all constraints, and the smoothed F_β = f + Σ g(p) + ‖Aθ - p‖²/(2β)."""
    value = smoothed = smooth.value(x)
    squared = 0.0
    for term, norm, residual in zip(terms, norms, residuals, strict=True):
        size = float(residual.double().square().sum())
        smoothed += size / (2 * beta * norm**2)
        if term.indicator:
            squared += size
        else:
            y = term.apply(x.dense())
            value += term.value(y)
            smoothed += term.value(y - residual)
    return value, math.sqrt(squared), smoothed


def _inexact(
    atom_set: AtomSet,
    delta: float,
    smooth: StochasticObjective,
    step: Schedule,
    smoothing: Schedule,
    terms: list[Term],
    norms: list[float],
    like: Tensor,
) -> AtomSet:
    """The oracle with additive error δ η_k/2 · D² (L_f + ‖A‖²/β_k), times β_k as the oracle gets β_k v_k."""
    diameter, smoothness = atom_set.diameter, smooth.smoothness
    if not delta > 0:
        raise ValueError(f"oracle_error is {delta}: expected 0 (as exact as the oracle is) or more.")
    if diameter is None or smoothness is None:
        raise ValueError(
            "oracle_error needs the diameter of the set and the smoothness of f, one of which is unknown: use a set "
            "with a diameter, and Sampled(..., smoothness=L) or an objective that knows its L."
        )
    squared = sum((term.norm(like) / norm) ** 2 for term, norm in zip(terms, norms, strict=True))

    def error(question: int) -> float:
        k = question + 1
        beta = smoothing(k) if terms else 1.0
        return delta * step(k) / 2 * diameter**2 * (smoothness * beta + squared)

    return Inexact(atom_set, additive=error)


TREND = -0.05
"""A distance from the constraints that falls more slowly than k to this power does not fall."""


def _feasible_or_warn(
    run: Run, atom_set: AtomSet, x: Iterate, terms: list[Term], norms: list[float], like: Tensor
) -> Status:
    """Warn if feasibility does not improve; "infeasible" if no point of the hull meets the constraints for certain.

    The certificate is that of Frank-Wolfe on h(θ) = Σ ‖A_i‖⁻² dist²(A_i θ, 𝒦_i) / 2, from where the run ended:
    h(θ) - ⟨∇h(θ), θ - s⟩ ≤ min h, so if it is positive, no point has h = 0.
    """
    distances = np.array(run.feasibilities)
    k = np.arange(1, len(distances) + 1)
    known = np.isfinite(distances) & (k >= len(k) / 4)
    if len(distances) < 100 or known.sum() < 10 or not distances[known].min() > 1e-6 * max(1.0, np.nanmax(distances)):
        return run.status
    trend = float(np.polyfit(np.log(k[known]), np.log(distances[known]), 1)[0])
    if trend < TREND:
        return run.status
    pairs = [(term, norm) for term, norm in zip(terms, norms, strict=True) if term.indicator]
    theta, lowest = DenseIterate(x.dense().clone()), -math.inf
    for step in range(200):
        gradient, value = torch.zeros_like(like), 0.0
        for term, norm in pairs:
            residual = term.residual(theta.x, 1.0)
            gradient += term.adjoint(residual, like) * norm**-2
            value += float(residual.square().sum()) / (2 * norm**2)
        z = atom_set.atom(gradient, theta.x)
        lowest = max(lowest, value - atom_set.bound(gradient, theta.x, z))
        if lowest > 1e-6 * value:
            break
        theta.step(z, 2 / (step + 3))
    said = (
        f"the distance from the constraints is {distances[-1]:.4g} after {len(distances) - 1} iterations and does not "
        f"fall (like k^{trend:.2f}; expected k^-0.4 or faster)"
    )
    if lowest > 0:
        warnings.warn(
            f"{said}: the constraints are infeasible, no point of {atom_set} meets {', '.join(map(str, terms))}. "
            "Enlarge the set or loosen the constraints.",
            UserWarning,
            stacklevel=4,
        )
        return Status.INFEASIBLE
    warnings.warn(
        f"{said}: the constraints may be infeasible, or beta0 is too large; try a tenth of it.",
        UserWarning,
        stacklevel=4,
    )
    return run.status


def s3ccm(
    objective: Any,
    project: Callable[[Any], Any],
    constraint: Term | None = None,
    x0: Any = None,
    *,
    gamma: float | Schedule = 1.0,
    seed: int = 0,
    max_iterations: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
    evaluate_every: int = 1,
) -> Result:
    """Stochastic three-composite minimisation of Yurtsever et al. (S3CCM), the baseline that projects.

        x = P_𝒳(y + γu),   u ← u + (y - x)/γ,   y ← prox_{γg}(x - γ(u + ∇f(x, ω)))

    Every iteration projects on 𝒳, a full decomposition for sets of matrices. A γ above 1/L_f may not converge, the
    thesis' γ = 1 with L_f = 2 included; a function of k that falls does.

    Args:
        objective: as for :func:`stochastic_homotopy_cgm`.
        project: x → nearest point of 𝒳.
        constraint: a term without a map, such as ``Box``.
        x0: start; 0 if left out.
        gamma: γ, or a function of k = 1, 2, ….

    Other arguments and the result are those of :func:`stochastic_homotopy_cgm`.

    >>> import numpy as np
    >>> from unknot.solvers.terms import Box
    >>> ball = lambda x: x * min(1.0, 3.0 / np.linalg.norm(x))
    >>> noisy = lambda x, rng: x - rng.normal([2.0, -1.0], 0.5)
    >>> result = s3ccm(noisy, ball, Box(0.0, 1.0), np.ones(2), gamma=lambda k: 1 / k, max_iterations=2000)
    >>> bool(np.allclose(result.x, [1.0, 0.0], atol=0.1))
    True
    """
    smooth = as_stochastic(objective)
    _, start, numpy = _read(smooth, as_atoms(lambda v: v), x0)
    term = None if constraint is None else _as_terms(constraint)[0].bind(start, numpy)
    if term is not None and term.apply(start) is not start:
        raise ValueError(f"{term} has a map: S3CCM takes terms of θ itself, such as Box(0, 1).")
    rule = gamma if callable(gamma) else lambda k: float(gamma)
    generator = smooth.generator(seed)

    def projected(y: Tensor) -> Tensor:
        return as_tensor(project(to_user(y, numpy)), "the projection").to(y)

    y = start
    dual = (y - projected(y)) / rule(1)
    run = Run(max_iterations, 0.0, time_limit, callback, progress, numpy, "s3ccm")
    while True:
        size = rule(run.iteration + 1)
        if not (size > 0 and math.isfinite(size)):
            raise ValueError(f"gamma is {size} at k = {run.iteration + 1}: expected a positive number.")
        x = DenseIterate(projected(y + size * dual))
        if not is_finite(x.x):
            run.status = Status.DIVERGED
            break
        value, feasibility = math.nan, math.nan
        residual = torch.zeros(()) if term is None else term.residual(x.x, size)
        if run.iteration % evaluate_every == 0 or run.iteration >= max_iterations:
            value, feasibility = smooth.value(x), float(torch.linalg.vector_norm(residual))
        if run.finished(x.x, value, math.inf, feasibility=feasibility):
            break
        dual = dual + (y - x.x) / size
        d = torch.zeros_like(x.x) if smooth.support is None else torch.zeros(len(smooth.support)).to(x.x)
        d = smooth.average(d, x, 1.0, generator)
        y = x.x - size * dual
        if smooth.support is None:
            y.sub_(d, alpha=size)
        else:
            y.view(-1).index_add_(0, smooth.support, d, alpha=-size)
        y = y if term is None else term.prox(y, size)
    feasibility = float(torch.linalg.vector_norm(residual))
    return run.result(x.x, value=smooth.value(x), feasibility=feasibility, violations=(feasibility,) if term else ())


def minimise_over_intersection(
    objective: Any, first: Any, second: Any, x0: Any = None, *, splitting: str = "auto", **options: Any
) -> Result:
    """Minimise f over 𝒰 ∩ 𝒱, each with its own oracle or projection (paragraph "Splitting").

        product:     min f(u) over (u, v) ∈ 𝒰 × 𝒱 with u = v; both sets are asked separately
        projection:  min f(u) over u ∈ 𝒰 with u ∈ 𝒱, by the projection on 𝒱

    Args:
        objective: deterministic, as for :func:`homotopy_cgm`, or a :class:`StochasticObjective`.
        first: 𝒰, an atom set; it needs its shape for "product".
        second: 𝒱, an atom set (product) or a constraint of :mod:`unknot.solvers.terms` (projection).
        x0: start of u.
        splitting: "product", "projection", or "auto" by the kind of ``second``.
        options: of :func:`homotopy_cgm` or :func:`stochastic_homotopy_cgm`.

    Returns:
        The :class:`Result` with u as ``x``, which lies in conv(𝒰); ``feasibility`` is ‖u - v‖, or dist(u, 𝒱).

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L1Ball, L2Ball
    >>> y = np.array([2.0, 0.5, 0.0])
    >>> both = minimise_over_intersection(y, L2Ball(1.0, dim=3), L1Ball(1.2, dim=3), max_iterations=20_000)
    >>> bool(np.abs(both.x).sum() < 1.22), bool(np.linalg.norm(both.x) <= 1)
    (True, True)
    """
    kind = choose(splitting, ("auto", "product", "projection"), "splitting")
    if kind == "auto":
        kind = "projection" if isinstance(second, Term) else "product"
    stochastic = isinstance(objective, StochasticObjective)
    solver: Any = stochastic_homotopy_cgm if stochastic else homotopy_cgm
    if kind == "projection":
        if not isinstance(second, Term):
            raise ValueError("splitting by projection needs a constraint as the second set, such as Box(0, 1).")
        return solver(objective, first, second, x0, **options)
    sets = as_atoms(first), as_atoms(second)
    shape = sets[0].shape
    if shape is None or sets[1].shape != shape:
        raise ValueError(f"sets of shapes {shape} and {sets[1].shape} do not intersect: expected the same, and known.")
    size = math.prod(shape)
    start = None if x0 is None else to_user(as_tensor(x0, "x0").reshape(-1).repeat(2), wants_numpy(x0))
    smooth = objective if stochastic else Exact(as_objective(objective))
    numpy = wants_numpy(x0) if smooth.adopts else smooth.numpy
    block = _FirstBlock(smooth, shape) if stochastic else _first_block(smooth.objective, shape)
    result = solver(block, Product(*sets), Agreement(size), start, **options)
    u = as_tensor(result.x, "x")[:size].reshape(shape)
    return dataclasses.replace(result, x=to_user(u, numpy))


def _first_block(f: Objective, shape: tuple[int, ...]) -> Differentiable:
    """f(u) of θ = (u, v), exactly."""
    size = math.prod(shape)

    def gradient(x: Tensor) -> Tensor:
        padded = torch.zeros_like(x)
        padded[:size] = f.gradient(x[:size].reshape(shape)).reshape(-1)
        return padded

    return Differentiable(
        lambda x: f.value(x[:size].reshape(shape)),
        gradient=gradient,
        smoothness=f.smoothness,
        shape=(2 * size,),
        dtype=f.dtype,
    )


class _FirstBlock(StochasticObjective):
    """E f(u, ω) of θ = (u, v)."""

    def __init__(self, inner: StochasticObjective, shape: tuple[int, ...]) -> None:
        self.inner, self.block, self.size = inner, shape, math.prod(shape)
        self.shape = (2 * self.size,)
        self.dtype, self.device, self.smoothness = inner.dtype, inner.device, inner.smoothness
        self.support, self.adopts = inner.support, inner.adopts

    @property
    def numpy(self) -> bool:  # type: ignore[override]
        return self.inner.numpy

    @numpy.setter
    def numpy(self, numpy: bool) -> None:
        self.inner.numpy = numpy

    def generator(self, seed: int) -> Any:
        return self.inner.generator(seed)

    def _first(self, x: Iterate) -> DenseIterate:
        return DenseIterate(x.dense()[: self.size].reshape(self.block))

    def average(self, d: Tensor, x: Iterate, rho: float, generator: Any) -> Tensor:
        if self.support is not None:
            return self.inner.average(d, self._first(x), rho, generator)
        part = d[: self.size].reshape(self.block)
        d[: self.size] = self.inner.average(part, self._first(x), rho, generator).reshape(-1)
        return d

    def value(self, x: Iterate) -> float:
        return self.inner.value(self._first(x))
