"""``unknot fit | validate | test | predict``: LightningCLI with our defaults."""

import functools
import itertools
import os
import pickle
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from filelock import FileLock
from jsonargparse import ArgumentError, Namespace
from lightning_fabric.plugins import CheckpointIO
from lightning_fabric.utilities.exceptions import MisconfigurationException
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import LightningDataModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, instantiate_class
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities.exceptions import SIGTERMException

import unknot.datamodules
import unknot.zoo  # noqa: F401  both make class names known without their module paths
from unknot import configs
from unknot._files import replacing
from unknot._trust import named_modules, only_known_classes, refusal
from unknot.cli.quiet import hush_lightning
from unknot.cli.run_folder import (
    LAST,
    CountOn,
    CurveLogger,
    Resumption,
    WholeCheckpoints,
    WholeConfig,
    abandon,
    claim,
    find_resumption,
    occupy,
    sweep,
    version_of,
)
from unknot.cli.spelling import explained, misspelt
from unknot.cli.stopping import StopCleanly, Stopped
from unknot.memory import keep_freed_memory
from unknot.studies.recording import Stopwatch
from unknot.threads import sensible_threads
from unknot.zoo import Model
from unknot.zoo.pictures import Pictures

TYPED_SHAPE = re.compile(r"--model\.(init_args\.)?image_shape")
SMALL = 10_000_000
"""Parameters of a network for which few threads are best."""


@dataclass
class Run:
    """What a command line asks for, and where it goes."""

    words: list[str]
    files: list[str] = field(default_factory=list)
    """Configurations, as they were named."""

    imported: Sequence[str] = ()
    """Modules that ``--import`` named."""

    name: str | None = None
    resumption: Resumption | None = None
    stop: StopCleanly = field(default_factory=StopCleanly)
    folder: Path | None = None
    """Of this run, once it has one."""

    lock: FileLock | None = None

    def open_folder(self, root: Path, fallback: str) -> Path:
        """The folder that this process alone writes to; on other ranks a name for what rank zero will tell them."""
        if getattr(rank_zero_only, "rank", 0):
            return root / "of_rank_zero" / "version"
        folder = self.resumption.run if self.resumption else claim(root / (self.name or fallback))
        self.lock = occupy(folder)
        self.folder = folder
        sweep(folder)
        return folder

    def imports(self) -> str:
        """What another command needs to know the same classes."""
        return "".join(f" --import {shlex.quote(module)}" for module in self.imported)

    def close_folder(self, finished: bool) -> None:
        """Let others have the folder; remove it if it is of no use to them."""
        if self.folder and not finished and not self.resumption:
            abandon(self.folder)
        if self.lock:
            self.lock.release()


