"""Chapter "Semi-Supervised Disentanglement": the value of a few labels."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unknot.studies.analyses import figures
from unknot.studies.analyses.result import Number, Result, Sign, analysis, mean_of
from unknot.studies.analyses.unsupervised import CLAIMED
from unknot.studies.population import METRICS, SEMI_SUPERVISED, Missing, Population, label
from unknot.studies.statistics import FEWEST, interval, rank_correlations

CHAPTER = "Semi-Supervised Disentanglement"
COUNTERPARTS = ("BetaVAE", "BetaTCVAE", "FactorVAE", "DIPVAEI")
HELD_OUT = "supervised"
"""R_s on the held-out labels."""
TEST_METRICS = tuple(name for name in METRICS if name != "irs")
PRINTED = {
    (100, "perfect"): 0.705,
    (100, "binned"): 0.648,
    (100, "noisy"): 0.675,
    (100, "partial"): 0.5,
    (1000, "partial"): 0.626,
}
"""Shares of trials that S² methods win, as printed."""
KINDS = ("perfect", "binned", "noisy", "partial", "permuted")


@analysis(
    "Do a few labels rank models?",
    "Does a validation score on 100 or 1,000 labels, perfect or not, rank models as the test metrics do?",
    CHAPTER,
    "MIG and DCI on 100 labels rank well (but for modularity), SAP much worse until there are 1,000; imprecise labels "
    "cost little.",
)
def validation_ranking(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlations of validation scores on labels with the test metrics."""
    models = population.unsupervised
    validation = models.validation()
    if validation.empty:
        raise Missing(
            "Needs validation scores on few labels, in columns such as mig@100-perfect-0 (score, labels, kind, "
            "draw): list an entry with `labels` under `scores` of the study."
        )
    models.need_models(FEWEST)
    tests = models.has(*TEST_METRICS)
    if not tests:
        raise Missing(f"Needs test metrics: one of {', '.join(TEST_METRICS)}.")
    lines = []
    for dataset, part in models.parts():
        found = rank_correlations(part, list(validation.column), tests, part.setting, resamples, seed)
        found = found.merge(validation, left_on="row", right_on="column", suffixes=("", "_of"))
        # draws of labels are averaged, because a single draw is noisy
        by = found.groupby(["score", "labels", "kind", "column"], sort=False)
        mean = by[["rho", "low", "high"]].mean().join(by.size().rename("draws")).reset_index()
        mean.insert(0, "dataset", dataset)
        lines.append(mean)
    table = pd.concat(lines, ignore_index=True).rename(columns={"column": "metric"})
    claimed = table[table.metric.isin(CLAIMED)]
    means = claimed.groupby(["labels", "kind", "score"]).rho.mean()
    numbers = [
        Number(f"mean ρ, {label(str(score))} on {labels} {kind} labels", float(value), chance=0.0)
        for (labels, kind, score), value in means.items()
    ]
    signs = [
        Sign(
            f"{label(p.score)} on {p.labels} {p.kind} labels with {label(p.metric)}, {p.dataset}",
            1,
            p.rho,
            p.low,
            p.high,
        )
        for p in claimed[claimed.score.isin(["mig", "dci"])].itertuples()
    ]

    def compare(claim: str, more: tuple[int, str, str], less: tuple[int, str, str]) -> None:
        if more in means.index and less in means.index:
            signs.append(Sign(claim, 1, float(means[more] - means[less])))

    compare("SAP ranks worse than MIG on 100 labels", (100, "perfect", "mig"), (100, "perfect", "sap"))
    compare("SAP ranks worse than DCI on 100 labels", (100, "perfect", "dci"), (100, "perfect", "sap"))
    compare("SAP gains from 1,000 labels", (1000, "perfect", "sap"), (100, "perfect", "sap"))
    parts = {}
    for (labels, kind), of in table.groupby(["labels", "kind"], sort=False):
        matrix = of.pivot_table(index="score", columns="metric", values="rho")
        parts[f"{labels} {kind} labels"] = matrix.reindex(columns=tests)
    best = means.idxmax() if means.notna().any() else None
    said = f"{label(str(best[2]))} on {best[0]} {best[1]} labels" if best is not None else "none"
    return Result(
        numbers,
        f"Validation scores on few labels rank models with ρ between {means.min():.2f} and {means.max():.2f} on "
        f"average; the best is {said}.",
        "The same unsupervised models serve every label setting, so the settings are compared, not independent; ρ over "
        "all models is not the quality of the single best pick.",
        table,
        lambda figure: figures.heatmaps(figure, parts),
        signs,
        models.gaps([*validation.column, *tests]),
    )


