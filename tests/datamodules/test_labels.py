import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from unknot.datamodules import FactorDataModule, FactorSpace, GroundTruthDataset, LabelledDataModule
from unknot.datamodules.labels import NAMED, Binned, Labelling, Labels, Noisy, Partial
from unknot.lightning import pl

Batch = tuple[Tensor, ...]
KINDS = tuple(NAMED)
SIZES = (3, 6, 40, 32, 33)


class Coded(GroundTruthDataset):
    """Images whose first row spells out their factors; the second is noise."""

    name = "coded"

    def __init__(self, *sizes: int, noisy: bool = False) -> None:
        self.factor_space = FactorSpace(tuple(f"factor{number}" for number in range(len(sizes))), sizes)
        self.image_shape = (1, 2, len(sizes))
        self.noisy = noisy

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        code = factors / 2**16
        noise = torch.rand(code.shape, generator=generator) if self.noisy else torch.zeros(code.shape)
        return torch.stack([code, noise], dim=1)[:, None]


def decode(images: Tensor) -> Tensor:
    return (images[:, 0, 0] * 2**16).long()


def module(*sizes: int, noisy: bool = False, **options: Any) -> LabelledDataModule:
    options = {"num_labels": 100, "batch_size": 16, "num_val_batches": 3, "seed": 0} | options
    return LabelledDataModule(Coded(*sizes or SIZES, noisy=noisy), **options)


def training(data: LabelledDataModule, batches: int = 5) -> list[Batch]:
    return list(itertools.islice(data.train_dataloader(), batches))


def validation(data: LabelledDataModule) -> list[Batch]:
    return list(data.val_dataloader())


def same(one: list[Batch], other: list[Batch]) -> bool:
    assert len(one) == len(other) > 0
    return all(torch.equal(a, b) for pair in zip(one, other, strict=True) for a, b in zip(*pair, strict=True))


def rows(*tensors: Tensor) -> set[tuple[float, ...]]:
    return {tuple(row) for tensor in tensors for row in tensor.flatten(1).tolist()}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def corrupt_labels(
    factors: Tensor, sizes: tuple[int, ...], name: str, generator: torch.Generator, **options: Any
) -> Labels:
    return NAMED[name](**options).label(factors, sizes, generator)


def draws(n: int, *sizes: int) -> Tensor:
    return FactorSpace(tuple(map(str, range(len(sizes)))), sizes).sample(n, generator(99))


def near(found: float, probability: float, n: int) -> bool:
    """Within four standard deviations of a binomial share."""
    return abs(found - probability) <= 4 * math.sqrt(probability * (1 - probability) / n)


def test_perfect_labels_are_the_factors() -> None:
    factors = draws(50, *SIZES)
    labels, sizes = corrupt_labels(factors, SIZES, "perfect", generator())
    assert torch.equal(labels, factors)
    assert sizes == SIZES


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 24, 32, 33, 40, 183])
def test_binned_labels(size: int) -> None:
    """The reference's formula, which leaves factors with up to five values alone."""
    factors = torch.arange(size)[:, None]
    labels, sizes = corrupt_labels(factors, (size,), "binned", generator())
    bins = [min(math.floor(value / (size / 5)), 4) if size > 5 else value for value in range(size)]
    assert labels[:, 0].tolist() == bins
    assert sizes == (min(size, 5),)
    assert set(bins) == set(range(min(size, 5)))


