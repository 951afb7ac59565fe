"""Claims of the disentanglement chapters, compared with bundled tables of results.

A claim is a number and the side of a limit on which it lies in the thesis. Its verdict depends on intervals only, by
the same rule for all claims:

* *reproduced*: the 95 % interval of at least one population lies on the side of the thesis, and none on the other;
* *contradicted*: the interval of at least one population lies on the other side;
* *untested here*: all intervals include the limit, or there is no population.

If the thesis says that something is small or overlaps, it states no limit; our limits are part of the claim's text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from unknot.studies import analyses
from unknot.studies.analyses import Result
from unknot.studies.analyses.unsupervised import CLAIMED
from unknot.studies.analyses.weak import equal_pairs
from unknot.studies.population import (
    ADAPTIVE,
    DOWNSTREAM,
    GROUPED,
    METRICS,
    NOT_UNSUPERVISED,
    Missing,
    Population,
    label,
)
from unknot.studies.statistics import FEWEST, Floats, block_weights, bootstrap_spearman, interval

MIXED = ("weak_against_unsupervised", "semi_supervised")
"""Analyses that compare models without pairs or labels with others."""
RULE = (
    "A claim is reproduced if the interval of at least one data set lies on the side of the thesis and of none on the "
    "other, contradicted if one lies on the other side, and untested here otherwise."
)
VERDICTS = ("reproduced", "contradicted", "untested here")
CHAPTERS = {
    "unsupervised": "Unsupervised Learning of Disentangled Representations",
    "metrics": "Evaluating Disentangled Representations",
    "labels": "Semi-Supervised Disentanglement",
    "fairness": "Fairness of Disentangled Representations",
    "weak": "Weakly-Supervised Disentanglement",
    "reasoning": "Abstract reasoning",
    "sets": "Learning About Multiple Objects",
}
Pairs = Sequence[tuple[str, str]]
Measure = Callable[..., "Estimate"]
"""Computes an estimate from a table, with so many ``resamples``."""


@dataclass(frozen=True)
class Estimate:
    """Number with its interval, and its number of models."""

    value: float
    low: float
    high: float
    models: int

    @classmethod
    def of(cls, drawn: Floats, models: int) -> "Estimate":
        """Build from values ``[1 + B]``: that of the population, then those of resamples."""
        if np.isnan(drawn[0]):
            raise Missing("scores are missing or constant")
        return cls(float(drawn[0]), *interval(drawn[1:]), models)


@dataclass(frozen=True)
class Claim:
    """Claim of the thesis with the rule that decides it.

    Args:
        chapter: a key of :data:`CHAPTERS`.
        text: the claim, with the limit if it is ours.
        thesis: number printed in the thesis, if any.
        measure: function that computes the number from a table.
        populations: names of the populations to use, keys of :func:`populations`.
        low: the number is above this according to the claim.
        high: the number is below this according to the claim.
        percent: whether the number is a share.
        reason: why there can be no population.
    """

    chapter: str
    text: str
    thesis: str = "–"
    measure: Measure | None = None
    populations: tuple[str, ...] = ()
    low: float = -np.inf
    high: float = np.inf
    percent: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Finding:
    """Claim with the result of each population."""

    claim: Claim
    estimates: dict[str, Estimate]
    missing: dict[str, str] = field(default_factory=dict)

    def sides(self) -> dict[str, int]:
        """1 for a population on the side of the thesis, -1 for one on the other, 0 for an undecided one."""
        found = {}
        for name, e in self.estimates.items():
            agrees = self.claim.low < e.low and e.high < self.claim.high
            differs = e.high < self.claim.low or e.low > self.claim.high
            found[name] = int(agrees) - int(differs)
        return found

    @property
    def verdict(self) -> str:
        """One of :data:`VERDICTS`."""
        sides = self.sides().values()
        if -1 in sides:
            return VERDICTS[1]
        return VERDICTS[0] if 1 in sides else VERDICTS[2]

    @property
    def reason(self) -> str:
        """Reason why a claim is untested, or a remark on its verdict."""
        if not self.estimates:
            return self.claim.reason or "; ".join(dict.fromkeys(self.missing.values()))
        sides = self.sides()
        if len(set(sides.values())) > 1:
            words = {1: "holds", -1: "fails", 0: "undecided"}
            return ", ".join(f"{words[side]} on {name}" for name, side in sides.items())
        return "" if self.verdict != VERDICTS[2] else "the interval holds the limit"

    def text(self, value: float) -> str:
        """Format a value in the unit of the claim."""
        return f"{100 * value:.1f} %" if self.claim.percent else f"{value:.2f}"


# Populations


def populations(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the populations that decide the claims, from bundled tables by name.

    Those of one data set and image size are joined, so that models with pairs or labels can be compared with models
    without. A larger repetition of a table replaces it as soon as all of its models are done.
    """
    single = "single"
    tables = {**tables, single: unsupervised(tables)}
    parts: dict[str, tuple[str, ...]] = {
        "dSprites": (single,),
        "rooms": ("rooms32",),
        "dSprites and rooms": (single, "rooms32"),
        "dSprites, pairs": (single, "weak32"),
        "dSprites, long training": ("long32",),
        "dSprites, k = 1 to 4": ("weak32", "sparse32"),
        "group labels, rooms and dSprites without orientation": ("groups32",),
        "dSprites, covariate shift": ("shift32",),
        "dSprites, labels": (single, "s2_32", "labels32"),
        "dSprites, 50,000 steps": ("means32",),
        "rooms, pairs": ("reasoning32",),
    }
    optional = {"labels32"}
    found = {}
    if "sets" in tables:
        sets = tables["sets"]
        kinds = {
            "sets, bundled": ~sets.model.str.startswith("equal"),
            "sets, equal budget": sets.model.str.startswith("equal"),
        }
        kinds["up to 6 objects"] = sets.model == "equal, up to 6 objects"
        found = {name: sets[rows] for name, rows in kinds.items() if rows.any()}
    for name, members in parts.items():
        there = [tables[member] for member in members if member in tables and len(tables[member])]
        if len(there) >= len({*members} - optional):
            found[name] = pd.concat(there, ignore_index=True)
    return found


