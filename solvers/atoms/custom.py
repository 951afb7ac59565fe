"""Sets given by a function, what is read as a set, and sets that change how another one is asked."""

import copy
import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, csr_tensor, dot, is_array, is_sparse, norm, to_user
from unknot.solvers.atoms.base import Answer, AtomSet, below
from unknot.solvers.atoms.dictionary import Dictionary
from unknot.solvers.structured import Atom, Decomposition, Dense, Sparse, Stack


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


class Wrapper(AtomSet):
    """A set that changes how another one is asked."""

    def __init__(self, atoms: Any) -> None:
        self.inner = as_atoms(atoms)
        self.shape, self.symmetric = self.inner.shape, self.inner.symmetric
        self.radius = self.inner.radius

    @property
    def diameter(self) -> float | None:  # type: ignore[override]
        """Of the set inside."""
        return self.inner.diameter

    @property
    def margin(self) -> float:  # type: ignore[override]
        """Of the set inside."""
        return self.inner.margin

    def around(self, atoms: AtomSet) -> "Wrapper":
        """The same wrapper, sharing its counters, around another form of the set."""
        other = copy.copy(self)
        other.inner = atoms
        return other

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> AtomSet:
        """Around the bound set."""
        return self.around(self.inner.bind(dtype, device, numpy))

    def symmetrised(self) -> AtomSet:
        """Around the symmetrised set."""
        if self.symmetric:
            return self
        other = self.around(self.inner.symmetrised())
        other.symmetric = True
        return other

    def kind(self) -> Any:
        """Of the set inside."""
        return self.inner.kind()

    def count(self, zero: Tensor) -> int | None:
        """Of the set inside."""
        return self.inner.count(zero)

    def numbered(self, index: int, like: Tensor) -> Atom:
        """Of the set inside."""
        return self.inner.numbered(index, like)

    def all_atoms(self) -> Any:
        """Of the set inside."""
        return self.inner.all_atoms()

    def gauge(self, x: Tensor) -> float:
        """Of the set inside."""
        return self.inner.gauge(x)

    def _contains(self, x: Tensor, tol: float) -> bool:
        return self.inner._contains(x, tol)

    def _project(self, x: Tensor) -> Tensor:
        return self.inner._project(x)

    def face_bound(self) -> float | None:
        """Of the set inside."""
        return self.inner.face_bound()

    def minimal_width(self) -> float | None:
        """Of the set inside."""
        return self.inner.minimal_width()

    def largest_curvature(self, objective: Any) -> float | None:
        """Of the set inside."""
        return self.inner.largest_curvature(objective)

    def acceleration(self, greedy: bool, dim: int) -> float:
        """Of the set inside."""
        return self.inner.acceleration(greedy, dim)

    def margin_for(self, zero: Tensor) -> float:
        """Of the set inside."""
        return self.inner.margin_for(zero)

    def decompose(self, x: Tensor) -> Decomposition:
        """By the set inside."""
        return self.inner.decompose(x)

    def conic_weights(self, x: Tensor) -> Decomposition:
        """By the set inside."""
        return self.inner.conic_weights(x)

    def span_weights(self, x: Tensor) -> Decomposition:
        """By the set inside."""
        return self.inner.span_weights(x)

    def sample(self, like: Tensor, generator: torch.Generator) -> Atom:
        """By the set inside."""
        return self.inner.sample(like, generator)

    def span_part(self, direction: Tensor) -> Tensor:
        """By the set inside."""
        return self.inner.span_part(direction)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.inner})"


