"""A configuration is data: whatever it names, it runs nobody's code."""

import sys
from pathlib import Path

import pytest
import torch
import yaml

from unknot.cli import main
from unknot.training import configs
from unknot.training.run_folder import NEEDED

QUICK = [
    *("--data.batch_size", "2", "--data.num_val_batches", "1", "--trainer.accelerator", "cpu"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false", "--trainer.max_steps", "1"),
]
MARK = "from pathlib import Path\nPath('mark').touch()\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("marked", "mine", "evil"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def settings() -> dict:
    return configs.load("beta_vae_dsprites")


def lambda_callback(tmp_path: Path) -> dict:
    system = f"__import__('os').system('touch {tmp_path}/mark')"
    function = {"class_path": "sympy.Lambda", "init_args": {"signature": "x", "expr": system}}
    return {"class_path": "pytorch_lightning.callbacks.LambdaCallback", "init_args": {"on_fit_start": function}}


EVIL = {
    "callback": lambda tmp: {"trainer": {"callbacks": [lambda_callback(tmp)]}},
    "short name": lambda tmp: {"trainer": {"callbacks": [lambda_callback(tmp) | {"class_path": "LambdaCallback"}]}},
    "own callback": lambda tmp: {"trainer": {"callbacks": [{"class_path": "marked.Callback"}]}},
    "model": lambda tmp: {"model": {"class_path": "marked.VAE"}},
    "model as a string": lambda tmp: {"model": "marked.VAE"},
    "data": lambda tmp: {"data": {"class_path": "marked.Data"}},
    "data set": lambda tmp: {"data": {"init_args": {"dataset": "marked.DSprites"}}},
    "profiler": lambda tmp: {"trainer": {"profiler": {"class_path": "marked.Profiler"}}},
    "another file": lambda tmp: {"trainer": {"callbacks": "callbacks.yaml"}},
    "through ours": lambda tmp: {"trainer": {"callbacks": [{"class_path": "unknot.zoo.base.torch.hub.load"}]}},
}


@pytest.mark.parametrize("kind", EVIL)
@pytest.mark.parametrize("resume", [False, True], ids=["config", "resume"])
def test_a_configuration_runs_no_code(
    kind: str, resume: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("marked.py").write_text(MARK)
    Path("callbacks.yaml").write_text(yaml.safe_dump([lambda_callback(tmp_path)]))
    changed = settings()
    for section, values in EVIL[kind](tmp_path).items():
        if isinstance(values, dict) and isinstance(changed.get(section), dict):
            changed[section] = {**changed[section], **values}
        else:
            changed[section] = values
    run = Path("theirs/version_0")
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text(yaml.safe_dump(changed))
    words = ["--config", str(run / "config.yaml")]
    if resume:
        torch.save(dict.fromkeys(NEEDED, 0), run / "checkpoints/last.ckpt")
        words = ["--resume", str(run)]
    assert main(["fit", *words, *QUICK]) == 1
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    assert "theirs/version_0/config.yaml" in err
    assert not Path("mark").exists()
    assert not Path("runs").exists()


def test_a_refused_class_is_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.yaml").write_text(yaml.safe_dump(settings() | {"model": {"class_path": "mine.MyVAE"}}))
    assert main(["fit", "--config", "own.yaml", *QUICK]) == 1
    err = capsys.readouterr().err
    assert "own.yaml: it names mine.MyVAE" in err
    assert "--import mine" in err


OWN = """
from unknot.zoo import BetaVAE

class MyVAE(BetaVAE):
    pass
"""


@pytest.mark.parametrize("words", [["--import", "mine"], ["--import=mine"], ["--import", "./mine.py"]])
def test_modules_that_the_command_line_names_may_be_used(words: list[str]) -> None:
    Path("mine.py").write_text(OWN)
    Path("own.yaml").write_text(yaml.safe_dump(settings() | {"model": {"class_path": "mine.MyVAE"}}))
    assert main(["fit", *words, "--config", "own.yaml", *QUICK]) == 0
    assert Path("runs/own/version_0/model/config.json").is_file()


def test_classes_that_the_command_line_names_may_be_used() -> None:
    Path("mine.py").write_text(OWN)
    assert main(["fit", "--config", "beta_vae_dsprites", "--model=mine.MyVAE", *QUICK]) == 0


def test_an_import_that_fails_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--import", "nowhere_to_be_found", "--config", "beta_vae_dsprites"]) == 1
    assert "--import nowhere_to_be_found: no such module" in capsys.readouterr().err
    assert main(["evaluate", "--import"]) == 1
    assert "--import needs the name of a module" in capsys.readouterr().err


def test_a_checkpoint_chooses_no_class(tmp_path: Path) -> None:
    """LightningCLI would take the model's class from a checkpoint's hyper-parameters."""
    Path("marked.py").write_text(MARK)
    assert main(["fit", "--config", "beta_vae_dsprites", *QUICK]) == 0
    last = Path("runs/beta_vae_dsprites/version_0/checkpoints/last.ckpt")
    content = torch.load(last, weights_only=True)
    content["hyper_parameters"] = {"_class_path": "marked.VAE", "beta": 3.0}
    torch.save(content, "theirs.ckpt")
    more = [*QUICK[:-1], "2"]
    assert main(["fit", "--config", "beta_vae_dsprites", "--ckpt_path", "theirs.ckpt", *more]) == 0
    assert not Path("mark").exists()


def test_the_parser_is_left_as_it_was() -> None:
    from jsonargparse import ArgumentParser

    main(["fit", "--config", "beta_vae_dsprites", "--model.betta", "3"])
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--path", type=Path | None)
    parser.add_subclass_arguments(torch.utils.data.Dataset, "dataset")
    assert parser.parse_args(["--dataset", "torchvision.datasets.FakeData"]).dataset.class_path
