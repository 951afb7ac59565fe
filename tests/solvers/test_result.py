"""Common parts of runs: status, trace, callbacks, limits, kinds of arrays."""

import time
from typing import Any

import numpy as np
import pytest
import torch

from unknot.solvers import (
    LeastSquares,
    Quadratic,
    Result,
    Status,
    coordinate_descent,
    frank_wolfe,
    matching_pursuit,
    nonnegative_matching_pursuit,
)
from unknot.solvers.atoms import L1Ball

RNG = np.random.default_rng(0)
ATOMS = np.abs(RNG.standard_normal((6, 9)))
TARGET = RNG.standard_normal(6)


def solve(name: str, atoms: Any = ATOMS, target: Any = TARGET, **options: Any) -> Result:
    if name == "coordinate_descent":
        return coordinate_descent(LeastSquares(atoms, target), **options)
    solver = {
        "frank_wolfe": frank_wolfe,
        "matching_pursuit": matching_pursuit,
        "accelerated": lambda *a, **o: matching_pursuit(*a, variant="accelerated", **o),
        "batched": lambda y, a, **o: matching_pursuit(y[None] + 0 * y[:1, None], a, **o),
        "cone": lambda y, a, **o: nonnegative_matching_pursuit(abs(y), a, variant="away", **o),
    }[name]
    return solver(target, atoms, **options)  # type: ignore[operator]


SOLVERS = ["frank_wolfe", "matching_pursuit", "accelerated", "batched", "cone", "coordinate_descent"]


@pytest.mark.parametrize("name", SOLVERS)
def test_trace_has_an_entry_for_every_iterate(name: str) -> None:
    result = solve(name, max_iterations=7, tol=0)
    assert (result.status, result.iterations, result.converged) == (Status.MAX_ITERATIONS, 7, False)
    assert len(result.trace) == 8
    assert result.trace.value[-1] == pytest.approx(result.value)
    assert (np.diff(result.trace.time) >= 0).all()
    assert set(dict(result.trace)) == {"value", "gap", "time"}  # type: ignore[call-overload]
    assert result.trace["gap"] is result.trace.gap
    assert "max iterations after 7 iterations" in str(result)
    assert solve(name, max_iterations=0).iterations == 0


@pytest.mark.parametrize("name", SOLVERS)
def test_callback_sees_every_iterate_and_may_stop(name: str) -> None:
    seen: list[Any] = []

    def stop_at_three(state: Any) -> bool:
        seen.append(state)
        return state.iteration == 3

    result = solve(name, callback=stop_at_three, tol=0)
    assert result.status == "stopped by callback"
    assert [state.iteration for state in seen] == [0, 1, 2, 3]
    assert np.abs(seen[0].x - seen[3].x).max() > 0  # copies, not one live array
    np.testing.assert_allclose(seen[3].x, result.x)

    def raising(state: Any) -> None:
        raise StopIteration

    assert solve(name, callback=raising, tol=0).iterations == 0


@pytest.mark.parametrize("name", SOLVERS)
def test_time_limit(name: str) -> None:
    result = solve(name, time_limit=0.3, tol=0, max_iterations=10**7, callback=lambda state: time.sleep(0.005))
    assert result.status == "time limit"
    assert 0 < result.iterations < 100


def test_progress_bar_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    solve("frank_wolfe", max_iterations=5, tol=0)
    assert capsys.readouterr().err == ""
    solve("frank_wolfe", max_iterations=5, tol=0, progress=True)
    assert "frank_wolfe" in capsys.readouterr().err


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_kind_and_dtype_out(name: str, dtype: Any) -> None:
    atoms, target = ATOMS.astype(dtype), TARGET.astype(dtype)
    result = solve(name, atoms, target, max_iterations=30)
    assert isinstance(result.x, np.ndarray)
    assert result.x.dtype == dtype
    tensors = solve(name, torch.from_numpy(atoms), torch.from_numpy(target), max_iterations=30)
    assert isinstance(tensors.x, torch.Tensor)
    assert tensors.x.dtype == torch.from_numpy(atoms).dtype
    np.testing.assert_allclose(tensors.x.numpy(), result.x, atol=1e-4 if dtype is np.float32 else 1e-10)
    for array in (tensors.weights, tensors.coefficients):
        assert array is None or isinstance(array, torch.Tensor)
    if len(result.active):
        np.testing.assert_allclose(np.tensordot(result.weights, result.atoms, 1), result.x, atol=1e-4)


def test_a_tensor_anywhere_makes_the_result_a_tensor() -> None:
    assert isinstance(frank_wolfe(TARGET, ATOMS).x, np.ndarray)
    assert isinstance(frank_wolfe(torch.from_numpy(TARGET), ATOMS).x, torch.Tensor)
    assert isinstance(frank_wolfe(lambda x: x.square().sum(), L1Ball(1.0, dim=3)).x, torch.Tensor)
    assert isinstance(frank_wolfe(lambda x: x.square().sum(), L1Ball(1.0), np.zeros(3)).x, np.ndarray)


def test_inputs_are_left_alone() -> None:
    atoms, target, x0 = ATOMS.copy(), TARGET.copy(), ATOMS[:, 2].copy()
    frank_wolfe(target, atoms, x0, variant="away", max_iterations=20)
    matching_pursuit(target, atoms, x0, max_iterations=20)
    matching_pursuit(target[None], atoms, variant="orthogonal", max_iterations=3)
    nonnegative_matching_pursuit(target, atoms, x0, max_iterations=20)
    q = Quadratic(atoms @ atoms.T, target)
    coordinate_descent(q, x0, max_iterations=20)
    np.testing.assert_array_equal(atoms, ATOMS)
    np.testing.assert_array_equal(target, TARGET)
    np.testing.assert_array_equal(x0, ATOMS[:, 2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", SOLVERS)
def test_cuda(name: str) -> None:
    result = solve(name, torch.from_numpy(ATOMS).cuda(), torch.from_numpy(TARGET).cuda(), max_iterations=30)
    assert result.x.device.type == "cuda"


@pytest.mark.parametrize("name", SOLVERS)
def test_iterations_may_be_unlimited(name: str) -> None:
    result = solve(name, max_iterations=float("inf"), tol=1e-3, time_limit=5.0)
    assert result.converged
