"""What every solver returns, and the watch over a run that fills it."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import to_user
from unknot.solvers.structured import Atom


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
    """What a callback sees of iterate θ_k; returning True (or raising StopIteration) ends the run."""

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
        """Whether the tolerance was met."""
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


@dataclass
class Run:
    """The watch over one run: records, and says when it is time to stop.

    A solver asks ``finished`` once for every iterate, after it knows its gap and before it takes the next step.
    """

    max_iterations: int
    tol: float
    time_limit: float | None
    callback: Callable[[State], Any] | None
    progress: bool
    numpy: bool
    name: str
    rtol: float = 0.0
    status: Status = Status.MAX_ITERATIONS

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

    def expired(self) -> bool:
        """Whether the time is up; what takes long inside an iteration asks this."""
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
