"""Bundled tables of results: one row for each trained model of a population.

tables/NAME.csv     the rows: settings, seed, scores, losses on held-out batches, processor time and commit
tables/NAME.json    how many models were planned, and how the scores were drawn
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unknot.files import replacing, write_json

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent / "tables"
DIGITS = "%.6g"


def names() -> list[str]:
    """Return the names of the bundled tables."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def about(name: str) -> dict[str, Any]:
    """Describe a bundled table: ``description``, ``models`` of ``planned``, ``failed``, ``core_hours``, ``scores``."""
    if name not in names():
        raise ValueError(f"There is no bundled table {name!r}; there are {', '.join(names()) or 'none'}.")
    facts: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return facts


def find(source: str | Path) -> Path:
    """Return the folder of a study, a table or, if neither exists, the bundled table of that name."""
    path = Path(source)
    if not path.exists() and len(path.parts) == 1 and not path.suffix:
        about(path.name)  # raises an error that lists them
        return FOLDER / f"{path.name}.csv"
    if not path.exists():
        raise FileNotFoundError(f"{path}: neither the folder of a study nor a table of results.")
    return path


def load_results(name: str) -> "pd.DataFrame":
    """Load a bundled table of results: a row for each model that was trained and scored.

    ``table.attrs`` contains the numbers of models (``planned``, ``models``, ``failed``), the core-hours of training
    (``core_hours``), and the sampling options of the scores for each column label (``scores``). Columns are those of
    :func:`~unknot.studies.results`.

    Args:
        name: name of the population, such as ``"dsprites32"``.

    >>> load_results("no such table")
    Traceback (most recent call last):
    ValueError: There is no bundled table 'no such table'; there are ...
    """
    from unknot.studies.population import read_table

    facts = about(name)
    table = read_table(FOLDER / f"{name}.csv")
    table.attrs = facts
    return table


def bundle_table(folder: str | Path | Sequence[str | Path], output: Path = FOLDER) -> Path:
    """Write the results of a study that are there by now as a bundled table.

    Unfinished models are left out and counted; failed models stay, without scores.

    Args:
        folder: folder of the study, or several folders with parts of it; the first determines name and description.
        output: folder of the tables.
    """
    from unknot.studies.plan import read_plan  # imports torch, which is not needed for listing tables
    from unknot.studies.table import results

    folders = [folder] if isinstance(folder, str | Path) else list(folder)
    plan = read_plan(Path(folders[0]))
    table = results(*folders)
    planned = len(table)
    table = table[table["status"].isin(["done", "failed"])].dropna(axis=1, how="all")
    if table.empty:
        raise ValueError(f"{folders[0]}: none of its {planned} models is done yet, so there is no table to write.")
    seconds = table["core_seconds"] if "core_seconds" in table else table["seed"] * float("nan")
    facts = {
        "description": plan.study.description,
        "planned": planned,
        "models": int((table["status"] == "done").sum()),
        "failed": int((table["status"] == "failed").sum()),
        "core_hours": round(float(seconds.sum()) / 3600, 2),
        "core_hours_known_of": int(seconds.notna().sum()),
        "scores": {protocol.label: protocol.draws for protocol in plan.protocols},
    }
    path = output / f"{plan.study.name}.csv"
    with replacing(path) as beside:
        table.to_csv(beside, index=False, float_format=DIGITS, lineterminator="\n")
    write_json(path.with_suffix(".json"), facts)
    return path
