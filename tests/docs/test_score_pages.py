"""Tables that scripts of `tools/` write into pages: scores of models, and the recipe for short trainings."""

import json
from pathlib import Path

import pytest


def test_the_page_of_the_recipe_has_the_table_of_its_runs(tmp_path: Path) -> None:
    from recipe_page import DATA, PAGE, SOURCE, collect, table

    from fill_page import fill

    runs = json.loads(DATA.read_text())
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, SOURCE, table(runs)) == page
    spec = {"name": "a", "model": "BetaVAE", "args": {"beta": 4.0}, "lr": 1e-4}
    row = {"step": 10, "core": 76.04, "score": [0.12345, 0.2, 0.3, 0.4]}
    (tmp_path / "a-0.json").write_text(json.dumps({"spec": spec, "seed": 0, "log": [row]}))
    known = [{"spec": spec, "seed": seed, "log": [row | {"score": [0.3, 0.2, 0.3, 0.4]}]} for seed in (1, 0)]
    runs = collect(tmp_path, known)  # the file takes the place of what was known of seed 0
    assert [(run["seed"], run["log"][0]["score"][0]) for run in runs] == [(1, 0.3), (0, 0.1235)]
    assert "| BetaVAE, beta 4 | lr 0.0001, constant strength | 76 | 2 | **0.212** (0.300, 0.123) |" in table(runs)


def test_the_pages_have_the_scores_of_bundled_models() -> None:
    from score_pages import pages

    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"run python tools/score_pages.py: {path.name} is out of date"


def test_seeds_and_draws_have_separate_deviations() -> None:
    pd = pytest.importorskip("pandas")
    from score_pages import over_seeds

    rows = [
        {"dataset": "dsprites", "method": "BetaVAE", "strength": beta, "seed": seed, "status": "done", "mig": mig}
        for beta, seed, mig in [(1, 0, 0.1), (1, 1, 0.3), (4, 0, 0.4), (4, 1, 0.2), (16, 0, 0.9)]
    ]
    rows.append(rows[0] | {"method": "GVAE", "mig": 0.7})
    rows += [rows[at] | {"method": "FactorVAE"} for at in (0, 2)]
    table = pd.DataFrame(rows).assign(dci=0.5)
    table["mig@again"] = table["mig"] + 0.02
    text = over_seeds(table, "x")
    # The one seed with β = 16 says nothing about seeds; two draws that differ by d have a deviation of d / √2.
    row = "| β-VAE | dsprites | 4 | 2 | 0.300 ± 0.141 | 0.500 ± 0.000 | median 0.300, 0.100 to 0.900 (5) |"
    assert row in text.splitlines()
    assert "| GVAE | dsprites | 1 | 1 | 0.700 | 0.500 | one model |" in text.splitlines()
    assert "FactorVAE" not in text  # two settings of one seed: the better one is so by luck too
    assert over_seeds(table[table["seed"] == 0], "x") == ""
    assert "That of draws, of 10,000 + 5,000 images for one model, is 0.0141 for MIG." in text
