"""Things that a stranger may put on a hub, into the cache or on the wire, and the one line that the user sees."""

import contextlib
import hashlib
import io
import json
import os
import pickle
import random
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from unknot.checkpoints import client
from unknot.checkpoints.card import read_card
from unknot.cli import main
from unknot.hub import (
    AccessError,
    IntegrityError,
    MissingError,
    OfflineError,
    TooLargeError,
    UnreachableError,
    UnsafeCheckpointError,
    list_checkpoints,
    load,
    pull,
    push,
    show,
)
from unknot.zoo import BetaTCVAE

BOMB = "---\na: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
)


def refused(error, message, ref, **where):
    with pytest.raises(error, match=message) as caught:
        load(ref, **where)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_config(files, **changes):
    config = json.loads(files["config.json"])
    config["arguments"] |= changes.pop("arguments", {})
    return files | {"config.json": json.dumps(config | changes).encode()}


# What is in a repository


class Mark:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.pt", "last.ckpt", "model.pkl"])
@pytest.mark.parametrize("harmful", [True, False])
def test_pickles_are_never_loaded(here, files, name, file, harmful, tmp_path):
    buffer = io.BytesIO()
    torch.save(Mark(tmp_path / "mark") if harmful else {"a": torch.zeros(1)}, buffer)
    here.upload(name, {"config.json": files["config.json"], file: buffer.getvalue()})
    message = rf"{name}@[0-9a-f]{{7}} has no model.safetensors \(found: {file}\). Pickle files can run code"
    refused(UnsafeCheckpointError, message, name)
    with pytest.raises(UnsafeCheckpointError, match=message):
        pull(name, tmp_path / "pulled")
    assert not (tmp_path / "mark").exists()


def test_a_pickle_named_safetensors(here, files, name, tmp_path):
    here.upload(name, files | {"model.safetensors": pickle.dumps(Mark(tmp_path / "mark"))})
    refused(ValueError, rf"{name}@.{{7}}/model.safetensors: not a whole safetensors file", name)
    assert not (tmp_path / "mark").exists()


def test_not_a_model_of_ours(here, name):
    here.upload(name, {"weights.h5": b"x"})
    refused(MissingError, "config.json: no such file; this repository does not hold a model of the zoo", name)


