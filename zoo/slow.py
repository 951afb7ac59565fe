"""SlowVAE: pairs of neighbouring video frames, whose latents mostly stay constant and sometimes jump.

Klindt et al., 2021, "Towards Nonlinear Disentanglement in Natural Data with Temporal Sparse Coding". The prior of the
second latent code given the first is a Laplace distribution, p(z_b|z_a) = Π_j λ/2 exp(-λ |z_bj - z_aj|), and both
images of a pair take the role of the first in turn:

    min -log p(x₁|z₁) - log p(x₂|z₂) + β ½ [KL(q₁ || p) + KL(q₂ || p)] + γ [KL(q₁ || p(·|z₂)) + KL(q₂ || p(·|z₁))]
"""

import math
from typing import Any

import torch
from torch import Tensor

from unknot.arguments import not_negative, positive
from unknot.zoo.vae import BetaVAE, Posterior
from unknot.zoo.weak import _pair


def laplace_cross_entropy(first: Posterior, second: Posterior, rate: float) -> Tensor:
    """Cross-entropy E_{z ~ q₁} [-log p(z)] under a Laplace distribution around the mean of q₂, per latent ``[N, D]``.

        -log(λ/2) + λ σ √(2/π) exp(-m²/2σ²) - λ m (1 - 2 Φ(m/σ)),   m = μ₁ - μ₂, σ = σ₁

    >>> wide = Posterior(torch.zeros(1, 1), torch.zeros(1, 1))
    >>> laplace_cross_entropy(wide, wide, rate=6.0).item()
    3.6886...
    """
    gap, std = first.mean - second.mean, (first.logvar / 2).exp()
    ratio = gap / std
    spread = std * math.sqrt(2 / math.pi) * torch.exp(-(ratio**2) / 2)
    return rate * (spread + gap * torch.erf(ratio / math.sqrt(2))) - math.log(rate / 2)


def entropy(posterior: Posterior) -> Tensor:
    """Entropy of each latent of a Gaussian posterior, ½ (log 2π e + log σ²): ``[N, D]``."""
    return (math.log(2 * math.pi * math.e) + posterior.logvar) / 2


class SlowVAE(BetaVAE):
    r"""SlowVAE (Klindt et al., 2021): latents of two neighbouring frames are close, with sparse changes.

    .. math::
        \max\; \sum_{i} \mathbb{E}_{q(z|x_i)} \log p(x_i|z) - \frac{\beta}{2} \sum_{i} D_{KL}(q(z|x_i)\,\|\,p(z)) -
        \gamma \sum_{i\neq j} D_{KL}(q(z|x_i)\,\|\,p(z|z_j))

    .. math:: p(z|z_j) = \prod_d \frac{\lambda}{2} e^{-\lambda |z_d - z_{jd}|}

    A batch is ``(first, second)``, as :class:`~unknot.datamodules.FramePairDataModule` and ``PairDataModule`` return
    it; more entries are ignored.

    The paper and its code differ in the last term. The paper has the KL in both directions, which subtracts both
    entropies from the two cross-entropies: this is the default. The code subtracts only their mean, as does
    ``reference=True``. The loss is half of the displayed sum, so that it is comparable with other models.

    Args:
        gamma: weight γ of the transition; the authors search 1 to 16.
        rate: rate λ of the Laplace prior; the authors search 1 to 10.
        beta: weight of the KL to the standard normal.
        reference: subtract one entropy, as the authors' code does, instead of both.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = SlowVAE(image_shape=(1, 32, 32))
    >>> sorted(model.losses((torch.rand(2, 1, 32, 32), torch.rand(2, 1, 32, 32))))
    ['elbo', 'kl', 'loss', 'reconstruction', 'transition', 'weak_reconstruction']
    """

    family = "slow"
    batch = "pairs"

    def __init__(
        self, gamma: float = 10.0, rate: float = 6.0, beta: float = 1.0, reference: bool = False, **vae: Any
    ) -> None:
        super().__init__(beta, **vae)
        not_negative(gamma=gamma)
        positive(rate=rate)
        self.gamma, self.rate, self.reference = gamma, rate, reference

    def transition(self, first: Posterior, second: Posterior) -> Tensor:
        """Return KL(q₁

        p(·|z₂)) + KL(q₂

        p(·|z₁)), the mean over pairs.
        """
        there = laplace_cross_entropy(first, second, self.rate)
        back = laplace_cross_entropy(second, first, self.rate)
        entropies = entropy(first) + entropy(second)
        return (there + back - (entropies / 2 if self.reference else entropies)).sum(1).mean()

    def regularizer(self, posterior: Posterior, z: Tensor, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return ½ β KL(q(z|x)

        p(z)) + ½ γ times the transition between the two halves of the batch.
        """
        first, second = (Posterior(*half) for half in zip(*(part.chunk(2) for part in posterior), strict=True))
        transition = self.transition(first, second)
        return (self.beta * kl + self.gamma * transition) / 2, {"transition": transition}

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return all terms of the objective for pairs; ``weak_reconstruction`` is the sum of both reconstructions."""
        first, second, _ = _pair(batch)
        images = torch.cat([first, second])
        terms = self.objective(images, self.encode(images))
        terms["weak_reconstruction"] = 2 * terms["reconstruction"]
        return terms
