"""What the page that browses checkpoints shows: all of them, wherever they are, and what is known about each."""

import contextlib
import csv
import hashlib
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from unknot.hub import cache, client
from unknot.hub.cards import finite, label, plain
from unknot.hub.errors import MissingError
from unknot.hub.listing import SOURCES, Checkpoint, describe_folder, gather, show
from unknot.hub.refs import shipped_folder
from unknot.metrics.scores import Scores

DEPTH, MAX_FOUND = 8, 5000
POINTS = 500
LOWER = ("unfairness", "total_correlation", "elbo_reconstruction", "elbo_kl")
"""Beginnings of scores of which less is better."""


@dataclass(frozen=True)
class Entry:
    """A checkpoint of the page: its row, and where its files are if they are on this disk."""

    row: Checkpoint
    folder: Path | None = None
    run: Path | None = None

    @property
    def id(self) -> str:
        """A name for addresses, the same every time."""
        return hashlib.sha256(self.row.ref.encode(errors="replace")).hexdigest()[:12]

    @property
    def ref(self) -> Any:
        """What ``load`` takes."""
        if "folder" in self.row.sources:
            return self.folder
        return f"{self.row.ref}@{self.row.commit}" if self.row.commit else self.row.ref

    @property
    def key(self) -> str:
        """Changes when the weights do."""
        assert self.folder is not None
        return f"{self.folder}@{(self.folder / 'model.safetensors').stat().st_mtime_ns}"

    def pictures(self) -> dict[str, Path]:
        """Pictures by their name in the card; of those of a run the last of each kind."""
        found: dict[str, Path] = {}
        for base in filter(None, (self.run, self.folder)):
            for path in sorted(base.glob("pictures/*.png"))[:200]:
                name = (
                    f"pictures/{re.sub(r'-[0-9]+$', '', path.stem)}.png"
                    if base == self.run
                    else f"pictures/{path.name}"
                )
                if client.PICTURE.fullmatch(name) and path.is_file() and path.stat().st_size <= client.MAX_PICTURE:
                    found[name] = path
        return dict(sorted(found.items(), key=lambda item: ("traversals" not in item[0], item[0])))


