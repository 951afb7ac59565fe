"""What :class:`MatrixCompletion` fits by default: biases of rows and columns, and a matrix of small nuclear norm."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from unknot.solvers.atoms import NuclearBall
from unknot.solvers.result import Result, Run
from unknot.solvers.stochastic import LowRankIterate

DAMPING = 5.0
"""Ratings of the mean that every row and column is thought to have besides its own, which keeps rare ones near it."""

RADII = (0.15, 0.25, 0.35, 0.5, 0.7)
"""Nuclear norms to choose from, in units of a constant matrix of the residuals' root mean square."""

PATIENCE = 6
"""Iterations for each of them; the next, larger one goes on from there."""


@dataclass(frozen=True)
class Biases:
    """mean + rows_i + columns_j."""

    mean: float
    rows: np.ndarray
    columns: np.ndarray

    def at(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Of entries (i, j)."""
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
        """Until the run is over."""
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
        part = Run(PATIENCE, 0.0, run.time_limit, None, False, True, "radius")
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
