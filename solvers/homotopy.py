"""Convex hulls with affine constraints: homotopy conditional gradients, with and without dual variables.

    minimise  E_ω f(θ, ω) + Σ_i g_i(A_i θ)   over θ ∈ conv(𝒜)

(chapter "Convex Hulls with Affine Constraints: Stochastic Frank-Wolfe"). Every g_i is smoothed with a β_k → 0,

    ∇g_β(Aθ) = β⁻¹ Aᵀ(Aθ - prox_{βg}(Aθ)),

so that one question to the oracle of 𝒜 in each iteration is all that is ever solved.
"""

import dataclasses
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from typing_extensions import Unpack

from unknot.solvers.atoms import AtomSet, Inexact, Product, as_atoms
from unknot.solvers.objectives import Objective, as_objective
from unknot.solvers.result import Result, Run, State, Status, check_gradient
from unknot.solvers.structured import Atom, RankOne, as_tensor, choose, dot, is_finite, returns_numpy, to_user
from unknot.solvers.terms import Agreement, Term

Rule = Callable[[int], float]


@dataclass(frozen=True)
class Schedule:
    """η_k, β_k and ρ_k as functions of k = 1, 2, …

    Attributes:
        step: η_k ∈ [0, 1].
        smoothing: β_k > 0.
        averaging: ρ_k ∈ [0, 1]; 1 where gradients are exact.
        dual: λ_0 of the dual variables of the constraints, None for none.
        mean: p of the mean of the iterates with weights ∝ k^p, which is what a run with constraints then returns; None
            for the last iterate.
    """

    step: Rule
    smoothing: Rule
    averaging: Rule = lambda k: 1.0
    dual: float | None = None
    mean: float | None = None

    def at(self, k: int) -> tuple[float, float, float]:
        """η_k, β_k and ρ_k, checked."""
        eta, beta, rho = self.step(k), self.smoothing(k), self.averaging(k)
        if not (0 <= eta <= 1 and beta > 0 and 0 <= rho <= 1):
            raise ValueError(
                f"the schedules give η = {eta}, β = {beta}, ρ = {rho} at k = {k}: expected η and ρ in [0, 1] and β > 0."
            )
        return eta, beta, rho

    @staticmethod
    def hcgm(beta0: float = 1.0, step: Rule | None = None, smoothing: Rule | None = None) -> "Schedule":
        """Homotopy CGM: η_k = 2/(k+1), β_k = β_0/√(k+1).

        >>> Schedule.hcgm().at(1)[0], Schedule.hcgm(3.0).at(8)[1]
        (1.0, 1.0)
        """
        size = _positive(beta0)
        return Schedule(step or (lambda k: 2.0 / (k + 1.0)), smoothing or (lambda k: size / math.sqrt(k + 1)))

    @staticmethod
    def cgal(
        beta0: float = 1.0, step: Rule | None = None, smoothing: Rule | None = None, mean: float | None = 3.0
    ) -> "Schedule":
        """The augmented Lagrangian CGAL: η_k and β_k = 1/λ_k of :meth:`hcgm`, and dual variables with λ_0 = 1/β_0.

        >>> Schedule.cgal(0.5).dual
        2.0
        """
        plain = Schedule.hcgm(beta0, step, smoothing)
        if mean is not None and not (mean >= 0 and math.isfinite(mean)):
            raise ValueError(
                f"mean is {mean}: expected a power p >= 0 of the weights k^p, or None for the last iterate."
            )
        return Schedule(plain.step, plain.smoothing, plain.averaging, 1.0 / float(beta0), mean)

    @staticmethod
    def shcgm(
        beta0: float = 1.0, step: Rule | None = None, smoothing: Rule | None = None, averaging: Rule | None = None
    ) -> "Schedule":
        """Stochastic homotopy CGM: η_k = 9/(k+8), β_k = β_0/√(k+8), ρ_k = 4/(k+7)^(2/3).

        >>> Schedule.shcgm().at(1)[0], Schedule.shcgm().at(1)[2]
        (1.0, 1.0)
        """
        size = _positive(beta0)
        return Schedule(
            step or (lambda k: 9.0 / (k + 8.0)),
            smoothing or (lambda k: size / math.sqrt(k + 8)),
            averaging or (lambda k: min(1.0, 4.0 / (k + 7.0) ** (2 / 3))),
        )


