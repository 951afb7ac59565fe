"""Problems with known optima that several tests share, as fixtures that are functions."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "solvers" / "experiments"))

Lasso = tuple[np.ndarray, np.ndarray, float]
Quadratic = tuple[np.ndarray, np.ndarray, float]


@pytest.fixture
def lasso() -> Callable[..., Lasso]:
    def make(rows: int = 60, columns: int = 40, seed: int = 0) -> Lasso:
        """A matrix, a target and a radius at which the L1 constraint binds."""
        rng = np.random.default_rng(seed)
        matrix = rng.standard_normal((rows, columns)) / np.sqrt(rows)
        weights = rng.standard_normal(columns)
        return matrix, matrix @ weights + 0.5 * rng.standard_normal(rows), 0.6 * float(np.abs(weights).sum())

    return make


@pytest.fixture
def cone() -> Callable[..., tuple[np.ndarray, np.ndarray, float]]:
    def make(seed: int, positive: bool, dim: int = 50, count: int = 100) -> tuple[np.ndarray, np.ndarray, float]:
        """Unit atoms in the first orthant and a target, drawn in this order, and ½ dist(target, cone)² by SciPy."""
        rng = np.random.default_rng(seed)
        atoms = np.abs(rng.standard_normal((dim, count)))
        atoms /= np.linalg.norm(atoms, axis=0)
        target = rng.standard_normal(dim)
        target = np.abs(target) if positive else target
        return atoms, target, float(scipy.optimize.nnls(atoms, target)[1]) ** 2 / 2

    return make


@pytest.fixture
def conditioned() -> Callable[..., Quadratic]:
    def make(dim: int, low: float, seed: int = 0) -> Quadratic:
        """Q with eigenvalues from ``low`` to 1, b, and the minimum of ½xᵀQx - bᵀx."""
        rng = np.random.default_rng(seed)
        basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        matrix = (basis * np.logspace(np.log10(low), 0, dim)) @ basis.T
        matrix = (matrix + matrix.T) / 2
        solution = rng.standard_normal(dim)
        return matrix, matrix @ solution, -float(solution @ matrix @ solution) / 2

    return make


@pytest.fixture
def slope() -> Callable[[np.ndarray, int, int], float]:
    def fit(errors: np.ndarray, first: int, last: int) -> float:
        """Exponent p of errors ~ k^p, fitted over a range of k."""
        k = np.arange(first, last)
        return float(np.polyfit(np.log(k), np.log(errors[first:last]), 1)[0])

    return fit
