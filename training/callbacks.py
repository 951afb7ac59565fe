"""Callbacks of a training run: processor time, the loss curve, saved states, and stopping."""

import csv
import os
import time
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from unknot import __version__
from unknot.files import replacing, sync, write_json
from unknot.lightning import correct_step
from unknot.machine import commit
from unknot.training.run_folder import LAST, PREVIOUS, RunFolder
from unknot.training.stopping import Stop, Stopped

REPORT_EVERY = 5.0
"""Seconds between two reports of progress; each is a file written."""


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoint plugin that writes atomically and durably, and keeps the last but one checkpoint.

    Lightning writes a checkpoint to the folder for temporary files and moves it: if that is another file system, a kill
    during the move leaves only a partial ``last.ckpt``.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint to a local file; other destinations are handled by Lightning."""
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        path = Path(path)
        with replacing(path, durable=True) as beside:
            torch.save(checkpoint, beside)
            sync(beside)  # before the last one is moved, so that it is missing only between two renames
            if path.name == LAST and path.exists():
                os.replace(path, path.with_name(PREVIOUS))


class Stopwatch(Callback):
    """Measure the processor time of a training run across interruptions.

    Steps after the last checkpoint of a killed process are repeated, and counted once.
    """

    def __init__(self) -> None:
        self.before: float | None = None
        self.start = time.process_time()

    @property
    def core_seconds(self) -> float | None:
        """Processor time of the training so far, unless part of it was not recorded."""
        return None if self.before is None else self.before + time.process_time() - self.start

    def state_dict(self) -> dict[str, Any]:
        """Return the processor time, for checkpoints."""
        return {"core_seconds": self.core_seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the processor time."""
        self.before = state_dict["core_seconds"]

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Read the processor time of a job of version 0.1.0, which is stored under another name."""
        if former := checkpoint.get("callbacks", {}).get("Recorder"):
            self.before = former["core_seconds"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self.start = time.process_time()
        if trainer.global_step == 0:
            self.before = 0.0

    def record(self, path: Path, steps: int) -> None:
        """Write the processor time, and the commit and versions of the code."""
        seconds = self.core_seconds
        record = {
            "core_seconds": None if seconds is None else round(seconds, 1),
            "steps": steps,
            "commit": commit(),
            "unknot": __version__,
            "torch": str(torch.__version__),
        }
        write_json(path, record, durable=True)


class Keeper(Checkpoint):
    """Save the state to resume from, report progress, and stop on request.

    Lightning calls it after all other callbacks, as it is a ``Checkpoint``.

    Args:
        run: the run folder; None on ranks other than zero.
        stop: request to stop, checked after every step.
        every_steps: steps between saves.
        every_seconds: seconds between saves; for a single process.
    """

    def __init__(
        self, run: RunFolder | None, stop: Stop, every_steps: int | None = None, every_seconds: float | None = None
    ) -> None:
        self.run, self.stop, self.every_steps, self.every_seconds = run, stop, every_steps, every_seconds
        self.step = 0
        self.saved = self.reported = time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the step at which training starts; from now on there is a state to save."""
        self.step = trainer.global_step
        if trainer.world_size == 1:  # several processes could stop at different steps
            self.stop.listen()
            self.stop.hold()
        self._report(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Check the step and the clock; every state can be resumed exactly."""
        now, before, self.step = time.monotonic(), self.step, trainer.global_step
        due = self.every_steps is not None and before // self.every_steps != self.step // self.every_steps
        due = due or (self.every_seconds is not None and now - self.saved >= self.every_seconds)
        asked = self.stop.asked and trainer.world_size == 1
        if due or asked:
            self.save(trainer)
            self.saved = time.monotonic()
        if asked:
            raise Stopped(self.stop.signum or 15)
        if now - self.reported >= REPORT_EVERY:
            self._report(trainer)
            self.reported = now

    def save(self, trainer: Trainer) -> None:
        """Save the state, after the corresponding rows of the curve."""
        for logger in trainer.loggers:
            if isinstance(logger, CurveLogger):
                logger.save()
        folder = trainer.log_dir  # from rank zero to all
        if folder is not None:
            trainer.save_checkpoint(Path(folder) / "checkpoints" / LAST, weights_only=False)

    def _report(self, trainer: Trainer) -> None:
        if self.run is not None:
            self.run.report("training", trainer.global_step, trainer.max_steps)


class HeldOut(Callback):
    """Keep the losses on held-out batches, and their training step."""

    def __init__(self) -> None:
        self.step, self.losses = -1, dict[str, float]()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Store the losses."""
        values = trainer.callback_metrics.items()
        self.step = -1 if trainer.sanity_checking else trainer.global_step
        self.losses = {name: float(value) for name, value in values if name.startswith("val/")}


class _Curve(ExperimentWriter):
    """Continue an existing file after the last row that the checkpoint covers."""

    def __init__(self, log_dir: str, step: int | None) -> None:
        self.step = step
        super().__init__(log_dir)

    def _check_log_dir_exists(self) -> None:
        path = Path(self.metrics_file_path)
        if self.step is None or not path.is_file():
            return
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.DictReader(line.replace("\0", "") for line in file)
            names = list(reader.fieldnames or [])
            rows = [row for row in reader if None not in row and None not in row.values()]
        kept = [row for row in rows if (at := _whole(row.get("step"))) is not None and at < self.step]
        if "step" not in names:  # no file that could be continued
            path.unlink(missing_ok=True)
            return
        self.metrics_keys = names
        self._write(kept)

    def log_hparams(self, params: dict[str, Any]) -> None:
        """Do nothing: the settings of a run are in ``config.yaml``."""

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


def _whole(text: Any) -> int | None:
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def version_of(folder: Path) -> int | str:
    """Return N of ``version_N``, which loggers show in the progress bar, or the name of another folder."""
    number = folder.name.removeprefix("version_")
    return int(number) if number.isdecimal() and folder.name == f"version_{int(number)}" else folder.name


class CurveLogger(CSVLogger):
    """Logger of ``metrics.csv``: one curve across interruptions.

    Args:
        folder: folder of the run.
        step: step at which the run is resumed; None for a new run.
    """

    def __init__(self, folder: Path, step: int | None = None) -> None:
        super().__init__(folder.parent.parent, folder.parent.name, version_of(folder))
        self._step = step

    @property
    def experiment(self) -> Any:
        """Writer of the rows, on rank zero only."""
        if self._experiment is None:
            self._experiment = _Curve(self.log_dir, self._step)
        return self._experiment


class CountOn(Callback):
    """Log the first step after resuming as ``step``; Lightning skips one for a run resumed at its end."""

    def __init__(self, step: int) -> None:
        self.step: int | None = step

    def on_train_batch_start(self, trainer: Trainer, *arguments: Any) -> None:
        """Correct the count once, at the first step."""
        if self.step is not None:
            correct_step(trainer, self.step)
        self.step = None
