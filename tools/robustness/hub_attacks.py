"""`unknot hub serve` under attack: stopped and killed during writes, slow and incomplete clients, a full disk.

Each part starts its own server, attacks it, restarts the server if it ended, and counts lost data.

    python tools/robustness/hub_attacks.py --seconds 20 --kills 20
"""

import argparse
import base64
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SERVE = "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"
REPO = "me/x"


class Hub:
    """Server in its own process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        """Serve the folder."""
        words = [sys.executable, "-c", SERVE, "hub", "serve", str(self.folder), "--port", "0"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(re.findall(r"\d+", self.process.stdout.readline())[-1])
        self.token = (self.folder / "tokens.txt").read_text().split()[1]

    def end(self, sent: int = signal.SIGKILL) -> float:
        """Send a signal and return the seconds until the process ends."""
        start = time.perf_counter()
        self.process.send_signal(sent)
        self.process.wait(120)
        return time.perf_counter() - start

    def memory(self) -> float:
        """Peak memory in megabytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) / 1024

    def seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, method: str, path: str, body: bytes | None = None, timeout: float = 120) -> tuple[int, bytes]:
        """Return status and content of a response."""
        return self.answer(method, path, body, timeout)[:2]

    def answer(self, method: str, path: str, body: bytes | None, timeout: float) -> tuple[int, bytes, str]:
        """Return status and content of a response, and the address of the next page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, {"authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            following = re.match(r"<https?://[^/]*(/[^>]*)>", answer.headers.get("link", ""))
            return answer.status, answer.read(), following[1] if following else ""
        finally:
            connection.close()

    def create(self) -> None:
        """Create the repository to write to."""
        assert self.ask("POST", "/api/repos/create", b'{"name": "x", "organization": "me"}')[0] == 200

    def commit(self, title: str, files: dict[str, bytes]) -> int:
        """Make a commit and return its status."""
        return self.ask("POST", f"/api/models/{REPO}/commit/main", body(title, files))[0]

    def half(self, sent: bytes, announced: int) -> socket.socket:
        """Open a connection and send the first part of a commit."""
        head = f"POST /api/models/{REPO}/commit/main HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        head += f"Authorization: Bearer {self.token}\r\nContent-Length: {announced}\r\n\r\n"
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(head.encode() + sent)
        return connection

    def titles(self) -> list[str]:
        """Return the titles of all commits, last first."""
        found, path = [], f"/api/models/{REPO}/commits/main"
        while path:
            _, content, path = self.answer("GET", path, None, 120)
            found += [one["title"] for one in json.loads(content)]
        return found

    def whole(self) -> int:
        """Return the number of files that were read back with their announced hash."""
        listing = json.loads(self.ask("GET", f"/api/models/{REPO}?blobs=true")[1])
        for file in listing["siblings"]:
            content = self.ask("GET", f"/{REPO}/resolve/main/{file['rfilename']}")[1]
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            expected = file["lfs"]["sha256"] if "lfs" in file else file["blobId"]
            assert expected in (hashlib.sha256(content).hexdigest(), git), file
        return len(listing["siblings"])

    def parts(self) -> int:
        """Return the number of files left by interrupted writers."""
        return len(list(self.folder.rglob("*.part")))


@contextmanager
def hub(folder: Path) -> Iterator[Hub]:
    """Serve a hub with a repository during the block."""
    served = Hub(folder)
    try:
        served.create()
        yield served
    finally:
        served.process.kill()
        served.process.wait()


def body(title: str, files: dict[str, bytes]) -> bytes:
    """Return the body of a commit, as clients send it."""
    lines = [{"key": "header", "value": {"summary": title}}]
    for path, content in files.items():
        lines.append({"key": "file", "value": {"path": path, "content": base64.b64encode(content).decode()}})
    return "\n".join(map(json.dumps, lines)).encode()


def stopping(folder: Path, uploads: int) -> str:
    """SIGTERM while uploads stall, and one of them continues."""
    with hub(folder) as served:
        assert served.commit("before", {"a.bin": os.urandom(100_000)}) == 200
        sent = body("half", {"b.bin": os.urandom(3_000_000)})
        stalled = [served.half(sent[: len(sent) // 2], len(sent)) for _ in range(uploads)]
        last = body("finished", {"c.bin": os.urandom(3_000_000)})
        going = served.half(last[:-1000], len(last))
        time.sleep(1)
        threading.Timer(0.5, going.sendall, [last[-1000:]]).start()
        taken = served.end(signal.SIGTERM)
        answer = b""
        with suppress(OSError):
            answer = going.recv(100)
        for connection in [*stalled, going]:
            connection.close()
        served.start()
        kept, parts = served.titles(), served.parts()
        return (
            f"gone after {taken:.1f} s with {uploads} stalled uploads; the one that continued got "
            f"{answer[9:12].decode() or 'nothing'}, commits now {kept[:-1]}, {served.whole()} files whole, "
            f"{parts} parts"
        )


def killing(folder: Path, kills: int, writers: int) -> str:
    """Repeated SIGKILL during concurrent writes."""
    acknowledged: list[str] = []
    attempted = 0
    with hub(folder) as served:
        for turn in range(kills):

            def write(worker: int, turn: int = turn) -> None:
                nonlocal attempted
                number = 0
                while True:
                    number, attempted = number + 1, attempted + 1
                    title = f"{turn}-{worker}-{number}"
                    try:
                        status = served.commit(title, {f"{worker}.bin": b"\0" + os.urandom(100_000)})
                    except OSError:
                        return
                    except http.client.HTTPException:
                        return
                    assert status == 200, status
                    acknowledged.append(title)

            threads = [threading.Thread(target=write, args=(worker,)) for worker in range(writers)]
            for thread in threads:
                thread.start()
            time.sleep(0.3 + 0.05 * turn)
            served.end()
            for thread in threads:
                thread.join()
            served.start()
            kept = set(served.titles())
            lost = [title for title in acknowledged if title not in kept]
            assert not lost, lost
        return (
            f"{kills} kills, {writers} writers: {len(acknowledged)} of {attempted} commits acknowledged, "
            f"0 lost, {served.whole()} files whole, {served.parts()} parts"
        )


def slow(folder: Path, clients: int, seconds: float) -> str:
    """Clients that read responses slowly, and others that never finish their request."""
    with hub(folder) as served:
        assert served.commit("big", {"big.bin": b"\0" + os.urandom(20_000_000)}) == 200
        before = served.memory()
        ask = f"GET /{REPO}/resolve/main/big.bin HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        slow = []
        for _ in range(clients):
            connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
            connection.sendall(f"{ask}\r\n".encode())
            slow.append(connection)
        half = []
        for _ in range(clients):
            connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
            connection.sendall(ask.encode())
            half.append(connection)
        times, used, until = [], served.seconds(), time.perf_counter() + seconds
        while time.perf_counter() < until:
            for connection in slow:
                with suppress(OSError):
                    connection.recv(1000)
            start = time.perf_counter()
            assert served.ask("GET", "/api/models")[0] == 200
            times.append(time.perf_counter() - start)
        used = served.seconds() - used
        released = sum(bool(_closed(connection)) for connection in half)
        for connection in [*slow, *half]:
            connection.close()
        return (
            f"{clients} slow readers and {clients} half questions for {seconds:g} s: {len(times)} others answered, "
            f"median {statistics.median(times) * 1e3:.0f} ms, worst {max(times) * 1e3:.0f} ms, "
            f"{used:.1f} s of the processor in all; "
            f"+{served.memory() - before:.0f} MB; {released} half questions let go"
        )


def _closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def halves(folder: Path, uploads: int) -> str:
    """Uploads that break off in the middle."""
    with hub(folder) as served:
        before, sent = served.memory(), body("half", {"b.bin": os.urandom(2_000_000)})
        for _ in range(uploads):
            served.half(sent[: len(sent) // 2], len(sent)).close()
        status = served.commit("after", {"a.bin": b"\0" + os.urandom(1000)})
        until = time.perf_counter() + 60
        while served.parts() and time.perf_counter() < until:
            time.sleep(0.1)
        return (
            f"{uploads} broken off: {served.parts()} parts left, commits {served.titles()[:-1]}, next upload {status}, "
            f"+{served.memory() - before:.0f} MB"
        )


def full(folder: Path) -> str:
    """Disk of 40 MB that becomes full."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        return "not run: no file system can be mounted here"
    try:
        with hub(folder / "store") as served:
            kept, status = 0, 200
            while status == 200:
                status = served.commit(str(kept), {f"{kept}.bin": b"\0" + os.urandom(6_000_000)})
                kept += status == 200
            read, left = served.ask("GET", "/api/models")[0], room(folder)
            refused = {served.commit("refused", {"x.bin": b"\0" + os.urandom(6_000_000)}) for _ in range(5)}
            used = left - room(folder)
            served.end()
            served.start()
            titles, whole, parts = served.titles(), served.whole(), served.parts()
            lines = [{"key": "header", "value": {"summary": "fewer"}}]
            lines += [{"key": "deletedFile", "value": {"path": f"{number}.bin"}} for number in range(1, kept)]
            fewer = served.ask("POST", f"/api/models/{REPO}/commit/main", "\n".join(map(json.dumps, lines)).encode())[0]
            squashed = served.ask("POST", f"/api/models/{REPO}/super-squash/main", b"{}")[0]
            served.end(signal.SIGTERM)
            served.start()
            freed, again = room(folder) - left, served.commit("again", {"y.bin": b"\0" + os.urandom(6_000_000)})
            return (
                f"{kept} commits of 6 MB, then {status}; reading {read}; 5 more refused ({refused}) left {used} bytes;"
                f" after SIGKILL {len(titles) - 1} commits, {whole} files whole, {parts} parts; all files but one"
                f" deleted ({fewer}), squashed ({squashed}), started again: {freed / 1e6:.1f} MB reclaimed, next commit"
                f" {again}, {served.whole()} files whole"
            )
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def room(folder: Path) -> int:
    """Return the free bytes of a file system."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_bsize


def main() -> None:
    """Run all parts and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--only", default="", help="run only parts whose name contains this")
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], str]] = {
        "SIGTERM": lambda folder: stopping(folder, 20),
        "half uploads": lambda folder: halves(folder, 100),
        "disk full": full,
        "slow clients": lambda folder: slow(folder, options.clients, options.seconds),
        "SIGKILL": lambda folder: killing(folder, options.kills, options.writers),
    }
    for title, part in parts.items():
        if options.only not in title:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            print(f"{title}: {part(Path(scratch) / 'hub')}", flush=True)


if __name__ == "__main__":
    main()
