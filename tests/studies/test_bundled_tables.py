"""Tables of results: merged, bundled, written and read."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from unknot.cli import main
from unknot.files import write_json
from unknot.studies import Study, bundled_tables, load_results, results, write_table
from unknot.studies.jobs.runner import prepare
from unknot.studies.plan import JobFolder, Plan

pd = pytest.importorskip("pandas")


@pytest.fixture
def study(toys: Path, tiny: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a study of six jobs: four are done, one of them without a record; one failed, one waits."""
    monkeypatch.syspath_prepend(str(toys))
    folder = tmp_path / "runs"
    plan = prepare(Study("tiny", tiny(), imported=("toys",)), folder)
    finish(folder, plan, (0, 1, 2, 4))
    JobFolder(folder, plan.jobs[0].name).record_file.unlink()
    failed = JobFolder(folder, plan.jobs[3].name)
    failed.path.mkdir(parents=True)
    failed.fail("out of luck")
    return folder


def finish(folder: Path, plan: Plan, places: Iterable[int]) -> None:
    """Leave what some of the jobs of a plan leave."""
    for place in places:
        files = JobFolder(folder, plan.jobs[place].name)
        files.model.mkdir(parents=True)
        (files.model / "config.json").write_text("{}")
        save_file({"weight": torch.zeros(1)}, files.model / "model.safetensors")
        scores = {
            "mig": place / 3,
            "modularity": 1234.56789,
            "elbo": -38.123456,
            "std": {},
            "details": {},
            "protocol": {},
        }
        entry = {"draws": plan.protocols[0].draws, "metrics": ["mig", "modularity", "elbo"], "scores": scores}
        write_json(files.path / "scores.json", {"validation": {"val/loss": 100.0}, "entries": [entry]})
        write_json(files.record_file, {"core_seconds": 360.0, "commit": "ab" * 20})


def test_parts_of_a_study_that_ran_in_two_places_make_one_table(
    study: Path, tiny: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there"
    plan = prepare(Study("tiny", tiny(seeds=3), imported=("toys",)), there)
    finish(there, plan, (0, 4, 5, 6, 7))
    table = results(study, there)
    assert table["job"].tolist() == [job.name for job in plan.jobs]
    assert table["status"].tolist() == ["done", "done", "done", "failed", "done", "done", "done", "done", "waiting"]
    assert table["mig"].dropna().tolist() == [place / 3 for place in (0, 1, 2, 4, 5, 6, 7)]
    assert table["core_seconds"].tolist()[:3] == [360.0] * 3  # of the first, only there
    assert list(table.columns) == list(results(there).columns)
    pd.testing.assert_frame_equal(results(study, study), results(study), check_dtype=False)
    (written,) = write_table(there, tmp_path / "there.csv")
    assert main(["study", "table", str(study), str(written), "--out", str(tmp_path / "all.parquet")]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "all.parquet"), table, check_dtype=False)
    assert main(["study", "table", str(study), str(there)]) == 1
    assert "A table of several sources needs a file: add --out" in capsys.readouterr().err
    (tmp_path / "other.csv").write_text("model,mig\na,0.1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has the columns job and status"):
        results(study, tmp_path / "other.csv")
    bundled_path = bundled_tables.bundle_table([study, there], tmp_path / "tables")
    assert bundled_tables.json.loads(bundled_path.with_suffix(".json").read_text(encoding="utf-8"))["planned"] == 9


def test_what_is_done_is_bundled_and_the_rest_counted(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bundled_tables.bundle_table(study, tmp_path / "tables")
    assert path == tmp_path / "tables" / "tiny.csv"
    monkeypatch.setattr(bundled_tables, "FOLDER", path.parent)
    table = load_results("tiny")
    assert table["status"].tolist() == ["done", "done", "done", "failed", "done"]
    facts = {name: table.attrs[name] for name in ("planned", "models", "failed", "core_hours", "core_hours_known_of")}
    assert facts == {"planned": 6, "models": 4, "failed": 1, "core_hours": 0.3, "core_hours_known_of": 3}
    assert table.attrs["scores"] == {"": {"num_train": 60, "num_test": 40, "seed": 0, "repeats": 1}}
    done = table[table["status"] == "done"]
    assert done["mig"].tolist() == [0.0, 0.333333, 0.666667, 1.33333]  # six digits, more than are ever printed
    assert done["val/loss"].tolist() == [100.0] * 4
    assert done["commit"].tolist()[1:] == ["ab" * 20] * 3
    assert table["seed"].tolist() == [0, 0, 0, 1, 1]
    assert table.loc[3, ["mig", "val/loss", "core_seconds"]].isna().all()
    assert "-38.1235" in path.read_text()
    bundled_tables.bundle_table(study, tmp_path / "tables")  # again: the same bytes, so that changes show what changed
    pd.testing.assert_frame_equal(load_results("tiny"), table)


def test_a_study_of_which_nothing_is_done_ships_nothing(
    toys: Path, tiny: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(toys))
    prepare(Study("tiny", tiny(), imported=("toys",)), tmp_path / "runs")
    with pytest.raises(ValueError, match="none of its 6 models is done yet"):
        bundled_tables.bundle_table(tmp_path / "runs", tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


def test_an_unknown_table_names_those_that_are_there(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled_tables, "FOLDER", tmp_path / "tables")
    with pytest.raises(ValueError, match=r"There is no bundled table 'tine'; there are none\.$"):
        load_results("tine")
    bundled_tables.bundle_table(study, tmp_path / "tables")
    with pytest.raises(ValueError, match=r"There is no bundled table 'tine'; there are tiny\.$"):
        load_results("tine")


@pytest.mark.parametrize("name", bundled_tables.names())
def test_the_tables_of_the_package_are_sound(name: str) -> None:
    table = load_results(name)
    done = table[table["status"] == "done"]
    assert len(done) == table.attrs["models"] <= table.attrs["planned"]
    assert table["job"].is_unique
    planned = {job.name for job in Study.from_file(name).jobs()}
    assert set(table["job"]) <= planned
    assert len(planned) == table.attrs["planned"]
    scores = done[["mig", "dci", *done.columns.intersection(["sap", "modularity"])]]
    assert ((scores >= 0) & (scores <= 1)).all(axis=None)
