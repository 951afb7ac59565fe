"""Rules for names of files and new repositories that work on every file system."""

import re
import unicodedata
from collections.abc import Collection, Iterable

from unknot.checkpoints.names import COMMIT, check_repo_id

DEVICES = {"con", "prn", "aux", "nul", "conin$", "conout$"}
DEVICES |= {f"{device}{number}" for device in ("com", "lpt") for number in "0123456789¹²³"}
"""Names that Windows keeps for devices, with any extension."""
PATHS = {"api", "datasets", "spaces", "kernels", "models", "lfs", "settings", "new"}
"""Namespaces that are paths of a hub."""
HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
"""Unicode categories of invisible characters: control, format and private ones, line separators."""


def check_file_name(path: str) -> str:
    """Raise an error for a path that leads outside, or that some file system does not support.

    >>> check_file_name("pictures/traversals.png"), check_file_name(".github/workflows/test.yml")
    ('pictures/traversals.png', '.github/workflows/test.yml')
    >>> check_file_name("../key")
    Traceback (most recent call last):
    ...
    ValueError: '../key' is not a name for a file in a repository: no file system holds '..'.
    """
    if len(path) > 500:
        raise ValueError(f"{path[:100]!a}... is not a name for a file in a repository: longer than 500 characters.")
    for part in path.split("/"):
        if not part or part.strip() != part or part[-1] == "." or len(part.encode(errors="replace")) > 240:
            reason = "no file system holds '..'" if part == ".." else f"{part[:100]!a} begins or ends badly, or is long"
        elif part.partition(".")[0].rstrip().casefold() in DEVICES:
            reason = f"{part[:100]!a} is a device on Windows"
        elif part.casefold() == ".git":
            reason = "'.git' belongs to git"
        elif re.search(r'[\\:*?"<>|]', part) or any(unicodedata.category(letter) in HIDDEN for letter in part):
            reason = f"{part[:100]!a} has a character that not every system takes, or nobody sees"
        else:
            continue
        raise ValueError(f"{path[:100]!a} is not a name for a file in a repository: {reason}.")
    return path


def check_ref(name: str) -> str:
    """Raise an error for a branch or tag name that git rejects, or that looks like a commit or another reference.

    >>> check_ref("feature/x"), check_ref("v1.0")
    ('feature/x', 'v1.0')
    >>> check_ref("two words")
    Traceback (most recent call last):
    ...
    ValueError: 'two words' cannot name a branch or a tag. Use letters, digits, '-', '_', '.' and '/'.
    """
    plain = re.fullmatch(r"[^\s\x00-\x1f~^:?*\[\\]{1,200}", name)
    refused = not plain or name.startswith("refs/") or COMMIT.fullmatch(name)
    parts = name.split("/")
    if refused or any(not part or part[0] in ".-" or part.endswith((".", ".lock")) or ".." in part for part in parts):
        raise ValueError(f"{name[:100]!a} cannot name a branch or a tag. Use letters, digits, '-', '_', '.' and '/'.")
    return name


def check_together(paths: Iterable[str], added: Collection[str]) -> None:
    """Raise an error for added files whose names collide with others on some file systems.

    >>> check_together(["a/b", "A/c"], added={"A/c"})
    Traceback (most recent call last):
    ...
    ValueError: 'A/c' cannot lie beside 'a/b': some systems take their names for one. Rename or delete one of them.
    """
    known: dict[str, tuple[str, bool, str]] = {}
    for path in sorted(paths, key=lambda path: (path in added, path)):
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            entry = "/".join(parts[:depth]), depth == len(parts)
            name, is_file, other = known.setdefault(folded(entry[0]), (*entry, path))
            if (name, is_file) != entry and path in added:
                raise ValueError(
                    f"{path[:100]!a} cannot lie beside {other[:100]!a}: some systems take their names for one. Rename "
                    "or delete one of them."
                )


def folded(name: str) -> str:
    """Return a name as seen by a file system that ignores case and Unicode forms."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def check_new_repo(repo_id: str, others: Iterable[str]) -> str:
    """Raise an error for a new repository whose name collides with another or with a path of the hub.

    >>> check_new_repo("me/model", ["ME/other"])
    Traceback (most recent call last):
    ...
    ValueError: 'me' and 'ME' differ only in upper and lower case. Use the one that exists.
    """
    namespace, name = check_repo_id(repo_id).split("/")
    for part in (namespace, name):
        if part.partition(".")[0].casefold() in DEVICES:
            raise ValueError(f"{repo_id!r} is not a repository's name: {part!r} is a device on Windows.")
    if namespace.casefold() in PATHS:
        raise ValueError(f"{repo_id!r} is not a repository's name: {namespace!r} is a path of the hub.")
    for other in others:
        theirs = other.partition("/")[0]
        if theirs != namespace and theirs.casefold() == namespace.casefold():
            raise ValueError(
                f"{namespace!r} and {theirs!r} differ only in upper and lower case. Use the one that exists."
            )
    return repo_id
