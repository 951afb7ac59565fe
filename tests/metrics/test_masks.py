"""mIoU, mBO, CorLoc and recovery against loops over objects and segments."""

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unknot.metrics import MeanBestOverlap, MeanIoU, attention_score, held_out_scenes
from unknot.metrics import functional as f

SCORES = (f.mean_iou, f.mean_best_overlap, f.object_recovery)


def draw(images=3, slots=4, objects=3, side=8, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, objects + 1, size=(images, side, side)).repeat(2, 1).repeat(2, 2)
    true = ids[:, None] == np.arange(1, objects + 1)[:, None, None]
    true[0, -1] = False
    soft = rng.dirichlet(np.ones(slots), size=(images, 2 * side, 2 * side)).transpose(0, 3, 1, 2)
    soft[:, 1:] += 0.3 * true[:, : slots - 1]
    return soft, true


def overlaps(soft, true):
    """IoU of every object with every segment, image by image; objects that are not there are left out."""
    found = []
    for predicted, masks in zip(soft, true, strict=True):
        segments = [predicted.argmax(0) == k for k in range(len(predicted))]
        found.append([[(s & m).sum() / (s | m).sum() for s in segments] for m in masks if m.any()])
    return [np.array(each) for each in found]


def test_scores_are_those_of_loops():
    soft, true = draw()
    tables = overlaps(soft, true)
    best = [table.max(1) for table in tables]
    matched = []
    for table in tables:
        objects, slots = table.shape
        ways = [[table[o, k] for o, k in enumerate(way)] for way in permutations(range(slots), objects)]
        matched.append(max(ways, key=sum))
    for score, values in (
        (f.mean_iou, matched),
        (f.mean_best_overlap, best),
        (f.object_recovery, [each > 0.5 for each in best]),
    ):
        assert score(soft, true) == pytest.approx(np.mean([np.mean(each) for each in values]))
        assert score(soft, true, average="object") == pytest.approx(np.mean(np.concatenate(values)))
    assert f.correct_localization(soft, true) == pytest.approx(np.mean([each.max() > 0.5 for each in best]))


def test_kinds_of_masks():
    soft, true = draw()
    hard = soft == soft.max(1, keepdims=True)
    for score in (*SCORES, f.correct_localization):
        assert score(hard, true) == score(soft, true) == score(torch.from_numpy(soft), torch.from_numpy(true).float())
        assert score(true[1:], true[1:]) == 1
        assert np.isnan(score(soft, 0 * true))
    padded = np.concatenate([true, 0 * true], axis=1)
    assert f.mean_iou(soft, padded) == pytest.approx(f.mean_iou(soft, true))
    nothing = np.zeros_like(true[1:])
    assert f.mean_best_overlap(nothing, true[1:]) == 0  # pixels in no mask belong to no segment
    one = np.ones((1, 1, 4, 4))
    assert f.mean_iou(one, np.stack([np.eye(4), 1 - np.eye(4)])[None]) == pytest.approx(12 / 16 / 2)
    assert f.mean_best_overlap(one, np.stack([np.eye(4), 1 - np.eye(4)])[None]) == pytest.approx(0.5)


def test_resolution_and_overlaps():
    soft, true = draw()
    small = soft[:, :, ::2, ::2]
    with pytest.raises(ValueError, match=r"predicted \[8, 8\] and true \[16, 16\].*resolution=128"):
        f.mean_iou(small, true)
    assert f.mean_iou(small, true, resolution=8) == pytest.approx(f.mean_iou(small, true[:, :, ::2, ::2]))
    assert f.mean_iou(small, true, resolution=(8, 8)) == f.mean_iou(small, true, resolution=8)
    objects = np.zeros((1, 2, 1, 6), dtype=bool)
    objects[0, 0, 0, :4] = objects[0, 1, 0, 2:] = True
    predicted = np.zeros((1, 2, 1, 6))
    predicted[0, 0, 0, :2] = predicted[0, 1, 0, 2:] = 1
    assert f.mean_iou(predicted, objects) == pytest.approx((2 / 4 + 1) / 2)
    assert f.mean_iou(predicted, objects, ignore_overlaps=True) == 1


def test_classes():
    soft, true = (torch.from_numpy(masks) for masks in draw(images=7))
    for average in ("image", "object"):
        for build, function in ((MeanIoU, f.mean_iou), (MeanBestOverlap, f.mean_best_overlap)):
            metric = build(average=average, resolution=8)
            for part in torch.arange(7).split(3):
                metric.update(soft[part], true[part])
            expected = function(soft, true, average=average, resolution=8)
            assert metric.compute().item() == pytest.approx(expected, abs=1e-7)


def test_what_slots_attend_to():
    """A model whose masks are those of the scene is perfect at their resolution, one with a single slot is poor."""
    scenes = held_out_scenes((32, 32), n=3)

    class Known:
        capabilities = frozenset({"slots"})

        def decompose(self, images):
            masks = torch.nn.functional.one_hot(scenes.masks.long()).movedim(-1, 1).float()
            return SimpleNamespace(masks=masks if self.apart else torch.ones_like(masks[:, :1]))

    model = Known()
    for resolution in (32, (16, 16)):
        model.apart = True
        scores = attention_score(model, scenes, resolution=resolution)
        assert min(scores.values()) > (0.999 if resolution == 32 else 0.3)  # small objects lose their edges
        assert scores.protocol["resolution"] == ([32, 32] if resolution == 32 else [16, 16])
        model.apart = False
        alone = attention_score(model, scenes, resolution=resolution)
        assert alone["ari"] == pytest.approx(0)
        assert 0 < alone["miou"] < alone["mbo"] < 0.2
        assert alone["recovery"] == alone["corloc"] == 0


def test_errors():
    soft, true = draw()
    with pytest.raises(ValueError, match="average must be 'image' or 'object', got 'pixel'"):
        f.mean_iou(soft, true, average="pixel")
    with pytest.raises(ValueError, match=r"Expected predicted masks of shape \[B, K, H, W\], got .* \[3, 16, 16\]"):
        f.mean_iou(soft.argmax(1), true)
    with pytest.raises(ValueError, match="got 2 predicted and 3 true"):
        f.mean_iou(soft[:2], true)
    with pytest.raises(ValueError, match="predicted must be finite"):
        f.mean_iou(np.where(soft > 0.9, np.nan, soft), true)
