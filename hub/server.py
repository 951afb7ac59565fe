"""A hub of one's own: a Starlette app that speaks enough of the Hub's API for the unmodified client, huggingface_hub.

Everything is addressed by the client's own paths, so that ``HF_ENDPOINT=http://127.0.0.1:8000`` is all it takes.
Reading is free, except for private repositories; writing needs a token. Contents are hashed here, whatever the client
says.
"""

import errno
import getpass
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from unknot.hub import serving
from unknot.hub.cards import read_card
from unknot.hub.catalogue import Catalogue, Row, entry
from unknot.hub.commits import CommitReader
from unknot.hub.disk import git_hash
from unknot.hub.pages import HEADERS as PAGE_HEADERS
from unknot.hub.pages import PAGE as PAGES
from unknot.hub.pages import asset
from unknot.hub.serving import Answer, Content, Names, body_bytes, body_json, chunks, drain, field, refusal
from unknot.hub.storage import HASH, Damaged, Missing, Stale, Store, Taken, check_file_name, check_repo_id

INLINE = 1 << 30  # files up to this size travel inside the commit: clients with xet know no other way to us
PAGE = 1000
PIECE = 1 << 20  # bytes of an upload that are handed to a thread at a time; larger ones leave the cache
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"


class UnknownToken(HTTPException):
    """Somebody sent a token that is not ours."""


