"""The folder of a run: recorded ones of version 0.1.0, what is kept of scores, and what damaged files come to."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from unknot.cli import main
from unknot.hub.browser.index import find_models
from unknot.hub.publishing import known_about
from unknot.metrics import Scores
from unknot.studies import Study, results
from unknot.studies.plan import JobFolder, read_plan
from unknot.training import RunFolder, fit
from unknot.training.run_folder import Summary
from unknot.zoo import BetaVAE

pd = pytest.importorskip("pandas")
RECORDED = Path(__file__).parent / "recorded"
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
DONE, INTERRUPTED, FAILED = "0feb3417a108c0ee", "349fa82e5ea7fa1b", "8498b6bcb13870c5"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folders that version 0.1.0 wrote."""
    shutil.copytree(RECORDED, tmp_path / "recorded")
    for progress in tmp_path.rglob("progress.json"):
        os.utime(progress, (0, 0))
    monkeypatch.syspath_prepend(str(RECORDED))
    monkeypatch.chdir(tmp_path / "recorded")
    return tmp_path / "recorded"


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Folders of version 0.1.0


def test_a_recorded_study_gives_the_same_table_and_stays_as_it_is(recorded: Path) -> None:
    before = content_of(recorded)
    table = results(recorded / "study")
    pd.testing.assert_frame_equal(table, pd.read_csv(recorded / "study.csv"), check_dtype=False)
    assert main(["study", "status", "study"]) == 0
    assert content_of(recorded) == before


def test_recorded_runs_are_shown_with_scores_and_curves(recorded: Path) -> None:
    entries = {entry.home.name: entry for entry in find_models(recorded) if entry.home}
    job, run, begun = entries[DONE], entries["version_0"], entries["version_1"]
    assert (job.title, job.row.scores["mig"].__round__(4)) == ("β-VAE, β = 1, seed 0", 0.0674)
    assert job.curve is not None
    assert (run.row.scores["mig"], run.row.seed, run.row.dataset) == (0.25, 3, "tiny_squares")
    assert "traversals" in next(iter(run.pictures()))
    assert (begun.row.model, begun.row.seed, begun.folder) == ("BetaVAE", 3, None)
    assert "not finished" in str(begun.row.problem)
    assert "got -1.0" in str(RunFolder(recorded / "study/jobs/84" / FAILED).problem())


