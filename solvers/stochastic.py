"""Objectives of which one sees gradients at random, and iterates that suit them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, to_user, wants_numpy
from unknot.solvers.objectives import Objective, as_objective
from unknot.solvers.structured import Atom, RankOne


class DenseIterate:
    """θ as an array."""

    def __init__(self, x: Tensor) -> None:
        self.x = x.contiguous()
        self.version = 0

    def observed(self, support: Tensor, positions: Tensor | None = None) -> Tensor:
        """Entries at flat indices ``support[positions]``."""
        return self.x.view(-1)[support if positions is None else support[positions]]

    def step(self, atom: Atom, eta: float) -> None:
        """θ ← θ + η (s - θ)."""
        self.version += 1
        if isinstance(atom, RankOne):  # in one pass over memory
            self.x.addr_(atom.u, atom.v, beta=1 - eta, alpha=eta * atom.scale)
        else:
            self.x.mul_(1 - eta)
            atom.add_to(self.x, eta)

    def approach(self, other: Tensor, share: float) -> None:
        """θ ← θ + share (other - θ)."""
        self.version += 1
        self.x.lerp_(other, share)

    def dense(self) -> Tensor:
        """The array."""
        return self.x


class LowRankIterate:
    """θ = Uᵀ V of rank-one atoms, with its entries on a support up to date: a step costs O(m + n + support).

    Once the atoms would take more memory than the matrix, they are gathered in one, a few hundred at a time.
    """

    def __init__(self, shape: tuple[int, int], support: Tensor, dtype: torch.dtype) -> None:
        self.shape = shape
        self.rows, self.columns = support // shape[1], support % shape[1]
        pointers = torch.zeros(shape[0] + 1, dtype=torch.int32)
        pointers[1:] = torch.bincount(self.rows, minlength=shape[0]).cumsum(0)
        self._pattern = (self.columns.int().numpy(), pointers.numpy())
        self.values = torch.zeros(len(support), dtype=dtype)
        self.version = 0
        self.count, self.scale = 0, 1.0
        self.capacity = max(16, shape[0] * shape[1] // sum(shape))
        self.base: Tensor | None = None
        self.left, self.right = torch.empty(16, shape[0], dtype=dtype), torch.empty(16, shape[1], dtype=dtype)

    def observed(self, support: Tensor, positions: Tensor | None = None) -> Tensor:
        """Entries on the support."""
        return self.values if positions is None else self.values[positions]

    def step(self, atom: Atom, eta: float) -> None:
        """θ ← θ + η (s - θ)."""
        assert isinstance(atom, RankOne)
        self.version += 1
        self.values.mul_(1 - eta).add_(atom.u[self.rows] * atom.v[self.columns], alpha=eta * atom.scale)
        if eta >= 1:
            self.count, self.scale, self.base = 0, 1.0, None
        else:
            self.scale *= 1 - eta
        if self.scale < 1e-6:
            self._settle()
        if self.count >= self.capacity:
            self._gather()
        if self.count == len(self.left):
            self.left, self.right = (torch.cat([part, torch.empty_like(part)]) for part in (self.left, self.right))
        self.left[self.count] = atom.u * (eta * atom.scale / self.scale)
        self.right[self.count] = atom.v
        self.count += 1

    def _settle(self) -> None:
        """Fold the common factor into the atoms and drop those that have faded below rounding."""
        if self.base is not None:
            self.base *= self.scale
        self.left[: self.count] *= self.scale
        self.scale = 1.0
        if self.count:
            sizes = torch.linalg.vector_norm(self.left[: self.count], dim=1)
            kept = torch.nonzero(sizes > torch.finfo(sizes.dtype).eps * sizes.max()).reshape(-1)
            self.count = len(kept)
            self.left[: self.count], self.right[: self.count] = self.left[kept], self.right[kept]

    def _gather(self) -> None:
        if self.base is None:
            self.base = torch.zeros(self.shape, dtype=self.values.dtype)
            self.capacity = min(self.capacity, 256)
        self.base.addmm_(self.left[: self.count].t(), self.right[: self.count])
        self.count = 0

    def sparse(self, values: Tensor) -> Any:
        """Values on the support, which is sorted, as a sparse matrix that shares their memory."""
        return scipy.sparse.csr_array((values.numpy(), *self._pattern), shape=self.shape)

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """U ``[r, m]`` and V ``[r, n]``, unless they have been gathered."""
        if self.base is not None:
            return None
        return self.left[: self.count] * self.scale, self.right[: self.count].clone()

    def dense(self) -> Tensor:
        """The matrix."""
        left, right = self.left[: self.count], self.right[: self.count]
        return self.scale * (left.t() @ right if self.base is None else torch.addmm(self.base, left.t(), right))


Iterate = DenseIterate | LowRankIterate


class StochasticObjective(ABC):
    """E_ω f(θ, ω) of which one sees gradients at random ω.

    Attributes:
        shape: of θ; None if f takes any.
        support: flat indices of the entries that gradients may touch; None for all. Averaged gradients are then
            vectors over it.
        smoothness: L_f if known, for the error that an inexact oracle may make.
        exact: whether there is nothing random about it, so that one gradient is the gradient.
    """

    shape: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float64
    device: torch.device = torch.device("cpu")
    numpy: bool = False
    support: Tensor | None = None
    smoothness: float | None = None
    exact: bool = False
    adopts: bool = False
    """Whether f takes arrays of any kind, so that the start decides which."""

    def generator(self, seed: int) -> Any:
        """What ω is drawn with."""
        return torch.Generator().manual_seed(seed)

    @abstractmethod
    def average(self, d: Tensor, x: Iterate, rho: float, generator: Any) -> Tensor:
        """(1 - ρ) d + ρ ∇f(θ, ω) for a fresh ω; may change d in place."""

    def value(self, x: Iterate) -> float:
        """E f(θ, ω), NaN if it cannot be told."""
        return math.nan


class Sampled(StochasticObjective):
    """A stochastic gradient by a function.

    Args:
        gradient: (x, generator) → ∇f(x, ω), an unbiased estimate of the shape of x. ``x`` must not be changed;
            ``generator`` is ``numpy.random.Generator`` where x is NumPy's, else ``torch.Generator``.
        value: x → E f(x, ω), for reports, if it can be told.
        smoothness: L_f, if known.

    >>> import numpy as np
    >>> f = Sampled(lambda x, rng: x - rng.normal([1.0, 2.0], 0.1), value=lambda x: ((x - [1.0, 2.0]) ** 2).sum() / 2)
    """

    def __init__(
        self,
        gradient: Callable[[Any, Any], Any],
        value: Callable[[Any], Any] | None = None,
        smoothness: float | None = None,
    ) -> None:
        if not callable(gradient):
            raise ValueError(
                f"gradient is a {type(gradient).__name__}: expected a function of x and a random generator."
            )
        self._gradient, self._value, self.smoothness = gradient, value, smoothness
        self.adopts = True

    def generator(self, seed: int) -> Any:
        """Of the kind of x."""
        return np.random.default_rng(seed) if self.numpy else super().generator(seed)

    def average(self, d: Tensor, x: Iterate, rho: float, generator: Any) -> Tensor:
        """Ask the function."""
        array = x.dense()
        gradient = as_tensor(self._gradient(to_user(array, self.numpy), generator), "the stochastic gradient")
        if gradient.shape != array.shape:
            raise ValueError(
                f"the stochastic gradient has shape {list(gradient.shape)} but x has {list(array.shape)}: "
                "expected the same."
            )
        return d.mul_(1 - rho).add_(gradient.to(d), alpha=rho)

    def value(self, x: Iterate) -> float:
        """Ask the function, if there is one."""
        return math.nan if self._value is None else float(self._value(to_user(x.dense(), self.numpy)))


class SampledEntries(StochasticObjective):
    """f(X) = Σ_observed (X_ij - Y_ij)², with gradients from ``batch_size`` of the N observed entries.

    Those are scaled by N / batch_size, which makes them unbiased. They live on the observed entries only, so that an
    average of them costs O(N), not O(m n).

    Args:
        rows, columns, values: the observed entries ``[N]`` of Y.
        shape: of Y.
        batch_size: entries in each draw.
        replacement: draw i.i.d. (as the thesis says) or without repetition (as its code does).
        dtype: of the computation.

    >>> f = SampledEntries([0, 1], [1, 0], [2.0, 4.0], shape=(2, 2), batch_size=1)
    >>> f.support
    tensor([1, 2])
    """

    def __init__(
        self,
        rows: Any,
        columns: Any,
        values: Any,
        shape: Sequence[int],
        batch_size: int = 1000,
        *,
        replacement: bool = True,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        m, n = (int(size) for size in shape)
        i, j = (torch.as_tensor(np.asarray(index)).long() for index in (rows, columns))
        y = as_tensor(values, "values").to(dtype)
        if not len(i) == len(j) == len(y) or not len(y):
            raise ValueError(f"{len(i)} rows, {len(j)} columns, {len(y)} values: expected as many, and at least one.")
        if int(i.min()) < 0 or int(j.min()) < 0 or int(i.max()) >= m or int(j.max()) >= n:
            raise ValueError(
                f"entries up to ({int(i.max())}, {int(j.max())}) for a matrix of shape {[m, n]}: expected indices "
                "from 0 below the shape."
            )
        flat, order = torch.sort(i * n + j)
        repeated = torch.nonzero(flat[1:] == flat[:-1]).reshape(-1)
        if len(repeated):
            at = int(flat[repeated[0]])
            raise ValueError(
                f"entry ({at // n}, {at % n}) is given more than once ({len(repeated)} repetitions in all): keep one."
            )
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: expected at least 1.")
        self.support, self.targets = flat, y[order]
        self.shape, self.dtype = (m, n), dtype
        self.batch_size = min(int(batch_size), len(flat))
        self.replacement = replacement
        self.smoothness = 2.0
        self.numpy = wants_numpy(values)

    def average(self, d: Tensor, x: Iterate, rho: float, generator: torch.Generator) -> Tensor:
        """Two passes over the observed entries' averages; the batch itself is small."""
        assert self.support is not None
        count = len(self.targets)
        if self.replacement:
            batch = torch.randint(count, (self.batch_size,), generator=generator)
        else:
            batch = torch.randperm(count, generator=generator)[: self.batch_size]
        errors = x.observed(self.support, batch) - self.targets[batch]
        return d.mul_(1 - rho).index_add_(0, batch, errors, alpha=2 * rho * count / self.batch_size)

    def value(self, x: Iterate) -> float:
        """Over all observed entries."""
        assert self.support is not None
        return float((x.observed(self.support) - self.targets).double().square().sum())


