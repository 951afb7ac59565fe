"""Chapter "Evaluating Disentangled Representations": agreement of the metrics, and reasons for differences."""

import re

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unknot.studies.analyses import figures
from unknot.studies.analyses.result import Number, Result, Sign, analysis, correlations, mean_of, mean_rho
from unknot.studies.analyses.unsupervised import CLAIMED
from unknot.studies.population import METRICS, Missing, Population, label
from unknot.studies.statistics import rank_correlations

CHAPTER = "Evaluating Disentangled Representations"
MATRICES = {"importance": "GBT importance", "information": "mutual information", "predictability": "SVM accuracy"}
AGGREGATIONS = {
    "dci_disentanglement": "DCI disentanglement",
    "dci_completeness": "DCI completeness",
    "mig": "MIG",
    "sap": "SAP",
    "modularity": "Modularity",
}
ENTRY = re.compile(rf"aggregation_({'|'.join(MATRICES)})_(edge|merge)_(\d+)")
HINT = "score the models with the metric aggregation"


@analysis(
    "Do the metrics agree?",
    "Do two metrics rank models alike?",
    CHAPTER,
    "All metrics but modularity, and in part IRS, correlate: strongly on dSprites and its colours, mildly elsewhere. "
    "Tightest are BetaVAE with FactorVAE, and MIG with DCI.",
)
def metric_agreement(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlations of all pairs of metrics, in each data set.

    Thesis: section "How Much Do Existing Disentanglement Metrics Agree?".
    """
    models = population.unsupervised if len(population.unsupervised) else population
    metrics = models.metrics(2)
    models.need_models(4)
    found = correlations(models, metrics, metrics, resamples, seed)
    order = {name: place for place, name in enumerate(metrics)}
    pairs = found.long[found.long.row.map(order) < found.long.column.map(order)]
    claimed = pairs[pairs.row.isin(CLAIMED) & pairs.column.isin(CLAIMED)]
    signs = [
        Sign(f"{label(p.row)} with {label(p.column)}, {p.dataset}", 1, p.rho, p.low, p.high)
        for p in claimed.itertuples()
    ]
    apart = pairs[(pairs.row == "modularity") | (pairs.column == "modularity")]
    mean, other = mean_of(claimed.rho), mean_of(apart.rho)
    if not (np.isnan(mean) or np.isnan(other)):
        signs.append(Sign("modularity agrees less than the other metrics do with each other", 1, mean - other))
    shared = [metric for metric in metrics if metric in CLAIMED]
    means = pairs.groupby(["row", "column"]).rho.mean().dropna()
    tightest = " and ".join(label(name) for name in means.idxmax()) if len(means) else "none"
    return Result(
        [
            *mean_rho(models, found, shared, shared, "mean ρ of pairs, without modularity and IRS", seed),
            Number("mean ρ of modularity with the others", other, chance=0.0),
        ],
        f"Without modularity and IRS, metrics agree with ρ = {mean:.2f} on average; the tightest pair is {tightest}.",
        "Agreement depends on the population: with collapsed models among them, metrics agree on these; see the column "
        "`within` for the mean inside methods.",
        found.long,
        lambda figure: figures.heatmaps(figure, found.matrices()),
        signs,
        found.notes,
    )


def _column(matrix: str, aggregation: str) -> str:
    return f"aggregation_{matrix}_{aggregation}"


@analysis(
    "What does the aggregation do?",
    "On one and the same factor-code matrix, do the aggregations of DCI, MIG, SAP and modularity agree?",
    CHAPTER,
    "On one matrix MIG, SAP and DCI completeness agree strongly, DCI disentanglement less; modularity depends on the "
    "matrix.",
)
def aggregation(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlations of five aggregations of the same matrix."""
    parts, matrices, notes = [], {}, []
    for matrix, title in MATRICES.items():
        columns = population.has(*(_column(matrix, name) for name in AGGREGATIONS))
        if len(columns) < 2:
            continue
        found = correlations(population, columns, columns, resamples, seed)
        parts.append(found.long.assign(matrix=matrix))
        notes += found.notes
        for dataset, values in found.matrices().items():
            short = {name: AGGREGATIONS[name.removeprefix(f"aggregation_{matrix}_")] for name in columns}
            matrices[f"{dataset}, {title}"] = values.rename(index=short, columns=short)
    if not parts:
        raise Missing(f"Needs at least two columns such as {_column('importance', 'mig')}: {HINT}.")
    population.need_models(4)
    table = pd.concat(parts, ignore_index=True)
    names = table.matrix.map(lambda m: f"aggregation_{m}_")
    for side in ("row", "column"):
        table[side] = [column.removeprefix(prefix) for column, prefix in zip(table[side], names, strict=True)]
    table = table[table.row < table.column].reset_index(drop=True)
    compact = ("mig", "sap", "dci_completeness")
    inside = table[table.row.isin(compact) & table.column.isin(compact)]
    with_d = table[(table.row == "dci_disentanglement") ^ (table.column == "dci_disentanglement")]
    with_d = with_d[with_d.row.isin(compact) | with_d.column.isin(compact)]
    close, far = mean_of(inside.rho), mean_of(with_d.rho)
    signs = [
        Sign(
            f"{AGGREGATIONS[p.row]} with {AGGREGATIONS[p.column]}, {MATRICES[p.matrix]}, {p.dataset}",
            1,
            p.rho,
            p.low,
            p.high,
        )
        for p in inside.itertuples()
    ]
    if not np.isnan(close - far):
        signs.append(
            Sign("DCI disentanglement agrees less with MIG, SAP and completeness than they do", 1, close - far)
        )
    return Result(
        [
            Number("mean ρ among MIG, SAP and DCI completeness", close, chance=0.0),
            Number("mean ρ of DCI disentanglement with these", far, chance=0.0),
        ],
        f"On one matrix MIG, SAP and completeness agree with ρ = {close:.2f}, disentanglement with them with "
        f"{far:.2f}.",
        "The same matrix makes two aggregations agree also in its errors; it says nothing about which one is right.",
        table,
        lambda figure: figures.heatmaps(figure, matrices),
        signs,
        notes,
    )


@analysis(
    "What does the matrix do?",
    "With one and the same aggregation, do matrices by boosted trees, mutual information and SVMs rank models alike?",
    CHAPTER,
    "Rankings differ by data set; the gaps of MIG and SAP are the more robust.",
)
def estimation(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlations of the three matrices under the same aggregation."""
    parts, notes = [], []
    for name in AGGREGATIONS:
        columns = population.has(*(_column(matrix, name) for matrix in MATRICES))
        if len(columns) < 2:
            continue
        found = correlations(population, columns, columns, resamples, seed)
        notes += found.notes
        short = {column: column[len("aggregation_") : -len(name) - 1] for column in columns}
        parts.append(
            found.long.assign(aggregation=name, row=found.long.row.map(short), column=found.long.column.map(short))
        )
    if not parts:
        raise Missing(
            f"Needs one aggregation of two matrices, such as {_column('importance', 'mig')} and "
            f"{_column('information', 'mig')}: {HINT}."
        )
    population.need_models(4)
    table = pd.concat(parts, ignore_index=True)
    table = table[table.row < table.column].reset_index(drop=True)
    pair = table.assign(pair=table.row + " with " + table.column, name=table.aggregation.map(AGGREGATIONS))
    matrices = {
        str(dataset): part.pivot(index="name", columns="pair", values="rho").reindex(
            [name for name in AGGREGATIONS.values() if name in set(part.name)]
        )
        for dataset, part in pair.groupby("dataset", sort=False)
    }
    means = {name: mean_of(table[table.aggregation == name].rho) for name in AGGREGATIONS}
    numbers = [Number(f"mean ρ between matrices, {AGGREGATIONS[n]}", v, chance=0.0) for n, v in means.items() if v == v]
    gaps, rest = mean_of([means["mig"], means["sap"]]), mean_of([means["dci_disentanglement"], means["modularity"]])
    signs = []
    if not np.isnan(gaps - rest):
        signs.append(Sign("the gaps of MIG and SAP depend less on the matrix than DCI and modularity", 1, gaps - rest))
    return Result(
        numbers,
        f"The gaps of MIG and SAP rank models with ρ = {gaps:.2f} by two matrices, DCI disentanglement and modularity "
        f"with {rest:.2f}.",
        "Three estimators only; a low ρ says that they differ, not which one is right.",
        table,
        lambda figure: figures.heatmaps(figure, matrices),
        signs,
        notes,
    )


@analysis(
    "Which factors merge?",
    "As the threshold on a factor-code matrix falls, when do factors get codes, and when do they come to share them?",
    CHAPTER,
    "The SVM matrix has a long tail, so that MIG and SAP disagree; boosted trees and mutual information disagree on "
    "what is most entangled.",
)
def merge_curves(population: Population, resamples: int, seed: int) -> Result:
    """Mean curves, over models, of connected factors and of groups of factors against the threshold."""
    entries = [(column, *match.groups()) for column in population.frame if (match := ENTRY.fullmatch(column))]
    entries = [entry for entry in entries if population.has(entry[0])]
    if not entries:
        raise Missing(f"Needs the thresholds aggregation_importance_edge_1, ..._merge_1, ...: {HINT}.")
    grid = np.linspace(1, 0, 51)
    lines: list[dict[str, object]] = []
    drawn: dict[str, dict[str, tuple[object, object]]] = {}
    for dataset, part in population.parts():
        for matrix, title in MATRICES.items():
            curves = {}
            for kind in ("edge", "merge"):
                columns = [column for column, m, k, _ in entries if (m, k) == (matrix, kind)]
                values = part[columns].to_numpy(dtype=float)
                values = values[~np.isnan(values).all(1)] if columns else np.empty((0, 1))
                # a factor or a merge counts at every threshold up to its own
                curves[kind] = (values[..., None] >= np.maximum(grid, 1e-9)).sum(1) if len(values) else None
            if curves["edge"] is None or curves["merge"] is None or len(curves["edge"]) != len(curves["merge"]):
                continue
            factors, groups = curves["edge"].mean(0), (curves["edge"] - curves["merge"]).mean(0)
            lines += [
                {"dataset": dataset, "matrix": matrix, "threshold": t, "factors": f, "groups": g}
                for t, f, g in zip(grid, factors, groups, strict=True)
            ]
            drawn.setdefault(f"{dataset}, {title}", {}).update(
                {"factors with a code": (grid, factors), "groups of factors": (grid, groups)}
            )
    if not lines:
        raise Missing("No model has both its edge and its merge thresholds.")
    table = pd.DataFrame(lines)
    # thresholds are evenly spaced on [0, 1]: the mean is the area
    area = table.groupby("matrix")[["factors", "groups"]].mean()
    share = (area.groups / area.factors).reindex([name for name in MATRICES if name in area.index])
    return Result(
        [Number(f"groups for each connected factor, {MATRICES[str(name)]}", float(v)) for name, v in share.items()],
        "Of the factors that have a code, these shares are still apart, averaged over thresholds: "
        + ", ".join(f"{MATRICES[str(name)]} {value:.2f}" for name, value in share.items())
        + ".",
        "Thresholds are relative to the largest entry of each matrix; entries of different matrices are not of one "
        "scale.",
        table,
        lambda figure: figures.curves(figure, drawn, "threshold", "factors"),
        notes=population.gaps([entry[0] for entry in entries[:1]]),
    )


@analysis(
    "How reliable are the scores?",
    "Scored twice with independent samples, do models keep their ranks, with 10,000 samples and with 100?",
    CHAPTER,
    "10,000 samples are stable, 100 are not; FactorVAE and IRS need the fewest, then DCI and MIG.",
)
def reliability(population: Population, resamples: int, seed: int) -> Result:
    """Rank correlation of two independent runs of the same score, by number of samples."""
    repeated = population.repeated()
    lines = []
    for (score, samples), runs in repeated.groupby(["score", "samples"]):
        columns = list(runs.column)
        if len(columns) < 2:
            continue
        for dataset, part in population.parts():
            values = rank_correlations(part, columns[:1], columns[1:], part.setting, resamples, seed)
            line = {"dataset": dataset, "metric": score, "samples": int(samples), "runs": len(columns)}
            identical = all(part[columns[0]].equals(part[other]) for other in columns[1:])
            lines.append(
                line
                | {
                    "rho": mean_of(values.rho),
                    "low": values.low.min(),
                    "high": values.high.max(),
                    "n": int(values.n.max()),
                    "identical": identical,
                }
            )
    if not lines:
        raise Missing(
            "Needs two columns of one score from independent draws of as many samples, such as mig@100 and "
            "mig@100-again (mig itself is of 10,000): list both protocols under `scores` of the study."
        )
    table = pd.DataFrame(lines)
    table = table.sort_values(
        ["samples", "metric"], key=lambda c: c.map(list(METRICS).index) if c.name == "metric" else c
    )
    notes = []
    if table.identical.any():
        notes.append(
            f"{int(table.identical.sum())} pairs of runs are equal to the last digit and were left out: they used "
            "the same draw."
        )
    kept = table[~table.identical]
    numbers = [Number(f"mean ρ of two runs, {n:,} samples", mean_of(of.rho)) for n, of in kept.groupby("samples")]
    if not numbers:
        raise Missing("The two runs of every score used the same draw; independent draws need different seeds.")
    by = {int(n): of.groupby("metric").rho.mean() for n, of in kept.groupby("samples")}
    signs = []
    if len(by) > 1:
        few, many = by[min(by)], by[max(by)]
        signs = [
            Sign(f"{label(str(m))}: more samples are more reliable", 1, float(many[m] - few[m]))
            for m in many.index
            if m in few.index
        ]
    smallest = by[min(by)].sort_values(ascending=False)
    shown = [name for name in METRICS if name in set(kept.metric)]
    drawn = {
        f"{n:,} samples": {dataset: (of.metric.map(shown.index), of.rho) for dataset, of in part.groupby("dataset")}
        for n, part in kept.groupby("samples")
    }

    def draw(figure: Figure) -> None:
        figures.curves(figure, drawn, "", "ρ of two runs")
        for axis in figure.axes:
            axis.set_xticks(range(len(shown)), [label(name) for name in shown], rotation=60, ha="right")
            axis.set_ylim(-0.2, 1.05)

    return Result(
        numbers,
        "; ".join(str(number) for number in numbers)
        + f". With {min(by):,} samples the most reliable are "
        + ", ".join(label(str(name)) for name in smallest.index[:3])
        + ".",
        "ρ between runs also grows with how much the models differ: a population of equals has no ranks to keep.",
        table,
        draw,
        signs,
        notes,
    )
