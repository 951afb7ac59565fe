"""Push, list, show, pull and load, by the unmodified client against our own hub in a process of its own."""

import json
import os
import threading
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import CommitOperationAdd, HfApi, parse_eval_result_entries, snapshot_download

from unknot import hub
from unknot.checkpoints import names as refs
from unknot.checkpoints.card import read_card
from unknot.cli import main
from unknot.hub import AccessError, ConflictError, list_checkpoints, load, publish_bundled, publishing, pull, push, show
from unknot.hub.model_card import Facts
from unknot.hub.publishing import assemble
from unknot.metrics import Scores
from unknot.studies import bundled_tables
from unknot.zoo import AdaGVAE, BetaVAE, SlotAutoEncoder


def images(model):
    return torch.rand(4, *model.image_shape, generator=torch.Generator().manual_seed(1))


def same(one, other):
    return torch.equal(one(images(one)), other(images(one))) and torch.equal(
        one.reconstruct(images(one)), other.reconstruct(images(one))
    )


def card_of(hub, name):
    return read_card(Path(hub.api.hf_hub_download(name, "README.md")).read_bytes())


def commits(hub, name):
    return [commit.commit_id for commit in hub.api.list_repo_commits(name)]


# Round trips


def test_push_load_list_show_pull(here, model, name, tmp_path):
    said = []
    url = model.push_to_hub(
        name, scores={"mig": 0.25, "dci": 0.5, "dci/x": 1.0}, seed=7, command="fit", say=said.append
    )
    assert url.startswith(f"{here.url}/{name}/commit/")
    loaded = BetaVAE.from_pretrained(name)
    assert same(loaded, model)
    assert same(load(f"{name}@main"), model)
    assert loaded.hub_repo == name
    assert loaded.hub_revision == commits(here, name)[0]
    assert loaded.trained_on == "bars"

    row = next(row for row in list_checkpoints(sort="dci") if row.ref == name)
    assert (row.model, row.dataset, row.family, row.seed) == ("BetaVAE", "bars", "vae", 7)
    assert row.scores == {"mig": 0.25, "dci": 0.5}
    assert row.sources == ("cached", "remote")
    assert row.commit == loaded.hub_revision

    described = show(name)
    assert described.checkpoint.scores == row.scores
    fetched = {"README.md", "config.json", "model.safetensors", "pictures/traversals.png"}
    assert set(described.files) == {*fetched, ".eval_results/unknot.yaml", ".gitattributes"}

    folder = pull(name, tmp_path / "pulled")
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == fetched
    assert same(load(folder), model)
    # The announcement comes before the token is sent, and names the place.
    assert here.url in said[0]
    assert "private if it is new" in said[0]
    assert here.token not in "".join(said)


def test_a_push_is_one_commit_and_its_snippet_runs(here, model, name):
    model.push_to_hub(name, say=lambda text: None)
    assert len(commits(here, name)) == 2  # the first is the empty one
    snippet = card_of(here, name).body.partition("```python\n")[2].partition("```")[0]
    scope = {"images": images(model)}
    exec(snippet, scope)
    assert torch.equal(scope["codes"], model.represent(images(model)))


def test_a_push_builds_one_card_and_reads_the_weights_once(here, model, name, monkeypatch):
    built, read = [], []
    original, original_content = publishing.card_text, publishing.content_of
    monkeypatch.setattr(publishing, "card_text", lambda *a, **k: built.append(1) or original(*a, **k))
    monkeypatch.setattr(publishing, "content_of", lambda path: read.append(path.name) or original_content(path))
    model.push_to_hub(name, scores={"mig": 0.25}, say=lambda text: None)
    assert len(built) == 1
    assert read.count("model.safetensors") == 1


def test_branches_messages_and_overrides(here, make, name):
    make(0).push_to_hub(name, say=lambda text: None)
    make(1).push_to_hub(name, revision="dev", commit_message="Try another seed", say=lambda text: None)
    assert here.api.list_repo_commits(name, revision="dev")[0].title == "Try another seed"
    assert same(BetaVAE.from_pretrained(name, revision="dev"), make(1))
    assert same(load(name), make(0))
    assert (load(name, beta=9.0).beta, BetaVAE.from_pretrained(name, beta=9.0).beta) == (9.0, 9.0)
    with pytest.raises(ValueError, match=r"names a revision, and revision='main' is another one"):
        load(f"{name}@dev", revision="main")
    with pytest.raises(ValueError, match=r"BetaVAE has no arguments \['gama'\]"):
        load(name, gama=1.0)


