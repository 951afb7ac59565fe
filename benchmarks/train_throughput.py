"""How much of a bare PyTorch loop's speed `trainer.fit` keeps, and how long it waits for data.

Both sides train the same β-VAE with the same optimiser on batches of 64. The bare loop has its batches in memory as
finished float tensors; `trainer.fit` draws them from the memory-mapped grid as a user's run does, logs to CSV and
checks its losses. Rounds alternate, so that a change of the machine's speed meets both. Both run in one process, where
`trainer.fit` has told glibc to keep freed memory; a third figure is the bare loop in a process of its own, without.
Run it with nothing else running.
"""

import argparse
import itertools
import logging
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

import torch
from pytorch_lightning.loggers import CSVLogger

from unknot._lightning import pl
from unknot._memory import keep_freed_memory
from unknot.datamodules import DSprites, FactorDataModule
from unknot.zoo import BetaVAE

WARM_UP = 10


class TimedData(FactorDataModule):
    """Counts the seconds that drawing takes; there are no workers, so training waits for all of them."""

    waited = 0.0

    def draw(self, generator: torch.Generator) -> Any:
        """A batch, timed."""
        start = time.perf_counter()
        batch = super().draw(generator)
        self.waited += time.perf_counter() - start
        return batch


class Stopwatch(pl.Callback):
    """Times the steps after the warm-up, from the start of one batch to the start of another."""

    def __init__(self, data: TimedData) -> None:
        self.data = data

    def on_train_batch_start(self, trainer: Any, model: Any, batch: Any, batch_idx: int) -> None:
        """Start after the warm-up."""
        if batch_idx == WARM_UP:
            self.start, self.data.waited = time.perf_counter(), 0.0
        self.stop, self.waited = time.perf_counter(), self.data.waited


def bare_loop(batches: list[torch.Tensor], steps: int) -> float:
    """Seconds per step of a plain loop: encode, sample, decode, two losses, Adam."""
    torch.manual_seed(0)
    model = BetaVAE()
    encoder, decoder = model.encoder, model.decoder
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step, x in enumerate(itertools.islice(itertools.cycle(batches), steps + WARM_UP)):
        if step == WARM_UP:
            start = time.perf_counter()
        mean, logvar = encoder(x)
        logits = decoder(mean + torch.exp(logvar / 2) * torch.randn_like(mean))
        reconstruction = torch.nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        kl = 0.5 * (mean**2 + logvar.exp() - logvar - 1).sum(1).mean()
        optimizer.zero_grad()
        (reconstruction + 4 * kl).backward()
        optimizer.step()
    return (time.perf_counter() - start) / steps


def trainer_fit(dataset: DSprites, steps: int) -> tuple[float, float]:
    """Seconds per step of `trainer.fit`, and the share of them spent on data."""
    torch.manual_seed(0)
    data = TimedData(dataset)
    watch = Stopwatch(data)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_steps=steps + WARM_UP + 1,
            callbacks=[watch],
            logger=CSVLogger(folder),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
            accelerator="cpu",
        )
        trainer.fit(BetaVAE(), datamodule=data)
    seconds = watch.stop - watch.start
    return seconds / steps, watch.waited / seconds


def main() -> None:
    """Alternate, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150, help="timed steps per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="only the bare loop, in seconds per step")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    dataset = DSprites()
    generator = torch.Generator().manual_seed(0)
    batches = [dataset.observe(dataset.factor_space.sample(64, generator)) for _ in range(50)]
    if arguments.plain:
        print(bare_loop(batches, arguments.steps))
        return
    keep_freed_memory()
    command = [sys.executable, __file__, "--plain", "--steps", str(arguments.steps)]
    ratios, plain_ratios, shares = [], [], []
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, batch 64")
    for number in range(arguments.rounds):
        bare = bare_loop(batches, arguments.steps)
        fit, share = trainer_fit(dataset, arguments.steps)
        plain = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        ratios.append(bare / fit)
        plain_ratios.append(plain / fit)
        shares.append(share)
        print(
            f"round {number}: bare {1 / bare:.2f} steps/s, trainer.fit {1 / fit:.2f} steps/s, ratio {bare / fit:.3f}; "
            f"bare in its own process {1 / plain:.2f} steps/s, ratio {plain / fit:.3f}"
        )
    print(f"trainer.fit against the bare loop, median of {arguments.rounds}: {statistics.median(ratios):.3f}")
    print(f"trainer.fit against the bare loop in its own process: {statistics.median(plain_ratios):.3f}")
    print(f"share of time waiting for data, median: {100 * statistics.median(shares):.2f} %")


if __name__ == "__main__":
    main()
