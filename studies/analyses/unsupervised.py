"""Chapter "Unsupervised Learning of Disentangled Representations": effects of regularisation, method and strength."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from unknot.studies.analyses import figures
from unknot.studies.analyses.result import Number, Result, Sign, analysis, correlations, mean_of, mean_rho
from unknot.studies.population import DOWNSTREAM, UNSUPERVISED_SCORES, Missing, Population, by_figure, label
from unknot.studies.statistics import (
    Floats,
    block_weights,
    bootstrap_superiority,
    bootstrap_variance_explained,
    interval,
    sign_count,
    superiority,
    variance_explained,
)

CHAPTER = "Unsupervised Learning of Disentangled Representations"
FEWEST = 10  # minimum number of models to report a share of the variance
CLAIMED = ("beta_vae", "factor_vae", "mig", "dci", "sap")
"""Metrics that the thesis' claims are about: all but modularity, and IRS in part."""


def _trend(strength: pd.Series, values: pd.Series) -> float:
    """Return ρ of strength and the median over seeds; NaN for fewer than three strengths."""
    medians = values.groupby(strength).median().dropna()
    if len(medians) < 3 or medians.nunique() < 2:
        return float("nan")
    return float(stats.spearmanr(medians.index, medians).statistic)


@analysis(
    "Does regularisation uncorrelate the codes?",
    "Does the total correlation of sampled codes and of mean codes fall as the regularisation gets stronger?",
    CHAPTER,
    "The total correlation of samples falls with the strength (but for FactorVAE); that of the means mostly rises.",
)
def total_correlation(population: Population, resamples: int, seed: int) -> Result:
    """Total correlation of means and of samples against strength, per method, without AnnealedVAE as in the thesis."""
    models = population.unsupervised.only(population.unsupervised.frame.method != "AnnealedVAE")
    kinds = {"total_correlation_sampled": "sampled", "total_correlation": "mean"}
    models.need(*kinds, why="`evaluate` gives both as total_correlation for models of the zoo")
    models.need_models(3, "models other than AnnealedVAE")
    lines, signs = [], []
    lines_of: dict[str, dict[str, tuple[object, object]]] = {}
    for dataset, part in models.parts():
        for method in by_figure(part.method):
            of = part[part.method == method]
            trend = {kind: _trend(of.strength, of[column]) for column, kind in kinds.items()}
            lines.append({"dataset": dataset, "method": method, "models": len(of)} | trend)
            if method != "FactorVAE":
                signs.append(
                    Sign(f"TC of samples falls with the strength of {method}, {dataset}", -1, trend["sampled"])
                )
            if method not in ("DIPVAEI", "DIPVAEII"):
                signs.append(Sign(f"TC of means rises with the strength of {method}, {dataset}", 1, trend["mean"]))
            for column, kind in kinds.items():
                medians = of.groupby("strength")[column].median()
                rank = np.arange(len(medians))
                lines_of.setdefault(f"{dataset}, {kind}", {})[method] = (rank, medians.to_numpy())
    frame = models.frame.dropna(subset=list(kinds))
    above = (frame.total_correlation > frame.total_correlation_sampled).to_numpy(dtype=float)
    weights = block_weights(frame.dataset + frame.setting, resamples, seed)
    share = Number(
        "models with TC(mean) > TC(sample)",
        float(above.mean()),
        *interval((weights @ above) / weights.sum(1)),
        percent=True,
    )
    table = pd.DataFrame(lines)
    scatter = {
        str(dataset): {
            method: (of.total_correlation_sampled, of.total_correlation)
            for method, of in ((name, part[part.method == name]) for name in by_figure(part.method))
        }
        for dataset, part in frame.groupby("dataset", sort=False)
    }

    def draw(figure: Figure) -> None:
        top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1.1], squeeze=False)[:, 0]
        figures.curves(top, lines_of, "strength (rank)", "total correlation, median")
        figures.dots(bottom, scatter, "TC of samples", "TC of means", diagonal=True, log=True)
        figure.set_size_inches(max(7.0, 3.2 * min(len(lines_of), 4)), 6.4)

    falls, rises = sign_count(table.sampled, -1), sign_count(table["mean"])
    return Result(
        [
            share,
            Number("methods whose sampled TC falls with strength", falls.agree / max(falls.total, 1), percent=True),
            Number("methods whose mean TC rises with strength", rises.agree / max(rises.total, 1), percent=True),
        ],
        f"The total correlation of samples falls with the strength in {falls.agree} of {falls.total} methods and data "
        f"sets, that of the means rises in {rises.agree} of {rises.total}.",
        "The Gaussian total correlation sees linear dependence only, and a trend over a few strengths has no test of "
        "its own.",
        table,
        draw,
        signs,
        models.gaps(list(kinds)),
    )


