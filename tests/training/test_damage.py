"""Damage each file of a run and of a job in turn, and see what every command makes of it.

A command comes to what it comes to with the undamaged folder, or says in one line which file is wrong. It neither
hangs, nor ends in a traceback, nor gives another result without a word. The test prints the table.
"""

import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unknot.cli import main
from unknot.files import sha256_of
from unknot.hub.browser.index import Index
from unknot.metrics import Scores
from unknot.studies import Local, Study, results, run
from unknot.studies.jobs.worker import Settings
from unknot.studies.table import TOOK
from unknot.training import RunFolder, fit

pytestmark = pytest.mark.slow
RECORDED = Path(__file__).parent / "recorded"
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
OWN = ["--import", "recorded_squares"]
SECONDS, MEMORY = 120, 3 << 30
HOWS = ("empty", "half", "garbage", "FIFO", "/dev/zero")
DRAWS = ["--metrics", "mig", "--num-train", "60", "--num-test", "40", "--dataset", "tiny_squares"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unknot.datamodules import DATASETS

    monkeypatch.syspath_prepend(str(RECORDED))
    from recorded_squares import TinySquares

    monkeypatch.setitem(DATASETS, "tiny_squares", TinySquares)
    for name, value in {"HF_HUB_OFFLINE": "1", "HF_HOME": "hf", "UNKNOT_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if how == "FIFO":
        os.mkfifo(path)
    elif how == "/dev/zero":
        path.symlink_to(how)
    else:
        path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "garbage": b"\x00\xffgarbage{"}[how])


def in_a_process(work: Callable[[], Any]) -> dict[str, Any]:
    """Outcome of some work in a process of its own, with bounded time and memory."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with os.fdopen(read) as answer:
            content = answer.read()
        _, status = os.waitpid(child, 0)
        return json.loads(content) if content else {"broken": f"killed by signal {status & 127}", "said": ""}
    said = io.StringIO()
    outcome: dict[str, Any] = {}
    try:
        signal.alarm(SECONDS)
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, in_use + MEMORY))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            outcome["came"] = work()
    except (ValueError, OSError) as error:
        outcome["came"] = None
        said.write(f"unknot: error: {error}")
    except BaseException as error:
        outcome["broken"] = f"{type(error).__name__}: {error}"
        outcome["trace"] = traceback.format_exc()
    finally:
        os.write(write, json.dumps(outcome | {"said": said.getvalue()}, default=str).encode())
        os._exit(0)


def weights(folder: Path) -> Any:
    model = RunFolder(folder).model / "model.safetensors"
    return sha256_of(model) if RunFolder(folder).is_trained() else None


def call(*words: str | Path, then: Callable[[], Any] = lambda: None) -> Any:
    """Exit status of a command and what it leaves; None where it was refused."""
    status = main([*map(str, words), *OWN])
    return [status, then()] if status == 0 else None


def printed(*words: str | Path) -> Any:
    """Return the numbers that a command prints, if it ends well."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = main([*map(str, words), *OWN])
    print(said.getvalue())
    lines = [re.sub(r", [0-9.]+ s$", "", line) for line in said.getvalue().splitlines()]
    return [line for line in lines if re.search(r"│|\d\.\d", line)] if status == 0 else None


def page(folder: Path) -> Any:
    index = Index([folder])
    entries = [entry for entry in index.entries.values() if "folder" in entry.row.sources]
    shown = [
        [index.record(entry, lambda *_: None), index.detail(entry, lambda *_: None), index.training(entry)]
        for entry in entries
    ]
    for record, _, _ in shown:
        print(record.get("problem"))
        for name in ("modified", "training", "problem"):
            record.pop(name)
    return json.loads(json.dumps(shown, default=str))


def predict(folder: Path) -> Any:
    (folder / "codes.npy").unlink(missing_ok=True)
    return call("predict", folder, *LOOK, then=lambda: np.load(folder / "codes.npy").tolist())


LOOK = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
OF_A_RUN: dict[str, Callable[[Path], Any]] = {
    "fit --resume": lambda folder: call("fit", "--resume", folder, *LOOK, then=lambda: weights(folder)),
    "validate": lambda folder: printed("validate", folder, *LOOK),
    "predict": predict,
    "evaluate": lambda folder: printed("evaluate", folder, *DRAWS),
    "browse": page,
    "hub push --dry-run": lambda folder: printed("hub", "push", folder, "me/x", "--dry-run"),
}


def status(study: Path) -> Any:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["study", "status", str(study)]) == 0
    print(said.getvalue())
    return [{"status": re.search(r"1 jobs, (.*)", said.getvalue())[1]}]


def table(study: Path) -> Any:
    found = results(study)
    assert main(["study", "table", str(study), "--out", str(study / "out.csv")]) == 0
    return found.where(found.notna(), None).to_dict("records")


def go_on(study: Path) -> Any:
    main(["study", "run", str(study), "--jobs", "1", *OWN])
    return [{name: value for name, value in row.items() if name not in TOOK} for row in table(study)]


