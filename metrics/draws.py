"""What a score may ask for: codes of a model for factors that a data set draws."""

import inspect
import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

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
