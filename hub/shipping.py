"""The checkpoints that come with the package: how each was trained, and the way from a run to its folder.

python -m unknot.hub.shipping adagvae-dsprites                       # train, score, draw: an hour or more
python -m unknot.hub.shipping adagvae-dsprites --run runs/NAME/version_0   # score and draw what was trained
"""

import argparse
import csv
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import yaml

from unknot.datamodules import DATASETS
from unknot.hub.describing import Facts, check_scores
from unknot.hub.loading import load
from unknot.hub.publishing import assemble
from unknot.hub.refs import ORGANISATION, SHIPPED
from unknot.metrics import Scores, evaluate

# Five times the studies' learning rate and a fifteenth of their steps; all else is theirs.
SHORT = "--model.lr 5e-4 --trainer.max_steps 20000"
COMMANDS = {
    "betavae-dsprites": f"unknot fit --config beta_vae_dsprites {SHORT}",
    "betatcvae-dsprites": f"unknot fit --config beta_tcvae_dsprites {SHORT}",
    "adagvae-dsprites": f"unknot fit --config ada_gvae_dsprites --data.k 1 {SHORT}",
}
"""What trained each shipped checkpoint."""
METRICS = ("mig", "dci", "sap", "modularity", "explicitness", "irs", "total_correlation")
LICENSE = "apache-2.0"


def train(name: str, folder: Path, options: Sequence[str] = ()) -> Path:
    """Train a shipped checkpoint anew and give the folder of the run."""
    command = [sys.executable, "-m", "unknot.cli", *shlex.split(COMMANDS[name])[1:], *options]
    subprocess.run([*command, "--trainer.default_root_dir", str(folder)], check=True)
    return next(folder.glob("*/version_0"))


def ship(
    name: str,
    runs: Sequence[Path],
    output: Path = SHIPPED,
    num_train: int = 10_000,
    num_test: int = 5_000,
    repeats: int = 3,
    metrics: Sequence[str] = METRICS,
) -> Scores:
    """Score and draw a trained model, write it in half precision as a checkpoint to ship, and give its scores.

    Args:
        name: one of :data:`COMMANDS`.
        runs: folder of the run; several, in order, where it was interrupted and resumed.
        output: parent of the folder to write.
        num_train: samples that the scores are fitted on.
        num_test: samples that they are tested on.
        repeats: draws to average over.
        metrics: to evaluate.
    """
    model = load(runs[-1] / "model")
    assert model.trained_on is not None
    with torch.no_grad():  # so that the scores are those of the weights that are shipped
        for tensor in model.state_dict().values():
            tensor.copy_(tensor.half())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        dataset = DATASETS[model.trained_on]()
        scores = evaluate(model, dataset, metrics, num_train, num_test, repeats=repeats, pictures=folder)
        extras = {f"pictures/{path.name}": path for path in sorted(folder.glob("*.png"))}
        extras["training.yaml"] = _settings(runs[-1] / "config.yaml", folder / "training.yaml")
        extras["training.csv"] = _history([run / "metrics.csv" for run in runs], folder / "training.csv")
        seed = yaml.safe_load(extras["training.yaml"].read_text())["seed_everything"]
        facts = Facts(check_scores(scores), seed, COMMANDS[name], LICENSE)
        assemble(model, output / name, f"{ORGANISATION}/{name}", facts, extras=extras, dtype=torch.float16)
    return scores


def _settings(source: Path, target: Path) -> Path:
    """The configuration of a run without what belongs to the machine that it ran on."""
    settings = yaml.safe_load(source.read_text(encoding="utf-8"))
    settings["ckpt_path"] = None
    settings["trainer"]["default_root_dir"] = None
    target.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return target


def _history(sources: Sequence[Path], target: Path) -> Path:
    """What was logged, of all parts of a run; where a part was resumed from an earlier step, its rows hold."""
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


def main(argv: Sequence[str] | None = None) -> int:
    """The command that the module's docstring shows."""
    parser = argparse.ArgumentParser(prog="python -m unknot.hub.shipping", description="Make a shipped checkpoint.")
    parser.add_argument("name", choices=sorted(COMMANDS))
    parser.add_argument("--run", nargs="+", type=Path, metavar="FOLDER", help="trained already; its parts in order")
    parser.add_argument("--output", type=Path, default=SHIPPED, metavar="FOLDER", help="(default: %(default)s)")
    arguments = parser.parse_args(argv)
    runs = arguments.run or [train(arguments.name, Path("runs") / arguments.name)]
    print(ship(arguments.name, runs, arguments.output))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
