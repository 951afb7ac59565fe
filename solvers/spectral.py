"""Extreme eigenvectors and singular pairs for the oracles of matrix sets, started from what is already known.

An oracle is asked once in every iteration about a matrix that has changed little, and an approximate answer is enough
(chapter "Convex Hulls with Affine Constraints", paragraph "Inexact Oracles"). So every method takes a start and an
accuracy, and sees the matrix only through products: dense or sparse, NumPy, SciPy or torch.
"""

import math
import warnings
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
import torch
from torch import Tensor

from unknot.solvers._arrays import is_sparse

METHODS = ("auto", "lapack", "lanczos", "lobpcg", "power")
SMALL = 128
"""Matrices of at most this size are decomposed by LAPACK where the method is "auto"."""

MAX_STEPS = 100
"""Steps of the power method and of LOBPCG at most; what they have then is the answer."""


def smallest_eigenvector(
    matrix: Any, start: Any = None, *, method: str = "auto", tol: float = 0.0, max_steps: int = MAX_STEPS
) -> tuple[float, Any]:
    """Smallest (algebraic) eigenvalue of a symmetric matrix ``[n, n]`` and a unit eigenvector ``[n]``.

    Args:
        matrix: dense or sparse; of it only the symmetric part counts where it is dense.
        start: a vector near the answer; random if left out.
        method: "lapack" (a full decomposition), "lanczos" (ARPACK), "lobpcg", "power" (shifted by a bound on the
            largest eigenvalue), or "auto": LAPACK up to 128 rows, Lanczos above.
        tol: relative accuracy, 0 for machine precision; the power method stops once its estimate moves less.
        max_steps: of "power" and "lobpcg".

    >>> import numpy as np
    >>> value, vector = smallest_eigenvector(np.diag([2.0, -1.0, 3.0]))
    >>> round(value, 6), np.abs(vector).round(6)
    (-1.0, array([0., 1., 0.]))
    """
    if isinstance(matrix, Tensor) and not is_sparse(matrix):
        if matrix.device.type != "cpu" or (method == "auto" and len(matrix) <= SMALL) or method == "lapack":
            values, vectors = torch.linalg.eigh((matrix + matrix.t()) / 2)
            return float(values[0]), vectors[:, 0].clone()
        value, vector = smallest_eigenvector(
            ((matrix + matrix.t()) / 2).numpy(), _numpy(start), method=method, tol=tol, max_steps=max_steps
        )
        return value, torch.from_numpy(vector).to(matrix)
    operator = _scipy(matrix)
    size = operator.shape[0]
    chosen = _choose(method, size)
    v0 = _start(start, size, operator.dtype)
    if chosen == "lapack":
        values, vectors = scipy.linalg.eigh(_dense(operator), subset_by_index=[0, 0])
        return float(values[0]), vectors[:, 0]
    if chosen == "power":
        # λ_max ≤ max_i Σ_j |M_ij|, so shift - M is positive semi-definite and its top eigenvector is the answer.
        shift = float(np.max(np.asarray(abs(operator).sum(axis=1))))
        value, vector = _power(lambda v: shift * v - operator @ v, v0, tol * (shift or 1.0), max_steps)
        return shift - value, vector
    return _symmetric(operator, v0, chosen, tol, max_steps, largest=False)


def top_singular_pair(
    matrix: Any, start: Any = None, *, method: str = "auto", tol: float = 0.0, max_steps: int = MAX_STEPS
) -> tuple[float, Any, Any]:
    """Largest singular value of a matrix ``[m, n]`` with its unit left ``[m]`` and right ``[n]`` singular vectors.

    Arguments as for :func:`smallest_eigenvector`; ``start`` is near the right singular vector. With "power" and
    tol=1e-2 this is the oracle of the thesis' matrix completion.

    >>> import numpy as np, scipy.sparse
    >>> value, left, right = top_singular_pair(scipy.sparse.diags_array([1.0, -3.0, 2.0]), method="power", tol=1e-12)
    >>> round(value, 6), (left * right).round(3) + 0.0
    (3.0, array([ 0., -1.,  0.]))
    """
    small = min(matrix.shape) <= SMALL
    if isinstance(matrix, Tensor) and not is_sparse(matrix):
        if matrix.device.type != "cpu" or (method == "auto" and small) or method == "lapack":
            left, values, right = torch.linalg.svd(matrix, full_matrices=False)
            return float(values[0]), left[:, 0].clone(), right[0].clone()
        if method == "power":  # in torch, whose products of single precision are the fastest here
            first = torch.from_numpy(_start(_numpy(start), matrix.shape[1], matrix.numpy().dtype))
            transposed = matrix.t()
            _, v = _power(lambda x: transposed @ (matrix @ x), first, 2 * tol, max_steps, relative=True)
            return _left(matrix @ v, v)
        sigma, u, v = top_singular_pair(matrix.numpy(), _numpy(start), method=method, tol=tol, max_steps=max_steps)
        return sigma, torch.from_numpy(u).to(matrix), torch.from_numpy(v).to(matrix)
    operator = _scipy(matrix)
    chosen = _choose(method, min(operator.shape))
    if chosen == "lapack":
        left, values, right = np.linalg.svd(_dense(operator), full_matrices=False)
        return float(values[0]), left[:, 0], right[0]
    v0 = _start(start, operator.shape[1], operator.dtype)
    if chosen == "power":
        transpose = operator.T
        _, v = _power(lambda x: transpose @ (operator @ x), v0, 2 * tol, max_steps, relative=True)
        return _left(operator @ v, v)
    if operator.shape[0] < operator.shape[1]:
        gram = _gram(operator.T)
        _, u = _symmetric(gram, _unit(operator @ v0), chosen, tol, max_steps, largest=True)
        sigma, v, u = _left(operator.T @ u, u)
        return sigma, u, v
    _, v = _symmetric(_gram(operator), v0, chosen, tol, max_steps, largest=True)
    return _left(operator @ v, v)


