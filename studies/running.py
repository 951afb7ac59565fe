"""Run a study: make its folder, have its jobs done, say how it goes."""

import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from unknot.studies.executors import Executor, Local
from unknot.studies.folders import ALIVE, JobFolder, Plan, read_json, read_plan, write_plan
from unknot.studies.study import Job, Study
from unknot.studies.worker import Outcome

Say = Callable[[str], None]
INTERRUPTED = "it was interrupted"


@dataclass
class Summary:
    """How a run ended."""

    folder: Path
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    stopped: str = ""
    """Why it ended early, if it did."""


def run(study: Study | Plan, folder: str | Path, executor: Executor | None = None, say: Say | None = None) -> Summary:
    """Have all jobs of a study done that are not done yet.

    Args:
        study: from :meth:`Study.from_file`.
        folder: where its files go; what is there already is not done again.
        executor: where jobs run; by default on this machine, one thread each and as many at a time as cores.
        say: takes the lines of progress; by default they are printed to the standard error stream.
    """
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    folder, executor = Path(folder), executor or Local()
    plan = study if isinstance(study, Plan) else prepare(study, folder)
    mine = executor.select(plan.jobs)
    states = {job.name: JobFolder(folder, job.name).state(plan.protocols) for job in mine}
    todo = [job for job in mine if states[job.name] not in ("done", "failed")]
    summary = Summary(folder, done=len(mine) - len(todo))
    for job in mine:
        if states[job.name] == "failed":
            summary.done -= 1
            summary.failed[job.name] = (read_json(JobFolder(folder, job.name).error) or {}).get("error", "")
    display = Display(folder, plan, mine, summary, executor.parallel, say)
    display.begin(todo)
    lock = FileLock(folder / "runner.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        say("Another runner is at work in this folder: the two share its jobs, and none is done twice.")
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
    finally:
        outcomes.close()  # type: ignore[attr-defined]  # all executors are generators
        lock.release()
        display.end()
    return summary


def prepare(study: Study, folder: Path) -> Plan:
    """Write the plan of a study into its folder, or compare it with the one that is there."""
    jobs = study.jobs()
    plan = Plan(study, jobs, disk_use(jobs, study.imported) // len(jobs))
    if (folder / "plan.json").is_file():
        old = read_plan(folder)
        names = {job.name for job in plan.jobs}
        lost = [job for job in old.jobs if job.name not in names and JobFolder(folder, job.name).path.is_dir()]
        if lost:
            raise ValueError(
                f"{folder} holds {len(lost)} jobs that are not in the study as it is now, such as {lost[0].settings}: "
                "its file was changed. Run the changed study in another folder (--folder); adding seeds, values or "
                "scores needs none."
            )
        if old == plan:
            return plan
    write_plan(folder, plan)
    return plan


def clear_errors(folder: Path, plan: Plan) -> int:
    """Let failed jobs be tried again: how many there are."""
    failed = [job for job in plan.jobs if JobFolder(folder, job.name).state(plan.protocols) == "failed"]
    for job in failed:
        files = JobFolder(folder, job.name)
        files.error.replace(files.last_error)
    return len(failed)


class Display:
    """Lines that read well in a terminal and in a log: what ended, and every so often how far all is."""

    def __init__(
        self, folder: Path, plan: Plan, jobs: Iterable[Job], summary: Summary, parallel: int, say: Say
    ) -> None:
        self.folder, self.plan, self.jobs, self.summary, self.say = folder, plan, list(jobs), summary, say
        self.parallel = parallel
        self.start = self.last = time.monotonic()
        self.ended_here = 0
        self.seen: dict[str, tuple[float, int]] = {}
        self.interval = 10.0

    def begin(self, todo: list[Job]) -> None:
        """What is going to happen, and how much disk it takes."""
        self.todo = {job.name: job for job in todo}
        needed = self.plan.bytes_per_job * len(todo)
        free = shutil.disk_usage(self.folder).free
        self.say(
            f"{self.plan.study.name} in {self.folder}: {len(self.jobs):,} jobs, {self.summary.done:,} done before, "
            f"{len(todo):,} to do, {self.parallel} at a time. "
            f"Disk: about {show_bytes(needed)} of {show_bytes(free)} free."
        )
        if needed > free:
            self.say("The disk is too small for all of them: free some, or run in another folder (--folder).")
        if self.summary.failed:
            self.say(f"{len(self.summary.failed)} failed before; unknot study retry {self.folder} tries them again.")

    def ended(self, job: Job, outcome: Outcome) -> None:
        """One job ended."""
        self.ended_here += 1
        what, message = outcome.what, outcome.message
        if what == "failed":
            self.say(f"{clock()} failed {job.name} {describe(job)}: {message}")
        self.tick()

    def tick(self, force: bool = False) -> None:
        """A line, if it is time for one."""
        now = time.monotonic()
        if not force and now - self.last < self.interval:
            return
        self.last = now
        self.interval = min(60.0, self.interval * 1.5)
        self.say(f"{clock()} {self.line()}")

    def line(self) -> str:
        """How far all is."""
        running, rate, share = self._running()
        summary = self.summary
        parts = [
            f"{summary.done:,} of {len(self.jobs):,} done",
            f"{running} running",
            f"{len(summary.failed)} failed",
        ]
        if rate:
            parts.append(f"{rate:.0f} steps/s")
        finished = self.ended_here + share
        elapsed = time.monotonic() - self.start
        if finished > 0.01 and summary.left:
            parts.append(f"{_duration(elapsed * max(0.0, summary.left - share) / finished)} left")
        return ", ".join(parts)

    def _running(self) -> tuple[int, float, float]:
        """How many jobs run, how many steps a second they do together, and how much of them is done."""
        running, rate, share, seen = 0, 0.0, 0.0, {}
        for name in list(self.todo):
            files = JobFolder(self.folder, name)
            try:
                old = time.time() - files.progress.stat().st_mtime > ALIVE
            except FileNotFoundError:
                continue
            progress = None if old else read_json(files.progress)
            if progress is None:
                continue
            running += 1
            step, at = progress["step"], progress["time"]
            if progress["phase"] == "training":
                share += 0.8 * step / max(1, progress["steps"])
                before = self.seen.get(name)
                if before and at > before[0] and step >= before[1]:
                    rate += (step - before[1]) / (at - before[0])
                seen[name] = at, step
            else:
                share += 0.8
        self.seen = seen
        return running, rate, share

    def end(self) -> None:
        """How it ended, and how to go on."""
        summary = self.summary
        self.say(f"{clock()} {summary.done:,} of {len(self.jobs):,} done, {len(summary.failed)} failed.")
        if summary.stopped:
            self.say(f"Stopped: {summary.stopped}. Nothing is lost; go on with: unknot study run {self.folder}")
        for name, message in list(summary.failed.items())[:10]:
            self.say(f"  failed {name}: {message}")
        if summary.failed:
            self.say(f"Try failed jobs again with: unknot study retry {self.folder}")


def disk_use(jobs: Iterable[Job], imported: Iterable[str] = ()) -> int:
    """Bytes that jobs will leave, about: their models and scores."""
    import torch

    from unknot.studies.datasets import find_class

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
            except Exception:  # what is wrong with it is said when it runs
                sizes[key] = 0
        total += sizes[key] + 30_000
    return total


def describe(job: Job) -> str:
    """A job in a few words."""
    settings = {name: value for name, value in job.settings.items() if name != "strength"}
    return " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items())


def clock() -> str:
    """The time, for the start of a line."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def show_bytes(number: float) -> str:
    """A size for people."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds:.0f} s"
