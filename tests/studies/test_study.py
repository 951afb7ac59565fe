from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unknot.datamodules import DATASETS
from unknot.studies import Study
from unknot.studies.jobs.scoring import add_scores
from unknot.studies.plan import JobFolder
from unknot.studies.protocols import read_protocols
from unknot.studies.study import name_of
from unknot.training.settings import as_config, build
from unknot.zoo import BetaVAE

Make = Callable[..., Study]


@pytest.fixture
def dsprites(tiny: Callable[..., dict[str, Any]]) -> Make:
    return lambda **changes: Study("mine", tiny() | {"datasets": ["dsprites"]} | changes)


def test_the_names_of_jobs_are_of_what_determines_their_weights(dsprites: Make) -> None:
    jobs = dsprites().jobs()
    assert len({job.name for job in jobs}) == len(jobs) == 6
    assert [job.name for job in jobs] == [job.name for job in dsprites().jobs()]
    # scores, machine and logging are no part of it
    training = dsprites().content["training"]
    assert {job.name for job in dsprites(scores=["dci"]).jobs()} == {job.name for job in jobs}
    elsewhere = training | {"trainer.accelerator": "gpu", "trainer.val_check_interval": 7, "data.num_workers": 2}
    assert {job.name for job in dsprites(training=elsewhere).jobs()} == {job.name for job in jobs}
    for changed in (
        {"training": training | {"model.lr": 1e-4}},
        {"training": training | {"trainer.max_steps": 13}},
        {"training": training | {"trainer.gradient_clip_val": 1.0}},
        {"seeds": [7, 8]},
        {"image_size": 32},
        {"datasets": ["color_dsprites"]},
    ):
        assert not {job.name for job in dsprites(**changed).jobs()} & {job.name for job in jobs}, changed


def test_more_seeds_keep_the_jobs_that_there_are(dsprites: Make) -> None:
    few, many = dsprites(seeds=2).jobs(), dsprites(seeds=4).jobs()
    assert many[: len(few)] == few
    assert Counter(job.settings["seed"] for job in many) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert [job.settings["seed"] for job in many] == sorted(job.settings["seed"] for job in many)


def test_a_job_is_what_its_study_says(dsprites: Make) -> None:
    job = dsprites(image_size=32).jobs()[1]
    assert job.settings == {
        **{"dataset": "dsprites", "method": "BetaVAE", "config": "beta_vae_dsprites", "seed": 0},
        **{"model.beta": 4, "strength": 4},
    }
    assert job.config["model"]["init_args"] == {"beta": 4, "image_shape": [1, 32, 32], "lr": 1e-3}
    assert job.config["data"]["init_args"]["dataset"]["init_args"]["size"] == 32
    assert (job.config["seed_everything"], job.steps) == (0, 12)


def test_values_may_differ_by_data_set(dsprites: Make) -> None:
    sweeps = [{"config": "ada_gvae_dsprites", "options": {"model.beta": [1]}}]
    ks = {"data.k": {"dsprites": [1, "rnd"], "cars3d": [2]}}
    jobs = dsprites(datasets=["dsprites", "cars3d"], sweeps=sweeps, data=ks, seeds=1).jobs()
    found = [(job.settings["dataset"], job.settings["data.k"]) for job in jobs]
    assert found == [("dsprites", 1), ("dsprites", "rnd"), ("cars3d", 2)]
    assert jobs[2].config["model"]["init_args"]["image_shape"] == [3, 64, 64]


