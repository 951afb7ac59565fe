"""A user's own registered model gets all that its capabilities promise: sliders, pictures, scores and a card."""

import time

import pytest
import torch

from unknot.datamodules import available_dataset
from unknot.hub.browser.evaluations import Jobs
from unknot.hub.browser.index import Index
from unknot.hub.browser.players import Players
from unknot.hub.model_card import Facts, metadata_of, snippet
from unknot.hub.publishing import prepare
from unknot.zoo import MODELS, Model, register_model


class PlainAutoEncoder(Model):
    """No VAE: it has none of their methods but the two that its capabilities promise."""

    capabilities = frozenset({"codes", "decode"})

    def __init__(self, image_shape=(1, 64, 64), width: int = 4, lr: float = 1e-3) -> None:
        super().__init__(lr)
        self.image_shape = tuple(image_shape)
        self.down, self.up = torch.nn.Linear(64 * 64, width), torch.nn.Linear(width, 64 * 64)
        self.save_hyperparameters()

    def represent(self, images):
        return self.down(images.flatten(1))

    def decode(self, codes):
        return self.up(codes).sigmoid().unflatten(1, self.image_shape)


@pytest.fixture(autouse=True)
def registered():
    register_model(PlainAutoEncoder)
    yield
    del MODELS["PlainAutoEncoder"]


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    model = PlainAutoEncoder()
    model.trained_on = "dsprites"
    return model.save_pretrained(tmp_path / "mine")


def test_it_gets_sliders_and_pictures(folder):
    index = Index([folder.parent])
    index.learn()
    [entry] = [entry for entry in index.entries.values() if entry.home]
    record = index.record(entry, lambda *_: "")
    assert (record["family"], record["capabilities"]) == ("own", ["codes", "decode"])
    assert record["thumbnail"].endswith("drawn.png")
    player = Players().get(entry.key, entry.ref)
    started = player.start("data", 0)
    assert len(started["codes"]) == len(started["kl"]) == len(started["strips"]) == 4
    assert started["activity"] == "variance"
    assert started["input"]
    assert player.start("prior", 1)["input"] is None
    for picture in (player.decode([1.0, 0.0, 0.0, -1.0]), player.picture()):
        assert picture[:4] == b"\x89PNG"


def test_it_can_be_evaluated_from_the_page(folder, monkeypatch):
    kept, jobs, index = [], Jobs(), Index([folder.parent])
    [entry] = [entry for entry in index.entries.values() if entry.home]
    player = Players().get(entry.key, entry.ref)
    sizes = {"num_train": 200, "num_test": 100}
    from unknot.metrics import evaluate

    monkeypatch.setattr("unknot.metrics.evaluate", lambda *arguments: evaluate(*arguments, **sizes))
    jobs.start(entry.id, lambda: player.model, kept.append, ["mig", "sap"])
    until = time.monotonic() + 60
    while jobs.get(entry.id).state in ("waiting", "running") and time.monotonic() < until:
        time.sleep(0.02)
    assert jobs.get(entry.id).state == "done", jobs.get(entry.id)
    assert [list(scores) for scores in kept] == [["mig"], ["sap"]]


def test_it_gets_a_card_with_pictures(tmp_path):
    model = PlainAutoEncoder()
    files = prepare(model, tmp_path / "without", Facts(), None)
    assert "pictures/traversals.png" in files
    model.trained_on = "dsprites"
    files = prepare(model, tmp_path / "with", Facts())
    assert {"pictures/traversals.png", "pictures/reconstructions.png"} <= files.keys()
    assert {"family:own", "disentanglement"} <= set(metadata_of(model, "me/mine", Facts(), files)["tags"])
    assert snippet(model, "me/mine").endswith(
        "codes = model.represent(images)  # images: float [N, 1, 64, 64] in [0, 1]"
    )


def test_what_the_zoo_gives_it_works(folder):
    model = PlainAutoEncoder.from_pretrained(folder)
    images = torch.rand(3, 1, 64, 64)
    assert torch.equal(model.reconstruct(images), model.decode(model.represent(images)))
    moved = model.traverse(images, torch.tensor([0.0, 1.0]))
    assert moved.shape == (3, 4, 2, 1, 64, 64)
    codes = model.represent(images).clone()
    codes[:, 2] = 1.0
    assert torch.allclose(moved[:, 2, 1], model.decode(codes), atol=1e-6)
    assert torch.equal(model.activity(images), model.represent(images).var(0, unbiased=False))


def test_a_data_set_that_needs_a_download_is_not_available(monkeypatch, tmp_path):
    monkeypatch.setenv("UNKNOT_CACHE", str(tmp_path))
    assert available_dataset("dsprites", (1, 64, 64)) is not None
    assert available_dataset("dsprites", (3, 64, 64)) is available_dataset("no such data set") is None
    assert available_dataset("cars3d") is None
