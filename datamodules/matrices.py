"""Matrices of abstract visual reasoning, drawn in factor space, and solvers without learning.

Chapter "Weakly-Supervised Disentanglement", section "Abstract visual reasoning", after van Steenkiste et al. (2019). A
matrix has 3 x 3 panels, each a row of factor values; the last one is missing, and one of six answers completes it. An
*active* factor is constant along each row: this is the only rule. All other factors vary, and in the first two rows
never look like a rule. A factor is therefore active exactly if it is constant in both of these rows.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from unknot.arguments import counts
from unknot.datamodules.factors import GroundTruthDataset, check_dataset
from unknot.datamodules.stream import StreamDataModule

Rules = Literal[1, 2, 3, "mixed"]
Alternatives = Literal["easy", "hard", "debiased"]
ANSWERS = 6
SMALL_GRID = 64
"""Number of combinations up to which distinct ones are found by sorting; above, by resampling."""


class Matrices(NamedTuple):
    """N matrices as factor values."""

    context: Tensor
    """The eight given panels, row by row ``[N, 8, F]``."""
    answers: Tensor
    """``[N, 6, F]``."""
    position: Tensor
    """Index of the correct answer ``[N]``."""
    active: Tensor
    """Mask of the factors that have a rule ``[N, F]``; hidden from solvers."""


def sample_matrices(
    sizes: Sequence[int],
    n: int,
    generator: torch.Generator | None = None,
    rules: Rules = "mixed",
    alternatives: Alternatives = "easy",
) -> Matrices:
    """Draw n matrices.

    Args:
        sizes: number of values of each factor, at least three.
        n: number of matrices.
        generator: random generator.
        rules: number of active factors; ``"mixed"`` draws 1, 2 or 3 for each matrix.
        alternatives: ``"easy"`` ones are uniform over all panels that break a rule. ``"hard"`` ones have exactly one
            active factor wrong; a solver that compares answers can then identify the right one, as it is closest to all
            others. (The reference intends to offer these, but does not pass the option on: its hard matrices are easy.)
            With ``"debiased"``, all six answers differ from each other in the active factors, and any could be the
            right one: without the context no solver does better than 1/6. Rules are then drawn among sets of factors
            with at least six combinations.

    >>> matrices = sample_matrices((5, 6, 3, 3, 4, 4), 100, torch.Generator().manual_seed(0))
    >>> matrices.context.shape, matrices.answers.shape
    (torch.Size([100, 8, 6]), torch.Size([100, 6, 6]))
    >>> bool((solve_rules(matrices) == matrices.position).all())
    True
    """
    check_sizes(sizes)
    counts(n=n)
    if rules not in (1, 2, 3, "mixed"):
        raise ValueError(f"rules must be 1, 2, 3 or 'mixed', got {rules!r}.")
    if alternatives not in ("easy", "hard", "debiased"):
        raise ValueError(f"alternatives must be 'easy', 'hard' or 'debiased', got {alternatives!r}.")
    most = 3 if rules == "mixed" else rules
    if len(sizes) < most:
        raise ValueError(f"{most} rules need as many factors, got {len(sizes)}.")
    size = torch.tensor(sizes)
    active = _active(size, n, rules, ANSWERS if alternatives == "debiased" else 1, generator)
    panels = _panels(size, active, generator)
    solution = panels[:, 2, 2]
    draw = {"easy": _easy, "hard": _hard, "debiased": _debiased}[alternatives]
    wrong = draw(size, active, solution, generator)
    position = torch.randint(ANSWERS, (n,), generator=generator)
    slots = torch.arange(ANSWERS)
    # the alternatives keep their order around the solution
    source = slots - (slots > position[:, None]).long()
    answers = wrong.gather(1, source.clamp(max=ANSWERS - 2)[:, :, None].expand(-1, -1, len(sizes)))
    answers[torch.arange(n), position] = solution
    return Matrices(panels.flatten(1, 2)[:, :8], answers, position, active)


def check_sizes(sizes: Sequence[int]) -> None:
    """Check that factors have enough values for a matrix."""
    few = [index for index, size in enumerate(sizes) if size < 3]
    if few or not len(sizes):
        raise ValueError(
            f"Every factor of a matrix needs at least three values, got sizes {tuple(sizes)}: factor "
            f"{few[0] if few else 0} has too few. Choose another data set, or leave the factor out of it."
        )


def _uniform(size: Tensor, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """Draw values ``[*shape, F]``, each uniform over its factor's values."""
    draw = torch.rand(*shape, len(size), generator=generator, dtype=torch.float64)
    return (draw * size).long()


