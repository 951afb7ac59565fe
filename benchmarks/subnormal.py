"""Training steps of a model that is trained already, whose sure pixels have gradients too small for ordinary numbers.

python benchmarks/subnormal.py           # with them left out, as all VAEs do, beside with them, in one process
"""

from collections.abc import Callable

import torch
from common import Row, compare, run

from unknot.datamodules import DSprites
from unknot.hub import load
from unknot.machine import keep_freed_memory
from unknot.zoo import vae

STEPS = 10
MODELS = ("adagvae-dsprites", "betatcvae-dsprites")


def entries() -> list[Row]:
    """One row for each model, all on one thread."""
    keep_freed_memory()
    torch.set_num_threads(1)
    dataset = DSprites()
    images = dataset.observe(dataset.factor_space.sample(64, torch.Generator().manual_seed(0)))
    rows, leave_out = [], vae.without_traces
    for name in MODELS:
        model = load(f"unknot/{name}").train()
        adam = torch.optim.Adam(model.parameters(), lr=1e-8, fused=True)  # the model stays as it is

        def steps(model: vae.VAE = model, adam: torch.optim.Adam = adam) -> None:
            for _ in range(STEPS):
                adam.zero_grad()
                model.objective(images, model.encode(images))["loss"].backward()
                adam.step()

        def with_traces(steps: Callable[[], None] = steps) -> None:
            vae.without_traces = lambda outputs: outputs
            steps()
            vae.without_traces = leave_out

        name = f"{STEPS} steps of a trained {type(model).__name__}"
        rows.append(compare(name, steps, "subnormal gradients left in", with_traces))
    return rows


def main() -> None:
    """Say how many times as fast."""
    for row in entries():
        print(f"{row.name}: {row.processor:.2f} times as fast, {row.seconds / STEPS * 1e3:.0f} ms a step")


if __name__ == "__main__":
    run(entries, main)
