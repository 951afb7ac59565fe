"""Request handlers for uploads: negotiation, large files, and the commit itself."""

import hmac
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unknot.checkpoints.card import read_card
from unknot.checkpoints.names import HASH
from unknot.hub.server.access import Access
from unknot.hub.server.commit_body import CommitReader
from unknot.hub.server.downloads import MODEL, REVISION
from unknot.hub.server.file_names import check_file_name
from unknot.hub.server.incoming import git_hash
from unknot.hub.server.quota import OverQuota
from unknot.hub.server.storage import Missing, Store
from unknot.hub.web.serving import Answer, body_json, chunks, drain, field

INLINE = 1 << 30  # files up to this size are part of the commit: clients with xet do not support another way here
CARD = 1 << 16  # bytes of a card that is validated without a token
PIECE = 1 << 20  # bytes of an upload passed to a thread at a time; more would not fit the CPU cache


class Uploads:
    """Request handlers for writing. Contents are always hashed here, not by the client.

    Args:
        store: store of the contents.
        access: checks of rights.
        max_file: maximum size of a file in bytes.
    """

    def __init__(self, store: Store, access: Access, max_file: int) -> None:
        self.store, self.access, self.max_file = store, access, max_file
        self._checking = anyio.Lock()
        self._secret = secrets.token_bytes(32)  # signs the addresses of uploads, which carry no token

    async def validate(self, request: Request) -> Response:
        """``POST /api/validate-yaml``: one at a time, as a card can take seconds, and clients send no token."""
        text = str((await body_json(request)).get("content", "")).lstrip()
        if self.access.user(request) is None and len(text) > CARD:
            raise HTTPException(413, f"A card of more than {CARD >> 10} kB is checked for users of this hub only.")
        async with self._checking:
            card = await run_in_threadpool(read_card, text)
        problem = card.problem
        if not isinstance(card.metadata.get("model-index", []), list):
            problem = "model-index must be a list"
        errors = [{"message": f"README.md: {problem}"}] if problem else []
        warnings = [] if card.metadata or problem else [{"message": "empty or missing yaml metadata in repo card"}]
        return Answer({"errors": errors, "warnings": warnings}, status_code=400 if errors else 200)

    async def preupload(self, request: Request) -> Response:
        """``POST /api/models/{id}/preupload/{rev}``: how to send each file, and which files exist already."""
        _, repo_id = self.access.writable(request)
        body = await body_json(request)
        return Answer({"files": await run_in_threadpool(self._modes, repo_id, request.path_params["revision"], body)})

    def _modes(self, repo_id: str, revision: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        _, commit = self.store.snapshot(repo_id, revision)
        answers = []
        sizes: dict[str, int] = {}
        for file in field(body, "files", list):
            path, size = check_file_name(field(file, "path", str)), field(file, "size", int)
            self._check_size(path, size)
            known, mode = commit.files.get(path, {}), "regular" if size <= INLINE else "lfs"
            # Clients skip existing files; a damaged file does not count as existing, so that an upload repairs it.
            here = known.get("size") == size and self.store.contents.holds(known["sha256"], size)
            oid = known["sha256"] if here else None
            sizes |= {} if here else {path: size}
            if here and mode == "regular":
                oid = known["sha1"] or git_hash(self.store.path(known), size)
            answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self.store.quota.check(namespace_of(repo_id), sizes)  # before any upload
        return answers

    def _check_size(self, path: str, size: int) -> None:
        if size > self.max_file:
            raise HTTPException(413, f"{path} has {size:,} bytes; the limit of this hub is {self.max_file:,}.")

    async def batch(self, request: Request) -> Response:
        """``POST /{id}.git/info/lfs/objects/batch``: addresses for large files."""
        namespace = namespace_of(self.access.writable(request)[1])
        body = await body_json(request)
        if body.get("operation") != "upload":
            raise HTTPException(400, "Only uploads are supported here; download with /resolve/.")
        answers: list[dict[str, Any]] = []
        for entry in field(body, "objects", list):
            oid, size = field(entry, "oid", str), field(entry, "size", int)
            self._check_size("The file", size)
            answers.append({"oid": oid, "size": size})
            if not await run_in_threadpool(self.store.contents.holds, oid, size):
                url = f"{request.base_url}lfs/{namespace}/{oid}/{size}/{self._sign(namespace, oid, size)}"
                answers[-1]["actions"] = {"upload": {"href": url}}
        missing = {answer["oid"]: answer["size"] for answer in answers if "actions" in answer}
        self.store.quota.check(namespace, missing)
        return Answer({"transfer": "basic", "objects": answers})

    def _sign(self, namespace: str, oid: str, size: int) -> str:
        return hmac.new(self._secret, f"{namespace} {oid} {size}".encode(), "sha256").hexdigest()

    async def put(self, request: Request) -> Response:
        """``PUT /lfs/...``: one large file, at an address that this server issued."""
        namespace, oid, size, given = (request.path_params[name] for name in ("namespace", "oid", "size", "signature"))
        if not HASH.fullmatch(oid) or not hmac.compare_digest(self._sign(namespace, oid, size), given):
            await drain(chunks(request))
            raise HTTPException(403, "This upload address is invalid or has expired.")
        self.store.quota.check(namespace, {oid: size})
        with self.store.contents.incoming() as incoming:
            await self._take(request, incoming.write, size)
            await run_in_threadpool(incoming.keep, oid, size)
        self.store.contents.uploaded(namespace, oid, size)
        return Answer({})

    async def commit(self, request: Request) -> Response:
        """``POST /api/models/{id}/commit/{rev}``."""
        try:
            user, repo_id = self.access.writable(request)
        except (HTTPException, Missing):
            await drain(chunks(request))
            raise
        if request.query_params.get("create_pr") in ("1", "true"):
            await drain(chunks(request))
            raise HTTPException(400, "This hub has no pull requests; commit to a branch.")
        with CommitReader(self.store, self.max_file, namespace_of(repo_id)) as reader:
            await self._take(request, reader.feed, self.max_file * 4 // 3 + (512 << 20))
            oid = await run_in_threadpool(reader.finish, repo_id, request.path_params["revision"], user)
        url = f"{request.base_url}{repo_id}/commit/{oid}"
        return Answer({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    async def _take(self, request: Request, use: Callable[[bytes], None], limit: int) -> None:
        """Pass on the body as it arrives; a rejected body is read for a while, so that its sender gets the response."""
        parts, size, pending = chunks(request), 0, bytearray()
        try:
            async for chunk in parts:
                pending += chunk
                size += len(chunk)
                if size > limit:
                    raise HTTPException(413, f"The body of this request is longer than {limit:,} bytes.")
                if len(pending) >= PIECE:
                    await run_in_threadpool(use, bytes(pending))
                    pending.clear()
            await run_in_threadpool(use, bytes(pending))
        except (HTTPException, ValueError, OSError, OverQuota):
            await drain(parts)
            raise

    def no_xet(self, request: Request) -> Response:
        """Reject clients that would use the xet protocol for large files."""
        raise HTTPException(
            404, f"This hub has no xet. For files above {INLINE >> 20} MB set HF_HUB_DISABLE_XET=1 and upload again."
        )

    def routes(self) -> Iterator[Route]:
        """Return the Hub's routes."""
        yield Route("/api/validate-yaml", self.validate, methods=["POST"])
        yield Route(f"{MODEL}/preupload/{REVISION}", self.preupload, methods=["POST"])
        yield Route(f"{MODEL}/commit/{REVISION}", self.commit, methods=["POST"])
        yield Route(f"{MODEL}/xet-{{kind}}-token/{REVISION}", self.no_xet)
        yield Route("/{namespace}/{name}.git/info/lfs/objects/batch", self.batch, methods=["POST"])
        yield Route("/lfs/{namespace}/{oid}/{size:int}/{signature}", self.put, methods=["PUT"])


def namespace_of(repo_id: str) -> str:
    """Return the namespace of a repository."""
    return repo_id.partition("/")[0]