def test_wrong_class(here, files, name):
    here.upload(name, files)
    with pytest.raises(ValueError, match=rf"{name}@.{{7}}/config.json: this is a BetaVAE, not a BetaTCVAE"):
        BetaTCVAE.from_pretrained(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code": "x"}, r"unknown keys \['code'\]; known are"),
        ({"_target_": "os.system", "trust_remote_code": True}, r"unknown keys \['_target_', 'trust_remote_code'\]"),
        ({"arguments": {"strict": False}}, r"BetaVAE has no arguments \['strict'\]; it takes"),
        ({"model": "os.system"}, "unknown model 'os.system'; this version knows"),
        ({"arguments": {"latent_dim": 10**7}}, r"not the weights of this BetaVAE \(encoder.mean"),
        ({"arguments": {"latent_dim": 10**30}}, "these arguments do not build a BetaVAE"),
        ({"arguments": {"image_shape": [1, 16 * 10**5, 16 * 10**5]}}, "not the weights of this BetaVAE"),
        ({"arguments": {"image_shape": [16] * 100_000}}, r"\['image_shape'\] must be lists of at most 64 values"),
        ({"dataset": "x" * 2_000_000}, r"bytes, above the limit of 1,048,576"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_hostile_configs(here, files, name, changes, message):
    here.upload(name, with_config(files, **changes))
    refused(ValueError, rf"{name}@[0-9a-f]{{7}}/(config.json|model.safetensors): .*{message}", name)


def test_too_large_weights_are_not_downloaded(here, files, name, home):
    here.upload(name, files)
    text = refused(TooLargeError, "bytes, above the limit of 1,000. Pass a larger max_bytes", name, max_bytes=1000)
    assert text.startswith(f"{name}@")
    assert not list(home.rglob("model.safetensors"))
    with pytest.raises(TooLargeError):
        pull(name, max_bytes=1000)


# What is on the disk of the hub, on the wire, in the cache


def blob_of(hub, files):
    return hub.blob(hashlib.sha256(files["model.safetensors"]).hexdigest())


@pytest.fixture
def own(serve, monkeypatch, files):
    """A hub of its own, whose disk is damaged."""
    hub = serve()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.upload("me/model", files)
    return hub


def test_hash_mismatch_and_truncation(own, files, model, home):
    path = blob_of(own, files)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    expected = hashlib.sha256(good).hexdigest()
    refused(IntegrityError, rf"model.safetensors: expected the hash {expected}, got .* copy was removed", "me/model")
    assert not [path for path in home.rglob("blobs/*") if path.stat().st_size == len(good)]

    path.write_bytes(good[:-100])
    refused(IntegrityError, "model.safetensors: .* sent less or more than it announced", "me/model")

    path.write_bytes(good)
    assert torch.equal(load("me/model").encoder.mean.weight, model.encoder.mean.weight)


def test_a_damaged_cache_is_noticed_without_a_network(own, files, home, monkeypatch):
    load("me/model")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    load("me/model")
    [path] = [path for path in home.rglob("blobs/*") if path.stat().st_size == len(files["model.safetensors"])]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    refused(IntegrityError, "expected the hash", "me/model")
    refused(OfflineError, "not in the cache", "me/model")


# Cards


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        (BOMB + "---\n", "YAML aliases are not read"),
        ("---\n" + "[" * 5000 + "]" * 5000 + "\n---\n", "nested deeper than 20 levels"),
        ("---\n" + "- " * 5000 + "x\n---\n", "nested deeper than 20 levels"),
        ("---\na: !!python/object/apply:os.system ['touch mark']\n---\n", "could not determine a constructor"),
        ("---\n" + "a: b\n" * 60_000 + "---\n", "metadata longer than"),
        ("x" * 1_100_000, "longer than 1048576 bytes"),
        ("---\na: [\n---\n", ""),
        ("---\njust text\n---\n", "metadata is not a mapping"),
        ("---\ntags: x\n", "metadata without an end"),
        ("---\na: " + "9" * 10_000 + "\n---\n", ""),
        ("---\n? [1, 2]\n: x\n---\n", ""),
    ],
    ids=lambda value: value[:20],
)
def test_cards_that_cannot_be_read_are_still_listed(here, files, name, card, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = read_card(card)
    assert found.metadata == {}
    assert found.problem is not None
    assert problem in found.problem
    if len(card) < 1_000_000:
        here.upload(name, files | {"README.md": card.encode()})
        assert f"card unreadable: {found.problem}" == show(name).checkpoint.problem
        pull(name)
        [row] = list_checkpoints(sources=["cached"])
        assert (row.ref, row.model) == (name, "BetaVAE")
        assert row.problem.startswith("card unreadable")
        assert here.api.model_info(name).id == name
        assert name in [found.id for found in here.api.list_models(search=name)]
    assert not (tmp_path / "mark").exists()


def test_html_in_a_card_stays_data(here, files, name, capsys):
    body = "# <script>alert(1)</script>\n<img src=x onerror=alert(1)> \x1b[31mred\x1b[0m\x07\n"
    metadata = '---\ntags: [unknot, "<script>"]\nunknot: {dataset: "<b>\\e[31m"}\nlicense: "<i>"\n---\n\n'
    here.upload(name, files | {"README.md": (metadata + body).encode(), "x.html": b"<script>"})
    described = show(name)
    assert described.body == body
    assert main(["hub", "show", name]) == 0
    assert main(["hub", "list", "--search", name]) == 0
    out = capsys.readouterr().out
    assert "<script>alert(1)</script>" in out
    assert "\x1b" not in out
    assert "\x07" not in out
    for file in ("x.html", "README.md"):
        answer = client_get(here, f"/{name}/resolve/main/{file}")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-disposition"] == "attachment"


@pytest.mark.parametrize("value", [".nan", ".inf", '"0.9"', "true", "[1]", "{a: 1}", "1" * 400])
def test_only_finite_numbers_are_scores(here, files, name, value):
    index = f"model-index: [{{results: [{{metrics: [{{type: mig, value: {value}}}, {{type: sap, value: 0.5}}]}}]}}]"
    here.upload(name, files | {"README.md": f"---\ntags: [unknot]\n{index}\n---\n".encode()})
    [row] = list_checkpoints(search=name, sources=["remote"])
    assert row.scores == {"sap": 0.5}


# The server


def client_get(hub, path, token=None):
    from huggingface_hub.utils import get_session

    return get_session().get(hub.url + path, headers={"authorization": f"Bearer {token or hub.token}"})


def raw(hub, request: bytes) -> bytes:
    host, port = hub.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


BAD_NAMES = [
    *("../../evil", "/etc/passwd", "a/../../b", "a//b", "..", ".", "", "a\\b", "C:\\x", "a\x00b", "a\nb"),
    *(".git/hooks/post-checkout", "a" * 300, "x/" * 300 + "y", "con:", "a?b", " a", "a "),
]


@pytest.mark.parametrize("path", BAD_NAMES, ids=repr)
def test_names_of_files_stay_inside(here, name, path):
    before = {str(found) for found in here.folder.parent.rglob("*")}
    here.api.create_repo(name, exist_ok=True)
    line = json.dumps({"key": "file", "value": {"path": path, "content": "eA==", "encoding": "base64"}})
    answer = here.post(f"/api/models/{name}/commit/main", line.encode())
    assert answer.status_code == 422
    assert str(here.folder) not in answer.text
    new = {str(found) for found in here.folder.parent.rglob("*")} - before
    assert all(str(here.folder / "repos") in found for found in new)
    assert here.api.list_repo_files(name) == [".gitattributes"]


@pytest.mark.parametrize(
    "path",
    [
        "/me/x/resolve/main/../../../tokens.txt",
        "/me/x/resolve/main/..%2f..%2f..%2ftokens.txt",
        "/me/x/resolve/..%2f..%2f/tokens.txt",
        "/../tokens.txt",
        "/..%2ftokens.txt/x/resolve/main/a",
        "/api/models/..%2f..%2f/x",
        "/api/models/../../tokens.txt",
        "/api/models/me/..%00/tree/main",
        "/tokens.txt",
        "/lfs/" + "a" * 64 + "/3/" + "b" * 64,
    ],
)
def test_paths_lead_nowhere_else(here, path):
    answer = raw(here, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.split()[1] in (b"404", b"405", b"400")
    assert here.token.encode() not in answer
    assert str(here.folder).encode() not in answer


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 200), ("[::1]:99", 200), ("6.6.6.6:9", 403), ("evil", 403)])
def test_a_host_that_is_not_this_machine_is_not_handed_on(here, host, status):
    answer = raw(here, f"GET /api/models?limit=1 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert int(answer.split(maxsplit=2)[1]) == status, answer


@pytest.mark.parametrize("token", ["wrong-token", "", None])
def test_writing_needs_a_token_of_this_hub(here, files, name, token, model, monkeypatch):
    here.upload(name, files)
    before = here.api.model_info(name).sha
    for method, path in [
        ("POST", "/api/repos/create"),
        ("DELETE", "/api/repos/delete"),
        ("POST", f"/api/models/{name}/commit/main"),
        ("POST", f"/api/models/{name}/preupload/main"),
        ("POST", f"/api/models/{name}/tag/main"),
        ("POST", f"/api/models/{name}/branch/x"),
        ("PUT", f"/api/models/{name}/settings"),
        ("POST", f"/{name}.git/info/lfs/objects/batch"),
    ]:
        header = f"Authorization: Bearer {token}\r\n" if token is not None else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        )
        assert raw(here, head.encode()).split()[1] == b"401", path
    assert here.api.model_info(name).sha == before
    if token:
        with pytest.raises(AccessError, match=r"refused the token \(The token of this request is unknown"):
            push(model, name, token=token, say=lambda text: None)
        monkeypatch.setenv("HF_TOKEN", token)
        refused(AccessError, "refused the token .* Public repositories can be read with token=False", name)
        load(name, token=False)


