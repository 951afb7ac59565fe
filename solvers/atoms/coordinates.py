"""Polytopes whose vertices have few entries, all alike: L1 ball, simplex, k-sparse polytope, hypersimplex."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers.atoms.base import Answer, AtomSet, merged, outside, positive, slack, whole
from unknot.solvers.structured import Decomposition, OneHot, Sparse


class L1Ball(AtomSet):
    """{x : ‖x‖₁ ≤ radius}: its atoms are the signed coordinates ±radius · e_i.

    >>> import numpy as np
    >>> L1Ball(2.0).lmo(np.array([0.5, -3.0, 1.0]))
    array([0., 2., 0.])
    """

    symmetric = True

    def __init__(self, radius: float = 1.0, dim: int | None = None) -> None:
        self.radius: float = positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = None if dim is None else (int(dim),)

    def coordinate(self, index: int, scale: float, like: Tensor) -> OneHot:
        """scale · e_index, for arrays like another."""
        return OneHot(scale, index, index, tuple(like.shape), like.dtype, like.device)

    def _answer(self, index: int, scale: float, entry: float, direction: Tensor) -> Answer:
        # One product, computed in double: exact but for the last bit.
        lower = scale * entry
        return Answer(self.coordinate(index, scale, direction), lower - 4e-16 * abs(lower))

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The coordinate of steepest descent."""
        flat = direction.reshape(-1)
        index = int(flat.abs().argmax())
        entry = float(flat[index])
        return self._answer(index, -self.radius if entry > 0 else self.radius, entry, direction)

    def count(self, zero: Tensor) -> int:
        """The coordinates."""
        return zero.numel()

    def numbered(self, index: int, like: Tensor) -> OneHot:
        """radius · e_index."""
        return self.coordinate(index, self.radius, like)

    def all_atoms(self) -> np.ndarray | None:
        """±radius · e_i."""
        if self.shape is None:
            return None
        rows = self.radius * np.eye(self.shape[0])
        return np.vstack([rows, -rows]) if self.symmetric else rows

    def gauge(self, x: Tensor) -> float:
        """‖x‖₁ / radius."""
        return float(x.abs().sum()) / self.radius

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_l1_ball

        nearest: Tensor = project_l1_ball(x, self.radius)
        return nearest

    def minimal_width(self) -> float | None:
        """radius / √n."""
        return None if self.shape is None else self.radius / math.sqrt(self.shape[0])

    def largest_curvature(self, objective: Any) -> float | None:
        """radius² · max_i ∇²_ii f."""
        diagonal = objective.hessian_diagonal()
        if diagonal is None:
            return super().largest_curvature(objective)
        return self.radius**2 * float(diagonal.max())

    def acceleration(self, greedy: bool, dim: int) -> float:
        """radius² n."""
        return self.radius**2 * dim

    def decompose(self, x: Tensor) -> Decomposition:
        """|x_i| / radius on each coordinate; what is left over goes to an opposite pair."""
        flat = x.reshape(-1)
        size = float(flat.abs().sum())
        if size > self.radius * (1 + slack(x)):
            raise outside("its L1 norm", size, self.radius)
        support = torch.nonzero(flat).reshape(-1).tolist()
        weights = [abs(float(flat[i])) / max(self.radius, size) for i in support]
        atoms = [self.coordinate(i, math.copysign(self.radius, float(flat[i])), x) for i in support]
        rest = max(0.0, 1.0 - sum(weights))
        if rest > 0:
            pair = [self.coordinate(support[0] if support else 0, sign * self.radius, x) for sign in (1.0, -1.0)]
            return merged([*zip(weights, atoms, strict=True), *((rest / 2, atom) for atom in pair)])
        return list(zip(weights, atoms, strict=True))

    def span_weights(self, x: Tensor) -> Decomposition:
        """x_i / radius on each coordinate, of either sign."""
        flat = x.reshape(-1)
        support = torch.nonzero(flat).reshape(-1).tolist()
        return [(float(flat[i]) / self.radius, self.coordinate(i, self.radius, x)) for i in support]

    def sample(self, like: Tensor, generator: torch.Generator) -> OneHot:
        """A uniform coordinate (the sign does not matter)."""
        index = int(torch.randint(like.numel(), (), generator=generator))
        return self.coordinate(index, self.radius, like)

    def __str__(self) -> str:
        return f"L1Ball({self.radius:g})"


