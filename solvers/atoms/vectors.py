"""Sets of vectors: balls of norms, the simplex, polytopes of few-sparse vertices, boxes, and products of sets."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
import torch
from torch import Tensor

from unknot.solvers.atoms.base import Answer, AtomSet, below, merged, outside, positive, slack, unit_vector, whole
from unknot.solvers.structured import Atom, Decomposition, Dense, OneHot, Sparse, as_tensor, norm


class _Ball(AtomSet):
    """Base of the balls around the origin."""

    symmetric = True

    def __init__(self, radius: float = 1.0, dim: int | None = None) -> None:
        self.radius: float = positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = None if dim is None else (int(dim),)

    def acceleration(self, greedy: bool, dim: int) -> float:
        return self.radius**2 * dim

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.radius:g})"


class L1Ball(_Ball):
    r"""{x : ‖x‖₁ ≤ radius}: its atoms are the signed coordinates ±radius · e_i.

    .. math:: \{x : \|x\|_1 \leq r\}

    .. math:: \mathrm{lmo}(y) = -r\,\mathrm{sign}(y_i)\, e_i

    .. math:: i = \mathrm{argmax}_j |y_j|

    Thesis: section "Matching Pursuit and Coordinate Descent", paragraph "Steepest Coordinate Descent".

    >>> import numpy as np
    >>> L1Ball(2.0).lmo(np.array([0.5, -3.0, 1.0]))
    array([0., 2., 0.])
    """

    def coordinate(self, index: int, scale: float, like: Tensor) -> OneHot:
        """scale · e_index, for arrays like another."""
        return OneHot(scale, index, index, tuple(like.shape), like.dtype, like.device)

    def _answer(self, index: int, scale: float, entry: float, direction: Tensor) -> Answer:
        # One product, computed in double: exact but for the last bit.
        lower = scale * entry
        return Answer(self.coordinate(index, scale, direction), lower - 4e-16 * abs(lower))

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        flat = direction.reshape(-1)
        index = int(flat.abs().argmax())
        entry = float(flat[index])
        return self._answer(index, -self.radius if entry > 0 else self.radius, entry, direction)

    def count(self, zero: Tensor) -> int:
        return zero.numel()

    def numbered(self, index: int, like: Tensor) -> OneHot:
        return self.coordinate(index, self.radius, like)

    def all_atoms(self) -> np.ndarray | None:
        if self.shape is None:
            return None
        rows = self.radius * np.eye(self.shape[0])
        return np.vstack([rows, -rows]) if self.symmetric else rows

    def gauge(self, x: Tensor) -> float:
        return float(x.abs().sum()) / self.radius

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_l1_ball

        nearest: Tensor = project_l1_ball(x, self.radius)
        return nearest

    def minimal_width(self) -> float | None:
        return None if self.shape is None else self.radius / math.sqrt(self.shape[0])

    def largest_curvature(self, objective: Any) -> float | None:
        diagonal = objective.hessian_diagonal()
        if diagonal is None:
            return super().largest_curvature(objective)
        return self.radius**2 * float(diagonal.max())

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
        flat = x.reshape(-1)
        support = torch.nonzero(flat).reshape(-1).tolist()
        return [(float(flat[i]) / self.radius, self.coordinate(i, self.radius, x)) for i in support]

    def sample(self, like: Tensor, generator: torch.Generator) -> OneHot:
        index = int(torch.randint(like.numel(), (), generator=generator))
        return self.coordinate(index, self.radius, like)


def SignedCoordinates(dim: int | None = None) -> L1Ball:
    r"""±e_i, the atoms of coordinate descent: the L1 ball of radius 1.

    .. math:: \{\pm e_i\}

    .. math:: \mathrm{lmo}(y) = -\mathrm{sign}(y_i)\, e_i

    .. math:: i = \mathrm{argmax}_j |y_j|

    Thesis: section "Matching Pursuit and Coordinate Descent", paragraph "Steepest Coordinate Descent".

    >>> import torch
    >>> SignedCoordinates().lmo(torch.tensor([0.5, -3.0]))
    tensor([0., 1.])
    """
    return L1Ball(1.0, dim)


class Simplex(L1Ball):
    r"""{x ≥ 0 : Σ x_i = radius}: its atoms are radius · e_i; their cone is the non-negative orthant.

    .. math:: \left\{x \geq 0 : \sum_i x_i = r\right\}

    .. math:: \mathrm{lmo}(y) = r\, e_i

    .. math:: i = \mathrm{argmin}_j\, y_j

    Thesis: a set 𝒜 of Eq. "eqn:lmo", chapter "Introduction and Background".

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
        flat = direction.reshape(-1)
        index = int(flat.argmin())
        return self._answer(index, self.radius, float(flat[index]), direction)

    def gauge(self, x: Tensor) -> float:
        return float(x.sum()) / self.radius if bool((x >= 0).all()) else math.inf

    def _contains(self, x: Tensor, tol: float) -> bool:
        return float(x.min()) >= -tol * self.radius and abs(float(x.sum()) - self.radius) <= tol * self.radius

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_simplex

        nearest: Tensor = project_simplex(x, self.radius)
        return nearest

    def minimal_width(self) -> float | None:
        return None

    def margin_for(self, zero: Tensor) -> float:
        return self.radius / math.sqrt(zero.numel())

    def decompose(self, x: Tensor) -> Decomposition:
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
        if float(x.min()) < 0:
            raise ValueError(f"x0 is outside the cone of {self}: its smallest entry is {float(x.min()):.6g}.")
        return self.span_weights(x)

    def symmetrised(self) -> AtomSet:
        return L1Ball(self.radius, None if self.shape is None else self.shape[0])


