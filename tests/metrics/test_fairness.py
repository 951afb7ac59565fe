"""Unfairness by hand and by brute force, and adjusted scores against scikit-learn's nearest neighbours."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsRegressor

from unknot.metrics.functional import adjusted, unfairness


def variations(predictions, sensitive):
    """Size of each group and its total variation, from the definition."""
    n = len(predictions)
    result = []
    for group in sorted(set(sensitive)):
        inside = [y for y, s in zip(predictions, sensitive, strict=True) if s == group]
        distance = sum(abs(inside.count(y) / len(inside) - list(predictions).count(y) / n) for y in set(predictions))
        result.append((len(inside), distance / 2))
    return result


def test_the_example_of_the_reference():
    predictions, sensitive = [1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]
    assert unfairness(predictions, sensitive) == pytest.approx(2 / 9)
    assert unfairness(predictions, sensitive, "max") == pytest.approx(1 / 3)
    assert unfairness(predictions, sensitive, "uniform") == pytest.approx(1 / 4)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(pairs=st.lists(st.tuples(st.integers(-2, 3), st.integers(-1, 3)), min_size=1, max_size=40))
def test_is_the_mean_total_variation(pairs):
    known = [pair for pair in pairs if -1 not in pair]
    if not known:
        with pytest.raises(ValueError, match="No row has both a prediction and a sensitive factor"):
            unfairness(*zip(*pairs, strict=True))
        return
    value = unfairness(*zip(*pairs, strict=True))
    predictions, sensitive = map(list, zip(*known, strict=True))
    assert value == unfairness(predictions, sensitive)
    groups = variations(predictions, sensitive)
    sizes, distances = zip(*groups, strict=True)
    assert unfairness(predictions, sensitive) == pytest.approx(np.average(distances, weights=sizes), abs=1e-12)
    assert unfairness(predictions, sensitive, "uniform") == pytest.approx(np.mean(distances), abs=1e-12)
    assert unfairness(predictions, sensitive, "max") == pytest.approx(max(distances), abs=1e-12)
    assert 0 <= unfairness(predictions, sensitive) <= unfairness(predictions, sensitive, "max") + 1e-12 <= 1 + 1e-12
    renamed = [1000 - 7 * y for y in predictions], [s + 10**9 for s in sensitive]
    assert unfairness(*renamed) == pytest.approx(unfairness(predictions, sensitive), abs=1e-12)


def test_groups_of_one_size_weigh_the_same_either_way():
    rng = np.random.default_rng(0)
    predictions, sensitive = rng.integers(0, 4, 300), np.repeat([0, 1, 2], 100)
    assert unfairness(predictions, sensitive) == pytest.approx(unfairness(predictions, sensitive, "uniform"))


def test_parity_and_its_opposite():
    assert unfairness([0, 1] * 10, [0, 0, 1, 1] * 5) == 0.0
    assert unfairness([5] * 6, [0, 1, 2] * 2) == 0.0
    assert unfairness([0, 1, 2], [7, 7, 7]) == 0.0
    assert unfairness(range(10), range(10)) == pytest.approx(0.9)  # the prediction is the sensitive factor
    assert unfairness(torch.tensor([True, False]), torch.tensor([0, 1])) == 0.5
    assert unfairness([0, 1], [0.0, 1.0]) == 0.5


@pytest.mark.parametrize(
    ("predictions", "sensitive", "reduction", "message"),
    [
        ([0.5, 1.0], [0, 1], "mean", "predictions must be classes, got fractions of float64"),
        ([0, 1], [0.5, 1.0], "mean", "sensitive must be classes, got fractions of float64"),
        ([0, 1], [0, 1, 1], "mean", "sensitive must have an entry for each of 2 rows, got 3"),
        ([[0, 1]], [0, 1], "mean", r"predictions must have shape \[N\]"),
        ([], [], "mean", r"predictions must have shape \[N\] with N >= 1"),
        ([0, 1], [0, 1], "median", "reduction must be 'mean', 'max' or 'uniform', got 'median'"),
    ],
)
def test_bad_predictions(predictions, sensitive, reduction, message):
    with pytest.raises(ValueError, match=message) as error:
        unfairness(predictions, sensitive, reduction)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("neighbours", [1, 5, 20])
def test_adjusted_is_the_residual_of_nearest_neighbours(neighbours):
    rng = np.random.default_rng(0)
    performance, metric = rng.random(40), rng.random(40)
    model = KNeighborsRegressor(n_neighbors=neighbours)
    included = metric - model.fit(performance[:, None], metric).predict(performance[:, None])
    np.testing.assert_allclose(adjusted(metric, performance, neighbours, leave_one_out=False), included)
    others = [
        metric[i] - model.fit(np.delete(performance, i)[:, None], np.delete(metric, i)).predict([[performance[i]]])[0]
        for i in range(40)
    ]
    np.testing.assert_allclose(adjusted(metric, performance, neighbours), others)


def test_five_neighbours_by_default():
    rng = np.random.default_rng(1)
    metric, performance = rng.random((2, 20))
    np.testing.assert_array_equal(adjusted(metric, performance), adjusted(metric, performance, 5))


def test_what_performance_explains_is_gone():
    performance = np.linspace(0, 1, 200)
    noise = 0.01 * np.random.default_rng(0).normal(size=200)
    left = adjusted(3 * performance + noise, performance)[5:-5]  # at the ends all neighbours are on one side
    assert abs(np.corrcoef(left, performance[5:-5])[0, 1]) < 0.1
    assert np.corrcoef(left, noise[5:-5])[0, 1] > 0.7


def test_torch_and_lists():
    expected = adjusted([1.0, 2.0, 6.0], [0.5, 0.6, 0.7], neighbours=2)
    tensors = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([0.5, 0.6, 0.7])
    np.testing.assert_allclose(adjusted(*tensors, neighbours=2), expected)


@pytest.mark.parametrize(
    ("metric", "performance", "options", "message"),
    [
        ([1.0] * 3, [1.0] * 4, {}, "of the same models, got 3 and 4"),
        ([1.0] * 5, [1.0] * 5, {}, r"neighbours must lie in 1..4 for 5 models, got 5"),
        ([1.0] * 5, [1.0] * 5, {"neighbours": 0}, r"neighbours must lie in 1..4 for 5 models, got 0"),
        ([1.0], [1.0], {"neighbours": 1}, "neighbours must lie in"),
        ([np.nan, 1.0], [0.1, 0.2], {"neighbours": 1}, "must be finite"),
        ([1.0, 1.0], [0.1, np.inf], {"neighbours": 1}, "must be finite"),
    ],
)
def test_bad_adjustments(metric, performance, options, message):
    with pytest.raises(ValueError, match=message) as error:
        adjusted(metric, performance, **options)
    assert "\n" not in str(error.value)
