"""Which code computed something."""

import subprocess
from functools import cache
from pathlib import Path


@cache
def commit() -> str | None:
    """The commit of this code, with ``-dirty`` if files were changed since; ``None`` where it is no checkout of git."""
    here = Path(__file__).resolve()
    where = here.parent.parent
    # Somebody's own repository may have a .venv with this package in it: its commits are not ours.
    if not (where / ".git").exists() or not (where / "core" / here.name).exists():
        return None
    describe = ["git", "-C", str(where), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
