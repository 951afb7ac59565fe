r"""Atoms and sets of atoms with a linear minimisation oracle (chapter "Introduction and Background").

An atom set 𝒜 answers one question,

    lmo_𝒜(d) = argmin_{z ∈ 𝒜} ⟨d, z⟩,

and solvers minimise over its convex hull, its linear span or its conic hull. The answer is structured (a signed
coordinate, a rank-one matrix, a column of a dictionary), so that adding it to an iterate costs what it should;
``lmo`` gives it as a dense array of the caller's kind, ``atom`` as it is.
"""

import copy
import dataclasses
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
import torch
from torch import Tensor

from unknot.solvers import spectral
from unknot.solvers._arrays import as_tensor, is_sparse, to_user, wants_numpy
from unknot.solvers.structured import Atom, Decomposition, Dense, OneHot, RankOne, Sparse, Stack


class AtomSet(ABC):
    """A compact set 𝒜 with a linear minimisation oracle. Subclasses give ``atom``; the rest has honest defaults.

    Attributes:
        shape: of the atoms; None if the set takes any.
        symmetric: whether -z ∈ 𝒜 for every z ∈ 𝒜.
        radius: max ‖z‖, if known.
        diameter: max ‖z - z'‖ or an upper bound, if known.
        margin: a lower bound on the distance from the origin to conv(𝒜 without 0), 0 if it may contain it; what
            turns the gradient into a certificate over a cone.
    """

    shape: tuple[int, ...] | None = None
    symmetric: bool = False
    radius: float | None = None
    diameter: float | None = None
    margin: float = 0.0

    @abstractmethod
    def atom(self, direction: Tensor, x: Tensor | None = None) -> Atom:
        """argmin_{z ∈ 𝒜} ⟨direction, z⟩; ``x`` is the iterate, for oracles whose accuracy is relative to it."""

    def lmo(self, direction: Any) -> Any:
        """argmin_{z ∈ 𝒜} ⟨direction, z⟩ as a dense array of the direction's kind."""
        tensor = as_tensor(direction, "direction")
        self.check_shape(tuple(tensor.shape), "direction")
        answer = self.bind(tensor.dtype, tensor.device, wants_numpy(direction)).atom(tensor.contiguous())
        return to_user(answer.dense().reshape(tensor.shape), wants_numpy(direction))

    def bound(self, direction: Tensor, x: Tensor | None, atom: Atom) -> float:
        """Upper bound on ⟨d, x⟩ - min_z ⟨d, z⟩, given the oracle's answer; equal to it for an exact oracle."""
        at = 0.0 if x is None else float(torch.dot(direction.reshape(-1), x.reshape(-1)))
        return at - atom.inner(direction)

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "AtomSet":
        """The same set, with its arrays in the dtype and on the device of a run."""
        return self

    def symmetrised(self) -> "AtomSet":
        """𝒜 ∪ -𝒜, which has the same span."""
        return self if self.symmetric else Symmetric(self)

    @property
    def base(self) -> "AtomSet":
        """The set itself, beneath whatever changes how it is asked."""
        return self

    def decompose(self, x: Tensor) -> Decomposition:
        """Weights and atoms of a point of conv(𝒜)."""
        candidate = self.atom(-x)
        if torch.allclose(candidate.dense().reshape(x.shape), x, rtol=1e-6, atol=1e-9):
            return [(1.0, candidate)]
        raise ValueError(
            f"x0 is not an atom of {self}: this set cannot tell a point of its hull from one outside, "
            "so pass an atom (for example `atoms.lmo(-x0)`) or leave x0 out."
        )

    def sample(self, like: Tensor, generator: torch.Generator) -> Atom:
        """A random atom for random pursuit, uniform where that has a meaning."""
        raise ValueError(f"{self} has no sampling law: use a greedy variant, or atoms.Custom(..., sample=function).")

    def span_part(self, direction: Tensor) -> Tensor:
        """The part of a direction in lin(𝒜), or the direction itself where the span is everything or unknown."""
        return direction

    def check_shape(self, shape: tuple[int, ...], name: str) -> None:
        """Raise unless arrays of this shape live where the atoms do."""
        if self.shape is not None and shape != self.shape:
            raise ValueError(
                f"{name} has shape {list(shape)} but the atoms of {self} have {list(self.shape)}: make them agree."
            )

    def __str__(self) -> str:
        return type(self).__name__


def _positive(value: float, name: str) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} is {value}: expected a positive number.")
    return float(value)


def _outside(what: str, value: float, limit: float) -> ValueError:
    return ValueError(
        f"x0 is outside the set: {what} is {value:.6g}, expected at most {limit:.6g}; scale or project it."
    )


def _slack(tensor: Tensor) -> float:
    return 1e3 * float(torch.finfo(tensor.dtype).eps)


