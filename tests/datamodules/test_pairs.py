import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from unknot.datamodules import FactorSpace, GroundTruthDataset, PairDataModule
from unknot.datamodules.pairs import resample_factors
from unknot.lightning import pl

Batch = tuple[Tensor, ...]


class Coded(GroundTruthDataset):
    """Images that spell out their factors."""

    name = "coded"

    def __init__(self, *sizes: int) -> None:
        self.factor_space = FactorSpace(tuple(f"factor{number}" for number in range(len(sizes))), sizes)
        self.image_shape = (1, 1, len(sizes))

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return (factors / 2**16)[:, None, None]


def decode(images: Tensor) -> Tensor:
    return (images[:, 0, 0] * 2**16).long()


def module(*sizes: int, **options: Any) -> PairDataModule:
    options = {"batch_size": 8, "num_val_batches": 3, "seed": 0} | options
    return PairDataModule(Coded(*sizes or (5, 6, 7, 8)), **options)


def training(data: PairDataModule, batches: int = 5) -> list[Batch]:
    return list(itertools.islice(data.train_dataloader(), batches))


def same(one: list[Batch], other: list[Batch]) -> bool:
    assert len(one) == len(other) > 0
    assert {len(batch) for batch in one} == {len(batch) for batch in other}
    return all(torch.equal(a, b) for pair in zip(one, other, strict=True) for a, b in zip(*pair, strict=True))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def number_resampled(k: int | str, exactly_k: bool, num_factors: int) -> dict[int, float]:
    """Return how probable each number of resampled factors is."""
    share = dict.fromkeys(range(1, num_factors), 1 / (num_factors - 1)) if k == "rnd" else {k: 1.0}
    if not exactly_k:
        share = {count: part / 2 for count, part in share.items()}
        share[1] = share.get(1, 0) + 0.5
    return share


def agree(found: Counter[Any], law: dict[Any, float]) -> None:
    """A chi-square test of counts against probabilities; what has probability 0 must not occur."""
    assert found.keys() <= law.keys()
    assert math.isclose(sum(law.values()), 1)
    expected = [found.total() * probability for probability in law.values()]
    assert min(expected) > 5
    if len(law) > 1:
        assert chisquare([found[cell] for cell in law], expected).pvalue > 1e-4


SCHEMES = [(1, False), (1, True), (2, False), (2, True), ("rnd", False), ("rnd", True)]


@pytest.mark.parametrize(("k", "exactly_k"), SCHEMES)
def test_the_law_of_second_factors_and_label(k: Any, exactly_k: bool) -> None:
    """Enumerates number, choice, values and label; a re-drawn value may be the old one."""
    sizes, start = (2, 3, 4), (1, 0, 3)
    law: dict[Any, float] = {}
    for count, share in number_resampled(k, exactly_k, num_factors=3).items():
        for chosen in itertools.combinations(range(3), count):
            for values in itertools.product(*(range(sizes[factor]) for factor in chosen)):
                second = list(start)
                for factor, value in zip(chosen, values, strict=True):
                    second[factor] = value
                ways = math.comb(3, count) * math.prod(sizes[factor] for factor in chosen) * count
                for changed in chosen:
                    cell = (*second, changed)
                    law[cell] = law.get(cell, 0) + share / ways
    first = torch.tensor([start]).repeat(20_000, 1)
    second, changed = resample_factors(Coded(*sizes).factor_space, first, k, exactly_k, generator())
    assert torch.equal(first, torch.tensor([start]).expand_as(first))
    agree(Counter(map(tuple, torch.cat([second, changed[:, None]], 1).tolist())), law)


def resample_unmistakably(n: int, k: Any, exactly_k: bool) -> tuple[Tensor, Tensor]:
    """The first value is one that is never drawn, so that every resampled factor shows."""
    space = Coded(*[2**15] * 4).factor_space
    return resample_factors(space, torch.full((n, 4), -1), k, exactly_k, generator())


