"""Matrices of abstract reasoning: rules, acceptance, shortcuts, and streams that resume."""

import pytest
import torch
from scipy import stats
from torch import Tensor

from unknot.datamodules import AbstractDSprites, Coarse
from unknot.datamodules.matrices import (
    MatrixDataModule,
    looks_like_a_rule,
    sample_matrices,
    solve_at_random,
    solve_blind,
    solve_by_row,
    solve_rules,
)

DSPRITES, SHAPES3D = (5, 6, 3, 3, 4, 4), (10, 10, 10, 4, 4, 4)
N = 20_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def share(answers: Tensor, position: Tensor) -> float:
    return float((answers == position).double().mean())


@pytest.mark.parametrize("alternatives", ["easy", "hard", "debiased"])
@pytest.mark.parametrize("rules", [1, 2, 3, "mixed"])
def test_one_answer_keeps_all_rules(rules, alternatives) -> None:
    matrices = sample_matrices(DSPRITES, 3000, generator(), rules, alternatives)
    context, answers, position, active = matrices
    counts = active.sum(1)
    assert set(counts.tolist()) == ({1, 2, 3} if rules == "mixed" else {rules})
    solution = answers[torch.arange(3000), position]
    panels = torch.cat([context, solution[:, None]], dim=1).unflatten(1, (3, 3))
    assert ((panels == panels[:, :, :1]).all(2).all(1) | ~active).all()
    assert not (looks_like_a_rule(panels) & ~active).any()
    fits = ((answers == solution[:, None]) | ~active[:, None]).all(2)
    assert (fits.sum(1) == 1).all()
    assert (answers >= 0).all()
    assert (answers < torch.tensor(DSPRITES)).all()
    assert (solve_rules(matrices) == position).all()
    assert stats.chisquare(position.bincount(minlength=6)).pvalue > 1e-4


@pytest.mark.parametrize(("n", "rate"), [(3, 0.938), (4, 0.855), (5, 0.768), (6, 0.691), (10, 0.482)])
def test_acceptance_of_factors_without_rule(n: int, rate: float) -> None:
    exact = 1 - n**-4 - ((n - 1) * (n - 2) / n**2) ** 2
    assert exact == pytest.approx(rate, abs=5e-4)
    panels = torch.randint(n, (N, 3, 3, 5), generator=generator())
    assert 1 - looks_like_a_rule(panels).double().mean().item() == pytest.approx(exact, abs=0.005)


@pytest.mark.parametrize(
    ("sizes", "alternatives", "row", "constant", "most", "least"),
    [
        (DSPRITES, "easy", 0.761, 0.825, 0.11, 0.239),
        (SHAPES3D, "easy", 0.820, 0.899, 0.13, 0.213),
        (DSPRITES, "hard", 0.630, 0.731, 0.323, 0.131),
        (SHAPES3D, "hard", 0.689, 0.822, 0.382, 0.106),
    ],
)
def test_shortcuts_reach_known_levels(sizes, alternatives, row, constant, most, least) -> None:
    matrices = sample_matrices(sizes, N, generator(1), "mixed", alternatives)
    lots = generator(2)
    assert share(solve_by_row(matrices, generator=lots), matrices.position) == pytest.approx(row, abs=0.01)
    found = share(solve_by_row(matrices, only_constant=True, generator=lots), matrices.position)
    assert found == pytest.approx(constant, abs=0.01)
    assert share(solve_blind(matrices, generator=lots), matrices.position) == pytest.approx(most, abs=0.01)
    assert share(solve_blind(matrices, least=True, generator=lots), matrices.position) == pytest.approx(least, abs=0.01)
    assert share(solve_at_random(matrices, lots), matrices.position) == pytest.approx(1 / 6, abs=0.01)


@pytest.mark.parametrize("sizes", [DSPRITES, SHAPES3D])
@pytest.mark.parametrize("rules", [1, 2, 3, "mixed"])
def test_debiased_answers_tell_nothing_without_the_context(sizes, rules) -> None:
    matrices = sample_matrices(sizes, N, generator(3), rules, "debiased")
    for least in (False, True):
        blind = share(solve_blind(matrices, least, generator(4)), matrices.position)
        assert blind == pytest.approx(1 / 6, abs=0.01)
    # not even to whoever knows which factors have rules
    own = torch.where(matrices.active[:, None], matrices.answers, 0)
    known = matrices._replace(answers=own)
    assert share(solve_blind(known, generator=generator(5)), matrices.position) == pytest.approx(1 / 6, abs=0.01)
    distinct = (own[:, :, None] != own[:, None]).any(3) | torch.eye(6, dtype=torch.bool)
    assert distinct.all()


