"""Drawn data in batches beside one by one, and WReN's 166 edges beside all 486.

    python benchmarks/data.py

The generator of matrices beside ours makes one at a time as the reference does: a relation object per factor, drawn
until it fits, and a whole new design for each alternative.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import torch
from common import Row, compare, run
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import default_collate

from unknot.datamodules import DSprites, sample_matrices
from unknot.datamodules.scenes.clevr_scenes import ClevrScenes
from unknot.zoo import WReN

SIZES = (10, 10, 10, 4, 4, 4)  # Shapes3D and Rooms3D as the study coarsens them
BATCH, MATRICES = 32, 320


def dsprites() -> Row:
    """Compare 200 batches of images with the same images one by one."""
    dataset = DSprites()
    generator = torch.Generator().manual_seed(0)
    draws = [dataset.factor_space.sample(64, generator) for _ in range(200)]

    def at_once() -> None:
        for factors in draws:
            dataset.observe(factors)

    def one_by_one() -> None:
        for factors in draws[:20] * 10:
            default_collate([dataset[index][0] for index in dataset.factor_space.index(factors).tolist()])

    return compare("batches of 64 dSprites images", at_once, "image by image", one_by_one)


def scenes() -> Row:
    """Compare a batch of scenes with the same number one by one."""
    dataset = ClevrScenes(image_size=64)

    def draw(count: int, seed: int = 0) -> object:
        return dataset.draw(count, torch.Generator().manual_seed(seed))

    def one_by_one() -> None:
        for seed in range(64):
            draw(1, seed)

    return compare("64 drawn scenes of 64 x 64 pixels", lambda: draw(64), "scene by scene", one_by_one, 3)


def one_matrix(random: np.random.RandomState) -> tuple[np.ndarray, list[np.ndarray]]:
    """A matrix ``[3, 3, F]`` and its five alternatives."""
    rules = 1 + random.choice(3)
    active = design(random, rules)
    panels = panels_of(random, active)
    alternatives: list[np.ndarray] = []
    while len(alternatives) < 5:
        other = panels.copy()
        other[2, 2] = panels_of(random, design(random, rules))[2, 2]
        if not all(constant(other[:, :, i]) for i in active):
            alternatives.append(other[2, 2])
    return panels, alternatives


def design(random: np.random.RandomState, rules: int) -> list[int]:
    """Return the factors that have a rule."""
    left = list(range(len(SIZES)))
    return [left.pop(random.choice(len(left))) for _ in range(rules)]


def panels_of(random: np.random.RandomState, active: Sequence[int]) -> np.ndarray:
    """Return panels that keep the rules, and show no others."""
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
    """Return whether every row is constant."""
    return all(len(np.unique(row)) == 1 for row in rows)


def matrices() -> Row:
    """Compare matrices drawn in batches with one at a time."""
    ours, theirs = torch.Generator().manual_seed(0), np.random.RandomState(0)
    return compare(
        f"{MATRICES} reasoning matrices in batches of {BATCH}",
        lambda: [sample_matrices(SIZES, BATCH, ours) for _ in range(MATRICES // BATCH)],
        "one by one",
        lambda: [one_matrix(theirs) for _ in range(MATRICES)],
    )


def plain_logits(model: WReN, context: Tensor, answers: Tensor) -> Tensor:
    """Return logits from all 81 ordered pairs of each answer's nine panels."""
    nodes = torch.cat([context[:, None].expand(-1, answers.shape[1], -1, -1), answers[:, :, None]], dim=2)
    place = torch.eye(9).expand(*nodes.shape[:2], -1, -1)
    nodes = torch.cat([nodes, place], dim=3)
    pairs = [torch.cat([nodes[:, :, i], nodes[:, :, j]], dim=2) for i, j in product(range(9), repeat=2)]
    return model.score(model.graph(model.edge(torch.stack(pairs, dim=2)).sum(2))).squeeze(2)


def wren() -> Row:
    """Compare steps of the smallest network of the study: forward, backward and Adam on a batch of latents."""
    torch.manual_seed(0)
    model = WReN("codes", code_dim=10, edge_sizes=(256, 256), graph_sizes=(128,))
    context, answers, position = torch.randn(BATCH, 8, 10), torch.randn(BATCH, 6, 10), torch.randint(6, (BATCH,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def train(logits: Callable[[], Tensor]) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(logits(), position).backward()
            optimizer.step()

    assert torch.allclose(model.logits(context, answers), plain_logits(model, context, answers), atol=1e-4)
    return compare(
        "step of WReN, edges [256, 256]",
        lambda: train(lambda: model.logits(context, answers)),
        "all 486 edges",
        lambda: train(lambda: plain_logits(model, context, answers)),
        7,
    )


def entries() -> Iterator[Row]:
    """Yield all rows."""
    torch.set_num_threads(1)
    yield dsprites()
    yield scenes()
    yield matrices()
    yield wren()


if __name__ == "__main__":
    run(entries)
