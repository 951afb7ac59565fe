"""A score is described once, and a user's own takes part everywhere."""

import json
from collections.abc import Iterator

import pandas as pd
import pytest

from unknot.hub.browser.index import Index
from unknot.hub.listing import Checkpoint, list_checkpoints, select
from unknot.hub.model_index import model_index, scores_of
from unknot.metrics import METRICS, Scores, about, default_scores, list_scores, register
from unknot.studies.population import DOWNSTREAM, UNSUPERVISED_SCORES, Population, label
from unknot.studies.population import METRICS as STUDIED


@pytest.fixture
def fid() -> Iterator[None]:
    @register("fid", title="FID", better="lower", rank=0)
    def fid(draws: object) -> float:
        """Distance between features of real and of decoded images."""
        return 3.0

    yield
    METRICS.pop("fid", None)


def test_all_scores_have_a_title_a_group_and_a_docstring() -> None:
    for name, entry in METRICS.items():
        assert entry.description, name
        assert entry.group != "own", name
        assert entry.title != name, name
        assert entry.better in ("higher", "lower"), name


@pytest.mark.parametrize(
    ("name", "title", "better"),
    [
        ("mig@1000-perfect-0", "MIG @1000-perfect-0", "higher"),
        ("dci_informativeness_test", "DCI informativeness test", "higher"),
        ("total_correlation_wasserstein_normalized", "Total correlation Wasserstein normalized", "lower"),
        ("elbo", "ELBO", "higher"),
        ("elbo_kl", "ELBO KL", "lower"),
        ("unfairness_max", "Unfairness max", "lower"),
        ("aggregation_information_edge_2", "Aggregation information edge 2", None),
        ("ap_0.5", "AP 0.5", "higher"),
        ("val/loss", "Loss (validation)", "lower"),
        ("mig_std", "MIG std", None),
        ("mig/shape", "MIG, shape", "higher"),
        ("toString", "ToString", None),
    ],
)
def test_the_name_of_a_number_tells_its_title_and_direction(name: str, title: str, better: str | None) -> None:
    assert about(name)[:3] == (name, title, better)


def test_defaults_and_groups_are_of_registered_scores() -> None:
    assert [*default_scores(object()), "elbo"] == list_scores("default")
    assert {"mig", "beta_vae"} <= {*list_scores("disentanglement")}
    assert "reasoning" not in list_scores("all")
    with pytest.raises(ValueError, match="Unknown group"):
        list_scores("best")


def test_reports_ask_the_registry() -> None:
    for name in (*STUDIED, *UNSUPERVISED_SCORES, *DOWNSTREAM):
        assert label(name) == about(name).title
    assert label("BetaVAE") == "β-VAE"
    assert label("my column") == "my column"


def test_sorting_puts_the_best_first() -> None:
    for name, least in (("unfairness", True), ("mig", False)):
        rows = [row for row in list_checkpoints(sources=["bundled"], sort=name) if name in row.scores]
        values = [row.scores[name] for row in rows]
        assert values == sorted(values, reverse=not least)
        assert len({*values}) > 1
        again = [row for row in list_checkpoints(sources=["bundled"], sort=f"-{name}") if name in row.scores]
        assert [row.scores[name] for row in again] == values[::-1]


def test_a_score_of_ones_own_is_titled_and_sorted_everywhere(fid: None) -> None:
    rows = [Checkpoint(f"me/{value}", ("remote",), scores=Scores({"fid": value})) for value in (3.0, 1.0, 2.0)]
    stored = rows[0].scores.to_json()
    card = {"model-index": model_index("me/a", "x", rows[0].scores, {})}
    card["unknot"] = {"scores": rows[0].scores.described()}
    assert label("fid") == "FID"
    assert Population(pd.DataFrame({"dataset": "x", "method": "BetaVAE", "fid": [1.0]})).has("fid") == ["fid"]

    index = Index()
    index._rows = rows
    index._take([])
    facts = index.listed(lambda *_: None, served=False)["facts"]["fid"]
    assert (facts["title"], facts["better"], facts["rank"]) == ("FID", "lower", 0)

    METRICS.pop("fid")  # as in another process, which never heard of it
    for read in (Scores.from_json(stored), scores_of(json.loads(json.dumps(card)))):
        assert read.about("fid")[:3] == ("fid", "FID", "lower")
        assert read.about("fid_small").title == "FID small"
        again = [Checkpoint(row.ref, row.sources, scores=Scores(row.scores, facts=read.facts)) for row in rows]
        assert [row.scores["fid"] for row in select(again, sort="fid")] == [1.0, 2.0, 3.0]


def test_what_others_say_of_scores_changes_nothing_that_is_known() -> None:
    reply = {"mig": {"title": "worst", "better": "lower"}, "x": {"title": 3, "better": ["lower"]}, "y": 7}
    read = Scores.from_json(json.dumps({"mig": 0.1, "x": 1.0, "std": {}, "facts": reply}))
    assert read.about("mig")[:3] == ("mig", "MIG", "higher")
    assert read.about("x")[:3] == ("x", "X", None)
    assert "y" not in read.facts


def test_a_registration_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="better must be"):
        register("x", better="up")(print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group must be"):
        register("x", group="mine")(print)
    assert "x" not in METRICS
