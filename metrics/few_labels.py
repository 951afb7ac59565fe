"""Scores computed on a few labels, which select models in the chapter "Semi-Supervised Disentanglement"."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from unknot.datamodules import GroundTruthDataset, LabelledDataModule
from unknot.inference import evaluation_mode
from unknot.metrics.draws import GivenDraws
from unknot.metrics.registry import METRICS
from unknot.metrics.scores import Scores


def validation_scores(
    model: Any, dataset: GroundTruthDataset, metrics: Iterable[str], labels: Mapping[str, Any]
) -> Scores:
    """Score a model on the labelled set that a ``LabelledDataModule`` with these arguments draws.

    As in the reference, scores without a fit use all labels, and the others are fitted on the training part (90 %) and
    are tested on the rest.
    """
    if dataset.finite:
        raise ValueError(
            f"{dataset.name} is a finite collection: its labels cannot be drawn with replacement, as some that are "
            "held out would be among those that train."
        )
    data = LabelledDataModule(dataset, **labels)
    images, values = data.labelled
    with torch.inference_mode(), evaluation_mode(model):
        codes = torch.cat([model.represent(batch) for batch in images.split(64)]).numpy().astype(float)
    # Labels are stored as shares of the range of a factor; metrics take classes, and unused classes have no effect.
    classes = np.stack([np.unique(column, return_inverse=True)[1] for column in values.numpy().T], axis=1)
    at = data.num_train_labels
    held_out = codes[at:], classes[at:]
    draws = {
        "all": GivenDraws((codes, classes), held_out),
        "split": GivenDraws((codes[:at], classes[:at]), held_out),
    }
    scores = Scores(protocol={"dataset": dataset.name, "labels": dict(labels)})
    for metric in metrics:
        if metric not in METRICS or not (kind := METRICS[metric].on_labels):
            known = sorted(name for name, entry in METRICS.items() if entry.on_labels)
            raise ValueError(f"{metric!r} is not a score on labels; there are {', '.join(known)}.")
        scores[metric] = METRICS[metric].of(draws[kind])[metric]
    return scores
