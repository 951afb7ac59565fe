"""Weakly-supervised models: pairs of images that share some factors.

Chapter "Weakly-Supervised Disentanglement". All four models encode both images of a pair, replace the latents that the
pair shares by an average of the two posteriors, and maximise the β-VAE objective (Eq. "mod-elbo")

    E_{q̃(z|x₁)} log p(x₁|z) + E_{q̃(z|x₂)} log p(x₂|z) - β KL(q̃(z|x₁) || p(z)) - β KL(q̃(z|x₂) || p(z)).

They differ in two choices, each a function below:

    ============  ================  ==============
    model         shared latents    average
    ============  ================  ==============
    ``GVAE``      known             arithmetic
    ``MLVAE``     known             product
    ``AdaGVAE``   δ_i < τ           arithmetic
    ``AdaMLVAE``  δ_i < τ           product
    ============  ================  ==============

If the number of changed factors is known, the adaptive models share all but that many latents (``num_changed``).

The loss is the mean over the two images, half of the displayed sum, so that it is comparable with other models.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.zoo.vae import BetaVAE, Posterior


def known_shared(changed: Tensor, latent_dim: int) -> Tensor:
    """Mask ``[N, D]`` of all latents except that of the factor that changed, ``changed`` ``[N]``.

    Latent j is thereby tied to factor j.

    >>> known_shared(torch.tensor([1, 0]), latent_dim=3)
    tensor([[ True, False,  True],
            [False,  True,  True]])
    """
    return ~F.one_hot(changed.long(), latent_dim).bool()


def adaptive_shared(first: Posterior, second: Posterior) -> Tensor:
    """Mask of latents that a pair seems to share: δ_i < τ with δ_i = KL(q(z_i|x₁)

    q(z_i|x₂)), τ = ½ (max δ + min δ).

    Paragraph "Inferring k". The mask ``[N, D]`` carries no gradient.
    """
    with torch.no_grad():
        delta = _distance(first, second)
        low, high = torch.aminmax(delta, dim=1, keepdim=True)
        return delta < (high + low) / 2


def smallest_shared(first: Posterior, second: Posterior, num_changed: int) -> Tensor:
    """Mask ``[N, D]`` of all latents except the ``num_changed`` with the largest δ_i.

    Section "Practical Adaptive Algorithms": the d - k latents with the smallest KL(q(z_i|x₁) || q(z_i|x₂)) are shared.
    The mask carries no gradient.

    >>> first = Posterior(torch.tensor([[0.0, 0.0, 0.0]]), torch.zeros(1, 3))
    >>> second = Posterior(torch.tensor([[0.1, 3.0, 1.0]]), torch.zeros(1, 3))
    >>> smallest_shared(first, second, num_changed=2), adaptive_shared(first, second)
    (tensor([[ True, False, False]]), tensor([[ True, False,  True]]))
    """
    with torch.no_grad():
        delta = _distance(first, second)
        return torch.ones_like(delta, dtype=torch.bool).scatter(1, delta.topk(num_changed, dim=1).indices, False)


def _distance(first: Posterior, second: Posterior) -> Tensor:
    """Return δ_i = KL(q(z_i|x₁)

    q(z_i|x₂)): ``[N, D]``.
    """
    gap = (second.mean - first.mean) ** 2 / second.logvar.exp()
    log_ratio = first.logvar - second.logvar
    return (log_ratio.exp() + gap - 1 - log_ratio) / 2


def arithmetic_average(first: Posterior, second: Posterior) -> Posterior:
    """Average of the GVAE: μ = ½ (μ₁ + μ₂), Σ = ½ (Σ₁ + Σ₂)."""
    logvar = torch.logaddexp(first.logvar, second.logvar) - math.log(2)
    return Posterior((first.mean + second.mean) / 2, logvar)


def product_average(first: Posterior, second: Posterior) -> Posterior:
    """Average of the ML-VAE, the product of the two Gaussians: Σ⁻¹ = Σ₁⁻¹ + Σ₂⁻¹, μ = (μ₁ Σ₁⁻¹ + μ₂ Σ₂⁻¹) Σ."""
    weight = torch.sigmoid(second.logvar - first.logvar)  # Σ₁⁻¹ Σ
    logvar = -torch.logaddexp(-first.logvar, -second.logvar)
    return Posterior(weight * first.mean + (1 - weight) * second.mean, logvar)


def harmonic_average(first: Posterior, second: Posterior) -> Posterior:
    """Average of the reference's ML-VAE: the mean of the product with twice its variance, the harmonic mean of Σ₁ and
    Σ₂.
    """
    mean, logvar = product_average(first, second)
    return Posterior(mean, logvar + math.log(2))


class GVAE(BetaVAE):
    r"""Group-VAE (Hosoya, 2019): one factor of each pair is known to have changed.

    .. math::
        \max\; \mathbb{E}_{\tilde q(z|x_1)}\log p(x_1|z) + \mathbb{E}_{\tilde q(z|x_2)}\log p(x_2|z) - \beta
        D_{KL}(\tilde q(z|x_1)\,\|\,p(z)) - \beta D_{KL}(\tilde q(z|x_2)\,\|\,p(z))

    Thesis: Eq. "eq:mod-elbo", section "Identifiability and Algorithms".

    A batch is ``(first, second, changed)``: two batches of images and the index of the changed factor ``[N]``, as
    ``PairDataModule(..., group_label=True)`` returns it. Latent j is tied to factor j.

    Args:
        beta: weight of the KL; in the chapter 1, the ELBO, is mostly best.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = GVAE(image_shape=(1, 32, 32))
    >>> x1, x2, changed = torch.rand(2, 1, 32, 32), torch.rand(2, 1, 32, 32), torch.tensor([3, 0])
    >>> sorted(model.losses((x1, x2, changed)))
    ['elbo', 'kl', 'loss', 'reconstruction', 'weak_reconstruction']
    """

    family = "weak"
    batch = "pairs"

    def __init__(self, beta: float = 1.0, **vae: Any) -> None:
        super().__init__(beta, **vae)

    def shared(self, first: Posterior, second: Posterior, changed: Tensor | None) -> Tensor:
        """Return the mask ``[N, D]`` of latents that each pair shares."""
        if changed is None:
            raise ValueError(
                f"{type(self).__name__} needs the index of the changed factor: use batches (first, second, changed), "
                f"for example from PairDataModule(..., group_label=True), or train Ada{type(self).__name__} without it."
            )
        if changed.shape != first.mean.shape[:1] or changed.is_floating_point() or changed.dtype == torch.bool:
            raise ValueError(
                f"The changed factors must be {len(first.mean)} integers, one per pair, got {changed.dtype} of shape "
                f"{list(changed.shape)}."
            )
        if not torch.compiler.is_compiling() and changed.is_cpu and len(changed):
            low, high = (int(value) for value in torch.aminmax(changed))
            if low < 0 or high >= self.latent_dim:
                raise ValueError(
                    f"Changed factors run from {low} to {high}, but latent j stands for factor j and there are "
                    f"{self.latent_dim} latents: give factors between 0 and {self.latent_dim - 1}, or raise latent_dim."
                )
        return known_shared(changed, self.latent_dim)

    def average(self, first: Posterior, second: Posterior) -> Posterior:
        """Return the average that replaces the shared latents of both images."""
        return arithmetic_average(first, second)

    def aggregate(self, first: Posterior, second: Posterior, changed: Tensor | None) -> Posterior:
        """Return q̃(z|x₁) and, below it, q̃(z|x₂): ``[2 N, D]``."""
        shared = self.shared(first, second, changed)
        average = self.average(first, second)
        return Posterior(
            *(
                torch.cat([torch.where(shared, mean, left), torch.where(shared, mean, right)])
                for mean, left, right in zip(average, first, second, strict=True)
            )
        )

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return all terms of the objective for pairs.

        ``weak_reconstruction`` is the loss that selects models without labels: minus the sum of the first two terms of
        the objective. The other terms are means over the two images.
        """
        first, second, changed = _pair(batch)
        images = torch.cat([first, second])
        mean, logvar = self.encode(images)
        first_half, second_half = (Posterior(*halves) for halves in zip(mean.chunk(2), logvar.chunk(2), strict=True))
        terms = self.objective(images, self.aggregate(first_half, second_half, changed))
        terms["weak_reconstruction"] = 2 * terms["reconstruction"]
        return terms