def _picks(population: Population, select_by: str, test_metric: str = "") -> pd.DataFrame:
    """Return the model that each method selects, for each data set, number, kind and draw of labels, with its test
    metrics.

    Args:
        population: models with and without labels.
        select_by: validation score that selects models trained without labels.
        test_metric: select them by this test metric instead, as an upper bound.
    """
    frame = population.frame
    held_out = population.has(HELD_OUT)
    lines: list[pd.DataFrame] = []
    options = ["data.num_labels", "data.labelling", "data.label_seed"]
    semi = frame[frame.method.isin([*SEMI_SUPERVISED, "SupervisedVAE"])]
    if held_out and len(semi) and set(options[:2]) <= set(frame):
        semi = semi.assign(
            labels=semi[options[0]],
            kind=semi[options[1]],
            draw=semi.get(options[2], 0),
            selected=-semi[HELD_OUT],
        )
        lines.append(semi)
    validation = population.validation()
    validation = validation[validation.score == select_by]
    cohort = frame[frame.method.isin(COUNTERPARTS)]
    for entry in validation.itertuples():
        draw = entry.draw if entry.draw != "" else 0
        selected = cohort[test_metric or entry.column]
        lines.append(cohort.assign(labels=entry.labels, kind=entry.kind, draw=draw, selected=selected))
    if not lines:
        return pd.DataFrame()
    keys = ["dataset", "labels", "kind", "draw", "method"]
    both = pd.concat(lines, ignore_index=True).dropna(subset=["selected"])
    both["labels"] = both["labels"].astype(int)  # a table of several studies has them as floats
    picked = both.loc[both.groupby(keys)["selected"].idxmax()]
    return picked[[*keys, "setting", "selected", *population.has(*TEST_METRICS)]].reset_index(drop=True)


