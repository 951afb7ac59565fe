"""Smooth objectives by their products with atoms: distance, quadratic form, least squares, logistic, any function.

Points move over them cheaply: what a step needs is kept up to date, see :mod:`unknot.solvers.lines`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from torch import Tensor

from unknot.solvers.lines import ConvexLine, Direction, Line, Point, QuadraticLine, along
from unknot.solvers.structured import (
    Atom,
    OneHot,
    Sparse,
    as_tensor,
    csr_tensor,
    dot,
    is_array,
    is_sparse,
    norm,
    returns_numpy,
    to_user,
)

__all__ = [
    "CACHE_BYTES",
    "REFRESH_EVERY",
    "ConvexLine",
    "Differentiable",
    "Direction",
    "LeastSquares",
    "Line",
    "LinearMap",
    "Logistic",
    "Objective",
    "Point",
    "Quadratic",
    "QuadraticLine",
    "QuadraticObjective",
    "SquaredDistance",
    "along",
    "as_objective",
]


class LinearMap:
    """A matrix A ``[m, n]``, dense or sparse (SciPy or torch), or a SciPy ``LinearOperator``, and its products."""

    def __init__(self, matrix: Any, name: str = "matrix") -> None:
        self.sparse = is_sparse(matrix)
        self.operator: Any = None
        if self.sparse:
            if isinstance(matrix, Tensor):
                coo = matrix.detach().to_sparse_coo().coalesce().cpu()
                scipy_matrix = scipy.sparse.csr_matrix(
                    (coo.values().numpy(), coo.indices().numpy()), shape=tuple(matrix.shape)
                )
            else:
                scipy_matrix = scipy.sparse.csr_matrix(matrix)
            device = matrix.device if isinstance(matrix, Tensor) else torch.device("cpu")
            self.matrix = csr_tensor(scipy_matrix).to(device)
            self.transpose = csr_tensor(scipy_matrix.T).to(device)
            if not bool(torch.isfinite(self.matrix.values()).all()):
                raise ValueError(f"{name} has non-finite entries: expected finite numbers, remove NaN and inf first.")
        elif isinstance(matrix, scipy.sparse.linalg.LinearOperator):
            if np.issubdtype(matrix.dtype, np.complexfloating):
                raise ValueError(f"{name} is complex: expected a real operator.")
            self.operator = matrix
            self.matrix = self.transpose = torch.empty(matrix.shape, device="meta")
        else:
            self.matrix = as_tensor(matrix, name)
            if self.matrix.ndim != 2:
                raise ValueError(f"{name} has shape {list(self.matrix.shape)}: expected a matrix [m, n].")
            self.transpose = self.matrix.t()
        self.rows, self.columns = self.matrix.shape
        if not self.rows or not self.columns:
            raise ValueError(
                f"{name} is empty (shape {[self.rows, self.columns]}): expected at least one row and column."
            )
        self.dtype, self.device = self.matrix.dtype, self.matrix.device
        if self.operator is not None:
            single = self.operator.dtype == np.float32
            self.dtype, self.device = torch.float32 if single else torch.float64, torch.device("cpu")

    def apply(self, x: Tensor) -> Tensor:
        """A x."""
        return self.matrix @ x if self.operator is None else self._ask(self.operator.matvec, x)

    def adjoint(self, r: Tensor) -> Tensor:
        """Aᵀ r."""
        return self.transpose @ r if self.operator is None else self._ask(self.operator.rmatvec, r)

    def _ask(self, product: Any, x: Tensor) -> Tensor:
        return as_tensor(np.asarray(product(x.numpy())).reshape(-1), "a product of the operator").to(self.dtype)

    def image(self, atom: Atom) -> Tensor:
        """A z; one column for a coordinate."""
        if self.operator is not None:
            return self.apply(atom.dense())
        if isinstance(atom, OneHot) and not self.sparse:
            return self.transpose[atom.index] * atom.scale
        if isinstance(atom, OneHot):
            start, stop = (int(i) for i in self.transpose.crow_indices()[atom.index : atom.index + 2])
            image = torch.zeros(self.rows, dtype=self.dtype, device=self.device)
            image[self.transpose.col_indices()[start:stop]] = self.transpose.values()[start:stop] * atom.scale
            return image
        if isinstance(atom, Sparse) and not self.sparse:
            return self.matrix[:, atom.indices] @ (atom.values * atom.scale)
        return self.apply(atom.dense())

    def take(self, rows: Tensor) -> Tensor:
        """Return some rows as a dense matrix."""
        if self.operator is not None:
            raise ValueError("a LinearOperator has no rows to take: pass the matrix, dense or sparse.")
        if not self.sparse:
            return self.matrix[rows]
        return torch.from_numpy(self._csr[rows.cpu().numpy()].toarray()).to(self.device)

    @cached_property
    def _csr(self) -> Any:
        parts = (self.matrix.values(), self.matrix.col_indices(), self.matrix.crow_indices())
        return scipy.sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=(self.rows, self.columns))

    def dense(self) -> Tensor:
        """A as a dense array in double precision."""
        if self.operator is not None:
            return torch.from_numpy(np.asarray(self.operator @ np.eye(self.columns), dtype=np.float64))
        return (self.matrix.to_dense() if self.sparse else self.matrix).cpu().double()

    def column_squares(self) -> Tensor:
        """The diagonal of AᵀA."""
        if self.operator is not None:
            return self.dense().square().sum(0)
        if not self.sparse:
            return self.matrix.square().sum(0)
        squares = torch.zeros(self.columns, dtype=self.dtype, device=self.device)
        return squares.index_add_(0, self.matrix.col_indices(), self.matrix.values().square())

    @cached_property
    def frobenius(self) -> float:
        """√Σ A_ij²; for an operator, from the products with a few random vectors."""
        if self.operator is None:
            return norm(self.matrix.values() if self.sparse else self.matrix)
        probes = np.random.default_rng(0).standard_normal((self.columns, 4))
        return 2 * math.sqrt(float(np.square(np.asarray(self.operator @ probes)).sum()) / 4)

    def to(self, dtype: torch.dtype, device: torch.device) -> "LinearMap":
        """Return the map in another precision or on another device."""
        if self.operator is not None or (self.dtype, self.device) == (dtype, device):
            return self
        other: LinearMap = object.__new__(LinearMap)
        vars(other).update(vars(self), matrix=self.matrix.to(dtype=dtype, device=device), dtype=dtype, device=device)
        other.transpose = self.transpose.to(dtype=dtype, device=device)
        return other

    @cached_property
    def _spectrum(self) -> Tensor:
        """Eigenvalues of AᵀA, or of AAᵀ if that is smaller."""
        dense = self.dense()
        return torch.linalg.eigvalsh(dense @ dense.t() if self.rows < self.columns else dense.t() @ dense)

    @cached_property
    def largest_eigenvalue(self) -> float:
        """λ_max(AᵀA), by Lanczos where A is large."""
        if min(self.rows, self.columns) <= 512:
            return float(self._spectrum[-1])
        return _top_eigenvalue(lambda x: self.adjoint(self.apply(x)), self)

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """λ_min(AᵀA), or the bound 0 where A is wide, or so large that it would be expensive."""
        if self.columns > min(self.rows, 1024):
            return 0.0
        low, high = float(self._spectrum[0]), float(self._spectrum[-1])
        return low if low > 1e-13 * self.rows * high else 0.0


def _top_eigenvalue(product: Callable[[Tensor], Tensor], like: LinearMap) -> float:
    """A bound on the largest eigenvalue of a symmetric operator over the columns of a map, by Lanczos."""
    operator = scipy.sparse.linalg.LinearOperator(
        (like.columns, like.columns),
        matvec=lambda x: product(torch.from_numpy(x).to(like.device, like.dtype)).cpu().numpy(),
        dtype=np.float64,
    )
    start = np.random.default_rng(0).standard_normal(like.columns)
    top = scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=start, tol=1e-9, return_eigenvectors=False)
    return float(top[0]) * (1 + 1e-8)


def read_pair(matrix: Any, target: Any, name: str) -> tuple[LinearMap, Tensor]:
    """A map and a vector over its rows."""
    linear_map = LinearMap(matrix)
    vector = as_tensor(target, name).to(dtype=linear_map.dtype, device=linear_map.device)
    if tuple(vector.shape) != (linear_map.rows,):
        raise ValueError(
            f"{name} has shape {list(vector.shape)} but the matrix has {linear_map.rows} rows: "
            f"expected {name} of shape {[linear_map.rows]}."
        )
    return linear_map, vector


def mean_factor(reduction: str, rows: int) -> float:
    """1, or one over the number of rows."""
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction is {reduction!r}: expected 'sum' or 'mean'.")
    return 1.0 if reduction == "sum" else 1.0 / rows


REFRESH_EVERY = 1000
"""Moves after which incremental products are recomputed, so that rounding errors cannot pile up."""

CACHE_BYTES = 2**28
"""Memory that products of least squares with atoms may take."""


class Objective(ABC):
    """A convex, differentiable f.

    Thesis: Eq. "eq:general_problem", chapter "Introduction and Background".

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
        return to_user(self._point(x).gradient(), returns_numpy(x))

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
    """A point of an f that sees θ through a product Aθ, which is kept up to date and recomputed now and then."""

    _f: Any
    _gradient: Tensor | None

    def __init__(self, objective: Any, x: Tensor) -> None:
        self._f = objective
        self.jump(x)

    def _product(self) -> Tensor:
        """The kept product: Aθ, or Aθ minus a constant."""
        product: Tensor = self._f.map.apply(self.x)
        return product

    def _forget(self) -> None:
        """Drop what was known of f at θ."""
        self._gradient = None

    def jump(self, x: Tensor) -> None:
        self.x = x.contiguous()
        self._kept, self._moves = self._product(), 0
        self._forget()

    def refresh(self) -> bool:
        """Recompute the product, if it was only updated since the last time."""
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
        """Update everything else after a move."""
        self._forget()

    def move(self, line: Line, step: float) -> None:
        assert line.image is not None
        line.direction.move(self.x, step)
        self._kept.add_(line.image, alpha=step)
        self._moves += 1
        if self._moves >= REFRESH_EVERY:
            self.jump(self.x)
        else:
            self._follow(line, step)

    def blend(self, other: Any, share: float) -> None:
        self.x.lerp_(other.x, share)
        self._kept.lerp_(other._kept, share)
        self._forget()


