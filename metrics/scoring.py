"""``score``: scores of given codes and factors, in one call."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from unknot.arguments import whole
from unknot.labels import BINS, MISSING, Binning, Column, Kind, columns_of, read_column
from unknot.metrics.draws import GivenDraws
from unknot.metrics.functional.checks import Floats, Ints, _as_numpy, as_codes, check_signs
from unknot.metrics.functional.trees import Backend
from unknot.metrics.scores import Scores
from unknot.metrics.selection import collected, compute, possible, select

NUM_TRAIN, NUM_TEST = 10_000, 5_000


def score(
    codes: Any,
    factors: Any,
    metrics: str | Iterable[str] = "default",
    names: Sequence[str] | None = None,
    kinds: Mapping[str, Kind] | Sequence[Kind | None] | None = None,
    test: tuple[Any, Any] | None = None,
    num_train: int = NUM_TRAIN,
    num_test: int = NUM_TEST,
    bins: int = BINS,
    binning: Binning = "uniform",
    seed: int = 0,
    repeats: int = 1,
    backend: Backend = "unknot",
) -> Scores:
    """Score latent codes of any model, from any framework, given the factors of variation.

    Scores are fitted on 10,000 rows and tested on 5,000 others, as in the thesis; with fewer rows, two thirds are used
    for fitting and one third for testing. The protocol of the result states both numbers.

    Args:
        codes: representation ``[N, D]``: NumPy, torch, JAX, pandas or lists.
        factors: labels ``[N, F]`` or ``[N]``, a data frame, or a dictionary of columns. Integers, integral floats,
            booleans, strings and categories are classes. NaN, None and -1 are missing: each metric leaves such a cell
            out for that factor, or the whole row if it needs all factors. Fractions with more than ``bins`` different
            values are continuous: metrics of numbers use them, for others they are cut into bins.
        metrics: names of scores in ``METRICS`` or of groups, as for :func:`unknot.metrics.evaluate`. Groups skip scores
            that need a model; if a score that is named cannot be computed, ``.reasons`` says why.
        names: names of the factors.
        kinds: kind of each factor, or of some by name: ``"categorical"``, ``"ordered"``, ``"circular"`` or
            ``"continuous"``. By default inferred from the labels.
        test: further codes and factors to test on; all of ``codes`` are then used for fitting, in the order given.
        num_train: maximum number of rows to fit or score on.
        num_test: maximum number of rows to test on.
        bins: number of bins of continuous factors.
        binning: ``"uniform"`` for bins of equal width, ``"quantile"`` for bins of about equally many rows.
        seed: seed of the split.
        repeats: number of splits, with seeds ``seed``, ``seed + 1``, ...; a score is then the mean over them.
        backend: implementation of boosted trees: ``"unknot"``, ``"sklearn"`` or ``"hist"``; see
            :func:`unknot.metrics.evaluate`.

    >>> rng = np.random.default_rng(0)
    >>> factors = rng.integers(0, 5, size=(600, 2)).astype(float)
    >>> codes = factors + 0.1 * rng.normal(size=(600, 2))
    >>> scores = score(codes, factors, metrics=["mig", "sap"], names=["shape", "size"])
    >>> print(scores)
    MIG  0.9528
    SAP  0.4175
    >>> scores.protocol["num_train"], scores.protocol["kinds"]
    (400, {'shape': 'ordered', 'size': 'ordered'})
    """
    selected, reasons = possible(select(metrics), None, "there are no images to choose factors for", given=True)
    repeats, seed = whole("repeats", repeats), whole("seed", seed, least=0)
    num_train, num_test = whole("num_train", num_train), whole("num_test", num_test)
    train = as_codes(codes)
    parts = [train] if test is None else [train, as_codes(test[0])]
    if len({part.shape[1] for part in parts}) > 1:
        raise ValueError(f"codes to test on must have {train.shape[1]} columns, got {parts[1].shape[1]}.")
    known = [factors] if test is None else [factors, test[1]]
    columns, names = read_factors(known, [len(part) for part in parts], names, kinds, bins, binning)
    classes = np.stack([column.classes for column in columns], axis=1)
    check_signs(classes, classes == MISSING)
    numbers = np.stack([_numbers(column) for column in columns], axis=1)
    everything = np.concatenate(parts)
    drawn = []
    with tqdm(total=repeats * len(selected), desc="scoring", disable=None, leave=False) as bar:
        for repeat in range(repeats):
            if test is None:
                fit, held_out = split_rows(len(train), num_train, num_test, seed + repeat)
            else:
                fit, held_out = np.arange(len(train)), np.arange(len(train), len(everything))
            draws = GivenDraws(
                (everything[fit], classes[fit]),
                (everything[held_out], classes[held_out]),
                backend,
                seed + repeat,
                names,
                (numbers[fit], numbers[held_out]),
            )
            drawn.append(compute(selected, draws, reasons, bar))
    protocol = {
        "dataset": "given codes",
        "num_train": len(fit),
        "num_test": len(held_out),
        "split": "as given" if test is not None else "at random",
        "seed": seed,
        "repeats": repeats,
        "backend": backend,
        "unknot": version("unknot"),
        "kinds": {name: column.kind for name, column in zip(names, columns, strict=True)},
    }
    if any(column.kind == "continuous" for column in columns):
        protocol |= {"bins": bins, "binning": binning}
    if (classes[fit] == MISSING).any() or (classes[held_out] == MISSING).any():
        protocol["labelled"] = {
            name: [int((classes[rows, f] != MISSING).sum()) for rows in (fit, held_out)] for f, name in enumerate(names)
        }
        protocol["labelled_for_all"] = [int((classes[rows] != MISSING).all(1).sum()) for rows in (fit, held_out)]
    return collected(drawn, protocol, reasons)


def split_rows(n: int, num_train: int, num_test: int, seed: int) -> tuple[Ints, Ints]:
    """Split ``n`` rows into rows to fit on and rows to test on, in the ratio of the requested numbers if there are too
    few.

    >>> [len(rows) for rows in split_rows(300, 10_000, 5_000, seed=0)]
    [200, 100]
    """
    if n < 2:
        raise ValueError(f"score needs rows to fit on and rows to test on, got {n}.")
    if n < num_train + num_test:
        num_test = min(max(1, round(n * num_test / (num_train + num_test))), n - 1)
        num_train = n - num_test
    order = np.random.default_rng(seed).permutation(n)[: num_train + num_test]
    return order[:num_train], order[num_train:]


def read_factors(
    parts: Sequence[Any],
    lengths: Sequence[int],
    names: Sequence[str] | None,
    kinds: Mapping[str, Kind] | Sequence[Kind | None] | None,
    bins: int = BINS,
    binning: Binning = "uniform",
) -> tuple[list[Column], list[str]]:
    """Return columns of labels of all parts concatenated, and the names of the factors."""
    read = [_columns(part) for part in parts]
    width, header = len(read[0][0]), read[0][1]
    for (columns, _), n in zip(read, lengths, strict=True):
        if len(columns) != width:
            raise ValueError(f"factors to test on must have {width} columns, got {len(columns)}.")
        if len(columns[0]) != n:
            raise ValueError(f"codes and factors must have as many rows, got {n} and {len(columns[0])}.")
    names = list(names or header or (f"factor_{place}" for place in range(width)))
    if len(names) != width or len({*names}) != width:
        raise ValueError(f"names must be {width} different names, one for each factor, got {names}.")
    if kinds is None or isinstance(kinds, Mapping):
        kinds = kinds or {}
        if unknown := sorted(kinds.keys() - {*names}):
            raise ValueError(f"kinds: there is no factor {unknown[0]!r}; there are {', '.join(names)}.")
        kinds = [kinds.get(name) for name in names]
    if len(kinds) != width:
        raise ValueError(f"kinds must be {width}, one for each factor, got {len(kinds)}.")
    stacked = read[0][0] if len(read) == 1 else [_below(each) for each in zip(*(part for part, _ in read), strict=True)]
    columns = [
        read_column(column, kind, bins, binning, name) for column, kind, name in zip(stacked, kinds, names, strict=True)
    ]
    if not any(column.known.any() for column in columns):
        raise ValueError("factors hold no label: all are -1, NaN or None, which stand for missing ones.")
    return columns, names


def _columns(factors: Any) -> tuple[list[Any], list[str] | None]:
    if isinstance(factors, Mapping):
        return list(factors.values()), [str(name) for name in factors]
    if hasattr(factors, "iloc") and not hasattr(factors, "columns"):  # a pandas series
        return [factors], None if factors.name is None else [str(factors.name)]
    if not hasattr(factors, "iloc") and (array := _as_numpy(factors)).ndim == 1 and len(array):
        return [factors if array.dtype.kind in "OUS" else array], None
    return columns_of(factors)


def _below(columns: Sequence[Any]) -> Any:
    if all(hasattr(column, "iloc") for column in columns):
        import pandas as pd

        return pd.concat(list(columns), ignore_index=True)
    return np.concatenate([np.asarray(column) for column in columns])


def _numbers(column: Column) -> Floats:
    if column.numbers is not None:
        return column.numbers
    return np.where(column.known, column.classes, np.nan).astype(np.float64)
