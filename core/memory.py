"""Memory that is freed in one training step and needed again in the next.

The ``unknot`` command keeps it when it trains on a CPU, scores, or runs the jobs of a study, and a program can::

    from unknot.memory import keep_freed_memory

    keep_freed_memory()   # at any time; it holds for the whole process
"""

import ctypes
import os
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from malloc.h


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of giving it back to the kernel.

    A training step on a CPU frees and takes tens of megabytes. By default they come anew from the kernel, page by
    page, which is about a quarter of a step (measured in ``benchmarks/train_throughput.py``). Does nothing on other
    systems, or where the user has set glibc's own ``MALLOC_TRIM_THRESHOLD_`` or ``MALLOC_MMAP_THRESHOLD_``.
    """
    chosen = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys()
    if platform.libc_ver()[0] != "glibc" or chosen:
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
