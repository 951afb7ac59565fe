"""Talking to a hub: where it is, what it holds, files checked by hash. Deadlines are short, and errors say what to do.

``huggingface_hub`` is imported when it is needed: offline listing must not wait for it. Settings are read from the
environment at every call, where the client reads most of them once.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from unknot.hub.errors import (
    AccessError,
    ConflictError,
    IntegrityError,
    MissingError,
    OfflineError,
    TooLargeError,
    UnreachableError,
    UnsafeCheckpointError,
)

T = TypeVar("T")
DEADLINE = 5.0
"""Seconds that a hub has to answer a question; downloads and uploads take as long as they take."""

LIMITS = {
    "config.json": 1 << 20,
    "README.md": 1 << 20,
    "training.yaml": 1 << 20,
    "training.csv": 20 << 20,
    "model.safetensors": 2 << 30,
}
"""Files that are read from a repository, with the bytes each may have; pictures come on top. Nothing else is read."""
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
MAX_PICTURE = 10 << 20
MAX_PIXELS = 40_000_000
PICTURE = re.compile(r"pictures/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.png")


def endpoint_of(endpoint: str | None = None) -> str:
    """Address of the hub: the argument, ``HF_ENDPOINT``, or the public one.

    >>> endpoint_of("http://127.0.0.1:8000/")
    'http://127.0.0.1:8000'
    """
    address = endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not re.match(r"https?://[^/\s]", address):
        raise ValueError(f"{address!r} is not a hub's address; HF_ENDPOINT looks like http://127.0.0.1:8000.")
    return address.rstrip("/")


def cache_of(cache_dir: str | Path | None = None) -> Path:
    """Folder of the client's cache, which we share: the argument, ``HF_HUB_CACHE`` or ``HF_HOME``, or the default."""
    if cache_dir or os.environ.get("HF_HUB_CACHE"):
        return Path(cache_dir or os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"


def is_offline() -> bool:
    """Whether ``HF_HUB_OFFLINE`` (or ``TRANSFORMERS_OFFLINE``) forbids to ask any hub."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


@dataclass(frozen=True)
class RemoteFile:
    """Size and hash of a file as the hub announces them: sha256 for large ones, git's sha1 for the others."""

    size: int
    sha256: str | None
    sha1: str | None


@dataclass(frozen=True)
class Listing:
    """One commit of a repository: what is in it."""

    repo: str
    commit: str
    private: bool
    files: dict[str, RemoteFile]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    modified: str | None = None


def ask(
    address: str,
    subject: str,
    question: Callable[[], T],
    deadline: float | None = DEADLINE,
    token: str | bool | None = None,
) -> T:
    """Ask a hub within a deadline; whatever its client raises becomes one of our errors.

    Args:
        address: of the hub, for messages.
        subject: what it is asked about, for messages.
        question: function that asks.
        deadline: seconds to wait, or None for work that may take long. The client itself retries for 23 seconds, and
            the look-up of a name may block for longer still.
        token: what was sent along, for messages; None is the client's own.
    """
    if is_offline():
        raise OfflineError(f"{subject}: offline mode is on. Unset HF_HUB_OFFLINE to ask {address}.")
    try:
        return question() if deadline is None else _within(deadline, question)
    except Exception as error:
        known = _translate(error, address, subject, token)
        if known is None:
            raise
        raise known from error


def _within(seconds: float, function: Callable[[], T]) -> T:
    result: list[T] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            result.append(function())
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not result:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return result[0]


def _translate(error: Exception, address: str, subject: str, token: str | bool | None) -> Exception | None:
    """Our error for one of the client; None for what is a bug or the user's doing and not the hub's."""
    from huggingface_hub import errors, get_token

    known = bool(get_token() if token is None else token)
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    said = " ".join(str(getattr(error, "server_message", None) or error).split())[:300]
    if isinstance(error, errors.OfflineModeIsEnabled):
        return OfflineError(f"{subject}: offline mode is on. Unset HF_HUB_OFFLINE to ask {address}.")
    if isinstance(error, errors.GatedRepoError):
        return AccessError(f"{subject}: {address} wants its terms accepted first. Do so on its page.")
    if isinstance(error, errors.RepositoryNotFoundError):
        if known:
            hint = "It does not exist, or it is private and your token may not read it. Check the name and the token."
        else:
            hint = "It does not exist, or it is private: then set HF_TOKEN. Check the name."
        return MissingError(f"{subject}: not found at {address}. {hint}")
    if isinstance(error, errors.RevisionNotFoundError):
        return MissingError(f"{subject}: the repository is there, this revision is not. Give a branch, tag or commit.")
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return MissingError(f"{subject}: no such file at {address}.")
    if status in (401, 403):
        hint = "Public repositories can be read with token=False." if known else "Set HF_TOKEN."
        return AccessError(f"{subject}: {address} refused the token ({said}). {hint}")
    if status in (409, 412):
        return ConflictError(
            f"{subject}: somebody else changed it just now, and nothing was overwritten ({said}). Push again to build "
            "on the change, or use force=True to go over it."
        )
    if status == 413:
        return TooLargeError(f"{subject}: {said}")
    if "xet-write-token" in str(error):
        return ValueError(f"{subject}: {address} takes files of this size without xet: set HF_HUB_DISABLE_XET=1.")
    if isinstance(error, OSError) and "onsistency check" in str(error):
        return IntegrityError(f"{subject}: {address} sent less or more than it announced ({said}). Load again.")
    if status is not None and status < 500:
        return ValueError(f"{subject}: {address} refused: {said}")
    foreign = type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")
    if (
        status is not None
        or foreign
        or isinstance(error, ConnectionError | TimeoutError | errors.LocalEntryNotFoundError)
    ):
        return UnreachableError(f"{subject}: cannot reach {address} ({said}). Check the network and HF_ENDPOINT.")
    return None


def look_up(repo: str, revision: str | None, endpoint: str | None = None, token: str | bool | None = None) -> Listing:
    """One commit for everything that follows, and the files it has with their sizes and hashes."""
    address = endpoint_of(endpoint)
    subject = f"{repo}@{revision}" if revision else repo

    def question() -> Any:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=address, token=token)
        return api.model_info(repo, revision=revision, files_metadata=True, timeout=DEADLINE)

    info = ask(address, subject, question, token=token)
    if not isinstance(info.sha, str) or not re.fullmatch(r"[0-9a-f]{40}", info.sha):
        raise UnreachableError(f"{subject}: {address} does not speak as a hub does (no commit). Check HF_ENDPOINT.")
    files = {}
    for one in info.siblings or []:
        lfs = one.lfs.sha256 if one.lfs else None
        files[one.rfilename] = RemoteFile(one.size or 0, lfs, None if lfs else one.blob_id)
    card = info.card_data.to_dict() if info.card_data else {}
    modified = info.last_modified.isoformat() if info.last_modified else None
    return Listing(repo, info.sha, bool(info.private), files, card, modified)


