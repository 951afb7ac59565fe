"""Sets of matrices: the nuclear-norm ball and positive semi-definite matrices of bounded trace."""

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers import spectral
from unknot.solvers.atoms.base import Answer, AtomSet, outside, positive, slack, unit_vector
from unknot.solvers.structured import Decomposition, RankOne


class _MatrixSet(AtomSet):
    """What the two sets of matrices share: an extreme eigenpair by :mod:`unknot.solvers.spectral`."""

    def __init__(self, tol: float, method: str, warm: bool) -> None:
        if not tol >= 0:
            raise ValueError(
                f"tol is {tol}: expected 0 (machine precision) or the relative accuracy of the eigenvalue."
            )
        if method not in spectral.METHODS:
            raise ValueError(f"method {method!r} is unknown: expected one of {', '.join(spectral.METHODS)}.")
        self.tol, self.method, self.warm = tol, method, warm
        self._random = np.random.default_rng(0)
        self._last: Any = None

    def _start(self, size: int) -> Any:
        """Near the last answer, as gradients change little from one iteration to the next; or a random vector.

        The noise matters: a start that happens to be an eigenvector, though not the wanted one, is all that a Krylov
        method would ever see.
        """
        noise = self._random.standard_normal(size)
        if not self.warm or self._last is None or len(self._last) != size:
            return noise
        last = self._last.cpu().numpy() if isinstance(self._last, Tensor) else self._last
        return last + 0.1 / math.sqrt(size) * noise

    def _how(self, exact: bool) -> dict[str, Any]:
        """Method and accuracy of the eigensolver: the set's own, or one that certifies."""
        return {"method": "auto", "tol": 0.0} if exact else {"method": self.method, "tol": self.tol}

    def bind(self, dtype: torch.dtype, device: torch.device, numpy: bool) -> "AtomSet":
        """With nothing remembered of other runs."""
        bound = copy.copy(self)
        bound._random, bound._last = np.random.default_rng(0), None
        return bound

    def _check_matrix(self, direction: Tensor) -> None:
        if direction.ndim != 2:
            raise ValueError(f"the atoms of {self} are matrices, but the direction has shape {list(direction.shape)}.")


