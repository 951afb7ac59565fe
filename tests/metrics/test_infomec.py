"""InfoMEC: its estimator from the definition, its rules, and what it gives for codes that know nothing."""

import numpy as np
import pytest
import torch
from scipy.special import digamma

from unknot.metrics import about
from unknot.metrics import functional as f
from unknot.metrics.draws import GivenDraws
from unknot.metrics.registry import METRICS


def draw(n=300, seed=0):
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, (3, 4), size=(n, 2))
    return factors @ rng.normal(size=(2, 3)) + 0.5 * rng.normal(size=(n, 3)), factors


def ross(code, classes, k):
    """I = ψ(N) + mean ψ(k_i) - mean ψ(N_i) - mean ψ(m_i), sample by sample."""
    sizes = {c: (classes == c).sum() for c in set(classes)}
    kept = np.array([sizes[c] > 1 for c in classes])
    code, classes, terms = code[kept], classes[kept], []
    for value, c in zip(code, classes, strict=True):
        near = min(k, sizes[c] - 1)
        radius = np.sort(np.abs(code[classes == c] - value))[near]  # the first is the sample itself
        terms.append(digamma(near) - digamma(sizes[c]) - digamma((np.abs(code - value) < radius).sum()))
    return max(0.0, digamma(len(code)) + np.mean(terms))


@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_estimator_is_that_of_the_formula(k):
    codes, factors = draw(120)
    factors[0, 1] = 9  # one that is alone
    expected = [[ross(code, factor, k) for code in codes.T] for factor in factors.T]
    np.testing.assert_allclose(f.neighbour_information(codes, factors, k), expected, atol=1e-8)
    factors[:7, 0] = 3  # few: scikit-learn's distances within so small a class are rounded
    expected = [[ross(code, factor, k) for code in codes.T] for factor in factors.T]
    np.testing.assert_allclose(f.neighbour_information(codes, factors, k), expected, atol=2e-3)


def test_it_does_not_depend_on_units_or_the_kind_of_array():
    codes, factors = draw()
    scores = f.infomec(codes, factors)
    assert list(scores) == ["infom", "infoe", "infoc"]
    assert f.infomec(codes * [1.0, 1e3, 1e-3] - 7, factors, pruning="range") != scores  # the rule compares ranges
    assert f.infomec(codes * 100 - 7, factors + 5) == pytest.approx(scores, abs=1e-6)
    assert f.infomec(torch.from_numpy(codes), torch.from_numpy(factors)) == scores


@pytest.mark.parametrize("discrete", [False, True])
def test_one_latent_per_factor_is_perfect_and_two_are_less_compact(discrete):
    rng = np.random.default_rng(0)
    factors = rng.integers(0, (3, 4), size=(600, 2))
    codes = factors + (0 if discrete else 0.01) * rng.normal(size=(600, 2))
    assert f.infomec(codes, factors, discrete) == pytest.approx({"infom": 1, "infoe": 1, "infoc": 1}, abs=0.03)
    twice = f.infomec(np.hstack([codes, codes]), factors, discrete)
    assert twice["infom"] > 0.97
    assert twice["infoc"] == pytest.approx((0.5 - 0.25) / 0.75, abs=0.03)


def test_counted_information_of_discrete_latents_by_hand():
    factors = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 3)
    codes = np.column_stack([factors[:, 0], factors.sum(1)]) / 7
    # I(v_0; v_0 + v_1) = H(1/4, 1/2, 1/4) - log 2 = ½ log 2, for both factors
    np.testing.assert_allclose(f.normalised_information(codes, factors, discrete_codes=True), [[1, 0.5], [0, 0.5]])
    scores = f.infomec(codes, factors, discrete_codes=True)
    assert scores["infom"] == pytest.approx(((1 + 0.5) / 2 - 0.5) / 0.5)
    assert scores["infoc"] == pytest.approx(((1 / 1.5 + 1) / 2 - 0.5) / 0.5)


