"""Smooth objectives, and points that move over them cheaply.

A solver never evaluates f from scratch. It holds a :class:`Point`, asks for a :class:`Line` through it along
d = c·θ + Σ w_i z_i, and moves the point along that line. Objectives that see θ only through a product Aθ keep this
product up to date, so that a step along a signed coordinate costs one column of A.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, is_sparse, to_user, wants_numpy
from unknot.solvers.atoms import csr_tensor
from unknot.solvers.structured import Atom, OneHot, Sparse

REFRESH_EVERY = 1000
"""Moves after which incremental products are computed anew, so that rounding errors cannot pile up."""

CACHE_BYTES = 2**28
"""Memory that products of least squares with atoms may take."""


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
        return total + (self.iterate * _dot(direction, x) if self.iterate else 0.0)

    def move(self, x: Tensor, step: float) -> None:
        """x += step · d, in place."""
        if self.iterate:
            x.mul_(1 + step * self.iterate)
        for weight, atom in self.terms:
            atom.add_to(x, step * weight)


def along(atom: Atom, weight: float = 1.0) -> Direction:
    """d = weight · z."""
    return Direction(0.0, ((weight, atom),))


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.reshape(-1), b.reshape(-1)))


class Line(ABC):
    """φ(γ) = f(θ + γ d), with φ'(0) in ``slope``."""

    def __init__(self, direction: Direction, x: Tensor, slope: float) -> None:
        self.direction, self.slope = direction, slope
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


def _unbounded() -> ValueError:
    return ValueError(
        "the objective has no minimum along a search direction: expected f to be bounded below; "
        "check its sign, or minimise over a bounded set with frank_wolfe."
    )


class QuadraticLine(Line):
    """φ(γ) = φ(0) + γ slope + γ² curvature / 2, exactly."""

    def __init__(self, direction: Direction, x: Tensor, slope: float, curvature: float, image: Tensor | None) -> None:
        super().__init__(direction, x, slope)
        self.curvature, self.image = curvature, image

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
        if self.curvature * largest <= -self.slope or self.curvature <= 0:
            if math.isinf(largest):
                raise _unbounded()
            return largest
        return -self.slope / self.curvature


class ConvexLine(Line):
    """φ of a convex f, by evaluations."""

    def __init__(
        self,
        direction: Direction,
        x: Tensor,
        slope: float,
        change: Callable[[float], float],
        derivative: Callable[[float], float],
        rounding: float,
        image: Tensor | None = None,
    ) -> None:
        super().__init__(direction, x, slope)
        self._change, self._derivative, self._rounding = change, derivative, rounding
        self.image = image

    def change(self, step: float) -> float:
        """f(θ + γ d) - f(θ)."""
        return self._change(step)

    def derivative(self, step: float) -> float:
        """⟨∇f(θ + γ d), d⟩."""
        return self._derivative(step)

    @property
    def rounding(self) -> float:
        """A few units in the last place of f."""
        return self._rounding

    def minimise(self, largest: float) -> float:
        """The root of φ', bracketed by doubling and found by Brent's method."""
        if self.slope >= 0:
            return 0.0
        right = largest
        if math.isinf(largest):
            right = 1.0
            while self.derivative(right) < 0:
                right *= 2
                if right > 1e30:
                    raise _unbounded()
        elif self.derivative(largest) <= 0:
            return largest
        root: float = scipy.optimize.brentq(self.derivative, 0.0, right, xtol=1e-14 * right, rtol=1e-12, maxiter=200)
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

    @abstractmethod
    def blend(self, other: Any, share: float) -> None:
        """θ ← (1 - share) θ + share θ', for another point of the same objective."""

    def refresh(self) -> bool:
        """Compute incremental products anew; False if there was nothing that could have drifted."""
        return False


