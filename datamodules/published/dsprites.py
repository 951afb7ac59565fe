"""dSprites, drawn instead of downloaded, and its Color-, Noisy- and Scream- variants.

The grid (3 shapes x 6 scales x 40 orientations x 32 x 32 positions, 737,280 images of 64 x 64) is stored on disk with
one bit per pixel and memory-mapped, so that it is drawn once and shared by all processes.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from unknot.datamodules.download import RemoteFile
from unknot.datamodules.factors import FactorSpace
from unknot.datamodules.grid import Bytes, GridDataset, fingerprint, read_npy
from unknot.files import cache_dir

Floats = npt.NDArray[np.float64]

SPACE = FactorSpace(
    names=("shape", "scale", "orientation", "pos_x", "pos_y"),
    sizes=(3, 6, 40, 32, 32),
    kinds=("categorical", "ordered", "circular", "ordered", "ordered"),
    levels={
        "shape": ("square", "ellipse", "heart"),
        "scale": np.linspace(0.5, 1, 6).tolist(),
        "orientation": np.linspace(0, 2 * np.pi, 40).tolist(),  # the last is a full turn, identical to the first
        "pos_x": np.linspace(0, 1, 32).tolist(),
        "pos_y": np.linspace(0, 1, 32).tolist(),
    },
    symmetries={"orientation": ("shape", (4, 2, 1))},
)
SIDE = 64
IMAGE_BYTES = SIDE * SIDE // 8
ORIGINAL = RemoteFile(
    name="dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",
    urls=tuple(
        f"https://{folder}/dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
        for folder in (
            "github.com/google-deepmind/dsprites-dataset/raw/master",
            "raw.githubusercontent.com/google-deepmind/dsprites-dataset/master",
        )
    ),
    size=26_700_000,
    md5="7da33b31b13a06f4b04a70402ce90c2e",
)
SCREAM = RemoteFile(
    name="scream.jpg",
    urls=tuple(
        f"https://{host}/f6afaabcdf85f77e7aff2ec55c020c0e297c77f9/data/scream.jpg"
        for host in ("raw.githubusercontent.com/pjreddie/darknet", "github.com/pjreddie/darknet/raw")
    ),
    size=174_515,
    sha256="dcab7bae866fbb396e01ab27a9c8d2d40b3e80911dafb05a5fa18d1bac6b8d17",
)


class DSprites(GridDataset):
    """dSprites: white sprites on black, five factors, binary images ``[1, 64, 64]``.

    Args:
        source: ``None`` to draw the images (of 20,000 originals, 19,998 are equal in every pixel, the others differ in
            one); the path of the original ``.npz``; or ``"download"`` to download that file.

    >>> from unknot.datamodules import DSprites
    >>> dataset = DSprites()
    >>> dataset.observe(dataset.factor_space.sample(8)).shape
    torch.Size([8, 1, 64, 64])

    Orientations 0 and 39 are the same angle (0 and 2π), as in the original.
    """

    name = "dsprites"
    title = "dSprites"
    license = "Apache-2.0"
    factor_space = SPACE
    image_shape = (1, SIDE, SIDE)
    grey_levels = 1
    files = (ORIGINAL,)
    check_pixels = True
    instead = "source='download', or no source at all to draw the images"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the cached file, with one bit per pixel."""
        return (self.factor_space.size, IMAGE_BYTES)

    @property
    def download_size(self) -> int:
        """Bytes to download: nothing, unless requested."""
        return 0 if self.source is None else super().download_size

    def read(self, paths: list[Path]) -> Iterator[Bytes]:
        """Read the rows of the original file."""
        return read_original(paths[0], self.factor_space)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, 5]``: float32 ``[N, C, 64, 64]`` in [0, 1]."""
        return self._sprites(factors)

    def _sprites(self, factors: Tensor) -> Tensor:
        packed = self._rows(self.factor_space.index(factors))
        pixels = np.unpackbits(packed, axis=-1).reshape(-1, 1, SIDE, SIDE)
        # NumPy's conversion runs in this thread: torch's would wake threads that cost more than they bring here.
        return torch.from_numpy(pixels.astype(np.float32))

    def _chunks(self) -> Iterator[Bytes]:
        return draw_grid() if self.source is None else super()._chunks()

    @property
    def doing(self) -> str:  # type: ignore[override]
        """Verb for messages while the cached file is being made."""
        return "drawing" if self.source is None else "converting"

    def _cache_path(self) -> Path:
        if self.source is None:
            return cache_dir() / "dsprites-drawn.npy"
        key = "download" if self.source == "download" else fingerprint(self._given())
        return cache_dir() / f"dsprites-original-{key}.npy"


class ColorDSprites(DSprites):
    """Color-dSprites: each channel of the sprite is scaled by its own U(0.5, 1), random for every image."""

    name = "color_dsprites"
    stochastic = True
    image_shape = (3, SIDE, SIDE)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, 5]``: float32 ``[N, 3, 64, 64]`` in [0, 1]."""
        sprites = self._sprites(factors)
        return sprites * (0.5 + 0.5 * torch.rand(len(sprites), 3, 1, 1, generator=generator))


