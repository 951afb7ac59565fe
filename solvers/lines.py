"""Directions, lines, points and step sizes: how a solver moves over an objective without evaluating it from scratch.

It holds a :class:`Point`, asks for a :class:`Line` through it along d = c·θ + Σ w_i z_i, and moves the point along that
line. Objectives that see θ only through a product Aθ keep this product up to date, so that a step along a signed
coordinate costs one column of A. :class:`StepSize` has the rules for γ (Algorithm "Frank-Wolfe", Variants 0 to 3, and
those of the field).
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.optimize
from torch import Tensor

from unknot.solvers.structured import Atom, choose, dot

if TYPE_CHECKING:
    from unknot.solvers.objectives import Objective


class Direction(NamedTuple):
    """d = iterate · θ + Σ weight · atom: (-1, z) towards an atom, (1, -v) away from one, (0, z - v) pairwise."""

    iterate: float
    terms: tuple[tuple[float, Atom], ...]

    def dense(self, x: Tensor) -> Tensor:
        """d as an array."""
        d = x * self.iterate
        for weight, atom in self.terms:
            atom.add_to(d, weight)
        return d

    def squared_norm(self, x: Tensor) -> float:
        """‖d‖²."""
        if self.iterate == 0 and len(self.terms) == 1:
            weight, atom = self.terms[0]
            return weight**2 * atom.squared_norm
        return float(self.dense(x).square().sum())

    def inner(self, direction: Tensor, x: Tensor) -> float:
        """⟨direction, d⟩."""
        total = sum(weight * atom.inner(direction) for weight, atom in self.terms)
        return total + (self.iterate * dot(direction, x) if self.iterate else 0.0)

    def move(self, x: Tensor, step: float) -> None:
        """x += step · d, in place."""
        if self.iterate:
            x.mul_(1 + step * self.iterate)
        for weight, atom in self.terms:
            atom.add_to(x, step * weight)


def along(atom: Atom, weight: float = 1.0) -> Direction:
    """d = weight · z."""
    return Direction(0.0, ((weight, atom),))


class Line(ABC):
    """φ(γ) = f(θ + γ d), with φ'(0) in ``slope``, and A d in ``image`` where f sees θ through a product Aθ."""

    def __init__(self, direction: Direction, x: Tensor, slope: float, image: Tensor | None = None) -> None:
        self.direction, self.slope, self.image = direction, slope, image
        self._x = x

    @cached_property
    def squared_norm(self) -> float:
        """‖d‖²."""
        return self.direction.squared_norm(self._x)

    @abstractmethod
    def change(self, step: float) -> float:
        """φ(γ) - φ(0)."""

    @abstractmethod
    def derivative(self, step: float) -> float:
        """φ'(γ)."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Bound on the rounding error of ``change``."""

    @abstractmethod
    def minimise(self, largest: float) -> float:
        """argmin of φ over [0, largest]."""

    def reach(self, largest: float) -> float:
        """A step of at most ``largest`` that stays where f is defined: itself if it does, else some half of it."""
        return largest

    @abstractmethod
    def check_bounded(self) -> float:
        """A step beyond the minimum of φ on [0, ∞), or where f ends; an error if φ falls for ever."""


class Unbounded(ValueError):
    """Error of an objective without a minimum."""


def unbounded() -> Unbounded:
    """Return the error of an objective without a minimum."""
    return Unbounded(
        "the objective has no minimum along a search direction: expected f to be bounded below; "
        "check its sign, or minimise over a bounded set with frank_wolfe."
    )


class QuadraticLine(Line):
    """φ(γ) = φ(0) + γ slope + γ² curvature / 2, exactly; the curvature is computed if a step asks for it."""

    def __init__(
        self,
        direction: Direction,
        x: Tensor,
        slope: float,
        curvature: Callable[[], float],
        image: Tensor | None,
        bounded: bool = False,
    ) -> None:
        super().__init__(direction, x, slope, image)
        self._curvature, self._bounded = curvature, bounded

    @cached_property
    def curvature(self) -> float:
        """⟨d, H d⟩."""
        return self._curvature()

    def change(self, step: float) -> float:
        """Return φ(γ) - φ(0) in closed form, which is right for differences far below f itself."""
        return step * (self.slope + step * self.curvature / 2)

    def derivative(self, step: float) -> float:
        return self.slope + step * self.curvature

    @property
    def rounding(self) -> float:
        return 0.0

    def minimise(self, largest: float) -> float:
        if self.slope >= 0:
            return 0.0
        if math.isinf(largest):
            return self.check_bounded()
        if self.curvature * largest <= -self.slope or self.curvature <= 0:
            return largest
        return -self.slope / self.curvature

    def check_bounded(self) -> float:
        """The minimum; a square that is flat has a slope by rounding only."""
        if self.slope >= 0 or (self._bounded and self.curvature <= 0):
            return 0.0
        if self.curvature <= 0:
            raise unbounded()
        return -self.slope / self.curvature


