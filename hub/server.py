"""A hub of one's own: a Starlette app that speaks enough of the Hub's API for the unmodified client, huggingface_hub.

Everything is addressed by the client's own paths, so that ``HF_ENDPOINT=http://127.0.0.1:8000`` is all it takes.
Reading is free, except for private repositories; writing needs a token. Contents are hashed here, whatever the client
says.
"""

import base64
import contextlib
import getpass
import hashlib
import hmac
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from unknot.hub.cards import MAX_CARD, Card, read_card
from unknot.hub.storage import HASH, Commit, Files, Missing, Repo, Stale, Store, Taken, check_file_name

REGULAR = 64 << 20  # files up to this size travel inside the commit: clients with xet know no other way to us
PAGE = 1000
JSON_LIMIT = 4 << 20
PATIENCE = 256 << 20  # bytes of a refused upload that are still read, so that its sender hears why
T = TypeVar("T")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"


class Hub:
    """The handlers of the app.

    Args:
        store: where the repositories are.
        tokens: name of the user for each token.
        max_file: bytes that a file may have.
        max_commit: bytes that the body of a commit may have.
    """

    def __init__(self, store: Store, tokens: dict[str, str], max_file: int, max_commit: int) -> None:
        self.store, self.tokens, self.max_file, self.max_commit = store, tokens, max_file, max_commit
        self._secret = secrets.token_bytes(32)  # signs the addresses of uploads, which carry no token
        self._card = lru_cache(maxsize=4096)(self._read_card)

    # Who asks

    def user(self, request: Request) -> str | None:
        """Name of the user whose token came along; a token that is not ours is refused even for public things."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return None
        given = token.strip().encode()
        matches = [name for known, name in self.tokens.items() if hmac.compare_digest(known.encode(), given)]
        if not matches:
            raise HTTPException(401, "This hub does not know the token that was sent.")
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
        return JSONResponse({"type": "user", "name": user, "fullname": user, "orgs": [], "auth": {"type": "token"}})

    async def create(self, request: Request) -> Response:
        """``POST /api/repos/create``."""
        user = self.writer(request)
        wanted = await body_json(request)
        if wanted.get("type") not in (None, "model"):
            raise HTTPException(400, "This hub keeps models only.")
        repo_id = self._named(wanted, user)
        private = wanted.get("visibility") == "private" or wanted.get("private") is True
        url = f"{request.base_url}{repo_id}"
        try:
            await run_in_threadpool(self.store.create, repo_id, private, user)
        except Taken as error:
            return refusal(409, str(error), {}, url=url)
        return JSONResponse({"url": url, "name": repo_id})

    async def delete(self, request: Request) -> Response:
        """``DELETE /api/repos/delete``."""
        user = self.writer(request)
        repo_id = self._named(await body_json(request), user)
        await run_in_threadpool(self.store.delete, repo_id)
        return JSONResponse({})

    def _named(self, wanted: dict[str, Any], user: str) -> str:
        return f"{wanted.get('organization') or user}/{field(wanted, 'name', str)}"

    async def settings(self, request: Request) -> Response:
        """``PUT /api/models/{id}/settings``: visibility alone."""
        self.writer(request)
        repo_id, wanted = self.readable(request), await body_json(request)
        private = wanted.get("visibility") == "private" or wanted.get("private") is True
        await run_in_threadpool(self.store.set_private, repo_id, private)
        return JSONResponse({"private": private})

    def models(self, request: Request) -> Response:
        """``GET /api/models``."""
        query, user = request.query_params, self.user(request)
        wanted = [tag for value in query.getlist("filter") for tag in value.split(",")]
        rows = []
        for repo_id in self.store.repos():
            if query.get("author", repo_id.split("/")[0]) != repo_id.split("/")[0]:
                continue
            if query.get("search", "").lower() not in repo_id.lower():
                continue
            try:
                repo, commit = self.store.snapshot(repo_id, "main")
            except Missing:  # deleted a moment ago
                continue
            if not repo.private or user is not None:
                row = self.describe(repo, commit)
                if set(wanted) <= set(row["tags"]) and query.get("pipeline_tag") in (None, row["pipeline_tag"]):
                    rows.append(row)
        key = "createdAt" if query.get("sort") == "createdAt" else "lastModified"
        rows.sort(key=lambda row: (row[key], row["id"]), reverse=True)
        start, limit = _integer(query.get("cursor"), 0), min(_integer(query.get("limit"), PAGE), PAGE)
        shown = rows[start : start + limit]
        if query.get("full") != "true" and "siblings" not in query.getlist("expand"):
            shown = [{key: value for key, value in row.items() if key != "siblings"} for row in shown]
        headers = {}
        if start + limit < len(rows) and limit:
            others = [(key, value) for key, value in query.multi_items() if key != "cursor"]
            url = request.url.replace(query=urlencode([*others, ("cursor", str(start + limit))]))
            headers["Link"] = f'<{url}>; rel="next"'
        return JSONResponse(shown, headers=headers)

    def info(self, request: Request) -> Response:
        """``GET /api/models/{id}`` and ``.../revision/{rev}``."""
        repo, commit = self.store.snapshot(self.readable(request), request.path_params.get("revision", "main"))
        return JSONResponse(self.describe(repo, commit, blobs=request.query_params.get("blobs", "").lower() == "true"))

    def describe(self, repo: Repo, commit: Commit, blobs: bool = False) -> dict[str, Any]:
        """What the Hub says about a model; tags are derived from the card as it does."""
        card = self._card(commit.files["README.md"]["sha256"]) if "README.md" in commit.files else Card()
        metadata = card.metadata
        tags = _texts(metadata.get("tags"))
        library = metadata.get("library_name")
        tags += [library] if isinstance(library, str) else []
        tags += [f"dataset:{name}" for name in _texts(metadata.get("datasets"))]
        tags += [f"license:{name}" for name in _texts(metadata.get("license"))]
        siblings = [
            {"rfilename": path, **({"size": file["size"], **_hashes(file)} if blobs else {})}
            for path, file in sorted(commit.files.items())
        ]
        return {
            "_id": repo.id,
            "id": repo.id,
            "modelId": repo.id,
            "author": repo.id.split("/")[0],
            "sha": commit.id,
            "private": repo.private,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "createdAt": repo.created,
            "lastModified": commit.date,
            "tags": list(dict.fromkeys(tags)),
            "library_name": library if isinstance(library, str) else None,
            "pipeline_tag": metadata.get("pipeline_tag") if isinstance(metadata.get("pipeline_tag"), str) else None,
            "cardData": metadata,
            "model-index": metadata.get("model-index"),
            "siblings": siblings,
        }

    def _read_card(self, sha256: str) -> Card:
        path = self.store.path({"sha256": sha256})
        return Card() if path.stat().st_size > MAX_CARD else read_card(path.read_bytes())

    # Revisions

    def refs(self, request: Request) -> Response:
        """``GET /api/models/{id}/refs``."""
        repo = self.store.repo(self.readable(request))
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid} for name, oid in repo.branches.items()
        ]
        tags = [{"name": name, "ref": f"refs/tags/{name}", "targetCommit": oid} for name, oid in repo.tags.items()]
        return JSONResponse({"branches": branches, "tags": tags, "converts": []})

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
        return JSONResponse(rows)

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
        return JSONResponse({})

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
        return JSONResponse(list(rows.values()))

    async def paths(self, request: Request) -> Response:
        """``POST /api/models/{id}/paths-info/{rev}``."""
        repo_id = self.readable(request)
        _, commit = await run_in_threadpool(self.store.snapshot, repo_id, request.path_params["revision"])
        if "json" in request.headers.get("content-type", ""):
            wanted = (await body_json(request)).get("paths") or []
        else:
            wanted = parse_qs((await body_bytes(request)).decode()).get("paths", [])
        return JSONResponse([_entry(path, commit.files[path]) for path in _texts(wanted) if path in commit.files])

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
        return FileResponse(self.store.path(file), headers=headers, media_type="application/octet-stream")

    # Uploads

    async def validate(self, request: Request) -> Response:
        """``POST /api/validate-yaml``."""
        card = read_card(str((await body_json(request)).get("content", "")))
        errors = [{"message": f"README.md: {card.problem}"}] if card.problem else []
        return JSONResponse({"errors": errors, "warnings": []}, status_code=400 if errors else 200)

    async def preupload(self, request: Request) -> Response:
        """``POST /api/models/{id}/preupload/{rev}``: how each file is to be sent, and what is here already."""
        self.writer(request)
        repo_id = self.readable(request)
        wanted = await body_json(request)
        _, commit = await run_in_threadpool(self.store.snapshot, repo_id, request.path_params["revision"])
        answers = []
        for file in field(wanted, "files", list):
            path, size = check_file_name(field(file, "path", str)), field(file, "size", int)
            self._check_size(path, size)
            known = commit.files.get(path, {})
            regular = size <= REGULAR
            answers.append(
                {
                    "path": path,
                    "uploadMode": "regular" if regular else "lfs",
                    "shouldIgnore": False,
                    "oid": known.get("sha1" if regular else "sha256"),
                }
            )
        return JSONResponse({"files": answers})

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
            if not self.store.holds(oid, size):
                url = f"{request.base_url}lfs/{oid}/{size}/{self._sign(oid, size)}"
                answers[-1]["actions"] = {"upload": {"href": url}}
        return JSONResponse({"transfer": "basic", "objects": answers})

    def _sign(self, oid: str, size: int) -> str:
        return hmac.new(self._secret, f"{oid} {size}".encode(), "sha256").hexdigest()

    async def put(self, request: Request) -> Response:
        """``PUT /lfs/...``: one large file, on an address that we gave out."""
        oid, size = request.path_params["oid"], request.path_params["size"]
        if not HASH.fullmatch(oid) or not hmac.compare_digest(self._sign(oid, size), request.path_params["signature"]):
            await drain(request)
            raise HTTPException(403, "This address for an upload is not, or no longer, valid.")
        with tempfile.TemporaryFile(dir=self.store.root) as file:
            await spool(request, file, size)
            await run_in_threadpool(self.store.receive, oid, size, file)
        return JSONResponse({})

    async def commit(self, request: Request) -> Response:
        """``POST /api/models/{id}/commit/{rev}``."""
        try:
            user = self.writer(request)
            repo_id = self.readable(request)
        except (HTTPException, Missing):
            await drain(request)
            raise
        if request.query_params.get("create_pr") in ("1", "true"):
            await drain(request)
            raise HTTPException(400, "This hub has no pull requests; commit to a branch.")
        with tempfile.TemporaryFile(dir=self.store.root) as file:
            await spool(request, file, self.max_commit)
            branch = request.path_params["revision"]
            oid = await run_in_threadpool(self._commit, repo_id, branch, file, user)
        return JSONResponse(
            {
                "success": True,
                "commitOid": oid,
                "commitUrl": f"{request.base_url}{repo_id}/commit/{oid}",
                "hookOutput": "",
            }
        )

    def _commit(self, repo_id: str, branch: str, lines: IO[bytes], user: str) -> str:
        header: dict[str, Any] = {}
        added: Files = {}
        deleted: list[str] = []
        for line in filter(bytes.strip, lines):
            one = parse(line)
            key, value = field(one, "key", str), field(one, "value", dict)
            if key == "header":
                header = value
                continue
            path = check_file_name(field(value, "path", str).rstrip("/"))
            if key == "file":
                content = base64.b64decode(field(value, "content", str), validate=True)
                self._check_size(path, len(content))
                added[path] = self.store.keep(content)
            elif key == "lfsFile":
                added[path] = self.store.announced(field(value, "oid", str), value.get("size"))
            elif key in ("deletedFile", "deletedFolder"):
                deleted.append(path + "/" * (key == "deletedFolder"))
            else:
                raise ValueError(f"This hub does not know the operation {key[:50]!r}.")
        parent = header.get("parentCommit")
        parent = None if parent is None else str(parent)
        return self.store.commit(repo_id, branch, added, deleted, parent, str(header.get("summary")), user)

    def no_xet(self, request: Request) -> Response:
        """What clients ask for whose large files would go by another protocol."""
        raise HTTPException(
            404, f"This hub has no xet. For files above {REGULAR >> 20} MB set HF_HUB_DISABLE_XET=1 and upload again."
        )

    def welcome(self, request: Request) -> Response:
        """``GET /``: how to use this."""
        return PlainTextResponse(
            f"A hub for checkpoints. Use it with HF_ENDPOINT={str(request.base_url).rstrip('/')}\n"
            "unknot hub list | show | pull | push, and any huggingface_hub client.\n"
        )

    def routes(self) -> Iterator[Route]:
        """Paths of the Hub."""
        api, one = "/api/models", "/api/models/{namespace}/{name}"
        yield Route("/", self.welcome)
        yield Route("/api/whoami-v2", self.whoami)
        yield Route("/api/repos/create", self.create, methods=["POST"])
        yield Route("/api/repos/delete", self.delete, methods=["DELETE"])
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


def hub_app(store: Store, tokens: dict[str, str], max_file: int = 2 << 30, max_commit: int = 512 << 20) -> Starlette:
    """The app for a store.

    Args:
        store: where the repositories are.
        tokens: name of the user for each token.
        max_file: bytes that a file may have.
        max_commit: bytes that the body of a commit may have.
    """
    hub = Hub(store, tokens, max_file, max_commit)
    handlers: dict[Any, Callable[[Request, Any], Response | Awaitable[Response]]] = {
        HTTPException: lambda request, error: refusal(error.status_code, error.detail, {}),
        Missing: lambda request, error: refusal(404, error.message, {}, code=error.what),
        Stale: lambda request, error: refusal(412, str(error), {}),
        Taken: lambda request, error: refusal(409, str(error), {}),
        ClientDisconnect: lambda request, error: refusal(400, "The upload was interrupted.", {}),
        ValueError: lambda request, error: refusal(422, str(error), {}),
    }
    return Starlette(routes=list(hub.routes()), exception_handlers=handlers)


def serve(
    folder: str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    tokens: str | Path | None = None,
    max_file: int = 2 << 30,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a folder until interrupted.

    Args:
        folder: where repositories are kept; made if it does not exist.
        host: address to listen on; only this machine by default.
        port: 0 takes a free one.
        tokens: file with a line ``USER TOKEN`` for each user; by default ``tokens.txt`` in ``folder``, made with one
            random token.
        max_file: bytes that a file may have.
        say: where messages go.
    """
    import uvicorn

    store = Store(folder)
    path = Path(tokens) if tokens else store.root / "tokens.txt"
    known = read_tokens(path, make=tokens is None)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise OSError(
            f"Cannot listen on {host}:{port} ({os.strerror(error.errno or 0)}). Give another --port or --host."
        ) from None
    shown = f"[{host}]" if ":" in host else host
    say(f"Serving {len(store.repos())} repositories of {store.root} at http://{shown}:{listening.getsockname()[1]}")
    say(f"Tokens for writing are in {path}. Elsewhere: export HF_ENDPOINT=... HF_TOKEN=...; Ctrl-C stops.")
    if host not in ("127.0.0.1", "::1", "localhost"):
        say("Others can reach this address, and tokens travel unencrypted: use it in a trusted network only.")
    app = hub_app(store, known, max_file)
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", server_header=False)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
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


