"""Locate a checkpoint: a folder, a bundled one, the cache, or a hub. This is the only place that decides, without
torch.
"""

import difflib
import inspect
import logging
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unknot.checkpoints import cache, client
from unknot.checkpoints.card import MAX_CARD, facts_of, read_card
from unknot.checkpoints.errors import IntegrityError, OfflineError, UnreachableError
from unknot.checkpoints.names import (
    CARD,
    COMMIT,
    CONFIG,
    ORGANISATION,
    WEIGHTS,
    bundled_folder,
    bundled_names,
    parse_ref,
)
from unknot.files import read_limited, sha256_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """Location of a checkpoint: the folder of its files and, if any, its repository and commit.

    :func:`resolve` returns it, models store it as ``model.loaded_from``, and a push reads it.
    """

    kind = "folder"
    folder: Path
    repo: str | None = None
    commit: str | None = None

    def plain(self) -> "Source":
        """Return folder, repository and commit, without the token."""
        return Source(self.folder, self.repo, self.commit)

    def path(self, file: str) -> Path:
        """Return the path of a file, with a warning if the weights are not those that the card describes."""
        if file == WEIGHTS and (problem := self._foreign_weights()):
            warnings.warn(f"{self.label(WEIGHTS)}: {problem}", stacklevel=4)
        return self.folder / file

    def label(self, file: str) -> str:
        """Return the name of a file for messages."""
        return str(self.folder / file)

    def _foreign_weights(self) -> str | None:
        """Return a message if the card states the hash of other weights."""
        try:
            recorded = facts_of(read_card(read_limited(self.folder / CARD, MAX_CARD)).metadata).get("weights")
            actual = sha256_of(self.folder / WEIGHTS) if isinstance(recorded, str) else None
        except (OSError, ValueError):
            return None
        return (
            None
            if actual == recorded
            else f"not the weights that {CARD} describes (their sha256 is {actual}, not {recorded})."
        )


@dataclass(frozen=True)
class Bundled(Source):
    """A bundled checkpoint, which nobody changes."""

    kind = "bundled"

    def path(self, file: str) -> Path:
        """Return a file to read, if it is the one that was bundled."""
        if file == WEIGHTS and (problem := self._foreign_weights()):
            raise IntegrityError(f"{self.label(WEIGHTS)}: {problem} Install the package again.")
        return self.folder / file


@dataclass(frozen=True)
class Cached(Source):
    """Files of one commit in the client's cache, verified by the hash in their name."""

    kind = "cached"

    def path(self, file: str) -> Path:
        """Return the path of a file after checking that it is unchanged since the download."""
        return cache.cached_file(self.folder / file, self.label(file))

    def label(self, file: str) -> str:
        """Return the name of a file for messages."""
        return f"{self.repo}@{(self.commit or '')[:7]}/{file}"


@dataclass(frozen=True)
class Remote(Cached):
    """Files of one commit on a hub, downloaded on first access."""

    kind = "remote"
    listing: client.Listing = field(kw_only=True)
    revision: str | None = field(kw_only=True)
    where: dict[str, Any] = field(kw_only=True)

    def path(self, file: str) -> Path:
        """Return the path of a file, downloaded to the cache and verified."""
        path = client.download(self.listing, file, **self.where)
        if file == WEIGHTS:  # downloaded last: until then, the cache refers to its previous state
            cache.remember(self.listing, self.revision, self.where["cache_dir"])
        return path


def _bundled_like(repo: str) -> str:
    """For messages: the checkpoint of the package whose name is nearly this one, if there is one."""
    close = difflib.get_close_matches(repo, bundled_names(), n=1, cutoff=0.8)
    return f" Did you mean {close[0]!r}, which came with the package?" if close else ""


