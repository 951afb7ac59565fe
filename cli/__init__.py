"""The ``unknot`` command. Help must answer at once, so nothing here imports torch before it has to."""

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence

from unknot import configs

RUN_COMMANDS = {
    "fit": "train a model",
    "validate": "losses of a checkpoint on held-out draws",
    "test": "the same, logged as test/...",
    "predict": "write the codes of held-out draws",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors that a user can mend are one line, without a traceback."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if os.environ.get("UNKNOT_DEBUG"):
        return _dispatch(argv)
    try:
        return _dispatch(argv)
    except (ValueError, OSError, FloatingPointError) as error:
        message = " ".join(str(error).split())
        print(f"unknot: error: {message} (UNKNOT_DEBUG=1 shows where)", file=sys.stderr)
        return 1


def _dispatch(argv: list[str]) -> int:
    parser = _parser()
    if argv and argv[0] in RUN_COMMANDS and not {"-h", "--help"} & set(argv[1:]):
        # The modules of the zoo must be of the Lightning whose command line this is, here and in child processes.
        os.environ["UNKNOT_LIGHTNING"] = "pytorch_lightning"
        from unknot.cli.run import run

        return run(argv)
    arguments = parser.parse_args(argv)
    if arguments.command == "evaluate":
        from unknot.cli.evaluate import evaluate_command

        return evaluate_command(arguments)
    if arguments.command == "data":
        from unknot.cli.data import data_command

        return data_command(arguments)
    if arguments.command == "demo":
        from unknot.cli.demo import demo_command

        return demo_command(arguments)
    parser.print_help()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="unknot",
        description="Representations with structure: train, score and look at models that disentangle.",
        epilog=_examples(
            "unknot demo                                train a small model for a minute, score it, draw it",
            "unknot fit --config beta_vae_dsprites      train with a shipped configuration",
            "unknot evaluate runs/beta_vae_dsprites/version_0/model",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")

    for name, summary in RUN_COMMANDS.items():
        command = _command(commands, name, summary, *_run_examples(name))
        command.description = (
            f"{summary[0].upper()}{summary[1:]}, by LightningCLI: every argument of the model, the data\n"
            "and the Trainer can be set in a YAML file or as --key.sub_key value."
        )
        command.add_argument(
            "-c", "--config", metavar="NAME|PATH", help="a shipped configuration or a YAML file; repeat to override"
        )
        command.add_argument("--model.KEY", metavar="VALUE", help="an argument of the model, e.g. --model.beta 8")
        command.add_argument("--data.KEY", metavar="VALUE", help="an argument of the data, e.g. --data.batch_size 32")
        command.add_argument(
            "--trainer.KEY", metavar="VALUE", help="an argument of the Trainer, e.g. --trainer.max_steps 20000"
        )
        command.add_argument("--seed_everything", metavar="SEED", help="of weights, noise and data")
        if name == "fit":
            command.add_argument("--resume", metavar="RUN", help="continue a run from its folder, exactly")
            command.add_argument(
                "--checkpoint_every", metavar="STEPS", help="between saves of last.ckpt (default: 1000)"
            )
        command.add_argument("--ckpt_path", metavar="FILE", help="start from this Lightning checkpoint")
        command.add_argument("--print_config", action="store_true", help="show the whole configuration and stop")
        command.add_argument("--help-all", action="store_true", help="show every argument of the Trainer too")

    evaluate = _command(
        commands,
        "evaluate",
        "score a saved model",
        "unknot evaluate runs/beta_vae_dsprites/version_0/model",
        "unknot evaluate my/model --metrics mig dci --repeats 3 --json scores.json --pictures scores",
    )
    evaluate.add_argument("ref", help="a folder with config.json and model.safetensors")
    evaluate.add_argument("--dataset", help="data set to score on (default: the one it was trained on)")
    evaluate.add_argument(
        "--metrics",
        nargs="+",
        default=["mig", "dci", "sap", "modularity", "explicitness", "irs", "total_correlation"],
        metavar="NAME",
        help="names of scores, or all; interventional and downstream ones take minutes (default: %(default)s)",
    )
    evaluate.add_argument(
        "--num-train", type=int, default=10_000, metavar="N", help="samples to fit on (default: 10000)"
    )
    evaluate.add_argument("--num-test", type=int, default=5_000, metavar="N", help="samples to test on (default: 5000)")
    evaluate.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    evaluate.add_argument("--repeats", type=int, default=1, help="draws to average over (default: 1)")
    evaluate.add_argument("--json", metavar="FILE", help="also write the scores, with details, to a file")
    evaluate.add_argument("--pictures", metavar="FOLDER", help="draw the factor-code matrices there")

    data = _command(
        commands,
        "data",
        "list data sets, prepare one, draw one",
        "unknot data list",
        "unknot data prepare shapes3d",
        "unknot data show dsprites --out dsprites.png",
    )
    actions = data.add_subparsers(dest="action", required=True, metavar="action")
    _command(actions, "list", "size, factors, licence and state of every data set", "unknot data list")
    prepare = _command(
        actions, "prepare", "draw, download or convert a data set now", "unknot data prepare color_dsprites"
    )
    prepare.add_argument("name", help="a name from `unknot data list`")
    prepare.add_argument("--check", action="store_true", help="read all of a prepared file to see that it is intact")
    show = _command(
        actions,
        "show",
        "draw samples and one traversal per factor",
        "unknot data show dsprites",
        "unknot data show shapes3d --out pictures/shapes3d.png --seed 1",
    )
    show.add_argument("name", help="a name from `unknot data list`")
    show.add_argument("--out", metavar="PNG", help="where to write (default: NAME.png)")
    show.add_argument("--seed", type=int, default=0, help="of the samples (default: 0)")

    demo = _command(
        commands,
        "demo",
        "train a small β-VAE for about a minute, score it and draw it",
        "unknot demo",
        "unknot demo --steps 2000 --output /tmp/demo",
    )
    demo.add_argument("--steps", type=int, default=1000, help="training steps (default: 1000)")
    demo.add_argument("--output", default="unknot-demo", metavar="FOLDER", help="where to write (default: unknot-demo)")
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str, *examples: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_examples(*examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _run_examples(name: str) -> list[str]:
    if name == "fit":
        return [
            "unknot fit --config beta_vae_dsprites",
            "unknot fit --config beta_vae_dsprites --model.beta 8 --seed_everything 1",
            "unknot fit -c beta_vae_dsprites --data.dataset ColorDSprites --model.image_shape [3,64,64]",
            "unknot fit --resume runs/beta_vae_dsprites/version_0",
            "",
            f"shipped configurations: {', '.join(configs.names())}",
        ]
    return [
        f"unknot {name} --config runs/beta_vae_dsprites/version_0/config.yaml "
        "--ckpt_path runs/beta_vae_dsprites/version_0/checkpoints/last.ckpt"
    ]


def _examples(*lines: str) -> str:
    return "examples:\n" + textwrap.indent("\n".join(lines), "  ")
