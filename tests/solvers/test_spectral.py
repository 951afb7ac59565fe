"""Extreme eigenvectors and singular pairs: every method finds what LAPACK finds, from any start."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unknot.solvers.atoms.matrices import METHODS, smallest_eigenvector, top_singular_pair

ITERATIVE = [method for method in METHODS if method != "auto"]


def gapped(rows: int, columns: int, seed: int) -> np.ndarray:
    """A matrix whose top singular value stands out, so that the power method is quick."""
    rng = np.random.default_rng(seed)
    left, _, right = np.linalg.svd(rng.standard_normal((rows, columns)), full_matrices=False)
    values = np.linspace(1.0, 0.1, min(rows, columns))
    values[0] = 2.0
    return (left * values) @ right


def kinds(matrix: np.ndarray) -> list[Any]:
    return [
        matrix,
        torch.from_numpy(matrix),
        scipy.sparse.csr_array(matrix),
        torch.from_numpy(matrix).to_sparse_coo(),
    ]


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(6, 30), columns=st.integers(6, 30), seed=st.integers(0, 1000), method=st.sampled_from(ITERATIVE)
)
def test_top_singular_pair_of_every_kind(rows: int, columns: int, seed: int, method: str) -> None:
    matrix = gapped(rows, columns, seed)
    for kind in kinds(matrix):
        sigma, u, v, _ = top_singular_pair(kind, method=method, tol=1e-10)
        u, v = np.asarray(u), np.asarray(v)
        assert sigma == pytest.approx(2.0, rel=1e-6)
        assert np.linalg.norm(u) == pytest.approx(1.0)
        assert np.linalg.norm(v) == pytest.approx(1.0)
        assert u @ matrix @ v == pytest.approx(2.0, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(size=st.integers(6, 30), seed=st.integers(0, 1000), method=st.sampled_from(ITERATIVE))
def test_smallest_eigenvector_of_every_kind(size: int, seed: int, method: str) -> None:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    values = np.linspace(-0.2, 1.0, size)
    values[0] = -3.0
    matrix = (basis * values) @ basis.T
    for kind in kinds(matrix):
        value, u, _ = smallest_eigenvector(kind, method=method, tol=1e-10, max_steps=2000)
        u = np.asarray(u)
        assert value == pytest.approx(-3.0, rel=1e-5)
        assert u @ matrix @ u == pytest.approx(-3.0, rel=1e-5)


@pytest.mark.parametrize("method", ITERATIVE)
def test_zero_matrix_has_any_unit_vector(method: str) -> None:
    for kind in kinds(np.zeros((7, 9))):
        sigma, u, v, _ = top_singular_pair(kind, method=method)
        assert sigma == pytest.approx(0.0, abs=1e-12)
        assert np.linalg.norm(np.asarray(u)) == pytest.approx(1.0)
        assert np.linalg.norm(np.asarray(v)) == pytest.approx(1.0)
    value, u, _ = smallest_eigenvector(np.zeros((7, 7)), method=method)
    assert value == pytest.approx(0.0, abs=1e-12)
    assert np.linalg.norm(u) == pytest.approx(1.0)


class Counting(scipy.sparse.csr_array):
    products = 0

    def __matmul__(self, other: Any) -> Any:
        Counting.products += 1
        return super().__matmul__(other)


@pytest.mark.parametrize("method", ["power", "lanczos"])
def test_a_good_start_saves_products(method: str) -> None:
    matrix = gapped(200, 150, 0) + 1e-4 * np.random.default_rng(1).standard_normal((200, 150))
    _, _, nearly = np.linalg.svd(gapped(200, 150, 0))
    counts = []
    for start in (None, nearly[0]):
        Counting.products = 0
        sigma, _, _, _ = top_singular_pair(Counting(matrix), start, method=method, tol=1e-4)
        counts.append(Counting.products)
        assert sigma == pytest.approx(2.0, rel=1e-3)
    assert counts[1] <= counts[0]
    if method != "lanczos":  # ARPACK fills its first Krylov space whatever the start
        assert counts[1] < counts[0]


def test_single_precision_stays_single() -> None:
    matrix = torch.from_numpy(gapped(140, 150, 0)).float()
    for method in ("power", "lanczos"):
        _, u, v, _ = top_singular_pair(matrix, method=method, tol=1e-4)
        assert (u.dtype, v.dtype) == (torch.float32, torch.float32)


def test_unknown_method() -> None:
    with pytest.raises(ValueError, match=r"method 'lanczo' is unknown.*did you mean 'lanczos'"):
        smallest_eigenvector(np.eye(3), method="lanczo")
