"""The page in a real browser: what people do with it, and what a stranger's card must not do."""

import contextlib
import json
import random
import shutil
import threading
import urllib.parse
from pathlib import Path

import pytest
import torch
from PIL import Image

from unknot.checkpoints import names as refs
from unknot.checkpoints.card import write_card
from unknot.hub import push
from unknot.hub.browser import app as browsing
from unknot.hub.browser.app import browse_app
from unknot.hub.browser.export import export
from unknot.hub.browser.index import Index
from unknot.hub.model_index import model_index
from unknot.hub.web import serving
from unknot.zoo import SlotAutoEncoder, WReN

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Debian's chromium and chromium-driver")
HOSTILE = """<script>document.title = "owned"</script><img src="x" onerror="document.title = 'owned'">

# A *heading* <b>not bold</b>

[run](javascript:document.title='owned') [data](data:text/html,x) [good](https://example.com/?a=1&b=2)
![remote](https://example.com/tracker.png) ![there](pictures/traversals.png) ![up](../../secret.png)

| a | b |
|---|---|
| `code` | **bold** <i>x</i> |

```
<script>document.title = "owned"</script>
```
- one
- two
"""


def save(folder: Path, model, scores, body: str = "# A model\n", **metadata) -> None:
    """A saved model with a card and a picture."""
    model.save_pretrained(folder)
    (folder / "README.md").write_text(
        write_card({"model-index": model_index("x", "bars", scores, {})} | metadata, body)
    )
    (folder / "pictures").mkdir()
    Image.new("RGB", (40, 30), "red").save(folder / "pictures" / "traversals.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make):
    folder = tmp_path_factory.mktemp("browse") / "found"
    vivid = make()
    with torch.no_grad():
        for parameter in vivid.parameters():
            parameter.mul_(1.7)  # so that an untrained model shows something
    save(folder / "alpha", vivid, {"mig": 0.5, "dci": 0.25, "total_correlation": 2.0}, HOSTILE, license="<b>mit</b>")
    save(folder / "beta", make(seed=1, beta=8.0), {"mig": 0.1, "dci": 0.75, "total_correlation": 1.0})
    other = make(seed=2)
    other.trained_on = "<i>other</i>"
    save(folder / "gamma", other, {"mig": 0.3})
    run = folder / "run" / "version_0"
    make(seed=3).save_pretrained(run / "model")
    (run / "config.yaml").write_text("seed_everything: 7\n")
    (run / "metrics.csv").write_text("epoch,step,train/loss,val/loss\n0,49,10.5,\n0,99,9.5,9.75\n")
    (run / "scores.json").write_text('{"mig": 0.25}')
    return folder


@pytest.fixture(scope="module")
def index(folder, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        patch.setattr(refs, "BUNDLED", folder / "none")
        index = Index([folder])
        index.refresh()
        index.learn()
    return index


class Address(str):
    """Address of the page, with the keys that open it."""

    def __new__(cls, url, keys):
        made = super().__new__(cls, url)
        made.keys = keys
        return made


@contextlib.contextmanager
def served(index):
    """Address of the page, served for real."""
    listening, keys = serving.listen("127.0.0.1", 0), browsing.Keys()
    server = serving.make_server(browse_app(index, "secret", keys=keys), log_level="critical")
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    yield Address(f"http://127.0.0.1:{listening.getsockname()[1]}/", keys)
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def address(index):
    with served(index) as address:
        yield address


class Page:
    """The page as a person meets it."""

    def __init__(self, browser, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, state: str = "") -> None:
        self.browser.get("about:blank")
        keys = getattr(self.url, "keys", None)
        self.browser.get(f"{self.url}?key={keys.current}{state}" if keys else f"{self.url}{state}")
        self.wait(lambda: self.browser.execute_script("return document.body.dataset.rendered"))

    def wait(self, condition):
        """Until it holds; what was found may be drawn again in between, and is then looked for again."""
        ignored = [StaleElementReferenceException]
        return WebDriverWait(self.browser, 30, 0.05, ignored).until(lambda _: condition())

    def all(self, selector: str):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str):
        return self.wait(lambda: next(iter(self.all(selector)), None))

    def text(self, selector: str) -> str:
        script = "return document.querySelector(arguments[0])?.innerText"
        return self.wait(lambda: self.browser.execute_script(script, selector))

    def click(self, selector: str, number: int = 0, text: str = "") -> None:
        """Click the element of this number, of those that hold the text."""
        find = """
            const all = [...document.querySelectorAll(arguments[0])];
            const found = all.filter((one) => one.textContent.includes(arguments[2]))[arguments[1]];
            found?.scrollIntoView({ block: "center" });
            return found;"""

        def clicked() -> bool:
            found = self.browser.execute_script(find, selector, number, text)
            if found:
                found.click()
            return bool(found)

        self.wait(clicked)

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
        return self.browser.execute_script(script, selector)

    def inner(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.innerText)"
        return self.browser.execute_script(script, selector)

    def names(self) -> list[str]:
        return [name.split("/")[-1] for name in self.texts(".card h2")]

    def shows(self, *names: str) -> bool:
        return bool(self.wait(lambda: self.names() == list(names)))

    def choose(self, name: str, text: str) -> None:
        Select(self.one(f"[name={name}]")).select_by_visible_text(text)

    def problems(self) -> list[str]:
        """Return the messages of the console, the policy's complaints included."""
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def focus(self) -> str:
        script = "const one = document.activeElement; return one.getAttribute('aria-label') ?? one.textContent"
        return self.browser.execute_script(script)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.browser.switch_to.active_element.send_keys(key)

    def resize(self, width: int, height: int = 900) -> None:
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
        )