def SignedCoordinates(dim: int | None = None) -> L1Ball:
    """±e_i, the atoms of coordinate descent: the L1 ball of radius 1.

    >>> import torch
    >>> SignedCoordinates().lmo(torch.tensor([0.5, -3.0]))
    tensor([0., 1.])
    """
    return L1Ball(1.0, dim)


class Simplex(L1Ball):
    """{x ≥ 0 : Σ x_i = radius}: its atoms are radius · e_i; their cone is the non-negative orthant.

    >>> import numpy as np
    >>> Simplex().lmo(np.array([0.5, -3.0, 1.0]))
    array([0., 1., 0.])
    """

    symmetric = False

    def __init__(self, radius: float = 1.0, dim: int | None = None) -> None:
        super().__init__(radius, dim)
        self.diameter = math.sqrt(2) * self.radius
        self.margin = 0.0 if dim is None else self.radius / math.sqrt(dim)

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The coordinate of the smallest entry."""
        flat = direction.reshape(-1)
        index = int(flat.argmin())
        return self._answer(index, self.radius, float(flat[index]), direction)

    def gauge(self, x: Tensor) -> float:
        """Σ x_i / radius in the non-negative orthant."""
        return float(x.sum()) / self.radius if bool((x >= 0).all()) else math.inf

    def _contains(self, x: Tensor, tol: float) -> bool:
        return float(x.min()) >= -tol * self.radius and abs(float(x.sum()) - self.radius) <= tol * self.radius

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_simplex

        nearest: Tensor = project_simplex(x, self.radius)
        return nearest

    def minimal_width(self) -> float | None:
        """None: 0 is outside."""
        return None

    def face_bound(self) -> float:
        """Entries need only be 0 or more."""
        return math.inf

    def margin_for(self, zero: Tensor) -> float:
        """radius / √n."""
        return self.radius / math.sqrt(zero.numel())

    def decompose(self, x: Tensor) -> Decomposition:
        """x_i / radius on each coordinate."""
        flat = x.reshape(-1)
        room = slack(x) * self.radius
        if float(flat.min()) < -room:
            raise ValueError(
                f"x0 is outside the set: its smallest entry is {float(flat.min()):.6g}, expected 0 or more."
            )
        if abs(float(flat.sum()) - self.radius) > room * max(1, len(flat)) ** 0.5:
            raise ValueError(
                f"x0 is outside the set: its entries sum to {float(flat.sum()):.6g}, expected {self.radius:g}."
            )
        support = torch.nonzero(flat > 0).reshape(-1).tolist()
        return [(float(flat[i]) / self.radius, self.coordinate(i, self.radius, x)) for i in support]

    def conic_weights(self, x: Tensor) -> Decomposition:
        """x_i / radius on each coordinate."""
        if float(x.min()) < 0:
            raise ValueError(f"x0 is outside the cone of {self}: its smallest entry is {float(x.min()):.6g}.")
        return self.span_weights(x)

    def symmetrised(self) -> AtomSet:
        """The L1 ball of the same radius."""
        return L1Ball(self.radius, None if self.shape is None else self.shape[0])

    def __str__(self) -> str:
        return f"Simplex({self.radius:g})"


class KSparse(AtomSet):
    """conv of all vectors with k entries ±radius: {x : ‖x‖₁ ≤ k · radius, ‖x‖_∞ ≤ radius}.

    >>> import numpy as np
    >>> KSparse(2).lmo(np.array([0.5, -3.0, 1.0]))
    array([ 0.,  1., -1.])
    """

    symmetric = True

    def __init__(self, k: int, radius: float = 1.0, dim: int | None = None) -> None:
        self.k, self.entry = whole(k, "k"), positive(radius, "radius")
        if dim is not None and self.k > dim:
            raise ValueError(f"k is {k} in {dim} dimensions: expected at most as many entries as there are.")
        self.radius: float = self.entry * math.sqrt(self.k)
        self.diameter = 2 * self.radius
        self.shape = None if dim is None else (int(dim),)

    def _atom(self, indices: Tensor, values: Tensor, like: Tensor) -> Sparse:
        key = (indices.cpu().numpy().tobytes(), (values > 0).cpu().numpy().tobytes())
        return Sparse(1.0, key, indices=indices, values=values, shape=tuple(like.shape))

    def _pick(self, direction: Tensor, keys: Tensor) -> Tensor:
        if self.k > keys.numel():
            raise ValueError(f"{self} asked in {keys.numel()} dimensions: expected at least {self.k}.")
        return torch.topk(keys.reshape(-1), self.k).indices.sort().values

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The k largest entries in absolute value."""
        indices = self._pick(direction, direction.abs())
        entries = direction.reshape(-1)[indices]
        atom = self._atom(indices, torch.full_like(entries, self.entry).copysign(-entries), direction)
        total = -self.entry * float(entries.abs().double().sum())
        return Answer(atom, total * (1 + 4e-16 * self.k))

    def gauge(self, x: Tensor) -> float:
        """max(‖x‖_∞, ‖x‖₁/k) / radius."""
        return max(float(x.abs().max()), float(x.abs().sum()) / self.k) / self.entry

    def _project(self, x: Tensor) -> Tensor:
        sizes = x.abs().double()
        if float(sizes.clamp_max(self.entry).sum()) <= self.k * self.entry:
            return x.clamp(-self.entry, self.entry)
        return x.sign() * _shifted(sizes, 0.0, float(sizes.max()), self.entry, self.k * self.entry).to(x)

    def sample(self, like: Tensor, generator: torch.Generator) -> Sparse:
        """k uniform coordinates with uniform signs."""
        indices = torch.randperm(like.numel(), generator=generator)[: self.k].sort().values.to(like.device)
        signs = 2.0 * torch.randint(2, (self.k,), generator=generator) - 1.0
        return self._atom(indices, (self.entry * signs).to(like), like)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.k}, {self.entry:g})"


