"""``unknot demo``: load a bundled model, score it and draw it, in less than a minute and without downloads."""

import argparse
import textwrap
import time
from pathlib import Path

from unknot.cli.parsing import Commands, command

REF = "unknot/adagvae-dsprites"


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot demo``."""
    parser = command(
        commands,
        "demo",
        "load a bundled Ada-GVAE, score it and draw it, in less than a minute",
        "unknot demo",
        "unknot demo --output /tmp/demo",
    )
    parser.add_argument(
        "--output", default="unknot-demo", metavar="FOLDER", help="folder for the pictures (default: unknot-demo)"
    )
    parser.set_defaults(run=demo_command)


def demo_command(arguments: argparse.Namespace) -> int:
    """Load, score and draw a bundled model."""
    import torch

    from unknot.datamodules import find_dataset
    from unknot.hub import load
    from unknot.metrics import evaluate
    from unknot.zoo.pictures import draw_reconstructions, draw_traversals

    start = time.perf_counter()
    output = Path(arguments.output)
    model = load(REF)
    print(f"Loaded {type(model).__name__} from {REF}; scoring it on dSprites.")
    dataset = find_dataset("dsprites")
    scores = evaluate(model, dataset, metrics=["mig", "dci", "modularity"], pictures=output)
    images = dataset.observe(dataset.factor_space.sample(64, torch.Generator().manual_seed(0)))
    pictures = [
        draw_traversals(model, images, output / "traversals.png"),
        draw_reconstructions(model, images[:10], output / "reconstructions.png"),
        output / "factor_code.png",
    ]
    print("Scores on 10,000 fresh images (higher is better, at most 1):")
    print(textwrap.indent(str(scores), "  "))
    print(f"\nDone in {time.perf_counter() - start:.0f} s.")
    print("Look at   " + "\n          ".join(str(picture) for picture in pictures))
    print(f"Load it   {type(model).__name__}.from_pretrained({REF!r})")
    print("Browse    unknot browse   (all checkpoints, with sliders for their latents)")
    print("Train     unknot fit --config ada_gvae_dsprites")
    return 0
