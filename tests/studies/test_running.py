"""Real processes: what a run leaves, what it does not do again, and what becomes of it when it is killed."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from unknot.cli import main
from unknot.files import write_json
from unknot.machine import commit
from unknot.studies import Local, Ray, Shard, Study, results, run
from unknot.studies.jobs.runner import Display, Summary, clear_errors, prepare
from unknot.studies.jobs.worker import Outcome, Settings, environment
from unknot.studies.plan import JobFolder, read_plan
from unknot.studies.table import TOOK

pd = pytest.importorskip("pandas")

STUDY = [sys.executable, "-c", "from unknot.cli import main; raise SystemExit(main())", "study"]
Tiny = Callable[..., dict[str, Any]]
Make = Callable[..., Study]
Start = Callable[..., Any]


IMPORTED = ("toys",)


def one_at_a_time() -> Local:
    return Local(jobs=1, settings=Settings(checkpoint_every=0.1))


@pytest.fixture(scope="module", autouse=True)
def here(toys: Path) -> Iterator[None]:
    """Work beside the module of the data set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(toys)
        patch.syspath_prepend(str(toys))
        for name, value in {"NTASKS": "4", "PROCID": "3", "LOCALID": "3", "NODEID": "0", "JOB_NAME": "x"}.items():
            patch.setenv(f"SLURM_{name}", value)  # a job is one process, whatever it was started by
        patch.setenv("LOCAL_RANK", "3")
        yield


@pytest.fixture(scope="module")
def study(tiny: Tiny) -> Make:
    return lambda **changes: Study("tiny", tiny(**{"seeds": 1} | changes), imported=IMPORTED)


@pytest.fixture(scope="module")
def whole(here: None, toys: Path, study: Make) -> Path:
    """The folder of an undisturbed run."""
    lines: list[str] = []
    summary = run(study(), toys / "whole", one_at_a_time(), lines.append)
    assert (summary.done, summary.failed, summary.stopped) == (3, {}, "")
    assert "3 jobs, 0 done before, 3 to do, 1 at a time. Disk: about" in lines[0]
    assert "3 of 3 done, 0 failed" in lines[-1]
    return toys / "whole"


@pytest.fixture(scope="module")
def undisturbed(whole: Path) -> Any:
    """Its table, before other tests add to the study; without what it took: no two runs share their time, and somebody
    may commit between them."""
    return results(whole).drop(columns=list(TOOK))


