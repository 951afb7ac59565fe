"""Certificates hold and runs end: what an oracle does not know it does not claim, and nothing loops or climbs."""

import math
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch

from unknot.solvers import (
    Differentiable,
    LeastSquares,
    Logistic,
    Quadratic,
    SquaredDistance,
    Status,
    frank_wolfe,
    homotopy_cgm,
    matching_pursuit,
    nonnegative_matching_pursuit,
    s3ccm,
    stochastic_frank_wolfe,
    stochastic_homotopy_cgm,
)
from unknot.solvers import atoms as sets
from unknot.solvers.corrections import HULL, ROOM, QuadraticCorrection
from unknot.solvers.homotopy import SampledEntries, certainly_infeasible
from unknot.solvers.result import Run
from unknot.solvers.structured import ActiveSet, Dense
from unknot.solvers.terms import Box, Linear, project_psd_trace

RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((6, 9))

SETS: list[Any] = [
    sets.L1Ball(2.0),
    sets.Simplex(3.0),
    sets.L2Ball(1.5),
    sets.KSparse(2, 1.5),
    sets.Box(-1.0, np.arange(6.0)),
    sets.LInfBall(0.5),
    sets.GroupBall([0, 0, 1, 1, 1, 2], 2.0),
    sets.Dictionary(MATRIX),
    sets.Product(sets.L1Ball(2.0, dim=2), sets.KSparse(1, 1.0, dim=4)),
    sets.Symmetric(sets.Dictionary(MATRIX)),
    sets.Inexact(sets.L1Ball(2.0), multiplicative=0.5),
    sets.Lazy(sets.Dictionary(MATRIX)),
]


