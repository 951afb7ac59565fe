"""Save and load checkpoints: ``config.json`` (data, never code) and ``model.safetensors``.

From a Lightning checkpoint, only tensors and plain values are unpickled.
"""

import copy
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import safetensors
import torch
from safetensors.torch import save_file
from typing_extensions import Self

from unknot import __version__
from unknot.arguments import ShowsArguments, signature_of, with_article
from unknot.checkpoints.locate import WHERE, Source, find
from unknot.checkpoints.names import CONFIG, WEIGHTS
from unknot.files import open_regular, read_limited, replacing, sha256_of
from unknot.lightning import pl
from unknot.randomness import kept_generators
from unknot.zoo.lightning_checkpoint import as_saved_model, is_checkpoint

BEFORE = ".model.safetensors.before"
"""Name of the old weights while they are being replaced."""
KEYS = {"model", "arguments", "annealed", "dataset", "unknot", "weights"}
RESIZED = "It was stored with other sizes or networks: give the model the same."
SAME = f"{CONFIG} and {WEIGHTS} must come from the same model."
FLOATS = {"F16", "BF16", "F32", "F64"}
MAX_CONFIG = 1 << 20
MAX_LIST = 64


class Pretrained(ShowsArguments):
    """Mixin with ``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` for a LightningModule that calls
    ``save_hyperparameters``.
    """

    trained_on: str | None = None
    """Name of the data set that the weights were trained on, if it has one."""

    loaded_from: Source | None = None
    """Checkpoint of the weights: folder, repository and commit. None after further training."""

    fine_tuned_from: str | None = None
    """Reference of the checkpoint that training started from."""

    training_only: ClassVar[tuple[str, ...]] = ()
    """Names of the modules that only training needs; a checkpoint may lack them."""

    reinitialized: tuple[str, ...] = ()
    """Parts missing from the checkpoint, whose weights are as they were initialised."""

    annealed: dict[str, dict[str, float]]
    """Arguments that changed during training, see :class:`~unknot.zoo.Anneal`; their last value is in ``hparams``."""

    def __init__(self) -> None:
        super().__init__()
        self.annealed = {}

    @property
    def hub_repo(self) -> str | None:
        """Name of the repository or bundled checkpoint that the weights were loaded from."""
        return self.loaded_from.repo if self.loaded_from else None

    @property
    def hub_revision(self) -> str | None:
        """Hub commit that the weights were loaded from."""
        return self.loaded_from.commit if self.loaded_from else None

    def keep_recipes(self, recipes: dict[str, Any]) -> None:
        """Record the name and arguments of each network in the hyper-parameters, and warn where they are unknown."""
        assert isinstance(self, pl.LightningModule)
        self.hparams.update(recipes)
        self._hparams_initial = copy.deepcopy(self.hparams)
        for role, recipe in recipes.items():
            if isinstance(recipe, dict) and "unregistered" in recipe:
                warnings.warn(_unregistered(role, recipe["unregistered"]), stacklevel=3)

    @property
    def begun_anew(self) -> tuple[str, ...]:
        """Former name of ``reinitialized``."""
        warnings.warn("begun_anew is now reinitialized.", FutureWarning, stacklevel=2)
        return self.reinitialized

    def fitted_on(self, dataset: str | None) -> None:
        """Record that training on this data set begins; loaded weights become the starting point."""
        if self.hub_repo:
            self.fine_tuned_from = f"{self.hub_repo}@{self.hub_revision}" if self.hub_revision else self.hub_repo
        self.trained_on, self.loaded_from = dataset, None
        self.reinitialized = ()

    def warn_of_absent(self) -> None:
        """Warn if training needs parts that are missing from the checkpoint."""
        if self.reinitialized:
            parts = " and ".join(self.reinitialized)
            warnings.warn(
                f"{self.hub_repo or 'This checkpoint'} was stored for inference: its {parts} is missing from the "
                "checkpoint and was re-initialised. Losses that depend on it are meaningless until it is trained, "
                "and further training differs from that of the original run.",
                stacklevel=2,
            )

    def extra_repr(self) -> str:
        """Return the origin of the weights, for ``print(model)``."""
        return f"from {self.hub_repo}" + (f"@{self.hub_revision}" if self.hub_revision else "") if self.hub_repo else ""

    def save_pretrained(
        self, folder: str | Path, dtype: torch.dtype | None = None, inference_only: bool = False
    ) -> Path:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``.

        Args:
            folder: destination; created if it does not exist.
            dtype: precision to store the weights in, e.g. ``torch.float16`` for half the size; they are float32 again
                when loaded. ``None`` stores them as they are.
            inference_only: leave out the parts that only training needs, :attr:`training_only`: FactorVAE's
                discriminator is far larger than the rest. Parts that the loaded checkpoint lacked are never stored.
        """
        assert isinstance(self, pl.LightningModule)
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"{folder} is a file; save_pretrained needs a folder.")
        config = self.configuration()  # values that JSON cannot express fail before a file is touched
        weights = {
            name: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
            for name, tensor in self.state_dict().items()
            if not _belongs(name, self.training_only if inference_only else self.reinitialized)
        }
        # Both are written before either is renamed, so that a failure leaves the old pair. Renaming config.json is the
        # commit point: it names its weights by their hash, and until then the old weights are kept.
        with (
            replacing(folder / CONFIG, durable=True) as config_beside,
            _kept_beside(folder),
            replacing(folder / WEIGHTS, durable=True) as weights_beside,
        ):
            save_file(weights, weights_beside, metadata={"format": "pt"})  # further entries would be in random order
            config["weights"] = sha256_of(weights_beside)
            text = json.dumps(config, indent=2) + "\n"
            config_beside.write_text(text, encoding="utf-8")
            weights_beside.chmod(config_beside.stat().st_mode)  # safetensors restricts them to their owner
        (folder / BEFORE).unlink(missing_ok=True)
        return folder

    def configuration(self) -> dict[str, Any]:
        """Return the content of ``config.json``, as JSON would return it."""
        assert isinstance(self, pl.LightningModule)
        arguments = {name: self.hparams[name] for name in arguments_of(type(self)) if name in self.hparams}
        for role, recipe in arguments.items():
            if isinstance(recipe, dict) and "unregistered" in recipe:
                raise ValueError(_unregistered(role, recipe["unregistered"]))
        config = {
            "model": type(self).__name__,
            "arguments": arguments,
            **({"annealed": self.annealed} if self.annealed else {}),
            "dataset": self.trained_on,
            "unknot": __version__,
        }
        plain: dict[str, Any] = json.loads(
            json.dumps(config, default=lambda value: value.item())
        )  # also NumPy's numbers
        return plain

    @classmethod
    def from_pretrained(cls, ref: str | Path, **options: Any) -> Self:
        """Load a checkpoint, strictly, in evaluation mode.

        Args:
            ref: a bundled name (``unknot/adagvae-dsprites``), ``USER/REPO`` or ``USER/REPO@REVISION`` of a hub, or a
                folder that :meth:`save_pretrained` wrote; or a Lightning checkpoint ``*.ckpt``.
            options: ``revision``, ``endpoint``, ``token``, ``cache_dir``, ``local_files_only`` and ``max_bytes``, as in
                :func:`unknot.checkpoints.locate.resolve`; all others replace arguments of the model.

        >>> import tempfile
        >>> from unknot.zoo import BetaVAE
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = BetaVAE(beta=2.0).save_pretrained(folder)
        ...     BetaVAE.from_pretrained(folder).beta, BetaVAE.from_pretrained(folder, beta=4.0).beta
        (2.0, 4.0)
        """
        if is_checkpoint(ref):
            with as_saved_model(ref, cls.__name__) as folder:
                return cls.from_pretrained(folder, **options)
        source = find(ref, **{name: value for name, value in options.items() if name in WHERE})
        config = overridden(read_config(source), options)
        if config["model"] != cls.__name__:
            raise ValueError(
                f"{source.label(CONFIG)}: this is {with_article(config['model'])}, not {with_article(cls.__name__)}. "
                f"Load it with {config['model']}.from_pretrained, or with unknot.hub.load."
            )
        return build(cls, source, config)

    def start_from(self, ref: str | Path | Mapping[str, torch.Tensor], **where: Any) -> Self:
        """Load weights of the same class and sizes into this model, keeping its arguments, to train on from there.

        Unlike :meth:`from_pretrained`, this ignores the arguments stored in the checkpoint.

        Args:
            ref: as for :meth:`from_pretrained`; or a state dict, tensors by name.
            where: ``revision``, ``endpoint``, ``token``, ``cache_dir``, ``local_files_only`` and ``max_bytes``.

        >>> import tempfile
        >>> from unknot.zoo import BetaVAE
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = BetaVAE(beta=2.0).save_pretrained(folder)
        ...     BetaVAE(beta=4.0).start_from(folder).beta
        4.0
        """
        assert isinstance(self, pl.LightningModule)
        if isinstance(ref, Mapping):
            return self._take(ref)
        if is_checkpoint(ref):
            with as_saved_model(ref, type(self).__name__) as folder:
                return self.start_from(folder, **where)
        source = find(ref, **where)
        config, own = read_config(source), type(self).__name__
        if (name := config["model"]) != own:
            raise ValueError(f"{source.label(CONFIG)}: {with_article(own)} cannot start from {with_article(name)}.")
        weights = _read_weights(
            source, self, config.get("weights"), "It was stored with other sizes or networks: give the model the same."
        )
        self.reinitialized = _absent(self, weights)
        self.load_state_dict(weights, strict=not self.reinitialized)  # the names were compared already
        self.loaded_from = source.plain()
        return self

    def _take(self, state: Mapping[str, torch.Tensor]) -> Self:
        """Copy a state dict into the model; parts that only training needs may be absent as a whole."""
        assert isinstance(self, pl.LightningModule)
        own, absent = self.state_dict(), _absent(self, state)
        expected = {name for name in own if not _belongs(name, absent)}
        problems = [f"no {name}" for name in sorted(expected - state.keys())]
        problems += [f"unexpected {name}" for name in sorted(map(str, state.keys() - expected))]
        problems += [
            f"{name} is {list(getattr(state[name], 'shape', ())) or state[name]!r:.40} and not {list(own[name].shape)}"
            for name in expected & state.keys()
            if not isinstance(state[name], torch.Tensor) or state[name].shape != own[name].shape
        ]
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise ValueError(
                f"Not the state dict of this {type(self).__name__} ({'; '.join(problems[:3])}{more}). Give the model "
                "the sizes and networks that the weights were trained with."
            )
        self.load_state_dict({name: state[name] for name in expected}, strict=not absent)
        self.reinitialized, self.loaded_from = absent, None
        return self

    def push_to_hub(
        self, repo: str, scores: Mapping[str, float] | None = None, private: bool | None = None, **options: Any
    ) -> str:
        """Publish the model with a card, and return the address of the commit.

        Args:
            repo: ``USER/NAME``; created if it does not exist.
            scores: scores from ``evaluate``, listed in the card.
            private: whether a new repository is private (the default).
            options: further ones of :func:`unknot.hub.push`, such as ``seed``, ``command``, ``images`` and ``dry_run``.
        """
        from unknot.hub import push

        model: Any = self
        return push(model, repo, scores, private, **options)


@contextmanager
def _kept_beside(folder: Path) -> Iterator[None]:
    """Keep the old weights under another name while they are replaced; restore them on failure."""
    before, weights = folder / BEFORE, folder / WEIGHTS
    before.unlink(missing_ok=True)
    if (folder / CONFIG).is_file() and weights.is_file():
        try:
            os.link(weights, before)
        except OSError:  # a file system without hard links
            shutil.copyfile(weights, before)
    try:
        yield
    except BaseException:
        if before.is_file():
            if sha256_of(before) != sha256_of(weights):
                before.replace(weights)
            before.unlink(missing_ok=True)
        raise


def overridden(config: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration whose arguments are overridden by those among ``options``."""
    own = {name: value for name, value in options.items() if name not in WHERE}
    return config | {"arguments": config["arguments"] | own}


