"""The set-prediction chapter's experiments on saved set predictors, as a table of average precisions.

    python docs/studies/set_experiments.py sets.csv NAME=CHECKPOINT ...

Every row is a score in percent on scenes of its own draw, with initial slots of their own: average precision, or the
adjusted Rand index. Rows that are in the table already are kept, so that it grows model by model. `sets.png` beside it
shows the bundled model by objects, slots and iterations:

* `attention`: adjusted Rand index, without the background, of what slots attend to;
* `thresholds`: up to ten objects, the iterations and slots that the model was trained with;
* `iterations`: the same with 1 to 7 iterations (models with slots);
* `objects`: scenes of exactly N objects with N, N + 1, N + 2 and 12 slots (models with slots).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from unknot.hub import load
from unknot.metrics.functional.sets import THRESHOLDS
from unknot.metrics.object_scores import attention_score, held_out_scenes, set_scores

KEY = ["model", "experiment", "objects", "slots", "iterations", "draw"]


def main() -> None:
    """Score what is missing, and write the table after every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME=CHECKPOINT")
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


def draw_figure(table: pd.DataFrame, path: Path) -> None:
    """Average precision at any distance of the bundled model: by objects and slots, and by iterations."""
    table = table[table.model == "cross-entropy"]
    figure = Figure(figsize=(9.5, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    objects = table[table.experiment == "objects"]
    kinds = {f"N{f' + {more}' if more else ''}": objects.objects + more for more in (0, 1, 2)} | {"12": 12}
    for place, (name, slots) in enumerate(kinds.items()):
        by = objects[objects.slots == slots].groupby("objects").ap_inf
        left.errorbar(by.mean().index, by.mean(), by.std(), marker="o", capsize=2, color=f"C{place}", label=name)
    left.set(xlabel="objects in every scene, N", ylabel="AP in % at any distance", ylim=(50, 100))
    left.legend(title="slots", fontsize=8)
    by_step = table[table.experiment == "iterations"].groupby("iterations")
    for name in ("ap_inf", "ap_1", "ap_0.5", "ap_0.25"):
        mean, std = by_step[name].mean(), by_step[name].std()
        right.errorbar(mean.index, mean, std, marker="o", capsize=2, label=name.removeprefix("ap_").replace("inf", "∞"))
    right.axvline(3, color="0.7", linewidth=1)
    right.set(xlabel="iterations at test time (3 in training)", ylabel="AP in %", ylim=(0, 100))
    right.legend(title="distance below", fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
