"""Result of an analysis: numbers next to those of the thesis, signs, a table, a figure and sentences."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unknot.studies.population import Missing, Population
from unknot.studies.statistics import (
    FEWEST,
    SignCount,
    block_weights,
    bootstrap_spearman,
    interval,
    rank_correlations,
    sign_count,
    within_groups,
)

RESAMPLES = 500
NO_MORE = "no more than chance"


@dataclass(frozen=True)
class Number:
    """Number of the population, its interval, its chance level, and the value printed in the thesis.

    An ``adjusted`` share of variance is negative if chance alone explains as much, and unknown for too few models: both
    are expressed in words.
    """

    label: str
    value: float
    low: float = np.nan
    high: float = np.nan
    chance: float = np.nan
    thesis: float = np.nan
    percent: bool = False
    adjusted: bool = False

    def text(self, value: float) -> str:
        """Format a value in the unit of this number.

        >>> Number("share", 0.527, percent=True).text(0.527)
        '52.7 %'
        """
        if np.isnan(value):
            return "–"
        return f"{100 * value:.1f} %" if self.percent else f"{value:.3f}"

    @property
    def shown(self) -> str:
        """Formatted value, or words.

        >>> Number("share", -0.031, percent=True, adjusted=True).shown
        'no more than chance'
        >>> Number("share", float("nan"), percent=True, adjusted=True).shown
        'too few models'
        """
        if self.adjusted and np.isnan(self.value):
            return "too few models"
        return NO_MORE if self.adjusted and self.value <= 0 else self.text(self.value)

    @property
    def between(self) -> str:
        """Interval as text: its ends, with a negative lower end at 0 for an adjusted share of variance."""
        if np.isnan(self.low):
            return "–"
        low, high = (max(end, 0.0) if self.adjusted else end for end in (self.low, self.high))
        return f"{self.text(low)} to {self.text(high)}"

    def __str__(self) -> str:
        between = f" [{self.between}]" if not np.isnan(self.low) else ""
        beside = [
            f"{name} {self.text(value)}"
            for name, value in (("chance", self.chance), ("thesis", self.thesis))
            if not np.isnan(value)
        ]
        known = f" ({', '.join(beside)})" if beside else ""
        return f"{self.label}: {self.shown}{between}{known}"


@dataclass(frozen=True)
class Sign:
    """Direction found in the thesis, and in this population."""

    claim: str
    expected: int
    observed: float
    low: float = np.nan
    high: float = np.nan

    @property
    def agrees(self) -> bool | None:
        """Return whether the observed sign is the expected one; ``None`` without an observation."""
        return None if np.isnan(self.observed) else bool(self.observed * self.expected > 0)


@dataclass(frozen=True)
class Result:
    """Result of one analysis.

    Args:
        numbers: the numbers, the main one first.
        shows: conclusion in one sentence.
        limits: limitation in one sentence.
        table: all values.
        draw: function that draws on an empty figure.
        signs: directions found in the thesis.
        notes: exclusions, with reasons.
        name: name of the analysis; this and the rest are filled in by :func:`analysis`.
        title: heading.
        question: research question.
        chapter: chapter of the thesis.
        found: finding of the thesis.
    """

    numbers: Sequence[Number]
    shows: str
    limits: str
    table: pd.DataFrame
    draw: Callable[[Figure], None]
    signs: Sequence[Sign] = ()
    notes: Sequence[str] = ()
    name: str = ""
    title: str = ""
    question: str = ""
    chapter: str = ""
    found: str = ""

    @property
    def value(self) -> float:
        """Main number."""
        return self.numbers[0].value if self.numbers else float("nan")

    def number(self, label: str) -> Number:
        """Return the number with a label."""
        for number in self.numbers:
            if number.label == label:
                return number
        raise KeyError(f"{self.name} has no number {label!r}; it has {[number.label for number in self.numbers]}.")

    def figure(self) -> Figure:
        """Draw the figure."""
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        self.draw(figure)
        return figure

    def count(self) -> SignCount:
        """Count the signs that agree with the thesis."""
        return sign_count([sign.observed for sign in self.signs], [sign.expected for sign in self.signs])


class Analysis(Protocol):
    """Function from a table of results to a :class:`Result`."""

    __name__: str
    about: dict[str, str]

    def __call__(self, table: Any, *, resamples: int = RESAMPLES, seed: int = 0) -> Result:
        """Analyse a table, with intervals from ``resamples`` resamples."""
        ...


ANALYSES: dict[str, Analysis] = {}
"""All analyses by name, in the order of the thesis."""


def analysis(
    title: str, question: str, chapter: str, found: str
) -> Callable[[Callable[[Population, int, int], Result]], Analysis]:
    """Decorate a function of a :class:`Population`, a number of resamples and a seed as an analysis.

    Args:
        title: heading.
        question: research question.
        chapter: chapter of the thesis.
        found: finding of the thesis.
    """

    def wrap(function: Callable[[Population, int, int], Result]) -> Analysis:
        about = {"title": title, "question": question, "chapter": chapter, "found": found}

        @wraps(function)
        def run(table: Any, *, resamples: int = RESAMPLES, seed: int = 0) -> Result:
            population = table if isinstance(table, Population) else Population(table)
            result = function(population, resamples, seed)
            if all(np.isnan(number.value) for number in result.numbers):
                raise Missing(
                    "No number can be computed: scores are constant, or too few models have both of what is compared."
                )
            notes = tuple(dict.fromkeys([*population.notes, *result.notes]))
            return replace(
                result,
                name=function.__name__,
                notes=notes,
                shows=re.sub(r"\bnan\b", "–", result.shows),  # a part that could not be computed
                title=title,
                question=question,
                chapter=chapter,
                found=found,
            )

        # wraps would keep the signature of the inner function
        del run.__wrapped__
        run.about = about  # type: ignore[attr-defined]
        ANALYSES[function.__name__] = run  # type: ignore[assignment]
        return run  # type: ignore[return-value]

    return wrap


@dataclass(frozen=True)
class Correlations:
    """Rank correlations in each data set, in long form and as matrices."""

    long: pd.DataFrame
    rows: list[str]
    columns: list[str]
    notes: list[str] = field(default_factory=list)
    resamples: int = RESAMPLES

    def matrix(self, dataset: str) -> pd.DataFrame:
        """Return ρ of one data set: rows by columns."""
        part = self.long[self.long.dataset == dataset]
        return part.pivot(index="row", columns="column", values="rho").reindex(index=self.rows, columns=self.columns)

    def matrices(self) -> dict[str, pd.DataFrame]:
        """Return ρ of every data set."""
        return {name: self.matrix(name) for name in dict.fromkeys(self.long.dataset)}

    def signs(self, expected: Callable[[str, str], int], say: Callable[[str, str], str]) -> list[Sign]:
        """Return a claim for every pair whose sign according to ``expected`` is not 0."""
        return [
            Sign(f"{say(line.row, line.column)}, {line.dataset}", expected(line.row, line.column), *line[3:6])
            for line in self.long[["dataset", "row", "column", "rho", "low", "high"]].itertuples(index=False)
            if expected(line.row, line.column)
        ]


def correlations(
    population: Population, rows: Sequence[str], columns: Sequence[str], resamples: int, seed: int
) -> Correlations:
    """Spearman's ρ in each data set, pooled over methods and (``within``) inside methods, with block bootstrap
    intervals.
    """
    parts = []
    for name, models in population.parts():
        long = rank_correlations(models, rows, columns, models.setting, resamples, seed)
        long.insert(0, "dataset", name)
        long["within"] = within_groups(models[list(rows)], models[list(columns)], models.method).ravel()
        parts.append(long)
    notes = population.gaps(list(dict.fromkeys([*rows, *columns])))
    return Correlations(pd.concat(parts, ignore_index=True), list(rows), list(columns), notes, resamples)


def mean_rho(
    population: Population, found: Correlations, rows: Sequence[str], columns: Sequence[str], name: str, seed: int = 0
) -> list[Number]:
    """Mean of ρ over data sets, rows and columns with its interval, and the same inside methods.

    Args:
        population: population whose models are resampled, whole settings at a time.
        found: correlations of that population.
        rows: rows of ``found`` to average.
        columns: columns of ``found`` to average.
        name: name of the number.
        seed: seed of the resamples.
    """
    long = found.long[found.long.row.isin(rows) & found.long.column.isin(columns)]
    long = long[long.row != long.column]
    drawn = []
    for _, models in population.parts():
        of = [[name for name in names if models[name].notna().any()] for names in (rows, columns)]
        whole = models.dropna(subset=[*of[0], *of[1]])
        if all(of) and len(whole) >= FEWEST:
            left, right = (whole[names].to_numpy(dtype=float) for names in of)
            resampled = bootstrap_spearman(left, right, block_weights(whole.setting, found.resamples, seed))
            apart = np.array([[a != b for b in of[1]] for a in of[0]])
            drawn.append(resampled[:, apart].mean(1))
    low, high = interval(np.mean(drawn, axis=0)) if drawn else (np.nan, np.nan)
    numbers = [Number(name, mean_of(long.rho), low, high, chance=0.0)]
    if population.frame.method.nunique() > 1:
        numbers.append(Number(f"{name}, inside methods", mean_of(long.within), chance=0.0))
    return numbers


def mean_of(values: Any) -> float:
    """Return the mean without NaN; NaN if nothing is left."""
    array = np.asarray(values, dtype=float)
    array = array[~np.isnan(array)]
    return float(array.mean()) if len(array) else float("nan")
