"""A killed run, resumed, ends exactly where an uninterrupted one does."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from unknot.datamodules import DSprites, FactorDataModule, ImageDataModule, Resized
from unknot.lightning import pl
from unknot.zoo import BetaVAE

STEPS = 60
FIT = [
    *("fit", "--config", "beta_vae_dsprites", "--data.batch_size", "8", "--data.num_val_batches", "2"),
    *("--trainer.max_steps", str(STEPS), "--trainer.val_check_interval", "7", "--checkpoint_every", "5"),
    *("--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"),
]


def test_sigkill_and_resume_give_the_weights_of_an_uninterrupted_run(tmp_path: Path, start: Callable[..., Any]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    assert start(FIT, whole).wait() == 0

    run = killed / "runs/beta_vae_dsprites/version_0"
    process = start(FIT, killed)
    process.wait_for((run / "checkpoints/last.ckpt").exists)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (run / "model").exists()
    step = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["global_step"]
    assert 0 < step < STEPS

    assert start(["fit", "--resume", run.relative_to(killed)], killed).wait() == 0
    expected = load_file(whole / "runs/beta_vae_dsprites/version_0/model/model.safetensors")
    resumed = load_file(killed / "runs/beta_vae_dsprites/version_0/model/model.safetensors")
    assert expected.keys() == resumed.keys()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


def fit(folder: Path, steps: int, ckpt_path: Path | None = None, seed: int = 0, **trainer: object) -> BetaVAE:
    pl.seed_everything(seed, verbose=False)
    model = BetaVAE(image_shape=(1, 64, 64))
    settings = {
        **{"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"},
        **{"max_steps": steps, "max_epochs": -1, "enable_checkpointing": False, "default_root_dir": folder},
    }
    run = pl.Trainer(**(settings | trainer))
    data = FactorDataModule(DSprites(), batch_size=4, num_val_batches=1)
    run.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    run.save_checkpoint(folder / f"{steps}.ckpt", weights_only=False)
    return model


def same(a: BetaVAE, b: BetaVAE) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize(
    "trainer",
    [
        {},
        {"limit_train_batches": 3},  # epochs of three steps: the stream continues across them
        {"val_check_interval": 2, "check_val_every_n_epoch": None},
    ],
    ids=["endless", "epochs", "validation"],
)
def test_resume_is_exact_at_any_step(tmp_path: Path, trainer: dict[str, object]) -> None:
    whole = fit(tmp_path, 8, **trainer)
    for steps in (2, 3, 5):
        fit(tmp_path, steps, **trainer)
        # The seed of the resumed process must not matter: that of the run is in the checkpoint.
        assert same(fit(tmp_path, 8, tmp_path / f"{steps}.ckpt", seed=99, **trainer), whole)


class Killed(pl.Callback):
    """Ends the process at the beginning of a step, without a chance to clean up."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: object, number: int) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, source: str, seed: int, resume: bool = False, **options: object) -> BetaVAE:
    """Three epochs of four steps, with two workers, augmentation and validation, and a checkpoint after every step."""
    pl.seed_everything(seed, verbose=False)
    model = BetaVAE(image_shape=(1, 32, 32))
    workers = {"batch_size": 5, "num_workers": 2, "num_val_batches": 1}
    if source == "own images":
        images = torch.rand(20, 1, 32, 32, generator=torch.Generator().manual_seed(0)) / 2
        data: pl.LightningDataModule = ImageDataModule(images, transform=torch.nn.Dropout(0.1), **workers)
    else:
        data = FactorDataModule(Resized(DSprites(), 32, cached=False), steps_per_epoch=4, **workers)
    saving = pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=1, save_last=True, save_top_k=0)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    callbacks = [saving, *options.pop("callbacks", [])]  # type: ignore[misc]
    run = pl.Trainer(max_epochs=3, callbacks=callbacks, **quiet)
    run.fit(model, datamodule=data, ckpt_path=folder / "last.ckpt" if resume else None, weights_only=True)
    return model


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("source", ["own images", "stream"])
def test_a_kill_within_an_epoch_or_at_its_end_changes_nothing(tmp_path: Path, source: str) -> None:
    whole = train(tmp_path / "whole", source, seed=0)
    for step in (3, 4, 6):  # in the middle of an epoch, at its end, in the middle of the next
        folder = tmp_path / f"killed{step}"
        options = {"folder": folder, "source": source, "seed": 0, "callbacks": [Killed(step)]}
        process = multiprocessing.get_context("fork").Process(target=train, kwargs=options)
        process.start()
        process.join(300)
        assert process.exitcode == -signal.SIGKILL
        assert torch.load(folder / "last.ckpt", weights_only=True)["global_step"] == step
        assert same(train(folder, source, seed=99, resume=True), whole)


def test_epochs_do_not_repeat_batches(tmp_path: Path) -> None:
    assert same(fit(tmp_path, 6, limit_train_batches=2), fit(tmp_path, 6))


def test_seeds_matter(tmp_path: Path) -> None:
    assert same(fit(tmp_path, 3), fit(tmp_path, 3))
    assert not same(fit(tmp_path, 3, seed=1), fit(tmp_path, 3))


def test_noise_and_data_do_not_share_their_bits(tmp_path: Path) -> None:
    data_seeds, noise_seeds = set(), set()

    class Data(FactorDataModule):
        def draw(self, generator: torch.Generator) -> object:
            data_seeds.add(generator.initial_seed())
            return super().draw(generator)

    class Model(BetaVAE):
        def losses(self, batch: object) -> dict[str, torch.Tensor]:
            noise_seeds.add(torch.initial_seed())
            return super().losses(batch)

    pl.seed_everything(0, verbose=False)
    trainer = pl.Trainer(
        max_steps=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Model(), datamodule=Data(DSprites(), batch_size=2, num_val_batches=1))
    assert len(noise_seeds) >= 5
    assert not data_seeds & noise_seeds