def _active(size: Tensor, n: int, rules: Rules, combinations: int, generator: torch.Generator | None) -> Tensor:
    count = torch.randint(1, 4, (n,), generator=generator) if rules == "mixed" else torch.full((n,), rules)
    active = torch.zeros(n, len(size), dtype=torch.bool)
    again = torch.ones(n, dtype=torch.bool)
    for _ in range(1000):
        order = torch.rand(int(again.sum()), len(size), generator=generator).argsort(1).argsort(1)
        active[again] = order < count[again, None]
        again = torch.where(active, size, 1).prod(1) < combinations
        if not again.any():
            return active
    raise ValueError(
        f"Factors of sizes {tuple(size.tolist())} have no {int(count[again][0])} with {combinations} combinations, "
        "which debiased answers need: more rules, or other alternatives."
    )


def _panels(size: Tensor, active: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw all nine panels ``[N, 3, 3, F]``."""
    n = len(active)
    rows = _uniform(size, (n, 3, 1), generator).expand(-1, -1, 3, -1)
    panels = _uniform(size, (n, 3, 3), generator)
    wrong = looks_like_a_rule(panels)
    while wrong.any():
        fresh = _uniform(size, (n, 3, 3), generator)
        panels = torch.where(wrong[:, None, None, :], fresh, panels)
        wrong &= looks_like_a_rule(panels)
    return torch.where(active[:, None, None, :], rows, panels)


def looks_like_a_rule(panels: Tensor) -> Tensor:
    """Return whether the first two rows of a factor are both constant or both all different ``[N, F]``."""
    first, second, third = panels[:, :2].unbind(2)  # each [N, 2, F], by column
    constant = (first == second) & (second == third)
    distinct = (first != second) & (second != third) & (first != third)
    return constant.all(1) | distinct.all(1)


def _easy(size: Tensor, active: Tensor, solution: Tensor, generator: torch.Generator | None) -> Tensor:
    wrong = _uniform(size, (len(solution), ANSWERS - 1), generator)
    while True:
        right = ((wrong == solution[:, None]) | ~active[:, None]).all(2)
        if not right.any():
            return wrong
        wrong[right] = _uniform(size, (int(right.sum()),), generator)


def _hard(size: Tensor, active: Tensor, solution: Tensor, generator: torch.Generator | None) -> Tensor:
    # Resampling random active factors until a value changes selects them in proportion to the chance of a change.
    weights = (active * (1 - 1 / size)).double()
    which = torch.multinomial(weights, ANSWERS - 1, replacement=True, generator=generator)
    wrong = _uniform(size, (len(solution), ANSWERS - 1), generator)
    wrong = torch.where(active[:, None], solution[:, None], wrong)
    changed = which[..., None] == torch.arange(len(size))
    step = 1 + _uniform(size - 1, (len(solution), ANSWERS - 1), generator)
    return torch.where(changed, (wrong + step) % size, wrong)


def _debiased(size: Tensor, active: Tensor, solution: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw five panels whose active parts differ from the solution's and from each other's, uniformly."""
    n = len(solution)
    own = torch.where(active, size, 1)  # sizes of the grid of active factors
    stride = torch.cat([own.flip(1).cumprod(1).flip(1)[:, 1:], torch.ones(n, 1, dtype=torch.long)], dim=1)
    total = own.prod(1)
    right = (torch.where(active, solution, 0) * stride).sum(1)
    index = torch.empty(n, ANSWERS - 1, dtype=torch.long)
    small = total <= SMALL_GRID
    if small.any():
        keys = torch.rand(int(small.sum()), SMALL_GRID, generator=generator)
        keys[torch.arange(SMALL_GRID) >= total[small, None]] = 2  # outside of the grid
        keys.scatter_(1, right[small, None], 3)
        index[small] = keys.argsort(1)[:, : ANSWERS - 1]
    again = ~small
    while again.any():
        draw = torch.rand(int(again.sum()), ANSWERS - 1, generator=generator, dtype=torch.float64)
        index[again] = (draw * total[again, None]).long()
        ordered = torch.cat([index, right[:, None]], dim=1).sort(1).values
        again = (ordered[:, 1:] == ordered[:, :-1]).any(1) & ~small
    values = index[:, :, None] // stride[:, None] % own[:, None]
    return torch.where(active[:, None], values, _uniform(size, (n, ANSWERS - 1), generator))


# Solvers without learning, as baselines for accuracies.


def solve_rules(matrices: Matrices) -> Tensor:
    """Choose the answer that follows the rules of the first two rows; right in every matrix ``[N]``."""
    rows = matrices.context[:, :6].unflatten(1, (2, 3))
    active = (rows == rows[:, :, :1]).all(2).all(1)
    fits = (matrices.answers == matrices.context[:, 7:8]) | ~active[:, None]
    return fits.all(2).long().argmax(1)


def solve_by_row(matrices: Matrices, only_constant: bool = False, generator: torch.Generator | None = None) -> Tensor:
    """Choose the answer that agrees most with the two other panels of its row; ties are broken at random.

    Args:
        matrices: matrices to solve.
        only_constant: count only factors in which these two panels agree.
        generator: random generator for ties.
    """
    row = matrices.context[:, 6:8]
    same = (matrices.answers[:, :, None] == row[:, None]).long()
    if only_constant:
        same = same * (row[:, 0] == row[:, 1])[:, None, None].long()
    return _largest(same.sum((2, 3)), generator)


def solve_blind(matrices: Matrices, least: bool = False, generator: torch.Generator | None = None) -> Tensor:
    """Choose the answer most (or ``least``) similar to the other answers, ignoring the context; ties at random."""
    same = (matrices.answers[:, :, None] == matrices.answers[:, None]).sum(3).sum(2)
    return _largest(-same if least else same, generator)


def solve_at_random(matrices: Matrices, generator: torch.Generator | None = None) -> Tensor:
    """Choose a random answer."""
    return torch.randint(ANSWERS, matrices.position.shape, generator=generator)


def _largest(score: Tensor, generator: torch.Generator | None) -> Tensor:
    return (score + torch.rand(score.shape, generator=generator) / 2).argmax(1)


class MatrixDataModule(StreamDataModule):
    """Endless stream of new matrices, with a fixed set to test on.

    A batch is ``(context, answers, position)``: panels as factor values ``[N, 8, F]`` and ``[N, 6, F]``, as codes
    ``[N, 8, D]`` from a table that encodes each grid point once, or as images ``[N, 8, C, H, W]``.

    Args:
        dataset: data set of the panels, a coarse grid such as ``Coarse(Rooms3D(), ...)``.
        rules: see :func:`sample_matrices`.
        alternatives: see :func:`sample_matrices`.
        panels: ``"factors"`` or ``"images"``.
        codes: table of codes ``[len(dataset), D]``, one row for each grid point, used instead of the panels.
        batch_size: matrices per batch.
        num_val_batches: batches of the fixed test set; 100 of 32 in the study.
        stream: arguments of :class:`StreamDataModule`: ``num_workers``, ``seed`` and ``steps_per_epoch``.

    >>> from unknot.datamodules import AbstractDSprites, Coarse, MatrixDataModule
    >>> data = MatrixDataModule(Coarse(AbstractDSprites(), (5, 6, 3, 3, 4, 4)), seed=0)
    >>> context, answers, position = next(iter(data.train_dataloader()))
    >>> context.shape, answers.shape, position.shape
    (torch.Size([32, 8, 6]), torch.Size([32, 6, 6]), torch.Size([32]))
    """

    def __init__(
        self,
        dataset: GroundTruthDataset,
        rules: Rules = "mixed",
        alternatives: Alternatives = "easy",
        panels: Literal["factors", "images"] = "factors",
        codes: Tensor | None = None,
        batch_size: int = 32,
        num_val_batches: int = 100,
        **stream: Any,
    ) -> None:
        super().__init__(batch_size, num_val_batches, **stream)
        check_dataset(dataset)
        check_sizes(dataset.factor_space.sizes)
        if panels not in ("factors", "images"):
            raise ValueError(f"panels must be 'factors' or 'images', got {panels!r}.")
        if codes is not None:
            codes = torch.as_tensor(codes)
            if codes.ndim != 2 or len(codes) != len(dataset):
                raise ValueError(
                    f"codes must be [{len(dataset)}, D], one row for each point of the grid, got {list(codes.shape)}."
                )
            if not torch.isfinite(codes).all():
                raise ValueError("codes contain NaN or infinite values: the encoder has diverged.")
        self.dataset, self.rules, self.alternatives = dataset, rules, alternatives
        self.panels, self.codes = panels, codes

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the images that panels show."""
        return self.dataset.image_shape

    def prepare_data(self) -> None:
        """Draw, download or convert the data, once per machine."""
        if self.panels == "images":
            self.dataset.prepare()

    def draw(self, generator: torch.Generator) -> Any:
        """Draw one batch of matrices."""
        sizes = self.dataset.factor_space.sizes
        matrices = sample_matrices(sizes, self.batch_size, generator, self.rules, self.alternatives)
        panels = torch.cat([matrices.context, matrices.answers], dim=1)
        if self.codes is not None:
            panels = self.codes[self.dataset.factor_space.index(panels.flatten(0, 1))].unflatten(0, panels.shape[:2])
        elif self.panels == "images":
            panels = self.dataset.observe(panels.flatten(0, 1), generator).unflatten(0, panels.shape[:2])
        return panels[:, :8], panels[:, 8:], matrices.position