def _unregistered(role: str, network: str) -> str:
    return (
        f"The {role} is {with_article(network)} of which nothing is registered, so that the model trains but "
        "cannot be saved to load again: register its class, or the function that makes it, with "
        "@unknot.zoo.register_network."
    )


def arguments_of(cls: type[Any]) -> list[str]:
    """Return the names of the arguments of a class, including those that it passes to its bases as ``**keywords``.

    >>> from unknot.zoo import BetaVAE
    >>> arguments_of(BetaVAE)[:5]
    ['beta', 'image_shape', 'latent_dim', 'lr', 'likelihood']
    """
    return list(signature_of(cls).parameters)


def read_config(source: Source) -> dict[str, Any]:
    """Read and check ``config.json``."""
    path, label = source.path(CONFIG), source.label(CONFIG)
    try:
        text = read_limited(path, MAX_CONFIG)
    except ValueError as error:
        raise ValueError(f"{label}: no configuration of a model ({error}).") from None
    except FileNotFoundError:
        run = (source.folder / "model" / CONFIG).is_file()
        hint = f"the model of this run is in {source.folder / 'model'}" if run else "it does not hold a saved model"
        raise FileNotFoundError(f"{label}: no such file in {source.folder}; {hint}.") from None
    try:
        config = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{label}: not valid JSON ({error}). Save the model again.") from None
    if not isinstance(config, dict) or not isinstance(config.get("arguments"), dict):
        raise ValueError(f"{label}: expected an object with 'model' and 'arguments'. Save the model again.")
    if unknown := sorted(config.keys() - KEYS):
        raise ValueError(f"{label}: unknown keys {unknown}; known are {sorted(KEYS)}. Remove them.")
    if not isinstance(config.get("weights"), str | None):
        raise ValueError(f"{label}: 'weights' must be the SHA-256 of {WEIGHTS}. Save the model again.")
    if not isinstance(config.get("model"), str) or not isinstance(config.get("dataset"), str | None):
        raise ValueError(f"{label}: 'model' must be a name and 'dataset' a name or null.")
    plans = config.get("annealed", {})
    if not isinstance(plans, dict) or not all(_is_plan(plan) for plan in plans.values()):
        raise ValueError(f"{label}: 'annealed' must be an object of objects with the numbers start, end and steps.")
    return config


