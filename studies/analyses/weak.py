"""Chapter "Weakly-Supervised Disentanglement": the value of pairs of images."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unknot.studies.analyses import figures
from unknot.studies.analyses.result import Correlations, Number, Result, Sign, analysis, correlations, mean_of, mean_rho
from unknot.studies.analyses.transfer import Cube, success
from unknot.studies.analyses.unsupervised import CLAIMED
from unknot.studies.population import (
    ACCURACY,
    ADAPTIVE,
    DOWNSTREAM,
    GROUPED,
    NOT_UNSUPERVISED,
    Missing,
    Population,
    by_figure,
    kinds_of_pairs,
    label,
)
from unknot.studies.statistics import (
    Floats,
    block_weights,
    bootstrap_superiority,
    interval,
    rank_correlations,
    superiority,
)
from unknot.studies.study import METHODS

CHAPTER = "Weakly-Supervised Disentanglement"
LOSS, OWN_LOSS = "weak_reconstruction", "val/weak_reconstruction"
REASONING = re.compile(r"reasoning_(\d+)")
HINT = "the weak reconstruction loss of a checkpoint, which no labels are needed for"


def _adaptive(population: Population, *columns: str, why: str = "") -> Population:
    models = population.methods(*ADAPTIVE)
    if not len(models):
        raise Missing("Needs weakly supervised models: AdaGVAE or AdaMLVAE, trained on pairs.")
    models.need(*columns, why=why)
    return models


def equal_pairs(models: Population) -> Population:
    """Return the models with a data set for each kind of pairs, and one more if the loss uses the same pairs for all.

    ``val/weak_reconstruction`` is measured on pairs of the kind that the model was trained on, whereas
    ``weak_reconstruction`` is measured on one kind for all models, which makes different k comparable.
    """
    groups = models.by_pairs()
    frame = groups.frame
    if OWN_LOSS in frame and LOSS in frame:
        common = frame[LOSS]
        complete = common.notna().groupby(frame.dataset).transform("all")
        both = frame[common.notna()].assign(dataset=frame.dataset.str.replace(r", k = \w+", ", all k", regex=True))
        several = kinds_of_pairs(both).groupby(both.dataset).transform("nunique") > 1
        groups.frame = pd.concat([frame.assign(**{LOSS: common.where(complete, frame[OWN_LOSS])}), both[several]])
        groups.frame = groups.frame.reset_index(drop=True)
    return groups


@analysis(
    "Do pairs help?",
    "Are models that learn from pairs more disentangled than models that learn from single images?",
    CHAPTER,
    "Adaptive methods are clearly better than all unsupervised ones; Ada-GVAE is at least as good as Ada-ML-VAE.",
)
def weak_against_unsupervised(population: Population, resamples: int, seed: int) -> Result:
    """Distributions of the metrics by method, and how often an Ada-GVAE beats an unsupervised model."""
    models = population.only(~population.frame.method.isin(set(NOT_UNSUPERVISED) - set(ADAPTIVE)))
    metrics = models.metrics()
    notes = []
    ks = kinds_of_pairs(models.frame)
    weak = models.frame.method.isin(ADAPTIVE)
    if not weak.any() or weak.all():
        raise Missing("Needs unsupervised and adaptive models (AdaGVAE or AdaMLVAE) of the same data sets.")
    if (ks[weak] == "rnd").any() and (ks[weak] != "rnd").any():
        notes.append("Of the adaptive models those with k = rnd are compared, as in the thesis.")
        models = models.only(~weak | (ks == "rnd"))
    lines, parts = [], {}
    drawn: list[Floats] = []
    drawn_best: list[Floats] = []
    for place, (dataset, part) in enumerate(models.parts()):
        adaptive = part.method.isin(ADAPTIVE)
        if not adaptive.any() or adaptive.all():
            continue
        for metric in metrics:
            of = part.dropna(subset=[metric])
            groups = {m: of[of.method == m][metric].to_numpy() for m in by_figure(of.method)}
            single = of[~of.method.isin(ADAPTIVE)][metric]
            pairs = of[of.method == "AdaGVAE"][metric] if "AdaGVAE" in groups else of[of.method.isin(ADAPTIVE)][metric]
            if not len(single) or not len(pairs):
                continue
            win = superiority(pairs, single)
            rival = max((m for m in groups if m not in ADAPTIVE), key=lambda m: np.median(groups[m]))
            best = superiority(pairs, groups[rival])
            both = [superiority(groups["AdaGVAE"], groups["AdaMLVAE"])] if set(ADAPTIVE) <= set(groups) else [np.nan]
            lines.append(
                {
                    "dataset": dataset,
                    "metric": metric,
                    "median, pairs": np.median(pairs),
                    "median, single": np.median(single),
                    "wins": win,
                    "wins against the best method": best,
                    "Ada-GVAE over Ada-ML-VAE": both[0],
                    "pairs": len(pairs),
                    "single": len(single),
                }
            )
            parts[f"{dataset}, {label(metric)}"] = groups
            for into, rivals in ((drawn, single.index), (drawn_best, of.index[of.method == rival])):
                both_sides = of.loc[[*pairs.index, *rivals]]
                side = np.isin(both_sides.index, pairs.index)
                weights = block_weights(both_sides.setting, resamples, seed + place, strata=side)
                into.append(bootstrap_superiority(both_sides[metric], side, weights))
    if not lines:
        raise Missing("No data set has both unsupervised and adaptive models with the same metric.")
    table = pd.DataFrame(lines)
    wins = Number(
        "an Ada-GVAE beats an unsupervised model",
        mean_of(table.wins),
        *interval(np.mean(drawn, axis=0)),
        0.5,
        percent=True,
    )
    signs = [
        Sign(f"pairs beat single images by {label(line.metric)}, {line.dataset}", 1, line.wins - 0.5)
        for line in table[table.metric.isin(CLAIMED)].itertuples()
    ]
    better = mean_of(table["Ada-GVAE over Ada-ML-VAE"])
    if not np.isnan(better):
        signs.append(Sign("Ada-GVAE is better than Ada-ML-VAE", 1, better - 0.5))
    return Result(
        [
            wins,
            Number(
                "it beats a model of the best unsupervised method",
                mean_of(table["wins against the best method"]),
                *interval(np.mean(drawn_best, axis=0)),
                chance=0.5,
                percent=True,
            ),
        ],
        f"A random Ada-GVAE beats a random unsupervised model in {wins.text(wins.value)} of comparisons over metrics "
        "and data sets.",
        "Methods saw different data: a pair tells which factors stay, which a single image cannot; strengths are not "
        "comparable either.",
        table,
        lambda figure: figures.violins(figure, parts, "score"),
        signs,
        [*notes, *models.gaps(metrics)],
    )


@analysis(
    "Does the weak loss select?",
    "Does the reconstruction loss on pairs, which needs no labels, rank models as the metrics do?",
    CHAPTER,
    "A low weak reconstruction loss goes with high scores; models are selected by it.",
)
def weak_loss(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlation of the weak loss with the metrics on equal pairs, and the quality of the model with the lowest
    loss.
    """
    models = equal_pairs(_adaptive(population, LOSS, why=HINT))
    metrics = models.metrics()
    models.need_models(4, "adaptive models")
    found = correlations(models, [LOSS], metrics, resamples, seed)
    signs = found.signs(lambda _, column: -int(column in CLAIMED), lambda _, column: f"weak loss with {label(column)}")
    claimed = [metric for metric in metrics if metric in CLAIMED]
    numbers = mean_rho(models, found, [LOSS], claimed, "mean ρ of the weak loss with the metrics", seed)
    select, judge = Cube.of(models, [LOSS]), Cube.of(models, metrics)
    if len(judge.settings) > 1:
        select = Cube(-select.values, select.datasets, select.columns, select.seeds, select.settings)
        weights = np.vstack([np.ones(len(judge.settings)), block_weights(judge.settings, resamples, seed)])
        shares = np.diagonal(success(select, judge, weights, own_seed=True)[:, :, 0], axis1=1, axis2=2)
        values = np.array([mean_of(resample) for resample in shares])
        numbers.append(
            Number(
                "the model of lowest loss is at least as good as a random one",
                values[0],
                *interval(values[1:]),
                0.5 + 0.5 / len(judge.settings),
                percent=True,
            )
        )
    beaten = []
    for _, part in models.parts():
        of = part.dropna(subset=[LOSS])
        if len(of) > 1:
            others = of.drop(index=of[LOSS].idxmin())
            beaten += [superiority(of.loc[[of[LOSS].idxmin()], metric], others[metric]) for metric in claimed]
    numbers.append(
        Number("adaptive models that the pick of the lowest loss beats", mean_of(beaten), chance=0.5, percent=True)
    )
    beats = numbers[-1]
    return Result(
        numbers,
        f"On equal pairs the weak loss correlates with the metrics (without modularity and IRS) with "
        f"ρ = {numbers[0].value:.2f} on average; the model of the lowest loss beats {beats.text(beats.value)} of the "
        "others.",
        "A loss grows with β by itself: over several strengths it ranks strengths first.",
        found.long,
        lambda figure: figures.heatmaps(figure, found.matrices()),
        signs,
        found.notes,
    )


