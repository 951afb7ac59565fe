"""State of repositories on disk: ``repo.json`` records the branches, and each commit is a JSON file.

An unreadable file is reported by name, and the others are served.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unknot.checkpoints.names import COMMIT, HASH, check_repo_id
from unknot.files import Cache
from unknot.hub.server.audit import now
from unknot.hub.server.incoming import durably

CACHED_FILES = 200_000
"""Maximum number of cached entries of commits, about half a kilobyte each."""

Files = dict[str, dict[str, Any]]
"""Size, sha256, git's sha1 (where known) and whether it is text, by path."""


class Damaged(Exception):
    """A file of the store cannot be read; others can."""


@dataclass(frozen=True)
class Repo:
    """State of a repository: its branches and tags, and former names."""

    id: str
    private: bool
    created: str
    branches: dict[str, str]
    tags: dict[str, str]
    formerly: tuple[str, ...] = ()

    @property
    def heads(self) -> set[str]:
        """Return the commits that branches and tags point to."""
        return {*self.branches.values(), *self.tags.values()}


@dataclass(frozen=True)
class Commit:
    """State of the files; ``id`` is the sha1 of its JSON."""

    id: str
    parent: str | None
    summary: str
    author: str
    date: str
    files: Files
    description: str = ""


class Records:
    """JSON files of all repositories below one folder.

    Args:
        root: folder with a subfolder for each repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._commits: Cache[tuple[str, str], Commit] = Cache(CACHED_FILES)

    def folder(self, repo_id: str) -> Path:
        """Return the folder of a repository."""
        return self.root / check_repo_id(repo_id)

    def names(self) -> Iterator[str]:
        """Return the names of all folders with a repository, or parts of one."""
        for folder in sorted(self.root.glob("*/*")):
            if (folder / "repo.json").exists() or (folder / "commits").is_dir():
                yield f"{folder.parent.name}/{folder.name}"

    def repo(self, repo_id: str) -> Repo:
        """Return the content of ``repo.json``."""
        path = self.folder(repo_id) / "repo.json"
        try:
            state = json.loads(path.read_bytes())
            formerly = tuple(str(name) for name in state.get("formerly", ()))
            private, created = bool(state["private"]), str(state["created"])
            repo = Repo(repo_id, private, created, state["branches"], state["tags"], formerly)
            if "main" not in repo.branches or not all(COMMIT.fullmatch(oid) for oid in repo.heads):
                raise ValueError("no branch main, or names that are not commits")
            return repo
        except Exception as error:  # a damaged disk can contain anything
            raise Damaged(f"{repo_id}: repo.json cannot be read ({_reason(error)}).") from None

    def write_repo(self, repo: Repo, place: str | None = None) -> None:
        """Replace the state of a repository atomically; ``place`` is the name of its folder if it differs."""
        state = {key: getattr(repo, key) for key in ("private", "created", "branches", "tags", "formerly")}
        with durably(self.folder(place or repo.id) / "repo.json") as file:
            file.write(json.dumps(state, indent=1).encode())

    def commits(self, repo_id: str) -> list[str]:
        """Return the names of all existing commits."""
        return [path.stem for path in (self.folder(repo_id) / "commits").glob("*.json")]

    def commits_in(self, folder: Path, repo_id: str) -> Iterator[Commit]:
        """Read all commits of a folder."""
        for path in (folder / "commits").glob("*.json"):
            yield _read(path, repo_id)

    def remove_commits(self, repo_id: str, names: set[str]) -> None:
        """Delete commits that no branch or tag leads to."""
        for oid in names:
            (self.folder(repo_id) / "commits" / f"{oid}.json").unlink(missing_ok=True)
        self.forget()

    def commit(self, repo_id: str, oid: str) -> Commit:
        """Return a commit, possibly cached."""
        return self._commits.get((repo_id, oid), lambda: self.read_commit(repo_id, oid), _weight)

    def read_commit(self, repo_id: str, oid: str) -> Commit:
        """Read a commit from disk."""
        return _read(self.folder(repo_id) / "commits" / f"{oid}.json", repo_id)

    def write_commit(
        self, repo_id: str, parent: str | None, summary: str, author: str, files: Files, description: str = ""
    ) -> Commit:
        """Write a new commit, which is unreferenced until a branch points to it."""
        content = {"parent": parent, "summary": summary[:500], "author": author, "date": now(), "files": files}
        content |= {"description": description[:10_000]} if description else {}
        text = json.dumps(content, indent=1)
        # Salted with the repository's name: first commits of two repositories may have the same time.
        oid = hashlib.sha1(f"{repo_id}\n{text}".encode()).hexdigest()
        with durably(self.folder(repo_id) / "commits" / f"{oid}.json") as file:
            file.write(text.encode())
        return Commit(id=oid, **content)  # type: ignore[arg-type]

    def forget(self) -> None:
        """Clear all caches: repositories were moved or deleted."""
        self._commits.clear()


def _read(path: Path, repo_id: str) -> Commit:
    try:
        content = json.loads(path.read_bytes())
        parent, summary, author = (content[key] for key in ("parent", "summary", "author"))
        description = content.get("description", "")
        commit = Commit(path.stem, parent, summary, author, content["date"], content["files"], description)
        _check(commit)
        return commit
    except FileNotFoundError:
        raise
    except Exception as error:
        raise Damaged(f"{repo_id}: commits/{path.name} cannot be read ({_reason(error)}).") from None


def _check(commit: Commit) -> None:
    """Check the fields of a commit, which a damaged disk may have changed."""
    if not all(isinstance(text, str) for text in (commit.summary, commit.author, commit.date, commit.description)):
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
