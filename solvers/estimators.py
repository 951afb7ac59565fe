"""Solvers as scikit-learn estimators: sparse, non-negative and norm-constrained linear models, clusters, completion.

:class:`SDPKMeans` is section "Stochastic k-means Clustering" of the thesis,

    minimise  ⟨D, X⟩   over X ⪰ 0, tr X = k   subject to   X1 = 1,  X ≥ 0

with the squared distances D of n points. X = Σ_clusters 1_c 1_cᵀ/|c| of a partition has ⟨D, X⟩ = twice its k-means
cost, so half the optimum is a lower bound on the cost of every partition. :class:`MatrixCompletion` is section
"Stochastic Matrix Completion",

    minimise  Σ_observed (X_ij - Y_ij)²   over ‖X‖_* ≤ β_1   subject to   lower ≤ X ≤ upper
"""

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, RegressorMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from unknot.solvers.atoms import AtomSet, GroupBall, KSparse, L1Ball, L2Ball, NuclearBall, PSDTrace, Simplex
from unknot.solvers.atoms.base import positive
from unknot.solvers.cone import nonnegative_matching_pursuit
from unknot.solvers.frank_wolfe import frank_wolfe
from unknot.solvers.homotopy import (
    Homotopy,
    Iterate,
    LowRankIterate,
    SampledEntries,
    Schedule,
    StochasticObjective,
    augmented_lagrangian_cgm,
    homotopy_cgm,
    stochastic_homotopy_cgm,
)
from unknot.solvers.objectives import Differentiable, LeastSquares, LinearMap, Logistic
from unknot.solvers.pursuit import matching_pursuit
from unknot.solvers.result import Result, Run
from unknot.solvers.structured import as_tensor, choose, is_sparse
from unknot.solvers.terms import Box as Bounds
from unknot.solvers.terms import NonNegative, Sums, Term


