"""Objectives: values, gradients and constants are right, and incremental products stay so."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

from unknot.solvers import Differentiable, LeastSquares, Logistic, Objective, Quadratic, SquaredDistance
from unknot.solvers.atoms import AtomSet, Dictionary, L1Ball, L2Ball
from unknot.solvers.lines import Direction, Point, along
from unknot.solvers.objectives import REFRESH_EVERY

RNG = np.random.default_rng(0)
A = RNG.standard_normal((12, 8))
B = RNG.standard_normal(12)
Q = A.T @ A
MASK = (RNG.random(8) > 0.3).astype(float)
SPARSE = scipy.sparse.csr_matrix(np.where(np.abs(A) > 0.7, A, 0.0))
TA, TB = torch.from_numpy(A), torch.from_numpy(B)

OBJECTIVES: dict[str, tuple[Objective, object]] = {
    "distance": (SquaredDistance(B[:8]), lambda x: (x - TB[:8]).square().sum() / 2),
    "masked": (
        SquaredDistance(B[:8], mask=MASK),
        lambda x: (torch.from_numpy(MASK) * (x - TB[:8]).square()).sum() / 2,
    ),
    "quadratic": (Quadratic(Q, B[:8], 3.0), lambda x: x @ torch.from_numpy(Q) @ x / 2 - TB[:8] @ x + 3.0),
    "least squares": (LeastSquares(A, B), lambda x: (TA @ x - TB).square().sum() / 2),
    "mean least squares": (LeastSquares(A, B, reduction="mean"), lambda x: (TA @ x - TB).square().mean() / 2),
    "sparse": (
        LeastSquares(SPARSE, B),
        lambda x: (torch.from_numpy(SPARSE.toarray()) @ x - TB).square().sum() / 2,
    ),
    "logistic": (Logistic(A, B > 0), lambda x: torch.log1p(torch.exp(-torch.sign(TB) * (TA @ x))).sum()),
    "mean logistic": (
        Logistic(A, np.sign(B), reduction="mean"),
        lambda x: torch.log1p(torch.exp(-torch.sign(TB) * (TA @ x))).mean(),
    ),
    "autograd": (Differentiable(lambda x: (TA @ x).exp().sum()), lambda x: (TA @ x).exp().sum()),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_value_and_gradient_are_those_of_the_formula(name: str) -> None:
    f, formula = OBJECTIVES[name]
    x = RNG.standard_normal(8)
    leaf = torch.from_numpy(x).clone().requires_grad_(True)
    value = formula(leaf)  # type: ignore[operator]
    value.backward()
    assert f(x) == pytest.approx(value.item())
    np.testing.assert_allclose(f.gradient(x), leaf.grad, rtol=1e-10, atol=1e-12)
    assert isinstance(f.gradient(torch.from_numpy(x)), torch.Tensor)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_moving_point_agrees_with_a_fresh_one(name: str) -> None:
    f, _ = OBJECTIVES[name]
    rng = np.random.default_rng(1)
    zero = torch.zeros(8, dtype=torch.float64)
    sparse = scipy.sparse.random(8, 5, density=0.5, random_state=1) + 0.1 * scipy.sparse.eye(8, 5)
    for atoms in (L1Ball(0.5), L2Ball(0.5), Dictionary(rng.standard_normal((8, 5)) / 4), Dictionary(sparse)):
        _check_moves(f, f.at(zero.clone()), f.at(zero + 1.0), atoms)


def _check_moves(f: Objective, point: Point, other: Point, atoms: AtomSet) -> None:
    generator = torch.Generator().manual_seed(0)
    for step in range(24):
        z, v = atoms.sample(point.x, generator), atoms.sample(point.x, generator)
        choices = [
            Direction(-1.0, ((1.0, z),)),
            Direction(1.0, ((-1.0, v),)),
            along(z),
            Direction(0.0, ((1, z), (-1, v))),
        ]
        direction = choices[step % 4]
        line = point.along(direction)
        d = direction.dense(point.x).numpy()
        here, gradient = point.x.numpy().copy(), f.gradient(point.x.numpy())
        assert line.slope == pytest.approx(float(gradient @ d), rel=1e-9, abs=1e-9)
        assert line.squared_norm == pytest.approx(float(d @ d))
        assert line.change(0.1) == pytest.approx(f(here + 0.1 * d) - f(here), rel=1e-6, abs=1e-9)
        assert line.derivative(0.1) == pytest.approx(float(f.gradient(here + 0.1 * d) @ d), rel=1e-7, abs=1e-9)
        point.move(line, 0.1)
        if step % 7 == 0:
            point.blend(other, 0.25)
        np.testing.assert_allclose(point.gradient(), f.gradient(point.x.numpy()), rtol=1e-9, atol=1e-9)
        assert point.value() == pytest.approx(f(point.x.numpy()), rel=1e-10, abs=1e-12)


def test_products_do_not_drift_over_many_moves() -> None:
    f = LeastSquares(A, B)
    point = f.at(torch.zeros(8, dtype=torch.float64))
    ball = L1Ball(3.0)
    for _ in range(3 * REFRESH_EVERY + 10):
        line = point.along(Direction(-1.0, ((1.0, ball.atom(point.gradient())),)))
        point.move(line, line.minimise(1.0))
    np.testing.assert_allclose(point.gradient(), f.gradient(point.x.numpy()), atol=1e-12)
    assert point.refresh()
    assert not point.refresh()


@pytest.mark.parametrize("name", ["distance", "masked", "quadratic", "least squares", "mean least squares", "sparse"])
def test_smoothness_and_strong_convexity_are_the_extreme_curvatures(name: str) -> None:
    f, _ = OBJECTIVES[name]
    zero = np.zeros(8)
    hessian = np.stack([f.gradient(e) - f.gradient(zero) for e in np.eye(8)])
    values = np.linalg.eigvalsh(hessian)
    assert f.smoothness == pytest.approx(values[-1])
    assert f.strong_convexity == pytest.approx(values[0], abs=1e-9)


def test_logistic_smoothness_is_an_upper_bound_and_tight_at_zero() -> None:
    f = Logistic(A, B > 0)
    step = 1e-5
    hessian = np.stack([(f.gradient(step * e) - f.gradient(-step * e)) / (2 * step) for e in np.eye(8)])
    assert np.linalg.eigvalsh(hessian)[-1] == pytest.approx(f.smoothness, rel=1e-4)


def test_wide_least_squares_is_not_strongly_convex() -> None:
    assert LeastSquares(A.T, RNG.standard_normal(8)).strong_convexity == 0


@pytest.mark.parametrize("largest", [0.3, 100.0, math.inf])
def test_line_search_finds_the_minimum(largest: float) -> None:
    f = Logistic(A, B > 0)
    point = f.at(torch.zeros(8, dtype=torch.float64))
    line = point.along(along(L1Ball(1.0).atom(point.gradient())))
    step = line.minimise(largest)
    assert 0 < step <= largest
    if step < largest:
        assert line.derivative(step) == pytest.approx(0, abs=1e-9)
    else:
        assert line.derivative(step) < 0


def test_quadratic_line_search_meets_zero_slope() -> None:
    f = LeastSquares(A, B)
    point = f.at(torch.zeros(8, dtype=torch.float64))
    line = point.along(along(L1Ball(1.0).atom(point.gradient())))
    assert line.derivative(line.minimise(math.inf)) == pytest.approx(0, abs=1e-12)
    assert line.minimise(1e-3) == 1e-3
