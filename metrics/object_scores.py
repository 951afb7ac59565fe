"""Scores of set predictors and slots on held-out scenes: chapter "Learning About Multiple Objects"."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm.auto import tqdm

from unknot.arguments import counts
from unknot.datamodules import CLEVR, SetBatch
from unknot.datamodules.scenes.clevr_scenes import ClevrScenes, draw_scenes
from unknot.inference import fixed_noise
from unknot.metrics.classes.objects import ap_names
from unknot.metrics.functional.masks import correct_localization, mask_scores
from unknot.metrics.functional.sets import THRESHOLDS, adjusted_rand_indices, average_precisions
from unknot.metrics.scores import Scores
from unknot.randomness import derive_seed

ARI_SIDE = 32  # resolution at which the chapter compares attention with masks
CHUNK = 64
INITIAL_SLOTS = 0x510  # purpose of the random generator


def held_out_scenes(
    image_size: tuple[int, int],
    data: str = "clevr_scenes",
    n: int = 512,
    seed: int = 0,
    split: str = "val",
    redraw: bool = False,
    exactly: int | None = None,
    most: int = 10,
) -> SetBatch:
    """Return scenes to test on, which no training stream draws.

    Args:
        image_size: (height, width).
        data: ``"clevr_scenes"`` to draw new scenes, or a folder of CLEVR.
        n: maximum number of scenes.
        seed: seed of new scenes.
        split: split of a folder.
        redraw: render the layouts of a folder instead of reading its images, which also provides masks.
        exactly: only scenes with this number of objects.
        most: maximum number of objects of a scene, otherwise.

    >>> scenes = held_out_scenes((32, 32), n=2, exactly=4)
    >>> scenes.images.shape, scenes.targets.shape
    (torch.Size([2, 3, 32, 32]), torch.Size([2, 4, 19]))
    """
    if data == "clevr_scenes":
        fewest, most = (min(3, most), most) if exactly is None else (exactly, exactly)
        drawer = ClevrScenes(image_size, most, fewest)
        generator = torch.Generator().manual_seed(derive_seed(seed, exactly or 0, 0x7E57))
        sizes = [min(4 * CHUNK, n - i) for i in range(0, n, 4 * CHUNK)]
        parts = [drawer.draw(size, generator) for size in tqdm(sizes, desc="drawing scenes", disable=None, leave=False)]
        return SetBatch(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
    dataset = CLEVR(data, split, image_size=image_size, skip_missing=True)
    count = dataset.scenes.real.sum(1)
    numbers = torch.nonzero((count == exactly) if exactly else (count > 0) & (count <= most))[:n, 0].tolist()
    if not numbers:
        requested = f"exactly {exactly}" if exactly else f"1 to {most}"
        raise ValueError(f"{data}: no scene with {requested} objects in its {split} split; use clevr_scenes.")
    if redraw:
        scenes = dataset.scenes[numbers]
        drawn, masks = draw_scenes(scenes, image_size)
        return SetBatch(drawn / 255, scenes.targets(exactly or dataset.max_objects), masks)
    batch = dataset.batch(numbers)
    return batch._replace(targets=batch.targets[:, :exactly])


def predict_sets(
    model: Any, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None, seed: int = 0
) -> Tensor:
    """Predict sets ``[B, K, 19]`` in parts, from initial slots determined by ``seed``."""
    with fixed_noise(model, derive_seed(seed, INITIAL_SLOTS)):
        parts = tqdm(images.split(CHUNK), desc="predicting", disable=None, leave=False)
        return torch.cat([model.predict_sets(part, num_slots, num_iterations).sets for part in parts])


def set_scores(
    model: Any,
    scenes: SetBatch,
    draws: int = 1,
    seed: int = 0,
    num_slots: int | None = None,
    num_iterations: int | None = None,
) -> Scores:
    """Average precision of a set predictor at the thresholds of the chapter: ``ap_inf``, ``ap_1``, ``ap_0.5``, ...

    Args:
        model: a set predictor of the zoo.
        scenes: images and targets, for example from :func:`held_out_scenes`.
        draws: draws of initial slots; scores are means over them, with ``.std``, and ``.details`` lists each.
        seed: seed of the first draw.
        num_slots: slots at test time, if the model allows another number.
        num_iterations: iterations at test time, likewise.

    >>> from unknot.zoo import SlotSetPredictor
    >>> model = SlotSetPredictor(image_shape=(3, 32, 32))
    >>> list(set_scores(model, held_out_scenes((32, 32), n=4)))
    ['ap_inf', 'ap_1', 'ap_0.5', 'ap_0.25', 'ap_0.125']
    """
    _check(model, "sets", draws)
    results = []
    for draw in range(draws):
        sets = predict_sets(model, scenes.images, num_slots, num_iterations, seed + draw)
        results.append(dict(zip(ap_names(THRESHOLDS), average_precisions(sets, scenes.targets), strict=True)))
    chosen = {"num_slots": num_slots, "num_iterations": num_iterations}
    return _summary(results, scenes, seed, {name: value for name, value in chosen.items() if value is not None})


def attention_score(
    model: Any, scenes: SetBatch, draws: int = 1, seed: int = 0, resolution: int | tuple[int, int] = ARI_SIDE
) -> Scores:
    """Scores of slot attention against the masks of the objects, without the background.

    ``ari`` is the adjusted Rand index; ``miou``, ``mbo``, ``corloc`` and ``recovery`` are the functions of
    :mod:`unknot.metrics.functional` with averages per image, ``miou_object`` and ``mbo_object`` those per object.

    Args:
        model: a set predictor with attention, or a model that decomposes images into masks, such as
            ``SlotAutoEncoder``.
        scenes: images with masks, for example from :func:`held_out_scenes`.
        draws: draws of initial slots; scores are means over them, with ``.std``, and ``.details`` lists each.
        seed: seed of the first draw.
        resolution: side, or (height, width), at which masks are compared; 32 in the thesis. Attention is resized
            bilinearly, true masks to the nearest pixel. It is part of the protocol: finer masks score lower.

    >>> from unknot.zoo import SlotSetPredictor
    >>> scenes = held_out_scenes((32, 32), n=2)
    >>> sorted(attention_score(SlotSetPredictor(image_shape=(3, 32, 32)), scenes))
    ['ari', 'corloc', 'mbo', 'mbo_object', 'miou', 'miou_object', 'recovery']
    """
    _check(model, "attention", draws)
    if scenes.masks is None:
        raise ValueError("These scenes have no masks: use drawn scenes, or held_out_scenes(..., redraw=True).")
    size = (resolution, resolution) if isinstance(resolution, int) else resolution
    true = F.interpolate(scenes.masks[:, None].float(), size, mode="nearest-exact")[:, 0].long()
    objects = F.one_hot(true)[..., 1:].movedim(-1, 1)
    results = []
    for draw in range(draws):
        with fixed_noise(model, derive_seed(seed + draw, INITIAL_SLOTS)):
            batches = tqdm(scenes.images.split(CHUNK), desc="attending", disable=None, leave=False)
            maps = torch.cat([F.interpolate(_attention(model, part), size, mode="bilinear") for part in batches])
        scores = {"ari": float(adjusted_rand_indices(maps, true).mean())}
        for name, kind in (("miou", "iou"), ("mbo", "best_overlap"), ("recovery", "recovery")):
            scores[name] = float(mask_scores(kind, maps, objects).mean())  # type: ignore[arg-type]
        for name, kind in (("miou", "iou"), ("mbo", "best_overlap")):
            scores[f"{name}_object"] = float(mask_scores(kind, maps, objects, "object").mean())  # type: ignore[arg-type]
        results.append(scores | {"corloc": correct_localization(maps, objects)})
    return _summary(results, scenes, seed, {"resolution": list(size)})


def _attention(model: Any, images: Tensor) -> Tensor:
    if model.capabilities & {"slots", "feature_slots"}:
        masks: Tensor = model.decompose(images).masks
        return masks.float()
    attention: Tensor | None = model.predict_sets(images).attention
    if attention is None:
        raise ValueError(f"This {type(model).__name__} has no attention.")
    return attention.float()


def _check(model: Any, needs: str, draws: int) -> None:
    offered: frozenset[str] = getattr(model, "capabilities", frozenset())
    if not offered & ({"sets"} if needs == "sets" else {"sets", "slots", "feature_slots"}):
        raise ValueError(f"This {type(model).__name__} has no {needs} to score; models of codes are for `evaluate`.")
    counts(draws=draws)


def _summary(results: list[dict[str, float]], scenes: SetBatch, seed: int, options: dict[str, Any]) -> Scores:
    protocol = {"num_test": len(scenes.images), "seed": seed, "draws": len(results)} | options
    scores = Scores.of_draws(results, protocol)
    scores.details = {name: {str(i): draw[name] for i, draw in enumerate(results)} for name in results[0]}
    return scores
