"""Fixtures of several folders: a real browser, and instructions that the machine has."""

import os
import shutil
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
