"""Generated parts of ``docs/studies/*.md``, computed from tables of results.

``python tools/study_pages.py docs/studies`` rewrites every part between ``<!-- generated: NAME -->`` and
``<!-- end of NAME -->``; a test compares pages with what would be written.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import after_2020
import numpy as np
import pandas as pd

from unknot.files import replacing
from unknot.studies import bundled_tables, claims, load_results
from unknot.studies.analyses import ANALYSES, weak_downstream, weak_fairness, weak_loss
from unknot.studies.analyses.result import mean_of
from unknot.studies.analyses.unsupervised import CLAIMED
from unknot.studies.population import ACCURACY, ADAPTIVE, Population, kinds_of_pairs, label
from unknot.studies.statistics import rank_correlations, spearman_bound, variance_explained

BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)
GENERATED = re.compile(r"<!-- (?:generated:|from) (?P<name>[\w/-]+) -->\n.*?<!-- end of (?P=name) -->", re.DOTALL)
"""Blocks, and the tables of ``tools/score_pages.py``, which ``tests/docs/test_score_pages.py`` compares."""
FIGURE = re.compile(r"(?<![\w.])[-+−]?(?:\d[\d,]*)?\.\d+(?: ?%)?|(?<![\w.])\d[\d,]* ?%")
"""A measured number: with decimals or in percent. Whole numbers in sentences are settings, such as steps."""
POPULATIONS = ("unsupervised32", "dsprites32", "rooms32")
SHARED = ("mig", "dci", "modularity", "sap", "irs")
"""Metrics that all populations have."""
WEAK_COLUMNS = ("mig", "dci", "sap", *(f"downstream_gbt_{size}" for size in (10, 100, 1000, 10_000)), "unfairness")


def rewrite(page: str, folder: Path) -> str:
    """Return a page with every generated part up to date."""

    def part(match: re.Match[str]) -> str:
        return f"{match[1]}{BLOCKS[match['name']](folder).strip()}\n{match[3]}"

    return BLOCK.sub(part, page)


def figures(page: str) -> tuple[int, list[str]]:
    """Return the number of measured numbers in the generated parts of a page, and those outside of them."""
    generated = sum(len(FIGURE.findall(match[0])) for match in GENERATED.finditer(page))
    rest = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", GENERATED.sub("", page), flags=re.DOTALL)
    return generated, FIGURE.findall(rest)


@cache
def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Return all bundled tables by name, and that of set prediction."""
    found = {name: load_results(name) for name in bundled_tables.names()}
    if (folder / "sets.csv").is_file():
        found["sets"] = pd.read_csv(folder / "sets.csv")
    return found


@cache
def findings(folder: Path) -> list[claims.Finding]:
    """Decide every claim on the bundled tables."""
    return claims.decide(tables(folder))


# Parts


def _claims(folder: Path) -> str:
    return claims.markdown(findings(folder))


def _tables(folder: Path) -> str:
    lines = ["| table | what | models | failed | core-hours |", "|---|---|---|---|---|"]
    for name in bundled_tables.names():
        about = bundled_tables.about(name)
        models = f"{about['models']} of {about['planned']}"
        hours = f"{about['core_hours']:.2f}"
        if about["core_hours_known_of"] < about["models"]:
            hours += f" (of {about['core_hours_known_of']} models)"
        lines.append(f"| `{name}` | {about['description']} | {models} | {about['failed']} | {hours} |")
    return "\n".join(lines)


def _methods(folder: Path, name: str) -> str:
    """Medians of the models of a table by method, kind of pairs and labels."""
    frame = Population(tables(folder)[name]).frame
    kinds = kinds_of_pairs(frame)
    words = frame.method.map(label) + np.where(kinds.isin(("?", "nan", "none")), "", ", k = " + kinds)
    if "data.labelling" in frame:
        labelled = frame["data.num_labels"].notna()
        amount = frame["data.num_labels"].map("{:,.0f}".format) + " " + frame["data.labelling"].astype(str)
        words = words + np.where(labelled, ", " + amount, "")
    columns = {
        "mig": "median MIG", "dci": "median DCI", ACCURACY: "accuracy of trees", "unfairness": "unfairness",
    }  # fmt: skip
    columns = {column: title for column, title in columns.items() if column in frame}
    lines = [
        f"| models of `{name}` | number | highest MIG | {' | '.join(columns.values())} |",
        "|---|---|---|" + "---|" * len(columns),
    ]
    order = frame.assign(words=words).groupby("words").mig.median().sort_values(ascending=False).index
    for word in order:
        of = frame[words == word]
        medians = " | ".join(f"{of[column].median():.3f}" for column in columns)
        lines.append(f"| {word} | {len(of)} | {of.mig.max():.3f} | {medians} |")
    return "\n".join(lines)


