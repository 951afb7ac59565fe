"""Web pages: their files, content security policy, and bundling.

The scripts are plain modules. For a page in a single file they are concatenated: an import names its bindings, and
names are unique among all modules, so that removing the imports is enough.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

PAGE = Path(__file__).parent / "page"
WASM = "'wasm-unsafe-eval'"
"""Policy that allows WebAssembly, but no evaluation of text."""
POLICY = {
    "default-src": "'none'",
    "script-src": f"'self' {WASM}",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "connect-src": "'self'",
    "worker-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
KINDS = {".css": "text/css", ".js": "text/javascript"}
LINK = '<link rel="stylesheet" href="page/page.css">'
SCRIPT = '<script type="module" src="page/browse.js"></script>'
TOKEN = '<meta name="token" content="">'
CLOSED = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>unknot</title>
<p>Open the page by the address with a key that <code>unknot browse</code> printed. Each address opens once: the
terminal shows the next one, and so does “Open elsewhere” on the page where it is open.</p>
"""
IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./([a-z-]+\.js)";\n', re.MULTILINE)


def policy(**changes: str | None) -> str:
    """Return the content security policy.

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


def asset(name: str) -> Response:
    """Return a style sheet or script."""
    path = PAGE / name
    if not re.fullmatch(r"[a-z-]+\.(css|js)", name) or not path.is_file():
        raise HTTPException(404, "There is no such file.")
    return Response(path.read_bytes(), media_type=KINDS[path.suffix], headers={"cache-control": "no-cache"})


def page_with(token: str, name: str = "browse.html") -> str:
    """Return a page with the token for its requests."""
    return (PAGE / name).read_text(encoding="utf-8").replace(TOKEN, TOKEN.replace('""', f'"{token}"'))


@lru_cache
def modules(name: str = "browse.js") -> tuple[str, ...]:
    """Return a module and all that it imports, each after its dependencies."""
    found: dict[str, None] = {}

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, f"{module} imports itself by way of {above}"
        for needed in IMPORT.findall((PAGE / module).read_text(encoding="utf-8")):
            visit(needed, (*above, module))
        found[module] = None

    visit(name, ())
    return tuple(found)


def joined(name: str = "browse.js") -> str:
    """Return the modules as one script."""
    parts = []
    for module in modules(name):
        text = IMPORT.sub("", (PAGE / module).read_text(encoding="utf-8"))
        parts.append(re.sub(r"^export (?=(?:async )?function|const|let|class)", "", text, flags=re.MULTILINE))
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def _json(data: dict[str, Any]) -> str:
    """Return JSON for an element of a page, without ``<``, so that it cannot end the element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _filled(replacements: Iterable[tuple[str, str]]) -> str:
    html = (PAGE / "browse.html").read_text(encoding="utf-8")
    for mark, content in replacements:
        before, found, after = html.partition(mark)
        assert found, mark
        html = before + content + after
    return html


def static_page(data: dict[str, Any]) -> str:
    """Return the page of a static folder, with the list inside; it loads files of its own folder only."""
    allowed = policy(frame_ancestors=None)
    return _filled(
        (
            (TOKEN, f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'),
            (SCRIPT, f'<script type="application/json" id="data">{_json(data)}</script>\n{SCRIPT}'),
        )
    )


def bundle(data: dict[str, Any], parts: Mapping[str, str] | None = None) -> str:
    """Return the page with its style, script and data inside, allowed by their hashes.

    Args:
        data: data of the page.
        parts: further files in base64, by the id of their element.
    """
    css, script, worker = (PAGE / "page.css").read_text(encoding="utf-8"), joined(), joined("worker.js")
    assert "</script" not in worker
    allowed = policy(
        script_src=f"{_hashed(script)} {WASM}",
        style_src=_hashed(css),
        img_src="data: blob:",
        connect_src=None,
        worker_src="blob:",
        frame_ancestors=None,
    )
    held = "".join(f'<script type="text/plain" id="{name}">{text}</script>\n' for name, text in (parts or {}).items())
    held += f'<script type="text/plain" id="worker">{worker}</script>\n'
    return _filled(
        (
            (TOKEN, f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'),
            (LINK, f"<style>{css}</style>"),
            (
                SCRIPT,
                f'<script type="application/json" id="data">{_json(data)}</script>\n{held}<script>{script}</script>',
            ),
        )
    )


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
