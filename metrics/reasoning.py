"""Score ``reasoning``: sample efficiency of a relation network that completes matrices from a frozen representation."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from tqdm.auto import trange

from unknot.datamodules import Coarse, GroundTruthDataset
from unknot.datamodules.matrices import Alternatives, Matrices, check_sizes, sample_matrices, solve_by_row
from unknot.metrics.draws import Draws

if TYPE_CHECKING:
    from unknot.zoo import WReN

STEPS = (300, 1000, 3000)
"""Steps of batch 32 after which the accuracy is measured; row matching is reached at about the last."""
BATCH, TEST, CHUNK = 32, 3200, 400
Batch = tuple[Tensor, Tensor, Tensor]
GRIDS: dict[str, tuple[int, ...]] = {
    "rooms3d": (10, 10, 10, 4, 4, 4),
    "shapes3d": (10, 10, 10, 4, 4, 4),
    "abstract_dsprites": (5, 6, 3, 3, 4, 4),
}
"""The grids of the study."""
MOST_VALUES = 10
"""Other data sets show four values of a factor that has more than this."""
VERSIONS = 4
"""Number of images of each grid point, if they are random."""


def grid_of(dataset: GroundTruthDataset) -> Coarse:
    """Return the coarse view of a data set that matrices are drawn from; coarse views are returned unchanged.

    >>> from unknot.datamodules import DSprites
    >>> grid_of(DSprites()).factor_space.sizes
    (3, 6, 4, 4, 4)
    """
    sizes = GRIDS.get(dataset.name.removesuffix("_32"))
    if sizes is None:
        sizes = tuple(4 if size > MOST_VALUES else size for size in dataset.factor_space.sizes)
    check_sizes(sizes)
    return Coarse(dataset, sizes)


def reasoning(draws: Draws) -> dict[str, float]:
    """Return the accuracy after each of :data:`STEPS` on the same matrices, and the last relative to row matching.

    The network is the smallest of the study, with the same initial weights and the same matrices for every
    representation. ``reasoning_relative`` is 0 at chance and 1 for a solver that matches rows; only an accuracy above
    that shows reasoning.
    """
    from unknot.zoo import WReN  # the only score that needs the zoo

    grid, generator = grid_of(draws.dataset), draws.generator("reasoning")
    space, versions = grid.factor_space, VERSIONS if grid.stochastic else 1
    points = grid.fine(space.factors(torch.arange(len(grid)))).repeat_interleave(versions, 0)
    table = torch.from_numpy(draws.codes(points, generator)).float()

    def panels(matrices: Matrices) -> Batch:
        both = torch.cat([matrices.context, matrices.answers], dim=1)
        index = space.index(both.flatten(0, 1)) * versions
        if versions > 1:
            index = index + torch.randint(versions, index.shape, generator=generator)
        codes = table[index].unflatten(0, both.shape[:2])
        return codes[:, :8], codes[:, 8:], matrices.position

    fixed = sample_matrices(space.sizes, TEST, draws.generator("reasoning test"))
    row = float((solve_by_row(fixed, generator=draws.generator("lots")) == fixed.position).double().mean())
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.inference_mode(False):
        torch.manual_seed(draws.seed)
        model = WReN("codes", code_dim=table.shape[1])
        curve = learning_curve(model, panels, space.sizes, panels(fixed), STEPS, generator)
    last = curve[max(STEPS)]
    scores = {f"reasoning_{step}": accuracy for step, accuracy in curve.items()}
    relative = (last - 1 / 6) / (row - 1 / 6)
    return {"reasoning": last, **scores, "reasoning_row_match": row, "reasoning_relative": relative}


def learning_curve(
    model: "WReN",
    panels: Callable[[Matrices], Batch],
    sizes: Sequence[int],
    test: Batch,
    steps: Sequence[int],
    generator: torch.Generator,
    alternatives: Alternatives = "easy",
) -> dict[int, float]:
    """Train a relation network on new matrices in every step, and return its accuracy on fixed ones after some steps.

    Args:
        model: network to train, with Adam and its learning rate.
        panels: function from drawn matrices to the network's input: ``(context, answers, position)``.
        sizes: number of values of each factor.
        test: the fixed matrices, as returned by ``panels``.
        steps: steps after which to measure.
        generator: random generator of the matrices.
        alternatives: see :func:`unknot.datamodules.sample_matrices`.
    """
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=model.lr)
    curve: dict[int, float] = {}
    for step in trange(1, max(steps) + 1, desc="reasoning", disable=None, leave=False):
        optimizer.zero_grad()
        model.losses(panels(sample_matrices(sizes, BATCH, generator, alternatives=alternatives)))["loss"].backward()
        optimizer.step()
        if step in steps:
            with torch.no_grad():
                right = [model(c, a).argmax(1) == p for c, a, p in zip(*(t.split(CHUNK) for t in test), strict=True)]
            curve[step] = float(torch.cat(right).double().mean())
    return curve
