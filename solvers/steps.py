"""Step sizes along a line (Algorithm "Frank-Wolfe", Variants 0 to 3, backtracking, secant, adaptive, monotone)."""

import math
import warnings
from collections.abc import Callable

import numpy as np

from unknot.solvers.choices import choose
from unknot.solvers.objectives import Line, Objective, QuadraticLine

Step = str | int | float | Callable[[int], float]

VARIANTS = ("open-loop", "line-search", "diameter", "short")
NAMES = ("auto", *VARIANTS, "backtracking", "secant", "adaptive", "monotone", "affine")

_ROUNDING = 1e-5  # relative slack of the descent inequality: a true L must never be called too small


class StepSize:
    """γ for a line, within [0, largest].

    open-loop (0):    2 / (k + 2)
    line-search (1):  argmin_γ f(θ + γ d)
    diameter (2):     -⟨∇f, d⟩ / (L diam(𝒜)²)
    short (3):        -⟨∇f, d⟩ / (L ‖d‖²)
    backtracking:     short, with the smallest L (found by doubling, let down by a tenth each time) that satisfies
                      f(θ + γ d) ≤ f(θ) + γ ⟨∇f, d⟩ + γ² L ‖d‖² / 2
    secant:           a root of φ'(γ) = ⟨∇f(θ + γ d), d⟩ by the secant method, to a thousandth of φ'(0)
    adaptive:         as backtracking, the test being ⟨∇f(θ + γ d), d⟩ ≤ 0 of gradients alone, which rounding of f does
                      not reach (Pokutta, 2024)
    monotone:         2 / (k + 2), halved until f is finite and does not rise (Carderera, Besançon and Pokutta, 2021)
    affine:           -⟨∇f, d⟩ / L_𝒜, found by doubling where it is unknown

    The thesis writes t for k in Variant 0; k starts at 0, so the first step forgets the start. "short" and "affine"
    check the same inequality: an L that violates it is doubled, with one warning. Every rule that looks at f ends in a
    guard: a step after which f would be higher, or not finite, is halved until it is not. Only schedules go uphill.
    """

    def __init__(
        self,
        step: Step,
        objective: Objective,
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
        elif self.name in ("backtracking", "adaptive"):
            self.smoothness = smoothness
        self.diameter = diameter() if self.name == "diameter" else None
        if self.name == "diameter" and self.diameter is None:
            raise ValueError("step 'diameter' needs the set's diameter, which is unknown: use step='short'.")
        self._declared = self.smoothness
        self._warned = quiet

    @property
    def looks(self) -> bool:
        """Whether the rule looks at f, as steps away from atoms need it."""
        return self.schedule is None and self.name != "monotone"

    @staticmethod
    def best_for(objective: Objective) -> str:
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
        if self.name == "secant":
            return self._secant(line, largest)
        if self.name == "monotone":
            return min(2.0 / (k + 2.0), largest)
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
        elif self.name in ("backtracking", "adaptive"):
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
    def _secant(line: Line, largest: float) -> float:
        """Secant steps for φ' = 0, kept between a point that descends and one that does not."""
        if isinstance(line, QuadraticLine):
            return line.minimise(largest)
        right = line.reach(1.0 if math.isinf(largest) else largest)
        low, low_slope = 0.0, line.slope
        high, high_slope = right, line.derivative(right) if right > 0 else 0.0
        while high_slope < 0 and high < largest:
            low, low_slope, high = high, high_slope, min(2 * high, largest)
            if not math.isfinite(line.change(high)) or high > 1e30:
                return low
            high_slope = line.derivative(high)
        if high_slope <= 0 or not math.isfinite(high_slope):
            return high
        middle = high
        for count in range(40):
            share = low_slope / (low_slope - high_slope)
            middle = low + (0.5 if count % 3 == 2 else min(0.99, max(0.01, share))) * (high - low)
            slope = line.derivative(middle)
            if abs(slope) <= 1e-3 * abs(line.slope):
                break
            if slope < 0:
                low, low_slope = middle, slope
            else:
                high, high_slope = middle, slope
        return middle

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
            if self.name == "adaptive":
                inside = math.isfinite(line.change(step))
                if inside and line.derivative(step) <= 1e-12 * abs(line.slope):
                    return step
                self.smoothness *= 2
                continue
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
        if self.name == "adaptive":
            return 0.0
        raise ValueError(
            "no smoothness constant bounds f along a search direction: expected a smooth f that is finite on the set."
        )