def test_a_push_without_a_token_sends_nothing(model, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(AccessError, match=r"http://127.0.0.1:9 requires a write token: set HF_TOKEN"):
        push(model, "me/model", say=lambda text: None)


def test_the_hub_refuses_what_is_too_large(serve, model, monkeypatch, tmp_path):
    hub = serve("--max-file", "1")
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    with pytest.raises(TooLargeError, match=r"model.safetensors has .* bytes; the limit of this hub is 1,048,576"):
        model.push_to_hub("me/big", say=lambda text: None)
    line = {"key": "file", "value": {"path": "a", "content": "eHh4" * 500_000, "encoding": "base64"}}
    assert hub.post("/api/models/me/big/commit/main", json.dumps(line).encode()).status_code == 413
    assert hub.post("/api/repos/create", b'{"name": "' + b"x" * 5_000_000 + b'"}').status_code == 413
    assert hub.api.list_repo_files("me/big") == [".gitattributes"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"not json", b"[]", b"3", b'{"key": 1}', b'{"key": "file"}', b'{"key": "file", "value": {"path": 3}}'),
        b'{"key": "file", "value": {"path": "a", "content": "%%%"}}',
        b'{"key": "exec", "value": {"path": "a"}}',
        b'{"key": "lfsFile", "value": {"path": "a", "oid": "../../x"}}',
        b'{"key": "lfsFile", "value": {"path": "a", "oid": "' + b"0" * 64 + b'", "size": 3}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_commits_that_make_no_sense(here, name, body):
    here.api.create_repo(name, exist_ok=True)
    before = here.api.model_info(name).sha
    answer = here.post(f"/api/models/{name}/commit/main", body)
    assert answer.status_code == 422, answer.text
    assert here.api.model_info(name).sha == before
    for path in ("/api/repos/create", f"/api/models/{name}/preupload/main", f"/{name}.git/info/lfs/objects/batch"):
        assert here.post(path, body).status_code in (400, 422)


# Large files travel on their own; every byte is hashed


def test_large_files_by_lfs(here, name):
    here.api.create_repo(name, exist_ok=True)
    content = os.urandom(100_000)
    oid = hashlib.sha256(content).hexdigest()

    def address():
        wanted = {"operation": "upload", "objects": [{"oid": oid, "size": len(content)}]}
        return here.post(f"/{name}.git/info/lfs/objects/batch", json.dumps(wanted).encode()).json()["objects"][0]

    from huggingface_hub.utils import get_session

    href = address()["actions"]["upload"]["href"]
    wrong = get_session().put(href, content=content[:-1] + b"?")
    assert wrong.status_code == 422
    assert "Announced were 100000 bytes" in wrong.json()["error"]
    assert get_session().put(href, content=content[:-1]).status_code == 422
    assert get_session().put(href, content=content + b"x").status_code == 413
    assert get_session().put(href[:-1] + ("0" if href[-1] != "0" else "1"), content=content).status_code == 403
    assert not here.blob(oid).exists()
    assert get_session().put(href, content=content).status_code == 200
    assert "actions" not in address()
    line = {"key": "lfsFile", "value": {"path": "big.bin", "oid": oid, "size": len(content), "algo": "sha256"}}
    assert here.post(f"/api/models/{name}/commit/main", json.dumps(line).encode()).status_code == 200
    assert Path(here.api.hf_hub_download(name, "big.bin")).read_bytes() == content


# Offline, unreachable, missing, private


def test_each_has_its_own_message(here, files, name, monkeypatch, home):
    here.upload(name, files, public=False)
    refused(MissingError, rf"me/none: not found at {here.url}. It does not exist, or it is private and your", "me/none")
    monkeypatch.delenv("HF_TOKEN")
    refused(MissingError, rf"{name}: not found at .* or it is private: then set HF_TOKEN", name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refused(OfflineError, rf"{name}: not in the cache \({home / 'hub'}\), and offline. Unset HF_HUB_OFFLINE", name)
    with pytest.raises(OfflineError, match="and offline"):
        pull(name)
    assert list_checkpoints() == []
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refused(UnreachableError, rf"{name}: cannot reach http://127.0.0.1:9 .* Check the network and HF_ENDPOINT", name)
    with pytest.warns(UserWarning, match="The list of checkpoints: cannot reach"):
        assert list_checkpoints() == []
    monkeypatch.setenv("HF_ENDPOINT", "nonsense")
    refused(ValueError, "'nonsense' is not a hub's address", name)


def test_a_hub_that_never_answers(monkeypatch, files):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(client, "DEADLINE", 1.0)
        refused(UnreachableError, "cannot reach http://127.0.0.1:", "me/model")
        with pytest.warns(UserWarning, match="cannot reach"):
            list_checkpoints()
        silent.setblocking(False)
        connections = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
    assert connections == 2  # one for each question; the client itself would try five times more, for 23 s


def test_cached_when_the_hub_is_gone(serve, files, model, monkeypatch):
    hub = serve()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    commit = hub.upload("me/model", files)
    load("me/model")
    hub.kill()
    with pytest.warns(UserWarning, match=rf"cannot reach .* Using me/model@{commit[:7]} of the cache"):
        loaded = load("me/model")
    assert loaded.hub_revision == commit
    assert torch.equal(loaded.encoder.mean.weight, model.encoder.mean.weight)
    assert load(f"me/model@{commit}").hub_revision == commit  # pinned: no question, no warning
    assert load("me/model", local_files_only=True).hub_revision == commit
    hub.start()


def test_a_failed_load_does_not_cost_the_cached_state(here, files, name, monkeypatch):
    old = here.upload(name, files)
    load(name)
    here.upload(name, {"model.safetensors": files["model.safetensors"] + b"x" * 1000})
    refused(TooLargeError, "above the limit", name, max_bytes=len(files["model.safetensors"]))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load(name).hub_revision == old


def test_a_wrong_token_leaves_the_local_list(here, files, name, monkeypatch):
    here.upload(name, files)
    load(name)
    monkeypatch.setenv("HF_TOKEN", "wrong-token")
    with pytest.warns(UserWarning, match="refused the token"):
        assert [row.ref for row in list_checkpoints()] == [name]


def test_half_a_download_is_no_model(here, files, name, home, monkeypatch):
    here.upload(name, files)
    load(name)
    [weights] = home.rglob("model.safetensors")
    weights.unlink()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refused(OfflineError, "not in the cache", name)
    assert list_checkpoints() == []
    monkeypatch.delenv("HF_HUB_OFFLINE")
    load(name)


def test_files_of_one_commit_alone(here, files, make, name, monkeypatch):
    """A push between the download of config and weights changes nothing for who is loading."""
    old = here.upload(name, files)
    original = client.download

    def slowly(listing, file, **where):
        if file == "model.safetensors":
            here.upload(name, {"model.safetensors": b"other"})
        return original(listing, file, **where)

    monkeypatch.setattr(client, "download", slowly)
    assert load(name).hub_revision == old


# Mutations

FORBIDDEN = {"pickle.find_class", "os.system", "subprocess.Popen", "socket.connect", "os.exec", "os.posix_spawn"}
watching = threading.Event()
seen: list[str] = []
sys.addaudithook(
    lambda event, _: seen.append(event) if watching is not None and watching.is_set() and event in FORBIDDEN else None
)

VALUES = [
    *(0, -1, 1.5, 10**9, 10**40, 1e308, True, None, "x", "", "os.system('x')"),
    *([], [1, 32, 32], [1] * 200, {}, {"a": 1}),
]


def mutate(random: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    """A checkpoint with one thing changed, in its text, its structure or its bytes."""
    file = random.choice(["config.json", "model.safetensors"])
    data, way = bytearray(files[file]), random.randrange(5)
    if file == "config.json" and way < 3:
        config = json.loads(data)
        place = random.choice([config, config["arguments"]])
        key = random.choice([*place, "strict", "__class__", "self"])
        place[key] = random.choice(VALUES)
        return files | {file: json.dumps(config).encode()}
    if way == 0 and file == "model.safetensors":
        position = random.randrange(int.from_bytes(data[:8], "little") + 8)  # in the header
        data[position] = random.randrange(256)
    elif way == 1:
        data = data[: random.randrange(len(data))]
    elif way == 2:
        position = random.randrange(len(data))
        data[position:position] = random.randbytes(random.randrange(1, 20))
    elif way == 3:
        position, length = random.randrange(len(data)), random.randrange(1, 200)
        del data[position : position + length]
    else:
        for position in random.sample(range(len(data)), 3):
            data[position] ^= 1 << random.randrange(8)
    return files | {file: bytes(data)}


def tensors_in(data: bytes) -> dict[str, np.ndarray]:
    """Our own reading of a safetensors file of single precision."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    kinds = {"F32": "<f4", "F64": "<f8", "F16": "<f2"}
    return {
        name: np.frombuffer(data[8 + length :][slice(*entry["data_offsets"])], kinds[entry["dtype"]])
        .reshape(entry["shape"])
        .astype("<f4")
        for name, entry in header.items()
    }


def check_mutations(count, files, tmp_path):
    folder, cache = tmp_path / "hostile", tmp_path / "cache" / "models--me--model"
    folder.mkdir()
    commit = "c" * 40
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text(commit)
    (cache / "snapshots" / commit).mkdir(parents=True)
    (cache / "blobs").mkdir()
    hashes = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    for file, digest in hashes.items():
        (cache / "snapshots" / commit / file).symlink_to(f"../../blobs/{digest}")
    generator, loaded_count = random.Random(0), 0
    watching.set()
    try:
        for _ in range(count):
            mutated = mutate(generator, files)
            # Published like this, with matching hashes: refused, or exactly what the file says.
            for file, content in mutated.items():
                (folder / file).write_bytes(content)
            loaded, message = None, ""
            try:
                loaded = load(folder)
            except (ValueError, FileNotFoundError) as error:
                message = str(error)
            assert "\n" not in message
            if loaded is not None:
                loaded_count += 1
                expected, found = tensors_in(mutated["model.safetensors"]), loaded.state_dict()
                assert expected.keys() == found.keys()
                assert all(found[name].numpy().tobytes() == value.tobytes() for name, value in expected.items())
            # Damaged after it was published: always refused.
            for file, content in mutated.items():
                link = cache / "snapshots" / commit / file
                if not link.is_symlink():
                    link.symlink_to(f"../../blobs/{hashes[file]}")
                (cache / "blobs" / hashes[file]).write_bytes(content)
            if mutated != files:
                with pytest.raises(IntegrityError):
                    load("me/model", local_files_only=True, cache_dir=tmp_path / "cache")
    finally:
        watching.clear()
    assert seen == []
    assert 0 < loaded_count < count  # some changes, such as another beta, are harmless


def test_mutations(files, tmp_path):
    check_mutations(60, files, tmp_path)


@pytest.mark.slow
def test_many_mutations(files, tmp_path):
    check_mutations(500, files, tmp_path)


def test_our_own_reading_is_right(files, tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.arange(6.0).reshape(2, 3)}, path)
    assert np.array_equal(tensors_in(path.read_bytes())["a"], load_file(path)["a"].numpy())
