"""Downloads that resume, verify checksums, and never leave a partial file in place of a complete one."""

import errno
import glob
import hashlib
import http.client
import logging
import os
import re
import shutil
import time
import urllib.error
import urllib.request
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from unknot.files import cache_dir

CHUNK = 1 << 20
ATTEMPTS = 4  # consecutive attempts per mirror without progress
PAUSE = 1.0  # seconds, doubled after every round without progress
TIMEOUT = 30  # seconds without data
TRANSIENT = (408, 425, 429)  # temporary errors; all others below 500 are permanent

logger = logging.getLogger(__name__)


class DownloadError(OSError):
    """Error of a failed download, with instructions for a manual one."""


class _Refused(OSError):
    """Error that another attempt at the same mirror would not fix."""


@dataclass(frozen=True)
class RemoteFile:
    """Published file: its addresses and checksum.

    Args:
        name: name of the file, as published and in the folder ``downloads`` of the cache.
        urls: mirrors, the best first. Your own comes before all others: ``UNKNOT_MIRROR=https://my.server/folder``.
        size: approximate size in bytes, for messages only.
        md5: checksum, if known.
        sha256: checksum, if known; takes precedence over ``md5``.
    """

    name: str
    urls: tuple[str, ...]
    size: int
    md5: str | None = None
    sha256: str | None = None

    @property
    def path(self) -> Path:
        """Path of the file, also for manual downloads."""
        return cache_dir() / "downloads" / self.name

    def fetch(self) -> Path:
        """Download the file unless it exists."""
        own = os.environ.get("UNKNOT_MIRROR")
        urls = (f"{own.rstrip('/')}/{self.name}", *self.urls) if own else self.urls
        return fetch(urls, self.path, self.md5, self.sha256, self.size)


