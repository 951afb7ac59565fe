"""dSprites, drawn instead of downloaded, and its Color-, Noisy- and Scream- variants.

The grid (3 shapes x 6 scales x 40 orientations x 32 x 32 positions, 737,280 images of 64 x 64) is kept on disk with
one bit per pixel and memory-mapped, so that it is made once and all processes share it.
"""

import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from tqdm.auto import tqdm

from unknot._files import cache_dir, replacing
from unknot.datamodules.download import fetch
from unknot.datamodules.factors import FactorSpace, GroundTruthDataset

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

SPACE = FactorSpace(names=("shape", "scale", "orientation", "pos_x", "pos_y"), sizes=(3, 6, 40, 32, 32))
SIDE = 64
IMAGE_BYTES = SIDE * SIDE // 8
CHUNK = 32 * 32  # images: one turned sprite at all positions

ORIGINAL_URL = (
    "https://github.com/google-deepmind/dsprites-dataset/raw/master/dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
)
ORIGINAL_MD5 = "7da33b31b13a06f4b04a70402ce90c2e"
SCREAM_URL = "https://upload.wikimedia.org/wikipedia/commons/f/f4/The_Scream.jpg"


class DSprites(GroundTruthDataset):
    """dSprites: white sprites on black, five factors, binary images ``[1, 64, 64]``.

    Args:
        source: ``None`` draws the images (of 20,000 originals 19,998 are equal in every pixel, the others differ in
            one); a path reads the original ``.npz``; ``"download"`` fetches that file first.

    >>> from unknot.datamodules import DSprites
    >>> dataset = DSprites()
    >>> dataset.observe(dataset.factor_space.sample(8)).shape
    torch.Size([8, 1, 64, 64])

    Orientations 0 and 39 are the same angle (0 and 2π), as in the original.
    """

    name = "dsprites"
    licence = "drawn here; original Apache-2.0"
    factor_space = SPACE
    image_shape = (1, SIDE, SIDE)

    def __init__(self, source: str | Path | None = None) -> None:
        self.source = None if source is None else str(source)
        self._images: Bytes | None = None

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images for factors ``[N, 5]``: float32 ``[N, C, 64, 64]`` in [0, 1]."""
        return self._sprites(factors)

    def prepare(self) -> None:
        """Draw, or convert the original file, unless a sound copy is in the cache."""
        if self._images is None:
            self._images = self._open()

    def is_prepared(self) -> bool:
        """Whether the cache holds a file for this source."""
        return self._images is not None or (self.source != "download" and self._cache_path().exists())

    def _sprites(self, factors: Tensor) -> Tensor:
        self.prepare()
        assert self._images is not None
        packed = self._images[self.factor_space.index(factors).numpy()]
        pixels = np.unpackbits(packed, axis=-1).reshape(-1, 1, SIDE, SIDE)
        # NumPy's conversion runs in this thread: torch's would wake threads that cost more than they bring here.
        return torch.from_numpy(pixels.astype(np.float32))

    def _open(self) -> Bytes:
        path = self._cache_path()
        images = _map_cache(path, self.factor_space.size)
        if images is None:
            chunks = draw_grid() if self.source is None else read_original(Path(self._original()), self.factor_space)
            desc = "drawing dSprites" if self.source is None else f"converting {Path(self._original()).name}"
            total = math.ceil(self.factor_space.size / CHUNK)
            _write_cache(path, tqdm(chunks, desc=desc, total=total, unit="chunk", disable=None, leave=False))
            images = _map_cache(path, self.factor_space.size)
            if images is None:
                raise OSError(f"{path} cannot be read back after writing it; is the disk full or failing?")
        return images

    def _cache_path(self) -> Path:
        if self.source is None:
            return cache_dir() / "dsprites-drawn-1.bits"
        path = Path(self._original())
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: no such file. Give the path of the original dSprites .npz, source='download', "
                "or no source at all to draw the images."
            )
        stat = path.stat()
        key = hashlib.sha256(f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode()).hexdigest()[:16]
        return cache_dir() / f"dsprites-original-{key}.bits"

    def _original(self) -> str:
        if self.source != "download":
            return str(self.source)
        name = ORIGINAL_URL.rpartition("/")[2]
        return str(fetch(ORIGINAL_URL, cache_dir() / "downloads" / name, md5=ORIGINAL_MD5))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_images": None}  # worker processes map the file again instead of copying it


class ColorDSprites(DSprites):
    """Color-dSprites: each channel of the sprite is scaled by its own U(0.5, 1), drawn anew for every image."""

    name = "color_dsprites"
    image_shape = (3, SIDE, SIDE)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images for factors ``[N, 5]``: float32 ``[N, 3, 64, 64]`` in [0, 1]."""
        sprites = self._sprites(factors)
        return sprites * (0.5 + 0.5 * torch.rand(len(sprites), 3, 1, 1, generator=generator))