class L1Ball(AtomSet):
    """{x : ‖x‖₁ ≤ radius}: its atoms are the signed coordinates ±radius · e_i.

    >>> import numpy as np
    >>> L1Ball(2.0).lmo(np.array([0.5, -3.0, 1.0]))
    array([0., 2., 0.])
    """

    symmetric = True

    def __init__(self, radius: float = 1.0, dim: int | None = None) -> None:
        self.radius: float = _positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = None if dim is None else (int(dim),)

    def coordinate(self, index: int, scale: float, like: Tensor) -> OneHot:
        """scale · e_index, for arrays like another."""
        return OneHot(scale, index, index, tuple(like.shape), like.dtype, like.device)

    def atom(self, direction: Tensor, x: Tensor | None = None) -> OneHot:
        """The coordinate of steepest descent."""
        flat = direction.reshape(-1)
        index = int(flat.abs().argmax())
        return self.coordinate(index, -self.radius if float(flat[index]) > 0 else self.radius, direction)

    def decompose(self, x: Tensor) -> Decomposition:
        """|x_i| / radius on each coordinate; what is left over goes to an opposite pair."""
        flat = x.reshape(-1)
        norm = float(flat.abs().sum())
        if norm > self.radius * (1 + _slack(x)):
            raise _outside("its L1 norm", norm, self.radius)
        support = torch.nonzero(flat).reshape(-1).tolist()
        weights = [abs(float(flat[i])) / max(self.radius, norm) for i in support]
        atoms = [self.coordinate(i, math.copysign(self.radius, float(flat[i])), x) for i in support]
        rest = max(0.0, 1.0 - sum(weights))
        if rest > 0:
            pair = [self.coordinate(support[0] if support else 0, sign * self.radius, x) for sign in (1.0, -1.0)]
            return _merged([*zip(weights, atoms, strict=True), *((rest / 2, atom) for atom in pair)])
        return list(zip(weights, atoms, strict=True))

    def sample(self, like: Tensor, generator: torch.Generator) -> OneHot:
        """A uniform coordinate (the sign does not matter)."""
        index = int(torch.randint(like.numel(), (), generator=generator))
        return self.coordinate(index, self.radius, like)

    def __str__(self) -> str:
        return f"L1Ball({self.radius:g})"


def SignedCoordinates(dim: int | None = None) -> L1Ball:
    """±e_i, the atoms of coordinate descent: the L1 ball of radius 1.

    >>> import torch
    >>> SignedCoordinates().lmo(torch.tensor([0.5, -3.0]))
    tensor([0., 1.])
    """
    return L1Ball(1.0, dim)


class Simplex(L1Ball):
    """{x ≥ 0 : Σ x_i = radius}: its atoms are radius · e_i; their cone is the non-negative orthant.

    >>> import numpy as np
    >>> Simplex().lmo(np.array([0.5, -3.0, 1.0]))
    array([0., 1., 0.])
    """

    symmetric = False

    def __init__(self, radius: float = 1.0, dim: int | None = None) -> None:
        super().__init__(radius, dim)
        self.diameter = math.sqrt(2) * self.radius
        self.margin = 0.0 if dim is None else self.radius / math.sqrt(dim)

    def atom(self, direction: Tensor, x: Tensor | None = None) -> OneHot:
        """The coordinate of the smallest entry."""
        return self.coordinate(int(direction.reshape(-1).argmin()), self.radius, direction)

    def decompose(self, x: Tensor) -> Decomposition:
        """x_i / radius on each coordinate."""
        flat = x.reshape(-1)
        slack = _slack(x) * self.radius
        if float(flat.min()) < -slack:
            raise ValueError(
                f"x0 is outside the set: its smallest entry is {float(flat.min()):.6g}, expected 0 or more."
            )
        if abs(float(flat.sum()) - self.radius) > slack * max(1, len(flat)) ** 0.5:
            raise ValueError(
                f"x0 is outside the set: its entries sum to {float(flat.sum()):.6g}, expected {self.radius:g}."
            )
        support = torch.nonzero(flat > 0).reshape(-1).tolist()
        return [(float(flat[i]) / self.radius, self.coordinate(i, self.radius, x)) for i in support]

    def symmetrised(self) -> AtomSet:
        """The L1 ball of the same radius."""
        return L1Ball(self.radius, None if self.shape is None else self.shape[0])

    def __str__(self) -> str:
        return f"Simplex({self.radius:g})"


class L2Ball(AtomSet):
    """{x : ‖x‖₂ ≤ radius}; over its span, matching pursuit is gradient descent.

    >>> import numpy as np
    >>> L2Ball(5.0).lmo(np.array([3.0, -4.0]))
    array([-3.,  4.])
    """

    symmetric = True

    def __init__(self, radius: float = 1.0, dim: int | None = None) -> None:
        self.radius: float = _positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = None if dim is None else (int(dim),)

    def atom(self, direction: Tensor, x: Tensor | None = None) -> Dense:
        """Against the direction."""
        norm = float(torch.linalg.vector_norm(direction))
        if norm == 0:
            vector = torch.zeros_like(direction)
            vector.view(-1)[0] = 1.0
            return Dense(self.radius, None, vector)
        return Dense(-self.radius, None, direction / norm)

    def decompose(self, x: Tensor) -> Decomposition:
        """Two opposite points on the line through x."""
        norm = float(torch.linalg.vector_norm(x))
        if norm > self.radius * (1 + _slack(x)):
            raise _outside("its norm", norm, self.radius)
        share = (1 + min(1.0, norm / self.radius)) / 2
        towards = self.atom(-x)
        opposite = Dense(-towards.scale, None, towards.vector)
        return [(share, towards), (1 - share, opposite)] if share < 1 else [(1.0, towards)]

    def sample(self, like: Tensor, generator: torch.Generator) -> Dense:
        """Uniform on the sphere."""
        return Dense(self.radius, None, _unit(like.shape, like, generator))

    def __str__(self) -> str:
        return f"L2Ball({self.radius:g})"


