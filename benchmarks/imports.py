"""How long `import unknot.zoo` and `import unknot.datamodules` take beside Lightning alone, in processor time.

    python benchmarks/imports.py

Every import is a process of its own; the three take turns, and the least of each counts.
"""

import resource
import subprocess
import sys

ROUNDS = 5
MODULES = ("pytorch_lightning", "unknot.datamodules", "unknot.zoo")


def seconds(module: str) -> float:
    """Processor time of a Python that imports a module."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
    main()
