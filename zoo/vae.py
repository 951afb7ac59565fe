"""Variational autoencoders: the base class, and two models that limit the capacity of the bottleneck.

Chapter "Learning Disentangled Representations". Every variant maximises

    E_{p(x)} [ E_{q(z|x)} log p(x|z) ] - regularizer

and differs in the regularizer alone: for the plain VAE it is KL(q(z|x) || p(z)).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from unknot.arguments import not_negative, positive, whole
from unknot.zoo.base import Model, first_of
from unknot.zoo.likelihoods import Likelihood, at_least_float, without_traces
from unknot.zoo.networks import GaussianEncoder, channels_last, check_image_shape, check_images, output_shape
from unknot.zoo.registry import Network, make_network


class Posterior(NamedTuple):
    r"""Gaussian posterior q(z|x) = N(mean, diag(exp(logvar))) of a batch: mean and log-variance, each ``[N, D]``.

    .. math:: q(z|x) = \mathcal{N}\left(\mu, \mathrm{diag}(\sigma^2)\right)

    .. math:: D_{KL} = \frac{1}{2}\sum_j\left(\mu_j^2 + \sigma_j^2 - \log\sigma_j^2 - 1\right)
    """

    mean: Tensor
    logvar: Tensor

    def sample(self) -> Tensor:
        """Sample z = μ + σ ε with ε ~ N(0, I): ``[N, D]``."""
        return self.mean + torch.exp(self.logvar / 2) * torch.randn_like(self.mean)

    def kl(self) -> Tensor:
        """Return KL(q(z|x)

        N(0, I)) of each latent: ½ (μ² + σ² - log σ² - 1), ``[N, D]``.
        """
        return (self.mean**2 + self.logvar.exp() - self.logvar - 1) / 2


class VAE(Model):
    r"""Base class of variational autoencoders; a variant overrides :meth:`regularizer`.

    .. math::
        \max_{\phi,\theta}\; \mathbb{E}_{p(x)}\left[\mathbb{E}_{q_\phi(z|x)}[\log p_\theta(x|z)] -
        D_{KL}(q_\phi(z|x)\,\|\,p(z))\right]

    Thesis: Eq. "eq:elbo", section "Learning Disentangled Representations".

    Every variant takes these arguments in addition to its own.

    Args:
        image_shape: (channels, height, width).
        latent_dim: number D of latents.
        lr: learning rate of Adam (β₁ 0.9, β₂ 0.999, ε 1e-8).
        likelihood: p(x|z): ``"bernoulli"``, as in the studies; ``"gaussian"``, the summed squared error;
            ``"continuous_bernoulli"``; with arguments as in ``{"name": "gaussian", "variance": "learned"}``; or a
            :class:`~unknot.zoo.Likelihood`.
        encoder: network from images to features ``[N, F]``: the name of a registered network, with arguments as in
            ``{"name": "ResidualEncoder", "width": 64}``, a module, or ``None`` for the network of the studies. Linear
            heads for mean and log-variance are added to it.
        decoder: network from latent codes ``[N, D]`` to outputs ``[N, C, H, W]``; specified like the encoder.
        reconstruction_weight: factor of -log p(x|z) in the loss. 1 is the ELBO; 4 on images of half the side weighs
            it against the regularizer as at full size.
        reconstruction: deprecated name of ``likelihood``.

    >>> model = VAE(image_shape=(1, 28, 28), encoder="MLPEncoder", likelihood="continuous_bernoulli")
    >>> model.represent(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    family = "vae"
    capabilities = frozenset({"codes", "decode", "elbo"})
    activity_name = "KL in nats"

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        lr: float = 1e-4,
        likelihood: Network = "bernoulli",
        encoder: Network = None,
        decoder: Network = None,
        reconstruction_weight: float = 1.0,
        reconstruction: Network = None,
    ) -> None:
        super().__init__(lr)
        not_negative(reconstruction_weight=reconstruction_weight)
        self.image_shape = check_image_shape(image_shape, smallest=1)
        self.latent_dim = whole("latent_dim", latent_dim)
        self.reconstruction_weight = reconstruction_weight
        recipes: dict[str, Any] = {}
        if likelihood == "bernoulli" and reconstruction is not None:
            likelihood = reconstruction
        shown, recipes["likelihood"] = make_network(likelihood, "likelihood", "bernoulli")
        if not isinstance(shown, Likelihood):
            raise ValueError(f"likelihood must be a Likelihood, such as 'bernoulli', got {type(shown).__name__}.")
        body, recipes["encoder"] = make_network(encoder, "encoder", "ConvEncoder", image_shape=self.image_shape)
        self.encoder = GaussianEncoder(body, self.image_shape, self.latent_dim)
        self.decoder, recipes["decoder"] = make_network(
            decoder, "decoder", "ConvDecoder", latent_dim=self.latent_dim, image_shape=self.image_shape
        )
        self.likelihood = shown
        drawn = output_shape(self.decoder, (self.latent_dim,), "decoder", f"outputs {list(self.image_shape)}")
        if drawn != self.image_shape:
            raise ValueError(
                f"The decoder {type(self.decoder).__name__} draws {list(drawn)}, but image_shape is "
                f"{list(self.image_shape)}."
            )
        self.save_hyperparameters(ignore=[*recipes, "reconstruction"])
        self.keep_recipes(recipes)
        channels_last(self)

    # Inference

    def encode(self, images: Tensor) -> Posterior:
        """Return q(z|x) for images ``[N, C, H, W]``, in [0, 1] unless the likelihood allows others."""
        self.check_images(images)
        mean, logvar = self.encoder(images.to(self.dtype, memory_format=torch.channels_last))
        return Posterior(at_least_float(mean), at_least_float(logvar))

    def represent(self, images: Tensor) -> Tensor:
        """Return the representation r(x), the mean of q(z|x): ``[N, D]``."""
        return self.encode(images).mean

    def forward(self, images: Tensor) -> Tensor:
        """Same as :meth:`represent`."""
        return self.represent(images)

    def decode(self, codes: Tensor) -> Tensor:
        """Return the mean image for latent codes ``[N, D]``: ``[N, C, H, W]``, in [0, 1] unless the likelihood allows
        others.
        """
        if not isinstance(codes, Tensor) or codes.ndim != 2 or codes.shape[1] != self.latent_dim:
            shape = list(codes.shape) if isinstance(codes, Tensor) else type(codes).__name__
            raise ValueError(f"Codes are {shape}, expected a tensor [N, {self.latent_dim}].")
        return self.likelihood.mean(self.decoder(codes.to(self.dtype)))

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Sample ``n`` images from the prior: ``[n, C, H, W]``. ``generator`` is a CPU generator."""
        return self.decode(torch.randn(n, self.latent_dim, generator=generator).to(self.device))

    def activity(self, images: Tensor) -> Tensor:
        """Return the mean KL(q(z_d|x)

        p(z_d)) over the images: ``[D]``.
        """
        return self.encode(images).kl().mean(0)

    # Objective

    def regularizer(self, posterior: Posterior, z: Tensor, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the term that is added to the reconstruction loss, and further scalars to log.

        By default this is KL(q(z|x) || p(z)), the second term of the negative ELBO.

        Args:
            posterior: q(z|x) of the batch.
            z: a sample of q(z|x), ``[N, D]``.
            kl: the batch mean of KL(q(z|x) || p(z)).
        """
        return kl, {}

    def reconstruction_loss(self, images: Tensor, outputs: Tensor) -> Tensor:
        """Return -log p(x|z), summed over pixels and channels and averaged over the batch."""
        return self.likelihood(images, outputs)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return all terms of the objective for a batch; ``"loss"`` is the one to minimise."""
        images = first_of(batch)
        return self.objective(images, self.encode(images))

    def objective(self, images: Tensor, posterior: Posterior) -> dict[str, Tensor]:
        """Return the terms of the objective for ``images`` with latents sampled from ``posterior``."""
        z = posterior.sample()
        reconstruction = self.reconstruction_loss(images, without_traces(self.decoder(z.to(self.dtype))))
        kl = posterior.kl().sum(1).mean()
        result = self.regularizer(posterior, z, kl)
        if not isinstance(result, tuple):
            raise TypeError(
                f"{type(self).__name__}.regularizer must return its value and a dictionary of what to log besides, "
                f"such as `value, {{}}`, got {type(result).__name__}."
            )
        regularizer, logged = result
        terms = {"reconstruction": reconstruction, "kl": kl, "elbo": -(reconstruction + kl), **logged}
        return terms | {"loss": self.reconstruction_weight * reconstruction + regularizer}

    # Training

    def check_images(self, images: Tensor, values: bool | None = None) -> None:
        """Raise an error for images that the model cannot take. ``values`` also checks their values on a GPU."""
        remedy = "rescale them (divide by 255?), or take likelihood={'name': 'gaussian', 'bounded': False}"
        check_images(images, self.image_shape, values, self.likelihood.support, remedy)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the representation of a batch."""
        return self.represent(first_of(batch))


