"""``unknot fit | validate | test | predict``: their help and their command lines."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unknot.cli import imports
from unknot.cli.parsing import Commands, command
from unknot.training import configs

if TYPE_CHECKING:
    from unknot.training.fitting import Training

RUNS = {
    "fit": "train a model",
    "validate": "losses of a run on held-out draws",
    "test": "the same, logged as test/...",
    "predict": "write the latents of held-out draws",
}
RUN = "runs/beta_vae_dsprites/version_0"
FIT_EXAMPLES = (
    "unknot fit --config beta_vae_dsprites",
    "unknot fit --config beta_vae_dsprites --model.beta 8 --seed_everything 1",
    "unknot fit -c beta_vae_dsprites --data.dataset ColorDSprites      # the image shape is inferred",
    "unknot fit -c beta_vae --data ImageDataModule --data.source photos",
    "unknot fit -c beta_vae_dsprites --optimizer AdamW --optimizer.lr 1e-3 --lr_scheduler ExponentialLR \\",
    "           --lr_scheduler.gamma 0.9999",
    "unknot fit --import mymodels --model MyVAE --data ImageDataModule --data.source photos",
    "unknot fit --config ada_gvae_dsprites --pretrained unknot/adagvae-dsprites --model.lr 1e-5",
    f"unknot fit --resume {RUN}",
    "",
    f"bundled configurations: {', '.join(configs.names())}",
)


def add_to(commands: Commands) -> None:
    """Add the most frequent options of the four commands; ``--help-all`` shows the rest."""
    for name, summary in RUNS.items():
        examples = FIT_EXAMPLES if name == "fit" else (f"unknot {name} {RUN}",)
        parser = command(commands, name, summary, *examples)
        parser.description = (
            f"{summary[0].upper()}{summary[1:]}, by LightningCLI: every argument of the model, the data\n"
            "and the Trainer can be set in a YAML file or as --key.sub_key value."
        )
        if name != "fit":
            parser.add_argument("run", nargs="?", metavar="RUN", help="folder of the run, or of a job of a study")
        parser.add_argument(
            "-c", "--config", metavar="NAME|PATH", help="a bundled configuration or a YAML file; repeat to override"
        )
        parser.add_argument("--model.KEY", metavar="VALUE", help="an argument of the model, e.g. --model.beta 8")
        parser.add_argument("--data.KEY", metavar="VALUE", help="an argument of the data, e.g. --data.batch_size 32")
        parser.add_argument(
            "--trainer.KEY", metavar="VALUE", help="an argument of the Trainer, e.g. --trainer.max_steps 20000"
        )
        if name == "fit":
            parser.add_argument(
                "--optimizer",
                metavar="NAME",
                help="optimiser of torch.optim instead of Adam; --optimizer.KEY sets its arguments",
            )
            parser.add_argument(
                "--lr_scheduler",
                metavar="NAME",
                help="scheduler of torch.optim.lr_scheduler, stepped every step; --lr_scheduler.KEY sets its arguments",
            )
        parser.add_argument("--seed_everything", metavar="SEED", help="seed of weights, noise and data")
        if name == "fit":
            parser.add_argument("--resume", metavar="RUN", help="continue a run exactly, from its folder")
            parser.add_argument(
                "--checkpoint_every", metavar="STEPS", help="steps between saves of last.ckpt (default: 1000)"
            )
        parser.add_argument(imports.FLAG, metavar="MODULE", help=imports.HELP)
        parser.add_argument(
            "--pretrained",
            metavar="REF",
            help="start from the weights of a checkpoint (bundled, USER/REPO, folder)",
        )
        parser.add_argument("--ckpt_path", metavar="FILE", help="start from this Lightning checkpoint")
        parser.add_argument("--print_config", action="store_true", help="print the whole configuration and exit")
        parser.add_argument("--help-all", action="store_true", help="show every argument of the Trainer too")


@dataclass
class Request:
    """Command line in which names of configurations and runs are replaced by their options."""

    words: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Configurations, as they were named."""


def run_command(argv: list[str], imported: Sequence[str]) -> int:
    """Train, validate, test or predict; the arguments after the command are LightningCLI's."""
    # The zoo must use the same Lightning as this command line, here and in child processes.
    os.environ["UNKNOT_LIGHTNING"] = "pytorch_lightning"
    import signal

    from unknot.cli.errors import in_plain_words
    from unknot.machine import keep_freed_memory
    from unknot.training.fitting import Training, fit_settings, hush_lightning
    from unknot.training.stopping import Stop, Stopped

    hush_lightning()
    keep_freed_memory()
    action, *rest = argv
    training = Training(imported=imported, say=lambda line: print(line, flush=True), stop=Stop())
    request = Request()
    try:
        with in_plain_words(request), training.stop.listening(signal.SIGINT, signal.SIGTERM), training.opened():
            _read(training, request, action, rest)
            training.settings = request.words
            if action == "fit":
                _print_result(training, fit_settings(training).path)
            else:
                _look(training, action)
    except (Stopped, KeyboardInterrupt) as stop:
        signum = stop.signum if isinstance(stop, Stopped) else signal.SIGINT
        run = training.run
        if run is None or not run.has_state():
            print("Stopped before anything was saved.", file=sys.stderr)
        else:
            command = f"unknot fit --resume {shlex.quote(str(run.path))}{_imports(training)}"
            print(f"Stopped. Resume it with: {command}", file=sys.stderr)
        return 128 + signum
    return 0