class MLVAE(GVAE):
    r"""Multi-Level VAE (Bouchacourt et al., 2018): as :class:`GVAE`, with the product of the posteriors.

    .. math::
        \max\; \mathbb{E}_{\tilde q(z|x_1)}\log p(x_1|z) + \mathbb{E}_{\tilde q(z|x_2)}\log p(x_2|z) - \beta
        D_{KL}(\tilde q(z|x_1)\,\|\,p(z)) - \beta D_{KL}(\tilde q(z|x_2)\,\|\,p(z))

    Thesis: Eq. "eq:mod-elbo", section "Identifiability and Algorithms".

    Args:
        beta: weight of the KL.
        average: ``"product"``, Σ⁻¹ = Σ₁⁻¹ + Σ₂⁻¹ as in the thesis, or ``"harmonic"``, twice that variance, as in the
            reference.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = MLVAE(image_shape=(1, 32, 32))
    >>> x1, x2, changed = torch.rand(2, 1, 32, 32), torch.rand(2, 1, 32, 32), torch.tensor([3, 0])
    >>> sorted(model.losses((x1, x2, changed)))
    ['elbo', 'kl', 'loss', 'reconstruction', 'weak_reconstruction']
    """

    def __init__(self, beta: float = 1.0, average: str = "product", **vae: Any) -> None:
        super().__init__(beta, **vae)
        if average not in ("product", "harmonic"):
            raise ValueError(f"average must be 'product' or 'harmonic', got {average!r}.")
        self.harmonic = average == "harmonic"

    def average(self, first: Posterior, second: Posterior) -> Posterior:
        """Return the product of the posteriors, or the reference's variant of it."""
        return harmonic_average(first, second) if self.harmonic else product_average(first, second)


