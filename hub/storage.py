"""Repositories as files on disk: contents by hash, commits as JSON, and one small file that says where branches stand.

A commit writes its contents, then itself, then renames the new state of the repository over the old one. A crash at any
moment therefore leaves the repository as it was before the commit or as it is after it. Names of files in a repository
are keys of JSON objects and never paths on this disk, so that no name can lead out of the folder.

The folder carries a mark, and one that holds something else is refused: what is swept away here must be ours. What
cannot be read is named and left where it is, and nothing is swept while something is unreadable.
"""

import hashlib
import json
import re
import secrets
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from unknot.hub.bounded import Cache
from unknot.hub.disk import Incoming, digest, durably, is_part

try:
    import fcntl
except ImportError:  # Windows: nothing keeps a second server away there
    fcntl = None  # type: ignore[assignment]

NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
COMMIT = re.compile(r"[0-9a-f]{40}")
HASH = re.compile(r"[0-9a-f]{64}")
DOTTED = {".gitattributes", ".gitignore", ".eval_results"}
MAX_FILES = 1000
MARK = "unknot-hub.json"
FOLDERS = ("repos", "blobs", "trash", "cards")
BESIDE = {"lock", "tokens.txt"}
"""What else may lie in the folder of a hub."""
CACHED_FILES = 200_000
"""Entries of commits that are kept in memory, about half a kilobyte each."""

Files = dict[str, dict[str, Any]]
"""Size, sha256, git's sha1 (where known) and whether it is text, by path."""