class NoisyDSprites(DSprites):
    """Noisy-dSprites: white sprites on a background of uniform noise, drawn anew for every image."""

    name = "noisy_dsprites"
    image_shape = (3, SIDE, SIDE)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images for factors ``[N, 5]``: float32 ``[N, 3, 64, 64]`` in [0, 1]."""
        sprites = self._sprites(factors)
        return torch.maximum(sprites, torch.rand(len(sprites), *self.image_shape, generator=generator))


class ScreamDSprites(DSprites):
    """Scream-dSprites: sprites that invert the colours of a random, randomly tinted patch of *The Scream*.

    Args:
        source: as for :class:`DSprites`.
        scream: path of a picture of the painting; ``None`` downloads one (it is in the public domain, but not
            shipped). As in the reference implementation it is first shrunk to fit 350 x 274.
    """

    name = "scream_dsprites"
    image_shape = (3, SIDE, SIDE)

    def __init__(self, source: str | Path | None = None, scream: str | Path | None = None) -> None:
        super().__init__(source)
        self.scream = None if scream is None else str(scream)
        self._painting: Tensor | None = None

    def prepare(self) -> None:
        """Prepare the sprites and the painting."""
        if self._painting is None:
            path = cache_dir() / "downloads" / "The_Scream.jpg" if self.scream is None else Path(self.scream)
            if self.scream is None:
                fetch(SCREAM_URL, path)
            self._painting = _read_painting(path)
        super().prepare()

    def is_prepared(self) -> bool:
        """Whether the sprites are in the cache and the painting is at hand."""
        painting = self.scream or cache_dir() / "downloads" / "The_Scream.jpg"
        return super().is_prepared() and Path(painting).exists()

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images for factors ``[N, 5]``: float32 ``[N, 3, 64, 64]`` in [0, 1]."""
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
    """All images in grid order, one bit per pixel: 720 chunks ``[1024, 512]``, one for each turned sprite."""
    for outline in _outlines():
        for scale in np.linspace(0.5, 1, 6):
            for angle in np.linspace(0, 2 * np.pi, 40):
                yield _draw_everywhere(outline, scale, angle)


