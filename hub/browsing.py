"""The page to browse trained checkpoints: its index, its server on this machine, and its export as one file.

Cards, names and scores come from strangers. They travel as JSON, and the page makes text of them and nothing else.
Models are loaded by :func:`unknot.hub.load` alone, and only when somebody asks for one.
"""

import base64
import contextlib
import csv
import hashlib
import hmac
import io
import ipaddress
import json
import math
import os
import re
import secrets
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
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
from unknot.hub import client
from unknot.hub.cards import label, plain
from unknot.hub.errors import AccessError, MissingError, UnreachableError
from unknot.hub.listing import SOURCES, Checkpoint, describe_folder, gather, pull, show
from unknot.hub.refs import shipped_folder
from unknot.hub.server import body_json, field

PAGE = Path(__file__).parent / "page"
PORT = 8800
DEPTH, MAX_FOUND = 8, 5000
MAX_PIXELS = 40_000_000
WIDTHS = {"small": 480, "large": 1600}
POINTS = 500
LOWER = ("unfairness", "total_correlation", "elbo_reconstruction", "elbo_kl")
"""Beginnings of scores of which less is better."""
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


@dataclass(frozen=True)
class Entry:
    """A checkpoint of the page: its row, and where its files are if they are on this disk."""

    row: Checkpoint
    folder: Path | None = None
    run: Path | None = None

    @property
    def id(self) -> str:
        """A name for addresses, the same every time."""
        return hashlib.sha256(self.row.ref.encode(errors="replace")).hexdigest()[:12]

    @property
    def ref(self) -> Any:
        """What ``load`` takes."""
        if "folder" in self.row.sources:
            return self.folder
        return f"{self.row.ref}@{self.row.commit}" if self.row.commit else self.row.ref

    @property
    def key(self) -> str:
        """Changes when the weights do."""
        assert self.folder is not None
        return f"{self.folder}@{(self.folder / 'model.safetensors').stat().st_mtime_ns}"

    def pictures(self) -> dict[str, Path]:
        """Pictures by their name in the card; of those of a run the last of each kind."""
        found: dict[str, Path] = {}
        for base in filter(None, (self.run, self.folder)):
            for path in sorted(base.glob("pictures/*.png"))[:200]:
                name = (
                    f"pictures/{re.sub(r'-[0-9]+$', '', path.stem)}.png"
                    if base == self.run
                    else f"pictures/{path.name}"
                )
                if client.PICTURE.fullmatch(name) and path.is_file() and path.stat().st_size <= client.MAX_PICTURE:
                    found[name] = path
        return dict(sorted(found.items(), key=lambda item: ("traversals" not in item[0], item[0])))