def resolve(
    ref: str | Path,
    revision: str | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    max_bytes: int | None = None,
    fresh: bool = False,
) -> Source:
    """Locate the files of a checkpoint: an existing folder, a bundled one, the cache, or a hub.

    A full commit hash is read from the cache without a request. A branch or tag is looked up, so that you get its
    newest state; if the hub cannot be reached, the cached state is used with a warning.

    Args:
        ref: a folder, a bundled name, ``USER/REPO`` or ``USER/REPO@REVISION``.
        revision: a branch, tag or commit, in place of ``@REVISION``.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        token: token for private repositories; by default ``HF_TOKEN`` or the saved login; False sends none.
        cache_dir: the client's cache; by default its own.
        local_files_only: never ask a hub.
        max_bytes: maximum size of the weights (default: 2 GB).
        fresh: contact the hub even for a commit whose model is cached, as it may have more files.
    """
    folder, named = Path(ref), parse_ref(ref)
    if folder.is_dir() and (named is None or (folder / CONFIG).exists()):
        if revision is not None:
            raise ValueError(f"{ref} is a folder, which has no revision {revision!r}.")
        return Source(folder)
    if named is None:
        raise FileNotFoundError(
            f"{ref}: no such folder. Give a folder that save_pretrained or `unknot fit` wrote, a bundled name, "
            f"USER/REPO or USER/REPO@REVISION.{_bundled_like(f'{ORGANISATION}/{ref}')}"
        )
    repo, written = named
    if written is not None and revision not in (None, written):
        raise ValueError(f"{ref} names a revision, and revision={revision!r} is another one. Give only one.")
    revision = revision or written
    if revision is None and (bundled := bundled_folder(repo)):
        return Bundled(bundled, repo)

    offline = local_files_only or client.is_offline()
    known = cache.cached_commit(repo, revision, cache_dir)
    snapshots = cache.repo_cache(repo, cache_dir) / "snapshots"
    if known and (offline or (known == revision and not fresh)):
        return Cached(snapshots / known, repo, known)
    if offline:
        raise OfflineError(
            f"{ref}: not in the cache ({cache.cache_of(cache_dir)}), and offline. Unset HF_HUB_OFFLINE, or run "
            f"`unknot hub pull {ref}` with a network connection.{_bundled_like(repo)}"
        )
    try:
        listing = client.look_up(repo, revision, endpoint, token)
    except (UnreachableError, FileNotFoundError) as error:
        if not known or isinstance(error, FileNotFoundError):
            if like := _bundled_like(repo):
                raise type(error)(f"{error}{like}") from error
            raise
        warnings.warn(f"{error} Using {repo}@{known[:7]} of the cache, which may be old.", stacklevel=4)
        return Cached(snapshots / known, repo, known)
    logger.info("Found %s@%s (%s)", repo, listing.commit[:7], revision or "main")
    where = {"endpoint": endpoint, "token": token, "cache_dir": cache_dir, "max_bytes": max_bytes}
    return Remote(snapshots / listing.commit, repo, listing.commit, listing=listing, revision=revision, where=where)


def find(ref: str | Path, revision: str | None = None, **where: Any) -> Source:
    """Locate the files of a checkpoint, as :func:`resolve` does, to build its model."""
    check_pinned(ref, revision)
    return resolve(ref, revision, **where)


def check_pinned(ref: str | Path, revision: str | None = None) -> None:
    """Raise an error for a reference that may change, if ``UNKNOT_PINNED_ONLY`` is set."""
    named = parse_ref(ref)
    if not os.environ.get("UNKNOT_PINNED_ONLY") or named is None or (Path(ref) / CONFIG).exists():
        return
    repo, revision = named[0], revision or named[1]
    if not COMMIT.fullmatch(revision or "") and not (revision is None and bundled_folder(repo)):
        raise ValueError(f"{ref}: UNKNOT_PINNED_ONLY is set, which requires a full commit hash: {repo}@COMMIT.")


WHERE = frozenset(inspect.signature(resolve).parameters) - {"ref", "fresh"}
"""Arguments that locate a checkpoint; all others are arguments of the model."""
