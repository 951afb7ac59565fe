"""Frank-Wolfe: rates and bounds of the theorems, certificates, feasible weights after many iterations."""

from typing import Any

import numpy as np
import pytest
import torch

from unknot.solvers import LeastSquares, Logistic, Quadratic, SquaredDistance, frank_wolfe
from unknot.solvers.atoms import Answer, Dictionary, L1Ball, L2Ball, NuclearBall, Product, PSDTrace, Simplex
from unknot.solvers.frank_wolfe import CLASSICAL

STEPS = ["open-loop", "line-search", "diameter", "short", "backtracking"]


def reproduces(result: Any) -> float:
    return float(np.abs(np.tensordot(result.weights, result.atoms, 1) - result.x).max())


@pytest.mark.parametrize("step", STEPS)
def test_plain_variant_is_as_fast_as_one_over_k_and_no_faster(step: str, slope: Any) -> None:
    # ½‖x‖² over the simplex: k steps reach k + 1 vertices at best, so the error is at least 1/(2(k + 1)) - 1/(2n).
    n = 4000
    result = frank_wolfe(np.zeros(n), Simplex(), step=step, max_iterations=300, tol=0)
    errors = result.trace.value - 0.5 / n
    k = np.arange(len(errors))
    assert (errors[1:] <= 2 * 1.0 * 2.0 / (k[:-1] + 2)).all()  # 2 C_f / (k + 2) with C_f <= L diam²
    assert (errors >= 0.5 / (k + 1) - 0.5 / n - 1e-12).all()
    assert -1.3 < slope(errors, 20, 300) < -0.8


@pytest.mark.parametrize("variant", ["away", "pairwise"])
def test_away_and_pairwise_are_linear_where_plain_is_not(variant: str, lasso: Any) -> None:
    matrix, target, radius = lasso()
    f, ball = LeastSquares(matrix, target), L1Ball(radius)
    best = frank_wolfe(f, ball, variant="fully-corrective", tol=1e-13).value
    plain = frank_wolfe(f, ball, max_iterations=2000, tol=0)
    result = frank_wolfe(f, ball, variant=variant, max_iterations=2000, tol=1e-11)
    assert result.converged
    assert plain.value - best > 1e-4
    errors = result.trace.value - best
    errors = errors[errors > 1e-10]
    line = np.polyfit(np.arange(len(errors)), np.log(errors), 1)
    assert line[0] < -0.005
    assert np.corrcoef(np.arange(len(errors)), np.log(errors))[0, 1] < -0.98


@pytest.mark.parametrize("variant", CLASSICAL)
def test_gap_bounds_the_error_at_every_iteration(variant: str, lasso: Any) -> None:
    matrix, target, radius = lasso()
    problems = [
        (LeastSquares(matrix, target), L1Ball(radius)),
        (Logistic(matrix, target > 0), L1Ball(radius)),
        (Quadratic(matrix.T @ matrix, matrix.T @ target), Simplex(2.0)),
    ]
    for f, atoms in problems:
        best = frank_wolfe(f, atoms, variant="pairwise", tol=1e-12, max_iterations=5000)
        assert best.converged
        result = frank_wolfe(f, atoms, variant=variant, max_iterations=60, tol=1e-10)
        assert (result.trace.gap >= result.trace.value - best.value - 1e-11).all()
        assert result.gap == result.trace.gap[-1]


@pytest.mark.parametrize("variant", CLASSICAL)
@pytest.mark.parametrize("step", ["line-search", "short", "backtracking"])
def test_variants_and_steps_agree_on_the_optimum(variant: str, step: str, lasso: Any) -> None:
    matrix, target, radius = lasso(30, 10)
    f = LeastSquares(matrix, target)
    best = frank_wolfe(f, L1Ball(radius), variant="fully-corrective", tol=1e-13).value
    result = frank_wolfe(f, L1Ball(radius), variant=variant, step=step, max_iterations=2000, tol=1e-10)
    assert result.value - best <= (2e-2 if variant == "plain" else 1e-10)
    assert result.value >= best - 1e-12


class Recording(L1Ball):
    """Remembers which vertices it gave out."""

    def ask(self, direction: torch.Tensor, x: torch.Tensor | None = None, *, exact: bool = False) -> Answer:
        answer = super().ask(direction, x, exact=exact)
        self.given = getattr(self, "given", set()) | {answer.atom.identity}
        return answer


