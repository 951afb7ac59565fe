"""Test `load`, `show`, `browse` and `browse --export` on mutated checkpoints: crashes, hangs, executed code, memory.

Each case damages the configuration, the weights or the card of a bundled checkpoint and passes the folder to all four,
in a forked process with an audit hook. A ValueError or an OSError is an expected error of the page and the command
line; any other error is a crash.

    python tools/robustness/mutated_checkpoints.py --cases 1500 --seed 0
"""

import argparse
import collections
import json
import os
import random
import select
import shutil
import struct
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

NAMES = (
    "adagvae-dsprites32",
    "betavae-dsprites32",
    "factorvae-dsprites",
    "supervisedvae-dsprites",
    "slotautoencoder-scenes",
    "slotsetpredictor-scenes-tuned",
    "dspnsetpredictor-scenes",
    "wren-factors",
)
NUMBERS = [0, -1, 1, 2, 3, 5, 16, 32, 33, 64, 128, 256, 1000, 10**5, 10**6, 2**31 - 1, 2**31, 2**62, 2**64, 10**30]
NUMBERS += [1e308, -1e308, 5e-324, 0.5, 1.5, float("nan"), float("inf")]
WORDS = ["", "x" * 100_000, "bernoulli", "gaussian", "__import__('os')", "../../../etc/passwd", "\0", "\u202eevil"]
WORDS += ["conv", "mlp", "os.system", "torch.nn.Linear", "symmetric", "images", "codes"]
DATASETS = ["../..", "DSprites", "clevr", "x" * 1000, "\u001b[31m", "__class__", "rooms3d_1000000000", "dsprites_0"]
DATASETS += ["abstract_dsprites_1000000x2x3x3x4x4", "clevr_scenes_100000", "noisy_dsprites", "toString"]
DTYPES = ["F64", "F16", "BF16", "I64", "I8", "BOOL", "F8_E5M2", "C64", "U64", "XX"]
EVIL = "touch /tmp/code-of-a-stranger"
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class")
SLOW = 10.0
"""Processor seconds above which a step counts as a hang."""
SILENCE = 150.0
"""Seconds after which a silent process is killed."""


def value(rng: random.Random, depth: int = 0) -> Any:
    """Return a value that an argument must not have, or another valid one."""
    size = rng.choice([1, 8, 32, 64, 1024, 4096, 10**5, 2**31])
    inner = value(rng, depth + 1) if depth < 3 else 1
    return rng.choice(
        [
            rng.choice(NUMBERS),
            rng.choice(NUMBERS),
            rng.choice(NUMBERS),
            rng.choice(WORDS),
            rng.choice([None, True, False, {}]),
            [rng.choice(NUMBERS) for _ in range(rng.choice([0, 1, 2, 4, 64, 65, 1000]))],
            [rng.choice([1, 3]), size, size],
            {"name": rng.choice(["conv", "mlp", "x"]), "arguments": {"a": inner}},
            {"class_path": "os.system", "init_args": {"command": EVIL}},
            [[inner] for _ in range(3)],
        ]
    )


def mutated_config(rng: random.Random, content: bytes) -> bytes:
    """Return a configuration with other arguments, names, schedules, or bytes."""
    config = json.loads(content)
    arguments = config["arguments"]
    kind = rng.randrange(12)
    if kind < 6:
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            arguments[rng.choice(list(arguments))] = value(rng)
    elif kind == 6:
        config[rng.choice(list(config))] = value(rng)
    elif kind == 7:
        config["model"] = rng.choice(["BetaVAE", "WReN", "SlotAutoEncoder", "DSPNSetPredictor", "object", "x"])
    elif kind == 8:
        config["dataset"] = rng.choice(DATASETS)
    elif kind == 9:
        arguments[rng.choice(["lr", "__class__", "self", "args", "kwargs", "extra", "hub_repo"])] = value(rng)
    elif kind == 10:
        plan = {"start": 1, "end": rng.choice(NUMBERS), "steps": rng.choice(NUMBERS)}
        config["annealed"] = {rng.choice(["beta", "x", "__class__"]): rng.choice([plan, 3, None])}
    else:
        for name in [name for name in arguments if rng.random() < 0.3]:
            del arguments[name]
    text = json.dumps(config)
    changes: list[Callable[[], str | bytes]] = [
        lambda: '{"model":' + "[" * rng.choice([500, 300_000]),
        lambda: "\ufeff" + text,
        lambda: text.encode("utf-16"),
        lambda: text + " " * 2_000_000,
        lambda: text.replace("1", "1" * 5000, 1),
        lambda: text[: rng.randrange(len(text))],
        lambda: text.replace('"', '"\\ud800', 1),
        lambda: flipped(rng, text.encode(), len(text), 10),
    ]
    changed = rng.choice(changes)() if rng.random() < 0.3 else text
    return changed if isinstance(changed, bytes) else changed.encode("utf-8", "surrogatepass")


