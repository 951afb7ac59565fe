"""The folder of a run: one process each, one curve, and a whole checkpoint whatever happens."""

import csv
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from unknot import zoo
from unknot.cli import main
from unknot.training.callbacks import CurveLogger, Keeper, WholeCheckpoints
from unknot.training.run_folder import RunFolder
from unknot.training.stopping import Stop, Stopped

OPTIONS = [
    *("--config", "beta_vae_dsprites", "--data.batch_size", "2", "--data.num_val_batches", "1"),
    *("--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"),
    *("--trainer.enable_model_summary", "false", "--trainer.log_every_n_steps", "1"),
]
RUN = Path("runs/beta_vae_dsprites/version_0")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fit(*words: str) -> int:
    return main(["fit", *words])


def rows() -> list[dict[str, str]]:
    with (RUN / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_many_claims_at_once_get_a_folder_each(tmp_path: Path) -> None:
    claimed: list[Path] = []

    def claim() -> None:
        claimed.append(RunFolder.claim(tmp_path / "runs").path)

    threads = [threading.Thread(target=claim) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in claimed) == sorted(f"version_{number}" for number in range(32))


def test_a_run_is_trained_by_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(*OPTIONS, "--trainer.max_steps", "1") == 0
    with RunFolder(RUN).lock():  # in another process, as one and the same may take it twice
        script = f"from unknot.training import RunFolder; RunFolder({str(RUN)!r}).lock().__enter__()"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "another process is training this run" in done.stderr


def test_resuming_goes_on_in_the_same_folder_with_one_curve(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [*OPTIONS, "--trainer.val_check_interval", "2", "--checkpoint_every", "3"]
    assert fit(*steps, "--trainer.max_steps", "4") == 0
    torch.save({"half": 1}, RUN / "checkpoints/.last.ckpt.0.part")
    with (RUN / "metrics.csv").open("a") as file:
        file.write("0,9,9")  # half a row, and what came after the last checkpoint
    assert fit("--resume", str(RUN), "--trainer.max_steps", "8") == 0
    assert f"Resuming {RUN} from last.ckpt, step 4." in capsys.readouterr().out
    assert [path.name for path in RUN.parent.iterdir()] == ["version_0"]
    assert not list(RUN.glob("checkpoints/.*.part"))
    train = [int(row["step"]) for row in rows() if row["train/loss"]]
    held_out = [int(row["step"]) for row in rows() if row["val/loss"]]
    assert train == list(range(8))
    assert held_out == sorted(set(held_out))
    assert len(held_out) == 4


def test_rows_after_the_checkpoint_are_logged_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(*OPTIONS, "--trainer.max_steps", "6", "--checkpoint_every", "2") == 0
    first = rows()
    os.replace(RUN / "checkpoints/previous.ckpt", RUN / "checkpoints/last.ckpt")  # as if killed after step 6
    assert RunFolder(RUN).resumption().step < 7
    assert fit("--resume", str(RUN)) == 0
    assert [(row["step"], row["train/loss"]) for row in rows()] == [(row["step"], row["train/loss"]) for row in first]


def damage(path: Path, kind: str) -> None:
    content = path.read_bytes()
    half = len(content) // 2
    if kind == "missing":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(content[:half])
    elif kind == "flipped":
        path.write_bytes(content[:half] + bytes([content[half] ^ 255]) + content[half + 1 :])
    else:
        torch.save({"state_dict": {}}, path)


@pytest.mark.parametrize("kind", ["missing", "truncated", "flipped", "without keys"])
def test_a_damaged_checkpoint_is_seen_and_the_one_before_taken(kind: str, tmp_path: Path) -> None:
    last, previous = tmp_path / "checkpoints/last.ckpt", tmp_path / "checkpoints/previous.ckpt"
    needed = dict.fromkeys(("optimizer_states", "lr_schedulers", "loops", "callbacks", "epoch"), 0)
    for step in (1, 2):
        content = {"state_dict": {"w": torch.rand(5000)}, "global_step": step}
        WholeCheckpoints().save_checkpoint(needed | content, last)
    assert RunFolder(tmp_path).resumption().step == 2
    damage(last, kind)
    found = RunFolder(tmp_path).resumption()
    assert (found.checkpoint, found.step) == (previous, 1)
    assert "from previous.ckpt, step 1" in found.note
    assert str(last) in found.note
    damage(previous, kind)
    found = RunFolder(tmp_path).resumption()
    assert (found.checkpoint, found.step) == (None, 0)
    assert "from the beginning" in found.note
    assert kind == "missing" or str(previous) in found.note


def test_a_checkpoint_replaces_another_only_when_whole(tmp_path: Path) -> None:
    last = tmp_path / "last.ckpt"
    WholeCheckpoints().save_checkpoint({"step": 1}, last)
    with pytest.raises(AttributeError):
        WholeCheckpoints().save_checkpoint({"step": lambda: None}, last)  # fails half way
    assert torch.load(last)["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--trainer.accelerator", "gpu"], "--trainer.accelerator auto or cpu"),
        (["--trainer.precision", "16-true", "--trainer.accelerator", "tpu"], ""),
    ],
    ids=["gpu", "tpu"],
)
def test_a_fit_that_fails_at_once_leaves_no_folder(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert fit(*OPTIONS, *words) == 1
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    assert expected in err
    assert not list(Path("runs").rglob("version_*"))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_saves_and_says_how_to_go_on(
    signum: signal.Signals, tmp_path: Path, start: Callable[..., Any]
) -> None:
    process = start(["fit", *OPTIONS, "--trainer.max_steps", "100000", "--checkpoint_every", "100000"], tmp_path)
    process.wait_for((RUN / "metrics.csv").exists)
    process.kill(signum)
    assert process.wait() == 128 + signum
    assert f"unknot fit --resume {RUN}" in process.output
    assert "Traceback" not in process.output
    assert RunFolder(RUN).resumption().step > 0


class _Signalling(Callback):
    """Sends a signal after the step in which a stop could have been noticed, as one that comes in a validation."""

    def __init__(self, signum: signal.Signals) -> None:
        self.signum = signum

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *arguments: object) -> None:
        if trainer.global_step == 2:
            os.kill(os.getpid(), self.signum)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_between_two_steps_saves_too(signum: signal.Signals, tmp_path: Path) -> None:
    stop = Stop()
    callbacks: list[Callback] = [Keeper(None, stop), _Signalling(signum)]
    trainer = Trainer(
        max_steps=5,
        accelerator="cpu",
        logger=CurveLogger(tmp_path / "runs" / "x" / "version_0"),
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    before = signal.getsignal(signum)
    with pytest.raises(Stopped), stop.listening(signal.SIGINT, signal.SIGTERM):
        trainer.fit(zoo.BetaVAE(image_shape=(1, 16, 16)), DataLoader(TensorDataset(torch.rand(20, 1, 16, 16)), 2))
    assert signal.getsignal(signum) is before
    assert torch.load(Path(str(trainer.log_dir)) / "checkpoints" / "last.ckpt")["global_step"] == 2


def test_predict_refuses_several_processes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    assert main(["predict", *OPTIONS[:6], *OPTIONS[6:10], *words]) == 1
    assert "--trainer.devices 1" in capsys.readouterr().err