def test_results_for_leaderboards(here, model, name):
    scores = Scores({"mig": 0.25}, {"mig": 0.01}, protocol={"num_train": 100})
    model.push_to_hub(name, scores, say=lambda text: None)
    path = here.api.hf_hub_download(name, ".eval_results/unknot.yaml")
    [entry] = parse_eval_result_entries(yaml.safe_load(Path(path).read_text()))
    assert (entry.dataset_id, entry.task_id, entry.value) == ("unknot/bars", "mig", 0.25)
    assert entry.notes == "± 0.01; num_train 100"


def test_the_card_tells_machines(here, name, make):
    make(beta=4.0).push_to_hub(
        name, {"mig": 0.25}, license="mit", protocol={"num_train": 100, "seed": 3}, say=lambda text: None
    )
    info = here.api.model_info(name)
    assert {"unknot", "method:betavae", "zoo-dataset:bars", "family:vae", "license:mit"} <= set(info.tags)
    assert info.library_name == "unknot"
    [result] = info.card_data.eval_results  # the client's own reading of model-index
    assert (result.metric_type, result.metric_value, result.dataset_type) == ("mig", 0.25, "bars")
    assert result.dataset_args == {"num_train": 100, "seed": 3}
    assert [found.id for found in here.api.list_models(filter=["method:betavae", "license:mit"], search=name)] == [name]


def test_a_plain_client_reads_what_we_push(here, model, name, tmp_path):
    model.push_to_hub(name, say=lambda text: None)
    folder = snapshot_download(name, endpoint=here.url, token=here.token, cache_dir=tmp_path / "other")
    assert same(BetaVAE.from_pretrained(folder), model)


def test_we_read_what_a_plain_client_pushes(here, model, name, tmp_path):
    folder = model.save_pretrained(tmp_path / "saved")
    here.api.create_repo(name)
    here.api.upload_folder(repo_id=name, folder_path=folder)
    assert same(load(name), model)


def test_revisions(here, make, name, monkeypatch):
    old, new = make(0), make(1)
    for model in (old, new):
        model.push_to_hub(name, say=lambda text: None)
        here.api.create_tag(name, tag=f"seed-{int(model is new)}")
    assert same(load(f"{name}@seed-0"), old)
    assert same(load(name), new)
    pinned = load(f"{name}@seed-0").hub_revision
    assert f"from {name}@{pinned}" in repr(load(f"{name}@{pinned[:7]}"))
    assert same(load(f"{name}@{pinned}"), old)
    monkeypatch.setenv("UNKNOT_PINNED_ONLY", "1")
    with pytest.raises(ValueError, match="UNKNOT_PINNED_ONLY is set, which requires a full commit hash"):
        load(name)
    assert same(load(f"{name}@{pinned}"), old)
    monkeypatch.delenv("UNKNOT_PINNED_ONLY")
    with pytest.raises(FileNotFoundError, match=rf"{name}@v9: the repository is there, this revision is not"):
        load(f"{name}@v9")


# A second push


def test_unchanged_push_makes_no_commit(here, model, name):
    said = []
    push(model, name, {"mig": 0.25}, say=said.append)
    before = commits(here, name)
    push(model, name, {"mig": 0.25}, say=said.append)
    push(model, name, say=said.append)  # scores of the same weights stay
    assert commits(here, name) == before
    assert said[-1].startswith("Nothing to do")


