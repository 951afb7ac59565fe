"""``unknot fit | validate | test | predict``: what their help says; LightningCLI parses and runs them."""

import os
from collections.abc import Sequence

from unknot import configs
from unknot.cli import own
from unknot.cli.parsing import Commands, command

RUNS = {
    "fit": "train a model",
    "validate": "losses of a checkpoint on held-out draws",
    "test": "the same, logged as test/...",
    "predict": "write the codes of held-out draws",
}
FIT_EXAMPLES = (
    "unknot fit --config beta_vae_dsprites",
    "unknot fit --config beta_vae_dsprites --model.beta 8 --seed_everything 1",
    "unknot fit -c beta_vae_dsprites --data.dataset ColorDSprites      # images say their shape themselves",
    "unknot fit -c beta_vae_dsprites --optimizer AdamW --optimizer.lr 1e-3 --lr_scheduler ExponentialLR \\",
    "           --lr_scheduler.gamma 0.9999",
    "unknot fit --import mymodels --model MyVAE --data ImageDataModule --data.images photos",
    "unknot fit --config ada_gvae_dsprites --pretrained unknot/adagvae-dsprites --model.lr 1e-5",
    "unknot fit --resume runs/beta_vae_dsprites/version_0",
    "",
    f"shipped configurations: {', '.join(configs.names())}",
)


def add_to(commands: Commands) -> None:
    """The options of the four commands that one needs most; ``--help-all`` has the rest."""
    for name, summary in RUNS.items():
        run = "runs/beta_vae_dsprites/version_0"
        checkpoint = f"unknot {name} --config {run}/config.yaml --ckpt_path {run}/checkpoints/last.ckpt"
        parser = command(commands, name, summary, *(FIT_EXAMPLES if name == "fit" else [checkpoint]))
        parser.description = (
            f"{summary[0].upper()}{summary[1:]}, by LightningCLI: every argument of the model, the data\n"
            "and the Trainer can be set in a YAML file or as --key.sub_key value."
        )
        parser.add_argument(
            "-c", "--config", metavar="NAME|PATH", help="a shipped configuration or a YAML file; repeat to override"
        )
        parser.add_argument("--model.KEY", metavar="VALUE", help="an argument of the model, e.g. --model.beta 8")
        parser.add_argument("--data.KEY", metavar="VALUE", help="an argument of the data, e.g. --data.batch_size 32")
        parser.add_argument(
            "--trainer.KEY", metavar="VALUE", help="an argument of the Trainer, e.g. --trainer.max_steps 20000"
        )
        parser.add_argument(
            "--optimizer", metavar="NAME", help="of torch.optim, instead of Adam; --optimizer.KEY sets its arguments"
        )
        parser.add_argument(
            "--lr_scheduler", metavar="NAME", help="of torch.optim.lr_scheduler, moved every step; likewise"
        )
        parser.add_argument("--seed_everything", metavar="SEED", help="of weights, noise and data")
        if name == "fit":
            parser.add_argument("--resume", metavar="RUN", help="continue a run from its folder, exactly")
            parser.add_argument(
                "--checkpoint_every", metavar="STEPS", help="between saves of last.ckpt (default: 1000)"
            )
        parser.add_argument(own.FLAG, metavar="MODULE", help=own.HELP)
        parser.add_argument(
            "--pretrained",
            metavar="REF",
            help="start from the weights of a checkpoint (shipped, USER/REPO, folder)",
        )
        parser.add_argument("--ckpt_path", metavar="FILE", help="start from this Lightning checkpoint")
        parser.add_argument("--print_config", action="store_true", help="show the whole configuration and stop")
        parser.add_argument("--help-all", action="store_true", help="show every argument of the Trainer too")


def run_command(argv: list[str], imported: Sequence[str]) -> int:
    """Hand the words over to LightningCLI, with the modules that ``--import`` named."""
    # The modules of the zoo must be of the Lightning whose command line this is, here and in child processes.
    os.environ["UNKNOT_LIGHTNING"] = "pytorch_lightning"
    from unknot.cli.training import run

    return run(argv, imported)
