"""Fixtures of several folders: a real browser, the command as a process, and instructions that the machine has."""

import multiprocessing
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

# Some virtual machines announce AMX, which oneDNN takes for bfloat16, and end the process at its first instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium, which keeps what pages print and ask for."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    words = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"]
    for word in words + (["--no-sandbox"] if os.geteuid() == 0 else []):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture(scope="session")
def oracles():
    """Folder of numbers that the authors' own code computed; tests that compare with them are skipped without it.

    The folder is ``oracles`` in ``UNKNOT_TEST_DATA``, or in ``shared/data`` beside the clone.
    """
    named = [Path(os.environ["UNKNOT_TEST_DATA"])] if "UNKNOT_TEST_DATA" in os.environ else []
    for folder in named + [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]:
        if (folder / "oracles" / "recipes.py").is_file():
            return folder / "oracles"
    pytest.skip("needs the folder of reference values: set UNKNOT_TEST_DATA to the folder that holds oracles/")


class Command:
    """``unknot WORDS`` in a process of its own, in another folder: a fork, which need not import torch again.

    Args:
        words: of the command line.
        folder: current folder of the process; its output goes to a file beside it.
    """

    def __init__(self, words: Sequence[str | Path], folder: Path) -> None:
        self.file = folder.with_name(f"{folder.name}-{uuid.uuid4().hex}.log")
        self.process = multiprocessing.get_context("fork").Process(
            target=self._run, args=(list(map(str, words)), folder)
        )
        self.process.start()

    def _run(self, words: list[str], folder: Path) -> None:
        import torch

        from unknot.cli import main

        os.chdir(folder)
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background would not have
        sys.stdout = sys.stderr = self.file.open("w", buffering=1)
        os.dup2(sys.stdout.fileno(), 1)
        os.dup2(sys.stdout.fileno(), 2)
        status = main(words)
        sys.stdout.flush()
        os._exit(status)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def output(self) -> str:
        return self.file.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that happens while the process runs."""
        deadline = time.monotonic() + 300
        while not condition():
            assert self.process.is_alive(), self.output
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self, signum: int = signal.SIGKILL) -> None:
        os.kill(self.pid, signum)

    def wait(self) -> int:
        """Return the exit code, negative for a signal."""
        self.process.join(300)
        assert self.process.exitcode is not None
        return self.process.exitcode


@pytest.fixture(scope="session")
def start() -> Callable[..., Command]:
    """Start the command: ``start(words, folder)``."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    return Command
