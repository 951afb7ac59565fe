"""The networks that every study of the thesis uses: encoder, decoder, and FactorVAE's discriminator."""

from itertools import pairwise

import torch
from torch import Tensor, nn

HIDDEN = 256


class ConvEncoder(nn.Module):
    """Images ``[N, C, H, W]`` to mean and log-variance, each ``[N, D]``: four strided convolutions, a dense layer,
    and a linear head for each.
    """

    def __init__(self, image_shape: tuple[int, int, int], latent_dim: int) -> None:
        channels, height, width = check_image_shape(image_shape)
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=2, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=2, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * (height // 16) * (width // 16), HIDDEN),
            nn.ReLU(),
        )
        self.mean = nn.Linear(HIDDEN, latent_dim)
        self.logvar = nn.Linear(HIDDEN, latent_dim)
        self.apply(glorot)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the Gaussian code of each image."""
        features = self.body(images)
        return self.mean(features), self.logvar(features)


class ConvDecoder(nn.Sequential):
    """Codes ``[N, D]`` to logits ``[N, C, H, W]``: two dense layers and four transposed convolutions."""

    def __init__(self, latent_dim: int, image_shape: tuple[int, int, int]) -> None:
        channels, height, width = check_image_shape(image_shape)
        small = (64, height // 16, width // 16)
        super().__init__(
            nn.Linear(latent_dim, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, small[0] * small[1] * small[2]),
            nn.ReLU(),
            nn.Unflatten(1, small),
            nn.ConvTranspose2d(64, 64, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 32, kernel_size=4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, channels, kernel_size=4, stride=2, padding=1),
        )
        self.apply(glorot)


class Discriminator(nn.Sequential):
    """Codes ``[N, D]`` to two logits ``[N, 2]``: six dense layers of 1000 units. FactorVAE's density-ratio network."""

    def __init__(self, latent_dim: int) -> None:
        widths = [latent_dim] + [1000] * 6
        layers = [
            layer for inputs, outputs in pairwise(widths) for layer in (nn.Linear(inputs, outputs), nn.LeakyReLU(0.2))
        ]
        super().__init__(*layers, nn.Linear(1000, 2))
        self.apply(glorot)


def glorot(layer: nn.Module) -> None:
    """Glorot-uniform weights and zero biases, as in the reference; PyTorch's own default differs."""
    if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def check_image_shape(image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Refuse shapes that four halvings cannot serve."""
    try:
        channels, height, width = image_shape
        fits = channels >= 1 and all(side >= 32 and side % 16 == 0 for side in (height, width))
        fits = fits and all(isinstance(size, int) for size in image_shape)
    except (TypeError, ValueError):  # not three, or not numbers
        fits = False
    if not fits:
        raise ValueError(
            f"image_shape must be integers (channels, height, width) with sides that are multiples of 16 from 32 up, "
            f"got {image_shape!r}."
        )
    return channels, height, width


def check_images(images: Tensor, image_shape: tuple[int, int, int], values: bool) -> None:
    """Refuse images of another shape or type and, if asked, values outside [0, 1] or NaN."""
    if images.ndim != 4 or tuple(images.shape[1:]) != image_shape:
        raise ValueError(
            f"Images have shape {list(images.shape)}, the model expects [N, {', '.join(map(str, image_shape))}]: "
            "resize them, or build the model with the image_shape=(channels, height, width) of the data."
        )
    if not images.is_floating_point():
        raise ValueError(f"Images are {images.dtype}, expected floats in [0, 1]: divide by 255.")
    if values and images.numel():
        low, high = torch.aminmax(images.detach())
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"Image values reach from {low:.4g} to {high:.4g}, expected [0, 1]: rescale them (divide by 255?)."
            )
