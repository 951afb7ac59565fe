"""The page to browse trained checkpoints: its server on this machine, and its export as one file.

Cards, names and scores come from strangers. They travel as JSON, and the page makes text of them and nothing else.
Models are loaded by :func:`unknot.hub.load` alone, and only when somebody asks for one.
"""

import base64
import contextlib
import hashlib
import hmac
import io
import ipaddress
import json
import os
import re
import secrets
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image, ImageChops
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tqdm.auto import tqdm

from unknot._files import replacing
from unknot.hub.cards import plain
from unknot.hub.client import MAX_PIXELS
from unknot.hub.errors import AccessError, UnreachableError
from unknot.hub.index import Entry, Index, place
from unknot.hub.listing import pull
from unknot.hub.serving import body_json, field

PAGE = Path(__file__).parent / "page"
PORT = 8800
WIDTHS = {"small": 480, "large": 1600}
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
LINK = '<link rel="stylesheet" href="page/browse.css">'
SCRIPT = '<script src="page/browse.js" defer></script>'
TOKEN = '<meta name="token" content="">'


@lru_cache(maxsize=256)
def read_picture(path: Path, width: int, changed: int, colours: int | None = None) -> bytes:
    """A picture drawn anew, so that what is sent is a PNG whatever the file was; no wider than ``width``.

    Args:
        path: of the file.
        width: in pixels.
        changed: when the file was written, so that a new one is read anew.
        colours: fewer make a smaller file.
    """
    try:
        with Image.open(path, formats=("PNG",)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError("too many pixels")
            whole = image.convert("RGB")
    except Exception as error:  # Pillow raises many kinds
        raise ValueError("This picture cannot be shown: it is not a whole PNG of reasonable size.") from error
    if width <= WIDTHS["small"]:  # without the margins, which a small picture has no room for
        corner = Image.new("RGB", whole.size, whole.getpixel((0, whole.height - 1)))
        whole = whole.crop(ImageChops.difference(whole, corner).getbbox())
    if whole.width > width:
        whole = whole.resize((width, max(1, round(whole.height * width / whole.width))), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    (whole.quantize(colours) if colours else whole).save(buffer, "PNG", optimize=colours is not None)
    return buffer.getvalue()


class Guard:
    """Lets in only who was sent by this page, and tells browsers what the page may do.

    A stranger's site can make a browser send requests here, even under the stranger's own name that now leads to this
    machine. So the name must be ours, and whatever changes or costs something needs the page's own token.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self.app, self.token = app, token
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, with the headers of the page."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        problem = self.problem(Request(scope))
        answer = JSONResponse({"error": problem}, 403) if problem else self.app
        await answer(scope, receive, send_guarded)

    def problem(self, request: Request) -> str | None:
        """Why a request is refused, if it is."""
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return "This name is not one of this server. Use the address that `unknot browse` printed."
        if request.method in ("GET", "HEAD"):
            return None
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin not in (None, f"http://{host}") or site not in (None, "same-origin", "none"):
            return "Requests from other sites are refused."
        if not hmac.compare_digest(request.headers.get("x-unknot-token", "").encode(), self.token.encode()):
            return "The page is from an earlier run of `unknot browse`. Reload it."
        return None

    def _is_ours(self, host: str) -> bool:
        name = re.sub(r":[0-9]+$", "", host).lower()
        with contextlib.suppress(ValueError):  # a stranger's name can lead here; a number is no name
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
            return True
        return name in self.names


def policy(**changes: str | None) -> str:
    """The content security policy.

    >>> policy(connect_src=None).startswith("default-src 'none'; script-src 'self'")
    True
    """
    rules = POLICY | {name.replace("_", "-"): value for name, value in changes.items()}
    return "; ".join(f"{name} {value}" for name, value in rules.items() if value)


HEADERS = [
    (b"content-security-policy", policy().encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class Pages:
    """The handlers of the app.

    Args:
        index: what is shown.
        token: that the page's requests carry.
    """

    def __init__(self, index: Index, token: str) -> None:
        self.index, self.token = index, token
        self._players: Any = None
        self._lock = threading.Lock()

    def page(self, request: Request) -> Response:
        """``GET /``."""
        text = (PAGE / "browse.html").read_text(encoding="utf-8")
        return Response(text.replace(TOKEN, TOKEN.replace('""', f'"{self.token}"')), media_type="text/html")

    def asset(self, request: Request) -> Response:
        """``GET /page/{name}``."""
        kinds = {"browse.css": "text/css", "browse.js": "text/javascript"}
        if (name := request.path_params["name"]) not in kinds:
            raise HTTPException(404, "There is no such file.")
        return Response((PAGE / name).read_bytes(), media_type=kinds[name], headers={"cache-control": "no-cache"})

    def listed(self, request: Request) -> Response:
        """``GET /api/checkpoints``."""
        return JSONResponse(self.index.listed(self._address))

    def detail(self, request: Request) -> Response:
        """``GET /api/checkpoints/{id}``."""
        entry = self._entry(request)
        return JSONResponse(self.index.record(entry, self._address) | self.index.detail(entry, self._address))

    def picture(self, request: Request) -> Response:
        """``GET /api/checkpoints/{id}/{pictures/name.png}``."""
        path = self._entry(request).pictures().get(request.path_params["name"])
        if path is None:
            raise HTTPException(404, "There is no such picture.")
        width = WIDTHS.get(request.query_params.get("size", ""), WIDTHS["large"])
        content = read_picture(path, width, path.stat().st_mtime_ns)
        return Response(content, media_type="image/png", headers={"cache-control": "private, max-age=3600"})

    def refresh(self, request: Request) -> Response:
        """``POST /api/refresh``: ask the hub and look into the folders again."""
        self.index.refresh()
        return self.listed(request)

    def download(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/download``."""
        entry = self._entry(request)
        if entry.folder is None:
            pull(str(entry.ref), endpoint=self.index.endpoint)
            self.index.entries[entry.id] = replace(entry, folder=place(entry.row))
        return self.detail(request)

    async def start(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/start``."""
        wanted = await body_json(request)
        origin, seed = field(wanted, "origin", str), field(wanted, "seed", int) % (1 << 31)
        return JSONResponse(await self._play(request, lambda player: player.start(origin, seed)))

    async def upload(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/upload``: an image as the body."""
        from unknot.hub.live import MAX_UPLOAD

        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > MAX_UPLOAD:
                raise HTTPException(413, f"The image is larger than {MAX_UPLOAD >> 20} MB; send a smaller one.")
        return JSONResponse(await self._play(request, lambda player: player.upload(bytes(content))))

    async def decode(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/decode``."""
        codes = (await body_json(request)).get("codes")
        return Response(await self._play(request, lambda player: player.decode(codes)), media_type="image/png")

    async def strips(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/strips``."""
        codes = (await body_json(request)).get("codes")
        return JSONResponse({"strips": await self._play(request, lambda player: player.strips(codes))})

    async def matrix(self, request: Request) -> Response:
        """``POST /api/checkpoints/{id}/matrix``."""
        kind = field(await body_json(request), "kind", str)
        return JSONResponse(await self._play(request, lambda player: player.matrix(kind)))

    async def _play(self, request: Request, action: Callable[[Any], Any]) -> Any:
        entry = self._entry(request)
        if entry.folder is None:
            raise HTTPException(409, "This checkpoint is on the hub only. Download it first.")
        return await run_in_threadpool(lambda: action(self.players.get(entry.key, entry.ref)))

    @property
    def players(self) -> Any:
        """Loaded models."""
        with self._lock:
            if self._players is None:
                from unknot.hub.live import Players

                self._players = Players()
            return self._players

    def _entry(self, request: Request) -> Entry:
        return self.index.get(request.path_params["id"])

    def _address(self, entry: Entry, name: str, path: Path, size: str) -> str:
        return f"api/checkpoints/{entry.id}/{quote(name)}?size={size}&changed={path.stat().st_mtime_ns}"

    def routes(self) -> Iterator[Route]:
        """Paths of the page."""
        one = "/api/checkpoints/{id}"
        yield Route("/", self.page)
        yield Route("/page/{name}", self.asset)
        yield Route("/api/checkpoints", self.listed)
        yield Route("/api/refresh", self.refresh, methods=["POST"])
        yield Route(one, self.detail)
        for action in (self.download, self.start, self.upload, self.decode, self.strips, self.matrix):
            yield Route(f"{one}/{action.__name__}", action, methods=["POST"])
        yield Route(f"{one}/{{name:path}}", self.picture)


def browse_app(index: Index, token: str, host: str = "127.0.0.1") -> ASGIApp:
    """The app for an index.

    Args:
        index: what is shown.
        token: that requests which cost something must carry.
        host: name under which the page is reached, besides numbers and this machine's names.
    """

    def told(status: int) -> Callable[[Request, Any], Response]:
        return lambda request, error: JSONResponse({"error": plain(error, 1000)}, status)

    handlers: dict[Any, Callable[[Request, Any], Response | Awaitable[Response]]] = {
        HTTPException: lambda request, error: JSONResponse({"error": error.detail}, error.status_code),
        FileNotFoundError: told(404),
        AccessError: told(403),
        UnreachableError: told(502),
        OSError: told(500),
        ValueError: told(422),
        Exception: lambda request, error: JSONResponse(
            {"error": f"Something went wrong here ({type(error).__name__}). The terminal shows where."}, 500
        ),
    }
    app = Starlette(routes=list(Pages(index, token).routes()), exception_handlers=handlers)
    return Guard(app, token, host)  # around everything, the answers to our own mistakes included


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
        folders: searched for saved models and runs of `unknot fit`, besides shipped, cached and remote checkpoints.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        host: address to listen on; only this machine by default.
        port: 0 takes a free one; by default 8800, or a free one if that is taken.
        open_browser: open the page.
        say: where messages go.
    """
    import uvicorn

    index, token = Index(folders, endpoint), secrets.token_urlsafe(24)
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    say(f"{len(index.entries)} checkpoints on this machine at {address} (Ctrl-C stops)")
    if host not in ("127.0.0.1", "::1", "localhost"):
        say("Others can reach this address, and use the page as you do: do this in a trusted network only.")

    def ask() -> None:
        index.refresh()
        index.learn()

    threading.Thread(target=ask, daemon=True).start()
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    app = browse_app(index, token, host)
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", server_header=False)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, PORT if port is None else port), family=family)
    except OSError as error:
        if port is None:
            return _listen(host, 0)
        reason = os.strerror(error.errno or 0)
        raise OSError(f"Cannot listen on {host}:{port} ({reason}). Give another --port or --host.") from None


def export(
    path: str | Path,
    folders: Iterable[str | Path] = (),
    endpoint: str | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Write the page as one file that needs no server: pictures inside, strips in place of live latents.

    Args:
        path: of the file.
        folders: searched for saved models, besides shipped, cached and remote checkpoints.
        endpoint: address of the hub.
        say: where messages go.
    """
    from unknot.hub.live import data_uri

    index, path = Index(folders, endpoint), Path(path)
    index.refresh()
    index.learn()
    if index.remote != "listed":
        say(index.note)

    def picture(entry: Entry, name: str, source: Path, size: str) -> str | None:
        width = min(WIDTHS[size], 1000)
        with contextlib.suppress(ValueError, OSError):  # a broken picture is left out
            content = read_picture(source, width, source.stat().st_mtime_ns, colours=48)
            return data_uri(content)
        return None

    details: dict[str, dict[str, Any]] = {}
    silent: UnreachableError | None = None  # once the hub stops to answer it is not waited for again
    for entry in tqdm(index.entries.values(), desc="drawing", unit="checkpoint", disable=None, leave=False):
        try:
            if silent and entry.folder is None:
                raise silent
            details[entry.id] = index.detail(entry, picture) | _drawn(entry)
        except (ValueError, OSError) as error:  # told on its page, as the server would
            silent = error if isinstance(error, UnreachableError) else silent
            details[entry.id] = {"error": plain(error, 1000)}
    with replacing(path) as beside:
        beside.write_text(inline(index.listed(picture) | {"details": details}), encoding="utf-8")
    say(f"Wrote {len(index.entries)} checkpoints to {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return path


def _drawn(entry: Entry) -> dict[str, Any]:
    """Strips and factor-code matrix of a model that is at hand; why not, where that fails."""
    if entry.folder is None:
        return {}
    from unknot.hub.live import Player
    from unknot.hub.loading import load

    try:
        player = Player(load(entry.ref, local_files_only=True))
        started = player.start("data" if player.dataset else "prior", 0)
        return {"drawn": started, "matrix": player.matrix("information") if player.dataset else None}
    except (ValueError, OSError) as error:
        return {"undrawn": plain(error, 1000)}


def inline(data: dict[str, Any]) -> str:
    """The page with its style, script and data inside, allowed by their hashes."""
    html, css, script = ((PAGE / f"browse.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    allowed = policy(
        script_src=_hashed(script),
        style_src=_hashed(css),
        img_src="data: blob:",
        connect_src=None,
        frame_ancestors=None,
    )
    # Nothing in the data can end the element that holds it: there is no `<` left.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    for mark, content in (
        (TOKEN, f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'),
        (LINK, f"<style>{css}</style>"),
        (SCRIPT, f'<script type="application/json" id="data">{text}</script>\n<script>{script}</script>'),
    ):
        before, found, after = html.partition(mark)
        assert found, mark
        html = before + content + after
    return html


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
