"""What lies in the folder of a study. Files are the truth: each is written beside its place and renamed.

plan.json               the study and its jobs
jobs/3f/3f9a.../        one folder for each job
    config.yaml         the resolved configuration; `unknot fit --config` takes it
    last.ckpt           while it trains: what it resumes from
    progress.json       while it runs: how far it is; its age tells whether it runs
    model/              config.json and model.safetensors
    record.json         processor time of the training, and the commit of the code
    training.csv        its curve
    scores.json         by protocol
    error.json          instead, if it failed: the cause, its traceback, and how often
    log.txt             what it printed
"""

import json
import socket
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from unknot._files import replacing
from unknot.studies.protocols import Protocol
from unknot.studies.study import Job, Study

ALIVE = 60.0
"""Seconds after the last sign of life at which a job counts as interrupted."""


class JobFolder:
    """The files of one job."""

    def __init__(self, study: Path, name: str) -> None:
        self.path = study / "jobs" / name[:2] / name
        self.config, self.checkpoint = self.path / "config.yaml", self.path / "last.ckpt"
        self.progress, self.model = self.path / "progress.json", self.path / "model"
        self.scores, self.error = self.path / "scores.json", self.path / "error.json"
        self.last_error = self.path / "last_error.json"
        self.record, self.curve = self.path / "record.json", self.path / "training.csv"
        self.log, self.lock = self.path / "log.txt", self.path / "lock"

    def trained(self) -> bool:
        """Whether there is a whole model."""
        return all((self.model / file).is_file() for file in ("config.json", "model.safetensors"))

    def read_scores(self) -> dict[str, Any]:
        """Losses on held-out batches (``validation``), and scores with how they were drawn (``entries``)."""
        return read_json(self.scores) or {"validation": {}, "entries": []}

    def read_error(self) -> dict[str, Any]:
        """Why a job failed, if it did: ``error``, ``count``, ``host``, ``when`` and ``traceback``."""
        return read_json(self.error) or {}

    def missing(self, protocols: Iterable[Protocol]) -> list[tuple[Protocol, list[str]]]:
        """Protocols with the metrics that are not there yet."""
        there = self.read_scores()
        found = []
        for protocol in protocols:
            done = entry_of(there, protocol)["metrics"]
            absent = [metric for metric in protocol.metrics if metric not in done]
            if absent:
                found.append((protocol, absent))
        return found

    def state(self, protocols: Iterable[Protocol]) -> str:
        """``done``, ``failed``, ``running``, ``interrupted`` or ``waiting``."""
        if not self.path.is_dir():
            return "waiting"
        if self.scores.is_file() and self.trained() and not self.missing(protocols):
            return "done"
        if self.error.is_file():
            return "failed"
        if not self.progress.is_file():
            return "waiting"
        return "running" if self.running() else "interrupted"

    def running(self) -> dict[str, Any] | None:
        """How far a job is, if it gave a sign of life of late: ``phase``, ``step`` of ``steps``, and the ``time``."""
        try:
            age = time.time() - self.progress.stat().st_mtime
        except FileNotFoundError:
            return None
        return read_json(self.progress) if age < ALIVE else None

    def fail(self, error: BaseException | str) -> dict[str, Any]:
        """Write down why a job failed, and how often it has."""
        text = error if isinstance(error, str) else " ".join(str(error).split()) or type(error).__name__
        kind = "" if isinstance(error, str | ValueError | OSError | FloatingPointError) else f"{type(error).__name__}: "
        record = {
            "error": kind + text,
            "count": (self.read_error() or read_json(self.last_error) or {}).get("count", 0) + 1,
            "host": socket.gethostname(),
            "when": time.strftime("%Y-%m-%d %H:%M:%S"),
            "traceback": "" if isinstance(error, str) else "".join(traceback.format_exception(error)),
        }
        write_json(self.error, record)
        return record


def entry_of(scores: Mapping[str, Any], protocol: Protocol) -> dict[str, Any]:
    """What was drawn as a protocol says: ``metrics`` and ``scores``, empty if nothing was."""
    found = (entry for entry in scores["entries"] if entry["draws"] == protocol.draws)
    return next(found, {"draws": protocol.draws, "metrics": [], "scores": {}})


@dataclass(frozen=True)
class Plan:
    """The jobs of a folder and how they are scored."""

    study: Study
    jobs: list[Job]
    bytes_per_job: int = 0
    """What a job leaves on the disk, about."""

    @cached_property
    def protocols(self) -> list[Protocol]:
        """How they are scored."""
        return self.study.protocols


def write_plan(folder: Path, plan: Plan) -> None:
    """Write the plan of a folder."""
    study = plan.study
    document = {
        "study": {"name": study.name, "folder": str(study.folder), "content": study.content},
        "bytes_per_job": plan.bytes_per_job,
        "jobs": [asdict(job) for job in plan.jobs],
    }
    write_json(folder / "plan.json", document, indent=None)


def read_plan(folder: Path, imported: Iterable[str] = ()) -> Plan:
    """Read the plan of a folder.

    Args:
        folder: of a study.
        imported: modules whose classes its jobs may name, besides those of unknot: a folder alone runs nobody's code.
    """
    document = read_json(folder / "plan.json")
    if document is None:
        raise FileNotFoundError(
            f"{folder}: no folder of a study (it has no plan.json). Start one: unknot study run NAME."
        )
    said = document["study"]
    study = Study(said["name"], said["content"], Path(said["folder"]), tuple(imported))
    return Plan(study, [Job(**job) for job in document["jobs"]], document["bytes_per_job"])


def read_json(path: Path) -> Any:
    """What a file holds, or ``None`` where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a whole JSON file ({error}). Remove it, and run the study again.") from None


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write a file that nobody sees half of."""
    with replacing(path) as beside:
        beside.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")
