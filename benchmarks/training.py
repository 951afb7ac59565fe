"""Training steps: `trainer.fit` and `unknot.training.fit` beside a bare loop, subnormal numbers, waiting threads.

    python benchmarks/training.py

The bare loop trains the same networks with the same objective on batches of 64, as one would write it: the default
memory layout, `torch.optim.Adam`, no checks, no logging, finished float tensors in memory. The other side draws its
batches as a user's run does, logs to CSV and checks its losses. Rows about threads are processes of their own, because
OpenMP reads its settings once.
"""

import contextlib
import io
import itertools
import logging
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from common import Row, compare, measured, run
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor
from torch.nn import functional as F

from unknot.datamodules import DSprites, FactorDataModule, LabelledDataModule, PairDataModule, StreamDataModule
from unknot.hub import load
from unknot.lightning import pl
from unknot.machine import keep_freed_memory
from unknot.training import fit
from unknot.zoo import MODELS, vae

STEPS = 10

# The bare loops: each returns the loss of the model and, for FactorVAE, that of its discriminator.


def elbo(model: Any, x: Tensor, mean: Tensor, logvar: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reconstruction loss, KL and latents."""
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


def bare_loop(name: str, batches: list[Any], steps: int, device: str = "cpu") -> None:
    """Train for some steps in a plain loop."""
    torch.manual_seed(0)
    model: Any = MODELS[name]().to(device=device, memory_format=torch.contiguous_format)
    model.eval()  # trains these networks all the same, with PyTorch's own kernels in every layer
    networks = [[*model.encoder.parameters(), *model.decoder.parameters()]]
    optimizers = [torch.optim.Adam(networks[0], lr=1e-4)]
    if hasattr(model, "discriminator"):
        networks.append(list(model.discriminator.parameters()))
        optimizers.append(torch.optim.Adam(networks[1], lr=1e-4, betas=(0.5, 0.9)))
    for batch in itertools.islice(itertools.cycle(batches), steps):
        tensors = batch if isinstance(batch, tuple) else [batch]
        losses = BARE[name](model, *(tensor.to(device) for tensor in tensors))
        for optimizer in optimizers:
            optimizer.zero_grad()
        for loss, parameters in zip(losses, networks, strict=True):
            loss.backward(inputs=[p for p in parameters if p.requires_grad], retain_graph=loss is not losses[-1])
        for optimizer in optimizers:
            optimizer.step()
    if device != "cpu":
        losses[0].item()  # wait for the device


def data_for(name: str, dataset: DSprites) -> StreamDataModule:
    """Return the data module that this model trains on."""
    if name.startswith("S2") or name == "SupervisedVAE":
        return LabelledDataModule(dataset, seed=0)
    if name.endswith(("GVAE", "MLVAE")):
        return PairDataModule(dataset, k=1, group_label=True, seed=0)
    return FactorDataModule(dataset, seed=0)


def trainer_fit(name: str, dataset: DSprites, steps: int, accelerator: str = "cpu") -> None:
    """Train for some steps with `trainer.fit`."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_steps=steps,
            logger=CSVLogger(folder),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
            accelerator=accelerator,
            devices=1,
        )
        trainer.fit(MODELS[name](), datamodule=data_for(name, dataset))


def training_fit(name: str, dataset: DSprites, steps: int) -> None:
    """Train for some steps with `unknot.training.fit`, which keeps a run folder with curve, progress and states."""
    torch.manual_seed(0)
    options = {
        "max_steps": steps,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "limit_val_batches": 0,
        "accelerator": "cpu",
    }
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        fit(MODELS[name](), data_for(name, dataset), folder=folder, trainer=options)


def without_start(function: Callable[[int], Any]) -> tuple[float, float]:
    """Return the seconds of 30 steps: those of 35 minus those of 5."""
    (least, quickest), (processor, clock) = (measured(lambda steps=steps: function(steps)) for steps in (5, 35))
    return processor - least, clock - quickest