class Index:
    """All checkpoints that the page shows: those on this disk at once, those of the hub when it has answered.

    Args:
        folders: searched for saved models and runs of `unknot fit`.
        endpoint: address of the hub.
    """

    def __init__(self, folders: Iterable[str | Path] = (), endpoint: str | None = None) -> None:
        self.endpoint, self.folders = endpoint, [Path(folder) for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise FileNotFoundError(
                    f"{folder}: no such folder. Give one with saved models or runs of `unknot fit`."
                )
        self._lock = threading.Lock()
        self.remote, self.note, self.ready = "asking", "", False
        self.about: Callable[[str | None], dict[str, Any]] = lambda name: {}
        self._take(gather(("shipped", "cached"))[0])

    def _take(self, rows: list[Checkpoint]) -> None:
        entries = [Entry(row, _place(row)) for row in rows]
        for folder in self.folders:
            entries += find_models(folder)
        self.entries = {entry.id: entry for entry in entries}

    def refresh(self) -> None:
        """Ask the hub, within its deadline. Without an answer the last one stays, and ``remote`` says so."""
        with self._lock:
            if client.is_offline():
                self.remote, self.note = "offline", "Offline mode is on (HF_HUB_OFFLINE): the hub is not asked."
                return self._take(gather(("shipped", "cached"))[0])
            known = [entry.row for entry in self.entries.values() if entry.row.sources == ("remote",)]
            before, self.remote = self.remote, "asking"
            rows, notes = gather(SOURCES, self.endpoint)
            if not notes:
                self.remote, self.note = "listed", client.endpoint_of(self.endpoint)
            else:
                self.remote = "stale" if before in ("listed", "stale") else "offline"
                self.note = plain(notes[0], 500)
                here = {row.ref for row in rows}
                rows += [row for row in known if row.ref not in here]
            self._take(rows)

    def learn(self) -> None:
        """Learn about the models of the zoo, which takes torch some seconds to import."""
        from unknot.hub.live import describe_model

        self.about, self.ready = describe_model, True

    def get(self, key: str) -> Entry:
        """A checkpoint by its id."""
        if key not in self.entries:
            raise MissingError("There is no such checkpoint any more. Reload the page.")
        return self.entries[key]

    def record(self, entry: Entry, picture: "PictureAddress") -> dict[str, Any]:
        """What the gallery shows."""
        about = self.about(entry.row.model)
        first = next(iter(entry.pictures().items()), None)
        record = entry.row.to_dict() | {
            "id": entry.id,
            "family": entry.row.family or about.get("family"),
            "latents": about.get("latents"),
            "local": entry.folder is not None,
            "thumbnail": picture(entry, *first, "small") if first else None,
        }
        return record

    def listed(self, picture: "PictureAddress") -> dict[str, Any]:
        """All records, and how the hub's list came about."""
        records = [self.record(entry, picture) for entry in self.entries.values()]
        scores = sorted({score for record in records for score in record["scores"]})
        return {
            "checkpoints": records,
            "labels": {score: label(score) for score in scores},
            "lower": [score for score in scores if score.startswith(LOWER)],
            "remote": self.remote,
            "note": self.note,
            "ready": self.ready,
        }

    def detail(self, entry: Entry, picture: "PictureAddress") -> dict[str, Any]:
        """What the page of one checkpoint shows besides; a remote one's card is asked for."""
        if entry.folder is None:
            described = show(str(entry.ref), self.endpoint)
        else:
            described = describe_folder(entry.folder, entry.row.ref, entry.row.sources[0], entry.row.commit)
        return {
            "files": described.files,
            "card": described.body,
            "arguments": _arguments(entry.folder),
            "pictures": [
                {"name": name, "url": picture(entry, name, path, "large")} for name, path in entry.pictures().items()
            ],
            "training": _training(entry),
            "load": f"from unknot.hub import load\n\nmodel = load({str(entry.ref)!r})",
        }


PictureAddress = Callable[[Entry, str, Path, str], str | None]


def find_models(root: Path) -> Iterator[Entry]:
    """Saved models under a folder; one that `unknot fit` wrote comes with its run."""
    found = 0
    walk = tqdm(os.walk(root), desc=f"searching {root}", unit="folder", disable=None, leave=False, delay=1)
    for name, folders, files in walk:
        path = Path(name)
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        if len(path.relative_to(root).parts) >= DEPTH:
            folders.clear()
        if {"config.json", "model.safetensors"} <= set(files):
            found += 1
            if found > MAX_FOUND:
                return
            run = path.parent if path.name == "model" and (path.parent / "config.yaml").is_file() else None
            yield Entry(_row_of(path, run), path, run)


def _row_of(path: Path, run: Path | None) -> Checkpoint:
    ref = str(run or path)
    try:
        row = describe_folder(path, ref, "folder").checkpoint
        changed = (path / "model.safetensors").stat().st_mtime
        modified = datetime.fromtimestamp(changed, timezone.utc).isoformat(timespec="seconds")
        return replace(row, modified=modified, scores=row.scores or _scores(run or path), seed=_seed(row, run))
    except OSError as error:  # one that cannot be read does not hide the others
        return Checkpoint(ref, ("folder",), problem=plain(error))


def _scores(folder: Path) -> dict[str, float]:
    """Of ``scores.json``, which `unknot evaluate --json` wrote there; details (``name/...``) are left out."""
    loaded = _json(folder / "scores.json")
    numbers = {name: value for name, value in loaded.items() if isinstance(value, int | float) and "/" not in name}
    return {name[:100]: float(value) for name, value in numbers.items() if abs(value) < math.inf}


def _seed(row: Checkpoint, run: Path | None) -> int | None:
    if row.seed is None and run is not None and (run / "config.yaml").stat().st_size <= 1 << 20:
        text = (run / "config.yaml").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^seed_everything: ([0-9]{1,18})$", text, re.MULTILINE)
        return int(found[1]) if found else None
    return row.seed


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > 1 << 20:
            return {}
        loaded = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _arguments(folder: Path | None) -> dict[str, Any] | None:
    arguments = _json(folder / "config.json").get("arguments") if folder else None
    return arguments if isinstance(arguments, dict) else None


def _place(row: Checkpoint) -> Path | None:
    """Where the files of what ``load`` would give are, if all of them are here."""
    if "shipped" in row.sources:
        return shipped_folder(row.ref)
    if row.commit and client.cached_commit(row.ref, row.commit):
        return client.repo_cache(row.ref) / "snapshots" / row.commit
    return None


def _training(entry: Entry) -> dict[str, list[list[float]]]:
    """Columns of the record of a training, each ``[[step, value], ...]``, thinned to what a curve can show."""
    path = entry.run / "metrics.csv" if entry.run else entry.folder / "training.csv" if entry.folder else None
    if path is None or not path.is_file() or path.stat().st_size > client.LIMITS["training.csv"]:
        return {}
    columns: dict[str, list[list[float]]] = {}
    with path.open(encoding="utf-8", errors="replace", newline="") as file, contextlib.suppress(csv.Error):
        for number, line in enumerate(csv.DictReader(file)):
            step = _number(line.get("step"))
            for name, text in line.items():
                value = _number(text)
                if isinstance(name, str) and name not in ("step", "epoch") and value is not None:
                    columns.setdefault(name[:100], []).append([number if step is None else step, value])
    return {name: values[:: -(-len(values) // POINTS)] for name, values in list(columns.items())[:50]}


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


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
            self.index.entries[entry.id] = replace(entry, folder=_place(entry.row))
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
    index, path = Index(folders, endpoint), Path(path)
    index.refresh()
    index.learn()
    if index.remote != "listed":
        say(index.note)

    def picture(entry: Entry, name: str, source: Path, size: str) -> str | None:
        width = min(WIDTHS[size], 1000)
        with contextlib.suppress(ValueError, OSError):  # a broken picture is left out
            content = read_picture(source, width, source.stat().st_mtime_ns, colours=48)
            return "data:image/png;base64," + base64.b64encode(content).decode()
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
