"""A hub that a lab can trust: nothing of others is touched, nothing hidden comes out, one bad thing stops no other."""

import asyncio
import base64
import concurrent.futures
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import get_session

from unknot.hub.server import catalogue
from unknot.hub.server.access import Users
from unknot.hub.server.app import hub_app
from unknot.hub.server.commit_body import CommitReader
from unknot.hub.server.commit_log import Damaged
from unknot.hub.server.folder import MARK
from unknot.hub.server.storage import MAX_FILES, Missing, Store, Taken
from unknot.hub.web import serving

UNKNOT = "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    yield store
    store.close()


def put(store, repo, files):
    if repo not in store.repos():
        store.create(repo, False, "me")
    added = {path: store.keep(content) for path, content in files.items()}
    return store.commit(repo, "main", added, [], None, "s", "me")


def opened_again(store):
    store.close()
    return Store(store.root)


@pytest.fixture
def inside(tmp_path):
    """A hub in this process, whose limits a test can change."""
    store = Store(tmp_path / "inside")
    listening = serving.listen("127.0.0.1", 0)
    server = serving.make_server(hub_app(store, Users({"token-of-me": "me"})), log_level="critical")
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    yield store, listening.getsockname()
    server.should_exit = True
    thread.join()
    store.close()


def ask(address, text: bytes) -> bytes:
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(text)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


GET = b"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


# Whose folder it is


@pytest.mark.parametrize("names", [["trash/letter.txt", "blobs/photos/holiday.jpg"], ["thesis.tex"], ["repos/a/b/c"]])
def test_a_stranger_s_folder_is_refused_and_stays(tmp_path, names):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(
        FileExistsError, match=r"is not the folder of a hub, and not empty .* Give a new or empty folder"
    ):
        Store(tmp_path)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_hub_from_before_the_mark_is_taken_over(store):
    put(store, "me/x", {"a": b"1"})
    store.close()
    (store.root / MARK).unlink()
    (store.root / "cards").rmdir()
    again = Store(store.root)
    assert again.repos() == ["me/x"]
    again.close()
    assert (store.root / MARK).exists()


def test_only_what_is_ours_is_swept(store):
    put(store, "me/x", {"a": b"1"})
    for name in ("trash/letter.txt", "blobs/ab/notes.txt", "blobs/.draft.part"):
        (store.root / name).parent.mkdir(exist_ok=True)
        (store.root / name).write_text("precious")
    opened_again(store).close()
    assert all((store.root / name).exists() for name in ("trash/letter.txt", "blobs/ab/notes.txt", "blobs/.draft.part"))


def test_nobody_else_on_the_machine_reads_it(store):
    put(store, "me/x", {"a": b"1"})
    for path in store.root.rglob("*"):
        if path.is_file() and path.name not in ("lock", MARK) and path.parent.parent.name != "cards":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for name in ("blobs", "repos", "trash", "cards"):
        assert stat.S_IMODE((store.root / name).stat().st_mode) == 0o700


# What stays hidden


def test_a_harmless_setting_does_not_make_it_public(here, name):
    here.api.create_repo(name, private=True)
    with pytest.raises(HfHubHTTPError, match="no setting gated; nothing was changed"):
        here.api.update_repo_settings(name, gated="auto")
    assert here.api.model_info(name).private
    with pytest.raises(RepositoryNotFoundError):
        HfApi(endpoint=here.url, token=False).model_info(name)
    here.api.update_repo_settings(name, private=False)
    assert not HfApi(endpoint=here.url, token=False).model_info(name).private


