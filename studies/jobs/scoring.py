"""Compute the missing scores of a stored model."""

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
    """Compute missing scores of the stored model, protocol by protocol.

    Args:
        run: folder of the job.
        config: settings of the job.
        protocols: scores to compute.
        imported: modules whose classes the settings may name.
        report: function called with the number of finished protocols and their total.
    """
    missing = [(protocol, run.missing(protocol.draws, protocol.metrics)) for protocol in protocols]
    missing = [(protocol, metrics) for protocol, metrics in missing if metrics]
    if not missing:
        return
    # Always the stored model, so that a score does not depend on when it is computed.
    model = find_class(config["model"]["class_path"], imported).from_pretrained(run.model)
    data = config["data"]
    dataset = build(data["init_args"].get("dataset", data), imported)  # for own images, the DataModule itself
    for place, (protocol, metrics) in enumerate(missing):
        report(place, len(missing))
        if protocol.labels:
            from unknot.metrics.few_labels import validation_scores

            scores = validation_scores(model, dataset, metrics, dict(protocol.labels))
        else:
            scores = evaluate(model, with_law(dataset, protocol.law), metrics, **protocol.samples)
        run.add_scores(scores, metrics, protocol.draws)
