"""Checkpoints as folders: ``config.json`` (data, never code) and ``model.safetensors``. Nothing is ever unpickled."""

import inspect
import json
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import nn
from typing_extensions import Self

from unknot import __version__
from unknot._files import replacing
from unknot._lightning import pl

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KEYS = {"model", "arguments", "dataset", "unknot"}
FLOATS = {"F16", "BF16", "F32", "F64"}


class Pretrained:
    """``save_pretrained`` and ``from_pretrained`` for a LightningModule that calls ``save_hyperparameters``."""

    trained_on: str | None = None
    """Name of the data set the weights come from, where it has one."""

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``."""
        assert isinstance(self, pl.LightningModule)
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"{folder} is a file; save_pretrained needs a folder.")
        config = {
            "model": type(self).__name__,
            "arguments": {name: self.hparams[name] for name in arguments_of(type(self))},
            "dataset": self.trained_on,
            "unknot": __version__,
        }
        # NumPy's numbers become Python's; anything else that JSON lacks fails before a file is touched.
        text = json.dumps(config, indent=2, default=lambda value: value.item()) + "\n"
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        # Both are written before either takes its place, so that a failure leaves the old pair.
        with replacing(folder / WEIGHTS) as weights_beside, replacing(folder / CONFIG) as config_beside:
            save_file(weights, weights_beside, metadata={"format": "pt"})  # a second entry would come in random order
            config_beside.write_text(text, encoding="utf-8")
        return folder

    @classmethod
    def from_pretrained(cls, ref: str | Path) -> Self:
        """Load what :meth:`save_pretrained` wrote, strictly, in evaluation mode.

        >>> import tempfile
        >>> from unknot.zoo import BetaVAE
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = BetaVAE(beta=2.0).save_pretrained(folder)
        ...     BetaVAE.from_pretrained(folder).beta
        2.0
        """
        folder = locate(ref)
        config = read_config(folder)
        if config["model"] != cls.__name__:
            raise ValueError(
                f"{folder / CONFIG}: this is a {config['model']}, not a {cls.__name__}. "
                f"Load it with {config['model']}.from_pretrained, or with unknot.hub.load."
            )
        return _build(cls, folder, config)


def arguments_of(cls: type[Any]) -> list[str]:
    """Names of the arguments of a class, those that it hands on to its bases as ``**keywords`` included.

    >>> from unknot.zoo import BetaVAE
    >>> arguments_of(BetaVAE)
    ['beta', 'image_shape', 'latent_dim', 'lr', 'reconstruction']
    """
    names: list[str] = []
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]  # without self
            names += [parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD]
            if all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters):
                break
    return list(dict.fromkeys(names))


def locate(ref: str | Path) -> Path:
    """Folder that ``ref`` names."""
    folder = Path(ref)
    if not folder.is_dir():
        raise FileNotFoundError(f"{ref}: no such folder. Give a folder that save_pretrained or `unknot fit` wrote.")
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """Read and check ``config.json``."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; {folder} does not hold a saved model.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON ({error}). Save the model again.") from None
    if not isinstance(config, dict) or not isinstance(config.get("arguments"), dict):
        raise ValueError(f"{path}: expected an object with 'model' and 'arguments'. Save the model again.")
    if unknown := sorted(config.keys() - KEYS):
        raise ValueError(f"{path}: unknown keys {unknown}; known are {sorted(KEYS)}. Remove them.")
    if not isinstance(config.get("model"), str) or not isinstance(config.get("dataset"), str | None):
        raise ValueError(f"{path}: 'model' must be a name and 'dataset' a name or null.")
    return config


def _build(cls: type[Any], folder: Path, config: dict[str, Any]) -> Any:
    path, arguments = folder / CONFIG, config["arguments"]
    known = arguments_of(cls)
    if unknown := sorted(arguments.keys() - set(known)):
        raise ValueError(f"{path}: {cls.__name__} has no arguments {unknown}; it takes {known}. Remove them.")
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
    try:
        with torch.device("meta"):  # allocates nothing, so that hostile sizes cost nothing
            model = cls(**arguments)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]  # torch may add a stack trace
        raise ValueError(f"{path}: these arguments do not build a {cls.__name__}: {reason}") from None
    model.load_state_dict(_read_weights(folder / WEIGHTS, model), strict=True, assign=True)
    model.trained_on = config.get("dataset")
    return model.eval()


def _read_weights(path: Path, model: nn.Module) -> dict[str, torch.Tensor]:
    """Read weights, in any float precision, whose names and shapes in the header are exactly those of ``model``."""
    expected = model.state_dict()
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: tuple(part.get_shape()) for name, part in slices.items()}
            problems = [f"no {name}" for name in sorted(expected.keys() - found)]
            problems += [f"unexpected {name}" for name in sorted(found.keys() - expected)]
            problems += [
                f"{name} is {found[name]} and not {tuple(tensor.shape)}"
                for name, tensor in expected.items()
                if name in found and found[name] != tuple(tensor.shape)
            ]
            problems += [
                f"{name} is {part.get_dtype()}" for name, part in slices.items() if part.get_dtype() not in FLOATS
            ]
            if problems:
                more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
                raise ValueError(
                    f"{path}: not the weights of this {type(model).__name__} ({'; '.join(problems[:3])}{more}). "
                    f"{CONFIG} and {WEIGHTS} must come from the same model."
                )
            # A copy, because these tensors are windows into the file, which may yet be overwritten.
            return {name: file.get_tensor(name).to(tensor.dtype, copy=True) for name, tensor in expected.items()}
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; the folder holds a config but no weights.") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}). Copy or save it again.") from None
