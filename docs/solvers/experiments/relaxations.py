"""Convex relaxations beside what else solves them: k-means by SCS and Clarabel, ratings by alternating least squares.

    python docs/solvers/experiments/relaxations.py kmeans --counts 60 100 300
    python docs/solvers/experiments/relaxations.py ratings
    python docs/solvers/experiments/relaxations.py intersections

kmeans   the semidefinite relaxation on MNIST features: seconds until the objective is within 1 % of the optimum and
         every constraint within 1e-2, and stays so; SCS and Clarabel by cvxpy at the loosest of their tolerances that
         reaches the same, Clarabel for at most ten minutes by the clock. With --thesis HCGM and SHCGM, as the thesis
         has them, after as many iterations.
ratings  test RMSE on MovieLens 100k (split ub): the mean, biases, the default of MatrixCompletion, and alternating
         least squares on the same biases, its rank and ridge tuned on a tenth of the training ratings, at equal time.
intersections  projections of ten random points on intersections, by minimise_over_intersection with and without dual
         variables: worst distance from Clarabel's answer, worst infeasibility, longest time. Needs no data.

Processor time of one thread (OMP_NUM_THREADS=1). The data is not part of the project: --data is a folder with
mnist_kmeans/ and movielens100k/.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import scipy.sparse

from unknot.solvers import MatrixCompletion, atoms, minimise_over_intersection, terms
from unknot.solvers.estimators import SampledDistances, kmeans_sdp

OPTIMA = {60: 1.53381, 100: 6.28240, 300: 21.35737}
"""⟨D, X⟩ at the optimum for the first n features and k = 10, by SCS to 1e-9."""

Pairs = tuple[np.ndarray, np.ndarray]


class Quality(NamedTuple):
    """⟨D, X⟩, its relative error, and violations: row sums (rms), entries below 0, trace and eigenvalues."""

    value: float
    error: float
    rows: float
    negative: float
    rest: float

    @classmethod
    def of(cls, x: np.ndarray, distances: np.ndarray, optimum: float) -> "Quality":
        """Of a matrix."""
        value, low = float((distances * x).sum()), min(0.0, float(np.linalg.eigvalsh(x)[0]))
        rows = float(np.linalg.norm(x.sum(1) - 1)) / len(x) ** 0.5
        negative = float(np.linalg.norm(np.minimum(x, 0)))
        return cls(value, value / optimum - 1, rows, negative, max(abs(float(np.trace(x)) - 10) / 10, -low))

    @property
    def good(self) -> bool:
        """Return whether it is as accurate as is asked for."""
        return abs(self.error) <= 0.01 and max(self[2:]) <= 0.01

    def __str__(self) -> str:
        return (
            f"<D, X> {self.value:.4f} ({100 * self.error:+.2f} %), rows {self.rows:.1e}, negative {self.negative:.1e}, "
            f"trace and eigenvalues {self.rest:.1e}"
        )


def ours(points: np.ndarray, distances: np.ndarray, optimum: float, method: str, iterations: int) -> None:
    """The first look after which every one is good, and some others."""
    looks: dict[int, tuple[float, Quality]] = {}
    spent, before = 0.0, time.process_time()

    def look(state: Any) -> None:
        nonlocal spent, before
        if state.iteration and (state.iteration % 250 == 0 or state.iteration == 100):
            spent += time.process_time() - before
            looks[state.iteration] = spent, Quality.of(state.x, distances, optimum)
            before = time.process_time()

    kmeans_sdp(
        points,
        10,
        method=method,
        batch_size=len(points) // 10,
        oracle_tol=1e-4,
        max_iterations=iterations,
        evaluate_every=250,
        callback=look,
    )
    last_bad = max((k for k, (_, quality) in looks.items() if not quality.good), default=0)
    first = min((k for k in looks if k > last_bad), default=None)
    for k in sorted({100, 1000, 2000, 5000, 10_000, first or iterations, iterations} & set(looks)):
        mark = "  <- from here on within 1 % and 1e-2" if k == first else ""
        print(f"  {method:<14} k = {k:>6}: {looks[k][0]:7.1f} s, {looks[k][1]}{mark}", flush=True)
    if first is None:
        print(f"  {method:<14} is not within 1 % and 1e-2 after {iterations} iterations")


def theirs(distances: np.ndarray, optimum: float, solver: str, tolerances: list[dict[str, float]]) -> None:
    """cvxpy with a solver, from the loosest tolerance on."""
    import cvxpy

    n = len(distances)
    x = cvxpy.Variable((n, n), PSD=True)
    constraints = [cvxpy.sum(x, axis=1) == 1, x >= 0, cvxpy.trace(x) == 10]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cvxpy.multiply(distances, x))), constraints)
    start = time.process_time()
    problem.get_problem_data(solver)
    compiling = time.process_time() - start
    for options in tolerances:
        start = time.process_time()
        try:
            problem.solve(solver=solver, warm_start=False, **options)
        except cvxpy.SolverError as error:
            print(f"  {solver:<14} {options}: {time.process_time() - start:7.1f} s, {error}", flush=True)
            return
        seconds = time.process_time() - start
        if x.value is None:
            print(f"  {solver:<14} {options}: {seconds:7.1f} s, {problem.status}", flush=True)
            continue
        found = Quality.of((x.value + x.value.T) / 2, distances, optimum)
        print(
            f"  {solver:<14} {options}: {seconds:7.1f} s (and {compiling:.1f} s to compile), {problem.status}, {found}",
            flush=True,
        )
        if found.good:
            return


def kmeans(data: Path, counts: list[int], thesis: bool) -> None:
    """Both sides for each number of points."""
    stored = scipy.io.loadmat(data / "mnist_kmeans" / "data_features.mat")
    features = stored["digits"].astype(float).T
    for count in counts:
        points = features[:count]
        distances = SampledDistances(points, 2).distances().numpy()
        print(f"\nk-means SDP, n = {count}, k = 10, optimum {OPTIMA[count]}", flush=True)
        iterations = {60: 10_000, 100: 10_000}.get(count, 12_000)
        for method in ("augmented", "deterministic", "stochastic") if thesis else ("augmented",):
            ours(points, distances, OPTIMA[count], method, iterations)
        theirs(distances, OPTIMA[count], "SCS", [{"eps": eps, "max_iters": 10**5} for eps in (1e-2, 1e-3, 1e-4, 1e-5)])
        names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        limits = [{**dict.fromkeys(names, eps), "time_limit": 600.0} for eps in (1e-3, 1e-5)]
        block = 8 * (count * (count + 1) // 2) ** 2  # bytes of its cone's part of the KKT system, asked for at once
        if block < 8e9:
            theirs(distances, OPTIMA[count], "CLARABEL", limits)
        else:
            print(f"  CLARABEL       is left out: it would ask for {block / 1e9:.1f} GB at once")


def biases(train: Pairs, shape: tuple[int, int], ridge: float = 5.0, sweeps: int = 10) -> Callable[[Any], np.ndarray]:
    """Mean, user and item biases by alternating ridge regression, as a predictor of pairs ``[N, 2]``."""
    (users, items), ratings = train[0].T, train[1]
    mean = float(ratings.mean())
    user, item = np.zeros(shape[0]), np.zeros(shape[1])
    counts = np.bincount(users, minlength=shape[0]), np.bincount(items, minlength=shape[1])
    for _ in range(sweeps):
        item = np.bincount(items, ratings - mean - user[users], shape[1]) / (counts[1] + ridge)
        user = np.bincount(users, ratings - mean - item[items], shape[0]) / (counts[0] + ridge)
    return lambda pairs: mean + user[pairs[:, 0]] + item[pairs[:, 1]]


def alternating(
    train: Pairs, shape: tuple[int, int], rank: int, ridge: float, seconds: float, seed: int = 0
) -> Callable[[Any], np.ndarray]:
    """Alternating least squares on what the biases leave: all users, then all items, in one batch of small systems."""
    end = time.process_time() + seconds
    base = biases(train, shape)
    residual = train[1] - base(train[0])
    rng = np.random.default_rng(seed)
    factors = [0.1 * rng.standard_normal((size, rank)) for size in shape]
    owners = [
        scipy.sparse.csr_array((np.ones(len(residual)), (train[0][:, side], np.arange(len(residual)))))
        for side in (0, 1)
    ]
    owners = [
        scipy.sparse.csr_array((o.data, o.indices, o.indptr), (shape[i], o.shape[1])) for i, o in enumerate(owners)
    ]
    for sweep in itertools.count():
        side = sweep % 2
        if sweep > 1 and side == 0 and time.process_time() >= end:
            break
        other = factors[1 - side][train[0][:, 1 - side]]
        grams = (owners[side] @ (other[:, :, None] * other[:, None]).reshape(len(other), -1)).reshape(-1, rank, rank)
        right = owners[side] @ (other * residual[:, None])
        factors[side] = np.linalg.solve(grams + ridge * np.eye(rank), right[:, :, None])[:, :, 0]
    return lambda pairs: base(pairs) + (factors[0][pairs[:, 0]] * factors[1][pairs[:, 1]]).sum(1)


def rmse(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Of predictions clipped to the scale of ratings."""
    return float(np.sqrt(np.mean((np.clip(predicted, 1, 5) - truth) ** 2)))