class BetaVAE(VAE):
    r"""β-VAE (Higgins et al., 2017).

    .. math::
        \max\; \mathbb{E}_{p(x)}\left[\mathbb{E}_{q_\phi(z|x)}[\log p_\theta(x|z)] - \beta\,
        D_{KL}(q_\phi(z|x)\,\|\,p(z))\right]

    Thesis: section "Learning Disentangled Representations", paragraph "Bottleneck Capacity".

    Args:
        beta: weight of the KL; the study sweeps 1, 2, 4, 6, 8, 16.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = BetaVAE(beta=4.0)
    >>> model.represent(torch.rand(2, 1, 64, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(self, beta: float = 4.0, **vae: Any) -> None:
        super().__init__(**vae)
        not_negative(beta=beta)
        self.beta = beta

    def regularizer(self, posterior: Posterior, z: Tensor, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return β KL(q(z|x)

        p(z)).
        """
        return self.beta * kl, {}


class AnnealedVAE(VAE):
    r"""AnnealedVAE (Burgess et al., 2018).

    .. math::
        \max\; \mathbb{E}_{p(x)}\left[\mathbb{E}_{q_\phi(z|x)}[\log p_\theta(x|z)] -
        \gamma\,\left|D_{KL}(q_\phi(z|x)\,\|\,p(z)) - C\right|\right]

    Thesis: section "Learning Disentangled Representations", paragraph "Bottleneck Capacity".

    C grows linearly from 0 to ``c_max`` nats over the first ``iteration_threshold`` steps. The KL inside the bars
    is the batch mean, as in the reference.

    Args:
        c_max: capacity at the end, in nats; the study sweeps 5, 10, 25, 50, 75, 100.
        gamma: weight γ.
        iteration_threshold: step at which C reaches ``c_max``.
        vae: arguments of :class:`~unknot.zoo.VAE`.

    >>> model = AnnealedVAE(c_max=25.0)
    >>> model.represent(torch.rand(2, 1, 64, 64)).shape
    torch.Size([2, 10])
    """

    capacity: Tensor

    def __init__(
        self, c_max: float = 25.0, gamma: float = 1000.0, iteration_threshold: int = 100_000, **vae: Any
    ) -> None:
        super().__init__(**vae)
        not_negative(c_max=c_max, gamma=gamma)
        positive(iteration_threshold=iteration_threshold)
        self.c_max = c_max
        self.gamma = gamma
        self.iteration_threshold = iteration_threshold
        # A buffer, stored with the weights, so that a loaded model has the objective it was saved with.
        self.register_buffer("capacity", torch.tensor(0.0))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Set C(t) = c_max min(1, t / T)."""
        super().on_train_batch_start(batch, batch_idx)
        self.capacity.fill_(self.c_max * min(1.0, self.global_step / self.iteration_threshold))

    def regularizer(self, posterior: Posterior, z: Tensor, kl: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return γ |KL(q(z|x)

        p(z)) - C|.
        """
        return self.gamma * (kl - self.capacity).abs(), {"capacity": self.capacity.clone()}
