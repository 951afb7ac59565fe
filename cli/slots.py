"""``unknot slots``: the experiments of the chapter "Learning About Multiple Objects" on any checkpoint."""

import argparse

from unknot.cli.parsing import Commands, command


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot slots``."""
    parser = command(
        commands,
        "slots",
        "the Slot Attention chapter's experiments on saved set predictors",
        "unknot slots ap runs/slot_set_scenes/version_0/model runs/slot_mlp_scenes/version_0/model",
        "unknot slots attention runs/slot_set_scenes/version_0/model --output pictures",
    )
    experiments = parser.add_subparsers(dest="experiment", required=True, metavar="experiment")
    for name, summary, span in (
        ("ap", "average precision at distance thresholds, one row for each checkpoint", None),
        ("iterations", "average precision by the number of iterations at test time", "3 to 7"),
        ("objects", "average precision on scenes of exactly N objects, with N slots", "6 to 10"),
        ("attention", "adjusted Rand index of what slots attend to", None),
    ):
        experiment = command(
            experiments,
            name,
            summary,
            f"unknot slots {name} runs/slot_set_scenes/version_0/model --output pictures",
            f"unknot slots {name} my/model --data CLEVR_v1.0" + (" --redraw" if name == "attention" else ""),
        )
        experiment.add_argument("refs", nargs="+", metavar="ref", help="saved models, as for evaluate")
        experiment.add_argument(
            "--data",
            default="clevr_scenes",
            metavar="NAME|FOLDER",
            help="clevr_scenes to draw new scenes, or a folder of CLEVR (default: clevr_scenes)",
        )
        experiment.add_argument(
            "--split", choices=["train", "val"], default="val", help="split of the folder (default: val)"
        )
        experiment.add_argument("--redraw", action="store_true", help="render the layouts of the folder, with masks")
        experiment.add_argument(
            "--images", type=int, default=512, metavar="N", help="maximum number of scenes (default: 512)"
        )
        experiment.add_argument("--draws", type=int, default=1, metavar="N", help="draws of initial slots (default: 1)")
        experiment.add_argument("--seed", type=int, default=0, help="seed of scenes and slots (default: 0)")
        experiment.add_argument("--output", metavar="FOLDER", help="folder for pictures and a JSON file")
        if name != "objects":
            experiment.add_argument(
                "--most", type=int, default=10, metavar="N", help="maximum number of objects of a scene (default: 10)"
            )
        if span:
            experiment.add_argument("--first", type=int, metavar="N", help=f"from here (default: {span})")
            experiment.add_argument("--last", type=int, metavar="N", help="to here")
    parser.set_defaults(run=slots_command)


def slots_command(arguments: argparse.Namespace) -> int:
    """Run one of the experiments."""
    from unknot.cli.slot_experiments import run_experiment

    return run_experiment(arguments)
