"""Interventional scores as ``torchmetrics.Metric``."""

from typing import Any, Literal

from torch import Tensor

from unknot.metrics import functional
from unknot.metrics.classes.base import RowMetric, SplitMetric


class BetaVAEScore(SplitMetric, score="beta_vae"):
    """BetaVAE score; see :func:`unknot.metrics.functional.beta_vae_score`.

    Args:
        kwargs: ``test_fraction``, ``seed``, and arguments of ``torchmetrics.Metric``.

    >>> import torch
    >>> metric = BetaVAEScore()
    >>> labels = torch.arange(90) % 3
    >>> metric.update(1.0 - torch.eye(3)[labels], labels)  # the latent of the shared factor is equal
    >>> metric.compute()
    tensor(1.)
    """

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Add features ``[N, D]`` and the factor fixed in each, ``[N]``."""
        self._append(features, labels, ("features", "[N, D]"), ("labels", "[N]"))

    def compute(self) -> Tensor:
        """Return the score of all rows so far."""
        return self._score(functional.beta_vae_score(*self.split()))


class FactorVAEScore(SplitMetric, score="factor_vae"):
    """FactorVAE score; see :func:`unknot.metrics.functional.factor_vae_score`.

    Args:
        latent_dim: number of latents.
        test_fraction: share of the votes to test on.
        seed: seed of the split.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> import torch
    >>> metric = FactorVAEScore(latent_dim=3)
    >>> labels = torch.arange(90) % 3
    >>> metric.update(labels, labels)  # the latent of the fixed factor varies least
    >>> metric.compute()
    tensor(1.)
    """

    def __init__(self, latent_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.latent_dim = latent_dim

    def update(self, argmin: Tensor, labels: Tensor) -> None:
        """Add the latent that varied least ``[N]`` and the factor that was fixed ``[N]``."""
        self._append(argmin, labels, ("argmin", "[N]"), ("labels", "[N]"))

    def compute(self) -> Tensor:
        """Return the score of all votes so far."""
        return self._score(functional.factor_vae_score(*self.split(), latent_dim=self.latent_dim))


class Unfairness(RowMetric, score="unfairness"):
    """Unfairness of predictions; see :func:`unknot.metrics.functional.unfairness`.

    Args:
        reduction: ``"mean"``, ``"uniform"`` or ``"max"`` over sensitive groups.
        kwargs: arguments of ``torchmetrics.Metric``.

    >>> import torch
    >>> metric = Unfairness()
    >>> metric.update(torch.tensor([1, 1, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 1]))
    >>> metric.compute()
    tensor(0.2222)
    """

    def __init__(self, reduction: Literal["mean", "uniform", "max"] = "mean", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reduction: Literal["mean", "uniform", "max"] = reduction

    def update(self, predictions: Tensor, sensitive: Tensor) -> None:
        """Add predicted classes ``[N]`` and the sensitive factor of each ``[N]``."""
        self._append(predictions, sensitive, ("predictions", "[N]"), ("sensitive", "[N]"))

    def compute(self) -> Tensor:
        """Return the score of all predictions so far."""
        return self._score(functional.unfairness(*self.rows(), reduction=self.reduction))
