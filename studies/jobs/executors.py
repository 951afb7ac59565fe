"""Executors of jobs. All start the same kind of process, in different places."""

import os
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from unknot.studies.jobs.worker import Order, Outcome, Settings, Worker
from unknot.studies.plan import Plan
from unknot.studies.study import Job

ATTEMPTS = 5
"""Attempts of one run at a job whose process ends before the job does."""
ENDED = ("died", "stopped")
"""Outcomes of a job whose process ended before the job did, by itself or by a signal."""


class Executor(ABC):
    """Base class of executors of jobs."""

    settings: Settings
    parallel: int
    """Number of jobs that run at a time, as far as known."""

    def select(self, jobs: Sequence[Job]) -> list[Job]:
        """Select the jobs of a study that this executor runs."""
        return list(jobs)

    @abstractmethod
    def run(self, folder: Path, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome | None]:
        """Yield an outcome for each job that ends, and ``None`` about once a second.

        Closing the iterator stops the jobs: each saves its state.
        """


class Local(Executor):
    """Executor that runs jobs on this machine, each in its own process.

    Args:
        jobs: number of jobs at a time; by default as many as cores and threads allow, or as fit on the GPUs.
        threads: threads of each job. One is best for small models: threads that wait for each other waste cores.
        gpus: number of GPUs to use; 0 trains on the CPU.
        gpus_per_job: share of a GPU for each job, e.g. 0.25 for four jobs on each.
        settings: options that do not affect results.
    """

    def __init__(
        self,
        jobs: int | None = None,
        threads: int = 1,
        gpus: int = 0,
        gpus_per_job: float = 1.0,
        settings: Settings | None = None,
    ) -> None:
        if threads < 1 or (jobs is not None and jobs < 1):
            raise ValueError(f"jobs and threads must be at least 1, got {jobs} and {threads}.")
        if gpus < 0 or not 0 < gpus_per_job <= 1:
            raise ValueError(
                f"gpus must not be negative and gpus_per_job lie in (0, 1], got {gpus} and {gpus_per_job}: "
                "a job trains on one device at most."
            )
        self.settings, self.threads = settings or Settings(), threads
        self.devices = _devices(gpus, gpus_per_job)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        room = len(self.devices) if gpus else max(1, cores // threads)
        self.parallel = room if jobs is None else jobs

    def run(self, folder: Path, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome | None]:
        """Run jobs on as many processes as there are places."""
        waiting, deaths = deque(jobs), dict.fromkeys((job.name for job in jobs), 0)
        over, outcomes = threading.Event(), queue.SimpleQueue[Outcome]()
        order = Order.of(folder, plan, self.settings, self.threads)
        workers = [
            Worker(order, self.devices[place % len(self.devices)] if self.devices else None)
            for place in range(min(self.parallel, max(1, len(jobs))))
        ]

        def serve(worker: Worker) -> None:
            while not over.is_set():
                try:
                    job = waiting.popleft()
                except IndexError:
                    if not over.wait(0.2) and open_jobs:
                        continue
                    return
                outcome = worker.perform(job)
                if outcome.what in ENDED and not over.is_set():
                    deaths[job.name] += 1
                    if deaths[job.name] < ATTEMPTS:
                        waiting.append(job)
                        continue
                    outcome = gave_up(folder, outcome)
                elif outcome.what == "busy":
                    over.wait(1)
                    waiting.append(job)
                    continue
                open_jobs.discard(job.name)
                outcomes.put(outcome)

        open_jobs = {job.name for job in jobs}
        threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        ended = 0
        try:
            while ended < len(jobs):
                try:
                    outcome = outcomes.get(timeout=1)
                except queue.Empty:
                    yield None
                    continue
                ended += 1
                yield outcome
        finally:
            over.set()
            for worker in workers:
                worker.stop()
            for thread in threads:
                thread.join()
            for worker in workers:
                worker.close()


class Shard(Local):
    """Executor of every n-th job, for example in a task of a Slurm array.

    Args:
        index: index of the shard, from 1 to ``count``.
        count: number of shards.
        local: further arguments of :class:`Local`.
    """

    def __init__(self, index: int, count: int, **local: object) -> None:
        super().__init__(**local)  # type: ignore[arg-type]
        if not 1 <= index <= count:
            raise ValueError(f"Shards are numbered from 1 to their number, as in 3/64; got {index}/{count}.")
        self.index, self.count = index, count

    def select(self, jobs: Sequence[Job]) -> list[Job]:
        """Select by the order of the names, which mixes fast and slow settings; keep the order of the plan."""
        names = {job.name for job in sorted(jobs, key=lambda job: job.name)[self.index - 1 :: self.count]}
        return [job for job in jobs if job.name in names]


def gave_up(folder: Path, outcome: Outcome) -> Outcome:
    """Return a failure instead of another attempt."""
    from unknot.studies.plan import JobFolder

    message = f"{outcome.message}, {ATTEMPTS} times in one run; was there too little memory?"
    return Outcome(outcome.job, "failed", JobFolder(folder, outcome.job).fail(message)["error"])


def _devices(gpus: int, per_job: float) -> list[str]:
    """Return the device of every place: the first ``gpus`` of those that the user made visible."""
    if not gpus:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name for name in visible.split(",") if name] if visible else [str(number) for number in range(gpus)]
    if len(names) < gpus:
        raise ValueError(f"{gpus} GPUs were requested, but CUDA_VISIBLE_DEVICES lists {len(names)}.")
    return names[:gpus] * int(1 / per_job + 1e-9)