def build(cls: type[Any], source: Source, config: dict[str, Any]) -> Any:
    """Build a model of class ``cls`` from the arguments of ``config`` and the weights of ``source``, in evaluation
    mode.
    """
    label, arguments = source.label(CONFIG), config["arguments"]
    known = arguments_of(cls)
    if unknown := sorted(arguments.keys() - set(known)):
        raise ValueError(f"{label}: {cls.__name__} has no arguments {unknown}; it takes {known}. Remove them.")
    if long := sorted(name for name, value in arguments.items() if _longest(value) > MAX_LIST):
        raise ValueError(f"{label}: {long} must be lists of at most {MAX_LIST} values; a layer is built for each.")
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
    try:
        with torch.device("meta"):  # allocates no memory, so hostile sizes cost nothing
            model = cls(**arguments)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]  # torch may add a stack trace
        raise ValueError(f"{label}: these arguments do not build {with_article(cls.__name__)}: {reason}") from None
    weights = _read_weights(source, model, config.get("weights"))
    absent = _absent(model, weights)
    if absent or any(buffer.is_meta and name not in weights for name, buffer in model.named_buffers()):
        # A user's network computes buffers that are not saved; the sizes have been checked by now.
        with kept_generators():
            model = cls(**arguments)
    model.load_state_dict(weights, strict=not absent, assign=True)  # the names were compared already
    if absent:
        model.reinitialized = absent
    model.to("cpu")  # the weights are in place; this tells Lightning, which remembers the device of construction
    model.trained_on, model.annealed = config.get("dataset"), config.get("annealed", {})
    model.loaded_from = source.plain()
    return model.eval()


