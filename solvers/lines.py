"""Directions, lines and points: how a solver moves over an objective without ever evaluating it from scratch.

It holds a :class:`Point`, asks for a :class:`Line` through it along d = c·θ + Σ w_i z_i, and moves the point along that
line. Objectives that see θ only through a product Aθ keep this product up to date, so that a step along a signed
coordinate costs one column of A.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import scipy.optimize
from torch import Tensor

from unknot.solvers._arrays import dot
from unknot.solvers.structured import Atom


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
        """How wrong ``change`` may be by rounding alone."""

    @abstractmethod
    def minimise(self, largest: float) -> float:
        """argmin of φ over [0, largest]."""

    def reach(self, largest: float) -> float:
        """A step of at most ``largest`` that stays where f is defined: itself if it does, else some half of it."""
        return largest

    @abstractmethod
    def check_bounded(self) -> float:
        """A step beyond the minimum of φ on [0, ∞), or where f ends; an error if φ falls for ever."""


def unbounded() -> ValueError:
    """The error where f falls for ever."""
    return ValueError(
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
        """In closed form, so differences far below f itself are still right."""
        return step * (self.slope + step * self.curvature / 2)

    def derivative(self, step: float) -> float:
        """In closed form."""
        return self.slope + step * self.curvature

    @property
    def rounding(self) -> float:
        """None to speak of."""
        return 0.0

    def minimise(self, largest: float) -> float:
        """-slope / curvature, clipped."""
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
        """f(θ + γ d) - f(θ); infinite outside the domain."""
        if self._inside is not None and not self._inside(step):
            return math.inf
        change = self._change(step)
        return math.inf if math.isnan(change) else change

    def derivative(self, step: float) -> float:
        """⟨∇f(θ + γ d), d⟩."""
        return self._derivative(step)

    @property
    def rounding(self) -> float:
        """A few units in the last place of f."""
        return self._rounding

    def reach(self, largest: float) -> float:
        """By halving, until f is finite."""
        step = largest
        for _ in range(60):
            if math.isfinite(self.change(step)):
                return step
            step /= 2
        return 0.0

    def check_bounded(self) -> float:
        """By doubling."""
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
        """How far ‖∇f(θ)‖ as computed may be from the truth by rounding; what a certificate adds for it."""
        return 0.0

    def value_error(self) -> float:
        """How far f(θ) as computed may be from the truth, where that is more than its own last digits."""
        return 0.0

    def refresh(self) -> bool:
        """Compute incremental products anew; False if there was nothing that could have drifted."""
        return False
