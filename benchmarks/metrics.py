"""Boosted trees beside scikit-learn's, how fast images are encoded, and what every score of a model costs.

python benchmarks/metrics.py                      all of it: the better part of an hour, most of it scikit-learn's
python benchmarks/metrics.py trees encoding       some parts
python benchmarks/metrics.py all --samples 2000   a quick look
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from common import Row, compare, run
from scipy.linalg import expm
from scipy.stats import spearmanr
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import KFold
from tqdm.auto import tqdm

from unknot.datamodules import DSprites
from unknot.hub import load
from unknot.metrics import METRICS, Draws, functional
from unknot.metrics.functional import trees as boosted
from unknot.metrics.functional.logistic import cross_validated
from unknot.metrics.functional.tree_splits import DEPTH
from unknot.metrics.functional.trees import LEARNING_RATE, ROUNDS, fit_trees

SIX = (10, 10, 10, 8, 4, 15)  # values of the factors of Rooms3D and Shapes3D
MODELS = ("adagvae-dsprites", "betavae-dsprites", "betatcvae-dsprites")
PARTS = ("trees", "boosters", "encoding", "all", "differences", "agreement")


def representations(factors: np.ndarray, seed: int = 0) -> Iterator[tuple[str, np.ndarray]]:
    """Thirty ways to represent factors ``[N, F]``: perfect, rotated, duplicated, merged, noisy, with dead codes."""
    rng = np.random.default_rng(seed)
    n, num = factors.shape
    clean = (factors - factors.mean(0)) / factors.std(0)
    clean = clean + 0.01 * rng.normal(size=clean.shape)
    skew = rng.normal(size=(num, num))
    skew -= skew.T
    yield "perfect", clean
    for angle in (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8):
        yield f"rotated by {angle}", clean @ expm(angle * skew)
    for noise in (0.1, 0.2, 0.4, 0.8, 1.6):
        yield f"noise {noise}", clean + noise * rng.normal(size=clean.shape)
    for dead in (1, 5):
        yield f"{dead} dead codes", np.hstack([clean, 1e-3 * rng.normal(size=(n, dead))])
    yield "constant code", np.hstack([clean, np.ones((n, 1))])
    yield "duplicated", np.hstack([clean, clean])
    yield "duplicated with noise", np.hstack([clean, clean + 0.3 * rng.normal(size=clean.shape)])
    for count in (2, num):
        merged = clean.copy()
        merged[:, 0] = clean[:, :count].sum(1)
        yield f"first code sums {count}", merged
    yield "one code for two factors", np.hstack([clean[:, :1] * 10 + clean[:, 1:2], clean[:, 2:]])
    yield "missing factor", clean[:, 1:]
    for dim in (1, 2, 5, 10, 20):
        yield f"random, {dim} codes", clean @ rng.normal(size=(num, dim)) + 0.1 * rng.normal(size=(n, dim))
    yield "squares", clean**2 + 0.01 * rng.normal(size=clean.shape)
    yield "folded", np.abs(clean) @ expm(0.3 * skew)
    yield "noise only", rng.normal(size=(n, 10))


def agreement(num_train: int, num_test: int) -> None:
    """Differences of both backends on thirty representations of a small grid."""
    rng = np.random.default_rng(1)
    factors = rng.integers(0, (3, 6, 10, 8), size=(num_train + num_test, 4))
    ours, theirs = [], []
    for name, codes in tqdm(list(representations(factors)), desc="representations", leave=False):
        split = codes[:num_train], factors[:num_train], codes[num_train:], factors[num_train:]
        pair = [functional.dci(*split, backend=backend) for backend in ("unknot", "sklearn")]
        for scores, rows in zip(pair, (ours, theirs), strict=True):
            rows.append([scores[key] for key in ("disentanglement", "completeness", "informativeness_test")])
        print(f"  {name:<26} " + "   ".join(f"{a:.3f} / {b:.3f}" for a, b in zip(ours[-1], theirs[-1], strict=True)))
    for column, name in enumerate(("disentanglement", "completeness", "informativeness")):
        a, b = (np.array(rows)[:, column] for rows in (ours, theirs))
        print(f"{name}: largest difference {np.abs(a - b).max():.4f}, rank correlation {spearmanr(a, b)[0]:.4f}")


def mixed_codes(num_train: int, num_test: int) -> tuple[np.ndarray, ...]:
    """Six codes that are factors and four that mix them: to fit on and to test on."""
    rng = np.random.default_rng(0)
    factors = rng.integers(0, SIX, size=(num_train + num_test, len(SIX)))
    clean = factors / np.array(SIX)
    codes = np.hstack([clean, clean @ rng.normal(size=(6, 4))]) + 0.05 * rng.normal(size=(len(factors), 10))
    return codes[:num_train], factors[:num_train], codes[num_train:], factors[num_train:]


def codes_of(name: str, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Codes and factors of ``count`` images of dSprites by a bundled model."""
    draws = Draws(load(f"unknot/{name}"), DSprites(), num_train=count, seed=seed)
    return draws.train