class Objective(ABC):
    """A convex, differentiable f.

    Attributes:
        shape: of θ; None if f takes any.
        smoothness: L, the Lipschitz constant of ∇f in the Euclidean norm, or None if unknown.
        strong_convexity: μ ≥ 0, a lower bound.
        numpy: whether f was made from NumPy arrays, which is what results then are.
    """

    shape: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float64
    device: torch.device = torch.device("cpu")
    numpy: bool = False

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

    @abstractmethod
    def image(self, atom: Atom) -> Tensor:
        """B z, for a B with BᵀB = H."""

    @abstractmethod
    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        """⟨z_i, H z⟩ ``[S]`` from the images of the z_i ``[S, m]`` and of z."""

    @abstractmethod
    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨z, b⟩ in f(θ) = ½⟨θ, Hθ⟩ - ⟨b, θ⟩ + constant."""


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

    @property
    def smoothness(self) -> float:
        """1, or the largest weight."""
        return 1.0 if self.mask is None else float(self.mask.max())

    @property
    def strong_convexity(self) -> float:
        """1, or the smallest weight."""
        return 1.0 if self.mask is None else float(self.mask.min())

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

    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨z, y⟩."""
        return atom.inner(self.weigh(self.target))


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
        return _dot(self.gradient(), self.x - self._f.target) / 2

    def along(self, direction: Direction) -> Line:
        slope = direction.inner(self.gradient(), self.x)
        if self._f.mask is None:
            curvature = direction.squared_norm(self.x)
        else:
            d = direction.dense(self.x)
            curvature = _dot(d, self._f.weigh(d))
        return QuadraticLine(direction, self.x, slope, curvature, None)

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
        self.matrix = as_tensor(matrix, "matrix").contiguous()
        self.numpy = wants_numpy(matrix, linear)
        if self.matrix.ndim != 2 or self.matrix.shape[0] != self.matrix.shape[1] or not len(self.matrix):
            raise ValueError(f"matrix has shape {list(self.matrix.shape)}: expected a square matrix [n, n].")
        if not torch.allclose(self.matrix, self.matrix.t(), rtol=1e-4, atol=1e-6 * float(self.matrix.abs().max())):
            raise ValueError("matrix is not symmetric: expected Q = Qᵀ, so pass (Q + Q.T) / 2.")
        self.shape = (len(self.matrix),)
        self.dtype, self.device = self.matrix.dtype, self.matrix.device
        self.b = torch.zeros_like(self.matrix[0]) if linear is None else as_tensor(linear, "linear").to(self.matrix)
        if tuple(self.b.shape) != self.shape:
            raise ValueError(f"linear has shape {list(self.b.shape)}: expected {list(self.shape)}, as the matrix.")
        self.constant = float(constant)

    @cached_property
    def _spectrum(self) -> Tensor:
        values = torch.linalg.eigvalsh(self.matrix.double())
        if float(values[0]) < -1e-6 * max(float(values[-1]), 1e-300):
            raise ValueError(
                f"matrix has the negative eigenvalue {float(values[0]):.3g}: expected a convex objective, Q ⪰ 0."
            )
        return values

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue."""
        return float(self._spectrum[-1])

    @property
    def strong_convexity(self) -> float:
        """The smallest eigenvalue, 0 if it cannot be told from 0."""
        low, high = float(self._spectrum[0]), float(self._spectrum[-1])
        return low if low > 1e-13 * len(self.matrix) * high else 0.0

    def at(self, x: Tensor) -> Point:
        """A point that keeps Qθ."""
        return _QuadraticPoint(self, x)

    def product(self, atom: Atom) -> Tensor:
        """Q z; one column for a coordinate."""
        if isinstance(atom, OneHot):
            return self.matrix[atom.index] * atom.scale
        if isinstance(atom, Sparse):
            return self.matrix[atom.indices].t() @ (atom.values * atom.scale)
        return self.matrix @ atom.dense()

    def image(self, atom: Atom) -> Tensor:
        """Q z: no root of Q is needed, see ``inner_products``."""
        return self.product(atom)

    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        """⟨z_i, Q z⟩."""
        return torch.tensor([atom.inner(image) for atom in atoms], dtype=image.dtype)

    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨z, b⟩."""
        return atom.inner(self.b)