def ratings(data: Path, seeds: int) -> None:
    """Test RMSE and processor seconds."""
    from solver_experiments import load_movielens

    train, test = (load_movielens(data / "movielens100k" / f"ub.{part}") for part in ("base", "test"))
    shape = (
        int(max(train[0][:, 0].max(), test[0][:, 0].max())) + 1,
        int(max(train[0][:, 1].max(), test[0][:, 1].max())) + 1,
    )
    known = np.isin(test[0][:, 0], train[0][:, 0]) & np.isin(test[0][:, 1], train[0][:, 1])
    test = test[0][known], test[1][known]
    held = np.random.default_rng(0).random(len(train[1])) < 0.1
    inner, outer = (train[0][~held], train[1][~held]), (train[0][held], train[1][held])
    print(f"\nMovieLens 100k, ub, {len(train[1])} ratings to train on, {len(test[1])} to test on")
    print(f"  mean of all           {rmse(np.full(len(test[1]), train[1].mean()), test[1]):.4f}")
    start = time.process_time()
    base = biases(train, shape)
    print(f"  biases                {rmse(base(test[0]), test[1]):.4f}   {time.process_time() - start:.2f} s")
    start, best = time.process_time(), (np.inf, 0, 0.0)
    for rank, ridge in itertools.product((5, 10), (5.0, 10.0, 20.0)):
        model = alternating(inner, shape, rank, ridge, 1.0)
        best = min(best, (rmse(model(outer[0]), outer[1]), rank, ridge))
    print(f"  least squares tuned to rank {best[1]}, ridge {best[2]:g} in {time.process_time() - start:.1f} s")
    for seed in range(seeds):
        start = time.process_time()
        model = MatrixCompletion(random_state=seed).fit(*train)
        seconds = time.process_time() - start
        print(f"  MatrixCompletion      {rmse(model.predict(test[0]), test[1]):.4f}   {seconds:.2f} s, seed {seed}")
        for times in (1, 5):
            start = time.process_time()
            peer = alternating(train, shape, best[1], best[2], times * seconds, seed)
            spent = time.process_time() - start
            print(
                f"  least squares         {rmse(peer(test[0]), test[1]):.4f}   {spent:.2f} s, seed {seed}", flush=True
            )