class Hypersimplex(KSparse):
    """conv of all vectors with k entries ``radius`` and no other: {0 ≤ x ≤ radius, Σ x_i = k · radius}.

    >>> import numpy as np
    >>> Hypersimplex(2).lmo(np.array([0.5, -3.0, 1.0]))
    array([1., 1., 0.])
    """

    symmetric = False

    def __init__(self, k: int, radius: float = 1.0, dim: int | None = None) -> None:
        super().__init__(k, radius, dim)
        self.margin = 0.0 if dim is None else self.k * self.entry / math.sqrt(dim)
        self.diameter = math.sqrt(2) * self.radius

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The k smallest entries."""
        indices = self._pick(direction, -direction)
        entries = direction.reshape(-1)[indices]
        atom = self._atom(indices, torch.full_like(entries, self.entry), direction)
        total = self.entry * float(entries.double().sum())
        return Answer(atom, total - 4e-16 * self.k * self.entry * float(entries.abs().double().sum()))

    def face_bound(self) -> float:
        """The entry of its vertices."""
        return self.entry

    def margin_for(self, zero: Tensor) -> float:
        """k · radius / √n."""
        return self.k * self.entry / math.sqrt(zero.numel())

    def gauge(self, x: Tensor) -> float:
        """Over the cone: max(x_max, Σx / k) / radius, attained by the hull with the origin."""
        if float(x.min()) < 0 or float(x.max()) > float(x.sum()) / self.k * (1 + 1e-12):
            return math.inf
        return float(x.sum()) / (self.k * self.entry)

    def _contains(self, x: Tensor, tol: float) -> bool:
        inside = float(x.min()) >= -tol * self.entry and float(x.max()) <= self.entry * (1 + tol)
        return inside and abs(float(x.sum()) - self.k * self.entry) <= tol * self.k * self.entry

    def _project(self, x: Tensor) -> Tensor:
        wide = x.double()
        low, high = float(wide.min()) - self.entry, float(wide.max())
        return _shifted(wide, low, high, self.entry, self.k * self.entry).to(x)

    def sample(self, like: Tensor, generator: torch.Generator) -> Sparse:
        """k uniform coordinates."""
        indices = torch.randperm(like.numel(), generator=generator)[: self.k].sort().values.to(like.device)
        return self._atom(indices, torch.full((self.k,), self.entry).to(like), like)


def _shifted(x: Tensor, low: float, high: float, top: float, total: float) -> Tensor:
    """clip(x - λ, 0, top) with the λ in [low, high] that makes its sum ``total``, by bisection."""
    for _ in range(100):
        middle = (low + high) / 2
        if float((x - middle).clamp(0.0, top).sum()) > total:
            low = middle
        else:
            high = middle
    return (x - high).clamp(0.0, top)
