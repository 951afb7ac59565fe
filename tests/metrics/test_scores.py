"""Scores: a dict with more to tell, whose files lose nothing and which any JSON parser reads."""

import copy
import json
import math
import pickle
import subprocess
import sys

import pytest

from unknot.metrics import Scores

FULL = Scores(
    {"mig": 0.3, "dci": 0.5, "total_correlation": math.inf, "elbo": -math.inf, "odd": math.nan},
    std={"mig": 0.01, "unfairness/shape|scale": 0.2},
    details={"unfairness": {"shape|scale": 0.1}},
    protocol={"dataset": "dsprites", "num_train": 10_000, "limit": math.inf, "seeds": [0, 1]},
)


def same(first: Scores, second: Scores) -> bool:
    return repr(dict(first)) == repr(dict(second)) and all(
        repr(getattr(first, part)) == repr(getattr(second, part)) for part in ("std", "details")
    )


def test_is_a_dict_of_the_scores_alone():
    assert list(FULL) == ["mig", "dci", "total_correlation", "elbo", "odd"]
    assert isinstance(FULL, dict)
    assert "mig_std" not in FULL
    assert FULL["mig"] == 0.3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("disentanglement", 0.5),
        ("dci_disentanglement", 0.5),
        ("mig_std", 0.01),
        ("unfairness/shape|scale", 0.1),
        ("unfairness/shape|scale_std", 0.2),
    ],
)
def test_older_names_are_understood(name, value):
    assert FULL[name] == FULL.get(name) == value


@pytest.mark.parametrize(
    "name", ["sap", "dci_std", "sap_std", "mig/shape", "mig/", "unfairness", "_std", "completeness"]
)
def test_what_is_not_there_is_named(name):
    with pytest.raises(KeyError, match="there are mig, dci"):
        FULL[name]
    assert FULL.get(name, 7) == 7


def test_files_lose_nothing(tmp_path):
    path = FULL.write(tmp_path / "new" / "scores.json")
    read = Scores.read(path)
    assert same(read, FULL)
    assert read.protocol == FULL.protocol | {"limit": "Infinity"}
    assert [one.name for one in path.parent.iterdir()] == ["scores.json"]


def test_json_has_no_constants_that_json_does_not_know():
    def refuse(name):
        raise AssertionError(name)

    json.loads(FULL.to_json(), parse_constant=refuse)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda scores: pickle.loads(pickle.dumps(scores))])
def test_copies_keep_everything(how):
    assert same(how(FULL), FULL)
    assert how(FULL).protocol == FULL.protocol


def test_flat_files_of_earlier_versions():
    old = {"disentanglement": 0.4, "mig": 0.3, "mig_std": 0.1, "mig/shape": 0.2, "mig/shape_std": 0.05, "own_std": 1}
    read = Scores.from_json(json.dumps(old))
    assert read == {"dci": 0.4, "mig": 0.3, "own_std": 1.0}
    assert read.std == {"mig": 0.1, "mig/shape": 0.05}
    assert read.details == {"mig": {"shape": 0.2}}
    assert read.flat() == {"dci": 0.4} | {name: value for name, value in old.items() if name != "disentanglement"}
    assert Scores.from_json('{"total_correlation": Infinity}')["total_correlation"] == math.inf


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{",
        "[" * 100_000,
        '{"mig": "0.3"}',
        '{"mig": true}',
        '{"mig": null}',
        '{"mig": [1]}',
        '{"mig": 1' + "0" * 400 + "}",
        '{"mig": {}, "protocol": {}}',
        '{"mig": 1, "std": []}',
        '{"mig": 1, "std": [], "protocol": {}}',
        '{"mig": 1, "details": {"mig": 3}}',
        '{"mig": 1, "protocol": {}, "details": 3}',
        '{"' + "m" * 300 + '": 1}',
        b"\xff\xfe\x00",
    ],
)
def test_other_files_are_refused_with_their_name(text, tmp_path):
    path = tmp_path / "scores.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r"scores\.json: expected scores, as `unknot evaluate --json` writes them"):
        Scores.read(path)


def test_draws_are_summarised():
    scores = Scores.of_draws([{"a": 1.0, "b": math.inf, "a/x": 2.0}, {"a": 3.0, "b": 1.0, "a/x": 2.0}])
    assert scores == {"a": 2.0, "b": math.inf}
    assert scores.std == {"a": pytest.approx(math.sqrt(2)), "a/x": 0.0}
    assert Scores.of_draws([{"a": 1.0}]).std == {}


def test_prints_a_table():
    assert str(FULL).splitlines()[:2] == ["MIG                0.3000 ± 0.0100", "DCI                0.5000"]
    assert str(Scores()) == ""


def test_reading_scores_needs_no_torch():
    code = "import sys; from unknot.metrics import Scores; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
