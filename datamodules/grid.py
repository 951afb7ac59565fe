"""Data sets with one image for every grid point, converted once to a memory-mapped file.

The file is a plain ``.npy`` of uint8, so that ``numpy.load(path, mmap_mode="r")`` opens it anywhere, with a short note
and checksums after the pixels.
"""

import hashlib
import io
import json
import mmap
import os
import shutil
import struct
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from tqdm.auto import tqdm

from unknot.datamodules.download import RemoteFile, human_size, one_at_a_time
from unknot.datamodules.factors import GroundTruthDataset
from unknot.files import cache_dir, replacing

Bytes = npt.NDArray[np.uint8]
Chunk = TypeVar("Chunk", bound=Sized)

CHUNK = 1024  # images
FOOTER = struct.Struct(">QII")  # length of the note, CRC-32 of the pixels, CRC-32 of header, note and preceding footer


SMALL = 1 << 30  # files up to this many bytes are kept resident, which is faster
RESIDENT = 1 << 25  # resident bytes of larger files
AROUND = 1 << 21  # maximum bytes that the kernel maps around an access


class Grid:
    """Rows of a memory-mapped file, read without growing the process's memory."""

    def __init__(self, path: Path, shape: tuple[int, ...], note: Any = None) -> None:
        self._arguments = path, shape, note
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):  # do not read ahead: access is random
            self._map.madvise(mmap.MADV_RANDOM)
        header = len(_header(shape))
        self.rows: Bytes = np.frombuffer(self._map, np.uint8, int(np.prod(shape)), header).reshape(shape)
        self.note = note

    def take(self, index: npt.NDArray[np.int64]) -> Bytes:
        """Return copies of the rows ``index``."""
        if len(self._map) <= SMALL or not hasattr(mmap, "MADV_DONTNEED"):
            return self.rows[index]
        taken = np.empty((len(index), *self.rows.shape[1:]), dtype=np.uint8)
        group = max(1, RESIDENT // (AROUND + self.rows[0].nbytes))
        for start in range(0, len(index), group):
            taken[start : start + group] = self.rows[index[start : start + group]]
            # The pages stay in the system's cache, but no longer count as memory of this process.
            self._map.madvise(mmap.MADV_DONTNEED)
        return taken

    def __reduce__(self) -> tuple[type["Grid"], tuple[Any, ...]]:
        return Grid, self._arguments  # worker processes map the file again instead of copying it


def write_grid(path: Path, shape: tuple[int, ...], chunks: Iterable[Bytes], note: Any = None) -> None:
    """Write rows of uint8, given in chunks ``[n, ...]``, to a file atomically.

    ``note`` is any JSON value; it is written last, so that it may change while chunks are produced.
    """
    needed = int(np.prod(shape))
    path.parent.mkdir(parents=True, exist_ok=True)
    if needed > (free := shutil.disk_usage(path.parent).free):
        raise OSError(
            f"{path.parent}: {human_size(needed)} needed for {path.name}, {human_size(free)} free. Make room, or set "
            "UNKNOT_CACHE to a folder on another disk."
        )
    header = _header(shape)
    crc = written = 0
    with replacing(path) as beside, beside.open("wb") as file:
        file.write(header)
        for chunk in chunks:
            data = np.ascontiguousarray(chunk).data
            file.write(data)
            crc = zlib.crc32(data, crc)
            written += data.nbytes
        if written != needed:
            raise ValueError(f"{written // int(np.prod(shape[1:]))} images instead of {shape[0]}")
        file.write(_ending(header, json.dumps(note).encode(), crc))
        file.flush()
        os.fsync(file.fileno())


def open_grid(path: Path, shape: tuple[int, ...], check_pixels: bool = False) -> Grid | None:
    """Map a file of :func:`write_grid`; return ``None`` if it is missing, damaged or of another shape.

    Length, header, note and footer are always checked; ``check_pixels`` also reads the whole file for its checksum.
    """
    header, pixels = _header(shape), int(np.prod(shape))
    try:
        with path.open("rb") as file:
            rest = os.fstat(file.fileno()).st_size - len(header) - pixels
            if rest < FOOTER.size or file.read(len(header)) != header:
                return None
            file.seek(pixels, os.SEEK_CUR)
            ending = file.read()
            note = ending[: -FOOTER.size]
            _, crc, _ = FOOTER.unpack(ending[-FOOTER.size :])
            if ending != _ending(header, note, crc):
                return None
            if check_pixels:
                file.seek(len(header))
                if _crc(file, pixels) != crc:
                    return None
    except FileNotFoundError:
        return None
    return Grid(path, shape, json.loads(note))


def made_once(
    path: Path,
    shape: tuple[int, ...],
    make: Callable[[], Iterable[Bytes]],
    note: Any = None,
    check_pixels: bool = False,
) -> Grid:
    """Map a cached file; write it from the chunks of ``make()`` first if it is missing, damaged or of another shape.

    Of several processes, one writes it and the others wait.
    """
    grid = open_grid(path, shape, check_pixels)
    if grid is None:
        with one_at_a_time(path):
            grid = open_grid(path, shape, check_pixels)  # another process may have been faster
            if grid is None:
                write_grid(path, shape, make(), note)
                grid = open_grid(path, shape, check_pixels)
    if grid is None:
        raise OSError(f"{path} cannot be read back after writing it; is the disk full or failing?")
    return grid


class Records:
    """Rows of several fields, such as an image and its mask, in one cached file, which is created if necessary.

    Args:
        path: path of the file.
        dtype: structured type of a row.
        count: number of rows.
        make: function that yields the rows in chunks.
    """

    def __init__(
        self, path: Path, dtype: np.dtype[Any], count: int, make: Callable[[], Iterable[npt.NDArray[np.void]]]
    ) -> None:
        self.dtype = dtype
        shape = (count, dtype.itemsize)
        self.grid = made_once(path, shape, lambda: (chunk.view(np.uint8).reshape(-1, shape[1]) for chunk in make()))

    def __getitem__(self, numbers: list[int]) -> npt.NDArray[np.void]:
        rows: npt.NDArray[np.void] = self.grid.take(np.array(numbers, dtype=np.int64)).view(self.dtype)[:, 0]
        return rows


def with_progress(chunks: Iterable[Chunk], total: int, doing: str) -> Iterator[Chunk]:
    """Yield the chunks under a progress bar."""
    with tqdm(desc=doing, total=total, unit="image", disable=None, leave=False) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(len(chunk))


def _header(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _ending(header: bytes, note: bytes, crc: int) -> bytes:
    unsigned = note + FOOTER.pack(len(note), crc, 0)[:-4]
    return unsigned + zlib.crc32(header + unsigned).to_bytes(4, "big")


def _crc(file: IO[bytes], length: int) -> int:
    # Read through a small buffer: checking through the mapping would make the whole file resident.
    crc = 0
    while length and (data := file.read(min(1 << 22, length))):
        crc = zlib.crc32(data, crc)
        length -= len(data)
    return crc


class GridDataset(GroundTruthDataset):
    """Data set whose images are read from published files.

    Subclasses set ``files`` and implement :meth:`read`.

    Args:
        source: ``None`` to download the files unless they are cached; or the path of the file or of the folder with the
            published files.
    """

    stochastic = False
    grey_levels = 255
    files: tuple[RemoteFile, ...] = ()
    title: ClassVar[str]
    doing = "converting"
    check_pixels: ClassVar[bool] = False  # check pixels at every start, for small files only
    instead: ClassVar[str] = "leave out `source` to download it"  # advice for a path that does not exist

    def __init__(self, source: str | Path | None = None) -> None:
        self.source = None if source is None else str(source)
        self._grid: Grid | None = None

    @abstractmethod
    def read(self, paths: list[Path]) -> Iterator[Bytes]:
        """Yield rows in grid order, in chunks ``[n, C, H, W]``, from the paths of ``files``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the converted file: ``[rows, C, H, W]``."""
        return (self.factor_space.size, *self.image_shape)

    @property
    def disk_size(self) -> int:
        """Bytes of the converted file."""
        return int(np.prod(self.shape))

    @property
    def download_size(self) -> int:
        """Approximate number of bytes to download."""
        return sum(file.size for file in self.files)

    def cache_key(self) -> str:
        """Name of the converted file, which changes with the source."""
        return self._cache_path().stem

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, F]``: float32 ``[N, C, H, W]`` in [0, 1]."""
        return self._images(self.factor_space.index(factors))

    def prepare(self) -> None:
        """Download and convert the files, unless the converted file is cached."""
        if self._grid is None:
            self._grid = made_once(self._cache_path(), self.shape, self._make, check_pixels=self.check_pixels)

    def is_prepared(self) -> bool:
        """Return whether the cache holds a converted file for this source."""
        try:
            return self._grid is not None or open_grid(self._cache_path(), self.shape) is not None
        except (OSError, ValueError):  # the source does not exist
            return False

    def repair(self) -> bool:
        """Verify every pixel of the converted file, and convert again if one differs; return whether it did."""
        path = self._cache_path()
        intact = open_grid(path, self.shape, check_pixels=True) is not None
        if not intact:
            path.unlink(missing_ok=True)
            self._grid = None
            self.prepare()
        return intact

    def _images(self, index: Tensor) -> Tensor:
        # NumPy runs in this thread; waking torch's threads would cost more than it saves here.
        return torch.from_numpy(np.divide(self._rows(index), np.float32(255), dtype=np.float32))

    def _rows(self, index: Tensor) -> Bytes:
        self.prepare()
        assert self._grid is not None
        return self._grid.take(index.numpy())

    def _chunks(self) -> Iterator[Bytes]:
        downloads = self.source in (None, "download")
        return self.read([file.fetch() for file in self.files] if downloads else self._given())

    def _make(self) -> Iterator[Bytes]:
        chunks = self._chunks()  # may download, with its own progress bar
        return with_progress(chunks, self.shape[0], f"{self.doing} {self.title}")

    def _cache_path(self) -> Path:
        key = "" if self.source in (None, "download") else f"-{fingerprint(self._given())}"
        return cache_dir() / f"{self.name}{key}.npy"

    def _given(self) -> list[Path]:
        """Return the files of ``source``."""
        source = Path(str(self.source))
        paths = [source / file.name for file in self.files] if source.is_dir() else [source]
        for path in paths:
            if not path.exists():
                names = " and ".join(file.name for file in self.files)
                raise FileNotFoundError(
                    f"{path}: no such file. Give the path of {names} or its folder, or {self.instead}."
                )
        if len(paths) != len(self.files):
            raise ValueError(f"{source}: {self.title} is {len(self.files)} files; give the folder that holds them.")
        return paths


def fingerprint(paths: Iterable[Path], *more: object) -> str:
    """Return a short key that changes when one of the files does."""
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr((stats, *more)).encode()).hexdigest()[:16]


@contextmanager
def reading(path: Path, file: RemoteFile) -> Iterator[None]:
    """Convert any error of a reader of a damaged file into a message that names the file and a remedy."""
    try:
        yield
    except Exception as error:  # h5py, zipfile, tarfile, zlib, scipy and numpy raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        remedy = "Delete it and run again" if path == file.path else "Download it again"
        raise ValueError(f"{path}: not a whole {file.name} ({reason}). {remedy}; it is at {file.urls[0]}.") from error


def read_npy(file: IO[bytes], count: int, image_shape: tuple[int, ...]) -> Iterator[Bytes]:
    """Yield images of an open ``.npy`` of uint8, with ``count`` in its leading axes: chunks ``[n, *image_shape]``."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("unknown .npy version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    leading = len(shape) - len(image_shape)
    right = leading > 0 and shape[leading:] == image_shape and int(np.prod(shape[:leading])) == count
    if not right or fortran or dtype != np.uint8:
        raise ValueError(f"images are {dtype} {shape}, expected uint8 {(count, *image_shape)}")
    size = int(np.prod(image_shape))
    for start in range(0, count, CHUNK):
        length = min(CHUNK, count - start)
        pixels = np.frombuffer(file.read(length * size), dtype=np.uint8)
        if len(pixels) != length * size:
            raise ValueError("images end early")
        yield pixels.reshape(length, *image_shape)
    if file.read(1):  # zipfile compares the checksum only at the end
        raise ValueError("there is more data than the header states")


def shrink(images: Bytes, side: int) -> Bytes:
    """Shrink square images ``[n, H, W]`` or ``[n, H, W, C]`` by Pillow's Lanczos filter, as in the reference."""
    small = [Image.fromarray(image).resize((side, side), Image.Resampling.LANCZOS) for image in images]
    return np.stack([np.asarray(image) for image in small])
