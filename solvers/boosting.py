"""Boosting variational inference: Frank-Wolfe over mixtures of a family of densities.

    minimise  KL(q ‖ p) = E_q[log q - log p]   over q ∈ conv(𝒬)

(chapter "An Optimization View on Boosting Variational Inference"). An iterate is a mixture, an atom a density of the
family, and the oracle black-box variational inference on the residual of the target that the mixture does not fit yet.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize
import torch
from torch import Tensor
from torch import distributions as td
from torch.nn.functional import softplus

from unknot.solvers.atoms import Simplex
from unknot.solvers.frank_wolfe import frank_wolfe
from unknot.solvers.objectives import Differentiable
from unknot.solvers.result import Result, Run, State, Status, Trace
from unknot.solvers.structured import choose

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """A family of densities on R^d whose samples are differentiable in its parameters.

    Attributes:
        build: unconstrained parameters, each ``[..., *shape]``, → a distribution with ``rsample``, of batch shape
            ``[...]`` and event shape ``[d]``.
        initial: (locations ``[R, d]``, scale) → parameters of R densities around them.
        name: for reports.
    """

    build: Callable[[Parameters], td.Distribution]
    initial: Callable[[Tensor, float], Parameters]
    name: str = "family"


MIN_SCALE = 1e-3
"""Scales of the built-in families are above this: the bounded parameters that the analysis asks for."""


def _scale(raw: Tensor) -> Tensor:
    return softplus(raw) + MIN_SCALE


def _inverse_softplus(scale: float) -> float:
    return math.log(math.expm1(scale)) if scale < 30 else scale


def _location_scale(kind: Callable[..., td.Distribution], name: str) -> Family:
    def build(parameters: Parameters) -> td.Distribution:
        return td.Independent(kind(parameters["loc"], _scale(parameters["raw_scale"]), validate_args=False), 1)

    def initial(locations: Tensor, scale: float) -> Parameters:
        return {"loc": locations, "raw_scale": torch.full_like(locations, _inverse_softplus(scale))}

    return Family(build, initial, name)


def _full_gaussian() -> Family:
    def build(parameters: Parameters) -> td.Distribution:
        lower, raw = parameters["lower"].tril(-1), parameters["raw_scale"]
        factor = lower + torch.diag_embed(_scale(raw))
        return td.MultivariateNormal(parameters["loc"], scale_tril=factor, validate_args=False)

    def initial(locations: Tensor, scale: float) -> Parameters:
        dim = locations.shape[-1]
        return {
            "loc": locations,
            "raw_scale": torch.full_like(locations, _inverse_softplus(scale)),
            "lower": torch.zeros(*locations.shape, dim, dtype=locations.dtype),
        }

    return Family(build, initial, "full Gaussian")


FAMILIES = {
    "gaussian": _location_scale(td.Normal, "diagonal Gaussian"),
    "full-gaussian": _full_gaussian(),
    "laplace": _location_scale(td.Laplace, "Laplace"),
    "cauchy": _location_scale(td.Cauchy, "Cauchy"),
}
"""The families by name; the first three are in the thesis' experiments, Cauchy in its lemma."""