def test_a_repository_moves_with_its_history(here, name):
    here.upload(name, {"a.txt": b"1"})
    here.api.move_repo(name, f"{name}-b")
    assert here.api.list_repo_files(f"{name}-b") == [".gitattributes", "a.txt"]
    assert here.api.model_info(name).id == f"{name}-b"  # the old name leads there
    assert Path(here.api.hf_hub_download(name, "a.txt")).read_bytes() == b"1"
    here.api.upload_file(repo_id=name, path_or_fileobj=b"2", path_in_repo="b.txt")
    assert here.api.list_repo_files(f"{name}-b") == [".gitattributes", "a.txt", "b.txt"]
    here.api.create_repo(name)  # until somebody else takes it
    here.upload(name, {"a.txt": b"2"})
    assert here.api.list_repo_files(name) == [".gitattributes", "a.txt"]
    with pytest.raises(HfHubHTTPError, match="already exists"):
        here.api.move_repo(name, f"{name}-b")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_other_names_that_lead_here_are_refused(inside, host):
    _, address = inside
    answer = ask(address, GET.replace(b"127.0.0.1", host.encode()))
    assert answer.split()[1] == b"403"
    assert b"This server is not called" in answer


# One bad thing stops no other

CARDS = ["a: !!bool x", "a: !!int ''", "a: !!timestamp foo", "a: !!float ''", "unknot: {bytes: 1" + "0" * 400 + "}"]