def limit_of(name: str, max_bytes: int | None = None) -> int:
    """Bytes that a file may have; 0 for one that is never read."""
    if name == "model.safetensors" and max_bytes is not None:
        return max_bytes
    return LIMITS.get(name, MAX_PICTURE if PICTURE.fullmatch(name) else 0)


def download(
    listing: Listing,
    name: str,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    max_bytes: int | None = None,
) -> Path:
    """A file of a commit, in the cache, no larger than its limit and with the hash that the hub announced."""
    subject = f"{listing.repo}@{listing.commit[:7]}/{name}"
    if name not in listing.files:
        pickles = sorted(file for file in listing.files if file.endswith(PICKLES))
        if name == "model.safetensors" and pickles:
            raise UnsafeCheckpointError(
                f"{listing.repo}@{listing.commit[:7]} has no {name} (found: {', '.join(pickles[:3])}). Pickle "
                "files can run code and are not loaded; ask the author to publish safetensors."
            )
        raise MissingError(f"{subject}: no such file; this repository does not hold a model of the zoo.")
    address, file, limit = endpoint_of(endpoint), listing.files[name], limit_of(name, max_bytes)
    if file.size > limit:
        hint = " Pass a larger max_bytes if you trust it." if name == "model.safetensors" else ""
        raise TooLargeError(f"{subject}: {file.size:,} bytes, above the limit of {limit:,}.{hint}")

    def question() -> str:
        from huggingface_hub import hf_hub_download

        return hf_hub_download(
            listing.repo,
            name,
            revision=listing.commit,
            endpoint=address,
            token=token,
            cache_dir=cache_of(cache_dir),
            etag_timeout=DEADLINE,
        )

    # What is small must come within the deadline too; only weights may take their time.
    path = Path(ask(address, subject, question, None if file.size > 1 << 20 else 2 * DEADLINE, token))
    check_hash(path, file, subject)
    return path


def check_hash(path: Path, file: RemoteFile, subject: str) -> None:
    """Compare a downloaded file with what was announced; remove it from the cache if it differs."""
    if path.stat().st_size != file.size:
        _forget(path)
        raise IntegrityError(
            f"{subject}: {path.stat().st_size if path.exists() else 0:,} bytes instead of the announced {file.size:,}. "
            "The cached copy was removed; load again."
        )
    if file.sha256 is None and file.sha1 is None:
        raise IntegrityError(f"{subject}: the hub announced no hash for it, so it cannot be checked.")
    expected = file.sha256 or file.sha1
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(b"blob %d\0" % file.size)
    with path.open("rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        _forget(path)
        raise IntegrityError(
            f"{subject}: expected the hash {expected}, got {digest.hexdigest()}. "
            "The cached copy was removed; load again."
        )


def _forget(path: Path) -> None:
    if path.is_symlink():
        path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)


# The cache: models--USER--NAME/{refs/BRANCH, snapshots/COMMIT/FILE -> blobs/HASH}


def repo_cache(repo: str, cache_dir: str | Path | None = None) -> Path:
    """Folder of a repository in the cache."""
    return cache_of(cache_dir) / f"models--{repo.replace('/', '--')}"


def cached_commit(repo: str, revision: str | None, cache_dir: str | Path | None = None) -> str | None:
    """The commit of a revision as the cache last saw it, if it holds a model at that commit."""
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
    """A file of the cache whose content still has the hash that it is named by (where links tell it)."""
    name = Path(os.readlink(path)).name if path.is_symlink() else ""
    size = path.stat().st_size
    if re.fullmatch(r"[0-9a-f]{64}", name):
        check_hash(path, RemoteFile(size, name, None), subject)
    elif re.fullmatch(r"[0-9a-f]{40}", name):
        check_hash(path, RemoteFile(size, None, name), subject)
    return path


def remember(listing: Listing, revision: str | None, cache_dir: str | Path | None = None) -> None:
    """Note in the cache which commit a branch or tag stood for, so that it can be loaded without the hub."""
    from unknot._files import replacing

    name = revision or "main"
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) and name != listing.commit:
        try:
            with replacing(repo_cache(listing.repo, cache_dir) / "refs" / name) as beside:
                beside.write_text(listing.commit, encoding="utf-8")
        except OSError:  # a cache that one may read and not write
            return