@pytest.mark.parametrize(("k", "exactly_k"), [*SCHEMES, (3, False), (3, True)])
def test_how_many_and_which_factors_are_resampled(k: Any, exactly_k: bool) -> None:
    second, changed = resample_unmistakably(6000, k, exactly_k)
    differs = second >= 0
    counts = number_resampled(k, exactly_k, num_factors=4)
    shares = {  # of each set of factors
        pattern: counts[sum(pattern)] / math.comb(4, sum(pattern))
        for pattern in itertools.product([False, True], repeat=4)
        if sum(pattern) in counts
    }
    agree(Counter(map(tuple, differs.tolist())), shares)
    assert differs.gather(1, changed[:, None]).all()
    agree(Counter(changed.tolist()), dict.fromkeys(range(4), 1 / 4))
    agree(Counter((second[differs] // 2**11).tolist()), dict.fromkeys(range(16), 1 / 16))


def test_the_label_is_any_of_the_resampled_factors() -> None:
    second, changed = resample_unmistakably(6000, 2, True)
    cells = Counter((*row, label) for row, label in zip((second >= 0).tolist(), changed.tolist(), strict=True))
    pairs = itertools.combinations(range(4), 2)
    agree(cells, {(*(factor in pair for factor in range(4)), label): 1 / 12 for pair in pairs for label in pair})


def test_half_of_the_pairs_change_sparsely() -> None:
    """The reference's choice([1, k])."""
    second, _ = resample_unmistakably(10_000, 3, False)
    counts = (second >= 0).sum(1)
    assert set(counts.tolist()) == {1, 3}
    assert abs((counts == 1).float().mean().item() - 0.5) < 4 * math.sqrt(0.25 / 10_000)


def test_both_images_are_drawn_from_the_whole_grid() -> None:
    first, second = training(module(2, 3, 4, batch_size=12_000), 1)[0]
    grid = dict.fromkeys(itertools.product(range(2), range(3), range(4)), 1 / 24)
    agree(Counter(map(tuple, decode(first).tolist())), grid)
    agree(Counter(map(tuple, decode(second).tolist())), grid)


@pytest.mark.parametrize("k", [1, 2, 3, "rnd"])
@pytest.mark.parametrize("exactly_k", [False, True])
def test_images_are_those_of_the_factors(k: Any, exactly_k: bool) -> None:
    data = module(k=k, exactly_k=exactly_k, group_label=True, batch_size=500)
    first, second, changed = training(data, 1)[0]
    assert first.shape == second.shape == (500, 1, 1, 4)
    assert first.dtype == second.dtype == torch.float32
    assert (changed.shape, changed.dtype) == ((500,), torch.int64)
    differs = decode(first) != decode(second)
    most = 3 if k == "rnd" else k
    assert differs.sum(1).max() == most  # with this many pairs some differ in all they may
    assert differs.any(1).float().mean() < 1  # and some not at all
    for images in (first, second):
        assert torch.equal(data.dataset.observe(decode(images)), images)
        assert (decode(images) < torch.tensor([5, 6, 7, 8])).all()
    if k == 1:
        others = torch.ones(500, 4, dtype=torch.bool).scatter(1, changed[:, None], False)
        assert not differs[others].any()


def test_the_group_label_is_an_extra() -> None:
    without, with_label = training(module()), training(module(group_label=True))
    assert {len(batch) for batch in without} == {2}
    assert {len(batch) for batch in with_label} == {3}
    assert same(without, [batch[:2] for batch in with_label])


def test_by_default_every_number_of_factors_may_change() -> None:
    assert same(training(module()), training(module(k="rnd", exactly_k=False, group_label=False)))
    assert not same(training(module()), training(module(k=3)))


@pytest.mark.parametrize(("options", "sparse"), [({}, 0.5), ({"exactly_k": False}, 0.5), ({"exactly_k": True}, 0)])
def test_exactly_k_leaves_out_the_sparse_pairs(options: dict[str, Any], sparse: float) -> None:
    first, second = training(module(*[2**15] * 4, k=3, batch_size=2000, **options), 1)[0]
    found = ((decode(first) != decode(second)).sum(1) == 1).float().mean().item()
    assert abs(found - sparse) <= 4 * math.sqrt(sparse * (1 - sparse) / 2000)


def test_of_two_factors_one_may_change() -> None:
    for k in (1, "rnd"):
        first, second = training(module(9, 9, k=k, batch_size=1000), 1)[0]
        assert (decode(first) != decode(second)).sum(1).max() == 1


def test_noise_differs_within_a_pair() -> None:
    class Noisy(Coded):
        def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
            return torch.rand(len(factors), 1, 2, 2, generator=generator)

    first, second = training(PairDataModule(Noisy(3, 3), batch_size=50, seed=0), 1)[0]
    assert len(torch.cat([first, second]).flatten(1).unique(dim=0)) == 100


def test_the_seed_sets_the_stream() -> None:
    first = training(module(seed=3, group_label=True))
    assert same(training(module(seed=3, group_label=True)), first)
    assert not same(training(module(seed=4, group_label=True)), first)
    assert len(torch.stack([batch[0] for batch in first]).flatten(1).unique(dim=0)) == 5


def test_the_stream_does_not_touch_the_global_generator() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = training(module(group_label=True))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert same(training(module(group_label=True)), first)


def test_the_number_of_workers_does_not_matter() -> None:
    alone, together = module(group_label=True), module(group_label=True, num_workers=2)
    assert same(training(together, 7), training(alone, 7))
    assert same(list(together.val_dataloader()), list(alone.val_dataloader()))


def test_validation_is_the_same_for_all_seeds() -> None:
    data = module(group_label=True)
    held_out = list(data.val_dataloader())
    assert len(held_out) == 3
    training(data)
    assert same(list(data.val_dataloader()), held_out)
    assert same(list(module(seed=99, group_label=True).val_dataloader()), held_out)
    assert not same(held_out, training(data, 3))
    assert not same(held_out[:1], held_out[1:2])


def trainer(rank: int = 0, **options: Any) -> pl.Trainer:
    class OfRank(pl.Trainer):
        @property
        def global_rank(self) -> int:
            return rank

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return OfRank(accelerator="cpu", **quiet | {"enable_checkpointing": False, "limit_val_batches": 0} | options)


class Recorder(pl.LightningModule):
    """Keeps the batches it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.trained: list[Batch] = []

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pass

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.trained.append(tuple(batch))
        return self.weight * batch[0].mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters())


def test_every_rank_has_its_own_stream() -> None:
    firsts = []
    for rank in range(3):
        data = module()
        data.trainer = trainer(rank)
        firsts += [batch[0] for batch in training(data, 2) + list(data.val_dataloader())]
    assert len(torch.stack(firsts).flatten(1).unique(dim=0)) == 15


def test_a_resumed_run_goes_on_in_the_stream(tmp_path: Path) -> None:
    first = trainer(max_steps=3, limit_train_batches=2)
    first.fit(Recorder(), datamodule=module(seed=5, group_label=True))
    first.save_checkpoint(tmp_path / "stopped.ckpt")
    model = Recorder()
    second = trainer(max_steps=6, limit_train_batches=2)
    second.fit(model, datamodule=module(seed=None, group_label=True), ckpt_path=tmp_path / "stopped.ckpt")
    assert same(model.trained, training(module(seed=5, group_label=True), 6)[3:])


@pytest.mark.parametrize("k", [0, 4, 5, -1, 1.5, "all", None])
def test_k_out_of_range_is_refused(k: Any) -> None:
    with pytest.raises(ValueError, match=r"k must be 'rnd' or an integer from 1 to 3, .* coded, got") as refused:
        module(k=k)
    assert repr(k) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("k", [1, "rnd"])
def test_a_single_factor_makes_no_pairs(k: Any) -> None:
    with pytest.raises(ValueError, match="coded has one factor; a pair needs at least two"):
        module(5, k=k)
