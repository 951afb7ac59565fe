"""The last layer of a decoder, faster to train on a CPU than the library's own."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FEW_CHANNELS = 4


class ToPixels(nn.ConvTranspose2d):
    """A transposed convolution to the few channels of an image, trained on a CPU as one product and a fold.

    The library's own kernel there is made for many channels, and takes three times as long for one; its gradients are
    fast, and stay.
    """

    def forward(self, maps: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Outputs ``[N, C, H, W]``."""
        plain = not self.training or output_size is not None or self.bias is None or self.out_channels > FEW_CHANNELS
        other = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or maps.dtype.itemsize < 4
        if plain or other or not maps.is_cpu:
            return super().forward(maps, output_size)
        result: Tensor = ProductAndFold.apply(maps, self.weight, self.bias, self.stride, self.padding)
        return result


class ProductAndFold(torch.autograd.Function):
    """``conv_transpose2d`` with another way forward: each pixel times the kernel, and the overlaps added up."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        maps: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, ...], padding: tuple[int, ...]
    ) -> Tensor:
        """Outputs ``[N, C, H, W]``."""
        kernel = weight.shape[2:]
        sides = tuple(
            (side - 1) * step - 2 * pad + width
            for side, step, pad, width in zip(maps.shape[2:], stride, padding, kernel, strict=True)
        )
        pixels = maps.flatten(2)  # of channels-last maps too a view
        columns = weight.flatten(1).T @ pixels
        return F.fold(columns, sides, kernel, stride=stride, padding=padding) + bias[:, None, None]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what gradients need."""
        maps, weight, _, ctx.stride, ctx.padding = inputs
        ctx.save_for_backward(maps, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Those of the transposed convolution."""
        maps, weight = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        channels, zero = [weight.shape[1]], [0, 0]
        gradients = torch.ops.aten.convolution_backward(
            gradient, maps, weight, channels, ctx.stride, ctx.padding, [1, 1], True, zero, 1, wanted
        )
        return *gradients, None, None
