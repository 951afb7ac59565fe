"""The state of repositories on disk: ``repo.json`` says where branches stand, and each commit is a JSON file.

A file that cannot be read is named, and the others are served.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from unknot.hub.bounded import Cache
from unknot.hub.naming import COMMIT, HASH, check_repo_id
from unknot.hub.server.incoming import durably

CACHED_FILES = 200_000
"""Entries of commits that are kept in memory, about half a kilobyte each."""

Files = dict[str, dict[str, Any]]
"""Size, sha256, git's sha1 (where known) and whether it is text, by path."""


class Damaged(Exception):
    """A file of the store cannot be read; the others can."""


@dataclass(frozen=True)
class Repo:
    """The state of a repository: what its branches and tags point to."""

    id: str
    private: bool
    created: str
    branches: dict[str, str]
    tags: dict[str, str]

    @property
    def heads(self) -> set[str]:
        """The commits that branches and tags name."""
        return {*self.branches.values(), *self.tags.values()}


@dataclass(frozen=True)
class Commit:
    """One state of the files; ``id`` is the sha1 of its JSON."""

    id: str
    parent: str | None
    summary: str
    author: str
    date: str
    files: Files


class Records:
    """The JSON files below one folder.

    Args:
        root: with a folder for each repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._commits: Cache[tuple[str, str], Commit] = Cache(CACHED_FILES)

    def folder(self, repo_id: str) -> Path:
        """Of one repository."""
        return self.root / check_repo_id(repo_id)

    def names(self) -> Iterator[str]:
        """Of all folders that hold a repository, or what is left of one."""
        for folder in sorted(self.root.glob("*/*")):
            if (folder / "repo.json").exists() or (folder / "commits").is_dir():
                yield f"{folder.parent.name}/{folder.name}"

    def repo(self, repo_id: str) -> Repo:
        """What ``repo.json`` says."""
        path = self.folder(repo_id) / "repo.json"
        try:
            state = json.loads(path.read_bytes())
            repo = Repo(repo_id, bool(state["private"]), str(state["created"]), state["branches"], state["tags"])
            if "main" not in repo.branches or not all(COMMIT.fullmatch(oid) for oid in repo.heads):
                raise ValueError("no branch main, or names of commits that are none")
            return repo
        except Exception as error:  # whatever a damaged disk may hold
            raise Damaged(f"{repo_id}: repo.json cannot be read ({_reason(error)}).") from None

    def write_repo(self, repo: Repo) -> None:
        """Rename the new state over the old one."""
        state = {key: getattr(repo, key) for key in ("private", "created", "branches", "tags")}
        with durably(self.folder(repo.id) / "repo.json") as file:
            file.write(json.dumps(state, indent=1).encode())

    def commits(self, repo_id: str) -> list[str]:
        """Names of all commits that are there."""
        return [path.stem for path in (self.folder(repo_id) / "commits").glob("*.json")]

    def commit(self, repo_id: str, oid: str) -> Commit:
        """A commit, perhaps from memory."""
        return self._commits.get((repo_id, oid), lambda: self.read_commit(repo_id, oid), _weight)

    def read_commit(self, repo_id: str, oid: str) -> Commit:
        """A commit from the disk."""
        path = self.folder(repo_id) / "commits" / f"{oid}.json"
        try:
            told = json.loads(path.read_bytes())
            commit = Commit(oid, told["parent"], told["summary"], told["author"], told["date"], told["files"])
            _check(commit)
            return commit
        except FileNotFoundError:
            raise
        except Exception as error:
            raise Damaged(f"{repo_id}: commits/{oid}.json cannot be read ({_reason(error)}).") from None

    def write_commit(self, repo_id: str, parent: str | None, summary: str, author: str, files: Files) -> Commit:
        """A new commit, which belongs to nothing before a branch names it."""
        date = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        content = {"parent": parent, "summary": summary[:500], "author": author, "date": date, "files": files}
        text = json.dumps(content, indent=1)
        # Salted with the repository's name: the first commits of two repositories may share a millisecond.
        oid = hashlib.sha1(f"{repo_id}\n{text}".encode()).hexdigest()
        with durably(self.folder(repo_id) / "commits" / f"{oid}.json") as file:
            file.write(text.encode())
        return Commit(id=oid, **content)  # type: ignore[arg-type]

    def forget(self) -> None:
        """Read everything anew: repositories were moved or deleted."""
        self._commits.clear()


def _check(commit: Commit) -> None:
    """What others rely on, of a file that a disk may have changed."""
    if not all(isinstance(text, str) for text in (commit.summary, commit.author, commit.date)):
        raise ValueError("no author, date or summary")
    if commit.parent is not None and not COMMIT.fullmatch(commit.parent):
        raise ValueError("its parent is no commit")
    for file in commit.files.values():
        kinds = isinstance(file["size"], int), isinstance(file["text"], bool), "sha1" in file
        if not HASH.fullmatch(file["sha256"]) or not all(kinds):
            raise ValueError("no hash, kind or size of a file")


def _weight(commit: Commit) -> int:
    return 10 + len(commit.files)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:100]}"
