"""Canaries: parts of other libraries that promise nothing are still what unknot takes them for."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from unknot.hub.web import serving
from unknot.lightning import PRIVATE, batches_done, correct_step, pl, values_due
from unknot.training import settings
from unknot.zoo import BetaVAE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("where", PRIVATE)
def test_lightning_has_them(where: str) -> None:
    module, _, name = where.partition(":")
    cls = getattr(import_module(f"pytorch_lightning.{module}"), name)
    source = "".join(inspect.getsource(base) for base in cls.__mro__ if "lightning" in base.__module__)
    assert [part for part in PRIVATE[where] if not re.search(rf"(def |self\.){part}\b", source)] == []


def test_lightning_counts_and_logs_as_it_did() -> None:
    class Look(pl.Callback):
        seen: list[tuple[int, bool]]

        def on_train_batch_start(self, trainer: pl.Trainer, *_: object) -> None:
            self.seen.append((batches_done(trainer), values_due(trainer)))

    look = Look()
    look.seen = []
    model = BetaVAE(image_shape=(1, 8, 8), encoder="MLPEncoder", decoder="MLPDecoder")
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=4, log_every_n_steps=2, callbacks=[look], enable_model_summary=False, **quiet
    )
    trainer.fit(model, DataLoader(torch.rand(16, 1, 8, 8), batch_size=4))
    assert look.seen == [(0, False), (1, True), (2, False), (3, True)]
    assert (batches_done(trainer), batches_done(None)) == (4, 0)
    loop = trainer.fit_loop.epoch_loop
    assert loop._batches_that_stepped == 4
    correct_step(trainer, 3)
    assert loop._batches_that_stepped == 3
    correct_step(trainer, 7)  # it does not leave one out here
    assert loop._batches_that_stepped == 3


def test_jsonargparse_keeps_its_settings_where_they_were() -> None:
    from jsonargparse import _common

    assert settings.PRIVATE == ("parsing_settings",)
    before = dict(_common.parsing_settings)
    with settings.only_known_classes(["mine"]):
        assert _common.parsing_settings["import_path_verdicts"]["mine"]
    after = dict(_common.parsing_settings)
    assert after.pop("config_read_mode_fsspec_enabled", True)
    before.pop("config_read_mode_fsspec_enabled", None)
    assert after == before


def test_uvicorn_has_them() -> None:
    source = inspect.getsource(serving.H11Protocol)
    assert [part for part in serving.PRIVATE if not re.search(rf"(def |self\.){part}\b", source)] == []
    assert "response_complete" in inspect.getsource(import_module("uvicorn.protocols.http.h11_impl"))


def test_no_other_module_reaches_into_them() -> None:
    rooms = ("core", "datamodules", "checkpoints", "zoo", "metrics", "training", "studies", "hub", "cli")
    homes = {
        r"jsonargparse[^\n]*\b_common\b": {"training/settings.py"},
        r"H11Protocol": {"hub/web/serving.py"},
        r"\b(trainer|loop|pl)\._[a-z]|batch_progress": {"core/lightning.py"},
        r"ExperimentWriter\b": {"training/callbacks.py", "core/lightning.py"},
        r"_add_configure_optimizers": {"training/lightning_cli.py", "core/lightning.py"},
    }
    for pattern, expected in homes.items():
        users = {
            str(path.relative_to(ROOT))
            for room in rooms
            for path in ROOT.glob(f"{room}/**/*.py")
            if re.search(pattern, path.read_text(encoding="utf-8"))
        }
        assert users == expected, pattern
