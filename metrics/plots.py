"""Plots of factor-code matrices: the matrix, the independent-groups curve, and the dendrogram of the factors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster.hierarchy import dendrogram

from unknot.files import replacing
from unknot.metrics.functional import FactorCodeMatrix, independent_groups, merge_factors
from unknot.metrics.functional.checks import as_matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_matrix(
    matrix: Any, factor_names: Sequence[str] | None = None, axes: Any = None, title: str = ""
) -> tuple["Figure", Any]:
    """Plot a factor-code matrix ``[D, F]``, its independent groups and the merging of its factors.

    Args:
        matrix: ``values`` returned by the functions ``..._matrix`` of :mod:`unknot.metrics.functional`.
        factor_names: names of the F factors.
        axes: three matplotlib axes; by default those of a new figure.
        title: title above the matrix.

    Returns:
        The figure and the three axes.
    """
    values = as_matrix(matrix)
    names = list(factor_names) if factor_names is not None else [f"factor {k}" for k in range(values.shape[1])]
    if len(names) != values.shape[1]:
        raise ValueError(f"factor_names must name {values.shape[1]} factors, got {len(names)}.")
    if axes is None:
        from matplotlib.figure import Figure

        axes = Figure(figsize=(4, 9), layout="constrained").subplots(3, 1)
    heat, curve, tree = axes

    heat.imshow(values.T, cmap="Blues", vmin=0, aspect="auto")
    heat.set(title=title, xlabel="code", xticks=range(len(values)), yticks=range(len(names)), yticklabels=names)
    largest = max(values.max(), 1e-12)
    if values.size <= 200:  # more numbers would be unreadable
        for (d, k), value in np.ndenumerate(values):
            colour = "white" if value > largest / 2 else "black"
            heat.text(d, k, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)

    groups = independent_groups(values)
    thresholds = np.append(groups.threshold, 0.0)
    for counts, label in ((groups.factors, "factors with a code"), (groups.groups, "independent groups")):
        curve.step(thresholds, np.append(counts, counts[-1:]) if len(counts) else [0], where="post", label=label)
    curve.set(xlabel="threshold", ylabel="count", ylim=(0, len(names) + 0.5), xlim=(largest, 0))
    curve.legend(fontsize=7)

    if len(names) > 1:
        dendrogram(merge_factors(values), labels=names, ax=tree, color_threshold=0, orientation="right")
    ticks = np.linspace(0, largest, 5)
    tree.set(xlabel="threshold at which factors merge", xlim=(largest * 1.02, -0.02 * largest))
    tree.set_xticks(ticks, [f"{largest - tick:.2f}" for tick in ticks])
    return curve.figure, axes


def draw_matrices(
    matrices: Mapping[str, FactorCodeMatrix], path: str | Path, factor_names: Sequence[str] | None = None
) -> Path:
    """Write an image with one column for each matrix: the matrix, its independent groups, and the dendrogram."""
    from matplotlib.figure import Figure

    path = Path(path)
    figure = Figure(figsize=(4.2 * len(matrices), 9), layout="constrained")
    axes = figure.subplots(3, len(matrices), squeeze=False)
    for column, (title, matrix) in zip(axes.T, matrices.items(), strict=True):
        plot_matrix(matrix.values, factor_names, column, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        figure.savefig(beside, format="png", dpi=90)
    return path
