import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unknot.datamodules import DSprites, FactorSpace, GroundTruthDataset

SPACE = FactorSpace(names=("shape", "scale", "pos_x"), sizes=(3, 2, 4))
reproducible = settings(derandomize=True, deadline=None)


@st.composite
def spaces(draw: st.DrawFn) -> FactorSpace:
    sizes = draw(st.lists(st.integers(1, 50), min_size=1, max_size=7))
    return FactorSpace(names=tuple(f"factor {i}" for i in range(len(sizes))), sizes=tuple(sizes))


@st.composite
def spaces_with_indices(draw: st.DrawFn) -> tuple[FactorSpace, Tensor]:
    space = draw(spaces())
    indices = draw(st.lists(st.integers(0, space.size - 1), max_size=20))
    return space, torch.tensor(indices, dtype=torch.int64)


@st.composite
def spaces_with_factors(draw: st.DrawFn) -> tuple[FactorSpace, Tensor]:
    space = draw(spaces())
    row = st.tuples(*(st.integers(0, size - 1) for size in space.sizes))
    rows = draw(st.lists(row, min_size=1, max_size=20))
    return space, torch.tensor(rows)


@reproducible
@given(spaces_with_indices())
def test_index_undoes_factors(case: tuple[FactorSpace, Tensor]) -> None:
    space, index = case
    factors = space.factors(index)
    assert factors.shape == (len(index), space.num_factors)
    assert factors.dtype == torch.int64
    assert torch.equal(space.index(factors), index)


@reproducible
@given(spaces_with_factors())
def test_factors_undo_index(case: tuple[FactorSpace, Tensor]) -> None:
    space, factors = case
    assert torch.equal(space.factors(space.index(factors)), factors)


@reproducible
@given(spaces_with_factors())
def test_grid_order_is_that_of_numpy(case: tuple[FactorSpace, Tensor]) -> None:
    space, factors = case
    index = space.index(factors).numpy()
    assert np.array_equal(index, np.ravel_multi_index(tuple(factors.numpy().T), space.sizes))
    assert np.array_equal(
        space.factors(torch.from_numpy(index)), np.stack(np.unravel_index(index, space.sizes), axis=1)
    )


def test_last_factor_changes_fastest() -> None:
    assert space_rows(SPACE)[:5] == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 1, 0]]
    assert len(space_rows(SPACE)) == SPACE.size == 24


def space_rows(space: FactorSpace) -> list[list[int]]:
    return space.factors(torch.arange(space.size)).tolist()


@pytest.mark.parametrize("shape", [(), (2, 5), (0,)])
def test_any_leading_shape(shape: tuple[int, ...]) -> None:
    index = torch.randint(SPACE.size, shape, generator=torch.Generator().manual_seed(0))
    factors = SPACE.factors(index)
    assert factors.shape == (*shape, 3)
    assert torch.equal(SPACE.index(factors), index)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_integer_type(dtype: torch.dtype) -> None:
    index = SPACE.index(torch.tensor([[2, 1, 3]], dtype=dtype))
    assert index.dtype == torch.int64
    assert index.tolist() == [23]


def test_large_spaces_do_not_overflow() -> None:
    space = FactorSpace(names=("a", "b", "c"), sizes=(2**20, 2**21, 2**21))
    last = torch.tensor([[2**20 - 1, 2**21 - 1, 2**21 - 1]])
    assert space.index(last).tolist() == [2**62 - 1]
    assert torch.equal(space.factors(space.index(last)), last)


def test_sample_is_uniform_over_the_grid() -> None:
    n = 24_000
    factors = SPACE.sample(n, torch.Generator().manual_seed(0))
    assert factors.shape == (n, 3)
    assert factors.dtype == torch.int64
    counts = torch.bincount(SPACE.index(factors), minlength=SPACE.size)
    chi_square = ((counts - n / SPACE.size) ** 2 / (n / SPACE.size)).sum()
    assert chi_square < 49.7  # the 99.9 % quantile with 23 degrees of freedom


@reproducible
@given(spaces(), st.integers(0, 100), st.integers(0, 2**63 - 1))
def test_sample_is_in_range_and_set_by_the_generator(space: FactorSpace, n: int, seed: int) -> None:
    factors = space.sample(n, torch.Generator().manual_seed(seed))
    assert factors.shape == (n, space.num_factors)
    assert ((factors >= 0) & (factors < torch.tensor(space.sizes))).all()
    assert torch.equal(factors, space.sample(n, torch.Generator().manual_seed(seed)))


def test_sample_moves_on_and_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(SPACE.sample(50, generator), SPACE.sample(50, generator))
    assert torch.equal(torch.get_rng_state(), state)


def test_spaces_are_values() -> None:
    same = FactorSpace(names=["shape", "scale", "pos_x"], sizes=np.array([3, 2, 4]))  # type: ignore[arg-type]
    assert same == SPACE
    assert hash(same) == hash(SPACE)
    assert same != FactorSpace(names=SPACE.names, sizes=(3, 2, 5))


