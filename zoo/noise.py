"""Random noise as a function of the step, so that a resumed run draws the same noise as an uninterrupted one."""

from typing import Any

import torch

from unknot.lightning import batches_done, pl
from unknot.randomness import Stream, derive_seed, generator_states, kept_generators, restore_generators, seed_device


class Noise(pl.Callback):
    """Seed the global random generators for each step, and restore their state afterwards.

    The noise of a step depends only on the run's seed, the rank and the step number. Other users of the global
    generators, such as a shuffling loader, are not affected by the model. Held-out batches have the same noise every
    time, so that their losses are comparable.
    """

    def __init__(self) -> None:
        self.seed: int | None = None
        self._states: dict[str, torch.Tensor] | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Choose a seed, the same on all ranks; a resumed checkpoint overrides it."""
        if stage == "fit":
            with kept_generators():  # peek at the next random number, so that two fits in one program differ
                self.seed = trainer.strategy.broadcast(int(torch.empty((), dtype=torch.int64).random_()))

    def _begin(self, model: pl.LightningModule, *key: int) -> None:
        self._give_back()
        self._states = generator_states(model.device)
        seed_device(derive_seed(*key), model.device)

    def _give_back(self) -> None:
        if self._states is not None:
            restore_generators(self._states)
            self._states = None

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Seed the noise of this step."""
        assert self.seed is not None
        self._begin(pl_module, self.seed, Stream.TRAIN_NOISE, trainer.global_rank, batches_done(trainer))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Restore the generators."""
        self._give_back()

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Seed the noise of a held-out batch."""
        self._begin(pl_module, 0, Stream.HELD_OUT_NOISE, trainer.global_rank, dataloader_idx, batch_idx)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Restore the generators."""
        self._give_back()

    on_test_batch_start = on_predict_batch_start = on_validation_batch_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Restore the generators after a step that failed."""
        self._give_back()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Store the seed."""
        checkpoint["noise_seed"] = self.seed

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Restore the seed of the saved run, if it has one."""
        seed = checkpoint.get("noise_seed")
        self.seed = self.seed if seed is None else seed
