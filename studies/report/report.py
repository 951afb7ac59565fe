"""Page with every analysis that a population allows."""

import base64
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from unknot.files import replacing
from unknot.studies import claims
from unknot.studies.analyses import ANALYSES, Result
from unknot.studies.population import Missing, Population, by_figure, label
from unknot.studies.report.overview import Overview

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
    """Analyses that a table allows, and what is missing for the others."""

    population: Population
    results: list[Result] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Requirements of the analyses that the table does not allow."""
    broken: dict[str, str] = field(default_factory=dict)
    """Unexpected errors of analyses."""
    table: pd.DataFrame | None = None
    """Table that claims are decided on, if the report is of all analyses."""
    resamples: int = 500

    @cached_property
    def claims(self) -> list[claims.Finding]:
        """Claims of the thesis that the table can decide; none if only some analyses were requested."""
        return [] if self.table is None else claims.decide_on(self.table, self.resamples)

    def numbers(self) -> pd.DataFrame:
        """All numbers, with their interval, chance level and the value of the thesis."""
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
        """All directions found in the thesis, and whether this population agrees."""
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

    def write(self, folder: str | Path, title: str = "Results of this population") -> Path:
        """Write a self-contained ``report.html``, with each figure (PNG) and table (CSV) next to it.

        ``report.md`` has the same content in Markdown, with links to the figures.

        Returns:
            The path of the page.
        """
        target = Path(folder)
        pictures = {result.name: _png(result.figure()) for result in self.results}
        if self.overview.medians:
            pictures["overview"] = _png(self.overview.figure())
        for name, picture in pictures.items():
            _write(target / f"{name}.png", picture)
        for result in self.results:
            _write(target / f"{result.name}.csv", result.table.to_csv(index=False).encode())
        _write(target / "numbers.csv", self.numbers().to_csv(index=False).encode())
        _write(target / "signs.csv", self.signs().to_csv(index=False).encode())
        context = self._context(title)
        encoded = {name: base64.b64encode(picture).decode() for name, picture in pictures.items()}
        markdown, page = (
            _render("page.md.jinja", context).strip() + "\n",
            _render("page.html.jinja", context | {"pictures": encoded}),
        )
        _write(target / "report.md", markdown.encode())
        _write(target / "report.html", page.encode())
        return target / "report.html"

    @cached_property
    def overview(self) -> Overview:
        """Scores by method and strength."""
        return Overview.of(self.population)

    def _context(self, title: str) -> dict[str, Any]:
        """Return the context of the templates."""
        frame = self.population.frame
        methods = by_figure(map(str, frame.method))
        of = pd.crosstab(frame.method.astype(str), frame.dataset.astype(str))
        totals = frame.groupby(frame.method.astype(str)).agg(settings=("setting", "nunique"), seeds=("seed", "nunique"))
        colours = {"reproduced": "yes", "contradicted": "no"}
        verdicts = ", ".join(f"{number} {verdict}" for verdict, number in claims.counts(self.claims).items())
        sentences = self.overview.sentences
        if self.claims:
            sentences = [
                *sentences,
                f"Of {len(self.claims)} claims of the thesis that these models can decide: {verdicts}.",
            ]
        return {
            "title": title,
            "models": len(frame),
            "results": self.results,
            "tried": len(self.results) + len(self.missing) + len(self.broken),
            "notes": self.population.notes,
            "overview": bool(self.overview.medians),
            "sentences": sentences,
            "datasets": list(of.columns),
            "counts": [(label(m), [*of.loc[m], *totals.loc[m]]) for m in methods],
            "claims": [(claims.cells(finding), colours.get(finding.verdict, "")) for finding in self.claims],
            "claims_table": claims.markdown(self.claims) if self.claims else "",
            "verdicts": verdicts,
            "rule": claims.RULE,
            "printed": [(r, number) for r in self.results for number in r.numbers if not np.isnan(number.thesis)],
            "chapters": [
                (chapter, [self._entry(name) for name in names]) for chapter, names in self.chapters().items()
            ],
        }

    def _entry(self, name: str) -> dict[str, Any]:
        """Return the context of one analysis."""
        result = next((result for result in self.results if result.name == name), None)
        return {
            "name": name,
            "about": ANALYSES[name].about,
            "result": result,
            "signs": [sign for sign in result.signs if sign.agrees is not None] if result else [],
            "words": self.missing.get(name) or f"Could not be computed: {self.broken.get(name)}",
        }

    def chapters(self) -> dict[str, list[str]]:
        """Names of the analyses that were run, by chapter of the thesis."""
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
        table: table with one row for each model; see :class:`unknot.studies.population.Population`.
        only: names of analyses; by default all.
        resamples: number of bootstraps and permutations.
        seed: seed of bootstraps and permutations.
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
        except Exception as error:  # a failing analysis must not prevent the others; the page reports it
            report.broken[name] = f"{type(error).__name__}: {error}"
    return report


def _render(template: str, context: dict[str, Any]) -> str:
    """Render a template; text from a table is escaped in HTML."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=template.endswith(".html.jinja"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = lambda text: str(text).replace("|", "\\|")
    return environment.get_template(template).render(context)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as beside:
        beside.write_bytes(content)
