"""Convex hulls with affine constraints: homotopy conditional gradients, with and without dual variables.

    minimise  E_ω f(θ, ω) + Σ_i g_i(A_i θ)   over θ ∈ conv(𝒜)

(chapter "Convex Hulls with Affine Constraints: Stochastic Frank-Wolfe"). Every g_i is smoothed with a β_k → 0,

    ∇g_β(Aθ) = β⁻¹ Aᵀ(Aθ - prox_{βg}(Aθ)),

so that one question to the oracle of 𝒜 in each iteration is all that is ever solved.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor
from typing_extensions import Unpack

from unknot.solvers import schedules
from unknot.solvers._arrays import as_tensor, dot, to_user, wants_numpy
from unknot.solvers.atoms import AtomSet, Inexact, as_atoms
from unknot.solvers.feasibility import feasible_or_warn
from unknot.solvers.objectives import as_objective
from unknot.solvers.problem import check_gradient
from unknot.solvers.result import Result, Run, State, Status
from unknot.solvers.schedules import Rule, Schedule
from unknot.solvers.stochastic import DenseIterate, Exact, Iterate, LowRankIterate, StochasticObjective, as_stochastic
from unknot.solvers.structured import RankOne
from unknot.solvers.terms import Term


class Limits(TypedDict, total=False):
    """When a run ends and what is seen of it: keywords of every solver here, explained at :func:`homotopy_cgm`."""

    max_iterations: int
    time_limit: float | None
    callback: Callable[[State], Any] | None
    progress: bool
    evaluate_every: int


class CertifiedLimits(Limits, total=False):
    """And those of runs that have a gap to stop on."""

    tol: float
    feasibility_tol: float


def homotopy_cgm(
    objective: Any,
    atoms: Any,
    constraints: Term | Sequence[Term] = (),
    x0: Any = None,
    *,
    beta0: float = 1.0,
    normalise: bool = True,
    step: Rule | None = None,
    smoothing: Rule | None = None,
    oracle_error: float = 0.0,
    **limits: Unpack[CertifiedLimits],
) -> Result:
    """Minimise f(θ) + Σ g_i(A_i θ) over conv(𝒜): Homotopy CGM of Yurtsever et al., the deterministic baseline.

        η_k = 2/(k+1),   β_k = β_0/√(k+1),   k = 1, 2, …
        v_k = ∇f(θ_k) + Σ_i β_k⁻¹ A_iᵀ(A_i θ_k - prox_{β_k g_i}(A_i θ_k))
        s_k = argmin_{θ ∈ conv(𝒜)} ⟨v_k, θ⟩,   θ_{k+1} = θ_k + η_k (s_k - θ_k)

    Both the objective and the distance from the constraints fall like 1/√k. ``gap`` is a certificate of ours, by weak
    duality: with p_i = prox_{βg_i}(A_i θ), f(θ) + Σ (g_i(p_i) + ‖A_i θ - p_i‖²/β) - ⟨v, θ - s⟩ is a lower bound on
    the optimum, and ``gap`` is the value minus the best such bound. A value below the optimum while infeasible is
    normal: look at ``feasibility`` as well.

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
        limits: ``max_iterations=1000``, updates at most; ``tol=0``: stop once the gap is at most this and the
            feasibility at most ``feasibility_tol=1e-3``, 0 does not stop; ``time_limit=None`` in seconds;
            ``callback=None``: gets a :class:`State` for every iterate, returning True stops the run;
            ``progress=False``: show a progress bar; ``evaluate_every=1``: iterations between evaluations of value and
            feasibility, for the trace.

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
    schedule = schedules.hcgm(beta0, step, smoothing)
    solver = Homotopy(
        Exact(as_objective(objective)), atoms, constraints, x0, schedule, normalise=normalise, oracle_error=oracle_error
    )
    return solver.run(name="homotopy_cgm", **limits)


