"""Kill a process at every write, sync and rename of a run, a job and the runner of a study; then resume.

The points are enumerated by tracing: one process counts them, and for each of them another one is killed there. What
is resumed must come to what an undisturbed run comes to, and what was finished must not be lost.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from unknot.files import sha256_of
from unknot.studies import Local, Study, run
from unknot.studies.jobs.job import perform
from unknot.studies.jobs.runner import prepare
from unknot.studies.jobs.worker import Settings
from unknot.studies.plan import JobFolder
from unknot.training import RunFolder, fit
from unknot.training.stopping import Stop
from unknot.zoo import BetaVAE

pytestmark = pytest.mark.slow
RECORDED = Path(__file__).parent / "recorded"
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "shutil.rmtree", "shutil.move"}
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
SETTINGS = Settings(checkpoint_every=0.0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECORDED))
    monkeypatch.chdir(RECORDED)


def trace(folder: Path, work: Callable[[], Any], kill_at: int | None = None) -> int:
    """Do some work in a process of its own, killed at the n-th change of the folder; how many there were."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with os.fdopen(read) as answer:
            counted = answer.read()
        os.waitpid(child, 0)
        return int(counted) if counted else -1
    points, root = 0, str(folder)

    def point() -> None:
        nonlocal points
        if points == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        points += 1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES and root in str(arguments[0]):
            point()
        elif event == "open" and root in str(arguments[0]):
            mode, flags = arguments[1], arguments[2]
            if (flags or 0) & (os.O_WRONLY | os.O_RDWR) or any(letter in (mode or "") for letter in "wax+"):
                point()

    def sync(descriptor: int, original: Callable[[int], None] = os.fsync) -> None:
        point()
        original(descriptor)

    try:
        sys.addaudithook(hook)
        os.fsync = sync
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        work()
        os.write(write, str(points).encode())
    finally:
        os._exit(0)


def in_a_process(work: Callable[[], Any]) -> bool:
    """Do some work without being killed; whether it ended well."""
    return trace(Path("/nowhere"), work) >= 0


def test_fit(tmp_path: Path) -> None:
    """A run of twelve steps that saves three times, and a finished one that is trained on."""
    overrides = {"trainer.max_steps": 12, "checkpoint_every": 4}

    def train(folder: Path, **changes: Any) -> Callable[[], Any]:
        return lambda: fit(
            "tiny.yaml",
            folder=folder,
            overrides=overrides | changes,
            trainer=QUIET,
            imported=["recorded_squares"],
        )

    whole = RunFolder(tmp_path / "whole")
    points = trace(whole.path, train(whole.path))
    assert points > 50
    expected = sha256_of(whole.model / "model.safetensors")
    lost = wrong = 0
    for at in range(points):
        killed = RunFolder(tmp_path / f"killed-{at}")
        assert trace(killed.path, train(killed.path), at) == -1
        finished = killed.is_trained()
        assert in_a_process(train(killed.path)), at
        again = RunFolder(killed.path)
        lost += finished and not again.is_trained()
        wrong += again.state() != "done" or sha256_of(again.model / "model.safetensors") != expected
        wrong += again.record().get("steps") != 12 or again.validation().keys() != whole.validation().keys()
    print(f"\nfit: {points} points, finished work lost {lost}, wrong or mixed {wrong}")
    assert (lost, wrong) == (0, 0)


def test_save_pretrained_over_another(tmp_path: Path) -> None:
    old, new = (BetaVAE(beta=beta, image_shape=(1, 16, 16), latent_dim=2) for beta in (1.0, 2.0))
    old.save_pretrained(tmp_path / "whole")
    points = trace(tmp_path / "whole", lambda: new.save_pretrained(tmp_path / "whole"))
    wrong = 0
    for at in range(points):
        folder = tmp_path / f"killed-{at}"
        old.save_pretrained(folder)
        assert trace(folder, lambda folder=folder: new.save_pretrained(folder), at) == -1
        loaded = BetaVAE.from_pretrained(folder)
        same = {1.0: old, 2.0: new}[loaded.beta].state_dict()
        wrong += not all(torch.equal(value, same[name]) for name, value in loaded.state_dict().items())
    print(f"\nsave_pretrained: {points} points, wrong or mixed {wrong}")
    assert wrong == 0


def small(tmp_path: Path) -> Study:
    content = {
        "datasets": [{"class_path": "recorded_squares.TinySquares"}],
        "seeds": 1,
        "training": {"trainer.max_steps": 6, "data.batch_size": 2, "data.num_val_batches": 1},
        "sweeps": [{"config": "tiny.yaml", "options": {"model.beta": [1, 2]}}],
        "scores": [{"metrics": ["mig", "modularity"], "num_train": 60, "num_test": 40}],
    }
    return Study("small", content, RECORDED, ("recorded_squares",))


def outcome(job: JobFolder, draws: dict[str, Any]) -> tuple[Any, ...]:
    return sha256_of(job.model / "model.safetensors"), dict(job.scores(draws)), job.validation()


def test_a_job(tmp_path: Path) -> None:
    """A job that saves after every step, is scored, and leaves no checkpoints."""
    plan = prepare(small(tmp_path), tmp_path / "plan")
    job, draws = plan.jobs[0], plan.protocols[0].draws

    def work(folder: Path) -> Callable[[], Any]:
        def go() -> None:
            run = JobFolder(folder, job.name)
            with run.lock():
                perform(run, job, "small", plan.protocols, "cpu", SETTINGS, ["recorded_squares"], Stop(quiet=True))

        return go

    points = trace(tmp_path / "whole", work(tmp_path / "whole"))
    expected = outcome(JobFolder(tmp_path / "whole", job.name), draws)
    lost = wrong = 0
    for at in range(points):
        folder = tmp_path / f"killed-{at}"
        assert trace(folder, work(folder), at) == -1
        finished = JobFolder(folder, job.name).state_of(plan.protocols) == "done"
        trained = JobFolder(folder, job.name).is_trained()
        assert in_a_process(work(folder)), at
        again = JobFolder(folder, job.name)
        lost += (finished or trained) and again.state_of(plan.protocols) != "done"
        wrong += again.state_of(plan.protocols) != "done" or outcome(again, draws) != expected or again.has_state()
    print(f"\njob: {points} points, finished work lost {lost}, wrong or mixed {wrong}")
    assert (lost, wrong) == (0, 0)


def test_the_runner_of_a_study(tmp_path: Path) -> None:
    def work(folder: Path) -> Callable[[], Any]:
        return lambda: run(small(tmp_path), folder, Local(jobs=1), lambda line: None)

    points = trace(tmp_path / "whole", work(tmp_path / "whole"))
    wrong = 0
    for at in range(points):
        folder = tmp_path / f"killed-{at}"
        assert trace(folder, work(folder), at) == -1
        summary = run(small(tmp_path), folder, Local(jobs=1), lambda line: None)
        wrong += (summary.done, summary.failed) != (2, {})
    print(f"\nrunner of a study: {points} points, wrong {wrong}")
    assert wrong == 0
