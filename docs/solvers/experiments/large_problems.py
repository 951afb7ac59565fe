"""Memory and speed of large problems, each in a process of its own.

    python docs/solvers/experiments/large_problems.py sparse   least squares over the L1 ball, 20,000 x 50,000
    python docs/solvers/experiments/large_problems.py batch    orthogonal pursuit of 10,000 signals of 784 dimensions

Prints processor seconds and the peak of resident memory, beside what is in memory before the solver is called.
"""

import resource
import sys
import time

import numpy as np
import scipy.sparse

from unknot.solvers import LeastSquares, frank_wolfe, matching_pursuit
from unknot.solvers.atoms import L1Ball


def peak() -> float:
    """The largest resident size so far in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def sparse(rows: int = 20_000, columns: int = 50_000, entries: int = 5_000_000, iterations: int = 200) -> None:
    """Plain and pairwise steps."""
    rng = np.random.default_rng(0)
    places = rng.integers(rows, size=entries, dtype=np.int32), rng.integers(columns, size=entries, dtype=np.int32)
    matrix = scipy.sparse.csr_array((rng.standard_normal(entries), places), shape=(rows, columns))
    matrix.sum_duplicates()
    truth = np.zeros(columns)
    truth[rng.choice(columns, 100, replace=False)] = rng.standard_normal(100)
    target = matrix @ truth + 0.01 * rng.standard_normal(rows)
    size = (matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes) / 2**30
    print(f"{rows} x {columns}, {matrix.nnz} entries, {size:.3f} GB; {peak():.2f} GB before", flush=True)
    del places
    f = LeastSquares(matrix, target)
    for variant in ("plain", "pairwise", "blended-pairwise"):
        start = time.process_time()
        result = frank_wolfe(
            f, L1Ball(float(np.abs(truth).sum())), variant=variant, tol=1e-3, max_iterations=iterations
        )
        seconds = time.process_time() - start
        print(
            f"  {variant:<17} {result.iterations} iterations, {result.iterations / seconds:.1f} a second, gap "
            f"{result.trace.gap[0]:.3g} to {result.gap:.3g}, {len(result.active)} atoms; peak {peak():.2f} GB",
            flush=True,
        )


def batch(signals: int = 10_000, size: int = 784, atoms: int = 1024, nonzeros: int = 16) -> None:
    """A batch whose bases would not fit: it is solved in parts."""
    rng = np.random.default_rng(0)
    dictionary = rng.standard_normal((size, atoms))
    dictionary /= np.linalg.norm(dictionary, axis=0)
    targets = np.zeros((signals, size))
    for row in targets:
        row += dictionary[:, rng.choice(atoms, nonzeros, replace=False)] @ rng.standard_normal(nonzeros)
    print(f"{signals} signals of {size} dimensions, {atoms} atoms; {peak():.2f} GB before", flush=True)
    start = time.process_time()
    result = matching_pursuit(targets, dictionary, variant="orthogonal", rtol=1e-6, max_iterations=2 * nonzeros)
    seconds = time.process_time() - start
    found = float(np.mean([(row != 0).sum() for row in result.coefficients]))
    print(
        f"  {seconds:.1f} s, {1e3 * seconds / signals:.2f} ms a signal, {found:.1f} atoms each, relative error "
        f"{float(np.sqrt(2 * result.value.sum()) / np.linalg.norm(targets)):.1e}; peak {peak():.2f} GB"
    )


if __name__ == "__main__":
    parts = {"sparse": sparse, "batch": batch}
    if len(sys.argv) != 2 or sys.argv[1] not in parts:
        sys.exit(f"which part: {' or '.join(parts)}?")
    parts[sys.argv[1]]()
