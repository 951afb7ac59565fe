"""The page's server and its export: what they find, what they compute, whom they refuse. No browser here."""

import base64
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import types
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unknot.checkpoints import names as refs
from unknot.checkpoints.card import write_card
from unknot.cli import main
from unknot.hub import push, show
from unknot.hub.browser import in_browser
from unknot.hub.browser import players as live
from unknot.hub.browser.app import Keys, browse_app
from unknot.hub.browser.export import export
from unknot.hub.browser.index import Index, find_models
from unknot.hub.browser.players import LatentPlayer, MatrixPlayer, Players, ScenePlayer, player_of, read_image
from unknot.hub.browser.thumbnails import read_picture
from unknot.hub.model_index import model_index
from unknot.hub.web import serving
from unknot.hub.web.pages import PAGE, bundle, joined, modules, policy
from unknot.metrics import Scores, list_scores
from unknot.training import curves as training
from unknot.zoo import (
    MODELS,
    AdaGVAE,
    BetaVAE,
    DSPNSetPredictor,
    SlotAutoEncoder,
    SlotMLPSetPredictor,
    SlotSetPredictor,
    WReN,
)

TOKEN = "secret"
HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> [x](javascript:alert(1)) ![y](https://example.com/a.png)"
)


def picture(colour: str = "red", size: tuple[int, int] = (40, 30), kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, kind)
    return buffer.getvalue()


def save(folder: Path, model, scores=None, body: str = "# A model\n", **metadata) -> Path:
    """A saved model with a card and a picture."""
    model.save_pretrained(folder)
    index = {"model-index": model_index("x", "bars", scores, {})} if scores else {}
    (folder / "README.md").write_text(write_card(index | metadata, body))
    (folder / "pictures").mkdir()
    (folder / "pictures" / "traversals.png").write_bytes(picture())
    return folder


def make_run(folder: Path, model) -> Path:
    """Make the folder that `unknot fit` leaves."""
    model.save_pretrained(folder / "model")
    (folder / "config.yaml").write_text("seed_everything: 7\nmodel: {}\ndata: {}\n")
    (folder / "metrics.csv").write_text("epoch,step,train/loss,val/loss\n0,49,10.5,\n0,99,9.5,9.75\n0,149,nan,\n")
    (folder / "scores.json").write_text('{"mig": 0.25, "mig/shape": 0.5, "dci": NaN}')
    (folder / "pictures").mkdir()
    for step, colour in (("00000010", "red"), ("00000020", "blue")):
        (folder / "pictures" / f"traversals-{step}.png").write_bytes(picture(colour))
    return folder


@pytest.fixture
def folder(tmp_path, make):
    save(tmp_path / "found" / "saved", make(), {"mig": 0.5, "dci": 0.25}, HOSTILE, license="mit")
    make_run(tmp_path / "found" / "run" / "version_0", make(seed=1, beta=8.0))
    (tmp_path / "found" / "nothing").mkdir()
    return tmp_path / "found"


