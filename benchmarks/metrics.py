"""DCI by our boosted trees and by scikit-learn's, on the same codes in the same run; and the time of the cheap scores.

python benchmarks/metrics.py                      time at the thesis' parameters (scikit-learn: minutes), and
                                                  agreement on 30 smaller representations
python benchmarks/metrics.py --samples 1000       a quick look
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
import torch
from common import Row, compare, run
from scipy.linalg import expm
from scipy.stats import spearmanr
from tqdm.auto import tqdm

from unknot.metrics import functional

DSPRITES = (3, 6, 40, 32, 32)


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
    """Five codes that are dSprites' factors and five that mix them: to fit on and to test on."""
    rng = np.random.default_rng(0)
    factors = rng.integers(0, DSPRITES, size=(num_train + num_test, len(DSPRITES)))
    clean = factors / np.array(DSPRITES)
    codes = np.hstack([clean, clean @ rng.normal(size=(5, 5))]) + 0.05 * rng.normal(size=(len(factors), 10))
    return codes[:num_train], factors[:num_train], codes[num_train:], factors[num_train:]


def speed(num_train: int, num_test: int) -> None:
    """DCI by both backends, and all cheap scores together, on ten codes of dSprites' factors."""
    split = mixed_codes(num_train, num_test)
    scores, seconds = {}, {}
    for backend in ("unknot", "sklearn"):
        start = time.perf_counter()
        scores[backend] = functional.dci(*split, backend=backend)
        seconds[backend] = time.perf_counter() - start
    for name in ("disentanglement", "completeness", "informativeness_test"):
        print(f"  {name:<22} {scores['unknot'][name]:.4f} / {scores['sklearn'][name]:.4f}")
    print(
        f"DCI: unknot {seconds['unknot']:.1f} s, scikit-learn {seconds['sklearn']:.1f} s: "
        f"{seconds['sklearn'] / seconds['unknot']:.1f} times as fast"
    )
    total = 0.0
    for name, function, arguments in (
        ("mig", functional.mig, split[:2]),
        ("sap", functional.sap, split),
        ("modularity", functional.modularity, split[:2]),
        ("explicitness", functional.explicitness, split),
        ("irs", functional.irs, split[:2]),
        ("total_correlation", functional.total_correlation, split[:1]),
    ):
        start = time.perf_counter()
        value = function(*arguments)
        total += time.perf_counter() - start
        print(f"  {name:<22} {value:.4f}  {time.perf_counter() - start:6.2f} s")
    print(f"all six together: {total:.1f} s")


def entries() -> Iterator[Row]:
    """DCI beside scikit-learn's trees, where one fits often and where one fits once."""
    torch.set_num_threads(1)
    for num_train, rounds in ((1_000, 3), (2_000, 3), (10_000, 1)):
        split = mixed_codes(num_train, num_train // 2)
        yield compare(
            f"DCI at {num_train:,} + {num_train // 2:,} samples of dSprites' factors",
            lambda split=split: functional.dci(*split, backend="unknot"),
            "scikit-learn's trees",
            lambda split=split: functional.dci(*split, backend="sklearn"),
            rounds,
        )


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000, help="to fit on; half as many to test on")
    parser.add_argument("--agreement-samples", type=int, default=2_000, help="the same, for the 30 representations")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"{arguments.samples} + {arguments.samples // 2} samples of dSprites' factors, 10 codes (ours / scikit-learn)"
    )
    speed(arguments.samples, arguments.samples // 2)
    some = min(arguments.agreement_samples, arguments.samples)
    print(f"\n30 representations, {some} + {some // 2} samples: D, C, informativeness (ours / scikit-learn)")
    agreement(some, some // 2)


if __name__ == "__main__":
    run(entries, main)