@pytest.mark.parametrize("num_bins", [1, 2, 3, 8, 100])
def test_bins_are_as_even_as_can_be(num_bins: int) -> None:
    labels, sizes = corrupt_labels(torch.arange(24)[:, None], (24,), "binned", generator(), num_bins=num_bins)
    assert sizes == (min(num_bins, 24),)
    counts = Counter(labels[:, 0].tolist())
    assert counts.keys() == set(range(sizes[0]))
    assert max(counts.values()) - min(counts.values()) <= 1
    assert (labels.diff(dim=0) >= 0).all()


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_noisy_labels(noise: float) -> None:
    """A random label may be the true one, so that fewer than the given part are wrong."""
    sizes, n = (2, 3, 10), 30_000
    factors = draws(n, *sizes)
    labels, same_sizes = corrupt_labels(factors, sizes, "noisy", generator(), noise=noise)
    assert same_sizes == sizes
    wrong = labels != factors
    rates = [noise * (1 - 1 / size) for size in sizes]
    for column, (rate, size) in enumerate(zip(rates, sizes, strict=True)):
        assert near(wrong[:, column].float().mean().item(), rate, n)
        error = (labels - factors)[:, column].remainder(size)[wrong[:, column]]
        assert size == 2 or chisquare(error.bincount(minlength=size)[1:]).pvalue > 1e-4
    for one, other in itertools.combinations(range(3), 2):  # each label by itself, not all of an image
        assert near((wrong[:, one] & wrong[:, other]).float().mean().item(), rates[one] * rates[other], n)


def test_the_chance_of_a_random_label_is_a_tenth() -> None:
    factors = draws(5000, *SIZES)
    default, _ = corrupt_labels(factors, SIZES, "noisy", generator())
    tenth, _ = corrupt_labels(factors, SIZES, "noisy", generator(), noise=0.1)
    assert torch.equal(default, tenth)
    none, _ = corrupt_labels(factors, SIZES, "noisy", generator(), noise=0.0)
    assert torch.equal(none, factors)
    everything, _ = corrupt_labels(factors, SIZES, "noisy", generator(), noise=1.0)
    assert near((everything == factors)[:, 2].float().mean().item(), 1 / 40, 5000)
    assert chisquare(everything[:, 2].bincount(minlength=40)).pvalue > 1e-4


def observed_columns(labels: Tensor, factors: Tensor) -> tuple[int, ...]:
    """Which columns of the factors the labels are."""
    columns = [
        [number for number, factor in enumerate(factors.T) if torch.equal(column, factor)] for column in labels.T
    ]
    assert all(len(found) == 1 for found in columns)
    return tuple(found[0] for found in columns)


def test_partial_labels_are_two_columns_drawn_at_random() -> None:
    factors, seeds = draws(30, 3, 6, 40, 32), 600
    found = Counter()
    for seed in range(seeds):
        labels, sizes = corrupt_labels(factors, (3, 6, 40, 32), "partial", generator(seed))
        columns = observed_columns(labels, factors)
        assert sizes == tuple((3, 6, 40, 32)[column] for column in columns)
        found[columns] += 1
    assert found.keys() == set(itertools.permutations(range(4), 2))
    assert chisquare(list(found.values())).pvalue > 1e-4


@pytest.mark.parametrize("num_observed", [1, 3, 5])
def test_any_number_of_factors_may_be_observed(num_observed: int) -> None:
    factors = draws(30, *SIZES)
    labels, sizes = corrupt_labels(factors, SIZES, "partial", generator(), num_observed=num_observed)
    assert labels.shape == (30, num_observed)
    assert len(sizes) == len(set(observed_columns(labels, factors))) == num_observed


def test_permuted_labels_rename_the_values_of_each_factor() -> None:
    sizes = (7, 7, 40)
    factors = draws(3000, *sizes)
    labels, same_sizes = corrupt_labels(factors, sizes, "permuted", generator())
    assert same_sizes == sizes
    books = []
    for column, size in enumerate(sizes):
        book = dict(zip(factors[:, column].tolist(), labels[:, column].tolist(), strict=True))
        assert torch.equal(labels[:, column], torch.tensor([book[value] for value in factors[:, column].tolist()]))
        assert sorted(book) == sorted(book.values()) == list(range(size))
        books.append(book)
    assert books[0] != books[1]  # each factor has its own
    assert sum(value == name for value, name in books[2].items()) < 10


