"""``evaluate``: draw from a data set, represent, score."""

import inspect
import zlib
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from unknot._modes import evaluation_mode
from unknot._seeding import derive_seed
from unknot.datamodules import GroundTruthDataset
from unknot.metrics import functional
from unknot.metrics.functional.checks import Floats, Ints, as_codes

BATCH = 256


class Draws:
    """What a metric may ask for: codes of i.i.d. samples, and codes of factors of its own choosing."""

    def __init__(
        self,
        represent: Callable[[Tensor], Any],
        dataset: GroundTruthDataset,
        num_train: int,
        num_test: int,
        seed: int,
    ) -> None:
        self.represent, self.dataset = represent, dataset
        self.num_train, self.num_test, self.seed = num_train, num_test, seed

    @cached_property
    def train(self) -> tuple[Floats, Ints]:
        """Codes ``[num_train, D]`` and factors ``[num_train, F]``, shared by all metrics."""
        return self._iid(self.num_train, "train")

    @cached_property
    def test(self) -> tuple[Floats, Ints]:
        """Codes and factors of ``num_test`` further samples."""
        return self._iid(self.num_test, "test")

    def generator(self, purpose: str) -> torch.Generator:
        """A stream that depends on the seed and its purpose, not on which other metrics run."""
        return torch.Generator().manual_seed(derive_seed(self.seed, zlib.crc32(purpose.encode())))

    @torch.no_grad()
    def codes(self, factors: Tensor, generator: torch.Generator) -> Floats:
        """Represent one image of each row of factors ``[N, F]``."""
        batches = [self.represent(self.dataset.observe(chunk, generator)) for chunk in factors.split(BATCH)]
        return as_codes(torch.cat([torch.as_tensor(batch).detach().cpu() for batch in batches]))

    def _iid(self, n: int, purpose: str) -> tuple[Floats, Ints]:
        generator = self.generator(purpose)
        factors = self.dataset.factor_space.sample(n, generator)
        return self.codes(factors, generator), factors.numpy()


METRICS: dict[str, Callable[[Draws], dict[str, float]]] = {}
"""Scores that ``evaluate`` knows by name."""


def register(name: str) -> Callable[[Callable[[Draws], dict[str, float]]], Callable[[Draws], dict[str, float]]]:
    """Make a function of :class:`Draws` available to :func:`evaluate` as ``name``.

    >>> @register("num_codes")
    ... def num_codes(draws):
    ...     return {"num_codes": float(draws.train[0].shape[1])}
    >>> "num_codes" in METRICS
    True
    >>> del METRICS["num_codes"]
    """

    def add(function: Callable[[Draws], dict[str, float]]) -> Callable[[Draws], dict[str, float]]:
        METRICS[name] = function
        return function

    return add


@register("mig")
def _mig(draws: Draws) -> dict[str, float]:
    return {"mig": functional.mig(*draws.train)}


def evaluate(
    model_or_function: Any,
    dataset: GroundTruthDataset,
    metrics: str | Iterable[str] = "all",
    num_train: int = 10_000,
    num_test: int = 5_000,
    seed: int = 0,
) -> dict[str, float]:
    """Score a representation on a data set with known factors.

    Args:
        model_or_function: a model with ``represent(images) -> codes``, or such a function.
        dataset: where factors and images are drawn from, i.i.d.
        metrics: names from ``METRICS``, or ``"all"``.
        num_train: samples to fit or to score on; 10,000 in the thesis.
        num_test: further samples for scores that predict; 5,000 in the thesis.
        seed: of the draws. The same seed gives the same scores, whichever metrics are asked for together.

    >>> from unknot.datamodules import DSprites
    >>> def centre_of_mass(images):
    ...     grid, mass = torch.arange(64.0), images.sum((1, 2, 3)).clamp(min=1)
    ...     return torch.stack([images.sum((1, 2)) @ grid / mass, images.sum((1, 3)) @ grid / mass], dim=1)
    >>> scores = evaluate(centre_of_mass, DSprites(), metrics=["mig"], num_train=1000)
    >>> round(scores["mig"], 2)
    0.25
    """
    names = list(METRICS) if metrics == "all" else [metrics] if isinstance(metrics, str) else list(metrics)
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ValueError(f"Unknown metrics {unknown}; there are {sorted(METRICS)}.")
    if num_train < 1 or num_test < 1:
        raise ValueError(f"num_train and num_test must be at least 1, got {num_train} and {num_test}.")
    draws = Draws(_represent(model_or_function), dataset, num_train, num_test, seed)
    scores: dict[str, float] = {}
    with tqdm(names, desc="evaluating", disable=None, leave=False) as bar:
        for name in bar:
            bar.set_postfix_str(name)
            scores |= METRICS[name](draws)
    return scores


def _represent(model_or_function: Any) -> Callable[[Tensor], Any]:
    represent = getattr(model_or_function, "represent", model_or_function)
    if not callable(represent) or inspect.isclass(model_or_function):
        raise ValueError("evaluate needs a model with a `represent` method, or a function from images to codes.")
    if not isinstance(model_or_function, torch.nn.Module):
        return represent

    @torch.inference_mode()
    def run(images: Tensor) -> Tensor:
        parameter = next(model_or_function.parameters(), images)
        with evaluation_mode(model_or_function):
            return represent(images.to(parameter.device))

    return run
