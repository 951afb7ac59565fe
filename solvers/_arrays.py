"""NumPy or torch in, the same kind out: what every solver reads and returns; and choices by name."""

import difflib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix of SciPy or torch."""
    if isinstance(value, Tensor):
        return value.layout != torch.strided
    return hasattr(value, "tocsr") and not isinstance(value, np.ndarray)


def as_tensor(value: Any, name: str) -> Tensor:
    """A floating tensor of a dense array, tensor or (nested) list of finite numbers; shares memory where it can."""
    if is_sparse(value) or hasattr(value, "matvec"):
        raise ValueError(f"{name} is a {type(value).__name__}: expected a dense array here; call its toarray() first.")
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        try:
            array = np.asarray(value)  # of a pandas DataFrame too
            if not array.flags.writeable or any(stride < 0 for stride in array.strides):
                array = array.copy()
            tensor = torch.as_tensor(array)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} cannot be read as numbers ({error}): pass a NumPy array or a torch tensor."
            ) from error
    if tensor.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(
            f"{name} is {str(tensor.dtype)[6:]}, too coarse for certificates: expected float32 or float64, so convert "
            "it first, for example with astype('float32') or .float()."
        )
    if tensor.is_complex():
        raise ValueError(f"{name} is complex: expected real numbers, so pass its real part or its modulus.")
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    if not is_finite(tensor):
        raise ValueError(f"{name} has non-finite entries: expected finite numbers, so remove NaN and inf first.")
    return tensor


def is_array(value: Any) -> bool:
    """Whether a value is read as numbers: NumPy, torch, a list, or what turns into an array (a pandas DataFrame)."""
    return isinstance(value, Tensor | np.ndarray | list | tuple) or hasattr(value, "__array__")


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


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩, summed in double precision."""
    if a.dtype != torch.float64 or b.dtype != torch.float64:
        a, b = a.double(), b.double()
    return float(torch.dot(a.reshape(-1), b.reshape(-1)))


def norm(x: Tensor) -> float:
    """‖x‖₂ of an array of any shape."""
    return float(torch.linalg.vector_norm(x))


def csr_tensor(matrix: Any) -> Tensor:
    """A SciPy matrix as a torch CSR tensor of floating type."""
    matrix = scipy.sparse.csr_matrix(matrix)
    if np.iscomplexobj(matrix):
        raise ValueError("a sparse matrix is complex: expected real numbers, so pass its real part or its modulus.")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    matrix.sum_duplicates()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data.copy()),
            size=matrix.shape,
            check_invariants=False,
        )


def choose(name: Any, choices: Sequence[str], what: str) -> str:
    """A choice by name, whatever its hyphens; a clear error for anything else.

    >>> choose("Away_Steps", ["plain", "away-steps"], "variant")
    'away-steps'
    """
    key = str(name).replace("_", "-").replace(" ", "-").lower()
    if key in choices:
        return key
    close = difflib.get_close_matches(key, choices, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"{what} {name!r} is unknown: expected one of {', '.join(choices)}{hint}")