def _all_methods(folder: Path) -> str:
    names = [name for name in bundled_tables.names() if not name.startswith(("zoo", "after"))]
    return "\n\n".join(_methods(folder, name) for name in names)


def _variance(folder: Path) -> str:
    """Explained variance with all methods, without one that does not reconstruct, and with a reconstructing variant of
    it.
    """
    there = tables(folder)
    of = {
        (f"`{name}`", "without AnnealedVAE" if without else "all methods"): there[name].query("method != @without")
        for name in POPULATIONS
        if name in there
        for without in ("", "AnnealedVAE")
    }
    if "capacity32" in there:
        better = there["capacity32"].query("method == 'AnnealedVAE'")
        rest = there["dsprites32"].query("method != 'AnnealedVAE'")
        words = f"{len(better)} AnnealedVAEs of `capacity32` in place of its own"
        of[("`dsprites32`", words)] = pd.concat([rest, better], ignore_index=True)
    lines = ["| | models | method | method and strength |", "|---|---|---|---|"]
    for (name, words), table in of.items():
        population = Population(table)
        shares = []
        for by in ("method", "setting"):
            parts = [population.frame.dropna(subset=[metric]) for metric in SHARED]
            explained = [
                variance_explained(part[metric], part[by], 1).adjusted[0]
                for metric, part in zip(SHARED, parts, strict=True)
            ]
            shares.append(f"{100 * mean_of(explained):.1f} %")
        lines.append(f"| {name}, {words} | {len(population)} | {shares[0]} | {shares[1]} |")
    return "\n".join(lines)


def _annealed(folder: Path) -> str:
    """AnnealedVAE and DIP-VAE-I by length of training."""
    columns = {
        "elbo_reconstruction": "reconstruction",
        "elbo_kl": "KL",
        "mig": "MIG",
        "dci": "DCI",
        ACCURACY: "accuracy of trees",
    }
    lines = [
        f"| model | table | steps | models | {' | '.join(columns.values())} |",
        "|---|---|---|---|" + "---|" * len(columns),
    ]
    for name in ("dsprites32", "capacity32"):
        frame = Population(tables(folder)[name]).frame if name in tables(folder) else pd.DataFrame()
        if len(frame):
            kept = frame[
                frame.method.isin(["AnnealedVAE", "BetaVAE"]) | (frame.setting == "DIPVAEI model.lambda_od=10")
            ]
            for (method, strength), of in kept.groupby(["method", "strength"]):
                if method != "BetaVAE" or strength == 1:
                    cells = " | ".join(f"{of[column].mean():.3f}" for column in columns)
                    words = f"{label(str(method))}, {strength:g}"
                    lines.append(f"| {words} | `{name}` | {of.steps.iloc[0]:,.0f} | {len(of)} | {cells} |")
    return "\n".join(lines)


def _weak_loss(folder: Path) -> str:
    """Correlations of the weak loss: over all models, and inside one kind of pairs."""
    table = tables(folder)["weak32"]
    models = Population(table).methods(*ADAPTIVE).frame
    pooled = rank_correlations(models, ["weak_reconstruction"], list(WEAK_COLUMNS), resamples=2).set_index("column").rho
    parts = [weak_loss, weak_downstream, weak_fairness]
    long = pd.concat([analysis(table, resamples=2).table for analysis in parts])
    long["other"] = long.column.where(long.row == "weak_reconstruction", "")
    long = long[long.other != ""].set_index(["dataset", "other"])
    names = list(dict.fromkeys(long.index.get_level_values(0)))
    lines = [
        f"| ρ of the weak loss with | {' | '.join(name.split(', ')[1] for name in names)} | inside methods and k | "
        "all together | thesis |",
        "|---|" + "---|" * (len(names) + 3),
    ]
    for column in WEAK_COLUMNS:
        of = [long.loc[(name, column)] for name in names]
        values = [*(part.rho for part in of), mean_of([part.within for part in of]), pooled[column]]
        sign = "positive" if column == "unfairness" else "negative"
        lines.append(f"| {label(column)} | {' | '.join(f'{value:+.2f}' for value in values)} | {sign} |")
    return "\n".join(lines)


