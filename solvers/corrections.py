"""Corrections of all weights at once: the subproblems of the fully-corrective and norm-corrective variants.

Each minimises over the weights of the active set, in conv(𝒮) (they sum to 1), cone(𝒮) (they are non-negative) or
lin(𝒮) (they are free).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from unknot.solvers.active import ActiveSet
from unknot.solvers.lines import unbounded
from unknot.solvers.objectives import Objective, Point, QuadraticObjective, SquaredDistance
from unknot.solvers.structured import Atom

HULL, CONE, SPAN = "hull", "cone", "span"

ROOM = 64
"""Atoms beyond twice the active set whose products a correction remembers."""

PATIENCE = 30
"""Iterations after which a correction whose own gap did not fall gives up: rounding is all that is left of it."""


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
        if float(np.linalg.norm(left)) <= 1e-9 * size and float(wanted @ direction) < 0:
            return direction, True  # rounding of a singular G may give a stationary point that is uphill
    except scipy.linalg.LinAlgError:
        pass
    centred = gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean() if hull else gram
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    parts = vectors.T @ wanted
    curved = values > 1e-12 * max(float(values[-1]), np.finfo(float).tiny)
    flat = vectors[:, ~curved] @ parts[~curved]
    if hull:
        flat -= flat.mean()  # the direction 1 is flat too, but leads out of the hull: what it has is rounding
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
    """argmin f over conv, cone or lin of 𝒮 for any smooth f, by sequential quadratic programming on the weights.

    The model of f has the slopes of the current weights and a Hessian learnt from earlier slopes (BFGS); its minimiser
    over the domain is exact, see :func:`quadratic_weights`. A step towards it is halved until f does not rise and its
    slope is not as steep as before (the approximate conditions of Hager and Zhang, 2005): near the optimum differences
    of f drown in rounding long before its gradients do. It stops when the weights' own duality gap is below ``tol``, or
    does not fall any more.
    """

    def __init__(self, objective: Objective, domain: str, tol: float, max_iterations: int = 1000) -> None:
        self._f, self._domain = objective, domain
        self._tol, self._max_iterations = max(tol, 1e-12), max_iterations
        self._smoothness = 1.0

    def _error(self, weights: np.ndarray, slopes: np.ndarray) -> float:
        """A gap over the weights' domain; over a cone or span, of the region around the current weights."""
        if self._domain == HULL:
            return float(slopes @ weights - slopes.min())
        size = 1.0 + float(np.abs(weights).sum())
        if self._domain == CONE:
            return abs(float(slopes @ weights)) + size * max(0.0, -float(slopes.min()))
        return size * float(np.abs(slopes).max())

    def _look(self, active: ActiveSet, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """f, and its slopes along the atoms; infinite where f is not defined."""
        x = active.combine(weights)
        if not is_inside(self._f, x):
            return math.inf, np.full(len(weights), math.inf)
        there = self._f.at(x)
        return there.value(), active.scores(there.gradient()).cpu().double().numpy()

    def _step(
        self, active: ActiveSet, weights: np.ndarray, value: float, slopes: np.ndarray, hessian: np.ndarray
    ) -> Any:
        """The weights after a step towards the minimiser of the model, with f and slopes; None if there is none."""
        direction = quadratic_weights(hessian, hessian @ weights - slopes, weights, self._domain) - weights
        descent, room = float(slopes @ direction), 1e-12 * max(1.0, abs(value))
        for halvings in range(50 if descent < 0 else 0):
            new = weights + 0.5**halvings * direction
            new_value, new_slopes = self._look(active, new)
            if new_value <= value + room and float(new_slopes @ direction) <= 0.8 * -descent:
                return new, new_value, new_slopes
        return None

    def solve(self, active: ActiveSet, point: Point, expired: Callable[[], bool] = lambda: False) -> np.ndarray:
        """An approximate minimiser, or the current weights if nothing was better."""
        weights, eye = active.weights.copy(), np.eye(len(active))
        value, slopes = self._look(active, weights)
        hessian, learnt = self._smoothness * eye, False
        lowest, since = math.inf, 0
        for _ in range(self._max_iterations):
            error = self._error(weights, slopes)
            lowest, since = (error, 0) if error < lowest else (lowest, since + 1)
            if error <= self._tol or since > PATIENCE or expired():
                break
            found = self._step(active, weights, value, slopes, hessian)
            if found is None:
                if not learnt:
                    break
                hessian, learnt = self._smoothness * eye, False  # what was learnt misleads: begin again
                continue
            move, change = found[0] - weights, found[2] - slopes
            curvature = float(move @ change)
            if curvature > 1e-12 * float(np.linalg.norm(move) * np.linalg.norm(change)):
                if not learnt:
                    self._smoothness = float(change @ change) / curvature
                    hessian = self._smoothness * eye
                image = hessian @ move
                hessian += np.outer(change, change) / curvature - np.outer(image, image) / float(move @ image)
                learnt = True
            weights, value, slopes = found
        return weights


def full_correction(objective: Objective, domain: str, tol: float) -> Correction:
    """The exact correction for quadratics, the iterative one for the rest."""
    if isinstance(objective, QuadraticObjective):  # which has the products that an exact correction needs
        return QuadraticCorrection(objective, domain)
    return GradientCorrection(objective, domain, tol / 10)
