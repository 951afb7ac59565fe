"""A loaded model at work for the page that browses checkpoints: decode codes, draw strips, relate codes to factors."""

import base64
import io
import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from unknot.datamodules import DATASETS, GroundTruthDataset
from unknot.hub.client import MAX_PIXELS
from unknot.hub.kinds import data_of
from unknot.hub.loading import load
from unknot.metrics.evaluation import Draws
from unknot.metrics.functional import information_matrix
from unknot.zoo import VAE

STEPS = 11
INACTIVE = 0.01
"""Nats: a code whose mean KL is below this tells nothing about the image."""
MAX_UPLOAD = 10 << 20
MATRICES = {"information": ("mutual information", 5000), "importance": ("importance to boosted trees, as in DCI", 2000)}


class Player:
    """A VAE, and images to start from.

    Args:
        model: what :func:`unknot.hub.load` gave.
    """

    def __init__(self, model: Any) -> None:
        if not isinstance(model, VAE):
            raise ValueError(f"{type(model).__name__} has no latent codes to move; its pictures show what it does.")
        self.model = model
        self.lock, self._matrix_lock = threading.Lock(), threading.Lock()
        self._matrices: dict[str, dict[str, Any]] = {}
        self.kl = self._informative()

    @property
    def dataset(self) -> GroundTruthDataset | None:
        """What the model was trained on, if it is at hand."""
        return data_of(self.model.trained_on, self.model.image_shape)

    @torch.inference_mode()
    def _informative(self) -> Tensor:
        """Mean KL(q(z_d|x) || p(z_d)) over 64 images of the data set, or of the model itself: ``[D]``."""
        images = self._images(64, 0) if self.dataset else self.model.sample(64, torch.Generator().manual_seed(0))
        return self.model.encode(images).kl().mean(0)

    def _images(self, count: int, seed: int) -> Tensor:
        if self.dataset is None:
            name = self.model.trained_on
            hint = f"`unknot data prepare {name}` fetches it." if name in DATASETS else "Use the prior, or an upload."
            raise ValueError(f"The data set of this model ({name or 'not told'}) is not at hand. {hint}")
        generator = torch.Generator().manual_seed(seed)
        return self.dataset.observe(self.dataset.factor_space.sample(count, generator), generator)

    def start(self, origin: str, seed: int) -> dict[str, Any]:
        """Codes to start from: of a random image of the data set (``"data"``), or drawn from the ``"prior"``."""
        if origin == "data":
            return self._from_image(self._images(1, seed))
        if origin == "prior":
            codes = torch.randn(self.model.latent_dim, generator=torch.Generator().manual_seed(seed))
            return self._started(codes, None)
        raise ValueError(f"Unknown start {origin[:50]!r}; there are 'data' and 'prior'.")

    def upload(self, content: bytes) -> dict[str, Any]:
        """Codes of an image that somebody sent."""
        return self._from_image(read_image(content, self.model.image_shape))

    @torch.inference_mode()
    def _from_image(self, images: Tensor) -> dict[str, Any]:
        with self.lock:
            codes = self.model.represent(images)[0]
        return self._started(codes, images[0])

    def _started(self, codes: Tensor, image: Tensor | None) -> dict[str, Any]:
        values = codes.tolist()
        return {
            "codes": values,
            "input": None if image is None else data_uri(png(image)),
            "reconstruction": data_uri(self.decode(values)),
            "kl": self.kl.tolist(),
            "order": self.kl.argsort(descending=True).tolist(),
            "inactive": (self.kl < INACTIVE).nonzero().flatten().tolist(),
            "strips": self.strips(values),
        }

    def _check(self, codes: Any) -> Tensor:
        size = self.model.latent_dim
        if not isinstance(codes, list) or len(codes) != size or not all(isinstance(z, int | float) for z in codes):
            raise ValueError(f"This model takes {size} codes, each a number.")
        values = torch.tensor(codes, dtype=torch.float32)
        if not (values.abs() <= 100).all():
            raise ValueError("Codes must be finite and between -100 and 100.")
        return values

    @torch.inference_mode()
    def decode(self, codes: Any) -> bytes:
        """The image of codes ``[D]``, as PNG."""
        values = self._check(codes)
        with self.lock:
            return png(self.model.decode(values[None])[0])

    @torch.inference_mode()
    def strips(self, codes: Any) -> list[str]:
        """For each code a picture of what it does, from -2 to 2, while the others stay as given."""
        each = self._check(codes).repeat(self.model.latent_dim, STEPS, 1)
        index = torch.arange(self.model.latent_dim)
        each[index, :, index] = torch.linspace(-2, 2, STEPS)
        with self.lock:
            images = self.model.decode(each.flatten(0, 1)).unflatten(0, each.shape[:2])
        # [D, V, C, H, W] to rows of V images with a thin line between them
        rows = torch.nn.functional.pad(images, (0, 1), value=0.5).permute(0, 2, 3, 1, 4).flatten(3)[..., :-1]
        return [data_uri(png(row)) for row in rows]

    def matrix(self, kind: str) -> dict[str, Any]:
        """Factor-code matrix on a few thousand samples, computed once."""
        if kind not in MATRICES:
            raise ValueError(f"Unknown matrix {kind[:50]!r}; there are {list(MATRICES)}.")
        self._images(1, 0)  # says what is missing
        assert self.dataset is not None
        title, samples = MATRICES[kind]
        with self._matrix_lock:
            if kind not in self._matrices:
                draws = Draws(self.model, self.dataset, num_train=samples, num_test=1)
                values = information_matrix(*draws.train).values if kind == "information" else draws.trees.importance
                self._matrices[kind] = {
                    "title": title,
                    "samples": samples,
                    "factors": list(self.dataset.factor_space.names),
                    "values": np.nan_to_num(np.asarray(values, dtype=float)).T.tolist(),  # [F, D]
                }
            return self._matrices[kind]


