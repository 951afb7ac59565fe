"""Fill the tables of scores in README.md and docs/studies/scores.md (trained models) and in docs/hub.md (checkpoints).

python tools/score_pages.py
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fill_page import fill
from unknot.hub import list_checkpoints
from unknot.metrics.registry import about
from unknot.studies import bundled_tables, load_results
from unknot.studies.study import METHODS

ROOT = Path(__file__).parents[1]
POPULATIONS, CHECKPOINTS = "studies/tables", "checkpoints/bundled"
"""Sources of the tables; the marks around a table name its source."""
SHOWN = {"mig": "MIG", "dci": "DCI", "dci_completeness": "completeness", "sap": "SAP", "modularity": "modularity"}

AT_A_GLANCE = {
    "dsprites32": ("images only", ["BetaVAE", "DIPVAEII", "FactorVAE", "BetaTCVAE"]),
    "weak32": ("pairs of images", ["AdaMLVAE", "AdaGVAE"]),
}
"""Rows of the README: the table of trained models, its supervision, its methods."""


def at_a_glance() -> str:
    """Return the README's table: medians across strengths and seeds."""
    lines = ["| trained on | method | models | MIG | DCI |", "|---|---|---|---|---|"]
    for name, (supervision, methods) in AT_A_GLANCE.items():
        table = load_results(name)
        for method in methods:
            models = table[(table["method"] == method) & (table["status"] == "done")]
            mig, dci = models["mig"].median(), models["dci"].median()
            lines.append(f"| {supervision} | {METHODS.get(method, method)} | {len(models)} | {mig:.2f} | {dci:.2f} |")
    return "\n".join(lines)


def over_seeds(table: pd.DataFrame, title: str) -> str:
    """Return, for each method, the setting with the best mean MIG: mean and spread over seeds, and the range of all.

    A method with a single model has no spread. The best of several settings with one seed each is left out, because
    luck chose it. The noise of draws, where every model was scored twice, is stated separately.
    """
    done = table[table["status"] == "done"]
    keys = [name for name in ("dataset", "method", "strength", "data.k", "data.num_labels") if name in done]
    groups = done.groupby(keys, dropna=False, sort=False)
    summary = groups.agg(seeds=("seed", "nunique"), mig=("mig", "mean"), mig_std=("mig", "std"))
    summary = summary.join(groups.agg(dci=("dci", "mean"), dci_std=("dci", "std"))).reset_index()
    if not (summary["seeds"] > 1).any():
        return ""
    models = summary.groupby(["dataset", "method"])["seeds"].transform("sum")
    summary = summary[(summary["seeds"] > 1) | (models == 1)]
    best = summary.loc[summary.groupby(["dataset", "method"], sort=False)["mig"].idxmax()]
    rows = [
        f"{title}: {len(done)} of {table.attrs.get('planned', len(table))} models.",
        "",
        "| method | data | best strength | seeds | MIG | DCI | MIG of all its models |",
        "|---|---|---|---|---|---|---|",
    ]
    for _, row in best.sort_values("mig", ascending=False).iterrows():
        every = done[(done["method"] == row["method"]) & (done["dataset"] == row["dataset"])]["mig"]
        of_all = f"median {every.median():.3f}, {every.min():.3f} to {every.max():.3f} ({len(every)})"
        strength = f"{row['strength']:g}" if "strength" in row and pd.notna(row["strength"]) else "-"
        rows.append(
            f"| {METHODS.get(row['method'], row['method'])} | {row['dataset']} | {strength} | {row['seeds']} | "
            f"{_over_seeds(row, 'mig')} | {_over_seeds(row, 'dci')} | "
            f"{of_all if len(every) > 1 else 'one model'} |"
        )
    rows += ["", f"± is the standard deviation over seeds.{noise(done)}"]
    return "\n".join(rows)


def _over_seeds(row: pd.Series, score: str) -> str:
    spread = row[f"{score}_std"]
    return f"{row[score]:.3f}" + (f" ± {spread:.3f}" if pd.notna(spread) else "")


def noise(done: pd.DataFrame) -> str:
    """Return the noise of draws, from models that were scored twice with independent draws."""
    noises = []
    for score in ("mig", "dci"):
        if f"{score}@again" in done:
            gap = (done[score] - done[f"{score}@again"]).dropna()
            noises.append(f"{np.sqrt((gap**2).mean() / 2):.4f} for {SHOWN[score]}")
    return f" That of draws, of 10,000 + 5,000 images for one model, is {' and '.join(noises)}." if noises else ""


def checkpoints(rows: list[Any]) -> str:
    """Return the table of scores on the cards of bundled checkpoints; models without latents have a second table."""
    lines = [f"| | data | seed | {' | '.join(SHOWN.values())} | MB |", f"|---|---|---|{'---|' * len(SHOWN)}---|"]
    others = ["", "| | data | seed | scores | MB |", "|---|---|---|---|---|"]
    for row in rows:
        of_codes = any(score in row.scores for score in SHOWN)
        values_by_title = [f"{about(score).title} {value:.3f}" for score, value in row.scores.items()]
        values = [_value(row.scores, score) for score in SHOWN] if of_codes else [", ".join(values_by_title)]
        size = f"{row.bytes / 1e6:.1f}" if row.bytes else "-"
        line = f"| `{row.ref}` | {row.dataset} | {row.seed} | {' | '.join(values)} | {size} |"
        (lines if of_codes else others).append(line)
    return "\n".join(lines + others if len(others) > 3 else lines)


def _value(scores: Any, name: str) -> str:
    if name not in scores:
        return "-"
    spread = f" ± {scores.std[name]:.3f}" if name in scores.std else ""
    return f"{scores[name]:.3f}{spread}"


def pages() -> dict[Path, str]:
    """Return the contents that the pages should have."""
    tables = {name: load_results(name) for name in bundled_tables.names()}
    texts = [over_seeds(table, f"`{name}`, {table.attrs['description']}") for name, table in tables.items()]
    populations = "\n\n".join(text for text in texts if text)
    rows = checkpoints(list_checkpoints(sources=["bundled"]))
    filled = {"README.md": (POPULATIONS, at_a_glance()), "docs/studies/scores.md": (POPULATIONS, populations)}
    filled["docs/hub.md"] = (CHECKPOINTS, rows)
    return {
        ROOT / page: fill((ROOT / page).read_text(encoding="utf-8"), source, text)
        for page, (source, text) in filled.items()
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
