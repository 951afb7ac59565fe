"""Population of trained models as a table: one row for each model, with its settings and scores."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unknot.metrics.registry import about, is_described
from unknot.studies.study import METHODS

METRICS = ("beta_vae", "factor_vae", "mig", "dci", "modularity", "sap", "irs")
"""The disentanglement metrics of the studies, in the order of their figures."""
UNSUPERVISED_SCORES = ("elbo_reconstruction", "elbo_kl", "elbo", "total_correlation_sampled")
DOWNSTREAM = (
    *(f"downstream_{kind}_{size}" for kind in ("lr", "gbt") for size in (10, 100, 1000, 10_000)),
    *(f"downstream_{kind}_efficiency" for kind in ("lr", "gbt")),
)
ACCURACY = "downstream_gbt_10000"
ADAPTIVE, GROUPED = ("AdaGVAE", "AdaMLVAE"), ("GVAE", "MLVAE")
SEMI_SUPERVISED = ("S2BetaVAE", "S2BetaTCVAE", "S2FactorVAE", "S2DIPVAEI")
NOT_UNSUPERVISED = (*ADAPTIVE, *GROUPED, *SEMI_SUPERVISED, "SupervisedVAE")
FAILED = ("failed", "running", "interrupted", "waiting")
DESCRIPTION = (
    *("dataset", "method", "config", "seed", "strength", "setting", "status", "job", "name", "steps"),
    *("core_seconds", "commit"),
)
VALIDATION = re.compile(
    r"(?P<score>\w+)@(?P<labels>\d+)-(?P<kind>[a-z]+)-(?P<draw>\d+)|"
    r"validation/(?P<score2>\w+)/(?P<labels2>\d+)/(?P<kind2>[a-z]+)(?:/(?P<draw2>\d+))?"
)
REPEATED = re.compile(r"(?P<score>\w+?)[@_](?P<samples>\d*)(?P<run>(?:[-_]?again\w*)?)")
ALIASES = {"val/weak_reconstruction": "weak_reconstruction", "val/supervised": "supervised"}
"""Losses on held-out batches that take the place of a score."""


class Missing(ValueError):
    """The population does not allow an analysis; the message says what is missing."""


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table of results: ``.csv``, ``.parquet`` or ``.json`` (a list of rows, or one row per line)."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such table of results.")
    try:
        if file.suffix == ".parquet":
            return pd.read_parquet(file)
        if file.suffix in (".json", ".jsonl"):
            return pd.read_json(file, lines=file.suffix == ".jsonl")
        if file.suffix == ".csv":
            return pd.read_csv(file, low_memory=False)
    except ImportError as error:
        raise ValueError(f"{file}: {error}. A .csv file needs no further packages.") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{file}: not a table of results ({' '.join(str(error).split())}).") from None
    raise ValueError(f"{file}: a table of results is a .csv, .parquet, .json or .jsonl file.")


class Population:
    """Models of a table that have scores, with the operations of the analyses.

    Args:
        table: table with columns ``dataset``, ``method`` and ``seed``, the swept ``strength`` or the swept options
            (``model.beta``, ...), and one for each score. Rows whose ``status`` is not ``done`` are left out.

    >>> table = pd.DataFrame({"dataset": "dsprites", "method": "BetaVAE", "model.beta": [1, 4], "seed": 0, "mig": 0.1})
    >>> Population(table).frame.setting.tolist()
    ['BetaVAE model.beta=1', 'BetaVAE model.beta=4']
    """

    def __init__(self, table: pd.DataFrame) -> None:
        if not isinstance(table, pd.DataFrame):
            raise ValueError(f"An analysis needs a pandas.DataFrame of results, got {type(table).__name__}.")
        absent = [name for name in ("dataset", "method") if name not in table]
        if absent:
            raise ValueError(
                f"A table of results needs columns dataset and method; {' and '.join(absent)} is not among its "
                f"{len(table.columns)} columns ({', '.join(map(str, table.columns[:8]))}, ...)."
            )
        self.notes: list[str] = []
        frame = table.reset_index(drop=True).copy()
        frame.columns = frame.columns.map(str)
        frame = frame.rename(columns={old: new for old, new in ALIASES.items() if old in frame and new not in frame})
        if "seed" not in frame:
            frame["seed"] = 0
        scores = [name for name in frame if _is_score(name)]
        # anything that is not a number is missing
        numbers = frame[scores].apply(pd.to_numeric, errors="coerce")
        frame = frame.drop(columns=scores).join(numbers)
        usable = numbers.notna().any(axis=1)
        if "status" in frame:
            usable &= ~frame["status"].isin(FAILED)
        if not usable.all():
            states = frame.loc[~usable, "status"].value_counts() if "status" in frame else pd.Series(dtype=int)
            listed = ", ".join(f"{count} {state}" for state, count in states.items())
            listed = f" ({listed})" if listed else ""
            self.notes.append(f"{int((~usable).sum())} of {len(frame)} rows are of models without scores{listed}.")
        frame = frame[usable].reset_index(drop=True)
        frame["setting"] = _settings(frame)
        frame["strength"] = _strengths(frame)
        twins = _twins(frame)
        if twins.any():
            self.notes.append(
                f"{int(twins.sum())} models are left out: a β-TCVAE at β = 1 is the same training as the β-VAE at "
                "β = 1."
            )
            frame = frame[~twins].reset_index(drop=True)
        self.frame: pd.DataFrame = frame

    def __len__(self) -> int:
        return len(self.frame)

    def only(self, rows: Any) -> "Population":
        """Return the models of a mask."""
        part = object.__new__(Population)
        part.frame, part.notes = self.frame[rows].reset_index(drop=True), list(self.notes)
        return part

    def methods(self, *names: str) -> "Population":
        """Return the models of some methods."""
        return self.only(self.frame.method.isin(names))

    def by_pairs(self) -> "Population":
        """Return the same models, with each kind of pairs (and number of steps, if it differs) as a separate data set.

        A loss on pairs is comparable only on equal pairs: pairs with fewer shared factors have a higher loss for any
        model.

        >>> table = pd.DataFrame({"dataset": "d", "method": "AdaGVAE", "model.beta": 1, "data.k": [1, "rnd"]})
        >>> Population(table.assign(mig=0.1)).by_pairs().frame[["dataset", "setting"]].values.tolist()
        [['d, k = 1', 'AdaGVAE model.beta=1'], ['d, k = rnd', 'AdaGVAE model.beta=1']]
        """
        part = self.only(slice(None))
        frame = part.frame
        frame["data set"] = frame.dataset
        kinds = kinds_of_pairs(frame)
        known = ~kinds.isin(("nan", "none", "?"))
        if known.any():
            names = frame.dataset.astype(str) + ", k = " + kinds
            frame["setting"] = _settings(frame, pairs=False)
            if "steps" in frame and frame[known].groupby("dataset").steps.nunique().max() > 1:
                names = names + ", " + frame.steps.map("{:,.0f} steps".format)
            frame["dataset"] = names.where(known, frame.dataset)
        return part

    @cached_property
    def unsupervised(self) -> "Population":
        """Models trained without labels and pairs."""
        return self.only(~self.frame.method.isin(NOT_UNSUPERVISED))

    @property
    def datasets(self) -> list[str]:
        """Names of data sets, in the order of the table."""
        return list(dict.fromkeys(self.frame.dataset))

    def parts(self) -> Iterable[tuple[str, pd.DataFrame]]:
        """Return the models of each data set."""
        return ((str(name), part.reset_index(drop=True)) for name, part in self.frame.groupby("dataset", sort=False))

    def has(self, *names: str) -> list[str]:
        """Return those of the columns in which some model has a number."""
        return [name for name in names if name in self.frame and self.frame[name].notna().any()]

    def metrics(self, least: int = 1) -> list[str]:
        """Return the disentanglement metrics of the table."""
        found = self.has(*METRICS)
        if len(found) < least:
            raise Missing(
                f"Needs at least {least} of the metrics {', '.join(METRICS)}; the table has "
                f"{', '.join(found) or 'none'}. Score the models with more metrics."
            )
        return found

    def need(self, *names: str, why: str = "") -> None:
        """Raise :class:`Missing` unless all columns exist."""
        absent = [name for name in names if not self.has(name)]
        if absent:
            raise Missing(f"Needs the column{'s' * (len(absent) > 1)} {', '.join(absent)}{f' ({why})' * bool(why)}.")

    def need_models(self, least: int, of: str = "models with scores") -> None:
        """Raise :class:`Missing` if there are too few models."""
        if len(self) < least:
            raise Missing(f"Needs at least {least} {of}; the table has {len(self)}.")

    def gaps(self, columns: Sequence[str]) -> list[str]:
        """Describe the models that lack some of the columns, so that exclusions are stated."""
        absent = self.frame[list(columns)].isna().sum()
        return [f"{count} of {len(self)} models have no {name}." for name, count in absent.items() if count]

    def validation(self) -> pd.DataFrame:
        """Return validation scores on few labels: ``column, score, labels, kind, draw``."""
        return _parsed(self, VALIDATION, ("score", "labels", "kind", "draw"))

    def repeated(self) -> pd.DataFrame:
        """Return scores of other draws and sample sizes: ``column, score, samples, run`` (10,000 for plain scores)."""
        found = _parsed(self, REPEATED, ("score", "samples", "run"))
        found = found[found.score.isin(METRICS)].replace({"samples": {"": 10_000}})
        plain = [{"column": name, "score": name, "samples": 10_000, "run": ""} for name in self.has(*METRICS)]
        return pd.concat([pd.DataFrame(plain, columns=found.columns), found], ignore_index=True)


def label(name: str) -> str:
    """Return the title of a score, or the name of a method; other names are unchanged."""
    return METHODS.get(name) or (about(name).title if is_described(name) else name)


def by_figure(methods: Iterable[str]) -> list[str]:
    """Return methods in the order of the thesis' figures, unknown ones last."""
    order = list(METHODS)
    return sorted(set(methods), key=lambda name: (order.index(name) if name in order else len(order), name))


