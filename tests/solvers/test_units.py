"""Answers depend neither on the units of the data nor on their precision, and a run never gives up too early."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import torch
from sklearn.base import clone

from unknot.solvers import (
    Differentiable,
    LeastSquares,
    NonNegativePursuitRegressor,
    OrthogonalPursuitRegressor,
    Quadratic,
    SquaredDistance,
    coordinate_descent,
    frank_wolfe,
    matching_pursuit,
    minimise_over_intersection,
    nonnegative_matching_pursuit,
)
from unknot.solvers.atoms import Dictionary, L1Ball, L2Ball, NuclearBall, Product, Simplex

A = np.random.default_rng(0).standard_normal((8, 6))
D = np.abs(np.random.default_rng(1).standard_normal((6, 10)))
T = 3 * np.random.default_rng(2).standard_normal(8)
SCALES = (1e-6, 1e-3, 1e3, 1e6, 1e12)
FLAT = Quadratic(np.diag([1.0, 0.0]), np.ones(2))


def torch_squares(matrix: np.ndarray, target: np.ndarray) -> Differentiable:
    a, b = torch.from_numpy(matrix), torch.from_numpy(target)
    return Differentiable(lambda x: 0.5 * (a @ x - b).square().sum(), shape=(matrix.shape[1],))


def quadratic(matrix: np.ndarray, target: np.ndarray) -> Quadratic:
    return Quadratic(matrix.T @ matrix, matrix.T @ target, 0.5 * float(target @ target))


OBJECTIVES: dict[str, Callable[..., Any]] = {
    "least-squares": LeastSquares,
    "quadratic": quadratic,
    "function": torch_squares,
}
CORRECTIVE = (
    (nonnegative_matching_pursuit, "fully-corrective"),
    (nonnegative_matching_pursuit, "norm-corrective"),
    (frank_wolfe, "fully-corrective"),
    (frank_wolfe, "norm-corrective"),
    (frank_wolfe, "blended-corrective"),
    (matching_pursuit, "orthogonal"),
)


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize(("solve", "variant"), CORRECTIVE, ids=lambda value: getattr(value, "__name__", value))
def test_corrective_variants_do_not_depend_on_units(solve: Any, variant: str, kind: str) -> None:
    """The matrix, the target or the atoms times a number: x and f change by their powers of it, and nothing else."""
    f = OBJECTIVES[kind]
    options: dict[str, Any] = {"variant": variant, "max_iterations": 300}
    reference = solve(f(A, T), D, tol=1e-7, **options)
    assert reference.converged or reference.iterations == 300
    size = 0.5 * float(T @ T)
    for scale in SCALES:
        for matrix, target, atoms, squared in (
            (scale * A, scale * T, D, scale**2),
            (scale * A, T, D / scale, 1.0),
            (A, scale * T, D * scale, scale**2),
        ):
            unit = 1.0 if np.isinf(reference.gap) else squared  # a slope is compared with the steepest, a gap with f
            result = solve(f(matrix, target), atoms, tol=1e-7 * unit, **options)
            assert result.status == reference.status, (scale, result)
            assert result.value / squared == pytest.approx(reference.value, abs=1e-6 * size), (scale, result)


@pytest.mark.parametrize("variant", ["plain", "away", "pairwise", "norm-corrective", "fully-corrective"])
def test_a_cone_does_not_depend_on_the_units_of_the_matrix_alone(variant: str) -> None:
    best = scipy.optimize.nnls(A @ D, T)[1] ** 2 / 2
    for scale in (1.0, *SCALES):
        result = nonnegative_matching_pursuit(LeastSquares(scale * A, T), D, variant=variant, max_iterations=500)
        assert result.converged
        assert result.value == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize(("dtype", "smallest", "error"), [(np.float64, 1e-8, 1e-12), (np.float32, 1e-2, 1e-5)])
def test_dependent_and_small_atoms_are_no_reason_to_stop(dtype: Any, smallest: float, error: float) -> None:
    """Columns of very different sizes, of which two are the same, in a flat objective: the optimum, never an error."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        matrix = rng.standard_normal((7, 5)).astype(dtype)
        matrix[:, 3:] = matrix[:, :2]
        atoms = (rng.standard_normal((5, 9)) * np.geomspace(1, smallest, 9)).astype(dtype)
        atoms[:, 6] = atoms[:, 5]
        target = rng.standard_normal(7).astype(dtype)
        product = matrix.astype(float) @ atoms
        best = scipy.optimize.nnls(product / np.linalg.norm(product, axis=0), target)[1] ** 2 / 2
        result = nonnegative_matching_pursuit(LeastSquares(matrix, target), atoms, tol=0.0)
        assert result.value - best < error, (seed, result)


