"""Habits of users of Lightning: generators left alone, clipping, accumulation, precision, averaging, tuning."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from unknot.checkpoints.locate import Source
from unknot.lightning import pl
from unknot.zoo import MODELS, AdaGVAE, BetaVAE, FactorVAE

SHAPE = (1, 32, 32)
KINDS = ["BetaVAE", "FactorVAE", "AdaGVAE", "S2BetaVAE", "SlotSetPredictor"]


def build(name, **arguments):
    torch.manual_seed(0)
    small = {"channels": 8, "strides": (4, 2), "warmup_steps": 0} if MODELS[name].batch == "sets" else {"latent_dim": 4}
    return MODELS[name](image_shape=SHAPE, **small, **arguments)


def data(name, n=8, shuffle=False):
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(2, n, *SHAPE, generator=generator)
    more = {
        "images": [],
        "pairs": [second],
        "labelled": [second, torch.rand(n, 2, generator=generator)],
        "sets": [torch.rand(n, 3, 19, generator=generator).round()],
    }
    return DataLoader(TensorDataset(first, *more[MODELS[name].batch]), batch_size=4, shuffle=shuffle)


def trainer(**settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return pl.Trainer(accelerator="cpu", enable_model_summary=False, **quiet, **settings)


# Generators


class Order(pl.Callback):
    """The order in which the images came, one list for each epoch."""

    def __init__(self):
        self.epochs = []

    def on_train_epoch_start(self, trainer, model):
        self.epochs.append([])

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        self.epochs[-1] += batch[0].flatten(1).sum(1).tolist()


def orders(seed):
    pl.seed_everything(seed, verbose=False)
    order = Order()
    loader = data("BetaVAE", 16, shuffle=True)
    trainer(max_epochs=3, callbacks=[order]).fit(BetaVAE(image_shape=SHAPE), loader, data("BetaVAE", 4))
    return order.epochs


def test_a_loader_of_ones_own_shuffles_anew_in_every_epoch_and_for_every_seed():
    zero, one = orders(0), orders(1)
    assert len({tuple(epoch) for epoch in [*zero, *one]}) == 6
    assert len({tuple(sorted(epoch)) for epoch in [*zero, *one]}) == 1
    assert zero == orders(0)


class Plain(pl.LightningModule):
    """Model that draws no random numbers."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0].flatten()[:1]).sum()

    def validation_step(self, batch, batch_idx):
        pass

    test_step = predict_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def states():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002


@pytest.mark.parametrize("name", ["BetaVAE", "SlotSetPredictor"])
@pytest.mark.parametrize("action", ["fit", "validate", "test", "predict"])
def test_generators_are_as_they_would_be_without_us(action, name):
    found = []
    for model in (Plain(), build(name)):
        pl.seed_everything(5, verbose=False)
        run = trainer(max_epochs=1)
        loaders = [data(name, shuffle=True), data(name)] if action == "fit" else [data(name)]
        getattr(run, action)(model, *loaders)
        found.append(states())
    assert found[0] == found[1]


def test_generators_are_given_back_by_a_step_that_fails():
    class Breaks(BetaVAE):
        def losses(self, batch):
            torch.rand(3)
            raise RuntimeError("no")

    model = Breaks(image_shape=SHAPE)
    for action in ("fit", "validate"):
        loader = data("BetaVAE")
        torch.manual_seed(3)
        iter(loader)  # draws the seed of its workers
        expected = torch.get_rng_state()
        torch.manual_seed(3)
        with pytest.raises(RuntimeError, match="no"):
            getattr(trainer(max_epochs=1), action)(model, loader)
        assert torch.equal(torch.get_rng_state(), expected)


def test_two_fits_of_one_program_draw_different_noise():
    noise = []

    class Records(BetaVAE):
        def losses(self, batch):
            noise.append(torch.initial_seed())
            return super().losses(batch)

    torch.manual_seed(0)
    for _ in range(2):
        trainer(max_steps=1).fit(Records(image_shape=SHAPE), data("BetaVAE"))
    assert len(set(noise)) == 2


# Gradients


