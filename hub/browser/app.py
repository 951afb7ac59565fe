"""Server of the page for browsing trained checkpoints.

Cards, names and scores are untrusted. They are sent as JSON, and the page inserts them only as text. Models are loaded
only by :func:`unknot.hub.load`, and only on request.
"""

import contextlib
import hmac
import inspect
import re
import secrets
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unknot.checkpoints import client
from unknot.checkpoints.card import plain
from unknot.checkpoints.errors import AccessError, UnreachableError
from unknot.checkpoints.names import CONFIG, WEIGHTS
from unknot.hub.browser import in_browser
from unknot.hub.browser.evaluations import Jobs
from unknot.hub.browser.index import Entry, Index, place
from unknot.hub.browser.thumbnails import WIDTHS, read_picture
from unknot.hub.listing import pull
from unknot.hub.web import serving
from unknot.hub.web.pages import CLOSED, HEADERS, asset, page_with
from unknot.hub.web.serving import Answer, Content, Names, body_bytes, body_json, field

PORT = 8800
T = TypeVar("T")
PLAYING = 16
"""Threads that run models."""
MODEL_FILES = {"config": CONFIG, "weights": WEIGHTS, "images": "images.png"}
ANSWER, LONG = 90.0, 900.0
"""Seconds that an action of the page may take; those that move many bytes may take longer."""
GRACE = 10.0
"""Seconds that a request waits beyond the limit of its action."""


class Keys:
    """One-time keys that admit a browser: an address shown on a command line or in a log cannot be reused."""

    def __init__(self, on_new_key: Callable[[str], None] = lambda key: None) -> None:
        self._on_new_key, self._lock = on_new_key, threading.Lock()
        self.current = secrets.token_urlsafe(24)

    def use(self, key: str) -> bool:
        """Return whether this is the key, and replace it."""
        with self._lock:
            if not hmac.compare_digest(key.encode(), self.current.encode()):
                return False
            self.current = secrets.token_urlsafe(24)
        self._on_new_key(self.current)
        return True


