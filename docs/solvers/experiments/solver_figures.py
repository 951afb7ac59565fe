"""Pictures of Part I: ``python docs/solvers/experiments/solver_figures.py NAME --out FOLDER``.

cone: projections on 20 random cones by six methods (the figure of section "Empirical Convergence").
zigzag: iterates of NNMP and ANNMP in a cone of the plane, from a start with weight on an atom that must go.
faces: the atomic norm of a set without the origin inside, and the generating faces of its cone.
acceleration: matching pursuit, random pursuit and their accelerated forms, with the bound of the theorem.
rates: objective residual and feasibility of homotopy CGM, deterministic and stochastic, with the slopes of the theorem.
kmeans: both methods on the SDP relaxation of k-means; --data is a MATLAB file with features "digits" [d, n].
completion: SHCGM and stochastic Frank-Wolfe on MovieLens 100k; --data is its folder.
projection: SHCGM and S3CCM for equal time; --data is a file of MovieLens 1M.
boosting: the bimodal target and what boosting variational inference makes of it.
Each is written as a PNG and as the CSV it was drawn from. Without --data, those that want it use synthetic data.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
import torch

from unknot.files import replacing
from unknot.solvers.atoms import Dictionary
from unknot.solvers.boosting import VariationalResult, read_target
from unknot.solvers.cone import nonnegative_matching_pursuit
from unknot.solvers.frank_wolfe import frank_wolfe
from unknot.solvers.geometry import acceleration_constant, atomic_norm, generating_faces
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
                hull = Dictionary(scaled)
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


def write_csv(path: Path, curves: Curves, index: str = "k") -> None:
    """One row for each iteration, one column for each method; a column named as the index numbers the rows."""
    columns = dict(curves)
    numbers = columns.pop(index, None)
    with replacing(path) as beside, open(beside, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([index, *columns])
        for k, row in enumerate(zip(*columns.values(), strict=True)):
            writer.writerow([k if numbers is None else f"{numbers[k]:g}", *(f"{value:.6e}" for value in row)])


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


COLOURS = {
    "HCGM": "#c98500",
    "SHCGM": "#1f6fb4",
    "SFW": "#c0392b",
    "S3CCM": "#7b3fa0",
    "fixed": "#c98500",
    "line-search": "#c0392b",
    "fully-corrective": "#1f6fb4",
}


def figure_rates(out: Path, iterations: int | None, data: Path | None) -> None:
    """Both measures of both methods on a problem with known solution, with k^(-1/3) and k^(-5/12)."""
    from solver_experiments import rates, slope

    curves = rates(iterations or 30_000)
    k = curves["k"]
    figure, axes = _axes(2)
    for axis, measure, power in ((axes[0], "objective", -1 / 3), (axes[1], "feasibility", -5 / 12)):
        for name in ("HCGM", "SHCGM"):
            errors = curves[f"{name} {measure}"]
            label = f"{name}: k^{slope(k, errors, int(k[-1] // 30) or 1):.2f}"
            axis.loglog(k, errors, color=COLOURS[name], linewidth=1.7, label=label)
        reference = curves[f"SHCGM {measure}"][-1] * (k / k[-1]) ** power
        axis.loglog(k, reference, ":", color="#777777", label=f"k^{power:.3f}")
        axis.set_xlabel("iteration k")
        axis.set_title("objective residual" if measure == "objective" else "distance from the constraint", fontsize=10)
        axis.legend(fontsize=8, frameon=False)
    _save(figure, out / "rates.png")
    write_csv(out / "rates.csv", curves)


OPTIMA = {60: 1.53381073, 100: 6.2824043, 300: 21.357367, 1000: 77.206633}
"""Optimal <D, X> of the relaxation for the first n MNIST features, by Clarabel, SCS and (n = 1000) SDPNAL+."""


def _digits(path: Path | None) -> tuple[np.ndarray, int]:
    """Features ``[n, d]`` and the number of clusters."""
    if path is None:
        from sklearn.datasets import make_blobs

        return np.asarray(make_blobs(60, centers=4, random_state=0)[0]) / 10, 4
    import scipy.io

    points: np.ndarray = scipy.io.loadmat(path)["digits"].astype(float).T
    return points, 10


def draw_kmeans(table: Curves, share: float, best: float | None, path: Path) -> None:
    """Suboptimality and both constraints, over iterations and over passes through D; a draw is a ``share`` of D."""
    figure, _ = _axes(1)
    figure.clear()
    figure.set_size_inches(11.0, 6.0)
    axes = figure.subplots(2, 3, sharey="col")
    for name, factor in (("HCGM", 1.0), ("SHCGM", share)):
        objective = table[f"{name} objective"]
        shown = np.abs(objective) if best is None else np.abs(objective - best) / best
        for row, positions in zip(axes, (table["k"], factor * table["k"]), strict=True):
            for axis, errors in zip(row, (shown, table[f"{name} row sums"], table[f"{name} negativity"]), strict=True):
                positive = errors > 1e-9
                axis.loglog(positions[positive], errors[positive], color=COLOURS[name], linewidth=1.6, label=name)
    objective_title = "|<D, X>|" if best is None else "relative suboptimality of <D, X>"
    for axis, title in zip(axes[0], (objective_title, "||X1 - 1|| / ||1||", "||min(X, 0)||"), strict=True):
        axis.set_title(title, fontsize=10)
    for row, label in zip(axes, ("iteration", "passes through D"), strict=True):
        for axis in row:
            axis.set_xlabel(label)
            axis.grid(True, which="major", color="#e4e4e4", linewidth=0.7)
            axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, fontsize=9)
    _save(figure, path)


def figure_kmeans(out: Path, iterations: int | None, data: Path | None, points: int = 300) -> None:
    """HCGM and SHCGM on the relaxation of k-means, with a tenth of the points in each mini-batch."""
    from solver_experiments import kmeans_curves

    features, clusters = _digits(data)
    features = features[:points]
    best = OPTIMA.get(len(features)) if data else None
    batch = max(2, len(features) // 10)
    curves = kmeans_curves(features, clusters, iterations or 10_000, batch)
    table: Curves = {"k": curves["HCGM"]["k"]}
    for name, columns in curves.items():
        table.update({f"{name} {measure}": columns[measure] for measure in ("objective", "row sums", "negativity")})
    draw_kmeans(table, (batch / len(features)) ** 2, best, out / "kmeans.png")
    write_csv(out / "kmeans.csv", table)


def draw_completion(k: np.ndarray, runs: dict[str, np.ndarray], path: Path) -> None:
    """Means ± one standard deviation of ``[seeds, T, 3]`` for each method: train RMSE, feasibility, test RMSE."""
    figure, axes = _axes(3)
    for axis, column, title in zip(axes, (0, 2, 1), ("train RMSE", "feasibility gap", "test RMSE"), strict=True):
        for name, histories in runs.items():
            mean, deviation = histories[:, :, column].mean(0), histories[:, :, column].std(0)
            axis.plot(k, mean, color=COLOURS[name], linewidth=1.6, label=name)
            axis.fill_between(
                k, np.maximum(mean - deviation, 1e-3), mean + deviation, color=COLOURS[name], alpha=0.2, linewidth=0
            )
        axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("iteration")
    axes[0].legend(frameon=False, fontsize=9)
    _save(figure, path)


def figure_completion(out: Path, iterations: int | None, data: Path | None, seeds: int = 3) -> None:
    """Train RMSE, feasibility gap and test RMSE of SHCGM and SFW."""
    from solver_experiments import COMPLETION, Ratings, run_completion, synthetic_ratings

    if data is None:
        ratings, radius, batch, last = synthetic_ratings(), 300.0, 200, iterations or 2000
    else:
        from solver_experiments import load_movielens

        ratings = Ratings(load_movielens(data / "ub.base"), load_movielens(data / "ub.test"))
        radius, batch, last = 7000.0, 1000, iterations or 10_000
    every = max(1, last // 100)
    runs = {
        method: np.array(
            [
                run_completion(
                    method,
                    ratings,
                    radius=radius,
                    batch_size=batch,
                    seed=seed,
                    max_iterations=last,
                    evaluate_every=every,
                )[1]
                for seed in range(seeds)
            ]
        )
        for method in ("SHCGM", "SFW")
    }
    k = np.unique([*range(0, last, every), last])
    draw_completion(k[1:], {name: histories[:, 1:] for name, histories in runs.items()}, out / "completion.png")
    columns = {
        f"{name} {measure}": histories[:, :, place].mean(0)
        for name, histories in runs.items()
        for place, measure in enumerate(COMPLETION)
    }
    write_csv(out / "completion.csv", {"k": k, **columns})


def figure_projection(out: Path, iterations: int | None, data: Path | None, seconds: float = 300.0) -> None:
    """Train and test RMSE of SHCGM and S3CCM against time."""
    from solver_experiments import run_completion

    ratings, radius, batch = _million(data)
    figure, axes = _axes(2)
    rows: list[tuple[str, float, float, float]] = []
    for method in ("SHCGM", "S3CCM"):
        result, history = run_completion(
            method,
            ratings,
            radius=radius,
            batch_size=batch,
            time_limit=None if iterations else seconds,
            max_iterations=iterations or 10**9,
            evaluate_every=1 if method == "S3CCM" or iterations else 20,
        )
        times = result.trace.time[np.isfinite(result.trace.value)]
        for axis, column in zip(axes, (0, 1), strict=True):
            label = f"{method}, {result.iterations} iterations"
            axis.plot(times, history[:, column], color=COLOURS[method], linewidth=1.6, label=label)
        rows += [(method, *numbers) for numbers in zip(times, history[:, 0], history[:, 1], strict=True)]
    for axis, title in zip(axes, ("train RMSE", "test RMSE"), strict=True):
        axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("seconds")
    axes[0].legend(frameon=False, fontsize=9)
    _save(figure, out / "projection.png")
    with (
        replacing(out / "projection.csv") as beside,
        open(beside, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(["method", "seconds", "train RMSE", "test RMSE"])
        writer.writerows([method, *(f"{number:.6g}" for number in numbers)] for method, *numbers in rows)


def _million(data: Path | None) -> tuple[Any, float, int]:
    """Ratings split 80/20, the nuclear radius and the batch size of the thesis' experiment on MovieLens 1M."""
    from solver_experiments import Ratings, synthetic_ratings

    if data is None:
        return synthetic_ratings(), 300.0, 200
    from solver_experiments import load_movielens

    pairs, values = load_movielens(data)
    train = np.random.default_rng(0).random(len(values)) < 0.8
    return Ratings((pairs[train], values[train]), (pairs[~train], values[~train])), 20_000.0, 10_000