def test_latents_without_information_do_not_count_in_the_mean():
    """The authors' code divides zero by zero there."""
    factors = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 3)
    nothing = np.repeat([0, 1, 2], 4)[:, None]
    codes = np.hstack([factors, nothing])
    scores = f.infomec(codes, factors, discrete_codes=True)
    assert f.active_codes(codes, discrete_codes=True).all()
    assert scores["infom"] == pytest.approx(1)
    assert scores["infoc"] == pytest.approx(1)


def test_pruning_rules():
    spread = np.linspace(0, 1, 21)[:, None]
    rare = (np.arange(21) == 20)[:, None] * 1.0
    codes = np.hstack([spread, 0.09 * spread, 0.04 * spread, rare, 0 * spread])
    assert f.active_codes(codes).tolist() == [True, True, False, True, False]
    assert f.active_codes(codes, pruning="wide_range").tolist() == [True, False, False, True, False]
    assert f.active_codes(codes, pruning="interquartile").tolist() == [True, False, False, False, False]
    assert f.active_codes(codes, discrete_codes=True).tolist() == [True, True, True, True, False]
    assert f.active_codes(codes, discrete_codes=True, pruning="wide_range").tolist() == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert f.active_codes(2 * codes, True, "interquartile").tolist() == [True, False, False, False, False]
    with pytest.raises(ValueError, match="pruning must be 'range', 'wide_range' or 'interquartile', got 'iqr'"):
        f.active_codes(codes, pruning="iqr")


def test_permuted_factors_keep_their_law_and_lose_the_codes():
    codes, factors = draw(400)
    seen = []

    def remember(given, permuted):
        assert given is not None
        seen.append(permuted)
        return f.mig(given, permuted)

    baseline = f.permuted_baseline(remember, codes, factors, repeats=3, seed=1)
    assert all(sorted(map(tuple, each)) == sorted(map(tuple, factors)) for each in seen)
    assert len({each.tobytes() for each in seen}) == 3
    assert baseline["mean"]["score"] == pytest.approx(np.mean([f.mig(codes, each) for each in seen]))
    assert baseline["std"]["score"] == pytest.approx(np.std([f.mig(codes, each) for each in seen]))
    assert f.permuted_baseline(f.mig, codes, factors, seed=1) == f.permuted_baseline(f.mig, codes, factors, seed=1)
    assert f.permuted_baseline(f.infomec, codes, factors, repeats=1)["mean"].keys() == {"infom", "infoe", "infoc"}


def test_scores_by_name_are_the_functions():
    codes, factors = draw()
    rows = codes[:200], factors[:200], codes[200:], factors[200:]
    draws = GivenDraws((codes[:200], factors[:200]), (codes[200:], factors[200:]))
    found = METRICS["infomec"].of(draws)
    expected = f.infomec(codes[:200], factors[:200])
    assert [found[f"infomec{part}"] for part in ("", "_explicitness", "_compactness")] == [*expected.values()]
    assert [about(name).title for name in found] == ["InfoM", "InfoE", "InfoC", "InfoM of permuted factors"]
    draws.model = type("Quantised", (), {"capabilities": frozenset({"codes", "levels"})})()
    levels = np.round(codes[:200])
    draws._train = levels, factors[:200]
    assert METRICS["infomec"].of(draws)["infomec"] == f.infomec(levels, factors[:200], discrete_codes=True)["infom"]
    draws._train = codes[:200], factors[:200]
    assert METRICS["mcc"].of(draws)["mcc_spearman"] == f.mcc(codes[:200], factors[:200], "spearman")
    assert METRICS["linear_r2"].of(draws)["linear_r2"] == f.regression_r2(*rows)["r2"]
    assert METRICS["med"].of(draws)["med_completeness"] == f.med(*rows[:2])["completeness"]
    for name in ("dcimig", "jemmig", "mig_sup"):
        assert METRICS[name].of(draws)[name] == getattr(f, name)(*rows[:2])
