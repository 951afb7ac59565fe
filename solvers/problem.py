"""What solvers have in common: reading the problem, and upper bounds on f(θ) - f(θ*), rounding included."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, dot, is_finite, norm, wants_numpy
from unknot.solvers.atoms import AtomSet, as_atoms
from unknot.solvers.atoms.base import ROUNDING
from unknot.solvers.lines import Point
from unknot.solvers.objectives import Objective, as_objective
from unknot.solvers.result import Result
from unknot.solvers.structured import Atom, Decomposition


@dataclass(frozen=True)
class Problem:
    """An objective and an atom set that fit together; ``zero`` is the origin of their space, ``x0`` the start.

    A start that is an earlier result brings its atoms and weights along in ``warm``.
    """

    objective: Objective
    atoms: AtomSet
    zero: Tensor
    x0: Tensor | None
    numpy: bool
    warm: Decomposition | None = None


def read_problem(objective: Any, atoms: Any, x0: Any, smoothness: float | None) -> Problem:
    """Agree on shape, dtype, device and kind of array."""
    f, atom_set = as_objective(objective), as_atoms(atoms)
    if smoothness is not None and not (smoothness > 0 and math.isfinite(smoothness)):
        raise ValueError(f"smoothness is {smoothness}: expected L > 0, or None to use the objective's own.")
    warm = None
    if isinstance(x0, Result):
        warm, x0 = x0, x0.x
    start = None if x0 is None else as_tensor(x0, "x0")
    kinds = [] if x0 is None else [wants_numpy(x0)]
    own = atom_set.kind()
    if own is not None:
        kinds.append(own.numpy)
    dtype, device = f.dtype, f.device
    if f.adopts:
        source = start if start is not None else own
        if source is not None:
            dtype, device = source.dtype, source.device
    else:
        kinds.append(f.numpy)
    shape = f.shape or atom_set.shape or (None if start is None else tuple(start.shape))
    if shape is None:
        raise ValueError("the shape of x is unknown: give x0, or the set's dimension, for example L1Ball(1.0, dim=10).")
    atom_set.check_shape(shape, "the objective's argument")
    if start is not None and tuple(start.shape) != shape:
        raise ValueError(f"x0 has shape {list(start.shape)} but the problem is over {list(shape)}: make them agree.")
    numpy = bool(kinds) and all(kinds)
    return Problem(
        f,
        atom_set.bind(dtype, device, numpy),
        torch.zeros(shape, dtype=dtype, device=device),
        None if start is None else start.to(dtype=dtype, device=device).clone(),
        numpy,
        None if warm is None else _atoms_of(warm, dtype, device),
    )


def _atoms_of(result: Result, dtype: torch.dtype, device: torch.device) -> Decomposition | None:
    """Weights and atoms of a result, if it has any and they are of the run's kind."""
    if not result.active:
        return None
    weights = as_tensor(result.weights, "the weights of x0").reshape(-1).tolist()
    parts: list[tuple[float, Atom]] = list(zip(weights, result.active, strict=True))
    first = result.active[0].dense()
    return parts if first.dtype == dtype and first.device.type == device.type else None


def check_gradient(gradient: Tensor, iteration: int) -> None:
    """Raise if the gradient has entries that are not numbers, before an oracle sees them."""
    if not is_finite(gradient):
        raise ValueError(
            f"the gradient is not finite at iteration {iteration}: expected finite numbers; check that f is "
            "differentiable on the set, and scale its inputs if they overflow."
        )


def _checked(radius: float | None) -> float | None:
    if radius is not None and not radius >= 0:
        raise ValueError(f"radius is {radius}: expected a bound on the atomic norm of the optimum, 0 or more.")
    return radius


def _rounding(gradient: Tensor, size: float) -> float:
    """What rounding may do to ⟨∇f, θ⟩, which is summed in double precision, for ‖θ‖ = ``size``."""
    return ROUNDING * torch.finfo(torch.float64).eps * math.sqrt(gradient.numel()) * norm(gradient) * size


class HullCertificate:
    """The duality gap ⟨∇f(θ), θ⟩ - min_z ⟨∇f(θ), z⟩ ≥ f(θ) - f(θ*) over conv(𝒜), and the best lower bound so far.

    The minimum is bounded by the oracle. An error of the gradient by rounding moves both terms, by at most ‖θ‖ and max
    ‖z‖ times its size.
    """

    def __init__(self, problem: Problem) -> None:
        self._radius = problem.atoms.radius
        self.lower = -math.inf

    def __call__(self, point: Point, gradient: Tensor, value: float, lower: float) -> float:
        """The gap at a point, given the oracle's lower bound; from earlier bounds where it has none."""
        if lower > -math.inf:
            size = norm(point.x) if self._radius is None else self._radius
            gap = dot(gradient, point.x) - lower + _rounding(gradient, size) + 2 * size * point.error()
            self.lower = max(self.lower, value - gap)
            return max(0.0, gap)
        return max(0.0, value - self.lower)


