"""Convert VAE weights from other libraries to models of the zoo.

Only tensors are read (``torch.load`` with ``weights_only``). The supported architectures are the libraries' own:
disent's ``EncoderConv64`` with ``DecoderConv64`` and ``EncoderFC`` with ``DecoderFC``, and pythae's default
``Encoder_VAE_MLP`` with ``Decoder_AE_MLP`` and its convolutional networks for MNIST.
"""

import json
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unknot.arguments import did_you_mean
from unknot.zoo.base import Model
from unknot.zoo.networks import check_image_shape, check_widths, glorot
from unknot.zoo.registry import MODELS
from unknot.zoo.transposed_conv import Transposed
from unknot.zoo.vae import VAE

MAX_CONFIG = 1 << 20
Weights = Mapping[str, Tensor]


class DisentConvEncoder(nn.Sequential):
    """disent's ``EncoderConv64`` without its last layer: four convolutions of 4 x 4, padded by two, for 64 pixels.

    >>> DisentConvEncoder((3, 64, 64))(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 256])
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        channels, height, width = check_image_shape(image_shape)
        if (height, width) != (64, 64):
            raise ValueError(f"DisentConvEncoder takes images of 64 x 64, got {height} x {width}.")
        widths = (channels, 32, 32, 64, 64)
        convolutions = (nn.Conv2d(*pair, kernel_size=4, stride=2, padding=2) for pair in pairwise(widths))
        layers = [layer for convolution in convolutions for layer in (convolution, nn.ReLU())]
        super().__init__(*layers, nn.Flatten(), nn.Linear(1600, 256), nn.ReLU())
        self.apply(glorot)


class TanhMLPDecoder(nn.Sequential):
    """Dense layers with tanh, the last one as large as the image: disent's ``DecoderFC``.

    >>> TanhMLPDecoder(6, (1, 8, 8))(torch.zeros(2, 6)).shape
    torch.Size([2, 1, 8, 8])
    """

    def __init__(
        self, latent_dim: int, image_shape: tuple[int, int, int], hidden: Sequence[int] = (1200, 1200, 1200)
    ) -> None:
        widths = [latent_dim, *check_widths(hidden)]
        dense = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.Tanh())]
        super().__init__(*dense, nn.Linear(widths[-1], math.prod(image_shape)), nn.Unflatten(1, tuple(image_shape)))
        self.apply(glorot)


class PythaeMNISTEncoder(nn.Sequential):
    """pythae's ``Encoder_Conv_VAE_MNIST`` without its heads: four convolutions with batch normalisation, for 28 pixels.

    >>> PythaeMNISTEncoder((1, 28, 28))(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 1024])
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        if tuple(image_shape) != (1, 28, 28):
            raise ValueError(f"PythaeMNISTEncoder takes images of 1 x 28 x 28, got {tuple(image_shape)}.")
        layers: list[nn.Module] = []
        for pair in pairwise((1, 128, 256, 512, 1024)):
            layers += [nn.Conv2d(*pair, kernel_size=4, stride=2, padding=1), nn.BatchNorm2d(pair[1]), nn.ReLU()]
        super().__init__(*layers, nn.Flatten())


class PythaeMNISTDecoder(nn.Sequential):
    """pythae's ``Decoder_Conv_AE_MNIST`` without its sigmoid, for 28 pixels.

    >>> PythaeMNISTDecoder(6, (1, 28, 28)).eval()(torch.zeros(2, 6)).shape
    torch.Size([2, 1, 28, 28])
    """

    def __init__(self, latent_dim: int, image_shape: tuple[int, int, int]) -> None:
        if tuple(image_shape) != (1, 28, 28):
            raise ValueError(f"PythaeMNISTDecoder gives images of 1 x 28 x 28, not {tuple(image_shape)}.")
        super().__init__(
            nn.Linear(latent_dim, 1024 * 4 * 4),
            nn.Unflatten(1, (1024, 4, 4)),
            Transposed(1024, 512, kernel_size=3, stride=2, padding=1),
            nn.BatchNorm2d(512),
            nn.ReLU(),
            Transposed(512, 256, kernel_size=3, stride=2, padding=1, output_padding=1),
            nn.BatchNorm2d(256),
            nn.ReLU(),
            Transposed(256, 1, kernel_size=3, stride=2, padding=1, output_padding=1),
        )


