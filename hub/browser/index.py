"""Index of all checkpoints that the page shows, with facts about each."""

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from unknot.checkpoints import cache, client
from unknot.checkpoints.card import finite, plain
from unknot.checkpoints.errors import MissingError
from unknot.checkpoints.names import bundled_folder
from unknot.hub.browser.in_browser import capabilities_of, is_playable
from unknot.hub.listing import SOURCES, Checkpoint, describe_folder, gather, show
from unknot.hub.tables import bundled_tables, is_table, read_bundled, read_table
from unknot.metrics.registry import about, default_scores
from unknot.metrics.scores import Scores
from unknot.training.curves import Curves, curves
from unknot.training.run_folder import RunFolder, read_tags, rename_folder, trash_folder, write_tags
from unknot.training.score_file import ScoreFile

DEPTH, MAX_FOUND = 8, 5000
TRASH = ".unknot-trash"
FRESH = 300
"""Seconds without a new line after which a run counts as stopped."""


@dataclass(frozen=True)
class Entry:
    """Checkpoint on the page: its list row, and the location of its files if they are on this disk."""

    row: Checkpoint
    folder: Path | None = None
    run: RunFolder | None = None
    tags: tuple[str, ...] = ()
    study: Mapping[str, Any] | None = None
    """``name``, ``job`` and ``settings`` of a job of a study."""

    @property
    def id(self) -> str:
        """Return a stable identifier for addresses."""
        return hashlib.sha256(self.row.ref.encode(errors="replace")).hexdigest()[:12]

    @property
    def ref(self) -> Any:
        """Return the reference for ``load``."""
        if "folder" in self.row.sources:
            return self.folder
        return f"{self.row.ref}@{self.row.commit}" if self.row.commit else self.row.ref

    @property
    def key(self) -> str:
        """Return a key that changes with the weights."""
        assert self.folder is not None
        return f"{self.folder}@{(self.folder / 'model.safetensors').stat().st_mtime_ns}"

    @property
    def home(self) -> Path | None:
        """Return the folder of this checkpoint only: its run or saved model; None if it is not the user's."""
        path = self.run.path if self.run else self.folder
        return path if "folder" in self.row.sources else None

    @property
    def curve(self) -> Path | None:
        """Return the curve of its training, if there is one."""
        if self.run:
            return self.run.curve
        path = self.folder / "training.csv" if self.folder else None
        return path if path is not None and path.is_file() else None

    @property
    def is_training(self) -> bool:
        """Return whether it is a run in progress."""
        if self.folder is not None or self.run is None:
            return False
        curve = self.run.curve  # the only progress of runs of version 0.1.0
        return self.run.progress() is not None or (curve is not None and time.time() - curve.stat().st_mtime < FRESH)

    @property
    def title(self) -> str:
        """Return the display name; for a job of a study, its settings."""
        if self.study is None:
            return self.row.ref
        from unknot.studies.plan import title_of  # imports torch, which other pages do not need

        return title_of(self.study["settings"])

    def pictures(self) -> dict[str, Path]:
        """Return pictures by their name in the card; for runs, the last of each kind."""
        saved = sorted(self.folder.glob("pictures/*.png"))[:200] if self.folder else []
        known = (self.run.pictures() if self.run else {}) | {f"pictures/{path.name}": path for path in saved}
        found = {
            name: path
            for name, path in known.items()
            if client.PICTURE.fullmatch(name) and path.is_file() and path.stat().st_size <= client.MAX_PICTURE
        }
        return dict(sorted(found.items(), key=lambda item: ("traversals" not in item[0], item[0])))