class _Adaptive(GVAE):
    """Mixin that estimates the shared latents of every pair, for :class:`AdaGVAE` and :class:`AdaMLVAE`."""

    def __init__(self, beta: float = 1.0, num_changed: int | None = None, **model: Any) -> None:
        super().__init__(beta, **model)
        if num_changed is not None and not 1 <= num_changed < self.latent_dim:
            raise ValueError(
                f"num_changed must be between 1 and {self.latent_dim - 1}, one less than there are latents, got "
                f"{num_changed}. Leave it out to estimate it for every pair."
            )
        self.num_changed = num_changed

    def shared(self, first: Posterior, second: Posterior, changed: Tensor | None) -> Tensor:
        """Return the mask ``[N, D]`` of latents that each pair seems to share; ``changed`` is ignored."""
        if self.num_changed is not None:
            return smallest_shared(first, second, self.num_changed)
        return adaptive_shared(first, second)


class AdaGVAE(_Adaptive, GVAE):
    r"""Adaptive GVAE (Locatello et al., 2020): the shared latents of a pair are estimated, not given.

    .. math::
        \max\; \mathbb{E}_{\tilde q(z|x_1)}\log p(x_1|z) + \mathbb{E}_{\tilde q(z|x_2)}\log p(x_2|z) - \beta
        D_{KL}(\tilde q(z|x_1)\,\|\,p(z)) - \beta D_{KL}(\tilde q(z|x_2)\,\|\,p(z))

    Thesis: Eq. "eq:mod-elbo", section "Identifiability and Algorithms".

    A batch is ``(first, second)``; more entries are ignored.

    Args:
        beta: weight of the KL.
        num_changed: the number k of factors that change in every pair, if it is known: the k latents with the largest
            KL are not shared. By default the threshold τ decides for every pair. Pairs with exactly k changes come from
            ``PairDataModule(..., k=k, exactly_k=True)``.
        model: arguments of :class:`GVAE`.

    >>> model = AdaGVAE(image_shape=(1, 32, 32))
    >>> sorted(model.losses((torch.rand(2, 1, 32, 32), torch.rand(2, 1, 32, 32))))
    ['elbo', 'kl', 'loss', 'reconstruction', 'weak_reconstruction']
    """


class AdaMLVAE(_Adaptive, MLVAE):
    r"""Adaptive ML-VAE (Locatello et al., 2020): as :class:`AdaGVAE`, with the average of the :class:`MLVAE`.

    .. math::
        \max\; \mathbb{E}_{\tilde q(z|x_1)}\log p(x_1|z) + \mathbb{E}_{\tilde q(z|x_2)}\log p(x_2|z) - \beta
        D_{KL}(\tilde q(z|x_1)\,\|\,p(z)) - \beta D_{KL}(\tilde q(z|x_2)\,\|\,p(z))

    Thesis: Eq. "eq:mod-elbo", section "Identifiability and Algorithms".

    Args:
        beta: weight of the KL.
        num_changed: as for :class:`AdaGVAE`.
        model: arguments of :class:`MLVAE`.

    >>> model = AdaMLVAE(image_shape=(1, 32, 32))
    >>> sorted(model.losses((torch.rand(2, 1, 32, 32), torch.rand(2, 1, 32, 32))))
    ['elbo', 'kl', 'loss', 'reconstruction', 'weak_reconstruction']
    """


def _pair(batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the two batches of images and, if there is one, the changed factor."""
    parts = list(batch) if isinstance(batch, tuple | list) else [batch]
    tensors = all(isinstance(part, Tensor) for part in parts)
    if len(parts) < 2 or not tensors or parts[0].shape != parts[1].shape:
        shapes = " and ".join(str(list(part.shape)) if isinstance(part, Tensor) else repr(part)[:20] for part in parts)
        raise ValueError(
            f"A weakly-supervised model needs pairs, (first, second) of the same shape [N, C, H, W], got {shapes}: "
            "use PairDataModule or FramePairDataModule, or a data set that returns two images."
        )
    return batch[0], batch[1], batch[2] if len(batch) > 2 else None
