"""Dependence among codes: closed forms of Gaussians, SciPy's matrix square root, scikit-learn's information."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from sklearn.metrics import mutual_info_score

from unknot.metrics.functional import pairwise_information, total_correlation, wasserstein_dependence

SCORES = (total_correlation, wasserstein_dependence, pairwise_information)


def exactly(covariance, n=200, seed=0):
    """Codes whose sample covariance is this matrix, to rounding."""
    rng = np.random.default_rng(seed)
    white = rng.normal(size=(n, len(covariance)))
    white -= white.mean(0)
    white = white @ np.linalg.inv(np.linalg.cholesky(np.cov(white, rowvar=False))).T
    return white @ np.linalg.cholesky(covariance).T


def random_covariance(d, seed):
    root = np.random.default_rng(seed).normal(size=(d, d + 2))
    return root @ root.T


@pytest.mark.parametrize("rho", [0.0, 0.3, -0.9, 0.999])
def test_total_correlation_of_two_codes(rho):
    codes = exactly(np.array([[4.0, 2 * rho * 3], [2 * rho * 3, 9.0]]))
    assert total_correlation(codes) == pytest.approx(-0.5 * np.log(1 - rho**2), abs=1e-10)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(d=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_gaussian_formulae(d, seed):
    covariance = random_covariance(d, seed)
    codes = exactly(covariance, seed=seed)
    variances = np.diag(covariance)
    tc = 0.5 * (np.log(variances).sum() - np.linalg.slogdet(covariance)[1])
    assert total_correlation(codes) == pytest.approx(tc, rel=1e-6, abs=1e-9)
    w = 2 * variances.sum() - 2 * np.trace(sqrtm(np.diag(variances) @ covariance)).real
    assert wasserstein_dependence(codes) == pytest.approx(w, rel=1e-6, abs=1e-8)
    assert wasserstein_dependence(codes, normalized=True) == pytest.approx(w / variances.sum(), rel=1e-6, abs=1e-8)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(d=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_scales_shifts_and_order_of_codes_do_not_matter(d, seed):
    codes = exactly(random_covariance(d, seed), seed=seed)
    rng = np.random.default_rng(seed)
    moved = (codes * 2.0 ** rng.integers(-4, 5, d) + rng.normal(size=d))[:, rng.permutation(d)]
    assert total_correlation(moved) == pytest.approx(total_correlation(codes), rel=1e-6, abs=1e-9)
    turned = codes[rng.permutation(len(codes))][:, rng.permutation(d)]
    for score in SCORES:
        assert score(turned) == pytest.approx(score(codes), rel=1e-6, abs=1e-9)
    for normalized in (True, False):
        scaled = wasserstein_dependence(3 * codes, normalized)
        assert scaled == pytest.approx((1 if normalized else 9) * wasserstein_dependence(codes, normalized), rel=1e-6)


def test_pairwise_information_is_the_mean_over_pairs():
    codes = exactly(random_covariance(4, 1), n=400)
    classes = [np.digitize(code, np.histogram(code, 20)[1][:-1]) for code in codes.T]
    expected = [mutual_info_score(a, b) for i, a in enumerate(classes) for j, b in enumerate(classes) if i != j]
    assert pairwise_information(codes) == pytest.approx(np.mean(expected), abs=1e-9)
    assert pairwise_information(codes, bins=5) < pairwise_information(codes)


def test_uncorrelated_codes():
    codes = exactly(np.diag([1.0, 4.0, 9.0]))
    assert total_correlation(codes) == pytest.approx(0, abs=1e-12)
    assert wasserstein_dependence(codes) == pytest.approx(0, abs=1e-6)
    assert total_correlation(codes) >= 0
    assert wasserstein_dependence(codes) >= 0


@pytest.mark.parametrize("seed", range(20))
def test_codes_that_determine_each_other_count_18_nats_for_each_dependence(seed):
    rng = np.random.default_rng(seed)
    codes = rng.normal(size=(300, 3)) * 10.0 ** rng.uniform(-3, 3, 3)
    most = -0.5 * np.log(np.finfo(float).eps)
    assert 17 < total_correlation(np.hstack([codes, -7 * codes[:, :1] + 3])) - total_correlation(codes) < most
    twice = total_correlation(np.hstack([codes, codes]))
    assert 50 < twice < 70  # what rounding leaves the reference
    assert 10 < total_correlation(np.hstack([codes, codes @ rng.normal(size=(3, 1))])) < twice
    assert np.isfinite(wasserstein_dependence(np.hstack([codes, codes])))
    assert 10 < total_correlation(codes[:3]) < np.inf  # fewer samples than dimensions


def test_nearly_determined_is_finite():
    codes = exactly(np.array([[1.0, 1 - 1e-9], [1 - 1e-9, 1.0]]))
    assert total_correlation(codes) == pytest.approx(-0.5 * np.log(2e-9), abs=0.01)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e17])
def test_constant_codes_are_independent_of_everything(value):
    codes = exactly(random_covariance(3, 0))
    padded = np.hstack([codes, np.full((len(codes), 2), value)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert total_correlation(padded) == total_correlation(codes)
        assert wasserstein_dependence(padded) == wasserstein_dependence(codes)
        for score in SCORES:
            assert score(np.full((10, 3), value)) == 0.0
        assert wasserstein_dependence(np.full((10, 3), value), normalized=True) == 0.0


def test_one_code_and_one_row():
    codes = np.random.default_rng(0).normal(size=(50, 1))
    for score in SCORES:
        assert score(codes) == 0.0
        assert score(codes[:3].T) == 0.0
