"""Figures drawn by the analyses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from unknot.studies.population import label

PANELS_IN_A_ROW = 4
MOST_DOTS = 2000
"""Maximum number of dots; more are thinned, so that files stay small."""


def panels(
    figure: Figure | SubFigure, titles: Sequence[str], height: float = 2.8, width: float = 3.2, across: int = 0
) -> list[Axes]:
    """Return one axis for each title, in rows of four or of ``across``."""
    across = min(across or PANELS_IN_A_ROW, len(titles))
    down = -(-len(titles) // across)
    if isinstance(figure, Figure):  # a subfigure has a fixed size
        figure.set_size_inches(max(4.5, width * across), height * down + 0.3)
    axes = [figure.add_subplot(down, across, place + 1) for place in range(len(titles))]
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.locator_params(nbins=4)
    return axes


def grid(figure: Figure | SubFigure, titles: Sequence[str]) -> list[Axes]:
    """Return panels named ``data set, score``: a row for each data set if there are many."""
    scores = list(dict.fromkeys(title.rpartition(", ")[2] for title in titles))
    if len(titles) > 8 and len(titles) % len(scores) == 0:
        return panels(figure, titles, height=1.6, width=1.7, across=len(scores))
    return panels(figure, titles)


def bottom_only(axes: Sequence[Axes]) -> None:
    """Show labels only below the lowest panels, if all panels of a column have the same labels."""
    lowest: dict[float, Axes] = {}
    for axis in axes:
        place = round(axis.get_position().x0, 4)
        if place not in lowest or axis.get_position().y0 < lowest[place].get_position().y0:
            lowest[place] = axis
    for axis in axes:
        if axis not in lowest.values():
            axis.set_xlabel("")
            axis.tick_params(labelbottom=False)


def heatmaps(figure: Figure | SubFigure, matrices: Mapping[str, pd.DataFrame], what: str = "Spearman's ρ") -> None:
    """Draw matrices of correlations as heat maps with numbers."""
    first = next(iter(matrices.values()))
    rows, columns = ([label(str(name)) for name in names] for names in (first.index, first.columns))
    height = 0.6 + 0.24 * len(rows) + 0.05 * max(map(len, columns))  # column labels are rotated by 60 degrees
    width = 0.6 + 0.34 * len(columns) + 0.058 * max(map(len, rows))
    axes = panels(figure, list(matrices), height, width)
    image = None
    for axis, matrix in zip(axes, matrices.values(), strict=True):
        values = matrix.to_numpy(dtype=float)
        image = axis.imshow(values, vmin=-1, vmax=1, cmap="RdBu", aspect="auto")
        axis.set_xticks(range(values.shape[1]), [label(str(c)) for c in matrix.columns], rotation=60, ha="right")
        axis.set_yticks(range(values.shape[0]), [label(str(r)) for r in matrix.index])
        for i, j in np.ndindex(*values.shape):
            text = "" if np.isnan(values[i, j]) else f"{values[i, j]:.2f}".replace("0.", ".")
            axis.text(j, i, text, ha="center", va="center", fontsize=6, color="w" if abs(values[i, j]) > 0.6 else "k")
    if image is not None:
        figure.colorbar(image, ax=axes, shrink=0.7, label=what)


def curves(
    figure: Figure | SubFigure,
    parts: Mapping[str, Mapping[str, tuple[Any, Any]]],
    x: str,
    y: str,
    log_x: bool = False,
) -> None:
    """Draw lines ``(x, y)`` by name in a panel for each part, with one legend."""
    axes = grid(figure, list(parts))
    names: dict[str, int] = {}
    for axis, lines in zip(axes, parts.values(), strict=True):
        for name, (at, values) in lines.items():
            colour = names.setdefault(name, len(names))
            marker = "o" if len(at) <= 20 else None
            axis.plot(at, values, marker=marker, markersize=3, linewidth=1.2, color=f"C{colour}")
        if log_x:
            axis.set_xscale("log")
            at = sorted({float(place) for line, _ in lines.values() for place in line})
            if len(at) <= 6:  # the logarithm's own ticks would overlap
                axis.set_xticks(at, [f"{place:,g}" for place in at])
                axis.minorticks_off()
        axis.set_xlabel(x, fontsize=8)
    if log_x is False and len(parts) > 8:
        bottom_only(axes)
    axes[0].set_ylabel(y, fontsize=8)
    handles = [axes[0].plot([], [], color=f"C{place}", marker="o", markersize=3)[0] for place in names.values()]
    figure.legend(handles, [label(name) for name in names], loc="outside right upper", fontsize=7)


def violins(figure: Figure | SubFigure, parts: Mapping[str, Mapping[str, Any]], y: str) -> None:
    """Draw distributions by name in a panel for each part: a violin, its median, and the models if they are few."""
    axes = grid(figure, list(parts))
    for axis, groups in zip(axes, parts.values(), strict=True):
        for place, values in enumerate(groups.values()):
            array = np.asarray(values, dtype=float)
            array = array[np.isfinite(array)]
            if not len(array):
                continue
            if len(array) >= 5 and np.ptp(array) > 1e-12:
                axis.violinplot(array, [place], showextrema=False, widths=0.8)
            if len(array) <= 60:
                axis.plot(np.full(len(array), place), array, ".", color="k", markersize=3, alpha=0.5)
            axis.plot([place - 0.25, place + 0.25], [np.median(array)] * 2, color="k", linewidth=1.5)
        axis.set_xticks(range(len(groups)), [label(name) for name in groups], rotation=60, ha="right")
    if len({tuple(groups) for groups in parts.values()}) == 1:
        bottom_only(axes)
    axes[0].set_ylabel(y, fontsize=8)


def dots(
    figure: Figure | SubFigure,
    parts: Mapping[str, Mapping[str, tuple[Any, Any]]],
    x: str,
    y: str,
    diagonal: bool = False,
    log: bool = False,
) -> None:
    """Draw scatter plots ``(x, y)`` by name in a panel for each part."""
    axes = panels(figure, list(parts))
    names: dict[str, int] = {}
    for axis, groups in zip(axes, parts.values(), strict=True):
        for name, (across, up) in groups.items():
            place = names.setdefault(name, len(names))
            a, b = (np.asarray(values, dtype=float) for values in (across, up))
            keep = np.isfinite(a) & np.isfinite(b)
            a, b = a[keep], b[keep]
            thin = slice(None, None, -(-len(a) // MOST_DOTS) or 1)
            axis.plot(a[thin], b[thin], ".", markersize=4, alpha=0.7, color=f"C{place}")
        if log:
            axis.set_xscale("symlog", linthresh=1e-2)
            axis.set_yscale("symlog", linthresh=1e-2)
        if diagonal:
            low, high = (f(*axis.get_xlim(), *axis.get_ylim()) for f in (min, max))
            axis.plot([low, high], [low, high], color="k", linewidth=0.8)
        axis.set_xlabel(x, fontsize=8)
    axes[0].set_ylabel(y, fontsize=8)
    handles = [axes[0].plot([], [], ".", color=f"C{place}")[0] for place in names.values()]
    figure.legend(handles, [label(name) for name in names], loc="outside right upper", fontsize=7)


def bars(figure: Figure | SubFigure, numbers: Sequence[Any], percent: bool = True) -> None:
    """Draw numbers with their intervals, the chance level (a line) and the value of the thesis (a cross)."""
    axis = panels(figure, [""], height=0.5 + 0.38 * len(numbers), width=6)[0]
    scale = 100 if percent else 1
    for place, number in enumerate(numbers):
        axis.barh(place, scale * np.nan_to_num(number.value), color="C0", alpha=0.6, height=0.6)
        if not np.isnan(number.low):
            axis.plot([scale * number.low, scale * number.high], [place, place], color="k", linewidth=1.5)
        if not np.isnan(number.chance):
            axis.plot([scale * number.chance] * 2, [place - 0.4, place + 0.4], "--", color="C3", linewidth=1.2)
        if not np.isnan(number.thesis):
            axis.plot(scale * number.thesis, place, "X", color="C1", markersize=8)
    axis.set_yticks(range(len(numbers)), [number.label for number in numbers])
    axis.invert_yaxis()
    axis.set_xlabel("%" if percent else "", fontsize=8)
    marks = {"interval": ("-", "k", 1.5, ""), "chance": ("--", "C3", 1.2, ""), "thesis": ("", "C1", 0, "X")}
    handles = [axis.plot([], [], ls or "none", color=c, lw=w, marker=m)[0] for ls, c, w, m in marks.values()]
    figure.legend(handles, list(marks), loc="outside lower center", ncols=3, fontsize=7)
