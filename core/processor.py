"""Instructions that a processor announces and cannot be used.

Some virtual machines announce AMX, the matrix units for bfloat16, but not the shape of its tiles. oneDNN, which runs
PyTorch's convolutions and products on a CPU, then sets the tiles up with no rows, and the first bfloat16 product ends
the process with "Illegal instruction". The ``unknot`` command goes without AMX there, and a program can::

    from unknot.processor import avoid_broken_amx

    avoid_broken_amx()   # before the first computation
"""

import os
from pathlib import Path

CHOICE = "ONEDNN_MAX_CPU_ISA"
TILE_LEAF = 0x1D
"""The leaf of CPUID that has the shape of tiles; processors with AMX have it, and so a level at least as high."""


def avoid_broken_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Let oneDNN go without AMX where it is announced without its shape; whether that is so.

    Sets ``ONEDNN_MAX_CPU_ISA`` of this process and its children, unless the environment has it. Linux only.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8").partition("\n\n")[0].splitlines()  # of the first core
    except OSError:
        return False
    told = {name.strip(): value for name, _, value in (line.partition(":") for line in lines)}
    level = told.get("cpuid level", "").strip()
    broken = "amx_tile" in told.get("flags", "").split() and level.isdecimal() and int(level) < TILE_LEAF
    if broken:
        os.environ.setdefault(CHOICE, "AVX512_CORE_BF16")
    return broken
