import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from unknot.datamodules import DSprites

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
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("no folder with shared data beside the repository")
    return SHARED_DATA