@analysis(
    "Does Ada-GVAE adapt to the number of changes?",
    "Does it work however many factors change in a pair, k = 1, 2, ...?",
    CHAPTER,
    "It works for all k, better when the changes are sparser.",
)
def adaptive_k(population: Population, resamples: int, seed: int) -> Result:
    """Scores of Ada-GVAE by the number of factors that change."""
    models = _adaptive(population, "data.k", why="how many factors change in a pair")
    models = models.methods("AdaGVAE") if "AdaGVAE" in set(models.frame.method) else models
    frame = models.frame.assign(k=kinds_of_pairs(models.frame))
    frame = frame[frame.k != "nan"]
    ks = sorted(set(frame.k), key=lambda k: (not k.isdigit(), int(k) if k.isdigit() else 0))
    if len(ks) < 2:
        raise Missing(f"Needs at least two settings of data.k; the table has k = {', '.join(ks)}.")
    metrics = models.metrics()
    lines, signs = [], []
    parts: dict[str, dict[str, tuple[object, object]]] = {}
    for dataset, part in frame.groupby("dataset", sort=False):
        for metric in metrics:
            by = part.groupby("k")[metric]
            lines += [
                {"dataset": dataset, "metric": metric, "k": k, "median": by.median()[k], "models": by.count()[k]}
                for k in ks
                if k in by.groups
            ]
            medians = by.median().reindex(ks)
            parts.setdefault(str(dataset), {})[metric] = (np.arange(len(ks)), medians.to_numpy())
            fixed = part[part.k.str.isdigit()]
            rho = rank_correlations(fixed.assign(k=fixed.k.astype(int)), ["k"], [metric], None, resamples, seed).iloc[0]
            if metric in CLAIMED:
                signs.append(Sign(f"{label(metric)} falls with k, {dataset}", -1, rho.rho, rho.low, rho.high))
    table = pd.DataFrame(lines)
    mean = mean_of([sign.observed for sign in signs])
    medians = table[table.metric.isin(CLAIMED)].groupby("k")["median"].mean().reindex(ks)

    def draw(figure: Figure) -> None:
        figures.curves(figure, parts, "factors that change", "median score")
        for axis in figure.axes:
            axis.set_xticks(range(len(ks)), ks)

    return Result(
        [
            Number("mean ρ of k with the metrics", mean, chance=0.0),
            *(Number(f"mean of medians, k = {k}", float(v)) for k, v in medians.items()),
        ],
        f"Medians over metrics, k by k: {', '.join(f'{k} {v:.3f}' for k, v in medians.items())}.",
        "With few seeds for each k only the order of medians is to be read; k = rnd has no place in the order.",
        table,
        draw,
        signs,
        models.gaps(metrics),
    )


