"""The linear models for scikit-learn, and Frank-Wolfe on finite sums."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import orthogonal_mp
from sklearn.utils.estimator_checks import check_estimator

from unknot.solvers import (
    ConstrainedLogisticRegression,
    LeastSquares,
    Logistic,
    NonNegativePursuitRegressor,
    OrthogonalPursuitRegressor,
    frank_wolfe,
    variance_reduced_frank_wolfe,
)
from unknot.solvers.atoms import L1Ball


@pytest.mark.parametrize(
    "model",
    [OrthogonalPursuitRegressor(), NonNegativePursuitRegressor(), ConstrainedLogisticRegression()],
    ids=lambda model: type(model).__name__,
)
def test_scikit_learn_contract(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(model)


def test_orthogonal_pursuit_finds_what_scikit_learn_finds() -> None:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((60, 30)), np.zeros((2, 30))
    w[0, [1, 5]], w[1, [2, 20]] = (1.0, -2.0), (3.0, 0.5)
    model = OrthogonalPursuitRegressor(2, fit_intercept=False).fit(X, X @ w.T)
    np.testing.assert_allclose(model.coef_, orthogonal_mp(X, X @ w.T, n_nonzero_coefs=2).T, atol=1e-10)


def test_constraints_of_the_classifier() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 6))
    y = X[:, 0] + X[:, 1] > 0.3
    for options in ({}, {"constraint": "l2"}, {"constraint": "k-sparse", "k": 2}):
        model = ConstrainedLogisticRegression(2.0, tol=1e-3, **options).fit(X, y)
        assert model.score(X, y) > 0.9
        assert model.predict_proba(X).sum(1) == pytest.approx(1.0)
    grouped = ConstrainedLogisticRegression(2.0, constraint="group", groups=[0, 0, 1, 1, 2, 2], tol=1e-3).fit(X, y)
    assert np.abs(grouped.coef_[0, :2]).min() > 10 * np.abs(grouped.coef_[0, 2:]).max()
    again = ConstrainedLogisticRegression(2.0, tol=1e-3, warm_start=True).fit(X, y)
    assert again.fit(X, y).n_iter_ <= 1
    with pytest.raises(ValueError, match="constraint 'l3' is unknown"):
        ConstrainedLogisticRegression(constraint="l3").fit(X, y)
    with pytest.raises(ValueError, match="groups should name the group"):
        ConstrainedLogisticRegression(constraint="group").fit(X, y)
    with pytest.raises(ValueError, match="n_nonzero_coefs is 0"):
        OrthogonalPursuitRegressor(0).fit(X, X[:, 0])


@pytest.mark.parametrize("kind", ["least squares", "logistic", "sparse"])
def test_variance_reduction(kind: str) -> None:
    rng = np.random.default_rng(0)
    matrix, target = rng.standard_normal((300, 8)), rng.standard_normal(300)
    given = scipy.sparse.csr_array(matrix) if kind == "sparse" else matrix
    f: Any = LeastSquares(given, target, "mean")
    if kind == "logistic":
        f = Logistic(given, target > 0, "mean", ridge=0.1)
    best = frank_wolfe(f, L1Ball(0.05), variant="pairwise", tol=1e-10).value
    result = variance_reduced_frank_wolfe(f, L1Ball(0.05), batch_size=10, tol=1e-3, max_iterations=6000)
    assert result.converged
    known = np.isfinite(result.trace.value)
    assert (result.trace.gap[known] >= result.trace.value[known] - best - 1e-10).all()
    assert known.sum() < result.iterations / 10
    stopped = variance_reduced_frank_wolfe(f, L1Ball(0.05), batch_size=10, callback=lambda s: s.iteration == 7)
    assert np.isfinite([stopped.value, stopped.gap]).all()
    with pytest.raises(ValueError, match="batch_size is 0"):
        variance_reduced_frank_wolfe(f, L1Ball(0.05), batch_size=0)
    with pytest.raises(ValueError, match="expected a sum over rows"):
        variance_reduced_frank_wolfe(np.ones(3), L1Ball(1.0))
