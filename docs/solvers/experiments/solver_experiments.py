"""Experiments of the chapters "Convex Hulls with Affine Constraints" and "Boosting Variational Inference".

They return numbers; ``solver_figures`` draws them and ``docs/solvers/experiments/homotopy.py`` prints them as tables.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.solvers.atoms import NuclearBall, Simplex
from unknot.solvers.homotopy import (
    DenseIterate,
    Iterate,
    Sampled,
    SampledEntries,
    homotopy_cgm,
    s3ccm,
    stochastic_homotopy_cgm,
)
from unknot.solvers.objectives import SquaredDistance
from unknot.solvers.result import Result
from unknot.solvers.terms import Box, Linear, project_nuclear_ball


def load_movielens(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (movie, user) from 0 ``[N, 2]`` and ratings ``[N]`` of a file of MovieLens.

    One of 100k (tab-separated, such as ``ub.base``), ``ratings.dat`` of 1M, or a MATLAB file with UserID, MovID and
    Rating. The data may not be passed on: get it from grouplens.org.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no file {path}: expected ratings of MovieLens, from https://grouplens.org.")
    if path.suffix == ".mat":
        import scipy.io

        stored = scipy.io.loadmat(path)
        missing = {"UserID", "MovID", "Rating"} - set(stored)
        if missing:
            raise ValueError(f"{path} has no {', '.join(sorted(missing))}: expected UserID, MovID and Rating.")
        users, movies, ratings = (stored[name].reshape(-1) for name in ("UserID", "MovID", "Rating"))
    else:
        text = path.read_text(encoding="latin-1").replace("::", "\t")
        try:
            table = np.array([line.split("\t")[:3] for line in text.splitlines()], dtype=np.float64)
            users, movies, ratings = table.T
        except ValueError as error:
            raise ValueError(f"{path} is no table of user, movie and rating ({error}).") from error
    pairs = np.stack([movies, users], axis=1).astype(np.int64) - 1
    return pairs, ratings.astype(np.float64)


def checkpoints(last: int, count: int = 40) -> np.ndarray:
    """Iterations from 1 to ``last``, evenly spaced on a logarithmic axis.

    >>> checkpoints(1000, 4).tolist()
    [1, 10, 100, 1000]
    """
    return np.unique(np.geomspace(1, last, count).round().astype(int))


def known_problem(seed: int = 0, dim: int = 20, support: int = 5) -> tuple[np.ndarray, Linear, np.ndarray, float]:
    """½‖θ - a‖² over the simplex with ⟨c, θ⟩ = b, made so that its solution is known.

    θ* is chosen first; a = θ* + y*c + μ1 - ν with ν ≥ 0 off the support makes the KKT conditions hold at it.

    Returns:
        a ``[dim]``, the constraint, θ* and f(θ*).

    >>> a, constraint, solution, best = known_problem()
    >>> bool(solution.min() >= 0), round(float(solution.sum()), 9), best > 0
    (True, 1.0, True)
    """
    rng = np.random.default_rng(seed)
    solution = np.zeros(dim)
    solution[:support] = rng.dirichlet(np.full(support, 5.0))
    c = rng.standard_normal(dim)
    nu = np.where(solution > 0, 0.0, rng.uniform(0.1, 1.0, dim))
    a = solution + 0.5 * c + 0.3 - nu
    b = float(c @ solution)
    return a, Linear(c[None], b, b, name="c·x = b"), solution, 0.5 * float(((solution - a) ** 2).sum())


def rates(iterations: int = 30_000, seeds: int = 5, noise: float = 0.5, beta0: float = 0.1) -> dict[str, np.ndarray]:
    """Objective residual |f(θ_k) - f*| and distance from the constraint of both methods on :func:`known_problem`.

    Returns:
        Arrays at the iterations in "k"; those of the stochastic method are means over seeds.
    """
    a, constraint, _, best = known_problem()
    k = checkpoints(iterations)

    def residuals(result: Result) -> tuple[np.ndarray, np.ndarray]:
        assert result.trace.feasibility is not None
        return np.abs(result.trace.value[k] - best), result.trace.feasibility[k]

    exact = homotopy_cgm(SquaredDistance(a), Simplex(dim=len(a)), constraint, beta0=beta0, max_iterations=iterations)
    runs = [
        stochastic_homotopy_cgm(
            Sampled(
                lambda x, rng: x - a - noise * rng.standard_normal(len(a)), lambda x: 0.5 * float(((x - a) ** 2).sum())
            ),
            Simplex(dim=len(a)),
            constraint,
            np.full(len(a), 1 / len(a)),
            beta0=beta0,
            seed=seed,
            max_iterations=iterations,
        )
        for seed in range(seeds)
    ]
    means = [np.mean(part, axis=0) for part in zip(*(residuals(run) for run in runs), strict=True)]
    names = ["HCGM objective", "HCGM feasibility", "SHCGM objective", "SHCGM feasibility"]
    return {"k": k, **dict(zip(names, (*residuals(exact), *means), strict=True))}


def slope(k: np.ndarray, errors: np.ndarray, first: int = 100) -> float:
    """p of errors ~ k^p, fitted from k = ``first`` on.

    >>> round(slope(np.arange(1, 2000), np.arange(1, 2000) ** -0.5), 6)
    -0.5
    """
    late = k >= first
    return float(np.polyfit(np.log(k[late]), np.log(np.maximum(errors[late], 1e-300)), 1)[0])


def random_completion(m: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, float]:
    """A small problem of completion: Y ``[m, n]`` with ratings 1 to 5, which of them are seen, and a nuclear radius.

    >>> target, seen, radius = random_completion(40, 30)
    >>> round(radius, 6), int(seen.sum()) > 400
    (109.714239, True)
    """
    rng = np.random.default_rng(seed)
    low_rank = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
    target = np.clip(np.rint(3 + 0.7 * low_rank), 1, 5)
    seen = rng.random((m, n)) < 0.4
    return target, seen, 0.54 * float(np.linalg.svd(target, compute_uv=False).sum())


class Ratings:
    """Ratings to train and test on, over the rows and columns that have a training rating.

    Args:
        train: (pairs ``[N, 2]``, ratings ``[N]``), and ``test`` alike.
    """

    def __init__(self, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> None:
        kept = [np.unique(train[0][:, axis]) for axis in (0, 1)]
        self.shape = (len(kept[0]), len(kept[1]))
        self.train = (self._places(kept, train[0]), train[1])
        known = np.isin(test[0][:, 0], kept[0]) & np.isin(test[0][:, 1], kept[1])
        self.test = (self._places(kept, test[0][known]), test[1][known])

    @staticmethod
    def _places(kept: list[np.ndarray], pairs: np.ndarray) -> np.ndarray:
        return np.stack([np.searchsorted(kept[axis], pairs[:, axis]) for axis in (0, 1)], axis=1)


class RecordedEntries(SampledEntries):
    """:class:`SampledEntries` that keeps train RMSE, test RMSE and distance from the box whenever it is evaluated."""

    def __init__(self, ratings: Ratings, batch_size: int, box: tuple[float, float] = (1.0, 5.0)) -> None:
        pairs, values = ratings.train
        super().__init__(pairs[:, 0], pairs[:, 1], values, ratings.shape, batch_size, dtype=torch.float32)
        self.box = box
        test = torch.from_numpy(ratings.test[0])
        self._test = test[:, 0] * ratings.shape[1] + test[:, 1]
        self._test_values = torch.from_numpy(ratings.test[1]).float()
        self.history: list[tuple[float, float, float]] = []

    def value(self, x: Iterate) -> float:
        """f(X), while the rest is kept."""
        total = super().value(x)
        whole = DenseIterate(x.dense())
        errors: Tensor = whole.observed(self._test) - self._test_values
        test = float(errors.double().square().mean().sqrt()) if len(errors) else math.nan
        distance = float(torch.linalg.vector_norm(whole.x - whole.x.clamp(*self.box)))
        self.history.append((math.sqrt(total / len(self.targets)), test, distance))
        return total


COMPLETION = ("train RMSE", "test RMSE", "feasibility")


def run_completion(
    method: str,
    ratings: Ratings,
    *,
    radius: float,
    batch_size: int,
    beta0: float = 10.0,
    gamma: float = 1.0,
    seed: int = 0,
    max_iterations: int = 10_000,
    time_limit: float | None = None,
    evaluate_every: int = 100,
    progress: bool = False,
) -> tuple[Result, np.ndarray]:
    """One run of "SHCGM", "SFW" or "S3CCM": its result, and train RMSE, test RMSE, feasibility ``[T, 3]``.

    Row t belongs to the t-th entry of the trace that is not NaN.
    """
    f = RecordedEntries(ratings, batch_size)
    options: dict[str, Any] = {
        "seed": seed,
        "max_iterations": max_iterations,
        "time_limit": time_limit,
        "evaluate_every": evaluate_every,
        "progress": progress,
    }
    if method == "S3CCM":
        result = s3ccm(f, lambda x: project_nuclear_ball(x, radius), Box(1.0, 5.0), gamma=gamma, **options)
    else:
        atoms = NuclearBall(radius, method="power", tol=1e-2, warm=False)
        terms = [Box(1.0, 5.0)] if method == "SHCGM" else []
        result = stochastic_homotopy_cgm(f, atoms, terms, beta0=beta0, **options)
    count = int(np.isfinite(result.trace.value).sum())
    return result, np.array(f.history[:count])


def synthetic_ratings(m: int = 120, n: int = 80, seed: int = 0) -> Ratings:
    """Ratings of a random low-rank matrix, for use without the real data.

    >>> synthetic_ratings().shape
    (120, 80)
    """
    target, seen, _ = random_completion(m, n, seed)
    pairs = np.argwhere(seen)
    values = target[seen]
    test = np.random.default_rng(seed + 1).random(len(pairs)) < 0.1
    return Ratings((pairs[~test], values[~test]), (pairs[test], values[test]))


def clustering_accuracy(labels: np.ndarray, truth: np.ndarray) -> float:
    """Share of points whose cluster is that of their class, under the best matching of clusters to classes.

    >>> clustering_accuracy(np.array([1, 1, 0, 0]), np.array([0, 0, 1, 0]))
    0.75
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(truth, labels)
    return float(table[linear_sum_assignment(-table)].sum() / len(labels))