class Exact(StochasticObjective):
    """A deterministic objective: its gradient is exact, and there is nothing to average."""

    exact = True

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.shape, self.dtype, self.device = objective.shape, objective.dtype, objective.device
        self.numpy = objective.numpy
        self.adopts = objective.adopts
        self._point: Any = None
        self._at: tuple[Any, int] | None = None

    @property
    def smoothness(self) -> float | None:  # type: ignore[override]
        """Of the objective."""
        return self.objective.smoothness

    def point(self, x: Iterate) -> Any:
        """The objective's point at x, which is computed anew only if x has moved since."""
        here = (x, x.version)
        if self._point is None:
            self._point = self.objective.at(x.dense().clone())
        elif self._at is None or self._at[0] is not x or self._at[1] != x.version:
            self._point.jump(x.dense().clone())
        self._at = here
        return self._point

    def average(self, d: Tensor, x: Iterate, rho: float, generator: Any) -> Tensor:
        """The gradient is copied: it may be the user's own array, and averaging works in place."""
        return d.mul_(1 - rho).add_(self.point(x).gradient(), alpha=rho)

    def value(self, x: Iterate) -> float:
        """f(θ), at no cost where the gradient was asked before."""
        value: float = self.point(x).value()
        return value


def as_stochastic(objective: Any) -> StochasticObjective:
    """A stochastic objective; a function of two arguments is a stochastic gradient."""
    if isinstance(objective, StochasticObjective):
        return objective
    if isinstance(objective, Objective | Tensor | np.ndarray):
        return Exact(as_objective(objective))
    if callable(objective):
        return Sampled(objective)
    raise ValueError(
        f"objective is a {type(objective).__name__}: expected a function (x, generator) -> gradient, a "
        "StochasticObjective, or one of unknot.solvers.objectives."
    )
