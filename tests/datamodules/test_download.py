import hashlib
import logging
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from unknot.datamodules import download
from unknot.datamodules.download import DownloadError, RemoteFile, fetch, one_at_a_time

CONTENT = random.Random(0).randbytes(2_500_000)  # more than two chunks
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers["Range"])
        self.server.paths.append(self.path)
        if self.path.startswith("/mirror/"):
            return with_ranges(self)
        answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        answer(self)

    def send(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Server that returns one answer after another, the last one repeatedly, and records the requested ranges."""

    answers: list[Answer]
    ranges: list[str | None]
    paths: list[str]
    closing: threading.Event

    def handle_error(self, *_: object) -> None:
        """Clients that hang up are part of the game."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/file.bin"

    @property
    def mirror(self) -> str:
        """Always has the whole file."""
        return f"http://127.0.0.1:{self.server_port}/mirror/file.bin"


def in_full(handler: Handler) -> None:
    handler.send(200, CONTENT)


def with_ranges(handler: Handler) -> None:
    asked = handler.headers["Range"]
    if asked is None:
        return in_full(handler)
    start = int(asked.removeprefix("bytes=").removesuffix("-"))
    if start >= len(CONTENT):
        return handler.send(416, Content_Range=f"bytes */{len(CONTENT)}")
    handler.send(206, CONTENT[start:], Content_Range=f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")


def cut_short(handler: Handler) -> None:
    handler.send(200, CONTENT[:HALF], length=len(CONTENT))


def stalled(handler: Handler) -> None:
    cut_short(handler)
    handler.server.closing.wait()


def without_content_range(handler: Handler) -> None:
    handler.send(206, CONTENT[1000:])


def range_cut_short(handler: Handler) -> None:
    """An honest part of what was asked for, as some servers limit their answers."""
    start = int((handler.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
    end = min(start + 1_000_000, len(CONTENT))
    handler.send(206, CONTENT[start:end], Content_Range=f"bytes {start}-{end - 1}/{len(CONTENT)}")


def too_few_announced(handler: Handler) -> None:
    handler.send(200, CONTENT[:HALF])


def chunked_and_cut(handler: Handler) -> None:
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n%b\r\n" % (HALF, CONTENT[:HALF]))
    handler.close_connection = True


def web_page(handler: Handler) -> None:
    handler.send(200, b"<html>please log in</html>", Content_Type="text/html; charset=utf-8")


def without_length(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(CONTENT)


def status(code: int) -> Answer:
    return lambda handler: handler.send(code, b"<html>sorry</html>")


def elsewhere(handler: Handler) -> None:
    handler.send(302, Location="/elsewhere")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as it:
        it.answers, it.ranges, it.paths, it.closing = [with_ranges], [], [], threading.Event()
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield it
        it.closing.set()
        it.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE", 0.001)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "file.bin"


@pytest.fixture
def part(path: Path) -> Path:
    path.parent.mkdir()
    return path.with_name("file.bin.part")


def assert_whole(path: Path) -> None:
    assert path.read_bytes() == CONTENT
    assert left(path) == [path]


def left(path: Path) -> list[Path]:
    """Return what lies beside a file, without the lock."""
    return sorted(each for each in path.parent.iterdir() if each.name != ".locks")


@pytest.mark.parametrize("known", [{}, {"md5": MD5}, {"sha256": SHA256}, {"md5": "0" * 32, "sha256": SHA256}])
def test_plain_download(server: Server, path: Path, known: dict[str, str]) -> None:
    assert fetch(server.url, path, **known) == path
    assert_whole(path)
    assert server.ranges == [None]


def test_a_checksum_makes_up_for_a_missing_length(server: Server, path: Path) -> None:
    server.answers = [without_length]
    fetch(server.url, path, MD5)
    assert_whole(path)


def test_without_length_and_checksum_nothing_is_believed(server: Server, path: Path) -> None:
    server.answers = [without_length]
    with pytest.raises(DownloadError, match="did not state the length of the file, and no checksum is known"):
        fetch(server.url, path)
    assert left(path) == []


@pytest.mark.parametrize("md5", [None, MD5])
def test_an_existing_file_is_not_fetched_again(server: Server, path: Path, md5: str | None) -> None:
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert fetch(server.url, path, md5) == path
    assert server.ranges == []


def test_a_wrong_file_put_there_by_hand_is_an_error_and_kept(server: Server, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(CONTENT[:HALF])
    with pytest.raises(DownloadError, match=f"not the complete published file.*expected {MD5}") as caught:
        fetch(server.url, path, MD5)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == CONTENT[:HALF]
    assert server.ranges == []


def test_a_partial_file_is_continued(server: Server, path: Path, part: Path) -> None:
    part.write_bytes(CONTENT[:1_234_567])
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == ["bytes=1234567-"]


def test_a_server_may_ignore_the_range(server: Server, path: Path, part: Path) -> None:
    server.answers = [in_full]
    part.write_bytes(CONTENT[:1_234_567])
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == ["bytes=1234567-"]


def test_a_lost_connection_is_taken_up_again(server: Server, path: Path) -> None:
    server.answers = [cut_short, with_ranges]
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_stall_is_taken_up_again(server: Server, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.3)
    server.answers = [stalled, with_ranges]
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert len(server.ranges) == 2


def test_what_arrived_serves_the_next_call(server: Server, path: Path) -> None:
    server.answers = [cut_short, status(404)]
    with pytest.raises(DownloadError):
        fetch(server.url, path, MD5)
    assert not path.exists()
    server.answers = [with_ranges]
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges[-1] == f"bytes={HALF}-"


def test_a_connection_that_is_always_cut_short_is_an_error(server: Server, path: Path) -> None:
    server.answers = [cut_short]
    with pytest.raises(DownloadError, match=f"closed after {HALF} of {len(CONTENT)} bytes"):
        fetch(server.url, path)
    assert not path.exists()
    assert len(server.ranges) == 1 + download.ATTEMPTS  # the first brought something


@pytest.mark.parametrize("md5", [None, MD5])
@pytest.mark.parametrize("answer", [cut_short, chunked_and_cut, range_cut_short])
def test_a_part_is_never_taken_for_the_whole(
    monkeypatch: pytest.MonkeyPatch, server: Server, path: Path, answer: Answer, md5: str | None
) -> None:
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    monkeypatch.setattr(download, "CHUNK", len(CONTENT))  # nothing that comes counts as progress
    server.answers = [answer]
    with pytest.raises(DownloadError):
        fetch(server.url, path, md5)
    assert not path.exists()
    server.answers = [with_ranges]
    fetch(server.url, path, md5)
    assert_whole(path)


def test_a_server_that_limits_its_answers_is_asked_again(server: Server, path: Path) -> None:
    server.answers = [cut_short, range_cut_short]
    fetch(server.url, path, MD5)
    assert_whole(path)


def test_a_wrong_length_that_the_server_believes_in_fails_by_checksum(server: Server, path: Path) -> None:
    server.answers = [too_few_announced]
    with pytest.raises(DownloadError, match=f"expected {MD5}"):
        fetch(server.url, path, MD5)
    assert left(path) == []


@pytest.mark.parametrize(("kind", "label", "found"), [("md5", "MD5", MD5), ("sha256", "SHA-256", SHA256)])
def test_a_wrong_checksum_is_an_error(server: Server, path: Path, kind: str, label: str, found: str) -> None:
    with pytest.raises(DownloadError, match=f"has {label} {found}, expected 0000"):
        fetch(server.url, path, **{kind: "0000"})
    assert left(path) == []
    assert server.ranges == [None]  # the whole file came and is another one: asking again will not help


def test_a_web_page_is_not_the_file(server: Server, path: Path) -> None:
    server.answers = [web_page]
    with pytest.raises(DownloadError, match="sent a web page instead of the file"):
        fetch(server.url, path)
    assert left(path) == []


def test_a_whole_part_only_needs_the_check(server: Server, path: Path, part: Path) -> None:
    part.write_bytes(CONTENT)  # killed just before the file got its name
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == [f"bytes={len(CONTENT)}-"]


def test_a_partial_file_of_something_else_is_thrown_away(server: Server, path: Path, part: Path) -> None:
    part.write_bytes(bytes(1000))
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == ["bytes=1000-", None]


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 10])
def test_a_too_long_partial_file_is_thrown_away(server: Server, path: Path, part: Path, size: int) -> None:
    part.write_bytes(bytes(size))
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == [f"bytes={size}-", None]


def test_a_range_nobody_asked_for_is_not_taken_for_the_file(server: Server, path: Path, part: Path) -> None:
    server.answers = [without_content_range, with_ranges]
    part.write_bytes(CONTENT[:2000])
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == ["bytes=2000-", None]


def test_redirects_are_followed_and_keep_the_range(server: Server, path: Path, part: Path) -> None:
    server.answers = [elsewhere, with_ranges]
    part.write_bytes(CONTENT[:5000])
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == ["bytes=5000-", "bytes=5000-"]


def test_server_errors_are_tried_again(server: Server, path: Path) -> None:
    server.answers = [status(503), with_ranges]
    fetch(server.url, path, MD5)
    assert_whole(path)


@pytest.mark.parametrize(("code", "requests"), [(404, 1), (403, 1), (416, 1), (503, 3), (429, 3), (408, 3)])
def test_refusals_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, server: Server, path: Path, code: int, requests: int
) -> None:
    monkeypatch.setattr(download, "ATTEMPTS", 3)
    server.answers = [status(code)]
    with pytest.raises(DownloadError) as caught:
        fetch(server.url, path, MD5, size=2_500_000)
    message = str(caught.value)
    assert server.url in message
    assert "file.bin (about 2 MB)" in message
    assert f"check that its MD5 is {MD5}, put it at {path} and run again" in message
    assert "\n" not in message
    assert len(server.ranges) == requests
    assert left(path) == []


def test_an_unreachable_server_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(DownloadError, match="refused") as caught:
            fetch(f"http://127.0.0.1:{taken.getsockname()[1]}/file.bin", path, MD5)
    message = str(caught.value)
    assert f"check that its MD5 is {MD5}, put it at {path}" in message
    assert "\n" not in message
    assert not path.exists()


# Pauses and mirrors.


def test_pauses_grow_and_end(server: Server, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(download, "PAUSE", 1.0)
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    server.answers = [status(503)]
    with pytest.raises(DownloadError, match="503"):
        fetch(server.url, path)
    assert pauses == [1.0, 2.0, 4.0]
    assert len(server.ranges) == download.ATTEMPTS == 4


@pytest.mark.parametrize("answer", [status(404), status(503), web_page, too_few_announced])
def test_the_next_mirror_serves_at_once(
    server: Server, path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download.time, "sleep", lambda _: pytest.fail("there was another mirror to ask"))
    server.answers = [answer]
    fetch([server.url, server.mirror], path, MD5)
    assert_whole(path)
    assert server.paths == ["/data/file.bin", "/mirror/file.bin"]


def test_a_mirror_goes_on_where_another_stopped(server: Server, path: Path) -> None:
    server.answers = [cut_short, status(404)]
    fetch([server.url, server.mirror], path, MD5)
    assert_whole(path)
    assert server.ranges == [None, f"bytes={HALF}-", f"bytes={HALF}-"]


def test_without_a_checksum_mirrors_do_not_share_their_parts(server: Server, path: Path) -> None:
    server.answers = [cut_short, status(404)]
    fetch([server.url, server.mirror], path)
    assert_whole(path)
    assert server.ranges == [None, f"bytes={HALF}-", None]


def test_all_mirrors_are_named_when_all_fail(server: Server, path: Path) -> None:
    server.answers = [status(404)]
    other = server.url + "2"
    with pytest.raises(DownloadError) as caught:
        fetch([server.url, other], path)
    assert f"{server.url}: HTTP Error 404: Not Found; {other}: HTTP Error 404" in str(caught.value)


def test_ones_own_mirror_goes_first(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNKNOT_CACHE", str(tmp_path))
    monkeypatch.setenv("UNKNOT_MIRROR", server.mirror.removesuffix("file.bin"))
    file = RemoteFile("file.bin", (server.url,), size=len(CONTENT), sha256=SHA256)
    assert file.fetch() == file.path == tmp_path / "downloads" / "file.bin"
    assert_whole(file.path)
    assert server.paths == ["/mirror/file.bin"]


# Several processes, and processes that die.

# The module alone: the package would import torch, which takes seconds.
FETCH = """
import runpy, sys
from pathlib import Path
fetch = runpy.run_path(sys.argv[1], run_name="download")["fetch"]
fetch(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
"""


def slowly(handler: Handler) -> None:
    """The whole file in ten pieces."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    for start in range(0, len(CONTENT), 250_000):
        handler.wfile.write(CONTENT[start : start + 250_000])
        time.sleep(0.03)


def start_fetch(url: str, path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", FETCH, str(download.__file__), url, str(path), MD5]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_two_processes_do_not_spoil_each_other(server: Server, path: Path) -> None:
    server.answers = [slowly]
    both = [start_fetch(server.url, path) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert_whole(path)
    assert server.ranges == [None]  # one of them waited for the other


def test_a_killed_download_is_continued(server: Server, path: Path, part: Path) -> None:
    server.answers = [stalled]
    process = start_fetch(server.url, path)
    while not part.exists() or part.stat().st_size < HALF:
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not path.exists()
    server.answers = [with_ranges]
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_second_process_says_that_it_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inside = threading.Event()

    def wait() -> None:
        with one_at_a_time(tmp_path / "file"):
            inside.set()

    with one_at_a_time(tmp_path / "file"), caplog.at_level(logging.WARNING):
        thread = threading.Thread(target=wait)
        thread.start()
        assert not inside.wait(0.2)
        assert "Another process is making" in caplog.text
    thread.join(timeout=10)
    assert inside.is_set()


def test_what_a_killed_process_had_begun_is_cleared_away(tmp_path: Path) -> None:
    orphan, other = tmp_path / ".file.abc.part", tmp_path / ".file2.abc.part"
    orphan.touch()
    other.touch()
    with one_at_a_time(tmp_path / "file"):
        assert not orphan.exists()
        assert other.exists()


# Disks.


def test_a_full_disk_is_said_at_once(server: Server, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(DownloadError, match=r"2 MB needed, 1 kB free.*UNKNOT_CACHE"):
        fetch(server.url, path, MD5)
    assert server.ranges == [None]
