"""Kinds and values of factors, and labels as people have them."""

import math
import pickle

import numpy as np
import pytest
import torch

from unknot.datamodules import DSprites, FactorSpace, Shapes3D
from unknot.datamodules.views import Coarse
from unknot.labels import discretize, read_column

pd = pytest.importorskip("pandas")
NAN = float("nan")


@pytest.mark.parametrize(
    ("labels", "classes", "kind"),
    [
        ([3, 1, -1, 7], [3, 1, -1, 7], "ordered"),
        ([0.0, 2.0, NAN, -1.0], [0, 2, -1, -1], "ordered"),
        ([True, False], [1, 0], "categorical"),
        ([True, None], [1, -1], "categorical"),
        (["b", "a", "", None], [1, 0, -1, -1], "categorical"),
        (["2", "10", "nan"], [2, 10, -1], "ordered"),
        ([1, None, 2], [1, -1, 2], "ordered"),
        ([0.5, 0.25, NAN], [1, 0, -1], "ordered"),
        (pd.Categorical(["x", None, "y"], categories=["y", "x"]), [1, -1, 0], "categorical"),
        (pd.Series(pd.Categorical(["lo", "hi"], categories=["lo", "hi"], ordered=True)), [0, 1], "ordered"),
        (pd.array([1, None, 2], dtype="Int64"), [1, -1, 2], "ordered"),
        (pd.Series(["a", pd.NA, "b"], dtype="string"), [0, -1, 1], "categorical"),
        (np.array([1, 2], dtype=np.uint8), [1, 2], "ordered"),
    ],
    ids=str,
)
def test_labels_of_any_type_become_classes(labels: object, classes: list[int], kind: str) -> None:
    column = read_column(labels)
    assert (column.classes.tolist(), column.kind) == (classes, kind)
    assert {*column.values} == {*classes} - {-1}


def test_continuous_labels_are_cut_into_bins_that_are_told() -> None:
    labels = np.linspace(-1, 1, 101)
    labels[7] = NAN
    column = read_column(labels, bins=4)
    assert column.kind == "continuous"
    assert column.classes[7] == -1
    assert [column.values[i] for i in range(4)] == [(-1.0, -0.5), (-0.5, 0.0), (0.0, 0.5), (0.5, 1.0)]
    assert np.array_equal(column.classes, discretize(labels, 4))
    skewed = np.exp(np.linspace(0, 10, 1000))
    assert np.ptp(np.bincount(discretize(skewed, 10, "quantile"))) <= 1
    assert discretize(np.zeros(3), 5, "quantile").tolist() == [0, 0, 0]
    assert read_column([1, 2, 3, 4], kind="continuous", bins=2).classes.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "message"), [([[1]], "shape"), ([math.inf], "finite"), ([1 + 2j], "numbers"), ([{}, []], "x")][:3]
)
def test_labels_that_are_none_are_refused(labels: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_column(labels)


def test_orientation_of_sprites_is_circular_with_the_symmetry_of_the_shape() -> None:
    space = DSprites().factor_space
    assert space.kinds == ("categorical", "ordered", "circular", "ordered", "ordered")
    quarter = torch.tensor([[shape, 0, turn, 0, 0] for shape in range(3) for turn in (0, 13, 26, 39)])
    angles = space.values(quarter)[:, 2].view(3, 4)
    third = 2 * math.pi / 3
    expected = [[0, third % (math.pi / 2), 2 * third % (math.pi / 2), 0], [0, third, 2 * third - math.pi, 0]]
    torch.testing.assert_close(angles[:2], torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(angles[2], torch.tensor([0, third, 2 * third, 0], dtype=torch.float64))
    assert space == FactorSpace(space.names, space.sizes)
    assert pickle.loads(pickle.dumps(space)).symmetries == space.symmetries
    assert space.values(torch.tensor([[0, 5, 0, 0, 31]]))[0, [1, 4]].tolist() == [1.0, 1.0]


def test_images_of_equal_values_are_equal() -> None:
    data = DSprites()
    generator = torch.Generator().manual_seed(0)
    factors = data.factor_space.sample(300, generator)
    factors[:, 1], factors[:, 3:] = 5, 15
    values = [tuple(row) for row in data.factor_space.values(factors).round(decimals=6).tolist()]
    images = data.observe(factors)
    first = {value: place for place, value in reversed([*enumerate(values)])}
    again = [first[value] for value in values]
    assert len(first) < len({tuple(row) for row in factors.tolist()})
    assert (images - images[again]).abs().mean(0).max() < 0.05  # corners are rounded to 1/256 of a pixel


def test_a_coarse_view_keeps_kinds_and_values() -> None:
    view = Coarse(DSprites(), (3, 6, 4, 4, 4)).factor_space
    assert view.kinds == DSprites().factor_space.kinds
    assert view.symmetries["orientation"] == ("shape", [4, 2, 1])
    torch.testing.assert_close(view.values(torch.tensor([[2, 0, 2, 0, 0]]))[0, 2].item(), 2 * math.pi * 20 / 39)
    hues = Coarse(Shapes3D("nowhere"), (4, 4, 4, 2, 2, 2)).factor_space
    torch.testing.assert_close(hues.values(torch.tensor([[2, 0, 0, 0, 0, 0]]))[0, 0].item(), 2 * math.pi * 5 / 10)


@pytest.mark.parametrize(
    "reply",
    [
        {"kinds": ("ordered",)},
        {"kinds": ("ordered", "round")},
        {"levels": {"a": [1]}},
        {"symmetries": {"a": ("b", (1,))}},
    ],
    ids=str,
)
def test_kinds_that_do_not_fit_are_refused(reply: dict) -> None:
    with pytest.raises(ValueError, match=r"kinds|levels|symmetries"):
        FactorSpace(("a", "b"), (2, 3), **reply)
