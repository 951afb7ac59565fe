"""Learning curves of abstract reasoning on Rooms3D at 32 x 32 pixels: perfect codes, frozen encoders, and controls.

    python docs/studies/reasoning_experiments.py OUT --encoder ada-gvae=PATH_OR_NAME --encoder beta-vae=... --seeds 2

Every curve is the smallest relation network of the study, trained on the same matrices and tested on the same 3,200.
What differs is what it sees of a panel: factor `values`, `onehot` factors, the pixels through a CNN that it trains
(`cnn`), or frozen codes. Each encoder comes in two versions, as it is and with its codes rotated by a fixed random
rotation, which keeps all they tell and mixes the axes; `untrained` is the first encoder with weights as they are drawn.
Curves are added to OUT/curves.csv one by one, those already there are kept, and OUT/curves.png shows all.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from unknot.datamodules import Coarse, Matrices, Resized, Rooms3D, sample_matrices
from unknot.datamodules.matrices import solve_by_row
from unknot.hub import load
from unknot.metrics.reasoning import GRIDS, TEST, Batch, learning_curve
from unknot.zoo import VAE, BetaVAE, WReN

STEPS = (100, 300, 1000, 3000)
CNN_STEPS = (100, 300, 1000)  # each embeds 448 images

Look = Callable[[Tensor], Tensor]
"""Panels as factor values ``[N, F]`` to what a network sees of them ``[N, ...]``."""


def main() -> None:
    """Train what is missing, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--encoder", action="append", default=[], metavar="NAME=CHECKPOINT")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--alternatives", choices=("easy", "hard", "debiased"), default="easy")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = arguments.out / "curves.csv"
    curves = pd.read_csv(kept) if kept.exists() else pd.DataFrame(columns=["panels", "seed", "alternatives"])
    encoders = dict(text.split("=", 1) for text in arguments.encoder)
    for seed in range(arguments.seeds):
        for name, model, look in kinds(encoders, seed):
            key = {"panels": name, "seed": seed, "alternatives": arguments.alternatives}
            if (curves[list(key)] == pd.Series(key)).all(axis=1).any():
                continue
            found = experiment(model(), look(), arguments.alternatives, seed, CNN_STEPS if name == "cnn" else STEPS)
            curves = pd.concat([curves, found.assign(**key)], ignore_index=True)
            curves.to_csv(kept, index=False)
            print(found.assign(**key).to_string(index=False), flush=True)
            draw(curves, arguments.out / "curves.png")


def grid() -> Coarse:
    """Rooms as the study coarsens them, drawn once."""
    rooms = Resized(Rooms3D(), 32)
    rooms.prepare()
    return Coarse(rooms, GRIDS["rooms3d"])


def kinds(encoders: dict[str, str], seed: int) -> Iterator[tuple[str, Callable[[], WReN], Callable[[], Look]]]:
    """Name, network and panels of every curve; made only if they are needed."""
    sizes = GRIDS["rooms3d"]
    for name in ("values", "onehot"):
        yield name, lambda name=name: seeded(seed, name, sizes=sizes), lambda: lambda factors: factors
    codes = lambda: seeded(seed, "codes", code_dim=10)  # noqa: E731
    for name, where in encoders.items():
        yield name, codes, lambda where=where: frozen(load(where))
        yield f"{name}, rotated", codes, lambda where=where: frozen(load(where), rotated=True)
    yield "untrained", codes, lambda: frozen(untrained(seed))
    yield "cnn", lambda: seeded(seed, "images", image_shape=(3, 32, 32)), lambda: grid().observe


def seeded(seed: int, *arguments: Any, **options: Any) -> WReN:
    """The same weights to start from for every curve of a seed."""
    torch.manual_seed(seed)
    return WReN(*arguments, **options)


def untrained(seed: int) -> VAE:
    """An encoder whose weights are those that it was made with."""
    torch.manual_seed(seed)
    return BetaVAE(image_shape=(3, 32, 32))


def frozen(model: VAE, rotated: bool = False) -> Look:
    """Codes of every grid point, encoded once; optionally turned by one random rotation."""
    points = grid()
    space = points.factor_space
    with torch.inference_mode():
        rows = torch.arange(len(points)).split(1000)
        table = torch.cat([model.eval().represent(points.observe(space.factors(part))) for part in rows]).clone()
    if rotated:
        noise = torch.randn(table.shape[1], table.shape[1], generator=torch.Generator().manual_seed(3))
        table = table @ torch.linalg.qr(noise).Q
    return lambda factors: table[space.index(factors)]


def experiment(model: WReN, look: Look, alternatives: Any, seed: int, steps: tuple[int, ...]) -> pd.DataFrame:
    """One curve: accuracy after each of the steps, beside the level of row matching."""
    sizes = GRIDS["rooms3d"]

    def panels(matrices: Matrices) -> Batch:
        both = torch.cat([matrices.context, matrices.answers], dim=1)
        seen = look(both.flatten(0, 1)).unflatten(0, both.shape[:2])
        return seen[:, :8], seen[:, 8:], matrices.position

    fixed = sample_matrices(sizes, TEST, torch.Generator().manual_seed(1), alternatives=alternatives)
    by_row = solve_by_row(fixed, generator=torch.Generator().manual_seed(2)) == fixed.position
    generator = torch.Generator().manual_seed(1000 + seed)
    curve = learning_curve(model, panels, sizes, panels(fixed), steps, generator, alternatives)
    found = pd.DataFrame({"steps": curve.keys(), "accuracy": curve.values()})
    return found.assign(row_match=float(by_row.double().mean()))


def draw(curves: pd.DataFrame, path: Path) -> None:
    """Accuracy against steps, mean and range over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axis = figure.subplots()
    for name, part in curves.groupby("panels", sort=False):
        by_step = part.groupby("steps").accuracy
        mean = by_step.mean()
        style = ":" if "rotated" in name or name == "untrained" else "-"
        (line,) = axis.plot(mean.index, mean, style, marker="o", markersize=4, label=name)
        axis.fill_between(mean.index, by_step.min(), by_step.max(), color=line.get_color(), alpha=0.15, linewidth=0)
    for level, text in ((curves.row_match.iloc[0], "row match"), (1 / 6, "chance")):
        axis.axhline(level, color="0.5", linewidth=0.8)
        axis.annotate(text, (curves.steps.max(), level), ha="right", va="bottom", color="0.35", fontsize=8)
    axis.set(
        xscale="log", xlabel="steps of WReN, 32 new matrices each", ylabel="accuracy on 3,200 matrices", ylim=(0, 1)
    )
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