def trees(num_train: int, rounds: int, turns: int) -> None:
    """Growing all trees of DCI by both backends in turns, on the codes of a bundled model, in processor time."""
    codes, factors = codes_of(MODELS[0], num_train)
    boosted.ROUNDS = rounds  # a few stand for all, since scikit-learn's hundred take minutes: `--rounds 100` has them
    ours, theirs = [], []
    for _ in range(turns):
        start = time.process_time()
        boosted.boost(codes, factors)
        ours.append(time.process_time() - start)
        start = time.process_time()
        for factor in factors.T:
            GradientBoostingClassifier(n_estimators=rounds).fit(codes, factor)
        theirs.append(time.process_time() - start)
    boosted.ROUNDS = ROUNDS
    ratio = min(theirs) / min(ours)
    print(f"  {num_train:>6} samples: {min(ours):7.2f} s, scikit-learn {min(theirs):7.2f} s, {ratio:5.1f} times")


def fit_lightgbm(codes: np.ndarray, factors: np.ndarray) -> list[Any]:
    """LightGBM with as many trees of the same depth and rate for each factor."""
    from lightgbm import LGBMClassifier

    settings = {"n_estimators": ROUNDS, "max_depth": DEPTH, "num_leaves": 2**DEPTH, "learning_rate": LEARNING_RATE}
    return [LGBMClassifier(**settings, n_jobs=1, verbose=-1).fit(codes, factor) for factor in factors.T]


BOOSTERS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "scikit-learn's exact trees": lambda *rows: fit_trees(*rows, "sklearn"),
    "HistGradientBoosting": lambda *rows: fit_trees(*rows, "hist"),
    "LightGBM": fit_lightgbm,
}
"""Trees that others grow for the factors, from exact to histograms of 256 bins."""


