"""What solvers do alike before their first iteration: read the problem, and stop on what cannot be right."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, is_finite, wants_numpy
from unknot.solvers.atoms import AtomSet, as_atoms
from unknot.solvers.objectives import Objective, as_objective
from unknot.solvers.result import Result
from unknot.solvers.structured import Atom, Decomposition


@dataclass(frozen=True)
class Problem:
    """An objective and an atom set that fit together; ``zero`` is the origin of their space, ``x0`` the start.

    A start that is an earlier result brings its atoms and weights along in ``warm``.
    """

    objective: Objective
    atoms: AtomSet
    zero: Tensor
    x0: Tensor | None
    numpy: bool
    warm: Decomposition | None = None


def read_problem(objective: Any, atoms: Any, x0: Any, smoothness: float | None) -> Problem:
    """Agree on shape, dtype, device and kind of array."""
    f, atom_set = as_objective(objective), as_atoms(atoms)
    if smoothness is not None and not (smoothness > 0 and math.isfinite(smoothness)):
        raise ValueError(f"smoothness is {smoothness}: expected L > 0, or None to use the objective's own.")
    warm = None
    if isinstance(x0, Result):
        warm, x0 = x0, x0.x
    start = None if x0 is None else as_tensor(x0, "x0")
    kinds = [] if x0 is None else [wants_numpy(x0)]
    own = atom_set.kind()
    if own is not None:
        kinds.append(own.numpy)
    dtype, device = f.dtype, f.device
    if f.adopts:
        source = start if start is not None else own
        if source is not None:
            dtype, device = source.dtype, source.device
    else:
        kinds.append(f.numpy)
    shape = f.shape or atom_set.shape or (None if start is None else tuple(start.shape))
    if shape is None:
        raise ValueError("the shape of x is unknown: give x0, or the set's dimension, for example L1Ball(1.0, dim=10).")
    atom_set.check_shape(shape, "the objective's argument")
    if start is not None and tuple(start.shape) != shape:
        raise ValueError(f"x0 has shape {list(start.shape)} but the problem is over {list(shape)}: make them agree.")
    numpy = bool(kinds) and all(kinds)
    return Problem(
        f,
        atom_set.bind(dtype, device, numpy),
        torch.zeros(shape, dtype=dtype, device=device),
        None if start is None else start.to(dtype=dtype, device=device).clone(),
        numpy,
        None if warm is None else _atoms_of(warm, dtype, device),
    )


def _atoms_of(result: Result, dtype: torch.dtype, device: torch.device) -> Decomposition | None:
    """Weights and atoms of a result, if it has any and they are of the run's kind."""
    if not result.active:
        return None
    weights = as_tensor(result.weights, "the weights of x0").reshape(-1).tolist()
    parts: list[tuple[float, Atom]] = list(zip(weights, result.active, strict=True))
    first = result.active[0].dense()
    return parts if first.dtype == dtype and first.device.type == device.type else None


def check_gradient(gradient: Tensor, iteration: int) -> None:
    """Raise if the gradient has entries that are not numbers, before an oracle sees them."""
    if not is_finite(gradient):
        raise ValueError(
            f"the gradient is not finite at iteration {iteration}: expected finite numbers; check that f is "
            "differentiable on the set, and scale its inputs if they overflow."
        )
