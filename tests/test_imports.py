"""Imports point one way: what each sub-package may pull in."""

import json
import subprocess
import sys

import pytest

ALLOWED: list[tuple[list[str], dict[str, list[str]]]] = [
    (
        [],
        {
            "unknot": ["torch"],
            "unknot.configs": ["torch"],
            "unknot.cli": ["torch"],
            "unknot.metrics": ["torch", "unknot.zoo", "unknot.hub"],
            "unknot.hub": ["unknot.cli", "torch"],
            "unknot.hub.listing": ["torch", "unknot.zoo", "huggingface_hub"],
        },
    ),
    (
        ["torch"],
        {
            "unknot.solvers": [
                *("lightning", "pytorch_lightning", "matplotlib", "sklearn", "unknot.zoo", "unknot.datamodules"),
            ],
            "unknot.metrics.functional": [
                *("lightning", "pytorch_lightning", "h5py", "torchvision", "torchmetrics", "sklearn"),
                "unknot.datamodules",
            ],
        },
    ),
    (
        ["torch", "pytorch_lightning"],
        {
            "unknot.datamodules": ["unknot.zoo", "unknot.metrics", "unknot.hub", "h5py", "scipy.io"],
            "unknot.metrics.evaluation": ["unknot.zoo", "unknot.hub"],
            "unknot.zoo": ["unknot.metrics", "unknot.hub", "unknot.cli", "huggingface_hub"],
        },
    ),
]
"""Modules that may be imported before, and those that each package may not add."""

SCRIPT = """
import json, os, sys
from importlib import import_module
for before, packages in json.loads(sys.argv[1]):
    for name in before:
        import_module(name)
    for package, forbidden in packages.items():
        if not os.fork():  # each package in a process of its own, which need not import torch again
            import_module(package)
            print(json.dumps([package, [name for name in forbidden if name in sys.modules]]), flush=True)
            os._exit(0)
        os.wait()
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    """Modules that each package imports and should not."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(ALLOWED)], capture_output=True, text=True, check=True
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("package", [package for _, packages in ALLOWED for package in packages])
def test_package_does_not_import(package: str, imported: dict[str, list[str]]) -> None:
    assert imported[package] == []