@analysis(
    "How much do method and strength explain?",
    "Which share of the variance of a score is explained by the method, and by method and strength together?",
    CHAPTER,
    "The method explains 37 % of the variance on average, method and strength 59 %; the rest is the random seed.",
)
def explained_variance(population: Population, resamples: int, seed: int) -> Result:
    """Adjusted R² of one dummy per method and per setting, averaged over data sets and metrics, with a null
    distribution.

    Thesis: section "Can We Learn Disentangled Representations Without Supervision?".
    """
    models = population.unsupervised
    metrics = models.metrics()
    models.need_models(6)
    lines: list[dict[str, object]] = []
    drawn: dict[str, list[Floats]] = {"method": [], "setting": []}
    for place, (dataset, part) in enumerate(models.parts()):
        for metric in metrics:
            of = part[np.isfinite(part[metric])]
            for by in ("method", "setting"):
                groups = of[by]
                if groups.nunique() < 2 or groups.nunique() >= len(of) or of[metric].nunique() < 2:
                    continue
                # the same permutations and resamples for all metrics of a data set
                found = variance_explained(of[metric], groups, resamples, seed + place)
                explained = {name: float(values[0]) for name, values in found._asdict().items()}
                expected = (groups.nunique() - 1) / (len(of) - 1)
                lines.append(
                    {"dataset": dataset, "metric": metric, "by": by, "models": len(of), "groups": groups.nunique()}
                    | explained
                    | {"noise": expected}
                )
                weights = block_weights(of.setting, resamples, seed + place, strata=of.method)
                drawn[by].append(bootstrap_variance_explained(of[metric], groups, weights))
    table = pd.DataFrame(lines)
    if table.empty or "setting" not in set(table.by):
        raise Missing(
            "Needs settings with at least two seeds each (the variance inside a setting is the seed's), and a score "
            f"that varies; the table has {models.frame.setting.nunique()} settings and {len(models)} models."
        )
    few = len(models) < FEWEST
    numbers: list[Number] = []
    for by, text, thesis in (("method", "method alone", 0.37), ("setting", "method and strength", 0.59)):
        of = table[table.by == by]
        if of.empty:
            continue
        value = np.nan if few else mean_of(of.adjusted)
        low, high = interval([] if few else np.mean(drawn[by], axis=0))
        numbers.append(
            Number(f"{text}, adjusted R²", value, low, high, chance=0.0, thesis=thesis, percent=True, adjusted=True)
        )
        numbers.append(
            Number(f"{text}, R² as it is", mean_of(of.r2), chance=mean_of(of.null), thesis=thesis, percent=True)
        )
    both = table.pivot(index=["dataset", "metric"], columns="by", values="adjusted")
    if "method" in both and len(drawn["method"]) == len(drawn["setting"]):
        beyond = np.mean(drawn["setting"], axis=0) - np.mean(drawn["method"], axis=0)
        value = np.nan if few else mean_of(both.setting - both.method)
        low, high = interval([] if few else beyond)
        name = "strength beyond the method, adjusted R²"
        numbers.append(Number(name, value, low, high, chance=0.0, thesis=0.22, percent=True, adjusted=True))
    main = next(number for number in numbers if number.label == "method and strength, adjusted R²")
    significant = int((table[table.by == "setting"].p < 0.05).sum())

    if few:
        explained_part = f"{len(models)} models are too few to say how much method and strength explain"
    elif main.value <= 0:
        explained_part = "Method and strength explain no more of the variance of a score than chance does"
    else:
        explained_part = (
            f"Method and strength explain {main.text(main.value)} of the variance of a score, so "
            f"{main.text(1 - main.value)} varies across seeds"
        )
    return Result(
        numbers,
        f"{explained_part}; {significant} of {len(table[table.by == 'setting'])} scores beat a random deal at 5 %.",
        "R² depends on which methods and strengths were swept; the plain R² is biased upwards with few seeds, so only "
        "the adjusted one compares with the thesis.",
        table,
        lambda figure: figures.bars(figure, numbers),
        notes=models.gaps(metrics),
    )