@pytest.mark.parametrize(
    ("names", "sizes", "message"),
    [
        (("a", "b"), (3,), "one size per name: got 2 names, 1 sizes"),
        (("a",), (3, 4), "one size per name: got 1 names, 2 sizes"),
        ((), (), "one size per name: got 0 names, 0 sizes"),
        (("a", "a"), (3, 4), r"names must differ, got \('a', 'a'\)"),
        (("a", "b"), (3, 0), r"sizes must be at least 1 .* got \(3, 0\)"),
        (("a",), (-2,), r"sizes must be at least 1 .* got \(-2,\)"),
        (("a", "b"), (2**32, 2**31), r"less than 2\*\*63"),
    ],
)
def test_bad_spaces_are_refused(names: tuple[str, ...], sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FactorSpace(names=names, sizes=sizes)


def test_sizes_are_whole_numbers() -> None:
    with pytest.raises(TypeError, match="integer"):
        FactorSpace(names=("a",), sizes=(2.7,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([[0.0, 1.0, 2.0]], "must be integer classes, got torch.float32"),
        ([[3, 0, 0]], r"out of range: classes start at 0 and sizes are \(3, 2, 4\)"),
        ([[0, 0, 4]], "out of range"),
        ([[0, -1, 0]], "out of range"),
        ([[0, 0]], r"shape \[\.\.\., 3\] \(shape, scale, pos_x\), got \[1, 2\]"),
        ([[0, 0, 0, 0]], r"shape \[\.\.\., 3\] .* got \[1, 4\]"),
        (1, r"shape \[\.\.\., 3\] .* got \[\]"),
    ],
)
def test_bad_factors_are_refused(factors: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SPACE.index(torch.tensor(factors))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([0, 24], r"must lie in 0\.\.23, got 0\.\.24"),
        ([-1, 3], r"must lie in 0\.\.23, got -1\.\.3"),
        ([1.5], "must be integers, got torch.float32"),
    ],
)
def test_bad_indices_are_refused(index: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SPACE.factors(torch.tensor(index))


class Squares(GroundTruthDataset):
    """2 x 2 images filled with the number of the grid point."""

    name = "squares"
    factor_space = SPACE
    image_shape = (1, 2, 2)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.factor_space.index(factors).float().view(-1, 1, 1, 1).expand(-1, 1, 2, 2)


def test_a_dataset_has_one_item_per_grid_point() -> None:
    dataset = Squares()
    assert len(dataset) == 24
    for i in (0, 7, 23):
        image, factors = dataset[i]
        assert torch.equal(image, torch.full((1, 2, 2), float(i)))
        assert torch.equal(factors, SPACE.factors(torch.tensor(i)))


def test_a_dataset_counts_from_the_end_and_ends() -> None:
    dataset = Squares()
    assert torch.equal(dataset[-1][1], dataset[23][1])
    for i in (24, -25):
        with pytest.raises(IndexError):
            dataset[i]
    assert [int(image[0, 0, 0]) for image, _ in dataset] == list(range(24))


def test_a_dataset_without_slow_work_is_prepared() -> None:
    dataset = Squares()
    dataset.prepare()
    assert dataset.is_prepared()


def test_a_dataset_must_say_what_is_observed() -> None:
    class Incomplete(GroundTruthDataset):
        pass

    with pytest.raises(TypeError, match="observe"):
        Incomplete()  # type: ignore[abstract]


def test_slices_lists_and_masks_give_as_many_images_as_factors() -> None:
    class Numbers(GroundTruthDataset):
        name = "numbers"
        factor_space = FactorSpace(("a", "b"), (3, 4))
        image_shape = (1, 1, 1)

        def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
            return self.factor_space.index(factors)[:, None, None, None].float()

    dataset = Numbers()
    mask = torch.arange(12) % 5 == 0
    for index, expected in [
        (slice(4), [0, 1, 2, 3]),
        (slice(-3, None), [9, 10, 11]),
        (slice(2, 10, 4), [2, 6]),
        ([3, 1, -1], [3, 1, 11]),
        (torch.tensor([5]), [5]),
        (mask, [0, 5, 10]),
        (slice(5, 5), []),
    ]:
        images, factors = dataset[index]
        assert images.flatten().tolist() == expected
        assert dataset.factor_space.index(factors).tolist() == expected
    image, factors = dataset[np.int64(-1)]
    assert image.shape == (1, 1, 1)
    assert factors.tolist() == [2, 3]
    for wrong in (12, [0, 12], [0.5], mask[:5], [[1]]):
        with pytest.raises(IndexError):
            dataset[wrong]


def test_the_former_spelling_of_license_still_works() -> None:
    with pytest.warns(FutureWarning, match=r"Former\.licence is now called license"):  # wording: keep

        class Former(DSprites):
            licence = "CC BY 4.0"  # wording: keep

    assert Former.license == "CC BY 4.0"
    with pytest.warns(FutureWarning, match="now called license"):
        assert DSprites().licence == DSprites.license  # wording: keep