def _power(product: Any, vector: Any, tol: float, max_steps: int, relative: bool = False) -> tuple[float, Any]:
    """Power iteration until ‖Mx‖²/⟨x, Mx⟩ ≤ λ_max moves by at most ``tol`` (times itself, if relative)."""
    linalg = torch.linalg if isinstance(vector, Tensor) else np.linalg
    value = math.inf
    for _ in range(max_steps):
        image = product(vector)
        quotient, norm = float(vector @ image), float(linalg.norm(image))
        if not quotient > 0:
            return 0.0, vector
        estimate = norm**2 / quotient
        vector = image / norm
        if abs(estimate - value) <= tol * (abs(estimate) if relative else 1.0):
            return estimate, vector
        value = estimate
    return value, vector


def _symmetric(
    operator: Any, v0: np.ndarray, method: str, tol: float, max_steps: int, largest: bool
) -> tuple[float, np.ndarray]:
    """An extreme eigenpair by ARPACK or LOBPCG; either may fail on matrices such as 0, where any vector is right."""
    if method == "lobpcg":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an answer short of the tolerance is still an answer
            values, vectors = scipy.sparse.linalg.lobpcg(
                operator, v0[:, None], tol=tol or None, maxiter=max_steps, largest=largest
            )
        return float(values[0]), _unit(vectors[:, 0])
    try:
        values, vectors = scipy.sparse.linalg.eigsh(operator, k=1, which="LA" if largest else "SA", v0=v0, tol=tol)
    except scipy.sparse.linalg.ArpackNoConvergence as stopped:
        if not len(stopped.eigenvalues):
            return float(v0 @ (operator @ v0)), v0
        values, vectors = stopped.eigenvalues, stopped.eigenvectors
    except scipy.sparse.linalg.ArpackError:
        return float(v0 @ (operator @ v0)), v0
    return float(values[0]), vectors[:, 0]


def _gram(matrix: Any) -> Any:
    transpose = matrix.T
    return scipy.sparse.linalg.LinearOperator(
        (matrix.shape[1], matrix.shape[1]), matvec=lambda v: transpose @ (matrix @ v), dtype=matrix.dtype
    )


def _left(image: Any, v: Any) -> tuple[float, Any, Any]:
    """σ, u and v from M v = σ u."""
    linalg = torch.linalg if isinstance(v, Tensor) else np.linalg
    sigma = float(linalg.norm(image))
    if sigma > 0:
        return sigma, image / sigma, v
    other = np.random.default_rng(0).standard_normal(len(image)).astype(_numpy(v).dtype)
    u = _unit(other)
    return 0.0, torch.from_numpy(u).to(v) if isinstance(v, Tensor) else u, v


def _unit(vector: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(vector)
    if norm > 0:
        return vector / norm
    return np.full_like(vector, 1 / math.sqrt(len(vector)))


def _start(start: Any, size: int, dtype: Any) -> np.ndarray:
    if start is None or len(start) != size:
        start = np.random.default_rng(0).standard_normal(size)
    return _unit(np.asarray(start).astype(dtype))


def _numpy(array: Any) -> Any:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array


def _dense(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.todense() if is_sparse(matrix) else matrix)


def _scipy(matrix: Any) -> Any:
    """A matrix as NumPy's or SciPy's."""
    if isinstance(matrix, Tensor):
        coo = matrix.detach().cpu().to_sparse_coo().coalesce()
        return scipy.sparse.csr_array((coo.values().numpy(), coo.indices().numpy()), shape=tuple(matrix.shape))
    return matrix if is_sparse(matrix) else np.asarray(matrix)


def _choose(method: str, size: int) -> str:
    from unknot.solvers.problem import choose

    chosen = choose(method, METHODS, "method")
    if chosen == "auto":
        return "lapack" if size <= SMALL else "lanczos"
    return "lapack" if size <= 4 and chosen != "power" else chosen  # too small for a Krylov space