def plot_mixture(
    result: VariationalResult, target: Any, path: str | Path, limits: Sequence[float] | None = None
) -> None:
    """Draw a mixture over R or R² beside its target, as a PNG.

    Args:
        result: of :func:`boost_variational_inference`.
        target: the same log density; an unnormalised one is normalised on the grid that is drawn.
        path: of the picture.
        limits: (low, high) of every axis; where the mixture has its mass, if left out.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    q = result.x
    dim = q.event_shape[0]
    if dim > 2:
        raise ValueError(f"the mixture is over R^{dim}: a picture shows one or two dimensions.")
    dtype = next(iter([q.component_distribution.sample().dtype]))
    log_p, _ = read_target(target, dim, dtype)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        points = q.sample((4000,))
    low, high = limits if limits is not None else (float(points.quantile(0.001)) - 1, float(points.quantile(0.999)) + 1)
    axis = torch.linspace(low, high, 400 if dim == 1 else 150, dtype=dtype)
    grid = axis[:, None] if dim == 1 else torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        p, ours = log_p(grid).exp(), q.log_prob(grid).exp()
    p = p / (p.sum() * (axis[1] - axis[0]) ** dim)
    figure = Figure(figsize=(6.2, 3.8) if dim == 1 else (8.0, 3.9), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    if dim == 1:
        panel = figure.subplots()
        panel.fill_between(axis, p, color="#d9d9d9", label="target")
        panel.plot(axis, ours, color="#1f6fb4", linewidth=1.8, label=f"mixture of {result.components}")
        panel.set_xlabel("z")
        panel.set_ylabel("density")
        panel.legend(frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    else:
        for panel, density, title in zip(
            figure.subplots(1, 2), (p, ours), ("target", f"mixture of {result.components}"), strict=True
        ):
            panel.contourf(axis, axis, density.reshape(len(axis), len(axis)).t(), levels=12, cmap="Blues")
            panel.set_title(title, fontsize=10)
            panel.set_aspect("equal")
    with replacing(Path(path)) as beside:
        figure.savefig(beside, format="png")


def figure_boosting(out: Path, iterations: int | None, data: Path | None) -> None:
    """The bimodal target, black-box VI and three kinds of boosting; and KL(q ‖ p) over iterations."""
    import torch
    from solver_experiments import bimodal, boosting_curves

    p, last = bimodal(), iterations if iterations is not None else 40
    grid = torch.linspace(-3.5, 3.5, 400, dtype=torch.float64)
    mixtures: dict[str, np.ndarray] = {}

    def keep(step: str, seed: int, result: Any, divergences: np.ndarray) -> None:
        mixtures[step] = result.x.log_prob(grid[:, None]).exp().numpy()

    curves = boosting_curves(last, watch=keep)
    single: list[Any] = []
    boosting_curves(0, steps=("fixed",), watch=lambda step, seed, result, kl: single.append(result))
    first = single[0].x.log_prob(grid[:, None]).exp().numpy()
    figure, axes = _axes(2)
    axes[0].fill_between(grid, p.log_prob(grid).exp(), color="#dddddd", label="target")
    axes[0].plot(grid, first, "--", color="#3b3b3b", label="BBVI")
    for step, density in mixtures.items():
        axes[0].plot(grid, density, color=COLOURS[step], linewidth=1.6, label=step)
        axes[1].plot(curves[step][0], color=COLOURS[step], linewidth=1.6, label=step)
    axes[0].set_xlabel("z")
    axes[0].set_ylabel("density")
    axes[0].legend(frameon=False, fontsize=8)
    axes[1].axhline(0.2308, linestyle="--", color="#3b3b3b", linewidth=1, label="best single Gaussian")
    axes[1].set_yscale("log")
    axes[1].set_xlabel("iteration k")
    axes[1].set_ylabel("KL(q$_k$ ‖ p)")
    axes[1].legend(frameon=False, fontsize=8)
    _save(figure, out / "boosting.png")
    write_csv(out / "boosting.csv", {step: runs[0] for step, runs in curves.items()})


def figure_cone(out: Path, iterations: int | None, data: Path | None) -> None:
    """Six methods on random cones."""
    panels = {
        "positive targets": cone_curves(True, iterations=iterations or 500),
        "signed targets": cone_curves(False, iterations=iterations or 500),
    }
    draw_cone(panels, out / "cone.png")
    flat = {f"{name}, {kind}": curve for kind, panel in panels.items() for name, curve in panel.items()}
    write_csv(out / "cone.csv", flat)


def figure_acceleration(out: Path, iterations: int | None, data: Path | None) -> None:
    """Pursuits and their accelerated forms."""
    curves = acceleration_curves(iterations or 5000)
    draw_acceleration(curves, out / "acceleration.png")
    write_csv(out / "acceleration.csv", curves)


def figure_zigzag(out: Path, iterations: int | None, data: Path | None) -> None:
    """Iterates of NNMP, which can only shrink all weights at once, and of ANNMP, which takes a single one away."""
    atoms, target, start = np.array([[1.0, 0.34], [0.0, 0.94]]), np.array([1.6, -0.5]), np.array([0.64, 0.94])
    figure, axes = _axes(2)
    curves: Curves = {}
    for axis, (name, variant) in zip(axes, (("NNMP", "plain"), ("ANNMP", "away")), strict=True):
        steps: list[np.ndarray] = []
        nonnegative_matching_pursuit(
            target,
            atoms,
            start,
            variant=variant,
            max_iterations=iterations or 30,
            tol=1e-12,
            callback=lambda state, steps=steps: steps.append(state.x),  # type: ignore[misc]
        )
        path = np.pad(np.array(steps), ((0, (iterations or 30) + 1 - len(steps)), (0, 0)), mode="edge")
        curves.update({f"{name} {letter}": column for letter, column in zip("xy", path.T, strict=True)})
        axis.fill(*np.stack([np.zeros(2), 9 * atoms[:, 0], 9 * atoms[:, 1]]).T, color="#eeeeee")
        for atom, colour in zip(atoms.T, ("#3b3b3b", "#2e8b57"), strict=True):
            axis.annotate("", atom, (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.8})
        axis.plot(*path.T, "o-", color=STYLES[name][0], markersize=3, linewidth=1.2)
        axis.plot(*target, "x", color="#3b3b3b")
        axis.plot(target[0], 0, "*", color="#3b3b3b", markersize=10)
        axis.set(title=f"{name}: {len(steps) - 1} steps", xlim=(-0.1, 2.0), ylim=(-0.6, 1.2), aspect="equal")
    _save(figure, out / "zigzag.png")
    write_csv(out / "zigzag.csv", curves)


def figure_faces(out: Path, iterations: int | None, data: Path | None) -> None:
    """The boundary of c · conv(𝒜 ∪ 0) for some c; and conv(𝒜 ∪ 0) with the generating faces of cone(𝒜) drawn thick."""
    atoms = np.array([[1.0, 1.3, 0.8, 0.2], [0.2, 0.7, 1.2, 0.9]])
    angles = np.linspace(np.arctan2(0.2, 1.0), np.arctan2(0.9, 0.2), (iterations or 100) + 1)
    rays = np.stack([np.cos(angles), np.sin(angles)])
    edge = rays / [atomic_norm(ray, atoms) for ray in rays.T]
    figure, axes = _axes(2)
    for c in (0.5, 1.0, 1.5):
        axes[0].fill(*np.hstack([np.zeros((2, 1)), c * edge]), fill=False, edgecolor="#1f6fb4", linewidth=c)
        axes[0].annotate(f"c = {c:g}", c * edge[:, len(angles) // 2], fontsize=8)
    axes[0].set_title("atomic norm: c · conv(𝒜 ∪ 0)".replace("𝒜", "A"), fontsize=10)
    axes[1].fill(*np.hstack([np.zeros((2, 1)), 5 * edge[:, [0, -1]]]), color="#eeeeee")
    axes[1].fill(*np.hstack([np.zeros((2, 1)), edge]), color="#c9dcef")
    for face in generating_faces(atoms):
        if np.linalg.matrix_rank(face) == 1:
            axes[1].plot(*face, color="#c0392b", linewidth=3)
    axes[1].plot(*atoms, "o", color="#3b3b3b", markersize=4)
    axes[1].set_title("cone(A), and its generating faces: red, blue and the origin", fontsize=10)
    for axis in axes:
        axis.set(xlim=(-0.1, 2.1), ylim=(-0.1, 1.9), aspect="equal")
    _save(figure, out / "faces.png")
    write_csv(out / "faces.csv", {"conv(A) x": edge[0], "conv(A) y": edge[1]})


FIGURES = {
    "cone": figure_cone,
    "zigzag": figure_zigzag,
    "faces": figure_faces,
    "acceleration": figure_acceleration,
    "rates": figure_rates,
    "kmeans": figure_kmeans,
    "completion": figure_completion,
    "projection": figure_projection,
    "boosting": figure_boosting,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Compute, draw and write one figure."""
    parser = argparse.ArgumentParser(
        prog="python docs/solvers/experiments/solver_figures.py",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figure", choices=list(FIGURES), help="which one")
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), metavar="FOLDER", help="where to (default: figures)"
    )
    parser.add_argument("--iterations", type=int, help="how far to run (default: as far as the documentation's)")
    parser.add_argument("--data", type=Path, metavar="PATH", help="real data, for kmeans, completion and projection")
    arguments = parser.parse_args(argv)
    if arguments.iterations is not None and arguments.iterations < 1:
        parser.error(f"--iterations is {arguments.iterations}: expected at least 1")
    if arguments.data is not None and not arguments.data.exists():
        parser.error(f"--data is {arguments.data}, which does not exist")
    name = arguments.figure
    FIGURES[name](arguments.out, arguments.iterations, arguments.data)
    print(f"wrote {arguments.out / name}.png and {arguments.out / name}.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
