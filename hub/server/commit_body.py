"""Streaming parser for the body of a commit: one JSON object per line, with contents of files as base64.

A file of a gigabyte is one line of such a body. Its content is decoded on the fly and written to disk; only a few
megabytes are in memory at a time.
"""

import base64
import binascii
import re
from contextlib import ExitStack
from typing import Any

from starlette.exceptions import HTTPException

from unknot.hub.server.commit_log import Files
from unknot.hub.server.file_names import check_file_name
from unknot.hub.server.incoming import Incoming
from unknot.hub.server.storage import MAX_FILES, Store
from unknot.hub.web.serving import field, parse

SHORT = 1 << 20
"""Bytes of a line that are read as a whole."""
MAX_CHANGES = 2 * MAX_FILES
BEGIN = re.compile(rb'"content"\s*:\s*"')


class CommitReader:
    """Parse the body of a commit and store its contents, which stay unreferenced until :meth:`finish`.

    Args:
        store: store of the contents.
        max_file: maximum size of a file in bytes.
        namespace: namespace whose quota applies.
    """

    def __init__(self, store: Store, max_file: int, namespace: str = "") -> None:
        self.store, self.max_file, self.namespace = store, max_file, namespace
        self.header: dict[str, Any] = {}
        self.added: Files = {}
        self.deleted: list[str] = []
        self._pending = bytearray()
        self._begin = b""
        self._incoming: Incoming | None = None
        self._kept: dict[str, Any] | None = None
        self._came: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> "CommitReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.store.contents.discard(self._came)  # contents without a commit are unreferenced

    def feed(self, data: bytes) -> None:
        """Parse the next part of the body."""
        self._pending += data
        while self._step():
            pass

    def _step(self) -> bool:
        """Process pending data; return False if more is needed."""
        if self._incoming is not None:
            return self._decode(self._incoming)
        end = self._pending.find(b"\n")
        if end >= 0:
            line = bytes(self._pending[:end])
            del self._pending[: end + 1]
            self._line(line)
            return True
        if self._kept is None and len(self._pending) > SHORT:
            begin = BEGIN.search(self._pending, 0, 8192)
            if not begin:
                raise ValueError("A line of this commit is too long, and does not start with the content of a file.")
            self._begin = bytes(self._pending[: begin.end()])
            del self._pending[: begin.end()]
            self._incoming = self._stack.enter_context(self.store.contents.incoming())
            return True
        if len(self._pending) > SHORT:
            raise ValueError("A line of this commit does not end.")
        return False

    def _decode(self, incoming: Incoming) -> bool:
        end = self._pending.find(b'"')
        usable = end if end >= 0 else len(self._pending) // 4 * 4
        if usable:
            with memoryview(self._pending) as pending, pending[:usable] as text:
                incoming.write(_decoded(text))
            self._check_size(incoming.size)
            self.store.quota.check(self.namespace, {"": incoming.size})
            del self._pending[:usable]
        if end < 0:
            return False
        self._kept, self._incoming = self._note(incoming), None
        return True

    def _note(self, incoming: Incoming) -> dict[str, Any]:
        kept = incoming.keep()
        if self.store.contents.came(kept["sha256"], incoming.created):
            self._came.append(kept["sha256"])
        return kept

    def _line(self, line: bytes) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            line = self._begin + line
        if not line.strip():
            return
        operation = parse(line)
        key, value = field(operation, "key", str), field(operation, "value", dict)
        if key == "header":
            self.header = value
            return
        if len(self.added) + len(self.deleted) >= MAX_CHANGES:
            raise ValueError(f"This commit makes more than {MAX_CHANGES:,} changes. Make them in several.")
        path = check_file_name(field(value, "path", str).rstrip("/"))
        if key == "file":
            if value.get("encoding", "base64") != "base64":
                raise ValueError(f"{path}: contents must be encoded as base64.")
            self.added[path] = kept or self._keep(field(value, "content", str))
        elif key == "lfsFile":
            self.added[path] = self.store.contents.announced(field(value, "oid", str), value.get("size"))
        elif key in ("deletedFile", "deletedFolder"):
            self.deleted.append(path + "/" * (key == "deletedFolder"))
        else:
            raise ValueError(f"This hub does not know the operation {key[:50]!r}.")

    def _keep(self, text: str) -> dict[str, Any]:
        content = _decoded(text.encode("ascii", "replace"))
        self._check_size(len(content))
        with self.store.contents.incoming() as incoming:
            incoming.write(content)
            return self._note(incoming)

    def _check_size(self, size: int) -> None:
        if size > self.max_file:
            raise HTTPException(413, f"A file has more than {self.max_file:,} bytes, the limit of this hub.")

    def finish(self, repo_id: str, branch: str, user: str) -> str:
        """Make the commit and return its name."""
        self.feed(b"\n")
        if self._incoming is not None:
            raise ValueError("The body of this commit ends within a file.")
        parent, description = self.header.get("parentCommit"), str(self.header.get("description") or "")
        parent = None if parent is None else str(parent)
        summary = str(self.header.get("summary") or "Change files")
        oid = self.store.commit(repo_id, branch, self.added, self.deleted, parent, summary, user, description)
        self._came.clear()  # they belong to the commit
        return oid


def _decoded(text: bytes | memoryview) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"The content of a file is not base64 ({error}).") from None
