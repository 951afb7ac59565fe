"""A static site published as a Space: huggingface_hub's client against a host of Spaces on this machine."""

import base64
import hashlib
import json
import threading

import pytest
from huggingface_hub.utils import disable_progress_bars
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from unknot.cli import main
from unknot.hub import publish_site
from unknot.hub.web import serving


class SpaceHost:
    """The requests of `create_repo` and `upload_folder` for a static Space, as the public hub answers them."""

    def __init__(self, folder):
        self.folder, self.made, self.commits = folder, [], []
        named = "/api/spaces/{user}/{name}"
        routes = [
            Route("/api/repos/create", self.create, methods=["POST"]),
            Route("/api/validate-yaml", self.validate, methods=["POST"]),
            Route(f"{named}/preupload/main", self.preupload, methods=["POST"]),
            Route(f"{named}/tree/main", self.tree),
            Route(f"{named}/revision/main", self.revision),
            Route(f"{named}/commit/main", self.commit, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes)

    def files(self):
        return {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}

    async def create(self, request):
        asked = await request.json()
        if request.headers.get("authorization") != "Bearer writer":
            return JSONResponse({"error": "Invalid token"}, 401)
        self.made.append(asked)
        return JSONResponse({"url": f"{request.base_url}spaces/{asked['organization']}/{asked['name']}"})

    async def validate(self, request):
        assert "sdk: static" in (await request.json())["content"]
        return JSONResponse({"errors": [], "warnings": []})

    async def preupload(self, request):
        def answer(path):
            there = self.files().get(path)
            content = there.read_bytes() if there else b""
            oid = there and hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            return {"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": oid}

        return JSONResponse({"files": [answer(file["path"]) for file in (await request.json())["files"]]})

    async def revision(self, request):
        files = [{"rfilename": name} for name in self.files()]
        return JSONResponse({"id": "lab/models", "sha": "0" * 40, "siblings": files, "private": True, "tags": []})

    async def tree(self, request):
        rows = [
            {"type": "file", "path": name, "size": path.stat().st_size, "oid": "0" * 40}
            for name, path in self.files().items()
        ]
        return JSONResponse(rows)

    async def commit(self, request):
        lines = [json.loads(line) for line in (await request.body()).splitlines()]
        for line in lines[1:]:
            path = self.folder / line["value"]["path"]
            if line["key"] == "file":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(line["value"]["content"]))
            else:
                assert line["key"] == "deletedFile"
                path.unlink()
        self.commits.append([line["value"].get("path") for line in lines[1:]])
        oid = f"{len(self.commits):040d}"
        return JSONResponse({"commitOid": oid, "commitUrl": f"{request.base_url}spaces/lab/models/commit/{oid}"})


@pytest.fixture
def host(tmp_path, monkeypatch):
    disable_progress_bars()
    host = SpaceHost(tmp_path / "space")
    listening = serving.listen("127.0.0.1", 0)
    server = serving.make_server(host.app, log_level="critical")
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    host.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    monkeypatch.setenv("HF_ENDPOINT", host.url)
    monkeypatch.setenv("HF_TOKEN", "writer")
    yield host
    server.should_exit = True
    thread.join()


@pytest.fixture
def site(make, tmp_path, monkeypatch):
    make().save_pretrained(tmp_path / "models" / "mine")
    with monkeypatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        assert main(["browse", str(tmp_path / "models"), "--export", str(tmp_path / "site")]) == 0
    return tmp_path / "site"


def test_a_site_becomes_a_static_space(host, site):
    said = []
    assert publish_site(site, "lab/models", dry_run=True, say=said.append) == ""
    assert (host.made, said[-1]) == ([], "Dry run: nothing was sent.")
    assert publish_site(site, "lab/models", say=said.append).endswith(f"/commit/{1:040d}")
    assert said[-1] == f"Published the Space lab/models@0000000: {host.url}/spaces/lab/models"
    asked = host.made[0]
    assert (asked["type"], asked["sdk"], asked["visibility"]) == ("space", "static", "private")
    written = {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in host.files().items()} == written
    assert "app_file: index.html" in host.files()["README.md"].read_text()

    (site / "page" / "page.css").write_text("body { color: red }")
    gone = next(site.glob("models/*/config.json"))
    gone.unlink()
    publish_site(site, "lab/models", say=said.append)
    assert sorted(host.commits[1]) == sorted(["page/page.css", str(gone.relative_to(site))])


def test_what_is_wrong_with_a_space_is_said(host, here, site, tmp_path, monkeypatch, capsys):
    with pytest.raises(ValueError, match="has no index"):
        publish_site(tmp_path, "lab/models")
    with pytest.raises(ValueError, match="This hub stores models only"):
        publish_site(site, "me/models", endpoint=here.url, token=here.token)
    assert main(["hub", "publish-bundled", "lab", "--space", "models", "--dry-run", "--only", "x"]) == 1
    assert "not bundled" in capsys.readouterr().err