@pytest.mark.parametrize("name", KINDS)
def test_accumulated_gradients_count_as_one_step(name):
    run, model = trainer(max_epochs=1, accumulate_grad_batches=2), build(name)
    run.fit(model, data(name, 16))
    assert run.global_step == 2


@pytest.mark.parametrize("algorithm", ["norm", "value"])
@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_clipped(name, algorithm):
    norms = []

    class Records(pl.Callback):
        def on_before_zero_grad(self, trainer, model, optimizer):
            groups = optimizer.param_groups
            gradients = [[p.grad.flatten() for p in group["params"] if p.grad is not None] for group in groups]
            ord = 2 if algorithm == "norm" else torch.inf
            norms.append([torch.linalg.vector_norm(torch.cat(each), ord).item() for each in gradients if each])

    settings = {"gradient_clip_val": 1e-3, "gradient_clip_algorithm": algorithm}
    trainer(max_steps=3, max_epochs=-1, callbacks=[Records()], **settings).fit(build(name), data(name))
    assert norms[0] == []
    assert len(norms[1]) == (2 if name == "FactorVAE" else 1)
    assert all(norm <= 1.001e-3 for step in norms for norm in step)
    if algorithm == "norm":
        assert norms[1] == pytest.approx([1e-3] * len(norms[1]), rel=1e-3)  # each network by itself


def test_a_checkpoint_with_two_optimisers_goes_on_as_one(tmp_path):
    """As FactorVAE wrote them before."""
    run, model = trainer(max_steps=2, max_epochs=-1), build("FactorVAE")
    run.fit(model, data("FactorVAE"))
    run.save_checkpoint(tmp_path / "new.ckpt", weights_only=False)
    checkpoint = torch.load(tmp_path / "new.ckpt", weights_only=True)
    (state,) = checkpoint["optimizer_states"]
    first, second = state["param_groups"]
    count = len(first["params"])
    checkpoint["optimizer_states"] = [
        {"state": {i: v for i, v in state["state"].items() if i < count}, "param_groups": [first]},
        {
            "state": {i - count: v for i, v in state["state"].items() if i >= count},
            "param_groups": [second | {"params": [i - count for i in second["params"]]}],
        },
    ]
    torch.save(checkpoint, tmp_path / "old.ckpt")
    ends = []
    for name in ("new", "old"):
        again = build("FactorVAE")
        path = tmp_path / f"{name}.ckpt"
        trainer(max_steps=4, max_epochs=-1).fit(again, data("FactorVAE"), ckpt_path=path, weights_only=True)
        ends.append(again.state_dict())
    assert all(torch.equal(value, ends[1][key]) for key, value in ends[0].items())


# What is logged of training