@pytest.fixture
def page(browser, address):
    page = Page(browser, address)
    page.problems()
    page.open("#sort=ref")
    yield page
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert page.problems() == []
    assert browser.title == "unknot: checkpoints"


def test_filter_sort_and_share(page):
    assert page.shows("alpha", "beta", "gamma", "version_0")
    page.choose("sort", "DCI")
    assert page.shows("beta", "alpha", "gamma", "version_0")
    page.click("#turn")
    assert page.shows("alpha", "beta", "gamma", "version_0")
    page.choose("sort", "Total correlation")  # of which less is better
    page.click("#turn")
    assert page.shows("beta", "alpha", "gamma", "version_0")
    page.choose("sort", "MIG")
    assert page.shows("alpha", "gamma", "version_0", "beta")
    page.choose("bound", "MIG")
    page.one("[name=least]").send_keys("0.2")
    assert page.shows("alpha", "gamma", "version_0")
    page.choose("dataset", "bars")
    assert page.shows("alpha", "version_0")
    page.one("[name=q]").send_keys("ALPH betavae")
    assert page.shows("alpha")

    shared = page.browser.current_url
    page.open("#" + urllib.parse.urlparse(shared).fragment)  # the address alone brings all of it back
    assert page.shows("alpha")
    assert page.texts("#chips button") == ["MIG ≥ 0.2 ×", "Clear filters"]
    page.one("[name=q]").send_keys("no such")
    assert page.shows()
    assert "No checkpoint matches" in page.text("#empty")
    page.click("button", text="Clear filters")
    assert page.shows("alpha", "gamma", "version_0", "beta")


def test_compare(page):
    page.click(".pick input", 0)
    page.click(".pick input", 1)
    page.click("#tray .main")
    page.one(".compare img")
    lines = {text.split("\t")[0].strip(): " ".join(text.split()) for text in page.inner(".compare tbody tr")}
    assert lines["MIG"] == "MIG 0.500 best 0.100"
    assert lines["DCI"] == "DCI 0.250 0.750 best"
    assert lines["Total correlation"] == "Total correlation 2.000 1.000 best"
    assert lines["beta"] == "beta 2.5 8"
    assert "latent_dim" not in lines  # the same for both
    page.click(".compare thead button.quiet")
    page.wait(lambda: "Choose two to 8 checkpoints" in page.text("#compare"))
    page.click("#compare input", 1)  # the best of each data set are offered
    page.one(".compare img")


def test_the_page_starts_with_the_best_of_each_data_set(page):
    page.open()
    assert page.shows("alpha", "version_0", "beta", "gamma")
    assert page.texts(".cards .heading") == ["bars", "<i>other</i>"]
    assert page.texts(".card .scores dt")[:2] == ["MIG", "DCI"]
    page.click("button", text="Scatter")
    page.wait(lambda: page.texts(".chart .axis") == ["MIG", "DCI"])
    page.click("button", text="Curves")
    page.wait(lambda: len(page.all("#curves .chart")) == 1)
    legend, chart = page.one("#curves .legend"), page.one("#curves .chart")
    assert legend.rect["y"] < chart.rect["y"] < 900
    assert chart.rect["width"] > page.browser.execute_script("return innerWidth") - 60


