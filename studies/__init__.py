"""Studies: many training runs from one file, on one machine, a cluster or Ray, and a table of their results.

The thesis' analyses of such a table are in :mod:`unknot.studies.analyses`, its theorems in
:mod:`unknot.studies.theory`.

    from unknot.studies import Study, results, run

    study = Study.from_file("dsprites32")       # bundled, or the path of a YAML file
    run(study, "runs/dsprites32")               # resumes where it stopped
    table = results("runs/dsprites32")          # a pandas DataFrame, also while jobs run
"""

from typing import TYPE_CHECKING

from unknot.lazy import lazily

if TYPE_CHECKING:
    from unknot.studies.bundled_tables import load_results
    from unknot.studies.jobs.executors import Executor, Local, Shard
    from unknot.studies.jobs.ray import Ray
    from unknot.studies.jobs.runner import Summary, run
    from unknot.studies.study import Job, Study
    from unknot.studies.table import results, write_table

# Reading a bundled table requires neither torch nor Lightning.
_HOMES = {
    "bundled_tables": ["load_results"],
    "jobs.executors": ["Executor", "Local", "Shard"],
    "jobs.ray": ["Ray"],
    "jobs.runner": ["Summary", "run"],
    "study": ["Job", "Study"],
    "table": ["results", "write_table"],
}
__getattr__ = lazily(__name__, {name: home for home, names in _HOMES.items() for name in names})

__all__ = [
    "Executor",
    "Job",
    "Local",
    "Ray",
    "Shard",
    "Study",
    "Summary",
    "load_results",
    "results",
    "run",
    "write_table",
]
