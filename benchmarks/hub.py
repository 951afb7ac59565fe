"""Speed of `unknot hub serve`: many readers and a few writers at once, and files beside Python's own static server.

    python benchmarks/hub.py readers --seconds 60
    python benchmarks/hub.py files --megabytes 200 --files 1000 --repos 10000

readers  Readers do what loading a checkpoint does, over connections that stay open: ask for the commit, read config and
         weights, check the hash. Every tenth time they list all models. Writers are unmodified clients that commit to
         one repository. Prints requests per second, errors and lost commits.
files    One large file up and down, many small ones, a long list; both servers in turn within one run. Times are those
         of the clock and of the server's processor, which a busy machine changes less. The large upload and the
         snapshot are made by the unmodified client with its defaults. It sends a file as base64 inside of JSON, where
         the other side gets a plain PUT; so that client also uploads to a server that reads and forgets, which shows
         how much of the time is its own.
"""

import argparse
import hashlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from huggingface_hub import CommitOperationAdd, HfApi, snapshot_download

from unknot.hub.server.storage import Store

SERVE = "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"
STATIC = """
import functools, http.server, json, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_message = lambda *_: None
    def do_POST(self):
        left, first = int(self.headers["content-length"]), b""
        while left:
            chunk = self.rfile.read(min(left, 1 << 16))
            left, first = left - len(chunk), first or chunk
        answer = {"success": True, "commitOid": "0" * 40, "commitUrl": "http://127.0.0.1/a/b/commit/0"}
        if "preupload" in self.path:
            path = json.loads(first)["files"][0]["path"]
            answer = {"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": None}]}
        answer = json.dumps(answer).encode()
        self.send_response(200); self.send_header("content-length", str(len(answer))); self.end_headers()
        self.wfile.write(answer)
    def do_PUT(self):
        with open(sys.argv[1] + "/put", "wb") as file:
            left = int(self.headers["content-length"])
            while left:
                left -= file.write(self.rfile.read(min(left, 1 << 16)))
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=sys.argv[1]))
print(server.server_address[1], flush=True)
server.serve_forever()
"""
MODEL, LOG = "bench/model", "bench/log"

Times = list[tuple[float, float]]
"""Clock and processor, of each repetition."""


class Server:
    """A process, its port, and the processor time that it has used."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(re.findall(r"\d+", self.process.stdout.readline())[-1])

    def end(self) -> None:
        """Gone, and waited for."""
        self.process.kill()
        self.process.wait()

    def seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def get(port: int, path: str) -> int:
    """Length of an answer, over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", path)
    answer, size = connection.getresponse(), 0
    assert answer.status == 200, answer.read()[:200]
    while chunk := answer.read(1 << 20):
        size += len(chunk)
    connection.close()
    return size


def timed(server: Server, action: Callable[[], object]) -> tuple[float, float]:
    """Clock and the server's processor time of an action."""
    clock, used = time.perf_counter(), server.seconds()
    action()
    return time.perf_counter() - clock, server.seconds() - used


def both(title: str, unit: str, amount: float, ours: Times, plain: Times) -> None:
    """Print medians and their ratios."""
    found = [[statistics.median(part) for part in zip(*side, strict=True)] for side in (ours, plain)]
    rates = " ".join(f"{amount / side[0]:8.1f}" for side in found)
    clock, used = (found[0][place] / max(found[1][place], 1e-3) for place in (0, 1))
    print(f"{title:<34} {rates} {unit}/s   {clock:5.2f} times the clock, {used:5.2f} times the processor", flush=True)


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("readers")
    part.add_argument("--seconds", type=float, default=60)
    part.add_argument("--readers", type=int, default=50)
    part.add_argument("--writers", type=int, default=5)
    part.add_argument("--megabytes", type=float, default=1.0, help="size of the weights")
    part.add_argument("--repos", type=int, default=20, help="repositories in the list")
    part.set_defaults(measure=readers)
    part = parts.add_parser("files")
    part.add_argument("--megabytes", type=int, default=200)
    part.add_argument("--files", type=int, default=1000)
    part.add_argument("--repos", type=int, default=10_000)
    part.add_argument("--repeats", type=int, default=3)
    part.set_defaults(measure=files)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        options.measure(Path(scratch), options)


