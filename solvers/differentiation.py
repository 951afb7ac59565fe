"""Gradients through projections, oracles and solutions, for solvers inside networks and bilevel problems.

Everything takes and returns torch tensors, and what the objective is made of may require gradients:

>>> import torch
>>> from unknot.solvers import atoms
>>> y = torch.tensor([0.8, 0.6, -1.0], dtype=torch.float64, requires_grad=True)
>>> x = argmin(lambda x: (x - y).square().sum() / 2, atoms.Simplex(), torch.ones(3, dtype=torch.float64) / 3)
>>> x[0].backward()
>>> y.grad
tensor([ 0.5000, -0.5000,  0.0000], dtype=torch.float64)
"""

import contextlib
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg
import torch
from torch import Tensor

from unknot.solvers.atoms import AtomSet, Box, GroupBall, KSparse, L1Ball, L2Ball, NuclearBall, PSDTrace, as_atoms
from unknot.solvers.cone import nonnegative_matching_pursuit
from unknot.solvers.frank_wolfe import frank_wolfe
from unknot.solvers.objectives import Differentiable
from unknot.solvers.structured import choose
from unknot.solvers.terms import project_simplex

Function = Callable[[Tensor], Tensor]


def project(x: Tensor, atoms: AtomSet) -> Tensor:
    """The nearest point of conv(𝒜), with the Jacobian of the projection at x.

    Where the projection has a kink, which is a null set, the Jacobian is that of one side.

    >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> project(x, L2Ball(1.0))[0].backward()
    >>> x.grad.round(decimals=3)
    tensor([ 0.1280, -0.0960])
    """
    nearest = atoms._project(x.detach())
    moved = x - x.detach()  # 0, with the gradient of x
    if isinstance(atoms, L1Ball | KSparse):
        entry = atoms.entry if isinstance(atoms, KSparse) else math.inf
        total = atoms.k * entry if isinstance(atoms, KSparse) else atoms.radius
        free = (nearest != 0) & (nearest.abs() < entry)
        tight = not atoms.symmetric or float(x.detach().abs().clamp_max(entry).sum()) > total
        if not tight or not bool(free.any()):
            return nearest + moved * (x.detach().abs() < entry if not tight else free)
        signs = nearest.sign() if atoms.symmetric else torch.ones_like(nearest)
        return nearest + free * (moved - signs * (signs * moved)[free].mean())
    if isinstance(atoms, Box):
        return nearest + moved * ((x >= atoms.low.to(x)) & (x <= atoms.high.to(x)))
    if isinstance(atoms, L2Ball):
        return x * (atoms.radius / torch.linalg.vector_norm(x).clamp_min(atoms.radius))
    if isinstance(atoms, GroupBall):
        groups = atoms.groups.to(x.device)
        squares = x.new_zeros(atoms.number).index_add(0, groups, x.square())
        norms = squares.where(squares > 0, 1.0).sqrt() * (squares > 0)
        shares = project(norms, L1Ball(atoms.radius)) / norms.where(norms > 0, 1.0)
        return x * shares[groups]
    if isinstance(atoms, NuclearBall):
        return _shrunk(x, torch.linalg.svdvals(x), atoms.radius, symmetric=False)
    if isinstance(atoms, PSDTrace):
        values = torch.linalg.eigvalsh((x + x.t()) / 2)
        if not atoms.equality and float(values.detach().clamp_min(0).sum()) <= atoms.trace:
            return _spectral(x, True, lambda v: (v.clamp_min(0), (v > 0).to(v)))[0]
        return _shrunk(x, values, atoms.trace, symmetric=True)
    raise ValueError(f"the derivative of the projection on {atoms} is not known: use argmin, or a set with one.")


def lmo(direction: Tensor, atoms: AtomSet) -> Tensor:
    """argmin_{z ∈ 𝒜} ⟨direction, z⟩ with its Jacobian: 0 over a polytope, that of the extreme vectors over a ball.

    >>> d = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> lmo(d, L2Ball(5.0)).detach(), lmo(d, L1Ball(5.0)).requires_grad
    (tensor([-3., -4.]), False)
    """
    if isinstance(atoms, L2Ball):
        return direction * (-atoms.radius / torch.linalg.vector_norm(direction).clamp_min(1e-300))
    if isinstance(atoms, NuclearBall):
        return _spectral(direction, False, lambda v: (-atoms.radius * (torch.arange(len(v)) == 0).to(v), 0 * v))[0]
    if isinstance(atoms, PSDTrace):
        size = atoms.trace if atoms.equality or float(torch.linalg.eigvalsh(direction.detach())[0]) < 0 else 0.0
        return _spectral(direction, True, lambda v: (size * (torch.arange(len(v)) == 0).to(v), 0 * v))[0]
    atom = atoms.bind(direction.dtype, direction.device, False).atom(direction.detach())
    point = atom.dense().reshape(direction.shape)
    if isinstance(atoms, GroupBall):
        part = direction * (point != 0)
        return part * (-atoms.radius / torch.linalg.vector_norm(part).clamp_min(1e-300))
    if atom.key is None:
        raise ValueError(f"the derivative of the oracle of {atoms} is not known: expected a polytope or a ball.")
    return point


