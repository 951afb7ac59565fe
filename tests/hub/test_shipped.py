"""The checkpoints that come with the package, and the way that they are made."""

import csv
import hashlib
import json

import pytest
import safetensors
import torch
import yaml

from unknot.datamodules import DSprites
from unknot.hub import load, refs, shipping, show
from unknot.hub.refs import SHIPPED
from unknot.metrics import evaluate
from unknot.zoo import AdaGVAE


@pytest.fixture
def shipped(monkeypatch):
    monkeypatch.setattr(refs, "SHIPPED", SHIPPED)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def cache(monkeypatch, tmp_path_factory):
    """One drawn data set for all tests here."""
    monkeypatch.setenv("UNKNOT_CACHE", str(tmp_path_factory.getbasetemp() / "drawn"))


def test_all_are_there(shipped):
    assert refs.shipped_names() == sorted(f"unknot/{name}" for name in shipping.COMMANDS)


@pytest.mark.parametrize("name", shipping.COMMANDS)
def test_its_card_tells_the_truth(name, shipped, cache):
    described = show(f"unknot/{name}")
    row, facts = described.checkpoint, described.metadata["unknot"]
    assert row.problem is None
    assert (row.dataset, row.seed, row.license) == ("dsprites", 0, "apache-2.0")
    assert facts["command"] == shipping.COMMANDS[name]
    weights = (SHIPPED / name / "model.safetensors").read_bytes()
    assert facts["weights"] == hashlib.sha256(weights).hexdigest()
    assert described.files.keys() >= {f"pictures/{kind}.png" for kind in ("traversals", "factor_code")}
    settings = yaml.safe_load((SHIPPED / name / "training.yaml").read_text())
    assert settings["ckpt_path"] is settings["trainer"]["default_root_dir"] is None
    with (SHIPPED / name / "training.csv").open(newline="") as file:
        steps = [int(line["step"]) for line in csv.DictReader(file)]
    assert steps == sorted(steps)
    assert steps[-1] >= 19_900
    # A few samples more or less move MIG by about a hundredth.
    measured = evaluate(load(f"unknot/{name}"), DSprites(), ["mig"], num_train=5_000, num_test=1)
    assert measured["mig"] == pytest.approx(row.scores["mig"], abs=0.03)


def test_from_pretrained(shipped):
    model = AdaGVAE.from_pretrained("unknot/adagvae-dsprites")
    assert model.hub_repo == "unknot/adagvae-dsprites"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    with pytest.raises(ValueError, match="this is a BetaVAE, not an AdaGVAE"):
        AdaGVAE.from_pretrained("unknot/betavae-dsprites")


def test_made_from_a_run(tmp_path, cache):
    name = "betavae-dsprites"
    short = ["--trainer.max_steps", "3", "--trainer.log_every_n_steps", "1", "--trainer.enable_progress_bar", "false"]
    run = shipping.train(name, tmp_path / "runs", [*short, "--trainer.limit_val_batches", "0"])
    scores = shipping.ship(name, [run], tmp_path / "out", num_train=200, num_test=100, repeats=1, metrics=["mig"])
    folder = tmp_path / "out" / name
    trained, made = load(run / "model"), load(folder)
    for before, after in zip(trained.parameters(), made.parameters(), strict=True):
        assert torch.equal(before.half().float(), after)
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        assert {file.get_slice(key).get_dtype() for key in file.keys()} == {"F16"}  # noqa: SIM118
    described = show(folder)
    assert described.checkpoint.scores == {"mig": pytest.approx(scores["mig"])}
    assert str(tmp_path) not in (folder / "training.yaml").read_text() + described.body
    assert {"pictures/traversals.png", "pictures/factor_code.png", "training.csv"} <= described.files.keys()
    assert json.loads((folder / "config.json").read_text())["dataset"] == "dsprites"


def test_the_record_of_a_resumed_run_is_joined(tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("step,train/loss\n1,3.00000001\n2,2\n3,9\n")
    second.write_text("step,train/loss,val/loss\n3,1,\n4,0.5,0.25\n")
    joined = shipping._history([first, second], tmp_path / "both.csv")
    assert joined.read_text() == "step,train/loss,val/loss\n1,3,\n2,2,\n3,1,\n4,0.5,0.25\n"
