"""Files: the cache folder, atomic and durable writes, reads within limits, and a cache in memory."""

import hashlib
import json
import os
import stat
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import platformdirs

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def cache_dir() -> Path:
    """Return the folder of drawn, downloaded and converted data: ``$UNKNOT_CACHE``, or the platform's cache folder."""
    return Path(os.environ.get("UNKNOT_CACHE") or platformdirs.user_cache_dir("unknot", appauthor=False))


@contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; rename it over ``path`` on success, remove it on failure.

    Readers see the old file or the new one, never a part; several processes may write at the same time.

    Args:
        path: the file; its parent folders are created.
        durable: write the content and the rename to the disk before returning, so that both survive a power failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield beside
        if durable:
            sync(beside)
        os.replace(beside, path)
        if durable:
            sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> IO[bytes]:
    """Open a file for reading; a FIFO or a device, which would block or never end, is a ``ValueError``."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{path}: not a regular file")
    return file


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def read_limited(path: Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes, without reading more of a longer one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a").write_bytes(b"12345")
    ...     read_limited(Path(folder) / "a", 4)
    Traceback (most recent call last):
    ...
    ValueError: a has more than 4 bytes
    """
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{path.name} has more than {limit:,} bytes")
    return content


def read_json(path: Path, limit: int = 64 << 20) -> Any:
    """Read a JSON file; return ``None`` if it does not exist, raise a ``ValueError`` that names it if it is damaged."""
    try:
        return json.loads(read_limited(path, limit).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a whole JSON file ({error})") from None


def write_json(path: Path, value: Any, indent: int | None = 1, durable: bool = False) -> None:
    """Write a JSON file atomically."""
    with replacing(path, durable) as beside:
        beside.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")


def digest(file: IO[bytes], algorithm: Any) -> str:
    """Return the hash of the rest of an open file."""
    while chunk := file.read(1 << 20):
        algorithm.update(chunk)
    return str(algorithm.hexdigest())


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file; it is computed again only when the file has changed."""
    about = path.stat()
    return _sha256_of(path, about.st_ino, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=20_000)
def _sha256_of(path: Path, *version: int) -> str:
    with open_regular(path) as file:
        return digest(file, hashlib.sha256())


# In memory


class Cache(Generic[K, V]):
    """Least-recently-used cache with a limit on the sum of weights.

    Args:
        limit: maximum sum of the weights. A heavier value is returned and not cached.

    >>> cache = Cache(limit=10)
    >>> [cache.get(key, lambda: key * 4, len) for key in ("a", "b", "c", "a")]
    ['aaaa', 'bbbb', 'cccc', 'aaaa']
    >>> cache.weight
    8
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.weight = limit, 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V], weigh: Callable[[V], int]) -> V:
        """Return the value of a key, made if it is not cached. Two concurrent threads may both make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        value = make()
        weight = weigh(value)
        with self._lock:
            self.weight -= self._values.pop(key, (None, 0))[1]
            if weight <= self.limit:
                self._values[key] = value, weight
                self.weight += weight
            while self.weight > self.limit:
                self.weight -= self._values.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self.weight = 0
