"""Lab hub: a Starlette app that implements enough of the Hub's API for the unmodified client, huggingface_hub.

All paths are those of the client, so that setting ``HF_ENDPOINT=http://127.0.0.1:8000`` is enough.
"""

import errno
import os
import re
import secrets
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unknot.checkpoints.names import check_repo_id
from unknot.hub.server.access import Access, Moved, UnknownToken, Users, read_users
from unknot.hub.server.commit_log import Damaged
from unknot.hub.server.downloads import HELD, Downloads
from unknot.hub.server.quota import GB, OverQuota
from unknot.hub.server.repositories import Repositories
from unknot.hub.server.storage import Missing, Protected, Stale, Store, Taken
from unknot.hub.server.uploads import Uploads
from unknot.hub.web import serving
from unknot.hub.web.pages import HEADERS, PAGE, asset
from unknot.hub.web.serving import Names, refusal

SWEEP = 3600.0
"""Seconds between two searches for unreferenced contents."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def welcome(request: Request) -> Response:
    """``GET /``: an index for browsers, and instructions for other clients."""
    if "text/html" in request.headers.get("accept", ""):
        return page(request)
    return PlainTextResponse(
        f"A hub for checkpoints. Use it with HF_ENDPOINT={str(request.base_url).rstrip('/')}\n"
        "unknot hub list | show | pull | push, and any huggingface_hub client.\n"
    )


def page(request: Request) -> Response:
    """``GET /{id}`` and ``GET /{id}/commit/{rev}``: a page that requests its content as any client does."""
    if request.path_params:
        if request.path_params["namespace"] == "api":
            raise HTTPException(404, "Not found: this hub stores models only.")
        try:
            check_repo_id("{namespace}/{name}".format(**request.path_params))
        except ValueError as error:
            raise HTTPException(404, str(error)) from None
    headers = {name.decode(): value.decode() for name, value in HEADERS}
    return HTMLResponse((PAGE / "hub.html").read_text(encoding="utf-8"), headers=headers)


def missing(access: Access, request: Request) -> Response:
    """Respond to unsupported paths as clients expect for a missing repository."""
    parts = request.path_params["rest"].split("/")
    if "/api/models/" in request.url.path and len(parts) > 2:
        access.visible(access.user(request), "/".join(parts[:2]))
        raise HTTPException(404, "Not found: this hub has no pull requests, discussions or xet.")
    raise Missing("RepoNotFound", "There is no such repository. This hub stores only models named USER/NAME.")


def missing_routes(access: Access) -> Iterator[Route]:
    """Return the routes of repositories without a namespace, of data sets and of Spaces."""
    answer, methods = partial(missing, access), ["GET", "HEAD", "POST", "PUT", "DELETE"]
    for path in ("models", "datasets", "spaces", "kernels"):
        yield Route(f"/api/{path}/{{rest:path}}", answer, methods=methods)
    yield Route("/{name}/resolve/{rest:path}", answer)
    for path in ("datasets", "spaces"):
        yield Route(f"/{path}/{{namespace}}/{{name}}/resolve/{{rest:path}}", answer)


def page_routes() -> Iterator[Route]:
    """Return the routes for browsers; the last ones match every remaining name."""
    yield Route("/", welcome)
    yield Route("/-/{name}", lambda request: asset(request.path_params["name"]))  # no user is called "-"
    yield Route("/{namespace}/{name}", page)
    yield Route("/{namespace}/{name}/commit/{revision}", page)


class Envelope:
    """Middleware that keeps an encoded slash within its path segment, as in the branch ``feature%2Fx``.

    It also sets the request ID of each response.

    Args:
        app: the wrapped app.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        raw, given = scope.get("raw_path") or b"", Headers(scope=scope)
        if b"%2f" in raw.lower():
            scope = {**scope, "path": unquote(re.sub(rb"%2[fF]", HELD.encode(), raw).decode("ascii"))}
        name = given.get("x-request-id") or given.get("x-amzn-trace-id", "")
        name = name if re.fullmatch(r"[\w.=;:-]{1,100}", name, re.ASCII) else secrets.token_hex(8)

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-request-id", name.encode())]
            await send(message)

        await self.app(scope, receive, send_named)


