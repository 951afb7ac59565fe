"""Executor of jobs on a Ray cluster: one Ray task for each job, with Ray's resources and retries."""

import logging
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unknot.studies.jobs.executors import ATTEMPTS, ENDED, Executor, gave_up
from unknot.studies.jobs.worker import Order, Outcome, Settings, Worker
from unknot.studies.plan import Plan
from unknot.studies.study import Job


class Ray(Executor):
    """Executor that runs jobs as tasks on a Ray cluster whose nodes share the folder of the study.

    A task runs its job in a separate process, as on one machine, so that neither Ray's threads nor its environment
    affect Lightning. Ray reruns a task whose node is lost elsewhere, and the job resumes.

    Args:
        address: address of a running cluster, ``"auto"`` for the one that this machine belongs to, or ``"local"`` to
            start one on this machine for the time of the run.
        threads: cores of each job.
        gpus_per_job: GPUs, or share of one, of each job; 0 trains on the CPU.
        jobs: maximum number at a time; by default as many as fit on the cluster.
        settings: options that do not affect results.
    """

    def __init__(
        self,
        address: str = "local",
        threads: int = 1,
        gpus_per_job: float = 0.0,
        jobs: int | None = None,
        settings: Settings | None = None,
    ) -> None:
        try:
            import ray
        except ImportError:
            raise ImportError("Running on Ray needs ray: pip install 'unknot[ray]'.") from None
        if threads < 1 or (jobs is not None and jobs < 1) or not 0 <= gpus_per_job <= 1:
            raise ValueError(
                f"jobs and threads must be at least 1 and gpus_per_job lie in [0, 1], got {jobs}, {threads} and "
                f"{gpus_per_job}."
            )
        self.settings, self.threads = settings or Settings(), threads
        self.ray, self.address, self.gpus, self.most = ray, address, gpus_per_job, jobs
        self.ours = False

    def _connect(self) -> None:
        """Connect to the cluster, unless the program is already connected."""
        if not self.ray.is_initialized():
            self.ours = True
            self.ray.init(
                address=self.address,
                include_dashboard=False if self.address == "local" else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )

    @property
    def parallel(self) -> int:  # type: ignore[override]
        """Number of jobs that currently fit on the cluster; nodes may come and go."""
        self._connect()
        has = self.ray.cluster_resources()
        room = int(has.get("CPU", 0) // self.threads)
        if self.gpus:
            room = min(room, int(has.get("GPU", 0) / self.gpus))
        return max(1, room if self.most is None else min(room, self.most))

    def run(self, folder: Path, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome | None]:
        """Keep as many tasks in flight as fit on the cluster, and a few more, so that it is never idle."""
        self._connect()
        ray = self.ray
        task = ray.remote(_perform).options(
            num_cpus=self.threads, num_gpus=self.gpus, max_retries=ATTEMPTS, name="unknot job"
        )
        shared = ray.put((Order.of(folder, plan, self.settings, self.threads), os.getcwd()))
        waiting, flying, left = deque(jobs), dict[Any, Job](), len(jobs)
        deaths = dict.fromkeys((job.name for job in jobs), 0)
        try:
            while left:
                while waiting and len(flying) < 2 * self.parallel:
                    job = waiting.popleft()
                    flying[task.remote(shared, job)] = job
                ready, _ = ray.wait(list(flying), timeout=1)
                if not ready:
                    yield None
                for ref in ready:
                    job = flying.pop(ref)
                    outcome = self._outcome(ref, job)
                    ended = outcome.what in ENDED
                    deaths[job.name] += ended
                    if outcome.what == "busy" or (ended and deaths[job.name] < ATTEMPTS):
                        time.sleep(0.2)
                        waiting.append(job)
                        continue
                    left -= 1
                    yield gave_up(folder, outcome) if ended else outcome
        finally:
            for ref in flying:
                ray.cancel(ref)
            ray.wait(list(flying), num_returns=len(flying), timeout=30) if flying else None
            if self.ours:
                ray.shutdown()
                self.ours = False

    def _outcome(self, ref: Any, job: Job) -> Outcome:
        try:
            found: Outcome = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            return Outcome(job.name, "died", " ".join(str(error).split())[:200])
        return found


# Runs within a task. Ray's process keeps ours for the next task, so that imports happen once.

_kept: list[Worker] = []


def _perform(shared: tuple[Order, str], job: Job) -> Outcome:
    import ray

    order, here = shared
    devices = ",".join(str(number) for number in ray.get_gpu_ids()) or None
    if not _kept or (_kept[0].order, _kept[0].devices) != (order, devices):
        while _kept:
            _kept.pop().close()
        _kept.append(Worker(order, devices, here if Path(here).is_dir() else None))
    try:
        return _kept[0].perform(job)
    except BaseException:  # cancelled: the job saves its state
        worker = _kept.pop()
        worker.stop()
        worker.close()
        raise
