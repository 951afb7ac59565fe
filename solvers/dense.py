"""Loops in NumPy for dense matrices in memory, where calls of torch would cost more than their arithmetic.

:func:`solve` has the plain, away and pairwise steps of :mod:`unknot.solvers.frank_wolfe` for least squares or the
logistic loss over an L1 ball or a simplex, :func:`orthogonal_pursuit` and :func:`nonnegative_pursuit` those of
:mod:`unknot.solvers.pursuit` and :mod:`unknot.solvers.cone` for one signal and a dictionary. Iterates, certificates and
results are theirs.
"""

import functools
import math
from typing import Any

import numpy as np
import scipy.linalg.lapack
import scipy.special
import torch

from unknot.solvers.atoms import Dictionary, L1Ball, Simplex
from unknot.solvers.atoms.base import ROUNDING
from unknot.solvers.corrections import CONE, quadratic_weights
from unknot.solvers.lines import ConvexLine, Line, QuadraticLine, StepSize
from unknot.solvers.objectives import CACHE_BYTES, REFRESH_EVERY, LeastSquares, Logistic, SquaredDistance
from unknot.solvers.result import ConeCertificate, Problem, Result, Run, check_gradient
from unknot.solvers.structured import ActiveSet, Decomposition, OneHot, norm, to_user

EPS = float(np.finfo(float).eps)

REMEMBERED = 20_000
"""Entries of a matrix above which products AᵀA e_i are remembered; below, a new gradient costs less."""


def applies(problem: Problem) -> bool:
    """Return whether this module can solve the problem."""
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
        """Recompute everything."""
        self.residual = self.matrix @ x - self.target
        self.slopes = self.factor * (self.columns @ self.residual)
        self.moves = 0

    def value(self) -> float:
        return self.factor * float(self.residual @ self.residual) / 2

    def error(self, x: np.ndarray) -> float:
        """Bound on the rounding error of the gradient."""
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
        """Move along the line."""
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
        """Recompute everything."""
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
        """Bound on the rounding error of the gradient."""
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
        """Move along the line."""
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
                if variant != "plain":  # rounding must not separate θ from its weights
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


DEPENDENT = 1e-12
"""Share of an atom's square outside the span of the chosen ones below which it counts as dependent on them."""

SINGLE = float(np.finfo(np.float32).eps) / 2


def applies_to_signal(problem: Problem) -> bool:
    """Return whether this module can solve the problem."""
    f, atoms = problem.objective, problem.atoms
    plain = isinstance(f, SquaredDistance) and f.mask is None and f.target.ndim == 1 and f.device.type == "cpu"
    return plain and isinstance(atoms, Dictionary) and not atoms.sparse and problem.x0 is None


class Signal:
    """y and the atoms as rows, as NumPy arrays of one dtype, and what a run says about its iterates."""

    def __init__(self, problem: Problem, run: Run) -> None:
        assert isinstance(problem.atoms, Dictionary)
        assert isinstance(problem.objective, SquaredDistance)
        self.atoms, self.run = problem.atoms, run
        self.rows: np.ndarray = self.atoms.dense_rows().numpy()
        self.y: np.ndarray = problem.objective.target.numpy()
        self.unit = float(np.finfo(self.y.dtype).eps)
        self.length = float(np.linalg.norm(self.y))

    def error(self, size: float) -> float:
        """Bound on the rounding error of the residual, for ‖θ‖ = ``size``."""
        return self.unit / 2 * (size + self.length)

    def finished(self, residual: np.ndarray, value: float, gap: float, stationary: bool) -> bool:
        """Record θ = y - residual; it is formed only for a callback."""
        shown = self.y - residual if self.run.callback is not None else residual
        return self.run.finished(torch.from_numpy(shown), value, gap, stationary)

    def result(self, chosen: list[int], weights: np.ndarray) -> Result:
        """θ, its atoms and their weights."""
        weights = weights.astype(self.y.dtype)
        x = weights @ self.rows[chosen] if chosen else np.zeros_like(self.y)
        coefficients = np.zeros(self.atoms.columns, self.y.dtype)
        coefficients[chosen] = weights
        kept = np.flatnonzero(weights)
        return self.run.result(
            torch.from_numpy(x),
            active=tuple(self.atoms.column(chosen[i]) for i in kept.tolist()),
            weights=to_user(torch.from_numpy(weights[kept]), self.run.numpy),
            coefficients=to_user(torch.from_numpy(coefficients), self.run.numpy),
        )