class Server:
    """The app behind a real socket, and a client without manners of its own."""

    def __init__(self, index: Index) -> None:
        self.index, self.keys = index, Keys()
        listening = serving.listen("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.server = serving.make_server(browse_app(index, TOKEN, keys=self.keys), log_level="critical")
        self.thread = threading.Thread(target=self.server.run, args=([listening],), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    def send(self, path: str, body=None, method: str | None = None, **headers: str):
        """Status, headers and content of an answer."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        known = {"cookie": f"unknot-{self.port}={TOKEN}"} if body is None and method is None else {}
        named = known | {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        asked = urllib.request.Request(self.url + path, data, named, method=method)
        try:
            with urllib.request.urlopen(asked) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def get(self, path: str):
        status, _, content = self.send(path)
        assert status == 200, content
        return json.loads(content)

    def post(self, path: str, body=None):
        return self.send(path, {} if body is None else body, x_unknot_token=TOKEN)

    def id_of(self, name: str) -> str:
        return next(entry.id for entry in self.index.entries.values() if name in entry.row.ref)


@pytest.fixture
def served(folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    server = Server(Index([folder]))
    yield server
    server.stop()


def reply(content: bytes) -> str:
    return json.loads(content)["error"]


# What is found


def test_a_table_of_results_is_a_source(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = tmp_path / "study.csv"
    path.write_text(
        "dataset,method,config,seed,model.beta,strength,status,mig,mig_std,dci,note\n"
        "dsprites,BetaVAE,beta_vae,0,4.0,4,done,0.25,0.01,0.5,<b>\n"
        "dsprites,BetaVAE,beta_vae,1,4.0,4,done,nan,,1e400,\n"
    )
    rows = [entry.row for entry in Index([path]).entries.values()]
    assert [row.ref for row in rows] == ["study #1", "study #2"]
    assert (rows[0].model, rows[0].dataset, rows[0].seed) == ("BetaVAE", "dsprites", 0)
    assert (rows[0].scores, rows[0].scores.std) == ({"mig": 0.25, "dci": 0.5}, {"mig": 0.01})
    reply = {"config": "beta_vae", "beta": 4.0, "strength": 4, "status": "done", "note": "<b>"}
    assert rows[0].arguments == reply
    assert rows[1].scores == {}
    pandas = pytest.importorskip("pandas", reason="writes Parquet")
    pytest.importorskip("pyarrow", reason="reads Parquet")
    pandas.read_csv(path).to_parquet(tmp_path / "study.parquet")
    again = [entry.row for entry in Index([tmp_path / "study.parquet"]).entries.values()]
    assert again[0].scores == rows[0].scores
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a Parquet file that can be read"):
        Index([tmp_path / "broken.parquet"])


def test_bundled_tables_are_shown_once_there_are_any(tmp_path, monkeypatch):
    from unknot.studies import bundled_tables

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "none")
    monkeypatch.setattr(bundled_tables, "FOLDER", tmp_path)
    index = Index()
    index.learn()
    assert index.entries == {}
    (tmp_path / "bars32.csv").write_text(
        "job,dataset,method,seed,model.beta,status,mig@quick,val/loss,core_seconds,commit\n"
        "a1,bars,BetaVAE,0,4.0,done,0.25,9.5,31.5,1234567\n"
        "a2,bars,BetaVAE,1,4.0,done,0.5,8.5,30.5,1234567\n"
    )
    for index in (Index(), Index(["bars32"])):
        index.learn()
        index.refresh()
        rows = [entry.row for entry in index.entries.values()]
        assert [row.ref for row in rows] == ["bars32 #1", "bars32 #2"]
        assert rows[1].scores == {"mig@quick": 0.5, "val_loss": 8.5}
        assert rows[1].arguments["core_seconds"] == 30.5
    reply = index.listed(lambda *_: None)
    assert reply["facts"]["mig@quick"]["title"] == "MIG @quick"
    assert [name for name, facts in reply["facts"].items() if facts["better"] == "lower"] == ["val_loss"]


def test_a_run_that_trains_is_watched(folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run = folder / "now" / "version_0"
    run.mkdir(parents=True)
    settings = "seed_everything: 3\nmodel:\n  init_args:\n    beta: 1\n  class_path: unknot.zoo.AdaGVAE\n"
    (run / "config.yaml").write_text(settings)  # in the order that a file and its base leave
    (run / "metrics.csv").write_text("step,train/loss\n1,2.0\n")
    index = Index([folder])
    entry = next(entry for entry in index.entries.values() if "now" in entry.row.ref)
    assert (entry.row.model, entry.row.seed, entry.is_training, entry.folder) == ("AdaGVAE", 3, True, None)
    assert index.training(entry) == {"train/loss": [[1, 2.0]]}
    (run / "metrics.csv").write_text("step,train/loss\n1,2.0\n2,1.0\n")
    assert index.training(entry) == {"train/loss": [[1, 2.0], [2, 1.0]]}
    os.utime(run / "metrics.csv", (1, 1))
    assert not entry.is_training


def test_a_huge_record_is_read_within_bounds(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    monkeypatch.setattr(training, "PARSED", 1 << 12)
    lines = (f"{step},{step / 2},{'x' * 50}" for step in range(5000))
    path.write_text("\n".join(["step,train/loss,text", *lines, "9" * 100_000]))
    parsed = []
    monkeypatch.setattr(training, "_number", lambda text, original=training._number: parsed.append(1) or original(text))
    found = training.curves(path)
    assert len(parsed) < 1000
    assert found["train/loss"][1][1] == found["train/loss"][1][0] / 2
    assert "text" not in found


def test_tags_names_and_putting_aside(served, folder):
    entry = served.id_of("saved")
    status, _, content = served.post(f"api/checkpoints/{entry}/tag", {"tags": ["good", "for the talk"]})
    assert (status, json.loads(content)["tags"]) == (200, ["for the talk", "good"])
    assert served.post(f"api/checkpoints/{entry}/tag", {"tags": ["<b>"]})[0] == 422
    for name in ("../x", "a/b", "", ".hidden", "run"):
        assert served.post(f"api/checkpoints/{entry}/rename", {"name": name})[0] == 422, name
    renamed = json.loads(served.post(f"api/checkpoints/{entry}/rename", {"name": "better"})[2])
    assert (folder / "better" / "model.safetensors").is_file()
    assert renamed["tags"] == ["for the talk", "good"]
    status, _, content = served.post(f"api/checkpoints/{renamed['id']}/remove")
    moved = Path(json.loads(content)["moved"])
    assert (status, (moved / "model.safetensors").is_file()) == (200, True)
    assert not (folder / "better").exists()
    assert {Path(found.row.ref).name for found in find_models(folder)} == {"version_0"}
    assert served.post(f"api/checkpoints/{renamed['id']}/remove")[0] == 404


def test_what_is_not_in_our_folders_cannot_be_changed(tmp_path, model, monkeypatch):
    save(tmp_path / "bundled" / "mine", model)
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "bundled")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    server = Server(Index())
    try:
        for action, body in (("tag", {"tags": []}), ("rename", {"name": "x"}), ("remove", {})):
            status, _, content = server.post(f"api/checkpoints/{server.id_of('mine')}/{action}", body)
            assert (status, "Only checkpoints in folders" in reply(content)) == (422, True)
    finally:
        server.stop()


@pytest.mark.parametrize("opened", ["found/run/version_0/model", "found/run/version_0", "found/saved"])
def test_the_folder_that_was_opened_stays_where_it_is(folder, opened, monkeypatch):
    """A run's folder may lie around the one that was opened, which names what may be changed."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    server = Server(Index([folder.parent / opened]))
    try:
        [entry] = [entry.id for entry in server.index.entries.values()]
        before = sorted(folder.rglob("*"))
        for action, body in (("rename", {"name": "x"}), ("remove", {})):
            status, _, content = server.post(f"api/checkpoints/{entry}/{action}", body)
            assert (status, "the folder that the page was opened with" in reply(content)) == (422, True), action
        assert sorted(folder.rglob("*")) == before
    finally:
        server.stop()


def test_scores_are_measured_while_one_looks_on(folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = AdaGVAE(latent_dim=2)
    model.trained_on = "dsprites"
    model.save_pretrained(folder / "unscored")
    seen = []
    small = lambda model, dataset, metrics: seen.append(metrics) or Scores({metrics[0]: 0.5}, protocol={"seed": 0})  # noqa: E731
    monkeypatch.setattr("unknot.metrics.evaluate", small)
    server = Server(Index([folder]))
    try:
        key = server.id_of("unscored")
        assert server.post(f"api/checkpoints/{key}/evaluate")[0] == 200
        for _ in range(600):
            now = server.get(f"api/checkpoints/{key}/progress")
            if now["job"]["state"] in ("done", "failed"):
                break
            time.sleep(0.05)
        assert (now["job"]["state"], now["job"]["done"]) == ("done", len(list_scores("default"))), now
        assert now["scores"] == dict.fromkeys(list_scores("default"), 0.5)
        assert Scores.read(folder / "unscored" / "scores.json") == now["scores"]
        bars = server.id_of("saved")
        server.post(f"api/checkpoints/{bars}/evaluate")
        for _ in range(600):
            now = server.get(f"api/checkpoints/{bars}/progress")["job"]
            if now["state"] == "failed":
                break
            time.sleep(0.05)
        assert "data set of this model (bars) is not available locally" in now["error"]
    finally:
        server.stop()


STOPPED = """
import threading
import types
import unknot.datamodules
import unknot.metrics
from unknot.hub.browser.evaluations import Jobs

begun = threading.Event()

def evaluate(model, dataset, metrics):
    begun.set()
    threading.main_thread().join()
    print(*metrics)
    return {}

unknot.metrics.evaluate, unknot.datamodules.available_dataset = evaluate, lambda *_: "any"
jobs = Jobs()
for key in "abc":
    jobs.start(key, lambda: types.SimpleNamespace(trained_on="any", image_shape=(1, 1, 1)), lambda scores: None)
begun.wait()
"""


def test_whoever_stops_the_page_waits_for_one_score_at_most():
    done = subprocess.run([sys.executable, "-c", STOPPED], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == ["mig"]


def test_cards_without_pictures_get_one(served):
    entry = served.index.get(served.id_of("saved"))
    (entry.folder / "pictures" / "traversals.png").unlink()
    served.index.learn()
    [row] = [row for row in served.get("api/checkpoints")["checkpoints"] if row["id"] == entry.id]
    status, headers, content = served.send(row["thumbnail"])
    assert (status, headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(content)).size == (7 * 32, 3 * 32)


def test_scripts_fit_into_one(served):
    """A page in one file holds all modules; for that no two of them may use the same name."""
    names = [
        name
        for module in modules()
        for name in re.findall(
            r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", (PAGE / module).read_text(), re.M
        )
    ]
    assert sorted(names) == sorted(set(names))
    assert not re.search(r"^(import|export) ", joined(), re.M)
    for module in modules():
        assert served.send(f"page/{module}")[1]["content-type"].startswith("text/javascript")


def test_folders_are_searched(folder):
    found = {Path(entry.row.ref).name: entry for entry in find_models(folder)}
    assert found.keys() == {"saved", "version_0"}
    saved, run = found["saved"], found["version_0"]
    assert saved.row.scores == {"mig": 0.5, "dci": 0.25}
    assert (saved.row.license, saved.row.model, saved.row.dataset) == ("mit", "BetaVAE", "bars")
    assert run.row.scores == {"mig": 0.25}  # no details, nothing that is not a number
    assert run.row.seed == 7
    assert run.pictures() == {"pictures/traversals.png": run.run.path / "pictures" / "traversals-00000020.png"}


def test_a_folder_that_cannot_be_read_hides_no_other(folder, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("unknot.hub.browser.index.describe_folder", refuse)
    assert ["Permission denied" in entry.row.problem for entry in find_models(folder)] == [True, True]


def test_a_folder_that_is_not_there_is_named(capsys):
    assert main(["browse", "no/such/folder", "--no-open"]) == 1
    assert "no/such/folder: no such folder" in capsys.readouterr().err


def test_list(served):
    listed = served.get("api/checkpoints")
    assert {name: facts["title"] for name, facts in listed["facts"].items()} == {"mig": "MIG", "dci": "DCI"}
    assert listed["remote"] == "asking"
    by_name = {Path(row["ref"]).name: row for row in listed["checkpoints"]}
    status, headers, content = served.send(by_name["saved"]["thumbnail"])
    assert (status, headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(content)).format == "PNG"
    assert by_name["version_0"]["capabilities"] == ["codes", "decode", "elbo"]
    served.index.refresh()
    served.index.learn()
    served.index.learn_models()
    listed = served.get("api/checkpoints")
    assert (listed["remote"], listed["ready"]) == ("offline", True)
    assert {(row["family"], *row["capabilities"]) for row in listed["checkpoints"]} == {
        ("vae", "codes", "decode", "elbo")
    }


def test_detail(served):
    reply = served.get(f"api/checkpoints/{served.id_of('version_0')}")
    curves = served.get(f"api/checkpoints/{reply['id']}/curves")["curves"]
    assert curves == {"train/loss": [[49, 10.5], [99, 9.5]], "val/loss": [[99, 9.75]]}
    assert reply["arguments"]["beta"] == 8.0
    assert reply["files"].keys() == {"config.json", "model.safetensors"}
    assert repr(str(served.index.folders[0] / "run" / "version_0" / "model")) in reply["load"]
    assert served.get(f"api/checkpoints/{served.id_of('saved')}")["card"] == HOSTILE


def test_a_model_is_published_from_the_page(folder, here, name):
    server = Server(Index([folder], here.url))
    try:
        status, _, content = server.post(f"api/checkpoints/{server.id_of('version_0')}/push", {"repo": name})
        assert status == 200, content
        assert here.url in json.loads(content)["address"]
        described = show(name, endpoint=here.url)
        assert (described.checkpoint.model, described.checkpoint.seed) == ("BetaVAE", 7)
        assert {"training.yaml", "training.csv"} <= described.files.keys()
        assert server.post(f"api/checkpoints/{server.id_of('version_0')}/push", {"repo": "no name"})[0] == 422
    finally:
        server.stop()


def test_a_long_training_is_thinned(served):
    lines = [f"{step},{step / 2}" for step in range(5000)]
    path = served.index.get(served.id_of("version_0")).run.path / "metrics.csv"
    path.write_text("\n".join(["step,train/loss", *lines]))
    columns = served.get(f"api/checkpoints/{served.id_of('version_0')}/curves")["curves"]
    assert columns["train/loss"][:2] == [[0, 0], [10, 5]]
    assert len(columns["train/loss"]) == 500


@pytest.mark.parametrize("content", ["", "step", "\0,\0\n1", 'step,"x\n1,2', "x" * 1000, "step,a\n" + "9" * 400 + ",1"])
def test_a_broken_training_is_no_error(served, content):
    (served.index.get(served.id_of("version_0")).run.path / "metrics.csv").write_text(content)
    assert isinstance(served.get(f"api/checkpoints/{served.id_of('version_0')}/curves")["curves"], dict)


def test_bundled_cached_and_remote(here, model, tmp_path, monkeypatch, name):
    """The hub's list comes later; a remote model is downloaded by a button and then moves."""
    save(tmp_path / "bundled" / "mine", model)
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "bundled")
    push(model, name, {"mig": 0.3}, private=False, say=lambda text: None)
    server = Server(Index(endpoint=here.url))
    try:
        assert [row["ref"] for row in server.get("api/checkpoints")["checkpoints"]] == ["unknot/mine"]
        listed = json.loads(server.post("api/refresh")[2])
        assert listed["remote"] == "listed"
        row = next(row for row in listed["checkpoints"] if row["ref"] == name)
        assert (row["local"], row["scores"], row["sources"]) == (False, {"mig": 0.3}, ["remote"])
        path = f"api/checkpoints/{row['id']}"
        described = server.get(path)
        assert "trained on bars" in described["card"]
        assert f"load('{name}@{row['commit']}')" in described["load"]
        for address in (row["thumbnail"], described["pictures"][0]["url"]):  # fetched from the hub
            assert server.send(address)[1]["content-type"] == "image/png"
        status, _, content = server.post(f"{path}/decode", {"codes": [0, 0, 0]})
        assert (status, "Download it first" in reply(content)) == (409, True)
        downloaded = json.loads(server.post(f"{path}/download")[2])
        assert downloaded["local"] is True
        assert downloaded["pictures"][0]["name"] == "pictures/traversals.png"
        assert server.post(f"{path}/decode", {"codes": [0, 0, 0]})[0] == 200

        # without an answer the last list stays, and says so
        push(model, f"{name}-2", private=False, say=lambda text: None)
        assert json.loads(server.post("api/refresh")[2])["remote"] == "listed"
        monkeypatch.setattr(server.index, "endpoint", "http://127.0.0.1:9")
        listed = json.loads(server.post("api/refresh")[2])
        assert listed["remote"] == "stale"
        sources = {row["ref"]: row["sources"] for row in listed["checkpoints"]}
        assert (sources[name], sources[f"{name}-2"]) == (["cached"], ["remote"])
    finally:
        server.stop()


def test_a_hub_that_does_not_answer_is_offline(folder):
    index = Index([folder], "http://127.0.0.1:9")
    index.refresh()
    assert (index.remote, len(index.entries)) == ("offline", 2)
    assert "cannot reach http://127.0.0.1:9" in index.note


# Models at work


def test_decode_is_what_the_model_decodes(served, make):
    codes = [0.5, -1.0, 2.0]
    status, headers, content = served.post(f"api/checkpoints/{served.id_of('saved')}/decode", {"codes": codes})
    assert (status, headers["content-type"]) == (200, "image/png")
    expected = make().decode(torch.tensor([codes]))[0, 0] * 255
    assert np.abs(np.array(Image.open(io.BytesIO(content)), dtype=float) - expected.detach().numpy()).max() <= 0.51


def test_start_and_strips(served, make):
    path = f"api/checkpoints/{served.id_of('saved')}"
    first = json.loads(served.post(f"{path}/start", {"origin": "prior", "seed": 3})[2])
    again = json.loads(served.post(f"{path}/start", {"origin": "prior", "seed": 3})[2])
    assert first == again
    assert first["codes"] == torch.randn(3, generator=torch.Generator().manual_seed(3)).tolist()
    assert [first["kl"][code] for code in first["order"]] == sorted(first["kl"], reverse=True)
    strips = json.loads(served.post(f"{path}/strips", {"codes": [0, 0, 0]})[2])["strips"]
    assert len(strips) == 3
    strip = np.array(Image.open(io.BytesIO(base64.b64decode(strips["1"].partition(",")[2]))), dtype=float)
    assert strip.shape == (32, 11 * 33 - 1)
    expected = make().decode(torch.tensor([[0.0, -2.0, 0.0]]))[0, 0].detach().numpy() * 255
    assert np.abs(strip[:, :32] - expected).max() <= 0.51


def test_what_carries_nothing_is_told():
    """Codes whose posterior is the prior are inactive; they come last."""
    model = BetaVAE(image_shape=(1, 32, 32), latent_dim=3)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.zero_()
    started = LatentPlayer(model.eval()).start("prior", 0)
    assert started["inactive"] == [0, 1, 2]


def test_matrix_finds_the_code_of_a_factor(monkeypatch):
    """A model whose codes are the position of the mass relates them to the factors pos_x and pos_y."""
    model = AdaGVAE(latent_dim=2)
    model.trained_on = "dsprites"
    grid = torch.linspace(-1, 1, 64)
    centre = lambda images, axes: (images.sum(axes) @ grid / images.sum((1, 2, 3)))[:, None]  # noqa: E731
    monkeypatch.setattr(
        model, "represent", lambda images: torch.cat([centre(images, (1, 2)), centre(images, (1, 3))], 1)
    )
    matrix = LatentPlayer(model.eval()).matrix("information")
    assert matrix["factors"] == ["shape", "scale", "orientation", "pos_x", "pos_y"]
    values = np.array(matrix["values"])  # [F, D]
    assert values.argmax(0).tolist() == [3, 4]
    assert values[3, 0] > 5 * values[0, 0]


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("channels", [1, 3])
def test_uploads_are_read(kind, channels):
    image = read_image(picture("white", (300, 100), kind), (channels, 32, 48))
    assert image.shape == (1, channels, 32, 48)
    assert image.min() > 0.98


def test_few_images_are_read_at_once(monkeypatch):
    """One of 40 million pixels takes half a gigabyte while it is read."""
    now, most, fit = [], [], live.ImageOps.fit

    def slowly(*arguments):
        now.append(1)
        most.append(len(now))
        time.sleep(0.05)
        now.pop()
        return fit(*arguments)

    monkeypatch.setattr(live.ImageOps, "fit", slowly)
    threads = [threading.Thread(target=read_image, args=(picture(), (1, 8, 8))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most) <= 2) == (8, True)


def test_transparent_is_black():
    buffer = io.BytesIO()
    Image.new("RGBA", (50, 50), (255, 255, 255, 0)).save(buffer, "PNG")
    assert read_image(buffer.getvalue(), (3, 32, 32)).max() == 0


def test_upload(served):
    path = f"api/checkpoints/{served.id_of('saved')}/upload"
    status, _, content = served.post(path, picture("white"))
    assert status == 200
    shown = Image.open(io.BytesIO(base64.b64decode(json.loads(content)["input"].partition(",")[2])))
    assert (shown.size, np.array(shown).min()) == ((32, 32), 255)


def bomb() -> bytes:
    buffer = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (lambda: b"", 422, "not a whole PNG or JPEG"),
        (lambda: b"GIF89a" + bytes(100), 422, "not a whole PNG or JPEG"),
        (lambda: picture()[:60], 422, "not a whole PNG or JPEG"),
        (lambda: b"<svg onload='alert(1)'/>", 422, "not a whole PNG or JPEG"),
        (bomb, 422, "more than 40 million pixels"),
        (lambda: bytes((10 << 20) + 1), 413, "longer than 10,485,760 bytes"),
    ],
    ids=["empty", "gif", "cut", "svg", "bomb", "large"],
)
def test_bad_uploads_are_told(served, content, status, message):
    answer = served.post(f"api/checkpoints/{served.id_of('saved')}/upload", content())
    assert (answer[0], message in reply(answer[2])) == (status, True), answer


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("decode", {}, "needs 3 codes"),
        ("decode", {"codes": [1, 2]}, "needs 3 codes"),
        ("decode", {"codes": ["a", 1, 2]}, "needs 3 codes"),
        ("decode", {"codes": [1e9, 1, 2]}, "between -100 and 100"),
        ("decode", b'{"codes": [NaN, 1, 2]}', "between -100 and 100"),
        ("decode", b"[" * 100_000, "nested too deeply"),
        ("decode", b"x", ""),
        ("start", {"origin": "x", "seed": 0}, "Unknown start"),
        ("start", {"origin": "data", "seed": 0}, "data set of this model (bars) is not available locally"),
        ("start", {"origin": "prior"}, "must contain 'seed'"),
        ("matrix", {"kind": "x"}, "Unknown matrix"),
        ("matrix", {"kind": "information"}, "not available locally"),
    ],
    ids=str,
)
def test_bad_requests_are_told(served, action, body, message):
    status, _, content = served.post(f"api/checkpoints/{served.id_of('saved')}/{action}", body)
    assert (status, message in reply(content)) == (422, True), content