def wrong_values(alternatives: str, rules: int, n: int = N) -> tuple[Tensor, Tensor]:
    """Return how many active factors are wrong, and by how much the first wrong one is."""
    matrices = sample_matrices(DSPRITES, n, generator(6), rules, alternatives)
    solution = matrices.answers[torch.arange(n), matrices.position]
    others = torch.ones(n, 6, dtype=torch.bool).scatter_(1, matrices.position[:, None], False)
    differs = ((matrices.answers != solution[:, None]) & matrices.active[:, None])[others]
    sizes = torch.tensor(DSPRITES)
    step = ((matrices.answers - solution[:, None]) % sizes)[others]
    which = differs.long().argmax(1)
    return differs.sum(1), which * 10 + step.gather(1, which[:, None])[:, 0]


def test_easy_and_hard_are_one_for_a_single_rule() -> None:
    tables = [wrong_values(kind, 1)[1].bincount(minlength=60) for kind in ("easy", "hard")]
    table = torch.stack(tables)
    assert stats.chi2_contingency(table[:, table.sum(0) > 0].numpy()).pvalue > 1e-3


def test_hard_alternatives_have_one_factor_wrong_and_easy_ones_more() -> None:
    assert (wrong_values("hard", 3)[0] == 1).all()
    assert wrong_values("easy", 2)[0].double().mean().item() == pytest.approx(1.59, abs=0.02)
    assert wrong_values("easy", 3)[0].double().mean().item() == pytest.approx(2.27, abs=0.02)


@pytest.fixture(scope="module")
def dataset() -> Coarse:
    return Coarse(AbstractDSprites(), DSPRITES)


def test_stream_is_seeded_and_its_test_set_fixed(dataset) -> None:
    def batches(seed: int, kind: str) -> list[Tensor]:
        loader = getattr(MatrixDataModule(dataset, seed=seed, num_val_batches=3), kind)()
        return [batch[1] for batch, _ in zip(loader, range(3), strict=False)]

    same, other = batches(0, "train_dataloader"), batches(1, "train_dataloader")
    assert all(torch.equal(a, b) for a, b in zip(same, batches(0, "train_dataloader"), strict=True))
    assert not torch.equal(same[0], other[0])
    assert all(
        torch.equal(a, b) for a, b in zip(batches(0, "val_dataloader"), batches(1, "val_dataloader"), strict=True)
    )


def test_codes_and_images_are_those_of_the_factors(dataset) -> None:
    index = torch.arange(len(dataset), dtype=torch.float32)[:, None]
    by_code = MatrixDataModule(dataset, codes=index, seed=0).draw(generator(1))
    by_factor = MatrixDataModule(dataset, seed=0).draw(generator(1))
    assert torch.equal(by_code[0][..., 0].long(), dataset.factor_space.index(by_factor[0].flatten(0, 1)).view(-1, 8))
    images = MatrixDataModule(dataset, panels="images", batch_size=2).draw(generator(1))
    assert images[0].shape == (2, 8, 3, 64, 64)
    assert images[1].shape == (2, 6, 3, 64, 64)


def test_bad_input_is_refused(dataset) -> None:
    with pytest.raises(ValueError, match="at least three values"):
        sample_matrices((3, 2, 4), 5)
    with pytest.raises(ValueError, match="rules must be"):
        sample_matrices(DSPRITES, 5, rules=4)
    with pytest.raises(ValueError, match="alternatives must be"):
        sample_matrices(DSPRITES, 5, alternatives="harder")
    with pytest.raises(ValueError, match="3 rules need as many factors"):
        sample_matrices((3, 3), 5)
    with pytest.raises(ValueError, match="have no 1 with 6 combinations"):
        sample_matrices((3, 3, 3), 5, rules=1, alternatives="debiased")
    with pytest.raises(ValueError, match=r"codes must be \[4320, D\]"):
        MatrixDataModule(dataset, codes=torch.zeros(10, 2))
    with pytest.raises(ValueError, match="NaN"):
        MatrixDataModule(dataset, codes=torch.full((4320, 2), float("nan")))
