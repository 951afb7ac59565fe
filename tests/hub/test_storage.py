"""The hub's storage: commits that are there or not, whatever happens, and many hands at once."""

import base64
import contextlib
import hashlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import get_session
from hypothesis import given, settings
from hypothesis import strategies as st

from unknot.checkpoints import client
from unknot.checkpoints.names import check_repo_id
from unknot.hub.server import attributes, trash
from unknot.hub.server.commit_body import CommitReader
from unknot.hub.server.file_names import check_file_name
from unknot.hub.server.quota import OverQuota
from unknot.hub.server.storage import Missing, Stale, Store, Taken


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    yield store
    store.close()


def put(store, files, parent=None, repo="me/x"):
    return store.commit(repo, "main", {path: store.keep(text) for path, text in files.items()}, [], parent, "s", "me")


def contents(store, revision="main", repo="me/x"):
    files = store.snapshot(repo, revision)[1].files
    return {path: store.path(file).read_bytes() for path, file in files.items()}


def test_text_of_a_binary_name_is_kept_with_lfs_as_the_attributes_say(store):
    store.create("me/x", False, "me", {".gitattributes": attributes.NEW})
    put(store, {"a.txt": b"text", "a.bin": b"text", "b/c.bin": b"text", "d.png": b"text", "e.txt": b"\0", "f.bin": b""})

    def is_text():
        return {path: file["text"] for path, file in store.snapshot("me/x", "main")[1].files.items()}

    before = {"a.txt": True, "a.bin": False, "b/c.bin": False, "d.png": True, "e.txt": False, "f.bin": True}
    before |= {".gitattributes": True}
    assert is_text() == before
    put(
        store,
        {".gitattributes": b"*.png filter=lfs\nb/* filter=lfs\n", "f.png": b"new", "b/g": b"new", "h.bin": b"new"},
    )
    assert is_text() == before | {"f.png": False, "b/g": False, "h.bin": True}
    assert contents(store)["f.png"] == b"new"


def test_history_is_kept(store):
    store.create("me/x", False, "me")
    first = put(store, {"a": b"1", "b/c": b"2"})
    second = put(store, {"a": b"3"}, first)
    assert contents(store, first) == {"a": b"1", "b/c": b"2"}
    assert contents(store) == contents(store, second) == {"a": b"3", "b/c": b"2"}
    assert [commit.id for commit in store.history("me/x", "main")][:2] == [second, first]
    assert put(store, {"a": b"3"}) == second  # no change, no commit
    store.commit("me/x", "main", {}, ["b/"], None, "s", "me")
    assert contents(store) == {"a": b"3"}


def test_hashes_are_those_of_git(store, tmp_path):
    kept = store.keep(b"text\n")
    subprocess.run(["git", "init", "-q", str(tmp_path / "git")], check=True)
    done = subprocess.run(["git", "hash-object", "--stdin"], input=b"text\n", capture_output=True, check=True)
    assert kept["sha1"] == done.stdout.decode().strip()
    assert kept["sha256"] == hashlib.sha256(b"text\n").hexdigest()


def test_an_upload_mends_what_the_disk_has_spoilt(store):
    store.create("me/x", False, "me")
    put(store, {"a": b"good"})
    store.path(store.snapshot("me/x", "main")[1].files["a"]).write_bytes(b"evil")
    put(store, {"b": b"good"})
    assert contents(store) == {"a": b"good", "b": b"good"}


def test_stale_parents_and_unknown_names_are_refused(store):
    store.create("me/x", False, "me")
    first = put(store, {"a": b"1"})
    put(store, {"a": b"2"}, first[:7])
    with pytest.raises(ValueError, match="7 or more digits"):
        put(store, {"a": b"3"}, "")
    with pytest.raises(Stale, match=f"no longer at {first}"):
        put(store, {"a": b"3"}, first)
    with pytest.raises(Taken):
        store.create("me/x", False, "me")
    for repo, revision, what in [("me/y", "main", "RepoNotFound"), ("me/x", "v1", "RevisionNotFound")]:
        with pytest.raises(Missing) as error:
            store.snapshot(repo, revision)
        assert error.value.what == what
    with pytest.raises(Missing):
        store.commit("me/x", "other", {}, [], None, "s", "me")


