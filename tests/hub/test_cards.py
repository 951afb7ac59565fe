"""Model cards: no fact is lost between a training, the card's metadata, its text and the next publication."""

import csv
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unknot.checkpoints import names
from unknot.checkpoints.card import read_card
from unknot.checkpoints.names import BUNDLED
from unknot.hub import load, model_card, push, show
from unknot.hub.model_card import Facts, body_of, card_text, eval_results, facts_from
from unknot.hub.publishing import content_of, known_about, prepare
from unknot.metrics import Scores
from unknot.zoo import BetaVAE

RECORDED = list(csv.DictReader(Path(__file__).with_name("card_facts.csv").open(newline="")))


@pytest.fixture
def bundled(monkeypatch):
    monkeypatch.setattr(names, "BUNDLED", BUNDLED)


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@pytest.mark.parametrize("recorded", RECORDED, ids=[row["checkpoint"] for row in RECORDED])
def test_the_cards_of_bundled_checkpoints_say_all_that_they_said_before(recorded):
    """Digests of what each card said when the protocol stood under every score.

    A checkpoint that is trained or scored again on purpose leaves ``card_facts.csv``.
    """
    folder = BUNDLED / recorded.pop("checkpoint")
    card = read_card((folder / "README.md").read_bytes())
    facts, block = facts_from(card), card.metadata["unknot"]
    [result] = card.metadata["model-index"][0]["results"]
    reply = {key: block[key] for key in ("arguments", "bytes", "command", "family", "model", "torch", "version")}
    reply |= {
        "scores": facts.scores.flat(),
        "protocol": facts.scores.protocol,
        "dataset": result["dataset"]["name"],
        "task": result["task"]["type"],
        "tags": sorted(card.metadata["tags"]),
        "license": facts.license,
        "seed": facts.seed,
        "weights": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "curve": hashlib.sha256((folder / "training.csv").read_bytes()).hexdigest(),
        "settings": hashlib.sha256((folder / "training.yaml").read_bytes()).hexdigest(),
    }
    optional = {"commit": facts.commit, "core_hours": facts.core_hours, "notes": list(facts.notes) or None}
    reply |= {key: value for key, value in optional.items() if value is not None}
    assert {key: digest(value) for key, value in reply.items()} == {key: was for key, was in recorded.items() if was}
    config = json.loads((folder / "config.json").read_text())
    assert block["weights"] == config["weights"] == reply["weights"]
    assert block["arguments"] == config["arguments"]
    # The text has all of it too, to the digits that it prints, and each thing once.
    rows = [f"| {facts.scores.about(name).title} | {value:.4f}" for name, value in facts.scores.items()]
    rows += [f"| `{name}` |" for name in block["arguments"]]
    protocol = ", ".join(f"{key} {value}" for key, value in facts.scores.protocol.items())
    parts = [*rows, *facts.notes, facts.command, f"Random seed {facts.seed}", f"Measured with {protocol}."]
    parts += [f"({path.relative_to(folder).as_posix()})" for path in folder.glob("pictures/*.png")]
    assert {part: card.body.count(part) for part in parts} == dict.fromkeys(parts, 1)


def test_the_cards_of_bundled_checkpoints_stay_short():
    assert sum(len(path.read_text().splitlines()) for path in BUNDLED.glob("*/README.md")) <= 7_000


def test_what_is_written_is_read_again(tmp_path):
    scores = Scores({"mig": 0.25, "own": 3.0}, {"mig": 0.01}, protocol={"dataset": "bars", "sizes": [1, 2]})
    scores.facts = {"own": {"title": "Own | score", "better": "lower"}}
    facts = Facts(scores, 3, "unknot fit `x`", "mit", "a" * 40, 1.25, ("One | note.", "Another."))
    model = BetaVAE(image_shape=(1, 32, 32))
    model.trained_on, model.annealed = "bars", {"beta": {"start": 8.0, "end": 4.0, "steps": 10, "geometric": True}}
    files = prepare(model, tmp_path, facts)
    card = read_card(card_text(model, "me/model", facts, files))
    assert facts_from(card) == replace(facts, scores=facts_from(card).scores)
    again = facts_from(card).scores
    assert (again, again.std, again.protocol) == (scores, scores.std, scores.protocol)
    assert again.about("own")[:3] == scores.about("own")[:3]
    assert "| Own \\| score | 3.0000 |" in card.body
    assert "`beta` went from 8.0 to 4.0 over the first 10 steps, by the same factor at each of them." in card.body
    assert card.metadata["model-index"][0]["results"][0]["dataset"]["args"] == scores.protocol
    assert "args" not in str(card.metadata["model-index"][0]["results"][0]["metrics"])
    assert "± 0.01; dataset bars, sizes [1, 2]" in eval_results("bars", scores)


def test_cards_of_earlier_versions_are_read():
    metric = {"type": "mig", "value": 0.25, "args": {"num_train": 100}}
    old = {"model-index": [{"name": "x", "results": [{"dataset": {"name": "x"}, "metrics": [metric]}]}]}
    assert model_card.scores_of(old).protocol == {"num_train": 100}


