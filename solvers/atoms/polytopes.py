"""Polytopes with a combinatorial oracle: doubly stochastic matrices, paths in a graph, linear programmes."""

import math
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor
from unknot.solvers.atoms.base import Answer, AtomSet, whole
from unknot.solvers.structured import Dense, Sparse


class Birkhoff(AtomSet):
    """Doubly stochastic matrices ``[n, n]``: its atoms are the permutation matrices, found by an assignment problem.

    >>> import numpy as np
    >>> Birkhoff(2).lmo(np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([[0., 1.],
           [1., 0.]])
    """

    def __init__(self, n: int | None = None) -> None:
        self.shape = None if n is None else (whole(n, "n"), int(n))
        if n is not None:
            self.radius, self.diameter, self.margin = math.sqrt(n), math.sqrt(2 * n), 1.0

    def face_bound(self) -> float:
        """Entries need only be 0 or more, as rows sum to 1."""
        return math.inf

    def margin_for(self, zero: Tensor) -> float:
        """1, the norm of the constant matrix 1/n."""
        return 1.0

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """A permutation, by the Hungarian method."""
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
        """A uniform permutation."""
        columns = torch.randperm(len(like), generator=generator)
        indices = (torch.arange(len(like)) * len(like) + columns).to(like.device)
        key = columns.int().numpy().tobytes()
        return Sparse(1.0, key, indices=indices, values=torch.ones(len(like)).to(like), shape=tuple(like.shape))

    def __str__(self) -> str:
        return "Birkhoff" if self.shape is None else f"Birkhoff({self.shape[0]})"


class LinearProgram(AtomSet):
    """{x : A_ub x ≤ b_ub, A_eq x = b_eq, bounds}, a bounded polyhedron, with HiGHS as its oracle.

    Arguments are those of ``scipy.optimize.linprog``; ``bounds`` are (0, None) for every entry if left out. The bound
    of an answer comes from its dual prices by weak duality, so that it does not rest on the solver's tolerance.

    >>> import numpy as np
    >>> LinearProgram(A_ub=np.array([[1.0, 2.0]]), b_ub=[2.0]).lmo(np.array([-1.0, -1.0]))
    array([2., 0.])
    """

    def __init__(
        self,
        A_ub: Any = None,
        b_ub: Any = None,
        A_eq: Any = None,
        b_eq: Any = None,
        bounds: Any = (0, None),
    ) -> None:
        given = A_ub if A_ub is not None else A_eq
        if given is None:
            raise ValueError("a linear programme needs A_ub or A_eq; for bounds alone use Box.")
        columns = given.shape[1] if hasattr(given, "shape") else np.asarray(given).shape[1]
        self.shape = (int(columns),)
        self._ub, self._eq = self._read(A_ub, b_ub, "A_ub"), self._read(A_eq, b_eq, "A_eq")
        pairs = np.array(bounds, dtype=float)  # None becomes NaN
        pairs = np.broadcast_to(pairs, (self.shape[0], 2)).copy()
        pairs[:, 0] = np.where(np.isnan(pairs[:, 0]), -math.inf, pairs[:, 0])
        pairs[:, 1] = np.where(np.isnan(pairs[:, 1]), math.inf, pairs[:, 1])
        self._bounds = pairs
        self._implied: dict[tuple[int, bool], float] = {}
        self.ask(torch.zeros(self.shape, dtype=torch.float64))

    def _read(self, matrix: Any, right: Any, name: str) -> tuple[Any, np.ndarray] | None:
        if (matrix is None) != (right is None):
            raise ValueError(f"{name} comes with its right-hand side: give both or neither.")
        if matrix is None:
            return None
        sparse = scipy.sparse.csr_array(matrix)
        b = np.asarray(right, dtype=float).reshape(-1)
        if sparse.shape != (len(b), self.shape[0] if self.shape else 0):
            raise ValueError(f"{name} has shape {list(sparse.shape)} with {len(b)} right-hand sides: make them agree.")
        return sparse, b

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """A vertex, by the simplex method."""
        cost = direction.detach().cpu().double().numpy()
        solved = self._solve(cost)
        if solved.status != 0:
            reason = {2: "is empty", 3: "is not bounded"}.get(solved.status, f"could not be solved ({solved.message})")
            raise ValueError(f"the linear programme {reason}: expected a bounded polyhedron with a point in it.")
        vector = as_tensor(solved.x, "the vertex").to(direction)
        rounding = torch.finfo(direction.dtype).eps * float(np.abs(cost) @ np.abs(solved.x))  # of the vertex itself
        return Answer(Dense(1.0, np.round(solved.x, 12).tobytes(), vector), self._below(cost, solved) - rounding)

    def _solve(self, cost: np.ndarray) -> Any:
        a_ub, b_ub = self._ub or (None, None)
        a_eq, b_eq = self._eq or (None, None)
        finest = {"dual_feasibility_tolerance": 1e-10, "primal_feasibility_tolerance": 1e-10}
        return scipy.optimize.linprog(cost, a_ub, b_ub, a_eq, b_eq, self._bounds, method="highs-ds", options=finest)

    def _end(self, i: int, high: bool) -> float:
        """How far x_i goes over the set, and a little beyond, where it has no bound of its own."""
        if (i, high) not in self._implied:
            cost = np.zeros(len(self._bounds))
            cost[i] = -1.0 if high else 1.0
            solved = self._solve(cost)
            far = abs(solved.fun) * (1 + 1e-3) + 1e-3 if solved.status == 0 else math.inf
            self._implied[i, high] = far if high else -far
        return self._implied[i, high]

    def _below(self, cost: np.ndarray, solved: Any) -> float:
        """bᵀy + Σ_i min over the bounds of r_i x_i, with the reduced costs r = d - Aᵀy, for the dual prices y.

        Prices are feasible up to HiGHS' tolerance, so that a tiny r_i may point where x_i has no bound; the set has.
        """
        value, reduced = 0.0, cost.copy()
        for pair, marginals in ((self._ub, solved.ineqlin.marginals), (self._eq, solved.eqlin.marginals)):
            if pair is None:
                continue
            prices = np.minimum(marginals, 0.0) if pair is self._ub else marginals
            value += float(pair[1] @ prices)
            reduced -= pair[0].T @ prices
        size = float(np.abs(cost).max()) + 1e-300
        reduced[np.abs(reduced) <= 1e-13 * size] = 0.0
        ends = np.where(reduced > 0, self._bounds[:, 0], self._bounds[:, 1])
        for i in np.flatnonzero(np.isinf(ends) & (reduced != 0)).tolist():
            ends[i] = self._end(i, bool(reduced[i] < 0))
        with np.errstate(invalid="ignore"):
            parts = np.where(reduced == 0, 0.0, reduced * ends)
        lower = value + float(parts.sum())
        return lower - 1e-14 * len(cost) * (abs(value) + float(np.abs(parts[np.isfinite(parts)]).sum()))

    def _contains(self, x: Tensor, tol: float) -> bool:
        point = x.numpy()
        room = tol * max(1.0, float(np.abs(point).max()))
        inside = bool((point >= self._bounds[:, 0] - room).all() and (point <= self._bounds[:, 1] + room).all())
        if self._ub is not None:
            inside &= bool((self._ub[0] @ point <= self._ub[1] + room).all())
        if self._eq is not None:
            inside &= bool((np.abs(self._eq[0] @ point - self._eq[1]) <= room).all())
        return inside

    def __str__(self) -> str:
        return f"LinearProgram([{self.shape[0] if self.shape else 0}])"
