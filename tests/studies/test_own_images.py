"""Studies on a folder of images with a table of labels."""

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from unknot.cli import main
from unknot.studies import Study, results, run

SWEEPS = [
    {"config": "beta_vae", "options": {"model.beta": [1, 4]}},
    {"config": "beta_tcvae", "options": {"model.beta": [2, 6]}},
]
STUDY: dict[str, Any] = {
    "datasets": [{"images": "photos", "labels": "factors.csv"}],
    "image_size": 16,
    "seeds": 2,
    "training": {"trainer.max_steps": 2},
    "sweeps": SWEEPS,
    "scores": ["mig", "sap"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 photos of three hues and two sizes in ``photos``, and ``factors.csv`` beside it."""
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    with (tmp_path / "factors.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "hue", "size"])
        for number in range(40):
            hue, size = int(rng.integers(3)), number % 2
            image = np.zeros((20, 20, 3), dtype=np.uint8)
            image[: 8 + 8 * size, :, hue] = rng.integers(180, 255)
            Image.fromarray(image).save(tmp_path / "photos" / f"{number}.png")
            table.writerow([f"{number}.png", "rgb"[hue], size])
    return tmp_path


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}))
    return path


def test_jobs_name_the_images_relative_to_the_study(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    jobs = Study.from_file(write(folder)).check()
    assert len(jobs) == 8
    data = jobs[0].config["data"]["init_args"]
    assert data["source"] == str(folder / "photos")
    assert data["labels"] == str(folder / "factors.csv")
    assert data["image_size"] == 16
    assert {job.settings["dataset"] for job in jobs} == {"photos"}
    moved = tmp_path_factory.mktemp("elsewhere") / "study"
    shutil.copytree(folder, moved)
    assert [job.name for job in Study.from_file(moved / "mine.yaml").jobs()] == [job.name for job in jobs]


def test_a_study_on_own_images_from_file_to_table(folder: Path) -> None:
    study = Study.from_file(write(folder, seeds=1, sweeps=SWEEPS[:1]))
    summary = run(study, folder / "runs", say=lambda line: None)
    assert (summary.done, summary.failed) == (2, {})
    table = results(folder / "runs")
    assert table.status.tolist() == ["done", "done"]
    assert table[["mig", "sap"]].notna().all(axis=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": [{"images": "fotos", "labels": "factors.csv"}]}, "fotos: no such folder"),
        ({"datasets": [{"images": "photos", "labels": "labels.csv"}]}, "labels.csv: no such file"),
        ({"datasets": [{"images": "photos"}]}, "a table of them, or `label_keys`"),
        ({"datasets": [{"images": "photos", "label": "factors.csv"}]}, "Did you mean 'labels'?"),
        ({"datasets": [{"images": 3}]}, "`images` of own images must be a path"),
        ({"sweeps": [{"config": "ada_gvae"}]}, "its model trains on pairs"),
        ({"datasets": ["dsprites"]}, "has no `data`"),
        ({"scores": ["mig", "covariate_shift"], "datasets": [{"images": "photos", "labels": "sparse.csv"}]}, "every"),
        ({"scores": [{"metrics": ["mig"], "labels": {"num_labels": [100]}}]}, "ground-truth data set"),
        ({"scores": [{"metrics": ["mig"], "law": "independent"}]}, "remove `law: independent`"),
        ({"training": {"trainer.max_steps": 2, "model.lr": "fast"}}, "lr must be of type float, got 'fast'"),
        ({"sweeps": [{"config": "beta_vae", "options": {"model.beta": [-1]}}]}, "beta must be finite"),
    ],
)
def test_show_refuses_what_run_refuses_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    lines = (folder / "factors.csv").read_text().splitlines()
    kept = [line for line in lines if not line.endswith("b,1")]
    (folder / "sparse.csv").write_text("\n".join(kept) + "\n")
    path = write(folder, **changes)
    said = []
    for action in (["show", str(path)], ["run", str(path), "--folder", str(folder / "runs")]):
        assert main(["study", *action]) != 0
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert message in said[0]
    assert said[0].count("\n") == 1
    assert said[0].count(message) == 1
    assert not (folder / "runs").exists()


@pytest.mark.slow  # trains a model and grows trees
def test_a_study_on_noise_stays_at_chance(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    (tmp_path / "photos").mkdir()
    lines = ["file,hue,size"]
    for number in range(240):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(tmp_path / "photos" / f"{number}.png")
        lines.append(f"{number}.png,{rng.integers(4)},{rng.integers(3)}")
    (tmp_path / "factors.csv").write_text("\n".join(lines))
    sweeps = [{"config": "beta_vae", "options": {"model.beta": [1]}}]
    study = Study.from_file(write(tmp_path, seeds=1, sweeps=sweeps, scores=["dci", "downstream_gbt"]))
    run(study, tmp_path / "runs", say=lambda line: None)
    table = results(tmp_path / "runs")
    for score in ("dci_informativeness_test", "downstream_gbt"):
        assert abs(table[score].item() - (1 / 4 + 1 / 3) / 2) < 0.12
