"""Gradient-boosted trees for all factors at once, and wrappers of scikit-learn's.

Boosted trees account for nearly all the cost of DCI, of the downstream tasks and of unfairness: dSprites' five factors
have 113 classes, so 100 rounds are 11,300 trees. :func:`boost` grows the same trees as scikit-learn's
``GradientBoostingClassifier`` with its defaults (Friedman, 2001), over the same thresholds. It is faster because the
trees of all classes of all factors grow together, level by level, so that each level is a few operations on whole
arrays, and because most thresholds are ruled out in blocks (:mod:`unknot.metrics.functional.tree_splits`).
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import trange

from unknot.labels import MISSING
from unknot.metrics.functional.checks import Floats, Ints, by_missing
from unknot.metrics.functional.tree_splits import DEPTH, Splitter, assign, descend

Backend = Literal["unknot", "sklearn", "hist"]
ROUNDS = 100
LEARNING_RATE = 0.1


class Trees(NamedTuple):
    """Boosted trees that predict all factors from the same codes.

    A tree of depth 3 is stored as 7 inner nodes and 8 leaves. There is one for each round and each of the ``C`` rows: a
    factor of two classes has one row, one of k > 2 classes has k, a constant one has none.
    """

    classes: list[Ints]  # classes of each factor, sorted
    prior: Tensor  # [C] initial log odds or log probabilities
    edges: list[Floats]  # thresholds between the bins of each code
    code: Tensor  # [rounds, 7, C] code that a node compares
    edge: Tensor  # [rounds, 7, C] samples in later bins of that code go right
    value: Tensor  # [rounds, 8, C] value that a leaf adds
    importance: Floats  # [D, F] share of each code in the squared error removed; columns sum to one, or to zero

    def predict(self, codes: Floats) -> Ints:
        """Predict the most likely class of every factor: codes ``[N, D]`` to ``[N, F]``."""
        bins = assign(codes, self.edges)
        scores = self.prior.repeat(len(codes), 1)
        for code, edge, value in zip(self.code, self.edge, self.value, strict=True):
            scores += value.gather(0, descend(bins, code, edge))
        return _decide(scores, self.classes)


def boost(codes: Floats, factors: Ints) -> Trees:
    """Fit trees that predict each factor ``[N, F]`` from the codes ``[N, D]``: 100 rounds, depth 3, rate 0.1.

    The result is deterministic. Equally good codes take turns in an order that is drawn once.

    >>> rng = np.random.default_rng(0)
    >>> factors = rng.integers(0, 4, size=(500, 2))
    >>> trees = boost(factors + 0.1 * rng.normal(size=(500, 2)), factors)
    >>> trees.importance.round(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> trees.predict(np.array([[0.2, 2.9]])).tolist()
    [[0, 3]]
    """
    classes = [np.unique(column) for column in factors.T]
    # one row of targets for each tree of a round; two classes need only one
    kept = [values if len(values) > 2 else values[1:] for values in classes]
    widths = [len(values) for values in kept]
    rows = [
        torch.from_numpy(column == value) for column, values in zip(factors.T, kept, strict=True) for value in values
    ]
    targets = torch.stack(rows, dim=1).float() if rows else torch.zeros(len(codes), 0)
    share = targets.double().mean(0)
    single = torch.cat([torch.full((width,), width == 1) for width in widths])
    prior = torch.where(single, torch.logit(share), share.log()).float()
    # A Newton step of the multinomial loss has the factor (k - 1) / k (Friedman's algorithm 6); the binary one does
    # not.
    newton = torch.cat([torch.full((width,), (width - 1) / width if width > 1 else 1.0) for width in widths])

    splitter = Splitter(codes)
    generator = torch.Generator().manual_seed(0)
    scores = prior.repeat(len(codes), 1)
    importance = torch.zeros(codes.shape[1], len(prior), dtype=torch.float64)
    grown = []
    for _ in trange(ROUNDS if rows else 0, desc="boosting", disable=None, leave=False):
        residual = targets - _probabilities(scores, widths)
        tree = splitter.grow(residual, generator)
        size = residual.abs()
        error, curvature = torch.zeros(2, 2**DEPTH, len(prior), dtype=torch.float64)
        error.scatter_add_(0, tree.leaf, residual.double())
        curvature.scatter_add_(0, tree.leaf, (size * (1 - size)).double())
        value = torch.where(curvature < 1e-150, 0, LEARNING_RATE * newton * error / curvature).float()
        scores += value.gather(0, tree.leaf)
        importance += tree.gains
        grown.append((tree.code, tree.edge, value))
    code, edge, value = (torch.stack(part) for part in zip(*grown, strict=True)) if grown else torch.zeros(3, 0)
    per_factor = torch.stack([part.sum(1) for part in importance.split(widths, dim=1)], dim=1)
    shares = torch.where(per_factor.sum(0) > 0, per_factor / per_factor.sum(0), 0).numpy()
    return Trees(classes, prior, splitter.edges, code, edge, value, shares)


class SklearnTrees(NamedTuple):
    """Wrapper of scikit-learn's ``GradientBoostingClassifier``, as in the reference, for each factor that varies."""

    models: list[Any]
    importance: Floats

    def predict(self, codes: Floats) -> Ints:
        """Predict the most likely class of every factor: codes ``[N, D]`` to ``[N, F]``."""
        return np.stack([model.predict(codes) for model in self.models], axis=1)


class PartialTrees(NamedTuple):
    """Trees for factors that are labelled in different rows; factors without labels are predicted as -1."""

    parts: list[tuple[Any, Any]]
    importance: Floats

    def predict(self, codes: Floats) -> Ints:
        """Predict the most likely class of every factor: codes ``[N, D]`` to ``[N, F]``."""
        predicted = np.full((len(codes), self.importance.shape[1]), MISSING)
        for columns, trees in self.parts:
            predicted[:, columns] = trees.predict(codes)
        return predicted


class HistTrees(NamedTuple):
    """Wrapper of scikit-learn's ``HistGradientBoostingClassifier`` for each factor that varies, without importances."""

    models: list[Any]

    @property
    def importance(self) -> Floats:
        """Raise an error: these trees have no importances."""
        raise ValueError("backend='hist' predicts and gives no importances: use 'unknot' or 'sklearn'.")

    def predict(self, codes: Floats) -> Ints:
        """Predict the most likely class of every factor: codes ``[N, D]`` to ``[N, F]``."""
        return np.stack([model.predict(codes) for model in self.models], axis=1)


AnyTrees = Trees | SklearnTrees | PartialTrees | HistTrees


def fit_trees(codes: Floats, factors: Ints, backend: Backend = "unknot", seed: int = 0) -> AnyTrees:
    """Fit boosted trees that predict all factors ``[N, F]`` from the codes ``[N, D]``.

    Args:
        codes: codes to fit on.
        factors: factors to predict, -1 in rows that are left out for a factor.
        backend: ``"unknot"`` for :func:`boost`, ``"sklearn"`` for the reference's ``GradientBoostingClassifier``, and
            ``"hist"`` for ``HistGradientBoostingClassifier`` with as many trees of the same depth: thresholds between
            256 bins, and no importances.
        seed: seed of scikit-learn's trees, which break ties at random.
    """
    if (factors == MISSING).any():
        parts = [
            (columns, fit_trees(codes[rows], factors[rows][:, columns], backend, seed))
            for columns, rows in by_missing(factors)
            if len(codes[rows])
        ]
        importance = np.zeros((codes.shape[1], factors.shape[1]))
        for columns, part in parts if backend != "hist" else []:
            importance[:, columns] = part.importance
        return PartialTrees(parts, importance)
    if backend == "unknot":
        return boost(codes, factors)
    if backend not in ("sklearn", "hist"):
        raise ValueError(f"backend must be 'unknot', 'sklearn' or 'hist', got {backend!r}.")
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

    importance = np.zeros((codes.shape[1], factors.shape[1]))
    models = []
    for column, factor in enumerate(factors.T):
        if (factor == factor[0]).all():  # the classifier does not accept a single class
            models.append(DummyClassifier().fit(codes, factor))
            continue
        if backend == "hist":
            hist = HistGradientBoostingClassifier(
                learning_rate=LEARNING_RATE, max_iter=ROUNDS, max_depth=DEPTH, early_stopping=False, random_state=seed
            )
            models.append(hist.fit(codes, factor))
            continue
        models.append(GradientBoostingClassifier(random_state=seed).fit(codes, factor))
        importance[:, column] = models[-1].feature_importances_.clip(min=0)  # rounding can leave -1e-19
    return HistTrees(models) if backend == "hist" else SklearnTrees(models, importance)


def _probabilities(scores: Tensor, widths: list[int]) -> Tensor:
    parts = scores.split(widths, dim=1)
    return torch.cat([part.sigmoid() if part.shape[1] == 1 else part.softmax(1) for part in parts], dim=1)


def _decide(scores: Tensor, classes: list[Ints]) -> Ints:
    """Return the class of each factor whose trees score highest: ``[N, C]`` to ``[N, F]``."""
    predicted, start = [], 0
    for values in classes:
        width = len(values) if len(values) > 2 else len(values) - 1
        part, start = scores[:, start : start + width], start + width
        rank = (part > 0).sum(1) if width <= 1 else part.argmax(1)
        predicted.append(values[rank.numpy()])
    return np.stack(predicted, axis=1)
