"""Configurations as differences: what they come to, and what is said about bad ones."""

from pathlib import Path

import pytest
import yaml

from unknot.training import configs


def test_every_bundled_configuration_is_whole() -> None:
    for name in configs.names():
        content = configs.load(name)
        if "data" not in content:  # for images of the user's own
            assert content == {key: part for key, part in configs.load(f"{name}_dsprites").items() if key != "data"}
            continue
        assert {"seed_everything", "model", "data", "trainer"} == content.keys() - {"lr_scheduler", "pretrained"}, name
        assert content["model"]["class_path"].startswith("unknot.zoo.")
        assert content["data"]["init_args"]["batch_size"] in (16, 32, 64, 512)


def test_settings_of_the_studies() -> None:
    steps = {name: configs.load(name)["trainer"]["max_steps"] for name in configs.names() if name.endswith("dsprites")}
    halved = {"factor_vae_dsprites", "s2_factor_vae_dsprites"}  # its code counted two steps for an update
    assert {name for name, count in steps.items() if count == 150_000} == halved
    assert {count for name, count in steps.items() if name not in halved} == {300_000}
    for name in ("ml_vae_dsprites", "ada_ml_vae_dsprites"):
        assert configs.load(name)["model"]["init_args"]["average"] == "harmonic"
    for name in configs.names():
        arguments = configs.load(name)["model"].get("init_args", {})
        assert arguments.get("supervised_reduction", "sum") == "sum"
    assert configs.load("gvae_dsprites")["data"]["init_args"] == {
        **{"dataset": "unknot.datamodules.DSprites", "batch_size": 64, "k": 1, "group_label": True},
    }


def test_a_file_of_ones_own_changes_a_bundled_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: beta_vae_dsprites\nmodel: {init_args: {beta: 8, lr: 5e-4}}\n")
    (tmp_path / "more.yaml").write_text("base: mine.yaml\ntrainer: {max_steps: 10}\n")
    content = configs.load(tmp_path / "more.yaml")
    assert content["model"] == {"class_path": "unknot.zoo.BetaVAE", "init_args": {"beta": 8, "lr": 5e-4}}
    assert content["trainer"] == {"max_steps": 10, "val_check_interval": 5000}


def test_another_class_takes_its_own_arguments(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: beta_vae_dsprites\nmodel: {class_path: unknot.zoo.DIPVAEI}\n")
    assert configs.load(tmp_path / "mine.yaml")["model"] == {"class_path": "unknot.zoo.DIPVAEI"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: loop.yaml", "leads back"),
        ("base: beta_vae_dsprite", "Did you mean 'beta_vae_dsprites'"),
        ("base: [a, b]", "must be the name"),
        ("- 1", "expected settings"),
        ("a: [", "not a YAML file"),
        ("a: " + "x" * (1 << 20), "bytes"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        configs.load(tmp_path / "loop.yaml")


def test_what_was_loaded_can_be_written(tmp_path: Path) -> None:
    for name in configs.names():
        assert yaml.safe_load(yaml.safe_dump(configs.load(name))) == configs.load(name)