def kmeans_curves(
    points: np.ndarray, n_clusters: int, iterations: int, batch_size: int, seed: int = 0
) -> dict[str, dict[str, np.ndarray]]:
    """Objective ⟨D, X⟩, ‖X1 - 1‖/‖1‖ and ‖min(X, 0)‖ of HCGM and SHCGM at the iterations in "k"."""
    from unknot.solvers.estimators import kmeans_sdp

    k = checkpoints(iterations)
    curves = {}
    for name, method in (("HCGM", "deterministic"), ("SHCGM", "stochastic")):
        watch = _Watch(points, set(k.tolist()))
        options: dict[str, Any] = {} if method == "deterministic" else {"seed": seed}
        kmeans_sdp(
            points,
            n_clusters,
            method=method,
            batch_size=batch_size,
            max_iterations=iterations,
            evaluate_every=iterations + 1,
            callback=watch,
            **options,
        )
        curves[name] = {"k": k, **watch.columns()}
    return curves


class _Watch:
    """A callback that measures X at some iterations."""

    def __init__(self, points: np.ndarray, kept: set[int]) -> None:
        from unknot.solvers.estimators import SampledDistances

        self._distances = SampledDistances(points, 2).distances().numpy()
        self._kept = kept
        self._rows: list[tuple[float, float, float]] = []

    def __call__(self, state: Any) -> None:
        if state.iteration in self._kept:
            x = state.x
            rows = np.linalg.norm(x.sum(1) - 1) / math.sqrt(len(x))
            self._rows.append(
                (float((self._distances * x).sum()), float(rows), float(np.linalg.norm(np.minimum(x, 0))))
            )

    def columns(self) -> dict[str, np.ndarray]:
        table = np.array(self._rows)
        return {"objective": table[:, 0], "row sums": table[:, 1], "negativity": table[:, 2]}


