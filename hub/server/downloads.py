"""Request handlers for the files of a commit: their names, sizes, hashes and contents."""

import hashlib
import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unknot.hub.server.access import Access
from unknot.hub.server.commit_log import Commit, Damaged
from unknot.hub.server.storage import Missing, Store
from unknot.hub.web.serving import Answer, Content, body_bytes, body_json, field, refusal

MODEL = "/api/models/{namespace}/{name}"
REVISION = "{revision:part}"
LAST = 100_000
"""Maximum number of entries of commits searched for the last change of each file: half a second of processor time."""
HELD = "\0"
"""Placeholder for an encoded slash in a path, which stays part of a segment until the path is split."""
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"


class Part(Convertor[str]):
    """Path segment that may contain an encoded slash: ``feature%2Fx``."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the name."""
        return value.replace(HELD, "/")

    def to_string(self, value: str) -> str:
        """Return the path segment."""
        return value.replace("/", HELD)


class Rest(Part):
    """Rest of a path."""

    regex = ".*"


register_url_convertor("part", Part())
register_url_convertor("rest", Rest())


class Downloads:
    """Handlers for reading files.

    Args:
        store: store of the repositories.
        access: checks of rights.
    """

    def __init__(self, store: Store, access: Access) -> None:
        self.store, self.access = store, access

    def tree(self, request: Request) -> Response:
        """``GET /api/models/{id}/tree/{rev}/{path}``."""
        repo_id = self.access.readable(request)
        _, commit = self.store.snapshot(repo_id, request.path_params["revision"])
        within, query = request.path_params.get("path", "").strip("/"), request.query_params
        recursive, expand = (query.get(name, "").lower() in ("true", "1") for name in ("recursive", "expand"))
        entries = entries_of(commit, within)
        if within and not entries:
            raise Missing("EntryNotFound", "There is no such folder.")
        first = len(within) + 1 if within else 0
        shown = [entry for path, entry in entries.items() if recursive or "/" not in path[first:]]
        return Answer(self._with_last(repo_id, commit, shown) if expand else shown)

    async def paths(self, request: Request) -> Response:
        """``POST /api/models/{id}/paths-info/{rev}``."""
        repo_id = self.access.readable(request)
        if "json" in request.headers.get("content-type", ""):
            body = await body_json(request)
            names, expand = field(body, "paths", list), body.get("expand") is True
        else:
            form = parse_qs((await body_bytes(request)).decode())
            names, expand = form.get("paths", []), form.get("expand", [""])[0].lower() in ("true", "1")
        return Answer(await run_in_threadpool(self._about, repo_id, request.path_params["revision"], names, expand))

    def _about(self, repo_id: str, revision: str, names: list[Any], expand: bool) -> list[dict[str, Any]]:
        _, commit = self.store.snapshot(repo_id, revision)
        entries = entries_of(commit)
        shown = [entries[name] for name in names if isinstance(name, str) and name in entries]
        return self._with_last(repo_id, commit, shown) if expand else shown

    def _with_last(self, repo_id: str, commit: Commit, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return entries with the last commit that changed each, as far as it can be found."""
        changed: dict[str, dict[str, str]] = {}
        pending = {entry["path"]: entry["oid"] for entry in entries}
        left, before = LAST, commit
        for older in chain(islice(self.store.history(repo_id, commit.id), 1, None), [None]):
            left -= len(older.files) + 10 if older else 0
            if not pending or left < 0 or (older is None and before.parent is not None):
                break
            known = entries_of(older) if older else {}
            for path, oid in list(pending.items()):
                if known.get(path, {}).get("oid") != oid:
                    changed[path] = {"id": before.id, "title": before.summary, "date": before.date}
                    del pending[path]
            before = older or before
        return [entry | {"lastCommit": changed.get(entry["path"]), "securityFileStatus": None} for entry in entries]

    def resolve(self, request: Request) -> Response:
        """``HEAD`` and ``GET /{id}/resolve/{rev}/{path}``; ranges are handled by Starlette."""
        repo_id, path = self.access.readable(request), request.path_params["path"]
        _, commit = self.store.snapshot(repo_id, request.path_params["revision"])
        headers = {"X-Repo-Commit": commit.id, "X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"}
        if path not in commit.files:
            return refusal(404, f"There is no {path[:100]!r} at this revision.", headers, code="EntryNotFound")
        file = commit.files[path]
        headers["ETag"] = f'"{file["sha1"] if file["text"] else file["sha256"]}"'
        if not file["text"]:
            headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(file["size"])}
        if headers["ETag"] in re.split(r"\s*,\s*", request.headers.get("if-none-match", "").replace("W/", "")):
            return Response(status_code=304, headers=headers)
        # One type for everything: an untrusted upload must never become a page of this origin.
        content = self.store.path(file)
        if not content.is_file():
            raise Damaged(f"{repo_id}: {path} is lost.")
        return Content(content, headers=headers, media_type="application/octet-stream")

    def routes(self) -> Iterator[Route]:
        """Return the Hub's routes."""
        yield Route(f"{MODEL}/tree/{REVISION}", self.tree)
        yield Route(f"{MODEL}/tree/{REVISION}/{{path:rest}}", self.tree)
        yield Route(f"{MODEL}/paths-info/{REVISION}", self.paths, methods=["POST"])
        yield Route(f"/{{namespace}}/{{name}}/resolve/{REVISION}/{{path:rest}}", self.resolve)


def hashes(file: dict[str, Any]) -> dict[str, Any]:
    """Return a file's hashes in the Hub's format: git's for text, and those of pointer and content for others."""
    if file["text"]:
        return {"blobId": file["sha1"]}
    pointer = POINTER.format(**file).encode()
    lfs = {"sha256": file["sha256"], "size": file["size"], "pointerSize": len(pointer)}
    return {"blobId": hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest(), "lfs": lfs}


def entries_of(commit: Commit, within: str = "") -> dict[str, dict[str, Any]]:
    """Return files and folders of a commit by path, each folder before its content, with git's names for both."""
    entries: dict[str, dict[str, Any]] = {}
    folders: dict[str, list[tuple[str, bytes, str]]] = {"": []}
    for path, file in sorted(commit.files.items()):
        if within and not path.startswith(f"{within}/"):
            continue
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder not in folders:
                folders[folder] = []
                entries[folder] = {"type": "directory", "path": folder, "oid": "", "size": 0}
        entries[path] = _entry(path, file)
    for path in sorted(entries, key=lambda path: -path.count("/")):  # a folder hashes its content
        entry, (above, _, name) = entries[path], path.rpartition("/")
        if entry["type"] == "directory":
            # git sorts a folder as if its name ended in a slash
            rows = sorted(folders[path], key=lambda row: row[0] + "/" * (row[1] == b"40000"))
            tree = b"".join(b"%s %s\0" % (mode, name.encode()) + bytes.fromhex(oid) for name, mode, oid in rows)
            entry["oid"] = hashlib.sha1(b"tree %d\0" % len(tree) + tree).hexdigest()
        mode = b"40000" if entry["type"] == "directory" else b"100644"
        folders.setdefault(above, []).append((name, mode, entry["oid"]))
    return {path: entry for path, entry in entries.items() if not within or path.startswith(f"{within}/")}


def _entry(path: str, file: dict[str, Any]) -> dict[str, Any]:
    named = hashes(file)
    entry = {"type": "file", "path": path, "oid": named["blobId"], "size": file["size"]}
    if "lfs" in named:
        entry["lfs"] = {"oid": file["sha256"], "size": file["size"], "pointerSize": named["lfs"]["pointerSize"]}
    return entry