OF_A_JOB: dict[str, Callable[[Path], Any]] = {
    "study status": status,
    "study table": table,
    "study run": go_on,
    "browse": page,
    "hub push --dry-run": lambda study: printed("hub", "push", next(study.glob("jobs/*/*")), "me/x", "--dry-run"),
    "fit --resume": lambda study: call(
        *("fit", "--resume", job := next(study.glob("jobs/*/*")), *LOOK), then=lambda: weights(job)
    ),
}


def judged(expected: dict[str, Any], found: dict[str, Any], path: Path, command: str) -> str:
    """One word for what a command came to."""
    if "broken" in found:
        return f"BROKEN {found['broken'][:90]}"
    if found["came"] == expected["came"]:
        return "same"
    of_the_state = path.parent.name in ("model", "checkpoints") and "checkpoint" in found["said"]
    names = path.name in found["said"] or of_the_state
    if found["came"] is None:
        return "says so" if names else "UNNAMED"
    if names and path.name not in expected["said"]:
        return "says so"
    if command.startswith("study"):
        (before,), (after,) = expected["came"], found["came"]
        kept = {name: value for name, value in after.items() if value is not None and name != "status"}
        if all(before[name] == value for name, value in kept.items()):
            return f"status {after['status']}" if after["status"] != before["status"] else "less"
    if command == "browse":
        return "less" if _is_less(expected["came"], found["came"]) else "DIFFERENT"
    return "DIFFERENT"


def _is_less(expected: Any, found: Any) -> bool:
    """Return whether everything that is shown is as it was, and only parts are left out."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(name in expected and _is_less(expected[name], value) for name, value in found.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) <= len(expected) and all(any(_is_less(part, value) for part in expected) for value in found)
    return expected == found or found in (None, False, "", [])


def check(source: Path, files: list[Path], commands: dict[str, Callable[[Path], Any]]) -> dict[str, list[str]]:
    """Damage each file and run each command; the lines of the table."""
    lines, bad = {}, []
    work = Path("work") / source.name

    def outcome(command: str, path: Path | None = None, how: str = "") -> dict[str, Any]:
        shutil.rmtree("work", ignore_errors=True)
        shutil.copytree(source, work)
        if path is not None:
            damage(work / path, how)
        return in_a_process(lambda: commands[command](work))

    expected = {command: outcome(command) for command in commands}
    for command, found in expected.items():
        assert found.get("came") is not None, (command, found)
    for path in files:
        for how in HOWS:
            words = []
            for command in commands:
                found = outcome(command, path, how)
                word = judged(expected[command], found, path, command)
                words.append(word)
                if word.isupper() or word.split()[0].isupper():
                    bad.append((path, how, command, word))
                    print(f"!! {path} {how} {command}\n{found.get('trace', '')}{found['said'][-400:]}", flush=True)
            lines[f"{path} {how}"] = words
            print(f"{path!s:<40} {how:<10} " + " | ".join(words), flush=True)
    assert not bad
    return lines


def scored(run_folder: RunFolder) -> None:
    run_folder.add_scores(
        Scores({"mig": 0.25}, protocol={"num_train": 10_000, "num_test": 5_000, "seed": 0, "repeats": 1})
    )
    run_folder.tag(["mine"])


def whole(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def test_a_run(tmp_path: Path) -> None:
    os.chdir(RECORDED)
    made = fit(
        "tiny.yaml",
        folder=tmp_path / "runs/tiny/version_0",
        overrides={"trainer.max_steps": 12, "checkpoint_every": 5},
        trainer=QUIET,
        imported=["recorded_squares"],
    )
    os.chdir(tmp_path)
    scored(made)
    assert {"run.json", "config.yaml", "metrics.csv", "record.json", "scores.json"} <= {
        path.name for path in whole(made.path)
    }
    print(f"\n{'':<51} {' | '.join(OF_A_RUN)}")
    check(made.path, whole(made.path), OF_A_RUN)


def test_a_job(tmp_path: Path) -> None:
    content = {
        "datasets": [{"class_path": "recorded_squares.TinySquares"}],
        "seeds": 1,
        "training": {"trainer.max_steps": 6, "data.batch_size": 2, "data.num_val_batches": 1},
        "sweeps": [{"config": "tiny.yaml", "options": {"model.beta": [1]}}],
        "scores": [{"metrics": ["mig", "modularity"], "num_train": 60, "num_test": 40}],
    }
    settings = Settings(checkpoint_every=0.0, keep_checkpoints=True)
    folder = tmp_path / "study"
    made = run(Study("small", content, RECORDED, ("recorded_squares",)), folder, Local(jobs=1, settings=settings))
    assert (made.done, made.failed) == (1, {})
    job = RunFolder(next(folder.glob("jobs/*/*")))
    job.tag(["mine"])
    print(f"\n{'':<51} {' | '.join(OF_A_JOB)}")
    check(folder, [path for path in whole(folder) if "jobs" in path.parts], OF_A_JOB)
