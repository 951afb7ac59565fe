"""The folder of a run: claimed by one process, never half written, and gone on with after any interruption.

Lightning writes a checkpoint to the folder for temporary files and moves it: where that is another file system, a kill
during the move leaves half of ``last.ckpt`` and nothing else. Here every file is written beside its place and renamed,
and the ``last.ckpt`` before stays as ``previous.ckpt`` until the next one is whole.
"""

import csv
import itertools
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.cli import SaveConfigCallback
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from unknot._files import replacing

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
NEEDED = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks", "global_step", "epoch")


def claim(parent: Path) -> Path:
    """Make ``parent/version_N`` for the next free N; of several processes that ask at once, each gets its own."""
    parent.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name[8:]) for path in parent.glob("version_*") if path.name[8:].isdecimal()]
    for number in itertools.count(max(taken, default=-1) + 1):
        folder = parent / f"version_{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("itertools.count does not end")


def occupy(folder: Path) -> FileLock:
    """Hold the folder until the lock is released or the process ends; refuse if another one holds it."""
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"{folder}: another process is training this run. Wait for it, or stop it.") from None
    return lock


def abandon(folder: Path) -> None:
    """Remove a folder that this process claimed, unless something was trained that is worth keeping."""
    if not (folder / "metrics.csv").exists() and not any(folder.glob("checkpoints/*.ckpt")):
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Resumption:
    """Where a run goes on."""

    run: Path
    checkpoint: Path
    step: int
    """Steps that were trained; what was logged later is logged again."""

    note: str


def find_resumption(run: Path) -> Resumption:
    """The newest whole checkpoint of a run, and what to say about it."""
    problems = []
    for name in (LAST, PREVIOUS):
        path = run / "checkpoints" / name
        if not path.is_file():
            problems.append(f"{path}: no such file")
            continue
        try:
            step = _steps(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        note = f"Resuming {run} from {name}, step {step}"
        return Resumption(run, path, step, note + (f" ({problems[0]})." if problems else "."))
    raise FileNotFoundError(f"{'; '.join(problems)}. --resume takes a run's folder, runs/NAME/version_N.")


def _steps(path: Path) -> int:
    """How many steps a checkpoint has trained; raises if it is not whole."""
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()  # torch.load itself compares no checksums
        if damaged:
            raise ValueError(f"{path}: damaged ({damaged})")
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if missing := [key for key in NEEDED if key not in content]:
            raise ValueError(f"{path}: no checkpoint to resume from, as it lacks {', '.join(missing)}")
        return int(content["global_step"])
    except ValueError:
        raise
    except Exception as error:  # whatever a damaged file makes the readers stumble over
        raise ValueError(f"{path}: not a whole checkpoint ({type(error).__name__})") from error


def sweep(run: Path) -> None:
    """Remove what a killed process left half written; only for the process that occupies the folder."""
    for path in [*run.glob(".*.part"), *run.glob("checkpoints/.*.part")]:
        path.unlink(missing_ok=True)


class WholeCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint beside its place, to the disk, and renames it; keeps the last one but one."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint to a local file; what is elsewhere is left to Lightning."""
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        path = Path(path)
        with replacing(path) as beside:
            with beside.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            if path.name == LAST and path.exists():
                os.replace(path, path.with_name(PREVIOUS))


class WholeConfig(SaveConfigCallback):
    """Writes ``config.yaml`` as a whole: what resumes a run must survive a kill too."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Write it before anything is trained."""
        folder = trainer.log_dir  # from rank zero to all
        if folder is not None and trainer.is_global_zero and not self.already_saved:
            with replacing(Path(folder) / self.config_filename) as beside:
                self.parser.save(self.config, str(beside), skip_none=False)
        self.already_saved = True


class _Curve(ExperimentWriter):
    """Goes on with the file that is there, after the last row that the checkpoint knows of."""

    def __init__(self, log_dir: str, step: int | None) -> None:
        self.step = step
        super().__init__(log_dir)

    def _check_log_dir_exists(self) -> None:
        path = Path(self.metrics_file_path)
        if self.step is None or not path.is_file():
            return
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            rows = [row for row in reader if None not in row.values() and int(row["step"] or self.step) < self.step]
            self.metrics_keys = list(reader.fieldnames or [])
        self._write(rows)

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        with open(self.metrics_file_path, newline="") as file:
            rows = list(csv.DictReader(file))
        self.metrics_keys = fieldnames
        self._write(rows)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        with replacing(Path(self.metrics_file_path)) as beside, beside.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.metrics_keys)
            writer.writeheader()
            writer.writerows(rows)


def version_of(folder: Path) -> int | str:
    """N of ``version_N``, for loggers, which show that much beside the progress; or the name of another folder."""
    number = folder.name.removeprefix("version_")
    return int(number) if number.isdecimal() and folder.name == f"version_{int(number)}" else folder.name


class CurveLogger(CSVLogger):
    """``metrics.csv`` of a run, one curve however often it was interrupted."""

    def __init__(self, folder: Path, step: int | None = None) -> None:
        super().__init__(folder.parent.parent, folder.parent.name, version_of(folder))
        self._step = step

    @property
    def experiment(self) -> Any:
        """What writes the rows, on rank zero only."""
        if self._experiment is None:
            self._experiment = _Curve(self.log_dir, self._step)
        return self._experiment


class CountOn(Callback):
    """Logs the step after ``step`` as that: Lightning leaves one out where a run goes on from its end."""

    def __init__(self, step: int) -> None:
        self.step: int | None = step

    def on_train_batch_start(self, trainer: Trainer, *arguments: Any) -> None:
        """Once, at the first step."""
        loop = trainer.fit_loop.epoch_loop
        if self.step is not None and loop._batches_that_stepped == self.step + 1:
            loop._batches_that_stepped = self.step
        self.step = None
