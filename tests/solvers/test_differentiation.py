"""Gradients through projections, oracles and solutions, against finite differences in float64."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from unknot.solvers import frank_wolfe
from unknot.solvers.atoms import (
    Birkhoff,
    Box,
    Custom,
    Dictionary,
    GroupBall,
    KSparse,
    L1Ball,
    L2Ball,
    NuclearBall,
    PSDTrace,
    Simplex,
)
from unknot.solvers.differentiation import argmin, lmo, project


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


VECTORS = {
    "L1": L1Ball(1.5),
    "L1, inside": L1Ball(50.0),
    "simplex": Simplex(1.0),
    "k-sparse": KSparse(2, 0.6),
    "k-sparse, inside": KSparse(6, 0.7),
    "box": Box(-0.4, 0.7),
    "L2": L2Ball(0.9),
    "L2, inside": L2Ball(50.0),
    "groups": GroupBall([0, 0, 1, 1, 2, 2], 1.3),
}
MATRICES = {
    "nuclear": (NuclearBall(2.0), normal(4, 3, seed=2)),
    "nuclear, wide": (NuclearBall(2.0), normal(3, 5, seed=2)),
    "nuclear, inside": (NuclearBall(90.0), normal(4, 3)),
    "nuclear, equal values": (NuclearBall(2.0), torch.diag(torch.tensor([2.0, 2.0, 0.3, 0.3])).double()),
    "psd": (PSDTrace(1.0), normal(4, 4, seed=3)),
    "psd, at most": (PSDTrace(1.0, equality=False), normal(4, 4, seed=3)),
    "psd, below": (PSDTrace(50.0, equality=False), normal(4, 4, seed=3)),
    "psd, equal values": (PSDTrace(1.0), torch.diag(torch.tensor([2.0, 2.0, -1.0, -1.0])).double()),
}
CASES: dict[str, tuple[Any, torch.Tensor]] = {**{name: (s, normal(6)) for name, s in VECTORS.items()}, **MATRICES}


@pytest.mark.parametrize("name", CASES)
def test_projections(name: str) -> None:
    atoms, y = CASES[name]
    y = y.clone().requires_grad_()
    torch.testing.assert_close(project(y, atoms), atoms.project(y.detach()))
    assert gradcheck(lambda y: project(y, atoms), y, atol=1e-6)
    torch.testing.assert_close(atoms.project(y), project(y, atoms))  # the sets' own method carries gradients too
    assert atoms.project(y).requires_grad


@pytest.mark.parametrize("name", ["L2", "groups", "nuclear", "nuclear, wide", "psd", "psd, at most", "L1", "simplex"])
def test_oracles(name: str) -> None:
    atoms, y = CASES[name]
    y = y.clone()
    if isinstance(atoms, PSDTrace):
        y = (y + y.t()) / 2
    y.requires_grad_()
    torch.testing.assert_close(lmo(y, atoms), atoms.lmo(y.detach()))
    if name in ("L1", "simplex"):
        assert not lmo(y, atoms).requires_grad
    else:
        assert gradcheck(lambda y: lmo(y, atoms), y, atol=1e-6)
    with pytest.raises(ValueError, match="the derivative of the oracle of Custom"):
        lmo(y, Custom(lambda d: -d))
    with pytest.raises(ValueError, match="the derivative of the projection on Birkhoff"):
        project(normal(3, 3).requires_grad_(), _projectable(Birkhoff(3)))


def _projectable(atoms: Any) -> Any:
    atoms._project = lambda x: x
    return atoms


@pytest.mark.parametrize("name", CASES)
def test_implicit_gradients_of_least_squares(name: str) -> None:
    """In the matrix and in the target, of a strongly convex f."""
    atoms, start = CASES[name]
    A = normal(start.numel() + 4, start.numel(), seed=5).requires_grad_()
    b = normal(start.numel() + 4, seed=6).requires_grad_()

    def solution(A: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        def f(x: torch.Tensor) -> torch.Tensor:
            flat = ((x + x.t()) / 2 if isinstance(atoms, PSDTrace) else x).reshape(-1)
            return (A @ flat - b).square().sum() / 2 + 0.05 * x.square().sum()

        return argmin(f, atoms, atoms.project(torch.zeros_like(start)), tol=1e-13)

    assert gradcheck(solution, (A, b), atol=1e-5, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize("over", ["hull", "span", "cone"])
def test_implicit_gradients_over_dictionaries(over: str) -> None:
    dictionary = normal(5, 8, seed=1)
    y = normal(5, seed=4).requires_grad_()
    scale = torch.tensor([1.0, 2.0, 0.5, 1.5, 1.0], dtype=torch.float64, requires_grad=True)
    atoms = dictionary if over != "span" else dictionary[:, :3]
    start = torch.zeros(5, dtype=torch.float64) if over != "hull" else dictionary[:, 0]

    def solution(y: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return argmin(lambda x: (scale * (x - y)).square().sum() / 2, atoms, start, over=over)

    assert gradcheck(solution, (y, scale), atol=1e-5, rtol=1e-4, fast_mode=True)
    x = solution(y, scale)
    if over == "span":
        basis = torch.linalg.qr(atoms)[0]
        inner = basis.t() @ (scale.square()[:, None] * basis)
        expected = basis @ torch.linalg.solve(inner, basis.t() @ (scale.square() * y))
        torch.testing.assert_close(x, expected)


def test_implicit_gradients_of_smooth_functions() -> None:
    """Logistic regression with a ridge, and a bilevel step: the gradient of a validation loss in the ridge."""
    X, labels = normal(30, 5, seed=7), (normal(30, seed=8) > 0).double()
    ridge = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def validation(ridge: torch.Tensor) -> torch.Tensor:
        def f(w: torch.Tensor) -> torch.Tensor:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(X[:20] @ w, labels[:20])
            return loss + ridge * w.square().sum()

        w = argmin(f, L1Ball(0.8), torch.zeros(5, dtype=torch.float64), tol=1e-13)
        return torch.nn.functional.binary_cross_entropy_with_logits(X[20:] @ w, labels[20:])

    assert gradcheck(validation, ridge, atol=1e-7, fast_mode=True)
    wide = argmin(lambda x: ((x - ridge) ** 2).sum(), Box(-9.0, 9.0), torch.zeros(2, dtype=torch.float64))
    wide.sum().backward()
    assert float(ridge.grad) == pytest.approx(2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("over", ["hull", "span", "cone"])
@pytest.mark.parametrize("smoothness", [None, 30.0])
def test_unrolled_gradients(over: str, smoothness: float | None) -> None:
    A = normal(9, 6, seed=5).requires_grad_()
    b = normal(9, seed=6).requires_grad_()
    for atoms in (L1Ball(1.5, 6), L2Ball(0.4, 6)) if over != "cone" else (Simplex(1.0, 6),):

        def iterate(A: torch.Tensor, b: torch.Tensor, atoms: Any = atoms) -> torch.Tensor:
            start = torch.zeros(6, dtype=torch.float64)
            return argmin(
                lambda x: (A @ x - b).square().sum() / 2, atoms, start, over=over, steps=7, smoothness=smoothness
            )

        assert gradcheck(iterate, (A, b), atol=1e-5, rtol=1e-4, fast_mode=True)
    if over == "hull" and smoothness is None:  # the same iterate as the solver's own
        own = frank_wolfe(
            lambda x: (A.detach() @ x - b.detach()).square().sum() / 2,
            atoms,
            torch.zeros(6, dtype=torch.float64),
            step="line-search",
            max_iterations=7,
            tol=0,
        )
        torch.testing.assert_close(iterate(A, b).detach(), own.x, atol=1e-6, rtol=1e-6)


def test_what_cannot_be_differentiated_is_said() -> None:
    y = normal(3).requires_grad_()
    flat = argmin(lambda x: (x[:1] - y[:1]).square().sum(), L2Ball(9.0), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(flat[0], y[0])
    with pytest.raises(ValueError, match="strongly convex on the face of the solution"):
        flat.sum().backward()
    with pytest.warns(UserWarning, match="after 2 iterations"):
        argmin(lambda x: (x.cumsum(0) - y).square().sum(), L1Ball(1.0), 0 * y.detach(), max_iterations=2)
    with pytest.raises(ValueError, match="over 'sphere' is unknown"):
        argmin(lambda x: x.sum(), L1Ball(1.0), torch.zeros(3), over="sphere")
    with pytest.raises(ValueError, match="the faces of Custom"):
        argmin(lambda x: (x - y).square().sum(), Custom(lambda d: -d / d.norm()), y.detach() / 9).sum().backward()


def test_single_precision_and_dictionaries() -> None:
    y = normal(4).float().requires_grad_()
    x = argmin(lambda x: (x - y).square().sum() / 2, Simplex(), torch.full((4,), 0.25))
    assert x.dtype == torch.float32
    x[int(x.argmax())].backward()
    exact = argmin(lambda x: (x - y.double()).square().sum() / 2, Simplex(), torch.full((4,), 0.25).double())
    torch.testing.assert_close(x.detach().double(), exact.detach(), atol=1e-5, rtol=1e-5)
    assert Dictionary(normal(3, 5)).lmo(normal(3)).shape == (3,)
