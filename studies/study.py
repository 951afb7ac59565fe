"""Study file: configurations, values of their options, data sets, seeds and scores."""

import hashlib
import inspect
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unknot.arguments import did_you_mean
from unknot.metrics.registry import default_scores
from unknot.studies.own_images import check_entry, check_scores, located, name_of_images, use_images
from unknot.studies.protocols import Protocol, check_metrics, read_protocols
from unknot.training import configs
from unknot.training.settings import put

KEYS = {"description", "datasets", "image_size", "seeds", "training", "data", "sweeps", "scores"}
SWEEP_KEYS = {"config", "options", "datasets", "seeds", "training", "data"}
BOOKKEEPING = {
    *("accelerator", "devices", "num_nodes", "logger", "default_root_dir", "enable_checkpointing", "profiler"),
    *("enable_progress_bar", "enable_model_summary", "log_every_n_steps", "num_sanity_val_steps", "val_check_interval"),
    *("check_val_every_n_epoch",),
}
"""Options of the Trainer that do not affect weights."""
PARTS = ("model", "data", "trainer", "optimizer", "lr_scheduler")
METHODS = {
    "BetaVAE": "β-VAE",
    "FactorVAE": "FactorVAE",
    "BetaTCVAE": "β-TCVAE",
    "DIPVAEI": "DIP-VAE-I",
    "DIPVAEII": "DIP-VAE-II",
    "AnnealedVAE": "AnnealedVAE",
    "AdaMLVAE": "Ada-ML-VAE",
    "AdaGVAE": "Ada-GVAE",
    "MLVAE": "ML-VAE",
    "GVAE": "GVAE",
    "S2BetaVAE": "S²-β-VAE",
    "S2FactorVAE": "S²-FactorVAE",
    "S2BetaTCVAE": "S²-β-TCVAE",
    "S2DIPVAEI": "S²-DIP-VAE-I",
    "SupervisedVAE": "supervised",
    "HFSVAE": "HFS",
    "SlowVAE": "SlowVAE",
    "QLAE": "QLAE",
    "Tripod": "Tripod",
}
"""Names of methods, in the order of the figures."""


@dataclass(frozen=True)
class Job:
    """One training run of a study and its scores.

    Args:
        name: hash of all settings that determine the weights.
        settings: options that differ within its study, as columns of the table.
        config: the configuration for LightningCLI.
    """

    name: str
    settings: dict[str, Any]
    config: dict[str, Any]

    @property
    def steps(self) -> int:
        """Number of training steps."""
        return int(self.config.get("trainer", {}).get("max_steps", 0))


