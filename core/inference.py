"""Inference: evaluation mode, the device of the weights, and repeatable noise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from unknot.randomness import kept_generators, seed_device


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode, and afterwards restore the mode of each module, as some may be frozen.

    A function is left unchanged.
    """
    modes = {module: module.training for module in model.modules()} if isinstance(model, nn.Module) else {}
    try:
        for module in modes:
            module.training = False
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def fixed_noise(model: Any, seed: int) -> Iterator[None]:
    """Evaluation mode without gradients; ``seed`` fixes what the model draws. Global generators are restored."""
    device = device_of(model)
    with kept_generators(device), torch.inference_mode(), evaluation_mode(model):
        seed_device(seed, device)
        yield


def device_of(model: Any) -> torch.device:
    """Return the device of a model's weights; the CPU for a function or a model without weights."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


def representation(model: Any) -> Callable[[Tensor], Any]:
    """Return the function from images to codes: ``represent`` of a model, or else the model or function itself."""
    represent: Callable[[Tensor], Any] = getattr(model, "represent", model)
    if not isinstance(model, nn.Module):
        return represent
    device = device_of(model)
    # The model itself raises an error for other types.
    return lambda images: represent(images.to(device) if isinstance(images, Tensor) else images)
