"""Imports point one way: what each sub-package may pull in."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("unknot", ["torch"]),
        ("unknot.configs", ["torch"]),
        ("unknot.cli", ["torch"]),
        (
            "unknot.solvers",
            ["lightning", "pytorch_lightning", "matplotlib", "sklearn", "unknot.zoo", "unknot.datamodules"],
        ),
        ("unknot.datamodules", ["unknot.zoo", "unknot.metrics", "unknot.hub", "h5py", "scipy.io"]),
        ("unknot.metrics", ["torch", "unknot.zoo", "unknot.hub"]),
        (
            "unknot.metrics.functional",
            ["lightning", "pytorch_lightning", "h5py", "torchvision", "torchmetrics", "sklearn", "unknot.datamodules"],
        ),
        ("unknot.metrics.evaluation", ["unknot.zoo", "unknot.hub"]),
        ("unknot.zoo", ["unknot.metrics", "unknot.hub", "unknot.cli", "huggingface_hub"]),
        ("unknot.hub", ["unknot.cli", "torch"]),
        ("unknot.hub.listing", ["torch", "unknot.zoo", "huggingface_hub"]),
    ],
)
def test_package_does_not_import(package: str, forbidden: list[str]) -> None:
    script = f"import sys, {package}; print([name for name in {forbidden} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
