"""Interactive views of loaded models for the page: latents and their traversals, slots, and predicted sets."""

import base64
import io
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.overrides import TorchFunctionMode

from unknot.checkpoints.client import MAX_PIXELS
from unknot.datamodules import DATASETS, ClevrScenes, GroundTruthDataset, available_dataset
from unknot.datamodules.matrices import sample_matrices
from unknot.hub.loading import load
from unknot.metrics.evaluation import Draws
from unknot.metrics.functional import information_matrix

STEPS = 11
INACTIVE = 0.01
"""Nats: a latent with a mean KL below this is unused."""
MAX_UPLOAD = 10 << 20
MAX_WEIGHTS = 512 << 20
"""Maximum bytes of weights of an interactive model; four models are in memory at a time."""
MAX_CODES = 64
"""Maximum number of latents with a slider and a traversal: the most active ones."""
VALUES = 1 << 22
"""Maximum number of values of images drawn at a time; with activations, some hundred megabytes."""
MAX_ITERATIONS, MAX_SLOTS = 20, 32
"""Limits on the counts in a request and in a checkpoint."""
ACTION = 60.0
"""Seconds after which an action of the page is stopped."""
MATRICES = {"information": ("mutual information", 5000), "importance": ("importance to boosted trees, as in DCI", 2000)}


_reading = threading.Semaphore(2)
"""Images of others that are read at a time: one of ``MAX_PIXELS`` takes half a gigabyte."""


class Deadline(TorchFunctionMode):
    """Raise ``TimeoutError`` in work that takes too long: every torch call in this thread checks the time.

    A thread cannot be stopped from outside, and the sizes in an untrusted checkpoint determine how long it runs.

    Args:
        seconds: time from now.

    >>> with Deadline(60.0):
    ...     torch.ones(2).sum()
    tensor(2.)
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self._until = seconds, time.monotonic() + seconds

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a torch function unless the deadline has passed."""
        if time.monotonic() > self._until:
            raise TimeoutError(f"Stopped after {self.seconds:g} seconds: this model takes too long for the page.")
        return func(*args, **(kwargs or {}))


