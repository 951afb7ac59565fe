"""Prediction of object properties from slots, also on scenes that differ from the training scenes.

Dittadi et al., 2022, "Generalization and Robustness Implications in Object-Centric Learning". A probe, the same for all
slots, predicts every property of an object from one slot. Slots are matched with objects by the Hungarian algorithm, by
the loss of the probe or by the similarity of attention and true masks.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts
from unknot.datamodules import Property, SetBatch
from unknot.inference import fixed_noise
from unknot.metrics.scores import Scores
from unknot.randomness import derive_seed, kept_generators

CHUNK = 64
BATCH = 64
HIDDEN = 256
UNMATCHED = 1e6  # cost of a row of padding
SLOTS, PROBE, SHIFT = 0x5107, 0x960BE, 0x5A1F7  # purposes of random generators

Shift = Literal["occlusion", "crop", "color"]
SHIFTED_PROPERTIES: dict[str, tuple[str, ...]] = {
    "occlusion": (),
    "crop": ("coords", "position", "scale", "size"),
    "color": ("color",),
}
"""Properties whose true values a shift changes; they are left out of the scores of shifted scenes."""


def property_scores(
    model: Any,
    train: SetBatch,
    tests: Mapping[str, SetBatch],
    properties: Sequence[Property],
    probe: Literal["linear", "mlp"] = "linear",
    matching: Literal["loss", "mask"] = "loss",
    left_out: Mapping[str, Sequence[str]] | None = None,
    steps: int = 2000,
    lr: float = 1e-3,
    seed: int = 0,
) -> Scores:
    """Predict properties of objects from slots: accuracy of classes, R² of numbers.

    Args:
        model: model with ``encode(images) -> slots [B, K, D]`` and, to match by masks, ``decompose``, such as
            ``SlotAutoEncoder`` and ``DINOSAUR``.
        train: scenes to train the probe on.
        tests: scenes to test on, by name, for example scenes that differ from the training scenes, as returned by
            :func:`shifted`.
        properties: columns of targets: ``dataset.properties``.
        probe: ``"linear"``, or ``"mlp"`` with one hidden layer of 256.
        matching: how slots are matched with objects: ``"loss"`` of the probe, or ``"mask"``, the cosine of attention
            and true masks.
        left_out: properties that are neither scored nor used for matching, by name of a test.
        steps: training steps of the probe, with Adam, in batches of 64 scenes.
        lr: learning rate of the probe.
        seed: seed of slots and probe.

    Returns:
        ``NAME.PROPERTY`` for each test and property.

    >>> from unknot.datamodules import Tetrominoes
    >>> from unknot.zoo import SlotAutoEncoder
    >>> data, model = Tetrominoes(), SlotAutoEncoder(image_shape=(3, 35, 35), num_slots=4, channels=8)
    >>> scores = property_scores(model, data.draw(64), {"new": data.draw(16)}, data.properties, steps=10)
    >>> sorted(scores)
    ['new.color', 'new.position', 'new.shape']
    """
    counts(steps=steps)
    if probe not in ("linear", "mlp") or matching not in ("loss", "mask"):
        raise ValueError(
            f"probe must be 'linear' or 'mlp' and matching 'loss' or 'mask', got {probe!r} and {matching!r}."
        )
    if not properties:
        raise ValueError("These scenes have no properties; give the properties of their data set.")
    left_out = dict(left_out or {})
    if unknown := {*left_out} - {*tests}:
        raise ValueError(f"left_out names {sorted(unknown)[0]!r}, which is not a test; there are {', '.join(tests)}.")
    slots, alike = _slots(model, train, matching, seed)
    numbers = _numbers(train.targets, properties)
    with kept_generators(slots.device):
        torch.manual_seed(derive_seed(seed, PROBE))
        head = _head(slots.shape[2], train.targets.shape[2] - 1, probe)
        _fit(head, slots, alike, _standardised(train.targets, numbers), properties, steps, lr)
    scores: dict[str, float] = {}
    for name, scenes in tests.items():
        slots, alike = _slots(model, scenes, matching, seed)
        kept = [prop for prop in properties if prop.name not in left_out.get(name, ())]
        with torch.no_grad():
            predicted = head(slots)
        targets = _standardised(scenes.targets, numbers)
        scores |= {f"{name}.{key}": value for key, value in _scored(predicted, targets, alike, kept).items()}
    protocol = {
        "num_train": len(train.images),
        "num_test": {name: len(scenes.images) for name, scenes in tests.items()},
        "probe": probe,
        "matching": matching,
        "steps": steps,
        "seed": seed,
    }
    return Scores.of_draws([scores], protocol)


def shifted(scenes: SetBatch, shift: Shift, seed: int = 0) -> SetBatch:
    """Return scenes that differ from the training scenes of a model.

    Args:
        scenes: images in [0, 1] with masks.
        shift: ``"occlusion"`` covers every image with a grey rectangle, a quarter to a half of each side; ``"crop"``
            enlarges the middle two thirds; ``"color"`` changes the hue of one object in each image. An object that is
            no longer visible is removed. :data:`SHIFTED_PROPERTIES` lists the properties that change.
        seed: seed of positions and hues.

    >>> from unknot.datamodules import Tetrominoes
    >>> scenes = Tetrominoes().draw(4)
    >>> shifted(scenes, "occlusion").images.shape
    torch.Size([4, 3, 35, 35])
    """
    if shift not in SHIFTED_PROPERTIES:
        raise ValueError(f"shift must be one of {', '.join(SHIFTED_PROPERTIES)}, got {shift!r}.")
    if scenes.masks is None:
        raise ValueError("These scenes have no masks, without which objects cannot be changed or recognised.")
    generator = torch.Generator().manual_seed(derive_seed(seed, SHIFT))
    images, masks = scenes.images, scenes.masks
    if shift == "color":
        return scenes._replace(images=_other_hue(scenes, generator))
    n, _, height, width = images.shape
    if shift == "crop":
        top, left = round(height / 6), round(width / 6)
        images = images[:, :, top : height - top, left : width - left]
        images = F.interpolate(images, (height, width), mode="bilinear", align_corners=False)
        middle = masks[:, None, top : height - top, left : width - left].float()
        masks = F.interpolate(middle, (height, width), mode="nearest-exact")[:, 0].to(masks)
    else:
        inside = torch.ones(n, height, width, dtype=torch.bool)
        for axis, side in ((1, height), (2, width)):
            extent = side * (0.25 + 0.25 * torch.rand(n, generator=generator))
            start = (side - extent) * torch.rand(n, generator=generator)
            place = torch.arange(side) + 0.5
            covered = (place >= start[:, None]) & (place < (start + extent)[:, None])
            inside &= covered[:, :, None] if axis == 1 else covered[:, None]
        images = torch.where(inside[:, None], 0.5, images)
        masks = torch.where(inside, 0, masks)
    shown = torch.stack([(masks == i + 1).flatten(1).any(1) for i in range(scenes.targets.shape[1])], dim=1)
    return SetBatch(images, scenes.targets * shown[..., None], masks)


def _other_hue(scenes: SetBatch, generator: torch.Generator) -> Tensor:
    """Rotate the hue of one object of each image by 60 to 300 degrees about the grey axis."""
    assert scenes.masks is not None
    real = scenes.targets[..., -1]
    chosen = torch.multinomial(real + 1e-9, 1, generator=generator)[:, 0]
    angle = 2 * math.pi * (1 + 4 * torch.rand(len(chosen), generator=generator)) / 6
    axis = torch.full((3,), 1 / math.sqrt(3))
    cross = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / math.sqrt(3)
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    turn = cos * torch.eye(3) + (1 - cos) * torch.outer(axis, axis) + sin * cross
    turned = torch.einsum("bij,bjhw->bihw", turn, scenes.images).clamp(0, 1)
    inside = (scenes.masks == (chosen + 1)[:, None, None])[:, None]
    return torch.where(inside, turned, scenes.images)


@torch.no_grad()
def _slots(model: Any, scenes: SetBatch, matching: str, seed: int) -> tuple[Tensor, Tensor | None]:
    """Return slots ``[B, K, D]`` and, to match by masks, their distances from objects ``[B, M, K]``."""
    if not getattr(model, "capabilities", frozenset()) & {"slots", "feature_slots"}:
        raise ValueError(f"This {type(model).__name__} has no slots; models of latents are for `evaluate`.")
    if matching == "mask" and scenes.masks is None:
        raise ValueError("Matching by masks needs scenes with masks; give them, or matching='loss'.")
    slots, unlike = [], []
    with fixed_noise(model, derive_seed(seed, SLOTS)):
        for rows in torch.arange(len(scenes.images)).split(CHUNK):
            slots.append(model.encode(scenes.images[rows]).cpu())
            if matching == "mask":
                drawn = model.decode(slots[-1].to(model.device)).masks.cpu()
                masks = scenes.masks[rows, None].float()  # type: ignore[index]
                true = F.interpolate(masks, drawn.shape[2:], mode="nearest-exact")[:, 0].long()
                objects = F.one_hot(true, scenes.targets.shape[1] + 1)[..., 1:].movedim(-1, 1).flatten(2).float()
                unlike.append(1 - F.normalize(objects, dim=2) @ F.normalize(drawn.flatten(2), dim=2).mT)
    return torch.cat(slots), torch.cat(unlike) if unlike else None


def _head(inputs: int, outputs: int, probe: str) -> nn.Module:
    if probe == "linear":
        return nn.Linear(inputs, outputs)
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def _numbers(targets: Tensor, properties: Sequence[Property]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of the numeric columns of targets; 0 and 1 for classes."""
    real = targets[..., -1] == 1
    shift, scale = torch.zeros(targets.shape[2]), torch.ones(targets.shape[2])
    for prop in properties:
        if prop.kind == "number":
            values = targets[real][:, prop.start : prop.stop]
            shift[prop.start : prop.stop] = values.mean(0)
            scale[prop.start : prop.stop] = values.std(0).clamp(min=1e-6)
    return shift, scale