def _unit(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    vector = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
    return (vector / torch.linalg.vector_norm(vector)).to(like)


class _MatrixSet(AtomSet):
    """What the two sets of matrices share: an extreme eigenpair by :mod:`unknot.solvers.spectral`."""

    def __init__(self, tol: float, method: str, warm: bool) -> None:
        if not tol >= 0:
            raise ValueError(
                f"tol is {tol}: expected 0 (machine precision) or the relative accuracy of the eigenvalue."
            )
        if method not in spectral.METHODS:
            raise ValueError(f"method {method!r} is unknown: expected one of {', '.join(spectral.METHODS)}.")
        self.tol, self.method, self.warm = tol, method, warm
        self._random = np.random.default_rng(0)
        self._last: Any = None

    def _start(self, size: int) -> Any:
        """The last answer, as gradients change little from one iteration to the next; or a random vector."""
        if not self.warm or self._last is None or len(self._last) != size:
            return self._random.standard_normal(size)
        return self._last

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "AtomSet":
        """With nothing remembered of other runs."""
        bound = copy.copy(self)
        bound._random, bound._last = np.random.default_rng(0), None
        return bound

    def bound(self, direction: Tensor, x: Tensor | None, atom: Atom) -> float:
        """With room for the accuracy asked of the eigensolver."""
        return super().bound(direction, x, atom) + self.tol * abs(atom.inner(direction))

    def _check_matrix(self, direction: Tensor) -> None:
        if direction.ndim != 2:
            raise ValueError(f"the atoms of {self} are matrices, but the direction has shape {list(direction.shape)}.")


class NuclearBall(_MatrixSet):
    """{X : ‖X‖_* ≤ radius}: its atoms are radius · u vᵀ with unit u and v.

    Args:
        radius: bound on the sum of the singular values.
        shape: of the matrices, if it should be checked.
        tol: relative accuracy of the singular value (0: machine precision); a loose one makes a cheap approximate
            oracle of multiplicative accuracy about 1 - tol.
        method: of :func:`unknot.solvers.spectral.top_singular_pair`.
        warm: start from the last answer, or from a random vector.

    >>> import numpy as np
    >>> NuclearBall(2.0).lmo(np.diag([1.0, -3.0])).round(6) + 0.0
    array([[0., 0.],
           [0., 2.]])
    """

    symmetric = True

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
        self.radius: float = _positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = None if shape is None else tuple(int(size) for size in shape)

    def atom(self, direction: Any, x: Tensor | None = None) -> RankOne:
        """The top pair of singular vectors; the direction may be sparse (SciPy or torch)."""
        self._check_matrix(direction)
        start = self._start(direction.shape[1])
        _, u, v = spectral.top_singular_pair(direction, start, method=self.method, tol=self.tol)
        self._last = v
        if not isinstance(u, Tensor):
            u, v = torch.from_numpy(np.ascontiguousarray(u)), torch.from_numpy(np.ascontiguousarray(v))
        return RankOne(-self.radius, None, u, v)

    def decompose(self, x: Tensor) -> Decomposition:
        """The singular value decomposition; what is left over goes to an opposite pair."""
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        total = float(values.sum())
        if total > self.radius * (1 + _slack(x) * len(values)):
            raise _outside("its nuclear norm", total, self.radius)
        kept = [i for i, value in enumerate(values.tolist()) if value > _slack(x) * total] or [0]
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
        """Two uniform unit vectors."""
        rows, columns = like.shape
        return RankOne(self.radius, None, _unit((rows,), like, generator), _unit((columns,), like, generator))

    def __str__(self) -> str:
        return f"NuclearBall({self.radius:g})"


class PSDTrace(_MatrixSet):
    """{X ⪰ 0 : tr X = trace}, or ``≤`` with ``equality=False``: atoms trace · u uᵀ, and 0 in the second case.

    The oracle wants the smallest eigenvalue of the (symmetrised) direction. With equality its eigenvector is the
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
        self.trace = _positive(trace, "trace")
        self.equality = equality
        self.radius = self.trace
        self.diameter = math.sqrt(2) * self.trace
        self.shape = None if dim is None else (int(dim), int(dim))
        self.margin = 0.0 if dim is None else self.trace / math.sqrt(dim)

    def atom(self, direction: Tensor, x: Tensor | None = None) -> RankOne:
        """The eigenvector of the smallest eigenvalue."""
        self._check_matrix(direction)
        if direction.shape[0] != direction.shape[1]:
            raise ValueError(f"{self} has square matrices, but the direction has shape {list(direction.shape)}.")
        start = self._start(len(direction))
        value, u = spectral.smallest_eigenvector(direction, start, method=self.method, tol=self.tol)
        self._last = u
        return RankOne(self.trace if self.equality or value < 0 else 0.0, None, u, u)

    def decompose(self, x: Tensor) -> Decomposition:
        """The eigendecomposition, and 0 for a trace below the bound."""
        if not torch.allclose(x, x.t(), rtol=0, atol=_slack(x) * self.trace):
            raise ValueError(f"x0 is outside the set: it is not symmetric; expected a matrix of {self}.")
        values, vectors = torch.linalg.eigh(x)
        total, slack = float(values.sum()), _slack(x) * self.trace
        if float(values[0]) < -slack:
            raise ValueError(
                f"x0 is outside the set: its smallest eigenvalue is {float(values[0]):.6g}, expected >= 0."
            )
        if total > self.trace + slack * len(x) or (self.equality and total < self.trace - slack * len(x)):
            relation = "exactly" if self.equality else "at most"
            raise ValueError(f"x0 is outside the set: its trace is {total:.6g}, expected {relation} {self.trace:g}.")
        kept = [i for i, value in enumerate(values.tolist()) if value > slack]
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
        """A uniform unit vector."""
        u = _unit((len(like),), like, generator)
        return RankOne(self.trace, None, u, u)

    def __str__(self) -> str:
        return f"PSDTrace({self.trace:g}, equality={self.equality})"


class Dictionary(AtomSet):
    """The columns of a matrix ``[d, n]``, dense or sparse (SciPy or torch).

    Args:
        matrix: one atom of R^d for each of its n columns.
        symmetric: also their negatives.
        allow_zero: let a column be zero, where the origin is meant to be an atom of a hull.

    >>> import numpy as np
    >>> Dictionary(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])).lmo(np.array([1.0, -3.0]))
    array([2., 2.])
    """

    def __init__(self, matrix: Any, *, symmetric: bool = False, allow_zero: bool = False) -> None:
        self.symmetric = symmetric
        self.numpy = wants_numpy(matrix)
        self.sparse = is_sparse(matrix)
        self._rows = _sparse_rows(matrix) if self.sparse else _dense_rows(matrix)
        if not self._rows.numel():
            raise ValueError(
                f"the dictionary is empty (shape {list(self._rows.shape)[::-1]}): expected at least one column."
            )
        self.shape = (self._rows.shape[1],)
        self.count = self._rows.shape[0]
        norms = self._norms()
        if not bool(torch.isfinite(norms).all()):
            raise ValueError(
                "the dictionary has non-finite entries: expected finite numbers, remove NaN and inf first."
            )
        zeros = torch.nonzero(norms == 0).reshape(-1).tolist()
        if zeros and not (allow_zero and len(zeros) < self.count):
            raise ValueError(
                f"atom {zeros[0]} of the dictionary is zero ({len(zeros)} of {self.count} columns are): drop such "
                "columns, or pass allow_zero=True if the origin is meant to be an atom of a hull."
            )
        self.has_zero = bool(zeros)
        self.radius: float = float(norms.max())

    def _norms(self) -> Tensor:
        if not self.sparse:
            return torch.linalg.vector_norm(self._rows, dim=1)
        squares = torch.zeros(self._rows.shape[0], dtype=self._rows.dtype, device=self._rows.device)
        counts = self._rows.crow_indices().diff()
        owner = torch.repeat_interleave(torch.arange(len(counts), device=squares.device), counts)
        return squares.index_add_(0, owner, self._rows.values().square()).sqrt()

    def _mean(self) -> Tensor:
        if not self.sparse:
            return self._rows.mean(0)
        total = torch.zeros(self._rows.shape[1], dtype=self.dtype, device=self.device)
        return total.index_add_(0, self._rows.col_indices(), self._rows.values()) / self.count

    @property
    def dtype(self) -> torch.dtype:
        """Of the columns."""
        return self._rows.dtype

    @property
    def device(self) -> torch.device:
        """Of the columns."""
        return self._rows.device

    def dense_rows(self) -> Tensor:
        """The atoms as rows ``[n, d]``."""
        return self._rows.to_dense() if self.sparse else self._rows

    def scores(self, direction: Tensor) -> Tensor:
        """⟨direction, z_i⟩ ``[n]``."""
        return self._rows @ direction

    def column(self, index: int, scale: float = 1.0) -> Dense:
        """Atom of a column."""
        if not self.sparse:
            return Dense(scale, index, self._rows[index])
        start, stop = int(self._rows.crow_indices()[index]), int(self._rows.crow_indices()[index + 1])
        indices, values = self._rows.col_indices()[start:stop], self._rows.values()[start:stop]
        return Sparse(scale, index, indices=indices, values=values, shape=(self._rows.shape[1],))

    def atom(self, direction: Tensor, x: Tensor | None = None) -> Dense:
        """The column (or its negative) of the smallest inner product."""
        scores = self.scores(direction)
        index = int(scores.abs().argmax() if self.symmetric else scores.argmin())
        return self.column(index, -1.0 if self.symmetric and float(scores[index]) > 0 else 1.0)

    @cached_property
    def diameter(self) -> float:  # type: ignore[override]
        """Largest distance of two atoms; above 4096 columns the bound 2 · radius."""
        if self.symmetric or self.count > 4096:
            return 2 * self.radius
        rows = self.dense_rows()
        return float(torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").max())

    @cached_property
    def margin(self) -> float:  # type: ignore[override]
        """For any unit e, min_z ⟨e, z⟩ bounds the distance from below; e is the mean atom, then the nearest point.

        The nearest point of the hull is sought by a few Frank-Wolfe steps on ½‖x‖², whose oracle gives the bound.
        """
        if self.symmetric or self.has_zero:
            return 0.0
        x, best = self._mean(), 0.0
        for _ in range(200):
            norm = float(torch.linalg.vector_norm(x))
            if norm <= 1e-12 * self.radius:
                break
            scores = self.scores(x) / norm
            best = max(best, float(scores.min()))
            if best > 0.1 * norm:
                break
            towards = self.column(int(scores.argmin())).dense() - x
            share = float(-(x @ towards) / (towards @ towards)) if bool(towards.any()) else 0.0
            x = x + min(1.0, max(0.0, share)) * towards
        return best

    @cached_property
    def _span_basis(self) -> Tensor | None:
        """Orthonormal basis ``[d, rank]`` of the span where there are fewer atoms than dimensions, and not too many."""
        if self.count >= self._rows.shape[1] or self.count > 2048:
            return None
        left, values, _ = torch.linalg.svd(self.dense_rows().t(), full_matrices=False)
        return left[:, values > values[0] * _slack(values)]

    def span_part(self, direction: Tensor) -> Tensor:
        """Projected on lin(𝒜), where the atoms are too few to span everything."""
        basis = self._span_basis
        return direction if basis is None else basis @ (basis.t() @ direction)

    def conic(self, x: Tensor, total: float | None) -> tuple[np.ndarray, float]:
        """Weights α ≥ 0 of the columns with the smallest ‖Σ α_i z_i - x‖ (and Σ α_i = total), and that norm."""
        matrix = self.dense_rows().t().cpu().double().numpy()
        target = x.cpu().double().numpy()
        if self.symmetric:
            matrix = np.hstack([matrix, -matrix])
        if total is not None:
            matrix = np.vstack([matrix, np.full((1, matrix.shape[1]), self.radius)])
            target = np.append(target, total * self.radius)
        weights, residual = scipy.optimize.nnls(matrix, target, maxiter=30 * matrix.shape[1])
        return weights, float(residual)

    def decompose(self, x: Tensor) -> Decomposition:
        """Convex weights by non-negative least squares."""
        weights, residual = self.conic(x, total=1.0)
        if residual > 1e-7 * self.radius and residual > 10 * _slack(x) * self.radius:
            raise ValueError(
                f"x0 is outside the set: it is {residual:.3g} away from the hull of the {self.count} atoms; "
                "expected a convex combination of them, for example one column."
            )
        weights = weights / weights.sum()
        signs = np.where(np.arange(len(weights)) < self.count, 1.0, -1.0)
        return [(float(weights[i]), self.column(int(i % self.count), float(signs[i]))) for i in np.flatnonzero(weights)]

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Dictionary":
        """In the dtype and on the device of a run."""
        if self._rows.dtype == dtype and self._rows.device == device:
            return self
        bound: Dictionary = object.__new__(Dictionary)
        kept = {name: value for name, value in vars(self).items() if name not in ("_span_basis",)}
        vars(bound).update(kept, _rows=self._rows.to(dtype=dtype, device=device))
        return bound

    def symmetrised(self) -> "Dictionary":
        """The columns and their negatives."""
        if self.symmetric:
            return self
        other: Dictionary = object.__new__(Dictionary)
        vars(other).update({name: value for name, value in vars(self).items() if name not in ("diameter", "margin")})
        other.symmetric = True
        return other

    def sample(self, like: Tensor, generator: torch.Generator) -> Dense:
        """A uniform column (the sign does not matter)."""
        return self.column(int(torch.randint(self.count, (), generator=generator)))

    def __str__(self) -> str:
        return f"Dictionary([{self._rows.shape[1]}, {self.count}])"


def _dense_rows(matrix: Any) -> Tensor:
    tensor = as_tensor(matrix, "the dictionary")
    if tensor.ndim != 2:
        raise ValueError(
            f"the dictionary has shape {list(tensor.shape)}: expected a matrix [d, n] with one atom in each column."
        )
    return tensor.t().contiguous()


def _sparse_rows(matrix: Any) -> Tensor:
    if isinstance(matrix, Tensor):
        coo = matrix.detach().to_sparse_coo().coalesce()
        rows = scipy.sparse.csr_matrix(
            (coo.values().cpu().numpy(), coo.indices().cpu().numpy()[::-1]), shape=tuple(matrix.shape)[::-1]
        )
        return csr_tensor(rows).to(matrix.device)
    return csr_tensor(scipy.sparse.csr_matrix(matrix.T))


def csr_tensor(matrix: Any) -> Tensor:
    """A SciPy matrix as a torch CSR tensor of floating type."""
    matrix = scipy.sparse.csr_matrix(matrix)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    matrix.sum_duplicates()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data.copy()),
            size=matrix.shape,
            check_invariants=False,
        )


class Custom(AtomSet):
    """A set given by one function: ``lmo(direction)`` returns the atom of the smallest inner product.

    Args:
        lmo: gets the direction as NumPy if the run is NumPy's, else as a tensor; returns an array of the same shape.
        symmetric: whether -z is in the set with every z.
        shape: of the atoms, if it should be checked.
        radius: max ‖z‖, and ``diameter`` max ‖z - z'‖, if known; the step "diameter" needs the latter.
        diameter: see ``radius``.
        sample: function of a ``torch.Generator`` that returns a random atom, for random pursuit.

    >>> import numpy as np
    >>> box = Custom(lambda d: -np.sign(d), symmetric=True)
    >>> box.lmo(np.array([0.5, -3.0]))
    array([-1.,  1.])
    """

    def __init__(
        self,
        lmo: Callable[[Any], Any],
        *,
        symmetric: bool = False,
        shape: Sequence[int] | None = None,
        radius: float | None = None,
        diameter: float | None = None,
        sample: Callable[[torch.Generator], Any] | None = None,
    ) -> None:
        if not callable(lmo):
            raise ValueError(f"lmo is a {type(lmo).__name__}: expected a function of a direction that returns an atom.")
        self._lmo, self._sample = lmo, sample
        self._numpy = False
        self.symmetric = symmetric
        self.shape = None if shape is None else tuple(shape)
        self.radius = radius
        self.diameter = 2 * radius if diameter is None and radius is not None else diameter

    def _read(self, answer: Any, like: Tensor, name: str) -> Dense:
        tensor = as_tensor(answer, f"the atom that {name} returned")
        if tensor.shape != like.shape:
            raise ValueError(
                f"{name} returned an atom of shape {list(tensor.shape)} for a direction of shape {list(like.shape)}: "
                "expected the same shape."
            )
        return Dense(1.0, None, tensor.to(like).contiguous())

    def atom(self, direction: Tensor, x: Tensor | None = None) -> Dense:
        """Ask the function."""
        return self._read(self._lmo(to_user(direction.clone(), self._numpy)), direction, "the user's lmo")

    def sample(self, like: Tensor, generator: torch.Generator) -> Atom:
        """Ask the user's sampler."""
        if self._sample is None:
            return super().sample(like, generator)
        return self._read(self._sample(generator), like, "the user's sampler")

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Custom":
        """Remember what kind of array the function gets."""
        bound = copy.copy(self)
        bound._numpy = numpy
        return bound


