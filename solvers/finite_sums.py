"""Frank-Wolfe on finite sums of functions of linear predictors, with gradients of reduced variance."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unknot.solvers.active import ActiveSet
from unknot.solvers.certificates import HullCertificate
from unknot.solvers.lines import Direction
from unknot.solvers.problem import check_gradient, read_problem
from unknot.solvers.result import Result, Run, State


def variance_reduced_frank_wolfe(
    objective: Any,
    atoms: Any,
    x0: Any = None,
    *,
    batch_size: int | None = None,
    seed: int = 0,
    max_iterations: int = 10_000,
    tol: float = 1e-6,
    rtol: float = 0.0,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Minimise Σ_i φ_i(⟨a_i, θ⟩) over conv(𝒜), looking at a few rows in each iteration (Négiar et al., 2020).

        draw a batch B;   α_i ← φ_i'(⟨a_i, θ_k⟩) for i ∈ B;   r ← Σ_i α_i a_i, from what changed
        z_k = lmo_𝒜(r),   θ_{k+1} = θ_k + 2/(k+2) (z_k - θ_k)

    r remembers the derivative of every row as it was last seen, so that its error vanishes with the steps, unlike that
    of a fresh sample (:func:`stochastic_frank_wolfe`). Once in every pass over the rows the full gradient is computed,
    which gives the certificate and renews r; in between the gap rests on the best lower bound so far.

    Args:
        objective: :class:`LeastSquares` or :class:`Logistic`.
        atoms, x0: as for :func:`frank_wolfe`.
        batch_size: rows in each iteration; a hundredth of them if left out.
        seed: of the batches.
        max_iterations: updates at most.
        tol, rtol, time_limit, callback, progress: as for :func:`frank_wolfe`.

    Returns:
        A :class:`Result`.

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
    run = Run(max_iterations, tol, time_limit, callback, progress, problem.numpy, "variance_reduced_frank_wolfe", rtol)
    random = np.random.default_rng(seed)
    every = max(1, math.ceil(rows / size))
    alphas = total = zero  # φ_i'(⟨a_i, θ⟩) as last seen, and Σ_i α_i a_i
    ridge = getattr(f, "ridge", 0.0)

    while True:
        if run.iteration % every == 0 or run.iteration >= max_iterations or run.expired():
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
