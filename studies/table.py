"""Table of a study, computed from the files of its jobs, also while they run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unknot.files import replacing
from unknot.studies.plan import JobFolder, Plan, read_plan

if TYPE_CHECKING:
    import pandas as pd

TOOK = ("core_seconds", "commit")
"""Columns with the cost of a training, not its result."""
STATES = ("done", "failed", "running", "interrupted", "waiting")
"""States of jobs, from most to least advanced."""


def results(*sources: str | Path) -> "pd.DataFrame":
    """Return one row for each job of a study: its settings, state and scores.

    Columns are ``job``, ``dataset``, ``method``, ``config``, ``seed``, the varying options by name, ``strength`` (the
    swept value of the method), ``status`` and one for each score; those of a protocol with a label are called
    ``score@label``, and the losses on held-out batches ``val/...``. ``core_seconds`` is the processor time of the
    training without the scores, ``commit`` that of the code.

    Args:
        sources: folder of a study, or several folders and tables, such as the parts of a study that ran on two
            machines. A job that occurs in several of them has one row, from where it has progressed furthest, with the
            scores of all.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("Tables need pandas: pip install 'unknot[studies]'.") from None
    if not sources:
        raise ValueError("results() needs the folder of a study.")
    tables = [_table(Path(source)) for source in sources]
    if len(tables) == 1:
        return tables[0]
    table = pd.concat([table.dropna(axis=1, how="all") for table in tables], ignore_index=True)
    table = table.copy()  # at once: adding hundreds of columns one by one makes pandas warn about fragmentation
    furthest = table.iloc[table["status"].map(STATES.index).argsort(kind="stable")]
    merged = furthest.groupby("job", sort=False).first().loc[table["job"].unique()].reset_index()
    columns = dict.fromkeys(column for part in tables for column in part if column not in TOOK)
    return merged.reindex(columns=[*columns, *TOOK])


def _table(source: Path) -> "pd.DataFrame":
    """Return the table of a folder, or a stored table."""
    import pandas as pd

    if not source.is_file():
        return pd.DataFrame(rows(source, read_plan(source)))
    from unknot.studies.population import read_table

    table = read_table(source)
    if not {"job", "status"} <= {*table.columns}:
        raise ValueError(f"{source}: not a table of `unknot study table`, which has the columns job and status.")
    return table


def rows(folder: Path, plan: Plan) -> list[dict[str, Any]]:
    """Return the rows of the table, in the order of the plan."""
    found = []
    columns: dict[str, None] = dict.fromkeys(["job"])
    for job in plan.jobs:
        columns |= dict.fromkeys(job.settings)
    columns |= dict.fromkeys(["steps", "status"])
    scores: dict[str, None] = {}
    for job in plan.jobs:
        run = JobFolder(folder, job.name)
        row = {"job": job.name, **job.settings, "steps": job.steps, "status": run.state_of(plan.protocols)}
        values = _values(run, plan)
        scores |= dict.fromkeys(values)
        record = run.record()
        found.append(row | values | {name: record.get(name) for name in TOOK})
    order = [*columns, *scores, *TOOK]
    return [{column: row.get(column) for column in order} for row in found]


def _values(run: JobFolder, plan: Plan) -> dict[str, float]:
    """Return scores by column; for a damaged file of scores, none and a status that says so."""
    values: dict[str, float] = {}
    try:
        for protocol in plan.protocols:
            values |= {protocol.column(name): value for name, value in run.scores(protocol.draws).items()}
        return values | run.validation()
    except ValueError:
        return {}


def write_table(source: str | Path | Sequence[str | Path], path: str | Path | None = None) -> list[Path]:
    """Write the table of a study.

    Args:
        source: folder of the study, or several folders and tables to merge, as for :func:`results`.
        path: ``*.csv`` or ``*.parquet``; by default both are written, into the folder.
    """
    sources = [source] if isinstance(source, str | Path) else list(source)
    if not path and (len(sources) != 1 or Path(sources[0]).is_file()):
        raise ValueError("A table of several sources needs a file: add --out FILE (*.csv or *.parquet).")
    table = results(*sources)
    paths = [Path(path)] if path else [Path(sources[0], "table.csv"), Path(sources[0], "table.parquet")]
    for path in paths:
        with replacing(path) as beside:
            if path.suffix == ".parquet":
                table.astype(dict.fromkeys(mixed(table), str)).to_parquet(beside, index=False)
            else:
                table.to_csv(beside, index=False)
    return paths


def mixed(table: "pd.DataFrame") -> list[str]:
    """Return the columns with values of several types, such as k = 1 and "rnd"; Parquet needs one type per column."""
    return [
        name
        for name, column in table.items()
        if column.dtype == object and len({type(value) for value in column if value is not None}) > 1
    ]


def counts(folder: Path, plan: Plan) -> dict[str, list[str]]:
    """Return names of jobs by state; all states except ``done`` only if they occur."""
    by_state: dict[str, list[str]] = {state: [] for state in STATES}
    for job in plan.jobs:
        by_state[JobFolder(folder, job.name).state_of(plan.protocols)].append(job.name)
    return {state: names for state, names in by_state.items() if names or state == "done"}
