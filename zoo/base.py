"""What every model of the zoo does the same: steps, logging, noise that resumes exactly, saving and loading."""

import math
from typing import Any

import torch
from torch import Tensor

from unknot._lightning import batches_done, logging_due, pl
from unknot._memory import keep_freed_memory
from unknot._seeding import Stream, derive_seed, seed_device
from unknot.zoo.networks import check_images
from unknot.zoo.pretrained import Pretrained


class Model(Pretrained, pl.LightningModule):
    """A model of images; a subclass has ``image_shape`` and says what it minimises in :meth:`losses`.

    Args:
        lr: learning rate.
    """

    image_shape: tuple[int, int, int]

    def __init__(self, lr: float) -> None:
        super().__init__()
        if not 0 < lr < math.inf:
            raise ValueError(f"lr must be positive and finite, got {lr}.")
        self.lr = lr
        self._noise_seed: int | None = None

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """All terms of the objective for a batch; ``"loss"`` is the one to minimise."""
        raise NotImplementedError

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Minimise ``losses(batch)["loss"]``."""
        return self._step("train", batch, batch_idx)["loss"]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log all terms as ``val/...``."""
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Log all terms as ``test/...``."""
        self._step("test", batch, batch_idx)

    def _step(self, stage: str, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        images = first_of(batch)
        self._look_at(images, batch_idx)
        terms = self.losses(batch)
        self._report(stage, terms, batch_idx, len(images))
        return terms

    # What surrounds the mathematics is no matter for torch.compile.

    @torch.compiler.disable
    def _look_at(self, images: Tensor, batch_idx: int) -> None:
        if batch_idx == 0:
            check_images(images, self.image_shape, values=True)

    @torch.compiler.disable
    def _report(self, stage: str, terms: dict[str, Tensor], batch_idx: int, batch_size: int) -> None:
        if stage == "train" and (terms["loss"].is_cpu or batch_idx % 50 == 0):  # on a GPU every look waits for it
            self._stop_unless_finite(terms)
        # Logging takes a millisecond: do it in training only when a logger writes, or for a look at the progress bar.
        held_out = stage != "train"
        if held_out or logging_due(self.trainer) or batch_idx % 10 == 0:
            values = {f"{stage}/{name}": value.detach() for name, value in terms.items()}
            loss = values.pop(f"{stage}/loss")
            self.log(f"{stage}/loss", loss, prog_bar=True, sync_dist=held_out, batch_size=batch_size)
            self.log_dict(values, sync_dist=held_out, batch_size=batch_size)

    def _stop_unless_finite(self, terms: dict[str, Tensor]) -> None:
        if not torch.isfinite(terms["loss"]):
            shown = ", ".join(f"{name} {value.item():.4g}" for name, value in terms.items())
            raise FloatingPointError(
                f"Training stopped at step {self.global_step}: the loss is not finite ({shown}). Lower the learning "
                f"rate (lr={self.lr:g}) or the regularisation, and resume from the last checkpoint."
            )

    # Every step starts from a seed of its own, so that a resumed run draws the noise the interrupted one would
    # have drawn, whatever validation, pictures or other code took from the global generator in between.

    def setup(self, stage: str) -> None:
        """Settle the seed of the noise, the same on all ranks; a checkpoint to resume from overrides it."""
        if stage == "fit":
            self._noise_seed = self.trainer.strategy.broadcast(torch.initial_seed())

    def on_fit_start(self) -> None:
        """Remember the data set; on a CPU, make memory cheap."""
        if self.device.type == "cpu":
            keep_freed_memory()
        dataset = getattr(getattr(self.trainer, "datamodule", None), "dataset", None)
        self.trained_on = getattr(dataset, "name", self.trained_on)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed the noise of this step."""
        assert self._noise_seed is not None
        key = derive_seed(self._noise_seed, Stream.TRAIN_NOISE, self.global_rank, batches_done(self.trainer))
        seed_device(key, self.device)

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Seed the noise of held-out batches, always the same, so that their losses compare."""
        key = derive_seed(0, Stream.HELD_OUT_NOISE, self.global_rank, dataloader_idx, batch_idx)
        seed_device(key, self.device)

    on_test_batch_start = on_validation_batch_start
    on_predict_batch_start = on_validation_batch_start

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the seed of the noise."""
        checkpoint["noise_seed"] = self._noise_seed
        checkpoint["trained_on"] = self.trained_on

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on with the noise of the saved run."""
        self._noise_seed = checkpoint["noise_seed"]
        self.trained_on = checkpoint["trained_on"]


def first_of(batch: Any) -> Tensor:
    """The images of a batch that is a tensor, or a tuple or list that starts with them."""
    return batch[0] if isinstance(batch, tuple | list) else batch
