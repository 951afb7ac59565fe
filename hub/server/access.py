"""Who asks a hub, and what they may: a token is a user, reading is free except for private repositories."""

import getpass
import hmac
import os
import secrets
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

from unknot.hub.server.storage import Missing, Store


class UnknownToken(HTTPException):
    """Somebody sent a token that is not ours."""


class Access:
    """Tells users apart.

    Args:
        store: where the repositories are.
        tokens: name of the user for each token.
    """

    def __init__(self, store: Store, tokens: dict[str, str]) -> None:
        self.store, self.tokens = store, tokens

    def user(self, request: Request) -> str | None:
        """Name of the user whose token came along; a token that is not ours is refused even for public things."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return None
        given = token.strip().encode()
        matches = [name for known, name in self.tokens.items() if hmac.compare_digest(known.encode(), given)]
        if not matches:
            raise UnknownToken(401, "This hub does not know the token that was sent.")
        return matches[0]

    def writer(self, request: Request) -> str:
        """The same for what needs a token."""
        user = self.user(request)
        if user is None:
            raise HTTPException(401, "Writing to this hub needs a token: set HF_TOKEN to one of its tokens.")
        return user

    def readable(self, request: Request) -> str:
        """Name of the repository of the path, if the user may see it."""
        repo_id = "{namespace}/{name}".format(**request.path_params)
        user = self.user(request)
        if self.store.repo(repo_id).private and user is None:
            raise Missing("RepoNotFound", f"Repository {repo_id!r} does not exist, or is private.")
        return repo_id


def read_tokens(path: Path, make: bool) -> dict[str, str]:
    """Name of the user for each token; where there is no file, ``make`` one with a random token.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = read_tokens(Path(folder) / "tokens.txt", make=True)
    ...     made == read_tokens(Path(folder) / "tokens.txt", make=True)
    True
    """
    if make and not path.exists():
        try:
            user = "".join(letter for letter in getpass.getuser() if letter.isascii() and letter.isalnum())
        except (OSError, KeyError):
            user = ""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"{user or 'user'} hf_{secrets.token_urlsafe(24)}\n")
    tokens: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or len(words[1]) < 8:
            raise ValueError(f"{path}, line {number}: expected a user's name and a token of 8 or more characters.")
        tokens[words[1]] = words[0]
    if not tokens:
        raise ValueError(f"{path} holds no token. Give each user a line: NAME TOKEN.")
    return tokens