class Product(AtomSet):
    """𝒜_1 × … × 𝒜_m: iterates are the blocks, flattened, one after the other; each set must know its shape.

    >>> import numpy as np
    >>> blocks = Product(L1Ball(2.0, dim=2), Simplex(1.0, dim=3))
    >>> blocks.lmo(np.array([1.0, -4.0, 3.0, 2.0, 5.0]))
    array([0., 2., 0., 1., 0.])
    """

    def __init__(self, *sets: AtomSet) -> None:
        if not sets:
            raise ValueError("a product needs at least one set.")
        self._shapes: list[tuple[int, ...]] = []
        for block in sets:
            if block.shape is None:
                raise ValueError(
                    f"{block} in a product has no shape: give its dimension, for example L1Ball(1.0, dim=5)."
                )
            self._shapes.append(block.shape)
        self.sets = sets
        self._sizes = [math.prod(shape) for shape in self._shapes]
        self.shape = (sum(self._sizes),)
        self.symmetric = all(block.symmetric for block in sets)
        self.radius = _root_of_squares([block.radius for block in sets])

    @property
    def diameter(self) -> float | None:  # type: ignore[override]
        """Of the blocks, together."""
        return _root_of_squares([block.diameter for block in self.sets])

    def _blocks(self, x: Tensor) -> list[Tensor]:
        pieces = torch.split(x, self._sizes)
        return [piece.reshape(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def _join(self, atoms: Sequence[Atom], like: Tensor) -> Atom:
        key = tuple(atom.identity for atom in atoms) if all(atom.key is not None for atom in atoms) else None
        if all(isinstance(atom, OneHot) for atom in atoms):
            starts = np.cumsum([0, *self._sizes[:-1]])
            hot = [atom for atom in atoms if isinstance(atom, OneHot)]
            indices = torch.tensor([int(at) + atom.index for at, atom in zip(starts, hot, strict=True)])
            values = torch.tensor([atom.scale for atom in hot], dtype=like.dtype, device=like.device)
            return Sparse(1.0, key, indices=indices.to(like.device), values=values, shape=tuple(like.shape))
        return Dense(1.0, key, torch.cat([atom.dense().reshape(-1) for atom in atoms]))

    def atom(self, direction: Tensor, x: Tensor | None = None) -> Atom:
        """Block by block."""
        at = [None] * len(self.sets) if x is None else self._blocks(x)
        pairs = zip(self.sets, self._blocks(direction), at, strict=True)
        return self._join([block.atom(piece, here) for block, piece, here in pairs], direction)

    def bound(self, direction: Tensor, x: Tensor | None, atom: Atom) -> float:
        """Bounds of the blocks add up."""
        if all(type(block).bound is AtomSet.bound for block in self.sets):
            return super().bound(direction, x, atom)
        at = [None] * len(self.sets) if x is None else self._blocks(x)
        pieces = self._blocks(atom.dense())
        return sum(
            block.bound(piece, here, Dense(1.0, None, z))
            for block, piece, here, z in zip(self.sets, self._blocks(direction), at, pieces, strict=True)
        )

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Product":
        """Block by block."""
        return Product(*(block.bind(dtype, device, numpy) for block in self.sets))

    def decompose(self, x: Tensor) -> Decomposition:
        """Couple the blocks' decompositions, each a distribution over its atoms, by their quantiles."""
        parts = [block.decompose(piece) for block, piece in zip(self.sets, self._blocks(x), strict=True)]
        ends = [np.cumsum([weight for weight, _ in part]) for part in parts]
        levels = np.unique(np.concatenate([end / end[-1] for end in ends]))
        joined, before = [], 0.0
        for level in levels:
            middle = (before + level) / 2
            chosen = [
                part[int(np.searchsorted(end / end[-1], middle))][1] for part, end in zip(parts, ends, strict=True)
            ]
            joined.append((float(level - before), self._join(chosen, x)))
            before = level
        return _merged(joined)

    def sample(self, like: Tensor, generator: torch.Generator) -> Atom:
        """Block by block."""
        drawn = [block.sample(piece, generator) for block, piece in zip(self.sets, self._blocks(like), strict=True)]
        return self._join(drawn, like)

    def __str__(self) -> str:
        return f"Product({', '.join(map(str, self.sets))})"


def _root_of_squares(sizes: Sequence[float | None]) -> float | None:
    known = [size for size in sizes if size is not None]
    return math.sqrt(sum(size**2 for size in known)) if len(known) == len(sizes) else None


def _merged(parts: Decomposition) -> Decomposition:
    """Equal atoms once, with the sum of their weights."""
    merged: dict[Hashable, tuple[float, Atom]] = {}
    for weight, atom in parts:
        before = merged.get(atom.identity, (0.0, atom))[0]
        merged[atom.identity] = (before + weight, atom)
    return list(merged.values())


class Wrapper(AtomSet):
    """A set that changes how another one is asked."""

    def __init__(self, atoms: Any) -> None:
        self.inner = as_atoms(atoms)
        self.shape, self.symmetric = self.inner.shape, self.inner.symmetric
        self.radius = self.inner.radius

    @property
    def diameter(self) -> float | None:  # type: ignore[override]
        """Of the set inside."""
        return self.inner.diameter

    @property
    def margin(self) -> float:  # type: ignore[override]
        """Of the set inside."""
        return self.inner.margin

    @property
    def base(self) -> AtomSet:
        """Of the set inside."""
        return self.inner.base

    def around(self, atoms: AtomSet) -> "Wrapper":
        """The same wrapper, sharing its counters, around another form of the set."""
        other = copy.copy(self)
        other.inner = atoms
        return other

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> AtomSet:
        """Around the bound set."""
        return self.around(self.inner.bind(dtype, device, numpy))

    def symmetrised(self) -> AtomSet:
        """Around the symmetrised set."""
        if self.symmetric:
            return self
        other = self.around(self.inner.symmetrised())
        other.symmetric = True
        return other

    def decompose(self, x: Tensor) -> Decomposition:
        """By the set inside."""
        return self.inner.decompose(x)

    def sample(self, like: Tensor, generator: torch.Generator) -> Atom:
        """By the set inside."""
        return self.inner.sample(like, generator)

    def span_part(self, direction: Tensor) -> Tensor:
        """By the set inside."""
        return self.inner.span_part(direction)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.inner})"


