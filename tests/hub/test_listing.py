"""Filtering and sorting, and what a list must not need."""

import json
import os
import subprocess
import sys

import pytest

from unknot.checkpoints import names as refs
from unknot.checkpoints.card import facts_of, read_card, write_card
from unknot.cli import main
from unknot.hub import Checkpoint, list_checkpoints, show
from unknot.hub.listing import select
from unknot.hub.model_index import model_index, scores_of
from unknot.metrics.scores import Scores

ROWS = [
    Checkpoint(
        "a/one",
        ("bundled",),
        model="BetaVAE",
        dataset="dsprites",
        family="vae",
        scores=Scores({"mig": 0.1, "dci": 0.3}),
    ),
    Checkpoint("b/two", ("cached",), model="AdaGVAE", dataset="dsprites", family="weak", scores=Scores({"mig": 0.4})),
    Checkpoint(
        "c/three", ("remote",), model="AdaGVAE", dataset="shapes3d", scores=Scores({"dci": 0.9}), modified="2026-01-02"
    ),
    Checkpoint("d/four", ("remote",), modified="2026-01-03", problem="card unreadable: x"),
]


def names(**options):
    bounds = {key: options.pop(key) for key in list(options) if key.startswith(("min_", "max_"))}
    return [row.ref[0] for row in select(ROWS, bounds=bounds, **options)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "abcd"),
        ({"dataset": "dsprites"}, "ab"),
        ({"dataset": "DSprites"}, "ab"),
        ({"method": "ada-gvae"}, "bc"),
        ({"method": "AdaGVAE", "dataset": "shapes3d"}, "c"),
        ({"family": "weak"}, "b"),
        ({"search": "T"}, "bc"),
        ({"sort": "mig"}, "bacd"),
        ({"sort": "-mig"}, "abcd"),
        ({"sort": "dci"}, "cabd"),
        ({"sort": "modified"}, "dcab"),
        ({"sort": "ref"}, "abcd"),
        ({"sort": "-ref"}, "dcba"),
        ({"min_dci": 0.3}, "ac"),
        ({"min_dci": 0.31}, "c"),
        ({"max_mig": 0.1}, "a"),
        ({"min_mig": 0.1, "max_mig": 0.3}, "a"),
        ({"sort": "dci", "limit": 1}, "c"),
        ({"dataset": "cars3d", "sort": "mig"}, ""),
    ],
    ids=str,
)
def test_select(options, expected):
    assert names(**options) == list(expected)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"No checkpoint here has a score 'fid'; there are dci, mig."):
        names(sort="fid")
    with pytest.raises(TypeError, match="bounds are min_SCORE and max_SCORE"):
        list_checkpoints(minimum=3, sources=[])
    with pytest.raises(ValueError, match=r"Unknown sources \['web'\]"):
        list_checkpoints(sources=["web"])
    assert main(["hub", "list", "--min", "mig"]) == 1
    with pytest.raises(FileNotFoundError, match="no such folder"):
        show("/no/such/folder")


def test_a_folder_can_be_shown(model, tmp_path, capsys):
    model.save_pretrained(tmp_path / "mine")
    assert main(["hub", "show", str(tmp_path / "mine")]) == 0
    assert "BetaVAE" in capsys.readouterr().out


def test_scores_travel_through_yaml():
    scores = {"mig": 0.123456789, "dci": 1e-7, "sap": 1.0}
    index = model_index("me/x", "dsprites", scores, {"seed": 0, "sizes": [1, 2]})
    card = read_card(write_card({"model-index": index, "tags": ["method:betavae", 3, None]}, "# x\n"))
    assert card.problem is None
    assert scores_of(card.metadata) == scores
    assert facts_of(card.metadata) == {"model": "betavae"}
    assert card.body == "# x\n"


@pytest.mark.parametrize("body", ["", "x", "\n", "\r\nx\r\n", "---\n", "# a\n\n---\n\nb: c\n---\n", "\n\n\n# a"])
def test_bodies_survive(body):
    once = write_card({"a": 1}, body)
    card = read_card(once)
    assert card.body == body
    assert write_card(card.metadata, card.body) == once


LIST = """
import sys
from unknot.cli import main
assert main(["hub", "list", *sys.argv[1:]]) == 0
print([name for name in ("torch", "lightning", "pytorch_lightning", "unknot.zoo", "starlette", "huggingface_hub")
       if name in sys.modules])
"""


def test_offline_list_imports_nothing_heavy(tmp_path):
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", LIST, "--json"], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("action", ["", "list", "show", "pull", "push", "serve", "publish-bundled", "publish-shipped"])
def test_help(action, capsys):
    with pytest.raises(SystemExit) as end:
        main(["hub", *([action] if action else []), "--help"])
    assert end.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_a_broken_bundled_folder_is_listed_with_its_problem(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(refs, "BUNDLED", tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    assert main(["hub", "list", "--source", "bundled"]) == 0
    assert "config.json unreadable" in capsys.readouterr().out
    assert main(["hub", "list", "--source", "bundled", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["ref"] == "unknot/broken"


def test_other_libraries_in_the_cache_are_not_ours(home):
    folder = home / "hub" / "models--google--bert" / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(b"x")
    assert list_checkpoints(sources=["cached"]) == []