def test_two_servers_cannot_share_a_folder(store):
    with pytest.raises(OSError, match="is served by another process"):
        Store(store.root)


def blobs_of(store):
    return {path.name for path in (store.root / "blobs").glob("*/*")}


def test_a_deleted_repository_can_be_restored_for_some_days(store, monkeypatch):
    store.create("me/x", False, "me")
    put(store, {"a": b"1"})
    store.delete("me/x", "ann")
    assert store.repos() == []
    store.close()
    again = Store(store.root)
    assert again.sweep(age=0) == 0  # its contents stay with it
    assert [(row.id, row.user) for row in again.trash.rows()] == [("me/x", "ann")]
    again.create("me/x", True, "me")
    with pytest.raises(Taken):
        again.restore("me/x", "me")
    again.delete("me/x", "me")
    first = min(again.trash.rows(), key=lambda row: row.date)
    monkeypatch.setattr(again, "deleted", lambda repo_id: first)
    again.restore("me/x", "me")
    assert contents(again) == {"a": b"1"}
    again.delete("me/x", "me")
    monkeypatch.setattr(trash, "KEPT", -1.0)
    assert again.sweep(age=0) == 1
    assert (again.trash.rows(), blobs_of(again)) == ([], set())
    again.close()
    rows = [json.loads(line) for line in (store.root / "audit.jsonl").read_text().splitlines()]
    assert [(row["user"], row["action"]) for row in rows] == [
        *[("me", "create"), ("me", "commit"), ("ann", "delete"), ("me", "create"), ("me", "delete")],
        *[("me", "restore"), ("me", "delete")],
    ]


def test_contents_that_no_commit_names_are_swept(store):
    store.create("me/x", False, "me")
    head = put(store, {"a": b"1"})
    uploaded = store.keep(b"22")
    assert store.sweep() == 0  # a day for the commit that names it
    assert store.sweep(age=0) == 2
    with pytest.raises(ValueError, match="is not here any more"):
        store.commit("me/x", "main", {"b": uploaded}, [], None, "s", "me")
    line = json.dumps({"key": "file", "value": {"path": "b", "content": "MzMz"}}).encode()
    for stale in (True, False):  # contents of a refused commit go at once
        with contextlib.ExitStack() as stack:
            if stale:
                stack.enter_context(pytest.raises(Stale))
            reader = stack.enter_context(CommitReader(store, 100))
            reader.feed(json.dumps({"key": "header", "value": {"parentCommit": "0" * 40} if stale else {}}).encode())
            reader.feed(b"\n" + line)
            reader.finish("me/x", "main", "me")
        assert len(blobs_of(store)) == (1 if stale else 2)
    put(store, {"a": b"another"})
    store.squash("me/x", "main", "s", "me")
    assert [commit.summary for commit in store.history("me/x", "main")] == ["s"]
    assert store.sweep(age=0) == 1
    assert contents(store) == {"a": b"another", "b": b"333"}
    with pytest.raises(Missing):
        store.snapshot("me/x", head)
    (store.root / "repos/me/x/commits" / f"{store.repo('me/x').branches['main']}.json").write_text("{")
    store.keep(b"4444")
    assert store.sweep(age=0) == 0  # nothing is swept while something is unreadable
    assert len(store.problems) == 1


def test_a_sweep_beside_writers_loses_nothing(store):
    """Commits, deletions and moves while contents are swept; every content of what is left is whole."""
    for number in range(4):
        store.create(f"me/x{number}", False, "me")
    stop = threading.Event()

    def sweep():
        while not stop.wait(0.005):
            store.sweep(age=0)

    sweeper = threading.Thread(target=sweep, daemon=True)
    sweeper.start()
    made = turn = 0
    while turn < 40 or made == 0:  # on a busy machine, the sweep may come first for a long time
        repo = f"me/x{turn % 4}"
        with contextlib.suppress(ValueError):  # swept before its commit, which was refused
            put(store, {"a": b"%d" % turn, "b": b"same"}, repo=repo)
            made += 1
        if turn % 7 == 0:
            store.delete(repo, "me")
            store.restore(repo, "me")
        turn += 1
    stop.set()
    sweeper.join()
    for number in range(4):
        for commit in store.history(f"me/x{number}", "main"):
            for file in commit.files.values():
                assert hashlib.sha256(store.path(file).read_bytes()).hexdigest() == file["sha256"]


