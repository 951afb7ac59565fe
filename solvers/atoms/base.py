"""Base class of atom sets and their oracles; sets given by a function, and sets that change how another is asked."""

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from unknot.solvers.structured import (
    Atom,
    Decomposition,
    Dense,
    Sparse,
    Stack,
    as_tensor,
    csr_tensor,
    dot,
    is_array,
    is_sparse,
    norm,
    returns_numpy,
    to_user,
)

ROUNDING = 8.0
"""λ of the probabilistic bound λ √n u on the rounding error of a sum of n terms (Higham and Mary, 2019)."""


class Answer(NamedTuple):
    """Answer of an oracle to a direction d: an atom, and a number that min_z ⟨d, z⟩ is not below.

    ``lower`` holds in floating point, rounding included. It is -inf where the oracle cannot certify its answer: an
    eigensolver that did not converge, an atom from a cache.
    """

    atom: Atom
    lower: float


class AtomSet(ABC):
    r"""A compact set 𝒜 with a linear minimisation oracle. Subclasses give ``ask``; the rest has honest defaults.

    .. math:: \mathrm{lmo}_{\mathcal{A}}(y) = \mathrm{argmin}_{z\in\mathcal{A}}\, \langle y, z\rangle

    Thesis: Eq. "eqn:lmo", chapter "Introduction and Background".

    Attributes:
        shape: of the atoms; None if the set takes any.
        symmetric: whether -z ∈ 𝒜 for every z ∈ 𝒜.
        radius: max ‖z‖, if known.
        diameter: max ‖z - z'‖ or an upper bound, if known.
        margin: a lower bound on the distance from the origin to conv(𝒜 without 0), 0 if it may contain it; what
            turns the gradient into a certificate over a cone.
    """

    shape: tuple[int, ...] | None = None
    symmetric: bool = False
    radius: float | None = None
    diameter: float | None = None
    margin: float = 0.0
    sparse_directions: bool = False
    """True if directions may be sparse matrices of SciPy, and answers are rank-one matrices: see LowRankIterate."""

    @abstractmethod
    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """argmin_{z ∈ 𝒜} ⟨direction, z⟩, and a lower bound on the minimum.

        ``x`` is the iterate, for oracles whose accuracy is relative to it. ``exact`` asks an oracle that has a choice
        (a cache, an eigensolver of loose tolerance) for an answer with a certificate, whatever it costs.
        """

    def atom(self, direction: Tensor, x: Tensor | None = None) -> Atom:
        """argmin_{z ∈ 𝒜} ⟨direction, z⟩, structured."""
        return self.ask(direction, x).atom

    def lmo(self, direction: Any) -> Any:
        """argmin_{z ∈ 𝒜} ⟨direction, z⟩ as a dense array of the direction's kind."""
        tensor = as_tensor(direction, "direction")
        self.check_shape(tuple(tensor.shape), "direction")
        answer = self.bind(tensor.dtype, tensor.device, returns_numpy(direction)).ask(tensor.contiguous()).atom
        return to_user(answer.dense().reshape(tensor.shape), returns_numpy(direction))

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "AtomSet":
        """Return the set with its arrays in the dtype and on the device of a run, and without state of earlier runs."""
        return self

    def kind(self) -> Any:
        """Object with the ``dtype``, ``device`` and ``numpy`` of the set's own arrays; None if it takes any."""
        return None

    def symmetrised(self) -> "AtomSet":
        """𝒜 ∪ -𝒜, which has the same span."""
        return self if self.symmetric else Symmetric(self)

    def count(self, zero: Tensor) -> int | None:
        """Number of atoms (columns, coordinates) for arrays like this one; None if they have no numbers."""
        return None

    def numbered(self, index: int, like: Tensor) -> Atom:
        """The atom of a number below ``count``."""
        raise ValueError(f"the atoms of {self} have no numbers.")

    def batch_rows(self) -> Tensor | None:
        """The atoms as rows ``[n, d]`` where a batch of signals can be pursued over them; else None."""
        return None

    def all_atoms(self) -> np.ndarray | None:
        """Every atom as a row ``[n, d]``, negatives included, for a small finite set of known dimension; else None."""
        return None

    def gauge(self, x: Tensor) -> float:
        """‖x‖_𝒜 = inf {c > 0 : x ∈ c · conv(𝒜 ∪ 0)}, ``inf`` outside the cone of the atoms."""
        rows = self.all_atoms()
        if rows is None:
            raise ValueError(f"the atomic norm is not known for {self}: expected a ball, a polytope or a dictionary.")
        solved = scipy.optimize.linprog(np.ones(len(rows)), A_eq=rows.T, b_eq=x.reshape(-1).cpu().double().numpy())
        return float(solved.fun) if solved.status == 0 else math.inf

    def contains(self, x: Any, tol: float = 1e-9) -> bool:
        """Return whether x is in conv(𝒜), up to a relative tolerance."""
        tensor = as_tensor(x, "x").double()
        self.check_shape(tuple(tensor.shape), "x")
        return self._contains(tensor, tol)

    def _contains(self, x: Tensor, tol: float) -> bool:
        return self.gauge(x) <= 1 + tol

    def project(self, x: Any) -> Any:
        """The nearest point of conv(𝒜), where it is known in closed form or by sorting; gradients of x flow through."""
        if isinstance(x, Tensor) and x.requires_grad and torch.is_grad_enabled():
            from unknot.solvers.differentiation import project

            self.check_shape(tuple(x.shape), "x")
            return project(x, self)
        tensor = as_tensor(x, "x")
        self.check_shape(tuple(tensor.shape), "x")
        return to_user(self._project(tensor), returns_numpy(x))

    def _project(self, x: Tensor) -> Tensor:
        raise ValueError(f"the projection on {self} is not known: minimise ½‖x - y‖² over it with frank_wolfe.")

    def minimal_width(self) -> float | None:
        """The radius of the ball around 0 within conv(𝒜), where there is a formula."""
        return None

    def largest_curvature(self, objective: Any) -> float | None:
        """max_z ⟨z, ∇²f z⟩ over the atoms, or the bound L · radius²; None if neither is known."""
        if objective.smoothness is None or self.radius is None:
            return None
        curvature: float = objective.smoothness * self.radius**2
        return curvature

    def acceleration(self, greedy: bool, dim: int) -> float:
        """ν of accelerated matching pursuit, or ν' of accelerated random pursuit, over arrays of ``dim`` entries."""
        raise ValueError(f"ν is not known for {self}: expected a dictionary or a ball, so pass nu by hand.")

    def margin_for(self, zero: Tensor) -> float:
        """``margin``, for arrays like this one."""
        return self.margin

    def decompose(self, x: Tensor) -> Decomposition:
        """Weights and atoms of a point of conv(𝒜).

        By default x itself stands for an atom, which changes no hull, unless the oracle separates it from the set.
        """
        answer = self.ask(-x)
        candidate = answer.atom.dense().reshape(x.shape)
        if torch.allclose(candidate, x, rtol=1e-6, atol=1e-9):
            return [(1.0, answer.atom)]
        try:
            inside = self._contains(x.double(), 1e-7)
        except ValueError:
            inside = -dot(x, x) >= answer.lower - slack(x) * max(1.0, abs(answer.lower))
        if not inside:
            raise ValueError(
                f"x0 is outside the set: expected a point of {self}, for example `atoms.lmo(-x0)`; ‖x0‖² is "
                f"{dot(x, x):.6g}, and ⟨x0, z⟩ at most {-answer.lower:.6g} over the set."
            )
        return [(1.0, Dense(1.0, None, x.clone()))]

    def conic_weights(self, x: Tensor) -> Decomposition:
        """Weights and atoms of a point of cone(𝒜)."""
        return self._scaled(x, f"x0 is outside the cone of {self} or cannot be written in its atoms: leave it out.")

    def span_weights(self, x: Tensor) -> Decomposition:
        """Weights and atoms of a point of lin(𝒜)."""
        return self._scaled(x, f"x0 cannot be written in atoms of {self}: start from 0 by leaving it out.")

    def _scaled(self, x: Tensor, message: str) -> Decomposition:
        scale = norm(x) / (self.radius or 1.0)
        try:
            return [(scale * weight, atom) for weight, atom in self.decompose(x / scale)]
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(message) from error

    def sample(self, like: Tensor, generator: torch.Generator) -> Atom:
        """A random atom for random pursuit, uniform where that has a meaning."""
        raise ValueError(f"{self} has no sampling law: use a greedy variant, or atoms.Custom(..., sample=function).")

    def span_part(self, direction: Tensor) -> Tensor:
        """The part of a direction in lin(𝒜), or the direction itself where the span is everything or unknown."""
        return direction

    def check_shape(self, shape: tuple[int, ...], name: str) -> None:
        """Raise unless arrays of this shape live where the atoms do."""
        if self.shape is not None and shape != self.shape:
            raise ValueError(
                f"{name} has shape {list(shape)} but the atoms of {self} have {list(self.shape)}: make them agree."
            )

    def __str__(self) -> str:
        return type(self).__name__


