"""The site: it builds without a warning, every public name has a page, links lead somewhere, and a browser shows it.

Marked slow: the build alone takes 40 s of processor. The docs workflow builds the site and runs these tests for each
change. The quick tests check links between Markdown files and the content of the reference.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="needs the extra docs: pip install 'unknot[docs]'")
from sphinx.util.inventory import InventoryFile

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = [
    *("zoo", "datamodules", "metrics", "metrics.functional", "hub", "studies", "studies.analyses"),
    *("solvers", "solvers.atoms", "solvers.objectives"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The pages of a copy of the sources, the gallery's scripts shown and not run; or those that UNKNOT_SITE names."""
    if "UNKNOT_SITE" in os.environ:
        return Path(os.environ["UNKNOT_SITE"]).resolve()
    folder = tmp_path_factory.mktemp("site")
    for page in DOCS.parent.glob("*.md"):  # two of which pages include
        shutil.copy(page, folder)
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("examples", "sg_execution_times.rst"))
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "docs", "site"]
    environment = os.environ | {"UNKNOT_DOCS_GALLERY": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "site"


class Page(HTMLParser):
    """Links of a page, the files it loads, and the places in it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.loads, self.places = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.places.add(attrs.get("id"))
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        if tag == "link" and attrs.get("rel") in ("stylesheet", "preload", "icon", "shortcut icon"):
            self.loads.append(attrs["href"])
        if tag in ("script", "img", "iframe") and attrs.get("src"):
            self.loads.append(attrs["src"])


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_every_public_name_has_a_page(site) -> None:
    inventory = InventoryFile.load((site / "objects.inv").open("rb"), "", lambda base, uri: uri)
    found = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    by_object = {name.rpartition(".")[2] for name in found}
    names = [(package, name) for package in PACKAGES for name in import_module(f"unknot.{package}").__all__]
    missing = [
        f"{package}.{name}"
        for package, name in names
        if f"unknot.{package}.{name}" not in found
        and not (name in by_object and package in ("solvers", "solvers.objectives"))  # the same class in both
    ]
    assert len(names) > 280
    assert missing == []


def test_internal_links_lead_somewhere(pages) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                broken.append(f"{path.name}: {link}")
    assert sum(len(page.links) for page in pages.values()) > 10_000
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(pages) -> None:
    loads = {load for page in pages.values() for load in page.loads}
    assert loads
    assert [load for load in loads if urlsplit(load).scheme not in ("", "data")] == []


def requests(browser) -> set[str]:
    """Schemes of all addresses that the browser asked for since it was last looked at."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return {urlsplit(url).scheme for url in asked}


@pytest.mark.parametrize(("words", "title"), [("MIG", "MIG"), ("AdaGVAE", "AdaGVAE")])
def test_search_finds(site, browser, words: str, title: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get_log("performance")
    browser.get(f"{(site / 'search.html').as_uri()}?q={words}")
    results = WebDriverWait(browser, 60).until(
        lambda driver: driver.find_elements(By.CSS_SELECTOR, "#search-results li a")
    )
    assert any(re.search(rf"\b{title}\b", result.text) for result in results[:5])
    assert requests(browser) == {"file"}


def contrast(first: list[float], second: list[float]) -> float:
    """The ratio of luminances, as WCAG has it; 4.5 is asked of text."""

    def luminance(colour: list[float]) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour[:3])]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def numbers(colour: str) -> list[float]:
    return [float(part) for part in re.findall(r"[\d.]+", colour)]


def test_the_search_field_changes_with_the_page(site, browser) -> None:
    size = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((site / "index.html").as_uri())
    browser.execute_script("document.documentElement.dataset.theme = 'light'")
    time.sleep(0.5)
    text, ground = browser.execute_script(
        "document.documentElement.dataset.theme = 'dark';"
        " const fields = [...document.querySelectorAll('.search-button-field')];"
        " const style = getComputedStyle(fields.find((field) => field.offsetWidth));"
        " return [style.color, style.backgroundColor];"
    )
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert numbers(ground)[0] < 64
    assert contrast(numbers(text), numbers(ground)) > 4.5


SHOWN = [
    "index.html",
    "api/zoo/unknot.zoo.AdaGVAE.html",
    "api/metrics/functional/unknot.metrics.functional.mig.html",
    "metrics/README.html",
    "thesis.html",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", SHOWN)
def test_pages_are_readable_on_a_phone(site, browser, page: str, theme: str) -> None:
    browser.get_log("performance")
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((site / page).as_uri())
    browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
    width = browser.execute_script("return document.documentElement.scrollWidth")
    text, ground = browser.execute_script(
        "return [getComputedStyle(document.querySelector('article p')).color,"
        " getComputedStyle(document.body).backgroundColor]"
    )
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert width <= 360
    assert contrast(numbers(text), numbers(ground)) > 4.5
    assert requests(browser) <= {"file", "data"}
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
