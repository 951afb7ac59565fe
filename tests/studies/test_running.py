"""Real processes: what a run leaves, what it does not do again, and what becomes of it when it is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from unknot.studies import Local, Study, results, run
from unknot.studies.folders import JobFolder, read_plan
from unknot.studies.worker import Settings

pd = pytest.importorskip("pandas")

STUDY = [sys.executable, "-c", "from unknot.cli import main; raise SystemExit(main())", "study"]
Tiny = Callable[..., dict[str, Any]]


def unknot(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STUDY, *map(str, words), "--import", "toys"], cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def whole(toys: Path, tiny: Tiny, write: Callable[..., Path]) -> Path:
    """The folder of an undisturbed run."""
    write(toys / "tiny.yaml", tiny())
    ran = unknot("run", "tiny.yaml", "--folder", "whole", "--jobs", "1", cwd=toys)
    assert ran.returncode == 0, ran.stderr
    assert "6 jobs, 0 done before, 6 to do, 1 at a time. Disk: about" in ran.stderr
    assert "6 of 6 done, 0 failed" in ran.stderr
    return toys / "whole"


def test_what_a_run_leaves(whole: Path, toys: Path) -> None:
    table = results(whole)
    assert list(table.columns[:5]) == ["job", "dataset", "method", "config", "seed"]
    assert (table["status"] == "done").all()
    assert table["method"].tolist() == ["BetaVAE", "BetaVAE", "FactorVAE"] * 2
    assert table["strength"].tolist() == [1, 4, 10] * 2
    assert table[["mig", "modularity", "elbo", "elbo_kl", "val/loss"]].notna().all(axis=None)
    files = JobFolder(whole, table["job"][0])
    assert {path.name for path in files.path.iterdir()} == {"config.yaml", "log.txt", "lock", "model", "scores.json"}
    config = yaml.safe_load(files.config.read_text(encoding="utf-8"))
    assert config["model"]["init_args"] | {"beta": 1.0, "lr": 1e-3, "latent_dim": 10} == config["model"]["init_args"]
    (entry,) = json.loads(files.scores.read_text(encoding="utf-8"))["entries"]
    assert entry["draws"] == {"num_train": 60, "num_test": 40, "seed": 0, "repeats": 1}
    assert entry["scores"]["protocol"]["dataset"] == "squares"
    status = unknot("status", whole, cwd=toys)
    assert "6 jobs, 6 done" in status.stdout
    assert unknot("table", whole, cwd=toys).returncode == 0
    pd.testing.assert_frame_equal(pd.read_parquet(whole / "table.parquet"), table)
    pd.testing.assert_frame_equal(pd.read_csv(whole / "table.csv"), table, check_dtype=False)


def test_added_seeds_and_scores_are_all_that_is_computed(
    whole: Path, toys: Path, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(toys)
    before = results(whole)
    models = {path: path.stat().st_mtime_ns for path in whole.glob("jobs/*/*/model/*")}
    more = tiny()["scores"][0] | {"metrics": ["mig", "modularity", "elbo", "irs"]}
    labels = {"metrics": ["mig", "dci", "sap"], "labels": {"num_labels": [20], "label_seed": [0, 1]}}
    monkeypatch.syspath_prepend(str(toys))
    study = Study("tiny", tiny(seeds=3) | {"scores": [more, labels]}, imported=("toys",))
    lines: list[str] = []
    summary = run(study, whole, Local(jobs=1, settings=Settings(imported=("toys",))), lines.append)
    assert (summary.done, summary.failed) == (9, {})
    after = results(whole)
    assert len(after) == 9
    pd.testing.assert_frame_equal(after[before.columns].head(6), before, check_dtype=False)
    assert after[["irs", "mig@20-perfect-0", "sap@20-perfect-1", "dci@20-perfect-1"]].notna().all(axis=None)
    assert {path: path.stat().st_mtime_ns for path in models} == models
    assert run(study, whole, Local(jobs=1, settings=Settings(imported=("toys",))), lines.append).done == 9
    assert "9 jobs, 9 done before, 0 to do" in lines[-2]


def test_a_changed_study_is_not_mixed_with_the_old_one(whole: Path, toys: Path, tiny: Tiny, write: Any) -> None:
    write(toys / "tiny_changed.yaml", tiny(steps=13))
    before = (whole / "plan.json").read_bytes()
    refused = unknot("run", "tiny_changed.yaml", "--folder", "whole", cwd=toys)
    assert refused.returncode == 1
    assert "jobs that are not in the study as it is now" in refused.stderr
    assert (whole / "plan.json").read_bytes() == before


def test_failures_are_told_and_do_not_stop_the_others(toys: Path, tiny: Tiny, write: Any) -> None:
    sweeps = [
        {"config": "beta_vae_dsprites", "options": {"model.beta": [-1, 4]}},  # refused by the model
        {"config": "beta_vae_dsprites", "options": {"model.beta": [1]}, "training": {"model.lr": 1e30}},  # NaN
    ]
    write(toys / "bad.yaml", tiny(seeds=1, sweeps=sweeps))
    ran = unknot("run", "bad.yaml", "--folder", "bad", "--jobs", "1", cwd=toys)
    assert ran.returncode == 1
    assert "1 of 3 done, 2 failed" in ran.stderr
    table = results(toys / "bad")
    assert table["status"].tolist() == ["failed", "done", "failed"]
    status = unknot("status", toys / "bad", cwd=toys).stdout
    assert "beta must be" in status
    assert "the loss is not finite" in status
    assert "Traceback" not in status
    assert "Traceback" in unknot("status", toys / "bad", "--failed", cwd=toys).stdout
    again = unknot("retry", toys / "bad", "--jobs", "1", cwd=toys)
    assert "2 failed jobs are tried again" in again.stderr
    errors = [JobFolder(toys / "bad", job.name).error for job in read_plan(toys / "bad").jobs]
    assert [json.loads(error.read_text())["count"] for error in errors if error.exists()] == [2, 2]


def workers_of(runner: int) -> list[int]:
    """The processes of the jobs of a runner."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(runner)], capture_output=True, text=True).stdout
    return [int(pid) for pid in children.split()]