def augmented_lagrangian_cgm(
    objective: Any,
    atoms: Any,
    constraints: Term | Sequence[Term] = (),
    x0: Any = None,
    *,
    beta0: float = 1.0,
    normalise: bool = True,
    step: Rule | None = None,
    smoothing: Rule | None = None,
    mean: float | None = 3.0,
    **limits: Unpack[CertifiedLimits],
) -> Result:
    """Minimise f(θ) + Σ g_i(A_i θ) over conv(𝒜) with dual variables: CGAL of Yurtsever, Fercoq and Cevher (2019).

        η_k = 2/(k+1),   λ_k = λ_0 √(k+1),   k = 1, 2, …,   λ_0 = 1/β_0
        v_k = ∇f(θ_k) + Σ_i A_iᵀ ŷ_i,   ŷ_i = λ_k (w_i - prox(w_i)),   w_i = A_i θ_k + y_i/λ_k
        s_k = argmin_{θ ∈ conv(𝒜)} ⟨v_k, θ⟩,   θ_{k+1} = θ_k + η_k (s_k - θ_k)
        y_i ← y_i + σ_k (A_i θ_{k+1} - prox(A_i θ_{k+1} + y_i/λ_k)),   σ_k = min(λ_0, 4 D² λ_0 (k+1)^(-3/2) / ‖·‖²)

    It is :func:`homotopy_cgm` with a price y_i on every term: λ_k need not grow as far for the constraints to be met.
    An iteration takes about as long; docs/solvers/homotopy.md has both on the relaxation of k-means. D is the diameter
    of the set; σ_k is that of Yurtsever et al., "Scalable Semidefinite Programming" (2021).

    Iterates swing around the optimum as prices rise and fall. What is returned, evaluated and shown is therefore their
    mean with weights ∝ k^p, p = ``mean``, which swings far less: it is in the hull, and as objective and distance are
    convex, what holds of all iterates holds of it. ``mean=None`` is the last iterate, as in the papers.

    Other arguments and the result are those of :func:`homotopy_cgm`, with the prices in ``duals``. The gap is a
    certificate here too: ŷ are dual variables.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L2Ball
    >>> from unknot.solvers.terms import Box
    >>> result = augmented_lagrangian_cgm(np.array([2.0, -1.0]), L2Ball(3.0), Box(0.0, 1.0), max_iterations=2000)
    >>> result.x.round(2) + 0.0, result.feasibility < 1e-3
    (array([1., 0.]), True)
    """
    schedule = schedules.cgal(beta0, step, smoothing, mean)
    solver = Homotopy(Exact(as_objective(objective)), atoms, constraints, x0, schedule, normalise=normalise)
    return solver.run(name="augmented_lagrangian_cgm", **limits)


