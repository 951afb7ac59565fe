"""Terms g(Aθ) of a composite objective: indicators of simple sets, and Lipschitz functions with an easy prox.

    prox_{βg}(y) = argmin_z g(z) + ‖z - y‖² / (2β)

For the indicator of 𝒦 this is the projection on 𝒦 and β drops out (chapter "Convex Hulls with Affine Constraints",
cases (i) and (ii)). Here are also the projections that methods which are not projection-free need.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers.objectives import LinearMap
from unknot.solvers.structured import as_tensor, is_sparse, returns_numpy, to_user


class Term:
    """g(Aθ), by the map A, its adjoint Aᵀ and prox_{βg}.

    Solvers give every term its own smoothing β‖A‖², which is the same as dividing A by its norm: no block then hides
    another one because of its scale.

    Args:
        prox: function (y, β) → prox_{βg}(y).
        value: function y → g(y); None if g is an indicator.
        map: A as a function or a matrix ``[d, n]`` for flat θ; None for the identity.
        adjoint: Aᵀ as a function; a matrix brings its own.
        norm: ‖A‖; found by the power method if left out.
        name: for reports.

    >>> import numpy as np
    >>> threshold = lambda y, beta: np.sign(y) * np.maximum(np.abs(y) - beta, 0)
    >>> Term(threshold, value=lambda y: np.abs(y).sum(), name="L1 norm")
    L1 norm
    """

    def __init__(
        self,
        prox: Callable[[Any, float], Any],
        value: Callable[[Any], Any] | None = None,
        map: Any = None,
        adjoint: Callable[[Any], Any] | None = None,
        norm: float | None = None,
        name: str = "term",
    ) -> None:
        if not callable(prox):
            raise ValueError(f"prox of {name} is a {type(prox).__name__}: expected a function of y and β.")
        if norm is not None and not (norm > 0 and math.isfinite(norm)):
            raise ValueError(f"norm of {name} is {norm}: expected ‖A‖ > 0, or None to let it be found.")
        self._prox, self._value, self.name = prox, value, name
        self._map: Callable[[Any], Any] | None = None
        self._adjoint: Callable[[Any], Any] | None = None
        self._matrix: LinearMap | None = None
        if isinstance(map, Tensor | np.ndarray | list) or is_sparse(map):
            self._matrix = LinearMap(map, f"the matrix of {name}")
            norm = math.sqrt(self._matrix.largest_eigenvalue) if norm is None else norm
        elif map is not None:
            if not callable(map) or not callable(adjoint):
                raise ValueError(f"{name} has a map without its adjoint: give both as functions, or a matrix.")
            self._map, self._adjoint = map, adjoint
        else:
            norm = 1.0
        self._norm = norm
        self._numpy = False

    @property
    def indicator(self) -> bool:
        """Return whether g is the indicator of a set, so that the term is a constraint."""
        return self._value is None

    def apply(self, x: Tensor) -> Tensor:
        """A θ."""
        if self._matrix is not None:
            return self._matrix.apply(x.reshape(-1))
        return x if self._map is None else self._ask(self._map, x, "map")

    def adjoint(self, y: Tensor, like: Tensor) -> Tensor:
        """Aᵀ y, of the shape of θ."""
        if self._matrix is not None:
            return self._matrix.adjoint(y).reshape(like.shape)
        return y if self._adjoint is None else self._ask(self._adjoint, y, "adjoint").reshape(like.shape)

    def prox(self, y: Tensor, beta: float) -> Tensor:
        """prox_{βg}(y)."""
        answer = self._ask(lambda z: self._prox(z, beta), y, "prox")
        if answer.shape != y.shape:
            raise ValueError(
                f"prox of {self.name} returned {list(answer.shape)} for {list(y.shape)}: expected the same."
            )
        return answer

    def value(self, y: Tensor) -> float:
        """g(y), 0 for an indicator: how far a constraint is off is its ``residual``."""
        return 0.0 if self._value is None else float(self._value(to_user(y, self._numpy)))

    def residual(self, x: Tensor, beta: float) -> Tensor:
        """Aθ - prox_{βg}(Aθ)."""
        y = self.apply(x)
        return y - self.prox(y, beta)

    def norm(self, like: Tensor) -> float:
        """‖A‖."""
        if self._norm is None:
            x = torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like)
            for _ in range(100):
                x = self.adjoint(self.apply(x / torch.linalg.vector_norm(x)), like)
                if not bool(x.any()):
                    raise ValueError(f"the map of {self.name} is 0: expected a linear map that sees θ.")
            self._norm = math.sqrt(float(torch.linalg.vector_norm(x)))
        return self._norm

    def bind(self, like: Tensor, numpy: bool) -> "Term":
        """Remember what kind of array the functions get, and see whether the term fits arrays like this one."""
        bound = copy.copy(self)
        bound._numpy = numpy
        if self._matrix is not None:
            if self._matrix.columns != like.numel():
                raise ValueError(
                    f"the matrix of {self.name} has {self._matrix.columns} columns but x has {like.numel()} entries."
                )
            bound._matrix = self._matrix.to(like.dtype, like.device)
        elif self._map is not None:
            image = bound.apply(like)
            back = as_tensor(self._adjoint(to_user(image, numpy)), f"the adjoint of {self.name}")  # type: ignore[misc]
            if back.numel() != like.numel():
                raise ValueError(
                    f"the adjoint of {self.name} returned {list(back.shape)}: expected the shape of x, "
                    f"{list(like.shape)}."
                )
        return bound

    def _ask(self, function: Callable[[Any], Any], x: Tensor, what: str) -> Tensor:
        return as_tensor(function(to_user(x, self._numpy)), f"the {what} of {self.name}").to(x)

    def __repr__(self) -> str:
        return self.name


def Constraint(
    project: Callable[[Any], Any],
    map: Any = None,
    adjoint: Callable[[Any], Any] | None = None,
    norm: float | None = None,
    name: str = "constraint",
) -> Term:
    """Aθ ∈ 𝒦, by the projection on 𝒦; the other arguments are those of :class:`Term`.

    >>> import numpy as np
    >>> Constraint(lambda y: y / max(1.0, np.linalg.norm(y)), name="unit ball")
    unit ball
    """
    if not callable(project):
        raise ValueError(f"project of {name} is a {type(project).__name__}: expected a function of y.")
    return Term(lambda y, beta: project(y), None, map, adjoint, norm, name)


class Box(Term):
    """lower ≤ θ ≤ upper, entry by entry; either may be infinite.

    >>> import torch
    >>> Box(1.0, 5.0).residual(torch.tensor([0.5, 3.0, 6.0]), 1.0)
    tensor([-0.5000,  0.0000,  1.0000])
    """

    def __init__(self, lower: float = -math.inf, upper: float = math.inf) -> None:
        if not lower <= upper:
            raise ValueError(f"the box [{lower}, {upper}] is empty: expected lower <= upper.")
        super().__init__(self.prox, name=f"{lower:g} <= x <= {upper:g}")
        self.lower, self.upper = float(lower), float(upper)

    def prox(self, y: Tensor, beta: float) -> Tensor:
        return y.clamp(self.lower, self.upper)

    def residual(self, x: Tensor, beta: float) -> Tensor:
        clipped = x.clamp(self.lower, self.upper)
        return torch.sub(x, clipped, out=clipped)


def NonNegative() -> Box:
    """θ ≥ 0, entry by entry.

    >>> NonNegative()
    0 <= x <= inf
    """
    return Box(0.0)


class Sums(Term):
    """Sums over one axis of a matrix θ ``[m, n]`` are all equal to a number (θ1 = c1 for axis 1). ‖A‖² is their length.

    >>> import torch
    >>> Sums(1.0, axis=1).residual(torch.tensor([[0.5, 0.5], [1.0, 1.0]]), 1.0)
    tensor([0., 1.])
    """

    def __init__(self, target: float = 1.0, axis: int = 1) -> None:
        if axis not in (0, 1):
            raise ValueError(f"axis is {axis}: expected 0 (sums of columns) or 1 (sums of rows).")
        super().__init__(self.prox, name=f"{'row' if axis else 'column'} sums = {target:g}")
        self.target, self.axis = float(target), axis

    def apply(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise ValueError(f"{self.name} needs a matrix, but x has shape {list(x.shape)}.")
        return x.sum(self.axis)

    def adjoint(self, y: Tensor, like: Tensor) -> Tensor:
        return y.unsqueeze(self.axis).expand(like.shape)

    def prox(self, y: Tensor, beta: float) -> Tensor:
        return torch.full_like(y, self.target)

    def norm(self, like: Tensor) -> float:
        return math.sqrt(like.shape[self.axis])


class Linear(Term):
    """lower ≤ Bθ ≤ upper for a matrix B ``[d, n]``, dense or sparse, and flat θ; equal bounds make an equation.

    >>> import numpy as np
    >>> Linear(np.ones((1, 3)), 1.0, 1.0, name="sum to 1")
    sum to 1
    """

    def __init__(self, matrix: Any, lower: Any = -math.inf, upper: Any = math.inf, name: str = "linear") -> None:
        self.lower, self.upper = (self._bound(bound, name) for bound in (lower, upper))
        if bool((self.lower > self.upper).any()):
            raise ValueError(f"a lower bound of {name} is above its upper bound: expected lower <= upper.")
        super().__init__(self.prox, map=matrix, name=name)
        assert self._matrix is not None
        for bound in (self.lower, self.upper):
            if bound.ndim and tuple(bound.shape) != (self._matrix.rows,):
                raise ValueError(
                    f"a bound of {name} has shape {list(bound.shape)}: expected a number or {[self._matrix.rows]}."
                )

    @staticmethod
    def _bound(bound: Any, name: str) -> Tensor:
        tensor = torch.as_tensor(bound, dtype=torch.float64)
        if bool(tensor.isnan().any()):
            raise ValueError(f"a bound of {name} is NaN: expected a number, or an infinite one for no bound.")
        return tensor

    def prox(self, y: Tensor, beta: float) -> Tensor:
        return torch.minimum(torch.maximum(y, self.lower.to(y)), self.upper.to(y))


class L1Norm(Term):
    """weight · ‖Aθ‖₁, a Lipschitz term; A as in :class:`Term`, the identity if left out.

    >>> import torch
    >>> L1Norm(2.0).prox(torch.tensor([3.0, -0.5]), 1.0)
    tensor([1., -0.])
    """

    def __init__(self, weight: float = 1.0, map: Any = None, adjoint: Any = None, norm: float | None = None) -> None:
        if not (weight > 0 and math.isfinite(weight)):
            raise ValueError(f"weight is {weight}: expected a positive number.")
        super().__init__(self.prox, self.value, map, adjoint, norm, name=f"{weight:g} * L1 norm")
        self.weight = float(weight)

    def prox(self, y: Tensor, beta: float) -> Tensor:
        return torch.nn.functional.softshrink(y, self.weight * beta)

    def value(self, y: Tensor) -> float:
        return self.weight * float(y.abs().sum())


def Agreement(size: int) -> Term:
    """u = v for θ = (u, v) of two blocks of a size: A = [I, -I], 𝒦 = {0}, ‖A‖ = √2 (paragraph "Splitting").

    >>> Agreement(3)
    both blocks agree
    """
    return Term(
        lambda y, beta: 0 * y,
        map=lambda x: x[:size] - x[size:],
        adjoint=lambda y: torch.cat([y, -y]) if isinstance(y, Tensor) else np.concatenate([y, -y]),
        norm=math.sqrt(2),
        name="both blocks agree",
    )


def project_simplex(y: Any, radius: float = 1.0) -> Any:
    """Nearest point of {x ≥ 0, Σx = radius} to a vector, by sorting.

    >>> import numpy as np
    >>> project_simplex(np.array([0.8, 0.6, -1.0]))
    array([0.6, 0.4, 0. ])
    """
    tensor = as_tensor(y, "y")
    flat = tensor.double().reshape(-1)
    ordered = flat.sort(descending=True).values
    thresholds = (ordered.cumsum(0) - radius) / torch.arange(1, len(flat) + 1).to(flat)
    threshold = thresholds[torch.nonzero(ordered > thresholds)[-1]]
    return to_user((flat - threshold).clamp_min(0).to(tensor).reshape(tensor.shape), returns_numpy(y))


def project_l1_ball(y: Any, radius: float = 1.0) -> Any:
    """Nearest point of {‖x‖₁ ≤ radius}.

    >>> import numpy as np
    >>> project_l1_ball(np.array([2.0, -1.0]), 2.0)
    array([ 1.5, -0.5])
    """
    tensor = as_tensor(y, "y")
    if float(tensor.abs().sum()) <= radius:
        return y
    return to_user(tensor.sign() * project_simplex(tensor.abs(), radius), returns_numpy(y))


def project_nuclear_ball(matrix: Any, radius: float = 1.0) -> Any:
    """Nearest point of {‖X‖_* ≤ radius}: a full singular value decomposition.

    >>> import numpy as np
    >>> project_nuclear_ball(np.diag([2.0, 1.0]), 2.0).round(6) + 0.0
    array([[1.5, 0. ],
           [0. , 0.5]])
    """
    tensor = as_tensor(matrix, "matrix")
    left, values, right = torch.linalg.svd(tensor, full_matrices=False)
    if float(values.sum()) <= radius:
        return matrix
    kept = project_simplex(values, radius)
    rank = int((kept > 0).sum())
    return to_user((left[:, :rank] * kept[:rank]) @ right[:rank], returns_numpy(matrix))


def project_psd_trace(matrix: Any, trace: float = 1.0) -> Any:
    """Nearest positive semi-definite matrix of a trace: a full eigendecomposition.

    >>> import numpy as np
    >>> project_psd_trace(np.diag([0.8, 0.6, -1.0])).round(6) + 0.0
    array([[0.6, 0. , 0. ],
           [0. , 0.4, 0. ],
           [0. , 0. , 0. ]])
    """
    tensor = as_tensor(matrix, "matrix")
    values, vectors = torch.linalg.eigh((tensor + tensor.t()) / 2)
    return to_user((vectors * project_simplex(values, trace)) @ vectors.t(), returns_numpy(matrix))
