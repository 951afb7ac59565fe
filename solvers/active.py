"""The active set 𝒮: the atoms that make up an iterate, and their weights."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import to_user
from unknot.solvers.lines import Direction
from unknot.solvers.structured import Atom, Stack


class ActiveSet:
    """Atoms and weights with θ = Σ α_i z_i; a repeated atom is recognised, an atom of weight 0 is deleted.

    ``signed`` merges z and -z into one atom of either sign, as over a span.
    """

    def __init__(self, zero: Tensor, start: Sequence[tuple[float, Atom]] = (), *, signed: bool = False) -> None:
        self._zero, self._signed = zero, signed
        self._stack = Stack()
        self._positions: dict[Hashable, int] = {}
        self._weights = np.zeros(8)
        for weight, atom in start:
            self.add(atom, weight)

    def __len__(self) -> int:
        return len(self._stack)

    @property
    def atoms(self) -> list[Atom]:
        """The atoms z_i."""
        return self._stack.atoms

    @property
    def weights(self) -> np.ndarray:
        """The weights α_i ``[S]``, in float64."""
        return self._weights[: len(self._stack)]

    def _find(self, atom: Atom) -> tuple[int, float]:
        sign, kept = atom.unsigned() if self._signed else (1.0, atom)
        identity = kept.identity
        position = self._positions.get(identity)
        if position is None:
            position = len(self._stack)
            self._stack.append(kept)
            self._positions[identity] = position
            if position == len(self._weights):
                self._weights = np.concatenate([self._weights, np.zeros(position)])
            self._weights[position] = 0.0
        return position, sign

    def knows(self, atom: Atom) -> bool:
        """Whether an atom (over a span, or its negative) is active."""
        return (atom.unsigned()[1] if self._signed else atom).identity in self._positions

    def add(self, atom: Atom, weight: float) -> int:
        """α_z += weight; gives the place of z, which stays even if its weight is 0."""
        position, sign = self._find(atom)
        self._weights[position] += sign * weight
        return position

    def move(self, direction: Direction, step: float, dropped: Atom | None = None) -> None:
        """Weights of θ + γ d. A step to the boundary sets the weight of ``dropped`` to exactly 0 and deletes it."""
        if direction.iterate:
            factor = 1 + step * direction.iterate
            if factor <= 0:
                self.clear()
            else:
                self.weights[:] *= factor
        for weight, atom in direction.terms:
            position = self.add(atom, step * weight)
            if not self._signed and (self._weights[position] <= 0 or atom is dropped):
                self._delete(position)

    def clear(self) -> None:
        """No atoms."""
        self._stack = Stack()
        self._positions.clear()

    def _delete(self, position: int) -> None:
        last = len(self._stack) - 1
        del self._positions[self._stack.atoms[position].identity]
        if position != last:
            self._positions[self._stack.atoms[last].identity] = position
            self._weights[position] = self._weights[last]
        self._stack.remove(position)

    def set_weights(self, weights: Sequence[float] | np.ndarray) -> None:
        """New weights; atoms of weight 0 are deleted."""
        self.weights[:] = weights
        for position in np.flatnonzero(self.weights == 0)[::-1]:
            self._delete(int(position))

    def normalise(self) -> None:
        """Let the weights sum to 1 again, which rounding may have changed in the last digits."""
        self.weights[:] /= self.weights.sum()

    def scores(self, direction: Tensor) -> Tensor:
        """⟨direction, z_i⟩ ``[S]``."""
        return self._stack.inner(direction)

    def worst(self, gradient: Tensor) -> tuple[Atom, float]:
        """v = argmax_{v ∈ 𝒮} ⟨∇f, v⟩ and its weight."""
        position = int(self.scores(gradient).argmax())
        return self._stack.atoms[position], float(self._weights[position])

    def best(self, gradient: Tensor) -> tuple[Atom, Atom, float, float]:
        """s = argmin and v = argmax over 𝒮 of ⟨∇f, ·⟩, the weight of v, and ⟨∇f, v - s⟩."""
        scores = self.scores(gradient)
        low, high = int(scores.argmin()), int(scores.argmax())
        atoms = self._stack.atoms
        return atoms[low], atoms[high], float(self._weights[high]), float(scores[high]) - float(scores[low])

    def combine(self, weights: np.ndarray | None = None) -> Tensor:
        """Σ α_i z_i, with the set's weights or others."""
        values = torch.from_numpy(np.array(self.weights if weights is None else weights)).to(self._zero)
        return self._stack.combine(values, self._zero.shape)

    def export(self, numpy: bool, count: int | None) -> dict[str, Any]:
        """The fields of a result; coefficients where the set has ``count`` numbered atoms (columns, coordinates)."""
        weights = torch.from_numpy(self.weights.copy()).to(self._zero)
        fields = {"active": tuple(self.atoms), "weights": to_user(weights, numpy)}
        if count is not None and all(isinstance(atom.key, int) for atom in self.atoms):
            vector = np.zeros(count)
            keys = [atom.key for atom in self.atoms]
            np.add.at(vector, np.array(keys, dtype=int), self.weights * [atom.scale for atom in self.atoms])
            fields["coefficients"] = to_user(torch.from_numpy(vector).to(self._zero), numpy)
        return fields
