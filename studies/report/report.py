"""One page with every analysis that a population allows."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd

from unknot.files import replacing
from unknot.studies.analyses import ANALYSES, Result
from unknot.studies.claims import Finding, decide_on
from unknot.studies.population import Missing, Population
from unknot.studies.report import html_page, markdown_page

CHAPTERS = (
    "Unsupervised Learning of Disentangled Representations",
    "Evaluating Disentangled Representations",
    "Semi-Supervised Disentanglement",
    "Fairness of Disentangled Representations",
    "Weakly-Supervised Disentanglement",
)
DPI = 100


@dataclass
class Report:
    """The analyses of a table: those it allows, and what is missing for the others."""

    population: Population
    results: list[Result] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """What an analysis that could not be made needs."""
    broken: dict[str, str] = field(default_factory=dict)
    """Errors that an analysis ended in, which the table should not have caused."""
    table: pd.DataFrame | None = None
    """What claims are decided on, if the report is of all analyses."""
    resamples: int = 500

    @cached_property
    def claims(self) -> list[Finding]:
        """The thesis' claims that the table can decide; none where only some analyses were asked for."""
        return [] if self.table is None else decide_on(self.table, self.resamples)

    def numbers(self) -> pd.DataFrame:
        """All numbers, with their interval, what chance gives and what the thesis prints."""
        lines = [
            {
                "analysis": result.name,
                "number": n.label,
                "value": n.value,
                "low": n.low,
                "high": n.high,
                "chance": n.chance,
                "thesis": n.thesis,
            }
            for result in self.results
            for n in result.numbers
        ]
        return pd.DataFrame(lines, columns=["analysis", "number", "value", "low", "high", "chance", "thesis"])

    def signs(self) -> pd.DataFrame:
        """All directions that the thesis found, and whether this population agrees."""
        lines = [
            {
                "analysis": result.name,
                "claim": s.claim,
                "expected": s.expected,
                "observed": s.observed,
                "low": s.low,
                "high": s.high,
                "agrees": s.agrees,
            }
            for result in self.results
            for s in result.signs
        ]
        return pd.DataFrame(lines, columns=["analysis", "claim", "expected", "observed", "low", "high", "agrees"])

    def write(self, folder: str | Path, title: str = "What this population shows") -> Path:
        """Write ``report.html``, which needs no other file, and beside it each figure (PNG) and table (CSV).

        ``report.md`` says the same in Markdown, and shows the figures that lie beside it.

        Returns:
            The path of the page.
        """
        target = Path(folder)
        pictures = {}
        for result in self.results:
            buffer = io.BytesIO()
            result.figure().savefig(buffer, format="png", dpi=DPI)
            pictures[result.name] = buffer.getvalue()
            _write(target / f"{result.name}.png", buffer.getvalue())
            _write(target / f"{result.name}.csv", result.table.to_csv(index=False).encode())
        _write(target / "numbers.csv", self.numbers().to_csv(index=False).encode())
        _write(target / "signs.csv", self.signs().to_csv(index=False).encode())
        _write(target / "report.md", markdown_page.page(self, title).encode())
        page = target / "report.html"
        _write(page, html_page.page(self, title, pictures).encode())
        return page

    def chapters(self) -> dict[str, list[str]]:
        """Names of the analyses that were tried, by chapter of the thesis."""
        tried = {result.name for result in self.results} | self.missing.keys() | self.broken.keys()
        names = {
            chapter: [name for name in ANALYSES if name in tried and ANALYSES[name].about["chapter"] == chapter]
            for chapter in CHAPTERS
        }
        return {chapter: of for chapter, of in names.items() if of}


def make_report(
    table: pd.DataFrame,
    only: Iterable[str] | None = None,
    resamples: int = 500,
    seed: int = 0,
    progress: Callable[[str], None] = lambda name: None,
) -> Report:
    """Run all analyses on a table of results.

    Args:
        table: one line for each model; see :class:`unknot.studies.population.Population`.
        only: names of analyses; all by default.
        resamples: of bootstraps and permutations.
        seed: of these.
        progress: called with the name of each analysis before it runs.

    >>> from unknot.studies.synthetic import synthetic_results
    >>> report = make_report(synthetic_results(seeds=2, weak=False), only=["transfer_experiment"], resamples=100)
    >>> [number.label for number in report.results[0].numbers][0]
    'same metric, same data'
    """
    names = list(ANALYSES) if only is None else list(only)
    unknown = [name for name in names if name not in ANALYSES]
    if unknown:
        raise ValueError(f"Unknown analyses {', '.join(unknown)}; there are {', '.join(ANALYSES)}.")
    if resamples < 2:
        raise ValueError(f"resamples must be at least 2, got {resamples}.")
    report = Report(Population(table), table=table if set(names) == set(ANALYSES) else None, resamples=resamples)
    for name in sorted(names, key=lambda name: CHAPTERS.index(ANALYSES[name].about["chapter"])):
        progress(name)
        try:
            report.results.append(ANALYSES[name](report.population, resamples=resamples, seed=seed))
        except Missing as error:
            report.missing[name] = str(error)
        except Exception as error:  # one analysis must not take the others with it; the page says so
            report.broken[name] = f"{type(error).__name__}: {error}"
    return report


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as beside:
        beside.write_bytes(content)
