"""What the drawn dSprites costs: making it, opening it again, memory, and batches against a loop over images."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from common import Row, compare, run
from torch.utils.data import default_collate

from unknot.datamodules import DSprites

BATCH, REPEATS = 64, 200


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Draw into an empty cache, then measure."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNKNOT_CACHE"] = folder
        start = time.perf_counter()
        DSprites().prepare()
        print(f"drawing all 737,280 images:       {time.perf_counter() - start:.2f} s")
        start = time.perf_counter()
        DSprites().prepare()
        print(f"opening the cache again, checked: {time.perf_counter() - start:.2f} s")
        subprocess.run([sys.executable, __file__, "batches"], check=True)


def entries() -> Iterator[Row]:
    """A batch at once, beside the same images one by one."""
    dataset = DSprites()
    generator = torch.Generator().manual_seed(0)
    draws = [dataset.factor_space.sample(BATCH, generator) for _ in range(REPEATS)]

    def at_once() -> None:
        for factors in draws:
            dataset.observe(factors)

    def one_by_one() -> None:
        for factors in draws[: REPEATS // 10] * 10:
            default_collate([dataset[index][0] for index in dataset.factor_space.index(factors).tolist()])

    yield compare("batches of 64 dSprites images", at_once, "image by image", one_by_one)


def batches() -> None:
    """In a fresh process: memory, and batches."""
    before = resident()
    dataset = DSprites()
    generator = torch.Generator().manual_seed(0)
    for index in torch.arange(len(dataset)).split(BATCH):
        dataset.observe(dataset.factor_space.factors(index))
    print(f"resident memory after every image was seen: +{resident() - before:.0f} MB")

    draws = [dataset.factor_space.sample(BATCH, generator) for _ in range(REPEATS)]
    ours = theirs = 0.0
    for factors in draws:
        start = time.perf_counter()
        batch = dataset.observe(factors)
        ours += time.perf_counter() - start
        start = time.perf_counter()
        images = default_collate([dataset[index][0] for index in dataset.factor_space.index(factors).tolist()])
        theirs += time.perf_counter() - start
        assert torch.equal(batch, images)
    print(
        f"batch of {BATCH}: {1000 * ours / REPEATS:.2f} ms at once, {1000 * theirs / REPEATS:.2f} ms image by image, "
        f"ratio {theirs / ours:.1f}"
    )


if __name__ == "__main__":
    run(entries, batches if sys.argv[1:] == ["batches"] else main)
