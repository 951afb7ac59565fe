"""Which code computed something."""

import subprocess
from functools import cache
from pathlib import Path


@cache
def commit() -> str | None:
    """The commit of this code, with ``-dirty`` if a Python file was changed since; ``None`` where git has none."""
    here = Path(__file__).resolve()
    where = here.parent.parent
    # Somebody's own repository may have a .venv with this package in it: its commits are not ours.
    if not (where / ".git").exists() or not (where / "core" / here.name).exists():
        return None
    git = ["git", "-C", str(where)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "*.py"]).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if changed else head