class Index:
    """Index of checkpoints: local ones immediately, those of the hub when it responds.

    Args:
        folders: folders with saved models and runs.
        endpoint: address of the hub.
    """

    def __init__(self, folders: Iterable[str | Path] = (), endpoint: str | None = None) -> None:
        self.endpoint = endpoint
        self.folders: list[Path] = []
        self._rows: list[Checkpoint] = []
        self._tables: set[str] = set()
        for folder in map(Path, folders):
            if is_table(folder):
                self._rows += read_table(folder)
            elif folder.is_dir():
                self.folders.append(folder)
            else:
                self._rows += _bundled_table(str(folder))
                self._tables.add(str(folder))
        self._lock = threading.Lock()
        self.remote, self.note, self.ready = "asking", "", False
        self._take(gather(("bundled", "cached"))[0])

    def _take(self, rows: list[Checkpoint]) -> None:
        entries = [Entry(row, place(row)) for row in [*rows, *self._rows]]
        for folder in self.folders:
            entries += find_models(folder)
        self.entries = {entry.id: entry for entry in entries}

    def refresh(self) -> None:
        """Query the hub within its deadline. Without a response the last list stays, and ``remote`` says so."""
        with self._lock:
            if client.is_offline():
                self.remote, self.note = "offline", "Offline mode is on (HF_HUB_OFFLINE): the hub is not asked."
                return self._take(gather(("bundled", "cached"))[0])
            known = [entry.row for entry in self.entries.values() if entry.row.sources == ("remote",)]
            before, self.remote = self.remote, "asking"
            try:
                rows, notes = gather(SOURCES, self.endpoint)
            except Exception as error:  # in any case, the page must not show "asking" forever
                rows, notes = gather(("bundled", "cached"))[0], [f"{type(error).__name__}: {error}"]
            if not notes:
                self.remote, self.note = "listed", client.endpoint_of(self.endpoint)
            else:
                self.remote = "stale" if before in ("listed", "stale") else "offline"
                self.note = plain(notes[0], 500)
                here = {row.ref for row in rows}
                rows += [row for row in known if row.ref not in here]
            self._take(rows)

    def learn(self) -> None:
        """Read the bundled tables of results."""
        with self._lock:
            for name in sorted(set(bundled_tables()) - self._tables):
                rows = read_bundled(name)
                self._tables.add(name)
                self._rows += rows
                self.entries = self.entries | {entry.id: entry for entry in map(Entry, rows)}
        self.ready = True

    def learn_models(self) -> None:
        """Register all models of the zoo and of users; this imports torch."""
        import unknot.zoo  # noqa: F401

    def about(self, model: str | None) -> dict[str, Any]:
        """Return family and capabilities of a model by its name; an empty result for an unknown one.

        Without torch, which takes 900 MB, the models of the zoo are known.
        """
        if (registry := sys.modules.get("unknot.zoo.registry")) is not None and model in registry.MODELS:
            cls = registry.MODELS[model]
            return {"family": cls.family, "capabilities": sorted(cls.capabilities)}
        capabilities = capabilities_of(model)
        if not capabilities:
            return {}
        families = (row.family for row in (entry.row for entry in list(self.entries.values())) if row.model == model)
        return {"family": next(filter(None, families), None), "capabilities": sorted(capabilities)}

    def keep(self, refs: Iterable[str]) -> None:
        """Keep only these checkpoints."""
        refs = list(refs)
        known = {entry.row.ref for entry in self.entries.values()}
        if unknown := [ref for ref in refs if ref not in known]:
            raise ValueError(f"{', '.join(unknown)}: no such checkpoint. There are {', '.join(sorted(known)[:40])}.")
        self.entries = {key: entry for key, entry in self.entries.items() if entry.row.ref in refs}

    def get(self, key: str) -> Entry:
        """Return a checkpoint by its id."""
        if key not in self.entries:
            raise MissingError("This checkpoint no longer exists. Reload the page.")
        return self.entries[key]

    def record(self, entry: Entry, picture: "PictureAddress", served: bool = True) -> dict[str, Any]:
        """Return the facts that the gallery shows."""
        about, row = self.about(entry.row.model), entry.row
        first = next(iter(entry.pictures().items()), None)
        drawable = is_playable(about.get("capabilities", ())) and entry.folder is not None
        other = self.thumbnail(entry, drawable) if served else None
        facts = {name: value for name, value in row.to_dict().items() if name != "pictures"}
        return facts | {
            "id": entry.id,
            "family": row.family or about.get("family"),
            "capabilities": about.get("capabilities", []),
            "local": entry.folder is not None,
            "own": entry.home is not None,
            "training": entry.is_training,
            "title": entry.title,
            "study": entry.study and entry.study["name"],
            "curves": entry.curve is not None,
            "scores": dict(row.scores),
            "std": row.scores.std,
            "tags": sorted({*row.tags, *entry.tags}),
            "thumbnail": picture(entry, *first, "small") if first else other,
        }

    def thumbnail(self, entry: Entry, drawable: bool) -> str | None:
        """Return the address of a picture for a card without one: the hub's, or a drawn one."""
        if entry.folder is None and entry.row.pictures:
            names = sorted(entry.row.pictures, key=lambda name: "traversals" not in name)
            return f"api/checkpoints/{entry.id}/{names[0]}?size=small"
        return f"api/checkpoints/{entry.id}/drawn.png" if drawable else None

    def listed(self, picture: "PictureAddress", served: bool = True) -> dict[str, Any]:
        """Return all records and the state of the hub's list; without a server, server-only pictures are left out."""
        records = [self.record(entry, picture, served) for entry in list(self.entries.values())]
        known = {
            name: entry.row.scores.about(name) for entry in list(self.entries.values()) for name in entry.row.scores
        }
        return {
            "checkpoints": records,
            "facts": {name: known[name]._asdict() for name in sorted(known)},
            "default": [about(name).title for name in default_scores()],
            "remote": self.remote,
            "note": self.note,
            "ready": self.ready,
        }

    def detail(self, entry: Entry, picture: "PictureAddress", served: bool = True) -> dict[str, Any]:
        """Return further facts for the page of one checkpoint; the card of a remote one is fetched."""
        if "table" in entry.row.sources or (entry.folder is None and entry.run):
            return {"files": {}, "card": "", "pictures": [], "load": None, "terms": sorted(self.training(entry))}
        if entry.folder is None:
            described = show(str(entry.ref), self.endpoint)
        else:
            described = describe_folder(entry.folder, entry.row.ref, entry.row.sources[0], entry.row.commit)
        pictures = [
            {"name": name, "url": picture(entry, name, path, "large")} for name, path in entry.pictures().items()
        ]
        if entry.folder is None and served:
            address = f"api/checkpoints/{entry.id}"
            pictures = [{"name": name, "url": f"{address}/{name}?size=large"} for name in entry.row.pictures]
        return {
            "files": described.files,
            "card": described.body,
            "pictures": pictures,
            "terms": sorted(self.training(entry)),
            "load": self._snippet(entry),
        }

    def _snippet(self, entry: Entry) -> str:
        lines = ["from unknot.hub import load", "", f"model = load({str(entry.ref)!r})"]
        if self.ready and entry.row.model and not self.about(entry.row.model):
            lines[1:1] = [f"import ...  # the module that registers {plain(entry.row.model, 60)}"]
        return "\n".join(lines)

    def training(self, entry: Entry) -> Curves:
        """Return the curves of a training run, so far."""
        return curves(entry.curve)

    # Changes by the page, only on this disk

    def tag(self, entry: Entry, tags: list[str]) -> Entry:
        """Store the tags of a checkpoint."""
        return self.update(entry, tags=write_tags(self._home(entry), tags))

    def rename(self, entry: Entry, name: str) -> Entry:
        """Rename the folder of a checkpoint."""
        home, _ = self._movable(entry)
        with self._lock:
            target = entry.run.rename(name).path if entry.run else rename_folder(home, name)
            del self.entries[entry.id]
            run = RunFolder(target) if entry.run else None
            folder = target / entry.folder.relative_to(home) if entry.folder else None
            new = Entry(replace(entry.row, ref=str(target)), folder, run, entry.tags)
            self.entries[new.id] = new
        return new

    def remove(self, entry: Entry) -> Path:
        """Move the folder of a checkpoint to the trash, and return its new place."""
        home, root = self._movable(entry)
        with self._lock:
            into = root / TRASH
            target = entry.run.trash(into) if entry.run else trash_folder(home, into)
            del self.entries[entry.id]
        return target

    def score(self, entry: Entry, scores: Scores) -> None:
        """Add new scores, and store those of the user's own folders."""
        entry = self.get(entry.id)
        if entry.run is not None:
            entry.run.add_scores(scores)
            both = entry.run.scores()
        else:
            both = entry.row.scores.merged(scores)
            if entry.home is not None:
                both.write(ScoreFile.beside(entry.home).path)
        self.update(entry, row=replace(entry.row, scores=both))

    def update(self, entry: Entry, **changes: Any) -> Entry:
        """Replace an entry by a changed one."""
        self.entries[entry.id] = changed = replace(entry, **changes)
        return changed

    def _home(self, entry: Entry) -> Path:
        if entry.home is None or not entry.home.is_dir():
            raise ValueError("Only checkpoints in folders that the page was opened with can be changed.")
        return entry.home

    def _movable(self, entry: Entry) -> tuple[Path, Path]:
        """Return the folder of a checkpoint, and the folder around it that was passed to the page."""
        home = self._home(entry)
        root = next((root for root in self.folders if root in home.parents), None)
        if root is None:
            raise ValueError("This is the folder that the page was opened with; move it yourself.")
        return home, root


