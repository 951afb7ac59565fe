"""``unknot evaluate`` on your own images, and on nothing that nobody asked for."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unknot.cli import main
from unknot.metrics import Scores
from unknot.zoo import BetaVAE


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNKNOT_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    BetaVAE(image_shape=(1, 32, 32), latent_dim=3).save_pretrained("model")


def write_images(n: int = 40) -> None:
    rng = np.random.default_rng(0)
    Path("photos").mkdir()
    with open("factors.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "shade", "side"])
        for number in range(n):
            shade, side = int(rng.integers(4)), int(rng.integers(2))
            pixels = np.full((40, 40), 20, dtype=np.uint8)
            pixels[:, 20 * side : 20 * side + 20] = 60 * shade + 40
            Image.fromarray(pixels).save(f"photos/{number:02}.png")
            writer.writerow([f"{number:02}.png", shade, side])


def test_own_images_with_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    write_images()
    words = ["evaluate", "model", "--images", "photos", "--labels", "factors.csv", "--metrics", "mig", "dci"]
    assert main([*words, "--val-fraction", "0.25", "--json", "scores.json"]) == 0
    assert "on own images, seed 0, 30 + 10 samples" in capsys.readouterr().out
    scores = Scores.read("scores.json")
    assert scores.keys() >= {"mig", "dci", "dci_completeness"}
    assert scores.protocol.items() >= {"dataset": "own images", "num_train": 30, "num_test": 10}.items()


def test_nothing_is_scored_on_data_that_nobody_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "model", "--metrics", "mig"]) == 1
    message = capsys.readouterr().err
    assert "model does not record its training data: add --dataset NAME" in message
    assert "--images FOLDER --labels CSV" in message


@pytest.mark.parametrize(
    "words", [["--images", "photos"], ["--labels", "x.csv"], ["--images", "a", "--dataset", "dsprites"]]
)
def test_half_of_the_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "model", *words]) == 1
    assert "need both --images and --labels, and no --dataset" in capsys.readouterr().err
