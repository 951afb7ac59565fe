"""Statistics against SciPy, pandas and closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from unknot.studies import statistics


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_correlations_are_scipys_with_ties_and_gaps(rng: np.random.Generator) -> None:
    table = pd.DataFrame(rng.normal(size=(40, 4)).round(1), columns=list("abcd"))
    table.loc[:9, "b"] = np.nan
    table.loc[30:, "d"] = np.nan
    table.loc[5:7, "a"] = np.inf  # a total correlation may be
    found = statistics.rank_correlations(table, ["a", "b"], ["c", "d"], resamples=10).set_index(["row", "column"])
    for (row, column), line in found.iterrows():
        both = table[[row, column]].dropna()
        assert line.rho == pytest.approx(stats.spearmanr(both[row], both[column]).statistic, abs=1e-12)
        assert line.n == len(both)


def test_resampled_correlations_are_those_of_resampled_rows(rng: np.random.Generator) -> None:
    values = rng.integers(0, 6, size=(25, 3)).astype(float)  # many ties
    weights = statistics.block_weights(np.repeat(np.arange(5), 5), 20, seed=1)
    found = statistics.bootstrap_spearman(values[:, :1], values, weights)
    for resample, weight in zip(found, weights, strict=True):
        rows = np.repeat(np.arange(25), weight.astype(int))
        for column in range(3):
            with np.errstate(invalid="ignore"):
                expected = np.corrcoef(stats.rankdata(values[rows, 0]), stats.rankdata(values[rows, column]))[0, 1]
            np.testing.assert_allclose(resample[0, column], expected, atol=1e-12)


def test_blocks_are_drawn_whole_and_strata_keep_their_number() -> None:
    blocks, strata = list("aaabbbccddd"), [0] * 6 + [1] * 5
    weights = statistics.block_weights(blocks, 200, strata=strata)
    for block in "abcd":
        of = weights[:, [b == block for b in blocks]]
        assert (of == of[:, :1]).all()
    assert set((weights[:, 0] + weights[:, 3]).tolist()) == {2.0}
    assert weights[:, 0].mean() == pytest.approx(1, abs=0.15)


def test_interval_covers_the_true_correlation(rng: np.random.Generator) -> None:
    true = 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman's ρ of a normal law
    inside = 0
    for trial in range(60):
        x = rng.normal(size=60)
        table = pd.DataFrame({"x": x, "y": 0.6 * x + 0.8 * rng.normal(size=60)})
        line = statistics.rank_correlations(table, ["x"], ["y"], resamples=200, seed=trial).iloc[0]
        inside += line.low <= true <= line.high
    assert inside >= 50


def test_seeds_of_one_setting_are_no_independent_evidence(rng: np.random.Generator) -> None:
    settings = np.repeat(np.arange(12), 10)
    table = pd.DataFrame({"x": rng.normal(size=12)[settings], "y": rng.normal(size=12)[settings]})
    table += 0.01 * rng.normal(size=table.shape)
    width = {}
    for name, blocks in (("blocked", settings), ("single", None)):
        line = statistics.rank_correlations(table, ["x"], ["y"], blocks).iloc[0]
        width[name] = line.high - line.low
    assert width["blocked"] > 2 * width["single"]


def test_constant_or_few_values_have_no_correlation() -> None:
    table = pd.DataFrame({"a": [1.0] * 6, "b": range(6), "c": [1, 2, 3, *[np.nan] * 3]})
    assert statistics.rank_correlations(table, ["a", "c"], ["b"]).rho.isna().all()


def test_bound_is_that_of_the_t_test() -> None:
    x = np.arange(36.0)
    assert statistics.spearman_bound(36) == pytest.approx(0.329, abs=0.001)
    swapped = x.copy()
    p = []
    for shift in range(0, 30):
        swapped = np.roll(x, shift)
        result = stats.spearmanr(x, swapped)
        p.append((abs(result.statistic) > statistics.spearman_bound(36)) == (result.pvalue < 0.05))
    assert all(p)


def test_variance_explained_is_that_of_a_regression_on_dummies(rng: np.random.Generator) -> None:
    groups = rng.integers(0, 5, size=60)
    scores = rng.normal(size=60) + groups
    dummies = pd.get_dummies(groups).to_numpy(float)
    fitted = dummies @ np.linalg.lstsq(dummies, scores, rcond=None)[0]
    expected = 1 - ((scores - fitted) ** 2).sum() / ((scores - scores.mean()) ** 2).sum()
    found = statistics.variance_explained(scores, groups)
    assert found.r2[0] == pytest.approx(expected, abs=1e-12)
    assert found.adjusted[0] == pytest.approx(1 - (1 - expected) * 59 / 55, abs=1e-12)
    f = stats.f_oneway(*[scores[groups == g] for g in range(5)])
    assert (found.p[0] < 0.01) == (f.pvalue < 0.01)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_noise_explains_as_much_as_the_closed_form_says(rng: np.random.Generator, seeds: int) -> None:
    n = 36 * seeds
    scores = rng.normal(size=(n, 200))
    found = statistics.variance_explained(scores, np.repeat(np.arange(36), seeds), permutations=50)
    assert found.r2.mean() == pytest.approx(35 / (n - 1), abs=0.01)
    assert found.null.mean() == pytest.approx(35 / (n - 1), abs=0.01)
    assert found.adjusted.mean() == pytest.approx(0, abs=0.02)
    assert (found.p < 0.05).mean() == pytest.approx(0.05, abs=0.05)


def test_resampled_variance_explained_of_the_population_is_the_adjusted_one(rng: np.random.Generator) -> None:
    groups = np.repeat(np.arange(6), 4)
    scores = rng.normal(size=24) + groups
    found = statistics.bootstrap_variance_explained(scores, groups, np.ones((1, 24)))
    assert found[0] == pytest.approx(statistics.variance_explained(scores, groups).adjusted[0], abs=1e-12)


def test_share_of_discordant_pairs_is_kendalls(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 50))
    share, part = statistics.discordant_share(x, y)
    assert share == pytest.approx((1 - stats.kendalltau(x, y).statistic) / 2, abs=1e-12)
    assert part.mean() == pytest.approx(share)
    resampled = statistics.bootstrap_share(part, np.ones((1, 50)))
    assert resampled[0] == pytest.approx(share)


def test_superiority_counts_pairs(rng: np.random.Generator) -> None:
    a, b = rng.integers(0, 5, size=(2, 30))
    expected = np.mean((a[:, None] > b) + 0.5 * (a[:, None] == b))
    assert statistics.superiority(a, b) == pytest.approx(expected, abs=1e-12)


def test_signs_leave_gaps_out_and_count_zero_against() -> None:
    assert statistics.sign_count([0.1, np.nan, 0.0, -0.2], [1, 1, 1, -1])[:2] == (2, 3)


def test_within_groups_sees_through_pooling(rng: np.random.Generator) -> None:
    groups = np.repeat(np.arange(4), 30)
    x = rng.normal(size=120)
    y = -x + 10 * groups
    x = x + 10 * groups
    assert stats.spearmanr(x, y).statistic > 0.8
    assert statistics.within_groups(x[:, None], y[:, None], groups)[0, 0] < -0.9
