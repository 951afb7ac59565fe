"""``unknot slots``: every experiment runs on any checkpoint, repeats, and says what is wrong."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from unknot.cli import main
from unknot.metrics import held_out_scenes
from unknot.metrics.functional.sets import average_precisions
from unknot.metrics.object_scores import predict_sets
from unknot.zoo import BetaVAE, SlotAutoEncoder, SlotMLPSetPredictor, SlotSetPredictor

SMALL = {"image_shape": (3, 32, 32), "channels": 8, "strides": (2, 2)}
SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "clevr_sample"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return SlotSetPredictor(**SMALL, loss_at_every_iteration=True, coordinate_scale=2.0).save_pretrained("slot")


def results(experiment: str) -> dict:
    return json.loads(Path(f"out/{experiment}.json").read_text())


def test_thresholds_of_several_checkpoints(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    SlotMLPSetPredictor(**SMALL, hidden_dim=16).save_pretrained("mlp")
    assert main(["slots", "ap", "slot", "mlp", "--images", "6", "--draws", "2", "--output", "out"]) == 0
    shown = capsys.readouterr().out
    assert "SlotSetPredictor, loss at every iteration, coordinates × 2 (slot)" in shown
    assert "SlotMLPSetPredictor (mlp)" in shown
    found = results("ap")
    assert list(found["slot"]["ap"]) == ["inf", "1", "0.5", "0.25", "0.125"]
    assert len(found["slot"]["draws"]) == 2
    assert found["mlp"]["draws"][0] == found["mlp"]["draws"][1]  # an MLP draws no slots
    batch = held_out_scenes((32, 32), "clevr_scenes", 6)
    expected = average_precisions(
        predict_sets(SlotSetPredictor.from_pretrained("slot"), batch.images, seed=1), batch.targets
    )
    assert found["slot"]["draws"][1] == pytest.approx([100 * score for score in expected])
    for name in ("ap", "sets-slot", "sets-mlp"):
        with Image.open(f"out/{name}.png") as image:
            assert min(image.size) > 200


def test_iterations(saved: Path) -> None:
    assert main(["slots", "iterations", "slot", "--images", "2", "--output", "out"]) == 0
    assert list(results("iterations")["slot"]) == ["3", "4", "5", "6", "7"]
    assert Path("out/iterations.png").is_file()


def test_objects(saved: Path) -> None:
    options = ["--images", "2", "--first", "6", "--last", "7", "--output", "out"]
    assert main(["slots", "objects", "slot", *options]) == 0
    assert list(results("objects")["slot"]) == ["6", "7"]
    assert Path("out/objects.png").is_file()


@pytest.mark.parametrize("kind", [SlotSetPredictor, SlotAutoEncoder])
def test_attention(kind: type, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    kind(**SMALL).save_pretrained("model")
    assert main(["slots", "attention", "model", "--images", "4", "--draws", "2", "--output", "out"]) == 0
    found = results("attention")["model"]
    assert found["ari"] == pytest.approx(sum(found["draws"]) / 2)
    assert -100 < found["ari"] < 100
    assert Path("out/attention-model.png").is_file()
    again = capsys.readouterr().out
    assert main(["slots", "attention", "model", "--images", "4", "--draws", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == again.splitlines()[:3]  # repeats
    assert main(["slots", "attention", "model", "--images", "4", "--draws", "2", "--most", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[2] != again.splitlines()[2]


def test_scenes_repeat_and_have_as_many_objects_as_asked() -> None:
    first, second, other = (held_out_scenes((32, 32), "clevr_scenes", 5, seed) for seed in (0, 0, 1))
    assert torch.equal(first.images, second.images)
    assert not torch.equal(first.images, other.images)
    exact = held_out_scenes((32, 32), "clevr_scenes", 5, exactly=4)
    assert exact.targets.shape == (5, 4, 19)
    assert (exact.targets[..., 18] == 1).all()
    few = held_out_scenes((32, 32), "clevr_scenes", 20, most=4)
    assert set(few.targets[..., 18].sum(1).tolist()) == {3, 4}


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="needs the sample of CLEVR beside the checkout")
def test_a_folder_of_clevr_and_its_layouts(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, drawn = (held_out_scenes((32, 32), str(SAMPLE), 3, split="train", redraw=redraw) for redraw in (False, True))
    assert len(read.images) == len(drawn.images) == 3
    assert read.masks is None
    assert drawn.masks is not None
    assert torch.equal(read.targets, drawn.targets)
    assert held_out_scenes((32, 32), str(SAMPLE), 9, split="train", most=4).targets[..., 18].sum(1).max() <= 4
    with pytest.raises(ValueError, match="no scene with 1 to 2 objects in its train split"):
        held_out_scenes((32, 32), str(SAMPLE), 9, split="train", most=2)
    assert (read.images - drawn.images).abs().mean() < 0.1  # the same scenes
    assert main(["slots", "attention", "slot", "--data", str(SAMPLE), "--split", "train"]) == 1
    assert "no masks; add --redraw" in capsys.readouterr().err
    assert main(["slots", "ap", "slot", "--data", str(SAMPLE), "--split", "train", "--redraw", "--images", "2"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ap", "vae"], "vae is a BetaVAE, but `unknot slots ap` needs a SetPredictor"),
        (["attention", "mlp"], "mlp: this SlotMLPSetPredictor has no attention"),
        (["objects", "mlp", "--images", "2"], "always 10 slots"),
        (["ap", "mlp", "--images", "0"], "--images and --draws must be positive"),
        (["ap", "mlp", "--data", "nowhere"], "nowhere"),
        (["ap", "./missing"], "missing"),
    ],
)
def test_bad_input(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    BetaVAE(image_shape=(1, 32, 32)).save_pretrained("vae")
    SlotMLPSetPredictor(**SMALL, hidden_dim=16).save_pretrained("mlp")
    assert main(["slots", *words, "--output", "out"]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert not list(Path("out").glob("*.json"))
