"""Quadratic objectives: distance, quadratic form, least squares."""

import math
from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse.linalg
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, dot, norm, wants_numpy
from unknot.solvers.lines import Direction, Line, Point, QuadraticLine
from unknot.solvers.maps import LinearMap, mean_factor, read_pair
from unknot.solvers.objectives.base import CACHE_BYTES, ProductPoint, QuadraticObjective
from unknot.solvers.structured import Atom


class SquaredDistance(QuadraticObjective):
    """f(θ) = ½‖θ - y‖²: projecting y on a hull, a span or a cone. L = μ = 1.

    Args:
        target: y, of any shape; for batched matching pursuit ``[B, d]``, one signal in each row.
        mask: of the same shape: only entries where it is true (or weights ≥ 0) count, as in matrix completion.

    >>> import numpy as np
    >>> f = SquaredDistance(np.array([1.0, 2.0]))
    >>> f(np.zeros(2)), f.gradient(np.zeros(2))
    (2.5, array([-1., -2.]))
    """

    def __init__(self, target: Any, mask: Any = None) -> None:
        self.target = as_tensor(target, "target").contiguous()
        self.numpy = wants_numpy(target)
        if not self.target.numel() or not self.target.ndim:
            raise ValueError(f"target has shape {list(self.target.shape)}: expected an array with at least one entry.")
        self.shape = tuple(self.target.shape)
        self.dtype, self.device = self.target.dtype, self.target.device
        self.mask: Tensor | None = None
        if mask is not None:
            self.mask = as_tensor(mask, "mask").to(self.target)
            if self.mask.shape != self.target.shape or bool((self.mask < 0).any()):
                raise ValueError(
                    f"mask has shape {list(self.mask.shape)}: expected {list(self.shape)} and no negatives."
                )

    @cached_property
    def target_norm(self) -> float:
        """‖y‖."""
        return norm(self.target)

    @property
    def smoothness(self) -> float:
        """1, or the largest weight."""
        return 1.0 if self.mask is None else float(self.mask.max())

    @property
    def strong_convexity(self) -> float:
        """1, or the smallest weight."""
        return 1.0 if self.mask is None else float(self.mask.min())

    def hessian(self) -> Tensor:
        """The identity, or the mask on its diagonal."""
        return torch.diag(self.hessian_diagonal().double().expand(self.target.numel()))

    def hessian_diagonal(self) -> Tensor:
        """1, or the mask."""
        return torch.ones(1, dtype=self.dtype) if self.mask is None else self.mask.reshape(-1)

    def curvatures(self, rows: Tensor) -> Tensor:
        """‖z_i‖², as the mask weighs it."""
        return (rows.square() * self.hessian_diagonal().to(rows)).sum(1)

    def at(self, x: Tensor) -> Point:
        """A point; the gradient is θ - y."""
        return _DistancePoint(self, x)

    def weigh(self, x: Tensor) -> Tensor:
        """H x: the identity, or the mask."""
        return x if self.mask is None else x * self.mask

    def image(self, atom: Atom) -> Tensor:
        """z itself, or what the mask leaves of it."""
        flat = atom.dense().reshape(-1)
        return flat if self.mask is None else flat * self.mask.reshape(-1).sqrt()

    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        """⟨B z_i, B z⟩."""
        return images @ image

    def root_target(self) -> Tensor:
        """y, or what the mask leaves of it."""
        flat = self.target.reshape(-1)
        return flat if self.mask is None else flat * self.mask.reshape(-1).sqrt()

    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨z, y⟩."""
        return dot(image, self.root_target())


class _DistancePoint(Point):
    def __init__(self, objective: SquaredDistance, x: Tensor) -> None:
        self._f = objective
        self.jump(x)

    def jump(self, x: Tensor) -> None:
        self.x = x.contiguous()
        self._gradient: Tensor | None = None

    def gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = self._f.weigh(self.x - self._f.target)
        return self._gradient

    def value(self) -> float:
        gradient = self.gradient()
        return dot(gradient, gradient if self._f.mask is None else self.x - self._f.target) / 2

    def error(self) -> float:
        unit = float(torch.finfo(self._f.dtype).eps)
        return unit / 2 * self._f.smoothness * (norm(self.x) + self._f.target_norm)

    def along(self, direction: Direction) -> Line:
        slope = direction.inner(self.gradient(), self.x)

        def curvature() -> float:
            if self._f.mask is None:
                return direction.squared_norm(self.x)
            d = direction.dense(self.x)
            return dot(d, self._f.weigh(d))

        return QuadraticLine(direction, self.x, slope, curvature, None, bounded=True)

    def move(self, line: Line, step: float) -> None:
        line.direction.move(self.x, step)
        self._gradient = None

    def blend(self, other: "_DistancePoint", share: float) -> None:
        self.x.lerp_(other.x, share)
        self._gradient = None


class Quadratic(QuadraticObjective):
    """f(θ) = ½ θᵀQθ - bᵀθ + c for a symmetric positive semi-definite Q; L and μ are its extreme eigenvalues.

    >>> import numpy as np
    >>> f = Quadratic(np.diag([1.0, 4.0]), np.array([1.0, 4.0]))
    >>> f(np.ones(2)), f.smoothness, f.strong_convexity
    (-2.5, 4.0, 1.0)
    """

    def __init__(self, matrix: Any, linear: Any = None, constant: float = 0.0) -> None:
        self.map = LinearMap(matrix)
        self.numpy = wants_numpy(matrix, linear)
        if self.map.rows != self.map.columns:
            raise ValueError(f"matrix has shape {[self.map.rows, self.map.columns]}: expected a square matrix [n, n].")
        self._check_symmetric()
        self.shape = (self.map.rows,)
        self.dtype, self.device = self.map.dtype, self.map.device
        origin = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        self.b = origin if linear is None else as_tensor(linear, "linear").to(origin)
        if tuple(self.b.shape) != self.shape:
            raise ValueError(f"linear has shape {list(self.b.shape)}: expected {list(self.shape)}, as the matrix.")
        self.constant = float(constant)

    def _check_symmetric(self) -> None:
        if not self.map.sparse and self.map.operator is None:
            matrix = self.map.matrix
            symmetric = torch.allclose(matrix, matrix.t(), rtol=1e-4, atol=1e-6 * float(matrix.abs().max()))
        else:
            probe = torch.randn(self.map.rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            probe = probe.to(self.map.device, self.map.dtype)
            there, back = self.map.apply(probe), self.map.adjoint(probe)
            symmetric = norm(there - back) <= 1e-4 * max(norm(there), 1e-300)
        if not symmetric:
            raise ValueError("matrix is not symmetric: expected Q = Qᵀ, so pass (Q + Q.T) / 2.")

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        """The smallest eigenvalue (0 where it would be expensive) and the largest."""
        if self.map.rows > 2048 or self.map.operator is not None:
            operator = scipy.sparse.linalg.LinearOperator(
                (self.map.rows, self.map.rows),
                matvec=lambda x: self.map.apply(torch.from_numpy(x).to(self.device, self.dtype)).cpu().numpy(),
                dtype=np.float64,
            )
            start = np.random.default_rng(0).standard_normal(self.map.rows)
            top = scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=start, tol=1e-9, return_eigenvectors=False)
            return 0.0, float(top[0]) * (1 + 1e-8)
        values = torch.linalg.eigvalsh(self.map.dense())
        low, high = float(values[0]), float(values[-1])
        if low < -1e-6 * max(high, 1e-300):
            raise ValueError(f"matrix has the negative eigenvalue {low:.3g}: expected a convex objective, Q ⪰ 0.")
        return low, high

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue."""
        return self._extremes[1]

    @property
    def strong_convexity(self) -> float:
        """The smallest eigenvalue, 0 if it cannot be told from 0 or would be expensive to find."""
        low, high = self._extremes
        return low if low > 1e-13 * self.map.rows * high else 0.0

    def hessian(self) -> Tensor:
        """Q."""
        return self.map.dense()

    def hessian_diagonal(self) -> Tensor:
        """Of Q."""
        if self.map.operator is None and not self.map.sparse:
            return self.map.matrix.diagonal()
        return self.map.dense().diagonal()

    def curvatures(self, rows: Tensor) -> Tensor:
        """⟨z_i, Q z_i⟩."""
        images = torch.stack([self.map.apply(row) for row in rows.to(self.b)])
        return (images * rows.to(self.b)).sum(1)

    def at(self, x: Tensor) -> Point:
        """A point that keeps Qθ."""
        return _QuadraticPoint(self, x)

    def image(self, atom: Atom) -> Tensor:
        """Q z: no root of Q is needed, see ``inner_products``."""
        return self.map.image(atom)

    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        """⟨z_i, Q z⟩."""
        image = image.to(self.dtype)
        return torch.tensor([atom.inner(image) for atom in atoms], dtype=torch.float64)

    def blur(self, atom: Atom, image: Tensor) -> float:
        """From the rounding of Qz."""
        return math.sqrt(8 * self.unit * norm(image) * math.sqrt(atom.squared_norm))

    @property
    def unit(self) -> float:
        """That of Q itself."""
        return float(torch.finfo(self.dtype).eps)

    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨z, b⟩."""
        return atom.inner(self.b)


class _QuadraticPoint(ProductPoint):
    _f: Quadratic

    def land(self, x: Tensor, image: Tensor | None) -> None:
        if image is None:
            return self.jump(x)
        self.x, self._kept, self._gradient = x.contiguous(), image, None
        self._moves = 1

    def gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = self._kept - self._f.b
        return self._gradient

    def value(self) -> float:
        return dot(self.x, self._kept - 2 * self._f.b) / 2 + self._f.constant

    def error(self) -> float:
        unit = float(torch.finfo(self._f.dtype).eps)
        return unit / 2 * (self._f.map.frobenius * norm(self.x) + norm(self._f.b))

    def value_error(self) -> float:
        return self.error() * norm(self.x)  # ½⟨θ, Qθ⟩ and ⟨b, θ⟩ may cancel

    def along(self, direction: Direction) -> Line:
        image = self._along(direction, self._kept)
        slope = direction.inner(self.gradient(), self.x)
        return QuadraticLine(direction, self.x, slope, lambda: direction.inner(image, self.x), image)


class LeastSquares(QuadraticObjective):
    """f(x) = ½‖Ax - b‖² (``reduction="mean"``: divided by the number of rows). L = λ_max(AᵀA).

    The residual is kept up to date, and so is the gradient: products AᵀAz with atoms that have a name (coordinates,
    columns of a dictionary) are remembered, so that a step along an atom seen before costs O(m + n).

    >>> import numpy as np
    >>> f = LeastSquares(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), np.array([1.0, 2.0, 3.0]))
    >>> f(np.ones(2)), f.gradient(np.zeros(2)), f.smoothness
    (4.5, array([-1., -4.]), 4.0)
    """

    def __init__(self, matrix: Any, target: Any, reduction: str = "sum") -> None:
        self.map, self.target = read_pair(matrix, target, "target")
        self.factor = mean_factor(reduction, self.map.rows)
        self.numpy = wants_numpy(matrix, target)
        self.shape = (self.map.columns,)
        self.dtype, self.device = self.map.dtype, self.map.device

    @property
    def smoothness(self) -> float:
        """λ_max(AᵀA)."""
        return self.factor * self.map.largest_eigenvalue

    @property
    def strong_convexity(self) -> float:
        """λ_min(AᵀA), or the bound 0 for more than 1024 columns."""
        return self.factor * self.map.smallest_eigenvalue

    def hessian(self) -> Tensor:
        """AᵀA."""
        dense = self.map.dense()
        return self.factor * dense.t() @ dense

    def hessian_diagonal(self) -> Tensor:
        """Squared norms of the columns."""
        return self.factor * self.map.column_squares()

    def curvatures(self, rows: Tensor) -> Tensor:
        """‖A z_i‖²."""
        return self.factor * map_images(self.map, rows).square().sum(0)

    def row_derivatives(self, scores: Tensor, rows: Tensor | None = None) -> Tensor:
        """s - b, of some rows or all."""
        return self.factor * (scores - (self.target if rows is None else self.target[rows]))

    @cached_property
    def target_norm(self) -> float:
        """‖b‖."""
        return norm(self.target)

    def at(self, x: Tensor) -> Point:
        """A point that keeps Ax and ∇f."""
        return _LeastSquaresPoint(self, x)

    def image(self, atom: Atom) -> Tensor:
        """A z, scaled."""
        return self.map.image(atom) * math.sqrt(self.factor)

    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        """⟨A z_i, A z⟩."""
        return images @ image

    def root_target(self) -> Tensor:
        """b, scaled."""
        return self.target * math.sqrt(self.factor)

    def blur(self, atom: Atom, image: Tensor) -> float:
        """The rounding of Az."""
        unit = float(torch.finfo(self.dtype).eps)
        return unit * math.sqrt(self.factor * atom.squared_norm) * self.map.frobenius

    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨A z, b⟩."""
        return math.sqrt(self.factor) * dot(image, self.target)