def _trials(picked: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each data set, draw of labels and test metric: whether the best S² method wins."""
    tests = [name for name in TEST_METRICS if name in picked]
    lines = []
    for keys, group in picked.groupby(["dataset", "labels", "kind", "draw"]):
        of = group.set_index("method")
        semi, only = (of[of.index.isin(names)] for names in (SEMI_SUPERVISED, COUNTERPARTS))
        if semi.empty or only.empty:
            continue
        for metric in tests:
            a, b = semi[metric].dropna(), only[metric].dropna()
            if a.empty or b.empty:
                continue
            lines.append(
                dict(zip(("dataset", "labels", "kind", "draw"), keys, strict=True))
                | {
                    "metric": metric,
                    "won": 0.5 * (float(a.max() > b.max()) + float(a.max() >= b.max())),
                    "best": (a if a.max() >= b.max() else b).idxmax(),
                    "chance": len(a) / (len(a) + len(b)),
                    "S²": a.max(),
                    "U/S": b.max(),
                    "supervised": of[metric].get("SupervisedVAE", np.nan),
                }
            )
    return pd.DataFrame(lines)


@analysis(
    "Train with the labels, or only select?",
    "With the same few labels, is the best of four methods that train on them better than the best of four that do "
    "not?",
    CHAPTER,
    "Methods that train on 100 perfect labels win 70.5 % of the trials, on binned 64.8 %, on noisy 67.5 %, on partial "
    "50.0 % (1,000: 62.6 %); the supervised baseline is worst.",
)
def semi_supervised(population: Population, resamples: int, seed: int) -> Result:
    """Share of trials (data set, draw of labels, test metric) that S²/S methods win against U/S selected by MIG."""
    picked = _picks(population, "mig")
    if picked.empty or not set(picked.method) & set(SEMI_SUPERVISED) or not set(picked.method) & set(COUNTERPARTS):
        raise Missing(
            f"Needs models of {', '.join(SEMI_SUPERVISED)} with R_s on the held-out labels (a column {HELD_OUT}), "
            "their data.num_labels and data.labelling, and unsupervised models of the same data sets with validation "
            "MIG on the same labels (mig@100-perfect-0, ...)."
        )
    table = _trials(picked)
    if table.empty:
        raise Missing("No draw of labels has both an S² model and validation MIG of the unsupervised ones.")
    rng = np.random.default_rng(seed)
    numbers = []
    for (labels, kind), of in table.groupby(["labels", "kind"], sort=False):
        # trials of one draw share models: resample draws, not trials
        blocks = of.groupby(["dataset", "draw"]).won.mean().to_numpy()
        drawn = blocks[rng.integers(len(blocks), size=(resamples, len(blocks)))].mean(1)
        low, high = interval(drawn) if len(blocks) > 1 else (np.nan, np.nan)
        thesis = PRINTED.get((labels, str(kind)), np.nan)
        numbers.append(
            Number(
                f"trials won by S² methods, {labels} {kind} labels",
                mean_of(of.won),
                low,
                high,
                mean_of(of.chance),
                thesis,
                percent=True,
            )
        )
    signs = [
        Sign(f"{n.label}: more than half", 1, n.value - 0.5, n.low - 0.5, n.high - 0.5)
        for n in numbers
        if "partial" not in n.label
    ]
    if table.supervised.notna().any():
        margin = mean_of(np.minimum(table["S²"], table["U/S"]) - table.supervised)
        signs.append(Sign("the supervised baseline is worst", 1, margin))
    best = table.best.value_counts()
    wins = table.groupby("metric").won.mean()
    by_test = [_trials(_picks(population, "mig", metric)) for metric in TEST_METRICS if metric in picked]
    numbers.append(
        Number(
            "trials won if the others are selected by a test metric",
            mean_of([trials.won.mean() for trials in by_test if len(trials)]),  # some models may lack a metric
            chance=0.5,
            percent=True,
        )
    )
    perfect = picked[picked.kind == "perfect"]
    medians = perfect.groupby(["labels", "method"]).dci.median() if "dci" in picked else None
    if medians is not None:
        numbers += [
            Number(f"median DCI of {label(str(method))}, {labels:,} perfect labels", float(value))
            for (labels, method), value in medians.items()
        ]

    def draw(figure: Figure) -> None:
        left, right = figure.subfigures(1, 2, width_ratios=[3, 2], squeeze=False)[0]
        shares = [number for number in numbers if number.percent]
        figures.bars(left, shares)
        axis = right.subplots()
        axis.barh([label(str(name)) for name in best.index], best.to_numpy(), color="C0", alpha=0.6)
        axis.invert_yaxis()
        axis.set_xlabel("trials in which it is best", fontsize=8)
        axis.tick_params(labelsize=7)
        figure.set_size_inches(10, 0.9 + 0.42 * max(len(shares), len(best)))

    return Result(
        numbers,
        f"{numbers[0]}. The method that is best most often is {label(str(best.index[0]))}; wins by metric: "
        + ", ".join(f"{label(str(name))} {100 * value:.0f} %" for name, value in wins.items())
        + ".",
        f"{len(table)} trials of {table.groupby(['dataset', 'labels', 'kind', 'draw']).ngroups} draws: metrics of one "
        "pick depend on each other, so a share near one half says nothing.",
        table,
        draw,
        signs,
    )


@analysis(
    "What do imprecise labels cost?",
    "How much worse are the picked models when labels are binned, noisy or partial?",
    CHAPTER,
    "Imprecision costs little; selecting is slightly more robust than training.",
)
def imprecise_labels(population: Population, resamples: int, seed: int) -> Result:
    """Test scores of selected models by kind of labels, for methods that train on labels or only select by them."""
    picked = _picks(population, "mig")
    if picked.empty or picked.kind.nunique() < 2 or "perfect" not in set(picked.kind):
        kinds = ", ".join(map(str, picked.kind.unique())) if len(picked) else "none"
        raise Missing(
            f"Needs picks on perfect labels and on another kind ({', '.join(KINDS[1:])}); the table has {kinds}."
        )
    tests = [name for name in TEST_METRICS if name in picked]
    group = np.where(picked.method.isin(COUNTERPARTS), "select only (U/S)", "train and select (S²/S)")
    picked = picked.assign(group=group)
    long = picked.melt(["dataset", "labels", "kind", "draw", "method", "group"], tests, "metric", "score").dropna()
    table = long.groupby(["labels", "group", "kind"]).score.agg(["median", "count"]).reset_index()
    perfect = table[table.kind == "perfect"].set_index(["labels", "group"])["median"]
    keys = pd.MultiIndex.from_frame(table[["labels", "group"]])
    table["cost"] = table["median"] - perfect.reindex(keys).to_numpy()
    numbers = [
        Number(f"change of the median score, {row.labels} {row.kind} labels, {row.group}", row.cost)
        for row in table[table.kind != "perfect"].itertuples()
    ]
    parts = {
        f"{labels} labels, {name}": {str(k): of[of.kind == k].score for k in KINDS if k in set(of.kind)}
        for (labels, name), of in long.groupby(["labels", "group"])
    }
    cost = mean_of([number.value for number in numbers])
    return Result(
        numbers,
        f"Imprecise labels change the median test score of picked models by {cost:+.3f} on average.",
        "Medians over metrics of different scales; with few draws one unlucky set of labels decides.",
        table,
        lambda figure: figures.violins(figure, parts, "test score of the pick"),
    )