def convert(library: str, file: str | Path, model: str | None = None, **arguments: Any) -> Model:
    """Build a model of the zoo from weights that another library saved.

    Args:
        library: ``"disent"`` or ``"pythae"``.
        file: a state dict or Lightning checkpoint of disent; a folder that pythae saved, or the ``model.pt`` in it.
        model: name of the VAE class; by default the one that pythae recorded, or ``BetaVAE``.
        arguments: arguments of the class, such as ``beta``, ``likelihood`` and, for dense layers, ``image_shape``.
            disent's default loss is ``likelihood={"name": "gaussian", "bounded": False}``, which is ours here too.
    """
    if library not in LIBRARIES:
        raise ValueError(f"Weights of {library!r} cannot be converted. {did_you_mean(str(library), LIBRARIES)}")
    return LIBRARIES[library](Path(file), model, arguments)


def from_disent(path: Path, name: str | None, arguments: dict[str, Any]) -> Model:
    """Convert a disent ``AutoEncoder``, saved alone or within a framework."""
    weights = _read(path)
    encoder, decoder = (_part(weights, f"_{part}.model.", path) for part in ("encoder", "decoder"))
    first, last = next(iter(encoder.values())), list(encoder.values())[-2]
    if len(last) % 2:
        raise ValueError(f"{path}: the encoder ends with {len(last)} values, which are no means and log-variances.")
    latent_dim = len(last) // 2
    if first.ndim == 4:
        networks: dict[str, Any] = {"image_shape": (first.shape[1], 64, 64), "encoder": {"name": "DisentConvEncoder"}}
    else:
        networks = {
            "image_shape": _shape_of(first.shape[1], arguments.pop("image_shape", None), path),
            "encoder": {"name": "MLPEncoder", "hidden": _widths(encoder)},
            "decoder": {"name": "TanhMLPDecoder", "hidden": _widths(decoder)},
        }
    likelihood = {"likelihood": {"name": "gaussian", "bounded": False}}
    made = _build(name or "BetaVAE", likelihood | arguments | networks | {"latent_dim": latent_dim}, path)
    *body, (weight, bias) = _pairs(encoder)
    heads = [weight[:latent_dim], bias[:latent_dim], weight[latent_dim:], bias[latent_dim:]]
    _fill(made, [tensor for pair in body for tensor in pair] + heads, list(decoder.values()), path)
    return made


def from_pythae(path: Path, name: str | None, arguments: dict[str, Any]) -> Model:
    """Convert a VAE, β-VAE or β-TCVAE of pythae."""
    folder = path if path.is_dir() else path.parent
    config = _read_config(folder / "model_config.json")
    weights = _read(folder / "model.pt" if path.is_dir() else path)
    known = {"VAEConfig": "BetaVAE", "BetaVAEConfig": "BetaVAE", "BetaTCVAEConfig": "BetaTCVAE"}
    if name is None and config["name"] not in known:
        raise ValueError(
            f"{folder}: a {str(config['name'])[:60]} has no counterpart here; there are {', '.join(known)}. Name a "
            "model to take its weights nevertheless."
        )
    name = name or known[config["name"]]
    encoder, decoder = _part(weights, "encoder.", path), _part(weights, "decoder.", path)
    mse = config.get("reconstruction_loss", "mse") == "mse"
    made_with: dict[str, Any] = {
        "likelihood": {"name": "gaussian", "variance": 1.0} if mse else "bernoulli",
        **({"beta": float(config["beta"]) if "beta" in config else 1.0} if name in ("BetaVAE", "BetaTCVAE") else {}),
        **arguments,
        "image_shape": tuple(config["input_dim"]),
        "latent_dim": int(config["latent_dim"]),
    }
    if next(iter(encoder.values())).ndim == 4:
        networks: dict[str, Any] = {"encoder": "PythaeMNISTEncoder", "decoder": "PythaeMNISTDecoder"}
    else:
        networks = {
            "encoder": {"name": "MLPEncoder", "hidden": _widths(encoder, heads=2)},
            "decoder": {"name": "MLPDecoder", "hidden": _widths(decoder)},
        }
    made = _build(name, made_with | networks, path)
    _fill(made, list(encoder.values()), list(decoder.values()), path)
    return made


