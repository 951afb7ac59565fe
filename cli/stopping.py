"""Ctrl-C and SIGTERM end a training between two steps, with everything saved."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from unknot.cli.run_folder import LAST


class Stopped(BaseException):
    """A training that was asked to stop, and did."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class StopCleanly(Callback):
    """Finish the step, save ``last.ckpt``, stop. A second signal stops at once."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.training = False
        self.listens = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals meanwhile; Python lets only the main thread do so."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
        for signum in before:
            signal.signal(signum, self._receive)
        self.listens = True
        try:
            yield
        finally:
            self.listens = False
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        if not self.training or self.signum is not None:
            raise Stopped(signum)
        self.signum = signum
        print("Stopping after this step; again to stop at once.", file=sys.stderr, flush=True)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on there is something to save; several processes would stop at different steps, so they do not."""
        self.training = trainer.world_size == 1
        if self.training and self.listens:  # the Trainer's own handler would stop in a validation, and nothing is saved
            signal.signal(signal.SIGTERM, self._receive)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The end comes anyway."""
        self.training = False

    def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
        """Stop if asked."""
        if self.signum is not None:
            if trainer.log_dir is not None and trainer.loggers:
                trainer.save_checkpoint(Path(trainer.log_dir) / "checkpoints" / LAST, weights_only=False)
            raise Stopped(self.signum)
