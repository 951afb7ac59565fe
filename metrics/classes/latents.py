"""Scores of codes and factors as ``torchmetrics.Metric``, computed by the functions of ``functional``."""

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from unknot.metrics import functional
from unknot.metrics.classes.base import RowMetric, SplitMetric
from unknot.metrics.functional.checks import Floats
from unknot.metrics.functional.dci import SCORES
from unknot.metrics.functional.identifiability import Correlation
from unknot.metrics.functional.infomec import Pruning
from unknot.metrics.functional.trees import Backend


class MIG(RowMetric, score="mig"):
    """Mutual Information Gap; see :func:`unknot.metrics.functional.mig`.

    >>> metric = MIG()
    >>> factors = torch.arange(1000).remainder(10).reshape(-1, 1)
    >>> metric.update(factors.float(), factors)
    >>> metric.compute()
    tensor(1.)
    """

    def __init__(self, bins: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins = bins

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.mig(*self.rows(), self.bins))


class DCI(SplitMetric, score="dci"):
    """Disentanglement, completeness and informativeness; see :func:`unknot.metrics.functional.dci`.

    Args:
        backend: implementation of the boosted trees, ``"unknot"`` or ``"sklearn"``.
        score: one of ``"disentanglement"``, ``"completeness"``, ``"informativeness_train"`` and
            ``"informativeness_test"``, to return a single number; by default all four are returned, named
            ``dci_disentanglement`` and so on.
        test_fraction: share of the rows to test on.
        seed: seed of the split and of scikit-learn's trees.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = DCI()
    >>> factors = torch.arange(300).remainder(3).reshape(-1, 1)
    >>> metric.update(factors.float(), factors)
    >>> metric.compute()["dci_informativeness_test"]
    tensor(1.)
    >>> metric = DCI(score="disentanglement")
    >>> metric.update(factors.float(), factors)
    >>> metric.compute()
    tensor(1.)
    """

    def __init__(self, backend: Backend = "unknot", score: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if score is not None and score not in SCORES:
            raise ValueError(f"score must be one of {', '.join(SCORES)}, or None for all, got {score!r}.")
        self.backend, self.score = backend, score
        self.names = () if score else tuple(f"dci_{name}" for name in SCORES)

    def compute(self) -> dict[str, Tensor] | Tensor:
        """Return the four scores of all rows so far, or the selected one."""
        scores = functional.dci(*self.split(), backend=self.backend, seed=self.seed)
        if self.score is not None:
            return self._score(scores[self.score])
        return _Renamed({f"dci_{name}": self._score(scores[name]) for name in SCORES})


class _Renamed(dict[str, Tensor]):
    """Dictionary that still accepts the former, shorter names of the scores, with a warning, for one more release."""

    def __missing__(self, name: str) -> Tensor:
        if f"dci_{name}" not in self:
            raise KeyError(name)
        warnings.warn(f"This score of DCI is now called 'dci_{name}'.", DeprecationWarning, stacklevel=2)
        return self[f"dci_{name}"]

    def __reduce__(self) -> Any:  # torch.load reads it without this class
        return OrderedDict, (), None, None, iter(self.items())


class SAP(SplitMetric, score="sap"):
    """Separated Attribute Predictability; see :func:`unknot.metrics.functional.sap`.

    Args:
        continuous_factors: use squared correlations instead of an SVM's accuracy.
        kwargs: ``test_fraction``, ``seed``, and arguments of ``torchmetrics.Metric``.

    >>> metric = SAP(continuous_factors=True)
    >>> factors = torch.arange(300).reshape(-1, 1) % torch.tensor([[3, 4]])
    >>> metric.update(factors.float(), factors)  # latent i is factor i
    >>> bool(metric.compute() > 0.95)
    True
    """

    def __init__(self, continuous_factors: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.continuous_factors = continuous_factors

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.sap(*self.split(), continuous_factors=self.continuous_factors))


class Modularity(RowMetric, score="modularity"):
    """Modularity; see :func:`unknot.metrics.functional.modularity`.

    Args:
        bins: intervals of each latent.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = Modularity()
    >>> factors = torch.arange(300).reshape(-1, 1) % torch.tensor([[3, 4]])
    >>> metric.update(factors.float(), factors)  # latent i is factor i
    >>> metric.compute()
    tensor(1.)
    """

    def __init__(self, bins: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins = bins

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.modularity(*self.rows(), self.bins))


class Explicitness(SplitMetric, score="explicitness"):
    """Explicitness; see :func:`unknot.metrics.functional.explicitness`.

    Args:
        kwargs: ``test_fraction``, ``seed``, and arguments of ``torchmetrics.Metric``.

    >>> metric = Explicitness()
    >>> factors = torch.arange(300).reshape(-1, 1) % torch.tensor([[3, 4]])
    >>> metric.update(factors.float(), factors)  # latent i is factor i
    >>> metric.compute()
    tensor(1.)
    """

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.explicitness(*self.split()))


class IRS(RowMetric, score="irs"):
    """Interventional Robustness Score; see :func:`unknot.metrics.functional.irs`.

    Args:
        bins: intervals of each factor; ``None`` uses its classes.
        quantile: quantile of the deviations in each group.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = IRS()
    >>> factors = torch.arange(300).reshape(-1, 1) % torch.tensor([[3, 4]])
    >>> metric.update(factors.float(), factors)  # latent i is factor i
    >>> metric.compute()
    tensor(1.)
    """

    def __init__(self, bins: int | None = 20, quantile: float = 0.99, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins, self.quantile = bins, quantile

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.irs(*self.rows(), self.bins, self.quantile))


