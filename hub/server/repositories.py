"""Request handlers for repositories: create, move, delete and list them, and manage their branches."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from html import escape
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unknot.hub.server import attributes
from unknot.hub.server.access import Access
from unknot.hub.server.catalogue import Catalogue, Row, entry
from unknot.hub.server.commit_log import Damaged
from unknot.hub.server.downloads import MODEL, REVISION, hashes
from unknot.hub.server.storage import Missing, Store, Taken
from unknot.hub.web.serving import Answer, body_json, field, refusal

PAGE = 1000
COMMITS = 100
"""Commits per page; each is read with all of its files."""
FILTERS = {"search", "author", "filter", "pipeline_tag", "gated"}
"""Parameters of a query that choose among the models."""
SHAPES = {"limit", "cursor", "sort", "direction", "full", "cardData", "config", "expand", "expand[]", "securityStatus"}
"""Parameters that choose how models are listed."""
SORTS = {"createdAt": "created", "lastModified": "modified"}
EQUAL = {"downloads", "likes", "trendingScore"}
"""Sort keys that are the same for all models here."""


class Repositories:
    """Request handlers for whole repositories.

    Args:
        store: store of the repositories.
        access: checks of rights.
    """

    def __init__(self, store: Store, access: Access) -> None:
        self.store, self.access = store, access
        self.catalogue = Catalogue(store)

    def whoami(self, request: Request) -> Response:
        """``GET /api/whoami-v2``."""
        user = self.access.known_user(request)
        spaces = [name for name, members in self.access.users.members.items() if user in members and name != user]
        orgs = [{"type": "org", "name": name, "fullname": name, "roleInOrg": "write"} for name in sorted(spaces)]
        return Answer({"type": "user", "name": user, "fullname": user, "orgs": orgs, "auth": {"type": "token"}})

    async def create(self, request: Request) -> Response:
        """``POST /api/repos/create``."""
        user, repo_id, body = await self._asked(request)
        self.access.check_write(user, repo_id)
        private = visibility(body) or False
        url = f"{request.base_url}{repo_id}"
        try:
            await run_in_threadpool(self.store.create, repo_id, private, user, {attributes.NAME: attributes.NEW})
        except Taken as error:
            return refusal(409, str(error), {}, url=url)
        return Answer({"url": url, "name": repo_id})

    async def delete(self, request: Request) -> Response:
        """``DELETE /api/repos/delete``: move to the trash."""
        user, repo_id, _ = await self._asked(request)
        return await self._change(user, repo_id, self.store.delete)

    async def move(self, request: Request) -> Response:
        """``POST /api/repos/move``."""
        user = self.access.known_user(request)
        body = await body_json(request)
        self._check_type(body)
        after = field(body, "toRepo", str)
        self.access.check_write(user, after)
        return await self._change(
            user, field(body, "fromRepo", str), lambda repo_id, user: self.store.move(repo_id, after, user)
        )

    async def _change(self, user: str, repo_id: str, change: Callable[[str, str], None]) -> Response:
        current = self.access.visible(user, repo_id)
        self.access.check_write(user, current)
        await run_in_threadpool(change, current, user)
        return Answer({})

    async def restore(self, request: Request) -> Response:
        """``POST /api/repos/restore``: restore a deleted repository."""
        user, repo_id, _ = await self._asked(request)
        self.access.check_write(user, repo_id)
        await run_in_threadpool(self.store.restore, repo_id, user)
        return Answer({"url": f"{request.base_url}{repo_id}", "name": repo_id})

    def deleted(self, request: Request) -> Response:
        """``GET /api/repos/deleted``: repositories that the user may restore."""
        user = self.access.known_user(request)
        rows = [row for row in self.store.trash.rows() if self.access.users.may_write(user, row.id)]
        return Answer([{"name": row.id, "deletedBy": row.user, "date": row.date} for row in rows])

    async def _asked(self, request: Request) -> tuple[str, str, dict[str, Any]]:
        """Return user, repository and body of a request that names a repository in its body."""
        user = self.access.known_user(request)
        body = await body_json(request)
        self._check_type(body)
        name = field(body, "name", str)
        return user, name if "/" in name else f"{body.get('organization') or user}/{name}", body

    def _check_type(self, body: dict[str, Any]) -> None:
        if body.get("type") not in (None, "model"):
            raise HTTPException(400, "This hub stores models only.")

    async def settings(self, request: Request) -> Response:
        """``PUT /api/models/{id}/settings``: set the visibility only."""
        user, repo_id = self.access.writable(request)
        body = await body_json(request)
        private = visibility(body)
        if others := sorted(body.keys() - {"visibility", "private"}):
            raise HTTPException(400, f"This hub has no setting {', '.join(others)[:100]}; nothing was changed.")
        if private is None:
            raise HTTPException(400, "This hub has one setting, visibility; nothing was changed.")
        await run_in_threadpool(self.store.set_private, repo_id, private, user)
        return Answer({"private": private})

    def may_read(self, request: Request) -> Response:
        """``GET /api/models/{id}/auth-check``."""
        self.access.readable(request)
        return Answer({})

    def may_write(self, request: Request) -> Response:
        """``GET /api/models/{id}/auth-check/write``."""
        self.access.readable(request)
        self.access.writable(request)
        return Answer({})

    async def squash(self, request: Request) -> Response:
        """``POST /api/models/{id}/super-squash/{branch}``."""
        user, repo_id = self.access.writable(request)
        branch = request.path_params["revision"]
        summary = str((await body_json(request)).get("message") or f"Squash {branch}")
        await run_in_threadpool(self.store.squash, repo_id, branch, summary, user)
        return Answer({})

    def models(self, request: Request) -> Response:
        """``GET /api/models``."""
        query = request.query_params
        full = query.get("full") == "true" or "siblings" in query.getlist("expand")
        if unknown := sorted(set(query.keys()) - FILTERS - SHAPES):
            raise HTTPException(
                400, f"This hub cannot filter by {', '.join(unknown)[:100]}, only by {sorted(FILTERS)}."
            )
        sort = query.get("sort") or "lastModified"
        if sort not in SORTS and sort not in EQUAL:
            raise HTTPException(400, f"This hub cannot sort by {sort[:50]!r}, only by {sorted([*SORTS, *EQUAL])}.")
        rows = self.visible(request)
        key = SORTS.get(sort, "modified")
        rows.sort(key=lambda row: (getattr(row, key), row.repo.id), reverse=query.get("direction") != "1")
        start, limit = _integer(query.get("cursor"), 0), min(_integer(query.get("limit"), PAGE), PAGE)
        headers = {}
        if start + limit < len(rows) and limit:
            others = [(key, value) for key, value in query.multi_items() if key != "cursor"]
            url = request.url.replace(query=urlencode([*others, ("cursor", str(start + limit))]))
            headers["Link"] = f'<{url}>; rel="next"'
        shown = []
        for row in rows[start : start + limit]:
            with suppress(Missing, Damaged):  # deleted or damaged since the row was made
                files = self.store.snapshot(row.repo.id, row.commit)[1].files if full else {}
                shown.append(self.described(row, [{"rfilename": path} for path in sorted(files)] if full else None))
        return Response(f"[{','.join(shown)}]", headers=headers, media_type="application/json")

    def visible(self, request: Request) -> list[Row]:
        """Return rows of the list that the user may see and that match the filters of the query."""
        query, user = request.query_params, self.access.user(request)
        tags = {tag for value in query.getlist("filter") for tag in value.split(",")}
        words, author = query.get("search", "").lower(), query.get("author")
        if query.get("gated", "false").lower() in ("true", "1"):
            return []  # there are none
        return [
            row
            for row in self.catalogue.rows()
            if (not row.repo.private or self.access.users.may_write(user, row.repo.id))
            and words in row.repo.id.lower()
            and author in (None, row.repo.id.split("/")[0])
            and tags <= set(row.tags)
            and query.get("pipeline_tag") in (None, row.pipeline)
        ]

    def described(self, row: Row, siblings: list[dict[str, Any]] | None) -> str:
        """Return the Hub's description of a model, as JSON; the card's part is already JSON."""
        card = self.catalogue.metadata(row.card) if row.card else "{}"
        return f'{json.dumps(entry(row, siblings))[:-1]}, "cardData": {card}}}'

    def info(self, request: Request) -> Response:
        """``GET /api/models/{id}`` and ``.../revision/{rev}``."""
        repo, commit = self.store.snapshot(self.access.readable(request), request.path_params.get("revision", "main"))
        blobs = request.query_params.get("blobs", "").lower() == "true"
        siblings = [
            {"rfilename": path, **({"size": file["size"], **hashes(file)} if blobs else {})}
            for path, file in sorted(commit.files.items())
        ]
        row = self.catalogue.describe(repo, commit)
        return Response(self.described(row, siblings), media_type="application/json")

    def refs(self, request: Request) -> Response:
        """``GET /api/models/{id}/refs``."""
        repo = self.store.repo(self.access.readable(request))
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid} for name, oid in repo.branches.items()
        ]
        tags = [{"name": name, "ref": f"refs/tags/{name}", "targetCommit": oid} for name, oid in repo.tags.items()]
        return Answer({"branches": branches, "tags": tags, "converts": []})

    def commits(self, request: Request) -> Response:
        """``GET /api/models/{id}/commits/{rev}``, page by page."""
        repo_id = self.access.readable(request)
        limit = min(_integer(request.query_params.get("limit"), COMMITS), COMMITS) or COMMITS
        rows: list[dict[str, Any]] = []
        headers = {}
        formatted = "formatted" in request.query_params.getlist("expand[]")
        for commit in islice(self.store.history(repo_id, request.path_params["revision"]), limit):
            author = {"user": commit.author, "avatar": ""}
            row: dict[str, Any] = {"title": commit.summary, "message": commit.description, "date": commit.date}
            row["authors"] = [author]
            if formatted:
                row["formatted"] = {"title": escape(commit.summary), "message": escape(commit.description)}
            rows.append({"id": commit.id, **row})
            if len(rows) == limit and commit.parent:
                url = request.url.replace(path=f"/api/models/{repo_id}/commits/{commit.parent}")
                headers["Link"] = f'<{url}>; rel="next"'
        return Answer(rows, headers=headers)

    async def point(self, kind: str, request: Request) -> Response:
        """``POST`` and ``DELETE /api/models/{id}/tag/{rev}`` and ``.../branch/{name}``."""
        user, repo_id = self.access.writable(request)
        name = request.path_params["revision"]
        revision: str | None = None
        if request.method == "POST":
            body = await body_json(request)
            revision, name = (name, field(body, "tag", str)) if kind == "tag" else ("main", name)
            revision = str(body.get("startingPoint") or revision)
        await run_in_threadpool(self.store.point, repo_id, kind, name, revision, user)
        return Answer({})

    def routes(self) -> Iterator[Route]:
        """Return the Hub's routes."""
        yield Route("/api/whoami-v2", self.whoami)
        yield Route("/api/repos/create", self.create, methods=["POST"])
        yield Route("/api/repos/delete", self.delete, methods=["DELETE"])
        yield Route("/api/repos/move", self.move, methods=["POST"])
        yield Route("/api/repos/restore", self.restore, methods=["POST"])
        yield Route("/api/repos/deleted", self.deleted)
        yield Route("/api/models", self.models)
        yield Route(MODEL, self.info)
        yield Route(f"{MODEL}/settings", self.settings, methods=["PUT"])
        yield Route(f"{MODEL}/auth-check", self.may_read)
        yield Route(f"{MODEL}/auth-check/write", self.may_write)
        yield Route(f"{MODEL}/super-squash/{REVISION}", self.squash, methods=["POST"])
        yield Route(f"{MODEL}/revision/{REVISION}", self.info)
        yield Route(f"{MODEL}/refs", self.refs)
        yield Route(f"{MODEL}/commits/{REVISION}", self.commits)
        for kind in ("tag", "branch"):
            yield Route(f"{MODEL}/{kind}/{REVISION}", partial(self.point, kind), methods=["POST", "DELETE"])


def visibility(body: dict[str, Any]) -> bool | None:
    """Return True if a request asks for a private repository, False for a public one, None if neither."""
    private, named = body.get("private"), body.get("visibility")
    if named not in (None, "public", "private") or not isinstance(private, bool | None):
        raise HTTPException(400, "A repository is 'public' or 'private' here; nothing was changed.")
    return private if named is None else named == "private"


def _integer(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else default
