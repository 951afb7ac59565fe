"""FactorVAE and β-TCVAE: paragraph "Penalizing the Total Correlation".

    max E_{p(x)} [ E_{q(z|x)} log p(x|z) - KL(q(z|x) || p(z)) ] - γ KL(q(z) || Π_j q(z_j))

The last term, the total correlation of the aggregated posterior q(z), is intractable. FactorVAE estimates it with a
discriminator, β-TCVAE with sums over the batch. Under DDP, each rank uses its own batch only.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from unknot.arguments import not_negative, positive, whole
from unknot.zoo.likelihoods import at_least_float
from unknot.zoo.networks import Discriminator
from unknot.zoo.vae import VAE, Posterior


def permute_dims(z: Tensor) -> Tensor:
    """Shuffle each column of ``z`` ``[N, D]`` independently: samples of Π_j q(z_j) from samples of q(z)."""
    return z.gather(0, torch.rand_like(z).argsort(0))


class FactorVAE(VAE):
    r"""FactorVAE (Kim & Mnih, 2018): total correlation by the density-ratio trick.

    .. math::
        \max\; \mathbb{E}_{p(x)}\left[\mathbb{E}_{q_\phi(z|x)}[\log p_\theta(x|z)] -
        D_{KL}(q_\phi(z|x)\,\|\,p(z))\right] - \gamma\, D_{KL}\left(q(z)\,\|\,\prod_j q(z_j)\right)

    Thesis: section "Learning Disentangled Representations", paragraph "Penalizing the Total Correlation".

    A discriminator separates samples z ~ q(z) (class 0) from samples with shuffled dimensions, z ~ Π_j q(z_j) (class
    1); the difference of its logits, averaged over the batch, estimates the total correlation. The dimensions are
    shuffled within the same batch, as in the reference; the paper uses a second batch.

    One training step updates both networks from one forward pass, each by its own loss: no gradient of the model's loss
    reaches the discriminator, and none of the discriminator's loss reaches encoder or decoder. (The reference counts it
    as two steps, so its 300,000 steps are 150,000 updates.) One optimiser has the two networks as its groups: the
    second with ``discriminator_lr`` and, where the optimiser has betas, (0.5, 0.9). A schedule scales both rates, and
    gradients are clipped separately.

    Args:
        gamma: weight γ of the total correlation; the study sweeps 10, 20, 30, 40, 50, 100.
        discriminator_lr: learning rate of the discriminator's Adam (β₁ 0.5, β₂ 0.9).
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = FactorVAE(gamma=10.0)
    >>> terms = model.losses(torch.rand(4, 1, 64, 64))
    >>> sorted(terms)
    ['discriminator', 'elbo', 'kl', 'loss', 'reconstruction', 'total_correlation']
    """

    family = "total-correlation"
    training_only = ("discriminator",)

    def __init__(self, gamma: float = 30.0, discriminator_lr: float = 1e-4, **vae: Any) -> None:
        super().__init__(**vae)
        not_negative(gamma=gamma)
        positive(discriminator_lr=discriminator_lr)
        self.gamma = gamma
        self.discriminator_lr = discriminator_lr
        self.discriminator = Discriminator(self.latent_dim)

    def regularizer(self, posterior: Posterior, z: Tensor, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return KL(q(z|x)

        p(z)) + γ TC; ``discriminator`` is the discriminator's own loss.
        """
        codes = z.to(self.dtype)
        # The discriminator is constant in the model's loss, and the samples are constant in the discriminator's.
        constant = {name: weight.detach() for name, weight in self.discriminator.named_parameters()}
        logits = at_least_float(functional_call(self.discriminator, constant, (codes,)))
        correlation = (logits[:, 0] - logits[:, 1]).mean()

        codes = codes.detach()
        logits = at_least_float(self.discriminator(torch.cat([codes, permute_dims(codes)])))
        classes = torch.arange(2, device=z.device).repeat_interleave(len(z))
        logged = {"total_correlation": correlation, "discriminator": F.cross_entropy(logits, classes)}
        return kl + self.gamma * correlation, logged

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Update encoder and decoder, and the discriminator."""
        terms = self._step("train", batch, batch_idx)
        # The two losses have no trainable parameter in common, so one backward pass serves both.
        return terms["loss"] + terms["discriminator"]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return two groups: encoder and decoder, and the discriminator with its own learning rate and momenta."""
        discriminator = set(self.discriminator.parameters())
        model = [parameter for parameter in self.parameters() if parameter not in discriminator]
        own = {"lr": self.discriminator_lr, "betas": (0.5, 0.9)}
        return [{"params": model}, {"params": list(self.discriminator.parameters()), **own}]

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of the two losses separately."""
        if not gradient_clip_val:
            return
        for group in optimizer.param_groups:
            if gradient_clip_algorithm == "value":
                torch.nn.utils.clip_grad_value_(group["params"], gradient_clip_val)
            else:
                torch.nn.utils.clip_grad_norm_(group["params"], gradient_clip_val)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Convert older checkpoints, which have one optimiser per network, to one optimiser with two groups."""
        super().on_load_checkpoint(checkpoint)
        if len(states := checkpoint.get("optimizer_states", [])) == 2:
            first, second = states
            shift = sum(len(group["params"]) for group in first["param_groups"])
            state = first["state"] | {shift + index: value for index, value in second["state"].items()}
            groups = [group | {"params": [shift + i for i in group["params"]]} for group in second["param_groups"]]
            checkpoint["optimizer_states"] = [{"state": state, "param_groups": [*first["param_groups"], *groups]}]