def below(value: float, direction: Tensor, size: float, terms: int) -> float:
    """A number that ⟨d, z⟩ is not below, given what was computed for it: ``terms`` products and ‖z‖ = ``size``."""
    unit = torch.finfo(direction.dtype).eps
    return value - ROUNDING * math.sqrt(terms) * unit * norm(direction) * size


def positive(value: float, name: str) -> float:
    """A finite number above 0, or an error."""
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} is {value}: expected a positive number.")
    return float(value)


def whole(value: Any, name: str, least: int = 1) -> int:
    """A whole number of at least so much, or an error."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise ValueError(f"{name} is {value!r}: expected a whole number, {least} or more.")
    return int(value)


def outside(what: str, value: float, limit: float) -> ValueError:
    """The error for a start that is not in the set."""
    return ValueError(
        f"x0 is outside the set: {what} is {value:.6g}, expected at most {limit:.6g}; scale or project it."
    )


def slack(tensor: Tensor) -> float:
    """Relative rounding that is forgiven when a point is looked for in a set."""
    return 1e3 * float(torch.finfo(tensor.dtype).eps)


def unit_vector(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform on the sphere."""
    vector = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
    return (vector / torch.linalg.vector_norm(vector)).to(like)


def merged(parts: Decomposition) -> Decomposition:
    """Merge equal atoms into one with the sum of their weights."""
    kept: dict[Hashable, tuple[float, Atom]] = {}
    for weight, atom in parts:
        before = kept.get(atom.identity, (0.0, atom))[0]
        kept[atom.identity] = (before + weight, atom)
    return list(kept.values())


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
        """Read a sparse atom by its entries; a row or column of SciPy's matrices stands for a vector."""
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
        if self._sample is None:
            return super().sample(like, generator)
        return self._read(self._sample(generator), like, "the user's sampler")

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Custom":
        bound = copy.copy(self)
        bound._numpy = numpy
        return bound