class ConvexLine(Line):
    """φ of a convex f, by evaluations; ``inside`` says which steps stay in the domain of f."""

    def __init__(
        self,
        direction: Direction,
        x: Tensor,
        slope: float,
        change: Callable[[float], float],
        derivative: Callable[[float], float],
        rounding: float,
        image: Tensor | None = None,
        inside: Callable[[float], bool] | None = None,
    ) -> None:
        super().__init__(direction, x, slope, image)
        self._change, self._derivative, self._rounding = change, derivative, rounding
        self._inside = inside

    def change(self, step: float) -> float:
        if self._inside is not None and not self._inside(step):
            return math.inf
        change = self._change(step)
        return math.inf if math.isnan(change) else change

    def derivative(self, step: float) -> float:
        return self._derivative(step)

    @property
    def rounding(self) -> float:
        return self._rounding

    def reach(self, largest: float) -> float:
        step = largest
        for _ in range(60):
            if math.isfinite(self.change(step)):
                return step
            step /= 2
        return 0.0

    def check_bounded(self) -> float:
        right = 1.0
        while math.isfinite(self.change(right)) and self.derivative(right) < 0:
            right *= 2
            if right > 1e30:
                raise unbounded()
        return right

    def minimise(self, largest: float) -> float:
        """The root of φ', bracketed by doubling and found by Brent's method.

        A step that leaves the domain of f is halved until it does not; a minimum between the last two is then sought by
        bisection, for f may be finite there.
        """
        if self.slope >= 0:
            return 0.0
        right = self.check_bounded() if math.isinf(largest) else largest
        inner = self.reach(right)
        if inner == 0:
            return 0.0
        if inner < right:
            outer = min(2 * inner, right)
            for _ in range(30):
                middle = (inner + outer) / 2
                if not math.isfinite(self.change(middle)):
                    outer = middle
                elif self.derivative(middle) < 0:
                    inner = middle
                else:
                    inner = middle
                    break
        if not self.derivative(inner) > 0:
            return inner
        root: float = scipy.optimize.brentq(self.derivative, 0.0, inner, xtol=1e-14 * inner, rtol=1e-12, maxiter=200)
        return root


class Point(ABC):
    """An iterate θ of an objective, with whatever products make f, ∇f and the next step cheap."""

    x: Tensor

    @abstractmethod
    def value(self) -> float:
        """f(θ)."""

    @abstractmethod
    def gradient(self) -> Tensor:
        """∇f(θ); not to be changed, and valid until the point moves."""

    @abstractmethod
    def along(self, direction: Direction) -> Line:
        """f on the line through θ along d; costs no full gradient where the objective allows."""

    @abstractmethod
    def move(self, line: Line, step: float) -> None:
        """θ ← θ + γ d."""

    @abstractmethod
    def jump(self, x: Tensor) -> None:
        """θ ← x."""

    def land(self, x: Tensor, image: Tensor | None) -> None:
        """θ ← x, whose image (that of :meth:`QuadraticObjective.image`) may be known already."""
        self.jump(x)

    @abstractmethod
    def blend(self, other: Any, share: float) -> None:
        """θ ← (1 - share) θ + share θ', for another point of the same objective."""

    def error(self) -> float:
        """Bound on the rounding error of ∇f(θ) in norm, which certificates add."""
        return 0.0

    def value_error(self) -> float:
        """Bound on the rounding error of f(θ), where that is more than its own last digits."""
        return 0.0

    def refresh(self) -> bool:
        """Recompute incremental products; False if there was nothing that could have drifted."""
        return False


Step = str | int | float | Callable[[int], float]

VARIANTS = ("open-loop", "line-search", "diameter", "short")
NAMES = ("auto", *VARIANTS, "backtracking", "affine")

_ROUNDING = 1e-5  # relative slack of the descent inequality: a true L must never be called too small


