"""One Lightning for the whole package: ``from unknot.lightning import pl``.

The framework is distributed twice, as ``pytorch_lightning`` and as ``lightning``, and the Trainer of one refuses the
modules of the other. We build on ``pytorch_lightning``, unless the program has already imported ``lightning.pytorch``
and not the other: then its Trainer is the one our modules will meet, and we build on that. Set
``UNKNOT_LIGHTNING=lightning`` (or ``pytorch_lightning``) to choose explicitly.
"""

import os
import sys
import warnings
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

OLD, NEW = "pytorch_lightning", "lightning.pytorch"


class _WarnOfTheOther(MetaPathFinder):
    """Import hook that warns when the other Lightning is imported after one was chosen."""

    def __init__(self, ours: str, other: str) -> None:
        self.ours, self.other = ours, other

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == self.other:
            sys.meta_path.remove(self)
            warnings.warn(
                f"unknot was imported before {self.other} and builds on {self.ours}: use `from {self.ours} import "
                f"Trainer`, or import {self.other} before unknot.",
                stacklevel=2,
            )


if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    _choice = os.environ.get("UNKNOT_LIGHTNING") or (
        "lightning" if NEW in sys.modules and OLD not in sys.modules else OLD
    )
    if _choice not in ("lightning", OLD):
        raise ValueError(f"UNKNOT_LIGHTNING is {_choice!r}; it must be 'lightning' or '{OLD}'.")
    if _choice == "lightning":
        import lightning.pytorch as pl

        # Worker processes may import unknot before Lightning; they must make the same choice.
        os.environ["UNKNOT_LIGHTNING"] = _choice
        sys.meta_path.insert(0, _WarnOfTheOther(NEW, OLD))
    else:
        import pytorch_lightning as pl

        sys.meta_path.insert(0, _WarnOfTheOther(OLD, NEW))

__all__ = ["PRIVATE", "batches_done", "correct_step", "pl", "values_due"]

PRIVATE = {
    "loops.training_epoch_loop:_TrainingEpochLoop": ("batch_progress", "_batches_that_stepped"),
    "trainer.connectors.logger_connector.logger_connector:_LoggerConnector": ("should_update_logs",),
    "loggers.csv_logs:ExperimentWriter": ("_check_log_dir_exists", "_rewrite_with_new_header", "metrics_keys"),
    "loggers.csv_logs:CSVLogger": ("_experiment",),
    "cli:LightningCLI": ("_add_configure_optimizers_method_to_model", "config_dump", "config_init"),
}
"""Private parts of Lightning that unknot uses, by class: here, in ``training.callbacks`` and in
``training.lightning_cli``. A test checks that each is there."""


def batches_done(trainer: "pl.Trainer | None") -> int:
    """Return how many batches, over all epochs and resumed runs, training has consumed."""
    return trainer.fit_loop.epoch_loop.batch_progress.total.processed if trainer else 0  # type: ignore[attr-defined]


def values_due(trainer: "pl.Trainer") -> bool:
    """Return whether a logger or a callback will read what is logged in this training step."""
    last = trainer.is_last_batch or trainer.global_step + 1 == trainer.max_steps
    watched = any(str(getattr(callback, "monitor", "")).startswith("train/") for callback in trainer.callbacks)  # type: ignore[attr-defined]
    return last or watched or trainer._logger_connector.should_update_logs


def correct_step(trainer: "pl.Trainer", step: int) -> None:
    """Log the next step as ``step``: Lightning would skip one for a run resumed at its end."""
    loop = trainer.fit_loop.epoch_loop
    if loop._batches_that_stepped == step + 1:
        loop._batches_that_stepped = step
