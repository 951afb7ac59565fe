"""A real hub over loopback: `unknot hub serve` as a process of its own, and a client's home of our own."""

import base64
import contextlib
import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from huggingface_hub import HfApi
from huggingface_hub.utils import get_session

from unknot.checkpoints import names as refs
from unknot.studies import bundled_tables
from unknot.zoo import BetaVAE

SHAPE = (1, 32, 32)
UNKNOT = "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module", autouse=True)
def no_tables(tmp_path_factory):
    """Tests count what they made themselves, not the bundled tables of results."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled_tables, "FOLDER", tmp_path_factory.mktemp("tables"))
        yield


class Hub:
    """A server process and what a test needs to talk to it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.start()
        tokens = folder / "tokens.txt"
        self.token = tokens.read_text().split()[1] if tokens.exists() else ""

    def start(self) -> None:
        words = ["hub", "serve", str(self.folder), "--port", "0", *self.options]
        self.process = subprocess.Popen([sys.executable, "-c", UNKNOT, *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = re.search(r"http://\S+", self.process.stdout.readline())[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @property
    def api(self) -> HfApi:
        return HfApi(endpoint=self.url, token=self.token)

    def upload(self, repo: str, files: dict[str, bytes], public: bool = True) -> str:
        """Commit anything at all, without the client's own care."""
        self.api.create_repo(repo, exist_ok=True, private=not public)
        lines = [{"key": "header", "value": {"summary": "x"}}]
        for path, content in files.items():
            value = {"path": path, "content": base64.b64encode(content).decode(), "encoding": "base64"}
            lines.append({"key": "file", "value": value})
        response = self.post(f"/api/models/{repo}/commit/main", "\n".join(map(json.dumps, lines)).encode())
        assert response.status_code == 200, response.text
        return response.json()["commitOid"]

    def post(self, path: str, content: bytes, token: str | None = None):
        headers = {"authorization": f"Bearer {token or self.token}"}
        return get_session().post(self.url + path, content=content, headers=headers)

    def blob(self, sha256: str) -> Path:
        return self.folder / "blobs" / sha256[:2] / sha256


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def web_host():
    """Serve a folder as any host of static files does."""

    @contextlib.contextmanager
    def serving(folder: Path):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()

    return serving


@pytest.fixture(scope="session")
def hub(serve):
    return serve()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing of the user's own home, login or settings takes part, and no bundled checkpoint."""
    for name in ("HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setenv("UNKNOT_CACHE", str(tmp_path / "data-cache"))
    monkeypatch.setattr(refs, "BUNDLED", tmp_path / "nothing")
    return tmp_path / "hf"


@pytest.fixture
def here(hub, monkeypatch):
    """The hub, with the environment of a user who may write to it."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    return hub


@pytest.fixture(scope="session")
def make():
    """Small models."""

    def small(seed: int = 0, **arguments) -> BetaVAE:
        torch.manual_seed(seed)
        model = BetaVAE(**{"image_shape": SHAPE, "latent_dim": 3, "beta": 2.5} | arguments)
        model.trained_on = "bars"
        return model.eval()

    return small


@pytest.fixture(scope="session")
def model(make):
    return make()


@pytest.fixture(scope="session")
def serve(tmp_path_factory):
    """Start further hubs, with options."""
    started = []

    def start(*options: str) -> Hub:
        started.append(Hub(tmp_path_factory.mktemp("hub") / "store", *options))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def files(model, tmp_path_factory):
    """The files of a model, by name."""
    folder = model.save_pretrained(tmp_path_factory.mktemp("saved"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def name(request):
    """A repository for this test alone."""
    return "me/" + re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:70].strip("-")