class Hub:
    """The handlers of the app.

    Args:
        store: where the repositories are.
        tokens: name of the user for each token.
        max_file: bytes that a file may have.
    """

    def __init__(self, store: Store, tokens: dict[str, str], max_file: int) -> None:
        self.store, self.tokens, self.max_file = store, tokens, max_file
        self.catalogue = Catalogue(store)
        self._secret = secrets.token_bytes(32)  # signs the addresses of uploads, which carry no token

    # Who asks

    def user(self, request: Request) -> str | None:
        """Name of the user whose token came along; a token that is not ours is refused even for public things."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return None
        given = token.strip().encode()
        matches = [name for known, name in self.tokens.items() if hmac.compare_digest(known.encode(), given)]
        if not matches:
            raise UnknownToken(401, "This hub does not know the token that was sent.")
        return matches[0]

    def writer(self, request: Request) -> str:
        """The same for what needs a token."""
        user = self.user(request)
        if user is None:
            raise HTTPException(401, "Writing to this hub needs a token: set HF_TOKEN to one of its tokens.")
        return user

    def readable(self, request: Request) -> str:
        """Name of the repository of the path, if the user may see it."""
        repo_id = "{namespace}/{name}".format(**request.path_params)
        user = self.user(request)
        if self.store.repo(repo_id).private and user is None:
            raise Missing("RepoNotFound", f"Repository {repo_id!r} does not exist, or is private.")
        return repo_id

    # Repositories

    def whoami(self, request: Request) -> Response:
        """``GET /api/whoami-v2``."""
        user = self.writer(request)
        return Answer({"type": "user", "name": user, "fullname": user, "orgs": [], "auth": {"type": "token"}})

    async def create(self, request: Request) -> Response:
        """``POST /api/repos/create``."""
        user = self.writer(request)
        wanted = await body_json(request)
        if wanted.get("type") not in (None, "model"):
            raise HTTPException(400, "This hub keeps models only.")
        repo_id = self._named(wanted, user)
        private = visibility(wanted) or False
        url = f"{request.base_url}{repo_id}"
        try:
            await run_in_threadpool(self.store.create, repo_id, private, user)
        except Taken as error:
            return refusal(409, str(error), {}, url=url)
        return Answer({"url": url, "name": repo_id})

    async def delete(self, request: Request) -> Response:
        """``DELETE /api/repos/delete``."""
        user = self.writer(request)
        repo_id = self._named(await body_json(request), user)
        await run_in_threadpool(self.store.delete, repo_id)
        return Answer({})

    async def move(self, request: Request) -> Response:
        """``POST /api/repos/move``."""
        self.writer(request)
        wanted = await body_json(request)
        before, after = field(wanted, "fromRepo", str), field(wanted, "toRepo", str)
        await run_in_threadpool(self.store.move, before, after)
        return Answer({})

    def _named(self, wanted: dict[str, Any], user: str) -> str:
        return f"{wanted.get('organization') or user}/{field(wanted, 'name', str)}"

    async def settings(self, request: Request) -> Response:
        """``PUT /api/models/{id}/settings``: visibility alone, and only if it is said."""
        self.writer(request)
        repo_id, wanted = self.readable(request), await body_json(request)
        private = visibility(wanted)
        if others := sorted(wanted.keys() - {"visibility", "private"}):
            raise HTTPException(400, f"This hub has no setting {', '.join(others)[:100]}; nothing was changed.")
        if private is None:
            raise HTTPException(400, "This hub has one setting, visibility; nothing was changed.")
        await run_in_threadpool(self.store.set_private, repo_id, private)
        return Answer({"private": private})

    def models(self, request: Request) -> Response:
        """``GET /api/models``."""
        query = request.query_params
        full = query.get("full") == "true" or "siblings" in query.getlist("expand")
        rows = self.visible(request)
        key = "created" if query.get("sort") == "createdAt" else "modified"
        rows.sort(key=lambda row: (getattr(row, key), row.repo.id), reverse=True)
        start, limit = _integer(query.get("cursor"), 0), min(_integer(query.get("limit"), PAGE), PAGE)
        headers = {}
        if start + limit < len(rows) and limit:
            others = [(key, value) for key, value in query.multi_items() if key != "cursor"]
            url = request.url.replace(query=urlencode([*others, ("cursor", str(start + limit))]))
            headers["Link"] = f'<{url}>; rel="next"'
        shown = []
        for row in rows[start : start + limit]:
            files = self.store.snapshot(row.repo.id, row.commit)[1].files if full else {}
            shown.append(self.described(row, [{"rfilename": path} for path in sorted(files)] if full else None))
        return Response(f"[{','.join(shown)}]", headers=headers, media_type="application/json")

    def visible(self, request: Request) -> list[Row]:
        """Rows of the list that the user may see and that pass the filters of the query."""
        query, user = request.query_params, self.user(request)
        wanted = {tag for value in query.getlist("filter") for tag in value.split(",")}
        words, author = query.get("search", "").lower(), query.get("author")
        return [
            row
            for row in self.catalogue.rows()
            if (not row.repo.private or user is not None)
            and words in row.repo.id.lower()
            and author in (None, row.repo.id.split("/")[0])
            and wanted <= set(row.tags)
            and query.get("pipeline_tag") in (None, row.pipeline)
        ]

    def described(self, row: Row, siblings: list[dict[str, Any]] | None) -> str:
        """What the Hub says about a model, as JSON; the card's part is JSON already."""
        card = self.catalogue.metadata(row.card) if row.card else "{}"
        return f'{json.dumps(entry(row, siblings))[:-1]}, "cardData": {card}}}'

    def info(self, request: Request) -> Response:
        """``GET /api/models/{id}`` and ``.../revision/{rev}``."""
        repo, commit = self.store.snapshot(self.readable(request), request.path_params.get("revision", "main"))
        blobs = request.query_params.get("blobs", "").lower() == "true"
        siblings = [
            {"rfilename": path, **({"size": file["size"], **_hashes(file)} if blobs else {})}
            for path, file in sorted(commit.files.items())
        ]
        row = self.catalogue.describe(repo, commit)
        return Response(self.described(row, siblings), media_type="application/json")

    # Revisions

    def refs(self, request: Request) -> Response:
        """``GET /api/models/{id}/refs``."""
        repo = self.store.repo(self.readable(request))
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid} for name, oid in repo.branches.items()
        ]
        tags = [{"name": name, "ref": f"refs/tags/{name}", "targetCommit": oid} for name, oid in repo.tags.items()]
        return Answer({"branches": branches, "tags": tags, "converts": []})

    def commits(self, request: Request) -> Response:
        """``GET /api/models/{id}/commits/{rev}``."""
        history = self.store.history(self.readable(request), request.path_params["revision"])
        rows = [
            {
                "id": one.id,
                "title": one.summary,
                "message": "",
                "date": one.date,
                "authors": [{"user": one.author, "avatar": ""}],
            }
            for one in history
        ]
        return Answer(rows)

    async def point(self, kind: str, request: Request) -> Response:
        """``POST`` and ``DELETE /api/models/{id}/tag/{rev}`` and ``.../branch/{name}``."""
        self.writer(request)
        repo_id, name = self.readable(request), request.path_params["revision"]
        revision: str | None = None
        if request.method == "POST":
            wanted = await body_json(request)
            revision, name = (name, field(wanted, "tag", str)) if kind == "tag" else ("main", name)
            revision = str(wanted.get("startingPoint") or revision)
        await run_in_threadpool(self.store.point, repo_id, kind, name, revision)
        return Answer({})

    # Files

    def tree(self, request: Request) -> Response:
        """``GET /api/models/{id}/tree/{rev}/{path}``."""
        _, commit = self.store.snapshot(self.readable(request), request.path_params["revision"])
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
        repo_id = self.readable(request)
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
        _, commit = self.store.snapshot(self.readable(request), request.path_params["revision"])
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

    # Uploads

    async def validate(self, request: Request) -> Response:
        """``POST /api/validate-yaml``."""
        text = str((await body_json(request)).get("content", ""))
        card = await run_in_threadpool(read_card, text)
        errors = [{"message": f"README.md: {card.problem}"}] if card.problem else []
        return Answer({"errors": errors, "warnings": []}, status_code=400 if errors else 200)

    async def preupload(self, request: Request) -> Response:
        """``POST /api/models/{id}/preupload/{rev}``: how each file is to be sent, and what is here already."""
        self.writer(request)
        repo_id = self.readable(request)
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
        self.writer(request)
        self.readable(request)
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
            user = self.writer(request)
            repo_id = self.readable(request)
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

    def welcome(self, request: Request) -> Response:
        """``GET /``: an index for browsers, and how to use this for everything else."""
        if "text/html" in request.headers.get("accept", ""):
            return self.page(request)
        return PlainTextResponse(
            f"A hub for checkpoints. Use it with HF_ENDPOINT={str(request.base_url).rstrip('/')}\n"
            "unknot hub list | show | pull | push, and any huggingface_hub client.\n"
        )

    def page(self, request: Request) -> Response:
        """``GET /{id}`` and ``GET /{id}/commit/{rev}``: a page that asks for what it shows as any client does."""
        if request.path_params:
            try:
                check_repo_id("{namespace}/{name}".format(**request.path_params))
            except ValueError as error:
                raise HTTPException(404, str(error)) from None
        headers = {name.decode(): value.decode() for name, value in PAGE_HEADERS}
        return HTMLResponse((PAGES / "hub.html").read_text(encoding="utf-8"), headers=headers)

    def routes(self) -> Iterator[Route]:
        """Paths of the Hub."""
        api, one = "/api/models", "/api/models/{namespace}/{name}"
        yield Route("/", self.welcome)
        yield Route("/api/whoami-v2", self.whoami)
        yield Route("/api/repos/create", self.create, methods=["POST"])
        yield Route("/api/repos/delete", self.delete, methods=["DELETE"])
        yield Route("/api/repos/move", self.move, methods=["POST"])
        yield Route("/api/validate-yaml", self.validate, methods=["POST"])
        yield Route(api, self.models)
        yield Route(one, self.info)
        yield Route(f"{one}/settings", self.settings, methods=["PUT"])
        yield Route(f"{one}/revision/{{revision:path}}", self.info)
        yield Route(f"{one}/refs", self.refs)
        yield Route(f"{one}/commits/{{revision:path}}", self.commits)
        yield Route(f"{one}/tree/{{revision}}", self.tree)
        yield Route(f"{one}/tree/{{revision}}/{{path:path}}", self.tree)
        yield Route(f"{one}/paths-info/{{revision:path}}", self.paths, methods=["POST"])
        yield Route(f"{one}/preupload/{{revision:path}}", self.preupload, methods=["POST"])
        yield Route(f"{one}/commit/{{revision:path}}", self.commit, methods=["POST"])
        yield Route(f"{one}/xet-{{kind}}-token/{{revision:path}}", self.no_xet)
        for kind in ("tag", "branch"):
            yield Route(f"{one}/{kind}/{{revision:path}}", partial(self.point, kind), methods=["POST", "DELETE"])
        yield Route("/{namespace}/{name}.git/info/lfs/objects/batch", self.batch, methods=["POST"])
        yield Route("/lfs/{oid}/{size:int}/{signature}", self.put, methods=["PUT"])
        yield Route("/{namespace}/{name}/resolve/{revision}/{path:path}", self.resolve)
        yield Route("/-/{name}", lambda request: asset(request.path_params["name"]))  # no user is called "-"
        yield Route("/{namespace}/{name}", self.page)
        yield Route("/{namespace}/{name}/commit/{revision}", self.page)


