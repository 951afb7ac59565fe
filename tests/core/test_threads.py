"""The way threads wait is chosen before torch is imported, by the command or a helper, never against the user."""

import os
import subprocess
import sys
import warnings

import pytest
import torch  # noqa: F401  its presence is what the helper looks for

from unknot.machine import MOST, sensible_threads, wait_passively

COMMAND = """
import os, sys
sys.argv = ["unknot", *sys.argv[1:]]
from unknot.cli import main
try:
    main()
except SystemExit:
    pass
print("torch" in sys.modules, os.environ.get("OMP_WAIT_POLICY"))
"""


def run(script: str, *words: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", script, *words], env=clean | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


def test_the_command_lets_threads_wait_passively() -> None:
    assert run(COMMAND, "--help") == "False PASSIVE"


@pytest.mark.parametrize(
    ("environment", "left"),
    [({"OMP_WAIT_POLICY": "active"}, "active"), ({"GOMP_SPINCOUNT": "100"}, "None"), ({"KMP_BLOCKTIME": "1"}, "None")],
)
def test_the_choice_of_the_user_stays(environment: dict[str, str], left: str) -> None:
    assert run(COMMAND, "--help", **environment) == f"False {left}"


def test_a_call_from_python_changes_nothing() -> None:
    script = "import os; from unknot.cli import main; main([]); print(os.environ.get('OMP_WAIT_POLICY'))"
    assert run(script) == "None"


def test_importing_changes_nothing() -> None:
    script = """
import os
import pytorch_lightning, matplotlib.figure, torchvision, sklearn, torch
before, threads = dict(os.environ), torch.get_num_threads()
import unknot.zoo, unknot.metrics, unknot.datamodules, unknot.hub, unknot.machine
changed = {name for name in os.environ if before.get(name) != os.environ[name]}
print(changed <= THEIRS, threads == torch.get_num_threads())
""".replace("THEIRS", str({"TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK"}))
    assert run(script) == "True True"


def test_the_helper_comes_before_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os; from unknot.machine import *; print(wait_passively(), os.environ['OMP_WAIT_POLICY'])"
    assert run(script) == "True PASSIVE"
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.warns(UserWarning, match="too late"):
        assert not wait_passively()
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wait_passively()


def test_threads_are_few_and_the_users_choice_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    threads = sensible_threads()
    assert threads is not None
    assert 1 <= threads <= MOST
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert sensible_threads() is None
