"""What a training leaves besides its weights: its curve, what it took, and the code that did it."""

import csv
import time
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from unknot import __version__
from unknot._files import replacing
from unknot._provenance import commit
from unknot.studies.folders import JobFolder, write_json

ROWS = 100
"""Of a curve, about."""


class Stopwatch(Callback):
    """Takes the processor time of a training, and goes on where that is resumed.

    What was computed after the last checkpoint of a process that was killed is computed again, and counted once.
    """

    def __init__(self) -> None:
        self.before: float | None = None
        self.start = time.process_time()

    @property
    def core_seconds(self) -> float | None:
        """Processor time of the training so far, unless part of it was not recorded."""
        return None if self.before is None else self.before + time.process_time() - self.start

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"core_seconds": self.core_seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.before = state_dict["core_seconds"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on the time counts."""
        self.start = time.process_time()
        if trainer.global_step == 0:
            self.before = 0.0

    def record(self, path: Path, steps: int) -> None:
        """Write what the training took, and the code that did it."""
        seconds = self.core_seconds
        record = {
            "core_seconds": None if seconds is None else round(seconds, 1),
            "steps": steps,
            "commit": commit(),
            "unknot": __version__,
            "torch": str(torch.__version__),
        }
        write_json(path, record)


class Recorder(Stopwatch):
    """Notes the losses every so many steps, too."""

    def __init__(self, files: JobFolder) -> None:
        super().__init__()
        self.files = files
        self.rows: list[dict[str, float]] = []

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"rows": self.rows, **super().state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        super().load_state_dict(state_dict)
        self.rows = list(state_dict["rows"])

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
        """Note the losses of the batch."""
        batch_idx = rest[2]
        due = not self.rows or trainer.global_step - self.rows[-1]["step"] >= trainer.max_steps // ROWS
        if due and batch_idx % 10 == 0:  # which models log
            self._note(trainer, "train/")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note those of held-out batches."""
        if self.rows and "val/loss" in self.rows[-1] and self.rows[-1]["step"] == trainer.global_step:
            self.rows.pop()  # looked at once more after the training
        self._note(trainer, "val/")

    def write(self, steps: int) -> None:
        """Write both files."""
        write_curve(self.files.curve, self.rows)
        self.record(self.files.record, steps)

    def _note(self, trainer: Trainer, stage: str) -> None:
        values = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith(stage)}
        if values:
            self.rows.append({"step": trainer.global_step, **values})


def write_curve(path: Path, rows: list[dict[str, float]]) -> None:
    """Write a curve as a table with a column for each loss."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with replacing(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in rows)