def _draw_everywhere(outline: Floats, scale: float, angle: float) -> Bytes:
    """One sprite at all 32 x 32 positions: a scan-line fill, exact in integers.

    The original renderer rounds vertices to 1/256 pixel, so everything below is in these units.
    """
    u, v = outline.T
    centre = 16 + 32 * np.linspace(0, 1, 32)[:, None]
    x = _subpixels(centre + scale * (np.cos(angle) * u + np.sin(angle) * v))  # [pos_x, V]
    y = _subpixels(centre + scale * (np.cos(angle) * v - np.sin(angle) * u))  # [pos_y, V]
    dx, dy = np.roll(x, -1, axis=1) - x, np.roll(y, -1, axis=1) - y

    # Which edges cross which rows depends on the vertical position alone. A pixel is sampled a hair to the right
    # of and above its centre, so that left and bottom edges own the pixels they touch.
    centres = 256 * np.arange(SIDE)[:, None] + 128
    top, bottom = np.minimum(y, y + dy)[:, None], np.maximum(y, y + dy)[:, None]
    pos_y, row, edge = np.nonzero((top < centres) & (centres <= bottom))

    # First pixel at or to the right of each crossing: ceil((x_crossing - 128) / 256), for every pos_x.
    rise = np.abs(dy[pos_y, edge])
    along = (centres[row, 0] - y[pos_y, edge]) * np.sign(dy[pos_y, edge])
    column = -((-((x[:, edge] - 128) * rise + along * dx[:, edge])) // (256 * rise))

    # A row is one 64-bit word. Each crossing flips all pixels from its column on; even-odd filling is their xor.
    flips = np.uint64(0xFFFF_FFFF_FFFF_FFFF) >> column.astype(np.uint64)
    line = pos_y * SIDE + row
    first = np.flatnonzero(np.diff(line, prepend=-1))
    words = np.zeros((32, 32 * SIDE), dtype=">u8")
    words[:, line[first]] = np.bitwise_xor.reduceat(flips, first, axis=1)
    return words.view(np.uint8).reshape(CHUNK, IMAGE_BYTES)


def _subpixels(coordinates: Floats) -> npt.NDArray[np.int64]:
    return np.rint(coordinates.astype(np.float32) * np.float32(256)).astype(np.int64)


# The original file.


def read_original(path: Path, space: FactorSpace = SPACE) -> Iterator[Bytes]:
    """Images of the published ``.npz`` in grid order, one bit per pixel, streamed in chunks ``[n, 512]``.

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
                yield from _read_images(file, space.size)
    except Exception as error:  # a damaged file makes zipfile, zlib and numpy raise almost anything
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: not a whole original dSprites file ({reason}). Download it again from {ORIGINAL_URL}, "
            "or leave out `source` to draw the images."
        ) from error


def _read_images(file: IO[bytes], count: int) -> Iterator[Bytes]:
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("unknown .npy version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if shape != (count, SIDE, SIDE) or fortran or dtype != np.uint8:
        raise ValueError(f"imgs is {dtype} {shape}, expected uint8 {(count, SIDE, SIDE)}")
    for start in range(0, count, CHUNK):
        wanted = min(CHUNK, count - start)
        pixels = np.frombuffer(file.read(wanted * SIDE * SIDE), dtype=np.uint8)
        if len(pixels) != wanted * SIDE * SIDE:
            raise ValueError("imgs ends early")
        yield np.packbits(pixels.reshape(wanted, SIDE * SIDE), axis=-1)
    if file.read(1):  # only reading up to the end makes zipfile compare the checksum
        raise ValueError("imgs is longer than it says")


# The cache: all images, then a CRC-32 of them in four bytes.


def _write_cache(path: Path, chunks: Iterable[Bytes]) -> None:
    crc = 0
    with replacing(path) as beside, beside.open("wb") as file:
        for chunk in chunks:
            file.write(chunk.data)
            crc = zlib.crc32(chunk.data, crc)
        file.write(crc.to_bytes(4, "big"))
        file.flush()
        os.fsync(file.fileno())


def _map_cache(path: Path, count: int) -> Bytes | None:
    """Map the cached images ``[count, 512]``, or ``None`` where the file is missing or damaged."""
    size = count * IMAGE_BYTES
    if not path.exists() or path.stat().st_size != size + 4:
        return None
    # Read through a small buffer: checking by way of the mapping would make all of it resident.
    crc, left = 0, size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(1 << 22, left))):
            crc = zlib.crc32(chunk, crc)
            left -= len(chunk)
        if file.read() != crc.to_bytes(4, "big"):
            return None
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="r", shape=(count, IMAGE_BYTES)))
