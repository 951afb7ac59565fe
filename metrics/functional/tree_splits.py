"""Exact search for the best threshold of every node of many regression trees at once.

For each code, a tree looks for the threshold between neighbouring values that removes most squared error. Samples in
the order of a code are cut into small blocks. The sums of a block bound the gain of any threshold inside it, and only
blocks that could contain the best one are searched sample by sample: a few in a hundred.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from unknot.metrics.functional.checks import Floats

DEPTH = 3
BLOCK = 16  # approximate number of samples
MOST_BLOCKS = 320  # beyond 5,120 samples blocks grow: about as many blocks as samples per block is fastest
TIE = 1e-5  # splits whose gains differ by less than this share of the best are equally good
SAMPLE = 100  # approximate number of residuals whose median stands for that of all
ROUNDING = 1e-13  # share of the squared sum of residuals that rounding in single precision can "gain"


class Tree(NamedTuple):
    """One tree for each of ``C`` columns of residuals."""

    code: Tensor  # [7, C] code that a node compares
    edge: Tensor  # [7, C] samples in later bins of that code go right
    leaf: Tensor  # int64 [N, C], 0 to 7
    gains: Tensor  # [D, C] reduction of the mean squared error by each code


class Splitter:
    """Search for the splits of trees over the same codes ``[N, D]``."""

    def __init__(self, codes: Floats) -> None:
        self.edges = thresholds(codes)
        self.values = assign(codes, self.edges)
        self.bins = self.values.long()
        n, width = codes.shape
        self.block_size = max(BLOCK, -(-n // MOST_BLOCKS))
        order = self.bins.T.argsort(dim=1, stable=True)
        parts = [_blocks(self.bins[:, d][samples].numpy(), self.block_size) for d, samples in enumerate(order)]
        self.num_blocks = max(len(starts) for starts in parts)
        padded = np.stack([np.pad(starts, (0, self.num_blocks - len(starts)), constant_values=n) for starts in parts])
        self.samples = order.flatten().int()
        self.starts = torch.from_numpy(padded + n * np.arange(width)[:, None]).flatten().int()
        ends = np.append(padded[:, 1:], np.full((width, 1), n), axis=1)
        self.counts = torch.from_numpy(ends - padded).float()[:, :, None]
        self._table(order, padded, ends)

    def _table(self, order: Tensor, starts: Floats, ends: Floats) -> None:
        """Return the samples of each block, padded with N, and the bin of each, for the search inside blocks."""
        n, width = self.bins.shape
        sorted_bins = self.bins.T.gather(1, order)
        self.last_bin = sorted_bins.gather(1, torch.from_numpy(np.clip(ends - 1, 0, n - 1)))  # [D, blocks]
        # A block of one bin contains no threshold; such a block may be large, and is never searched.
        self.parted = sorted_bins.gather(1, torch.from_numpy(np.clip(starts, 0, n - 1))) != self.last_bin
        self.parted &= torch.from_numpy(ends > starts)
        longest = int(((ends - starts) * self.parted.numpy()).max())
        inside = torch.from_numpy(starts)[:, :, None] + torch.arange(max(longest, 1))
        there = inside < torch.from_numpy(ends)[:, :, None]
        inside = inside.clamp(max=n - 1).view(width, -1)
        blocks = self.num_blocks * width
        self.members = torch.where(there.view(width, -1), order.gather(1, inside), n).view(blocks, -1)
        bins = sorted_bins.gather(1, inside).view(blocks, -1)
        # there is no threshold between two samples of one bin; the one after a block follows from its sums
        between = torch.zeros_like(bins, dtype=torch.bool)
        between[:, :-1] = (bins[:, :-1] != bins[:, 1:]) & there.view(blocks, -1)[:, 1:]
        self.member_bins, self.between = bins, between.float()

    def sums(self, values: Tensor) -> Tensor:
        """Return the sums of ``values`` ``[N, C]`` over the samples of each block: ``[D, blocks, C]``."""
        return embedding_bag(self.samples, values, self.starts, mode="sum").unflatten(0, (-1, self.num_blocks))

    def grow(self, residual: Tensor, generator: torch.Generator) -> Tree:
        """Grow one tree for each column of ``residual`` ``[N, C]``; ``generator`` breaks ties between codes."""
        n, width = residual.shape
        node = torch.zeros(n, width)
        padded = torch.cat([residual, residual.new_zeros(1, width)])
        outside = torch.full((1, width), 255, dtype=torch.uint8)  # the padding of blocks is in no node
        gains = torch.zeros(len(self.edges), width, dtype=torch.float64)
        centre = residual[:: max(1, n // SAMPLE)].median(0).values
        # for each node of a level, 0 outside of it: residuals, distances from the centre, membership
        parts: list[tuple[Tensor, ...]] = [(residual, (residual - centre).abs_(), torch.ones_like(residual))]
        blocks = _Blocks(self.sums(residual), self.sums(parts[0][1]), self.counts.expand(-1, -1, width))
        codes, edges = [], []
        for level in range(DEPTH):
            sizes = torch.cat([part.abs().sum(0) for part, _, _ in parts])
            bounds = blocks.bounds(self.parted, centre, sizes)
            code, edge, gain = self._best(bounds, padded, torch.cat([node.byte(), outside]), generator)
            gains += gain.unflatten(1, (-1, width)).sum(1) / n
            codes.append(code.view(-1, width))
            edges.append(edge.view(-1, width))
            rights = [goes_right(self.values, *split) for split in zip(codes[-1], edges[-1], strict=True)]
            node.mul_(2)
            for (_, _, member), right in zip(parts, rights, strict=True):
                node.addcmul_(member, right)
            if level + 1 < DEPTH:
                parts = [child for part, right in zip(parts, rights, strict=True) for child in _halve(part, right)]
                blocks = self._children(blocks, parts)
        return Tree(torch.cat(codes), torch.cat(edges), node.long(), gains)

    def _children(self, parents: "_Blocks", parts: list[tuple[Tensor, ...]]) -> "_Blocks":
        """Return the sums of both children of each node.

        Right children are the difference from the parent, except for residuals, where a difference would be rounding
        error.
        """
        width = parts[0][0].shape[1]
        sums = torch.cat([self.sums(residual) for residual, _, _ in parts], dim=2)

        def both(which: int, whole: Tensor) -> Tensor:
            lefts = [self.sums(part[which]) for part in parts[::2]]
            wholes = whole.split(width, dim=2)
            pairs = zip(lefts, wholes, strict=True)
            return torch.cat([child for left, all_ in pairs for child in (left, all_ - left)], dim=2)

        return _Blocks(sums, both(1, parents.sizes).clamp_(min=0), both(2, parents.counts))

    def _best(
        self, bounds: "_Bounds", residual: Tensor, node: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return code and edge ``[K]`` of the best split of each node, and the squared error it removes, by code ``[D,
        K]``.

        Among equally good codes, such as copies of each other, scikit-learn draws one at random. So does this function,
        but all of them receive the same share of the gain, which is their importance on average.
        """
        codes, columns, gains, bins = self._look_inside(bounds, residual, node)
        ends = bounds.gain
        by_code = ends.amax(1)
        by_code.flatten().scatter_reduce_(0, codes * by_code.shape[1] + columns, gains, "amax")
        best = by_code.amax(0)
        splits = best > bounds.floor
        tied = by_code >= (1 - TIE) * best
        lots = torch.rand(len(by_code), len(best) // residual.shape[1], 1, generator=generator)
        lots = lots.expand(-1, -1, residual.shape[1]).flatten(1)  # one order: columns stay independent
        code = torch.where(splits, torch.where(tied, lots, -1).argmax(0), 0)
        column = torch.arange(len(best))
        enough = (1 - TIE) * by_code[code, column]
        # the lowest of equally good thresholds of the code, at the end of a block or inside
        last = len(self.bins)
        edge = torch.where(ends[code, :, column] >= enough[:, None], self.last_bin[code], last).amin(1)
        hit = (codes == code[columns]) & (gains >= enough[columns])
        edge.scatter_reduce_(0, columns[hit], bins[hit], "amin")
        edge = torch.where(splits, edge, last)  # no bin is later: all samples go left
        gain = torch.where(splits, best * bounds.total / tied.sum(0), 0) * tied
        return code, edge.float(), gain.double()

    def _look_inside(self, bounds: "_Bounds", residual: Tensor, node: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Search inside each block that may contain the best threshold: return its code, column, gain and bin."""
        width, columns = residual.shape[1], bounds.gain.shape[2]
        places = bounds.open.flatten().nonzero()[:, 0]
        block = places // columns
        column = places - block * columns
        number = column // width
        before = (block + block // self.num_blocks) * columns + column  # sums have an extra row for each code
        cells = (self.members.index_select(0, block) * width).add_((column - number * width)[:, None]).flatten()
        member = (
            node.flatten().index_select(0, cells).view(len(block), self.members.shape[1]) == number[:, None]
        ).float()
        values = residual.flatten().index_select(0, cells).view(len(block), self.members.shape[1])
        left = member.cumsum(1).add_(bounds.counts.flatten().index_select(0, before)[:, None])
        total = values.sub_(bounds.mean[column][:, None]).mul_(member).cumsum(1)
        total.add_(bounds.sums.flatten().index_select(0, before)[:, None])
        room = (bounds.total[column][:, None] - left).mul_(left).clamp_(min=1)
        gain = total.square_().div_(room).mul_(self.between.index_select(0, block))
        best = gain.amax(1)
        at = (gain >= (1 - TIE) * best[:, None]).byte().argmax(1)  # the lowest of equally good thresholds
        return block // self.num_blocks, column, best, self.member_bins[block, at]


class _Bounds(NamedTuple):
    """Gains of thresholds at the ends of blocks, and the blocks that may contain a better one, for K nodes."""

    gain: Tensor  # [D, blocks, K] T² / (n_left n_right), to be multiplied by the count of the node
    open: Tensor  # [D, blocks, K]
    sums: Tensor  # [D, blocks + 1, K] T of the samples before a block
    counts: Tensor  # [D, blocks + 1, K] number of samples before a block
    mean: Tensor  # [K] mean of the residuals of a node
    total: Tensor  # [K] samples of a node
    floor: Tensor  # [K] gain that rounding can cause


class _Blocks(NamedTuple):
    """Sums over blocks ``[D, blocks, K]`` of the samples of K nodes: residuals, their distances from the centre, and
    counts.
    """

    sums: Tensor
    sizes: Tensor
    counts: Tensor

    def bounds(self, parted: Tensor, centre: Tensor, sizes: Tensor) -> _Bounds:
        """Bound the gain of thresholds inside blocks by Friedman's criterion n T² / (n_l n_r).

        T is the sum of the residuals to the left of a threshold, less the mean of the node.

        Inside a block, T goes from its value before, a, to its value after, b, in steps whose sizes add up to at most A
        and so stays within (|a + b| + A) / 2. ``centre`` ``[C]`` is a value close to most residuals of a column, so
        that A is small in most blocks, and 0 if all are equal; ``sizes`` ``[K]`` are sums of absolute values.
        """
        count = self.counts[0].sum(0)
        centre = centre.repeat(len(count) // len(centre))
        mean = self.sums[0].sum(0, dtype=torch.float64).div_(count.clamp(min=1)).float()
        fewest = (count - 1).clamp(min=1)  # n_l n_r is at least n - 1
        distance = (mean - centre).abs_()
        gain, limit = torch.empty_like(self.sums), torch.empty_like(self.sums)
        sums, counts = _room_before(self.sums), _room_before(self.counts)
        best = torch.zeros_like(mean)
        for code, here in enumerate(self.sums):  # one at a time, so that intermediate results stay in the cache
            total, number = sums[code], counts[code]
            torch.cumsum(torch.addcmul(here, self.counts[code], -mean), 0, out=total[1:])
            torch.cumsum(self.counts[code], 0, out=number[1:])
            inverse = torch.addcmul(number * count, number, number, value=-1).clamp_(min=fewest).reciprocal_()
            torch.mul(total[1:].square(), inverse[1:], out=gain[code])
            best = torch.maximum(best, gain[code].amax(0))
            reach = (total[1:] + total[:-1]).abs_().add_(self.sizes[code]).addcmul_(self.counts[code], distance)
            torch.mul(reach.square_(), torch.maximum(inverse[1:], inverse[:-1]), out=limit[code])
        floor = ROUNDING * sizes.square() / fewest
        least = torch.maximum((1 - 2 * TIE) * best, floor).clamp_(min=1e-30)
        opened = (limit >= 4 * least).logical_and_(self.counts > 1)
        return _Bounds(gain, opened.logical_and_(parted[:, :, None]), sums, counts, mean, count, floor)


def _room_before(values: Tensor) -> Tensor:
    """Return an array for sums over all earlier blocks, with a row of zeros first: ``[D, blocks + 1, K]``."""
    sums = values.new_empty(values.shape[0], values.shape[1] + 1, values.shape[2])
    sums[:, 0] = 0
    return sums


def _halve(part: tuple[Tensor, ...], goes: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Split samples ``[N, C]`` into those of the left and of the right child, 0 elsewhere."""
    right = tuple(values * goes for values in part)
    return tuple(values - rest for values, rest in zip(part, right, strict=True)), right


def goes_right(bins: Tensor, code: Tensor, edge: Tensor) -> Tensor:
    """Return 1 for samples that go right at one node of each tree, else 0: bins ``[N, D]``, nodes ``[C]`` to ``[N,
    C]``.

    A product with a matrix of zeros and ones is the fastest way to select columns, and floats are several times as fast
    as booleans.
    """
    picked = torch.zeros(bins.shape[1], len(code)).scatter_(0, code[None], 1)
    return (bins @ picked).gt_(edge)


def _blocks(bins: Floats, size: int) -> Floats:
    """Return the starts of blocks of sorted samples, given their bins; samples of a bin stay together.

    A block has fewer than ``2 * size`` samples, unless it is one bin.
    """
    starts = np.flatnonzero(np.append(True, bins[1:] != bins[:-1]))
    large = np.diff(np.append(starts, len(bins))) > size
    apart = large | np.append(True, large[:-1]) | np.append(True, np.diff(starts // size) > 0)
    return starts[apart]


def thresholds(codes: Floats) -> list[Floats]:
    """Thresholds midway between neighbouring values of each code."""
    columns = [np.unique(column) for column in codes.T]
    # halved first: the sum of two large codes may overflow
    return [values[:-1] / 2 + values[1:] / 2 for values in columns]


def assign(codes: Floats, edges: list[Floats]) -> Tensor:
    """Return the bin of every code as a float, exact up to 16 million: ``[N, D]``."""
    bins = [np.searchsorted(limits, column) for limits, column in zip(edges, codes.T, strict=True)]
    return torch.from_numpy(np.stack(bins, axis=1)).float()


def descend(bins: Tensor, code: Tensor, edge: Tensor) -> Tensor:
    """Return the leaf of every sample in one round of trees: bins ``[N, D]``, nodes ``[7, C]`` to int64 ``[N, C]``."""
    leaf = torch.zeros(len(bins), code.shape[1])
    parts: list[tuple[Tensor, ...]] = [(torch.ones_like(leaf),)]
    for level in range(DEPTH):
        nodes = range(2**level - 1, 2 ** (level + 1) - 1)
        halves = [
            _halve(part, goes_right(bins, code[node], edge[node])) for part, node in zip(parts, nodes, strict=True)
        ]
        leaf = 2 * leaf + sum(right[0] for _, right in halves)
        parts = [half for both in halves for half in both]
    return leaf.long()
