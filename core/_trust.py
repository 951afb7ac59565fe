"""What a configuration may name: it is data, wherever it comes from, and runs nobody's code.

A YAML file of LightningCLI names classes, which are imported and called. A file may name those of :data:`ALLOWED`; of
anything else only what the command line itself names, as an option or as ``--import MODULE``.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from jsonargparse import _common, set_parsing_settings

ALLOWED = (
    *("unknot.zoo", "unknot.datamodules", "unknot.metrics"),
    *("torch.nn", "torch.optim", "torchvision.models", "torchvision.transforms"),
    *("pytorch_lightning.callbacks", "pytorch_lightning.cli.ReduceLROnPlateau"),
    *("pytorch_lightning.loggers.CSVLogger", "pytorch_lightning.loggers.csv_logs"),
    *("pytorch_lightning.loggers.TensorBoardLogger", "pytorch_lightning.loggers.tensorboard"),
)
DENIED = (  # "*" is everything that is not allowed
    *("*", "pytorch_lightning.callbacks.LambdaCallback", "pytorch_lightning.callbacks.lambda_function"),
)
FILES = ("-c", "--config", "--resume", "--ckpt_path")
DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
REFUSED = re.compile(r"Importing '([\w.]+)' is not allowed")


@contextmanager
def only_known_classes(modules: Iterable[str]) -> Iterator[None]:
    """While parsing, import nothing for a configuration but what is allowed and ``modules``, with all below them."""
    before = dict(_common.parsing_settings)
    set_parsing_settings(
        import_path_denylist=list(DENIED),
        import_path_allowlist=[*ALLOWED, *modules],
        instantiate_subclass_spec_in_any=False,
        config_read_mode_fsspec_enabled=False,  # nor does a file fetch another one
    )
    try:
        yield
    finally:
        _common.parsing_settings.update(before)
        set_parsing_settings(config_read_mode_fsspec_enabled=True)  # as Lightning leaves it


def named_modules(words: Iterable[str]) -> list[str]:
    """Modules of the classes that the words of a command line name, other than in names of files.

    >>> named_modules(["fit", "--config", "training.yaml", "--model", "mine.models.MyVAE", "--data=data.Frames"])
    ['mine.models', 'data']
    """
    modules = []
    flag = ""
    for word in words:
        if word.startswith("-"):
            flag, _, word = word.partition("=")
        if flag not in FILES:
            modules += [path.rpartition(".")[0] for path in DOTTED.findall(word)]
    return modules


def refusal(message: str) -> str | None:
    """What to tell the user where a parser's message says that something may not be imported."""
    found = REFUSED.search(message)
    if not found:
        return None
    return (
        f"it names {found[1]}, and a configuration may only name classes of unknot, torch.nn, torch.optim, "
        "torchvision's models and transforms, and Lightning's callbacks, as it could run code. If you know what it is, "
        f"add --import {found[1].rpartition('.')[0]}"
    )
