"""Quantised latents: an autoencoder whose latents take a few learned values, trained with weight decay.

Hsu et al., 2023, "Disentanglement via Latent Quantization". Latent j of an image is the value in V_j that is nearest to
the encoder's output, and the decoder sees only these values:

    min -log p(x|ẑ) / P + λ_q 1/D Σ_j (sg(z_j) - q_j)² + λ_c 1/D Σ_j (z_j - sg(q_j))²
    q_j = argmin_{v in V_j} |z_j - v|,   ẑ = z + sg(q - z)

The gradient of ẑ passes unchanged to the encoder. P is the number of pixels times channels: the weights λ are relative
to the mean over pixels, not to the sum that other models minimise. Few values and strong weight decay make latents
disentangle; there is no prior and no noise.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts, not_negative, whole
from unknot.zoo.base import Model, first_of
from unknot.zoo.likelihoods import Likelihood, at_least_float, without_traces
from unknot.zoo.networks import (
    channels_last,
    check_image_shape,
    check_images,
    check_widths,
    crop,
    margins,
    output_shape,
)
from unknot.zoo.registry import Network, make_network
from unknot.zoo.transposed_conv import Transposed

SMALLEST = 17  # instance normalisation needs more than one place in the smallest map
NORM_EPSILON = 1e-6
SLOPE = 0.2


class Quantised(NamedTuple):
    """Latents before quantisation, the nearest values, and the indices of these: each ``[N, D]``."""

    continuous: Tensor
    codes: Tensor
    indices: Tensor

    def straight_through(self) -> Tensor:
        """Return the quantised latents, with the gradient of the continuous ones."""
        return self.continuous + (self.codes - self.continuous).detach()


def quantise(continuous: Tensor, values: Tensor) -> Quantised:
    """Replace each latent by the nearest of its own values.

    Args:
        continuous: ``[N, D]``.
        values: ``[D, V]``.

    >>> quantise(torch.tensor([[-2.0, 0.2]]), torch.tensor([[-0.5, 0.5], [0.0, 1.0]])).codes
    tensor([[-0.5000,  0.0000]])
    """
    with torch.no_grad():
        indices = (continuous[..., None] - values).abs().argmin(-1)
    codes = values.expand(continuous.shape[0], -1, -1).gather(2, indices[..., None])[..., 0]
    return Quantised(continuous, codes, indices)


class QuantisedAutoEncoder(Model):
    """Autoencoder whose latents take a few values each; subclasses define ``values``, ``encode`` and ``losses``.

    Args:
        image_shape: (channels, height, width).
        latent_dim: number D of latents.
        num_values: number of values of each latent.
        lr: learning rate of AdamW.
        weight_decay: decay of all weights except biases and values.
        likelihood: p(x|z): a name, ``{"name": ..., **arguments}`` or a module, as for :class:`~unknot.zoo.VAE`.
        encoder: network from images to features, followed by a linear layer; by default :class:`StyleEncoder`.
        decoder: network from latent codes to outputs; by default :class:`StyleDecoder`.
    """

    family = "quantised"
    capabilities = frozenset({"codes", "decode", "levels"})
    activity_name = "entropy in nats"
    optimizer_class = torch.optim.AdamW
    values: Tensor

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        num_values: int = 10,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        likelihood: Network = "bernoulli",
        encoder: Network = None,
        decoder: Network = None,
    ) -> None:
        super().__init__(lr)
        not_negative(weight_decay=weight_decay)
        self.image_shape = check_image_shape(image_shape, smallest=1)
        self.latent_dim, self.num_values = whole("latent_dim", latent_dim), whole("num_values", num_values)
        self.weight_decay = weight_decay
        recipes: dict[str, Any] = {}
        shown, recipes["likelihood"] = make_network(likelihood, "likelihood", "bernoulli")
        if not isinstance(shown, Likelihood):
            raise ValueError(f"likelihood must be a Likelihood, such as 'bernoulli', got {type(shown).__name__}.")
        self.likelihood = shown
        self.encoder, recipes["encoder"] = make_network(
            encoder, "encoder", "StyleEncoder", image_shape=self.image_shape
        )
        features = output_shape(self.encoder, self.image_shape, "encoder", "features [N, F]")
        self.head = nn.Linear(math.prod(features), self.latent_dim)
        self.decoder, recipes["decoder"] = make_network(
            decoder, "decoder", "StyleDecoder", latent_dim=self.latent_dim, image_shape=self.image_shape
        )
        drawn = output_shape(self.decoder, (self.latent_dim,), "decoder", f"outputs {list(self.image_shape)}")
        if drawn != self.image_shape:
            raise ValueError(
                f"The decoder {type(self.decoder).__name__} draws {list(drawn)}, but image_shape is "
                f"{list(self.image_shape)}."
            )
        self.save_hyperparameters(ignore=[*recipes])
        self.keep_recipes(recipes)
        channels_last(self)

    # Inference

    def encode(self, images: Tensor) -> Quantised:
        """Return latents of images ``[N, C, H, W]``, before and after quantisation."""
        raise NotImplementedError

    def features(self, images: Tensor) -> Tensor:
        """Return one number for each latent, before quantisation: ``[N, D]``."""
        self.check_images(images)
        features = self.encoder(images.to(self.dtype, memory_format=torch.channels_last)).flatten(1)
        return at_least_float(self.head(features))

    def represent(self, images: Tensor) -> Tensor:
        """Return the quantised latents: ``[N, D]``."""
        return self.encode(images).codes

    def forward(self, images: Tensor) -> Tensor:
        """Same as :meth:`represent`."""
        return self.represent(images)

    def decode(self, codes: Tensor) -> Tensor:
        """Return the mean image for latent codes ``[N, D]``, of these values or others: ``[N, C, H, W]``."""
        if not isinstance(codes, Tensor) or codes.ndim != 2 or codes.shape[1] != self.latent_dim:
            shape = list(codes.shape) if isinstance(codes, Tensor) else type(codes).__name__
            raise ValueError(f"Codes are {shape}, expected a tensor [N, {self.latent_dim}].")
        return self.likelihood.mean(self.decoder(codes.to(self.dtype)))

    @torch.no_grad()
    def activity(self, images: Tensor) -> Tensor:
        """Return the entropy of the values that each latent takes over the images: ``[D]``."""
        used = F.one_hot(self.encode(images.to(self.device)).indices, self.num_values).float().mean(0)
        return -torch.special.xlogy(used, used).sum(1)

    @torch.no_grad()
    def traverse(self, images: Tensor, values: Tensor | None = None) -> Tensor:
        """Change one latent of each image at a time and decode.

        Args:
            images: ``[N, C, H, W]``.
            values: values for each latent, ``[V]``; by default its own values, in order.

        Returns:
            ``[N, D, V, C, H, W]``.
        """
        start = self.represent(images)
        own = self.values.sort(1).values if values is None else torch.as_tensor(values).expand(self.latent_dim, -1)
        codes = start[:, None, None, :].repeat(1, self.latent_dim, own.shape[1], 1)
        each = torch.arange(self.latent_dim)
        codes[:, each, :, each] = own.to(start)[:, None]
        return self.decode(codes.flatten(0, 2)).unflatten(0, codes.shape[:3])

    # Training

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return two groups: weights, which decay, and biases and values, which do not."""
        free = [weight for name, weight in self.named_parameters() if name.endswith("bias") or name == "values"]
        kept = set(free)
        decaying = [weight for weight in self.parameters() if weight not in kept]
        return [
            {"params": decaying, "weight_decay": self.weight_decay},
            {"params": free, "weight_decay": 0.0},
        ]

    def check_images(self, images: Tensor, values: bool | None = None) -> None:
        """Raise an error for images that the model cannot take. ``values`` also checks their values on a GPU."""
        remedy = "rescale them (divide by 255?), or take likelihood={'name': 'gaussian', 'bounded': False}"
        check_images(images, self.image_shape, values, self.likelihood.support, remedy)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the representation of a batch."""
        return self.represent(first_of(batch))


class QLAE(QuantisedAutoEncoder):
    r"""Quantised-latent autoencoder (Hsu et al., 2023): each latent takes one of a few learned values.

    .. math::
        \min\; -\frac{1}{P}\log p(x|\hat z) + \frac{\lambda_q}{D} \sum_j \left(\mathrm{sg}(z_j) - q_j\right)^2 +
        \frac{\lambda_c}{D} \sum_j \left(z_j - \mathrm{sg}(q_j)\right)^2

    .. math:: q_j = \mathrm{argmin}_{v \in V_j} |z_j - v|

    .. math:: \hat z = z + \mathrm{sg}(q - z)

    The values are the representation; ``encode(images).indices`` are their indices. The paper uses twice as many
    latents as factors, and trains for 200,000 steps of 128 images with each gradient entry clipped to 1.

    Args:
        image_shape: (channels, height, width).
        latent_dim: number D of latents.
        num_values: number of values of each latent.
        lr: learning rate of AdamW.
        weight_decay: decay of all weights except biases and values; 0.1 in the paper, 0.001 on MPI3D.
        quantisation_weight: λ_q, which moves values towards latents.
        commitment_weight: λ_c, which moves latents towards values.
        likelihood: p(x|z): a name, ``{"name": ..., **arguments}`` or a module, as for :class:`~unknot.zoo.VAE`.
        encoder: network from images to features, followed by a linear layer; by default :class:`StyleEncoder`.
        decoder: network from latent codes to outputs; by default :class:`StyleDecoder`, which is part of the method.

    >>> model = QLAE(image_shape=(1, 32, 32), latent_dim=4)
    >>> codes = model.represent(torch.rand(2, 1, 32, 32))
    >>> bool(torch.isin(codes, model.values).all())
    True
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        num_values: int = 10,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        quantisation_weight: float = 0.01,
        commitment_weight: float = 0.01,
        likelihood: Network = "bernoulli",
        encoder: Network = None,
        decoder: Network = None,
    ) -> None:
        super().__init__(image_shape, latent_dim, num_values, lr, weight_decay, likelihood, encoder, decoder)
        not_negative(quantisation_weight=quantisation_weight, commitment_weight=commitment_weight)
        self.quantisation_weight, self.commitment_weight = quantisation_weight, commitment_weight
        self.values = nn.Parameter(torch.linspace(-0.5, 0.5, self.num_values).repeat(self.latent_dim, 1))

    def encode(self, images: Tensor) -> Quantised:
        """Return latents of images ``[N, C, H, W]``, before and after quantisation."""
        return quantise(self.features(images), at_least_float(self.values))

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return all terms of the objective; ``reconstruction`` is the sum over pixels, as in other models."""
        images = first_of(batch)
        latents = self.encode(images)
        outputs = without_traces(self.decoder(latents.straight_through().to(self.dtype)))
        reconstruction = self.likelihood(images, outputs)
        quantisation = F.mse_loss(latents.codes, latents.continuous.detach())
        commitment = F.mse_loss(latents.continuous, latents.codes.detach())
        loss = (
            reconstruction / math.prod(self.image_shape)
            + self.quantisation_weight * quantisation
            + self.commitment_weight * commitment
        )
        terms = {"reconstruction": reconstruction, "quantisation": quantisation, "commitment": commitment}
        return terms | {"loss": loss}


class StyleEncoder(nn.Sequential):
    """Encoder of QLAE: four stages of 3x3 convolutions and a 4x4 convolution that halves the sides, then dense layers.

    Instance normalisation and a leaky ReLU (0.2) follow each convolution, which has no bias. Sides that are not
    multiples of 16 are padded with zeros.

    Args:
        image_shape: (channels, height, width), sides from 17 up.
        widths: channels of the stages.
        depth: convolutions per stage.
        hidden: widths of the dense layers.

    >>> StyleEncoder((1, 32, 32), widths=(8, 8, 16, 16))(torch.rand(2, 1, 32, 32)).shape
    torch.Size([2, 256])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        widths: tuple[int, ...] = (32, 64, 128, 256),
        depth: int = 3,
        hidden: tuple[int, ...] = (256, 256),
    ) -> None:
        channels, height, width = check_image_shape(image_shape, SMALLEST)
        counts(depth=depth)
        self.padding = margins((height, width), 2 ** len(widths))
        layers: list[nn.Module] = []
        for before, after in pairwise([channels, *check_widths(list(widths))]):
            sizes = [before] + [after] * depth
            for place, (inputs, outputs) in enumerate(pairwise(sizes)):
                halves = place == depth - 1
                layers += [
                    nn.Conv2d(inputs, outputs, 4 if halves else 3, 2 if halves else 1, padding=1, bias=False),
                    nn.GroupNorm(outputs, outputs, eps=NORM_EPSILON),
                    nn.LeakyReLU(SLOPE),
                ]
        places = math.prod(math.ceil(side / 2 ** len(widths)) for side in (height, width))
        dense = [widths[-1] * places, *check_widths(list(hidden))]
        super().__init__(
            *layers,
            nn.Flatten(),
            *(layer for pair in pairwise(dense) for layer in (nn.Linear(*pair), nn.ReLU())),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return features ``[N, F]``."""
        return super().forward(F.pad(images, self.padding) if any(self.padding) else images)


class StyleDecoder(nn.Module):
    """Decoder of QLAE: a learned map that the latents modulate after every layer, as in StyleGAN.

    Dense layers turn latents into a style. In each of four stages, 3x3 transposed convolutions and a 4x4 one, which
    doubles the sides, are followed by a leaky ReLU (0.2), instance normalisation, and scale and shift from the style.
    Scale and shift pass a ReLU, as in the authors' code, so that they are never negative.

    Args:
        latent_dim: number of latents.
        image_shape: (channels, height, width), sides from 17 up.
        widths: channels of the stages.
        depth: convolutions per stage.
        hidden: widths of the dense layers.

    >>> StyleDecoder(4, (1, 32, 32), widths=(16, 16, 8, 8))(torch.rand(2, 4)).shape
    torch.Size([2, 1, 32, 32])
    """

    def __init__(
        self,
        latent_dim: int,
        image_shape: tuple[int, int, int],
        widths: tuple[int, ...] = (256, 128, 64, 32),
        depth: int = 3,
        hidden: tuple[int, ...] = (256, 256),
    ) -> None:
        super().__init__()
        channels, height, width = check_image_shape(image_shape, SMALLEST)
        counts(depth=depth)
        widths = tuple(check_widths(list(widths)))
        self.padding = margins((height, width), 2 ** len(widths))
        dense = [latent_dim, *check_widths(list(hidden))]
        self.style = nn.Sequential(*(layer for pair in pairwise(dense) for layer in (nn.Linear(*pair), nn.ReLU())))
        small = [math.ceil(side / 2 ** len(widths)) for side in (height, width)]
        self.start = nn.Parameter(torch.full((1, widths[0], *small), 0.1))
        self.layers = nn.ModuleList()
        self.conditions = nn.ModuleList()
        before = widths[0]
        for after in widths:
            for place in range(depth):
                doubles = place == depth - 1
                self.layers.append(
                    Transposed(before, after, 4 if doubles else 3, 2 if doubles else 1, padding=1, bias=False)
                )
                self.conditions.append(nn.Linear(dense[-1], 2 * after))
                before = after
        self.last = nn.Conv2d(before, channels, 3, padding=1, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Return outputs ``[N, C, H, W]`` for latent codes ``[N, D]``."""
        return crop(self.last(self.stages(codes)[-1]), self.padding)

    def stages(self, codes: Tensor) -> list[Tensor]:
        """Return the style ``[N, S]``, and the maps after each stage."""
        style = self.style(codes)
        maps, kept = self.start.expand(codes.shape[0], -1, -1, -1), [style]
        for layer, condition in zip(self.layers, self.conditions, strict=True):
            before = maps.shape[2]
            scale, shift = F.relu(condition(style))[..., None, None].chunk(2, 1)
            maps = F.leaky_relu(layer(maps), SLOPE)
            maps = F.group_norm(maps, maps.shape[1], eps=NORM_EPSILON) * scale + shift
            if maps.shape[2] > before:
                kept.append(maps)
        return kept
