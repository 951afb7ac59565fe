"""The process that jobs run in, seen from the runner."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

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
    """How a job ended: ``done``, ``failed``, ``stopped``, ``busy`` (another process has it), ``full`` (the disk is) or
    ``died`` (its process ended under it)."""

    job: str
    what: str
    message: str = ""
    seconds: float | None = None
    """What it took, unless it went on from an earlier state."""


@dataclass(frozen=True)
class Settings:
    """What jobs are told that changes no result.

    Args:
        checkpoint_every: seconds between saves of the state that a job resumes from.
        keep_checkpoints: leave that state in place when a job is done.
        threads: of each job.
        imported: modules whose classes jobs may name, besides unknot's own; imported before the first job.
    """

    checkpoint_every: float = 60.0
    keep_checkpoints: bool = False
    threads: int = 1
    imported: tuple[str, ...] = ()


def environment(threads: int, devices: str | None) -> dict[str, str]:
    """Environment of a job's process: so many threads, and nothing by which Lightning would see a cluster."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER) and name not in RANKS}
    # Threads that wait for one another must sleep: spinning, they take the cores of the other jobs.
    kept |= {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    kept |= {"OMP_WAIT_POLICY": "PASSIVE", "UNKNOT_LIGHTNING": "pytorch_lightning", "PYTHONUNBUFFERED": "1"}
    if devices is not None:
        kept["CUDA_VISIBLE_DEVICES"] = devices
    return kept


class Worker:
    """A process that performs jobs, seen from the runner."""

    def __init__(self, settings: Settings, devices: str | None = None, here: str | None = None) -> None:
        self.settings, self.devices, self.here = settings, devices, here
        self.process: subprocess.Popen[str] | None = None

    def perform(self, study: Path, job: Job, protocols: list[Protocol]) -> Outcome:
        """Have a job done; blocks until it has ended, one way or another."""
        process = self.process
        if process is None or process.poll() is not None:
            process = self.process = subprocess.Popen(
                [sys.executable, "-m", "unknot.studies.process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(self.settings.threads, self.devices),
                cwd=self.here,
                start_new_session=True,  # Ctrl-C is for the runner
            )
        assert process.stdin is not None
        assert process.stdout is not None
        order = {
            "study": str(study.resolve()),
            "job": asdict(job),
            "protocols": [asdict(protocol) for protocol in protocols],
            "settings": asdict(self.settings),
            "accelerator": "gpu" if self.devices else "cpu",
        }
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except (BrokenPipeError, ValueError):
            answer = ""
        if not answer:
            code = process.wait()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            return Outcome(job.name, "died", f"its process ended {how}")
        return Outcome(**json.loads(answer))

    def stop(self) -> None:
        """Ask the running job to save its state and end."""
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
