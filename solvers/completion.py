"""Matrix completion with bounded ratings, as a scikit-learn estimator (section "Stochastic Matrix Completion").

Solved is:

    minimise  Σ_observed (X_ij - Y_ij)²   over ‖X‖_* ≤ β_1   subject to   lower ≤ X ≤ upper
"""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from unknot.solvers import residuals, schedules
from unknot.solvers._arrays import choose, is_sparse
from unknot.solvers.atoms import NuclearBall
from unknot.solvers.atoms.base import positive
from unknot.solvers.homotopy import Homotopy
from unknot.solvers.result import Result, Run
from unknot.solvers.schedules import Schedule
from unknot.solvers.stochastic import SampledEntries
from unknot.solvers.terms import Box, Term

RADIUS = 1.5
"""Nuclear norm allowed by default, in units of a constant matrix of the ratings' root mean square: for the matrix of
MovieLens 100k this gives the thesis' 7000."""


class MatrixCompletion(RegressorMixin, BaseEstimator):
    """Fill in a matrix from some of its entries.

    By default ratings are centred by biases of rows and columns, and a matrix of small nuclear norm, chosen on a tenth
    of the ratings, is fitted to what is left: what one wants for predictions. ``method="shcgm"`` is the thesis'
    protocol, the stochastic homotopy conditional gradient method on the ratings themselves with the box as a
    constraint, which measures the solver.

    A sample is a pair (row, column), its target the rating: ``fit(pairs [N, 2], ratings [N])``. Rows and columns are
    numbers from 0; put ``sklearn.preprocessing.OrdinalEncoder`` before it in a pipeline where they are names.

    Args:
        radius: β_1, bound on the nuclear norm; None to have it chosen, or for "shcgm" 1.5 · rms(ratings) · √(m n).
        box: (lower, upper) bounds on every rating, with ``None`` or infinite for none. Predictions are clipped to it;
            for "shcgm" it is a constraint, and None is stochastic Frank-Wolfe without it.
        method: "frank-wolfe" (biases, then Frank-Wolfe on the residuals) or "shcgm".
        batch_size: ratings in each stochastic gradient of "shcgm", and ``beta0`` β_0 of its smoothing.
        beta0: see ``batch_size``.
        max_iter: iterations; None for 25, or for "shcgm" 10,000.
        shape: (m, n) of the matrix; None for the largest indices seen.
        oracle: "power", "lanczos", "lobpcg" or "lapack" for the top singular pair; ``oracle_tol`` its relative accuracy
            and ``warm_oracle`` whether it starts from its last answer.
        dtype: "float32" or "float64".
        time_limit: seconds, None for none.
        random_state: seed of the mini-batches.
        verbose: show a progress bar.

    Attributes:
        matrix_: X ``[m', n']``, biases included, over ``rows_`` and ``columns_``, those that have a rating; predictions
            for others are the mean rating.
        radius_: the bound on the nuclear norm that was used.
        result_: the solver's :class:`Result`; ``feasibility_`` is ‖X - clip(X)‖, ``n_iter_`` iterations made.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.clip(3 + rng.normal(size=(30, 1)) @ rng.normal(size=(1, 20)), 1, 5)
    >>> pairs = np.argwhere(rng.random(truth.shape) < 0.6)
    >>> model = MatrixCompletion(random_state=0).fit(pairs, truth[tuple(pairs.T)])
    >>> rest = np.argwhere(np.ones(truth.shape))
    >>> bool(model.score(rest, truth[tuple(rest.T)]) > 0.8)
    True
    """

    def __init__(
        self,
        radius: float | None = None,
        box: tuple[float | None, float | None] | None = (1.0, 5.0),
        *,
        method: str = "frank-wolfe",
        batch_size: int = 1000,
        beta0: float = 10.0,
        max_iter: int | None = None,
        shape: tuple[int, int] | None = None,
        oracle: str = "power",
        oracle_tol: float = 1e-2,
        warm_oracle: bool = False,
        dtype: str = "float32",
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.radius = radius
        self.box = box
        self.method = method
        self.batch_size = batch_size
        self.beta0 = beta0
        self.max_iter = max_iter
        self.shape = shape
        self.oracle = oracle
        self.oracle_tol = oracle_tol
        self.warm_oracle = warm_oracle
        self.dtype = dtype
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "MatrixCompletion":
        """Complete the matrix whose entries at pairs X ``[N, 2]`` are y ``[N]``."""
        pairs, ratings = self._read(X, y)
        m, n = self._shape(pairs)
        self.rows_, self.columns_ = np.unique(pairs[:, 0]), np.unique(pairs[:, 1])
        self._warn_empty(m - len(self.rows_), m, "rows")
        self._warn_empty(n - len(self.columns_), n, "columns")
        self.mean_ = float(ratings.mean())
        rows = np.searchsorted(self.rows_, pairs[:, 0])
        columns = np.searchsorted(self.columns_, pairs[:, 1])
        shape = (len(self.rows_), len(self.columns_))
        method = choose(self.method, ("frank-wolfe", "shcgm"), "method")
        dtype, seed = getattr(torch, self.dtype), int(check_random_state(self.random_state).randint(2**31 - 1))
        objective = SampledEntries(rows, columns, ratings, shape, self.batch_size, dtype=dtype)
        if method == "frank-wolfe":
            self._fit_residuals(rows, columns, ratings, shape, dtype, seed)
            self._seen_ratings = (pairs, ratings)
            return self
        self.radius_ = self._radius(ratings, shape)
        limit = 10_000 if self.max_iter is None else self.max_iter
        solver = Homotopy(objective, self._atoms(), self._terms(), None, schedules.shcgm(self.beta0), seed=seed)
        result = solver.run(
            limit,
            time_limit=self.time_limit,
            progress=self.verbose,
            evaluate_every=max(1, min(100, limit // 20)),
            name="MatrixCompletion",
        )
        self._keep(result, 2)
        order = np.argsort(rows * shape[1] + columns)
        self._seen, self._sum, self._squares = len(ratings), float(ratings.sum()), float(np.square(ratings).sum())
        self._stream: tuple[np.ndarray, torch.Tensor] | None = (pairs[order], solver.averaged.clone())
        return self

    def _fit_residuals(
        self,
        rows: np.ndarray,
        columns: np.ndarray,
        ratings: np.ndarray,
        shape: tuple[int, int],
        dtype: torch.dtype,
        seed: int,
    ) -> None:
        """Biases, then a matrix of small nuclear norm for what they leave."""
        limit = 25 if self.max_iter is None else self.max_iter
        run = Run(limit, 0.0, self.time_limit, None, self.verbose, True, "MatrixCompletion")
        chosen = self.radius
        if chosen is None:
            chosen = residuals.choose_radius(rows, columns, ratings, shape, dtype, seed, run)
        self.radius_ = positive(chosen, "radius")
        biases = residuals.fit_biases(rows, columns, ratings, shape)
        fit = residuals.Residuals(rows, columns, ratings - biases.at(rows, columns), shape, dtype)
        result = fit.iterate(residuals.ball(self.radius_, self.oracle, self.oracle_tol), run)
        self._keep(result, 2)
        centre = biases.mean + biases.rows[:, None] + biases.columns[None]
        self.matrix_ = (np.asarray(result.x) + centre).astype(self.dtype)
        lower, upper = self._bounds()
        self.feasibility_ = float(np.linalg.norm(self.matrix_ - np.clip(self.matrix_, lower, upper)))

    def partial_fit(self, X: Any, y: Any) -> "MatrixCompletion":
        """Go on with more ratings; the matrix grows where new rows or columns appear.

        By default all ratings seen so far are kept and fitted again, a newer one of a pair in the place of the older,
        with the nuclear norm chosen first. For "shcgm" it is one iteration with these ratings as the mini-batch ω_k,
        from where ``fit`` or the last call ended. The sum of squared errors is over the distinct cells seen so far, of
        which a batch is taken to be a sample.
        """
        pairs, ratings = self._read(X, y)
        if choose(self.method, ("frank-wolfe", "shcgm"), "method") == "frank-wolfe":
            return self._fit_more(pairs, ratings)
        if getattr(self, "_stream", None) is None:
            self.rows_ = self.columns_ = np.empty(0, dtype=np.int64)
            self.matrix_ = np.empty((0, 0), dtype=self.dtype)
            self.n_iter_, self._seen, self._sum, self._squares = 0, 0, 0.0, 0.0
            self._stream = (np.empty((0, 2), dtype=np.int64), torch.zeros(0, dtype=getattr(torch, self.dtype)))
        assert self._stream is not None
        before, averaged = self._stream
        cells = np.unique(np.concatenate([before, pairs]), axis=0)
        rows, columns = np.unique(cells[:, 0]), np.unique(cells[:, 1])
        grown = np.zeros((len(rows), len(columns)), dtype=self.dtype)
        grown[np.ix_(np.searchsorted(rows, self.rows_), np.searchsorted(columns, self.columns_))] = self.matrix_
        self.rows_, self.columns_ = rows, columns
        self._seen += len(ratings)
        self._sum, self._squares = self._sum + float(ratings.sum()), self._squares + float(np.square(ratings).sum())
        self.mean_ = self._sum / self._seen
        self.radius_ = self._radius(np.array([math.sqrt(self._squares / self._seen)]), grown.shape)
        flat = np.searchsorted(rows, cells[:, 0]) * len(columns) + np.searchsorted(columns, cells[:, 1])
        old = np.searchsorted(rows, before[:, 0]) * len(columns) + np.searchsorted(columns, before[:, 1])
        d = torch.zeros(len(cells), dtype=averaged.dtype)
        d[torch.from_numpy(np.searchsorted(flat, old))] = averaged
        new = np.searchsorted(rows, pairs[:, 0]) * len(columns) + np.searchsorted(columns, pairs[:, 1])
        objective = _Batch(flat, np.searchsorted(flat, new), ratings, grown.shape, averaged.dtype)
        offset = self.n_iter_
        usual = schedules.shcgm(self.beta0)
        schedule = Schedule(usual.step, usual.smoothing, lambda k: usual.averaging(k) if k == offset + 1 else 0.0)
        solver = Homotopy(objective, self._atoms(), self._terms(), grown, schedule, first=offset + 1, averaged=d)
        result, d = solver.run(1, name="partial_fit"), solver.averaged
        self._keep(result, 2)
        self.n_iter_ = offset + 1
        self._stream = (cells, d)
        return self

    def _fit_more(self, pairs: np.ndarray, ratings: np.ndarray) -> "MatrixCompletion":
        before = getattr(self, "_seen_ratings", None)
        if before is not None:
            pairs, ratings = np.concatenate([before[0], pairs]), np.concatenate([before[1], ratings])
        newest = len(pairs) - 1 - np.unique(pairs[::-1], axis=0, return_index=True)[1]
        given, self.radius = self.radius, self.radius_ if before is not None and self.radius is None else self.radius
        try:
            return self.fit(pairs[newest], ratings[newest])
        finally:
            self.radius = given

    def predict(self, X: Any) -> np.ndarray:
        """Ratings at pairs X ``[N, 2]``, clipped to the box; the mean rating where a row or column had none."""
        ratings = self.entries(X)
        lower, upper = self._bounds()
        return np.clip(ratings, lower, upper)

    def entries(self, X: Any) -> np.ndarray:
        """Entries of the iterate at pairs X ``[N, 2]``, which may still violate the box by ``feasibility_``."""
        check_is_fitted(self, "matrix_")
        pairs = self._pairs(X)
        places, known = [], np.ones(len(pairs), dtype=bool)
        for axis, kept in enumerate((self.rows_, self.columns_)):
            place = np.minimum(np.searchsorted(kept, pairs[:, axis]), len(kept) - 1)
            known &= kept[place] == pairs[:, axis]
            places.append(place)
        if not known.all():
            warnings.warn(
                f"{int((~known).sum())} of {len(known)} pairs are in a row or column without any rating in training: "
                f"their prediction is the mean rating, {self.mean_:.3g}.",
                UserWarning,
                stacklevel=3,
            )
        values = self.matrix_[places[0], places[1]].astype(np.float64)
        return np.where(known, values, self.mean_)

    def rmse(self, X: Any, y: Any, clip: bool = True) -> float:
        """Root mean squared error of predictions, or of the iterate's entries as they are."""
        predictions = self.predict(X) if clip else self.entries(X)
        return float(np.sqrt(np.mean(np.square(predictions - column_or_1d(y)))))

    def _keep(self, result: Result, features: int) -> None:
        self.result_ = result
        self.matrix_ = np.asarray(result.x)
        self.n_iter_ = result.iterations
        lower, upper = self._bounds()
        self.feasibility_ = float(np.linalg.norm(self.matrix_ - np.clip(self.matrix_, lower, upper)))
        self.n_features_in_ = features

    def _atoms(self) -> NuclearBall:
        return NuclearBall(self.radius_, method=self.oracle, tol=self.oracle_tol, warm=self.warm_oracle)

    def _bounds(self) -> tuple[float, float]:
        lower, upper = self.box if self.box is not None else (None, None)
        return (-math.inf if lower is None else float(lower), math.inf if upper is None else float(upper))

    def _terms(self) -> list[Term]:
        lower, upper = self._bounds()
        return [Box(lower, upper)] if math.isfinite(lower) or math.isfinite(upper) else []

    def _radius(self, ratings: np.ndarray, shape: tuple[int, ...]) -> float:
        if self.radius is not None:
            return float(self.radius)
        rms = float(np.sqrt(np.mean(np.square(ratings))))
        return RADIUS * (rms or 1.0) * math.sqrt(math.prod(shape))

    def _shape(self, pairs: np.ndarray) -> tuple[int, int]:
        largest = pairs.max(axis=0)
        if self.shape is None:
            return int(largest[0]) + 1, int(largest[1]) + 1
        m, n = (int(size) for size in self.shape)
        if largest[0] >= m or largest[1] >= n:
            raise ValueError(
                f"X has the pair {tuple(int(i) for i in largest)} but shape is {(m, n)}: expected indices from 0 below "
                "it; leave shape out to have it found."
            )
        return m, n

    @staticmethod
    def _warn_empty(count: int, total: int, what: str) -> None:
        if count:
            warnings.warn(
                f"{count} of {total} {what} have no rating: they are left out, and predicted by the mean rating.",
                UserWarning,
                stacklevel=3,
            )

    @staticmethod
    def _pairs(X: Any) -> np.ndarray:
        if is_sparse(X):
            raise TypeError("sparse input is not supported: X are pairs (row, column), y their ratings.")
        pairs = np.asarray(X)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(f"X has shape {list(pairs.shape)}: expected pairs (row, column), [N, 2].")
        try:
            exact = bool(np.isfinite(pairs.astype(np.float64)).all())
            whole = pairs.astype(np.int64) if exact else pairs
            exact = exact and bool((whole == pairs).all())
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"X cannot be read as pairs of indices ({error}): put OrdinalEncoder before, if they are names."
            ) from error
        if not exact:
            raise ValueError("X has entries that are no whole numbers: expected pairs (row, column) of indices.")
        return whole

    def _read(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        pairs = self._pairs(X)
        if y is None:
            raise ValueError(
                "MatrixCompletion requires y to be passed, but the target y is None: expected the rating of every pair."
            )
        ratings = column_or_1d(np.asarray(y, dtype=np.float64))
        if len(pairs) != len(ratings) or not len(pairs):
            raise ValueError(f"{len(pairs)} pairs and {len(ratings)} ratings: expected as many, and at least one.")
        if not np.isfinite(ratings).all():
            raise ValueError("y has ratings that are not finite: drop the pairs whose rating is missing.")
        if (pairs < 0).any():
            raise ValueError(f"X has the index {int(pairs.min())}: expected indices from 0.")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype is {self.dtype!r}: expected 'float32' or 'float64'.")
        lower, upper = self._bounds()
        outside = int(((ratings < lower) | (ratings > upper)).sum())
        if outside:
            raise ValueError(
                f"{outside} of {len(ratings)} ratings are outside the box [{lower:g}, {upper:g}] (they go from "
                f"{ratings.min():g} to {ratings.max():g}): no completion can fit them; pass box=({ratings.min():g}, "
                f"{ratings.max():g}) or drop them."
            )
        return pairs, ratings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.positive_only = True
        return tags


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


class _Batch(SampledEntries):
    """One mini-batch over a support that it is a part of."""

    def __init__(
        self, support: np.ndarray, places: np.ndarray, ratings: np.ndarray, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        self.support = torch.from_numpy(support)
        self.places, self.targets = torch.from_numpy(places), torch.from_numpy(ratings).to(dtype)
        self.shape, self.dtype, self.numpy = shape, dtype, True

    def average(self, d: torch.Tensor, x: Any, rho: float, generator: torch.Generator) -> torch.Tensor:
        """The whole batch."""
        if rho == 0:
            return d
        assert self.support is not None
        errors = x.observed(self.support, self.places) - self.targets
        return d.mul_(1 - rho).index_add_(0, self.places, errors, alpha=2 * rho * len(d) / len(errors))

    def value(self, x: Any) -> float:
        """Of the batch."""
        assert self.support is not None
        return float((x.observed(self.support, self.places) - self.targets).double().square().sum())
