"""Repositories on disk: contents by hash, commits as JSON, and one small file per repository with its branches.

A commit writes its contents, then itself, then renames the new state of the repository over the old one. A crash at any
moment therefore leaves the repository as it was before the commit or as it is after it. Names of files in a repository
are keys of JSON objects and never paths on this disk, so that no name can lead out of the folder.

Unreadable files are reported and left in place, and nothing is deleted while a file is unreadable.

Unreferenced contents are deleted while the store is in use: immediately those of a rejected commit, others after a day.
This is safe because a commit is made only while all of its contents exist, under the same lock.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unknot.checkpoints.names import COMMIT
from unknot.hub.server import attributes
from unknot.hub.server.audit import AuditLog
from unknot.hub.server.commit_log import Commit, Damaged, Files, Records, Repo
from unknot.hub.server.contents import Contents, remove
from unknot.hub.server.file_names import check_new_repo, check_ref, check_together, folded
from unknot.hub.server.folder import AUDIT, FOLDERS, take_folder
from unknot.hub.server.incoming import is_part
from unknot.hub.server.quota import Quota, sizes_of
from unknot.hub.server.trash import Deleted, Trash, move

MAX_FILES = 1000
UNNAMED = 86400.0
"""Seconds that unreferenced contents are kept: a large upload sends them one by one before its commit."""


class Missing(LookupError):
    """The repository, revision or file does not exist; ``what`` is the Hub's error code."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what, self.message = what, message


class Taken(ValueError):
    """The name is already in use."""


class Protected(ValueError):
    """The object cannot be removed."""


class Stale(ValueError):
    """The branch has changed since the writer read it."""


