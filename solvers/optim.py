"""Optimiser with the interface of :mod:`torch.optim` that keeps parameters inside sets of atoms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from unknot.solvers.atoms import AtomSet, NuclearBall, PSDTrace, as_atoms


class StochasticFrankWolfe(Optimizer):
    """Stochastic Frank-Wolfe over one set for each group of parameters, with momentum and without projections.

        d_k = (1 - ρ_k) d_{k-1} + ρ_k ∇f(θ_k, ω_k),   s_k = lmo_𝒜(d_k),   θ_{k+1} = θ_k + η_k (s_k - θ_k)

    With ``lr=None`` it is the method of the thesis for convex f (Mokhtari et al.): η_k = 9/(k+8), ρ_k = 4/(k+7)^(2/3),
    k = 1, 2, …. With a number, which suits networks, ρ = 1 - momentum and a step is as long as one of SGD would be,
    η_k = min(1, lr ‖d_k‖ / ‖s_k - θ_k‖) (Pokutta, Spiegel and Zimmer, 2020); schedulers of ``lr`` work as usual.

    Every parameter of a group has its own copy of the set. An array that has not the shape of the atoms is seen as a
    vector, and by the nuclear ball and PSDTrace as a matrix ``[shape[0], -1]``. A start outside its set is moved to the
    nearest point where that is known, else to an atom. Groups with ``atoms=None`` (biases, normalisation) take plain
    steps θ - lr d_k.

    Args:
        params: parameters, or groups with their own ``atoms``, ``lr`` and ``momentum``.
        atoms: set of :mod:`unknot.solvers.atoms`; None for no constraint.
        lr: step size, or None for the thesis' schedule.
        momentum: weight of the past gradients in d_k, for a given ``lr``.

    >>> import torch
    >>> from unknot.solvers import atoms
    >>> layer = torch.nn.Linear(20, 3)
    >>> groups = [{"params": [layer.weight], "atoms": atoms.L1Ball(5.0)}, {"params": [layer.bias]}]
    >>> optimizer = StochasticFrankWolfe(groups, lr=0.1)
    >>> layer(torch.ones(8, 20)).square().sum().backward()
    >>> optimizer.step()
    >>> bool(layer.weight.abs().sum() <= 5.0001)
    True
    """

    def __init__(
        self, params: Any, atoms: AtomSet | None = None, lr: float | None = 0.1, momentum: float = 0.9
    ) -> None:
        self._sets: list[AtomSet | None] = []
        self._bound: dict[Tensor, AtomSet] = {}
        super().__init__(params, {"atoms": atoms, "lr": lr, "momentum": momentum})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, and move its parameters into their set."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        lr, momentum, atoms = group["lr"], group["momentum"], group.pop("atoms")
        if lr is not None and not lr > 0:
            raise ValueError(f"lr is {lr}: expected a positive number, or None for the schedule of the thesis.")
        if lr is None and atoms is None:
            raise ValueError("lr is None in a group without atoms: expected a number, as plain steps have no schedule.")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum}: expected a number from 0 to below 1.")
        self._sets.append(None if atoms is None else as_atoms(atoms))
        for parameter in group["params"] if atoms is not None else ():
            self._enter(parameter, as_atoms(atoms))

    @torch.no_grad()
    def _enter(self, parameter: Tensor, atoms: AtomSet) -> None:
        bound = atoms.bind(parameter.dtype, parameter.device, False)
        x = _view(parameter, bound)
        bound.check_shape(tuple(x.shape), "a parameter")
        self._bound[parameter] = bound
        try:
            start = bound.project(x)
        except ValueError:  # no projection is known
            start = x if bound.contains(x) else bound.lmo(-x)
        parameter.copy_(start.clone().reshape(parameter.shape))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient; return what ``closure`` does, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, atoms in zip(self.param_groups, self._sets, strict=True):
            lr = group["lr"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                k = state["step"] = state.get("step", 0) + 1
                rho = 1 - group["momentum"] if lr is not None else 4 / (k + 7) ** (2 / 3)
                if k == 1:
                    state["average"] = parameter.grad.clone()
                else:
                    state["average"].lerp_(parameter.grad, rho)
                average = state["average"]
                if atoms is None:
                    parameter.sub_(average, alpha=lr)
                    continue
                bound = self._bound[parameter]
                x, d = _view(parameter, bound), _view(average, bound)
                towards = bound.atom(d, x).dense().reshape(x.shape) - x
                eta = 9 / (k + 8)
                if lr is not None:
                    eta = min(1.0, lr * float(d.norm()) / max(float(towards.norm()), 1e-30))
                parameter.add_(towards.reshape(parameter.shape), alpha=eta)
        return loss

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_sets": self._sets, "_bound": self._bound}


def _view(array: Tensor, atoms: AtomSet) -> Tensor:
    """The array as the set takes it: as it is, as a matrix, or as a vector."""
    if atoms.shape == tuple(array.shape):
        return array.detach()
    matrix = isinstance(atoms, NuclearBall | PSDTrace)
    return array.detach().reshape((array.shape[0], -1) if matrix else (-1,))
