"""FactorVAE and β-TCVAE: paragraph "Penalizing the Total Correlation".

    max E_{p(x)} [ E_{q(z|x)} log p(x|z) - KL(q(z|x) || p(z)) ] - γ KL(q(z) || Π_j q(z_j))

The last term, the total correlation of the aggregated posterior q(z), is intractable. FactorVAE estimates it by a
discriminator, β-TCVAE by sums over the batch. Under DDP both see the batch of their own rank only.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from unknot.zoo.networks import Discriminator
from unknot.zoo.vae import VAE, Posterior, check_weights


def permute_dims(z: Tensor) -> Tensor:
    """Shuffle each column of ``z`` ``[N, D]`` by itself: samples of Π_j q(z_j) from samples of q(z)."""
    return z.gather(0, torch.rand_like(z).argsort(0))


class FactorVAE(VAE):
    """FactorVAE (Kim & Mnih, 2018): total correlation by the density-ratio trick.

    A discriminator tells codes z ~ q(z) (class 0) from codes with shuffled dimensions, z ~ Π_j q(z_j) (class 1); the
    difference of its logits, averaged over the batch, estimates the total correlation. The dimensions are shuffled
    within the same batch, as in the reference; the paper takes a second one.

    One training step updates both networks from one forward pass, each by its own Adam and its own loss: no gradient of
    the model's loss reaches the discriminator, none of the discriminator's reaches encoder or decoder. It counts as one
    step of the Trainer. (The reference counts it as two, so that its 300,000 steps are 150,000 updates.) The Trainer
    cannot clip or accumulate gradients for a model with two optimisers, and says so.

    Args:
        gamma: weight γ of the total correlation; the study sweeps 10, 20, 30, 40, 50, 100.
        image_shape: (channels, height, width).
        latent_dim: number of codes.
        lr: learning rate of Adam for encoder and decoder.
        discriminator_lr: learning rate of the discriminator's Adam (β₁ 0.5, β₂ 0.9).
        reconstruction: ``"bernoulli"`` or ``"gaussian"``.

    >>> model = FactorVAE(gamma=10.0)
    >>> terms = model.losses(torch.rand(4, 1, 64, 64))
    >>> sorted(terms)
    ['discriminator', 'elbo', 'kl', 'loss', 'reconstruction', 'total_correlation']
    """

    def __init__(
        self,
        gamma: float = 30.0,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        lr: float = 1e-4,
        discriminator_lr: float = 1e-4,
        reconstruction: str = "bernoulli",
    ) -> None:
        super().__init__(image_shape, latent_dim, lr, reconstruction)
        check_weights(gamma=gamma)
        if not 0 < discriminator_lr < math.inf:
            raise ValueError(f"discriminator_lr must be positive and finite, got {discriminator_lr}.")
        self.gamma = gamma
        self.discriminator_lr = discriminator_lr
        self.discriminator = Discriminator(latent_dim)
        self.automatic_optimization = False

    def regularizer(self, posterior: Posterior, z: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """KL(q(z|x) || p(z)) + γ TC; ``terms["discriminator"]`` is the discriminator's own loss."""
        # The model's loss sees the discriminator as a constant, the discriminator's loss the codes.
        constant = {name: weight.detach() for name, weight in self.discriminator.named_parameters()}
        logits = functional_call(self.discriminator, constant, (z,)).float()
        terms["total_correlation"] = (logits[:, 0] - logits[:, 1]).mean()

        codes = z.detach()
        logits = self.discriminator(torch.cat([codes, permute_dims(codes)])).float()
        classes = torch.arange(2, device=z.device).repeat_interleave(len(z))
        terms["discriminator"] = F.cross_entropy(logits, classes)
        return terms["kl"] + self.gamma * terms["total_correlation"]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """One update of encoder and decoder, and one of the discriminator."""
        terms = self._step("train", batch, batch_idx)
        # The two losses share no parameter that either could reach, so that one backward pass serves both.
        self._update(terms["loss"] + terms["discriminator"])
        return terms["loss"].detach()

    @torch.compiler.disable
    def _update(self, loss: Tensor) -> None:
        model, discriminator = self.optimizers()  # type: ignore[attr-defined]
        model.zero_grad()
        discriminator.zero_grad()
        self.manual_backward(loss)
        model.step()
        # The Trainer counts the steps of optimisers; by this way round it takes no notice of the second one.
        self.trainer.strategy.optimizer_step(discriminator.optimizer, closure=lambda: None, model=self)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:  # type: ignore[override]
        """Adam for encoder and decoder, and Adam with β₁ 0.5, β₂ 0.9 for the discriminator."""
        model = [*self.encoder.parameters(), *self.decoder.parameters()]
        return [
            torch.optim.Adam(model, lr=self.lr),
            torch.optim.Adam(self.discriminator.parameters(), lr=self.discriminator_lr, betas=(0.5, 0.9)),
        ]


