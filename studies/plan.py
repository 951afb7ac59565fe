"""Folder of a study: ``plan.json``, and a run folder for each job in ``jobs/3f/3f9a.../``."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from unknot.files import read_json, write_json
from unknot.studies.protocols import Protocol
from unknot.studies.study import METHODS, Job, Study
from unknot.training import RunFolder

PLAN = "plan.json"
SYMBOLS = {"beta": "β", "gamma": "γ", "gamma_sup": "γ_sup", "c_max": "C", "lambda_od": "λ_od", "lambda_d": "λ_d"}


class JobFolder(RunFolder):
    """Run folder of a job.

    Args:
        study: folder of the study.
        name: name of the job.
    """

    def __init__(self, study: Path, name: str) -> None:
        super().__init__(study / "jobs" / name[:2] / name)

    def state_of(self, protocols: Iterable[Protocol]) -> str:
        """Return the state of the job, which is done when it has all scores."""
        return self.state([(protocol.draws, protocol.metrics) for protocol in protocols])


@dataclass(frozen=True)
class Plan:
    """Jobs of a folder and their protocols."""

    study: Study
    jobs: list[Job]
    bytes_per_job: int = 0
    """Estimated disk usage of a job in bytes."""

    @cached_property
    def protocols(self) -> list[Protocol]:
        """Protocols of the scores."""
        return self.study.protocols


def write_plan(folder: Path, plan: Plan) -> None:
    """Write the plan of a folder."""
    study = plan.study
    document = {
        "study": {"name": study.name, "folder": str(study.folder), "content": study.content},
        "bytes_per_job": plan.bytes_per_job,
        "jobs": [asdict(job) for job in plan.jobs],
    }
    write_json(folder / PLAN, document, indent=None, durable=True)


def read_plan(folder: Path, imported: Iterable[str] = ()) -> Plan:
    """Read the plan of a folder.

    Args:
        folder: folder of a study.
        imported: modules whose classes its jobs may name, in addition to unknot's; a folder itself cannot import code.
    """
    document = read_json(folder / PLAN)
    if document is None:
        raise FileNotFoundError(
            f"{folder}: not the folder of a study (it has no plan.json). Start a study with: unknot study run NAME."
        )
    said = document["study"]
    study = Study(said["name"], said["content"], Path(said["folder"]), tuple(imported))
    return Plan(study, [Job(**job) for job in document["jobs"]], document["bytes_per_job"])


def job_settings(run: Path) -> dict[str, Any] | None:
    """Return ``name``, ``job`` and ``settings`` of a job by its folder; None for anything else."""
    run = run.absolute()
    if len(run.parts) < 4 or run.parents[1].name != "jobs":
        return None
    try:
        document = read_json(run.parents[2] / PLAN)
        jobs = {job["name"]: job["settings"] for job in document["jobs"]}
        return {"name": document["study"]["name"], "job": run.name, "settings": jobs[run.name]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def title_of(settings: Mapping[str, Any]) -> str:
    """Return the display name of a job.

    >>> title_of({"method": "BetaTCVAE", "config": "x", "seed": 1, "model.beta": 2, "strength": 2})
    'β-TCVAE, β = 2, seed 1'
    """
    options = {key.rpartition(".")[2]: value for key, value in settings.items() if "." in key}
    parts = [f"{SYMBOLS.get(name, name)} = {value}" for name, value in options.items()]
    method = str(settings.get("method", "job"))
    return ", ".join([METHODS.get(method, method), *parts, f"seed {settings.get('seed')}"])
