"""Build the bundled checkpoints from training runs, as specified in ``recipes.yaml``.

python tools/bundle.py                                 # all whose training is in runs/, from there
python tools/bundle.py betavae-dsprites32 --train   # train it first, where it is not there
python tools/bundle.py betavae-dsprites --from runs/mine/version_0
python tools/bundle.py --cards                         # write the cards again after a change of their template
python tools/bundle.py --add-scores                 # those that a bundled card lacks, of the bundled weights
"""

import argparse
import csv
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from PIL import Image

from recipes import NotTrained, Recipe, Trained, read_recipes
from unknot.checkpoints.card import read_card
from unknot.checkpoints.names import BUNDLED, CARD, ORGANISATION
from unknot.datamodules import DATASETS, GroundTruthDataset
from unknot.files import replacing
from unknot.hub.loading import load
from unknot.hub.model_card import Facts, card_text, check_scores, facts_from
from unknot.hub.publishing import assemble, content_of
from unknot.inference import evaluation_mode, fixed_noise
from unknot.metrics import METRICS as KNOWN
from unknot.metrics import Draws, Scores, evaluate
from unknot.metrics.functional import information_matrix
from unknot.metrics.object_scores import attention_score, held_out_scenes, set_scores
from unknot.metrics.plots import draw_matrices
from unknot.training.settings import build
from unknot.zoo import Model

METRICS = (
    *("mig", "dci", "sap", "modularity", "explicitness", "irs", "total_correlation", "beta_vae", "factor_vae", "elbo"),
    *("downstream_gbt", "unfairness", "covariate_shift"),
)
LICENSE = "apache-2.0"
COLOURS = 256
"""Of a picture: the package carries many of them. Chosen so that each is far from the others, and then moved to the
middle of what it stands for; by median cut, shades of one hue push others out, and files are larger."""
CHECKED, TOLERANCE, NOISE = ("mig", "modularity", "irs"), 5e-4, 2e-3
"""Scores that half precision may move, and by how much: about as much as another draw of images does (MIG 0.0005 to
0.003, IRS and modularity more); weights stay single otherwise. Scores of halved weights are measured again. Those that
a training brought along are kept for single precision, if they agree to the printed digits."""


