"""A hub that lies, never ends, or is no hub: what is here is still listed, and nothing grows without a bound."""

import contextlib
import hashlib
import http.server
import json
import threading
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from unknot.checkpoints import client
from unknot.checkpoints import names as refs
from unknot.checkpoints.errors import FullError, MissingError
from unknot.cli import main
from unknot.hub import IntegrityError, UnreachableError, list_checkpoints, load, pull
from unknot.hub.browser.index import Index
from unknot.hub.model_card import Facts
from unknot.hub.publishing import assemble

COMMIT = "c" * 40


class Liar(http.server.ThreadingHTTPServer):
    """Answers by a function of the path: status, headers and an iterable of parts."""

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.sent, self.seen = answer, 0, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("authorization")))
        status, headers, parts = self.server.answer(self.path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            for part in parts:
                self.wfile.write(part)
                self.server.sent += len(part)

    def log_message(self, *_):
        pass


@pytest.fixture
def liar():
    started = []

    def start(answer):
        started.append(Liar(answer))
        return started[-1]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def endless(part=bytes(1 << 16), pause=0.0):
    while True:
        yield part
        time.sleep(pause)


def describing(files, **sizes):
    """Return what a hub says about a repository."""
    siblings = [
        {
            "rfilename": name,
            "size": sizes.get(name, len(content)),
            "blobId": "0" * 40,
            "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1},
        }
        for name, content in files.items()
    ]
    return json.dumps({"id": "me/x", "sha": COMMIT, "siblings": siblings}).encode()


def test_more_than_was_announced_is_not_taken(liar, files, home):
    def answer(path):
        if path.startswith("/api/"):
            return 200, {}, [describing(files)]
        return 200, {}, endless()

    hub = liar(answer)
    with pytest.raises(IntegrityError, match=r"config.json.* sends more than the .* bytes it announced"):
        load("me/x", endpoint=hub.url)
    assert hub.sent < 20 << 20  # what the sockets hold
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_only_files_of_a_model_are_fetched(liar, tmp_path):
    """An empty file is within any limit, and its name could lead anywhere."""
    hub = liar(lambda path: (200, {}, [describing({"../../../mark": b""}) if path.startswith("/api/") else b""]))
    listing = client.look_up("me/x", None, hub.url)
    with pytest.raises(MissingError, match="not a file that is read from a repository"):
        client.download(listing, "../../../mark", hub.url, cache_dir=tmp_path / "cache")
    assert not list(tmp_path.rglob("mark*"))


def test_a_connection_that_breaks_is_resumed(liar, files):
    calls = []

    def answer(path):
        if path.startswith("/api/"):
            return 200, {}, [describing(files)]
        name = path.rpartition("/")[2]
        calls.append(name)
        if name == "model.safetensors" and calls.count(name) == 1:
            return 200, {"content-length": str(len(files[name]))}, [files[name][:5000]]
        return 200, {"content-length": str(len(files[name]))}, [files[name]]

    hub = liar(answer)
    assert load("me/x", endpoint=hub.url).latent_dim == 3
    assert calls.count("model.safetensors") == 2


@pytest.mark.parametrize(
    ("status", "headers", "parts", "reply"),
    [
        (200, {}, lambda: endless(b" " * (1 << 20)), "answers with more than 32 MB"),
        (200, {}, lambda: endless(b"[", 0.1), "no whole answer within"),
        (200, {}, lambda: [b"<html>welcome</html>"], "did not return a valid Hub response"),
        (200, {}, lambda: [b"[" * 100_000], "did not return a valid Hub response"),
        (404, {}, lambda: [b"<html>nothing</html>"], ""),
        (404, {"X-Error-Code": "RepoNotFound"}, lambda: endless(), ""),
        (302, {"location": "/again"}, lambda: endless(), "too many redirects"),
        (302, {"location": "file:///etc/passwd"}, lambda: [], "too many redirects"),
        (500, {"X-Error-Message": "\x1b[31mred\x07"}, lambda: [b"x"], "cannot reach"),
    ],
    ids=["endless", "slow", "html", "nested", "404", "404 endless", "redirects", "file", "escape"],
)
def test_a_hub_that_is_none_hides_nothing(liar, tmp_path, model, monkeypatch, capsys, status, headers, parts, reply):
    monkeypatch.setattr(client, "DEADLINE", 1.0)
    assemble(model, tmp_path / "bundled" / "mine", "unknot/mine", Facts())
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "bundled")
    hub = liar(lambda path: (status, headers, parts()))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    with pytest.warns(UserWarning, match="The list of checkpoints") as warned:
        assert [row.ref for row in list_checkpoints()] == ["unknot/mine"]
    assert reply in str(warned[0].message)
    assert main(["hub", "list"]) == 0
    out = capsys.readouterr()
    assert "unknot/mine" in out.out
    assert not {"\x1b", "\x07"} & set(out.out + out.err)
    index = Index()
    index.refresh()
    assert (index.remote, len(index.entries)) == ("offline", 1)
    with pytest.raises((UnreachableError, FileNotFoundError, ValueError)):
        load("me/x")
    assert hub.sent < 400 << 20


