"""Step sizes along a line (Algorithm "Frank-Wolfe", Variants 0 to 3, and backtracking)."""

import math
import warnings
from collections.abc import Callable

from unknot.solvers.objectives import Line, Objective, QuadraticObjective
from unknot.solvers.problem import choose

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
    check the same inequality: an L that violates it is doubled, with one warning.
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
        if isinstance(step, int) and not isinstance(step, bool):
            if step not in range(len(VARIANTS)):
                raise ValueError(f"step {step} is unknown: expected a variant from 0 to 3, a name, or a function of k.")
            step = VARIANTS[step]
        if isinstance(step, float):
            constant = step
            if not 0 < constant <= 1:
                raise ValueError(f"step is {constant}: expected a constant in (0, 1], a name, or a function of k.")
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

    @staticmethod
    def best_for(objective: Objective) -> str:
        """The rule that needs no constant: exact where that is free, else backtracking."""
        return "line-search" if isinstance(objective, QuadraticObjective) else "backtracking"

    def __call__(self, k: int, line: Line, largest: float) -> float:
        """γ for the step from θ_k."""
        if self.schedule is not None:
            step = float(self.schedule(k))
            if not (step >= 0 and math.isfinite(step)):
                raise ValueError(f"the step function returned {step} at iteration {k}: expected a number in [0, 1].")
            return min(step, largest)
        if line.slope >= 0:
            return 0.0
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
            self.smoothness = self.guess(line, squared_norm)
        elif self.name == "backtracking":
            self.smoothness *= 0.9
        return self._verified(line, largest, squared_norm)

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
            if abs(change) > line.rounding:
                holds = change <= model + line.rounding
            else:  # f cannot tell any more; its slope still can
                holds = line.derivative(step) <= line.slope + (1 + _ROUNDING) * step * self.smoothness * squared_norm
            if holds:
                return step
            self.smoothness *= 2
            if self._declared is not None and self.name != "backtracking" and not self._warned:
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
