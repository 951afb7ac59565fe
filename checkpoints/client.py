"""Requests to a hub: its address and listing, and downloads verified by hash.

Deadlines are short, and error messages say what to do.

Login, session, headers, commits and the layout of the cache are those of ``huggingface_hub``. Bytes are read here,
because ``hf_hub_download`` of version 2.4.0 accepts whatever a hostile or broken hub sends. It checks the size at the
end and no hash: in our tests it returned wrong bytes and a modified cached file, wrote 200 MB where 10 bytes were
announced, unpacked 0.1 MB of gzip to 100 MB, waited for a hub that sends one byte every 1.5 seconds, and wrote outside
the cache for the ETag ``../../../../escaped``. Hashing afterwards would not undo a write.

``huggingface_hub`` is imported when needed: offline listing must not wait for it. Settings are read from the
environment at every call, whereas the client reads most of them once.
"""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from unknot.checkpoints import cache
from unknot.checkpoints.cache import Announced
from unknot.checkpoints.card import plain
from unknot.checkpoints.errors import (
    AccessError,
    ConflictError,
    FullError,
    IntegrityError,
    MissingError,
    OfflineError,
    TooLargeError,
    UnreachableError,
    UnsafeCheckpointError,
)
from unknot.files import replacing

T = TypeVar("T")
DEADLINE = 5.0
"""Seconds until a hub must respond to a query; downloads and uploads have no limit."""

LIMITS = {
    "config.json": 1 << 20,
    "README.md": 1 << 20,
    "training.yaml": 1 << 20,
    "training.csv": 20 << 20,
    "model.safetensors": 2 << 30,
}
"""Files that are read from a repository, in addition to pictures, with the maximum size of each in bytes."""
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
MAX_ANSWER = 32 << 20
"""Maximum bytes of a response of a hub that is not a file."""
MAX_REMOTE_FILES = 10_000
MAX_PICTURE = 10 << 20
MAX_PIXELS = 40_000_000
PICTURE = re.compile(r"pictures/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.png")


def endpoint_of(endpoint: str | None = None) -> str:
    """Return the address of the hub: the argument, ``HF_ENDPOINT``, or the public one.

    >>> endpoint_of("http://127.0.0.1:8000/")
    'http://127.0.0.1:8000'
    """
    address = endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not re.match(r"https?://[^/\s]", address):
        raise ValueError(f"{address!r} is not a hub's address; HF_ENDPOINT looks like http://127.0.0.1:8000.")
    return address.rstrip("/")


def is_offline() -> bool:
    """Return whether ``HF_HUB_OFFLINE`` or ``TRANSFORMERS_OFFLINE`` forbids requests to any hub."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


@dataclass(frozen=True)
class Listing:
    """One commit of a repository as announced by the hub, with the size and hash of each file."""

    repo: str
    commit: str
    private: bool
    files: dict[str, Announced]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    modified: str | None = None


def ask(
    address: str,
    subject: str,
    question: Callable[[], T],
    deadline: float | None = DEADLINE,
    token: str | bool | None = None,
) -> T:
    """Send a request to a hub within a deadline, and convert errors of its client to ours.

    Args:
        address: address of the hub, for messages.
        subject: subject of the request, for messages.
        question: function that sends the request.
        deadline: seconds to wait, or None for requests that may take long. The client itself retries for 23 seconds,
            and name resolution may block even longer.
        token: token of the request, for messages; None is the client's own.
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
    """Return our error for one of the client; None for a bug or an error of the user."""
    from huggingface_hub import errors, get_token

    known = bool(get_token() if token is None else token)
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    said = plain(getattr(error, "server_message", None) or error, 300)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return OfflineError(f"{subject}: offline mode is on. Unset HF_HUB_OFFLINE to ask {address}.")
    if isinstance(error, errors.GatedRepoError):
        return AccessError(f"{subject}: {address} requires that its terms are accepted first. Accept them on its page.")
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
    if status == 507:
        return FullError(f"{subject}: {address} has no room for it ({said}).")
    if "xet-write-token" in str(error):
        return ValueError(f"{subject}: {address} takes files of this size without xet: set HF_HUB_DISABLE_XET=1.")
    if isinstance(error, UnreachableError | TooLargeError | IntegrityError):
        return None
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
    """Look up one commit, and its files with their sizes and hashes."""
    address = endpoint_of(endpoint)
    subject = f"{repo}@{revision}" if revision else repo
    url = f"{address}/api/models/{repo}" + (f"/revision/{quote(revision, safe='')}" if revision else "")
    answer, _ = ask_json(address, subject, url, token, {"blobs": "true"})
    if not isinstance(answer, dict) or not re.fullmatch(r"[0-9a-f]{40}", str(answer.get("sha"))):
        raise UnreachableError(
            f"{subject}: {address} did not return a valid Hub response (no commit hash). Check HF_ENDPOINT."
        )
    siblings = answer.get("siblings")
    files: dict[str, Announced] = {}
    for entry in siblings[:MAX_REMOTE_FILES] if isinstance(siblings, list) else []:
        name, size, blob = (
            (entry.get(key) for key in ("rfilename", "size", "blobId")) if isinstance(entry, dict) else 3 * [0]
        )
        if isinstance(name, str):
            lfs = entry["lfs"].get("sha256") if isinstance(entry.get("lfs"), dict) else None
            sha256 = re.fullmatch(r"[0-9a-f]{64}", str(lfs))
            digest = sha256 or re.fullmatch(r"[0-9a-f]{40}", str(blob))
            files[name] = (size if isinstance(size, int) else 0, digest[0] if digest else "")
    card, modified = answer.get("cardData"), answer.get("lastModified")
    return Listing(
        repo,
        answer["sha"],
        bool(answer.get("private")),
        files,
        card if isinstance(card, dict) else {},
        modified[:40] if isinstance(modified, str) else None,
    )


