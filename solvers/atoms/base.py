"""What a set of atoms is, and what its oracle answers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, dot, norm, to_user, wants_numpy
from unknot.solvers.structured import Atom, Decomposition, Dense

ROUNDING = 8.0
"""λ of the probabilistic bound λ √n u on the rounding error of a sum of n terms (Higham and Mary, 2019)."""


class Answer(NamedTuple):
    """What an oracle says of a direction d: an atom, and a number that min_z ⟨d, z⟩ is not below.

    ``lower`` holds in floating point, rounding included. It is -inf where the oracle cannot certify its answer: an
    eigensolver that did not converge, an atom from a cache.
    """

    atom: Atom
    lower: float


class AtomSet(ABC):
    """A compact set 𝒜 with a linear minimisation oracle. Subclasses give ``ask``; the rest has honest defaults.

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
    """Whether directions may be sparse matrices of SciPy, and answers are rank-one matrices: see LowRankIterate."""

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
        answer = self.bind(tensor.dtype, tensor.device, wants_numpy(direction)).ask(tensor.contiguous()).atom
        return to_user(answer.dense().reshape(tensor.shape), wants_numpy(direction))

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "AtomSet":
        """The same set, with its arrays in the dtype and on the device of a run, and nothing remembered of others."""
        return self

    def kind(self) -> Any:
        """What has the ``dtype``, ``device`` and ``numpy`` of the set's own arrays; None if it takes any."""
        return None

    def symmetrised(self) -> "AtomSet":
        """𝒜 ∪ -𝒜, which has the same span."""
        from unknot.solvers.atoms.custom import Symmetric

        return self if self.symmetric else Symmetric(self)

    def count(self, zero: Tensor) -> int | None:
        """How many atoms there are to number (columns, coordinates), for arrays like this one; None if they are not."""
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
        """Whether x is in conv(𝒜), up to a relative tolerance."""
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
        return to_user(self._project(tensor), wants_numpy(x))

    def _project(self, x: Tensor) -> Tensor:
        raise ValueError(f"the projection on {self} is not known: minimise ½‖x - y‖² over it with frank_wolfe.")

    def face_bound(self) -> float | None:
        """u of a set {x : Ax = b, 0 ≤ x ≤ u} with vertices of entries 0 and u only, ``inf`` for x ≥ 0; else None."""
        return None

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
        scale = norm(x) / (self.radius or 1.0)
        try:
            return [(scale * weight, atom) for weight, atom in self.decompose(x / scale)]
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(
                f"x0 is outside the cone of {self} or cannot be written in its atoms: leave it out."
            ) from error

    def span_weights(self, x: Tensor) -> Decomposition:
        """Weights and atoms of a point of lin(𝒜)."""
        scale = norm(x) / (self.radius or 1.0)
        try:
            return [(scale * weight, atom) for weight, atom in self.decompose(x / scale)]
        except ValueError as error:
            raise ValueError(f"x0 cannot be written in atoms of {self}: start from 0 by leaving it out.") from error

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
    """Equal atoms once, with the sum of their weights."""
    kept: dict[Hashable, tuple[float, Atom]] = {}
    for weight, atom in parts:
        before = kept.get(atom.identity, (0.0, atom))[0]
        kept[atom.identity] = (before + weight, atom)
    return list(kept.values())