def _pick(folder: Path) -> str:
    """Adaptive model with the lowest weak loss, next to the others of its kind of pairs."""
    frame = Population(tables(folder)["weak32"]).methods(*ADAPTIVE).by_pairs().frame
    lines = [
        "| pairs | models | | the pick | median | best | models that are better |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, part in frame.groupby("dataset"):
        pick = part.loc[part.weak_reconstruction.idxmin()]
        for column, sign in (("mig", 1), ("dci", 1), ("unfairness", -1)):
            better = int((sign * part[column] > sign * pick[column]).sum())
            best = (sign * part[column]).max() * sign
            cells = f"{pick[column]:.3f} | {part[column].median():.3f} | {best:.3f} | {better}"
            lines.append(f"| {name} | {len(part)} | {label(column)} | {cells} |")
    return "\n".join(lines)


def _sets(folder: Path) -> str:
    """Average precision of the bundled set predictor by objects and slots, and by iterations."""
    table = tables(folder)["sets"]
    table = table[table.model == "cross-entropy"]
    lines = ["| objects | N slots | N + 1 | N + 2 | 12 |", "|---|---|---|---|---|"]
    objects = table[table.experiment == "objects"]
    for n, part in objects.groupby("objects"):
        cells = []
        for slots in (n, n + 1, n + 2, 12):
            of = part[part.slots == slots].ap_inf
            cells.append(f"{of.mean():.1f} ± {of.std():.1f}" if len(of) else "–")
        lines.append(f"| {n} | {' | '.join(cells)} |")
    steps = table[table.experiment == "iterations"].groupby("iterations").ap_inf
    lines += ["", f"| iterations | {' | '.join(map(str, steps.groups))} |", "|---|" + "---|" * steps.ngroups]
    lines.append(
        f"| AP at ∞ | {' | '.join(f'{m:.1f} ± {s:.1f}' for m, s in zip(steps.mean(), steps.std(), strict=True))} |"
    )
    return "\n".join(lines)


def _analyses(folder: Path) -> str:
    lines = ["| name | question | the thesis |", "|---|---|---|"]
    lines += [f"| `{name}` | {of.about['question']} | {of.about['found']} |" for name, of in ANALYSES.items()]
    return "\n".join(lines)


def _chance(folder: Path) -> str:
    noise = [f"{100 * 35 / (36 * seeds - 1):.0f} % with {seeds} seeds" for seeds in (2, 50)]
    bounds = [f"{spearman_bound(n):.2f} with {n} models" for n in (36, 12)]
    return (
        f"* Of 36 settings, noise alone explains {' and '.join(noise)} of the variance, not adjusted.\n"
        f"* A setting that is selected among 36 is at least as good as a random one in {100 * (0.5 + 0.5 / 36):.1f} % "
        f"of trials by chance.\n* |ρ| exceeds {' and '.join(bounds)} in one of twenty populations by chance."
    )


def _adjusted(folder: Path) -> str:
    """Adjusted metrics and adjusted unfairness, with and without a model as its own neighbour."""
    from unknot.metrics.functional import adjusted  # imports torch

    lines = ["| | without the model itself | with it, as the thesis says |", "|---|---|---|"]
    for name in POPULATIONS:
        if name not in tables(folder):
            continue
        population = Population(tables(folder)[name])
        columns = [*(metric for metric in population.metrics() if metric in CLAIMED), "unfairness"]
        frame = population.frame.dropna(subset=[*columns, ACCURACY])
        cells = []
        for own in (True, False):
            rest = {column: adjusted(frame[column], frame[ACCURACY], leave_one_out=own) for column in columns}
            rho = pd.DataFrame(rest).corr(method="spearman").loc[columns[:-1], "unfairness"]
            cells.append(f"{rho.mean():+.2f}")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _levels(folder: Path) -> str:
    return _csv_as_markdown(pd.read_csv(folder / "reasoning_levels.csv", dtype=str))


def _curves(folder: Path) -> str:
    curves = pd.read_csv(folder / "reasoning_curves.csv")
    steps = sorted(curves.steps.unique())
    lines = [f"| panels | {' | '.join(f'{step:,}' for step in steps)} steps |", "|---|" + "---|" * len(steps)]
    for name, of in curves.groupby("panels", sort=False):
        cells = [", ".join(f"{value:.3f}" for value in of[of.steps == step].accuracy) or "–" for step in steps]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    means = curves.groupby(["panels", "steps"]).accuracy.mean().unstack()
    turned = [name for name in means.index if name.endswith(", rotated")]
    gaps = np.concatenate([means.loc[name] - means.loc[name.removesuffix(", rotated")] for name in turned])
    lines += [
        "",
        f"Rotated codes differ from the codes themselves by {gaps.min():+.3f} to {gaps.max():+.3f}, in the mean by "
        f"{gaps.mean():+.3f}.",
    ]
    return "\n".join(lines)


def _reasoning(folder: Path) -> str:
    population = Population(tables(folder)["rooms32"])
    steps = ("reasoning_300", "reasoning_1000", "reasoning_3000")
    rows = ("mig", "dci", "sap", "dci_informativeness_test", ACCURACY)
    long = rank_correlations(population.frame, rows, steps, population.frame.setting)
    lines = ["| ρ of accuracy with | 300 | 1,000 | 3,000 steps |", "|---|---|---|---|"]
    for row in rows:
        of = long[long.row == row].set_index("column").loc[list(steps)]
        cells = [f"{line.rho:+.2f} ({line.low:+.2f} to {line.high:+.2f})" for line in of.itertuples()]
        lines.append(f"| {label(row)} | {' | '.join(cells)} |")
    frame = population.frame.dropna(subset=list(steps))
    spans = [f"{frame[step].min():.3f} to {frame[step].max():.3f}" for step in steps]
    lines.append(f"| accuracies of {len(frame)} models | {' | '.join(spans)} |")
    lines += ["", f"Row match is at {frame.reasoning_row_match.mean():.3f} on these matrices."]
    return "\n".join(lines)


def _theorems(folder: Path) -> str:
    from scipy import stats
    from theory_figures import DSPRITES

    from unknot.metrics.functional import mig
    from unknot.studies.theory import Entangling, heuristic_success, isolation_probability, perfect_classifier

    f = Entangling([stats.uniform()] * 2)
    z = f.sample(10_000)
    binned = np.minimum((z * 10).astype(int), 9)
    fair, unfair = perfect_classifier(separated=True), perfect_classifier()
    found = [100 * heuristic_success(DSPRITES, k, n=20_000) for k in range(1, 5)]
    chance = [isolation_probability(5, k) for k in range(1, 5)]
    return "\n".join(
        [
            "| | |",
            "|---|---|",
            f"| MIG of z if z is the truth | {mig(z, binned):.3f} |",
            f"| MIG of f(z) if z is the truth | {mig(f(z), binned):.3f} |",
            f"| how often the perfect classifier says yes to the two groups | {_percents(unfair.rate)} |",
            f"| the same with separate codes | {_percents(fair.rate)} |",
            "| chance that two pairs share one of five factors only, k = 1 to 4 | "
            f"{', '.join(f'{p:.2f}' for p in chance)} |",
            "| pairs in which the threshold finds the changes of perfect codes of dSprites, k = 1 to 4 | "
            f"{', '.join(f'{share:.0f} %' for share in found)} |",
        ]
    )


def _percents(shares: Sequence[float]) -> str:
    return " and ".join(f"{100 * share:.0f} %" for share in shares)


def _paper(folder: Path) -> str:
    return _csv_as_markdown(pd.read_csv(folder / "paper.csv", dtype=str))


def _csv_as_markdown(table: pd.DataFrame) -> str:
    rows = [list(table.columns), ["---"] * len(table.columns), *table.fillna("").to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


BLOCKS: dict[str, Callable[[Path], str]] = {
    "claims": _claims,
    "tables": _tables,
    "methods": _all_methods,
    "variance": _variance,
    "annealed": _annealed,
    "weak-loss": _weak_loss,
    "pick": _pick,
    "sets": _sets,
    "adjusted": _adjusted,
    "analyses": _analyses,
    "chance": _chance,
    "levels": _levels,
    "curves": _curves,
    "reasoning": _reasoning,
    "theorems": _theorems,
    "paper": _paper,
    "after-2020": after_2020.block,
    "splits": lambda folder: after_2020.shifts(
        "splits32", "held out", {"mig": "MIG", "dci": "DCI", "linear_r2": "linear R²", "mcc": "MCC"}
    ),
    "correlated": lambda folder: after_2020.shifts(
        "correlated32", "independent", {"mig": "MIG", "dci": "DCI", "infomec_explicitness": "InfoE", "mcc": "MCC"}
    ),
}
"""Writer of each generated part, given the folder of the pages."""


def pages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Return every page with its text up to date."""
    for path in sorted(folder.glob("*.md")):
        yield path, rewrite(path.read_text(encoding="utf-8"), folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite all pages of a folder."""
    parser = argparse.ArgumentParser(prog="python tools/study_pages.py", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="docs/studies of a checkout")
    folder = parser.parse_args(argv).folder
    for path, text in pages(folder):
        generated, typed = figures(text)
        print(f"{path}: {generated} numbers generated, {len(typed)} typed")
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