class Mixture:
    """q = Σ w_i s_i, by weights and stacked parameters."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.weights = np.zeros(0)
        self.parameters: Parameters = {}

    def __len__(self) -> int:
        return len(self.weights)

    def components(self) -> td.Distribution:
        """The s_i, as one batch."""
        return self.family.build(self.parameters)

    def distribution(self, weights: np.ndarray | None = None) -> td.MixtureSameFamily:
        """q, or with other weights."""
        values = next(iter(self.parameters.values()))
        probabilities = torch.as_tensor(self.weights if weights is None else weights).to(values)
        return td.MixtureSameFamily(td.Categorical(probabilities), self.components(), validate_args=False)

    def with_component(self, parameters: Parameters, step: float) -> "Mixture":
        """(1 - γ) q + γ s."""
        other = Mixture(self.family)
        other.weights = np.append((1 - step) * self.weights, step)
        other.parameters = (
            {name: torch.cat([self.parameters[name], new]) for name, new in parameters.items()}
            if len(self)
            else {name: new.clone() for name, new in parameters.items()}
        )
        return other

    def pruned(self) -> "Mixture":
        """Without components of no weight."""
        kept = np.flatnonzero(self.weights > 1e-12)
        other = Mixture(self.family)
        other.weights = self.weights[kept] / self.weights[kept].sum()
        other.parameters = {name: value[torch.from_numpy(kept)] for name, value in self.parameters.items()}
        return other


LogDensity = Callable[[Tensor], Tensor]


def read_target(target: Any, dim: int | None, dtype: torch.dtype) -> tuple[LogDensity, int]:
    """log p as a checked function of points ``[N, d]``, and d."""
    scalar = False
    if isinstance(target, td.Distribution):
        if target.batch_shape:
            raise ValueError(
                f"the target has batch shape {list(target.batch_shape)}: expected one density; wrap it in "
                "torch.distributions.Independent if its batch are the dimensions."
            )
        scalar = not target.event_shape
        size = 1 if scalar else int(target.event_shape[0])
        function: Any = target.log_prob
    elif callable(target):
        known = getattr(target, "dim", None) or dim
        if known is None:
            raise ValueError("the dimension of the target is unknown: pass dim=d.")
        size, function = int(known), target
    else:
        raise ValueError(
            f"target is a {type(target).__name__}: expected a function log p of points [N, d], or a "
            "torch.distributions object."
        )
    if dim is not None and dim != size:
        raise ValueError(f"dim is {dim} but the target is over R^{size}: make them agree.")
    own = dtype if not isinstance(target, td.Distribution) else None

    def log_p(points: Tensor) -> Tensor:
        flat = points.reshape(-1, size)
        values = function(flat[:, 0] if scalar else flat)
        if not isinstance(values, Tensor) or tuple(values.shape) != (len(flat),):
            shape = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"the log density returned {shape} for points of shape {list(flat.shape)}: expected one number for "
                f"each point, [{len(flat)}]."
            )
        bad = ~torch.isfinite(values.detach())
        if bool(bad.any()):
            where = int(torch.nonzero(bad)[0])
            point = [round(number, 4) for number in flat[where].tolist()[:5]]
            raise ValueError(
                f"the log density is {float(values[where].detach())} at {point}: expected a finite number on all of "
                f"R^{size}; write it for unconstrained parameters, for example logarithms of positive ones."
            )
        return values.to(own or dtype).reshape(points.shape[:-1])

    return log_p, size


def check_integrable(log_p: LogDensity, s: td.Distribution, samples: int) -> None:
    """Stretch the first component a thousand and a million times: if p were a density, its ELBO would fall."""
    with torch.no_grad():
        points = s.sample((samples,))
        centre, dim = points.median(0).values, points.shape[-1]
        elbos = []
        for stretch in (1e3, 1e6):
            try:
                far = log_p(centre + stretch * (points - centre))
            except ValueError:  # not finite so far out: nothing can be said
                return
            elbos.append(float((far - s.log_prob(points)).mean()) + dim * math.log(stretch))
    if elbos[1] >= elbos[0]:
        warnings.warn(
            "the log density does not fall far out, so it has no finite integral and no mixture can fit it: check its "
            "sign, and add a prior to parameters that have none.",
            UserWarning,
            stacklevel=3,
        )


STEPS = ("fixed", "line-search", "fully-corrective")


@dataclass(frozen=True)
class VariationalTrace(Trace):
    """Value and gap of every mixture, with their Monte-Carlo standard errors."""

    value_error: np.ndarray = field(default_factory=lambda: np.zeros(0))
    gap_error: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def keys(self) -> tuple[str, ...]:
        return ("value", "value_error", "gap", "gap_error", "time")


@dataclass(frozen=True)
class VariationalResult(Result):
    """A mixture as ``x``; the fields of :class:`Result`, and what Monte Carlo makes of them.

    ``value`` is E_q[log q - log p], which is KL(q ‖ p) for a normalised target and KL - log Z otherwise; ``elbo`` is
    minus that. ``gap`` is an estimate from the component the oracle gave. It would bound the error with an exact
    oracle; with a regularised one it is smaller than the true gap, so it is a heuristic to stop by and no certificate.
    """

    value_error: float = math.nan
    gap_error: float = math.nan
    components: int = 0

    @property
    def elbo(self) -> float:
        """E_q[log p - log q]."""
        return -float(self.value)

    def __str__(self) -> str:
        return (
            f"{self.status} after {self.iterations} iterations: E[log q - log p] {self.value:.4g} ± "
            f"{self.value_error:.1g}, gap estimate {self.gap:.2g} ± {self.gap_error:.1g}, "
            f"{self.components} components, {self.trace.time[-1]:.3g} s"
        )


def boost_variational_inference(
    target: Any,
    family: str | Family = "gaussian",
    dim: int | None = None,
    *,
    step: str = "fully-corrective",
    regularisation: float | Callable[[int], float] | None = None,
    tail: float | None = 10.0,
    max_iterations: int = 10,
    tol: float = 0.01,
    oracle_steps: int = 500,
    oracle_samples: int = 32,
    learning_rate: float = 0.1,
    starts: int = 8,
    spread: float = 3.0,
    centre: Any = None,
    samples: int = 2000,
    seed: int = 0,
    polish: int = 300,
    dtype: torch.dtype = torch.float64,
    time_limit: float | None = None,
    callback: Callable[[State], Any] | None = None,
    progress: bool = False,
) -> VariationalResult:
    """Approximate a density p by a mixture, one component in each iteration (chapter "Boosting Variational Inference").

    Thesis: Eqs. "eq:minklQconv" and "eq:relbo", chapter "An Optimization View on Boosting Variational Inference".

        k = 0:   s_0 = argmax_s E_s[log p] - E_s[log s]                                            (black-box VI)
        k ≥ 1:   s_k = argmax_s RELBO(s, λ_k) = E_s[log p] - λ_k E_s[log s] - E_s[log q_k],   λ_k = 1/√(k+1)
                 q_{k+1} = (1 - γ) q_k + γ s_k

        fixed              γ = 2/(k+2)
        line-search        γ = argmin KL((1-γ) q_k + γ s_k ‖ p): the root of E_s[log q_γ/p] - E_q[log q_γ/p]
        fully-corrective   new weights for all: Frank-Wolfe over the simplex with gradient E_{s_i}[log q_w/p]

    The oracle runs ``starts`` searches from random places, which get it off a symmetric residual, and keeps the one of
    the largest RELBO, of those that descend if any does. The run ends once the gap estimate, plus its Monte-Carlo
    error, is at most ``tol``: another component of a fitted target only harms.

    Args:
        target: log p, up to a constant, as a function of points ``[N, d]`` that returns ``[N]`` and is differentiable
            by torch; or a ``torch.distributions`` object.
        family: "gaussian" (diagonal), "full-gaussian", "laplace", "cauchy", or a :class:`Family`.
        dim: d, where the target does not say.
        step: one of the three above.
        regularisation: λ_k as a number or function of k ≥ 1; 1/√(k+1) if left out.
        tail: in the oracle, log q_k does not fall further than this many nats below where q_k has its samples. Without
            a bound (None) components may leave for the tails of q_k instead of for a mode that it misses.
        max_iterations: components at most, after the first.
        tol: see above; 0 does not stop.
        oracle_steps, oracle_samples, learning_rate: Adam steps of one oracle call, samples in each of them, and their
            rate, which falls to a hundredth along a cosine.
        starts: searches side by side.
        spread: standard deviation of the first starts around ``centre`` (``[d]``, 0 if left out); of later ones half
            are drawn so, and half from the mixture, widened by this factor.
        samples: for values, gaps, line searches and corrections, from every component.
        seed: of everything random.
        polish: Adam steps on all weights and components together at the end; 0 for the thesis' algorithm and nothing
            else.
        dtype: of the computation.
        time_limit, callback, progress: as for :func:`frank_wolfe`.

    Returns:
        A :class:`VariationalResult` with a ``torch.distributions.MixtureSameFamily`` as ``x``.

    >>> import torch
    >>> from unknot.solvers import boost_variational_inference
    >>> p = torch.distributions.MixtureSameFamily(
    ...     torch.distributions.Categorical(torch.tensor([0.4, 0.6])),
    ...     torch.distributions.Normal(torch.tensor([-1.0, 1.0]), torch.tensor([0.5, 0.5])),
    ... )
    >>> result = boost_variational_inference(p, max_iterations=5, tol=0)
    >>> result.x.batch_shape, result.x.event_shape, bool(result.value < 0.1)  # a single Gaussian has 0.23
    (torch.Size([]), torch.Size([1]), True)
    """
    rule = choose(step, STEPS, "step")
    kin = family if isinstance(family, Family) else FAMILIES[choose(family, tuple(FAMILIES), "family")]
    log_p, size = read_target(target, dim, dtype)
    strength = _regularisation(regularisation)
    for name, number, least in (
        ("oracle_steps", oracle_steps, 1),
        ("starts", starts, 1),
        ("samples", samples, 10),
        ("polish", polish, 0),
    ):
        if number < least:
            raise ValueError(f"{name} is {number}: expected at least {least}.")
    middle = torch.zeros(size, dtype=dtype) if centre is None else torch.as_tensor(centre, dtype=dtype).reshape(size)
    values: list[tuple[float, float]] = []
    gaps: list[tuple[float, float]] = []
    limits: dict[str, Any] = {"time_limit": time_limit, "callback": callback, "progress": progress}
    run = Run("boost_variational_inference", False, max_iterations, **limits)
    search = _Search(log_p, kin, oracle_steps, oracle_samples, learning_rate)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        places = middle + spread * torch.randn(starts, size, dtype=dtype)
        first = _oracle(search, None, 1.0, places, spread / 3)
        check_integrable(log_p, kin.build(first), samples)
        mixture = Mixture(kin).with_component(first, 1.0)
        while True:
            k = run.iteration + 1
            q = mixture.distribution()
            places = _places(q, middle, spread, starts)
            scale, residual = _typical_scale(q), _bounded(q, tail)
            value = _level(log_p, q, samples)
            s = _oracle(search, residual, strength(k), places, scale, value[0])
            gap = _gap(log_p, q, kin.build(s), value, samples)
            values.append(value)
            gaps.append(gap)
            fitted = 0 < tol >= gap[0] + gap[1]
            if run.finished(q, value[0], gap[0], fitted):
                break
            if rule == "fixed":
                mixture = mixture.with_component(s, 2.0 / (k + 2.0))
            elif rule == "line-search":
                gamma = _line_search(log_p, q, kin.build(s), samples)
                mixture = mixture.with_component(s, gamma).pruned()
            else:
                mixture = _corrected(log_p, mixture.with_component(s, 0.0), samples, 2.0 / (k + 2.0))
        value, gap = values[-1], gaps[-1]
        if polish and run.status != Status.STOPPED and not run.expired():
            search = _Search(log_p, kin, polish, oracle_samples, learning_rate / 5)
            better = _polished(search, mixture, run.expired)
            level = _level(log_p, better.distribution(), samples)
            if level[0] < value[0]:  # what the value falls by, the gap does too
                gap = max(0.0, gap[0] - value[0] + level[0]), math.hypot(gap[1], level[1])
                mixture, value = better, level

    run.close()
    trace = VariationalTrace(
        np.array(run.values),
        np.array(run.gaps),
        np.array(run.times),
        value_error=np.array([error for _, error in values]),
        gap_error=np.array([error for _, error in gaps]),
    )
    return VariationalResult(
        x=mixture.distribution(),
        value=value[0],
        gap=gap[0],
        iterations=len(values) - 1,
        status=run.status,
        trace=trace,
        weights=mixture.weights.copy(),
        value_error=value[1],
        gap_error=gap[1],
        components=len(mixture),
    )


def _regularisation(rule: float | Callable[[int], float] | None) -> Callable[[int], float]:
    if rule is None:
        return lambda k: 1.0 / math.sqrt(k + 1.0)
    if callable(rule):
        return rule
    if not (rule >= 0 and math.isfinite(rule)):
        raise ValueError(f"regularisation is {rule}: expected λ >= 0, or a function of k.")
    return lambda k: float(rule)


def relbo(log_p: LogDensity, s: td.Distribution, log_q: LogDensity | None, weight: float, samples: int) -> Tensor:
    """RELBO(s, λ) = E_s[log p] - λ E_s[log s] - E_s[log q] of every density of a batch; without q and λ = 1, the ELBO.

    >>> import torch
    >>> p = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    >>> bool(relbo(p.log_prob, p, None, 1.0, samples=5).abs() < 1e-6)  # E[log p - log p]
    True
    """
    points = s.rsample((samples,))
    residual = log_p(points) - weight * s.log_prob(points)
    return (residual if log_q is None else residual - log_q(points)).mean(0)


def _bounded(q: td.MixtureSameFamily, tail: float | None) -> LogDensity:
    """log(q + ε), ε so many nats below the density at the least likely of some samples of q."""
    if tail is None:
        return q.log_prob
    floor = q.log_prob(q.sample((256,))).min() - tail
    return lambda points: torch.logaddexp(q.log_prob(points), floor)


@dataclass(frozen=True)
class _Search:
    """The settings of black-box variational inference."""

    log_p: LogDensity
    family: Family
    steps: int
    samples: int
    rate: float

    def adam(self, parameters: list[Tensor], loss: Callable[[], Tensor], expired: Callable[[], bool]) -> None:
        """Minimise by Adam with a rate that falls to a hundredth along a cosine."""
        adam = torch.optim.Adam(parameters, lr=self.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, self.steps, eta_min=self.rate / 100)
        for _ in range(self.steps):
            if expired():
                break
            adam.zero_grad()
            loss().backward()
            adam.step()
            schedule.step()


def _oracle(
    search: _Search,
    log_q: LogDensity | None,
    weight: float,
    places: Tensor,
    scale: float,
    level: float = math.inf,
) -> Parameters:
    """Black-box VI on the residual, from all places at once; the parameters of the best, as a batch of one.

    Of the local maxima found, those come first that descend, E_s[log q/p] < E_q[log q/p] = ``level``: Frank-Wolfe has
    no use for another.
    """
    log_p, family, samples = search.log_p, search.family, search.samples
    parameters = {name: value.clone().requires_grad_(True) for name, value in family.initial(places, scale).items()}
    search.adam(
        list(parameters.values()),
        lambda: -relbo(log_p, family.build(parameters), log_q, weight, samples).sum(),
        lambda: False,
    )
    with torch.no_grad():
        parameters = {name: value.detach() for name, value in parameters.items()}
        scores = relbo(log_p, family.build(parameters), log_q, weight, 20 * samples)
        if not bool(torch.isfinite(scores).any()):
            raise ValueError("every search of the oracle ended at a residual that is not finite: use a smaller spread.")
        if log_q is not None:
            descends = -relbo(log_p, family.build(parameters), log_q, 0.0, 20 * samples) < level
            scores = torch.where(descends | ~descends.any(), scores, -math.inf)
        best = int(torch.nan_to_num(scores, nan=-math.inf).argmax())
    return {name: value[best : best + 1].clone() for name, value in parameters.items()}


def _level(log_p: LogDensity, q: td.Distribution, samples: int) -> tuple[float, float]:
    """E_q[log q - log p] and its standard error."""
    with torch.no_grad():
        points = q.sample((samples,))
        return _mean(q.log_prob(points) - log_p(points))


def _polished(search: _Search, mixture: Mixture, expired: Callable[[], bool]) -> Mixture:
    """All weights and components together, by Adam on Σ_i w_i E_{s_i}[log q - log p] with samples of each."""
    parameters = {name: value.clone().requires_grad_(True) for name, value in mixture.parameters.items()}
    like = next(iter(parameters.values()))
    logits = torch.as_tensor(mixture.weights).to(like).log().clamp_min(-20).requires_grad_(True)

    def loss() -> Tensor:
        components = mixture.family.build(parameters)
        points = components.rsample((search.samples,))  # [S, K, d]
        log_s = components.log_prob(points[:, :, None])  # [S, K, K]
        log_q = torch.logsumexp(log_s + torch.log_softmax(logits, 0), dim=2)
        return ((log_q - search.log_p(points)).mean(0) * torch.softmax(logits, 0)).sum()

    search.adam([*parameters.values(), logits], loss, expired)
    other = Mixture(mixture.family)
    other.parameters = {name: value.detach() for name, value in parameters.items()}
    other.weights = torch.softmax(logits.detach(), 0).double().numpy()
    return other.pruned()


def _places(q: td.MixtureSameFamily, centre: Tensor, spread: float, starts: int) -> Tensor:
    """Draw starts of the oracle: half of them near what is fitted, half anywhere."""
    near = q.sample((starts,))
    anywhere = centre + spread * torch.randn_like(near)
    middle = near.median(0).values
    return torch.where(torch.arange(starts)[:, None] % 2 == 0, anywhere, middle + spread * (near - middle))


def _typical_scale(q: td.MixtureSameFamily) -> float:
    """Half the spread of the mixture: a component to be added is narrower than the whole."""
    points = q.sample((256,))
    middle = points.median(0).values
    return max(0.5 * float((points - middle).abs().median()) / 0.6745, 10 * MIN_SCALE)


def _mean(values: Tensor) -> tuple[float, float]:
    return float(values.mean()), float(values.std()) / math.sqrt(len(values))


def _gap(
    log_p: LogDensity, q: td.Distribution, s: td.Distribution, value: tuple[float, float], samples: int
) -> tuple[float, float]:
    """E_q[log q/p] - E_s[log q/p] and its standard error, given the former.

    With samples of s of its own: those that the oracle's answer was chosen by would favour it.
    """
    with torch.no_grad():
        at_s = s.sample((samples,))[:, 0]
        other, error = _mean(q.log_prob(at_s) - log_p(at_s))
    return value[0] - other, math.hypot(value[1], error)


def _line_search(log_p: LogDensity, q: td.Distribution, s: td.Distribution, samples: int) -> float:
    """The root of φ'(γ) = E_s[log q_γ/p] - E_q[log q_γ/p], with the same samples for every γ."""
    with torch.no_grad():
        at_q, at_s = q.sample((samples,)), s.sample((samples,))[:, 0]
        terms = [(q.log_prob(x), s.log_prob(x[:, None])[:, 0], log_p(x)) for x in (at_s, at_q)]

    def slope(gamma: float) -> float:
        means = []
        for log_q, log_s, log_target in terms:
            mixed = torch.logaddexp(log_q + math.log1p(-gamma), log_s + math.log(gamma))
            means.append(float((mixed - log_target).mean()))
        return means[0] - means[1]

    low, high = 1e-6, 1 - 1e-6
    if slope(low) >= 0:
        return 0.0
    if slope(high) <= 0:
        return 1.0
    root: float = scipy.optimize.brentq(slope, low, high, xtol=1e-6)
    return root


