"""unknot.hub.load: the right class for any saved model."""

import json
from pathlib import Path

import pytest
import torch

from unknot.checkpoints import names as refs
from unknot.hub import load
from unknot.zoo import MODELS, VAE, BetaVAE, list_models
from unknot.zoo.pretrained import arguments_of

SHAPE = (1, 32, 32)


@pytest.fixture(params=list_models())
def model(request):
    cls = MODELS[request.param]
    return cls(image_shape=SHAPE, **({"latent_dim": 3} if "latent_dim" in arguments_of(cls) else {})).eval()


def represent(model, images):
    torch.manual_seed(0)  # slots start at random
    return model.represent(images)


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_picks_the_class(model, tmp_path, kind):
    model.trained_on = "dsprites"
    loaded, x = load(kind(model.save_pretrained(tmp_path))), torch.rand(2, *SHAPE)
    assert type(loaded) is type(model)
    assert dict(loaded.hparams) == dict(model.hparams)
    assert loaded.trained_on == "dsprites"
    assert not loaded.training
    assert torch.equal(represent(loaded, x), represent(model, x))
    assert loaded.device == torch.device("cpu")
    if isinstance(loaded, VAE):
        assert loaded.sample(2).shape == (2, *SHAPE)


@pytest.mark.parametrize("name", ["GammaVAE", "VAE", "betavae", "", "os.system"])
def test_unknown_models(model, tmp_path, name):
    path = model.save_pretrained(tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model": name}))
    with pytest.raises(ValueError, match=rf"unknown model '{name}'; this version knows \[.*'BetaVAE'") as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none: no such folder"):
        load(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"config.json: no such file"):
        load(tmp_path)


def test_a_bundled_name_that_is_misspelt(here, tmp_path, monkeypatch):
    BetaVAE(image_shape=SHAPE).save_pretrained(tmp_path / "bundled" / "betavae-dsprites")
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "bundled")
    with pytest.raises(FileNotFoundError, match=r"Did you mean 'unknot/betavae-dsprites', which came with the package"):
        load("unknot/betavae-dsprite")
    with pytest.raises(FileNotFoundError, match=r"no such folder.* Did you mean 'unknot/betavae-dsprites'"):
        load("betavae-dsprites")
    with pytest.raises(ConnectionError, match=r"not in the cache .* Did you mean 'unknot/betavae-dsprites'"):
        load("unknot/betavea-dsprites", local_files_only=True)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", b"not json", "not valid JSON"),
        ("config.json", b"[]", "expected an object"),
        ("model.safetensors", b"", "not a whole safetensors file"),
    ],
)
def test_broken_files_are_named(model, tmp_path, file, content, message):
    path = model.save_pretrained(tmp_path) / file
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{path}: ")


def test_the_folder_of_a_run_says_where_its_model_is(tmp_path: Path) -> None:
    BetaVAE().save_pretrained(tmp_path / "version_0" / "model")
    with pytest.raises(FileNotFoundError, match=r"the model of this run is in .*version_0/model"):
        load(tmp_path / "version_0")
