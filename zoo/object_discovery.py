"""Object discovery: Slot Attention as the bottleneck of an autoencoder trained without labels.

This half of the paper is not part of the thesis (Locatello et al., 2020, "Object-Centric Learning with Slot
Attention"). Networks and settings follow the reference.
"""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts, whole
from unknot.zoo.base import Model, first_of
from unknot.zoo.likelihoods import at_least_float
from unknot.zoo.networks import channels_last, crop, glorot, margins, output_shape
from unknot.zoo.registry import Network, make_network
from unknot.zoo.slot_attention import Gradient, Initial, SlotAttention
from unknot.zoo.slot_encoders import PositionEmbedding, TokenModel, doubling
from unknot.zoo.transposed_conv import Transposed


class Decomposition(NamedTuple):
    """Decomposition of an image into a mixture of the images of its slots.

    Args:
        reconstruction: Σ_k masks_k · parts_k, ``[B, C, H, W]``, about in [0, 1].
        parts: the image of each slot, ``[B, K, C, H, W]``.
        masks: share of each pixel that belongs to each slot, ``[B, K, H, W]``; sums to one over slots.
    """

    reconstruction: Tensor
    parts: Tensor
    masks: Tensor

    @classmethod
    def of(cls, parts: Tensor, logits: Tensor) -> "Decomposition":
        """Mix parts ``[B, K, C, H, W]`` by the softmax of logits ``[B, K, H, W]`` over slots."""
        masks = logits.softmax(1)
        return cls((masks[:, :, None] * parts).sum(1), parts, masks)


