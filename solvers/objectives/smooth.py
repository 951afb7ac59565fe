"""Smooth objectives that are not quadratic: logistic loss, any torch function."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, dot, norm, wants_numpy
from unknot.solvers.lines import ConvexLine, Direction, Line, Point
from unknot.solvers.maps import mean_factor, read_pair
from unknot.solvers.objectives.base import Objective, ProductPoint
from unknot.solvers.objectives.quadratic import map_images


class Logistic(Objective):
    """f(x) = Σ_i log(1 + exp(-y_i ⟨a_i, x⟩)) (or its mean over samples), and ½ ridge ‖x‖². L = λ_max(AᵀA) / 4 + ridge.

    Args:
        matrix: samples ``[m, n]``, dense, sparse or a ``LinearOperator``.
        labels: two classes, as -1 and 1 or as 0 and 1 ``[m]``; or probabilities of the second between 0 and 1.
        reduction: "sum" or "mean".
        ridge: weight of ½‖x‖², which makes f strongly convex.

    >>> import numpy as np
    >>> f = Logistic(np.eye(2), np.array([0, 1]))
    >>> round(f(np.zeros(2)), 4), f.gradient(np.zeros(2)), f.smoothness
    (1.3863, array([ 0.5, -0.5]), 0.25)
    """

    def __init__(self, matrix: Any, labels: Any, reduction: str = "sum", ridge: float = 0.0) -> None:
        self.map, self.labels = read_pair(matrix, labels, "labels")
        low, high = float(self.labels.min()), float(self.labels.max())
        signed = low == -1 and bool((self.labels.abs() == 1).all())
        if signed:
            self.labels = (self.labels + 1) / 2
        elif low < 0 or high > 1:
            raise ValueError(
                f"labels go from {low:g} to {high:g}: expected two classes, -1 and 1 or 0 and 1, or probabilities."
            )
        if not ridge >= 0:
            raise ValueError(f"ridge is {ridge}: expected 0 or more.")
        self.factor, self.ridge = mean_factor(reduction, self.map.rows), float(ridge)
        self.numpy = wants_numpy(matrix, labels)
        self.shape = (self.map.columns,)
        self.dtype, self.device = self.map.dtype, self.map.device

    @property
    def smoothness(self) -> float:
        """λ_max(AᵀA) / 4 + ridge."""
        return self.factor * self.map.largest_eigenvalue / 4 + self.ridge

    @property
    def strong_convexity(self) -> float:
        """The ridge."""
        return self.ridge

    def hessian(self) -> Tensor:
        """The bound AᵀA/4, with the ridge."""
        dense = self.map.dense()
        return self.factor / 4 * dense.t() @ dense + self.ridge * torch.eye(self.map.columns, dtype=torch.float64)

    def hessian_diagonal(self) -> Tensor:
        """A quarter of the squared norms of the columns, with the ridge."""
        return self.factor / 4 * self.map.column_squares() + self.ridge

    def curvatures(self, rows: Tensor) -> Tensor:
        """‖A z_i‖² / 4, with the ridge."""
        squares = map_images(self.map, rows).square().sum(0)
        return self.factor / 4 * squares + self.ridge * rows.to(squares).square().sum(1)

    def loss(self, scores: Tensor) -> float:
        """Σ y log(1 + exp(-s)) + (1 - y) log(1 + exp(s))."""
        softplus = torch.nn.functional.softplus
        losses = self.labels * softplus(-scores) + (1 - self.labels) * softplus(scores)
        return self.factor * float(losses.double().sum())

    def row_derivatives(self, scores: Tensor, rows: Tensor | None = None) -> Tensor:
        """σ(s) - y of some rows or all, without a difference of numbers that are nearly equal."""
        labels = self.labels if rows is None else self.labels[rows]
        return self.factor * ((1 - labels) * torch.sigmoid(scores) - labels * torch.sigmoid(-scores))

    def at(self, x: Tensor) -> Point:
        """A point that keeps Ax."""
        return _LogisticPoint(self, x)


class _LogisticPoint(ProductPoint):
    _f: Logistic

    def _forget(self) -> None:
        self._gradient = None
        self._value: float | None = None

    def value(self) -> float:
        if self._value is None:
            self._value = self._f.loss(self._kept)
            if self._f.ridge:
                self._value += self._f.ridge * dot(self.x, self.x) / 2
        return self._value

    def gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = self._f.map.adjoint(self._f.row_derivatives(self._kept))
            if self._f.ridge:
                self._gradient.add_(self.x, alpha=self._f.ridge)
        return self._gradient

    def error(self) -> float:
        f = self._f
        size = f.factor * f.map.frobenius * (math.sqrt(f.map.rows) + norm(self._kept))
        return float(torch.finfo(f.dtype).eps) / 2 * (size + f.ridge * norm(self.x))

    def along(self, direction: Direction) -> Line:
        f, scores = self._f, self._kept.clone()
        image = self._along(direction, scores)
        loss = f.loss(scores)
        linear = square = 0.0
        if f.ridge:
            linear = f.ridge * direction.inner(self.x, self.x)
            square = f.ridge * direction.squared_norm(self.x)
        return ConvexLine(
            direction,
            self.x,
            dot(f.row_derivatives(scores), image) + linear,
            lambda step: f.loss(scores + step * image) - loss + step * (linear + step * square / 2),
            lambda step: dot(f.row_derivatives(scores + step * image), image) + linear + step * square,
            _rounding(loss, f.dtype),
            image,
        )


def _rounding(value: float, dtype: torch.dtype) -> float:
    return 100 * float(torch.finfo(dtype).eps) * max(abs(value), 1e-30)


class Differentiable(Objective):
    """Any differentiable torch function x → scalar, by autograd.

    Args:
        function: of a tensor; differentiable, convex where a guarantee is wanted.
        gradient: its gradient, where there is a faster way than autograd.
        smoothness: L if known; without it solvers find it by backtracking.
        strong_convexity: μ if known; it turns gradients into certificates over spans and cones.
        shape: of x, if it should be checked.
        domain: x → whether f is finite there, if it is not everywhere (a logarithm, an inverse). Steps that leave it
            are halved; without it those are that make f infinite or NaN.

    >>> import torch
    >>> f = Differentiable(lambda x: (x**4).sum())
    >>> f(torch.tensor([1.0, 2.0])), f.gradient(torch.tensor([1.0, 2.0]))
    (17.0, tensor([ 4., 32.]))
    """

    adopts = True

    def __init__(
        self,
        function: Callable[[Tensor], Any],
        *,
        gradient: Callable[[Tensor], Any] | None = None,
        smoothness: float | None = None,
        strong_convexity: float = 0.0,
        shape: tuple[int, ...] | None = None,
        dtype: torch.dtype = torch.float64,
        domain: Callable[[Tensor], Any] | None = None,
    ) -> None:
        for name, given in (("function", function), ("gradient", gradient), ("domain", domain)):
            if not callable(given) and not (given is None and name != "function"):
                raise ValueError(f"{name} is a {type(given).__name__}: expected a function of x.")
        self.function, self._gradient = function, gradient
        self.domain = domain
        self._smoothness, self._strong_convexity = smoothness, strong_convexity
        self.shape = None if shape is None else tuple(shape)
        self.dtype = dtype

    @property
    def smoothness(self) -> float | None:
        """As given."""
        return self._smoothness

    @property
    def strong_convexity(self) -> float:
        """As given."""
        return self._strong_convexity

    def _point(self, x: Any) -> Point:
        return self.at(as_tensor(x, "x").clone())

    def value(self, x: Any) -> float:
        """f(x), without a gradient."""
        return self.evaluate(as_tensor(x, "x"))

    def evaluate(self, x: Tensor) -> float:
        """The same, of a tensor."""
        with torch.no_grad():
            return float(self.function(x))

    def differentiate(self, x: Tensor) -> tuple[float, Tensor]:
        """f(x) and ∇f(x)."""
        if self._gradient is not None:
            return self.evaluate(x), as_tensor(self._gradient(x), "the gradient").to(x).reshape(x.shape)
        leaf = x.detach().clone().requires_grad_(True)
        value = self.function(leaf)
        if not isinstance(value, Tensor) or value.numel() != 1:
            found = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"the objective returned {found}: expected a scalar tensor computed from x by torch.")
        if not value.requires_grad:
            raise ValueError("the objective does not depend on x by differentiable torch operations; give gradient=.")
        (gradient,) = torch.autograd.grad(value.reshape(()), leaf)
        return float(value.detach()), gradient

    def at(self, x: Tensor) -> Point:
        """A point without any shortcut."""
        return _AutogradPoint(self, x)


class _AutogradPoint(Point):
    def __init__(self, objective: Differentiable, x: Tensor) -> None:
        self._f = objective
        self.jump(x)

    def jump(self, x: Tensor) -> None:
        self.x = x.contiguous()
        self._known: tuple[float, Tensor] | None = None

    def _both(self) -> tuple[float, Tensor]:
        if self._known is None:
            self._known = self._f.differentiate(self.x)
        return self._known

    def value(self) -> float:
        return self._both()[0]

    def gradient(self) -> Tensor:
        return self._both()[1]

    def along(self, direction: Direction) -> Line:
        value, gradient = self._both()
        d = direction.dense(self.x)
        domain = self._f.domain
        return ConvexLine(
            direction,
            self.x,
            dot(gradient, d),
            lambda step: self._f.evaluate(self.x + step * d) - value,
            lambda step: dot(self._f.differentiate(self.x + step * d)[1], d),
            _rounding(value, self.x.dtype),
            inside=None if domain is None else lambda step: bool(domain(self.x + step * d)),
        )

    def error(self) -> float:
        unit = float(torch.finfo(self.x.dtype).eps)
        return 2 * unit * (norm(self.gradient()) + (self._f.smoothness or 0.0) * norm(self.x))

    def move(self, line: Line, step: float) -> None:
        line.direction.move(self.x, step)
        self._known = None

    def blend(self, other: "_AutogradPoint", share: float) -> None:
        self.x.lerp_(other.x, share)
        self._known = None