def refusal(status: int, message: str, headers: dict[str, str], code: str | None = None, **more: str) -> Response:
    """An error in the headers that the client reads and in the body that people read."""
    line = " ".join(message.split()).encode("ascii", "replace").decode()[:500]
    named = {"X-Error-Code": code} if code else {}
    return JSONResponse({"error": message, **more}, status, headers | named | {"X-Error-Message": line})


async def spool(request: Request, file: IO[bytes], limit: int) -> None:
    """Write the body to ``file`` and rewind it; one above the limit is read to its end, within reason, and refused."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            file.write(chunk)
        elif size > limit + PATIENCE:
            break
    if size > limit:
        raise HTTPException(413, f"The body of this request is longer than {limit:,} bytes.")
    file.seek(0)


async def drain(request: Request) -> None:
    """Read what the client still sends, so that it stays to hear the answer."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > PATIENCE:
            return


async def body_bytes(request: Request) -> bytes:
    """A short body."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > JSON_LIMIT:
            raise HTTPException(413, f"The body of this request is longer than {JSON_LIMIT:,} bytes.")
    return bytes(body)


async def body_json(request: Request) -> dict[str, Any]:
    """A short body that is a JSON object."""
    value = parse(await body_bytes(request) or b"{}")
    if not isinstance(value, dict):
        raise ValueError("The body of this request must be a JSON object.")
    return value


def parse(text: bytes) -> Any:
    """JSON; all that can be wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("The request is nested too deeply.") from None


def field(value: Any, key: str, kind: type[T]) -> T:
    """An entry of a JSON object that must be there and of a type."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise ValueError(f"The request must say {key!r}, as {kind.__name__}.")
    return found


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


def _texts(value: Any) -> list[str]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]


def _integer(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else default
