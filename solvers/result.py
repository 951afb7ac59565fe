"""Problems as solvers read them, their results and certificates, and the watch over a run."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from unknot.solvers.atoms import AtomSet, as_atoms
from unknot.solvers.atoms.base import ROUNDING
from unknot.solvers.lines import Point
from unknot.solvers.objectives import Objective, as_objective
from unknot.solvers.structured import Atom, Decomposition, as_tensor, dot, is_finite, norm, returns_numpy, to_user

FLAT = 1e-3
"""Share of the steepest slope of a run that counts as 0 at most, whatever tolerance its gap may have."""


class Status(str, Enum):
    """Why a run ended; compares equal to its text.

    Stalled means that another iteration would change nothing though the tolerance is not met: rounding is in the way,
    or the method (FNNOMP) ends short of the optimum. Infeasible means certainly so: no point of the hull meets the
    constraints.
    """

    CONVERGED = "converged"
    MAX_ITERATIONS = "max iterations"
    TIME_LIMIT = "time limit"
    STOPPED = "stopped by callback"
    DIVERGED = "diverged"
    STALLED = "stalled"
    INFEASIBLE = "infeasible"

    def __str__(self) -> str:
        return self.value


class State(NamedTuple):
    """State of iterate θ_k, for a callback; returning True (or raising StopIteration) ends the run."""

    iteration: int
    x: Any
    value: float
    gap: float
    time: float


@dataclass(frozen=True)
class Trace:
    """Entry k of each array belongs to iterate θ_k, θ_0 and the last one included; ``time`` is in seconds.

    Where a method does not evaluate a quantity at every iteration, its entry is NaN. ``trace["gap"]`` works too.
    Methods with constraints add ``feasibility``, the distance from them.
    """

    value: np.ndarray
    gap: np.ndarray
    time: np.ndarray
    feasibility: np.ndarray | None = None

    def keys(self) -> tuple[str, ...]:
        """Names of the columns, so that ``dict(trace)`` and a data frame of it work."""
        return ("value", "gap", "time") if self.feasibility is None else ("value", "gap", "time", "feasibility")

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.keys():
            raise KeyError(name)
        column: np.ndarray = getattr(self, name)
        return column

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True)
class Result:
    """The answer of a solver, with its certificate.

    Attributes:
        x: the iterate, of the kind (NumPy or torch), dtype and device that came in.
        value: f(x); for a batch of problems, one value for each.
        gap: an upper bound on f(x) - f(x*), so ``value - gap`` is a lower bound on the optimum; ``inf`` where nothing
            is known about f that would give one (see the solver).
        iterations: updates made.
        status: why the run ended, a :class:`Status`.
        trace: value, gap and time of every iterate.
        active: the atoms that make up x, structured (see :class:`unknot.solvers.atoms.Atom`).
        weights: their weights ``[S]``, in the same order: ``x = Σ weights[i] · active[i]``.
        coefficients: the weights as a vector over the columns of a dictionary or over coordinates, if those are
            the atoms; ``[B, n]`` for a batch.
        smoothness: the constant L that the last step used, if the method used one.
        feasibility: distance of x from the constraints, if there are any: a value means nothing without it.
        violations: the same for every constraint, in their order.
        duals: the price y_i of every term A_i x, which ∇f(x) + Σ A_iᵀ y_i is the gradient of the Lagrangian with; of
            :func:`augmented_lagrangian_cgm`.
    """

    x: Any
    value: Any
    gap: Any
    iterations: int
    status: Status
    trace: Trace
    active: Sequence[Atom] = field(default=(), repr=False)
    weights: Any = field(default=None, repr=False)
    coefficients: Any = field(default=None, repr=False)
    smoothness: float | None = None
    feasibility: float | None = None
    violations: tuple[float, ...] = ()
    duals: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def converged(self) -> bool:
        """Return whether the tolerance was met."""
        return self.status == Status.CONVERGED

    @property
    def atoms(self) -> Any:
        """The active atoms as a dense array ``[S, *x.shape]``, built when asked for."""
        numpy = isinstance(self.x, np.ndarray)
        if not self.active:
            return self.x[None][:0]
        return to_user(torch.stack([atom.dense() for atom in self.active]), numpy)

    def __str__(self) -> str:
        last = f"{len(self.active)} active atoms" if self.feasibility is None else f"feasibility {self.feasibility:.3g}"
        return (
            f"{self.status} after {self.iterations} iterations: value {_show(self.value)}, gap {_show(self.gap)}, "
            f"{last}, {self.trace.time[-1]:.3g} s"
        )


def _show(quantity: Any) -> str:
    return f"{quantity:.6g}" if isinstance(quantity, float) else f"<= {float(np.max(np.asarray(quantity))):.6g}"


class Limits(TypedDict, total=False):
    """When a run ends and what is seen of it: keywords of every solver, explained at :func:`frank_wolfe`."""

    max_iterations: int
    tol: float
    rtol: float
    time_limit: float | None
    callback: Callable[[State], Any] | None
    progress: bool


@dataclass
class Run:
    """One run: its record, and the decision when to stop.

    A solver asks ``finished`` once for every iterate, after it knows its gap and before it takes the next step.
    """

    name: str
    numpy: bool
    max_iterations: int = 1000
    tol: float = 0.0
    rtol: float = 0.0
    time_limit: float | None = None
    callback: Callable[[State], Any] | None = None
    progress: bool = False
    status: Status = Status.MAX_ITERATIONS

    @classmethod
    def of(cls, name: str, numpy: bool, limits: Mapping[str, Any], tol: float, max_iterations: int = 1000) -> "Run":
        """A run within the limits that a caller gave, or else those of the solver."""
        for key in set(limits) - set(Limits.__annotations__):
            raise TypeError(
                f"{name}() got an unexpected keyword argument {key!r}: expected {', '.join(Limits.__annotations__)}, "
                "or one of its own arguments."
            )
        return cls(name, numpy, **{"tol": tol, "max_iterations": max_iterations, **limits})

    def __post_init__(self) -> None:
        limit = self.max_iterations
        if isinstance(limit, bool) or not limit >= 0 or (math.isfinite(limit) and int(limit) != limit):
            raise ValueError(f"max_iterations is {limit!r}: expected a whole number, 0 or more.")
        if not self.tol >= 0:
            raise ValueError(f"tol is {self.tol}: expected 0 or more (0 does not stop at any gap).")
        if not 0 <= self.rtol < 1:
            raise ValueError(f"rtol is {self.rtol}: expected a number from 0 (no relative tolerance) to below 1.")
        if self.time_limit is not None and not self.time_limit >= 0:
            raise ValueError(f"time_limit is {self.time_limit}: expected seconds, 0 or more, or None.")
        self.values: list[Any] = []
        self.gaps: list[Any] = []
        self.times: list[float] = []
        self.feasibilities: list[float] = []
        self.still = 0
        self.steepest = 0.0
        self.bar: Any = None
        if self.progress:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=self.max_iterations, desc=self.name)
        self.started = time.perf_counter()

    @property
    def iteration(self) -> int:
        """k of the iterate that is looked at next."""
        return len(self.values)

    def tolerance(self, value: float) -> float:
        """The gap at which an iterate of this value is good enough."""
        return max(self.tol, self.rtol * abs(value))

    def flat(self, slope: float, rounding: float) -> float:
        """The slope that counts as 0: the tolerance, at most ``FLAT``, times the steepest so far, or ``rounding``."""
        self.steepest = max(self.steepest, slope if math.isfinite(slope) else 0.0)
        share = min(max(self.tol, self.rtol), FLAT)
        return max(share * self.steepest, rounding) if share else 0.0

    def expired(self) -> bool:
        """Return whether the time is up; long computations inside an iteration ask this."""
        return self.time_limit is not None and time.perf_counter() - self.started >= self.time_limit

    def stalled(self, moved: bool) -> bool:
        """Note whether an iteration moved; True after two in a row that did not: the next would not either."""
        self.still = 0 if moved else self.still + 1
        if self.still < 2:
            return False
        self.status = Status.STALLED
        return True

    def finished(
        self,
        x: Any,
        value: float,
        gap: float,
        stationary: bool = False,
        *,
        feasibility: float | None = None,
        evaluated: bool = True,
    ) -> bool:
        """Record θ_k, then say whether to stop; ``stationary`` is the solver's own test where there is no gap.

        A method with constraints gives ``feasibility`` as well, and NaN for what it did not evaluate, as does one that
        says that it did not.
        """
        k = self.iteration
        if not math.isfinite(value) and not (math.isnan(value) and (feasibility is not None or not evaluated)):
            self.close()
            raise ValueError(
                f"f(x) is {value} at iteration {k}: expected a finite number; check the objective and the start, "
                "or use a smaller step."
            )
        elapsed = time.perf_counter() - self.started
        self.values.append(value)
        self.gaps.append(gap)
        self.times.append(elapsed)
        if feasibility is not None:
            self.feasibilities.append(feasibility)
        if self.bar is not None:
            last = {"gap": f"{gap:.2g}"} if feasibility is None else {"feasibility": f"{feasibility:.2g}"}
            self.bar.set_postfix(value=f"{value:.4g}", **last, refresh=False)
            self.bar.update(k > 0)
        if 0 < self.tolerance(value) >= gap or stationary:
            self.status = Status.CONVERGED
        elif k >= self.max_iterations:
            self.status = Status.MAX_ITERATIONS
        elif self.time_limit is not None and elapsed >= self.time_limit:
            self.status = Status.TIME_LIMIT
        elif not self._called_back(k, x, value, gap, elapsed):
            return False
        else:
            self.status = Status.STOPPED
            return True
        self._called_back(k, x, value, gap, elapsed)
        return True

    def _called_back(self, k: int, x: Any, value: float, gap: float, elapsed: float) -> bool:
        if self.callback is None:
            return False
        try:
            shown = to_user(x.clone(), self.numpy) if isinstance(x, Tensor) else x
            answer = self.callback(State(k, shown, value, gap, elapsed))
            return isinstance(answer, bool | np.bool_) and bool(answer)
        except StopIteration:
            return True

    def close(self) -> None:
        """Take the progress bar away."""
        if self.bar is not None:
            self.bar.close()

    def result(self, x: Tensor, **more: Any) -> Result:
        """The result, of the last recorded iterate unless ``more`` says otherwise."""
        self.close()
        distances = np.array(self.feasibilities) if self.feasibilities else None
        trace = Trace(np.array(self.values), np.array(self.gaps), np.array(self.times), distances)
        fields = {"value": self.values[-1], "gap": self.gaps[-1], "iterations": len(self.values) - 1, **more}
        return Result(x=to_user(x, self.numpy), status=self.status, trace=trace, **fields)


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
    kinds = [] if x0 is None else [returns_numpy(x0)]
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
    """Bound on the rounding error of ⟨∇f, θ⟩, which is summed in double precision, for ‖θ‖ = ``size``."""
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

    def __init__(self, problem: Problem, radius: float | None, run: Run) -> None:
        self._problem, self._radius, self._run = problem, _checked(radius), run
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
        return gap, math.isinf(gap) and steepness <= self._run.flat(steepness, error * (atoms.radius or 0.0))

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
        """Return the gap, given ⟨∇f, x⟩ with its rounding, ‖x‖, the error of the gradient and a function for it."""
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