class _LeastSquaresPoint(ProductPoint):
    """Keeps the residual Ax - b, and what atoms with a name have for products."""

    _f: LeastSquares

    def __init__(self, objective: LeastSquares, x: Tensor) -> None:
        self._images: dict[Hashable, Tensor] = {}
        self._products: dict[Hashable, Tensor] = {}
        item = objective.target.element_size()
        self._room = max(64, CACHE_BYTES // (item * (objective.map.rows + objective.map.columns)))
        self._linear: Tensor | None = None
        super().__init__(objective, x)

    def _product(self) -> Tensor:
        return self._f.map.apply(self.x) - self._f.target

    def _forget(self) -> None:
        self._gradient, self._wanted = None, False

    def land(self, x: Tensor, image: Tensor | None) -> None:
        if image is None:
            return self.jump(x)
        self.x, self._kept = x.contiguous(), image / math.sqrt(self._f.factor) - self._f.target
        self._moves = 1
        self._forget()

    def value(self) -> float:
        return self._f.factor * dot(self._kept, self._kept) / 2

    def error(self) -> float:
        unit = float(torch.finfo(self._f.dtype).eps)
        size = norm(self._kept) + self._f.target_norm
        return unit / 2 * self._f.factor * self._f.map.frobenius * size

    def gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = self._f.factor * self._f.map.adjoint(self._kept)
        self._wanted = True
        return self._gradient

    def _image(self, atom: Atom) -> Tensor:
        if atom.key is None:
            return self._f.map.image(atom)
        image = self._images.get(atom.identity)
        if image is None:
            image = self._f.map.image(atom)
            if len(self._images) < self._room:
                self._images[atom.identity] = image
        return image

    def along(self, direction: Direction) -> Line:
        terms = direction.terms
        if not direction.iterate and len(terms) == 1 and terms[0][0] == 1.0:
            image = self._image(terms[0][1])
        else:
            image = self._along(direction, self._kept + self._f.target if direction.iterate else self._kept)
        slope = self._f.factor * dot(self._kept, image)
        return QuadraticLine(direction, self.x, slope, lambda: self._f.factor * dot(image, image), image, True)

    def _follow(self, line: Line, step: float) -> None:
        if not self._wanted:  # a random step did without the gradient: keeping it would cost more than the step
            self._gradient = None
        elif self._gradient is not None:
            self._move_gradient(line.direction, step)
            self._wanted = False

    def _move_gradient(self, direction: Direction, step: float) -> None:
        """∇f += γ AᵀA d from remembered products; a new atom's product costs as much as a gradient, once."""
        products = []
        for weight, atom in direction.terms:
            product = None if atom.key is None else self._products.get(atom.identity)
            if product is None and atom.key is not None and len(self._products) < self._room:
                product = self._f.factor * self._f.map.adjoint(self._image(atom))
                self._products[atom.identity] = product
            if product is None:
                self._gradient = None
                return
            products.append((weight, product))
        gradient = self._gradient
        assert gradient is not None
        if direction.iterate:
            if self._linear is None:
                self._linear = self._f.factor * self._f.map.adjoint(self._f.target)
            gradient.mul_(1 + step * direction.iterate).add_(self._linear, alpha=step * direction.iterate)
        for weight, product in products:
            gradient.add_(product, alpha=step * weight)

    def blend(self, other: Any, share: float) -> None:
        gradient, wanted = self._gradient, self._wanted
        super().blend(other, share)
        if gradient is not None:
            self._gradient, self._wanted = gradient.lerp_(other.gradient(), share), wanted  # ∇f is affine in θ
        self._images, self._products = other._images, other._products


def map_images(linear_map: LinearMap, rows: Tensor) -> Tensor:
    """A z_i as columns ``[m, n]``, for rows z_i ``[n, d]``."""
    rows = rows.to(linear_map.device, linear_map.dtype)
    if linear_map.operator is None:
        return linear_map.matrix @ rows.t()
    return torch.stack([linear_map.apply(row) for row in rows], dim=1)