def quiet() -> None:
    """Silence Lightning."""
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def fits() -> Iterator[Row]:
    """Compare with the bare loop, for one model of each kind of batch."""
    dataset = DSprites()
    ways = [(name, "trainer.fit", trainer_fit) for name in ("BetaVAE", "FactorVAE", "AdaGVAE", "S2BetaVAE")]
    for name, way, train in [*ways, ("BetaVAE", "unknot.training.fit", training_fit)]:
        batches = [data_for(name, dataset).draw(torch.Generator().manual_seed(seed)) for seed in range(20)]
        yield compare(
            f"30 training steps of {name} by {way}",
            lambda steps, name=name, train=train: train(name, dataset, steps),
            "a bare loop",
            lambda steps, name=name, batches=batches: bare_loop(name, batches, steps),
            3,
            measure=without_start,
        )


def subnormal() -> Iterator[Row]:
    """Compare steps of a trained model, whose sure pixels have gradients too small for ordinary numbers.

    All VAEs leave those gradients out; the other side keeps them.
    """
    dataset = DSprites()
    images = dataset.observe(dataset.factor_space.sample(64, torch.Generator().manual_seed(0)))
    leave_out = vae.without_traces
    for name in ("adagvae-dsprites", "betatcvae-dsprites"):
        model = load(f"unknot/{name}").train()
        adam = torch.optim.Adam(model.parameters(), lr=1e-8, fused=True)  # the model stays as it is

        def steps(model: vae.VAE = model, adam: torch.optim.Adam = adam) -> None:
            for _ in range(STEPS):
                adam.zero_grad()
                model.objective(images, model.encode(images))["loss"].backward()
                adam.step()

        def with_traces(steps: Callable[[], None] = steps) -> None:
            vae.without_traces = lambda outputs: outputs
            steps()
            vae.without_traces = leave_out

        yield compare(f"{STEPS} steps of a trained {type(model).__name__}", steps, "subnormal gradients", with_traces)


TRAIN = """
import time
import torch
from unknot.zoo import BetaVAE
torch.manual_seed(0)
model, images = BetaVAE(), torch.rand(64, 1, 64, 64)
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
for step in range(18):
    if step == 3:
        clock, processor = time.perf_counter(), time.process_time()
    optimizer.zero_grad()
    model.losses(images)["loss"].backward()
    optimizer.step()
print(time.process_time() - processor, time.perf_counter() - clock)
"""
ENVIRONMENTS = {
    "passive": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
    "default": {"OMP_NUM_THREADS": "2"},
    "one": {"OMP_NUM_THREADS": "1"},
}


def train_in_process(environment: str) -> tuple[float, float]:
    """Return the seconds of 15 steps in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    words = [sys.executable, "-c", TRAIN]
    done = subprocess.run(words, env=clean | ENVIRONMENTS[environment], capture_output=True, text=True, check=True)
    processor, clock = map(float, done.stdout.split()[-2:])
    return processor, clock


@contextmanager
def busy() -> Iterator[None]:
    """Keep one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def threads() -> Iterator[Row]:
    """Compare passive waiting with the default, and one thread with two."""

    def row(name: str, ours: str, against: str, theirs: str, count: int) -> Row:
        return compare(name, lambda: ours, against, lambda: theirs, 3, count, lambda side: train_in_process(side()))

    yield row("training with passive waiting, alone", "passive", "default waiting", "default", 2)
    with busy():
        yield row("training with passive waiting, beside a busy process", "passive", "default waiting", "default", 2)
        yield row("training with one thread, beside a busy process", "one", "two threads, passive", "passive", 1)


def entries() -> Iterator[Row]:
    """Yield all rows."""
    quiet()
    torch.set_num_threads(1)
    keep_freed_memory()
    yield from fits()
    yield from subnormal()
    yield from threads()


if __name__ == "__main__":
    run(entries)
