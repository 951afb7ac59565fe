import inspect
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import unknot.datamodules
import unknot.zoo
from unknot.datamodules import FactorSpace, GroundTruthDataset
from unknot.studies import Study
from unknot.training import configs
from unknot.zoo.pretrained import arguments_of

STUDIES = ["semi_supervised", "unsupervised", "unsupervised_selection", "weakly_supervised"]
SMALL = [
    *("after2020", "capacity32", "correlated32", "dsprites32", "known32", "labels32", "long32", "means32"),
    *("reasoning32", "rooms32", "s2_32", "shift32", "sparse32", "splits32", "groups32", "unsupervised32", "weak32"),
    *("zoo32", "zoo64", "zoo_after32"),
]
TABLE = {  # of the thesis, "Model's hyperparameters"
    "BetaVAE": ("beta", [1, 2, 4, 6, 8, 16]),
    "AnnealedVAE": ("c_max", [5, 10, 25, 50, 75, 100]),
    "FactorVAE": ("gamma", [10, 20, 30, 40, 50, 100]),
    "DIPVAEI": ("lambda_od", [1, 2, 5, 10, 20, 50]),
    "DIPVAEII": ("lambda_od", [1, 2, 5, 10, 20, 50]),
    "BetaTCVAE": ("beta", [1, 2, 4, 6, 8, 10]),
}


class Blank(GroundTruthDataset):
    name = "blank"
    factor_space = FactorSpace(tuple("abcdefg"), (3, 4, 5, 2, 2, 2, 2))
    image_shape = (1, 64, 64)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.zeros(len(factors), *self.image_shape)


def read(config: str) -> dict[str, Any]:
    return configs.load(config)


def class_of(part: dict[str, Any]) -> type[Any]:
    package, _, name = part["class_path"].rpartition(".")
    return getattr({"unknot.zoo": unknot.zoo, "unknot.datamodules": unknot.datamodules}[package], name)


def model_of(config: str) -> str:
    return class_of(read(config)["model"]).__name__


def data_options(study: dict[str, Any], entry: dict[str, Any]) -> dict[str, list[Any]]:
    return study.get("data", {}) | entry.get("data", {})


def runs(study: dict[str, Any], entry: dict[str, Any]) -> int:
    """Return how many runs an entry of a sweep takes: all values of all options, on all data sets, with all seeds."""
    options = entry["options"] | data_options(study, entry)
    return study["seeds"] * sum(
        math.prod(len(values[dataset] if isinstance(values, dict) else values) for values in options.values())
        for dataset in study["datasets"]
    )


ENTRIES = [(study, number) for study in STUDIES for number, _ in enumerate(configs.sweep(study)["sweeps"])]


def comment(study: str) -> str:
    """The comment at the head of a sweep, in one line."""
    lines = (configs.FOLDER / "sweeps" / f"{study}.yaml").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in itertools.takewhile(lambda x: x.startswith("#"), lines))


def test_the_studies_are_bundled() -> None:
    assert configs.sweep_names() == sorted(STUDIES + SMALL)


@pytest.mark.parametrize("study", STUDIES)
def test_sweeps_are_readable(study: str) -> None:
    sweep = configs.sweep(study)
    assert {"description", "datasets", "seeds", "sweeps", "scores"} <= sweep.keys()
    assert sweep["seeds"] >= 1
    assert len(set(sweep["datasets"])) == len(sweep["datasets"]) > 1
    assert "dsprites" in sweep["datasets"]
    for entry in sweep["sweeps"]:
        assert {"config", "options"} <= entry.keys() <= {"config", "options", "data"}
    assert len({entry["config"] for entry in sweep["sweeps"]}) == len(sweep["sweeps"])


@pytest.mark.parametrize(("study", "number"), ENTRIES)
def test_every_option_and_value_is_accepted(study: str, number: int) -> None:
    sweep = configs.sweep(study)
    entry = sweep["sweeps"][number]
    assert entry["config"] in configs.names()
    config = read(entry["config"])
    model, data = class_of(config["model"]), class_of(config["data"])
    assert model in unknot.zoo.MODELS.values()
    data_arguments = config["data"]["init_args"] | {"dataset": Blank()}
    options = entry["options"] | data_options(sweep, entry)
    assert options
    for option, of in options.items():
        values = sorted({value for part in of.values() for value in part}, key=str) if isinstance(of, dict) else of
        assert len({*values}) == len(values) > 0
        part, _, name = option.partition(".")
        if part == "model":
            assert name in arguments_of(model)
            for value in values:
                with torch.device("meta"):
                    built = model(**config["model"].get("init_args", {}) | {name: value})
                assert built.hparams[name] == value
        elif part == "data":
            assert name in inspect.signature(data).parameters
            for value in values:
                assert getattr(data(**data_arguments | {name: value}), name) == value
        else:
            assert option in config  # such as seed_everything
            assert all(isinstance(value, type(config[option])) for value in values)


def test_the_unsupervised_sweep_is_the_table_of_the_thesis() -> None:
    sweep = configs.sweep("unsupervised")
    found = {model_of(entry["config"]): entry["options"] for entry in sweep["sweeps"]}
    assert found == {model: {f"model.{option}": values} for model, (option, values) in TABLE.items()}