def test_every_permutation_occurs() -> None:
    found = Counter(
        tuple(corrupt_labels(torch.arange(3)[:, None], (3,), "permuted", generator(seed))[0][:, 0].tolist())
        for seed in range(600)
    )
    assert found.keys() == set(itertools.permutations(range(3)))
    assert chisquare(list(found.values())).pvalue > 1e-4


def expected_labels(data: LabelledDataModule, factors: Tensor) -> Tensor | None:
    """Labels that follow from the factors of one image alone, where they do."""
    if data.labelling == "perfect":
        return factors / torch.tensor(SIZES)
    if data.labelling == "binned":
        bins = [[min(math.floor(value / (n / 5)), 4) / 5 if n > 5 else value / n for value in range(n)] for n in SIZES]
        return torch.stack([torch.tensor(table)[column] for table, column in zip(bins, factors.T, strict=True)], 1)
    return None


@pytest.mark.parametrize("labelling", KINDS)
def test_batches_bring_images_and_their_labels(labelling: Any) -> None:
    data = module(labelling=labelling, num_labels=3000, batch_size=2500)
    width = 2 if labelling == "partial" else 5
    book: dict[Any, Any] = {}
    for images, labelled, labels in (training(data, 1)[0], validation(data)[0]):
        assert images.shape == labelled.shape == (2500, 1, 2, 5)
        assert labels.shape == (2500, width)
        assert images.dtype == labelled.dtype == labels.dtype == torch.float32
        factors = decode(labelled)
        expected = expected_labels(data, factors)
        if expected is not None:
            assert torch.equal(labels, expected)
        elif labelling == "partial":
            columns = observed_columns(labels, factors / torch.tensor(SIZES))
            assert book.setdefault("columns", columns) == columns  # the same in both parts
        elif labelling == "noisy":
            right = labels == factors / torch.tensor(SIZES)
            assert 0.85 < right.float().mean() < 0.97
        else:
            for number, (column, names) in enumerate(zip(factors.T, labels.T, strict=True)):
                for value, name in zip(column.tolist(), names.tolist(), strict=True):
                    assert book.setdefault((number, value), name) == name  # one code book for both parts


@pytest.mark.parametrize("labelling", KINDS)
def test_labels_are_divided_by_the_number_of_values(labelling: Any) -> None:
    """0, 1/n, ..., (n-1)/n: never 1."""
    labels = module(3, 8, labelling=labelling, num_labels=500).labelled.labels
    values = {tuple(column.unique().tolist()) for column in labels.T}
    fifths, eighths = torch.arange(5) / 5, torch.arange(8) / 8
    steps = fifths if labelling == "binned" else eighths
    assert values == {tuple((torch.arange(3) / 3).tolist()), tuple(steps.tolist())}
    assert labels.max() < 1


@pytest.mark.parametrize("labelling", KINDS)
def test_the_labelled_set_depends_on_its_own_seed_only(labelling: Any) -> None:
    options = {"labelling": labelling, "noisy": True}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    images, labels = module(label_seed=1, **options).labelled
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    used = module(label_seed=1, seed=7, batch_size=3, num_val_batches=1, **options)
    training(used)
    validation(used)
    for data in (used, module(label_seed=1, seed=None, **options)):
        assert torch.equal(data.labelled.images, images)
        assert torch.equal(data.labelled.labels, labels)
    other = module(label_seed=2, **options).labelled
    assert not torch.equal(other.images, images)
    assert not torch.equal(other.labels, labels)


def test_the_labelled_set_is_drawn_once() -> None:
    data = module()
    drawn = data.labelled
    training(data)
    assert data.labelled is drawn


def test_every_labelling_is_of_the_same_images() -> None:
    images = module().labelled.images
    for labelling in KINDS:
        assert torch.equal(module(labelling=labelling).labelled.images, images)


def test_the_five_sets_of_the_study_differ() -> None:
    sets = [rows(module(label_seed=seed).labelled.images) for seed in range(5)]
    assert len(set.union(*sets)) > 490  # of 760,320 images hardly one comes twice


