"""Latency of `unknot browse` with many checkpoints and a long table of results, in headless Chromium.

python tools/robustness/browse.py --checkpoints 500 --rows 2000
"""

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from unknot.checkpoints.card import write_card
from unknot.hub.browser.app import Keys, browse_app
from unknot.hub.browser.index import Index
from unknot.hub.model_index import model_index
from unknot.hub.web import serving
from unknot.zoo import BetaVAE
from unknot.zoo.pictures import draw_traversals

METHODS = ["BetaVAE", "AdaGVAE", "BetaTCVAE", "FactorVAE", "DIPVAEI", "AnnealedVAE"]
# Time until the frame after the change is drawn.
ACT = """
const [change, done] = [new Function(arguments[0]), arguments[1]], start = performance.now();
change();
requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
"""
SET = "const one = document.querySelector('[name={}]'); one.value = '{}'; one.dispatchEvent(new Event('{}'));"


def main() -> None:
    """Create checkpoints, serve them and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=500)
    parser.add_argument("--rows", type=int, default=2000, help="rows of the table of results")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not chromium:
        print("Needs chromium and chromedriver.")
        return
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.checkpoints)
        table = make_table(Path(folder) / "study.csv", options.rows)
        start = time.perf_counter()
        index = Index([folder, table])
        print(f"index of {len(index.entries)} checkpoints and rows: {time.perf_counter() - start:.2f} s")
        index.refresh()
        index.learn()
        listening, keys = serving.listen("127.0.0.1", 0), Keys()
        server = serving.make_server(browse_app(index, "token", keys=keys), log_level="critical")
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        browser = start_browser(chromium, driver)
        try:
            measure(browser, serving.address_of(listening, "127.0.0.1"), keys, options.repeats)
        finally:
            browser.quit()
            server.should_exit = True
            thread.join()


def make(folder: Path, count: int) -> None:
    """Create checkpoints that share their weights, each with scores and a picture."""
    torch.manual_seed(0)
    model = BetaVAE().eval()
    model.save_pretrained(folder / "0")
    draw_traversals(model, torch.rand(4, 1, 64, 64), folder / "0" / "traversals.png")
    config = json.loads((folder / "0" / "config.json").read_text())
    chance = random.Random(0)
    for number in range(count):
        one = folder / f"lab-{number % 7}" / f"model-{number:04d}"
        (one / "pictures").mkdir(parents=True)
        dataset = chance.choice(["dsprites", "shapes3d", "cars3d"])
        (one / "config.json").write_text(json.dumps(config | {"model": chance.choice(METHODS), "dataset": dataset}))
        os.link(folder / "0" / "model.safetensors", one / "model.safetensors")
        os.link(folder / "0" / "traversals.png", one / "pictures" / "traversals.png")
        scores = {name: chance.random() for name in ("mig", "dci", "sap", "modularity", "total_correlation")}
        (one / "README.md").write_text(write_card({"model-index": model_index("x", dataset, scores, {})}, "# Text\n"))
    shutil.rmtree(folder / "0")


def make_table(path: Path, count: int) -> Path:
    """Write a table of results: two methods, four strengths, many seeds."""
    chance = random.Random(0)
    lines = ["dataset,method,seed,model.beta,mig,dci,sap,modularity"]
    for number in range(count):
        beta, method = 2 ** (number % 4), METHODS[number % 8 // 4]
        lines.append(f"dsprites,{method},{number // 8},{beta}," + ",".join(str(chance.random()) for _ in range(4)))
    path.write_text("\n".join(lines))
    return path


def start_browser(chromium: str, driver: str) -> Any:
    """Start a headless browser with the window of a laptop."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(word)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def measure(browser: Any, url: str, keys: Keys, repeats: int) -> None:
    """Reload the page repeatedly, then measure actions on it."""
    ready = "return document.body.dataset.rendered && performance.now()"
    loads: list[float] = []
    for _ in range(repeats):
        browser.get("about:blank")
        browser.get(f"{url}/?key={keys.current}")
        while not (loaded := browser.execute_script(ready)):
            time.sleep(0.005)
        loads.append(loaded)
    print(f"from the address to the first cards: median {statistics.median(loads):.0f} ms, worst {max(loads):.0f} ms")
    actions = {
        "sort by MIG": SET.format("sort", "mig", "change"),
        "sort by name": SET.format("sort", "ref", "change"),
        "filter by data set": SET.format("dataset", "dsprites", "change"),
        "all data sets again": SET.format("dataset", "", "change"),
        "search": SET.format("q", "lab-3", "input"),
        "end of search": SET.format("q", "", "input"),
        "rows of tables": SET.format("source", "table", "change"),
        "table": "document.querySelector('[data-view=table]').click()",
        "sort the table": "document.querySelector('[data-sort=dci]').click()",
        "filter the table": SET.format("method", "AdaGVAE", "change"),
        "all its rows again": SET.format("method", "", "change"),
        "search the table": SET.format("q", "study #19", "input"),
        "end of its search": SET.format("q", "", "input"),
        "to its middle": "const one = document.querySelector('.window'); one.scrollTop = one.scrollHeight / 2",
        "to its end": "document.querySelector('.window').scrollTop = 1e9",
        "group by setting": "document.querySelector('[name=grouped]').click()",
        "no groups": "document.querySelector('[name=grouped]').click()",
        "everything": SET.format("source", "", "change"),
        "scatter": "document.querySelector('[data-view=scatter]').click()",
        "gallery": "document.querySelector('[data-view=gallery]').click()",
        "scroll to the end": "scrollTo(0, document.body.scrollHeight)",
        "scroll back": "scrollTo(0, 0)",
    }
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, action in actions.items():
            before = busy(browser)
            clock = browser.execute_async_script(ACT, action)
            taken[name].append((clock, busy(browser) - before))
            time.sleep(0.2)
    for name, both in taken.items():
        clock, used = ([pair[place] for pair in both] for place in (0, 1))
        print(
            f"{name:<20} median {statistics.median(clock):5.0f} ms, worst {max(clock):5.0f} ms; "
            f"processor median {statistics.median(used):5.0f} ms"
        )


def busy(browser: Any) -> float:
    """Return the milliseconds of work of the page's thread, by processor time, which depends less on a busy machine."""
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration") * 1e3


if __name__ == "__main__":
    main()
