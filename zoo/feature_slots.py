"""DINOSAUR: slots that reconstruct the features of a frozen network instead of pixels.

Seitzer et al., 2023, "Bridging the Gap to Real-World Object-Centric Learning". The features h of a frozen network, at P
positions, are both input and target:

    min 1/(P F) || h - Σ_k softmax_k(m_k) ĥ_k ||²,   (ĥ_kp, m_kp) = MLP(slot_k + position_p)
"""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts, whole
from unknot.zoo.base import first_of
from unknot.zoo.likelihoods import at_least_float
from unknot.zoo.networks import check_image_shape, check_images, glorot
from unknot.zoo.object_discovery import Decomposition, SlotModel
from unknot.zoo.slot_attention import Gradient, Initial, SlotAttention
from unknot.zoo.slot_encoders import WarmUpThenDecay

POSITION_STD = 0.02
HALVED_AFTER = 100_000


class DINOSAUR(SlotModel):
    r"""DINOSAUR (Seitzer et al., 2023) on precomputed features ``[B, F, h, w]``, with its MLP decoder.

    .. math:: \min\; \tfrac{1}{PF}\left\|h - \sum_k \mathrm{softmax}_k(m_k)\,\hat h_k\right\|^2

    Tokens pass LayerNorm and an MLP, and Slot Attention groups them. Every slot is decoded separately at every
    position, together with a logit of its mask. Pixels are never reconstructed, so texture and lighting matter only as
    far as they affect the frozen network.

    ``image_shape`` is the shape of a feature map. Wherever slots of images are scored, features take the place of
    images: :class:`~unknot.datamodules.FeatureScenes` computes and stores them.

    Args:
        image_shape: (features, height, width) of the maps.
        num_slots: K.
        num_iterations: T of Slot Attention.
        slot_dim: size of a slot; 128 or 256 in the paper.
        hidden_dim: width of the three hidden layers of the decoder; 1024 or 2048 in the paper.
        lr: learning rate of Adam.
        warmup_steps: steps over which the learning rate rises from 0; it halves every 100,000.
        initial: initialisation of slots, see :class:`~unknot.zoo.SlotAttention`.
        gradient: gradient through the iterations, see :class:`~unknot.zoo.SlotAttention`.

    >>> model = DINOSAUR(image_shape=(112, 14, 14), num_slots=5, slot_dim=32, hidden_dim=64)
    >>> model.decompose(torch.randn(2, 112, 14, 14)).masks.shape
    torch.Size([2, 5, 14, 14])
    """

    capabilities = frozenset({"feature_slots"})

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (112, 14, 14),
        num_slots: int = 7,
        num_iterations: int = 3,
        slot_dim: int = 128,
        hidden_dim: int = 1024,
        lr: float = 4e-4,
        warmup_steps: int = 10_000,
        initial: Initial = "gaussian",
        gradient: Gradient = "full",
    ) -> None:
        super().__init__(lr)
        counts(num_slots=num_slots, num_iterations=num_iterations, slot_dim=slot_dim, hidden_dim=hidden_dim)
        self.image_shape = check_image_shape(image_shape, smallest=1)
        features, height, width = self.image_shape
        self.num_slots = num_slots
        self.warmup_steps = whole("warmup_steps", warmup_steps, least=0)
        self.encoder = nn.Sequential(
            nn.LayerNorm(features), nn.Linear(features, features), nn.ReLU(), nn.Linear(features, slot_dim)
        )
        self.slot_attention = SlotAttention(
            num_slots, slot_dim, slot_dim, num_iterations, 4 * slot_dim, initial=initial, gradient=gradient
        )
        self.position = nn.Parameter(POSITION_STD * torch.randn(height * width, slot_dim))
        widths = [slot_dim, hidden_dim, hidden_dim, hidden_dim]
        layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.decoder = nn.Sequential(*layers, nn.Linear(hidden_dim, features + 1))
        self.encoder.apply(glorot)
        self.decoder.apply(glorot)
        self.save_hyperparameters()

    def tokens(self, features: Tensor) -> Tensor:
        """Turn feature maps ``[B, F, h, w]`` into inputs of Slot Attention ``[B, h w, D]``."""
        tokens: Tensor = self.encoder(features.to(self.dtype).flatten(2).transpose(1, 2))
        return tokens

    def decode(self, slots: Tensor) -> Decomposition:
        """Decode slots ``[B, K, D]`` into the features and mask of each slot, and their mixture."""
        placed = slots.to(self.dtype)[:, :, None] + self.position  # [B, K, P, D]
        drawn = at_least_float(self.decoder(placed)).transpose(2, 3).unflatten(3, self.image_shape[1:])
        return Decomposition.of(drawn[:, :, :-1], drawn[:, :, -1])

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return the mean squared error of the features, which are the first entry of a batch."""
        features = first_of(batch)
        drawn = self.decompose(features).reconstruction
        return {"loss": F.mse_loss(drawn, features.to(drawn))}

    def check_images(self, images: Tensor, values: bool | None = None) -> None:
        """Raise an error for feature maps of another shape, or with values that are not finite."""
        check_images(images, self.image_shape, values, (-math.inf, math.inf), "features must be finite")

    def own_schedule(self, optimizer: torch.optim.Optimizer) -> WarmUpThenDecay:
        """Return the schedule: a warm-up, then a learning rate that halves every 100,000 steps."""
        return WarmUpThenDecay(optimizer, self.warmup_steps, HALVED_AFTER)