class Players:
    """The models that were used last, loaded when they are first asked for.

    Args:
        capacity: how many stay in memory.
    """

    def __init__(self, capacity: int = 4) -> None:
        self.capacity = capacity
        self._players: OrderedDict[str, Player] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: str, ref: Any) -> Player:
        """The model of a checkpoint; two who ask at once load it once."""
        with self._lock:
            loading = self._locks.setdefault(key, threading.Lock())
        with loading:
            with self._lock:
                if key in self._players:
                    self._players.move_to_end(key)
                    return self._players[key]
            player = Player(load(ref, local_files_only=True))
            with self._lock:
                self._players[key] = player
                while len(self._players) > self.capacity:
                    self._players.popitem(last=False)
            return player


def read_image(content: bytes, image_shape: tuple[int, int, int]) -> Tensor:
    """An image that somebody sent, PNG or JPEG, cut and scaled to ``[1, C, H, W]`` in [0, 1].

    >>> read_image(b"GIF89a", (1, 64, 64))
    Traceback (most recent call last):
    ValueError: This is not a whole PNG or JPEG image.
    """
    channels, height, width = image_shape
    if channels not in (1, 3):
        raise ValueError(f"This model's images have {channels} channels; an upload has 1 or 3.")
    if len(content) > MAX_UPLOAD:
        raise ValueError(f"The image is larger than {MAX_UPLOAD >> 20} MB; send a smaller one.")
    whole: Image.Image | None = None
    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            if image.width * image.height <= MAX_PIXELS:
                whole = ImageOps.exif_transpose(image).convert("RGBA")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        pass
    except Exception as error:  # Pillow raises many kinds
        raise ValueError("This is not a whole PNG or JPEG image.") from error
    if whole is None:
        raise ValueError(f"The image has more than {MAX_PIXELS // 1_000_000} million pixels; send a smaller one.")
    ground = Image.new("RGBA", whole.size, "black")
    fitted = ImageOps.fit(
        Image.alpha_composite(ground, whole).convert("L" if channels == 1 else "RGB"), (width, height)
    )
    pixels = torch.from_numpy(np.array(fitted, dtype=np.float32) / 255)
    return pixels.reshape(height, width, channels).permute(2, 0, 1)[None].contiguous()


def png(image: Tensor) -> bytes:
    """An image ``[C, H, W]`` in [0, 1] as a file."""
    values = (image.clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    pixels = values[0] if len(values) == 1 else values.permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels.contiguous().numpy()).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def data_uri(content: bytes) -> str:
    """A PNG as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(content).decode()
