"""One walk: a study is killed and resumed, looked at, scored, published and trained on, as a user would do it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from unknot.cli import main
from unknot.datamodules import DATASETS
from unknot.hub import show
from unknot.studies import results
from unknot.studies.plan import JobFolder, read_plan
from unknot.studies.table import TOOK
from unknot.training import RunFolder

pd = pytest.importorskip("pandas")
pytest.importorskip("selenium", reason="needs selenium")
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

pytestmark = pytest.mark.slow
UNKNOT = [sys.executable, "-c", "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"]
MODULE = """
from recorded_squares import TinySquares
from unknot.datamodules import DATASETS


class WalkSquares(TinySquares):
    name = "walk_squares"


DATASETS[WalkSquares.name] = WalkSquares
"""
STUDY = {
    "description": "Four short jobs.",
    "datasets": [{"class_path": "walk_squares.WalkSquares"}],
    "seeds": 2,
    "training": {"trainer.max_steps": 400, "data.batch_size": 4, "data.num_val_batches": 1, "model.lr": 1e-3},
    "sweeps": [{"config": "tiny.yaml", "options": {"model.beta": [1, 2]}}],
    "scores": [{"metrics": ["mig", "modularity"]}],
}
OWN = ["--import", "walk_squares"]
OPEN = "document.querySelector('#detail h2')?.textContent === arguments[0]"
TITLES = {f"β-VAE, β = {beta}, seed {seed}" for beta in (1, 2) for seed in (0, 1)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study and its data set, and a home without a login."""
    recorded = Path(__file__).parent / "recorded"
    (tmp_path / "walk_squares.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    content = yaml.safe_load((recorded / "tiny.yaml").read_text(encoding="utf-8"))
    content["data"]["init_args"]["dataset"] = {"class_path": "walk_squares.WalkSquares"}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    for name in ("HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("UNKNOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(recorded)]))
    monkeypatch.chdir(tmp_path)
    for place in (recorded, tmp_path):
        monkeypatch.syspath_prepend(str(place))
    monkeypatch.setitem(DATASETS, "walk_squares", None)  # the module puts it there; it goes with the test
    return tmp_path