class SquaredDistance(QuadraticObjective):
    r"""f(θ) = ½‖θ - y‖²: projecting y on a hull, a span or a cone. L = μ = 1.

    .. math:: f(\theta) = \frac{1}{2}\,\|\theta - y\|^2

    Thesis: section "Matching Pursuit and Coordinate Descent".

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
        self.numpy = returns_numpy(target)
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
        return 1.0 if self.mask is None else float(self.mask.max())

    @property
    def strong_convexity(self) -> float:
        return 1.0 if self.mask is None else float(self.mask.min())

    def hessian(self) -> Tensor:
        return torch.diag(self.hessian_diagonal().double().expand(self.target.numel()))

    def hessian_diagonal(self) -> Tensor:
        return torch.ones(1, dtype=self.dtype) if self.mask is None else self.mask.reshape(-1)

    def curvatures(self, rows: Tensor) -> Tensor:
        return (rows.square() * self.hessian_diagonal().to(rows)).sum(1)

    def at(self, x: Tensor) -> Point:
        return _DistancePoint(self, x)

    def weigh(self, x: Tensor) -> Tensor:
        """H x: the identity, or the mask."""
        return x if self.mask is None else x * self.mask

    def image(self, atom: Atom) -> Tensor:
        flat = atom.dense().reshape(-1)
        return flat if self.mask is None else flat * self.mask.reshape(-1).sqrt()

    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        return images @ image

    def root_target(self) -> Tensor:
        flat = self.target.reshape(-1)
        return flat if self.mask is None else flat * self.mask.reshape(-1).sqrt()

    def linear(self, atom: Atom, image: Tensor) -> float:
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
    r"""f(θ) = ½ θᵀQθ - bᵀθ + c for a symmetric positive semi-definite Q; L and μ are its extreme eigenvalues.

    .. math:: f(\theta) = \frac{1}{2}\,\theta^T Q\, \theta - b^T\theta + c

    Thesis: Eq. "eq:general_problem", chapter "Introduction and Background".

    >>> import numpy as np
    >>> f = Quadratic(np.diag([1.0, 4.0]), np.array([1.0, 4.0]))
    >>> f(np.ones(2)), f.smoothness, f.strong_convexity
    (-2.5, 4.0, 1.0)
    """

    def __init__(self, matrix: Any, linear: Any = None, constant: float = 0.0) -> None:
        self.map = LinearMap(matrix)
        self.numpy = returns_numpy(matrix, linear)
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
            return 0.0, _top_eigenvalue(self.map.apply, self.map)
        values = torch.linalg.eigvalsh(self.map.dense())
        low, high = float(values[0]), float(values[-1])
        if low < -1e-6 * max(high, 1e-300):
            raise ValueError(f"matrix has the negative eigenvalue {low:.3g}: expected a convex objective, Q ⪰ 0.")
        return low, high

    @property
    def smoothness(self) -> float:
        return self._extremes[1]

    @property
    def strong_convexity(self) -> float:
        """The smallest eigenvalue, 0 if rounding hides it or it would be expensive to find."""
        low, high = self._extremes
        return low if low > 1e-13 * self.map.rows * high else 0.0

    def hessian(self) -> Tensor:
        return self.map.dense()

    def hessian_diagonal(self) -> Tensor:
        if self.map.operator is None and not self.map.sparse:
            return self.map.matrix.diagonal()
        return self.map.dense().diagonal()

    def curvatures(self, rows: Tensor) -> Tensor:
        images = torch.stack([self.map.apply(row) for row in rows.to(self.b)])
        return (images * rows.to(self.b)).sum(1)

    def at(self, x: Tensor) -> Point:
        return _QuadraticPoint(self, x)

    def image(self, atom: Atom) -> Tensor:
        return self.map.image(atom)

    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        image = image.to(self.dtype)
        return torch.tensor([atom.inner(image) for atom in atoms], dtype=torch.float64)

    def blur(self, atom: Atom, image: Tensor) -> float:
        return math.sqrt(8 * self.unit * norm(image) * math.sqrt(atom.squared_norm))

    @property
    def unit(self) -> float:
        return float(torch.finfo(self.dtype).eps)

    def linear(self, atom: Atom, image: Tensor) -> float:
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
    r"""f(x) = ½‖Ax - b‖² (``reduction="mean"``: divided by the number of rows). L = λ_max(AᵀA).

    .. math:: f(x) = \frac{1}{2}\,\|A x - b\|^2,\quad L = \lambda_{\max}(A^T A)

    Thesis: Eq. "eq:general_problem", chapter "Introduction and Background".

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
        self.numpy = returns_numpy(matrix, target)
        self.shape = (self.map.columns,)
        self.dtype, self.device = self.map.dtype, self.map.device

    @property
    def smoothness(self) -> float:
        return self.factor * self.map.largest_eigenvalue

    @property
    def strong_convexity(self) -> float:
        return self.factor * self.map.smallest_eigenvalue

    def hessian(self) -> Tensor:
        dense = self.map.dense()
        return self.factor * dense.t() @ dense

    def hessian_diagonal(self) -> Tensor:
        return self.factor * self.map.column_squares()

    def curvatures(self, rows: Tensor) -> Tensor:
        return self.factor * map_images(self.map, rows).square().sum(0)

    def row_derivatives(self, scores: Tensor, rows: Tensor | None = None) -> Tensor:
        """s - b, of some rows or all."""
        return self.factor * (scores - (self.target if rows is None else self.target[rows]))

    @cached_property
    def target_norm(self) -> float:
        """‖b‖."""
        return norm(self.target)

    def at(self, x: Tensor) -> Point:
        return _LeastSquaresPoint(self, x)

    def image(self, atom: Atom) -> Tensor:
        return self.map.image(atom) * math.sqrt(self.factor)

    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        return images @ image

    def root_target(self) -> Tensor:
        return self.target * math.sqrt(self.factor)

    def blur(self, atom: Atom, image: Tensor) -> float:
        unit = float(torch.finfo(self.dtype).eps)
        return unit * math.sqrt(self.factor * atom.squared_norm) * self.map.frobenius

    def linear(self, atom: Atom, image: Tensor) -> float:
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
        self._gradient, self._used = None, False

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
        self._used = True
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
        if not self._used:  # a random step did without the gradient: keeping it would cost more than the step
            self._gradient = None
        elif self._gradient is not None:
            self._move_gradient(line.direction, step)
            self._used = False

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
        gradient, used = self._gradient, self._used
        super().blend(other, share)
        if gradient is not None:
            self._gradient, self._used = gradient.lerp_(other.gradient(), share), used  # ∇f is affine in θ
        self._images, self._products = other._images, other._products