PictureAddress = Callable[[Entry, str, Path, str], str | None]


def find_models(root: Path) -> Iterator[Entry]:
    """Yield the saved models below a folder, with their runs."""
    found = 0
    walk = tqdm(os.walk(root), desc=f"searching {root}", unit="folder", disable=None, leave=False, delay=1)
    for name, folders, files in walk:
        path = Path(name)
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        if len(path.relative_to(root).parts) >= DEPTH:
            folders.clear()
        run = RunFolder(path)
        if run.exists():
            folders[:] = []
            entry = _of_run(run)
        elif {"config.json", "model.safetensors"} <= set(files):
            entry = Entry(_row_of(path, None), path, None, read_tags(path))
        else:
            continue
        found += 1
        if found > MAX_FOUND:
            return
        yield entry


def _of_run(run: RunFolder) -> Entry:
    """Return the entry of a run, whose model may not exist yet."""
    study = run.summary.study or _study_of(run)
    if (run.model / "config.json").is_file() and (run.model / "model.safetensors").is_file():
        return Entry(_row_of(run.model, run), run.model, run, run.tags(), study)
    summary = run.summary
    problem = run.problem() or summary.problem or "not finished: there is no model yet"
    row = Checkpoint(
        str(run.path),
        ("folder",),
        model=summary.model,
        dataset=summary.dataset,
        seed=summary.seed,
        problem=plain(problem),
    )
    return Entry(row, None, run, run.tags(), study)


