"""A study so small that its six jobs take seconds, on a data set of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

TOYS = '''
import os
import signal

import torch
from unknot.datamodules import FactorSpace, GroundTruthDataset
from unknot.zoo import BetaVAE


class Squares(GroundTruthDataset):
    """Squares of three sizes at eight by eight places."""

    name = "squares"
    stochastic = False
    factor_space = FactorSpace(("size", "x", "y"), (3, 8, 8))
    image_shape = (1, 32, 32)

    def observe(self, factors, generator=None):
        size, x, y = (factors[:, i, None, None] for i in range(3))
        grid = torch.arange(32)
        inside = lambda at, axis: (axis >= 3 * at) & (axis < 3 * at + 3 + 2 * size)
        return (inside(x, grid[None, None, :]) & inside(y, grid[None, :, None])).float()[:, None]


class AskedToStop(BetaVAE):
    """Receives a signal right after its fifth step, when Lightning's callbacks were called already."""

    def on_train_batch_end(self, *arguments):
        super().on_train_batch_end(*arguments)
        if self.global_step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
'''


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module of a data set, to be the working directory of studies."""
    folder = tmp_path_factory.mktemp("toys")
    (folder / "toys.py").write_text(TOYS, encoding="utf-8")
    return folder


def content(steps: int = 12, seeds: int = 2, **changes: Any) -> dict[str, Any]:
    return {
        "datasets": [{"class_path": "toys.Squares"}],
        "seeds": seeds,
        "training": {"trainer.max_steps": steps, "data.batch_size": 4, "data.num_val_batches": 1, "model.lr": 1e-3},
        "sweeps": [
            {"config": "beta_vae_dsprites", "options": {"model.beta": [1, 4]}},
            {"config": "factor_vae_dsprites", "options": {"model.gamma": [10]}},
        ],
        "scores": [{"metrics": ["mig", "modularity", "elbo"], "num_train": 60, "num_test": 40}],
    } | changes


@pytest.fixture(scope="session")
def tiny() -> Callable[..., dict[str, Any]]:
    """Content of a small study, with changes."""
    return content


@pytest.fixture(scope="session")
def write() -> Callable[[Path, dict[str, Any]], Path]:
    """Write a study's file."""

    def to_yaml(path: Path, study: dict[str, Any]) -> Path:
        path.write_text(yaml.safe_dump(study), encoding="utf-8")
        return path

    return to_yaml
