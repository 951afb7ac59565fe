"""Opening of a report: scores by method and strength, as pictures and in sentences."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from unknot.studies.population import Population, by_figure, kinds_of_pairs, label

SHOWN = ("mig", "dci")
"""Metrics of the pictures, as far as the table has them; otherwise its first metric."""


@dataclass(frozen=True)
class Overview:
    """Medians over seeds by method and strength.

    Args:
        medians: table of methods by rank of their strength, by title of the panel.
        strengths: swept value of each cell.
        sentences: description of the pictures.
    """

    medians: dict[str, pd.DataFrame]
    strengths: dict[str, pd.DataFrame]
    sentences: list[str]

    @classmethod
    def of(cls, population: Population) -> "Overview":
        """Summarise a population.

        >>> from unknot.studies.synthetic import synthetic_results
        >>> overview = Overview.of(Population(synthetic_results(("dsprites",), seeds=2, weak=False)))
        >>> list(overview.medians), overview.medians["dsprites, MIG"].shape
        (['dsprites, MIG', 'dsprites, DCI'], (6, 6))
        """
        metrics = population.has(*SHOWN) or population.has(*population.metrics(least=0))[:1]
        frame = population.frame.assign(row=_rows(population.frame))
        medians: dict[str, pd.DataFrame] = {}
        strengths: dict[str, pd.DataFrame] = {}
        sentences: list[str] = []
        for dataset, part in frame.groupby("dataset", sort=False):
            part = part.assign(column=part.groupby("row").strength.rank("dense").fillna(1).astype(int) - 1)
            for metric in metrics:
                of = part[np.isfinite(part[metric])]
                if of.empty:
                    continue
                name = f"{dataset}, {label(metric)}"
                order = _in_order(of)
                medians[name] = of.pivot_table(index="row", columns="column", values=metric, aggfunc="median")
                medians[name] = medians[name].reindex(order)
                strengths[name] = of.pivot_table(index="row", columns="column", values="strength").reindex(order)
                strengths[name] = strengths[name].reindex(columns=medians[name].columns)
                sentences += _sentences(str(dataset), metric, of)
        return cls(medians, strengths, sentences)

    def figure(self) -> Figure:
        """Draw a heat map for each data set and metric; a cell has the median over seeds and the strength."""
        lines = list(_batched(self.medians, 2))
        heights = [max(len(self.medians[name]) for name in line) for line in lines]
        width = 9.6 if len(self.medians) > 1 else 4.8
        figure = Figure(figsize=(width, 0.36 * sum(heights) + 0.8 * len(lines)), layout="constrained")
        grid = figure.add_gridspec(len(lines), len(lines[0]), height_ratios=heights)
        axes = [figure.add_subplot(grid[i, j]) for i, line in enumerate(lines) for j in range(len(line))]
        for axis, (name, matrix) in zip(axes, self.medians.items(), strict=True):
            values, at = matrix.to_numpy(dtype=float), self.strengths[name].to_numpy(dtype=float)
            image = axis.imshow(values, vmin=0, vmax=max(np.nanmax(values), 1e-9), cmap="viridis", aspect="auto")
            axis.set_title(name, fontsize=8)
            axis.tick_params(labelsize=7)
            axis.set_yticks(range(len(matrix)), list(matrix.index))
            axis.set_xticks([])
            axis.set_xlabel("swept strength, ascending" if matrix.shape[1] > 1 else "", fontsize=7)
            for i, j in np.ndindex(*values.shape):
                if np.isnan(values[i, j]):
                    continue
                dark = values[i, j] < 0.6 * np.nanmax(values)
                small = "" if np.isnan(at[i, j]) else f"\n({at[i, j]:g})"
                words = f"{values[i, j]:.2f}{small}"
                axis.text(j, i, words, ha="center", va="center", fontsize=6, color="w" if dark else "k")
            figure.colorbar(image, ax=axis, shrink=0.8).ax.tick_params(labelsize=6)
        return figure


def _batched(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """Split names into lists of a size; the last one may be shorter."""
    left = list(names)
    yield from (left[start : start + size] for start in range(0, len(left), size))


def _rows(frame: pd.DataFrame) -> pd.Series:
    """Return the name of the row of every model: its method, with its kind of pairs or labels."""
    names = frame.method.astype(str).map(label)
    kinds = kinds_of_pairs(frame)
    names = names + np.where(kinds.isin(("?", "nan", "none")), "", ", k = " + kinds)
    if "data.num_labels" in frame:
        labels = pd.to_numeric(frame["data.num_labels"], errors="coerce")
        kind = frame.get("data.labelling", pd.Series("", frame.index)).astype(str)
        names = names + np.where(labels.notna(), ", " + labels.map("{:,.0f} ".format) + kind, "")
    return names


def _in_order(frame: pd.DataFrame) -> list[str]:
    """Return rows in the order of the thesis' figures."""
    order = {method: place for place, method in enumerate(by_figure(frame.method.astype(str)))}
    rows = frame.assign(place=frame.method.astype(str).map(order)).drop_duplicates("row")
    return list(rows.sort_values(["place", "row"]).row)


def _sentences(dataset: str, metric: str, frame: pd.DataFrame) -> Iterator[str]:
    """State the best setting, and the differences between seeds, strengths and methods."""
    medians = frame.groupby(["row", "column"])[metric].median()
    if len(medians) < 2:
        return
    name = label(metric)
    best, worst = (_setting(frame, key) for key in (medians.idxmax(), medians.idxmin()))
    yield (
        f"On {dataset} the highest median {name} is {medians.max():.2f}, of {best}, and the lowest is "
        f"{medians.min():.2f}, of {worst}."
    )
    row, column = (frame[key].to_numpy() for key in ("row", "column"))
    same_row, same_column = row[:, None] == row, column[:, None] == column
    apart = np.abs(frame[metric].to_numpy()[:, None] - frame[metric].to_numpy())
    pairs = np.triu(np.ones_like(apart, dtype=bool), 1)
    kinds = {
        "another seed": pairs & same_row & same_column,
        "another strength": pairs & same_row & ~same_column,
        "another method": pairs & ~same_row,
    }
    steps = {words: float(np.median(apart[mask])) for words, mask in kinds.items() if mask.any()}
    if len(steps) > 1:
        listed = ", ".join(f"{step:.3f} with {words}" for words, step in steps.items())
        yield f"Two models on {dataset} differ in {name} by a median of {listed}."


def _setting(frame: pd.DataFrame, key: tuple[str, int]) -> str:
    """Describe a setting in words."""
    of = frame[(frame.row == key[0]) & (frame.column == key[1])]
    strength = of.strength.iloc[0]
    seeds = f"{len(of)} model{'s' * (len(of) > 1)}"
    return f"{key[0]} at strength {strength:g} ({seeds})" if strength == strength else f"{key[0]} ({seeds})"