def _is_score(column: str) -> bool:
    return column not in DESCRIPTION and not column.startswith(
        ("model.", "data.", "trainer.", "optimizer.", "training.")
    )


def _options(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame if name.startswith("model.") and frame[name].notna().any()]


def kinds_of_pairs(frame: pd.DataFrame) -> pd.Series:
    """Return the number of factors that change in a pair, as text: ``"1"``, ``"rnd"``; ``"?"`` if unknown."""
    if "data.k" not in frame:
        return pd.Series("?", frame.index)
    return frame["data.k"].map(
        lambda k: str(int(k)) if isinstance(k, (int, float)) and k == k else str(k).strip().lower()
    )


def _twins(frame: pd.DataFrame) -> pd.Series:
    """Return the models that are the same training as another one of the table, under another method's name."""
    tc, plain = (frame.setting.astype(str) == f"{method} model.beta=1" for method in ("BetaTCVAE", "BetaVAE"))
    keys = [name for name in ("dataset", "seed", "steps") if name in frame]
    there = set(frame.loc[plain, keys].itertuples(index=False, name=None))
    same = [key in there for key in frame[keys].itertuples(index=False, name=None)]
    return tc & pd.Series(same, frame.index, dtype=bool)


def _settings(frame: pd.DataFrame, pairs: bool = True) -> pd.Series:
    """Return the setting of each model as text: the method and all swept options, including the kind of pairs."""
    options = _options(frame) or (["strength"] if "strength" in frame else [])
    options += [name for name in ("data.k",) if name in frame and pairs]
    described = frame["method"].astype(str)
    for option in options:
        values = frame[option].map(lambda value: f"{value:g}" if isinstance(value, (int, float)) else str(value))
        values = values.astype(str)  # without models, the column has no type
        described = described + np.where(frame[option].notna(), f" {option}=" + values, "")
    return described


def _strengths(frame: pd.DataFrame) -> pd.Series:
    """Return the swept number of each model: the column, or the first option that varies inside its method."""
    given = pd.to_numeric(frame["strength"], errors="coerce") if "strength" in frame else pd.Series(np.nan, frame.index)
    for _, part in frame[given.isna()].groupby("method"):
        for option in _options(part):
            if part[option].nunique() > 1 or len(_options(part)) == 1:
                rows = part.index
                given.loc[rows] = pd.to_numeric(part[option], errors="coerce")
                break
    return given


def _parsed(population: Population, pattern: re.Pattern[str], fields: Sequence[str]) -> pd.DataFrame:
    lines = []
    for column in population.frame:
        match = pattern.fullmatch(str(column))
        if match and population.has(str(column)):
            parts = match.groupdict()
            values = {name: parts[name] or parts.get(f"{name}2") or "" for name in fields}
            lines.append(
                {"column": column} | {k: int(v) if v.isdigit() and k != "run" else v for k, v in values.items()}
            )
    return pd.DataFrame(lines, columns=["column", *fields])