@analysis(
    "Do group labels help?",
    "Are models with group labels, which say what the images of a pair share, better than those that infer it?",
    CHAPTER,
    "With one changed factor a group label helps; with random k, the label of one of the changes hurts.",
)
def group_labels(population: Population, resamples: int, seed: int) -> Result:
    """Compare adaptive methods with their counterparts that have group labels, by the number of changes."""
    models = population.methods(*ADAPTIVE, *GROUPED)
    if not len(models.methods(*ADAPTIVE)) or not len(models.methods(*GROUPED)):
        raise Missing("Needs adaptive models (AdaGVAE, AdaMLVAE) and models with group labels (GVAE, MLVAE).")
    metrics = models.metrics()
    frame = models.frame.assign(k=kinds_of_pairs(models.frame))
    lines = []
    for (dataset, k), part in frame.groupby(["dataset", "k"], sort=False):
        for grouped, adaptive in (("GVAE", "AdaGVAE"), ("MLVAE", "AdaMLVAE")):
            for metric in metrics:
                a, b = (part[part.method == name][metric].dropna() for name in (grouped, adaptive))
                if len(a) and len(b):
                    lines.append(
                        {
                            "dataset": dataset,
                            "k": k,
                            "method": grouped,
                            "metric": metric,
                            "wins": superiority(a, b),
                            "median, group labels": a.median(),
                            "median, adaptive": b.median(),
                        }
                    )
    if not lines:
        raise Missing("No data set has an adaptive method and its counterpart with group labels for the same k.")
    table = pd.DataFrame(lines)
    means = table[table.metric.isin(CLAIMED)].groupby("k")["wins"].mean()
    numbers = [
        Number(f"a model with group labels wins, k = {k}", float(v), chance=0.5, percent=True) for k, v in means.items()
    ]
    signs = [
        Sign(
            f"{METHODS[line.method]} with group labels, k = {line.k}, {label(line.metric)}, {line.dataset}",
            1 if line.k == "1" else -1,
            line.wins - 0.5,
        )
        for line in table[table.metric.isin(CLAIMED) & table.k.isin(["1", "rnd"])].itertuples()
    ]
    margin = table.assign(case=[f"{METHODS[t]}, k = {k}" for t, k in zip(table.method, table.k, strict=True)])
    margin["margin"] = 2 * margin.wins - 1
    matrices = {
        str(dataset): part.pivot(index="metric", columns="case", values="margin").reindex(metrics)
        for dataset, part in margin.groupby("dataset", sort=False)
    }
    return Result(
        numbers,
        "A model with group labels wins against an adaptive one: "
        + "; ".join(f"k = {k}: {100 * v:.0f} %" for k, v in means.items())
        + ".",
        "The label names one changed factor: the whole truth for k = 1, a part of it for random k.",
        table,
        lambda figure: figures.heatmaps(figure, matrices, "wins − losses"),
        signs,
        models.gaps(metrics),
    )


