"""Scores on a few labels, by which the chapter "Semi-Supervised Disentanglement" selects models."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from unknot._modes import evaluation_mode
from unknot.datamodules import GroundTruthDataset, LabelledDataModule
from unknot.metrics import Scores, functional

ALL = {"mig": functional.mig, "modularity": functional.modularity}
SPLIT = {"sap": functional.sap, "explicitness": functional.explicitness}
NAMES = {*ALL, *SPLIT, "dci"}


def validation_scores(
    model: Any, dataset: GroundTruthDataset, metrics: Iterable[str], labels: Mapping[str, Any]
) -> Scores:
    """Scores of a model on the labelled set that a ``LabelledDataModule`` with these arguments draws.

    As in the reference, those that are not fitted see all labels, and the others fit on the part that trains (90 %)
    and are tested on the rest.
    """
    data = LabelledDataModule(dataset, **labels)
    images, values = data.labelled
    with torch.inference_mode(), evaluation_mode(model):
        codes = torch.cat([model.represent(batch) for batch in images.split(64)]).numpy().astype(float)
    # Labels are stored as shares of the range of a factor; metrics take classes, of which unused ones change nothing.
    classes = np.stack([np.unique(column, return_inverse=True)[1] for column in values.numpy().T], axis=1)
    at = data.num_train_labels
    split = codes[:at], classes[:at], codes[at:], classes[at:]
    scores = Scores(protocol={"dataset": dataset.name, "labels": dict(labels)})
    for metric in metrics:
        if metric in ALL:
            scores[metric] = float(ALL[metric](codes, classes))
        elif metric in SPLIT:
            scores[metric] = float(SPLIT[metric](*split))
        elif metric == "dci":
            scores["dci"] = float(functional.dci(*split)["disentanglement"])
        else:
            raise ValueError(f"{metric!r} is no score on labels; there are {', '.join(sorted(NAMES))}.")
    return scores