class Index:
    """All checkpoints that the page shows: those on this disk at once, those of the hub when it has answered.

    Args:
        folders: searched for saved models and runs of `unknot fit`.
        endpoint: address of the hub.
    """

    def __init__(self, folders: Iterable[str | Path] = (), endpoint: str | None = None) -> None:
        self.endpoint, self.folders = endpoint, [Path(folder) for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise FileNotFoundError(
                    f"{folder}: no such folder. Give one with saved models or runs of `unknot fit`."
                )
        self._lock = threading.Lock()
        self.remote, self.note, self.ready = "asking", "", False
        self.about: Callable[[str | None], dict[str, Any]] = lambda name: {}
        self._take(gather(("shipped", "cached"))[0])

    def _take(self, rows: list[Checkpoint]) -> None:
        entries = [Entry(row, place(row)) for row in rows]
        for folder in self.folders:
            entries += find_models(folder)
        self.entries = {entry.id: entry for entry in entries}

    def refresh(self) -> None:
        """Ask the hub, within its deadline. Without an answer the last one stays, and ``remote`` says so."""
        with self._lock:
            if client.is_offline():
                self.remote, self.note = "offline", "Offline mode is on (HF_HUB_OFFLINE): the hub is not asked."
                return self._take(gather(("shipped", "cached"))[0])
            known = [entry.row for entry in self.entries.values() if entry.row.sources == ("remote",)]
            before, self.remote = self.remote, "asking"
            rows, notes = gather(SOURCES, self.endpoint)
            if not notes:
                self.remote, self.note = "listed", client.endpoint_of(self.endpoint)
            else:
                self.remote = "stale" if before in ("listed", "stale") else "offline"
                self.note = plain(notes[0], 500)
                here = {row.ref for row in rows}
                rows += [row for row in known if row.ref not in here]
            self._take(rows)

    def learn(self) -> None:
        """Learn about the models of the zoo, which takes torch some seconds to import."""
        from unknot.hub.kinds import describe_model

        self.about, self.ready = describe_model, True

    def get(self, key: str) -> Entry:
        """A checkpoint by its id."""
        if key not in self.entries:
            raise MissingError("There is no such checkpoint any more. Reload the page.")
        return self.entries[key]

    def record(self, entry: Entry, picture: "PictureAddress") -> dict[str, Any]:
        """What the gallery shows."""
        about = self.about(entry.row.model)
        first = next(iter(entry.pictures().items()), None)
        record = entry.row.to_dict() | {
            "id": entry.id,
            "family": entry.row.family or about.get("family"),
            "latents": about.get("latents"),
            "local": entry.folder is not None,
            "thumbnail": picture(entry, *first, "small") if first else None,
        }
        return record

    def listed(self, picture: "PictureAddress") -> dict[str, Any]:
        """All records, and how the hub's list came about."""
        records = [self.record(entry, picture) for entry in self.entries.values()]
        scores = sorted({score for record in records for score in record["scores"]})
        return {
            "checkpoints": records,
            "labels": {score: label(score) for score in scores},
            "lower": [score for score in scores if score.startswith(LOWER)],
            "remote": self.remote,
            "note": self.note,
            "ready": self.ready,
        }

    def detail(self, entry: Entry, picture: "PictureAddress") -> dict[str, Any]:
        """What the page of one checkpoint shows besides; a remote one's card is asked for."""
        if entry.folder is None:
            described = show(str(entry.ref), self.endpoint)
        else:
            described = describe_folder(entry.folder, entry.row.ref, entry.row.sources[0], entry.row.commit)
        return {
            "files": described.files,
            "card": described.body,
            "arguments": _arguments(entry.folder),
            "pictures": [
                {"name": name, "url": picture(entry, name, path, "large")} for name, path in entry.pictures().items()
            ],
            "training": _training(entry),
            "load": f"from unknot.hub import load\n\nmodel = load({str(entry.ref)!r})",
        }


PictureAddress = Callable[[Entry, str, Path, str], str | None]


def find_models(root: Path) -> Iterator[Entry]:
    """Saved models under a folder; one that `unknot fit` wrote comes with its run."""
    found = 0
    walk = tqdm(os.walk(root), desc=f"searching {root}", unit="folder", disable=None, leave=False, delay=1)
    for name, folders, files in walk:
        path = Path(name)
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        if len(path.relative_to(root).parts) >= DEPTH:
            folders.clear()
        if {"config.json", "model.safetensors"} <= set(files):
            found += 1
            if found > MAX_FOUND:
                return
            run = path.parent if path.name == "model" and (path.parent / "config.yaml").is_file() else None
            yield Entry(_row_of(path, run), path, run)


def _row_of(path: Path, run: Path | None) -> Checkpoint:
    ref = str(run or path)
    try:
        row = describe_folder(path, ref, "folder").checkpoint
        changed = (path / "model.safetensors").stat().st_mtime
        modified = datetime.fromtimestamp(changed, timezone.utc).isoformat(timespec="seconds")
        return replace(row, modified=modified, scores=row.scores or _scores(run or path), seed=_seed(row, run))
    except OSError as error:  # one that cannot be read does not hide the others
        return Checkpoint(ref, ("folder",), problem=plain(error))


def _scores(folder: Path) -> Scores:
    """Of ``scores.json``, which `unknot evaluate --json` wrote there; what is not finite is left out."""
    path = folder / "scores.json"
    try:
        scores = Scores.read(path) if path.stat().st_size <= 1 << 20 else Scores()
    except (OSError, ValueError, OverflowError, RecursionError):
        return Scores()
    known = {name[:100]: value for name, value in scores.items() if finite(value) is not None}
    spread = {name[:100]: value for name, value in scores.std.items() if finite(value) is not None}
    return Scores(known, spread, protocol=scores.protocol)


def _seed(row: Checkpoint, run: Path | None) -> int | None:
    if row.seed is None and run is not None and (run / "config.yaml").stat().st_size <= 1 << 20:
        text = (run / "config.yaml").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^seed_everything: ([0-9]{1,18})$", text, re.MULTILINE)
        return int(found[1]) if found else None
    return row.seed


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > 1 << 20:
            return {}
        loaded = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _arguments(folder: Path | None) -> dict[str, Any] | None:
    arguments = _json(folder / "config.json").get("arguments") if folder else None
    return arguments if isinstance(arguments, dict) else None


def place(row: Checkpoint) -> Path | None:
    """Where the files of what ``load`` would give are, if all of them are here."""
    if "shipped" in row.sources:
        return shipped_folder(row.ref)
    if row.commit and cache.cached_commit(row.ref, row.commit):
        return cache.repo_cache(row.ref) / "snapshots" / row.commit
    return None


def _training(entry: Entry) -> dict[str, list[list[float]]]:
    """Columns of the record of a training, each ``[[step, value], ...]``, thinned to what a curve can show."""
    path = entry.run / "metrics.csv" if entry.run else entry.folder / "training.csv" if entry.folder else None
    if path is None or not path.is_file() or path.stat().st_size > client.LIMITS["training.csv"]:
        return {}
    columns: dict[str, list[list[float]]] = {}
    with path.open(encoding="utf-8", errors="replace", newline="") as file, contextlib.suppress(csv.Error):
        for number, line in enumerate(csv.DictReader(file)):
            step = _number(line.get("step"))
            for name, text in line.items():
                value = _number(text)
                if isinstance(name, str) and name not in ("step", "epoch") and value is not None:
                    columns.setdefault(name[:100], []).append([number if step is None else step, value])
    return {name: values[:: -(-len(values) // POINTS)] for name, values in list(columns.items())[:50]}


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
