"""The folder of a hub: marked as ours, served by one process at a time, and nothing of a stranger's touched.

What is swept away in this folder must be ours, so one that holds something else is refused.
"""

from pathlib import Path
from typing import IO

from unknot.checkpoints.names import HASH
from unknot.hub.server.incoming import durably, is_part

try:
    import fcntl
except ImportError:  # Windows: nothing keeps a second server away there
    fcntl = None  # type: ignore[assignment]

MARK = "unknot-hub.json"
FOLDERS = ("repos", "blobs", "trash", "cards")
AUDIT = "audit.jsonl"
BESIDE = {"lock", "tokens.txt", AUDIT}
"""Other files that may lie in the folder of a hub."""


def take_folder(root: Path) -> IO[str]:
    """Mark a folder as ours and make what lies in it; the file that is given keeps others away until it is closed.

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
        (root / name).chmod(0o700)  # private repositories are nobody else's on this machine either
    return _claim(root)


def _mark(root: Path) -> None:
    """Make the folder ours; one that holds something else is somebody else's and stays as it is."""
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
    """Return whether this is a hub from before the mark: its folders, and in them its own files alone."""
    if not {"repos", "blobs", "lock"} <= names <= {"repos", "blobs", "trash"} | BESIDE:
        return False
    blobs = all(HASH.fullmatch(path.name) or is_part(path) for path in root.glob("blobs/*/*"))
    repos = all(path.name in ("repo.json", "commits") for path in root.glob("repos/*/*/*"))
    return blobs and repos and not any(root.glob("trash/*"))


def _claim(root: Path) -> IO[str]:
    """Keep a second server away from the folder, for as long as this process lives."""
    file = open(root / "lock", "a", encoding="utf-8")  # noqa: SIM115
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise OSError(f"{root} is served by another process. Stop it, or give another folder.") from None
    return file
