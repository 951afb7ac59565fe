"""Cache shared with the client: the files of a commit, verified by the hash in their name."""

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unknot.checkpoints.errors import IntegrityError
from unknot.files import replacing

if TYPE_CHECKING:
    from unknot.checkpoints.client import Listing


def cache_of(cache_dir: str | Path | None = None) -> Path:
    """Return the folder of the shared cache: the argument, ``HF_HUB_CACHE`` or ``HF_HOME``, or the default."""
    if cache_dir or os.environ.get("HF_HUB_CACHE"):
        return Path(cache_dir or os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"


Announced = tuple[int, str]
"""Size and hash of a file as the hub announces them: SHA-256 for large files, git's SHA-1 for others, "" for none."""


def hasher_of(announced: Announced) -> Any:
    """Return a hash object for the content of a file: SHA-256, or SHA-1 with git's prefix."""
    size, digest = announced
    return hashlib.sha256() if len(digest) == 64 else hashlib.sha1(b"blob %d\0" % size)


def check(size: int, digest: str, announced: Announced, subject: str) -> None:
    """Raise an error for content whose size or hash differs from the announced one."""
    if size != announced[0]:
        raise IntegrityError(
            f"{subject}: {size:,} bytes instead of the announced {announced[0]:,}. The copy was removed; load again."
        )
    if digest != announced[1]:
        raise IntegrityError(
            f"{subject}: expected the hash {announced[1]}, got {digest}. The copy was removed; load again."
        )


def check_file(path: Path, announced: Announced, subject: str) -> None:
    """Raise an error for a cached file that differs from the announced one, and remove it."""
    digest, size = hasher_of(announced), path.stat().st_size
    with path.open("rb") as content:
        while size == announced[0] and (chunk := content.read(1 << 20)):
            digest.update(chunk)
    try:
        check(size, digest.hexdigest(), announced, subject)
    except IntegrityError:
        if path.is_symlink():
            path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise


# models--USER--NAME/{refs/BRANCH, snapshots/COMMIT/FILE -> blobs/HASH}


def repo_cache(repo: str, cache_dir: str | Path | None = None) -> Path:
    """Return the folder of a repository in the cache."""
    return cache_of(cache_dir) / f"models--{repo.replace('/', '--')}"


def cached_commit(repo: str, revision: str | None, cache_dir: str | Path | None = None) -> str | None:
    """Return the last known commit of a revision, if the cache holds a model at that commit."""
    folder, commit = repo_cache(repo, cache_dir), revision or "main"
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", commit) or ".." in commit:
            return None
        try:
            commit = (folder / "refs" / commit).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return None
    whole = re.fullmatch(r"[0-9a-f]{40}", commit) and all(
        (folder / "snapshots" / commit / name).is_file() for name in ("config.json", "model.safetensors")
    )
    return commit if whole else None


def cached_file(path: Path, subject: str) -> Path:
    """Return a cached file whose content still has the hash in its name, if links reveal it."""
    name = Path(os.readlink(path)).name if path.is_symlink() else ""
    if re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{40}", name):
        check_file(path, (path.stat().st_size, name), subject)
    return path


def remember(listing: "Listing", revision: str | None, cache_dir: str | Path | None = None) -> None:
    """Record the commit of a branch or tag in the cache, so that it can be loaded without the hub."""
    name = revision or "main"
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) and name != listing.commit:
        try:
            with replacing(repo_cache(listing.repo, cache_dir) / "refs" / name) as beside:
                beside.write_text(listing.commit, encoding="utf-8")
        except OSError:  # a read-only cache
            return


def place(listing: "Listing", name: str, cache_dir: str | Path | None = None) -> tuple[Path, Path]:
    """Return the path of a file of a commit in the cache, and of its content, which is named by its hash."""
    folder = repo_cache(listing.repo, cache_dir)
    return folder / "snapshots" / listing.commit / name, folder / "blobs" / listing.files[name][1]


def link(path: Path, blob: Path) -> None:
    """Link a file of a commit to its content, or copy it if the disk does not support links."""
    with replacing(path) as beside:
        try:
            beside.symlink_to(os.path.relpath(blob, path.parent))
        except OSError:
            beside.write_bytes(blob.read_bytes())
