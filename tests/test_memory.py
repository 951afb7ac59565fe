"""glibc keeps freed memory where it is asked to, and training in a program of one's own does not ask."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes
import torch
from torch.utils.data import DataLoader
from unknot._lightning import pl
from unknot.memory import keep_freed_memory
from unknot.zoo import BetaVAE

class Counts(ctypes.Structure):  # mallinfo2 of malloc.h
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd u fsm uord ford keep".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Counts

def comes_from_the_kernel():
    before = libc.mallinfo2().hblks
    block = torch.empty(64 << 20, dtype=torch.uint8)
    return libc.mallinfo2().hblks > before

model = BetaVAE(image_shape=(1, 8, 8), encoder="MLPEncoder", decoder="MLPDecoder")
trainer = pl.Trainer(accelerator="cpu", fast_dev_run=True, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(torch.rand(4, 1, 8, 8), batch_size=4))
found = [comes_from_the_kernel()]
keep_freed_memory()
print(*found, comes_from_the_kernel())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how memory is kept is told to glibc")
def test_training_in_a_program_changes_nothing_until_it_asks() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["True", "False"]