@dataclass(frozen=True)
class Study:
    """Study: the models to train, their data sets and seeds, and their scores.

    >>> study = Study.from_file("unsupervised_selection")
    >>> jobs = study.jobs()
    >>> len(jobs), jobs[0].settings["model.beta"], jobs[0].settings["seed"]
    (576, 1, 0)
    """

    name: str
    content: dict[str, Any] = field(repr=False)
    folder: Path = Path()
    """Folder to which relative paths in the study refer first."""
    imported: tuple[str, ...] = ()
    """Modules whose classes it may name, besides unknot's own."""

    @classmethod
    def from_file(cls, path_or_name: str | Path, imported: Iterable[str] = ()) -> "Study":
        """Read a study from a YAML file, or a bundled one by its name.

        Args:
            path_or_name: path or name of the study.
            imported: modules whose classes it may name, in addition to unknot's; a file itself cannot import code.
        """
        path = find(path_or_name)
        return cls(path.stem, configs.read(path), path.resolve().parent, tuple(imported))

    def __post_init__(self) -> None:
        self._check()

    @property
    def description(self) -> str:
        """Description of the study in a sentence."""
        return " ".join(str(self.content.get("description", "")).split())

    @property
    def protocols(self) -> list[Protocol]:
        """Protocols of the scores of every model."""
        return read_protocols(self.content.get("scores", default_scores()))

    def jobs(self) -> list[Job]:
        """Return all jobs, ordered by seed and label draw, so that a partial study is already useful."""
        check_metrics(self.protocols)
        rows = [row for sweep in self.content["sweeps"] for row in self._expand(sweep)]
        rows.sort(key=lambda row: row[0])  # stable: within a seed and a draw, the order of the file is kept
        jobs: dict[str, Job] = {}
        for _, settings, config in rows:
            job = Job(name_of(config), settings, located(config, self.folder))
            steps = config.get("trainer", {}).get("max_steps")
            if not isinstance(steps, int) or steps < 1:
                raise ValueError(
                    f"Study {self.name}, {settings['config']}: `trainer.max_steps`, after which a job ends, must be a "
                    f"whole number of at least 1, got {steps!r}."
                )
            if job.name in jobs:
                raise ValueError(
                    f"Study {self.name}: two jobs are the same training, {settings} and {jobs[job.name].settings}. "
                    "Remove one of them from the grids."
                )
            jobs[job.name] = job
        return list(jobs.values())

    def check(self) -> list[Job]:
        """Return the jobs, after building model, data and Trainer for every new value of an option.

        A reason that affects several jobs is reported once.
        """
        from unknot.training.fitting import check_settings

        jobs = self.jobs()
        seen: set[tuple[str, ...]] = set()
        reasons: dict[str, dict[str, Any]] = {}
        for job in jobs:
            settings = {name: repr(value) for name, value in job.settings.items() if name not in ("seed", "strength")}
            values = {(job.settings["config"], *pair) for pair in settings.items()}
            if values <= seen:
                continue
            seen |= values
            try:
                check_settings(job.config, self.imported)
            except Exception as error:  # a class may raise any error for its arguments
                reasons.setdefault(" ".join(str(error).split()) or type(error).__name__, job.settings)
        if reasons:
            lines = [f"{settings['config']} on {settings['dataset']}: {why}" for why, settings in reasons.items()]
            raise ValueError(f"Study {self.name}, {' '.join(lines)}")
        return jobs

    def _expand(self, sweep: dict[str, Any]) -> Iterator[tuple[tuple[int, Any], dict[str, Any], dict[str, Any]]]:
        """Yield index of the seed, settings and configuration of every job of a sweep."""
        options = dict(sweep.get("options", {}))
        seeds = _seeds(options.pop("seed_everything", None) or sweep.get("seeds", self.content.get("seeds", 1)))
        training = self.content.get("training", {}) | sweep.get("training", {})
        grid = options | self.content.get("data", {}) | sweep.get("data", {})
        base = self._configuration(sweep["config"])
        method = str(base["model"]["class_path"]).rpartition(".")[2]
        swept = next((option for option in options if option.startswith("model.")), None)
        for dataset in sweep.get("datasets", self.content["datasets"]):
            on_dataset, label = self._on(dataset, base, sweep["config"])
            self._check_options(sweep["config"], on_dataset, [*training, *grid])
            values = [_for_dataset(self.name, option, of, label) for option, of in grid.items()]
            for point in itertools.product(*values):
                chosen = dict(zip(grid, point, strict=True))
                for place, seed in enumerate(seeds):
                    config = deepcopy(on_dataset)
                    for option, value in {**training, **chosen}.items():
                        put(config, option, deepcopy(value))
                    config["seed_everything"] = seed
                    settings = {"dataset": label, "method": method, "config": sweep["config"], "seed": seed, **chosen}
                    if swept:
                        settings["strength"] = chosen[swept]
                    yield (place, chosen.get("data.label_seed", 0)), settings, config

    def _on(self, dataset: Any, base: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
        """Return a configuration with a data set, and the name of the data set in tables."""
        from unknot.training.settings import describe, find_class

        config, where = deepcopy(base), f"Study {self.name}, {name}"
        size = self.content.get("image_size")
        if isinstance(dataset, dict) and "images" in dataset:
            batch = getattr(find_class(base["model"]["class_path"], self.imported), "batch", "images")
            image_shape = use_images(config, dataset, batch, size, self.folder, where)
            check_scores(where, located(config, self.folder)["data"], self.protocols)
            label, _ = _labelled(dataset)
        elif not base.get("data"):
            raise ValueError(
                f"{where}: this configuration has no `data`, so it takes own images alone, as in `datasets: [{{images: "
                f"photos, labels: factors.csv}}]`. For {dataset!r:.40} choose one with `data`, such as "
                "beta_vae_dsprites."
            )
        else:
            label, described = _labelled(dataset)
            part, image_shape = describe(described, size, self.imported)
            put(config, "data.dataset", part)
        put(config, "model.image_shape", image_shape)
        return config, label

    def _check_options(self, config: str, base: Mapping[str, Any], options: Iterable[str]) -> None:
        """Raise an error for options that the classes of a configuration do not accept."""
        from pytorch_lightning import Trainer

        from unknot.training.settings import find_class
        from unknot.zoo.pretrained import arguments_of

        where = f"Study {self.name}, {config}"
        for option in options:
            part, _, rest = option.partition(".")
            if part not in PARTS:
                raise ValueError(f"{where}: there is no option {option}. {did_you_mean(part, PARTS)}")
            if part not in ("model", "data", "trainer"):
                continue
            cls = Trainer if part == "trainer" else find_class(base[part]["class_path"], self.imported)
            taken = list(inspect.signature(cls).parameters) if part == "trainer" else arguments_of(cls)
            name = rest.partition(".")[0]
            if name not in taken:
                raise ValueError(f"{where}: {cls.__name__} has no option {option}. {did_you_mean(name, taken)}")

    def _configuration(self, name: str) -> dict[str, Any]:
        beside = self.folder / name
        path = beside if beside.is_file() else configs.find(name)
        content = configs.load(path)
        if not content.get("model"):
            raise ValueError(f"{path}: a configuration needs a `model`, as those that `unknot fit` takes.")
        return content

    def _check(self) -> None:
        """Raise an error for an invalid file before anything is trained."""
        where = f"Study {self.name}"
        if not isinstance(self.content, dict):
            raise ValueError(f"{where}: expected keys such as datasets, seeds and sweeps, got {self.content!r:.80}.")
        _known(where, self.content, KEYS)
        for key in ("datasets", "sweeps"):
            _listed(where, self.content, key)
        _parts(where, self.content)
        for number, sweep in enumerate(self.content["sweeps"], 1):
            here = f"{where}, sweep {number}"
            if not isinstance(sweep, dict) or not isinstance(sweep.get("config"), str):
                raise ValueError(f"{here}: expected `config`, the name of a configuration or its file, and `options`.")
            _known(here, sweep, SWEEP_KEYS)
            _parts(here, sweep)
        _ = self.protocols


def find(path_or_name: str | Path) -> Path:
    """Return the file of a study: a path if it exists, else the bundled study of that name."""
    path = Path(path_or_name)
    if path.is_file():
        return path
    if str(path_or_name) in configs.sweep_names():
        return configs.FOLDER / "sweeps" / f"{path_or_name}.yaml"
    hint = did_you_mean(str(path_or_name), configs.sweep_names())
    raise FileNotFoundError(f"{path_or_name}: no such file and no bundled study. {hint}")


def name_of(config: Mapping[str, Any]) -> str:
    """Return a hash of what determines the weights, independent of the machine, of logging, and of number formats.

    >>> one = {"model": {"init_args": {"beta": 1}}, "seed_everything": 0, "trainer": {"max_steps": 10}}
    >>> same = {**one, "model": {"init_args": {"beta": 1.0}}, "trainer": {"max_steps": 10, "accelerator": "gpu"}}
    >>> name_of(one) == name_of(same) != name_of({**one, "seed_everything": 1})
    True
    """
    part = {key: deepcopy(value) for key, value in config.items() if key not in ("pictures", "checkpoint_every")}
    part["trainer"] = {key: value for key, value in part.get("trainer", {}).items() if key not in BOOKKEEPING}
    part.get("data", {}).get("init_args", {}).pop("num_workers", None)
    return hashlib.sha256(json.dumps(_plain(part), sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Return a canonical form: 1 for 1.0, a class path for a class without arguments."""
    if isinstance(value, dict):
        if value.keys() <= {"class_path", "init_args"} and not value.get("init_args"):
            return value.get("class_path")
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _for_dataset(study: str, option: str, values: Any, dataset: str) -> list[Any]:
    """Return the values of an option for a data set, from a list for all or one for each."""
    if isinstance(values, list):
        return values
    if not isinstance(values.get(dataset), list):
        raise ValueError(f"Study {study}: `{option}` lists no values for the data set {dataset}.")
    return list(values[dataset])


def _labelled(dataset: Any) -> tuple[str, Any]:
    """Return the name of a data set in the table, and its description without that name."""
    if isinstance(dataset, str):
        return dataset, dataset
    if "images" in dataset:
        return name_of_images(dataset), dataset
    described = {key: value for key, value in dataset.items() if key != "name"}
    return str(dataset.get("name", str(dataset["class_path"]).rpartition(".")[2])), described


def _seeds(seeds: Any, where: str = "") -> list[int]:
    whole = isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1
    listed = isinstance(seeds, list) and seeds and all(isinstance(seed, int) and seed >= 0 for seed in seeds)
    if not (whole or listed):
        raise ValueError(f"{where}: `seeds` must be a number of seeds or a list, got {seeds!r}.")
    return list(range(seeds)) if whole else list(seeds)


def _parts(where: str, content: Mapping[str, Any]) -> None:
    """Check the keys that a study and its sweeps have in common."""
    _seeds(content.get("seeds", 1), where)
    if "datasets" in content:
        _listed(where, content, "datasets")
        for dataset in content["datasets"]:
            if isinstance(dataset, dict) and "images" in dataset:
                check_entry(where, dataset)
                continue
            given = dataset.get("class_path") if isinstance(dataset, dict) else dataset
            if not isinstance(given, str):
                raise ValueError(
                    f"{where}: a data set is a name from `unknot data list`, or own `images` with `labels`, or has a "
                    f"`class_path`, got {dataset!r:.80}."
                )
        labels = [_labelled(dataset)[0] for dataset in content["datasets"]]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(f"{where}: two data sets are called {twice[0]!r}. Give them different `name`s.")
    for part in ("training", "data", "options"):
        options = content.get(part, {})
        if not isinstance(options, dict) or not all(isinstance(option, str) for option in options):
            raise ValueError(f"{where}: `{part}` must name options, as in `model.beta`, got {options!r:.80}.")
        for option, values in options.items():
            if part != "training" and not (isinstance(values, list) and values) and not isinstance(values, dict):
                raise ValueError(f"{where}: `{option}` must list its values, as in `{option}: [1, 2]`.")
    if "seed_everything" in content.get("options", {}):
        _seeds(content["options"]["seed_everything"], where)


def _listed(where: str, content: Mapping[str, Any], key: str) -> None:
    if not isinstance(content.get(key), list) or not content[key]:
        raise ValueError(f"{where}: `{key}` must be a list with at least one entry.")


def _known(where: str, content: Mapping[str, Any], keys: set[str]) -> None:
    for key in content:
        if key not in keys:
            raise ValueError(f"{where}: unknown key `{key}`. {did_you_mean(str(key), keys)}")