class _LinearModel(BaseEstimator):
    """Base of the linear models: reading dense or sparse samples with weights, and warnings."""

    def _read(self, X: Any, y: Any, sample_weight: Any, **checks: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, **checks)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():  # earlier versions of scikit-learn let them pass
            raise ValueError("Sample weights are all zero; expected at least one non-zero weight.")
        return X, np.asarray(y), weights

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores: np.ndarray = X @ self.coef_.T + self.intercept_  # type: ignore[attr-defined]
        return scores

    def _solve(self, solver: Any, objective: Any, atoms: Any, start: Any, tol: float) -> Result:
        """Run a solver with the options of the model, keep its result, and warn if it ended early."""
        options: Any = vars(self)
        self.result_: Any = solver(
            objective,
            atoms,
            start,
            variant=options["variant"],
            tol=tol,
            max_iterations=options["max_iter"],
            time_limit=options["max_time"],
            progress=options["verbose"],
        )
        self.n_iter_ = self.result_.iterations
        if not self.result_.converged:
            warnings.warn(
                f"the solver ended early, {self.result_}: raise max_iter or max_time, or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        result: Result = self.result_
        return result

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class _LinearRegressor(RegressorMixin, _LinearModel):
    """Base of the two regressors: centring, and a prediction from coefficients."""

    fit_intercept: bool

    def _centre(self, X: Any, y: Any, sample_weight: Any, many: bool) -> tuple[Any, np.ndarray, np.ndarray, Any]:
        """√w (X - offset), as an operator where X is sparse, and √w (y - level)."""
        X, y, weights = self._read(X, y, sample_weight, y_numeric=True, multi_output=many)
        y = y.astype(np.float64)
        total, root = weights.sum(), np.sqrt(weights)
        offset = np.asarray(weights @ X).ravel() / total if self.fit_intercept else np.zeros(X.shape[1])
        level = weights @ y / total if self.fit_intercept else np.zeros(y.shape[1:])
        targets = (root * (y - level).T).T
        if not is_sparse(X):
            return root[:, None] * (X - offset), targets, offset, level
        scaled = aslinearoperator(scipy.sparse.diags_array(root) @ X)
        return scaled - aslinearoperator(root[:, None]) @ aslinearoperator(offset[None]), targets, offset, level

    def _finish(self, coefficients: np.ndarray, offset: np.ndarray, level: Any) -> None:
        self.coef_ = coefficients
        self.intercept_ = level - coefficients @ offset
        if np.ndim(self.intercept_) == 0:
            self.intercept_ = float(self.intercept_)

    def predict(self, X: Any) -> np.ndarray:
        """X · coef_ᵀ + intercept_."""
        return self._scores(X)


@dataclass(eq=False, repr=False)
class OrthogonalPursuitRegressor(_LinearRegressor):
    r"""A linear model of few nonzero coefficients, by orthogonal matching pursuit; many targets are one batch.

    .. math:: \min_w\; \frac{1}{2}\,\|X w - y\|^2\ \text{ with }\ \|w\|_0 \leq k\text{, greedily}

    Thesis: section "Matching Pursuit and Coordinate Descent".

    Args:
        n_nonzero_coefs: features at most; None for a tenth of them, at least one.
        tol: stop once the squared residual is at most this share of the squared (centred) targets; 0 for never.
        fit_intercept: whether to centre features and target.
        return_path: keep the coefficients after every step in ``coef_path_``.
        max_time: seconds, None for none.
        verbose: show a progress bar.

    Attributes:
        coef_: ``[n]`` or ``[targets, n]``; ``intercept_``, ``n_iter_`` and the solver's ``result_``, a list of them for
            several targets of a sparse X.
        coef_path_: ``[n, steps]`` or ``[targets, n, steps]``, the last column of which is ``coef_``.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((50, 20))
    >>> OrthogonalPursuitRegressor(2).fit(X, X[:, 3] - 2 * X[:, 7] + 1).coef_.nonzero()[0]
    array([3, 7])
    """

    n_nonzero_coefs: int | None = None
    _: KW_ONLY
    tol: float = 1e-12
    fit_intercept: bool = True
    return_path: bool = False
    max_time: float | None = None
    verbose: bool = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "OrthogonalPursuitRegressor":
        """Fit to samples X ``[m, n]``, dense or sparse, and targets y ``[m]`` or ``[m, targets]``."""
        centred, targets, offset, level = self._centre(X, y, sample_weight, many=True)
        count, features = self.n_nonzero_coefs, centred.shape[1]
        if count is not None and (count < 1 or count > features):
            raise ValueError(f"n_nonzero_coefs is {count}: expected from 1 to the {features} features.")
        limit = max(1, features // 10) if count is None else int(count)
        tol = self.tol * _half_square(targets)
        options: dict[str, Any] = {"variant": "orthogonal", "tol": tol, "time_limit": self.max_time}
        options["progress"] = self.verbose
        coefficients = np.zeros((*targets.T.shape[:-1], features))
        results = []
        if not isinstance(centred, np.ndarray):
            for target, row in zip(np.atleast_2d(targets.T), np.atleast_2d(coefficients), strict=True):
                f = LeastSquares(centred, np.ascontiguousarray(target))
                results.append(matching_pursuit(f, L1Ball(1.0, features), max_iterations=limit, **options))
                row[:] = results[-1].x
        elif len(kept := _nonzero_columns(centred)):
            steps = min(limit, len(kept))
            signals = np.ascontiguousarray(targets.T)
            results.append(matching_pursuit(signals, centred[:, kept], max_iterations=steps, **options))
            coefficients[..., kept] = results[0].coefficients
        self.n_iter_ = max((result.iterations for result in results), default=0)
        if results:
            self.result_ = results[0] if len(results) == 1 else results
        residuals = targets.T - (centred @ coefficients.T).T
        used = (coefficients != 0).sum(-1)
        if ((used < limit) & (np.square(residuals).sum(-1) / 2 > max(tol, 1e-24 * np.square(targets).sum()))).any():
            warnings.warn(
                f"orthogonal pursuit ended with {int(used.min())} of {limit} features: the others are linearly "
                "dependent on those chosen or max_time is over, and the requested precision is not met.",
                ConvergenceWarning,
                stacklevel=2,
            )
        if self.return_path:
            paths = [
                _pursuit_path(centred, target, row)
                for target, row in zip(np.atleast_2d(targets.T), np.atleast_2d(coefficients), strict=True)
            ]
            steps = max(path.shape[1] for path in paths)
            self.coef_path_ = np.stack([np.pad(path, ((0, 0), (0, steps - path.shape[1])), "edge") for path in paths])
            self.coef_path_ = self.coef_path_.reshape(*coefficients.shape, steps)
        self._finish(coefficients, offset, level)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # a tenth of the features is few where there are ten
        return tags


def _nonzero_columns(matrix: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.linalg.norm(matrix, axis=0) > 1e-12 * np.abs(matrix).max())


def _half_square(targets: np.ndarray) -> float:
    """½ Σ y², the unit of the tolerances; 1 where there is nothing to fit."""
    return float(np.square(targets).sum()) / 2 or 1.0


def _pursuit_path(matrix: Any, target: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Coefficients ``[n, steps]`` after every step of an orthogonal pursuit that ended with these.

    Every atom that was chosen was the best of all, so choosing among those of the end alone repeats the run.
    """
    support = np.flatnonzero(coefficients)
    columns = matrix @ np.eye(len(coefficients))[:, support]
    path, residual = np.zeros((len(coefficients), max(1, len(support)))), target
    chosen: list[int] = []
    for step in range(len(support)):
        scores = np.abs(columns.T @ residual)
        scores[chosen] = -1.0
        chosen.append(int(scores.argmax()))
        weights = np.linalg.lstsq(columns[:, chosen], target, rcond=None)[0]
        path[support[chosen], step] = weights
        residual = target - columns[:, chosen] @ weights
    return path


@dataclass(eq=False, repr=False)
class NonNegativePursuitRegressor(_LinearRegressor):
    r"""A linear model of non-negative coefficients, by non-negative matching pursuit with a certificate.

    .. math:: \min_{w \geq 0}\; \frac{1}{2}\,\|X w - y\|^2

    Thesis: Eq. "eqn:NNMPtemplate", chapter "Convex Cones".

    Args:
        tol: duality gap at which to stop, as a share of half the squared (centred) targets.
        max_iter: iterations.
        variant: of :func:`nonnegative_matching_pursuit`.
        fit_intercept: whether to centre features and target.
        warm_start: begin from the coefficients of the last fit.
        max_time: seconds, None for none.
        verbose: show a progress bar.

    Attributes:
        coef_: ``[n]``; ``intercept_``, ``n_iter_`` and the solver's ``result_``.

    >>> import numpy as np
    >>> X = np.abs(np.random.default_rng(0).standard_normal((50, 4)))
    >>> NonNegativePursuitRegressor().fit(X, X @ [1.0, 0.0, 2.0, 0.0]).coef_.round(6) + 0.0
    array([1., 0., 2., 0.])
    """

    @property
    def expected_failed_checks(self) -> dict[str, str]:
        """Checks of ``check_estimator`` that do not apply, and why."""
        if self.variant == "fully-corrective":
            return {}
        reason = "with more features than samples the minimiser is not unique, and first-order steps find another one"
        return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}

    _: KW_ONLY
    tol: float = 1e-8
    max_iter: int = 1000
    variant: str = "fully-corrective"
    fit_intercept: bool = True
    warm_start: bool = False
    max_time: float | None = None
    verbose: bool = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "NonNegativePursuitRegressor":
        """Fit to samples X ``[m, n]``, dense or sparse, and targets y ``[m]``."""
        centred, target, offset, level = self._centre(X, y, sample_weight, many=False)
        coefficients = np.zeros(centred.shape[1])
        last: np.ndarray = getattr(self, "coef_", np.zeros(0))
        start = last if self.warm_start and last.shape == coefficients.shape else None
        problem: Any = None
        if not isinstance(centred, np.ndarray):
            kept = np.arange(len(coefficients))
            problem = LeastSquares(centred, target), Simplex(1.0, len(coefficients))
        elif len(kept := _nonzero_columns(centred)):
            problem = target, centred[:, kept]
            start = None if start is None else centred[:, kept] @ start[kept]
        self.n_iter_ = 0
        if problem is not None:
            f, atoms = problem
            result = self._solve(nonnegative_matching_pursuit, f, atoms, start, self.tol * _half_square(target))
            coefficients[kept] = result.coefficients
        self._finish(coefficients, offset, level)
        return self


@dataclass(eq=False, repr=False)
class ConstrainedLogisticRegression(ClassifierMixin, _LinearModel):
    r"""Logistic regression over a ball, by Frank-Wolfe: the constraint is the regularisation.

    .. math::
        \min_{w\in\mathcal{B},\, b}\; \frac{1}{N}\sum_i \log\left(1 + \exp(-y_i(\langle x_i, w\rangle + b))\right) +
        \frac{\rho}{2}\,\|w\|^2

    Two classes have one vector of coefficients; more have one each, and the constraint is on all of them together.

    Args:
        radius: of the ball.
        constraint: "l1" (sparse), "l2", "k-sparse" (with ``k``) or "group" (with ``groups``).
        k: nonzero coefficients of every vertex of the k-sparse polytope.
        groups: the group of every feature ``[n]``, whose coefficients of all classes are one group.
        ridge: weight of ½‖w‖² besides.
        variant: of :func:`frank_wolfe`.
        tol: duality gap of the mean loss at which to stop.
        max_iter: iterations.
        warm_start: begin from the last fit.
        max_time: seconds, None for none.
        verbose: show a progress bar.

    Attributes:
        coef_: ``[1, n]`` or ``[classes, n]``; ``intercept_`` ``[1]`` or ``[classes]``, ``classes_``, ``n_iter_``, and
            the solver's ``result_``.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> model = ConstrainedLogisticRegression(3.0).fit(X, X[:, 2] > 0)
    >>> int(np.abs(model.coef_[0]).argmax()), bool(model.score(X, X[:, 2] > 0) > 0.95)
    (2, True)
    """

    radius: float = 10.0
    _: KW_ONLY
    constraint: str = "l1"
    k: int = 1
    groups: Any = None
    ridge: float = 0.0
    variant: str = "pairwise"
    tol: float = 1e-4
    max_iter: int = 1000
    warm_start: bool = False
    max_time: float | None = None
    verbose: bool = False

    def _atoms(self, features: int, rows: int) -> AtomSet:
        kind = choose(self.constraint, ("l1", "l2", "k-sparse", "group"), "constraint")
        if kind == "l1":
            return L1Ball(self.radius, features * rows)
        if kind == "l2":
            return L2Ball(self.radius, features * rows)
        if kind == "k-sparse":
            return KSparse(self.k, self.radius, features * rows)
        if self.groups is None or len(self.groups) != features:
            raise ValueError(f"groups should name the group of each of the {features} features.")
        return GroupBall(np.tile(self.groups, rows), self.radius)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ConstrainedLogisticRegression":
        """Fit to samples X ``[m, n]``, dense or sparse, of classes y ``[m]``; the intercepts are free."""
        X, y, weights = self._read(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        shares = np.bincount(labels, weights) / weights.sum()
        if len(self.classes_) < 2 or (shares > 0).sum() < 2:
            raise ValueError("y has one class (with weight): expected two or more classes.")
        rows, features = 1 if len(self.classes_) == 2 else len(self.classes_), X.shape[1]
        middle = np.asarray(weights @ X).ravel() / weights.sum()
        last: np.ndarray = getattr(self, "coef_", np.zeros((0, 0)))
        start = last.ravel() if self.warm_start and last.shape == (rows, features) else np.zeros(rows * features)
        f = _Softmax(X, middle, labels, weights, self.ridge)
        result = self._solve(frank_wolfe, f, self._atoms(features, rows), start, self.tol)
        self.coef_ = np.asarray(result.x).reshape(rows, features)
        f.value(result.x)  # the best intercept of the last iterate
        self.intercept_ = f.level.numpy() - self.coef_ @ middle
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """⟨w, x⟩ + b for every sample ``[m]``, positive for the second of two classes; of more, ``[m, classes]``."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of all classes ``[m, classes]``."""
        scores = self._scores(X)
        probabilities: np.ndarray = softmax(np.hstack([0 * scores, scores]) if scores.shape[1] == 1 else scores, axis=1)
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class."""
        best = self.predict_proba(X).argmax(1)
        labels: np.ndarray = self.classes_[best]
        return labels


class _Softmax(Logistic):
    """Weighted mean cross entropy of scores W(x - middle) + b with the best b; W ``[rows, n]``, one row for 2 classes.

    The minimum over b is convex in W, and its gradient is that of the loss at the best b.
    """

    def __init__(self, X: Any, middle: np.ndarray, labels: np.ndarray, weights: np.ndarray, ridge: float) -> None:
        count, self.rows = int(labels.max()) + 1, 1 if labels.max() < 2 else int(labels.max()) + 1
        m, n = X.shape
        self.truth = torch.from_numpy(np.eye(count)[labels][:, -self.rows :])
        self.weights, self.level = (
            torch.from_numpy(weights / weights.sum()),
            torch.zeros(self.rows, dtype=torch.float64),
        )

        def apply(x: np.ndarray) -> np.ndarray:
            matrix = x.reshape(self.rows, n)
            scores: np.ndarray = (X @ matrix.T - matrix @ middle).ravel()
            return scores

        def adjoint(r: np.ndarray) -> np.ndarray:
            errors = r.reshape(m, self.rows)
            slopes: np.ndarray = (np.asarray(X.T @ errors).T - errors.sum(0)[:, None] * middle).ravel()
            return slopes

        shape = (m * self.rows, n * self.rows)
        plain = self.rows == 1 and not is_sparse(X)
        self.map = LinearMap(X - middle if plain else LinearOperator(shape, apply, adjoint, dtype=np.float64))
        root = np.sqrt(self.weights.numpy())
        scaled = scipy.sparse.diags_array(root) @ X if is_sparse(X) else root[:, None] * (X - middle)
        weighted = LinearMap(scaled)
        self._smoothness = weighted.largest_eigenvalue / (4 if self.rows == 1 else 2) + ridge
        self._frobenius = weighted.frobenius
        self.factor, self.ridge, self.numpy, self.shape = 1.0, float(ridge), True, (n * self.rows,)

    @property
    def smoothness(self) -> float:
        return self._smoothness

    def _loss(self, scores: Tensor) -> Tensor:
        if self.rows == 1:
            return self.weights @ (torch.nn.functional.softplus(scores) - self.truth * scores)[:, 0]
        return self.weights @ (torch.logsumexp(scores, 1) - (self.truth * scores).sum(1))

    def _shifted(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Scores with the best b, found by Newton's method from the last one, and their probabilities."""
        plain = scores.view(-1, self.rows)
        for _ in range(50):
            shifted = plain + self.level
            likely = torch.sigmoid(shifted) if self.rows == 1 else torch.softmax(shifted, 1)
            slope = self.weights @ (likely - self.truth)
            if float(slope.abs().max()) < 1e-13:
                break
            weighted = self.weights[:, None] * likely
            curvature = torch.diag(weighted.sum(0)) - weighted.t() @ likely
            step = torch.linalg.solve(curvature + 1e-14 * torch.eye(self.rows), slope).clamp(-5.0, 5.0)
            if float(step.abs().max()) > 0.1:  # below, Newton's step does not overshoot
                before = float(self._loss(shifted))
                while float(self._loss(shifted - step)) > before and float(step.abs().max()) > 1e-14:
                    step = step / 2
            self.level = self.level - (step - step.mean() if self.rows > 1 else step)
        return plain + self.level, likely

    def size(self, scores: Tensor) -> float:
        squares = scores.view(-1, self.rows).square().sum(1)
        return self._frobenius * (1 + math.sqrt(float(self.weights @ squares)))

    def loss(self, scores: Tensor) -> float:
        return float(self._loss(self._shifted(scores)[0]))

    def row_derivatives(self, scores: Tensor, rows: Tensor | None = None) -> Tensor:
        return (self.weights[:, None] * (self._shifted(scores)[1] - self.truth)).view(-1)


METHODS = ("augmented", "deterministic", "stochastic")


class SampledDistances(StochasticObjective):
    """f(X) = ⟨D, X⟩, its gradient from the distances among ``batch_size`` of the n points, drawn without repetition.

    Only that block of D is ever computed.

    Args:
        points: ``[n, d]``, whose squared distances make D; or D itself with ``precomputed``.
        batch_size: points in each draw.
        precomputed: whether ``points`` is D.
        unbiased: scale the block by n(n-1)/(s(s-1)), which makes E ∇f = D; the thesis' code scales it by n/s, which
            makes D smaller by about s/n.

    >>> import numpy as np
    >>> f = SampledDistances(np.array([[0.0], [1.0], [3.0]]), batch_size=2)
    >>> f.distances()
    tensor([[0., 1., 9.],
            [1., 0., 4.],
            [9., 4., 0.]], dtype=torch.float64)
    """

    def __init__(self, points: Any, batch_size: int = 100, *, precomputed: bool = False, unbiased: bool = True) -> None:
        self.points = as_tensor(np.asarray(points, dtype=np.float64), "points")
        self.precomputed = precomputed
        count = len(self.points)
        self.batch_size = min(batch_size, count)
        size = self.batch_size
        if size < 2 <= count:
            raise ValueError(f"batch_size is {batch_size}: expected at least 2, as distances are between two points.")
        self.factor = count * (count - 1) / (size * max(1, size - 1)) if unbiased else count / size
        self.shape = (count, count)
        self.numpy = True
        self.smoothness = 0.0

    def distances(self, chosen: Tensor | None = None) -> Tensor:
        """Squared distances among some points, or all."""
        points = self.points if chosen is None else self.points[chosen]
        if self.precomputed:
            return points if chosen is None else points[:, chosen]
        squares = points.square().sum(1)
        return (squares[:, None] + squares[None] - 2 * points @ points.t()).clamp_min_(0).fill_diagonal_(0)

    def average(self, d: Tensor, x: Iterate, rho: float, generator: torch.Generator) -> Tensor:
        chosen = torch.randperm(len(self.points), generator=generator)[: self.batch_size]
        d.mul_(1 - rho)
        d[chosen[:, None], chosen] += rho * self.factor * self.distances(chosen)
        return d

    def value(self, x: Iterate) -> float:
        return float((self.distances() * x.dense()).sum())


def kmeans_constraints() -> list[Term]:
    """X1 = 1, 1ᵀX = 1ᵀ and X ≥ 0; the first two say the same of a symmetric X, as in the thesis' code.

    >>> kmeans_constraints()
    [row sums = 1, column sums = 1, 0 <= x <= inf]
    """
    return [Sums(1.0, axis=1), Sums(1.0, axis=0), NonNegative()]


def kmeans_sdp(
    points: Any,
    n_clusters: int,
    *,
    method: str = "stochastic",
    batch_size: int = 100,
    precomputed: bool = False,
    unbiased: bool = True,
    beta0: float = 1.0,
    oracle_tol: float = 1e-6,
    **options: Any,
) -> Result:
    """Solve the relaxation of k-means by one of three methods.

    "augmented" is :func:`augmented_lagrangian_cgm`, the one to use; "deterministic" is :func:`homotopy_cgm` and
    "stochastic" :func:`stochastic_homotopy_cgm`, as the thesis has them. ``beta0`` of the latter two is in the thesis'
    units, whose row sums are not divided by their norm √n: the solver gets beta0 / n, and "augmented" 50 beta0 / n.

    Args:
        points: ``[n, d]``, or the distances ``[n, n]`` with ``precomputed``.
        n_clusters: k.
        method: one of the three above.
        options: of the solver.

    >>> import numpy as np
    >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> result = kmeans_sdp(points, 2, method="deterministic", beta0=0.1, max_iterations=2000)
    >>> result.x[0].round(1) + 0.0, result.x[3].round(1) + 0.0
    (array([0.5, 0.5, 0. , 0. ]), array([0. , 0. , 0.5, 0.5]))
    """
    kind = choose(method, METHODS, "method")
    sampled = SampledDistances(points, batch_size, precomputed=precomputed, unbiased=unbiased)
    count = sampled.points.shape[0]
    atoms = PSDTrace(float(n_clusters), dim=count, tol=oracle_tol)
    options["beta0"] = beta0 * (50 / count if kind == "augmented" else 1 / count)
    if kind == "stochastic":
        return stochastic_homotopy_cgm(sampled, atoms, kmeans_constraints(), **options)
    distances = sampled.distances()
    linear = Differentiable(
        lambda x: (distances * x).sum(), gradient=lambda x: distances, smoothness=0.0, shape=(count, count)
    )
    if kind == "augmented":  # one price for X1 = 1 is enough, as X is symmetric
        terms = [Sums(1.0, axis=1), NonNegative()]
        return augmented_lagrangian_cgm(linear, atoms, terms, np.zeros((count, count)), **options)
    return homotopy_cgm(linear, atoms, kmeans_constraints(), np.zeros((count, count)), **options)


def _dense(X: Any) -> np.ndarray:
    array: np.ndarray = X.toarray() if is_sparse(X) else X
    return array


@dataclass(eq=False, repr=False)
class SDPKMeans(ClusterMixin, BaseEstimator):
    r"""k-means by its semidefinite relaxation, rounded to a partition.

    .. math::
        \min_{X \succeq 0,\; \mathrm{tr} X = k}\; \langle D, X\rangle \quad\text{subject to}\quad X 1 = 1,\ X \geq 0

    Thesis: Eq. "eqn:clustering", section "Practical Motivation".

    The relaxation does not depend on a start, and half its optimum bounds the cost of any partition from below. It is
    rounded as by Mixon, Villar and Ward: every point is moved to its weighted mean X·points, and those are clustered.

    Args:
        n_clusters: k.
        method: "augmented" (all of D, with dual variables), "deterministic" (without) or "stochastic" (mini-batches).
        batch_size: points in a mini-batch.
        beta0: β_0 for distances divided by their mean; None for 1, or in the thesis' units of the other two methods 10.
        max_iter: iterations.
        metric: "euclidean" (squared), or "precomputed" for a matrix of distances.
        unbiased: see :class:`SampledDistances`.
        oracle_tol: relative accuracy of the eigenvector.
        n_init: starts of the k-means that rounds.
        polish: whether Lloyd's iterations on the points follow the rounding.
        time_limit: seconds, None for none.
        random_state: seed of mini-batches and rounding.
        verbose: show a progress bar.

    Attributes:
        labels_: ``[n]``; ``rounded_labels_`` before polishing.
        cluster_centers_: means of the clusters (not for precomputed distances); ``inertia_`` their k-means cost.
        relaxation_: X ``[n, n]``; ``objective_`` ⟨D, X⟩ and ``feasibility_`` its distance from the constraints.
        result_: the solver's :class:`Result`, whose values are of distances divided by their mean.

    >>> import numpy as np
    >>> points = np.array([[0.0, 0.0], [0.2, 0.0], [5.0, 5.0], [5.0, 5.2], [5.2, 5.0]])
    >>> SDPKMeans(2, max_iter=500, random_state=0).fit_predict(points).tolist() in ([0, 0, 1, 1, 1], [1, 1, 0, 0, 0])
    True
    """

    n_clusters: int = 8
    _: KW_ONLY
    method: str = "augmented"
    batch_size: int = 100
    beta0: float | None = None
    max_iter: int = 1000
    metric: str = "euclidean"
    unbiased: bool = True
    oracle_tol: float = 1e-4
    n_init: int = 10
    polish: bool = True
    time_limit: float | None = None
    random_state: Any = None
    verbose: bool = False

    def fit(self, X: Any, y: Any = None) -> "SDPKMeans":
        """Cluster points X ``[n, d]``, dense or sparse, or distances ``[n, n]``."""
        metric = choose(self.metric, ("euclidean", "precomputed"), "metric")
        X = _dense(validate_data(self, X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=1))
        count = len(X)
        if not 1 <= self.n_clusters <= count:
            raise ValueError(f"n_samples={count} should be >= n_clusters={self.n_clusters}, which should be >= 1.")
        if metric == "precomputed" and (X.shape[0] != X.shape[1] or not np.allclose(X, X.T) or X.min() < 0):
            raise ValueError("precomputed distances should be a symmetric matrix [n, n] without negative entries.")
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        whole = SampledDistances(X, 2, precomputed=metric == "precomputed").distances().numpy()
        mean = float(whole.mean()) or 1.0
        if count == 1:
            self.relaxation_, self.labels_ = np.ones((1, 1)), np.zeros(1, dtype=np.int32)
            self.objective_ = self.feasibility_ = 0.0
            self.n_iter_, self.result_ = 1, None
        else:
            options = {"seed": seed} if choose(self.method, METHODS, "method") == "stochastic" else {}
            usual = 1.0 if self.method == "augmented" else 10.0
            self.result_ = kmeans_sdp(
                X / mean if metric == "precomputed" else X / math.sqrt(mean),
                self.n_clusters,
                method=self.method,
                batch_size=max(2, self.batch_size),
                precomputed=metric == "precomputed",
                unbiased=self.unbiased,
                beta0=usual if self.beta0 is None else self.beta0,
                oracle_tol=self.oracle_tol,
                max_iterations=self.max_iter,
                time_limit=self.time_limit,
                progress=self.verbose,
                evaluate_every=max(1, self.max_iter // 50),
                **options,
            )
            self.relaxation_ = (self.result_.x + self.result_.x.T) / 2
            self.objective_ = float((whole * self.relaxation_).sum())
            self.feasibility_, self.n_iter_ = float(self.result_.feasibility or 0.0), self.result_.iterations
            self.labels_ = self._round(X if metric == "euclidean" else None, random)
        self.rounded_labels_ = self.labels_
        if metric == "euclidean":
            self.cluster_centers_ = np.stack([self._centre(X, label) for label in range(self.n_clusters)])
            if self.polish:
                lloyd = KMeans(self.n_clusters, init=self.cluster_centers_, n_init=1)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.labels_ = lloyd.fit_predict(X)
                self.cluster_centers_ = np.stack([self._centre(X, label) for label in range(self.n_clusters)])
        members = np.eye(self.n_clusters)[self.labels_]
        sizes = np.maximum(members.sum(0), 1)
        self.inertia_ = float(((members / sizes).T * (members.T @ whole)).sum() / 2)
        return self

    def _round(self, points: np.ndarray | None, random: Any) -> np.ndarray:
        """Cluster the rows of X·points, or the rows of X's leading eigenvectors where there are no points."""
        if points is not None:
            moved = self.relaxation_ @ points
        else:
            values, vectors = np.linalg.eigh(self.relaxation_)
            moved = vectors[:, -self.n_clusters :] * np.maximum(values[-self.n_clusters :], 0)
        means = KMeans(self.n_clusters, n_init=self.n_init, random_state=random)
        with warnings.catch_warnings():  # fewer distinct rows than clusters is a property of the data
            warnings.simplefilter("ignore")
            labels: np.ndarray = means.fit_predict(moved)
        return labels

    def _centre(self, X: np.ndarray, label: int) -> np.ndarray:
        members = X[self.labels_ == label]
        return members.mean(0) if len(members) else X.mean(0)

    def predict(self, X: Any) -> np.ndarray:
        """The nearest cluster centre of every point ``[m, d]``."""
        check_is_fitted(self, "labels_")
        if not hasattr(self, "cluster_centers_"):
            raise ValueError("with precomputed distances there are no centres to predict with: use labels_.")
        X = _dense(validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False))
        distances = ((X[:, None] - self.cluster_centers_[None]) ** 2).sum(2)
        labels: np.ndarray = distances.argmin(1).astype(self.labels_.dtype)
        return labels

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the k-means cost of points X ``[m, d]`` with the centres found."""
        check_is_fitted(self, "labels_")
        labels = self.predict(X)
        X = _dense(check_array(X, accept_sparse="csr", dtype=np.float64))
        return -float(((X - self.cluster_centers_[labels]) ** 2).sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # made dense: the relaxation is a dense matrix anyway
        tags.input_tags.pairwise = self.metric == "precomputed"
        return tags


RADIUS = 1.5
"""Nuclear norm allowed by default, in units of a constant matrix of the ratings' root mean square: for the matrix of
MovieLens 100k this gives the thesis' 7000."""


@dataclass(eq=False, repr=False)
class MatrixCompletion(RegressorMixin, BaseEstimator):
    r"""Fill in a matrix from some of its entries.

    .. math::
        \min_{\|X\|_* \leq \beta_1}\; \sum_{(i,j)\in\omega} (X_{ij} - Y_{ij})^2 \quad\text{subject to}\quad 1 \leq X
        \leq 5

    Thesis: Eq. "eqn:exp_online_mat_comp", section "Empirical Evaluation".

    By default ratings are centred by biases of rows and columns, and a matrix of small nuclear norm, chosen on a tenth
    of the ratings, is fitted to what is left. ``method="shcgm"`` is the thesis' protocol, the stochastic homotopy
    conditional gradient method on the ratings themselves with the box as a constraint.

    A sample is a pair (row, column), its target the rating: ``fit(pairs [N, 2], ratings [N])``. Rows and columns are
    numbers from 0; put ``sklearn.preprocessing.OrdinalEncoder`` before it where they are names. A sparse matrix of
    ratings stands for its stored entries: ``fit(ratings)``, ``predict(ratings)``.

    Args:
        radius: β_1, bound on the nuclear norm; None to have it chosen, or for "shcgm" 1.5 · rms(ratings) · √(m n).
        box: (lower, upper) bounds on every rating, with ``None`` or infinite for none. Predictions are clipped to it;
            for "shcgm" it is a constraint, and None is stochastic Frank-Wolfe without it.
        method: "frank-wolfe" (biases, then Frank-Wolfe on the residuals) or "shcgm".
        batch_size, beta0: ratings in each stochastic gradient of "shcgm", and β_0 of its smoothing.
        max_iter: iterations; None for 25, or for "shcgm" 10,000.
        shape: (m, n) of the matrix; None for the largest indices seen.
        oracle, oracle_tol, warm_oracle: "power", "lanczos" or "lapack" for the top singular pair, its relative
            accuracy, and whether it starts from its last answer.
        dtype: "float32" or "float64".
        time_limit: seconds, None for none.
        random_state: seed of the mini-batches.
        verbose: show a progress bar.

    Attributes:
        matrix_: X ``[m', n']``, biases included, over ``rows_`` and ``columns_``, those that have a rating; predictions
            for others are the mean rating.
        radius_: the bound on the nuclear norm that was used.
        result_: the solver's :class:`Result`; ``feasibility_`` is ‖X - clip(X)‖, ``n_iter_`` iterations made.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.clip(3 + rng.normal(size=(30, 1)) @ rng.normal(size=(1, 20)), 1, 5)
    >>> pairs = np.argwhere(rng.random(truth.shape) < 0.6)
    >>> model = MatrixCompletion(random_state=0).fit(pairs, truth[tuple(pairs.T)])
    >>> rest = np.argwhere(np.ones(truth.shape))
    >>> bool(model.score(rest, truth[tuple(rest.T)]) > 0.8)
    True
    """

    expected_failed_checks: ClassVar[dict[str, str]] = {
        f"check_{name}": "it fits arrays that are no pairs of indices"
        for line in (
            "dict_unchanged dont_overwrite_parameters dtype_object estimators_dtypes estimators_fit_returns_self",
            "estimators_nan_inf estimators_overwrite_params estimators_pickle f_contiguous_array_estimator",
            "fit2d_predict1d fit_check_is_fitted fit_idempotent fit_score_takes_y methods_sample_order_invariance",
            "methods_subset_invariance n_features_in n_features_in_after_fitting",
            "non_transformer_estimators_n_iter pipeline_consistency readonly_memmap_input",
            "regressor_data_not_an_array regressors_int regressors_no_decision_function regressors_train",
            "supervised_y_2d",
        )
        for name in line.split()
    }
    """Checks of ``check_estimator`` that do not apply, and why."""

    radius: float | None = None
    box: tuple[float | None, float | None] | None = (1.0, 5.0)
    _: KW_ONLY
    method: str = "frank-wolfe"
    batch_size: int = 1000
    beta0: float = 10.0
    max_iter: int | None = None
    shape: tuple[int, int] | None = None
    oracle: str = "power"
    oracle_tol: float = 1e-2
    warm_oracle: bool = False
    dtype: str = "float32"
    time_limit: float | None = None
    random_state: Any = None
    verbose: bool = False

    def fit(self, X: Any, y: Any = None) -> "MatrixCompletion":
        """Complete the matrix whose entries at pairs X ``[N, 2]`` are y ``[N]``, or a sparse matrix X of ratings."""
        pairs, ratings = self._read(X, y)
        sizes = self._shape(pairs, X.shape if is_sparse(X) else None)
        self.rows_, rows = np.unique(pairs[:, 0], return_inverse=True)
        self.columns_, columns = np.unique(pairs[:, 1], return_inverse=True)
        shape = (len(self.rows_), len(self.columns_))
        for total, known, what in zip(sizes, shape, ("rows", "columns"), strict=True):
            if known < total:
                warnings.warn(
                    f"{total - known} of {total} {what} have no rating: they are left out, and predicted by the mean "
                    "rating.",
                    UserWarning,
                    stacklevel=2,
                )
        self.mean_ = float(ratings.mean())
        stochastic = choose(self.method, ("frank-wolfe", "shcgm"), "method") == "shcgm"
        dtype, seed = getattr(torch, self.dtype), int(check_random_state(self.random_state).randint(2**31 - 1))
        observed = SampledEntries(rows, columns, ratings, shape, self.batch_size, dtype=dtype)
        if stochastic:
            self.result_, self.matrix_ = self._fit_constrained(observed, self._radius(ratings, shape), seed)
        else:
            self.result_, self.matrix_ = self._fit_residuals(rows, columns, ratings, shape, dtype, seed)
        self.feasibility_ = float(np.linalg.norm(self.matrix_ - np.clip(self.matrix_, *self._bounds())))
        self.n_iter_, self.n_features_in_ = self.result_.iterations, 2
        return self

    def _fit_constrained(self, observed: SampledEntries, radius: float, seed: int) -> tuple[Result, np.ndarray]:
        """Apply the thesis' protocol."""
        self.radius_ = radius
        atoms = NuclearBall(self.radius_, method=self.oracle, tol=self.oracle_tol, warm=self.warm_oracle)
        bounds, limit = self._bounds(), 10_000 if self.max_iter is None else self.max_iter
        terms = [Bounds(*bounds)] if any(map(math.isfinite, bounds)) else []
        result = Homotopy(observed, atoms, terms, None, Schedule.shcgm(self.beta0), seed=seed).run(
            limit,
            time_limit=self.time_limit,
            progress=self.verbose,
            evaluate_every=max(1, min(100, limit // 20)),
            name="MatrixCompletion",
        )
        return result, np.asarray(result.x)

    def _fit_residuals(
        self, rows: Any, columns: Any, ratings: np.ndarray, shape: tuple[int, int], dtype: torch.dtype, seed: int
    ) -> tuple[Result, np.ndarray]:
        """Biases, then a matrix of small nuclear norm for what they leave."""
        limit = 25 if self.max_iter is None else self.max_iter
        run = Run("MatrixCompletion", True, limit, time_limit=self.time_limit, progress=self.verbose)
        chosen = self.radius
        if chosen is None:
            chosen = choose_radius(rows, columns, ratings, shape, dtype, seed, run)
        self.radius_ = positive(chosen, "radius")
        biases = fit_biases(rows, columns, ratings, shape)
        fit = Residuals(rows, columns, ratings - biases.at(rows, columns), shape, dtype)
        result = fit.iterate(ball(self.radius_, self.oracle, self.oracle_tol), run)
        centre = biases.mean + biases.rows[:, None] + biases.columns[None]
        return result, (np.asarray(result.x) + centre).astype(self.dtype)

    def predict(self, X: Any) -> np.ndarray:
        """Ratings at pairs X ``[N, 2]``, clipped to the box; the mean rating where a row or column had none."""
        return np.clip(self.entries(X), *self._bounds())

    def entries(self, X: Any) -> np.ndarray:
        """Entries of the iterate at pairs X ``[N, 2]``, which may still violate the box by ``feasibility_``."""
        check_is_fitted(self, "matrix_")
        pairs = self._pairs(X)
        places, known = [], np.ones(len(pairs), dtype=bool)
        for axis, kept in enumerate((self.rows_, self.columns_)):
            place = np.minimum(np.searchsorted(kept, pairs[:, axis]), len(kept) - 1)
            known &= kept[place] == pairs[:, axis]
            places.append(place)
        if not known.all():
            warnings.warn(
                f"{int((~known).sum())} of {len(known)} pairs are in a row or column without any rating in training: "
                f"their prediction is the mean rating, {self.mean_:.3g}.",
                UserWarning,
                stacklevel=3,
            )
        values = self.matrix_[places[0], places[1]].astype(np.float64)
        return np.where(known, values, self.mean_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R² of the predictions for pairs X and ratings y, or for a sparse matrix X of ratings."""
        return float(super().score(X, X.tocsr().data if y is None and is_sparse(X) else y, sample_weight))

    def rmse(self, X: Any, y: Any = None, clip: bool = True) -> float:
        """Root mean squared error of predictions, or of the iterate's entries as they are."""
        y = X.tocsr().data if y is None and is_sparse(X) else y
        predictions = self.predict(X) if clip else self.entries(X)
        return float(np.sqrt(np.mean(np.square(predictions - column_or_1d(y)))))

    def _bounds(self) -> tuple[float, float]:
        lower, upper = self.box if self.box is not None else (None, None)
        return (-math.inf if lower is None else float(lower), math.inf if upper is None else float(upper))

    def _radius(self, ratings: np.ndarray, shape: tuple[int, ...]) -> float:
        if self.radius is not None:
            return float(self.radius)
        rms = float(np.sqrt(np.mean(np.square(ratings))))
        return RADIUS * (rms or 1.0) * math.sqrt(math.prod(shape))

    def _shape(self, pairs: np.ndarray, known: Any) -> tuple[int, int]:
        largest = pairs.max(axis=0)
        shape = self.shape if self.shape is not None else known
        if shape is None:
            return int(largest[0]) + 1, int(largest[1]) + 1
        m, n = (int(size) for size in shape)
        if largest[0] >= m or largest[1] >= n:
            raise ValueError(
                f"X has the pair {tuple(int(i) for i in largest)} but shape is {(m, n)}: expected indices from 0 below "
                "it; leave shape out to have it found."
            )
        return m, n

    @staticmethod
    def _pairs(X: Any) -> np.ndarray:
        if is_sparse(X):
            entries = X.tocsr().tocoo()
            return np.stack([entries.row, entries.col], 1).astype(np.int64)
        pairs = check_array(X, dtype=None, ensure_min_samples=0, estimator="MatrixCompletion")
        if np.issubdtype(pairs.dtype, np.number) and (pairs < 0).any():
            raise ValueError(f"Negative values in data: X has the index {pairs.min():g}, expected indices from 0.")
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(
                f"X has n_samples = {len(pairs)} and n_features = {pairs.shape[1]}: expected pairs (row, column) "
                "[N, 2], or a sparse matrix of ratings."
            )
        try:
            numbers = pairs.astype(np.float64)
            whole = np.nan_to_num(numbers).astype(np.int64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"X cannot be read as pairs of indices ({error}): put OrdinalEncoder before, if they are names."
            ) from error
        if (whole != numbers).any():
            raise ValueError("X has entries that are no whole numbers: expected pairs (row, column) of indices.")
        return whole

    def _read(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if is_sparse(X):
            if y is not None:
                raise ValueError(
                    "X is a sparse matrix of ratings: expected no y besides; sparse pairs are not supported."
                )
            y = X.tocsr().data
        if y is None:
            raise ValueError(
                "MatrixCompletion requires y to be passed, but the target y is None: expected the rating of every pair."
            )
        pairs = self._pairs(X)
        ratings = column_or_1d(np.asarray(y, dtype=np.float64))
        if len(pairs) != len(ratings) or not len(pairs):
            raise ValueError(f"{len(pairs)} pairs and {len(ratings)} ratings: expected as many, and at least one.")
        if not np.isfinite(ratings).all():
            raise ValueError("y has ratings that are not finite: drop the pairs whose rating is missing.")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype is {self.dtype!r}: expected 'float32' or 'float64'.")
        lower, upper = self._bounds()
        outside = int(((ratings < lower) | (ratings > upper)).sum())
        if outside:
            raise ValueError(
                f"{outside} of {len(ratings)} ratings are outside the box [{lower:g}, {upper:g}] (they go from "
                f"{ratings.min():g} to {ratings.max():g}): no completion can fit them; pass box=({ratings.min():g}, "
                f"{ratings.max():g}) or drop them."
            )
        return pairs, ratings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.positive_only = True
        return tags


DAMPING = 5.0
"""Ratings of the mean that every row and column is thought to have besides its own, which keeps rare ones near it."""

RADII = (0.15, 0.25, 0.35, 0.5, 0.7)
"""Nuclear norms to choose from, in units of a constant matrix of the residuals' root mean square."""

PATIENCE = 6
"""Iterations for each of them; the next, larger one continues from there."""


@dataclass(frozen=True)
class Biases:
    """mean + rows_i + columns_j."""

    mean: float
    rows: np.ndarray
    columns: np.ndarray

    def at(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Biases of the entries (i, j)."""
        values: np.ndarray = self.mean + self.rows[i] + self.columns[j]
        return values


def fit_biases(i: np.ndarray, j: np.ndarray, ratings: np.ndarray, shape: tuple[int, int], sweeps: int = 10) -> Biases:
    """Damped least squares for the biases, by turns.

    >>> biases = fit_biases(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1.0, 1.0, 4.0]), (2, 2))
    >>> biases.mean, bool(biases.rows[1] > biases.rows[0])
    (2.0, True)
    """
    mean = float(ratings.mean())
    rows, columns = np.zeros(shape[0]), np.zeros(shape[1])
    for _ in range(sweeps):
        rows = np.bincount(i, ratings - mean - columns[j], shape[0]) / (np.bincount(i, minlength=shape[0]) + DAMPING)
        columns = np.bincount(j, ratings - mean - rows[i], shape[1]) / (np.bincount(j, minlength=shape[1]) + DAMPING)
    return Biases(mean, rows, columns)


class Residuals:
    """½ Σ_observed (X_ij - R_ij)² over ‖X‖_* ≤ radius, by Frank-Wolfe with exact line search on sparse gradients.

    X is kept as its factors and its observed entries, so an iteration costs a few products with a sparse matrix.
    """

    def __init__(self, i: np.ndarray, j: np.ndarray, values: np.ndarray, shape: tuple[int, int], dtype: torch.dtype):
        order = np.argsort(i * shape[1] + j)
        self.targets = torch.from_numpy(values[order]).to(dtype)
        self.x = LowRankIterate(shape, torch.from_numpy((i * shape[1] + j)[order]), dtype)

    def iterate(self, ball: NuclearBall, run: Run) -> Result:
        """Iterate until the run is over."""
        x = self.x
        while True:
            gradient = x.values - self.targets
            last = run.iteration >= run.max_iterations or run.expired()
            answer = ball.ask(x.sparse(gradient), exact=last)
            at = float(gradient.double() @ x.values.double())
            gap = at - answer.lower
            if run.finished(self.targets, float(gradient.double().square().sum()) / 2, max(0.0, gap)):
                return run.result(x.dense())
            z = answer.atom
            ahead = z.scale * z.u[x.rows] * z.v[x.columns] - x.values  # type: ignore[attr-defined]
            length = float(ahead.double().square().sum())
            x.step(z, min(1.0, max(0.0, -float(gradient.double() @ ahead.double()) / length)) if length else 0.0)


def choose_radius(
    i: np.ndarray, j: np.ndarray, ratings: np.ndarray, shape: tuple[int, int], dtype: torch.dtype, seed: int, run: Run
) -> float:
    """The nuclear norm that predicts a tenth of the ratings best from the others, on a path from small to large."""
    random = np.random.default_rng(seed)
    held = random.random(len(ratings)) < 0.1
    if held.sum() < 20 or (~held).sum() < 20:
        held = np.zeros(len(ratings), dtype=bool)
    biases = fit_biases(i[~held], j[~held], ratings[~held], shape)
    left = ratings - biases.at(i, j)
    unit = max(float(np.sqrt(np.mean(np.square(left[~held])))), 1e-12) * math.sqrt(math.prod(shape))
    if not held.any():
        return RADII[2] * unit
    fit = Residuals(i[~held], j[~held], left[~held], shape, dtype)
    best, lowest = RADII[0] * unit, math.inf
    for share in RADII:
        part = Run("radius", True, PATIENCE, time_limit=run.time_limit)
        part.started = run.started
        fit.iterate(ball(share * unit), part)
        entries = fit.x.dense().numpy()[i[held], j[held]]
        error = float(np.mean(np.square(entries - left[held])))
        if error >= lowest or run.expired():
            break
        best, lowest = share * unit, error
    return best


def ball(radius: float, method: str = "power", tol: float = 1e-2) -> NuclearBall:
    """The nuclear ball, asked roughly and from its last answer."""
    return NuclearBall(radius, method=method, tol=tol, warm=True)
