"""Frank-Wolfe for a dense linear model over an L1 ball or a simplex: the loops of the box in NumPy.

Those of :mod:`unknot.solvers.frank_wolfe` in the case where calls of torch would cost more than their arithmetic: least
squares or the logistic loss of a dense matrix in double precision, and vertices ±radius · e_i. Iterates, certificates
and results are theirs.
"""

import math
from typing import Any

import numpy as np
import scipy.special
import torch

from unknot.solvers.atoms import L1Ball, Simplex
from unknot.solvers.atoms.base import ROUNDING
from unknot.solvers.lines import ConvexLine, Line, QuadraticLine, StepSize
from unknot.solvers.objectives import CACHE_BYTES, REFRESH_EVERY, LeastSquares, Logistic
from unknot.solvers.problem import Problem, check_gradient
from unknot.solvers.result import Result, Run
from unknot.solvers.structured import ActiveSet, Decomposition, OneHot

EPS = float(np.finfo(float).eps)

REMEMBERED = 20_000
"""Entries of a matrix above which products AᵀA e_i are remembered; below, a new gradient costs less."""


def applies(problem: Problem) -> bool:
    """Whether the problem is of this module's kind."""
    f, atoms = problem.objective, problem.atoms
    if not (type(f) is LeastSquares or type(f) is Logistic) or type(atoms) not in (L1Ball, Simplex):
        return False  # a subclass has a loss of its own
    dense = not f.map.sparse and f.map.operator is None
    return dense and f.dtype == torch.float64 and f.device.type == "cpu"


