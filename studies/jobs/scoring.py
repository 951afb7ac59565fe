"""Scores of a stored model: those of a study that are not there yet."""

from collections.abc import Callable, Iterable
from typing import Any

from unknot.datamodules import with_law
from unknot.metrics import evaluate
from unknot.studies.protocols import Protocol
from unknot.training import RunFolder
from unknot.training.settings import build, find_class


def add_scores(
    run: RunFolder,
    config: dict[str, Any],
    protocols: Iterable[Protocol],
    imported: Iterable[str] = (),
    report: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Compute what is missing, protocol by protocol, from the model as it is stored.

    Args:
        run: folder of the job.
        config: settings of the job.
        protocols: scores that it needs.
        imported: modules whose classes the settings may name.
        report: takes how many protocols are done, of how many.
    """
    missing = [(protocol, run.missing(protocol.draws, protocol.metrics)) for protocol in protocols]
    missing = [(protocol, metrics) for protocol, metrics in missing if metrics]
    if not missing:
        return
    # Always the stored model, so that a score is the same whether it is computed after the training or a year later.
    model = find_class(config["model"]["class_path"], imported).from_pretrained(run.model)
    data = config["data"]
    dataset = build(data["init_args"].get("dataset", data), imported)  # of own images the DataModule itself
    for place, (protocol, metrics) in enumerate(missing):
        report(place, len(missing))
        if protocol.labels:
            from unknot.metrics.few_labels import validation_scores

            scores = validation_scores(model, dataset, metrics, dict(protocol.labels))
        else:
            scores = evaluate(model, with_law(dataset, protocol.law), metrics, **protocol.samples)
        run.add_scores(scores, metrics, protocol.draws)
