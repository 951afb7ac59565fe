"""``unknot demo``: the whole house in about a minute, without a download."""

import argparse
import logging
import time
from pathlib import Path

import torch

from unknot._lightning import pl
from unknot.cli.evaluate import print_scores
from unknot.cli.quiet import hush_lightning
from unknot.datamodules import DSprites, FactorDataModule
from unknot.metrics import evaluate
from unknot.zoo import BetaVAE
from unknot.zoo.pictures import draw_reconstructions, draw_traversals


def demo_command(arguments: argparse.Namespace) -> int:
    """Train, score, draw, save."""
    hush_lightning()
    for package in ("pytorch_lightning", "lightning.pytorch"):
        logging.getLogger(package).setLevel(logging.WARNING)
    output = Path(arguments.output)
    start = time.perf_counter()
    pl.seed_everything(0, verbose=False)
    dataset = DSprites()
    # Twenty times the learning rate of the studies: they train for hours, this for a minute.
    model = BetaVAE(beta=4.0, lr=2e-3)
    print(f"Training a β-VAE on dSprites for {arguments.steps} steps of 64 images.")
    trainer = pl.Trainer(
        max_steps=arguments.steps,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(model, datamodule=FactorDataModule(dataset))
    model.eval()
    trained = time.perf_counter() - start

    scores = evaluate(model, dataset, metrics=["mig", "dci", "modularity"])
    images = dataset.observe(dataset.factor_space.sample(64, torch.Generator().manual_seed(0)))
    pictures = [
        draw_traversals(model, images, output / "traversals.png"),
        draw_reconstructions(model, images[:10], output / "reconstructions.png"),
    ]
    folder = model.save_pretrained(output / "model")

    print(f"\nTrained in {trained:.0f} s. Scores on 10,000 fresh images (higher is better, at most 1):")
    print_scores(scores)
    print("\nLook at   " + "\n          ".join(str(picture) for picture in pictures))
    print(f"Load it   BetaVAE.from_pretrained({str(folder)!r})")
    print(f"Score it  unknot evaluate {folder}")
    print("Train it  unknot fit --config beta_vae_dsprites   (the study's 300,000 steps)")
    return 0
