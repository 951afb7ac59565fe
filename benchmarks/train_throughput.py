"""How fast training is beside a bare PyTorch loop, for every model, and how long it waits for data.

Measured are `trainer.fit` alone and `unknot.training.fit`, which keeps the folder of a run as well, as `unknot fit` and
the jobs of studies do.

Both sides train the same networks with the same objective on batches of 64. The bare loop is written out below as one
would write it, in the default layout, with `torch.optim.Adam`, without checks or logging, and has its batches in memory
as finished float tensors; the others draw them as a user's run does, log to CSV and check their losses. Times are
of the processor, so that what else runs matters less. Rounds alternate, so that a change of the machine's speed meets
both. Both run in one process, where glibc keeps freed memory, as `unknot fit` has it; for the β-VAE a third figure is
the bare loop in a process of its own, without.
"""

import argparse
import contextlib
import io
import itertools
import logging
import math
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from common import Row, compare, measured, run
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from unknot.datamodules import DSprites, FactorDataModule, LabelledDataModule, PairDataModule, StreamDataModule
from unknot.lightning import pl
from unknot.machine import keep_freed_memory
from unknot.training import fit
from unknot.zoo import MODELS

WARM_UP = 5


# The bare loops: each returns the loss of the model and, for FactorVAE, that of its discriminator.


