"""What an objective is, and what solvers ask of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, to_user, wants_numpy
from unknot.solvers.lines import Point
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

    @abstractmethod
    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨z, b⟩ in f(θ) = ½⟨θ, Hθ⟩ - ⟨b, θ⟩ + constant."""