def readers(scratch: Path, options: argparse.Namespace) -> None:
    """Start a server and load it with readers and writers."""
    server = Server(SERVE, "hub", "serve", str(scratch), "--port", "0")
    try:
        token = (scratch / "tokens.txt").read_text().split()[1]
        load(server, HfApi(endpoint=f"http://127.0.0.1:{server.port}", token=token), options)
    finally:
        server.end()


def load(server: Server, api: HfApi, options: argparse.Namespace) -> None:
    """Prepare repositories, start readers and writers, count."""
    weights = os.urandom(int(options.megabytes * 1e6))
    card = b"---\nlibrary_name: unknot\ntags: [unknot]\n---\n# A model\n"
    for repo in [MODEL, LOG, *(f"bench/other-{number}" for number in range(options.repos - 2))]:
        api.create_repo(repo, private=False)
        files = {"README.md": card, "config.json": b"{}", **({"model.safetensors": weights} if repo == MODEL else {})}
        operations = [CommitOperationAdd(name, content) for name, content in files.items()]
        api.create_commit(repo, operations, commit_message="first")

    counts: Counter[str] = Counter()
    errors: list[str] = []
    acknowledged: list[str] = []
    times: list[float] = []
    stop = threading.Event()
    digest = hashlib.sha256(weights).digest()

    def get(connection: http.client.HTTPConnection, path: str, kind: str) -> bytes:
        start = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        times.append(time.perf_counter() - start)
        counts[kind] += 1
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return body

    def read(worker: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        turn = worker
        while not stop.is_set():
            try:
                turn += 1
                if turn % 10 == 0:
                    if len(json.loads(get(connection, "/api/models?filter=unknot&full=true", "list"))) != options.repos:
                        errors.append("a repository is missing in the list")
                    continue
                commit = json.loads(get(connection, f"/api/models/{MODEL}/revision/main?blobs=true", "info"))["sha"]
                get(connection, f"/{MODEL}/resolve/{commit}/config.json", "config")
                body = get(connection, f"/{MODEL}/resolve/{commit}/model.safetensors", "weights")
                if hashlib.sha256(body).digest() != digest:
                    errors.append("wrong weights")
            except Exception as error:
                errors.append(repr(error))
                connection.close()

    def write(worker: int) -> None:
        writer, turn = HfApi(endpoint=api.endpoint, token=api.token), 0
        while not stop.is_set():
            turn += 1
            title = f"{worker}-{turn}"
            try:
                operation = CommitOperationAdd(f"{worker}.txt", title.encode())
                writer.create_commit(LOG, [operation], commit_message=title)
                acknowledged.append(title)
            except Exception as error:
                errors.append(repr(error))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(options.readers)]
    threads += [threading.Thread(target=write, args=(number,)) for number in range(options.writers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(options.seconds)
    stop.set()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    history = {commit.title for commit in api.list_repo_commits(LOG)}
    lost = [title for title in acknowledged if title not in history]
    times.sort()
    reads = sum(counts.values())
    print(f"{options.readers} readers and {options.writers} writers for {seconds:.0f} s, {os.cpu_count()} cores shared")
    print(f"  reads    {reads:,} ({reads / seconds:.0f} per second), of which {dict(counts)}")
    print(f"  latency  median {times[len(times) // 2] * 1e3:.0f} ms, 99 % {times[int(len(times) * 0.99)] * 1e3:.0f} ms")
    print(f"  commits  {len(acknowledged):,} ({len(acknowledged) / seconds:.1f} per second), lost: {len(lost)}")
    print(f"  errors   {len(errors)} {Counter(errors).most_common(3) if errors else ''}")
    if errors or lost:
        sys.exit(1)


def files(scratch: Path, options: argparse.Namespace) -> None:
    """Compare uploads, downloads, many small files and lists."""
    store, static = scratch / "store", scratch / "static"
    fill(store, options.repos)
    (static / "small").mkdir(parents=True)
    (static / "big").write_bytes(os.urandom(options.megabytes << 20))
    for place in range(options.files):
        (static / "small" / f"{place}.txt").write_text(f"file {place}\n" * 50)
    hub, plain = Server(SERVE, "hub", "serve", str(store), "--port", "0"), Server(STATIC, str(static))
    try:
        api = HfApi(endpoint=f"http://127.0.0.1:{hub.port}", token=(store / "tokens.txt").read_text().split()[1])
        print(f"{'':<34} {'hub':>8} {'static':>8}")
        api.create_repo("bench/files")

        def upload(to: HfApi) -> None:
            path = f"big{len(sides[0])}"
            to.upload_file(repo_id="bench/files", path_or_fileobj=static / "big", path_in_repo=path)

        def put() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", plain.port, timeout=600)
            with (static / "big").open("rb") as file:
                connection.request("PUT", "/put", file, {"content-length": str(options.megabytes << 20)})
            connection.getresponse().read()

        forgets = HfApi(endpoint=f"http://127.0.0.1:{plain.port}", token=api.token)
        sides: list[Times] = [[], [], []]
        for _ in range(options.repeats):
            (static / "big").write_bytes(os.urandom(options.megabytes << 20))  # what is there already costs less
            sides[0].append(timed(hub, lambda: upload(api)))
            sides[1].append(timed(plain, put))
            sides[2].append(timed(plain, lambda: upload(forgets)))
        both(f"upload {options.megabytes} MB, client's defaults", "MB", options.megabytes, *sides[:2])
        both("the same, to one that forgets", "MB", options.megabytes, sides[0], sides[2])

        sides = [[], []]
        for _ in range(2 * options.repeats):
            sides[0].append(timed(hub, lambda: get(hub.port, f"/bench/files/resolve/main/big{options.repeats - 1}")))
            sides[1].append(timed(plain, lambda: get(plain.port, "/big")))
        both(f"download {options.megabytes} MB", "MB", options.megabytes, *sides)

        api.create_repo("bench/small")
        api.upload_folder(repo_id="bench/small", folder_path=static / "small")

        def read_all(port: int, folder: str) -> None:
            for place in range(options.files):
                get(port, f"{folder}/{place}.txt")

        sides = [[], []]
        for _ in range(options.repeats):
            sides[0].append(timed(hub, lambda: read_all(hub.port, "/bench/small/resolve/main")))
            sides[1].append(timed(plain, lambda: read_all(plain.port, "/small")))
        both(f"{options.files} small files, new connections", "files", options.files, *sides)

        clock, _ = timed(hub, lambda: snapshot(api, scratch))
        print(f"snapshot_download of {options.files} files: {clock:.1f} s", flush=True)
    finally:
        for server in (hub, plain):
            server.end()
    for title in ("never listed before", "listed in an earlier life"):
        hub = Server(SERVE, "hub", "serve", str(store), "--port", "0")
        try:
            print(f"{options.repos} repositories, {title}: start {hub.seconds():.2f} s of the processor")
            listing(hub)
        finally:
            hub.end()


def listing(hub: Server) -> None:
    """Processor time of one repository and of the list, at first and again."""
    questions = {
        "one repository": "/api/models/bench/r0",
        "list of one": "/api/models?limit=1",
        "page of 1,000": "/api/models?limit=1000",
        "the same, with names of files": "/api/models?limit=1000&full=true",
    }
    for title, path in questions.items():
        cold = timed(hub, lambda path=path: get(hub.port, path))[1]
        warm = timed(hub, lambda path=path: [get(hub.port, path) for _ in range(20)])[1] / 20
        print(f"  {title}: {cold:.2f} s of the processor, again {warm:.4f}", flush=True)


def fill(folder: Path, count: int) -> None:
    """Repositories with a card, by the storage itself; without waiting for the disk each time."""
    sync, os.fsync = os.fsync, lambda file: None
    store = Store(folder)
    for place in range(count):
        name = f"bench/r{place}"
        store.create(name, False, "bench")
        card = (
            f"---\ntags: [unknot, t{place % 7}]\nlibrary_name: unknot\nunknot: {{model: BetaVAE, seed: {place}}}\n---\n"
        )
        store.commit(name, "main", {"README.md": store.keep(card.encode())}, [], None, "x", "bench")
    store.close()
    os.fsync = sync


def snapshot(api: HfApi, scratch: Path) -> None:
    """Fetch a repository by the unmodified client."""
    snapshot_download("bench/small", endpoint=api.endpoint, token=api.token, cache_dir=scratch / "cache")


if __name__ == "__main__":
    main()
