"""Image transforms with a random generator: your own, for example from torchvision, and colour augmentation."""

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from unknot.lightning import pl

Transform = Callable[[Tensor], Tensor]


def transformed(images: Tensor, transform: Transform | None, generator: torch.Generator) -> Tensor:
    """Transform each of the images ``[N, C, H, W]`` separately.

    Transforms use the global random generators of torch, NumPy or Python, which are seeded by ``generator`` and
    restored afterwards.
    """
    if transform is None:
        return images
    seed = int(torch.randint(2**31, (), generator=generator))
    with pl.utilities.seed.isolate_rng(include_cuda=False):
        _seed_all(seed)
        return torch.stack([transform(image) for image in images])


def transformed_shape(images: Tensor, transform: Transform | None) -> tuple[int, int, int]:
    """Return the shape (channels, height, width) of images ``[N, C, H, W]`` after a transform."""
    shape = transformed(images, transform, torch.Generator()).shape[1:]
    if len(shape) != 3:
        raise ValueError(f"transform must give images [C, H, W], got shape {list(shape)}.")
    channels, height, width = shape
    return channels, height, width


def jittered(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Change the colours of images ``[N, 3, H, W]`` in [0, 1], each by its own random factors.

    Factors are uniform: 1 ± strength for saturation and for contrast, 1 ± strength / 2 for brightness, and 1 ± strength
    / 4 for each channel. (torchvision's ``ColorJitter`` draws once for all images of a batch.)

    >>> images = torch.rand(4, 3, 8, 8)
    >>> jittered(images, 0.3, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 8, 8])
    """

    def factor(reach: float, channels: int = 1) -> Tensor:
        return 1 + reach * (2 * torch.rand(len(images), channels, 1, 1, generator=generator) - 1)

    saturated = torch.lerp(images.mean(1, keepdim=True), images, factor(strength))
    contrasted = torch.lerp(images.mean((1, 2, 3), keepdim=True), saturated, factor(strength))
    return (contrasted * factor(strength / 2) * factor(strength / 4, channels=3)).clamp_(0, 1)


def _seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (used by transforms)
    random.seed(seed)
