"""Corrections of all weights at once: the subproblems of the fully-corrective and norm-corrective variants.

Each minimises over the weights of the active set, in conv(𝒮) (they sum to 1), cone(𝒮) (they are non-negative) or
lin(𝒮) (they are free).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable

import numpy as np
import scipy.linalg
import scipy.optimize
import torch
from torch import Tensor

from unknot.solvers.active import ActiveSet
from unknot.solvers.lines import unbounded
from unknot.solvers.objectives import Objective, Point, QuadraticObjective, SquaredDistance
from unknot.solvers.structured import Atom

HULL, CONE, SPAN = "hull", "cone", "span"

ROOM = 64
"""Atoms beyond twice the active set whose products a correction remembers."""


def descent(gram: np.ndarray, slopes: np.ndarray, domain: str) -> tuple[np.ndarray, bool]:
    """argmin_d ½ dᵀGd + ⟨slopes, d⟩ over free d, or over Σ d = 0 for a hull; or a direction in which it falls for ever.

    The second answer says which: True for a minimiser. On Σ d = 0 adding κ·11ᵀ to G changes nothing; it makes G regular
    wherever the atoms are affinely independent, be the origin one of them or not. Where G is singular there is a
    minimiser only if the slopes lie in its range; their part outside leads down without end.
    """
    hull = domain == HULL
    wanted = slopes - slopes.mean() if hull else slopes
    size = float(np.linalg.norm(wanted))
    shifted = gram + max(float(np.trace(gram)) / len(gram), np.finfo(float).tiny) if hull else gram
    right = np.stack([slopes, np.ones_like(slopes)], axis=1) if hull else slopes[:, None]
    try:
        solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(shifted, check_finite=False), right, check_finite=False)
        direction = -solved[:, 0]
        if hull:
            direction += solved[:, 0].sum() / solved[:, 1].sum() * solved[:, 1]
        left = gram @ direction + slopes
        if hull:
            left -= left.mean()
        if float(np.linalg.norm(left)) <= 1e-9 * size:
            return direction, True
    except scipy.linalg.LinAlgError:
        pass
    centred = gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean() if hull else gram
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    parts = vectors.T @ wanted
    curved = values > 1e-12 * max(float(values[-1]), np.finfo(float).tiny)
    flat = vectors[:, ~curved] @ parts[~curved]
    if float(np.linalg.norm(flat)) > 1e-9 * size:
        return -flat, False
    return -vectors[:, curved] @ (parts[curved] / values[curved]), True


def quadratic_weights(gram: np.ndarray, linear: np.ndarray, start: np.ndarray, domain: str) -> np.ndarray:
    """argmin ½ wᵀGw - cᵀw over w ≥ 0 (and Σ w = 1 for a hull), from feasible weights.

    The active-set method of Lawson and Hanson, and of Wolfe for the hull: go to the stationary point of the current
    support, or as far towards it as weights stay non-negative, dropping the one that becomes zero; then let in the
    atom of the most negative reduced gradient. Ends with the exact optimum after finitely many supports.
    """
    weights = np.array(start, dtype=float)
    if domain == SPAN:
        direction, bounded = descent(gram, gram @ weights - linear, domain)
        if not bounded:
            raise unbounded()
        return weights + direction
    if domain == HULL and len(weights) == 1:
        return np.ones(1)
    tol = 1e-13 * max(float(np.abs(linear).max()), float(np.diag(gram).max()), np.finfo(float).tiny)
    refused = np.zeros(len(weights), dtype=bool)
    support = weights > 0
    for _ in range(10 * len(weights) + 10):
        if support.any():
            weights = _descend(gram, linear, weights, support, domain)
            support = weights > 0
        reduced = gram @ weights - linear
        if domain == HULL:
            reduced -= float(weights @ reduced)
        outside = ~support & ~refused
        if not outside.any():
            break
        entering = int(np.flatnonzero(outside)[reduced[outside].argmin()])
        if reduced[entering] >= -tol:
            break
        trial = support.copy()
        trial[entering] = True
        after = _descend(gram, linear, weights, trial, domain)
        if after[entering] <= 0:
            refused[entering] = True  # only rounding said that it would help
            continue
        refused[:] = False
        weights, support = after, after > 0
    return weights / weights.sum() if domain == HULL else weights


def _descend(gram: np.ndarray, linear: np.ndarray, weights: np.ndarray, support: np.ndarray, domain: str) -> np.ndarray:
    """To the minimum over the support, or downhill as far as weights stay non-negative, dropping what becomes zero."""
    weights, support = weights.copy(), support.copy()
    while support.any():
        places = np.flatnonzero(support)
        here, block = weights[places], gram[np.ix_(places, places)]
        image = block @ here
        slopes = image - linear[places]
        if domain == HULL:
            slopes -= slopes.mean()
        if float(np.abs(slopes).max()) <= 1e-15 * max(float(np.abs(image).max()), float(np.abs(linear[places]).max())):
            break  # nothing but rounding
        direction, bounded = descent(block, slopes, domain)
        falling = np.flatnonzero(direction < 0)
        ratios = here[falling] / -direction[falling]
        limit = float(ratios.min()) if len(ratios) else math.inf
        if bounded and limit > 1:
            weights[places] = here + direction
            break
        if math.isinf(limit):
            if domain == HULL or not np.any(direction):
                break
            raise unbounded()
        share = min(1.0, limit) if bounded else limit
        moved = np.maximum(here + share * direction, 0.0)
        moved[falling[ratios <= share * (1 + 1e-12)]] = 0.0
        if domain == HULL and not moved.any():
            break
        weights[places] = moved
        support[places[moved <= 0]] = False
    return weights


def project_on_simplex(weights: np.ndarray) -> np.ndarray:
    """The nearest point of {w ≥ 0, Σ w = 1}, by sorting.

    >>> project_on_simplex(np.array([2.0, 1.5, -1.0]))
    array([0.75, 0.25, 0.  ])
    """
    ordered = np.sort(weights)[::-1]
    thresholds = (np.cumsum(ordered) - 1.0) / np.arange(1, len(weights) + 1)
    above = np.flatnonzero(ordered > thresholds)
    if not len(above):
        raise ValueError("the weights are not finite: expected an objective that is finite around its iterates.")
    threshold = thresholds[above[-1]]
    return np.maximum(weights - threshold, 0.0)


class Correction(ABC):
    """Finds the best weights of an active set."""

    @abstractmethod
    def solve(self, active: ActiveSet, point: Point, expired: Callable[[], bool] = lambda: False) -> np.ndarray:
        """New weights, no worse than the current ones, which lead to the point; early once the time is up."""

    def image(self, active: ActiveSet) -> Tensor | None:
        """Σ α_i B z_i of the new weights, where the images of the atoms are at hand: see :meth:`Point.land`."""
        return None


class QuadraticCorrection(Correction):
    """argmin f over conv, cone or lin of 𝒮 for a quadratic f, exactly, by its Gram matrix over the atoms.

    Inner products are computed once for every pair of atoms that meet. Atoms that have left the active set are
    forgotten once they outnumber it, so that memory grows with the active set and not with the iterations.
    """

    def __init__(self, objective: QuadraticObjective, domain: str) -> None:
        self._f, self._domain = objective, domain
        self._places: dict[Hashable, int] = {}
        self._atoms: list[Atom] = []
        self._images: Tensor | None = None
        self._gram = np.zeros((16, 16))
        self._linear = np.zeros(16)

    def _place(self, atom: Atom) -> int:
        place = self._places.get(atom.identity)
        if place is not None:
            return place
        place = len(self._atoms)
        image = self._f.image(atom)
        if place == len(self._linear):
            self._gram = np.pad(self._gram, (0, place))
            self._linear = np.pad(self._linear, (0, place))
        if self._images is None or place == len(self._images):
            room = image.new_empty((2 * max(place, 8), len(image)))
            if self._images is not None:
                room[:place] = self._images
            self._images = room
        self._images[place] = image
        self._atoms.append(atom)
        products = self._f.inner_products(self._images[: place + 1], image, self._atoms).cpu().double().numpy()
        self._gram[place, : place + 1] = self._gram[: place + 1, place] = products
        self._linear[place] = self._f.linear(atom, image)
        self._places[atom.identity] = place
        return place

    def _keep(self, places: list[int]) -> None:
        assert self._images is not None
        self._atoms = [self._atoms[place] for place in places]
        self._places = {atom.identity: place for place, atom in enumerate(self._atoms)}
        self._images = self._images[places].clone()
        self._gram, self._linear = self._gram[np.ix_(places, places)], self._linear[places]

    def terms(self, active: ActiveSet) -> tuple[np.ndarray, np.ndarray]:
        """Gram matrix and linear term over the active atoms."""
        if len(self._atoms) > 2 * len(active) + ROOM:
            self._keep([self._place(atom) for atom in active.atoms])
        places = [self._place(atom) for atom in active.atoms]
        return self._gram[np.ix_(places, places)], self._linear[places]

    def image(self, active: ActiveSet) -> Tensor | None:
        """From those of the atoms."""
        if self._images is None or not len(active):
            return None
        weights = np.zeros(len(self._atoms))
        weights[[self._places[atom.identity] for atom in active.atoms]] = active.weights
        return torch.from_numpy(weights).to(self._images) @ self._images[: len(self._atoms)]

    def solve(self, active: ActiveSet, point: Point, expired: Callable[[], bool] = lambda: False) -> np.ndarray:
        """The exact minimiser."""
        gram, linear = self.terms(active)
        weights = quadratic_weights(gram, linear, active.weights, self._domain)
        if self._domain != SPAN:  # over few atoms the change of f is known better than f itself
            move = weights - active.weights
            change = float(move @ (gram @ (active.weights + move / 2) - linear))
            if change > 1e-14 * abs(float(linear @ weights)):
                return active.weights.copy()
        return weights


def is_inside(objective: Objective, x: Tensor) -> bool:
    """Whether f is defined at x."""
    return objective.domain is None or bool(objective.domain(x))


class NormCorrection(Correction):
    """argmin ‖θ - (θ_k - ∇f(θ_k)/L)‖² over conv or cone of 𝒮: only L is asked of f (Variant 0 of the boxes).

    An L that turns out too small is doubled until f lies below its quadratic bound at the new iterate; an unknown one
    is found so, and let down by a tenth each time.
    """

    def __init__(self, objective: Objective, zero: Tensor, smoothness: float | None, domain: str) -> None:
        self._f, self._domain = objective, domain
        known = smoothness if smoothness is not None else objective.smoothness
        self.smoothness = 1.0 if known is None else known
        self._unknown = known is None
        self._distances = QuadraticCorrection(SquaredDistance(zero.clone()), domain)

    def solve(self, active: ActiveSet, point: Point, expired: Callable[[], bool] = lambda: False) -> np.ndarray:
        """The projection of a gradient step."""
        if self._unknown:
            self.smoothness *= 0.9
        gram, _ = self._distances.terms(active)
        here, slopes = gram @ active.weights, active.scores(point.gradient()).cpu().double().numpy()
        value = point.value()
        slack = 1e-12 * max(1.0, abs(value)) + 100 * float(torch.finfo(point.x.dtype).eps) * abs(value)
        while True:
            weights = quadratic_weights(gram, here - slopes / self.smoothness, active.weights, self._domain)
            move = weights - active.weights
            bound = value + float(slopes @ move) + self.smoothness / 2 * float(move @ gram @ move)
            there = active.combine(weights)
            if is_inside(self._f, there) and self._f.at(there).value() <= bound + slack:
                return weights
            self.smoothness *= 2
            if self.smoothness > 1e30 or expired():
                return active.weights.copy()


class GradientCorrection(Correction):
    """argmin f over conv, cone or lin of 𝒮 for any smooth f, by accelerated projected gradients on the weights.

    Over a cone or span L-BFGS-B goes first. FISTA with backtracking and restarts ends it, both decided by gradients:
    near the optimum differences of f drown in rounding long before its gradients do. It stops when the weights' own
    duality gap is below ``tol``.
    """

    def __init__(self, objective: Objective, domain: str, tol: float, max_iterations: int = 2000) -> None:
        self._f, self._domain = objective, domain
        self._tol, self._max_iterations = max(tol, 1e-12), max_iterations
        self._smoothness = 1.0

    def _project(self, weights: np.ndarray) -> np.ndarray:
        if self._domain == HULL:
            return project_on_simplex(weights)
        return np.maximum(weights, 0.0) if self._domain == CONE else weights

    def _error(self, weights: np.ndarray, slopes: np.ndarray) -> float:
        """A gap over the weights' domain; over a cone or span, of the region around the current weights."""
        if self._domain == HULL:
            return float(slopes @ weights - slopes.min())
        size = 1.0 + float(np.abs(weights).sum())
        if self._domain == CONE:
            return abs(float(slopes @ weights)) + size * max(0.0, -float(slopes.min()))
        return size * float(np.abs(slopes).max())

    def _slopes(self, active: ActiveSet, weights: np.ndarray) -> np.ndarray:
        slopes: np.ndarray = active.scores(self._f.at(active.combine(weights)).gradient()).cpu().double().numpy()
        return slopes

    def _step(self, active: ActiveSet, ahead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A projected gradient step and the slopes there; by convexity the test implies the quadratic bound."""
        slopes = self._slopes(active, ahead)
        self._smoothness *= 0.9
        while True:
            new = self._project(ahead - slopes / self._smoothness)
            move = new - ahead
            new_slopes = self._slopes(active, new) if self._inside(active, new) else np.full_like(slopes, np.nan)
            length = float(np.linalg.norm(move))
            rounding = 1e-13 * float(np.linalg.norm(slopes)) * length
            if float((new_slopes - slopes) @ move) <= self._smoothness / 2 * length**2 + rounding:
                return new, new_slopes
            self._smoothness *= 2
            if self._smoothness > 1e30:
                return ahead, slopes

    def _inside(self, active: ActiveSet, weights: np.ndarray) -> bool:
        return is_inside(self._f, active.combine(weights))

    def _approach(self, active: ActiveSet) -> np.ndarray:
        """Most of the way over a cone or span, where L-BFGS-B can go and minds bad conditioning less."""

        def value_and_slopes(weights: np.ndarray) -> tuple[float, np.ndarray]:
            there = self._f.at(active.combine(weights))
            return there.value(), active.scores(there.gradient()).cpu().double().numpy()

        found = scipy.optimize.minimize(
            value_and_slopes,
            active.weights.copy(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * len(active) if self._domain == CONE else None,
            options={"ftol": 0.0, "gtol": self._tol, "maxiter": self._max_iterations},
        )
        weights: np.ndarray = found.x
        return weights

    def solve(self, active: ActiveSet, point: Point, expired: Callable[[], bool] = lambda: False) -> np.ndarray:
        """An approximate minimiser, or the current weights if nothing was better."""
        before = active.weights.copy()
        weights = ahead = before if self._domain == HULL else self._approach(active)
        momentum = 1.0
        for _ in range(self._max_iterations):
            if expired():
                break
            if not self._inside(active, ahead):
                ahead, momentum = weights, 1.0
            new, slopes = self._step(active, ahead)
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            if float((ahead - new) @ (new - weights)) > 0:  # momentum points uphill
                following = momentum = 1.0
            ahead = new + (momentum - 1) / following * (new - weights)
            weights, momentum = new, following
            if self._error(weights, slopes) <= self._tol:
                break
        value = point.value()
        room = 1e-12 * max(1.0, abs(value))
        return weights if self._f.at(active.combine(weights)).value() <= value + room else before


def full_correction(objective: Objective, domain: str, tol: float) -> Correction:
    """The exact correction for quadratics, the iterative one for the rest."""
    if isinstance(objective, QuadraticObjective):  # which has the products that an exact correction needs
        return QuadraticCorrection(objective, domain)
    return GradientCorrection(objective, domain, tol / 10)