class KSparse(AtomSet):
    r"""conv of all vectors with k entries ±radius: {x : ‖x‖₁ ≤ k · radius, ‖x‖_∞ ≤ radius}.

    .. math:: \{x : \|x\|_1 \leq k r,\ \|x\|_\infty \leq r\}

    .. math:: \mathrm{lmo}(y) = -r\sum_{i\in S} \mathrm{sign}(y_i)\, e_i

    .. math:: S = \text{the } k \text{ largest } |y_i|

    Thesis: a set 𝒜 of Eq. "eqn:lmo", chapter "Introduction and Background".

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
        indices = self._pick(direction, direction.abs())
        entries = direction.reshape(-1)[indices]
        atom = self._atom(indices, torch.full_like(entries, self.entry).copysign(-entries), direction)
        total = -self.entry * float(entries.abs().double().sum())
        return Answer(atom, total * (1 + 4e-16 * self.k))

    def gauge(self, x: Tensor) -> float:
        return max(float(x.abs().max()), float(x.abs().sum()) / self.k) / self.entry

    def _project(self, x: Tensor) -> Tensor:
        sizes = x.abs().double()
        if float(sizes.clamp_max(self.entry).sum()) <= self.k * self.entry:
            return x.clamp(-self.entry, self.entry)
        return x.sign() * _shifted(sizes, 0.0, float(sizes.max()), self.entry, self.k * self.entry).to(x)

    def sample(self, like: Tensor, generator: torch.Generator) -> Sparse:
        indices = torch.randperm(like.numel(), generator=generator)[: self.k].sort().values.to(like.device)
        signs = 2.0 * torch.randint(2, (self.k,), generator=generator) - 1.0
        return self._atom(indices, (self.entry * signs).to(like), like)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.k}, {self.entry:g})"


def _shifted(x: Tensor, low: float, high: float, top: float, total: float) -> Tensor:
    """clip(x - λ, 0, top) with the λ in [low, high] that makes its sum ``total``, by bisection."""
    for _ in range(100):
        middle = (low + high) / 2
        if float((x - middle).clamp(0.0, top).sum()) > total:
            low = middle
        else:
            high = middle
    return (x - high).clamp(0.0, top)


class L2Ball(_Ball):
    r"""{x : ‖x‖₂ ≤ radius}; over its span, matching pursuit is gradient descent.

    .. math:: \{x : \|x\|_2 \leq r\},\quad \mathrm{lmo}(y) = -r\, \frac{y}{\|y\|_2}

    Thesis: a set 𝒜 of Eq. "eqn:lmo", chapter "Introduction and Background".

    >>> import numpy as np
    >>> L2Ball(5.0).lmo(np.array([3.0, -4.0]))
    array([-3.,  4.])
    """

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        size = norm(direction)
        if size == 0:
            vector = torch.zeros_like(direction)
            vector.view(-1)[0] = 1.0
            return Answer(Dense(self.radius, None, vector), 0.0)
        return Answer(
            Dense(-self.radius, None, direction / size),
            below(-self.radius * size, direction, self.radius, direction.numel()),
        )

    def gauge(self, x: Tensor) -> float:
        return norm(x) / self.radius

    def _project(self, x: Tensor) -> Tensor:
        return x * min(1.0, self.radius / max(norm(x), 1e-300))

    def minimal_width(self) -> float:
        return self.radius

    def decompose(self, x: Tensor) -> Decomposition:
        size = norm(x)
        if size > self.radius * (1 + slack(x)):
            raise outside("its norm", size, self.radius)
        share = (1 + min(1.0, size / self.radius)) / 2
        towards = self.ask(-x).atom
        assert isinstance(towards, Dense)
        opposite = Dense(-towards.scale, None, towards.vector)
        return [(share, towards), (1 - share, opposite)] if share < 1 else [(1.0, towards)]

    def sample(self, like: Tensor, generator: torch.Generator) -> Dense:
        return Dense(self.radius, None, unit_vector(like.shape, like, generator))


class Box(AtomSet):
    r"""{x : lower ≤ x ≤ upper}, entry by entry; its atoms are the corners.

    .. math:: \{x : l \leq x \leq u\}

    .. math:: \mathrm{lmo}(y)_i = l_i\ \text{ if }\ y_i > 0,\ \text{ else }\ u_i

    Thesis: a set 𝒜 of Eq. "eqn:lmo", chapter "Introduction and Background".

    >>> import numpy as np
    >>> Box(0.0, np.array([1.0, 2.0])).lmo(np.array([3.0, -4.0]))
    array([0., 2.])
    """

    def __init__(self, lower: Any = -1.0, upper: Any = 1.0, dim: int | None = None) -> None:
        self.low, self.high = as_tensor(lower, "lower"), as_tensor(upper, "upper")
        if bool((self.low > self.high).any()):
            raise ValueError("a lower bound of the box is above its upper bound: expected lower <= upper.")
        shape = torch.broadcast_shapes(self.low.shape, self.high.shape)
        self.shape = tuple(shape) or (None if dim is None else (int(dim),))
        if self.shape is not None:
            ends = torch.maximum(self.low.abs(), self.high.abs()).double().expand(self.shape)
            self.radius = norm(ends)
            self.diameter = norm((self.high - self.low).double().expand(self.shape))
        self.symmetric = bool((self.low == -self.high).all())

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Box":
        other: Box = object.__new__(Box)
        vars(other).update(vars(self), low=self.low.to(device, dtype), high=self.high.to(device, dtype))
        return other

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """A corner."""
        rising = direction > 0
        vector = torch.where(rising, self.low, self.high).contiguous()
        value = float((direction.double() * vector.double()).sum())
        size = norm(vector)
        key = np.packbits(rising.cpu().numpy().reshape(-1)).tobytes()
        return Answer(Dense(1.0, key, vector), value - 4e-16 * math.sqrt(direction.numel()) * norm(direction) * size)

    def gauge(self, x: Tensor) -> float:
        """The largest x_i / bound_i, where the box contains the origin."""
        if bool((self.low > 0).any()) or bool((self.high < 0).any()):
            raise ValueError("the atomic norm of a box without the origin is not a norm: use contains(x).")
        bound = torch.where(x >= 0, self.high.double(), -self.low.double())
        ratios = torch.where(x == 0, 0.0, x.abs() / bound)
        return float(ratios.max())

    def _contains(self, x: Tensor, tol: float) -> bool:
        room = tol * max(1.0, float(x.abs().max()))
        return bool(((x >= self.low - room) & (x <= self.high + room)).all())

    def _project(self, x: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, self.low.to(x)), self.high.to(x))

    def sample(self, like: Tensor, generator: torch.Generator) -> Dense:
        """A uniform corner."""
        coins = torch.randint(2, tuple(like.shape), generator=generator).bool().to(like.device)
        return Dense(1.0, None, torch.where(coins, self.low.to(like), self.high.to(like)).contiguous())

    def __str__(self) -> str:
        return f"Box([{float(self.low.min()):g}, {float(self.high.max()):g}])"


def LInfBall(radius: float = 1.0, dim: int | None = None) -> Box:
    r"""{x : ‖x‖_∞ ≤ radius}.

    .. math:: \{x : \|x\|_\infty \leq r\},\quad \mathrm{lmo}(y) = -r\,\mathrm{sign}(y)

    Thesis: a set 𝒜 of Eq. "eqn:lmo", chapter "Introduction and Background".

    >>> import numpy as np
    >>> LInfBall(2.0).lmo(np.array([3.0, -4.0]))
    array([-2.,  2.])
    """
    return Box(-positive(radius, "radius"), radius, dim)


class GroupBall(AtomSet):
    r"""{x : Σ_g ‖x_g‖₂ ≤ radius}, the ball of the group lasso.

    .. math:: \left\{x : \sum_g \|x_g\|_2 \leq r\right\}

    .. math:: \mathrm{lmo}(y)_g = -r\, \frac{y_g}{\|y_g\|_2}\ \text{ for }\ g = \mathrm{argmax}_h \|y_h\|_2

    Thesis: a set 𝒜 of Eq. "eqn:lmo", chapter "Introduction and Background".

    Args:
        groups: the group of every entry, as integers ``[n]``.
        radius: of the ball.

    >>> import numpy as np
    >>> GroupBall([0, 0, 1], 5.0).lmo(np.array([3.0, -4.0, 2.0]))
    array([-3.,  4.,  0.])
    """

    symmetric = True

    def __init__(self, groups: Sequence[int] | Any, radius: float = 1.0) -> None:
        labels = np.asarray(groups)
        if labels.ndim != 1 or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError("groups should be whole numbers [n]: the group of every entry.")
        self.groups = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
        self.number = int(self.groups.max()) + 1
        self.radius: float = positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = (len(labels),)

    def _norms(self, x: Tensor) -> Tensor:
        squares = torch.zeros(self.number, dtype=torch.float64, device=x.device)
        return squares.index_add_(0, self.groups.to(x.device), x.double().square()).sqrt()

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        norms = self._norms(direction)
        best = int(norms.argmax())
        size = float(norms[best])
        indices = torch.nonzero(self.groups.to(direction.device) == best).reshape(-1)
        values = direction[indices] * (-self.radius / size) if size > 0 else torch.zeros_like(direction[indices])
        if size == 0:
            values[0] = self.radius
        lower = -self.radius * size
        return Answer(
            Sparse(1.0, None, indices=indices, values=values, shape=tuple(direction.shape)),
            lower * (1 + 4e-16 * math.sqrt(len(indices))),
        )

    def gauge(self, x: Tensor) -> float:
        return float(self._norms(x).sum()) / self.radius

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_l1_ball

        norms = self._norms(x)
        shrunk = project_l1_ball(norms, self.radius)
        return x * (shrunk / norms.clamp_min(1e-300))[self.groups.to(x.device)].to(x)

    def __str__(self) -> str:
        return f"GroupBall({self.number} groups, {self.radius:g})"


class Product(AtomSet):
    r"""𝒜_1 × … × 𝒜_m: iterates are the blocks, flattened, one after the other; each set must know its shape.

    .. math:: \mathcal{A}_1 \times \dots \times \mathcal{A}_m

    .. math::
        \mathrm{lmo}(y_1, \dots, y_m) = \left(\mathrm{lmo}_{\mathcal{A}_1}(y_1), \dots,
        \mathrm{lmo}_{\mathcal{A}_m}(y_m)\right)

    Thesis: section "Practical Motivation", paragraph "Splitting".

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
        at = [None] * len(self.sets) if x is None else self.blocks(x)
        pairs = zip(self.sets, self.blocks(direction), at, strict=True)
        answers = [block.ask(piece, here, exact=exact) for block, piece, here in pairs]
        lower = (
            math.fsum(answer.lower for answer in answers) if all(a.lower > -math.inf for a in answers) else -math.inf
        )
        return Answer(self.join([answer.atom for answer in answers], direction), lower)

    def gauge(self, x: Tensor) -> float:
        return max(block.gauge(piece) for block, piece in zip(self.sets, self.blocks(x), strict=True))

    def _contains(self, x: Tensor, tol: float) -> bool:
        return all(block.contains(piece, tol) for block, piece in zip(self.sets, self.blocks(x), strict=True))

    def _project(self, x: Tensor) -> Tensor:
        nearest = [block.project(piece) for block, piece in zip(self.sets, self.blocks(x), strict=True)]
        return torch.cat([piece.reshape(-1) for piece in nearest])

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "Product":
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
        drawn = [block.sample(piece, generator) for block, piece in zip(self.sets, self.blocks(like), strict=True)]
        return self.join(drawn, like)

    def __str__(self) -> str:
        return f"Product({', '.join(map(str, self.sets))})"


