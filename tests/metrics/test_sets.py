"""Average precision of sets against a plain loop and by hand, and the adjusted Rand index against scikit-learn."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from unknot.metrics import AdjustedRandIndex, SetAveragePrecision
from unknot.metrics.functional import adjusted_rand_index, set_average_precision
from unknot.metrics.functional.sets import THRESHOLDS, adjusted_rand_indices, average_precisions

PARTS = [(3, 5), (5, 7), (7, 10), (10, 18)]


def thing(xyz=(0.0, 0.0, 0.0), classes=(0, 0, 0, 0), real=1.0):
    """An object at ``xyz`` in the units of the scene."""
    row = np.zeros(19)
    row[:3] = (np.array(xyz) + 3) / 6
    for (first, _), number in zip(PARTS, classes, strict=True):
        row[first + number] = 1
    row[18] = real
    return row


PADDING = np.zeros(19)
RED_CUBE, BLUE_BALL = (0, 0, 0, 4), (1, 1, 1, 1)


def ap(predicted, true, threshold=math.inf):
    return set_average_precision(np.array([predicted]), np.array([true]), threshold)


# By hand


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_perfect(threshold):
    scene = [thing((1, 2, 0), RED_CUBE), thing((-1, 0, 0), BLUE_BALL), PADDING]
    assert ap(scene, scene, threshold) == 1.0
    assert ap(scene[::-1], scene, threshold) == 1.0  # in any order


def test_a_duplicate_is_a_false_positive():
    true = [thing((0, 0, 0), RED_CUBE), thing((2, 0, 0), BLUE_BALL)]
    twice = [thing((0, 0, 0), RED_CUBE, 0.9), thing((0.1, 0, 0), RED_CUBE, 0.8), thing((2, 0, 0), BLUE_BALL, 0.7)]
    assert ap(twice, true) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)


def test_only_the_nearest_is_considered_even_if_an_equal_one_is_free():
    true = [thing((0, 0, 0), RED_CUBE), thing((2, 0, 0), RED_CUBE)]
    near_the_first = [thing((0, 0, 0), RED_CUBE, 0.9), thing((0.5, 0, 0), RED_CUBE, 0.8)]
    assert ap(near_the_first, true) == 0.5
    one_each = [thing((0, 0, 0), RED_CUBE, 0.9), thing((1.5, 0, 0), RED_CUBE, 0.8)]
    assert ap(one_each, true) == 1.0


def test_a_miss_does_not_claim():
    """Too far away, so no hit; the next one may still hit the object."""
    true = [thing((0, 0, 0), RED_CUBE)]
    assert ap([thing((1, 0, 0), RED_CUBE, 0.9), thing((0.1, 0, 0), RED_CUBE, 0.8)], true, 0.5) == 0.5


@pytest.mark.parametrize("classes", [(1, 0, 0, 4), (0, 1, 0, 4), (0, 0, 2, 4), (0, 0, 0, 3)])
def test_one_wrong_attribute_is_wrong(classes):
    assert ap([thing((0, 0, 0), classes)], [thing((0, 0, 0), RED_CUBE)]) == 0.0


def test_exactly_at_the_threshold_is_too_far():
    true = [thing((-3, -3, -3), RED_CUBE)]
    moved = thing((-3, -3, -3), RED_CUBE)
    moved[0] = 0.75 / 6  # 6 * (0.75 / 6) is 0.75 without rounding
    assert ap([moved], true, 0.75) == 0.0
    assert ap([moved], true, np.nextafter(0.75, 1)) == 1.0


def test_distance_is_euclidean_and_in_units_of_the_scene():
    moved, true = [thing((0.3, 0.4, 0), RED_CUBE)], [thing((0, 0, 0), RED_CUBE)]  # half a unit
    assert ap(moved, true, 0.51) == 1.0
    assert ap(moved, true, 0.49) == 0.0


def test_no_objects():
    assert ap([thing()], [PADDING]) == 0.0
    assert set_average_precision(np.zeros((3, 4, 19)), np.zeros((3, 0, 19))) == 0.0
    assert set_average_precision(np.zeros((0, 4, 19)), np.zeros((0, 2, 19))) == 0.0
    assert set_average_precision(np.zeros((1, 0, 19)), np.array([[thing()]])) == 0.0


def test_padding_is_no_object():
    """A prediction with the attributes of a row of zeros."""
    true = [thing((0, 0, 0), RED_CUBE), PADDING]
    assert ap([thing((-3, -3, -3), (0, 0, 0, 0), 0.9), thing((0, 0, 0), RED_CUBE, 0.8)], true) == 0.5


def test_more_slots_than_objects():
    true = [thing((0, 0, 0), RED_CUBE)]
    surplus = [thing((0, 0, 0), BLUE_BALL, 0.1 * i) for i in range(5)]
    assert ap([*surplus, thing((0, 0, 0), RED_CUBE, 0.9)], true) == 1.0  # below it, they cost nothing
    assert ap([*surplus, thing((0, 0, 0), RED_CUBE, 0.0)], true) == pytest.approx(1 / 5)  # a tie: the later one first
    assert ap([thing((0, 0, 0), RED_CUBE, 0.0), *surplus], true) == pytest.approx(1 / 6)


def test_more_objects_than_slots():
    true = [thing((i, 0, 0), RED_CUBE) for i in range(3)]
    assert ap(true[:2], true) == pytest.approx(2 / 3)


def test_objects_of_another_image_do_not_count():
    one, other = [thing((0, 0, 0), RED_CUBE)], [thing((0, 0, 0), BLUE_BALL)]
    assert set_average_precision(np.array([one, other]), np.array([other, one])) == 0.0


def test_confidence_ranks_over_all_images():
    true = np.array([[thing((0, 0, 0), RED_CUBE)], [thing((0, 0, 0), BLUE_BALL)]])
    predicted = np.array([[thing((0, 0, 0), RED_CUBE, 0.2)], [thing((0, 0, 0), RED_CUBE, 0.9)]])
    assert set_average_precision(predicted, true) == pytest.approx(0.25)


def test_minus_one_stands_for_infinity():
    true, far = [thing((-3, -3, 0), RED_CUBE)], [thing((3, 3, 0), RED_CUBE)]
    assert ap(far, true, -1) == ap(far, true, math.inf) == 1.0


# Against a plain loop


def plain_loop(predictions, targets, threshold):
    """One prediction after the other."""
    flat = [(predictions[b, k, 18], b * predictions.shape[1] + k) for b, k in np.ndindex(predictions.shape[:2])]
    claimed, hits, found = set(), [], 0
    for _, index in sorted(flat, reverse=True):
        b, k = divmod(index, predictions.shape[1])
        row, best, best_distance = predictions[b, k], None, math.inf
        for m, target in enumerate(targets[b]):
            alike = all(row[i:j].argmax() == target[i:j].argmax() for i, j in PARTS)
            if target[18] == 1 and alike:
                distance = math.sqrt(sum((6 * (row[d] - target[d])) ** 2 for d in range(3)))
                if distance < best_distance:
                    best, best_distance = m, distance
        hit = best is not None and best_distance < threshold and (b, best) not in claimed
        if hit:
            claimed.add((b, best))
        found += hit
        hits.append(found)
    total = int((targets[..., 18] == 1).sum())
    recall = [0.0, *(h / total for h in hits), 1.0]
    precision = [0.0, *(h / (i + 1) for i, h in enumerate(hits)), 0.0]
    for i in range(len(precision) - 2, -1, -1):
        precision[i] = max(precision[i], precision[i + 1])
    return sum((recall[i] - recall[i - 1]) * precision[i] for i in range(1, len(recall)))


def test_is_the_plain_loop_on_200_random_sets():
    rng = np.random.default_rng(0)
    different = set()
    for trial in range(40):  # of five images each
        slots, rows = rng.integers(1, 9, size=2)
        targets = np.zeros((5, rows, 19))
        for b, m in np.ndindex(5, rows):
            few = rng.integers(0, 2, size=4)  # classes are often equal
            targets[b, m] = thing(rng.uniform(-1, 1, size=3), few) if rng.random() < 0.7 or m == 0 else PADDING
        source = targets[:, rng.integers(0, rows, size=slots)]
        predictions = np.clip(source + rng.normal(0, 0.15, size=source.shape), 0, 1)
        predictions[..., 18] = rng.integers(0, 6, size=(5, slots)) / 5  # with ties
        for threshold in (*THRESHOLDS, 0.7):
            found = set_average_precision(predictions, targets, threshold)
            assert found == pytest.approx(plain_loop(predictions, targets, threshold), abs=1e-12), trial
            different.add(round(found, 6))
    assert len(different) > 100


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_grows_with_the_threshold_and_ignores_order(seed):
    rng = np.random.default_rng(seed)
    targets = np.array([[thing(rng.uniform(-3, 3, 3), rng.integers(0, 2, 4)) for _ in range(4)] for _ in range(6)])
    predictions = np.clip(targets + rng.normal(0, 0.1, targets.shape), 0, 1)
    predictions[..., 18] = rng.permutation(24).reshape(6, 4) / 24  # no ties
    scores = average_precisions(predictions, targets)
    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)
    images, slots, rows = rng.permutation(6), rng.permutation(4), rng.permutation(4)
    assert average_precisions(predictions[images][:, slots], targets[images][:, rows]) == pytest.approx(scores)
    assert average_precisions(torch.tensor(predictions), torch.tensor(targets)) == scores


@pytest.mark.parametrize(
    ("predictions", "targets", "threshold", "message"),
    [
        (np.zeros((2, 3, 18)), np.zeros((2, 3, 19)), 1.0, r"predictions must have shape \[images, objects, 19\]"),
        (np.zeros((2, 3, 19)), np.zeros((2, 19)), 1.0, "targets must have shape"),
        (np.zeros((2, 3, 19)), np.zeros((3, 3, 19)), 1.0, "as many images, got 2 and 3"),
        (np.full((2, 3, 19), np.nan), np.zeros((2, 3, 19)), 1.0, "predictions must be finite"),
        (np.zeros((2, 3, 19)), np.full((2, 3, 19), 0.5), 1.0, "must be 1 for an object or 0 for padding"),
        (np.zeros((2, 3, 19)), np.zeros((2, 3, 19)), 0.0, "threshold must be positive"),
        (np.zeros((2, 3, 19)), np.zeros((2, 3, 19)), math.nan, "threshold must be positive"),
    ],
)
def test_bad_sets(predictions, targets, threshold, message):
    with pytest.raises(ValueError, match=message):
        set_average_precision(predictions, targets, threshold)


# The class


def test_batches_score_as_one():
    rng = np.random.default_rng(0)
    targets = np.array([[thing(rng.uniform(-3, 3, 3), rng.integers(0, 2, 4)) for _ in range(4)] for _ in range(12)])
    predictions = np.clip(targets + rng.normal(0, 0.1, targets.shape), 0, 1)
    predictions[..., 18] = rng.permutation(48).reshape(12, 4) / 48  # no ties
    expected = average_precisions(predictions, targets)
    for sizes in ([12], [5, 7], [1] * 12):
        metric = SetAveragePrecision()
        for part in torch.arange(12).split(sizes):
            metric.update(torch.tensor(predictions)[part], torch.tensor(targets)[part])
        assert [value.item() for value in metric.compute().values()] == pytest.approx(expected, abs=1e-6)


def test_ties_do_not_depend_on_the_order_of_images():
    rng = np.random.default_rng(0)
    targets = torch.tensor(np.array([[thing(rng.uniform(-3, 3, 3), rng.integers(0, 2, 4))] for _ in range(12)]))
    predictions = targets.roll(1, 0)
    found = []
    for order in (torch.arange(12), torch.arange(12).flip(0)):
        metric = SetAveragePrecision([math.inf])
        metric.update(predictions[order], targets[order])
        found.append(metric.compute()["ap_inf"])
    assert torch.equal(*found)


def test_updates_of_different_widths_are_refused():
    metric = SetAveragePrecision()
    metric.update(torch.zeros(2, 5, 19), torch.zeros(2, 3, 19))
    with pytest.raises(
        ValueError, match=r"predictions of sets must be as wide as in the first update, \[5, 19\], got \[6, 19\]"
    ):
        metric.update(torch.zeros(2, 6, 19), torch.zeros(2, 3, 19))


# Adjusted Rand index


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6), st.integers(1, 40), st.booleans())
def test_ari_is_scikit_learns(seed, ours, theirs, pixels, foreground):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, theirs + 1, size=(5, pixels))
    noise = rng.integers(0, ours, size=true.shape)
    predicted = np.where(rng.random(true.shape) < 0.5, true, noise)
    expected = []
    for one, other in zip(predicted, true, strict=True):
        counted = other > 0 if foreground else np.full(pixels, True)
        if counted.any():
            expected.append(adjusted_rand_score(other[counted], one[counted]))
    np.testing.assert_allclose(adjusted_rand_indices(predicted, true, foreground), expected, atol=1e-12)
    mean = adjusted_rand_index(predicted, true, foreground)
    assert mean == pytest.approx(np.mean(expected)) if expected else math.isnan(mean)


def test_soft_masks_and_one_hot_masks():
    rng = np.random.default_rng(0)
    soft = rng.random((3, 4, 8, 8))
    true = rng.integers(0, 4, size=(3, 8, 8))
    expected = adjusted_rand_index(soft.argmax(1), true)
    assert adjusted_rand_index(soft, true) == expected
    objects = np.stack([true == i for i in (1, 2, 3)], axis=1)
    assert adjusted_rand_index(torch.tensor(soft), torch.tensor(objects)) == expected
    assert adjusted_rand_index(torch.tensor(soft), torch.tensor(true, dtype=torch.uint8)) == expected


def test_the_background_does_not_count():
    true = np.array([[0, 0, 0, 1, 1, 2, 2]])
    predicted = np.array([[1, 2, 3, 1, 1, 2, 2]])
    assert adjusted_rand_index(predicted, true) == 1.0
    assert adjusted_rand_index(predicted, true, foreground=False) < 1


def test_one_segment_each_is_perfect():
    assert adjusted_rand_index(np.zeros((2, 5), int), np.ones((2, 5), int)) == 1.0
    assert adjusted_rand_index(np.arange(5)[None], np.arange(5)[None] + 1) == 1.0
    assert adjusted_rand_index(np.zeros((1, 1), int), np.ones((1, 1), int)) == 1.0


def test_images_without_objects_are_left_out():
    true = np.array([[0, 0, 0, 0], [1, 1, 2, 2]])
    assert adjusted_rand_index(np.array([[0, 1, 2, 3], [5, 5, 6, 6]]), true) == 1.0
    assert math.isnan(adjusted_rand_index(true[:1], true[:1]))


@pytest.mark.parametrize(
    ("predicted", "true", "message"),
    [
        (np.zeros((2, 4), int), np.zeros((2, 5), int), "same images and pixels"),
        (np.zeros((2, 4)), np.zeros((2, 4), int), r"integers \[B, ...\] or masks"),
        (np.full((2, 3, 4), np.nan), np.zeros((2, 4), int), "predicted_masks must be finite"),
        (np.zeros(4, int), np.zeros(4, int), "got int64 of shape"),
    ],
)
def test_bad_masks(predicted, true, message):
    with pytest.raises(ValueError, match=message):
        adjusted_rand_index(predicted, true)


def test_ari_class():
    rng = np.random.default_rng(0)
    soft, true = torch.tensor(rng.random((7, 3, 6, 6))), torch.tensor(rng.integers(0, 4, size=(7, 6, 6)))
    metric = AdjustedRandIndex()
    for part in torch.arange(7).split(3):
        metric.update(soft[part], true[part])
    assert metric.compute().item() == pytest.approx(adjusted_rand_index(soft, true), abs=1e-7)
