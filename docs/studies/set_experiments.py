"""The set-prediction chapter's experiments on saved set predictors, as a table of average precisions.

    python docs/studies/set_experiments.py sets.csv NAME=CHECKPOINT ...

Every row is a score in percent on scenes of its own draw, with initial slots of their own: average precision, or the
adjusted Rand index. Rows that are in the table already are kept, so that it grows model by model. `sets.png` beside it
shows all models by distance, and the bundled ones by iterations, objects and slots; without a model it is drawn again:

* `attention`: adjusted Rand index, without the background, of what slots attend to;
* `thresholds`: up to ten objects, the iterations and slots that the model was trained with;
* `iterations`: the same with 1 to 7 iterations (models with slots);
* `objects`: scenes of exactly N objects with N, N + 1, N + 2 and 12 slots (models with slots).
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unknot.hub import load
from unknot.metrics.functional.sets import THRESHOLDS
from unknot.metrics.object_scores import attention_score, held_out_scenes, set_scores

KEY = ["model", "experiment", "objects", "slots", "iterations", "draw"]


def main() -> None:
    """Score what is missing, and write the table after every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("models", nargs="*", metavar="NAME=CHECKPOINT")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--scenes", type=int, default=128, help="of each draw")
    arguments = parser.parse_args()
    rows = pd.read_csv(arguments.table).to_dict("records") if arguments.table.exists() else []
    done = {tuple(row[key] for key in KEY) for row in rows}
    for draw in range(arguments.draws):
        for text in arguments.models:
            name, _, ref = text.partition("=")
            model = load(ref).eval()
            for experiment, objects, options in experiments(model):
                slots = options.get("num_slots", getattr(model, "num_slots", 0))
                iterations = options.get("num_iterations", getattr(model, "num_iterations", 0))
                key = (name, experiment, objects, slots, iterations, draw)
                if key not in done:
                    found = scores(model, experiment, objects, options, draw, arguments.scenes)
                    rows.append(dict(zip(KEY, key, strict=True)) | found)
                    pd.DataFrame(rows).to_csv(arguments.table, index=False, float_format="%.4f")
            print(name, draw, flush=True)
    draw_figure(pd.DataFrame(rows), arguments.table.with_name("sets.png"))


def experiments(model: Any) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Name, exact number of objects (0 for up to ten) and options of the prediction."""
    yield "thresholds", 0, {}
    if type(model).__name__ != "SlotSetPredictor":
        return
    yield "attention", 0, {}
    for iterations in range(1, 8):
        yield "iterations", 0, {"num_iterations": iterations}
    for objects in (3, 6, 7, 8, 9, 10):
        for slots in dict.fromkeys((objects, objects + 1, objects + 2, 12)):
            yield "objects", objects, {"num_slots": slots}


def scores(
    model: Any, experiment: str, objects: int, options: dict[str, int], draw: int, scenes: int
) -> dict[str, float]:
    """Average precision in percent at every threshold, or the adjusted Rand index."""
    size = (model.image_shape[1], model.image_shape[2])
    batch = held_out_scenes(size, "clevr_scenes", scenes, 1000 + draw, "val", False, objects or None, objects or 10)
    if experiment == "attention":
        return {"ari": 100 * attention_score(model, batch, 1, draw)["ari"]}
    found = set_scores(model, batch, 1, draw, **options)
    names = [f"ap_{threshold:g}" for threshold in THRESHOLDS]
    return {name: 100 * value for name, value in zip(names, found.values(), strict=True)}


TITLES = {
    "cross-entropy": "slots, cross-entropy",
    "huber": "slots, Huber's loss",
    "slot-mlp": "MLP with ordered outputs",
    "dspn": "DSPN",
}
"""Models of the figure by their names in the table; others are called as they are."""


def draw_figure(table: pd.DataFrame, path: Path) -> None:
    """Draw average precision of all models by distance, and of those with slots by iterations, objects and slots."""
    figure = Figure(figsize=(10.5, 6.4), layout="constrained")
    (distances, iterations), below = figure.subplots(2, 2)
    names = [f"ap_{threshold:g}" for threshold in THRESHOLDS]
    bundled = table[table.model.isin(TITLES)]
    for name, of in bundled[bundled.experiment == "thresholds"].groupby("model", sort=False):
        error_bars(distances, range(len(names)), of[names].mean(), of[names].std(), TITLES[str(name)])
    distances.set_xticks(range(len(names)), [name.removeprefix("ap_").replace("inf", "∞") for name in names])
    distances.set(title="up to ten objects", xlabel="counts if the distance is below", ylabel="AP in %", ylim=(0, 100))
    distances.legend(fontsize=8)
    of = bundled[(bundled.model == "cross-entropy") & (bundled.experiment == "iterations")].groupby("iterations")
    for name in names[:-1]:
        words = name.removeprefix("ap_").replace("inf", "∞")
        error_bars(iterations, list(of.groups), of[name].mean(), of[name].std(), words)
    iterations.axvline(3, color="0.7", linewidth=1)
    title = TITLES["cross-entropy"]
    iterations.set(title=title, xlabel="iterations at test time (3 in training)", ylabel="AP in %", ylim=(0, 100))
    iterations.legend(title="distance below", fontsize=8, loc="center right", bbox_to_anchor=(1, 0.4))
    for axis, model in zip(below, ("cross-entropy", "huber"), strict=True):
        of = bundled[(bundled.model == model) & (bundled.experiment == "objects")]
        kinds = {f"N{f' + {more}' if more else ''}": of.objects + more for more in (0, 1, 2)} | {"12": 12}
        for name, slots in kinds.items():
            by = of[of.slots == slots].groupby("objects").ap_inf
            error_bars(axis, list(by.groups), by.mean(), by.std(), name)
        axis.set(title=TITLES[model], xlabel="objects in every scene, N", ylabel="AP in % at any distance")
        axis.set_ylim(30, 100)
        axis.legend(title="slots", fontsize=8)
    figure.savefig(path, dpi=110)


def error_bars(axis: Axes, x: Sequence[int], mean: Any, std: Any, label: str) -> None:
    """Draw means over draws with their standard deviations."""
    axis.errorbar(x, mean, std, marker="o", markersize=4, capsize=2, label=label)


if __name__ == "__main__":
    main()
