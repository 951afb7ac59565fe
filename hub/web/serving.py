"""Parts of both servers: the socket, limits on time and connections, host names, and request bodies."""

import contextlib
import ipaddress
import json
import math
import os
import re
import signal
import socket
from asyncio import TimerHandle
from collections.abc import AsyncIterator, Iterable
from types import FrameType
from typing import Any, ClassVar, TypeVar

import anyio
import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

JSON_LIMIT = 4 << 20
PATIENCE = 256 << 20  # bytes of a rejected upload that are still read, so that its sender gets the response
HEADERS = 15.0
"""Seconds that a request has for its headers."""
STALL = 30.0
"""Seconds after which a stalled body is closed; four times as many for a response that is not read."""
WHOLE = 120.0
"""Seconds that a short body may take."""
GRACE = 5.0
"""Seconds that requests have to end once the server was asked to stop."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
T = TypeVar("T")


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, without Nagle's delay, which adds 40 ms to every small response."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio checks the protocol
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = os.strerror(getattr(error, "errno", 0) or 0) if isinstance(error, OSError) else str(error)
        raise OSError(f"Cannot listen on {host}:{port} ({reason}). Give another --port or --host.") from None
    return listening


def address_of(listening: socket.socket, host: str) -> str:
    """Return the address for a browser."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until interrupted; a second signal stops immediately."""
    with contextlib.suppress(KeyboardInterrupt):
        make_server(app).run(sockets=[listening])


def make_server(app: ASGIApp, log_level: str = "warning") -> uvicorn.Server:
    """Return a server with our limits."""
    return _Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            log_level=log_level,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=max(64, _descriptors() // 2),
            timeout_graceful_shutdown=GRACE,  # type: ignore[arg-type]
        )
    )


PRIVATE = ("cycle", "loop", "transport", "connection_made", "data_received", "connection_lost")
"""Private parts of uvicorn's ``H11Protocol`` that unknot uses, in this module only. A test checks them."""


class _Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            sig = signal.SIGINT  # a second signal means immediately
        super().handle_exit(sig, frame)


class _Protocol(H11Protocol):
    """HTTP protocol that closes slow connections, and the oldest ones if there are too many.

    Of uvicorn's protocols, only this one limits the headers of a request.
    """

    waiting: ClassVar[dict["_Protocol", TimerHandle]] = {}

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        if self not in self.waiting and (before is None or before.response_complete):
            self._wait()
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self.waiting[self] = self.loop.call_later(HEADERS, self._give_up)
        if len(self.waiting) > max(64, _descriptors() // 4):
            next(iter(self.waiting))._give_up()

    def _stop_waiting(self) -> None:
        if self in self.waiting:
            self.waiting.pop(self).cancel()

    def _give_up(self) -> None:
        self._stop_waiting()
        self.transport.abort()


def _descriptors() -> int:
    """Return the number of files and sockets that this process may open, limited by memory (1 MB for a slow reader)."""
    try:
        import resource

        return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2048)
    except (ImportError, ValueError):
        return 1024


class Names:
    """Middleware that admits only requests for a name of this machine, and drops slow readers.

    A hostile site can resolve its own name to this machine, and a browser then sends requests here under that name. IP
    addresses are accepted if they are this machine's: a loopback address, or the address of the connection. Addresses
    in responses follow the Host header, so another IP address would be passed on.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self.app = app
        self.names = {"localhost", socket.gethostname().lower(), *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle or reject a request."""
        if scope["type"] != "http":
            return

        async def send_in_time(message: Message) -> None:
            with anyio.fail_after(4 * STALL):
                await send(message)

        problem = self.problem(Request(scope))
        answer = refusal(403, problem, {}) if problem else self.app
        with contextlib.suppress(TimeoutError):
            await answer(scope, receive, send_in_time)

    def problem(self, request: Request) -> str | None:
        """Return the reason why a request is rejected, or None."""
        host, reached = request.headers.get("host", ""), request.scope.get("server") or ("",)
        if not is_ours(host, self.names, str(reached[0])):
            return (
                f"This server is not called {host[:100]!r}. Use the address that it printed, or serve it with --name."
            )
        return None


def is_ours(host: str, names: set[str], reached: str = "") -> bool:
    """Return whether a Host header is one of the names, a loopback address, or the address that was reached.

    >>> is_ours("127.0.0.1:8000", set()), is_ours("[::1]", set()), is_ours("evil.example:8000", {"localhost"})
    (True, True, False)
    >>> is_ours("10.0.0.5:8000", set(), "10.0.0.5"), is_ours("10.0.0.5:8000", {"10.0.0.5"}), is_ours("6.6.6.6:9", set())
    (True, True, False)
    """
    name = re.sub(r":[0-9]+$", "", host).lower().removeprefix("[").removesuffix("]")
    if name in names:
        return True
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(name)
        return address.is_loopback or address == ipaddress.ip_address(reached.removeprefix("::ffff:"))
    return False


class Answer(JSONResponse):
    """JSON response in ASCII, so that untrusted text cannot prevent it from being sent."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content, separators=(",", ":")).encode()


class Content(FileResponse):
    """File response in large pieces, as each piece requires a switch to a thread."""

    chunk_size = 1 << 18  # larger pieces are hardly faster, and each slow reader holds one or two


def refusal(status: int, message: str, headers: dict[str, str], code: str | None = None, **more: str) -> Response:
    """Return an error, in the headers for clients and in the body for people."""
    line = " ".join(message.split()).encode("ascii", "replace").decode()[:500]
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    named = {"X-Error-Code": code} if code else {}
    return Answer({"error": message, **more}, status, headers | named | {"X-Error-Message": line})


async def chunks(request: Request, whole: float = math.inf) -> AsyncIterator[bytes]:
    """Yield the body in parts; raise an error if it stalls, or takes more than ``whole`` seconds."""
    stream, until = aiter(request.stream()), anyio.current_time() + whole
    while True:
        try:
            with anyio.fail_after(min(STALL, until - anyio.current_time())):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise HTTPException(408, "Timed out while reading the request body.") from None
        if chunk is None:
            return
        yield chunk


async def drain(parts: AsyncIterator[bytes]) -> None:
    """Read the rest of a request for a limited time, so that the client gets the response."""
    size = 0
    with anyio.move_on_after(STALL):
        async for chunk in parts:
            size += len(chunk)
            if size > PATIENCE:
                return


async def body_bytes(request: Request, limit: int = JSON_LIMIT) -> bytes:
    """Return a short body."""
    body = bytearray()
    async for chunk in chunks(request, WHOLE):
        body += chunk
        if len(body) > limit:
            raise HTTPException(413, f"The body of this request is longer than {limit:,} bytes.")
    return bytes(body)


async def body_json(request: Request) -> dict[str, Any]:
    """Return a short body that is a JSON object."""
    value = parse(await body_bytes(request) or b"{}")
    if not isinstance(value, dict):
        raise ValueError("The body of this request must be a JSON object.")
    return value


def parse(text: bytes) -> Any:
    """Parse JSON; raise ``ValueError`` for any error."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("The request is nested too deeply.") from None


def field(value: Any, key: str, kind: type[T]) -> T:
    """Return a required entry of a JSON object, of a given type."""
    entry = value.get(key) if isinstance(value, dict) else None
    if not isinstance(entry, kind):
        raise ValueError(f"The request must contain {key!r}, of type {kind.__name__}.")
    return entry
