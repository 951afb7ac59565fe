"""``unknot export``."""

import argparse

from unknot.cli.parsing import Commands, command


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot export``."""
    parser = command(
        commands,
        "export",
        "write a saved model as an ONNX file",
        "unknot export unknot/adagvae-dsprites model.onnx",
        "unknot export runs/beta_vae_dsprites/version_0/model decoder.onnx --part decoder",
    )
    parser.add_argument("ref", help="a bundled name, USER/REPO[@REVISION] of a hub, or a run folder or saved model")
    parser.add_argument("file", help="the ONNX file to write")
    parser.add_argument(
        "--part",
        choices=("encoder", "decoder"),
        default="encoder",
        help="encoder: images to mean and logvar, slots or sets; decoder: codes to images (default: %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.set_defaults(run=export_command)


def export_command(arguments: argparse.Namespace) -> int:
    """Load a model, write the file, and print the names of its inputs and outputs."""
    from pathlib import Path

    from unknot.hub import load
    from unknot.zoo.onnx import export_onnx, output_names

    path = Path(arguments.file)
    if path.exists() and not arguments.force:
        raise FileExistsError(f"{path} already exists. Choose another name, or add --force to overwrite it.")
    folder = Path(arguments.ref) / "model"
    model = load(folder if folder.is_dir() else arguments.ref)
    export_onnx(model, path, arguments.part)
    inputs, outputs = ("images", output_names(model)) if arguments.part == "encoder" else ("codes", ["images"])
    print(
        f"{path}: {type(model).__name__}, {arguments.part}, {inputs} to {' and '.join(outputs)}, batches of any size, "
        f"{path.stat().st_size / 1e6:.1f} MB"
    )
    return 0
