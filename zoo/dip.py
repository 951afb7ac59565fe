"""DIP-VAE-I and DIP-VAE-II (Kumar et al., 2018): paragraph "Disentangled Priors".

    max E_{p(x)} [ E_{q(z|x)} log p(x|z) - KL(q(z|x) || p(z)) ] - λ_od Σ_{i≠j} C_ij² - λ_d Σ_i (C_ii - 1)²

where C is the covariance of the means μ(x) for DIP-VAE-I, and of the samples z for DIP-VAE-II. It is taken over the
batch (under DDP: of each rank) and divided by its size; the covariance of a single image is zero.
"""

from typing import Any

import torch
from torch import Tensor

from unknot.arguments import not_negative
from unknot.zoo.vae import VAE, Posterior


def covariance(x: Tensor) -> Tensor:
    """Covariance E[x xᵀ] - E[x] E[x]ᵀ of the rows of ``x`` ``[N, D]``: ``[D, D]``."""
    centred = x - x.mean(0)
    return centred.T @ centred / len(x)


class DIPVAEI(VAE):
    r"""DIP-VAE-I: penalise the distance of the covariance of the means from the identity.

    .. math::
        \max\; \mathrm{ELBO} - \lambda_{od}\sum_{i\neq j}\left[\mathrm{Cov}_{p(x)}[\mu_\phi(x)]\right]_{ij}^2 -
        \lambda_d\sum_i\left(\left[\mathrm{Cov}_{p(x)}[\mu_\phi(x)]\right]_{ii}-1\right)^2

    Thesis: section "Learning Disentangled Representations", paragraph "Disentangled Priors".

    Args:
        lambda_od: weight λ_od of the off-diagonal entries; the study sweeps 1, 2, 5, 10, 20, 50.
        lambda_d: weight λ_d of the diagonal; ``None`` for the study's 10 λ_od.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = DIPVAEI(lambda_od=5.0)
    >>> model.lambda_d
    50.0
    """

    family = "dip"
    ratio = 10.0
    """λ_d / λ_od in the study."""

    def __init__(self, lambda_od: float = 5.0, lambda_d: float | None = None, **vae: Any) -> None:
        super().__init__(**vae)
        not_negative(lambda_od=lambda_od)
        self.lambda_od = lambda_od
        self.lambda_d = self.ratio * lambda_od if lambda_d is None else lambda_d
        not_negative(lambda_d=self.lambda_d)

    def covariance(self, posterior: Posterior) -> Tensor:
        """Return Cov_{p(x)} [μ(x)]: ``[D, D]``."""
        return covariance(posterior.mean)

    def regularizer(self, posterior: Posterior, z: Tensor, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return KL(q(z|x)

        p(z)) + λ_od Σ_{i≠j} C_ij² + λ_d Σ_i (C_ii - 1)².
        """
        c = self.covariance(posterior)
        off = ((c - torch.diag(c.diagonal())) ** 2).sum()
        on = ((c.diagonal() - 1) ** 2).sum()
        return kl + self.lambda_od * off + self.lambda_d * on, {"off_diagonal": off, "diagonal": on}


class DIPVAEII(DIPVAEI):
    r"""DIP-VAE-II: as DIP-VAE-I, with the covariance of the samples; ``lambda_d`` defaults to λ_od.

    .. math::
        \max\; \mathrm{ELBO} - \lambda_{od}\sum_{i\neq j}\left[\mathrm{Cov}_{q_\phi}[z]\right]_{ij}^2 -
        \lambda_d\sum_i\left(\left[\mathrm{Cov}_{q_\phi}[z]\right]_{ii}-1\right)^2

    Thesis: section "Learning Disentangled Representations", paragraph "Disentangled Priors".

    Arguments as for :class:`DIPVAEI`.

    >>> DIPVAEII(lambda_od=5.0).lambda_d
    5.0
    """

    ratio = 1.0

    def covariance(self, posterior: Posterior) -> Tensor:
        """Return Cov_q [z] = E_{p(x)} [Σ(x)] + Cov_{p(x)} [μ(x)]: ``[D, D]``."""
        return torch.diag(posterior.logvar.exp().mean(0)) + covariance(posterior.mean)