def orthogonal_pursuit(problem: Problem, run: Run) -> Result:
    """OMP by an orthonormal basis of the chosen atoms, which each new one extends (Gram-Schmidt, twice if needed)."""
    signal = Signal(problem, run)
    rows, y = signal.rows, signal.y
    basis, triangle, right = np.zeros((32, len(y)), y.dtype), np.zeros((32, 32), y.dtype), np.zeros(32, y.dtype)
    chosen: list[int] = []
    residual, fresh = y.copy(), True
    few = signal.atoms.columns < len(y)
    while True:
        wide = residual if residual.dtype == np.float64 else residual.astype(np.float64, copy=False)
        value = float(wide @ wide) / 2
        length = math.sqrt(2 * value)
        inside = norm(signal.atoms.span_part(torch.from_numpy(residual))) if few else length
        gap = (inside + signal.error(length + signal.length)) ** 2 / 2
        scores = rows @ residual
        index = int(np.abs(scores).argmax())
        new = rows[index]
        whole = math.sqrt(float(new @ new))
        k, stationary = len(chosen), index in chosen or len(chosen) == len(y)
        if not stationary:
            if k == len(right):
                basis, triangle = np.pad(basis, ((0, k), (0, 0))), np.pad(triangle, (0, k))
                right = np.pad(right, (0, k))
            triangle[:k, k] = 0
            for _ in range(2):
                inner = basis[:k] @ new
                new = new - inner @ basis[:k]
                triangle[:k, k] += inner
                size = math.sqrt(float(new @ new))
                if size > 0.7 * whole:
                    break  # little was taken away, so little accuracy was lost
            stationary = size <= 1e3 * signal.unit * whole
        if (gap <= run.tolerance(value) or stationary) and not fresh:
            residual, fresh = y - _solve(triangle, right, k).astype(y.dtype, copy=False) @ rows[chosen], True
            continue  # a certificate must not rest on accumulated rounding
        if signal.finished(residual, value, gap, stationary):
            break
        basis[k], triangle[k, k] = new / size, size
        right[k] = basis[k] @ residual
        residual, fresh = residual - right[k] * basis[k], False
        chosen.append(index)
    return signal.result(chosen, _solve(triangle, right, len(chosen)))


