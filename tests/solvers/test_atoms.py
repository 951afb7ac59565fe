"""Atom sets: the oracle is right, structured atoms agree with dense ones, wrappers keep their promises."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unknot.solvers import frank_wolfe
from unknot.solvers.atoms import (
    AtomSet,
    Custom,
    Dictionary,
    Inexact,
    L1Ball,
    L2Ball,
    Lazy,
    NuclearBall,
    Product,
    PSDTrace,
    SignedCoordinates,
    Simplex,
    Symmetric,
    as_atoms,
)
from unknot.solvers.structured import Dense, OneHot, RankOne, Sparse, Stack

MATRIX = np.random.default_rng(0).standard_normal((4, 7))

VECTOR_SETS = [
    L1Ball(2.0),
    SignedCoordinates(),
    Simplex(3.0),
    L2Ball(1.5),
    Dictionary(MATRIX),
    Dictionary(MATRIX, symmetric=True),
    Dictionary(scipy.sparse.csr_matrix(MATRIX)),
    Dictionary(torch.tensor(MATRIX).to_sparse_coo(), symmetric=True),
    Product(L1Ball(2.0, dim=1), Simplex(1.0, dim=3)),
    Product(L2Ball(2.0, dim=2), Simplex(1.0, dim=2)),
    Custom(lambda d: 1.0 - 2.0 * (d > 0), symmetric=True),
    Symmetric(Dictionary(MATRIX)),
]
MATRIX_SETS = [NuclearBall(2.0), PSDTrace(2.0), PSDTrace(2.0, equality=False)]


def some_points(atoms: AtomSet, shape: tuple[int, ...], count: int = 200) -> np.ndarray:
    """Points of the set, found by asking for other directions."""
    rng = np.random.default_rng(1)
    return np.stack([atoms.lmo(rng.standard_normal(shape)) for _ in range(count)])


@pytest.mark.parametrize("atoms", VECTOR_SETS, ids=str)
def test_oracle_beats_every_other_atom(atoms: AtomSet) -> None:
    others = some_points(atoms, (4,))
    for seed in range(20):
        direction = np.random.default_rng(seed).standard_normal(4)
        assert direction @ atoms.lmo(direction) <= (others @ direction).min() + 1e-12


@pytest.mark.parametrize("atoms", MATRIX_SETS, ids=str)
def test_matrix_oracle_beats_every_other_atom(atoms: AtomSet) -> None:
    others = some_points(atoms, (5, 5))
    for seed in range(10):
        direction = np.random.default_rng(seed).standard_normal((5, 5))
        assert (direction * atoms.lmo(direction)).sum() <= (others * direction).sum((1, 2)).min() + 1e-12


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=4, max_size=4))
def test_oracle_attains_the_dual_norm(direction: list[float]) -> None:
    d = np.array(direction)
    assert d @ L1Ball(2.0).lmo(d) == pytest.approx(-2 * np.abs(d).max())
    assert d @ Simplex(2.0).lmo(d) == pytest.approx(2 * d.min())
    assert d @ L2Ball(2.0).lmo(d) == pytest.approx(-2 * np.linalg.norm(d), abs=1e-12)
    assert d @ Dictionary(MATRIX).lmo(d) == pytest.approx((d @ MATRIX).min())
    assert d @ Dictionary(MATRIX, symmetric=True).lmo(d) == pytest.approx(-np.abs(d @ MATRIX).max())


def test_large_matrices_use_the_iterative_eigensolver_and_agree() -> None:
    direction = np.random.default_rng(0).standard_normal((150, 140))
    z = NuclearBall(3.0).lmo(direction)
    assert (direction * z).sum() == pytest.approx(-3 * np.linalg.norm(direction, 2), rel=1e-9)
    assert (direction.T * NuclearBall(3.0).lmo(direction.T)).sum() == pytest.approx((direction * z).sum(), rel=1e-9)
    square = direction[:140] + direction[:140].T
    assert (square * PSDTrace(3.0).lmo(square)).sum() == pytest.approx(3 * np.linalg.eigvalsh(square)[0], rel=1e-9)


def test_trace_inequality_answers_zero_where_nothing_descends() -> None:
    direction = np.diag([1.0, 2.0])
    assert not PSDTrace(2.0, equality=False).lmo(direction).any()
    assert np.trace(PSDTrace(2.0).lmo(direction)) == pytest.approx(2.0)


@pytest.mark.parametrize("atoms", [*VECTOR_SETS, *MATRIX_SETS], ids=str)
def test_answer_has_the_kind_dtype_and_shape_of_the_direction(atoms: AtomSet) -> None:
    shape = (4, 4) if atoms in MATRIX_SETS else (4,)
    for dtype in (np.float32, np.float64):
        direction = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        answer = atoms.lmo(direction)
        assert isinstance(answer, np.ndarray)
        assert (answer.dtype, answer.shape) == (dtype, shape)
        tensor = atoms.lmo(torch.from_numpy(direction))
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_allclose(tensor.numpy(), answer, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("atoms", "x"),
    [
        (L1Ball(2.0), np.array([0.5, -0.3, 0.0, 0.2])),
        (L1Ball(2.0), np.zeros(4)),
        (Simplex(2.0), np.array([0.5, 0.3, 0.0, 1.2])),
        (L2Ball(2.0), np.array([0.5, 0.3, 0.0, 1.2])),
        (Dictionary(MATRIX), MATRIX @ np.full(7, 1 / 7)),
        (Dictionary(MATRIX, symmetric=True), MATRIX @ np.array([0.2, -0.3, 0, 0, 0.1, 0, -0.4])),
        (Product(L1Ball(2.0, dim=1), Simplex(1.0, dim=3)), np.array([-0.7, 0.2, 0.3, 0.5])),
        (NuclearBall(4.0), np.diag([1.0, -2.0, 0.5])),
        (PSDTrace(3.5), np.diag([1.0, 2.0, 0.5])),
        (PSDTrace(5.0, equality=False), np.diag([1.0, 2.0, 0.5])),
    ],
    ids=str,
)
def test_points_of_the_hull_decompose_into_atoms(atoms: AtomSet, x: np.ndarray) -> None:
    parts = atoms.decompose(torch.from_numpy(x))
    weights = np.array([weight for weight, _ in parts])
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(sum(w * atom.dense().numpy() for w, atom in parts), x, atol=1e-12)
    for _, atom in parts:  # each part is an atom: no direction separates it from the set
        z = atom.dense().numpy()
        assert (-z * atoms.lmo(-z)).sum() <= -(z * z).sum() + 1e-12


def test_structured_atoms_agree_with_their_dense_form() -> None:
    rng = np.random.default_rng(0)
    direction = torch.from_numpy(rng.standard_normal((3, 4)))
    like = torch.zeros(3, 4, dtype=torch.float64)
    atoms = [
        OneHot(-2.0, 5, 5, (3, 4), torch.float64, torch.device("cpu")),
        RankOne(1.5, None, torch.from_numpy(rng.standard_normal(3)), torch.from_numpy(rng.standard_normal(4))),
        Dense(-1.0, 1, torch.from_numpy(rng.standard_normal((3, 4)))),
        Sparse(2.0, 2, indices=torch.tensor([1, 7]), values=torch.tensor([3.0, 4.0]).double(), shape=(3, 4)),
    ]
    stack = Stack()
    for count, atom in enumerate(atoms, start=1):
        dense = atom.dense()
        assert atom.inner(direction) == pytest.approx(float((dense * direction).sum()))
        assert atom.squared_norm == pytest.approx(float(dense.square().sum()))
        moved = like.clone()
        atom.add_to(moved, 0.5)
        torch.testing.assert_close(moved, dense / 2)
        sign, positive = atom.unsigned()
        torch.testing.assert_close(sign * positive.dense(), dense)
        stack.append(atom)  # kinds are mixed from the second on
        assert stack.inner(direction).tolist() == pytest.approx([z.inner(direction) for z in atoms[:count]])
    stack.remove(0)
    left = [atoms[3], atoms[1], atoms[2]]
    assert stack.inner(direction).tolist() == pytest.approx([z.inner(direction) for z in left])
    weights = torch.tensor([1.0, -2.0, 3.0]).double()
    expected = left[0].dense() - 2 * left[1].dense() + 3 * left[2].dense()
    torch.testing.assert_close(stack.combine(weights, (3, 4)), expected)


@pytest.mark.parametrize("kind", ["one-hot", "rank-one", "dense"])
def test_stacks_of_one_kind_stay_structured_and_right(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    atoms: AtomSet = {"one-hot": L1Ball(2.0), "rank-one": NuclearBall(2.0), "dense": L2Ball(2.0)}[kind]
    like = torch.zeros(4, 3, dtype=torch.float64)
    direction = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    stack, drawn = Stack(), [atoms.sample(like, generator) for _ in range(11)]
    for atom in drawn:
        stack.append(atom)
    assert stack.inner(direction).tolist() == pytest.approx([atom.inner(direction) for atom in drawn])
    weights = torch.randn(11, generator=generator, dtype=torch.float64)
    expected = sum(w * atom.dense() for w, atom in zip(weights, drawn, strict=True))
    torch.testing.assert_close(stack.combine(weights, (4, 3)), expected)


@pytest.mark.parametrize("inner", [L1Ball(2.0), L2Ball(2.0), Dictionary(MATRIX, symmetric=True)], ids=str)
def test_multiplicative_error_is_used_but_kept(inner: AtomSet) -> None:
    oracle = Inexact(inner, multiplicative=0.7)
    ratios = []
    for seed in range(50):
        direction = np.random.default_rng(seed).standard_normal(4)
        ratios.append((direction @ oracle.lmo(direction)) / (direction @ inner.lmo(direction)))
    assert min(ratios) >= 0.7 - 1e-12
    assert min(ratios) < 1 - 1e-6  # some answers are not exact
    assert oracle.calls == 50


def test_additive_error_shrinks_with_the_iteration() -> None:
    inner = L2Ball(1.0)
    oracle = Inexact(inner, additive=1.0, curvature=3.0)
    direction = np.array([1.0, 2.0, -2.0])
    for k in range(40):
        error = direction @ oracle.lmo(direction) - direction @ inner.lmo(direction)
        assert -1e-12 <= error <= 3.0 / (k + 2)


@pytest.mark.parametrize("error", [{"multiplicative": 0.5}, {"additive": 1.0, "curvature": 4.0}], ids=str)
def test_gap_of_an_inexact_oracle_is_still_a_certificate(error: dict[str, float]) -> None:
    y = np.random.default_rng(0).standard_normal(20)
    best = frank_wolfe(y, L1Ball(1.0), variant="fully-corrective", tol=1e-12).value
    result = frank_wolfe(y, Inexact(L1Ball(1.0), **error), max_iterations=300, tol=1e-3)
    assert (result.trace.gap >= result.trace.value - best - 1e-12).all()
    assert result.value - best < 0.05


def test_lazy_oracle_saves_calls_and_keeps_the_certificate() -> None:
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((20, 100))
    y = atoms @ rng.dirichlet(np.ones(100))
    lazy = Lazy(Dictionary(atoms))
    result = frank_wolfe(y, lazy, variant="pairwise", tol=1e-8, max_iterations=5000)
    assert result.converged
    assert lazy.calls < result.iterations / 2
    assert lazy.calls + lazy.hits >= result.iterations
    assert (result.trace.gap >= result.trace.value - 1e-12).all()  # the optimum is 0
    assert np.isfinite(result.trace.gap).all()


def test_lazy_cache_is_bounded() -> None:
    lazy = Lazy(L2Ball(1.0), capacity=3)
    for seed in range(20):
        lazy.atom(torch.randn(5, generator=torch.Generator().manual_seed(seed)))
    assert len(lazy._stack) <= 3


def test_sparse_dictionary_gives_sparse_atoms() -> None:
    matrix = scipy.sparse.random(50, 30, density=0.1, random_state=0, format="csc") + scipy.sparse.eye(50, 30)
    atom = Dictionary(matrix).atom(torch.randn(50, generator=torch.Generator().manual_seed(0)).double())
    assert isinstance(atom, Sparse)
    assert len(atom.values) < 20


def test_geometry_of_sets() -> None:
    rows = MATRIX.T
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    assert Dictionary(MATRIX).diameter == pytest.approx(distances.max())
    assert Dictionary(MATRIX, symmetric=True).diameter == pytest.approx(2 * np.linalg.norm(rows, axis=1).max())
    for atoms, shape in [(L1Ball(2.0), (4,)), (Simplex(2.0), (4,)), (L2Ball(2.0), (4,)), (PSDTrace(2.0), (3, 3))]:
        points = some_points(atoms, shape, 60).reshape(60, -1)
        seen = np.linalg.norm(points[:, None] - points[None], axis=2).max()
        assert 0.9 * atoms.diameter <= seen <= atoms.diameter + 1e-12  # type: ignore[operator]


def test_margin_bounds_the_distance_of_the_hull_from_below() -> None:
    positive = np.abs(MATRIX) + 0.01
    nearest = frank_wolfe(np.zeros(4), positive, variant="fully-corrective", tol=1e-14)
    distance = np.linalg.norm(nearest.x)
    assert 0.05 * distance < Dictionary(positive).margin <= distance + 1e-12
    assert Dictionary(np.hstack([MATRIX, -MATRIX])).margin == 0


def test_reading_atoms() -> None:
    assert isinstance(as_atoms(MATRIX), Dictionary)
    assert isinstance(as_atoms(MATRIX.tolist()), Dictionary)
    assert isinstance(as_atoms(lambda d: -d), Custom)
    assert as_atoms(L1Ball()).radius == 1.0


def test_a_dictionary_contains_its_hull_and_not_what_lies_between_it_and_the_origin() -> None:
    corners = Dictionary(np.eye(2))
    assert corners.contains(np.array([0.3, 0.7]))
    assert corners.contains(np.array([1.0, 0.0]))
    assert not corners.contains(np.array([0.1, 0.1]))
    assert not corners.contains(np.array([0.5, 0.6]))
    assert Dictionary(np.eye(2), symmetric=True).contains(np.array([0.1, -0.1]))
    # a convex combination in single precision leaves the cone of few atoms, and is in their hull up to rounding
    rng = np.random.default_rng(0)
    atoms, weights = rng.standard_normal((8, 3)), rng.dirichlet(np.ones(3))
    assert Dictionary(atoms).contains((atoms @ weights).astype(np.float32), 1e-6)


@pytest.mark.parametrize("kind", ["column", "row", "matrix", "torch"])
def test_a_users_oracle_may_answer_with_sparse_atoms(kind: str) -> None:
    def lmo(d: Any) -> Any:
        flat = np.asarray(d).reshape(-1)
        z = np.zeros(flat.size)
        z[np.abs(flat).argmax()] = -np.sign(flat[np.abs(flat).argmax()])
        if kind == "torch":
            return torch.from_numpy(z).to_sparse()
        return scipy.sparse.coo_array(z.reshape({"column": (-1, 1), "row": (1, -1), "matrix": np.shape(d)}[kind]))

    y = np.random.default_rng(0).standard_normal((4, 3) if kind == "matrix" else 12)
    result = frank_wolfe(y, Custom(lmo), variant="pairwise", tol=1e-9)
    assert result.converged
    assert all(isinstance(atom, Sparse) for atom in result.active)
    dense = frank_wolfe(y.reshape(-1), L1Ball(1.0), variant="pairwise", tol=1e-9)
    np.testing.assert_allclose(result.x.reshape(-1), dense.x, atol=1e-4)
    with pytest.raises(ValueError, match=r"returned an atom of shape \[2, 2\]"):
        frank_wolfe(y, Custom(lambda d: scipy.sparse.eye_array(2)))
