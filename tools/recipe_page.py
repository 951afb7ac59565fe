"""Fill the table of docs/recipe.md: MIG and DCI of short training runs by their processor time.

python tools/recipe_page.py                              # write the table from docs/recipe.json
python tools/recipe_page.py RUNS                         # first take up the runs of a folder, *.json
python tools/recipe_page.py RUNS --train SPEC --seed 1   # train a choice into RUNS: one of docs/recipe.json, or JSON

A choice has ``name``, ``model``, its ``args`` and ``lr``, ``steps``, and may have ``batch`` (64), ``size`` of the
images (32), ``k`` of pairs, ``warmup`` and ``cosine``, and ``anneal``: an argument, its first and last value, and over
which part of the steps it changes. A run has the choice, its ``seed`` and its ``log``: step, core-seconds without
scoring, and ``score``, which is MIG, DCI disentanglement, completeness and informativeness of 5,000 + 2,500 images.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from fill_page import fill

DOCS = Path(__file__).parents[1] / "docs"
DATA, PAGE = DOCS / "recipe.json", DOCS / "recipe.md"
SOURCE = "docs/recipe.json"
AT, WITHIN = (76, 105, 155, 225, 315), 0.13
"""Core-seconds at which choices are compared, and the maximum relative distance of scores from them."""
SCORES = ("mig", "dci", "dci_completeness", "dci_informativeness_test")


def train(spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train a choice, with scores after each quarter."""
    import pytorch_lightning as pl
    import torch

    from unknot import zoo
    from unknot.datamodules import DSprites, FactorDataModule, PairDataModule, Resized
    from unknot.machine import keep_freed_memory
    from unknot.metrics import evaluate

    keep_freed_memory()
    torch.set_num_threads(1)
    size, steps, batch = spec.get("size", 32), spec["steps"], spec.get("batch", 64)
    dataset = DSprites() if size == 64 else Resized(DSprites(), size)
    pl.seed_everything(seed)
    model = getattr(zoo, spec["model"])(image_shape=(1, size, size), lr=spec["lr"], **spec["args"])
    log: list[dict[str, Any]] = []

    class Score(pl.Callback):
        """Callback that records the processor time at each quarter, and then scores with the clock stopped."""

        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            self.start = time.process_time()

        def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *batch: Any) -> None:
            if trainer.global_step % max(1, steps // 4):
                return
            core = time.process_time() - self.start
            scores = evaluate(pl_module, dataset, ["mig", "dci"], num_train=5000, num_test=2500)
            row = {"step": trainer.global_step, "core": core, "score": [float(scores[name]) for name in SCORES]}
            log.append(row)
            print(spec["name"], seed, row, flush=True)
            self.start = time.process_time() - core

    callbacks: list[pl.Callback] = [Score()]
    if spec.get("anneal"):
        attribute, first, last, part = spec["anneal"]
        callbacks.append(zoo.Anneal(attribute, first, last, int(part * steps)))
    if spec.get("cosine"):
        plain = model.configure_optimizers

        def with_cosine() -> dict[str, Any]:
            optimizer = plain()
            rate = zoo.WarmupCosine(optimizer, spec.get("warmup", 0), steps)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}

        model.configure_optimizers = with_cosine
    if "k" in spec:
        data: FactorDataModule = PairDataModule(dataset, k=spec["k"], batch_size=batch)
    else:
        data = FactorDataModule(dataset, batch_size=batch)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "limit_val_batches": 0}
    pl.Trainer(max_steps=steps, callbacks=callbacks, accelerator="cpu", **quiet).fit(model, datamodule=data)
    return {"spec": spec, "seed": seed, "log": log}


def collect(folder: Path, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return known runs with those of a folder added; a run with the same choice and seed replaces the old one."""
    runs = {(run["spec"]["name"], run["seed"]): run for run in known}
    for path in sorted(folder.rglob("*.json")):
        run = json.loads(path.read_text())
        if isinstance(run, dict) and "log" in run:
            runs[run["spec"]["name"], run["seed"]] = run
    return [run | {"log": [_rounded(row) for row in run["log"]]} for run in runs.values()]


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"core": round(row["core"], 1), "score": [round(value, 4) for value in row["score"]]}


def table(runs: list[dict[str, Any]]) -> str:
    """Return one row for each choice at 32 × 32 and time, averaged over seeds, with models in order of appearance."""
    runs = [run for run in runs if run["spec"].get("size", 32) == 32]
    rows = ["| model | choice | core-seconds | seeds | MIG | DCI disentanglement |", "|---|---|---|---|---|---|"]
    choices: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        choices.setdefault(run["spec"]["name"], []).append(run)
    models = list(dict.fromkeys(run["spec"]["model"] for run in runs))
    for model, at in ((model, at) for model in models for at in AT):
        found = []
        for parts in choices.values():
            if parts[0]["spec"]["model"] != model:
                continue
            near = [row["score"] for run in parts for row in run["log"] if abs(row["core"] / at - 1) <= WITHIN]
            if near:
                found.append((fmean(score[0] for score in near), parts[0]["spec"], near))
        for _, spec, near in sorted(found, key=lambda entry: -entry[0]):
            shown = {name: value for name, value in spec["args"].items() if name != "reconstruction_weight"}
            arguments = ", ".join(f"{name} {value:g}" for name, value in shown.items())
            mig, dci = (_mean([score[index] for score in near]) for index in (0, 1))
            rows.append(f"| {model}, {arguments} | {choice(spec)} | {at} | {len(near)} | {mig} | {dci} |")
    return "\n".join(rows)


def _mean(values: list[float]) -> str:
    each = ", ".join(f"{value:.3f}" for value in values)
    return f"**{fmean(values):.3f}** ({each})" if len(values) > 1 else f"{each}"


def choice(spec: dict[str, Any]) -> str:
    """Return the choice in words."""
    words = [f"lr {spec['lr']:g}"]
    if spec.get("cosine"):
        words += [f"{spec.get('warmup', 0)} steps of warm-up", "cosine"]
    if spec.get("batch", 64) != 64:
        words.append(f"batch {spec['batch']}")
    if "k" in spec:
        words.append(f"k = {spec['k']}")
    if spec.get("anneal"):
        name, start, end, part = spec["anneal"]
        words.append(f"{name} from {start:g} to {end:g} over the first {part:.0%}")
    else:
        words.append("constant strength")
    return ", ".join(words)


def main() -> None:
    """Train or collect runs if a folder is given, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("--train", metavar="SPEC")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    known = json.loads(DATA.read_text())
    if arguments.train:
        if arguments.runs is None:
            parser.error("--train needs the folder RUNS")
        named = {run["spec"]["name"]: run["spec"] for run in known}
        run = train(named.get(arguments.train) or json.loads(arguments.train), arguments.seed)
        arguments.runs.mkdir(parents=True, exist_ok=True)
        (arguments.runs / f"{run['spec']['name']}-{run['seed']}.json").write_text(json.dumps(run))
        return
    if arguments.runs:
        known = collect(arguments.runs, known)
        DATA.write_text("[\n" + ",\n".join(json.dumps(run) for run in known) + "\n]\n")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), SOURCE, table(known)), encoding="utf-8")


if __name__ == "__main__":
    main()
