"""Variational autoencoders: the base of the family, and the two that limit the capacity of the bottleneck.

Chapter "Learning Disentangled Representations". Every variant maximises

    E_{p(x)} [ E_{q(z|x)} log p(x|z) ] - regularizer

and differs in the regularizer alone: for the plain VAE it is KL(q(z|x) || p(z)).
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.zoo.base import Model, first_of
from unknot.zoo.networks import ConvDecoder, ConvEncoder, check_image_shape, check_images


class Posterior(NamedTuple):
    """The Gaussian q(z|x) = N(mean, diag(exp(logvar))) of a batch: mean and log-variance, each ``[N, D]``."""

    mean: Tensor
    logvar: Tensor

    def sample(self) -> Tensor:
        """z = μ + σ ε with ε ~ N(0, I): ``[N, D]``."""
        return self.mean + torch.exp(self.logvar / 2) * torch.randn_like(self.mean)

    def kl(self) -> Tensor:
        """KL(q(z|x) || N(0, I)) of each dimension: ½ (μ² + σ² - log σ² - 1), ``[N, D]``."""
        return (self.mean**2 + self.logvar.exp() - self.logvar - 1) / 2


class VAE(Model):
    """What all variational autoencoders of the zoo share; a variant overrides :meth:`regularizer`.

    Args:
        image_shape: (channels, height, width); sides are multiples of 16 from 32 up.
        latent_dim: number D of codes.
        lr: learning rate of Adam (β₁ 0.9, β₂ 0.999, ε 1e-8).
        reconstruction: ``"bernoulli"``, the decoder of the studies: -log p(x|z) is the cross-entropy summed over
            pixels and channels; or ``"gaussian"``: the summed squared error, which is -log p(x|z) for variance ½ up to
            a constant (the reference's ``l2_loss``).
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        lr: float = 1e-4,
        reconstruction: str = "bernoulli",
    ) -> None:
        super().__init__(lr)
        if not isinstance(latent_dim, int) or latent_dim < 1:
            raise ValueError(f"latent_dim must be an integer of at least 1, got {latent_dim!r}.")
        if reconstruction not in ("bernoulli", "gaussian"):
            raise ValueError(f"reconstruction must be 'bernoulli' or 'gaussian', got {reconstruction!r}.")
        self.save_hyperparameters()
        self.image_shape = check_image_shape(image_shape)
        self.latent_dim = latent_dim
        self.reconstruction = reconstruction
        self.encoder = ConvEncoder(self.image_shape, latent_dim)
        self.decoder = ConvDecoder(latent_dim, self.image_shape)

    # Inference

    def encode(self, images: Tensor) -> Posterior:
        """q(z|x) for images ``[N, C, H, W]`` in [0, 1]."""
        # On a GPU looking at the values would wait for it; there the first batch of a loop is looked at instead.
        check_images(images, self.image_shape, values=images.is_cpu and not torch.compiler.is_compiling())
        mean, logvar = self.encoder(images)
        return Posterior(mean.float(), logvar.float())

    def represent(self, images: Tensor) -> Tensor:
        """The representation r(x), the mean of q(z|x): ``[N, D]``."""
        return self.encode(images).mean

    def forward(self, images: Tensor) -> Tensor:
        """The same as :meth:`represent`."""
        return self.represent(images)

    def decode(self, codes: Tensor) -> Tensor:
        """Mean image for codes ``[N, D]``: ``[N, C, H, W]`` in [0, 1]."""
        return torch.sigmoid(self.decoder(codes).float())

    def reconstruct(self, images: Tensor) -> Tensor:
        """Images decoded from their own representation: ``[N, C, H, W]``."""
        return self.decode(self.represent(images))

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """``n`` images from the prior: ``[n, C, H, W]``. ``generator`` is a CPU generator."""
        return self.decode(torch.randn(n, self.latent_dim, generator=generator).to(self.device))

    @torch.no_grad()
    def traverse(self, images: Tensor, values: Tensor | None = None) -> Tensor:
        """Change one code of each image at a time and decode.

        Args:
            images: ``[N, C, H, W]``.
            values: what each code is set to, ``[V]``; by default 11 steps from -2 to 2.

        Returns:
            ``[N, D, V, C, H, W]``.
        """
        mean = self.represent(images)
        values = torch.linspace(-2, 2, 11) if values is None else torch.as_tensor(values, dtype=torch.float32)
        values = values.to(mean)
        codes = mean[:, None, None, :].repeat(1, self.latent_dim, len(values), 1)
        each = torch.arange(self.latent_dim)
        codes[:, each, :, each] = values
        return self.decode(codes.flatten(0, 2)).unflatten(0, codes.shape[:3])

    # Objective

    def regularizer(self, posterior: Posterior, z: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """What is added to the reconstruction loss; here KL(q(z|x) || p(z)), the negative ELBO's second term.

        Args:
            posterior: q(z|x) of the batch.
            z: a sample of it, ``[N, D]``.
            terms: scalars that will be logged. ``terms["kl"]`` is the batch mean of KL(q(z|x) || p(z)); a variant adds
                the terms of its own.
        """
        return terms["kl"]

    def reconstruction_loss(self, images: Tensor, logits: Tensor) -> Tensor:
        """-log p(x|z), summed over pixels and channels and averaged over the batch."""
        if self.reconstruction == "bernoulli":
            total = F.binary_cross_entropy_with_logits(logits.float(), images.float(), reduction="sum")
        else:
            total = F.mse_loss(torch.sigmoid(logits.float()), images.float(), reduction="sum")
        return total / len(images)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """All terms of the objective for a batch; ``"loss"`` is the one to minimise."""
        images = first_of(batch)
        return self.objective(images, self.encode(images))

    def objective(self, images: Tensor, posterior: Posterior) -> dict[str, Tensor]:
        """Reconstruction loss and :meth:`regularizer` of ``images`` whose codes are drawn from ``posterior``."""
        z = posterior.sample()
        reconstruction = self.reconstruction_loss(images, self.decoder(z))
        kl = posterior.kl().sum(1).mean()
        terms = {"reconstruction": reconstruction, "kl": kl, "elbo": -(reconstruction + kl)}
        terms["loss"] = reconstruction + self.regularizer(posterior, z, terms)
        return terms

    # Training

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Representation of a batch."""
        return self.represent(first_of(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam with the settings of the studies."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class BetaVAE(VAE):
    """β-VAE (Higgins et al., 2017), paragraph "Bottleneck Capacity":

        max E_{p(x)} [ E_{q(z|x)} log p(x|z) - β KL(q(z|x) || p(z)) ]

    Args:
        beta: weight of the KL; the study sweeps 1, 2, 4, 6, 8, 16.
        image_shape: (channels, height, width).
        latent_dim: number of codes.
        lr: learning rate of Adam.
        reconstruction: ``"bernoulli"`` or ``"gaussian"``.

    >>> model = BetaVAE(beta=4.0)
    >>> model.represent(torch.rand(2, 1, 64, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        beta: float = 4.0,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        lr: float = 1e-4,
        reconstruction: str = "bernoulli",
    ) -> None:
        super().__init__(image_shape, latent_dim, lr, reconstruction)
        check_weights(beta=beta)
        self.beta = beta

    def regularizer(self, posterior: Posterior, z: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """β KL(q(z|x) || p(z))."""
        return self.beta * terms["kl"]


class AnnealedVAE(VAE):
    """AnnealedVAE (Burgess et al., 2018), paragraph "Bottleneck Capacity":

        max E_{p(x)} [ E_{q(z|x)} log p(x|z) - γ |KL(q(z|x) || p(z)) - C| ]

    where C grows linearly from 0 to ``c_max`` nats over the first ``iteration_threshold`` steps. The KL inside the bars
    is the batch mean, as in the reference.

    Args:
        c_max: capacity at the end, in nats; the study sweeps 5, 10, 25, 50, 75, 100.
        gamma: weight γ.
        iteration_threshold: step at which C reaches ``c_max``.
        image_shape: (channels, height, width).
        latent_dim: number of codes.
        lr: learning rate of Adam.
        reconstruction: ``"bernoulli"`` or ``"gaussian"``.

    >>> model = AnnealedVAE(c_max=25.0)
    >>> model.represent(torch.rand(2, 1, 64, 64)).shape
    torch.Size([2, 10])
    """

    capacity: Tensor

    def __init__(
        self,
        c_max: float = 25.0,
        gamma: float = 1000.0,
        iteration_threshold: int = 100_000,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        lr: float = 1e-4,
        reconstruction: str = "bernoulli",
    ) -> None:
        super().__init__(image_shape, latent_dim, lr, reconstruction)
        check_weights(c_max=c_max, gamma=gamma)
        if iteration_threshold < 1:
            raise ValueError(f"iteration_threshold must be at least 1, got {iteration_threshold}.")
        self.c_max = c_max
        self.gamma = gamma
        self.iteration_threshold = iteration_threshold
        # A buffer: it travels with the weights, so that a loaded model has the objective it was saved with.
        self.register_buffer("capacity", torch.tensor(0.0))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """C(t) = c_max min(1, t / T)."""
        super().on_train_batch_start(batch, batch_idx)
        self.capacity.fill_(self.c_max * min(1.0, self.global_step / self.iteration_threshold))

    def regularizer(self, posterior: Posterior, z: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """γ |KL(q(z|x) || p(z)) - C|."""
        terms["capacity"] = self.capacity.clone()
        return self.gamma * (terms["kl"] - self.capacity).abs()


def check_weights(**weights: float) -> None:
    """Refuse weights of a regularizer that are negative or not finite."""
    for name, value in weights.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and not negative, got {value}.")
