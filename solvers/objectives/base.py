"""What an objective is, and what solvers ask of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, to_user, wants_numpy
from unknot.solvers.lines import Direction, Line, Point
from unknot.solvers.structured import Atom

REFRESH_EVERY = 1000
"""Moves after which incremental products are computed anew, so that rounding errors cannot pile up."""

CACHE_BYTES = 2**28
"""Memory that products of least squares with atoms may take."""


class Objective(ABC):
    """A convex, differentiable f.

    Attributes:
        shape: of θ; None if f takes any.
        smoothness: L, the Lipschitz constant of ∇f in the Euclidean norm, or None if unknown.
        strong_convexity: μ ≥ 0, a lower bound.
        numpy: whether f was made from NumPy arrays, which is what results then are.
        adopts: whether f takes arrays of any kind, so that the start decides which.
        quadratic: whether the Hessian is constant, so that an exact line search is free.
        domain: x → whether f is finite there; None if it is everywhere.
    """

    shape: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float64
    device: torch.device = torch.device("cpu")
    numpy: bool = False
    adopts: bool = False
    quadratic: bool = False
    domain: Callable[[Tensor], bool] | None = None

    @property
    def smoothness(self) -> float | None:
        """L, if known."""
        return None

    @property
    def strong_convexity(self) -> float:
        """μ, 0 if unknown."""
        return 0.0

    @abstractmethod
    def at(self, x: Tensor) -> Point:
        """A point at x, which it takes over and changes."""

    def hessian(self) -> Tensor | None:
        """H ``[n, n]``, or a matrix that bounds it from above everywhere; None if there is none."""
        return None

    def hessian_diagonal(self) -> Tensor | None:
        """Its diagonal."""
        return None

    def curvatures(self, rows: Tensor) -> Tensor | None:
        """⟨z_i, H z_i⟩ ``[n]`` for rows z_i ``[n, d]``."""
        return None

    def value(self, x: Any) -> float:
        """f(x)."""
        return self._point(x).value()

    def gradient(self, x: Any) -> Any:
        """∇f(x), of the kind of x."""
        return to_user(self._point(x).gradient(), wants_numpy(x))

    def __call__(self, x: Any) -> float:
        """f(x)."""
        return self.value(x)

    def _point(self, x: Any) -> Point:
        tensor = as_tensor(x, "x").to(dtype=self.dtype, device=self.device)
        if self.shape is not None and tuple(tensor.shape) != self.shape:
            raise ValueError(f"x has shape {list(tensor.shape)} but the objective is over {list(self.shape)}.")
        return self.at(tensor.clone())


class QuadraticObjective(Objective):
    """f with a constant Hessian H: what exact corrections of weights need of it."""

    quadratic = True

    @abstractmethod
    def image(self, atom: Atom) -> Tensor:
        """B z, for a B with BᵀB = H."""

    @abstractmethod
    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        """⟨z_i, H z⟩ ``[S]`` from the images of the z_i ``[S, m]`` and of z."""

    def root_target(self) -> Tensor | None:
        """t of f(θ) = ½‖Bθ - t‖² + constant, where f has that form and so is bounded below; else None."""
        return None

    def blur(self, atom: Atom, image: Tensor) -> float:
        """√ of how wrong ⟨z, Hz⟩ may be by rounding."""
        return 0.0

    @property
    def unit(self) -> float:
        """Relative rounding of the products, whose sums are in double precision."""
        return float(torch.finfo(torch.float64).eps)

    @abstractmethod
    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨z, b⟩ in f(θ) = ½⟨θ, Hθ⟩ - ⟨b, θ⟩ + constant."""


class ProductPoint(Point):
    """A point of an f that sees θ through a product Aθ, which is kept up to date and now and then computed anew."""

    _f: Any
    _gradient: Tensor | None

    def __init__(self, objective: Any, x: Tensor) -> None:
        self._f = objective
        self.jump(x)

    def _product(self) -> Tensor:
        """What is kept: Aθ, or Aθ minus a constant."""
        product: Tensor = self._f.map.apply(self.x)
        return product

    def _forget(self) -> None:
        """Drop what was known of f at θ."""
        self._gradient = None

    def jump(self, x: Tensor) -> None:
        """θ ← x, with a new product."""
        self.x = x.contiguous()
        self._kept, self._moves = self._product(), 0
        self._forget()

    def refresh(self) -> bool:
        """The product anew, if it was only updated since the last time."""
        if not self._moves:
            return False
        self.jump(self.x)
        return True

    def _image(self, atom: Atom) -> Tensor:
        """A z."""
        image: Tensor = self._f.map.image(atom)
        return image

    def _along(self, direction: Direction, product: Tensor) -> Tensor:
        """A d, given Aθ."""
        image = product * direction.iterate if direction.iterate else torch.zeros_like(product)
        for weight, atom in direction.terms:
            image.add_(self._image(atom), alpha=weight)
        return image

    def _follow(self, line: Line, step: float) -> None:
        """What becomes of the rest after a move."""
        self._forget()

    def move(self, line: Line, step: float) -> None:
        """Along the line, whose image moves the product."""
        assert line.image is not None
        line.direction.move(self.x, step)
        self._kept.add_(line.image, alpha=step)
        self._moves += 1
        if self._moves >= REFRESH_EVERY:
            self.jump(self.x)
        else:
            self._follow(line, step)

    def blend(self, other: Any, share: float) -> None:
        """Both θ and the product."""
        self.x.lerp_(other.x, share)
        self._kept.lerp_(other._kept, share)
        self._forget()
