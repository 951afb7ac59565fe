"""Metrics over rows that arrive in batches: the score of everything seen since the last reset.

A score must not depend on how the rows were dealt to processes, not even in its last digit; rows are therefore put into
one canonical order before they are scored, and split into training and test rows by a seed after that.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from unknot.metrics.functional.checks import Floats, Ints


class RowMetric(Metric):
    """Keeps the rows of ``update(left, right)``; a subclass scores them in ``compute``."""

    is_differentiable = False
    higher_is_better: bool | None = True
    full_state_update = False
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    left: list[Tensor]
    right: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("left", default=[], dist_reduce_fx="cat")
        self.add_state("right", default=[], dist_reduce_fx="cat")

    def update(self, codes: Tensor, factors: Tensor) -> None:
        """Add codes ``[N, D]`` and integer factors ``[N, F]``."""
        self._append(codes, factors, "codes and factors")

    def _append(self, left: Tensor, right: Tensor, names: str) -> None:
        if len(left) != len(right):  # else rows of later updates would be paired wrongly
            raise ValueError(f"{names} must have as many rows, got {len(left)} and {len(right)}.")
        self.left.append(left.detach())  # not the graph behind them
        self.right.append(right)

    def rows(self) -> tuple[Any, Any]:
        """All rows, in an order that depends on their values only."""
        left, right = (_array(dim_zero_cat(rows)) for rows in (self.left, self.right))
        if not (np.isfinite(left).all() and np.isfinite(right).all()):
            return left, right  # the score's own check will refuse them
        columns = np.concatenate([rows.reshape(len(rows), -1).astype(np.float64) for rows in (right, left)], axis=1)
        order = np.lexsort(columns.T)
        return left[order], right[order]

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw a value, or several, as torchmetrics does; by default what :meth:`compute` gives now."""
        return self._plot(val, ax)

    def _score(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float32, device=self.device)


class SplitMetric(RowMetric):
    """A metric that learns from a part of the rows and is tested on the rest.

    Args:
        test_fraction: share of the rows to test on; a third is the thesis' 10,000 + 5,000.
        seed: of the split.
        kwargs: of ``torchmetrics.Metric``.
    """

    def __init__(self, test_fraction: float = 1 / 3, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction must lie between 0 and 1, got {test_fraction}.")
        self.test_fraction, self.seed = test_fraction, seed

    def split(self) -> tuple[Floats, Ints, Floats, Ints]:
        """Rows to learn from and rows to test on, as the functions take them."""
        left, right = self.rows()
        if len(left) < 2:
            raise ValueError(f"{type(self).__name__} needs rows to learn from and rows to test on, got {len(left)}.")
        order = np.random.default_rng(self.seed).permutation(len(left))
        test = min(max(round(self.test_fraction * len(left)), 1), len(left) - 1)
        return left[order[test:]], right[order[test:]], left[order[:test]], right[order[:test]]


def _array(rows: Tensor) -> Any:
    rows = rows.detach().cpu()
    return rows.float().numpy() if rows.dtype == torch.bfloat16 else rows.numpy()
