"""Corrections of all weights at once: the subproblems of the fully-corrective and norm-corrective variants.

Each minimises over the weights of the active set, in conv(𝒮) (they sum to 1), cone(𝒮) (they are non-negative) or
lin(𝒮) (they are free).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from unknot.solvers.lines import Direction, Point, StepSize, Unbounded, along, unbounded
from unknot.solvers.objectives import Objective, QuadraticObjective, SquaredDistance
from unknot.solvers.structured import ActiveSet, Atom

HULL, CONE, SPAN = "hull", "cone", "span"

ROOM = 64
"""Atoms beyond twice the active set whose products a correction remembers."""

PATIENCE = 30
"""Iterations after which a correction whose own gap did not fall gives up: rounding is all that is left of it."""


Root = tuple[np.ndarray, np.ndarray]
"""B ``[m, S]`` and t with G = BᵀB and c = Bᵀt, where the quadratic is ½‖Bw - t‖²: bounded below, whatever G says."""


def descent(
    gram: np.ndarray, slopes: np.ndarray, domain: str, noise: float, root: Root | None
) -> tuple[np.ndarray, bool]:
    """argmin_d ½ dᵀGd + ⟨slopes, d⟩ over free d, or over Σ d = 0 for a hull; or a direction in which it falls for ever.

    The second answer says which: True for a minimiser. On Σ d = 0 adding κ·11ᵀ to G changes nothing; it makes G regular
    wherever the atoms are affinely independent, be the origin one of them or not. Where G is singular the answer comes
    from B, which resolves what G squares away; without it there is a minimiser only if the part of the slopes outside
    the range of G is no more than their ``noise``.
    """
    hull = domain == HULL
    target = slopes - slopes.mean() if hull else slopes
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
        if float(np.linalg.norm(left)) <= 1e-9 * float(np.linalg.norm(target)) and float(target @ direction) < 0:
            return direction, True  # rounding of a singular G may give a stationary point that is uphill
    except scipy.linalg.LinAlgError:
        pass
    if root is not None:
        matrix, residual = root
        matrix = matrix - matrix.mean(1, keepdims=True) if hull else matrix
        direction = -np.linalg.lstsq(matrix, residual, rcond=None)[0]
        return (direction - direction.mean() if hull else direction), True
    centred = gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean() if hull else gram
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    parts = vectors.T @ target
    curved = values > max(1e-12, noise) * max(float(values[-1]), np.finfo(float).tiny)
    flat = vectors[:, ~curved] @ parts[~curved]
    if hull:
        flat -= flat.mean()  # the direction 1 is flat too, but leads out of the hull: what it has is rounding
    if float(np.linalg.norm(flat)) > 1e-9 * float(np.linalg.norm(target)) + noise:
        return -flat, False
    return -vectors[:, curved] @ (parts[curved] / values[curved]), True


def quadratic_weights(
    gram: np.ndarray,
    linear: np.ndarray,
    start: np.ndarray,
    domain: str,
    root: Root | None = None,
    blur: np.ndarray | None = None,
    unit: float = float(np.finfo(float).eps),
) -> np.ndarray:
    """argmin ½ wᵀGw - cᵀw over w ≥ 0 (and Σ w = 1 for a hull), from feasible weights; over all w for a span.

    The active-set method of Lawson and Hanson, and of Wolfe for the hull: go to the stationary point of the current
    support, or as far towards it as weights stay non-negative, dropping the one that becomes zero; then let in the
    atom of the most negative reduced gradient. Ends with the exact optimum after finitely many supports.

    Over a span or a cone G is scaled to a unit diagonal first, over a hull to one of at most 1, so that no tolerance
    depends on the units of the data.

    Args:
        gram, linear: G and c.
        start: the weights to begin with.
        domain: ``HULL``, ``CONE`` or ``SPAN``.
        root: B and t, where f has them.
        blur: √ of how wrong each diagonal entry of G may be by rounding; an atom with no more than that has no slope.
        unit: relative rounding of G and c.
    """
    squares = np.maximum(np.diag(gram), 0.0 if blur is None else np.square(blur))
    sizes = np.sqrt(np.full_like(squares, squares.max()) if domain == HULL else squares)
    sizes[sizes == 0] = 1.0
    # over a hull the weights stay as they are, which divides f by the square of the one size
    weights = np.array(start, dtype=float) * (1.0 if domain == HULL else sizes)
    gram, linear = gram / np.outer(sizes, sizes), linear / (sizes**2 if domain == HULL else sizes)
    noise = np.zeros_like(sizes) if blur is None else blur / sizes
    if root is not None:
        target = root[1] / (sizes[0] if domain == HULL else 1.0)
        root = root[0] / sizes, target
    problem = _Quadratic(gram, linear, domain, root, noise, 450 * unit)
    weights = problem.solve(weights)
    return weights / weights.sum() if domain == HULL else weights / sizes


class _Quadratic(NamedTuple):
    """½ wᵀGw - cᵀw of a G with unit diagonal, over a domain, with what rounding may have done to its terms."""

    gram: np.ndarray
    linear: np.ndarray
    domain: str
    root: Root | None
    blur: np.ndarray
    unit: float

    def _residual(self, weights: np.ndarray, places: np.ndarray) -> Root | None:
        """B of some places, and Bw - t."""
        if self.root is None:
            return None
        block = self.root[0][:, places]
        return block, block @ weights[places] - self.root[1]

    def solve(self, weights: np.ndarray) -> np.ndarray:
        """The minimiser, from weights of the domain."""
        gram, linear, domain = self.gram, self.linear, self.domain
        if domain == SPAN:
            slopes = gram @ weights - linear
            noise = self.unit * float(np.linalg.norm(np.abs(gram) @ np.abs(weights) + np.abs(linear)))
            root = self._residual(weights, np.arange(len(weights)))
            direction, bounded = descent(gram, slopes, domain, noise, root)
            if not bounded:
                raise unbounded()
            return weights + direction
        if domain == HULL and len(weights) == 1:
            return np.ones(1)
        refused = np.zeros(len(weights), dtype=bool)
        support = weights > 0
        for _ in range(10 * len(weights) + 10):
            if support.any():
                weights = self._descend(weights, support)
                support = weights > 0
            image = gram @ weights
            reduced = image - linear
            tol = self.unit * (np.abs(image) + np.abs(linear))
            if self.root is not None:
                tol = tol + self.blur * float(np.linalg.norm(self.root[0] @ weights - self.root[1]))
            if domain == HULL:
                reduced, tol = reduced - float(weights @ reduced), tol + float(weights @ tol)
            inviting = ~support & ~refused & (reduced < -tol)
            if not inviting.any():
                break
            entering = int(np.flatnonzero(inviting)[reduced[inviting].argmin()])
            trial = support.copy()
            trial[entering] = True
            after = self._descend(weights, trial)
            if after[entering] <= 0:
                refused[entering] = True  # only rounding said that it would help
                continue
            refused[:] = False
            weights, support = after, after > 0
        return weights

    def _descend(self, weights: np.ndarray, support: np.ndarray) -> np.ndarray:
        """Go to the minimum over the support, or as far as weights stay non-negative, dropping those that become 0."""
        weights, support = weights.copy(), support.copy()
        while support.any():
            places = np.flatnonzero(support)
            here, block, linear = weights[places], self.gram[np.ix_(places, places)], self.linear[places]
            image = block @ here
            slopes = image - linear
            if self.domain == HULL:
                slopes -= slopes.mean()
            rounding = max(float(np.abs(image).max()), float(np.abs(linear).max()))
            if float(np.abs(slopes).max()) <= 1e-15 * rounding:
                break  # nothing but rounding
            noise = self.unit * rounding * math.sqrt(len(places))
            direction, bounded = descent(block, slopes, self.domain, noise, self._residual(weights, places))
            falling = np.flatnonzero(direction < 0)
            ratios = here[falling] / -direction[falling]
            limit = float(ratios.min()) if len(ratios) else math.inf
            if bounded and limit > 1:
                weights[places] = here + direction
                break
            if math.isinf(limit):
                if self.domain == HULL or not np.any(direction):
                    break
                raise unbounded()
            moved = np.maximum(here + limit * direction, 0.0)
            moved[falling[ratios <= limit * (1 + 1e-12)]] = 0.0
            if self.domain == HULL and not moved.any():
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
        """Σ α_i B z_i of the new weights, where the images of the atoms are known: see :meth:`Point.land`."""
        return None

    def apply(self, active: ActiveSet, point: Point, z: Atom | None, expired: Callable[[], bool]) -> bool:
        """Compute all weights again, z among them, and move the point there; False if nothing changed."""
        before = active.by_identity()
        if z is not None:
            active.add(z, 0.0)
        if len(active):
            active.set_weights(self.solve(active, point, expired))
        point.land(active.combine(), self.image(active))
        return active.by_identity() != before


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
        self._linear, self._blur = np.zeros(16), np.zeros(16)

    def _place(self, atom: Atom) -> int:
        place = self._places.get(atom.identity)
        if place is not None:
            return place
        place = len(self._atoms)
        image = self._f.image(atom).double()
        if place == len(self._linear):
            self._gram = np.pad(self._gram, (0, place))
            self._linear, self._blur = np.pad(self._linear, (0, place)), np.pad(self._blur, (0, place))
        if self._images is None or place == len(self._images):
            room = image.new_empty((2 * max(place, 8), len(image)))
            if self._images is not None:
                room[:place] = self._images
            self._images = room
        self._images[place] = image
        self._atoms.append(atom)
        products = self._f.inner_products(self._images[: place + 1], image, self._atoms).cpu().numpy()
        self._gram[place, : place + 1] = self._gram[: place + 1, place] = products
        self._linear[place], self._blur[place] = self._f.linear(atom, image), self._f.blur(atom, image)
        self._places[atom.identity] = place
        return place

    def _keep(self, places: list[int]) -> None:
        assert self._images is not None
        self._atoms = [self._atoms[place] for place in places]
        self._places = {atom.identity: place for place, atom in enumerate(self._atoms)}
        self._images = self._images[places].clone()
        self._gram, self._linear = self._gram[np.ix_(places, places)], self._linear[places]
        self._blur = self._blur[places]

    def _active(self, active: ActiveSet) -> list[int]:
        """The places of the active atoms."""
        if len(self._atoms) > 2 * len(active) + ROOM:
            self._keep([self._place(atom) for atom in active.atoms])
        return [self._place(atom) for atom in active.atoms]

    def gram(self, active: ActiveSet) -> np.ndarray:
        """⟨z_i, H z_j⟩ of the active atoms."""
        places = self._active(active)
        return self._gram[np.ix_(places, places)]

    def minimise(self, active: ActiveSet, linear: np.ndarray | None = None, target: Tensor | None = None) -> np.ndarray:
        """Weights of the minimiser; of another linear term, and the target it comes from, if given."""
        places = self._active(active)
        linear = self._linear[places] if linear is None else linear
        target, root = self._f.root_target() if target is None else target, None
        if target is not None and self._images is not None:
            root = self._images[places].t().cpu().numpy(), target.double().cpu().numpy()
        gram, start = self._gram[np.ix_(places, places)], active.weights
        return quadratic_weights(gram, linear, start, self._domain, root, self._blur[places], self._f.unit)

    def image(self, active: ActiveSet) -> Tensor | None:
        if self._images is None or not len(active):
            return None
        weights = np.zeros(len(self._atoms))
        weights[[self._places[atom.identity] for atom in active.atoms]] = active.weights
        image = torch.from_numpy(weights).to(self._images) @ self._images[: len(self._atoms)]
        return image.to(self._f.dtype)

    def solve(self, active: ActiveSet, point: Point, expired: Callable[[], bool] = lambda: False) -> np.ndarray:
        weights = self.minimise(active)
        if self._domain != SPAN:  # over few atoms the change of f is known better than f itself
            places = self._active(active)
            gram, linear = self._gram[np.ix_(places, places)], self._linear[places]
            move = weights - active.weights
            change = float(move @ (gram @ (active.weights + move / 2) - linear))
            if change > 1e-14 * abs(float(linear @ weights)):
                return active.weights.copy()
        return weights


def is_inside(objective: Objective, x: Tensor) -> bool:
    """Return whether f is defined at x."""
    return objective.domain is None or bool(objective.domain(x))


class NormCorrection(Correction):
    """argmin ‖θ - (θ_k - ∇f(θ_k)/L)‖² over conv or cone of 𝒮: only L is asked of f (Variant 0 of the boxes).

    An L that turns out too small is doubled until f lies below its quadratic bound at the new iterate; an unknown one
    is found so, and let down by a tenth each time.
    """

    def __init__(self, objective: Objective, zero: Tensor, smoothness: float | None, domain: str) -> None:
        self._f, self._domain = objective, domain
        self.smoothness = smoothness if smoothness is not None else objective.smoothness
        self._unknown = self.smoothness is None
        self._distances = QuadraticCorrection(SquaredDistance(zero.clone()), domain)

    def solve(self, active: ActiveSet, point: Point, expired: Callable[[], bool] = lambda: False) -> np.ndarray:
        if self.smoothness is None:
            self.smoothness = first_curvature(active, point, self._domain)
        elif self._unknown:
            self.smoothness *= 0.9
        gram, gradient = self._distances.gram(active), point.gradient()
        here, slopes = gram @ active.weights, active.scores(gradient).cpu().double().numpy()
        value, unit = point.value(), float(torch.finfo(point.x.dtype).eps)
        for _ in range(200):
            target = point.x.double() - gradient.double() / self.smoothness
            weights = self._distances.minimise(active, here - slopes / self.smoothness, target.reshape(-1))
            move = weights - active.weights
            slack = 100 * unit * (abs(value) + float(np.abs(slopes) @ np.abs(move)))
            bound = value + float(slopes @ move) + self.smoothness / 2 * float(move @ gram @ move)
            there = active.combine(weights)
            if is_inside(self._f, there) and self._f.at(there).value() <= bound + slack:
                return weights
            self.smoothness *= 2
            if expired():
                break
        return active.weights.copy()


def first_curvature(active: ActiveSet, point: Point, domain: str) -> float:
    """⟨d, ∇²f d⟩ / ‖d‖² towards the newest atom: a first guess at L that has the units of f."""
    newest = active.atoms[-1]
    line = point.along(Direction(-1.0, ((1.0, newest),)) if domain == HULL else along(newest))
    if domain == SPAN and line.slope > 0:
        line = point.along(along(newest, -1.0))
    if domain != HULL and line.slope < 0:
        line.check_bounded()
    return StepSize.guess(line, line.squared_norm) if line.squared_norm > 0 and line.slope < 0 else 1.0


class GradientCorrection(Correction):
    """argmin f over conv, cone or lin of 𝒮 for any smooth f, by sequential quadratic programming on the weights.

    The model of f has the slopes of the current weights and a Hessian learnt from earlier slopes (BFGS); its minimiser
    over the domain is exact, see :func:`quadratic_weights`. A step towards it is halved until f does not rise and its
    slope is not as steep as before (the approximate conditions of Hager and Zhang, 2005): near the optimum differences
    of f drown in rounding long before its gradients do. It stops when the weights' own duality gap is below ``tol`` or
    what rounding in the dtype of f leaves of it, or does not fall any more.
    """

    def __init__(self, objective: Objective, domain: str, tol: float, max_iterations: int = 1000) -> None:
        self._f, self._domain = objective, domain
        self._tol, self._max_iterations = tol, max_iterations
        self._smoothness: float | None = None
        self._largest = 1.0 if domain == HULL else 0.0

    def _error(self, weights: np.ndarray, slopes: np.ndarray) -> float:
        """A gap over the weights' domain; over a cone or span, of the region around the current weights."""
        if self._domain == HULL:
            return float(slopes @ weights - slopes.min())
        assert self._smoothness is not None
        size = float(np.abs(slopes).max()) / self._smoothness + float(np.abs(weights).sum())
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
        self, active: ActiveSet, weights: np.ndarray, value: float, slopes: np.ndarray, hessian: np.ndarray, unit: float
    ) -> Any:
        """The weights after a step towards the minimiser of the model, with f and slopes; None if there is none."""
        try:
            direction = quadratic_weights(hessian, hessian @ weights - slopes, weights, self._domain) - weights
        except Unbounded:  # of the model, which rounding made singular
            return None
        descent, room = float(slopes @ direction), 4500 * unit * abs(value)
        halvings = round(-math.log2(unit)) if descent < 0 else 0  # a shorter step does not change the weights
        for halving in range(halvings):
            new = weights + 0.5**halving * direction
            new_value, new_slopes = self._look(active, new)
            if new_value <= value + room and float(new_slopes @ direction) <= 0.8 * -descent:
                return new, new_value, new_slopes
        return None

    def solve(self, active: ActiveSet, point: Point, expired: Callable[[], bool] = lambda: False) -> np.ndarray:
        """An approximate minimiser, or the current weights if nothing was better."""
        weights, eye = active.weights.copy(), np.eye(len(active))
        unit = float(torch.finfo(point.x.dtype).eps)
        value, slopes = self._look(active, weights)
        if self._smoothness is None:
            squares = [atom.squared_norm for atom in active.atoms]
            self._smoothness = first_curvature(active, point, self._domain) * (max(squares) or 1.0)
        hessian, learnt = self._smoothness * eye, False
        lowest, since = math.inf, 0
        for _ in range(self._max_iterations):
            error = self._error(weights, slopes)
            self._largest = max(self._largest, error)  # over a cone or span ``tol`` is a share of this, if below 1
            lowest, since = (error, 0) if error < lowest else (lowest, since + 1)
            floor = 10 * unit * (abs(value) + float(np.abs(slopes) @ np.abs(weights)))
            if error <= max(self._tol * min(1.0, self._largest), floor) or since > PATIENCE or expired():
                break
            step = self._step(active, weights, value, slopes, hessian, unit)
            if step is None:
                if not learnt:
                    break
                hessian, learnt = self._smoothness * eye, False  # the learnt Hessian misleads: start again
                continue
            move, change = step[0] - weights, step[2] - slopes
            curvature = float(move @ change)
            if curvature > 1e-12 * float(np.linalg.norm(move) * np.linalg.norm(change)):
                if not learnt:
                    self._smoothness = float(change @ change) / curvature
                    hessian = self._smoothness * eye
                image = hessian @ move
                hessian += np.outer(change, change) / curvature - np.outer(image, image) / float(move @ image)
                learnt = True
            weights, value, slopes = step
        return weights


def full_correction(objective: Objective, domain: str, tol: float) -> Correction:
    """The exact correction for quadratics, the iterative one for the rest."""
    if isinstance(objective, QuadraticObjective):  # which has the products that an exact correction needs
        return QuadraticCorrection(objective, domain)
    return GradientCorrection(objective, domain, tol / 10)
