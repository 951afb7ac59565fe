"""The newer variants of Frank-Wolfe: right, feasible, certified, and as sparing with the oracle as they promise."""

from typing import Any

import numpy as np
import pytest

from unknot.solvers import LeastSquares, frank_wolfe
from unknot.solvers.atoms import L1Ball, Lazy, Product, Simplex
from unknot.solvers.frank_wolfe import NEWER


class Counting(Simplex):
    calls = 0

    def ask(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return super().ask(*args, **options)


def problem(variant: str, atoms: Any = None) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    if variant == "block-coordinate":
        return LeastSquares(rng.standard_normal((20, 12)), rng.standard_normal(20)), Product(
            Simplex(1.0, dim=4), L1Ball(0.5, dim=8)
        )
    return LeastSquares(rng.standard_normal((20, 12)), rng.standard_normal(20)), atoms or Simplex(dim=12)


@pytest.mark.parametrize("variant", NEWER)
def test_they_reach_the_optimum_with_a_certificate(variant: str) -> None:
    f, atoms = problem(variant)
    best = frank_wolfe(f, atoms, variant="fully-corrective", tol=1e-11)
    assert best.converged
    tol = 1e-3 if variant == "block-coordinate" else 1e-7
    result = frank_wolfe(f, atoms, variant=variant, tol=tol, max_iterations=4000)
    assert result.converged
    assert (result.trace.gap >= result.trace.value - best.value - 1e-10).all()
    assert (np.diff(result.trace.value) <= 1e-10).all()
    assert atoms.contains(result.x, 1e-9)
    if len(result.active):
        np.testing.assert_allclose(np.tensordot(result.weights, result.atoms, 1), result.x, atol=1e-10)


def test_lazy_variants_ask_less() -> None:
    rng = np.random.default_rng(0)
    f = LeastSquares(rng.standard_normal((40, 60)), rng.standard_normal(40))
    plain, lazy, blended = Counting(), Counting(), Counting()
    reference = frank_wolfe(f, plain, tol=1e-2, max_iterations=3000)
    cached = frank_wolfe(f, Lazy(lazy), tol=1e-2, max_iterations=6000)
    short = frank_wolfe(f, blended, variant="blended-pairwise", tol=1e-2, max_iterations=3000)
    assert reference.converged
    assert cached.converged
    assert short.converged
    assert lazy.calls < plain.calls
    assert blended.calls < plain.calls / 2
    assert len(short.active) <= len(reference.active)


def test_lazy_sets_work_in_all_of_them() -> None:
    rng = np.random.default_rng(0)
    f = LeastSquares(rng.standard_normal((20, 12)), rng.standard_normal(20))
    best = frank_wolfe(f, Simplex(), variant="fully-corrective", tol=1e-11).value
    for variant in ("plain", "blended-pairwise", "blended-corrective"):
        result = frank_wolfe(f, Lazy(Simplex()), variant=variant, tol=1e-3, max_iterations=3000)
        assert result.converged
        assert result.value - best <= 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: frank_wolfe(np.ones(3), L1Ball(1.0), variant="block-coordinate"), r"works on atoms.Product"),
        (lambda: frank_wolfe(np.ones(3), L1Ball(1.0), variant="blended-pairwise", step=0), "needs a step that looks"),
        (lambda: frank_wolfe(np.ones(3), L1Ball(1.0), variant="blended"), "variant 'blended' is unknown"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