class Missing(LookupError):
    """There is no such repository, revision or file; ``what`` says which, in the words of the Hub's headers."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what, self.message = what, message


class Taken(ValueError):
    """A name is in use."""


class Stale(ValueError):
    """The branch has moved on since the writer looked."""


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


@dataclass(frozen=True)
class Commit:
    """One state of the files; ``id`` is the sha1 of its JSON."""

    id: str
    parent: str | None
    summary: str
    author: str
    date: str
    files: Files


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
        self._mark_folder()
        self._repos, self._blobs, self._trash, self.cards = (self.root / name for name in FOLDERS)
        for folder in (self._repos, self._blobs, self._trash, self.cards):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)  # private repositories are nobody else's on this machine either
        self._lock = threading.Lock()
        self._claim = self._claim_folder()
        self._commits: Cache[tuple[str, str], Commit] = Cache(CACHED_FILES)
        self.problems: list[str] = []
        """What could not be read when the store was opened, a line for each file."""
        self._known: dict[str, Repo] = {}
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
        if repo_id in self._known:
            return self._known[repo_id]
        with suppress(ValueError):
            if (self._folder(repo_id) / "commits").is_dir():
                self._read_repo(repo_id)  # says what is wrong with it
        raise Missing("RepoNotFound", f"Repository {repo_id[:100]!r} does not exist, or is private.")

    def snapshot(self, repo_id: str, revision: str) -> tuple[Repo, Commit]:
        """State of a repository and the commit that a branch, a tag or (the first 7 digits of) its name stands for."""
        repo = self.repo(repo_id)
        oid = repo.branches.get(revision) or repo.tags.get(revision) or revision
        if re.fullmatch(r"[0-9a-f]{7,39}", oid):
            named = [path.stem for path in (self._folder(repo_id) / "commits").glob(f"{oid}*.json")]
            oid = named[0] if len(named) == 1 else oid
        try:
            if not COMMIT.fullmatch(oid):
                raise FileNotFoundError
            return repo, self._read_commit(repo_id, oid)
        except FileNotFoundError:
            if oid in {*repo.branches.values(), *repo.tags.values()}:
                raise Damaged(f"{repo_id}: commits/{oid}.json is missing.") from None
            raise Missing("RevisionNotFound", f"{repo_id} has no revision {revision[:100]!r}.") from None

    def history(self, repo_id: str, revision: str) -> list[Commit]:
        """Commits from ``revision`` back to the first, or to one that can no longer be read."""
        commits = [self.snapshot(repo_id, revision)[1]]
        with suppress(Damaged, FileNotFoundError):
            while commits[-1].parent is not None:
                commits.append(self._read_commit(repo_id, commits[-1].parent))
        return commits

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
        folder = self._folder(check_repo_id(repo_id))
        with self._lock:
            if repo_id in self._known or (folder / "repo.json").exists():
                raise Taken(f"Repository {repo_id} exists already.")
            first = self._write_commit(repo_id, None, "Create the repository", author, {})
            repo = Repo(repo_id, private, first.date, {"main": first.id}, {})
            self._write_repo(repo)
        return repo

    def delete(self, repo_id: str) -> None:
        """Remove a repository at once; its contents go when the server starts anew."""
        with self._lock:
            self.repo(repo_id)
            grave = self._trash / secrets.token_hex(8)
            self._folder(repo_id).rename(grave)
            del self._known[repo_id]
            self._commits.clear()
        shutil.rmtree(grave, ignore_errors=True)

    def move(self, repo_id: str, to: str) -> None:
        """Give a repository another name; its commits keep theirs."""
        target = self._folder(check_repo_id(to))
        with self._lock:
            repo = self.repo(repo_id)
            if to in self._known or target.exists():
                raise Taken(f"Repository {to} exists already.")
            target.parent.mkdir(exist_ok=True)
            self._folder(repo_id).rename(target)
            del self._known[repo_id]
            self._known[to] = replace(repo, id=to)
            self._commits.clear()

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
            before = self._read_commit(repo_id, head).files
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
            new = self._write_commit(repo_id, head, summary, author, after)
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

    def _folder(self, repo_id: str) -> Path:
        return self._repos / check_repo_id(repo_id)

    def _blob(self, sha256: str) -> Path:
        if not HASH.fullmatch(sha256):
            raise ValueError(f"{sha256[:100]!r} is not a sha256.")
        return self._blobs / sha256[:2] / sha256

    def _read_repo(self, repo_id: str) -> Repo:
        path = self._folder(repo_id) / "repo.json"
        try:
            state = json.loads(path.read_bytes())
            repo = Repo(repo_id, bool(state["private"]), str(state["created"]), state["branches"], state["tags"])
            oids = {*repo.branches.values(), *repo.tags.values()}
            if "main" not in repo.branches or not all(COMMIT.fullmatch(oid) for oid in oids):
                raise ValueError("no branch main, or names of commits that are none")
            return repo
        except Exception as error:  # whatever a damaged disk may hold
            raise Damaged(f"{repo_id}: repo.json cannot be read ({_reason(error)}).") from None

    def _read_commit(self, repo_id: str, oid: str) -> Commit:
        return self._commits.get((repo_id, oid), lambda: self._read_commit_file(repo_id, oid), _weight)

    def _read_commit_file(self, repo_id: str, oid: str) -> Commit:
        path = self._folder(repo_id) / "commits" / f"{oid}.json"
        try:
            told = json.loads(path.read_bytes())
            for file in told["files"].values():
                if not HASH.fullmatch(file["sha256"]) or not isinstance(file["size"], int):
                    raise ValueError("no hash or no size of a file")
            return Commit(oid, told["parent"], told["summary"], told["author"], told["date"], told["files"])
        except FileNotFoundError:
            raise
        except Exception as error:
            raise Damaged(f"{repo_id}: commits/{oid}.json cannot be read ({_reason(error)}).") from None

    def _write_commit(self, repo_id: str, parent: str | None, summary: str, author: str, files: Files) -> Commit:
        date = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        content = {"parent": parent, "summary": summary[:500], "author": author, "date": date, "files": files}
        text = json.dumps(content, indent=1)
        # Salted with the repository's name: the first commits of two repositories may share a millisecond.
        oid = hashlib.sha1(f"{repo_id}\n{text}".encode()).hexdigest()
        with durably(self._folder(repo_id) / "commits" / f"{oid}.json") as file:
            file.write(text.encode())
        return Commit(id=oid, **content)  # type: ignore[arg-type]

    def _write_repo(self, repo: Repo) -> None:
        state = {key: getattr(repo, key) for key in ("private", "created", "branches", "tags")}
        with durably(self._folder(repo.id) / "repo.json") as file:
            file.write(json.dumps(state, indent=1).encode())
        self._known[repo.id] = repo

    def _mark_folder(self) -> None:
        """Make the folder ours; one that holds something else is somebody else's and stays as it is."""
        self.root.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in self.root.iterdir()}
        if MARK in names:
            return
        if names - BESIDE and not self._is_of_an_earlier_version(names):
            some = ", ".join(sorted(names - BESIDE)[:3])
            raise FileExistsError(
                f"{self.root} is not the folder of a hub, and not empty (it holds {some}). Give a new or empty folder."
            )
        with durably(self.root / MARK) as file:
            file.write(b'{"unknot hub": 1}\n')

    def _is_of_an_earlier_version(self, names: set[str]) -> bool:
        """Whether there is a hub from before the mark: its folders, and in them what it writes and nothing else."""
        if not {"repos", "blobs", "lock"} <= names <= {"repos", "blobs", "trash"} | BESIDE:
            return False
        blobs = all(HASH.fullmatch(path.name) or is_part(path) for path in self.root.glob("blobs/*/*"))
        repos = all(path.name in ("repo.json", "commits") for path in self.root.glob("repos/*/*/*"))
        return blobs and repos and not any(self.root.glob("trash/*"))

    def _claim_folder(self) -> IO[str]:
        """Keep a second server away from the folder, for as long as this process lives."""
        file = open(self.root / "lock", "a", encoding="utf-8")  # noqa: SIM115
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                raise OSError(f"{self.root} is served by another process. Stop it, or give another folder.") from None
        return file

    def _open(self) -> None:
        """Read the state of every repository, and sweep what interrupted writers and deleted ones left behind."""
        used: set[str] = set()
        for folder in sorted(path for path in self._repos.glob("*/*") if path.is_dir()):
            repo_id, held = f"{folder.parent.name}/{folder.name}", 0
            for path in folder.glob("commits/*.json"):
                try:
                    commit = self._read_commit_file(repo_id, path.stem)
                except (Damaged, ValueError) as error:
                    self.problems.append(str(error))
                    continue
                used.update(file["sha256"] for file in commit.files.values())
                held += len(commit.files)
            if (folder / "repo.json").exists() or held:  # else its creation was interrupted
                try:
                    self._known[repo_id] = self._read_repo(repo_id)
                except (Damaged, ValueError) as error:
                    self.problems.append(str(error))
        self._sweep(used)

    def _sweep(self, used: set[str]) -> None:
        for grave in self._trash.iterdir():
            if re.fullmatch(r"[0-9a-f]{16}", grave.name):
                shutil.rmtree(grave, ignore_errors=True)
        for path in [*self._repos.rglob(".*.part"), *self._blobs.rglob(".*.part"), *self.root.glob(".*.part")]:
            if is_part(path):
                path.unlink()
        if self.problems:  # what cannot be read may name any of them
            return
        for path in [*self._blobs.glob("*/*"), *self.cards.glob("*/*")]:
            if HASH.fullmatch(path.name) and path.name not in used:
                path.unlink()


def _same(before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    return before if before and before["sha256"] == after["sha256"] else after


def _weight(commit: Commit) -> int:
    return 10 + len(commit.files)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:100]}"
