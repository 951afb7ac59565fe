"""Theorems of the disentanglement chapters as executable constructions.

* *Theoretical impossibility* (chapter "Unsupervised Learning of Disentangled Representations"): :class:`Entangling`.
* *A perfect classifier need not be fair* (chapter "Fairness of Disentangled Representations"):
  :func:`perfect_classifier`.
* *Identifiability from pairs* (chapter "Weakly-Supervised Disentanglement"): :func:`isolation_probability`,
  :func:`shared_coordinates`, and the threshold heuristic of Ada-GVAE in :func:`heuristic_success`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.floating[Any]]
EDGE = 1e-15
"""Probabilities are kept this far from 0 and 1, where Φ⁻¹ is infinite."""


def reflection(dim: int, alpha: float) -> Floats:
    """Householder reflection A = I - 2 v vᵀ of the proof ``[dim, dim]``, without a zero entry.

    v₁ = √α and v_i = √((1-α)/(d-1)). The thesis prints A_ij = -v_i v_j off the diagonal; it is -2 v_i v_j. An α of 0 or
    1 would not change one coordinate, and ½ makes A₁₁ zero; the thesis uses α in (0, ½). For d = 2 the other diagonal
    entry, 2α - 1, then differs from zero as well; for d > 2 it is 1 - 2(1-α)/(d-1), zero at α = (3-d)/2 ≤ 0 only.

    >>> reflection(2, 0.25).round(3).tolist()
    [[0.5, -0.866], [-0.866, -0.5]]
    """
    if dim < 2:
        raise ValueError(f"Entangling needs at least two coordinates: dim must be at least 2, got {dim}.")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must lie strictly between 0 and 1/2, where no entry of A is zero; got {alpha}.")
    v = np.full(dim, np.sqrt((1 - alpha) / (dim - 1)))
    v[0] = np.sqrt(alpha)
    return np.eye(dim) - 2 * np.outer(v, v)


@dataclass(frozen=True)
class Entangling:
    """Bijection f(u) = g⁻¹(Φ(A Φ⁻¹(g(u)))) that mixes all coordinates of z and preserves its distribution.

    g are the marginal distribution functions, so g(z) is uniform and Φ⁻¹(g(z)) standard normal; A is a rotation or
    reflection, which preserves a standard normal; the inverse maps yield a variable with the distribution of z. Since
    the A of the thesis is its own inverse, so is f: **f(f(u)) = u**.

    Args:
        marginals: distribution of each coordinate, as frozen distributions of :mod:`scipy.stats`.
        alpha: parameter of the infinite family, in (0, ½).

    >>> f = Entangling([stats.uniform(), stats.expon()], alpha=0.3)
    >>> u = np.array([[0.2, 1.5]])
    >>> np.allclose(f(f(u)), u), bool((f.jacobian(u) != 0).all())
    (True, True)
    >>> np.allclose(abs(np.linalg.det(f.jacobian(u))) * f.density(f(u)), f.density(u), rtol=1e-12)
    True
    """

    marginals: Sequence[Any]
    alpha: float = (1 - np.sqrt(0.5)) / 2

    @property
    def matrix(self) -> Floats:
        """Matrix A ``[d, d]``."""
        return reflection(len(self.marginals), self.alpha)

    def __call__(self, u: Any) -> Floats:
        """Map points ``[N, d]``."""
        return self._from_normal(self._to_normal(self._points(u)) @ self.matrix.T)

    def sample(self, n: int, seed: int = 0) -> Floats:
        """Draw z ``[n, d]``."""
        rng = np.random.default_rng(seed)
        return np.stack([law.rvs(size=n, random_state=rng) for law in self.marginals], axis=1)

    def density(self, u: Any) -> Floats:
        """Return p(u) = Π p_i(u_i) of points ``[N, d]``, as ``[N]``."""
        columns = zip(self.marginals, self._points(u).T, strict=True)
        return np.prod([law.pdf(column) for law, column in columns], axis=0)

    def jacobian(self, u: Any) -> Floats:
        """Return ∂f_i/∂u_j = A_ij D_j(u) / D_i(f(u)) with D_i = p_i / φ(Φ⁻¹(g_i)), at points ``[N, d]``, as ``[N, d,
        d]``.
        """
        points = self._points(u)
        normal = self._to_normal(points)
        moved = normal @ self.matrix.T
        image = self._from_normal(moved)
        return self.matrix * (self._slope(points, normal)[:, None, :] / self._slope(image, moved)[:, :, None])

    def _points(self, u: Any) -> Floats:
        points = np.asarray(u, dtype=float)
        if points.ndim != 2 or points.shape[1] != len(self.marginals):
            raise ValueError(f"Points must be [N, {len(self.marginals)}], got {list(points.shape)}.")
        return points

    def _to_normal(self, points: Floats) -> Floats:
        # From the nearer tail: the distribution function loses precision close to one.
        columns = []
        for law, column in zip(self.marginals, points.T, strict=True):
            below, above = (np.clip(p, EDGE, 1) for p in (law.cdf(column), law.sf(column)))
            columns.append(np.where(below < 0.5, stats.norm.ppf(below), stats.norm.isf(above)))
        return np.stack(columns, axis=1)

    def _from_normal(self, normal: Floats) -> Floats:
        columns = []
        for law, column in zip(self.marginals, normal.T, strict=True):
            below = law.ppf(stats.norm.cdf(np.minimum(column, 0)))
            columns.append(np.where(column < 0, below, law.isf(stats.norm.sf(np.maximum(column, 0)))))
        return np.stack(columns, axis=1)

    def _slope(self, points: Floats, normal: Floats) -> Floats:
        density = [law.pdf(column) for law, column in zip(self.marginals, points.T, strict=True)]
        return np.stack(density, axis=1) / stats.norm.pdf(normal)


@dataclass(frozen=True)
class PerfectClassifier:
    """Predictions of an optimal classifier for two groups of a sensitive variable; see :func:`perfect_classifier`."""

    posterior: float
    """c = p(y = 1 | x = 0), also the rate of predicting 1 there."""
    rate: tuple[float, float]
    """p(ŷ = 1 | s = 0) and p(ŷ = 1 | s = 1)."""
    gap: float
    """Difference of the two rates; demographic parity is 0."""
    unfairness: float
    """1/|S| Σ_s TV(p(ŷ), p(ŷ | s)), the score of the chapter."""
    unfairness_weighted: float
    """The same with groups weighted by p(s)."""


def perfect_classifier(b: float = 0.5, q: float = 0.5, separated: bool = False) -> PerfectClassifier:
    """Example of the theorem: independent y ~ Bern(b) and s ~ Bern(q), of which only x = min(y, s) is observed.

    The classifier predicts p(y | x) exactly, as a perfectly calibrated one does. Although y and s are independent, its
    predictions depend on s, because x = 0 is less informative about y when s is likely to be 0.

    Args:
        b: p(y = 1).
        q: p(s = 1).
        separated: whether the disentangled code (y, s) is observed instead; the gap is then 0.

    >>> fair = perfect_classifier()
    >>> round(fair.posterior, 4), round(fair.gap, 4), round(fair.unfairness, 4)
    (0.3333, 0.3333, 0.1667)
    >>> perfect_classifier(separated=True).gap
    0.0
    """
    if not (0 < b < 1 and 0 < q < 1):
        raise ValueError(f"b and q must lie strictly between 0 and 1, got {b} and {q}.")
    if separated:
        return PerfectClassifier(0.0, (b, b), 0.0, 0.0, 0.0)
    posterior = (1 - q) * b / (1 - q * b)
    rate = (posterior, b + (1 - b) * posterior)
    overall = (1 - q) * rate[0] + q * rate[1]
    distance = [abs(r - overall) for r in rate]  # total variation of two Bernoulli distributions
    return PerfectClassifier(
        posterior,
        rate,
        rate[1] - rate[0],
        sum(distance) / 2,
        (1 - q) * distance[0] + q * distance[1],
    )


def isolation_probability(d: int, k: int) -> float:
    """P(S ∩ S′ = {i}) for two independent uniform sets of d - k shared factors, which must be positive in the theorem.

        C(d-1, d-k-1) C(k, d-k-1) / C(d, d-k)²

    It is positive if and only if k ≥ (d-1)/2, where k is the number of factors that change. As stated, the theorem of
    identifiability therefore does not cover one changed factor among four or more; see :func:`condition_holds`.

    >>> [isolation_probability(5, k).__round__(2) for k in (1, 2, 3, 4)]
    [0.0, 0.06, 0.12, 0.04]
    """
    if not 1 <= k < d:
        raise ValueError(f"k of d factors change, with 1 <= k < d; got k = {k} and d = {d}.")
    shared = d - k
    return comb(d - 1, shared - 1) * comb(k, shared - 1) / comb(d, shared) ** 2


def condition_holds(d: int, k: int) -> bool:
    """Return whether the theorem's condition holds for k changed factors of d, with sets drawn uniformly.

    The condition is sufficient but not necessary: if it fails, factors can still be identifiable, as for one changed
    factor among four.

    >>> condition_holds(3, 1), condition_holds(5, 1), condition_holds(5, 2)
    (True, False, True)
    """
    return isolation_probability(d, k) > 0


def is_identifiable(d: int, k: int) -> bool:
    """Deprecated name of :func:`condition_holds`."""
    warnings.warn(
        "is_identifiable is renamed: use condition_holds, as the condition is sufficient and not necessary.",
        DeprecationWarning,
        stacklevel=2,
    )
    return condition_holds(d, k)


def sample_pairs(marginals: Sequence[Any], k: int, n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Sample pairs of latents, each ``[n, d]``, that differ in k coordinates drawn uniformly for each pair.

    >>> first, second = sample_pairs([stats.norm()] * 4, k=1, n=100)
    >>> set((first != second).sum(1).tolist())
    {1}
    """
    isolation_probability(len(marginals), k)
    rng = np.random.default_rng(seed)
    first, fresh = (np.stack([law.rvs(size=n, random_state=rng) for law in marginals], axis=1) for _ in range(2))
    order = rng.random(first.shape).argsort(1)
    return first, np.where(order < k, fresh, first)


