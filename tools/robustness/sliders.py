"""`unknot browse` with many concurrent slider users: requests per second, latency, memory and processor time.

Each client acts as the page does while a slider is dragged: it requests the image of its latents and, as soon as it has
it, for that of the next ones. All look at the same bundled checkpoint, over connections that stay open.

    python tools/robustness/sliders.py --clients 50 --seconds 30
"""

import argparse
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BROWSE = "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"


class Page:
    """Server in its own process, with the token that a browser receives."""

    def __init__(self, folder: str) -> None:
        words = [sys.executable, "-c", BROWSE, "browse", folder, "--port", "0", "--no-open"]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"}
        )
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)(/\S*)", self.process.stdout.readline())
        assert found
        self.port = int(found[1])
        connection = self.connect()
        connection.request("GET", found[2])
        answer = connection.getresponse()
        self.cookie = str(answer.headers["set-cookie"]).partition(";")[0]
        self.headers = {"cookie": self.cookie, "x-unknot-token": self.cookie.partition("=")[2]}
        answer.read()

    def connect(self) -> http.client.HTTPConnection:
        """Open a persistent connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> bytes:
        """Return the content of a response."""
        connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content[:200]
        return content

    def status(self, name: str) -> int:
        """Return an entry of the process's status, in kB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(rf"{name}:\s+(\d+)", text)[0])

    def seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def move(page: Page, path: str, size: int, until: float, times: list[float], seed: int) -> None:
    """Drag one slider after the other."""
    draw, connection, codes = random.Random(seed), page.connect(), [0.0] * size
    while time.perf_counter() < until:
        codes[draw.randrange(size)] = draw.uniform(-3, 3)
        start = time.perf_counter()
        assert page.ask(connection, "POST", path, {"codes": codes})[:4] == b"\x89PNG"
        times.append(time.perf_counter() - start)


def main() -> None:
    """Run the clients and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--model", default="unknot/adagvae-dsprites")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Page(folder)
        try:
            measure(page, options)
        finally:
            page.process.kill()
            page.process.wait()


def measure(page: Page, options: argparse.Namespace) -> None:
    """Run the clients and count."""
    connection = page.connect()
    rows = json.loads(page.ask(connection, "GET", "/api/checkpoints"))["checkpoints"]
    path = f"/api/checkpoints/{next(row['id'] for row in rows if row['ref'] == options.model)}"
    size = len(json.loads(page.ask(connection, "POST", f"{path}/start", {"origin": "prior", "seed": 0}))["codes"])
    before, used, start = page.status("VmRSS"), page.seconds(), time.perf_counter()
    times: list[list[float]] = [[] for _ in range(options.clients)]
    threads = [
        threading.Thread(target=move, args=(page, f"{path}/decode", size, start + options.seconds, mine, seed))
        for seed, mine in enumerate(times)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken, spent = time.perf_counter() - start, page.seconds() - used
    both = sorted(time for mine in times for time in mine)
    shares = {"median": 0.5, "p90": 0.9, "p99": 0.99, "worst": 1.0}
    shown = ", ".join(f"{name} {both[int(share * (len(both) - 1))] * 1e3:.0f}" for name, share in shares.items())
    print(f"{options.clients} clients, {taken:.0f} s: {len(both)} images, {len(both) / taken:.0f}/s")
    print(f"images of the client that got fewest: {min(map(len, times))}; ms: {shown}")
    print(f"processor of the server: {spent / len(both) * 1e3:.2f} ms an image, {spent / taken:.2f} cores")
    print(f"its memory: {before / 1024:.0f} MB before, at most {page.status('VmHWM') / 1024:.0f}")


if __name__ == "__main__":
    main()