def test_a_recorded_run_and_job_resume(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = ["--trainer.enable_progress_bar", "false", "--import", "recorded_squares"]
    assert main(["fit", "--resume", "fit/version_1", *quiet]) == 0
    assert "Resuming fit/version_1 from last.ckpt, step 12." in capsys.readouterr().out
    run = RunFolder("fit/version_1")
    old = torch.load(RECORDED / "fit/version_0/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    model = BetaVAE.from_pretrained(run.model)
    assert all(torch.equal(value, old[name]) for name, value in model.state_dict().items())
    assert json.loads((run.path / "run.json").read_text())["dataset"] == "tiny_squares"

    job = RunFolder(recorded / "study/jobs/34" / INTERRUPTED)
    assert main(["fit", "--resume", str(job.path), *quiet]) == 0
    assert "step 7" in capsys.readouterr().out
    assert job.curve == job.path / "metrics.csv"
    assert pd.read_csv(job.curve)["step"][0] == 1  # a row of its former self
    plan = read_plan(Path("study"), ["recorded_squares"])
    assert JobFolder(Path("study"), INTERRUPTED).state_of(plan.protocols) == "waiting"  # for its scores
    assert main(["study", "run", "study", "--jobs", "1", "--import", "recorded_squares"]) == 1  # one failed before
    assert results("study")["status"].tolist() == ["done", "done", "failed", "done", "done", "done"]


def test_a_longer_training_of_a_job_goes_elsewhere(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = RunFolder(recorded / "study/jobs/0f" / DONE)
    before = content_of(job.path)
    words = ["--trainer.max_steps", "14", "--trainer.enable_progress_bar", "false", "--import", "recorded_squares"]
    assert main(["fit", "--resume", str(job.path), *words]) == 0
    assert "is a job of a study and stays as it is" in capsys.readouterr().out
    assert content_of(job.path) == before
    assert RunFolder("runs/BetaVAE/version_0").record()["steps"] == 14


def test_a_recorded_job_is_published_with_all_that_is_known(recorded: Path) -> None:
    known = known_about(recorded / "study/jobs/0f" / DONE)
    assert (known["seed"], round(known["scores"]["mig"], 4)) == (0, 0.0674)
    assert {"training.yaml", "training.csv"} <= known["extras"].keys()


# Scores


def trained(folder: Path, beta: float = 1.0) -> RunFolder:
    run = RunFolder(folder)
    run.create(Summary("BetaVAE", {"beta": beta}, "dsprites", 0, 10))
    BetaVAE(beta=beta, image_shape=(1, 16, 16)).save_pretrained(run.model)
    return run


def of(draws: int, **values: float) -> Scores:
    return Scores(values, protocol={"dataset": "dsprites", "num_train": draws, "num_test": 5, "seed": 0, "repeats": 1})


def test_scores_are_kept_by_protocol_and_forgotten_with_the_weights(tmp_path: Path) -> None:
    run = trained(tmp_path)
    run.set_validation({"val/loss": 1.5, "val/kl": float("inf")})
    run.add_scores(of(10_000, mig=0.1))
    run.add_scores(of(100, mig=0.2))
    run.add_scores(of(100, dci=0.3))
    assert dict(run.scores()) == {"mig": 0.1}
    draws = {"num_train": 100, "num_test": 5, "seed": 0, "repeats": 1}
    assert dict(run.scores(draws)) == {"mig": 0.2, "dci": 0.3}
    assert run.missing(draws, ["mig", "irs"]) == ["irs"]
    assert run.validation() == {"val/loss": 1.5, "val/kl": float("inf")}
    run.add_scores(Scores({"mig": 0.9}, protocol={"dataset": "rooms3d", **draws}))
    run.add_scores(Scores({"mig": 0.8}, protocol={"dataset": "dsprites", "backend": "hist", **draws}))
    assert run.scores(draws)["mig"] == 0.2
    assert run.scores({**draws, "backend": "hist"})["mig"] == 0.8
    BetaVAE(beta=2.0, image_shape=(1, 16, 16)).save_pretrained(run.model)
    assert (dict(run.scores()), run.missing(draws, ["mig"])) == ({}, ["mig"])


def test_scores_of_two_data_sets_are_kept_apart_where_the_run_names_none(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.create(Summary("BetaVAE"))
    BetaVAE(image_shape=(1, 16, 16)).save_pretrained(run.model)
    draws = {"num_train": 100, "num_test": 5, "seed": 0, "repeats": 1}
    for name, value in (("dsprites", 0.1), ("rooms3d", 0.2)):
        run.add_scores(Scores({"mig": value}, protocol={"dataset": name, **draws}))
    assert [dict(run.scores({**draws, "dataset": name})) for name in ("dsprites", "rooms3d")] == [
        {"mig": 0.1},
        {"mig": 0.2},
    ]


def test_a_newer_file_is_refused_in_words(tmp_path: Path) -> None:
    run = trained(tmp_path)
    (tmp_path / "scores.json").write_text('{"schema": 9, "entries": []}')
    assert "written by a newer version" in str(run.problem())
    (tmp_path / "run.json").write_text('{"schema": 9}')
    assert "written by a newer version" in str(RunFolder(tmp_path).summary.problem)


# From Python


def test_fit_trains_resumes_and_leaves_the_program_alone(recorded: Path, tmp_path: Path) -> None:
    import random

    import numpy as np
    from recorded_squares import TinySquares

    from unknot.datamodules import FactorDataModule

    def made() -> tuple[BetaVAE, FactorDataModule]:
        torch.manual_seed(5)
        model = BetaVAE(image_shape=(1, 16, 16), encoder="MLPEncoder", decoder="MLPDecoder", latent_dim=2)
        return model, FactorDataModule(TinySquares(), batch_size=2, num_val_batches=1)

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    threads = torch.get_num_threads()
    whole, data = made()
    torch.set_rng_state(states[0])
    run = fit(whole, data, folder=tmp_path / "whole", trainer={"max_steps": 6, **QUIET})
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]  # noqa: NPY002
    assert torch.get_num_threads() == threads
    assert (run.state(), run.summary.dataset, run.record()["steps"]) == ("done", "tiny_squares", 6)

    half, data = made()
    fit(half, data, folder=tmp_path / "half", trainer={"max_steps": 3, **QUIET})
    again, data = made()
    fit(again, data, folder=tmp_path / "half", trainer={"max_steps": 6, **QUIET})
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_fit_takes_configurations_and_says_what_is_wrong(recorded: Path, tmp_path: Path) -> None:
    options = {"trainer.max_steps": 4, "model.beta": 3.0, "trainer.accelerator": "cpu"}
    run = fit("tiny.yaml", overrides=options, seed=7, trainer=QUIET, imported=["recorded_squares"])
    assert run.path == Path("runs/tiny/version_0")
    assert (run.state(), run.summary.seed, run.summary.arguments["beta"]) == ("done", 7, 3.0)
    longer = fit(run, overrides={"trainer.max_steps": 6}, trainer=QUIET, imported=["recorded_squares"])
    assert (longer.path, longer.record()["steps"]) == (run.path, 6)
    with pytest.raises(ValueError, match="names no data"):
        fit("beta_vae")
    with pytest.raises(ValueError, match="needs data"):
        fit(BetaVAE())
    with pytest.raises(FileNotFoundError, match="no such file and no bundled configuration"):
        fit("beta_vea")


@pytest.mark.parametrize(
    "part",
    [
        {"default_root_dir": "/elsewhere"},
        {"default_root_dir": "../elsewhere"},
        {"callbacks": [{"class_path": "ModelCheckpoint", "init_args": {"dirpath": "runs/other/checkpoints"}}]},
        {"callbacks": [{"class_path": "ModelCheckpoint", "init_args": {"filename": "../../other/last"}}]},
        {"logger": {"class_path": "CSVLogger", "init_args": {"save_dir": "runs"}}},
    ],
    ids=str,
)
def test_a_configuration_may_not_choose_where_to_write(
    recorded: Path, part: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    content = yaml.safe_load(Path("tiny.yaml").read_text())
    content["trainer"] |= part
    Path("training.yaml").write_text(yaml.safe_dump(content))
    assert main(["fit", "--config", "training.yaml", "--import", "recorded_squares"]) == 1
    assert "may not choose a folder to write to" in capsys.readouterr().err
    assert not Path("runs").exists()


# Damage


def damaged(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "garbage": b"\x00\xffgarbage{"}[how])


@pytest.mark.parametrize("how", ["empty", "half", "garbage"])
def test_one_damaged_file_sets_one_job_aside_and_never_the_study(
    recorded: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = RunFolder(recorded / "study/jobs/0f" / DONE)
    before = results("study")
    for path in sorted(path for path in job.path.rglob("*") if path.is_file()):
        kept = path.read_bytes()
        damaged(path, how)
        after = results("study")
        pd.testing.assert_frame_equal(after.iloc[1:], before.iloc[1:])  # the others are as they were
        row = after.iloc[0].dropna()
        assert row.drop("status").equals(before.iloc[0][row.index].drop("status")), path  # nothing is wrong
        assert row["status"] in ("done", "failed", "waiting", "interrupted")
        weights = path.name in ("model.safetensors", "config.json")
        assert (row["status"] == "done") != (weights or path.name == "scores.json"), (path, row["status"])
        assert main(["study", "status", "study"]) == 0
        assert len(list(find_models(recorded / "study"))) >= 4
        path.write_bytes(kept)
    capsys.readouterr()


@pytest.mark.parametrize("how", ["empty", "half", "garbage"])
def test_a_study_with_damaged_jobs_heals(recorded: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = results("study").iloc[0]
    job = RunFolder(recorded / "study/jobs/0f" / DONE)
    damaged(job.path / "scores.json", how)
    assert "not a whole JSON file" in job.problem() or "scores.json" in job.problem()
    assert main(["study", "retry", "study", "--jobs", "1", "--import", "recorded_squares"]) == 0
    damaged(job.model / "model.safetensors", how)
    (job.path / "last.ckpt").unlink(missing_ok=True)
    assert main(["study", "run", "study", "--jobs", "1", "--import", "recorded_squares"]) == 0
    healed = results("study").iloc[0]
    assert (healed["status"], healed["mig"], healed["val/loss"]) == ("done", expected["mig"], expected["val/loss"])


def test_names_of_jobs_stay() -> None:
    known = json.loads((Path(__file__).parents[1] / "studies/job_names.json").read_text())
    for name in ("dsprites32", "rooms32", "weak32", "s2_32", "zoo64", "unsupervised_selection"):
        names = [job.name for job in Study.from_file(name).jobs()]
        assert names[:3] == known[name]["first"]
        assert hashlib.sha256("\n".join(names).encode()).hexdigest() == known[name]["sha256"], name


def test_each_file_is_named_in_one_module() -> None:
    names = ["run.json", "config.yaml", "metrics.csv", "progress.json", "record.json", "scores.json", "error.json"]
    names += ["log.txt", "tags.json", "codes.npy", "last.ckpt", "previous.ckpt", "best.ckpt", "last_error.json"]
    root = Path(__file__).parents[2]
    rooms = ("core", "datamodules", "checkpoints", "zoo", "metrics", "training", "studies", "hub", "cli", "tools")
    texts = {path: path.read_text(encoding="utf-8") for room in rooms for path in root.glob(f"{room}/**/*.py")}
    for name in names:
        homes = [str(path.relative_to(root)) for path, text in texts.items() if f'"{name}"' in text]
        assert homes == [f"training/{'score_file' if name == 'scores.json' else 'run_folder'}.py"], (name, homes)
