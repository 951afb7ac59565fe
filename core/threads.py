"""Threads that share a machine.

PyTorch's threads spin while they wait for each other, by the habit of OpenMP. Beside any other busy process that is
what they mostly do: a training with two threads on two cores falls to a fraction of its speed, which
``benchmarks/threads.py`` measures. OpenMP reads the choice when torch is imported; the ``unknot`` command makes it, and
a program can::

    from unknot.threads import wait_passively

    wait_passively()   # before torch is imported

    import torch
"""

import os
import sys
import warnings

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What of the environment decides how threads wait; where any is set, it is left as it is."""

MOST = 4
"""Threads that a small network can use: with more, they wait for each other."""


def wait_passively() -> bool:
    """Let the threads of OpenMP sleep while they wait, unless the environment says otherwise; whether they will.

    Sets ``OMP_WAIT_POLICY`` of this process and its children. Where torch has been imported it is too late, and a
    warning says so.
    """
    if any(os.environ.get(name) for name in CHOICES):
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
    """Threads to train a small network with: the cores there are, at most :data:`MOST`; ``None`` where they are chosen.

    It does not depend on what else the machine is doing: sums come out differently in the last bit with another number
    of threads, and the same command should give the same model.
    """
    if os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS"):
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)
