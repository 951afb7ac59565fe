"""The columns of a matrix as atoms."""

import copy
import math
import warnings
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
import torch
from torch import Tensor

from unknot.solvers.atoms.base import Answer, AtomSet, below, slack
from unknot.solvers.structured import Decomposition, Dense, Sparse, as_tensor, csr_tensor, is_sparse, returns_numpy


class Dictionary(AtomSet):
    r"""The columns of a matrix ``[d, n]``, dense or sparse (SciPy or torch).

    .. math:: \mathcal{A} = \{a_1, \dots, a_n\}

    .. math:: \mathrm{lmo}(y) = a_i

    .. math:: i = \mathrm{argmin}_j\, \langle y, a_j\rangle

    Thesis: Eq. "eqn:lmo", chapter "Introduction and Background".

    A zero column is the origin: an atom like any other of a hull, and without effect in a span or a cone.

    Args:
        matrix: one atom of R^d for each of its n columns.
        symmetric: also their negatives.
        allow_zero: deprecated, without effect.

    >>> import numpy as np
    >>> Dictionary(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])).lmo(np.array([1.0, -3.0]))
    array([2., 2.])
    """

    def __init__(self, matrix: Any, *, symmetric: bool = False, allow_zero: bool | None = None) -> None:
        if allow_zero is not None:
            warnings.warn("allow_zero is deprecated: zero columns are allowed.", DeprecationWarning, stacklevel=2)
        self.symmetric = symmetric
        self.numpy = returns_numpy(matrix)
        self.sparse = is_sparse(matrix)
        self._rows = _sparse_rows(matrix) if self.sparse else _dense_rows(matrix)
        if not self._rows.numel():
            raise ValueError(
                f"the dictionary is empty (shape {list(self._rows.shape)[::-1]}): expected at least one column."
            )
        self.shape = (self._rows.shape[1],)
        self.columns = self._rows.shape[0]
        norms = self._norms()
        if not bool(torch.isfinite(norms).all()):
            raise ValueError(
                "the dictionary has non-finite entries: expected finite numbers, remove NaN and inf first."
            )
        if not bool(norms.any()):
            raise ValueError(
                f"all {self.columns} columns of the dictionary are zero: expected at least one other atom."
            )
        self.radius: float = float(norms.max())

    def _norms(self) -> Tensor:
        if not self.sparse:
            return torch.linalg.vector_norm(self._rows, dim=1)
        squares = torch.zeros(self._rows.shape[0], dtype=self._rows.dtype, device=self._rows.device)
        counts = self._rows.crow_indices().diff()
        owner = torch.repeat_interleave(torch.arange(len(counts), device=squares.device), counts)
        return squares.index_add_(0, owner, self._rows.values().square()).sqrt()

    def _mean(self, kept: Tensor) -> Tensor:
        """Mean of the columns that are not 0."""
        if not self.sparse:
            return self._rows[kept].mean(0)
        total = torch.zeros(self._rows.shape[1], dtype=self.dtype, device=self.device)
        return total.index_add_(0, self._rows.col_indices(), self._rows.values()) / int(kept.sum())

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

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        scores = self.scores(direction)
        index = int(scores.abs().argmax() if self.symmetric else scores.argmin())
        score = float(scores[index])
        if self.symmetric and score > 0:
            return Answer(self.column(index, -1.0), below(-score, direction, self.radius, len(direction)))
        return Answer(self.column(index), below(score, direction, self.radius, len(direction)))

    def kind(self) -> "Dictionary":
        return self

    def count(self, zero: Tensor) -> int:
        return self.columns

    def numbered(self, index: int, like: Tensor) -> Dense:
        return self.column(index)

    def batch_rows(self) -> Tensor:
        return self.dense_rows()

    def all_atoms(self) -> np.ndarray:
        """The columns as rows, and their negatives where the set is symmetric."""
        rows: np.ndarray = self.dense_rows().cpu().double().numpy()
        return np.vstack([rows, -rows]) if self.symmetric else rows

    def largest_curvature(self, objective: Any) -> float | None:
        curvatures = objective.curvatures(self.dense_rows())
        return super().largest_curvature(objective) if curvatures is None else float(curvatures.max())

    def acceleration(self, greedy: bool, dim: int) -> float:
        """ν or ν' of :func:`unknot.solvers.geometry.acceleration_constant`, by eigenvalues of the sampling law."""
        rows = self.dense_rows().cpu().double().numpy()
        squares = np.square(rows).sum(1)
        rows, squares = rows[squares > 0], squares[squares > 0]
        values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
        kept = values > 1e-12 * values[-1]
        white = rows @ (vectors[:, kept] / np.sqrt(values[kept]))
        spread = (white * np.square(white).sum(1, keepdims=True)).T @ white / len(rows)
        if greedy:
            return float(np.linalg.eigvalsh(spread)[-1] * squares.max())
        law = (white / squares[:, None]).T @ white / len(rows)
        return float(scipy.linalg.eigh(spread, law, eigvals_only=True)[-1])

    @cached_property
    def diameter(self) -> float:  # type: ignore[override]
        """Largest distance of two atoms; above 4096 columns the bound 2 · radius."""
        if self.symmetric or self.columns > 4096:
            return 2 * self.radius
        rows = self.dense_rows()
        return float(torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").max())

    @cached_property
    def margin(self) -> float:  # type: ignore[override]
        """Margin of the columns other than 0. For any unit e, min_z ⟨e, z⟩ bounds the distance from below.

        e is the mean atom, then the nearest point of the hull, sought by a few Frank-Wolfe steps on ½‖x‖².
        """
        if self.symmetric:
            return 0.0
        kept = self._norms() > 0
        x, best = self._mean(kept), 0.0
        for _ in range(200):
            norm = float(torch.linalg.vector_norm(x))
            if norm <= 1e-12 * self.radius:
                break
            scores = torch.where(kept, self.scores(x), math.inf) / norm
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
        if self.columns >= self._rows.shape[1] or self.columns > 2048:
            return None
        basis, triangle = torch.linalg.qr(self.dense_rows().t())
        pivots = triangle.diagonal().abs()
        if bool(pivots.min() > pivots.max() * slack(pivots)):  # a basis of more than the span would only be cautious
            return basis
        left, values, _ = torch.linalg.svd(self.dense_rows().t(), full_matrices=False)
        return left[:, values > values[0] * slack(values)]

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

    def _contains(self, x: Tensor, tol: float) -> bool:
        # by the distance from the hull: a point on its boundary may, rounded, lie just outside of the cone
        return self.conic(x, total=1.0)[1] <= tol * self.radius

    def decompose(self, x: Tensor) -> Decomposition:
        weights, residual = self.conic(x, total=1.0)
        if residual > 1e-7 * self.radius and residual > 10 * slack(x) * self.radius:
            raise ValueError(
                f"x0 is outside the set: it is {residual:.3g} away from the hull of the {self.columns} atoms; "
                "expected a convex combination of them, for example one column."
            )
        weights[weights < 1e-12 * weights.max()] = 0.0  # what rounding left of an atom that is not there
        return self._weighted(weights / weights.sum())

    def _weighted(self, weights: np.ndarray) -> Decomposition:
        """The columns, and after them their negatives, that have a weight."""
        signs = np.where(np.arange(len(weights)) < self.columns, 1.0, -1.0)
        return [
            (float(weights[i]), self.column(int(i % self.columns), float(signs[i]))) for i in np.flatnonzero(weights)
        ]

    def conic_weights(self, x: Tensor) -> Decomposition:
        weights, residual = self.conic(x, total=None)
        if residual > 1e-7 * float(torch.linalg.vector_norm(x)):
            raise ValueError(f"x0 is outside the cone of the atoms, {residual:.3g} away: expected 0 or a point inside.")
        return self._weighted(weights)

    def span_weights(self, x: Tensor) -> Decomposition:
        rows = self.dense_rows()
        weights = torch.linalg.lstsq(rows.t().cpu().double(), x.cpu().double()[:, None], driver="gelsd").solution[:, 0]
        residual = float(torch.linalg.vector_norm(rows.t() @ weights.to(rows) - x))
        if residual > 1e-6 * float(torch.linalg.vector_norm(x)):
            raise ValueError(
                f"x0 is outside the span of the atoms, {residual:.3g} away: expected a combination of them."
            )
        return [(float(weight), self.column(i)) for i, weight in enumerate(weights.tolist()) if weight]

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Dictionary":
        if self._rows.dtype == dtype and self._rows.device == device:
            return self
        bound = copy.copy(self)
        vars(bound).pop("_span_basis", None)
        bound._rows = self._rows.to(dtype=dtype, device=device)
        return bound

    def symmetrised(self) -> "Dictionary":
        if self.symmetric:
            return self
        other = copy.copy(self)
        for name in ("diameter", "margin"):
            vars(other).pop(name, None)
        other.symmetric = True
        return other

    def sample(self, like: Tensor, generator: torch.Generator) -> Dense:
        return self.column(int(torch.randint(self.columns, (), generator=generator)))

    def __str__(self) -> str:
        return f"Dictionary([{self._rows.shape[1]}, {self.columns}])"


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
