"""Rights on a lab's hub: every action tried by the owner, a member, an admin, another user and without a token."""

import json
import threading
from types import SimpleNamespace

import pytest
from huggingface_hub.utils import get_session

from unknot.hub.server.access import Users, read_users
from unknot.hub.server.app import hub_app
from unknot.hub.server.storage import Store
from unknot.hub.web import serving

ROLES = {"owner": "ann", "member": "mia", "admin": "root", "other": "bob", "anonymous": None}
USERS = Users(
    {f"token-of-{user}": user for user in ("ann", "mia", "root", "bob")},
    frozenset({"root"}),
    {"ann": frozenset({"mia"})},
)
CHANGE = (200, 200, 200, 403, 401)
ELSEWHERE = (403, 403, 200, 403, 401)
MOVE = "/api/repos/move"
HIDDEN = (200, 200, 200, 404, 404)
UNSEEN = (200, 200, 200, 404, 401)
"""Answer to a change of a private repository: others do not learn that it exists."""
ANYONE = (200,) * 5
FILE = "\n".join(
    json.dumps(line)
    for line in (
        {"key": "header", "value": {"summary": "s"}},
        {"key": "file", "value": {"path": "b.txt", "content": "eA=="}},
    )
)
BATCH = {"operation": "upload", "objects": [{"oid": "0" * 64, "size": 5}]}
ONE = "/api/models/{repo}"
# What is asked, and what the owner, a member, an admin, another user and nobody get for a public and a private one
ACTIONS = {
    "info": ("GET", ONE, None, ANYONE, HIDDEN),
    "files": ("GET", f"{ONE}/tree/main", None, ANYONE, HIDDEN),
    "paths": ("POST", f"{ONE}/paths-info/main", {"paths": ["a.txt"]}, ANYONE, HIDDEN),
    "history": ("GET", f"{ONE}/commits/main", None, ANYONE, HIDDEN),
    "branches": ("GET", f"{ONE}/refs", None, ANYONE, HIDDEN),
    "download": ("GET", "/{repo}/resolve/main/a.txt", None, ANYONE, HIDDEN),
    "may read": ("GET", f"{ONE}/auth-check", None, ANYONE, HIDDEN),
    "may write": ("GET", f"{ONE}/auth-check/write", None, CHANGE, HIDDEN),
    "ask how to send": ("POST", f"{ONE}/preupload/main", {"files": [{"path": "b", "size": 1}]}, CHANGE, UNSEEN),
    "ask where to send": ("POST", "/{repo}.git/info/lfs/objects/batch", BATCH, CHANGE, UNSEEN),
    "commit": ("POST", f"{ONE}/commit/main", FILE, CHANGE, UNSEEN),
    "make a branch": ("POST", f"{ONE}/branch/new%2Fone", {}, CHANGE, UNSEEN),
    "remove a branch": ("DELETE", f"{ONE}/branch/dev", None, CHANGE, UNSEEN),
    "make a tag": ("POST", f"{ONE}/tag/main", {"tag": "v2"}, CHANGE, UNSEEN),
    "remove a tag": ("DELETE", f"{ONE}/tag/v1", None, CHANGE, UNSEEN),
    "squash": ("POST", f"{ONE}/super-squash/main", {}, CHANGE, UNSEEN),
    "set visibility": ("PUT", f"{ONE}/settings", {"private": True}, CHANGE, UNSEEN),
    "move": ("POST", MOVE, {"fromRepo": "{repo}", "toRepo": "{repo}-b"}, CHANGE, CHANGE),
    "give away": (
        "POST",
        "/api/repos/move",
        {"fromRepo": "{repo}", "toRepo": "zoe/x"},
        (403, 403, 200, 403, 401),
        None,
    ),
    "take": (
        "POST",
        "/api/repos/move",
        {"fromRepo": "{repo}", "toRepo": "bob/{name}"},
        (403, 403, 200, 403, 401),
        None,
    ),
    "delete": ("DELETE", "/api/repos/delete", {"organization": "ann", "name": "{name}"}, CHANGE, UNSEEN),
    "restore": ("POST", "/api/repos/restore", {"organization": "ann", "name": "{name}-gone"}, CHANGE, CHANGE),
    "create": ("POST", "/api/repos/create", {"organization": "ann", "name": "{name}-new"}, CHANGE, CHANGE),
    "list deleted": ("GET", "/api/repos/deleted", None, (200, 200, 200, 200, 401), None),
    "ask who I am": ("GET", "/api/whoami-v2", None, (200, 200, 200, 200, 401), None),
    "list": ("GET", "/api/models", None, ANYONE, None),
    "check a card": ("POST", "/api/validate-yaml", {"content": "---\na: 1\n---\n"}, ANYONE, None),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A hub in this process, with five kinds of visitors."""
    store = Store(tmp_path_factory.mktemp("lab") / "store")
    listening = serving.listen("127.0.0.1", 0)
    server = serving.make_server(hub_app(store, USERS), log_level="critical")
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def send(role, method, path, body=None):
        headers = {"authorization": f"Bearer token-of-{ROLES[role]}"} if ROLES[role] else {}
        content = body if isinstance(body, str) else json.dumps(body) if body is not None else None
        return get_session().request(method, url + path, content=content, headers=headers, follow_redirects=False)

    yield SimpleNamespace(store=store, send=send)
    server.should_exit = True
    thread.join()
    store.close()


def fill(store, repo, private):
    store.create(repo, private, "ann")
    store.commit(repo, "main", {"a.txt": store.keep(b"1")}, [], None, "s", "ann")
    store.point(repo, "branch", "dev", "main", "ann")
    store.point(repo, "tag", "v1", "main", "ann")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_by_everybody(lab, action, role):
    method, path, body, *expected = ACTIONS[action]
    for private, statuses in zip((False, True), expected, strict=True):
        if statuses is None:
            continue
        name = f"{action}-{role}-{private}".replace(" ", "-")
        fill(lab.store, f"ann/{name}", private)
        if action == "restore":
            fill(lab.store, f"ann/{name}-gone", private)
            lab.store.delete(f"ann/{name}-gone", "ann")
        filled = body
        if isinstance(body, dict):
            filled = json.loads(json.dumps(body).replace("{repo}", f"ann/{name}").replace("{name}", name))
        before = lab.store.repo(f"ann/{name}"), lab.store.repos()
        response = lab.send(role, method, path.replace("{repo}", f"ann/{name}"), filled)
        assert response.status_code == statuses[list(ROLES).index(role)], (private, response.text)
        if response.status_code >= 400:
            assert (lab.store.repo(f"ann/{name}"), lab.store.repos()) == before  # nothing was changed
            assert response.json()["error"]


def test_others_see_no_private_names(lab):
    fill(lab.store, "ann/hidden", True)
    fill(lab.store, "ann/hidden-gone", True)
    lab.store.delete("ann/hidden-gone", "ann")
    lab.store.move("ann/hidden", "ann/hidden-now", "ann")
    for role, sees in zip(ROLES, (True, True, True, False, False), strict=True):
        listed = {row["id"] for row in lab.send(role, "GET", "/api/models").json()}
        assert ("ann/hidden-now" in listed) == sees
        response = lab.send(role, "GET", "/api/models/ann/hidden?blobs=true")
        assert (response.status_code, "hidden-now" in response.headers.get("location", "")) == (
            (307, True) if sees else (404, False)
        )
        if role != "anonymous":
            deleted = {row["name"] for row in lab.send(role, "GET", "/api/repos/deleted").json()}
            assert ("ann/hidden-gone" in deleted) == sees
    assert lab.send("member", "GET", "/api/whoami-v2").json()["orgs"][0]["name"] == "ann"


def test_the_log_says_who_did_what(lab):
    fill(lab.store, "ann/logged", False)
    lab.send("member", "POST", "/api/models/ann/logged/commit/main", FILE)
    lab.send("other", "DELETE", "/api/repos/delete", {"organization": "ann", "name": "logged"})  # refused
    lab.send("admin", "DELETE", "/api/repos/delete", {"organization": "ann", "name": "logged"})
    rows = map(json.loads, (lab.store.root / "audit.jsonl").read_text().splitlines())
    changes = [(row["user"], row["action"]) for row in rows if row["repo"] == "ann/logged"]
    assert changes[-2:] == [("mia", "commit"), ("root", "delete")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ann short", "expected USER TOKEN"),
        ("ann token-of-ann boss", "expected USER TOKEN"),
        ("ann token-of-ann\nbob token-of-ann", "ann has this token already"),
        ("ann token-of-ann\nlab: bob", "bob cannot be a member without a token"),
        ("ann token-of-ann\nAnn token-of-Ann", "differ only in upper and lower case"),
        ("../x token-of-x", "is not a name"),
        ("# nobody", "holds no token"),
    ],
)
def test_a_file_of_tokens_with_a_mistake_is_refused(tmp_path, text, problem):
    (tmp_path / "tokens.txt").write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_users(tmp_path / "tokens.txt", make=False)


def test_a_card_that_costs_seconds_needs_a_token(lab):
    card = {"content": "---\n" + "a:\n" * 40_000 + "---\n"}
    assert lab.send("anonymous", "POST", "/api/validate-yaml", card).status_code == 413


def test_what_the_client_asks_is_answered_as_by_the_real_hub(lab):
    fill(lab.store, "ann/asked", False)
    lab.store.commit("ann/asked", "main", {"d/e/f.txt": lab.store.keep(b"2")}, [], None, "Add f", "ann")
    for path in ("/api/models/gpt2", "/gpt2/resolve/main/config.json", "/api/models/gpt2/revision/main"):
        response = lab.send("other", "GET", path)
        assert (response.status_code, response.headers["x-error-code"]) == (404, "RepoNotFound")
        assert response.headers["x-request-id"] == response.request.headers["x-amzn-trace-id"]
    for query in ("inference=warm", "num_parameters=min:1", "trained_dataset=x"):
        response = lab.send("other", "GET", f"/api/models?{query}")
        assert (response.status_code, "cannot filter by" in response.text) == (400, True)
    assert lab.send("other", "GET", "/api/models?gated=true").json() == []
    assert lab.send("other", "GET", "/api/models?sort=names").status_code == 400
    entries = {
        row["path"]: row for row in lab.send("other", "GET", "/api/models/ann/asked/tree/main?expand=true").json()
    }
    assert {path: row["lastCommit"]["title"] for path, row in entries.items()} == {"a.txt": "s", "d": "Add f"}
    assert len(entries["d"]["oid"].strip("0")) > 30
    etag = lab.send("other", "HEAD", "/ann/asked/resolve/main/a.txt").headers["etag"]
    response = get_session().get(
        str(lab.send("other", "GET", "/ann/asked/resolve/main/a.txt").url), headers={"if-none-match": etag}
    )
    assert (response.status_code, response.content) == (304, b"")
    assert lab.send("owner", "POST", "/api/models/ann/asked/branch/a%2Fb", {}).status_code == 200
    for path in ("/api/models/ann/asked/revision/a%2Fb", "/ann/asked/resolve/a%2Fb/d/e/f.txt"):
        assert lab.send("other", "GET", path).status_code == 200
    assert lab.send("other", "GET", "/api/models/ANN/asked?x=1").headers["location"] == "/api/models/ann/asked?x=1"
    response = get_session().get(
        str(lab.send("other", "GET", "/").url), headers={"connection": "upgrade", "upgrade": "websocket"}
    )
    assert response.status_code == 200