@analysis(
    "Which method?",
    "Is one method better than the others, over all strengths and seeds?",
    CHAPTER,
    "The distributions of the methods overlap heavily; no method dominates.",
)
def scores_by_method(population: Population, resamples: int, seed: int) -> Result:
    """Distributions of each score by method, and how often the best method wins."""
    models = population.unsupervised
    metrics = models.metrics()
    methods = by_figure(models.frame.method)
    if len(methods) < 2:
        raise Missing(f"Needs at least two unsupervised methods; the table has {', '.join(methods) or 'none'}.")
    lines, wins, drawn, parts = [], [], [], {}
    for dataset, part in models.parts():
        for metric in metrics:
            by = part.dropna(subset=[metric]).groupby("method")[metric]
            if by.ngroups < 2:
                continue
            quartiles = by.quantile([0.25, 0.5, 0.75]).unstack()
            lines += [
                {"dataset": dataset, "metric": metric, "method": m, "models": len(by.get_group(m))}
                | dict(zip(("lower", "median", "upper"), quartiles.loc[m], strict=True))
                for m in by_figure(quartiles.index)
            ]
            best = str(quartiles[0.5].idxmax())
            of = part.dropna(subset=[metric])
            wins.append((best, superiority(by.get_group(best), of.loc[of.method != best, metric])))
            weights = block_weights(of.setting, resamples, seed, strata=of.method)
            drawn.append(bootstrap_superiority(of[metric], of.method == best, weights))
            parts[f"{dataset}, {label(metric)}"] = {m: by.get_group(m).to_numpy() for m in by_figure(quartiles.index)}
    if not wins:
        raise Missing("No score is available for two methods on one data set.")
    most = pd.Series([name for name, _ in wins]).value_counts()
    share, top = mean_of([win for _, win in wins]), str(most.index[0])
    return Result(
        [
            Number(
                "a model of the best method beats one of another",
                share,
                *interval(np.mean(drawn, axis=0)),
                chance=0.5,
                percent=True,
            ),
            Number(f"scores on which {label(top)} has the best median", most.iloc[0] / len(wins), percent=True),
        ],
        f"A random model of the method with the best median beats a random model of another one {100 * share:.0f} % of "
        f"the time; the best method is not the same everywhere ({len(most)} methods are best on some score).",
        "The best method is chosen on the models it is compared on, which flatters it; methods were swept over their "
        "own strengths, which need not be comparable.",
        pd.DataFrame(lines),
        lambda figure: figures.violins(figure, parts, "score"),
        notes=models.gaps(metrics),
    )


@analysis(
    "Which strength, which seed?",
    "Is there a strength that is good for every score, and does a good strength beat a good seed?",
    CHAPTER,
    "There is no monotone rule for the strength, and a good seed at a bad strength beats a bad seed at a good one.",
)
def scores_by_strength(population: Population, resamples: int, seed: int) -> Result:
    """Median over seeds of each score against strength, and the best seed of the worst strength against the reverse."""
    models = population.unsupervised
    metrics = models.metrics()
    lines: list[dict[str, object]] = []
    parts: dict[str, dict[str, tuple[object, object]]] = {}
    for dataset, part in models.parts():
        for metric in metrics:
            for method in by_figure(part.method):
                of = part[(part.method == method) & part[metric].notna() & part.strength.notna()]
                by = of.groupby("strength")[metric]
                if by.ngroups < 3:
                    continue
                medians = by.median()
                steps = np.diff(medians)
                best, worst = medians.idxmax(), medians.idxmin()
                several = by.size().min() > 1 and medians[best] > medians[worst]
                lines.append(
                    {
                        "dataset": dataset,
                        "metric": metric,
                        "method": method,
                        "strengths": len(medians),
                        "best strength": best,
                        "trend": float(_trend(of.strength, of[metric])),
                        "monotone": bool((steps >= 0).all() or (steps <= 0).all()),
                        "seed beats strength": float(by.max()[worst] > by.min()[best]) if several else np.nan,
                    }
                )
                parts.setdefault(f"{dataset}, {label(metric)}", {})[method] = (
                    np.arange(len(medians)),
                    medians.to_numpy(),
                )
    if not lines:
        raise Missing(
            "Needs methods with at least three strengths, in a column strength or as swept options (model.*)."
        )
    table = pd.DataFrame(lines)
    monotone, beats = mean_of(table.monotone), mean_of(table["seed beats strength"])
    chance = mean_of([2 / float(np.prod(np.arange(1, n + 1))) for n in table.strengths])
    said = "no setting has two seeds" if np.isnan(beats) else f"in {100 * beats:.0f} % of the cases"
    return Result(
        [
            Number("curves that rise or fall throughout", monotone, chance=chance, percent=True),
            Number("best seed at the worst strength beats worst seed at the best", beats, percent=True),
        ],
        f"{int(table.monotone.sum())} of {len(table)} curves of median score against strength are monotone; the best "
        f"seed of the worst strength beats the worst seed of the best strength: {said}.",
        "With more seeds a best seed against a worst one is an easier comparison: compare populations of equal size "
        "only.",
        table,
        lambda figure: figures.curves(figure, parts, "strength (rank)", "median score"),
        notes=models.gaps(metrics),
    )


