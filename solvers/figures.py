"""Two pictures of Part I: ``python -m unknot.solvers.figures cone|acceleration --out FOLDER``.

cone: projections on 20 random cones by six methods (the figure of section "Empirical Convergence").
acceleration: matching pursuit, random pursuit and their accelerated forms, with the bound of the theorem.
Each is written as a PNG and as the CSV it was drawn from.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize

from unknot._files import replacing
from unknot.solvers.atoms import Dictionary
from unknot.solvers.cone import nonnegative_matching_pursuit
from unknot.solvers.frank_wolfe import frank_wolfe
from unknot.solvers.geometry import acceleration_constant
from unknot.solvers.objectives import Quadratic
from unknot.solvers.pursuit import matching_pursuit

Curves = dict[str, np.ndarray]

CONE_METHODS = {
    "NNMP": "plain",
    "FW on 10‖y‖·A": None,
    "FNNOMP": "fnnomp",
    "ANNMP": "away",
    "PWNNMP": "pairwise",
    "FCNNMP": "fully-corrective",
}
FLOOR = 1e-14
"""Errors below this are rounding; curves end there."""


def random_cone(seed: int, positive: bool, dim: int = 50, count: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Unit-norm atoms ``[dim, count]`` in the first orthant, and a target: normal, or its absolute value.

    The thesis does not say how the target is drawn. A signed one has few active atoms and is easy; a positive one shows
    the difference between the methods.

    >>> atoms, target = random_cone(0, positive=True)
    >>> atoms.shape, bool((target >= 0).all())
    ((50, 100), True)
    """
    rng = np.random.default_rng(seed)
    atoms = np.abs(rng.standard_normal((dim, count)))
    atoms /= np.linalg.norm(atoms, axis=0)
    target = rng.standard_normal(dim)
    return atoms, np.abs(target) if positive else target


def cone_curves(positive: bool, cones: int = 20, iterations: int = 500) -> Curves:
    """Mean suboptimality ε_k ``[iterations + 1]`` of each method over random cones."""
    totals = {name: np.zeros(iterations + 1) for name in CONE_METHODS}
    for seed in range(cones):
        atoms, target = random_cone(seed, positive)
        best = float(scipy.optimize.nnls(atoms, target)[1]) ** 2 / 2
        for name, variant in CONE_METHODS.items():
            if variant is None:
                scaled = np.hstack([10 * np.linalg.norm(target) * atoms, np.zeros((len(target), 1))])
                hull = Dictionary(scaled, allow_zero=True)
                result = frank_wolfe(
                    target, hull, np.zeros(len(target)), step="short", max_iterations=iterations, tol=0
                )
            else:
                result = nonnegative_matching_pursuit(
                    target, atoms, variant=variant, max_iterations=iterations, tol=1e-15
                )
            errors = result.trace.value - best
            totals[name] += np.pad(errors, (0, iterations + 1 - len(errors)), mode="edge")
    return {name: np.maximum(total / cones, FLOOR / 10) for name, total in totals.items()}


def acceleration_curves(iterations: int = 5000, dim: int = 100, count: int = 200, seeds: int = 3) -> Curves:
    """Suboptimality of pursuits of 200 unit atoms in R^100 for a quadratic with eigenvalues from 1e-3 to 1."""
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((dim, count))
    atoms /= np.linalg.norm(atoms, axis=0)
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    matrix = (basis * np.logspace(-3, 0, dim)) @ basis.T
    matrix = (matrix + matrix.T) / 2
    solution = rng.standard_normal(dim)
    f = Quadratic(matrix, matrix @ solution)
    best = f(solution)
    nu = acceleration_constant(atoms)

    def run(variant: str, runs: int, **options: Any) -> np.ndarray:
        traces = [
            matching_pursuit(f, atoms, variant=variant, seed=seed, max_iterations=iterations, tol=0, **options).trace
            for seed in range(runs)
        ]
        errors: np.ndarray = np.mean([trace.value - best for trace in traces], axis=0)
        return errors

    k = np.maximum(np.arange(iterations + 1), 1)
    moments = np.linalg.inv(atoms @ atoms.T / count)
    return {
        "random pursuit": run("random", seeds),
        "matching pursuit": run("generalised", 1),
        "accelerated random pursuit": run("accelerated-random", seeds),
        "accelerated matching pursuit": run("accelerated", seeds),
        "accelerated matching pursuit, ν/10": run("accelerated", seeds, nu=nu / 10),
        "bound 2Lν‖θ*‖²_P / k(k+1)": 2 * nu * float(solution @ moments @ solution) / (k * (k + 1.0)),
    }