def ship(
    name: str,
    trained: Trained,
    output: Path = BUNDLED,
    metrics: Sequence[str] = METRICS,
    num_train: int = 10_000,
    num_test: int = 5_000,
    repeats: int = 1,
) -> Scores:
    """Write a trained model as a bundled checkpoint with scores and pictures, and return its scores.

    Args:
        name: name of the checkpoint.
        trained: the model and the record of its training.
        output: parent of the folder to write.
        metrics: metrics of the card; those stored with the training are not computed again.
        num_train: samples that the scores are fitted on.
        num_test: samples that they are tested on.
        repeats: repetitions; with more than one, the card states their standard deviation.
    """
    model = load(trained.model)
    model.trained_on = trained.scored_on or model.trained_on  # what the page draws and `unknot evaluate` scores by
    notes = list(trained.notes)
    if model.training_only:
        notes.append(f"It comes without its {' and '.join(model.training_only)}, which serves training alone.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        extras = {"training.yaml": _settings(trained.settings, folder / "training.yaml")}
        if trained.curves:
            extras["training.csv"] = _history(trained.curves, folder / "training.csv")
        if "codes" in model.capabilities:
            dataset = DATASETS[model.trained_on or ""]()
            half, now = _in_half(model, lambda: evaluate(model, dataset, CHECKED, num_train, num_test), notes)
            scores = _scores(model, dataset, trained.scores, now, metrics, num_train, num_test, repeats, half)
            _draw(model, dataset, folder / "pictures", num_train)
        elif not model.capabilities.isdisjoint({"sets", "slots"}):
            half, scores = _in_half(model, lambda: scene_scores(model), notes)
        else:
            half, scores = False, _validated(extras.get("training.csv"), model)
        if "codes" not in model.capabilities:
            _draw_batch(model, folder / "training.yaml", folder / "pictures")
        for path in sorted(folder.glob("pictures/*.png")):
            with Image.open(path) as image:
                full = image.convert("RGB")
            small = full.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
            small.save(path, optimize=True)
            extras[f"pictures/{path.name}"] = path
        facts = Facts(
            check_scores(scores),
            trained.seed,
            trained.command,
            LICENSE,
            trained.commit,
            None if trained.core_seconds is None else round(trained.core_seconds / 3600, 4),
            tuple(notes),
        )
        made = assemble(
            model,
            folder / "made",
            f"{ORGANISATION}/{name}",
            facts,
            extras=extras,
            dtype=torch.float16 if half else None,
        )
        shutil.rmtree(made / ".eval_results", ignore_errors=True)  # for leaderboards of a hub: a push writes them
        shutil.rmtree(output / name, ignore_errors=True)
        shutil.copytree(made, output / name)
    return scores


def add_scores(name: str, metrics: Sequence[str] = METRICS, output: Path = BUNDLED) -> Scores:
    """Compute the scores that a bundled card lacks, with its protocol, and return the new ones.

    Args:
        name: name of a checkpoint in ``output``.
        metrics: metrics that its card must have.
        output: parent of its folder.
    """
    folder = output / name
    model, old = load(folder), facts_from(read_card((folder / CARD).read_bytes()))
    missing = [metric for metric in metrics if not any(_is_of(metric, score) for score in old.scores)]
    if "codes" not in model.capabilities or not missing:
        return Scores()
    draws = {key: old.scores.protocol[key] for key in ("num_train", "num_test", "seed", "repeats")}
    new = evaluate(model, DATASETS[model.trained_on or ""](), missing, **draws)
    both, spread = {**old.scores, **new}, {**old.scores.std, **new.std}
    facts = replace(old, scores=Scores(_in_order(both, metrics), std=spread, protocol=old.scores.protocol))
    write_card_of(name, facts, output)
    return new


def write_card_of(name: str, facts: Facts | None = None, output: Path = BUNDLED) -> None:
    """Rewrite the card of a bundled checkpoint, from its own facts or from others."""
    folder = output / name
    old = read_card((folder / CARD).read_bytes())
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != CARD]
    files = {path.relative_to(folder).as_posix(): content_of(path) for path in paths}
    text = card_text(load(folder), f"{ORGANISATION}/{name}", facts or facts_from(old), files, old)
    with replacing(folder / CARD) as beside:
        beside.write_text(text, encoding="utf-8")


