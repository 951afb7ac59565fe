"""Sets of matrices: the nuclear-norm ball and positive semi-definite matrices of bounded trace.

Their oracles are extreme eigenvectors and singular pairs. An oracle is asked once in every iteration about a matrix
that has changed little, and an approximate answer is enough (paragraph "Inexact Oracles"). So every method takes a
start and an accuracy, and sees the matrix only through products: dense or sparse, NumPy, SciPy or torch.
"""

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
import torch
from torch import Tensor

from unknot.solvers.atoms.base import Answer, AtomSet, outside, positive, slack, unit_vector
from unknot.solvers.structured import Decomposition, RankOne, choose, is_sparse


class _MatrixSet(AtomSet):
    """Base of the two sets of matrices, whose oracles are extreme eigenpairs."""

    def __init__(self, tol: float, method: str, warm: bool) -> None:
        if not tol >= 0:
            raise ValueError(
                f"tol is {tol}: expected 0 (machine precision) or the relative accuracy of the eigenvalue."
            )
        if method not in METHODS:
            raise ValueError(f"method {method!r} is unknown: expected one of {', '.join(METHODS)}.")
        self.tol, self.method, self.warm = tol, method, warm
        self._random = np.random.default_rng(0)
        self._last: Any = None

    def _start(self, size: int) -> Any:
        """Start near the last answer, as gradients change little from one iteration to the next; or at random.

        The noise matters: a start that happens to be an eigenvector, though another one, is all that a Krylov
        method would ever see.
        """
        noise = self._random.standard_normal(size)
        if not self.warm or self._last is None or len(self._last) != size:
            return noise
        last = self._last.cpu().numpy() if isinstance(self._last, Tensor) else self._last
        return last + 0.1 / math.sqrt(size) * noise

    def _how(self, exact: bool) -> dict[str, Any]:
        """Method and accuracy of the eigensolver: the set's own, or one that certifies."""
        return {"method": "auto", "tol": 0.0} if exact else {"method": self.method, "tol": self.tol}

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "AtomSet":
        bound = copy.copy(self)
        bound._random, bound._last = np.random.default_rng(0), None
        return bound

    def _check_matrix(self, direction: Tensor) -> None:
        if direction.ndim != 2:
            raise ValueError(f"the atoms of {self} are matrices, but the direction has shape {list(direction.shape)}.")


