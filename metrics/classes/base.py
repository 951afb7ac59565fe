"""Base classes of metrics over rows that arrive in batches, scored since the last reset.

A score must not depend on how the rows were distributed over processes, not even in its last digit. Rows are therefore
put into a canonical order before they are split into training and test rows by a seed.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities.data import dim_zero_cat

from unknot.arguments import fraction, whole
from unknot.labels import MISSING
from unknot.metrics.functional.checks import Floats, Ints
from unknot.metrics.registry import about

FLOATS = ("codes", "features", "predictions of sets", "targets")
LABELS = (
    "factors",
    "sensitive",
    "labels",
)  # NaN and -1 mean missing; all others hold integer classes


class ScoreMetric(Metric):
    """``torchmetrics.Metric`` with the direction and bounds of the registered score named by ``score``."""

    is_differentiable = False
    higher_is_better: bool | None = None
    full_state_update = False
    plot_lower_bound: float | None = None
    plot_upper_bound: float | None = None
    names: tuple[str, ...] = ()
    """Keys of the result of :meth:`compute`, if it is a dictionary."""

    def __init_subclass__(cls, score: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if score is not None:
            facts = about(score)
            cls.higher_is_better = None if facts.better is None else facts.better == "higher"
            cls.plot_lower_bound, cls.plot_upper_bound = facts.bounds

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one value or several, as torchmetrics does; by default the result of :meth:`compute`."""
        figure, axes = self._plot(val, ax)
        if ax is None:
            figure.set_size_inches(8, 4.8)
            figure.tight_layout()  # makes room for the legend of several numbers
        return figure, axes

    def need(self, state: list[Tensor]) -> list[Tensor]:
        """Concatenate the rows of a state, or raise an error if there are none."""
        if isinstance(state, list) and not state:
            raise ValueError(f"{type(self).__name__} has seen no data: call update(...) before compute().")
        return state


class ScoreCollection(MetricCollection):
    """A ``torchmetrics.MetricCollection`` that can also plot metrics of several numbers, such as :class:`DCI`.

    A plain ``MetricCollection`` computes the same values under the same names. Its ``plot()`` looks up each metric by
    the name of its class, and so raises a ``KeyError`` for metrics that return a dictionary.

    >>> import torch
    >>> from unknot.metrics import DCI, MIG
    >>> scores = ScoreCollection([DCI(), MIG()], prefix="val/")
    >>> factors = torch.arange(300).remainder(3).reshape(-1, 1)
    >>> scores.update(factors.float(), factors)
    >>> sorted(scores.compute())[:3]
    ['val/MIG', 'val/dci_completeness', 'val/dci_disentanglement']
    >>> len(scores.plot())
    2
    """

    def plot(self, val: Any = None, ax: Any = None, together: bool = False) -> Any:
        """Plot each metric on its own axes, or all ``together``.

        Args:
            val: result of :meth:`compute`, or a list of such results; by default the current scores.
            ax: axes to draw on, one for each metric; one alone for all together.
            together: draw all metrics on the same axes.

        Returns:
            A figure and its axes for each metric, or one pair for all together.
        """
        val = val or self.compute()
        if together:
            return super().plot(val, ax, together)
        several = [val] if isinstance(val, dict) else list(val)
        names = dict(zip(self.keys(keep_base=True), self.keys(keep_base=False), strict=True))
        for base, metric in self.items(keep_base=True, copy_state=False):
            own = {name: (self._set_name(name), self._set_name(f"{base}_{name}")) for name in _names_of(metric)}
            if own:
                several = [
                    values | {names[base]: {name: values[a if a in values else b] for name, (a, b) in own.items()}}
                    for values in several
                ]
        return super().plot(several[0] if isinstance(val, dict) else several, ax)


def _names_of(metric: Any) -> tuple[str, ...]:
    return tuple(getattr(metric, "names", ()))


class RowMetric(ScoreMetric):
    """Metric that stores the rows of ``update(left, right)``; a subclass scores them in ``compute``."""

    left: list[Tensor]
    right: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("left", default=[], dist_reduce_fx="cat")
        self.add_state("right", default=[], dist_reduce_fx="cat")

    def update(self, codes: Any, factors: Any) -> None:
        """Add codes ``[N, D]`` and labels ``[N, F]``, tensors or arrays; NaN and -1 are missing labels."""
        self._append(codes, factors, ("codes", "[N, D]"), ("factors", "[N, F]"))

    def _append(self, left: Any, right: Any, *names: tuple[str, str]) -> None:
        """Store rows after checking their shape and type.

        Values are checked in ``compute``, because reading them waits for the device.
        """
        pair = [torch.as_tensor(rows, device=self.device).detach() for rows in (left, right)]  # without their graph
        for rows, (name, shape) in zip(pair, names, strict=True):
            if rows.ndim != shape.count(",") + 1:
                raise ValueError(f"{name} must have shape {shape}, got {list(rows.shape)}.")
            if rows.is_complex() or (name not in (*FLOATS, *LABELS) and rows.is_floating_point()):
                raise ValueError(f"{name} must be integer classes, got {rows.dtype}.")
        if len(pair[0]) != len(pair[1]):  # otherwise rows of later updates would be paired wrongly
            together = " and ".join(name for name, _ in names)
            raise ValueError(f"{together} must have as many rows, got {len(pair[0])} and {len(pair[1])}.")
        for rows, kept, (name, _) in zip(pair, (self.left, self.right), names, strict=True):
            if kept and rows.shape[1:] != kept[0].shape[1:]:
                wide, now = list(kept[0].shape[1:]), list(rows.shape[1:])
                raise ValueError(f"{name} must be as wide as in the first update, {wide}, got {now}.")
        self.left.append(pair[0])
        self.right.append(pair[1])

    def rows(self) -> tuple[Any, Any]:
        """Return all rows, in an order that depends only on their values."""
        left, right = (_array(dim_zero_cat(self.need(rows))) for rows in (self.left, self.right))
        if not np.isfinite(left).all() or np.isinf(right).any():
            return left, right  # the score itself reports them
        labels = np.where(np.isnan(right), MISSING, right)  # only for sorting
        columns = np.concatenate([rows.reshape(len(rows), -1).astype(np.float64) for rows in (labels, left)], axis=1)
        order = np.lexsort(columns.T)
        return left[order], right[order]

    def _score(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float32, device=self.device)


class SplitMetric(RowMetric):
    """Metric that is fitted on a part of the rows and tested on the rest.

    Args:
        test_fraction: share of the rows to test on; a third is the thesis' 10,000 + 5,000.
        seed: seed of the split.
        kwargs: arguments of ``torchmetrics.Metric``.
    """

    def __init__(self, test_fraction: float = 1 / 3, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        fraction(test_fraction=test_fraction)
        self.test_fraction, self.seed = test_fraction, whole("seed", seed, least=0)

    def split(self) -> tuple[Floats, Ints, Floats, Ints]:
        """Return the rows to fit on and the rows to test on, as the functions take them."""
        left, right = self.rows()
        if len(left) < 2:
            raise ValueError(f"{type(self).__name__} needs rows to fit on and rows to test on, got {len(left)}.")
        order = np.random.default_rng(self.seed).permutation(len(left))
        test = min(max(round(self.test_fraction * len(left)), 1), len(left) - 1)
        return left[order[test:]], right[order[test:]], left[order[:test]], right[order[:test]]


def _array(rows: Tensor) -> Any:
    rows = rows.detach().cpu()
    return rows.float().numpy() if rows.dtype == torch.bfloat16 else rows.numpy()