def test_other_addresses_do_not_see_the_token(liar, files, monkeypatch):
    other = liar(lambda path: (200, {}, [files[path.rpartition("/")[2]]]))

    def answer(path):
        if path.startswith("/api/"):
            return 200, {}, [describing(files)]
        return 302, {"location": f"{other.url}{path}"}, []

    hub = liar(answer)
    load("me/x", endpoint=hub.url, token="secret-token")
    assert {reply for _, reply in hub.seen} == {"Bearer secret-token"}
    assert {reply for _, reply in other.seen} == {None}


def test_a_full_hub_is_not_an_unreachable_one(liar):
    def answer(path):
        return 507, {"X-Error-Message": "The disk of this hub is full"}, [b"{}"]

    hub = liar(answer)
    with pytest.raises(FullError, match=r"has no room for it .The disk of this hub is full"):
        client.look_up("me/x", None, hub.url)


# What is in the files


def test_names_of_tensors_do_not_reach_the_terminal_as_they_are(model, tmp_path, capsys):
    folder = model.save_pretrained(tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"\x1b[31m\x07" + "x" * 1_000_000: torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match="not the weights of this BetaVAE") as caught:
        load(folder)
    assert "\x1b" not in str(caught.value)
    assert "\x07" not in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_numbers_that_are_not_finite_are_named(model, tmp_path):
    folder = model.save_pretrained(tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    weights["encoder.mean.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    forget_hash(folder)
    with pytest.warns(UserWarning, match="encoder.mean.weight contain NaN or infinite values"):
        load(folder)


def forget_hash(folder):
    """As earlier versions saved a model: without the hash of its weights."""
    config = json.loads((folder / "config.json").read_text())
    del config["weights"]
    (folder / "config.json").write_text(json.dumps(config))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_changed_bundled_model_is_refused_and_a_changed_folder_told_of(model, tmp_path, monkeypatch):
    folder = assemble(model, tmp_path / "bundled" / "mine", "unknot/mine", Facts())
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "bundled")
    load("unknot/mine")
    flip(folder / "model.safetensors")
    with pytest.raises(IntegrityError, match=r"not the weights that README.md describes .* Install the package again"):
        load("unknot/mine")
    with pytest.raises(ValueError, match=r"not the weights that config\.json belongs to"):
        load(folder)
    forget_hash(folder)
    with pytest.warns(UserWarning, match="not the weights that README.md describes"):
        load(folder)


def test_pinned_only_means_it(model, tmp_path, monkeypatch):
    assemble(model, tmp_path / "bundled" / "mine", "unknot/mine", Facts())
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "bundled")
    monkeypatch.setenv("UNKNOT_PINNED_ONLY", "1")
    load("unknot/mine")
    for ref, options in (("unknot/mine@main", {}), ("unknot/mine", {"revision": "main"}), ("me/x", {})):
        with pytest.raises(ValueError, match="UNKNOT_PINNED_ONLY is set, which requires a full commit hash"):
            load(ref, **options)


def test_huge_files_are_not_read_to_list_them(model, tmp_path):
    folder = model.save_pretrained(tmp_path / "m")
    with (folder / "config.json").open("wb") as file:
        file.truncate(8 << 30)  # a hole; reading it would take all memory
    from unknot.hub import show

    assert "config.json has more than" in show(folder).checkpoint.problem


def test_pull_says_what_training_yaml_is(here, model, name, tmp_path, monkeypatch, capsys):
    (tmp_path / "training.yaml").write_text("seed_everything: 1\n")
    model.push_to_hub(name, extras={"training.yaml": tmp_path / "training.yaml"}, say=lambda text: None)
    assert main(["hub", "pull", name]) == 0
    assert "training.yaml names classes that `unknot fit --config` would run: read it first" in capsys.readouterr().out
    assert pull(name).name == load(name).hub_revision