class Losses(BetaVAE):
    """Remembers the loss of every step."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.seen = [*getattr(self, "seen", []), loss.item()]
        return loss


@pytest.mark.parametrize("settings", [{"max_epochs": 1}, {"max_steps": 5}])
def test_after_training_the_logged_loss_is_that_of_the_last_step(settings):
    model = Losses(image_shape=SHAPE, latent_dim=4)
    run = trainer(**settings)
    run.fit(model, data("BetaVAE", 28))
    assert run.callback_metrics["train/loss"].item() == pytest.approx(model.seen[-1], rel=1e-6)


def test_who_watches_the_training_loss_sees_every_step(tmp_path):
    model = Losses(image_shape=SHAPE, latent_dim=4)
    best = pl.callbacks.ModelCheckpoint(tmp_path, monitor="train/loss", every_n_train_steps=1)
    run = pl.Trainer(accelerator="cpu", max_steps=6, logger=False, enable_progress_bar=False, callbacks=[best])
    run.fit(model, data("BetaVAE", 28))
    assert best.best_model_score.item() == pytest.approx(min(model.seen), rel=1e-6)


# Precision, and other callbacks


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("precision", "dtype"), [("bf16-true", torch.bfloat16), ("64-true", torch.float64)])
def test_true_precision(name, precision, dtype):
    model = build(name, lr=1e-2)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    run = trainer(max_steps=2, precision=precision)
    run.fit(model, data(name), data(name, 4))
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert all(value.isfinite() for value in run.callback_metrics.values())
    assert any(not torch.equal(value, before[key].to(dtype)) for key, value in model.state_dict().items())
    codes = model.represent(next(iter(data(name)))[0])
    assert codes.isfinite().all()
    if "decode" in model.capabilities:
        assert model.reconstruct(torch.rand(2, *SHAPE)).shape == (2, *SHAPE)


def test_a_model_in_double_precision_takes_any_floats():
    model = BetaVAE(image_shape=SHAPE).double()
    images = torch.rand(2, *SHAPE)
    assert model.represent(images).dtype == torch.float64
    assert model.reconstruct(images).dtype == torch.float64
    assert BetaVAE(image_shape=SHAPE).represent(images.double()).dtype == torch.float32


@pytest.mark.parametrize("name", ["BetaVAE", "FactorVAE"])
def test_weights_are_averaged_and_rates_found(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the finder keeps its checkpoint for a while
    run = trainer(max_epochs=2, callbacks=[pl.callbacks.StochasticWeightAveraging(1e-4, swa_epoch_start=1)])
    run.fit(build(name), data(name))
    assert run.global_step == 4
    model = build(name)
    found = pl.tuner.Tuner(trainer(max_epochs=1)).lr_find(model, data(name, 32), num_training=8)
    assert len(found.results["loss"]) >= 7


@pytest.mark.parametrize("name", KINDS)
def test_torch_exports_what_maps_images_to_codes(name):
    model, images = build(name).eval(), next(iter(data(name)))[0]
    sets = MODELS[name].batch == "sets"  # slots are drawn for batches of the size that was exported
    sizes = None if sets else ({0: torch.export.Dim("batch", min=2, max=64)},)
    exported = torch.export.export(model, (images,), dynamic_shapes=sizes).module()
    some = images if sets else images[:3]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = model(some)
        torch.manual_seed(0)
        torch.testing.assert_close(exported(some), expected)


# Provenance


def test_a_model_that_is_trained_on_says_what_it_was_trained_on(tmp_path):
    model = AdaGVAE(image_shape=SHAPE)
    model.trained_on, model.loaded_from = "dsprites", Source(Path(), "unknot/adagvae-dsprites")
    trainer(max_steps=1).fit(model, data("AdaGVAE"))
    assert model.trained_on is None
    assert model.hub_repo is None
    assert model.fine_tuned_from == "unknot/adagvae-dsprites"
    first = trainer(max_steps=2)
    first.fit(model, data("AdaGVAE"))
    first.save_checkpoint(tmp_path / "one.ckpt", weights_only=False)
    resumed = AdaGVAE(image_shape=SHAPE)
    trainer(max_steps=3).fit(resumed, data("AdaGVAE"), ckpt_path=tmp_path / "one.ckpt", weights_only=True)
    assert resumed.fine_tuned_from == "unknot/adagvae-dsprites"


def test_a_checkpoint_without_our_entries_is_resumed(tmp_path):
    run = trainer(max_steps=1)
    run.fit(BetaVAE(image_shape=SHAPE), data("BetaVAE"))
    run.save_checkpoint(tmp_path / "one.ckpt", weights_only=False)
    checkpoint = torch.load(tmp_path / "one.ckpt", weights_only=True)
    del checkpoint["noise_seed"], checkpoint["trained_on"]
    torch.save(checkpoint, tmp_path / "one.ckpt")
    again = trainer(max_steps=2)
    again.fit(BetaVAE(image_shape=SHAPE), data("BetaVAE"), ckpt_path=tmp_path / "one.ckpt", weights_only=True)
    assert again.global_step == 2


def test_loads_from_a_checkpoint_of_lightning(tmp_path):
    run, model = trainer(max_steps=1), FactorVAE(gamma=3.0, image_shape=SHAPE, encoder="MLPEncoder")
    run.fit(model, data("FactorVAE"))
    run.save_checkpoint(tmp_path / "one.ckpt", weights_only=False)
    loaded = FactorVAE.load_from_checkpoint(tmp_path / "one.ckpt", weights_only=True)
    assert dict(loaded.hparams) == dict(model.hparams)
    images = torch.rand(2, *SHAPE)
    assert torch.equal(loaded.represent(images), model.represent(images))
