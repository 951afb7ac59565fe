"""Score a model while it trains: scores of latents, and of predicted sets."""

from collections.abc import Iterable, Sequence
from typing import Any

from unknot.arguments import whole
from unknot.datamodules import GroundTruthDataset
from unknot.lightning import pl
from unknot.metrics.classes.objects import SetAveragePrecision
from unknot.metrics.evaluation import evaluate
from unknot.metrics.functional.sets import THRESHOLDS


class ScoreCallback(pl.Callback):
    """Run :func:`unknot.metrics.evaluate` every ``every_n_steps`` training steps and log the scores as ``score/NAME``.

    Nothing of the training changes: the draws have generators of their own. Every rank scores the same weights on the
    same draws, so that a ``ModelCheckpoint(monitor="score/mig", mode="max")`` decides alike on all of them.

    Args:
        dataset: where factors and images are drawn from.
        metrics: names of scores or groups; ``["mig"]`` takes a second where the default takes some.
        every_n_steps: how often.
        num_train: samples to fit or to score on. Fewer than the thesis' 10,000 are quicker and noisier.
        num_test: further samples.
        seed: of the draws, the same every time, so that scores compare.

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
        """Score from the step after this one: a callback may serve several fits, and one that resumes."""
        self._scored_at = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Score when it is time."""
        step = trainer.global_step
        if step % self.every_n_steps or step == self._scored_at:  # accumulated gradients: several batches, one step
            return
        self._scored_at = step
        scores = evaluate(pl_module, self.dataset, self.metrics, self.num_train, self.num_test, self.seed)
        named = {f"score/{name}": value for name, value in scores.flat().items()}
        pl_module.log_dict(named, logger=False, batch_size=1)  # for callbacks that monitor them
        for logger in trainer.loggers:  # now, whichever steps the loggers are due at
            logger.log_metrics(named, step=step)


class SetScores(pl.Callback):
    """Log the average precision of a set predictor on the validation data as ``val/ap_...``.

    Args:
        thresholds: distances.
    """

    def __init__(self, thresholds: Sequence[float] = THRESHOLDS) -> None:
        self.thresholds = tuple(thresholds)
        self.metric = SetAveragePrecision(self.thresholds)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget the scores of the last time."""
        self.metric = SetAveragePrecision(self.thresholds).to(pl_module.device)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Score the sets that the loss was of; a model whose step does not give them predicts once more."""
        images, targets, *_ = batch
        given = isinstance(outputs, dict) and "sets" in outputs
        self.metric.update(outputs["sets"] if given else pl_module(images), targets)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the scores of all images."""
        for name, value in self.metric.compute().items():
            pl_module.log(f"val/{name}", value, prog_bar=name == "ap_inf")  # compute() has gathered from all ranks
