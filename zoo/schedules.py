"""Schedules of a hyper-parameter such as β and of the learning rate, both functions of the step alone."""

import math
from typing import Any

import torch

from unknot.arguments import is_number, whole
from unknot.lightning import pl


class Anneal(pl.Callback):
    r"""Callback that changes an argument of the model, such as ``beta``, from ``start`` to ``end``.

    .. math:: \beta_t = \beta_0 + \min(1, t/T)\,(\beta_T - \beta_0)

    The value depends only on the Trainer's ``global_step``, so that a resumed run continues exactly. A saved model has
    the value of its last step as argument, and its card states the schedule.

    Args:
        attribute: name of the argument, e.g. ``"beta"``.
        start: value at step 0.
        end: value from step ``steps`` on.
        steps: steps of the change.
        geometric: multiply by a constant factor at every step, instead of adding a constant. it is weighed against
            falls slowly.

    >>> [Anneal("beta", 0.0, 4.0, steps=100).value(step) for step in (0, 25, 100, 1000)]
    [0.0, 1.0, 4.0, 4.0]
    >>> [Anneal("beta", 16.0, 1.0, steps=100, geometric=True).value(step) for step in (0, 25, 100, 1000)]
    [16.0, 8.0, 1.0, 1.0]
    """

    def __init__(self, attribute: str, start: float, end: float, steps: int, geometric: bool = False) -> None:
        if not all(is_number(value) and math.isfinite(value) for value in (start, end)):
            raise ValueError(f"start and end must be finite numbers, got {start!r} and {end!r}.")
        if geometric and not (start > 0 and end > 0):
            raise ValueError(f"A geometric change is between positive numbers, got start {start!r} and end {end!r}.")
        self.geometric = geometric
        self.attribute, self.start, self.end = attribute, float(start), float(end)
        self.steps = whole("steps", steps)

    @property
    def state_key(self) -> str:
        """Key that includes the attribute, since several callbacks may be in use."""
        return self._generate_state_key(attribute=self.attribute)

    def value(self, step: int) -> float:
        """Return the value at a step."""
        part = min(1.0, step / self.steps)
        if self.geometric:
            return self.start ** (1 - part) * self.end**part
        return self.start + (self.end - self.start) * part

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check that the model has such an argument."""
        if stage == "fit" and (self.attribute not in pl_module.hparams or not is_number(self._of(pl_module))):
            numbers = [name for name in pl_module.hparams if is_number(getattr(pl_module, name, None))]
            raise ValueError(
                f"Anneal: {type(pl_module).__name__} has no number {self.attribute!r} among its arguments; there are "
                f"{numbers}."
            )

    def _of(self, model: pl.LightningModule) -> Any:
        return getattr(model, self.attribute, None)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Set the value of this step."""
        value = self.value(trainer.global_step)
        setattr(pl_module, self.attribute, value)
        pl_module.hparams[self.attribute] = value
        plan = {"start": self.start, "end": self.end, "steps": self.steps}
        if self.geometric:
            plan["geometric"] = True
        pl_module.annealed = {**getattr(pl_module, "annealed", {}), self.attribute: plan}


class WarmupCosine(torch.optim.lr_scheduler.LambdaLR):
    """Learning rate that rises linearly from 0 over the first steps and falls to 0 along half a cosine.

    From the command line: ``--lr_scheduler WarmupCosine --lr_scheduler.warmup_steps 1000 --lr_scheduler.total_steps
    100000``.

    Args:
        optimizer: optimiser whose learning rates to change.
        warmup_steps: steps of the rise.
        total_steps: step at which the learning rate reaches 0, usually ``max_steps``.
        last_epoch: step to continue from; -1 starts from the beginning.

    >>> weights = [torch.nn.Parameter(torch.zeros(1))]
    >>> schedule = WarmupCosine(torch.optim.SGD(weights, lr=1.0), warmup_steps=2, total_steps=6)
    >>> [round(schedule.factor(step), 3) for step in range(8)]
    [0.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, warmup_steps: int, total_steps: int, last_epoch: int = -1
    ) -> None:
        if whole("warmup_steps", warmup_steps, least=0) >= whole("total_steps", total_steps):
            raise ValueError(f"warmup_steps must be less than total_steps, got {warmup_steps} and {total_steps}.")
        self.warmup_steps, self.total_steps = warmup_steps, total_steps
        super().__init__(optimizer, self.factor, last_epoch)

    def factor(self, step: int) -> float:
        """Return the factor of the learning rate at a step."""
        if step < self.warmup_steps:
            return step / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        return (1 + math.cos(math.pi * done)) / 2