@pytest.mark.parametrize("variant", ["away", "pairwise", "fully-corrective"])
def test_weights_reproduce_x_after_ten_thousand_iterations(variant: str, lasso: Any) -> None:
    matrix, target, radius = lasso(30, 20, seed=9)
    ball = Recording(radius)
    result = frank_wolfe(LeastSquares(matrix, target), ball, variant=variant, max_iterations=10_250, tol=0)
    assert result.iterations == 10_250 or result.status == "stalled"  # rounding may end it earlier
    assert len(ball.given) > len(result.active)  # some atoms were dropped on the way
    assert (result.weights > 0).all()
    assert result.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert reproduces(result) < 1e-10
    assert np.abs(result.x).sum() <= radius * (1 + 1e-12)
    assert result.gap < 1e-12  # and it never froze


def test_pairwise_goes_on_after_drop_steps(lasso: Any) -> None:
    matrix, target, radius = lasso(30, 20, seed=9)
    sizes = []
    f = LeastSquares(matrix, target)
    for iterations in range(1, 40):
        result = frank_wolfe(f, L1Ball(radius), variant="pairwise", max_iterations=iterations, tol=0)
        sizes.append(len(result.active))
        assert (result.weights > 0).all()
        assert result.weights.sum() == pytest.approx(1.0, abs=1e-12)
    changes = np.sign(np.diff(sizes))
    assert (changes < 0).any()
    assert (changes[np.flatnonzero(changes < 0)[0] :] > 0).any()
    assert frank_wolfe(f, L1Ball(radius), variant="pairwise", max_iterations=2000, tol=1e-12).converged


@pytest.mark.parametrize("variant", CLASSICAL)
def test_iterates_stay_feasible(variant: str, lasso: Any) -> None:
    matrix, target, _ = lasso()
    worst = []
    frank_wolfe(
        LeastSquares(matrix, target),
        Simplex(2.0),
        variant=variant,
        max_iterations=100,
        callback=lambda state: worst.append((state.x.min(), abs(state.x.sum() - 2.0))),
    )
    assert min(low for low, _ in worst) >= -1e-13
    assert max(off for _, off in worst) < 1e-11


def test_first_open_loop_step_forgets_the_start() -> None:
    y = np.array([0.3, -0.2, 0.9])
    ends = [
        frank_wolfe(y, L1Ball(1.0), x0, step=0, max_iterations=1).x for x0 in (np.zeros(3), np.array([0.5, 0.1, 0.2]))
    ]
    np.testing.assert_array_equal(*ends)


def test_step_variants_by_number_constant_and_function() -> None:
    y = np.array([0.3, -0.2, 0.9, 0.4])
    named = frank_wolfe(y, Simplex(), step="open-loop", max_iterations=20, tol=0).x
    np.testing.assert_array_equal(frank_wolfe(y, Simplex(), step=0, max_iterations=20, tol=0).x, named)
    by_function = frank_wolfe(y, Simplex(), step=lambda k: 2 / (k + 2), max_iterations=20, tol=0).x
    np.testing.assert_array_equal(by_function, named)
    # For ½‖x - y‖² with L = 1, Variants 1 and 3 coincide.
    exact = frank_wolfe(y, Simplex(), step=1, max_iterations=20, tol=0).x
    np.testing.assert_allclose(frank_wolfe(y, Simplex(), step=3, max_iterations=20, tol=0).x, exact, atol=1e-12)
    assert frank_wolfe(y, Simplex(), step=0.01, max_iterations=20, tol=0).value > f_star(y)


def f_star(y: np.ndarray) -> float:
    return float(frank_wolfe(y, Simplex(), variant="fully-corrective", tol=1e-13).value)


def test_fully_corrective_solves_each_face_exactly() -> None:
    rng = np.random.default_rng(0)
    atoms, y = rng.standard_normal((6, 30)), 0.2 * rng.standard_normal(6)
    result = frank_wolfe(y, atoms, variant="fully-corrective", tol=1e-12)
    assert result.converged
    assert result.iterations <= 40
    gradient = result.x - y
    active = gradient @ atoms[:, result.coefficients > 0]
    assert np.ptp(active) < 1e-10  # optimality over the active face