def test_another_browser_gets_a_key(page):
    page.click("#elsewhere")
    page.wait(lambda: "/?key=" in page.text("#notice"))
    assert page.url.keys.current in page.text("#notice")


def test_spreads_and_scores_of_other_models(browser, tmp_path, make, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    common = {"mig": 0.5, "mig_std": 0.02, "dci": 0.25, "sap": 0.1}
    for name, scores in (("a", common), ("b", common | {"mig": 0.4}), ("c", {"accuracy": 0.77})):
        save(tmp_path / name, make(), scores)
    index = Index([tmp_path])
    index.learn()
    with served(index) as address:
        page = Page(browser, address)
        page.open()
        cards = [" ".join(text.split()) for text in page.inner(".card .scores")]
        assert cards == ["MIG 0.500 DCI 0.250 SAP 0.100", "MIG 0.400 DCI 0.250 SAP 0.100", "Accuracy 0.770"]
        page.click(".pick input", 0)
        page.click(".pick input", 1)
        page.click("#tray .main")
        page.wait(lambda: "MIG 0.500 ± 0.020 best 0.400 ± 0.020" in " ".join(page.text(".compare").split()))


def test_no_more_than_eight_are_compared(page, index):
    ids = [entry.id for entry in index.entries.values()]
    page.open("#compare=" + ",".join([*ids, "a", "b", "c", "d", "e"]))
    assert page.wait(lambda: page.text("#tray span") == "8 chosen")


def test_scatter(page):
    page.click("button", text="Scatter")
    page.wait(lambda: len(page.all(".chart .point")) == 2)
    assert "2 of 4 have both" in page.text("#scatter")
    assert page.texts(".legend li") == ["BetaVAE"]
    page.choose("y", "Total correlation")
    page.wait(lambda: "Total correlation" in page.texts(".axis"))
    first, second = page.all(".chart .point")
    page.browser.execute_script("arguments[0].focus()", first)
    assert "beta (BetaVAE): MIG 0.100" in page.text(".message")
    page.press(Keys.ARROW_RIGHT)
    assert page.browser.switch_to.active_element == second
    page.press(Keys.ENTER)
    page.wait(lambda: page.texts("#detail h2") == ["found/alpha"])


def test_a_hostile_card_is_text(page):
    page.click(".card h2 a")
    page.one(".markdown")
    assert "<script>document.title" in page.text(".markdown")
    assert page.texts(".markdown h4") == ["A heading <b>not bold</b>"]
    assert [link.get_attribute("href") for link in page.all(".markdown a")] == ["https://example.com/?a=1&b=2"]
    assert page.all(".markdown a")[0].get_attribute("rel") == "noopener noreferrer nofollow"
    images = [image.get_attribute("src") for image in page.all(".markdown img")]
    assert len(images) == 1
    assert "/pictures/traversals.png" in images[0]
    assert page.texts(".markdown td") == ["code", "bold <i>x</i>"]
    assert page.texts(".markdown li") == ["one", "two"]
    assert page.all(".markdown script, .markdown b, .markdown i") == []
    assert "<b>mit</b>" in page.text(".about")


def test_detail_of_a_run(page):
    page.open()
    page.click(".card h2 a", text="version_0")
    page.one(".curve")
    assert page.texts(".legend li") == ["train/loss", "val/loss"]
    assert "model = load(" in page.text(".snippet")
    page.browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    page.click("button", text="Copy")
    page.wait(lambda: "Copied" in page.texts("button"))
    page.click("button", text="Mutual information")
    page.wait(lambda: "not available locally" in page.text("#detail"))
    page.problems()  # the refusal is in the console too, as the browser's own note
    page.press(Keys.ESCAPE)
    assert page.shows("alpha", "version_0", "beta", "gamma")
    assert "version_0" in page.focus()


def pixels(page, selector: str = "#decoded") -> str:
    return page.browser.execute_script("return document.querySelector(arguments[0]).toDataURL()", selector)


def test_live_latents(page, tmp_path):
    page.click(".card h2 a")
    page.one(".slider input")  # without a click, from the prior, as no image is available
    assert page.texts(".starts button:not([hidden])") == ["the prior", "an image of yours…"]
    assert "Computed in this browser" in page.text("#detail")
    page.wait(lambda: len(page.all(".strip[data-drawn]")) == 3)
    slider = page.one(".slider input")
    second = ".codes li:nth-child(2) .strip"
    before, strips = pixels(page), pixels(page, second)
    page.browser.execute_script("arguments[0].focus()", slider)
    page.press(*[Keys.ARROW_RIGHT] * 20)
    page.wait(lambda: pixels(page) != before)
    page.wait(lambda: pixels(page, second) != strips)
    page.click("button", text="Reset")
    page.wait(lambda: pixels(page) == before)

    Image.new("RGB", (80, 60), "white").save(tmp_path / "mine.jpg")
    page.one("input[type=file]").send_keys(str(tmp_path / "mine.jpg"))
    page.wait(lambda: "Reconstruction" in page.texts("figcaption"))
    assert page.texts("figcaption")[:3] == ["Input", "Reconstruction", "Now"]
    (tmp_path / "broken.png").write_bytes(b"nothing")
    page.one("input[type=file]").send_keys(str(tmp_path / "broken.png"))
    page.wait(lambda: "not a whole PNG or JPEG" in page.text("#notice"))
    page.problems()


def test_a_link_shows_the_same_latents(page):
    page.click(".card h2 a")
    page.wait(lambda: len(page.all(".strip[data-drawn]")) == 3)
    page.browser.execute_script("""
        const slider = document.querySelector("[data-code='1']");
        slider.value = 1.5;
        slider.dispatchEvent(new Event("input"));
        slider.dispatchEvent(new Event("change"));""")
    page.wait(lambda: "%2C1.5%2C" in page.browser.current_url)
    codes = page.wait(lambda: page.one("#decoded").get_attribute("data-codes"))
    shown = pixels(page)
    page.browser.refresh()
    page.wait(lambda: page.one("#decoded").get_attribute("data-codes") == codes)
    assert pixels(page) == shown


def test_interpolation_samples_and_drawing(page):
    page.click(".card h2 a")
    page.wait(lambda: len(page.all(".strip[data-drawn]")) == 3)
    page.click("summary", text="Interpolate")
    page.click("button", text="a sample of the prior")
    page.wait(lambda: page.text(".between") is not None and page.one(".between .strip").size["width"] > 50)
    before = page.one("#decoded").get_attribute("data-codes")
    page.browser.execute_script("""
        const slider = document.querySelector(".between input");
        slider.value = 1;
        slider.dispatchEvent(new Event("input"));""")
    page.wait(lambda: page.one("#decoded").get_attribute("data-codes") != before)
    page.click("summary", text="16 samples")
    page.wait(lambda: len(page.all(".sample")) == 16)
    before = page.one("#decoded").get_attribute("data-codes")
    page.click(".sample", 3)
    page.wait(lambda: page.one("#decoded").get_attribute("data-codes") != before)
    page.click("summary", text="Draw an image")
    before = page.one("#decoded").get_attribute("data-codes")
    field = page.one(".drawing")
    webdriver.ActionChains(page.browser).click_and_hold(field).move_by_offset(40, 30).release().perform()
    page.wait(lambda: page.one("#decoded").get_attribute("data-codes") != before)
    assert page.texts("figcaption")[0] == "Input"


def test_only_the_newest_latents_are_decoded(page):
    """A hundred moves while one image is under way make few images, and the last one is shown."""
    page.click(".card h2 a")
    page.wait(lambda: len(page.all(".strip[data-drawn]")) == 3)
    shown = page.browser.execute_async_script("""
        const done = arguments[0], slider = document.querySelector(".slider input");
        const canvas = document.querySelector("#decoded");
        const place = Number(slider.dataset.code), drawn = [];
        const watch = new MutationObserver(() => {
          drawn.push(Number(canvas.dataset.codes.split(",")[place]));
          if (drawn.at(-1) !== 2) return;
          watch.disconnect();
          done(drawn);
        });
        watch.observe(canvas, { attributeFilter: ["data-codes"] });
        for (let step = 0; step <= 100; step++) {
          slider.value = -2 + step * 0.04;
          slider.dispatchEvent(new Event("input"));
        }""")
    assert len(shown) <= 3


def test_keyboard_alone(page):
    page.press("/")
    assert page.browser.switch_to.active_element.get_attribute("name") == "q"
    page.press("beta", Keys.TAB)
    page.wait(lambda: len(page.names()) == 4)  # all are of the method BetaVAE
    page.browser.find_element(By.NAME, "q").clear()
    page.browser.find_element(By.NAME, "q").send_keys("found/beta")
    assert page.shows("beta")
    for _ in range(20):
        page.press(Keys.TAB)
        if page.focus() == "found/beta":
            break
    assert page.focus() == "found/beta"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.browser.execute_script(outline) != "none"
    page.press(Keys.TAB)
    page.press(Keys.SPACE)
    page.wait(lambda: page.one("#tray").is_displayed())
    page.press(Keys.SHIFT + Keys.TAB)
    page.press(Keys.ENTER)
    page.wait(lambda: page.texts("#detail h2") == ["found/beta"])
    page.press(Keys.ESCAPE)
    page.wait(lambda: page.focus() == "found/beta")
    page.browser.back()
    page.wait(lambda: page.texts("#detail h2") == ["found/beta"] and page.one("#detail").is_displayed())


@pytest.mark.parametrize("view", ["gallery", "scatter", "compare", "detail"])
def test_a_phone_is_wide_enough(page, index, view):
    page.resize(360, 740)
    ids = [entry.id for entry in index.entries.values()]
    page.open(f"#view={view}&compare={','.join(ids)}&open={ids[0]}")
    page.one({"gallery": ".card", "scatter": ".point", "compare": ".compare img", "detail": ".markdown"}[view])
    if view == "detail":
        page.click("button", text="the prior")
        page.one(".slider")
    widths = "return [document.documentElement.scrollWidth, innerWidth]"
    assert page.browser.execute_script(widths) == [360, 360]


def luminance(page, selector: str, kind: str) -> float:
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    numbers = page.browser.execute_script(script, selector, kind).partition("(")[2].rstrip(")").split(",")
    parts = [float(number) / 255 for number in numbers[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(page, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page.open()
    ground = luminance(page, "body", "backgroundColor")
    assert (ground < 0.1) == (scheme == "dark")
    surface = luminance(page, ".card", "backgroundColor")
    for selector in (".card h2 a", ".card .facts", "#status", ".card dt"):
        bright, dim = sorted([luminance(page, selector, "color"), surface], reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, selector


def test_a_remote_checkpoint_is_downloaded_by_a_button(browser, here, model, name):
    push(model, name, {"mig": 0.3}, private=False, say=lambda text: None)
    index = Index(endpoint=here.url)
    index.learn()
    with served(index) as address:
        page = Page(browser, address)
        page.open()
        page.wait(lambda: "asking the hub" in page.text("#status"))
        page.click("button", text="Refresh")
        page.wait(lambda: name in page.texts(".card h2"))
        page.click(".card h2 a", text=name)
        assert "trained on bars" in page.text(".markdown")
        assert "Download the model" in page.text("#detail")
        size = (index.get(page.browser.current_url.rpartition("open=")[2]).row.bytes or 0) / 1e6
        page.click("button", text=f"Download ({size:.1f} MB)")
        page.click("button", text="the prior")
        page.one(".slider input")
        assert page.all(".markdown img")
        assert page.problems() == []


def test_other_models_run_on_the_server(browser, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = WReN("onehot", sizes=(5, 6, 3, 3, 4, 4))
    model.trained_on = "abstract_dsprites_5x6x3x3x4x4"
    model.save_pretrained(tmp_path / "wren")
    index = Index([tmp_path / "wren"])
    with served(index) as address:
        page = Page(browser, address)
        page.problems()
        page.open()
        page.click(".card h2 a")
        page.wait(lambda: "A matrix to complete" in page.text("#detail"))
        assert page.problems() == []


def test_export_opens_from_a_file(browser, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = export(tmp_path / "page.html", [folder], say=lambda text: None)
    page = Page(browser, path.as_uri())
    page.problems()
    page.open()
    assert page.shows("alpha", "version_0", "beta", "gamma")
    page.choose("sort", "DCI")
    assert page.shows("beta", "alpha", "gamma", "version_0")
    page.click(".pick input", 0)
    page.click(".pick input", 1)
    page.click("#tray .main")
    page.one(".compare img")
    page.click("button", text="Scatter")
    page.wait(lambda: len(page.all(".chart .point")) == 2)
    page.browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click'))", page.all(".chart .point")[1])
    page.wait(lambda: page.texts("#detail h2") == ["found/alpha"])
    page.wait(lambda: len(page.all(".strip[data-drawn]")) == 3)  # a worker inside the file runs the model
    assert "<script>document.title" in page.text(".markdown")
    image = "const image = arguments[0]; return image.complete && image.naturalWidth"
    assert page.wait(lambda: browser.execute_script(image, page.one(".markdown img"))) == 40
    assert page.problems() == []
    assert browser.title == "unknot: checkpoints"


@pytest.fixture(scope="module")
def site(folder, tmp_path_factory, web_host):
    """A folder of static files on a host, and its address."""
    slots = SlotAutoEncoder(image_shape=(3, 32, 32), num_slots=3, channels=8, strides=(2, 2, 1, 1))
    saved = slots.save_pretrained(tmp_path_factory.mktemp("models") / "slots")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(refs, "BUNDLED", folder / "none")
        site = export(tmp_path_factory.mktemp("site") / "site", [folder, saved], say=lambda text: None)
    with web_host(site) as url:
        yield site, url


@pytest.fixture
def static(browser, site):
    page = Page(browser, site[1])
    page.problems()
    page.open("#sort=ref")
    yield page
    assert page.problems() == []


def test_a_static_site_asks_its_own_host_alone(static, site):
    static.browser.get_log("performance")
    static.open("#sort=ref")
    static.click(".card h2 a", text="alpha")
    static.wait(lambda: len(static.all(".strip[data-drawn]")) == 3)
    events = [json.loads(entry["message"])["message"] for entry in static.browser.get_log("performance")]
    sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert any(url.endswith("model.safetensors") for url in sent)
    assert [url for url in sent if not url.startswith((site[1], "data:", "about:"))] == []


def test_a_link_shows_the_same_slots(static):
    static.click(".card h2 a", text="slots")
    static.wait(lambda: len(static.all(".slots .slot")) == 3)
    static.browser.execute_script("""
        const slider = document.querySelector("[data-name=slots]");
        slider.value = 5;
        slider.dispatchEvent(new Event("input"));""")
    static.wait(lambda: len(static.all(".slots .slot")) == 5)
    static.click("button", text="another scene")
    static.wait(lambda: "scene=" in static.browser.current_url and "scene=0" not in static.browser.current_url)
    assert "slots=5" in static.browser.current_url
    shown = pixels(static, ".slots canvas")
    static.browser.refresh()
    static.wait(lambda: len(static.all(".slots .slot")) == 5)
    assert pixels(static, ".slots canvas") == shown


def test_a_failed_load_can_be_tried_again(static, site):
    static.click(".card h2 a", text="beta")
    static.wait(lambda: len(static.all(".strip[data-drawn]")) == 3)
    weights = site[0] / "models" / static.one("#detail").get_attribute("data-id") / "model.safetensors"
    weights.rename(weights.with_suffix(".away"))
    try:
        static.browser.refresh()
        static.wait(lambda: "could not be loaded (404). Try again." in static.text(".failure"))
    finally:
        weights.with_suffix(".away").rename(weights)
    assert [problem for problem in static.problems() if "404" not in problem] == []
    static.click(".failure button")
    static.wait(lambda: len(static.all(".strip[data-drawn]")) == 3)
    assert static.all(".failure") == []


def test_nothing_here_says_what_to_do(browser, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = export(tmp_path / "page.html", say=lambda text: None)
    page = Page(browser, Path(path).as_uri())
    page.open()
    assert "unknot browse runs" in page.text("#empty")
    assert page.text("#status").startswith("0 checkpoints")


# Many checkpoints


@pytest.fixture(scope="module")
def population(tmp_path_factory, make):
    """A table of 2,000 rows, a checkpoint with strange scores, and a run that trains."""
    folder = tmp_path_factory.mktemp("population")
    draw = random.Random(0)
    lines = ["dataset,method,seed,model.beta,mig,dci,sap"]
    for place in range(2000):
        beta = [1, 2, 4, 8][place % 4]
        mig = beta / 10 + draw.gauss(0, 0.01)
        lines.append(
            f"dsprites,{'BetaVAE' if place % 8 < 4 else 'FactorVAE'},{place // 8},{beta}.0,{mig},{2 * mig},{1 - mig}"
        )
    (folder / "study.csv").write_text("\n".join(lines))
    save(folder / "runs" / "strange", make(), {"toString": 0.5, "constructor": 0.25, "__proto__": 0.75})
    run = folder / "runs" / "now" / "version_0"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("seed_everything: 3\nmodel:\n  class_path: unknot.zoo.AdaGVAE\n")
    (run / "metrics.csv").write_text("step,train/loss\n1,20.0\n2,10.0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        patch.setattr(refs, "BUNDLED", folder / "none")
        index = Index([folder / "study.csv", folder / "runs"])
        index.refresh()
        index.learn()
    with served(index) as address:
        yield folder, address


@pytest.fixture
def crowd(browser, population):
    page = Page(browser, population[1])
    page.problems()
    page.open()
    yield page
    assert page.problems() == []


def test_a_table_of_thousands(crowd):
    crowd.open("#view=table&source=table&columns=mig")
    crowd.wait(lambda: "2000 rows" in crowd.text("#rows"))
    assert 10 < len(crowd.all(".rows tbody tr[data-id]")) < 200  # what can be seen, not all of them
    crowd.click("[data-sort=mig]")
    crowd.wait(lambda: "MIG ↓" in crowd.texts(".rows th"))
    values = [float(text) for text in crowd.texts(".rows tbody td.number")]
    assert values == sorted(values, reverse=True)
    crowd.browser.execute_script("document.querySelector('.window').scrollTop = 1e9")
    crowd.wait(lambda: crowd.all(".rows tbody tr[aria-rowindex='2001']"))
    crowd.click("summary", text="Columns")
    crowd.click("[data-column=sap]")
    crowd.wait(lambda: "SAP" in crowd.texts(".rows th"))


def test_rows_of_tables_are_beside_the_gallery(crowd):
    crowd.open("#sort=ref")
    crowd.wait(lambda: sorted(crowd.names()) == ["strange", "version_0"])
    assert "2,000 rows of tables of results are under Table and Scatter" in crowd.text("#more")
    crowd.choose("source", "table")
    crowd.wait(lambda: crowd.names()[:3] == ["study #1", "study #2", "study #3"])  # and not 1, 10, 100


def test_settings_with_their_spread_over_seeds(crowd):
    crowd.open("#view=table&source=table")
    crowd.click("[name=grouped]")
    crowd.wait(lambda: "8 settings of 2000 rows" in crowd.text("#rows"))
    [line] = [text for text in crowd.texts(".rows tbody tr[data-id]") if text.startswith("FactorVAE, beta 8")]
    assert "250 seeds" in line
    assert " ± 0.0" in line
    crowd.click("button", text="Scatter")
    crowd.wait(lambda: len(crowd.all(".chart .point")) == 8)
    assert len(crowd.all(".chart .bar")) == 16
    assert any(text.startswith("BetaVAE, beta") for text in crowd.texts(".chart .name"))
    assert "Rank correlation" in crowd.text("#correlation")


def test_correlations_are_those_of_scipy(crowd):
    stats = pytest.importorskip("scipy.stats")
    draw = random.Random(1)
    xs = [draw.randrange(8) for _ in range(50)]  # with ties
    ys = [x + draw.gauss(0, 3) for x in xs]
    script = """const [xs, ys, done] = arguments;
        import("/page/charts.js").then((m) => done([m.spearman(xs, ys), m.pearson(xs, ys)]));"""
    found = crowd.browser.execute_async_script(script, xs, ys)
    assert found == pytest.approx([stats.spearmanr(xs, ys)[0], stats.pearsonr(xs, ys)[0]])


def test_names_of_scores_that_javascript_has_too(crowd):
    crowd.open("#view=compare&sort=toString")
    crowd.open("#sort=toString&min=toString:0.1")
    crowd.wait(lambda: len(crowd.all(".card")) == 1)
    assert crowd.texts(".scores dd")[0] == "0.500"
    crowd.open("#sort=valueOf")
    crowd.wait(lambda: crowd.all(".card"))
    crowd.click("button", text="Table")
    crowd.wait(lambda: crowd.all(".rows tbody tr[data-id]"))
    ids = crowd.browser.execute_script(
        "return [...document.querySelectorAll('.rows tbody tr[data-id]')].slice(0, 2).map((row) => row.dataset.id)"
    )
    crowd.open(f"#view=compare&compare={','.join(ids)}")
    crowd.one(".compare tbody tr")


def test_a_curve_grows_while_a_run_trains(crowd, population):
    crowd.open("#view=curves&q=now")
    crowd.wait(lambda: crowd.one("#curves").get_attribute("data-points") == "2")
    assert "1 training now" in crowd.text("#curves")
    with (population[0] / "runs" / "now" / "version_0" / "metrics.csv").open("a") as file:
        file.write("3,5.0\n4,2.5\n")
    crowd.wait(lambda: crowd.one("#curves").get_attribute("data-points") == "4")
    crowd.click("[name=log]")
    crowd.wait(lambda: "log=1" in crowd.browser.current_url)
    crowd.one(".curve")
    smooth = """const slider = document.querySelector("[name=smooth]");
        const points = () => document.querySelector(".curve").getAttribute("points"), before = points();
        slider.value = 0.9;
        slider.dispatchEvent(new Event("input"));
        return slider.isConnected && before !== points()"""
    assert crowd.browser.execute_script(smooth)  # the picture changes under the hand, and the slider stays in it


MARKDOWN = """const [text, done] = arguments;
    import("/page/markdown.js").then((m) => {
        const start = performance.now();
        const nodes = m.markdown(text, []);
        done([nodes.map((node) => node.outerHTML).join(""), nodes.length]);
    });"""


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# A *b*", "<h4>A <em>b</em></h4>"),
        ("a\nb\n\nc", "<p>a b</p><p>c</p>"),
        ("- x\n- `y`", "<ul><li>x</li><li><code>y</code></li></ul>"),
        ("1. x", "<ol><li>x</li></ol>"),
        ("---", "<hr>"),
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
        ("[x](javascript:y)", "<p>x</p>"),
        ("```\n# not\n```\nafter", "<pre><code># not</code></pre><p>after</p>"),
        ("", '<p class="facts">No card.</p>'),
    ],
    ids=lambda text: text[:12],
)
def test_markdown(crowd, text, html):
    assert crowd.browser.execute_async_script(MARKDOWN, text)[0] == html


@pytest.mark.parametrize("mark", ["|", "\n", "*", "`", "[", "- x\n", "# \n", "|a|b|\n", "![", "**a", "1. \n"])
def test_long_cards_do_not_hold_up_the_page(crowd, mark):
    """A hundred thousand of anything ends, and makes no more of it than a page can hold."""
    crowd.browser.set_script_timeout(20)
    html, count = crowd.browser.execute_async_script(MARKDOWN, mark * (100_000 // len(mark)))
    assert count <= 2001
    assert len(html) < 3_000_000


# The hub's own pages


class HubPage(Page):
    def open(self, state: str = "") -> None:
        self.browser.get(f"{self.url}{state}")
        self.wait(lambda: self.browser.execute_script("return document.body.dataset.ready"))


@pytest.fixture
def hub_page(browser, here, model):
    push(model, "me/shown", {"mig": 0.25}, private=False, protocol={"num_train": 77}, say=lambda text: None)
    push(model, "me/hidden", private=True, say=lambda text: None)
    page = HubPage(browser, here.url)
    page.problems()
    yield page
    assert page.problems() == []


def test_the_index_of_a_hub(hub_page, here):
    hub_page.open("/")
    assert "me/shown" in hub_page.text("#main")
    assert "me/hidden" not in hub_page.text("#main")
    hub_page.one("[name=search]").send_keys("shown")
    hub_page.wait(lambda: hub_page.texts("#main td a") == ["me/shown"])
    hub_page.click("#main td a")
    hub_page.wait(lambda: "model = load(" in hub_page.text("#main"))


def test_the_page_of_a_repository(hub_page, here, model):
    url = push(model, "me/shown", {"mig": 0.5}, say=lambda text: None)
    hub_page.browser.get(url)  # what a push gives opens in a browser
    hub_page.wait(lambda: hub_page.browser.execute_script("return document.body.dataset.ready"))
    commit = url.rpartition("/")[2]
    assert f'load("me/shown@{commit}")' in hub_page.text(".snippet")
    text = hub_page.text("#main")
    for part in ("MIG", "0.500", "model.safetensors", "README.md", commit[:7], "method:betavae"):
        assert part in text
    assert len(hub_page.all(".markdown img")) == 1
    assert hub_page.browser.execute_script("return document.querySelector('.markdown img').naturalWidth") > 0


def test_a_private_repository_needs_a_token(hub_page, here):
    hub_page.open("/me/hidden")
    assert "does not exist, or is private" in hub_page.text("#main")
    hub_page.problems()  # the browser's own note of the refusal
    hub_page.click("#login")
    hub_page.one("#notice [type=password]").send_keys(here.token)
    hub_page.click("#notice button")
    hub_page.wait(lambda: "model.safetensors" in hub_page.text("#main"))
    hub_page.browser.execute_script("sessionStorage.clear()")


def test_other_clients_get_no_page(here):
    from huggingface_hub.utils import get_session

    assert get_session().get(here.url).headers["content-type"].startswith("text/plain")
    answer = get_session().get(f"{here.url}/me/none", headers={"accept": "text/html"})
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    answer = get_session().get(f"{here.url}/api/datasets", headers={"accept": "text/html"})
    assert (answer.status_code, "stores models only" in answer.json()["error"]) == (404, True)
