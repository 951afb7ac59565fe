"""The pages: what is sent to a browser, and what it is allowed to do with it.

The scripts are modules, read by the browser as they are. For a page in a single file they are put together: an import
names what it takes, and names are used once among all modules, so that taking the imports out is enough.
"""

import base64
import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

PAGE = Path(__file__).parent / "page"
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
KINDS = {".css": "text/css", ".js": "text/javascript"}
LINK = '<link rel="stylesheet" href="page/page.css">'
SCRIPT = '<script type="module" src="page/browse.js"></script>'
TOKEN = '<meta name="token" content="">'
CLOSED = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>unknot</title>
<p>Open the page by the address with a key that <code>unknot browse</code> printed; each address opens once.</p>
"""
IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./([a-z-]+\.js)";\n', re.MULTILINE)


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


def asset(name: str) -> Response:
    """A style or a script."""
    path = PAGE / name
    if not re.fullmatch(r"[a-z-]+\.(css|js)", name) or not path.is_file():
        raise HTTPException(404, "There is no such file.")
    return Response(path.read_bytes(), media_type=KINDS[path.suffix], headers={"cache-control": "no-cache"})


def page_with(token: str, name: str = "browse.html") -> str:
    """A page with the token that its requests carry."""
    return (PAGE / name).read_text(encoding="utf-8").replace(TOKEN, TOKEN.replace('""', f'"{token}"'))


@lru_cache
def modules(name: str = "browse.js") -> tuple[str, ...]:
    """A module and all that it imports, each after what it needs."""
    found: dict[str, None] = {}

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, f"{module} imports itself by way of {above}"
        for needed in IMPORT.findall((PAGE / module).read_text(encoding="utf-8")):
            visit(needed, (*above, module))
        found[module] = None

    visit(name, ())
    return tuple(found)


def joined(name: str = "browse.js") -> str:
    """The modules as one script."""
    parts = []
    for module in modules(name):
        text = IMPORT.sub("", (PAGE / module).read_text(encoding="utf-8"))
        parts.append(re.sub(r"^export (?=(?:async )?function|const|let|class)", "", text, flags=re.MULTILINE))
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def bundle(data: dict[str, Any]) -> str:
    """The page with its style, script and data inside, allowed by their hashes."""
    html, css = ((PAGE / name).read_text(encoding="utf-8") for name in ("browse.html", "page.css"))
    script = joined()
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
