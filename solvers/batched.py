"""Matching pursuit of a batch of signals over one dictionary, all in step."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers._arrays import to_user
from unknot.solvers.atoms import AtomSet
from unknot.solvers.objectives import SquaredDistance
from unknot.solvers.result import Result, Run, Status, Trace

BYTES = 2**27
"""Memory that the bases of signals may take; a batch that would need more is solved in halves, one after the other."""


@dataclass
class _Part:
    """Signals that go in step: residuals ``[B, d]``, and for OMP the orthonormal bases of their atoms ``[B, K, d]``."""

    where: Tensor
    residual: Tensor
    coefficients: Tensor
    basis: Tensor
    triangle: Tensor
    right: Tensor
    chosen: Tensor
    depleted: Tensor
    k: int = 0

    @classmethod
    def start(cls, targets: Tensor, where: Tensor, count: int) -> "_Part":
        batch, size = targets.shape
        empty = targets.new_zeros((batch, 0))
        return cls(
            where,
            targets.clone(),
            targets.new_zeros((batch, count)),
            targets.new_zeros((batch, 0, size)),
            targets.new_zeros((batch, 0, 0)),
            empty,
            empty.long(),
            torch.zeros(batch, dtype=torch.bool, device=targets.device),
        )

    def grow(self, room: int) -> None:
        """Make room for bases of so many atoms."""
        batch, old = self.right.shape
        basis = self.basis.new_zeros((batch, room, self.basis.shape[2]))
        triangle = torch.eye(room, dtype=basis.dtype, device=basis.device).repeat(batch, 1, 1)
        basis[:, :old], triangle[:, :old, :old] = self.basis, self.triangle
        self.basis, self.triangle = basis, triangle
        self.right = torch.nn.functional.pad(self.right, (0, room - old))
        self.chosen = torch.nn.functional.pad(self.chosen, (0, room - old))

    def halves(self) -> list["_Part"]:
        """The first half of the signals and the second, which take over what is in memory."""
        middle = len(self.where) // 2
        names = [name for name in vars(self) if name != "k"]
        halves = [
            _Part(**{name: getattr(self, name)[part].clone() for name in names}, k=self.k)
            for part in (slice(None, middle), slice(middle, None))
        ]
        for name in names:
            setattr(self, name, getattr(self, name)[:0].clone())
        return halves

    def solved(self) -> Tensor:
        """The coefficients, from one triangular solve."""
        if self.k:
            block = self.triangle[:, : self.k, : self.k]
            solution = torch.linalg.solve_triangular(block, self.right[:, : self.k, None], upper=True)[:, :, 0]
            self.coefficients.scatter_add_(1, self.chosen[:, : self.k], solution)
        return self.coefficients


def batched_pursuit(f: SquaredDistance, atoms: AtomSet, x0: Any, variant: str, run: Run) -> Result:
    """Matching pursuit or OMP of every row of a target ``[B, d]``, all signals in step.

    OMP keeps an orthonormal basis of each signal's atoms (Gram-Schmidt, twice where needed), so a step is one product
    of the residuals with the dictionary and a few of the size of the basis; coefficients come from one triangular solve
    at the end. A signal whose gap is within the tolerance waits for the others. A batch whose bases outgrow the memory
    for them goes on in halves; callbacks then see the iterates of one part after those of another.
    """
    if variant not in ("generalised", "orthogonal"):
        raise ValueError(
            f"variant {variant!r} solves one problem at a time: expected 'generalised' or 'orthogonal' for a batch of "
            f"targets {list(f.shape or ())}, or one target [d]."
        )
    if f.mask is not None or x0 is not None:
        raise ValueError("batched matching pursuit starts from 0 and takes no mask: leave x0 and mask out.")
    batch, size = f.target.shape
    if atoms.shape != (size,):
        hint = "; signals are rows, so pass its transpose" if atoms.shape == (batch,) else ""
        raise ValueError(
            f"the target has shape {[batch, size]} but the atoms have dimension {list(atoms.shape or ())}: "
            f"expected [B, d] with d as in the dictionary [d, n]{hint}."
        )
    bound = atoms.bind(f.dtype, f.device, run.numpy)
    rows = bound.batch_rows()
    assert rows is not None
    pursuit = _Pursuit(bound, rows, f.target, variant == "orthogonal", run)
    finished = pursuit.solve(_Part.start(f.target, torch.arange(batch), len(rows)))
    longest = max(len(times) for *_, times in finished)
    table = np.zeros((2, longest, batch))
    residual, coefficients = torch.empty_like(f.target), f.target.new_empty((batch, len(rows)))
    for part, *columns, _ in finished:
        residual[part.where], coefficients[part.where] = part.residual, part.solved()
        for lines, column in zip(table, columns, strict=True):
            padded = [*column, *[column[-1]] * (longest - len(column))]
            lines[:, part.where.numpy()] = np.stack(padded)
    times = max((times for *_, times in finished), key=len)
    run.close()
    return Result(
        x=to_user(f.target - residual, run.numpy),
        value=table[0, -1],
        gap=table[1, -1],
        iterations=longest - 1,
        status=pursuit.status(),
        trace=Trace(table[0], table[1], np.array(times)),
        coefficients=to_user(coefficients, run.numpy),
        smoothness=1.0,
    )


Finished = list[tuple[_Part, list[Any], list[Any], list[float]]]


class _Pursuit:
    """The loop over a part of the batch, and over its halves where memory asks for it."""

    def __init__(self, atoms: AtomSet, rows: Tensor, targets: Tensor, orthogonal: bool, run: Run) -> None:
        self.atoms, self.rows, self.targets, self.orthogonal, self.run = atoms, rows, targets, orthogonal, run
        self.limit = min(run.max_iterations, rows.shape[1])
        self.rtol, run.rtol = run.rtol, 0.0  # the run sees the sum of all values, which is no measure for one of them
        self.steepest = Steepest(rows)
        self.squares = rows.square().sum(1)
        self.ends: list[Status] = []

    def status(self) -> Status:
        """Converged if every part is, else why the first did not."""
        return next((end for end in self.ends if end != Status.CONVERGED), Status.CONVERGED)

    def solve(self, part: _Part) -> Finished:
        """Parts that are through, with values, gaps and times of their iterates."""
        run, rows = self.run, self.rows
        tiny = torch.finfo(rows.dtype).tiny  # a signal of 0 may be given a column of 0
        while True:
            values = part.residual.square().sum(1) / 2
            gaps = values
            if len(rows) < rows.shape[1]:
                gaps = self.atoms.span_part(part.residual.t()).square().sum(0) / 2
            working = (gaps > (self.rtol * values).clamp_min(run.tol)) & ~part.depleted
            stop = self._finished(part, values, gaps, not bool(working.any()))
            if stop or Status.STOPPED in self.ends:
                self.ends.append(run.status)
                part.basis = part.basis[:, :0].clone()  # the coefficients come from the triangle
                return [(part, run.values, run.gaps, run.times)]
            index = self.steepest(part.residual)
            if not self.orthogonal:
                gamma = working * (rows[index] * part.residual).sum(1) / self.squares[index].clamp_min(tiny)
                part.residual -= gamma[:, None] * rows[index]
                part.coefficients.scatter_add_(1, index[:, None], gamma[:, None])
                continue
            if part.k == self.limit:
                part.depleted[:] = True
                continue
            if part.k == part.right.shape[1]:
                room = int(min(self.limit, max(8, 2 * part.k)))
                if room * part.residual.numel() * part.residual.element_size() > BYTES and len(part.where) > 1:
                    return self._solve_halves(part)
                part.grow(room)
            self._extend(part, index, working)

    def _finished(self, part: _Part, values: Tensor, gaps: Tensor, done: bool) -> bool:
        run = self.run
        x = self.targets[part.where] - part.residual if run.callback is not None else part.residual
        stop = run.finished(x, float(values.sum()), float(gaps.max()), done)
        run.values[-1], run.gaps[-1] = values.cpu().numpy(), gaps.cpu().numpy()
        return stop

    def _solve_halves(self, part: _Part) -> Finished:
        run = self.run
        values, gaps, times = run.values[:-1], run.gaps[:-1], run.times[:-1]  # each half looks at this iterate again
        middle = len(part.where) // 2
        finished: Finished = []
        for half, cut in zip(part.halves(), (slice(None, middle), slice(middle, None)), strict=True):
            run.values, run.gaps = [entry[cut] for entry in values], [entry[cut] for entry in gaps]
            run.times = list(times)
            finished += self.solve(half)
        return finished

    def _extend(self, part: _Part, index: Tensor, working: Tensor) -> None:
        """One atom more in every basis: Gram-Schmidt, twice where a large part was taken away."""
        k, new, norms = part.k, self.rows[index], self.squares[index].sqrt()
        for _ in range(2):
            inner = torch.bmm(part.basis[:, :k], new[:, :, None])
            new = new - torch.bmm(inner.transpose(1, 2), part.basis[:, :k])[:, 0]
            part.triangle[:, :k, k] += inner[:, :, 0]
            norm = torch.linalg.vector_norm(new, dim=1)
            if bool((norm > 0.7 * norms).all()):
                break  # little was taken away, so little accuracy was lost
        part.depleted |= working & (norm <= 1e3 * torch.finfo(new.dtype).eps * norms)
        working = working & ~part.depleted
        new = new * (working / norm.clamp_min(torch.finfo(new.dtype).tiny))[:, None]
        part.triangle[:, :k, k] *= working[:, None]
        part.triangle[:, k, k] = torch.where(working, norm, 1.0)
        part.basis[:, k], part.chosen[:, k] = new, index
        part.right[:, k] = (new * part.residual).sum(1)
        part.residual = part.residual - part.right[:, k, None] * new
        part.k += 1


class Steepest:
    """argmax_i |⟨r, z_i⟩| for every row r of a batch.

    In double precision on a CPU the products are screened in single precision, at half the cost; rows in which another
    atom comes within the rounding error of the best are settled in double, so that the answer is that of double.
    """

    def __init__(self, rows: Tensor) -> None:
        self._columns = rows.t().contiguous()
        screened = rows.dtype == torch.float64 and rows.device.type == "cpu"
        self._single = self._columns.float() if screened else None
        # A dot product of d terms, of inputs rounded first, is off by (d + 2) u ‖r‖ ‖z‖ at most; two are compared.
        unit = torch.finfo(torch.float32).eps / 2
        self._slack = 2 * (rows.shape[1] + 2) * unit * float(torch.linalg.vector_norm(rows, dim=1).max())

    def __call__(self, residual: Tensor) -> Tensor:
        """Indices ``[B]``."""
        if self._single is None:
            return (residual @ self._columns).abs_().max(1).indices
        norms = torch.linalg.vector_norm(residual, dim=1, keepdim=True).clamp_min(torch.finfo(residual.dtype).tiny)
        scores = ((residual / norms).float() @ self._single).abs_()
        best, index = scores.max(1)
        unsettled = (scores >= (best - self._slack)[:, None]).sum(1) > 1
        if bool(unsettled.any()):
            index[unsettled] = (residual[unsettled] @ self._columns).abs_().max(1).indices
        return index
