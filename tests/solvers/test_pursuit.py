"""Matching pursuit and coordinate descent: theorems' bounds and rates, affine invariance, OMP, acceleration."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import orthogonal_mp

from unknot.solvers import (
    LeastSquares,
    Logistic,
    Quadratic,
    SquaredDistance,
    Status,
    coordinate_descent,
    geometry,
    matching_pursuit,
)
from unknot.solvers.atoms import Dictionary, Inexact, L1Ball, L2Ball, NuclearBall
from unknot.solvers.pursuit import COORDINATE_VARIANTS, VARIANTS, Steepest


def unit_atoms(dim: int, count: int, seed: int = 0) -> np.ndarray:
    atoms = np.random.default_rng(seed).standard_normal((dim, count))
    return atoms / np.linalg.norm(atoms, axis=0)


@pytest.mark.parametrize("accuracy", [1.0, 0.6])
def test_affine_invariant_pursuit_keeps_the_bounds_of_its_theorems(accuracy: float, conditioned: Any) -> None:
    matrix, b, best = conditioned(5, 0.01)
    f, atoms = Quadratic(matrix, b), Dictionary(unit_atoms(5, 8), symmetric=True)
    smooth, strong = geometry.atomic_smoothness(f, atoms), geometry.atomic_strong_convexity(f, atoms)
    assert smooth is not None
    oracle = atoms if accuracy == 1.0 else Inexact(atoms, multiplicative=accuracy)
    result = matching_pursuit(f, oracle, variant="affine-invariant", max_iterations=400, tol=0)
    errors = result.trace.value - best
    level = 2 * errors[0] / strong  # R_A² of a quadratic: ½ μ_A ‖θ - θ*‖_A² <= f - f*
    k = np.arange(len(errors) - 1)
    assert (errors[1:] <= 2 * smooth * level / (accuracy**2 * (k + 2))).all()
    assert (errors[1:] <= (1 - accuracy**2 * strong / smooth) * errors[:-1] + 1e-13).all()


def test_random_pursuit_keeps_its_bound_on_average(conditioned: Any) -> None:
    matrix, b, best = conditioned(5, 0.05)
    f = Quadratic(matrix, b)
    ball = L1Ball(1.0, dim=5)
    rate = 1 - geometry.atomic_strong_convexity(f, ball) / geometry.atomic_smoothness(f, ball) / 5  # type: ignore[operator]
    runs = [
        coordinate_descent(f, variant="random", seed=seed, max_iterations=300, tol=0).trace.value - best
        for seed in range(30)
    ]
    mean = np.mean(runs, axis=0)
    assert (mean <= mean[0] * rate ** np.arange(301) + 1e-12).all()
    assert mean[-1] < 1e-3 * mean[0]


def test_generalised_pursuit_converges_linearly(conditioned: Any) -> None:
    matrix, b, best = conditioned(10, 0.1)
    result = matching_pursuit(Quadratic(matrix, b), unit_atoms(10, 30), max_iterations=400, tol=0)
    errors = result.trace.value - best
    errors = errors[errors > 1e-11]
    assert np.corrcoef(np.arange(len(errors)), np.log(errors))[0, 1] < -0.99


def test_measured_baseline_and_acceleration(slope: Any) -> None:
    # The set-up and the figures of an independent implementation: 200 unit atoms in R^100, eigenvalues 1e-3 to 1.
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((100, 200))
    atoms /= np.linalg.norm(atoms, axis=0)
    basis = np.linalg.qr(rng.standard_normal((100, 100)))[0]
    matrix = (basis * np.logspace(-3, 0, 100)) @ basis.T
    matrix = (matrix + matrix.T) / 2
    solution = rng.standard_normal(100)
    f = Quadratic(matrix, matrix @ solution)
    best = f(solution)
    nu = geometry.acceleration_constant(atoms, greedy=False)
    assert nu == pytest.approx(112.45, abs=0.01)
    assert geometry.acceleration_constant(atoms) == pytest.approx(nu)  # equal for unit atoms

    plain = matching_pursuit(f, atoms, max_iterations=5000, tol=0).trace.value - best
    assert plain[[500, 2000, 5000]] == pytest.approx([0.387, 0.137, 0.0625], rel=5e-3)
    moments = np.linalg.inv(atoms @ atoms.T / 200)
    bound = 2 * 1.0 * nu * (solution @ moments @ solution)
    k = np.arange(1, 5001)
    for variant, reached in (("accelerated", 0.0195), ("accelerated-random", 0.0239)):
        errors = matching_pursuit(f, atoms, variant=variant, max_iterations=5000, tol=0).trace.value - best
        assert errors[5000] == pytest.approx(reached, rel=0.25)
        assert (errors[1:] <= bound / (k * (k + 1))).all()
        assert slope(errors, 1000, 5000) < -1.7  # the theorem's 1/k²
    assert slope(plain, 1000, 5000) > -1.1
    faster = matching_pursuit(f, atoms, variant="accelerated", nu=0.1 * nu, max_iterations=2000, tol=0)
    assert faster.value - best == pytest.approx(0.0173, rel=0.25)
    broken = matching_pursuit(f, atoms, variant="accelerated", nu=0.01 * nu, max_iterations=5000, tol=0)
    assert broken.status == Status.DIVERGED == "diverged"
    assert broken.iterations < 5000
    assert broken.value == pytest.approx(f(broken.x))
    assert broken.value == broken.trace.value.min()


@pytest.mark.parametrize("variant", ["affine-invariant"])
def test_affine_invariance_under_a_random_map(variant: str, conditioned: Any) -> None:
    matrix, b, _ = conditioned(8, 0.01)
    atoms = unit_atoms(8, 20)
    transform = np.random.default_rng(5).standard_normal((8, 8)) + 2 * np.eye(8)

    def iterates(variant: str, mapped: bool) -> np.ndarray:
        path: list[np.ndarray] = []
        m = transform if mapped else np.eye(8)
        f = Quadratic(m.T @ matrix @ m, m.T @ b)
        dictionary = np.linalg.solve(m, atoms)
        matching_pursuit(
            f, dictionary, variant=variant, max_iterations=300, tol=0, callback=lambda state: path.append(m @ state.x)
        )
        return np.stack(path)

    assert np.abs(iterates(variant, True) - iterates(variant, False)).max() < 1e-8
    assert np.abs(iterates("generalised", True) - iterates("generalised", False)).max() > 1e-2


def test_generalised_pursuit_is_the_classical_one() -> None:
    atoms = unit_atoms(6, 15)
    y = np.random.default_rng(1).standard_normal(6)
    result = matching_pursuit(y, atoms, max_iterations=25, tol=0)
    residual, coefficients = y.copy(), np.zeros(15)
    for _ in range(25):
        scores = atoms.T @ residual
        chosen = np.abs(scores).argmax()
        coefficients[chosen] += scores[chosen]
        residual -= scores[chosen] * atoms[:, chosen]
    np.testing.assert_allclose(result.coefficients, coefficients, atol=1e-12)
    np.testing.assert_allclose(result.x, y - residual, atol=1e-12)
    np.testing.assert_allclose(result.weights @ result.atoms, result.x, atol=1e-12)


def test_gradient_descent_is_pursuit_over_the_l2_ball(conditioned: Any) -> None:
    matrix, b, _ = conditioned(6, 0.1)
    x = np.zeros(6)
    for _ in range(40):
        x = x - (matrix @ x - b)
    result = matching_pursuit(Quadratic(matrix, b), L2Ball(3.0), max_iterations=40, tol=0)
    np.testing.assert_allclose(result.x, x, atol=1e-12)


def test_coordinate_descent_is_pursuit_over_coordinates(conditioned: Any) -> None:
    matrix, b, _ = conditioned(6, 0.1)
    f = Quadratic(matrix, b)
    x, largest = np.zeros(6), matrix.diagonal().max()
    for _ in range(30):
        gradient = matrix @ x - b
        i = np.abs(gradient).argmax()
        x[i] -= gradient[i] / largest
    np.testing.assert_allclose(coordinate_descent(f, max_iterations=30, tol=0).x, x, atol=1e-12)
    np.testing.assert_allclose(
        matching_pursuit(f, L1Ball(1.0), variant="affine-invariant", max_iterations=30, tol=0).x, x, atol=1e-12
    )


@pytest.mark.parametrize("variant", COORDINATE_VARIANTS)
def test_coordinate_variants_reach_the_optimum(variant: str, conditioned: Any) -> None:
    matrix, b, best = conditioned(10, 0.2)
    for f in (
        Quadratic(matrix, b),
        LeastSquares(np.linalg.cholesky(matrix).T, np.linalg.solve(np.linalg.cholesky(matrix), b)),
    ):
        shift = 0.0 if isinstance(f, Quadratic) else -best
        result = coordinate_descent(f, variant=variant, max_iterations=20_000, tol=1e-7)
        assert result.converged
        assert result.value - shift - best <= 1e-7 + 1e-12
        np.testing.assert_allclose(result.coefficients, result.x)


@pytest.mark.parametrize("variant", COORDINATE_VARIANTS)
def test_random_coordinate_steps_compute_no_full_gradient(variant: str) -> None:
    class Counting(LeastSquares):
        full = 0

    f = Counting(np.random.default_rng(0).standard_normal((50, 40)), np.ones(50))
    adjoint = f.map.adjoint

    def counted(r: torch.Tensor) -> torch.Tensor:
        Counting.full += 1
        return adjoint(r)

    f.map.adjoint = counted  # type: ignore[method-assign]
    coordinate_descent(f, variant=variant, max_iterations=400, tol=0)
    assert Counting.full <= (4 * 400 / 40 + 5 if "random" in variant else 1000)  # a few in each round of 40


@pytest.mark.parametrize("variant", VARIANTS)
def test_gap_bounds_the_error_at_every_iteration(variant: str, conditioned: Any) -> None:
    matrix, b, best = conditioned(12, 0.05)
    atoms = unit_atoms(12, 25)
    result = matching_pursuit(Quadratic(matrix, b), atoms, variant=variant, max_iterations=200, tol=1e-12)
    known = np.isfinite(result.trace.gap)
    assert known.any()
    assert (result.trace.gap[known] >= result.trace.value[known] - best - 1e-12).all()
    assert result.gap >= result.value - best - 1e-12
    np.testing.assert_allclose(atoms @ result.coefficients, result.x, atol=1e-10)


def test_gap_vanishes_even_where_the_span_is_small() -> None:
    atoms = unit_atoms(10, 3)
    y = np.random.default_rng(1).standard_normal(10)
    result = matching_pursuit(y, atoms, max_iterations=2000, tol=1e-12)
    assert result.converged
    best = np.square(y - atoms @ np.linalg.lstsq(atoms, y, rcond=None)[0]).sum() / 2
    assert result.value == pytest.approx(best, abs=1e-11)
    assert (result.trace.gap >= result.trace.value - best - 1e-12).all()


def test_a_radius_certifies_objectives_that_are_not_strongly_convex() -> None:
    rng = np.random.default_rng(0)
    matrix, target = rng.standard_normal((10, 30)), rng.standard_normal(10)
    f = LeastSquares(matrix, target)
    assert math.isinf(coordinate_descent(f, max_iterations=10, tol=1e-9).gap)
    solution = np.linalg.lstsq(matrix, target, rcond=None)[0]
    result = coordinate_descent(f, max_iterations=5000, radius=np.abs(solution).sum(), tol=1e-6)
    assert result.converged
    assert (result.trace.gap >= result.trace.value - 1e-12).all()  # the optimum is 0


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["logistic", "autograd"])
def test_objectives_that_are_not_quadratic(variant: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    matrix, labels = rng.standard_normal((200, 5)), rng.random(200) < 0.5
    signs = torch.from_numpy(2.0 * labels - 1)
    tensor = torch.from_numpy(matrix)
    f: Any = Logistic(matrix, labels)
    g = lambda x: torch.nn.functional.softplus(-signs * (tensor @ x)).sum()  # noqa: E731
    atoms = np.hstack([np.eye(5), unit_atoms(5, 4)])
    result = matching_pursuit(f if kind == "logistic" else g, atoms, variant=variant, max_iterations=4000, tol=1e-4)
    best = matching_pursuit(f, atoms, variant="orthogonal", tol=1e-10).value
    assert result.converged
    assert result.value == pytest.approx(best, abs=1e-4)


def test_orthogonal_pursuit_is_omp() -> None:
    atoms = unit_atoms(30, 60)
    y = np.random.default_rng(1).standard_normal(30)
    result = matching_pursuit(y, atoms, variant="orthogonal", max_iterations=8, tol=0)
    np.testing.assert_allclose(result.coefficients, orthogonal_mp(atoms, y, n_nonzero_coefs=8), atol=1e-10)
    assert result.iterations == 8
    # The residual is orthogonal to what was chosen.
    assert np.abs(atoms[:, result.coefficients != 0].T @ (y - result.x)).max() < 1e-12


def test_orthogonal_pursuit_of_least_squares_is_omp_on_the_columns() -> None:
    rng = np.random.default_rng(0)
    matrix, y = rng.standard_normal((30, 60)), rng.standard_normal(30)
    matrix /= np.linalg.norm(matrix, axis=0)
    result = matching_pursuit(LeastSquares(matrix, y), L1Ball(1.0), variant="orthogonal", max_iterations=8, tol=0)
    np.testing.assert_allclose(result.x, orthogonal_mp(matrix, y, n_nonzero_coefs=8), atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batched_omp_recovers_sparse_signals(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    atoms = unit_atoms(64, 128).astype(dtype)
    truth = np.zeros((20, 128), dtype=dtype)
    for row in truth:
        row[rng.choice(128, 5, replace=False)] = rng.choice([-1, 1], 5) * (1 + rng.random(5))
    result = matching_pursuit(truth @ atoms.T, atoms, variant="orthogonal", max_iterations=5, tol=0)
    tolerance = 1e-10 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(result.coefficients, truth, atol=tolerance)
    assert result.x.dtype == result.coefficients.dtype == dtype
    assert result.trace.value.shape == (6, 20)
    assert result.value.shape == result.gap.shape == (20,)


@pytest.mark.parametrize("variant", ["generalised", "orthogonal"])
def test_a_batch_is_its_signals_one_by_one(variant: str) -> None:
    atoms = np.random.default_rng(0).standard_normal((12, 20))
    signals = np.random.default_rng(1).standard_normal((7, 12))
    signals[3] = 0.5 * atoms[:, 4]  # done after one step, and then waits
    batch = matching_pursuit(signals, atoms, variant=variant, max_iterations=6, tol=1e-10)
    for i, signal in enumerate(signals):
        alone = matching_pursuit(signal, atoms, variant=variant, max_iterations=6, tol=1e-10)
        np.testing.assert_allclose(batch.coefficients[i], alone.coefficients, atol=1e-9)
        np.testing.assert_allclose(batch.trace.value[: len(alone.trace), i], alone.trace.value, atol=1e-9)
    np.testing.assert_allclose(batch.coefficients @ atoms.T, batch.x, atol=1e-9)


def test_batched_omp_stops_when_the_space_is_exhausted() -> None:
    atoms = np.random.default_rng(0).standard_normal((4, 10))
    signals = np.random.default_rng(1).standard_normal((3, 4))
    result = matching_pursuit(signals, atoms, variant="orthogonal", max_iterations=50, tol=0)
    assert result.converged
    assert result.iterations <= 5
    np.testing.assert_allclose(result.x, signals, atol=1e-10)
    rank_one = np.outer(np.ones(4), np.arange(1.0, 4.0))
    flat = matching_pursuit(signals, rank_one, variant="orthogonal", max_iterations=50, tol=0)
    np.testing.assert_allclose(flat.x, np.repeat(signals.mean(1, keepdims=True), 4, axis=1), atol=1e-12)


def test_low_rank_pursuit_over_rank_one_matrices() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((9, 3)) @ rng.standard_normal((3, 7))
    result = matching_pursuit(SquaredDistance(truth), NuclearBall(1.0), max_iterations=3, tol=0)
    np.testing.assert_allclose(result.x, truth, atol=1e-9)  # classical pursuit peels off the singular values
    assert np.linalg.matrix_rank(result.x) == 3


def test_starting_point_is_kept_in_the_weights() -> None:
    atoms = unit_atoms(6, 10)
    x0 = atoms @ np.arange(10.0)
    y = np.ones(6)
    for variant in ("generalised", "random", "accelerated"):
        result = matching_pursuit(y, atoms, x0, variant=variant, max_iterations=3, tol=0)
        assert result.trace.value[0] == pytest.approx(np.square(x0 - y).sum() / 2)
        np.testing.assert_allclose(atoms @ result.coefficients, result.x, atol=1e-9)


def test_random_variants_repeat_with_the_seed() -> None:
    atoms, y = unit_atoms(6, 10), np.ones(6)
    for variant in ("random", "accelerated", "accelerated-random"):
        a, b, c = (
            matching_pursuit(y, atoms, variant=variant, seed=seed, max_iterations=9, tol=0).x for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(a, b)
        assert np.abs(a - c).max() > 1e-6


def test_too_small_smoothness_is_caught(conditioned: Any) -> None:
    matrix, b, _ = conditioned(8, 0.1)
    for variant in ("generalised", "accelerated"):
        with pytest.warns(UserWarning, match="too small"):
            result = matching_pursuit(
                Quadratic(matrix, b), np.eye(8), variant=variant, smoothness=1e-3, max_iterations=99
            )
        assert result.value < 0


def test_screening_in_single_precision_never_changes_the_choice() -> None:
    rng = np.random.default_rng(0)
    atoms = unit_atoms(32, 64)
    atoms = np.hstack(
        [atoms, atoms + 1e-9 * rng.standard_normal((32, 64))]
    )  # pairs that single precision cannot tell apart
    residuals = rng.standard_normal((200, 32))
    scales = 10.0 ** rng.integers(-60, 60, (200, 1))
    chosen = Steepest(torch.from_numpy(atoms.T.copy()))(torch.from_numpy(residuals * scales))
    expected = np.abs(residuals @ atoms).argmax(1)
    np.testing.assert_array_equal(chosen, expected)
    assert (np.abs(residuals.astype(np.float32) @ atoms.astype(np.float32)).argmax(1) != expected).any()


@pytest.mark.parametrize("variant", ["accelerated-greedy", "accelerated-random"])
def test_accelerated_coordinate_descent_is_the_algorithm_of_the_box(variant: str, conditioned: Any) -> None:
    matrix, b, _ = conditioned(7, 0.01)
    smooth, nu = float(np.linalg.eigvalsh(matrix)[-1]), 7.0
    generator = torch.Generator().manual_seed(3)
    theta = v = np.zeros(7)
    beta = 0.0
    for _ in range(60):
        alpha = max(np.roots([smooth * nu, -1.0, -beta]))
        beta += alpha
        y = (1 - alpha / beta) * theta + alpha / beta * v
        gradient = matrix @ y - b
        drawn = int(torch.randint(7, (), generator=generator))
        i = np.abs(gradient).argmax() if variant == "accelerated-greedy" else drawn
        theta, v = y.copy(), v.copy()
        theta[i] -= gradient[i] / smooth
        v[drawn] -= alpha * gradient[drawn]
    result = coordinate_descent(Quadratic(matrix, b), variant=variant, seed=3, max_iterations=60, tol=0)
    np.testing.assert_allclose(result.x, theta, atol=1e-10)


@pytest.mark.parametrize("variant", ["generalised", "orthogonal"])
def test_a_relative_tolerance_holds_for_every_signal_of_a_batch(variant: str) -> None:
    rng = np.random.default_rng(0)
    atoms, small = rng.standard_normal((12, 6)), 1e-6
    targets = rng.standard_normal((2, 12)) * [[1.0], [small]]  # their spans are not everything, so values stay above 0
    result = matching_pursuit(targets, atoms, variant=variant, tol=0, rtol=1e-3, max_iterations=500)
    assert result.converged
    assert (result.gap <= 1e-3 * result.value).all()
    alone = matching_pursuit(
        targets[1], atoms, variant=variant, step="line-search", tol=0, rtol=1e-3, max_iterations=500
    )
    assert result.value[1] == pytest.approx(alone.value, rel=1e-3)
    assert result.iterations < 500