class DownstreamAccuracy(SplitMetric, score="downstream_gbt"):
    """Mean accuracy of predicting the factors; see :func:`unknot.metrics.functional.downstream_accuracy`.

    Args:
        classifier: ``"gbt"`` or ``"lr"``.
        backend: implementation of the classifier, ``"unknot"`` or ``"sklearn"``.
        test_fraction: share of the rows to test on.
        seed: seed of the split.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = DownstreamAccuracy("gbt")
    >>> factors = torch.arange(300).reshape(-1, 1) % torch.tensor([[3, 4]])
    >>> metric.update(factors.float(), factors)  # latent i is factor i
    >>> metric.compute()
    tensor(1.)
    """

    def __init__(self, classifier: str = "gbt", backend: Backend = "unknot", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.classifier, self.backend = classifier, backend

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.downstream_accuracy(*self.split(), self.classifier, self.backend))


class TotalCorrelation(RowMetric, score="total_correlation"):
    """Gaussian total correlation of the codes; see :func:`unknot.metrics.functional.total_correlation`.

    >>> metric = TotalCorrelation()
    >>> metric.update(torch.randn(1000, 2, generator=torch.Generator().manual_seed(0)))
    >>> bool(metric.compute() < 0.01)
    True
    """

    def update(self, codes: Any, factors: Any = None) -> None:
        """Add codes ``[N, D]``. Factors are ignored: they are accepted so that a collection can pass them."""
        nothing = torch.zeros(len(codes), dtype=torch.uint8)
        self._append(codes, nothing, ("codes", "[N, D]"), ("nothing", "[N]"))

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.total_correlation(self.rows()[0]))


class FactorCodes(SplitMetric):
    """Factor-code matrix ``[D, F]``, with a plot of the matrix, of groups of factors, and of how they merge.

    Args:
        estimator: ``"importance"`` of boosted trees, mutual ``"information"``, or ``"predictability"`` by an SVM.
        factor_names: names of the factors, for the plot.
        test_fraction: share of the rows to test on (SVM only; the others use all rows).
        seed: seed of the split.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = FactorCodes("information")
    >>> factors = torch.arange(300).remainder(3).reshape(-1, 1)
    >>> metric.update(torch.hstack([factors, 0 * factors]).float(), factors)
    >>> metric.compute()
    tensor([[1.0986],
            [0.0000]])
    """

    def __init__(
        self,
        estimator: Literal["importance", "information", "predictability"] = "importance",
        factor_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if estimator not in ("importance", "information", "predictability"):
            raise ValueError(f"estimator must be 'importance', 'information' or 'predictability', got {estimator!r}.")
        self.estimator, self.factor_names = estimator, factor_names

    def compute(self) -> Tensor:
        """Return the matrix of all rows so far."""
        return torch.from_numpy(self._matrix()).float().to(self.device)

    def _matrix(self) -> Floats:
        if self.estimator == "importance":
            return functional.importance_matrix(*self.rows()).values
        if self.estimator == "information":
            return functional.information_matrix(*self.rows()).values
        return functional.predictability_matrix(*self.split()).values

    def plot(self, val: Tensor | None = None, ax: Any = None) -> Any:
        """Plot a matrix, by default the result of :meth:`compute`, on three axes below each other.

        Args:
            val: a matrix ``[D, F]``.
            ax: three matplotlib axes; by default those of a new figure.

        Returns:
            The figure and its three axes.
        """
        from unknot.metrics.plots import plot_matrix

        return plot_matrix(self._matrix() if val is None else val, self.factor_names, ax)


class InfoMEC(RowMetric, score="infomec"):
    """InfoM, InfoE and InfoC; see :func:`unknot.metrics.functional.infomec`.

    Args:
        discrete_codes: whether the latents take few values.
        pruning: rule that selects active latents.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = InfoMEC(discrete_codes=True)
    >>> factors = torch.arange(300).reshape(-1, 1) % torch.tensor([[3, 4]])
    >>> metric.update(factors.float(), factors)  # latent i is factor i
    >>> {name: round(float(value), 2) for name, value in metric.compute().items()}
    {'infom': 1.0, 'infoe': 1.0, 'infoc': 1.0}
    """

    names = ("infom", "infoe", "infoc")

    def __init__(self, discrete_codes: bool = False, pruning: Pruning = "range", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.discrete_codes, self.pruning = discrete_codes, pruning

    def compute(self) -> dict[str, Tensor]:
        """Return the three scores of all rows so far."""
        scores = functional.infomec(*self.rows(), self.discrete_codes, self.pruning)
        return {name: self._score(value) for name, value in scores.items()}


class MCC(RowMetric, score="mcc"):
    """Mean correlation coefficient; see :func:`unknot.metrics.functional.mcc`.

    Args:
        correlation: ``"pearson"`` or ``"spearman"``.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> metric = MCC()
    >>> factors = torch.arange(300).reshape(-1, 1) % torch.tensor([[3, 4]])
    >>> metric.update(-factors.float(), factors)  # latent i is minus factor i
    >>> metric.compute()
    tensor(1.)
    """

    def __init__(self, correlation: Correlation = "pearson", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.correlation = correlation

    def update(self, codes: Any, factors: Any) -> None:
        """Add codes ``[N, D]`` and numbers ``[N, F]``, tensors or arrays."""
        self._append(codes, factors, ("codes", "[N, D]"), ("targets", "[N, F]"))

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.mcc(*self.rows(), self.correlation))
