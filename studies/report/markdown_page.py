"""A report in Markdown, with its figures beside it."""

from typing import TYPE_CHECKING

import numpy as np

from unknot.studies import claims
from unknot.studies.analyses import ANALYSES, Number, Result

if TYPE_CHECKING:
    from unknot.studies.report.report import Report

HEAD = "| | here | 95 % | chance | thesis |\n|---|---|---|---|---|"


def page(report: "Report", title: str) -> str:
    """The page: our figures beside those of the thesis, signs, then every analysis."""
    frame = report.population.frame
    parts = [
        f"# {title}",
        f"{len(frame)} models with scores; {len(report.results)} of "
        f"{len(report.results) + len(report.missing) + len(report.broken)} analyses are possible. Intervals hold 95 % "
        "of bootstrap resamples of settings, with all their seeds.",
        *report.population.notes,
    ]
    printed = [number for result in report.results for number in result.numbers if not np.isnan(number.thesis)]
    if printed:
        parts += ["## Beside the thesis", "\n".join([HEAD, *map(_row, printed)])]
    if findings := report.claims:
        parts += ["## Claims of the thesis", claims.RULE, claims.markdown(findings)]
    results = {result.name: result for result in report.results}
    for chapter, names in report.chapters().items():
        parts.append(f"## {chapter}")
        parts += [part for name in names if name in results for part in _section(results[name])]
        absent = {name: report.missing.get(name) or report.broken[name] for name in names if name not in results}
        if absent:
            lines = [f"* {ANALYSES[name].about['title']} {words}" for name, words in absent.items()]
            parts += ["This population does not allow:", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _row(number: Number) -> str:
    between = f"{number.text(number.low)} to {number.text(number.high)}" if not np.isnan(number.low) else "–"
    cells = (number.label, number.text(number.value), between, number.text(number.chance), number.text(number.thesis))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _section(result: Result) -> list[str]:
    parts = [
        f"### {result.title}",
        f"*{result.question}*",
        f"![{result.title}]({result.name}.png)",
        "\n".join([HEAD, *map(_row, result.numbers)]),
        f"**Shows:** {result.shows}",
        f"**Does not show:** {result.limits}",
        f"**The thesis:** {result.found}",
    ]
    return parts + (["\n".join(f"* {note}" for note in result.notes)] if result.notes else [])
