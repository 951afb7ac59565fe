"""Mutual Information Gap as a ``torchmetrics.Metric``."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from unknot.metrics.functional.mig import mig


class MIG(Metric):
    """Mutual Information Gap of everything seen since the last reset; see :func:`unknot.metrics.functional.mig`.

    >>> metric = MIG()
    >>> factors = torch.arange(1000).remainder(10).reshape(-1, 1)
    >>> metric.update(factors.float(), factors)
    >>> metric.compute()
    tensor(1.)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    codes: list[Tensor]
    factors: list[Tensor]

    def __init__(self, bins: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins = bins
        self.add_state("codes", default=[], dist_reduce_fx="cat")
        self.add_state("factors", default=[], dist_reduce_fx="cat")

    def update(self, codes: Tensor, factors: Tensor) -> None:
        """Add codes ``[N, D]`` and integer factors ``[N, F]``."""
        if len(codes) != len(factors):  # else rows of later updates would be paired wrongly
            raise ValueError(f"codes and factors must have as many rows, got {len(codes)} and {len(factors)}.")
        self.codes.append(codes.detach())  # not the graph behind them
        self.factors.append(factors)

    def compute(self) -> Tensor:
        """The score of all codes seen so far."""
        score = mig(dim_zero_cat(self.codes), dim_zero_cat(self.factors), self.bins)
        return torch.tensor(score, device=self.device)