def elbo(model: Any, x: Tensor, mean: Tensor, logvar: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reconstruction loss, KL and codes."""
    z = mean + torch.exp(logvar / 2) * torch.randn_like(mean)
    reconstruction = F.binary_cross_entropy_with_logits(model.decoder(z), x, reduction="sum") / len(x)
    return reconstruction, 0.5 * (mean**2 + logvar.exp() - logvar - 1).sum(1).mean(), z


def beta_vae(model: Any, x: Tensor) -> tuple[Tensor, ...]:
    """β-VAE."""
    reconstruction, kl, _ = elbo(model, x, *model.encoder(x))
    return (reconstruction + 4 * kl,)


def annealed_vae(model: Any, x: Tensor) -> tuple[Tensor, ...]:
    """AnnealedVAE."""
    reconstruction, kl, _ = elbo(model, x, *model.encoder(x))
    return (reconstruction + 1000 * (kl - 0.1).abs(),)


def factor_vae(model: Any, x: Tensor) -> tuple[Tensor, ...]:
    """FactorVAE: one pass through the discriminator serves both losses."""
    reconstruction, kl, z = elbo(model, x, *model.encoder(x))
    shuffled = z.detach().gather(0, torch.rand_like(z).argsort(0))
    logits = model.discriminator(torch.cat([z, shuffled]))
    joint = logits[: len(z)]
    classes = torch.arange(2).repeat_interleave(len(z))
    return reconstruction + kl + 30 * (joint[:, 0] - joint[:, 1]).mean(), F.cross_entropy(logits, classes)


def beta_tcvae(model: Any, x: Tensor) -> tuple[Tensor, ...]:
    """β-TCVAE."""
    mean, logvar = model.encoder(x)
    reconstruction, kl, z = elbo(model, x, mean, logvar)
    log_q = -0.5 * ((z[:, None] - mean) ** 2 / logvar.exp() + logvar + math.log(2 * math.pi))
    total_correlation = (log_q.sum(2).logsumexp(1) - log_q.logsumexp(1).sum(1)).mean()
    return (reconstruction + kl + 5 * total_correlation,)


def dip_vae(model: Any, x: Tensor, sampled: bool = False) -> tuple[Tensor, ...]:
    """DIP-VAE-I and II."""
    mean, logvar = model.encoder(x)
    reconstruction, kl, _ = elbo(model, x, mean, logvar)
    c = torch.cov(mean.T, correction=0)
    c = c + torch.diag(logvar.exp().mean(0)) if sampled else c
    diagonal = c.diagonal()
    off = (c - torch.diag(diagonal)).square().sum()
    return (reconstruction + kl + 5 * off + (5 if sampled else 50) * (diagonal - 1).square().sum(),)


def labels_loss(model: Any, x: Tensor, labels: Tensor) -> Tensor:
    """R_s."""
    r = model.encoder(x)[0][:, : labels.shape[1]]
    return F.binary_cross_entropy_with_logits(r, labels, reduction="sum") / len(x)


def semi_supervised(base: Any) -> Any:
    """An unsupervised loop with R_s added."""

    def step(model: Any, x: Tensor, labelled: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        loss, *others = base(model, x)
        return loss + labels_loss(model, labelled, labels), *others

    return step


def supervised(model: Any, x: Tensor, labelled: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """The supervised baseline."""
    with torch.no_grad():
        mean, logvar = model.encoder(x)
    return (elbo(model, x, mean, logvar)[0] + labels_loss(model, labelled, labels),)


def weak(adaptive: bool, product: bool) -> Any:
    """The weakly-supervised models."""

    def step(model: Any, first: Tensor, second: Tensor, changed: Tensor) -> tuple[Tensor, ...]:
        x = torch.cat([first, second])
        mean, logvar = model.encoder(x)
        (m1, m2), (v1, v2) = mean.chunk(2), logvar.exp().chunk(2)
        if adaptive:
            delta = 0.5 * (v1 / v2 + (m2 - m1) ** 2 / v2 - 1 + (v2 / v1).log()).detach()
            shared = delta < 0.5 * (delta.amax(1, keepdim=True) + delta.amin(1, keepdim=True))
        else:
            shared = torch.arange(m1.shape[1]) != changed[:, None]
        variance = v1 * v2 / (v1 + v2) if product else (v1 + v2) / 2
        average = (m1 / v1 + m2 / v2) * variance if product else (m1 + m2) / 2
        mean = torch.cat([torch.where(shared, average, m) for m in (m1, m2)])
        logvar = torch.cat([torch.where(shared, variance, v) for v in (v1, v2)]).log()
        reconstruction, kl, _ = elbo(model, x, mean, logvar)
        return (reconstruction + kl,)

    return step


BARE = {
    "BetaVAE": beta_vae,
    "AnnealedVAE": annealed_vae,
    "FactorVAE": factor_vae,
    "BetaTCVAE": beta_tcvae,
    "DIPVAEI": dip_vae,
    "DIPVAEII": lambda model, x: dip_vae(model, x, sampled=True),
    "S2BetaVAE": semi_supervised(beta_vae),
    "S2BetaTCVAE": semi_supervised(beta_tcvae),
    "S2FactorVAE": semi_supervised(factor_vae),
    "S2DIPVAEI": semi_supervised(dip_vae),
    "SupervisedVAE": supervised,
    "GVAE": weak(adaptive=False, product=False),
    "MLVAE": weak(adaptive=False, product=True),
    "AdaGVAE": weak(adaptive=True, product=False),
    "AdaMLVAE": weak(adaptive=True, product=True),
}


def bare_loop(name: str, batches: list[Any], steps: int) -> float:
    """Seconds per step of a plain loop."""
    torch.manual_seed(0)
    model: Any = MODELS[name]().to(memory_format=torch.contiguous_format)
    model.eval()  # trains these networks all the same, with PyTorch's own kernels in every layer
    networks = [[*model.encoder.parameters(), *model.decoder.parameters()]]
    optimizers = [torch.optim.Adam(networks[0], lr=1e-4)]
    if hasattr(model, "discriminator"):
        networks.append(list(model.discriminator.parameters()))
        optimizers.append(torch.optim.Adam(networks[1], lr=1e-4, betas=(0.5, 0.9)))
    for step, batch in enumerate(itertools.islice(itertools.cycle(batches), steps + WARM_UP)):
        if step == WARM_UP:
            start = time.process_time()
        losses = BARE[name](model, *(batch if isinstance(batch, tuple) else [batch]))
        for optimizer in optimizers:
            optimizer.zero_grad()
        for loss, parameters in zip(losses, networks, strict=True):
            loss.backward(inputs=[p for p in parameters if p.requires_grad], retain_graph=loss is not losses[-1])
        for optimizer in optimizers:
            optimizer.step()
    return (time.process_time() - start) / steps


class Stopwatch(pl.Callback):
    """Times the steps after the warm-up, from the start of one batch to the start of another."""

    def __init__(self, data: StreamDataModule) -> None:
        self.data, self.draw, self.drawing = data, data.draw, 0.0
        data.draw = self.timed_draw  # type: ignore[method-assign]

    def timed_draw(self, generator: torch.Generator) -> Any:
        """A batch, timed; there are no workers, so training waits for all of it."""
        start = time.process_time()
        batch = self.draw(generator)
        self.drawing += time.process_time() - start
        return batch

    def on_train_batch_start(self, trainer: Any, model: Any, batch: Any, batch_idx: int) -> None:
        """Start after the warm-up."""
        if batch_idx == WARM_UP:
            self.start, self.drawing = time.process_time(), 0.0
        self.stop, self.waited = time.process_time(), self.drawing


def data_for(name: str, dataset: DSprites) -> StreamDataModule:
    """What this model trains on."""
    if name.startswith("S2") or name == "SupervisedVAE":
        return LabelledDataModule(dataset, seed=0)
    if name.endswith(("GVAE", "MLVAE")):
        return PairDataModule(dataset, k=1, group_label=True, seed=0)
    return FactorDataModule(dataset, seed=0)


def trainer_fit(name: str, dataset: DSprites, steps: int) -> tuple[float, float]:
    """Seconds per step of `trainer.fit`, and the share of them spent on data."""
    torch.manual_seed(0)
    data = data_for(name, dataset)
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
        trainer.fit(MODELS[name](), datamodule=data)
    seconds = watch.stop - watch.start
    return seconds / steps, watch.waited / seconds


def training_fit(name: str, dataset: DSprites, steps: int) -> float:
    """Seconds per step of `unknot.training.fit`, which keeps a folder with curve, progress and states."""
    torch.manual_seed(0)
    data = data_for(name, dataset)
    watch = Stopwatch(data)
    options = {
        "max_steps": steps + WARM_UP + 1,
        "callbacks": [watch],
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "limit_val_batches": 0,
        "accelerator": "cpu",
    }
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        fit(MODELS[name](), data, folder=folder, trainer=options)
    return (watch.stop - watch.start) / steps


def main() -> None:
    """Alternate, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(BARE), default=list(BARE), metavar="NAME")
    parser.add_argument("--steps", type=int, default=60, help="timed steps per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="only the bare loops, in seconds per step")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    dataset = DSprites()
    if not arguments.plain:
        keep_freed_memory()
        print(
            f"torch {torch.__version__}, {torch.get_num_threads()} threads, batch 64, steps per second of the processor"
        )
        print(
            f"{'model':<14} {'bare':>7} {'Trainer':>7} {'ratio':>7} {'(rounds)':<18} "
            f"{'fit':>7} {'ratio':>7} {'(rounds)':<18} waits for data"
        )
    for name in arguments.models:
        generator = torch.Generator().manual_seed(0)
        data = data_for(name, dataset)
        batches = [data.draw(generator) for _ in range(20)]
        if arguments.plain:
            print(bare_loop(name, batches, arguments.steps))
            continue
        bares, trainers, fits, shares = [], [], [], []
        for _ in tqdm(range(arguments.rounds), desc=name, leave=False, disable=None):
            bares.append(bare_loop(name, batches, arguments.steps))
            seconds, share = trainer_fit(name, dataset, arguments.steps)
            trainers.append(seconds)
            shares.append(share)
            fits.append(training_fit(name, dataset, arguments.steps))
        cells = []
        for times in (trainers, fits):
            ratios = [bare / seconds for bare, seconds in zip(bares, times, strict=True)]
            spread = f"({min(ratios):.3f} to {max(ratios):.3f})"
            cells.append(f"{1 / statistics.median(times):7.2f} {statistics.median(ratios):7.3f} {spread:<18}")
        print(
            f"{name:<14} {1 / statistics.median(bares):7.2f} {' '.join(cells)} {100 * statistics.median(shares):.1f} %",
            flush=True,
        )
        if name == "BetaVAE":
            command = [sys.executable, __file__, "--plain", "--models", name, "--steps", str(arguments.steps)]
            plain = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            print(f"{'':<14} {1 / plain:7.2f} {'':>7} {plain / statistics.median(fits):7.3f} bare in its own process")


def entries() -> Iterator[Row]:
    """`trainer.fit` beside the bare loop, for one model of each kind of batch."""
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    keep_freed_memory()
    dataset = DSprites()

    def without_start(function: Callable[[int], Any]) -> tuple[float, float]:
        (least, quickest), (processor, clock) = (measured(lambda steps=steps: function(steps)) for steps in (5, 35))
        return processor - least, clock - quickest

    for name in ("BetaVAE", "FactorVAE", "AdaGVAE", "S2BetaVAE"):
        batches = [data_for(name, dataset).draw(torch.Generator().manual_seed(seed)) for seed in range(20)]
        yield compare(
            f"30 training steps of {name} by trainer.fit",
            lambda steps, name=name: trainer_fit(name, dataset, steps),
            "a bare loop",
            lambda steps, name=name, batches=batches: bare_loop(name, batches, steps),
            3,
            measure=without_start,
        )


if __name__ == "__main__":
    run(entries, main)
