"""Matrices, dense or sparse, and linear operators, by their products."""

import math
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, csr_tensor, is_sparse, norm
from unknot.solvers.structured import Atom, OneHot, Sparse


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
        """Some rows, dense."""
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
        """The same map in another precision or place."""
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
        operator = scipy.sparse.linalg.LinearOperator(
            (self.columns, self.columns),
            matvec=lambda x: self.adjoint(self.apply(torch.from_numpy(x).to(self.device, self.dtype))).cpu().numpy(),
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