def write_csv(path: Path, curves: Curves) -> None:
    """One row for each iteration, one column for each method."""
    with replacing(path) as beside, open(beside, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["k", *curves])
        for k, row in enumerate(zip(*curves.values(), strict=True)):
            writer.writerow([k, *(f"{value:.6e}" for value in row)])


STYLES = {
    "FW on 10‖y‖·A": ("#3b3b3b", "--"),
    "NNMP": ("#c98500", "-"),
    "FNNOMP": ("#8a8a8a", "-"),
    "ANNMP": ("#c0392b", "-"),
    "PWNNMP": ("#7b3fa0", "-"),
    "FCNNMP": ("#1f6fb4", "-"),
    "random pursuit": ("#c98500", "-"),
    "matching pursuit": ("#c0392b", "-"),
    "accelerated random pursuit": ("#7b3fa0", "-"),
    "accelerated matching pursuit": ("#1f6fb4", "-"),
    "accelerated matching pursuit, ν/10": ("#1f6fb4", "--"),
    "bound 2Lν‖θ*‖²_P / k(k+1)": ("#9a9a9a", ":"),
}


def _axes(columns: int) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * columns + 1.6, 3.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.grid(True, which="major", color="#e4e4e4", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    with replacing(path) as beside:
        figure.savefig(beside, format="png")


def draw_cone(curves: dict[str, Curves], path: Path) -> None:
    """Suboptimality against iterations, one panel for each kind of target."""
    figure, axes = _axes(len(curves))
    for axis, (title, panel) in zip(axes, curves.items(), strict=True):
        for name, errors in panel.items():
            below = np.flatnonzero(errors <= FLOOR)
            shown = np.maximum(errors[: below[0] + 1] if len(below) else errors, FLOOR)
            colour, style = STYLES[name]
            axis.plot(np.arange(len(shown)), shown, style, color=colour, linewidth=1.7, label=name)
        axis.set_yscale("log")
        axis.set_ylim(FLOOR, 100)
        axis.set_xlim(0, len(errors) - 1)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("iteration k")
    axes[0].set_ylabel("mean suboptimality ε$_k$")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=9, frameon=False, loc="outside right center")
    _save(figure, path)


def draw_acceleration(curves: Curves, path: Path) -> None:
    """Suboptimality against iterations, both logarithmic, with slopes of 1/k and 1/k²."""
    figure, axes = _axes(1)
    axis = axes[0]
    figure.set_size_inches(6.4, 4.4)
    for name, errors in curves.items():
        colour, style = STYLES[name]
        axis.plot(np.arange(1, len(errors)), errors[1:], style, color=colour, linewidth=1.7, label=name)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(10, len(errors) - 1)
    low = min(float(errors[1:].min()) for errors in curves.values())
    axis.set_ylim(low / 2, 100)
    axis.set_xlabel("iteration k")
    axis.set_ylabel("suboptimality f(θ$_k$) - f(θ*)")
    axis.legend(fontsize=8, frameon=True, framealpha=0.9, edgecolor="none", loc="lower left")
    _save(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    """Compute, draw and write one figure."""
    parser = argparse.ArgumentParser(prog="python -m unknot.solvers.figures", description=(__doc__ or "").strip())
    parser.add_argument("figure", choices=["cone", "acceleration"], help="which one")
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), metavar="FOLDER", help="where to (default: figures)"
    )
    parser.add_argument("--iterations", type=int, help="how far to run (default: 500 for cone, 5000 for acceleration)")
    arguments = parser.parse_args(argv)
    if arguments.iterations is not None and arguments.iterations < 1:
        parser.error(f"--iterations is {arguments.iterations}: expected at least 1")
    image, table = arguments.out / f"{arguments.figure}.png", arguments.out / f"{arguments.figure}.csv"
    if arguments.figure == "cone":
        panels = {
            "positive targets": cone_curves(True, iterations=arguments.iterations or 500),
            "signed targets": cone_curves(False, iterations=arguments.iterations or 500),
        }
        draw_cone(panels, image)
        write_csv(table, {f"{name}, {kind}": curve for kind, panel in panels.items() for name, curve in panel.items()})
    else:
        curves = acceleration_curves(arguments.iterations or 5000)
        draw_acceleration(curves, image)
        write_csv(table, curves)
    print(f"wrote {image} and {table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
