"""Training with two threads that wait passively, beside how OpenMP lets them wait: alone, and beside a busy process.

Each side is a process of its own, as OpenMP reads the choice once; they run in turn. What else the machine does counts.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from common import Row, compare, run

STEPS = 15
TRAIN = f"""
import time
import torch
from unknot.zoo import BetaVAE
torch.manual_seed(0)
model, images = BetaVAE(), torch.rand(64, 1, 64, 64)
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
for step in range({STEPS} + 3):
    if step == 3:
        clock, processor = time.perf_counter(), time.process_time()
    optimizer.zero_grad()
    model.losses(images)["loss"].backward()
    optimizer.step()
print(time.process_time() - processor, time.perf_counter() - clock)
"""
ENVIRONMENTS = {
    "passive": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
    "default": {"OMP_NUM_THREADS": "2"},
    "one": {"OMP_NUM_THREADS": "1"},
}


def train(kind: str) -> tuple[float, float]:
    """Seconds of some steps, by processor time and by the clock."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    words = [sys.executable, "-c", TRAIN]
    done = subprocess.run(words, env=clean | ENVIRONMENTS[kind], capture_output=True, text=True, check=True)
    processor, clock = map(float, done.stdout.split()[-2:])
    return processor, clock


@contextmanager
def busy() -> Iterator[None]:
    """One core is taken meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def entries(rounds: int = 3) -> Iterator[Row]:
    """Passive waiting against the default, and against one thread."""

    def row(name: str, kind: str, against: str, other: str, threads: int) -> Row:
        return compare(name, lambda: kind, against, lambda: other, rounds, threads, lambda side: train(side()))

    yield row("training with passive waiting, alone", "passive", "default waiting", "default", 2)
    with busy():
        yield row("training with passive waiting, beside a busy process", "passive", "default waiting", "default", 2)
        yield row("training with one thread, beside a busy process", "one", "two threads, passive", "passive", 1)


def main() -> None:
    """Steps per second of each."""
    for title, context in (("alone", None), ("beside a busy process", busy)):
        for kind in ENVIRONMENTS:
            if context:
                with context():
                    processor, clock = train(kind)
            else:
                processor, clock = train(kind)
            print(f"{title:<24} {kind:<8} {STEPS / clock:6.2f} steps/s, {processor / STEPS:.3f} s of processor a step")


if __name__ == "__main__":
    run(entries, main)
