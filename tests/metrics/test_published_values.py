"""Measures and models after 2020 equal what their authors' own code gives on the same arrays."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from reference_values import GROUPS, SLOW, Reference

from unknot.metrics import functional as f

PAGE = Path(__file__).parents[2] / "docs" / "metrics" / "implementations.md"


@pytest.fixture(scope="module")
def reference(oracles):
    return Reference(oracles)


@pytest.mark.parametrize("group", [pytest.param(g, marks=[pytest.mark.slow] if g in SLOW else []) for g in GROUPS])
def test_values(reference, group):
    rows = list(GROUPS[group](reference))
    assert rows
    page = PAGE.read_text(encoding="utf-8")
    for row in rows:
        assert np.shape(row.ours) == np.shape(row.theirs), row.score
        assert row.difference <= row.tolerance, row.score
        assert f"| {row.score} | {row.program} |" in page


@pytest.mark.parametrize(("authors", "pruning"), [("lq", "range"), ("tripod", "interquartile")])
def test_infomec_of_given_information(reference, monkeypatch, authors, pruning):
    """Information of latents with ties is that of unseeded noise: it is taken as given."""
    factors, codes = reference.arrays.heavy()
    expected = reference.numbers("metrics", f"infomec/{authors}/heavy")
    assert f.normalised_information(codes, factors)[:, 6].max() < 0.02
    module = importlib.import_module("unknot.metrics.functional.infomec")
    monkeypatch.setattr(module, "normalised_information", lambda *arguments: np.array(expected["nmi"]))
    found = f.infomec(codes, factors, pruning=pruning)
    names = ("infom", "infoc", "infoe")
    assert [found[name] for name in names] == pytest.approx([expected[name] for name in names], abs=1e-5)


def test_matches_and_assignments(reference):
    z, _, h6 = reference.arrays.continuous()
    factors, codes = reference.arrays.discrete()
    expected = reference.numbers("metrics", "mcc/rectangular_assignment")
    for correlation in ("pearson", "spearman"):
        for name, (inputs, truth) in {"cont6": (h6, z), "discrete": (codes, factors)}.items():
            score, match = expected[f"{name}_{correlation}"]
            assert f.mcc(inputs, truth, correlation) == pytest.approx(score, abs=1e-9)
            assert f.matched_correlations(inputs, truth, correlation)[0].tolist() == match
