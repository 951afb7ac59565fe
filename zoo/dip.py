"""DIP-VAE-I and DIP-VAE-II (Kumar et al., 2018): paragraph "Disentangled Priors".

    max E_{p(x)} [ E_{q(z|x)} log p(x|z) - KL(q(z|x) || p(z)) ] - λ_od Σ_{i≠j} C_ij² - λ_d Σ_i (C_ii - 1)²

where C is the covariance of the means μ(x) for DIP-VAE-I, and of the codes z for DIP-VAE-II. It is taken over the batch
(under DDP: of each rank) and divided by its size; the covariance of a single image is zero.
"""

import torch
from torch import Tensor

from unknot.zoo.vae import VAE, Posterior, check_weights


def covariance(x: Tensor) -> Tensor:
    """E[x xᵀ] - E[x] E[x]ᵀ of the rows of ``x`` ``[N, D]``: ``[D, D]``."""
    centred = x - x.mean(0)
    return centred.T @ centred / len(x)


class DIPVAEI(VAE):
    """DIP-VAE-I: the covariance of the means is drawn to the identity.

    Args:
        lambda_od: weight λ_od of the off-diagonal entries; the study sweeps 1, 2, 5, 10, 20, 50.
        lambda_d: weight λ_d of the diagonal; ``None`` for the study's 10 λ_od.
        image_shape: (channels, height, width).
        latent_dim: number of codes.
        lr: learning rate of Adam.
        reconstruction: ``"bernoulli"`` or ``"gaussian"``.

    >>> model = DIPVAEI(lambda_od=5.0)
    >>> model.lambda_d
    50.0
    """

    ratio = 10.0
    """λ_d / λ_od in the study."""

    def __init__(
        self,
        lambda_od: float = 5.0,
        lambda_d: float | None = None,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        lr: float = 1e-4,
        reconstruction: str = "bernoulli",
    ) -> None:
        super().__init__(image_shape, latent_dim, lr, reconstruction)
        self.lambda_od = lambda_od
        self.lambda_d = self.ratio * lambda_od if lambda_d is None else lambda_d
        check_weights(lambda_od=self.lambda_od, lambda_d=self.lambda_d)

    def covariance(self, posterior: Posterior) -> Tensor:
        """Cov_{p(x)} [μ(x)]: ``[D, D]``."""
        return covariance(posterior.mean)

    def regularizer(self, posterior: Posterior, z: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """KL(q(z|x) || p(z)) + λ_od Σ_{i≠j} C_ij² + λ_d Σ_i (C_ii - 1)²."""
        c = self.covariance(posterior)
        diagonal = c.diagonal()
        terms["off_diagonal"] = ((c - torch.diag(diagonal)) ** 2).sum()
        terms["diagonal"] = ((diagonal - 1) ** 2).sum()
        return terms["kl"] + self.lambda_od * terms["off_diagonal"] + self.lambda_d * terms["diagonal"]


class DIPVAEII(DIPVAEI):
    """DIP-VAE-II: the covariance of the codes is drawn to the identity; ``lambda_d`` defaults to λ_od.

    Arguments as for :class:`DIPVAEI`.

    >>> DIPVAEII(lambda_od=5.0).lambda_d
    5.0
    """

    ratio = 1.0

    def covariance(self, posterior: Posterior) -> Tensor:
        """Cov_q [z] = E_{p(x)} [Σ(x)] + Cov_{p(x)} [μ(x)]: ``[D, D]``."""
        return torch.diag(posterior.logvar.exp().mean(0)) + covariance(posterior.mean)
