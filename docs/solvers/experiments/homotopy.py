"""Homotopy conditional gradients and boosting variational inference: everything measured, in one run.

    python docs/solvers/experiments/homotopy.py                  a quick run of all parts, about five minutes
    python docs/solvers/experiments/homotopy.py --full           the figures of the documentation: an hour or so
    python docs/solvers/experiments/homotopy.py --parts movielens100k movielens1m --full --seconds 300

kmeans         SDP relaxation on MNIST features: accuracy after rounding against k-means++ (relaxations.py has its
               objective over the iterations, and its peers)
completion     small problems against independent optima
rates          slopes of objective residual and feasibility
movielens100k  train and test RMSE of SHCGM and stochastic Frank-Wolfe, milliseconds per iteration, and iterations per
               second against S3CCM, alternating in the same run
movielens1m    the same comparison with S3CCM for equal time
boosting       KL of the three steps on the bimodal target; three modes in R²; Bayesian logistic regression against HMC

MovieLens and the MNIST features are not part of the project: --data is a folder with movielens100k/, movielens1m/ and
mnist_kmeans/, and parts whose data is not there are skipped. Run it with nothing else running; OMP_NUM_THREADS sets the
cores for all sides.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.io
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from solver_experiments import (
    Ratings,
    boosting_curves,
    clustering_accuracy,
    load_movielens,
    random_completion,
    rates,
    run_completion,
    slope,
)

from unknot.solvers import SampledEntries, SDPKMeans, SquaredDistance, homotopy_cgm, stochastic_homotopy_cgm
from unknot.solvers.atoms import NuclearBall
from unknot.solvers.boosting import boost_variational_inference
from unknot.solvers.terms import Box


def kmeans(data: Path, full: bool) -> None:
    """Accuracy after rounding."""
    path = data / "mnist_kmeans" / "data_features.mat"
    if not path.exists():
        print(f"\nk-means: no {path}, skipped")
        return
    stored = scipy.io.loadmat(path)
    features, truth = stored["digits"].astype(float).T, stored["labels"].argmax(0)
    print("\nAccuracy (best matching of clusters to digits) and k-means cost after rounding, k-means++ with 10 starts")
    for count in (100, 300, 1000) if full else (100, 300):
        points, labels = features[:count], truth[:count]
        rival = KMeans(10, n_init=10, random_state=0).fit(points)
        for method in ("deterministic", "stochastic"):
            model = SDPKMeans(
                10, method=method, batch_size=count // 10, max_iter=1000 if full else 200, random_state=0
            ).fit(points)
            print(
                f"n = {count:>4} {method:<13}: SDP rounded {clustering_accuracy(model.rounded_labels_, labels):.3f}, "
                f"polished {clustering_accuracy(model.labels_, labels):.3f} "
                f"(cost {model.inertia_:.3f}), k-means++ {clustering_accuracy(rival.labels_, labels):.3f} "
                f"(cost {rival.inertia_:.3f})"
            )


def completion(data: Path, full: bool) -> None:
    """Small problems of completion, whose optima SCS found."""
    print("\nCompletion with a box, against optima by SCS (objective, box violation in Frobenius norm)")
    best = {(40, 30): 225.216997, (80, 60): 726.0624, (160, 120): 1416.799803}
    last = 10_000 if full else 1000
    for (m, n), optimum in best.items():
        target, seen, radius = random_completion(m, n)
        f = SquaredDistance(np.where(seen, target, 0.0), mask=2.0 * seen)
        options: dict[str, Any] = {"beta0": 1.0, "max_iterations": last, "evaluate_every": 10}
        ours = homotopy_cgm(f, NuclearBall(radius), Box(1, 5), **options)
        entries = SampledEntries(*np.nonzero(seen), target[seen], target.shape, int(seen.sum()) // 10)
        stochastic = stochastic_homotopy_cgm(entries, NuclearBall(radius), Box(1, 5), **options)
        print(f"{m} x {n}, optimum {optimum:.3f}")
        for name, result in (("HCGM", ours), ("SHCGM", stochastic)):
            trace = result.trace
            assert trace.feasibility is not None
            shown = ", ".join(
                f"k={k}: {trace.value[k]:.3f} ({trace.feasibility[k]:.3f})" for k in (100, 1000, 10_000) if k <= last
            )
            gap = f"; certified gap {result.gap:.3g}" if math.isfinite(result.gap) else ""
            print(f"  {name:<6} {shown}{gap}")


def slopes(data: Path, full: bool) -> None:
    """Exponents on a problem with known solution."""
    curves = rates(30_000 if full else 5000, seeds=5 if full else 2, beta0=1.0)
    k = curves["k"]
    first = int(k[-1] // 30)
    print(f"\nRates on a problem with known solution, exponents fitted over k = {first} to {k[-1]}")
    for name, expected in (
        ("HCGM objective", -1 / 2),
        ("HCGM feasibility", -1 / 2),
        ("SHCGM objective", -1 / 3),
        ("SHCGM feasibility", -5 / 12),
    ):
        print(f"  {name:<18} k^{slope(k, curves[name], first):.3f} (theory: k^{expected:.3f} or faster)")


def movielens_100k(data: Path, full: bool) -> None:
    """The table of the thesis, and iterations per second against S3CCM."""
    folder = data / "movielens100k"
    if not folder.exists():
        print(f"\nMovieLens 100k: no {folder}, skipped")
        return
    ratings = Ratings(load_movielens(folder / "ub.base"), load_movielens(folder / "ub.test"))
    iterations, seeds = (10_000, 3) if full else (500, 1)
    print(
        f"\nMovieLens 100k, split ub, {ratings.shape[0]} x {ratings.shape[1]}, {len(ratings.train[1])} to train on "
        f"and {len(ratings.test[1])} to test on, {iterations} iterations, {seeds} seed(s)"
    )
    thesis = {"SHCGM": "0.5574 ± 0.0498, 1.1446 ± 0.0087", "SFW": "1.8360 ± 0.3266, 2.0416 ± 0.2739"}
    for method, published in thesis.items():
        ends, seconds = [], []
        for seed in range(seeds):
            result, history = run_completion(
                method, ratings, radius=7000.0, batch_size=1000, seed=seed, max_iterations=iterations
            )
            ends.append(history[-1])
            seconds.append(result.trace.time[-1] / result.iterations)
            print(
                f"  {method:<6} seed {seed}: train {history[-1, 0]:.4f}, test {history[-1, 1]:.4f}, feasibility "
                f"{history[-1, 2]:.2f}, {seconds[-1] * 1e3:.1f} ms/iteration"
            )
        mean, deviation = np.mean(ends, axis=0), np.std(ends, axis=0)
        print(
            f"  {method:<6} mean: train {mean[0]:.4f} ± {deviation[0]:.4f}, test {mean[1]:.4f} ± {deviation[1]:.4f} "
            f"(thesis at 10,000: {published}), {np.mean(seconds) * 1e3:.1f} ms/iteration"
            + (" (target: at most 20 on 2 cores)" if method == "SHCGM" else "")
        )
    counts = {"SHCGM": [0, 0.0], "S3CCM": [0, 0.0]}
    for seed in range(3):
        for method, steps in (("SHCGM", 100), ("S3CCM", 3)):
            result, _ = run_completion(
                method,
                ratings,
                radius=7000.0,
                batch_size=1000,
                seed=seed,
                max_iterations=steps,
                evaluate_every=10**9,
            )
            counts[method][0] += result.iterations
            counts[method][1] += result.trace.time[-1]
    speeds = {method: number / max(seconds, 1e-9) for method, (number, seconds) in counts.items()}
    print(
        f"  iterations per second: SHCGM {speeds['SHCGM']:.1f}, S3CCM {speeds['S3CCM']:.2f}, ratio "
        f"{speeds['SHCGM'] / speeds['S3CCM']:.0f}"
    )


def movielens_1m(data: Path, full: bool, seconds: float) -> None:
    """SHCGM and S3CCM for equal time."""
    path = data / "movielens1m" / "ml1m_base.mat"
    if not path.exists():
        print(f"\nMovieLens 1M: no {path}, skipped")
        return
    pairs, values = load_movielens(path)
    train = np.random.default_rng(0).random(len(values)) < 0.8
    ratings = Ratings((pairs[train], values[train]), (pairs[~train], values[~train]))
    print(
        f"\nMovieLens 1M (the 90 % available locally), split 80/20, {ratings.shape[0]} x {ratings.shape[1]}, "
        f"{len(ratings.train[1])} ratings to train on, {seconds:g} s each (thesis: 27860 and 435 iterations in 2 h)"
    )
    speeds = {}  # an iteration that the time did not suffice for counts as one
    for method in ("SHCGM", "S3CCM"):
        result, _ = run_completion(
            method,
            ratings,
            radius=20_000.0,
            batch_size=10_000,
            time_limit=seconds,
            max_iterations=10**9,
            evaluate_every=10**9,
        )
        last = result.trace.time[-1]
        speeds[method] = max(result.iterations, 1) / last
        x = np.asarray(result.x)
        rmse = [float(np.sqrt(np.mean((x[tuple(part[0].T)] - part[1]) ** 2))) for part in (ratings.train, ratings.test)]
        print(
            f"  {method:<6} {result.iterations} iterations in {last:.0f} s ({1e3 / speeds[method]:.0f} ms each): train "
            f"{rmse[0]:.4f}, test {rmse[1]:.4f}, feasibility {np.linalg.norm(x - np.clip(x, 1, 5)):.1f}"
        )
    print(f"  ratio of iterations per second: {speeds['SHCGM'] / speeds['S3CCM']:.0f} (thesis: 64)")


def boosting(data: Path, full: bool) -> None:
    """KL on the bimodal target, three modes in R², and a posterior against HMC."""
    iterations, seeds = (40, range(5)) if full else (8, range(2))
    print(
        f"\nBoosting VI on the bimodal target, KL(q || p) by integration; best single Gaussian 0.2308, seeds {[*seeds]}"
    )
    curves = boosting_curves(iterations, seeds)
    for step, runs in curves.items():
        marks = [k for k in (0, 1, 2, 5, 10, 20, 40) if k <= iterations]
        shown = ", ".join(f"k={k}: {runs[:, k].mean():.4f}" for k in marks)
        print(f"  {step:<17} {shown}; last {runs[:, -1].round(4).tolist()}")
    three_modes()
    logistic_regression(full)


def three_modes() -> None:
    """A triangle of modes, unnormalised: ELBO against log Z."""
    centres = torch.tensor([[0.0, 2.5], [-2.2, -1.5], [2.2, -1.5]], dtype=torch.float64)

    def log_p(z: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(-0.5 * ((z[:, None] - centres) ** 2).sum(-1) / 0.5**2, dim=1)

    result = boost_variational_inference(log_p, dim=2, max_iterations=6, tol=0)
    nearest = torch.cdist(result.x.sample((10_000,)), centres).argmin(1)
    shares = (np.bincount(nearest.numpy(), minlength=3) / 10_000).round(3).tolist()
    log_z = math.log(3 * 2 * math.pi * 0.25)
    first = log_z + result.trace.value[0]
    print(
        f"Three modes in R^2: KL {log_z + result.value:.4f} ± {result.value_error:.4f} (single Gaussian {first:.4f}), "
        f"shares of the modes {shares}"
    )


def logistic_regression(full: bool) -> None:
    """Posterior of Bayesian logistic regression on breast cancer data against a long HMC run and Laplace."""
    features, labels = load_breast_cancer(return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(features[:, :6]))
    x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    signs = torch.from_numpy(2.0 * labels - 1)
    prior = 5.0

    def log_p(w: torch.Tensor) -> torch.Tensor:
        likelihood = torch.nn.functional.logsigmoid(signs * (w @ x.t())).sum(1)
        return likelihood - 0.5 * (w**2).sum(1) / prior**2

    start = torch.zeros(1, 7, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([start], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = -log_p(start).sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    mode = start.detach()[0]
    hessian = -torch.autograd.functional.hessian(lambda w: log_p(w[None])[0], mode)
    laplace = torch.linalg.inv(hessian).diagonal().sqrt()
    samples = hmc(log_p, mode, torch.linalg.cholesky(torch.linalg.inv(hessian)), 4000 if full else 500)
    mean, deviation = samples.mean(0), samples.std(0)
    print(f"Bayesian logistic regression, breast cancer, 7 coefficients, against HMC ({len(samples)} draws)")
    print(f"  {'':<34} largest |mean error|/sd   sd ratio (min, max)   ELBO")

    def report(name: str, mu: torch.Tensor, sigma: torch.Tensor, elbo: str) -> None:
        error = float(((mu - mean) / deviation).abs().max())
        ratio = sigma / deviation
        print(f"  {name:<34} {error:>22.3f}   {float(ratio.min()):.3f}, {float(ratio.max()):.3f}          {elbo}")

    report("Laplace", mode, laplace, "")
    for family, rounds in (
        ("gaussian", 0),
        ("gaussian", 10 if full else 3),
        ("full-gaussian", 0),
        ("full-gaussian", 5),
    ):
        result = boost_variational_inference(
            log_p, family, dim=7, max_iterations=rounds, tol=0, centre=mode, spread=1.0, oracle_samples=16
        )
        draws = result.x.sample((20_000,))
        name = f"{family}, {result.components} component(s)"
        report(name, draws.mean(0), draws.std(0), f"{result.elbo:.3f} ± {result.value_error:.3f}")


def hmc(log_p: Any, start: torch.Tensor, factor: torch.Tensor, draws: int, chains: int = 8) -> torch.Tensor:
    """Hamiltonian Monte Carlo in coordinates whitened by a Cholesky factor, several chains side by side."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(chains, len(start), generator=generator, dtype=start.dtype)
    kept, step, leaps = [], 0.25, 8

    def gradient(point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = point.detach().requires_grad_(True)
        value = log_p(start + leaf @ factor.t())
        (slope_,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), slope_

    value, slope_here = gradient(z)
    for iteration in range(draws // chains + 100):
        momentum = torch.randn(z.shape, generator=generator, dtype=z.dtype)
        proposal, moved, force = z, momentum + step / 2 * slope_here, slope_here
        for leap in range(leaps):
            proposal = proposal + step * moved
            new_value, force = gradient(proposal)
            moved = moved + (step if leap < leaps - 1 else step / 2) * force
        change = new_value - value - 0.5 * (moved**2 - momentum**2).sum(1)
        accept = torch.rand(chains, generator=generator, dtype=z.dtype).log() < change
        z = torch.where(accept[:, None], proposal, z)
        value, slope_here = torch.where(accept, new_value, value), torch.where(accept[:, None], force, slope_here)
        if iteration >= 100:
            kept.append(z)
    return start + torch.cat(kept) @ factor.t()


PARTS = {
    "kmeans": kmeans,
    "completion": completion,
    "rates": slopes,
    "movielens100k": movielens_100k,
    "movielens1m": movielens_1m,
    "boosting": boosting,
}


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="which (default: all)")
    parser.add_argument("--full", action="store_true", help="as long as the documentation's figures")
    parser.add_argument("--seconds", type=float, help="for each method on MovieLens 1M (default: 300 in full, else 60)")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        help="folder of the data (default: data)",
    )
    arguments = parser.parse_args()
    print(
        f"torch {torch.__version__} with {torch.get_num_threads()} thread(s), numpy {np.__version__}, "
        f"scipy {scipy.__version__}"
    )
    for part in arguments.parts:
        started = time.perf_counter()
        if part == "movielens1m":
            movielens_1m(arguments.data, arguments.full, arguments.seconds or (300.0 if arguments.full else 60.0))
        else:
            PARTS[part](arguments.data, arguments.full)  # type: ignore[operator]
        print(f"  ({part}: {time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
