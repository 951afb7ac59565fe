"""Instructions that a machine announces but cannot run end no process of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unknot.machine import INSTRUCTIONS, avoid_broken_amx

BFLOAT16 = """
from unknot.machine import avoid_broken_amx
avoid_broken_amx()
import torch
square = torch.full((256, 256), 0.5).bfloat16()
print((square @ square)[0, 0].item())
"""


@pytest.mark.parametrize(
    ("level", "flags", "broken"),
    [
        ("28", "fpu avx512f amx_bf16 amx_tile", True),
        ("31", "fpu avx512f amx_bf16 amx_tile", False),
        ("28", "fpu avx512f", False),
        ("?", "amx_tile", False),
    ],
)
def test_amx_without_its_shape_is_not_used(
    level: str, flags: str, broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(INSTRUCTIONS, raising=False)
    core = f"processor\t: 0\ncpuid level\t: {level}\nflags\t\t: {flags}\n\n"
    (tmp_path / "cpuinfo").write_text(core + core.replace(level, "99"))
    assert avoid_broken_amx(tmp_path / "cpuinfo") is broken
    assert (INSTRUCTIONS in os.environ) is broken


def test_what_the_user_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSTRUCTIONS, "AVX2")
    (tmp_path / "cpuinfo").write_text("cpuid level : 28\nflags : amx_tile\n")
    assert avoid_broken_amx(tmp_path / "cpuinfo")
    assert os.environ[INSTRUCTIONS] == "AVX2"


def test_other_systems_have_no_such_file(tmp_path: Path) -> None:
    assert not avoid_broken_amx(tmp_path / "cpuinfo")


def test_a_product_in_bfloat16_ends_no_process() -> None:
    environment = {name: value for name, value in os.environ.items() if name != INSTRUCTIONS}
    done = subprocess.run([sys.executable, "-c", BFLOAT16], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 64
