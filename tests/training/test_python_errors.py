"""Errors of `fit` end in one line and show no chain of the parser's own."""

import traceback
from pathlib import Path
from typing import Any

import pytest

from unknot.training import fit


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.betta": 3}, "BetaVAE has no argument 'betta'. Did you mean 'beta'?"),
        ({"model.beta": -3}, "beta must be finite and not negative, got -3.0."),
        ({"model.beta": "x"}, "beta must be of type float, got 'x'."),
        (
            {"data": {"class_path": "unknot.datamodules.ImageDataModule", "init_args": {"source": "/nope"}}},
            "/nope: no such folder. Give a folder of images, a list of files or an array.",
        ),
    ],
)
def test_errors_of_fit_are_one_line(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, OSError)) as refused:
        fit("beta_vae_dsprites", overrides=overrides, folder=tmp_path / "run")
    assert str(refused.value) == message
    shown = "".join(traceback.format_exception(refused.value))
    assert shown.count("Traceback (most recent call last)") == 1
