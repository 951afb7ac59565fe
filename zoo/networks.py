"""Network modules: encoders, decoders, and FactorVAE's discriminator.

An encoder maps images ``[N, C, H, W]`` to features ``[N, F]``, to which a VAE adds linear heads for mean and
log-variance. A decoder maps latent codes ``[N, D]`` to outputs ``[N, C, H, W]``, the parameters of the likelihood. The
thesis uses :class:`ConvEncoder` and :class:`ConvDecoder`.
"""

import math
import operator
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts, whole
from unknot.inference import evaluation_mode
from unknot.randomness import kept_generators
from unknot.zoo.transposed_conv import Transposed

HIDDEN = 256
MAX_LAYERS = 64


class GaussianEncoder(nn.Module):
    """Map images ``[N, C, H, W]`` to mean and log-variance, each ``[N, D]``: a network with two linear heads.

    Args:
        body: network that returns features.
        image_shape: (channels, height, width).
        latent_dim: D.
    """

    def __init__(self, body: nn.Module, image_shape: tuple[int, int, int], latent_dim: int) -> None:
        super().__init__()
        self.body = body
        shape = output_shape(body, image_shape, "encoder", "features [N, F]")
        features = math.prod(shape)
        self.mean = nn.Linear(features, latent_dim)
        self.logvar = nn.Linear(features, latent_dim)
        self.mean.apply(glorot)
        self.logvar.apply(glorot)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of the Gaussian posterior of each image."""
        features = self.body(images).flatten(1)
        return self.mean(features), self.logvar(features)


class ConvEncoder(nn.Sequential):
    """Encoder of the studies: four strided convolutions and a dense layer of 256 units.

    Thesis: section "Disentanglement_lib", paragraph "Inductive Biases".

    Sides that are not multiples of 16 are padded with zeros to the next multiple.

    Args:
        image_shape: (channels, height, width), sides from 16 up.

    >>> ConvEncoder((1, 28, 28))(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 256])
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        channels, height, width = check_image_shape(image_shape)
        self.padding = margins((height, width), 16)
        super().__init__(
            nn.Conv2d(channels, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=2, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=2, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * math.ceil(height / 16) * math.ceil(width / 16), HIDDEN),
            nn.ReLU(),
        )
        self.apply(glorot)

    def forward(self, images: Tensor) -> Tensor:
        """Return features ``[N, 256]``."""
        return super().forward(F.pad(images, self.padding) if any(self.padding) else images)