def test_what_another_kind_of_model_does_is_told(folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    WReN("onehot", sizes=(5, 6, 3, 3, 4, 4)).save_pretrained(folder / "wren")
    server = Server(Index([folder]))
    try:
        sent = {"start": {"origin": "any", "seed": 0}, "decode": {"codes": [0]}, "upload": picture()}
        for action, body in sent.items():
            status, _, content = server.post(f"api/checkpoints/{server.id_of('wren')}/{action}", body)
            assert (status, f"WReN does not support the action '{action}'" in reply(content)) == (422, True), content
    finally:
        server.stop()


def test_what_loads_a_class_of_ones_own_is_told(served):
    config = served.index.get(served.id_of("saved")).folder / "config.json"
    config.write_text(config.read_text().replace("BetaVAE", "MyVAE"))
    served.post("api/refresh")
    served.index.learn()
    lines = served.get(f"api/checkpoints/{served.id_of('saved')}")["load"].splitlines()
    assert lines[1] == "import ...  # the module that registers MyVAE"


def test_a_broken_model_is_told(served):
    entry = served.index.get(served.id_of("saved"))
    (entry.folder / "model.safetensors").write_bytes(b"nothing")
    status, _, content = served.post(f"api/checkpoints/{entry.id}/decode", {"codes": [0, 0, 0]})
    assert (status, "not a whole safetensors file" in reply(content)) == (422, True)
    assert served.post("api/checkpoints/none/decode")[0] == 404


def test_every_kind_of_model_has_its_own_page():
    zoo = [cls for cls in MODELS.values() if cls.__module__.startswith("unknot.")]
    for cls in zoo:
        players = [player for player in (LatentPlayer, MatrixPlayer, ScenePlayer) if fits(player, cls.capabilities)]
        assert len(players) == in_browser.is_playable(cls.capabilities), cls
    mute = types.SimpleNamespace(capabilities=frozenset({"codes"}))
    with pytest.raises(ValueError, match="SimpleNamespace has no interactive view"):
        player_of(mute)


def fits(player, capabilities):
    return any(needed <= capabilities for needed in player.needs)


@pytest.mark.parametrize("player", [LatentPlayer, MatrixPlayer, ScenePlayer])
def test_the_actions_of_a_player_are_methods(player):
    assert all(callable(getattr(player, action)) for action in player.actions)


@pytest.mark.parametrize("cls", [SlotAutoEncoder, SlotSetPredictor, SlotMLPSetPredictor, DSPNSetPredictor])
def test_scenes_are_taken_apart(cls):
    more = {"num_iterations": 2} if cls is not SlotMLPSetPredictor else {}
    model = cls(image_shape=(3, 32, 32), num_slots=4, **more).eval()
    player, state = player_of(model), torch.get_rng_state()
    seen = player.look("data", 3, None, None)
    assert player.look("data", 3, None, None) == seen  # the same seed, the same start of the slots
    tiles = Image.open(io.BytesIO(player.picture())).size
    assert tiles == ((4 * 33 - 1, 2 * 33 - 1) if cls is SlotAutoEncoder else (32, 32))  # scene, reconstruction, 4 slots
    assert torch.equal(torch.get_rng_state(), state)
    assert len(seen.get("slots") or seen["objects"]) == 4
    if cls in (SlotAutoEncoder, SlotSetPredictor):
        more = player.upload(picture("white"), 3, 5, 6)
        assert len(more.get("slots") or more["objects"]) == 6
    with pytest.raises(ValueError, match="iterations must be from 1 to 20"):
        player.look("data", 3, 10**9, None)


def test_matrices_are_completed():
    for model in (WReN("images"), WReN("onehot", sizes=(5, 6, 3, 3, 4, 4))):
        player = player_of(model.eval())
        with pytest.raises(ValueError, match="is not available locally"):
            player.look("data", 3)
        model.trained_on = "abstract_dsprites_5x6x3x3x4x4"
        seen = player.look("data", 3)
        assert (len(seen["context"]), len(seen["answers"])) == (8, 6)
        shares = [answer["share"] for answer in seen["answers"]]
        assert sum(shares) == pytest.approx(1)
        assert shares.index(max(shares)) == seen["picked"]
        assert player.look("data", 3) == seen
        assert Image.open(io.BytesIO(player.picture())).size == (3 * 65 - 1, 3 * 65 - 1)


def test_many_codes_and_large_images_stay_within_bounds():
    model = BetaVAE(image_shape=(1, 32, 32), latent_dim=3000).eval()
    started = LatentPlayer(model).start("prior", 0)
    assert len(started["strips"]) == len(started["order"]) == 64
    model.image_shape = (3, 4096, 4096)
    with pytest.raises(ValueError, match="too large for this page"):
        player_of(model)


def test_counts_of_a_checkpoint_are_bounded(folder, tmp_path, monkeypatch):
    """A billion iterations in config.json hang neither the page nor its export, and the other models stay usable."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(live, "ACTION", 1.0)
    for cls, argument in ((SlotAutoEncoder, "num_iterations"), (SlotSetPredictor, "num_slots")):
        saved = cls(image_shape=(3, 32, 32), num_slots=4).save_pretrained(folder / cls.__name__)
        config = json.loads((saved / "config.json").read_text())
        config["arguments"][argument] = 10**9
        (saved / "config.json").write_text(json.dumps(config))
    server = Server(Index([folder]))
    try:
        for name in ("SlotAutoEncoder", "SlotSetPredictor"):
            one = f"api/checkpoints/{server.id_of(name)}"
            for status, _, content in (
                server.send(f"{one}/drawn.png"),
                server.post(f"{one}/look", {"origin": "data", "seed": 0}),
            ):
                assert (status, "=1,000,000,000; the page runs models with up to" in reply(content)) == (422, True)
        monkeypatch.setattr(live, "MAX_ITERATIONS", 10**10)  # what no bound catches is given up in time
        one = f"api/checkpoints/{server.id_of('SlotAutoEncoder')}"
        status, _, content = server.post(f"{one}/look", {"origin": "data", "seed": 0})
        assert (status, "Stopped after 1 seconds" in reply(content)) == (504, True)
        assert server.post(f"api/checkpoints/{server.id_of('saved')}/decode", {"codes": [0, 0, 0]})[0] == 200
        assert export(tmp_path / "all.html", [folder]).read_text().count('"live":{"config"') == 4  # the browser refuses
    finally:
        server.stop()


def test_few_models_stay_loaded(tmp_path, make):
    for number in range(3):
        make(seed=number).save_pretrained(tmp_path / str(number))
    players = Players(capacity=2)
    first = players.get("0", tmp_path / "0")
    assert players.get("0", tmp_path / "0") is first
    for name in ("1", "2"):
        players.get(name, tmp_path / name)
    assert players.get("0", tmp_path / "0") is not first


def test_many_who_ask_at_once(served):
    path = f"api/checkpoints/{served.id_of('saved')}/decode"
    answers = []
    threads = [
        threading.Thread(
            target=lambda value=value: answers.append((value, served.post(path, {"codes": [value, 0, 0]})))
        )
        for value in (-2, 0, 2) * 5
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer[0] for _, answer in answers} == {200}
    assert len({(value, answer[2]) for value, answer in answers}) == 3


# Whom it refuses


def test_another_user_of_the_machine_sees_nothing(served):
    for path in ("", "api/checkpoints", f"api/checkpoints/{served.id_of('saved')}"):
        status, headers, content = served.send(path, cookie="unknot-1=x")
        assert status == 403
        assert TOKEN.encode() not in content
        assert "set-cookie" not in headers
    key = served.keys.current
    status, headers, content = served.send(f"?key={key}", cookie="")
    assert (status, TOKEN.encode() in content) == (200, True)
    assert "HttpOnly; SameSite=Strict" in headers["set-cookie"]
    assert served.send(f"?key={key}", cookie="")[0] == 403  # it opens once
    assert served.send("api/checkpoints", cookie=headers["set-cookie"].partition(";")[0])[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"x_unknot_token": "wrong"}, 403),
        ({"x_unknot_token": TOKEN}, 200),
        ({"x_unknot_token": TOKEN, "origin": "https://evil.example"}, 403),
        ({"x_unknot_token": TOKEN, "origin": "null"}, 403),
        ({"x_unknot_token": TOKEN, "sec_fetch_site": "cross-site"}, 403),
        ({"x_unknot_token": TOKEN, "sec_fetch_site": "same-site"}, 403),
        ({"x_unknot_token": TOKEN, "sec_fetch_site": "same-origin"}, 200),
        ({"x_unknot_token": TOKEN, "host": "evil.example"}, 403),
    ],
    ids=str,
)
def test_what_costs_something_needs_the_page(served, headers, status):
    path = f"api/checkpoints/{served.id_of('saved')}/decode"
    assert served.send(path, {"codes": [0, 0, 0]}, **headers)[0] == status
    origin = f"http://127.0.0.1:{served.port}"
    assert served.send(path, {"codes": [0, 0, 0]}, x_unknot_token=TOKEN, origin=origin)[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8800", 200),
        ("localhost:1", 200),
        ("[::1]:8800", 200),
        ("192.168.0.7", 403),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8800", 403),
        ("localhost.evil.example", 403),
        ("evil.example:8800", 403),
        ("127.0.0.1@evil.example", 403),
    ],
)
def test_names_that_are_not_ours_are_refused(served, host, status):
    assert served.send("", host=host)[0] == status
    assert served.send("api/checkpoints", host=host)[0] == status


@pytest.mark.parametrize("path", ["", "page/browse.js", "api/checkpoints", "api/checkpoints/none", "no/such/path"])
def test_every_answer_has_the_policy(served, path):
    _, headers, _ = served.send(path)
    assert headers["content-security-policy"] == policy()
    assert "default-src 'none'; script-src 'self'" in policy()
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


@pytest.mark.parametrize(
    "path",
    [
        "page/../browsing.py",
        "page/..%2fbrowsing.py",
        "page/browse.html",
        "api/checkpoints/ID/config.json",
        "api/checkpoints/ID/pictures/../config.json",
        "api/checkpoints/ID/pictures/..%2f..%2fconfig.json",
        "api/checkpoints/ID/pictures/note.txt",
        "api/checkpoints/ID/pictures/.hidden.png",
        "api/checkpoints/ID/%2fetc%2fpasswd",
        "api/checkpoints/ID/pictures%2ftraversals.png%00",
    ],
)
def test_only_pictures_are_served(served, path):
    entry = served.index.get(served.id_of("saved"))
    for name in ("note.txt", ".hidden.png"):
        (entry.folder / "pictures" / name).write_bytes(picture())
    assert served.send(path.replace("ID", entry.id))[0] in (404, 405)


def test_a_picture_that_is_none_is_not_sent(served):
    entry = served.index.get(served.id_of("saved"))
    (entry.folder / "pictures" / "page.png").write_bytes(b"<script>alert(1)</script>")
    (entry.folder / "pictures" / "photo.png").write_bytes(picture(kind="JPEG"))
    (entry.folder / "pictures" / "bomb.png").write_bytes(bomb())
    for name in ("page", "photo", "bomb"):
        status, headers, content = served.send(f"api/checkpoints/{entry.id}/pictures/{name}.png")
        assert (status, headers["content-type"]) == (422, "application/json")
        assert "not a whole PNG" in reply(content)
    assert served.get("api/checkpoints")["checkpoints"]


def test_pictures_are_drawn_anew(tmp_path):
    """Text that somebody hid in a file's text or behind its end does not travel."""
    path = tmp_path / "a.png"
    path.write_bytes(picture(size=(2000, 20)) + b"<script>hidden</script>")
    content = read_picture(path, 1600, path.stat().st_mtime_ns)
    assert b"hidden" not in content
    assert Image.open(io.BytesIO(content)).size == (1600, 16)


def test_a_mistake_of_ours_is_told_without_its_place(served, monkeypatch):
    monkeypatch.setattr(served.index, "detail", lambda *_: 1 / 0)
    status, headers, content = served.send(f"api/checkpoints/{served.id_of('saved')}")
    assert (status, reply(content)) == (500, "Something went wrong here (ZeroDivisionError). The terminal shows where.")
    assert headers["content-security-policy"] == policy()


# One file


def test_export(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said: list[str] = []
    path = export(tmp_path / "out" / "page.html", [folder], say=said.append)
    html = path.read_text(encoding="utf-8")
    assert said[-1].startswith("Wrote 2 checkpoints")
    assert [one.name for one in path.parent.iterdir()] == ["page.html"]
    assert "<script>alert(1)" not in html
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html)[1])
    (saved,) = (row for row in data["checkpoints"] if row["ref"].endswith("saved"))
    detail = data["details"][saved["id"]]
    assert detail["card"] == HOSTILE
    assert detail["live"] == {"config": f"config-{saved['id']}", "weights": f"weights-{saved['id']}", "images": None}
    weights = re.search(rf'<script type="text/plain" id="weights-{saved["id"]}">(.*?)</script>', html)[1]
    assert base64.b64decode(weights) == (folder / "saved" / "model.safetensors").read_bytes()
    assert saved["thumbnail"].startswith("data:image/png;base64,")
    assert not re.search(r"""(src|href)=["'](?!data:)[^#"']""", html.partition("<script")[0])


