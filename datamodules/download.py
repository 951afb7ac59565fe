"""Downloads that resume, are checked, and never leave a partial file where a whole one is expected."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from tqdm.auto import tqdm

CHUNK = 1 << 20
ATTEMPTS = 3
TIMEOUT = 30  # seconds without a byte


class DownloadError(OSError):
    """A file could not be fetched; the message says how to put it in place by hand."""


def fetch(url: str, path: Path, md5: str | None = None) -> Path:
    """Download ``url`` to ``path`` unless it is there already.

    What arrives is kept as ``path.part`` and continued by a range request, now or by a later call; only a file of
    the announced length, and of the right MD5 where one is known, is renamed to ``path``.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            _continue(url, part)
        except urllib.error.HTTPError as error:
            problem = error
            if error.code < 500:  # asking again will not help
                break
        except (OSError, http.client.HTTPException) as error:
            problem = error
        else:
            if md5 is None or _md5(part) == md5:
                os.replace(part, path)
                return path
            problem = ValueError(f"the downloaded file has MD5 {_md5(part)}, expected {md5}")
            part.unlink()
    expected = f" (MD5 {md5})" if md5 else ""
    raise DownloadError(
        f"Could not download {url}: {problem}. To do it by hand, put the file{expected} at {path} and run again."
    )


def _continue(url: str, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "unknot", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the part is not a beginning of what is served now: start over
            part.unlink(missing_ok=True)
            raise OSError("the partial file did not fit what the server offers") from error
        raise
    with response:
        resumed = response.status == 206
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink(missing_ok=True)
            raise OSError("the server sent another range than it was asked for")
        have = have if resumed else 0
        length = response.headers["Content-Length"]
        total = have + int(length) if length else None
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(
                desc=f"downloading {part.stem}", total=total, initial=have, unit="B", unit_scale=True, disable=None
            ) as bar,
        ):
            while chunk := response.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
    if total is not None and part.stat().st_size != total:
        raise OSError(f"the connection closed after {part.stat().st_size} of {total} bytes")


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
