"""k-means by its semidefinite relaxation, as a scikit-learn estimator (section "Stochastic k-means Clustering").

    minimise  ⟨D, X⟩   over X ⪰ 0, tr X = k   subject to   X1 = 1,  X ≥ 0

D holds the squared distances of n points. X = Σ_clusters 1_c 1_cᵀ/|c| of a partition has ⟨D, X⟩ = twice its k-means
cost, so half the optimum is a lower bound on the cost of every partition.
"""

import math
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from unknot.solvers._arrays import as_tensor, choose
from unknot.solvers.atoms import PSDTrace
from unknot.solvers.homotopy import augmented_lagrangian_cgm, homotopy_cgm, stochastic_homotopy_cgm
from unknot.solvers.objectives import Differentiable
from unknot.solvers.result import Result
from unknot.solvers.stochastic import Iterate, StochasticObjective
from unknot.solvers.terms import NonNegative, Sums, Term

METHODS = ("augmented", "deterministic", "stochastic")


class SampledDistances(StochasticObjective):
    """f(X) = ⟨D, X⟩, its gradient from the distances among ``batch_size`` of the n points, drawn without repetition.

    Only that block of D is ever computed.

    Args:
        points: ``[n, d]``, whose squared distances make D; or D itself with ``precomputed``.
        batch_size: points in each draw.
        precomputed: whether ``points`` is D.
        unbiased: scale the block by n(n-1)/(s(s-1)), which makes E ∇f = D; the thesis' code scales it by n/s, which
            makes D smaller by about s/n.
        scale: factor of D.

    >>> import numpy as np
    >>> f = SampledDistances(np.array([[0.0], [1.0], [3.0]]), batch_size=2)
    >>> f.distances()
    tensor([[0., 1., 9.],
            [1., 0., 4.],
            [9., 4., 0.]], dtype=torch.float64)
    """

    def __init__(
        self,
        points: Any,
        batch_size: int = 100,
        *,
        precomputed: bool = False,
        unbiased: bool = True,
        scale: float = 1.0,
    ) -> None:
        self.points = as_tensor(np.asarray(points, dtype=np.float64), "points")
        self.precomputed, self.scale = precomputed, scale
        count = len(self.points)
        self.batch_size = min(batch_size, count)
        size = self.batch_size
        if size < 2 <= count:
            raise ValueError(f"batch_size is {batch_size}: expected at least 2, as distances are between two points.")
        self.factor = scale * (count * (count - 1) / (size * max(1, size - 1)) if unbiased else count / size)
        self.shape = (count, count)
        self.numpy = True
        self.smoothness = 0.0

    def distances(self, chosen: Tensor | None = None) -> Tensor:
        """Squared distances among some points, or all."""
        points = self.points if chosen is None else self.points[chosen]
        if self.precomputed:
            return points if chosen is None else points[:, chosen]
        squares = points.square().sum(1)
        return (squares[:, None] + squares[None] - 2 * points @ points.t()).clamp_min_(0).fill_diagonal_(0)

    def average(self, d: Tensor, x: Iterate, rho: float, generator: torch.Generator) -> Tensor:
        """A block of distances."""
        chosen = torch.randperm(len(self.points), generator=generator)[: self.batch_size]
        d.mul_(1 - rho)
        d[chosen[:, None], chosen] += rho * self.factor * self.distances(chosen)
        return d

    def value(self, x: Iterate) -> float:
        """⟨D, X⟩ with all of D."""
        return self.scale * float((self.distances() * x.dense()).sum())


def kmeans_constraints() -> list[Term]:
    """X1 = 1, 1ᵀX = 1ᵀ and X ≥ 0; the first two say the same of a symmetric X, as in the thesis' code.

    >>> kmeans_constraints()
    [row sums = 1, column sums = 1, 0 <= x <= inf]
    """
    return [Sums(1.0, axis=1), Sums(1.0, axis=0), NonNegative()]


