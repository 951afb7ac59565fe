"""Samples of codes and factors for scores: drawn from a data set and encoded by a model, or given."""

import inspect
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from unknot.arguments import whole
from unknot.datamodules import GroundTruthDataset, ImageDataModule
from unknot.datamodules.views import View
from unknot.inference import evaluation_mode, representation
from unknot.labels import MISSING
from unknot.metrics.functional import FactorCodeMatrix, information_matrix, predictability_matrix
from unknot.metrics.functional.checks import Floats, Ints, as_codes
from unknot.metrics.functional.trees import AnyTrees, Backend, fit_trees
from unknot.randomness import derive_seed

BATCH = 64
LOOKS = 64  # images of the same factors that reveal a finite collection
REMEMBERED = 1 << 22  # grid points whose codes are cached


class GivenDraws:
    """Given codes and factors to fit and to test on, with derived quantities that several metrics share.

    Args:
        train: codes ``[N, D]`` and factors ``[N, F]``.
        test: further codes and factors.
        backend: implementation of the boosted trees.
        seed: seed of scikit-learn's trees.
        factor_names: names of the factors; by default ``factor_0``, ``factor_1``, ...
        numbers: the factors of both parts as numbers ``[N, F]``, NaN where they are missing; by default their classes.
    """

    model: Any = None
    _numbers: tuple[Floats, Floats] | None = None

    def __init__(
        self,
        train: tuple[Floats, Ints],
        test: tuple[Floats, Ints],
        backend: Backend = "unknot",
        seed: int = 0,
        factor_names: Sequence[str] | None = None,
        numbers: tuple[Floats, Floats] | None = None,
    ) -> None:
        self._numbers = numbers
        self._train, self._test, self.backend, self.seed = train, test, backend, seed
        self.num_train, self.num_test = len(train[0]), len(test[0])
        self._names = tuple(factor_names or (f"factor_{column}" for column in range(train[1].shape[1])))

    @property
    def train(self) -> tuple[Floats, Ints]:
        """Codes ``[N, D]`` and factors ``[N, F]`` to fit or score on."""
        return self._train

    @property
    def test(self) -> tuple[Floats, Ints]:
        """Codes and factors to test on."""
        return self._test

    @property
    def numbers(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Codes and numeric factors to fit and to test on, for scores that treat factors as numbers."""
        (codes, factors), (others, asked) = self.train, self.test
        known = (_as_numbers(factors), _as_numbers(asked)) if self._numbers is None else self._numbers
        return (codes, known[0]), (others, known[1])

    @property
    def downstream(self) -> tuple[Floats, Ints]:
        """Codes and factors that downstream tasks are tested on."""
        return self.test

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the factors."""
        return self._names

    @cached_property
    def trees(self) -> AnyTrees:
        """Boosted trees fitted on :attr:`train`, shared by all metrics that use them."""
        return fit_trees(*self.train, backend="unknot" if self.backend == "hist" else self.backend, seed=self.seed)

    @cached_property
    def predictors(self) -> AnyTrees:
        """Boosted trees for scores that only need predictions: :attr:`trees`, or the faster ones of ``"hist"``."""
        return fit_trees(*self.train, backend="hist", seed=self.seed) if self.backend == "hist" else self.trees

    @cached_property
    def matrices(self) -> dict[str, FactorCodeMatrix]:
        """Factor-code matrices ``[D, F]`` by all three estimators."""
        return {
            "GBT importance": FactorCodeMatrix(self.trees.importance, np.ones(self.train[1].shape[1])),
            "mutual information": information_matrix(*self.train),
            "SVM predictability": predictability_matrix(*self.train, *self.test),
        }


def _as_numbers(classes: Ints) -> Floats:
    return np.where(classes == MISSING, np.nan, classes).astype(np.float64)


class Draws(GivenDraws):
    """Samples of codes and factors from a data set and a model: i.i.d., or with factors that a metric chooses.

    Args:
        model: a model with ``represent(images) -> codes``, or a function.
        dataset: data set to draw factors and images from. Your own labelled images are drawn at most once each, some to
            fit on and others to test on: with an ``ImageDataModule``, its training and its held-out images.
        num_train: samples to fit on.
        num_test: further samples to test on.
        seed: seed of all samples.
        backend: implementation of the boosted trees.
    """

    def __init__(
        self,
        model: Any,
        dataset: GroundTruthDataset | ImageDataModule,
        num_train: int = 10_000,
        num_test: int = 5_000,
        seed: int = 0,
        backend: Backend = "unknot",
    ) -> None:
        num_train, num_test = whole("num_train", num_train), whole("num_test", num_test)
        self.model, self.represent = model, _represent(model)
        self.seed, self.backend = whole("seed", seed, least=None), backend
        self._own = own_images(dataset, num_train, num_test)
        if self._own:
            pools = zip((num_train, num_test), self._own, strict=True)
            num_train, num_test = (min(n, len(pool)) for n, pool in pools)
        self.dataset = dataset.ground_truth() if isinstance(dataset, ImageDataModule) else dataset
        self.num_train, self.num_test = num_train, num_test
        self.notes: dict[str, Any] = {}
        if not self._own:
            check_repetition(self.dataset)
        if distribution := getattr(self.dataset.factor_space, "distribution", None):
            self.notes["distribution"] = distribution
        if self._own:
            self.notes["split"] = "images to fit on and others to test on, each drawn once at most"
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
    def downstream(self) -> tuple[Floats, Ints]:
        """Codes and factors of as many further samples as are used for fitting."""
        return self.iid(self.num_train, "downstream")

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the factors."""
        return self.dataset.factor_space.names

    def generator(self, purpose: str) -> torch.Generator:
        """Random generator that depends on the seed and its purpose, not on which other metrics run."""
        return torch.Generator().manual_seed(derive_seed(self.seed, zlib.crc32(purpose.encode())))

    def iid(self, n: int, purpose: str) -> tuple[Floats, Ints]:
        """Codes and factors of ``n`` samples from a generator of their own."""
        generator = self.generator(purpose)
        if self._own:
            pool = self._own[0 if purpose == "train" else 1]
            images, factors = zip(*self._pool_batches(pool, n, generator), strict=True)
            with torch.inference_mode(), evaluation_mode(self.model):
                codes = torch.cat([self._represented(batch) for batch in images])
            return as_codes(codes), torch.cat(factors).numpy()
        drawn = self.dataset.factor_space.sample(n, generator)
        return self.codes(drawn, generator), drawn.numpy()

    def images(self, n: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of ``n`` test images, at most as many as there are, and their factors."""
        if self._own:
            yield from self._pool_batches(self._own[1], n, generator)
            return
        for chunk in self.dataset.factor_space.sample(n, generator).split(BATCH):
            yield self.dataset.observe(chunk, generator), chunk

    @staticmethod
    def _pool_batches(pool: GroundTruthDataset, n: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        for chunk in torch.randperm(len(pool), generator=generator)[:n].split(BATCH):
            yield pool[chunk]

    def codes(self, factors: Tensor, generator: torch.Generator) -> Floats:
        """Encode one image for each row of factors ``[N, F]``."""
        if self.dataset.stochastic or len(self.dataset) > REMEMBERED:
            return as_codes(self._encode(factors, generator))
        # Interventions use the same images many times: encode each grid point once.
        index = self.dataset.factor_space.index(factors).numpy()
        table, known = self._remembered or (np.empty((0, 0)), np.zeros(len(self.dataset), dtype=bool))
        missing = np.unique(index[~known[index]])
        if len(missing):
            # Full batches only, so that the last digits of a code do not depend on the rest of its batch.
            padded = np.resize(missing, -(-len(missing) // BATCH) * BATCH)
            points = self.dataset.factor_space.factors(torch.from_numpy(padded))
            fresh = as_codes(self._encode(points, generator)[: len(missing)])
            table = table if table.size else np.empty((len(self.dataset), fresh.shape[1]))
            table[missing], known[missing] = fresh, True
            self._remembered = table, known
        return table[index]

    def _encode(self, factors: Tensor, generator: torch.Generator) -> Tensor:
        batches = []
        with (
            torch.inference_mode(),
            evaluation_mode(self.model),  # visits all submodules, so it is called once for many batches
            tqdm(total=len(factors), desc="encoding", unit="image", disable=None, leave=False, delay=1) as bar,
        ):
            for chunk in factors.split(BATCH):
                batches.append(self._represented(self.dataset.observe(chunk, generator)))
                bar.update(len(chunk))
        return torch.cat(batches)

    def _represented(self, images: Tensor) -> Tensor:
        output = self.represent(images)
        try:
            codes = torch.as_tensor(output).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"A representation must be one tensor [N, D] of codes, got {type(output).__name__}: give a function "
                "that picks it, such as `lambda images: model(images)[0]`."
            ) from None
        if codes.ndim == 0 or len(codes) != len(images):
            raise ValueError(
                f"A representation needs as many rows as images: got codes of shape {list(codes.shape)} for "
                f"{len(images)} images."
            )
        return codes


def _represent(model_or_function: Any) -> Callable[[Tensor], Any]:
    if not callable(getattr(model_or_function, "represent", model_or_function)) or inspect.isclass(model_or_function):
        raise ValueError("evaluate needs a model with a `represent` method, or a function from images to codes.")
    capabilities = getattr(model_or_function, "capabilities", {"codes"})
    if capabilities and "codes" not in capabilities:
        raise ValueError(
            f"This {type(model_or_function).__name__} gives {' and '.join(sorted(capabilities))}, not codes [N, D]: "
            "score it with `unknot slots`, or unknot.metrics.set_scores and attention_score."
        )
    return representation(model_or_function)


def is_finite(dataset: Any) -> bool:
    """Return whether a data set is a collection of images of which some have to be held out."""
    return isinstance(dataset, ImageDataModule) or bool(getattr(dataset, "finite", False))


def check_repetition(dataset: GroundTruthDataset) -> None:
    """Raise an error if images seem to come from an undeclared finite collection: test images would be training images.

    Repeated identical images of the same factors reveal such a collection. A data set that sets ``finite`` is not
    checked.
    """
    says = getattr_static(type(dataset), "finite", None) is not getattr_static(GroundTruthDataset, "finite")
    if not dataset.stochastic or (says and not isinstance(dataset, View)):
        return
    generator = torch.Generator().manual_seed(0)
    factors = dataset.factor_space.sample(1, generator).expand(LOOKS, -1)
    distinct = len(dataset.observe(factors, generator).flatten(1).unique(dim=0))
    if 1 < distinct < LOOKS:
        raise ValueError(
            f"{type(dataset).__name__} has few images of the same factors ({distinct} different ones in {LOOKS} "
            "draws), so that scores would be tested on images they were fitted on. If it is a collection, say "
            "finite = True and implement split(test_fraction, seed); if it has all combinations, say finite = False."
        )


def own_images(dataset: Any, num_train: int, num_test: int) -> tuple[GroundTruthDataset, GroundTruthDataset] | None:
    """Return images of a finite collection to fit and to test on, or None if images are drawn from factors."""
    if isinstance(dataset, ImageDataModule):
        return dataset.ground_truth("train"), dataset.ground_truth("val")
    return dataset.split(num_test / (num_train + num_test)) if is_finite(dataset) else None