def _positive(beta0: float) -> float:
    if not (beta0 > 0 and math.isfinite(beta0)):
        raise ValueError(f"beta0 is {beta0}: expected a positive number.")
    return float(beta0)


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
    r"""E_ω f(θ, ω) of which one sees gradients at random ω.

    .. math:: f(\theta) = \mathbb{E}_\omega f(\theta, \omega)

    Thesis: Eq. "eqn:SFW_main-template", chapter "Convex Hulls with Affine Constraints".

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
    """True if f takes arrays of any kind, so that the start decides which."""

    def generator(self, seed: int) -> Any:
        """Generator that draws ω."""
        return torch.Generator().manual_seed(seed)

    @abstractmethod
    def average(self, d: Tensor, x: Iterate, rho: float, generator: Any) -> Tensor:
        """(1 - ρ) d + ρ ∇f(θ, ω) for a fresh ω; may change d in place."""

    def value(self, x: Iterate) -> float:
        """E f(θ, ω), NaN if it is unknown."""
        return math.nan


class Sampled(StochasticObjective):
    r"""A stochastic gradient by a function.

    .. math:: f(\theta) = \mathbb{E}_\omega f(\theta, \omega)

    Thesis: Eq. "eqn:SFW_main-template", chapter "Convex Hulls with Affine Constraints".

    Args:
        gradient: (x, generator) → ∇f(x, ω), an unbiased estimate of the shape of x. ``x`` must not be changed;
            ``generator`` is ``numpy.random.Generator`` where x is NumPy's, else ``torch.Generator``.
        value: x → E f(x, ω), for reports, if it is known.
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
        return np.random.default_rng(seed) if self.numpy else super().generator(seed)

    def average(self, d: Tensor, x: Iterate, rho: float, generator: Any) -> Tensor:
        array = x.dense()
        gradient = as_tensor(self._gradient(to_user(array, self.numpy), generator), "the stochastic gradient")
        if gradient.shape != array.shape:
            raise ValueError(
                f"the stochastic gradient has shape {list(gradient.shape)} but x has {list(array.shape)}: "
                "expected the same."
            )
        return d.mul_(1 - rho).add_(gradient.to(d), alpha=rho)

    def value(self, x: Iterate) -> float:
        return math.nan if self._value is None else float(self._value(to_user(x.dense(), self.numpy)))


class SampledEntries(StochasticObjective):
    r"""f(X) = Σ_observed (X_ij - Y_ij)², with gradients from ``batch_size`` of the N observed entries.

    .. math:: f(X) = \sum_{(i,j)\in\omega} (X_{ij} - Y_{ij})^2

    Thesis: Eq. "eqn:exp_online_mat_comp", section "Empirical Evaluation".

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
        self.numpy = returns_numpy(values)

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
        """The objective's point at x, which is recomputed only if x has moved since."""
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
        value: float = self.point(x).value()
        return value


def _exact(objective: Any) -> StochasticObjective:
    """A deterministic objective, as the loop takes it."""
    known = isinstance(objective, StochasticObjective) and objective.exact
    return objective if known else Exact(as_objective(objective))


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


class UncertifiedLimits(TypedDict, total=False):
    """When a run ends and what is seen of it: keywords of every solver here, explained at :func:`homotopy_cgm`."""

    max_iterations: int
    time_limit: float | None
    callback: Callable[[State], Any] | None
    progress: bool
    evaluate_every: int


class CertifiedLimits(UncertifiedLimits, total=False):
    """Limits of runs that have a gap to stop on."""

    tol: float
    feasibility_tol: float


def homotopy_cgm(
    objective: Any,
    atoms: Any,
    constraints: Term | Sequence[Term] = (),
    x0: Any = None,
    *,
    beta0: float = 1.0,
    normalise: bool = True,
    step: Rule | None = None,
    smoothing: Rule | None = None,
    oracle_error: float = 0.0,
    **limits: Unpack[CertifiedLimits],
) -> Result:
    """Minimise f(θ) + Σ g_i(A_i θ) over conv(𝒜): Homotopy CGM of Yurtsever et al., the deterministic baseline.

    Thesis: section "Stochastic Homotopy CGM", with full gradients.

        η_k = 2/(k+1),   β_k = β_0/√(k+1),   k = 1, 2, …
        v_k = ∇f(θ_k) + Σ_i β_k⁻¹ A_iᵀ(A_i θ_k - prox_{β_k g_i}(A_i θ_k))
        s_k = argmin_{θ ∈ conv(𝒜)} ⟨v_k, θ⟩,   θ_{k+1} = θ_k + η_k (s_k - θ_k)

    Objective and distance from the constraints fall like 1/√k. ``gap`` is a certificate by weak duality, the value
    minus the best lower bound. A value below the optimum while infeasible is normal: look at ``feasibility`` as well.

    Args:
        objective, atoms, x0: as for :func:`frank_wolfe`; the start is forgotten after the first step, as η_1 = 1.
        constraints: terms of :mod:`unknot.solvers.terms`, constraints and Lipschitz functions alike.
        beta0: β_0; too large and constraints are met late, too small and the objective falls late.
        normalise: smooth term i with β_k‖A_i‖², which is to divide every A_i by its norm; False takes the A_i as they
            are.
        step, smoothing: η_k and β_k as functions of k = 1, 2, …, if not those above.
        oracle_error: δ ≥ 0: let the oracle's answers be wrong by as much as the additive error of the analysis,
            δ η_k/2 · diam(𝒜)² (L_f + ‖A‖²/β_k), allows. For studies; needs L_f and the diameter.
        limits: ``max_iterations=1000``; ``tol=0``: stop once the gap is at most this and the feasibility at most
            ``feasibility_tol=1e-3``, 0 does not stop; ``time_limit``, ``callback``, ``progress`` as for
            :func:`frank_wolfe`; ``evaluate_every=1``: iterations between evaluations of value and feasibility.

    Returns:
        A :class:`Result` with ``feasibility`` = dist(Aθ, 𝒦) and ``violations`` of every constraint. Its status is
        "infeasible", with a warning, if the constraints certainly cannot be met.

    >>> import numpy as np
    >>> from unknot.solvers import homotopy_cgm
    >>> from unknot.solvers.atoms import L2Ball
    >>> from unknot.solvers.terms import Box
    >>> result = homotopy_cgm(np.array([2.0, -1.0]), L2Ball(3.0), Box(0.0, 1.0), max_iterations=20_000)
    >>> result.x.round(1) + 0.0, result.feasibility < 0.02
    (array([1., 0.]), True)
    """
    schedule = Schedule.hcgm(beta0, step, smoothing)
    solver = Homotopy(
        _exact(objective), atoms, constraints, x0, schedule, normalise=normalise, oracle_error=oracle_error
    )
    return solver.run(name="homotopy_cgm", **limits)


