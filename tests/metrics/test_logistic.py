"""Logistic regressions: the objective is convex, so that scikit-learn's, solved to the end, is the one answer."""

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import KFold

from unknot.metrics.functional import downstream_accuracy
from unknot.metrics.functional.logistic import Problem, cross_validated

SIZES = (2, 3, 12)


def draw(n=300, seed=0):
    """Factors of two, three and twelve classes, and codes of very unlike scales."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, SIZES, size=(n, 3))
    codes = np.hstack([factors / SIZES, rng.normal(size=(n, 2))]) + 0.2 * rng.normal(size=(n, 5))
    return codes * [1.0, 10.0, 0.3, 0.01, 3.0] + [0.0, 5.0, 0.0, -1.0, 0.0], factors


def objective(logits, weights, labels, strength):
    loss = logsumexp(logits, axis=1) - logits[np.arange(len(labels)), labels]
    return loss.mean() + (weights**2).sum() / (2 * strength * len(labels))


@pytest.mark.parametrize("strength", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("place", range(3))
def test_is_the_minimum_that_scikit_learn_finds(strength, place):
    codes, factors = draw()
    codes, labels = codes - codes.mean(0), factors[:, place]
    model = LogisticRegression(C=strength, tol=1e-10, max_iter=20_000).fit(codes, labels)
    exact, near = (Problem(codes, labels, model.classes_, *tolerance).solve(strength) for tolerance in [(1e-8,), ()])
    logits = exact[:, 0] + codes @ exact[:, 1:].T
    np.testing.assert_allclose(softmax(logits, axis=1), model.predict_proba(codes), atol=2e-5)
    least, rough = (
        objective(weights[:, 0] + codes @ weights[:, 1:].T, weights[:, 1:], labels, strength)
        for weights in (exact, near)
    )
    assert least <= rough <= least + 1e-5  # the default tolerance


def test_cross_validation_is_that_of_scikit_learn():
    codes, factors = draw(200)
    others, truth = draw(1000, seed=1)
    predicted = cross_validated(codes, factors).predict(others)
    for place, labels in enumerate(factors.T):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegressionCV(
                Cs=10, cv=KFold(5), scoring="accuracy", max_iter=5_000, tol=1e-7, use_legacy_attributes=False
            ).fit(codes, labels)
        theirs = model.predict(others)
        assert np.mean(predicted[:, place] == theirs) > 0.99
        assert np.mean(predicted[:, place] == truth[:, place]) > 1.5 / SIZES[place]


def test_scikit_learns_own_is_a_choice():
    codes, factors = draw(200)
    others, truth = draw(20_000, seed=1)  # so many that two sets of weights hardly get equally many right
    by = {
        backend: downstream_accuracy(codes, factors, others, truth, "lr", backend) for backend in ("unknot", "sklearn")
    }
    assert by["sklearn"] == pytest.approx(by["unknot"], abs=0.03)
    assert by["sklearn"] != by["unknot"]  # it stops on the way


def test_classes_that_a_fold_lacks_and_factors_that_do_not_vary():
    codes = np.linspace(-1, 1, 10)[:, None]
    factors = np.column_stack([np.arange(10) // 2, np.full(10, 7), np.arange(10) // 5])
    predicted = cross_validated(codes, factors).predict(codes)
    assert (predicted[:, 1] == 7).all()
    assert set(predicted[:, 0]) <= set(range(5))
    np.testing.assert_array_equal(predicted[:, 2], factors[:, 2])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_hardly_any_samples(n):
    codes, factors = draw(n)
    assert cross_validated(codes, factors).predict(codes).shape == (n, 3)


def test_separable_classes_have_finite_weights():
    factors = np.repeat(np.arange(3), 20)
    weights = Problem(factors[:, None] - 1.0, factors, np.arange(3)).solve(1e4)
    assert np.isfinite(weights).all()
