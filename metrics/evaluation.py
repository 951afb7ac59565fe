"""``evaluate``: draw from a data set, represent, score."""

import inspect
import zlib
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from unknot._modes import evaluation_mode
from unknot._seeding import derive_seed
from unknot.datamodules import GroundTruthDataset
from unknot.metrics.functional import FactorCodeMatrix, information_matrix, predictability_matrix
from unknot.metrics.functional.boosting import Backend, SklearnTrees, Trees, fit_trees
from unknot.metrics.functional.checks import Floats, Ints, as_codes

BATCH = 64
REMEMBERED = 1 << 22  # grid points whose codes are kept


class Draws:
    """What a metric may ask for: codes of i.i.d. samples, and codes of factors of its own choosing.

    Args:
        model: a model with ``represent(images) -> codes``, or such a function.
        dataset: where factors and images are drawn from.
        num_train: samples to fit on.
        num_test: further samples to test on.
        seed: of everything that is drawn.
        backend: of the boosted trees.
    """

    def __init__(
        self,
        model: Any,
        dataset: GroundTruthDataset,
        num_train: int = 10_000,
        num_test: int = 5_000,
        seed: int = 0,
        backend: Backend = "unknot",
    ) -> None:
        if num_train < 1 or num_test < 1:
            raise ValueError(f"num_train and num_test must be at least 1, got {num_train} and {num_test}.")
        self.model, self.represent, self.dataset = model, _represent(model), dataset
        self.num_train, self.num_test, self.seed, self.backend = num_train, num_test, seed, backend
        self._remembered: tuple[Floats, np.ndarray[Any, np.dtype[np.bool_]]] | None = None

    @cached_property
    def train(self) -> tuple[Floats, Ints]:
        """Codes ``[num_train, D]`` and factors ``[num_train, F]``, shared by all metrics."""
        return self.iid(self.num_train, "train")

    @cached_property
    def test(self) -> tuple[Floats, Ints]:
        """Codes and factors of ``num_test`` further samples."""
        return self.iid(self.num_test, "test")

    @cached_property
    def trees(self) -> Trees | SklearnTrees:
        """Boosted trees fitted on :attr:`train`, shared by all metrics that need them."""
        return fit_trees(*self.train, backend=self.backend, seed=self.seed)

    @cached_property
    def matrices(self) -> dict[str, FactorCodeMatrix]:
        """Factor-code matrices ``[D, F]`` by all three estimators."""
        return {
            "GBT importance": FactorCodeMatrix(self.trees.importance, np.ones(self.train[1].shape[1])),
            "mutual information": information_matrix(*self.train),
            "SVM predictability": predictability_matrix(*self.train, *self.test),
        }

    def generator(self, purpose: str) -> torch.Generator:
        """A stream that depends on the seed and its purpose, not on which other metrics run."""
        return torch.Generator().manual_seed(derive_seed(self.seed, zlib.crc32(purpose.encode())))

    def iid(self, n: int, purpose: str) -> tuple[Floats, Ints]:
        """Codes and factors of ``n`` samples of a stream of their own."""
        generator = self.generator(purpose)
        factors = self.dataset.factor_space.sample(n, generator)
        return self.codes(factors, generator), factors.numpy()

    def codes(self, factors: Tensor, generator: torch.Generator) -> Floats:
        """Represent one image of each row of factors ``[N, F]``."""
        if self.dataset.stochastic or len(self.dataset) > REMEMBERED:
            return as_codes(self._encode(factors, generator))
        # Interventions ask for the same images over and over: encode each grid point once.
        index = self.dataset.factor_space.index(factors).numpy()
        table, known = self._remembered or (np.empty((0, 0)), np.zeros(len(self.dataset), dtype=bool))
        missing = np.unique(index[~known[index]])
        if len(missing):
            # Full batches only, so that the last digits of a code do not depend on its company.
            padded = np.resize(missing, -(-len(missing) // BATCH) * BATCH)
            points = self.dataset.factor_space.factors(torch.from_numpy(padded))
            fresh = as_codes(self._encode(points, generator)[: len(missing)])
            table = table if table.size else np.empty((len(self.dataset), fresh.shape[1]))
            table[missing], known[missing] = fresh, True
            self._remembered = table, known
        return table[index]

    @torch.no_grad()
    def _encode(self, factors: Tensor, generator: torch.Generator) -> Tensor:
        batches = []
        with tqdm(total=len(factors), desc="encoding", unit="image", disable=None, leave=False, delay=1) as bar:
            for chunk in factors.split(BATCH):
                batch = torch.as_tensor(self.represent(self.dataset.observe(chunk, generator))).detach().cpu()
                if batch.ndim == 0 or len(batch) != len(chunk):
                    raise ValueError(
                        f"A representation needs as many rows as images: got codes of shape {list(batch.shape)} for "
                        f"{len(chunk)} images."
                    )
                batches.append(batch)
                bar.update(len(chunk))
        return torch.cat(batches)


class Entry(NamedTuple):
    """A score that ``evaluate`` knows: its function, and what a model must offer for it besides ``represent``."""

    function: Callable[[Draws], dict[str, float]]
    needs: str | None = None


METRICS: dict[str, Entry] = {}
"""Scores that ``evaluate`` knows by name."""


def register(
    name: str, needs: str | None = None
) -> Callable[[Callable[[Draws], dict[str, float]]], Callable[[Draws], dict[str, float]]]:
    """Make a function of :class:`Draws` available to :func:`evaluate` as ``name``.

    Args:
        name: the score's name; the function gives its value under this key, further ones under ``name_...``, and
            details such as those of each factor under ``name/...``.
        needs: a method that the model must have; ``"all"`` leaves the score out for others.

    >>> @register("num_codes")
    ... def num_codes(draws):
    ...     return {"num_codes": float(draws.train[0].shape[1])}
    >>> "num_codes" in METRICS
    True
    >>> del METRICS["num_codes"]
    """

    def add(function: Callable[[Draws], dict[str, float]]) -> Callable[[Draws], dict[str, float]]:
        METRICS[name] = Entry(function, needs)
        return function

    return add


def evaluate(
    model_or_function: Any,
    dataset: GroundTruthDataset,
    metrics: str | Iterable[str] = "all",
    num_train: int = 10_000,
    num_test: int = 5_000,
    seed: int = 0,
    repeats: int = 1,
    backend: Backend = "unknot",
    pictures: str | Path | None = None,
) -> dict[str, float]:
    """Score a representation on a data set with known factors.

    Args:
        model_or_function: a model with ``represent(images) -> codes``, or such a function.
        dataset: where factors and images are drawn from, i.i.d.
        metrics: names from ``METRICS``, or ``"all"``. Interventional scores encode about two million images, or every
            image of the data set once where images are a function of the factors.
        num_train: samples to fit or to score on; 10,000 in the thesis.
        num_test: further samples for scores that predict; 5,000 in the thesis.
        seed: of the draws. The same seed gives the same scores, whichever metrics are asked for together.
        repeats: draw so many times, with seeds ``seed``, ``seed + 1``, ...; a score is then the mean over the draws
            and ``score_std`` their standard deviation.
        backend: ``"unknot"`` or ``"sklearn"``, of the boosted trees.
        pictures: a folder for pictures of the factor-code matrices of the first draw.

    Returns:
        Numbers by name. Each metric gives one of its own name; ``mig_std`` belongs to ``mig``, and names with a slash,
        such as ``downstream_gbt_100/shape``, are details.

    >>> from unknot.datamodules import DSprites
    >>> from unknot.metrics import evaluate
    >>> def centre_of_mass(images):
    ...     grid, mass = torch.arange(64.0), images.sum((1, 2, 3)).clamp(min=1)
    ...     return torch.stack([images.sum((1, 2)) @ grid / mass, images.sum((1, 3)) @ grid / mass], dim=1)
    >>> scores = evaluate(centre_of_mass, DSprites(), metrics=["mig"], num_train=1000)
    >>> round(scores["mig"], 2)
    0.25
    """
    names = _names(metrics, model_or_function)
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}.")
    drawn = []
    with tqdm(total=repeats * len(names), desc="evaluating", disable=None, leave=False) as bar:
        for repeat in range(repeats):
            draws = Draws(model_or_function, dataset, num_train, num_test, seed + repeat, backend)
            scores: dict[str, float] = {}
            for name in names:
                bar.set_postfix_str(name)
                scores |= METRICS[name].function(draws)
                bar.update()
            drawn.append(scores)
            if pictures is not None and repeat == 0:
                from unknot.metrics.pictures import draw_matrices

                draw_matrices(draws.matrices, Path(pictures) / "factor_code.png", dataset.factor_space.names)
    return drawn[0] if repeats == 1 else _summary(drawn)


def _summary(drawn: list[dict[str, float]]) -> dict[str, float]:
    summary = {}
    for name in drawn[0]:
        values = np.array([scores[name] for scores in drawn])
        summary[name] = float(values.mean())
        # a score that is infinite in one draw has no spread
        summary[f"{name}_std"] = float(values.std(ddof=1)) if np.isfinite(values).all() else float("nan")
    return summary


def _names(metrics: str | Iterable[str], model: Any) -> list[str]:
    if metrics == "all":
        return [name for name, entry in METRICS.items() if entry.needs is None or hasattr(model, entry.needs)]
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ValueError(f"Unknown metrics {unknown}; there are {sorted(METRICS)}, and 'all'.")
    for name in names:
        needs = METRICS[name].needs
        if needs and not hasattr(model, needs):
            raise ValueError(
                f"{name!r} needs a model with `{needs}`, such as a VAE of the zoo; leave it out for others."
            )
    return names


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
