"""The bundled checkpoints, and the way they are made."""

import csv
import hashlib
import json
import re
from dataclasses import replace

import pytest
import safetensors
import torch
import yaml

import bundle
from recipes import NotTrained, Recipe, read_recipes
from recipes import _schedules as trained_notes
from unknot.checkpoints import names as refs
from unknot.checkpoints.names import BUNDLED
from unknot.datamodules import DATASETS, Resized
from unknot.hub import load, show
from unknot.metrics import evaluate
from unknot.zoo import MODELS, VAE, AdaGVAE


@pytest.fixture
def bundled(monkeypatch):
    monkeypatch.setattr(refs, "BUNDLED", BUNDLED)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def cache(monkeypatch, tmp_path_factory):
    """One drawn data set for all tests here."""
    monkeypatch.setenv("UNKNOT_CACHE", str(tmp_path_factory.getbasetemp() / "drawn"))


NAMES = [name.partition("/")[2] for name in refs.bundled_names()]


NOT_TRAINED_YET = {"DINOSAUR", "Tripod"}


def test_every_class_of_the_zoo_is_there():
    classes = {json.loads((BUNDLED / name / "config.json").read_text())["model"] for name in NAMES}
    own = {name for name, cls in MODELS.items() if cls.__module__.startswith("unknot.zoo.")}
    assert own - classes <= NOT_TRAINED_YET


def test_all_are_in_the_list():
    assert set(NAMES) <= read_recipes().keys()


@pytest.mark.parametrize("name", NAMES)
def test_its_card_tells_the_truth(name, bundled, cache):
    described = show(f"unknot/{name}")
    row, facts, recipe = described.checkpoint, described.metadata["unknot"], read_recipes()[name]
    assert row.problem is None
    assert row.license == "apache-2.0"
    assert isinstance(row.seed, int)
    assert facts["command"] == (f"unknot fit {recipe.fit}" if recipe.fit else "unknot fit --config training.yaml")
    weights = (BUNDLED / name / "model.safetensors").read_bytes()
    assert facts["weights"] == hashlib.sha256(weights).hexdigest()
    assert any(file.startswith("pictures/") for file in described.files)
    settings = yaml.safe_load((BUNDLED / name / "training.yaml").read_text())
    assert settings["seed_everything"] == row.seed
    assert settings.get("ckpt_path") is settings["trainer"].get("default_root_dir") is None
    with (BUNDLED / name / "training.csv").open(newline="") as file:
        steps = [int(line["step"]) for line in csv.DictReader(file)]
    assert steps == sorted(steps)
    assert steps[-1] >= settings["trainer"]["max_steps"] * 0.99
    if recipe.study:
        assert facts["core_hours"] > 0
        assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", facts["commit"])
        assert f"of the study `{recipe.study}`" in described.body
        assert ("the highest mig of the" in described.body) == (recipe.best == "mig")
    model = load(f"unknot/{name}")
    for attribute, plan in model.annealed.items():
        how = f"over the first {plan['steps']} steps{', by the same factor' if plan.get('geometric') else '.'}"
        assert f"`{attribute}` went from {plan['start']} to {plan['end']} {how}" in described.body
    if not model.capabilities.isdisjoint({"sets", "slots"}):
        state = torch.get_rng_state()
        measured = bundle.scene_scores(model, row.scores.protocol["num_test"], row.scores.protocol["draws"])
        # Masks have more scores by now than a card may tell; all that it tells must come out again.
        assert row.scores.keys() >= ({"ap_inf"} if "sets" in model.capabilities else {"ari"})
        assert {score: measured[score] for score in row.scores} == pytest.approx(dict(row.scores), abs=6e-4)
        assert {score: measured.std[score] for score in row.scores.std} == pytest.approx(row.scores.std, abs=6e-4)
        assert torch.equal(torch.get_rng_state(), state)
        return
    if not isinstance(model, VAE):
        assert row.scores
        return
    # With the draws of the card its score comes out again, to the digits that it prints.
    protocol = row.scores.protocol
    draws = {key: protocol[key] for key in ("num_train", "num_test", "seed", "repeats")}
    few = {"repeats": 1} if draws["repeats"] > 1 else {}
    dataset = DATASETS[model.trained_on]()
    if isinstance(dataset, Resized):
        dataset = Resized(dataset.dataset, dataset.size, cached=False)  # few of its images are needed, not gigabytes
    measured = evaluate(model, dataset, ["mig"], **draws | few)
    assert measured["mig"] == pytest.approx(row.scores["mig"], abs=0.02 if few else 6e-4)


@pytest.mark.slow
def test_all_scores_of_one_card(bundled):
    row = show("unknot/betatcvae-dsprites").checkpoint
    draws = {key: row.scores.protocol[key] for key in ("num_train", "num_test", "seed", "repeats")}
    measured = evaluate(load("unknot/betatcvae-dsprites"), "dsprites", bundle.METRICS, **draws)
    for score, value in row.scores.items():
        assert measured[score] == pytest.approx(value, abs=3 * row.scores.std.get(score, 0) + 1e-3), score


