import hashlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from unknot.datamodules import download
from unknot.datamodules.download import DownloadError, fetch

CONTENT = random.Random(0).randbytes(2_500_000)  # more than two chunks
MD5 = hashlib.md5(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers["Range"])
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
    """Gives one answer after another, the last one for ever, and remembers the ranges it was asked for."""

    answers: list[Answer]
    ranges: list[str | None]
    closing: threading.Event

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/file.bin"


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
        it.answers, it.ranges, it.closing = [with_ranges], [], threading.Event()
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield it
        it.closing.set()
        it.shutdown()
        thread.join()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "file.bin"


@pytest.fixture
def part(path: Path) -> Path:
    path.parent.mkdir()
    return path.with_name("file.bin.part")


def assert_whole(path: Path) -> None:
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("md5", [None, MD5])
@pytest.mark.parametrize("answer", [with_ranges, without_length])
def test_plain_download(server: Server, path: Path, answer: Answer, md5: str | None) -> None:
    server.answers = [answer]
    assert fetch(server.url, path, md5) == path
    assert_whole(path)
    assert server.ranges == [None]


def test_an_existing_file_is_not_fetched_again(server: Server, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"put here by hand")
    assert fetch(server.url, path, MD5) == path
    assert path.read_bytes() == b"put here by hand"
    assert server.ranges == []


def test_a_partial_file_is_continued(server: Server, path: Path, part: Path) -> None:
    part.write_bytes(CONTENT[:1_234_567])
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == ["bytes=1234567-"]


def test_a_server_may_ignore_the_range(server: Server, path: Path, part: Path) -> None:
    server.answers = [in_full]
    part.write_bytes(CONTENT[:1_234_567])
    fetch(server.url, path)
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
    assert len(server.ranges) == download.ATTEMPTS


def test_a_wrong_checksum_is_an_error(server: Server, path: Path) -> None:
    with pytest.raises(DownloadError, match=f"has MD5 {MD5}, expected {'0' * 32}"):
        fetch(server.url, path, "0" * 32)
    assert list(path.parent.iterdir()) == []
    assert server.ranges == [None] * download.ATTEMPTS


def test_a_partial_file_of_something_else_is_thrown_away(server: Server, path: Path, part: Path) -> None:
    part.write_bytes(bytes(1000))
    fetch(server.url, path, MD5)
    assert_whole(path)
    assert server.ranges == ["bytes=1000-", None]


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 10])
def test_a_too_long_partial_file_is_thrown_away(server: Server, path: Path, part: Path, size: int) -> None:
    part.write_bytes(bytes(size))
    fetch(server.url, path)
    assert_whole(path)
    assert server.ranges == [f"bytes={size}-", None]


def test_a_range_nobody_asked_for_is_not_taken_for_the_file(server: Server, path: Path, part: Path) -> None:
    server.answers = [without_content_range, with_ranges]
    part.write_bytes(CONTENT[:2000])
    fetch(server.url, path)
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


@pytest.mark.parametrize(("code", "requests"), [(404, 1), (403, 1), (503, 3), (416, 3)])
def test_refusals_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, server: Server, path: Path, code: int, requests: int
) -> None:
    monkeypatch.setattr(download, "ATTEMPTS", 3)
    server.answers = [status(code)]
    with pytest.raises(DownloadError) as caught:
        fetch(server.url, path, MD5)
    message = str(caught.value)
    assert server.url in message
    assert f"put the file (MD5 {MD5}) at {path}" in message
    assert "\n" not in message
    assert len(server.ranges) == requests
    assert list(path.parent.iterdir()) == []


def test_an_unreachable_server_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(DownloadError, match="refused") as caught:
            fetch(f"http://127.0.0.1:{taken.getsockname()[1]}/file.bin", path, MD5)
    message = str(caught.value)
    assert f"put the file (MD5 {MD5}) at {path}" in message
    assert "\n" not in message
    assert not path.exists()
