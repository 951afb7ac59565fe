"""Read Lightning checkpoints of the zoo's models as saved models."""

import json
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from unknot.checkpoints.names import CONFIG, WEIGHTS
from unknot.files import open_regular

SUFFIX = ".ckpt"
MODEL = "unknot_model"
"""Key of a checkpoint for the name of the model's class."""


def is_checkpoint(ref: Any) -> bool:
    """Return whether a reference names a file ``*.ckpt``.

    >>> is_checkpoint("runs/mine/version_0/checkpoints/best.ckpt"), is_checkpoint("unknot/adagvae-dsprites")
    (True, False)
    """
    return isinstance(ref, str | Path) and Path(ref).suffix == SUFFIX


@contextmanager
def as_saved_model(path: str | Path, name: str | None = None) -> Iterator[Path]:
    """Provide a temporary folder with the model of a Lightning checkpoint, in the format of ``save_pretrained``.

    Only tensors and plain values are read; the class is looked up by its name, never imported.

    Args:
        path: file of the checkpoint.
        name: name of the class, for checkpoints that do not record it.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            stored = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file.") from None
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path}: it holds more than tensors and plain values, and reading other objects could run code. Load it "
            "with the class's own load_from_checkpoint if you trust it, and save it by save_pretrained."
        ) from None
    except Exception as error:  # torch raises many kinds of errors for other files
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise ValueError(f"{path}: not a whole Lightning checkpoint ({reason}).") from None
    weights = stored.get("state_dict") if isinstance(stored, Mapping) else None
    if not isinstance(weights, Mapping) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ValueError(f"{path}: not a Lightning checkpoint, as it has no state_dict of tensors.")
    config = _configuration(stored, path, name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        save_file({str(key): value.contiguous().clone() for key, value in weights.items()}, folder / WEIGHTS)
        yield folder


def _configuration(stored: Mapping[str, Any], path: Path, name: str | None) -> dict[str, Any]:
    from unknot.zoo.pretrained import arguments_of
    from unknot.zoo.registry import MODELS

    given = stored.get("hyper_parameters")
    given = dict(given) if isinstance(given, Mapping) else {}
    noted = stored.get(MODEL) or str(given.get("_class_path", "")).rpartition(".")[2]
    name = noted or name
    if not name:
        raise ValueError(f"{path}: it does not name its model's class. Use that of the class: BetaVAE.from_pretrained.")
    if name not in MODELS:
        raise ValueError(f"{path}: unknown model {str(name)[:100]!r}. Import the module that registers it.")
    arguments = {key: given[key] for key in arguments_of(MODELS[name]) if key in given}
    dataset = stored.get("trained_on")
    try:
        json.dumps(arguments)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: its hyper-parameters are not plain values. Use load_from_checkpoint.") from None
    return {"model": name, "arguments": arguments, "dataset": dataset if isinstance(dataset, str) else None}
