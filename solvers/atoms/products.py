"""Cartesian products of sets."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unknot.solvers.atoms.base import Answer, AtomSet, merged
from unknot.solvers.structured import Atom, Decomposition, Dense, OneHot, Sparse


class Product(AtomSet):
    """𝒜_1 × … × 𝒜_m: iterates are the blocks, flattened, one after the other; each set must know its shape.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L1Ball, Simplex
    >>> blocks = Product(L1Ball(2.0, dim=2), Simplex(1.0, dim=3))
    >>> blocks.lmo(np.array([1.0, -4.0, 3.0, 2.0, 5.0]))
    array([0., 2., 0., 1., 0.])
    """

    def __init__(self, *sets: AtomSet) -> None:
        if not sets:
            raise ValueError("a product needs at least one set.")
        self._shapes: list[tuple[int, ...]] = []
        for block in sets:
            if block.shape is None:
                raise ValueError(
                    f"{block} in a product has no shape: give its dimension, for example L1Ball(1.0, dim=5)."
                )
            self._shapes.append(block.shape)
        self.sets = sets
        self._sizes = [math.prod(shape) for shape in self._shapes]
        self.shape = (sum(self._sizes),)
        self.symmetric = all(block.symmetric for block in sets)
        self.radius = _root_of_squares([block.radius for block in sets])

    @property
    def diameter(self) -> float | None:  # type: ignore[override]
        """Of the blocks, together."""
        return _root_of_squares([block.diameter for block in self.sets])

    def blocks(self, x: Tensor) -> list[Tensor]:
        """x, block by block."""
        pieces = torch.split(x, self._sizes)
        return [piece.reshape(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def join(self, atoms: Sequence[Atom], like: Tensor) -> Atom:
        """One atom of the product from one of every block."""
        key = None
        if all(atom.key is not None for atom in atoms):
            key = tuple(atom.identity for atom in atoms)
        if all(isinstance(atom, OneHot) for atom in atoms):
            starts = np.cumsum([0, *self._sizes[:-1]])
            hot = [atom for atom in atoms if isinstance(atom, OneHot)]
            indices = torch.tensor([int(at) + atom.index for at, atom in zip(starts, hot, strict=True)])
            values = torch.tensor([atom.scale for atom in hot], dtype=like.dtype, device=like.device)
            return Sparse(1.0, key, indices=indices.to(like.device), values=values, shape=tuple(like.shape))
        return Dense(1.0, key, torch.cat([atom.dense().reshape(-1) for atom in atoms]))

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """Block by block; their bounds add up."""
        at = [None] * len(self.sets) if x is None else self.blocks(x)
        pairs = zip(self.sets, self.blocks(direction), at, strict=True)
        answers = [block.ask(piece, here, exact=exact) for block, piece, here in pairs]
        lower = (
            math.fsum(answer.lower for answer in answers) if all(a.lower > -math.inf for a in answers) else -math.inf
        )
        return Answer(self.join([answer.atom for answer in answers], direction), lower)

    def gauge(self, x: Tensor) -> float:
        """The largest of the blocks', where each contains the origin."""
        return max(block.gauge(piece) for block, piece in zip(self.sets, self.blocks(x), strict=True))

    def _contains(self, x: Tensor, tol: float) -> bool:
        return all(block.contains(piece, tol) for block, piece in zip(self.sets, self.blocks(x), strict=True))

    def _project(self, x: Tensor) -> Tensor:
        nearest = [block.project(piece) for block, piece in zip(self.sets, self.blocks(x), strict=True)]
        return torch.cat([piece.reshape(-1) for piece in nearest])

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Product":
        """Block by block."""
        return Product(*(block.bind(dtype, device, numpy) for block in self.sets))

    def decompose(self, x: Tensor) -> Decomposition:
        """Couple the blocks' decompositions, each a distribution over its atoms, by their quantiles."""
        parts = [block.decompose(piece) for block, piece in zip(self.sets, self.blocks(x), strict=True)]
        ends = [np.cumsum([weight for weight, _ in part]) for part in parts]
        levels = np.unique(np.concatenate([end / end[-1] for end in ends]))
        joined, before = [], 0.0
        for level in levels:
            middle = (before + level) / 2
            chosen = [
                part[int(np.searchsorted(end / end[-1], middle))][1] for part, end in zip(parts, ends, strict=True)
            ]
            joined.append((float(level - before), self.join(chosen, x)))
            before = level
        return merged(joined)

    def sample(self, like: Tensor, generator: torch.Generator) -> Atom:
        """Block by block."""
        drawn = [block.sample(piece, generator) for block, piece in zip(self.sets, self.blocks(like), strict=True)]
        return self.join(drawn, like)

    def __str__(self) -> str:
        return f"Product({', '.join(map(str, self.sets))})"


def _root_of_squares(sizes: Sequence[float | None]) -> float | None:
    known = [size for size in sizes if size is not None]
    return math.sqrt(sum(size**2 for size in known)) if len(known) == len(sizes) else None
