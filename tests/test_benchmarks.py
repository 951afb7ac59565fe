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
    from common import fill

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


@pytest.mark.usefixtures("benchmarks")
def test_the_page_of_the_recipe_has_the_table_of_its_runs(tmp_path: Path) -> None:
    from common import fill
    from recipe import DATA, PAGE, SOURCE, collect, table

    runs = json.loads(DATA.read_text())
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, SOURCE, table(runs)) == page
    spec = {"name": "a", "model": "BetaVAE", "args": {"beta": 4.0}, "lr": 1e-4}
    row = {"step": 10, "core": 76.04, "score": [0.12345, 0.2, 0.3, 0.4]}
    (tmp_path / "a-0.json").write_text(json.dumps({"spec": spec, "seed": 0, "log": [row]}))
    known = [{"spec": spec, "seed": seed, "log": [row | {"score": [0.3, 0.2, 0.3, 0.4]}]} for seed in (1, 0)]
    found = collect(tmp_path, known)  # the file takes the place of what was known of seed 0
    assert [(run["seed"], run["log"][0]["score"][0]) for run in found] == [(1, 0.3), (0, 0.1235)]
    assert "| BetaVAE, beta 4 | lr 0.0001, constant strength | 76 | 2 | **0.212** (0.300, 0.123) |" in table(found)


@pytest.mark.usefixtures("benchmarks")
def test_the_pages_have_the_scores_that_are_shipped() -> None:
    from scores import pages

    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"run python benchmarks/scores.py: {path.name} is out of date"


@pytest.mark.usefixtures("benchmarks")
def test_seeds_and_draws_are_told_apart() -> None:
    pd = pytest.importorskip("pandas")
    from scores import over_seeds

    rows = [
        {"dataset": "dsprites", "method": "BetaVAE", "strength": beta, "seed": seed, "status": "done", "mig": mig}
        for beta, seed, mig in [(1, 0, 0.1), (1, 1, 0.3), (4, 0, 0.4), (4, 1, 0.2), (16, 0, 0.9)]
    ]
    rows.append(rows[0] | {"method": "GVAE", "mig": 0.7})
    rows += [rows[at] | {"method": "FactorVAE"} for at in (0, 2)]
    table = pd.DataFrame(rows).assign(dci=0.5)
    table["mig@again"] = table["mig"] + 0.02
    text = over_seeds(table, "x")
    # The one seed with β = 16 tells nothing about seeds; two draws that differ by d have a deviation of d / √2.
    row = "| β-VAE | dsprites | 4 | 2 | 0.300 ± 0.141 | 0.500 ± 0.000 | median 0.300, 0.100 to 0.900 (5) |"
    assert row in text.splitlines()
    assert "| GVAE | dsprites | 1 | 1 | 0.700 | 0.500 | one model |" in text.splitlines()
    assert "FactorVAE" not in text  # two settings of one seed: the better one is so by luck too
    assert over_seeds(table[table["seed"] == 0], "x") == ""
    assert "That of draws, of 10,000 + 5,000 images for one model, is 0.0141 for MIG." in text


@pytest.mark.slow
def test_the_table_for_a_gpu_can_be_printed_without_one() -> None:
    command = [sys.executable, str(HERE / "gpu.py"), "--device", "cpu", "--steps", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| `") or line.startswith("| encoding")]
    assert len(rows) >= 5
    assert "× a bare loop" in rows[0]
