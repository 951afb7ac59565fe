"""Semi-supervised models: a few of the images are labelled.

Chapter "Semi-Supervised Disentanglement". Every unsupervised objective gets one more term (Eq. "rurs"),

    max ELBO + β E_x R_u(q(z|x)) + γ_sup E_{x,z} R_s(q(z|x), z),

where R_s ties the first d means to the d labels of an image. The chapter defines R_s as a cross-entropy, which has to
be minimised: here γ_sup R_s is added to the loss. A batch is ``(images, labelled_images, labels)`` as
``LabelledDataModule`` returns it: unlabelled images, labelled images, and their labels in [0, 1] ``[M, d]``.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.arguments import not_negative
from unknot.zoo.dip import DIPVAEI
from unknot.zoo.total_correlation import BetaTCVAE, FactorVAE
from unknot.zoo.vae import VAE, BetaVAE


def supervised_loss(mean: Tensor, labels: Tensor, kind: str = "xent", reduction: str = "mean") -> Tensor:
    """Supervised term R_s: distance of the first d means ``[M, D]`` from the labels ``[M, d]`` in [0, 1].

    Args:
        mean: mean of q(z|x), the representation r(x).
        labels: labels z, scaled to [0, 1].
        kind: ``"xent"``: -Σ_i z_i log σ(r_i) + (1 - z_i) log(1 - σ(r_i)); or ``"l2"``, the chapter's ablation:
            ‖σ(r) - z‖². (The reference's ``l2`` by default compares raw labels with the means times a learned scale.)
        reduction: reduction over the batch: ``"mean"``, as in the chapter; or ``"sum"``, as in the reference, where
            γ_sup corresponds to γ_sup times the batch size here.

    >>> round(supervised_loss(torch.zeros(4, 3), torch.rand(4, 2)).item(), 4)  # 2 log 2
    1.3863
    """
    _check_kind(kind, reduction)
    r = mean[:, : labels.shape[1]]
    if kind == "xent":
        total = F.binary_cross_entropy_with_logits(r, labels, reduction="sum")
    else:
        total = F.mse_loss(torch.sigmoid(r), labels, reduction="sum")
    return total / len(labels) if reduction == "mean" else total


def _check_kind(supervised: str, reduction: str) -> None:
    if supervised not in ("xent", "l2"):
        raise ValueError(f"The supervised loss must be 'xent' or 'l2', got {supervised!r}.")
    if reduction not in ("mean", "sum"):
        raise ValueError(f"The reduction of the supervised loss must be 'mean' or 'sum', got {reduction!r}.")


class _Labelled(VAE):
    """Mixin for models whose batches include labels."""

    family = "semi-supervised"
    batch = "labelled"

    def __init__(self, supervised: str, supervised_reduction: str, **model: Any) -> None:
        super().__init__(**model)
        _check_kind(supervised, supervised_reduction)
        self.supervised = supervised
        self.supervised_reduction = supervised_reduction

    def supervised_loss(self, labelled_images: Tensor, labels: Tensor, num_images: int | None = None) -> Tensor:
        """Return R_s of labelled images in a batch with ``num_images`` unlabelled images."""
        self._check_labels(labelled_images, labels)
        mean = self.encode(labelled_images).mean
        loss = supervised_loss(mean, labels.to(mean), self.supervised, self.supervised_reduction)
        if self.supervised_reduction == "sum" and not self.training and num_images is not None:
            # Held-out batches contain all labels; a sum over them would grow with their number.
            loss = loss * (num_images / len(labels))
        return loss

    def _check_labels(self, labelled_images: Tensor, labels: Tensor) -> None:
        if labels.ndim != 2 or len(labels) != len(labelled_images) or not labels.numel():
            raise ValueError(
                f"Labels have shape {list(labels.shape)}, expected one row for each of the {len(labelled_images)} "
                "labelled images and one column per labelled factor, and at least one of each."
            )
        if labels.shape[1] > self.latent_dim:
            raise ValueError(
                f"{labels.shape[1]} factors are labelled, but the model has {self.latent_dim} latents: build it with "
                f"latent_dim={labels.shape[1]} or more, or label fewer factors."
            )
        if labels.is_cpu and not torch.compiler.is_compiling():
            low, high = torch.aminmax(labels)
            if not (low >= 0 and high <= 1):
                raise ValueError(
                    f"Labels reach from {low:.4g} to {high:.4g}, expected [0, 1]: divide each by its factor's number "
                    "of values."
                )


class SemiSupervised(_Labelled):
    """Mixin that adds γ_sup R_s to the objective of the next class in the method resolution order.

    Args:
        gamma_sup: weight γ_sup of the labels.
        supervised: ``"xent"`` or ``"l2"``, see :func:`supervised_loss`.
        supervised_reduction: ``"mean"`` or ``"sum"``, see :func:`supervised_loss`.
        model: arguments of that class.
    """

    def __init__(
        self, gamma_sup: float = 1.0, supervised: str = "xent", supervised_reduction: str = "mean", **model: Any
    ) -> None:
        super().__init__(supervised, supervised_reduction, **model)
        not_negative(gamma_sup=gamma_sup)
        self.gamma_sup = gamma_sup

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return all terms of the objective; ``supervised`` is R_s, whose held-out value selects models."""
        images, labelled_images, labels = _unpack(batch)
        terms = super().losses(images)
        terms["supervised"] = self.supervised_loss(labelled_images, labels, len(images))
        terms["loss"] = terms["loss"] + self.gamma_sup * terms["supervised"]
        return terms


class S2BetaVAE(SemiSupervised, BetaVAE):
    r"""β-VAE with a few labels; takes the arguments of :class:`SemiSupervised` and :class:`~unknot.zoo.BetaVAE`.

    .. math::
        \max\; \mathrm{ELBO}(\phi,\theta) + \beta\,\mathbb{E}_x R_u(q_\phi(z|x)) +
        \gamma_{\mathrm{sup}}\,\mathbb{E}_{x,z} R_s(q_\phi(z|x), z)

    Thesis: Eq. "eq:rurs", section "Incorporating label information during training".

    >>> model = S2BetaVAE(gamma_sup=10.0, beta=4.0)
    >>> terms = model.losses((torch.rand(4, 1, 64, 64), torch.rand(2, 1, 64, 64), torch.rand(2, 5)))
    >>> sorted(terms)
    ['elbo', 'kl', 'loss', 'reconstruction', 'supervised']
    """


class S2BetaTCVAE(SemiSupervised, BetaTCVAE):
    r"""β-TCVAE with a few labels; takes the arguments of :class:`SemiSupervised` and :class:`~unknot.zoo.BetaTCVAE`.

    .. math::
        \max\; \mathrm{ELBO}(\phi,\theta) + \beta\,\mathbb{E}_x R_u(q_\phi(z|x)) +
        \gamma_{\mathrm{sup}}\,\mathbb{E}_{x,z} R_s(q_\phi(z|x), z)

    Thesis: Eq. "eq:rurs", section "Incorporating label information during training".

    >>> model = S2BetaTCVAE(gamma_sup=10.0, image_shape=(1, 32, 32))
    >>> terms = model.losses((torch.rand(4, 1, 32, 32), torch.rand(2, 1, 32, 32), torch.rand(2, 5)))
    >>> "supervised" in terms
    True
    """


class S2FactorVAE(SemiSupervised, FactorVAE):
    r"""FactorVAE with a few labels; takes the arguments of :class:`SemiSupervised` and :class:`~unknot.zoo.FactorVAE`.

    .. math::
        \max\; \mathrm{ELBO}(\phi,\theta) + \beta\,\mathbb{E}_x R_u(q_\phi(z|x)) +
        \gamma_{\mathrm{sup}}\,\mathbb{E}_{x,z} R_s(q_\phi(z|x), z)

    Thesis: Eq. "eq:rurs", section "Incorporating label information during training".

    >>> model = S2FactorVAE(gamma_sup=10.0, image_shape=(1, 32, 32))
    >>> terms = model.losses((torch.rand(4, 1, 32, 32), torch.rand(2, 1, 32, 32), torch.rand(2, 5)))
    >>> "supervised" in terms
    True
    """


class S2DIPVAEI(SemiSupervised, DIPVAEI):
    r"""DIP-VAE-I with a few labels; takes the arguments of :class:`SemiSupervised` and :class:`~unknot.zoo.DIPVAEI`.

    .. math::
        \max\; \mathrm{ELBO}(\phi,\theta) + \beta\,\mathbb{E}_x R_u(q_\phi(z|x)) +
        \gamma_{\mathrm{sup}}\,\mathbb{E}_{x,z} R_s(q_\phi(z|x), z)

    Thesis: Eq. "eq:rurs", section "Incorporating label information during training".

    >>> model = S2DIPVAEI(gamma_sup=10.0, image_shape=(1, 32, 32))
    >>> terms = model.losses((torch.rand(4, 1, 32, 32), torch.rand(2, 1, 32, 32), torch.rand(2, 5)))
    >>> "supervised" in terms
    True
    """


class SupervisedVAE(_Labelled):
    r"""Fully supervised baseline, whose encoder is trained on the supervised loss alone.

    .. math:: \min\; \mathbb{E}_{x,z} R_s

    .. math:: R_s = -\sum_{i=1}^{d} z_i \log\sigma(r(x)_i) + (1 - z_i)\log\left(1 - \sigma(r(x)_i)\right)

    Thesis: section "Incorporating label information during training", the supervised baseline.

    The decoder learns to reconstruct images from fixed latents, for visualisation; there is no KL. R_s does not depend
    on the variance of the latents, which stays as initialised.

    Args:
        supervised: ``"xent"`` or ``"l2"``, see :func:`supervised_loss`.
        supervised_reduction: ``"mean"`` or ``"sum"``.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = SupervisedVAE(image_shape=(1, 32, 32))
    >>> terms = model.losses((torch.rand(4, 1, 32, 32), torch.rand(2, 1, 32, 32), torch.rand(2, 5)))
    >>> bool(terms["loss"] == terms["reconstruction"] + terms["supervised"])
    True
    """

    def __init__(self, supervised: str = "xent", supervised_reduction: str = "mean", **vae: Any) -> None:
        super().__init__(supervised, supervised_reduction, **vae)
        self.encoder.logvar.requires_grad_(False)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return R_s, which trains the encoder, and the reconstruction loss, which trains the decoder."""
        images, labelled_images, labels = _unpack(batch)
        with torch.no_grad():
            posterior = self.encode(images)
        terms = self.objective(images, posterior)
        terms["supervised"] = self.supervised_loss(labelled_images, labels, len(images))
        terms["loss"] = self.reconstruction_weight * terms["reconstruction"] + terms["supervised"]
        return terms


def _unpack(batch: Any) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(batch, tuple | list) or len(batch) < 3:  # further entries are for metrics
        given = f"{len(batch)} tensors" if isinstance(batch, tuple | list) else "one tensor"
        raise ValueError(
            f"A semi-supervised model needs batches (images, labelled_images, labels), got {given}: use "
            "LabelledDataModule, or a data set that returns these three."
        )
    images, labelled_images, labels = batch[:3]
    return images, labelled_images, labels