@pytest.mark.parametrize("atoms", SETS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_answers_come_with_a_bound_that_no_atom_is_below(atoms: Any, dtype: torch.dtype) -> None:
    bound = atoms.bind(dtype, torch.device("cpu"), False)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        d = torch.randn(6, generator=generator, dtype=dtype)
        z, lower = bound.ask(d, exact=True)
        value = float((z.dense().double() * d.double()).sum())
        slack = 1e-6 if dtype == torch.float32 else 1e-12
        assert lower <= value + slack * abs(value)
        others = [bound.ask(torch.randn(6, generator=generator, dtype=dtype)).atom for _ in range(5)]
        assert all(float((other.dense().double() * d.double()).sum()) >= lower for other in others)
        if not isinstance(atoms, sets.Inexact):
            assert lower >= value - 1e-4 * max(1.0, abs(value)) * (1 if dtype == torch.float64 else 10)


@pytest.mark.parametrize(
    "atoms", [a for a in SETS if not isinstance(a, sets.Inexact | sets.Lazy | sets.Symmetric)], ids=str
)
def test_membership_and_projection_agree_with_the_oracle(atoms: Any) -> None:
    rng = np.random.default_rng(1)
    points = np.stack([atoms.lmo(rng.standard_normal(6)) for _ in range(8)])
    assert atoms.contains(points.mean(0), 1e-7)
    assert not atoms.contains(100 * np.ones(6) + points[0])
    try:
        nearest = atoms.project(5 * rng.standard_normal(6))
    except ValueError:
        return
    assert atoms.contains(nearest, 1e-6)
    y = 3 * rng.standard_normal(6)
    best = frank_wolfe(y, atoms, variant="fully-corrective", tol=1e-10, max_iterations=3000)
    np.testing.assert_allclose(atoms.project(y), best.x, atol=1e-3)


def test_a_cache_behind_a_symmetric_set_gives_no_false_gap() -> None:
    rng = np.random.default_rng(0)
    atoms, y = rng.standard_normal((20, 60)), 2 * rng.standard_normal(20)
    best = frank_wolfe(y, sets.Dictionary(atoms, symmetric=True), variant="fully-corrective", tol=1e-11).value
    result = frank_wolfe(y, sets.Symmetric(sets.Lazy(sets.Dictionary(atoms))), max_iterations=400, tol=0)
    assert (result.trace.gap >= result.trace.value - best - 1e-10).all()


@pytest.mark.parametrize("method", ["power"])
def test_an_eigensolver_that_may_be_wrong_certifies_nothing(method: str) -> None:
    noise = np.random.default_rng(0).standard_normal((150, 150))
    y = 3 * (noise + noise.T)
    atoms = sets.PSDTrace(30.0, tol=1e-2, method=method)
    assert atoms.ask(torch.from_numpy(y)).lower == -math.inf
    result = frank_wolfe(y, atoms, tol=5.0, max_iterations=60, track=False)
    best = float(((project_psd_trace(y, 30.0) - y) ** 2).sum()) / 2
    assert (result.trace.gap >= result.trace.value - best).all()
    assert math.isfinite(result.gap)  # the last answer was asked for exactly
    assert not result.converged or result.value - best <= 5.0


def test_a_warm_start_on_an_eigenvector_does_not_hide_a_lower_one() -> None:
    atoms = sets.PSDTrace(1.0, method="lanczos").bind(torch.float64, torch.device("cpu"), False)
    first = torch.diag(torch.linspace(1.0, 2.0, 200, dtype=torch.float64))
    atoms.ask(first)
    second = first.clone()
    second[77, 77] = -1.0  # the last answer, e_0, is an eigenvector of this one as well
    answer = atoms.ask(second)
    assert answer.lower == pytest.approx(-1.0, abs=1e-6)
    assert abs(float(answer.atom.u[77])) == pytest.approx(1.0, abs=1e-6)  # type: ignore[attr-defined]


def test_the_cache_forgets_the_oldest_first() -> None:
    lazy = sets.Lazy(sets.L1Ball(1.0), capacity=4)
    for index in range(10):
        lazy.ask(torch.eye(10, dtype=torch.float64)[index] * 10.0**index)
    assert sorted(atom.index for atom in lazy._stack.atoms) == [6, 7, 8, 9]  # type: ignore[attr-defined]


def test_deterministic_values_belong_to_their_iterate() -> None:
    y = np.array([2.0, 1.0])
    result = s3ccm(y, lambda x: np.clip(x, -1.0, 1.0), max_iterations=50, gamma=0.5)
    assert result.value == pytest.approx(((result.x - y) ** 2).sum() / 2)
    start = s3ccm(y, lambda x: x, max_iterations=0)
    assert not np.any(start.x)
    assert result.trace.value[0] == pytest.approx(2.5)


def test_sampled_entries_over_sets_that_take_no_sparse_direction() -> None:
    entries = SampledEntries([0, 1, 2], [1, 0, 2], [1.0, 2.0, 3.0], (3, 3), batch_size=2)
    for atoms in (sets.L2Ball(2.0), sets.PSDTrace(2.0), sets.Lazy(sets.NuclearBall(2.0))):
        assert np.isfinite(stochastic_frank_wolfe(entries, atoms, max_iterations=20).x).all()
    inexact = stochastic_homotopy_cgm(entries, sets.NuclearBall(2.0), oracle_error=0.5, max_iterations=20)
    assert np.isfinite(inexact.x).all()


def test_random_pursuit_that_is_stopped_has_a_gap() -> None:
    f = LeastSquares(np.random.default_rng(0).standard_normal((8, 5)), np.ones(8))
    result = matching_pursuit(f, np.eye(5), variant="random", callback=lambda s: s.iteration == 3, tol=0)
    assert result.status == Status.STOPPED
    assert math.isfinite(result.gap)


def test_homotopy_stopped_between_evaluations_has_a_gap() -> None:
    stop = homotopy_cgm(
        np.ones(3),
        sets.L2Ball(1.0),
        Box(0.0),
        callback=lambda s: s.iteration == 7,
        evaluate_every=5,
        max_iterations=50,
    )
    assert math.isfinite(stop.gap)
    assert math.isfinite(stop.value)


def test_averaged_gradients_certify_nothing() -> None:
    y = 2 * np.random.default_rng(0).standard_normal(8)
    best = frank_wolfe(y, sets.L1Ball(1.0), variant="fully-corrective", tol=1e-12).value
    result = stochastic_homotopy_cgm(y, sets.L1Ball(1.0), max_iterations=100)
    assert (result.trace.gap >= result.trace.value - best).all()
    noisy = stochastic_homotopy_cgm(lambda x, rng: x - y, sets.L1Ball(1.0), (), np.zeros(8), max_iterations=5)
    assert noisy.gap == math.inf
    with pytest.raises(ValueError, match="random gradients give no gap to stop on"):
        stochastic_homotopy_cgm(lambda x, rng: x - y, sets.L1Ball(1.0), (), np.zeros(8), tol=1.0)  # type: ignore[call-arg]


def test_certainly_infeasible_needs_a_margin_and_keeps_to_the_time() -> None:
    apart = Linear(np.ones((1, 3)), 5.0, 5.0, name="sum is 5")
    with pytest.warns(UserWarning, match="are infeasible"):
        assert homotopy_cgm(np.zeros(3), sets.Simplex(), apart, max_iterations=200).status == "infeasible"
    run = Run("expired", True, 10, time_limit=0.0)
    asked = []
    watched = sets.Custom(lambda d: asked.append(1) or np.eye(3)[d.argmin()], shape=(3,)).bind(
        torch.float64, torch.device("cpu"), True
    )
    x = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    nearly = Linear(np.ones((1, 3)), 1 + 1e-9, 1 + 1e-9)  # off by less than rounding can tell
    assert not certainly_infeasible(run, watched, x, [nearly.bind(x, True)], [1.0])
    assert len(asked) == 1  # the time was up


def test_singular_quadratics_do_not_stall_at_a_wrong_point() -> None:
    f = Quadratic(np.diag([1.0, 0, 0]), np.array([0.3, 1, 0.5]))
    result = frank_wolfe(f, sets.L1Ball(1.0), variant="fully-corrective")
    assert result.converged
    assert result.value == pytest.approx(-1.0, abs=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(10):
        root = rng.standard_normal((3, 12))
        f, atoms = Quadratic(root.T @ root, rng.standard_normal(12)), rng.standard_normal((12, 20))
        corrective = frank_wolfe(f, atoms, variant="fully-corrective", tol=1e-8)
        pairwise = frank_wolfe(f, atoms, variant="pairwise", tol=1e-8, max_iterations=20_000)
        assert corrective.converged
        assert corrective.value == pytest.approx(pairwise.value, abs=1e-6)


def test_corrections_of_objectives_that_are_not_quadratic_take_few_gradients() -> None:
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((6, 15))
    matrix = torch.from_numpy(rng.standard_normal((20, 6)) * np.logspace(0, -1, 6))
    labels = torch.from_numpy(rng.random(20))
    asked = []

    def f(x: torch.Tensor) -> torch.Tensor:
        asked.append(1)
        scores = matrix @ x
        return (torch.nn.functional.softplus(scores) - labels * scores).sum() + 5e-5 * (x**2).sum()

    result = frank_wolfe(Differentiable(f, shape=(6,)), atoms, variant="fully-corrective", tol=1e-8)
    assert result.converged
    assert len(asked) < 150  # 561 by accelerated projected gradients


def test_corrections_forget_atoms_that_left() -> None:
    rng = np.random.default_rng(0)
    f = SquaredDistance(rng.standard_normal(20))
    correction = QuadraticCorrection(f, HULL)
    for _ in range(60):
        parts = [(0.1, Dense(1.0, None, torch.from_numpy(rng.standard_normal(20)))) for _ in range(10)]
        correction.solve(ActiveSet(torch.zeros(20, dtype=torch.float64), parts), f.at(torch.zeros(20).double()))
    assert len(correction._atoms) <= 10 + 2 * 10 + ROOM  # of 600


def test_cones_that_fall_for_ever_say_so_and_end() -> None:
    with pytest.raises(ValueError, match="no minimum along a search direction"):
        nonnegative_matching_pursuit(Quadratic(np.diag([1.0, 0.0]), np.ones(2)), np.eye(2), time_limit=1)
    flat = Quadratic(np.diag([1.0, 0.0]), np.array([1.0, -1.0]))
    assert nonnegative_matching_pursuit(flat, np.eye(2)).x == pytest.approx([1.0, 0.0])


def a_optimal(m: int, n: int) -> Differentiable:
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((m, n)))

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.trace(torch.linalg.inv((rows * x[:, None]).t() @ rows))

    return Differentiable(f, domain=lambda x: int((x > 1e-9).sum()) >= n, shape=(m,))


def d_optimal(m: int, n: int) -> Differentiable:
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((m, n)))

    def f(x: torch.Tensor) -> torch.Tensor:
        return -torch.logdet((rows * x[:, None]).t() @ rows)

    return Differentiable(f, domain=lambda x: int((x > 1e-9).sum()) >= n, shape=(m,))