class StepSize:
    """γ for a line, within [0, largest].

    open-loop (0):    2 / (k + 2)
    line-search (1):  argmin_γ f(θ + γ d)
    diameter (2):     -⟨∇f, d⟩ / (L diam(𝒜)²)
    short (3):        -⟨∇f, d⟩ / (L ‖d‖²)
    backtracking:     short, with the smallest L (found by doubling, let down by a tenth each time) that satisfies
                      f(θ + γ d) ≤ f(θ) + γ ⟨∇f, d⟩ + γ² L ‖d‖² / 2
    affine:           -⟨∇f, d⟩ / L_𝒜, found by doubling where it is unknown

    The thesis writes t for k in Variant 0; k starts at 0, so the first step forgets the start. "short" and "affine"
    check the same inequality: an L that violates it is doubled, with one warning. Every rule that looks at f ends in a
    guard: a step after which f would be higher, or not finite, is halved until it is not. Only schedules go uphill.
    """

    def __init__(
        self,
        step: Step,
        objective: "Objective",
        smoothness: float | None,
        *,
        default: str,
        diameter: Callable[[], float | None] = lambda: None,
        atomic_smoothness: float | None = None,
        quiet: bool = False,
    ) -> None:
        self.smoothness: float | None = None
        self.schedule: Callable[[int], float] | None = None
        self.name = "schedule"
        if isinstance(step, int | np.integer) and not isinstance(step, bool):
            if step not in range(len(VARIANTS)):
                raise ValueError(f"step {step} is unknown: expected a variant from 0 to 3, a name, or a function of k.")
            step = VARIANTS[int(step)]
        if isinstance(step, float | np.floating):
            constant = float(step)
            if not 0 < constant < 1:
                raise ValueError(
                    f"step is {constant}: expected a constant between 0 and 1, a name, or a function of k; the thesis' "
                    "variants are whole numbers or names, such as 'line-search' for 1."
                )
            self.schedule = lambda k: constant
            return
        if not isinstance(step, str):
            if not callable(step):
                raise ValueError(f"step is a {type(step).__name__}: expected a name, a number or a function of k.")
            self.schedule = step
            return
        self.name = choose(step, NAMES, "step")
        if self.name == "auto":
            self.name = default
        if self.name == "open-loop":
            self.schedule = lambda k: 2.0 / (k + 2.0)
        elif self.name == "affine":
            self.smoothness = atomic_smoothness
        elif self.name in ("short", "diameter"):
            self.smoothness = smoothness if smoothness is not None else objective.smoothness
            if self.smoothness is None:
                raise ValueError(
                    f"step {self.name!r} needs the smoothness constant L of f, which is unknown: pass smoothness=L or "
                    "use step='backtracking'."
                )
        elif self.name == "backtracking":
            self.smoothness = smoothness
        self.diameter = diameter() if self.name == "diameter" else None
        if self.name == "diameter" and self.diameter is None:
            raise ValueError("step 'diameter' needs the set's diameter, which is unknown: use step='short'.")
        self._declared = self.smoothness
        self._warned = quiet

    @property
    def looks(self) -> bool:
        """Return whether the rule looks at f, as steps away from atoms need it."""
        return self.schedule is None

    @staticmethod
    def best_for(objective: "Objective") -> str:
        """The rule that needs no constant: exact where that is free, else backtracking."""
        return "line-search" if objective.quadratic else "backtracking"

    def __call__(self, k: int, line: Line, largest: float) -> float:
        """γ for the step from θ_k."""
        if self.schedule is not None:
            step = float(self.schedule(k))
            if not (step >= 0 and math.isfinite(step)):
                raise ValueError(f"the step function returned {step} at iteration {k}: expected a number in [0, 1].")
            return line.reach(min(step, largest))
        if line.slope >= 0:
            return 0.0
        return self._guarded(line, self._raw(k, line, largest))

    def _raw(self, k: int, line: Line, largest: float) -> float:
        if self.name == "line-search":
            return line.minimise(largest)
        if self.name == "diameter":
            assert self.smoothness is not None
            assert self.diameter is not None
            return min(-line.slope / (self.smoothness * self.diameter**2), largest)
        squared_norm = 1.0 if self.name == "affine" else line.squared_norm
        if squared_norm == 0:
            return 0.0
        if self.smoothness is None:
            if math.isinf(largest):
                line.check_bounded()
            self.smoothness = self.guess(line, squared_norm)
        elif self.name == "backtracking":
            self.smoothness *= 0.9
        return self._verified(line, largest, squared_norm)

    @staticmethod
    def _guarded(line: Line, step: float) -> float:
        """The step, halved until f does not rise; 0 if it always does."""
        for _ in range(60):
            if step == 0 or line.change(step) <= line.rounding:
                return step
            step /= 2
        return 0.0

    @staticmethod
    def guess(line: Line, squared_norm: float) -> float:
        """Curvature over a thousandth of the line: an order of magnitude is enough."""
        probe = 1e-3
        rise = (line.derivative(probe) - line.slope) / (probe * squared_norm)
        return rise if math.isfinite(rise) and rise > 0 else 1e-3 * -line.slope / squared_norm

    def _verified(self, line: Line, largest: float, squared_norm: float) -> float:
        assert self.smoothness is not None
        for _ in range(200):
            step = min(-line.slope / (self.smoothness * squared_norm), largest)
            model = step * line.slope + (1 + _ROUNDING) * step**2 * self.smoothness * squared_norm / 2
            change = line.change(step)
            if not math.isfinite(change):
                holds = False
            elif abs(change) > line.rounding:
                holds = change <= model + line.rounding
            else:  # f cannot tell any more; its slope still can
                holds = line.derivative(step) <= line.slope + (1 + _ROUNDING) * step * self.smoothness * squared_norm
            if holds:
                return step
            self.smoothness *= 2
            if self._declared is not None and self.name in ("short", "affine") and not self._warned:
                self._warned = True
                warnings.warn(
                    f"smoothness {self._declared:.6g} is too small: f rose above its quadratic bound, so it is being "
                    "doubled until the bound holds; pass a larger one, or step='backtracking'.",
                    UserWarning,
                    stacklevel=4,
                )
        raise ValueError(
            "no smoothness constant bounds f along a search direction: expected a smooth f that is finite on the set."
        )
