"""What solvers do alike before their first iteration: read the problem, and stop on what cannot be right."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unknot.solvers._arrays import as_tensor, is_finite, wants_numpy
from unknot.solvers.atoms import AtomSet, Dictionary, L1Ball, as_atoms
from unknot.solvers.objectives import Differentiable, Objective, as_objective


@dataclass(frozen=True)
class Problem:
    """An objective and an atom set that fit together; ``zero`` is the origin of their space, ``x0`` the start."""

    objective: Objective
    atoms: AtomSet
    zero: Tensor
    x0: Tensor | None
    numpy: bool


def read_problem(objective: Any, atoms: Any, x0: Any, smoothness: float | None) -> Problem:
    """Agree on shape, dtype, device and kind of array."""
    f, atom_set = as_objective(objective), as_atoms(atoms)
    if smoothness is not None and not (smoothness > 0 and math.isfinite(smoothness)):
        raise ValueError(f"smoothness is {smoothness}: expected L > 0, or None to use the objective's own.")
    start = None if x0 is None else as_tensor(x0, "x0")
    dictionary = atom_set.base if isinstance(atom_set.base, Dictionary) else None
    kinds = [] if x0 is None else [wants_numpy(x0)]
    if dictionary is not None:
        kinds.append(dictionary.numpy)
    dtype, device = f.dtype, f.device
    if isinstance(f, Differentiable):
        source = start if start is not None else dictionary
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
    )


def numbered(atoms: AtomSet, zero: Tensor) -> int | None:
    """How many atoms there are to number: columns of a dictionary, coordinates of a ball or simplex."""
    base = atoms.base
    if isinstance(base, Dictionary):
        return base.count
    return zero.numel() if isinstance(base, L1Ball) else None


def choose(name: Any, choices: Sequence[str], what: str) -> str:
    """A choice by name, whatever its hyphens; a clear error for anything else."""
    key = str(name).replace("_", "-").replace(" ", "-").lower()
    if key in choices:
        return key
    close = difflib.get_close_matches(key, choices, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"{what} {name!r} is unknown: expected one of {', '.join(choices)}{hint}")


def check_gradient(gradient: Tensor, iteration: int) -> None:
    """Raise if the gradient has entries that are not numbers, before an oracle sees them."""
    if not is_finite(gradient):
        raise ValueError(
            f"the gradient is not finite at iteration {iteration}: expected finite numbers; check that f is "
            "differentiable on the set, and scale its inputs if they overflow."
        )