class Symmetric(Wrapper):
    """𝒜 ∪ -𝒜: two questions to the oracle of 𝒜, the better answer.

    >>> import numpy as np
    >>> Symmetric(Custom(lambda d: np.array([1.0, 2.0]))).lmo(np.array([1.0, 1.0]))
    array([-1., -2.])
    """

    def __init__(self, atoms: Any) -> None:
        super().__init__(atoms)
        self.symmetric = True

    @property
    def diameter(self) -> float | None:  # type: ignore[override]
        """Twice the radius."""
        return None if self.radius is None else 2 * self.radius

    @property
    def margin(self) -> float:  # type: ignore[override]
        """0: the hull contains the origin."""
        return 0.0

    @property
    def base(self) -> AtomSet:
        """Itself: it is another set than the one inside."""
        return self

    def atom(self, direction: Tensor, x: Tensor | None = None) -> Atom:
        """The better of lmo(d) and -lmo(-d)."""
        plus, minus = self.inner.atom(direction), self.inner.atom(-direction)
        if plus.inner(direction) <= -minus.inner(direction):
            return plus
        return dataclasses.replace(minus, scale=-minus.scale)

    def decompose(self, x: Tensor) -> Decomposition:
        """An atom of 𝒜 or the negative of one."""
        try:
            return self.inner.decompose(x)
        except ValueError:
            parts = self.inner.decompose(-x)
            return [(weight, dataclasses.replace(atom, scale=-atom.scale)) for weight, atom in parts]