class _Squares:
    """½ factor ‖Aθ - b‖² at θ: its residual and gradient, kept up to date."""

    def __init__(self, f: LeastSquares, x: np.ndarray) -> None:
        self.matrix: np.ndarray = f.map.matrix.numpy()
        self.columns, self.target = self.matrix.T, f.target.numpy()
        self.factor, self.length = f.factor, f.target_norm
        self.steep = EPS / 2 * f.factor * f.map.frobenius
        self.products: dict[int, np.ndarray] = {}
        self.linear: np.ndarray | None = None
        self.room = 0 if self.matrix.size <= REMEMBERED else max(64, CACHE_BYTES // (8 * sum(self.matrix.shape)))
        self.jump(x)

    def jump(self, x: np.ndarray) -> None:
        """All anew."""
        self.residual = self.matrix @ x - self.target
        self.slopes = self.factor * (self.columns @ self.residual)
        self.moves = 0

    def value(self) -> float:
        return self.factor * float(self.residual @ self.residual) / 2

    def error(self, x: np.ndarray) -> float:
        """How far the gradient may be off by rounding."""
        return self.steep * (math.sqrt(float(self.residual @ self.residual)) + self.length)

    def line(self, iterate: float, terms: list[tuple[float, int]], x: np.ndarray) -> Line:
        """f along iterate · θ + Σ weight · e_i."""
        (weight, i), *more = terms
        image = weight * self.columns[i]
        for weight, i in more:
            image += weight * self.columns[i]
        if iterate:
            image += iterate * (self.residual + self.target)
        slope, square = self.factor * float(self.residual @ image), self.factor * float(image @ image)
        return QuadraticLine(None, None, slope, lambda: square, image, bounded=True)  # type: ignore[arg-type]

    def move(self, line: Any, step: float, iterate: float, terms: list[tuple[float, int]]) -> None:
        """Along the line."""
        self.residual += step * line.image
        self.moves += 1
        if not self.room or not self._remember(terms):
            self.slopes = self.factor * (self.columns @ self.residual)
            return
        if iterate:
            if self.linear is None:
                self.linear = self.factor * (self.columns @ self.target)
            self.slopes *= 1 + step * iterate
            self.slopes += (step * iterate) * self.linear
        for weight, i in terms:
            self.slopes += (step * weight) * self.products[i]

    def _remember(self, terms: list[tuple[float, int]]) -> bool:
        for _, i in terms:
            if i not in self.products:
                if len(self.products) >= self.room:
                    return False
                self.products[i] = self.factor * (self.columns @ self.columns[i])
        return True


class _Logarithms:
    """The logistic loss at θ: its scores Aθ and gradient. A line remembers where it was last looked at."""

    def __init__(self, f: Logistic, x: np.ndarray) -> None:
        self.matrix: np.ndarray = f.map.matrix.numpy()
        self.columns, self.labels = self.matrix.T, f.labels.numpy()
        self.signs = None if f.signs is None else f.signs.numpy()
        self.factor, self.ridge = f.factor, f.ridge
        self.frobenius, self.samples = f.map.frobenius, math.sqrt(f.map.rows)
        self.jump(x)

    def loss(self, scores: np.ndarray) -> float:
        """Σ y log(1 + exp(-s)) + (1 - y) log(1 + exp(s))."""
        if self.signs is not None:
            return self.factor * float(np.logaddexp(0.0, self.signs * scores).sum())
        losses = self.labels * np.logaddexp(0.0, -scores) + (1 - self.labels) * np.logaddexp(0.0, scores)
        return self.factor * float(losses.sum())

    def derivatives(self, scores: np.ndarray) -> np.ndarray:
        """σ(s) - y, without a difference of numbers that are nearly equal."""
        if self.signs is not None:
            derivatives: np.ndarray = self.signs * scipy.special.expit(self.signs * scores)
        else:
            positive, negative = scipy.special.expit(scores), scipy.special.expit(-scores)
            derivatives = (1 - self.labels) * positive - self.labels * negative
        return self.factor * derivatives if self.factor != 1 else derivatives

    def jump(self, x: np.ndarray) -> None:
        """All anew."""
        self.scores, self.moves = self.matrix @ x, 0
        self._look(x, self.loss(self.scores))

    def _look(self, x: np.ndarray, loss: float) -> None:
        self.losses, self.rows = loss, self.derivatives(self.scores)
        self.slopes = self.columns @ self.rows
        self.squares = 0.0
        if self.ridge:
            self.slopes += self.ridge * x
            self.squares = self.ridge * float(x @ x) / 2

    def value(self) -> float:
        return self.losses + self.squares

    def error(self, x: np.ndarray) -> float:
        """How far the gradient may be off by rounding."""
        size = self.factor * self.frobenius * (self.samples + math.sqrt(float(self.scores @ self.scores)))
        return EPS / 2 * (size + self.ridge * math.sqrt(float(x @ x)))

    def line(self, iterate: float, terms: list[tuple[float, int]], x: np.ndarray) -> Line:
        """f along iterate · θ + Σ weight · e_i."""
        image = iterate * self.scores if iterate else np.zeros(len(self.scores))
        for weight, i in terms:
            image += weight * self.columns[i]
        linear = square = 0.0
        if self.ridge:
            d = iterate * x
            for weight, i in terms:
                d[i] += weight
            linear, square = self.ridge * float(x @ d), self.ridge * float(d @ d)
        start, here = self.losses, self.scores
        seen = self.seen = {}  # type: ignore[var-annotated]

        def change(step: float) -> float:
            if step not in seen:
                seen.clear()
                scores = here + step * image
                seen[step] = scores, self.loss(scores)
            change: float = seen[step][1] - start + step * (linear + step * square / 2)
            return change

        def derivative(step: float) -> float:
            scores = seen[step][0] if step in seen else here + step * image
            return float(self.derivatives(scores) @ image) + linear + step * square

        rounding = 100 * EPS * max(start, 1e-30)
        slope = float(self.rows @ image) + linear
        return ConvexLine(None, None, slope, change, derivative, rounding, image)  # type: ignore[arg-type]

    def move(self, line: Any, step: float, iterate: float, terms: list[tuple[float, int]]) -> None:
        """Along the line."""
        if step in self.seen:
            self.scores, loss = self.seen[step]
        else:
            self.scores = self.scores + step * line.image
            loss = self.loss(self.scores)
        self.moves += 1
        self.pending = loss


def solve(problem: Problem, variant: str, rule: StepSize, run: Run, start: Decomposition, track: bool) -> Result:
    """Plain, away and pairwise steps; see :func:`unknot.solvers.frank_wolfe.frank_wolfe`."""
    f, ball, n = problem.objective, problem.atoms, problem.zero.numel()
    radius, symmetric = float(ball.radius or 0.0), ball.symmetric
    # weights of +radius · e_i, and after them those of -radius · e_i
    weights = np.zeros(2 * n if symmetric else n)
    for weight, atom in start:
        assert isinstance(atom, OneHot)
        weights[atom.index + (n if atom.scale < 0 else 0)] += weight
    signs = np.concatenate([np.ones(n), -np.ones(n)])[: len(weights)]
    places = np.arange(len(weights)) % n

    def combine() -> np.ndarray:
        x: np.ndarray = radius * (weights[:n] - weights[n:] if symmetric else weights)
        return x

    x = combine() if problem.x0 is None else problem.x0.numpy()
    point: Any = (_Squares if isinstance(f, LeastSquares) else _Logarithms)(f, x)  # type: ignore[arg-type]
    lowest, spread = -math.inf, ROUNDING * EPS * math.sqrt(n) * radius
    while True:
        slopes, value = point.slopes, point.value()
        if symmetric:
            i = int(np.abs(slopes).argmax())
            z = i + n if slopes[i] > 0 else i
            best = -radius * abs(float(slopes[i]))
        else:
            z = i = int(slopes.argmin())
            best = radius * float(slopes[i])
        here = float(slopes @ x)
        if not math.isfinite(here):
            check_gradient(torch.from_numpy(slopes), run.iteration)
        steepness = math.sqrt(float(slopes @ slopes))
        gap = max(0.0, here - best + 4e-16 * abs(best) + spread * steepness + 2 * radius * point.error(x))
        if gap <= run.tolerance(value) and point.moves:
            point.jump(x)  # a certificate must not rest on accumulated rounding
            continue
        lowest = max(lowest, value - gap)
        shown: Any = torch.from_numpy(x) if run.callback is not None else x
        if run.finished(shown, value, gap):
            break
        scale = -radius if z >= n else radius
        iterate, terms, largest, dropped = -1.0, [(scale, i)], 1.0, -1
        square = -1.0
        if variant != "plain":
            active = np.flatnonzero(weights)
            scores = signs[active] * slopes[places[active]]
            v = int(active[scores.argmax()])
            share, j = float(weights[v]), int(places[v])
            away = radius * float(scores.max()) - here  # -⟨∇f, θ - v⟩
            other = -radius if v >= n else radius
            if variant == "pairwise":
                iterate, terms, largest, dropped = 0.0, [(scale, i), (-other, j)], share, v
                square = (scale - other) ** 2 if i == j else scale**2 + other**2
            elif share < 1.0 and away > here - best:
                iterate, terms, largest, dropped = 1.0, [(-other, j)], share / (1.0 - share), v
        line = point.line(iterate, terms, x)
        if square < 0:
            weight, k = terms[0]
            square = float(x @ x) + 2 * iterate * weight * float(x[k]) + weight**2
        line.__dict__["squared_norm"] = square
        gamma = rule(run.iteration - 1, line, largest)
        if gamma:
            if iterate:
                x *= 1 + gamma * iterate
            for weight, k in terms:
                x[k] += gamma * weight
            if variant != "plain" or track:
                if iterate:
                    weights *= 1 + gamma * iterate
                if dropped < 0 or variant == "pairwise":
                    weights[z] += gamma
                if dropped >= 0:
                    weights[dropped] -= gamma
                    if gamma >= largest or weights[dropped] <= 0:
                        weights[dropped] = 0.0
            point.move(line, gamma, iterate, terms)
            if isinstance(point, _Logarithms):
                point._look(x, point.pending)
            if point.moves >= REFRESH_EVERY:
                if variant != "plain":  # θ and its weights must not part
                    weights /= weights.sum()
                    x = combine()
                point.jump(x)
        if run.stalled(gamma > 0):
            break
    if variant == "plain" and not track:
        return run.result(torch.from_numpy(x), smoothness=rule.smoothness)
    numbered = np.flatnonzero(weights)
    parts = [
        (float(weights[v]), OneHot(float(signs[v]) * radius, k, k, (n,), torch.float64, problem.zero.device))
        for v, k in zip(numbered.tolist(), places[numbered].tolist(), strict=True)
    ]
    fields = ActiveSet(problem.zero, parts).export(problem.numpy, n)
    return run.result(torch.from_numpy(x), **{**fields, "smoothness": rule.smoothness})