@pytest.mark.parametrize("step", ["line-search", "backtracking"])
@pytest.mark.parametrize("problem", [a_optimal, d_optimal])
def test_objectives_with_a_domain_never_rise(problem: Any, step: str) -> None:
    f = problem(8, 3)
    result = frank_wolfe(f, sets.Simplex(), np.full(8, 1 / 8), step=step, max_iterations=200, tol=1e-3)
    assert (np.diff(result.trace.value) <= 1e-9 * np.abs(result.trace.value[:-1])).all()
    best = frank_wolfe(f, sets.Simplex(), np.full(8, 1 / 8), variant="away", max_iterations=2000, tol=1e-7)
    assert best.converged
    assert (result.trace.gap >= result.trace.value - best.value - 1e-9).all()
    assert result.value - best.value < 0.3


@pytest.mark.parametrize("variant", ["norm-corrective", "fully-corrective"])
def test_corrections_mind_the_domain(variant: str) -> None:
    result = frank_wolfe(
        a_optimal(8, 3), sets.Simplex(), np.full(8, 1 / 8), variant=variant, time_limit=5, max_iterations=40
    )
    assert (np.diff(result.trace.value) <= 1e-9 * np.abs(result.trace.value[:-1])).all()


def test_callbacks_may_return_a_bool_of_numpy() -> None:
    result = frank_wolfe(np.ones(4), sets.L1Ball(1.0), callback=lambda s: np.bool_(s.iteration == 2), tol=0)
    assert result.status == Status.STOPPED


