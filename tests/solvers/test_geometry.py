"""Constants of the analysis, against brute force and closed forms."""

import math

import numpy as np
import pytest
import scipy.spatial
from hypothesis import given, settings
from hypothesis import strategies as st

from unknot.solvers import LeastSquares, Logistic, Quadratic, SquaredDistance, geometry
from unknot.solvers.atoms import Custom, Dictionary, L1Ball, L2Ball, Lazy, NuclearBall, PSDTrace, Simplex

RNG = np.random.default_rng(0)
ATOMS = RNG.standard_normal((3, 8))


def directions(dim: int, count: int = 20_000) -> np.ndarray:
    d = np.random.default_rng(1).standard_normal((count, dim))
    return d / np.linalg.norm(d, axis=1, keepdims=True)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-1000, 1000).map(lambda i: i / 100), min_size=3, max_size=3))
def test_atomic_norms_of_dictionaries_agree_with_closed_forms(x: list[float]) -> None:
    vector = np.array(x)
    signed = np.hstack([2 * np.eye(3), -2 * np.eye(3)])
    assert geometry.atomic_norm(vector, signed) == pytest.approx(geometry.atomic_norm(vector, L1Ball(2.0)), abs=1e-9)
    orthant = geometry.atomic_norm(vector, Simplex(2.0))
    assert geometry.atomic_norm(vector, 2 * np.eye(3)) == pytest.approx(orthant, abs=1e-9)


def test_atomic_norms_of_matrices_and_balls() -> None:
    matrix = RNG.standard_normal((3, 4))
    assert geometry.atomic_norm(matrix, NuclearBall(2.0)) == pytest.approx(np.linalg.norm(matrix, "nuc") / 2)
    assert geometry.atomic_norm(matrix @ matrix.T, PSDTrace(2.0)) == pytest.approx(np.square(matrix).sum() / 2)
    assert math.isinf(geometry.atomic_norm(-np.eye(3), PSDTrace(2.0)))
    assert geometry.atomic_norm(np.array([3.0, 4.0]), L2Ball(2.0)) == pytest.approx(2.5)
    x = RNG.standard_normal(3)
    d = RNG.standard_normal(3)
    symmetric = Dictionary(ATOMS, symmetric=True)
    assert d @ x <= geometry.atomic_norm(x, symmetric) * geometry.dual_atomic_norm(d, symmetric) + 1e-9


def test_minimal_directional_width() -> None:
    symmetric = Dictionary(ATOMS, symmetric=True)
    sampled = np.abs(directions(3) @ ATOMS).max(1).min()
    width = geometry.minimal_directional_width(symmetric)
    assert width == pytest.approx(sampled, rel=0.02)
    assert width <= sampled
    assert geometry.minimal_directional_width(np.hstack([np.eye(4), -np.eye(4)])) == pytest.approx(0.5)
    assert geometry.minimal_directional_width(L1Ball(2.0, dim=4)) == 1.0
    assert geometry.minimal_directional_width(L2Ball(2.0)) == 2.0
    assert geometry.minimal_directional_width(np.eye(2)) == pytest.approx(-math.sqrt(0.5))  # 0 is outside
    # Atoms of a plane in space: the width is taken within their span.
    flat = np.vstack([np.hstack([np.eye(2), -np.eye(2)]), np.zeros((1, 4))])
    assert geometry.minimal_directional_width(flat) == pytest.approx(math.sqrt(0.5))


def test_directional_width() -> None:
    d = directions(3, 1)[0]
    assert geometry.directional_width(ATOMS, 3 * d) == pytest.approx(np.ptp(d @ ATOMS))


