"""Names as the hub allows them: of repositories, of files in them, of commits and of contents."""

import re

NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
COMMIT = re.compile(r"[0-9a-f]{40}")
HASH = re.compile(r"[0-9a-f]{64}")
DOTTED = {".gitattributes", ".gitignore", ".eval_results"}


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


def check_file_name(path: str) -> str:
    """A relative path that stays inside, on every system.

    >>> check_file_name("pictures/traversals.png")
    'pictures/traversals.png'
    >>> check_file_name("../key")
    Traceback (most recent call last):
    ...
    ValueError: '../key' is not a name for a file in a repository.
    """
    parts = path.split("/")
    if (
        len(path) > 500
        or any(not part or len(part) > 200 or part.strip() != part for part in parts)
        or any(part[0] == "." and part not in DOTTED for part in parts if part)
        or re.search(r'[\x00-\x1f\x7f-\x9f\\:*?"<>|\ud800-\udfff]', path)
    ):
        raise ValueError(f"{path[:100]!a} is not a name for a file in a repository.")
    return path