@contextmanager
def server(*words: str, **environment: str) -> Iterator[str]:
    """Address that a command of ours serves at."""
    process = subprocess.Popen([*UNKNOT, *words], stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    assert process.stdout is not None
    try:
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, f"{words} ended"
            found = re.search(r"http://\S+", line)
        yield found[0]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def start_and_kill(folder: Path) -> int:
    """Start the study and kill all of its processes while it trains; how many steps were saved."""
    words = ["study", "run", "study.yaml", "--folder", str(folder), "--jobs", "2", "--keep-checkpoints", *OWN]
    runner = subprocess.Popen(
        [*UNKNOT, *words, "--checkpoint-every", "0.05"], start_new_session=True, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not list(folder.glob("jobs/*/*/checkpoints/last.ckpt")):
        assert runner.poll() is None, "the study ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(runner.pid, signal.SIGKILL)
    runner.wait()
    job = next(folder.glob("jobs/*/*/checkpoints/*.ckpt")).parents[1]  # perhaps killed between two renames
    return RunFolder(job).resumption().step


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


class Page:
    """The page as somebody meets it."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def until(self, condition: str, *arguments: Any, seconds: float = 60.0) -> Any:
        """Wait until a JavaScript expression holds, and give its value."""
        script = f"return {condition}"
        return WebDriverWait(self.browser, seconds, 0.1).until(
            lambda browser: browser.execute_script(script, *arguments)
        )

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
        return list(self.browser.execute_script(script, selector))

    def click(self, selector: str, text: str) -> None:
        find = "[...document.querySelectorAll(arguments[0])].find((node) => node.textContent === arguments[1])"
        self.browser.execute_script("arguments[0].click()", self.until(find, selector, text))

    def scores(self) -> dict[str, float]:
        """Of the open checkpoint."""
        rows = "[...document.querySelectorAll('#detail tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
        cells = [row for row in self.until(rows) if len(row) == 2 and re.fullmatch(r"-?[0-9.]+( ± .*)?", row[1])]
        return {name: float(value.split()[0]) for name, value in cells}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of means over the nothing that four jobs leave to some analyses
def test_walk(here: Path, browser: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    study = here / "studied"
    saved = start_and_kill(study)
    assert 0 < saved < 400
    assert main(["study", "run", str(study), "--jobs", "2", "--keep-checkpoints", *OWN]) == 0
    logs = "".join(path.read_text() for path in study.glob("jobs/*/*/log.txt"))
    assert re.search(r"Resuming \S+ from (last|previous).ckpt, step [1-9]", logs)

    jobs = [JobFolder(study, job.name) for job in read_plan(study).jobs]
    before = results(study)
    assert (before["status"].tolist(), before["job"].is_unique) == (["done"] * 4, True)
    status = said(capsys, "study", "status", str(study))
    report = said(capsys, "study", "report", str(study), "--resamples", "20")

    # The page
    with server("browse", str(study), "--no-open", "--port", "0", *OWN, HF_HUB_OFFLINE="1") as address:
        page = Page(browser)
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(address)
        page.until("document.body.dataset.rendered")
        assert set(page.texts(".card h2")) >= TITLES
        for job, row in zip(jobs, before.to_dict("records"), strict=True):
            title = f"β-VAE, β = {row['model.beta']}, seed {row['seed']}" if "model.beta" in row else ""
            title = title or f"β-VAE, β = {row['beta']}, seed {row['seed']}"
            page.click(".card h2 a", title)
            page.until(f"{OPEN} && document.querySelector('#detail .curve')", title)
            assert page.scores()["MIG"] == pytest.approx(row["mig"], abs=6e-4)
            assert "train/loss" in page.texts(".legend li")
            assert "neither renamed nor deleted" in " ".join(page.texts("#detail .note"))
            assert not {"Rename", "Move to trash…"} & {*page.texts("#detail button")}
            if job is jobs[0]:
                browser.save_screenshot(str(here / "job.png"))
            page.click("#detail button", "← Back")
            page.until("document.querySelector('.card h2 a')")
        browser.save_screenshot(str(here / "jobs.png"))
        job, title = jobs[0], f"β-VAE, β = 1, seed {before['seed'][0]}"
        page.click(".card h2 a", title)
        page.until(OPEN, title)
        page.click("#detail button", "Evaluate now")
        table = "[...document.querySelectorAll('#detail td')].map((cell) => cell.textContent)"
        page.until(f"{table}.includes('DCI')", seconds=540)
        shown = page.scores()
        assert shown["MIG"] == pytest.approx(before["mig"][0], abs=6e-4)
        assert len(shown) > 4
        browser.save_screenshot(str(here / "evaluated.png"))
        assert [entry["message"] for entry in browser.get_log("browser")] == []

    # The study
    after = results(study)
    pd.testing.assert_frame_equal(after[list(before)], before)
    added = after.drop(columns=list(before))
    assert {"dci", "sap"} <= {*added}
    assert added.iloc[0].notna().any()
    assert added.iloc[1:].isna().all(axis=None)
    assert said(capsys, "study", "status", str(study)) == status
    said(capsys, "study", "table", str(study))
    again = said(capsys, "study", "report", str(study), "--resamples", "20")
    changed = [line for line in report.splitlines() if line not in again.splitlines()]
    assert all("not possible" in line for line in changed), changed  # what lacked a score that is there now

    # The hub
    with server("hub", "serve", str(here / "hub"), "--port", "0") as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("HF_TOKEN", (here / "hub" / "tokens.txt").read_text().split()[1])
        said(capsys, "hub", "push", str(job.path), "me/walk", *OWN)
        described = show("me/walk")
        assert (described.checkpoint.seed, described.checkpoint.dataset) == (before["seed"][0], "walk_squares")
        assert described.checkpoint.scores["mig"] == pytest.approx(before["mig"][0], abs=1e-6)
        assert len(described.checkpoint.scores) > 4
        assert {"training.csv", "training.yaml", "model.safetensors"} <= {*described.files}

    # Training on
    kept = content_of(job.path)
    words = [*OWN, "--trainer.enable_progress_bar", "false"]
    longer = said(capsys, "fit", "--resume", str(job.path), "--trainer.max_steps", "420", *words)
    assert "stays as it is" in longer
    assert content_of(job.path) == kept
    new = RunFolder(here / "runs/BetaVAE/version_0")
    assert (new.state(), new.record()["steps"]) == ("done", 420)
    curve = pd.read_csv(new.curve)
    assert curve["step"].min() >= 399
    said(capsys, "fit", "--resume", str(job.path), *words)
    assert json.loads(kept["record.json"])["steps"] == job.record()["steps"] == 400
    outcome = [name for name in before if name not in TOOK]
    pd.testing.assert_frame_equal(results(study)[outcome], before[outcome])
