"""Pursuits and Frank-Wolfe as scikit-learn estimators: sparse, non-negative and norm-constrained linear models."""

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from unknot.solvers._arrays import choose
from unknot.solvers.atoms import AtomSet, GroupBall, KSparse, L1Ball, L2Ball
from unknot.solvers.cone import nonnegative_matching_pursuit
from unknot.solvers.frank_wolfe import frank_wolfe
from unknot.solvers.objectives import Logistic
from unknot.solvers.pursuit import matching_pursuit
from unknot.solvers.result import Result


class _LinearRegressor(RegressorMixin, BaseEstimator):
    """What the two regressors share: centring, and a prediction from coefficients."""

    fit_intercept: bool

    def _prepare(self, X: Any, y: Any, many: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
        X, y = validate_data(self, X, y, y_numeric=True, multi_output=many, dtype=np.float64)
        y = np.asarray(y, dtype=np.float64)
        offset = X.mean(0) if self.fit_intercept else np.zeros(X.shape[1])
        level = y.mean(0) if self.fit_intercept else np.zeros(y.shape[1:])
        return X - offset, y - level, offset, level

    def _finish(self, coefficients: np.ndarray, offset: np.ndarray, level: Any) -> None:
        self.coef_ = coefficients
        self.intercept_ = level - coefficients @ offset
        if np.ndim(self.intercept_) == 0:
            self.intercept_ = float(self.intercept_)

    def predict(self, X: Any) -> np.ndarray:
        """X · coef_ᵀ + intercept_."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        predictions: np.ndarray = X @ self.coef_.T + self.intercept_
        return predictions


class OrthogonalPursuitRegressor(_LinearRegressor):
    """A linear model of few nonzero coefficients, by orthogonal matching pursuit; many targets are one batch.

    Args:
        n_nonzero_coefs: features at most; None for a tenth of them, at least one.
        tol: stop once half the squared residual is at most this; 0 for never.
        fit_intercept: whether to centre features and target.
        max_time: seconds, None for none.
        verbose: show a progress bar.

    Attributes:
        coef_: ``[n]`` or ``[targets, n]``; ``intercept_``, ``n_iter_`` and the solver's ``result_``.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((50, 20))
    >>> OrthogonalPursuitRegressor(2).fit(X, X[:, 3] - 2 * X[:, 7] + 1).coef_.nonzero()[0]
    array([3, 7])
    """

    def __init__(
        self,
        n_nonzero_coefs: int | None = None,
        *,
        tol: float = 1e-12,
        fit_intercept: bool = True,
        max_time: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_nonzero_coefs = n_nonzero_coefs
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.max_time = max_time
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "OrthogonalPursuitRegressor":
        """Fit to samples X ``[m, n]`` and targets y ``[m]`` or ``[m, targets]``."""
        centred, targets, offset, level = self._prepare(X, y, many=True)
        count = self.n_nonzero_coefs
        if count is not None and (count < 1 or count > centred.shape[1]):
            raise ValueError(f"n_nonzero_coefs is {count}: expected from 1 to the {centred.shape[1]} features.")
        wanted = max(1, centred.shape[1] // 10) if count is None else int(count)
        kept = np.flatnonzero(np.linalg.norm(centred, axis=0) > 1e-12 * max(1.0, np.abs(centred).max()))
        coefficients = np.zeros((*targets.T.shape[:-1], centred.shape[1]))
        self.n_iter_ = 0
        if len(kept):
            self.result_: Result = matching_pursuit(
                np.ascontiguousarray(targets.T),
                centred[:, kept],
                variant="orthogonal",
                max_iterations=min(wanted, len(kept)),
                tol=self.tol,
                time_limit=self.max_time,
                progress=self.verbose,
            )
            coefficients[..., kept] = self.result_.coefficients
            self.n_iter_ = self.result_.iterations
        self._finish(coefficients, offset, level)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # a tenth of the features is few where there are ten
        return tags


class NonNegativePursuitRegressor(_LinearRegressor):
    """A linear model of non-negative coefficients, by non-negative matching pursuit with a certificate.

    Args:
        tol: duality gap at which to stop.
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

    def __init__(
        self,
        *,
        tol: float = 1e-8,
        max_iter: int = 1000,
        variant: str = "fully-corrective",
        fit_intercept: bool = True,
        warm_start: bool = False,
        max_time: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.variant = variant
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.max_time = max_time
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "NonNegativePursuitRegressor":
        """Fit to samples X ``[m, n]`` and targets y ``[m]``."""
        centred, target, offset, level = self._prepare(X, y, many=False)
        kept = np.flatnonzero(np.linalg.norm(centred, axis=0) > 1e-12 * max(1.0, np.abs(centred).max()))
        coefficients = np.zeros(centred.shape[1])
        self.n_iter_ = 0
        if len(kept):
            last: np.ndarray = getattr(self, "coef_", np.zeros(0))
            known = self.warm_start and last.shape == coefficients.shape
            start = centred[:, kept] @ last[kept] if known else None
            self.result_: Result = nonnegative_matching_pursuit(
                target,
                centred[:, kept],
                start,
                variant=self.variant,
                tol=self.tol,
                max_iterations=self.max_iter,
                time_limit=self.max_time,
                progress=self.verbose,
            )
            coefficients[kept] = self.result_.coefficients
            self.n_iter_ = self.result_.iterations
        self._finish(coefficients, offset, level)
        return self


class ConstrainedLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression of two classes over a ball, by Frank-Wolfe: the constraint is the regularisation.

    Args:
        radius: of the ball.
        constraint: "l1" (sparse), "l2", "k-sparse" (with ``k``) or "group" (with ``groups``).
        k: nonzero coefficients of every vertex of the k-sparse polytope.
        groups: the group of every feature ``[n]``.
        ridge: weight of ½‖w‖² besides.
        variant: of :func:`frank_wolfe`.
        tol: duality gap of the mean loss at which to stop.
        max_iter: iterations.
        warm_start: begin from the last fit.
        max_time: seconds, None for none.
        verbose: show a progress bar.

    Attributes:
        coef_: ``[1, n]``; ``intercept_`` ``[1]``, ``classes_``, ``n_iter_`` and the solver's ``result_``.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> model = ConstrainedLogisticRegression(3.0).fit(X, X[:, 2] > 0)
    >>> int(np.abs(model.coef_[0]).argmax()), bool(model.score(X, X[:, 2] > 0) > 0.95)
    (2, True)
    """

    def __init__(
        self,
        radius: float = 10.0,
        *,
        constraint: str = "l1",
        k: int = 1,
        groups: Any = None,
        ridge: float = 0.0,
        variant: str = "pairwise",
        tol: float = 1e-4,
        max_iter: int = 1000,
        warm_start: bool = False,
        max_time: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.radius = radius
        self.constraint = constraint
        self.k = k
        self.groups = groups
        self.ridge = ridge
        self.variant = variant
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.max_time = max_time
        self.verbose = verbose

    def _atoms(self, features: int) -> AtomSet:
        kind = choose(self.constraint, ("l1", "l2", "k-sparse", "group"), "constraint")
        if kind == "l1":
            return L1Ball(self.radius, features)
        if kind == "l2":
            return L2Ball(self.radius, features)
        if kind == "k-sparse":
            return KSparse(self.k, self.radius, features)
        if self.groups is None or len(self.groups) != features:
            raise ValueError(f"groups should name the group of each of the {features} features.")
        return GroupBall(self.groups, self.radius)

    def fit(self, X: Any, y: Any) -> "ConstrainedLogisticRegression":
        """Fit to samples X ``[m, n]`` of two classes y ``[m]``; the intercept is the log odds at the mean sample."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            raise ValueError(
                f"y has {len(self.classes_)} classes: expected 2. Only binary classification is supported; the type of "
                "the target is " + ("multiclass." if len(self.classes_) > 2 else "one class.")
            )
        middle = X.mean(0)
        atoms = self._atoms(X.shape[1])
        last: np.ndarray = getattr(self, "coef_", np.zeros((1, 0)))
        start = last[0] if self.warm_start and last.shape == (1, X.shape[1]) else None
        share = float(labels.mean())
        level = math.log(share / (1 - share))
        self.result_: Result = frank_wolfe(
            _Shifted(X - middle, labels.astype(np.float64), level, self.ridge),
            atoms,
            start,
            variant=self.variant,
            tol=self.tol,
            max_iterations=self.max_iter,
            time_limit=self.max_time,
            progress=self.verbose,
        )
        self.coef_ = np.asarray(self.result_.x)[None]
        self.intercept_ = np.array([level]) - self.coef_ @ middle
        self.n_iter_ = self.result_.iterations
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """⟨w, x⟩ + b for every sample; positive for the second class."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores: np.ndarray = X @ self.coef_[0] + self.intercept_[0]
        return scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of both classes ``[m, 2]``."""
        second = 1 / (1 + np.exp(-np.clip(self.decision_function(X), -700, 700)))
        return np.stack([1 - second, second], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The likelier class."""
        second = self.decision_function(X) > 0
        labels: np.ndarray = self.classes_[second.astype(int)]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class _Shifted(Logistic):
    """The mean logistic loss of scores ⟨a_i, x⟩ + level."""

    def __init__(self, matrix: np.ndarray, labels: np.ndarray, level: float, ridge: float) -> None:
        super().__init__(matrix, labels, "mean", ridge)
        self.level = level

    def loss(self, scores: torch.Tensor) -> float:
        """Of the shifted scores."""
        return super().loss(scores + self.level)

    def row_derivatives(self, scores: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """At the shifted scores."""
        return super().row_derivatives(scores + self.level, rows)
