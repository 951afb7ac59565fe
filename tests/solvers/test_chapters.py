"""The figures and pages of homotopy CGM and boosting VI, and the numbers behind them."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import solver_figures as figures
from solver_experiments import Ratings, checkpoints, clustering_accuracy, rates, slope, synthetic_ratings

PAGES = Path(__file__).parents[2] / "docs" / "solvers"


@pytest.mark.parametrize("page", ["homotopy.md", "boosting.md"])
def test_examples_run(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, page, "exec"), {})


def read(path: Path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(
    ("name", "iterations", "columns"),
    [
        ("rates", 200, 5),
        ("kmeans", 60, 7),
        ("completion", 40, 7),
        ("projection", 12, 4),
        pytest.param("boosting", 1, 4, marks=pytest.mark.slow),
    ],
)
def test_figures_are_written(name: str, iterations: int, columns: int, tmp_path: Path) -> None:
    out = tmp_path / "new"
    assert figures.main([name, "--out", str(out), "--iterations", str(iterations)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [f"{name}.csv", f"{name}.png"]
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    rows = read(out / f"{name}.csv")
    assert {len(row) for row in rows} == {columns}
    numbers = np.array([row[1 if name == "projection" else 0 :] for row in rows[1:]], dtype=float)
    assert np.isfinite(numbers).all()
    if name == "completion":
        assert rows[0][:3] == ["k", "SHCGM train RMSE", "SHCGM test RMSE"]
        assert (numbers[:, 0] == np.arange(0, 41)).all()
        assert numbers[-1, 1] < numbers[1, 1]


def test_data_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        figures.main(["kmeans", "--data", "nowhere.mat"])
    assert "nowhere.mat, which does not exist" in capsys.readouterr().err


def test_pieces() -> None:
    assert checkpoints(1).tolist() == [1]
    curves = rates(300, seeds=1)
    assert set(curves) == {"k", "HCGM objective", "HCGM feasibility", "SHCGM objective", "SHCGM feasibility"}
    assert slope(curves["k"], curves["HCGM feasibility"], 10) < -0.2
    ratings = synthetic_ratings()
    assert isinstance(ratings, Ratings)
    assert ratings.test[0].max(0)[0] < ratings.shape[0]
    dropped = Ratings((np.array([[0, 0], [2, 2]]), np.ones(2)), (np.array([[0, 2], [1, 2]]), np.ones(2)))
    assert dropped.shape == (2, 2)
    assert dropped.test[0].tolist() == [[0, 1]]  # the row without a training rating is gone
    assert clustering_accuracy(np.array([2, 2, 5]), np.array([0, 0, 1])) == 1.0