@pytest.mark.parametrize("card", CARDS, ids=lambda text: text[:20])
def test_a_card_does_not_take_the_list_down(here, name, card):
    here.upload(name, {"README.md": f"---\ntags: [unknot]\n{card}\n---\n".encode()})
    assert name in [found.id for found in here.api.list_models()]
    done = subprocess.run(
        [sys.executable, "-c", UNKNOT, "hub", "list", "--endpoint", here.url], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_no_text_can_hold(here, name):
    here.api.create_repo(name)
    line = json.dumps({"key": "file", "value": {"path": "a\udc80.txt", "content": "eA=="}})
    answer = here.post(f"/api/models/{name}/commit/main", line.encode())
    assert (answer.status_code, "not a name for a file" in answer.text) == (422, True)
    header = {"key": "header", "value": {"summary": "bad \udc80 summary"}}
    file = {"key": "file", "value": {"path": "a.txt", "content": "eA=="}}
    assert here.post(f"/api/models/{name}/commit/main", "\n".join(map(json.dumps, [header, file])).encode())
    assert len(here.api.list_repo_commits(name)) == 2
    assert here.api.list_models(search=name)


def damage(store, kind):
    folder = store.root / "repos/me/bad"
    if kind == "an old commit":
        put(store, "me/bad", {"b": b"later"})
        oldest = list(store.history("me/bad", "main"))[1].id
        (folder / "commits" / f"{oldest}.json").write_text("{")
    elif kind == "the last commit":
        (folder / "commits" / f"{store.repo('me/bad').branches['main']}.json").write_bytes(b"\0" * 100)
    elif kind == "repo.json":
        (folder / "repo.json").write_text('{"private": false}')
    elif kind == "no repo.json":
        (folder / "repo.json").unlink()
    elif kind == "no date":
        path = folder / "commits" / f"{store.repo('me/bad').branches['main']}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"date": None}))
    elif kind == "an old commit is lost":
        put(store, "me/bad", {"a": b"other content", "b": b"later"})
        (folder / "commits" / f"{list(store.history('me/bad', 'main'))[1].id}.json").unlink()
    elif kind == "a lost commit":
        (folder / "commits" / f"{store.repo('me/bad').branches['main']}.json").unlink()


OLD = ("an old commit", "an old commit is lost")


@pytest.mark.parametrize("kind", [*OLD, "the last commit", "repo.json", "no repo.json", "no date", "a lost commit"])
def test_what_is_damaged_is_named_and_the_others_are_served(store, kind):
    put(store, "me/good", {"README.md": b"---\ntags: [x]\n---\n"})
    put(store, "me/bad", {"a": b"content of a"})
    kept = {path.name for path in store.root.glob("blobs/*/*")}
    damage(store, kind)
    again = opened_again(store)
    try:
        assert again.problems
        assert all("me/bad: " in problem and ".json" in problem for problem in again.problems)
        assert kept <= {path.name for path in store.root.glob("blobs/*/*")}  # a restored file finds its contents
        rows = [row.repo.id for row in catalogue.Catalogue(again).rows()]
        assert rows == (["me/bad", "me/good"] if kind in OLD else ["me/good"])
        if kind not in OLD:
            with pytest.raises(Damaged, match="me/bad: "):
                again.snapshot("me/bad", "main")
            with pytest.raises(Taken, match="me/bad already exists"):  # nor is it started again over what is left
                again.create("me/bad", False, "me")
        put(again, "me/good", {"a": b"more"})
    finally:
        again.close()


def test_what_is_damaged_while_it_is_served_hides_no_other(inside):
    store, address = inside
    for repo in ("me/bad", "me/good", "me/moved"):
        put(store, repo, {"a": b"1"})
    full = GET.replace(b"/api/models", b"/api/models?full=true")
    assert b"me/bad" in ask(address, full)
    head = store.repo("me/bad").branches["main"]
    (store.root / "repos/me/bad/commits" / f"{head}.json").unlink()
    store.move("me/moved", "me/elsewhere", "me")  # what is in memory is forgotten
    answer = ask(address, full)
    assert answer.startswith(b"HTTP/1.1 200")
    assert (b"me/good" in answer, b"me/bad" in answer) == (True, False)
    with pytest.raises(Damaged, match=r"me/bad: commits/.* is missing"):
        put(store, "me/bad", {"b": b"2"})


def test_a_creation_that_was_interrupted_is_made_again(store):
    store.create("me/x", True, "me")
    (store.root / "repos/me/x/repo.json").unlink()
    again = opened_again(store)
    try:
        assert again.problems == []
        with pytest.raises(Missing):
            again.repo("me/x")
        assert again.create("me/x", True, "me").private
    finally:
        again.close()


def test_a_lost_card_and_a_lost_file(inside):
    store, address = inside
    put(store, "me/x", {"README.md": b"---\ntags: [x]\n---\n", "b": b"2"})
    put(store, "me/y", {"README.md": b"---\ntags: [y]\n---\n"})
    for file in store.snapshot("me/x", "main")[1].files.values():
        store.path(file).unlink()
    assert b"me/x" in ask(address, GET)
    assert b"me/y" in ask(address, GET)
    answer = ask(address, GET.replace(b"/api/models", b"/me/x/resolve/main/b"))
    assert answer.split()[1] == b"422"
    assert b"Damaged on the disk of this hub" in answer


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_an_upload_mends_a_flipped_file(here, name, tmp_path, size):
    content = b"\0" + os.urandom(size)
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    here.api.create_repo(name)
    upload = {"path_or_fileobj": str(path), "path_in_repo": "model.bin", "repo_id": name}
    here.api.upload_file(**upload)
    blob = next(found for found in (here.folder / "blobs").glob("*/*") if found.read_bytes() == content)
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    here.api.upload_file(**upload)
    assert blob.read_bytes() == content


def test_cards_are_read_once(store, monkeypatch):
    for number in range(5):
        put(store, f"me/x{number}", {"README.md": f"---\ntags: [t{number}]\n---\n".encode()})
    read = []
    original = catalogue.read_card
    monkeypatch.setattr(catalogue, "read_card", lambda text: read.append(1) or original(text))
    listed = catalogue.Catalogue(store)
    for _ in range(3):
        assert [row.tags for row in listed.rows()] == [(f"t{number}",) for number in range(5)]
    assert len(read) == 5
    put(store, "me/x3", {"README.md": b"---\ntags: [new]\n---\n"})
    store.delete("me/x4", "me")
    assert [row.tags for row in listed.rows()][3:] == [("new",)]
    assert len(read) == 6
    again = opened_again(store)
    assert len(list(catalogue.Catalogue(again).rows())) == 4
    assert len(read) == 6
    again.close()


# The body of a commit


def body(content: bytes, **value) -> bytes:
    text = base64.b64encode(content).decode()
    lines = [{"key": "header", "value": {"summary": "s"}}]
    lines += [{"key": "file", "value": {"content": text, "path": "big.bin", "encoding": "base64", **value}}]
    lines += [{"key": "file", "value": {"content": "eA==", "path": "small.txt"}}]
    return "\n".join(map(json.dumps, lines)).encode()


@pytest.mark.parametrize("piece", [1000, 1_000_003, 1 << 24])
def test_a_long_line_is_read_in_parts(store, piece):
    store.create("me/x", False, "me")
    content = os.urandom(3_000_001)
    sent = body(content)
    with CommitReader(store, 4_000_000) as reader:
        for start in range(0, len(sent), piece):
            reader.feed(sent[start : start + piece])
            assert len(reader._pending) <= (1 << 20) + piece
        reader.finish("me/x", "main", "me")
    files = store.snapshot("me/x", "main")[1].files
    assert {path: store.path(file).read_bytes() for path, file in files.items()} == {
        "big.bin": content,
        "small.txt": b"x",
    }
    assert files["big.bin"] == store.keep(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sent: sent.replace(b"big.bin", b"../big.bin"), "not a name for a file"),
        (lambda sent: sent[:2_000_000], "ends within a file"),
        (lambda sent: sent[:2_000_000] + b"!" + sent[2_000_001:], "not base64"),
        (lambda sent: b"x" * 2_000_000, "too long, and does not start with the content of a file"),
        (lambda sent: sent.replace(b'"encoding": "base64"', b'"encoding": "utf-8"'), "encoded as base64"),
    ],
)
def test_broken_bodies_leave_nothing(store, change, message):
    store.create("me/x", False, "me")
    before = store.snapshot("me/x", "main")[1].id

    def commit():
        with CommitReader(store, 4_000_000) as reader:
            reader.feed(change(body(os.urandom(3_000_000))))
            reader.finish("me/x", "main", "me")

    with pytest.raises(ValueError, match=message):
        commit()
    assert store.snapshot("me/x", "main")[1].id == before
    assert not list(store.root.rglob("*.part"))