def _standardised(targets: Tensor, numbers: tuple[Tensor, Tensor]) -> Tensor:
    shift, scale = numbers
    return (targets - shift) / scale


def _fit(
    head: nn.Module,
    slots: Tensor,
    unlike: Tensor | None,
    targets: Tensor,
    properties: Sequence[Property],
    steps: int,
    lr: float,
) -> None:
    optimizer = torch.optim.Adam(head.parameters(), lr=lr)
    for _ in range(steps):
        rows = torch.randint(len(slots), (min(BATCH, len(slots)),))
        loss = _losses(head(slots[rows]), targets[rows], properties)
        which, objects, chosen = _match(loss if unlike is None else unlike[rows], targets[rows])
        optimizer.zero_grad()
        loss[which, objects, chosen].mean().backward()
        optimizer.step()


def _losses(predicted: Tensor, targets: Tensor, properties: Sequence[Property]) -> Tensor:
    """Return the cross-entropy of classes and squared error of numbers for every object and slot: ``[B, M, K]``."""
    parts = []
    for prop in properties:
        given, true = predicted[:, None, :, prop.start : prop.stop], targets[:, :, None, prop.start : prop.stop]
        if prop.kind == "class":
            parts.append(-(true * given.log_softmax(-1)).sum(-1))
        else:
            parts.append((given - true).square().mean(-1))
    return torch.stack(parts).sum(0)


