"""Run folder of a training run. No other module knows which files it contains.

    run.json        model, arguments, data set, seed, steps and, for a job of a study, its name and settings
    config.yaml     the resolved settings; absent where `fit` was given objects
    checkpoints/    last.ckpt and previous.ckpt to resume from, and best.ckpt
    metrics.csv     the curve: step, train/..., val/...
    progress.json   progress; its age shows whether the run is alive
    record.json     processor time, steps, commit and versions
    model/          config.json and model.safetensors: the result
    scores.json     losses on held-out batches, and scores with their protocol
    error.json      reason, count and place of failures
    log.txt         output of a run in the background
    tags.json, pictures/, codes.npy, .lock, scores.lock

Every file is written under a temporary name and renamed. Files that must survive a power failure are synced too. The
model's config.json is the commit point of a run: everything before it can be repeated from ``last.ckpt``.

Runs and jobs of version 0.1.0 have other names for some files and several forms of ``scores.json``. They can be read,
and are converted to this form when they are next written.
"""

import csv
import itertools
import json
import math
import os
import re
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unknot.checkpoints.names import CONFIG, WEIGHTS
from unknot.files import open_regular, read_json, read_limited, replacing, sha256_of, write_json
from unknot.metrics.scores import Scores
from unknot.training import configs
from unknot.training.curves import check_whole
from unknot.training.score_file import MAX_JSON, SCORES, ScoreFile, check_schema

SCHEMA = 1
ALIVE, HEARTBEAT = 60.0, 10.0
"""Seconds without progress after which a run counts as interrupted, and between two touches of the progress file."""
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"
NEEDED = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks", "global_step", "epoch")
TAG = re.compile(r"[\w .+-]{1,40}")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Summary:
    """Model, data, seed and steps of a run, as far as they are known."""

    model: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    dataset: str | None = None
    seed: int | None = None
    steps: int | None = None
    study: dict[str, Any] | None = None
    """``name`` of the study, ``job``, and the job's ``settings``; None for a run of its own."""
    problem: str | None = None
    """Reason why the settings could not be read."""


@dataclass(frozen=True)
class Resumption:
    """Point at which a run is resumed."""

    checkpoint: Path | None
    """None to start from the beginning."""
    step: int
    """Number of trained steps; later rows of the log are written again."""
    note: str
    """Message for the user."""


