"""``unknot slots``: the experiments of the chapter "Learning About Multiple Objects" on any checkpoint."""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unknot.arguments import with_article
from unknot.datamodules import SetBatch
from unknot.files import replacing
from unknot.hub import load
from unknot.inference import fixed_noise
from unknot.metrics.functional.sets import THRESHOLDS
from unknot.metrics.object_scores import attention_score, held_out_scenes, set_scores
from unknot.zoo.object_pictures import draw_attention, draw_decomposition, draw_sets

NAMES = [f"{threshold:g}" for threshold in THRESHOLDS]


def run_experiment(arguments: argparse.Namespace) -> int:
    """Load checkpoints, run one experiment and print its table; write pictures and numbers if requested."""
    if min(arguments.images, arguments.draws) < 1:
        raise ValueError(f"--images and --draws must be positive, got {arguments.images} and {arguments.draws}.")
    models = {ref: load(ref).eval() for ref in arguments.refs}
    kinds = {"sets": "SetPredictor"} | ({"slots": "SlotAutoEncoder"} if arguments.experiment == "attention" else {})
    for ref, model in models.items():
        if model.capabilities.isdisjoint(kinds):
            raise ValueError(
                f"{ref} is {with_article(type(model).__name__)}, but `unknot slots {arguments.experiment}` needs a "
                f"{' or a '.join(kinds.values())}."
            )
    start = time.perf_counter()
    results = EXPERIMENTS[arguments.experiment](models, arguments)
    print(f"{time.perf_counter() - start:.0f} s")
    if arguments.output:
        path = Path(arguments.output) / f"{arguments.experiment}.json"
        with replacing(path) as beside:
            beside.write_text(json.dumps(results, indent=2) + "\n")
        print(f"Numbers and pictures are in {arguments.output}.")
    return 0


def scores(model: Any, batch: SetBatch, arguments: argparse.Namespace, **options: Any) -> dict[str, Any]:
    """Return average precision in percent at each threshold: the mean over draws of initial slots, and each draw."""
    measured = set_scores(model, batch, arguments.draws, arguments.seed, **options)
    draws = [[100 * parts[str(i)] for parts in measured.details.values()] for i in range(arguments.draws)]
    return {"ap": {name: 100 * value for name, value in zip(NAMES, measured.values(), strict=True)}, "draws": draws}


# Experiments


