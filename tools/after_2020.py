"""The generated part of ``docs/studies/after_2020.md``: the table of the study ``after2020``, and what it shows."""

from pathlib import Path

import pandas as pd

from unknot.studies import bundled_tables, load_results
from unknot.studies.population import label

NAME = "after2020"
SCORES = {
    "mig": "MIG",
    "dci": "DCI",
    "infomec": "InfoM",
    "infomec_explicitness": "InfoE",
    "infomec_compactness": "InfoC",
    "mcc": "MCC",
}
LAWS = ("independent", "correlated", "held out")
OTHER = "@independent"


def block(folder: Path) -> str:
    """Tables for each law, and how much training took."""
    table = load_results(NAME)
    about = bundled_tables.about(NAME)
    parts = [
        f"{about['models']} of {about['planned']} models, {about['failed']} failed, "
        f"{about['core_hours']:.2f} core-hours of training.",
        *(_of_law(table, law) for law in LAWS),
        _permuted(table),
    ]
    return "\n\n".join(part for part in parts if part)


def _of_law(table: pd.DataFrame, law: str) -> str:
    """Scores of the models that were trained on a law: mean over seeds, on this law and on independent factors."""
    of = table[table.dataset == law]
    if of.empty:
        return ""
    same = law == "independent"
    titles = list(SCORES.values())
    lines = [
        f"Trained on **{law}** factors"
        + ("." if same else ", scored on these | on independent factors:")
        + (" Scores on these:" if same else ""),
        "",
        f"| model | seeds | {' | '.join(titles)} |",
        "|---|---|" + "---|" * len(titles),
    ]
    for method, group in sorted(of.groupby("method"), key=lambda item: -item[1]["mig" + OTHER].mean()):
        cells = []
        for score in SCORES:
            own, other = _mean(group[score]), _mean(group[score + OTHER])
            cells.append(own if same else f"{own} → {other}")
        lines.append(f"| {label(str(method))} | {len(group)} | {' | '.join(cells)} |")
    return "\n".join(lines).replace("scored on these | on independent", "scored on these → on independent")


def _mean(values: pd.Series) -> str:
    """Mean over seeds; of two, half their difference too."""
    text = f"{values.mean():.2f}"
    return f"{text} ± {(values.max() - values.min()) / 2:.2f}" if len(values) > 1 else text


def _permuted(table: pd.DataFrame) -> str:
    """InfoM of the same latents against permuted factors, beside what it is."""
    column = "infomec_permuted" + OTHER
    lines = ["| model | InfoM | InfoM, factors permuted |", "|---|---|---|"]
    for method, group in sorted(table.groupby("method"), key=lambda item: str(item[0])):
        infom = group["infomec" + OTHER].mean()
        lines.append(f"| {label(str(method))} | {infom:.2f} | {group[column].mean():.2f} |")
    return "InfoM on independent factors, beside what the same latents score if factors are permuted:\n\n" + "\n".join(
        lines
    )
