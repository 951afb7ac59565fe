"""Client of the worker process of jobs."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from unknot.studies.plan import Plan
from unknot.studies.protocols import Protocol
from unknot.studies.study import Job

CLUSTER = ("SLURM_", "TORCHELASTIC_", "OMPI_", "PMI_", "PMIX_", "JSM_", "LSB_")
RANKS = {
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
}


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job: ``done``, ``failed``, ``stopped``, ``busy``, ``full`` or ``died``.

    ``busy`` means that another process runs it, ``full`` that the disk is full, and ``died`` that its process ended
    first.
    """

    job: str
    what: str
    message: str = ""
    seconds: float | None = None
    """Time that it took, unless it resumed."""


@dataclass(frozen=True)
class Settings:
    """Options of jobs that do not affect results.

    Args:
        checkpoint_every: seconds between saves of the state that a job resumes from.
        keep_checkpoints: keep that state when a job is done.
    """

    checkpoint_every: float = 60.0
    keep_checkpoints: bool = False


@dataclass(frozen=True)
class Order:
    """Options of all jobs of a run."""

    study: str
    """The folder."""
    name: str
    protocols: list[Protocol]
    settings: Settings
    threads: int
    """Of each job."""
    imported: tuple[str, ...]
    """Modules whose classes jobs may name, besides unknot's own."""
    places: tuple[str, ...]
    """Where the runner finds modules."""

    @classmethod
    def of(cls, folder: Path, plan: Plan, settings: Settings, threads: int) -> "Order":
        """Return the order for the jobs of a plan."""
        places = tuple(place for place in sys.path if place)
        return cls(
            str(folder.resolve()), plan.study.name, plan.protocols, settings, threads, plan.study.imported, places
        )


def environment(threads: int, devices: str | None) -> dict[str, str]:
    """Return the environment of a job's process: the number of threads, and no variables of a cluster."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER) and name not in RANKS}
    # Waiting threads must sleep: spinning, they would use the cores of other jobs.
    kept |= {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    kept |= {"OMP_WAIT_POLICY": "PASSIVE", "UNKNOT_LIGHTNING": "pytorch_lightning", "PYTHONUNBUFFERED": "1"}
    if devices is not None:
        kept["CUDA_VISIBLE_DEVICES"] = devices
    return kept


class Worker:
    """Worker process that runs jobs, as seen from the runner."""

    def __init__(self, order: Order, devices: str | None = None, here: str | None = None) -> None:
        self.order, self.devices, self.here = order, devices, here
        self.process: subprocess.Popen[str] | None = None
        self.stopping = False

    def perform(self, job: Job) -> Outcome:
        """Run a job; blocks until it has ended."""
        try:
            process = self._process()
        except OSError as error:  # too many processes, or too little memory
            return Outcome(job.name, "died", f"no process could be started ({error})")
        assert process.stdin is not None
        assert process.stdout is not None
        order = asdict(self.order) | {"job": asdict(job), "accelerator": "gpu" if self.devices else "cpu"}
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            if self.stopping:  # requested while the order was being sent
                process.terminate()
            answer = process.stdout.readline()
        except (BrokenPipeError, ValueError):
            answer = ""
        if not answer:
            code = process.wait()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            return Outcome(job.name, "died", f"its process ended {how}")
        outcome = Outcome(**json.loads(answer))
        if outcome.what == "stopped":  # the process died
            process.wait()
        return outcome

    def _process(self) -> "subprocess.Popen[str]":
        """Return the running process, or start one."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "unknot.studies.jobs.process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(self.order.threads, self.devices),
                cwd=self.here,
                start_new_session=True,  # Ctrl-C is handled by the runner
            )
        return self.process

    def stop(self) -> None:
        """Ask the running job to save its state and end; do not start another."""
        self.stopping = True
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def close(self, patience: float = 30.0) -> None:
        """End the process, at the latest after ``patience`` seconds."""
        process = self.process
        if process is None:
            return
        try:
            if process.stdin is not None:
                process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