def test_what_the_table_keeps_fixed() -> None:
    annealed = read("annealed_vae_dsprites")["model"]["init_args"]
    assert (annealed["gamma"], annealed["iteration_threshold"]) == (1000, 100_000)
    for config, ratio in (("dip_vae_i_dsprites", 10), ("dip_vae_ii_dsprites", 1)):
        part = read(config)["model"]
        for strength in TABLE["DIPVAEI"][1]:
            with torch.device("meta"):
                model = class_of(part)(**part["init_args"] | {"lambda_od": strength})
            assert model.lambda_d == ratio * strength


def test_the_unsupervised_study_has_12600_runs() -> None:
    sweep = configs.sweep("unsupervised")
    models = [math.prod(map(len, entry["options"].values())) for entry in sweep["sweeps"]]
    assert models == [6] * 6  # 36
    assert (len(sweep["datasets"]), sweep["seeds"]) == (8, 50)
    assert sum(runs(sweep, entry) for entry in sweep["sweeps"]) == 14_400  # with MPI3D
    sweep["datasets"].remove("mpi3d_real")
    assert sum(runs(sweep, entry) for entry in sweep["sweeps"]) == 12_600
    assert "36 models and 50 seeds on each of seven data sets: 12,600 runs" in comment("unsupervised")


def test_the_semi_supervised_study_has_28800_runs_and_a_baseline() -> None:
    sweep = configs.sweep("semi_supervised")
    count = {model_of(entry["config"]): runs(sweep, entry) for entry in sweep["sweeps"]}
    baseline = count.pop("SupervisedVAE")
    assert count == dict.fromkeys(["S2BetaVAE", "S2BetaTCVAE", "S2FactorVAE", "S2DIPVAEI"], 40 * 5 * 36)
    assert sum(count.values()) == 28_800
    assert baseline == 240
    assert "28,800 runs" in comment("semi_supervised")


def test_the_settings_of_the_semi_supervised_study() -> None:
    sweep = configs.sweep("semi_supervised")
    data = sweep["data"]
    assert data["data.num_labels"] == [100, 1000]
    assert data["data.labelling"] == ["perfect", "binned", "noisy", "partial", "permuted"]
    assert len(data["data.label_seed"]) == 5
    assert len(sweep["datasets"]) * 2 * 5 == 40
    for entry in sweep["sweeps"]:
        model = model_of(entry["config"])
        if model == "SupervisedVAE":  # on perfect labels alone, with six seeds
            assert data_options(sweep, entry) == data | {"data.labelling": ["perfect"]}
            assert len(entry["options"]["seed_everything"]) == 6
        else:
            option, values = TABLE[model.removeprefix("S2")]
            assert entry["options"].keys() == {f"model.{option}", "model.gamma_sup"}
            assert entry["options"][f"model.{option}"] == values
            assert len(entry["options"]["model.gamma_sup"]) == 6
            assert "data" not in entry


def test_the_weakly_supervised_study_has_four_methods_six_strengths_and_ten_seeds() -> None:
    sweep = configs.sweep("weakly_supervised")
    strengths = {model_of(entry["config"]): entry["options"] for entry in sweep["sweeps"]}
    beta = {"model.beta": TABLE["BetaVAE"][1]}
    assert strengths == {"GVAE": beta, "MLVAE": beta, "AdaGVAE": beta, "AdaMLVAE": beta}
    assert sweep["seeds"] == 10
    assert len(sweep["datasets"]) == 5
    for dataset, values in sweep["data"]["data.k"].items():
        most = unknot.datamodules.DATASETS[dataset]().factor_space.num_factors - 1
        assert values == [*range(1, most + 1), "rnd"]
    assert sum(runs(sweep, entry) for entry in sweep["sweeps"]) == 6_000  # as the thesis counts
    assert "four methods, six regularisation strengths and ten seeds" in comment("weakly_supervised")
    for entry in sweep["sweeps"]:
        reply = read(entry["config"])["data"]["init_args"].get("group_label", False)
        assert reply == (model_of(entry["config"]) in ("GVAE", "MLVAE"))


@pytest.mark.parametrize("name", ["unsupervized", "", "unsupervised.yaml", "../beta_vae_dsprites", "beta_vae_dsprites"])
def test_an_unknown_sweep_is_refused(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="no bundled sweep of that name") as refused:
        configs.sweep(name)
    message = str(refused.value)
    assert message.startswith(f"{name}: ")
    assert all(study in message for study in STUDIES)
    assert "\n" not in message


def test_sweeps_are_no_configurations() -> None:
    assert not set(configs.sweep_names()) & set(configs.names())
    with pytest.raises(FileNotFoundError, match="no bundled configuration"):
        configs.find("unsupervised")


def test_a_sweep_that_was_changed_stays_whole() -> None:
    configs.sweep("unsupervised")["sweeps"].clear()
    assert len(configs.sweep("unsupervised")["sweeps"]) == 6


def test_the_models_to_load_are_of_every_class_and_end_at_the_strengths_that_they_state() -> None:
    jobs = Study.from_file("zoo32").jobs()
    models = {name for name, cls in unknot.zoo.MODELS.items() if issubclass(cls, unknot.zoo.VAE)}
    models -= {"HFSVAE", "SlowVAE"}  # in zoo_after32
    assert {job.settings["method"] for job in jobs if job.settings["dataset"] == "dsprites"} == models
    annealed = 0
    for job in jobs:
        for callback in job.config["trainer"].get("callbacks", []):
            schedule = unknot.zoo.Anneal(**callback["init_args"])
            assert job.config["model"]["init_args"][schedule.attribute] == schedule.end
            assert schedule.steps == job.steps // 2
            annealed += 1
        assert job.config["lr_scheduler"]["init_args"]["total_steps"] == job.steps
    assert annealed == 18
