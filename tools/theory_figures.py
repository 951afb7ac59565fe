"""Figures of the theorems: ``python tools/theory_figures.py --out FOLDER``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from unknot.metrics.functional import mig
from unknot.studies.theory import (
    Entangling,
    heuristic_success,
    isolation_probability,
    perfect_classifier,
    sample_pairs,
    shared_coordinates,
)

DSPRITES = (3, 6, 40, 32, 32)


def impossibility() -> Figure:
    """Draw two sets of latents with the same distribution, each entangled relative to the other."""
    f = Entangling([stats.uniform()] * 2)
    z = f.sample(10_000)
    other = f(z)
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots(1, 4)
    for axis, points, title in ((axes[0], z, "z: uniform"), (axes[1], other, "f(z): uniform as well")):
        axis.scatter(*points[:3000].T, c=z[:3000, 0], s=5, cmap="viridis")
        axis.set(title=title, xlabel="first code", ylabel="second code", aspect="equal")
    line = np.linspace(0.001, 0.999, 400)
    for value in np.linspace(0.05, 0.95, 10):
        for column, colour in ((0, "C0"), (1, "C1")):
            points = np.full((len(line), 2), value)
            points[:, 1 - column] = line
            axes[2].plot(*f(points).T, color=colour, linewidth=0.8)
    axes[2].set(title="where f puts the grid of z", xlabel="first code", ylabel="second code", aspect="equal")
    classes = {"z": z, "f(z)": other}
    for place, values in enumerate(classes.values()):
        binned = np.minimum((values * 10).astype(int), 9)
        for shift, (code, codes) in zip((-0.2, 0.2), classes.items(), strict=True):
            height = mig(codes, binned)
            axes[3].bar(
                place + shift, height, 0.36, color="C2" if code == "z" else "C4", label=code if not place else None
            )
            axes[3].text(place + shift, height + 0.02, f"{height:.3f}", ha="center", fontsize=8)
    axes[3].set(title="MIG", ylim=(0, 1.15))
    axes[3].set_xticks([0, 1], ["if z is\nthe truth", "if f(z) is\nthe truth"])
    axes[3].legend(title="codes", fontsize=8)
    return figure


def fairness() -> Figure:
    """Draw the rate at which an optimal classifier predicts 1 in each group, by what it observes."""
    figure = Figure(figsize=(7.5, 3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 4])
    cases = {"sees min(y, s)": perfect_classifier(), "sees y and s apart": perfect_classifier(separated=True)}
    for place, result in enumerate(cases.values()):
        for group, shift, colour in ((0, -0.2, "C0"), (1, 0.2, "C1")):
            rate = result.rate[group]
            left.bar(place + shift, rate, 0.36, color=colour, label=f"s = {group}" if not place else None)
            left.text(place + shift, rate + 0.02, f"{rate:.2f}", ha="center", fontsize=8)
    left.set(title="how often it predicts y = 1", ylim=(0, 0.85))
    left.set_xticks(range(2), list(cases))
    left.legend(fontsize=8)
    grid = np.linspace(0.02, 0.98, 49)
    gap = np.array([[perfect_classifier(b, q).gap for q in grid] for b in grid])
    image = right.imshow(gap, origin="lower", extent=(0, 1, 0, 1), cmap="magma")
    right.plot(0.5, 0.5, "wo")
    right.text(0.53, 0.52, "1/3", color="w")
    right.set(title="difference of the two rates", xlabel="p(s = 1)", ylabel="p(y = 1)")
    figure.colorbar(image, ax=right)
    return figure


def identifiability() -> Figure:
    """Draw codes separated by pairs, the condition of the theorem, and pairs whose changes the threshold finds."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    axes = figure.subplots(1, 3)
    first, second = sample_pairs([stats.uniform()] * 5, k=1, n=2000)
    f = Entangling([stats.uniform()] * 5, alpha=0.3)
    turn = np.eye(5)
    turn[:2, :2] = [[np.sqrt(0.5), -np.sqrt(0.5)], [np.sqrt(0.5), np.sqrt(0.5)]]
    models = {
        "true codes, or any\norder and scale": (first, second),
        "two codes rotated": (first @ turn.T, second @ turn.T),
        "f(z)": (f(first), f(second)),
    }
    for place, (name, pair) in enumerate(models.items()):
        counts = np.bincount(shared_coordinates(*pair), minlength=6) / len(first)
        axes[0].bar(np.arange(6) + 0.27 * (place - 1), counts, 0.25, label=name)
    axes[0].set(title="codes that a pair shares\n(5 factors, one changes)", xlabel="number", ylabel="share of pairs")
    axes[0].legend(fontsize=7, loc="center")
    for d in (3, 4, 5, 6, 7):
        axes[1].plot(range(1, d), [isolation_probability(d, k) for k in range(1, d)], "o-", label=f"{d} factors")
    axes[1].axhline(0, color="k", linewidth=0.8)
    axes[1].set(
        title="chance that two pairs share\none factor only", xlabel="factors that change, k", ylabel="probability"
    )
    axes[1].set_xticks(range(1, 7))
    axes[1].legend(fontsize=7)
    for keep, name in ((True, "re-drawn, may stay"), (False, "really changed")):
        share = [heuristic_success(DSPRITES, k, n=20_000, keep_value=keep) for k in range(1, 5)]
        axes[2].plot(range(1, 5), share, "o-", label=name)
        for k, value in enumerate(share, 1):
            axes[2].text(k + 0.05, value + 0.02, f"{100 * value:.0f} %", fontsize=8)
    axes[2].set(
        title="pairs whose changes the threshold\nfinds, perfect codes of dSprites", xlabel="factors, k", ylim=(0, 1.1)
    )
    axes[2].set_xticks(range(1, 5))
    axes[2].set_xlim(0.8, 4.6)
    axes[2].legend(fontsize=7)
    return figure


FIGURES = {"impossibility": impossibility, "fairness": fairness, "identifiability": identifiability}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(prog="python tools/theory_figures.py", description=__doc__)
    parser.add_argument("--out", default=".", metavar="FOLDER", help="where to write (default: here)")
    folder = Path(parser.parse_args(argv).out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        draw().savefig(folder / f"{name}.png", dpi=110)
        print(folder / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