LIBRARIES: dict[str, Callable[[Path, str | None, dict[str, Any]], Model]] = {
    "disent": from_disent,
    "pythae": from_pythae,
}


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a ``torch.save`` file, a safetensors file or a Lightning checkpoint, and nothing else."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        stored: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path}: not a file of tensors alone, and reading other objects could run code. Save only the weights: "
            "torch.save(model.state_dict(), file)."
        ) from None
    except Exception as error:  # torch raises all kinds of errors for files of other formats
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise ValueError(f"{path}: not a file of torch.save or safetensors ({reason}).") from None
    for key in ("state_dict", "model_state_dict"):
        if isinstance(stored, Mapping) and isinstance(stored.get(key), Mapping):
            stored = stored[key]
    if not isinstance(stored, Mapping) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise ValueError(f"{path}: expected a state dict, tensors by name.")
    return {str(name): tensor for name, tensor in stored.items()}


_read = read_state_dict


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_CONFIG:
            raise ValueError("too large")
        config = json.loads(path.read_text(encoding="utf-8"))
        if not (isinstance(config["name"], str) and len(config["input_dim"]) == 3 and int(config["latent_dim"]) > 0):
            raise ValueError("no name, input_dim of three numbers, and latent_dim")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; give the folder that pythae saved the model to.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the configuration of a model of pythae ({error}).") from None
    return dict(config)


def _part(weights: Weights, prefix: str, path: Path) -> dict[str, Tensor]:
    """Return the tensors of the encoder or the decoder, without batch counters of batch normalisation."""
    matches = {name: tensor for name, tensor in weights.items() if name.startswith(prefix) or f".{prefix}" in name}
    matches = {name: tensor for name, tensor in matches.items() if not name.endswith("num_batches_tracked")}
    if len(matches) < 4:
        raise ValueError(f"{path}: no weights called {prefix}...; there are {', '.join(list(weights)[:3]) or 'none'}.")
    return matches


def _pairs(weights: Weights) -> list[tuple[Tensor, Tensor]]:
    tensors = list(weights.values())
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _widths(weights: Weights, heads: int = 1) -> list[int]:
    """Return the widths of the hidden dense layers."""
    return [len(tensor) for tensor in weights.values() if tensor.ndim == 2][:-heads]


def _shape_of(values: int, given: Any, path: Path) -> tuple[int, ...]:
    shapes = {64 * 64: (1, 64, 64), 3 * 64 * 64: (3, 64, 64)}
    shape = tuple(given) if given is not None else shapes.get(values)
    if shape is None or math.prod(shape) != values:
        raise ValueError(f"{path}: its dense layers read {values:,} values; give image_shape.")
    return shape


def _build(name: str, arguments: dict[str, Any], path: Path) -> Model:
    cls = MODELS.get(name)
    if cls is None or not issubclass(cls, VAE):
        names = [each for each, known in MODELS.items() if issubclass(known, VAE)]
        raise ValueError(f"{name!r} is not a VAE of the zoo. {did_you_mean(name, names)}")
    model: Model = cls(**arguments)
    return model


def _fill(model: Any, encoder: Sequence[Tensor], decoder: Sequence[Tensor], path: Path) -> None:
    """Copy tensors in layer order, which is the same on both sides."""
    for part, given in ((model.encoder, encoder), (model.decoder, decoder)):
        state = part.state_dict()
        names = [name for name in state if not name.endswith("num_batches_tracked")]
        shapes = [tuple(state[name].shape) for name in names]
        if shapes != [tuple(tensor.shape) for tensor in given]:
            raise ValueError(
                f"{path}: these layers are not those of an architecture that can be converted; they have the shapes "
                f"{', '.join(str(list(tensor.shape)) for tensor in given[:6])}, expected "
                f"{', '.join(str(list(shape)) for shape in shapes[:6])}."
            )
        part.load_state_dict(state | dict(zip(names, (tensor.to(torch.float32) for tensor in given), strict=True)))
    model.eval()
