"""Score a model while it trains."""

from collections.abc import Iterable
from typing import Any

from unknot.arguments import whole
from unknot.datamodules import GroundTruthDataset
from unknot.lightning import pl
from unknot.metrics.evaluation import evaluate


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
