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
import scipy.sparse
import torch
from common import Row, compare, run

from unknot.solvers import LeastSquares, Logistic, frank_wolfe, matching_pursuit, nonnegative_matching_pursuit
from unknot.solvers.atoms import L1Ball, Simplex


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
    """A line with the least processor seconds of both sides, in turns after a first round that is not counted."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for kept, call in zip(seconds, (theirs, ours), strict=True):
            kept.append(timed(call)[0])
    a, b = (1e3 * min(kept[1:] or kept) for kept in seconds)
    print(f"{name:<66} {peer:<18} {a:>9.2f} ms {b:>9.2f} ms {a / b:>6.2f}", flush=True)


def everyday(rounds: int) -> None:
    """Sizes that people have, beside what they use today; also where others are faster."""
    print("\nEveryday sizes (processor time; a ratio above 1 is ours)")
    hulls(rounds)
    lassos(rounds)
    pursuits(rounds)
    cones(rounds)
    passes(rounds)


def hulls(rounds: int, steps: int = 300) -> None:
    """The same steps of Frank-Wolfe over the L1 ball as copt's."""
    try:
        import copt
    except ImportError:
        print("copt is not installed, so the hulls have no peer; pip install 'unknot[bench]'")
        return
    rng = np.random.default_rng(0)
    names = (("sublinear", "open-loop"), ("DR", "short"), ("backtracking", "backtracking"))
    for m, n, share in ((20, 16, 1.0), (100, 200, 1.0), (200, 1000, 1.0), (2000, 20_000, 0.01)):
        matrix = rng.standard_normal((m, n)) if share == 1 else scipy.sparse.random(m, n, share, "csr", random_state=0)
        target = matrix @ (np.arange(n) < 5.0) + 0.1 * rng.standard_normal(m)
        labels = (target > 0).astype(float)
        ball = copt.constraint.L1Ball(3.0)
        for loss, theirs, f in (
            ("squares", copt.loss.SquareLoss(matrix, target), LeastSquares(matrix, target, reduction="mean")),
            ("logistic", copt.loss.LogLoss(matrix, labels), Logistic(matrix, labels, reduction="mean")),
        ):
            lipschitz = float(theirs.lipschitz)
            for step, ours in names:
                options: dict[str, Any] = {"step": step, "lipschitz": lipschitz, "max_iter": steps, "tol": 0}

                def solve(theirs: Any = theirs, n: int = n, lmo: Any = ball.lmo, options: Any = options) -> None:
                    with redirect_stdout(io.StringIO()):
                        copt.minimize_frank_wolfe(theirs.f_grad, np.zeros(n), lmo, **options)

                contest(
                    f"{loss} over the L1 ball, {m} x {n}{' sparse' * (share < 1)}, {steps} steps, {ours}",
                    "copt",
                    solve,
                    lambda f=f, n=n, ours=ours, lipschitz=lipschitz: frank_wolfe(
                        f, L1Ball(3.0), np.zeros(n), step=ours, max_iterations=steps, tol=0, smoothness=lipschitz
                    ),
                    rounds,
                )


