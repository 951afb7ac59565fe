"""Names as the hub allows them: of repositories, of commits and of contents."""

import re

NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
COMMIT = re.compile(r"[0-9a-f]{40}")
HASH = re.compile(r"[0-9a-f]{64}")


def check_repo_id(repo_id: str) -> str:
    """A repository's name as the Hub allows it.

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
