"""The loops in NumPy are those of torch: same iterates, gaps, statuses and active atoms."""

from typing import Any

import numpy as np
import pytest

from unknot.solvers import LeastSquares, Logistic, dense, frank_wolfe
from unknot.solvers.atoms import L1Ball, Simplex


def objective(kind: str, rows: int, columns: int) -> Any:
    rng = np.random.default_rng(0)
    matrix, target = rng.standard_normal((rows, columns)), rng.standard_normal(rows)
    if kind == "least-squares":
        return LeastSquares(matrix, target, reduction="mean")
    labels = (target > 0).astype(float) if kind == "logistic" else 1 / (1 + np.exp(-target))
    return Logistic(matrix, labels, ridge=0.0 if kind == "logistic" else 0.1)


def both(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    """The results in NumPy and in torch."""
    asked = []
    solve = dense.solve
    monkeypatch.setattr(dense, "solve", lambda *a: asked.append(1) or solve(*a))
    ours = frank_wolfe(*arguments, **options)
    assert asked
    monkeypatch.setattr(dense, "applies", lambda problem: False)
    return ours, frank_wolfe(*arguments, **options)


@pytest.mark.parametrize("shape", [(20, 16), (40, 600)])
@pytest.mark.parametrize("kind", ["least-squares", "logistic", "probabilities"])
@pytest.mark.parametrize("variant", ["plain", "away", "pairwise"])
@pytest.mark.parametrize("step", ["auto", "line-search", "short", "open-loop"])
def test_same_run(monkeypatch: pytest.MonkeyPatch, shape: Any, kind: str, variant: str, step: str) -> None:
    if step == "open-loop" and variant != "plain":
        pytest.skip("a schedule belongs to the plain variant")
    exact = step == "line-search" or (step == "auto" and kind == "least-squares")
    if variant == "pairwise" and exact:
        pytest.skip("after an exact pairwise step the next choice is a tie, which rounding decides")
    f = objective(kind, *shape)
    for ball in (L1Ball(2.0), Simplex(2.0)):
        x0 = np.full(shape[1], 2 / shape[1]) if isinstance(ball, Simplex) else np.zeros(shape[1])
        for start, count in ((None, 25), (x0, 8)):
            with monkeypatch.context() as patch:
                ours, theirs = both(patch, f, ball, start, variant=variant, step=step, tol=1e-9, max_iterations=count)
            assert (ours.status, ours.iterations) == (theirs.status, theirs.iterations)
            np.testing.assert_allclose(ours.trace.value, theirs.trace.value, rtol=1e-9)
            np.testing.assert_allclose(ours.x, theirs.x, atol=1e-8)
            np.testing.assert_allclose(ours.trace.gap, theirs.trace.gap, atol=1e-7, rtol=1e-6)
            np.testing.assert_allclose(ours.coefficients, ours.x, atol=1e-12)
            assert ours.weights.sum() == pytest.approx(1.0)
            assert len(ours.active) == len(theirs.active)


@pytest.mark.parametrize("variant", ["away", "pairwise"])
def test_a_long_run_converges_and_goes_on_from_a_result(variant: str) -> None:
    f, ball = objective("least-squares", 40, 600), L1Ball(2.0)
    seen: list[float] = []
    first = frank_wolfe(f, ball, variant=variant, tol=1e-3, callback=lambda state: seen.append(state.value))
    again = frank_wolfe(f, ball, first, variant=variant, tol=1e-10, max_iterations=20_000)
    assert again.converged
    assert again.trace.value[0] == pytest.approx(first.value)
    assert seen == first.trace.value.tolist()
    best = frank_wolfe(f, ball, variant="fully-corrective", tol=1e-11)
    assert again.value == pytest.approx(best.value, abs=1e-9)
    assert (again.trace.gap >= again.trace.value - best.value - 1e-12).all()
    assert np.abs(again.x).sum() <= 2 + 1e-9


def test_not_for_other_problems() -> None:
    matrix, ball = np.eye(3), L1Ball(1.0)
    for f in (LeastSquares(matrix.astype(np.float32), np.ones(3, np.float32)), np.ones(3)):
        assert frank_wolfe(f, ball, variant="pairwise").converged
