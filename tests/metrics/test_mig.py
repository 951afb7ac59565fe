"""MIG against scikit-learn, its invariants, and what it says to bad inputs."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from unknot.metrics.functional import mig

DSPRITES = (3, 6, 40, 32, 32)


def reference(codes, factors, bins=20):
    """The reference's algorithm: histogram edges, digitize without the last, scikit-learn's mutual information."""
    edges = [np.histogram(code, bins)[1] for code in codes.T]
    binned = [np.digitize(code, edge[:-1]) for code, edge in zip(codes.T, edges, strict=True)]
    gaps = []
    for factor in factors.T:
        first, second = sorted((mutual_info_score(code, factor) for code in binned), reverse=True)[:2]
        gaps.append((first - second) / mutual_info_score(factor, factor))
    return np.mean(gaps)


def draw(n=500, d=4, sizes=(3, 5), seed=0):
    """Codes that know something about the factors, and the factors."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, sizes, size=(n, len(sizes)))
    return factors @ rng.normal(size=(len(sizes), d)) + 0.3 * rng.normal(size=(n, d)), factors


@pytest.mark.parametrize("bins", [2, 20, 64])
@pytest.mark.parametrize(
    ("n", "d", "sizes"), [(10, 2, (2,)), (100, 3, (3, 4)), (1000, 10, (3, 6, 40)), (5000, 6, DSPRITES)]
)
def test_equals_the_reference(n, d, sizes, bins):
    codes, factors = draw(n, d, sizes, seed=n)
    score = mig(codes, factors, bins=bins)
    assert score == pytest.approx(reference(codes, factors, bins), abs=1e-6)
    assert 0 <= score <= 1


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int8"])
def test_equals_the_reference_in_other_precisions(dtype):
    codes, factors = draw(2000, 5, (3, 6, 40))
    codes = (3 * codes).astype(dtype)
    assert mig(codes, factors) == pytest.approx(reference(codes, factors), abs=1e-6)


def test_half_precision_is_widened_before_binning():
    codes, factors = draw()
    codes = codes.astype(np.float16)
    assert mig(codes, factors) == pytest.approx(reference(codes.astype(np.float64), factors), abs=1e-6)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(20, 300),
    d=st.integers(2, 6),
    sizes=st.lists(st.integers(2, 8), min_size=1, max_size=4),
)
def test_equals_the_reference_on_any_draw(seed, n, d, sizes):
    codes, factors = draw(n, d, tuple(sizes), seed)
    factors[0], factors[1] = 0, 1  # every factor varies
    score = mig(codes, factors)
    assert score == pytest.approx(reference(codes, factors), abs=1e-6)
    assert 0 <= score <= 1


def test_factors_as_codes_are_perfect():
    _, factors = draw(10_000, sizes=(3, 6, 10, 20, 20))
    assert mig(factors.astype(float), factors) >= 0.98


def test_factors_with_more_classes_than_bins_lose_what_binning_hides():
    # 40 and 32 classes do not survive 20 bins: the reference itself gives 0.896 on the grid of dSprites.
    _, factors = draw(10_000, sizes=DSPRITES)
    codes = factors.astype(float)
    assert mig(codes, factors) == pytest.approx(reference(codes, factors), abs=1e-6)
    assert 0.89 < mig(codes, factors) < 0.90
    assert mig(codes, factors, bins=40) >= 0.9


def test_duplicated_codes_leave_no_gap():
    _, factors = draw(10_000, sizes=DSPRITES)
    assert mig(np.hstack([factors, factors]), factors) == pytest.approx(0, abs=1e-12)


def test_independent_codes_score_near_zero():
    _, factors = draw(10_000, sizes=DSPRITES)
    assert mig(np.random.default_rng(1).normal(size=(10_000, 10)), factors) < 0.01


@pytest.mark.parametrize("value", [0.0, -3.7, 1e-300, 1e17, 1e300])
@pytest.mark.parametrize("d", [1, 3])
def test_constant_codes_score_exactly_zero(value, d):
    _, factors = draw()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mig(np.full((len(factors), d), value), factors) == 0.0


def test_a_constant_code_among_others_changes_nothing():
    codes, factors = draw()
    assert mig(np.hstack([codes, np.ones((len(codes), 1))]), factors) == mig(codes, factors)


def test_codes_that_differ_in_the_last_digits_only():
    _, factors = draw(sizes=(2,))
    codes = 1 + np.finfo(float).eps * factors
    assert mig(codes, factors) == pytest.approx(1)


def test_a_constant_factor_is_left_out():
    codes, factors = draw()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_constant = mig(codes, np.hstack([factors, np.full((len(factors), 1), 7)]))
    assert with_constant == mig(codes, factors)


def test_nothing_varies():
    assert mig(np.ones((10, 3)), np.ones((10, 2), dtype=int)) == 0.0
    assert mig(np.random.default_rng(0).normal(size=(10, 3)), np.ones((10, 2), dtype=int)) == 0.0


def test_a_single_code_has_a_runner_up_that_knows_nothing():
    _, factors = draw(sizes=(5,))
    assert mig(factors.astype(float), factors) == pytest.approx(1)
    codes, _ = draw(sizes=(5,), d=1)
    padded = np.hstack([codes, np.zeros_like(codes)])
    assert mig(codes, factors) == pytest.approx(reference(padded, factors), abs=1e-6)


def test_a_single_factor():
    codes, factors = draw(sizes=(5, 3))
    assert mig(codes, factors[:, :1]) == pytest.approx(reference(codes, factors[:, :1]), abs=1e-6)


def test_a_single_row():
    assert mig([[0.5, 1.5]], [[1, 2]]) == 0.0


