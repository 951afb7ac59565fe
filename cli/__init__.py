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
    if arguments.command == "hub":
        from unknot.cli.hub import hub_command

        return hub_command(arguments)
    if arguments.command == "browse":
        from unknot.cli.browse import browse_command

        return browse_command(arguments)
    if arguments.command == "slots":
        from unknot.cli.slots import slots_command

        return slots_command(arguments)
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
            "unknot demo                                load a shipped model, score it, draw it",
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
    evaluate.add_argument("ref", help="a shipped name, USER/REPO[@REVISION] of a hub, or a folder of a saved model")
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

    _hub_parser(commands)

    browse = _command(
        commands,
        "browse",
        "look through trained checkpoints in a browser, and move their latents",
        "unknot browse",
        "unknot browse runs --no-open",
        "unknot browse runs --export checkpoints.html",
    )
    browse.add_argument("folders", nargs="*", metavar="FOLDER", help="searched for saved models and runs of fit")
    browse.add_argument("--endpoint", metavar="URL", help="of the hub (default: HF_ENDPOINT or the public one)")
    browse.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    browse.add_argument("--port", type=int, help="0 takes a free one (default: 8800, or a free one if it is taken)")
    browse.add_argument("--no-open", action="store_true", help="print the address and open no browser")
    browse.add_argument("--export", metavar="FILE", help="write the page as one HTML file instead")

    _slots_parser(commands)

    demo = _command(
        commands,
        "demo",
        "load a shipped Ada-GVAE, score it and draw it, in less than a minute",
        "unknot demo",
        "unknot demo --output /tmp/demo",
    )
    demo.add_argument("--output", default="unknot-demo", metavar="FOLDER", help="where to write (default: unknot-demo)")
    return parser


def _slots_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    slots = _command(
        commands,
        "slots",
        "the Slot Attention chapter's experiments on saved set predictors",
        "unknot slots ap runs/slot_set_scenes/version_0/model runs/slot_mlp_scenes/version_0/model",
        "unknot slots attention runs/slot_set_scenes/version_0/model --output pictures",
    )
    experiments = slots.add_subparsers(dest="experiment", required=True, metavar="experiment")
    for name, summary, span in (
        ("ap", "average precision at distance thresholds, one row for each checkpoint", None),
        ("iterations", "average precision by the number of iterations at test time", "3 to 7"),
        ("objects", "average precision on scenes of exactly N objects, with N slots", "6 to 10"),
        ("attention", "adjusted Rand index of what slots attend to", None),
    ):
        command = _command(
            experiments,
            name,
            summary,
            f"unknot slots {name} runs/slot_set_scenes/version_0/model --output pictures",
            f"unknot slots {name} my/model --data CLEVR_v1.0" + (" --redraw" if name == "attention" else ""),
        )
        command.add_argument("refs", nargs="+", metavar="ref", help="saved models, as for evaluate")
        command.add_argument(
            "--data",
            default="clevr_scenes",
            metavar="NAME|FOLDER",
            help="clevr_scenes draws new scenes; else a folder of CLEVR (default: clevr_scenes)",
        )
        command.add_argument("--split", choices=["train", "val"], default="val", help="of the folder (default: val)")
        command.add_argument("--redraw", action="store_true", help="draw the layouts of the folder, with masks")
        command.add_argument("--images", type=int, default=512, metavar="N", help="scenes at most (default: 512)")
        command.add_argument("--draws", type=int, default=1, metavar="N", help="of initial slots (default: 1)")
        command.add_argument("--seed", type=int, default=0, help="of scenes and slots (default: 0)")
        command.add_argument("--output", metavar="FOLDER", help="write pictures and a JSON file there")
        if span:
            command.add_argument("--first", type=int, metavar="N", help=f"from here (default: {span})")
            command.add_argument("--last", type=int, metavar="N", help="to here")


