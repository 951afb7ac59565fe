"""Tables of results for the page: a row for each trained model, with its settings and scores."""

import csv
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from unknot.hub.listing import Checkpoint
from unknot.metrics.scores import Scores

MAX_ROWS, MAX_COLUMNS, MAX_BYTES = 20_000, 200, 100 << 20
FACTS = {"dataset", "method", "model", "seed", "family"}
SETTINGS = {"config", "strength", "status", "steps", "job", "study", "core_seconds", "commit"}
"""Columns that are neither facts nor scores; those with a dot in their name, as in ``model.beta``, are settings too."""
SUFFIXES = (".csv", ".parquet")


def is_table(path: Path) -> bool:
    """Return whether a path is a table that the page supports."""
    return path.is_file() and path.suffix in SUFFIXES


def read_table(path: Path) -> list[Checkpoint]:
    """Read the rows of a CSV or Parquet file with the columns of ``unknot study table``.

    ``dataset``, ``method`` and ``seed`` are facts; ``config``, ``strength``, ``status`` and all names with a dot are
    settings; every other column of numbers is a score, and ``SCORE_std`` its spread.
    """
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES >> 20} MB; tables of results are smaller.")
    return [_checkpoint(path.stem, place, row) for place, row in enumerate(islice(_rows(path), MAX_ROWS))]


def read_bundled(name: str) -> list[Checkpoint]:
    """Return the rows of a bundled table."""
    from unknot.studies import bundled_tables

    if name not in bundled_tables.names():
        raise ValueError(f"There is no bundled table {name!r}.")
    return read_table(bundled_tables.FOLDER / f"{name}.csv")


def bundled_tables() -> list[str]:
    """Return the names of the bundled tables."""
    from unknot.studies import bundled_tables

    return bundled_tables.names()


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            try:
                yield from csv.DictReader(line.replace("\0", "") for line in file)
            except csv.Error as error:
                raise ValueError(f"{path} is not a table of results ({error}).") from None
        return
    try:
        from pyarrow import parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError(f"{path}: reading Parquet needs pyarrow; `pip install pyarrow`, or give a CSV file.") from None
    try:
        yield from parquet.read_table(path).slice(0, MAX_ROWS).to_pylist()
    except Exception as error:  # pyarrow raises many kinds of errors
        raise ValueError(f"{path} is not a Parquet file that can be read ({type(error).__name__}).") from None


def _checkpoint(table: str, place: int, row: dict[str, Any]) -> Checkpoint:
    cells = {str(key)[:100]: _value(value) for key, value in list(row.items())[:MAX_COLUMNS] if key is not None}
    numbers: dict[str, float] = {}
    settings: dict[str, Any] = {}
    for name, value in cells.items():
        if value is None or name in FACTS:
            continue
        if name in SETTINGS or "." in name or isinstance(value, str | bool):
            settings[name.removeprefix("model.")] = value
        else:
            numbers[name.replace("/", "_")] = value  # a slash marks details of a score, which are skipped
    seed = cells.get("seed")
    return Checkpoint(
        ref=f"{table} #{place + 1}",
        sources=("table",),
        model=_text(cells.get("method") or cells.get("model")),
        dataset=_text(cells.get("dataset")),
        family=_text(cells.get("family")),
        seed=int(seed) if isinstance(seed, int | float) and abs(seed) < 1 << 53 else None,
        scores=Scores.from_flat(numbers),
        arguments=settings,
        tags=(table,),
    )


def _value(value: Any) -> Any:
    """Return a number, a string or None."""
    if isinstance(value, bool) or value is None:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)[:200] or None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 1 << 53 and "." not in str(value) else number


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:200]