def total_correlation(z: Tensor, posterior: Posterior, dataset_size: int | None = None) -> Tensor:
    """Estimate KL(q(z) || Π_j q(z_j)) from codes ``z`` ``[M, D]`` drawn from the posteriors of a batch.

    Both estimators replace the aggregated posterior by a weighted sum over the batch (Chen et al., 2018):

        log q(z_i) ≈ log Σ_j w_ij q(z_i|x_j)

    Args:
        z: one sample of each posterior.
        posterior: q(z|x_j), j = 1..M.
        dataset_size: ``None`` for minibatch-weighted sampling, w_ij = 1/M. The reference drops these constants and the
            paper divides by the size N of the data set as well, which shifts the value by (D-1) log M and by
            (D-1) log N: the gradient is the same, but codes that ignore the images would not have a total correlation
            of zero. With a number N, minibatch-stratified sampling: z_i's own posterior weighs 1/N only, as it does in
            q(z), and the others take the rest.

    >>> posterior = Posterior(torch.zeros(8, 3), torch.zeros(8, 3))
    >>> torch.allclose(total_correlation(posterior.sample(), posterior), torch.tensor(0.0), atol=1e-5)
    True
    """
    variance = posterior.logvar.exp()
    # log q(z_il | x_jl): [M, M, D]
    log_q = -0.5 * ((z[:, None] - posterior.mean) ** 2 / variance + posterior.logvar + math.log(2 * math.pi))
    log_w = _log_weights(len(z), dataset_size).to(z)
    joint = torch.logsumexp(log_w + log_q.sum(2), dim=1)
    marginals = torch.logsumexp(log_w[..., None] + log_q, dim=1).sum(1)
    return (joint - marginals).mean()


def _log_weights(m: int, dataset_size: int | None) -> Tensor:
    """log w_ij ``[M, M]``; the weights of each row sum to one."""
    if dataset_size is None or m == 1:
        return torch.full((m, m), -math.log(m))
    if dataset_size < m:
        raise ValueError(f"A batch of {m} images is larger than dataset_size={dataset_size}; give the real size.")
    others = m - 1
    weights = torch.full((m, m), 1 / others)
    rows = torch.arange(m)
    weights[rows, rows] = 1 / dataset_size
    weights[rows, (rows + 1) % m] = (dataset_size - others) / (dataset_size * others)
    return weights.log()


class BetaTCVAE(VAE):
    """β-TCVAE (Chen et al., 2018): total correlation by minibatch sampling.

        max E_{p(x)} [ E_{q(z|x)} log p(x|z) - KL(q(z|x) || p(z)) ] - (β - 1) KL(q(z) || Π_j q(z_j))

    With β = 1 this is the plain VAE.

    Args:
        beta: weight; the study sweeps 1, 2, 4, 6, 8, 10.
        dataset_size: ``None`` for minibatch-weighted sampling, as in the study; a number of images for the
            minibatch-stratified estimator, see :func:`total_correlation`.
        image_shape: (channels, height, width).
        latent_dim: number of codes.
        lr: learning rate of Adam.
        reconstruction: ``"bernoulli"`` or ``"gaussian"``.

    >>> model = BetaTCVAE(beta=6.0)
    >>> sorted(model.losses(torch.rand(4, 1, 64, 64)))
    ['elbo', 'kl', 'loss', 'reconstruction', 'total_correlation']
    """

    def __init__(
        self,
        beta: float = 6.0,
        dataset_size: int | None = None,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        lr: float = 1e-4,
        reconstruction: str = "bernoulli",
    ) -> None:
        super().__init__(image_shape, latent_dim, lr, reconstruction)
        check_weights(beta=beta)
        if dataset_size is not None and (not isinstance(dataset_size, int) or dataset_size < 1):
            raise ValueError(f"dataset_size must be a number of images or None, got {dataset_size!r}.")
        self.beta = beta
        self.dataset_size = dataset_size

    def regularizer(self, posterior: Posterior, z: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """KL(q(z|x) || p(z)) + (β - 1) TC."""
        terms["total_correlation"] = total_correlation(z, posterior, self.dataset_size)
        return terms["kl"] + (self.beta - 1) * terms["total_correlation"]
