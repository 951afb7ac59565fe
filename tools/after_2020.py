"""Generated parts of ``docs/studies/after_2020.md`` and ``shifts.md``: tables of studies, and their findings."""

from pathlib import Path
from typing import Any

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
HEADS = {
    "independent": "Trained and scored on **independent** factors",
    "correlated": "Trained on **correlated** factors, scored on these → on independent factors",
    "held out": "Trained with a block of combinations **held out**, scored on the others → on independent factors",
}
"""Laws of the study, as headings."""
OTHER = "@independent"
LOSS = "val/reconstruction"
METHODS = ("BetaVAE", "BetaTCVAE", "FactorVAE", "AdaGVAE", "HFSVAE", "SlowVAE", "QLAE")
SEEDS = 2
NOTHING = 0.1  # InfoE of latents with almost no information
SAME = 0.01


def block(folder: Path) -> str:
    """Return tables for each distribution, and the cost of training."""
    table = load_results(NAME)
    about = bundled_tables.about(NAME)
    parts = [
        f"{about['models']} of {about['planned']} models, {about['failed']} failed, "
        f"{about['core_hours']:.2f} core-hours of training.{_missing(table, about)}",
        *(_of_law(table, law) for law in HEADS),
        _permuted(table),
        "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(_sentences(table), 1)),
    ]
    return "\n\n".join(part for part in parts if part)


LAWS = {"held out": "held-out combinations", "independent": "independent factors"}
"""Laws that models are scored on beside their own."""