def test_matrix_problems_and_structured_atoms() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 9))
    mask = rng.random(truth.shape) < 0.6
    radius = float(np.linalg.svd(truth, compute_uv=False).sum())
    result = frank_wolfe(SquaredDistance(truth, mask=mask), NuclearBall(radius), variant="fully-corrective", tol=1e-3)
    assert result.converged
    assert result.value <= 1e-3  # the optimum is 0
    assert np.linalg.svd(result.x, compute_uv=False).sum() <= radius * (1 + 1e-9)
    assert reproduces(result) < 1e-10

    symmetric = rng.standard_normal((8, 8))
    symmetric = symmetric + symmetric.T
    for equality in (True, False):
        result = frank_wolfe(
            symmetric, PSDTrace(3.0, equality=equality), variant="pairwise", tol=1e-6, max_iterations=3000
        )
        values, vectors = np.linalg.eigh(symmetric)
        shifted = np.maximum(values, 0)
        if equality or shifted.sum() > 3.0:
            ordered = np.sort(values)[::-1]
            thresholds = (np.cumsum(ordered) - 3.0) / np.arange(1, 9)
            shifted = np.maximum(values - thresholds[np.flatnonzero(ordered > thresholds)[-1]], 0)
        projection = (vectors * shifted) @ vectors.T
        assert result.value <= np.square(projection - symmetric).sum() / 2 + 1e-5


def test_products_solve_each_block() -> None:
    y = np.array([3.0, -1.0, 0.2, 0.9, 0.4])
    blocks = Product(L1Ball(1.0, dim=2), Simplex(1.0, dim=3))
    result = frank_wolfe(y, blocks, variant="fully-corrective", tol=1e-12)
    left = frank_wolfe(y[:2], L1Ball(1.0), variant="fully-corrective", tol=1e-12)
    right = frank_wolfe(y[2:], Simplex(1.0), variant="fully-corrective", tol=1e-12)
    np.testing.assert_allclose(result.x, np.concatenate([left.x, right.x]), atol=1e-6)


@pytest.mark.parametrize("variant", CLASSICAL)
def test_torch_functions_need_no_constant(variant: str) -> None:
    target = torch.tensor([0.8, 0.6, -1.0], dtype=torch.float64)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x - target).pow(4).sum() + (x - target).square().sum()

    result = frank_wolfe(f, Simplex(dim=3), variant=variant, tol=1e-6, max_iterations=300)
    assert isinstance(result.x, torch.Tensor)
    gradient = 4 * (result.x - target).pow(3) + 2 * (result.x - target)
    assert float(gradient @ result.x - gradient.min()) < 1e-2


def test_plain_variant_over_the_l2_ball_finds_the_boundary() -> None:
    y = np.array([3.0, 4.0])
    result = frank_wolfe(y, L2Ball(1.0), tol=1e-10)
    np.testing.assert_allclose(result.x, [0.6, 0.8], atol=1e-4)


def test_without_tracking_memory_stays_flat() -> None:
    y = np.random.default_rng(0).standard_normal((6, 5))
    kept = frank_wolfe(y, NuclearBall(1.0), max_iterations=50, tol=0)
    light = frank_wolfe(y, NuclearBall(1.0), max_iterations=50, tol=0, track=False)
    np.testing.assert_array_equal(kept.x, light.x)
    assert len(kept.active) > 10
    assert not light.active


def test_too_small_smoothness_is_caught_and_doubled(lasso: Any) -> None:
    matrix, target, radius = lasso()
    f = LeastSquares(matrix, target)
    with pytest.warns(UserWarning, match="smoothness 0.001 is too small"):
        result = frank_wolfe(f, L1Ball(radius), step="short", smoothness=1e-3, max_iterations=50)
    assert (np.diff(result.trace.value) <= 1e-12).all()
    assert 1e-3 < result.smoothness <= 2 * f.smoothness  # type: ignore[operator]


def test_start_decides_nothing_about_the_end(lasso: Any) -> None:
    matrix, target, radius = lasso(30, 10)
    f = LeastSquares(matrix, target)
    starts = [None, np.zeros(10), np.full(10, radius / 10), radius * np.eye(10)[3]]
    ends = [frank_wolfe(f, L1Ball(radius), x0, variant="away", tol=1e-11, max_iterations=5000) for x0 in starts]
    for end in ends:
        assert end.converged
        assert end.value == pytest.approx(ends[0].value, abs=1e-10)
        assert reproduces(end) < 1e-10


def test_sparse_dictionary_gives_the_same_as_dense(lasso: Any) -> None:
    import scipy.sparse

    matrix = scipy.sparse.random(40, 25, density=0.2, random_state=0) + scipy.sparse.eye(40, 25)
    y = np.random.default_rng(0).standard_normal(40)
    dense = frank_wolfe(y, matrix.toarray(), variant="pairwise", tol=1e-10, max_iterations=5000)
    sparse = frank_wolfe(y, Dictionary(matrix), variant="pairwise", tol=1e-10, max_iterations=5000)
    assert sparse.value == pytest.approx(dense.value, abs=1e-9)
