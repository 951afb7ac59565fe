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
    """Load a model, score it, print a table."""
    model = load(arguments.ref)
    dataset = find_dataset(arguments.dataset or model.trained_on or "dsprites")
    metrics = "all" if arguments.metrics == ["all"] else arguments.metrics
    start = time.perf_counter()
    scores = evaluate(model, dataset, metrics, arguments.num_train, arguments.num_test, arguments.seed)
    print(
        f"{type(model).__name__} from {arguments.ref} on {dataset.name}, seed {arguments.seed}, "
        f"{arguments.num_train:,} + {arguments.num_test:,} samples, {time.perf_counter() - start:.1f} s"
    )
    print_scores(scores)
    if arguments.json:
        with replacing(Path(arguments.json)) as beside:
            beside.write_text(json.dumps(scores, indent=2) + "\n")
    return 0


def find_dataset(name: str) -> GroundTruthDataset:
    """A data set by the name that commands use."""
    if name not in DATASETS:
        raise ValueError(f"Unknown data set {name!r}; there are {', '.join(DATASETS)}.")
    return DATASETS[name]()


def print_scores(scores: dict[str, float]) -> None:
    """One line for each score."""
    width = max(map(len, scores), default=0)
    for name, value in scores.items():
        print(f"  {name:<{width}}  {value:.4f}")
