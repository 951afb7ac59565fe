"""Scores during training: logged, monitored, and without a trace in the training itself."""

import csv

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from unknot.datamodules import FactorSpace, GroundTruthDataset
from unknot.lightning import pl
from unknot.metrics import ScoreCallback, evaluate


class Levels(GroundTruthDataset):
    name = "levels"
    factor_space = FactorSpace(names=("left", "right"), sizes=(4, 3))
    image_shape = (1, 1, 2)

    def observe(self, factors, generator=None):
        clean = factors.float() / torch.tensor(self.factor_space.sizes)
        return (clean + 0.1 * torch.rand(clean.shape, generator=generator))[:, None, None, :]


class Model(pl.LightningModule):
    """A noisy autoencoder: whatever moves the generators shows in its weights."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.noise = nn.Linear(2, 3), nn.Linear(3, 2), nn.Dropout(0.3)

    def represent(self, images):
        return self.noise(self.encoder(images.flatten(1)))

    def training_step(self, batch, batch_idx):
        images = batch[0]
        codes = self.represent(images) + 0.1 * torch.randn(len(images), 3)
        loss = (self.decoder(codes) - images.flatten(1)).square().mean()
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def fit(folder, *callbacks, **options):
    pl.seed_everything(0, verbose=False)
    model = Model()
    images = Levels().observe(Levels.factor_space.sample(48), torch.Generator().manual_seed(0))
    logger = pl.loggers.CSVLogger(folder, name="", version="")
    settings = {"max_epochs": 2, "log_every_n_steps": 1, "logger": logger} | options
    trainer = pl.Trainer(
        accelerator="cpu", callbacks=list(callbacks), default_root_dir=folder,
        enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=any(isinstance(c, pl.callbacks.ModelCheckpoint) for c in callbacks), **settings,
    )  # fmt: skip
    trainer.fit(model, DataLoader(TensorDataset(images), batch_size=8, shuffle=True))
    return trainer, model


def logged(folder, name):
    with (folder / "metrics.csv").open() as file:
        return {int(row["step"]): float(row[name]) for row in csv.DictReader(file) if row.get(name)}


def scorer(**options):
    return ScoreCallback(
        Levels(), **{"metrics": ["mig", "total_correlation"], "num_train": 60, "num_test": 10} | options
    )


def test_scores_are_those_of_evaluate_and_reach_the_log(tmp_path):
    trainer, model = fit(tmp_path, scorer(every_n_steps=4, seed=5))
    found = logged(tmp_path, "score/mig")
    assert list(found) == [4, 8, 12]
    expected = evaluate(model, Levels(), ["mig", "total_correlation"], 60, 10, seed=5)
    assert found[12] == pytest.approx(expected["mig"])
    assert logged(tmp_path, "score/total_correlation")[12] == pytest.approx(expected["total_correlation"])
    assert len(set(found.values())) > 1
    assert float(trainer.callback_metrics["score/mig"]) == pytest.approx(expected["mig"])
    assert len(logged(tmp_path, "train/loss")) == 12


def test_training_is_the_same_with_and_without(tmp_path):
    _, plain = fit(tmp_path / "plain")
    noise = torch.get_rng_state()
    _, scored = fit(tmp_path / "scored", scorer(every_n_steps=1))
    assert torch.equal(torch.get_rng_state(), noise)
    for name, value in plain.state_dict().items():
        assert torch.equal(scored.state_dict()[name], value), name
    assert logged(tmp_path / "plain", "train/loss") == logged(tmp_path / "scored", "train/loss")
    assert scored.training
    assert scored.noise.training


def test_a_checkpoint_can_follow_a_score(tmp_path):
    checkpoint = pl.callbacks.ModelCheckpoint(tmp_path / "best", monitor="score/mig", mode="max", every_n_train_steps=4)
    fit(tmp_path, checkpoint, scorer(every_n_steps=4))
    found = logged(tmp_path, "score/mig")
    assert float(checkpoint.best_model_score) == pytest.approx(max(found.values()))
    best = torch.load(checkpoint.best_model_path, weights_only=False)
    assert found[best["global_step"]] == max(found.values())


def test_accumulated_gradients_are_scored_once(tmp_path):
    class Counted(Levels):
        drawn = 0
        finite = False  # else some images are drawn to find out

        def observe(self, factors, generator=None):
            self.drawn += len(factors)
            return super().observe(factors, generator)

    dataset = Counted()
    fit(tmp_path, ScoreCallback(dataset, "mig", every_n_steps=2, num_train=60), accumulate_grad_batches=3)
    assert list(logged(tmp_path, "score/mig")) == [2, 4]  # 12 batches are 4 steps
    assert dataset.drawn == 2 * 60


def test_a_callback_serves_several_fits(tmp_path):
    callback = scorer(every_n_steps=12)
    for run in ("first", "second"):
        fit(tmp_path / run, callback)
        assert list(logged(tmp_path / run, "score/mig")) == [12]


def test_a_single_name_and_no_logger(tmp_path):
    trainer, _ = fit(tmp_path, scorer(metrics="mig", every_n_steps=12), logger=False)
    assert 0 <= float(trainer.callback_metrics["score/mig"]) <= 1


@pytest.mark.parametrize("steps", [0, -3])
def test_every_no_steps_is_refused(steps):
    with pytest.raises(ValueError, match=f"every_n_steps must be a whole number of at least 1, got {steps}"):
        scorer(every_n_steps=steps)