def _hub_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    hub = _command(
        commands,
        "hub",
        "list, publish and fetch checkpoints, or serve a hub of your own",
        "unknot hub list --dataset dsprites --sort dci",
        "unknot hub pull me/my-model",
        "unknot hub push runs/beta_vae_dsprites/version_0 me/my-model --scores scores.json",
        "unknot hub serve lab-hub",
    )
    actions = hub.add_subparsers(dest="action", required=True, metavar="action")

    listing = _command(
        actions,
        "list",
        "shipped, cached and remote checkpoints",
        "unknot hub list --dataset dsprites --method AdaGVAE --sort dci",
        "unknot hub list --min mig=0.3 --json",
        "HF_HUB_OFFLINE=1 unknot hub list",
    )
    listing.add_argument("--dataset", metavar="NAME", help="trained on this data set")
    listing.add_argument("--method", metavar="NAME", help="of this model, e.g. AdaGVAE")
    listing.add_argument("--family", metavar="NAME", help="of this family, e.g. weak")
    listing.add_argument("--search", metavar="TEXT", help="part of the name")
    listing.add_argument("--min", action="append", default=[], metavar="SCORE=X", help="at least; may be repeated")
    listing.add_argument("--max", action="append", default=[], metavar="SCORE=X", help="at most; may be repeated")
    listing.add_argument(
        "--sort", metavar="KEY", help="a score, modified, ref or bytes; -KEY (as --sort=-KEY) turns it"
    )
    listing.add_argument("--limit", type=int, metavar="N", help="how many at most")
    listing.add_argument("--source", action="append", choices=["shipped", "cached", "remote"], help="may be repeated")
    listing.add_argument("--json", action="store_true", help="as JSON instead of a table")

    show = _command(actions, "show", "card, scores and files of a checkpoint", "unknot hub show me/my-model@v1 --json")
    show.add_argument("ref", help="a shipped name, USER/REPO[@REVISION], or a folder")
    show.add_argument("--json", action="store_true", help="as JSON")

    pull = _command(
        actions,
        "pull",
        "download a checkpoint, for use without a network",
        "unknot hub pull me/my-model",
        "unknot hub pull me/my-model@v1 models/mine",
    )
    pull.add_argument("ref", help="USER/REPO[@REVISION], or a shipped name")
    pull.add_argument("folder", nargs="?", help="where to put it (default: the client's cache)")

    push = _command(
        actions,
        "push",
        "publish a model with its card, scores and pictures",
        "unknot hub push runs/beta_vae_dsprites/version_0 me/my-model --scores scores.json",
        "unknot hub push my-model me/my-model --public --dry-run",
    )
    push.add_argument("source", help="a run's folder, or a folder of a saved model, or any name that loads")
    push.add_argument("repo", help="USER/NAME")
    push.add_argument("--scores", metavar="FILE", help="JSON that `unknot evaluate --json` wrote")
    push.add_argument("--seed", type=int, help="of the training (default: the run's)")
    push.add_argument("--train-command", metavar="TEXT", help="how it was trained (default: the run's)")
    push.add_argument("--license", metavar="ID", help="of the weights, e.g. apache-2.0")
    push.add_argument("--message", metavar="TEXT", help="of the commit")
    push.add_argument("--force", action="store_true", help="overwrite what others changed in the meantime")

    shipped = _command(
        actions,
        "publish-shipped",
        "publish all checkpoints of the package",
        "unknot hub publish-shipped my-lab --dry-run",
    )
    shipped.add_argument("organisation", help="USER or organisation to publish them under")
    for command in (push, shipped):
        command.add_argument("--public", action="store_true", help="make a new repository public (default: private)")
        command.add_argument("--dry-run", action="store_true", help="say what would be sent, and send nothing")
    for command in (listing, show, pull, push, shipped):
        command.add_argument("--endpoint", metavar="URL", help="of the hub (default: HF_ENDPOINT or the public one)")

    serve = _command(
        actions,
        "serve",
        "serve a folder as a hub for unknot and any huggingface_hub client",
        "unknot hub serve lab-hub",
        "unknot hub serve lab-hub --host 0.0.0.0 --port 8000 --tokens tokens.txt",
    )
    serve.add_argument("folder", help="where repositories are kept; made if it does not exist")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    serve.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
    serve.add_argument(
        "--tokens", metavar="FILE", help="a line `USER TOKEN` for each user (default: made in the folder)"
    )
    serve.add_argument("--max-file", type=int, default=2048, metavar="MB", help="size of a file (default: 2048)")


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
