"""Scores of a stored model: those of a study that are not there yet."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from unknot.metrics import Scores, evaluate
from unknot.studies.datasets import build, find_class
from unknot.studies.folders import JobFolder, entry_of, write_json
from unknot.studies.protocols import Protocol


def add_scores(
    files: JobFolder,
    config: dict[str, Any],
    protocols: list[Protocol],
    imported: Iterable[str] = (),
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Compute what is missing, protocol by protocol, from the model as it is stored."""
    missing = files.missing(protocols)
    if not missing:
        return
    # Always the stored model, so that a score is the same whether it is computed after the training or a year later.
    model = find_class(config["model"]["class_path"], imported).from_pretrained(files.model)
    dataset = build(config["data"]["init_args"]["dataset"], imported)
    for place, (protocol, metrics) in enumerate(missing):
        tell(place, len(missing))
        if protocol.labels:
            from unknot.studies.labels import validation_scores

            scores = validation_scores(model, dataset, metrics, dict(protocol.labels))
        else:
            scores = evaluate(model, dataset, metrics, **protocol.draws)
        stored = files.read_scores()
        entry = entry_of(stored, protocol)
        old = Scores.from_json(json.dumps(entry["scores"]))
        both = Scores(old | scores, old.std | scores.std, old.details | scores.details, scores.protocol)
        stored["entries"] = [other for other in stored["entries"] if other["draws"] != entry["draws"]]
        entry |= {"metrics": [*entry["metrics"], *metrics], "scores": json.loads(both.to_json())}
        stored["entries"].append(entry)
        write_json(files.scores, stored)
