"""Checkpoints without the parts that only training needs."""

import warnings

import pytest
import torch
from pytorch_lightning import Trainer
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader

from unknot.zoo import FactorVAE, S2FactorVAE

SHAPE = (1, 32, 32)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return FactorVAE(image_shape=SHAPE).eval()


@pytest.fixture
def slim(model, tmp_path):
    return model.save_pretrained(tmp_path / "slim", inference_only=True)


def fitted(model, tmp_path):
    loader = DataLoader(torch.rand(4, *SHAPE), batch_size=4)
    trainer = Trainer(
        max_steps=1, logger=False, enable_checkpointing=False, default_root_dir=tmp_path, accelerator="cpu"
    )
    trainer.fit(model, loader)
    return model


def test_codes_and_images_are_those_of_the_whole_model(model, slim, tmp_path):
    names = load_file(slim / "model.safetensors").keys()
    assert {name.partition(".")[0] for name in names} == {"encoder", "decoder"}
    whole = model.save_pretrained(tmp_path / "whole")
    assert (slim / "model.safetensors").stat().st_size < (whole / "model.safetensors").stat().st_size / 10
    x = torch.rand(3, *SHAPE)
    state = torch.get_rng_state()
    loaded = FactorVAE.from_pretrained(slim)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(loaded.reconstruct(x), model.reconstruct(x))
    assert loaded.reinitialized == ("discriminator",)
    assert FactorVAE.from_pretrained(whole).reinitialized == ()
    assert not any(parameter.is_meta for parameter in loaded.parameters())


def test_training_on_says_so_once_and_works(slim, tmp_path):
    loaded = FactorVAE.from_pretrained(slim)
    before = loaded.discriminator[0].weight.clone()
    with pytest.warns(UserWarning, match="its discriminator is missing from the checkpoint"):
        fitted(loaded, tmp_path)
    assert not torch.equal(loaded.discriminator[0].weight, before)
    with warnings.catch_warnings(record=True) as caught:  # from now on it is its own
        warnings.simplefilter("always")
        fitted(loaded, tmp_path)
    assert not [warning for warning in caught if "training alone" in str(warning.message)]
    again = loaded.save_pretrained(tmp_path / "again")
    assert FactorVAE.from_pretrained(again).reinitialized == ()


def test_a_model_that_starts_from_it_keeps_its_own(slim, tmp_path):
    started = FactorVAE(gamma=7.0, image_shape=SHAPE)
    discriminator = started.discriminator[0].weight.clone()
    assert started.start_from(slim) is started
    assert started.reinitialized == ("discriminator",)
    assert torch.equal(started.discriminator[0].weight, discriminator)
    x = torch.rand(3, *SHAPE)
    assert torch.equal(started.reconstruct(x), FactorVAE.from_pretrained(slim).reconstruct(x))
    with pytest.warns(UserWarning, match="its discriminator is missing from the checkpoint"):
        fitted(started, tmp_path)


def test_what_was_never_trained_is_not_stored(slim, tmp_path):
    copy = FactorVAE.from_pretrained(slim).save_pretrained(tmp_path / "copy")
    assert (copy / "model.safetensors").read_bytes() == (slim / "model.safetensors").read_bytes()


def test_a_part_of_it_is_refused(model, tmp_path):
    folder = model.save_pretrained(tmp_path / "part")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: value for name, value in weights.items() if name != "discriminator.0.bias"}, folder / "model.safetensors"
    )
    with pytest.raises(ValueError, match=r"no discriminator\.0\.bias"):
        FactorVAE.from_pretrained(folder)


def test_with_labels_too(tmp_path):
    folder = S2FactorVAE(image_shape=SHAPE).save_pretrained(tmp_path, inference_only=True)
    assert S2FactorVAE.from_pretrained(folder).reinitialized == ("discriminator",)