def hub_app(store: Store, users: Users, max_file: int = 2 << 30, names: Iterable[str] = ()) -> ASGIApp:
    """Return the app for a store.

    Args:
        store: store of the repositories.
        users: tokens and rights.
        max_file: maximum size of a file in bytes.
        names: further host names of the hub, in addition to IP addresses and this machine's names.
    """
    access, guessing = Access(store, users), anyio.Lock()
    parts = Repositories(store, access), Downloads(store, access), Uploads(store, access, max_file)
    routes = [route for part in parts for route in part.routes()]

    async def unknown_token(request: Request, error: Any) -> Response:
        async with guessing:  # one at a time: at most 20 guesses per second
            await anyio.sleep(0.05)
        return refusal(error.status_code, error.detail, {})

    def moved(request: Request, error: Any) -> Response:
        path = str(request.scope["raw_path"], "ascii").replace(f"/{error.before}", f"/{error.now}", 1)
        if path == str(request.scope["raw_path"], "ascii"):  # written in another way
            return refusal(404, f"This repository is {error.now} now.", {}, code="RepoNotFound")
        query = request.url.query
        return Response(status_code=307, headers={"Location": path + f"?{query}" * bool(query)})

    def failed(request: Request, error: Any) -> Response:
        if error.errno in FULL:
            return refusal(507, "The disk of this hub is full, and nothing was changed. Free space there.", {})
        raise error

    handlers: dict[Any, Callable[[Request, Any], Response | Awaitable[Response]]] = {
        UnknownToken: unknown_token,
        Moved: moved,
        HTTPException: lambda request, error: refusal(error.status_code, error.detail, {}),
        Missing: lambda request, error: refusal(404, error.message, {}, code=error.what),
        Damaged: lambda request, error: refusal(
            422, f"Damaged on the disk of this hub, and set aside: {error} Whoever runs it can restore the file.", {}
        ),
        OverQuota: lambda request, error: refusal(413, str(error), {}),
        Protected: lambda request, error: refusal(403, str(error), {}),
        Stale: lambda request, error: refusal(412, str(error), {}),
        Taken: lambda request, error: refusal(409, str(error), {}),
        ClientDisconnect: lambda request, error: refusal(400, "The upload was interrupted.", {}),
        ValueError: lambda request, error: refusal(422, str(error), {}),
        OSError: failed,
    }
    every = [*routes, *missing_routes(access), *page_routes()]
    return Names(Envelope(Starlette(routes=every, exception_handlers=handlers)), names)


def serve(
    folder: str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    tokens: str | Path | None = None,
    max_file: int = 2 << 30,
    names: Iterable[str] = (),
    quota: int | None = 100 * GB,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a folder until interrupted.

    Args:
        folder: folder of the repositories; created if it does not exist. A folder with other content is an error.
        host: address to listen on; only this machine by default.
        port: port; 0 for any free one.
        tokens: file with a line ``USER TOKEN`` for each user, followed by ``admin`` for users who may change
            everything, and a line ``NAMESPACE: USER USER ...`` for further users who may change a namespace; by default
            ``tokens.txt`` in ``folder``, created with a random token of an admin.
        max_file: maximum size of a file in bytes.
        names: further host names, in addition to IP addresses, ``localhost``, this machine's name and ``host``.
        quota: maximum number of bytes per namespace, or None for no limit.
        say: function called with each message.
    """
    store = Store(folder, quota)
    stopped = threading.Event()
    try:
        path = Path(tokens) if tokens else store.root / "tokens.txt"
        users = read_users(path, make=tokens is None)
        listening = serving.listen(host, port)
        say(f"Serving {len(store.repos())} repositories of {store.root} at {serving.address_of(listening, host)}")
        say(f"Tokens for writing are in {path}. Elsewhere: export HF_ENDPOINT=... HF_TOKEN=...; Ctrl-C stops.")
        if os.name == "posix" and path.stat().st_mode & 0o077:
            say(f"Others on this machine can read the tokens: chmod 600 {path}")
        if not users.admins:
            say("Nobody is an admin. Write the word admin after the token of who may change every repository.")
        for problem in store.problems:
            say(f"Damaged, set aside: {problem}")
        if host not in serving.LOOPBACK:
            say("Others can reach this address, and tokens travel unencrypted: use it in a trusted network only.")
        threading.Thread(target=_sweep, args=(store, stopped), daemon=True).start()
        serving.run(hub_app(store, users, max_file, [host, *names]), listening)
    finally:
        stopped.set()
        store.close()


def _sweep(store: Store, stopped: threading.Event) -> None:
    """Delete unreferenced contents repeatedly."""
    while not stopped.wait(SWEEP):
        try:
            store.sweep()
        except OSError as error:
            print(f"Could not delete unreferenced contents: {error}", file=sys.stderr)
