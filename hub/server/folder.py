"""Data folder of a hub: marked, and served by one process at a time.

The server deletes files in this folder, so a folder with other content is an error.
"""

from pathlib import Path
from typing import IO

from unknot.checkpoints.names import HASH
from unknot.hub.server.incoming import durably, is_part

try:
    import fcntl
except ImportError:  # Windows: a second server is not detected there
    fcntl = None  # type: ignore[assignment]

MARK = "unknot-hub.json"
FOLDERS = ("repos", "blobs", "trash", "cards")
AUDIT = "audit.jsonl"
BESIDE = {"lock", "tokens.txt", AUDIT}
"""Other files that may lie in the folder of a hub."""


def take_folder(root: Path) -> IO[str]:
    """Mark a folder as a hub's, create its subfolders, and return the lock file, which must stay open.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "thesis.tex").touch()
    ...     try:
    ...         take_folder(Path(folder))
    ...     except FileExistsError as error:
    ...         print(str(error).removeprefix(folder))
     is not the folder of a hub, and not empty (it holds thesis.tex). Give a new or empty folder.
    """
    _mark(root)
    for name in FOLDERS:
        (root / name).mkdir(exist_ok=True)
        (root / name).chmod(0o700)  # private repositories are hidden from other users of this machine too
    return _claim(root)


def _mark(root: Path) -> None:
    """Mark the folder as a hub's; raise an error if it has other content."""
    root.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in root.iterdir()}
    if MARK in names:
        return
    if names - BESIDE and not _is_of_an_earlier_version(root, names):
        some = ", ".join(sorted(names - BESIDE)[:3])
        raise FileExistsError(
            f"{root} is not the folder of a hub, and not empty (it holds {some}). Give a new or empty folder."
        )
    with durably(root / MARK) as file:
        file.write(b'{"unknot hub": 1}\n')


def _is_of_an_earlier_version(root: Path, names: set[str]) -> bool:
    """Return whether this is an unmarked hub of an earlier version: only its own folders and files."""
    if not {"repos", "blobs", "lock"} <= names <= {"repos", "blobs", "trash"} | BESIDE:
        return False
    blobs = all(HASH.fullmatch(path.name) or is_part(path) for path in root.glob("blobs/*/*"))
    repos = all(path.name in ("repo.json", "commits") for path in root.glob("repos/*/*/*"))
    return blobs and repos and not any(root.glob("trash/*"))


def _claim(root: Path) -> IO[str]:
    """Lock the folder against a second server for the lifetime of this process."""
    file = open(root / "lock", "a", encoding="utf-8")  # noqa: SIM115
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise OSError(f"{root} is served by another process. Stop it, or give another folder.") from None
    return file
