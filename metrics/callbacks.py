"""Callbacks that score a model during training: latents or predicted sets."""

from collections.abc import Iterable, Sequence
from typing import Any

from unknot.arguments import whole
from unknot.datamodules import GroundTruthDataset
from unknot.lightning import pl
from unknot.metrics.classes.objects import SetAveragePrecision
from unknot.metrics.evaluation import evaluate
from unknot.metrics.functional.sets import THRESHOLDS


class ScoreCallback(pl.Callback):
    """Callback that runs :func:`unknot.metrics.evaluate` every ``every_n_steps`` steps and logs ``score/NAME``.

    Training is not affected: the samples have their own random generators. Every rank scores the same weights on the
    same samples, so that a ``ModelCheckpoint(monitor="score/mig", mode="max")`` takes the same decision on all of them.

    Args:
        dataset: data set to draw factors and images from.
        metrics: names of scores or groups; ``["mig"]`` takes about a second, the default several.
        every_n_steps: steps between scores.
        num_train: samples to fit or score on. Fewer than the thesis' 10,000 are faster and noisier.
        num_test: further samples to test on.
        seed: seed of the samples, the same every time, so that scores are comparable.

    >>> from unknot.datamodules import DSprites
    >>> callback = ScoreCallback(DSprites(), metrics=["mig"], every_n_steps=1000)
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        metrics: str | Iterable[str] = "default",
        every_n_steps: int = 1000,
        num_train: int = 2_000,
        num_test: int = 1_000,
        seed: int = 0,
    ) -> None:
        self.dataset, self.every_n_steps = dataset, whole("every_n_steps", every_n_steps)
        self.metrics = metrics if isinstance(metrics, str) else list(metrics)
        self.num_train, self.num_test, self.seed = num_train, num_test, seed
        self._scored_at = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start counting steps here: a callback may be used for several fits, or for a resumed one."""
        self._scored_at = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Score if it is time."""
        step = trainer.global_step
        if step % self.every_n_steps or step == self._scored_at:  # several batches may make one step
            return
        self._scored_at = step
        scores = evaluate(pl_module, self.dataset, self.metrics, self.num_train, self.num_test, self.seed)
        named = {f"score/{name}": value for name, value in scores.flat().items()}
        pl_module.log_dict(named, logger=False, batch_size=1)  # for callbacks that monitor them
        for logger in trainer.loggers:  # now, whatever the loggers' interval
            logger.log_metrics(named, step=step)


class SetScores(pl.Callback):
    """Callback that logs the average precision of a set predictor on the validation data as ``val/ap_...``.

    Args:
        thresholds: distance thresholds.
    """

    def __init__(self, thresholds: Sequence[float] = THRESHOLDS) -> None:
        self.thresholds = tuple(thresholds)
        self.metric = SetAveragePrecision(self.thresholds)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Reset the scores."""
        self.metric = SetAveragePrecision(self.thresholds).to(pl_module.device)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Score the sets returned by the validation step, or predict them if the step does not return them."""
        images, targets, *_ = batch
        given = isinstance(outputs, dict) and "sets" in outputs
        self.metric.update(outputs["sets"] if given else pl_module(images), targets)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the scores of all images."""
        for name, value in self.metric.compute().items():
            pl_module.log(f"val/{name}", value, prog_bar=name == "ap_inf")  # compute() has gathered from all ranks
