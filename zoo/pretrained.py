"""Checkpoints: ``config.json`` (data, never code) and ``model.safetensors``. Nothing is ever unpickled."""

import inspect
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import nn
from typing_extensions import Self

from unknot import __version__
from unknot._files import replacing
from unknot._lightning import pl

if TYPE_CHECKING:
    from unknot.hub.sources import Source

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KEYS = {"model", "arguments", "dataset", "unknot"}
FLOATS = {"F16", "BF16", "F32", "F64"}
MAX_CONFIG = 1 << 20
MAX_LIST = 64


class Pretrained:
    """``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` for a LightningModule that calls
    ``save_hyperparameters``."""

    trained_on: str | None = None
    """Name of the data set the weights come from, where it has one."""

    hub_repo: str | None = None
    """Name of the repository or shipped checkpoint that the weights were loaded from."""

    hub_revision: str | None = None
    """The commit of the hub that the weights were loaded from."""

    def extra_repr(self) -> str:
        """Where the weights come from, for ``print(model)``."""
        return f"from {self.hub_repo}" + (f"@{self.hub_revision}" if self.hub_revision else "") if self.hub_repo else ""

    def save_pretrained(self, folder: str | Path, dtype: torch.dtype | None = None) -> Path:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``.

        Args:
            folder: made if it does not exist.
            dtype: precision to store the weights in, e.g. ``torch.float16`` for half the size; they are float32 again
                when loaded. ``None`` stores them as they are.
        """
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
        weights = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in self.state_dict().items()}
        # Both are written before either takes its place, so that a failure leaves the old pair.
        with replacing(folder / WEIGHTS) as weights_beside, replacing(folder / CONFIG) as config_beside:
            save_file(weights, weights_beside, metadata={"format": "pt"})  # a second entry would come in random order
            config_beside.write_text(text, encoding="utf-8")
            weights_beside.chmod(config_beside.stat().st_mode)  # safetensors lets nobody else read
        return folder

    @classmethod
    def from_pretrained(cls, ref: str | Path, **options: Any) -> Self:
        """Load a checkpoint, strictly, in evaluation mode.

        Args:
            ref: a shipped name (``unknot/adagvae-dsprites``), ``USER/REPO`` or ``USER/REPO@REVISION`` of a hub, or a
                folder that :meth:`save_pretrained` wrote.
            options: ``revision``, ``endpoint``, ``token``, ``cache_dir``, ``local_files_only`` and ``max_bytes``, as in
                :func:`unknot.hub.sources.resolve`; whatever else is given replaces an argument of the model.

        >>> import tempfile
        >>> from unknot.zoo import BetaVAE
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = BetaVAE(beta=2.0).save_pretrained(folder)
        ...     BetaVAE.from_pretrained(folder).beta, BetaVAE.from_pretrained(folder, beta=4.0).beta
        (2.0, 4.0)
        """
        from unknot.hub.loading import WHERE, find, overridden  # the zoo itself knows no hub

        source = find(ref, **{name: value for name, value in options.items() if name in WHERE})
        config = overridden(read_config(source), options)
        if config["model"] != cls.__name__:
            raise ValueError(
                f"{source.label(CONFIG)}: this is a {config['model']}, not a {cls.__name__}. "
                f"Load it with {config['model']}.from_pretrained, or with unknot.hub.load."
            )
        return build(cls, source, config)

    def push_to_hub(
        self, repo: str, scores: Mapping[str, float] | None = None, private: bool | None = None, **options: Any
    ) -> str:
        """Publish the model with a card, and give the address of the commit.

        Args:
            repo: ``USER/NAME``; made if it does not exist.
            scores: from ``evaluate``; they go into the card as numbers.
            private: whether a new repository is private, which it is unless this is False.
            options: further ones of :func:`unknot.hub.push`, such as ``seed``, ``command``, ``images`` and ``dry_run``.
        """
        from unknot.hub.publishing import push

        return push(self, repo, scores, private, **options)  # type: ignore[arg-type]


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


def read_config(source: "Source") -> dict[str, Any]:
    """Read and check ``config.json``."""
    path, label = source.path(CONFIG), source.label(CONFIG)
    try:
        if path.stat().st_size > MAX_CONFIG:
            raise ValueError(f"{label}: {path.stat().st_size:,} bytes; no configuration has more than {MAX_CONFIG:,}.")
        text = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{label}: no such file; {source.folder} does not hold a saved model.") from None
    try:
        config = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{label}: not valid JSON ({error}). Save the model again.") from None
    if not isinstance(config, dict) or not isinstance(config.get("arguments"), dict):
        raise ValueError(f"{label}: expected an object with 'model' and 'arguments'. Save the model again.")
    if unknown := sorted(config.keys() - KEYS):
        raise ValueError(f"{label}: unknown keys {unknown}; known are {sorted(KEYS)}. Remove them.")
    if not isinstance(config.get("model"), str) or not isinstance(config.get("dataset"), str | None):
        raise ValueError(f"{label}: 'model' must be a name and 'dataset' a name or null.")
    return config


def build(cls: type[Any], source: "Source", config: dict[str, Any]) -> Any:
    """A model of class ``cls`` with the arguments of ``config`` and the weights of ``source``, in evaluation mode."""
    label, arguments = source.label(CONFIG), config["arguments"]
    known = arguments_of(cls)
    if unknown := sorted(arguments.keys() - set(known)):
        raise ValueError(f"{label}: {cls.__name__} has no arguments {unknown}; it takes {known}. Remove them.")
    if long := sorted(name for name, value in arguments.items() if isinstance(value, list) and len(value) > MAX_LIST):
        raise ValueError(f"{label}: {long} must be lists of at most {MAX_LIST} values; a layer is built for each.")
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
    try:
        with torch.device("meta"):  # allocates nothing, so that hostile sizes cost nothing
            model = cls(**arguments)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]  # torch may add a stack trace
        raise ValueError(f"{label}: these arguments do not build a {cls.__name__}: {reason}") from None
    model.load_state_dict(_read_weights(source, model), strict=True, assign=True)
    model.to("cpu")  # the weights are there already; this tells Lightning, which remembers where it was built
    model.trained_on = config.get("dataset")
    model.hub_repo, model.hub_revision = source.repo, source.commit
    return model.eval()


def _read_weights(source: "Source", model: nn.Module) -> dict[str, torch.Tensor]:
    """Read weights, in any float precision, whose names and shapes in the header are exactly those of ``model``."""
    expected = model.state_dict()
    path, label = source.path(WEIGHTS), source.label(WEIGHTS)
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
                told = "; ".join(_plain(problem) for problem in problems[:3])
                raise ValueError(
                    f"{label}: not the weights of this {type(model).__name__} ({told}{more}). "
                    f"{CONFIG} and {WEIGHTS} must come from the same model."
                )
            # A copy, because these tensors are windows into the file, which may yet be overwritten.
            weights = {name: file.get_tensor(name).to(tensor.dtype, copy=True) for name, tensor in expected.items()}
    except FileNotFoundError:
        raise FileNotFoundError(f"{label}: no such file; the folder holds a config but no weights.") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{label}: not a whole safetensors file ({_plain(error)}). Copy or save it again.") from None
    if broken := [name for name, tensor in weights.items() if not tensor.isfinite().all()]:
        named = ", ".join(_plain(name) for name in broken[:3]) + (", ..." if len(broken) > 3 else "")
        warnings.warn(f"{label}: {named} hold numbers that are not finite; so will what is computed.", stacklevel=5)
    return weights


def _plain(text: object) -> str:
    """What a stranger wrote, for a message: short, and without what a terminal obeys."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:200])