class SpanCertificate:
    """Upper bounds on f(θ) - f(θ*) over lin(𝒜), and the test that stands in where there is none.

    ‖∇f(θ)‖² / (2μ), with the gradient's part in the span, for μ-strongly convex f; ⟨∇f(θ), θ⟩ + radius · ‖∇f(θ)‖_𝒜* for
    a bound on ‖θ*‖_𝒜. The best lower bound on f(θ*) so far certifies later iterates too.
    """

    def __init__(self, problem: Problem, radius: float | None, tol: float) -> None:
        self._problem, self._radius, self.tol = problem, _checked(radius), tol
        self._mu = problem.objective.strong_convexity
        self._lower = -math.inf

    def __call__(self, point: Point, gradient: Tensor, value: float, lower: float) -> tuple[float, bool]:
        """The gap at a point, and whether it is stationary though nothing certifies it."""
        atoms = self._problem.atoms
        steepness = -lower  # ‖∇f‖_𝒜*
        gap, error = math.inf, point.error()
        if self._mu > 0:
            gap = (norm(atoms.span_part(gradient.reshape(-1))) + error) ** 2 / (2 * self._mu) + point.value_error()
        if self._radius is not None and math.isfinite(steepness):
            size = norm(point.x)
            linear = (
                dot(gradient, point.x) + _rounding(gradient, size) + error * (size + self._radius * (atoms.radius or 0))
            )
            gap = min(gap, max(0.0, linear + self._radius * max(0.0, steepness)))
        self._lower = max(self._lower, value - gap)
        return gap, math.isinf(gap) and steepness <= self.tol

    def against(self, value: float) -> float:
        """The gap of another iterate, by the best lower bound so far."""
        return value - self._lower


class ConeCertificate:
    """Upper bounds on f(θ) - f(θ*) over cone(𝒜).

    With ε = max(0, -min_z ⟨∇f, z⟩), convexity gives f(θ) - f(θ*) ≤ ⟨∇f, θ⟩ + ε ‖θ*‖_𝒜 - (μ/2) ‖θ - θ*‖². A ``radius``
    bounds ‖θ*‖_𝒜 directly. Otherwise ‖θ*‖_𝒜 ≤ ‖θ*‖ / w for the distance w of the origin from the hull of the atoms
    (positive for pointed cones), and ‖θ*‖ ≤ ‖θ‖ + ‖θ - θ*‖, whose worst case is

        ⟨∇f, θ⟩ + (ε/w) ‖θ‖ + (ε/w)² / (2μ).

    A cone that is a span has the certificate ‖∇f‖² / (2μ).
    """

    def __init__(self, problem: Problem, radius: float | None) -> None:
        self._atoms, self._radius = problem.atoms, _checked(radius)
        self._mu = problem.objective.strong_convexity
        self._margin = problem.atoms.margin_for(problem.zero) if self._mu > 0 and radius is None else 0.0

    def __call__(self, point: Point, gradient: Tensor, lower: float, shrink: float) -> float:
        """The gap at a point; ``shrink`` is ⟨∇f, x⟩."""
        size = norm(point.x)
        shrink += _rounding(gradient, size)
        return self.gap(shrink, size, point.error(), lower, lambda: gradient.reshape(-1))

    def gap(self, shrink: float, size: float, error: float, lower: float, gradient: Callable[[], Tensor]) -> float:
        """The same from ⟨∇f, x⟩ with its rounding, ‖x‖, the gradient's error, and the gradient where it is needed."""
        shrink += error * size
        if lower >= 0:
            return max(0.0, shrink)
        violation = -lower + error * (self._atoms.radius or 0.0)
        gap, known = math.inf, math.isfinite(violation)
        if self._radius is not None and known:
            gap = shrink + violation * self._radius
        if self._mu > 0 and self._margin > 0 and known:
            steep = violation / self._margin
            gap = min(gap, shrink + steep * size + steep**2 / (2 * self._mu))
        if self._mu > 0 and not (known and self._margin > 0):  # the span's part costs a decomposition of the atoms
            gap = min(gap, (norm(self._atoms.span_part(gradient())) + error) ** 2 / (2 * self._mu))
        return max(0.0, gap)
