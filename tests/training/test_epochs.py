"""Our DataModules under a Trainer with its defaults: epochs, validation, limits and tuning, for every kind of batch."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unknot.datamodules import (
    ClevrScenes,
    DSprites,
    FactorDataModule,
    FactorSpace,
    GroundTruthDataset,
    ImageDataModule,
    LabelledDataModule,
    PairDataModule,
    SetDataModule,
)
from unknot.lightning import pl
from unknot.zoo import AdaGVAE, BetaVAE, FactorVAE, S2BetaVAE, SlotSetPredictor

SHAPE = (1, 32, 32)


class Dots(GroundTruthDataset):
    """A white square in one of 64 places."""

    name = "dots"
    stochastic = False
    factor_space = FactorSpace(("row", "column"), (8, 8))
    image_shape = SHAPE

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        rows, columns = (torch.nn.functional.one_hot(part, 8).repeat_interleave(4, 1) for part in factors.T)
        return (rows[:, :, None] * columns[:, None, :])[:, None].float()


SMALL = {"batch_size": 8, "num_val_batches": 2, "seed": 0, "steps_per_epoch": 3}


def vae(kind: type[Any]) -> Any:
    return lambda: kind(image_shape=SHAPE, lr=1e-3)


MODELS: dict[str, tuple[Any, Any]] = {
    "BetaVAE": (vae(BetaVAE), lambda **options: FactorDataModule(Dots(), **SMALL | options)),
    "FactorVAE": (vae(FactorVAE), lambda **options: FactorDataModule(Dots(), **SMALL | options)),
    "AdaGVAE": (vae(AdaGVAE), lambda **options: PairDataModule(Dots(), k=1, **SMALL | options)),
    "S2BetaVAE": (vae(S2BetaVAE), lambda **options: LabelledDataModule(Dots(), num_labels=20, **SMALL | options)),
    "SlotSetPredictor": (
        lambda: SlotSetPredictor(image_shape=(3, 32, 32), lr=1e-3),
        lambda **options: SetDataModule(ClevrScenes(image_size=32, max_objects=4), **SMALL | options),
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return pl.Trainer(default_root_dir=folder, **quiet | {"enable_checkpointing": False} | options)


def make(name: str, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model, data = MODELS[name]
    return model(), data(**options)


class Seen(pl.Callback):
    """Keeps the training batches, and counts what else there is."""

    def __init__(self) -> None:
        self.batches: list[Tensor] = []
        self.losses: list[Tensor] = []

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self.batches.append((batch if isinstance(batch, Tensor) else batch[0]).clone())

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            self.losses.append(trainer.callback_metrics["val/loss"].clone())

    @property
    def validations(self) -> int:
        return len(self.losses)


# Epochs.


@every_model
def test_epochs_validation_early_stopping_and_the_best_checkpoint_need_no_settings(tmp_path: Path, name: str) -> None:
    model, data = make(name)
    best = pl.callbacks.ModelCheckpoint(tmp_path, monitor="val/loss")
    patient = pl.callbacks.EarlyStopping("val/loss", patience=5)
    seen = Seen()
    run = trainer(tmp_path, max_epochs=2, enable_checkpointing=True, callbacks=[best, patient, seen])
    run.fit(model, datamodule=data)
    assert run.current_epoch == 2
    assert seen.validations == 2
    assert len(seen.batches) == 6
    assert len({batch.numpy().tobytes() for batch in seen.batches}) == 6  # the stream continues across epochs
    assert Path(best.best_model_path).is_file()
    assert torch.isfinite(best.best_model_score)


def test_epochs_of_dsprites_itself(tmp_path: Path) -> None:
    best = pl.callbacks.ModelCheckpoint(tmp_path, monitor="val/loss")
    stopping = pl.callbacks.EarlyStopping("val/loss")
    seen, data = Seen(), FactorDataModule(DSprites(), batch_size=4)
    assert len(data.train_dataloader()) == 1000
    limits = {"limit_train_batches": 3, "limit_val_batches": 2}
    run = trainer(tmp_path, max_epochs=2, enable_checkpointing=True, callbacks=[best, stopping, seen], **limits)
    run.fit(BetaVAE(lr=1e-3), datamodule=data)
    assert (run.current_epoch, seen.validations, len(seen.batches)) == (2, 2, 6)
    assert Path(best.best_model_path).is_file()
    assert best.best_model_score == stopping.best_score == min(seen.losses)


def test_two_epochs_of_64_images_end(tmp_path: Path) -> None:
    images = torch.rand(64, *SHAPE)
    best = pl.callbacks.ModelCheckpoint(tmp_path, monitor="val/loss")
    stopping = pl.callbacks.EarlyStopping("val/loss")
    seen = Seen()
    run = trainer(tmp_path, max_epochs=2, enable_checkpointing=True, callbacks=[best, stopping, seen])
    run.fit(BetaVAE(image_shape=SHAPE), datamodule=ImageDataModule(images, batch_size=16))
    assert run.current_epoch == 2
    assert [len(batch) for batch in seen.batches] == [16, 16, 16, 10] * 2
    epochs = torch.cat(seen.batches[:4]), torch.cat(seen.batches[4:])
    assert not torch.equal(*epochs)
    assert torch.equal(*(epoch.flatten(1).sum(1).sort().values for epoch in epochs))
    assert Path(best.best_model_path).is_file()


def test_early_stopping_stops(tmp_path: Path) -> None:
    model, data = make("BetaVAE")
    stopping = pl.callbacks.EarlyStopping("val/loss", patience=1, min_delta=1e9)
    run = trainer(tmp_path, max_epochs=50, callbacks=[stopping])
    run.fit(model, datamodule=data)
    assert run.current_epoch == 2


# Limits.


@every_model
def test_overfitting_shows_the_same_batches_again(tmp_path: Path, name: str) -> None:
    model, data = make(name)
    seen = Seen()
    trainer(tmp_path, overfit_batches=2, max_epochs=3, callbacks=[seen]).fit(model, datamodule=data)
    assert len(seen.batches) == 6
    assert len({batch.numpy().tobytes() for batch in seen.batches}) == 2


@every_model
def test_limits_may_be_fractions(tmp_path: Path, name: str) -> None:
    model, data = make(name, steps_per_epoch=4)
    seen = Seen()
    run = trainer(
        tmp_path, max_epochs=2, limit_train_batches=0.5, limit_val_batches=0.5, val_check_interval=0.5, callbacks=[seen]
    )
    run.fit(model, datamodule=data)
    assert len(seen.batches) == 4
    assert seen.validations == 4
    assert run.num_val_batches == [1]


@every_model
def test_a_fast_dev_run(tmp_path: Path, name: str) -> None:
    model, data = make(name)
    run = trainer(tmp_path, fast_dev_run=True)
    run.fit(model, datamodule=data)
    assert run.global_step >= 1


# Tuning.


@every_model
def test_weights_are_averaged(tmp_path: Path, name: str) -> None:
    model, data = make(name)
    averaging = pl.callbacks.StochasticWeightAveraging(swa_lrs=1e-3, swa_epoch_start=1)
    run = trainer(tmp_path, max_epochs=3, callbacks=[averaging])
    run.fit(model, datamodule=data)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@every_model
def test_the_tuner_finds_a_batch_size(tmp_path: Path, name: str) -> None:
    model, data = make(name, batch_size=2)
    run = trainer(tmp_path, max_epochs=1, enable_checkpointing=False)
    found = pl.tuner.Tuner(run).scale_batch_size(model, datamodule=data, max_trials=2, steps_per_trial=1)
    assert found == data.batch_size == 4


@every_model
def test_the_tuner_finds_a_rate(tmp_path: Path, name: str) -> None:
    model, data = make(name, steps_per_epoch=10)
    tuner = pl.tuner.Tuner(trainer(tmp_path, max_epochs=1))
    finder = tuner.lr_find(model, datamodule=data, num_training=5, min_lr=1e-5, max_lr=1e-2, update_attr=False)
    assert finder is not None
    assert len(finder.results["loss"]) >= 4


# Factors in a validation loop.


def test_a_metric_of_factors_runs_in_a_validation_loop(tmp_path: Path) -> None:
    from unknot.metrics import MIG

    class Scored(BetaVAE):
        def on_validation_epoch_start(self) -> None:
            self.mig = MIG()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            super().validation_step(batch, batch_idx)
            images, factors = batch
            self.mig.update(self.represent(images), factors)

        def on_validation_epoch_end(self) -> None:
            self.log("val/mig", self.mig.compute())

    data = FactorDataModule(Dots(), with_factors=True, **SMALL)
    run = trainer(tmp_path, max_epochs=1)
    run.fit(Scored(image_shape=SHAPE), datamodule=data)
    assert 0 <= run.callback_metrics["val/mig"] <= 1


@pytest.mark.parametrize("name", ["BetaVAE", "AdaGVAE", "S2BetaVAE"])
def test_models_train_on_batches_that_bring_factors(tmp_path: Path, name: str) -> None:
    model, data = make(name, with_factors=True)
    run = trainer(tmp_path, fast_dev_run=True)
    run.fit(model, datamodule=data)
    assert next(iter(data.val_dataloader()))[-1].shape == (8, 2)


TWO_RANKS = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import torch
    from test_epochs import MODELS, make, trainer
    from unknot.lightning import pl
    from unknot.datamodules import ImageDataModule
    from unknot.zoo import BetaVAE

    class Images(pl.Callback):
        def __init__(self):
            self.seen = []
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            self.seen += batch[:, 0, 0, 0].mul(64).round().long().tolist()

    if __name__ == "__main__":
        two = dict(strategy="ddp", devices=2, max_epochs=2)
        for name in MODELS:
            model, data = make(name)
            run = trainer(sys.argv[2], **two)
            run.fit(model, datamodule=data)
            weights = torch.cat([p.detach().flatten() for p in model.parameters()])
            both = run.strategy.all_gather(weights)
            assert torch.equal(both[0], both[1]), name
            assert run.current_epoch == 2
        images = Images()
        own = torch.arange(30).div(64)[:, None, None, None].expand(30, 1, 32, 32).contiguous()
        run = trainer(sys.argv[2], callbacks=[images], **two)
        run.fit(BetaVAE(image_shape=(1, 32, 32)), datamodule=ImageDataModule(own, batch_size=4, seed=0))
        first, second = run.strategy.all_gather(torch.tensor(images.seen))
        epoch = torch.cat([first[:14], second[:14]])
        assert len(first) == 28 and len(epoch.unique()) == 27, (len(first), epoch)
        print("both ranks agree", run.global_rank)
"""


@pytest.mark.slow
def test_two_processes_train_together(tmp_path: Path) -> None:
    script = tmp_path / "two_ranks.py"
    script.write_text(textwrap.dedent(TWO_RANKS))
    command = [sys.executable, str(script), str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "both ranks agree 0" in done.stdout
