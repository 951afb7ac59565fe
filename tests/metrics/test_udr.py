"""UDR against the definition written out pair by pair."""

import warnings

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import Lasso

from unknot.metrics.functional import udr


def similarity(first, second, method):
    first, second = ((codes - codes.mean(0)) / codes.std(0) for codes in (first, second))
    if method == "spearman":
        return np.array([[abs(spearmanr(a, b).statistic) for b in second.T] for a in first.T])
    return np.array([np.abs(Lasso(alpha=0.1).fit(first, b).coef_) for b in second.T]).T


def pair_score(matrix):
    parts = []
    for axis in (0, 1):
        peak, total = matrix.max(axis) ** 2, matrix.sum(axis)
        parts.append(np.mean([p / t if t > 0 else 0 for p, t in zip(peak, total, strict=True)]))
    return np.mean(parts)


def models(n=150, d=3, count=4, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, d))
    return [truth @ (np.eye(d) + i * 0.3 * rng.normal(size=(d, d))) for i in range(count)]


@pytest.mark.parametrize("method", ["lasso", "spearman"])
def test_is_the_median_over_partners(method):
    codes = models()
    expected = [
        np.median([pair_score(similarity(partner, own, method)) for j, partner in enumerate(codes) if j != i])
        for i, own in enumerate(codes)  # the reference takes the median of a column: the partners predict
    ]
    scores = udr(codes, method=method)
    np.testing.assert_allclose(scores, expected, atol=1e-9)
    assert len(set(scores.round(6))) > 1


def test_signed_permutations_are_the_same_representation():
    truth = models(count=1)[0]
    copies = [truth, -2 * truth[:, [2, 0, 1]], truth[:, [1, 0, 2]] + 5]
    np.testing.assert_allclose(udr(copies), 0.9, atol=0.05)  # the penalty shrinks every weight by 0.1
    rotated = truth @ np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    assert udr([*copies, rotated])[3] < 0.8


def test_kl_decides_which_codes_count():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(200, 3))
    wide = [np.hstack([codes, rng.normal(size=(200, 2))]) for codes in (truth, -truth)]
    kl = [[1.0, 2.0, 3.0, 0.01, 0.0]] * 2  # not more than the threshold: not informative
    np.testing.assert_allclose(udr(wide, kl), udr([truth, -truth]))
    assert (udr(wide) < udr(wide, kl)).all()
    np.testing.assert_allclose(udr(wide, kl, threshold=-1), udr(wide))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_constant_codes_do_not_count(value):
    truth = models(count=2)
    padded = [np.hstack([codes, np.full((len(codes), 2), value)]) for codes in truth]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(udr(padded), udr(truth))
        np.testing.assert_array_equal(udr([truth[0], padded[0][:, 3:]]), 0)


def test_different_widths():
    first, second = models(count=2)
    scores = udr([first, second[:, :1]])
    assert scores.shape == (2,)
    assert ((scores >= 0) & (scores <= 1)).all()
    narrow = udr([first[:, :1], second[:, :1]], method="spearman")
    np.testing.assert_allclose(narrow, abs(spearmanr(first[:, 0], second[:, 0]).statistic))


@pytest.mark.parametrize(
    ("codes", "options", "message"),
    [
        ([np.ones((4, 2))], {}, "needs at least 2, got 1"),
        ([np.ones((4, 2)), np.ones((5, 2))], {}, r"codes of the same images, got \[4, 5\] rows"),
        ([np.ones((4, 2))] * 2, {"method": "pearson"}, "method must be 'lasso' or 'spearman', got 'pearson'"),
        ([np.ones((4, 2))] * 2, {"kl": [[1.0, 1.0], [1.0]]}, "one number for each code of each model"),
        ([np.ones((4, 2))] * 2, {"kl": [[1.0, 1.0]]}, "one number for each code of each model"),
        ([np.ones((4, 2)), np.full((4, 2), np.nan)], {}, "codes must be finite"),
    ],
)
def test_bad_inputs(codes, options, message):
    with pytest.raises(ValueError, match=message) as error:
        udr(codes, **options)
    assert "\n" not in str(error.value)