def test_from_pretrained(bundled):
    model = AdaGVAE.from_pretrained("unknot/adagvae-dsprites")
    assert model.hub_repo == "unknot/adagvae-dsprites"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    with pytest.raises(ValueError, match="this is a BetaVAE, not an AdaGVAE"):
        AdaGVAE.from_pretrained("unknot/betavae-dsprites")


def test_made_from_a_run(tmp_path, cache, monkeypatch):
    recipe = Recipe("betavae", fit="--config beta_vae_dsprites")
    short = ["--trainer.max_steps", "3", "--trainer.log_every_n_steps", "1", "--trainer.enable_progress_bar", "false"]
    with pytest.raises(NotTrained, match=r"no run below .* train it with: unknot fit --config beta_vae_dsprites"):
        recipe.find(tmp_path)
    bundle.train(recipe, tmp_path, [*short, "--trainer.limit_val_batches", "0"])
    trained = recipe.find(tmp_path)
    few = {"num_train": 200, "num_test": 100}
    monkeypatch.setattr(bundle, "NOISE", 1.0)
    scores = bundle.ship(recipe.name, trained, tmp_path / "out", metrics=["mig"], **few)
    folder = tmp_path / "out" / recipe.name
    before, made = load(trained.model), load(folder)
    for one, other in zip(before.parameters(), made.parameters(), strict=True):
        assert torch.equal(one.half().float(), other)
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        assert {file.get_slice(key).get_dtype() for key in file.keys()} == {"F16"}  # noqa: SIM118
    described = show(folder)
    assert described.checkpoint.scores == {"mig": pytest.approx(scores["mig"])}
    assert described.checkpoint.scores.protocol["num_train"] == 200
    assert str(tmp_path) not in (folder / "training.yaml").read_text() + described.body
    assert {"pictures/traversals.png", "pictures/factor_code.png", "training.csv"} <= described.files.keys()
    assert json.loads((folder / "config.json").read_text())["dataset"] == "dsprites"
    assert "3 steps of 64." in described.body
    assert trained.core_seconds == json.loads((trained.settings.parent / "record.json").read_text())["core_seconds"]
    assert "core-hours" in described.body
    assert "Weights are in half precision" in described.body
    # What a card does not tell yet is added, by its own draws and of its own weights; nothing else changes.
    weights = (folder / "model.safetensors").read_bytes()
    assert bundle.add_scores(recipe.name, ["sap", "mig"], tmp_path / "out") == evaluate(made, "dsprites", "sap", **few)
    added = show(folder)
    assert list(added.checkpoint.scores) == ["sap", "mig"]
    assert added.checkpoint.scores["mig"] == described.checkpoint.scores["mig"]
    assert added.metadata["unknot"] == described.metadata["unknot"] | {"body": added.metadata["unknot"]["body"]}
    assert (folder / "model.safetensors").read_bytes() == weights
    card = (folder / "README.md").read_bytes()
    assert bundle.add_scores(recipe.name, ["sap", "mig"], tmp_path / "out") == {}
    assert (folder / "README.md").read_bytes() == card
    # Weights were rounded, so scores that the training brought along are computed again.
    brought = {"protocol": dict(scores.protocol), "scores": dict(scores) | {"sap": 0.5}}
    again = bundle.ship(recipe.name, replace(trained, scores=brought), tmp_path / "out", metrics=["mig"], **few)
    assert again == evaluate(made, "dsprites", ["mig", "sap"], **few)
    monkeypatch.setattr(bundle, "NOISE", -1.0)  # whatever moves, moves too much
    single = bundle.ship(recipe.name, trained, tmp_path / "out", metrics=["mig"], **few)
    # In single precision, the training's scores stay if they agree with these weights, and are computed again if not.
    brought["scores"] = dict(single) | {"sap": 0.5}
    kept = bundle.ship(recipe.name, replace(trained, scores=brought), tmp_path / "out", metrics=["mig"], **few)
    assert kept == {"mig": single["mig"], "sap": 0.5}
    brought["scores"]["mig"] += 1e-3
    measured = bundle.ship(recipe.name, replace(trained, scores=brought), tmp_path / "out", metrics=["mig"], **few)
    assert measured["mig"] == single["mig"]
    assert measured["sap"] != 0.5
    for one, other in zip(before.parameters(), load(folder).parameters(), strict=True):
        assert torch.equal(one, other)
    assert "Weights are in single precision" in show(folder).body


def test_the_record_of_a_resumed_run_is_joined(tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("step,train/loss\n1,3.00000001\n2,2\n3,9\n")
    second.write_text("step,train/loss,val/loss\n3,1,\n4,0.5,0.25\n")
    joined = bundle._history([first, second], tmp_path / "both.csv")
    assert joined.read_text() == "step,train/loss,val/loss\n1,3,\n2,2,\n3,1,\n4,0.5,0.25\n"


def test_a_card_tells_what_a_training_began_with():
    config = {"trainer": {"max_steps": 30}, "data": {"init_args": {"batch_size": 64}}, "model": {}}
    assert trained_notes(config) == ("30 steps of 64.",)
    began = trained_notes(config | {"pretrained": "unknot/slotsetpredictor-scenes"})
    assert began == ("30 steps of 64. They began with the weights of `unknot/slotsetpredictor-scenes`.",)