class SlotModel(Model):
    """Model that decomposes images into slots; a subclass has ``slot_attention``, ``tokens`` and ``decode``."""

    family = "object-discovery"
    slot_attention: SlotAttention

    def tokens(self, images: Tensor) -> Tensor:
        """Turn images into inputs of Slot Attention ``[B, N, D]``."""
        raise NotImplementedError

    def decode(self, slots: Tensor) -> Decomposition:
        """Decode slots ``[B, K, D]`` separately, and mix the results."""
        raise NotImplementedError

    def encode(self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None) -> Tensor:
        """Return slots ``[B, K, D]`` of images, or of feature maps where the model takes these."""
        self.check_images(images)
        return at_least_float(self.slot_attention(self.tokens(images), num_slots, num_iterations).slots)

    represent = encode

    def decompose(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> Decomposition:
        """Decompose images into mixtures of what their slots draw."""
        return self.decode(self.encode(images, num_slots, num_iterations))

    def forward(self, images: Tensor) -> Tensor:
        """Return the slots ``[B, K, D]``."""
        return self.encode(images)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the slots of a batch."""
        return self(first_of(batch))


class SlotAutoEncoder(SlotModel, TokenModel):
    r"""Slot Attention autoencoder: each slot is decoded separately into an image and a mask, then mixed.

    .. math:: \min\; \mathrm{mean}\left(2 x - 1 - \sum_k \mathrm{softmax}_k(m_k)\, r_k\right)^2

    The decoder broadcasts a slot over a small map, adds a position embedding and applies transposed convolutions.

    Args:
        num_slots: number of slots K; one more than there are objects, for the background.
        num_iterations: number T of iterations of Slot Attention.
        slot_dim: size of a slot.
        channels: channels of the CNN and the decoder.
        strides: strides of the encoder's convolutions; all 1 in the reference, so that every pixel is a token.
        warmup_steps: steps over which the learning rate rises from 0.
        decay_steps: steps in which the learning rate halves.
        initial: initial slots, ``"gaussian"`` or ``"learned"``: see :class:`~unknot.zoo.SlotAttention`.
        gradient: ``"full"``, ``"implicit"`` or ``"bilevel"``. BO-QSA uses learned slots and ``"bilevel"``.
        offset: offset in the weighted mean of the inputs; 0, or 1 in BO-QSA.
        noise_steps: steps over which the noise of learned slots falls from 1 to 0 along a cosine; 0 for no noise.
        decoder: network from broadcast slots ``[N, slot_dim, ceil(H / 16), ceil(W / 16)]`` to an image and a mask ``[N,
            C + 1, H, W]``: a registered name with arguments, a module, or ``None`` for the reference's.
        tokens: further arguments of :class:`~unknot.zoo.slot_encoders.TokenModel`: ``image_shape``, ``lr``, ``encoder``
            and ``padding``.

    >>> import torch
    >>> model = SlotAutoEncoder(image_shape=(3, 32, 32), num_slots=4, channels=16, strides=(2, 2, 1, 1))
    >>> model.decompose(torch.rand(2, 3, 32, 32)).masks.shape
    torch.Size([2, 4, 32, 32])
    """

    capabilities = frozenset({"slots"})

    def __init__(
        self,
        num_slots: int = 7,
        num_iterations: int = 3,
        slot_dim: int = 64,
        channels: int = 64,
        strides: tuple[int, ...] = (1, 1, 1, 1),
        warmup_steps: int = 10_000,
        decay_steps: int = 100_000,
        initial: Initial = "gaussian",
        gradient: Gradient = "full",
        offset: float = 0.0,
        noise_steps: int = 30_000,
        decoder: Network = None,
        **tokens: Any,
    ) -> None:
        super().__init__(
            channels=channels, strides=strides, warmup_steps=warmup_steps, decay_steps=decay_steps, **tokens
        )
        counts(num_slots=num_slots, num_iterations=num_iterations, slot_dim=slot_dim)
        self.num_slots, self.num_iterations = num_slots, num_iterations
        image_channels, height, width = self.image_shape
        self.noise_steps = whole("noise_steps", noise_steps, least=0)
        self.slot_attention = SlotAttention(
            num_slots,
            self.encoder.channels,
            slot_dim,
            num_iterations,
            initial=initial,
            gradient=gradient,
            offset=offset,
        )
        self.small = (math.ceil(height / 16), math.ceil(width / 16))
        self.position = PositionEmbedding(slot_dim)
        self.position.apply(glorot)
        recipe: Any = None
        if decoder is None:
            self.decoder: nn.Module = SlotDecoder(slot_dim, channels, self.image_shape, self.hparams["padding"])
        else:
            self.decoder, recipe = make_network(decoder, "decoder", "", image_shape=self.image_shape)
        drawn = output_shape(self.decoder, (slot_dim, *self.small), "decoder", "an image and a mask [N, C + 1, H, W]")
        if drawn != (image_channels + 1, height, width):
            raise ValueError(f"The decoder draws {list(drawn)}, expected {[image_channels + 1, height, width]}.")
        self.keep_recipes({"decoder": recipe})
        channels_last(self)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Set the noise of learned slots to ½ (1 + cos(π min(1, t / T)))."""
        super().on_train_batch_start(batch, batch_idx)
        if self.slot_attention.initial == "learned":
            share = min(1.0, self.global_step / self.noise_steps) if self.noise_steps else 1.0
            self.slot_attention.noise.fill_((1 + math.cos(math.pi * share)) / 2)

    def tokens(self, images: Tensor) -> Tensor:
        """Turn images ``[B, C, H, W]`` in [0, 1] into inputs of Slot Attention ``[B, N, D]``."""
        tokens: Tensor = self.encoder(images)[0]
        return tokens

    def decode(self, slots: Tensor) -> Decomposition:
        """Decode slots ``[B, K, D]`` separately, and mix the results."""
        small = slots.to(self.dtype).flatten(0, 1)[..., None, None].expand(-1, -1, *self.small)
        drawn = at_least_float(self.decoder(self.position(small))).unflatten(0, slots.shape[:2])
        return Decomposition.of((drawn[:, :, :-1] + 1) / 2, drawn[:, :, -1])

    def reconstruct(self, images: Tensor) -> Tensor:
        """Reconstruct images from their slots, in [0, 1]."""
        return self.decompose(images).reconstruction.clamp(0, 1)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return the squared error for the images of a batch, in the reference's range [-1, 1]."""
        images = first_of(batch)
        drawn = self.decompose(images).reconstruction
        return {"loss": 4 * F.mse_loss(drawn, images.to(drawn))}

    def draw(self, batch: Any, folder: Path, suffix: str = "", num_images: int = 6) -> list[Path]:
        """Draw the image of each slot."""
        from unknot.zoo.object_pictures import draw_decomposition  # Matplotlib takes a while

        images = first_of(batch)[: min(6, num_images)]
        return [draw_decomposition(self, images, folder / f"decomposition{suffix}.png")]


class SlotDecoder(nn.Sequential):
    """The reference's spatial broadcast decoder: four transposed convolutions that double the map, and two that do not.

    Args:
        slot_dim: channels of the input map.
        channels: channels of the hidden layers.
        image_shape: (channels, height, width); for sides that are not multiples of 16, a larger image is cropped.
        padding: ``"symmetric"`` or ``"tensorflow"``, as for the encoder.
    """

    def __init__(
        self, slot_dim: int, channels: int, image_shape: tuple[int, int, int], padding: str = "symmetric"
    ) -> None:
        self.padding = margins((image_shape[1], image_shape[2]), 16)
        widths = pairwise([slot_dim, *[channels] * 4])
        super().__init__(
            *(layer for before, after in widths for layer in (doubling(before, after, padding), nn.ReLU())),
            Transposed(channels, channels, kernel_size=5, padding=2),
            nn.ReLU(),
            Transposed(channels, image_shape[0] + 1, kernel_size=3, padding=1),
        )
        self.apply(glorot)

    def forward(self, maps: Tensor) -> Tensor:
        """Return an image and a mask."""
        return crop(super().forward(maps), self.padding)
