"""Durable writes that leave either the old or the new file after a crash, readable only by their owner."""

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from unknot.files import replacing

MAX_TEXT = 1 << 20


class Incoming:
    """Content that arrives in parts: hashed while written, and renamed into place by :meth:`keep`."""

    def __init__(self, folder: Path, place: Callable[[str], Path]) -> None:
        self._place = place
        self._path = folder / f".incoming.{secrets.token_hex(16)}.part"
        self._file = open(self._path, "w+b", opener=private)  # noqa: SIM115
        self._sha256, self._size, self._text = hashlib.sha256(), 0, True
        self.created = False
        """True if the content was not here before :meth:`keep`."""

    def __enter__(self) -> "Incoming":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    @property
    def size(self) -> int:
        """Number of bytes so far."""
        return self._size

    def write(self, data: bytes) -> None:
        """Write the next part."""
        if self._size < 8000 and b"\0" in data[: 8000 - self._size]:
            self._text = False
        self._sha256.update(data)
        self._size += len(data)
        self._file.write(data)

    def keep(self, sha256: str | None = None, size: int | None = None) -> dict[str, Any]:
        """Move the content into place if hash and size are the announced ones, and describe it.

        Existing content is compared, so that damage on disk is repaired.
        """
        digest = self._sha256.hexdigest()
        if (sha256, size) not in ((None, None), (digest, self._size)):
            raise ValueError(f"Announced were {size} bytes of sha256 {sha256}, got {self._size} of {digest}.")
        self._file.flush()
        path = self._place(digest)
        self.created = not path.exists()
        if not self._is_at(path):
            os.fsync(self._file.fileno())
            path.parent.mkdir(exist_ok=True)
            os.replace(self._path, path)
            sync_folder(path.parent)
        text = self._text and self._size <= MAX_TEXT
        # Only text needs git's hash, which starts with the size and so requires a second read.
        return {"size": self._size, "sha256": digest, "sha1": self._git_hash() if text else None, "text": text}

    def _is_at(self, path: Path) -> bool:
        try:
            os.utime(path)  # uploaded again: mark as recently used
            return same_content(self._file, path)
        except FileNotFoundError:
            return False

    def _git_hash(self) -> str:
        self._file.seek(0)
        return digest(self._file, hashlib.sha1(b"blob %d\0" % self._size))


def is_part(path: Path) -> bool:
    """Return whether a file was left by an interrupted writer."""
    return re.fullmatch(r"\..+\.[0-9a-f]{32}\.part", path.name) is not None


def digest(file: IO[bytes], algorithm: Any) -> str:
    """Return the hash of the rest of an open file."""
    while chunk := file.read(1 << 20):
        algorithm.update(chunk)
    return str(algorithm.hexdigest())


def git_hash(path: Path, size: int) -> str:
    """Return git's hash of a file's content."""
    with path.open("rb") as file:
        return digest(file, hashlib.sha1(b"blob %d\0" % size))


def same_content(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file and another have the same content."""
    file.seek(0)
    with path.open("rb") as other:
        while True:
            ours, theirs = file.read(1 << 20), other.read(1 << 20)
            if ours != theirs:
                return False
            if not ours:
                return True


def private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, as ``opener`` of :func:`open`."""
    return os.open(path, flags, 0o600)


def sync_folder(path: Path) -> None:
    """Flush a folder, so that a rename in it survives a power failure."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def durably(path: Path) -> Iterator[IO[bytes]]:
    """Like ``replacing``, but readable only by the owner, and on disk before it returns."""
    with replacing(path) as beside, open(beside, "wb", opener=private) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
