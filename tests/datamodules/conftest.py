import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from unknot.datamodules import DSprites, GridDataset, download

SHARED_DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture(scope="session")
def drawn_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache with the whole drawn grid for all tests; 377 MB, so it does not outlive them."""
    folder = tmp_path_factory.mktemp("drawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNKNOT_CACHE", str(folder))
        DSprites().prepare()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def sprites(drawn_cache: Path) -> DSprites:
    """The drawn images, opened: opening them reads all of the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNKNOT_CACHE", str(drawn_cache))
        dataset = DSprites()
        dataset.prepare()
    return dataset


@pytest.fixture
def drawn(drawn_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The drawn cache, in use."""
    monkeypatch.setenv("UNKNOT_CACHE", str(drawn_cache))
    return drawn_cache


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, in use."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("UNKNOT_CACHE", str(folder))
    return folder


@pytest.fixture
def mirror(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a server on this machine offers as the user's own mirror; the only one that is asked."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    handler = partial(Silent, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("UNKNOT_MIRROR", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setattr(download, "_download", _only_from(download._download, server.server_port))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder
        server.shutdown()
        thread.join()


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _only_from(original: Callable[..., dict[str, str]], port: int) -> Callable[..., dict[str, str]]:
    """Tests never ask the world."""
    return lambda urls, *rest: original([url for url in urls if f":{port}/" in url], *rest)


@pytest.fixture
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("no folder with shared data beside the repository")
    return SHARED_DATA


@pytest.fixture
def refused(empty_cache: Path) -> Callable[[GridDataset, Path, str], None]:
    """Check that a damaged file is refused in one line that names it, and that nothing half-converted is left."""

    def check(dataset: GridDataset, path: Path, reason: str) -> None:
        with pytest.raises(ValueError, match=reason) as caught:
            dataset.prepare()
        message = str(caught.value)
        assert message.startswith(f"{path}: not a whole ")
        assert dataset.files[0].urls[0].rpartition("/")[0] in message
        assert "\n" not in message
        assert not dataset.is_prepared()
        assert [each for each in empty_cache.iterdir() if each.is_file()] == []

    return check
