"""Recipes of the bundled checkpoints: the run of ``unknot fit`` or the job of a study that trained each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from unknot.training import RunFolder
from unknot.training.score_file import USUAL_DRAWS

if TYPE_CHECKING:
    from unknot.studies.plan import Plan
    from unknot.studies.study import Job

LIST = Path(__file__).parent / "recipes.yaml"


class NotTrained(FileNotFoundError):
    """The training run of a checkpoint does not exist or is unfinished; the message says what is missing."""


@dataclass(frozen=True)
class Trained:
    """Trained model with the record of its training."""

    model: Path
    settings: Path
    command: str
    seed: int
    curves: tuple[Path, ...] = ()
    core_seconds: float | None = None
    commit: str | None = None
    notes: tuple[str, ...] = ()
    scored_on: str | None = None
    scores: Mapping[str, Any] = field(default_factory=dict)
    """``scores`` and their ``protocol``, where it was scored already."""


@dataclass(frozen=True)
class Recipe:
    """Recipe that trains a bundled checkpoint.

    Args:
        name: name of the checkpoint.
        fit: options of ``unknot fit``; or
        study: name of a study that contains its job.
        where: settings of that job, as columns of the study's table.
        best: score that selects among several jobs with these settings.
        scored_on: name of the data set that it is scored and shown on, where that is not the one it was trained on.
        note: sentence on its training, for the card.
    """

    name: str
    fit: str | None = None
    study: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    best: str | None = None
    scored_on: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if (self.fit is None) == (self.study is None):
            raise ValueError(f"{self.name}: expected either `fit`, options of the command, or `study` and `where`.")

    def find(self, runs: Path) -> Trained:
        """Find the training below ``runs``, in a folder named for the study or the checkpoint."""
        if self.study is not None:
            return self.read([runs / self.study])
        finished = [run for run in RunFolder.find(runs / self.name) if run.is_trained()]
        if not finished:
            raise NotTrained(f"no run below {runs / self.name}; train it with: unknot fit {self.fit}")
        return self.read([finished[-1].path])

    def read(self, folders: Sequence[Path]) -> Trained:
        """Read the training in a folder: of a run (or of its parts in order), of a job, or of a study with the job."""
        last = folders[-1]
        if (last / "plan.json").is_file():
            return self._of_study(last)
        run = RunFolder(last)
        if self.study is not None and not run.exists():
            raise NotTrained(f"{last} is not the folder of a study; train it with: unknot study run {self.study}")
        if not run.is_trained():
            raise NotTrained(f"{last} has no trained model")
        curves = tuple(curve for folder in folders if (curve := RunFolder(folder).curve))
        command = f"unknot fit {self.fit}" if self.fit else "unknot fit --config training.yaml"
        notes = (*_schedules(run.settings()), *([self.note] if self.note else []))
        return replace(_trained(run, command, curves, notes), scored_on=self.scored_on)

    def only(self, plan: "Plan") -> "Plan":
        """Return the part of a study's plan that the checkpoint needs."""
        from unknot.studies.plan import Plan

        return Plan(plan.study, self._jobs(plan), plan.bytes_per_job)

    def _jobs(self, plan: "Plan") -> "list[Job]":
        jobs = [job for job in plan.jobs if all(job.settings.get(key) == value for key, value in self.where.items())]
        if not jobs or (len(jobs) > 1 and self.best is None):
            raise ValueError(
                f"{self.name}: {len(jobs)} jobs of {plan.study.name} have {dict(self.where)}; name settings that one "
                "has, or the score by which the `best` is taken."
            )
        return jobs

    def _of_study(self, folder: Path) -> Trained:
        from unknot.studies.plan import JobFolder, read_plan

        plan = read_plan(folder)
        jobs = self._jobs(plan)
        runs = {job.name: JobFolder(folder, job.name) for job in jobs}
        done = [job for job in jobs if runs[job.name].is_trained() and runs[job.name].validation()]
        if len(done) < len(jobs):
            raise NotTrained(f"{len(done)} of {len(jobs)} trainings are done in {folder}")
        job, chosen = jobs[0], list[str]()
        if self.best is not None:
            scores = {job.name: runs[job.name].scores(USUAL_DRAWS).get(self.best) for job in jobs}
            if unscored := [name for name, score in scores.items() if score is None]:
                raise NotTrained(f"{len(unscored)} of {len(jobs)} trainings have no {self.best} yet in {folder}")
            job = max(jobs, key=lambda job: scores[job.name])
            low, high = min(scores.values()), max(scores.values())
            what = ", ".join(f"{key} {value}" for key, value in self.where.items())
            chosen.append(
                f"It has the highest {self.best} of the {len(jobs)} models of the study `{plan.study.name}` with "
                f"{what}, which reach from {low:.3f} to {high:.3f}: its scores are not typical of the method. "
                f'`unknot.studies.load_results("{plan.study.name}")` has all of them.'
            )
        run = runs[job.name]
        settings = ", ".join(
            f"{key.rpartition('.')[2]} {value}" for key, value in job.settings.items() if key != "strength"
        )
        curve = run.curve
        notes = (
            f"Job {job.name} of the study `{plan.study.name}` ({settings}), which `unknot study run {plan.study.name}` "
            "trains as a whole.",
            *chosen,
            *_schedules(job.config),
            *([self.note] if self.note else []),
        )
        scores = run.scores(USUAL_DRAWS)
        known = {"scores": dict(scores), "protocol": scores.protocol} if scores else {}
        return replace(
            _trained(run, "unknot fit --config training.yaml", (curve,) if curve else (), notes), scores=known
        )


def _trained(run: RunFolder, command: str, curves: tuple[Path, ...], notes: tuple[str, ...]) -> Trained:
    """Return the record of a finished run."""
    record = run.record()
    return Trained(
        run.model,
        run.config,
        command,
        run.summary.seed or 0,
        curves,
        core_seconds=record.get("core_seconds"),
        commit=record.get("commit"),
        notes=notes,
    )


def read_recipes(path: Path = LIST) -> dict[str, Recipe]:
    """Return the recipes of bundled checkpoints.

    >>> recipes = read_recipes()
    >>> recipes["betavae-dsprites32"].study
    'zoo32'
    """
    return {name: Recipe(name, **parts) for name, parts in _read_yaml(path).items()}


def _schedules(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence on the length of the training and its learning rate."""
    steps, batch = config["trainer"].get("max_steps"), config["data"].get("init_args", {}).get("batch_size")
    notes = [f"{steps:,} steps of {batch}."] if steps and batch else []
    if start := config.get("pretrained"):
        notes.append(f"They began with the weights of `{start}`.")
    scheduler = config.get("lr_scheduler") or {}
    if str(scheduler.get("class_path", "")).endswith(".WarmupCosine"):
        plan = scheduler["init_args"]
        rate = config["model"]["init_args"].get("lr")
        notes.append(
            f"The learning rate rose from 0 to {rate} over {plan['warmup_steps']:,} steps and fell to 0 along half a "
            f"cosine until step {plan['total_steps']:,}."
        )
    return (" ".join(notes),) if notes else ()


def _read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