def test_a_template_that_asks_for_what_is_not_there_says_so(tmp_path, monkeypatch):
    (tmp_path / "card.jinja").write_text("{{ no_such_name }}")
    monkeypatch.setattr(model_card, "TEMPLATE", tmp_path / "card.jinja")
    files = prepare(model := BetaVAE(image_shape=(1, 32, 32)), tmp_path / "model", Facts())
    with pytest.raises(Exception, match="'no_such_name' is undefined"):
        body_of(model, "me/model", Facts(), files)


def test_text_of_others_is_not_a_template(tmp_path):
    facts = Facts(command="{{ 1 + 1 }}", notes=("{% for x in y %}",))
    files = prepare(model := BetaVAE(image_shape=(1, 32, 32)), tmp_path, facts)
    body = body_of(model, "me/model", facts, files)
    assert "{{ 1 + 1 }}" in body
    assert "{% for x in y %}" in body


def facts_and_files(described):
    block = {key: value for key, value in described.metadata["unknot"].items() if key not in ("body", "bytes")}
    kept = {name for name in described.files if name.startswith(("pictures/", "training."))}
    return block, described.checkpoint.scores, described.checkpoint.scores.protocol, described.metadata["license"], kept


def test_a_bundled_model_published_again_keeps_its_facts(here, name, bundled):
    before = show("unknot/betavae-dsprites32")
    model = load("unknot/betavae-dsprites32")
    said = []
    model.push_to_hub(name, say=said.append)
    after = show(name)
    assert facts_and_files(after) == facts_and_files(before)
    assert after.body == before.body.replace("unknot/betavae-dsprites32", name).replace(
        "# betavae-dsprites32", f"# {name.partition('/')[2]}"
    )
    assert ".eval_results/unknot.yaml" in after.files
    # And once more, from the hub to another repository: `load` fetches the model alone, the push fetches the rest.
    load(name).push_to_hub(f"{name}-2", say=said.append)
    assert facts_and_files(show(f"{name}-2")) == facts_and_files(before)
    # What is given here comes before what was known.
    load(name).push_to_hub(f"{name}-3", scores={"mig": 0.5}, seed=7, say=said.append)
    assert (show(f"{name}-3").checkpoint.scores, show(f"{name}-3").checkpoint.seed) == ({"mig": 0.5}, 7)


@pytest.mark.parametrize("change", ["weights", "arguments", "trained"])
def test_a_model_that_was_changed_keeps_nothing(here, name, bundled, change):
    model = load("unknot/betavae-dsprites32", **({"beta": 9.0} if change == "arguments" else {}))
    if change == "weights":
        with torch.no_grad():
            next(model.parameters()).add_(1.0)
    if change == "trained":
        model.fitted_on("dsprites_32")
    model.push_to_hub(name, say=lambda text: None)
    described = show(name)
    assert (described.checkpoint.scores, described.checkpoint.seed) == ({}, None)
    assert "training.csv" not in described.files


def test_an_edited_card_goes_along(here, name, tmp_path):
    folder = BetaVAE(image_shape=(1, 32, 32)).save_pretrained(tmp_path / "model")
    (folder / "README.md").write_text("---\nlanguage: en\ntags: [mine]\n---\n# My own words\n")
    load(folder).push_to_hub(name, say=lambda text: None)
    card = show(name)
    assert card.body == "# My own words\n"
    assert card.metadata["language"] == "en"
    assert {"mine", "unknot"} <= set(card.metadata["tags"])


def test_without_the_card_of_another_hub_it_is_published_and_said(here, name, make, monkeypatch):
    make(0).push_to_hub(name, scores={"mig": 0.25}, say=lambda text: None)
    model, said = load(name), []
    model.loaded_from = replace(model.loaded_from, repo="somebody/elsewhere")
    push(model, f"{name}-2", say=said.append)
    assert said[0].startswith("Publishing without the card of somebody/elsewhere, which could not be fetched: ")
    assert show(f"{name}-2").checkpoint.scores == {}


def test_a_folder_with_a_card_is_known(tmp_path):
    facts = Facts(Scores({"mig": 0.25}), seed=3)
    files = prepare(model := BetaVAE(image_shape=(1, 32, 32)), tmp_path, facts)
    (tmp_path / "README.md").write_text(card_text(model, "me/model", facts, files))
    known = known_about(tmp_path)
    assert (known["scores"], known["seed"]) == ({"mig": 0.25}, 3)
    assert content_of(tmp_path / "config.json").size > 0


def test_a_loaded_model_keeps_no_token(here, name, make):
    make(0).push_to_hub(name, say=lambda text: None)
    model = load(name, token=here.token)
    assert here.token not in repr(vars(model))
    assert (model.loaded_from.repo, model.loaded_from.commit) == (model.hub_repo, model.hub_revision)