def test_an_edited_readme_keeps_its_text(here, make, name):
    make(0).push_to_hub(name, scores={"mig": 0.25}, say=lambda text: None)
    card = Path(here.api.hf_hub_download(name, "README.md")).read_text()
    edited = card.replace("# ", "# My own words\n\n<b>bold</b> ", 1).replace("tags: [", "language: en\ntags: [mine, ")
    here.api.create_commit(name, [CommitOperationAdd("README.md", edited.encode())], commit_message="Edit")
    make(1).push_to_hub(name, scores={"mig": 0.75}, say=lambda text: None)
    after = card_of(here, name)
    assert after.body == read_card(edited).body
    assert after.metadata["language"] == "en"
    assert {"mine", "unknot"} <= set(after.metadata["tags"])
    assert show(name).checkpoint.scores == {"mig": 0.75}


def test_an_unedited_readme_is_written_anew(here, make, name):
    for seed, score in ((0, 0.25), (1, 0.75)):
        make(seed).push_to_hub(name, scores={"mig": score}, say=lambda text: None)
    assert "| MIG | 0.7500 |" in card_of(here, name).body


def test_scores_of_other_weights_do_not_stay(here, make, name):
    make(0).push_to_hub(name, scores={"mig": 0.25}, seed=3, say=lambda text: None)
    make(1).push_to_hub(name, say=lambda text: None)
    assert show(name).checkpoint.scores == {}
    assert show(name).checkpoint.seed is None


def test_two_pushes_at_once_one_is_refused(here, make, name):
    make(0).push_to_hub(name, say=lambda text: None)
    before = commits(here, name)
    barrier, outcomes = threading.Barrier(2), {}

    def run(seed):
        def say(text):
            if text.startswith(f"{name} is "):  # both have looked, neither has sent
                barrier.wait(30)

        try:
            outcomes[seed] = push(make_model[seed], name, say=say)
        except ConflictError as error:
            outcomes[seed] = error

    make_model = {seed: make(seed) for seed in (1, 2)}
    threads = [threading.Thread(target=run, args=(seed,)) for seed in make_model]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [seed for seed, outcome in outcomes.items() if isinstance(outcome, str)]
    [error] = [outcome for outcome in outcomes.values() if not isinstance(outcome, str)]
    assert "somebody else changed it just now, and nothing was overwritten" in str(error)
    assert same(load(name), make_model[winner])
    assert commits(here, name)[-len(before) :] == before  # nothing was lost
    make_model[3 - winner].push_to_hub(name, say=lambda text: None)
    assert same(load(name), make_model[3 - winner])


def test_dry_run_sends_nothing(model, name, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said = []
    assert push(model, name, private=False, dry_run=True, say=said.append) == ""
    assert "http://127.0.0.1:9 (public if it is new)" in said[0]
    assert said[-1] == "Dry run: nothing was sent."


def test_new_repositories_are_private_unless_asked(here, model, name):
    model.push_to_hub(name, say=lambda text: None)
    assert here.api.model_info(name).private
    model.push_to_hub(f"{name}-2", private=False, say=lambda text: None)
    assert not here.api.model_info(f"{name}-2").private
    assert name not in [row.ref for row in list_checkpoints(token=False, sources=["remote"])]


def test_pushed_by_a_class_with_other_arguments(here, name):
    model = AdaGVAE(image_shape=(3, 32, 48), latent_dim=2, beta=3.0).eval()
    model.push_to_hub(name, say=lambda text: None)
    assert same(load(name), model)
    with pytest.raises(ValueError, match=r"/config.json: this is an AdaGVAE, not a BetaVAE. Load it with AdaGVAE"):
        BetaVAE.from_pretrained(name)


def test_models_that_are_no_vae(here, name):
    model = SlotAutoEncoder(image_shape=(3, 32, 32), num_slots=3, channels=8, strides=(2, 2, 1, 1)).eval()
    model.push_to_hub(name, {"ari": 0.5}, say=lambda text: None)
    loaded = load(name)
    for one in (loaded, model):
        torch.manual_seed(0)
        one.codes = one.represent(images(model))
    assert torch.equal(loaded.codes, model.codes)
    assert show(name).checkpoint.family == "object-discovery"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.3", None, True])
def test_scores_must_be_numbers(model, name, value):
    with pytest.raises(ValueError, match=r"The score 'mig' is .* finite numbers"):
        push(model, name, {"mig": value}, dry_run=True)


@pytest.mark.parametrize("repo", ["model", "a/b/c", "../x", "a/..", "a/b--c", "a/b.git", "a b/c", "a/" + "b" * 100])
def test_names_of_repositories(model, repo):
    with pytest.raises(ValueError, match="is not a repository's name"):
        push(model, repo, dry_run=True)


# Bundled checkpoints


@pytest.fixture
def bundled(tmp_path, model, monkeypatch):
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "pretrained")
    folder = tmp_path / "pretrained" / "betavae-bars"
    assemble(
        model,
        folder,
        "unknot/betavae-bars",
        Facts(
            Scores({"mig": 0.5}, protocol={"seed": 0}),
            1,
            "unknot fit --config x",
            "mit",
            "abc",
            0.25,
            ("Chosen by lot.",),
        ),
    )
    return folder


