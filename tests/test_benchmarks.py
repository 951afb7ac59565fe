"""The table of ratios: what is measured, what is written, and what is said to be slower."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


@pytest.mark.usefixtures("benchmarks")
def test_ratios_are_theirs_over_ours() -> None:
    from common import compare

    calls = []
    times = {"ours": (1.0, 2.0), "theirs": (3.0, 10.0)}

    def measure(function):
        calls.append(function())
        return times[function()]

    row = compare("a", lambda: "ours", "b", lambda: "theirs", 3, measure=measure)
    assert (row.processor, row.clock, row.seconds) == (3.0, 5.0, 1.0)
    assert calls == ["ours", "theirs"] * 4  # in turn, the first not counted


@pytest.mark.usefixtures("benchmarks")
def test_rows_that_got_slower_by_more_than_a_tenth_are_named() -> None:
    from table import slower

    old = [{"name": name, "processor": 2.0} for name in "abc"]
    new = [{"name": "a", "processor": 1.79}, {"name": "b", "processor": 1.81}, {"name": "d", "processor": 0.1}]
    assert slower(old, new) == ["slower: a, 2.00 before and 1.79 now"]


@pytest.mark.usefixtures("benchmarks")
def test_the_page_has_the_committed_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import table

    from fill_page import fill

    rows = json.loads(table.TABLE.read_text())["rows"]
    readme = table.README.read_text()
    assert table.PAGE.read_text() == table.page(rows)
    assert fill(readme, table.SOURCE, table.at_a_glance(rows)) == readme
    first = next(iter(table.AT_A_GLANCE))
    row = {"name": first, "against": "b", "processor": 2.0, "clock": 1.5, "seconds": 1.0, "rounds": 3, "threads": 1}
    (tmp_path / "README").write_text(fill(readme, table.SOURCE, ""))
    for name in ("TABLE", "PAGE", "README"):
        monkeypatch.setattr(table, name, tmp_path / name)
    monkeypatch.setattr(table, "measure", lambda script: [row])
    monkeypatch.setattr(sys, "argv", ["table.py", "slots"])
    table.main()
    assert f"| {first} | b | 2.00 | 1.50 | 1 |" in (tmp_path / "PAGE").read_text()
    assert "| Training an Ada-GVAE | a plain PyTorch loop | 2.0 |" in (tmp_path / "README").read_text()
    assert json.loads((tmp_path / "TABLE").read_text())["rows"][0]["machine"]["torch"]


def test_a_script_prints_its_rows_as_json(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from common import compare, run\n"
        "def entries():\n"
        "    yield compare('sums', lambda: sum(range(10)), 'loops', lambda: [i for i in range(10)])\n"
        "run(entries)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    command = [sys.executable, str(script)]
    done = subprocess.run([*command, "--table"], env=environment, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)
    assert row["against"] == "loops"
    assert {"name", "processor", "clock", "seconds", "rounds", "threads"} <= row.keys()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sums ")
    assert done.stdout.endswith("times as fast as loops\n")


@pytest.mark.slow
def test_the_table_for_a_gpu_can_be_printed_without_one() -> None:
    command = [sys.executable, str(HERE / "gpu.py"), "--device", "cpu", "--steps", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| `") or line.startswith("| encoding")]
    assert len(rows) >= 5
    assert "× a bare loop" in rows[0]