def test_container_and_precision_do_not_matter():
    codes, factors = draw()
    codes = torch.from_numpy(codes).bfloat16()  # exact in every type below
    expected = mig(codes.double().numpy(), factors)
    leaf = codes.float().requires_grad_()
    for same in (codes, codes.float(), codes.double(), codes.float().numpy(), codes.tolist(), leaf, leaf * 1):
        assert mig(same, factors) == expected
    for same in (torch.from_numpy(factors), factors.tolist(), factors.astype(np.uint8), factors.astype(np.int32)):
        assert mig(codes, same) == expected
    assert leaf.requires_grad
    assert leaf.grad is None


def test_inputs_are_not_changed():
    codes, factors = draw()
    kept = codes.copy(), factors.copy()
    mig(codes, factors)
    np.testing.assert_array_equal(codes, kept[0])
    np.testing.assert_array_equal(factors, kept[1])


def test_booleans_are_classes():
    codes, factors = draw(sizes=(2, 2))
    assert mig(codes, factors.astype(bool)) == mig(codes, factors)


def test_incomplete_grids():
    codes, factors = draw(2000, sizes=(4, 4))
    part = factors[:, 0] <= factors[:, 1]  # the two factors are dependent, and corners are missing
    assert mig(codes[part], factors[part]) == pytest.approx(reference(codes[part], factors[part]), abs=1e-6)


@pytest.mark.parametrize(
    "labels",
    [[-5, 0, 17], [2, 1, 0], [-(2**63), 0, 2**63 - 1], [10**18, 10**18 + 1, 10**18 + 2]],
    ids=["negative", "reversed", "extreme", "huge"],
)
def test_class_labels_do_not_matter(labels):
    codes, factors = draw(sizes=(3, 3))
    assert mig(codes, np.array(labels)[factors]) == pytest.approx(mig(codes, factors), abs=1e-12)


def test_labels_beyond_signed_integers():
    codes, factors = draw(sizes=(3,))
    assert mig(codes, factors.astype(np.uint64) + np.uint64(2**63 - 1)) == pytest.approx(mig(codes, factors))


def test_the_order_of_codes_factors_and_rows_does_not_matter():
    codes, factors = draw(d=5, sizes=(3, 4, 5))
    rows = np.random.default_rng(1).permutation(len(codes))
    expected = mig(codes, factors)
    assert mig(codes[:, [3, 0, 4, 2, 1]], factors) == pytest.approx(expected, abs=1e-12)
    assert mig(codes, factors[:, [2, 0, 1]]) == pytest.approx(expected, abs=1e-12)
    assert mig(codes[rows], factors[rows]) == expected


@pytest.mark.parametrize(("scale", "shift"), [(2.0, 0.0), (0.25, 8.0), (1024.0, -3.0)])
def test_increasing_affine_maps_do_not_matter(scale, shift):
    codes, factors = draw()
    codes = np.round(codes * 1024) / 1024 + 1e-5  # so far from bin edges that rounding cannot move a code over one
    assert mig(scale * codes + shift, factors) == pytest.approx(mig(codes, factors), abs=1e-12)


CODES, FACTORS = np.arange(12.0).reshape(6, 2), np.arange(12).reshape(6, 2) % 3
NAN, INF = CODES.copy(), CODES.copy()
NAN[2, 1], INF[0, 0] = np.nan, -np.inf


@pytest.mark.parametrize(
    ("codes", "factors", "bins", "message"),
    [
        (NAN, FACTORS, 20, r"codes must be finite: 1 of 6 rows"),
        (INF, FACTORS, 20, r"codes must be finite: 1 of 6 rows"),
        (torch.from_numpy(NAN), FACTORS, 20, r"codes must be finite"),
        (CODES * 1j, FACTORS, 20, r"codes must be real numbers, got complex128"),
        (torch.ones(6, 2, dtype=torch.complex64), FACTORS, 20, r"codes must be real numbers, got complex64"),
        (CODES.astype(str), FACTORS, 20, r"codes must be real numbers"),
        (CODES.astype(object), FACTORS, 20, r"codes must be real numbers, got object"),
        (CODES[:, 0], FACTORS, 20, r"codes must have shape \[N, D\].*got \[6\]"),
        (CODES[None], FACTORS, 20, r"codes must have shape \[N, D\].*got \[1, 6, 2\]"),
        (CODES[:0], FACTORS[:0], 20, r"codes must have shape \[N, D\] with N, D >= 1, got \[0, 2\]"),
        (CODES[:, :0], FACTORS, 20, r"codes must have shape \[N, D\] with N, D >= 1, got \[6, 0\]"),
        ([], [], 20, r"codes must have shape \[N, D\]"),
        (None, FACTORS, 20, r"codes must have shape \[N, D\]"),
        (CODES, FACTORS[:, 0], 20, r"factors must have shape \[N, F\].*got \[6\]"),
        (CODES, FACTORS[:, :0], 20, r"factors must have shape \[N, F\] with N, F >= 1, got \[6, 0\]"),
        (CODES, FACTORS + np.inf, 20, r"must be finite, or NaN where they are missing; got infinity"),
        (CODES, np.full_like(FACTORS, -1), 20, r"factors hold no label"),
        (CODES, FACTORS[:5], 20, r"as many rows, got 6 and 5"),
        (CODES, FACTORS, 0, r"bins must be a whole number of at least 1, got 0"),
        (CODES, FACTORS, -3, r"bins must be a whole number of at least 1, got -3"),
        (CODES, np.zeros_like(FACTORS), 0, r"bins must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_inputs_are_told_what_was_expected(codes, factors, bins, message):
    with pytest.raises(ValueError, match=message) as error:
        mig(codes, factors, bins=bins)
    assert "\n" not in str(error.value)
