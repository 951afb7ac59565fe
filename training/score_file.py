"""``scores.json``: losses on held-out batches, and scores with their sampling options and weights.

The file belongs to a run, a job of a study, or a saved model::

    {"schema": 2, "validation": {}, "entries": [{"draws": {}, "metrics": [], "weights": SHA-256, "scores": {}}]}

Version 0.1.0 wrote the same without a schema and hashes, or plain scores as ``unknot evaluate --json`` does.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from unknot.checkpoints.names import WEIGHTS
from unknot.files import read_json, write_json
from unknot.metrics.scores import Scores

SCHEMA = 2
SCORES = "scores.json"
MAX_JSON = 16 << 20
USUAL_DRAWS = {"num_train": 10_000, "num_test": 5_000, "seed": 0, "repeats": 1}
"""Default protocol of samples."""
DRAWS = (*USUAL_DRAWS, "labels", "distribution", "dataset", "backend")
"""Parts of the protocol of scores that determine a score."""


@dataclass(frozen=True)
class Entry:
    """Scores for one choice of sampling options."""

    draws: dict[str, Any]
    metrics: list[str]
    """Requested metrics."""
    weights: str | None
    """Hash of the measured weights; None if an earlier version did not record it."""
    scores: Scores

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return vars(self) | {"scores": json.loads(self.scores.to_json())}


class ScoreFile:
    """File of scores.

    Args:
        path: path of the file.
        dataset: function that returns the name of the training data set.
    """

    def __init__(self, path: Path, dataset: Callable[[], str | None]) -> None:
        self.path, self.dataset = path, dataset

    @classmethod
    def beside(cls, folder: Path) -> "ScoreFile":
        """Return the scores in the folder of a saved model without a run."""
        return cls(folder / SCORES, lambda: None)

    def read(self) -> tuple[dict[str, float], list[Entry]]:
        """Return losses on held-out batches and entries; raise a ``ValueError`` that names a damaged file."""
        content = read_json(self.path, MAX_JSON)
        if content is None:
            return {}, []
        if isinstance(content, dict) and isinstance(content.get("entries"), list):
            check_schema(content, self.path, SCHEMA)
            try:
                losses = {str(name): float(value) for name, value in content.get("validation", {}).items()}
                return losses, [_entry(entry) for entry in content["entries"]]
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise ValueError(f"{self.path}: damaged ({error})") from None
        if self._is_older():
            return {}, []
        scores = Scores.read(self.path)
        return {}, [Entry(self._draws(scores), list(scores), None, scores)] if scores else []

    def _is_older(self) -> bool:
        """Return whether the weights are newer than the file; plain scores do not record their weights."""
        places = (self.path.parent / "model" / WEIGHTS, self.path.parent / WEIGHTS)
        return any(path.is_file() and path.stat().st_mtime > self.path.stat().st_mtime for path in places)

    def validation(self) -> dict[str, float]:
        """Return the losses on held-out batches after the last training step."""
        return self.read()[0]

    def valid(self, weights: str | None) -> list[Entry]:
        """Return the entries measured on these weights."""
        return [entry for entry in self.read()[1] if entry.weights in (None, weights)]

    def scores(self, weights: str | None, draws: Mapping[str, Any] | None = None) -> Scores:
        """Return the scores of these weights.

        Args:
            weights: hash of the weights.
            draws: how the samples were drawn; by default as usual, or else with the most samples.
        """
        entries = self.valid(weights)
        if draws is None:
            usual = [entry for entry in entries if entry.draws == USUAL_DRAWS]
            entries = usual or sorted(entries, key=lambda entry: -entry.draws.get("num_train", 0))
        else:
            entries = [entry for entry in entries if entry.draws == dict(draws)]
        return entries[0].scores if entries else Scores()

    def missing(self, weights: str | None, draws: Mapping[str, Any], metrics: Iterable[str]) -> list[str]:
        """Return the metrics that are not measured yet."""
        done = {name for entry in self.valid(weights) if entry.draws == dict(draws) for name in entry.metrics}
        return [metric for metric in metrics if metric not in done]

    def add(
        self,
        weights: str | None,
        scores: Scores,
        metrics: Iterable[str] = (),
        draws: Mapping[str, Any] | None = None,
    ) -> None:
        """Add scores to the existing ones; safe for concurrent processes.

        Args:
            weights: hash of the measured weights.
            scores: measured scores.
            metrics: names under which they were requested; by default their own.
            draws: how the samples were drawn; by default as their protocol says.
        """
        draws = self._draws(scores) if draws is None else dict(draws)
        with self._lock():
            losses, entries = self.read()
            same = [entry for entry in entries if entry.draws == draws and entry.weights in (None, weights)]
            for entry in same:
                metrics = [*entry.metrics, *(metrics or scores)]
                scores = entry.scores.merged(scores)
            new = Entry(draws, list(dict.fromkeys(metrics or scores)), weights, scores)
            self._write(losses, [*(entry for entry in entries if entry not in same), new])

    def set_validation(self, losses: Mapping[str, float]) -> None:
        """Replace the losses on held-out batches."""
        with self._lock():
            self._write(losses, self.read()[1])

    def _lock(self) -> FileLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_suffix(".lock"), timeout=60)

    def _write(self, losses: Mapping[str, float], entries: Iterable[Entry]) -> None:
        validation = {name: value if math.isfinite(value) else str(value) for name, value in losses.items()}
        document = {"schema": SCHEMA, "validation": validation, "entries": [entry.to_json() for entry in entries]}
        write_json(self.path, document, durable=True)

    def _draws(self, scores: Scores) -> dict[str, Any]:
        """Return the sampling options of a protocol; data set and backend only if they are unusual."""
        drawn = {name: scores.protocol[name] for name in DRAWS if name in scores.protocol}
        for name, usual in (("dataset", self.dataset()), ("backend", "unknot")):
            if drawn.get(name) in (None, usual):
                drawn.pop(name, None)
        return drawn or dict(USUAL_DRAWS)


def check_schema(content: Any, path: Path, known: int) -> None:
    """Raise an error for a file from a newer version, or one that is not a JSON object."""
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected an object")
    if (found := content.get("schema", 1)) not in range(1, known + 1):
        raise ValueError(f"{path}: written by a newer version of unknot (schema {found}); this one knows {known}")


def _entry(content: Any) -> Entry:
    draws, metrics, weights = content["draws"], content["metrics"], content.get("weights")
    if not isinstance(draws, dict) or not isinstance(metrics, list) or not isinstance(weights, str | None):
        raise TypeError("an entry with values of the wrong kind")
    return Entry(draws, metrics, weights, Scores.from_json(json.dumps(content["scores"])))
