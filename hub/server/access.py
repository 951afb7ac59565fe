"""Users of a hub and their rights: a token identifies a user; a namespace belongs to its owner, members and admins."""

import getpass
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

from unknot.checkpoints.names import NAME
from unknot.hub.server.storage import Missing, Store


class UnknownToken(HTTPException):
    """The request has an unknown token."""


class Moved(Exception):
    """The repository has been renamed."""

    def __init__(self, before: str, now: str) -> None:
        super().__init__(now)
        self.before, self.now = before, now


@dataclass(frozen=True)
class Users:
    """Users by token, and namespaces that they may change in addition to their own.

    Args:
        tokens: name of the user for each token.
        admins: users who may change everything.
        members: further users who may change a namespace, by namespace.

    >>> users = Users({"secret-of-ann": "ann"}, members={"lab": frozenset({"ann"})})
    >>> users.may_write("ann", "ann/x"), users.may_write("ann", "lab/x"), users.may_write("ann", "bob/x")
    (True, True, False)
    """

    tokens: Mapping[str, str]
    admins: frozenset[str] = frozenset()
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def may_write(self, user: str | None, repo_id: str) -> bool:
        """Return whether a user may change a repository, and so may see it while it is private."""
        if user is None:
            return False
        namespace = repo_id.partition("/")[0]
        return user == namespace or user in self.admins or user in self.members.get(namespace, frozenset())


class Access:
    """Check the rights of the sender of a request.

    Args:
        store: store of the repositories.
        users: tokens and rights.
    """

    def __init__(self, store: Store, users: Users) -> None:
        self.store, self.users = store, users

    def user(self, request: Request) -> str | None:
        """Return the user of the request's token; an unknown token is an error even for public repositories."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return None
        given = token.strip().encode()
        matches = [name for known, name in self.users.tokens.items() if hmac.compare_digest(known.encode(), given)]
        if not matches:
            raise UnknownToken(401, "The token of this request is unknown to this hub.")
        return matches[0]

    def known_user(self, request: Request) -> str:
        """Return the user of a request that requires a token."""
        user = self.user(request)
        if user is None:
            raise HTTPException(401, "Writing to this hub needs a token: set HF_TOKEN to one of its tokens.")
        return user

    def check_write(self, user: str, repo_id: str) -> None:
        """Raise an error for a user who may not change a repository, or create one of that name."""
        if not self.users.may_write(user, repo_id):
            namespace = repo_id.partition("/")[0]
            raise HTTPException(
                403,
                f"{user} may not write to {namespace}/: only its owner, its members and admins may. Whoever runs this "
                "hub can add you in its file of tokens.",
            )

    def visible(self, user: str | None, repo_id: str) -> str:
        """Return the current name of a repository that a user may see."""
        current = self.store.find(repo_id)
        if self.store.repo(current).private and not self.users.may_write(user, current):
            raise Missing("RepoNotFound", f"Repository {repo_id!r} does not exist, or is private.")
        return current

    def readable(self, request: Request) -> str:
        """Return the repository of the path if the user may see it; a reader is redirected if it has moved."""
        repo_id = named(request)
        current = self.visible(self.user(request), repo_id)
        if current != repo_id and request.method in ("GET", "HEAD"):
            raise Moved(repo_id, current)
        return current

    def writable(self, request: Request) -> tuple[str, str]:
        """Return the user, and the repository of the path, which that user may change."""
        user = self.known_user(request)
        repo_id = self.visible(user, named(request))
        self.check_write(user, repo_id)
        return user, repo_id


def named(request: Request) -> str:
    """Return the repository named by the path of a request."""
    return "{namespace}/{name}".format(**request.path_params)


def read_users(path: Path, make: bool) -> Users:
    """Read users and rights; if the file does not exist, create it with a random token of an admin (``make``).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "tokens.txt"
    ...     _ = path.write_text("ann token-of-ann admin\\nbob token-of-bob  # a guest\\nlab: ann bob\\n")
    ...     users = read_users(path, make=False)
    >>> sorted(users.tokens.values()), sorted(users.admins), sorted(users.members["lab"])
    (['ann', 'bob'], ['ann'], ['ann', 'bob'])
    """
    if make and not path.exists():
        try:
            user = "".join(letter for letter in getpass.getuser() if letter.isascii() and letter.isalnum())
        except (OSError, KeyError):
            user = ""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"{user or 'user'} hf_{secrets.token_urlsafe(24)} admin\n")
    tokens: dict[str, str] = {}
    admins: set[str] = set()
    members: dict[str, frozenset[str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        name = words[0].removesuffix(":")
        if not NAME.fullmatch(name):
            raise ValueError(f"{path}, line {number}: {name!r} is not a name; use letters, digits, '-', '_' and '.'.")
        if words[0].endswith(":"):
            members[name] = members.get(name, frozenset()) | set(words[1:])
        elif len(words) not in (2, 3) or len(words[1]) < 8 or words[2:] not in ([], ["admin"]):
            raise ValueError(
                f"{path}, line {number}: expected USER TOKEN, with a token of 8 or more characters and perhaps the "
                "word admin after it, or NAMESPACE: USER USER ... for its members."
            )
        elif tokens.setdefault(words[1], name) != name:
            raise ValueError(
                f"{path}, line {number}: {tokens[words[1]]} has this token already. Give each user another."
            )
        elif words[2:]:
            admins.add(name)
    if not tokens:
        raise ValueError(f"{path} holds no token. Give each user a line: NAME TOKEN.")
    known = {*tokens.values(), *members}
    if len({name.casefold() for name in known}) < len(known):
        raise ValueError(f"{path}: two names differ only in upper and lower case. Rename one.")
    if unknown := sorted({user for users in members.values() for user in users} - set(tokens.values())):
        raise ValueError(f"{path}: {', '.join(unknown)} cannot be a member without a token. Add a line NAME TOKEN.")
    return Users(tokens, frozenset(admins), members)
