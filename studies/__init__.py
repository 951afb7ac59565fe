"""Studies: many trainings from one file, on one machine, on a cluster or on Ray, and the table of their results;
in :mod:`unknot.studies.analyses` and :mod:`unknot.studies.theory`, what the thesis makes of them.

    from unknot.studies import Study, results, run

    study = Study.from_file("dsprites32")       # shipped, or the path of a YAML file
    run(study, "runs/dsprites32")               # resumes where it was
    table = results("runs/dsprites32")          # a pandas DataFrame, also while jobs run
"""

from unknot.studies.executors import Executor, Local, Shard
from unknot.studies.on_ray import Ray
from unknot.studies.results import results, write_table
from unknot.studies.running import Summary, run
from unknot.studies.shipped import load_results
from unknot.studies.study import Job, Study

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