def augmented_lagrangian_cgm(
    objective: Any,
    atoms: Any,
    constraints: Term | Sequence[Term] = (),
    x0: Any = None,
    *,
    beta0: float = 1.0,
    normalise: bool = True,
    step: Rule | None = None,
    smoothing: Rule | None = None,
    mean: float | None = 3.0,
    **limits: Unpack[CertifiedLimits],
) -> Result:
    """Minimise f(θ) + Σ g_i(A_i θ) over conv(𝒜) with dual variables: CGAL of Yurtsever, Fercoq and Cevher (2019).

    Thesis: section "Frank-Wolfe", paragraph "Variants for Non-Smooth Optimization".

        η_k = 2/(k+1),   λ_k = λ_0 √(k+1),   k = 1, 2, …,   λ_0 = 1/β_0
        v_k = ∇f(θ_k) + Σ_i A_iᵀ ŷ_i,   ŷ_i = λ_k (w_i - prox(w_i)),   w_i = A_i θ_k + y_i/λ_k
        s_k = argmin_{θ ∈ conv(𝒜)} ⟨v_k, θ⟩,   θ_{k+1} = θ_k + η_k (s_k - θ_k)
        y_i ← y_i + σ_k (A_i θ_{k+1} - prox(A_i θ_{k+1} + y_i/λ_k)),   σ_k = min(λ_0, 4 D² λ_0 (k+1)^(-3/2) / ‖·‖²)

    D is the diameter of the set; σ_k is that of Yurtsever et al., "Scalable Semidefinite Programming" (2021). As
    iterates swing around the optimum, their mean with weights ∝ k^p, p = ``mean``, is evaluated and returned;
    ``mean=None`` is the last iterate, as in the papers. Other arguments and the result are those of
    :func:`homotopy_cgm`, with the prices y_i in ``duals``. The gap is a certificate here too: ŷ are dual variables.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L2Ball
    >>> from unknot.solvers.terms import Box
    >>> result = augmented_lagrangian_cgm(np.array([2.0, -1.0]), L2Ball(3.0), Box(0.0, 1.0), max_iterations=2000)
    >>> result.x.round(2) + 0.0, result.feasibility < 1e-3
    (array([1., 0.]), True)
    """
    schedule = Schedule.cgal(beta0, step, smoothing, mean)
    solver = Homotopy(_exact(objective), atoms, constraints, x0, schedule, normalise=normalise)
    return solver.run(name="augmented_lagrangian_cgm", **limits)


def stochastic_homotopy_cgm(
    objective: Any,
    atoms: Any,
    constraints: Term | Sequence[Term] = (),
    x0: Any = None,
    *,
    beta0: float = 1.0,
    normalise: bool = True,
    step: Rule | None = None,
    smoothing: Rule | None = None,
    averaging: Rule | None = None,
    oracle_error: float = 0.0,
    seed: int = 0,
    **limits: Unpack[UncertifiedLimits],
) -> Result:
    """Minimise E f(θ, ω) + Σ g_i(A_i θ) over conv(𝒜) (Algorithm "Stochastic Homotopy CGM").

    Thesis: Algorithm "Stochastic Homotopy CGM", Eq. "eqn:SFW_main-template".

        η_k = 9/(k+8),   β_k = β_0/√(k+8),   ρ_k = 4/(k+7)^(2/3),   k = 1, 2, …
        d_k = (1 - ρ_k) d_{k-1} + ρ_k ∇f(θ_k, ω_k)
        v_k = d_k + Σ_i β_k⁻¹ A_iᵀ(A_i θ_k - prox_{β_k g_i}(A_i θ_k))
        s_k = argmin_{θ ∈ conv(𝒜)} ⟨v_k, θ⟩,   θ_{k+1} = θ_k + η_k (s_k - θ_k)

    In expectation the objective falls like k^(-1/3) and the distance from the constraints like k^(-5/12). There is no
    certificate: ``gap`` is infinite, but for the first gradient of a deterministic f.

    Args:
        objective: a function (x, generator) → ∇f(x, ω), or a :class:`StochasticObjective` such as :class:`Sampled`
            (with E f for the trace) or :class:`SampledEntries`, or a deterministic one.
        averaging: ρ_k as a function of k = 1, 2, …, if not the above.
        seed: of the draws ω_k.

    Other arguments and the result are those of :func:`homotopy_cgm`.

    >>> import numpy as np
    >>> from unknot.solvers import stochastic_homotopy_cgm
    >>> from unknot.solvers.atoms import L2Ball
    >>> from unknot.solvers.terms import Box
    >>> noisy = lambda x, rng: x - rng.normal([2.0, -1.0], 0.5)
    >>> result = stochastic_homotopy_cgm(noisy, L2Ball(3.0), Box(0.0, 1.0), np.zeros(2), max_iterations=20_000)
    >>> bool(np.allclose(result.x, [1.0, 0.0], atol=0.1))
    True
    """
    schedule = Schedule.shcgm(beta0, step, smoothing, averaging)
    solver = Homotopy(
        objective, atoms, constraints, x0, schedule, normalise=normalise, oracle_error=oracle_error, seed=seed
    )
    return solver.run(name="stochastic_homotopy_cgm", **limits)


