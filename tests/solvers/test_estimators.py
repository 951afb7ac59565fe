"""The linear models for scikit-learn, and Frank-Wolfe on finite sums."""

import warnings
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, orthogonal_mp
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
from unknot.solvers.estimators import _Softmax


@pytest.mark.parametrize(
    "model",
    [
        OrthogonalPursuitRegressor(),
        NonNegativePursuitRegressor(),
        NonNegativePursuitRegressor(variant="pairwise"),
        ConstrainedLogisticRegression(tol=1e-2, max_iter=30),
    ],
    ids=str,
)
def test_scikit_learn_contract(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(model, expected_failed_checks=getattr(model, "expected_failed_checks", None))


def test_orthogonal_pursuit_finds_what_scikit_learn_finds() -> None:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((60, 30)), np.zeros((2, 30))
    w[0, [1, 5]], w[1, [2, 20]] = (1.0, -2.0), (3.0, 0.5)
    model = OrthogonalPursuitRegressor(2, fit_intercept=False).fit(X, X @ w.T)
    np.testing.assert_allclose(model.coef_, orthogonal_mp(X, X @ w.T, n_nonzero_coefs=2).T, atol=1e-10)


def problem(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8)) * (rng.random((60, 8)) < 0.5)
    scores = X[:, :3] + 0.5 * rng.standard_normal((60, 3))
    return X, {"regression": scores.sum(1), "two": scores[:, 0] > 0, "three": scores.argmax(1)}[kind]


FACES = [
    (OrthogonalPursuitRegressor(3), "regression"),
    (OrthogonalPursuitRegressor(3, fit_intercept=False), "regression"),
    (NonNegativePursuitRegressor(), "regression"),
    (ConstrainedLogisticRegression(2.0, tol=1e-6), "two"),
    (ConstrainedLogisticRegression(2.0, tol=1e-6), "three"),
    (ConstrainedLogisticRegression(2.0, tol=1e-3, constraint="group", groups=[0] * 4 + [1] * 4, max_iter=20), "three"),
]


@pytest.mark.parametrize(("model", "kind"), FACES, ids=lambda value: type(value).__name__)
def test_sparse_weighted_and_framed_samples(model: Any, kind: str) -> None:
    """Sparse samples and DataFrames give what dense arrays do; a weight is a number of copies."""
    X, y = problem(kind)
    near = {"atol": 1e-3 if kind != "regression" else 1e-8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        dense = clone(model).fit(X, y)
        sparse = clone(model).fit(scipy.sparse.csc_array(X), y)
        np.testing.assert_allclose(sparse.coef_, dense.coef_, **near)
        np.testing.assert_allclose(sparse.intercept_, dense.intercept_, **near)
        np.testing.assert_allclose(sparse.predict(scipy.sparse.csr_matrix(X)), dense.predict(X), **near)
        frame = pandas.DataFrame(X, columns=list("abcdefgh"))
        framed = clone(model).fit(frame, pandas.Series(y))
        np.testing.assert_allclose(framed.coef_, dense.coef_, atol=1e-12)
        assert framed.feature_names_in_.tolist() == list("abcdefgh")
        weights = np.random.default_rng(1).integers(0, 4, 60)
        for samples in (X, scipy.sparse.csr_array(X)):
            weighted = clone(model).fit(samples, y, sample_weight=weights)
            copied = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0))
            np.testing.assert_allclose(weighted.coef_, copied.coef_, **near)
            np.testing.assert_allclose(weighted.intercept_, copied.intercept_, **near)
    with pytest.raises(ValueError, match="at least one non-zero"):
        clone(model).fit(X, y, sample_weight=np.zeros(60))


def test_many_classes() -> None:
    """The loss is PyTorch's cross entropy, the answer optimal by its gap; two classes against scikit-learn."""
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    model = ConstrainedLogisticRegression(30.0, tol=1e-3, max_iter=5000).fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert np.abs(model.coef_).sum() <= 30 * (1 + 1e-9)
    scores = torch.from_numpy(model.decision_function(X))
    assert float(torch.nn.functional.cross_entropy(scores, torch.from_numpy(y))) == pytest.approx(model.result_.value)
    np.testing.assert_allclose(model.predict_proba(X), scores.softmax(1), atol=1e-12)
    assert model.score(X, y) > 0.95
    assert model.result_.gap <= 1e-3
    f = _Softmax(X, X.mean(0), y, np.random.default_rng(1).random(150), 0.1)
    x = np.random.default_rng(0).standard_normal(12)
    slopes = [(f(x + row) - f(x - row)) / 2e-6 for row in 1e-6 * np.eye(12)]
    np.testing.assert_allclose(f.gradient(x), slopes, atol=1e-7)
    two = ConstrainedLogisticRegression(1e4, constraint="l2", tol=1e-9, variant="plain", ridge=0.05).fit(
        X[:, 1:3], y > 0
    )
    assert two.result_.converged, two.result_
    own = LogisticRegression(C=1 / (0.05 * 150), tol=1e-10).fit(X[:, 1:3], y > 0)
    np.testing.assert_allclose(two.coef_, own.coef_, atol=1e-3)
    np.testing.assert_allclose(two.intercept_, own.intercept_, atol=1e-3)
    with pytest.raises(ValueError, match="y has one class"):
        ConstrainedLogisticRegression().fit(X[:20], y[:20])


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_path_and_early_end_of_orthogonal_pursuit(make: Any) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 12)), rng.standard_normal((40, 2))
    options: dict[str, Any] = {"fit_intercept": False, "return_path": True, "tol": 0}
    path = OrthogonalPursuitRegressor(5, **options).fit(make(X), Y).coef_path_
    expected = orthogonal_mp(X, Y, n_nonzero_coefs=5, return_path=True)
    np.testing.assert_allclose(path, expected.transpose(1, 0, 2), atol=1e-9)
    single = OrthogonalPursuitRegressor(5, **options).fit(make(X), Y[:, 0])
    np.testing.assert_allclose(single.coef_path_, path[0])
    np.testing.assert_allclose(single.coef_path_[:, -1], single.coef_)
    with pytest.warns(ConvergenceWarning, match="ended with 3 of 5 features"):
        OrthogonalPursuitRegressor(5).fit(make(np.hstack([X[:, :3], X[:, :3]])), Y[:, 0])


def test_early_ends_are_warned_of() -> None:
    X, y = problem("regression")
    with pytest.warns(ConvergenceWarning, match="ended early, max iterations"):
        NonNegativePursuitRegressor(max_iter=1).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        ConstrainedLogisticRegression(max_iter=1).fit(X, y > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NonNegativePursuitRegressor().fit(X, y)
        OrthogonalPursuitRegressor(3).fit(X, y)


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