def intersections(iterations: int = 3000) -> None:
    """Both methods on three intersections, for four smoothing constants."""
    import cvxpy

    u = cvxpy.Variable(6)
    cases: dict[str, tuple[Any, Any, list[Any]]] = {
        "L2 and L1 ball": (atoms.L2Ball(1.0, 6), atoms.L1Ball(1.5, 6), [cvxpy.norm(u) <= 1, cvxpy.norm1(u) <= 1.5]),
        "simplex and box": (atoms.Simplex(1.0, 6), atoms.Box(0.0, 0.3, 6), [u >= 0, cvxpy.sum(u) == 1, u <= 0.3]),
        "L1 ball, box projected": (
            atoms.L1Ball(2.0, 6),
            terms.Box(-0.3, 0.5),
            [cvxpy.norm1(u) <= 2, u >= -0.3, u <= 0.5],
        ),
    }
    for (name, (first, second, constraints)), beta0, method in itertools.product(
        cases.items(), (0.01, 0.1, 1.0, 10.0), ("homotopy", "augmented")
    ):
        rows = []
        for seed in range(10):
            y = 2 * np.random.default_rng(seed).standard_normal(6)
            cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(u - y)), constraints).solve(solver="CLARABEL")
            start = time.process_time()
            result = minimise_over_intersection(y, first, second, method=method, beta0=beta0, max_iterations=iterations)
            rows.append((np.abs(result.x - u.value).max(), result.feasibility, time.process_time() - start))
        error, violation, seconds = np.max(np.array(rows, dtype=float), axis=0)
        print(f"{name:24s} {method:10s} beta0 {beta0:5g}: {error:.4f}; {violation:.1e}; {seconds:.2f} s", flush=True)


def main() -> None:
    """Run the part asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("kmeans", "ratings", "intersections"))
    parser.add_argument("--counts", type=int, nargs="+", choices=list(OPTIMA), default=list(OPTIMA), help="points")
    parser.add_argument("--thesis", action="store_true", help="HCGM and SHCGM as well")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path("data"))
    arguments = parser.parse_args()
    if arguments.part == "kmeans":
        kmeans(arguments.data, arguments.counts, arguments.thesis)
    elif arguments.part == "intersections":
        intersections()
    else:
        ratings(arguments.data, arguments.seeds)


if __name__ == "__main__":
    main()
