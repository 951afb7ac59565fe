"""One signal over a dictionary in NumPy: iterates and certificates of the general loops, answers of the peers."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from sklearn.linear_model import orthogonal_mp

from unknot.solvers import Result, Status, dense, matching_pursuit, nonnegative_matching_pursuit
from unknot.solvers.atoms import Dictionary


def signal(d: int, n: int, seed: int, dtype: Any = np.float64, positive: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    atoms = rng.standard_normal((d, n))
    y = rng.standard_normal(d)
    return (np.abs(atoms) if positive else atoms).astype(dtype), y.astype(dtype)


def omp(y: Any, atoms: Any, *, general: bool = False, **options: Any) -> Result:
    return matching_pursuit(y, atoms, variant="orthogonal", step="line-search" if general else "auto", **options)


def nnls(y: Any, atoms: Any, *, general: bool = False, **options: Any) -> Result:
    return nonnegative_matching_pursuit(y, atoms, step="line-search" if general else "auto", **options)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the two loops were entered."""
    calls: list[str] = []
    for name in ("orthogonal_pursuit", "nonnegative_pursuit"):
        original = getattr(dense, name)
        monkeypatch.setattr(dense, name, lambda *a, f=original, n=name: calls.append(n) or f(*a))  # type: ignore
    return calls


@pytest.mark.parametrize(("d", "n"), [(20, 60), (40, 15), (30, 30)])
def test_omp_goes_as_the_general_loop_does(d: int, n: int, taken: list[str]) -> None:
    atoms, y = signal(d, n, seed=d)
    fast, slow = omp(y, atoms, max_iterations=10), omp(y, atoms, general=True, max_iterations=10)
    assert taken == ["orthogonal_pursuit"]
    np.testing.assert_allclose(fast.trace.value, slow.trace.value, rtol=1e-10)
    np.testing.assert_allclose(fast.trace.gap, slow.trace.gap, rtol=1e-8)
    np.testing.assert_allclose(fast.coefficients, slow.coefficients, atol=1e-10)
    assert (fast.status, fast.iterations, len(fast.active)) == (slow.status, slow.iterations, len(slow.active))


def test_omp_chooses_what_scikit_learn_does() -> None:
    atoms, y = signal(50, 120, seed=1)
    atoms /= np.linalg.norm(atoms, axis=0)
    theirs = orthogonal_mp(atoms, y, n_nonzero_coefs=12)
    np.testing.assert_allclose(omp(y, atoms, max_iterations=12, tol=0).coefficients, theirs, atol=1e-12)


def test_omp_to_the_end_of_a_span_it_does_not_fill() -> None:
    atoms, y = signal(40, 12, seed=2)
    atoms = np.hstack([atoms, atoms[:, :3]])  # with repeated atoms
    result = omp(y, atoms, tol=1e-12)
    error = result.trace.value - ((atoms @ np.linalg.lstsq(atoms, y, rcond=None)[0] - y) ** 2).sum() / 2
    assert result.converged
    assert (result.trace.gap >= error - 1e-12).all()
    assert result.trace.gap[-1] < 1e-12


@pytest.mark.parametrize(("d", "n"), [(60, 25), (25, 60), (40, 40)])
@pytest.mark.parametrize("positive", [True, False])
def test_the_cone_has_scipys_answer_and_the_general_loops_iterates(
    d: int, n: int, positive: bool, taken: list[str]
) -> None:
    atoms, y = signal(d, n, seed=n, positive=positive)
    fast, slow = nnls(y, atoms, tol=1e-10), nnls(y, atoms, general=True, tol=1e-10)
    assert taken == ["nonnegative_pursuit"]
    weights, residual = scipy.optimize.nnls(atoms, y)
    assert fast.value == pytest.approx(residual**2 / 2, abs=1e-9)
    if d > n:
        np.testing.assert_allclose(fast.coefficients, weights, atol=1e-6)
    k = min(len(fast.trace.value), len(slow.trace.value))
    np.testing.assert_allclose(fast.trace.value[:k], slow.trace.value[:k], rtol=1e-8, atol=1e-10)
    known = np.isfinite(fast.trace.gap)
    assert (fast.trace.gap[known] >= fast.trace.value[known] - residual**2 / 2 - 1e-10).all()
    assert (np.asarray(fast.weights) > 0).all()


def test_atoms_that_leave_and_atoms_that_depend_on_one_another() -> None:
    left = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        atoms = np.abs(rng.standard_normal((8, 6)))
        atoms = np.hstack([atoms, atoms[:, :2], atoms[:, :1] + atoms[:, 1:2]])  # repeated, and a sum of two
        y = rng.standard_normal(8) + 1
        result = nnls(y, atoms, tol=1e-11)
        assert result.value == pytest.approx(scipy.optimize.nnls(atoms, y)[1] ** 2 / 2, abs=1e-9), seed
        assert (np.diff(result.trace.value) <= 1e-12).all()
        left += result.iterations > len(result.active)
    assert left > 3  # in some, an atom that had entered is not in the end


def test_single_precision_and_torch() -> None:
    atoms, y = signal(30, 80, seed=3, dtype=np.float32, positive=True)
    fast = nnls(y, atoms, tol=1e-3)
    assert fast.x.dtype == np.float32
    assert fast.converged
    optimum = scipy.optimize.nnls(atoms.astype(float), y.astype(float))[1] ** 2 / 2
    assert (fast.trace.gap >= fast.trace.value - optimum - 1e-6).all()
    result = omp(torch.from_numpy(y), Dictionary(torch.from_numpy(atoms)), max_iterations=5)
    assert isinstance(result.x, torch.Tensor)
    assert result.x.dtype == torch.float32
    np.testing.assert_allclose(result.x.numpy(), atoms @ result.coefficients.numpy(), atol=1e-5)


def test_callbacks_and_limits() -> None:
    atoms, y = signal(30, 60, seed=4, positive=True)
    for solve in (omp, nnls):
        seen: list[np.ndarray] = []
        stopped = solve(y, atoms, tol=0, callback=lambda state, seen=seen: seen.append(state.x) or len(seen) > 3)
        assert stopped.status == Status.STOPPED
        assert len(seen) == 4
        np.testing.assert_allclose(seen[-1], stopped.x, atol=1e-10)
        assert solve(y, atoms, tol=0, time_limit=0.0).status == Status.TIME_LIMIT
        assert solve(y, atoms, max_iterations=0).iterations == 0
        zero = solve(np.zeros(30), atoms)
        assert zero.converged
        assert not np.any(zero.x)
