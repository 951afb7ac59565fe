"""Train a model from settings, or from a model and its data, and write a run folder."""

import io
import logging
import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jsonargparse import ArgumentError
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import Callback, LightningDataModule, Trainer, seed_everything
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import TensorBoardLogger

from unknot.lightning import pl
from unknot.machine import sensible_threads
from unknot.randomness import kept_generators
from unknot.training import configs
from unknot.training.callbacks import CountOn, CurveLogger, HeldOut, Keeper, Stopwatch, WholeCheckpoints, version_of
from unknot.training.lightning_cli import DEFAULTS, TrainingCLI
from unknot.training.run_folder import BEST, Resumption, RunFolder, Summary
from unknot.training.settings import named_modules, only_known_classes, put, reason_of
from unknot.training.stopping import Stop
from unknot.zoo import Model
from unknot.zoo.pictures import Pictures

SMALL = 10_000_000
"""Parameters of a network for which few threads are best."""
CURVE_ROWS = 100
"""Approximate number of rows of the curve of a job."""


@dataclass
class Training:
    """Training request, with the folder that it writes to.

    Args:
        settings: words of a command line, or plain values; None if model and data are given.
        name: name of the parent folder of a new run.
        run: the run folder, if it is already known.
        imported: modules whose classes the settings may name.
        stop: request to stop, if there is one.
        job: name and settings, for a job of a study.
        trainer: arguments of the Trainer in addition to those of the settings.
        every_seconds: save by time instead of by steps.
        keep_states: keep the checkpoints of a finished job.
        keep_shape: take the shape of the images from the settings and not from the data.
        say: function called with each line for the user.
    """

    settings: Sequence[str] | dict[str, Any] | None = None
    name: str | None = None
    run: RunFolder | None = None
    imported: Sequence[str] = ()
    stop: Stop = field(default_factory=Stop)
    job: dict[str, Any] | None = None
    trainer: Mapping[str, Any] = field(default_factory=dict)
    every_seconds: float | None = None
    keep_states: bool = True
    keep_shape: bool = False
    say: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        self.stopwatch, self.held_out = Stopwatch(), HeldOut()
        self.exits = ExitStack()
        self.is_new = False
        self.resumption: Resumption | None = None

    # The folder

    def open_folder(self, model: Model, root: Path) -> Path:
        """Return the folder of this process; on ranks other than zero, a placeholder until rank zero sends it."""
        if getattr(rank_zero_only, "rank", 0):
            return root / "of_rank_zero" / "version"
        if self.run is None:
            self.run, self.is_new = RunFolder.claim(root / (self.name or type(model).__name__)), True
        else:
            self.is_new = not self.run.path.is_dir()
        self.exits.enter_context(self.run.lock())
        self.run.clean()
        if not self.is_new:
            resumption = self.run.resumption()
            self.resumption = replace(resumption, checkpoint=self.run.take_over(resumption.checkpoint))
            self.say(resumption.note)
        return self.run.path

    def parts(
        self, model: Model, chosen: Mapping[str, Any], checkpoint_every: int, pictures: bool
    ) -> tuple[list[Callback], dict[str, Any]]:
        """Return callbacks and arguments of the Trainer.

        Args:
            model: model to train.
            chosen: arguments of the Trainer that the user chose.
            checkpoint_every: steps between saves.
            pictures: whether to draw pictures during training.
        """
        further = dict(self.trainer)
        chosen = {**chosen, **further}
        callbacks: list[Callback] = [self.stopwatch, self.held_out, *further.pop("callbacks", [])]
        writes = chosen.get("logger") in (None, True) and not chosen.get("fast_dev_run")
        if writes:
            folder = self.open_folder(model, Path(chosen.get("default_root_dir") or "runs"))
            step = self.resumption.step if self.resumption else None
            further["logger"] = [CurveLogger(folder, step)]
            if self.job is None:
                board = TensorBoardLogger(folder.parent.parent, folder.parent.name, version_of(folder), purge_step=step)
                further["logger"].append(board)
        if pictures:
            callbacks.append(Pictures())
        if chosen.get("enable_checkpointing") is not False:
            if self.job is None:
                callbacks.append(
                    ModelCheckpoint(filename=Path(BEST).stem, monitor="val/loss", enable_version_counter=False)
                )
            steps = None if self.every_seconds is not None else checkpoint_every
            callbacks.append(Keeper(self.run, self.stop, steps, self.every_seconds))
        if self.resumption and self.resumption.checkpoint:
            callbacks.append(CountOn(self.resumption.step))
        if self.job is not None:
            steps = max(10, chosen.get("max_steps", -1) // CURVE_ROWS)
            # On a cluster Lightning would treat the cluster's processes as its own: a job is one process.
            further |= {"plugins": [LightningEnvironment()], "log_every_n_steps": steps, "devices": 1}
            further |= dict.fromkeys(("enable_progress_bar", "enable_model_summary"), False)
            further |= {"num_sanity_val_steps": 0}
        return callbacks, further

    # The training

    def fit(self, model: Model, data: Any, trainer: Trainer, config: str | None, start: str | None = None) -> None:
        """Train, and write model, curve, cost and losses to the folder.

        Args:
            model: to train.
            data: data to train on.
            trainer: Trainer with the arguments of :meth:`parts`.
            config: resolved settings as YAML, if there are any.
            start: Lightning checkpoint of another run to start from.
        """
        run = self.run
        if run is not None:
            run.create(self._summary(model, data, trainer), config)
            self.exits.enter_context(run.heartbeat())
        own = self.resumption.checkpoint if self.resumption else None
        with _few_threads(model, trainer, self.say):
            trainer.fit(model, datamodule=data, ckpt_path=str(own) if own else start, weights_only=True)
        if trainer.log_dir is None or not trainer.loggers:  # fast_dev_run, or no logger wanted
            return
        keeper = next((callback for callback in trainer.callbacks if isinstance(callback, Keeper)), None)  # type: ignore[attr-defined]
        if keeper is not None and self.keep_states:
            keeper.save(trainer)
        losses = self._losses(model, data, trainer)
        if run is None:
            return
        self.stopwatch.record(run.record_file, trainer.global_step)
        if losses:
            run.set_validation(losses)
        model.save_pretrained(run.model)
        if not run.is_trained():
            raise OSError(f"{run.model}: the saved model differs when it is read back. Check the disk.")
        if not self.keep_states:
            run.forget_states()
        run.succeed()

    def _losses(self, model: Model, data: Any, trainer: Trainer) -> dict[str, float]:
        """Return the losses on held-out batches after the last step; they are always measured for a job of a study."""
        if self.job is not None and self.held_out.step != trainer.global_step:
            trainer.validate(model, datamodule=data, verbose=False)
        return self.held_out.losses if self.held_out.step == trainer.global_step else {}

    def _summary(self, model: Model, data: Any, trainer: Trainer) -> Summary:
        seed = os.environ.get("PL_GLOBAL_SEED")
        return Summary(
            type(model).__name__,
            {name: value for name, value in dict(model.hparams).items() if _is_plain(value)},
            getattr(getattr(data, "dataset", None), "name", None),
            int(seed) if seed and seed.isdecimal() else None,
            trainer.max_steps if trainer.max_steps > 0 else None,
            self.job,
        )

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Release the folder after the block; remove it if nothing was trained."""
        finished = False
        try:
            with self.exits:
                yield
            finished = True
        finally:
            if self.run is not None and self.is_new and not finished and self.job is None:
                self.run.abandon()

    def cli(self) -> TrainingCLI:
        """Build the model, data and Trainer that the settings describe."""
        assert self.settings is not None

        def parts(cli: TrainingCLI) -> tuple[list[Callback], dict[str, Any]]:
            chosen = dict(cli.config_init.trainer)
            callbacks, further = self.parts(cli.model, chosen, cli.config.checkpoint_every, pictures=False)
            if self.job is not None:  # the option of the parser adds the callback that draws pictures
                cli.parser.callback_keys.clear()
            return callbacks, further

        words = self.settings if isinstance(self.settings, list) else []
        with only_known_classes([*self.imported, *named_modules(words)]):
            resumed = self.run is not None and self.run.has_state()
            return TrainingCLI(self.settings, parts, self.keep_shape, resumed)


def fit(
    what: Model | str | Path | Mapping[str, Any] | RunFolder,
    data: LightningDataModule | None = None,
    *,
    folder: str | Path | RunFolder | None = None,
    overrides: Mapping[str, Any] | None = None,
    trainer: Mapping[str, Any] | None = None,
    seed: int | None = None,
    imported: Sequence[str] = (),
) -> RunFolder:
    """Train a model, and return the folder of the run.

    An interrupted run is resumed exactly where it stopped; a finished one is not changed. Random state, threads and
    environment of the program are restored afterwards.

    Args:
        what: a model, with ``data``; or the name of a configuration, its file, or settings as plain values; or the
            folder of a run to resume.
        data: data to train on.
        folder: folder of the run; by default a new ``runs/NAME/version_N``.
        overrides: options of a configuration, as on the command line, such as ``{"model.beta": 8}``.
        trainer: arguments of the Trainer, such as ``{"max_steps": 1000}`` or ``{"callbacks": [...]}``.
        seed: seed of weights, noise and data; by default that of the configuration, or 0.
        imported: modules whose classes a configuration may name, in addition to unknot's.

    >>> import tempfile
    >>> from unknot.datamodules import DSprites, FactorDataModule, Resized
    >>> from unknot.zoo import BetaVAE
    >>> data = FactorDataModule(Resized(DSprites(), 16), batch_size=4, num_val_batches=1)
    >>> model = BetaVAE(beta=2.0, image_shape=(1, 16, 16))
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     run = fit(model, data, folder=f"{folder}/mine", trainer={"max_steps": 100})
    ...     run.state(), run.summary.model
    ('done', 'BetaVAE')
    """
    if pl.__name__ != "pytorch_lightning":
        raise ImportError(
            "unknot.training trains with pytorch_lightning, and this program imported lightning.pytorch first. Import "
            "unknot before it, or use lightning's own Trainer."
        )
    if (trainer or {}).get("logger") is False or (trainer or {}).get("fast_dev_run"):
        raise ValueError("fit keeps what it trains in a folder: leave out `logger=False` and `fast_dev_run`.")
    training = Training(imported=tuple(imported), trainer=dict(trainer or {}), say=_say)
    if isinstance(folder, RunFolder):
        training.run = folder
    elif folder is not None:
        training.run = RunFolder(folder)
    if isinstance(what, Model):
        if data is None:
            raise ValueError("fit(model) needs data: a LightningDataModule, such as FactorDataModule(DSprites()).")
        if overrides:
            raise ValueError("`overrides` change a configuration; set a model's options when it is made.")
    elif data is not None:
        raise ValueError("data go with a model; a configuration names its own. Override `data.…` instead.")
    else:
        training.settings = _settings(training, what, overrides or {}, seed)
    with _plain_errors(), _as_it_was(), training.opened():
        if isinstance(what, Model):
            return _fit_objects(training, what, data, 0 if seed is None else seed)
        return fit_settings(training)


def fit_job(
    run: RunFolder,
    settings: dict[str, Any],
    job: dict[str, Any],
    accelerator: str = "cpu",
    every_seconds: float = 60.0,
    keep_states: bool = False,
    imported: Sequence[str] = (),
    stop: Stop | None = None,
) -> None:
    """Train a job of a study, or measure the losses of its model again if they were lost.

    Args:
        run: folder of the job.
        settings: settings as plain values.
        job: ``name`` of the study, ``job`` and its ``settings``, for the record.
        accelerator: ``"cpu"`` or ``"gpu"``; one device.
        every_seconds: seconds between saves of the state.
        keep_states: keep the last state, to continue training from it.
        imported: modules whose classes the settings may name, in addition to unknot's.
        stop: request to stop, checked after every step.
    """
    training = Training(
        deepcopy(settings),
        run=run,
        imported=tuple(imported),
        stop=stop or Stop(),
        job=job,
        trainer={"accelerator": accelerator},
        every_seconds=every_seconds,
        keep_states=keep_states,
        keep_shape=True,
        say=print,
    )
    with _plain_errors(), _as_it_was(), training.opened():
        if not run.is_trained():
            fit_settings(training)
            return
        training.trainer = {"accelerator": accelerator, "logger": False, "enable_checkpointing": False}
        cli = training.cli()
        model = type(cli.model).from_pretrained(run.model)
        (losses,) = cli.trainer.validate(model, cli.datamodule, verbose=False)
        run.set_validation(losses)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Convert the parser's report of all types that it tried into the error of the class itself."""
    try:
        yield
    except ValueError as error:
        raise error.__cause__ or error from None
    except ArgumentError as error:
        raise ValueError(reason_of(str(error))) from None


def check_settings(settings: dict[str, Any], imported: Sequence[str] = ()) -> None:
    """Check settings by building the model, data and Trainer of a job, which must succeed.

    Args:
        settings: settings as plain values.
        imported: modules whose classes they may name, in addition to unknot's.
    """
    quiet: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "logger": False, "plugins": [LightningEnvironment()]}
    quiet |= dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # Lightning announces seeds and devices
    try:
        with _plain_errors(), _as_it_was(), only_known_classes(imported), redirect_stderr(io.StringIO()):
            TrainingCLI(deepcopy(settings), lambda cli: ([], dict(quiet)), keep_shape=True)
    finally:
        logging.disable(level)


