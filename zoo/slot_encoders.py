"""Image tokens: the convolutions, position embedding and schedule that all slot models share."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts, whole
from unknot.zoo.base import Model
from unknot.zoo.networks import check_image_shape, glorot, output_shape
from unknot.zoo.registry import Network, make_network
from unknot.zoo.slot_attention import NORM_EPSILON
from unknot.zoo.transposed_conv import Transposed


class PositionEmbedding(nn.Module):
    """Add a linear function of (row, column, 1 - row, 1 - column), each in [0, 1], to a map ``[B, C, H, W]``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.project = nn.Linear(4, channels)

    def forward(self, features: Tensor) -> Tensor:
        """Return the map with the embedding added."""
        like = self.project.weight
        rows, columns = (
            torch.linspace(0, 1, side, device=like.device, dtype=like.dtype) for side in features.shape[2:]
        )
        row, column = torch.meshgrid(rows, columns, indexing="ij")
        grid = torch.stack([row, column, 1 - row, 1 - column], dim=-1)
        return features + self.project(grid).permute(2, 0, 1)


class SameConv2d(nn.Conv2d):
    """Convolution padded as TensorFlow's "SAME": odd padding has the extra row and column below and right."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the map, with sides divided by the stride and rounded up."""
        margins = []
        for side, kernel, stride in zip(input.shape[2:], self.kernel_size, self.stride, strict=True):
            total = max(0, (math.ceil(side / stride) - 1) * stride + kernel - side)
            margins.append((total // 2, total - total // 2))
        (above, below), (left, right) = margins
        return super().forward(F.pad(input, (left, right, above, below)))


class SameConvTranspose2d(Transposed):
    """Inverse of :class:`SameConv2d` of size 5 and stride 2: crops one row above and left, two below and right."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, kernel_size=5, stride=2, padding=1)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Return the map with sides doubled."""
        return super().forward(input, output_size)[..., :-1, :-1]


def doubling(before: int, after: int, padding: str) -> nn.Module:
    """Return a 5 × 5 transposed convolution that doubles the sides, cropped symmetrically or as in the reference."""
    if padding == "symmetric":
        return Transposed(before, after, kernel_size=5, stride=2, padding=2, output_padding=1)
    return SameConvTranspose2d(before, after)


def convolution(before: int, after: int, stride: int, padding: str) -> nn.Module:
    """Return a 5 × 5 convolution, padded by two on all sides or as in the reference."""
    if padding == "symmetric":
        return nn.Conv2d(before, after, kernel_size=5, stride=stride, padding=2)
    return SameConv2d(before, after, kernel_size=5, stride=stride)


class ImageTokens(nn.Module):
    """Encode images ``[B, C, H, W]`` in [0, 1] as tokens ``[B, N, channels]``, one per position of a feature map.

    Convolutions 5 × 5 with ReLU, or another network, are followed by position embedding, LayerNorm and an MLP per
    token, as in the reference.

    Args:
        image_shape: (channels, height, width).
        channels: channels of all layers.
        strides: strides of the convolutions; the sides of the map are divided by their product.
        network: network from images to ``[B, channels, h, w]`` that replaces the convolutions.
        padding: padding of the convolutions: ``"symmetric"``, or ``"tensorflow"`` as in the reference.
        batch_norm: whether each convolution is followed by batch normalisation.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        channels: int = 64,
        strides: Sequence[int] = (1, 2, 2, 1),
        network: nn.Module | None = None,
        padding: str = "symmetric",
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        if padding not in ("symmetric", "tensorflow"):
            raise ValueError(f"padding must be 'symmetric' or 'tensorflow', got {padding!r}.")
        widths = [image_shape[0]] + [channels] * len(strides)
        self.convolutions = network or nn.Sequential(
            *(
                layer
                for (before, after), stride in zip(pairwise(widths), strides, strict=True)
                for layer in (
                    convolution(before, after, stride, padding),
                    *([nn.BatchNorm2d(after)] if batch_norm else []),
                    nn.ReLU(),
                )
            )
        )
        if network is not None:
            shape = output_shape(network, image_shape, "encoder", "a map of features [N, C, h, w]")
            if len(shape) != 3:
                raise ValueError(
                    f"The encoder {type(network).__name__} gives {list(shape)} for each image; a model with slots "
                    "needs a map of features [C, h, w]: leave out what pools and flattens it."
                )
            channels = shape[0]
        self.channels = channels
        self.position = PositionEmbedding(channels)
        self.norm = nn.LayerNorm(channels, eps=NORM_EPSILON)
        self.mlp = nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels))
        for part in (self.position, self.mlp, *([] if network else [self.convolutions])):
            part.apply(glorot)

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Return tokens, row by row, and the height and width of their map."""
        # Channels-last layout makes convolutions a tenth faster on a CPU, and needs no copy for the tokens.
        images = (2 * images.to(self.norm.weight.dtype) - 1).contiguous(memory_format=torch.channels_last)
        features = self.position(self.convolutions(images))
        height, width = features.shape[2:]
        return self.mlp(self.norm(features.flatten(2).transpose(1, 2))), (height, width)


class TokenModel(Model):
    """Base class of models that read an image as tokens, with the reference's learning rate schedule.

    Args:
        image_shape: (channels, height, width), sides from 16 up.
        channels: channels of the convolutions.
        strides: strides of the convolutions; (1, 2, 2, 1) makes 32 x 32 tokens of an image of 128 x 128.
        lr: learning rate of Adam after the warm-up.
        warmup_steps: steps over which the learning rate rises from 0.
        decay_steps: steps in which the learning rate halves.
        encoder: network from images to ``[N, C, h, w]`` that replaces the convolutions: a registered name, with
            arguments as in ``{"name": ..., ...}``, or a module.
        padding: padding of the convolutions: ``"symmetric"``, two on each side; or ``"tensorflow"``, as in the
            reference, whose strided convolutions pad one above and left and two below and right. Weights of the
            reference need it.
        batch_norm: whether batch normalisation follows each of the convolutions, which then learn much sooner. The
            reference has none.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (3, 128, 128),
        channels: int = 64,
        strides: tuple[int, ...] = (1, 2, 2, 1),
        lr: float = 4e-4,
        warmup_steps: int = 1000,
        decay_steps: int = 50_000,
        encoder: Network = None,
        padding: str = "symmetric",
        batch_norm: bool = False,
    ) -> None:
        super().__init__(lr)
        counts(channels=channels)
        self.image_shape = check_image_shape(image_shape)
        self.warmup_steps = whole("warmup_steps", warmup_steps, least=0)
        self.decay_steps = whole("decay_steps", decay_steps)
        network: nn.Module | None = None
        recipe: Any = None
        if encoder is not None:
            network, recipe = make_network(encoder, "encoder", "", image_shape=self.image_shape)
        strides = check_strides(strides, self.image_shape)
        self.encoder = ImageTokens(self.image_shape, channels, strides, network, padding, batch_norm)
        self.save_hyperparameters(ignore=["encoder", "decoder"])
        self.keep_recipes({"encoder": recipe})

    def own_schedule(self, optimizer: torch.optim.Optimizer) -> "WarmUpThenDecay":
        """Return the reference's warm-up and decay."""
        return WarmUpThenDecay(optimizer, self.warmup_steps, self.decay_steps)


def warm_up_then_decay(step: int, warmup_steps: int, decay_steps: int) -> float:
    """Factor of the learning rate in the reference's schedule: min(1, t / warm-up) · 0.5^(t / decay).

    >>> [warm_up_then_decay(t, 1000, 50_000) for t in (0, 500, 50_000)]
    [0.0, 0.49654624771851796, 0.5]
    """
    return min(1.0, step / warmup_steps if warmup_steps else 1.0) * 0.5 ** (step / decay_steps)


class WarmUpThenDecay(torch.optim.lr_scheduler.LambdaLR):
    """Learning rate scheduler of :func:`warm_up_then_decay`."""

    def __init__(self, optimizer: torch.optim.Optimizer, warmup_steps: int, decay_steps: int) -> None:
        super().__init__(optimizer, lambda step: warm_up_then_decay(step, warmup_steps, decay_steps))


def check_strides(strides: Sequence[int], image_shape: tuple[int, int, int]) -> tuple[int, ...]:
    """Return strides as a tuple, after checking that they are positive and leave at least one token."""
    strides = tuple(whole("Each of strides", stride) for stride in strides)
    if not strides:
        raise ValueError("strides must be whole numbers, one for each convolution, got none.")
    if math.prod(strides) > min(image_shape[1:]):
        raise ValueError(f"strides {strides} are too much for images of {image_shape[1]} x {image_shape[2]}.")
    return strides
