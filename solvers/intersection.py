"""Intersections of two sets, each with its own oracle or projection (paragraph "Splitting")."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, to_user, wants_numpy
from unknot.solvers.atoms import Product, as_atoms
from unknot.solvers.choices import choose
from unknot.solvers.homotopy import augmented_lagrangian_cgm, homotopy_cgm, stochastic_homotopy_cgm
from unknot.solvers.objectives import Differentiable, Objective, as_objective
from unknot.solvers.result import Result
from unknot.solvers.stochastic import DenseIterate, Exact, Iterate, StochasticObjective
from unknot.solvers.terms import Agreement, Term


def minimise_over_intersection(
    objective: Any,
    first: Any,
    second: Any,
    x0: Any = None,
    *,
    splitting: str = "auto",
    method: str = "augmented",
    **options: Any,
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
        method: "augmented" for :func:`augmented_lagrangian_cgm`, which comes closer, or "homotopy" for the thesis'
            :func:`homotopy_cgm`. A stochastic objective is solved by :func:`stochastic_homotopy_cgm`.
        options: of that solver.

    Returns:
        The :class:`Result` with u as ``x``, which lies in conv(𝒰); ``feasibility`` is ‖u - v‖, or dist(u, 𝒱).

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L1Ball, L2Ball
    >>> y = np.array([2.0, 0.5, 0.0])
    >>> both = minimise_over_intersection(y, L2Ball(1.0, dim=3), L1Ball(1.2, dim=3), max_iterations=600)
    >>> bool(np.abs(both.x).sum() < 1.201), bool(np.linalg.norm(both.x) <= 1)
    (True, True)
    """
    kind = choose(splitting, ("auto", "product", "projection"), "splitting")
    if kind == "auto":
        kind = "projection" if isinstance(second, Term) else "product"
    stochastic = isinstance(objective, StochasticObjective)
    choice = choose(method, ("augmented", "homotopy"), "method")
    solver: Any = augmented_lagrangian_cgm if choice == "augmented" else homotopy_cgm
    if stochastic:
        solver = stochastic_homotopy_cgm
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
