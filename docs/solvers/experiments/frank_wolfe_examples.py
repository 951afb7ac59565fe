"""The example problems of FrankWolfe.jl, here: iterations, questions to the oracle, gap and atoms of every variant.

    python docs/solvers/experiments/frank_wolfe_examples.py                     all, a minute or two on one core
    python docs/solvers/experiments/frank_wolfe_examples.py simplex design      some

Problems are those of the package's documentation and of its folder of examples, most of them smaller, drawn with seed
0. The last column is what the package publishes, tests, or what follows from theory. Their f is ‖x - y‖², ours half of
that: the tolerances and gaps below are theirs, that is, twice ours.
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from solver_experiments import random_completion
from torch import Tensor

from unknot.solvers import Differentiable, LeastSquares, Logistic, Result, SquaredDistance, frank_wolfe
from unknot.solvers.atoms import Answer, Birkhoff, KSparse, L1Ball, Lazy, NuclearBall, Simplex, Wrapper

Row = tuple[str, Result, int, float, float, str]


class Counted(Wrapper):
    """A set whose oracle counts the questions it is asked."""

    def __init__(self, atoms: Any) -> None:
        super().__init__(atoms)
        self.counts = {"calls": 0}

    def ask(self, direction: Tensor, x: Tensor | None = None, *, exact: bool = False) -> Answer:
        """As the set inside."""
        self.counts["calls"] += 1
        return self.inner.ask(direction, x, exact=exact)


def solve(
    name: str, f: Any, atoms: Any, x0: Any = None, *, expected: str, lazy: bool = False, scale: float = 1.0, **kw: Any
) -> Row:
    """One run; ``scale`` times our f is theirs."""
    counted = Counted(atoms)
    if "tol" in kw:
        kw["tol"] /= scale
    start = time.process_time()
    result = frank_wolfe(f, Lazy(counted) if lazy else counted, x0, **kw)
    return name, result, counted.counts["calls"], scale, time.process_time() - start, expected


def solve_each(problem: str, f: Any, atoms: Any, x0: Any = None, *, runs: dict[str, str], **kw: Any) -> Iterator[Row]:
    """A run for every "variant" or "variant, step" ("lazified " before it: with a cache), beside what is expected."""
    for run, expected in runs.items():
        variant, _, step = run.removeprefix("lazified ").partition(", ")
        more = {**kw, "step": step} if step else kw
        lazy = run.startswith("lazified ")
        yield solve(f"{problem}, {run}", f, atoms, x0, variant=variant, lazy=lazy, expected=expected, **more)


def simplex() -> Iterator[Row]:
    """min ‖x - y‖² over the probability simplex: documentation, approximateCaratheodory.jl, large_scale.jl."""
    nearest = SquaredDistance(np.zeros(3))
    yield solve(
        "‖x‖², n = 3, plain, 1000 steps",
        nearest,
        Simplex(),
        np.eye(3)[0],
        step="backtracking",
        tol=0.0,
        max_iterations=1000,
        scale=2.0,
        expected="published: gap 1.1e-8 after 1000 (their adaptive step)",
    )
    for steps, published in ((10, "9.0909e-02, gap 1.8182e-01"), (90, "1.0989e-02, gap 2.1978e-02"), (100, "1e-2")):
        yield solve(
            f"‖x‖², n = 100, plain, short steps, {steps}",
            SquaredDistance(np.zeros(100)),
            Simplex(),
            np.eye(100)[0],
            step="short",
            tol=1e-7,
            max_iterations=steps,
            scale=2.0,
            expected=f"published: value {published}" + (" at 99, optimal" if steps == 100 else ""),
        )
    rng = np.random.default_rng(0)
    target = rng.random(100_000)
    for steps, published in ((100, "1.3267e-02, gap 2.6535e-02"), (1000, "1.3327e-03, gap 2.6653e-03")):
        yield solve(
            f"‖x - y‖², n = 100,000, plain, open loop, {steps}",
            SquaredDistance(target / target.sum()),
            Simplex(),
            np.eye(1, 100_000)[0],
            step="open-loop",
            tol=0.0,
            max_iterations=steps,
            track=False,
            scale=2.0,
            expected=f"published for n = 10⁹: value {published}",
        )
    target = rng.random(300)
    target /= target.sum()
    yield from solve_each(
        "‖x - y‖², n = 300, y inside",
        SquaredDistance(target),
        Simplex(),
        np.eye(300)[0],
        runs={
            "pairwise": "linear, an oracle call each",
            "blended-pairwise": "linear; each of the 300 vertices asked for about once",
            "blended-corrective": "about one iteration and call a vertex",
        },
        tol=1e-7,
        max_iterations=10_000,
        scale=2.0,
    )


def sparse_polytope() -> Iterator[Row]:
    """away_step_cg.jl, lazy_away_step_cg.jl, blended_pairwise_vs_afw_sparsity.jl: ‖x - y‖² over k-sparse polytopes."""
    rng = np.random.default_rng(0)
    target = rng.random(100)
    yield from solve_each(
        "k = 40, n = 100",
        SquaredDistance(target),
        KSparse(40, 1.0),
        runs={"plain": "sublinear: 1/k at worst", "away": "linear"},
        step="backtracking",
        tol=1e-5,
        max_iterations=10_000,
        scale=2.0,
    )
    target = rng.random(1000)
    yield from solve_each(
        "k = 40, n = 1000",
        SquaredDistance(target),
        KSparse(40, 1.0),
        runs={
            "plain": "the limit is reached, as in their figure",
            "away": "linear",
            "lazified away": "as away, with fewer calls",
        },
        step="backtracking",
        tol=1e-5,
        max_iterations=5000,
        scale=2.0,
    )
    yield from solve_each(
        "k = 5, n = 1000, y inside",
        SquaredDistance(target / target.sum()),
        KSparse(5, 1.0),
        runs={
            "away": "more atoms than blended steps",
            "lazified away": "fewer calls",
            "blended-pairwise": "fewest atoms of the three",
            "blended-corrective": "fewest iterations (quadratic corrections)",
        },
        tol=1e-7,
        max_iterations=2000,
        scale=2.0,
    )


def birkhoff(size: int = 30) -> Iterator[Row]:
    """birkhoff_polytope.jl: ‖X - Y‖² / n² over doubly stochastic matrices, by the Hungarian method."""
    target = np.random.default_rng(98).random((size, size))
    return solve_each(
        f"n = {size}",
        SquaredDistance(target),
        Birkhoff(size),
        runs={
            "plain": "sublinear",
            "lazified away": "linear; calls below iterations",
            "pairwise": "linear; swap steps, a call each",
            "blended-pairwise": "linear; calls about as many as atoms met",
            "blended-corrective": "fewest iterations",
        },
        tol=1e-6 * size**2,
        max_iterations=3000,
        scale=2.0,
    )


def completion(iterations: int = 100) -> Iterator[Row]:
    """docs_03_matrix_completion.jl: ½ Σ (X_ij - Y_ij)² over the nuclear ball, on drawn ratings."""
    target, seen, radius = random_completion(120, 90)
    return solve_each(
        "120 x 90",
        SquaredDistance(np.where(seen, target, 0.0), mask=seen),
        NuclearBall(radius),
        runs={
            "plain": "a call each; 100 iterations is their limit",
            "lazified plain": "fewer calls, slower by iteration, as in their figure",
        },
        step="backtracking",
        tol=1e-9,
        max_iterations=iterations,
    )


def design(criterion: str, experiments: int = 300) -> Iterator[Row]:
    """optimal_experiment_design.jl: tr M⁻¹ / m or -log det M / m for M = Aᵀ diag(x) A over the simplex."""
    rng = np.random.default_rng(0)
    n = experiments // 10
    root = rng.random((experiments, n))
    rows = torch.from_numpy(rng.multivariate_normal(rng.standard_normal(n), root.T @ root, experiments))

    def information(x: Tensor) -> Tensor:
        return (rows.t() * x) @ rows

    def value(x: Tensor) -> Tensor:
        if criterion == "A":
            return torch.linalg.inv(information(x)).trace() / experiments
        return -torch.linalg.slogdet(information(x))[1] / experiments

    def gradient(x: Tensor) -> Tensor:
        solved = torch.linalg.solve(information(x), rows.t())
        if criterion == "A":
            return -solved.square().sum(0) / experiments
        return -(rows.t() * solved).sum(0) / experiments

    def regular(x: Tensor) -> bool:
        return bool(torch.linalg.cholesky_ex(information(x))[1] == 0)

    f = Differentiable(value, gradient=gradient, domain=regular, shape=(experiments,))
    start = np.zeros(experiments)
    start[:n] = 1 / n
    tol = 1e-7 if criterion == "A" else 1e-6
    return solve_each(
        f"{criterion}-optimal, {experiments} x {n}",
        f,
        Simplex(),
        start,
        runs={
            "blended-pairwise, backtracking": "tested: same value to 1e-7",
            "blended-pairwise, line-search": "tested: optimal, same value to 1e-7",
            "away, line-search": "tested: optimal",
        },
        tol=tol,
        max_iterations=10_000,
    )


def polynomials(variables: int = 10, degree: int = 4) -> Iterator[Row]:
    """docs_02_polynomial_regression.jl: sparse coefficients of a polynomial over the L1 ball."""
    rng = np.random.default_rng(42)
    powers = [c for d in range(degree + 1) for c in itertools.combinations_with_replacement(range(variables), d)]
    degrees = np.array([len(power) for power in powers])
    truth = 10 * rng.random(len(powers)) * (rng.random(len(powers)) > 0.95 * degrees / degree)
    points = 0.1 * rng.standard_normal((500, variables))
    features = np.stack([points[:, list(power)].prod(1) for power in powers], axis=1)
    f = LeastSquares(features, features @ truth + rng.standard_normal(500), reduction="mean")
    return solve_each(
        f"{len(powers)} monomials",
        f,
        L1Ball(0.95 * float(np.abs(truth).sum())),
        runs={
            "lazified away, backtracking": "their L-AFW: the limit is 10,000 there",
            "lazified away, line-search": "exact steps; columns differ in scale by 1e4",
            "blended-pairwise, backtracking": "shorter steps still",
            "blended-pairwise, line-search": "calls far below iterations",
            "blended-corrective, line-search": "near their BCG; fewest iterations",
        },
        tol=1e-7,
        max_iterations=10_000,
    )


def logistic(samples: int = 1605, features: int = 119) -> Iterator[Row]:
    """log_reg.jl: sparse logistic regression over the L1 ball of radius 1, ridge 1/√m, on data of the size of a1a."""
    rng = np.random.default_rng(0)
    matrix = np.zeros((samples, features))
    for row in matrix:
        row[rng.choice(features, 14, replace=False)] = 1.0
    scores = matrix @ (3 * rng.standard_normal(features) * (rng.random(features) < 0.1))
    labels = rng.random(samples) < 1 / (1 + np.exp(-scores + scores.mean()))
    f = Logistic(matrix, labels, reduction="mean", ridge=1 / math.sqrt(samples))
    return solve_each(
        f"{samples} x {features}",
        f,
        L1Ball(1.0),
        -np.eye(features)[0],
        runs={
            "plain, backtracking": "1/k; called extremely slow there",
            "plain, line-search": "1/k, largest progress a step",
            "blended-pairwise, line-search": "linear: the ridge makes f strongly convex",
        },
        tol=1e-7,
        max_iterations=1000,
    )


EXAMPLES: dict[str, Callable[[], Iterator[Row]]] = {
    "simplex": simplex,
    "k-sparse": sparse_polytope,
    "birkhoff": birkhoff,
    "completion": completion,
    "a-design": lambda: design("A"),
    "d-design": lambda: design("D"),
    "polynomials": polynomials,
    "logistic": logistic,
}


def main() -> None:
    """Run the examples asked for and print their rows as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=f"of {', '.join(EXAMPLES)} (default: all)")
    names = parser.parse_args().examples or list(EXAMPLES)
    unknown = set(names) - set(EXAMPLES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(EXAMPLES)}")
    print("| problem | status | iterations | calls | value | gap | atoms | s | beside |")
    print("|---|---|---|---|---|---|---|---|---|")
    for example in names:
        for name, result, calls, scale, seconds, expected in EXAMPLES[example]():
            atoms = len(result.active) or ""
            print(
                f"| {example}: {name} | {result.status.value} | {result.iterations} | {calls} | "
                f"{scale * result.value:.8g} | {scale * result.gap:.2g} | {atoms} | {seconds:.2f} | {expected} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
