"""Protocols of a study: its scores, and the samples that they use."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from unknot.arguments import did_you_mean
from unknot.labels import Law

KEYS = {"metrics", "label", "num_train", "num_test", "seed", "repeats", "labels", "law"}
LABEL_KEYS = ("num_labels", "labelling", "label_seed")


@dataclass(frozen=True)
class Protocol:
    """Scores that are computed together, on the same samples.

    Args:
        metrics: names of scores for ``evaluate``.
        label: suffix of columns ``score@label`` of the table; without one, ``score``.
        num_train: samples to fit or score on.
        num_test: further samples for scores that predict.
        seed: seed of the samples.
        repeats: repetitions to average over.
        labels: instead of fresh samples with true factors, the few labels of a ``LabelledDataModule`` with these
            arguments: a validation score, as in the chapter on few labels.
        law: distribution of the factors: ``"training"``, that of the job; ``"independent"``, all combinations equally
            often; or ``"held_out"``, combinations not seen in training.
    """

    metrics: tuple[str, ...]
    label: str = ""
    num_train: int = 10_000
    num_test: int = 5_000
    seed: int = 0
    repeats: int = 1
    labels: tuple[tuple[str, Any], ...] = ()
    law: Law = "training"

    @property
    def draws(self) -> dict[str, Any]:
        """Return everything except the name that determines a score."""
        if self.labels:
            return {"labels": dict(self.labels)}
        return self.samples | ({} if self.law == "training" else {"law": self.law})

    @property
    def samples(self) -> dict[str, Any]:
        """Return numbers of samples and their seed, as arguments of ``evaluate``."""
        return {name: getattr(self, name) for name in ("num_train", "num_test", "seed", "repeats")}

    def column(self, score: str) -> str:
        """Return the column of a score in the table."""
        return f"{score}@{self.label}" if self.label else score


def read_protocols(scores: Any) -> list[Protocol]:
    """Read the ``scores`` of a study: names, or entries with names and sampling options.

    >>> read_protocols(["mig", {"metrics": ["mig", "dci"], "num_train": 100, "label": "100"}])[1].column("dci")
    'dci@100'
    """
    if not isinstance(scores, list):
        raise ValueError("`scores` must be a list of names, or of entries such as {metrics: [mig], num_train: 100}.")
    plain = [entry for entry in scores if isinstance(entry, str)]
    entries = [{"metrics": plain}] if plain else []
    protocols = [
        protocol for entry in [*entries, *(e for e in scores if not isinstance(e, str))] for protocol in _read(entry)
    ]
    labels = [protocol.label for protocol in protocols]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"`scores`: two entries have the label {label!r}, their columns need different names.")
    return protocols


def _read(entry: Any) -> list[Protocol]:
    metrics = entry.get("metrics") if isinstance(entry, dict) else None
    if not isinstance(metrics, list) or not metrics or not all(isinstance(metric, str) for metric in metrics):
        raise ValueError(f"`scores`: expected an entry with a list of `metrics`, got {entry!r:.80}.")
    for key in entry:
        if key not in KEYS:
            raise ValueError(f"`scores`: unknown key `{key}`. {did_you_mean(str(key), KEYS)}")
    given = dict(entry) | {"metrics": tuple(metrics), "label": str(entry.get("label", ""))}
    labels = given.pop("labels", None)
    for key, least in {"num_train": 1, "num_test": 1, "repeats": 1, "seed": 0}.items():
        if key in given:
            _whole(key, given[key], least)
    if "law" in given and given["law"] not in get_args(Law):
        raise ValueError(f"`scores`: `law` must be one of {', '.join(get_args(Law))}, got {given['law']!r}.")
    if labels is None:
        return [Protocol(**given)]
    return _of_labels(given, labels)


def _of_labels(given: Mapping[str, Any], labels: Any) -> list[Protocol]:
    """Return one protocol for each number, kind and draw of labels."""
    if not isinstance(labels, dict) or not labels.keys() <= set(LABEL_KEYS):
        raise ValueError(f"`scores`: `labels` takes lists of {', '.join(LABEL_KEYS)}, got {labels!r:.80}.")
    values = [labels.get("num_labels", [1000]), labels.get("labelling", ["perfect"]), labels.get("label_seed", [0])]
    prefix = f"{given['label']}-" if given["label"] else ""
    protocols = []
    for point in itertools.product(*(value if isinstance(value, list) else [value] for value in values)):
        number, kind, draw = point
        _whole("num_labels", number, 1)
        _whole("label_seed", draw, 0)
        drawn = tuple(zip(LABEL_KEYS, point, strict=True))
        protocols.append(Protocol(given["metrics"], f"{prefix}{number}-{kind}-{draw}", labels=drawn))
    return protocols


def _whole(key: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"`scores`: `{key}` must be a whole number of at least {least}, got {value!r}.")


def check_metrics(protocols: list[Protocol]) -> None:
    """Check that all scores are known."""
    from unknot.datamodules.labels import NAMED
    from unknot.metrics import METRICS

    on_labels = [name for name, entry in METRICS.items() if entry.on_labels]

    for protocol in protocols:
        kind = dict(protocol.labels).get("labelling")
        if kind is not None and kind not in NAMED:
            raise ValueError(f"`scores`: there are no labels of the kind {kind!r}. {did_you_mean(str(kind), NAMED)}")
        for metric in protocol.metrics:
            if protocol.labels and metric not in on_labels:
                raise ValueError(f"{metric!r} is not a score on labels. {did_you_mean(metric, on_labels)}")
            if not protocol.labels and metric not in METRICS:
                raise ValueError(f"Unknown score {metric!r}. {did_you_mean(metric, METRICS)}")
