"""Logistic regressions that predict factors: scikit-learn's, and a fast solver for cross-validation.

A factor of k classes has weights W ``[k, 1 + D]``, the intercept first, which minimise

    mean_i -log softmax(W xᵢ)_{yᵢ} + ‖W without intercepts‖² / (2 C N)

where, for two classes, only the second has weights. :class:`Problem` finds them by L-BFGS in coordinates in which the
Hessian is approximately the identity: it is close to (mean of diag p - p pᵀ) ⊗ (covariance of the codes), whose square
root is cheap. A few dozen steps then reach the minimum, however different the scales of the latents and however weak
the penalty; in plain coordinates it takes hundreds of steps, and scikit-learn stops after 100.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import minimize

from unknot.metrics.functional.checks import Floats, Ints

STRENGTHS = np.logspace(-4, 4, 10)  # values of C, as in scikit-learn's LogisticRegressionCV
FOLDS = 5
TOLERANCE = 3e-4  # norm of the gradient in these coordinates: the objective could still decrease by half its square
STEPS, ROUNDS = 40, 50  # steps of L-BFGS in one set of coordinates, and maximum number of coordinate updates


def scikit_regression(codes: Floats, classes: Ints) -> Any:
    """scikit-learn's logistic regression with its defaults, C = 1, without the warning about its limit of 100 steps."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegression().fit(codes, classes)


