"""Gradient-boosted trees for every factor at once, and the seam to scikit-learn's.

Boosted trees are nearly the whole cost of DCI, of the downstream tasks and of unfairness: dSprites' five factors have
113 classes, so 100 rounds are 11,300 trees. :func:`boost` grows the same trees as scikit-learn's
``GradientBoostingClassifier`` with its defaults (Friedman, 2001), with two differences that buy the speed: the trees of
all classes of all factors grow together, level by level, so that each level is a few operations on whole arrays; and
with more than 4,096 samples thresholds lie between 1,024 quantiles of each code.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag
from tqdm.auto import trange

from unknot.metrics.functional.checks import Floats, Ints

Backend = Literal["unknot", "sklearn"]
EXACT = 4096  # up to so many samples every value of a code is tried, as scikit-learn does
BINS = 1024  # beyond
DEPTH = 3
ROUNDS = 100
LEARNING_RATE = 0.1
SMALLEST_GAIN = 1e-10  # per sample: what rounding alone can "gain"
TIE = 1e-4  # codes whose gains differ by less than this share of the best are equally good


class Trees(NamedTuple):
    """Boosted trees that predict every factor from the same codes.

    A tree of depth 3 is stored as its 7 inner nodes and 8 leaves; there is one for each round and each of the ``C``
    rows: a factor of two classes has one row, one of k > 2 classes has k, a constant one has none.
    """

    classes: list[Ints]  # of each factor, sorted
    prior: Tensor  # [C, 1] log odds or log probabilities that the rounds start from
    edges: list[Floats]  # of each code, the thresholds between its bins
    code: Tensor  # [rounds, 7, C] which code a node looks at
    edge: Tensor  # [rounds, 7, C] samples in later bins of that code go right
    value: Tensor  # [rounds, C, 8] what a leaf adds
    importance: Floats  # [D, F] share of each code in the squared error removed; columns sum to one, or to zero

    def predict(self, codes: Floats) -> Ints:
        """The likeliest class of every factor: codes ``[N, D]`` to ``[N, F]``."""
        binned = _assign(codes, self.edges)
        scores = self.prior.repeat(1, len(codes))
        for code, edge, value in zip(self.code, self.edge, self.value, strict=True):
            members = [torch.ones(scores.shape, dtype=torch.bool)]
            for level in range(DEPTH):
                nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
                members = _descend(members, binned, code[nodes], edge[nodes])
            scores += value.gather(1, _number(members))
        return _decide(scores, self.classes)


def boost(codes: Floats, factors: Ints) -> Trees:
    """Fit trees that predict each factor ``[N, F]`` from the codes ``[N, D]``: 100 rounds, depth 3, rate 0.1.

    There is nothing random in it: same codes, same trees.

    >>> rng = np.random.default_rng(0)
    >>> factors = rng.integers(0, 4, size=(500, 2))
    >>> trees = boost(factors + 0.1 * rng.normal(size=(500, 2)), factors)
    >>> trees.importance.round(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> trees.predict(np.array([[0.2, 2.9]])).tolist()
    [[0, 3]]
    """
    classes = [np.unique(column) for column in factors.T]
    # one row of targets for each tree of a round; of two classes one tells the other
    kept = [values if len(values) > 2 else values[1:] for values in classes]
    widths = [len(values) for values in kept]
    rows = [
        torch.from_numpy(column == value) for column, values in zip(factors.T, kept, strict=True) for value in values
    ]
    targets = torch.stack(rows).float() if rows else torch.zeros(0, len(codes))
    share = targets.double().mean(1, keepdim=True)
    single = torch.cat([torch.full((width, 1), width == 1) for width in widths])
    prior = torch.where(single, torch.logit(share), share.log()).float()
    # A Newton step of the multinomial loss carries (k - 1) / k (Friedman's algorithm 6); the binary one does not.
    newton = torch.cat([torch.full((width, 1), (width - 1) / width if width > 1 else 1.0) for width in widths])

    histogram = _Histogram(codes)
    scores = prior.repeat(1, len(codes))
    importance = torch.zeros(codes.shape[1], len(scores), dtype=torch.float64)
    grown = []
    for _ in trange(ROUNDS if rows else 0, desc="boosting", disable=None, leave=False):
        residual = targets - _probabilities(scores, widths)
        code, edge, members, gains = histogram.grow(residual)
        leaf, size = _number(members), residual.abs()
        error, curvature = torch.zeros(2, len(scores), 2**DEPTH, dtype=torch.float64)
        error.scatter_add_(1, leaf, residual.double())
        curvature.scatter_add_(1, leaf, (size * (1 - size)).double())
        value = torch.where(curvature < 1e-150, 0, LEARNING_RATE * newton * error / curvature).float()
        scores += value.gather(1, leaf)
        importance += gains
        grown.append((code, edge, value))
    code, edge, value = (torch.stack(part) for part in zip(*grown, strict=True)) if grown else torch.zeros(3, 0)
    per_factor = torch.stack([part.sum(1) for part in importance.split(widths, dim=1)], dim=1)
    shares = torch.where(per_factor.sum(0) > 0, per_factor / per_factor.sum(0), 0).numpy()
    return Trees(classes, prior, histogram.edges, code, edge, value, shares)


class SklearnTrees(NamedTuple):
    """The same by the reference's classifier, one ``GradientBoostingClassifier`` for each factor that varies."""

    models: list[Any]
    importance: Floats

    def predict(self, codes: Floats) -> Ints:
        """The likeliest class of every factor: codes ``[N, D]`` to ``[N, F]``."""
        return np.stack([model.predict(codes) for model in self.models], axis=1)


def fit_trees(codes: Floats, factors: Ints, backend: Backend = "unknot", seed: int = 0) -> Trees | SklearnTrees:
    """Boosted trees that predict every factor ``[N, F]`` from the codes ``[N, D]``.

    Args:
        codes: to learn from.
        factors: to predict.
        backend: ``"unknot"`` for :func:`boost`, ``"sklearn"`` for the reference's ``GradientBoostingClassifier``.
        seed: of scikit-learn's trees, which break ties at random.
    """
    if backend == "unknot":
        return boost(codes, factors)
    if backend != "sklearn":
        raise ValueError(f"backend must be 'unknot' or 'sklearn', got {backend!r}.")
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import GradientBoostingClassifier

    importance = np.zeros((codes.shape[1], factors.shape[1]))
    models = []
    for column, factor in enumerate(factors.T):
        if (factor == factor[0]).all():  # the classifier refuses a single class
            models.append(DummyClassifier().fit(codes, factor))
            continue
        models.append(GradientBoostingClassifier(random_state=seed).fit(codes, factor))
        importance[:, column] = models[-1].feature_importances_.clip(min=0)  # rounding may leave -1e-19
    return SklearnTrees(models, importance)


class _Histogram:
    """Sums of residuals over the bins of every code: what finding the best threshold needs."""

    def __init__(self, codes: Floats) -> None:
        self.edges = _thresholds(codes)
        self.binned = _assign(codes, self.edges)
        # One bag for each bin of each code lists the samples in it: embedding_bag then sums over all bins at once.
        width = max(2, *(len(thresholds) + 1 for thresholds in self.edges))
        counts = torch.stack([row.bincount(minlength=width) for row in self.binned.int()])
        self.samples = self.binned.argsort(dim=1, stable=True).flatten()
        self.starts = counts.flatten().cumsum(0) - counts.flatten()
        self.counts = counts.cumsum(1).float()[:, :, None]

    def cumulated(self, values: Tensor) -> Tensor:
        """Sums of ``values`` ``[C, N]`` over the samples up to each bin: ``[D, bins, C]``."""
        sums = embedding_bag(self.samples, values.T.contiguous(), self.starts, mode="sum")
        return sums.unflatten(0, self.counts.shape[:2]).cumsum(1)

    def grow(self, residual: Tensor) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """One tree for each row of ``residual`` ``[C, N]``.

        Returns the codes and the edges ``[7, C]`` of its nodes, the samples of its 8 leaves ``[C, N]``, and by how much
        each code reduced the squared error ``[D, C]``.
        """
        gains = torch.zeros(len(self.edges), len(residual), dtype=torch.float64)
        sums = [self.cumulated(residual)]
        counts = [self.counts]
        members = [torch.ones(residual.shape, dtype=torch.bool)]
        codes, edges = [], []
        for level in range(DEPTH):
            if level:  # the left child is summed, the right one is the rest of its parent
                left = [member.float() for member in members[::2]]
                sums = _children(sums, [self.cumulated(member * residual) for member in left])
                counts = _children(counts, [self.cumulated(member) for member in left])
            best = [_best_split(*both, residual.shape[1]) for both in zip(sums, counts, strict=True)]
            code, edge, gain = (torch.stack(part) for part in zip(*best, strict=True))
            gains += gain.sum(0)
            members = _descend(members, self.binned, code, edge)
            codes.append(code)
            edges.append(edge)
        return torch.cat(codes), torch.cat(edges), members, gains


def _children(parents: list[Tensor], left: list[Tensor]) -> list[Tensor]:
    return [child for whole, part in zip(parents, left, strict=True) for child in (part, whole - part)]


def _best_split(sums: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The split of each tree that removes most squared error: its code, its edge, and how much of the mean it removes.

    Friedman's criterion is n_l n_r / n (mean_l - mean_r)² = (n S_l - n_l S)² / (n n_l n_r) for sums S and counts n.
    Among codes that would do equally well, such as copies of each other, scikit-learn draws one; here the first
    splits and all get the same share of the gain ``[D, C]``, which is the importance they have on average.
    """
    total, count, last = sums[0, -1], counts[0, -1], sums.shape[1] - 1
    best = []
    for left, left_count in zip(sums[:, :-1], counts[:, :-1], strict=True):  # one code fits the processor's cache
        product = left_count * (count - left_count)
        gains = (count * left - total * left_count).square_() / torch.where(product > 0, product, torch.inf)
        best.append(gains.max(0))
    by_code, edges = (torch.stack(part) for part in zip(*best, strict=True))
    value, code = by_code.max(0)
    gain = (value / count.clamp(min=1)).double() / n
    splits = gain > SMALLEST_GAIN
    edge = torch.where(splits, edges.gather(0, code[None])[0], last)  # no bin is later: all go left
    tied = by_code >= (1 - TIE) * value
    return torch.where(splits, code, 0), edge.to(torch.int16), torch.where(splits, gain / tied.sum(0), 0) * tied


def _descend(members: list[Tensor], binned: Tensor, code: Tensor, edge: Tensor) -> list[Tensor]:
    """Samples ``[C, N]`` of each child, left and right, of each node of a level."""
    children = []
    for member, codes, edges in zip(members, code, edge, strict=True):
        right = binned.index_select(0, codes) > edges[:, None]
        children += [member & ~right, member & right]
    return children


def _number(members: list[Tensor]) -> Tensor:
    """The leaf of each sample, from the samples of each leaf: int64 ``[C, N]``."""
    leaf = torch.zeros(members[0].shape, dtype=torch.uint8)
    for number, member in enumerate(members):
        leaf.add_(member.view(torch.uint8), alpha=number)
    return leaf.long()


def _thresholds(codes: Floats) -> list[Floats]:
    """Thresholds midway between neighbouring values of each code; where it has many, one for each quantile.

    Of the neighbours in a quantile the two that lie farthest apart are taken: where classes lie apart, a threshold is
    then between them, as scikit-learn's is.
    """
    edges = []
    for column in codes.T:
        values = np.unique(column)
        if len(codes) > EXACT and len(values) > BINS:
            gaps = np.diff(values)
            left = np.array([part[gaps[part].argmax()] for part in np.array_split(np.arange(len(gaps)), BINS - 1)])
        else:
            left = np.arange(len(values) - 1)
        edges.append(values[left] / 2 + values[left + 1] / 2)  # halved first: the sum of two large codes may overflow
    return edges


def _assign(codes: Floats, edges: list[Floats]) -> Tensor:
    """The bin of every code: ``[N, D]`` to int16 ``[D, N]``."""
    bins = [np.searchsorted(thresholds, column) for thresholds, column in zip(edges, codes.T, strict=True)]
    return torch.from_numpy(np.stack(bins).astype(np.int16))


def _probabilities(scores: Tensor, widths: list[int]) -> Tensor:
    parts = scores.split(widths)
    return torch.cat([part.sigmoid() if len(part) == 1 else part.softmax(0) for part in parts])


def _decide(scores: Tensor, classes: list[Ints]) -> Ints:
    """The class of each factor whose trees score highest: ``[C, N]`` to ``[N, F]``."""
    predicted, start = [], 0
    for values in classes:
        width = len(values) if len(values) > 2 else len(values) - 1
        part, start = scores[start : start + width], start + width
        rank = (part > 0).sum(0) if width <= 1 else part.argmax(0)
        predicted.append(values[rank.numpy()])
    return np.stack(predicted, axis=1)
