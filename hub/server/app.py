"""A hub of one's own: a Starlette app that speaks enough of the Hub's API for the unmodified client, huggingface_hub.

Everything is addressed by the client's own paths, so that ``HF_ENDPOINT=http://127.0.0.1:8000`` is all it takes.
"""

import errno
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from unknot.hub.naming import check_repo_id
from unknot.hub.server.access import Access, UnknownToken, read_tokens
from unknot.hub.server.commit_log import Damaged
from unknot.hub.server.downloads import Downloads
from unknot.hub.server.repositories import Repositories
from unknot.hub.server.storage import Missing, Stale, Store, Taken
from unknot.hub.server.uploads import Uploads
from unknot.hub.web import serving
from unknot.hub.web.pages import HEADERS, PAGE, asset
from unknot.hub.web.serving import Names, refusal

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def welcome(request: Request) -> Response:
    """``GET /``: an index for browsers, and how to use this for everything else."""
    if "text/html" in request.headers.get("accept", ""):
        return page(request)
    return PlainTextResponse(
        f"A hub for checkpoints. Use it with HF_ENDPOINT={str(request.base_url).rstrip('/')}\n"
        "unknot hub list | show | pull | push, and any huggingface_hub client.\n"
    )


def page(request: Request) -> Response:
    """``GET /{id}`` and ``GET /{id}/commit/{rev}``: a page that asks for what it shows as any client does."""
    if request.path_params:
        if request.path_params["namespace"] == "api":
            raise HTTPException(404, "This hub does not answer here; it keeps models only.")
        try:
            check_repo_id("{namespace}/{name}".format(**request.path_params))
        except ValueError as error:
            raise HTTPException(404, str(error)) from None
    headers = {name.decode(): value.decode() for name, value in HEADERS}
    return HTMLResponse((PAGE / "hub.html").read_text(encoding="utf-8"), headers=headers)


def page_routes() -> Iterator[Route]:
    """Paths for browsers; the last ones, as they take every name that is left."""
    yield Route("/", welcome)
    yield Route("/-/{name}", lambda request: asset(request.path_params["name"]))  # no user is called "-"
    yield Route("/{namespace}/{name}", page)
    yield Route("/{namespace}/{name}/commit/{revision}", page)


def hub_app(store: Store, tokens: dict[str, str], max_file: int = 2 << 30, names: Iterable[str] = ()) -> ASGIApp:
    """The app for a store.

    Args:
        store: where the repositories are.
        tokens: name of the user for each token.
        max_file: bytes that a file may have.
        names: under which the hub is reached, besides numbers and this machine's names.
    """
    access, guessing = Access(store, tokens), anyio.Lock()
    parts = Repositories(store, access), Downloads(store, access), Uploads(store, access, max_file)
    routes = [route for part in parts for route in part.routes()]

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
    return Names(Starlette(routes=[*routes, *page_routes()], exception_handlers=handlers), names)


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
