"""The constants of the analysis, for sets and objectives small or simple enough to have them computed.

L_𝒜, μ_𝒜, C_f and R_𝒜 measure an objective over a set, the minimal directional, cone and pyramidal widths measure a set,
δ̂, ν and ν' couple a set with the sampling of random and accelerated methods.
"""

import itertools
import math
from typing import Any

import numpy as np
import scipy.optimize
import scipy.spatial
import torch

from unknot.solvers.atoms import AtomSet, L1Ball, as_atoms
from unknot.solvers.objectives import Objective, as_objective
from unknot.solvers.structured import as_tensor


def _rows(atoms: AtomSet, what: str) -> np.ndarray:
    """All atoms as rows ``[n, d]``, negatives included, for a finite set of known dimension."""
    rows = atoms.all_atoms()
    if rows is None:
        raise ValueError(f"{what} is computed for finite sets of known dimension: expected a dictionary, not {atoms}.")
    return rows


def atomic_norm(x: Any, atoms: Any) -> float:
    """‖x‖_𝒜 = inf {c > 0 : x ∈ c · conv(𝒜)}, ``inf`` outside the cone of the atoms.

    Section "Affine Invariant Algorithms". For a dictionary it is the linear programme min Σ α_i with Σ α_i z_i = x and
    α ≥ 0, where 0 counts as an atom.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L1Ball
    >>> atomic_norm(np.array([3.0, -4.0]), L1Ball(2.0))
    3.5
    >>> atomic_norm(np.array([1.0, 1.0]), np.eye(2)), atomic_norm(np.array([1.0, -1.0]), np.eye(2))
    (2.0, inf)
    """
    atom_set, tensor = as_atoms(atoms), as_tensor(x, "x").double()
    atom_set.check_shape(tuple(tensor.shape), "x")
    return atom_set.gauge(tensor)


def dual_atomic_norm(direction: Any, atoms: Any) -> float:
    """‖d‖_𝒜* = max_{z ∈ 𝒜} ⟨d, z⟩: one call of the oracle.

    >>> import numpy as np
    >>> from unknot.solvers.atoms import L1Ball
    >>> dual_atomic_norm(np.array([3.0, -4.0]), L1Ball(2.0))
    8.0
    """
    tensor = as_tensor(direction, "direction")
    atom_set = as_atoms(atoms).bind(tensor.dtype, tensor.device, False)
    atom_set.check_shape(tuple(tensor.shape), "direction")
    return atom_set.atom(-tensor).inner(tensor)