def test_smoothness_in_the_atomic_norm() -> None:
    matrix = ATOMS @ ATOMS.T
    f = Quadratic(matrix)
    assert geometry.atomic_smoothness(f, L1Ball(2.0)) == pytest.approx(4 * matrix.diagonal().max())
    dictionary = Dictionary(RNG.standard_normal((3, 5)), symmetric=True)
    rows = dictionary.dense_rows().numpy()
    curvature = np.einsum("ni,ij,nj->n", rows, matrix, rows).max()
    assert geometry.atomic_smoothness(f, dictionary) == pytest.approx(curvature)
    assert geometry.atomic_smoothness(f, Lazy(dictionary)) == pytest.approx(curvature)
    assert geometry.atomic_smoothness(LeastSquares(ATOMS.T, np.zeros(8)), dictionary) == pytest.approx(curvature)
    assert geometry.atomic_smoothness(Logistic(ATOMS.T, np.ones(8)), dictionary) == pytest.approx(curvature / 4)
    assert geometry.atomic_smoothness(SquaredDistance(np.zeros(3)), dictionary) == pytest.approx(
        np.square(rows).sum(1).max()
    )
    assert geometry.atomic_smoothness(f, L2Ball(2.0)) == pytest.approx(4 * np.linalg.eigvalsh(matrix)[-1])
    assert curvature <= f.smoothness * dictionary.radius**2 + 1e-12  # the lemma
    assert geometry.atomic_smoothness(f, Custom(lambda d: -d)) is None


def test_strong_convexity_in_the_atomic_norm() -> None:
    matrix = ATOMS @ ATOMS.T
    f = Quadratic(matrix)
    dictionary = Dictionary(RNG.standard_normal((3, 5)), symmetric=True)
    sampled = [d @ matrix @ d / geometry.atomic_norm(d, dictionary) ** 2 for d in directions(3, 800)]
    strong = geometry.atomic_strong_convexity(f, dictionary)
    assert strong <= min(sampled) + 1e-12
    assert strong == pytest.approx(min(sampled), rel=0.1)
    assert strong >= geometry.minimal_directional_width(dictionary) ** 2 * f.strong_convexity - 1e-12  # the lemma
    assert geometry.atomic_strong_convexity(f, L1Ball(1.0)) == pytest.approx(
        geometry.atomic_strong_convexity(f, np.hstack([np.eye(3), -np.eye(3)]))
    )
    with pytest.raises(ValueError, match="symmetric"):
        geometry.atomic_strong_convexity(f, np.eye(3))


def test_acceleration_constants() -> None:
    assert geometry.acceleration_constant(np.eye(7)) == pytest.approx(7)
    assert geometry.acceleration_constant(np.eye(7), greedy=False) == pytest.approx(7)
    assert geometry.acceleration_constant(L1Ball(1.0, dim=7)) == 7
    assert geometry.acceleration_constant(L1Ball(1.0), dim=5) == 5
    assert geometry.acceleration_constant(L2Ball(2.0), dim=5) == 20
    # The definitions, by sampling directions, for atoms of unequal norms.
    rows = ATOMS.T * np.exp(RNG.standard_normal((8, 1)))
    inverse = np.linalg.inv(rows.T @ rows / 8)
    energy = np.einsum("ni,ij,nj->n", rows, inverse, rows)
    scores = np.square(directions(3) @ rows.T)
    random = (scores @ energy) / (scores @ (1 / np.square(rows).sum(1)))
    greedy = (scores @ energy / 8) * np.square(rows).sum(1)[scores.argmax(1)] / scores.max(1)
    assert geometry.acceleration_constant(rows.T, greedy=False) == pytest.approx(random.max(), rel=1e-2)
    assert geometry.acceleration_constant(rows.T) >= greedy.max()
    with pytest.raises(ValueError, match="pass nu by hand"):
        geometry.acceleration_constant(Custom(lambda d: -d))