def shared_coordinates(first: Any, second: Any, tolerance: float = 1e-9) -> NDArray[np.integer[Any]]:
    """Number of coordinates in which two codes ``[N, d]`` agree, for each pair ``[N]``.

    Pairs separate what single observations cannot: the true codes of a pair share d - k coordinates, in any order and
    after any monotone maps; those of :class:`Entangling` share none.

    >>> shared_coordinates([[1.0, 2.0]], [[1.0, 3.0]]).tolist()
    [1]
    """
    a, b = (np.asarray(codes, dtype=float) for codes in (first, second))
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(f"Codes of pairs must both be [N, d], got {list(a.shape)} and {list(b.shape)}.")
    return (np.abs(a - b) <= tolerance).sum(1)


def threshold_shared(distance: Any) -> NDArray[np.bool_]:
    """Ada-GVAE's estimate of the shared coordinates: δ_i < ½ (max δ + min δ), for distances δ ``[N, d]``.

    >>> threshold_shared([[0.0, 0.1, 4.0], [0.0, 1.0, 4.0]]).tolist()
    [[True, True, False], [True, True, False]]
    """
    delta = np.asarray(distance, dtype=float)
    return delta < (delta.max(1, keepdims=True) + delta.min(1, keepdims=True)) / 2


def heuristic_success(sizes: Sequence[int], k: int, n: int = 100_000, seed: int = 0, keep_value: bool = True) -> float:
    """Share of pairs in which the threshold finds exactly the changed factors of a perfect code.

    The codes are the factor values in units of their standard deviation, with equal posterior variances, so that δ_i is
    proportional to the squared change. According to the thesis, the changes of a disentangled encoder are found for any
    k; this holds only for one factor, since a change below 1/√2 of the largest is not detected. Pairs that happen to be
    identical are left out.

    Args:
        sizes: number of values of each factor.
        k: number of resampled factors.
        n: number of pairs.
        seed: random seed.
        keep_value: whether a resampled factor may keep its old value, as in the pairs of the thesis; otherwise exactly
            k factors change.

    >>> heuristic_success((3, 6, 40, 32, 32), k=1, n=1000)
    1.0
    """
    isolation_probability(len(sizes), k)
    rng = np.random.default_rng(seed)
    values = np.asarray(sizes)
    first = rng.integers(values, size=(n, len(values)))
    redrawn = rng.random(first.shape).argsort(1) < k
    step = rng.integers(0 if keep_value else 1, values, size=first.shape)  # to a uniformly drawn value
    second = np.where(redrawn, (first + step) % values, first)
    changed = second != first
    delta = (second - first) ** 2 * 12 / (values**2 - 1)  # a uniform distribution on n values has variance (n² - 1)/12
    found = (threshold_shared(delta) == ~changed).all(1)
    return float(found[changed.any(1)].mean())