def stochastic_homotopy_cgm(
    objective: Any,
    atoms: Any,
    constraints: Term | Sequence[Term] = (),
    x0: Any = None,
    *,
    beta0: float = 1.0,
    normalise: bool = True,
    step: Rule | None = None,
    smoothing: Rule | None = None,
    averaging: Rule | None = None,
    oracle_error: float = 0.0,
    seed: int = 0,
    **limits: Unpack[Limits],
) -> Result:
    """Minimise E f(θ, ω) + Σ g_i(A_i θ) over conv(𝒜) (Algorithm "Stochastic Homotopy CGM").

        η_k = 9/(k+8),   β_k = β_0/√(k+8),   ρ_k = 4/(k+7)^(2/3),   k = 1, 2, …
        d_k = (1 - ρ_k) d_{k-1} + ρ_k ∇f(θ_k, ω_k)
        v_k = d_k + Σ_i β_k⁻¹ A_iᵀ(A_i θ_k - prox_{β_k g_i}(A_i θ_k))
        s_k = argmin_{θ ∈ conv(𝒜)} ⟨v_k, θ⟩,   θ_{k+1} = θ_k + η_k (s_k - θ_k)

    In expectation the objective falls like k^(-1/3) and the distance from the constraints like k^(-5/12). As k starts
    at 1, the first η and ρ are 1 and the start is forgotten. The oracle gets β_k v_k, which has the same answer and no
    large numbers in it. There is no certificate: ``gap`` is infinite. Only of a deterministic f the first gradient,
    into which nothing was averaged yet, bounds the optimum.

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
    schedule = schedules.shcgm(beta0, step, smoothing, averaging)
    solver = Homotopy(
        objective,
        atoms,
        constraints,
        x0,
        schedule,
        normalise=normalise,
        oracle_error=oracle_error,
        seed=seed,
    )
    return solver.run(name="stochastic_homotopy_cgm", **limits)


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


class Homotopy:
    """A run of homotopy conditional gradients that can be gone on with: iterate, averaged gradient, dual variables, k.

    Args:
        objective: as for :func:`stochastic_homotopy_cgm`.
        atoms, constraints, x0: as for :func:`homotopy_cgm`.
        schedule: of :mod:`unknot.solvers.schedules`, by which η_k, β_k and ρ_k go, and whether there are duals.
        normalise, oracle_error, seed: as for :func:`homotopy_cgm` and :func:`stochastic_homotopy_cgm`.
        first: k to begin with.
        averaged: the averaged gradient to begin with, 0 if left out.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L2Ball
    >>> from unknot.solvers.terms import Box
    >>> run = Homotopy(np.array([2.0, -1.0]), L2Ball(3.0), Box(0.0, 1.0), None, schedules.cgal())
    >>> first, second = run.run(500), run.run(500)
    >>> run.k, second.feasibility < first.feasibility
    (1001, True)
    """

    def __init__(
        self,
        objective: Any,
        atoms: Any,
        constraints: Term | Sequence[Term],
        x0: Any,
        schedule: Schedule,
        *,
        normalise: bool = True,
        oracle_error: float = 0.0,
        seed: int = 0,
        first: int = 1,
        averaged: Tensor | None = None,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise ValueError(
                f"schedule is a {type(schedule).__name__}: expected one of unknot.solvers.schedules, such as cgal()."
            )
        objective = as_stochastic(objective)
        self.objective, self.schedule, self.k = objective, schedule, first
        x0 = x0.x if isinstance(x0, Result) else x0
        self.atoms, start, self.numpy = read(objective, as_atoms(atoms), x0)
        self.terms = [term.bind(start, self.numpy) for term in as_terms(constraints)]
        self.norms = [term.norm(start) if normalise else 1.0 for term in self.terms]
        self.oracle_error = oracle_error
        self.x: Iterate = DenseIterate(start)
        sparse = self.atoms.sparse_directions and not self.terms and not oracle_error and x0 is None
        if sparse and objective.support is not None and start.device.type == "cpu":
            self.x = LowRankIterate((start.shape[0], start.shape[1]), objective.support, start.dtype)
        size = start.shape if objective.support is None else (len(objective.support),)
        self.averaged = start.new_zeros(size) if averaged is None else averaged
        self.mean = DenseIterate(start.clone()) if schedule.mean is not None and self.terms else None
        self.duals = [torch.zeros_like(term.apply(start)) for term in self.terms] if schedule.dual is not None else None
        self.lower = -math.inf
        self.generator = objective.generator(seed)
        self._like = start
        if oracle_error:
            self.atoms = self._inexact(oracle_error)

    def run(
        self,
        max_iterations: int = 1000,
        *,
        tol: float = 0.0,
        feasibility_tol: float = 1e-3,
        time_limit: float | None = None,
        callback: Callable[[State], Any] | None = None,
        progress: bool = False,
        evaluate_every: int = 1,
        name: str = "homotopy",
    ) -> Result:
        """So many iterations more; the arguments are those of :func:`homotopy_cgm`."""
        if evaluate_every < 1:
            raise ValueError(f"evaluate_every is {evaluate_every}: expected at least 1.")
        if not (tol >= 0 and feasibility_tol >= 0):
            raise ValueError(f"tol is {tol} and feasibility_tol {feasibility_tol}: expected 0 or more.")
        if tol and not self.objective.exact:
            raise ValueError(f"tol is {tol}, but random gradients give no gap to stop on: use max_iterations instead.")
        run = Run(max_iterations, 0.0, time_limit, callback, progress, self.numpy, name)
        objective, x = self.objective, self.x
        while True:
            eta, beta, rho = self.schedule.at(self.k)
            self.averaged = objective.average(self.averaged, x, rho, self.generator)
            v, residuals = self._direction(beta)
            if isinstance(v, Tensor):
                check_gradient(v, run.iteration)
            answer = self.atoms.ask(v, x.dense() if self.oracle_error else None)
            lower = answer.lower if objective.exact and rho == 1 else -math.inf  # an older gradient bounds nothing
            value, feasibility, gap = math.nan, math.nan, math.inf
            if run.iteration % evaluate_every == 0 or run.iteration >= max_iterations:
                value, feasibility, gap = self._evaluate(v, residuals, lower, beta)
            done = 0 < tol >= gap and feasibility <= feasibility_tol
            shown = self.best.dense() if callback is not None else self._like
            if run.finished(shown, value, gap, done, feasibility=feasibility):
                break
            x.step(answer.atom, eta)
            if self.mean is not None and self.schedule.mean is not None:
                self.mean.approach(x.dense(), (self.schedule.mean + 1) / (self.k + self.schedule.mean))
            self.k += 1
            if self.duals is not None:
                self._raise_prices(beta)
        if math.isnan(value):  # the run ended between two evaluations
            value, feasibility, gap = self._evaluate(v, residuals, lower, beta)
            run.values[-1], run.feasibilities[-1], run.gaps[-1] = value, feasibility, gap
        if run.status != Status.CONVERGED:
            run.status = feasible_or_warn(run, self.atoms, self.best.dense(), self.terms, self.norms)
        return self._result(run, feasibility)

    @property
    def best(self) -> Iterate:
        """What a run returns: the mean of the iterates where there is one, else the last of them."""
        return self.x if self.mean is None else self.mean

    def _direction(self, beta: float) -> tuple[Any, list[Tensor]]:
        """β v = β d + Σ_i ‖A_i‖⁻² A_iᵀ(w_i - prox(w_i)), and these residuals; without terms v = d, maybe sparse."""
        x, d, objective = self.x, self.averaged, self.objective
        if isinstance(x, LowRankIterate):
            return x.sparse(d), []
        residuals = [self._residual(i, beta) for i in range(len(self.terms))]
        if not self.terms and objective.support is None:
            return d, residuals
        v = torch.zeros_like(x.x) if not self.terms else None
        for term, residual, norm in zip(self.terms, residuals, self.norms, strict=True):
            back = term.adjoint(residual, x.x)
            if v is not None:
                v.add_(back, alpha=norm**-2)
            else:
                v = back * norm**-2
        assert v is not None
        if objective.support is None:
            v.add_(d, alpha=beta)
        else:
            v.view(-1).index_add_(0, objective.support, d, alpha=beta if self.terms else 1.0)
        return v, residuals

    def _residual(self, i: int, beta: float) -> Tensor:
        """w - prox(w) for w = A_i θ + β y_i, which is β times the dual variable of the lower bound."""
        term, size = self.terms[i], beta * self.norms[i] ** 2
        if self.duals is None:
            return term.residual(self.x.dense(), size)
        shifted = torch.add(term.apply(self.x.dense()), self.duals[i], alpha=size)
        return shifted - term.prox(shifted, size)

    def _raise_prices(self, beta: float) -> None:
        """y_i ← y_i + σ (A_i θ - prox(A_i θ + β y_i))."""
        assert self.duals is not None
        assert self.schedule.dual is not None
        steps = []
        for i, norm in enumerate(self.norms):
            # A θ - prox(w) = (w - prox(w)) - β y
            steps.append(self._residual(i, beta).sub_(self.duals[i], alpha=beta * norm**2))
        squared = sum(dot(step, step) / norm**2 for step, norm in zip(steps, self.norms, strict=True))
        sigma = self.schedule.dual
        if self.atoms.diameter is not None and squared > 0:
            sigma *= min(1.0, 4 * self.atoms.diameter**2 * len(steps) / (self.k**1.5 * squared))
        for dual, step, norm in zip(self.duals, steps, self.norms, strict=True):
            dual.add_(step, alpha=sigma / norm**2)

    def _evaluate(self, v: Any, residuals: list[Tensor], lower: float, beta: float) -> tuple[float, float, float]:
        """f + Σ Lipschitz g, the distance from all constraints, and the gap."""
        if lower > -math.inf and isinstance(v, Tensor):
            self.lower = max(self.lower, self._bound(v, residuals, lower, beta))
        x, squared = self.best, 0.0
        value = self.objective.value(x)
        for i, term in enumerate(self.terms):
            if not term.indicator:
                value += term.value(term.apply(x.dense()))
            else:
                own = residuals[i] if self.duals is None and self.mean is None else term.residual(x.dense(), beta)
                squared += dot(own, own)
        gap = math.inf if self.lower == -math.inf else value - self.lower  # a value that is not known is NaN
        return value, math.sqrt(squared), gap if self.terms else max(0.0, gap)

    def _bound(self, v: Tensor, residuals: list[Tensor], lower: float, beta: float) -> float:
        """A lower bound on the optimum, rounding included.

        With ŷ_i = residual_i/β_i ∈ ∂g_i(p_i), p_i = prox(w_i), Fenchel's inequality and convexity of f give

            F* ≥ f(θ) + Σ_i (g_i(p_i) + ⟨ŷ_i, A_i θ - p_i⟩) - (⟨v, θ⟩ - min_z ⟨v, z⟩).
        """
        x = self.x.dense()
        bound = self.objective.value(self.x)
        size = abs(bound)
        for i, (term, norm, residual) in enumerate(zip(self.terms, self.norms, residuals, strict=True)):
            away = residual if self.duals is None else residual.sub(self.duals[i], alpha=beta * norm**2)
            part = dot(residual, away) / (beta * norm**2)
            if not term.indicator:
                part += term.value(term.apply(x) - away)
            bound, size = bound + part, size + abs(part)
        scale = beta if self.terms else 1.0
        at = dot(v, x)
        rounding = 1e-14 * math.sqrt(v.numel()) * (size + abs(at) / scale)
        rounding *= 1 if v.dtype == torch.float64 else 1e7
        return bound - (at - lower) / scale - rounding

    def _inexact(self, delta: float) -> AtomSet:
        """The oracle with additive error δ η_k/2 · D² (L_f + ‖A‖²/β_k), times β_k as the oracle gets β_k v_k."""
        diameter, smoothness = self.atoms.diameter, self.objective.smoothness
        if not delta > 0:
            raise ValueError(f"oracle_error is {delta}: expected 0 (as exact as the oracle is) or more.")
        if diameter is None or smoothness is None:
            raise ValueError(
                "oracle_error needs the diameter of the set and the smoothness of f, one of which is unknown: use a "
                "set with a diameter, and Sampled(..., smoothness=L) or an objective that knows its L."
            )
        squared = sum((t.norm(self._like) / norm) ** 2 for t, norm in zip(self.terms, self.norms, strict=True))

        def error(question: int) -> float:
            k = question + 1
            beta = self.schedule.smoothing(k) if self.terms else 1.0
            return delta * self.schedule.step(k) / 2 * diameter**2 * (smoothness * beta + squared)

        return Inexact(self.atoms, additive=error)

    def _result(self, run: Run, feasibility: float) -> Result:
        more: dict[str, Any] = {}
        factors = self.x.factors() if isinstance(self.x, LowRankIterate) else None
        if factors is not None:
            left, right = factors
            sizes = torch.linalg.vector_norm(left, dim=1)
            more["weights"] = to_user(sizes, self.numpy)
            more["active"] = tuple(
                RankOne(1.0, None, u / size, w) for u, w, size in zip(left, right, sizes.tolist(), strict=True)
            )
        x = self.best.dense()
        more["violations"] = tuple(
            float(torch.linalg.vector_norm(term.residual(x, 1.0))) for term in self.terms if term.indicator
        )
        more["duals"] = tuple(to_user(y.clone(), self.numpy) for y in self.duals or ())
        return run.result(x.clone(), feasibility=feasibility, **more)


def read(smooth: StochasticObjective, atom_set: AtomSet, x0: Any) -> tuple[AtomSet, Tensor, bool]:
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


def as_terms(constraints: Term | Sequence[Term]) -> list[Term]:
    """A list of terms, checked."""
    terms = list(constraints) if isinstance(constraints, Iterable) else [constraints]
    for term in terms:
        if not isinstance(term, Term):
            raise ValueError(
                f"a constraint is a {type(term).__name__}: expected a term of unknot.solvers.terms, such as Box(0, 1)."
            )
    return terms