def hub_app(store: Store, tokens: dict[str, str], max_file: int = 2 << 30, names: Iterable[str] = ()) -> ASGIApp:
    """The app for a store.

    Args:
        store: where the repositories are.
        tokens: name of the user for each token.
        max_file: bytes that a file may have.
        names: under which the hub is reached, besides numbers and this machine's names.
    """
    hub, guessing = Hub(store, tokens, max_file), anyio.Lock()

    async def unknown_token(request: Request, error: Any) -> Response:
        async with guessing:  # one after the other: 20 in a second, whoever guesses
            await anyio.sleep(0.05)
        return refusal(error.status_code, error.detail, {})

    def failed(request: Request, error: Any) -> Response:
        if error.errno in FULL:
            return refusal(507, "The disk of this hub is full, and nothing was changed. Free space there.", {})
        raise error

    handlers: dict[Any, Callable[[Request, Any], Response | Awaitable[Response]]] = {
        UnknownToken: unknown_token,
        HTTPException: lambda request, error: refusal(error.status_code, error.detail, {}),
        Missing: lambda request, error: refusal(404, error.message, {}, code=error.what),
        Damaged: lambda request, error: refusal(
            422, f"Damaged on the disk of this hub, and set aside: {error} Whoever runs it can restore the file.", {}
        ),
        Stale: lambda request, error: refusal(412, str(error), {}),
        Taken: lambda request, error: refusal(409, str(error), {}),
        ClientDisconnect: lambda request, error: refusal(400, "The upload was interrupted.", {}),
        ValueError: lambda request, error: refusal(422, str(error), {}),
        OSError: failed,
    }
    return Names(Starlette(routes=list(hub.routes()), exception_handlers=handlers), names)


