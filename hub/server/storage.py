"""Repositories as files on disk: contents by hash, commits as JSON, and one small file that says where branches stand.

A commit writes its contents, then itself, then renames the new state of the repository over the old one. A crash at any
moment therefore leaves the repository as it was before the commit or as it is after it. Names of files in a repository
are keys of JSON objects and never paths on this disk, so that no name can lead out of the folder.

What cannot be read is named and left where it is, and nothing is swept while something is unreadable.
"""

import hashlib
import re
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unknot.hub.naming import COMMIT, HASH, check_file_name, check_repo_id
from unknot.hub.server.commit_log import Commit, Damaged, Files, Records, Repo
from unknot.hub.server.folder import FOLDERS, take_folder
from unknot.hub.server.incoming import Incoming, digest, is_part

MAX_FILES = 1000


class Missing(LookupError):
    """There is no such repository, revision or file; ``what`` says which, in the words of the Hub's headers."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what, self.message = what, message


class Taken(ValueError):
    """A name is in use."""


class Stale(ValueError):
    """The branch has moved on since the writer looked."""


class Store:
    """All repositories below one folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     _ = store.create("me/model", private=False, author="me")
    ...     oid = store.commit("me/model", "main", {"a.txt": store.keep(b"text")}, [], None, "Add a", "me")
    ...     store.path(store.snapshot("me/model", "main")[1].files["a.txt"]).read_text()
    'text'
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()
        self._claim = take_folder(self.root)
        repos, self._blobs, self._trash, self.cards = (self.root / name for name in FOLDERS)
        self._records, self._lock = Records(repos), threading.Lock()
        self.problems: list[str] = []
        """What could not be read when the store was opened, a line for each file."""
        self._known: dict[str, Repo] = {}
        self._aside: dict[str, str] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process serve the folder."""
        self._claim.close()

    # Reading

    def repos(self) -> list[str]:
        """Names of all repositories that can be read."""
        return sorted(self._known)

    def repo(self, repo_id: str) -> Repo:
        """State of a repository."""
        if repo := self._known.get(repo_id):
            return repo
        if repo_id in self._aside:
            raise Damaged(self._aside[repo_id])
        raise Missing("RepoNotFound", f"Repository {repo_id[:100]!r} does not exist, or is private.")

    def snapshot(self, repo_id: str, revision: str) -> tuple[Repo, Commit]:
        """State of a repository and the commit that a branch, a tag or (the first 7 digits of) its name stands for."""
        repo = self.repo(repo_id)
        oid = repo.branches.get(revision) or repo.tags.get(revision) or revision
        if re.fullmatch(r"[0-9a-f]{7,39}", oid):
            named = [name for name in self._records.commits(repo_id) if name.startswith(oid)]
            oid = named[0] if len(named) == 1 else oid
        try:
            if not COMMIT.fullmatch(oid):
                raise FileNotFoundError
            return repo, self._records.commit(repo_id, oid)
        except FileNotFoundError:
            if oid in repo.heads:
                raise Damaged(f"{repo_id}: commits/{oid}.json is missing.") from None
            raise Missing("RevisionNotFound", f"{repo_id} has no revision {revision[:100]!r}.") from None

    def history(self, repo_id: str, revision: str) -> Iterator[Commit]:
        """Commits from ``revision`` back to the first, or to one that can no longer be read."""
        commit = self.snapshot(repo_id, revision)[1]
        yield commit
        with suppress(Damaged, FileNotFoundError):
            while commit.parent is not None:
                commit = self._records.commit(repo_id, commit.parent)
                yield commit

    def path(self, file: dict[str, Any]) -> Path:
        """Where the content of a file lies."""
        return self._blob(file["sha256"])

    def holds(self, sha256: str, size: int) -> bool:
        """Whether this content is already here, and still what it was."""
        path = self._blob(sha256)
        if not path.is_file() or path.stat().st_size != size:
            return False
        with path.open("rb") as file:
            return digest(file, hashlib.sha256()) == sha256

    # Writing

    def keep(self, content: bytes) -> dict[str, Any]:
        """Store the content of a file; it belongs to nothing before a commit names it."""
        with self.incoming() as incoming:
            incoming.write(content)
            return incoming.keep()

    def incoming(self) -> "Incoming":
        """A place for content that comes in parts, which is kept only if it is told to."""
        return Incoming(self._blobs, self._blob)

    def announced(self, sha256: str, size: int | None) -> dict[str, Any]:
        """A file whose content was received before."""
        path = self._blob(sha256)
        if not path.is_file() or size not in (None, path.stat().st_size):
            raise ValueError(f"The content {sha256[:100]} was never received. Upload it first.")
        return {"size": path.stat().st_size, "sha256": sha256, "sha1": None, "text": False}

    def create(self, repo_id: str, private: bool, author: str) -> Repo:
        """An empty repository."""
        folder = self._records.folder(check_repo_id(repo_id))
        with self._lock:
            if repo_id in {*self._known, *self._aside} or (folder / "repo.json").exists():
                raise Taken(f"Repository {repo_id} exists already.")
            first = self._records.write_commit(repo_id, None, "Create the repository", author, {})
            repo = Repo(repo_id, private, first.date, {"main": first.id}, {})
            self._write_repo(repo)
        return repo

    def delete(self, repo_id: str) -> None:
        """Remove a repository at once; its contents go when the server starts anew."""
        with self._lock:
            self.repo(repo_id)
            grave = self._trash / secrets.token_hex(8)
            self._records.folder(repo_id).rename(grave)
            del self._known[repo_id]
            self._records.forget()
        shutil.rmtree(grave, ignore_errors=True)

    def move(self, repo_id: str, to: str) -> None:
        """Give a repository another name; its commits keep theirs."""
        target = self._records.folder(check_repo_id(to))
        with self._lock:
            repo = self.repo(repo_id)
            if to in self._known or target.exists():
                raise Taken(f"Repository {to} exists already.")
            target.parent.mkdir(exist_ok=True)
            self._records.folder(repo_id).rename(target)
            del self._known[repo_id]
            self._known[to] = replace(repo, id=to)
            self._records.forget()

    def commit(
        self,
        repo_id: str,
        branch: str,
        added: Files,
        deleted: Iterable[str],
        parent: str | None,
        summary: str,
        author: str,
    ) -> str:
        """Put files on top of a branch and give the commit's name; without a change that is the name of the last one.

        Args:
            repo_id: the repository.
            branch: the branch, which must exist.
            added: new or changed files, from :meth:`keep` or :meth:`announced`.
            deleted: paths that go; one that ends in ``/`` is a folder.
            parent: where the writer believes the branch to be, in full or its first seven or more digits.
            summary: what was done.
            author: by whom.
        """
        with self._lock:
            repo = self.repo(repo_id)
            if branch not in repo.branches:
                raise Missing("RevisionNotFound", f"{repo_id} has no branch {branch[:100]!r}.")
            head = repo.branches[branch]
            if parent is not None and not head.startswith(parent):
                raise Stale(f"{branch} of {repo_id} is at {head}, no longer at {parent}.")
            before = self.snapshot(repo_id, head)[1].files
            after = dict(before)
            for path in deleted:
                for name in [name for name in after if name == path or (path[-1:] == "/" and name.startswith(path))]:
                    del after[name]
            # The same content says the same, by whichever way it came.
            after |= {path: _same(before.get(path), file) for path, file in added.items()}
            if len(after) > MAX_FILES:
                raise ValueError(f"{repo_id} would hold {len(after)} files; at most {MAX_FILES} are allowed.")
            if after == before:
                return head
            new = self._records.write_commit(repo_id, head, summary, author, after)
            self._write_repo(Repo(repo_id, repo.private, repo.created, {**repo.branches, branch: new.id}, repo.tags))
        return new.id

    def point(self, repo_id: str, kind: str, name: str, revision: str | None) -> None:
        """Set a branch or a tag (``kind``) to a revision, or remove it (None)."""
        check_file_name(name)
        if "/" in name or COMMIT.fullmatch(name):
            raise ValueError(f"{name[:100]!r} cannot name a branch or a tag here: no '/', and not like a commit.")
        with self._lock:
            repo = self.repo(repo_id)
            kinds = {"branch": dict(repo.branches), "tag": dict(repo.tags)}
            if revision is None:
                if kinds[kind].pop(name, None) is None or name == "main":
                    raise Missing("RevisionNotFound", f"{repo_id} has no {kind} {name!r} to remove.")
            elif name in repo.branches or name in repo.tags:
                raise Taken(f"{repo_id} has a branch or tag {name!r} already.")
            else:
                kinds[kind][name] = self.snapshot(repo_id, revision)[1].id
            self._write_repo(Repo(repo_id, repo.private, repo.created, kinds["branch"], kinds["tag"]))

    def set_private(self, repo_id: str, private: bool) -> None:
        """Hide a repository, or show it."""
        with self._lock:
            repo = self.repo(repo_id)
            self._write_repo(Repo(repo_id, private, repo.created, repo.branches, repo.tags))

    # The disk

    def _blob(self, sha256: str) -> Path:
        if not HASH.fullmatch(sha256):
            raise ValueError(f"{sha256[:100]!r} is not a sha256.")
        return self._blobs / sha256[:2] / sha256

    def _write_repo(self, repo: Repo) -> None:
        self._records.write_repo(repo)
        self._known[repo.id] = repo

    def _open(self) -> None:
        """Read the state of every repository, and sweep what interrupted writers and deleted ones left behind."""
        used: set[str] = set()
        for repo_id in self._records.names():
            try:
                self._open_repo(repo_id, used)
            except (Damaged, ValueError) as error:
                self._aside[repo_id] = str(error)
                self.problems.append(str(error))
        self._sweep(used)

    def _open_repo(self, repo_id: str, used: set[str]) -> None:
        """Read one repository, and note which contents it uses and which of its commits are unreadable or lost."""
        folder, begun = self._records.folder(repo_id), False
        there, named = set(self._records.commits(repo_id)), set[str]()
        for oid in sorted(there):
            try:
                commit = self._records.read_commit(repo_id, oid)
            except Damaged as error:
                self.problems.append(str(error))
                begun = True
                continue
            used.update(file["sha256"] for file in commit.files.values())
            named |= {commit.parent} if commit.parent else set()
            begun = begun or bool(commit.files)
        if (folder / "repo.json").exists() or begun:  # else its creation was interrupted
            repo = self._known[repo_id] = self._records.repo(repo_id)
            lost = (repo.heads | named) - there
            self.problems += [f"{repo_id}: commits/{oid}.json is missing." for oid in sorted(lost)]

    def _sweep(self, used: set[str]) -> None:
        for grave in self._trash.iterdir():
            if re.fullmatch(r"[0-9a-f]{16}", grave.name):
                shutil.rmtree(grave, ignore_errors=True)
        for path in [*self._records.root.rglob(".*.part"), *self._blobs.rglob(".*.part"), *self.root.glob(".*.part")]:
            if is_part(path):
                path.unlink()
        if self.problems:  # what cannot be read may name any of them
            return
        for path in [*self._blobs.glob("*/*"), *self.cards.glob("*/*")]:
            if HASH.fullmatch(path.name) and path.name not in used:
                path.unlink()


def _same(before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    return before if before and before["sha256"] == after["sha256"] else after