class UnknotCLI(LightningCLI):
    """Runs go to ``runs/NAME/version_N``: logs, checkpoints, pictures and the final model."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.stopwatch = Stopwatch()
        quiet: dict[str, Any] = {"exit_on_error": False, "allow_abbrev": False}
        super().__init__(
            Model,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            save_config_callback=WholeConfig,
            parser_kwargs={**quiet, **{command: dict(quiet) for command in self.subcommands()}},
            trainer_defaults={"max_epochs": -1, "check_val_every_n_epoch": None},
            args=run.words,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Options of our callbacks."""
        parser.add_lightning_class_args(Pictures, "pictures")
        parser.add_argument("--pretrained", type=str | None, default=None, help="Checkpoint to take the weights of.")
        parser.add_argument("--checkpoint_every", type=int, default=1000, help="Steps between saves of last.ckpt.")

    def _add_configure_optimizers_method_to_model(self, subcommand: str | None) -> None:
        """Give ``--optimizer`` and ``--lr_scheduler`` to the model, which makes both; either may be left out."""
        optimizer, scheduler = (self._get(self.config_init, key) for key in ("optimizer", "lr_scheduler"))
        if optimizer:
            self.model.optimizer = functools.partial(instantiate_class, init=optimizer)
        if scheduler:
            self.model.scheduler = functools.partial(instantiate_class, init=scheduler)

    def _parse_ckpt_path(self) -> None:
        """Take no class and no option from a checkpoint: what a run is, the configuration says."""

    def before_instantiate_classes(self) -> None:
        """Read Lightning checkpoints as data: their pickles may not run code."""
        self.config[self.subcommand].weights_only = True

    def instantiate_classes(self) -> None:
        """Let the data say what shape images have, unless the command line does."""
        section = self.config[self.subcommand]
        arguments = section.model.get("init_args", {})
        if "image_shape" in arguments and not any(TYPED_SHAPE.match(word) for word in self.run.words):
            data = self._parser(self.subcommand).instantiate_classes(Namespace(data=section.data)).data
            shape = getattr(data, "image_shape", None) or getattr(getattr(data, "dataset", None), "image_shape", None)
            if shape is not None:
                arguments.image_shape = tuple(shape)
                vars(self).pop("config_dump", None)  # made for the data, and kept by Lightning for the model
        super().instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Add loggers that share a folder, and the checkpoints of the best and the last state."""
        start = self._get(self.config, "pretrained")
        if start and not self._get(self.config, "ckpt_path"):  # a run that goes on has weights of its own
            self.model.start_from(start)
        trainer = self._get(self.config_init, "trainer")
        if trainer.get("logger") in (None, True) and not trainer.get("fast_dev_run"):
            root = Path(trainer.get("default_root_dir") or "runs")
            folder = self.run.open_folder(root, type(self.model).__name__)
            step = self.run.resumption.step if self.run.resumption else None
            board = TensorBoardLogger(folder.parent.parent, folder.parent.name, version_of(folder), purge_step=step)
            kwargs["logger"] = [CurveLogger(folder, step), board]
        plugins = trainer.get("plugins") or []
        plugins = plugins if isinstance(plugins, list) else [plugins]
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            kwargs["plugins"] = [*plugins, WholeCheckpoints()]
        every = self._get(self.config, "checkpoint_every")
        self.trainer_defaults["callbacks"] = [
            self.run.stop,
            self.stopwatch,
            ModelCheckpoint(filename="best", monitor="val/loss", enable_version_counter=False),
            ModelCheckpoint(
                every_n_train_steps=every,
                save_last=True,
                save_top_k=0,
                save_on_train_epoch_end=False,
                enable_version_counter=False,
            ),
        ]
        if trainer.get("enable_checkpointing") is False:
            del self.trainer_defaults["callbacks"][2:]
        if self.run.resumption:
            self.trainer_defaults["callbacks"].append(CountOn(self.run.resumption.step))
        return super().instantiate_trainer(**kwargs)

    def before_fit(self) -> None:
        """On a CPU, keep freed memory, and train a small network with a number of threads that helps it."""
        threads = sensible_threads()
        size = sum(parameter.numel() for parameter in self.model.parameters())
        on_cpu = self.trainer.strategy.root_device.type == "cpu"
        if on_cpu:
            keep_freed_memory()
        if threads and on_cpu and self.trainer.world_size == 1 and size < SMALL:
            torch.set_num_threads(threads)
            waiting = os.environ.get("OMP_WAIT_POLICY", "").lower() or "active"
            print(f"Training with {threads} thread(s), {waiting} waiting (OMP_NUM_THREADS, OMP_WAIT_POLICY choose).")

    def after_fit(self) -> None:
        """Save the final state, to resume from and to load with ``from_pretrained``."""
        if self.trainer.log_dir is None or not self.trainer.loggers:  # fast_dev_run, or no logger wanted
            return
        folder = Path(self.trainer.log_dir)
        self.trainer.save_checkpoint(folder / "checkpoints" / LAST, weights_only=False)
        if self.trainer.is_global_zero:
            self.stopwatch.record(folder / "record.json", self.trainer.global_step)
            self.model.save_pretrained(folder / "model")
            print(f"Model, checkpoints, logs and pictures are in {folder}.")
            commands = {"codes": "evaluate", "sets": "slots ap", "slots": "slots attention"}
            command = next((commands[name] for name in commands if name in self.model.capabilities), None)
            if command:
                words = f"unknot {command} {shlex.quote(str(folder / 'model'))}{self.run.imports()}"
                own = " --images FOLDER --labels CSV" if command == "evaluate" and not self.model.trained_on else ""
                print(f"Score it with: {words}{own}")

    def before_predict(self) -> None:
        """Refuse several processes: each would have its own part of the codes."""
        if self.trainer.world_size > 1:
            raise ValueError(
                f"predict writes all codes, in order, to one file, but {self.trainer.world_size} processes were asked "
                "for. Run it with --trainer.devices 1 --trainer.num_nodes 1."
            )

    def after_predict(self) -> None:
        """Write the codes of all predicted batches."""
        batches = self.trainer.predict_loop.predictions
        if batches:
            folder = Path(self.trainer.log_dir or ".")
            with replacing(folder / "codes.npy") as beside, beside.open("wb") as file:
                np.save(file, torch.cat([torch.as_tensor(batch) for batch in batches]).numpy())
            print(f"Codes are in {folder / 'codes.npy'}.")


def run(argv: list[str], imported: Sequence[str] = ()) -> int:
    """Run a LightningCLI command line; its configurations may name classes of the modules in ``imported``."""
    hush_lightning()
    plan = _plan(argv, imported)
    finished = False
    threads = torch.get_num_threads()
    try:
        with only_known_classes([*imported, *named_modules(argv)]), plan.stop.listening():
            UnknotCLI(plan)
        finished = True
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "PytorchStreamReader" not in str(error):
            raise
        paths = [f"{path}: " for word, path in itertools.pairwise(plan.words) if word == "--ckpt_path"]
        raise ValueError(
            f"{''.join(paths)}not a whole Lightning checkpoint of tensors and plain values; nothing else is read, as "
            "it could run code. Give another one, or train anew."
        ) from error
    except ArgumentError as error:
        reason = misspelt(str(error), plan.words)
        if reason is None:
            essence = _essence(str(error))
            reason = refusal(str(error)) or explained(essence) or essence
            reason = "".join(f"{file}: " for file in plan.files) + reason
        raise ValueError(f"{reason}{'' if reason.endswith(('.', '?')) else '.'} {HELP}") from error
    except MisconfigurationException as error:
        hint = " Take --trainer.accelerator auto or cpu." if "backend found" in str(error) else ""
        raise ValueError(f"{error}{hint}") from error
    except ValueError as error:  # a DataModule that refuses its options comes wrapped too, a model does not
        raise ValueError(_essence(str(error))) from error
    except (Stopped, SIGTERMException, KeyboardInterrupt) as stop:
        signum = stop.signum if isinstance(stop, Stopped) else 2 if isinstance(stop, KeyboardInterrupt) else 15
        _say_how_to_resume(plan)
        return 128 + signum
    finally:
        plan.close_folder(finished)
        torch.set_num_threads(threads)
    return 0


HELP = "--help-all lists every option, --model.help NAME and --data.help NAME those of a class."


def _say_how_to_resume(plan: Run) -> None:
    folder = plan.folder
    if folder is None or not (folder / "checkpoints" / LAST).is_file():
        print("Stopped before anything was saved.", file=sys.stderr)
        return
    print(f"Stopped; go on with: unknot fit --resume {shlex.quote(str(folder))}{plan.imports()}", file=sys.stderr)


def _essence(message: str) -> str:
    """What went wrong, out of the parser's account of every type it tried."""
    _, _, tried = message.partition("Errors:")
    first = re.split(r"\n\s*- ", tried)[1] if "\n" in tried else message
    return " ".join(first.split())


