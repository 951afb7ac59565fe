"""The page: whole, self-contained, and in words where a population allows nothing."""

import base64
import itertools
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from unknot.cli import main
from unknot.studies import load_results
from unknot.studies.analyses import ANALYSES
from unknot.studies.analyses.figures import heatmaps
from unknot.studies.population import read_table
from unknot.studies.report import make_report
from unknot.studies.synthetic import synthetic_results


@pytest.fixture(scope="module")
def small() -> pd.DataFrame:
    return synthetic_results(("dsprites",), seeds=2)


def test_page_needs_no_other_file_and_has_everything(small: pd.DataFrame, tmp_path: Path) -> None:
    names = ["explained_variance", "transfer_experiment", "unfairness", "semi_supervised"]
    report = make_report(small, names, resamples=20)
    text = report.write(tmp_path / "out").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=['\"](?!data:|#)", text)
    assert "<script" not in text
    for result in report.results:
        for words in (result.question, result.shows, result.limits, result.found):
            assert words.split("'")[0] in text
        picture = base64.b64encode((tmp_path / "out" / f"{result.name}.png").read_bytes()).decode()
        assert picture in text
        assert len(pd.read_csv(tmp_path / "out" / f"{result.name}.csv")) == len(result.table)
    for printed in ("37.0 %", "59.0 %", "81.9 %", "62.1 %"):
        assert printed in text
    assert "This population does not allow it. Needs models of S2BetaVAE" in text
    numbers = pd.read_csv(tmp_path / "out" / "numbers.csv")
    assert numbers.set_index("number").thesis["same metric, same data"] == 0.819
    assert pd.read_csv(tmp_path / "out" / "signs.csv").agrees.notna().any()


def test_markdown_says_what_the_page_says(small: pd.DataFrame, tmp_path: Path) -> None:
    report = make_report(small, ["explained_variance", "unfairness", "semi_supervised"], resamples=20)
    report.write(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for result in report.results:
        for words in (f"*{result.question}*", f"**Shows:** {result.shows}", f"**Does not show:** {result.limits}"):
            assert words in text
        for number in result.numbers:  # once in its section, and once more where the thesis prints it
            row = rf"\| {re.escape(number.label)} \| {re.escape(number.shown)} \|"
            assert len(re.findall(row, text)) == 1 + (not np.isnan(number.thesis))
    names = {"overview", *(result.name for result in report.results)}
    assert set(re.findall(r"\]\((.*?)\)", text)) == {f"{name}.png" for name in names}
    assert all((tmp_path / f"{name}.png").is_file() for name in names)
    assert text.index("overview.png") < text.index("##")
    assert "\n\n\n" not in text
    assert f"* {ANALYSES['semi_supervised'].about['title']} {report.missing['semi_supervised']}" in text


def test_a_report_opens_with_methods_by_strength(small: pd.DataFrame) -> None:
    overview = make_report(small, ["unfairness"], resamples=10).overview
    assert list(overview.medians) == ["dsprites, MIG", "dsprites, DCI"]
    single = small[small.method == "BetaTCVAE"]
    expected = single.groupby("strength").mig.median()
    row = overview.medians["dsprites, MIG"].loc["β-TCVAE"].dropna()
    assert row.tolist() == expected.tolist()
    assert overview.strengths["dsprites, MIG"].loc["β-TCVAE"].dropna().tolist() == expected.index.tolist()
    highest = small.groupby(["method", "strength", "data.k"], dropna=False).mig.median().max()
    assert overview.sentences[0].startswith(f"On dsprites the highest median MIG is {highest:.2f}, of ")
    # by another route: absolute differences of all pairs of models of one setting
    keys = ["method", "strength", "data.k", "data.num_labels"]
    groups = small.groupby([key for key in keys if key in small], dropna=False)
    apart = [abs(a - b) for _, part in groups for a, b in itertools.combinations(part.mig, 2)]
    assert f"{np.median(apart):.3f} with another seed" in overview.sentences[1]


def test_long_names_fit_beside_a_small_matrix(tmp_path: Path) -> None:
    matrix = pd.DataFrame([[0.1] * 5], ["weak_reconstruction"], [f"downstream_gbt_{n}" for n in range(5)])
    figure = Figure(layout="constrained")
    heatmaps(figure, {"k = 1": matrix, "k = rnd": matrix})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(tmp_path / "figure.png")


def nan_columns(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**dict.fromkeys(["mig", "unfairness", "downstream_gbt_10000", "weak_reconstruction"], np.nan))


HARD = {
    "five rows": lambda t: t.head(5),
    "one row": lambda t: t.head(1),
    "no row": lambda t: t.head(0),
    "columns of NaN": nan_columns,
    "all scores NaN": lambda t: t.assign(**dict.fromkeys(t.columns[6:], np.nan)),
    "all failed": lambda t: t.assign(status="failed"),
    "constant scores": lambda t: t.assign(**dict.fromkeys(t.columns[6:], 0.5)),
    "gaps at random": lambda t: t.where(np.random.default_rng(0).random(t.shape) > 0.3, other=np.nan).assign(
        dataset=t.dataset, method=t.method
    ),
    "infinite scores": lambda t: t.assign(total_correlation=np.inf, mig=np.where(t.index % 3 == 0, np.inf, t.mig)),
    "words for numbers": lambda t: t.assign(mig="broken"),
    "no strengths": lambda t: t.drop(columns="strength"),
    "one method": lambda t: t[t.method == "BetaVAE"],
    "pairs only": lambda t: t[t.method == "AdaGVAE"],
}


@pytest.mark.parametrize("case", HARD)
def test_poor_tables_give_words_and_no_crash(small: pd.DataFrame, case: str, tmp_path: Path) -> None:
    table = HARD[case](small)
    report = make_report(table, resamples=10)
    assert report.broken == {}
    assert len(report.results) + len(report.missing) == len(ANALYSES)
    assert all(len(words) > 20 for words in report.missing.values())
    for result in report.results:
        assert " nan" not in result.shows, result.name
        if case in ("one row", "constant scores", "infinite scores"):
            result.figure()
    if case in ("five rows", "no row"):
        assert "This population does not allow it." in report.write(tmp_path).read_text(encoding="utf-8")
    if case in ("no row", "all failed", "all scores NaN"):
        assert not report.results


def test_names_from_a_table_are_no_markup(small: pd.DataFrame, tmp_path: Path) -> None:
    table = small.assign(dataset="<script>alert(1)</script>")
    text = make_report(table, ["unfairness"], resamples=10).write(tmp_path).read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_command_writes_a_report(small: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.to_csv(tmp_path / "mine.csv", index=False)
    only = ["--only", "transfer_experiment", "reliability", "--resamples", "10"]
    assert main(["study", "report", str(tmp_path / "mine.csv"), *only]) == 0
    out = capsys.readouterr().out
    assert "same metric, same data" in out
    assert (tmp_path / "mine-report" / "report.html").is_file()
    assert main(["study", "report", str(tmp_path / "mine.csv"), "--only", "nonsense"]) == 1
    assert "there are" in capsys.readouterr().err
    assert main(["study", "report", str(tmp_path / "absent.csv")]) == 1
    assert "neither the folder of a study nor a table" in capsys.readouterr().err


def test_command_reports_several_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study", "report", "dsprites32", "rooms32", "--only", "transfer_between_datasets", "--resamples", "10"]
    assert main(words) == 1
    assert "add --out FOLDER" in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main([*words, "--out", str(tmp_path / "both")]) == 0
    assert "mean ρ between data sets" in capsys.readouterr().out
    page = (tmp_path / "both" / "report.md").read_text(encoding="utf-8")
    assert page.startswith("# Results of dsprites32 and rooms32")
    assert main(["study", "report", "dsprites31"]) == 1
    assert re.search(r"no bundled table 'dsprites31'; there are .*\bdsprites32, .*rooms32", capsys.readouterr().err)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json"])
def test_tables_are_read_as_they_were_written(small: pd.DataFrame, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table{suffix}"
    {".csv": small.to_csv, ".parquet": small.to_parquet}.get(
        suffix, lambda p, index: small.to_json(p, orient="records")
    )(path, index=False)
    pd.testing.assert_series_equal(read_table(path).mig, small.mig, rtol=1e-9)


def test_damaged_tables_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"broken\.parquet: not a table of results"):
        read_table(tmp_path / "broken.parquet")
    (tmp_path / "table.xlsx").touch()
    with pytest.raises(ValueError, match=r"is a \.csv, \.parquet"):
        read_table(tmp_path / "table.xlsx")
    with pytest.raises(ValueError, match="no bundled table"):
        load_results("absent")


def test_analyses_do_not_wait_for_torch() -> None:
    script = "import sys, unknot.studies.analyses, unknot.studies.theory; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