def test_a_quota_counts_each_content_once(tmp_path):
    store = Store(tmp_path / "store", quota=10)
    store.create("me/x", False, "me")
    put(store, {"a": b"12345678", "b": b"12345678"})
    for _ in range(2):
        with pytest.raises(OverQuota, match="me/ would store 11 bytes, more than its quota of 10 bytes"):
            put(store, {"c": b"123"})
        store.sweep(age=0)
    put(store, {"a": b"12"})
    store.commit("me/x", "main", {}, ["b"], None, "s", "me")
    store.squash("me/x", "main", "s", "me")
    assert store.sweep(age=0) == 8
    put(store, {"c": b"3456789"})
    store.contents.uploaded("me", "0" * 64, 1)
    with pytest.raises(OverQuota):
        put(store, {"c": b"x"})
    store.create("you/x", False, "you")
    put(store, {"c": b"0123456789"}, repo="you/x")  # another namespace has its own
    store.move("me/x", "you/y", "me")
    with pytest.raises(OverQuota):
        put(store, {"c": b"z"}, repo="you/x")
    store.close()


@pytest.mark.parametrize(
    "path",
    ["con", "nul.txt", "aux/x", "COM1", "a.", "a ", "a\u202eb", "a\u200bb", ".git/config", "a/../b", "x\ty", "é" * 200],
)
def test_names_that_no_disk_holds_are_refused(path):
    with pytest.raises(ValueError, match="is not a name for a file"):
        check_file_name(path)


def test_names_that_collide_are_refused(store):
    store.create("me/x", False, "me")
    put(store, {"d/e": b"1", "A.txt": b"1", ".env": b"1", ".github/w.yml": b"1", "e\u0301": b"1"})
    for path in ("d", "d/e/f", "a.TXT", "D/f", "\u00e9"):
        with pytest.raises(ValueError, match="cannot lie beside"):
            put(store, {path: b"2"})
    kept = store.keep(b"2")
    store.commit("me/x", "main", {"a.TXT": kept}, ["A.txt"], None, "s", "me")  # a file may change its name
    for repo in ("CON/x", "api/x", "me/aux", "ME/y"):
        with pytest.raises(ValueError, match=r"is not a repository's name|differ only in"):
            store.create(repo, False, "me")
    with pytest.raises(Taken):
        store.create("me/X", False, "me")
    store.move("me/x", "me/X", "me")
    assert (store.repos(), store.find("me/x")) == (["me/X"], "me/X")