def test_what_a_run_leaves(whole: Path, undisturbed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table = results(whole)
    assert list(table.columns[:5]) == ["job", "dataset", "method", "config", "seed"]
    assert (table["status"] == "done").all()
    assert table["method"].tolist() == ["BetaVAE", "BetaVAE", "FactorVAE"]
    assert table["strength"].tolist() == [1, 4, 10]
    assert table[["mig", "modularity", "elbo", "elbo_kl", "val/loss"]].notna().all(axis=None)
    files = JobFolder(whole, table["job"][0])
    assert {path.name for path in files.path.iterdir()} == {
        *("run.json", "config.yaml", "log.txt", ".lock", "model", "scores.json", "scores.lock", "record.json"),
        "metrics.csv",
    }
    config = yaml.safe_load(files.config.read_text(encoding="utf-8"))
    assert config["model"]["init_args"] | {"beta": 1.0, "lr": 1e-3, "latent_dim": 10} == config["model"]["init_args"]
    (entry,) = json.loads((files.path / "scores.json").read_text(encoding="utf-8"))["entries"]
    assert entry["draws"] == {"num_train": 60, "num_test": 40, "seed": 0, "repeats": 1}
    assert entry["scores"]["protocol"]["dataset"] == "squares"
    assert (table["core_seconds"] > 0).all()
    assert set(table["commit"]) == {commit()}
    curve = pd.read_csv(files.curve)
    assert curve["step"].tolist() == [9, 12]
    assert curve["train/loss"].notna().tolist() == [True, False]
    assert curve["val/loss"].notna().tolist() == [False, True]
    assert main(["study", "status", str(whole)]) == 0
    assert "3 jobs, 3 done" in capsys.readouterr().out
    assert main(["study", "table", str(whole)]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet(whole / "table.parquet"), table)
    pd.testing.assert_frame_equal(pd.read_csv(whole / "table.csv"), table, check_dtype=False)


def test_added_seeds_and_scores_are_all_that_is_computed(
    whole: Path, undisturbed: Any, study: Make, tiny: Tiny
) -> None:
    models = {path: path.stat().st_mtime_ns for path in whole.glob("jobs/*/*/model/*")}
    more = tiny()["scores"][0] | {"metrics": ["mig", "modularity", "elbo", "irs"]}
    labels = {"metrics": ["mig", "dci", "sap"], "labels": {"num_labels": [20], "label_seed": [0, 1]}}
    added = study(seeds=2, scores=[more, labels])
    lines: list[str] = []
    summary = run(added, whole, one_at_a_time(), lines.append)
    assert (summary.done, summary.failed) == (6, {})
    after = results(whole)
    assert len(after) == 6
    pd.testing.assert_frame_equal(after[undisturbed.columns].head(3), undisturbed, check_dtype=False)
    assert after[["irs", "mig@20-perfect-0", "sap@20-perfect-1", "dci@20-perfect-1"]].notna().all(axis=None)
    assert {path: path.stat().st_mtime_ns for path in models} == models
    assert run(added, whole, one_at_a_time(), lines.append).done == 6
    assert "6 jobs, 6 done before, 0 to do" in lines[-2]


def test_a_changed_study_is_not_mixed_with_the_old_one(whole: Path, study: Make) -> None:
    before = (whole / "plan.json").read_bytes()
    with pytest.raises(ValueError, match="jobs that are no longer in the study"):
        run(study(steps=13), whole)
    assert (whole / "plan.json").read_bytes() == before


def test_failures_are_told_and_do_not_stop_the_others(
    toys: Path, study: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeps = [
        {"config": "beta_vae_dsprites", "options": {"model.beta": [2, 4]}},
        {"config": "beta_vae_dsprites", "options": {"model.beta": [1]}, "training": {"model.lr": 1e30}},  # NaN
    ]
    lines: list[str] = []
    bad = study(sweeps=sweeps)
    summary = run(bad, "bad", one_at_a_time(), lines.append)
    assert (summary.done, len(summary.failed)) == (2, 1)
    assert results("bad")["status"].tolist() == ["done", "done", "failed"]
    assert main(["study", "status", "bad"]) == 0
    status = capsys.readouterr().out
    assert "Training stopped at step 1: the loss is not finite" in status
    assert "Traceback" not in status
    assert main(["study", "status", "bad", "--failed"]) == 0
    assert "Traceback" in capsys.readouterr().out
    assert run(bad, "bad", one_at_a_time(), lines.append).done == 2  # without trying the others again
    plan = read_plan(toys / "bad")
    assert clear_errors(toys / "bad", plan) == 1
    assert results("bad")["status"].tolist() == ["done", "done", results("bad")["status"][2]]
    assert results("bad")["status"][2] in ("waiting", "interrupted")  # to be retried; it may have saved a state
    assert JobFolder(toys / "bad", plan.jobs[2].name).fail("again")["count"] == 2


def test_a_study_names_no_module_that_was_not_imported_by_hand(toys: Path, tiny: Tiny) -> None:
    with pytest.raises(ValueError, match=r"may only name classes of unknot.*add --import toys"):
        Study("tiny", tiny()).jobs()


def test_a_folder_alone_runs_nobodys_code(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "run", "whole"]) == 1
    message = capsys.readouterr().err
    assert "its jobs name toys.Squares, which is not one of unknot's classes" in message
    assert "add --import toys." in message


def test_one_s_own_module_is_found_wherever_the_runner_found_it(
    tmp_path: Path, study: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    module = "import toys\n\nclass Squares(toys.Squares):\n    pass\n"
    (tmp_path / "elsewhere" / "faraway.py").write_text(module, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    sweeps = [{"config": "beta_vae_dsprites", "options": {"model.beta": [1]}}]
    content = study(steps=1, sweeps=sweeps, datasets=[{"class_path": "faraway.Squares"}]).content
    mine = Study("mine", content, imported=("faraway",))
    assert run(mine, tmp_path / "runs", one_at_a_time(), lambda line: None).done == 1


FULL = """
mount -t tmpfs -o size={small}k tmpfs disk || exit 77
cp -r planned disk/study
{run}
echo "exit $?" >&2
mount -o remount,size=200m disk
{run} || exit 1
{table}
"""


def test_a_full_disk_stops_the_run_and_loses_nothing(toys: Path, undisturbed: Any, study: Make, tmp_path: Path) -> None:
    """On a disk of its own, seen by these processes alone: it holds one model and a half; then it is made larger."""
    sweeps = [{"config": "beta_vae_dsprites", "options": {"model.beta": [1, 4]}}]
    prepare(study(sweeps=sweeps), tmp_path / "planned")
    (tmp_path / "disk").mkdir()
    one = sum(file.stat().st_size for file in next((toys / "whole").glob("jobs/*/*/model")).iterdir())
    command = shlex.join(STUDY)
    script = FULL.format(
        small=1500 * one // 1024 // 1000 + 100,
        run=f"{command} run disk/study --jobs 1 --import toys",
        table=f"{command} table disk/study --out table.csv",
    )
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    environment = os.environ | {"PYTHONPATH": str(toys)}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip(f"needs a disk of its own, which this machine does not let us have: {ended.stderr.strip()[:100]}")
    assert ended.returncode == 0, ended.stderr
    first, second = ended.stderr.split("exit 1\n")
    assert "1 of 2 done, 0 failed." in first
    assert "Stopped: the disk is full (" in first
    assert "free some space. Resume with: unknot study run disk/study --jobs 1" in first
    assert "2 jobs, 1 done before, 1 to do" in second
    expected = undisturbed.head(2).dropna(axis="columns", how="all")  # without columns of FactorVAE
    table = pd.read_csv(tmp_path / "table.csv")[expected.columns]
    pd.testing.assert_frame_equal(table, expected, check_exact=True, check_dtype=False)


def workers_of(runner: int) -> list[int]:
    """The processes of the jobs of a runner."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(runner)], capture_output=True, text=True).stdout
    return [int(pid) for pid in children.split()]


def test_killed_jobs_and_runners_leave_no_trace(toys: Path, undisturbed: Any, study: Make, start: Start) -> None:
    folder, chance = toys / "killed", random.Random(0)
    prepare(study(), folder)
    words = ["study", "run", "killed", "--jobs", "1", "--checkpoint-every", "0.1", "--import", "toys"]
    for kill in ("runner", "job", None):
        runner = start(words, toys)
        if kill:
            for left in folder.glob("jobs/*/*/progress.json"):  # of the run before: new ones tell that jobs run
                left.unlink()
            runner.wait_for(lambda: any(folder.glob("jobs/*/*/progress.json")))
            time.sleep(chance.random() / 2)
            workers = workers_of(runner.pid)
            os.kill(workers[0] if kill == "job" else runner.pid, signal.SIGKILL)
            if kill == "runner":
                runner.wait()
                while any(Path(f"/proc/{pid}").exists() for pid in workers):  # they notice that the runner is gone
                    time.sleep(0.01)
                continue
        assert runner.wait() == 0, runner.output
    pd.testing.assert_frame_equal(results(folder)[undisturbed.columns], undisturbed, check_exact=True)
    for job in undisturbed["job"]:
        assert JobFolder(folder, job).curve.read_text() == JobFolder(toys / "whole", job).curve.read_text()


def test_what_failed_under_another_runner_is_not_tried_again(toys: Path, study: Make) -> None:
    plan, folder = prepare(study(), toys / "unlucky"), toys / "unlucky"
    files = JobFolder(folder, plan.jobs[0].name)
    files.path.mkdir(parents=True)
    files.fail("out of luck")  # after this runner made its list
    ended = [outcome for outcome in one_at_a_time().run(folder, plan, plan.jobs[:1]) if outcome]
    assert [(outcome.what, outcome.message) for outcome in ended] == [("failed", "out of luck")]
    assert files.error()["count"] == 1


@pytest.mark.slow
def test_two_runners_share_the_jobs_of_a_folder(toys: Path, undisturbed: Any, study: Make, start: Start) -> None:
    sweeps = [
        {"config": "beta_vae_dsprites", "options": {"model.beta": [1, 4]}},
        {"config": "beta_vae_dsprites", "options": {"model.beta": [2]}, "training": {"model.lr": 1e30}},  # NaN
        {"config": "factor_vae_dsprites", "options": {"model.gamma": [10]}},
    ]
    plan, folder = prepare(study(sweeps=sweeps, seeds=2), toys / "shared"), toys / "shared"
    other = start(["study", "run", "shared", "--jobs", "1", "--import", "toys"], toys)
    other.wait_for(lambda: any(folder.glob("jobs/*/*/progress.json")))
    lines: list[str] = []
    summary = run(plan, folder, one_at_a_time(), lines.append)
    assert other.wait() == 1
    assert "Another runner works in this folder" in lines[1]
    assert (summary.done, len(summary.failed), summary.left) == (6, 2, 0)
    assert "6 of 8 done, 2 failed" in other.output
    table = results(folder)
    done = table[(table["status"] == "done") & (table["seed"] == 0)].reset_index(drop=True)
    pd.testing.assert_frame_equal(done[undisturbed.columns], undisturbed, check_exact=True, check_dtype=False)
    for job in plan.jobs:  # none was begun twice, not even to fail again
        files = JobFolder(folder, job.name)
        if files.problem():
            assert files.error()["count"] == 1
        else:
            assert files.log.read_text(encoding="utf-8").count("`Trainer.fit` stopped") == 1


def test_ctrl_c_saves_the_state_and_says_how_to_go_on(
    toys: Path, study: Make, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(study(steps=100_000), toys / "long")
    runner = start(["study", "run", "long", "--jobs", "1", "--shard", "1/1", "--import", "toys"], toys)
    steps = (toys / "long").glob
    runner.wait_for(lambda: any(json.loads(p.read_text())["step"] for p in steps("jobs/*/*/progress.json")))
    runner.kill(signal.SIGINT)
    assert runner.wait() == 130
    hint = "unknot study run long --jobs 1 --shard 1/1 --import toys\n"
    assert f"Stopped: it was interrupted. Resume with: {hint}" in runner.output
    assert "Traceback" not in runner.output
    assert len(list((toys / "long").glob("jobs/*/*/checkpoints/last.ckpt"))) == 1
    assert main(["study", "status", "long"]) == 0
    assert ", 1 interrupted, " in capsys.readouterr().out


def test_a_job_that_is_told_to_end_between_two_steps_saves_its_state(toys: Path, study: Make) -> None:
    plan, folder = prepare(study(), toys / "asked"), toys / "asked"
    job = plan.jobs[0]
    job.config["model"]["class_path"] = "toys.AskedToStop"
    assert [outcome.what for outcome in Local(jobs=1).run(folder, plan, [job]) if outcome] == ["done"]
    log = JobFolder(folder, job.name).log.read_text(encoding="utf-8")
    assert log.count("Restored all states from the checkpoint") == 1  # it was started again, and resumed at step five


def test_shards_part_the_jobs(study: Make) -> None:
    jobs = study(seeds=40).jobs()
    parts = [Shard(index, 7).select(jobs) for index in range(1, 8)]
    assert sorted(job.name for part in parts for job in part) == sorted(job.name for job in jobs)
    assert {len(part) for part in parts} == {17, 18}
    for part in parts:
        assert [jobs.index(job) for job in part] == sorted(jobs.index(job) for job in part)
        assert {job.settings["method"] for job in part} == {"BetaVAE", "FactorVAE"}
    with pytest.raises(ValueError, match="numbered from 1"):
        Shard(0, 7)


def test_places_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Local(gpus=2, gpus_per_job=0.5).devices == ["0", "1", "0", "1"]
    assert Local(gpus=2, gpus_per_job=0.5).parallel == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert Local(gpus=1).devices == ["3"]
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES lists 2"):
        Local(gpus=3)
    with pytest.raises(ValueError, match="a job trains on one device at most"):
        Local(gpus=2, gpus_per_job=2)


def test_a_job_sees_no_cluster_and_its_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    seen = environment(threads=2, devices="5")
    assert not {"SLURM_PROCID", "WORLD_SIZE", "LOCAL_RANK"} & seen.keys()
    assert (seen["OMP_NUM_THREADS"], seen["OMP_WAIT_POLICY"], seen["CUDA_VISIBLE_DEVICES"]) == ("2", "PASSIVE", "5")


def test_ray_gives_the_same_table(toys: Path, undisturbed: Any, study: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    executor = Ray("local", jobs=1)
    assert run(study(), "ray", executor, lambda line: None).done == 3
    pd.testing.assert_frame_equal(results("ray")[undisturbed.columns], undisturbed, check_exact=True)


def test_the_time_left_goes_by_jobs_that_ended_and_before_by_steps(tmp_path: Path, study: Make) -> None:
    plan = prepare(study(steps=100, seeds=2), tmp_path)
    display = Display(tmp_path, plan, plan.jobs, Summary(tmp_path), 2, lambda line: None)
    display.begin(plan.jobs)
    assert display.line() == "0 of 6 done, 0 running, 0 failed, starting"
    first, second = (JobFolder(tmp_path, job.name) for job in plan.jobs[:2])

    def tell(files: JobFolder, phase: str, step: int, at: float) -> None:
        files.path.mkdir(parents=True, exist_ok=True)
        write_json(files.path / "progress.json", {"phase": phase, "step": step, "steps": 100, "time": at})

    tell(first, "training", 40, 1000.0)  # resumed: what it did before is no speed of this run
    assert display.line() == "0 of 6 done, 1 running, 0 failed"
    tell(first, "training", 50, 1010.0)
    tell(second, "training", 0, 1010.0)
    line = display.line()
    assert line == "0 of 6 done, 2 running, 0 failed, 1 steps/s, 9 min of training left, scores not counted"
    tell(second, "scoring", 0, 1020.0)
    assert "2 running (1 scoring), 0 failed" in display.line()
    display.summary.done = 1
    (first.path / "progress.json").unlink()
    display.ended(plan.jobs[0], Outcome(plan.jobs[0].name, "done", seconds=600.0))
    assert display.line() == "1 of 6 done, 1 running (1 scoring), 0 failed, 50 min left"
    os.utime(second.path / "progress.json", (0, 0))
    assert "0 running, 0 failed, no progress for 0 s" in display.line()