def sampled_cone_width(atoms: np.ndarray) -> float:
    """The definition for a cone in the plane between two unit atoms, by a grid of directions."""
    rows = np.vstack([np.zeros(2), atoms.T])
    best = math.inf
    angles = np.linspace(0, 2 * np.pi, 4001)[:-1]
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    faces = [[0, 1, 2], [0, 1], [0, 2]]
    for face in faces:
        members = rows[face]
        subsets = [[i] for i in range(len(face))] + (
            [[0, 1], [0, 2], [1, 2], [0, 1, 2]] if len(face) == 3 else [[0, 1]]
        )
        for subset in subsets:
            theta = members[subset].mean(0)
            for r in circle if len(face) == 3 else np.array([members[1], -members[1]]) / np.linalg.norm(members[1]):
                moved = theta + 1e-6 * r
                weights, residual = solve_nonnegative(members, moved)
                if residual > 1e-9 or weights.sum() > 1 + 1e-9:
                    continue
                best = min(best, (members @ r).max() - (members[subset] @ r).min())
    return best


def solve_nonnegative(members: np.ndarray, point: np.ndarray) -> tuple[np.ndarray, float]:
    import scipy.optimize

    matrix = np.vstack([members.T, np.ones(len(members))])
    weights, residual = scipy.optimize.nnls(matrix, np.append(point, 1.0))
    return weights, float(residual)


@pytest.mark.parametrize("angle", [0.4, 1.2, 2.0])
def test_cone_width_of_a_wedge_follows_the_definition(angle: float) -> None:
    atoms = np.array([[1.0, math.cos(angle)], [0.0, math.sin(angle)]])
    assert geometry.cone_width(atoms) == pytest.approx(sampled_cone_width(atoms), rel=5e-3)


