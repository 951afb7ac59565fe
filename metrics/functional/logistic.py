"""Logistic regressions of the factors: scikit-learn's, and a solver for the many of a cross-validation.

A factor of k classes has weights W ``[k, 1 + D]``, the intercept first, which minimise

    mean_i -log softmax(W xᵢ)_{yᵢ} + ‖W without intercepts‖² / (2 C N)

where of two classes only the second has weights. :class:`Problem` finds them by L-BFGS in coordinates in which the
Hessian is about the identity: it is nearly (mean of diag p - p pᵀ) ⊗ (covariance of the codes), whose square root is
cheap. A few dozen steps then lead to the minimum, however unlike the scales of the codes are and however weak the
penalty; in plain coordinates it takes hundreds, of which scikit-learn makes 100.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import minimize

from unknot.metrics.functional.checks import Floats, Ints

STRENGTHS = np.logspace(-4, 4, 10)  # C, as scikit-learn's LogisticRegressionCV tries them
FOLDS = 5
TOLERANCE = 3e-4  # of the gradient in these coordinates: half its square is what the objective could still lose
STEPS, ROUNDS = 40, 50  # of L-BFGS in one set of coordinates, and how often they are chosen again at most


def scikit_regression(codes: Floats, classes: Ints) -> Any:
    """scikit-learn's with its defaults, C = 1; that it ends after 100 steps is part of the protocol, without remark."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegression().fit(codes, classes)


def scikit_cross_validated(codes: Floats, factors: Ints, others: Floats) -> Ints:
    """Every factor of other codes as scikit-learn's ``LogisticRegressionCV`` predicts it, after 100 steps at most."""
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
    """Logistic regressions that predict every factor from the same codes."""

    classes: list[Ints]  # of each factor, sorted
    weights: list[Floats]  # of each factor, [k, 1 + D]

    def predict(self, codes: Floats) -> Ints:
        """The likeliest class of every factor: codes ``[N, D]`` to ``[N, F]``."""
        pairs = zip(self.classes, self.weights, strict=True)
        return np.stack([likeliest(codes, weights, classes) for classes, weights in pairs], axis=1)


def likeliest(codes: Floats, weights: Floats, classes: Ints) -> Ints:
    """The class of each of the codes ``[N, D]`` whose weights ``[k, 1 + D]`` give most."""
    return classes[(weights[:, 0] + codes @ weights[:, 1:].T).argmax(1)]


def cross_validated(codes: Floats, factors: Ints) -> Regression:
    """Predict each factor ``[N, F]`` from the codes, with the strength C that does so best in 5-fold cross-validation.

    Folds are parts of the samples in their order, and of strengths that do equally well the smallest is taken, as in
    scikit-learn's ``LogisticRegressionCV`` with ``KFold(5)``.

    >>> factors = np.arange(30)[:, None] // [10, 15]
    >>> cross_validated(np.arange(30.0)[:, None], factors).predict(np.array([[0.0], [29.0]])).tolist()
    [[0, 0], [2, 1]]
    """
    classes = [np.unique(column) for column in factors.T]
    centre = codes.mean(0)  # around which intercept and codes have nothing to do with each other
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
        for place, strength in enumerate(STRENGTHS):  # each starts where the last one ended
            weights = problem.solve(strength)
            accuracy[place] += np.mean(likeliest(codes[fold], weights, classes) == labels[fold])
            path[place] += weights / len(folds)
    best = accuracy.argmax()
    whole = Problem(codes, labels, classes)
    whole.begin(path[best])
    return whole.solve(STRENGTHS[best])


class Problem:
    """One regression. A class that no sample has gets no weights: its probability could only be zero."""

    def __init__(self, codes: Floats, labels: Ints, classes: Ints, tolerance: float = TOLERANCE) -> None:
        present, ranks = np.unique(labels, return_inverse=True)
        self.classes, self.tolerance = classes, tolerance
        fixed = int(len(classes) == 2 == len(present))  # of two classes the first has no weights
        self.known, self.free = np.searchsorted(classes, present), slice(fixed, None)
        self.design = np.column_stack([np.ones(len(codes)), codes])
        self.transposed = np.ascontiguousarray(self.design.T)
        self.targets = ranks, np.arange(len(ranks))
        self.weights = np.zeros((len(present) - fixed, codes.shape[1] + 1))
        spread, axes = np.linalg.eigh(codes.T @ codes / len(codes))
        self.spread = np.append(1.0, spread.clip(min=0))  # of the codes along their main axes
        self.axes = block_diag(1.0, axes)

    def begin(self, weights: Floats) -> None:
        """Start from these weights, where they are finite."""
        self.weights = np.where(np.isfinite(weights), weights, 0.0)[self.known[self.free]]

    def solve(self, strength: float) -> Floats:
        """Minimise, from the weights that there are; those of all classes ``[k, 1 + D]``."""
        self.penalty = 1 / (strength * len(self.design))
        options = {"maxiter": STEPS, "gtol": self.tolerance, "ftol": 0.0}
        for _ in range(ROUNDS):
            start = self._choose_coordinates()
            solution = minimize(self._evaluate, start.ravel(), jac=True, method="L-BFGS-B", options=options)
            self.weights = self._weights_at(solution.x)
            if solution.nit < STEPS:  # at the minimum, or as near as the precision allows
                break
        weights = np.zeros((len(self.classes), self.weights.shape[1]))
        weights[np.setdiff1d(np.arange(len(weights)), self.known), 0] = -np.inf
        weights[self.known[self.free]] = self.weights
        return weights

    def _probabilities(self, weights: Floats) -> tuple[Floats, float]:
        """Of each class and sample ``[k, N]``, and the mean of -log p of the true ones."""
        logits = weights @ self.transposed
        if self.free.start:
            logits = np.vstack([np.zeros_like(logits), logits])
        logits -= logits.max(0)
        true = logits[self.targets]
        total = np.exp(logits, out=logits).sum(0)
        logits /= total
        return logits, float(np.mean(np.log(total) - true))

    def _choose_coordinates(self) -> Floats:
        """Coordinates in which the Hessian is about the identity, and those of the weights in them."""
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
        """The objective at these coordinates, and its gradient in them."""
        weights = self._weights_at(flat)
        p, loss = self._probabilities(weights)
        p[self.targets] -= 1
        gradient = p[self.free] @ self.design / len(self.design)
        gradient[:, 1:] += self.penalty * weights[:, 1:]
        value = loss + self.penalty / 2 * float((weights[:, 1:] ** 2).sum())
        return value, (self.scale * (self.mixes.T @ gradient @ self.axes)).ravel()
