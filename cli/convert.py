"""``unknot convert``."""

import argparse

from unknot.cli.parsing import Commands, command


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot convert``."""
    parser = command(
        commands,
        "convert",
        "save weights of another library as a model of the zoo",
        "unknot convert --from disent weights.pt my_model --beta 4",
        "unknot convert --from pythae runs/BetaVAE_training/final_model my_model",
    )
    parser.add_argument("--from", dest="library", required=True, choices=("disent", "pythae"), help="the library")
    parser.add_argument("file", help="a state dict or Lightning checkpoint of disent; a folder that pythae saved")
    parser.add_argument("folder", help="where to save the model")
    parser.add_argument(
        "--model", metavar="NAME", help="class of the zoo (default: the one recorded by pythae, or BetaVAE)"
    )
    parser.add_argument("--beta", type=float, metavar="X", help="beta of the original training, to continue training")
    parser.add_argument("--likelihood", metavar="NAME", help="bernoulli for models trained with cross-entropy")
    parser.add_argument("--image-shape", type=int, nargs=3, metavar=("C", "H", "W"), help="for dense layers of disent")
    parser.set_defaults(run=convert_command)


def convert_command(arguments: argparse.Namespace) -> int:
    """Read the weights, save the model, and print a summary."""
    from pathlib import Path

    from unknot.zoo.conversion import convert

    folder = Path(arguments.folder)
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise FileExistsError(f"{folder} already exists. Choose another folder, or delete it.")
    given = {name: getattr(arguments, name) for name in ("beta", "likelihood", "image_shape")}
    chosen = {name: value for name, value in given.items() if value is not None}
    model = convert(arguments.library, arguments.file, arguments.model, **chosen)
    model.save_pretrained(folder)
    channels, height, width = model.image_shape
    print(
        f"{folder}: {type(model).__name__} with {model.hparams['latent_dim']} latents, images of "
        f"{channels} x {height} x {width}. Load it with unknot.hub.load({str(folder)!r})."
    )
    return 0
