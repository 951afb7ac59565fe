"""Every analysis on tables with a known answer, and against another way to compute it."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from unknot.metrics.functional import adjusted
from unknot.studies import analyses, load_results
from unknot.studies.analyses import ANALYSES
from unknot.studies.population import METRICS, Missing, Population
from unknot.studies.synthetic import STRENGTHS, synthetic_results

CLAIMED = ["beta_vae", "factor_vae", "mig", "dci", "sap"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return synthetic_results(seeds=4)


@pytest.fixture(scope="module")
def unsupervised(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.method.isin(STRENGTHS)]


def population(seeds: int, datasets: tuple[str, ...] = ("dsprites",), **columns: object) -> pd.DataFrame:
    """36 settings on each data set, with columns that are functions of (data set, setting, seed) or arrays."""
    rows = [
        {"dataset": d, "method": m, "strength": s, "seed": n}
        for d in datasets
        for n in range(seeds)
        for m, strengths in STRENGTHS.items()
        for s in strengths
    ]
    return pd.DataFrame(rows).assign(**columns)


def test_analyses_are_pure_and_repeat_themselves(table: pd.DataFrame) -> None:
    before = table.copy(deep=True)
    first = analyses.metric_agreement(table, resamples=50, seed=3)
    second = analyses.metric_agreement(table, resamples=50, seed=3)
    pd.testing.assert_frame_equal(first.table, second.table)
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize("name", [name for name in ANALYSES if name != "semi_supervised"])
def test_every_analysis_has_numbers_words_and_a_figure(table: pd.DataFrame, name: str) -> None:
    result = ANALYSES[name](table, resamples=20)
    assert result.name == name
    assert all((result.numbers, result.shows, result.limits, result.question, result.found, len(result.table)))
    assert "nan" not in result.shows
    assert result.figure().axes


def test_total_correlation_finds_the_planted_trends(table: pd.DataFrame) -> None:
    result = analyses.total_correlation(table, resamples=20)
    assert (result.table.sampled < -0.9).all()
    assert (result.table["mean"] > 0.9).all()
    assert "AnnealedVAE" not in set(result.table.method)
    assert result.value == 1.0
    assert result.count().agree == result.count().total


def test_variance_explained_recovers_the_planted_shares() -> None:
    rng = np.random.default_rng(0)
    table = population(50)
    method = pd.factorize(table.method)[0]
    place = table.groupby("method").strength.rank("dense").to_numpy() - 3.5
    of_method = (method - 2.5) / np.std(method - 2.5)
    of_strength = place / place.std()
    table["mig"] = np.sqrt(0.37) * of_method + np.sqrt(0.22) * of_strength + np.sqrt(0.41) * rng.normal(size=len(table))
    result = analyses.explained_variance(table, resamples=50)
    assert result.number("method alone, adjusted R²").value == pytest.approx(0.37, abs=0.02)
    both = result.number("method and strength, adjusted R²")
    assert both.value == pytest.approx(0.59, abs=0.02)
    assert both.low < both.value < both.high
    means = table.groupby(["method", "strength"]).mig.transform("mean")
    assert result.number("method and strength, R² as it is").value == pytest.approx(
        means.var() / table.mig.var(), abs=1e-9
    )


def test_variance_explained_of_noise_is_nothing() -> None:
    rng = np.random.default_rng(0)
    noise = population(3, mig=rng.normal(size=108), dci=rng.normal(size=108), sap=rng.normal(size=108))
    result = analyses.explained_variance(noise, resamples=100)
    assert abs(result.number("method and strength, adjusted R²").value) < 0.15
    assert result.number("method and strength, R² as it is").chance == pytest.approx(35 / 107, abs=0.02)


def test_shares_of_variance_at_chance_or_of_few_models_are_printed_in_words() -> None:
    rng = np.random.default_rng(3)
    noise = population(3, mig=rng.normal(size=108), dci=rng.normal(size=108), sap=rng.normal(size=108))
    for number in analyses.explained_variance(noise, resamples=50).numbers:
        if number.label.endswith("adjusted R²"):
            assert ("no more than chance" in str(number)) == (number.value <= 0)
        assert "-" not in f"{number.shown} {number.between}"
    six = pd.DataFrame({"model.beta": np.repeat([1.0, 4.0], 3), "seed": np.arange(6), "mig": rng.random(6)})
    few = analyses.explained_variance(six.assign(dataset="dsprites", method="BetaVAE"), resamples=20)
    assert {number.shown for number in few.numbers if number.adjusted} == {"too few models"}


def test_transfer_of_noise_succeeds_as_often_as_chance() -> None:
    rng = np.random.default_rng(0)
    n = 36 * 40 * 2
    noise = population(40, ("dsprites", "rooms3d"), mig=rng.normal(size=n), dci=rng.normal(size=n))
    result = analyses.transfer_experiment(noise, resamples=20)
    for number in result.numbers:
        assert number.chance == pytest.approx(0.5 + 0.5 / 36)
        assert number.value == pytest.approx(number.chance, abs=0.04)


def test_transfer_of_settings_that_always_rank_alike_always_succeeds() -> None:
    quality = np.tile(np.arange(36.0), 2 * 3)
    result = analyses.transfer_experiment(
        population(3, ("dsprites", "rooms3d"), mig=quality, dci=quality**2), resamples=20
    )
    assert [number.value for number in result.numbers] == pytest.approx([1.0] * 4)


def test_transfer_enumerates_what_trials_would_draw(unsupervised: pd.DataFrame) -> None:
    table = unsupervised[unsupervised.seed < 3]
    table = table.assign(setting=table.method + table.strength.astype(str))
    metrics = [name for name in METRICS if name in table]
    scores = {
        (d, m, s): part.set_index("setting")[m] for (d, s), part in table.groupby(["dataset", "seed"]) for m in metrics
    }
    success: dict[tuple[bool, bool], list[float]] = {}
    for (d, m, s), (e, k, r) in itertools.product(scores, repeat=2):
        if r != s:
            judged = scores[e, k, r]
            success.setdefault((m == k, d == e), []).append(float((judged[scores[d, m, s].idxmax()] >= judged).mean()))
    result = analyses.transfer_experiment(table, resamples=20)
    for label, key in (
        ("same metric, same data", (True, True)),
        ("other metric, same data", (False, True)),
        ("same metric, other data", (True, False)),
        ("other metric, other data", (False, False)),
    ):
        number = result.number(label)
        assert number.value == pytest.approx(np.mean(success[key]), abs=1e-6)
        assert number.low <= number.value + 0.05
        assert number.high >= number.value - 0.05


def test_transfer_says_what_one_seed_does_not_allow() -> None:
    one = population(1, mig=np.arange(36.0), dci=np.arange(36.0))
    with pytest.raises(Missing, match="at least two seeds"):
        analyses.transfer_experiment(one)
    two = population(1, ("dsprites", "rooms3d"), mig=np.tile(np.arange(36.0), 2), dci=np.tile(np.arange(36.0), 2))
    result = analyses.transfer_experiment(two, resamples=10)
    assert {number.label for number in result.numbers} == {"same metric, other data", "other metric, other data"}
    assert any("two seeds" in note for note in result.notes)


def test_models_that_are_missing_change_nothing_else(unsupervised: pd.DataFrame) -> None:
    whole = analyses.transfer_experiment(unsupervised, resamples=10).value
    holes = unsupervised.copy()
    holes.loc[holes.index[:3], "mig"] = np.nan
    result = analyses.transfer_experiment(holes, resamples=10)
    assert result.value == pytest.approx(whole, abs=0.05)
    assert any("3 of" in note and "mig" in note for note in result.notes)


def test_datasets_rank_settings_as_pandas_says(unsupervised: pd.DataFrame) -> None:
    result = analyses.transfer_between_datasets(unsupervised, resamples=10)
    medians = unsupervised.groupby(["dataset", "method", "strength"]).dci.median().unstack("dataset")
    expected = medians.corr(method="spearman").loc["dsprites", "rooms3d"]
    line = result.table.query("metric == 'dci' and row == 'dsprites' and column == 'rooms3d'").iloc[0]
    assert line.rho == pytest.approx(expected, abs=1e-12)


def test_selectors_of_planted_quality_beat_chance_and_others_do_not() -> None:
    table = synthetic_results(("a", "b"), seeds=12, weak=False)
    result = analyses.selectors(table, resamples=20)
    chance = 0.5 + 0.5 / 36
    assert result.number("UDR").value > chance + 0.1
    assert abs(result.number("ELBO reconstruction").value - chance) < 0.12
    assert result.number("MIG on 100 perfect labels").value > chance + 0.1


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [
        ("metric_agreement", "mig", "dci"),
        ("downstream", "dci", "downstream_gbt_100"),
        ("unsupervised_scores", "elbo", "mig"),
        ("unfairness", "sap", "unfairness"),
    ],
)
def test_correlations_are_those_of_pandas(unsupervised: pd.DataFrame, name: str, row: str, column: str) -> None:
    result = ANALYSES[name](unsupervised, resamples=10)
    for dataset, part in unsupervised.groupby("dataset"):
        line = result.table[
            (result.table.dataset == dataset) & (result.table.row == row) & (result.table.column == column)
        ].iloc[0]
        assert line.rho == pytest.approx(part[[row, column]].corr(method="spearman").iloc[0, 1], abs=1e-12)
        within = [(len(of), of[[row, column]].corr(method="spearman").iloc[0, 1]) for _, of in part.groupby("method")]
        assert line.within == pytest.approx(
            np.average([r for _, r in within], weights=[n for n, _ in within]), abs=1e-9
        )


def test_planted_signs_are_found(table: pd.DataFrame) -> None:
    for name in ("downstream", "unfairness", "adjusted_metrics", "metric_agreement", "weak_loss", "weak_downstream"):
        count = ANALYSES[name](table, resamples=10).count()
        assert count.agree >= 0.9 * count.total > 0, name


def test_modularity_that_knows_nothing_is_found_apart(table: pd.DataFrame) -> None:
    result = analyses.metric_agreement(table, resamples=10)
    assert result.value > 0.5
    assert abs(result.number("mean ρ of modularity with the others").value) < 0.2


def test_adjusted_scores_are_those_of_the_metric(unsupervised: pd.DataFrame) -> None:
    result = analyses.adjusted_metrics(unsupervised, resamples=10)
    part = unsupervised[unsupervised.dataset == "rooms3d"]
    rest = {c: adjusted(part[c], part.downstream_gbt_10000) for c in ("dci", "unfairness")}
    line = result.table.query("dataset == 'rooms3d' and row == 'dci' and kind == 'with adjusted unfairness'").iloc[0]
    assert line.rho == pytest.approx(stats.spearmanr(rest["dci"], rest["unfairness"]).statistic, abs=1e-12)


def test_fairness_by_accuracy_is_kendalls_tau(unsupervised: pd.DataFrame) -> None:
    result = analyses.fairness_selection(unsupervised, resamples=20)
    expected = [
        (1 - stats.kendalltau(part.downstream_gbt_10000, part.unfairness).statistic) / 2
        for _, part in unsupervised.groupby("dataset")
    ]
    assert result.value == pytest.approx(np.mean(expected), abs=1e-12)
    picks = []
    for _, cohort in unsupervised.groupby(["dataset", "seed"]):
        best = cohort.loc[cohort.downstream_gbt_10000.idxmax(), "unfairness"]
        picks.append((best <= cohort.unfairness).mean())
    assert result.numbers[1].value == pytest.approx(np.mean(picks), abs=1e-6)


def test_reliability_tells_sizes_apart_and_sees_equal_draws(table: pd.DataFrame) -> None:
    result = analyses.reliability(table, resamples=10)
    few, many = (result.number(f"mean ρ of two runs, {n} samples").value for n in ("100", "10,000"))
    assert few < 0.8 < 0.99 < many
    same = table.assign(**{"mig@10000-again": table.mig})
    noted = analyses.reliability(same, resamples=10)
    assert any("same draw" in note for note in noted.notes)
    renamed = table.rename(columns={"mig@10000-again": "mig@again", "mig@100-again": "mig@100_again"})
    assert analyses.reliability(renamed, resamples=10).value == result.value


def test_aggregations_of_one_matrix_agree_as_planted(table: pd.DataFrame) -> None:
    result = analyses.aggregation(table, resamples=10)
    assert result.number("mean ρ among MIG, SAP and DCI completeness").value > 0.8
    assert result.number("mean ρ of DCI disentanglement with these").value < 0.7
    matrices = analyses.estimation(table, resamples=10)
    assert abs(matrices.number("mean ρ between matrices, Modularity").value) < 0.2


def test_merge_curves_count_factors_and_groups() -> None:
    columns = {"edge_1": 1.0, "edge_2": 0.5, "merge_1": 0.2}
    one = population(1, **{f"aggregation_importance_{name}": value for name, value in columns.items()})
    curve = analyses.merge_curves(one).table.set_index(analyses.merge_curves(one).table.threshold.round(2))
    assert curve.factors[[0.98, 0.6, 0.4, 0.1]].tolist() == [1, 1, 2, 2]
    assert curve.groups[[0.98, 0.6, 0.4, 0.1]].tolist() == [1, 1, 2, 1]


def test_validation_ranks_as_pandas_says_averaged_over_draws(unsupervised: pd.DataFrame) -> None:
    rng = np.random.default_rng(0)
    table = unsupervised.assign(**{"mig@100-perfect-1": unsupervised.mig + 0.3 * rng.normal(size=len(unsupervised))})
    result = analyses.validation_ranking(table, resamples=10)
    part = table[table.dataset == "dsprites"]
    expected = [part[f"mig@100-perfect-{draw}"].corr(part.dci, method="spearman") for draw in (0, 1)]
    line = result.table.query("dataset == 'dsprites' and score == 'mig' and labels == 100 and kind == 'perfect'")
    assert line[line.metric == "dci"].rho.item() == pytest.approx(np.mean(expected), abs=1e-12)
    assert line[line.metric == "dci"].draws.item() == 2


def semi_supervised_table(better: float) -> pd.DataFrame:
    """Four S² methods that are better by a constant, on two draws of labels."""
    rng = np.random.default_rng(0)
    base = population(1, mig=rng.random(36), dci=rng.random(36))
    base["mig@100-perfect-0"], base["mig@100-perfect-1"] = base.mig, base.dci
    rows = [
        {
            "dataset": "dsprites",
            "method": method,
            "strength": s,
            "model.gamma_sup": g,
            "seed": 0,
            "data.num_labels": 100,
            "data.labelling": "perfect",
            "data.label_seed": draw,
            "val/supervised": rng.random(),
            "mig": rng.random() + better,
            "dci": rng.random() + better,
        }
        for method in ("S2BetaVAE", "S2BetaTCVAE", "S2FactorVAE", "S2DIPVAEI")
        for s in (1, 2)
        for g in (1, 2)
        for draw in (0, 1)
    ]
    return pd.concat([base, pd.DataFrame(rows)], ignore_index=True)


@pytest.mark.parametrize(("better", "share"), [(2.0, 1.0), (-2.0, 0.0)])
def test_labels_in_training_win_as_planted(better: float, share: float) -> None:
    result = analyses.semi_supervised(semi_supervised_table(better), resamples=20)
    number = result.number("trials won by S² methods, 100 perfect labels")
    assert number.value == share
    assert number.thesis == 0.705
    assert number.chance == 0.5


def test_picks_are_the_best_by_what_selects() -> None:
    table = semi_supervised_table(0.0)
    result = analyses.semi_supervised(table, resamples=20)
    semi = table[table.method.str.startswith("S2") & (table["data.label_seed"] == 1)]
    picks = semi.loc[semi.groupby("method")["val/supervised"].idxmin()]
    line = result.table.query("draw == 1 and metric == 'dci'").iloc[0]
    assert line["S²"] == picks.dci.max()
    four = table[table.method.isin(["BetaVAE", "BetaTCVAE", "FactorVAE", "DIPVAEI"])]
    assert line["U/S"] == four.loc[four.groupby("method")["mig@100-perfect-1"].idxmax()].dci.max()


def test_a_metric_of_models_outside_the_comparison_selects_nothing() -> None:
    table = semi_supervised_table(0.0)
    table["beta_vae"] = table.mig.where(table.method == "AnnealedVAE")
    complete = analyses.semi_supervised(semi_supervised_table(0.0), resamples=20)
    partial = analyses.semi_supervised(table, resamples=20)
    label = "trials won if the others are selected by a test metric"
    assert partial.number(label).value == complete.number(label).value


def test_numbers_of_labels_stay_whole_beside_models_without_labels() -> None:
    table = semi_supervised_table(0.0).assign(**{"mig@100-binned-0": lambda table: table.mig})
    result = analyses.imprecise_labels(table, resamples=20)
    assert "change of the median score, 100 binned labels, select only (U/S)" in [n.label for n in result.numbers]


def test_pairs_beat_single_images_as_planted() -> None:
    result = analyses.weak_against_unsupervised(synthetic_results(("a", "b", "c", "d"), seeds=4), resamples=20)
    assert result.value > 0.6
    assert result.numbers[0].low > 0.5


def test_k_and_group_labels_find_planted_orders() -> None:
    rows = [
        {"dataset": "mpi3d", "method": m, "strength": 1, "seed": s, "data.k": k,
         "mig": q + 0.01 * s, "dci": q + 0.01 * s}
        for m, k, q in [
            ("AdaGVAE", 1, 0.5), ("AdaGVAE", 2, 0.4), ("AdaGVAE", 4, 0.3), ("AdaGVAE", "rnd", 0.4),
            ("GVAE", 1, 0.8), ("GVAE", "rnd", 0.1),
        ]
        for s in range(3)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    by_k = analyses.adaptive_k(table, resamples=10)
    assert by_k.value < -0.9
    result = analyses.group_labels(table, resamples=10)
    assert result.number("a model with group labels wins, k = 1").value == 1.0
    assert result.number("a model with group labels wins, k = rnd").value == 0.0
    assert result.count()[:2] == (4, 4)


def test_reasoning_benefit_fades_as_planted() -> None:
    result = analyses.reasoning(synthetic_results(("a", "b"), seeds=6), resamples=100)
    metrics = [number for number in result.numbers if "metrics" in number.label]
    early, middle, late = (number.value for number in metrics)
    assert early > middle > late
    assert abs(late) < 0.15
    assert all(number.low < number.value < number.high for number in metrics)
    first, *_, last = metrics
    assert first.low > last.high  # planted far apart


def test_covariate_shift_costs_accuracy(table: pd.DataFrame) -> None:
    cost = analyses.covariate_shift(table, resamples=20).number("accuracy lost under shift")
    weak = table[table.method.isin(["AdaGVAE", "AdaMLVAE"])]
    assert cost.value == pytest.approx((weak.downstream_gbt_10000 - weak.covariate_shift).mean())


def test_models_without_scores_are_counted_not_hidden() -> None:
    table = population(1, mig=np.arange(36.0), status="done")
    table.loc[:4, "status"] = "failed"
    table.loc[5, "mig"] = np.nan
    notes = Population(table).notes
    assert notes == ["6 of 36 rows are of models without scores (5 failed, 1 done)."]
    assert len(Population(table)) == 30


def test_settings_and_strengths_are_read_from_swept_options() -> None:
    table = pd.DataFrame(
        {"dataset": "d", "method": ["BetaVAE", "BetaVAE", "S2BetaVAE"], "seed": 0, "model.beta": [1, 4, 4],
         "model.gamma_sup": [None, None, 2], "mig": 0.5}
    )  # fmt: skip
    frame = Population(table).frame
    assert frame.setting.nunique() == 3
    assert frame.strength.tolist()[:2] == [1, 4]


@pytest.mark.parametrize(
    ("table", "words"), [(pd.DataFrame({"mig": [1.0]}), "columns dataset and method"), (3, "DataFrame")]
)
def test_no_table_of_results_is_refused(table: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        analyses.metric_agreement(table)


def test_the_weak_loss_is_compared_inside_one_kind_of_pairs() -> None:
    """A loss on pairs that share less is larger whatever the model: k alone must not make a correlation."""
    rng = np.random.default_rng(0)
    rows = [
        {"dataset": "dsprites", "method": "AdaGVAE", "seed": seed, "model.beta": beta, "data.k": k, "steps": 10}
        for k in ("1", "rnd")
        for seed in range(4)
        for beta in (1, 2, 4, 6, 8, 16)
    ]
    table = pd.DataFrame(rows)
    quality = rng.random(
        len(table)
    )  # inside one k the loss goes with high scores; k = 1 has both less loss and more score
    easy = table["data.k"] == "1"
    table["mig"], table["dci"] = quality + 2 * easy, quality + 2 * easy
    table["val/weak_reconstruction"] = 50 + quality + 10 * ~easy
    table["unfairness"] = -table.mig
    table["downstream_gbt_100"] = table["covariate_shift"] = table.mig
    pooled = table[["val/weak_reconstruction", "mig"]].corr(method="spearman").iloc[0, 1]
    assert pooled < 0  # what pooling says
    loss = analyses.weak_loss(table, resamples=20)
    assert set(loss.table.dataset) == {"dsprites, k = 1", "dsprites, k = rnd"}
    assert loss.table.rho.tolist() == pytest.approx([1.0] * 4)
    assert analyses.weak_downstream(table, resamples=20).table.rho.tolist() == pytest.approx([1.0] * 2)
    fair = analyses.weak_fairness(table, resamples=20).table
    assert fair[fair.row == "weak_reconstruction"].rho.tolist() == pytest.approx([-1.0] * 2)
    shift = analyses.covariate_shift(table, resamples=20).table
    assert shift[shift.row == "weak_reconstruction"].rho.tolist() == pytest.approx([1.0] * 2)
    common = table.assign(weak_reconstruction=-table.mig)  # on one kind of pairs, models of all k compare
    both = analyses.weak_loss(common, resamples=20).table
    assert set(both.dataset) == {"dsprites, k = 1", "dsprites, k = rnd", "dsprites, all k"}
    assert both.rho.tolist() == pytest.approx([-1.0] * 6)


def test_the_weak_losses_of_the_bundled_table_are_those_of_pandas() -> None:
    table = load_results("weak32")
    models = table[table.method.isin(["AdaGVAE", "AdaMLVAE"])]
    trees = [f"downstream_gbt_{size}" for size in (10, 100, 1000, 10_000)]
    found = pd.concat(
        [
            analyses.weak_loss(table, resamples=2).table.query("row == 'weak_reconstruction'"),
            analyses.weak_downstream(table, resamples=2).table,
            analyses.weak_fairness(table, resamples=2)
            .table.query("row == 'weak_reconstruction'")
            .assign(column="unfairness"),
        ]
    ).set_index(["dataset", "column"])
    assert set(found.index.get_level_values(0)) == {"dsprites, k = 1", "dsprites, k = rnd"}
    for k, part in models.groupby(models["data.k"].astype(str)):
        inside = part.groupby("method")
        for column in ["mig", "dci", "sap", *trees, "unfairness"]:
            pair = ["val/weak_reconstruction", column]
            line = found.loc[(f"dsprites, k = {k}", column)]
            assert line.n == len(part) == 24
            assert line.rho == pytest.approx(part[pair].corr(method="spearman").iloc[0, 1], abs=1e-9)
            expected = np.mean([of[pair].corr(method="spearman").iloc[0, 1] for _, of in inside])
            assert line.within == pytest.approx(expected, abs=1e-9)


def test_the_pick_of_the_weak_loss_stands_beside_the_median_adaptive_model() -> None:
    rows = [
        {"dataset": "d", "method": "AdaGVAE", "seed": s, "model.beta": b, "data.k": k, "val/weak_reconstruction": b + s,
         "mig": b, "unfairness": 0.1 * b, "downstream_gbt_10000": 0.5}
        for b in (1, 2, 3, 4) for s in (0, 0.5) for k in (1, "rnd")
    ]  # fmt: skip
    rows += [
        {"dataset": "d", "method": "BetaVAE", "seed": s, "model.beta": 1, "mig": 0, "unfairness": 0.9,
         "downstream_gbt_10000": 0.5}
        for s in (0, 1)
    ]  # fmt: skip
    fair = analyses.weak_fairness(pd.DataFrame(rows), resamples=20)
    assert fair.number("unfairness of the pick, minus the median adaptive model").value == pytest.approx(0.1 - 0.25)
    assert fair.number("unfairness of the unsupervised pick, minus the pick by weak loss").value == pytest.approx(0.8)
    pick = analyses.weak_loss(pd.DataFrame(rows), resamples=20)
    assert pick.number("adaptive models that the pick of the lowest loss beats").value == pytest.approx(0.5 / 7)


def test_one_training_under_two_names_is_counted_once() -> None:
    rows = [
        {"dataset": "d", "method": m, "seed": s, "model.beta": b, "steps": 10, "mig": 10 * b + s}
        for m in ("BetaVAE", "BetaTCVAE") for b in (1, 2) for s in (0, 1)
    ]  # fmt: skip
    models = Population(pd.DataFrame(rows))
    assert sorted(models.frame.setting.unique()) == [
        "BetaTCVAE model.beta=2", "BetaVAE model.beta=1", "BetaVAE model.beta=2"
    ]  # fmt: skip
    assert any("2 models" in note and "same training" in note for note in models.notes)
    alone = Population(pd.DataFrame([row for row in rows if row["method"] == "BetaTCVAE"]))
    assert len(alone) == 4


def test_ties_are_half_a_win() -> None:
    equal = population(2, mig=0.5)
    assert analyses.transfer_experiment(equal, resamples=5).value == pytest.approx(0.5 + 0.5 / 36)


def test_what_explains_nothing_is_said_in_words() -> None:
    """A negative adjusted R² is no share of the variance, and of few models nothing can be said."""
    said = []
    for seeds, seed in itertools.product((3, 20), range(4)):
        rng = np.random.default_rng(seed)
        table = pd.DataFrame({"model.beta": np.repeat([1.0, 4.0], seeds), "seed": np.arange(2 * seeds)})
        table = table.assign(dataset="dsprites", method="BetaVAE", mig=rng.random(2 * seeds))
        result = analyses.explained_variance(table, resamples=20)
        share = result.number("method and strength, adjusted R²").value
        said.append("6 models are too few" if seeds == 3 else "no more" if share <= 0 else "varies across seeds")
        assert said[-1] in result.shows
        assert "explain -" not in result.shows
    assert len({*said}) == 3