def serve(
    folder: str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    tokens: str | Path | None = None,
    max_file: int = 2 << 30,
    names: Iterable[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Serve a folder until interrupted.

    Args:
        folder: where repositories are kept; made if it does not exist. One that holds something else is refused.
        host: address to listen on; only this machine by default.
        port: 0 takes a free one.
        tokens: file with a line ``USER TOKEN`` for each user; by default ``tokens.txt`` in ``folder``, made with one
            random token.
        max_file: bytes that a file may have.
        names: under which the hub is reached, besides numbers, ``localhost``, this machine's name and ``host``.
        say: where messages go.
    """
    store = Store(folder)
    try:
        path = Path(tokens) if tokens else store.root / "tokens.txt"
        known = read_tokens(path, make=tokens is None)
        listening = serving.listen(host, port)
        say(f"Serving {len(store.repos())} repositories of {store.root} at {serving.address_of(listening, host)}")
        say(f"Tokens for writing are in {path}. Elsewhere: export HF_ENDPOINT=... HF_TOKEN=...; Ctrl-C stops.")
        for problem in store.problems:
            say(f"Damaged, set aside: {problem}")
        if host not in serving.LOOPBACK:
            say("Others can reach this address, and tokens travel unencrypted: use it in a trusted network only.")
        serving.run(hub_app(store, known, max_file, [host, *names]), listening)
    finally:
        store.close()


def read_tokens(path: Path, make: bool) -> dict[str, str]:
    """Name of the user for each token; where there is no file, ``make`` one with a random token.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = read_tokens(Path(folder) / "tokens.txt", make=True)
    ...     made == read_tokens(Path(folder) / "tokens.txt", make=True)
    True
    """
    if make and not path.exists():
        try:
            user = "".join(letter for letter in getpass.getuser() if letter.isascii() and letter.isalnum())
        except (OSError, KeyError):
            user = ""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"{user or 'user'} hf_{secrets.token_urlsafe(24)}\n")
    tokens: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or len(words[1]) < 8:
            raise ValueError(f"{path}, line {number}: expected a user's name and a token of 8 or more characters.")
        tokens[words[1]] = words[0]
    if not tokens:
        raise ValueError(f"{path} holds no token. Give each user a line: NAME TOKEN.")
    return tokens


def visibility(wanted: dict[str, Any]) -> bool | None:
    """Whether a request asks for a private repository (True) or a public one; None if it does not say."""
    private, named = wanted.get("private"), wanted.get("visibility")
    if named not in (None, "public", "private") or not isinstance(private, bool | None):
        raise HTTPException(400, "A repository is 'public' or 'private' here; nothing was changed.")
    return private if named is None else named == "private"


def _hashes(file: dict[str, Any]) -> dict[str, Any]:
    if file["text"]:
        return {"blobId": file["sha1"]}
    pointer = POINTER.format(**file).encode()
    lfs = {"sha256": file["sha256"], "size": file["size"], "pointerSize": len(pointer)}
    return {"blobId": _git_hash(pointer), "lfs": lfs}


def _entry(path: str, file: dict[str, Any]) -> dict[str, Any]:
    hashes = _hashes(file)
    entry = {"type": "file", "path": path, "oid": hashes["blobId"], "size": file["size"]}
    if "lfs" in hashes:
        entry["lfs"] = {"oid": file["sha256"], "size": file["size"], "pointerSize": hashes["lfs"]["pointerSize"]}
    return entry


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _integer(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else default