def boosters(sizes: Sequence[int]) -> None:
    """Processor time and test accuracy of our trees and of others, on the codes of ``mixed_codes``."""
    fits = {"unknot": boosted.boost} | BOOSTERS
    for size in sizes:
        codes, factors, others, asked = mixed_codes(size, size // 2)
        for name, fit in fits.items():
            start = time.process_time()
            try:
                models = fit(codes, factors)
            except ImportError:
                print(f"  {size:>6} samples, {name}: not installed")
                continue
            seconds = time.process_time() - start
            predicted = (
                np.stack([m.predict(others) for m in models], 1) if name == "LightGBM" else models.predict(others)
            )
            print(
                f"  {size:>6} samples, {name:<26} {seconds:8.2f} s, accuracy {(predicted == asked).mean():.4f}",
                flush=True,
            )


def differences(num_train: int, num_test: int) -> None:
    """DCI of the bundled models by both backends."""
    for name in MODELS:
        codes, factors = codes_of(name, num_train + num_test)
        split = codes[:num_train], factors[:num_train], codes[num_train:], factors[num_train:]
        pair = [functional.dci(*split, backend=backend) for backend in ("unknot", "sklearn")]
        keys = ("disentanglement", "completeness", "informativeness_test")
        print(f"  {name:<20} " + "   ".join(f"{pair[0][key]:.4f} / {pair[1][key]:.4f}" for key in keys))


def encoding(count: int) -> None:
    """Images per second of a bundled encoder as ``evaluate`` runs it, beside its convolutions alone."""
    model, dataset = load(f"unknot/{MODELS[0]}").eval(), DSprites()
    draws = Draws(model, dataset)
    factors = dataset.factor_space.sample(count, torch.Generator().manual_seed(0))
    images = dataset.observe(factors).to(memory_format=torch.channels_last)
    best = {"with drawing": 0.0, "network alone": 0.0}
    for _ in range(3):
        start = time.process_time()
        draws._encode(factors, torch.Generator())
        best["with drawing"] = max(best["with drawing"], count / (time.process_time() - start))
        start = time.process_time()
        with torch.inference_mode():
            for part in images.split(64):
                model.encoder(part)
        best["network alone"] = max(best["network alone"], count / (time.process_time() - start))
    print("  " + ", ".join(f"{name} {rate:,.0f} images/s" for name, rate in best.items()))


def everything(num_train: int, num_test: int) -> None:
    """Core-seconds for each score of a bundled model."""
    draws = Draws(load(f"unknot/{MODELS[0]}"), DSprites(), num_train, num_test)
    total = 0.0
    for name, entry in METRICS.items():
        if entry.lacks(draws.model):
            continue
        start = time.process_time()
        value = entry.of(draws)[name]
        total += time.process_time() - start
        print(f"  {name:<20} {value:9.4f} {time.process_time() - start:8.1f} s", flush=True)
    print(f"  all                            {total:8.1f} s")


def entries() -> Iterator[Row]:
    """DCI and logistic regressions beside scikit-learn's, where one fits often and where one fits once."""
    torch.set_num_threads(1)
    for num_train, rounds in ((1_000, 3), (2_000, 3), (10_000, 1)):
        split = mixed_codes(num_train, num_train // 2)
        yield compare(
            f"DCI at {num_train:,} + {num_train // 2:,} samples of six factors",
            lambda split=split: functional.dci(*split, backend="unknot"),
            "scikit-learn's trees",
            lambda split=split: functional.dci(*split, backend="sklearn"),
            rounds,
        )
    for num_train, rounds in ((2_000, 3), (10_000, 1)):
        codes, factors, _, _ = mixed_codes(num_train, 1)
        for name in ("HistGradientBoosting", "LightGBM"):
            if name == "LightGBM" and find_spec("lightgbm") is None:
                continue
            yield compare(
                f"Exact trees of six factors at {num_train:,} samples, beside {name}",
                lambda codes=codes, factors=factors: boosted.boost(codes, factors),
                f"{name}, 256 bins, as many trees of the same depth",
                lambda codes=codes, factors=factors, name=name: BOOSTERS[name](codes, factors),
                rounds,
            )
    for num_train, rounds in ((1_000, 3), (10_000, 1)):
        codes, factors, _, _ = mixed_codes(num_train, 1)
        yield compare(
            f"Logistic regressions of six factors, 10 strengths x 5 folds of {num_train:,} samples",
            lambda codes=codes, factors=factors: cross_validated(codes, factors),
            "scikit-learn's LogisticRegressionCV, which stops after 100 steps",
            lambda codes=codes, factors=factors: scikit_cross_validated(codes, factors),
            rounds,
        )


def scikit_cross_validated(codes: np.ndarray, factors: np.ndarray) -> None:
    """The reference's logistic regression of each factor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for factor in factors.T:
            LogisticRegressionCV(Cs=10, cv=KFold(5), scoring="accuracy").fit(codes, factor)


def main() -> None:
    """Run what is asked for, or all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=10, help="of boosting, for the times of trees (default: 10)")
    parser.add_argument("--samples", type=int, default=10_000, help="to fit on; half as many to test on")
    arguments = parser.parse_args()
    if unknown := {*arguments.parts} - {*PARTS}:
        parser.error(f"unknown parts {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    parts, samples = arguments.parts or PARTS, arguments.samples
    if "trees" in parts:
        print(f"Trees of dSprites' factors, ten codes, {arguments.rounds} rounds, one thread, processor time")
        for size in (100, 1_000, 2_000, 10_000):
            trees(size, arguments.rounds, turns=2)
    if "boosters" in parts:
        print(f"Trees of six factors, ten codes, {ROUNDS} rounds, one thread, processor time")
        boosters((2_000, 10_000))
    if "encoding" in parts:
        print("Encoding dSprites")
        encoding(8_192)
    if "all" in parts:
        print(f"Every score of {MODELS[0]}, {samples} + {samples // 2} samples, processor time")
        everything(samples, samples // 2)
    if "differences" in parts:
        print("DCI of bundled models, D, C, accuracy (ours / scikit-learn), 100 and 2,000 samples")
        for size in (100, 2_000):
            differences(size, 1_000)
    if "agreement" in parts:
        print("30 representations, 1,000 + 500 samples: D, C, informativeness (ours / scikit-learn)")
        agreement(1_000, 500)


if __name__ == "__main__":
    run(entries, main)