def test_the_label_seed_is_not_the_stream_seed() -> None:
    data = module(label_seed=0, seed=0, num_labels=16)  # as many as a batch has
    for images, _, _ in training(data) + validation(data):
        assert len(rows(images) & rows(data.labelled.images)) < 2


def test_labels_are_of_images_from_the_whole_grid() -> None:
    factors = decode(module(2, 3, 4, num_labels=5000).labelled.images)
    assert chisquare(FactorSpace(("a", "b", "c"), (2, 3, 4)).index(factors).bincount(minlength=24)).pvalue > 1e-4


def test_unlabelled_images_are_those_of_the_plain_stream() -> None:
    plain = FactorDataModule(Coded(*SIZES, noisy=True), batch_size=16, num_val_batches=3, seed=0)
    expected = list(itertools.islice(plain.train_dataloader(), 5))
    for options in ({}, {"label_seed": 3}, {"labelling": "noisy", "num_labels": 7}):
        unlabelled = [batch[0] for batch in training(module(noisy=True, **options))]
        assert torch.equal(torch.stack(unlabelled), torch.stack(expected))


@pytest.mark.parametrize(
    ("num_labels", "trains"), [(2, 1), (3, 2), (5, 4), (10, 9), (11, 10), (15, 14), (20, 18), (100, 90), (1000, 900)]
)
def test_a_tenth_is_held_out(num_labels: int, trains: int) -> None:
    """The first ⌈0.9 n⌉ train, but for one that is always held out."""
    data = module(num_labels=num_labels, noisy=True, batch_size=64)
    assert data.num_train_labels == trains
    images, labels = data.labelled
    assert len(images) == len(labels) == num_labels == len(rows(images))
    batches = training(data, 4 + num_labels // 5)
    assert rows(*(batch[1] for batch in batches)) == rows(images[:trains])  # all of them, and none held out
    for _, held_out, held_out_labels in validation(data):
        assert len(held_out) == 64  # a sum over them weighs as much as one over a training batch
        picked = Counter(map(tuple, held_out.flatten(1).tolist()))
        assert picked.keys() <= rows(images[trains:])
        assert len(picked) == min(64, num_labels - trains)
        assert max(picked.values()) - min(picked.values()) <= 1
        assert torch.equal(held_out_labels, decode(held_out) / torch.tensor(SIZES))


@pytest.mark.parametrize(("fraction", "trains"), [(0.5, 50), (0.01, 1), (1e-6, 1), (0.999, 99), (0.955, 96)])
def test_any_part_may_train(fraction: float, trains: int) -> None:
    data = module(train_fraction=fraction, noisy=True, batch_size=64)
    assert data.num_train_labels == trains
    assert rows(*(batch[1] for batch in training(data, 20))) == rows(data.labelled.images[:trains])
    assert rows(*(batch[1] for batch in validation(data))) <= rows(data.labelled.images[trains:])


def test_labelled_images_are_drawn_evenly() -> None:
    data = module(num_labels=20, noisy=True, batch_size=3600)
    picked = Counter(map(tuple, training(data, 1)[0][1].flatten(1).tolist()))
    assert len(picked) == 18
    assert chisquare(list(picked.values())).pvalue > 1e-4


class Half(Labelling):
    """One's own: only the first half of the factors."""

    def label(self, factors: Tensor, sizes: tuple[int, ...], generator: torch.Generator) -> Labels:
        d = len(sizes) // 2
        return factors[:, :d], sizes[:d]


def test_a_labelling_is_a_name_or_an_object() -> None:
    by_name, by_object = module(labelling="binned"), module(labelling=Binned(5))
    assert torch.equal(by_name.labelled.labels, by_object.labelled.labels)
    assert not torch.equal(module(labelling=Binned(3)).labelled.labels, by_object.labelled.labels)
    assert module(labelling=Half()).labelled.labels.shape == (100, 2)


def test_factors_come_last_on_request() -> None:
    images, labelled, labels, factors = training(module(with_factors=True), 1)[0]
    assert len(labelled) == len(labels)
    assert torch.equal(factors, decode(images))


def test_labelled_images_of_a_stochastic_data_set_stay_as_they_are() -> None:
    data = module(num_labels=10, noisy=True)
    batches = training(data, 10)
    assert len(rows(*(batch[1] for batch in batches))) == 9
    unlabelled = torch.cat([batch[0] for batch in batches])
    assert len(unlabelled[:, 0, 1].unique(dim=0)) == 160
    assert len(rows(*(batch[1] for batch in training(module(num_labels=10, noisy=True, seed=9), 10)))) == 9


def test_the_seed_sets_what_is_picked() -> None:
    first = training(module(seed=3))
    assert same(training(module(seed=3)), first)
    other = training(module(seed=4))
    for part in range(3):
        assert not torch.equal(other[0][part], first[0][part])
        assert not torch.equal(first[1][part], first[0][part])


def test_validation_is_the_same_for_all_seeds() -> None:
    data = module()
    held_out = validation(data)
    training(data)
    assert same(validation(data), held_out)
    assert same(validation(module(seed=99)), held_out)
    assert not torch.equal(held_out[0][0], held_out[1][0])


@pytest.mark.parametrize("labelling", ["perfect", "noisy"])
def test_the_number_of_workers_does_not_matter(labelling: Any) -> None:
    alone = module(labelling=labelling, noisy=True)
    together = module(labelling=labelling, noisy=True, num_workers=2)
    assert same(training(together, 7), training(alone, 7))
    assert same(validation(together), validation(alone))


def test_ranks_share_the_labelled_set_and_pick_on_their_own() -> None:
    class OfRank(pl.Trainer):
        @property
        def global_rank(self) -> int:
            return 1

    alone, other = module(noisy=True), module(noisy=True)
    other.trainer = OfRank(accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
    assert torch.equal(other.labelled.images, alone.labelled.images)
    for one, two in zip(training(alone), training(other), strict=True):
        assert not torch.equal(one[1], two[1])
        assert rows(two[1]) <= rows(alone.labelled.images[:90])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labelling": "fuzzy"}, "labelling must be one of perfect, binned, noisy, partial, permuted, .* got 'fuzzy'"),
        ({"labelling": None}, "labelling must be one of .* got None"),
        ({"labelling": "Perfect"}, "labelling must be one of .* got 'Perfect'"),
        ({"num_labels": 1}, "num_labels must be a whole number of at least 2, got 1"),
        ({"num_labels": 0}, "num_labels must be a whole number of at least 2, got 0"),
        ({"num_labels": -100}, "num_labels must be a whole number of at least 2, got -100"),
        ({"num_labels": 10.5}, "num_labels must be a whole number of at least 2, got 10.5"),
        ({"num_labels": "10"}, "num_labels must be a whole number of at least 2, got '10'"),
        ({"label_seed": None}, "label_seed must be a whole number, got None"),
        ({"train_fraction": 0}, r"train_fraction must lie between 0 and 1, got 0\."),
        ({"train_fraction": 1}, r"train_fraction must lie between 0 and 1, got 1\."),
        ({"train_fraction": math.nan}, r"train_fraction must lie between 0 and 1, got nan"),
        ({"labelling": Partial(6)}, "num_observed must be at least 1 and at most 5, .* got 6"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        module(**options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Binned(2.5), "num_bins must be a whole number"),
        (lambda: Binned(0), "num_bins must be a whole number of at least 1, got 0"),
        (lambda: Partial(1.5), "num_observed must be a whole number"),
        (lambda: Partial(0), "num_observed must be a whole number of at least 1"),
        (lambda: Noisy(-0.1), "noise must lie between 0 and 1, got -0.1"),
        (lambda: Noisy(1.5), "noise must lie between 0 and 1, got 1.5"),
        (lambda: Noisy(math.nan), "noise must lie between 0 and 1, got nan"),
    ],
)
def test_bad_labellings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_single_factor_can_be_labelled() -> None:
    assert training(module(7), 1)[0][2].shape == (16, 1)
