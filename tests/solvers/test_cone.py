"""Non-negative matching pursuit: measured oracles, order of the variants, certificates, feasibility."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch

from unknot.solvers import (
    LeastSquares,
    Logistic,
    Quadratic,
    SquaredDistance,
    Status,
    geometry,
    nonnegative_matching_pursuit,
)
from unknot.solvers.atoms import Dictionary, L1Ball, Lazy, PSDTrace, Simplex
from unknot.solvers.cone import VARIANTS

CONVERGENT = [variant for variant in VARIANTS if variant != "fnnomp"]


@pytest.mark.parametrize(
    ("positive", "mean", "first"), [(False, 22.010955, 23.545091623704), (True, 5.201584, 5.157794064362)]
)
def test_optima_of_the_thesis_problem(positive: bool, mean: float, first: float, cone: Any) -> None:
    values = []
    for seed in range(20):
        atoms, target, best = cone(seed, positive)
        result = nonnegative_matching_pursuit(target, atoms, tol=1e-10)
        assert result.converged
        assert result.value == pytest.approx(best, abs=1e-9)
        values.append(result.value)
    assert values[0] == pytest.approx(first, abs=1e-9)
    assert np.mean(values) == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(("positive", "first"), [(False, 273.610667348906), (True, 81.940974937375)])
def test_optima_of_the_large_problem(positive: bool, first: float, cone: Any) -> None:
    atoms, target, _ = cone(0, positive, dim=500, count=2000)
    result = nonnegative_matching_pursuit(target, atoms, tol=1e-10)
    assert result.value == pytest.approx(first, abs=1e-9)
    assert result.gap <= 1e-10


def mean_errors(cone: Any, variant: str, iterations: int, tol: float = 0.0) -> np.ndarray:
    runs = []
    for seed in range(20):
        atoms, target, best = cone(seed, True)
        values = nonnegative_matching_pursuit(
            target, atoms, variant=variant, max_iterations=iterations, tol=tol
        ).trace.value
        runs.append(np.pad(values, (0, iterations + 1 - len(values)), mode="edge") - best)
    return np.mean(runs, axis=0)


def test_order_of_convergence_and_measured_table(cone: Any) -> None:
    errors = {variant: mean_errors(cone, variant, 100) for variant in VARIANTS}
    for k in (20, 50, 100):
        ordered = [errors[name][k] for name in ("fully-corrective", "pairwise", "away", "plain")]
        assert ordered == sorted(ordered)
        assert ordered[1] < ordered[2] / 5
        assert ordered[2] < ordered[3] / 2
    # Means over 20 cones of an independent implementation.
    assert errors["plain"][[10, 20, 50, 100]] == pytest.approx([0.76, 0.38, 0.14, 6.2e-2], rel=0.02, abs=0.005)
    assert errors["away"][[10, 20, 50, 100]] == pytest.approx([0.41, 0.15, 2.3e-2, 3.0e-3], rel=0.02, abs=0.003)
    assert errors["pairwise"][[10, 20]] == pytest.approx([8.5e-2, 6.6e-3], rel=0.25)
    assert errors["fully-corrective"][10] == pytest.approx(2.4e-2, rel=0.02)
    assert errors["fully-corrective"][20] < 1e-12
    # For ½‖θ - y‖² with L = 1 the two fully-corrective variants coincide.
    np.testing.assert_allclose(errors["norm-corrective"], errors["fully-corrective"], atol=1e-10)
    assert errors["fnnomp"][100] > 1e-2


def test_fnnomp_stalls_short_of_the_optimum(cone: Any) -> None:
    stalled = 0
    for seed in range(20):
        atoms, target, best = cone(seed, True)
        result = nonnegative_matching_pursuit(target, atoms, variant="fnnomp", tol=1e-8)
        assert (result.weights > 0).all()
        np.testing.assert_allclose(atoms @ result.coefficients, result.x, atol=1e-10)
        assert (result.trace.gap >= result.trace.value - best - 1e-12).all()
        stalled += result.status == Status.STALLED and result.value - best > 1e-4
    assert stalled >= 3


def test_plain_is_sublinear_and_corrective_variants_are_linear(cone: Any) -> None:
    plain = mean_errors(cone, "plain", 1000)
    assert plain[1000] > 1e-3
    k = np.arange(100, 1000)
    assert -1.5 < np.polyfit(np.log(k), np.log(plain[100:1000]), 1)[0] < -0.7
    for variant, rate in (("away", -0.02), ("pairwise", -0.1)):
        atoms, target, best = cone(0, True)
        errors = nonnegative_matching_pursuit(
            target, atoms, variant=variant, max_iterations=1500, tol=1e-12
        ).trace.value
        errors = errors - best
        errors = errors[errors > 1e-11]
        assert np.polyfit(np.arange(len(errors)), np.log(errors), 1)[0] < rate / 2
        assert np.corrcoef(np.arange(len(errors)), np.log(errors))[0, 1] < -0.97


def test_linear_rate_of_the_theorem_holds_along_the_run(cone: Any) -> None:
    for seed in range(4):
        atoms, target, best = cone(seed, True, dim=3, count=5)
        width = geometry.cone_width(atoms)
        diameter = Dictionary(np.hstack([atoms, np.zeros((3, 1))])).diameter
        rate = width**2 / diameter**2  # L = μ = 1
        assert 0 < rate < 1
        for variant, share in (("fully-corrective", 1.0), ("away", 0.25)):  # half the rate, and half the steps are good
            values = nonnegative_matching_pursuit(
                target, atoms, variant=variant, max_iterations=200, tol=1e-13
            ).trace.value
            errors = values - best
            assert (errors <= errors[0] * np.exp(-share * rate * np.arange(len(errors))) + 1e-13).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("positive", [False, True])
def test_gap_bounds_the_error_at_every_iteration(variant: str, positive: bool, cone: Any) -> None:
    for seed in range(5):
        atoms, target, best = cone(seed, positive)
        result = nonnegative_matching_pursuit(target, atoms, variant=variant, max_iterations=150, tol=1e-11)
        assert (result.trace.gap >= result.trace.value - best - 1e-12).all()
        assert np.isfinite(result.trace.gap).all()


@pytest.mark.parametrize("variant", ["away", "pairwise", "fully-corrective"])
def test_weights_reproduce_x_after_ten_thousand_iterations(variant: str, cone: Any) -> None:
    atoms, target, best = cone(0, True, dim=20, count=40)
    result = nonnegative_matching_pursuit(target, atoms, variant=variant, max_iterations=10_250, tol=0)
    assert result.iterations == 10_250 or result.status == "stalled"  # rounding may end it earlier
    assert (result.weights > 0).all()
    np.testing.assert_allclose(result.weights @ result.atoms, result.x, atol=1e-10)
    np.testing.assert_allclose(atoms @ result.coefficients, result.x, atol=1e-10)
    assert result.value == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("variant", ["plain", "away", "pairwise"])
def test_steps_descend_and_stay_in_the_cone(variant: str, cone: Any) -> None:
    for seed in range(10):
        atoms, target, _ = cone(seed, seed % 2 == 0, dim=6, count=12)
        result = nonnegative_matching_pursuit(target, atoms, variant=variant, max_iterations=80, tol=0)
        assert (np.diff(result.trace.value) <= 1e-12).all()
        residual = scipy.optimize.nnls(atoms, result.x)[1]
        assert residual < 1e-9


@pytest.mark.parametrize("variant", CONVERGENT)
def test_other_objectives(variant: str) -> None:
    rng = np.random.default_rng(0)
    matrix, target = rng.standard_normal((40, 6)), rng.standard_normal(40)
    orthant = Simplex(1.0)
    weights, residual = scipy.optimize.nnls(matrix, target)
    squares = nonnegative_matching_pursuit(
        LeastSquares(matrix, target), orthant, variant=variant, max_iterations=20_000, tol=1e-7
    )
    assert squares.converged
    assert squares.value == pytest.approx(residual**2 / 2, abs=1e-7)
    np.testing.assert_allclose(squares.x, weights, atol=1e-3)
    quadratic = Quadratic(matrix.T @ matrix, matrix.T @ target, target @ target / 2)
    assert nonnegative_matching_pursuit(
        quadratic, orthant, variant=variant, max_iterations=20_000, tol=1e-7
    ).value == pytest.approx(residual**2 / 2, abs=1e-7)

    labels = rng.random(40) < 0.7
    f = Logistic(matrix, labels)
    free = scipy.optimize.minimize(
        lambda x: (f(x), f.gradient(x)), np.ones(6), jac=True, bounds=[(0, None)] * 6, method="L-BFGS-B", tol=1e-14
    )
    result = nonnegative_matching_pursuit(f, orthant, variant=variant, max_iterations=20_000, tol=1e-5)
    assert result.converged
    assert math.isinf(result.trace.gap[0])  # not known to be strongly convex
    assert result.value == pytest.approx(free.fun, abs=1e-5)
    certified = nonnegative_matching_pursuit(
        f, orthant, variant=variant, max_iterations=20_000, tol=1e-4, radius=2 * free.x.sum()
    )
    assert certified.converged
    assert (certified.trace.gap >= certified.trace.value - free.fun - 1e-8).all()


def test_torch_functions() -> None:
    target = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    result = nonnegative_matching_pursuit(
        lambda x: (x - target).pow(4).sum() + (x - target).square().sum(), Simplex(dim=3), variant="pairwise", tol=1e-6
    )
    assert result.converged
    torch.testing.assert_close(result.x, target.clamp_min(0), atol=1e-5, rtol=0)


def test_origin_is_the_answer_where_nothing_descends(cone: Any) -> None:
    atoms, target, _ = cone(0, True)
    for variant in VARIANTS:
        result = nonnegative_matching_pursuit(-target, atoms, variant=variant)
        assert result.converged
        assert result.iterations == 0
        assert not result.x.any()
        assert len(result.active) == 0
        assert result.atoms.shape == (0, 50)


@pytest.mark.parametrize("variant", CONVERGENT)
def test_a_start_in_the_cone_is_taken_apart(variant: str, cone: Any) -> None:
    atoms, target, best = cone(3, True, dim=10, count=15)
    x0 = atoms @ np.linspace(0, 5, 15)
    result = nonnegative_matching_pursuit(target, atoms, x0, variant=variant, max_iterations=4000, tol=1e-6)
    assert result.trace.value[0] == pytest.approx(np.square(x0 - target).sum() / 2)
    assert result.value == pytest.approx(best, abs=1e-2 if variant in ("plain", "affine-invariant") else 1e-6)


def test_projection_on_the_semidefinite_cone() -> None:
    matrix = np.random.default_rng(0).standard_normal((6, 6))
    matrix = (matrix + matrix.T) / 2
    values, vectors = np.linalg.eigh(matrix)
    expected = (vectors * np.maximum(values, 0)) @ vectors.T
    result = nonnegative_matching_pursuit(SquaredDistance(matrix), PSDTrace(1.0), tol=1e-8)
    assert result.converged
    np.testing.assert_allclose(result.x, expected, atol=1e-3)


def test_a_symmetric_set_makes_the_cone_a_span() -> None:
    y = np.array([1.0, -2.0, 3.0])
    result = nonnegative_matching_pursuit(y, L1Ball(1.0), tol=1e-12)
    np.testing.assert_allclose(result.x, y, atol=1e-6)


def test_lazy_oracles_work_over_cones(cone: Any) -> None:
    atoms, target, best = cone(0, True)
    lazy = Lazy(Dictionary(atoms))
    result = nonnegative_matching_pursuit(target, lazy, variant="pairwise", max_iterations=3000, tol=1e-9)
    assert result.converged
    assert result.value == pytest.approx(best, abs=1e-9)
    assert lazy.hits > 0


@pytest.mark.parametrize("variant", ["plain", "away", "pairwise"])
def test_iterates_are_those_of_the_box(variant: str, cone: Any) -> None:
    atoms, target, _ = cone(1, True, dim=12, count=20)
    atoms = np.random.default_rng(0).uniform(0.5, 2.0, 20) * atoms  # unequal norms: ‖θ‖_A and ‖z‖ matter
    hessian = np.diag(np.linspace(0.3, 1.0, 12))  # steps of 1/L are not exact, so no active atom ties with the origin
    alpha = np.zeros(20)
    for _ in range(40):
        gradient = hessian @ (atoms @ alpha) - target
        scores = atoms.T @ gradient
        z = int(scores.argmin())
        worst = np.where(alpha > 0, scores, -np.inf)
        v = int(worst.argmax())
        change = np.zeros(20)
        limit = np.inf
        if variant == "plain":
            if alpha.any() and -(alpha @ scores) / alpha.sum() < scores[z]:
                change, limit = -alpha, 1.0
            else:
                change[z] = 1.0
        elif variant == "away" and worst[v] > max(0.0, -scores[z]):
            change[v], limit = -1.0, alpha[v]
        else:
            change[z] = float(scores[z] < 0)  # otherwise z is the origin
            if variant == "pairwise" and worst[v] > 0:
                change[v] -= 1.0
                limit = alpha[v]
        d = atoms @ change
        alpha = alpha + min(-(gradient @ d) / (d @ d), limit) * change
    result = nonnegative_matching_pursuit(Quadratic(hessian, target), atoms, variant=variant, max_iterations=40, tol=0)
    np.testing.assert_allclose(result.coefficients, alpha, atol=1e-9)


def test_affine_invariant_variant(cone: Any) -> None:
    """Its iterates follow a linear map where those of the plain variant do not, and its theorem's bound holds."""
    atoms, target, best = cone(0, True, dim=12, count=20)
    transform = np.random.default_rng(5).standard_normal((12, 12)) + 2 * np.eye(12)

    def iterates(variant: str, m: np.ndarray) -> np.ndarray:
        path: list[np.ndarray] = []
        nonnegative_matching_pursuit(
            LeastSquares(m, target),
            np.linalg.solve(m, atoms),
            variant=variant,
            max_iterations=300,
            tol=0,
            callback=lambda state: path.append(m @ state.x),
        )
        return np.array(path)

    own, mapped = iterates("affine-invariant", np.eye(12)), iterates("affine-invariant", transform)
    np.testing.assert_allclose(own, mapped, atol=1e-8)
    assert np.abs(iterates("plain", np.eye(12)) - iterates("plain", transform)).max() > 1e-3
    errors = np.square(own - target).sum(1) / 2 - best
    assert (np.diff(errors) <= 1e-12).all()
    # L_cone is 1 for unit atoms and this f, and then the step is that of the plain variant but along -θ/‖θ‖_A.
    result = nonnegative_matching_pursuit(target, atoms, variant="affine-invariant", max_iterations=2000, tol=1e-6)
    assert result.smoothness == pytest.approx(1.0)
    assert result.value - best <= 1e-3 * best
    assert (result.coefficients >= 0).all()
    steep = nonnegative_matching_pursuit(
        lambda x: (x - 1).pow(4).sum(), np.eye(3), np.zeros(3), variant="affine-invariant"
    )
    assert steep.value < 1e-4
    with pytest.raises(ValueError, match="leave it out"):
        nonnegative_matching_pursuit(target, atoms, variant="affine-invariant", step="short")
