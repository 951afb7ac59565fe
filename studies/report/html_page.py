"""A report as one page of HTML that needs no other file."""

import base64
import html
import re
from typing import TYPE_CHECKING

import numpy as np

from unknot.studies import claims
from unknot.studies.analyses import ANALYSES, Number, Result
from unknot.studies.population import by_figure, label

if TYPE_CHECKING:
    from unknot.studies.report.report import Report

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --good: #2a7; --bad: #c53; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 2px solid var(--line); } h3 { margin-top: 2.2rem; }
table { border-collapse: collapse; font-size: 13px; margin: .6rem 0; }
th, td { text-align: left; padding: .15rem .7rem; border-bottom: 1px solid var(--line); }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
img { max-width: 100%; background: #fff; border-radius: 4px; }
.question { font-style: italic; } .small, figcaption { font-size: 13px; opacity: .8; }
.yes { color: var(--good); } .no { color: var(--bad); }
details { margin: .4rem 0; } summary { cursor: pointer; } .wide { overflow-x: auto; }
.missing { background: var(--soft); padding: .5rem 1rem; border-radius: 4px; }
"""


def _text(value: object) -> str:
    return html.escape(str(value))


def page(report: "Report", title: str, pictures: dict[str, bytes]) -> str:
    """The page, with the pictures inside."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{_text(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{_text(title)}</h1>",
        _summary(report),
        _printed(report),
        _claims(report),
    ]
    results = {result.name: result for result in report.results}
    for chapter, names in report.chapters().items():
        parts.append(f"<h2>{_text(chapter)}</h2>")
        for name in names:
            if name in results:
                parts.append(_section(results[name], pictures[name]))
            else:
                about = ANALYSES[name].about
                words = report.missing.get(name) or f"Could not be computed: {report.broken[name]}"
                parts.append(
                    f"<h3 id='{name}'>{_text(about['title'])}</h3><p class='question'>{_text(about['question'])}</p>"
                    f"<p class='missing'>This population does not allow it. {_text(words)}</p>"
                )
    parts.append("</body></html>")
    return "\n".join(parts)


def _summary(report: "Report") -> str:
    frame = report.population.frame
    words = [
        f"<p>{len(frame)} models with scores; {len(report.results)} of "
        f"{len(report.results) + len(report.missing) + len(report.broken)} analyses are possible.</p>"
    ]
    words += [f"<p class='small'>{_text(note)}</p>" for note in report.population.notes]
    if len(frame):
        methods = by_figure(map(str, frame.method))
        counts = (
            frame.assign(method=frame.method.astype(str)).groupby(["method", "dataset"]).size().unstack(fill_value=0)
        )
        seeds, settings = frame.groupby("method").seed.nunique(), frame.groupby("method").setting.nunique()
        head = "".join(f"<th>{_text(name)}</th>" for name in counts.columns)
        rows = "".join(
            f"<tr><td>{_text(label(m))}</td>{''.join(f'<td class=n>{n}</td>' for n in counts.loc[m])}"
            f"<td class=n>{settings[m]}</td><td class=n>{seeds[m]}</td></tr>"
            for m in methods
        )
        words.append(
            f"<div class=wide><table><tr><th>models</th>{head}<th>settings</th><th>seeds</th></tr>{rows}</table></div>"
        )
    words.append(
        "<p class='small'>Intervals hold 95 % of bootstrap resamples of settings, with all their seeds. Ranks of ties "
        "are averaged. Correlations belong to this population: other methods, strengths or training lengths give "
        "others.</p>"
    )
    return "\n".join(words)


def _row(number: Number, cells: str = "") -> str:
    between = f"{number.text(number.low)} – {number.text(number.high)}" if not np.isnan(number.low) else "–"
    return (
        f"<tr>{cells}<td>{_text(number.label)}</td><td class=n><b>{number.text(number.value)}</b></td>"
        f"<td class=n>{between}</td><td class=n>{number.text(number.chance)}</td>"
        f"<td class=n>{number.text(number.thesis)}</td></tr>"
    )


def _printed(report: "Report") -> str:
    """Our figure beside each that the thesis prints."""
    rows = [
        _row(number, f"<td><a href='#{result.name}'>{_text(result.title)}</a></td>")
        for result in report.results
        for number in result.numbers
        if not np.isnan(number.thesis)
    ]
    if not rows:
        return "<h2>Beside the thesis</h2><p>This population allows none of the figures that the thesis prints.</p>"
    head = "<tr><th></th><th></th><th>here</th><th>interval</th><th>chance</th><th>thesis</th></tr>"
    return f"<h2>Beside the thesis</h2><div class=wide><table>{head}{''.join(rows)}</table></div>"


def _claims(report: "Report") -> str:
    """The thesis' claims that the table can decide, chapter by chapter."""
    findings = report.claims
    if not findings:
        return ""
    counts = ", ".join(f"{number} {verdict}" for verdict, number in claims.counts(findings).items())
    head = "<tr><th>claim</th><th>thesis</th><th>here, 95 % interval, models</th><th>verdict</th></tr>"
    rows = []
    for finding in findings:
        *cells, verdict = (_text(cell) for cell in claims.cells(finding))
        colour = {"reproduced": "yes", "contradicted": "no"}.get(finding.verdict, "")
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td class='{colour}'>{verdict}</td></tr>")
    return (
        f"<h2>Claims of the thesis</h2><p>{counts}.</p><p class='small'>{_text(claims.RULE)}</p>"
        f"<div class=wide><table>{head}{''.join(rows)}</table></div>"
    )


def _section(result: Result, picture: bytes) -> str:
    image = base64.b64encode(picture).decode()
    numbers = "".join(_row(number) for number in result.numbers)
    head = "<tr><th></th><th>here</th><th>interval</th><th>chance</th><th>thesis</th></tr>"
    notes = "".join(f"<li>{_text(note)}</li>" for note in result.notes)
    signs = "".join(
        f"<tr><td>{_text(s.claim)}</td><td>{'+' if s.expected > 0 else '−'}</td><td class=n>{s.observed:+.3f}</td>"
        f"<td class={'yes' if s.agrees else 'no'}>{'agrees' if s.agrees else 'differs'}</td></tr>"
        for s in result.signs
        if s.agrees is not None
    )
    listed = (
        f"<details><summary>directions that the thesis found</summary><div "
        f"class=wide><table><tr><th>claim</th><th>expected</th><th>here</th><th></th></tr>{signs}</table></div></details>"
        if signs
        else ""
    )
    left_out = f"<ul class=small>{notes}</ul>" if notes else ""
    return (
        f"<h3 id='{result.name}'>{_text(result.title)}</h3><p class='question'>{_text(result.question)}</p>"
        f"<figure><img alt='{_text(result.title)}' src='data:image/png;base64,{image}'></figure>"
        f"<div class=wide><table>{head}{numbers}</table></div>"
        f"<p><b>Shows:</b> {_text(result.shows)}</p><p><b>Does not show:</b> {_text(result.limits)}</p>"
        f"<p class=small><b>The thesis:</b> {_text(result.found)}</p>{left_out}{listed}"
        f"<p class=small>Table: {re.sub(r'[^a-z_]', '', result.name)}.csv, {len(result.table)} lines</p>"
    )
