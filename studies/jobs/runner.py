"""Run a study: create its folder, run its jobs, and report progress."""

import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from unknot.studies.jobs.executors import Executor, Local
from unknot.studies.jobs.worker import Outcome
from unknot.studies.plan import JobFolder, Plan, read_plan, write_plan
from unknot.studies.study import Job, Study

Say = Callable[[str], None]
INTERRUPTED = "it was interrupted"


class Seen(NamedTuple):
    """Last known state of a running job, for the display."""

    phase: str
    step: int
    at: float
    """Time of the job's last report."""
    since: float
    """Time at which the display first saw it."""


@dataclass
class Summary:
    """Outcome of a run."""

    folder: Path
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    stopped: str = ""
    """Reason why it ended early, if it did."""


def run(
    study: Study | Plan,
    folder: str | Path,
    executor: Executor | None = None,
    say: Say | None = None,
    options: str = "",
) -> Summary:
    """Run every unfinished job of a study.

    Args:
        study: from :meth:`Study.from_file`.
        folder: folder of its files; finished jobs in it are kept.
        executor: executor of the jobs; by default this machine, with one thread each and as many jobs as cores.
        say: function called with lines of progress; by default they are printed to the standard error stream.
        options: options of ``unknot study run``, repeated in the command that resumes it.
    """
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    folder, executor = Path(folder), executor or Local()
    plan = study if isinstance(study, Plan) else prepare(study, folder)
    _check_classes(folder, plan)
    mine = executor.select(plan.jobs)
    states = {job.name: JobFolder(folder, job.name).state_of(plan.protocols) for job in mine}
    todo = [job for job in mine if states[job.name] not in ("done", "failed")]
    summary = Summary(folder, done=len(mine) - len(todo))
    for job in mine:
        if states[job.name] == "failed":
            summary.done -= 1
            summary.failed[job.name] = JobFolder(folder, job.name).problem() or ""
    display = Display(folder, plan, mine, summary, executor.parallel, say, options)
    display.begin(todo)
    lock = FileLock(folder / "runner.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        say("Another runner works in this folder: the two share its jobs, and none runs twice.")
    outcomes = executor.run(folder, plan, todo)
    jobs = {job.name: job for job in mine}
    summary.left = len(todo)
    try:
        for outcome in outcomes:
            if outcome is None:
                display.tick()
                continue
            if outcome.what == "done":
                summary.done += 1
            elif outcome.what == "failed":
                summary.failed[outcome.job] = outcome.message
            elif outcome.what == "full":
                summary.stopped = f"the disk is full ({outcome.message}); free some space"
                break
            summary.left -= 1
            display.ended(jobs[outcome.job], outcome)
    except KeyboardInterrupt:
        summary.stopped = INTERRUPTED
        say("Stopping: the jobs save their states.")
    finally:
        outcomes.close()  # type: ignore[attr-defined]  # all executors are generators
        lock.release()
        display.end()
    return summary


def prepare(study: Study, folder: Path) -> Plan:
    """Write the plan of a study into its folder, or compare it with the existing one."""
    jobs = study.check()
    plan = Plan(study, jobs, disk_use(jobs, study.imported) // len(jobs))
    if (folder / "plan.json").is_file():
        old = read_plan(folder, study.imported)
        names = {job.name for job in plan.jobs}
        lost = [job for job in old.jobs if job.name not in names and JobFolder(folder, job.name).path.is_dir()]
        if lost:
            raise ValueError(
                f"{folder} contains {len(lost)} jobs that are no longer in the study, such as {lost[0].settings}: "
                "its file was changed. Run the changed study in another folder (--folder); adding seeds, values or "
                "scores needs none."
            )
        if old == plan:
            return plan
    write_plan(folder, plan)
    return plan


def _check_classes(folder: Path, plan: Plan) -> None:
    """Raise an error for jobs that would all fail because they name a folder, or a class not allowed with --import."""
    from unknot.training.settings import ALLOWED, refuse_foreign_folders

    for job in plan.jobs:
        refuse_foreign_folders(job.config, folder)
    known = tuple(f"{module}." for module in (*ALLOWED, *plan.study.imported))
    for path in dict.fromkeys(path for job in plan.jobs for path in _class_paths(job.config)):
        if "." in path and not f"{path}.".startswith(known):
            raise ValueError(
                f"{folder}: its jobs name {path}, which is not one of unknot's classes and could run code. If you know "
                f"what it is, add --import {path.rpartition('.')[0]}."
            )


def _class_paths(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "class_path" in part:
            yield str(part["class_path"])
        part = list(part.values())
    if isinstance(part, list):
        for below in part:
            yield from _class_paths(below)


def clear_errors(folder: Path, plan: Plan) -> int:
    """Delete the errors of failed jobs, so that they are retried; return how many there are."""
    failed = [job for job in plan.jobs if JobFolder(folder, job.name).state_of(plan.protocols) == "failed"]
    for job in failed:
        JobFolder(folder, job.name).clear_error()
    return len(failed)


class Display:
    """Progress display for a terminal and a log: finished jobs, and the overall progress at intervals."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        jobs: Iterable[Job],
        summary: Summary,
        parallel: int,
        say: Say,
        options: str = "",
    ) -> None:
        self.folder, self.plan, self.jobs, self.summary, self.say = folder, plan, list(jobs), summary, say
        self.parallel = parallel
        self.again = f"{shlex.quote(str(folder))} {options}".strip()
        self.last, self.alive = time.monotonic(), 0.0
        self.interval = 10.0
        self.reasons: set[str] = set()
        self.took: deque[float] = deque(maxlen=200)
        self.seen: dict[str, Seen] = {}

    def begin(self, todo: list[Job]) -> None:
        """Report the jobs to run and their disk usage."""
        self.todo = {job.name: job for job in todo}
        begun = sum(JobFolder(self.folder, job.name).path.is_dir() for job in todo)
        needed = self.plan.bytes_per_job * len(todo)
        free = shutil.disk_usage(self.folder).free
        self.say(
            f"{self.plan.study.name} in {self.folder}: {len(self.jobs):,} jobs, {self.summary.done:,} done before, "
            f"{len(todo):,} to do{f', {begun:,} of them begun' if begun else ''}, {self.parallel} at a time. "
            f"Disk: about {show_bytes(needed)} of {show_bytes(free)} free."
        )
        if needed > free:
            self.say("The disk is too small for all of them: free some, or run in another folder (--folder).")
        if self.summary.failed:
            self.say(f"{len(self.summary.failed)} failed before; retry them with: unknot study retry {self.again}")

    def ended(self, job: Job, outcome: Outcome) -> None:
        """Report a finished job."""
        self.todo.pop(job.name, None)
        if outcome.seconds is not None:
            self.took.append(outcome.seconds)
        if outcome.what == "failed":
            again = outcome.message in self.reasons
            self.reasons.add(outcome.message)
            self.say(f"{clock()} failed {job.name} {describe(job)}: {'as before.' if again else outcome.message}")
        self.tick()

    def tick(self) -> None:
        """Report the progress, if it is time."""
        now = time.monotonic()
        if now - self.last < self.interval:
            return
        self.last = now
        self.interval = min(60.0, self.interval * 1.5)
        self.say(f"{clock()} {self.line()}")

    def line(self) -> str:
        """Return the progress of all jobs as a line."""
        summary = self.summary
        rate = self._look()
        scoring = sum(progress.phase == "scoring" for progress in self.seen.values())
        parts = [
            f"{summary.done:,} of {len(self.jobs):,} done",
            f"{len(self.seen)} running{f' ({scoring} scoring)' if scoring else ''}",
            f"{len(summary.failed)} failed",
        ]
        if rate:
            parts.append(f"{rate:.0f} steps/s")
        if left := self._left(rate):
            parts.append(left)
        return ", ".join(parts)

    def _left(self, rate: float) -> str:
        """Estimate the remaining time: from finished jobs, or from steps before the first has finished."""
        now = time.monotonic()
        if not self.seen:
            silent = f"no progress for {duration(now - self.alive)}" if self.alive else "starting"
            return silent if self.todo else ""
        self.alive = now
        if self.took:
            each = sum(self.took) / len(self.took)
            gone = sum(min(each, now - progress.since) for progress in self.seen.values())
            return f"{duration((each * len(self.todo) - gone) / len(self.seen))} left"
        steps = sum(job.steps for job in self.todo.values())
        steps -= sum(self.todo[name].steps if p.phase == "scoring" else p.step for name, p in self.seen.items())
        return f"{duration(steps / rate)} of training left, scores not counted" if rate else ""

    def _look(self) -> float:
        """Read the progress of running jobs; return their total steps per second."""
        before, rate = self.seen, 0.0
        self.seen = {}
        for name in self.todo:
            progress = JobFolder(self.folder, name).progress()
            if progress is None:
                continue
            old = before.get(name)
            phase, step, at = progress["phase"], progress["step"], progress["time"]
            self.seen[name] = Seen(phase, step, at, old.since if old else time.monotonic())
            if old and old.phase == phase == "training" and at > old.at and step >= old.step:
                rate += (step - old.step) / (at - old.at)
        return rate

    def end(self) -> None:
        """Report the end of the run, and how to resume it."""
        summary = self.summary
        self.say(f"{clock()} {summary.done:,} of {len(self.jobs):,} done, {len(summary.failed)} failed.")
        if summary.stopped:
            self.say(f"Stopped: {summary.stopped}. Resume with: unknot study run {self.again}")
        shared: dict[str, list[str]] = {}
        for name, message in summary.failed.items():
            shared.setdefault(message, []).append(name)
        for message, names in list(shared.items())[:10]:
            if message not in self.reasons:  # failed before this run
                self.say(f"  failed {_some(names)}: {message}")
            elif len(names) > 1:
                self.say(f"  {len(names)} failed for the same reason: {_some(names)}")
        if summary.failed:
            self.say(f"Retry failed jobs with: unknot study retry {self.again}")


def disk_use(jobs: Iterable[Job], imported: Iterable[str] = ()) -> int:
    """Estimate the disk usage of jobs: their models and scores."""
    import torch

    from unknot.training.settings import find_class

    sizes: dict[str, int] = {}
    total = 0
    for job in jobs:
        part = job.config["model"]
        arguments = part.get("init_args", {})
        key = repr((part["class_path"], arguments.get("image_shape"), arguments.get("latent_dim")))
        if key not in sizes:
            try:
                with torch.device("meta"):
                    model = find_class(part["class_path"], imported)(**arguments)
                sizes[key] = sum(value.numel() * value.element_size() for value in model.state_dict().values())
            except Exception:  # errors are reported when it runs
                sizes[key] = 0
        total += sizes[key] + 30_000
    return total


def describe(job: Job) -> str:
    """Describe a job in a few words."""
    settings = {name.rpartition(".")[2]: value for name, value in job.settings.items()}
    what = f"{settings.pop('method')} on {settings.pop('dataset')}"
    return ", ".join([what, *(f"{name} {value}" for name, value in settings.items() if name not in NAMED)])


NAMED = ("config", "strength")
"""Settings that others imply."""


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def clock() -> str:
    """Return the time, for the start of a line."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def show_bytes(number: float) -> str:
    """Format a size."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """Format a duration."""
    minutes = round(seconds / 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds:.0f} s"