def _solve(triangle: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """The coefficients of the k chosen atoms."""
    if not k:
        return np.zeros(0)
    solved: np.ndarray = scipy.linalg.lapack.dtrtrs(triangle[:k, :k], right[:k])[0]
    return solved


class Factor:
    """The Cholesky factor of the Gram matrix of the chosen atoms: a row more for an atom more."""

    def __init__(self) -> None:
        self._lower = np.zeros((64, 64), order="F")
        self.size = 0

    def push(self, products: np.ndarray, square: float) -> bool:
        """An atom more, by its products with the others; False if it depends on them."""
        k = self.size
        row = scipy.linalg.lapack.dtrtrs(self._lower[:k, :k], products, lower=1)[0] if k else products
        pivot = square - float(row @ row)
        if pivot <= DEPENDENT * square:
            return False
        if k == len(self._lower):
            self._lower = np.asfortranarray(np.pad(self._lower, (0, k)))
        self._lower[k, :k], self._lower[k, k] = row, math.sqrt(pivot)
        self.size += 1
        return True

    def rebuild(self, gram: np.ndarray) -> bool:
        """Factorise another Gram matrix; False if it is singular."""
        factor, info = scipy.linalg.lapack.dpotrf(gram, lower=1)
        self.size = len(gram)
        self._lower = np.zeros((max(16, 2 * self.size),) * 2, order="F")
        self._lower[: self.size, : self.size] = factor
        return bool(info == 0 and (np.square(np.diag(factor)) > DEPENDENT * np.diag(gram)).all())

    def solve(self, right: np.ndarray) -> np.ndarray:
        """G⁻¹ right."""
        solved: np.ndarray = scipy.linalg.lapack.dpotrs(self._lower[: self.size, : self.size], right, lower=1)[0]
        return solved


class Weights:
    """argmin ½‖Σ w_i z_i - y‖² over w ≥ 0 of the chosen atoms, as they come and go: the inner loop of Lawson-Hanson."""

    def __init__(self, rows: np.ndarray, linear: np.ndarray, gram: np.ndarray | None) -> None:
        self._rows, self._linear, self._gram = rows, linear, gram
        self.chosen: list[int] = []
        self.values = np.zeros(0)
        self._factor: Factor | None = Factor()

    def products(self, index: int) -> np.ndarray:
        """Inner products with the chosen atoms, and the squared norm."""
        places = [*self.chosen, index]
        if self._gram is not None:
            return self._gram[index, places]
        return (self._rows[places] @ self._rows[index]).astype(np.float64, copy=False)

    def _block(self) -> np.ndarray:
        if self._gram is not None:
            return self._gram[np.ix_(self.chosen, self.chosen)]
        part = self._rows[self.chosen].astype(np.float64, copy=False)
        block: np.ndarray = part @ part.T
        return block

    def enter(self, index: int) -> bool:
        """The minimiser over the cone of the chosen atoms and one more; False if nothing moved."""
        before = dict(zip(self.chosen, self.values.tolist(), strict=True))
        *others, square = self.products(index)
        regular = self._factor is not None and self._factor.push(np.array(others), float(square))
        self.chosen.append(index)
        self.values = np.append(self.values, 0.0)
        if not regular or not self._descend():
            self._general()
        dropped = [i for i in before if i not in self.chosen]
        if dropped and self._factor is not None:
            self._readmit(dropped)
        return dict(zip(self.chosen, self.values.tolist(), strict=True)) != before

    def _descend(self) -> bool:
        """Go to the stationary point of the support, or as far as weights stay positive, dropping those that do not."""
        factor = self._factor
        assert factor is not None
        while True:
            target = factor.solve(self._linear[self.chosen])
            if (target > 0).all():
                self.values = target
                return True
            falling = np.flatnonzero(target <= 0)
            ratios = self.values[falling] / np.maximum(self.values[falling] - target[falling], np.finfo(float).tiny)
            share = float(ratios.min())
            moved = self.values + share * (target - self.values)
            moved[falling[ratios <= share * (1 + 1e-12)]] = 0.0
            kept = np.flatnonzero(moved > 0)
            self.chosen, self.values = [self.chosen[i] for i in kept], moved[kept]
            if not self.chosen:
                self._factor = Factor()
                return True
            if not factor.rebuild(self._block()):
                return False

    def _readmit(self, dropped: list[int]) -> None:
        """Atoms that left on the way, if f falls towards them after all."""
        for _ in range(len(dropped)):
            slopes = [float(self.products(i)[:-1] @ self.values - self._linear[i]) for i in dropped]
            best = int(np.argmin(slopes))
            if slopes[best] >= -1e-13 * float(np.abs(self._linear).max()):
                return
            *others, square = self.products(dropped[best])
            if self._factor is None or not self._factor.push(np.array(others), float(square)):
                return
            self.chosen.append(dropped.pop(best))
            self.values = np.append(self.values, 0.0)
            if not self._descend():
                self._general()
                return

    def _general(self) -> None:
        """Dependent atoms: the active-set method that allows a singular Gram matrix."""
        weights = quadratic_weights(self._block(), self._linear[self.chosen], self.values, CONE)
        kept = np.flatnonzero(weights > 0)
        self.chosen, self.values = [self.chosen[i] for i in kept], weights[kept]
        factor = Factor()
        self._factor = factor if not self.chosen or factor.rebuild(self._block()) else None


def nonnegative_pursuit(problem: Problem, certificate: ConeCertificate, run: Run) -> Result:
    """FCNNMP, Variant 1, which is the method of Lawson and Hanson.

    A matrix with no more columns than rows is squared once, so that gradients cost products with the chosen columns
    only. Another is screened in single precision for the steepest atom; bounds mind the rounding of either, and an
    iterate that may be the last is looked at in full.
    """
    signal = Signal(problem, run)
    rows, y = signal.rows, signal.y
    linear = (rows @ y).astype(np.float64, copy=False)
    gram = (rows @ rows.T).astype(np.float64, copy=False) if len(rows) <= len(y) else None
    single = rows.astype(np.float32) if gram is None and rows.dtype == np.float64 else None
    weights = Weights(rows, linear, gram)
    exact = False
    while True:
        chosen = weights.chosen
        x = weights.values.astype(y.dtype, copy=False) @ rows[chosen] if chosen else np.zeros_like(y)
        gradient = x - y
        wide = gradient.astype(np.float64, copy=False)
        value, slope = float(wide @ wide) / 2, float(wide @ x.astype(np.float64, copy=False))
        size, steep = math.sqrt(float(x @ x)), math.sqrt(2 * value)
        total = float(weights.values.sum())
        rounding = ROUNDING * math.sqrt(len(y)) * signal.unit * steep * signal.atoms.radius
        scores, lower, index = None, -math.inf, 0
        if not exact and gram is not None:
            scores = weights.values @ gram[chosen] - linear
            mass = signal.atoms.radius * (total * signal.atoms.radius + signal.length)
            rounding = ROUNDING * math.sqrt(len(y)) * signal.unit * mass
        elif not exact and single is not None:
            scores = single @ (wide / max(steep, np.finfo(float).tiny)).astype(np.float32)
            # a dot product of d terms, of inputs rounded first, is off by (d + 2) u ‖r‖ ‖z‖ at most
            rounding = (len(y) + 2) * SINGLE * steep * signal.atoms.radius
            scores = scores.astype(np.float64, copy=False) * steep
        if scores is not None:
            index = int(scores.argmin())
            lower = float(scores[index]) - rounding
            if scores[index] > -10 * rounding:
                scores = None  # near the end: too near to tell
        if scores is None:
            scores = rows @ gradient
            index = int(scores.argmin())
            rounding = ROUNDING * math.sqrt(len(y)) * signal.unit * steep * signal.atoms.radius
            lower = float(scores[index]) - rounding
        shrink = slope + ROUNDING * np.finfo(float).eps * math.sqrt(len(y)) * steep * size
        gap = certificate.gap(shrink, size, signal.error(size), lower, functools.partial(torch.from_numpy, gradient))
        if signal.finished(-gradient, value, gap, False):
            break
        moved = float(scores[index]) < 0 and weights.enter(index)
        if run.stalled(moved):
            break
        exact = not moved
    return signal.result(weights.chosen, weights.values)