def map_images(linear_map: LinearMap, rows: Tensor) -> Tensor:
    """A z_i as columns ``[m, n]``, for rows z_i ``[n, d]``."""
    rows = rows.to(linear_map.device, linear_map.dtype)
    if linear_map.operator is None:
        return linear_map.matrix @ rows.t()
    return torch.stack([linear_map.apply(row) for row in rows], dim=1)


class Logistic(Objective):
    r"""f(x) = Σ_i log(1 + exp(-y_i ⟨a_i, x⟩)) (or its mean over samples), and ½ ridge ‖x‖². L = λ_max(AᵀA) / 4 + ridge.

    .. math:: f(x) = \sum_i \log\left(1 + \exp(-y_i \langle a_i, x\rangle)\right) + \frac{\rho}{2}\,\|x\|^2

    Thesis: Eq. "eq:general_problem", chapter "Introduction and Background".

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
        certain = bool(((self.labels == 0) | (self.labels == 1)).all())
        self.signs = 1 - 2 * self.labels if certain else None  # with which log(1 + exp(±s)) is one function
        if not ridge >= 0:
            raise ValueError(f"ridge is {ridge}: expected 0 or more.")
        self.factor, self.ridge = mean_factor(reduction, self.map.rows), float(ridge)
        self.numpy = returns_numpy(matrix, labels)
        self.shape = (self.map.columns,)
        self.dtype, self.device = self.map.dtype, self.map.device

    @property
    def smoothness(self) -> float:
        return self.factor * self.map.largest_eigenvalue / 4 + self.ridge

    @property
    def strong_convexity(self) -> float:
        return self.ridge

    def hessian(self) -> Tensor:
        dense = self.map.dense()
        return self.factor / 4 * dense.t() @ dense + self.ridge * torch.eye(self.map.columns, dtype=torch.float64)

    def hessian_diagonal(self) -> Tensor:
        """A quarter of the squared norms of the columns, with the ridge."""
        return self.factor / 4 * self.map.column_squares() + self.ridge

    def curvatures(self, rows: Tensor) -> Tensor:
        squares = map_images(self.map, rows).square().sum(0)
        return self.factor / 4 * squares + self.ridge * rows.to(squares).square().sum(1)

    def loss(self, scores: Tensor) -> float:
        """Σ y log(1 + exp(-s)) + (1 - y) log(1 + exp(s))."""
        softplus = torch.nn.functional.softplus
        if self.signs is not None:
            losses = softplus(self.signs * scores)
        else:
            losses = self.labels * softplus(-scores) + (1 - self.labels) * softplus(scores)
        return self.factor * float(losses.double().sum())

    def row_derivatives(self, scores: Tensor, rows: Tensor | None = None) -> Tensor:
        """σ(s) - y of some rows or all, without a difference of numbers that are nearly equal."""
        labels = self.labels if rows is None else self.labels[rows]
        return self.factor * ((1 - labels) * torch.sigmoid(scores) - labels * torch.sigmoid(-scores))

    def size(self, scores: Tensor) -> float:
        """Bound on the terms that the gradient sums at these scores, of which rounding takes its share."""
        return self.factor * self.map.frobenius * (math.sqrt(self.map.rows) + norm(scores))

    def at(self, x: Tensor) -> Point:
        return _LogisticPoint(self, x)


class _LogisticPoint(ProductPoint):
    _f: Logistic

    _seen: tuple[Tensor, float, float] | None = None  # image of a line, the step it was last looked at, the loss there

    def _forget(self) -> None:
        self._gradient = None
        self._loss: float | None = None
        self._rows: Tensor | None = None

    def _follow(self, line: Line, step: float) -> None:
        self._forget()
        if self._seen is not None and self._seen[0] is line.image and self._seen[1] == step:
            self._loss = self._seen[2]
        self._seen = None

    def loss(self) -> float:
        """f without the ridge."""
        if self._loss is None:
            self._loss = self._f.loss(self._kept)
        return self._loss

    def value(self) -> float:
        return self.loss() + (self._f.ridge * dot(self.x, self.x) / 2 if self._f.ridge else 0.0)

    def rows(self) -> Tensor:
        """The derivatives of the rows."""
        if self._rows is None:
            self._rows = self._f.row_derivatives(self._kept)
        return self._rows

    def gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = self._f.map.adjoint(self.rows())
            if self._f.ridge:
                self._gradient.add_(self.x, alpha=self._f.ridge)
        return self._gradient

    def error(self) -> float:
        size = self._f.size(self._kept) + self._f.ridge * norm(self.x)
        return float(torch.finfo(self._f.dtype).eps) / 2 * size

    def along(self, direction: Direction) -> Line:
        f, scores, loss = self._f, self._kept.clone(), self.loss()
        image = self._along(direction, scores)
        linear = square = 0.0
        if f.ridge:
            linear = f.ridge * direction.inner(self.x, self.x)
            square = f.ridge * direction.squared_norm(self.x)

        def change(step: float) -> float:
            if self._seen is None or self._seen[0] is not image or self._seen[1] != step:
                self._seen = image, step, f.loss(torch.add(scores, image, alpha=step))
            return self._seen[2] - loss + step * (linear + step * square / 2)

        return ConvexLine(
            direction,
            self.x,
            dot(self.rows(), image) + linear,
            change,
            lambda step: dot(f.row_derivatives(scores + step * image), image) + linear + step * square,
            _rounding(loss, f.dtype),
            image,
        )


def _rounding(value: float, dtype: torch.dtype) -> float:
    return 100 * float(torch.finfo(dtype).eps) * max(abs(value), 1e-30)


class Differentiable(Objective):
    """Any differentiable torch function x → scalar, by autograd.

    Args:
        function: of a tensor; differentiable, convex where a guarantee is needed.
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
        return self._smoothness

    @property
    def strong_convexity(self) -> float:
        return self._strong_convexity

    def _point(self, x: Any) -> Point:
        return self.at(as_tensor(x, "x").clone())

    def value(self, x: Any) -> float:
        return self.evaluate(as_tensor(x, "x"))

    def evaluate(self, x: Tensor) -> float:
        """Return f(x) of a tensor."""
        with torch.no_grad():
            return float(self.function(x))

    def differentiate(self, x: Tensor) -> tuple[float, Tensor]:
        """f(x) and ∇f(x)."""
        if self._gradient is not None:
            return self.evaluate(x), as_tensor(self._gradient(x), "the gradient").to(x).reshape(x.shape)
        leaf = x.detach().clone().requires_grad_(True)
        value = self.function(leaf)
        if not isinstance(value, Tensor) or value.numel() != 1:
            answer = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"the objective returned {answer}: expected a scalar tensor computed from x by torch.")
        if not value.requires_grad:
            raise ValueError("the objective does not depend on x by differentiable torch operations; give gradient=.")
        (gradient,) = torch.autograd.grad(value.reshape(()), leaf)
        return float(value.detach()), gradient

    def at(self, x: Tensor) -> Point:
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


def as_objective(objective: Any) -> Objective:
    """An objective; a function is differentiated by autograd, an array y is read as ½‖θ - y‖²."""
    if isinstance(objective, Objective):
        return objective
    if is_array(objective):
        return SquaredDistance(objective)
    if callable(objective):
        return Differentiable(objective)
    raise ValueError(
        f"objective is a {type(objective).__name__}: expected one of unknot.solvers.objectives, a differentiable torch "
        "function of x, or an array y for ½‖x - y‖²."
    )