def test_export_of_a_folder_of_static_files(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(live, "Players", None)  # no model is loaded for what runs in the browser
    site = export(tmp_path / "site", [folder], say=lambda text: None)
    export(site, [folder], say=lambda text: None, only=[str(folder / "saved")])  # replaces what it wrote
    html = (site / "index.html").read_text()
    assert "default-src 'none'; script-src 'self'" in html
    (saved,) = (place for place in (site / "models").iterdir() if (place / "model.safetensors").is_file())
    assert (saved / "model.safetensors").read_bytes() == (folder / "saved" / "model.safetensors").read_bytes()
    detail = json.loads((saved / "detail.json").read_text())
    assert detail["live"]["weights"] == f"models/{saved.name}/model.safetensors"
    assert {"browse.js", "worker.js", "layers.js", "page.css"} <= {path.name for path in (site / "page").iterdir()}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="is not an exported page"):
        export(tmp_path / "mine", [folder], say=lambda text: None)
    with pytest.raises(ValueError, match="nobody/nothing: no such checkpoint"):
        export(tmp_path / "other", [folder], say=lambda text: None, only=["nobody/nothing"])


def test_data_cannot_leave_its_element():
    html = bundle({"checkpoints": [], "x": "</script><script>alert(1)</script>\u2028<!--"})
    assert html.count("</script>") == 3  # data, worker and page
    assert "\u2028" not in html
    assert "<!--" not in html


