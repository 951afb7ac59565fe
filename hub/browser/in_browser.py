"""Models that can run in a visitor's browser, and the files that this requires."""

import io
import json
import re
import threading
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from unknot.checkpoints.names import CONFIG, WEIGHTS
from unknot.files import read_limited
from unknot.hub.web.pages import PAGE

MAX_CONFIG = 1 << 20
MAX_BYTES = 96 << 20
"""Bytes of weights that the page's scripts read."""
SHEET_COLUMNS = 8
IMAGES, SCENES = 64, 16
"""Images of the data set that are sent with a model, as starting points and to order its latents."""
VAE = frozenset({"codes", "decode", "elbo"})
CAPABILITIES = {
    "DINOSAUR": frozenset({"feature_slots"}),
    "DSPNSetPredictor": frozenset({"sets"}),
    "QLAE": frozenset({"codes", "decode", "levels"}),
    "SlotAutoEncoder": frozenset({"slots"}),
    "SlotMLPSetPredictor": frozenset({"sets"}),
    "SlotSetPredictor": frozenset({"sets"}),
    "Tripod": frozenset({"codes", "decode", "levels"}),
    "WReN": frozenset({"reasoning"}),
}
"""Of the models of the zoo that are not VAEs."""
PLAYABLE = tuple(map(frozenset, ({"codes", "decode"}, {"slots"}, {"sets"}, {"reasoning"})))
"""Capabilities that each give a model a part of the page."""


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


NO_IMAGES = _png(np.zeros((1, 1), dtype=np.uint8))
"""A sheet without images, for a model whose data set is not available locally."""


@cache
def _listed(script: str, name: str) -> frozenset[str]:
    """Return the names in a list of a script of the page, the only place that defines them."""
    text = (PAGE / script).read_text(encoding="utf-8")
    block = re.search(rf"const {name} = (?:new Map\()?\[(.*?)\]\)?;\n", text, re.DOTALL)
    assert block, name
    return frozenset(re.findall(r'"(\w+)"', block[1]))


def capabilities_of(name: str | None) -> frozenset[str]:
    """Return the capabilities of a model of the zoo, by its name, without importing the zoo, which imports torch.

    >>> sorted(capabilities_of("BetaVAE")), sorted(capabilities_of("SlotAutoEncoder")), sorted(capabilities_of("Mine"))
    (['codes', 'decode', 'elbo'], ['slots'], [])
    """
    return VAE if name in _listed("models.js", "VAES") else CAPABILITIES.get(name or "", frozenset())


def is_playable(capabilities: Collection[str]) -> bool:
    """Return whether the page has something to try with a model of these capabilities.

    >>> is_playable({"codes", "decode"}), is_playable({"codes"}), is_playable({"sets"})
    (True, False, True)
    """
    return any(needed <= set(capabilities) for needed in PLAYABLE)


def runs_in_browser(model: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether the page's scripts support a model and its networks.

    >>> runs_in_browser("BetaVAE", {"decoder": "MLPDecoder"}), runs_in_browser("BetaVAE", {"decoder": "Mine"})
    (True, False)
    >>> runs_in_browser("BetaVAE", {"decoder": ["MLPDecoder"]}), runs_in_browser(["BetaVAE"], {})
    (False, False)
    """
    parts = {part: arguments.get(part) for part in ("encoder", "decoder", "likelihood")}
    names = {part: value.get("name") if isinstance(value, dict) else value for part, value in parts.items()}
    if not all(isinstance(name, str | None) for name in (model, *names.values())):
        return False  # whatever a stranger wrote
    if model in _listed("models.js", "SLOT_MODELS"):
        return names["encoder"] is None and names["decoder"] is None
    known = _listed("networks.js", "NETWORKS") | {None}
    likelihoods = {None, "bernoulli", "gaussian", "continuous_bernoulli"}
    fits = names["encoder"] in known and names["decoder"] in known and names["likelihood"] in likelihoods
    return model in _listed("models.js", "VAES") and fits


def config_of(folder: Path) -> dict[str, Any]:
    """Return ``config.json`` of a model that the page can run; raise ``ValueError`` for others."""
    config = json.loads(read_limited(folder / CONFIG, MAX_CONFIG))
    arguments = config.get("arguments") if isinstance(config, dict) else None
    if not isinstance(arguments, dict) or not runs_in_browser(config.get("model"), arguments):
        raise ValueError("This model runs in Python only.")
    if (folder / WEIGHTS).stat().st_size > MAX_BYTES:
        raise ValueError(f"Its weights have more than {MAX_BYTES >> 20} MB, too many for a browser.")
    return config


def can_run(folder: Path | None) -> bool:
    """Return whether the page's scripts can run the model in a folder."""
    try:
        return folder is not None and bool(config_of(folder))
    except (OSError, ValueError, RecursionError):
        return False


DRAWING = threading.Lock()
"""Data sets are drawn one at a time, whoever asks, so that memory stays small."""


def sheet(folder: Path, seed: int = 0) -> bytes:
    """Return images of a model's data set side by side, as PNG, without loading the model."""
    import torch

    from unknot.datamodules import ClevrScenes, available_dataset

    config = config_of(folder)
    arguments, name = config["arguments"], config.get("dataset")
    if not isinstance(name, str | None):
        raise ValueError("The data set of a model is a name.")
    shape = arguments.get("image_shape", (1, 64, 64))
    if not isinstance(shape, list | tuple) or len(shape) != 3 or not all(isinstance(side, int) for side in shape):
        raise ValueError("image_shape must be three whole numbers.")
    channels, height, width = shape
    if channels not in (1, 3) or not 0 < height <= 256 or not 0 < width <= 256:
        raise ValueError("The page does not show images of this shape.")
    is_scene = "decode" not in capabilities_of(config["model"])
    count, generator = SCENES if is_scene else IMAGES, torch.Generator().manual_seed(seed)
    with DRAWING:
        dataset = available_dataset(name, (channels, height, width))
        if dataset is not None:
            images = dataset.observe(dataset.factor_space.sample(count, generator), generator)
        elif is_scene and channels == 3:
            images = ClevrScenes((height, width)).draw(count, generator)[0]
        else:
            raise FileNotFoundError(f"The data set of this model ({name}) is not available locally.")
    values = (images.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    rows = -(-count // SHEET_COLUMNS)
    tiles = values.reshape(rows, SHEET_COLUMNS, channels, height, width).transpose(0, 3, 1, 4, 2)
    pixels = np.ascontiguousarray(tiles.reshape(rows * height, SHEET_COLUMNS * width, channels))
    return _png(pixels[..., 0] if channels == 1 else pixels)
