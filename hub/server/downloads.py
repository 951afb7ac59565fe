"""The hub's handlers for the files of a commit: their names, sizes and hashes, and their contents."""

import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unknot.hub.server.access import Access
from unknot.hub.server.commit_log import Damaged
from unknot.hub.server.storage import Missing, Store
from unknot.hub.web.serving import Answer, Content, body_bytes, body_json, field, refusal

MODEL = "/api/models/{namespace}/{name}"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"


class Downloads:
    """Handlers for reading files.

    Args:
        store: where the repositories are.
        access: who may see which.
    """

    def __init__(self, store: Store, access: Access) -> None:
        self.store, self.access = store, access

    def tree(self, request: Request) -> Response:
        """``GET /api/models/{id}/tree/{rev}/{path}``."""
        _, commit = self.store.snapshot(self.access.readable(request), request.path_params["revision"])
        within = request.path_params.get("path", "").strip("/")
        recursive = request.query_params.get("recursive", "").lower() == "true"
        rows: dict[str, Any] = {}
        for path, file in sorted(commit.files.items()):
            if within and not path.startswith(f"{within}/"):
                continue
            parts = path[len(within) + 1 if within else 0 :].split("/")
            for depth in range(1, len(parts)):
                if depth == 1 or recursive:
                    folder = "/".join(([within] if within else []) + parts[:depth])
                    rows.setdefault(folder, {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0})
            if len(parts) == 1 or recursive:
                rows[path] = _entry(path, file)
        if within and not rows:
            raise Missing("EntryNotFound", "There is no such folder.")
        return Answer(list(rows.values()))

    async def paths(self, request: Request) -> Response:
        """``POST /api/models/{id}/paths-info/{rev}``."""
        repo_id = self.access.readable(request)
        _, commit = await run_in_threadpool(self.store.snapshot, repo_id, request.path_params["revision"])
        if "json" in request.headers.get("content-type", ""):
            wanted = field(await body_json(request), "paths", list)
        else:
            wanted = parse_qs((await body_bytes(request)).decode()).get("paths", [])
        return Answer(
            [_entry(path, commit.files[path]) for path in wanted if isinstance(path, str) and path in commit.files]
        )

    def resolve(self, request: Request) -> Response:
        """``HEAD`` and ``GET /{id}/resolve/{rev}/{path}``; ranges are Starlette's."""
        _, commit = self.store.snapshot(self.access.readable(request), request.path_params["revision"])
        path = request.path_params["path"]
        headers = {"X-Repo-Commit": commit.id, "X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"}
        if path not in commit.files:
            return refusal(404, f"There is no {path[:100]!r} at this revision.", headers, code="EntryNotFound")
        file = commit.files[path]
        headers["ETag"] = f'"{file["sha1"] if file["text"] else file["sha256"]}"'
        if not file["text"]:
            headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(file["size"])}
        # One type for everything: what a stranger uploaded must never be a page of this origin.
        content = self.store.path(file)
        if not content.is_file():
            raise Damaged(f"{request.path_params['namespace']}/{request.path_params['name']}: {path} is lost.")
        return Content(content, headers=headers, media_type="application/octet-stream")

    def routes(self) -> Iterator[Route]:
        """Paths of the Hub."""
        yield Route(f"{MODEL}/tree/{{revision}}", self.tree)
        yield Route(f"{MODEL}/tree/{{revision}}/{{path:path}}", self.tree)
        yield Route(f"{MODEL}/paths-info/{{revision:path}}", self.paths, methods=["POST"])
        yield Route("/{namespace}/{name}/resolve/{revision}/{path:path}", self.resolve)


def hashes(file: dict[str, Any]) -> dict[str, Any]:
    """A file's hashes in the words of the Hub: git's for text, and those of a pointer and its content for others."""
    if file["text"]:
        return {"blobId": file["sha1"]}
    pointer = POINTER.format(**file).encode()
    lfs = {"sha256": file["sha256"], "size": file["size"], "pointerSize": len(pointer)}
    return {"blobId": hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest(), "lfs": lfs}


def _entry(path: str, file: dict[str, Any]) -> dict[str, Any]:
    found = hashes(file)
    entry = {"type": "file", "path": path, "oid": found["blobId"], "size": file["size"]}
    if "lfs" in found:
        entry["lfs"] = {"oid": file["sha256"], "size": file["size"], "pointerSize": found["lfs"]["pointerSize"]}
    return entry