class Store:
    """All repositories below one folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     _ = store.create("me/model", private=False, author="me")
    ...     oid = store.commit("me/model", "main", {"a.txt": store.keep(b"text")}, [], None, "Add a", "me")
    ...     store.path(store.snapshot("me/model", "main")[1].files["a.txt"]).read_text()
    'text'

    Args:
        root: the folder.
        quota: maximum number of bytes per namespace, or None for no limit.
    """

    def __init__(self, root: str | Path, quota: int | None = None) -> None:
        self.root = Path(root).resolve()
        self._claim = take_folder(self.root)
        repos, blobs, trash, self.cards = (self.root / name for name in FOLDERS)
        self._records, self._lock = Records(repos), threading.RLock()
        self.trash, self.quota, self.audit = Trash(trash), Quota(quota), AuditLog(self.root / AUDIT)
        self.contents = Contents(blobs, self._lock, self.quota)
        self.problems: list[str] = []
        """Files that could not be read when the store was opened, a line for each."""
        self._known: dict[str, Repo] = {}
        self._aside: dict[str, str] = {}
        self._others: dict[str, str] = {}  # further names of a repository: former ones, and other upper and lower case
        self._named: dict[str, dict[str, int]] | None = None  # contents referenced during a sweep
        self._renamed = 0
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder for another process."""
        self.audit.close()
        self._claim.close()

    # Reading

    def repos(self) -> list[str]:
        """Return the names of all readable repositories."""
        return sorted(self._known)

    def find(self, repo_id: str) -> str:
        """Return the current name of a repository, given a former name or other upper and lower case."""
        return repo_id if repo_id in self._known else self._others.get(folded(repo_id), repo_id)

    def repo(self, repo_id: str) -> Repo:
        """Return the state of a repository."""
        if repo := self._known.get(repo_id):
            return repo
        if repo_id in self._aside:
            raise Damaged(self._aside[repo_id])
        raise Missing("RepoNotFound", f"Repository {repo_id[:100]!r} does not exist, or is private.")

    def snapshot(self, repo_id: str, revision: str) -> tuple[Repo, Commit]:
        """Return the state of a repository, and the commit of a branch, a tag or a commit hash (at least 7 digits)."""
        repo = self.repo(repo_id)
        kind, _, name = revision.removeprefix("refs/").partition("/") if revision.startswith("refs/") else ("", "", "")
        oid = {"heads": repo.branches, "tags": repo.tags}.get(kind, {}).get(name)
        oid = oid or repo.branches.get(revision) or repo.tags.get(revision) or revision
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
        """Yield commits from ``revision`` back to the first, or to one that can no longer be read."""
        commit = self.snapshot(repo_id, revision)[1]
        yield commit
        with suppress(Damaged, FileNotFoundError):
            while commit.parent is not None:
                commit = self._records.commit(repo_id, commit.parent)
                yield commit

    def path(self, file: dict[str, Any]) -> Path:
        """Return the path of a file's content."""
        return self.contents.path(file["sha256"])

    # Writing

    def keep(self, content: bytes) -> dict[str, Any]:
        """Store the content of a file, which is unreferenced until a commit names it."""
        with self.contents.incoming() as incoming:
            incoming.write(content)
            return incoming.keep()

    def create(self, repo_id: str, private: bool, author: str, contents: Mapping[str, bytes] | None = None) -> Repo:
        """Create a repository, with these contents in its first commit."""
        with self._lock:
            self._check_free(repo_id)
            files = {path: self.keep(content) for path, content in (contents or {}).items()}
            first = self._records.write_commit(repo_id, None, "initial commit", author, files)
            repo = Repo(repo_id, private, first.date, {"main": first.id}, {})
            self._write_repo(repo)
            self.audit.write(author, "create", repo_id, private=private)
        return repo

    def _check_free(self, repo_id: str, moved: str | None = None) -> None:
        """Raise an error for a repository name that is in use, or that the disk does not support."""
        names = [name for name in (*self._known, *self._aside) if name != moved]
        check_new_repo(repo_id, names)
        same = next((name for name in names if name.casefold() == repo_id.casefold()), None)
        if same or (self._records.folder(repo_id) / "repo.json").exists():
            raise Taken(f"A model repository called {same or repo_id} already exists.")

    def delete(self, repo_id: str, user: str) -> None:
        """Move a repository to the trash, where it stays for some days."""
        with self._lock:
            self.repo(repo_id)
            self.trash.add(self._records.folder(repo_id), repo_id, user)
            self._forget(repo_id)
            self.audit.write(user, "delete", repo_id)

    def deleted(self, repo_id: str) -> Deleted:
        """Return the last deleted repository of this name."""
        for row in self.trash.rows():
            if row.id == repo_id:
                return row
        raise Missing("RepoNotFound", f"No deleted repository {repo_id[:100]!r} is left to restore.")

    def restore(self, repo_id: str, user: str) -> None:
        """Restore a deleted repository."""
        with self._lock:
            row = self.deleted(repo_id)
            self._check_free(repo_id)
            self.trash.restore(row, self._records.folder(repo_id))
            self._records.forget()
            self._renamed += 1
            self._know(self._records.repo(repo_id))
            self.audit.write(user, "restore", repo_id)

    def move(self, repo_id: str, to: str, user: str) -> None:
        """Rename a repository; its commits are kept, and the old name redirects to it."""
        with self._lock:
            repo = self.repo(repo_id)
            self._check_free(to, moved=repo_id)
            target = self._records.folder(to)
            target.parent.mkdir(exist_ok=True)
            moved = replace(repo, id=to, formerly=(*repo.formerly, repo_id))
            self._records.write_repo(moved, repo_id)
            move(self._records.folder(repo_id), target)
            self._forget(repo_id)
            self._know(moved)
            for oid in self._records.commits(to):
                with suppress(Damaged, FileNotFoundError):
                    self.quota.count(to.partition("/")[0], sizes_of(self._records.commit(to, oid).files.values()))
            self.audit.write(user, "move", repo_id, to=to)

    def _forget(self, repo_id: str) -> None:
        del self._known[repo_id]
        self._others = {name: now for name, now in self._others.items() if now != repo_id}
        self._records.forget()
        self._renamed += 1

    def _know(self, repo: Repo) -> None:
        self._known[repo.id] = repo
        for name in (*repo.formerly, repo.id):
            self._others[folded(name)] = repo.id

    def commit(
        self,
        repo_id: str,
        branch: str,
        added: Files,
        deleted: Iterable[str],
        parent: str | None,
        summary: str,
        author: str,
        description: str = "",
    ) -> str:
        """Commit files to a branch and return the commit's name; without changes, that of the last commit.

        Args:
            repo_id: the repository.
            branch: the branch, which must exist.
            added: new or changed files, from :meth:`keep` or :meth:`announced`.
            deleted: deleted paths; one that ends in ``/`` is a folder.
            parent: expected head of the branch, in full or at least its first seven digits.
            summary: first line of the commit message.
            author: author of the commit.
            description: rest of the commit message.
        """
        with self._lock:
            repo = self.repo(repo_id)
            if branch not in repo.branches:
                raise Missing("RevisionNotFound", f"{repo_id} has no branch {branch[:100]!r}.")
            head = repo.branches[branch]
            if parent is not None and not re.fullmatch(r"[0-9a-f]{7,40}", parent):
                raise ValueError(f"The parent of a commit is 7 or more digits of its name, got {parent[:50]!r}.")
            if parent is not None and not head.startswith(parent):
                raise Stale(f"{branch} of {repo_id} is at {head}, no longer at {parent}.")
            before = self.snapshot(repo_id, head)[1].files
            after = dict(before)
            for path in deleted:
                for name in [name for name in after if name == path or (path[-1:] == "/" and name.startswith(path))]:
                    del after[name]
            # The same content has the same record, however it was uploaded.
            added = {path: _same(before.get(path), file) for path, file in added.items()}
            has_lfs = self._lfs_of(after | added)
            for path, file in added.items():
                # Like the Hub, keep empty files as text.
                is_text = file["text"] and not (file["size"] and has_lfs(path))
                after[path] = file | {"text": is_text}
            if len(after) > MAX_FILES:
                raise ValueError(f"{repo_id} would hold {len(after)} files; at most {MAX_FILES} are allowed.")
            namespace, sizes = repo_id.partition("/")[0], sizes_of(added.values())
            if after == before:
                self.contents.named(namespace, sizes)
                return head
            if added.keys() - before.keys():
                check_together(after, added)
            for sha256 in sizes:
                if not self.contents.path(sha256).is_file():
                    raise ValueError(f"The content {sha256} is not here any more. Upload it again.")
            self.quota.check(namespace, sizes)
            new = self._records.write_commit(repo_id, head, summary, author, after, description)
            self._write_repo(replace(repo, branches={**repo.branches, branch: new.id}))
            self.contents.named(namespace, sizes)
            if self._named is not None:
                self._named.setdefault(namespace, {}).update(sizes)
            self.audit.write(author, "commit", repo_id, branch=branch, commit=new.id)
        return new.id

    def _lfs_of(self, files: Files) -> Callable[[str], bool]:
        """Return a function that says which paths git keeps with LFS, by the attributes among the files."""
        content = b""
        with suppress(KeyError, OSError), self.path(files[attributes.NAME]).open("rb") as file:
            content = file.read(attributes.MAX_BYTES)
        return attributes.matcher(content)

    def squash(self, repo_id: str, branch: str, summary: str, author: str) -> None:
        """Replace the history of a branch by one commit; contents of older commits only are deleted later."""
        with self._lock:
            repo = self.repo(repo_id)
            if branch not in repo.branches:
                raise Missing("RevisionNotFound", f"{repo_id} has no branch {branch[:100]!r}.")
            files = self.snapshot(repo_id, repo.branches[branch])[1].files
            new = self._records.write_commit(repo_id, None, summary, author, files)
            repo = replace(repo, branches={**repo.branches, branch: new.id})
            kept: set[str | None] = set()
            for head in repo.heads:
                oid: str | None = head
                while oid is not None and oid not in kept:
                    kept.add(oid)
                    try:
                        oid = self._records.commit(repo_id, oid).parent
                    except FileNotFoundError:  # nothing was deleted yet
                        raise Damaged(f"{repo_id}: commits/{oid}.json is missing.") from None
            self._write_repo(repo)
            self._records.remove_commits(repo_id, set(self._records.commits(repo_id)) - kept)
            self.audit.write(author, "squash", repo_id, branch=branch, commit=new.id)

    def point(self, repo_id: str, kind: str, name: str, revision: str | None, user: str) -> None:
        """Set a branch or a tag (``kind``) to a revision, or remove it (None)."""
        with self._lock:
            repo = self.repo(repo_id)
            kinds = {"branch": dict(repo.branches), "tag": dict(repo.tags)}
            ref = f"refs/{'heads' if kind == 'branch' else 'tags'}/{name[:100]}"
            if revision is None:
                if name not in kinds[kind]:
                    raise Missing("RevisionNotFound", f"Invalid rev id: {repo_id} has no {ref}.")
                if ref == "refs/heads/main":
                    raise Protected(f"Cannot delete {ref}: it is the default branch.")
                del kinds[kind][name]
            else:
                oid = self.snapshot(repo_id, revision)[1].id
                check_ref(name)
                if name in kinds[kind]:
                    raise Taken(f"Reference {ref} already exists in {repo_id}.")
                kinds[kind][name] = oid
            self._write_repo(replace(repo, branches=kinds["branch"], tags=kinds["tag"]))
            self.audit.write(user, f"remove {kind}" if revision is None else kind, repo_id, name=name)

    def set_private(self, repo_id: str, private: bool, user: str) -> None:
        """Make a repository private or public."""
        with self._lock:
            self._write_repo(replace(self.repo(repo_id), private=private))
            self.audit.write(user, "settings", repo_id, private=private)

    # The disk

    def _write_repo(self, repo: Repo) -> None:
        self._records.write_repo(repo)
        self._know(repo)

    def _open(self) -> None:
        """Read the state of every repository, and delete files of interrupted writers and old deleted repositories."""
        contents: dict[str, dict[str, int]] = {}
        for repo_id in self._records.names():
            try:
                self._open_repo(repo_id, contents.setdefault(repo_id.partition("/")[0], {}))
            except (Damaged, ValueError) as error:
                self._aside[repo_id] = str(error)
                self.problems.append(str(error))
        for repo in self._known.values():  # a new repository may have taken the name that another left
            self._others[folded(repo.id)] = repo.id
        self.trash.purge()
        folders = self._records.root, self.contents.root
        for path in [*self.root.glob(".*.part"), *(path for folder in folders for path in folder.rglob(".*.part"))]:
            if is_part(path):
                path.unlink()
        try:
            self._add_deleted(contents)
        except Damaged as error:
            self.problems.append(f"trash: {error}")
        self.contents.count(contents)
        if not self.problems:  # an unreadable commit may reference any of them
            remove(self.contents.unnamed(contents, time.time(), self.cards), time.time())

    def _open_repo(self, repo_id: str, contents: dict[str, int]) -> None:
        """Read one repository, and record the contents it references and its unreadable or lost commits."""
        folder, begun = self._records.folder(repo_id), False
        there, named = set(self._records.commits(repo_id)), set[str]()
        for oid in sorted(there):
            try:
                commit = self._records.read_commit(repo_id, oid)
            except Damaged as error:
                self.problems.append(str(error))
                begun = True
                continue
            contents |= sizes_of(commit.files.values())
            named |= {commit.parent} if commit.parent else set()
            begun = begun or bool(commit.files)
        if (folder / "repo.json").exists() or begun:  # else its creation was interrupted
            repo = self._records.repo(repo_id)
            self._know(repo)
            lost = (repo.heads | named) - there
            self.problems += [f"{repo_id}: commits/{oid}.json is missing." for oid in sorted(lost)]

    def _add_deleted(self, contents: dict[str, dict[str, int]]) -> None:
        """Add the contents of deleted repositories, which may be restored."""
        for row in self.trash.rows():
            for commit in self._records.commits_in(row.folder, row.id):
                contents.setdefault(row.id.partition("/")[0], {}).update(sizes_of(commit.files.values()))

    def sweep(self, age: float = UNNAMED) -> int:
        """Delete unreferenced contents and old deleted repositories, and return the freed bytes.

        Nothing is deleted while a commit cannot be read, or if a repository was moved in the meantime.

        Args:
            age: minimum number of seconds since the content was last uploaded or queried.
        """
        if self.problems:
            return 0
        with self._lock:
            self._named, renamed, before = {}, self._renamed, time.time() - age
            self.trash.purge()
        contents: dict[str, dict[str, int]] = {}
        try:
            for repo_id in self._records.names():
                for commit in self._records.commits_in(self._records.folder(repo_id), repo_id):
                    contents.setdefault(repo_id.partition("/")[0], {}).update(sizes_of(commit.files.values()))
            self._add_deleted(contents)
            unnamed = self.contents.unnamed(contents, before, self.cards)
            with self._lock:
                if renamed != self._renamed:
                    return 0
                named = set[str]().union(*self._named.values())
                freed = remove([path for path in unnamed if path.name not in named], before)
                for namespace, sizes in self._named.items():
                    contents.setdefault(namespace, {}).update(sizes)
                self.contents.count(contents)
            return freed
        except (Damaged, FileNotFoundError) as error:
            if isinstance(error, Damaged):
                self.problems.append(str(error))
            return 0
        finally:
            self._named = None


def _same(before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    return before if before and before["sha256"] == after["sha256"] else after
