"""Structured atoms: a signed coordinate, a rank-one matrix, a column; stacks of them, and the active set of a run.

An atom knows how to be added to an iterate and multiplied with a direction at the cost of its own entries.
"""

import dataclasses
import difflib
import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

if TYPE_CHECKING:
    from unknot.solvers.lines import Direction


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix of SciPy or torch."""
    if isinstance(value, Tensor):
        return value.layout != torch.strided
    return hasattr(value, "tocsr") and not isinstance(value, np.ndarray)


def as_tensor(value: Any, name: str) -> Tensor:
    """A floating tensor of a dense array, tensor or (nested) list of finite numbers; shares memory where it can."""
    if is_sparse(value) or hasattr(value, "matvec"):
        raise ValueError(f"{name} is a {type(value).__name__}: expected a dense array here; call its toarray() first.")
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        try:
            array = np.asarray(value)  # of a pandas DataFrame too
            if not array.flags.writeable or any(stride < 0 for stride in array.strides):
                array = array.copy()
            tensor = torch.as_tensor(array)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} cannot be read as numbers ({error}): pass a NumPy array or a torch tensor."
            ) from error
    if tensor.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(
            f"{name} is {str(tensor.dtype)[6:]}, too coarse for certificates: expected float32 or float64, so convert "
            "it first, for example with astype('float32') or .float()."
        )
    if tensor.is_complex():
        raise ValueError(f"{name} is complex: expected real numbers, so pass its real part or its modulus.")
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    if not is_finite(tensor):
        raise ValueError(f"{name} has non-finite entries: expected finite numbers, so remove NaN and inf first.")
    return tensor


def is_array(value: Any) -> bool:
    """Return whether a value is read as numbers: NumPy, torch, a list, or an object with `__array__`."""
    return isinstance(value, Tensor | np.ndarray | list | tuple) or hasattr(value, "__array__")


def is_finite(tensor: Tensor) -> bool:
    """Return whether all entries are finite; their sum says so in one pass over memory, unless it overflows."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def returns_numpy(*values: Any) -> bool:
    """Return whether results should be NumPy arrays: something was given, and no part of it was a torch tensor."""
    given = [value for value in values if value is not None]
    return bool(given) and not any(isinstance(value, Tensor) for value in given)


def to_user(tensor: Tensor, numpy: bool) -> Any:
    """A tensor in the caller's kind."""
    return tensor.detach().cpu().numpy() if numpy else tensor


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩, summed in double precision."""
    if a.dtype != torch.float64 or b.dtype != torch.float64:
        a, b = a.double(), b.double()
    return float(torch.dot(a.reshape(-1), b.reshape(-1)))


def norm(x: Tensor) -> float:
    """‖x‖₂ of an array of any shape."""
    return float(torch.linalg.vector_norm(x))


def csr_tensor(matrix: Any) -> Tensor:
    """A SciPy matrix as a torch CSR tensor of floating type."""
    matrix = scipy.sparse.csr_matrix(matrix)
    if np.iscomplexobj(matrix):
        raise ValueError("a sparse matrix is complex: expected real numbers, so pass its real part or its modulus.")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    matrix.sum_duplicates()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data.copy()),
            size=matrix.shape,
            check_invariants=False,
        )


def choose(name: Any, choices: Sequence[str], what: str) -> str:
    """A choice by name, whatever its hyphens; a clear error for anything else.

    >>> choose("Away_Steps", ["plain", "away-steps"], "variant")
    'away-steps'
    """
    key = str(name).replace("_", "-").replace(" ", "-").lower()
    if key in choices:
        return key
    close = difflib.get_close_matches(key, choices, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"{what} {name!r} is unknown: expected one of {', '.join(choices)}{hint}")


AnyAtom = TypeVar("AnyAtom", bound="Atom")


@dataclass(frozen=True, eq=False)
class Atom(ABC):
    """An element z = scale · base of an atom set; ``key`` names the base (a column, a coordinate) if it has a name."""

    scale: float
    key: Hashable | None

    @abstractmethod
    def inner(self, direction: Tensor) -> float:
        """⟨direction, z⟩."""

    @abstractmethod
    def add_to(self, x: Tensor, weight: float) -> None:
        """x += weight · z, in place; x is contiguous."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The atom as an array."""

    @property
    @abstractmethod
    def squared_norm(self) -> float:
        """‖z‖²."""

    @abstractmethod
    def parts(self) -> tuple[Tensor, ...]:
        """Arrays that a :class:`Stack` keeps of it."""

    @staticmethod
    @abstractmethod
    def inner_all(parts: Sequence[Tensor], direction: Tensor) -> Tensor:
        """⟨direction, z_i⟩ ``[S]`` for stacked parts."""

    @staticmethod
    @abstractmethod
    def combine_all(parts: Sequence[Tensor], weights: Tensor, into: Tensor) -> None:
        """into += Σ weights_i z_i for stacked parts."""

    @property
    def identity(self) -> Hashable:
        """Hashable value that is equal for equal atoms, so that a repeated atom is recognised."""
        if self.key is not None:
            return (self.key, self.scale)
        return digest(self.dense())

    def unsigned(self: AnyAtom) -> tuple[float, AnyAtom]:
        """Sign and atom of positive scale: over a span, z and -z are one atom."""
        return (1.0, self) if self.scale >= 0 else (-1.0, dataclasses.replace(self, scale=-self.scale))