def flipped(rng: random.Random, content: bytes, within: int, times: int) -> bytes:
    """Return content with a few flipped bits among its first bytes."""
    changed = bytearray(content)
    for _ in range(times):
        changed[rng.randrange(within)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def mutated_weights(rng: random.Random, content: bytes) -> bytes:
    """Return a safetensors file with another header, or other bytes."""
    length = struct.unpack("<Q", content[:8])[0]
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    name, kind = rng.choice(names), rng.randrange(12)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    if kind == 1:
        return flipped(rng, content, rng.choice([len(content), 8 + length]), rng.choice([1, 10, 1000]))
    if kind == 2:
        return struct.pack("<Q", rng.choice([0, 1, length + 1, length - 1, 10**8, 2**63, 2**64 - 1])) + content[8:]
    if kind == 3:
        return rng.choice([b"", b"\0" * 8, b"PK\3\4" + b"\0" * 100, f"cos\nsystem\n(S'{EVIL}'\ntR.".encode()])
    if kind == 4:
        header[name]["dtype"] = rng.choice(DTYPES)
    elif kind == 5:
        shape = header[name]["shape"]
        header[name]["shape"] = rng.choice([[], [0], [2**63], [2**32, 2**32], [-1], [1] * 1000, shape[::-1]])
    elif kind == 6:
        other = header[rng.choice(names)]["data_offsets"]
        header[name]["data_offsets"] = rng.choice([[0, 0], [0, 2**63], [5, 1], [-1, 4], other, [0, len(body)], [0]])
    elif kind == 7:
        header[rng.choice(["evil", "\u001b[31mred\a", "a" * 10**6, "../x", ""])] = header.pop(name)
    elif kind == 8:
        header["__metadata__"] = rng.choice([{"format": "pt\u001b[31m"}, {"a": "b" * 10**6}, 5, {"a": 5}])
    elif kind == 9:
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [len(body), len(body)]}
        header |= {f"t{number}": empty for number in range(rng.choice([1, 20_000]))}
    elif kind == 10:
        body = rng.choice([body + b"\0" * 10**6, body[:-4]])
    else:
        places = range(0, len(body) - 4, 4 * 97)
        changed = bytearray(body)
        for place in places:
            changed[place : place + 4] = rng.choice([b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f"])
        body = bytes(changed)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + body


def mutated_card(rng: random.Random) -> bytes:
    """Return a card with YAML, or a text, that is hard to read."""
    metadata = [
        "a: &a [x,x]\nb: &b [*a,*a]\n",
        f"a: !!python/object/apply:os.system ['{EVIL}']\n",
        "a: !!timestamp foo\n",
        "a: " + "[" * 50_000 + "\n",
        "unknot: {bytes: "
        + "9" * 5000
        + ", seed: 1e999, model: [1], dataset: {a: b}, arguments: {x: !!binary aGk=}}\n",
        "tags: [" + "x, " * 50_000 + "]\n",
        "model-index: [{results: [{metrics: [{type: toString, value: .nan}, {type: __proto__, value: 1e400}]}]}]\n",
        "a: " + "1:" * 5000 + "1\n",
        "? [a, b]\n: c\n? {x: y}\n: z\n",
        "<<: [{a: 1},{b: 2}]\n",
        "a: 1\n" * 20_000,
        "-1: !!set {a,b}\n2020-01-01: !!omap [a: 1]\nb: 1_000_000_0:00.5\n",
    ]
    bodies = ["# hi", "\n" * 10**5, "|" * 10**5, "[a](javascript:alert(1))<script>alert(1)</script>", "`" * 10**5]
    return f"---\n{rng.choice(metadata)}---\n{rng.choice([*bodies, '- ' * 50_000])}".encode()


def memory(field: str) -> int:
    """Return the memory of this process in megabytes, now (``VmRSS``) or at most (``VmHWM``)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) // 1024


class Page:
    """`unknot browse` of one folder, queried over a socket."""

    def __init__(self, folder: Path) -> None:
        from unknot.hub.browser.app import browse_app
        from unknot.hub.browser.index import Index
        from unknot.hub.web import serving

        self.index, listening = Index([folder]), serving.listen("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/checkpoints"
        self.server = serving.make_server(browse_app(self.index, "secret"), log_level="critical")
        threading.Thread(target=self.server.run, args=([listening],), daemon=True).start()

    def ask(self, path: str, body: Any = None) -> int:
        """Return the status of a response; 500 is a bug."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, content, {"x-unknot-token": "secret"})
        try:
            with urllib.request.urlopen(request, timeout=SILENCE) as response:
                response.read()
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def browse(self) -> None:
        """Send a visitor's requests: the list, each detail, a thumbnail, and the live views of the model."""
        questions: list[tuple[str, Any]] = [("", None)]
        for one in self.index.entries:
            questions += [(f"/{one}", None), (f"/{one}/curves", None), (f"/{one}/drawn.png", None)]
            questions += [(f"/{one}/{action}", {"origin": "data", "seed": 0}) for action in ("start", "look")]
        for path, body in questions:
            if self.ask(path, body) >= 500:
                raise AssertionError(f"an error of the server at {path.rpartition('/')[2]}")


def case(seed: int, number: int, folder: Path, events: list[str]) -> dict[str, Any]:
    """Mutate a checkpoint, and pass it to everything that reads one."""
    from unknot.hub import listing, load
    from unknot.hub.browser.export import export

    rng = random.Random(seed * 1_000_003 + number)
    name, what = rng.choice(NAMES), rng.choice(["c", "c", "c", "w", "w", "m", "cw"])
    saved = folder / "mutated"
    shutil.rmtree(folder, ignore_errors=True)
    saved.mkdir(parents=True)
    bundled = dict(BUNDLED[name])
    if "w" in what:  # an attacker would update or remove the hash too
        config = json.loads(bundled["config.json"])
        bundled["config.json"] = json.dumps({key: part for key, part in config.items() if key != "weights"}).encode()
    for key, file, mutate in (
        ("c", "config.json", mutated_config),
        ("w", "model.safetensors", mutated_weights),
        ("m", "README.md", lambda rng, _: mutated_card(rng)),
    ):
        (saved / file).write_bytes(mutate(rng, bundled[file]) if key in what else bundled[file])
    Path("/proc/self/clear_refs").write_text("5")
    before, result = memory("VmRSS"), {}
    events.clear()
    page = Page(folder)
    steps = {
        "load": lambda: load(saved),
        "show": lambda: json.dumps(listing.show(saved).to_dict()),
        "browse": page.browse,
        "export": lambda: export(folder / "all.html", [folder], say=lambda text: None),
    }
    for step, function in steps.items():
        start = time.process_time()  # of the working thread: wall-clock time depends on the load of the machine
        try:
            function()
            outcome = "ok"
        except (ValueError, OSError):
            outcome = "refused"
        except BaseException as error:
            outcome = f"CRASH {type(error).__name__}: {str(error)[:150]}"
        result[step] = outcome, round(time.process_time() - start, 2)
    page.server.should_exit = True
    peak = memory("VmHWM") - before
    return {"number": number, "name": name, "what": what, "steps": result, "megabytes": peak, "code": events[:3]}


def prepare() -> None:
    """Read the bundled checkpoints, hide them from the page, and draw the data sets that they need."""
    from unknot.checkpoints import names as refs
    from unknot.hub import load
    from unknot.hub.browser import app as browsing
    from unknot.studies import bundled_tables

    browsing.tqdm = lambda entries, **_: entries  # type: ignore[assignment]
    for name in NAMES:
        folder = refs.BUNDLED / name
        files = ("config.json", "model.safetensors", "README.md")
        BUNDLED[name] = {file: (folder / file).read_bytes() for file in files}
        model = load(folder)
        from unknot.datamodules import available_dataset

        if dataset := available_dataset(model.trained_on, model.image_shape):
            dataset.observe(dataset.factor_space.sample(1))
    refs.BUNDLED = bundled_tables.FOLDER = Path("/nonexistent")


BUNDLED: dict[str, dict[str, bytes]] = {}


def work(seed: int, numbers: range, folder: Path, write: Callable[[dict[str, Any]], None]) -> None:
    """Run cases in a separate process."""
    import torch

    events: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FORBIDDEN or (event == "socket.connect" and "127.0.0.1" not in str(arguments)):
            events.append(f"{event} {str(arguments)[:100]}")

    sys.addaudithook(watch)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for number in numbers:
        write({"begin": number})
        write(case(seed, number, folder, events))


def print_row(file: IO[str], row: dict[str, Any]) -> None:
    """Write a line of JSON at once."""
    print(json.dumps(row), file=file, flush=True)


def main() -> None:
    """Run all cases and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to repeat one")
    arguments = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    prepare()
    results, ends = [], arguments.first + arguments.cases
    number = arguments.first
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["HF_HOME"] = f"{scratch}/hf"
        while number < ends:
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                send = os.fdopen(writer, "w")
                numbers = range(number, min(ends, number + 50))
                work(arguments.seed, numbers, Path(scratch) / "case", partial(print_row, send))
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader, "rb", buffering=0) as pipe:
                pending, last = b"", number
                while True:
                    ready, _, _ = select.select([pipe], [], [], SILENCE)
                    if not ready:
                        os.kill(child, 9)
                        results.append({"number": last, "HANG": SILENCE})
                        break
                    part = pipe.read(1 << 16)
                    if not part:
                        break
                    *lines, pending = (pending + part).split(b"\n")
                    for row in map(json.loads, lines):
                        last = row.get("begin", last)
                        if "begin" not in row:
                            results.append(row)
                            print(json.dumps(row), file=sys.stderr)
            status = os.waitpid(child, 0)[1]
            if status and results[-1].get("number") != last:
                results.append({"number": last, "DIED": status})
            number = last + 1
    report(results)


def report(results: list[dict[str, Any]]) -> None:
    """Print the results by step."""
    whole = [row for row in results if "steps" in row]
    for step in ("load", "show", "browse", "export"):
        outcomes = collections.Counter(row["steps"][step][0].partition(" ")[0] for row in whole)
        slowest = max(whole, key=lambda row: row["steps"][step][1])
        print(f"{step}: {dict(outcomes)}, slowest {slowest['steps'][step][1]} s (case {slowest['number']})")
    crashes = [row for row in whole if "CRASH" in str(row["steps"])]
    hangs = [row for row in whole if any(seconds > SLOW for _, seconds in row["steps"].values())]
    died = [row for row in results if "steps" not in row]
    largest = max(whole, key=lambda row: row["megabytes"])
    print(
        f"{len(results)} cases: {len(crashes)} crashes, {len(hangs)} steps above {SLOW:g} s, {len(died)} processes died"
    )
    print(f"code that ran: {sum(bool(row['code']) for row in whole)}")
    print(f"memory above that before a case: at most {largest['megabytes']} MB (case {largest['number']})")
    for row in [*crashes, *hangs, *died]:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