def shifts(name: str, other: str, scores: dict[str, str]) -> str:
    """Table of a study whose models are scored on two laws: on their own, and on the ``other``."""
    if name not in bundled_tables.names():
        return "No model of this study is trained yet."
    table, about = load_results(name), bundled_tables.about(name)
    seeds = sorted(table.seed.unique())
    which = f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"
    lines = [
        f"{about['models']} of {about['planned']} models ({which}), {about['failed']} failed, "
        f"{about['core_hours']:.2f} core-hours of training. Scores on the law of training → on {LAWS[other]}:",
        "",
        f"| law | model | seeds | {' | '.join(scores.values())} |",
        "|---|---|---|" + "---|" * len(scores),
    ]
    for (law, method), group in table.groupby(["dataset", "method"], sort=False):
        cells = [f"{_mean(group[score])} → {_mean(group[f'{score}@{other}'])}" for score in scores]
        lines.append(f"| {law} | {label(str(method))} | {len(group)} | {' | '.join(cells)} |")
    laws = table.groupby("method").dataset.transform("nunique")
    whole = table[laws == table.dataset.nunique()]
    means = whole.groupby("dataset", sort=False)[[column for s in scores for column in (s, f"{s}@{other}")]].mean()
    trained = ", ".join(label(str(method)) for method in whole.method.unique())
    lines += ["", f"Means over models ({trained}):", ""]
    lines += [f"| law | {' | '.join(scores.values())} |", "|---|" + "---|" * len(scores)]
    for law, row in means.iterrows():
        cells = [f"{row[score]:.2f} → {row[f'{score}@{other}']:.2f}" for score in scores]
        lines.append(f"| {law} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _missing(table: pd.DataFrame, about: dict[str, Any]) -> str:
    """Return the methods and seeds that are not trained yet."""
    if about["models"] == about["planned"]:
        return ""
    absent = [label(method) for method in METHODS if method not in set(table.method)]
    seeds = table.groupby(["dataset", "method"]).seed.nunique()
    parts = [*absent, *(["the second seed"] if seeds.min() < SEEDS else [])]
    return f" Not trained yet: {' and '.join(parts)}. One seed says little about a method."


def _of_law(table: pd.DataFrame, law: str) -> str:
    """Return scores of the models trained on a distribution: means over seeds, on it and on independent factors."""
    of = table[table.dataset == law]
    if of.empty:
        return ""
    same = law == "independent"
    titles = [*SCORES.values(), "-log p(x&#124;z)"]
    lines = [
        f"{HEADS[law]}:",
        "",
        f"| model | seeds | {' | '.join(titles)} |",
        "|---|---|" + "---|" * len(titles),
    ]
    for method, group in sorted(of.groupby("method"), key=lambda item: -item[1]["mig" + OTHER].mean()):
        cells = []
        for score in SCORES:
            own, other = _mean(group[score]), _mean(group[score + OTHER])
            cells.append(own if same else f"{own} → {other}")
        cells.append(f"{group[LOSS].mean():.0f}")
        lines.append(f"| {label(str(method))} | {len(group)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values: pd.Series) -> str:
    """Format the mean over seeds; for two seeds, also half their difference."""
    text = f"{values.mean():.2f}"
    return f"{text} ± {(values.max() - values.min()) / 2:.2f}" if len(values) > 1 else text


def _sentences(table: pd.DataFrame) -> list[str]:
    """Return the five findings of the table; numbers and directions are computed."""
    mig = table.groupby(["dataset", "method"])["mig" + OTHER].mean().unstack("dataset")
    alone = mig["independent"].dropna().sort_values()
    both = mig.dropna(subset=["independent", "correlated"])
    most = (both["independent"] - both["correlated"]).idxmax()
    holes = mig.dropna(subset=["independent", "held out"])
    correlated = table[table.dataset == "correlated"]
    own = (correlated["mig"] - correlated["mig" + OTHER]).mean()
    higher = (table["infomec_permuted" + OTHER] > table["infomec" + OTHER]).sum()
    explicit = table.groupby("method")["infomec_explicitness" + OTHER].mean()
    worst = explicit.idxmin()
    weakest = f", and {label(str(worst))} has an InfoE of {explicit[worst]:.2f}: it has not learned to reconstruct"
    shift = _moves("MIG on independent factors", both["independent"], both["correlated"])
    return [
        f"Trained on independent factors, {label(alone.index[-1])} has the highest MIG, {alone.iloc[-1]:.2f}, and "
        f"{label(alone.index[0])} the lowest, {alone.iloc[0]:.2f}.",
        f"Training on correlated factors {shift} on average; {label(most)} changes most, "
        f"from {both['independent'][most]:.2f} to {both['correlated'][most]:.2f}.",
        f"Holding a block of combinations out {_moves('it', holes['independent'], holes['held out'])}.",
        "Scored on the correlated factors that they were trained on, the same models have a MIG that is "
        f"{abs(own):.2f} {'higher' if own > 0 else 'lower'} than on independent ones: a score needs its law beside it.",
        f"Not expected: InfoM of permuted factors is above that of the true ones for {higher} of {len(table)} models"
        f"{weakest if explicit[worst] < NOTHING else ''}.",
    ]


def _moves(what: str, before: pd.Series, after: pd.Series) -> str:
    """Describe how the mean of a score over methods changes."""
    first, second = f"{before.mean():.2f}", f"{after.mean():.2f}"
    if abs(before.mean() - after.mean()) < SAME:
        return f"leaves {what} about as it is, {first} and {second}"
    return f"{'lowers' if after.mean() < before.mean() else 'raises'} {what} from {first} to {second}"


def _permuted(table: pd.DataFrame) -> str:
    """Return InfoM of the same latents with permuted factors, next to the original."""
    column = "infomec_permuted" + OTHER
    lines = ["| model | InfoM | InfoM, factors permuted |", "|---|---|---|"]
    for method, group in sorted(table.groupby("method"), key=lambda item: str(item[0])):
        infom = group["infomec" + OTHER].mean()
        lines.append(f"| {label(str(method))} | {infom:.2f} | {group[column].mean():.2f} |")
    return "InfoM on independent factors, beside what the same latents score if factors are permuted:\n\n" + "\n".join(
        lines
    )
