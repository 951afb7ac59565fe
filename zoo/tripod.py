"""Tripod: quantised latents that share little information and affect the image independently.

Hsu et al., 2024, "Tripod: Three Complementary Inductive Biases for Disentangled Representation Learning". Latents pass
a tanh and are rounded to V fixed values in [-1, 1], with a straight-through gradient:

    min -log p(x|ẑ) / P + λ_M M(ẑ) + λ_H Σ_l H_l(ẑ)

    M = 1/N Σ_n [log q(ẑ_n) - Σ_j log q_j(ẑ_nj)]                  with kernel density estimates q of the batch
    H_l = Σ_{i≠j} (σ_i σ_j ∂²f_l/∂z_i∂z_j)² / Σ_{i,j} (σ_i σ_j ∂²f_l/∂z_i∂z_j)²,   the mean over units of layer f_l

M is the multi-information of the latents, zero if they are independent. H is the share of the decoder's curvature that
mixes two latents, estimated by second differences along random directions.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unknot.arguments import not_negative, positive, whole
from unknot.zoo.base import first_of
from unknot.zoo.likelihoods import at_least_float, without_traces
from unknot.zoo.quantised import Quantised, QuantisedAutoEncoder, StyleDecoder
from unknot.zoo.registry import Network

SMALLEST_STD, SMALLEST_CURVATURE = 1e-6, 1e-10


def multi_information(codes: Tensor, std: Tensor, silverman: bool = False) -> Tensor:
    """Kernel density estimate of log q(z_n) - Σ_j log q_j(z_nj) for each sample ``[N]``.

    Kernels are Gaussian. Those of the joint density have Silverman's bandwidth, std times
    (4 / (N (D + 2)))^(1 / (D + 4)).

    Args:
        codes: ``[N, D]``.
        std: standard deviation of each latent, ``[D]``.
        silverman: use Silverman's bandwidth for the marginal densities too. The authors' code uses bandwidths of one
            standard deviation there, so that the estimate for independent latents is not 0.

    >>> multi_information(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.ones(2)).mean()
    tensor(0.2258)
    """
    n, d = codes.shape
    squared = ((codes[:, None] - codes) / std) ** 2  # [N, N, D]

    def log_density(distances: Tensor, bandwidth: float, dims: int) -> Tensor:
        """Return the logarithm of the mean of Gaussian kernels over the samples of dimension 1."""
        constant = dims * (math.log(2 * math.pi) / 2 + math.log(bandwidth)) + math.log(n)
        return (-distances / (2 * bandwidth**2)).logsumexp(1) - constant

    joint = log_density(squared.sum(2), _silverman(n, d), d) - std.log().sum()
    marginal = log_density(squared, _silverman(n, 1) if silverman else 1.0, 1) - std.log()
    return joint - marginal.sum(1)


def _silverman(n: int, dims: int) -> float:
    return float((4 / (dims + 2)) ** (1 / (dims + 4)) * n ** (-1 / (dims + 4)))


def curvature(
    layers: Callable[[Tensor], Sequence[Tensor]], codes: Tensor, directions: Tensor, step: float
) -> list[Tensor]:
    """Variance of vᵀ(∂²f/∂z²)v over directions v, averaged over the units of each layer: ``[N]`` for each.

    Entries of v that are ± s_i with equal probability give 2 Σ_{i≠j} (s_i s_j ∂²f/∂z_i∂z_j)², normal ones with standard
    deviation s_i give 2 Σ_{i,j}. This is the population variance, as in the authors' code.

    Args:
        layers: function from latent codes ``[M, D]`` to the outputs of each layer ``[M, ...]``.
        codes: ``[N, D]``.
        directions: ``[K, N, D]``.
        step: ε of the second differences (f(z + εv) - 2 f(z) + f(z - εv)) / ε².
    """
    k, n, _ = directions.shape
    around = torch.cat([codes + step * directions, codes - step * directions]).flatten(0, 1)
    variances = []
    for middle, outputs in zip(layers(codes), layers(around), strict=True):
        above, below = outputs.unflatten(0, (2, k, n))
        differences = (above - 2 * middle + below) / step**2
        variances.append(differences.var(0, unbiased=False).flatten(1).mean(1))
    return variances


class Tripod(QuantisedAutoEncoder):
    r"""Tripod (Hsu et al., 2024): quantised latents, little multi-information, and a decoder without mixed curvature.

    .. math::
        \min\; -\frac{1}{P}\log p(x|\hat z) + \frac{\lambda_M}{N}\sum_n \log\frac{q(\hat z_n)}{\prod_j q_j(\hat z_{nj})}
        + \lambda_H \sum_l \frac{\sum_{i\neq j} \left(\sigma_i\sigma_j\,\partial_i\partial_j f_l\right)^2}
        {\sum_{i,j} \left(\sigma_i\sigma_j\,\partial_i\partial_j f_l\right)^2}

    The rounded values are the representation; ``encode(images).indices`` are their indices. The paper uses twice as
    many latents as factors, and trains for 250,000 steps of 64 images with each gradient entry clipped to 1.

    By default, two estimates differ from the authors' code; ``reference=True`` follows it. Their penalty divides the
    mixed by the total curvature of every image, from two samples each: a ratio with a heavy tail. The default divides
    the means over the batch. Their marginal densities lack Silverman's factor, see :func:`multi_information`.

    The penalty applies to the style and to all stages except the last of a :class:`StyleDecoder`, and to the outputs of
    other decoders. The networks are those of QLAE, not the paper's residual networks.

    Args:
        image_shape: (channels, height, width).
        latent_dim: number D of latents.
        num_values: number V of values of each latent.
        lr: learning rate of AdamW.
        weight_decay: decay of all weights except biases; none in the paper.
        information_weight: λ_M; 1e-4 in the paper on Shapes3D and Isaac3D, 1e-8 on MPI3D, 1e-10 on Falcor3D.
        curvature_weight: λ_H; 1e-2 in the paper on Shapes3D and Falcor3D, 1e-4 on MPI3D, 1e-8 on Isaac3D.
        num_directions: random directions of each kind for every image.
        step: ε of the second differences, relative to the standard deviation of a latent.
        reference: use both estimates of the authors' code.
        likelihood: p(x|z): a name, ``{"name": ..., **arguments}`` or a module, as for :class:`~unknot.zoo.VAE`.
        encoder: network from images to features, followed by a linear layer; by default :class:`StyleEncoder`.
        decoder: network from latent codes to outputs; by default :class:`StyleDecoder`.

    >>> model = Tripod(image_shape=(1, 32, 32), latent_dim=4, encoder="MLPEncoder", decoder="MLPDecoder")
    >>> sorted(model.losses(torch.rand(8, 1, 32, 32)))
    ['curvature', 'loss', 'multi_information', 'reconstruction']
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (1, 64, 64),
        latent_dim: int = 10,
        num_values: int = 12,
        lr: float = 2e-4,
        weight_decay: float = 0.0,
        information_weight: float = 1e-4,
        curvature_weight: float = 1e-2,
        num_directions: int = 2,
        step: float = 0.1,
        reference: bool = False,
        likelihood: Network = "bernoulli",
        encoder: Network = None,
        decoder: Network = None,
    ) -> None:
        whole("num_values", num_values, least=2)
        super().__init__(image_shape, latent_dim, num_values, lr, weight_decay, likelihood, encoder, decoder)
        not_negative(information_weight=information_weight, curvature_weight=curvature_weight)
        positive(step=step)
        self.information_weight, self.curvature_weight = information_weight, curvature_weight
        self.num_directions = whole("num_directions", num_directions, least=2)
        self.step, self.reference = step, reference
        levels = torch.linspace(-1, 1, self.num_values).repeat(self.latent_dim, 1)
        self.register_buffer("values", levels, persistent=False)

    def encode(self, images: Tensor) -> Quantised:
        """Return latents of images ``[N, C, H, W]``, before and after rounding."""
        return self.quantise(self.features(images))

    def quantise(self, features: Tensor) -> Quantised:
        """Round the tanh of features ``[N, D]`` to the nearest of the V values."""
        continuous = features.tanh()
        indices = ((continuous.detach() + 1) / 2 * (self.num_values - 1)).round().long()
        return Quantised(continuous, at_least_float(self.values)[0, indices], indices)

    def layers(self, codes: Tensor) -> list[Tensor]:
        """Return the outputs of the decoder's layers whose curvature is penalised."""
        if isinstance(self.decoder, StyleDecoder):
            return self.decoder.stages(codes)[:-1]
        return [self.decoder(codes)]

    def mixing(self, codes: Tensor, std: Tensor) -> Tensor:
        """Return the share of curvature that mixes two latents, summed over layers and averaged over images."""
        shape = (self.num_directions, *codes.shape)
        signs = torch.randint(0, 2, shape, device=codes.device).to(codes) * 2 - 1
        mixed = curvature(self.layers, codes, signs * std, self.step)
        total = curvature(self.layers, codes, torch.randn(shape, device=codes.device).to(codes) * std, self.step)
        if not self.reference:
            mixed, total = [part.mean() for part in mixed], [part.mean() for part in total]
        shares = [(part / (of + SMALLEST_CURVATURE)).mean() for part, of in zip(mixed, total, strict=True)]
        return torch.stack(shares).sum()

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return all terms of the objective; ``reconstruction`` is the sum over pixels, as in other models."""
        images = first_of(batch)
        latents = self.encode(images)
        codes = latents.straight_through()
        std = latents.continuous.std(0, unbiased=False) + SMALLEST_STD
        reconstruction = self.likelihood(images, without_traces(self.decoder(codes.to(self.dtype))))
        information = multi_information(codes, std, silverman=not self.reference).mean()
        mixing = self.mixing(codes.to(self.dtype), std.to(self.dtype))
        loss = (
            reconstruction / math.prod(self.image_shape)
            + self.information_weight * information
            + self.curvature_weight * mixing
        )
        return {"reconstruction": reconstruction, "multi_information": information, "curvature": mixing, "loss": loss}