def test_numbers_without_a_point_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "datasets: [dsprites]\ntraining: {model.lr: 5e-4}\nsweeps: [{config: beta_vae_dsprites}]\n", encoding="utf-8"
    )
    (job,) = Study.from_file(path).jobs()
    assert job.config["model"]["init_args"]["lr"] == 5e-4


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_data_set_survives_its_description(name: str) -> None:
    original = DATASETS[name]()
    again = build(as_config(original))
    assert type(again) is type(original)
    assert (again.name, again.factor_space, again.image_shape) == (
        original.name,
        original.factor_space,
        original.image_shape,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": ["dsprites"]}, "unknown key `dataset`. Did you mean 'datasets'?"),
        ({"datasets": []}, "`datasets` must be a list with at least one entry"),
        ({"datasets": [3]}, "or has a `class_path`, got 3"),
        ({"datasets": ["dsprite"]}, "Unknown data set 'dsprite'. Did you mean 'dsprites'?"),
        ({"seeds": 0}, "`seeds` must be a number of seeds or a list, got 0"),
        ({"seeds": [-1]}, "`seeds` must be a number of seeds or a list, got [-1]"),
        (
            {"sweeps": [{"config": "beta_vae_dsprites", "seeds": 0}]},
            "Study mine, sweep 1: `seeds` must be a number of seeds",
        ),
        ({"sweeps": [{"config": "beta_vae_dsprites", "datasets": []}]}, "sweep 1: `datasets` must be a list"),
        ({"sweeps": [{"config": "beta_vae_dsprites", "options": ["model.beta"]}]}, "`options` must name options"),
        ({"sweeps": [{"config": "beta_vae_dsprites", "option": {}}]}, "unknown key `option`. Did you mean 'options'?"),
        ({"sweeps": [{"config": "beta_vae_dsprite"}]}, "no bundled configuration. Did you mean 'beta_vae_dsprites'?"),
        (
            {"sweeps": [{"config": "beta_vae_dsprites", "options": {"model.betta": [1]}}]},
            "BetaVAE has no option model.betta. Did you mean 'beta'?",
        ),
        ({"training": {"trainer.max_step": 3}}, "Trainer has no option trainer.max_step. Did you mean 'max_steps'?"),
        ({"training": {"optimiser.lr": 3}}, "no option optimiser.lr"),
        ({"training": None}, "`training` must name options, as in `model.beta`, got None"),
        ({"training": {"trainer.max_steps": -1}}, "must be a whole number of at least 1, got -1"),
        ({"data": {"data.kk": [1]}}, "FactorDataModule has no option data.kk"),
        (
            {"sweeps": [{"config": "beta_vae_dsprites", "options": {"model.beta": 4}}]},
            "`model.beta` must list its values",
        ),
        (
            {"sweeps": [{"config": "beta_vae_dsprites", "options": {"model.beta": {"cars3d": [4]}}}]},
            "`model.beta` lists no values for the data set dsprites",
        ),
        ({"sweeps": [{"config": "beta_vae_dsprites"}] * 2}, "two jobs are the same training"),
        ({"scores": ["migg"]}, "Unknown score 'migg'. Did you mean 'mig'?"),
        ({"scores": [{"metrics": ["mig"], "num_trains": 3}]}, "unknown key `num_trains`. Did you mean 'num_train'?"),
        ({"scores": [{"metrics": ["mig"]}, {"metrics": ["dci"]}]}, "two entries have the label ''"),
        ({"scores": [{"metrics": ["mig"], "num_train": 0}]}, "`num_train` must be a whole number of at least 1"),
        ({"scores": [{"metrics": ["mig"], "seed": "x"}]}, "`seed` must be a whole number of at least 0, got 'x'"),
        ({"scores": [{"metrics": [3]}]}, "expected an entry with a list of `metrics`"),
        ({"scores": [{"metrics": ["mig"], "labels": {"labelling": ["noise"]}}]}, "kind 'noise'. Did you mean 'noisy'?"),
        ({"scores": [{"metrics": ["mig"], "labels": {"num_labels": ["x"]}}]}, "`num_labels` must be a whole number"),
        ({"scores": [{"metrics": ["irs"], "labels": {"num_labels": [9]}}]}, "'irs' is not a score on labels"),
    ],
)
def test_what_is_wrong_with_a_study_is_said_before_it_runs(
    dsprites: Make, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, FileNotFoundError)) as refused:
        dsprites(**changes).jobs()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_study(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for text in ("a: [", "- 3", "", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(ValueError, match="mine"):
            Study.from_file(path)
    with pytest.raises(FileNotFoundError, match="Did you mean 'dsprites32'"):
        Study.from_file("dsprites_32")


def test_numbers_that_are_the_same_give_the_same_name(dsprites: Make) -> None:
    config = dsprites().jobs()[0].config
    assert name_of(config) == name_of(config | {"seed_everything": 0.0}) != name_of(config | {"seed_everything": 2})


def test_labels_make_one_protocol_for_each_set_of_them() -> None:
    labels = {"num_labels": [100, 1000], "labelling": ["perfect", "noisy"], "label_seed": [0, 1, 2]}
    protocols = read_protocols(["mig", {"metrics": ["mig", "dci"], "labels": labels}])
    assert [protocol.column("mig") for protocol in protocols[:3]] == ["mig", "mig@100-perfect-0", "mig@100-perfect-1"]
    assert len(protocols) == 1 + 12
    assert protocols[-1].draws == {"labels": {"num_labels": 1000, "labelling": "noisy", "label_seed": 2}}


@pytest.mark.parametrize("name", ["unsupervised", "semi_supervised", "weakly_supervised", "unsupervised_selection"])
def test_the_studies_of_the_thesis_expand(name: str) -> None:
    expected = {
        "unsupervised": 14_400,
        "semi_supervised": 29_040,
        "weakly_supervised": 6_000,
        "unsupervised_selection": 576,
    }
    jobs = Study.from_file(name).jobs()
    assert len({job.name for job in jobs}) == len(jobs) == expected[name]


def test_a_study_written_and_read(dsprites: Make, write: Callable[..., Path], tmp_path: Path) -> None:
    assert Study.from_file(write(tmp_path / "mine.yaml", dsprites().content)).jobs() == dsprites().jobs()


@pytest.mark.parametrize(
    ("name", "count"), [("dsprites32", 72), ("rooms32", 72), ("weak32", 96), ("s2_32", 130), ("shift32", 24)]
)
def test_the_small_studies_stand_for_the_large_ones(name: str, count: int) -> None:
    jobs = Study.from_file(name).jobs()
    assert len(jobs) == count
    for job in jobs:
        model = job.config["model"]["init_args"]
        assert model["image_shape"][1:] == [32, 32]
        assert model["reconstruction_weight"] == 4.0  # a quarter of the pixels
        assert job.config["lr_scheduler"]["init_args"]["total_steps"] == job.steps
        if job.settings["method"] == "AnnealedVAE":
            assert model["iteration_threshold"] == round(job.steps / 3)


def test_the_table_of_small_s2_says_all_that_its_analysis_asks_for() -> None:
    labels = {"data.num_labels", "data.labelling", "data.label_seed"}
    assert all(labels <= job.settings.keys() for job in Study.from_file("s2_32").jobs())


HELD_OUT = {
    "name": "held out",
    "class_path": "unknot.datamodules.HeldOut",
    "init_args": {"dataset": {"class_path": "unknot.datamodules.DSprites"}, "ranges": {"shape": [1, 1]}},
}


def test_data_sets_may_have_names_and_scores_another_law(dsprites: Make) -> None:
    study = dsprites(
        datasets=["dsprites", HELD_OUT], scores=["mig", {"metrics": ["mig"], "law": "held_out", "label": "new"}]
    )
    assert Counter(job.settings["dataset"] for job in study.jobs()) == {"dsprites": 6, "held out": 6}
    own, other = study.protocols
    assert "law" not in own.draws  # scores that were recorded without it stay valid
    assert other.draws == own.draws | {"law": "held_out"}
    with pytest.raises(ValueError, match="`law` must be one of training, independent, held_out"):
        read_protocols([{"metrics": ["mig"], "law": "shifted"}])
    with pytest.raises(ValueError, match="two data sets are called 'held out'"):
        dsprites(datasets=[HELD_OUT, HELD_OUT])


def test_scores_are_drawn_from_the_law_of_their_protocol(tmp_path: Path) -> None:
    model = BetaVAE(image_shape=(1, 32, 32), encoder="MLPEncoder", decoder="MLPDecoder")
    run = JobFolder(tmp_path, "0123456789abcdef")
    model.save_pretrained(run.model)
    dataset = {
        "class_path": "unknot.datamodules.Resized",
        "init_args": {"dataset": HELD_OUT, "size": 32, "cached": False},
    }
    dataset["init_args"]["dataset"] = {key: value for key, value in HELD_OUT.items() if key != "name"}
    config = {"model": {"class_path": "unknot.zoo.BetaVAE"}, "data": {"init_args": {"dataset": dataset}}}
    laws = ("training", "independent", "held_out")
    protocols = read_protocols(
        [{"metrics": ["mig"], "num_train": 64, "num_test": 8, "law": law, "label": law} for law in laws]
    )
    add_scores(run, config, protocols)
    words = [run.scores(protocol.draws).protocol.get("distribution") for protocol in protocols]
    assert words == ["held out: shape in [1, 1]", None, "not in: held out: shape in [1, 1]"]
