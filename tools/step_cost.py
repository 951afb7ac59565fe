"""Processor time of a training step of models published after the thesis, relative to a β-VAE.

    python tools/step_cost.py

One thread, 32 x 32 grey images, batches of 64 images (or of 32 pairs; SlotAutoEncoder: 16 scenes in colour). Models
take turns, and the least of many blocks counts, so that other programs on the machine disturb the ratios little.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from unknot import zoo

SHAPE = (1, 32, 32)
STEPS = 3  # steps of a block


def step_of(model: Any, batch: Any) -> Callable[[], None]:
    """Return a function that runs one training step."""
    optimizer = model.configure_optimizers()
    optimizer = optimizer["optimizer"] if isinstance(optimizer, dict) else optimizer
    optimizer = optimizer if isinstance(optimizer, torch.optim.Optimizer) else optimizer[0][0]

    def step() -> None:
        optimizer.zero_grad()
        model.losses(batch)["loss"].backward()
        optimizer.step()

    return step


def main() -> None:
    """Print a line for every model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=8)
    blocks = parser.parse_args().blocks
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.rand(64, *SHAPE)
    pairs = (images[:32], images[32:])
    shallow: Any = {"encoder": {"name": "StyleEncoder", "depth": 1}, "decoder": {"name": "StyleDecoder", "depth": 1}}
    scene = torch.rand(16, 3, 32, 32)
    small: Any = {"image_shape": (3, 32, 32), "num_slots": 5, "strides": (2, 1, 1, 1), "channels": 16}
    models = {
        "BetaVAE": (zoo.BetaVAE(image_shape=SHAPE), images),
        "HFSVAE": (zoo.HFSVAE(image_shape=SHAPE), images),
        "AdaGVAE": (zoo.AdaGVAE(image_shape=SHAPE), pairs),
        "SlowVAE": (zoo.SlowVAE(image_shape=SHAPE), pairs),
        "QLAE": (zoo.QLAE(image_shape=SHAPE), images),
        "QLAE, depth 1": (zoo.QLAE(image_shape=SHAPE, **shallow), images),
        "Tripod, depth 1": (zoo.Tripod(image_shape=SHAPE, **shallow), images),
    }
    for gradient, initial in (("full", "gaussian"), ("implicit", "gaussian"), ("bilevel", "learned")):
        slots = zoo.SlotAutoEncoder(gradient=gradient, initial=initial, **small)  # type: ignore[arg-type]
        models[f"slots, {gradient}"] = (slots, scene)
    steps = {name: step_of(model.train(), batch) for name, (model, batch) in models.items()}
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(blocks):
        for name, step in steps.items():
            start = time.process_time()
            for _ in range(STEPS):
                step()
            best[name] = min(best[name], (time.process_time() - start) / STEPS)
    for name, seconds in best.items():
        print(f"{name:16s} {1000 * seconds:7.1f} ms   {seconds / best['BetaVAE']:.2f} x BetaVAE")


if __name__ == "__main__":
    main()