def as_atoms(atoms: Any) -> AtomSet:
    """An atom set; a matrix is read as the dictionary of its columns, a function as a user-defined oracle."""
    if isinstance(atoms, AtomSet):
        return atoms
    if is_array(atoms) or is_sparse(atoms):
        from unknot.solvers.atoms.dictionary import Dictionary

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
        """Return this wrapper, with the same counters, around another form of the set."""
        other = copy.copy(self)
        other.inner = atoms
        return other

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> AtomSet:
        return self.around(self.inner.bind(dtype, device, numpy))

    def symmetrised(self) -> AtomSet:
        if self.symmetric:
            return self
        other = self.around(self.inner.symmetrised())
        other.symmetric = True
        return other

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.inner})"


def _forward(name: str) -> Callable[..., Any]:
    return lambda self, *args: getattr(self.inner, name)(*args)


for _name in (
    *("kind", "count", "numbered", "all_atoms", "gauge", "_contains", "_project", "minimal_width", "largest_curvature"),
    *("acceleration", "margin_for", "decompose", "conic_weights", "span_weights", "sample", "span_part"),
):
    setattr(Wrapper, _name, _forward(_name))


class Symmetric(Wrapper):
    r"""𝒜 ∪ -𝒜: two questions to the oracle of 𝒜, the better answer.

    .. math:: \mathcal{A} \cup -\mathcal{A}

    Thesis: section "Matching Pursuit and Coordinate Descent", symmetric sets.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import Custom, Symmetric
    >>> Symmetric(Custom(lambda d: np.array([1.0, 2.0]))).lmo(np.array([1.0, 1.0]))
    array([-1., -2.])
    """

    def __init__(self, atoms: Any) -> None:
        super().__init__(atoms)
        self.symmetric = True

    @property
    def diameter(self) -> float | None:  # type: ignore[override]
        return None if self.radius is None else 2 * self.radius

    @property
    def margin(self) -> float:  # type: ignore[override]
        return 0.0

    def margin_for(self, zero: Tensor) -> float:
        return 0.0

    def count(self, zero: Tensor) -> int | None:
        return None

    def all_atoms(self) -> Any:
        rows = self.inner.all_atoms()
        return None if rows is None else np.vstack([rows, -rows])

    gauge, _contains, _project = AtomSet.gauge, AtomSet._contains, AtomSet._project

    def minimal_width(self) -> float | None:
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
        try:
            return self.inner.decompose(x)
        except ValueError:
            return [(weight, negated(atom)) for weight, atom in self.inner.decompose(-x)]