class Player:
    """Model with images to start from.

    Args:
        model: result of :func:`unknot.hub.load`.
    """

    needs: ClassVar[tuple[frozenset[str], ...]] = ()
    """Capabilities of a model; each of these sets is enough."""
    actions: ClassVar[frozenset[str]] = frozenset({"picture"})
    """Methods that the page may call."""

    def __init__(self, model: Any) -> None:
        size = int(np.prod(model.image_shape))
        if size > VALUES:
            raise ValueError(f"Images of {size:,} numbers are too large for this page; up to {VALUES:,} are drawn.")
        for name, most in (("num_iterations", MAX_ITERATIONS), ("num_slots", MAX_SLOTS)):
            if getattr(model, name, 0) > most:
                raise ValueError(
                    f"This checkpoint has {name}={getattr(model, name):,}; the page runs models with up to {most}. "
                    "Load it in Python if you trust it."
                )
        self.model, self.together = model, max(1, VALUES // size)
        self.lock = threading.Lock()

    @property
    def dataset(self) -> GroundTruthDataset | None:
        """Data set that the model was trained on, if it is available locally."""
        return available_dataset(self.model.trained_on, self.model.image_shape)

    def _images(self, count: int, seed: int) -> Tensor:
        if self.dataset is None:
            name = self.model.trained_on
            hint = f"`unknot data prepare {name}` fetches it." if name in DATASETS else "Use an image of yours."
            raise ValueError(f"The data set of this model ({name or 'unknown'}) is not available locally. {hint}")
        generator = torch.Generator().manual_seed(seed)
        return self.dataset.observe(self.dataset.factor_space.sample(count, generator), generator)


class LatentPlayer(Player):
    """Model with latents that can be changed: it encodes and decodes."""

    needs = (frozenset({"codes", "decode"}),)
    actions = frozenset({"picture", "start", "upload", "decode", "strips", "matrix"})

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        with torch.inference_mode():
            self.latent_dim = model.represent(torch.zeros(1, *model.image_shape)).shape[1]
        self._matrix_lock = threading.Lock()
        self._matrices: dict[str, dict[str, Any]] = {}
        self.kl = self._informative()
        self.shown = self.kl.argsort(descending=True)[:MAX_CODES]

    @torch.inference_mode()
    def _informative(self) -> Tensor:
        """Return the activity of each latent over 64 images of the data set or of the model itself: ``[D]``."""
        count = min(64, self.together)
        return self.model.activity(self._images(count, 0) if self.dataset else self._sampled(count))

    def _sampled(self, count: int) -> Tensor:
        """Return images of latents sampled from a standard normal."""
        codes = torch.randn(count, self.latent_dim, generator=torch.Generator().manual_seed(0))
        return self.model.decode(codes)

    def start(self, origin: str, seed: int) -> dict[str, Any]:
        """Return initial latents: of a random image of the data set (``"data"``), or sampled from the ``"prior"``.

        ``"any"`` uses an image if there is one.
        """
        if origin == "any":
            origin = "data" if self.dataset else "prior"
        if origin == "data":
            return self._from_image(self._images(1, seed))
        if origin == "prior":
            codes = torch.randn(self.latent_dim, generator=torch.Generator().manual_seed(seed))
            return self._started(codes, None)
        raise ValueError(f"Unknown start {origin[:50]!r}; there are 'any', 'data' and 'prior'.")

    def upload(self, content: bytes, *_: Any) -> dict[str, Any]:
        """Encode an uploaded image; further arguments are for scenes."""
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
            "activity": self.model.activity_name,
            "order": self.shown.tolist(),
            "at_hand": self.dataset is not None,
            "inactive": (self.kl < INACTIVE).nonzero().flatten().tolist(),
            "strips": self.strips(values),
        }

    def _check(self, codes: Any) -> Tensor:
        size = self.latent_dim
        if not isinstance(codes, list) or len(codes) != size or not all(isinstance(z, int | float) for z in codes):
            raise ValueError(f"This model needs {size} codes, each a number.")
        values = torch.tensor(codes, dtype=torch.float32)
        if not (values.abs() <= 100).all():
            raise ValueError("Codes must be finite and between -100 and 100.")
        return values

    @torch.inference_mode()
    def decode(self, codes: Any) -> bytes:
        """Decode latents ``[D]`` to an image, as PNG."""
        values = self._check(codes)
        with self.lock:
            return png(self.model.decode(values[None])[0])

    @torch.inference_mode()
    def strips(self, codes: Any, latents: Any = None) -> dict[str, str]:
        """Draw the effect of each latent from -2 to 2, with the others unchanged.

        Args:
            codes: ``[D]``.
            latents: latents to draw; by default all visible ones.
        """
        steps, values = torch.linspace(-2, 2, STEPS), self._check(codes)
        requested = self.shown.tolist() if latents is None else latents
        if not isinstance(requested, list) or not set(map(str, requested)) <= set(map(str, self.shown.tolist())):
            raise ValueError(f"latents must be indices of visible latents: {self.shown.tolist()[:10]}, ...")
        shown = torch.tensor(requested, dtype=torch.long)
        drawn: dict[str, str] = {}
        each = max(1, self.together // STEPS)
        for first in range(0, len(shown), each):
            part = shown[first : first + each]
            moved = values.repeat(len(part), STEPS, 1)
            moved[torch.arange(len(part)), :, part] = steps
            with self.lock:
                images = self.model.decode(moved.flatten(0, 1)).unflatten(0, moved.shape[:2])
            # [D, V, C, H, W] to rows of V images with a thin line in between
            rows = torch.nn.functional.pad(images, (0, 1), value=0.5).permute(0, 2, 3, 1, 4).flatten(3)[..., :-1]
            drawn |= {str(code): data_uri(png(row)) for code, row in zip(part.tolist(), rows, strict=True)}
        return drawn

    @torch.inference_mode()
    def picture(self) -> bytes:
        """Draw a few latents at a few values, for a card without a picture."""
        start = self._images(1, 0) if self.dataset else self._sampled(1)
        with self.lock:
            codes = self.model.represent(start)[0]
        shown = self.shown[:4]
        moved = codes.repeat(len(shown), 7, 1)
        moved[torch.arange(len(shown)), :, shown] = torch.linspace(-2, 2, 7)
        with self.lock:
            images = self.model.decode(moved.flatten(0, 1)).unflatten(0, moved.shape[:2])
        return png(images.permute(2, 0, 3, 1, 4).flatten(3).flatten(1, 2))

    def matrix(self, kind: str) -> dict[str, Any]:
        """Return the factor-code matrix on a few thousand samples, computed once."""
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


class ScenePlayer(Player):
    """Model that decomposes an image: slots with masks, or predicted objects."""

    needs = (frozenset({"slots"}), frozenset({"sets"}))
    actions = frozenset({"picture", "look", "upload"})

    def look(self, origin: str, seed: int, iterations: int | None, slots: int | None) -> dict[str, Any]:
        """Decompose a random image; the same seed gives the same image and initial slots."""
        if origin != "data":
            raise ValueError(f"Unknown start {origin[:50]!r}; there is 'data', or send an image.")
        return self._look(self._scene(seed), seed, iterations, slots)

    def upload(self, content: bytes, seed: int, iterations: int | None, slots: int | None) -> dict[str, Any]:
        """Decompose an uploaded image."""
        return self._look(read_image(content, self.model.image_shape), seed, iterations, slots)

    def _scene(self, seed: int) -> Tensor:
        channels, height, width = self.model.image_shape
        if self.dataset is not None:
            return self._images(1, seed)
        if channels != 3:
            raise ValueError("No scenes of this kind are available locally. Upload an image.")
        return ClevrScenes((height, width)).draw(1, torch.Generator().manual_seed(seed))[0]

    def _look(self, images: Tensor, seed: int, iterations: int | None, slots: int | None) -> dict[str, Any]:
        for name, value, most in (("iterations", iterations, MAX_ITERATIONS), ("slots", slots, MAX_SLOTS)):
            if value is not None and not 1 <= value <= most:
                raise ValueError(f"{name} must be from 1 to {most}.")
        result: dict[str, Any] = {"input": data_uri(png(images[0])), "seed": seed}
        with self._begun(seed):
            if "slots" in self.model.capabilities:
                return result | self._slots(images, iterations, slots)
            return result | self._sets(images, iterations, slots)

    @contextmanager
    def _begun(self, seed: int) -> Iterator[None]:
        """Seed the initial slots within the block, and restore the global generators afterwards."""
        with self.lock, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield

    @torch.inference_mode()
    def picture(self) -> bytes:
        """Draw a scene and its slots, for a card without a picture."""
        images = self._scene(0)
        shown = images
        if "slots" in self.model.capabilities:
            with self._begun(0):
                whole, parts, masks = self.model.decompose(images, None, None)
            shown = torch.cat([images, whole, parts[0] * masks[0][:, None]])
        return png(tiled(shown, min(4, len(shown))))

    @torch.inference_mode()
    def _slots(self, images: Tensor, iterations: int | None, slots: int | None) -> dict[str, Any]:
        whole, parts, masks = self.model.decompose(images, slots, iterations)
        shown = [
            {"image": data_uri(png(part * mask)), "mask": data_uri(png(mask)), "share": float(mask.mean())}
            for part, mask in zip(parts[0], masks[0][:, None], strict=True)
        ]
        return {"reconstruction": data_uri(png(whole[0])), "slots": shown}

    def _sets(self, images: Tensor, iterations: int | None, slots: int | None) -> dict[str, Any]:
        from unknot.zoo.object_pictures import describe_object

        with torch.no_grad():  # some models predict sets by gradient descent
            predicted = self.model.predict_sets(images, slots, iterations)
        attention = predicted.attention
        objects = []
        for place, row in enumerate(predicted.sets[0].detach()):
            result: dict[str, Any] = {
                "present": float(row[-1]),
                "place": [round(float(value), 3) for value in row[:3]],
                "about": describe_object(row),
                "attention": None,
            }
            if attention is not None:
                map_ = attention[0, place].detach()
                result["attention"] = data_uri(png((map_ / map_.max().clamp(min=1e-9))[None]))
            objects.append(result)
        return {"objects": sorted(objects, key=lambda result: -result["present"])}


class MatrixPlayer(Player):
    """Model that completes matrices of panels by choosing the ninth."""

    needs = (frozenset({"reasoning"}),)
    actions = frozenset({"picture", "look"})

    @torch.inference_mode()
    def look(self, origin: str, seed: int, iterations: int | None = None, slots: int | None = None) -> dict[str, Any]:
        """Return a random matrix, its answers, and their probabilities under the model."""
        images, panels, right = self._matrix(seed)
        asked = (images if self.model.embedding == "images" else panels)[None]
        with self.lock:
            likely = self.model(asked[:, :8], asked[:, 8:])[0].softmax(0)
        shown = [data_uri(png(image)) for image in images]
        return {
            "context": shown[:8],
            "answers": [
                {"image": image, "share": float(share)} for image, share in zip(shown[8:], likely, strict=True)
            ],
            "right": right,
            "picked": int(likely.argmax()),
        }

    def picture(self) -> bytes:
        """Draw a matrix without its ninth panel, for a card without a picture."""
        images = self._matrix(0)[0]
        return png(tiled(torch.cat([images[:8], torch.full_like(images[:1], 0.5)]), 3))

    def _matrix(self, seed: int) -> tuple[Tensor, Tensor, int]:
        """Return eight panels and six answers, as images ``[14, C, H, W]`` and factors ``[14, F]``, and the correct
        index.
        """
        self._images(1, 0)  # says what is missing
        assert self.dataset is not None
        if self.model.embedding == "codes":
            raise ValueError("This model reads codes of another model, which is not available.")
        generator = torch.Generator().manual_seed(seed)
        sizes = self.dataset.factor_space.sizes
        if self.model.sizes and tuple(self.model.sizes) != tuple(sizes):
            raise ValueError(
                f"This model knows factors of sizes {self.model.sizes}, and {self.dataset.name} has {sizes}."
            )
        drawn = sample_matrices(sizes, 1, generator)
        panels = torch.cat([drawn.context, drawn.answers], dim=1)[0]
        return self.dataset.observe(panels, generator), panels, int(drawn.position[0])


def player_of(model: Any) -> Player:
    """Return the view for a model."""
    for player in (LatentPlayer, ScenePlayer, MatrixPlayer):
        if any(needed <= model.capabilities for needed in player.needs):
            return player(model)
    raise ValueError(f"{type(model).__name__} has no interactive view; see its pictures.")


class Players:
    """Cache of the models that were used last, loaded on demand.

    Args:
        capacity: maximum number of models in memory.
    """

    def __init__(self, capacity: int = 4) -> None:
        self.capacity = capacity
        self._players: OrderedDict[str, Any] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: str, ref: Any) -> Any:
        """Return the model of a checkpoint; concurrent requests load it once."""
        with self._lock:
            loading = self._locks.setdefault(key, threading.Lock())
        with loading:
            with self._lock:
                if key in self._players:
                    self._players.move_to_end(key)
                    return self._players[key]
            player = player_of(load(ref, local_files_only=True, max_bytes=MAX_WEIGHTS))
            with self._lock:
                self._players[key] = player
                while len(self._players) > self.capacity:
                    self._players.popitem(last=False)
            return player