def _is_plan(plan: Any) -> bool:
    numbers = isinstance(plan, dict) and all(isinstance(value, int | float) for value in plan.values())
    return numbers and plan.keys() - {"geometric"} == {"start", "end", "steps"}


def _longest(value: Any) -> int:
    """Return the length of the longest list in an argument."""
    if not isinstance(value, list | dict):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return max([len(value), *(_longest(part) for part in parts)])


def _belongs(name: str, parts: Iterable[str]) -> bool:
    """Return whether a tensor belongs to one of these modules."""
    return any(name.startswith(f"{part}.") for part in parts)


def _absent(model: Any, names: Iterable[str]) -> tuple[str, ...]:
    """Return the modules that only training needs and that have no tensor among these names."""
    names = list(names)
    return tuple(part for part in model.training_only if not any(_belongs(name, [part]) for name in names))


def _weights_path(source: Source, recorded: str | None) -> Path:
    """Return the weights file that belongs to ``config.json``; after an interrupted save, the one being replaced."""
    path, before = source.path(WEIGHTS), source.folder / BEFORE
    with open_regular(path):  # a FIFO or a device would block
        pass
    if before.is_file() and (recorded is None or recorded == sha256_of(before) != sha256_of(path)):
        return before
    return path


def _read_weights(
    source: Source,
    model: Any,
    recorded: str | None,
    otherwise: str = SAME,
) -> dict[str, torch.Tensor]:
    """Read weights, after checking that names and shapes in the header match those of ``model``.

    Floats may have any precision, and parts that only training needs may be absent as a whole. An error message ends
    with ``otherwise``.
    """
    expected = model.state_dict()
    label = source.label(WEIGHTS)
    try:
        path = _weights_path(source, recorded)
        with safetensors.safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            absent = _absent(model, shapes)
            expected = {name: tensor for name, tensor in expected.items() if not _belongs(name, absent)}
            problems = [f"no {name}" for name in sorted(expected.keys() - shapes)]
            problems += [f"unexpected {name}" for name in sorted(shapes.keys() - expected)]
            problems += [
                f"{name} is {shapes[name]} and not {tuple(tensor.shape)}"
                for name, tensor in expected.items()
                if name in shapes and shapes[name] != tuple(tensor.shape)
            ]
            problems += [
                f"{name} is {part.get_dtype()}"
                for name, part in slices.items()
                if name in expected and not _stored_as(part.get_dtype(), expected[name].dtype)
            ]
            if problems:
                more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
                shown = "; ".join(_plain(problem) for problem in problems[:3])
                raise ValueError(
                    f"{label}: not the weights of this {type(model).__name__} ({shown}{more}). {otherwise}"
                )
            if recorded not in (None, sha256_of(path)):
                raise ValueError(
                    f"{label}: damaged, or not the weights that {CONFIG} belongs to, whose SHA-256 is {recorded}. Copy "
                    f'both files again; if you changed the weights on purpose, remove "weights" from {CONFIG}.'
                )
            weights = {name: _like(file.get_tensor(name), tensor) for name, tensor in expected.items()}
    except FileNotFoundError:
        raise FileNotFoundError(f"{label}: no such file; the folder holds a config but no weights.") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{label}: not a whole safetensors file ({_plain(error)}). Copy or save it again.") from None
    if broken := [name for name, tensor in weights.items() if not tensor.isfinite().all()]:
        named = ", ".join(_plain(name) for name in broken[:3]) + (", ..." if len(broken) > 3 else "")
        warnings.warn(f"{label}: {named} contain NaN or infinite values; outputs will too.", stacklevel=5)
    return weights


def _plain(text: object) -> str:
    """Return text from an untrusted file for a message: shortened, and without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:200])


def _like(stored: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return a copy with type and layout of ``expected``: stored tensors are windows into a file that may change."""
    last = expected.ndim == 4 and expected.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if last else torch.contiguous_format
    return stored.to(expected.dtype, copy=True, memory_format=layout)


def _stored_as(stored: str, dtype: torch.dtype) -> bool:
    """Return whether a safetensors type may be loaded as a torch type: any float as any float, others only unchanged.

    >>> _stored_as("F16", torch.float32), _stored_as("I64", torch.int64), _stored_as("I32", torch.float32)
    (True, True, False)
    """
    if dtype.is_floating_point:
        return stored in FLOATS
    sizes = {"uint": "U", "int": "I"}
    kind = "".join(letter for letter in str(dtype).partition(".")[2] if letter.isalpha())
    return stored == ("BOOL" if dtype == torch.bool else f"{sizes.get(kind, '')}{8 * dtype.itemsize}")