class _QuadraticPoint(Point):
    def __init__(self, objective: Quadratic, x: Tensor) -> None:
        self._f = objective
        self.jump(x)

    def jump(self, x: Tensor) -> None:
        self.x = x.contiguous()
        self._product = self._f.matrix @ self.x
        self._moves = 0
        self._gradient: Tensor | None = None

    def refresh(self) -> bool:
        if not self._moves:
            return False
        self.jump(self.x)
        return True

    def gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = self._product - self._f.b
        return self._gradient

    def value(self) -> float:
        return _dot(self.x, self._product - 2 * self._f.b) / 2 + self._f.constant

    def along(self, direction: Direction) -> Line:
        image = self._product * direction.iterate if direction.iterate else torch.zeros_like(self._product)
        for weight, atom in direction.terms:
            image.add_(self._f.product(atom), alpha=weight)
        slope = direction.inner(self.gradient(), self.x)
        return QuadraticLine(direction, self.x, slope, direction.inner(image, self.x), image)

    def move(self, line: Line, step: float) -> None:
        assert isinstance(line, QuadraticLine)
        assert line.image is not None
        line.direction.move(self.x, step)
        self._product.add_(line.image, alpha=step)
        self._gradient = None
        self._moves += 1
        if self._moves >= REFRESH_EVERY:
            self.jump(self.x)

    def blend(self, other: "_QuadraticPoint", share: float) -> None:
        self.x.lerp_(other.x, share)
        self._product.lerp_(other._product, share)
        self._gradient = None


class LinearMap:
    """A matrix A ``[m, n]``, dense or sparse, and its products."""

    def __init__(self, matrix: Any, name: str = "matrix") -> None:
        self.sparse = is_sparse(matrix)
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

    def apply(self, x: Tensor) -> Tensor:
        """A x."""
        return self.matrix @ x

    def adjoint(self, r: Tensor) -> Tensor:
        """Aᵀ r."""
        return self.transpose @ r

    def image(self, atom: Atom) -> Tensor:
        """A z; one column for a coordinate."""
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

    @cached_property
    def _spectrum(self) -> Tensor:
        """Eigenvalues of AᵀA, or of AAᵀ if that is smaller."""
        dense = (self.matrix.to_dense() if self.sparse else self.matrix).cpu().double()
        return torch.linalg.eigvalsh(dense @ dense.t() if self.rows < self.columns else dense.t() @ dense)

    @cached_property
    def largest_eigenvalue(self) -> float:
        """λ_max(AᵀA), by Lanczos where A is large."""
        if min(self.rows, self.columns) <= 512:
            return float(self._spectrum[-1])
        matrix = self.matrix.cpu()
        operator = scipy.sparse.linalg.LinearOperator(
            (self.columns, self.columns),
            matvec=lambda x: self.adjoint(self.apply(torch.from_numpy(x).to(matrix).to(self.device))).cpu().numpy(),
            dtype=np.float64,
        )
        start = np.random.default_rng(0).standard_normal(self.columns)
        top = scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=start, tol=1e-9, return_eigenvectors=False)
        return float(top[0]) * (1 + 1e-8)

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """λ_min(AᵀA), or the bound 0 where A is wide, or so large that it would be expensive."""
        if self.columns > min(self.rows, 1024):
            return 0.0
        low, high = float(self._spectrum[0]), float(self._spectrum[-1])
        return low if low > 1e-13 * self.rows * high else 0.0


def _read_pair(matrix: Any, target: Any, name: str) -> tuple[LinearMap, Tensor]:
    linear_map = LinearMap(matrix)
    vector = as_tensor(target, name).to(dtype=linear_map.dtype, device=linear_map.device)
    if tuple(vector.shape) != (linear_map.rows,):
        raise ValueError(
            f"{name} has shape {list(vector.shape)} but the matrix has {linear_map.rows} rows: "
            f"expected {name} of shape {[linear_map.rows]}."
        )
    return linear_map, vector