class ConvDecoder(nn.Sequential):
    """Decoder of the studies: two dense layers and four transposed convolutions.

    Thesis: section "Disentanglement_lib", paragraph "Inductive Biases".

    For sides that are not multiples of 16, a larger image is decoded and cropped.

    Args:
        latent_dim: D.
        image_shape: (channels, height, width), sides from 16 up.

    >>> ConvDecoder(10, (3, 64, 40))(torch.zeros(2, 10)).shape
    torch.Size([2, 3, 64, 40])
    """

    def __init__(self, latent_dim: int, image_shape: tuple[int, int, int]) -> None:
        channels, height, width = check_image_shape(image_shape)
        self.padding = margins((height, width), 16)
        small = (64, math.ceil(height / 16), math.ceil(width / 16))
        super().__init__(
            nn.Linear(latent_dim, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, math.prod(small)),
            nn.ReLU(),
            nn.Unflatten(1, small),
            Transposed(64, 64, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            Transposed(64, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            Transposed(32, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            Transposed(32, channels, kernel_size=4, stride=2, padding=1),
        )
        self.apply(glorot)

    def forward(self, codes: Tensor) -> Tensor:
        """Return outputs ``[N, C, H, W]``."""
        return crop(super().forward(codes), self.padding)


class ResidualBlock(nn.Module):
    """Residual block x + conv(SiLU(norm(conv(SiLU(norm(x)))))), with a 1 × 1 convolution on the shortcut if the width
    changes.

    Unlike batch normalisation, group normalisation gives an image the same representation in every batch.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.GroupNorm(math.gcd(8, before), before),
            nn.SiLU(),
            nn.Conv2d(before, after, kernel_size=3, padding=1),
            nn.GroupNorm(math.gcd(8, after), after),
            nn.SiLU(),
            nn.Conv2d(after, after, kernel_size=3, padding=1),
        )
        self.around = nn.Identity() if before == after else nn.Conv2d(before, after, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a map of the same size."""
        return self.around(x) + self.branch(x)


def stages(image_shape: tuple[int, int, int], width: int, blocks: int) -> tuple[list[int], tuple[int, int, int, int]]:
    """Return the widths of the stages of a residual network, each halving the sides down to 4 to 7, and the padding."""
    _, *sides = check_image_shape(image_shape)
    counts(width=width, blocks=blocks)
    if blocks > MAX_LAYERS:
        raise ValueError(f"blocks must be at most {MAX_LAYERS}, got {blocks}.")
    halvings = int(math.log2(min(sides) / 4))
    return [width * min(2**stage, 8) for stage in range(halvings)], margins((sides[0], sides[1]), 2**halvings)


class ResidualEncoder(nn.Sequential):
    """Residual network for images of about 64 to 224 pixels: stages halve the map to 4 to 7 pixels, then a dense layer.

    Args:
        image_shape: (channels, height, width), sides from 16 up.
        width: channels of the first stage; they double up to eight times that.
        blocks: residual blocks in each stage.
        features: number of features F.

    >>> ResidualEncoder((3, 96, 96), width=8)(torch.rand(2, 3, 96, 96)).shape
    torch.Size([2, 256])
    """

    def __init__(
        self, image_shape: tuple[int, int, int], width: int = 32, blocks: int = 1, features: int = HIDDEN
    ) -> None:
        widths, self.padding = stages(image_shape, width, blocks)
        layers: list[nn.Module] = [nn.Conv2d(image_shape[0], width, kernel_size=3, padding=1)]
        for before, after in pairwise([width, *widths]):
            layers.append(nn.Conv2d(before, after, kernel_size=4, stride=2, padding=1))
            layers += [ResidualBlock(after, after) for _ in range(blocks)]
        sides = [math.ceil(side / 2 ** len(widths)) for side in image_shape[1:]]
        layers += [nn.SiLU(), nn.Flatten(), nn.Linear(widths[-1] * math.prod(sides), features), nn.SiLU()]
        super().__init__(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Return features ``[N, F]``."""
        return super().forward(F.pad(images, self.padding) if any(self.padding) else images)


class ResidualDecoder(nn.Sequential):
    """Mirror image of :class:`ResidualEncoder`: each stage doubles the sides by repeating pixels.

    Args:
        latent_dim: D.
        image_shape: (channels, height, width), sides from 16 up.
        width: channels of the last stage; the first have up to eight times that.
        blocks: residual blocks in each stage.

    >>> ResidualDecoder(10, (3, 96, 96), width=8)(torch.zeros(2, 10)).shape
    torch.Size([2, 3, 96, 96])
    """

    def __init__(self, latent_dim: int, image_shape: tuple[int, int, int], width: int = 32, blocks: int = 1) -> None:
        widths, self.padding = stages(image_shape, width, blocks)
        sides = [math.ceil(side / 2 ** len(widths)) for side in image_shape[1:]]
        small = (widths[-1], *sides)
        layers: list[nn.Module] = [nn.Linear(latent_dim, math.prod(small)), nn.Unflatten(1, small)]
        for before, after in pairwise([*reversed(widths), width]):
            layers += [ResidualBlock(before, before) for _ in range(blocks)]
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(before, after, kernel_size=3, padding=1)]
        layers += [nn.SiLU(), nn.Conv2d(width, image_shape[0], kernel_size=3, padding=1)]
        super().__init__(*layers)

    def forward(self, codes: Tensor) -> Tensor:
        """Return outputs ``[N, C, H, W]``."""
        return crop(super().forward(codes), self.padding)


class MLPEncoder(nn.Sequential):
    """Dense layers with ReLU on the flattened image, for images of any size.

    Args:
        image_shape: (channels, height, width).
        hidden: widths of the layers.

    >>> MLPEncoder((1, 9, 7), hidden=[32])(torch.rand(2, 1, 9, 7)).shape
    torch.Size([2, 32])
    """

    def __init__(self, image_shape: tuple[int, int, int], hidden: Sequence[int] = (512, 512)) -> None:
        widths = [math.prod(check_image_shape(image_shape, smallest=1)), *check_widths(hidden)]
        super().__init__(nn.Flatten(), *(layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())))
        self.apply(glorot)


class MLPDecoder(nn.Sequential):
    """Dense layers with ReLU; the last layer has one output per pixel and channel.

    Args:
        latent_dim: D.
        image_shape: (channels, height, width).
        hidden: widths of the hidden layers.

    >>> MLPDecoder(10, (1, 9, 7))(torch.zeros(2, 10)).shape
    torch.Size([2, 1, 9, 7])
    """

    def __init__(self, latent_dim: int, image_shape: tuple[int, int, int], hidden: Sequence[int] = (512, 512)) -> None:
        widths = [latent_dim, *check_widths(hidden)]
        size = math.prod(check_image_shape(image_shape, smallest=1))
        super().__init__(
            *(layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())),
            nn.Linear(widths[-1], size),
            nn.Unflatten(1, tuple(image_shape)),
        )
        self.apply(glorot)


class Discriminator(nn.Sequential):
    """FactorVAE's density-ratio network, six dense layers of 1000 units: ``[N, D]`` to two logits ``[N, 2]``."""

    def __init__(self, latent_dim: int) -> None:
        widths = [latent_dim] + [1000] * 6
        layers = [
            layer for inputs, outputs in pairwise(widths) for layer in (nn.Linear(inputs, outputs), nn.LeakyReLU(0.2))
        ]
        super().__init__(*layers, nn.Linear(1000, 2))
        self.apply(glorot)


def glorot(layer: nn.Module) -> None:
    """Initialise weights Glorot-uniform and biases to zero, as in the reference; PyTorch's own default differs."""
    if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def channels_last(network: nn.Module) -> None:
    """Convert convolution weights to channels-last layout, the fastest on CPU and GPU."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@torch.no_grad()
def output_shape(network: nn.Module, input_shape: Sequence[int], role: str, expected: str) -> tuple[int, ...]:
    """Return the output shape of a network for one input of zeros, without the batch; random states are preserved."""
    like = next((tensor for tensor in (*network.parameters(), *network.buffers()) if tensor.is_floating_point()), None)
    zeros = torch.zeros(1, *input_shape) if like is None else like.new_zeros(1, *input_shape)
    with evaluation_mode(network), kept_generators(zeros.device):
        try:
            output = network(zeros)
        except (RuntimeError, ValueError, IndexError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"The {role} {type(network).__name__} cannot take {list(zeros.shape)}: {reason}"
            ) from error
    if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != 1:
        shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            f"The {role} {type(network).__name__} gives {shape} for {list(zeros.shape)}; expected {expected}, one "
            "tensor with a row for each input."
        )
    return tuple(output.shape[1:])


def margins(sides: tuple[int, int], multiple: int) -> tuple[int, int, int, int]:
    """Return the padding left, right, above and below that makes both sides (height, width) multiples of a number.

    >>> margins((28, 64), 16)
    (0, 0, 2, 2)
    """
    height, width = (-side % multiple for side in sides)
    return width // 2, width - width // 2, height // 2, height - height // 2


def crop(images: Tensor, padding: tuple[int, int, int, int]) -> Tensor:
    """Crop margins from images: the inverse of padding."""
    return F.pad(images, tuple(-margin for margin in padding)) if any(padding) else images


def check_widths(widths: Sequence[int]) -> list[int]:
    """Check the widths of hidden layers."""
    if not isinstance(widths, list | tuple) or not 1 <= len(widths) <= MAX_LAYERS:
        raise ValueError(f"hidden must be 1 to {MAX_LAYERS} whole numbers, got {widths!r}.")
    return [whole("Each of hidden", width) for width in widths]


def check_image_shape(image_shape: Sequence[int], smallest: int = 16) -> tuple[int, int, int]:
    """Check that a tuple is a valid image shape whose sides are large enough for four halvings."""
    try:
        channels, height, width = map(operator.index, image_shape)
        fits = channels >= 1 and min(height, width) >= smallest
    except (TypeError, ValueError):  # not three, or not numbers
        fits = False
    if not fits:
        hint = ", or use MLPEncoder and MLPDecoder for smaller images" if smallest > 1 else ""
        raise ValueError(
            f"image_shape must be integers (channels, height, width) with sides from {smallest} up{hint}, "
            f"got {image_shape!r}."
        )
    return channels, height, width


def check_images(
    images: Tensor,
    image_shape: tuple[int, int, int],
    values: bool | None = None,
    support: tuple[float, float] = (0.0, 1.0),
    remedy: str = "rescale them (divide by 255?)",
) -> None:
    """Raise an error for images of another shape or type, and for values that are NaN, infinite or outside ``support``.

    ``values`` decides whether to check values; by default only on the CPU, because on a GPU the check waits for the
    device.
    """
    if not isinstance(images, Tensor):
        raise ValueError(
            f"Images are of type {type(images).__name__}, expected a tensor [N, C, H, W]: use torch.as_tensor."
        )
    if images.ndim != 4 or tuple(images.shape[1:]) != image_shape:
        raise ValueError(
            f"Images have shape {list(images.shape)}, the model expects [N, {', '.join(map(str, image_shape))}]: "
            "resize them, or build the model with the image_shape=(channels, height, width) of the data."
        )
    if not images.is_floating_point():
        raise ValueError(f"Images are {images.dtype}, expected floats in [0, 1]: divide by 255.")
    if values is None:
        values = images.is_cpu and not torch.compiler.is_compiling()
    if values and images.numel():
        low, high = torch.aminmax(images.detach())
        least, most = support
        if not (low >= least and high <= most and low > -math.inf and high < math.inf):
            expected = f"[0, 1]: {remedy}" if support == (0, 1) else f"finite values from {least:g} to {most:g}"
            raise ValueError(f"Image values reach from {low:.4g} to {high:.4g}, expected {expected}.")
