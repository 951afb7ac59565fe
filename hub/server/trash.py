"""Trash of deleted repositories, which can be restored for some days."""

import json
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unknot.checkpoints.names import check_repo_id
from unknot.hub.server.audit import now
from unknot.hub.server.incoming import durably, sync_folder

NOTE = "deleted.json"
KEPT = 7 * 86400.0
"""Seconds that a deleted repository can be restored."""


@dataclass(frozen=True)
class Deleted:
    """Deleted repository: its name, who deleted it and when, and the location of its files."""

    id: str
    user: str
    date: str
    folder: Path


class Trash:
    """Folder of deleted repositories.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, folder: Path, repo_id: str, user: str) -> None:
        """Move the folder of a repository to the trash."""
        with durably(folder / NOTE) as file:
            file.write(json.dumps({"id": repo_id, "user": user, "date": now()}).encode())
        move(folder, self.root / secrets.token_hex(8))

    def rows(self) -> list[Deleted]:
        """Return the repositories that can be restored, the latest first."""
        return sorted((row for row in map(_read, self._folders()) if row), key=lambda row: row.date, reverse=True)

    def restore(self, row: Deleted, folder: Path) -> None:
        """Restore a repository."""
        folder.parent.mkdir(exist_ok=True)
        move(row.folder, folder)
        (folder / NOTE).unlink(missing_ok=True)

    def purge(self) -> None:
        """Permanently remove expired repositories, and those without a record after a crash."""
        for folder in list(self._folders()):
            with suppress(FileNotFoundError):
                note = folder / NOTE
                if not note.exists() or note.stat().st_mtime < time.time() - KEPT:
                    shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> Iterator[Path]:
        return (path for path in self.root.iterdir() if re.fullmatch(r"[0-9a-f]{16}", path.name) and path.is_dir())


def _read(folder: Path) -> Deleted | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads((folder / NOTE).read_bytes())
        return Deleted(check_repo_id(note["id"]), str(note["user"]), str(note["date"]), folder)
    return None


def move(folder: Path, to: Path) -> None:
    """Rename a folder durably."""
    folder.rename(to)
    sync_folder(to.parent)
    sync_folder(folder.parent)