def bimodal() -> torch.distributions.MixtureSameFamily:
    """The thesis' target: means -1 and 1, standard deviations 0.5, weights 0.4 and 0.6.

    >>> bimodal().mean
    tensor(0.2000, dtype=torch.float64)
    """
    td = torch.distributions
    return td.MixtureSameFamily(
        td.Categorical(torch.tensor([0.4, 0.6], dtype=torch.float64)),
        td.Normal(torch.tensor([-1.0, 1.0], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)),
    )


def kl_on_grid(q: torch.distributions.Distribution, p: torch.distributions.Distribution, reach: float = 10.0) -> float:
    """KL(q ‖ p) of a mixture over R ``[1]`` and a density over R, by integration on a grid.

    >>> normal = torch.distributions.Normal(torch.zeros(1, dtype=torch.float64), 1.0)
    >>> q = torch.distributions.Independent(normal, 1)
    >>> round(kl_on_grid(q, torch.distributions.Normal(1.0, 1.0)), 4)
    0.5
    """
    grid = torch.linspace(-reach, reach, 8001, dtype=torch.float64)
    log_q = q.log_prob(grid[:, None])
    return float((log_q.exp() * (log_q - p.log_prob(grid))).sum() * (grid[1] - grid[0]))


def boosting_curves(
    iterations: int = 40,
    seeds: Sequence[int] = (0,),
    steps: Sequence[str] = ("fixed", "line-search", "fully-corrective"),
    watch: Callable[[str, int, Any, np.ndarray], Any] | None = None,
    **options: Any,
) -> dict[str, np.ndarray]:
    """KL(q_k ‖ p) of every mixture ``[seeds, iterations + 1]`` for each kind of step, on :func:`bimodal`."""
    from unknot.solvers.boosting import boost_variational_inference

    p = bimodal()
    curves: dict[str, np.ndarray] = {}
    for step in steps:
        runs = []
        for seed in seeds:
            divergences: list[float] = []
            result = boost_variational_inference(
                p,
                step=step,
                max_iterations=iterations,
                tol=0,
                seed=seed,
                polish=0,
                callback=lambda state, kept=divergences: kept.append(kl_on_grid(state.x, p)),  # type: ignore[misc]
                **options,
            )
            runs.append(divergences)
            if watch is not None:
                watch(step, seed, result, np.array(divergences))
        curves[step] = np.array(runs)
    return curves