def digest(array: Tensor) -> bytes:
    """16 bytes that tell an array from any other: a key must not hold a second copy of its atom."""
    return hashlib.blake2b(array.detach().cpu().contiguous().numpy().data, digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class OneHot(Atom):
    """scale · e_index, in an array of a given shape (the index counts its flattened entries)."""

    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def inner(self, direction: Tensor) -> float:
        return self.scale * float(direction.reshape(-1)[self.index])

    def add_to(self, x: Tensor, weight: float) -> None:
        x.view(-1)[self.index] += weight * self.scale

    def dense(self) -> Tensor:
        x = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        self.add_to(x, 1.0)
        return x

    @property
    def squared_norm(self) -> float:
        return self.scale**2

    def parts(self) -> tuple[Tensor, ...]:
        return (
            torch.tensor(self.index, device=self.device),
            torch.tensor(self.scale, dtype=self.dtype, device=self.device),
        )

    @staticmethod
    def inner_all(parts: Sequence[Tensor], direction: Tensor) -> Tensor:
        indices, values = parts
        return direction.reshape(-1)[indices] * values

    @staticmethod
    def combine_all(parts: Sequence[Tensor], weights: Tensor, into: Tensor) -> None:
        indices, values = parts
        into.view(-1).index_add_(0, indices, values * weights)


@dataclass(frozen=True, eq=False)
class Dense(Atom):
    """scale · vector, for an array of any shape."""

    vector: Tensor

    def inner(self, direction: Tensor) -> float:
        return self.scale * float(torch.dot(self.vector.reshape(-1), direction.reshape(-1)))

    def add_to(self, x: Tensor, weight: float) -> None:
        x.add_(self.vector, alpha=weight * self.scale)

    def dense(self) -> Tensor:
        return self.scale * self.vector

    @property
    def squared_norm(self) -> float:
        return self.scale**2 * float(self.vector.square().sum())

    def parts(self) -> tuple[Tensor, ...]:
        return ((self.scale * self.vector).reshape(-1),)

    @staticmethod
    def inner_all(parts: Sequence[Tensor], direction: Tensor) -> Tensor:
        return torch.mv(parts[0], direction.reshape(-1))

    @staticmethod
    def combine_all(parts: Sequence[Tensor], weights: Tensor, into: Tensor) -> None:
        into.view(-1).add_(torch.mv(parts[0].t(), weights))


@dataclass(frozen=True, eq=False)
class Sparse(Dense):
    """scale · vector, given by its nonzero entries; memory and time grow with those."""

    vector: Tensor = dataclasses.field(init=False, repr=False)
    indices: Tensor
    values: Tensor
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "vector", None)

    def inner(self, direction: Tensor) -> float:
        return self.scale * float(torch.dot(direction.reshape(-1)[self.indices], self.values))

    def add_to(self, x: Tensor, weight: float) -> None:
        x.view(-1).index_add_(0, self.indices, self.values, alpha=weight * self.scale)

    def dense(self) -> Tensor:
        x = torch.zeros(self.shape, dtype=self.values.dtype, device=self.values.device)
        self.add_to(x, 1.0)
        return x

    @property
    def squared_norm(self) -> float:
        return self.scale**2 * float(self.values.square().sum())

    def parts(self) -> tuple[Tensor, ...]:
        """Indices and scaled values; a stack pads the shorter ones with zeros."""
        return (self.indices, self.scale * self.values)

    @staticmethod
    def inner_all(parts: Sequence[Tensor], direction: Tensor) -> Tensor:
        indices, values = parts
        return (direction.reshape(-1)[indices] * values).sum(1)

    @staticmethod
    def combine_all(parts: Sequence[Tensor], weights: Tensor, into: Tensor) -> None:
        indices, values = parts
        into.view(-1).index_add_(0, indices.reshape(-1), (values * weights[:, None]).reshape(-1))


