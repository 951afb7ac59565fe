"""Names of checkpoints, repositories, commits and contents, and the location of bundled checkpoints."""

import re
from pathlib import Path

BUNDLED = Path(__file__).parent / "bundled"
"""Folder of the bundled checkpoints, each with config.json, model.safetensors and README.md."""
ORGANISATION = "unknot"
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
"""Files of a checkpoint."""
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
REF = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9_][A-Za-z0-9_./-]*))?")

NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
COMMIT = re.compile(r"[0-9a-f]{40}")
HASH = re.compile(r"[0-9a-f]{64}")


def parse_ref(ref: str | Path) -> tuple[str, str | None] | None:
    """Return repository and revision named by ``ref``, or None if it can only be a folder.

    >>> parse_ref("me/model@v1"), parse_ref("me/model"), parse_ref("runs/a/version_0/model")
    (('me/model', 'v1'), ('me/model', None), None)
    """
    match = REF.fullmatch(ref) if isinstance(ref, str) else None
    return (match[1], match[2]) if match else None


def bundled_folder(repo: str) -> Path | None:
    """Return the folder of a bundled checkpoint."""
    organisation, _, name = repo.partition("/")
    folder = BUNDLED / name
    return folder if organisation == ORGANISATION and (folder / CONFIG).is_file() else None


def bundled_names() -> list[str]:
    """Return the names of the bundled checkpoints."""
    return [f"{ORGANISATION}/{path.parent.name}" for path in sorted(BUNDLED.glob("*/config.json"))]


def check_repo_id(repo_id: str) -> str:
    """Return a repository name after checking it against the Hub's rules.

    >>> check_repo_id("me/my-model")
    'me/my-model'
    >>> check_repo_id("../etc")
    Traceback (most recent call last):
    ...
    ValueError: '../etc' is not a repository's name: it is USER/NAME, of letters, digits, '-', '_' and '.'.
    """
    parts = repo_id.split("/")
    fine = len(parts) == 2 and len(repo_id) <= 96 and all(NAME.fullmatch(part) for part in parts)
    if not fine or "--" in repo_id or ".." in repo_id or repo_id.endswith(".git"):
        raise ValueError(
            f"{repo_id!r} is not a repository's name: it is USER/NAME, of letters, digits, '-', '_' and '.'."
        )
    return repo_id