def negated(atom: Atom) -> Atom:
    """-z."""
    return dataclasses.replace(atom, scale=-atom.scale)


class Inexact(Wrapper):
    r"""An oracle of stated accuracy δ, for studying what approximate answers cost (the two approximate LMOs).

    .. math::
        \langle d, \tilde z - x\rangle \leq \delta \min_{z\in\mathcal{A}} \langle d, z - x\rangle
        \quad\text{(multiplicative)}

    .. math::
        \langle d, \tilde z\rangle \leq \min_{z\in\mathcal{A}} \langle d, z\rangle + \frac{\delta\, C_f}{k + 2}
        \quad\text{(additive)}

    Thesis: Eqs. "eqn:lmo_add" and "eqn:lmo_mult".

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
    >>> from unknot.solvers.atoms import Inexact, L1Ball
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
        chosen, reached = best.atom, gain
        for halvings in range(8):
            candidate = self.inner.atom(direction + 4.0 * 0.5**halvings * noise, x)
            if candidate.inner(direction) - at <= allowed:
                chosen, reached = candidate, candidate.inner(direction) - at
                break
        promised = reached - error if self.multiplicative is None else reached / self.multiplicative
        return Answer(chosen, min(best.lower, at + promised))

    def error(self, k: int) -> float:
        """The additive error at question k, 0 for a multiplicative oracle."""
        if callable(self.additive):
            return self.additive(k)
        return (self.additive or 0.0) * self.curvature / (k + 2)


class Lazy(Wrapper):
    """A set whose expensive oracle is asked only when no atom seen before is good enough.

    An earlier atom is, if it promises at least 1 / ``factor`` of the last exact gap. In between, a solver's gap rests
    on the best lower bound found so far, which is still a certificate. ``calls`` counts questions to the oracle,
    ``hits`` those the cache answered.

    >>> import torch
    >>> from unknot.solvers.atoms import L1Ball, Lazy
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
        """Remember an atom in the place of the oldest."""
        if atom.identity in self._seen:
            return
        self._seen.add(atom.identity)
        if len(self._stack) < self.capacity:
            self._stack.append(atom)
            return
        self._seen.discard(self._stack.atoms[self._oldest].identity)
        self._stack.replace(self._oldest, atom)
        self._oldest = (self._oldest + 1) % self.capacity
