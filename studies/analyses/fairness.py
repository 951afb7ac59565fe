"""Chapter "Fairness of Disentangled Representations": are disentangled representations fairer?"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unknot.studies.analyses import figures
from unknot.studies.analyses.result import Number, Result, Sign, analysis, correlations, mean_of, mean_rho
from unknot.studies.analyses.transfer import Cube, success
from unknot.studies.analyses.unsupervised import CLAIMED
from unknot.studies.population import ACCURACY, Missing, Population, by_figure, label
from unknot.studies.statistics import block_weights, bootstrap_share, discordant_share, interval

CHAPTER = "Fairness of Disentangled Representations"
NEIGHBOURS = 5
HINT = "score the models with unfairness"


@analysis(
    "Are disentangled representations fairer?",
    "How unfair are predictions from the representations, and are models that score higher fairer?",
    CHAPTER,
    "Up to 15 to 25 % total variation on five of seven data sets; all metrics but modularity go with less unfairness, "
    "DCI most, then MIG, BetaVAE, FactorVAE and SAP.",
)
def unfairness(population: Population, resamples: int, seed: int) -> Result:
    """Distribution of unfairness, and its rank correlation with the metrics.

    Thesis: section "Do disentangled representations matter?".
    """
    models = population.unsupervised if population.unsupervised.has("unfairness") else population
    models.need("unfairness", why=HINT)
    models.need_models(4)
    columns = [*models.metrics(), *models.has(ACCURACY)]
    found = correlations(models, columns, ["unfairness"], resamples, seed)
    signs = found.signs(lambda row, _: -int(row in CLAIMED), lambda row, _: f"{label(row)} goes with less unfairness")
    claimed = [name for name in columns if name in CLAIMED]
    largest = models.frame.groupby("dataset").unfairness.max()
    means = found.long.groupby("row").rho.mean().reindex(columns).dropna().sort_values()
    across = found.long.pivot(index="row", columns="dataset", values="rho").reindex(columns)[models.datasets]
    parts = {name: part.unfairness.to_numpy() for name, part in models.parts()}

    scatter = {
        name: {m: (of.dci, of.unfairness) for m, of in ((m, part[part.method == m]) for m in by_figure(part.method))}
        for name, part in models.parts()
        if "dci" in part
    }

    def draw(figure: Figure) -> None:
        top, bottom = figure.subfigures(2, 1, squeeze=False)[:, 0] if scatter else (figure, None)
        left, right = top.subfigures(1, 2, squeeze=False)[0]
        figures.violins(left, {"unfairness": parts}, "mean total variation")
        figures.heatmaps(right, {"ρ with unfairness": across})
        if bottom is not None:
            figures.dots(bottom, scatter, "DCI disentanglement", "unfairness")
        figure.set_size_inches(9, 7 if scatter else 4)

    return Result(
        [
            *mean_rho(models, found, claimed, ["unfairness"], "mean ρ of the metrics with unfairness", seed),
            Number("mean ρ of DCI with unfairness", mean_of(found.long[found.long.row == "dci"].rho), chance=0.0),
            Number("largest unfairness, mean over data sets", mean_of(largest), percent=True),
            Number(
                "data sets with a model of 15 % or more", float((largest >= 0.15).mean()), thesis=5 / 7, percent=True
            ),
        ],
        f"In order of strength: {', '.join(label(str(name)) for name in means.index)}.",
        "Models that predict better are also fairer here: the next analysis takes the accuracy out.",
        found.long,
        draw,
        signs,
        found.notes,
    )


def _adjusted(population: Population, columns: list[str]) -> Population:
    """Return the population with columns reduced by the mean of the five models closest in accuracy, per data set."""
    from unknot.metrics.functional import adjusted  # imports torch, which no other analysis needs

    result = population.only(slice(None))
    frame = result.frame
    for _, rows in frame.groupby("dataset").groups.items():
        for column in columns:
            part = frame.loc[rows, [column, ACCURACY]].dropna()
            part = part[np.isfinite(part).all(axis=1)]
            frame.loc[rows, f"adjusted {column}"] = np.nan
            if len(part) > NEIGHBOURS + 1:
                frame.loc[part.index, f"adjusted {column}"] = adjusted(part[column], part[ACCURACY], NEIGHBOURS)
    return result


@analysis(
    "Is it more than accuracy?",
    "Among models of equal accuracy, do the more disentangled ones still agree on what is disentangled, and are they "
    "fairer?",
    CHAPTER,
    "Adjusted metrics agree with each other (but modularity) and with the original ones, except on SmallNORB; they "
    "still go with less unfairness, if weaker.",
)
def adjusted_metrics(population: Population, resamples: int, seed: int) -> Result:
    """Correlations of scores after subtracting the mean of the five models closest in accuracy."""
    models = population.unsupervised if population.unsupervised.has("unfairness") else population
    models.need("unfairness", ACCURACY, why="score the models with unfairness and downstream_gbt")
    metrics = models.metrics()
    if max(len(part) for _, part in models.parts()) < NEIGHBOURS + 2:
        raise Missing(f"Needs at least {NEIGHBOURS + 2} models of one data set, for {NEIGHBOURS} neighbours of each.")
    adjusted_models = _adjusted(models, [*metrics, "unfairness"])
    names = [f"adjusted {metric}" for metric in metrics]
    among_all = correlations(adjusted_models, names, names, resamples, seed)
    among = among_all.long
    among = among[among.row < among.column].assign(kind="among adjusted metrics")
    original = correlations(adjusted_models, metrics, names, resamples, seed).long
    original = original[("adjusted " + original.row) == original.column].assign(kind="with the original metric")
    fair = correlations(adjusted_models, names, ["adjusted unfairness"], resamples, seed)
    table = pd.concat([among, original, fair.long.assign(kind="with adjusted unfairness")], ignore_index=True)
    for side in ("row", "column"):
        table[side] = table[side].str.removeprefix("adjusted ")
    signs = []
    for line in table.itertuples():
        if line.row not in CLAIMED or (line.kind == "among adjusted metrics" and line.column not in CLAIMED):
            continue
        expected = -1 if line.kind == "with adjusted unfairness" else 1
        what = {
            "with the original metric": "adjusted and original",
            "with adjusted unfairness": "adjusted, less unfair",
        }
        claim = what.get(line.kind, f"adjusted, with {label(line.column)}")
        signs.append(Sign(f"{label(line.row)} {claim}, {line.dataset}", expected, line.rho, line.low, line.high))
    claimed = table[table.row.isin(CLAIMED)]
    shared = [f"adjusted {metric}" for metric in metrics if metric in CLAIMED]
    numbers = [
        *mean_rho(adjusted_models, fair, shared, ["adjusted unfairness"], "mean ρ with adjusted unfairness", seed),
        *mean_rho(adjusted_models, among_all, shared, shared, "mean ρ among adjusted metrics", seed),
        Number("mean ρ with the original metric", mean_of(claimed[claimed.kind == "with the original metric"].rho)),
    ]
    across = table[table.kind == "with adjusted unfairness"].pivot(index="row", columns="dataset", values="rho")
    agree = sum(sign.agrees is True for sign in signs if "unfair" in sign.claim)
    total = sum(sign.agrees is not None for sign in signs if "unfair" in sign.claim)
    return Result(
        numbers,
        f"At equal accuracy {agree} of {total} metrics (without modularity and IRS) still go with less unfairness, "
        f"with ρ = {numbers[0].value:.2f} on average.",
        "With few models five neighbours are not close in accuracy, so a part of it stays in: read the signs, not the "
        "sizes. A model is not its own neighbour here, which the thesis leaves open; ranks hardly depend on it.",
        table,
        lambda figure: figures.heatmaps(
            figure, {"adjusted metric with adjusted unfairness": across.reindex(metrics)[models.datasets]}
        ),
        signs,
        models.gaps([*metrics, "unfairness", ACCURACY]),
    )


@analysis(
    "Does accuracy select fair models?",
    "Is the model with the higher accuracy of boosted trees also the fairer one?",
    CHAPTER,
    "It is fairer 84.2 % of the time; the thesis does not say of what.",
)
def fairness_selection(population: Population, resamples: int, seed: int) -> Result:
    """Two readings of the 84.2 %: two random models of a data set, and the best of a seed against a random one."""
    models = population.unsupervised if population.unsupervised.has("unfairness") else population
    models.need("unfairness", ACCURACY, why="score the models with unfairness and downstream_gbt")
    lines, drawn, scatter = [], [], {}
    for place, (dataset, part) in enumerate(models.parts()):
        of = part.dropna(subset=["unfairness", ACCURACY])
        if len(of) < 3:
            continue
        share, each = discordant_share(of[ACCURACY], of.unfairness)
        resampled = bootstrap_share(each, block_weights(of.setting, resamples, seed + place))
        drawn.append(resampled)
        low, high = interval(resampled)
        lines.append(
            {"dataset": dataset, "models": len(of), "pairs": share, "low": low, "high": high, "tau": 1 - 2 * share}
        )
        scatter[dataset] = {
            m: (of[of.method == m][ACCURACY], of[of.method == m].unfairness) for m in by_figure(of.method)
        }
    if not lines:
        raise Missing("Needs at least three models of one data set with unfairness and accuracy.")
    table = pd.DataFrame(lines)
    numbers = [
        Number(
            "the more accurate of two models is fairer",
            mean_of(table.pairs),
            *interval(np.mean(drawn, axis=0)),
            0.5,
            0.842,
            percent=True,
        )
    ]
    cube = Cube.of(models, [ACCURACY])
    if len(cube.settings) > 1:
        judge = Cube.of(models, ["unfairness"])
        judge = Cube(-judge.values, judge.datasets, judge.columns, judge.seeds, judge.settings)
        weights = np.vstack([np.ones(len(cube.settings)), block_weights(cube.settings, resamples, seed)])
        shares = np.diagonal(success(cube, judge, weights, own_seed=True)[:, :, 0, :, 0], axis1=1, axis2=2)
        values = np.array([mean_of(resample) for resample in shares])
        table["best of a seed"] = table.dataset.map(dict(zip(cube.datasets, shares[0], strict=True)))
        numbers.append(
            Number(
                "the most accurate of a seed is fairer than a random one",
                values[0],
                *interval(values[1:]),
                0.5 + 0.5 / len(cube.settings),
                0.842,
                percent=True,
            )
        )
    main = numbers[0]
    return Result(
        numbers,
        f"Of two models of a data set the more accurate one is fairer in {main.text(main.value)} of pairs "
        f"(Kendall's τ = {1 - 2 * main.value:.2f}; 84.2 % would be -0.68).",
        "Selecting by accuracy is not guaranteed to be fairer: a perfect classifier can be unfair, as the theorem "
        "shows.",
        table,
        lambda figure: figures.dots(figure, scatter, "accuracy of boosted trees", "unfairness"),
        [
            Sign(
                "accuracy goes with less unfairness, " + line.dataset,
                1,
                line.pairs - 0.5,
                line.low - 0.5,
                line.high - 0.5,
            )
            for line in table.itertuples()
        ],
        models.gaps(["unfairness", ACCURACY]),
    )