def fetch(
    urls: str | Sequence[str],
    path: Path,
    md5: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
) -> Path:
    """Download a file to ``path`` unless it exists.

    Partial data is stored as ``.part`` and continued by a range request, now or in a later call. Only a file of the
    announced length, and with the right checksum if one is known, is renamed to ``path``. If a mirror fails, the next
    one is tried; after ``ATTEMPTS`` rounds without progress, the error explains the manual download. Of several
    processes, one downloads and the others wait.

    Args:
        urls: mirrors of the same file, tried in turn.
        path: path of the file.
        md5: checksum, if known.
        sha256: checksum, if known; takes precedence over ``md5``.
        size: approximate size in bytes, for the message.
    """
    checksum = ("sha256", sha256) if sha256 else ("md5", md5) if md5 else None
    if path.exists():
        if wrong := _wrong(path, checksum):
            raise DownloadError(f"{path}: not the complete published file: {wrong}. Delete it and run again.")
        return path
    mirrors = [urls] if isinstance(urls, str) else list(urls)
    with one_at_a_time(path):
        problems = {} if path.exists() else _download(mirrors, path, checksum)
    if not path.exists():
        about = f" (about {human_size(size)})" if size else ""
        known = f", check that its {_label(checksum[0])} is {checksum[1]}" if checksum else ""
        raise DownloadError(
            f"Could not download {path.name}{about}: "
            + "; ".join(f"{url}: {problem}" for url, problem in problems.items())
            + f". To download it manually, get it from one of these addresses{known}, put it at {path} and run again."
        )
    return path


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process at a time write ``path``, and remove partial files of killed processes."""
    lock = FileLock(path.parent / ".locks" / f"{path.name}.lock")
    Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.warning("Another process is making %s; waiting for it.", path)
        lock.acquire()
    try:
        for orphan in path.parent.glob(f".{glob.escape(path.name)}.*.part"):  # names used by `replacing`
            orphan.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def human_size(size: float) -> str:
    """Format a number of bytes.

    >>> human_size(267_573_662)
    '268 MB'
    """
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _download(mirrors: list[str], path: Path, checksum: tuple[str, str] | None) -> dict[str, str]:
    """Try the mirrors in turn; return the last problem of each."""
    problems: dict[str, str] = {}
    turns = deque(mirrors)
    fruitless, furthest = 0, 0
    while turns and fruitless < ATTEMPTS * len(turns):
        url = turns[0]
        # Without a checksum, the end of one mirror's file might not fit the beginning of another's.
        source = "" if checksum else f".{zlib.crc32(url.encode()):08x}"
        part = path.with_name(f"{path.name}{source}.part")
        try:
            resumed = _continue(url, part, trust_part=checksum is not None)
            if not (wrong := _wrong(part, checksum)):
                os.replace(part, path)
                for rest in path.parent.glob(f"{glob.escape(path.name)}.*part"):  # partial data of other mirrors
                    rest.unlink(missing_ok=True)
                return {}
            part.unlink()
            raise OSError(wrong) if resumed else _Refused(wrong)
        except urllib.error.HTTPError as error:
            problems[url] = str(error)
            refused = error.code < 500 and error.code not in TRANSIENT
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
                raise DownloadError(
                    f"{part}: cannot be written ({error}). Set UNKNOT_CACHE to move the cache."
                ) from error
            reason = getattr(error, "reason", error)  # of urllib's errors, which say it in brackets
            said = " ".join(str(getattr(reason, "strerror", None) or reason).split()) or type(error).__name__
            problems[url] = f"cannot be reached ({said})" if isinstance(error, urllib.error.URLError) else said
            refused = isinstance(error, _Refused)
        if refused:
            turns.popleft()
            continue
        have = part.stat().st_size if part.exists() else 0
        if have >= furthest + CHUNK:  # progress: try the same mirror again
            fruitless, furthest = 0, have
            continue
        fruitless += 1
        turns.rotate(-1)
        if fruitless % len(turns) == 0 and fruitless < ATTEMPTS * len(turns):
            time.sleep(PAUSE * 2 ** (fruitless // len(turns) - 1))
    return problems


def _continue(url: str, part: Path, trust_part: bool) -> bool:
    """Complete ``part``, and return whether there was partial data to resume from."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "unknot", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        if trust_part and error.headers.get("Content-Range", "").replace(" ", "") == f"bytes*/{have}":
            return True  # complete, only not yet checked
        part.unlink()  # does not match the file that is served now: start again
        raise OSError("the partial file does not match the file on the server") from error
    with response:
        if response.headers.get_content_type() == "text/html":
            raise _Refused("the server sent a web page instead of the file")
        resumed = response.status == 206
        if resumed:
            sent = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if not sent or int(sent[1]) != have:
                part.unlink(missing_ok=True)
                raise OSError("the server sent a different range than requested")
            total: int | None = int(sent[2])
        else:
            have = 0
            length = response.headers["Content-Length"]
            total = int(length) if length else None
        if total is None and not trust_part and not response.chunked:
            raise _Refused("the server did not state the length of the file, and no checksum is known")
        if total is not None and total - have > shutil.disk_usage(part.parent).free:
            raise OSError(errno.ENOSPC, f"{human_size(total - have)} needed, {_free(part.parent)} free")
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(
                desc=f"downloading {part.name.partition('.part')[0]}",
                total=total,
                initial=have,
                unit="B",
                unit_scale=True,
                disable=None,
                leave=False,
            ) as bar,
        ):
            # read1 returns the available data: a read that waits for a whole chunk would lose it when the server
            # stalls.
            while chunk := response.read1(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
    if total is not None and part.stat().st_size != total:
        raise OSError(f"the connection closed after {part.stat().st_size} of {total} bytes")
    return resumed


def _free(folder: Path) -> str:
    return human_size(shutil.disk_usage(folder).free)


def _wrong(path: Path, checksum: tuple[str, str] | None) -> str | None:
    """Return the problem of a file, or None."""
    if checksum is None:
        return None
    kind, expected = checksum
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    actual = digest.hexdigest()
    return None if actual == expected else f"it has {_label(kind)} {actual}, expected {expected}"


def _label(kind: str) -> str:
    return {"md5": "MD5", "sha256": "SHA-256"}[kind]
