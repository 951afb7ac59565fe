"""The machine that a process runs on: how threads wait, freed memory, the processor's instructions, and the commit.

Nothing here changes a process when it is imported. The ``unknot`` command makes these choices, and a program can::

    from unknot.machine import avoid_broken_amx, keep_freed_memory, wait_passively

    wait_passively()      # before torch is imported
    avoid_broken_amx()    # before the first computation
    keep_freed_memory()   # at any time; it holds for the whole process
"""

import ctypes
import os
import platform
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Environment variables that decide how threads wait; where any is set, it is left as it is."""
MOST = 4
"""Threads that a small network can use: with more, they wait for each other."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from malloc.h
INSTRUCTIONS = "ONEDNN_MAX_CPU_ISA"
TILE_LEAF = 0x1D
"""The leaf of CPUID that has the shape of tiles; processors with AMX have it, and so a level at least as high."""

# Threads


def wait_passively() -> bool:
    """Let the threads of OpenMP sleep while they wait, and return whether they will.

    PyTorch's threads spin while they wait for each other, by the habit of OpenMP. Beside any other busy process that is
    what they mostly do: a training with two threads on two cores falls to a fraction of its speed, which
    ``benchmarks/training.py`` measures. Sets ``OMP_WAIT_POLICY`` of this process and its children, unless the
    environment says otherwise. OpenMP reads it when torch is imported; later it has no effect, and a warning says so.
    """
    if any(os.environ.get(name) for name in WAITING):
        return os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
    if "torch" in sys.modules:
        warnings.warn(
            "torch has been imported, so it is too late to choose how its threads wait. Call wait_passively() before, "
            "or start the program with OMP_WAIT_POLICY=PASSIVE.",
            stacklevel=2,
        )
        return False
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return True


def sensible_threads() -> int | None:
    """Return the threads to train a small network with: the cores, at most :data:`MOST`; ``None`` where the user chose.

    It does not depend on what else the machine is doing: sums come out differently in the last bit with another number
    of threads, and the same command should give the same model.
    """
    if os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS"):
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)


# Memory


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of giving it back to the kernel.

    A training step on a CPU frees and takes tens of megabytes. By default they come from the kernel again, page by
    page, which is about a quarter of a step (measured in ``benchmarks/training.py``). Does nothing on other
    systems, or where the user has set glibc's own ``MALLOC_TRIM_THRESHOLD_`` or ``MALLOC_MMAP_THRESHOLD_``.
    """
    chosen = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys()
    if platform.libc_ver()[0] != "glibc" or chosen:
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


# Processor


def avoid_broken_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Let oneDNN go without AMX where it is announced without its shape, and return whether that is so.

    Some virtual machines announce AMX, the matrix units for bfloat16, but not the shape of its tiles. oneDNN, which
    runs PyTorch's convolutions and products on a CPU, then sets the tiles up with no rows, and the first bfloat16
    product ends the process with "Illegal instruction". Sets ``ONEDNN_MAX_CPU_ISA`` of this process and its children,
    unless the environment has it. Linux only.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8").partition("\n\n")[0].splitlines()  # of the first core
    except OSError:
        return False
    fields = {name.strip(): value for name, _, value in (line.partition(":") for line in lines)}
    level = fields.get("cpuid level", "").strip()
    broken = "amx_tile" in fields.get("flags", "").split() and level.isdecimal() and int(level) < TILE_LEAF
    if broken:
        os.environ.setdefault(INSTRUCTIONS, "AVX512_CORE_BF16")
    return broken


# Code


@cache
def commit() -> str | None:
    """Return the commit of this code, with ``-dirty`` if a Python file was changed since; ``None`` outside a clone."""
    here = Path(__file__).resolve()
    where = here.parent.parent
    # Somebody's own repository may have a .venv with this package in it: its commits are not ours.
    if not (where / ".git").exists() or not (where / "core" / here.name).exists():
        return None
    git = ["git", "-C", str(where)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "*.py"]).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if changed else head