def total_correlation(z: Tensor, posterior: Posterior, dataset_size: int | None = None) -> Tensor:
    """Estimate KL(q(z)

    Π_j q(z_j)) from samples ``z`` ``[M, D]`` of the posteriors of a batch.

    Both estimators replace the aggregated posterior by a weighted sum over the batch (Chen et al., 2018):

        log q(z_i) ≈ log Σ_j w_ij q(z_i|x_j)

    Args:
        z: one sample of each posterior.
        posterior: q(z|x_j), j = 1..M.
        dataset_size: ``None`` for minibatch-weighted sampling, w_ij = 1/M. The reference drops these constants and the
            paper divides by the size N of the data set as well, which shifts the value by (D-1) log M and by (D-1) log
            N: the gradient is the same, but latents that ignore the images would not have a total correlation of zero.
            With a number N, minibatch-stratified sampling: z_i's own posterior has weight 1/N, as it has in q(z), and
            the others share the rest.

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
    """Return log w_ij ``[M, M]``; the weights of each row sum to one."""
    if dataset_size is None or m == 1:
        return torch.full((m, m), -math.log(m))
    if dataset_size < m:
        raise ValueError(f"A batch of {m} images is larger than dataset_size={dataset_size}; give the true size.")
    others = m - 1
    weights = torch.full((m, m), 1 / others)
    rows = torch.arange(m)
    weights[rows, rows] = 1 / dataset_size
    weights[rows, (rows + 1) % m] = (dataset_size - others) / (dataset_size * others)
    return weights.log()


class BetaTCVAE(VAE):
    r"""β-TCVAE (Chen et al., 2018): total correlation estimated by minibatch sampling.

    .. math::
        \max\; \mathbb{E}_{p(x)}\left[\mathbb{E}_{q_\phi(z|x)}[\log p_\theta(x|z)] -
        D_{KL}(q_\phi(z|x)\,\|\,p(z))\right] - (\beta-1)\, D_{KL}\left(q(z)\,\|\,\prod_j q(z_j)\right)

    Thesis: section "Learning Disentangled Representations", paragraph "Penalizing the Total Correlation".

    With β = 1 this is the plain VAE.

    Args:
        beta: weight; the study sweeps 1, 2, 4, 6, 8, 10.
        dataset_size: ``None`` for minibatch-weighted sampling, as in the study; a number of images for the
            minibatch-stratified estimator, see :func:`total_correlation`.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = BetaTCVAE(beta=6.0)
    >>> sorted(model.losses(torch.rand(4, 1, 64, 64)))
    ['elbo', 'kl', 'loss', 'reconstruction', 'total_correlation']
    """

    family = "total-correlation"

    def __init__(self, beta: float = 6.0, dataset_size: int | None = None, **vae: Any) -> None:
        super().__init__(**vae)
        not_negative(beta=beta)
        self.beta = beta
        self.dataset_size = None if dataset_size is None else whole("dataset_size", dataset_size)

    def regularizer(self, posterior: Posterior, z: Tensor, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return KL(q(z|x)

        p(z)) + (β - 1) TC.
        """
        correlation = total_correlation(z, posterior, self.dataset_size)
        return kl + (self.beta - 1) * correlation, {"total_correlation": correlation}