def _match(cost: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return scene, object and slot of every pair of the cheapest assignment of real objects: each ``[P]``."""
    real = (targets[..., -1] == 1).numpy()
    matrices = np.where(real[..., None], cost.detach().double().numpy(), UNMATCHED)
    pairs = []
    for scene, matrix in enumerate(matrices):
        objects, slots = linear_sum_assignment(matrix)
        pairs.append(np.stack([np.full_like(objects, scene), objects, slots])[:, real[scene][objects]])
    scene, objects, slots = torch.from_numpy(np.concatenate(pairs, axis=1))
    return scene, objects, slots


def _scored(
    predicted: Tensor, targets: Tensor, unlike: Tensor | None, properties: Sequence[Property]
) -> dict[str, float]:
    cost = _losses(predicted, targets, properties) if unlike is None else unlike
    scene, objects, slots = _match(cost, targets)
    scores = {}
    for prop in properties:
        given = predicted[scene, slots, prop.start : prop.stop]
        true = targets[scene, objects, prop.start : prop.stop]
        if prop.kind == "class":
            scores[prop.name] = float((given.argmax(1) == true.argmax(1)).double().mean())
        else:
            rest, spread = (given - true).square().sum(0), (true - true.mean(0)).square().sum(0)
            scores[prop.name] = float((1 - rest / spread.clamp(min=1e-12)).mean())
    return scores
