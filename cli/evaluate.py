"""``unknot evaluate``."""

import argparse
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unknot.cli.parsing import Commands, command

if TYPE_CHECKING:
    from unknot.datamodules import GroundTruthDataset, ImageDataModule
    from unknot.training import RunFolder

METRICS_HELP = (
    "names of scores, or of groups: default, all, disentanglement, downstream, unsupervised; interventional and "
    "downstream ones take minutes (default: %(default)s)"
)


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot evaluate``."""
    parser = command(
        commands,
        "evaluate",
        "score a saved model",
        "unknot evaluate runs/beta_vae_dsprites/version_0",
        "unknot evaluate my/model --metrics mig dci --repeats 3 --json scores.json --pictures scores",
        "unknot evaluate my/model --images photos --labels factors.csv",
    )
    parser.add_argument(
        "ref", help="a run, which stores the scores; a saved model; a bundled checkpoint; USER/REPO[@REVISION]"
    )
    parser.add_argument("--dataset", help="data set to score on (default: the training data set)")
    parser.add_argument("--images", metavar="FOLDER", help="score on your own images instead, with --labels")
    parser.add_argument("--labels", metavar="CSV", help="table of their factors, with file names in the first column")
    parser.add_argument(
        "--val-fraction", type=float, default=0.1, metavar="X", help="share of them to test on (default: 0.1)"
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        default=["default"],
        metavar="NAME",
        help=METRICS_HELP,
    )
    parser.add_argument("--num-train", type=int, default=10_000, metavar="N", help="samples to fit on (default: 10000)")
    parser.add_argument("--num-test", type=int, default=5_000, metavar="N", help="samples to test on (default: 5000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples (default: 0)")
    parser.add_argument("--repeats", type=int, default=1, help="repetitions to average over (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="also write the scores, with details, to a file")
    parser.add_argument("--pictures", metavar="FOLDER", help="folder for plots of the factor-code matrices")
    parser.set_defaults(run=evaluate_command)


def evaluate_command(arguments: argparse.Namespace) -> int:
    """Load a model, score it and print a table; write JSON and plots if requested."""
    from unknot.hub import load
    from unknot.machine import keep_freed_memory
    from unknot.metrics import evaluate

    keep_freed_memory()
    run = _run(arguments)
    model = load(run.model if run else arguments.ref)
    dataset = _data(arguments, model, run)
    start = time.perf_counter()
    scores = evaluate(
        model,
        dataset,
        arguments.metrics,
        arguments.num_train,
        arguments.num_test,
        arguments.seed,
        arguments.repeats,
        pictures=arguments.pictures,
    )
    last = arguments.seed + arguments.repeats - 1
    seeds = f"seed {arguments.seed}" + (f" to {last}" if arguments.repeats > 1 else "")
    print(
        f"{type(model).__name__} from {arguments.ref} on {scores.protocol['dataset']}, {seeds}, "
        f"{scores.protocol['num_train']:,} + {scores.protocol['num_test']:,} samples, "
        f"{time.perf_counter() - start:.1f} s"
    )
    print(textwrap.indent(str(scores), "  "))
    if run:
        run.add_scores(scores)
        print(f"The scores are stored in {run.path}.")
    if arguments.json:
        print(f"All scores, with those of each factor, are in {scores.write(arguments.json)}.")
    if arguments.pictures:
        print(f"Pictures are in {arguments.pictures}.")
    return 0


def _run(arguments: argparse.Namespace) -> "RunFolder | None":
    """Return the run to score, from its folder or that of its model."""
    from unknot.training import RunFolder

    path = Path(arguments.ref)
    run = next((run for run in (RunFolder(path), RunFolder(path.parent)) if run.exists()), None)
    if run and path.resolve() not in (run.path.resolve(), run.model.resolve()):
        run = None
    if arguments.json and RunFolder.owner_of(arguments.json):
        raise ValueError(f"{arguments.json} belongs to a run, which stores its scores itself: leave out --json.")
    return run


def _data(arguments: argparse.Namespace, model: Any, run: "RunFolder | None") -> "GroundTruthDataset | ImageDataModule":
    """Return the data given by the options, or else the data set of the model or the run."""
    from unknot.datamodules import ImageDataModule, find_dataset

    if arguments.images or arguments.labels:
        if not (arguments.images and arguments.labels) or arguments.dataset:
            raise ValueError("Own images need both --images and --labels, and no --dataset.")
        channels, height, width = model.image_shape
        return ImageDataModule(
            arguments.images,
            image_size=(height, width),
            grayscale=channels == 1,
            labels=arguments.labels,
            val_fraction=arguments.val_fraction,
        )
    name = arguments.dataset or model.trained_on
    if name is None and run is not None and (own := _own_images(run)) is not None:
        return own
    if name is None:
        raise ValueError(
            f"{arguments.ref} does not record its training data: add --dataset NAME (see `unknot data list`), or "
            "--images FOLDER --labels CSV."
        )
    try:
        return find_dataset(name)
    except ValueError as error:
        if arguments.dataset:
            raise
        raise ValueError(
            f"{arguments.ref} was trained on {name!r}, which is not an unknot data set: add --dataset NAME (see "
            "`unknot data list`), or --images FOLDER --labels CSV."
        ) from error


def _own_images(run: "RunFolder") -> "ImageDataModule | None":
    """Return the user's own labelled images that a run was trained on."""
    from unknot.datamodules import ImageDataModule

    part = run.settings().get("data", {})
    arguments: dict[str, Any] = part.get("init_args", {})
    if not str(part.get("class_path")).endswith(".ImageDataModule") or not arguments.get("labels"):
        return None
    return ImageDataModule(**arguments)
