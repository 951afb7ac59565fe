"""The best threshold of every node of many regression trees at once, as exact as trying them all.

A tree asks, for each code, which threshold between neighbouring values removes most squared error. Samples in the order
of a code are cut into small blocks. The sums of a block bound what any threshold inside it can remove, and only blocks
that could hold the best one are looked into sample by sample: a few in a hundred.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from unknot.metrics.functional.checks import Floats

DEPTH = 3
BLOCK = 16  # samples, about
MOST_BLOCKS = 320  # beyond 5,120 samples blocks grow: as many sums as samples in a block is about the best
TIE = 1e-5  # splits whose gains differ by less than this share of the best are equally good
SAMPLE = 100  # residuals, about, whose median is that of all to look at
ROUNDING = 1e-13  # of the squared sum of residuals: what single precision alone can "gain"


class Tree(NamedTuple):
    """One tree for each of ``C`` columns of residuals."""

    code: Tensor  # [7, C] which code a node looks at
    edge: Tensor  # [7, C] samples in later bins of that code go right
    leaf: Tensor  # int64 [N, C], 0 to 7
    gains: Tensor  # [D, C] by how much each code reduced the mean squared error


class Splitter:
    """Finds the splits of trees over the same codes ``[N, D]``."""

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
        """The samples of each block, padded with N, and the bin of each: what looking into a block needs."""
        n, width = self.bins.shape
        sorted_bins = self.bins.T.gather(1, order)
        self.last_bin = sorted_bins.gather(1, torch.from_numpy(np.clip(ends - 1, 0, n - 1)))  # [D, blocks]
        # A block of one bin has no threshold inside; such a block may be large, and is never looked into.
        self.parted = sorted_bins.gather(1, torch.from_numpy(np.clip(starts, 0, n - 1))) != self.last_bin
        self.parted &= torch.from_numpy(ends > starts)
        longest = int(((ends - starts) * self.parted.numpy()).max())
        inside = torch.from_numpy(starts)[:, :, None] + torch.arange(max(longest, 1))
        there = inside < torch.from_numpy(ends)[:, :, None]
        inside = inside.clamp(max=n - 1).view(width, -1)
        blocks = self.num_blocks * width
        self.members = torch.where(there.view(width, -1), order.gather(1, inside), n).view(blocks, -1)
        bins = sorted_bins.gather(1, inside).view(blocks, -1)
        # between two samples of one bin there is no threshold; the one after a block is known from its sums
        between = torch.zeros_like(bins, dtype=torch.bool)
        between[:, :-1] = (bins[:, :-1] != bins[:, 1:]) & there.view(blocks, -1)[:, 1:]
        self.member_bins, self.between = bins, between.float()

    def sums(self, values: Tensor) -> Tensor:
        """Sums of ``values`` ``[N, C]`` over the samples of each block: ``[D, blocks, C]``."""
        return embedding_bag(self.samples, values, self.starts, mode="sum").unflatten(0, (-1, self.num_blocks))

    def grow(self, residual: Tensor, generator: torch.Generator) -> Tree:
        """One tree for each column of ``residual`` ``[N, C]``; ``generator`` breaks ties between codes."""
        n, width = residual.shape
        node = torch.zeros(n, width)
        padded = torch.cat([residual, residual.new_zeros(1, width)])
        outside = torch.full((1, width), 255, dtype=torch.uint8)  # the padding of blocks is in no node
        gains = torch.zeros(len(self.edges), width, dtype=torch.float64)
        centre = residual[:: max(1, n // SAMPLE)].median(0).values
        # of each node of a level, 0 outside of it: residuals, how far they are from the centre, who is in it
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
        """Sums of both children of each node; of right ones the rest, but of residuals a rest would be rounding."""
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
        """Code and edge ``[K]`` of the best split of each node, and the squared error it removes, by code ``[D, K]``.

        Among codes that would do equally well, such as copies of each other, scikit-learn draws one. So does this; all
        of them get the same share of the gain, which is the importance they have on average.
        """
        codes, columns, gains, bins = self._look_inside(bounds, residual, node)
        ends = bounds.gain
        by_code = ends.amax(1)
        by_code.flatten().scatter_reduce_(0, codes * by_code.shape[1] + columns, gains, "amax")
        best = by_code.amax(0)
        splits = best > bounds.floor
        tied = by_code >= (1 - TIE) * best
        lots = torch.rand(len(by_code), len(best) // residual.shape[1], 1, generator=generator)
        lots = lots.expand(-1, -1, residual.shape[1]).flatten(1)  # one order for all columns: they must not need others
        code = torch.where(splits, torch.where(tied, lots, -1).argmax(0), 0)
        column = torch.arange(len(best))
        enough = (1 - TIE) * by_code[code, column]
        # the lowest of equally good thresholds of the code, at the end of a block or inside one
        last = len(self.bins)
        edge = torch.where(ends[code, :, column] >= enough[:, None], self.last_bin[code], last).amin(1)
        hit = (codes == code[columns]) & (gains >= enough[columns])
        edge.scatter_reduce_(0, columns[hit], bins[hit], "amin")
        edge = torch.where(splits, edge, last)  # no bin is later: all go left
        gain = torch.where(splits, best * bounds.total / tied.sum(0), 0) * tied
        return code, edge.float(), gain.double()

    def _look_inside(self, bounds: "_Bounds", residual: Tensor, node: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The best threshold inside each block that may hold the best of all: its code, column, gain and bin."""
        width, columns = residual.shape[1], bounds.gain.shape[2]
        places = bounds.open.flatten().nonzero()[:, 0]
        block = places // columns
        column = places - block * columns
        number = column // width
        before = (block + block // self.num_blocks) * columns + column  # sums have one more row for each code
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
        at = (gain >= (1 - TIE) * best[:, None]).byte().argmax(1)  # the lowest of equally good ones
        return block // self.num_blocks, column, best, self.member_bins[block, at]


class _Bounds(NamedTuple):
    """Gains of thresholds at the ends of blocks, and the blocks that may hold a better one inside, for K nodes."""

    gain: Tensor  # [D, blocks, K] T² / (n_left n_right), to be multiplied by the count of the node
    open: Tensor  # [D, blocks, K]
    sums: Tensor  # [D, blocks + 1, K] T of what lies before a block
    counts: Tensor  # [D, blocks + 1, K] and how many samples
    mean: Tensor  # [K] of the residuals of a node
    total: Tensor  # [K] samples of a node
    floor: Tensor  # [K] what rounding can gain


class _Blocks(NamedTuple):
    """Sums over blocks ``[D, blocks, K]`` of the samples of K nodes: residuals, how far they are from the centre of
    their column, their number."""

    sums: Tensor
    sizes: Tensor
    counts: Tensor

    def bounds(self, parted: Tensor, centre: Tensor, sizes: Tensor) -> _Bounds:
        """Friedman's criterion is n T² / (n_l n_r), where T is the sum of what is left, less the mean of the node.

        Inside a block T goes from its value before, a, to its value after, b, in steps that add up to no more than A in
        size; it stays within (|a + b| + A) / 2. ``centre`` ``[C]`` is what most residuals of a column are close to, so
        that A is small in most blocks, and 0 where they are all alike; ``sizes`` ``[K]`` are sums of absolute values.
        """
        count = self.counts[0].sum(0)
        centre = centre.repeat(len(count) // len(centre))
        mean = self.sums[0].sum(0, dtype=torch.float64).div_(count.clamp(min=1)).float()
        fewest = (count - 1).clamp(min=1)  # n_l n_r is at least n - 1
        distance = (mean - centre).abs_()
        gain, limit = torch.empty_like(self.sums), torch.empty_like(self.sums)
        sums, counts = _room_before(self.sums), _room_before(self.counts)
        best = torch.zeros_like(mean)
        for code, here in enumerate(self.sums):  # one at a time: what is between stays in the cache
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
    """Return an array for sums of all blocks before each, zero before the first: ``[D, blocks + 1, K]``."""
    sums = values.new_empty(values.shape[0], values.shape[1] + 1, values.shape[2])
    sums[:, 0] = 0
    return sums


def _halve(part: tuple[Tensor, ...], goes: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the parts of each sample ``[N, C]`` in the left and in the right child, 0 outside of them."""
    right = tuple(values * goes for values in part)
    return tuple(values - rest for values, rest in zip(part, right, strict=True)), right


def goes_right(bins: Tensor, code: Tensor, edge: Tensor) -> Tensor:
    """1 for samples that go right at one node of each tree, else 0: float bins ``[N, D]``, nodes ``[C]`` to ``[N, C]``.

    A product with a matrix of zeros and ones is the quickest way to pick columns; and floats, of which arithmetic
    chooses, are several times as quick as booleans.
    """
    picked = torch.zeros(bins.shape[1], len(code)).scatter_(0, code[None], 1)
    return (bins @ picked).gt_(edge)


def _blocks(bins: Floats, size: int) -> Floats:
    """Where blocks of sorted samples start, given their bins: samples of a bin stay together.

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
    """The bin of every code as a float, exact up to 16 million: ``[N, D]``."""
    bins = [np.searchsorted(limits, column) for limits, column in zip(edges, codes.T, strict=True)]
    return torch.from_numpy(np.stack(bins, axis=1)).float()


def descend(bins: Tensor, code: Tensor, edge: Tensor) -> Tensor:
    """The leaf of every sample in one round of trees: bins ``[N, D]``, nodes ``[7, C]`` to int64 ``[N, C]``."""
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
