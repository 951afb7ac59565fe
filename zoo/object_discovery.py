"""Object discovery: Slot Attention as the bottleneck of an autoencoder that no label trains.

Beyond the thesis, which leaves this half of the paper to its co-author (Locatello et al., 2020, "Object-Centric
Learning with Slot Attention"); networks and settings are the reference's.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.zoo.base import Model, first_of
from unknot.zoo.networks import channels_last, check_image_shape, check_images, glorot
from unknot.zoo.slots import (
    ImageTokens,
    PositionEmbedding,
    SlotAttention,
    WarmUpThenDecay,
    check_schedule,
    check_strides,
    positive,
)


class Decomposition(NamedTuple):
    """An image as a mixture of what the slots draw.

    Args:
        reconstruction: Σ_k masks_k · parts_k, ``[B, C, H, W]``, about in [0, 1].
        parts: the image of each slot, ``[B, K, C, H, W]``.
        masks: how much of each pixel is due to each slot, ``[B, K, H, W]``; sums to one over slots.
    """

    reconstruction: Tensor
    parts: Tensor
    masks: Tensor


class SlotAutoEncoder(Model):
    """Each slot is decoded on its own into an image and a mask, and their mixture must be the image:

        loss = mean of (2 x - 1 - Σ_k softmax_k(m_k) r_k)²

    The decoder spreads a slot over a small map, adds a position embedding and applies transposed convolutions.

    Args:
        image_shape: (channels, height, width); sides are multiples of 16 from 32 up.
        num_slots: K; one more than there are objects, for the background.
        num_iterations: T.
        slot_dim: size of a slot.
        channels: of CNN and decoder.
        strides: of the convolutions of the encoder; all 1 in the reference, which makes one token of every pixel.
        lr: learning rate of Adam.
        warmup_steps: steps over which it rises from 0.
        decay_steps: steps in which it halves.

    >>> model = SlotAutoEncoder(image_shape=(3, 32, 32), num_slots=4, channels=16, strides=(2, 2, 1, 1))
    >>> model.decompose(torch.rand(2, 3, 32, 32)).masks.shape
    torch.Size([2, 4, 32, 32])
    """

    family = "object-discovery"
    capabilities = frozenset({"slots"})

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (3, 128, 128),
        num_slots: int = 7,
        num_iterations: int = 3,
        slot_dim: int = 64,
        channels: int = 64,
        strides: tuple[int, ...] = (1, 1, 1, 1),
        lr: float = 4e-4,
        warmup_steps: int = 10_000,
        decay_steps: int = 100_000,
    ) -> None:
        super().__init__(lr)
        positive(num_slots=num_slots, num_iterations=num_iterations, slot_dim=slot_dim, channels=channels)
        check_schedule(warmup_steps, decay_steps)
        self.save_hyperparameters()
        self.image_shape = check_image_shape(image_shape)
        self.num_slots, self.num_iterations = num_slots, num_iterations
        self.warmup_steps, self.decay_steps = warmup_steps, decay_steps
        image_channels, height, width = self.image_shape
        self.encoder = ImageTokens(image_channels, channels, check_strides(strides, self.image_shape))
        self.slot_attention = SlotAttention(num_slots, channels, slot_dim, num_iterations)
        self.small = (height // 16, width // 16)
        self.position = PositionEmbedding(slot_dim)
        doubling = [
            layer
            for before, after in pairwise([slot_dim, *[channels] * 4])
            for layer in (
                nn.ConvTranspose2d(before, after, kernel_size=5, stride=2, padding=2, output_padding=1),
                nn.ReLU(),
            )
        ]
        self.decoder = nn.Sequential(
            *doubling,
            nn.ConvTranspose2d(channels, channels, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.ConvTranspose2d(channels, image_channels + 1, kernel_size=3, padding=1),
        )
        for part in (self.position, self.decoder):
            part.apply(glorot)
        channels_last(self)

    def encode(self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None) -> Tensor:
        """Slots ``[B, K, D]`` of images ``[B, C, H, W]`` in [0, 1]."""
        check_images(images, self.image_shape, values=images.is_cpu and not torch.compiler.is_compiling())
        return self.slot_attention(self.encoder(images)[0], num_slots, num_iterations).slots.float()

    represent = encode

    def decode(self, slots: Tensor) -> Decomposition:
        """What slots ``[B, K, D]`` draw, each and together."""
        small = slots.flatten(0, 1)[..., None, None].expand(-1, -1, *self.small)
        drawn = self.decoder(self.position(small)).float().unflatten(0, slots.shape[:2])
        parts, masks = (drawn[:, :, :-1] + 1) / 2, drawn[:, :, -1].softmax(1)
        return Decomposition((masks[:, :, None] * parts).sum(1), parts, masks)

    def decompose(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> Decomposition:
        """Images as mixtures of what their slots draw."""
        return self.decode(self.encode(images, num_slots, num_iterations))

    def forward(self, images: Tensor) -> Tensor:
        """The slots ``[B, K, D]``."""
        return self.encode(images)

    def reconstruct(self, images: Tensor) -> Tensor:
        """Images drawn from their own slots, in [0, 1]."""
        return self.decompose(images).reconstruction.clamp(0, 1)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """The squared error of a batch whose first entry are images, in the reference's range [-1, 1]."""
        images = first_of(batch)
        return {"loss": 4 * F.mse_loss(self.decompose(images).reconstruction, images.float())}

    def draw(self, batch: Any, folder: Path, suffix: str = "", num_images: int = 6) -> list[Path]:
        """The part of each slot."""
        from unknot.zoo.set_pictures import draw_decomposition  # Matplotlib takes a while

        images = first_of(batch)[: min(6, num_images)]
        return [draw_decomposition(self, images, folder / f"decomposition{suffix}.png")]

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Slots of a batch."""
        return self(first_of(batch))

    def own_schedule(self, optimizer: torch.optim.Optimizer) -> WarmUpThenDecay:
        """The reference's warm-up and decay."""
        return WarmUpThenDecay(optimizer, self.warmup_steps, self.decay_steps)