def test_killed_jobs_and_runners_leave_no_trace(whole: Path, toys: Path, tiny: Tiny, write: Any) -> None:
    write(toys / "tiny.yaml", tiny())
    expected = results(whole).head(6)
    folder, chance = toys / "killed", random.Random(0)
    kills = 0
    for attempt in range(20):
        command = [
            *STUDY,
            "run",
            "tiny.yaml",
            "--folder",
            "killed",
            "--jobs",
            "1",
            "--checkpoint-every",
            "0.1",
            "--import",
            "toys",
        ]
        runner = subprocess.Popen(command, cwd=toys, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if attempt < 3:
            deadline = time.monotonic() + 120
            while len(list(folder.glob("jobs/*/*/last.ckpt"))) + len(list(folder.glob("jobs/*/*/model"))) <= attempt:
                assert runner.poll() is None, runner.stderr and runner.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(chance.random())
            workers = workers_of(runner.pid)
            victims = workers if attempt % 2 else [runner.pid]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            if attempt % 2 == 0:
                runner.wait()
                while any(Path(f"/proc/{pid}").exists() for pid in workers):  # they notice that the runner is gone
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                continue
        _, told = runner.communicate(timeout=300)
        if runner.returncode == 0:
            break
        raise AssertionError(told)
    assert kills >= 2
    table = results(folder)
    columns = [column for column in expected.columns if expected[column].notna().any() and "@" not in column]
    columns.remove("irs") if "irs" in columns else None
    pd.testing.assert_frame_equal(table[columns], expected[columns], check_dtype=False)
    assert not list(folder.glob("jobs/*/*/*.part")) or all(p.stat().st_size >= 0 for p in folder.glob("jobs/*/*/.*"))


def test_ctrl_c_saves_the_state_and_says_how_to_go_on(toys: Path, tiny: Tiny, write: Any) -> None:
    write(toys / "long.yaml", tiny(steps=100_000, seeds=1))
    command = [*STUDY, "run", "long.yaml", "--folder", "long", "--jobs", "1", "--import", "toys"]
    runner = subprocess.Popen(command, cwd=toys, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(json.loads(p.read_text())["step"] for p in (toys / "long").glob("jobs/*/*/progress.json")):
        assert runner.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    runner.send_signal(signal.SIGINT)
    _, told = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert "Stopped: it was interrupted. Nothing is lost; go on with: unknot study run long" in told
    assert "Traceback" not in told
    assert len(list((toys / "long").glob("jobs/*/*/last.ckpt"))) == 1