class Inexact(Wrapper):
    """An oracle of stated accuracy δ, for studying what approximate answers cost (the two approximate LMOs).

    multiplicative:  ⟨d, z̃ - x⟩ ≤ δ · min_z ⟨d, z - x⟩        additive:  ⟨d, z̃⟩ ≤ min_z ⟨d, z⟩ + δ C_f / (k + 2)

    Over a hull x is the iterate, for which the guarantee of Frank-Wolfe needs the relation; over a span or cone it
    is 0, where the minimum is never positive. The answer is that of a direction disturbed as much as the accuracy
    allows; the gap that a solver reports stays an upper bound.

    Args:
        atoms: the set.
        multiplicative: δ in (0, 1].
        additive: δ ≥ 0, with ``curvature`` C_f (at most L · diameter²); k counts the questions. Or the error itself, as
            a function of k.
        curvature: see ``additive``.
        seed: of the disturbance.

    >>> import numpy as np
    >>> d = np.array([1.0, -3.0, 2.9])
    >>> z = Inexact(L1Ball(1.0), multiplicative=0.5).lmo(d)
    >>> bool(d @ z <= 0.5 * -3.0)
    True
    """

    def __init__(
        self,
        atoms: Any,
        *,
        multiplicative: float | None = None,
        additive: float | Callable[[int], float] | None = None,
        curvature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(atoms)
        if (multiplicative is None) == (additive is None):
            raise ValueError("an inexact oracle has one kind of error: give either multiplicative or additive.")
        if multiplicative is not None and not 0 < multiplicative <= 1:
            raise ValueError(f"multiplicative is {multiplicative}: expected an accuracy in (0, 1], 1 being exact.")
        if additive is not None and not callable(additive) and not additive >= 0:
            raise ValueError(f"additive is {additive}: expected 0 (exact) or more.")
        self.multiplicative, self.additive, self.curvature = multiplicative, additive, curvature
        self._counts = {"calls": 0}
        self._generator = torch.Generator().manual_seed(seed)
        self._error = 0.0

    @property
    def calls(self) -> int:
        """Questions asked."""
        return self._counts["calls"]

    def atom(self, direction: Tensor, x: Tensor | None = None) -> Atom:
        """An atom within the accuracy, and usually not the best."""
        exact = self.inner.atom(direction, x)
        at = 0.0 if x is None else float(torch.dot(direction.reshape(-1), x.reshape(-1)))
        best = exact.inner(direction) - at
        if self.multiplicative is not None:
            allowed = self.multiplicative * best
        else:
            k = self.calls
            error = self.additive
            self._error = error(k) if callable(error) else (error or 0.0) * self.curvature / (k + 2)
            allowed = best + self._error
        self._counts["calls"] += 1
        noise = torch.randn(direction.shape, generator=self._generator, dtype=torch.float64).to(direction)
        noise *= torch.linalg.vector_norm(direction) / torch.linalg.vector_norm(noise)
        for halvings in range(8):
            candidate = self.inner.atom(direction + 4.0 * 0.5**halvings * noise, x)
            if candidate.inner(direction) - at <= allowed:
                return candidate
        return exact

    def bound(self, direction: Tensor, x: Tensor | None, atom: Atom) -> float:
        """gap / δ, or gap + error."""
        seen = super().bound(direction, x, atom)
        return seen / self.multiplicative if self.multiplicative is not None else seen + self._error


class Lazy(Wrapper):
    """Asks an expensive oracle only when no atom seen before is good enough.

    An earlier atom is, if it promises at least 1 / ``factor`` of the last exact gap. In between, a solver's gap rests
    on the best lower bound found so far, which is still a certificate. ``calls`` counts questions to the oracle,
    ``hits`` those the cache answered.

    >>> import torch
    >>> lazy = Lazy(L1Ball(1.0))
    >>> _ = lazy.atom(torch.tensor([1.0, 3.0])), lazy.atom(torch.tensor([1.0, 2.9]))
    >>> lazy.calls, lazy.hits
    (1, 1)
    """

    def __init__(self, atoms: Any, *, factor: float = 2.0, capacity: int = 1000) -> None:
        super().__init__(atoms)
        if not factor >= 1:
            raise ValueError(f"factor is {factor}: expected 1 or more.")
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}: expected room for at least one atom.")
        self.factor, self.capacity = factor, capacity
        self._counts = {"calls": 0, "hits": 0}
        self._forget()

    def _forget(self) -> None:
        self._stack = Stack()
        self._seen: set[Hashable] = set()
        self._promise = math.inf
        self._from_cache = False

    @property
    def calls(self) -> int:
        """Questions to the oracle."""
        return self._counts["calls"]

    @property
    def hits(self) -> int:
        """Questions that the cache answered."""
        return self._counts["hits"]

    def around(self, atoms: AtomSet) -> "Lazy":
        """With an empty cache."""
        other = super().around(atoms)
        assert isinstance(other, Lazy)
        other._forget()
        return other

    def atom(self, direction: Tensor, x: Tensor | None = None) -> Atom:
        """A cached atom if it is good enough, else the oracle's."""
        at = 0.0 if x is None else float(torch.dot(direction.reshape(-1), x.reshape(-1)))
        if len(self._stack):
            scores = self._stack.inner(direction)
            position = int(scores.argmin())
            if at - float(scores[position]) >= self._promise > 0:
                self._counts["hits"] += 1
                self._from_cache = True
                return self._stack.atoms[position]
        atom = self.inner.atom(direction, x)
        self._counts["calls"] += 1
        self._from_cache = False
        self._promise = (at - atom.inner(direction)) / self.factor
        if atom.identity not in self._seen:
            if len(self._stack) == self.capacity:
                self._seen.discard(self._stack.atoms[0].identity)
                self._stack.remove(0)
            self._stack.append(atom)
            self._seen.add(atom.identity)
        return atom

    def bound(self, direction: Tensor, x: Tensor | None, atom: Atom) -> float:
        """Known only when the oracle was asked."""
        return math.inf if self._from_cache else self.inner.bound(direction, x, atom)


def as_atoms(atoms: Any) -> AtomSet:
    """An atom set; a matrix is read as the dictionary of its columns, a function as a user-defined oracle."""
    if isinstance(atoms, AtomSet):
        return atoms
    if isinstance(atoms, Tensor | np.ndarray | list | tuple) or is_sparse(atoms):
        return Dictionary(atoms)
    if callable(atoms):
        return Custom(atoms)
    raise ValueError(
        f"atoms is a {type(atoms).__name__}: expected a set from unknot.solvers.atoms, a matrix [d, n] with one "
        "atom in each column, or a function of a direction."
    )