class RunFolder:
    """Files of one training run.

    Args:
        path: path of the folder; it is neither read nor created here.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = RunFolder(Path(folder.name) / "run")
    >>> run.state()
    'waiting'
    >>> run.create(Summary("BetaVAE", {"beta": 4.0}, "dsprites", seed=0, steps=1000))
    >>> RunFolder.open(run.path).summary.dataset
    'dsprites'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints, self.model = self.path / "checkpoints", self.path / "model"
        self.config, self.codes, self.log = self.path / "config.yaml", self.path / "codes.npy", self.path / "log.txt"
        self.record_file, self.pictures_folder = self.path / "record.json", self.path / "pictures"
        self._summary, self._progress = self.path / "run.json", self.path / "progress.json"
        self._scores, self._error = self.path / SCORES, self.path / "error.json"
        self._locks = [FileLock(self.path / ".lock", timeout=0)]
        self._beat = threading.Lock()

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    # Locating runs

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Return the run in a folder; raise a ``FileNotFoundError`` if it does not exist."""
        run = cls(path)
        if not run.exists():
            raise FileNotFoundError(
                f"{path}: no run folder (it has neither run.json nor config.yaml). Give the folder of a run, "
                "such as runs/NAME/version_N."
            )
        return run

    @classmethod
    def owner_of(cls, file: str | Path) -> "RunFolder | None":
        """Return the run that a settings or scores file belongs to; None for any other file."""
        run = cls(Path(file).parent)
        return run if Path(file) in (run.config, run._scores) and run.exists() else None

    @classmethod
    def claim(cls, parent: Path) -> "RunFolder":
        """Create ``parent/version_N`` for the next free N; concurrent processes each get their own."""
        parent.mkdir(parents=True, exist_ok=True)
        taken = [int(path.name[8:]) for path in parent.glob("version_*") if path.name[8:].isdecimal()]
        for number in itertools.count(max(taken, default=-1) + 1):
            with suppress(FileExistsError):
                (parent / f"version_{number}").mkdir()
                return cls(parent / f"version_{number}")
        raise AssertionError("itertools.count does not end")

    def exists(self) -> bool:
        """Return whether this is a run folder."""
        if self._summary.is_file() or (self._scores.is_file() and (self.model / CONFIG).is_file()):
            return True
        others = ("checkpoints", "model", "metrics.csv", "training.csv", LAST, SCORES, "progress.json")
        return self.config.is_file() and any((self.path / name).exists() for name in others)

    @staticmethod
    def find(root: str | Path, depth: int = 8) -> Iterator["RunFolder"]:
        """Yield the runs below a folder, sorted by name."""
        for name, folders, _ in os.walk(root):
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            run = RunFolder(name)
            if run.exists():
                folders.clear()
                yield run
            elif len(run.path.relative_to(root).parts) >= depth:
                folders.clear()

    # Summary

    def create(self, summary: Summary, config: str | None = None) -> None:
        """Write the summary, and the YAML of the resolved settings if there are any."""
        content = {"schema": SCHEMA} | {name: value for name, value in asdict(summary).items() if name != "problem"}
        write_json(self._summary, content, durable=True)
        if config is not None:
            with replacing(self.config, durable=True) as beside:
                beside.write_text(config, encoding="utf-8")
        vars(self).pop("summary", None)

    @cached_property
    def summary(self) -> Summary:
        """Summary of the run, read without importing torch; ``problem`` says why it could not be read."""
        problem = None
        try:
            content = read_json(self._summary, MAX_JSON)
            if content is not None:
                check_schema(content, self._summary, SCHEMA)
                known = Summary.__dataclass_fields__.keys() - {"problem"}
                return _plausible(Summary(**{name: content[name] for name in known if name in content}))
        except (ValueError, OSError, TypeError) as error:
            problem = str(error)
        try:
            return self._summarised(problem)
        except (ValueError, OSError) as error:
            return Summary(problem=problem or str(error))

    def _summarised(self, problem: str | None) -> Summary:
        """Return the summary of a folder of an earlier version, from its settings."""
        from unknot.training.settings import summarised

        summary = summarised(self.settings())
        saved = read_json(self.model / CONFIG, MAX_JSON)
        dataset = saved.get("dataset") if isinstance(saved, dict) else None
        return Summary(**summary | {"dataset": dataset or summary["dataset"], "problem": problem})

    def settings(self) -> dict[str, Any]:
        """Return the resolved settings, as ``unknot fit --config`` takes them."""
        if not os.path.lexists(self.config):
            raise FileNotFoundError(
                f"{self.config}: no such file. This run was trained from Python objects: give `fit` the same model and "
                "data again."
            )
        content = configs.read(self.config)
        if not isinstance(content, dict):
            raise ValueError(f"{self.config}: damaged; expected settings such as model, data and trainer.")
        return content

    @property
    def is_job(self) -> bool:
        """True for a job of a study, which the study finds by name."""
        above = self.path.absolute().parents
        return self.summary.study is not None or (
            len(above) > 2 and above[1].name == "jobs" and (above[2] / "plan.json").is_file()
        )

    # Locking and progress

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder during the block; raise a ``BlockingIOError`` if another process holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        former = self.path / "lock"
        if former.is_file() and len(self._locks) == 1:
            self._locks.append(FileLock(former, timeout=0))
        taken = []
        try:
            for lock in self._locks:
                try:
                    lock.acquire()
                except Timeout:
                    message = f"{self.path}: another process is training this run. Wait for it, or stop it."
                    raise BlockingIOError(message) from None
                taken.append(lock)
            yield
        finally:
            for lock in taken:
                lock.release()

    def clean(self) -> None:
        """Remove partial files of killed processes; only for the process that holds the lock.

        FIFOs and devices in place of files that are opened for writing are removed too: they would block.
        """
        for pattern in (".*.part", "checkpoints/.*.part", "model/.*.part"):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)
        for path in (self.log, self.path / "metrics.csv", self.path / "hparams.yaml"):  # the last is TensorBoard's
            if os.path.lexists(path) and not path.is_file():
                path.unlink()

    def abandon(self) -> None:
        """Remove the folder, unless it contains a trained state."""
        if not (self.path / "metrics.csv").exists() and not any(self.checkpoints.glob("*.ckpt")):
            shutil.rmtree(self.path, ignore_errors=True)

    def report(self, phase: str, step: int, steps: int) -> None:
        """Write the progress of the run."""
        with self._beat:
            progress = {"phase": phase, "step": step, "steps": steps, "time": time.time()}
            write_json(self._progress, progress | {"host": socket.gethostname(), "pid": os.getpid()}, indent=None)

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Touch the progress file regularly during the block, as a step may take long; remove it on success."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(HEARTBEAT):
                with self._beat, suppress(FileNotFoundError):  # no progress yet
                    os.utime(self._progress)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            over.set()
            thread.join()
            with suppress(FileNotFoundError):
                os.utime(self._progress, (0, 0))  # a fresh file would mean that it runs
            raise
        over.set()
        thread.join()
        self._progress.unlink(missing_ok=True)

    def progress(self) -> dict[str, Any] | None:
        """Return ``phase``, ``step``, ``steps`` and ``time`` of a live run, or None."""
        try:
            if time.time() - self._progress.stat().st_mtime >= ALIVE:
                return None
            progress = read_json(self._progress, MAX_JSON)
        except (ValueError, OSError):
            return None
        return (
            progress if isinstance(progress, dict) and {"phase", "step", "steps", "time"} <= progress.keys() else None
        )

    def state(self, required: Iterable[tuple[Mapping[str, Any], Iterable[str]]] = ()) -> str:
        """Return ``"done"``, ``"failed"``, ``"running"``, ``"interrupted"`` or ``"waiting"``.

        Args:
            required: scores that a finished run must have, as pairs of sampling options and names of metrics.
        """
        if not self.path.is_dir():
            return "waiting"
        trained, problem = self.is_trained(), self.problem()
        if problem is None and trained and not any(self.missing(draws, metrics) for draws, metrics in required):
            return "done"
        if problem is not None:
            return "failed"
        if self.progress():
            return "running"
        begun = self._progress.is_file() or (not trained and any(path.is_file() for path in self._states()))
        return "interrupted" if begun else "waiting"

    # States to resume from

    def _states(self) -> list[Path]:
        """Return the files that may hold a state, newest first; the third is that of a job of version 0.1.0."""
        return [self.checkpoints / LAST, self.checkpoints / PREVIOUS, self.path / LAST]

    def has_state(self) -> bool:
        """Return whether there is a file to resume from."""
        return any(path.exists() for path in self._states())

    def resumption(self) -> Resumption:
        """Return the newest valid checkpoint, or the beginning, with a message about it."""
        problems = []
        for path in self._states():
            if not path.exists() and not path.is_symlink():
                if path.name == LAST and path.with_name(PREVIOUS).exists():
                    problems.append(f"{path}: no such file")
                continue
            try:
                step = _steps(path)
            except ValueError as error:
                problems.append(str(error))
                continue
            why = f" ({'; '.join(problems)})" if problems else ""
            return Resumption(path, step, f"Resuming {self.path} from {path.name}, step {step}{why}.")
        why = "; ".join(problems) or "it has no checkpoint"
        return Resumption(None, 0, f"Starting {self.path} from the beginning: {why}.")

    def take_over(self, state: Path | None) -> Path | None:
        """Move the checkpoint of a job of version 0.1.0, and the curve in it, to their current places."""
        if state is None or state != self.path / LAST:
            return state
        import torch

        rows = torch.load(state, map_location="cpu", weights_only=True)["callbacks"].get("Recorder", {}).get("rows", [])
        if rows and self.curve is None:
            with replacing(self.path / "metrics.csv") as beside, beside.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), restval="")
                writer.writeheader()
                writer.writerows(rows)
        self.checkpoints.mkdir(exist_ok=True)
        return state.replace(self.checkpoints / LAST)

    def forget_states(self) -> None:
        """Remove the checkpoints of a finished run."""
        for path in [*self._states(), self.checkpoints / BEST]:
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.checkpoints.rmdir()

    # Results

    def is_trained(self) -> bool:
        """Return whether the model is complete: its weights have the recorded hash, or else the right length."""
        return self._weights() is not None

    def _weights(self) -> str | None:
        """Return the hash of the weights if the model is complete."""
        weights = self.model / WEIGHTS
        try:
            content = read_json(self.model / CONFIG, MAX_JSON)
            recorded = content.get("weights") if isinstance(content, dict) else None
            with open_regular(weights) as file:
                head = int.from_bytes(file.read(8), "little")
                tensors = json.loads(file.read(head)) if head < MAX_JSON else {}
            end = max(part["data_offsets"][1] for name, part in tensors.items() if name != "__metadata__")
            digest = sha256_of(weights)
        except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return None
        whole = content is not None and weights.stat().st_size == 8 + head + end
        return digest if whole and recorded in (None, digest) else None

    @property
    def curve(self) -> Path | None:
        """CSV file of losses by step, if there is one."""
        paths = (self.path / "metrics.csv", self.path / "training.csv")
        return next((path for path in paths if path.is_file()), None)

    def record(self) -> dict[str, Any]:
        """Return ``core_seconds``, ``steps``, ``commit`` and versions of a finished run, as far as known."""
        try:
            record = read_json(self.record_file, MAX_JSON)
        except (ValueError, OSError):
            return {}
        return record if isinstance(record, dict) else {}

    def pictures(self) -> dict[str, Path]:
        """Return the last picture of each kind by its name, such as ``pictures/traversals.png``."""
        paths = sorted(self.pictures_folder.glob("*.png"))[-400:]
        return {f"pictures/{re.sub(r'-[0-9]+$', '', path.stem)}.png": path for path in paths}

    # Scores

    def validation(self) -> dict[str, float]:
        """Return the losses on held-out batches after the last step."""
        return self.score_file.validation()

    def set_validation(self, losses: Mapping[str, float]) -> None:
        """Store the losses on held-out batches of the state that becomes the model."""
        self.score_file.set_validation(losses)

    def scores(self, draws: Mapping[str, Any] | None = None) -> Scores:
        """Return the scores of the saved model.

        Args:
            draws: sampling options; by default the usual ones, or else those with the most samples.
        """
        return self.score_file.scores(self._weights(), draws)

    def missing(self, draws: Mapping[str, Any], metrics: Iterable[str]) -> list[str]:
        """Return the metrics that are not measured yet."""
        return self.score_file.missing(self._weights(), draws, metrics)

    def add_scores(self, scores: Scores, metrics: Iterable[str] = (), draws: Mapping[str, Any] | None = None) -> None:
        """Add scores to the existing ones; safe for concurrent processes.

        Args:
            scores: scores measured on the model.
            metrics: names under which they were requested; by default their own.
            draws: sampling options; by default those of their protocol.
        """
        self.score_file.add(self._weights(), scores, metrics, draws)

    @cached_property
    def score_file(self) -> ScoreFile:
        """File of the scores."""
        return ScoreFile(self._scores, lambda: self.summary.dataset)

    # Failures

    def fail(self, error: BaseException | str) -> dict[str, Any]:
        """Record the reason for a failure, and count it."""
        text = error if isinstance(error, str) else " ".join(str(error).split()) or type(error).__name__
        kind = "" if isinstance(error, str | ValueError | OSError | FloatingPointError) else f"{type(error).__name__}: "
        record = {
            "error": kind + text,
            "count": self._failures().get("count", 0) + 1,
            "cleared": False,
            "host": socket.gethostname(),
            "when": time.strftime("%Y-%m-%d %H:%M:%S"),
            "traceback": "" if isinstance(error, str) else "".join(traceback.format_exception(error)),
        }
        write_json(self._error, record)
        self._progress.unlink(missing_ok=True)  # it neither runs nor was interrupted
        return record

    def _failures(self) -> dict[str, Any]:
        """Return the record of failures, cleared or not."""
        found = read_json(self._error, MAX_JSON) or read_json(self.path / "last_error.json", MAX_JSON) or {}
        if not isinstance(found, dict):
            raise ValueError(f"{self._error}: not a record of a failure")
        return found | {"cleared": found.get("cleared", not self._error.is_file())}

    def error(self) -> dict[str, Any]:
        """Return ``error``, ``count``, ``host``, ``when`` and ``traceback`` of a failure, unless it was cleared."""
        file = self._error
        try:
            found = self._failures()
            file = self._scores
            self.score_file.read()
        except (ValueError, OSError) as error:
            advice = f"{error}. `unknot study retry` sets {file.name} aside and does its work again"
            return {"error": advice, "count": 1, "damaged": str(file)}
        return found if "error" in found and not found["cleared"] else {}

    def problem(self) -> str | None:
        """Return the reason why the run failed, or None."""
        found = self.error()
        return str(found["error"]) if found else None

    def clear_error(self) -> None:
        """Allow another attempt; a damaged file is kept as ``NAME.damaged``."""
        while "damaged" in (found := self.error()):
            damaged = Path(found["damaged"])
            damaged.replace(damaged.with_name(f"{damaged.name}.damaged"))
        if found:
            write_json(self._error, found | {"cleared": True})

    def succeed(self) -> None:
        """Delete the record of earlier failures."""
        for path in (self._error, self.path / "last_error.json"):
            path.unlink(missing_ok=True)

    # Actions of users

    def tags(self) -> tuple[str, ...]:
        """Return the user's tags."""
        return read_tags(self.path)

    def tag(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Replace the user's tags."""
        return write_tags(self.path, tags)

    def rename(self, name: str) -> "RunFolder":
        """Rename the folder."""
        self._refuse_jobs("renamed")
        return RunFolder(rename_folder(self.path, name))

    def trash(self, into: Path) -> Path:
        """Move the folder to the trash, from which it can be restored."""
        self._refuse_jobs("deleted")
        return trash_folder(self.path, into)

    def _refuse_jobs(self, action: str) -> None:
        if self.is_job:
            raise ValueError(f"{self.path} is a job of a study, which needs its name; it cannot be {action}.")

    def publication(self) -> dict[str, Any]:
        """Return seed, command, scores, cost, and files with their names in the hub, to publish the model.

        A ``ValueError`` names a file that is damaged.
        """
        record, scores = self.record(), self.scores()
        for values in (scores, scores.std):  # a card holds finite numbers
            for name in [name for name, value in values.items() if not math.isfinite(value)]:
                del values[name]
        extras = {name: path for name, path in self.pictures().items() if path.stem.startswith(("trav", "recon"))}
        for path in extras.values():
            if not _is_picture(path):
                raise ValueError(f"{path}: not a whole PNG picture. Delete it to leave it out.")
        if os.path.lexists(self.config):
            if not {"model", "data"} <= self.settings().keys():
                raise ValueError(f"{self.config}: damaged; it lacks model or data. Delete it to leave it out.")
            extras["training.yaml"] = self.config
        metrics = self.path / "metrics.csv"
        if curve := metrics if os.path.lexists(metrics) else self.curve:
            check_whole(curve)
            extras["training.csv"] = curve
        seconds = record.get("core_seconds")
        return {
            "seed": self.summary.seed,
            "command": "unknot fit --config training.yaml" if "training.yaml" in extras else None,
            "commit": record.get("commit"),
            "core_hours": seconds / 3600 if isinstance(seconds, int | float) else None,
            "scores": scores or None,
            "extras": extras,
        }


# Functions for runs and for saved models without a run


def read_tags(folder: Path) -> tuple[str, ...]:
    """Return the user's tags of a saved model or a run."""
    try:
        tags = json.loads(read_limited(folder / "tags.json", 1 << 16))
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(tag[:40] for tag in tags[:20] if isinstance(tag, str)) if isinstance(tags, list) else ()


def write_tags(folder: Path, tags: Iterable[str]) -> tuple[str, ...]:
    """Replace the user's tags of a saved model or a run."""
    words = tuple(sorted(set(tags)))
    if len(words) > 20 or not all(TAG.fullmatch(word) for word in words):
        raise ValueError("Tags are at most 20 words of letters, digits, '.', '+', '-' and '_'.")
    write_json(folder / "tags.json", words)
    return words


def rename_folder(folder: Path, name: str) -> Path:
    """Rename a folder within its parent."""
    if not NAME.fullmatch(name):
        raise ValueError("A name is made of letters, digits, '.', '-' and '_'.")
    target = folder.with_name(name)
    if target.exists():
        raise ValueError(f'"{name}" already exists.')
    return folder.rename(target)


def trash_folder(folder: Path, into: Path) -> Path:
    """Move a folder to the trash."""
    target = into / f"{folder.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
    into.mkdir(exist_ok=True)
    shutil.move(folder, target)
    return target


def _is_picture(path: Path) -> bool:
    """Return whether a file starts and ends like a PNG picture."""
    with open_regular(path) as file:
        head = file.read(8)
        file.seek(max(0, path.stat().st_size - 8))
        return head == b"\x89PNG\r\n\x1a\n" and file.read(4) == b"IEND"


def _plausible(summary: Summary) -> Summary:
    """Return the summary, if its values have the expected types."""
    texts = all(isinstance(value, str | None) for value in (summary.model, summary.dataset))
    numbers = all(isinstance(value, int | None) for value in (summary.seed, summary.steps))
    if not (texts and numbers and isinstance(summary.arguments, dict) and isinstance(summary.study, dict | None)):
        raise ValueError("run.json: values of the wrong kind")
    return summary


def _steps(path: Path) -> int:
    """Return the number of trained steps of a checkpoint; raise a ``ValueError`` if it is not complete."""
    import zipfile

    import torch

    try:
        with open_regular(path) as content, zipfile.ZipFile(content) as file:
            damaged = file.testzip()  # torch.load itself does not verify checksums
        if damaged:
            raise ValueError(f"{path}: damaged ({damaged})")
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if missing := [key for key in NEEDED if key not in state]:
            raise ValueError(f"{path}: no checkpoint to resume from, as it lacks {', '.join(missing)}")
        return int(state["global_step"])
    except ValueError:
        raise
    except Exception as error:  # a damaged file can raise any error in the readers
        raise ValueError(f"{path}: not a whole checkpoint ({type(error).__name__})") from error