def _corrected(log_p: LogDensity, mixture: Mixture, samples: int, share: float) -> Mixture:
    """New weights for all: pairwise Frank-Wolfe over the simplex, with the same samples throughout."""
    components, count = mixture.components(), len(mixture)
    with torch.no_grad():
        points = components.sample((samples,))  # [S, K, d]
        log_s = components.log_prob(points[:, :, None])  # [S, K, K]: of every component at every component's samples
        largest = log_s.amax(2)
        shares, log_target = (log_s - largest[:, :, None]).exp(), log_p(points)

    def excess(weights: Tensor) -> Tensor:
        """log q_w - log p at the samples ``[S, K]``."""
        return (shares @ weights).clamp_min(1e-300).log() + largest - log_target

    f = Differentiable(
        lambda w: (excess(w).mean(0) * w).sum(),
        gradient=lambda w: excess(w).mean(0),
        shape=(count,),
        dtype=log_target.dtype,
    )
    start = mixture.weights * (1 - share)
    start[-1] += share
    result = frank_wolfe(
        f,
        Simplex(dim=count),
        torch.as_tensor(start / start.sum()).to(log_target),
        variant="pairwise",
        step="line-search",
        max_iterations=200,
        tol=1e-5,
    )
    other = Mixture(mixture.family)
    other.parameters = mixture.parameters
    other.weights = result.x.double().numpy().clip(0)
    return other.pruned()