class Symmetric(Wrapper):
    """𝒜 ∪ -𝒜: two questions to the oracle of 𝒜, the better answer.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import Custom
    >>> Symmetric(Custom(lambda d: np.array([1.0, 2.0]))).lmo(np.array([1.0, 1.0]))
    array([-1., -2.])
    """

    def __init__(self, atoms: Any) -> None:
        super().__init__(atoms)
        self.symmetric = True

    @property
    def diameter(self) -> float | None:  # type: ignore[override]
        """Twice the radius."""
        return None if self.radius is None else 2 * self.radius

    @property
    def margin(self) -> float:  # type: ignore[override]
        """0: the hull contains the origin."""
        return 0.0

    def margin_for(self, zero: Tensor) -> float:
        """0: the hull contains the origin."""
        return 0.0

    def count(self, zero: Tensor) -> int | None:
        """None: an atom has its number twice."""
        return None

    def all_atoms(self) -> Any:
        """Those of the set inside and their negatives."""
        rows = self.inner.all_atoms()
        return None if rows is None else np.vstack([rows, -rows])

    def gauge(self, x: Tensor) -> float:
        """By the atoms, where they are finitely many."""
        return AtomSet.gauge(self, x)

    def _contains(self, x: Tensor, tol: float) -> bool:
        return AtomSet._contains(self, x, tol)

    def _project(self, x: Tensor) -> Tensor:
        return AtomSet._project(self, x)

    def face_bound(self) -> float | None:
        """None: there are negatives."""
        return None

    def minimal_width(self) -> float | None:
        """Not by a formula."""
        return None

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The better of lmo(d) and -lmo(-d), and the worse of their bounds."""
        plus = self.inner.ask(direction, x, exact=exact)
        minus = self.inner.ask(-direction, None if x is None else -x, exact=exact)
        lower = min(plus.lower, minus.lower)
        if plus.atom.inner(direction) <= -minus.atom.inner(direction):
            return Answer(plus.atom, lower)
        return Answer(negated(minus.atom), lower)

    def decompose(self, x: Tensor) -> Decomposition:
        """A point of the hull of 𝒜, or the negative of one."""
        try:
            return self.inner.decompose(x)
        except ValueError:
            return [(weight, negated(atom)) for weight, atom in self.inner.decompose(-x)]


def negated(atom: Atom) -> Atom:
    """-z."""
    return dataclasses.replace(atom, scale=-atom.scale)


class Inexact(Wrapper):
    """An oracle of stated accuracy δ, for studying what approximate answers cost (the two approximate LMOs).

    multiplicative:  ⟨d, z̃ - x⟩ ≤ δ · min_z ⟨d, z - x⟩        additive:  ⟨d, z̃⟩ ≤ min_z ⟨d, z⟩ + δ C_f / (k + 2)

    Over a hull x is the iterate, for which the guarantee of Frank-Wolfe needs the relation; over a span or cone it
    is 0, where the minimum is never positive. The answer is that of a direction disturbed as much as the accuracy
    allows; the gap that a solver reports stays an upper bound.

    Args:
        atoms: the set.
        multiplicative: δ in (0, 1].
        additive: δ ≥ 0, with ``curvature`` C_f (at most L · diameter²); k counts the questions. Or the error itself, as
            a function of k.
        curvature: see ``additive``.
        seed: of the disturbance.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L1Ball
    >>> d = np.array([1.0, -3.0, 2.9])
    >>> z = Inexact(L1Ball(1.0), multiplicative=0.5).lmo(d)
    >>> bool(d @ z <= 0.5 * -3.0)
    True
    """

    def __init__(
        self,
        atoms: Any,
        *,
        multiplicative: float | None = None,
        additive: float | Callable[[int], float] | None = None,
        curvature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(atoms)
        if (multiplicative is None) == (additive is None):
            raise ValueError("an inexact oracle has one kind of error: give either multiplicative or additive.")
        if multiplicative is not None and not 0 < multiplicative <= 1:
            raise ValueError(f"multiplicative is {multiplicative}: expected an accuracy in (0, 1], 1 being exact.")
        if additive is not None and not callable(additive) and not additive >= 0:
            raise ValueError(f"additive is {additive}: expected 0 (exact) or more.")
        self.multiplicative, self.additive, self.curvature = multiplicative, additive, curvature
        self._counts = {"calls": 0}
        self._generator = torch.Generator().manual_seed(seed)

    @property
    def calls(self) -> int:
        """Questions asked."""
        return self._counts["calls"]

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """An atom within the accuracy, and usually not the best; the bound is what the accuracy promises."""
        best = self.inner.ask(direction, x, exact=exact)
        at = 0.0 if x is None else dot(direction, x)
        gain = best.atom.inner(direction) - at
        error = self.error(self.calls)
        allowed = gain + error if self.multiplicative is None else self.multiplicative * gain
        self._counts["calls"] += 1
        noise = torch.randn(direction.shape, generator=self._generator, dtype=torch.float64).to(direction)
        noise *= norm(direction) / norm(noise)
        chosen, found = best.atom, gain
        for halvings in range(8):
            candidate = self.inner.atom(direction + 4.0 * 0.5**halvings * noise, x)
            if candidate.inner(direction) - at <= allowed:
                chosen, found = candidate, candidate.inner(direction) - at
                break
        promised = found - error if self.multiplicative is None else found / self.multiplicative
        return Answer(chosen, min(best.lower, at + promised))

    def error(self, k: int) -> float:
        """The additive error at question k, 0 for a multiplicative oracle."""
        if callable(self.additive):
            return self.additive(k)
        return (self.additive or 0.0) * self.curvature / (k + 2)


class Lazy(Wrapper):
    """Asks an expensive oracle only when no atom seen before is good enough.

    An earlier atom is, if it promises at least 1 / ``factor`` of the last exact gap. In between, a solver's gap rests
    on the best lower bound found so far, which is still a certificate. ``calls`` counts questions to the oracle,
    ``hits`` those the cache answered.

    >>> import torch
    >>> from unknot.solvers.atoms import L1Ball
    >>> lazy = Lazy(L1Ball(1.0))
    >>> _ = lazy.ask(torch.tensor([1.0, 3.0])), lazy.ask(torch.tensor([1.0, 2.9]))
    >>> lazy.calls, lazy.hits
    (1, 1)
    """

    def __init__(self, atoms: Any, *, factor: float = 2.0, capacity: int = 1000) -> None:
        super().__init__(atoms)
        if not factor >= 1:
            raise ValueError(f"factor is {factor}: expected 1 or more.")
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}: expected room for at least one atom.")
        self.factor, self.capacity = factor, capacity
        self._counts = {"calls": 0, "hits": 0}
        self._forget()

    def _forget(self) -> None:
        self._stack = Stack()
        self._seen: set[Hashable] = set()
        self._oldest = 0
        self._promise = math.inf

    @property
    def calls(self) -> int:
        """Questions to the oracle."""
        return self._counts["calls"]

    @property
    def hits(self) -> int:
        """Questions that the cache answered."""
        return self._counts["hits"]

    def around(self, atoms: AtomSet) -> "Lazy":
        """With an empty cache."""
        other = super().around(atoms)
        assert isinstance(other, Lazy)
        other._forget()
        return other

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """A cached atom if it is good enough, without a bound; else the oracle's answer."""
        at = 0.0 if x is None else dot(direction, x)
        if len(self._stack) and not exact:
            scores = self._stack.inner(direction)
            position = int(scores.argmin())
            if at - float(scores[position]) >= self._promise > 0:
                self._counts["hits"] += 1
                return Answer(self._stack.atoms[position], -math.inf)
        answer = self.inner.ask(direction, x, exact=exact)
        self._counts["calls"] += 1
        self._promise = (at - answer.atom.inner(direction)) / self.factor
        self._keep(answer.atom)
        return answer

    def _keep(self, atom: Atom) -> None:
        """First in, first out."""
        if atom.identity in self._seen:
            return
        self._seen.add(atom.identity)
        if len(self._stack) < self.capacity:
            self._stack.append(atom)
            return
        self._seen.discard(self._stack.atoms[self._oldest].identity)
        self._stack.replace(self._oldest, atom)
        self._oldest = (self._oldest + 1) % self.capacity