def _study_of(run: RunFolder) -> Mapping[str, Any] | None:
    if len(run.path.absolute().parts) < 4 or run.path.absolute().parents[1].name != "jobs":
        return None
    from unknot.studies.plan import job_settings

    return job_settings(run.path)


def _bundled_table(name: str) -> list[Checkpoint]:
    try:
        return read_bundled(name)
    except (ImportError, ValueError):
        raise FileNotFoundError(
            f"{name}: no such folder. Give one with saved models or runs of `unknot fit`, a table of results (.csv, "
            ".parquet), or the name of one that is bundled."
        ) from None


def _row_of(path: Path, run: RunFolder | None) -> Checkpoint:
    ref = str(run.path if run else path)
    try:
        row = describe_folder(path, ref, "folder").checkpoint
        changed = (path / "model.safetensors").stat().st_mtime
        modified = datetime.fromtimestamp(changed, timezone.utc).isoformat(timespec="seconds")
        seed = row.seed if row.seed is not None or run is None else run.summary.seed
        problem = row.problem or (run.problem() if run else None)
        if run and not problem and not run.is_trained():
            problem = f"{run.model}/model.safetensors: damaged, or not what config.json names. Resume the run."
        return replace(row, modified=modified, scores=row.scores or _scores(path, run), seed=seed, problem=problem)
    except OSError as error:  # an unreadable one does not hide the others
        return Checkpoint(ref, ("folder",), problem=plain(error))


def _scores(folder: Path, run: RunFolder | None) -> Scores:
    """Return the scores stored in a folder; values that are not finite are left out."""
    try:
        scores = run.scores() if run else ScoreFile.beside(folder).scores(None)
    except (OSError, ValueError, OverflowError, RecursionError):
        return Scores()
    known = {name[:100]: value for name, value in scores.items() if finite(value) is not None}
    spread = {name[:100]: value for name, value in scores.std.items() if finite(value) is not None}
    return Scores(known, spread, protocol=scores.protocol, reasons=scores.reasons, facts=scores.facts)


def place(row: Checkpoint) -> Path | None:
    """Return the folder of the files that ``load`` would read, if all of them are local."""
    if "bundled" in row.sources:
        return bundled_folder(row.ref)
    if row.commit and cache.cached_commit(row.ref, row.commit):
        return cache.repo_cache(row.ref) / "snapshots" / row.commit
    return None