def _plan(argv: list[str], imported: Sequence[str]) -> Run:
    """Replace names of configurations by paths, ``--resume RUN`` by what it stands for; find the run's name."""
    words: list[str] = []
    for word in argv:
        flag, equals, value = word.partition("=")
        words += [flag, value] if equals and flag in ("-c", "--config", "--resume") else [word]
    plan = Run([], imported=imported)
    rest = iter(words)
    for word in rest:
        if word in ("-c", "--config"):
            path = configs.find(next(rest, ""))
            plan.name = path.resolve().parent.parent.name if path.name == "config.yaml" else path.stem
            plan.words += ["--config", _resolved(path)]
            plan.files.append(str(path))
        elif word == "--resume":
            plan.resumption = found = find_resumption(Path(next(rest, "")))
            plan.words += ["--config", str(found.run / "config.yaml"), "--ckpt_path", str(found.checkpoint)]
            plan.files.append(str(found.run / "config.yaml"))
            print(found.note)
        else:
            plan.words.append("--help" if word == "--help-all" else word)
    return plan


def _resolved(path: Path) -> str:
    """What LightningCLI takes for a configuration: the file, or the text of one that has a base."""
    content = configs.read(path)
    if not isinstance(content, dict) or "base" not in content:
        return str(path)
    return yaml.safe_dump(configs.load(path), sort_keys=False)
