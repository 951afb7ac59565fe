"""Load a checkpoint by what names it: a shipped name, a repository (and a revision) on a hub, or a folder."""

import logging
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unknot.hub import client
from unknot.hub.errors import OfflineError, UnreachableError
from unknot.hub.refs import parse_ref, shipped_folder
from unknot.hub.storage import COMMIT
from unknot.zoo import MODELS
from unknot.zoo.pretrained import CONFIG, WEIGHTS, Source, build, read_config

logger = logging.getLogger(__name__)


def load(ref: str | Path, **where: Any) -> Any:
    """Load a saved model; its class comes from the registry by the name in ``config.json``.

    Args:
        ref: a shipped name (``unknot/adagvae-dsprites``), ``USER/REPO``, ``USER/REPO@REVISION``, or a folder.
        where: ``endpoint``, ``token``, ``cache_dir``, ``local_files_only`` and ``max_bytes``, as in :func:`find`.

    >>> import tempfile
    >>> from unknot.zoo import BetaVAE
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = BetaVAE(beta=2.0).save_pretrained(folder)
    ...     type(load(folder)).__name__
    'BetaVAE'
    """
    source = find(ref, **where)
    config = read_config(source)
    name = config["model"]
    if name not in MODELS:
        raise ValueError(f"{source.label(CONFIG)}: unknown model {name!r}; this version knows {sorted(MODELS)}.")
    return build(MODELS[name], source, config)


def find(
    ref: str | Path,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    max_bytes: int | None = None,
) -> Source:
    """Where the files of a checkpoint are: a folder that exists, a shipped one, the cache, or a hub.

    A commit in full is taken from the cache without a question. A branch or tag is asked for, so that one gets its
    newest state; where the hub cannot be reached, the cached state is used with a warning.

    Args:
        ref: what names the checkpoint.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        token: to read private repositories; by default ``HF_TOKEN`` or the saved login; False sends none.
        cache_dir: the client's cache; by default its own.
        local_files_only: never ask a hub.
        max_bytes: weights above this size are refused (default: 2 GB).
    """
    folder, named = Path(ref), parse_ref(ref)
    if folder.is_dir() and (named is None or (folder / CONFIG).exists()):
        return Source(folder)
    if named is None:
        raise FileNotFoundError(
            f"{ref}: no such folder. Give a folder that save_pretrained or `unknot fit` wrote, a shipped name, "
            "USER/REPO or USER/REPO@REVISION."
        )
    repo, revision = named
    if os.environ.get("UNKNOT_PINNED_ONLY") and not COMMIT.fullmatch(revision or "") and not shipped_folder(repo):
        raise ValueError(f"{ref}: UNKNOT_PINNED_ONLY is set, so a commit must be named in full: {repo}@COMMIT.")
    if revision is None and (shipped := shipped_folder(repo)):
        return Source(shipped, repo)

    offline = local_files_only or client.is_offline()
    known = client.cached_commit(repo, revision, cache_dir)
    snapshots = client.repo_cache(repo, cache_dir) / "snapshots"
    if known and (offline or known == revision):
        return Cached(snapshots / known, repo, known)
    if offline:
        raise OfflineError(
            f"{ref}: not in the cache ({client.cache_of(cache_dir)}), and offline. Unset HF_HUB_OFFLINE, or run "
            f"`unknot hub pull {ref}` where there is a network."
        )
    try:
        listing = client.look_up(repo, revision, endpoint, token)
    except UnreachableError as error:
        if not known:
            raise
        warnings.warn(f"{error} Using {repo}@{known[:7]} of the cache, which may be old.", stacklevel=3)
        return Cached(snapshots / known, repo, known)
    logger.info("Loading %s@%s (%s)", repo, listing.commit[:7], revision or "main")
    where = {"endpoint": endpoint, "token": token, "cache_dir": cache_dir, "max_bytes": max_bytes}
    return Remote(snapshots / listing.commit, repo, listing.commit, listing=listing, revision=revision, where=where)


@dataclass(frozen=True)
class Cached(Source):
    """Files of one commit in the client's cache, checked by the hash in their name."""

    def path(self, file: str) -> Path:
        """The file, if it is still what was downloaded."""
        return client.cached_file(self.folder / file, self.label(file))

    def label(self, file: str) -> str:
        """How messages name a file."""
        return f"{self.repo}@{(self.commit or '')[:7]}/{file}"


@dataclass(frozen=True)
class Remote(Cached):
    """Files of one commit on a hub, downloaded when asked for."""

    listing: client.Listing = field(kw_only=True)
    revision: str | None = field(kw_only=True)
    where: dict[str, Any] = field(kw_only=True)

    def path(self, file: str) -> Path:
        """The file, downloaded to the cache and checked against what the hub announced."""
        path = client.download(self.listing, file, **self.where)
        if file == WEIGHTS:  # the last to come; before, the state that the cache knows is the one that it has
            client.remember(self.listing, self.revision, self.where["cache_dir"])
        return path