def thresholds_experiment(models: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """AP at ∞, 1, 0.5, 0.25 and 0.125 for each checkpoint, comparing losses and their weights."""
    results = {}
    _title(arguments, "AP in % at distance thresholds")
    _row("", NAMES)
    for ref, model in models.items():
        batch = _batch(model, arguments)
        results[ref] = scores(model, batch, arguments)
        _row(label(ref, model), results[ref]["ap"].values())
        if arguments.output:
            path = Path(arguments.output) / f"sets-{slug(ref)}.png"
            draw_sets(model, batch.images[:6], batch.targets[:6], path)
    if arguments.output:
        lines = {label(ref, model): list(results[ref]["ap"].values()) for ref, model in models.items()}
        _bars(lines, NAMES, "distance threshold", Path(arguments.output) / "ap.png")
    return results


def iterations_experiment(models: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """AP for 3 to 7 iterations at test time."""
    steps = range(arguments.first or 3, (arguments.last or 7) + 1)
    _title(arguments, "AP in % by iterations at test time")

    def measure(model: Any) -> dict[str, Any]:
        batch = _batch(model, arguments)
        return {str(t): scores(model, batch, arguments, num_iterations=t) for t in steps}

    return _curves(models, measure, "iterations", arguments)


def objects_experiment(models: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """AP on scenes of exactly 6 to 10 objects with as many slots."""
    counts = range(arguments.first or 6, (arguments.last or 10) + 1)
    _title(arguments, "AP in % on scenes of exactly N objects, with N slots")

    def measure(model: Any) -> dict[str, Any]:
        return {str(n): scores(model, _batch(model, arguments, n), arguments, num_slots=n) for n in counts}

    return _curves(models, measure, "objects", arguments)


def attention_experiment(models: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Adjusted Rand index, without the background, of attention (or of an autoencoder's masks) at 32 x 32."""
    results: dict[str, Any] = {}
    _title(arguments, "ARI in % of the slots' attention, without the background")
    for ref, model in models.items():
        batch = _batch(model, arguments)
        if batch.masks is None:
            raise ValueError(f"{arguments.data}: these images have no masks; add --redraw to draw their layouts.")
        try:
            score = attention_score(model, batch, arguments.draws, arguments.seed)
        except ValueError as error:
            raise ValueError(f"{ref}: {str(error)[0].lower()}{str(error)[1:]}") from None
        draws = [100 * value for value in score.details["ari"].values()]
        results[ref] = {"ari": 100 * score["ari"], "draws": draws}
        _row(label(ref, model), [results[ref]["ari"]])
        if arguments.output:
            path = Path(arguments.output) / f"attention-{slug(ref)}.png"
            draw = draw_decomposition if "slots" in model.capabilities else draw_attention
            with fixed_noise(model, arguments.seed):
                draw(model, batch.images[:4], path)
    return results


EXPERIMENTS: dict[str, Callable[[dict[str, Any], argparse.Namespace], dict[str, Any]]] = {
    "ap": thresholds_experiment,
    "iterations": iterations_experiment,
    "objects": objects_experiment,
    "attention": attention_experiment,
}


# Tables and pictures


def label(ref: str, model: Any) -> str:
    """Return the name of a checkpoint in tables: its unusual options and its folder."""
    words = [type(model).__name__]
    if getattr(model, "loss_at_every_iteration", False):
        words.append("loss at every iteration")
    if getattr(model, "coordinate_scale", 1.0) != 1.0:
        words.append(f"coordinates × {model.coordinate_scale:g}")
    return f"{', '.join(words)} ({ref})"


def slug(ref: str) -> str:
    """Return a name for files."""
    return "-".join("".join(c if c.isalnum() else " " for c in ref).split())[-80:]


def _batch(model: Any, arguments: argparse.Namespace, exactly: int | None = None) -> SetBatch:
    size = (model.image_shape[1], model.image_shape[2])
    which = arguments.data, arguments.images, arguments.seed, arguments.split, arguments.redraw
    return held_out_scenes(size, *which, exactly, arguments.most if exactly is None else exactly)


def _title(arguments: argparse.Namespace, what: str) -> None:
    source = "" if arguments.data == "clevr_scenes" else f" {arguments.split}{', redrawn' if arguments.redraw else ''}"
    print(
        f"{what}; {arguments.data}{source}, up to {arguments.images} scenes, seed {arguments.seed}, "
        f"mean of {arguments.draws} draws of initial slots"
    )


def _row(name: str, values: Any) -> None:
    cells = (f"{value:>7.1f}" if isinstance(value, float) else f"{value:>7}" for value in values)
    start = f"  {name}\n{'':<22}" if len(name) > 20 else f"  {name:<20}"
    print(start + " ".join(cells))


def _curves(
    models: dict[str, Any], measure: Callable[[Any], dict[str, Any]], what: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    results = {}
    for ref, model in models.items():
        results[ref] = measure(model)
        print(f"  {label(ref, model)}")
        _row(what, NAMES)
        for step, found in results[ref].items():
            _row(step, found["ap"].values())
    if arguments.output:
        figure = Figure(figsize=(4.2 * len(results), 3.2), layout="constrained")
        for axis, (ref, found) in zip(figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True):
            for name in NAMES:
                axis.plot([int(s) for s in found], [point["ap"][name] for point in found.values()], "o-", label=name)
            axis.set(xlabel=what, ylabel="AP in %", ylim=(0, 100), xticks=[int(s) for s in found])
            axis.set_title(label(ref, models[ref]).replace(" (", "\n("), fontsize=7)
            axis.legend(title="threshold", fontsize=7, title_fontsize=7)
        _save(figure, Path(arguments.output) / f"{what}.png")
    return results


def _bars(lines: dict[str, list[float]], names: Sequence[str], what: str, path: Path) -> None:
    figure = Figure(figsize=(6.5, 3.4), layout="constrained")
    axis = figure.subplots()
    width = 0.8 / len(lines)
    for i, (name, values) in enumerate(lines.items()):
        places = np.arange(len(names)) + (i - (len(lines) - 1) / 2) * width
        bars = axis.bar(places, values, width, label=name)
        axis.bar_label(bars, fmt="%.1f", fontsize=7)
    axis.set(xticks=range(len(names)), xticklabels=names, xlabel=what, ylabel="AP in %", ylim=(0, 105))
    axis.legend(fontsize=7)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as beside:
        figure.savefig(beside, format="png", dpi=100)
