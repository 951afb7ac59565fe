"""One job: train, save, score. Runs in a process of its own; what it is given and what it leaves are files."""

import gc
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import LightningDataModule, LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.cli import LightningCLI, instantiate_class

import unknot.datamodules
import unknot.zoo  # noqa: F401  both make class names known without their module paths
from unknot._files import replacing
from unknot._trust import only_known_classes
from unknot.studies.folders import JobFolder, write_json
from unknot.studies.recording import Recorder
from unknot.studies.scoring import add_scores
from unknot.studies.stopping import Stop, Stopped
from unknot.zoo import Model

TELL = 5.0
"""Seconds between two words about how far a job is; each is a file written."""


class JobCLI(LightningCLI):
    """A configuration becomes a model, its data and a Trainer that leaves files and signals to us."""

    def __init__(self, config: dict[str, Any], callbacks: list[Callback], **trainer: Any) -> None:
        self.fixed = trainer
        super().__init__(
            Model,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            run=False,
            save_config_callback=None,
            trainer_defaults={"max_epochs": -1, "check_val_every_n_epoch": None, "callbacks": callbacks},
            parser_kwargs={"exit_on_error": False},
            args=config,
        )

    def _add_configure_optimizers_method_to_model(self, subcommand: str | None) -> None:
        """Hand ``optimizer`` and ``lr_scheduler`` to the model, which may have more than one optimiser."""
        for option, attribute in (("optimizer", "optimizer"), ("lr_scheduler", "scheduler")):
            if chosen := self._get(self.config_init, option):
                setattr(self.model, attribute, partial(instantiate_class, init=chosen))

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Fix what is no part of a result: where and on what it runs."""
        # On a cluster Lightning would take the cluster's processes for its own: a job is one process.
        return super().instantiate_trainer(plugins=[LightningEnvironment()], **self.fixed, **kwargs)

    def dump(self) -> str:
        """The resolved configuration, as YAML that ``unknot fit --config`` takes."""
        return str(self.parser.dump(self.config))


class Keeper(Callback):
    """Saves what a job resumes from, says how far it is, and stops it when asked."""

    def __init__(self, files: JobFolder, every: float, stop: Stop) -> None:
        self.files, self.every, self.stop = files, every, stop
        self.saved = self.told = time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell where it goes on."""
        if self.stop.listening:  # in place of Lightning's handler, which stops a training without saving its state
            self.stop.listen()
        self.stop.hold()  # until there is a model
        self._tell(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Look at the clock; every state can be resumed from exactly."""
        now = time.monotonic()
        stop = self.stop.asked
        if stop or now - self.saved >= self.every:
            with replacing(self.files.checkpoint) as beside:
                trainer.save_checkpoint(beside, weights_only=False)
            self.saved = time.monotonic()
        if stop:
            raise Stopped
        if now - self.told >= TELL:
            self._tell(trainer)
            self.told = now

    def _tell(self, trainer: Trainer) -> None:
        tell(self.files, "training", trainer.global_step, trainer.max_steps)


def tell(files: JobFolder, phase: str, step: int, steps: int) -> None:
    """Say how far a job is."""
    write_json(files.progress, {"phase": phase, "step": step, "steps": steps, "time": time.time()}, indent=None)


def perform(
    study: Path,
    name: str,
    config: dict[str, Any],
    protocols: list[Any],
    accelerator: str = "cpu",
    checkpoint_every: float = 60.0,
    keep_checkpoint: bool = False,
    imported: Iterable[str] = (),
    stop: Stop | None = None,
) -> None:
    """Bring a job from wherever it is to its end.

    Args:
        study: the folder of the study.
        name: the job's name.
        config: what LightningCLI is given.
        protocols: scores that it shall have.
        accelerator: ``"cpu"`` or ``"gpu"``; one device.
        checkpoint_every: seconds between saves of the state.
        keep_checkpoint: leave the last state in place, to train on from.
        imported: modules whose classes the configuration may name, besides unknot's own.
        stop: looked at after every step: whether to save the state and raise ``Stopped``.
    """
    files, stop = JobFolder(study, name), stop or Stop()
    if not files.trained():
        _train(files, config, accelerator, checkpoint_every, keep_checkpoint, imported, stop)
        stop.allow()
    if not keep_checkpoint:
        files.checkpoint.unlink(missing_ok=True)
    add_scores(files, config, protocols, imported, partial(tell, files, "scoring"))
    gc.collect()


def _train(
    files: JobFolder,
    config: dict[str, Any],
    accelerator: str,
    checkpoint_every: float,
    keep_checkpoint: bool,
    imported: Iterable[str],
    stop: Stop,
) -> None:
    recorder = Recorder(files)
    with only_known_classes(imported), _plain_errors():
        cli = JobCLI(
            config,
            [recorder, Keeper(files, checkpoint_every, stop)],
            accelerator=accelerator,
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=files.path,
        )
    with replacing(files.config) as beside:
        beside.write_text(cli.dump(), encoding="utf-8")
    resume = str(files.checkpoint) if files.checkpoint.is_file() else None
    cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=resume, weights_only=True)
    losses = cli.trainer.validate(cli.model, cli.datamodule, verbose=False)[0]
    recorder.write(cli.trainer.global_step)
    scores = files.read_scores() | {"validation": {name: float(value) for name, value in losses.items()}}
    write_json(files.scores, scores)
    if keep_checkpoint:
        with replacing(files.checkpoint) as beside:
            cli.trainer.save_checkpoint(beside, weights_only=False)
    cli.model.save_pretrained(files.model)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    os.environ.pop("PL_GLOBAL_SEED", None)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Say what a class refused: the parser tells it among the types that it tried and the values of all arguments."""
    try:
        yield
    except ValueError as error:
        raise error.__cause__ or error from None