def _read(training: "Training", request: Request, action: str, argv: list[str]) -> None:
    """Read the run and the configurations from the command line; leave the rest to the parser."""
    from unknot.training.run_folder import RunFolder

    words: list[str] = []
    for word in argv:
        flag, equals, value = word.partition("=")
        words += [flag, value] if equals and flag in ("-c", "--config", "--resume") else [word]
    if action != "fit" and words and not words[0].startswith("-"):
        words[:1] = ["--resume", words[0]]
    rest, resumed = iter(words), None
    for word in rest:
        if word in ("-c", "--config"):
            path = configs.find(next(rest, ""))
            owner = RunFolder.owner_of(path)
            training.name = owner.path.resolve().parent.name if owner else path.stem
            if action == "predict" and owner:
                training.run = owner
            request.words += ["--config", _resolved(path)]
            request.files.append(str(path))
        elif word == "--resume":
            resumed = RunFolder.open(next(rest, ""))
        else:
            request.words.append("--help" if word == "--help-all" else word)
    if resumed is not None:
        _resume(training, request, resumed, action)
    options = {word.partition("=")[0] for word in request.words}
    for file in request.files if len(request.files) == 1 else ():
        bundled = configs.FOLDER in Path(file).resolve().parents
        if bundled and "data" not in configs.load(file) and not {"--data", "--data.class_path"} & options:
            raise ValueError(
                f"{Path(file).stem} names no data. Give --data NAME, as in --data ImageDataModule --data.source DIR."
            )


def _resume(training: "Training", request: Request, run: Any, action: str) -> None:
    """Use the settings of a run; a job of a study is never changed."""
    from unknot.studies.study import BOOKKEEPING
    from unknot.training.run_folder import LAST

    run.settings()  # raises an error if they are damaged
    given, request.words = request.words, ["--config", str(run.config)]
    request.files.append(str(run.config))
    options = {word.removeprefix("--trainer.").partition("=")[0] for word in given if word.startswith("--")}
    longer = action == "fit" and run.is_job and options - BOOKKEEPING
    if action == "fit" and not longer:
        training.run, training.every_seconds = run, 60.0 if run.is_job else None
        if run.is_job:
            training.job = run.summary.study or {"name": run.path.parents[2].name, "job": run.path.name, "settings": {}}
    else:
        state = run.resumption().checkpoint
        is_newest = state is not None and state.name == LAST
        if not is_newest and action != "fit" and run.is_trained():
            state = None  # the saved model is newer
        if run.has_state() and not is_newest:
            training.say(f"{run.checkpoints / LAST} is damaged or missing; using {state or run.model}.")
        if state is not None:
            request.words += ["--ckpt_path", str(state)]
        elif run.is_trained() and not longer:
            request.words += ["--pretrained", str(run.model)]
        else:
            raise ValueError(
                f"{run.path}: no checkpoint to continue from. Start from the weights: --pretrained {run.model}."
            )
        training.run = None if longer else run
    if longer:
        training.name = run.summary.model
        training.say(f"{run.path} is a job of a study and stays as it is; the longer training goes to a new folder.")
    training.keep_shape = True
    request.words += given


def _resolved(path: Path) -> str:
    """Return a configuration for the parser: the file, or the merged text of one with a base."""
    import yaml

    from unknot.training.fitting import check_source

    content = configs.read(path)
    if not isinstance(content, dict) or "base" not in content:
        check_source(content, path)
        return str(path)
    content = configs.load(path)
    check_source(content, path)
    return yaml.safe_dump(content, sort_keys=False)


def _imports(training: "Training") -> str:
    return "".join(f" --import {shlex.quote(module)}" for module in training.imported)


def _print_result(training: "Training", folder: Path) -> None:
    """Print the folder, and the command that scores the model."""
    if training.run is None or not training.run.is_trained():
        return
    from unknot.zoo import MODELS

    print(f"Model, checkpoints, logs and pictures are in {folder}.")
    capabilities = getattr(MODELS.get(training.run.summary.model or ""), "capabilities", ())
    commands = {"codes": "evaluate", "sets": "slots ap", "slots": "slots attention"}
    name = next((commands[part] for part in commands if part in capabilities), None)
    if name:
        model = folder if name == "evaluate" else training.run.model
        own = " --images FOLDER --labels CSV" if name == "evaluate" and not training.run.summary.dataset else ""
        print(f"Score it with: unknot {name} {shlex.quote(str(model))}{_imports(training)}{own}")


def _look(training: "Training", action: str) -> None:
    """Validate, test or predict."""
    import numpy as np
    import torch

    from unknot.files import replacing
    from unknot.training.run_folder import RunFolder

    run, training.run = training.run, None
    training.trainer = {"logger": False, "enable_checkpointing": False}
    cli = training.cli()
    state, trainer = cli.config.get("ckpt_path"), cli.trainer
    if action != "predict":
        getattr(trainer, action)(cli.model, cli.datamodule, ckpt_path=state, weights_only=True)
        return
    if trainer.world_size > 1:  # each process would write only its own part
        raise ValueError(
            f"predict writes all latents, in order, to one file, but {trainer.world_size} processes were requested. "
            "Run it with --trainer.devices 1 --trainer.num_nodes 1."
        )
    batches = trainer.predict(cli.model, cli.datamodule, ckpt_path=state, weights_only=True)
    if batches:
        path = (run or RunFolder(".")).codes
        with replacing(path) as beside, beside.open("wb") as file:
            np.save(file, torch.cat([torch.as_tensor(batch) for batch in batches]).numpy())
        print(f"Latents are in {path}.")
