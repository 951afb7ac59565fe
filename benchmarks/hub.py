"""`unknot hub serve` under load: many readers and a few writers at once; errors, lost commits, requests per second.

Readers do what loading a checkpoint does, over connections that stay open: ask for the commit, read config and weights,
check the hash. Every tenth time they list all models. Writers are unmodified clients that commit to one repository.

    python benchmarks/hub.py --seconds 60
"""

import argparse
import hashlib
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

from huggingface_hub import CommitOperationAdd, HfApi

SERVE = "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"
MODEL, LOG = "bench/model", "bench/log"


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--writers", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=1.0, help="size of the weights")
    parser.add_argument("--repos", type=int, default=20, help="repositories in the list")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", SERVE, "hub", "serve", folder, "--port", "0"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                measure(server, Path(folder), options)
            finally:
                server.kill()


def measure(server: "subprocess.Popen[str]", folder: Path, options: argparse.Namespace) -> None:
    """Prepare repositories, let readers and writers loose, count."""
    assert server.stdout is not None
    found = re.search(r"http://(\S+)", server.stdout.readline())
    assert found
    token = (folder / "tokens.txt").read_text().split()[1]
    api = HfApi(endpoint=found[0], token=token)
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
        connection = http.client.HTTPConnection(found[1], timeout=60)
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
        own, turn = HfApi(endpoint=found[0], token=token), 0
        while not stop.is_set():
            turn += 1
            title = f"{worker}-{turn}"
            try:
                operation = CommitOperationAdd(f"{worker}.txt", title.encode())
                own.create_commit(LOG, [operation], commit_message=title)
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


if __name__ == "__main__":
    main()
