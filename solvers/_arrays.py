"""NumPy or torch in, the same kind out: the two doors of every solver."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix of SciPy or torch."""
    if isinstance(value, Tensor):
        return value.layout != torch.strided
    return hasattr(value, "tocsr") and not isinstance(value, np.ndarray)


def as_tensor(value: Any, name: str) -> Tensor:
    """A floating tensor of a dense array, tensor or (nested) list of finite numbers; shares memory where it can."""
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        try:
            array = np.asarray(value)
            if not array.flags.writeable or any(stride < 0 for stride in array.strides):
                array = array.copy()
            tensor = torch.as_tensor(array)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} cannot be read as numbers ({error}): pass a NumPy array or a torch tensor."
            ) from error
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    if not is_finite(tensor):
        raise ValueError(f"{name} has non-finite entries: expected finite numbers, so remove NaN and inf first.")
    return tensor


def is_finite(tensor: Tensor) -> bool:
    """Whether all entries are; their sum says so in one pass over memory, unless it overflows."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def wants_numpy(*values: Any) -> bool:
    """Whether results go out as NumPy: something was given, and nothing of it was a torch tensor."""
    given = [value for value in values if value is not None]
    return bool(given) and not any(isinstance(value, Tensor) for value in given)


def to_user(tensor: Tensor, numpy: bool) -> Any:
    """A tensor in the caller's kind."""
    return tensor.detach().cpu().numpy() if numpy else tensor