def _hull(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """conv(rows) within its affine hull: coordinates of the rows there, outer unit normals and offsets of its facets.

    A point with coordinates u is inside if normals @ u <= offsets. The coordinates are orthonormal, with the first row
    as origin.
    """
    centred = rows - rows[0]
    _, values, right = np.linalg.svd(centred, full_matrices=False)
    rank = int((values > 1e-10 * max(values[0], 1e-300)).sum()) if values[0] > 0 else 0
    points = centred @ right[:rank].T
    if rank == 0:
        return points, np.zeros((0, 0)), np.zeros(0)
    equations = np.unique(np.column_stack(_facets(points)).round(12), axis=0)
    return points, equations[:, :-1], equations[:, -1]


def _facets(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outer unit normals and offsets of the facets of a hull that has an interior."""
    dimension = points.shape[1]
    if dimension == 1:
        return np.array([[1.0], [-1.0]]), np.array([points.max(), -points.min()])
    if dimension > 9:
        raise ValueError(
            f"the atoms span {dimension} dimensions: expected at most 9, as facets grow exponentially with them."
        )
    equations = scipy.spatial.ConvexHull(points).equations
    return equations[:, :-1], -equations[:, -1]


def _span_rows(rows: np.ndarray) -> np.ndarray:
    """The atoms in orthonormal coordinates of their span."""
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    return rows @ right[values > 1e-10 * values[0]].T


def _facets_about_origin(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normals and offsets of conv(rows) in the coordinates of ``_span_rows``, or none if it is flat in there."""
    points = _span_rows(rows)
    if np.linalg.matrix_rank(points - points[0], tol=1e-10 * np.abs(points).max()) < points.shape[1]:
        return np.zeros((0, points.shape[1])), np.zeros(0)
    return _facets(points)


def directional_width(atoms: Any, direction: Any) -> float:
    """dirW(𝒜, r) = max_{s, v ∈ 𝒜} ⟨r/‖r‖, s - v⟩: two calls of the oracle.

    >>> import numpy as np
    >>> directional_width(np.array([[1.0, 0.0, 3.0], [0.0, 1.0, 0.0]]), np.array([2.0, 0.0]))
    3.0
    """
    tensor = as_tensor(direction, "direction").double()
    unit = tensor / torch.linalg.vector_norm(tensor)
    return dual_atomic_norm(unit, atoms) + dual_atomic_norm(-unit, atoms)


def minimal_directional_width(atoms: Any) -> float:
    """mDW = min_{d ∈ lin(𝒜)} max_{z ∈ 𝒜} ⟨d/‖d‖, z⟩: the radius of the ball around 0 within conv(𝒜).

    In closed form for balls, otherwise from the facets of the hull of a finite set in at most 9 dimensions. Negative if
    0 is outside the hull (then it is minus the distance), 0 on its boundary.

    >>> from unknot.solvers.atoms import L1Ball
    >>> minimal_directional_width(L1Ball(1.0, dim=4))
    0.5
    """
    atom_set = as_atoms(atoms)
    known = atom_set.minimal_width()
    if known is not None:
        return known
    rows = _rows(atom_set, "the minimal directional width")
    _, offsets = _facets_about_origin(rows)
    if len(offsets) and offsets.min() >= -1e-12:
        return max(0.0, float(offsets.min()))
    if not len(offsets) and np.linalg.norm(_nearest(rows)) < 1e-9:
        return 0.0
    return -float(np.linalg.norm(_nearest(rows)))


def _nearest(rows: np.ndarray) -> np.ndarray:
    """The point of conv(rows) nearest to 0."""
    from unknot.solvers.corrections import HULL, quadratic_weights

    start = np.zeros(len(rows))
    start[np.square(rows).sum(1).argmin()] = 1.0
    weights: np.ndarray = quadratic_weights(rows @ rows.T, np.zeros(len(rows)), start, HULL)
    return weights @ rows


def atomic_smoothness(objective: Any, atoms: Any) -> float | None:
    """L_𝒜 = sup over ‖z‖_𝒜 = 1 of the curvature of f along z, or an upper bound; None if nothing is known.

    For a quadratic with Hessian H it is max_z ⟨z, Hz⟩ over the atoms: over the L1 ball the largest diagonal entry,
    times radius². For the logistic loss H is bounded by AᵀA/4. Otherwise the bound L · radius(𝒜)² of the lemma.

    >>> import numpy as np
    >>> from unknot.solvers import Quadratic
    >>> from unknot.solvers.atoms import L1Ball
    >>> atomic_smoothness(Quadratic(np.array([[2.0, 1.0], [1.0, 3.0]])), L1Ball(1.0))
    3.0
    """
    return as_atoms(atoms).largest_curvature(as_objective(objective))


def _restricted(f: Objective, basis: np.ndarray) -> np.ndarray:
    """The Hessian of a quadratic in the coordinates of an orthonormal basis ``[r, d]``."""
    whole = f.hessian()
    assert whole is not None
    hessian: np.ndarray = basis @ whole.cpu().double().numpy() @ basis.T
    return hessian


def curvature_constant(objective: Any, atoms: Any) -> float | None:
    """C_f = sup of 2 D(q + γ(s - q), q) / γ² over s ∈ 𝒜, q ∈ conv(𝒜), γ ∈ (0, 1], or an upper bound; None if unknown.

    For a quadratic with Hessian H it is max ⟨s - q, H(s - q)⟩ over pairs of atoms, which is 4 L_𝒜 for a symmetric set.
    Where the Hessian is only bounded, or the set neither symmetric nor finite, it is a bound, such as L · diam(𝒜)².

    >>> from unknot.solvers.atoms import Simplex
    >>> curvature_constant(np.zeros(3), Simplex(1.0, dim=3))
    2.0
    """
    f, atom_set = as_objective(objective), as_atoms(atoms)
    if atom_set.symmetric:
        smoothness = atom_set.largest_curvature(f)
        return None if smoothness is None else 4 * smoothness
    rows, whole = atom_set.all_atoms(), f.hessian()
    if rows is not None and whole is not None:
        products = rows @ whole.cpu().double().numpy() @ rows.T
        squares = products.diagonal()
        return float((squares[:, None] + squares - 2 * products).max())
    known = f.smoothness is not None and atom_set.diameter is not None
    return f.smoothness * atom_set.diameter**2 if known else None  # type: ignore[operator]


def level_set_radius(objective: Any, atoms: Any, x0: Any) -> float:
    """R_𝒜 = max ‖θ - θ*‖_𝒜 over θ ∈ lin(𝒜) with f(θ) ≤ f(x0), of the rates over spans, for a quadratic f.

    The level set is an ellipsoid, on which the atomic norm is at most √(2 (f(x0) - f*) / μ_𝒜), and somewhere equal.

    >>> from unknot.solvers.atoms import L1Ball
    >>> round(level_set_radius(np.zeros(2), L1Ball(1.0, dim=2), np.array([3.0, 4.0])), 6)  # 5 √2
    7.071068
    """
    f, atom_set = as_objective(objective), as_atoms(atoms)
    if not f.quadratic:
        raise ValueError(f"a level set is known for quadratics: expected LeastSquares or Quadratic, not {f}.")
    rows = _rows(atom_set, "the radius of a level set")
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    basis = right[values > 1e-10 * values[0]]
    slope = basis @ as_tensor(f.gradient(x0), "the gradient").cpu().double().numpy()
    convexity = atomic_strong_convexity(f, atom_set)
    if convexity == 0:
        return math.inf if slope.any() else 0.0
    return math.sqrt(float(slope @ np.linalg.solve(_restricted(f, basis), slope)) / convexity)


def random_pursuit_constant(atoms: Any, *, dim: int | None = None) -> float:
    """δ̂² = min_{d ∈ lin(𝒜)} E⟨d, z⟩² / ‖d‖²_𝒜* of random pursuit, with z drawn uniformly as the solvers draw it.

    With P the pseudo-inverse of E[zzᵀ] it is 1 / max_z ‖z‖²_P; 1/n for coordinates and the sphere in n dimensions.

    >>> random_pursuit_constant(np.eye(4))
    0.25
    """
    atom_set = as_atoms(atoms)
    rows = atom_set.all_atoms()
    if rows is None:
        size = dim if dim is not None else math.prod(atom_set.shape or (0,))
        if not size or atom_set.radius is None:
            raise ValueError(f"the dimension of {atom_set} is unknown: pass dim.")
        return atom_set.radius**2 / atom_set.acceleration(False, size)
    squares = np.einsum("ni,ij,nj->n", rows, np.linalg.pinv(rows.T @ rows / len(rows), hermitian=True), rows)
    return float(1 / squares.max())


def atomic_strong_convexity(objective: Any, atoms: Any) -> float:
    """μ_𝒜 = inf over x ≠ y in lin(𝒜) of 2 D(y, x) / ‖y - x‖_𝒜², exactly for a quadratic and a small finite set.

    The atomic norm is max_f ⟨n_f, d⟩ / b_f over the facets (n_f, b_f) of conv(𝒜), so with the Hessian H on the span
    1/μ_𝒜 = max_f n_fᵀ H⁻¹ n_f / b_f². Where facets are too many, the lemma's bound mDW² μ.

    >>> import numpy as np
    >>> from unknot.solvers import Quadratic
    >>> from unknot.solvers.atoms import L1Ball
    >>> round(atomic_strong_convexity(Quadratic(np.diag([1.0, 2.0])), L1Ball(1.0, dim=2)), 6)
    0.666667
    """
    f, atom_set = as_objective(objective), as_atoms(atoms)
    if isinstance(atom_set, L1Ball) and atom_set.shape is None and f.shape is not None and atom_set.symmetric:
        atom_set = L1Ball(atom_set.radius, math.prod(f.shape))
    known = atom_set.all_atoms()
    if known is None or known.shape[1] > 9 or not f.quadratic:
        return max(0.0, minimal_directional_width(atom_set)) ** 2 * f.strong_convexity
    rows = _rows(atom_set, "the strong convexity over atoms")
    normals, offsets = _facets_about_origin(rows)
    if not len(offsets) or offsets.min() <= 1e-12:
        raise ValueError(
            "‖·‖_A is not a norm on the span: expected atoms with 0 in the relative interior of their hull, "
            "so make the set symmetric."
        )
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    hessian = _restricted(f, right[values > 1e-10 * values[0]])
    if np.linalg.eigvalsh(hessian)[0] <= 1e-13 * np.linalg.eigvalsh(hessian)[-1]:
        return 0.0
    spread = np.einsum("fi,ij,fj->f", normals, np.linalg.inv(hessian), normals) / offsets**2
    return float(1.0 / spread.max())


def acceleration_constant(atoms: Any, *, greedy: bool = True, dim: int | None = None) -> float:
    """A safe ν for accelerated matching pursuit, or ν' for accelerated random pursuit (``greedy=False``).

    Atoms are drawn uniformly. With P̃ = E[zzᵀ] and P its pseudo-inverse, ν' is the largest generalised eigenvalue of
    E[‖z‖_P² zzᵀ] against E[zzᵀ / ‖z‖²], exactly. For the greedy method the thesis requires ν at least

        E[(z̃ᵀd)² ‖z̃‖_P²] ‖z(d)‖² / (z(d)ᵀd)²   for every d met;

    since (z(d)ᵀd)² = max_z (zᵀd)² ≥ dᵀP̃d this is at most max ‖z‖² times the largest eigenvalue against P̃, which is
    what is returned. For coordinates both are n. Smaller values are often faster and can diverge.

    >>> import numpy as np
    >>> round(acceleration_constant(np.eye(5)), 6)
    5.0
    """
    atom_set = as_atoms(atoms)
    size = dim if dim is not None else math.prod(atom_set.shape or ())
    constant = atom_set.acceleration(greedy, size)
    if not size or (dim is None and atom_set.shape is None):
        raise ValueError(f"the dimension of {atom_set} is unknown: pass dim.")
    return constant


def cone_width(atoms: Any) -> float:
    """CW(𝒜) of the linear rates over cones (chapter "Convex Cones"), for a finite set in at most 4 dimensions.

        CW = min over generating faces K, θ ∈ K, feasible r of PdirW(K ∩ 𝒜, r, θ),   0 ∈ 𝒜

    For fixed K the pyramidal width is a minimum over sets S ⊂ K ∩ 𝒜 that θ may be made of, of
    max_{a ∈ K ∩ 𝒜, v ∈ S} ⟨r/‖r‖, a - v⟩ over r in the tangent cone of the smallest face of K around S. Its minimum
    over directions is 1/max ‖r‖ over the polytope {r feasible, ⟨r, a - v⟩ ≤ 1}, attained at a vertex.

    Where 0 is inside the hull, CW ≤ mDW. The thesis' lemma says that they are equal, which takes θ = 0 for the worst
    point; with short edges, or atoms inside the hull, the definition as written can be smaller.

    >>> import numpy as np
    >>> round(cone_width(np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])), 6)
    0.707107
    """
    rows = _rows(as_atoms(atoms), "the cone width")
    _few(np.vstack([np.zeros((1, rows.shape[1])), rows]), "the cone width")
    return min(_pyramidal_width(face.T) for face in generating_faces(atoms))


def generating_faces(atoms: Any) -> list[np.ndarray]:
    """g-faces of cone(𝒜): the points of 𝒜 ∪ 0 on every face of the cone, as columns, but for the face {0}.

    >>> [face.shape for face in generating_faces(np.eye(2))]
    [(2, 2), (2, 2), (2, 3)]
    """
    rows = _rows(as_atoms(atoms), "the generating faces")
    rows = np.unique(np.vstack([np.zeros((1, rows.shape[1])), rows]).round(12), axis=0)
    return [rows[list(face)].T for face in sorted(_faces(rows, generating=True), key=lambda face: (len(face), face))]


def pyramidal_width(atoms: Any) -> float:
    """PWidth(𝒜) of the linear rates of Frank-Wolfe, for at most 14 atoms in at most 4 dimensions.

    The definition is that of :func:`cone_width`, over all faces of conv(𝒜) in place of the generating ones.

    >>> round(pyramidal_width(np.array([[-1.0, 1.0, -1.0, 1.0], [-1.0, -1.0, 1.0, 1.0]])), 6)  # side/√d of the cube
    1.414214
    """
    rows = _few(_rows(as_atoms(atoms), "the pyramidal width"), "the pyramidal width")
    if len(rows) < 2:
        raise ValueError("the pyramidal width of a single atom is not defined: expected two or more.")
    return min(_pyramidal_width(rows[list(face)]) for face in _faces(rows))


def _few(rows: np.ndarray, what: str) -> np.ndarray:
    """The distinct rows, unless they are too many for brute force."""
    rows = np.unique(rows.round(12), axis=0)
    dimension = int(np.linalg.matrix_rank(rows))
    if dimension > 4 or len(rows) > 14:
        raise ValueError(
            f"{what} of {len(rows)} atoms, 0 included, in {dimension} dimensions is out of reach: at most 14 in 4."
        )
    return rows


def _faces(rows: np.ndarray, generating: bool = False) -> set[tuple[int, ...]]:
    """Index sets of the atoms on each face of conv(rows), or of cone(rows), whose facets pass through 0."""
    points, normals, offsets = _hull(rows)
    origin = points[np.square(rows).sum(1).argmin()]
    slack = 1e-9 * np.abs(points).max()
    through = [f for f in range(len(offsets)) if not generating or abs(normals[f] @ origin - offsets[f]) < slack]
    on = np.abs(points @ normals.T - offsets) < slack
    faces = set()
    for count in range(min(len(through), points.shape[1]) + 1):
        for chosen in itertools.combinations(through, count):
            members = np.flatnonzero(on[:, list(chosen)].all(1))
            if len(members) > 1:
                faces.add(tuple(int(member) for member in members))
    return faces


def _pyramidal_width(rows: np.ndarray) -> float:
    """min over θ ∈ K = conv(rows) and feasible r of PdirW(rows, r, θ), for the full K alone."""
    points, normals, offsets = _hull(rows)
    slack = 1e-9 * np.abs(points).max()
    on = np.abs(points @ normals.T - offsets) < slack
    best = math.inf
    for count in range(1, points.shape[1] + 2):
        for members in itertools.combinations(range(len(points)), count):
            tangent = normals[on[list(members)].all(0)]
            best = min(best, _narrowest(points, points[list(members)], tangent))
    return best


def _narrowest(points: np.ndarray, members: np.ndarray, tangent: np.ndarray) -> float:
    """min of max_{a, v} ⟨r/‖r‖, a - v⟩ over r with tangent @ r <= 0, ``inf`` if there is no such r."""
    differences = (points[None] - members[:, None]).reshape(-1, points.shape[1])
    differences = np.unique(differences[np.square(differences).sum(1) > 0].round(12), axis=0)
    lefts = np.vstack([differences, tangent])
    rights = np.concatenate([np.ones(len(differences)), np.zeros(len(tangent))])
    if points.shape[1] == 1:
        ends = [sign for sign in (1.0, -1.0) if (tangent * sign <= 1e-12).all()]
        return min((float((differences * sign).max()) for sign in ends), default=math.inf)
    inside = _interior_point(lefts, rights)
    if inside is None:
        return math.inf
    corners = scipy.spatial.HalfspaceIntersection(np.hstack([lefts, -rights[:, None]]), inside).intersections
    longest = float(np.linalg.norm(corners, axis=1).max())
    return 1.0 / longest if longest > 0 else math.inf


def _interior_point(lefts: np.ndarray, rights: np.ndarray) -> np.ndarray | None:
    """The centre of the largest ball in {r : lefts @ r <= rights}, or None if it is flat."""
    norms = np.linalg.norm(lefts, axis=1)
    cost = np.zeros(lefts.shape[1] + 1)
    cost[-1] = -1.0
    solved = scipy.optimize.linprog(
        cost, A_ub=np.hstack([lefts, norms[:, None]]), b_ub=rights, bounds=[(None, None)] * lefts.shape[1] + [(0, 1)]
    )
    return solved.x[:-1] if solved.status == 0 and solved.x[-1] > 1e-9 else None
