"""Networks with constrained weights: stochastic Frank-Wolfe beside projected gradient.

    OMP_NUM_THREADS=1 python docs/solvers/experiments/constrained_training.py --seeds 3

The network is 64 - 200 - 10 with ReLU on scikit-learn's digits (1,297 images to train on, 500 to test), cross entropy,
40 epochs in batches of 64, momentum 0.9, a step size that falls linearly to 0. The weights of the first layer are
constrained, all others free. Projected gradient is SGD, and after each step the nearest point of the set. Each method
has the step size of the lowest training loss with seed 100, out of 0.1, 0.3, 1, 3 and 10.

Columns, means over seeds: training loss and test accuracy at the end, the largest ‖W‖_𝒜 - 1 seen after any step, the
share of the first layer's weights that are not exactly 0 and that are above a hundredth of the largest, its number of
singular values above a hundredth of the largest, and processor seconds. Then the processor time of one step for a layer
of 1000 x 1000, gradients excluded.
"""

import argparse
import time
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from unknot.solvers import atoms
from unknot.solvers.optim import StochasticFrankWolfe

SETS: dict[str, atoms.AtomSet] = {
    "L1 ball": atoms.L1Ball(150.0),
    "nuclear ball": atoms.NuclearBall(15.0),
    "k-sparse polytope": atoms.KSparse(600, 0.25),
}
RATES = (0.1, 0.3, 1.0, 3.0, 10.0)


def run(kind: str | None, method: str, lr: float, seed: int, epochs: int = 40) -> np.ndarray:
    """The columns for one training."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.data[order] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target[order])
    train, test = slice(500, None), slice(0, 500)
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 10))
    weight: Any = network[0].weight
    atom_set = SETS[kind] if kind is not None else None
    matrix = isinstance(atom_set, atoms.NuclearBall)
    start = time.process_time()
    groups = [
        {"params": [weight], "atoms": atom_set if method == "Frank-Wolfe" else None},
        {"params": [p for p in network.parameters() if p is not weight]},
    ]
    optimizer = StochasticFrankWolfe(groups, lr=lr, momentum=0.9)
    count = len(labels) - 500
    steps = epochs * (count // 64)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    violation, watching = 0.0, 0.0
    for _ in range(epochs):
        for batch in torch.randperm(count)[: count // 64 * 64].view(-1, 64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[train][batch]), labels[train][batch]).backward()
            optimizer.step()
            schedule.step()
            if atom_set is None:
                continue
            with torch.no_grad():
                if method == "projected gradient":
                    flat = weight if matrix else weight.view(-1)
                    flat.copy_(atom_set.project(flat))
                pause = time.process_time()
                violation = max(violation, atom_set.gauge((weight if matrix else weight.view(-1)).double()) - 1)
                watching += time.process_time() - pause
    spent = time.process_time() - start - watching
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(network(images[train]), labels[train]))
        accuracy = float((network(images[test]).argmax(1) == labels[test]).float().mean())
        sizes, values = weight.abs(), torch.linalg.svdvals(weight)
        return np.array(
            [
                loss,
                accuracy,
                violation,
                float((sizes > 0).float().mean()),
                float((sizes > 0.01 * sizes.max()).float().mean()),
                float((values > 0.01 * values[0]).sum()),
                spent,
            ]
        )


def large_step(atom_set: atoms.AtomSet, repeats: int = 20) -> tuple[float, float]:
    """Milliseconds of a Frank-Wolfe step and of a projection after a step, for a weight of 1000 x 1000."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(1000, 1000, generator=generator) / 30)
    optimizer = StochasticFrankWolfe([weight], atom_set, lr=0.1)
    noise = torch.randn(1000, 1000, generator=generator)
    shape = (1000, 1000) if isinstance(atom_set, atoms.NuclearBall) else (-1,)
    spent = [0.0, 0.0]
    for k in range(repeats):
        weight.grad = noise + 0.1 * torch.randn(1000, 1000, generator=generator)
        start = time.process_time()
        optimizer.step()
        middle = time.process_time()
        atom_set.project((weight.detach() - 0.1 * weight.grad).reshape(shape))
        if k:
            spent = [spent[0] + middle - start, spent[1] + time.process_time() - middle]
    return 1e3 * spent[0] / (repeats - 1), 1e3 * spent[1] / (repeats - 1)


def main() -> None:
    """Print one row for each set and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'set':18s} {'method':19s}   lr   loss  accuracy  violation  nonzero  large  rank  seconds")
    cases = [(kind, method) for kind in SETS for method in ("Frank-Wolfe", "projected gradient")]
    for kind, method in [(None, "SGD"), *cases]:
        best = min(RATES, key=lambda lr: np.nan_to_num(run(kind, method, lr, 100)[0], nan=np.inf))
        row = np.mean([run(kind, method, best, seed) for seed in range(arguments.seeds)], axis=0)
        cells = "{:.4f}    {:.3f}   {:8.1e}    {:.3f}  {:.3f}  {:4.1f}  {:6.1f}".format(*row)
        print(f"{kind or 'none':18s} {method:19s} {best:4g} {cells}", flush=True)
    for name, atom_set in {**SETS, "nuclear, tol 0.01": atoms.NuclearBall(15.0, tol=0.01, method="power")}.items():
        step, projection = large_step(atom_set)
        print(
            f"1000 x 1000, {name:18s} Frank-Wolfe {step:.1f} ms a step, projection alone {projection:.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
