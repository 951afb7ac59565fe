"""Sets given by a function, and what is read as a set."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, is_sparse, norm, to_user
from unknot.solvers.atoms.base import Answer, AtomSet, below
from unknot.solvers.atoms.dictionary import Dictionary
from unknot.solvers.structured import Atom, Dense


class Custom(AtomSet):
    """A set given by one function: ``lmo(direction)`` returns the atom of the smallest inner product.

    Args:
        lmo: gets the direction as NumPy if the run is NumPy's, else as a tensor; returns an array of the same shape,
            or a pair of it and a lower bound on the minimum (``-math.inf`` if the answer may not be the best).
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
        tensor = as_tensor(answer, f"the atom that {name} returned")
        if tensor.shape != like.shape:
            raise ValueError(
                f"{name} returned an atom of shape {list(tensor.shape)} for a direction of shape {list(like.shape)}: "
                "expected the same shape."
            )
        return Dense(1.0, None, tensor.to(like).contiguous())

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """Ask the function; an answer without a bound is taken for the best there is."""
        answer = self._lmo(to_user(direction.clone(), self._numpy))
        if isinstance(answer, tuple) and len(answer) == 2 and np.ndim(answer[1]) == 0:
            return Answer(self._read(answer[0], direction, "the user's lmo"), float(answer[1]))
        atom = self._read(answer, direction, "the user's lmo")
        return Answer(atom, below(atom.inner(direction), direction, norm(atom.vector), direction.numel()))

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
    if isinstance(atoms, Tensor | np.ndarray | list | tuple) or is_sparse(atoms):
        return Dictionary(atoms)
    if callable(atoms):
        return Custom(atoms)
    raise ValueError(
        f"atoms is a {type(atoms).__name__}: expected a set from unknot.solvers.atoms, a matrix [d, n] with one "
        "atom in each column, or a function of a direction."
    )