def test_the_policy_of_an_export_names_what_is_in_it():
    html = bundle({})
    allowed = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)[1]
    assert "'self'" not in allowed
    assert "'unsafe" not in allowed
    assert allowed.count("'sha256-") == 2


def test_a_failed_export_leaves_the_old_file(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "page.html").write_text("old")
    monkeypatch.setattr("unknot.hub.browser.export.bundle", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(tmp_path / "page.html", [folder])
    assert (tmp_path / "page.html").read_text() == "old"


# The command


BROWSE = "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"


def test_the_command_answers_before_the_hub_does(folder):
    """A hub that is silent does not hold up the page."""
    silent = socket.create_server(("127.0.0.1", 0))
    words = ["browse", str(folder), "--no-open", "--port", "0"]
    words += ["--endpoint", f"http://127.0.0.1:{silent.getsockname()[1]}"]
    environment = os.environ | {"UNKNOT_DEBUG": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", BROWSE, *words], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        line = process.stdout.readline()
        assert re.match(r"\d+ checkpoints on this machine at http://127.0.0.1:\d+/", line)
        opening = re.search(r"http://\S+", line)[0]
        url = opening.partition("?")[0]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(url)
        with browser.open(opening) as answer:
            token = re.search(r'name="token" content="([^"]+)"', answer.read().decode())[1]
        assert len(token) > 20
        assert "For another browser: http://" in process.stdout.readline()
        with browser.open(f"{url}api/checkpoints") as answer:
            listed = json.load(answer)
        assert listed["remote"] == "asking"
        assert sum(row["sources"] == ["folder"] for row in listed["checkpoints"]) == 2
        for _ in range(600):
            with browser.open(f"{url}api/checkpoints") as answer:
                listed = json.load(answer)
            if listed["remote"] != "asking":
                break
            time.sleep(0.1)
        assert listed["remote"] == "offline"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        silent.close()


def test_a_taken_port_is_told(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["browse", "--no-open", "--port", str(taken.getsockname()[1])]) == 1
    assert "Give another --port" in capsys.readouterr().err


def test_help(capsys):
    with pytest.raises(SystemExit):
        main(["browse", "--help"])
    assert "examples:" in capsys.readouterr().out
