"""Contents of files by their hash: stored once each, and deleted when unreferenced."""

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from unknot.checkpoints.names import HASH
from unknot.hub.server.incoming import Incoming, digest
from unknot.hub.server.quota import Quota


class Contents:
    """Folder of contents.

    Args:
        root: the folder.
        lock: held while commits are made.
        quota: quota that counts referenced and uploaded contents.
    """

    def __init__(self, root: Path, lock: threading.RLock, quota: Quota) -> None:
        self.root, self._lock, self.quota = root, lock, quota
        self._fresh: Counter[str] = Counter()  # contents of unfinished commits
        self._uploaded: dict[str, dict[str, int]] = {}  # contents uploaded outside of commits, by namespace

    def path(self, sha256: str) -> Path:
        """Return the path of a content, which may not exist."""
        if not HASH.fullmatch(sha256):
            raise ValueError(f"{sha256[:100]!r} is not a sha256.")
        return self.root / sha256[:2] / sha256

    def holds(self, sha256: str, size: int) -> bool:
        """Return whether a content exists undamaged."""
        path = self.path(sha256)
        if not path.is_file() or path.stat().st_size != size:
            return False
        with path.open("rb") as file:
            whole = digest(file, hashlib.sha256()) == sha256
        with suppress(FileNotFoundError), self._lock:
            self._fresh.pop(sha256, None)
            os.utime(path)  # a client that skips this upload has a day to make the commit
        return whole

    def incoming(self) -> Incoming:
        """Return a writer for content that arrives in parts."""
        return Incoming(self.root, self.path)

    def announced(self, sha256: str, size: int | None) -> dict[str, Any]:
        """Describe a file whose content was received earlier."""
        path = self.path(sha256)
        if not path.is_file() or size not in (None, path.stat().st_size):
            raise ValueError(f"The content {sha256[:100]} was never received. Upload it first.")
        return {"size": path.stat().st_size, "sha256": sha256, "sha1": None, "text": False}

    def came(self, sha256: str, created: bool) -> bool:
        """Record content of an unfinished commit; return False if it existed before."""
        with self._lock:
            if created or sha256 in self._fresh:
                self._fresh[sha256] += 1
                return True
        return False

    def discard(self, contents: Iterable[str]) -> None:
        """Delete contents of a commit that was not made, unless another commit uses them."""
        with self._lock:
            for sha256 in contents:
                self._fresh[sha256] -= 1
                if self._fresh[sha256] == 0 and not self.quota.counts(sha256):
                    self.path(sha256).unlink(missing_ok=True)
                if self._fresh[sha256] <= 0:
                    del self._fresh[sha256]

    def uploaded(self, namespace: str, sha256: str, size: int) -> None:
        """Count content that was uploaded outside of a commit."""
        with self._lock:
            self._fresh.pop(sha256, None)
            self._uploaded.setdefault(namespace, {})[sha256] = size
            self.quota.count(namespace, {sha256: size})

    def named(self, namespace: str, sizes: Mapping[str, int]) -> None:
        """Record that a commit references contents."""
        self.quota.count(namespace, sizes)
        for sha256 in sizes:
            self._fresh.pop(sha256, None)

    def count(self, sizes: dict[str, dict[str, int]]) -> None:
        """Recount the contents: those referenced by commits, by namespace, and uploaded ones that still exist."""
        self._uploaded = {
            namespace: {sha256: size for sha256, size in uploaded.items() if self.path(sha256).is_file()}
            for namespace, uploaded in self._uploaded.items()
        }
        for namespace, uploaded in self._uploaded.items():
            sizes.setdefault(namespace, {}).update(uploaded)
        self.quota.reset(sizes)

    def unnamed(self, sizes: Mapping[str, Mapping[str, int]], before: float, beside: Path) -> list[Path]:
        """Return files of unreferenced contents that were not accessed since a time.

        Args:
            sizes: sizes of referenced contents, by namespace.
            before: seconds since the epoch.
            beside: another folder of files named by contents.
        """
        named: set[str] = set().union(*sizes.values())
        return [
            path
            for folder in (self.root, beside)
            for path in folder.glob("*/*")
            if HASH.fullmatch(path.name) and path.name not in named and path.stat().st_mtime <= before
        ]


def remove(paths: Iterable[Path], before: float) -> int:
    """Delete files that were not accessed since a time, and return their total size."""
    freed = 0
    for path in paths:
        with suppress(FileNotFoundError):
            status = path.stat()
            if status.st_mtime <= before:
                path.unlink()
                freed += status.st_size
    return freed