def _root_of_squares(sizes: Sequence[float | None]) -> float | None:
    known = [size for size in sizes if size is not None]
    return math.sqrt(sum(size**2 for size in known)) if len(known) == len(sizes) else None


class Birkhoff(AtomSet):
    r"""Doubly stochastic matrices ``[n, n]``: its atoms are the permutation matrices, found by an assignment problem.

    .. math:: \{X \geq 0 : X 1 = 1,\ X^T 1 = 1\}

    .. math:: \mathrm{lmo}(Y) = \text{the permutation of least }\ \sum_i Y_{i\pi(i)}

    Thesis: a set 𝒜 of Eq. "eqn:lmo", chapter "Introduction and Background".

    >>> import numpy as np
    >>> Birkhoff(2).lmo(np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([[0., 1.],
           [1., 0.]])
    """

    def __init__(self, n: int | None = None) -> None:
        self.shape = None if n is None else (whole(n, "n"), int(n))
        if n is not None:
            self.radius, self.diameter, self.margin = math.sqrt(n), math.sqrt(2 * n), 1.0

    def margin_for(self, zero: Tensor) -> float:
        return 1.0

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        if direction.ndim != 2 or direction.shape[0] != direction.shape[1]:
            raise ValueError(f"the atoms of {self} are square matrices, but d has shape {list(direction.shape)}.")
        cost = direction.detach().cpu().double().numpy()
        rows, columns = scipy.optimize.linear_sum_assignment(cost)
        indices = torch.from_numpy(rows * len(cost) + columns).to(direction.device)
        values = torch.ones(len(rows), dtype=direction.dtype, device=direction.device)
        atom = Sparse(1.0, columns.astype(np.int32).tobytes(), indices=indices, values=values, shape=tuple(cost.shape))
        chosen = cost[rows, columns]
        # The optimality rests on 2n dual prices, each of up to n additions of entries.
        return Answer(atom, math.fsum(chosen) - 4e-16 * len(cost) ** 2 * float(np.abs(cost).max()))

    def _contains(self, x: Tensor, tol: float) -> bool:
        sums = torch.cat([x.sum(0), x.sum(1)])
        return float(x.min()) >= -tol and float((sums - 1).abs().max()) <= tol * len(x)

    def sample(self, like: Tensor, generator: torch.Generator) -> Sparse:
        columns = torch.randperm(len(like), generator=generator)
        indices = (torch.arange(len(like)) * len(like) + columns).to(like.device)
        key = columns.int().numpy().tobytes()
        return Sparse(1.0, key, indices=indices, values=torch.ones(len(like)).to(like), shape=tuple(like.shape))

    def __str__(self) -> str:
        return "Birkhoff" if self.shape is None else f"Birkhoff({self.shape[0]})"
