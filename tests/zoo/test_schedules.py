"""Anneal and WarmupCosine: functions of the step, exact on resume, recorded in the checkpoint."""

import json
from itertools import pairwise

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from unknot.hub import load
from unknot.lightning import pl
from unknot.zoo import Anneal, BetaVAE, FactorVAE, WarmupCosine

SHAPE = (1, 32, 32)


class Recorder(pl.Callback):
    def __init__(self, attribute="beta"):
        self.attribute, self.seen, self.rates = attribute, [], []

    def on_before_zero_grad(self, trainer, model, optimizer):
        self.seen.append((trainer.global_step, getattr(model, self.attribute)))
        self.rates.append([group["lr"] for group in optimizer.param_groups])


def fit(model, steps, *callbacks, ckpt_path=None, folder=None, **settings):
    recorder = Recorder("gamma" if isinstance(model, FactorVAE) else "beta")
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu", "default_root_dir": folder}
    trainer = pl.Trainer(max_steps=steps, max_epochs=-1, callbacks=[*callbacks, recorder], **quiet, **settings)
    images = torch.rand(32, *SHAPE, generator=torch.Generator().manual_seed(0))
    trainer.fit(model, DataLoader(TensorDataset(images), batch_size=4), ckpt_path=ckpt_path, weights_only=True)
    return trainer, recorder


def test_the_strength_is_a_function_of_the_step_and_goes_on_after_a_resume(tmp_path):
    def anneal():
        return Anneal("beta", 0.0, 8.0, steps=4)

    _, whole = fit(BetaVAE(image_shape=SHAPE), 6, anneal())
    assert whole.seen == [(0, 0.0), (1, 2.0), (2, 4.0), (3, 6.0), (4, 8.0), (5, 8.0)]
    half, _ = fit(BetaVAE(image_shape=SHAPE), 3, anneal())
    half.save_checkpoint(tmp_path / "half.ckpt", weights_only=False)
    _, rest = fit(BetaVAE(image_shape=SHAPE), 6, anneal(), ckpt_path=tmp_path / "half.ckpt")
    assert rest.seen == whole.seen[3:]


def test_a_saved_model_has_the_last_value_and_tells_of_the_change(tmp_path):
    model = BetaVAE(beta=1.0, image_shape=SHAPE)
    weight = Anneal("reconstruction_weight", 2.0, 1.0, steps=2, geometric=True)
    fit(model, 3, Anneal("beta", 0.0, 8.0, steps=4), weight)
    config = json.loads((model.save_pretrained(tmp_path) / "config.json").read_text())
    assert config["arguments"]["beta"] == 4.0
    assert config["annealed"]["beta"] == {"start": 0.0, "end": 8.0, "steps": 4}
    assert config["annealed"]["reconstruction_weight"] == {"start": 2.0, "end": 1.0, "steps": 2, "geometric": True}
    loaded = load(tmp_path)
    assert (loaded.beta, loaded.reconstruction_weight) == (4.0, 1.0)
    assert loaded.annealed == model.annealed


def test_a_geometric_change_multiplies_by_the_same_number():
    values = [Anneal("beta", 0.25, 4.0, steps=10, geometric=True).value(step) for step in range(13)]
    assert values[0] == 0.25
    assert values[10:] == [4.0] * 3
    torch.testing.assert_close([after / before for before, after in pairwise(values[:11])], [16**0.1] * 10)


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (1.0, 0.0), (-1.0, -2.0)])
def test_a_geometric_change_is_between_positive_numbers(start, end):
    with pytest.raises(ValueError, match="between positive numbers, got start"):
        Anneal("beta", start, end, steps=10, geometric=True)


@pytest.mark.parametrize("attribute", ["gama", "image_shape", "encoder"])
def test_what_is_no_number_is_not_annealed(attribute):
    with pytest.raises(ValueError, match=rf"BetaVAE has no number '{attribute}' among its arguments; .*'beta'"):
        fit(BetaVAE(image_shape=SHAPE), 1, Anneal(attribute, 0.0, 1.0, steps=2))


@pytest.mark.parametrize("arguments", [(0.0, 1.0, 0), (0.0, float("nan"), 3), (0.0, "x", 3), (0.0, 1.0, 2.5)])
def test_plans_that_are_none(arguments):
    with pytest.raises(ValueError, match="must be"):
        Anneal("beta", *arguments)


@pytest.mark.parametrize("cls", [BetaVAE, FactorVAE])
def test_optimiser_and_schedule_are_the_users(cls, tmp_path):
    def model():
        model = cls(image_shape=SHAPE)
        model.optimizer = lambda parameters: torch.optim.SGD(parameters, lr=1e-6)
        model.scheduler = lambda optimizer: WarmupCosine(optimizer, warmup_steps=2, total_steps=6)
        return model

    trainer, whole = fit(model(), 6)
    assert isinstance(trainer.optimizers[0], torch.optim.SGD)
    factors = [0.0, 0.5, 1.0, 0.8535534, 0.5, 0.1464466]
    assert [rates[0] for rates in whole.rates] == pytest.approx([1e-6 * factor for factor in factors])
    if cls is FactorVAE:
        assert [rates[1] for rates in whole.rates] == pytest.approx([1e-4 * factor for factor in factors])
    half, _ = fit(model(), 3)
    half.save_checkpoint(tmp_path / "half.ckpt", weights_only=False)
    _, rest = fit(model(), 6, ckpt_path=tmp_path / "half.ckpt")
    assert rest.rates == whole.rates[3:]


@pytest.mark.parametrize(("warmup", "total"), [(-1, 5), (5, 5), (6, 5)])
def test_schedules_that_are_none(warmup, total):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match="warmup_steps must be"):
        WarmupCosine(optimizer, warmup, total)
