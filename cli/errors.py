"""Error messages of LightningCLI, its parser and the Trainer, rewritten to say what to do."""

import difflib
import inspect
import itertools
import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentError
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from unknot import zoo
from unknot.arguments import did_you_mean
from unknot.datamodules import DATASETS, GroundTruthDataset, SceneDataset
from unknot.lightning import pl
from unknot.training.settings import first_cause, reason_of
from unknot.training.stopping import Stopped

if TYPE_CHECKING:
    from unknot.cli.fit import Request

HELP = "--help-all lists every option, --model.help NAME and --data.help NAME those of a class."

KINDS: dict[str, tuple[type, ...]] = {
    "model": (zoo.Model,),
    "data": (pl.LightningDataModule,),
    "data.dataset": (GroundTruthDataset, SceneDataset),
    "optimizer": (Optimizer,),
    "lr_scheduler": (LRScheduler,),
}
OPTION = re.compile(rf"--({'|'.join(map(re.escape, KINDS))})(?:\.class_path)?")
OPTIONS = (
    *(f"--{name}" for name in ("config", "resume", "import", "ckpt_path", "checkpoint_every", "seed_everything")),
    *(f"--{name}" for name in ("model", "data", "optimizer", "lr_scheduler", "print_config", "help-all")),
    *(f"--trainer.{name}" for name in inspect.signature(pl.Trainer).parameters),
)
UNKNOWN = re.compile(r"unrecognized arguments: (--[\w.]+)")


@contextmanager
def in_plain_words(request: "Request") -> Iterator[None]:
    """Raise the errors of a parser or a Trainer as a ``ValueError`` in one line."""
    try:
        yield
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "PytorchStreamReader" not in str(error):
            raise
        paths = [f"{path}: " for word, path in itertools.pairwise(request.words) if word == "--ckpt_path"]
        raise ValueError(
            f"{''.join(paths)}not a whole Lightning checkpoint of tensors and plain values; nothing else is read, as "
            "it could run code. Give another one, or train from scratch."
        ) from error
    except ArgumentError as error:
        reason = misspelt(str(error), request.words)
        if reason is None:
            reason = reason_of(str(error))
            reason = "".join(f"{file}: " for file in request.files) + reason
        raise ValueError(f"{reason}{'' if reason.endswith(('.', '?')) else '.'} {HELP}") from error
    except MisconfigurationException as error:
        hint = " Take --trainer.accelerator auto or cpu." if "backend found" in str(error) else ""
        raise ValueError(f"{error}{hint}") from error
    except ValueError as error:  # errors of a DataModule are wrapped too, those of a model are not
        raise ValueError(first_cause(str(error))) from error
    except SIGTERMException:
        raise Stopped from None


def misspelt(message: str, words: Sequence[str]) -> str | None:
    """Return a message for a misspelt or missing option, with a suggestion."""
    given = dict(_options(words))
    for part in ("model", "data"):
        parts = [option for option in given if option.startswith(f"--{part}.")]
        if parts and not {f"--{part}", f"--{part}.class_path", "--config"} & given.keys():
            return f"{parts[0]} needs --{part} NAME before it. {did_you_mean('', class_names(*KINDS[part]))}"
    for option, value in given.items():
        match = OPTION.fullmatch(option)
        if match and value.isidentifier() and value not in (known := class_names(*KINDS[match[1]])):
            class_of = {name: made for name, made in DATASETS.items() if isinstance(made, type)}
            hint = f"Did you mean {class_of[value].__name__!r}?" if value in class_of else did_you_mean(value, known)
            return f"--{match[1]} {value}: no such class. {hint} One of your own needs --import MODULE."
    if match := UNKNOWN.search(message):
        close = difflib.get_close_matches(match[1], OPTIONS, n=1)
        return f"{match[1]}: no such option." + (f" Did you mean {close[0]!r}?" if close else "")
    return None


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, following in zip(words, [*words[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        if option.startswith("--"):
            yield option, value if equals else following


def class_names(*bases: type) -> list[str]:
    """Return the names of unknot's and imported classes that can be used for one of ``bases``."""
    names, below = set[str](), list[Any](bases)
    while below:
        below += (subclasses := below.pop().__subclasses__())
        names |= {cls.__name__ for cls in subclasses if not inspect.isabstract(cls)}
    return sorted(name for name in names if not name.startswith("_"))