@pytest.mark.parametrize("key", ["deletedFile", "file"])
def test_a_commit_of_endless_lines_is_refused_while_it_comes(store, key):
    with CommitReader(store, 1000) as reader:

        def feed(number):
            value = {"path": str(number), "content": ""}
            reader.feed(json.dumps({"key": key, "value": value}).encode() + b"\n")

        for number in range(2 * MAX_FILES):
            feed(number)
        with pytest.raises(ValueError, match=r"more than 2,000 changes.*several"):
            feed("one more")


def test_a_file_is_refused_while_it_comes(serve):
    hub = serve("--max-file", "2")
    hub.api.create_repo("me/x")
    answer = hub.post("/api/models/me/x/commit/main", body(bytes(5_000_000)))
    assert (answer.status_code, "more than 2,097,152 bytes" in answer.text) == (413, True)


# Slow and many clients, the end, and a full disk


def test_small_answers_do_not_wait():
    """Nagle's algorithm holds back the second packet of an answer until the first is acknowledged, 40 ms later."""

    async def options():
        found = asyncio.get_running_loop().create_future()

        def connected(reader, writer):
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = serving.listen("127.0.0.1", 0)
        server = await asyncio.start_server(connected, sock=listening)
        _, writer = await asyncio.open_connection(*listening.getsockname())
        option = await asyncio.wait_for(found, 10)
        writer.close()
        server.close()
        return option

    assert asyncio.run(options())


def test_half_a_request_is_let_go(inside, monkeypatch):
    _, address = inside
    monkeypatch.setattr(serving, "HEADERS", 0.3)
    assert ask(address, b"GET / HTTP/1.1\r\nHost: 127") == b""
    first = GET.replace(b"Connection: close\r\n", b"")
    assert ask(address, first + b"GET / HTTP/1.1\r\nHos").count(b"HTTP/1.1 ") == 1


