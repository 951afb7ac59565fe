"""Homotopy conditional gradients: schedules, certificates, rates, several terms, baselines, splitting, bad input."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from solver_experiments import known_problem, random_completion, slope

from unknot.solvers import (
    Differentiable,
    Homotopy,
    LeastSquares,
    Sampled,
    SampledEntries,
    Schedule,
    SquaredDistance,
    augmented_lagrangian_cgm,
    homotopy_cgm,
    minimise_over_intersection,
    s3ccm,
    stochastic_frank_wolfe,
    stochastic_homotopy_cgm,
)
from unknot.solvers.atoms import L1Ball, L2Ball, NuclearBall, PSDTrace, Simplex
from unknot.solvers.terms import Box, Constraint, L1Norm, Linear, project_nuclear_ball

A, CONSTRAINT, SOLUTION, BEST = known_problem()
MULTIPLIER = 0.5  # ‖y*‖ of known_problem, whose c enters a with this weight


def noisy(noise: float = 0.5) -> Sampled:
    return Sampled(
        lambda x, rng: x - A - noise * rng.standard_normal(len(A)),
        lambda x: 0.5 * float(((x - A) ** 2).sum()),
        smoothness=1.0,
    )


def test_known_problem_is_solved_by_its_solution() -> None:
    assert CONSTRAINT._matrix is not None
    c = CONSTRAINT._matrix.matrix.numpy()[0]
    found = scipy.optimize.minimize(
        lambda x: 0.5 * ((x - A) ** 2).sum(),
        np.full(len(A), 1 / len(A)),
        jac=lambda x: x - A,
        bounds=[(0, None)] * len(A),
        constraints=[
            {"type": "eq", "fun": lambda x: x.sum() - 1},
            {"type": "eq", "fun": lambda x: c @ x - float(CONSTRAINT.lower)},
        ],
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(found.x, SOLUTION, atol=1e-5)
    assert found.fun == pytest.approx(BEST, abs=1e-8)


def test_gap_is_an_upper_bound_and_both_measures_fall() -> None:
    result = homotopy_cgm(A, Simplex(), CONSTRAINT, beta0=0.1, max_iterations=3000)
    trace = result.trace
    assert trace.feasibility is not None
    assert (trace.gap >= trace.value - BEST - 1e-9).all()
    assert (trace.value - BEST >= -MULTIPLIER * trace.feasibility - 1e-9).all()  # first line of the theorem
    assert abs(result.value - BEST) < 0.02
    assert result.feasibility is not None
    assert result.feasibility < 0.02
    assert result.violations == (result.feasibility,)
    np.testing.assert_allclose(result.x, SOLUTION, atol=0.05)
    assert set(dict(trace)) == {"value", "gap", "time", "feasibility"}  # type: ignore[call-overload]
    assert "feasibility" in str(result)


def test_prices_are_the_multipliers() -> None:
    """x - a + Aᵀy = 0 for ½‖x - a‖² with Ax = 1, where the ball does not bind; whatever the scale of A."""
    a = np.array([2.0, 1.0, 0.5, 0.3])
    for scale in (1.0, 10.0):
        equation = Linear(scale * np.ones((1, 4)), scale, scale)
        result = augmented_lagrangian_cgm(a, L2Ball(4.0), equation, max_iterations=5000)
        assert result.duals[0] * scale == pytest.approx([(a.sum() - 1) / 4], abs=0.03)
    assert homotopy_cgm(a, L2Ball(4.0), equation, max_iterations=5).duals == ()


def test_the_mean_of_the_iterates_swings_less_than_the_last_of_them() -> None:
    constraints = [Linear(np.kron(np.eye(8), np.ones(8)), 1.0, 1.0), Box(lower=0.0)]
    ratios = []
    for seed in range(5):  # how much less depends on the problem, and on the rounding of the machine
        cost = np.random.default_rng(seed).standard_normal((8, 8))
        errors = {}
        for mean in (3.0, None):
            seen: list[np.ndarray] = []
            result = augmented_lagrangian_cgm(
                cost + cost.T,
                PSDTrace(3.0),
                constraints,
                beta0=0.1,
                max_iterations=600,
                mean=mean,
                callback=lambda state, seen=seen: seen.append(state.x),  # type: ignore[misc]
            )
            np.testing.assert_array_equal(seen[-1], result.x)
            assert result.value == pytest.approx(((result.x - cost - cost.T) ** 2).sum() / 2)
            errors[mean] = np.ptp(result.trace.value[300:]), result.feasibility
            assert np.linalg.eigvalsh(result.x)[0] > -1e-9
            assert np.trace(result.x) == pytest.approx(3.0)
        ratios.append(errors[3.0][0] / errors[None][0])
        assert errors[3.0][1] < errors[None][1]
    assert max(ratios) < 1
    assert np.mean(ratios) < 0.5
    run = Homotopy(cost, PSDTrace(3.0), constraints, None, Schedule.cgal())
    run.run(30)
    whole = augmented_lagrangian_cgm(cost, PSDTrace(3.0), constraints, max_iterations=60)
    np.testing.assert_allclose(run.run(30).x, whole.x, atol=1e-9)  # the mean continues as well


def test_stops_at_the_certificate() -> None:
    result = homotopy_cgm(A, Simplex(), CONSTRAINT, beta0=0.1, tol=0.05, feasibility_tol=0.05, max_iterations=10_000)
    assert result.converged
    assert result.gap <= 0.05
    assert result.feasibility is not None
    assert result.feasibility <= 0.05
    assert result.value - BEST <= result.gap


def test_start_is_forgotten_and_schedules_are_those_of_the_thesis() -> None:
    seen: list[int] = []

    def step(k: int) -> float:
        seen.append(k)
        return 9 / (k + 8)

    linear = Sampled(lambda x, rng: A)
    one, other = (
        stochastic_homotopy_cgm(linear, Simplex(), (), start, step=step, max_iterations=20)
        for start in (np.eye(20)[3], np.full(20, 0.05))
    )
    np.testing.assert_array_equal(one.x, other.x)
    assert seen[:21] == list(range(1, 22))
    default = stochastic_homotopy_cgm(linear, Simplex(), (), np.eye(20)[3], max_iterations=20)
    np.testing.assert_array_equal(one.x, default.x)


def test_averaging_of_gradients() -> None:
    draws: list[np.ndarray] = []

    def gradient(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        draws.append(rng.standard_normal(3))
        return draws[-1]

    asked: list[np.ndarray] = []

    def oracle(direction: np.ndarray) -> np.ndarray:
        asked.append(direction.copy())
        return np.eye(3)[int(direction.argmin())]

    stochastic_homotopy_cgm(gradient, oracle, (), np.zeros(3), max_iterations=6)
    average = np.zeros(3)
    for k, (draw, direction) in enumerate(zip(draws, asked, strict=True), start=1):
        rho = 4 / (k + 7) ** (2 / 3)
        average = (1 - rho) * average + rho * draw
        np.testing.assert_allclose(direction, average, atol=1e-12)


def test_rates_of_the_stochastic_method() -> None:
    runs = [
        stochastic_homotopy_cgm(
            noisy(), Simplex(), CONSTRAINT, np.full(20, 0.05), beta0=1.0, seed=seed, max_iterations=3000
        ).trace
        for seed in range(3)
    ]
    k = np.arange(3001)
    objective = np.mean([np.abs(trace.value - BEST) for trace in runs], axis=0)
    feasibility = np.mean([trace.feasibility for trace in runs], axis=0)
    assert slope(k[1:], objective[1:], 300) < -0.25  # k^(-1/3) from above, with room for noise
    assert slope(k[1:], feasibility[1:], 300) < -0.35  # k^(-5/12)

    # The theorem's bound, with the largest constants found in statement and proof, ‖A‖²/β_0, and ‖A‖ = 1 by scaling.
    diameter, sigma, beta0, scale = np.sqrt(2), 0.5 * np.sqrt(20), 1.0, CONSTRAINT.norm(torch.zeros(20))
    c = 81 / 2 * diameter**2 * (1 + 1 / beta0) + 36 * sigma * diameter + 81 * diameter**2
    assert (objective[2:] <= 9 ** (1 / 3) * c / (k[1:-1] + 8) ** (1 / 3)).all()
    dual = MULTIPLIER * scale
    bound = 2 * beta0 * dual / np.sqrt(k[1:-1] + 8) + 2 * np.sqrt(2 * 9 ** (1 / 3) * c * beta0) / (k[1:-1] + 8) ** (
        5 / 12
    )
    assert (feasibility[2:] / scale <= bound).all()


def test_several_terms_at_once_against_slsqp() -> None:
    rng = np.random.default_rng(1)
    target, matrix = rng.standard_normal(6), rng.standard_normal((2, 6))
    bound, weight, radius = np.array([0.3, -0.2]), 0.2, 2.0
    terms = [Box(-0.5, 0.8), Linear(matrix, upper=bound), L1Norm(weight)]
    result = homotopy_cgm(target, L2Ball(radius), terms, beta0=0.3, max_iterations=8000, evaluate_every=100)

    def value(z: np.ndarray) -> float:
        return float(0.5 * ((z[:6] - z[6:] - target) ** 2).sum() + weight * z.sum())

    best = scipy.optimize.minimize(
        value,
        np.full(12, 0.1),
        bounds=[(0, None)] * 12,
        constraints=[
            {"type": "ineq", "fun": lambda z: bound - matrix @ (z[:6] - z[6:])},
            {"type": "ineq", "fun": lambda z: 0.8 - (z[:6] - z[6:])},
            {"type": "ineq", "fun": lambda z: z[:6] - z[6:] + 0.5},
            {"type": "ineq", "fun": lambda z: radius**2 - ((z[:6] - z[6:]) ** 2).sum()},
        ],
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert best.success
    assert result.value == pytest.approx(best.fun, abs=0.02)
    np.testing.assert_allclose(result.x, best.x[:6] - best.x[6:], atol=0.05)
    assert len(result.violations) == 2  # of the constraints; the L1 norm is not one
    assert result.value - best.fun <= result.gap + 1e-9


def test_normalised_blocks_do_not_depend_on_their_scale() -> None:
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((2, 20))
    results = {
        (scale, normalise): homotopy_cgm(
            A, Simplex(), Linear(scale * matrix, 0.0, 0.0), normalise=normalise, max_iterations=100
        ).x
        for scale in (1.0, 100.0)
        for normalise in (True, False)
    }
    np.testing.assert_allclose(results[1.0, True], results[100.0, True], atol=1e-9)
    assert np.abs(results[1.0, False] - results[100.0, False]).max() > 1e-3


def test_additive_oracle_error() -> None:
    exact = homotopy_cgm(A, Simplex(), CONSTRAINT, beta0=0.1, max_iterations=3000)
    inexact = homotopy_cgm(A, Simplex(), CONSTRAINT, beta0=0.1, max_iterations=3000, oracle_error=0.1)
    assert np.abs(exact.x - inexact.x).max() > 1e-6
    assert abs(inexact.value - BEST) < 0.1
    assert (inexact.trace.gap >= inexact.trace.value - BEST - 1e-9).all()
    stochastic = stochastic_homotopy_cgm(
        noisy(), Simplex(), CONSTRAINT, np.full(20, 0.05), beta0=0.1, max_iterations=500, oracle_error=0.1
    )
    assert np.isfinite(stochastic.value)


def completion(m: int = 40, n: int = 30) -> tuple[np.ndarray, np.ndarray, float]:
    return random_completion(m, n)


@pytest.mark.parametrize(
    ("m", "n", "best", "radius"),
    [(40, 30, 225.216997, 109.714239), (80, 60, 726.0624, 249.874765), (160, 120, 1416.799803, 563.235764)],
)
def test_small_completion_against_independent_optima(m: int, n: int, best: float, radius: float) -> None:
    target, seen, found = completion(m, n)
    assert found == pytest.approx(radius, abs=1e-5)
    objective = SquaredDistance(np.where(seen, target, 0.0), mask=2.0 * seen)
    iterations = 1000 if m < 160 else 300
    result = homotopy_cgm(
        objective, NuclearBall(found), Box(1, 5), beta0=1.0, max_iterations=iterations, evaluate_every=10
    )
    # Open-loop steps swing about their trend, and rounding alone decides where one of them is: hence the last tenth.
    assert result.trace.feasibility is not None
    recent = result.trace.feasibility[-(iterations // 10) :]
    assert np.nanmean(recent) < (0.1 if m < 160 else 1.0)  # Frobenius norm over all entries
    assert result.value == pytest.approx(best, rel=0.002 if m < 160 else 0.02)
    assert result.value - result.gap <= best + 1e-6  # a lower bound on the optimum


def test_stochastic_completion_and_its_baselines() -> None:
    target, seen, radius = completion()
    entries = (*np.nonzero(seen), target[seen], target.shape)
    atoms = NuclearBall(radius, method="power", tol=1e-2, warm=False)
    ours = stochastic_homotopy_cgm(
        SampledEntries(*entries, batch_size=100), atoms, Box(1, 5), beta0=10.0, max_iterations=4000, evaluate_every=100
    )
    assert ours.value == pytest.approx(225.217, rel=0.25)
    assert ours.feasibility is not None
    assert ours.feasibility < 0.5
    falling = s3ccm(
        SampledEntries(*entries, batch_size=100),
        lambda x: project_nuclear_ball(x, radius),
        Box(1, 5),
        gamma=lambda k: 2 / (k + 10),
        max_iterations=600,
    )
    assert falling.value == pytest.approx(225.217, rel=0.15)
    assert np.linalg.svd(falling.x, compute_uv=False).sum() <= radius + 1e-6


def test_low_rank_iterate_is_the_dense_one() -> None:
    target, seen, radius = completion()
    f = SampledEntries(*np.nonzero(seen), target[seen], target.shape, batch_size=50)
    atoms = NuclearBall(radius, method="lapack")
    for iterations in (10, 400):  # factors, and what they are gathered to
        low_rank = stochastic_frank_wolfe(f, atoms, max_iterations=iterations)
        dense = stochastic_frank_wolfe(f, atoms, np.zeros(target.shape), max_iterations=iterations)
        np.testing.assert_allclose(low_rank.x, dense.x, atol=1e-8)
        assert low_rank.value == pytest.approx(((low_rank.x - target)[seen] ** 2).sum())
    few = stochastic_frank_wolfe(f, atoms, max_iterations=10)
    assert len(few.active) == 10
    np.testing.assert_allclose(np.tensordot(few.weights, few.atoms, 1), few.x, atol=1e-8)


@pytest.mark.parametrize("replacement", [True, False])
def test_sampled_gradients_are_unbiased(replacement: bool) -> None:
    from unknot.solvers.homotopy import DenseIterate

    f = SampledEntries([0, 1, 1], [0, 0, 1], [1.0, 2.0, 3.0], (2, 2), batch_size=2, replacement=replacement)
    x = DenseIterate(torch.full((2, 2), 5.0, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    zero = torch.zeros(3, dtype=torch.float64)
    mean = torch.stack([f.average(zero.clone(), x, 1.0, generator) for _ in range(4000)]).mean(0)
    np.testing.assert_allclose(mean, [8.0, 6.0, 4.0], rtol=0.1)


def test_splittings_of_an_intersection_agree() -> None:
    target = np.array([2.0, 0.5, 0.0])
    product = minimise_over_intersection(
        target, L2Ball(1.0, dim=3), L1Ball(1.2, dim=3), beta0=0.3, max_iterations=3000, evaluate_every=100
    )
    from unknot.solvers.terms import project_l1_ball

    constraint = Constraint(lambda y: project_l1_ball(y, 1.2), name="L1 ball")
    projection = minimise_over_intersection(
        target, L2Ball(1.0, dim=3), constraint, beta0=0.3, max_iterations=3000, evaluate_every=100
    )
    best = scipy.optimize.minimize(
        lambda z: 0.5 * ((z[:3] - z[3:] - target) ** 2).sum(),
        np.full(6, 0.1),
        bounds=[(0, None)] * 6,
        constraints=[
            {"type": "ineq", "fun": lambda z: 1.2 - z.sum()},
            {"type": "ineq", "fun": lambda z: 1 - ((z[:3] - z[3:]) ** 2).sum()},
        ],
        method="SLSQP",
    )
    expected = best.x[:3] - best.x[3:]
    homotopy = minimise_over_intersection(
        target, L2Ball(1.0, dim=3), L1Ball(1.2, dim=3), method="homotopy", beta0=0.3, max_iterations=3000
    )
    for result, near, feasible in ((product, 0.01, 1e-3), (projection, 0.01, 1e-3), (homotopy, 0.06, 0.06)):
        assert isinstance(result.x, np.ndarray)
        assert result.x.shape == (3,)
        np.testing.assert_allclose(result.x, expected, atol=near)
        assert result.feasibility is not None
        assert result.feasibility < feasible
    assert product.feasibility is not None
    assert 10 * product.feasibility < homotopy.feasibility  # prices pay: see docs/solvers/homotopy.md
    stochastic = minimise_over_intersection(
        Sampled(lambda x, rng: x - target - 0.1 * rng.standard_normal(3)),
        L2Ball(1.0, dim=3),
        L1Ball(1.2, dim=3),
        np.zeros(3),
        beta0=0.3,
        max_iterations=2000,
    )
    np.testing.assert_allclose(stochastic.x, expected, atol=0.15)
    there = torch.from_numpy(target)
    function = minimise_over_intersection(
        lambda x: ((x - there) ** 2).sum() / 2, L2Ball(1.0, dim=3), L1Ball(1.2, dim=3), beta0=0.3, max_iterations=3000
    )
    np.testing.assert_allclose(np.asarray(function.x), product.x, atol=1e-6)


def test_infeasible_constraints_are_reported() -> None:
    with pytest.warns(UserWarning, match="does not fall.*the constraints are infeasible, no point of Simplex"):
        result = homotopy_cgm(A, Simplex(), Box(lower=0.2), max_iterations=300)
    assert result.status == "infeasible"
    assert not result.converged
    with pytest.warns(UserWarning, match="infeasible"):
        stochastic = stochastic_homotopy_cgm(
            noisy(), Simplex(), [Box(lower=0.2)], np.full(20, 0.05), max_iterations=300, evaluate_every=5
        )
    assert stochastic.status == "infeasible"


def test_too_large_a_smoothing_is_not_called_infeasible() -> None:
    with pytest.warns(UserWarning, match="may be infeasible, or beta0 is too large"):
        result = homotopy_cgm(A, Simplex(), CONSTRAINT, beta0=1e4, max_iterations=300)
    assert result.status == "max iterations"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        homotopy_cgm(A, Simplex(), CONSTRAINT, beta0=0.1, max_iterations=300)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_kind_out(dtype: Any) -> None:
    target = A.astype(dtype)
    numpy = homotopy_cgm(target, Simplex(), Box(0, 0.5), max_iterations=50)
    tensor = homotopy_cgm(torch.from_numpy(target), Simplex(), Box(0, 0.5), max_iterations=50)
    assert isinstance(numpy.x, np.ndarray)
    assert numpy.x.dtype == dtype
    assert isinstance(tensor.x, torch.Tensor)
    np.testing.assert_array_equal(tensor.x.numpy(), numpy.x)
    kinds: list[Any] = []

    def gradient(x: Any, generator: Any) -> Any:
        kinds.append((type(x), type(generator)))
        return x

    stochastic_homotopy_cgm(gradient, Simplex(), (), torch.ones(3) / 3, max_iterations=1)
    stochastic_homotopy_cgm(gradient, Simplex(), (), np.ones(3) / 3, max_iterations=1)
    assert kinds[0] == (torch.Tensor, torch.Generator)
    assert kinds[-1] == (np.ndarray, np.random.Generator)


def test_runs_can_be_watched_limited_and_repeated() -> None:
    seen: list[Any] = []
    result = stochastic_homotopy_cgm(
        noisy(),
        Simplex(),
        CONSTRAINT,
        np.full(20, 0.05),
        max_iterations=50,
        evaluate_every=20,
        callback=lambda state: (seen.append(state), state.iteration == 30)[1],
    )
    assert result.status == "stopped by callback"
    assert result.iterations == 30
    assert [np.isfinite(result.trace.value[k]) for k in (0, 1, 20, 30)] == [True, False, True, True]
    np.testing.assert_array_equal(seen[-1].x, result.x)
    again = stochastic_homotopy_cgm(noisy(), Simplex(), CONSTRAINT, np.full(20, 0.05), max_iterations=30)
    np.testing.assert_array_equal(again.x, result.x)
    other = stochastic_homotopy_cgm(noisy(), Simplex(), CONSTRAINT, np.full(20, 0.05), seed=1, max_iterations=30)
    assert np.abs(other.x - result.x).max() > 0
    assert stochastic_homotopy_cgm(noisy(), Simplex(), (), np.ones(20) / 20, time_limit=0).status == "time limit"


def test_inputs_are_left_alone() -> None:
    distances = np.eye(4)
    x0 = np.full((4, 4), 0.25)
    linear = Differentiable(lambda x: (torch.eye(4) * x).sum(), gradient=lambda x: torch.from_numpy(distances))
    stochastic_homotopy_cgm(linear, NuclearBall(1.0), Box(0, 1), x0, max_iterations=5)
    homotopy_cgm(linear, NuclearBall(1.0), Box(0, 1), x0, max_iterations=5)
    np.testing.assert_array_equal(distances, np.eye(4))
    np.testing.assert_array_equal(x0, np.full((4, 4), 0.25))


def test_least_squares_over_a_dictionary() -> None:
    rng = np.random.default_rng(3)
    matrix, target = rng.standard_normal((10, 5)), rng.standard_normal(10)
    result = homotopy_cgm(LeastSquares(matrix, target), L1Ball(2.0), Box(lower=0), max_iterations=5000, beta0=0.5)
    best = scipy.optimize.nnls(matrix, target)[0]
    assert best.sum() < 2.0
    np.testing.assert_allclose(result.x, best, atol=0.05)


X0 = np.full(20, 0.05)
BAD: list[tuple[str, Callable[[], Any], str]] = [
    ("beta0", lambda: homotopy_cgm(A, Simplex(), CONSTRAINT, beta0=0.0), "beta0 is 0.0: expected a positive"),
    ("no term", lambda: homotopy_cgm(A, Simplex(), [3]), "a constraint is a int: expected a term"),
    ("no shape", lambda: stochastic_homotopy_cgm(lambda x, g: x, Simplex()), "the shape of x is unknown: give x0"),
    ("shape of the start", lambda: homotopy_cgm(A, Simplex(), (), np.ones(3)), r"x0 has shape \[3\]"),
    (
        "shape of the gradient",
        lambda: stochastic_homotopy_cgm(lambda x, g: x[:2], Simplex(), (), X0),
        r"the stochastic gradient has shape \[2\] but x has \[20\]",
    ),
    (
        "non-finite gradient",
        lambda: stochastic_homotopy_cgm(lambda x, g: x * np.nan, Simplex(), (), X0),
        "the stochastic gradient has non-finite entries",
    ),
    ("no objective", lambda: stochastic_homotopy_cgm(3, Simplex()), "objective is a int: expected a function"),
    ("no gradient", lambda: Sampled(3), "gradient is a int"),  # type: ignore[arg-type]
    (
        "schedule",
        lambda: homotopy_cgm(A, Simplex(), CONSTRAINT, step=lambda k: 2.0),
        "the schedules give η = 2.0.*at k = 1: expected η and ρ in",
    ),
    ("evaluations", lambda: homotopy_cgm(A, Simplex(), evaluate_every=0), "evaluate_every is 0: expected at least 1"),
    (
        "error without smoothness",
        lambda: stochastic_homotopy_cgm(lambda x, g: x, Simplex(), (), X0, oracle_error=1.0),
        "oracle_error needs the diameter of the set and the smoothness of f",
    ),
    ("negative error", lambda: homotopy_cgm(A, Simplex(), oracle_error=-1.0), "oracle_error is -1.0: expected 0"),
    ("entries outside", lambda: SampledEntries([3], [0], [1.0], (2, 2)), r"entries up to \(3, 0\) for a matrix"),
    ("entry twice", lambda: SampledEntries([1, 1], [0, 0], [1.0, 2.0], (2, 2)), r"entry \(1, 0\) is given more than"),
    ("no entries", lambda: SampledEntries([], [], [], (2, 2)), "0 rows, 0 columns, 0 values"),
    ("empty batch", lambda: SampledEntries([1], [0], [1.0], (2, 2), batch_size=0), "batch_size is 0"),
    (
        "S3CCM with a map",
        lambda: s3ccm(lambda x, g: x, lambda x: x, CONSTRAINT, X0),
        "has a map: S3CCM takes terms of θ itself",
    ),
    ("no projection", lambda: s3ccm(A, 5), "project is a int: expected a function"),  # type: ignore[arg-type]
    ("tolerance", lambda: augmented_lagrangian_cgm(A, Simplex(), tol=-1.0), "tol is -1.0 and feasibility_tol 0.001"),
    ("state without an objective", lambda: Homotopy(5, Simplex(), (), X0, Schedule.cgal()), "objective is a int"),
    ("power of the mean", lambda: augmented_lagrangian_cgm(A, Simplex(), mean=-1.0), "mean is -1.0: expected a power"),
    ("schedule by name", lambda: Homotopy(A, Simplex(), (), X0, "cgal"), "schedule is a str: expected a Schedule"),  # type: ignore[arg-type]
    ("gamma", lambda: s3ccm(lambda x, g: x, lambda x: x, None, X0, gamma=-1.0), "gamma is -1.0 at k = 1"),
    (
        "splitting by projection",
        lambda: minimise_over_intersection(A, Simplex(), Simplex(), splitting="projection"),
        "needs a constraint as the second set",
    ),
    (
        "shapes of an intersection",
        lambda: minimise_over_intersection(A, Simplex(dim=20), Simplex(dim=3)),
        "do not intersect: expected the same",
    ),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
