"""Chapter "Unsupervised Learning of Disentangled Representations": transfer of settings, and model selection."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unknot.studies.analyses import figures
from unknot.studies.analyses.result import Number, Result, Sign, analysis, mean_of
from unknot.studies.analyses.unsupervised import CHAPTER
from unknot.studies.population import ACCURACY, Missing, Population, label
from unknot.studies.statistics import Floats, block_weights, interval, rank_correlations

SELECTORS = {
    "elbo_reconstruction": -1,
    "elbo": 1,
    "total_correlation_sampled": -1,
    "udr": 1,
    "weak_reconstruction": -1,
    ACCURACY: 1,
}
"""Scores that select without knowing the metric, and whether high or low is good."""
AT_ONCE = 50
"""Resamples in one step."""


@dataclass(frozen=True)
class Cube:
    """Scores ``values`` ``[D, M, S, N]`` by data set, column, seed and setting; NaN if there is no such model."""

    values: Floats
    datasets: list[str]
    columns: list[str]
    seeds: list[object]
    settings: list[str]

    @classmethod
    def of(cls, population: Population, columns: Sequence[str]) -> "Cube":
        """Arrange the models of a population; several models of one cell are averaged."""
        frame = population.frame
        datasets, settings = population.datasets, list(dict.fromkeys(frame.setting))
        seeds = sorted(set(frame.seed), key=lambda seed: (str(type(seed)), seed))
        index = pd.MultiIndex.from_product([datasets, seeds, settings], names=["dataset", "seed", "setting"])
        means = frame.groupby(["dataset", "seed", "setting"])[list(columns)].mean().reindex(index)
        shape = (len(datasets), len(seeds), len(settings), len(columns))
        values = means.to_numpy(dtype=float).reshape(shape).transpose(0, 3, 1, 2)
        return cls(values, datasets, list(columns), seeds, settings)

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Mask of the cells with a score."""
        return ~np.isnan(self.values)

    @cached_property
    def beats(self) -> NDArray[np.float32]:
        """Comparison of setting i with another setting j ``[D, M, S, N, N]``: 1 for a win, ½ for a tie; 0 for i = j."""
        with np.errstate(invalid="ignore"):
            found = (self.values[..., :, None] > self.values[..., None, :]).astype(np.float32)
            found += 0.5 * (self.values[..., :, None] == self.values[..., None, :])
        return found * ~np.eye(len(self.settings), dtype=bool)

    def chosen(self, weights: Floats) -> NDArray[np.intp]:
        """Return the best setting among those of positive weight ``[N]``: ``[D, M, S]``, -1 for none."""
        usable = self.present & (weights > 0)
        best = np.where(usable, self.values, -np.inf).argmax(-1)
        return np.where(usable.any(-1), best, -1)

    def wins(self, weights: Floats) -> Floats:
        """Return P(better than a random model, or that model) of every model ``[B, D, M, S, N]``, weighted by ``[B,
        N]``.

        The random model is any of the N of the same seed, including the model itself. Settings that a resample contains
        twice are not compared with themselves, which would overestimate chance.
        """
        number = self.present.sum(-1, keepdims=True)
        won = np.tensordot(weights.astype(np.float32), self.beats, axes=([1], [4]))
        all_weight = np.tensordot(weights, self.present.astype(float), axes=([1], [3]))[..., None]
        others = all_weight - weights[:, None, None, None, :] * self.present
        with np.errstate(divide="ignore", invalid="ignore"):
            among = np.where(others > 0, won / others, 1.0)
            result = 1 / number + (1 - 1 / number) * among
        return np.where(self.present, result, np.nan)


def success(select: Cube, judge: Cube, weights: Floats, own_seed: bool = False) -> Floats:
    """Share of trials in which a selected setting is at least as good as a random model: ``[B, D, M, D′, M′]``.

    Two different models with equal scores count as half a success.

    Select on data set D by column M among the models of a seed; judge that setting on D′ by M′. All seeds and random
    models are enumerated, whereas the thesis draws 10,000 trials.

    Args:
        select: scores to select by.
        judge: scores to judge by, with the same seeds and settings.
        weights: weights of the settings in each resample ``[B, N]``; ones for the population itself.
        own_seed: judge the selected model itself instead of the other seeds of its setting.
    """
    seeds = len(select.seeds)
    place = np.arange(seeds)
    result = np.empty((len(weights), *select.values.shape[:2], *judge.values.shape[:2]))
    for start in range(0, len(weights), AT_ONCE):
        chunk = weights[start : start + AT_ONCE]
        for b, (weight, wins) in enumerate(zip(chunk, judge.wins(chunk), strict=True), start):
            chosen = select.chosen(weight)
            known = ~np.isnan(wins)
            filled = np.where(known, wins, 0)
            # for the seed that selected, [D', M', D, M, S]
            total, count = filled[:, :, place, chosen], known[:, :, place, chosen].astype(float)
            if not own_seed:
                total = filled.sum(2)[:, :, chosen] - total
                count = known.sum(2)[:, :, chosen] - count
            valid = chosen >= 0
            total, count = (np.where(valid, array, 0).sum(-1) for array in (total, count))
            share = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
            result[b] = share.transpose(2, 3, 0, 1)
    return result