class NuclearBall(_MatrixSet):
    r"""{X : ‖X‖_* ≤ radius}: its atoms are radius · u vᵀ with unit u and v.

    .. math:: \{X : \|X\|_* \leq r\}

    .. math:: \mathrm{lmo}(Y) = -r\, u v^T\ \text{ of the largest singular value of }\ Y

    Thesis: Eq. "eqn:exp_online_mat_comp", section "Empirical Evaluation".

    Args:
        radius: bound on the sum of the singular values.
        shape: of the matrices, if it should be checked.
        tol: relative accuracy of the singular value (0: machine precision); a loose one makes a cheap approximate
            oracle of multiplicative accuracy about 1 - tol.
        method: of :func:`unknot.solvers.atoms.matrices.top_singular_pair`.
        warm: start from the last answer, or from a random vector.

    >>> import numpy as np
    >>> NuclearBall(2.0).lmo(np.diag([1.0, -3.0])).round(6) + 0.0
    array([[0., 0.],
           [0., 2.]])
    """

    symmetric = True
    sparse_directions = True

    def __init__(
        self,
        radius: float = 1.0,
        shape: Sequence[int] | None = None,
        tol: float = 0.0,
        *,
        method: str = "auto",
        warm: bool = True,
    ) -> None:
        super().__init__(tol, method, warm)
        self.radius: float = positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = None if shape is None else tuple(int(size) for size in shape)

    def ask(self, direction: Any, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The top pair of singular vectors; the direction may be sparse (SciPy or torch)."""
        self._check_matrix(direction)
        start = self._start(direction.shape[1])
        sigma, u, v, error = top_singular_pair(direction, start, **self._how(exact))
        self._last = v
        if not isinstance(u, Tensor):
            u, v = torch.from_numpy(np.ascontiguousarray(u)), torch.from_numpy(np.ascontiguousarray(v))
        return Answer(RankOne(-self.radius, None, u, v), -self.radius * (sigma + error))

    def gauge(self, x: Tensor) -> float:
        return float(torch.linalg.matrix_norm(x, "nuc")) / self.radius

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_nuclear_ball

        nearest: Tensor = project_nuclear_ball(x, self.radius)
        return nearest

    def minimal_width(self) -> float | None:
        return None if self.shape is None else self.radius / math.sqrt(min(self.shape))

    def acceleration(self, greedy: bool, dim: int) -> float:
        return self.radius**2 * dim

    def decompose(self, x: Tensor) -> Decomposition:
        """The singular value decomposition; what is left over goes to an opposite pair."""
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        total = float(values.sum())
        if total > self.radius * (1 + slack(x) * len(values)):
            raise outside("its nuclear norm", total, self.radius)
        kept = [i for i, value in enumerate(values.tolist()) if value > slack(x) * total] or [0]
        parts: Decomposition = [
            (
                float(values[i]) / max(self.radius, total),
                RankOne(self.radius, None, left[:, i].clone(), right[i].clone()),
            )
            for i in kept
        ]
        rest = max(0.0, 1.0 - sum(weight for weight, _ in parts))
        weight, top = parts[0]
        parts[0] = (weight + rest / 2, top)
        opposite = dataclasses.replace(top, scale=-top.scale)
        return [*parts, (rest / 2, opposite)] if rest > 0 else parts

    def sample(self, like: Tensor, generator: torch.Generator) -> RankOne:
        rows, columns = like.shape
        return RankOne(
            self.radius, None, unit_vector((rows,), like, generator), unit_vector((columns,), like, generator)
        )

    def __str__(self) -> str:
        return f"NuclearBall({self.radius:g})"


class PSDTrace(_MatrixSet):
    r"""{X ⪰ 0 : tr X = trace}, or ``≤`` with ``equality=False``: atoms trace · u uᵀ, and 0 in the second case.

    .. math:: \{X \succeq 0 : \mathrm{tr}\, X = t\}

    .. math:: \mathrm{lmo}(Y) = t\, u u^T\ \text{ of the smallest eigenvalue of }\ Y

    Thesis: Eq. "eqn:SFW_SDP_lmo", section "Practical Motivation".

    The oracle needs the smallest eigenvalue of the (symmetrised) direction. With equality its eigenvector is the
    answer even where the eigenvalue is positive; with inequality the answer is then 0.

    >>> import numpy as np
    >>> PSDTrace(2.0).lmo(np.diag([1.0, 3.0])) + 0.0
    array([[2., 0.],
           [0., 0.]])
    >>> PSDTrace(2.0, equality=False).lmo(np.diag([1.0, 3.0])) + 0.0
    array([[0., 0.],
           [0., 0.]])
    """

    def __init__(
        self,
        trace: float = 1.0,
        *,
        equality: bool = True,
        dim: int | None = None,
        tol: float = 0.0,
        method: str = "auto",
        warm: bool = True,
    ) -> None:
        super().__init__(tol, method, warm)
        self.trace = positive(trace, "trace")
        self.equality = equality
        self.radius = self.trace
        self.diameter = math.sqrt(2) * self.trace
        self.shape = None if dim is None else (int(dim), int(dim))
        self.margin = 0.0 if dim is None else self.trace / math.sqrt(dim)

    def ask(self, direction: Any, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The eigenvector of the smallest eigenvalue; the direction may be sparse."""
        self._check_matrix(direction)
        if direction.shape[0] != direction.shape[1]:
            raise ValueError(f"{self} has square matrices, but the direction has shape {list(direction.shape)}.")
        start = self._start(direction.shape[0])
        value, u, error = smallest_eigenvector(direction, start, **self._how(exact))
        self._last = u
        if not isinstance(u, Tensor):
            u = torch.from_numpy(np.ascontiguousarray(u))
        lower = self.trace * (value - error)
        return Answer(
            RankOne(self.trace if self.equality or value < 0 else 0.0, None, u, u),
            lower if self.equality else min(0.0, lower),
        )

    def gauge(self, x: Tensor) -> float:
        lowest = float(torch.linalg.eigvalsh((x + x.t()) / 2)[0])
        return float(x.trace()) / self.trace if lowest >= -1e-12 * float(x.norm()) else math.inf

    def _contains(self, x: Tensor, tol: float) -> bool:
        lowest = float(torch.linalg.eigvalsh((x + x.t()) / 2)[0])
        total = float(x.trace()) - self.trace
        inside = total <= tol * self.trace and (not self.equality or total >= -tol * self.trace)
        return inside and lowest >= -tol * self.trace and bool(torch.allclose(x, x.t(), rtol=0, atol=tol * self.trace))

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_psd_trace

        if not self.equality:
            values, vectors = torch.linalg.eigh((x + x.t()) / 2)
            kept = values.clamp_min(0)
            if float(kept.sum()) <= self.trace:
                return (vectors * kept) @ vectors.t()
        nearest: Tensor = project_psd_trace(x, self.trace)
        return nearest

    def margin_for(self, zero: Tensor) -> float:
        return self.trace / math.sqrt(len(zero))

    def conic_weights(self, x: Tensor) -> Decomposition:
        scale = float(x.trace()) / self.trace
        if not scale > 0:
            raise ValueError(f"x0 is outside the cone of {self}: its trace is {float(x.trace()):.6g}, expected > 0.")
        return [(scale * weight, atom) for weight, atom in self.decompose(x / scale)]

    def decompose(self, x: Tensor) -> Decomposition:
        if not torch.allclose(x, x.t(), rtol=0, atol=slack(x) * self.trace):
            raise ValueError(f"x0 is outside the set: it is not symmetric; expected a matrix of {self}.")
        values, vectors = torch.linalg.eigh(x)
        total, room = float(values.sum()), slack(x) * self.trace
        if float(values[0]) < -room:
            raise ValueError(
                f"x0 is outside the set: its smallest eigenvalue is {float(values[0]):.6g}, expected >= 0."
            )
        if total > self.trace + room * len(x) or (self.equality and total < self.trace - room * len(x)):
            relation = "exactly" if self.equality else "at most"
            raise ValueError(f"x0 is outside the set: its trace is {total:.6g}, expected {relation} {self.trace:g}.")
        kept = [i for i, value in enumerate(values.tolist()) if value > room]
        parts: Decomposition = [
            (float(values[i]) / self.trace, RankOne(self.trace, None, vectors[:, i].clone(), vectors[:, i].clone()))
            for i in kept
        ]
        rest = max(0.0, 1.0 - sum(weight for weight, _ in parts))
        if self.equality:
            return [(weight / (1.0 - rest), atom) for weight, atom in parts]
        zero = RankOne(0.0, None, vectors[:, 0].clone(), vectors[:, 0].clone())
        return [*parts, (rest, zero)] if rest > 0 else parts

    def sample(self, like: Tensor, generator: torch.Generator) -> RankOne:
        u = unit_vector((len(like),), like, generator)
        return RankOne(self.trace, None, u, u)

    def __str__(self) -> str:
        return f"PSDTrace({self.trace:g}, equality={self.equality})"


METHODS = ("auto", "lapack", "lanczos", "power")
SMALL = 128
"""Matrices of at most this size are decomposed by LAPACK where the method is "auto"."""

MAX_STEPS = 100
"""Steps of the power method at most; what it has then is the answer."""


class Eigenpair(NamedTuple):
    """Value, unit vector, and how far the extreme eigenvalue may lie beyond the value.

    ``error`` is infinite for the power method: that an estimate moves little only says that *some* eigenvalue is near.
    LAPACK finds them all. The error of ARPACK is its residual, its tolerance and rounding, provided that the start has
    a part in that eigenvector, as one with noise in it has.
    """

    value: float
    vector: Any
    error: float


class SingularPair(NamedTuple):
    """Value, unit left and right vectors, and how far the largest singular value may lie above the value."""

    value: float
    left: Any
    right: Any
    error: float


def smallest_eigenvector(
    matrix: Any, start: Any = None, *, method: str = "auto", tol: float = 0.0, max_steps: int = MAX_STEPS
) -> Eigenpair:
    """Smallest (algebraic) eigenvalue of a symmetric matrix ``[n, n]``, a unit eigenvector ``[n]``, and an error bound.

    Args:
        matrix: dense or sparse; of it only the symmetric part counts where it is dense.
        start: a vector near the answer; random if left out.
        method: "lapack" (a full decomposition), "lanczos" (ARPACK), "power" (shifted by a bound on the
            largest eigenvalue), or "auto": LAPACK up to 128 rows, Lanczos above.
        tol: relative accuracy, 0 for machine precision; the power method stops once its estimate moves less.
        max_steps: of "power".

    >>> import numpy as np
    >>> value, vector, error = smallest_eigenvector(np.diag([2.0, -1.0, 3.0]))
    >>> round(value, 6), np.abs(vector).round(6), error < 1e-14
    (-1.0, array([0., 1., 0.]), True)
    """
    if isinstance(matrix, Tensor) and not is_sparse(matrix):
        symmetric = (matrix + matrix.t()) / 2
        if matrix.device.type != "cpu" or _choose(method, len(matrix)) == "lapack":
            values, vectors = torch.linalg.eigh(symmetric.double())
            error = _rounding(float(values.abs().max()), len(matrix), matrix.dtype)
            return Eigenpair(float(values[0]), vectors[:, 0].to(matrix), error)
        pair = smallest_eigenvector(symmetric.numpy(), _numpy(start), method=method, tol=tol, max_steps=max_steps)
        return pair._replace(vector=torch.from_numpy(pair.vector).to(matrix))
    operator = _scipy(matrix)
    size = operator.shape[0]
    chosen = _choose(method, size)
    v0 = _start(start, size, operator.dtype)
    if chosen == "lapack":
        values, vectors = scipy.linalg.eigh(_dense(operator).astype(np.float64))
        error = _rounding(float(np.abs(values).max()), size, operator.dtype)
        return Eigenpair(float(values[0]), vectors[:, 0].astype(operator.dtype), error)
    if chosen == "power":
        # λ_max ≤ max_i Σ_j |M_ij|, so shift - M is positive semi-definite and its top eigenvector is the answer.
        shift = float(np.max(np.asarray(abs(operator).sum(axis=1))))
        value, vector = _power(lambda v: shift * v - operator @ v, v0, tol * (shift or 1.0), max_steps)
        return Eigenpair(shift - value, vector, math.inf)
    return _symmetric(operator, v0, tol, largest=False)


def top_singular_pair(
    matrix: Any, start: Any = None, *, method: str = "auto", tol: float = 0.0, max_steps: int = MAX_STEPS
) -> SingularPair:
    """Largest singular value of a matrix ``[m, n]``, unit left ``[m]`` and right ``[n]`` vectors, and an error bound.

    Arguments as for :func:`smallest_eigenvector`; ``start`` is near the right singular vector. With "power" and
    tol=1e-2 this is the oracle of the thesis' matrix completion.

    >>> import numpy as np, scipy.sparse
    >>> matrix = scipy.sparse.diags_array([1.0, -3.0, 2.0])
    >>> value, left, right, error = top_singular_pair(matrix, method="power", tol=1e-12)
    >>> round(value, 6), (left * right).round(3) + 0.0, error  # power iterations certify nothing
    (3.0, array([ 0., -1.,  0.]), inf)
    """
    if isinstance(matrix, Tensor) and not is_sparse(matrix):
        if matrix.device.type != "cpu" or _choose(method, min(matrix.shape)) == "lapack":
            left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
            top = float(values[0])
            error = _rounding(top, max(matrix.shape), matrix.dtype)
            return SingularPair(top, left[:, 0].to(matrix), right[0].to(matrix), error)
        if method == "power":  # in torch, whose products of single precision are the fastest here
            first = torch.from_numpy(_start(_numpy(start), matrix.shape[1], matrix.numpy().dtype))
            transposed = matrix.t()
            _, v = _power(lambda x: transposed @ (matrix @ x), first, 2 * tol, max_steps, relative=True)
            return SingularPair(*_left(matrix @ v, v), math.inf)
        pair = top_singular_pair(matrix.numpy(), _numpy(start), method=method, tol=tol, max_steps=max_steps)
        left, right = (torch.from_numpy(vector).to(matrix) for vector in (pair.left, pair.right))
        return pair._replace(left=left, right=right)
    operator = _scipy(matrix)
    chosen = _choose(method, min(operator.shape))
    if chosen == "lapack":
        left, values, right = np.linalg.svd(_dense(operator).astype(np.float64), full_matrices=False)
        top = float(values[0])
        error = _rounding(top, max(operator.shape), operator.dtype)
        return SingularPair(top, left[:, 0].astype(operator.dtype), right[0].astype(operator.dtype), error)
    v0 = _start(start, operator.shape[1], operator.dtype)
    if chosen == "power":
        transpose = operator.T
        _, v = _power(lambda x: transpose @ (operator @ x), v0, 2 * tol, max_steps, relative=True)
        return SingularPair(*_left(operator @ v, v), math.inf)
    if operator.shape[0] < operator.shape[1]:
        square, u, error = _symmetric(_gram(operator.T), _unit(operator @ v0), tol, largest=True)
        sigma, v, u = _left(operator.T @ u, u)
    else:
        square, v, error = _symmetric(_gram(operator), v0, tol, largest=True)
        sigma, u, v = _left(operator @ v, v)
    # σ_max² ≤ square + error, and sigma² is what the vectors give of it
    return SingularPair(sigma, u, v, math.sqrt(max(0.0, square + error)) - sigma if error < math.inf else math.inf)


def _power(product: Any, vector: Any, tol: float, max_steps: int, relative: bool = False) -> tuple[float, Any]:
    """Power iteration until ‖Mx‖²/⟨x, Mx⟩ ≤ λ_max moves by at most ``tol`` (times itself, if relative)."""
    linalg = torch.linalg if isinstance(vector, Tensor) else np.linalg
    value = math.inf
    for _ in range(max_steps):
        image = product(vector)
        quotient, norm = float(vector @ image), float(linalg.norm(image))
        if not quotient > 0:
            return 0.0, vector
        estimate = norm**2 / quotient
        vector = image / norm
        if abs(estimate - value) <= tol * (abs(estimate) if relative else 1.0):
            return estimate, vector
        value = estimate
    return value, vector


def _symmetric(operator: Any, v0: np.ndarray, tol: float, largest: bool) -> Eigenpair:
    """An extreme eigenpair by ARPACK, which may fail on matrices such as 0, where any vector is right."""
    try:
        values, vectors = scipy.sparse.linalg.eigsh(operator, k=1, which="LA" if largest else "SA", v0=v0, tol=tol)
    except scipy.sparse.linalg.ArpackNoConvergence as stopped:
        if not len(stopped.eigenvalues):
            return Eigenpair(float(v0 @ (operator @ v0)), v0, math.inf)
        return Eigenpair(float(stopped.eigenvalues[0]), stopped.eigenvectors[:, 0], math.inf)
    except scipy.sparse.linalg.ArpackError:
        image = operator @ v0
        flat = not np.any(image)  # ARPACK refuses a start that the matrix maps to 0, as the matrix 0 does
        return Eigenpair(float(v0 @ image), v0, 0.0 if flat and _is_zero(operator) else math.inf)
    value, vector = float(values[0]), vectors[:, 0]
    residual = float(np.linalg.norm(operator @ vector - value * vector))
    size = max(abs(value), float(np.linalg.norm(operator @ v0)), _frobenius(operator))
    return Eigenpair(value, vector, residual + tol * abs(value) + _rounding(size, operator.shape[0], operator.dtype))


def _rounding(size: float, dim: int, dtype: Any) -> float:
    """Bound on the rounding error of an eigenvalue of a matrix whose norm is ``size``."""
    eps = torch.finfo(dtype).eps if isinstance(dtype, torch.dtype) else np.finfo(dtype).eps
    return 4 * math.sqrt(dim) * float(eps) * size


def _frobenius(operator: Any) -> float:
    if isinstance(operator, np.ndarray):
        return float(np.linalg.norm(operator))
    return float(np.linalg.norm(operator.data)) if hasattr(operator, "data") else 0.0


def _is_zero(operator: Any) -> bool:
    probe = np.random.default_rng(1).standard_normal(operator.shape[1])
    return not np.any(operator @ probe)


def _gram(matrix: Any) -> Any:
    transpose = matrix.T
    return scipy.sparse.linalg.LinearOperator(
        (matrix.shape[1], matrix.shape[1]), matvec=lambda v: transpose @ (matrix @ v), dtype=matrix.dtype
    )


def _left(image: Any, v: Any) -> tuple[float, Any, Any]:
    """σ, u and v from M v = σ u."""
    linalg = torch.linalg if isinstance(v, Tensor) else np.linalg
    sigma = float(linalg.norm(image))
    if sigma > 0:
        return sigma, image / sigma, v
    other = np.random.default_rng(0).standard_normal(len(image)).astype(_numpy(v).dtype)
    u = _unit(other)
    return 0.0, torch.from_numpy(u).to(v) if isinstance(v, Tensor) else u, v


def _unit(vector: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(vector)
    if norm > 0:
        return vector / norm
    return np.full_like(vector, 1 / math.sqrt(len(vector)))


def _start(start: Any, size: int, dtype: Any) -> np.ndarray:
    if start is None or len(start) != size:
        start = np.random.default_rng(0).standard_normal(size)
    return _unit(np.asarray(start).astype(dtype))


def _numpy(array: Any) -> Any:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array


def _dense(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.todense() if is_sparse(matrix) else matrix)


def _scipy(matrix: Any) -> Any:
    """A matrix as NumPy's or SciPy's."""
    if isinstance(matrix, Tensor):
        coo = matrix.detach().cpu().to_sparse_coo().coalesce()
        return scipy.sparse.csr_array((coo.values().numpy(), coo.indices().numpy()), shape=tuple(matrix.shape))
    return matrix if is_sparse(matrix) else np.asarray(matrix)


def _choose(method: str, size: int) -> str:
    chosen = choose(method, METHODS, "method")
    if chosen == "auto":
        return "lapack" if size <= SMALL else "lanczos"
    return "lapack" if size <= 4 and chosen != "power" else chosen  # too small for a Krylov space