def kmeans_sdp(
    points: Any,
    n_clusters: int,
    *,
    method: str = "stochastic",
    batch_size: int = 100,
    precomputed: bool = False,
    unbiased: bool = True,
    beta0: float = 1.0,
    oracle_tol: float = 1e-6,
    **options: Any,
) -> Result:
    """Solve the relaxation of k-means by one of three methods.

    "augmented" is :func:`augmented_lagrangian_cgm`, the one to use; "deterministic" is :func:`homotopy_cgm` and
    "stochastic" :func:`stochastic_homotopy_cgm`, as the thesis has them.

    ``beta0`` of the latter two is in the units of the thesis, whose row sums are not divided by their norm √n: the
    solver gets beta0 / n. "augmented" gets 50 beta0 / n, which suits distances of mean about 1.
    With the code's scaling of the block (``unbiased=False``) β_0 = 10 is about what 1 is here.

    Args:
        points: ``[n, d]``, or the distances ``[n, n]`` with ``precomputed``.
        n_clusters: k.
        method: one of the three above.
        options: of the solver.

    >>> import numpy as np
    >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> result = kmeans_sdp(points, 2, method="deterministic", beta0=0.1, max_iterations=2000)
    >>> result.x[0].round(1) + 0.0, result.x[3].round(1) + 0.0
    (array([0.5, 0.5, 0. , 0. ]), array([0. , 0. , 0.5, 0.5]))
    """
    kind = choose(method, METHODS, "method")
    sampled = SampledDistances(points, batch_size, precomputed=precomputed, unbiased=unbiased)
    count = sampled.points.shape[0]
    atoms = PSDTrace(float(n_clusters), dim=count, tol=oracle_tol)
    options["beta0"] = beta0 * (50 / count if kind == "augmented" else 1 / count)
    if kind == "stochastic":
        return stochastic_homotopy_cgm(sampled, atoms, kmeans_constraints(), **options)
    distances = sampled.distances()
    linear = Differentiable(
        lambda x: (distances * x).sum(), gradient=lambda x: distances, smoothness=0.0, shape=(count, count)
    )
    if kind == "augmented":  # one price for X1 = 1 is enough, as X is symmetric
        terms = [Sums(1.0, axis=1), NonNegative()]
        return augmented_lagrangian_cgm(linear, atoms, terms, np.zeros((count, count)), **options)
    return homotopy_cgm(linear, atoms, kmeans_constraints(), np.zeros((count, count)), **options)