def _settings(training: Training, what: Any, overrides: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """Return the requested settings, merged with those of the folder."""
    if isinstance(what, Mapping):
        settings, path = dict(what), None
    else:
        run = what if isinstance(what, RunFolder) else RunFolder(what)
        if isinstance(what, RunFolder) or run.exists():
            training.run = RunFolder.open(run.path)
            settings, path = run.settings(), None
        else:
            path = configs.find(what)
            settings = configs.load(path)
            check_source(settings, path)
            training.name = path.stem
    for option, value in overrides.items():
        put(settings, option, value)
    if seed is not None:
        settings["seed_everything"] = seed
    if "data" not in settings:
        raise ValueError(f"{what} names no data: give `fit` a model and its data, or override `data`.")
    training.keep_shape = path is None or "model.image_shape" in overrides
    return settings


def check_source(settings: Any, path: Path) -> None:
    """Raise an error for a file that chooses where to write, unless it is bundled or belongs to a local run."""
    from unknot.training.settings import refuse_foreign_folders

    if RunFolder.owner_of(path) is None and configs.FOLDER not in path.resolve().parents:
        refuse_foreign_folders(settings, path)


def fit_settings(training: Training) -> RunFolder:
    """Train the model that the settings describe."""
    run = training.run
    if run is not None and run.is_trained() and not run.has_state() and training.job is None:
        raise ValueError(
            f"{run.path}: this run is finished and its checkpoints were removed, so it cannot be resumed. Start a new "
            f"one from its weights: --pretrained {run.model}."
        )
    cli = training.cli()
    training.fit(cli.model, cli.datamodule, cli.trainer, cli.dump(), cli.config.get("ckpt_path"))
    return training.run or RunFolder(cli.trainer.log_dir or ".")  # the latter on ranks other than zero


def _fit_objects(training: Training, model: Model, data: Any, seed: int) -> RunFolder:
    """Train a model object on a data module object."""
    seed_everything(seed, workers=True, verbose=False)
    further = {name: value for name, value in training.trainer.items() if name not in ("callbacks", "logger")}
    callbacks, parts = training.parts(model, DEFAULTS, 1000, pictures=True)
    parts.setdefault("plugins", [WholeCheckpoints()])
    trainer = Trainer(**DEFAULTS | further | parts | {"callbacks": callbacks})
    training.fit(model, data, trainer, None)
    return training.run or RunFolder(trainer.log_dir or ".")  # the latter on ranks other than zero


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= 64 and all(_is_plain(part) for part in value)
    return isinstance(value, str | int | float | bool | None)


def _say(line: str) -> None:
    if not getattr(rank_zero_only, "rank", 0):
        print(line)


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Restore random state, warnings and environment after the block."""
    state, plain = np.random.get_state(), random.getstate()  # noqa: NPY002  Lightning seeds the global generators
    before = {name: value for name, value in os.environ.items() if name.startswith("PL_")}
    with kept_generators(), warnings.catch_warnings():
        hush_lightning()
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(state)  # noqa: NPY002
            for name in [name for name in os.environ if name.startswith("PL_")]:
                del os.environ[name]
            os.environ.update(before)


@contextmanager
def _few_threads(model: Model, trainer: Trainer, say: Callable[[str], None]) -> Iterator[None]:
    """Train a small network on a CPU with a suitable number of threads."""
    before, threads = torch.get_num_threads(), sensible_threads()
    size = sum(parameter.numel() for parameter in model.parameters())
    on_cpu = trainer.strategy.root_device.type == "cpu"
    if threads and on_cpu and trainer.world_size == 1 and size < SMALL:
        torch.set_num_threads(threads)
        waiting = os.environ.get("OMP_WAIT_POLICY", "").lower() or "active"
        say(f"Training with {threads} thread(s), {waiting} waiting (OMP_NUM_THREADS, OMP_WAIT_POLICY choose).")
    try:
        yield
    finally:
        torch.set_num_threads(before)


def hush_lightning() -> None:
    """Silence Lightning's advertisements, and warnings that users cannot act on."""
    for message in (
        *("does not have many workers", "isinstance.treespec, LeafSpec", "LightningCLI's args parameter"),
        *("Checkpoint directory .* exists and is not empty", "Be aware that when using `ckpt_path`"),
    ):
        warnings.filterwarnings("ignore", f".*{message}.*")
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    if _no_advertisement not in logger.filters:
        logger.addFilter(_no_advertisement)


def _no_advertisement(record: logging.LogRecord) -> bool:
    return "💡" not in str(record.msg)
