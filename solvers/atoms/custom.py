"""Sets given by a function, and what is read as a set."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, csr_tensor, is_array, is_sparse, to_user
from unknot.solvers.atoms.base import Answer, AtomSet, below
from unknot.solvers.atoms.dictionary import Dictionary
from unknot.solvers.structured import Atom, Dense, Sparse


class Custom(AtomSet):
    """A set given by one function: ``lmo(direction)`` returns the atom of the smallest inner product.

    Args:
        lmo: gets the direction as NumPy if the run is NumPy's, else as a tensor; returns an array of the same shape,
            dense or sparse (of which memory and steps then take as little), or a pair of it and a lower bound on the
            minimum (``-math.inf`` if the answer may not be the best).
        symmetric: whether -z is in the set with every z.
        shape: of the atoms, if it should be checked.
        radius: max ‖z‖, and ``diameter`` max ‖z - z'‖, if known; the step "diameter" needs the latter.
        diameter: see ``radius``.
        sample: function of a ``torch.Generator`` that returns a random atom, for random pursuit.

    >>> import numpy as np
    >>> box = Custom(lambda d: -np.sign(d), symmetric=True)
    >>> box.lmo(np.array([0.5, -3.0]))
    array([-1.,  1.])
    """

    def __init__(
        self,
        lmo: Callable[[Any], Any],
        *,
        symmetric: bool = False,
        shape: Sequence[int] | None = None,
        radius: float | None = None,
        diameter: float | None = None,
        sample: Callable[[torch.Generator], Any] | None = None,
    ) -> None:
        if not callable(lmo):
            raise ValueError(f"lmo is a {type(lmo).__name__}: expected a function of a direction that returns an atom.")
        self._lmo, self._sample = lmo, sample
        self._numpy = False
        self.symmetric = symmetric
        self.shape = None if shape is None else tuple(shape)
        self.radius = radius
        self.diameter = 2 * radius if diameter is None and radius is not None else diameter

    def _read(self, answer: Any, like: Tensor, name: str) -> Dense:
        if is_sparse(answer):
            return self._sparse(answer, like, name)
        tensor = as_tensor(answer, f"the atom that {name} returned")
        self._check(tensor.shape, like, name)
        return Dense(1.0, None, tensor.to(like).contiguous())

    def _sparse(self, answer: Any, like: Tensor, name: str) -> Sparse:
        """By its entries; SciPy's have two dimensions, so that a row or column stands for a vector."""
        tensor = answer if isinstance(answer, Tensor) else csr_tensor(answer)
        vector = like.ndim == 1 and tensor.ndim == 2 and 1 in tensor.shape
        self._check((tensor.shape.numel(),) if vector else tensor.shape, like, name)
        entries = tensor.detach().to_sparse_coo().coalesce()
        strides = torch.tensor([math.prod(tensor.shape[axis + 1 :]) for axis in range(tensor.ndim)])
        flat = (entries.indices().cpu() * strides[:, None]).sum(0).to(like.device)
        values = as_tensor(entries.values(), f"the atom that {name} returned").to(like)
        return Sparse(1.0, None, indices=flat, values=values, shape=tuple(like.shape))

    @staticmethod
    def _check(shape: Sequence[int], like: Tensor, name: str) -> None:
        if tuple(shape) != tuple(like.shape):
            raise ValueError(
                f"{name} returned an atom of shape {list(shape)} for a direction of shape {list(like.shape)}: "
                "expected the same shape."
            )

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """Ask the function; an answer without a bound is taken for the best there is."""
        answer = self._lmo(to_user(direction.clone(), self._numpy))
        if isinstance(answer, tuple) and len(answer) == 2 and np.ndim(answer[1]) == 0:
            return Answer(self._read(answer[0], direction, "the user's lmo"), float(answer[1]))
        atom = self._read(answer, direction, "the user's lmo")
        return Answer(atom, below(atom.inner(direction), direction, math.sqrt(atom.squared_norm), direction.numel()))

    def sample(self, like: Tensor, generator: torch.Generator) -> Atom:
        """Ask the user's sampler."""
        if self._sample is None:
            return super().sample(like, generator)
        return self._read(self._sample(generator), like, "the user's sampler")

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Custom":
        """Remember what kind of array the function gets."""
        bound = copy.copy(self)
        bound._numpy = numpy
        return bound


def as_atoms(atoms: Any) -> AtomSet:
    """An atom set; a matrix is read as the dictionary of its columns, a function as a user-defined oracle."""
    if isinstance(atoms, AtomSet):
        return atoms
    if is_array(atoms) or is_sparse(atoms):
        return Dictionary(atoms)
    if callable(atoms):
        return Custom(atoms)
    raise ValueError(
        f"atoms is a {type(atoms).__name__}: expected a set from unknot.solvers.atoms, a matrix [d, n] with one "
        "atom in each column, or a function of a direction."
    )
