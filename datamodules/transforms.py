"""Transforms of one's own images, as torchvision has them, drawn from a generator of their own."""

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from unknot._lightning import pl

Transform = Callable[[Tensor], Tensor]


def transformed(images: Tensor, transform: Transform | None, generator: torch.Generator) -> Tensor:
    """Images ``[N, C, H, W]``, each of them transformed by itself.

    Transforms draw from the global generators, of torch, NumPy or Python: they are seeded by ``generator`` and given
    back as they were.
    """
    if transform is None:
        return images
    seed = int(torch.randint(2**31, (), generator=generator))
    with pl.utilities.seed.isolate_rng(include_cuda=False):
        _seed_all(seed)
        return torch.stack([transform(image) for image in images])


def transformed_shape(images: Tensor, transform: Transform | None) -> tuple[int, int, int]:
    """(channels, height, width) of what becomes of images ``[N, C, H, W]``."""
    shape = transformed(images, transform, torch.Generator()).shape[1:]
    if len(shape) != 3:
        raise ValueError(f"transform must give images [C, H, W], got shape {list(shape)}.")
    channels, height, width = shape
    return channels, height, width


def _seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (what transforms use)
    random.seed(seed)
