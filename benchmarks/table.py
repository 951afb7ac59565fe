"""One table of ratios: every benchmark with a counterpart, each measured beside it in one run.

    make bench              # all; writes benchmarks/table.json, docs/benchmarks.md and the README's table
    python benchmarks/table.py dsprites slots        # some of them; the others' rows stay as they are

Prints what got slower by more than a tenth since the table that was committed. One thread, unless a row says otherwise.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tools"))
from fill_page import fill  # noqa: E402

TABLE, PAGE, README = HERE / "table.json", HERE.parent / "docs" / "benchmarks.md", HERE.parent / "README.md"
SOURCE = "benchmarks/table.json"
SCRIPTS = ("training", "imports", "data", "metrics", "slots", "solvers")
PACKAGES = ("torch", "pytorch-lightning", "numpy", "scipy", "scikit-learn", "lightgbm", "copt", "slot-attention")
SLOWER = 0.9
AT_A_GLANCE = {
    "30 training steps of AdaGVAE by trainer.fit": ("Training an Ada-GVAE", "a plain PyTorch loop"),
    "Slot Attention, forward and backward": ("Slot Attention, forward and backward", "`slot-attention`"),
    "DCI at 10,000 + 5,000 samples of six factors": ("DCI of 15,000 samples", "scikit-learn, same trees"),
    "Logistic regressions of six factors, 10 strengths x 5 folds of 10,000 samples": (
        "Cross-validated logistic regression",
        "scikit-learn",
    ),
    "200 iterations of Frank-Wolfe over the L1 ball, 1000 x 2000": ("Frank-Wolfe over an L1 ball", "`copt`"),
}
"""Rows of the README, and how it names them."""


def main() -> None:
    """Measure, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", choices=[*SCRIPTS, []], metavar="SCRIPT", help=f"of {', '.join(SCRIPTS)}")
    arguments = parser.parse_args()
    old = json.loads(TABLE.read_text()) if TABLE.exists() else {"rows": []}
    rows = {row["name"]: row for row in old["rows"]}
    for script in arguments.scripts or SCRIPTS:
        for row in measure(script):
            print(
                f"{row['name']:<64} {row['processor']:6.2f} {row['clock']:6.2f}  against {row['against']}", flush=True
            )
            rows[row["name"]] = row | {"script": script, "machine": machine()}
    for line in slower(old["rows"], list(rows.values())):
        print(line)
    TABLE.write_text(json.dumps({"rows": list(rows.values())}, indent=2) + "\n")
    PAGE.write_text(page(list(rows.values())))
    README.write_text(fill(README.read_text(encoding="utf-8"), SOURCE, at_a_glance(rows.values())), encoding="utf-8")


INTRODUCTION = """`make bench` writes this page. Both sides of a row run in turn in one process, or each in its own
where imports or threads are measured. A ratio above one means that unknot is faster. Processor time is that of all
threads and hardly depends on what else the machine does; the clock does, so the load of the machine is stated.

Have a GPU? `python benchmarks/gpu.py` measures training, encoding and Slot Attention there and prints a table to paste.
"""


def measure(script: str) -> list[dict[str, Any]]:
    """Return the rows of a script, run in a process of its own."""
    environment = {"OMP_NUM_THREADS": "1"} | os.environ
    command = [sys.executable, str(HERE / f"{script}.py"), "--table"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"{script}: failed with {done.returncode}; its rows are left as they were", file=sys.stderr)
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def machine() -> dict[str, Any]:
    """Return the facts about the machine that figures depend on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    names = (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    cpu = next(names, f": {platform.processor()}").partition(": ")[2]
    load = round(os.getloadavg()[0], 1)
    return {"cpu": cpu, "cores": os.cpu_count(), "load": load, "python": platform.python_version(), **versions}


def slower(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """A line for each row whose ratio fell by more than a tenth.

    >>> slower([{"name": "a", "processor": 2.0}], [{"name": "a", "processor": 1.7}])
    ['slower: a, 2.00 before and 1.70 now']
    """
    before = {row["name"]: row["processor"] for row in old}
    return [
        f"slower: {row['name']}, {before[row['name']]:.2f} before and {row['processor']:.2f} now"
        for row in new
        if row["processor"] < SLOWER * before.get(row["name"], 0)
    ]


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page: the table and the machines of its rows."""
    return f"# Benchmarks\n\n{INTRODUCTION}\n{markdown(rows)}\n\n{machines(rows)}"


def at_a_glance(rows: Iterable[dict[str, Any]]) -> str:
    """Return the README's table: a few rows in plain words."""
    ratios = {row["name"]: row for row in rows}
    lines = ["| | alternative | times as fast |", "|---|---|---|"]
    for name, (task, alternative) in AT_A_GLANCE.items():
        if name in ratios:
            lines.append(f"| {task} | {alternative} | {ratios[name]['processor']:.1f} |")
    return "\n".join(lines)


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| | against | processor time | clock | threads |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['name']} | {row['against']} | {row['processor']:.2f} | {row['clock']:.2f} | {row['threads']} |"
        for row in rows
    ]
    return "\n".join(lines)


def machines(rows: Iterable[dict[str, Any]]) -> str:
    """Return one line per machine; the first covers all rows that no other names."""
    places: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        facts = ", ".join(f"{key} {value}" for key, value in row["machine"].items() if key != "load")
        places.setdefault(facts, []).append(row)
    lines = []
    for facts, same in sorted(places.items(), key=lambda place: -len(place[1])):
        loads = [row["machine"]["load"] for row in same]
        which = "; ".join(row["name"] for row in same) if lines else "all rows" if len(places) == 1 else "other rows"
        lines.append(f"On {facts}, at a load of {min(loads)} to {max(loads)}: {which}.\n")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
