"""Abstract reasoning: matrices drawn all at once beside one by one, and WReN's 166 edges beside all 486.

    python benchmarks/reasoning.py [--reference PGM_UTILS]

The generator beside ours makes one matrix at a time as the reference does: a relation object per factor, drawn until it
fits, and a whole new design for each alternative. With ``--reference`` it is the reference itself: the path of
`evaluation/abstract_reasoning/pgm_utils.py` of disentanglement_lib, which needs NumPy alone. Rounds alternate; one
thread.
"""

import argparse
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import product

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import Row, compare, run
from torch import Tensor
from torch.nn import functional as F

from unknot.datamodules import sample_matrices
from unknot.zoo import WReN

SIZES = (10, 10, 10, 4, 4, 4)  # Shapes3D and Rooms3D as the study coarsens them
BATCH, MATRICES = 32, 320
NETWORKS = (((256, 256), (128,)), ((512, 512), (128,)), ((512,) * 4, (256, 256)))

Generator = Callable[[np.random.RandomState], object]


def one_by_one(random: np.random.RandomState) -> tuple[np.ndarray, list[np.ndarray]]:
    """A matrix ``[3, 3, F]`` and its five alternatives."""
    rules = 1 + random.choice(3)
    active = design(random, rules)
    panels = fill(random, active)
    alternatives: list[np.ndarray] = []
    while len(alternatives) < 5:
        other = panels.copy()
        other[2, 2] = fill(random, design(random, rules))[2, 2]
        if not all(constant(other[:, :, i]) for i in active):
            alternatives.append(other[2, 2])
    return panels, alternatives


def design(random: np.random.RandomState, rules: int) -> list[int]:
    """Which factors have a rule."""
    left = list(range(len(SIZES)))
    return [left.pop(random.choice(len(left))) for _ in range(rules)]


def fill(random: np.random.RandomState, active: Sequence[int]) -> np.ndarray:
    """Panels that keep the rules, and show no others."""
    panels = np.zeros((3, 3, len(SIZES)), dtype=np.int64)
    for i, size in enumerate(SIZES):
        if i in active:
            panels[:, :, i] = [[random.choice(size)] * 3 for _ in range(3)]
            continue
        while True:
            panels[:, :, i] = random.choice(size, size=(3, 3))
            if not constant(panels[:2, :, i]) and not all(len(np.unique(row)) == 3 for row in panels[:2, :, i]):
                break
    return panels


def constant(rows: np.ndarray) -> bool:
    """Whether every row is."""
    return all(len(np.unique(row)) == 1 for row in rows)


def reference(path: str) -> Generator:
    """The reference's generator from its file."""
    spec = importlib.util.spec_from_file_location("pgm_utils", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda random: module.PGM(random, 1 + random.choice(3), SIZES)


def matrices(generate: Generator = one_by_one, name: str = "one by one") -> Row:
    """Drawn in batches as training takes them, beside one at a time."""
    ours, theirs = torch.Generator().manual_seed(0), np.random.RandomState(0)
    return compare(
        f"{MATRICES} reasoning matrices in batches of {BATCH}",
        lambda: [sample_matrices(SIZES, BATCH, ours) for _ in range(MATRICES // BATCH)],
        name,
        lambda: [generate(theirs) for _ in range(MATRICES)],
    )


def plain_logits(model: WReN, context: Tensor, answers: Tensor) -> Tensor:
    """Logits from all 81 ordered pairs of each answer's nine panels."""
    nodes = torch.cat([context[:, None].expand(-1, answers.shape[1], -1, -1), answers[:, :, None]], dim=2)
    place = torch.eye(9).expand(*nodes.shape[:2], -1, -1)
    nodes = torch.cat([nodes, place], dim=3)
    pairs = [torch.cat([nodes[:, :, i], nodes[:, :, j]], dim=2) for i, j in product(range(9), repeat=2)]
    return model.score(model.graph(model.edge(torch.stack(pairs, dim=2)).sum(2))).squeeze(2)


def step(edge_sizes: tuple[int, ...], graph_sizes: tuple[int, ...], rounds: int = 7) -> Row:
    """Forward, backward and Adam on the same batch of codes."""
    torch.manual_seed(0)
    model = WReN("codes", code_dim=10, edge_sizes=edge_sizes, graph_sizes=graph_sizes)
    context, answers, position = torch.randn(BATCH, 8, 10), torch.randn(BATCH, 6, 10), torch.randint(6, (BATCH,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def train(logits: Callable[[], Tensor]) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(logits(), position).backward()
            optimizer.step()

    assert torch.allclose(model.logits(context, answers), plain_logits(model, context, answers), atol=1e-4)
    return compare(
        f"step of WReN, edges {list(edge_sizes)}",
        lambda: train(lambda: model.logits(context, answers)),
        "all 486 edges",
        lambda: train(lambda: plain_logits(model, context, answers)),
        rounds,
    )


def entries() -> Iterator[Row]:
    """Matrices, and the smallest network of the study."""
    torch.set_num_threads(1)
    yield matrices()
    yield step(*NETWORKS[0])


def main() -> None:
    """Print every ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", metavar="PGM_UTILS", help="pgm_utils.py of disentanglement_lib")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [matrices()]
    if arguments.reference:
        rows.append(matrices(reference(arguments.reference), "disentanglement_lib"))
    for row in rows:
        ours = MATRICES / row.seconds
        print(f"matrices: {ours:,.0f}/s of processor time, {row.processor:.1f} times {row.against}")
    for edges, graph in NETWORKS:
        row = step(edges, graph)
        print(f"{row.name}: {1e3 * row.seconds / 3:.1f} ms, {row.processor:.2f} times {row.against}")


if __name__ == "__main__":
    run(entries, main)
