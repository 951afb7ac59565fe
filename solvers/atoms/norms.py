"""Balls of norms: Euclidean, box, ellipsoid, groups, ordered weights."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, norm
from unknot.solvers.atoms.base import Answer, AtomSet, below, outside, positive, slack, unit_vector
from unknot.solvers.structured import Decomposition, Dense, Sparse


class L2Ball(AtomSet):
    """{x : ‖x‖₂ ≤ radius}; over its span, matching pursuit is gradient descent.

    >>> import numpy as np
    >>> L2Ball(5.0).lmo(np.array([3.0, -4.0]))
    array([-3.,  4.])
    """

    symmetric = True

    def __init__(self, radius: float = 1.0, dim: int | None = None) -> None:
        self.radius: float = positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = None if dim is None else (int(dim),)

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """Against the direction."""
        size = norm(direction)
        if size == 0:
            vector = torch.zeros_like(direction)
            vector.view(-1)[0] = 1.0
            return Answer(Dense(self.radius, None, vector), 0.0)
        return Answer(
            Dense(-self.radius, None, direction / size),
            below(-self.radius * size, direction, self.radius, direction.numel()),
        )

    def gauge(self, x: Tensor) -> float:
        """‖x‖ / radius."""
        return norm(x) / self.radius

    def _project(self, x: Tensor) -> Tensor:
        return x * min(1.0, self.radius / max(norm(x), 1e-300))

    def minimal_width(self) -> float:
        """The radius."""
        return self.radius

    def acceleration(self, greedy: bool, dim: int) -> float:
        """radius² n."""
        return self.radius**2 * dim

    def decompose(self, x: Tensor) -> Decomposition:
        """Two opposite points on the line through x."""
        size = norm(x)
        if size > self.radius * (1 + slack(x)):
            raise outside("its norm", size, self.radius)
        share = (1 + min(1.0, size / self.radius)) / 2
        towards = self.ask(-x).atom
        assert isinstance(towards, Dense)
        opposite = Dense(-towards.scale, None, towards.vector)
        return [(share, towards), (1 - share, opposite)] if share < 1 else [(1.0, towards)]

    def sample(self, like: Tensor, generator: torch.Generator) -> Dense:
        """Uniform on the sphere."""
        return Dense(self.radius, None, unit_vector(like.shape, like, generator))

    def __str__(self) -> str:
        return f"L2Ball({self.radius:g})"


class Box(AtomSet):
    """{x : lower ≤ x ≤ upper}, entry by entry; its atoms are the corners.

    >>> import numpy as np
    >>> Box(0.0, np.array([1.0, 2.0])).lmo(np.array([3.0, -4.0]))
    array([0., 2.])
    """

    def __init__(self, lower: Any = -1.0, upper: Any = 1.0, dim: int | None = None) -> None:
        self.low, self.high = as_tensor(lower, "lower"), as_tensor(upper, "upper")
        if bool((self.low > self.high).any()):
            raise ValueError("a lower bound of the box is above its upper bound: expected lower <= upper.")
        shape = torch.broadcast_shapes(self.low.shape, self.high.shape)
        self.shape = tuple(shape) or (None if dim is None else (int(dim),))
        if self.shape is not None:
            ends = torch.maximum(self.low.abs(), self.high.abs()).double().expand(self.shape)
            self.radius = norm(ends)
            self.diameter = norm((self.high - self.low).double().expand(self.shape))
        self.symmetric = bool((self.low == -self.high).all())

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Box":
        """In the dtype and on the device of a run."""
        other: Box = object.__new__(Box)
        vars(other).update(vars(self), low=self.low.to(device, dtype), high=self.high.to(device, dtype))
        return other

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """A corner."""
        rising = direction > 0
        vector = torch.where(rising, self.low, self.high).contiguous()
        value = float((direction.double() * vector.double()).sum())
        size = norm(vector)
        key = np.packbits(rising.cpu().numpy().reshape(-1)).tobytes()
        return Answer(Dense(1.0, key, vector), value - 4e-16 * math.sqrt(direction.numel()) * norm(direction) * size)

    def gauge(self, x: Tensor) -> float:
        """The largest x_i / bound_i, where the box contains the origin."""
        if bool((self.low > 0).any()) or bool((self.high < 0).any()):
            raise ValueError("the atomic norm of a box without the origin is not a norm: use contains(x).")
        bound = torch.where(x >= 0, self.high.double(), -self.low.double())
        ratios = torch.where(x == 0, 0.0, x.abs() / bound)
        return float(ratios.max())

    def _contains(self, x: Tensor, tol: float) -> bool:
        room = tol * max(1.0, float(x.abs().max()))
        return bool(((x >= self.low - room) & (x <= self.high + room)).all())

    def _project(self, x: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, self.low.to(x)), self.high.to(x))

    def sample(self, like: Tensor, generator: torch.Generator) -> Dense:
        """A uniform corner."""
        coins = torch.randint(2, tuple(like.shape), generator=generator).bool().to(like.device)
        return Dense(1.0, None, torch.where(coins, self.low.to(like), self.high.to(like)).contiguous())

    def __str__(self) -> str:
        return f"Box([{float(self.low.min()):g}, {float(self.high.max()):g}])"


def LInfBall(radius: float = 1.0, dim: int | None = None) -> Box:
    """{x : ‖x‖_∞ ≤ radius}.

    >>> import numpy as np
    >>> LInfBall(2.0).lmo(np.array([3.0, -4.0]))
    array([-2.,  2.])
    """
    return Box(-positive(radius, "radius"), radius, dim)


class Ellipsoid(AtomSet):
    """{x : (x - centre)ᵀ Q⁻¹ (x - centre) ≤ 1} for a positive definite Q ``[n, n]``.

    >>> import numpy as np
    >>> Ellipsoid(np.diag([4.0, 1.0])).lmo(np.array([1.0, 0.0])) + 0.0
    array([-2.,  0.])
    """

    def __init__(self, matrix: Any, centre: Any = None) -> None:
        self.matrix = as_tensor(matrix, "matrix")
        if self.matrix.ndim != 2 or self.matrix.shape[0] != self.matrix.shape[1] or not len(self.matrix):
            raise ValueError(f"matrix has shape {list(self.matrix.shape)}: expected a square matrix [n, n].")
        values = torch.linalg.eigvalsh(self.matrix.double())
        if not torch.allclose(self.matrix, self.matrix.t()) or float(values[0]) <= 0:
            raise ValueError("matrix is not symmetric positive definite: expected the Q of an ellipsoid xᵀQ⁻¹x ≤ 1.")
        self.shape = (len(self.matrix),)
        self.centre = torch.zeros_like(self.matrix[0]) if centre is None else as_tensor(centre, "centre")
        if tuple(self.centre.shape) != self.shape:
            raise ValueError(f"centre has shape {list(self.centre.shape)}: expected {list(self.shape)}, as the matrix.")
        self.symmetric = not bool(self.centre.any())
        half = math.sqrt(float(values[-1]))
        self.radius, self.diameter = half + norm(self.centre), 2 * half

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Ellipsoid":
        """In the dtype and on the device of a run."""
        other: Ellipsoid = object.__new__(Ellipsoid)
        vars(other).update(vars(self), matrix=self.matrix.to(device, dtype), centre=self.centre.to(device, dtype))
        return other

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """centre - Qd / √(dᵀQd)."""
        image = self.matrix @ direction
        size = math.sqrt(max(0.0, float(torch.dot(direction, image))))
        vector = self.centre - image / size if size > 0 else self.centre.clone()
        assert self.radius is not None
        value = float(torch.dot(direction, self.centre)) - size
        return Answer(Dense(1.0, None, vector), below(value, direction, 2 * self.radius, direction.numel()))

    def gauge(self, x: Tensor) -> float:
        """√(xᵀQ⁻¹x), of an ellipsoid about the origin."""
        if not self.symmetric:
            raise ValueError("the atomic norm of an ellipsoid is known about the origin only: use contains(x).")
        return self._size(x)

    def _size(self, x: Tensor) -> float:
        return math.sqrt(float(x @ torch.linalg.solve(self.matrix.double(), x)))

    def _contains(self, x: Tensor, tol: float) -> bool:
        return self._size(x - self.centre.double()) <= 1 + tol

    def __str__(self) -> str:
        return f"Ellipsoid([{len(self.matrix)}])"


class GroupBall(AtomSet):
    """{x : Σ_g ‖x_g‖₂ ≤ radius}, the ball of the group lasso.

    Args:
        groups: the group of every entry, as integers ``[n]``.
        radius: of the ball.

    >>> import numpy as np
    >>> GroupBall([0, 0, 1], 5.0).lmo(np.array([3.0, -4.0, 2.0]))
    array([-3.,  4.,  0.])
    """

    symmetric = True

    def __init__(self, groups: Sequence[int] | Any, radius: float = 1.0) -> None:
        labels = np.asarray(groups)
        if labels.ndim != 1 or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError("groups should be whole numbers [n]: the group of every entry.")
        self.groups = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
        self.number = int(self.groups.max()) + 1
        self.radius: float = positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = (len(labels),)

    def _norms(self, x: Tensor) -> Tensor:
        squares = torch.zeros(self.number, dtype=torch.float64, device=x.device)
        return squares.index_add_(0, self.groups.to(x.device), x.double().square()).sqrt()

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """Against the direction in the group where it is largest."""
        norms = self._norms(direction)
        best = int(norms.argmax())
        size = float(norms[best])
        indices = torch.nonzero(self.groups.to(direction.device) == best).reshape(-1)
        values = direction[indices] * (-self.radius / size) if size > 0 else torch.zeros_like(direction[indices])
        if size == 0:
            values[0] = self.radius
        lower = -self.radius * size
        return Answer(
            Sparse(1.0, None, indices=indices, values=values, shape=tuple(direction.shape)),
            lower * (1 + 4e-16 * math.sqrt(len(indices))),
        )

    def gauge(self, x: Tensor) -> float:
        """Σ_g ‖x_g‖ / radius."""
        return float(self._norms(x).sum()) / self.radius

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_l1_ball

        norms = self._norms(x)
        shrunk = project_l1_ball(norms, self.radius)
        return x * (shrunk / norms.clamp_min(1e-300))[self.groups.to(x.device)].to(x)

    def __str__(self) -> str:
        return f"GroupBall({self.number} groups, {self.radius:g})"


class OrderedWeightedBall(AtomSet):
    """{x : Σ_i w_i |x|_(i) ≤ radius} with |x|_(1) ≥ |x|_(2) ≥ … and w_1 ≥ w_2 ≥ … ≥ 0 (OWL, SLOPE, OSCAR).

    >>> import numpy as np
    >>> OrderedWeightedBall([2.0, 1.0, 1.0], 3.0).lmo(np.array([3.0, -3.0, 0.0]))
    array([-1.,  1.,  0.])
    """

    symmetric = True

    def __init__(self, weights: Any, radius: float = 1.0) -> None:
        self.weights = as_tensor(weights, "weights").double()
        falling = self.weights.ndim == 1 and bool((self.weights.diff() <= 0).all())
        if not falling or not len(self.weights) or float(self.weights[-1]) < 0 or float(self.weights[0]) <= 0:
            raise ValueError("weights should be [n], falling, the first above 0 and none below: sort them.")
        self.bound = positive(radius, "radius")
        self.shape = (len(self.weights),)
        heights = self.bound / self.weights.cumsum(0)
        counts = torch.arange(1, len(heights) + 1, dtype=torch.float64)
        self.radius = float((heights * counts.sqrt()).max())
        self.diameter = 2 * self.radius
        self._heights = heights

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The k largest entries, for the k of the best ratio."""
        sizes, order = direction.abs().double().sort(descending=True)
        totals = sizes.cumsum(0) * self._heights.to(direction.device)
        k = int(totals.argmax()) + 1
        indices = order[:k].sort().values
        height = float(self._heights[k - 1])
        values = torch.full_like(direction[indices], height).copysign(-direction[indices])
        lower = -float(totals[k - 1])
        key = (indices.cpu().numpy().tobytes(), (values > 0).cpu().numpy().tobytes())
        return Answer(
            Sparse(1.0, key, indices=indices, values=values, shape=tuple(direction.shape)), lower * (1 + 4e-16 * k)
        )

    def gauge(self, x: Tensor) -> float:
        """Σ_i w_i |x|_(i) / radius."""
        return float(x.abs().double().sort(descending=True).values @ self.weights.to(x.device)) / self.bound

    def __str__(self) -> str:
        return f"OrderedWeightedBall([{len(self.weights)}], {self.bound:g})"