class NoisyDSprites(DSprites):
    """Noisy-dSprites: white sprites on a background of uniform noise, random for every image."""

    name = "noisy_dsprites"
    stochastic = True
    image_shape = (3, SIDE, SIDE)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, 5]``: float32 ``[N, 3, 64, 64]`` in [0, 1]."""
        sprites = self._sprites(factors)
        return torch.maximum(sprites, torch.rand(len(sprites), *self.image_shape, generator=generator))


class ScreamDSprites(DSprites):
    """Scream-dSprites: sprites that invert the colours of a random, randomly tinted patch of *The Scream*.

    Args:
        source: as for :class:`DSprites`.
        scream: path of a picture of the painting; ``None`` downloads one (public domain, but not bundled). As in the
            reference implementation it is first shrunk to fit 350 x 274. The reference downloads another photograph
            from an address that may not always return the same file; give its path to use it.
    """

    name = "scream_dsprites"
    stochastic = True
    image_shape = (3, SIDE, SIDE)

    def __init__(self, source: str | Path | None = None, scream: str | Path | None = None) -> None:
        super().__init__(source)
        self.scream = None if scream is None else str(scream)
        self._painting: Tensor | None = None

    def prepare(self) -> None:
        """Prepare the sprites and the painting."""
        if self._painting is None:
            self._painting = _read_painting(SCREAM.fetch() if self.scream is None else Path(self.scream))
        super().prepare()

    @property
    def download_size(self) -> int:
        """Bytes of the painting, unless it is given."""
        return super().download_size + (SCREAM.size if self.scream is None else 0)

    def is_prepared(self) -> bool:
        """Return whether the sprites are in the cache and the painting is available locally."""
        return super().is_prepared() and Path(self.scream or SCREAM.path).exists()

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, 5]``: float32 ``[N, 3, 64, 64]`` in [0, 1]."""
        sprites = self._sprites(factors)
        assert self._painting is not None
        n, (_, height, width) = len(sprites), self._painting.shape
        window = torch.arange(SIDE)
        rows = torch.randint(height - SIDE + 1, (n, 1), generator=generator) + window
        columns = torch.randint(width - SIDE + 1, (n, 1), generator=generator) + window
        patches = self._painting[:, rows[:, :, None], columns[:, None, :]].transpose(0, 1)
        background = (patches + torch.rand(n, 3, 1, 1, generator=generator)) / 2
        return torch.where(sprites > 0, 1 - background, background)


def _read_painting(path: Path) -> Tensor:
    try:
        with Image.open(path) as image:
            picture = image.convert("RGB")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file. Give the path of a picture of The Scream.") from None
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(
            f"{path}: not a readable picture ({error}). Replace it, or delete it if it was downloaded."
        ) from error
    picture.thumbnail((350, 274))
    if min(picture.size) < SIDE:
        raise ValueError(f"{path}: {picture.size[0]} x {picture.size[1]} pixels after shrinking, at least 64 needed.")
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255


# Drawing. Coordinates are in pixels, x to the right and y down; pixel (row, column) is sampled at its centre.


