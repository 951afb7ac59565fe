"""Import time of `unknot.zoo` and others beside Lightning alone.

    python benchmarks/imports.py

Every import is a process of its own.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from common import Row, compare, run

MODULES = ("pytorch_lightning", "unknot.datamodules", "unknot.zoo", "torch", "unknot.metrics.functional")


def seconds(module: str) -> float:
    """Return the processor time of a Python that imports a module."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def entries() -> Iterator[Row]:
    """Compare each with Lightning; a ratio of one means that it costs nothing on top."""

    def both(side: Callable[[], str]) -> tuple[float, float]:
        start = time.perf_counter()
        return seconds(side()), time.perf_counter() - start

    for module in MODULES[1:]:
        yield compare(f"import {module}", lambda name=module: name, MODULES[0], lambda: MODULES[0], 3, measure=both)


if __name__ == "__main__":
    run(entries)