def _in_half(model: Model, measure: Callable[[], Scores], notes: list[str]) -> tuple[bool, Scores]:
    """Round the weights to half precision if the scores stay within noise; return whether it did, and the scores."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    full = measure()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.copy_(tensor.half())
    rounded = measure()
    worst = max(abs(full[name] - rounded[name]) for name in full)
    if worst <= NOISE:
        notes.append(f"Weights are in half precision; {', '.join(full)} moved by {worst:.1g} at most.")
        return True, rounded
    model.load_state_dict(before)
    notes.append(f"Weights are in single precision: in half, scores would move by up to {worst:.2g}.")
    return False, full


def _scores(
    model: Model,
    dataset: GroundTruthDataset,
    brought_along: Mapping[str, Any],
    now: Scores,
    metrics: Iterable[str],
    train: int,
    test: int,
    repeats: int,
    half: bool,
) -> Scores:
    """Return the scores stored with the training, if they belong to these weights and samples, and the others."""
    protocol, brought = brought_along.get("protocol", {}), brought_along.get("scores", {})
    draws: dict[str, Any] = {"num_train": train, "num_test": test, "seed": 0, "repeats": repeats}
    same = repeats == 1 and all(protocol.get(key) == value for key, value in draws.items())  # jobs keep no spread
    holds = not half and all(abs(value - brought.get(name, value)) <= TOLERANCE for name, value in now.items())
    old = Scores(brought, protocol=protocol) if same and holds else Scores()
    if same and not holds:
        again = [metric for metric in KNOWN if any(_is_of(metric, name) for name in brought)]
        metrics = dict.fromkeys([*metrics, *again])
    missing = [metric for metric in metrics if not any(_is_of(metric, name) for name in old)]
    new = evaluate(model, dataset, missing, **draws) if missing else Scores(protocol=old.protocol)
    both = {name: value for name, value in {**old, **new}.items() if not name.startswith("aggregation")}
    return Scores(_in_order(both, metrics), std=new.std, protocol=new.protocol)


def _in_order(scores: Mapping[str, float], metrics: Iterable[str]) -> dict[str, float]:
    """Return scores in the order of the metrics, then all others."""
    order = [name for metric in metrics for name in scores if _is_of(metric, name)]
    return {name: scores[name] for name in dict.fromkeys([*order, *scores])}


def _is_of(metric: str, name: str) -> bool:
    return name == metric or name.startswith(f"{metric}_")


def _draw(model: Model, dataset: GroundTruthDataset, folder: Path, samples: int) -> None:
    """Draw traversals, reconstructions and the factor-code matrix."""
    with evaluation_mode(model):
        images = dataset.observe(dataset.factor_space.sample(64, torch.Generator().manual_seed(0)))
        model.draw(images, folder)
        codes = Draws(model, dataset, samples, 1, 0).train
    draw_matrices(
        {"mutual information": information_matrix(*codes)}, folder / "factor_code.png", dataset.factor_space.names
    )


def scene_scores(model: Any, num_test: int = 512, draws: int = 3) -> Scores:
    """Return average precision of sets on new scenes, and mask scores of the slots' attention or masks."""
    most = min(10, model.num_slots - ("slots" in model.capabilities))  # masks need a slot for the background
    scenes = held_out_scenes(tuple(model.image_shape[1:]), n=num_test, most=most)
    parts = []
    if "sets" in model.capabilities:
        parts.append(set_scores(model, scenes, draws))
    with fixed_noise(model, 0):  # slots are drawn; an MLP has no attention
        attends = "slots" in model.capabilities or model.predict_sets(scenes.images[:1]).attention is not None
    if attends:
        parts.append(attention_score(model, scenes, draws))
    values = {name: value for part in parts for name, value in part.items()}
    spreads = {name: value for part in parts for name, value in part.std.items()}
    return Scores(values, std=spreads, protocol={"dataset": "new drawn scenes"} | parts[0].protocol)


def _validated(history: Path | None, model: Model) -> Scores:
    """Return the last validation scores of a model that ``evaluate`` does not score, except losses."""
    scores = Scores(protocol={"dataset": model.trained_on or "", "data": "as in validation while it trained"})
    if history is None:
        return scores
    with history.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for column in rows[0]:
        values = [row[column] for row in rows if row[column]]
        if column.startswith("val/") and "loss" not in column and values:
            scores[column.removeprefix("val/")] = float(values[-1])
    return scores


def _draw_batch(model: Model, settings: Path, folder: Path) -> None:
    """Draw the output of the model for the first batch of its validation data."""
    data: Any = build(yaml.safe_load(settings.read_text(encoding="utf-8"))["data"])
    data.prepare_data()
    data.setup("validate")
    folder.mkdir()
    with evaluation_mode(model), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # slots start from random draws
        model.draw(next(iter(data.val_dataloader())), folder)


def _settings(source: Path, target: Path) -> Path:
    """Return the configuration of a run without machine-specific settings."""
    settings = yaml.safe_load(source.read_text(encoding="utf-8"))
    settings.pop("ckpt_path", None)
    settings["trainer"].pop("default_root_dir", None)
    target.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return target


