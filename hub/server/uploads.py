"""The hub's handlers for what comes in: how files are to be sent, large ones beside, and the commit itself."""

import hmac
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unknot.hub.cards import read_card
from unknot.hub.naming import HASH, check_file_name
from unknot.hub.server.access import Access
from unknot.hub.server.commit_body import CommitReader
from unknot.hub.server.downloads import MODEL
from unknot.hub.server.incoming import git_hash
from unknot.hub.server.storage import Missing, Store
from unknot.hub.web.serving import Answer, body_json, chunks, drain, field

INLINE = 1 << 30  # files up to this size travel inside the commit: clients with xet know no other way to us
PIECE = 1 << 20  # bytes of an upload that are handed to a thread at a time; larger ones leave the cache


class Uploads:
    """Handlers for writing. Contents are hashed here, whatever the client says.

    Args:
        store: where contents go.
        access: who may write.
        max_file: bytes that a file may have.
    """

    def __init__(self, store: Store, access: Access, max_file: int) -> None:
        self.store, self.access, self.max_file = store, access, max_file
        self._secret = secrets.token_bytes(32)  # signs the addresses of uploads, which carry no token

    async def validate(self, request: Request) -> Response:
        """``POST /api/validate-yaml``."""
        text = str((await body_json(request)).get("content", ""))
        card = await run_in_threadpool(read_card, text)
        errors = [{"message": f"README.md: {card.problem}"}] if card.problem else []
        return Answer({"errors": errors, "warnings": []}, status_code=400 if errors else 200)

    async def preupload(self, request: Request) -> Response:
        """``POST /api/models/{id}/preupload/{rev}``: how each file is to be sent, and what is here already."""
        self.access.writer(request)
        repo_id = self.access.readable(request)
        wanted = await body_json(request)
        return Answer({"files": await run_in_threadpool(self._modes, repo_id, request.path_params["revision"], wanted)})

    def _modes(self, repo_id: str, revision: str, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        _, commit = self.store.snapshot(repo_id, revision)
        answers = []
        for file in field(wanted, "files", list):
            path, size = check_file_name(field(file, "path", str)), field(file, "size", int)
            self._check_size(path, size)
            known, mode = commit.files.get(path, {}), "regular" if size <= INLINE else "lfs"
            # A client leaves out what is here; what the disk has spoilt is not, so that an upload mends it.
            here = known.get("size") == size and self.store.holds(known["sha256"], size)
            oid = known["sha256"] if here else None
            if here and mode == "regular":
                oid = known["sha1"] or git_hash(self.store.path(known), size)
            answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return answers

    def _check_size(self, path: str, size: int) -> None:
        if size > self.max_file:
            raise HTTPException(413, f"{path} has {size:,} bytes; this hub takes files of up to {self.max_file:,}.")

    async def batch(self, request: Request) -> Response:
        """``POST /{id}.git/info/lfs/objects/batch``: where large files go."""
        self.access.writer(request)
        self.access.readable(request)
        wanted = await body_json(request)
        if wanted.get("operation") != "upload":
            raise HTTPException(400, "Only uploads are negotiated here; download by /resolve/.")
        answers: list[dict[str, Any]] = []
        for one in field(wanted, "objects", list):
            oid, size = field(one, "oid", str), field(one, "size", int)
            self._check_size("The file", size)
            answers.append({"oid": oid, "size": size})
            if not await run_in_threadpool(self.store.holds, oid, size):
                url = f"{request.base_url}lfs/{oid}/{size}/{self._sign(oid, size)}"
                answers[-1]["actions"] = {"upload": {"href": url}}
        return Answer({"transfer": "basic", "objects": answers})

    def _sign(self, oid: str, size: int) -> str:
        return hmac.new(self._secret, f"{oid} {size}".encode(), "sha256").hexdigest()

    async def put(self, request: Request) -> Response:
        """``PUT /lfs/...``: one large file, on an address that we gave out."""
        oid, size = request.path_params["oid"], request.path_params["size"]
        if not HASH.fullmatch(oid) or not hmac.compare_digest(self._sign(oid, size), request.path_params["signature"]):
            await drain(chunks(request))
            raise HTTPException(403, "This address for an upload is not, or no longer, valid.")
        with self.store.incoming() as incoming:
            await self._take(request, incoming.write, size)
            await run_in_threadpool(incoming.keep, oid, size)
        return Answer({})

    async def commit(self, request: Request) -> Response:
        """``POST /api/models/{id}/commit/{rev}``."""
        try:
            user = self.access.writer(request)
            repo_id = self.access.readable(request)
        except (HTTPException, Missing):
            await drain(chunks(request))
            raise
        if request.query_params.get("create_pr") in ("1", "true"):
            await drain(chunks(request))
            raise HTTPException(400, "This hub has no pull requests; commit to a branch.")
        with CommitReader(self.store, self.max_file) as reader:
            await self._take(request, reader.feed, self.max_file * 4 // 3 + (512 << 20))
            oid = await run_in_threadpool(reader.finish, repo_id, request.path_params["revision"], user)
        url = f"{request.base_url}{repo_id}/commit/{oid}"
        return Answer({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    async def _take(self, request: Request, use: Callable[[bytes], None], limit: int) -> None:
        """Hand the body on as it arrives; what is refused is read on for a while, so that its sender hears why."""
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
        except (HTTPException, ValueError, OSError):
            await drain(parts)
            raise

    def no_xet(self, request: Request) -> Response:
        """What clients ask for whose large files would go by another protocol."""
        raise HTTPException(
            404, f"This hub has no xet. For files above {INLINE >> 20} MB set HF_HUB_DISABLE_XET=1 and upload again."
        )

    def routes(self) -> Iterator[Route]:
        """Paths of the Hub."""
        yield Route("/api/validate-yaml", self.validate, methods=["POST"])
        yield Route(f"{MODEL}/preupload/{{revision:path}}", self.preupload, methods=["POST"])
        yield Route(f"{MODEL}/commit/{{revision:path}}", self.commit, methods=["POST"])
        yield Route(f"{MODEL}/xet-{{kind}}-token/{{revision:path}}", self.no_xet)
        yield Route("/{namespace}/{name}.git/info/lfs/objects/batch", self.batch, methods=["POST"])
        yield Route("/lfs/{oid}/{size:int}/{signature}", self.put, methods=["PUT"])