def _settings_weights(cube: Cube, resamples: int, seed: int) -> Floats:
    method = [name.split(" ")[0] for name in cube.settings]
    return block_weights(cube.settings, resamples, seed, strata=method)


@analysis(
    "Do good settings transfer between data sets?",
    "Do settings rank alike on two data sets, by the same metric?",
    CHAPTER,
    "Only between dSprites and Color-dSprites; elsewhere hardly.",
)
def transfer_between_datasets(population: Population, resamples: int, seed: int) -> Result:
    """Spearman's ρ over settings, by medians over seeds, between data sets, per metric."""
    models = population.unsupervised
    metrics = models.metrics()
    if len(models.datasets) < 2:
        raise Missing(f"Needs models on at least two data sets; the table has {', '.join(models.datasets) or 'none'}.")
    parts, matrices = [], {}
    for metric in metrics:
        medians = models.frame.pivot_table(index="setting", columns="dataset", values=metric, aggfunc="median")
        names = [name for name in models.datasets if name in medians]
        if len(names) < 2:
            continue
        long = rank_correlations(medians.reset_index(), names, names, None, resamples, seed)
        long.insert(0, "metric", metric)
        parts.append(long)
        matrices[label(metric)] = long.pivot(index="row", columns="column", values="rho").loc[names, names]
    if not parts:
        raise Missing("No metric is available on two data sets.")
    table = pd.concat(parts, ignore_index=True)
    order = {name: place for place, name in enumerate(models.datasets)}
    apart = table[table.row.map(order) < table.column.map(order)]
    if apart.rho.isna().all():
        raise Missing("Needs at least four settings that were trained on two data sets, with scores that vary.")
    mean = mean_of(apart.rho)
    related = {"dsprites", "color_dsprites", "DSprites", "ColorDSprites"}
    signs = [
        Sign(
            f"{label(line.metric)} ranks settings alike on {line.row} and {line.column}",
            1,
            line.rho,
            line.low,
            line.high,
        )
        for line in apart.itertuples()
        if {line.row, line.column} <= related
    ]
    beyond = int((apart.rho > apart.bound).sum())
    return Result(
        [Number("mean ρ between data sets", mean, chance=0.0)],
        f"Settings rank alike between data sets with ρ = {mean:.2f} on average; {beyond} of {len(apart.dropna())} "
        "correlations are beyond their 5 % bound.",
        "Data sets that are drawn alike are related by construction; medians over few seeds add noise, which lowers ρ.",
        table,
        lambda figure: figures.heatmaps(figure, matrices, "ρ over settings"),
        signs,
        models.gaps(metrics),
    )


CELLS = {
    "same metric, same data": (True, True, 0.819),
    "other metric, same data": (False, True, 0.621),
    "same metric, other data": (True, False, 0.596),
    "other metric, other data": (False, False, 0.527),
}


