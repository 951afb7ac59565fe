"""Catalogue of all repositories, kept in memory so that cards are not read for every request."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from unknot.checkpoints.card import MAX_CARD, Card, read_card
from unknot.files import Cache, read_limited, replacing
from unknot.hub.server.commit_log import Commit, Damaged, Repo
from unknot.hub.server.storage import Missing, Store

CARDS = 128 << 20
"""Bytes of cards, as JSON, that stay in memory."""
MAX_TAGS, MAX_TAG = 100, 100


@dataclass(frozen=True)
class Row:
    """Repository at the head of main, with the fields for filtering and sorting."""

    repo: Repo
    commit: str
    created: str
    modified: str
    tags: tuple[str, ...]
    pipeline: str | None
    library: str | None
    card: str | None


class Catalogue:
    """Rows of all repositories, each computed once for each state of main."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._rows: dict[str, Row] = {}
        self._cards: Cache[str, str] = Cache(CARDS)

    def rows(self) -> Iterator[Row]:
        """Return all rows that can be read."""
        names = self.store.repos()
        for gone in self._rows.keys() - set(names):
            self._rows.pop(gone, None)
        for repo_id in names:
            with suppress(Missing, Damaged):  # just deleted, or damaged
                yield self.row(repo_id)

    def row(self, repo_id: str) -> Row:
        """Return the row of one repository."""
        repo, known = self.store.repo(repo_id), self._rows.get(repo_id)
        if known is None or known.repo is not repo:
            known = self._rows[repo_id] = self.describe(*self.store.snapshot(repo_id, "main"))
        return known

    def describe(self, repo: Repo, commit: Commit) -> Row:
        """Describe a repository at any commit; tags are derived from the card as on the Hub."""
        file = commit.files.get("README.md")
        metadata = json.loads(self.metadata(file["sha256"])) if file else {}
        library, pipeline = metadata.get("library_name"), metadata.get("pipeline_tag")
        tags = _texts(metadata.get("tags"))
        tags += [library] if isinstance(library, str) else []
        tags += [f"dataset:{name}" for name in _texts(metadata.get("datasets"))]
        tags += [f"license:{name}" for name in _texts(metadata.get("license"))]
        return Row(
            repo,
            commit.id,
            repo.created,
            commit.date,
            tuple(dict.fromkeys(tag[:MAX_TAG] for tag in tags[:MAX_TAGS])),
            pipeline[:MAX_TAG] if isinstance(pipeline, str) else None,
            library[:MAX_TAG] if isinstance(library, str) else None,
            file["sha256"] if file else None,
        )

    def metadata(self, sha256: str) -> str:
        """Return the metadata of a card as JSON, parsed once and then stored on disk."""
        return self._cards.get(sha256, lambda: self._read(sha256), len)

    def card(self, sha256: str) -> Card:
        """Return a full card."""
        try:
            return read_card(read_limited(self.store.path({"sha256": sha256}), MAX_CARD))
        except (OSError, ValueError) as error:
            return Card(problem=f"not readable here ({type(error).__name__})")

    def _read(self, sha256: str) -> str:
        path = self.store.cards / sha256[:2] / sha256
        with suppress(OSError, ValueError):
            text = path.read_text(encoding="ascii")
            if isinstance(json.loads(text), dict):
                return text
        text = json.dumps(self.card(sha256).metadata, separators=(",", ":"))
        with suppress(OSError), replacing(path) as beside:
            beside.write_text(text, encoding="ascii")
        return text


def entry(row: Row, siblings: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return the Hub's description of a model, without its card."""
    repo_id = row.repo.id
    about: dict[str, Any] = {
        "_id": repo_id,
        "id": repo_id,
        "modelId": repo_id,
        "author": repo_id.split("/")[0],
        "sha": row.commit,
        "private": row.repo.private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "createdAt": row.created,
        "lastModified": row.modified,
        "tags": list(row.tags),
        "library_name": row.library,
        "pipeline_tag": row.pipeline,
    }
    return about if siblings is None else about | {"siblings": siblings}


def _texts(value: Any) -> list[str]:
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
