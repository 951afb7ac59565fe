"""Stochastic three-composite minimisation, the baseline that projects."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, is_finite, to_user
from unknot.solvers.atoms import as_atoms
from unknot.solvers.homotopy import as_terms, read
from unknot.solvers.result import Result, Run, State, Status
from unknot.solvers.schedules import Rule
from unknot.solvers.stochastic import DenseIterate, as_stochastic
from unknot.solvers.terms import Term


def s3ccm(
    objective: Any,
    project: Callable[[Any], Any],
    constraint: Term | None = None,
    x0: Any = None,
    *,
    gamma: float | Rule = 1.0,
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
    if not callable(project):
        raise ValueError(f"project is a {type(project).__name__}: expected a function x -> nearest point of the set.")
    _, start, numpy = read(smooth, as_atoms(lambda v: 0 * v), x0)
    term = None if constraint is None else as_terms(constraint)[0].bind(start, numpy)
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
