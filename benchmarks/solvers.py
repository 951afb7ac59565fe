"""Solvers beside the packages people use today, in one run: copt, scikit-learn and SciPy.

The first three have a target they should meet: least squares over the L1 ball (iterations per second, and the gap
after equal time, against copt with the same step rule), batched orthogonal matching pursuit (time per signal, against
scikit-learn), projection on a cone (time to 1e-8, against scipy.optimize.nnls). Times are processor times and rounds
alternate, so that other work on the machine meets both sides; OMP_NUM_THREADS=1 gives both sides one core.
"""

import argparse
import io
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import scipy
import scipy.optimize
import torch
from common import Row, compare, run

from unknot.solvers import LeastSquares, frank_wolfe, matching_pursuit, nonnegative_matching_pursuit
from unknot.solvers.atoms import Dictionary, L1Ball, Simplex


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds and result of a call."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def until(seconds: float) -> Callable[[Any], bool]:
    """A callback that ends a run after so many processor seconds."""
    end = time.process_time() + seconds
    return lambda state: time.process_time() >= end


def l1_least_squares(rounds: int, rows: int = 1000, columns: int = 2000, iterations: int = 500) -> None:
    """Iterations per second and gap after equal time, against copt."""
    try:
        import copt
    except ImportError:
        print("L1 ball: copt is not installed, so there is nothing to compare with; pip install 'unknot[bench]'")
        return
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((rows, columns)) / np.sqrt(rows)
    weights = np.zeros(columns)
    support = rng.choice(columns, max(5, columns // 50), replace=False)
    weights[support] = rng.standard_normal(len(support))
    target = matrix @ weights + 0.01 * rng.standard_normal(rows)
    radius = float(np.abs(weights).sum())
    theirs_f = copt.loss.SquareLoss(matrix, target)
    lipschitz = float(theirs_f.lipschitz)

    def gap(x: np.ndarray) -> float:
        gradient = matrix.T @ (matrix @ x - target) / rows
        return float(gradient @ x + radius * np.abs(gradient).max())

    def copt_run(step: str) -> np.ndarray:
        with redirect_stdout(io.StringIO()):
            result = copt.minimize_frank_wolfe(
                theirs_f.f_grad,
                np.zeros(columns),
                copt.constraint.L1Ball(radius).lmo,
                step=step,
                lipschitz=lipschitz if step == "DR" else None,
                max_iter=iterations,
                tol=0,
            )
        solution: np.ndarray = result.x
        return solution

    def our_run(step: str, **limits: Any) -> Any:
        f = LeastSquares(matrix, target, reduction="mean")
        smoothness = lipschitz if step == "short" else None
        return frank_wolfe(f, L1Ball(radius), np.zeros(columns), step=step, smoothness=smoothness, tol=0, **limits)

    print(f"\nLeast squares over the L1 ball, {rows} x {columns}, {iterations} iterations, same step rule")
    print(f"{'step':<14} {'copt it/s':>10} {'unknot it/s':>12} {'ratio':>7}   gap after copt's time: copt, unknot")
    worst = float("inf")
    for theirs, ours in (("sublinear", "open-loop"), ("DR", "short"), ("backtracking", "backtracking")):
        copt_seconds, our_seconds = [], []
        for _ in range(rounds):
            seconds, x = timed(lambda theirs=theirs: copt_run(theirs))
            copt_seconds.append(seconds)
            seconds, _ = timed(lambda ours=ours: our_run(ours, max_iterations=iterations))
            our_seconds.append(seconds)
        limit = statistics.median(copt_seconds)
        there = our_run(ours, max_iterations=10**9, callback=until(limit))
        ratio = limit / statistics.median(our_seconds)
        worst = min(worst, ratio)
        print(
            f"{ours:<14} {iterations / limit:>10.0f} {iterations / limit * ratio:>12.0f} {ratio:>7.1f}   "
            f"{gap(x):.2e}, {gap(there.x):.2e}"
        )
    pairwise = frank_wolfe(
        LeastSquares(matrix, target, reduction="mean"),
        L1Ball(radius),
        variant="pairwise",
        tol=0,
        max_iterations=10**9,
        callback=until(limit),
    )
    print(f"{'pairwise':<14} {'':>10} {pairwise.iterations / limit:>12.0f} {'':>7}   {'':>8}  {gap(pairwise.x):.2e}")
    print(f"smallest ratio {worst:.1f} (target: at least 1.8)")


def batched_omp(rounds: int, signals: int = 100, nonzeros: int = 26) -> None:
    """Milliseconds per signal, against scikit-learn."""
    try:
        from sklearn.linear_model import orthogonal_mp
    except ImportError:
        print("\nOMP: scikit-learn is not installed; pip install 'unknot[bench]'")
        return
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((256, 1024))
    atoms /= np.linalg.norm(atoms, axis=0)
    truth = np.zeros((signals, 1024))
    for row in truth:
        row[rng.choice(1024, nonzeros, replace=False)] = rng.standard_normal(nonzeros)
    targets = truth @ atoms.T
    sklearn_seconds, our_seconds = [], []
    for _ in range(rounds):
        seconds, theirs = timed(lambda: orthogonal_mp(atoms, targets.T, n_nonzero_coefs=nonzeros))
        sklearn_seconds.append(seconds)
        seconds, ours = timed(
            lambda: matching_pursuit(targets, atoms, variant="orthogonal", max_iterations=nonzeros, tol=0)
        )
        our_seconds.append(seconds)
    a, b = statistics.median(sklearn_seconds) / signals * 1e3, statistics.median(our_seconds) / signals * 1e3
    print(f"\nOrthogonal matching pursuit, 256 x 1024, {nonzeros} nonzeros, {signals} signals")
    print(
        f"scikit-learn {a:.2f} ms/signal (error {np.abs(theirs.T - truth).max():.0e}), "
        f"unknot {b:.2f} ms/signal (error {np.abs(ours.coefficients - truth).max():.0e}), "
        f"ratio {a / b:.1f} (target: at least 5)"
    )


def cone_projection(rounds: int, atoms_count: int = 2000, dim: int = 500) -> None:
    """Seconds to 1e-8, against scipy.optimize.nnls."""
    print(f"\nProjection on a cone of {atoms_count} atoms in R^{dim}, fully corrective, to a certified 1e-8")
    worst = 0.0
    for positive in (False, True):
        for seed in (0, 1):
            rng = np.random.default_rng(seed)
            atoms = np.abs(rng.standard_normal((dim, atoms_count)))
            atoms /= np.linalg.norm(atoms, axis=0)
            target = rng.standard_normal(dim)
            target = np.abs(target) if positive else target
            scipy_seconds, our_seconds = [], []
            for _ in range(rounds):
                seconds, (_, residual) = timed(lambda a=atoms, y=target: scipy.optimize.nnls(a, y))
                scipy_seconds.append(seconds)
                seconds, result = timed(lambda a=atoms, y=target: nonnegative_matching_pursuit(y, a, tol=1e-8))
                our_seconds.append(seconds)
            a, b = statistics.median(scipy_seconds), statistics.median(our_seconds)
            worst = max(worst, b / a)
            print(
                f"{'positive' if positive else 'signed':<9} seed {seed}: nnls {a:.4f} s, unknot {b:.4f} s, "
                f"ratio {b / a:.2f}, difference of f {result.value - residual**2 / 2:.0e}, gap {result.gap:.0e}, "
                f"{len(result.active)} atoms"
            )
    print(f"largest ratio {worst:.2f} (target: at most 5)")


def entries() -> Iterator[Row]:
    """One size of each of the three."""
    torch.set_num_threads(1)
    from sklearn.linear_model import orthogonal_mp

    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((256, 1024))
    atoms /= np.linalg.norm(atoms, axis=0)
    chosen = rng.standard_normal((100, 1024)) * (rng.random((100, 1024)).argsort(1) < 26)
    targets = chosen @ atoms.T
    yield compare(
        "orthogonal matching pursuit of 100 signals, 256 x 1024, 26 nonzeros",
        lambda: matching_pursuit(targets, atoms, variant="orthogonal", max_iterations=26, tol=0),
        "scikit-learn",
        lambda: orthogonal_mp(atoms, targets.T, n_nonzero_coefs=26),
        3,
    )
    cone = np.abs(rng.standard_normal((500, 2000)))
    cone /= np.linalg.norm(cone, axis=0)
    target = np.abs(rng.standard_normal(500))
    yield compare(
        "projection on a cone of 2000 atoms in R^500, certified to 1e-8",
        lambda: nonnegative_matching_pursuit(target, cone, tol=1e-8),
        "scipy.optimize.nnls",
        lambda: scipy.optimize.nnls(cone, target),
        3,
    )
    try:
        import copt
    except ImportError:
        return
    matrix = rng.standard_normal((1000, 2000)) / np.sqrt(1000)
    f = copt.loss.SquareLoss(matrix, matrix[:, :40].sum(1))

    def theirs() -> None:
        with redirect_stdout(io.StringIO()):
            copt.minimize_frank_wolfe(
                f.f_grad, np.zeros(2000), copt.constraint.L1Ball(40.0).lmo, step="sublinear", max_iter=200, tol=0
            )

    ours = LeastSquares(matrix, matrix[:, :40].sum(1), reduction="mean")
    yield compare(
        "200 iterations of Frank-Wolfe over the L1 ball, 1000 x 2000",
        lambda: frank_wolfe(ours, L1Ball(40.0), np.zeros(2000), step="open-loop", tol=0, max_iterations=200),
        "copt",
        theirs,
        3,
    )


def contest(name: str, peer: str, theirs: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> None:
    """A line with median processor seconds of both sides, in turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for kept, call in zip(seconds, (theirs, ours), strict=True):
            kept.append(timed(call)[0])
    a, b = (1e3 * statistics.median(kept) for kept in seconds)
    print(f"{name:<66} {peer:<18} {a:>9.2f} ms {b:>9.2f} ms {a / b:>6.2f}", flush=True)


def small_and_tall(rounds: int) -> None:
    """Where others are likely to be faster: pursuit, tall cones, small problems, the Lasso, a simple set."""
    from sklearn.linear_model import Lasso, orthogonal_mp

    print("\nWhere others may be faster (processor time; a ratio above 1 is ours)")
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((256, 1024))
    atoms /= np.linalg.norm(atoms, axis=0)
    signal = atoms[:, :26] @ rng.standard_normal(26)
    omp: dict[str, Any] = {"variant": "orthogonal", "max_iterations": 26, "tol": 0}
    for name, dictionary in (("a matrix", atoms), ("a Dictionary made once", Dictionary(atoms))):
        contest(
            f"OMP, one signal, 256 x 1024, 26 nonzeros, {name}",
            "scikit-learn",
            lambda: orthogonal_mp(atoms, signal, n_nonzero_coefs=26),
            lambda dictionary=dictionary: matching_pursuit(signal, dictionary, **omp),
            3 * rounds,
        )
    try:
        import spams
    except ImportError:
        print("spams is not installed, so pursuit has one peer less; pip install 'unknot[bench]'")
    else:
        many = np.asfortranarray(atoms[:, :26] @ rng.standard_normal((26, 100)))
        contest(
            "OMP, 100 signals, 256 x 1024, 26 nonzeros",
            "spams",
            lambda: spams.omp(many, np.asfortranarray(atoms), L=26, numThreads=1),
            lambda: matching_pursuit(many.T, atoms, **omp),
            rounds,
        )
    for m, n in ((2000, 500), (500, 2000), (100, 50)):
        cone, target = np.abs(rng.standard_normal((m, n))), np.abs(rng.standard_normal(m))
        contest(
            f"non-negative least squares, {m} x {n}",
            "SciPy nnls",
            lambda cone=cone, target=target: scipy.optimize.nnls(cone, target),
            lambda cone=cone, target=target: nonnegative_matching_pursuit(target, cone, tol=1e-8),
            rounds,
        )
    for m, n in ((20, 16), (100, 200), (1000, 2000)):
        matrix = rng.standard_normal((m, n)) / np.sqrt(m)
        target = matrix[:, :5].sum(1) + 0.1 * rng.standard_normal(m)
        penalty = 0.1 * float(np.abs(matrix.T @ target).max()) / m
        lasso = Lasso(alpha=penalty, fit_intercept=False, tol=1e-8, max_iter=100_000)
        ball = L1Ball(float(np.abs(lasso.fit(matrix, target).coef_).sum()))
        f = LeastSquares(matrix, target)
        for variant in ("fully-corrective", "blended-corrective"):
            contest(
                f"least squares over the L1 ball to 1e-6, {m} x {n}, {variant}",
                "scikit-learn Lasso",
                lambda lasso=lasso, matrix=matrix, target=target: lasso.fit(matrix, target),
                lambda f=f, ball=ball, variant=variant: frank_wolfe(f, ball, variant=variant, tol=1e-6),
                rounds,
            )
    size, steps = 3_000_000, 30
    nearest, start = rng.random(size) / size, np.eye(1, size)[0]

    def lines() -> None:
        x = start.copy()
        for k in range(steps):
            gradient = x - nearest
            i = int(gradient.argmin())
            _ = gradient @ x - gradient[i]
            x *= k / (k + 2)
            x[i] += 2 / (k + 2)

    contest(
        f"{steps} open-loop steps over the simplex, n = {size:,}",
        "lines of NumPy",
        lines,
        lambda: frank_wolfe(nearest, Simplex(), start, step="open-loop", tol=0, max_iterations=steps, track=False),
        rounds,
    )


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="alternations of both sides; medians are printed")
    arguments = parser.parse_args()
    print(
        f"torch {torch.__version__} with {torch.get_num_threads()} thread(s), numpy {np.__version__}, "
        f"scipy {scipy.__version__}"
    )
    l1_least_squares(arguments.rounds)
    batched_omp(arguments.rounds)
    cone_projection(arguments.rounds)
    small_and_tall(arguments.rounds)


if __name__ == "__main__":
    run(entries, main)
