"""The pages of docs/solvers: their examples run, and the figures can be drawn."""

import csv
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import solver_figures as figures

PAGES = Path(__file__).parents[2] / "docs" / "solvers"


@pytest.mark.parametrize("page", ["README.md", "frank_wolfe.md", "matching_pursuit.md", "cones.md", "torch.md"])
def test_examples_run(page: str) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
    for link in re.findall(r"\]\(([^)#]+?)(?:#\w+)?\)", text):
        assert (PAGES / link).exists()


@pytest.mark.parametrize(("name", "columns"), [("cone", 12), ("acceleration", 6), ("zigzag", 4), ("faces", 2)])
def test_figures_are_written(name: str, columns: int, tmp_path: Path) -> None:
    assert figures.main([name, "--out", str(tmp_path / "new"), "--iterations", "15"]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [f"{name}.csv", f"{name}.png"]
    assert (tmp_path / "new" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / "new" / f"{name}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 17
    assert len(rows[0]) == columns + 1
    values = np.array(rows[1:], dtype=float)
    if name == "zigzag":  # away steps are at the optimum, the plain method is still on its way
        np.testing.assert_allclose(values[-1, 3:], [1.6, 0.0], atol=1e-6)
        assert values[-1, 2] > 0.2
    elif name != "faces":
        assert (values[-1, 1:] < values[1, 1:]).all()


def test_figures_complain_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        figures.main(["cone", "--iterations", "0"])
    assert "expected at least 1" in capsys.readouterr().err


def test_module_runs_as_a_command(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(PAGES / "experiments" / "solver_figures.py"),
        "acceleration",
        "--iterations",
        "5",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "wrote" in done.stdout
    assert done.stderr == ""


MODULES = ["atoms", "boosting", "estimators", "geometry", "homotopy", "lines", "objectives", "optim", "result", "terms"]


@pytest.mark.parametrize("name", MODULES)
def test_public_methods_have_a_docstring_of_their_own_or_of_their_base(name: str) -> None:
    module = importlib.import_module(f"unknot.solvers.{name}")
    for class_name, cls in inspect.getmembers(module, inspect.isclass):
        if not cls.__module__.startswith("unknot.solvers") or class_name.startswith("_"):
            continue
        for method, function in vars(cls).items():
            if not method.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
                documented = [base for base in cls.__mro__ if getattr(vars(base).get(method), "__doc__", None)]
                assert documented or getattr(function, "__name__", "") == "<lambda>", f"{class_name}.{method}"