def ask_json(
    address: str, subject: str, url: str, token: str | bool | None, query: dict[str, str] | None = None
) -> tuple[Any, str]:
    """Return the JSON response of a hub, within our deadline and size limit, and the address of its next page."""

    def question() -> tuple[Any, str]:
        from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

        content, until = bytearray(), time.monotonic() + DEADLINE
        with _get(url, token, {"params": query}) as response:
            for chunk in response.iter_raw():
                content += chunk
                if len(content) > MAX_ANSWER:
                    raise UnreachableError(f"{subject}: {address} answers with more than {MAX_ANSWER >> 20} MB.")
                if time.monotonic() > until:
                    raise TimeoutError(f"no whole answer within {DEADLINE:g} s")
            whole = type(response)(
                response.status_code, headers=response.headers, content=bytes(content), request=response.request
            )
        hf_raise_for_status(whole)
        try:
            return json.loads(content), str(whole.links.get("next", {}).get("url", ""))
        except (ValueError, RecursionError):
            raise UnreachableError(
                f"{subject}: {address} did not return a valid Hub response (no JSON). Check HF_ENDPOINT."
            ) from None

    return ask(address, subject, question, DEADLINE + 1, token=token)


@contextmanager
def _get(url: str, token: str | bool | None, options: dict[str, Any]) -> Iterator[Any]:
    """Send a GET request, following redirects; only the first address receives the token."""
    from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]

    headers = {**build_hf_headers(token=token), "accept-encoding": "identity", **options.pop("headers", {})}
    first = urlsplit(url)
    for _ in range(5):
        if urlsplit(url)[:2] != first[:2]:
            headers.pop("authorization", None)
        with get_session().stream(
            "GET", url, headers=headers, timeout=DEADLINE, follow_redirects=False, **options
        ) as response:
            if not 300 <= response.status_code < 400 or "location" not in response.headers:
                yield response
                return
            url, options = urljoin(url, response.headers["location"]), {}
            if urlsplit(url).scheme not in ("http", "https"):
                break
    raise ConnectionError("too many redirects")


def limit_of(name: str, max_bytes: int | None = None) -> int:
    """Return the maximum size of a file in bytes; 0 for files that are never read."""
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
    """Download a file of a commit to the cache, checking its size limit and announced hash."""
    subject = f"{listing.repo}@{listing.commit[:7]}/{plain(name)}"
    if name not in listing.files:
        pickles = sorted(plain(file) for file in listing.files if file.endswith(PICKLES))
        if name == "model.safetensors" and pickles:
            raise UnsafeCheckpointError(
                f"{listing.repo}@{listing.commit[:7]} has no {name} (found: {', '.join(pickles[:3])}). Pickle "
                "files can run code and are not loaded; ask the author to publish safetensors."
            )
        raise MissingError(f"{subject}: no such file; this repository does not hold a model of the zoo.")
    address, announced, limit = endpoint_of(endpoint), listing.files[name], limit_of(name, max_bytes)
    size, digest = announced
    if not limit:
        raise MissingError(f"{subject}: not a file that is read from a repository.")
    if size > limit:
        hint = " Pass a larger max_bytes if you trust it." if name == "model.safetensors" else ""
        raise TooLargeError(f"{subject}: {size:,} bytes, above the limit of {limit:,}.{hint}")
    if not digest:
        raise IntegrityError(f"{subject}: the hub announced no hash for it, so it cannot be checked.")
    path, blob = cache.place(listing, name, cache_dir)
    for known in (path, blob):
        if known.is_file():
            try:
                cache.check_file(known, announced, subject)
            except IntegrityError:
                continue  # removed, and downloaded again
            if known is blob:
                cache.link(path, blob)
            return path
    url = f"{address}/{listing.repo}/resolve/{listing.commit}/{quote(name)}"

    def question() -> None:
        with replacing(blob) as beside:
            _fetch(url, token, beside, announced, f"{subject}: {address}", subject)

    # The deadline applies to small files too; only weights may take longer.
    ask(address, subject, question, None if size > 1 << 20 else 2 * DEADLINE, token)
    cache.link(path, blob)
    return path


def _fetch(url: str, token: str | bool | None, path: Path, announced: Announced, sender: str, subject: str) -> None:
    """Write a download to a file up to its announced size, hashing it on the way; resume a broken connection."""
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    size, digest = 0, cache.hasher_of(announced)
    with path.open("wb") as target:
        for attempt in range(5):
            before = size
            try:
                with _get(url, token, {"headers": {"range": f"bytes={size}-"} if size else {}}) as response:
                    if response.status_code >= 400:
                        text = b"".join(chunk for chunk, _ in zip(response.iter_raw(), range(1), strict=False))
                        head = {key: value for key, value in response.headers.items() if key.startswith("x-")}
                        hf_raise_for_status(
                            type(response)(response.status_code, headers=head, content=text, request=response.request)
                        )
                    if response.status_code != 206 and size:  # start again
                        size, digest = 0, cache.hasher_of(announced)
                        target.seek(0)
                        target.truncate()
                    for chunk in response.iter_raw(1 << 20):
                        size += len(chunk)
                        if size > announced[0]:
                            raise IntegrityError(f"{sender} sends more than the {announced[0]:,} bytes it announced.")
                        digest.update(chunk)
                        target.write(chunk)
                break
            except Exception as error:
                broken = type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")
                if not broken or hasattr(error, "response") or attempt == 4 or (attempt and size == before):
                    raise
    if size < announced[0]:
        raise IntegrityError(f"{sender} sent less or more than it announced ({size:,} of {announced[0]:,} bytes).")
    cache.check(size, digest.hexdigest(), announced, subject)
