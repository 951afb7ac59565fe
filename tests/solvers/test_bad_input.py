"""Bad input ends in one line: what was wrong, what was expected, what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from unknot.solvers import (
    Differentiable,
    LeastSquares,
    Logistic,
    Quadratic,
    SquaredDistance,
    augmented_lagrangian_cgm,
    boost_variational_inference,
    coordinate_descent,
    frank_wolfe,
    matching_pursuit,
    nonnegative_matching_pursuit,
    variance_reduced_frank_wolfe,
)
from unknot.solvers.atoms import (
    Birkhoff,
    Box,
    Custom,
    Dictionary,
    GroupBall,
    Inexact,
    KSparse,
    L1Ball,
    L2Ball,
    Lazy,
    LInfBall,
    NuclearBall,
    Product,
    PSDTrace,
    Simplex,
)
from unknot.solvers.estimators import (
    ConstrainedLogisticRegression,
    NonNegativePursuitRegressor,
    OrthogonalPursuitRegressor,
)

Y = np.array([1.0, 2.0, 3.0])
EYE = np.eye(3)


def root(x: torch.Tensor) -> torch.Tensor:
    return x.sqrt().sum()


CASES: list[tuple[str, Callable[[], Any], str]] = [
    ("empty dictionary", lambda: Dictionary(np.zeros((3, 0))), r"the dictionary is empty \(shape \[3, 0\]\): expected"),
    ("no dimensions", lambda: frank_wolfe(Y, np.zeros((0, 3))), "the dictionary is empty"),
    ("only zero atoms", lambda: Dictionary(np.zeros((3, 2))), "all 2 columns of the dictionary are zero"),
    ("flat dictionary", lambda: frank_wolfe(Y, Y), r"shape \[3\]: expected a matrix \[d, n\]"),
    ("non-finite dictionary", lambda: Dictionary(EYE * np.nan), "the dictionary has non-finite entries"),
    ("words for numbers", lambda: SquaredDistance(np.array(["a"])), "cannot be read as numbers"),
    ("ragged list", lambda: SquaredDistance([[1.0], [1.0, 2.0]]), "cannot be read as numbers"),
    ("non-finite target", lambda: SquaredDistance([1.0, np.inf]), "target has non-finite entries"),
    ("empty target", lambda: SquaredDistance(np.zeros(0)), "at least one entry"),
    ("non-finite gradient", lambda: frank_wolfe(root, Simplex(dim=3)), "the gradient is not finite at iteration 0"),
    (
        "non-finite gradient for an eigensolver",
        lambda: frank_wolfe(lambda x: x.sqrt().sum(), NuclearBall(1.0, shape=(3, 3))),
        "the gradient is not finite at iteration 0",
    ),
    (
        "gradient that becomes non-finite",
        lambda: matching_pursuit(Differentiable(lambda x: -x.log().sum()), EYE, np.zeros(3)),
        "gradient is not finite|is inf at iteration",
    ),
    ("infinite value", lambda: coordinate_descent(lambda x: x.sum() / 0, Y), "not finite|at iteration 0"),
    ("start outside the L1 ball", lambda: frank_wolfe(Y, L1Ball(1.0), Y), "x0 is outside the set: its L1 norm is 6"),
    ("start outside the simplex", lambda: frank_wolfe(Y, Simplex(), Y), "entries sum to 6, expected 1"),
    ("negative start", lambda: frank_wolfe(Y, Simplex(), np.array([2.0, -1, 0])), "smallest entry is -1, expected 0"),
    ("start outside the L2 ball", lambda: frank_wolfe(Y, L2Ball(1.0), Y), "its norm is 3.7"),
    ("start outside a hull", lambda: frank_wolfe(Y, EYE, Y), "away from the hull of the 3 atoms"),
    ("start outside the nuclear ball", lambda: frank_wolfe(EYE, NuclearBall(1.0), EYE), "its nuclear norm is 3"),
    ("start not symmetric", lambda: frank_wolfe(EYE, PSDTrace(1.0), np.triu(np.ones((3, 3)))), "not symmetric"),
    ("start not semi-definite", lambda: frank_wolfe(EYE, PSDTrace(1.0), -EYE), "smallest eigenvalue is -1"),
    ("start of another trace", lambda: frank_wolfe(EYE, PSDTrace(1.0), EYE), "its trace is 3, expected exactly 1"),
    (
        "start that is no atom",
        lambda: frank_wolfe(Y, Custom(lambda d: -np.sign(d)), Y),
        "x0 is outside the set: expected a point of Custom",
    ),
    ("start outside the span", lambda: matching_pursuit(Y, EYE[:, :2], Y), "x0 is outside the span of the atoms"),
    ("start outside the cone", lambda: nonnegative_matching_pursuit(Y, EYE, -Y), "x0 is outside the cone"),
    (
        "shapes of matrix and target",
        lambda: LeastSquares(EYE, np.ones(2)),
        r"target has shape \[2\] but the matrix has 3",
    ),
    ("shapes of samples and labels", lambda: Logistic(EYE, np.ones(2)), r"labels has shape \[2\]"),
    (
        "shapes of objective and atoms",
        lambda: frank_wolfe(np.ones(2), EYE),
        r"shape \[2\] but the atoms of Dict.*\[3\]",
    ),
    (
        "shape of the start",
        lambda: frank_wolfe(Y, L1Ball(), np.ones(2)),
        r"x0 has shape \[2\] but the problem is over \[3\]",
    ),
    ("shape of a direction", lambda: Dictionary(EYE).lmo(np.ones(2)), r"direction has shape \[2\]"),
    (
        "shape of a user's atom",
        lambda: frank_wolfe(Y, lambda d: d[:2]),
        r"atom of shape \[2\].*expected the same shape",
    ),
    ("signals as columns", lambda: matching_pursuit(np.ones((3, 5)), EYE), "signals are rows, so pass its transpose"),
    ("no shape at all", lambda: frank_wolfe(root, L1Ball()), "the shape of x is unknown: give x0"),
    ("matrix where vectors live", lambda: frank_wolfe(Y, NuclearBall()), "the atoms of NuclearBall.* are matrices"),
    ("rectangle where squares live", lambda: frank_wolfe(np.ones((2, 3)), PSDTrace()), "square matrices"),
    ("labels of three classes", lambda: Logistic(EYE, Y), "labels go from .*expected two classes"),
    ("matrix that is not symmetric", lambda: Quadratic(np.triu(np.ones((3, 3)))), "matrix is not symmetric"),
    ("concave quadratic", lambda: matching_pursuit(Quadratic(-EYE), EYE), "negative eigenvalue"),
    ("matrix that is not square", lambda: Quadratic(np.ones((2, 3))), "expected a square matrix"),
    ("unbounded objective", lambda: matching_pursuit(lambda x: x.sum(), EYE, step="line-search"), "no minimum along"),
    ("vector-valued objective", lambda: frank_wolfe(lambda x: x, Simplex(dim=3)), "expected a scalar tensor"),
    ("constant objective", lambda: frank_wolfe(lambda x: torch.ones(()), Simplex(dim=3)), "does not depend on x"),
    ("unknown variant", lambda: frank_wolfe(Y, EYE, variant="pairwize"), "did you mean 'pairwise'"),
    ("unknown step", lambda: frank_wolfe(Y, EYE, step="newton"), "step 'newton' is unknown: expected one of auto"),
    ("step number", lambda: frank_wolfe(Y, EYE, step=4), "a variant from 0 to 3"),
    ("step constant", lambda: frank_wolfe(Y, EYE, step=2.0), r"expected a constant between 0 and 1"),
    ("step function", lambda: frank_wolfe(Y, EYE, step=lambda k: float("nan")), "the step function returned nan"),
    ("schedule for pairwise", lambda: frank_wolfe(Y, EYE, variant="pairwise", step=0), "a fixed schedule belongs to"),
    ("span step for a hull", lambda: frank_wolfe(Y, EYE, step="affine"), "step 'affine' is for spans"),
    ("hull step for a span", lambda: matching_pursuit(Y, EYE, step=0), "is for hulls"),
    ("hull step for a cone", lambda: nonnegative_matching_pursuit(Y, EYE, step="diameter"), "step 'diameter'"),
    ("unknown L", lambda: frank_wolfe(root, Simplex(dim=3), step="short"), "needs the smoothness constant L"),
    ("unknown diameter", lambda: frank_wolfe(Y, Custom(lambda d: -d), step=2), "needs the set's diameter"),
    ("negative L", lambda: frank_wolfe(Y, EYE, smoothness=-1.0), "smoothness is -1.0: expected L > 0"),
    ("negative nu", lambda: matching_pursuit(Y, EYE, variant="accelerated", nu=-1.0), "nu is -1.0"),
    ("negative radius", lambda: L1Ball(-1.0), "radius is -1.0: expected a positive number"),
    ("negative bound", lambda: matching_pursuit(Y, EYE, radius=-1.0), "radius is -1.0"),
    ("negative tol", lambda: frank_wolfe(Y, EYE, tol=-1.0), "tol is -1.0"),
    ("negative iterations", lambda: frank_wolfe(Y, EYE, max_iterations=-1), "max_iterations is -1"),
    ("half an iteration", lambda: frank_wolfe(Y, EYE, max_iterations=0.5), "expected a whole number"),  # type: ignore[arg-type]
    ("negative time", lambda: frank_wolfe(Y, EYE, time_limit=-1.0), "time_limit is -1.0"),
    ("no law to sample from", lambda: matching_pursuit(Y, lambda d: -d, variant="random"), "has no sampling law"),
    (
        "random variant for a batch",
        lambda: matching_pursuit(np.ones((2, 3)), EYE, variant="random"),
        "one problem at a time",
    ),
    ("start for a batch", lambda: matching_pursuit(np.ones((2, 3)), EYE, np.ones((2, 3))), "starts from 0"),
    (
        "fnnomp for other objectives",
        lambda: nonnegative_matching_pursuit(Quadratic(EYE), EYE, variant="fnnomp"),
        "fnnomp",
    ),
    ("product without shapes", lambda: Product(L1Ball(), Simplex(dim=2)), "has no shape: give its dimension"),
    ("product of nothing", lambda: Product(), "at least one set"),
    ("accuracy above one", lambda: Inexact(L1Ball(), multiplicative=1.5), r"an accuracy in \(0, 1\]"),
    ("two kinds of error", lambda: Inexact(L1Ball(), multiplicative=0.5, additive=0.1), "one kind of error"),
    ("no room to cache", lambda: Lazy(L1Ball(), capacity=0), "room for at least one atom"),
    ("atoms that are not atoms", lambda: frank_wolfe(Y, 3), "atoms is a int: expected a set"),
    ("number as objective", lambda: frank_wolfe(3, EYE), "objective is a int: expected one of"),
    ("unknown reduction", lambda: LeastSquares(EYE, Y, reduction="max"), "expected 'sum' or 'mean'"),
    ("mask of another shape", lambda: SquaredDistance(Y, mask=np.ones(2)), "mask has shape"),
    ("vectors for permutations", lambda: frank_wolfe(Y, Birkhoff()), "the atoms of Birkhoff.* are square matrices"),
    ("start that is not doubly stochastic", lambda: frank_wolfe(EYE, Birkhoff(3), 2 * EYE), "x0 is outside the set"),
    ("permutations of nothing", lambda: Birkhoff(0), "n is 0: expected a whole number, 1 or more"),
    ("no function", lambda: Differentiable(5), "function is a int: expected a function of x"),  # type: ignore[arg-type]
    ("no domain", lambda: Differentiable(root, domain=5), "domain is a int: expected a function"),  # type: ignore[arg-type]
    ("no entries", lambda: KSparse(0), "k is 0: expected a whole number, 1 or more"),
    ("half an entry", lambda: KSparse(1.5), "k is 1.5: expected a whole number"),  # type: ignore[arg-type]
    ("more entries than there are", lambda: KSparse(4, dim=3), "k is 4 in 3 dimensions"),
    (
        "more entries than asked for",
        lambda: frank_wolfe(Y, KSparse(4)),
        "asked in 3 dimensions: expected at least 4",
    ),
    ("negative k-sparse radius", lambda: KSparse(2, -1.0), "radius is -1.0: expected a positive number"),
    ("start outside a k-sparse polytope", lambda: frank_wolfe(Y, KSparse(1), Y), "x0 is outside the set"),
    ("negative cube", lambda: LInfBall(-1.0), "radius is -1.0: expected a positive number|lower bound"),
    ("box upside down", lambda: Box(1.0, -1.0), "a lower bound of the box is above its upper bound"),
    ("start outside a box", lambda: frank_wolfe(Y, Box(0.0, 1.0), Y), "x0 is outside the set"),
    ("groups that are words", lambda: GroupBall(["a", "b"]), "groups should be whole numbers"),
    ("groups of another length", lambda: frank_wolfe(Y, GroupBall([0, 1])), "make them agree"),
    ("start outside a group ball", lambda: frank_wolfe(Y, GroupBall([0, 0, 1]), Y), "x0 is outside the set"),
    ("blocks of no product", lambda: frank_wolfe(Y, L1Ball(), variant="block-coordinate"), "works on atoms.Product"),
    ("relative tolerance of one", lambda: frank_wolfe(Y, EYE, rtol=1.0), "rtol is 1.0: expected a number from 0"),
    ("negative tolerance of a batch", lambda: matching_pursuit(np.ones((2, 3)), EYE, rtol=-1.0), "rtol is -1.0"),
    ("rows of no sum", lambda: variance_reduced_frank_wolfe(Quadratic(EYE), L1Ball()), "expected a sum over rows"),
    (
        "more rows than there are",
        lambda: variance_reduced_frank_wolfe(LeastSquares(EYE, Y), L1Ball(), batch_size=4),
        "batch_size is 4: expected from 1 to the 3 rows",
    ),
    ("beta of nothing", lambda: augmented_lagrangian_cgm(Y, L1Ball(), beta0=0.0), "beta0 is 0.0: expected a positive"),
    ("number as constraint", lambda: augmented_lagrangian_cgm(Y, L1Ball(), 3), "a constraint is a int"),  # type: ignore[arg-type]
    (
        "evaluations that never come",
        lambda: augmented_lagrangian_cgm(Y, L1Ball(), evaluate_every=0),
        "evaluate_every is 0: expected at least 1",
    ),
    ("negative ridge", lambda: Logistic(EYE, [0, 1, 1], ridge=-1.0), "ridge is -1.0: expected 0 or more"),
    ("complex target", lambda: SquaredDistance(1j * Y), "target is complex: expected real numbers"),
    (
        "negative polish",
        lambda: boost_variational_inference(lambda x: -x.square().sum(1), dim=1, polish=-1),
        "polish is -1: expected at least 0",
    ),
    (
        "too many coefficients",
        lambda: OrthogonalPursuitRegressor(4).fit(EYE, Y),
        "n_nonzero_coefs is 4: expected from 1",
    ),
    ("unknown variant of a regressor", lambda: NonNegativePursuitRegressor(variant="x").fit(EYE, Y), "variant 'x'"),
    ("one class", lambda: ConstrainedLogisticRegression().fit(EYE, [1, 1, 1]), "y has one class .*two or more"),
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_error_is_one_clear_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("solve", [frank_wolfe, matching_pursuit, nonnegative_matching_pursuit])
def test_too_small_smoothness_warns_once_and_still_descends(solve: Any) -> None:
    matrix = np.diag([1.0, 10.0, 100.0])
    with pytest.warns(UserWarning, match="too small") as caught:
        result = solve(Quadratic(matrix, Y), 3 * EYE, variant="plain", step="short", smoothness=0.5, max_iterations=30)
    assert len(caught) == 1
    assert (np.diff(result.trace.value) <= 1e-12).all()


def test_a_zero_column_is_an_atom_of_a_hull() -> None:
    atoms = Dictionary(np.hstack([EYE, np.zeros((3, 1))]))
    result = frank_wolfe(np.array([0.2, 0.3, -1.0]), atoms, variant="fully-corrective", tol=1e-12)
    np.testing.assert_allclose(result.x, [0.2, 0.3, 0.0], atol=1e-9)