def test_bundled_comes_first_and_needs_no_network(bundled, model, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loaded = load("unknot/betavae-bars")
    assert same(loaded, model)
    assert (loaded.hub_repo, loaded.hub_revision) == ("unknot/betavae-bars", None)
    [row] = list_checkpoints(method="beta-vae", min_mig=0.4)
    assert (row.ref, row.sources, row.scores, row.seed) == ("unknot/betavae-bars", ("bundled",), {"mig": 0.5}, 1)
    assert show("unknot/betavae-bars").body.startswith("# betavae-bars")


@pytest.fixture
def tables(tmp_path, monkeypatch):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "tiny.csv").write_text("job,dataset,method,seed,status,mig\nab,bars,BetaVAE,0,done,0.5\n")
    reply = {"description": "a table", "planned": 2, "models": 1, "failed": 0, "core_hours": 0.5, "scores": {}}
    (folder / "tiny.json").write_text(json.dumps(reply))
    monkeypatch.setattr(bundled_tables, "FOLDER", folder)
    return folder


def test_the_former_name_of_bundled_checkpoints_warns(bundled, tables, capsys):
    with pytest.warns(FutureWarning, match='now "bundled"'):
        rows = list_checkpoints(sources=["shipped"])
    assert rows == list_checkpoints(sources=["bundled"]) != []
    with pytest.warns(FutureWarning, match="now publish_bundled"):
        assert hub.publish_shipped is hub.publish_bundled
    assert main(["hub", "publish-shipped", "my-lab", "--dry-run"]) == 0
    assert "Dry run: nothing was sent." in capsys.readouterr().out


def test_publish_bundled(bundled, tables, here, model):
    said = []
    url, results = publish_bundled("lab", say=said.append)
    assert url.startswith(f"{here.url}/lab/betavae-bars")
    assert same(load("lab/betavae-bars"), model)
    described = show("lab/betavae-bars")
    assert described.checkpoint.scores == {"mig": 0.5}
    assert (described.checkpoint.seed, described.checkpoint.license) == (1, "mit")
    assert 'from_pretrained("lab/betavae-bars"' in described.body
    facts = described.metadata["unknot"]
    assert (facts["commit"], facts["core_hours"], facts["notes"]) == ("abc", 0.25, ["Chosen by lot."])
    assert "Chosen by lot." in described.body
    assert "Random seed 1, 0.25 core-hours, code of commit `abc`." in described.body
    assert said[-1] == "2 published, 0 were there already or have nothing to publish."

    path = here.api.hf_hub_download("lab/results", "tiny.csv")
    assert Path(path).read_bytes() == (tables / "tiny.csv").read_bytes()
    assert results.startswith(f"{here.url}/lab/results/commit/")
    assert "lab/results" not in [row.ref for row in list_checkpoints(sources=["remote"])]  # it is no checkpoint


def test_publish_bundled_again_sends_what_is_missing(bundled, tables, here, model):
    publish_bundled("again", say=lambda text: None)
    before = [commits(here, repo) for repo in ("again/betavae-bars", "again/results")]
    said = []
    publish_bundled("again", say=said.append)
    assert sum("holds all of this already" in line for line in said) == 2
    assert said[-1] == "0 published, 2 were there already or have nothing to publish."
    assert [commits(here, repo) for repo in ("again/betavae-bars", "again/results")] == before
    (tables / "tiny.csv").write_text((tables / "tiny.csv").read_text() + "cd,bars,BetaVAE,1,done,0.6\n")
    publish_bundled("again", say=said.append)
    assert len(commits(here, "again/results")) == len(before[1]) + 1
    assert commits(here, "again/betavae-bars") == before[0]


