"""``unknot fit | validate | test | predict``: LightningCLI with our defaults."""

import itertools
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jsonargparse import ArgumentError
from pytorch_lightning import LightningDataModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

import unknot.datamodules
import unknot.zoo  # noqa: F401  both make class names known without their module paths
from unknot import configs
from unknot._files import replacing
from unknot.cli.quiet import hush_lightning
from unknot.zoo import VAE, Model
from unknot.zoo.pictures import Pictures
from unknot.zoo.set_pictures import SlotPictures


class UnknotCLI(LightningCLI):
    """Runs go to ``runs/NAME/version_N``: logs, checkpoints, pictures and the final model."""

    run_name: str | None = None

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Options of our callbacks."""
        parser.add_lightning_class_args(Pictures, "pictures")
        parser.add_argument("--checkpoint_every", type=int, default=1000, help="Steps between saves of last.ckpt.")

    def before_instantiate_classes(self) -> None:
        """Read Lightning checkpoints as data: their pickles may not run code."""
        self.config[self.subcommand].weights_only = True

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Add loggers that share a folder, and the checkpoints of the best and the last state."""
        trainer = self._get(self.config_init, "trainer")
        if trainer.get("logger") in (None, True) and not trainer.get("fast_dev_run"):
            name = self.run_name or type(self.model).__name__
            root = trainer.get("default_root_dir") or "runs"
            version = _next_version(Path(root) / name)
            kwargs["logger"] = [logger(root, name, version) for logger in (CSVLogger, TensorBoardLogger)]
        pictures = self._get(self.config_init, "pictures")
        if not isinstance(self.model, VAE):
            few = min(6, pictures.num_images)
            self.config_init[self.subcommand].pictures = SlotPictures(pictures.every_n_steps, few)
        every = self._get(self.config, "checkpoint_every")
        self.trainer_defaults["callbacks"] = [
            ModelCheckpoint(filename="best", monitor="val/loss", enable_version_counter=False),
            ModelCheckpoint(every_n_train_steps=every, save_last=True, save_top_k=0, save_on_train_epoch_end=False),
        ]
        if trainer.get("enable_checkpointing") is False:
            del self.trainer_defaults["callbacks"]
        return super().instantiate_trainer(**kwargs)

    def after_fit(self) -> None:
        """Save the final state, to resume from and to load with ``from_pretrained``."""
        if self.trainer.log_dir is None or not self.trainer.loggers:  # fast_dev_run, or no logger wanted
            return
        folder = Path(self.trainer.log_dir)
        self.trainer.save_checkpoint(folder / "checkpoints" / "last.ckpt", weights_only=False)
        if self.trainer.is_global_zero:
            self.model.save_pretrained(folder / "model")
            print(f"Model, checkpoints, logs and pictures are in {folder}.")
            command = "evaluate" if isinstance(self.model, VAE) else "slots ap"
            print(f"Score it with: unknot {command} {folder / 'model'}")

    def after_predict(self) -> None:
        """Write the codes of all predicted batches."""
        batches = self.trainer.predict_loop.predictions
        if batches and self.trainer.is_global_zero:
            folder = Path(self.trainer.log_dir or ".")
            with replacing(folder / "codes.npy") as beside, beside.open("wb") as file:
                np.save(file, torch.cat([torch.as_tensor(batch) for batch in batches]).numpy())
            print(f"Codes are in {folder / 'codes.npy'}.")


def run(argv: list[str]) -> int:
    """Run a LightningCLI command line."""
    hush_lightning()
    argv, name = _expand(argv)
    UnknotCLI.run_name = name
    quiet: dict[str, Any] = {"exit_on_error": False}
    try:
        UnknotCLI(
            Model,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            save_config_kwargs={"overwrite": True},
            parser_kwargs={**quiet, **{command: dict(quiet) for command in UnknotCLI.subcommands()}},
            trainer_defaults={"max_epochs": -1, "check_val_every_n_epoch": None},
            auto_configure_optimizers=False,
            args=argv,
        )
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "PytorchStreamReader" not in str(error):
            raise
        raise ValueError(
            f"{_files(argv, '--ckpt_path')}not a whole Lightning checkpoint of tensors and plain values; nothing else "
            "is read, as it could run code. Give another one, or train anew."
        ) from error
    except ArgumentError as error:
        raise ValueError(f"{_files(argv, '--config')}{_essence(str(error))}. {HELP}") from error
    except ValueError as error:  # a DataModule that refuses its options comes wrapped too, a model does not
        raise ValueError(_essence(str(error))) from error
    return 0


HELP = "--help-all lists every option, --model.help NAME and --data.help NAME those of a class."


def _essence(message: str) -> str:
    """What went wrong, out of the parser's account of every type it tried."""
    _, _, tried = message.partition("Errors:")
    first = re.split(r"\n\s*- ", tried)[1] if "\n" in tried else message
    return " ".join(first.split())


def _expand(argv: list[str]) -> tuple[list[str], str | None]:
    """Replace names of configurations by paths, ``--resume RUN`` by what it stands for; find the run's name."""
    words: list[str] = []
    for word in argv:
        flag, equals, value = word.partition("=")
        words += [flag, value] if equals and flag in ("-c", "--config", "--resume") else [word]
    expanded: list[str] = []
    name = None
    rest = iter(words)
    for word in rest:
        if word in ("-c", "--config"):
            path = configs.find(next(rest, ""))
            name = path.resolve().parent.parent.name if path.name == "config.yaml" else path.stem
            expanded += ["--config", str(path)]
        elif word == "--resume":
            run = Path(next(rest, ""))
            last = run / "checkpoints" / "last.ckpt"
            if not last.is_file():
                raise FileNotFoundError(f"{last}: no such file. --resume takes a run's folder, runs/NAME/version_N.")
            name = run.resolve().parent.name
            expanded += ["--config", str(run / "config.yaml"), "--ckpt_path", str(last)]
        else:
            expanded.append("--help" if word == "--help-all" else word)
    return expanded, name


def _files(argv: list[str], flag: str) -> str:
    """The files of a command line, to put before an error."""
    return "".join(f"{path}: " for word, path in itertools.pairwise(argv) if word == flag)


def _next_version(folder: Path) -> int:
    taken = [int(path.name[8:]) for path in folder.glob("version_*") if path.name[8:].isdecimal()]
    return max(taken, default=-1) + 1