def _outlines() -> tuple[Floats, Floats, Floats]:
    """Corners of the square, the ellipse and the heart at scale 1 and orientation 0: each ``[V, 2]``."""
    square = 9.6 * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    a = 2 * np.pi * np.arange(100) / 100
    ellipse = 9.6 * np.stack([1.33 * np.cos(a), np.sin(a) / 1.33], axis=1)
    t = 2 * np.pi * np.arange(150) / 150
    curve = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    heart = np.stack([9.6 * np.sin(t) ** 3, -19.2 / 29 * curve - 1.44], axis=1)
    return square, ellipse, heart


def draw_grid() -> Iterator[Bytes]:
    """Yield all images in grid order, one bit per pixel: 720 chunks ``[1024, 512]``, one for each orientation of a
    sprite.
    """
    for outline in _outlines():
        for scale in np.linspace(0.5, 1, 6):
            for angle in np.linspace(0, 2 * np.pi, 40):
                yield _draw_everywhere(outline, scale, angle)


def _draw_everywhere(outline: Floats, scale: float, angle: float) -> Bytes:
    """Draw one sprite at all 32 x 32 positions by an exact scan-line fill in integers.

    The original renderer rounds vertices to 1/256 pixel, which are the units used here.
    """
    u, v = outline.T
    centre = 16 + 32 * np.linspace(0, 1, 32)[:, None]
    x = _subpixels(centre + scale * (np.cos(angle) * u + np.sin(angle) * v))  # [pos_x, V]
    y = _subpixels(centre + scale * (np.cos(angle) * v - np.sin(angle) * u))  # [pos_y, V]
    dx, dy = np.roll(x, -1, axis=1) - x, np.roll(y, -1, axis=1) - y

    # Which edges cross which rows depends only on the vertical position. A pixel is sampled slightly to the right of
    # and above its centre, so that left and bottom edges include the pixels they touch.
    centres = 256 * np.arange(SIDE)[:, None] + 128
    top, bottom = np.minimum(y, y + dy)[:, None], np.maximum(y, y + dy)[:, None]
    pos_y, row, edge = np.nonzero((top < centres) & (centres <= bottom))

    # First pixel at or to the right of each crossing: ceil((x_crossing - 128) / 256), for every pos_x.
    rise = np.abs(dy[pos_y, edge])
    along = (centres[row, 0] - y[pos_y, edge]) * np.sign(dy[pos_y, edge])
    column = -((-((x[:, edge] - 128) * rise + along * dx[:, edge])) // (256 * rise))

    # A row is one 64-bit word. Each crossing flips all pixels to its right; even-odd filling is their xor.
    flips = np.uint64(0xFFFF_FFFF_FFFF_FFFF) >> column.astype(np.uint64)
    line = pos_y * SIDE + row
    first = np.flatnonzero(np.diff(line, prepend=-1))
    words = np.zeros((32, 32 * SIDE), dtype=">u8")
    words[:, line[first]] = np.bitwise_xor.reduceat(flips, first, axis=1)
    return words.view(np.uint8).reshape(-1, IMAGE_BYTES)


def _subpixels(coordinates: Floats) -> npt.NDArray[np.int64]:
    return np.rint(coordinates.astype(np.float32) * np.float32(256)).astype(np.int64)


# The original file.


def read_original(path: Path, space: FactorSpace = SPACE) -> Iterator[Bytes]:
    """Yield images of the published ``.npz`` in grid order, one bit per pixel, in chunks ``[n, 512]``.

    The pickled ``metadata`` entry is never opened.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            with archive.open("latents_classes.npy") as file:
                classes = np.lib.format.read_array(file, allow_pickle=False)
            grid = space.factors(torch.arange(space.size)).numpy()
            if classes.shape[0] != space.size or not np.array_equal(classes[:, -space.num_factors :], grid):
                raise ValueError(f"its {len(classes)} rows are not the whole grid of {space.size} in order")
            with archive.open("imgs.npy") as file:
                for pixels in read_npy(file, space.size, (SIDE, SIDE)):
                    yield np.packbits(pixels.reshape(len(pixels), SIDE * SIDE), axis=-1)
    except Exception as error:  # zipfile, zlib and numpy raise many kinds of errors for a damaged file
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: not a whole original dSprites file ({reason}). Download it again from {ORIGINAL.urls[0]}, "
            "or leave out `source` to draw the images."
        ) from error