def stochastic_frank_wolfe(objective: Any, atoms: Any, x0: Any = None, **options: Any) -> Result:
    r"""Minimise E f(θ, ω) over conv(𝒜): the stochastic Frank-Wolfe of Mokhtari et al., without any constraint.

    .. math:: d_k = (1 - \rho_k)\, d_{k-1} + \rho_k \nabla f(\theta_k, \omega_k)

    .. math:: s_k = \mathrm{lmo}_{\mathcal{A}}(d_k)

    .. math:: \theta_{k+1} = \theta_k + \eta_k (s_k - \theta_k)

    Thesis: section "Frank-Wolfe", paragraph "Stochastic Variants and Further Non-Smooth Extensions".

    It is :func:`stochastic_homotopy_cgm` without terms: the same η_k and ρ_k, and no β_k. Where gradients live on a
    support and atoms have rank one, the oracle sees a sparse matrix and the iterate is kept as its factors.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import Simplex
    >>> noisy = lambda x, rng: x - rng.normal([0.8, 0.6, -1.0], 0.1)
    >>> stochastic_frank_wolfe(noisy, Simplex(), np.eye(3)[0], max_iterations=5000).x.round(1) + 0.0
    array([0.6, 0.4, 0. ])
    """
    return stochastic_homotopy_cgm(objective, atoms, (), x0, **options)