@given(st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_accepted_names_stay_inside(text):
    for check in (check_file_name, check_repo_id):
        try:
            check(text)
        except ValueError:
            continue
        assert ".." not in text.split("/")
        assert "" not in text.split("/")
        assert not set(text) & set("\\\0:\n")


# Crashes

CRASH = """
import os, sys
from unknot.hub.server.storage import Store
store, after = Store(sys.argv[1]), int(sys.argv[2])
steps = 0
def counted(function):
    def step(*arguments, **keywords):
        global steps
        steps += 1
        if steps > after:
            os._exit(9)
        return function(*arguments, **keywords)
    return step
os.replace, os.fsync = counted(os.replace), counted(os.fsync)
files = {name: store.keep(b"new " + name.encode()) for name in ("a", "b")}
store.commit("me/x", "main", files, [], None, "s", "me")
"""


def test_a_crash_at_any_step_leaves_before_or_after(tmp_path):
    outcomes = []
    for step in range(20):
        root = tmp_path / str(step)
        store = Store(root)
        store.create("me/x", False, "me")
        old = put(store, {"a": b"old a", "b": b"old b"})
        store.close()
        done = subprocess.run([sys.executable, "-c", CRASH, str(root), str(step)], capture_output=True)
        assert done.returncode in (0, 9), done.stderr
        store = Store(root)
        found = contents(store)
        assert found in ({"a": b"old a", "b": b"old b"}, {"a": b"new a", "b": b"new b"})
        assert contents(store, old) == {"a": b"old a", "b": b"old b"}
        assert not list(root.rglob("*.part"))
        put(store, {"a": b"later"})  # and it works again
        store.close()
        outcomes.append(found["a"])
        if done.returncode == 0:
            break
    assert done.returncode == 0, "never ran to its end"
    assert outcomes[0] == b"old a"
    assert outcomes[-1] == b"new a"


def kill_and_look(serve, rounds, seed):
    """Commit pairs of equal files over and over, SIGKILL the server in between, start it again and look."""
    hub = serve()
    hub.api.create_repo("me/x")
    random_, attempted, acknowledged = random.Random(seed), {}, set()
    for _ in range(rounds):

        def write(url=hub.url):
            while True:
                number = len(attempted) + 1
                content = b"\0%d " % number + random_.randbytes(500_000)
                attempted[number] = hashlib.sha256(content).hexdigest()
                text = base64.b64encode(content).decode()
                lines = [{"key": "header", "value": {"summary": str(number)}}]
                lines += [{"key": "file", "value": {"path": name, "content": text}} for name in ("a.bin", "b.bin")]
                body = "\n".join(map(json.dumps, lines)).encode()
                try:
                    headers = {"authorization": f"Bearer {hub.token}"}
                    answer = get_session().post(f"{url}/api/models/me/x/commit/main", content=body, headers=headers)
                except Exception:  # the server is gone
                    return
                assert answer.status_code == 200
                acknowledged.add(number)

        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(random_.uniform(0.05, 0.3))
        while not acknowledged and writer.is_alive():  # a slow machine
            time.sleep(0.01)
        hub.kill()
        writer.join()
        hub.start()
        info = hub.api.model_info("me/x", files_metadata=True)
        hashes = {file.rfilename: file.lfs.sha256 for file in info.siblings if file.lfs}
        history = [int(commit.title) for commit in hub.api.list_repo_commits("me/x") if commit.title.isdecimal()]
        assert acknowledged <= set(history) <= set(attempted)  # what was acknowledged is there
        assert history == sorted(history, reverse=True)
        assert hashes == ({"a.bin": attempted[history[0]], "b.bin": attempted[history[0]]} if history else {})
        for sha256 in hashes.values():
            assert hashlib.sha256(hub.blob(sha256).read_bytes()).hexdigest() == sha256
    assert acknowledged


def test_sigkill_in_the_middle_of_a_body(serve, files):
    hub = serve()
    before = hub.upload("me/x", files)
    half, killed = threading.Event(), threading.Event()
    line = {"key": "file", "value": {"path": "model.safetensors", "content": "eHh4" * 100_000}}
    body = json.dumps(line).encode()

    def parts():
        yield body[: len(body) // 2]
        half.set()
        killed.wait(20)
        yield body[len(body) // 2 :]

    def write():
        try:
            hub.post("/api/models/me/x/commit/main", parts())
        except Exception as error:
            failures.append(error)

    failures = []
    writer = threading.Thread(target=write)
    writer.start()
    half.wait(20)
    hub.kill()
    killed.set()
    writer.join()
    assert failures
    hub.start()
    assert hub.api.model_info("me/x").sha == before
    assert set(hub.api.list_repo_files("me/x")) == {*files, ".gitattributes"}
    contents = [*files.values(), attributes.NEW]
    assert blob_files(hub) == {hashlib.sha256(content).hexdigest() for content in contents}
    hub.upload("me/x", {"model.safetensors": b"xxx" * 100_000})


def blob_files(hub):
    return {path.name for path in (hub.folder / "blobs").glob("*/*")}


def test_sigkill_during_uploads(serve):
    kill_and_look(serve, rounds=4, seed=0)


def test_an_interrupt_ends_it_quietly_and_others_are_told(serve, capfd):
    hub = serve()
    for words, message in [
        ([str(hub.folder.parent / "other"), "--port", hub.url.rpartition(":")[2]], "Cannot listen on 127.0.0.1:"),
        ([str(hub.folder), "--port", "0"], "is served by another process"),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", "from unknot.cli import main; main()", "hub", "serve", *words],
            capture_output=True,
            text=True,
        )
        assert message in done.stderr
    hub.process.send_signal(signal.SIGINT)
    assert hub.process.wait(20) == 0
    assert capfd.readouterr().err == ""
    hub.start()


@pytest.mark.slow
def test_sigkill_during_many_uploads(serve):
    kill_and_look(serve, rounds=40, seed=1)


# Many hands


def test_writers_without_a_parent_lose_nothing(here, name):
    here.api.create_repo(name)
    problems = []

    def write(worker):
        for turn in range(5):
            try:
                operation = CommitOperationAdd(f"{worker}-{turn}.txt", b"%d" % turn)
                here.api.create_commit(name, [operation], commit_message=f"{worker}-{turn}")
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(here.api.list_repo_files(name)) == 21
    assert len(list(here.api.list_repo_commits(name))) == 21


def test_of_writers_with_the_same_parent_one_wins(here, name):
    here.api.create_repo(name)
    parent = here.api.model_info(name).sha
    outcomes = []

    def write(worker):
        try:
            operation = CommitOperationAdd("a.txt", b"%d" % worker)
            here.api.create_commit(name, [operation], commit_message="x", parent_commit=parent)
            outcomes.append(worker)
        except HfHubHTTPError as error:
            outcomes.append(error.response.status_code)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes)[1:] == [412] * 3


# The rest of the API, by the client


def test_the_client_can_do_its_work(here, name):
    api = here.api
    assert api.whoami()["name"]
    assert api.create_repo(name).repo_id == name
    assert api.create_repo(name, exist_ok=True).repo_id == name
    with pytest.raises(HfHubHTTPError, match="already exists"):
        api.create_repo(name)
    api.create_commit(
        name,
        [
            CommitOperationAdd("a.txt", b"a"),
            CommitOperationAdd("d/b.txt", b"b"),
            CommitOperationAdd("d/e/c.bin", b"\0"),
        ],
        commit_message="Three",
    )
    assert sorted(api.list_repo_files(name)) == [".gitattributes", "a.txt", "d/b.txt", "d/e/c.bin"]
    assert {entry.path for entry in api.list_repo_tree(name)} == {".gitattributes", "a.txt", "d"}
    assert {entry.path for entry in api.list_repo_tree(name, "d")} == {"d/b.txt", "d/e"}
    assert api.get_paths_info(name, ["a.txt", "none"])[0].size == 1
    assert api.file_exists(name, "a.txt")
    assert not api.file_exists(name, "none")
    assert not api.repo_exists("me/none")
    api.create_tag(name, tag="v1")
    api.create_branch(name, branch="dev")
    api.create_commit(name, [CommitOperationDelete("d/", is_folder=True)], commit_message="Less", revision="dev")
    assert api.list_repo_files(name, revision="dev") == [".gitattributes", "a.txt"]
    assert len(api.list_repo_files(name, revision="v1")) == 4
    refs = api.list_repo_refs(name)
    assert ([tag.name for tag in refs.tags], {branch.name for branch in refs.branches}) == (["v1"], {"main", "dev"})
    api.delete_tag(name, tag="v1")
    assert not api.revision_exists(name, "v1")
    api.update_repo_settings(name, private=True)
    assert api.model_info(name).private
    api.delete_repo(name)
    assert not api.repo_exists(name)


def test_listing_filters_sorts_and_pages(here):
    for index in range(5):
        card = f"---\ntags: [paged, even-{index % 2 == 0}]\nlicense: mit\n---\n".encode()
        here.upload(f"pages/m{index}", {"README.md": card})
    names = [f"pages/m{index}" for index in range(5)]
    assert sorted(found.id for found in here.api.list_models(author="pages")) == names
    assert [found.id for found in here.api.list_models(author="pages", sort="last_modified")] == names[::-1]
    found = here.api.list_models(filter=["paged", "even-True", "license:mit"])
    assert sorted(one.id for one in found) == names[::2]
    url, pages = f"{here.url}/api/models?author=pages&limit=2", []
    while url:
        response = get_session().get(url)
        pages.append([one["id"] for one in response.json()])
        url = response.links.get("next", {}).get("url")
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted(name for page in pages for name in page) == names


def test_a_long_history_comes_page_by_page(here, name):
    here.api.create_repo(name)
    for number in range(4):
        here.upload(name, {"a.txt": str(number).encode()})
    reply = [commit.commit_id for commit in here.api.list_repo_commits(name)]
    first = get_session().get(f"{here.url}/api/models/{name}/commits/main?limit=2")
    assert [commit["id"] for commit in first.json()] == reply[:2]
    second = get_session().get(first.links["next"]["url"])
    assert [commit["id"] for commit in second.json()] == reply[2:4]
    last = get_session().get(second.links["next"]["url"])
    assert [commit["id"] for commit in last.json()] == reply[4:]
    assert "next" not in last.links


def test_ranges(here, name):
    here.upload(name, {"a.bin": bytes(range(256))})
    response = get_session().get(f"{here.url}/{name}/resolve/main/a.bin", headers={"Range": "bytes=10-19"})
    assert (response.status_code, response.content) == (206, bytes(range(10, 20)))


def test_tokens_of_several_users(serve, tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("ann token-of-ann  # the first\nbob token-of-bob\n")
    hub = serve("--tokens", str(path))
    for user in ("ann", "bob"):
        hub.token = f"token-of-{user}"
        assert hub.api.whoami()["name"] == user
        assert hub.api.create_repo("mine").repo_id == f"{user}/mine"
    assert json.loads((hub.folder / "repos/ann/mine/repo.json").read_text())["private"] is False


def test_large_files_with_the_client_as_it_comes(here, name, tmp_path):
    """With xet, which this hub does not have, the client knows one other way: inside the commit."""
    here.api.create_repo(name)
    big = tmp_path / "big"
    big.write_bytes(random.Random(0).randbytes(70_000_000))
    here.api.upload_file(repo_id=name, path_or_fileobj=big, path_in_repo="big.safetensors")
    path = Path(here.api.hf_hub_download(name, "big.safetensors", cache_dir=tmp_path / "cache"))
    assert path.read_bytes() == big.read_bytes()


def test_very_large_files_go_beside_the_commit(here, name, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    here.api.create_repo(name)
    content = random.Random(0).randbytes(100_000)
    oid = hashlib.sha256(content).hexdigest()
    asked = {"operation": "upload", "objects": [{"oid": oid, "size": len(content)}]}
    answer = here.post(f"/{name}.git/info/lfs/objects/batch", json.dumps(asked).encode()).json()
    address = answer["objects"][0]["actions"]["upload"]["href"]
    assert get_session().put(address, content=content[:-1] + b"?").status_code == 422
    assert get_session().put(address + "0", content=content).status_code == 403
    assert get_session().put(address, content=content).status_code == 200
    line = {"key": "lfsFile", "value": {"path": "big.bin", "algo": "sha256", "oid": oid, "size": len(content)}}
    assert here.post(f"/api/models/{name}/commit/main", json.dumps(line).encode()).status_code == 200
    assert Path(here.api.hf_hub_download(name, "big.bin")).read_bytes() == content
    answer = here.post(f"/{name}.git/info/lfs/objects/batch", json.dumps(asked).encode()).json()
    assert "actions" not in answer["objects"][0]


def test_files_too_large_for_a_commit_are_told_the_way(here, name, tmp_path, monkeypatch):
    here.api.create_repo(name)
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate((1 << 30) + 1)
    upload = partial(here.api.upload_file, repo_id=name, path_or_fileobj=big, path_in_repo="big.safetensors")
    with pytest.raises(ValueError, match="takes files of this size without xet: set HF_HUB_DISABLE_XET=1"):
        client.ask(here.url, name, upload, deadline=None)


def test_what_is_there_is_not_sent_again(here, name):
    """Weights have no hash of git's on the disk; it is made when a client asks."""
    here.api.create_repo(name)
    content = b"\0" + random.Random(0).randbytes(5000)
    first = here.api.upload_file(repo_id=name, path_or_fileobj=content, path_in_repo="a.safetensors")
    asked = {"files": [{"path": "a.safetensors", "size": len(content), "sample": ""}]}
    [reply] = here.post(f"/api/models/{name}/preupload/main", json.dumps(asked).encode()).json()["files"]
    assert reply["oid"] == hashlib.sha1(b"blob 5001\0" + content).hexdigest()
    again = here.api.upload_file(repo_id=name, path_or_fileobj=content, path_in_repo="a.safetensors")
    assert again.oid == first.oid


def test_the_same_content_by_another_way_is_no_change(store):
    store.create("me/x", False, "me")
    kept = store.keep(b"text")
    first = store.commit("me/x", "main", {"a": kept}, [], None, "s", "me")
    reply = store.contents.announced(kept["sha256"], 4)
    assert reply != kept
    assert store.commit("me/x", "main", {"a": reply}, [], None, "s", "me") == first
