"""Statistics for tables of models: rank correlations, explained variance, and chance levels.

Models that share a setting (method and strength) differ only in their seed and are not independent evidence about
settings: resampling takes all models of a setting or none. Ties have average ranks. All resamples are computed at once,
from the counts of each model.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.floating[Any]]
CONFIDENCE = 0.95
FEWEST = 4
"""Minimum number of models for a rank correlation."""
AT_ONCE = 1 << 19
"""Numbers per step of resampling: few enough for the CPU cache, which is twice as fast as all at once."""


class Interval(NamedTuple):
    """Interval that contains a statistic in most resamples."""

    low: float
    high: float


def interval(resampled: Any, confidence: float = CONFIDENCE) -> Interval:
    """Return the central part of resampled values, ignoring NaN.

    >>> interval(np.arange(101.0), 0.5)
    Interval(low=25.0, high=75.0)
    """
    values = np.asarray(resampled, dtype=float)
    values = values[~np.isnan(values)]
    if not len(values):
        return Interval(np.nan, np.nan)
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def block_weights(blocks: Any, resamples: int, seed: int = 0, strata: Any = None) -> Floats:
    """Return counts of each of N models in each resample ``[resamples, N]`` of whole blocks.

    Args:
        blocks: block of each model ``[N]``, such as its setting.
        resamples: number of resamples.
        seed: seed of the resamples.
        strata: coarser division ``[N]``, such as the method; each keeps its number of blocks.

    >>> block_weights(["a", "a", "b"], resamples=3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 2.0]]
    """
    codes, _ = pd.factorize(np.asarray(blocks, dtype=object))
    number = codes.max() + 1
    stratum = np.zeros(number, dtype=int)
    if strata is not None:
        stratum[codes] = pd.factorize(np.asarray(strata, dtype=object))[0]
    rng = np.random.default_rng(seed)
    counts = np.empty((resamples, number))
    for value in np.unique(stratum):
        members = np.flatnonzero(stratum == value)
        counts[:, members] = rng.multinomial(len(members), np.full(len(members), 1 / len(members)), size=resamples)
    return counts[:, codes]


def weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Average ranks ``[B, N]`` of N values in B samples in which each occurs ``weights`` ``[B, N]`` times.

    >>> weighted_ranks(np.array([3.0, 1.0, 1.0]), np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 1.0]])).tolist()
    [[3.0, 1.5, 1.5], [2.5, 1.0, 1.0]]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    taken = weights[:, order]
    up_to = np.cumsum(taken, axis=1)
    if (ordered[1:] == ordered[:-1]).any():
        first, last = (np.searchsorted(ordered, ordered, side) for side in ("left", "right"))
        up_to = np.concatenate([np.zeros((len(weights), 1)), up_to], axis=1)
        average = (up_to[:, first] + up_to[:, last] + 1) / 2
    else:  # only copies of one value are tied
        average = up_to - (taken - 1) / 2
    ranks = np.empty_like(average)
    ranks[:, order] = average
    return ranks


def bootstrap_spearman(rows: Floats, columns: Floats, weights: Floats) -> Floats:
    """Spearman's ρ of all pairs of ``rows`` ``[N, R]`` and ``columns`` ``[N, C]`` in B resamples: ``[B, R, C]``.

    Values must not be NaN. ρ is NaN in resamples where a side is constant.
    """
    count = rows.shape[1] + columns.shape[1]
    step = max(1, AT_ONCE // (len(rows) * count))
    result = np.empty((len(weights), rows.shape[1], columns.shape[1]))
    for start in range(0, len(weights), step):
        chunk = weights[start : start + step]
        root, middle = np.sqrt(chunk), (chunk.sum(1, keepdims=True) + 1) / 2
        sides = []
        for side in (rows,) if rows is columns else (rows, columns):
            ranks = np.stack([(weighted_ranks(v, chunk) - middle) * root for v in side.T], axis=1)
            norm = np.sqrt((ranks**2).sum(2, keepdims=True))
            norm[norm < 1e-9] = np.nan
            sides.append(ranks / norm)
        result[start : start + step] = sides[0] @ sides[-1].transpose(0, 2, 1)
    return np.clip(result, -1, 1)


def _complete_parts(rows: Floats, columns: Floats) -> Iterator[tuple[NDArray[np.bool_], list[int], list[int]]]:
    """Yield models without NaN for some rows and columns, with these rows and columns."""
    patterns: list[dict[bytes, list[int]]] = []
    for side in (rows, columns):
        found: dict[bytes, list[int]] = {}
        for index, present in enumerate(~np.isnan(side.T)):
            found.setdefault(present.tobytes(), []).append(index)
        patterns.append(found)
    for row_pattern, row_index in patterns[0].items():
        for column_pattern, column_index in patterns[1].items():
            both = np.frombuffer(row_pattern, bool) & np.frombuffer(column_pattern, bool)
            yield both, row_index, column_index


def rank_correlations(
    table: pd.DataFrame,
    rows: Sequence[str],
    columns: Sequence[str],
    blocks: Any = None,
    resamples: int = 500,
    seed: int = 0,
) -> pd.DataFrame:
    """Spearman's ρ of every row with every column over the models that have both, with bootstrap intervals.

    Args:
        table: table with one row for each model.
        rows: columns of the table for one side of the correlations.
        columns: columns for the other side.
        blocks: setting of each model, resampled as a whole; ``None`` resamples models.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.

    Returns:
        ``row, column, rho, low, high, n, bound``; ``n`` is the number of models with both, ``bound`` the critical |ρ|
        at 5 %, and ρ is NaN where a side is constant or fewer than four models have both.

    >>> table = pd.DataFrame({"mig": [0.1, 0.2, 0.3, 0.4, 0.5], "dci": [0.2, 0.1, 0.4, 0.3, 0.6]})
    >>> rank_correlations(table, ["mig"], ["dci"]).rho.item()
    0.8
    """
    left, right = (table[list(names)].to_numpy(dtype=float) for names in (rows, columns))
    labels = np.arange(len(table)) if blocks is None else np.asarray(blocks, dtype=object)
    found: dict[tuple[int, int], dict[str, float]] = {}
    for present, row_index, column_index in _complete_parts(left, right):
        n = int(present.sum())
        a = left[present][:, row_index]
        same = list(rows) == list(columns) and row_index == column_index
        b = a if same else right[present][:, column_index]
        if n < FEWEST:
            rho, resampled = np.full((len(row_index), len(column_index)), np.nan), np.full((1, 1, 1), np.nan)
            resampled = np.broadcast_to(resampled, (1, *rho.shape))
        else:
            rho = bootstrap_spearman(a, b, np.ones((1, n)))[0]
            resampled = bootstrap_spearman(a, b, block_weights(labels[present], resamples, seed))
        for i, row in enumerate(row_index):
            for j, column in enumerate(column_index):
                low, high = interval(resampled[:, i, j]) if not np.isnan(rho[i, j]) else (np.nan, np.nan)
                found[row, column] = {"rho": float(rho[i, j]), "low": low, "high": high, "n": n}
    lines = [
        {"row": row, "column": column, **found[i, j], "bound": spearman_bound(int(found[i, j]["n"]))}
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]
    return pd.DataFrame(lines, columns=["row", "column", "rho", "low", "high", "n", "bound"])


def spearman_bound(n: int, level: float = 0.05) -> float:
    """Value that |ρ| of n independent pairs exceeds with probability ``level``, by Student's t.

    >>> [round(spearman_bound(n), 2) for n in (12, 36, 72, 216)]
    [0.58, 0.33, 0.23, 0.13]
    """
    if n < FEWEST:
        return float("nan")
    t = float(stats.t.isf(level / 2, n - 2))
    return t / float(np.sqrt(n - 2 + t**2))


def spearman(rows: Any, columns: Any) -> Floats:
    """Spearman's ρ of all pairs of ``rows`` ``[N, R]`` and ``columns`` ``[N, C]`` over the models that have both.

    NaN if a side is constant or fewer than four models have both.

    >>> spearman([[1], [2], [3], [4]], [[1, 4], [2, 3], [4, 2], [3, 1]]).round(3).tolist()
    [[0.8, -1.0]]
    """
    left, right = (np.asarray(side, dtype=float) for side in (rows, columns))
    rho = np.full((left.shape[1], right.shape[1]), np.nan)
    for present, i, j in _complete_parts(left, right):
        n = int(present.sum())
        if n >= FEWEST:
            rho[np.ix_(i, j)] = bootstrap_spearman(left[present][:, i], right[present][:, j], np.ones((1, n)))[0]
    return rho


def within_groups(rows: Any, columns: Any, groups: Any) -> Floats:
    """Mean of Spearman's ρ inside each group, weighted by its size ``[R, C]``; groups with NaN are left out.

    >>> x, y = [[1], [2], [3], [4], [11], [12], [13], [14]], [[4], [3], [2], [1], [14], [13], [12], [11]]
    >>> within_groups(x, y, list("aaaabbbb")).round(6).tolist()
    [[-1.0]]
    """
    left, right = (np.asarray(side, dtype=float) for side in (rows, columns))
    codes, names = pd.factorize(np.asarray(groups, dtype=object))
    total, weight = (np.zeros((left.shape[1], right.shape[1])) for _ in range(2))
    for group in range(len(names)):
        members = codes == group
        rho = spearman(left[members], right[members])
        total += np.where(np.isnan(rho), 0, rho * members.sum())
        weight += np.where(np.isnan(rho), 0, members.sum())
    return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)


class VarianceExplained(NamedTuple):
    """Share of the variance of scores that lies between groups of models, for each column ``[M]``."""

    r2: Floats
    adjusted: Floats
    null: Floats
    """Mean R² for randomly permuted scores."""
    p: Floats
    """Share of permutations with at least this R²."""


def variance_explained(scores: Any, groups: Any, permutations: int = 500, seed: int = 0) -> VarianceExplained:
    """R² of ordinary least squares on one dummy per group: between-group over total sum of squares.

    Pure noise gives (G-1)/(N-1) for N models in G groups, which is large for few seeds; the adjusted 1 -
    (1-R²)(N-1)/(N-G) corrects for this. It is NaN if every group has a single model; both are NaN if scores do not
    vary.

    Args:
        scores: scores ``[N]`` or ``[N, M]`` without NaN.
        groups: group of each model ``[N]``.
        permutations: number of permutations for the null distribution.
        seed: seed of the permutations.

    >>> result = variance_explained([1.0, 2.0, 5.0, 6.0], ["a", "a", "b", "b"])
    >>> round(float(result.r2[0]), 4), round(float(result.adjusted[0]), 4)
    (0.9412, 0.9118)
    """
    values = np.asarray(scores, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    codes, names = pd.factorize(np.asarray(groups, dtype=object))
    n, number = len(values), len(names)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(number))
    sizes = np.bincount(codes, minlength=number)[:, None]
    centred = values - values.mean(0)
    total = (centred**2).sum(0)
    total = np.where(total > 1e-24 * np.maximum(1, (values**2).sum(0)), total, np.nan)

    def between(arranged: Floats) -> Floats:
        sums: Floats = np.add.reduceat(arranged[order], starts, axis=0)
        return (sums**2 / sizes).sum(0) / total

    r2 = between(centred)
    rng = np.random.default_rng(seed)
    dealt = np.stack([between(centred[rng.permutation(n)]) for _ in range(permutations)])
    adjusted = 1 - (1 - r2) * (n - 1) / (n - number) if n > number else np.full_like(r2, np.nan)
    # the observed order counts as one permutation
    p = (1 + (dealt >= r2 - 1e-12).sum(0)) / (1 + permutations)
    return VarianceExplained(r2, adjusted, dealt.mean(0), np.where(np.isnan(r2), np.nan, p))


def bootstrap_variance_explained(scores: Any, groups: Any, weights: Floats) -> Floats:
    """Adjusted R² ``[B]`` in resamples that take each model ``weights`` ``[B, N]`` times, whole settings at a time.

    A model that occurs twice counts twice in the sums of squares, but settings drawn twice remain one group.
    """
    values = np.asarray(scores, dtype=float)
    codes, names = pd.factorize(np.asarray(groups, dtype=object))
    member = np.zeros((len(values), len(names)))
    member[np.arange(len(values)), codes] = 1
    n = weights.sum(1)
    mean = weights @ values / n
    total = weights @ values**2 - n * mean**2
    size, sums = weights @ member, (weights * values) @ member
    between = np.divide(sums**2, size, out=np.zeros_like(sums), where=size > 0).sum(1) - n * mean**2
    distinct = ((weights > 0) @ member > 0).sum(1)
    models = (weights > 0).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = between / np.where(total > 1e-12, total, np.nan)
        result = 1 - (1 - r2) * (models - 1) / (models - distinct)
    return np.where(models > distinct, result, np.nan)


class SignCount(NamedTuple):
    """Number of values that have the sign of a claim."""

    agree: int
    total: int
    p: float
    """Probability of at least this many if signs were random; too small if the numbers are dependent."""


def sign_count(values: Any, expected: Any = 1) -> SignCount:
    """Test "all of these are positive" as a single claim; NaN is ignored, zero counts as disagreement.

    >>> sign_count([0.3, 0.2, -0.1, 0.4])
    SignCount(agree=3, total=4, p=0.3125)
    """
    array = np.asarray(values, dtype=float) * np.asarray(expected, dtype=float)
    array = array[~np.isnan(array)]
    agree = int((array > 0).sum())
    p = float(stats.binomtest(agree, len(array), 0.5, alternative="greater").pvalue) if len(array) else float("nan")
    return SignCount(agree, len(array), p)


def superiority(first: Any, second: Any) -> float:
    """P(a > b) + ½ P(a = b) for a random model of each side: the Mann-Whitney U as a share.

    >>> superiority([2, 3], [1, 2])
    0.875
    """
    a, b = (np.asarray(x, dtype=float) for x in (first, second))
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    if not len(a) or not len(b):
        return float("nan")
    return float(stats.mannwhitneyu(a, b).statistic / (len(a) * len(b)))


def bootstrap_superiority(values: Any, first: Any, weights: Floats) -> Floats:
    """:func:`superiority` of some models over the others in resamples ``[B]``.

    Each model is taken ``weights`` ``[B, N]`` times.

    >>> bootstrap_superiority([2, 3, 1, 2], [True, True, False, False], np.ones((1, 4))).tolist()
    [0.875]
    """
    array, mask = np.asarray(values, dtype=float), np.asarray(first, dtype=bool)
    a, b = array[mask][:, None], array[~mask]
    wins = (a > b) + 0.5 * (a == b)
    left, right = weights[:, mask], weights[:, ~mask]
    with np.errstate(invalid="ignore"):
        return np.asarray(((left @ wins) * right).sum(1) / (left.sum(1) * right.sum(1)))


def discordant_share(x: Any, y: Any) -> tuple[float, Floats]:
    """Share of pairs of models in which the one with more ``x`` has less ``y``; ties count half.

    Without ties it is (1 - τ)/2 with Kendall's τ.

    Returns:
        The share, and the contribution of each model ``[N]``, whose mean is the share.

    >>> discordant_share([1, 2, 3], [3, 1, 2])[0].__round__(4)
    0.6667
    """
    a, b = (np.asarray(values, dtype=float) for values in (x, y))
    if len(a) < 2:
        return float("nan"), np.full(len(a), np.nan)
    part = np.empty(len(a))
    step = max(1, AT_ONCE // len(a))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        # infinite values can be compared, but not subtracted
        direction = (a[rows, None] > a).astype(np.int8) - (a[rows, None] < a)
        direction *= (b[rows, None] > b).astype(np.int8) - (b[rows, None] < b)
        part[rows] = (len(a) - 1 - direction.sum(1)) / (2 * (len(a) - 1))
    return float(part.mean()), part


def bootstrap_share(part: Floats, weights: Floats) -> Floats:
    """Resampled shares of pairs ``[B]``, from each model's contribution, to first order of the U-statistic."""
    mean = part.mean()
    return np.clip(mean + 2 * ((weights @ part) / weights.sum(1) - mean), 0, 1)
