"""Examples on pages run, and links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torchvision.utils import save_image

from unknot.datamodules import DATASETS
from unknot.hub import list_checkpoints
from unknot.metrics import METRICS
from unknot.zoo import MODELS
from unknot.zoo.registry import NETWORKS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+?)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_readme_counts_models_data_sets_metrics_and_checkpoints() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    claim = re.search(r"More than (\d+) models, (\d+) data sets and (\d+) metrics", text)
    assert claim
    own_size = {name for name in DATASETS if not re.search(r"_32$|_\d+x\d+", name)}
    for number, things in zip(claim.groups(), (MODELS, own_size, METRICS), strict=True):
        assert int(number) <= len(things) < int(number) + 15, sorted(things)
    bundled = re.search(r"(\d+) bundled checkpoints load", text)
    assert bundled
    assert int(bundled[1]) == len(list_checkpoints(sources=["bundled"]))


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


WITH_CODE = [page for page in PAGES if blocks(page) and page.parent.name != "solvers"]


@pytest.fixture
def registries() -> Iterator[None]:
    """Remove what a page registered."""
    kept = [(registry, dict(registry)) for registry in (MODELS, NETWORKS, METRICS)]
    yield
    for registry, entries in kept:
        registry.clear()
        registry.update(entries)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", WITH_CODE, ids=names(WITH_CODE))
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frames = tmp_path / "my" / "frames"  # the folder of the reader
    frames.mkdir(parents=True)
    for number in range(20):
        save_image(torch.rand(3, 8, 8), frames / f"{number}.png")
    for block in blocks(page):
        if block.startswith("model.") or "from lightning" in block:  # a list of methods; what needs its own process
            continue
        short = re.sub(r"max_steps=[\d_]+", "max_steps=2, logger=False, enable_checkpointing=False", block)
        short = re.sub(r"max_epochs=1", "max_steps=2, logger=False, enable_checkpointing=False", short)
        exec(compile(short, page.name, "exec"), {})