def test_cone_width_of_spans_is_at_most_the_minimal_directional_width() -> None:
    for dim in (2, 3):
        cross = np.hstack([np.eye(dim), -np.eye(dim)])
        assert geometry.cone_width(cross) == pytest.approx(1 / math.sqrt(dim))  # the lemma's equality
    atoms = Dictionary(ATOMS[:, :3], symmetric=True)
    assert 0 < geometry.cone_width(atoms) <= geometry.minimal_directional_width(atoms) + 1e-9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: geometry.minimal_directional_width(np.random.default_rng(0).standard_normal((12, 30))), "at most 9"),
        (lambda: geometry.cone_width(np.eye(6)), "out of reach"),
        (lambda: geometry.cone_width(L2Ball(1.0)), "finite sets"),
        (lambda: geometry.acceleration_constant(L1Ball(1.0)), "pass dim"),
    ],
)
def test_what_is_out_of_reach_says_so(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_curvature_constant_of_frank_wolfe() -> None:
    """C_f against sampled pairs of the definition, and its bound L diam²."""
    rng = np.random.default_rng(3)
    root = rng.standard_normal((3, 3))
    f = Quadratic(root @ root.T)
    for atoms in (Dictionary(ATOMS), Dictionary(ATOMS, symmetric=True), L1Ball(2.0, dim=3), Simplex(1.0, dim=3)):
        rows = atoms.all_atoms()
        assert rows is not None
        q = rng.dirichlet(np.full(len(rows), 0.1), 4000) @ rows
        s = rows[rng.integers(len(rows), size=4000)]
        sampled = np.einsum("ni,ij,nj->n", s - q, root @ root.T, s - q).max()
        constant = geometry.curvature_constant(f, atoms)
        assert constant is not None
        assert sampled <= constant * (1 + 1e-12)
        assert constant == pytest.approx(sampled, rel=0.1)
        assert constant <= f.smoothness * atoms.diameter**2 * (1 + 1e-12)
    assert geometry.curvature_constant(f, L2Ball(2.0)) == pytest.approx(16 * f.smoothness)
    assert geometry.curvature_constant(f, PSDTrace(1.0)) == pytest.approx(2 * f.smoothness)  # the bound L diam²
    assert geometry.curvature_constant(f, Custom(lambda d: -d)) is None


def test_radius_of_the_level_set() -> None:
    rng = np.random.default_rng(4)
    root, x0 = rng.standard_normal((3, 3)), rng.standard_normal(3)
    f, atoms = Quadratic(root @ root.T, rng.standard_normal(3)), Dictionary(ATOMS, symmetric=True)
    best = np.linalg.solve(root @ root.T, f.b.numpy())
    ellipsoid = np.linalg.solve(root.T, directions(3, 3000).T).T * math.sqrt(2 * (f(x0) - f(best)))
    assert f(best + ellipsoid[0]) == pytest.approx(f(x0))
    sampled = max(geometry.atomic_norm(d, atoms) for d in ellipsoid[:400])
    radius = geometry.level_set_radius(f, atoms, x0)
    assert sampled <= radius * (1 + 1e-9)
    assert radius == pytest.approx(sampled, rel=0.1)
    with pytest.raises(ValueError, match="a level set is known for quadratics"):
        geometry.level_set_radius(lambda x: x.exp().sum(), atoms, x0)
    assert math.isinf(geometry.level_set_radius(Quadratic(np.diag([1.0, 1.0, 0.0]), np.ones(3)), atoms, x0))


def test_constant_of_random_pursuit() -> None:
    rows = ATOMS.T
    moment = rows.T @ rows / len(rows)
    d = directions(3)
    ratios = np.einsum("ni,ij,nj->n", d, moment, d) / np.square(d @ rows.T).max(1)
    constant = geometry.random_pursuit_constant(ATOMS)
    assert constant <= ratios.min()
    assert constant == pytest.approx(ratios.min(), rel=0.02)
    mapped = RNG.standard_normal((3, 3)) @ ATOMS  # uniform sampling is preserved, so the constant is affine invariant
    assert geometry.random_pursuit_constant(mapped) == pytest.approx(constant)
    assert geometry.random_pursuit_constant(L1Ball(3.0, dim=5)) == pytest.approx(1 / 5)
    assert geometry.random_pursuit_constant(L2Ball(3.0), dim=7) == pytest.approx(1 / 7)
    assert geometry.random_pursuit_constant(NuclearBall(2.0, shape=(3, 4))) == pytest.approx(1 / 12)
    with pytest.raises(ValueError, match="pass dim"):
        geometry.random_pursuit_constant(L2Ball())


def facial_distance(rows: np.ndarray) -> float:
    """Φ(𝒜) = min over proper faces F of dist(F, conv(𝒜 without F)), which is the pyramidal width (Peña, Rodríguez)."""
    best = math.inf
    for face in geometry._faces(rows) | {(i,) for i in range(len(rows))}:
        rest = np.setdiff1d(np.arange(len(rows)), face)
        if not len(rest):
            continue
        pairs = (rows[list(face)][:, None] - rows[rest][None]).reshape(-1, rows.shape[1])
        best = min(best, float(np.linalg.norm(geometry._nearest(pairs))))
    return best


def test_pyramidal_width() -> None:
    assert geometry.pyramidal_width(np.eye(4)) == pytest.approx(1.0)  # 2/√n of the simplex for even n
    assert geometry.pyramidal_width(np.eye(3)) == pytest.approx(2 / math.sqrt(3 - 1 / 3))
    cube = np.array(np.meshgrid(*[[-0.5, 0.5]] * 3)).reshape(3, -1)
    assert geometry.pyramidal_width(cube) == pytest.approx(1 / math.sqrt(3))
    polygon = np.random.default_rng(5).standard_normal((2, 6))
    corners = polygon[:, np.unique(scipy.spatial.ConvexHull(polygon.T).vertices)]
    assert geometry.pyramidal_width(corners) == pytest.approx(facial_distance(corners.T))
    cone = np.abs(np.random.default_rng(6).standard_normal((3, 5)))
    with_origin = np.hstack([cone, np.zeros((3, 1))])
    assert geometry.cone_width(cone) >= geometry.pyramidal_width(Dictionary(with_origin)) - 1e-9
    with pytest.raises(ValueError, match="out of reach"):
        geometry.pyramidal_width(np.eye(6))
    with pytest.raises(ValueError, match="a single atom"):
        geometry.pyramidal_width(np.ones((2, 1)))
