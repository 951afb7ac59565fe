"""What names a checkpoint, and where the shipped ones are."""

import re
from pathlib import Path

SHIPPED = Path(__file__).parent / "pretrained"
"""Folder of the checkpoints that come with the package, each with config.json, model.safetensors and README.md."""
ORGANISATION = "unknot"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
REF = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9_][A-Za-z0-9_./-]*))?")


def parse_ref(ref: str | Path) -> tuple[str, str | None] | None:
    """Repository and revision that ``ref`` names, or None if it can only be a folder.

    >>> parse_ref("me/model@v1"), parse_ref("me/model"), parse_ref("runs/a/version_0/model")
    (('me/model', 'v1'), ('me/model', None), None)
    """
    match = REF.fullmatch(ref) if isinstance(ref, str) else None
    return (match[1], match[2]) if match else None


def shipped_folder(repo: str) -> Path | None:
    """Folder of a checkpoint that came with the package."""
    organisation, _, name = repo.partition("/")
    folder = SHIPPED / name
    return folder if organisation == ORGANISATION and (folder / "config.json").is_file() else None


def shipped_names() -> list[str]:
    """Names of the checkpoints that came with the package."""
    return [f"{ORGANISATION}/{path.parent.name}" for path in sorted(SHIPPED.glob("*/config.json"))]
