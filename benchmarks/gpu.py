"""Training, encoding, decoding and Slot Attention on your GPU beside plain PyTorch: prints a table to paste.

    python benchmarks/gpu.py                  # cuda or mps, whichever there is
    python benchmarks/gpu.py --device cpu --steps 5

Training is compared with the bare loop of ``training.py``, and Slot Attention with the package `slot-attention` where
it is installed. Encoding and decoding have no counterpart: the table gives images per second. All times are by the
clock, after a warm-up, waiting for the device. Medians of three alternating rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import chain

import torch

from training import bare_loop, data_for, quiet, trainer_fit
from unknot.datamodules import DSprites
from unknot.zoo import BetaVAE, SlotAttention, SlotAutoEncoder

ROUNDS = 3


def synchronize(device: str) -> None:
    """Wait until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def seconds(function: Callable[[], object], device: str) -> float:
    """Return the seconds of a call by the clock."""
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - start


def alternate(*sides: Callable[[], object], device: str) -> list[float]:
    """Return the median seconds of each side over alternating rounds, after a warm-up."""
    for side in sides:
        side()
    rounds = [[seconds(side, device) for side in sides] for _ in range(ROUNDS)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def training(device: str, steps: int) -> Iterator[tuple[str, str, str]]:
    """Yield rows of training steps, without what the start costs."""
    dataset, short = DSprites(), max(1, steps // 5)
    accelerator = {"cuda": "gpu"}.get(device, device)
    for name in ("BetaVAE", "FactorVAE", "AdaGVAE"):
        batches = [data_for(name, dataset).draw(torch.Generator().manual_seed(seed)) for seed in range(20)]
        sides = [
            lambda count=count, name=name, ours=ours, batches=batches: (
                trainer_fit(name, dataset, count, accelerator) if ours else bare_loop(name, batches, count, device)
            )
            for ours in (True, False)
            for count in (short, steps)
        ]
        least, ours, shortest, theirs = alternate(*sides, device=device)
        mine, bare = (ours - least) / (steps - short), (theirs - shortest) / (steps - short)
        yield f"`{name}`, training steps of 64 images", f"{1 / mine:,.0f} steps/s", f"{bare / mine:.2f} × a bare loop"


def encoding(device: str) -> Iterator[tuple[str, str, str]]:
    """Yield rows of images per second."""
    images = torch.rand(256, 1, 64, 64, device=device)
    model = BetaVAE().to(device).eval()
    latents = model.represent(images)
    slots = SlotAutoEncoder().to(device).eval()
    scenes = torch.rand(8, *slots.image_shape, device=device)
    with torch.inference_mode():
        for name, count, call in (
            ("encoding 64 × 64 images", 256, lambda: model.represent(images)),
            ("decoding 64 × 64 images", 256, lambda: model.decode(latents)),
            ("`SlotAutoEncoder`, scenes into slots and back", 8, lambda: slots(scenes)),
        ):
            (taken,) = alternate(call, device=device)
            yield name, f"{count / taken:,.0f} images/s", "-"


def slot_attention(device: str) -> Iterator[tuple[str, str, str]]:
    """Yield a row of Slot Attention, forward and backward, at the sizes of set prediction on CLEVR."""
    if find_spec("slot_attention") is None:
        return
    from slot_attention import SlotAttention as Theirs

    inputs = torch.randn(32, 1024, 64, device=device, requires_grad=True)

    def step(module: torch.nn.Module) -> None:
        result = module(inputs)
        slots = result if isinstance(result, torch.Tensor) else result.slots
        slots.square().mean().backward()

    modules = [SlotAttention(10, 64, num_iterations=3).to(device), Theirs(10, 64, 3).to(device)]
    ours, theirs = alternate(*(lambda module=module: step(module) for module in modules), device=device)
    yield "Slot Attention, forward and backward", f"{32 / ours:,.0f} images/s", f"{theirs / ours:.2f} × slot-attention"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    parser.add_argument("--device", default=found, choices=["cuda", "mps", "cpu"], help=f"default: {found}")
    parser.add_argument("--steps", type=int, default=200, help="training steps of a round (default: 200)")
    arguments = parser.parse_args()
    quiet()
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device
    print(f"{name}, torch {torch.__version__}\n\n| | unknot | against |\n|---|---|---|")
    device = arguments.device
    for row in chain(training(device, arguments.steps), encoding(device), slot_attention(device)):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
