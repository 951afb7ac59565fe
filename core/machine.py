"""Process and machine settings: waiting threads, freed memory, CPU instructions, and the commit of the code.

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
"""Environment variables that control how threads wait; those that are set are not changed."""
MOST = 4
"""Threads that a small network can use: with more, they wait for each other."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from malloc.h
INSTRUCTIONS = "ONEDNN_MAX_CPU_ISA"
TILE_LEAF = 0x1D
"""CPUID leaf with the shape of tiles; processors with AMX have a maximum leaf of at least this."""

# Threads


def wait_passively() -> bool:
    """Let OpenMP threads sleep while they wait, and return whether they will.

    PyTorch's threads spin while they wait for each other, as is OpenMP's default. Next to another busy process this is
    what they mostly do: training with two threads on two cores drops to a fraction of its speed, as
    ``benchmarks/training.py`` measures. Sets ``OMP_WAIT_POLICY`` of this process and its children, unless the it is
    already set. OpenMP reads it when torch is imported; a later call has no effect and warns.
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
    """Return the number of threads for a small network: the cores, at most :data:`MOST`; ``None`` if the user chose
    one.

    It does not depend on the load of the machine: sums differ in the last bit with another number of threads, and the
    same command should produce the same model.
    """
    if os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS"):
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)


# Memory


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of returning it to the kernel.

    A training step on a CPU frees and allocates tens of megabytes. By default they come from the kernel again, page by
    page, which takes about a quarter of a step (measured in ``benchmarks/training.py``). Does nothing on other systems,
    or if the user has set glibc's ``MALLOC_TRIM_THRESHOLD_`` or ``MALLOC_MMAP_THRESHOLD_``.
    """
    chosen = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys()
    if platform.libc_ver()[0] != "glibc" or chosen:
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


# Processor


def avoid_broken_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Disable AMX in oneDNN if the machine announces it without tile shapes, and return whether it does.

    Some virtual machines announce AMX, the matrix units for bfloat16, but not the shape of its tiles. oneDNN, which
    runs PyTorch's convolutions and products on a CPU, then configures tiles without rows, and the first bfloat16
    product ends the process with "Illegal instruction". Sets ``ONEDNN_MAX_CPU_ISA`` of this process and its children,
    unless it is already set. Linux only.
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
    # A user's repository may contain a .venv with this package: its commits are not those of unknot.
    if not (where / ".git").exists() or not (where / "core" / here.name).exists():
        return None
    git = ["git", "-C", str(where)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "*.py"]).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if changed else head