def _mean_factor(reduction: str, rows: int) -> float:
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction is {reduction!r}: expected 'sum' or 'mean'.")
    return 1.0 if reduction == "sum" else 1.0 / rows


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
        self.map, self.target = _read_pair(matrix, target, "target")
        self.factor = _mean_factor(reduction, self.map.rows)
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

    def at(self, x: Tensor) -> Point:
        """A point that keeps Ax and ∇f."""
        return _LeastSquaresPoint(self, x)

    def image(self, atom: Atom) -> Tensor:
        """A z, scaled."""
        return self.map.image(atom) * math.sqrt(self.factor)

    def inner_products(self, images: Tensor, image: Tensor, atoms: list[Atom]) -> Tensor:
        """⟨A z_i, A z⟩."""
        return images @ image

    def linear(self, atom: Atom, image: Tensor) -> float:
        """⟨A z, b⟩."""
        return math.sqrt(self.factor) * _dot(image, self.target)


class _LeastSquaresPoint(Point):
    def __init__(self, objective: LeastSquares, x: Tensor) -> None:
        self._f = objective
        self._images: dict[Hashable, Tensor] = {}
        self._products: dict[Hashable, Tensor] = {}
        item = objective.target.element_size()
        self._room = max(64, CACHE_BYTES // (item * (objective.map.rows + objective.map.columns)))
        self._linear: Tensor | None = None
        self.jump(x)

    def jump(self, x: Tensor) -> None:
        self.x = x.contiguous()
        self._residual = self._f.map.apply(self.x) - self._f.target
        self._gradient: Tensor | None = None
        self._wanted = False
        self._moves = 0

    def refresh(self) -> bool:
        if not self._moves:
            return False
        self.jump(self.x)
        return True

    def value(self) -> float:
        return self._f.factor * _dot(self._residual, self._residual) / 2

    def gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = self._f.factor * self._f.map.adjoint(self._residual)
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
            image = (self._residual + self._f.target) * direction.iterate
            for weight, atom in terms:
                image.add_(self._image(atom), alpha=weight)
        slope = self._f.factor * _dot(self._residual, image)
        return QuadraticLine(direction, self.x, slope, self._f.factor * _dot(image, image), image)

    def move(self, line: Line, step: float) -> None:
        assert isinstance(line, QuadraticLine)
        assert line.image is not None
        line.direction.move(self.x, step)
        self._residual.add_(line.image, alpha=step)
        self._moves += 1
        if self._moves >= REFRESH_EVERY:
            self.jump(self.x)
        elif not self._wanted:  # a random step did without the gradient: keeping it would cost more than the step
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

    def blend(self, other: "_LeastSquaresPoint", share: float) -> None:
        self.x.lerp_(other.x, share)
        self._residual.lerp_(other._residual, share)
        if self._gradient is not None:
            self._gradient.lerp_(other.gradient(), share)  # ∇f is affine in θ
        self._images, self._products = other._images, other._products


class Logistic(Objective):
    """f(x) = Σ_i log(1 + exp(-y_i ⟨a_i, x⟩)) (or its mean over samples). L = λ_max(AᵀA) / 4.

    Args:
        matrix: samples ``[m, n]``, dense or sparse.
        labels: two classes, as -1 and 1 or as 0 and 1 ``[m]``.
        reduction: "sum" or "mean".

    >>> import numpy as np
    >>> f = Logistic(np.eye(2), np.array([0, 1]))
    >>> round(f(np.zeros(2)), 4), f.gradient(np.zeros(2)), f.smoothness
    (1.3863, array([ 0.5, -0.5]), 0.25)
    """

    def __init__(self, matrix: Any, labels: Any, reduction: str = "sum") -> None:
        self.map, self.labels = _read_pair(matrix, labels, "labels")
        classes = set(self.labels.unique().tolist())
        if classes <= {0.0, 1.0}:
            self.labels = 2 * self.labels - 1
        elif not classes <= {-1.0, 1.0}:
            raise ValueError(f"labels are {sorted(classes)[:5]}: expected two classes, -1 and 1 or 0 and 1.")
        self.factor = _mean_factor(reduction, self.map.rows)
        self.numpy = wants_numpy(matrix, labels)
        self.shape = (self.map.columns,)
        self.dtype, self.device = self.map.dtype, self.map.device

    @property
    def smoothness(self) -> float:
        """λ_max(AᵀA) / 4."""
        return self.factor * self.map.largest_eigenvalue / 4

    def loss(self, scores: Tensor) -> float:
        """Σ log(1 + exp(-y s))."""
        return self.factor * float(torch.nn.functional.softplus(-self.labels * scores).sum())

    def loss_gradient(self, scores: Tensor) -> Tensor:
        """-y / (1 + exp(y s))."""
        return -self.factor * self.labels * torch.sigmoid(-self.labels * scores)

    def at(self, x: Tensor) -> Point:
        """A point that keeps Ax."""
        return _LogisticPoint(self, x)


class _LogisticPoint(Point):
    def __init__(self, objective: Logistic, x: Tensor) -> None:
        self._f = objective
        self.jump(x)

    def jump(self, x: Tensor) -> None:
        self.x = x.contiguous()
        self._scores = self._f.map.apply(self.x)
        self._forget()
        self._moves = 0

    def _forget(self) -> None:
        self._gradient: Tensor | None = None
        self._value: float | None = None

    def refresh(self) -> bool:
        if not self._moves:
            return False
        self.jump(self.x)
        return True

    def value(self) -> float:
        if self._value is None:
            self._value = self._f.loss(self._scores)
        return self._value

    def gradient(self) -> Tensor:
        if self._gradient is None:
            self._gradient = self._f.map.adjoint(self._f.loss_gradient(self._scores))
        return self._gradient

    def along(self, direction: Direction) -> Line:
        image = self._scores * direction.iterate if direction.iterate else torch.zeros_like(self._scores)
        for weight, atom in direction.terms:
            image.add_(self._f.map.image(atom), alpha=weight)
        scores, value = self._scores, self.value()
        return ConvexLine(
            direction,
            self.x,
            _dot(self._f.loss_gradient(scores), image),
            lambda step: self._f.loss(scores + step * image) - value,
            lambda step: _dot(self._f.loss_gradient(scores + step * image), image),
            _rounding(value, self._f.dtype),
            image,
        )

    def move(self, line: Line, step: float) -> None:
        assert isinstance(line, ConvexLine)
        assert line.image is not None
        line.direction.move(self.x, step)
        self._scores = self._scores + step * line.image
        self._forget()
        self._moves += 1
        if self._moves >= REFRESH_EVERY:
            self.jump(self.x)

    def blend(self, other: "_LogisticPoint", share: float) -> None:
        self.x.lerp_(other.x, share)
        self._scores = torch.lerp(self._scores, other._scores, share)
        self._forget()


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

    >>> import torch
    >>> f = Differentiable(lambda x: (x**4).sum())
    >>> f(torch.tensor([1.0, 2.0])), f.gradient(torch.tensor([1.0, 2.0]))
    (17.0, tensor([ 4., 32.]))
    """

    def __init__(
        self,
        function: Callable[[Tensor], Any],
        *,
        gradient: Callable[[Tensor], Any] | None = None,
        smoothness: float | None = None,
        strong_convexity: float = 0.0,
        shape: tuple[int, ...] | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.function, self._gradient = function, gradient
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

    def evaluate(self, x: Tensor) -> float:
        """f(x)."""
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
        return ConvexLine(
            direction,
            self.x,
            _dot(gradient, d),
            lambda step: self._f.evaluate(self.x + step * d) - value,
            lambda step: _dot(self._f.differentiate(self.x + step * d)[1], d),
            _rounding(value, self.x.dtype),
        )

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
    if isinstance(objective, Tensor | np.ndarray | list | tuple):
        return SquaredDistance(objective)
    if callable(objective):
        return Differentiable(objective)
    raise ValueError(
        f"objective is a {type(objective).__name__}: expected one of unknot.solvers.objectives, a differentiable torch "
        "function of x, or an array y for ½‖x - y‖²."
    )