@pytest.mark.parametrize("variant", ["plain", "away", "pairwise", "fully-corrective", "blended-pairwise"])
def test_a_result_is_a_start(variant: str) -> None:
    box = sets.Custom(lambda d: -np.sign(d))
    y = np.array([0.3, -2.0, 0.1, 0.7])
    first = frank_wolfe(y, box, variant=variant, max_iterations=5, tol=0)
    again = frank_wolfe(y, box, first, variant=variant, max_iterations=500, tol=1e-9)
    assert again.trace.value[0] == pytest.approx(first.value)
    assert again.value <= first.value + 1e-12
    bare = frank_wolfe(y, box, first.x, max_iterations=5)  # and so is its point alone
    assert bare.trace.value[0] == pytest.approx(first.value)


def test_nothing_moves_is_said() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((20, 8)).astype(np.float32)
    result = frank_wolfe(LeastSquares(matrix, matrix[:, 0]), sets.L1Ball(0.5), variant="fully-corrective", tol=1e-30)
    assert result.status == Status.STALLED
    assert result.iterations < 200


def test_relative_tolerance() -> None:
    y = 1e6 * np.random.default_rng(0).standard_normal(30)
    result = frank_wolfe(y, sets.L1Ball(1e5), tol=0, rtol=1e-3, max_iterations=5000)
    assert result.converged
    assert result.gap <= 1e-3 * result.value
    with pytest.raises(ValueError, match="rtol is 2"):
        frank_wolfe(y, sets.L1Ball(1.0), rtol=2)