@analysis(
    "Is a low weak loss useful?",
    "Do models of low weak loss allow better predictions of the factors?",
    CHAPTER,
    "The weak loss is in general anti-correlated with downstream accuracy.",
)
def weak_downstream(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlation of the weak loss with downstream accuracies."""
    models = equal_pairs(_adaptive(population, LOSS, why=HINT))
    columns = models.has(*DOWNSTREAM)
    if not columns:
        raise Missing("Needs downstream accuracies of adaptive models: score with downstream_gbt and downstream_lr.")
    models.need_models(4, "adaptive models")
    found = correlations(models, [LOSS], columns, resamples, seed)
    signs = found.signs(lambda _, c: -int(not c.endswith("efficiency")), lambda _, c: f"weak loss with {label(c)}")
    accuracies = [column for column in columns if not column.endswith("efficiency")]
    numbers = mean_rho(models, found, [LOSS], accuracies, "mean ρ, weak loss with accuracies", seed)
    return _of_means(found, signs, numbers)


@analysis(
    "Does it generalise under covariate shift?",
    "When a factor is frozen in training and takes other values in the test, do disentangled models predict better?",
    CHAPTER,
    "Accuracy under shift goes with the metrics and against the weak loss; it is lower than without shift.",
)
def covariate_shift(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlation of accuracy under covariate shift with metrics and weak loss, and the loss of accuracy."""
    adaptive = population.methods(*ADAPTIVE).has("covariate_shift")
    models = equal_pairs(population.methods(*ADAPTIVE)) if adaptive else population
    models.need("covariate_shift", why="score the models with covariate_shift")
    models.need_models(4)
    metrics = models.metrics()
    found = correlations(models, [*metrics, *models.has(LOSS)], ["covariate_shift"], resamples, seed)
    signs = found.signs(
        lambda row, _: -1 if row == LOSS else int(row in CLAIMED),
        lambda row, _: f"{label(row)} with accuracy under shift",
    )
    claimed = [metric for metric in metrics if metric in CLAIMED]
    numbers = mean_rho(models, found, claimed, ["covariate_shift"], "mean ρ, metrics with accuracy under shift", seed)
    if models.has(LOSS):
        numbers += mean_rho(
            models, found, [LOSS], ["covariate_shift"], "mean ρ, weak loss with accuracy under shift", seed
        )
    if models.has(ACCURACY):
        of = models.frame.dropna(subset=["covariate_shift", ACCURACY])
        gap = (of[ACCURACY] - of.covariate_shift).to_numpy()
        weights = block_weights(of.dataset + of.setting, resamples, seed)
        cost = Number(
            "accuracy lost under shift", float(gap.mean()), *interval((weights @ gap) / weights.sum(1)), percent=True
        )
        numbers.append(cost)
        signs.append(Sign("accuracy under shift is lower", 1, float(gap.mean()), cost.low, cost.high))
    result = _of_means(found, signs, numbers)
    return replace(result, draw=lambda figure: _draw_shift(figure, models.frame, found))


@analysis(
    "Does the weak loss find fair models?",
    "Are models of low weak loss fairer, and fairer than unsupervised ones picked by accuracy?",
    CHAPTER,
    "The weak loss correlates with unfairness as strongly as the metrics; its pick is fairer than the unsupervised "
    "one.",
)
def weak_fairness(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlation of weak loss and metrics with unfairness on equal pairs, and the models selected by each."""
    adaptive = _adaptive(population, LOSS, "unfairness", why=f"{HINT}; and unfairness")
    models = equal_pairs(adaptive)
    models.need_models(4, "adaptive models")
    rows = [LOSS, *models.metrics()]
    found = correlations(models, rows, ["unfairness"], resamples, seed)
    signs = found.signs(
        lambda row, _: 1 if row == LOSS else -int(row in CLAIMED), lambda row, _: f"{label(row)} with unfairness"
    )
    numbers = mean_rho(models, found, [LOSS], ["unfairness"], "mean ρ of the weak loss with unfairness", seed)
    claimed = [row for row in rows if row in CLAIMED]
    numbers += mean_rho(models, found, claimed, ["unfairness"], "mean ρ of the metrics with unfairness", seed)
    single = population.unsupervised.frame
    usable = population.unsupervised.has("unfairness") and population.unsupervised.has(ACCURACY)
    margins, beyond = [], []
    for _, part in models.parts():
        of = part.dropna(subset=[LOSS, "unfairness"])
        if len(of) > 1:
            pick = of.loc[of[LOSS].idxmin(), "unfairness"]
            beyond.append(pick - of.unfairness.median())
            if usable:
                rivals = single[single.dataset == of["data set"].iloc[0]].dropna(subset=[ACCURACY, "unfairness"])
                margins += [rivals.loc[rivals[ACCURACY].idxmax(), "unfairness"] - pick] if len(rivals) else []
    name = "unfairness of the pick, minus the median adaptive model"
    numbers.append(Number(name, mean_of(beyond), chance=0.0))
    if margins:
        name = "unfairness of the unsupervised pick, minus the pick by weak loss"
        numbers.append(Number(name, mean_of(margins), chance=0.0))
    return _of_means(found, signs, numbers)


@analysis(
    "Does it help abstract reasoning?",
    "Does a relation network learn to reason faster on disentangled codes: after few steps, and after many?",
    CHAPTER,
    "At few samples the weak loss is strongly anti-correlated with accuracy; with many the benefit is gone.",
)
def reasoning(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlation of weak loss and metrics with reasoning accuracy, against the number of steps."""
    steps = {int(match[1]): column for column in population.frame if (match := REASONING.fullmatch(column))}
    steps = {n: steps[n] for n in sorted(steps) if population.has(steps[n])}
    if not steps:
        raise Missing(
            "Needs the accuracy after some numbers of steps (reasoning_300, reasoning_1000, ...): score with "
            "the metric reasoning."
        )
    population.need_models(4)
    models = equal_pairs(population)
    rows = [*models.metrics(), *models.has(LOSS, "dci_informativeness_test", ACCURACY)]
    found = correlations(models, rows, list(steps.values()), resamples, seed)
    few = next(iter(steps.values()))
    signs = found.signs(
        lambda row, column: (column == few) * (-1 if row == LOSS else int(row in ("dci", "factor_vae"))),
        lambda row, column: f"{label(row)} with {column.replace('_', ' after ')} steps",
    )
    parts = {
        name: {row: (list(steps), matrix.loc[row].to_numpy()) for row in rows}
        for name, matrix in found.matrices().items()
    }
    claimed = [row for row in rows if row in CLAIMED]
    numbers = [
        mean_rho(models, found, claimed, [column], f"mean ρ of the metrics after {n:,} steps", seed)[0]
        for n, column in steps.items()
    ]
    if LOSS in rows:
        numbers += [
            mean_rho(models, found, [LOSS], [column], f"mean ρ of the weak loss after {n:,} steps", seed)[0]
            for n, column in steps.items()
        ]
    if len(steps) > 1 and numbers[0].value == numbers[0].value:
        last = numbers[len(steps) - 1].value
        signs.append(Sign("the benefit is smaller after many steps", 1, numbers[0].value - last))
    return Result(
        numbers,
        "Mean ρ of the metrics (without modularity and IRS) with accuracy: "
        + ", ".join(f"{n:,} steps {number.value:.2f}" for n, number in zip(steps, numbers, strict=False))
        + ".",
        "Below the level of row matching, accuracy measures how easily codes show that two panels agree, not "
        "reasoning.",
        found.long,
        lambda figure: figures.curves(figure, parts, "steps", "Spearman's ρ", log_x=True),
        signs,
        found.notes,
    )


def _draw_shift(figure: Figure, frame: pd.DataFrame, found: Correlations) -> None:
    """Draw correlations, and the accuracies with and without shift next to a guess from the prior alone."""
    left, right = figure.subfigures(1, 2, squeeze=False)[0]
    figures.heatmaps(left, found.matrices())
    columns = {"without shift": ACCURACY, "under shift": "covariate_shift"}
    parts = {
        str(dataset): {name: part[column].dropna().to_numpy() for name, column in columns.items() if column in part}
        for dataset, part in frame.groupby("dataset", sort=False)
    }
    figures.violins(right, parts, "accuracy")
    for axis, (_, part) in zip(right.axes, frame.groupby("dataset", sort=False), strict=True):
        guess = _prior_only(str(part.get("data set", part.dataset).iloc[0]))
        if guess == guess:
            axis.axhline(guess, color="C3", linestyle="--", linewidth=1)
            axis.annotate("prior only", (0.02, guess), xycoords=("axes fraction", "data"), fontsize=7, va="bottom")
    figure.set_size_inches(max(8.0, 2.2 * len(parts) + 5), 4)


def _prior_only(dataset: str) -> float:
    """Return the accuracy of a guess from the numbers of factor values, without the image."""
    from unknot.training.settings import build

    try:
        return mean_of([1 / size for size in build(dataset).factor_space.sizes])
    except ValueError:  # a user's data set, or an unknown name
        return float("nan")


def _of_means(found: Correlations, signs: list[Sign], numbers: list[Number]) -> Result:
    """Return a result whose main number is the mean of some correlations."""
    return Result(
        numbers,
        f"{numbers[0]}.".replace("mean ρ", "Mean ρ", 1),
        "The correlations of one population depend on each other, and those of few models have wide intervals.",
        found.long,
        lambda figure: figures.heatmaps(figure, found.matrices()),
        signs,
        found.notes,
    )
