"""How long `import unknot.zoo` and others take beside Lightning alone, in processor time.

    python benchmarks/imports.py

Every import is a process of its own; they take turns, and the least of each counts.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from common import Row, compare, run

ROUNDS = 5
MODULES = ("pytorch_lightning", "unknot.datamodules", "unknot.zoo", "torch", "unknot.metrics.functional")


def seconds(module: str) -> float:
    """Processor time of a Python that imports a module."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def entries() -> Iterator[Row]:
    """Each of ours beside Lightning; a ratio of one means that it costs nothing on top."""

    def both(side: Callable[[], str]) -> tuple[float, float]:
        start = time.perf_counter()
        return seconds(side()), time.perf_counter() - start

    for module in MODULES[1:]:
        yield compare(f"import {module}", lambda name=module: name, MODULES[0], lambda: MODULES[0], 3, measure=both)


def main() -> None:
    """Print a table."""
    taken = {module: [] for module in MODULES}
    for _ in range(ROUNDS):
        for module in MODULES:
            taken[module].append(seconds(module))
    least = min(taken[MODULES[0]])
    for module in MODULES:
        print(f"{module:<20} {min(taken[module]):6.2f} s  {min(taken[module]) / least:5.2f} times Lightning")


if __name__ == "__main__":
    run(entries, main)
