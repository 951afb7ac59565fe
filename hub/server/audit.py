"""Append-only log of all changes: one line of JSON each, on disk before the next change."""

import json
import os
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path

from unknot.hub.server.incoming import private


class AuditLog:
    """Append-only file that only its owner can read.

    Args:
        path: path of the file; created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "ab", buffering=0, opener=private)  # noqa: SIM115
        self._lock, self._pending = threading.Lock(), b""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def write(self, user: str, action: str, repo: str, **details: str | bool) -> None:
        """Add a line. Lines for which the disk has no space are kept and written with the next one.

        Args:
            user: user who made the change.
            action: kind of change.
            repo: repository that was changed.
            details: further facts about the change.
        """
        row = {"date": now(), "user": user, "action": action, "repo": repo, **details}
        with self._lock:
            self._pending += json.dumps(row).encode() + b"\n"
            try:
                while self._pending:
                    self._pending = self._pending[self._file.write(self._pending) :]
                os.fsync(self._file.fileno())
            except OSError as error:
                print(f"audit.jsonl: {error.strerror}; the last lines are written later.", file=sys.stderr)


def now() -> str:
    """Return the time in the Hub's format."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