def unsupervised(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the models of dSprites without pairs and labels.

    The AnnealedVAEs of ``dsprites32`` do not reconstruct; those of ``capacity32`` replace them when all are done.
    Scores that only they have are left out, as a comparison of all methods needs scores that all methods have.
    """
    if _complete(tables, "unsupervised32"):
        return tables["unsupervised32"]
    table = tables.get("dsprites32", pd.DataFrame())
    if len(table) and _complete(tables, "capacity32"):
        better = tables["capacity32"]
        shared = [name for name in better if name in table or name.startswith("model.")]
        kept = [table[table.method != "AnnealedVAE"], better.loc[better.method == "AnnealedVAE", shared]]
        return pd.concat(kept, ignore_index=True)
    return table


def _complete(tables: Mapping[str, pd.DataFrame], name: str) -> bool:
    return name in tables and tables[name].attrs.get("models") == tables[name].attrs.get("planned")


# Measures


def _drawn(models: pd.DataFrame, pairs: Pairs, resamples: int) -> tuple[Floats, int]:
    """Return the mean of Spearman's ρ over pairs of columns ``[1 + B]``, that of the population first."""
    pairs = [pair for pair in pairs if all(name in models and models[name].notna().any() for name in pair)]
    columns = list(dict.fromkeys(name for pair in pairs for name in pair))
    whole = models.dropna(subset=columns) if pairs else models[:0]
    if len(whole) < FEWEST:
        raise Missing("no models with these scores" if not len(whole) else f"{len(whole)} models are too few")
    values = whole[columns].to_numpy(dtype=float)
    weights = np.vstack([np.ones((1, len(whole))), block_weights(whole.setting, resamples)])
    rho = bootstrap_spearman(values, values, weights)
    with np.errstate(invalid="ignore"):
        return np.nanmean([rho[:, columns.index(a), columns.index(b)] for a, b in pairs], axis=0), len(whole)


def rank(
    table: pd.DataFrame,
    resamples: int,
    pairs: Pairs,
    less: Pairs = (),
    on_equal_pairs: bool = False,
    need: Sequence[str] = (),
) -> Estimate:
    """Mean ρ over pairs of columns, averaged over data sets, minus that over other pairs, if any.

    Args:
        table: table of results.
        resamples: number of resamples of settings.
        pairs: pairs of columns.
        less: pairs of columns whose mean is subtracted.
        on_equal_pairs: compare adaptive models inside one kind of pairs.
        need: columns without which the claim is untested.
    """
    population = Population(table)
    _need(population, need)
    if on_equal_pairs:
        population = equal_pairs(population.methods(*ADAPTIVE))
    else:
        population = population.only(~population.frame.method.isin(NOT_UNSUPERVISED))
    means, models = [], 0
    for _, part in population.parts():
        drawn, n = _drawn(part, pairs, resamples)
        if less:
            complete = part.dropna(subset=[name for pair in [*pairs, *less] for name in pair if name in part])
            drawn = _drawn(complete, pairs, resamples)[0] - _drawn(complete, less, resamples)[0]
        means.append(drawn)
        models += n
    if not means:
        raise Missing("no such models")
    return Estimate.of(np.mean(means, axis=0), models)


def trend(table: pd.DataFrame, resamples: int, column: str, without: Sequence[str]) -> Estimate:
    """Mean over methods of ρ between the strength and a column, with settings resampled inside methods."""
    population = Population(table).unsupervised
    frame = population.frame[~population.frame.method.isin([*without, "AnnealedVAE"])]
    if column not in frame:
        raise Missing(f"no {column}")
    drawn = []
    for _, part in frame.dropna(subset=[column, "strength"]).groupby(["dataset", "method"]):
        if part.strength.nunique() > 2:
            drawn.append(_drawn(part, [("strength", column)], resamples)[0])
    if not drawn:
        raise Missing("no method with three strengths")
    with np.errstate(invalid="ignore"):
        return Estimate.of(np.nanmean(drawn, axis=0), len(frame))


def number(table: pd.DataFrame, resamples: int, analysis: str, label: str, above_chance: bool = False) -> Estimate:
    """Number of an analysis, or its difference from chance."""
    found = _result(analysis, _Key(table), resamples).number(label)
    if np.isnan(found.value) or np.isnan(found.low):
        raise Missing("too few models for an interval")
    population = Population(table)
    single = population.unsupervised
    weak = analysis in ("weak_loss", "weak_fairness", "covariate_shift")
    models = population.methods(*ADAPTIVE) if weak else population if analysis in MIXED else single
    less = found.chance if above_chance else 0.0
    return Estimate(found.value - less, found.low - less, found.high - less, len(models))


def _need(population: Population, columns: Sequence[str]) -> None:
    """Raise an error that names missing scores."""
    absent = [label(name) for name in columns if not population.has(name)]
    if absent:
        raise Missing(f"not scored with {', '.join(absent)}")


class _Key:
    """Table as a key of a cache, compared by identity."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.table is self.table


@cache
def _result(analysis: str, key: _Key, resamples: int) -> Result:
    return analyses.ANALYSES[analysis](key.table, resamples=resamples)


def beats(
    table: pd.DataFrame, resamples: int, first: str, second: str, rows: str = "", metrics: Sequence[str] = CLAIMED
) -> Estimate:
    """Share of comparisons that one kind of models wins, averaged over metrics, with settings resampled.

    Args:
        table: table of results.
        resamples: number of resamples of settings.
        first: condition of ``DataFrame.query`` on the models that should win.
        second: condition on the others.
        rows: condition on both.
        metrics: metrics to compare by.
    """
    frame = Population(table).by_pairs().frame
    frame = frame.query(rows, engine="python") if rows else frame
    shares, models = [], set()
    for _, part in frame.groupby("dataset"):
        a, b = (part.query(kind, engine="python") for kind in (first, second))
        for metric in metrics:
            if metric not in part:
                continue
            x, y = a.dropna(subset=[metric]), b.dropna(subset=[metric])
            if not len(x) or not len(y):
                continue
            weights = [
                np.vstack(
                    [np.ones((1, len(side))), block_weights(side.setting + side.seed.astype(str), resamples, seed)]
                )
                for seed, side in enumerate((x, y))
            ]
            left, right = x[metric].to_numpy()[:, None], y[metric].to_numpy()
            wins = (left > right) + 0.5 * (left == right)
            total = weights[0].sum(1) * weights[1].sum(1)
            shares.append(np.einsum("bi,ij,bj->b", weights[0], wins, weights[1], optimize=True) / total)
            models |= {*x.index, *y.index}
    if not shares:
        raise Missing("no such models")
    return Estimate.of(np.mean(shares, axis=0), len(models))


def share(table: pd.DataFrame, resamples: int, analysis: str, column: str) -> Estimate:
    """Mean of a column of an analysis' table, with methods resampled."""
    lines = _result(analysis, _Key(table), resamples).table.dropna(subset=[column])
    if lines.empty:
        raise Missing("no such models")
    values = lines[column].to_numpy(dtype=float)
    weights = block_weights(lines.method, resamples)
    drawn = np.r_[values.mean(), weights @ values / weights.sum(1)]
    return Estimate.of(drawn, len(Population(table)))


def ranking_on_labels(
    table: pd.DataFrame, resamples: int, score: str, labels: int, kind: str, less: Any = None
) -> Estimate:
    """Mean ρ of a validation score with the test metrics, over draws of labels, minus that of another such score."""
    columns = Population(table).validation()

    def pairs(score: str, labels: int, kind: str) -> Pairs:
        of = columns[(columns.score == score) & (columns.labels == labels) & (columns.kind == kind)].column
        return [(name, metric) for name in of for metric in CLAIMED if metric in table]

    if not pairs(score, labels, kind) or (less and not pairs(*less)):
        raise Missing("no such scores on labels")
    return rank(table, resamples, pairs(score, labels, kind), pairs(*less) if less else ())


def reliability(
    table: pd.DataFrame, resamples: int, samples: int, metrics: Sequence[str] = (), less: Sequence[str] = ()
) -> Estimate:
    """Mean ρ between two evaluations with the same number of samples, for some metrics, minus that of others."""
    _need(Population(table), metrics)
    repeated = Population(table).repeated()
    repeated = repeated[repeated.samples == samples]

    def pairs(names: Iterable[str]) -> Pairs:
        runs = (list(repeated[repeated.score == name].column) for name in names)
        return [(of[0], of[1]) for of in runs if len(of) > 1]

    metrics = metrics or list(METRICS)
    if not pairs(metrics) or (less and not pairs(less)):
        raise Missing(f"no second scoring by {samples:,} samples")
    return rank(table, resamples, pairs(metrics), pairs(less))


def all_pairs(names: Iterable[str]) -> Pairs:
    """Return all pairs of different names."""
    return list(combinations(names, 2))


def across(rows: Iterable[str], columns: Iterable[str]) -> Pairs:
    """Return all pairs of a row and a column."""
    columns = list(columns)
    return [(row, column) for row in rows for column in columns]


# The claims

GBT = tuple(name for name in DOWNSTREAM if "_gbt_1" in name)
LR = tuple(name for name in DOWNSTREAM if "_lr_1" in name)
OTHERS = tuple(name for name in CLAIMED if name != "dci")
MATRICES = ("importance", "information", "predictability")
COMPACT = ("mig", "sap", "dci_completeness")
BOTH = ("dSprites", "rooms")
LOSS = "weak_reconstruction"
SETS, EQUAL = ("sets, bundled",), ("sets, equal budget",)


def _matrix(aggregations: Sequence[str]) -> list[list[str]]:
    return [[f"aggregation_{matrix}_{name}" for name in aggregations] for matrix in MATRICES]


def _claims() -> list[Claim]:
    u, m, s, f, w, r, o = CHAPTERS
    inside = [pair for names in _matrix(COMPACT) for pair in all_pairs(names)]
    with_d = [
        pair
        for names, d in zip(_matrix(COMPACT), _matrix(["dci_disentanglement"]), strict=True)
        for pair in across(names, d)
    ]

    def between(names: Sequence[str]) -> Pairs:
        return [pair for name in names for pair in all_pairs(f"aggregation_{matrix}_{name}" for matrix in MATRICES)]

    tight = [("beta_vae", "factor_vae"), ("mig", "dci")]
    loose = [pair for pair in all_pairs(CLAIMED) if pair not in tight]
    transfer, explained = (
        partial(number, analysis="transfer_experiment"),
        partial(number, analysis="explained_variance"),
    )
    labels, pairs = ("dSprites, labels",), ("dSprites, pairs",)
    wins = partial(number, analysis="semi_supervised")
    adaptive, grouped = f"method in {ADAPTIVE}", f"method in {GROUPED}"
    return [
        Claim(u, "The total correlation of samples falls with the strength (ρ, without FactorVAE)", "falls",
              partial(trend, column="total_correlation_sampled", without=("FactorVAE",)), BOTH, high=0),
        Claim(u, "The total correlation of the means rises with the strength (ρ, without DIP-VAE)", "rises",
              partial(trend, column="total_correlation", without=("DIPVAEI", "DIPVAEII")),
              (*BOTH, "dSprites, 50,000 steps"), low=0),
        Claim(u, "The total correlation of the means is above that of samples (share of models)", "many models",
              partial(number, analysis="total_correlation", label="models with TC(mean) > TC(sample)"), BOTH,
              low=0.5, percent=True),
        Claim(u, "The method explains less than half of the variance of a score", "37 %",
              partial(explained, label="method alone, adjusted R²"), BOTH, high=0.5, percent=True),
        Claim(u, "The strength explains more of it than the method alone does", "22 points more",
              partial(explained, label="strength beyond the method, adjusted R²"), BOTH, low=0, percent=True),
        Claim(u, "No method dominates: a model of the best method beats one of another in less than 75 %", "overlap",
              partial(number, analysis="scores_by_method", label="a model of the best method beats one of another"),
              BOTH, high=0.75, percent=True),
        Claim(u, "No strength is good throughout: less than half of the curves of a score are monotone", "no rule",
              partial(share, analysis="scores_by_strength", column="monotone"), BOTH, high=0.5, percent=True),
        Claim(u, "The reconstruction selects no good model: its pick is as good as a random one in less than 70 %",
              "no pattern", partial(number, analysis="selectors", label=label("elbo_reconstruction")), BOTH, high=0.7,
              percent=True),
        Claim(u, "Neither does the ELBO", "no pattern",
              partial(number, analysis="selectors", label=label("elbo")), BOTH, high=0.7, percent=True),
        Claim(u, "Neither does the total correlation of samples", "no pattern",
              partial(number, analysis="selectors", label=label("total_correlation_sampled")), BOTH, high=0.7,
              percent=True),
        Claim(u, "A setting that is selected by a metric is good by it again, on the same data", "81.9 %",
              partial(transfer, label="same metric, same data"), BOTH, low=0.5 + 0.5 / 36, percent=True),
        Claim(u, "It is by another metric, on the same data", "62.1 %",
              partial(transfer, label="other metric, same data"), BOTH, low=0.5 + 0.5 / 36, percent=True),
        Claim(u, "It is by the same metric, on other data", "59.6 %",
              partial(transfer, label="same metric, other data"), ("dSprites and rooms",), low=0.5 + 0.5 / 36,
              percent=True),
        Claim(u, "It hardly is by another metric on other data: less than 60 %", "52.7 %",
              partial(transfer, label="other metric, other data"), ("dSprites and rooms",), high=0.6, percent=True),
        Claim(u, "Settings rank alike on dSprites and Color-dSprites, elsewhere hardly", "strong; weak",
              reason="no population on Color-dSprites"),
        Claim(u, "Metrics go with the accuracy of boosted trees (ρ)", "positive",
              partial(rank, pairs=across(CLAIMED, GBT)), BOTH, low=0),
        Claim(u, "They do more than with that of logistic regression (difference of ρ)", "more",
              partial(rank, pairs=across(CLAIMED, GBT), less=across(CLAIMED, LR), need=LR), BOTH, low=0),
        Claim(u, "DCI goes with it more than the other metrics (difference of ρ)", "DCI most",
              partial(rank, pairs=across(["dci"], GBT), less=across(OTHERS, GBT)), BOTH, low=0),
        Claim(u, "Metrics have little to do with efficiency: |ρ| under 0.3", "nothing reliable",
              partial(rank, pairs=across(CLAIMED, ["downstream_gbt_efficiency"])), BOTH, low=-0.3, high=0.3),
        Claim(m, "All metrics but modularity and IRS agree (ρ)", "strong on dSprites, mild elsewhere",
              partial(rank, pairs=all_pairs(CLAIMED)), BOTH, low=0),
        Claim(m, "Modularity agrees less with the others (difference of ρ)", "apart",
              partial(rank, pairs=all_pairs(CLAIMED), less=across(["modularity"], CLAIMED)), BOTH, low=0),
        Claim(m, "BetaVAE with FactorVAE and MIG with DCI are the closest pairs (difference of ρ)", "tight",
              partial(rank, pairs=tight, less=loose, need=CLAIMED), BOTH, low=0),
        Claim(m, "On one matrix MIG, SAP and completeness agree: ρ above 0.5", "strong",
              partial(rank, pairs=inside), BOTH, low=0.5),
        Claim(m, "Disentanglement agrees less with them (difference of ρ)", "less",
              partial(rank, pairs=inside, less=with_d), BOTH, low=0),
        Claim(m, "The gaps of MIG and SAP depend less on the matrix than DCI and modularity (difference of ρ)",
              "more robust", partial(rank, pairs=between(["mig", "sap"]),
                                     less=between(["dci_disentanglement", "modularity"])), BOTH, low=0),
        Claim(m, "10,000 samples rank models reliably: ρ of two draws above 0.9", "stable",
              partial(reliability, samples=10_000), BOTH, low=0.9),
        Claim(m, "100 samples do not: below 0.9", "not", partial(reliability, samples=100), BOTH, high=0.9),
        Claim(m, "FactorVAE and IRS need the fewest samples (difference of ρ with the others, 100 samples)", "most",
              partial(reliability, samples=100, metrics=("factor_vae", "irs"),
                      less=("beta_vae", "mig", "dci", "modularity", "sap")), BOTH, low=0),
        Claim(s, "MIG on 100 perfect labels ranks models (ρ)", "good",
              partial(ranking_on_labels, score="mig", labels=100, kind="perfect"), ("dSprites",), low=0),
        Claim(s, "DCI on 100 perfect labels ranks models (ρ)", "good",
              partial(ranking_on_labels, score="dci", labels=100, kind="perfect"), ("dSprites",), low=0),
        Claim(s, "SAP on 100 labels ranks them worse than MIG (difference of ρ)", "much lower",
              partial(ranking_on_labels, score="mig", labels=100, kind="perfect", less=("sap", 100, "perfect")),
              ("dSprites",), low=0),
        Claim(s, "With 1,000 labels SAP is much better (difference of ρ)", "much better",
              partial(ranking_on_labels, score="sap", labels=1000, kind="perfect", less=("sap", 100, "perfect")),
              ("dSprites",), low=0),
        Claim(s, "Binned labels rank no worse: less than 0.1 below perfect ones (difference of ρ)", "not worse",
              partial(ranking_on_labels, score="mig", labels=100, kind="binned", less=("mig", 100, "perfect")),
              ("dSprites",), low=-0.1),
        Claim(s, "Noisy labels rank slightly worse: less than 0.2 below (difference of ρ)", "slightly worse",
              partial(ranking_on_labels, score="mig", labels=100, kind="noisy", less=("mig", 100, "perfect")),
              ("dSprites",), low=-0.2),
        Claim(s, "Partial labels rank worse than perfect ones (difference of ρ)", "lower, still high",
              partial(ranking_on_labels, score="mig", labels=100, kind="partial", less=("mig", 100, "perfect")),
              ("dSprites",), high=0),
        Claim(s, "Training on 100 perfect labels wins against selecting by them", "70.5 %",
              partial(wins, label="trials won by S² methods, 100 perfect labels"), labels, low=0.5, percent=True),
        Claim(s, "On 100 binned labels", "64.8 %",
              partial(wins, label="trials won by S² methods, 100 binned labels"), labels, low=0.5, percent=True),
        Claim(s, "On 100 noisy labels", "67.5 %",
              partial(wins, label="trials won by S² methods, 100 noisy labels"), labels, low=0.5, percent=True),
        Claim(s, "On 100 partial labels neither wins: 35 to 65 %", "50.0 %",
              partial(wins, label="trials won by S² methods, 100 partial labels"), labels, low=0.35, high=0.65,
              percent=True),
        Claim(s, "On 1,000 perfect labels", "above 70.5 %",
              partial(wins, label="trials won by S² methods, 1000 perfect labels"), labels, low=0.5, percent=True),
        Claim(s, "On 1,000 partial labels", "62.6 %",
              partial(wins, label="trials won by S² methods, 1000 partial labels"), labels, low=0.5, percent=True),
        Claim(s, "The supervised baseline is worst: it loses to S² methods on the same labels", "worst",
              partial(beats, first="method.str.startswith('S2')", second="method == 'SupervisedVAE'",
                      rows="`data.labelling` == 'perfect'"), labels, low=0.5, percent=True),
        Claim(s, "The squared loss on labels is worse than cross-entropy", "considerably worse",
              partial(beats, first="`model.supervised` != 'l2'", second="`model.supervised` == 'l2'",
                      rows="method == 'S2BetaVAE' and `data.labelling` == 'perfect' and `data.num_labels` == 100"),
              labels, low=0.5, percent=True),
        Claim(f, "Unfairness reaches 15 to 25 % on most data sets", "5 of 7",
              reason="two data sets cannot tell most of seven"),
        Claim(f, "Disentangled models are fairer: metrics go with less unfairness (ρ)", "negative",
              partial(rank, pairs=across(CLAIMED, ["unfairness"])), BOTH, high=0),
        Claim(f, "DCI does most (difference of ρ)", "DCI most",
              partial(rank, pairs=[("dci", "unfairness")], less=across(OTHERS, ["unfairness"])), BOTH, high=0),
        Claim(f, "They do at equal accuracy (ρ of adjusted scores)", "weaker, negative",
              partial(number, analysis="adjusted_metrics", label="mean ρ with adjusted unfairness"), BOTH, high=0),
        Claim(f, "Adjusted metrics agree with each other (ρ)", "positive",
              partial(number, analysis="adjusted_metrics", label="mean ρ among adjusted metrics"), BOTH, low=0),
        Claim(f, "Of two models the more accurate is fairer", "84.2 %",
              partial(number, analysis="fairness_selection", label="the more accurate of two models is fairer"), BOTH,
              low=0.5, percent=True),
        Claim(w, "An Ada-GVAE beats a model without pairs", "clearly",
              partial(number, analysis="weak_against_unsupervised", label="an Ada-GVAE beats an unsupervised model"),
              pairs, low=0.5, percent=True),
        Claim(w, "An Ada-GVAE beats one of the best method without pairs", "clearly",
              partial(number, analysis="weak_against_unsupervised",
                      label="it beats a model of the best unsupervised method"), pairs, low=0.5, percent=True),
        Claim(w, "Ada-GVAE is better than Ada-ML-VAE", "at least as good",
              partial(beats, first="method == 'AdaGVAE'", second="method == 'AdaMLVAE'", rows="`data.k` == 'rnd'"),
              pairs, low=0.5, percent=True),
        Claim(w, "β = 1 is best: it beats β = 16", "best in most cases",
              partial(beats, first="`model.beta` == 1", second="`model.beta` == 16", rows=adaptive),
              (*pairs, "dSprites, long training"), low=0.5, percent=True),
        Claim(w, "The weak loss goes with bad metrics (ρ on equal pairs)", "negative",
              partial(rank, pairs=across([LOSS], CLAIMED), on_equal_pairs=True),
              (*pairs, "dSprites, long training", "rooms, pairs"), high=0),
        Claim(w, "The model of lowest weak loss beats a random adaptive one (points above chance)", "selects",
              partial(number, analysis="weak_loss", above_chance=True,
                      label="the model of lowest loss is at least as good as a random one"),
              (*pairs, "dSprites, long training", "rooms, pairs"), low=0, percent=True),
        Claim(w, "The weak loss goes with low accuracy of trees (ρ on equal pairs)", "negative",
              partial(rank, pairs=across([LOSS], GBT), on_equal_pairs=True),
              (*pairs, "dSprites, long training", "rooms, pairs"), high=0),
        Claim(w, "The weak loss goes with unfairness (ρ on equal pairs)", "positive",
              partial(rank, pairs=[(LOSS, "unfairness")], on_equal_pairs=True),
              (*pairs, "dSprites, long training", "rooms, pairs"), low=0),
        Claim(w, "Among models with pairs metrics go with less unfairness (ρ on equal pairs)", "negative",
              partial(rank, pairs=across(CLAIMED, ["unfairness"]), on_equal_pairs=True),
              (*pairs, "rooms, pairs"), high=0),
        Claim(w, "Adaptive models are better the fewer factors change: k = 1 beats k = 2 and more", "sparser is better",
              _sparser, ("dSprites, k = 1 to 4",), low=0.5, percent=True),
        Claim(w, "A group label of the factor that changes helps with k = 1", "helps, on MPI3D",
              partial(beats, first=grouped, second=adaptive, rows="`data.k`.astype('str') == '1'"),
              (*pairs, "group labels, rooms and dSprites without orientation"), low=0.5, percent=True),
        Claim(w, "A group label of one of several changes hurts", "hurts",
              partial(beats, first=grouped, second=adaptive, rows="`data.k` == 'rnd'"), pairs, high=0.5, percent=True),
        Claim(w, "Accuracy under covariate shift goes with the metrics (ρ)", "positive",
              partial(rank, pairs=across(CLAIMED, ["covariate_shift"]), on_equal_pairs=True),
              ("dSprites, covariate shift",), low=0),
        Claim(w, "It goes against the weak loss (ρ on equal pairs)", "negative",
              partial(rank, pairs=[(LOSS, "covariate_shift")], on_equal_pairs=True), ("dSprites, covariate shift",),
              high=0),
        Claim(w, "It is lower than without shift", "lower",
              partial(number, analysis="covariate_shift", label="accuracy lost under shift"),
              ("dSprites, covariate shift",), low=0, percent=True),
        Claim(r, "After few steps reasoning is easier on disentangled codes (ρ of metrics, 300 steps)", "positive",
              partial(_reasoning, steps=300), ("rooms", "rooms, pairs"), low=0),
        Claim(r, "After few steps accuracy goes against the weak loss (ρ, 300 steps)", "strongly negative",
              partial(rank, pairs=[(LOSS, "reasoning_300")], on_equal_pairs=True), ("rooms, pairs",), high=0),
        Claim(r, "After many steps the benefit is gone (difference of ρ, 300 and 3,000 steps)", "gone",
              partial(_reasoning, steps=300, less=3000), ("rooms", "rooms, pairs"), low=0),
        Claim(o, "More iterations at test time help: 7 against 3 (AP at ∞, points)", "helps",
              partial(_sets, first={"experiment": "iterations", "iterations": 7},
                      second={"experiment": "iterations", "iterations": 3}), SETS, low=0, percent=True),
        Claim(o, "Attention segments objects without supervision of masks: ARI above 50 %", "78.0 %",
              partial(_sets, score="ari", first={"experiment": "attention"}), SETS, low=0.5, percent=True),
        Claim(o, "Trained on up to 6 objects it finds 10: AP on scenes of 10 is less than 15 points lower than on 6",
              "little lower", partial(_sets, first={"experiment": "objects", "objects": 10, "slots": 12},
                                      second={"experiment": "objects", "objects": 6, "slots": 12}),
              ("up to 6 objects",), low=-0.15, percent=True),
        Claim(o, "The loss at every iteration is better than at the last alone (AP at 1, points)", "better",
              partial(_sets, score="ap_1", first={"model": "equal, slots"}, second={"model": "equal, last iteration"}),
              EQUAL, low=0, percent=True),
        Claim(o, "A larger scale of coordinates gives better positions (AP at 0.25, points)", "better",
              partial(_sets, score="ap_0.25", first={"model": "equal, scale"}, second={"model": "equal, slots"}), EQUAL,
              low=0, percent=True),
        Claim(o, "It gives worse attributes (AP at ∞, points)", "worse",
              partial(_sets, first={"model": "equal, scale"}, second={"model": "equal, slots"}), EQUAL, high=0,
              percent=True),
        Claim(o, "It is no worse than DSPN at an equal budget (AP at 1, points)", "matches or outperforms",
              partial(_sets, score="ap_1", first={"model": "equal, slots"}, second={"model": "equal, DSPN"}), EQUAL,
              low=0, percent=True),
        Claim(o, "It is better than an MLP with ordered outputs (AP at 1, points)", "better",
              partial(_sets, score="ap_1", first={"model": "equal, slots"}, second={"model": "equal, slot MLP"}), EQUAL,
              low=0, percent=True),
    ]  # fmt: skip


def _sets(
    table: pd.DataFrame,
    resamples: int,
    first: Mapping[str, Any],
    second: Mapping[str, Any] | None = None,
    score: str = "ap_inf",
) -> Estimate:
    """Score of set predictors, or a difference of two, with Student's interval over draws of scenes.

    The table has a row for each model, experiment and draw; both sides of a difference use the same scenes.
    """

    def per_draw(kind: Mapping[str, Any]) -> pd.Series:
        chosen = {"experiment": "thresholds"} | dict(kind)
        of = table[np.logical_and.reduce([table[name] == value for name, value in chosen.items()])]
        return of.groupby("draw")[score].mean() / 100

    drawn = per_draw(first) - per_draw(second) if second else per_draw(first)
    drawn = drawn.dropna()
    if len(drawn) < 2:
        raise Missing("no such models")
    low, high = stats.t.interval(0.95, len(drawn) - 1, drawn.mean(), drawn.sem())
    return Estimate(float(drawn.mean()), float(low), float(high), int(table.model.nunique()))


def _sparser(table: pd.DataFrame, resamples: int) -> Estimate:
    """Share of comparisons that an Ada-GVAE with β = 1 and k = 1 wins against one with a larger fixed k."""
    frame = table[(table.method == "AdaGVAE") & (table["model.beta"] == 1)]
    k = pd.to_numeric(frame["data.k"], errors="coerce")
    same = frame.assign(changes=k).drop(columns="data.k")[k.notna()]
    return beats(same, resamples, "changes == 1", "changes > 1")


def _reasoning(table: pd.DataFrame, resamples: int, steps: int, less: int = 0) -> Estimate:
    """Mean ρ of the metrics with the accuracy after some steps."""
    minus = across(CLAIMED, [f"reasoning_{less}"]) if less else ()
    paired = bool(table.method.isin(ADAPTIVE).any())
    return rank(table, resamples, across(CLAIMED, [f"reasoning_{steps}"]), minus, on_equal_pairs=paired)


def decide(tables: Mapping[str, pd.DataFrame], resamples: int = 500) -> list[Finding]:
    """Decide every claim on bundled tables.

    Args:
        tables: tables by name, from :func:`~unknot.studies.load_results`; claims on missing tables are untested.
        resamples: number of resamples of every interval.
    """
    there = populations(tables)
    return [_decided(claim, {name: there.get(name) for name in claim.populations}, resamples) for claim in CLAIMS]


def decide_on(table: pd.DataFrame, resamples: int = 500) -> list[Finding]:
    """Decide the claims that one table can decide, for each data set separately if there are several.

    >>> from unknot.studies.synthetic import synthetic_results
    >>> found = decide_on(synthetic_results(("dsprites",), seeds=2), resamples=20)
    >>> [finding.verdict for finding in found if finding.claim.text.startswith("All metrics but")]
    ['reproduced']
    """
    parts = {str(name): part for name, part in table.groupby("dataset", sort=False)} | {"all": table}
    findings = []
    for claim in CLAIMS:
        whole = claim.populations == ("dSprites and rooms",)
        if claim.measure and claim.populations:
            of = {name: part for name, part in parts.items() if (name == "all") == whole}
            findings.append(_decided(claim, of, resamples))
    return [finding for finding in findings if finding.estimates]


def _decided(claim: Claim, there: Mapping[str, pd.DataFrame | None], resamples: int) -> Finding:
    estimates, missing = {}, {}
    for name, table in there.items():
        if table is None or claim.measure is None:
            missing[name] = f"no models: {name}"
            continue
        try:
            estimates[name] = claim.measure(table, resamples=resamples)
        except Missing as error:
            missing[name] = f"{name}: {error}".rstrip(".")
        except (KeyError, pd.errors.UndefinedVariableError):
            missing[name] = f"{name}: no such models"
    return Finding(claim, estimates, missing)


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """Count the claims by verdict."""
    verdicts = [finding.verdict for finding in findings]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def markdown(findings: Sequence[Finding]) -> str:
    """Format claims by chapter as Markdown tables, with a line of counts."""
    found = counts(findings)
    parts = [", ".join(f"{number} {verdict}" for verdict, number in found.items()) + "."]
    head = "| claim | thesis | here, 95 % interval, models | verdict |\n|---|---|---|---|"
    for chapter, title in CHAPTERS.items():
        lines = [_row(finding) for finding in findings if finding.claim.chapter == chapter]
        if lines:
            parts += [f"**{title}**", "\n".join([head, *lines])]
    return "\n\n".join(parts)


def cells(finding: Finding) -> tuple[str, str, str, str]:
    """Return the four cells of a claim in a table: claim, thesis, here, verdict with its reason."""
    here = [
        f"{name}: {finding.text(e.value)} ({finding.text(e.low)} to {finding.text(e.high)}), {e.models}"
        for name, e in finding.estimates.items()
    ]
    reason = f": {finding.reason}" if finding.reason else ""
    return finding.claim.text, finding.claim.thesis, "; ".join(here) or "–", f"{finding.verdict}{reason}"


def _row(finding: Finding) -> str:
    claim, thesis, here, verdict = (cell.replace("|", "\\|") for cell in cells(finding))
    bold = verdict.replace(finding.verdict, f"**{finding.verdict}**", 1)
    return f"| {claim} | {thesis} | {here.replace('; ', '<br>')} | {bold} |"


CLAIMS = _claims()
"""All claims, in the order of the chapters."""
