"""The table of the thesis: what it names exists, and no study is missing."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from unknot.studies import Study
from unknot.training import configs

TEXT = (Path(__file__).parents[2] / "docs" / "thesis.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"\{py:\w+\}`~?(unknot\.[\w.]+)`", TEXT)))


@pytest.mark.parametrize("name", NAMES)
def test_names_exist(name: str) -> None:
    parts = name.split(".")
    thing = import_module(".".join(parts[:2]))
    for part in parts[2:]:
        if not hasattr(thing, part):
            import_module(f"{thing.__name__}.{part}")
        thing = getattr(thing, part)


@pytest.mark.parametrize("study", configs.sweep_names())
def test_every_bundled_study_has_a_row_with_its_number_of_jobs(study: str) -> None:
    row = re.search(rf"^\| `{study}` \|.*$", TEXT, flags=re.MULTILINE)
    assert row is not None
    assert f"`unknot study run {study}`" in row[0]
    assert f"| {len(Study.from_file(study).jobs()):,} |" in row[0]


def test_every_box_and_equation_is_listed_once() -> None:
    labels = re.findall(r"`((?:eq|eqn|algo?|thm):[\w-]+)`", TEXT)
    assert len(labels) == len(set(labels)) >= 50


def test_every_figure_and_table_is_listed_once() -> None:
    labels = re.findall(r"`((?:fig|figure|table|fig_stats)[:_][\w-]+)`", TEXT)
    assert len(labels) == len(set(labels)) == 54