class Guard(Names):
    """Middleware that admits only requests of this page, and sends its security headers.

    Other users of this machine can reach the address too. A visitor must therefore have opened the page with an address
    that contains a key, which sets a cookie. Requests that change something or are expensive need the page's token,
    which other sites cannot read.
    """

    def __init__(self, app: ASGIApp, token: str, host: str, keys: Keys) -> None:
        super().__init__(app, [host])
        self.token, self.keys = token, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, with the headers of the page."""
        if scope["type"] != "http":
            return
        request = Request(scope)
        cookie = f"unknot-{(scope.get('server') or ('', 0))[1]}"
        fresh = (
            request.method == "GET" and request.url.path == "/" and self.keys.use(request.query_params.get("key", ""))
        )

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
                if fresh:
                    value = f"{cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                    message["headers"].append((b"set-cookie", value.encode()))
            await send(message)

        known = fresh or self._same(request.cookies.get(cookie, ""))
        if not known and request.url.path == "/" and not self.problem(request):
            await HTMLResponse(CLOSED, 403)(scope, receive, send_guarded)
            return
        scope["known"] = known
        await super().__call__(scope, receive, send_guarded)

    def problem(self, request: Request) -> str | None:
        """Return the reason for rejecting a request, or None."""
        if reason := super().problem(request):
            return reason
        has_token = self._same(request.headers.get("x-unknot-token", ""))
        if request.method in ("GET", "HEAD"):
            is_ours = request.scope.get("known") or has_token or request.url.path == "/"
            return None if is_ours else "Open the page by the address that `unknot browse` printed."
        host = request.headers.get("host", "")
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin not in (None, f"http://{host}") or site not in (None, "same-origin", "none"):
            return "Requests from other sites are refused."
        if not has_token:
            return "The page is from an earlier run of `unknot browse`. Open the address that it printed."
        return None

    def _same(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())


class Pages:
    """Request handlers of the page.

    Args:
        index: index of the checkpoints.
        token: token of the page's requests.
        keys: keys that admit a browser.
    """

    def __init__(self, index: Index, token: str, keys: Keys) -> None:
        self.index, self.token, self.keys = index, token, keys
        self.jobs = Jobs()
        self._players: Any = None
        self._playing: anyio.CapacityLimiter | None = None
        self._lock, self._fetching = threading.Lock(), threading.Semaphore(2)

    def page(self, request: Request) -> Response:
        """``GET /``."""
        return Response(page_with(self.token), media_type="text/html")

    def asset(self, request: Request) -> Response:
        """``GET /page/{name}``."""
        return asset(request.path_params["name"])

    def key(self, request: Request) -> Response:
        """``POST /api/key``: a key that admits another browser once."""
        return Answer({"key": self.keys.current})

    def listed(self, request: Request) -> Response:
        """``GET /api/checkpoints``."""
        return Answer(self.index.listed(self._address))

    def detail(self, request: Request) -> Response:
        """``GET /api/checkpoints/{id}``."""
        return self._detailed(self._entry(request))

    def _detailed(self, entry: Entry) -> Response:
        if entry.folder is not None and entry.row.model and not self.index.about(entry.row.model):
            self.index.learn_models()  # perhaps a user's class
        files: dict[str, str] | None = None
        if in_browser.can_run(entry.folder):
            place = f"api/checkpoints/{entry.id}/model"
            files = {name: f"{place}/{file}" for name, file in MODEL_FILES.items()}
        detail = self.index.detail(entry, self._address)
        return Answer(self.index.record(entry, self._address) | detail | {"live": files})

    def model_file(self, request: Request) -> Response:
        """``GET /api/checkpoints/{id}/model/{file}``: a file that a browser needs to run a model."""
        entry, name = self._entry(request), request.path_params["file"]
        if name not in MODEL_FILES.values() or not in_browser.can_run(entry.folder):
            raise HTTPException(404, "The browser page has no such file.")
        assert entry.folder is not None
        if name == MODEL_FILES["images"]:
            with contextlib.suppress(FileNotFoundError):
                return _png(in_browser.sheet(entry.folder))
            return _png(in_browser.NO_IMAGES)
        return Content(
            entry.folder / name, media_type="application/octet-stream", headers={"cache-control": "no-cache"}
        )

    def curves(self, request: Request) -> Response:
        """``GET /api/checkpoints/{id}/curves``: curves of a training run, so far."""
        entry = self._entry(request)
        return Answer({"curves": self.index.training(entry), "training": entry.is_training})

    def picture(self, request: Request) -> Response:
        """``GET /api/checkpoints/{id}/{pictures/name.png}``: a picture; one of the hub is downloaded, verified and
        limited in size.
        """
        entry, name = self._entry(request), request.path_params["name"]
        path = entry.pictures().get(name)
        if path is None and entry.folder is None and name in entry.row.pictures:
            path = self._fetch(entry, name)
        if path is None:
            raise HTTPException(404, "There is no such picture.")
        width = WIDTHS.get(request.query_params.get("size", ""), WIDTHS["large"])
        return _png(read_picture(path, width, path.stat().st_mtime_ns))

    def _fetch(self, entry: Entry, name: str) -> Path:
        with self._fetching:
            listing = client.look_up(entry.row.ref, entry.row.commit, self.index.endpoint)
            return client.download(listing, name, self.index.endpoint)

    async def drawn(self, request: Request) -> Response:
        """``GET /api/checkpoints/{id}/drawn.png``: a picture drawn for a checkpoint without pictures."""
        return _png(await self._play(request, "picture"))

    def refresh(self, request: Request) -> Response:
        """``POST /api/refresh``: query the hub and search the folders again."""
        self.index.refresh()
        return self.listed(request)

    def download(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/download``."""
        entry = self._entry(request)
        if entry.folder is None and "remote" in entry.row.sources:
            pull(str(entry.ref), endpoint=self.index.endpoint)
            entry = self.index.update(entry, folder=place(entry.row))
        return self._detailed(entry)

    def evaluate(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/evaluate``: compute scores, or report the progress."""
        entry = self._entry(request)
        folder = self._weights(entry)
        job = self.jobs.start(
            entry.id,
            lambda: self.players.get(entry.key, entry.ref).model,
            lambda scores: self.index.score(self.index.get(entry.id), scores),
        )
        return Answer({"job": job.to_dict(), "folder": folder.name})

    def progress(self, request: Request) -> Response:
        """``GET /api/checkpoints/{id}/progress``: progress of an evaluation."""
        entry = self._entry(request)
        job, scores = self.jobs.get(entry.id), entry.row.scores
        return Answer({"job": job and job.to_dict(), "scores": dict(scores), "std": scores.std})

    async def tag(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/tag``."""
        tags = [plain(tag, 50) for tag in field(await body_json(request), "tags", list)]
        return await _beside(lambda: self._detailed(self.index.tag(self._entry(request), tags)))

    async def rename(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/rename``."""
        name = field(await body_json(request), "name", str)
        return await _beside(lambda: self._detailed(self.index.rename(self._entry(request), name)))

    def remove(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/remove``: move to the trash."""
        return Answer({"moved": str(self.index.remove(self._entry(request)))})

    async def push(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/push``: publish to the hub, privately if the repository is new."""
        repo = field(await body_json(request), "repo", str)
        return await _beside(lambda: Answer({"address": self._push(self._entry(request), repo)}))

    def _push(self, entry: Entry, repo: str) -> str:
        from unknot.hub.publishing import known_about, push

        if entry.home is None:
            raise HTTPException(409, "Only checkpoints in folders that the page was opened with can be published.")
        self._weights(entry)
        model = self.players.get(entry.key, entry.ref).model
        return push(model, repo, endpoint=self.index.endpoint, say=lambda line: None, **known_about(entry.home))

    async def start(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/start``."""
        body = await body_json(request)
        origin, seed = field(body, "origin", str), field(body, "seed", int) % (1 << 31)
        return Answer(await self._play(request, "start", origin, seed))

    async def look(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/look``: slots or objects of a random image."""
        body = await body_json(request)
        origin, seed = field(body, "origin", str), field(body, "seed", int) % (1 << 31)
        iterations, slots = (_count(body.get(name)) for name in ("iterations", "slots"))
        return Answer(await self._play(request, "look", origin, seed, iterations, slots))

    async def upload(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/upload``: encode the image in the body."""
        from unknot.hub.browser.players import MAX_UPLOAD

        content, query = await body_bytes(request, MAX_UPLOAD), request.query_params
        iterations, slots, seed = (_count(query.get(name)) for name in ("iterations", "slots", "seed"))
        return Answer(await self._play(request, "upload", content, seed or 0, iterations, slots))

    async def decode(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/decode``."""
        codes = (await body_json(request)).get("codes")
        return Response(await self._play(request, "decode", codes), media_type="image/png")

    async def strips(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/strips``."""
        asked = await body_json(request)
        return Answer({"strips": await self._play(request, "strips", asked.get("codes"), asked.get("latents"))})

    async def matrix(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/matrix``."""
        kind = field(await body_json(request), "kind", str)
        return Answer(await self._play(request, "matrix", kind))

    async def _play(self, request: Request, action: str, *arguments: Any) -> Any:
        from unknot.hub.browser.players import ACTION, Deadline

        entry = self._entry(request)
        self._weights(entry)

        def play() -> Any:
            with Deadline(ACTION):
                player = self.players.get(entry.key, entry.ref)
                if action not in player.actions:
                    raise ValueError(f"{type(player.model).__name__} does not support the action {action!r}.")
                return getattr(player, action)(*arguments)

        # Separate threads: however many requests wait for one model, the rest of the page stays responsive. Work that
        # does not check the time itself, such as waiting for another user of the model, is abandoned.
        self._playing = self._playing or anyio.CapacityLimiter(PLAYING)
        with anyio.move_on_after(ACTION + GRACE):
            return await anyio.to_thread.run_sync(play, abandon_on_cancel=True, limiter=self._playing)
        raise TimeoutError(f"No result after {ACTION + GRACE:g} seconds. The model is busy or too slow for this page.")

    def _weights(self, entry: Entry) -> Path:
        """Return the folder of a model that is on this machine and small enough for the page."""
        from unknot.hub.browser.players import MAX_WEIGHTS

        if entry.folder is None:
            raise HTTPException(409, "This checkpoint is not on this machine. Download it first.")
        if (entry.folder / "model.safetensors").stat().st_size > MAX_WEIGHTS:
            raise HTTPException(413, f"Its weights have more than {MAX_WEIGHTS >> 20} MB, too many for this page.")
        return entry.folder

    @property
    def players(self) -> Any:
        """Loaded models."""
        with self._lock:
            if self._players is None:
                from unknot.hub.browser.players import Players

                self._players = Players()
            return self._players

    def _entry(self, request: Request) -> Entry:
        return self.index.get(request.path_params["id"])

    def _address(self, entry: Entry, name: str, path: Path, size: str) -> str:
        return f"api/checkpoints/{entry.id}/{quote(name)}?size={size}&changed={path.stat().st_mtime_ns}"

    def routes(self) -> Iterator[Route]:
        """Return the routes of the page."""
        for route in self._untimed():
            long = route.path.endswith(("/download", "/push"))
            yield Route(
                route.path, _in_time(route.endpoint, LONG if long else ANSWER), methods=list(route.methods or ())
            )

    def _untimed(self) -> Iterator[Route]:
        one = "/api/checkpoints/{id}"
        yield Route("/", self.page)
        yield Route("/page/{name}", self.asset)
        yield Route("/api/checkpoints", self.listed)
        yield Route("/api/refresh", self.refresh, methods=["POST"])
        yield Route("/api/key", self.key, methods=["POST"])
        yield Route(one, self.detail)
        yield Route(f"{one}/curves", self.curves)
        yield Route(f"{one}/progress", self.progress)
        yield Route(f"{one}/drawn.png", self.drawn)
        yield Route(f"{one}/model/{{file}}", self.model_file)
        changes = (self.download, self.evaluate, self.tag, self.rename, self.remove, self.push)
        for action in (*changes, self.start, self.look, self.upload, self.decode, self.strips, self.matrix):
            yield Route(f"{one}/{action.__name__}", action, methods=["POST"])
        yield Route(f"{one}/{{name:path}}", self.picture)


async def _beside(work: Callable[[], T]) -> T:
    """Run blocking work in a thread, which is abandoned at its deadline."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def _in_time(action: Callable[[Request], Any], seconds: float) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler with a deadline."""

    async def timed(request: Request) -> Response:
        with anyio.move_on_after(seconds):
            if inspect.iscoroutinefunction(action):
                return cast(Response, await action(request))
            return cast(Response, await _beside(lambda: action(request)))
        raise TimeoutError(f"No result after {seconds:g} seconds. Try again, or restart `unknot browse`.")

    return timed


def _png(content: bytes) -> Response:
    return Response(content, media_type="image/png", headers={"cache-control": "private, max-age=3600"})


def _count(value: Any) -> int | None:
    """Return a small number of a request, if it is one."""
    text = str(value)
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def browse_app(index: Index, token: str, host: str = "127.0.0.1", keys: Keys | None = None) -> ASGIApp:
    """Return the app for an index.

    Args:
        index: index of the checkpoints.
        token: token that expensive requests must carry.
        host: further host name of the page, in addition to IP addresses and this machine's names.
        keys: keys that admit a browser.
    """

    def failed(status: int) -> Callable[[Request, Any], Response]:
        return lambda request, error: Answer({"error": plain(error, 1000)}, status)

    handlers: dict[Any, Callable[[Request, Any], Response | Awaitable[Response]]] = {
        HTTPException: lambda request, error: Answer({"error": error.detail}, error.status_code),
        FileNotFoundError: failed(404),
        AccessError: failed(403),
        UnreachableError: failed(502),
        TimeoutError: failed(504),
        OSError: failed(500),
        ValueError: failed(422),
        Exception: lambda request, error: Answer(
            {"error": f"Something went wrong here ({type(error).__name__}). The terminal shows where."}, 500
        ),
    }
    keys = keys or Keys()
    app = Starlette(routes=list(Pages(index, token, keys).routes()), exception_handlers=handlers)
    return Guard(app, token, host, keys)  # outermost, so that it also covers error responses


def browse(
    folders: Iterable[str | Path] = (),
    endpoint: str | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page until interrupted.

    Args:
        folders: folders with saved models and runs, in addition to bundled, cached and remote checkpoints.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        host: address to listen on; only this machine by default.
        port: port; 0 for any free one; by default 8800, or a free one if it is in use.
        open_browser: open the page in a browser.
        say: function called with each message.
    """
    index, token = Index(folders, endpoint), secrets.token_urlsafe(24)
    listening = _listen(host, port)
    address = serving.address_of(listening, host)
    keys = Keys(lambda key: say(f"Opened. For another browser: {address}/?key={key}"))
    say(f"{len(index.entries)} checkpoints on this machine at {address}/?key={keys.current} (Ctrl-C stops)")
    if host not in serving.LOOPBACK:
        say("Others can reach this address; who has the key can use the page as you do: in a trusted network only.")

    def ask() -> None:
        index.refresh()
        index.learn()

    threading.Thread(target=ask, daemon=True).start()
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(f"{address}/?key={keys.current}",), daemon=True).start()
    serving.run(browse_app(index, token, host, keys), listening)


def _listen(host: str, port: int | None) -> socket.socket:
    try:
        return serving.listen(host, PORT if port is None else port)
    except OSError:
        if port is None:
            return serving.listen(host, 0)
        raise