def read_image(content: bytes, image_shape: tuple[int, int, int]) -> Tensor:
    """Read an uploaded PNG or JPEG, cropped and resized to ``[1, C, H, W]`` in [0, 1].

    >>> read_image(b"GIF89a", (1, 64, 64))
    Traceback (most recent call last):
    ValueError: This is not a whole PNG or JPEG image.
    """
    channels, height, width = image_shape
    if channels not in (1, 3):
        raise ValueError(f"This model's images have {channels} channels; an upload has 1 or 3.")
    if len(content) > MAX_UPLOAD:
        raise ValueError(f"The image is larger than {MAX_UPLOAD >> 20} MB; send a smaller one.")
    with _reading:
        whole: Image.Image | None = None
        try:
            with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
                if image.width * image.height <= MAX_PIXELS:
                    whole = ImageOps.exif_transpose(image).convert("RGBA")
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            pass
        except Exception as error:  # Pillow raises many kinds of errors
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
    """Encode an image ``[C, H, W]`` in [0, 1] as PNG."""
    values = (image.clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    pixels = values[0] if len(values) == 1 else values.permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels.contiguous().numpy()).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def tiled(images: Tensor, columns: int) -> Tensor:
    """Tile images ``[N, C, H, W]`` row by row, with a thin line in between.

    >>> tiled(torch.zeros(9, 3, 4, 4), 3).shape
    torch.Size([3, 14, 14])
    """
    missing = -len(images) % columns
    whole = torch.nn.functional.pad(images, (0, 1, 0, 1, 0, 0, 0, missing), value=0.5)
    return whole.unflatten(0, (-1, columns)).permute(2, 0, 3, 1, 4).flatten(3).flatten(1, 2)[:, :-1, :-1]


def data_uri(content: bytes) -> str:
    """Return a PNG as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode()