@pytest.mark.parametrize("seed", range(4))
def test_single_precision_takes_about_as_many_evaluations_as_double(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, target = rng.integers(-3, 4, (7, 6)), 10 * rng.standard_normal(7)
    calls, values = {}, {}
    for dtype in (torch.float32, torch.float64):
        a, b, count = torch.tensor(matrix, dtype=dtype), torch.tensor(target, dtype=dtype), [0]

        def f(x: torch.Tensor, a: Any = a, b: Any = b, count: Any = count) -> torch.Tensor:
            count[0] += 1
            value: torch.Tensor = 0.5 * (a @ x - b).square().sum()
            return value

        objective = Differentiable(f, shape=(6,), dtype=dtype)
        result = frank_wolfe(objective, Simplex(10.0), variant="fully-corrective", tol=1e-3, max_iterations=50)
        assert result.converged
        calls[dtype], values[dtype] = count[0], result.value
    assert calls[torch.float32] < 3 * calls[torch.float64]
    assert values[torch.float32] == pytest.approx(values[torch.float64], rel=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_blocks_that_stand_still_in_turn_are_no_stall(seed: int) -> None:
    target = np.random.default_rng(seed).standard_normal(10)
    sets = Product(Simplex(dim=5), L2Ball(1.0, dim=5))
    result = frank_wolfe(target, sets, variant="block-coordinate", max_iterations=1000, tol=1e-6)
    nearest = np.concatenate([Simplex().project(target[:5]), L2Ball(1.0).project(target[5:])])
    assert result.status != "stalled"
    assert result.value - 0.5 * np.square(nearest - target).sum() < 1e-3


def falling(x: torch.Tensor) -> torch.Tensor:
    return -x.sum()


def logarithm(x: torch.Tensor) -> torch.Tensor:
    return -(1 + x).log().sum()


UNBOUNDED: list[tuple[str, Callable[[], Any]]] = [
    *(
        (f"span, {variant}", lambda v=variant: matching_pursuit(lambda x: x.sum(), np.eye(3), np.ones(3), variant=v))
        for variant in ("generalised", "orthogonal", "random", "accelerated", "accelerated-random")
    ),
    *(
        (f"cone, {variant}", lambda v=variant: nonnegative_matching_pursuit(falling, np.eye(3), np.ones(3), variant=v))
        for variant in ("plain", "away", "pairwise", "norm-corrective", "fully-corrective")
    ),
    ("coordinates", lambda: coordinate_descent(falling, np.ones(3))),
    ("slower and slower", lambda: nonnegative_matching_pursuit(logarithm, np.eye(3), np.ones(3), variant="plain")),
    ("a given L", lambda: matching_pursuit(falling, np.eye(3), np.ones(3), smoothness=1.0)),
    ("quadratic", lambda: matching_pursuit(FLAT, np.eye(2), variant="orthogonal")),
    ("quadratic, short steps", lambda: matching_pursuit(FLAT, np.eye(2))),
    ("quadratic cone", lambda: nonnegative_matching_pursuit(FLAT, np.eye(2))),
]


@pytest.mark.parametrize("call", [case[1] for case in UNBOUNDED], ids=[case[0] for case in UNBOUNDED])
def test_objectives_without_a_minimum_end_in_one_error(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="no minimum along a search direction: expected f to be bounded below"):
        call()


def test_columns_of_zeros_change_nothing_in_a_span_or_cone() -> None:
    rng = np.random.default_rng(0)
    atoms, y = np.abs(rng.standard_normal((6, 4))), rng.standard_normal(6)
    more = np.insert(atoms, 2, 0.0, axis=1)
    calls: list[Callable[[np.ndarray], Any]] = [
        *(
            lambda m, v=variant: matching_pursuit(y, m, variant=v)
            for variant in ("generalised", "affine-invariant", "orthogonal", "random", "accelerated")
        ),
        *(
            lambda m, v=variant: nonnegative_matching_pursuit(y, m, variant=v)
            for variant in ("plain", "pairwise", "fully-corrective", "norm-corrective", "fnnomp")
        ),
        lambda m: matching_pursuit(np.stack([y, 0 * y]), m),
        lambda m: matching_pursuit(np.stack([y, 0 * y]), m, variant="orthogonal"),
    ]
    for call in calls:
        with_zero, without = call(more), call(atoms)
        np.testing.assert_allclose(with_zero.value, without.value, atol=1e-5)
        assert with_zero.status == without.status
    assert Dictionary(more).margin == pytest.approx(Dictionary(atoms).margin)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_in_words(dtype: torch.dtype) -> None:
    y = torch.ones(3, 3).to(dtype)
    ball = NuclearBall(1.0)
    for call in (lambda: frank_wolfe(y, ball), lambda: ball.lmo(y), lambda: L1Ball().project(y)):
        with pytest.raises(ValueError, match="too coarse for certificates: expected float32 or float64"):
            call()


def test_data_frames_are_read_as_arrays() -> None:
    frame, series = pd.DataFrame(A, columns=list("abcdef")), pd.Series(T)
    for solve in (
        lambda a, t: frank_wolfe(LeastSquares(a, t), L1Ball(1.0)),
        lambda a, t: matching_pursuit(t, a, variant="orthogonal"),
        lambda a, t: nonnegative_matching_pursuit(SquaredDistance(t), a),
    ):
        ours, theirs = solve(frame, series), solve(A, T)
        assert isinstance(ours.x, np.ndarray)
        np.testing.assert_array_equal(ours.x, theirs.x)
    with pytest.raises(ValueError, match="cannot be read as numbers"):
        LeastSquares(pd.DataFrame({"word": ["a", "b"]}), np.ones(2))


def test_an_intersection_is_met_ten_times_sooner_with_prices() -> None:
    y, n = 2 * np.random.default_rng(0).standard_normal(6), 6
    sets = L2Ball(1.0, dim=n), L1Ball(1.3, dim=n)
    distance = {
        method: minimise_over_intersection(y, *sets, method=method, max_iterations=300).feasibility
        for method in ("augmented", "homotopy")
    }
    assert distance["augmented"] is not None
    assert distance["homotopy"] is not None
    assert distance["augmented"] < distance["homotopy"] / 10


def quartic(scale: float, target: np.ndarray) -> Differentiable:
    """A function without a known L, μ or radius, so that nothing certifies its minimum over a span or cone."""
    matrix, b = torch.from_numpy(A), torch.from_numpy(target)
    return Differentiable(lambda x: scale * (1 + (matrix @ x - b).square() / 8).sqrt().sum(), shape=(6,))


@pytest.mark.parametrize("variant", ["generalised", "random", "orthogonal", "accelerated", "plain", "away", "pairwise"])
def test_slopes_count_as_zero_in_the_units_of_the_data(variant: str) -> None:
    """Without a certificate f times a number takes as many iterations, and ends where f itself does."""
    cone = variant in ("plain", "away", "pairwise")
    solve: Any = nonnegative_matching_pursuit if cone else matching_pursuit
    runs = [solve(quartic(s, T), D, variant=variant, max_iterations=800, tol=1e-4) for s in (1.0, *SCALES)]
    for scale, result in zip((1.0, *SCALES), runs, strict=True):
        assert np.isinf(result.gap)
        assert result.status == runs[0].status
        assert result.iterations == runs[0].iterations
        np.testing.assert_allclose(result.x, runs[0].x, rtol=1e-3, atol=1e-3)
        assert result.value / scale == pytest.approx(runs[0].value, rel=1e-5)


@pytest.mark.parametrize("model", [OrthogonalPursuitRegressor(4), NonNegativePursuitRegressor()], ids=str)
def test_linear_models_do_not_depend_on_units(model: Any) -> None:
    X, y = np.abs(A), np.abs(A) @ np.arange(6.0) + 0.1 * T
    reference = clone(model).fit(X, y).coef_
    for scale in SCALES:
        np.testing.assert_allclose(clone(model).fit(X, scale * y).coef_ / scale, reference, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(clone(model).fit(scale * X, y).coef_ * scale, reference, rtol=1e-9, atol=1e-12)
