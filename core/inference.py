"""How a model is asked for something: in evaluation mode, where its weights are, with noise that repeats."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from unknot.randomness import kept_generators, seed_device


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode, and each of its modules back as it was: some may be frozen.

    A function has no modes.
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
    """Evaluation mode without gradients, where what the model draws is set by ``seed`` and nobody else's changes."""
    device = device_of(model)
    with kept_generators(device), torch.inference_mode(), evaluation_mode(model):
        seed_device(seed, device)
        yield


def device_of(model: Any) -> torch.device:
    """Where the weights of a model are; a function, or a model without any, is on the CPU."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


def representation(model: Any) -> Callable[[Tensor], Any]:
    """What gives the codes of images, wherever they are: ``represent`` of a model, or the model or function itself."""
    represent: Callable[[Tensor], Any] = getattr(model, "represent", model)
    if not isinstance(model, nn.Module):
        return represent
    device = device_of(model)
    # What is no tensor the model itself refuses, with a reason.
    return lambda images: represent(images.to(device) if isinstance(images, Tensor) else images)