@dataclass(frozen=True, eq=False)
class RankOne(Atom):
    """scale · u vᵀ, never formed unless asked for."""

    u: Tensor
    v: Tensor

    def inner(self, direction: Tensor) -> float:
        return self.scale * float(torch.dot(self.u, torch.mv(direction, self.v)))

    def add_to(self, x: Tensor, weight: float) -> None:
        x.addr_(self.u, self.v, alpha=weight * self.scale)

    def dense(self) -> Tensor:
        return self.scale * torch.outer(self.u, self.v)

    @property
    def squared_norm(self) -> float:
        return self.scale**2 * float(self.u.square().sum() * self.v.square().sum())

    @property
    def identity(self) -> Hashable:
        return (self.scale, digest(self.u), digest(self.v))

    def parts(self) -> tuple[Tensor, ...]:
        return (self.scale * self.u, self.v)

    @staticmethod
    def inner_all(parts: Sequence[Tensor], direction: Tensor) -> Tensor:
        left, right = parts
        return ((left @ direction) * right).sum(1)

    @staticmethod
    def combine_all(parts: Sequence[Tensor], weights: Tensor, into: Tensor) -> None:
        left, right = parts
        into.add_((left * weights[:, None]).t() @ right)


class Stack:
    """Atoms side by side in growing arrays: one product gives all their inner products with a direction.

    Atoms of one kind stay structured; once kinds are mixed, all are kept dense.
    """

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._kind: type[Atom] = Dense
        self._rows: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.atoms)

    def append(self, atom: Atom) -> None:
        """Add an atom at the end."""
        parts = self._fit(atom)
        if len(self.atoms) == len(self._rows[0]):
            self._rows = [torch.cat([row, torch.zeros_like(row)]) for row in self._rows]
        self._write(len(self.atoms), parts)
        self.atoms.append(atom)

    def replace(self, position: int, atom: Atom) -> None:
        """Put an atom in the place of another."""
        self._write(position, self._fit(atom))
        self.atoms[position] = atom

    def _fit(self, atom: Atom) -> tuple[Tensor, ...]:
        """Arrays to keep of an atom, after the stack has been made to take its kind and width."""
        kind = type(atom)
        if not self.atoms:
            self._kind, self._rows = kind, [part.new_zeros((4, *part.shape)) for part in atom.parts()]
        elif kind is not self._kind and self._kind is not Dense:
            dense = torch.stack([other.dense().reshape(-1) for other in self.atoms])
            self._kind, self._rows = Dense, [dense.repeat(2, 1)]
        parts = atom.parts() if kind is self._kind else (atom.dense().reshape(-1),)
        width, room = parts[0].numel(), self._rows[0][0].numel()
        if self._kind is Sparse and width > room:
            self._rows = [torch.nn.functional.pad(row, (0, width - room)) for row in self._rows]
        elif self._kind is Sparse and width < room:
            parts = tuple(torch.nn.functional.pad(part, (0, room - width)) for part in parts)
        return parts

    def _write(self, position: int, parts: tuple[Tensor, ...]) -> None:
        for row, part in zip(self._rows, parts, strict=True):
            row[position] = part

    def remove(self, position: int) -> None:
        """Drop an atom; the last one takes its place."""
        last = self.atoms.pop()
        if position < len(self.atoms):
            self.atoms[position] = last
            for row in self._rows:
                row[position] = row[len(self.atoms)].clone()

    def inner(self, direction: Tensor) -> Tensor:
        """⟨direction, z_i⟩ ``[S]``."""
        return self._kind.inner_all([row[: len(self.atoms)] for row in self._rows], direction)

    def combine(self, weights: Tensor, shape: Sequence[int]) -> Tensor:
        """Σ weights_i z_i."""
        x = torch.zeros(tuple(shape), dtype=weights.dtype, device=weights.device)
        if self.atoms:
            self._kind.combine_all([row[: len(self.atoms)] for row in self._rows], weights, x)
        return x


Decomposition = list[tuple[float, Atom]]


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
        """Return whether an atom (over a span, or its negative) is active."""
        return (atom.unsigned()[1] if self._signed else atom).identity in self._positions

    def add(self, atom: Atom, weight: float) -> int:
        """α_z += weight; gives the place of z, which stays even if its weight is 0."""
        position, sign = self._find(atom)
        self._weights[position] += sign * weight
        return position

    def move(self, direction: "Direction", step: float, dropped: Atom | None = None) -> None:
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

    def by_identity(self) -> dict[Hashable, float]:
        """The weight of every atom."""
        return {identity: float(self._weights[position]) for identity, position in self._positions.items()}

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