class SDPKMeans(ClusterMixin, BaseEstimator):
    """k-means by its semidefinite relaxation, rounded to a partition.

    The relaxation does not depend on a start, and half its optimum bounds the cost of any partition from below. It is
    rounded as by Mixon, Villar and Ward: every point is moved to its weighted mean X·points, and those are clustered.
    An X that is far from the optimum is rounded badly, so Lloyd's iterations on the points themselves follow.

    Args:
        n_clusters: k.
        method: "augmented" (all of D, with dual variables), "deterministic" (without) or "stochastic" (mini-batches of
            distances).
        batch_size: points in a mini-batch.
        beta0: β_0 for distances of mean 1 (they are divided by their mean); None for 1, or in the thesis' units of the
            other two methods 10. A large one lets the objective fall before the constraints are met.
        max_iter: iterations.
        metric: "euclidean" (squared), or "precomputed" for a matrix of distances.
        unbiased: see :class:`SampledDistances`.
        oracle_tol: relative accuracy of the eigenvector.
        n_init: starts of the k-means that rounds.
        polish: whether Lloyd's iterations follow the rounding.
        time_limit: seconds, None for none.
        random_state: seed of mini-batches and rounding.
        verbose: show a progress bar.

    Attributes:
        labels_: ``[n]``; ``rounded_labels_`` before polishing.
        cluster_centers_: means of the clusters (not for precomputed distances).
        relaxation_: X ``[n, n]``; ``objective_`` ⟨D, X⟩ and ``feasibility_`` its distance from the constraints.
        inertia_: k-means cost of the partition.
        result_: the solver's :class:`Result`, whose values are of distances divided by their mean.

    >>> import numpy as np
    >>> points = np.array([[0.0, 0.0], [0.2, 0.0], [5.0, 5.0], [5.0, 5.2], [5.2, 5.0]])
    >>> SDPKMeans(2, max_iter=500, random_state=0).fit_predict(points).tolist() in ([0, 0, 1, 1, 1], [1, 1, 0, 0, 0])
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        method: str = "augmented",
        batch_size: int = 100,
        beta0: float | None = None,
        max_iter: int = 1000,
        metric: str = "euclidean",
        unbiased: bool = True,
        oracle_tol: float = 1e-4,
        n_init: int = 10,
        polish: bool = True,
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.batch_size = batch_size
        self.beta0 = beta0
        self.max_iter = max_iter
        self.metric = metric
        self.unbiased = unbiased
        self.oracle_tol = oracle_tol
        self.n_init = n_init
        self.polish = polish
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> "SDPKMeans":
        """Cluster points X ``[n, d]``, or distances ``[n, n]``."""
        metric = choose(self.metric, ("euclidean", "precomputed"), "metric")
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=1)
        count = len(X)
        if not 1 <= self.n_clusters <= count:
            raise ValueError(f"n_samples={count} should be >= n_clusters={self.n_clusters}, which should be >= 1.")
        if metric == "precomputed" and (X.shape[0] != X.shape[1] or not np.allclose(X, X.T) or X.min() < 0):
            raise ValueError("precomputed distances should be a symmetric matrix [n, n] without negative entries.")
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        whole = SampledDistances(X, 2, precomputed=metric == "precomputed").distances().numpy()
        mean = float(whole.mean()) or 1.0
        if count == 1:
            self.relaxation_, self.labels_ = np.ones((1, 1)), np.zeros(1, dtype=np.int32)
            self.objective_ = self.feasibility_ = 0.0
            self.n_iter_, self.result_ = 1, None
        else:
            options = {"seed": seed} if choose(self.method, METHODS, "method") == "stochastic" else {}
            usual = 1.0 if self.method == "augmented" else 10.0
            self.result_ = kmeans_sdp(
                X / mean if metric == "precomputed" else X / math.sqrt(mean),
                self.n_clusters,
                method=self.method,
                batch_size=max(2, self.batch_size),
                precomputed=metric == "precomputed",
                unbiased=self.unbiased,
                beta0=usual if self.beta0 is None else self.beta0,
                oracle_tol=self.oracle_tol,
                max_iterations=self.max_iter,
                time_limit=self.time_limit,
                progress=self.verbose,
                evaluate_every=max(1, self.max_iter // 50),
                **options,
            )
            self.relaxation_ = (self.result_.x + self.result_.x.T) / 2
            self.objective_ = float((whole * self.relaxation_).sum())
            self.feasibility_, self.n_iter_ = float(self.result_.feasibility or 0.0), self.result_.iterations
            self.labels_ = self._round(X if metric == "euclidean" else None, random)
        self.rounded_labels_ = self.labels_
        if metric == "euclidean":
            self.cluster_centers_ = np.stack([self._centre(X, label) for label in range(self.n_clusters)])
            if self.polish:
                lloyd = KMeans(self.n_clusters, init=self.cluster_centers_, n_init=1)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.labels_ = lloyd.fit_predict(X)
                self.cluster_centers_ = np.stack([self._centre(X, label) for label in range(self.n_clusters)])
        members = np.eye(self.n_clusters)[self.labels_]
        sizes = np.maximum(members.sum(0), 1)
        self.inertia_ = float(((members / sizes).T * (members.T @ whole)).sum() / 2)
        return self

    def _round(self, points: np.ndarray | None, random: Any) -> np.ndarray:
        """Cluster the rows of X·points, or the rows of X's leading eigenvectors where there are no points."""
        if points is not None:
            moved = self.relaxation_ @ points
        else:
            values, vectors = np.linalg.eigh(self.relaxation_)
            moved = vectors[:, -self.n_clusters :] * np.maximum(values[-self.n_clusters :], 0)
        means = KMeans(self.n_clusters, n_init=self.n_init, random_state=random)
        with warnings.catch_warnings():  # fewer distinct rows than clusters is a property of the data
            warnings.simplefilter("ignore")
            labels: np.ndarray = means.fit_predict(moved)
        return labels

    def _centre(self, X: np.ndarray, label: int) -> np.ndarray:
        members = X[self.labels_ == label]
        return members.mean(0) if len(members) else X.mean(0)

    def predict(self, X: Any) -> np.ndarray:
        """The nearest cluster centre of every point ``[m, d]``."""
        check_is_fitted(self, "labels_")
        if not hasattr(self, "cluster_centers_"):
            raise ValueError("with precomputed distances there are no centres to predict with: use labels_.")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        distances = ((X[:, None] - self.cluster_centers_[None]) ** 2).sum(2)
        labels: np.ndarray = distances.argmin(1).astype(self.labels_.dtype)
        return labels

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the k-means cost of points X ``[m, d]`` with the centres found."""
        check_is_fitted(self, "labels_")
        labels = self.predict(X)
        X = check_array(X, dtype=np.float64)
        return -float(((X - self.cluster_centers_[labels]) ** 2).sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        return tags