class Homotopy:
    """A run of homotopy conditional gradients that can be continued: iterate, averaged gradient, dual variables, k.

    Args:
        objective: as for :func:`stochastic_homotopy_cgm`.
        atoms, constraints, x0: as for :func:`homotopy_cgm`.
        schedule: the :class:`Schedule` by which η_k, β_k and ρ_k go, and whether there are duals.
        normalise, oracle_error, seed: as for :func:`homotopy_cgm` and :func:`stochastic_homotopy_cgm`.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L2Ball
    >>> from unknot.solvers.terms import Box
    >>> run = Homotopy(np.array([2.0, -1.0]), L2Ball(3.0), Box(0.0, 1.0), None, Schedule.cgal())
    >>> first, second = run.run(500), run.run(500)
    >>> run.k, second.feasibility < first.feasibility
    (1001, True)
    """

    def __init__(
        self,
        objective: Any,
        atoms: Any,
        constraints: Term | Sequence[Term],
        x0: Any,
        schedule: Schedule,
        *,
        normalise: bool = True,
        oracle_error: float = 0.0,
        seed: int = 0,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise ValueError(f"schedule is a {type(schedule).__name__}: expected a Schedule, such as Schedule.cgal().")
        objective = as_stochastic(objective)
        self.objective, self.schedule, self.k = objective, schedule, 1
        x0 = x0.x if isinstance(x0, Result) else x0
        self.atoms, start, self.numpy = read(objective, as_atoms(atoms), x0)
        self.terms = [term.bind(start, self.numpy) for term in as_terms(constraints)]
        self.norms = [term.norm(start) if normalise else 1.0 for term in self.terms]
        self.oracle_error = oracle_error
        self.x: Iterate = DenseIterate(start)
        sparse = self.atoms.sparse_directions and not self.terms and not oracle_error and x0 is None
        if sparse and objective.support is not None and start.device.type == "cpu":
            self.x = LowRankIterate((start.shape[0], start.shape[1]), objective.support, start.dtype)
        size = start.shape if objective.support is None else (len(objective.support),)
        self.averaged = start.new_zeros(size)
        self.mean = DenseIterate(start.clone()) if schedule.mean is not None and self.terms else None
        self.duals = [torch.zeros_like(term.apply(start)) for term in self.terms] if schedule.dual is not None else None
        self.lower = -math.inf
        self.generator = objective.generator(seed)
        self._like = start
        if oracle_error:
            self.atoms = self._inexact(oracle_error)

    def run(
        self,
        max_iterations: int = 1000,
        *,
        tol: float = 0.0,
        feasibility_tol: float = 1e-3,
        time_limit: float | None = None,
        callback: Callable[[State], Any] | None = None,
        progress: bool = False,
        evaluate_every: int = 1,
        name: str = "homotopy",
    ) -> Result:
        """Make more iterations; the arguments are those of :func:`homotopy_cgm`."""
        if evaluate_every < 1:
            raise ValueError(f"evaluate_every is {evaluate_every}: expected at least 1.")
        if not (tol >= 0 and feasibility_tol >= 0):
            raise ValueError(f"tol is {tol} and feasibility_tol {feasibility_tol}: expected 0 or more.")
        if tol and not self.objective.exact:
            raise ValueError(f"tol is {tol}, but random gradients give no gap to stop on: use max_iterations instead.")
        run = Run(name, self.numpy, max_iterations, time_limit=time_limit, callback=callback, progress=progress)
        objective, x = self.objective, self.x
        while True:
            eta, beta, rho = self.schedule.at(self.k)
            self.averaged = objective.average(self.averaged, x, rho, self.generator)
            v, residuals = self._direction(beta)
            if isinstance(v, Tensor):
                check_gradient(v, run.iteration)
            answer = self.atoms.ask(v, x.dense() if self.oracle_error else None)
            lower = answer.lower if objective.exact and rho == 1 else -math.inf  # an older gradient bounds nothing
            value, feasibility, gap = math.nan, math.nan, math.inf
            if run.iteration % evaluate_every == 0 or run.iteration >= max_iterations:
                value, feasibility, gap = self._evaluate(v, residuals, lower, beta)
            done = 0 < tol >= gap and feasibility <= feasibility_tol
            shown = self.best.dense() if callback is not None else self._like
            if run.finished(shown, value, gap, done, feasibility=feasibility):
                break
            x.step(answer.atom, eta)
            if self.mean is not None and self.schedule.mean is not None:
                self.mean.approach(x.dense(), (self.schedule.mean + 1) / (self.k + self.schedule.mean))
            self.k += 1
            if self.duals is not None:
                self._raise_prices(beta)
        if math.isnan(value):  # the run ended between two evaluations
            value, feasibility, gap = self._evaluate(v, residuals, lower, beta)
            run.values[-1], run.feasibilities[-1], run.gaps[-1] = value, feasibility, gap
        if run.status != Status.CONVERGED:
            run.status = feasible_or_warn(run, self.atoms, self.best.dense(), self.terms, self.norms)
        return self._result(run, feasibility)

    @property
    def best(self) -> Iterate:
        """Iterate that a run returns: the mean of the iterates where there is one, else the last of them."""
        return self.x if self.mean is None else self.mean

    def _direction(self, beta: float) -> tuple[Any, list[Tensor]]:
        """β v = β d + Σ_i ‖A_i‖⁻² A_iᵀ(w_i - prox(w_i)), and these residuals; without terms v = d, maybe sparse."""
        x, d, objective = self.x, self.averaged, self.objective
        if isinstance(x, LowRankIterate):
            return x.sparse(d), []
        residuals = [self._residual(i, beta) for i in range(len(self.terms))]
        if not self.terms and objective.support is None:
            return d, residuals
        v = torch.zeros_like(x.x) if not self.terms else None
        for term, residual, norm in zip(self.terms, residuals, self.norms, strict=True):
            back = term.adjoint(residual, x.x)
            if v is not None:
                v.add_(back, alpha=norm**-2)
            else:
                v = back * norm**-2
        assert v is not None
        if objective.support is None:
            v.add_(d, alpha=beta)
        else:
            v.view(-1).index_add_(0, objective.support, d, alpha=beta if self.terms else 1.0)
        return v, residuals

    def _residual(self, i: int, beta: float) -> Tensor:
        """w - prox(w) for w = A_i θ + β y_i, which is β times the dual variable of the lower bound."""
        term, size = self.terms[i], beta * self.norms[i] ** 2
        if self.duals is None:
            return term.residual(self.x.dense(), size)
        shifted = torch.add(term.apply(self.x.dense()), self.duals[i], alpha=size)
        return shifted - term.prox(shifted, size)

    def _raise_prices(self, beta: float) -> None:
        """y_i ← y_i + σ (A_i θ - prox(A_i θ + β y_i))."""
        assert self.duals is not None
        assert self.schedule.dual is not None
        steps = []
        for i, norm in enumerate(self.norms):
            # A θ - prox(w) = (w - prox(w)) - β y
            steps.append(self._residual(i, beta).sub_(self.duals[i], alpha=beta * norm**2))
        squared = sum(dot(step, step) / norm**2 for step, norm in zip(steps, self.norms, strict=True))
        sigma = self.schedule.dual
        if self.atoms.diameter is not None and squared > 0:
            sigma *= min(1.0, 4 * self.atoms.diameter**2 * len(steps) / (self.k**1.5 * squared))
        for dual, step, norm in zip(self.duals, steps, self.norms, strict=True):
            dual.add_(step, alpha=sigma / norm**2)

    def _evaluate(self, v: Any, residuals: list[Tensor], lower: float, beta: float) -> tuple[float, float, float]:
        """f + Σ Lipschitz g, the distance from all constraints, and the gap."""
        if lower > -math.inf and isinstance(v, Tensor):
            self.lower = max(self.lower, self._bound(v, residuals, lower, beta))
        x, squared = self.best, 0.0
        value = self.objective.value(x)
        for i, term in enumerate(self.terms):
            if not term.indicator:
                value += term.value(term.apply(x.dense()))
            else:
                own = residuals[i] if self.duals is None and self.mean is None else term.residual(x.dense(), beta)
                squared += dot(own, own)
        gap = math.inf if self.lower == -math.inf else value - self.lower  # a value that is not known is NaN
        return value, math.sqrt(squared), gap if self.terms else max(0.0, gap)

    def _bound(self, v: Tensor, residuals: list[Tensor], lower: float, beta: float) -> float:
        """A lower bound on the optimum, rounding included.

        With ŷ_i = residual_i/β_i ∈ ∂g_i(p_i), p_i = prox(w_i), Fenchel's inequality and convexity of f give

            F* ≥ f(θ) + Σ_i (g_i(p_i) + ⟨ŷ_i, A_i θ - p_i⟩) - (⟨v, θ⟩ - min_z ⟨v, z⟩).
        """
        x = self.x.dense()
        bound = self.objective.value(self.x)
        size = abs(bound)
        for i, (term, norm, residual) in enumerate(zip(self.terms, self.norms, residuals, strict=True)):
            away = residual if self.duals is None else residual.sub(self.duals[i], alpha=beta * norm**2)
            part = dot(residual, away) / (beta * norm**2)
            if not term.indicator:
                part += term.value(term.apply(x) - away)
            bound, size = bound + part, size + abs(part)
        scale = beta if self.terms else 1.0
        at = dot(v, x)
        rounding = 1e-14 * math.sqrt(v.numel()) * (size + abs(at) / scale)
        rounding *= 1 if v.dtype == torch.float64 else 1e7
        return bound - (at - lower) / scale - rounding

    def _inexact(self, delta: float) -> AtomSet:
        """The oracle with additive error δ η_k/2 · D² (L_f + ‖A‖²/β_k), times β_k as the oracle gets β_k v_k."""
        diameter, smoothness = self.atoms.diameter, self.objective.smoothness
        if not delta > 0:
            raise ValueError(f"oracle_error is {delta}: expected 0 (as exact as the oracle is) or more.")
        if diameter is None or smoothness is None:
            raise ValueError(
                "oracle_error needs the diameter of the set and the smoothness of f, one of which is unknown: use a "
                "set with a diameter, and Sampled(..., smoothness=L) or an objective that knows its L."
            )
        squared = sum((t.norm(self._like) / norm) ** 2 for t, norm in zip(self.terms, self.norms, strict=True))

        def error(question: int) -> float:
            k = question + 1
            beta = self.schedule.smoothing(k) if self.terms else 1.0
            return delta * self.schedule.step(k) / 2 * diameter**2 * (smoothness * beta + squared)

        return Inexact(self.atoms, additive=error)

    def _result(self, run: Run, feasibility: float) -> Result:
        more: dict[str, Any] = {}
        factors = self.x.factors() if isinstance(self.x, LowRankIterate) else None
        if factors is not None:
            left, right = factors
            sizes = torch.linalg.vector_norm(left, dim=1)
            more["weights"] = to_user(sizes, self.numpy)
            more["active"] = tuple(
                RankOne(1.0, None, u / size, w) for u, w, size in zip(left, right, sizes.tolist(), strict=True)
            )
        x = self.best.dense()
        more["violations"] = tuple(
            float(torch.linalg.vector_norm(term.residual(x, 1.0))) for term in self.terms if term.indicator
        )
        more["duals"] = tuple(to_user(y.clone(), self.numpy) for y in self.duals or ())
        return run.result(x.clone(), feasibility=feasibility, **more)


def read(smooth: StochasticObjective, atom_set: AtomSet, x0: Any) -> tuple[AtomSet, Tensor, bool]:
    """Agree on shape, dtype, device and kind of array; the start is x0 or an atom."""
    start = None if x0 is None else as_tensor(x0, "x0")
    shape = smooth.shape or atom_set.shape or (None if start is None else tuple(start.shape))
    if shape is None:
        raise ValueError("the shape of x is unknown: give x0, or the set's dimension, for example L1Ball(1.0, dim=10).")
    atom_set.check_shape(shape, "the objective's argument")
    if start is not None and tuple(start.shape) != tuple(shape):
        raise ValueError(f"x0 has shape {list(start.shape)} but the problem is over {list(shape)}: make them agree.")
    dtype, device, numpy = smooth.dtype, smooth.device, smooth.numpy
    if smooth.adopts:
        if start is not None:
            dtype, device = start.dtype, start.device
        numpy = smooth.numpy = returns_numpy(x0)
    bound = atom_set.bind(dtype, device, numpy)
    if start is None:
        start = torch.zeros(tuple(shape), dtype=dtype, device=device)
        if smooth.support is None:
            start = bound.atom(torch.ones_like(start)).dense().reshape(start.shape)
    return bound, start.to(dtype=dtype, device=device).clone(), numpy


def as_terms(constraints: Term | Sequence[Term]) -> list[Term]:
    """A list of terms, checked."""
    terms = list(constraints) if isinstance(constraints, Iterable) else [constraints]
    for term in terms:
        if not isinstance(term, Term):
            raise ValueError(
                f"a constraint is a {type(term).__name__}: expected a term of unknot.solvers.terms, such as Box(0, 1)."
            )
    return terms


TREND = -0.05
"""A distance from the constraints that falls more slowly than k to this power does not fall."""

NEAR = 1e-3
"""Share of the largest distance of a run below which it is no news that the distance does not fall any further."""

MARGIN = 1e-6
"""Share of h(θ) by which its lower bound must be above 0, and the relative distance that rounding may hide."""


def feasible_or_warn(run: Run, atom_set: AtomSet, x: Tensor, terms: list[Term], norms: list[float]) -> Status:
    """Warn if feasibility does not improve; "infeasible" if no point of the hull meets the constraints for certain.

    The certificate is that of Frank-Wolfe on h(θ) = Σ ‖A_i‖⁻² dist²(A_i θ, 𝒦_i) / 2, from where the run ended:
    h(θ) - ⟨∇h(θ), θ⟩ + min_z ⟨∇h(θ), z⟩ ≤ min h, so if it is positive, no point has h = 0.
    """
    distances = np.array(run.feasibilities)
    k = np.arange(1, len(distances) + 1)
    known = np.isfinite(distances) & (k >= len(k) / 4)
    if len(distances) < 100 or known.sum() < 10 or not distances[known].min() > 1e-6 * max(1.0, np.nanmax(distances)):
        return run.status
    trend = float(np.polyfit(np.log(k[known]), np.log(distances[known]), 1)[0])
    if trend < TREND:
        return run.status
    message = (
        f"the distance from the constraints is {distances[-1]:.4g} after {len(distances) - 1} iterations and does not "
        f"fall (like k^{trend:.2f}; expected k^-0.4 or faster)"
    )
    if certainly_infeasible(run, atom_set, x, terms, norms):
        warnings.warn(
            f"{message}: the constraints are infeasible, no point of {atom_set} meets {', '.join(map(str, terms))}. "
            "Enlarge the set or loosen the constraints.",
            UserWarning,
            stacklevel=4,
        )
        return Status.INFEASIBLE
    if distances[-1] > NEAR * np.nanmax(distances):
        warnings.warn(
            f"{message}: the constraints may be infeasible, or beta0 is too large; try a tenth of it.",
            UserWarning,
            stacklevel=4,
        )
    return run.status


def certainly_infeasible(run: Run, atom_set: AtomSet, x: Tensor, terms: list[Term], norms: list[float]) -> bool:
    """Take up to 200 Frank-Wolfe steps on h, while there is time, until its minimum is certainly above 0."""
    pairs = [(term, norm) for term, norm in zip(terms, norms, strict=True) if term.indicator]
    theta = DenseIterate(x.clone())
    for step in range(200):
        if step and run.expired():
            break
        gradient, value, size = torch.zeros_like(x), 0.0, 0.0
        for term, norm in pairs:
            residual = term.residual(theta.x, 1.0)
            gradient += term.adjoint(residual, x) * norm**-2
            value += dot(residual, residual) / (2 * norm**2)
            image = term.apply(theta.x)
            size += dot(image, image) / (2 * norm**2)
        answer = atom_set.ask(gradient, theta.x, exact=True)
        lowest = value - dot(gradient, theta.x) + answer.lower
        if lowest > MARGIN * value and lowest > MARGIN**2 * size:
            return True
        theta.step(answer.atom, 2 / (step + 3))
    return False


def minimise_over_intersection(
    objective: Any,
    first: Any,
    second: Any,
    x0: Any = None,
    *,
    splitting: str = "auto",
    method: str = "augmented",
    **options: Any,
) -> Result:
    r"""Minimise f over 𝒰 ∩ 𝒱, each with its own oracle or projection.

    .. math:: \min_{(u,v)\in\mathcal{U}\times\mathcal{V}} f(u)\ \text{ subject to }\ u = v

    .. math:: \min_{u\in\mathcal{U}} f(u)\ \text{ subject to }\ u \in \mathcal{V}

    The first, "product", asks both sets separately; the second, "projection", projects on 𝒱.

    Thesis: section "Practical Motivation", paragraph "Splitting".

    Args:
        objective, x0, options: as for the solver.
        first: 𝒰, an atom set; it needs its shape for "product".
        second: 𝒱, an atom set (product) or a constraint of :mod:`unknot.solvers.terms` (projection).
        splitting: "product", "projection", or "auto" by the kind of ``second``.
        method: "augmented" for :func:`augmented_lagrangian_cgm`, which comes closer, or "homotopy" for the thesis'
            :func:`homotopy_cgm`. A stochastic objective is solved by :func:`stochastic_homotopy_cgm`.

    Returns:
        The :class:`Result` with u as ``x``, which lies in conv(𝒰); ``feasibility`` is ‖u - v‖, or dist(u, 𝒱).

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L1Ball, L2Ball
    >>> y = np.array([2.0, 0.5, 0.0])
    >>> both = minimise_over_intersection(y, L2Ball(1.0, dim=3), L1Ball(1.2, dim=3), max_iterations=600)
    >>> bool(np.abs(both.x).sum() < 1.201), bool(np.linalg.norm(both.x) <= 1)
    (True, True)
    """
    kind = choose(splitting, ("auto", "product", "projection"), "splitting")
    if kind == "auto":
        kind = "projection" if isinstance(second, Term) else "product"
    stochastic = isinstance(objective, StochasticObjective)
    choice = choose(method, ("augmented", "homotopy"), "method")
    solver: Any = augmented_lagrangian_cgm if choice == "augmented" else homotopy_cgm
    solver = stochastic_homotopy_cgm if stochastic else solver
    if kind == "projection":
        if not isinstance(second, Term):
            raise ValueError("splitting by projection needs a constraint as the second set, such as Box(0, 1).")
        return solver(objective, first, second, x0, **options)
    sets = as_atoms(first), as_atoms(second)
    shape = sets[0].shape
    if shape is None or sets[1].shape != shape:
        raise ValueError(f"sets of shapes {shape} and {sets[1].shape} do not intersect: expected the same, and known.")
    size = math.prod(shape)
    start = None if x0 is None else to_user(as_tensor(x0, "x0").reshape(-1).repeat(2), returns_numpy(x0))
    block = _FirstBlock(objective if stochastic else _exact(objective), shape)
    result = solver(block, Product(*sets), Agreement(size), start, **options)
    return dataclasses.replace(result, x=result.x[:size].reshape(shape))


class _FirstBlock(StochasticObjective):
    """f(u) or E f(u, ω) of θ = (u, v)."""

    def __init__(self, inner: StochasticObjective, shape: tuple[int, ...]) -> None:
        self.inner, self.block, self.size = inner, shape, math.prod(shape)
        self.shape = (2 * self.size,)
        self.dtype, self.device, self.smoothness = inner.dtype, inner.device, inner.smoothness
        self.support, self.adopts, self.exact = inner.support, inner.adopts, inner.exact

    @property
    def numpy(self) -> bool:  # type: ignore[override]
        return self.inner.numpy

    @numpy.setter
    def numpy(self, numpy: bool) -> None:
        self.inner.numpy = numpy

    def generator(self, seed: int) -> Any:
        return self.inner.generator(seed)

    def _first(self, x: Iterate) -> DenseIterate:
        return DenseIterate(x.dense()[: self.size].reshape(self.block))

    def average(self, d: Tensor, x: Iterate, rho: float, generator: Any) -> Tensor:
        if self.support is not None:
            return self.inner.average(d, self._first(x), rho, generator)
        part = d[: self.size].reshape(self.block)
        d[: self.size] = self.inner.average(part, self._first(x), rho, generator).reshape(-1)
        return d

    def value(self, x: Iterate) -> float:
        return self.inner.value(self._first(x))


def s3ccm(
    objective: Any,
    project: Callable[[Any], Any],
    constraint: Term | None = None,
    x0: Any = None,
    *,
    gamma: float | Rule = 1.0,
    seed: int = 0,
    max_iterations: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
    evaluate_every: int = 1,
) -> Result:
    """Stochastic three-composite minimisation of Yurtsever et al. (S3CCM), the baseline that projects.

    Thesis: section "Empirical Evaluation" of the chapter "Convex Hulls with Affine Constraints", the baseline.

        x = P_𝒳(y + γu),   u ← u + (y - x)/γ,   y ← prox_{γg}(x - γ(u + ∇f(x, ω)))

    Every iteration projects on 𝒳, a full decomposition for sets of matrices. A γ above 1/L_f may not converge, the
    thesis' γ = 1 with L_f = 2 included; a function of k that falls does.

    Args:
        project: x → nearest point of 𝒳.
        constraint: a term without a map, such as ``Box``.
        x0: start; 0 if left out.
        gamma: γ, or a function of k = 1, 2, ….

    Other arguments and the result are those of :func:`stochastic_homotopy_cgm`.

    >>> import numpy as np
    >>> from unknot.solvers.terms import Box
    >>> ball = lambda x: x * min(1.0, 3.0 / np.linalg.norm(x))
    >>> noisy = lambda x, rng: x - rng.normal([2.0, -1.0], 0.5)
    >>> result = s3ccm(noisy, ball, Box(0.0, 1.0), np.ones(2), gamma=lambda k: 1 / k, max_iterations=2000)
    >>> bool(np.allclose(result.x, [1.0, 0.0], atol=0.1))
    True
    """
    smooth = as_stochastic(objective)
    if not callable(project):
        raise ValueError(f"project is a {type(project).__name__}: expected a function x -> nearest point of the set.")
    _, start, numpy = read(smooth, as_atoms(lambda v: 0 * v), x0)
    term = None if constraint is None else as_terms(constraint)[0].bind(start, numpy)
    if term is not None and term.apply(start) is not start:
        raise ValueError(f"{term} has a map: S3CCM takes terms of θ itself, such as Box(0, 1).")
    rule = gamma if callable(gamma) else lambda k: float(gamma)
    generator = smooth.generator(seed)

    def projected(y: Tensor) -> Tensor:
        return as_tensor(project(to_user(y, numpy)), "the projection").to(y)

    y = start
    dual = (y - projected(y)) / rule(1)
    run = Run("s3ccm", numpy, max_iterations, time_limit=time_limit, callback=callback, progress=progress)
    while True:
        size = rule(run.iteration + 1)
        if not (size > 0 and math.isfinite(size)):
            raise ValueError(f"gamma is {size} at k = {run.iteration + 1}: expected a positive number.")
        x = DenseIterate(projected(y + size * dual))
        if not is_finite(x.x):
            run.status = Status.DIVERGED
            break
        value, feasibility = math.nan, math.nan
        residual = torch.zeros(()) if term is None else term.residual(x.x, size)
        if run.iteration % evaluate_every == 0 or run.iteration >= max_iterations:
            value, feasibility = smooth.value(x), float(torch.linalg.vector_norm(residual))
        if run.finished(x.x, value, math.inf, feasibility=feasibility):
            break
        dual = dual + (y - x.x) / size
        d = torch.zeros_like(x.x) if smooth.support is None else torch.zeros(len(smooth.support)).to(x.x)
        d = smooth.average(d, x, 1.0, generator)
        y = x.x - size * dual
        if smooth.support is None:
            y.sub_(d, alpha=size)
        else:
            y.view(-1).index_add_(0, smooth.support, d, alpha=-size)
        y = y if term is None else term.prox(y, size)
    feasibility = float(torch.linalg.vector_norm(residual))
    return run.result(x.x, value=smooth.value(x), feasibility=feasibility, violations=(feasibility,) if term else ())
