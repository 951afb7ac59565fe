"""glibc keeps freed memory where it is asked to: by jobs of a study, not by training in a user's program."""

import platform
import subprocess
import sys

import pytest

COUNT = """
import ctypes
import torch

class Counts(ctypes.Structure):  # mallinfo2 of malloc.h
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd u fsm uord ford keep".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Counts

def comes_from_the_kernel():
    before = libc.mallinfo2().hblks
    block = torch.empty(64 << 20, dtype=torch.uint8)
    return libc.mallinfo2().hblks > before
"""

TRAINING = """
from torch.utils.data import DataLoader
from unknot.lightning import pl
from unknot.machine import keep_freed_memory
from unknot.zoo import BetaVAE

model = BetaVAE(image_shape=(1, 8, 8), encoder="MLPEncoder", decoder="MLPDecoder")
trainer = pl.Trainer(accelerator="cpu", fast_dev_run=True, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(torch.rand(4, 1, 8, 8), batch_size=4))
found = [comes_from_the_kernel()]
keep_freed_memory()
print(*found, comes_from_the_kernel())
"""

JOB = """
import threading, time
from unknot.studies.jobs.process import main

before = comes_from_the_kernel()
threading.Thread(target=main, daemon=True).start()
deadline = time.monotonic() + 20
while comes_from_the_kernel() and time.monotonic() < deadline:
    time.sleep(0.05)
print(before, comes_from_the_kernel())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
@pytest.mark.parametrize("script", [TRAINING, JOB], ids=["a program, which asks", "the process of a job, by itself"])
def test_freed_memory_is_kept_by_who_asks(script: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COUNT + script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:  # a job's process ends with its input
        assert process.stdout is not None
        assert process.stdout.read().split()[-2:] == ["True", "False"]
