"""Fill the table of docs/recipe.md: MIG and DCI of short trainings by the processor time that they took.

python benchmarks/recipe.py               # write the table from docs/recipe.json
python benchmarks/recipe.py RUNS          # first collect the runs of a folder: *.json, and of interrupted ones *.txt

A run has ``spec`` (name, model, args, lr, warmup, cosine, anneal, batch, k), ``seed`` and ``log`` (step, core, score);
``score`` is MIG, DCI disentanglement, completeness and informativeness, of 5,000 + 2,500 images.
"""

import ast
import json
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from common import fill

DOCS = Path(__file__).parents[1] / "docs"
DATA, PAGE = DOCS / "recipe.json", DOCS / "recipe.md"
SOURCE = "docs/recipe.json"
AT = (80, 155, 235, 315)
"""Core-seconds at which choices are compared: a run counts with its last scores within 10 % of them."""


def collect(folder: Path) -> list[dict[str, Any]]:
    """The runs of a folder; of those without a file of their own, what they logged."""
    runs = {(run["spec"]["name"], run["seed"]): run for run in map(_read, sorted(folder.rglob("*.json")))}
    queue = [line.split(" ", 1) for path in folder.rglob("queue.txt") for line in path.read_text().splitlines()]
    specs = {spec["name"]: spec for spec in (json.loads(text) for _, text in queue)}
    for path in sorted(folder.rglob("log*.txt")):
        for name, seed, row in re.findall(r"^(\S+) (\d+) (\{'step'.*\})$", path.read_text(), flags=re.MULTILINE):
            key = name, int(seed)
            if "log" not in runs.get(key, {}) or runs[key].get("interrupted"):
                run = runs.setdefault(key, {"spec": specs[name], "seed": int(seed), "log": [], "interrupted": True})
                run["log"].append(ast.literal_eval(row))
    kept = []
    for run in runs.values():
        log = [
            {"step": row["step"], "core": round(row["core"], 1), "score": _rounded(row["score"])} for row in run["log"]
        ]
        kept.append({"spec": run["spec"], "seed": run["seed"], "log": log})
    return kept


def _read(path: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(path.read_text())
    return run


def _rounded(score: list[float]) -> list[float]:
    return [round(value, 4) for value in score]


def table(runs: list[dict[str, Any]]) -> str:
    """One row for each choice and time, averaged over its seeds."""
    rows = ["| model | choice | core-seconds | seeds | MIG | DCI disentanglement |", "|---|---|---|---|---|---|"]
    choices: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        choices.setdefault(run["spec"]["name"], []).append(run)
    for at in AT:
        found = []
        for parts in choices.values():
            near = [row["score"] for run in parts for row in run["log"] if abs(row["core"] / at - 1) <= 0.1]
            if near:
                found.append((fmean(score[0] for score in near), parts[0]["spec"], near))
        for _, spec, near in sorted(found, key=lambda one: -one[0]):
            arguments = ", ".join(f"{name} {value:g}" for name, value in spec["args"].items())
            mig, dci = (_mean([score[index] for score in near]) for index in (0, 1))
            rows.append(f"| {spec['model']}, {arguments} | {choice(spec)} | {at} | {len(near)} | {mig} | {dci} |")
    return "\n".join(rows)


def _mean(values: list[float]) -> str:
    each = ", ".join(f"{value:.3f}" for value in values)
    return f"**{fmean(values):.3f}** ({each})" if len(values) > 1 else f"{each}"


def choice(spec: dict[str, Any]) -> str:
    """What was chosen, in words."""
    rate = f"lr {spec['lr']:g}"
    if spec.get("cosine"):
        rate += f", {spec.get('warmup', 0)} steps of warm-up, cosine"
    if spec.get("batch", 64) != 64:
        rate += f", batch {spec['batch']}"
    if not spec.get("anneal"):
        return f"{rate}, constant strength"
    name, start, end, part = spec["anneal"]
    return f"{rate}, {name} from {start:g} to {end:g} over the first {part:.0%}"


def main() -> None:
    """Collect where a folder is given, and fill the page."""
    if len(sys.argv) > 1:
        runs = collect(Path(sys.argv[1]))
        DATA.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
    PAGE.write_text(
        fill(PAGE.read_text(encoding="utf-8"), SOURCE, table(json.loads(DATA.read_text()))), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
