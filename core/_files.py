"""Where files live, and how they are written so that nobody ever sees half of one."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Folder for drawn, downloaded and converted data: ``$UNKNOT_CACHE``, else the platform's cache folder."""
    return Path(os.environ.get("UNKNOT_CACHE") or platformdirs.user_cache_dir("unknot", appauthor=False))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside ``path`` to write to; rename it over ``path`` on success, remove it on failure.

    Readers see the old file or the new one, never a part; several processes may write at the same time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
