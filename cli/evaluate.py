"""``unknot evaluate``."""

import argparse
import json
import time
from pathlib import Path

from unknot._files import replacing
from unknot.datamodules import DATASETS, GroundTruthDataset
from unknot.hub import load
from unknot.metrics import evaluate


def evaluate_command(arguments: argparse.Namespace) -> int:
    """Load a model, score it, print a table; write JSON and pictures where asked."""
    model = load(arguments.ref)
    dataset = find_dataset(arguments.dataset or model.trained_on or "dsprites")
    metrics = "all" if arguments.metrics == ["all"] else arguments.metrics
    start = time.perf_counter()
    scores = evaluate(
        model,
        dataset,
        metrics,
        arguments.num_train,
        arguments.num_test,
        arguments.seed,
        arguments.repeats,
        pictures=arguments.pictures,
    )
    last = arguments.seed + arguments.repeats - 1
    seeds = f"seed {arguments.seed}" + (f" to {last}" if arguments.repeats > 1 else "")
    print(
        f"{type(model).__name__} from {arguments.ref} on {dataset.name}, {seeds}, "
        f"{arguments.num_train:,} + {arguments.num_test:,} samples, {time.perf_counter() - start:.1f} s"
    )
    print_scores(scores)
    if arguments.json:
        with replacing(Path(arguments.json)) as beside:
            beside.write_text(json.dumps(scores, indent=2) + "\n")
        print(f"All scores, with those of each factor, are in {arguments.json}.")
    if arguments.pictures:
        print(f"Pictures are in {arguments.pictures}.")
    return 0


def find_dataset(name: str) -> GroundTruthDataset:
    """A data set by the name that commands use."""
    if name not in DATASETS:
        raise ValueError(f"Unknown data set {name!r}; there are {', '.join(DATASETS)}.")
    return DATASETS[name]()


def print_scores(scores: dict[str, float]) -> None:
    """One line for each score, with its standard deviation if there is one; details (``name/...``) are left out."""
    shown = [name for name in scores if "/" not in name and not (name.endswith("_std") and name[:-4] in scores)]
    width = max(map(len, shown), default=0)
    for name in shown:
        spread = f" ± {scores[f'{name}_std']:.4f}" if f"{name}_std" in scores else ""
        print(f"  {name:<{width}}  {scores[name]:.4f}{spread}")