class NuclearBall(_MatrixSet):
    """{X : ‖X‖_* ≤ radius}: its atoms are radius · u vᵀ with unit u and v.

    Args:
        radius: bound on the sum of the singular values.
        shape: of the matrices, if it should be checked.
        tol: relative accuracy of the singular value (0: machine precision); a loose one makes a cheap approximate
            oracle of multiplicative accuracy about 1 - tol.
        method: of :func:`unknot.solvers.spectral.top_singular_pair`.
        warm: start from the last answer, or from a random vector.

    >>> import numpy as np
    >>> NuclearBall(2.0).lmo(np.diag([1.0, -3.0])).round(6) + 0.0
    array([[0., 0.],
           [0., 2.]])
    """

    symmetric = True
    sparse_directions = True

    def __init__(
        self,
        radius: float = 1.0,
        shape: Sequence[int] | None = None,
        tol: float = 0.0,
        *,
        method: str = "auto",
        warm: bool = True,
    ) -> None:
        super().__init__(tol, method, warm)
        self.radius: float = positive(radius, "radius")
        self.diameter = 2 * self.radius
        self.shape = None if shape is None else tuple(int(size) for size in shape)

    def ask(self, direction: Any, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The top pair of singular vectors; the direction may be sparse (SciPy or torch)."""
        self._check_matrix(direction)
        start = self._start(direction.shape[1])
        sigma, u, v, error = spectral.top_singular_pair(direction, start, **self._how(exact))
        self._last = v
        if not isinstance(u, Tensor):
            u, v = torch.from_numpy(np.ascontiguousarray(u)), torch.from_numpy(np.ascontiguousarray(v))
        return Answer(RankOne(-self.radius, None, u, v), -self.radius * (sigma + error))

    def gauge(self, x: Tensor) -> float:
        """‖X‖_* / radius."""
        return float(torch.linalg.matrix_norm(x, "nuc")) / self.radius

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_nuclear_ball

        nearest: Tensor = project_nuclear_ball(x, self.radius)
        return nearest

    def minimal_width(self) -> float | None:
        """radius / √min(m, n)."""
        return None if self.shape is None else self.radius / math.sqrt(min(self.shape))

    def acceleration(self, greedy: bool, dim: int) -> float:
        """radius² times the number of entries."""
        return self.radius**2 * dim

    def decompose(self, x: Tensor) -> Decomposition:
        """The singular value decomposition; what is left over goes to an opposite pair."""
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        total = float(values.sum())
        if total > self.radius * (1 + slack(x) * len(values)):
            raise outside("its nuclear norm", total, self.radius)
        kept = [i for i, value in enumerate(values.tolist()) if value > slack(x) * total] or [0]
        parts: Decomposition = [
            (
                float(values[i]) / max(self.radius, total),
                RankOne(self.radius, None, left[:, i].clone(), right[i].clone()),
            )
            for i in kept
        ]
        rest = max(0.0, 1.0 - sum(weight for weight, _ in parts))
        weight, top = parts[0]
        parts[0] = (weight + rest / 2, top)
        opposite = dataclasses.replace(top, scale=-top.scale)
        return [*parts, (rest / 2, opposite)] if rest > 0 else parts

    def sample(self, like: Tensor, generator: torch.Generator) -> RankOne:
        """Two uniform unit vectors."""
        rows, columns = like.shape
        return RankOne(
            self.radius, None, unit_vector((rows,), like, generator), unit_vector((columns,), like, generator)
        )

    def __str__(self) -> str:
        return f"NuclearBall({self.radius:g})"


class PSDTrace(_MatrixSet):
    """{X ⪰ 0 : tr X = trace}, or ``≤`` with ``equality=False``: atoms trace · u uᵀ, and 0 in the second case.

    The oracle wants the smallest eigenvalue of the (symmetrised) direction. With equality its eigenvector is the
    answer even where the eigenvalue is positive; with inequality the answer is then 0.

    >>> import numpy as np
    >>> PSDTrace(2.0).lmo(np.diag([1.0, 3.0])) + 0.0
    array([[2., 0.],
           [0., 0.]])
    >>> PSDTrace(2.0, equality=False).lmo(np.diag([1.0, 3.0])) + 0.0
    array([[0., 0.],
           [0., 0.]])
    """

    def __init__(
        self,
        trace: float = 1.0,
        *,
        equality: bool = True,
        dim: int | None = None,
        tol: float = 0.0,
        method: str = "auto",
        warm: bool = True,
    ) -> None:
        super().__init__(tol, method, warm)
        self.trace = positive(trace, "trace")
        self.equality = equality
        self.radius = self.trace
        self.diameter = math.sqrt(2) * self.trace
        self.shape = None if dim is None else (int(dim), int(dim))
        self.margin = 0.0 if dim is None else self.trace / math.sqrt(dim)

    def ask(self, direction: Any, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """The eigenvector of the smallest eigenvalue; the direction may be sparse."""
        self._check_matrix(direction)
        if direction.shape[0] != direction.shape[1]:
            raise ValueError(f"{self} has square matrices, but the direction has shape {list(direction.shape)}.")
        start = self._start(direction.shape[0])
        value, u, error = spectral.smallest_eigenvector(direction, start, **self._how(exact))
        self._last = u
        if not isinstance(u, Tensor):
            u = torch.from_numpy(np.ascontiguousarray(u))
        lower = self.trace * (value - error)
        return Answer(
            RankOne(self.trace if self.equality or value < 0 else 0.0, None, u, u),
            lower if self.equality else min(0.0, lower),
        )

    def gauge(self, x: Tensor) -> float:
        """tr X / trace over positive semi-definite matrices."""
        lowest = float(torch.linalg.eigvalsh((x + x.t()) / 2)[0])
        return float(x.trace()) / self.trace if lowest >= -1e-12 * float(x.norm()) else math.inf

    def _contains(self, x: Tensor, tol: float) -> bool:
        lowest = float(torch.linalg.eigvalsh((x + x.t()) / 2)[0])
        total = float(x.trace()) - self.trace
        inside = total <= tol * self.trace and (not self.equality or total >= -tol * self.trace)
        return inside and lowest >= -tol * self.trace and bool(torch.allclose(x, x.t(), rtol=0, atol=tol * self.trace))

    def _project(self, x: Tensor) -> Tensor:
        from unknot.solvers.terms import project_psd_trace

        if not self.equality:
            values, vectors = torch.linalg.eigh((x + x.t()) / 2)
            kept = values.clamp_min(0)
            if float(kept.sum()) <= self.trace:
                return (vectors * kept) @ vectors.t()
        nearest: Tensor = project_psd_trace(x, self.trace)
        return nearest

    def margin_for(self, zero: Tensor) -> float:
        """trace / √n."""
        return self.trace / math.sqrt(len(zero))

    def conic_weights(self, x: Tensor) -> Decomposition:
        """The eigendecomposition, scaled."""
        scale = float(x.trace()) / self.trace
        if not scale > 0:
            raise ValueError(f"x0 is outside the cone of {self}: its trace is {float(x.trace()):.6g}, expected > 0.")
        return [(scale * weight, atom) for weight, atom in self.decompose(x / scale)]

    def decompose(self, x: Tensor) -> Decomposition:
        """The eigendecomposition, and 0 for a trace below the bound."""
        if not torch.allclose(x, x.t(), rtol=0, atol=slack(x) * self.trace):
            raise ValueError(f"x0 is outside the set: it is not symmetric; expected a matrix of {self}.")
        values, vectors = torch.linalg.eigh(x)
        total, room = float(values.sum()), slack(x) * self.trace
        if float(values[0]) < -room:
            raise ValueError(
                f"x0 is outside the set: its smallest eigenvalue is {float(values[0]):.6g}, expected >= 0."
            )
        if total > self.trace + room * len(x) or (self.equality and total < self.trace - room * len(x)):
            relation = "exactly" if self.equality else "at most"
            raise ValueError(f"x0 is outside the set: its trace is {total:.6g}, expected {relation} {self.trace:g}.")
        kept = [i for i, value in enumerate(values.tolist()) if value > room]
        parts: Decomposition = [
            (float(values[i]) / self.trace, RankOne(self.trace, None, vectors[:, i].clone(), vectors[:, i].clone()))
            for i in kept
        ]
        rest = max(0.0, 1.0 - sum(weight for weight, _ in parts))
        if self.equality:
            return [(weight / (1.0 - rest), atom) for weight, atom in parts]
        zero = RankOne(0.0, None, vectors[:, 0].clone(), vectors[:, 0].clone())
        return [*parts, (rest, zero)] if rest > 0 else parts

    def sample(self, like: Tensor, generator: torch.Generator) -> RankOne:
        """A uniform unit vector."""
        u = unit_vector((len(like),), like, generator)
        return RankOne(self.trace, None, u, u)

    def __str__(self) -> str:
        return f"PSDTrace({self.trace:g}, equality={self.equality})"