def test_publish_bundled_in_the_precision_that_is_bundled(tmp_path, bundled, tables, here, model):
    folder = assemble(model, tmp_path / "pretrained" / "half", "unknot/half", Facts(), dtype=torch.float16)
    publish_bundled("lab", ["half"], say=lambda text: None)
    path = here.api.hf_hub_download("lab/half", "model.safetensors")
    assert Path(path).read_bytes() == (folder / "model.safetensors").read_bytes()


def test_publish_bundled_with_its_page(bundled, tables, here, capsys):
    assert main(["hub", "publish-bundled", "lab", "--space", "models", "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "3 of 3: the Space lab/models" in said
    assert any(f"as the Space lab/models to {here.url}" in line for line in said)
    assert said.count("Dry run: nothing was sent.") == 3


def test_publish_bundled_says_how_far_it_came(bundled, tables, here, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "wrong")
    said = []
    with pytest.raises(AccessError):
        publish_bundled("lost", say=said.append)
    assert said[-1] == "Stopped after 0 of 2. Run it again to resume: what is there is not sent again."
    with pytest.raises(ValueError, match="unknot/x: not bundled; there are unknot/betavae-bars"):
        publish_bundled("lost", ["x"])


# The commands


def test_commands(here, model, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "x" / "version_0"
    model.save_pretrained(run / "model")
    (run / "config.yaml").write_text("seed_everything: 5\nmodel: {}\ndata: {}\n")
    (run / "metrics.csv").write_text("step,train/loss\n1,2\n")
    scores = Scores({"mig": 0.25}, {"mig": 0.01}, {"mig": {"x": 0.1}}, {"dataset": "bars", "num_train": 77})
    scores.write("scores.json")
    words = ["hub", "push", str(run), name, "--scores", "scores.json"]
    assert main([*words, "--dry-run"]) == 0
    assert "training.yaml" in capsys.readouterr().out
    assert main([*words, "--public"]) == 0
    assert f"Published {name}@" in capsys.readouterr().out

    assert main(["hub", "list", "--search", name, "--min", "mig=0.2", "--sort", "mig", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["ref"], row["seed"], row["scores"]) == (name, 5, {"mig": 0.25, "mig_std": 0.01})
    assert main(["hub", "list", "--search", name]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["name", "model"]
    assert "0.250" in line

    assert main(["hub", "show", name]) == 0
    shown = capsys.readouterr().out
    for part in ("unknot fit --config training.yaml", "0.2500 ± 0.0100", "num_train 77"):
        assert part in shown
    assert main(["hub", "show", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"]["training.csv"] == 20

    assert main(["hub", "pull", name, "mine"]) == 0
    assert same(load(tmp_path / "mine"), model)
    assert main(["hub", "pull", name, "mine"]) == 1
    assert "mine exists and is not an empty folder" in capsys.readouterr().err
    assert main(["hub", "pull", name]) == 0
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert same(load(name), model)


def test_a_second_client_sees_the_endpoint_of_each_call(hub, model, name):
    """HF_ENDPOINT is read by the client once, by us at every call."""
    push(model, name, endpoint=hub.url, token=hub.token, private=False, say=lambda text: None)
    assert same(load(name, endpoint=hub.url, token=False), model)
    assert HfApi(endpoint=hub.url).repo_exists(name)


def test_scores_of_the_folder_are_published_unless_the_weights_are_newer(here, model, name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", here.url)
    monkeypatch.setenv("HF_TOKEN", here.token)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "scores.json").write_text('{"mig": 0.25}')
    assert main(["hub", "push", str(tmp_path), name]) == 0
    assert show(name, endpoint=here.url).checkpoint.scores == {"mig": 0.25}
    os.utime(tmp_path / "scores.json", (1, 1))
    assert main(["hub", "push", str(tmp_path), f"{name}-again"]) == 0
    assert show(f"{name}-again", endpoint=here.url).checkpoint.scores == {}