def scikit_cross_validated(codes: Floats, factors: Ints, others: Floats) -> Ints:
    """Predict every factor of further codes with scikit-learn's ``LogisticRegressionCV``, after at most 100 steps."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import KFold

    predicted = np.tile(factors[0], (len(others), 1))
    for column, classes in enumerate(factors.T):
        if (classes == classes[0]).all():
            continue
        model = LogisticRegressionCV(Cs=10, cv=KFold(min(FOLDS, len(codes))), scoring="accuracy")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predicted[:, column] = model.fit(codes, classes).predict(others)
    return predicted


class Regression(NamedTuple):
    """Logistic regressions that predict all factors from the same codes."""

    classes: list[Ints]  # classes of each factor, sorted
    weights: list[Floats]  # weights of each factor, [k, 1 + D]

    def predict(self, codes: Floats) -> Ints:
        """Predict the most likely class of every factor: codes ``[N, D]`` to ``[N, F]``."""
        pairs = zip(self.classes, self.weights, strict=True)
        return np.stack([likeliest(codes, weights, classes) for classes, weights in pairs], axis=1)


def likeliest(codes: Floats, weights: Floats, classes: Ints) -> Ints:
    """Return the most likely class of each of the codes ``[N, D]`` under weights ``[k, 1 + D]``."""
    return classes[(weights[:, 0] + codes @ weights[:, 1:].T).argmax(1)]


def cross_validated(codes: Floats, factors: Ints) -> Regression:
    """Fit a regression for each factor ``[N, F]``, with the strength C chosen by 5-fold cross-validation.

    Folds are consecutive samples, and of equally good strengths the smallest is chosen, as in scikit-learn's
    ``LogisticRegressionCV`` with ``KFold(5)``.

    >>> factors = np.arange(30)[:, None] // [10, 15]
    >>> cross_validated(np.arange(30.0)[:, None], factors).predict(np.array([[0.0], [29.0]])).tolist()
    [[0, 0], [2, 1]]
    """
    classes = [np.unique(column) for column in factors.T]
    centre = codes.mean(0)  # centred, so that intercept and codes are uncorrelated
    weights = [_of_factor(codes - centre, *pair) for pair in zip(factors.T, classes, strict=True)]
    for each in weights:
        each[:, 0] -= each[:, 1:] @ centre
    return Regression(classes, weights)


def _of_factor(codes: Floats, labels: Ints, classes: Ints) -> Floats:
    if len(classes) == 1:
        return np.zeros((1, 1 + codes.shape[1]))
    numbers = np.arange(len(codes))
    folds = np.array_split(numbers, min(FOLDS, len(codes)))
    accuracy, path = np.zeros(len(STRENGTHS)), np.zeros((len(STRENGTHS), len(classes), 1 + codes.shape[1]))
    for fold in folds:
        rest = np.setdiff1d(numbers, fold)
        problem = Problem(codes[rest], labels[rest], classes)
        for place, strength in enumerate(STRENGTHS):  # each starts from the previous solution
            weights = problem.solve(strength)
            accuracy[place] += np.mean(likeliest(codes[fold], weights, classes) == labels[fold])
            path[place] += weights / len(folds)
    best = accuracy.argmax()
    whole = Problem(codes, labels, classes)
    whole.begin(path[best])
    return whole.solve(STRENGTHS[best])


class Problem:
    """Logistic regression of one factor. A class without samples gets no weights: its probability is zero."""

    def __init__(self, codes: Floats, labels: Ints, classes: Ints, tolerance: float = TOLERANCE) -> None:
        present, ranks = np.unique(labels, return_inverse=True)
        self.classes, self.tolerance = classes, tolerance
        fixed = int(len(classes) == 2 == len(present))  # of two classes, the first has no weights
        self.known, self.free = np.searchsorted(classes, present), slice(fixed, None)
        self.design = np.column_stack([np.ones(len(codes)), codes])
        self.transposed = np.ascontiguousarray(self.design.T)
        self.targets = ranks, np.arange(len(ranks))
        self.weights = np.zeros((len(present) - fixed, codes.shape[1] + 1))
        spread, axes = np.linalg.eigh(codes.T @ codes / len(codes))
        self.spread = np.append(1.0, spread.clip(min=0))  # standard deviations of the codes along their principal axes
        self.axes = block_diag(1.0, axes)

    def begin(self, weights: Floats) -> None:
        """Start from these weights if they are finite."""
        self.weights = np.where(np.isfinite(weights), weights, 0.0)[self.known[self.free]]

    def solve(self, strength: float) -> Floats:
        """Minimise from the current weights; return the weights of all classes ``[k, 1 + D]``."""
        self.penalty = 1 / (strength * len(self.design))
        options = {"maxiter": STEPS, "gtol": self.tolerance, "ftol": 0.0}
        for _ in range(ROUNDS):
            start = self._choose_coordinates()
            solution = minimize(self._evaluate, start.ravel(), jac=True, method="L-BFGS-B", options=options)
            self.weights = self._weights_at(solution.x)
            if solution.nit < STEPS:  # at the minimum, or as close as the precision allows
                break
        weights = np.zeros((len(self.classes), self.weights.shape[1]))
        weights[np.setdiff1d(np.arange(len(weights)), self.known), 0] = -np.inf
        weights[self.known[self.free]] = self.weights
        return weights

    def _probabilities(self, weights: Floats) -> tuple[Floats, float]:
        """Return the probability of each class and sample ``[k, N]``, and the mean of -log p of the true classes."""
        logits = weights @ self.transposed
        if self.free.start:
            logits = np.vstack([np.zeros_like(logits), logits])
        logits -= logits.max(0)
        true = logits[self.targets]
        total = np.exp(logits, out=logits).sum(0)
        logits /= total
        return logits, float(np.mean(np.log(total) - true))

    def _choose_coordinates(self) -> Floats:
        """Choose coordinates in which the Hessian is approximately the identity, and convert the weights to them."""
        p, _ = self._probabilities(self.weights)
        mixing = np.diag(p.mean(1)) - p @ p.T / p.shape[1]
        spread, self.mixes = np.linalg.eigh(mixing[self.free, self.free])
        curvature = np.outer(spread.clip(min=0), self.spread)
        curvature[:, 1:] += self.penalty
        self.scale = 1 / np.sqrt(curvature.clip(min=1e-12))
        return self.mixes.T @ self.weights @ self.axes / self.scale

    def _weights_at(self, flat: Floats) -> Floats:
        return self.mixes @ (flat.reshape(self.scale.shape) * self.scale) @ self.axes.T

    def _evaluate(self, flat: Floats) -> tuple[float, Floats]:
        """Evaluate the objective and its gradient in these coordinates."""
        weights = self._weights_at(flat)
        p, loss = self._probabilities(weights)
        p[self.targets] -= 1
        gradient = p[self.free] @ self.design / len(self.design)
        gradient[:, 1:] += self.penalty * weights[:, 1:]
        value = loss + self.penalty / 2 * float((weights[:, 1:] ** 2).sum())
        return value, (self.scale * (self.mixes.T @ gradient @ self.axes)).ravel()