@analysis(
    "Do unsupervised scores find disentangled models?",
    "Do reconstruction error, KL, ELBO or total correlation of samples rank models as the metrics do?",
    CHAPTER,
    "There are some correlations, but no pattern: unsupervised scores are unlikely to be useful for selection.",
)
def unsupervised_scores(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlations of unsupervised scores, and of UDR if available, with the metrics."""
    models = population.unsupervised
    metrics = models.metrics()
    rows = models.has(*UNSUPERVISED_SCORES, "udr")
    if not rows:
        raise Missing(
            f"Needs one of the columns {', '.join([*UNSUPERVISED_SCORES, 'udr'])}: `evaluate` gives them as elbo "
            "and total_correlation."
        )
    models.need_models(4)
    found = correlations(models, rows, metrics, resamples, seed)
    long = found.long
    size = mean_of(long.rho.abs())
    consistent = [abs(mean_of(np.sign(long[long.row == row].rho))) for row in rows]
    beyond = mean_of(((long.rho.abs() > long.bound) & long.rho.notna())[long.rho.notna()])
    steady = label(rows[int(np.nanargmax(consistent))]) if not np.isnan(consistent).all() else "none"
    return Result(
        [
            Number("mean |ρ|", size, chance=mean_of(np.sqrt(2 / np.pi / (long.n - 1)))),
            Number("correlations beyond the 5 % bound", beyond, chance=0.05, percent=True),
        ],
        f"|ρ| of unsupervised scores with metrics is {size:.2f} on average; the score whose sign is steadiest over "
        f"metrics and data sets is {steady}.",
        "A correlation says nothing about the single best model; intervals are for each ρ by itself, and of many some "
        "are beyond their bound by chance.",
        long,
        lambda figure: figures.heatmaps(figure, found.matrices()),
        notes=found.notes,
    )


@analysis(
    "Is a disentangled representation useful?",
    "Do models that score higher allow better predictions of the factors, from few and from many samples?",
    CHAPTER,
    "All metrics but modularity correlate with accuracy, boosted trees more than regression; nothing reliable for "
    "efficiency.",
)
def downstream(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlations of the metrics with downstream accuracy and with statistical efficiency."""
    models = population.unsupervised if len(population.unsupervised) else population
    metrics, columns = models.metrics(), models.has(*DOWNSTREAM)
    if not columns:
        raise Missing(
            "Needs downstream accuracies (downstream_gbt_100, ...): score with downstream_gbt and downstream_lr."
        )
    models.need_models(4)
    found = correlations(models, metrics, columns, resamples, seed)
    accuracy = [name for name in columns if not name.endswith("efficiency")]

    def expected(metric: str, column: str) -> int:
        return int(metric in CLAIMED and column in accuracy)

    signs = found.signs(expected, lambda metric, column: f"{label(metric)} with {label(column)}")
    claimed = [metric for metric in metrics if metric in CLAIMED]
    numbers = []
    for kind, name in (("gbt", "boosted trees"), ("lr", "logistic regression")):
        if of := [column for column in accuracy if f"_{kind}_" in column]:
            numbers += mean_rho(models, found, claimed, of, f"mean ρ with accuracy of {name}", seed)
    if ratios := [name for name in columns if name.endswith("efficiency")]:
        numbers += mean_rho(models, found, claimed, ratios, "mean ρ with efficiency", seed)
    mean = found.long[found.long.column.isin(accuracy)].groupby("row").rho.mean()
    best = label(str(mean.idxmax())) if mean.notna().any() else "none"
    return Result(
        numbers,
        f"{numbers[0]}, the metrics being those without modularity and IRS; the metric with the highest is {best}.",
        "Efficiency, accuracy at 100 over accuracy at 10,000 samples, is high for useless codes too, whose accuracies "
        "are both at chance: read it beside the accuracy.",
        found.long,
        lambda figure: figures.heatmaps(figure, found.matrices()),
        signs,
        found.notes,
    )