@analysis(
    "Is a selected setting better than a random model?",
    "Select the best setting of one seed by a metric on a data set: is it better than a random model of another seed?",
    CHAPTER,
    "81.9 % of the time by the same metric on the same data, 52.7 % if both change: hardly more than chance.",
)
def transfer_experiment(population: Population, resamples: int, seed: int) -> Result:
    """The four shares of table "Probability of outperforming random model selection", all trials enumerated."""
    models = population.unsupervised
    metrics = models.metrics()
    cube = Cube.of(models, metrics)
    if len(cube.settings) < 2:
        raise Missing(f"Needs at least two settings to choose from; the table has {len(cube.settings)}.")
    notes = models.gaps(metrics)
    one_seed = len(cube.seeds) < 2
    if one_seed and len(cube.datasets) < 2:
        raise Missing(
            "Needs models of at least two seeds for the columns of the same data, and of two data sets for the others; "
            "the table has one of each."
        )
    weights = np.vstack([np.ones(len(cube.settings)), _settings_weights(cube, resamples, seed)])
    shares = success(cube, cube, weights, own_seed=one_seed)
    if one_seed:
        notes.append("With a single seed only other data sets are judged, by the models of the same seed.")
    chance = 0.5 + 0.5 / len(cube.settings)
    same_data = np.eye(len(cube.datasets), dtype=bool)[:, None, :, None]
    same_metric = np.eye(len(metrics), dtype=bool)[None, :, None, :]
    numbers, lines = [], []
    for name, (metric, data, thesis) in CELLS.items():
        cell = np.broadcast_to((same_metric == metric) & (same_data == data), shares.shape[1:])
        if not cell.any() or (one_seed and data) or np.isnan(shares[0][cell]).all():
            notes.append(
                f"'{name}' needs {'two seeds' if data else 'a second data set'}"
                f"{'' if metric else ' and a second metric'}."
            )
            continue
        values = np.array([mean_of(resample[cell]) for resample in shares])
        numbers.append(Number(name, values[0], *interval(values[1:]), chance, thesis, percent=True))
        lines += [
            {
                "cell": name,
                "select on": cube.datasets[d],
                "by": metrics[m],
                "judge on": cube.datasets[e],
                "judge by": metrics[k],
                "success": shares[0, d, m, e, k],
            }
            for d, m, e, k in np.argwhere(cell)
        ]
    if not numbers:
        raise Missing("No setting was trained twice, so no trial is possible.")
    first = numbers[0]
    order = [number.value for number in numbers]
    sign = [
        Sign(f"{number.label}: beats chance", 1, number.value - chance, number.low - chance, number.high - chance)
        for number in numbers[:-1]
    ]
    return Result(
        numbers,
        f"{first.label[0].upper()}{first.label[1:]}: the selected setting is at least as good as a random model in "
        f"{first.text(first.value)} of trials, against {first.text(chance)} by chance"
        + (f"; with {numbers[-1].label} it is {first.text(order[-1])}." if len(numbers) > 1 else "."),
        f"Chance depends on the number of settings ({len(cube.settings)} here, 36 in the thesis: 51.4 %); the random "
        "model is one of the same seed as the judged one, which the thesis does not say.",
        pd.DataFrame(lines),
        lambda figure: figures.bars(figure, numbers),
        sign,
        notes,
    )


@analysis(
    "Which scores select a good model?",
    "Pick the best model of a seed by a score that knows no test metric: is it better than a random one of that seed?",
    CHAPTER,
    "No number is printed for unsupervised scores; they are said to be of no use. UDR came later.",
)
def selectors(population: Population, resamples: int, seed: int) -> Result:
    """Success of unsupervised scores, UDR, downstream accuracy, validation scores and the weak loss as selectors."""
    models = population.unsupervised if len(population.unsupervised) else population.by_pairs()
    metrics = models.metrics()
    groups = {label(name): [name] for name in models.has(*SELECTORS)}
    validation = models.validation()
    for (score, labels, kind), part in validation.groupby(["score", "labels", "kind"]):
        groups[f"{label(str(score))} on {labels} {kind} labels"] = list(part.column)
    if not groups:
        raise Missing(f"Needs a score to select by: one of {', '.join(SELECTORS)}, or validation scores on few labels.")
    columns = [column for part in groups.values() for column in part]
    judge, select = Cube.of(models, metrics), Cube.of(models, columns)
    if len(judge.settings) < 2:
        raise Missing(f"Needs at least two settings to choose from; the table has {len(judge.settings)}.")
    direction = np.array([SELECTORS.get(column, 1) for column in columns])
    select = Cube(select.values * direction[:, None, None], select.datasets, columns, select.seeds, select.settings)
    weights = np.vstack([np.ones(len(judge.settings)), _settings_weights(judge, resamples, seed)])
    shares = np.diagonal(success(select, judge, weights, own_seed=True), axis1=1, axis2=3)  # [B, M, M', D]
    several = len(judge.seeds) > 1
    moved = np.diagonal(success(select, judge, weights[:1]), axis1=1, axis2=3) if several else shares[:1] * np.nan
    chance = 0.5 + 0.5 / len(judge.settings)
    numbers, lines = [], []
    for name, members in groups.items():
        rows = [columns.index(column) for column in members]
        values = np.array([mean_of(resample[rows]) for resample in shares])
        numbers.append(Number(name, values[0], *interval(values[1:]), chance, percent=True))
        lines += [
            {
                "selector": name,
                "metric": metric,
                "picked model": mean_of(shares[0][rows, k]),
                "its setting, other seeds": mean_of(moved[0][rows, k]),
            }
            for k, metric in enumerate(metrics)
        ]
    best = max(numbers, key=lambda number: -1 if np.isnan(number.value) else number.value)
    useful = sum(number.low > chance for number in numbers)
    return Result(
        numbers,
        f"The best selector is {best.label}, whose pick is at least as good as a random model in "
        f"{best.text(best.value)} of trials (chance {best.text(chance)}); the intervals of {useful} of "
        f"{len(numbers)} selectors lie above chance.",
        "Success is a mean over metrics and data sets, which depend on each other; it does not say by how much a pick "
        "is better.",
        pd.DataFrame(lines),
        lambda figure: figures.bars(figure, numbers),
        notes=models.gaps([*metrics, *columns]),
    )