def test_many_half_requests_keep_nobody_out(inside, monkeypatch):
    _, address = inside
    monkeypatch.setattr(serving, "_descriptors", lambda: 256)
    held = [socket.create_connection(address) for _ in range(200)]
    for connection in held:
        connection.sendall(b"GET / HTTP/1.1\r\n")
    for _ in range(5):
        assert ask(address, GET).startswith(b"HTTP/1.1 200")
    assert len(serving._Protocol.waiting) <= 64
    for connection in held:
        connection.close()


def test_a_body_that_stalls_is_given_up(inside, monkeypatch):
    store, address = inside
    store.create("me/x", False, "me")
    monkeypatch.setattr(serving, "STALL", 0.3)
    head = b"POST /api/models/me/x/commit/main HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer token-of-me\r\n"
    answer = ask(address, head + b"Content-Length: 1000\r\nConnection: close\r\n\r\n{")
    assert answer.split()[1] == b"408"


@pytest.mark.parametrize("path", [b"/api/models/me/x/commit/main", b"/api/validate-yaml"])
def test_a_body_that_drips_from_a_stranger_is_given_up(inside, monkeypatch, path):
    """A byte now and then would hold a connection for ever."""
    _, address = inside
    monkeypatch.setattr(serving, "STALL", 0.5)
    monkeypatch.setattr(serving, "WHOLE", 0.5)
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n")
        connection.setblocking(False)
        for _ in range(100):
            time.sleep(0.1)
            try:
                connection.sendall(b" ")
                assert connection.recv(100).split()[1] in (b"401", b"408")
                break
            except BlockingIOError:
                continue
        else:
            pytest.fail("ten seconds later it still listens")


@pytest.mark.parametrize("count", [1, 2])
def test_told_to_stop_it_stops_and_keeps_what_it_had(serve, files, count):
    hub = serve()
    before = hub.upload("me/x", files)
    host, port = hub.url.removeprefix("http://").split(":")
    stalled = socket.create_connection((host, int(port)))
    head = f"POST /api/models/me/x/commit/main HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {hub.token}\r\n"
    stalled.sendall(f"{head}Content-Length: 9000000\r\n\r\n".encode() + body(bytes(5_000_000))[:4_000_000])
    time.sleep(0.3)
    for _ in range(count):
        hub.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    hub.process.wait(20)
    stalled.close()
    hub.start()
    assert hub.api.model_info("me/x").sha == before
    assert not list(hub.folder.rglob("*.part"))


def test_a_full_disk_says_so_and_loses_nothing(serve, files, tmp_path):
    hub = serve()
    before = hub.upload("me/x", files)
    hub.kill()
    words = [sys.executable, "-c", UNKNOT, "hub", "serve", str(hub.folder), "--port", "0"]
    limit = (1_000_000, resource.RLIM_INFINITY)  # no file can grow beyond, as on a disk that has no more room
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    )
    hub.process, hub.url = process, process.stdout.readline().split()[-1]
    answer = hub.post("/api/models/me/x/commit/main", body(os.urandom(3_000_000)))
    assert answer.status_code == 507
    assert "The disk of this hub is full, and nothing was changed" in answer.text
    assert hub.api.model_info("me/x").sha == before
    assert not list(hub.folder.rglob("*.part"))
    hub.upload("me/x", {"small.txt": b"fits"})


def test_wrong_tokens_come_one_after_the_other(inside):
    """Many guess at once: everyone is refused, and the right token is not kept waiting behind them for long."""
    _, address = inside
    url = f"http://{address[0]}:{address[1]}/api/whoami-v2"

    def guess(token):
        return get_session().get(url, headers={"authorization": f"Bearer {token}"}).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(guess, [f"wrong-{number}" for number in range(16)])) == {401}
    assert guess("token-of-me") == 200