def test_dictionary_starts_have_no_dust() -> None:
    atoms = np.random.default_rng(0).standard_normal((5, 9))
    parts = sets.Dictionary(atoms).decompose(torch.from_numpy(atoms[:, 3]))
    assert len(parts) == 1


def test_complex_input_and_operators() -> None:
    with pytest.raises(ValueError, match="complex"):
        frank_wolfe(np.ones(3) * 1j, sets.L1Ball(1.0))
    rng = np.random.default_rng(0)
    matrix, target = rng.standard_normal((12, 6)), rng.standard_normal(12)
    operator = scipy.sparse.linalg.aslinearoperator(matrix)
    dense = frank_wolfe(LeastSquares(matrix, target), sets.L1Ball(0.5), variant="pairwise", tol=1e-9)
    through = frank_wolfe(LeastSquares(operator, target), sets.L1Ball(0.5), variant="pairwise", tol=1e-9)
    np.testing.assert_allclose(dense.x, through.x, atol=1e-7)
    square = matrix.T @ matrix
    sparse = frank_wolfe(
        Quadratic(scipy.sparse.csr_array(square), matrix.T @ target), sets.L1Ball(0.5), variant="pairwise"
    )
    np.testing.assert_allclose(dense.x, sparse.x, atol=1e-3)


def test_soft_labels_and_ridge() -> None:
    rng = np.random.default_rng(0)
    matrix, soft = rng.standard_normal((20, 4)), rng.random(20)
    f = Logistic(matrix, soft, ridge=0.5)
    x = rng.standard_normal(4)
    scores = matrix @ x
    expected = (np.logaddexp(0, scores) - soft * scores).sum() + 0.25 * x @ x
    assert f(x) == pytest.approx(expected)
    numeric = [(f(x + 1e-6 * e) - f(x - 1e-6 * e)) / 2e-6 for e in np.eye(4)]
    np.testing.assert_allclose(f.gradient(x), numeric, rtol=1e-6)
    assert matching_pursuit(f, np.eye(4), tol=1e-8, max_iterations=5000).converged  # strongly convex: certified


def test_one_and_one_point_zero_are_not_confused() -> None:
    with pytest.raises(ValueError, match=r"expected a constant between 0 and 1.*'line-search' for 1"):
        frank_wolfe(np.ones(3), sets.L1Ball(1.0), step=1.0)
    assert (
        frank_wolfe(np.ones(3), sets.L1Ball(0.5), step=np.int64(1)).value
        == frank_wolfe(np.ones(3), sets.L1Ball(0.5), step="line-search").value
    )


def test_accelerated_runs_look_again_before_they_claim() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((30, 10))
    f = LeastSquares(matrix, rng.standard_normal(30))
    result = matching_pursuit(f, np.eye(10), variant="accelerated", tol=1e-9, max_iterations=20_000)
    best = float(np.linalg.lstsq(matrix, f.target.numpy(), rcond=None)[1][0]) / 2
    assert result.converged
    assert f(result.x) - best <= result.gap + 1e-12


def test_plain_runs_over_permutations_stay_small() -> None:
    rng = np.random.default_rng(0)
    result = frank_wolfe(rng.random((30, 30)), sets.Birkhoff(30), max_iterations=200, tol=0)
    assert len(result.active) > 20
    assert result.active[0].parts()[0].numel() == 30  # n entries of an atom are kept, not n²
    np.testing.assert_allclose(result.x.sum(0), 1.0)


def test_memory_of_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:

    rng = np.random.default_rng(0)
    atoms, signals = rng.standard_normal((12, 30)), rng.standard_normal((9, 12))
    whole = matching_pursuit(signals, atoms, variant="orthogonal")
    monkeypatch.setattr(sys.modules[matching_pursuit.__module__], "BYTES", 3000)
    halves = matching_pursuit(signals, atoms, variant="orthogonal")
    np.testing.assert_allclose(halves.x, whole.x, atol=1e-12)
    np.testing.assert_allclose(halves.coefficients, whole.coefficients, atol=1e-9)
    np.testing.assert_allclose(halves.trace.value, whole.trace.value, atol=1e-12)
    assert halves.status == whole.status