class _Spectral(torch.autograd.Function):
    """U f(S) Vᵀ of a matrix U S Vᵀ, and U f'(S) Vᵀ; its derivative by divided differences, equal values included."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, symmetric: bool, function: Callable[[Tensor], Any]) -> tuple[Tensor, Tensor]:
        if symmetric:
            values, left = torch.linalg.eigh((x + x.t()) / 2)
            right = left
        else:
            left, values, right = torch.linalg.svd(x, full_matrices=False)
            right = right.t()
        f, slope = function(values)
        ctx.symmetric = symmetric
        ctx.save_for_backward(left, values, right, f, slope)
        slopes = (left * slope) @ right.t()
        ctx.mark_non_differentiable(slopes)
        return (left * f) @ right.t(), slopes

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        left, values, right, f, slope = ctx.saved_tensors
        tiny = 1e3 * torch.finfo(values.dtype).eps * values.abs().max().clamp_min(1e-300)
        core = left.t() @ grad @ right

        def divided(differences: Tensor, gaps: Tensor) -> Tensor:
            close = gaps.abs() <= tiny
            return torch.where(close, (slope[:, None] + slope) / 2, differences / gaps.masked_fill(close, 1.0))

        even = divided(f[:, None] - f, values[:, None] - values) * (core + core.t()) / 2
        if ctx.symmetric:
            return left @ even @ right.t(), None, None
        odd = divided(f[:, None] + f, values[:, None] + values) * (core - core.t()) / 2
        shares = torch.where(values <= tiny, slope, f / values.clamp_min(tiny))
        rows = (grad @ right - left @ core) * shares @ right.t()  # what the columns of ``left`` do not span
        columns = left * shares @ (left.t() @ grad - core @ right.t())
        return left @ (even + odd) @ right.t() + rows + columns, None, None


def _spectral(x: Tensor, symmetric: bool, function: Callable[[Tensor], Any]) -> tuple[Tensor, Tensor]:
    answer: tuple[Tensor, Tensor] = _Spectral.apply(x, symmetric, function)  # type: ignore[no-untyped-call]
    return answer


def _shrunk(x: Tensor, values: Tensor, total: float, symmetric: bool) -> Tensor:
    """max(S - τ, 0) in place of S, with the τ that makes its sum ``total``; x itself if none is needed."""
    if not symmetric and float(values.detach().sum()) <= total:
        return x * 1.0
    kept = project_simplex(values.detach(), total) > 0
    tau = (values[kept].sum() - total) / kept.sum()
    shift = float(tau.detach())
    nearest, slopes = _spectral(x, symmetric, lambda v: ((v - shift).clamp_min(0), (v > shift).to(v)))
    return nearest - (tau - tau.detach()) * slopes


def argmin(
    objective: Function,
    atoms: Any,
    x0: Tensor,
    *,
    over: str = "hull",
    steps: int | None = None,
    smoothness: float | None = None,
    tol: float | None = None,
    max_iterations: int = 10_000,
) -> Tensor:
    """Minimise f over conv(𝒜), lin(𝒜) or cone(𝒜); the solution is differentiable in every tensor that f is made of.

    The gradient is that of the optimality condition x = P(x - ∇f(x)/L), by the implicit function theorem: one linear
    system in Hessian-vector products for each backward pass, whatever it took to find x. It needs a smooth f that is
    strongly convex on the face of the solution, and no kink: no atom off the face that ties with those on it. P is the
    projection, or that on the face where the projection on 𝒜 is not known (dictionaries, spans, cones).

    With ``steps`` the solver is unrolled instead: so many steps of Frank-Wolfe, matching pursuit or non-negative
    matching pursuit from x0, with the step that is exact for a quadratic, or the short one for a given ``smoothness``.
    Gradients are those of that iterate. This is for few steps, or an f without a unique minimiser.

    Args:
        objective: differentiable torch function of x.
        atoms: set of :mod:`unknot.solvers.atoms` or a matrix with one atom in each column.
        x0: start; the solution takes its shape, dtype and device.
        over: "hull", "span" or "cone".
        steps: number of unrolled steps; None for implicit differentiation at the optimum.
        smoothness: L for the unrolled steps; None for the curvature along each.
        tol: largest ‖x - P(x - ∇f/L)‖, or gap where the projection is not known; None for what the dtype can reach.
        max_iterations: iterations of the solver at most; a warning says if they were too few.

    >>> from unknot.solvers.atoms import NuclearBall
    >>> Y = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)).requires_grad_()
    >>> X = argmin(lambda X: (X - Y).square().sum() / 2, NuclearBall(2.0), torch.zeros_like(Y))
    >>> X.trace().backward()
    >>> Y.grad.abs().max() < 1e-12  # the trace is 2 whatever Y is
    tensor(True)
    """
    over = choose(over, ("hull", "span", "cone"), "over")
    atom_set = as_atoms(atoms).bind(x0.dtype, x0.device, False)
    atom_set = atom_set.symmetrised() if over == "span" else atom_set
    atom_set.check_shape(tuple(x0.shape), "x0")
    if steps is not None:
        return _unrolled(objective, atom_set, x0, over, steps, smoothness)
    tolerance = tol if tol is not None else 100 * float(torch.finfo(x0.dtype).eps)
    detached = x0.detach()
    try:
        nearest: Function | None = None if over == "cone" else _projection(atom_set, over)
        if nearest is not None:
            detached = nearest(detached)
    except ValueError:
        nearest = None
    if nearest is not None:
        x = _projected_gradient(objective, nearest, detached, tolerance, max_iterations)
    else:
        solver: Any = frank_wolfe if over == "hull" else nonnegative_matching_pursuit
        x = solver(
            Differentiable(objective, dtype=x0.dtype),
            atom_set,
            detached,
            variant="fully-corrective",
            tol=tolerance,
            max_iterations=max_iterations,
        ).x
        with contextlib.suppress(ValueError):  # where there is a derivative, which is for the backward pass to say
            for _ in range(2):  # Newton steps on the face, as an error of ε in f is one of √ε in x
                system = _System(objective, x).at(atom_set, over, None)
                x = x - system(system.slope.detach())
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(objective(leaf), leaf, create_graph=True)
    answer: Tensor = _Implicit.apply(  # type: ignore[no-untyped-call]
        gradient, x, lambda v: _System(objective, x).at(atom_set, over, nearest)(v)
    )
    return answer


def _projection(atoms: AtomSet, over: str) -> Function:
    return atoms.span_part if over == "span" else lambda x: project(x, atoms)


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor, solve: Function) -> Tensor:
        ctx.solve = solve
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return -ctx.solve(grad), None, None


class _System:
    """v ↦ η J (I - (I - ηH) J)⁻¹ v: minus the derivative of the solution of x = P(x - η∇f) in ∇f, transposed."""

    def __init__(self, objective: Function, x: Tensor) -> None:
        self.leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            (self.slope,) = torch.autograd.grad(objective(self.leaf), self.leaf, create_graph=True)

    def at(self, atoms: AtomSet, over: str, nearest: Function | None) -> "_System":
        """Add the tangent space of the set at the solution."""
        gradient = self.slope.detach()
        self.eta = 1 / largest_eigenvalue(self.curve, gradient)
        self.basis = _face(atoms, gradient, over) if nearest is None else None
        self.before = (self.leaf - self.eta * gradient).detach().requires_grad_()
        if nearest is not None:
            with torch.enable_grad():
                self.after = nearest(self.before)
        return self

    def curve(self, v: Tensor) -> Tensor:
        """H v."""
        product: Tensor | None = None
        if self.slope.requires_grad:
            (product,) = torch.autograd.grad(self.slope, self.leaf, v, retain_graph=True, allow_unused=True)
        return torch.zeros_like(v) if product is None else product

    def tangent(self, v: Tensor) -> Tensor:
        """J v."""
        if self.basis is not None:
            return (self.basis.t() @ (self.basis @ v.reshape(-1))).reshape(v.shape)
        if not self.after.requires_grad:
            return torch.zeros_like(v)
        (product,) = torch.autograd.grad(self.after, self.before, v, retain_graph=True)
        return product

    def __call__(self, v: Tensor) -> Tensor:
        def matvec(u: np.ndarray) -> np.ndarray:
            inner = self.tangent(torch.from_numpy(u.reshape(v.shape)).to(v))
            outer = inner - self.eta * self.curve(inner)
            image: np.ndarray = u.ravel() - outer.double().cpu().numpy().ravel()
            return image

        right = v.detach().double().cpu().numpy().ravel()
        size = len(right)
        operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=matvec, dtype=np.float64)
        rtol = 10 * float(torch.finfo(v.dtype).eps)
        u, _ = scipy.sparse.linalg.gmres(operator, right, rtol=rtol, restart=min(size, 200), maxiter=20)
        if not np.linalg.norm(matvec(u) - right) <= 1e3 * rtol * np.linalg.norm(right):
            raise ValueError(
                "the solution has no derivative: expected an f that is strongly convex on the face of the solution; "
                "add a small ridge, or unroll with steps=."
            )
        return self.eta * self.tangent(torch.from_numpy(u.reshape(v.shape)).to(v))


def largest_eigenvalue(product: Function, like: Tensor, iterations: int = 30) -> float:
    """A bound on the largest eigenvalue of a positive semi-definite operator, by the power method and a tenth more."""
    v = torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like)
    size = 0.0
    for _ in range(iterations):
        v = product(v / torch.linalg.vector_norm(v).clamp_min(1e-300))
        size = float(torch.linalg.vector_norm(v))
        if size == 0:
            return 1.0
    return 1.1 * size


def _face(atoms: AtomSet, gradient: Tensor, over: str) -> Tensor:
    """Orthonormal rows that span the face of the solution: the atoms that tie for the smallest ⟨∇f, z⟩."""
    rows = atoms.batch_rows() if atoms.all_atoms() is None else torch.from_numpy(atoms.all_atoms()).to(gradient)
    if rows is None:
        raise ValueError(f"the faces of {atoms} are not known: expected a dictionary or a set with a projection.")
    scores = rows @ gradient.reshape(-1)
    lowest = float(scores.min()) if over == "hull" else 0.0
    room = 1e-6 if gradient.dtype == torch.float64 else 1e-3
    room *= float(torch.linalg.vector_norm(rows, dim=1).max()) * max(1.0, float(torch.linalg.vector_norm(gradient)))
    on = rows[scores <= lowest + room]
    if over == "hull":
        on = on[1:] - on[0]
    if not len(on):
        return gradient.new_zeros(0, gradient.numel())
    _, values, right = torch.linalg.svd(on, full_matrices=False)
    return right[values > 1e-9 * values[0].clamp_min(1e-300)]


@torch.no_grad()
def _projected_gradient(objective: Function, nearest: Function, x: Tensor, tol: float, max_iterations: int) -> Tensor:
    """Accelerated projected gradient with restarts, its step found by halving."""

    def slope(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(objective(leaf), leaf)[0]

    curve = _System(objective, x).curve
    y, momentum, eta, eps = x, 1.0, 1 / largest_eigenvalue(curve, x, 10), float(torch.finfo(x.dtype).eps)
    for _ in range(max_iterations):
        gradient = slope(y)
        size = float(torch.linalg.vector_norm(gradient))
        while True:
            following = nearest(y - eta * gradient)
            step = following - y
            length = float(torch.linalg.vector_norm(step))
            curvature = float(((slope(following) - gradient) * step).sum())
            if curvature <= length**2 / eta + 10 * eps * size * length:
                break
            eta /= 2
        if length <= tol * max(1.0, float(torch.linalg.vector_norm(x))):
            return following
        if float(((y - following) * (following - x)).sum()) > 0:
            momentum = 1.0
        larger = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        y = following + (momentum - 1) / larger * (following - x)
        x, momentum = following, larger
        eta *= 1.01
    warnings.warn(
        f"the solution still moves by {length:.2g} after {max_iterations} iterations: expected at most {tol:.2g}, so "
        "its gradients are inexact; raise max_iterations or tol.",
        UserWarning,
        stacklevel=3,
    )
    return x


def _unrolled(
    objective: Function, atoms: AtomSet, x0: Tensor, over: str, steps: int, smoothness: float | None
) -> Tensor:
    """Frank-Wolfe, matching pursuit or NNMP, every operation of which is differentiable."""
    x = x0 if x0.requires_grad else x0.detach().requires_grad_()
    weight = float(sum(part for part, _ in atoms.conic_weights(x0.detach()))) if over == "cone" and x0.any() else 0.0
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(objective(x), x, create_graph=True)
        direction, largest = lmo(gradient, atoms), math.inf
        if over == "hull":
            direction, largest = direction - x, 1.0
        elif weight > 0 and float((gradient * (x / weight + direction)).sum().detach()) > 0:
            direction, largest = -x, 1.0
        slopes = (gradient * direction).sum()
        if float(slopes.detach()) >= 0:
            break
        if smoothness is not None:
            curvature = smoothness * direction.square().sum()
        else:
            (image,) = torch.autograd.grad(gradient, x, direction, create_graph=True)
            curvature = (image * direction).sum()
        gamma = (-slopes / curvature).clamp_max(largest) if float(curvature.detach()) > 0 else torch.ones_like(slopes)
        if over == "cone":
            share = float(gamma.detach())
            weight = weight * (1 - share) if largest == 1.0 else weight + share
        x = x + gamma * direction
    return x