def _history(sources: Sequence[Path], target: Path) -> Path:
    """Join the logs of all parts of a run; rows of a resumed part replace those of the same steps."""
    rows: list[dict[str, str]] = []
    for source in sources:
        with source.open(newline="") as file:
            part = list(csv.DictReader(file))
        start = min(int(row["step"]) for row in part)
        rows = [row for row in rows if int(row["step"]) < start] + part
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{float(value):.6g}" if value else "" for key, value in row.items()})
    return target


def train(recipe: Recipe, runs: Path, options: Sequence[str] = ()) -> None:
    """Train a recipe, unless it is trained, in the folder where it is looked up."""
    if recipe.fit is None:
        from unknot.studies.jobs.runner import prepare, run
        from unknot.studies.study import Study

        assert recipe.study is not None
        folder = runs / recipe.study
        plan = prepare(Study.from_file(recipe.study), folder)
        run(recipe.only(plan), folder)
        return
    command = [sys.executable, "-m", "unknot.cli", "fit", *shlex.split(recipe.fit), *options]
    subprocess.run([*command, "--trainer.default_root_dir", str(runs / recipe.name)], check=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command described in the module's docstring."""
    recipes = read_recipes()
    parser = argparse.ArgumentParser(prog="python tools/bundle.py", description="Make bundled checkpoints.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="names in recipes.yaml (default: all)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="folder of the training runs (default: %(default)s)"
    )
    parser.add_argument(
        "--from",
        type=Path,
        nargs="+",
        dest="source",
        metavar="DIR",
        help="training run to use, as one or more parts in order",
    )
    parser.add_argument("--train", action="store_true", help="train missing runs")
    parser.add_argument("--new", action="store_true", help="only those that are not bundled yet")
    parser.add_argument("--add-scores", action="store_true", help="measure what bundled cards lack, without training")
    parser.add_argument("--cards", action="store_true", help="only rewrite the cards with the current template")
    parser.add_argument("--repeats", type=int, default=1, help="repetitions of the scores")
    parser.add_argument("--metrics", nargs="+", default=METRICS, metavar="SCORE", help="of models of latents")
    parser.add_argument("--samples", nargs=2, type=int, default=(10_000, 5_000), metavar=("TRAIN", "TEST"))
    parser.add_argument("--output", type=Path, default=BUNDLED, metavar="DIR", help="(default: %(default)s)")
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.names if name not in recipes]:
        parser.error(f"{', '.join(unknown)}: not in recipes.yaml, which has {', '.join(recipes)}")
    if arguments.source and len(arguments.names) != 1:
        parser.error("--from applies to one checkpoint: give its name")
    bundled = arguments.names or [name for name in recipes if (arguments.output / name / CARD).is_file()]
    if arguments.cards:
        for name in bundled:
            write_card_of(name, output=arguments.output)
        return 0
    if arguments.add_scores:
        for name in bundled:
            added = add_scores(name, arguments.metrics, arguments.output)
            print(f"{name}: {', '.join(added) or 'has all scores'}", flush=True)
        return 0
    absent = 0
    for name in arguments.names or recipes:
        if arguments.new and (arguments.output / name / "config.json").is_file():
            continue
        recipe = recipes[name]
        try:
            if arguments.train and not arguments.source:
                try:
                    recipe.find(arguments.runs)
                except NotTrained:
                    train(recipe, arguments.runs)
            trained = recipe.read(arguments.source) if arguments.source else recipe.find(arguments.runs)
        except NotTrained as error:
            print(f"{name}: {error}", file=sys.stderr)
            absent += 1
            continue
        scores = ship(name, trained, arguments.output, arguments.metrics, *arguments.samples, arguments.repeats)
        size = sum(path.stat().st_size for path in (arguments.output / name).rglob("*") if path.is_file())
        first = next((f"{score} {value:.3f}, " for score, value in scores.items()), "")
        print(f"{name}: {first}{size / 1e6:.2f} MB", flush=True)
    return int(absent > 0)


if __name__ == "__main__":
    raise SystemExit(main())
