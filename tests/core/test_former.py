"""Modules that were renamed can be imported by their former names for one release, with a warning."""

import importlib
import sys

import pytest

from unknot import machine


@pytest.mark.parametrize(
    ("module", "name"),
    [("memory", "keep_freed_memory"), ("processor", "avoid_broken_amx"), ("threads", "wait_passively")],
)
def test_former_modules_warn(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"unknot.{module}", raising=False)
    with pytest.warns(FutureWarning, match=f"unknot.{module} is now unknot.machine"):
        former = importlib.import_module(f"unknot.{module}")
    assert getattr(former, name) is getattr(machine, name)