def lassos(rounds: int) -> None:
    """A Lasso in its constrained form, the radius taken from scikit-learn, which solves the penalised one."""
    from sklearn.linear_model import Lasso

    peers: list[tuple[str, Any]] = [("scikit-learn", Lasso)]
    try:
        from celer import Lasso as Celer

        peers.append(("celer", Celer))
    except ImportError:
        print("celer is not installed, so the Lasso has one peer less; pip install 'unknot[bench]'")
    rng = np.random.default_rng(0)
    for m, n in ((20, 16), (200, 1000), (1000, 2000)):
        matrix, weights = rng.standard_normal((m, n)), np.zeros(n)
        weights[: min(20, n // 3)] = rng.standard_normal(min(20, n // 3))
        target = matrix @ weights + 0.1 * rng.standard_normal(m)
        penalty = 0.05 * float(np.abs(matrix.T @ target).max()) / m
        best = Lasso(alpha=penalty, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(matrix, target)
        ball, tol = L1Ball(float(np.abs(best.coef_).sum())), 5e-7 * float(target @ target)
        for variant in ("pairwise", "fully-corrective", "blended-corrective"):
            for peer, kind in peers[: len(peers) if variant == "pairwise" else 1]:
                contest(
                    f"Lasso to a relative gap of 1e-6, {m} x {n}, {variant}",
                    peer,
                    lambda kind=kind, matrix=matrix, target=target, penalty=penalty: kind(
                        alpha=penalty, fit_intercept=False, tol=1e-6, max_iter=100_000
                    ).fit(matrix, target),
                    lambda matrix=matrix, target=target, ball=ball, tol=tol, variant=variant: frank_wolfe(
                        LeastSquares(matrix, target), ball, variant=variant, tol=tol, max_iterations=20_000
                    ),
                    rounds,
                )


def pursuits(rounds: int) -> None:
    """Orthogonal matching pursuit."""
    from sklearn.linear_model import orthogonal_mp

    try:
        import spams
    except ImportError:
        spams = None
        print("spams is not installed, so pursuit has one peer less; pip install 'unknot[bench]'")
    rng = np.random.default_rng(0)
    for m, n, k, signals in ((16, 20, 4, 1), (200, 1000, 20, 1), (256, 1024, 26, 1), (256, 1024, 26, 100)):
        atoms = rng.standard_normal((m, n))
        atoms /= np.linalg.norm(atoms, axis=0)
        targets = rng.standard_normal((signals, m))
        y = targets if signals > 1 else targets[0]
        name = f"OMP, {signals} signal{'s' * (signals > 1)}, {m} x {n}, {k} nonzeros"

        def ours(y: Any = y, atoms: Any = atoms, k: int = k) -> None:
            matching_pursuit(y, atoms, variant="orthogonal", max_iterations=k, tol=0)

        contest(
            name,
            "scikit-learn",
            lambda atoms=atoms, targets=targets, k=k: orthogonal_mp(atoms, targets.T, n_nonzero_coefs=k),
            ours,
            3 * rounds,
        )
        if spams is not None:
            fortran = np.asfortranarray(targets.T), np.asfortranarray(atoms)
            contest(name, "spams", lambda f=fortran, k=k: spams.omp(*f, L=k, numThreads=1), ours, 3 * rounds)


def cones(rounds: int) -> None:
    """Non-negative least squares."""
    rng = np.random.default_rng(0)
    for m, n in ((20, 16), (100, 50), (200, 1000), (500, 2000), (2000, 500)):
        cone, target = np.abs(rng.standard_normal((m, n))), np.abs(rng.standard_normal(m))
        contest(
            f"non-negative least squares, {m} x {n}, certified to 1e-8",
            "SciPy nnls",
            lambda cone=cone, target=target: scipy.optimize.nnls(cone, target, maxiter=100 * cone.shape[1]),
            lambda cone=cone, target=target: nonnegative_matching_pursuit(target, cone, tol=1e-8),
            rounds,
        )


def passes(rounds: int, size: int = 3_000_000, steps: int = 30) -> None:
    """Steps that are nothing but a few passes over memory."""
    nearest, start = np.random.default_rng(0).random(size) / size, np.eye(1, size)[0]

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
    parser.add_argument("--everyday", action="store_true", help="only the table of everyday sizes")
    arguments = parser.parse_args()
    print(
        f"torch {torch.__version__} with {torch.get_num_threads()} thread(s), numpy {np.__version__}, "
        f"scipy {scipy.__version__}"
    )
    if arguments.everyday:
        everyday(arguments.rounds)
        return
    l1_least_squares(arguments.rounds)
    batched_omp(arguments.rounds)
    cone_projection(arguments.rounds)
    everyday(arguments.rounds)


if __name__ == "__main__":
    run(entries, main)
