"""Terms g(Aθ): proximal maps, adjoints, norms and projections."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unknot.solvers.terms import (
    Agreement,
    Box,
    Constraint,
    L1Norm,
    Linear,
    Sums,
    Term,
    project_l1_ball,
    project_nuclear_ball,
    project_psd_trace,
    project_simplex,
)

VECTORS = arrays(np.float64, 6, elements=st.floats(-10, 10))
MATRIX = np.random.default_rng(0).standard_normal((4, 6))


def terms() -> list[tuple[Term, tuple[int, ...]]]:
    return [
        (Box(-1.0, 2.0), (6,)),
        (Linear(MATRIX, -1.0, np.arange(4.0)), (6,)),
        (Sums(1.0, axis=0), (2, 3)),
        (Sums(2.0, axis=1), (2, 3)),
        (L1Norm(0.7), (6,)),
        (L1Norm(0.7, MATRIX), (6,)),
        (Agreement(3), (6,)),
        (Constraint(lambda y: y / max(1.0, float(np.linalg.norm(y))), name="ball"), (6,)),
    ]


@settings(max_examples=20, deadline=None)
@given(x=VECTORS, y=VECTORS, beta=st.floats(0.1, 5))
def test_prox_is_firmly_nonexpansive_and_adjoints_match(x: np.ndarray, y: np.ndarray, beta: float) -> None:
    for term, shape in terms():
        like = torch.zeros(shape, dtype=torch.float64)
        bound = term.bind(like, numpy=True)
        a, b = (bound.apply(torch.from_numpy(v).reshape(shape)) for v in (x, y))
        p, r = bound.prox(a, beta), bound.prox(b, beta)
        assert float(((p - r) * (a - b)).sum()) >= float((p - r).square().sum()) - 1e-9
        other = bound.adjoint(b, like)
        left, right = float((a * b).sum()), float((torch.from_numpy(x).reshape(shape) * other).sum())
        assert left == pytest.approx(right, rel=1e-9, abs=1e-8)


def test_norms_are_operator_norms() -> None:
    for term, shape in terms():
        like = torch.zeros(shape, dtype=torch.float64)
        basis = torch.eye(6, dtype=torch.float64).reshape(6, *shape)
        matrix = torch.stack([term.bind(like, numpy=True).apply(e).reshape(-1) for e in basis], dim=1)
        assert term.bind(like, numpy=True).norm(like) == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)))
    free = Term(lambda y, beta: y, map=lambda x: 3 * x[:2], adjoint=lambda y: np.append(3 * y, np.zeros(4)))
    assert free.bind(torch.zeros(6, dtype=torch.float64), True).norm(torch.zeros(6).double()) == pytest.approx(3.0)


@settings(max_examples=25, deadline=None)
@given(y=VECTORS, radius=st.floats(0.5, 4))
def test_projections_are_nearest_points(y: np.ndarray, radius: float) -> None:
    point = project_simplex(y, radius)
    assert point.min() >= 0
    assert point.sum() == pytest.approx(radius)
    # Nearest: y - point makes no acute angle with the way to any vertex.
    assert ((y - point) @ (radius * np.eye(6) - point).T).max() <= 1e-7
    ball = project_l1_ball(y, radius)
    assert np.abs(ball).sum() <= radius + 1e-9
    assert (y - ball) @ ball >= radius * np.abs(y - ball).max() - 1e-7 or np.allclose(y, ball)


def test_matrix_projections() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((5, 4))
    nearest = project_nuclear_ball(matrix, 2.0)
    assert np.linalg.svd(nearest, compute_uv=False).sum() == pytest.approx(2.0)
    rest = matrix - nearest
    assert (rest * nearest).sum() == pytest.approx(2.0 * np.linalg.norm(rest, 2))
    np.testing.assert_array_equal(project_nuclear_ball(nearest, 3.0), nearest)
    psd = project_psd_trace(matrix[:4], 2.0)
    assert np.trace(psd) == pytest.approx(2.0)
    assert np.linalg.eigvalsh(psd).min() >= -1e-9
    assert isinstance(project_psd_trace(torch.eye(3)), torch.Tensor)


def test_prox_depends_on_beta_for_lipschitz_terms_only() -> None:
    y = torch.tensor([3.0, -0.2], dtype=torch.float64)
    np.testing.assert_allclose(L1Norm(2.0).prox(y, 0.5), [2.0, 0.0])
    for beta in (0.1, 10.0):
        np.testing.assert_allclose(Box(0.0, 1.0).prox(y, beta), [1.0, 0.0])

    def envelope(z: float) -> float:
        return 2.0 * abs(z) + (z - 3.0) ** 2 / (2 * 0.5)

    assert scipy.optimize.minimize_scalar(envelope).x == pytest.approx(2.0, abs=1e-6)


BAD: list[tuple[str, Callable[[], object], str]] = [
    ("empty box", lambda: Box(2.0, 1.0), r"the box \[2.0, 1.0\] is empty: expected lower <= upper"),
    ("map without adjoint", lambda: Term(lambda y, b: y, map=lambda x: x), "a map without its adjoint: give both"),
    ("no prox", lambda: Term(3), "prox of term is a int: expected a function"),  # type: ignore[arg-type]
    ("no projection", lambda: Constraint(3), "project of constraint is a int"),  # type: ignore[arg-type]
    ("norm of zero", lambda: Term(lambda y, b: y, norm=0.0), "norm of term is 0.0: expected"),
    ("axis", lambda: Sums(axis=2), "axis is 2: expected 0"),
    ("crossed bounds", lambda: Linear(MATRIX, 1.0, 0.0), "a lower bound of linear is above"),
    ("NaN bound", lambda: Linear(MATRIX, np.nan), "a bound of linear is NaN"),
    ("shape of a bound", lambda: Linear(MATRIX, np.zeros(3)), r"has shape \[3\]: expected a number or \[4\]"),
    ("negative weight", lambda: L1Norm(-1.0), "weight is -1.0: expected a positive"),
    ("columns", lambda: Linear(MATRIX, 0.0).bind(torch.zeros(5), False), "has 6 columns but x has 5 entries"),
    ("vector for a matrix", lambda: Sums().residual(torch.zeros(5), 1.0), r"needs a matrix, but x has shape \[5\]"),
    (
        "adjoint of another shape",
        lambda: Term(lambda y, b: y, map=lambda x: x, adjoint=lambda y: y[:2]).bind(torch.zeros(5), False),
        r"the adjoint of term returned \[2\]",
    ),
    (
        "prox of another shape",
        lambda: Constraint(lambda y: y[:2]).bind(torch.zeros(5), False).residual(torch.zeros(5), 1.0),
        r"prox of constraint returned \[2\] for \[5\]",
    ),
    (
        "map that is zero",
        lambda: Term(lambda y, b: y, map=lambda x: 0 * x, adjoint=lambda y: 0 * y).norm(torch.zeros(3)),
        "the map of term is 0",
    ),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_terms(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
